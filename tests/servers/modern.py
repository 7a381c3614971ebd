"""A fake MCP server of both protocol eras: what fake.py is for `initialize`, this is for 2026-07-28.

    python3 -I -S modern.py [--KEY=VALUE ...]

The flags, the control file, the seen file, the process tricks and the tools are those of fake.py, which
this file loads (also `delay`, `refuse` and `hang_at` with METHOD=THING).  Its own flags:

  era=dual|modern|legacy  which requests it takes; `lock`: the first request fixes the era of the process,
                          as Python SDK 2.x does; `strict`: a legacy list before `initialize` gets -32602
  knows=[...]             modern versions it takes; `lists_versions=[...]`: what discover claims instead
  discover=CODE|"silence"|"legacy-only"|"wrong"   the answer to a probe, where it is not the plain one;
                          "legacy-only" and "wrong": a result with versions that no modern client can use
  ttl, scope              the hints of a cacheable result; `bare`: no resultType, ttlMs, cacheScope at all;
                          `info`=false: no serverInfo in the result's _meta; `raw_result`: METHOD=TEXT
  page=N                  pages of N; a cursor holds only in the process that gave it
  page_fault="repeat"|"endless"|"type"|"error"    what is wrong with the second page's end
  listen=CODE|"silence"   a listen refused or never acknowledged; `grants=[...]`: the most it grants;
                          `graceful`=false: no result for open listens at the end of the input
  start_asks=[METHOD...]  requests of the server at its start; `ask_caps`: tools grow by 3 with elicitation

Events of its own in the seen file: {"ev": "call", "name", "n"} for each call, "listen", "unlisten".
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake  # noqa: E402
from fake import LISTS, OPT, STATE, note, opt, send, sleep, tell  # noqa: E402

MCP = "io.modelcontextprotocol/"
VERSION, CAPS, INFO, SUBSCRIPTION = (MCP + word for word in
                                     ("protocolVersion", "clientCapabilities", "serverInfo", "subscriptionId"))
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
GONE = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "initialize")
LOCK = OPT.pop("lock", False)  # for fake.py a file to lock
ERA = {"fixed": None, "shaken": False, "salt": os.urandom(4).hex()}
LISTENS = {}  # id as JSON -> (id, what was granted)


def fail(message, code, text, data=None):
    error = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    send({"jsonrpc": "2.0", "id": message["id"], "error": error})


def knows():
    return opt("knows", ["2026-07-28"])


def complete(result, hints=True):
    """The result with the members that the modern era wants."""
    if not opt("bare"):
        result.setdefault("resultType", "complete")
        if hints:
            result.update(ttlMs=opt("ttl", 0), cacheScope=opt("scope", "private"))
    if opt("info", True):
        result["_meta"] = {INFO: {"name": "modern", "version": str(opt("version", "1"))}}
    return result


def held_back(message):
    """Delays, refusals and silence that fake.py knows too; True when nothing more is to be done."""
    method = message["method"]
    STATE["counts"][method] = count = STATE["counts"].get(method, 0) + 1
    if tell("delay", method):
        sleep(tell("delay", method))
    if tell("die_at", method):
        fake.die(tell("die_at", method))
    hang = opt("hang_at", [])
    if method in hang and (isinstance(hang, list) or count > hang[method]):
        return True
    refusal = tell("refuse", method)
    if refusal and count <= refusal.get("times", 1 << 30):
        fail(message, refusal["code"], refusal["message"])
        return True
    return False


def verbatim(message):
    """A result as it is to appear on the wire (`raw_result`: METHOD=TEXT); True when there is one."""
    text = tell("raw_result", message["method"])
    if text:
        fake.write_all(1, ('{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (json.dumps(message["id"]), text)).encode())
    return bool(text)


# ------------------------------------------------------------------------------------------ lists

def items(method):
    kind = LISTS[method][1]
    count = opt(kind, 1 if kind == "tools" else 0)
    if kind == "tools":
        count += STATE["grown"].get("tools", 0)
        if opt("ask_caps") and "elicitation" in STATE["caps"]:
            count += 3
    found = fake.named(kind, count)
    if opt("describe"):
        for one in found:
            one["description"] = opt("describe")
    return found


def cursor(start):
    return "%s/+=%d" % (ERA["salt"], start)


def list_page(method, given):
    """(result, None), or (None, code) for a cursor that is none of this process's."""
    found, page, fault, start = items(method), opt("page"), opt("page_fault"), 0
    if given is not None:
        head, _, tail = str(given).partition("/+=")
        if head != ERA["salt"]:
            return None, -32602
        start = int(tail)
    if not page:
        return {LISTS[method][0]: found}, None
    if start and fault == "error":
        return None, -32603
    result = {LISTS[method][0]: found[start:start + page]}
    if start + page < len(found) or fault == "endless":
        result["nextCursor"] = cursor(start + page)
    if start and fault == "repeat":
        result["nextCursor"] = cursor(start)
    if start and fault == "type":
        result["nextCursor"] = 7
    return result, None


