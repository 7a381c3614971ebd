"""A fake MCP server for the tests of the hub: fake.py, with calls that choose their own answer to the byte.

    python3 -I -S hub_fake.py [--KEY=VALUE ...]

The flags, the control file, the seen file and the tools are those of fake.py, which this file loads. Its own flags:

  tools_file=PATH   the raw result of tools/list, from a file (too long for a command line, or no valid JSON for us)
  gate=PATH         the process does nothing before this file exists
  prompt_names, resource_uris   lists for prompts/list and resources/list (and a template for each)
  ask_at={METHOD: [ID, ITS METHOD, PARAMS]}   such a request asks the client first, and its answer tells what was said
  roots_at_start    asks for the roots behind `initialized` (that often), as server-filesystem does; the tool `roots`
                    tells the answers, and which requests came before them
  modern_only=-32022|-32601   a server of 2026-07-28: its refusal of `initialize`, see "a server of 2026-07-28 only"
  discover          what server/discover says then: a list of versions, the code of an error, or "silence"
  io_raw=TEXT       the whole input_required result of the tool `ask` then, {count} being the number of the call

A tool that is none of the functions here or in fake.py is answered with what it was called with. Of its own it
notes in the seen file {"ev": "heard", "message"} for each answer of the client, and {"ev": "early", "method"} for each
request that came before the roots that were asked for at the start.
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake  # noqa: E402
from fake import OPT, STATE, note, opt, send, sleep, write_all  # noqa: E402

for flag, kind in (("prompt_names", "prompts"), ("resource_uris", "resources")):
    if flag in OPT:
        OPT.setdefault(kind, 0)  # it declares what it has

LISTENING = []  # the ids of its open subscriptions, as a server of 2026-07-28
ASKED = {}  # id of our question as JSON -> what waits for its answer: the id of a call, or a function
ROOTS = {"open": 0, "answers": [], "early": []}
MCP = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


def reply(ident, member, raw):
    """An answer whose result or error is the text `raw`, as it is."""
    write_all(1, ('{"jsonrpc":"2.0","id":%s,"%s":%s}\n' % (json.dumps(ident), member, raw)).encode("utf-8",
                                                                                                   "surrogatepass"))


def do_result(args, message):
    reply(message["id"], "result", args["raw"])


def do_rpc(args, message):
    reply(message["id"], "error", args["raw"])


def do_bare(args, message):
    """An answer with neither result nor error."""
    send({"jsonrpc": "2.0", "id": message["id"]})


def do_meta(args, message):
    return {"params": message["params"]}


def do_progress(args, message):
    """`n` messages of progress, `every` seconds apart; then an answer, unless `hang`."""
    token = message["params"].get("_meta", {}).get("progressToken")
    for number in range(args["n"]):
        send({"jsonrpc": "2.0", "method": "notifications/progress",
              "params": {"progressToken": token, "progress": number + 1, "total": args["n"],
                         "message": "step %d" % number}})
        sleep(args.get("every", 0))
    return None if args.get("hang") else {"token": token}


def do_client(args, message):
    """Asks the client; its whole answer is the result of the call, or only that there is one (`untold`)."""
    def heard(said):
        send({"jsonrpc": "2.0", "id": message["id"], "result": {"heard": 1}})

    ASKED[json.dumps(args["id"])] = heard if args.get("untold") else message["id"]
    send({"jsonrpc": "2.0", "id": args["id"], "method": args["method"], "params": args.get("params", {})})


def do_upon(args, message):
    """Asks the client when `now` is called."""
    ASKED.setdefault("upon", []).append((args, message))


def do_now(args, message):
    for one in ASKED.pop("upon", []):
        do_client(*one)
    return {"now": True}


def do_client_raw(args, message):
    """Asks the client with a line that is given as text."""
    ASKED[json.dumps(args["id"])] = message["id"]
    write_all(1, args["raw"].encode("utf-8", "surrogatepass") + b"\n")


def do_several(args, message):
    """`questions`: [id, method, params] each, at once or `in_turn`; the result tells all answers by their ids.

    Behind the last answer `n` messages of progress; `first`: one before the questions; `silent`: no result at all.
    """
    left, answers = list(args["questions"]), {}
    token = message["params"].get("_meta", {}).get("progressToken")

    def step(number):
        send({"jsonrpc": "2.0", "method": "notifications/progress",
              "params": {"progressToken": token, "progress": number}})

    def heard(said):
        answers[str(said["id"])] = {key: said[key] for key in ("result", "error") if key in said}
        if left and args.get("in_turn"):
            ask_next()
        elif len(answers) == len(args["questions"]):
            for number in range(args.get("n", 0)):
                step(number + 1)
            if not args.get("silent"):
                send({"jsonrpc": "2.0", "id": message["id"], "result": {"answers": answers}})

    def ask_next():
        ident, method, params = left.pop(0)
        ASKED[json.dumps(ident)] = heard
        send({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})

    if args.get("first"):
        step(0)
    ask_next()
    while left and not args.get("in_turn"):
        ask_next()


def do_aside(args, message):
    """Asks, and answers the call without waiting for what is said; `behind`: answers first, then asks, `times` over."""
    idents = [args["id"]] + ["%s-%d" % (args["id"], number) for number in range(1, args.get("times", 1))]
    ASKED.update((json.dumps(ident), lambda said: None) for ident in idents)
    lines = [{"jsonrpc": "2.0", "id": ident, "method": args["method"], "params": {}} for ident in idents]
    lines.insert(0 if args.get("behind") else len(lines), {"jsonrpc": "2.0", "id": message["id"], "result": {"done": True}})
    for number, line in enumerate(lines):
        sleep(args.get("later", 0) if number == 1 else 0)
        send(line)
    note("asked", ids=idents)


def do_die_asking(args, message):
    send({"jsonrpc": "2.0", "id": "last", "method": args["method"], "params": {}})
    sleep(args.get("later", 0))
    fake.die(args["how"])


def do_roots(args, message):
    return {"roots": ROOTS["answers"], "early": ROOTS["early"]}


def do_since_ping(args, message):
    """How long ago the ping came."""
    return {"s": time.monotonic() - STATE["ping_s"]}


def do_touch(args, message):
    """A side effect that can be counted."""
    note("effect", n=args.get("n"))
    return {"done": True} if args.get("how") is None else fake.die(args["how"])


def call(message):
    params = message["params"]
    name, args = params["name"], params.get("arguments", {})
    STATE["calls"] += 1
    act = globals().get("do_" + name) or getattr(fake, "do_" + name, None)
    result = act(args, message) if act else {"called": name, "arguments": args}
    if result is not None:
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def told(message):
    """What a prompt or a resource was asked with, and what the client said to our question (flag ask_at)."""
    found = {"asked": message["params"]}
    if "said" in message:
        found["said"] = message["said"]
    return found


def page_of(method):
    """The result of a listing that has a flag here, None for the others."""
    if method == "tools/list" and "tools_file" in OPT:
        with open(opt("tools_file"), encoding="utf-8", errors="surrogatepass") as file:
            return file.read()
    if method == "prompts/list" and "prompt_names" in OPT:
        return json.dumps({"prompts": [{"name": name, "arguments": [{"name": "who"}]} for name in opt("prompt_names")]})
    if method == "resources/list" and "resource_uris" in OPT:
        return json.dumps({"resources": [{"uri": uri, "name": "r"} for uri in opt("resource_uris")]})
    if method == "resources/templates/list" and "resource_uris" in OPT:
        return json.dumps({"resourceTemplates": [{"uriTemplate": uri + "{x}", "name": "t"}
                                                 for uri in opt("resource_uris")]})
    return None


def ask_for_roots():
    """What a server does whose folders are the client's: nothing is allowed before it knows them."""
    def heard(said):
        ROOTS["open"] -= 1
        ROOTS["answers"].append({key: said[key] for key in ("result", "error") if key in said})

    for number in range(int(opt("roots_at_start"))):
        ROOTS["open"] += 1
        ASKED[json.dumps("start-%d" % number)] = heard
        send({"jsonrpc": "2.0", "id": "start-%d" % number, "method": "roots/list"})


