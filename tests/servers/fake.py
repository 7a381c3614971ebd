"""A fake MCP server for the tests: small, fast to start, and as badly behaved as it is told to be.

    python3 -I -S fake.py [--KEY=VALUE ...] [other words]

A value that parses as JSON is taken as such, anything else is text.  `--control=FILE` names a JSON
object that overrides the flags at each start, so that a test changes the server between two
sessions without changing its command line (and with it the key of its recording).

What it does at start and at the end comes from the flags; what one call does comes from the call:
`tools/call` with name N and arguments A runs the function `do_N` below.

Everything worth knowing is appended to `--seen=FILE`, one JSON object a line:
{"ev": "start" | "got" | "child" | "eof" | "signal" | "saved" | "end" | "ended-by-plan", ...}.
"""

import json
import os
import sys

ARGV = sys.argv[1:]


def flags(words):
    found = {}
    for word in words:
        if not word.startswith("--") or "=" not in word:
            continue
        key, text = word[2:].split("=", 1)
        try:
            found[key.replace("-", "_")] = json.loads(text)
        except ValueError:
            found[key.replace("-", "_")] = text
    if "control" in found:
        try:
            with open(found["control"]) as file:
                found.update(json.load(file))
        except FileNotFoundError:
            pass
    return found


OPT = flags(ARGV)


def opt(name, default=None):
    return OPT.get(name, default)


def note(event, **more):
    """One line into the seen file, in one write; nothing without `--seen`."""
    path = opt("seen")
    if path:
        more.update(ev=event, pid=os.getpid())
        data = (json.dumps(more) + "\n").encode()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(fd, data)
        except OSError:
            pass  # a test may limit the size of files
        os.close(fd)


def write_all(fd, data):
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view):]


def send(message):
    write_all(1, (json.dumps(message) + "\n").encode())


def sleep(seconds):
    import time
    time.sleep(seconds)


def signum(name):
    import signal
    return int(getattr(signal, name))


def child(kind):
    """Starts a descendant that keeps this process's pipes; its pid goes into the seen file.

    sleeper: an ordinary one.  stubborn: ignores TERM, INT and HUP.  middle: a shell that keeps a
    stubborn one below it.
    """
    quiet = "trap '' TERM INT HUP; while :; do sleep 60; done"
    words = {"sleeper": ["sleep", "300"],
             "stubborn": ["sh", "-c", quiet],
             "middle": ["sh", "-c", 'sh -c "$0" & echo "{\\"ev\\":\\"child\\",\\"pid_of_child\\":$!}" >>"$1"; wait',
                        quiet, opt("seen", "/dev/null")]}[kind]
    pid = os.posix_spawnp(words[0], words, os.environ)
    note("child", pid_of_child=pid)


def die(how):
    """`exit3` ends with that status, `SIGSEGV` with that signal."""
    note("ended-by-plan", how=how)
    if how.startswith("exit"):
        os._exit(int(how[4:]))
    import resource
    import signal
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if how != "SIGKILL":
        signal.signal(signum(how), signal.SIG_DFL)
    os.kill(os.getpid(), signum(how))
    signal.pause()


# ------------------------------------------------------------------ the lists and the handshake

def named(kind, count):
    if kind == "tools":
        return [{"name": "tool%d" % i, "inputSchema": {"type": "object"}} for i in range(count)]
    if kind == "prompts":
        return [{"name": "prompt%d" % i} for i in range(count)]
    if kind == "templates":
        return [{"name": "t%d" % i, "uriTemplate": "mem://t%d/{x}" % i} for i in range(count)]
    return [{"name": "r%d" % i, "uri": "mem://r%d" % i} for i in range(count)]


LISTS = {"tools/list": ("tools", "tools"), "prompts/list": ("prompts", "prompts"),
         "resources/list": ("resources", "resources"),
         "resources/templates/list": ("resourceTemplates", "templates")}
STATE = {"caps": {}, "calls": 0, "counts": {}, "grown": {}, "waiting": {}, "seen": []}


