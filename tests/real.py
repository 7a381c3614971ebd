"""Real servers and real clients, for tools/acceptance.py: how each is installed, started and driven.

    scratch = Scratch(directory)                      installs, made on first use
    argv = scratch.server("memory")                   starts the server directly
    raw(scratch, "memory", argv)                      one session of a client: what it was answered, what ran
    claude(scratch, "memory", argv)                   meanwhile, and what stayed
    package(scratch, "memory", argv, "mcp2")
    inspector(scratch, "memory", argv)
    listener(scratch, box, argv, env, "error")        a client of server-everything that subscribed and set a log level

Every session has its own mark in the environment (harness.MARK), which a server hands down to all that it starts,
into other groups and sessions too.
"""
import collections
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent
COUNTED = HERE / "servers" / "counted.sh"
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
VERSION = "2025-11-25"
INSTALL_S = 600.0
ANSWER_S = 30.0   # one answer on a busy machine, the start of npx included
SESSION_S = 90.0  # one whole session of a foreign client
MOST_PAGES = 20
QUIET_S = 0.8     # server-everything announces and asks until 350 ms after `initialized`
GONE_S = 5.0      # until everything is gone after the end of a session

# `pages` is the number of pages of its tools; `eras` what it speaks, as a report of --check says it.
Server = collections.namedtuple("Server", "installer package tool arguments eras pages")
BOTH, LEGACY, HELLO = ["modern", "legacy"], ["legacy"], {"message": "hello"}
SERVERS = {
    "time": Server("pip", "mcp-server-time", "convert_time",
                   {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, BOTH, 1),
    "memory": Server("npm", "@modelcontextprotocol/server-memory", "read_graph", {}, LEGACY, 1),
    "filesystem": Server("npm", "@modelcontextprotocol/server-filesystem", "list_allowed_directories", {}, LEGACY, 1),
    "everything": Server("npm", "@modelcontextprotocol/server-everything", "echo", HELLO, LEGACY, 1),
    "npx": Server("npx", "@modelcontextprotocol/server-everything", "echo", HELLO, LEGACY, 1),
    # Servers of ours (servers/pages.*) on the SDKs of both generations.
    "py1": Server("python", "mcp<2", "echo", HELLO, LEGACY, 3),
    "py2": Server("python", "mcp", "echo", HELLO, BOTH, 3),
    "ts1": Server("node", "@modelcontextprotocol/sdk", "echo", HELLO, LEGACY, 3),
    "ts2": Server("node", "@modelcontextprotocol/server", "echo", HELLO, BOTH, 3),
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

    def python(self, generation):
        """The interpreter of the venv that has the `mcp` package of this generation."""
        return str(self.pip("mcp" + generation, "mcp<2" if generation == "1" else "mcp") / "python")

    def node(self, generation, package, script):
        """[node, script]; the script is copied beside the packages, where its imports look for them."""
        self.npm("ts" + generation, package)
        return ["node", shutil.copy2(str(HERE / script), str(self.path / ("ts" + generation)))]

    def server(self, name, *before):
        """argv that starts the server directly, behind the words `before`, and notes each start (see `starts`)."""
        return ["sh", str(COUNTED), str(self.boxes / "starts")] + list(before) + self.command(name)

    def starts(self):
        """How many servers were ever started."""
        try:
            return len((self.boxes / "starts").read_text().splitlines())
        except FileNotFoundError:
            return 0

    def command(self, name):
        server, generation = SERVERS[name], name[-1]
        if server.installer == "npx":
            self.once("npx " + server.package, "npx", "-y", server.package)  # fetches it, and ends at EOF
            return ["npx", "-y", server.package]
        if server.installer == "python":
            return [self.python(generation), str(HERE / "servers" / "pages.py")]
        if server.installer == "node":
            return self.node(generation, server.package, "servers/pages.mjs") + [generation]
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
    """What a client was answered, what ran under its first process before the call and after it, what stayed.

    `starts` are the servers that were started before the call, and those that were after it."""

    def __init__(self, scratch):
        self.answers, self.before, self.after, self.stayed, self.client = {}, {}, {}, [], None
        self.started, self.starts, self.times = scratch.starts, [0, 0], {}
        self.at_first = scratch.starts()

    def look_before(self, mark):
        self.before.update(below(mark))
        self.starts[0] = self.started() - self.at_first

    def look_after(self, mark):
        self.after.update(below(mark))
        self.starts[1] = self.started() - self.at_first - self.starts[0]


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

    def outcome(self, method, params=None, ident=None):
        """{"result": ...} or {"error": ...}, without the id."""
        return self.bare(self.answer(self.request(method, params, ident), ANSWER_S))

    @staticmethod
    def bare(found):
        return {key: found[key] for key in ("result", "error") if key in found}

    def pages(self, method, params=None):
        """The outcome of each page; `params` are what every request has besides the cursor."""
        return self.further([self.outcome(method, params)], method, params)

    def further(self, found, method, params=None):
        while found[-1].get("result", {}).get("nextCursor") is not None:
            assert len(found) < MOST_PAGES, "%s does not come to an end" % method
            found.append(self.outcome(method, dict(params or {}, cursor=found[-1]["result"]["nextCursor"])))
        return found

    def open(self, capabilities, **more):
        hello = self.handshake(timeout=ANSWER_S, version=VERSION, capabilities=capabilities, **more)
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
    session = Session(scratch)
    with scratch.box() as (box, env):
        client = session.client = Raw(scratch, box, argv, env, roots)
        session.answers["initialize"] = {"result": client.open(capabilities or {})}
        if settle:
            client.quiet()
        session.answers.update((method, client.pages(method)) for method in LISTS)
        call_and_end(session, client, SERVERS[name], settle)
    return session


def call_and_end(session, client, server, settle=False, **more):
    """The tool call that ends every session, and the end of input."""
    session.look_before(client.box.mark)
    params = dict({"name": server.tool, "arguments": server.arguments}, **more)
    session.answers["tools/call"] = client.outcome("tools/call", params)
    session.look_after(client.box.mark)
    if settle:
        client.quiet()
    client.end()
    session.stayed += left_after(client.box.mark, session.after, GONE_S)


# Claude Code's start-up as it was seen: a probe that it waits 3 s for on the pipe that it then uses.
PROBE_S = 3.0
CLAUDE = {"name": "claude-code", "title": "Claude Code", "version": "2.1.332",
          "description": "Anthropic's agentic coding tool", "websiteUrl": "https://claude.com/claude-code"}
CLAUDE_CAPABILITIES = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}
META = "io.modelcontextprotocol/"
ENVELOPE = {"_meta": {META + "protocolVersion": "2026-07-28", META + "clientInfo": CLAUDE,
                      META + "clientCapabilities": CLAUDE_CAPABILITIES}}
KINDS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def claude(scratch, name, argv):
    """A session in the order of Claude Code; `times` says when the probe and the last list were answered."""
    session = Session(scratch)
    with scratch.box() as (box, env):
        # The directory that the filesystem server has anyhow: whether it asks before the call is a matter of luck.
        client = session.client = Raw(scratch, box, argv, env, [(scratch.path / "files").as_uri()])
        probe = client.request("server/discover", ENVELOPE, "server-discover-probe-1")
        try:
            found = client.bare(client.answer(probe, PROBE_S))
        except AssertionError:
            found = {"late": "no answer within %.0f s" % PROBE_S}
        session.times["probe"] = 1000 * (time.monotonic() - client.started)
        session.answers["server/discover"] = found
        modern = "result" in found
        session.answers.update(subscribed(client) if modern else {
            "initialize": {"result": client.open(CLAUDE_CAPABILITIES, clientInfo=CLAUDE)}})
        more = ENVELOPE if modern else {}
        lists = [(method, client.request(method, more or None))
                 for method in ("tools/list", "prompts/list", "resources/list")]  # in one burst
        for method, ident in lists:
            first = client.bare(client.answer(ident, ANSWER_S))
            session.answers[method] = client.further([first], method, more)
        session.times["start-up"] = 1000 * (time.monotonic() - client.started)
        # server-everything does not end while it waits for the roots that it asks for after 350 ms.
        call_and_end(session, client, SERVERS[name], settle=True, **more)
    return session


def subscribed(client):
    """What Claude Code does where other clients say `initialize`: it subscribes, and asks once more who is there."""
    listen = client.request("subscriptions/listen", dict(ENVELOPE, notifications=KINDS), "listen:0")
    found = client.until_message(lambda one: one.get("id") == listen or one.get("method", "").endswith("/acknowledged"),
                                 ANSWER_S)
    return {"subscriptions/listen": client.bare(found) or found["params"],
            "server/discover again": client.outcome("server/discover", ENVELOPE, 0)}


def package(scratch, name, argv, which, roots=()):
    """A session of an SDK's client: mcp1, mcp2, mcp2-auto, ts1, ts2, ts2-auto, ts2-listen (auto, and it subscribes)."""
    sdk, _, mode = which.partition("-")
    job = {"argv": argv, "cwd": str(scratch.path / "work"), "roots": list(roots), "tool": SERVERS[name].tool,
           "arguments": SERVERS[name].arguments, "mode": mode or ("first" if sdk == "ts1" else "legacy")}
    if sdk[:-1] == "mcp":
        program = [scratch.python(sdk[-1]), str(HERE / "clients" / "package.py")]
    else:
        kind = "@modelcontextprotocol/" + ("sdk" if sdk == "ts1" else "client")
        program = scratch.node(sdk[-1], kind, "clients/package.mjs")
    session = Session(scratch)
    with scratch.box() as (box, env), open(str(box.path / "stderr"), "wb") as errors:
        client = subprocess.Popen(program + [json.dumps(dict(job, env=env))], bufsize=0, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=errors)
        try:
            text = stops(client, [lambda: session.look_before(box.mark), lambda: session.look_after(box.mark)])
        except AssertionError as error:
            raise AssertionError("%s %s: %s" % (which, error, (box.path / "stderr").read_text()[-300:])) from None
        finally:
            kill([client.pid] if client.poll() is None else [])
            client.wait()
        session.answers = json.loads(text.split(b"\n")[1])["answers"]
        session.stayed += left_after(box.mark, session.after, GONE_S)
    return session


# Of server-everything: any uri can be subscribed to, and it says so at level info; the tool sends an update at once.
SUBSCRIBED, OTHER, UPDATES = "demo://resource/dynamic/text/1", "demo://resource/dynamic/text/2", "toggle-subscriber-updates"


class Listener(Raw):
    """A client that keeps every notification it hears as (method, what it is about)."""

    def read(self, timeout=ANSWER_S):
        found = super().read(timeout)
        if found and "method" in found and "id" not in found:
            params = found.get("params", {})
            self.heard.append((found["method"].replace("notifications/", ""), str(params.get("uri") or params.get("data")).strip()))
        return found

    def hears(self):
        """What it hears when it subscribes to another resource, switches updates on and off, and leaves that resource.

        (While they are on the server does not end at EOF.) Not counted is what the server says of the first subscription, which the relay may have made again."""
        self.heard.clear()
        switch = ("tools/call", {"name": UPDATES, "arguments": {}})
        for method, params in (("resources/subscribe", {"uri": OTHER}), switch, switch, ("resources/unsubscribe", {"uri": OTHER})):
            answer = self.outcome(method, params)
            assert "result" in answer, answer
        self.quiet()
        return [one for one in self.heard if one[0] != "message" or SUBSCRIBED not in one[1]]


def listener(scratch, box, argv, env, level):
    """A Listener that has opened a session, listed the tools, set the level and subscribed to one resource."""
    client = Listener(scratch, box, argv, env)
    client.heard = []
    client.open({})
    client.quiet()  # its announcements at start are over
    client.pages("tools/list")
    for method, params in (("logging/setLevel", {"level": level}), ("resources/subscribe", {"uri": SUBSCRIBED})):
        answer = client.outcome(method, params)
        assert answer == {"result": {}}, answer
    return client


def stops(client, looks):
    """Looks each time the client stops with a line, and lets it go on; returns its lines when it has ended."""
    text, end = b"", time.monotonic() + SESSION_S
    for look in looks:
        while not text.endswith(b"\n"):
            ready = select.select([client.stdout], [], [], max(0, end - time.monotonic()))[0]
            data = os.read(client.stdout.fileno(), 1 << 20) if ready else b""
            assert data, "ended" if ready else "is late"
            text += data
        look()
        text += b" "  # so that the next round waits for another line
        client.stdin.write(b"\n")
    client.wait(max(1, end - time.monotonic()))
    return text


def inspector(scratch, name, argv):
    """The Inspector's command line, one process a method; `before` is all that ran beside the listings."""
    # Its newest version; without the tag npm picks an old one where Node is older than it says it needs.
    program = scratch.npm("inspector", "@modelcontextprotocol/inspector@latest") / "mcp-inspector"
    server, session = SERVERS[name], Session(scratch)
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
                    (session.look_after if method is call else session.look_before)(box.mark)
                    time.sleep(0.04)
            finally:
                kill([client.pid] if client.poll() is None else [])
            (session.look_after if method is call else session.look_before)(box.mark)
            session.answers[method[0]] = [client.wait(), out.read_text()]
            session.stayed += left_after(box.mark, [], GONE_S)
    return session