def came_early(method):
    if ROOTS["open"] and method != "ping":
        ROOTS["early"].append(method)
        note("early", method=method)


# --------------------------------------------------------------------- a server of 2026-07-28 only

def refuse(message, code, text, **data):
    error = {"code": code, "message": text}
    if data:
        error["data"] = data
    send({"jsonrpc": "2.0", "id": message["id"], "error": error})


def give(message, result, hints=False):
    """A result with what the era wants of each."""
    result.setdefault("resultType", "complete")
    if hints:
        result.update(ttlMs=0, cacheScope="private")
    result["_meta"] = {MCP + "serverInfo": {"name": "modern", "version": "1"}}
    send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def modern_answer(message):
    method = message["method"]
    if message.get("id") is None:
        return
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    if method == "initialize":
        code = opt("modern_only")
        refuse(message, code, "no handshake here", **({"supported": [MODERN]} if code == -32022 else {}))
    elif meta.get(MCP + "protocolVersion") != MODERN or not isinstance(meta.get(MCP + "clientCapabilities"), dict):
        refuse(message, -32602, "no _meta of %s" % MODERN)
    elif method == "server/discover":
        found = opt("discover", [MODERN])
        if isinstance(found, int):
            refuse(message, found, "no discovery here")
        elif found != "silence":
            give(message, {"supportedVersions": found, "capabilities": fake.capabilities()}, True)
    elif method == "tools/call":
        modern_call(message, params, params.get("arguments") or {})
    elif page_of(method) is not None or method == "tools/list":
        give(message, json.loads(page_of(method) or json.dumps(fake.list_result(method, params))), True)
    elif method in ("prompts/get", "resources/read"):
        member = {"prompts/get": {"messages": []}, "resources/read": {"contents": []}}[method]
        question = opt("ask_at", {}).get(method)
        if question and "inputResponses" not in params:
            give(message, {"resultType": "input_required", "requestState": "at",
                           "inputRequests": {question[0]: {"method": question[1], "params": question[2]}}})
        else:
            give(message, dict(member, asked=params), method == "resources/read")
    elif method == "subscriptions/listen" and opt("announce"):
        LISTENING.append(message["id"])
        tell_listener("subscriptions/acknowledged", notifications=params["notifications"])
    else:
        refuse(message, -32601, "no such method")