def list_result(method, params):
    member, kind = LISTS[method]
    count = opt(kind, 1 if kind == "tools" else 0)
    if kind == "tools":
        if opt("by_caps") and "elicitation" in STATE["caps"]:
            count += 3
        count += STATE["grown"].get("tools", 0)
    items = named(kind, count)
    page = opt("page")
    if not page:
        return {member: items}
    start = 0
    if params.get("cursor") is not None:
        start = int(params["cursor"].split("#")[1])
    result = {member: items[start:start + page]}
    if start + page < count:
        result["nextCursor"] = "at/+=#%d" % (start + page)
    return result


def capabilities():
    caps = {"tools": {}}
    for kind in ("prompts", "resources"):
        if kind in OPT:
            caps[kind] = {}
    if opt("announce"):
        for name in caps:
            caps[name]["listChanged"] = True
    if opt("logging"):
        caps["logging"] = {}
    return opt("caps", caps)


def initialize_line(message):
    raw = opt("init_raw")  # the result's text as it is to appear on the wire
    if raw is None:
        wanted = message.get("params", {}).get("protocolVersion")
        known = opt("versions")
        version = wanted if not known or wanted in known else known[-1]
        raw = json.dumps({"protocolVersion": version, "capabilities": capabilities(),
                          "serverInfo": {"name": "fake", "version": str(opt("version", "1"))}})
    return '{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (json.dumps(message["id"]), raw)


# ---------------------------------------------------------------------------- what calls can ask

def text(value):
    return {"content": [{"type": "text", "text": value}]}


def do_echo(args, message):
    return {"echo": args}


def do_pid(args, message):
    return {"pid": os.getpid(), "calls": STATE["calls"]}


def do_seen(args, message):
    return {"seen": STATE["seen"]}


def do_sleep(args, message):
    sleep(args["s"])
    return {"slept": args["s"]}


def do_hang(args, message):
    return None


def do_late(args, message):
    """No answer now; the next call `flush` sends it first."""
    STATE["waiting"].setdefault("late", []).append(message["id"])
    return None


def do_flush(args, message):
    for ident in STATE["waiting"].pop("late", []):
        send({"jsonrpc": "2.0", "id": ident, "result": {"late": True}})
    return {"flushed": True}


def do_die(args, message):
    write_all(2, args.get("stderr", "").encode() + bytes.fromhex(args.get("stderr_hex", "")))
    if "answer" in args:
        send({"jsonrpc": "2.0", "id": message["id"], "result": text(args["answer"])})
    if "partial" in args:
        write_all(1, args["partial"].encode())
    die(args["how"])


def do_size(args, message):
    """A line of exactly `n` bytes, its LF included."""
    head = '{"jsonrpc":"2.0","id":%s,"result":{"t":"' % json.dumps(message["id"])
    write_all(1, (head + "x" * (args["n"] - len(head) - 4) + '"}}\n').encode())
    return None


def do_length(args, message):
    return {"length": len(args["s"]), "back": args["s"]}


def do_deaf(args, message):
    """Answers, closes its input and stays: the next write to it fails."""
    send({"jsonrpc": "2.0", "id": message["id"], "result": text("deaf")})
    os.close(0)
    while True:
        sleep(60)


def do_closeout(args, message):
    """Closes its output and stays: no answer can come."""
    os.close(1)
    while True:
        sleep(60)


def do_raw(args, message):
    """Writes text to stdout as it is, then answers."""
    write_all(1, args["text"].encode("latin-1"))
    return text("raw")


def do_stderr(args, message):
    write_all(2, args.get("text", "").encode() + b"noise on stderr\n" * args.get("lines", 0))
    return text("said")


def do_notify(args, message):
    for number in range(args.get("times", 1)):
        params = {"data": "z" * args.get("bytes", 0), "n": number}
        send({"jsonrpc": "2.0", "method": args.get("method", "notifications/message"), "params": params})
    return text("notified")


