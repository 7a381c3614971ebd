"""A fake MCP server for the tests of the hub: fake.py, with calls that choose their own answer to the byte.

    python3 -I -S hub_fake.py [--KEY=VALUE ...]

The flags, the control file, the seen file and the tools are those of fake.py, which this file loads. Its own flags:

  tools_file=PATH   the raw result of tools/list, from a file (too long for a command line, or no valid JSON for us)
  gate=PATH         the process does nothing before this file exists
  prompt_names, resource_uris   lists for prompts/list and resources/list (and a template for each)

A tool that is none of the functions here or in fake.py is answered with what it was called with.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake  # noqa: E402
from fake import OPT, STATE, note, opt, send, sleep, write_all  # noqa: E402

ASKED = {}  # id of our question as JSON -> id of the call that waits for its answer


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
    """Asks the client; its whole answer is the result of the call."""
    ASKED[json.dumps(args["id"])] = message["id"]
    send({"jsonrpc": "2.0", "id": args["id"], "method": args["method"], "params": args.get("params", {})})


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


def answer(message):
    method = message["method"]
    if message.get("id") is None:
        fake_answer(message)
    elif method == "tools/call":
        call(message)
    elif page_of(method) is not None:
        STATE["seen"].append(method)
        reply(message["id"], "result", page_of(method))
    elif method == "prompts/get":
        send({"jsonrpc": "2.0", "id": message["id"], "result": {"messages": [], "asked": message["params"]}})
    elif method == "resources/read":
        send({"jsonrpc": "2.0", "id": message["id"], "result": {"contents": [], "asked": message["params"]}})
    else:
        fake_answer(message)


def response(message):
    waiting = ASKED.pop(json.dumps(message.get("id")), None)
    if waiting is None:
        fake_response(message)
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
