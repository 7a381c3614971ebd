"""A fake MCP server with something under way: tasks, visits to a URL, progress, subscriptions, log messages.

    python3 -I -S busy.py [--KEY=VALUE ...]

The flags, the control file, the seen file and the tools are those of fake.py; with `--era` those of modern.py,
which it then loads. What it adds are these tools (`tools/call` with these arguments), and the methods
tasks/get, tasks/result, tasks/cancel and tasks/list about tasks of this very process:

  task(id, ttl, status)   answers with a task: flat, with a resultType, to a modern request
  move(id, status, ttl)   changes it; `tell`: by notifications/tasks/status
  visit(id, by)           sends the user to a URL: by="request" (the call is answered with the client's answer) or
                          by="error" (-32042); `visited(id)` tells the end (`escaped`: \/ for /)
  work(steps, after)      so many progress notifications before its answer, and behind it
  nag(token, times)       progress for any token
  touch()                 notifications/resources/updated for each resource that was subscribed to
  chat()                  one log message of each level that the client wants to hear
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake  # noqa: E402
from fake import OPT, send, text  # noqa: E402

if "era" in OPT:
    __import__("modern")  # it puts itself before fake.py

TASKS, SUBSCRIBED = {}, []
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVEL = {"least": 0}
STAMP = "2025-11-25T10:30:00Z"
ENVELOPE = "io.modelcontextprotocol/protocolVersion"


def meta(message):
    found = message.get("params", {}).get("_meta")
    return found if isinstance(found, dict) else {}


# ------------------------------------------------------------------------------------------- tasks

def set_task(ident, status, ttl):
    TASKS[ident] = {"taskId": ident, "status": status, "ttl": ttl, "createdAt": STAMP, "lastUpdatedAt": STAMP}
    return TASKS[ident]


def do_task(args, message):
    task = dict(set_task(args["id"], args.get("status", "working"), args.get("ttl")))
    if ENVELOPE not in meta(message):
        return {"task": task}
    task["ttlMs"] = task.pop("ttl")
    return dict(task, resultType="task")


def do_move(args, message):
    task = set_task(args["id"], args["status"], args.get("ttl"))
    if args.get("tell"):
        send({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task})
    return text("moved")


def about_tasks(message):
    """tasks/...; a task of another process is unknown here, as with real servers."""
    method, ident = message["method"], message.get("params", {}).get("taskId")
    if method == "tasks/list":
        result = {"tasks": list(TASKS.values())}
    elif ident not in TASKS:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "Task not found"}})
        return
    elif method == "tasks/cancel":
        result = set_task(ident, "cancelled", TASKS[ident]["ttl"])
    elif method == "tasks/result":
        result = dict(text("done"), _meta={"io.modelcontextprotocol/related-task": {"taskId": ident}})
    else:
        result = TASKS[ident]
    send({"jsonrpc": "2.0", "id": message["id"], "result": result})


# ------------------------------------------------------------------------------------------ visits

def do_visit(args, message):
    visit = {"mode": "url", "elicitationId": args["id"], "url": "http://localhost/", "message": "Please look"}
    if args["by"] == "error":
        send({"jsonrpc": "2.0", "id": message["id"], "error": {
            "code": -32042, "message": "This request requires more information.", "data": {"elicitations": [visit]}}})
        return None
    send({"jsonrpc": "2.0", "id": "visit-" + args["id"], "method": "elicitation/create", "params": visit})
    fake.STATE["waiting"]['"visit-%s"' % args["id"]] = message["id"]
    return None


def do_visited(args, message):
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": args["id"]}})
    if args.get("escaped"):
        fake.write_all(1, (line.replace("/", "\\/").replace(": ", ":").replace(", ", ",") + "\n").encode())
        fake.sleep(0.1)  # so that it is not read together with the answer
    else:
        fake.write_all(1, (line + "\n").encode())
    return text("told")


# ---------------------------------------------------------------------------------------- progress

def progress(token, number):
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": number}}


def do_work(args, message):
    token = meta(message).get("progressToken")
    for number in range(args.get("steps", 0)):
        send(progress(token, number))
    send({"jsonrpc": "2.0", "id": message["id"], "result": text("worked")})
    for number in range(args.get("after", 0)):
        send(progress(token, 100 + number))


def do_nag(args, message):
    for number in range(args.get("times", 1)):
        send(progress(args["token"], 200 + number))
    return text("nagged")


# ---------------------------------------------------------------------- subscriptions and the log

def do_touch(args, message):
    for uri in SUBSCRIBED:
        send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
    return text("touched")


def do_chat(args, message):
    for level in LEVELS[LEVEL["least"]:]:
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": level}})
    return text("said")


def keep(message):
    """What resources/subscribe, resources/unsubscribe and logging/setLevel change."""
    method, params = message["method"], message.get("params", {})
    if method == "logging/setLevel" and params.get("level") in LEVELS:
        LEVEL["least"] = LEVELS.index(params["level"])
    elif method == "resources/subscribe" and params.get("uri") not in SUBSCRIBED:
        SUBSCRIBED.append(params.get("uri"))
    elif method == "resources/unsubscribe" and params.get("uri") in SUBSCRIBED:
        SUBSCRIBED.remove(params["uri"])


def answer(message):
    method = message.get("method")
    refusal = fake.tell("refuse", method)
    if method.startswith("tasks/") and not refusal:
        about_tasks(message)
        return
    if not refusal:
        keep(message)
    before(message)


before, fake.answer = fake.answer, answer
for tool in (do_task, do_move, do_visit, do_visited, do_work, do_nag, do_touch, do_chat):
    setattr(fake, tool.__name__, tool)

if __name__ == "__main__":
    fake.main()
