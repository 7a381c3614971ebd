"""Real servers and real clients, for tools/acceptance.py: how each is installed, started and driven.

    scratch = Scratch(directory)                      installs, made on first use
    argv = scratch.server("memory")                   starts the server directly
    raw(scratch, "memory", argv)                      one session of a client: what it was answered, what ran
    package(scratch, "memory", argv, "mcp2")          meanwhile, and what stayed
    inspector(scratch, "memory", argv)

Every session has its own mark in the environment (harness.MARK), which a server hands down to all that it starts,
into other groups and sessions too.
"""
import collections
import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import harness

PACKAGE_CLIENT = pathlib.Path(__file__).resolve().parent / "clients" / "package.py"
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
VERSION = "2025-11-25"
INSTALL_S = 600.0
ANSWER_S = 30.0   # one answer on a busy machine, the start of npx included
SESSION_S = 90.0  # one whole session of a foreign client
QUIET_S = 0.8     # server-everything announces and asks until 350 ms after `initialized`
GONE_S = 5.0      # until everything is gone after the end of a session

Server = collections.namedtuple("Server", "installer package tool arguments")
SERVERS = {
    "time": Server("pip", "mcp-server-time", "convert_time",
                   {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
    "memory": Server("npm", "@modelcontextprotocol/server-memory", "read_graph", {}),
    "filesystem": Server("npm", "@modelcontextprotocol/server-filesystem", "list_allowed_directories", {}),
    "everything": Server("npm", "@modelcontextprotocol/server-everything", "echo", {"message": "hello"}),
    "npx": Server("npx", "@modelcontextprotocol/server-everything", "echo", {"message": "hello"}),
}


class NotRun(Exception):
    """Something that a check needs could not be had; the text says why."""


# ---------------------------------------------------------------------------- processes

def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def words(pid):
    """What the process was started with, cut; "?" in the instant between two programs."""
    with contextlib.suppress(OSError):
        return " ".join(b" ".join(harness.cmdline(pid)).decode("utf-8", "replace").split())[:80] or "?"
    return "?"


def below(mark):
    """{pid: words} of what runs under the first process of a session: through the relay, all that it started."""
    pids = set(harness.marked(mark))
    pids.update(child for pid in list(pids) for child in harness.descendants(pid) if harness.alive(child))
    parents = {pid: (harness.proc_stat(pid) or {}).get("ppid") for pid in pids}
    return {pid: words(pid) for pid in pids if parents[pid] in pids}


def left_after(mark, before, seconds):
    """Words of the processes of this mark, and of those `before` an end, that did not go in time."""
    end = time.monotonic() + seconds
    while True:
        left = set(harness.marked(mark)) | {pid for pid in before if harness.alive(pid)}
        if not left or time.monotonic() > end:
            stayed = [words(pid) for pid in left]
            kill(left)
            return stayed
        time.sleep(0.005)


# ---------------------------------------------------------------------------- the scratch directory

class Scratch:
    """The directory of a run: installs, made on first use and once, and a box for each session."""

    def __init__(self, path):
        self.path, self.failed, self.count = pathlib.Path(path).resolve(), {}, 0
        for name in ("done", "work", "files", "root-a", "root-b", "boxes"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self.boxes = pathlib.Path(tempfile.mkdtemp(dir=str(self.path / "boxes")))
        # The launcher keeps what it starts in npm's cache: let it be ours.
        self.env = {"npm_config_cache": str(self.path / "npm-cache"), "npm_config_update_notifier": "false"}

    def once(self, what, *argv):
        """Runs an install command unless an earlier one did; NotRun when it fails, each time."""
        done = self.path / "done" / what.replace("/", "-")
        if what not in self.failed and not done.exists():
            try:
                ran = subprocess.run(argv, env=dict(os.environ, **self.env), cwd=str(self.path / "work"),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     timeout=INSTALL_S)
                text = ran.stdout.decode("utf-8", "replace")
                errors = [line.strip() for line in text.split("\n") if "err" in line.lower()]
                if ran.returncode:
                    self.failed[what] = "exit status %d %s" % (ran.returncode, " ".join(errors[:1])[:160])
                else:
                    done.touch()
            except (OSError, subprocess.TimeoutExpired) as error:
                self.failed[what] = str(error)[:160]
        if what in self.failed:
            raise NotRun("%s: %s" % (what, self.failed[what]))

    def pip(self, venv, package):
        """The directory of the venv's commands, with the package."""
        self.once("venv " + venv, sys.executable, "-m", "venv", str(self.path / venv))
        self.once("pip install " + package, str(self.path / venv / "bin" / "pip"), "install", "--quiet", package)
        return self.path / venv / "bin"

    def npm(self, where, package):
        """The directory of the package's commands."""
        self.once("npm install " + package, "npm", "install", "--prefix", str(self.path / where), "--no-audit",
                  "--no-fund", "--loglevel=error", package)
        return self.path / where / "node_modules" / ".bin"

    def server(self, name):
        """argv that starts the server directly."""
        server = SERVERS[name]
        if server.installer == "npx":
            self.once("npx " + server.package, "npx", "-y", server.package)  # fetches it, and ends at EOF
            return ["npx", "-y", server.package]
        command = server.package.replace("@modelcontextprotocol/", "mcp-")
        where = self.pip("mcp2", command) if server.installer == "pip" else self.npm("node", server.package)
        return [str(where / command)] + ([str(self.path / "files")] if name == "filesystem" else [])

    def cache(self):
        """A new, empty cache directory."""
        return tempfile.mkdtemp(prefix="cache-", dir=str(self.boxes))

    @contextlib.contextmanager
    def box(self):
        """(box, environment) of one session; whatever carries its mark is ended by id afterwards."""
        self.count += 1
        path = self.boxes / str(self.count)
        path.mkdir()
        box = harness.Box(path)
        try:
            yield box, box.env(HOME=os.environ.get("HOME", str(path)), MCP_LAZY_CACHE_DIR=None,
                               MEMORY_FILE_PATH=str(self.path / "memory.json"), **self.env)
        finally:
            for relay in box.relays:
                kill([relay.pid] if relay.exists() else [])
                relay.process.wait()
            kill(harness.marked(box.mark))


# ---------------------------------------------------------------------------- sessions

class Session:
    """What a client was answered, what ran under its first process before the call and after it, what stayed."""

    def __init__(self, answers, before, after, stayed, client=None):
        self.answers, self.before, self.after, self.stayed, self.client = answers, before, after, stayed, client


class Raw(harness.Relay):
    """Writes the lines itself, in front of a server or of the relay; answers what the other side asks."""

    def __init__(self, scratch, box, argv, env, roots=(), **more):
        super().__init__(box, argv, env, cwd=str(scratch.path / "work"), stderr_path=str(box.path / "stderr"), **more)
        box.relays.append(self)
        self.roots, self.asked, self.told = list(roots), [], []

    def read(self, timeout=ANSWER_S):
        found = super().read(timeout)
        if found and "method" in found:
            (self.asked if "id" in found else self.told).append(found["method"])
            if "id" in found:
                self.send(dict(self.answer_to(found["method"]), jsonrpc="2.0", id=found["id"]))
        return found

    def answer_to(self, method):
        if method == "roots/list":
            return {"result": {"roots": [{"uri": uri} for uri in self.roots]}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    def outcome(self, method, params=None):
        """{"result": ...} or {"error": ...}, without the id."""
        found = self.answer(self.request(method, params), ANSWER_S)
        return {key: found[key] for key in ("result", "error") if key in found}

    def open(self, capabilities):
        hello = self.handshake(timeout=ANSWER_S, version=VERSION, capabilities=capabilities)
        self.first_ms = 1000 * (time.monotonic() - self.started)
        return hello

    def end(self):
        """The end of input; AssertionError that names who lives when the process does not go."""
        self.close()
        try:
            self.wait(ANSWER_S)
        except AssertionError:
            alive = ", ".join(words(pid) for pid in harness.marked(self.box.mark))
            raise AssertionError("%s does not end at EOF; alive: %s" % (words(self.pid), alive)) from None

    def quiet(self, seconds=QUIET_S):
        """Takes in what comes until nothing has come for so long."""
        with contextlib.suppress(AssertionError):
            while self.read(seconds) is not None:
                pass


def raw(scratch, name, argv, capabilities=None, roots=(), settle=False):
    """One session by hand; with `settle` it waits for what the server has to say at its start and at the end."""
    server = SERVERS[name]
    with scratch.box() as (box, env):
        client = Raw(scratch, box, argv, env, roots)
        answers = {"initialize": {"result": client.open(capabilities or {})}}
        if settle:
            client.quiet()
        answers.update((method, client.outcome(method)) for method in LISTS)
        before = below(box.mark)
        answers["tools/call"] = client.outcome("tools/call", {"name": server.tool, "arguments": server.arguments})
        after = below(box.mark)
        if settle:
            client.quiet()
        client.end()
        return Session(answers, before, after, left_after(box.mark, after, GONE_S), client)


def package(scratch, name, argv, which, roots=()):
    """A session of the `mcp` package: which = mcp1, mcp2 or mcp2-auto."""
    venv, _, mode = which.partition("-")
    python = scratch.pip(venv, "mcp<2" if venv == "mcp1" else "mcp") / "python"
    server = SERVERS[name]
    with scratch.box() as (box, env), open(str(box.path / "stderr"), "wb") as errors:
        job = {"argv": argv, "env": env, "cwd": str(scratch.path / "work"), "mode": mode or "legacy",
               "roots": list(roots), "tool": server.tool, "arguments": server.arguments}
        client = subprocess.Popen([str(python), str(PACKAGE_CLIENT), json.dumps(job)], bufsize=0,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        try:
            seen, text, end = [], b"", time.monotonic() + SESSION_S
            while len(seen) < 2:
                ready = select.select([client.stdout], [], [], max(0, end - time.monotonic()))[0]
                data = os.read(client.stdout.fileno(), 1 << 20) if ready else b""
                assert data, "%s %s: %s" % (which, "ended" if ready else "is late",
                                            (box.path / "stderr").read_text()[-300:])
                text += data
                if text.endswith(b"\n"):
                    seen.append(below(box.mark))
                    client.stdin.write(b"\n")
            client.wait(max(1, end - time.monotonic()))
        finally:
            kill([client.pid] if client.poll() is None else [])
            client.wait()
        answers = json.loads(text.split(b"\n")[1])["answers"]
        return Session(answers, seen[0], seen[1], left_after(box.mark, seen[1], GONE_S))


def inspector(scratch, name, argv):
    """The Inspector's command line, one process a method; `before` is all that ran beside the listings."""
    # Its newest version; without the tag npm picks an old one where Node is older than it says it needs.
    program = scratch.npm("inspector", "@modelcontextprotocol/inspector@latest") / "mcp-inspector"
    server, session = SERVERS[name], Session({}, {}, {}, [])
    pairs = ["%s=%s" % pair for pair in server.arguments.items()]
    call = ["tools/call", "--tool-name", server.tool] + (["--tool-arg"] + pairs if pairs else [])
    for method in (["tools/list"], ["prompts/list"], call):
        with scratch.box() as (box, env):
            config, out = box.path / "config.json", box.path / "stdout"
            config.write_text(json.dumps({"mcpServers": {"it": {"command": argv[0], "args": argv[1:], "env": env}}}))
            own = dict(env, HOME=str(box.home), MCP_INSPECTOR_SECRET_STORE="memory", **{harness.MARK: "client"})
            with open(str(out), "wb") as stdout, open(str(box.path / "stderr"), "wb") as stderr:
                client = subprocess.Popen(
                    [str(program), "--cli", "--config", str(config), "--server", "it", "--method"] + method,
                    env=own, cwd=str(scratch.path / "work"), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
            end = time.monotonic() + SESSION_S
            try:
                while client.poll() is None and time.monotonic() < end:
                    (session.after if method is call else session.before).update(below(box.mark))
                    time.sleep(0.04)
            finally:
                kill([client.pid] if client.poll() is None else [])
            session.answers[method[0]] = [client.wait(), out.read_text()]
            session.stayed += left_after(box.mark, [], GONE_S)
    return session