def listing(message, params, modern):
    method = message["method"]
    if held_back(message) or verbatim(message):
        return
    if LISTS[method][1] not in OPT and method != "tools/list":
        fail(message, -32601, "no such method")
        return
    result, code = list_page(method, params.get("cursor"))
    if code is not None:
        fail(message, code, "no such page")
        return
    send({"jsonrpc": "2.0", "id": message["id"], "result": complete(result) if modern else result})


# --------------------------------------------------------------------------------------- discover

def discover(message):
    how = opt("discover")
    if held_back(message) or how == "silence" or verbatim(message):
        return
    if isinstance(how, int):
        data = {"supported": knows(), "requested": "2026-07-28"} if how == -32022 else None
        fail(message, how, "no discovery here", data)
        return
    versions = {"legacy-only": ["2025-11-25"], "wrong": ["1999-01-01"]}.get(how, opt("lists_versions", knows()))
    send({"jsonrpc": "2.0", "id": message["id"], "result": complete(
        {"supportedVersions": versions, "capabilities": fake.capabilities(), "instructions": "Modern."})})


# ------------------------------------------------------------------------------------------ listen

def listen(message, params):
    how, ident = opt("listen"), message["id"]
    note("listen", id=ident, notifications=params.get("notifications"))
    if held_back(message) or how == "silence":
        return
    if isinstance(how, int):
        fail(message, how, "no subscriptions here")
        return
    wanted = params.get("notifications", {})
    granted = {key: True for key, kind in KINDS.items()
               if wanted.get(key) is True and fake.capabilities().get(kind, {}).get("listChanged")
               and key in opt("grants", KINDS)}
    if wanted.get("resourceSubscriptions"):
        granted["resourceSubscriptions"] = wanted["resourceSubscriptions"]
    LISTENS[json.dumps(ident)] = (ident, granted)
    tagged(ident, "notifications/subscriptions/acknowledged", notifications=granted)
    say_at_the_end()


def tagged(ident, method, **params):
    send({"jsonrpc": "2.0", "method": method, "params": dict({"_meta": {SUBSCRIPTION: ident}}, **params)})


def goodbye(ident):
    return {"jsonrpc": "2.0", "id": ident, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: ident}}}


def say_at_the_end():
    """fake.py writes `eof_say` when its input ends: the results of the listens that are open then."""
    if opt("graceful", True):
        OPT["eof_say"] = "".join(json.dumps(goodbye(ident)) + "\n" for ident, _ in LISTENS.values())


def cancelled(params):
    ident = params.get("requestId")
    if LISTENS.pop(json.dumps(ident), None):
        note("unlisten", id=ident)
        say_at_the_end()


def announce(kind):
    """list_changed: on each stream that asked for it, and to a client that shook hands."""
    method = "notifications/%s/list_changed" % kind
    for ident, granted in list(LISTENS.values()):
        if granted.get(kind + "ListChanged"):
            tagged(ident, method)
    if ERA["shaken"]:
        send({"jsonrpc": "2.0", "method": method})


# ------------------------------------------------------------------------------------------- calls