def do_grow(args, message):
    STATE["grown"]["tools"] = STATE["grown"].get("tools", 0) + args.get("by", 1)
    for _ in range(args.get("announce", 0)):
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    return text("grown")


def do_ask(args, message):
    """Asks the client, answers the call with what the client said (`ids`: one request for each)."""
    for ident, method in zip(args["ids"], args["methods"]):
        send({"jsonrpc": "2.0", "id": ident, "method": method})
    if args.get("forget"):
        return text("asked")
    STATE["waiting"][json.dumps(args["ids"][0])] = message["id"]
    return None


def do_spawn(args, message):
    child(args["kind"])
    return text("spawned")


def do_status(args, message):
    """How the process was set up by its parent: A8.4, A8.8, E1.2."""
    with open("/proc/self/status") as file:
        fields = dict(line.rstrip("\n").split(":", 1) for line in file)
    import fcntl
    here = os.stat("/proc/self/fd")
    names = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if not target.startswith("/proc/"):
            names.append([int(name), target])
    return {"fds": sorted(names), "here": here.st_ino,
            "flags": [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in (0, 1, 2)],
            "masks": {key: fields[key].strip() for key in ("SigBlk", "SigIgn", "SigCgt")},
            "pid": os.getpid(), "ppid": os.getppid(), "pgid": os.getpgid(0), "sid": os.getsid(0),
            "cwd": os.getcwd(), "umask": fields.get("Umask", "").strip(), "nice": os.nice(0)}


def do_environ(args, message):
    with open("/proc/self/environ", "rb") as file:
        data = file.read()
    return {"environ": [item.decode("latin-1") for item in data.split(b"\0") if item]}


def do_argv(args, message):
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    return {"argv": [word.decode("latin-1") for word in words]}


# ------------------------------------------------------------------------------------ main parts

def tell(spec, method):
    """The part of `METHOD=THING` flags for this method: die_at, refuse, delay, noise, hang_at."""
    value = opt(spec)
    if isinstance(value, dict):
        return value.get(method)
    return None


def answer(message):
    method, ident = message.get("method"), message.get("id")
    if opt("int_ids") and isinstance(ident, float):
        ident = message["id"] = int(ident)
    STATE["seen"].append(method)
    STATE["counts"][method] = STATE["counts"].get(method, 0) + 1
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    if tell("noise", method):
        write_all(1, tell("noise", method).encode("latin-1"))
    if opt("flood"):
        write_all(2, b"W: a line of noise\n" * (opt("flood") // 19))
    if tell("delay", method):
        sleep(tell("delay", method))
    if tell("die_at", method):
        die(tell("die_at", method))
    hang = opt("hang_at", [])  # a list of methods, or {method: how many are still answered}
    if method in hang and (isinstance(hang, list) or STATE["counts"][method] > hang[method]):
        return
    refusal = tell("refuse", method)
    if refusal and STATE["counts"][method] <= refusal.get("times", 1 << 30):
        send({"jsonrpc": "2.0", "id": ident,
              "error": {"code": refusal["code"], "message": refusal["message"]}})
        return
    if method == "initialize":
        STATE["caps"] = params.get("capabilities", {})
        if opt("early"):
            send({"jsonrpc": "2.0", "id": "early", "method": opt("early")})
            if opt("early_waits"):
                STATE["waiting"]['"early"'] = message
                return
        write_all(1, initialize_line(message).encode())
    elif method == "notifications/initialized":
        for _ in range(opt("changed_at_start", 0)):
            send({"jsonrpc": "2.0", "method": opt("changed", "notifications/tools/list_changed")})
        if opt("ask_roots"):
            send({"jsonrpc": "2.0", "id": "roots-1", "method": "roots/list"})
    elif method in LISTS and (LISTS[method][1] in OPT or method == "tools/list"):
        result = list_result(method, params)
        if tell("list_raw", method):
            write_all(1, ('{"jsonrpc":"2.0","id":%s,"result":%s}\n'
                          % (json.dumps(ident), tell("list_raw", method))).encode())
        else:
            send({"jsonrpc": "2.0", "id": ident, "result": result})
    elif method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        send({"jsonrpc": "2.0", "id": ident, "result": {}})
    elif method == "tools/call":
        STATE["calls"] += 1
        result = globals()["do_" + params["name"]](params.get("arguments", {}), message)
        if result is not None:
            send({"jsonrpc": "2.0", "id": ident, "result": result})
        if opt("one_call"):
            os._exit(0)
    elif "id" in message and method is not None and "hang" not in method:
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "no such method"}})