def tell_listener(name, **params):
    for ident in LISTENING:
        fake.send({"jsonrpc": "2.0", "method": "notifications/" + name,
                   "params": dict(params, _meta={MCP + "subscriptionId": ident})})


def modern_call(message, params, args):
    """`ask`: input_required with `questions` {KEY: {method, params}}, `rounds` times or for ever; nothing is kept here.

    `state`: a prefix, each requestState is it and the number of the round; without it there is one round and no
    requestState. Its last result tells the params of all rounds that this process saw of it.
    """
    if params["name"] != "ask":
        if params["name"] == "progress":
            fake.send({"jsonrpc": "2.0", "method": "notifications/progress",
                       "params": {"progressToken": params["_meta"].get("progressToken"), "progress": 1}})
        elif params["name"] == "grow":
            STATE["grown"]["tools"] = STATE["grown"].get("tools", 0) + args["by"]
            tell_listener("tools/list_changed")
        elif params["name"] in ("die", "hang"):
            return getattr(fake, "do_" + params["name"])(args, message)
        elif params["name"] == "rpc":
            return reply(message["id"], "error", args["raw"])
        return give(message, {"called": params["name"], "arguments": args, "params": params})
    STATE["calls"] += 1
    STATE.setdefault("rounds", []).append(params)
    state, prefix, number = params.get("requestState"), args.get("state"), int("inputResponses" in params)
    if isinstance(state, str) and prefix is not None:
        number = int(state[len(prefix):])
    if opt("io_raw"):
        return reply(message["id"], "result", opt("io_raw").replace("{count}", str(STATE["calls"])))
    if number >= args.get("rounds", 1) and not args.get("for_ever"):
        return give(message, {"content": [], "rounds": STATE.pop("rounds")})
    result = {"resultType": "input_required"}
    if args.get("questions"):
        result["inputRequests"] = args["questions"]
    if prefix is not None:
        result["requestState"] = "%s%d" % (prefix, number + 1)
    give(message, result)


# ------------------------------------------------------------------------------------------- all

def answer(message):
    method = message["method"]
    if method == "ping":
        STATE["ping_s"] = time.monotonic()
    if message.get("id") is not None:
        came_early(method)
    question = opt("ask_at", {}).get(method)
    if question is None or message.get("id") is None or opt("modern_only"):
        (modern_answer if opt("modern_only") else plain_answer)(message)
        return
    ASKED[json.dumps(question[0])] = lambda said: plain_answer(dict(message, said=said))
    send({"jsonrpc": "2.0", "id": question[0], "method": question[1], "params": question[2]})


def plain_answer(message):
    method = message["method"]
    if message.get("id") is None:
        fake_answer(message)
        if method == "notifications/initialized" and opt("roots_at_start"):
            ask_for_roots()
    elif method == "tools/call":
        call(message)
    elif page_of(method) is not None:
        STATE["seen"].append(method)
        reply(message["id"], "result", page_of(method))
    elif method == "prompts/get":
        send({"jsonrpc": "2.0", "id": message["id"], "result": dict(told(message), messages=[])})
    elif method == "resources/read":
        send({"jsonrpc": "2.0", "id": message["id"], "result": dict(told(message), contents=[])})
    else:
        fake_answer(message)


def response(message):
    note("heard", message=message)
    waiting = ASKED.pop(json.dumps(message.get("id")), None)
    if waiting is None:
        fake_response(message)
    elif callable(waiting):
        waiting(message)
    else:
        send({"jsonrpc": "2.0", "id": waiting, "result": {"answer": message}})


def prepare():
    fake_prepare()
    while opt("gate") and not os.path.exists(opt("gate")):
        sleep(0.002)


fake_answer, fake_response, fake_prepare = fake.answer, fake.response, fake.prepare
fake.answer, fake.response, fake.prepare = answer, response, prepare

if __name__ == "__main__":
    fake.main()
