"""A server that answers as a captured one did; for tests/test_warm_starts.py.

    python captured.py ANSWERS STARTS

ANSWERS is a JSON file: what `key` gives for a request -> {"result": ...}, {"error": ...} or, for a subscription,
{"acknowledged": params}. At its start it adds a line to the file STARTS.
"""
import json
import os
import sys

META = "io.modelcontextprotocol/"


def key(line):
    """What the answer depends on: the era, the method, and the version asked for or the page."""
    params = line.get("params") or {}
    modern = line["method"] == "server/discover" or META + "protocolVersion" in (params.get("_meta") or {})
    about = params.get("protocolVersion") if line["method"] == "initialize" else params.get("cursor")
    return json.dumps(["modern" if modern else "legacy", line["method"], about])


def answer(answers, line):
    found = answers.get(key(line), {"error": {"code": -32601, "message": "Method not found"}})
    if "acknowledged" in found:
        named = {"_meta": {META + "subscriptionId": line["id"]}}
        return {"method": "notifications/subscriptions/acknowledged", "params": dict(found["acknowledged"], **named)}
    return dict(found, id=line["id"])


def main():
    with open(sys.argv[2], "a") as starts:
        starts.write("%d\n" % os.getpid())
    with open(sys.argv[1]) as file:
        answers = json.load(file)
    for text in sys.stdin.buffer:
        line = json.loads(text)
        if "method" in line and line.get("id") is not None:
            sys.stdout.write(json.dumps(dict(answer(answers, line), jsonrpc="2.0")) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