def response(message):
    """The client answered something that we asked."""
    waiting = STATE["waiting"].pop(json.dumps(message.get("id")), None)
    if isinstance(waiting, dict):
        write_all(1, initialize_line(waiting).encode())
    elif waiting is not None:
        send({"jsonrpc": "2.0", "id": waiting, "result": {"client": message.get("result")}})


def got(line):
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, list):
        note("got", batch=len(message))
        if opt("batch_dies") or opt("odd_dies"):
            die("exit4")
        replies = [{"jsonrpc": "2.0", "id": item["id"], "result": {"batched": item.get("method")}}
                   for item in message if isinstance(item, dict) and item.get("id") is not None]
        if replies:
            send(replies)
        return
    if not isinstance(message, dict):
        note("got", odd=line[:1000].decode("latin-1"))
        if opt("odd_dies"):
            die("exit5")
        return
    note("got", method=message.get("method"), id=message.get("id"), params=message.get("params"))
    if opt("raw"):
        fd = os.open(opt("raw"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        write_all(fd, line)
        os.close(fd)
    if message.get("method") is None or not isinstance(message["method"], str):
        response(message)
    else:
        answer(message)


def prepare():
    names = opt("ignore", [])
    if names or opt("on_term") is not None:
        import signal
        for name in names:
            signal.signal(signum(name), signal.SIG_IGN)
        if opt("on_term") is not None:
            def term(number, frame):
                note("signal", n=number)
                sleep(opt("on_term"))
                note("saved", by="signal")
                os._exit(0)
            signal.signal(signal.SIGTERM, term)
    note("start", argv=[word.encode("utf-8", "surrogateescape").decode("latin-1") for word in ARGV])
    if opt("lock"):
        import fcntl
        STATE["lock"] = os.open(opt("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(STATE["lock"], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            write_all(2, b"the lock is taken\n")
            die("exit3")
    for kind in opt("children", []):
        child(kind)
    if opt("stderr"):
        write_all(2, opt("stderr").encode())
    if opt("say"):  # noise before anything
        write_all(1, opt("say").encode("latin-1"))
    if opt("die"):
        die(opt("die"))
    if opt("boot"):
        sleep(opt("boot"))
    if opt("never_read"):
        while True:
            sleep(60)
    if opt("tick"):
        import threading

        def tick():
            while True:
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "tick"}})
                sleep(opt("tick"))
        threading.Thread(target=tick, daemon=True).start()
    if opt("leave"):  # the leader goes at once; a child with the same pipes is the server
        pid = os.fork()
        if pid:
            note("child", pid_of_child=pid)
            os._exit(0)


def main():
    prepare()
    buffer = b""
    while True:
        line, found, rest = buffer.partition(b"\n")
        if found:
            buffer = rest
            got(line + b"\n")
            continue
        pieces = [buffer]
        while True:
            data = os.read(0, 1 << 20)
            pieces.append(data)
            if not data or b"\n" in data:
                break
        buffer = b"".join(pieces)
        if not data:
            break
    note("eof", rest=buffer.decode("latin-1"))
    if opt("eof_wait"):
        sleep(opt("eof_wait"))
        note("saved", by="eof")
    if opt("eof_say"):
        write_all(1, opt("eof_say").encode())
    while opt("ignore_eof"):
        sleep(60)
    note("end")
    sys.stdout.flush()
    os._exit(opt("status", 0))


if __name__ == "__main__":
    main()