def call(message, params, modern):
    if held_back(message):
        return
    name, arguments = params.get("name"), params.get("arguments", {})
    STATE["calls"] += 1
    note("call", name=name, n=STATE["calls"], arguments=arguments)
    if name == "grow":
        STATE["grown"]["tools"] = STATE["grown"].get("tools", 0) + 1
        announce("tools")
        result = fake.text("grown")
    elif name == "hangup":  # ends all streams of its own accord
        for ident, _ in LISTENS.values():
            send(goodbye(ident))
        LISTENS.clear()
        say_at_the_end()
        result = fake.text("hung up")
    elif name == "confirm" and "inputResponses" not in params:
        result = {"resultType": "input_required", "requestState": "s-%d" % STATE["calls"],
                  "inputRequests": {"sure": {"method": "elicitation/create", "params": {"message": "Sure?"}}}}
    elif name == "confirm":
        result = {"confirmed": params["inputResponses"], "state": params.get("requestState")}
    elif name == "echo":
        result = {"echo": arguments, "n": STATE["calls"]}
    else:
        result = getattr(fake, "do_" + name)(arguments, message)
    if result is not None:
        send({"jsonrpc": "2.0", "id": message["id"], "result": complete(result, hints=False) if modern else result})


# ------------------------------------------------------------------------------------ the two eras

def is_modern(params):
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION in meta


def wrong_era(message, modern):
    """Answers what this process does not take; True when it did."""
    era = opt("era", "dual")
    if LOCK:
        ERA["fixed"] = ERA["fixed"] or ("modern" if modern else "legacy")
        if ERA["fixed"] == "legacy" and modern:
            fail(message, -32600, "connection is serving a legacy protocol")
            return True
    if not modern and (era == "modern" or ERA["fixed"] == "modern"):
        fail(message, -32022, "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
             {"supported": knows(), "requested": message.get("params", {}).get("protocolVersion")})
        return True
    return False


def modern_request(message, params):
    method, meta = message["method"], params.get("_meta", {})
    if method == "server/discover" and VERSION not in meta:
        fail(message, -32601, "no such method")
        return
    if not isinstance(meta.get(CAPS), dict):
        fail(message, -32602, "clientCapabilities is missing")
        return
    if meta[VERSION] not in knows():
        fail(message, -32022, "unsupported protocol version", {"supported": knows(), "requested": meta[VERSION]})
        return
    STATE["caps"] = meta[CAPS]
    if method == "server/discover":
        discover(message)
    elif method == "subscriptions/listen":
        listen(message, params)
    elif method in LISTS:
        listing(message, params, True)
    elif method == "tools/call":
        call(message, params, True)
    elif not held_back(message):
        fail(message, -32601, "no such method")


def legacy_request(message, params):
    method = message["method"]
    if method == "server/discover":
        if not held_back(message) and opt("discover") != "silence":
            how = opt("discover", -32601)
            fail(message, how, "no such method" if how == -32601 else "Invalid request parameters")
    elif method in LISTS and opt("strict") and not ERA["shaken"]:
        fail(message, -32602, "Invalid request parameters")
    elif method in LISTS:
        listing(message, params, False)
    elif method == "tools/call":
        call(message, params, False)
    else:
        ERA["shaken"] = ERA["shaken"] or method == "initialize"
        fake_answer(message)


def answer(message):
    method, params = message["method"], message.get("params")
    params = params if isinstance(params, dict) else {}
    if message.get("id") is None:
        STATE["seen"].append(method)
        if method == "notifications/cancelled":
            cancelled(params)
        elif method == "notifications/initialized":
            fake_answer(message)
        return
    modern = is_modern(params) or method in ("server/discover", "subscriptions/listen")
    if opt("era") == "legacy" and not (LOCK and ERA["fixed"] == "legacy"):
        modern = False  # an older server does not know the members: they are noise to it
    if wrong_era(message, modern):
        return
    if modern:
        modern_request(message, params)
    else:
        legacy_request(message, params)


fake_answer = fake.answer
fake.answer = answer
fake_prepare = fake.prepare


def prepare():
    fake_prepare()
    for number, method in enumerate(opt("start_asks", [])):
        send({"jsonrpc": "2.0", "id": "start-%d" % number, "method": method})


fake.prepare = prepare

if __name__ == "__main__":
    fake.main()
