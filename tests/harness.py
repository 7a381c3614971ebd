"""Drives the relay as a client would: real processes, pipes, signals and /proc.

    box = Box(tmp_path)              one test's directory: HOME, cache, logs, and all its relays
    fake = box.fake(tools=2)         a server of tests/servers/fake.py with these flags
    relay = box.relay(fake)          the relay in front of it, running
    relay.handshake(); relay.call("echo", x=1)

Nothing sleeps to let time pass: every wait polls for what it waits for and has a deadline.  A Box
ends all its processes and says which ones had to be ended (the `box` fixture makes that a failure).
"""

import atexit
import fcntl
import functools
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = Path(os.environ.get("MCP_LAZY_MODULE") or ROOT / "mcp_lazy.py")  # another build may be tested
FAKE = Path(__file__).resolve().parent / "servers" / "fake.py"
LINUX = sys.platform.startswith("linux")
FULL = os.environ.get("MCP_LAZY_FULL") == "1"
MARK = "RELAY_TEST_MARK"  # in the environment of everything a Box starts, and so of its descendants
VERSION = "2025-06-18"
WAIT_S = 8.0  # how long a thing may take that ought to be quick; only a failing test waits so long


# ------------------------------------------------------------------------------ waiting and /proc

def until(condition, timeout=WAIT_S, what="the condition"):
    """The first true value of `condition()`, polled; AssertionError after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("%s did not come true within %.1f s" % (what, timeout))
        time.sleep(0.002)


def proc_stat(pid):
    """{state, ppid, pgid, sid} of a process, or None when there is none."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return {"state": fields[0].decode(), "ppid": int(fields[1]), "pgid": int(fields[2]), "sid": int(fields[3])}


def alive(pid):
    """A process that runs or could run; a zombie is none."""
    stat = proc_stat(pid)
    return stat is not None and stat["state"] not in "ZX"


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def where(**fields):
    """Pids whose stat has these values; zombies too."""
    found = []
    for pid in pids():
        stat = proc_stat(pid)
        if stat and all(stat[key] == value for key, value in fields.items()):
            found.append(pid)
    return found


def children(pid):
    return where(ppid=pid)


def group(pgid):
    """Members of a process group that are alive."""
    return [pid for pid in where(pgid=pgid) if alive(pid)]


def descendants(pid):
    parents = {}
    for one in pids():
        stat = proc_stat(one)
        if stat:
            parents.setdefault(stat["ppid"], []).append(one)
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def fds(pid):
    """{number: target} of a process's descriptors."""
    found = {}
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            found[int(name)] = os.readlink("/proc/%d/fd/%s" % (pid, name))
        except OSError:
            pass
    return found


def cmdline(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        return file.read().rstrip(b"\0").split(b"\0")


def environ_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def cpu_s(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid):
    """Private memory in KiB (what growth would show up in)."""
    total = 0
    with open("/proc/%d/smaps_rollup" % pid) as file:
        for line in file:
            if line.startswith("Private_"):
                total += int(line.split()[1])
    return total


def marked(mark):
    word = ("%s=%s" % (MARK, mark)).encode()
    return [pid for pid in pids() if alive(pid) and word in environ_of(pid)]


def ps_command(pid):
    """What `ps` shows for the process: the whole command column."""
    out = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], stdout=subprocess.PIPE,
                         timeout=WAIT_S)
    return out.stdout.decode("utf-8", "replace").rstrip("\n")


# --------------------------------------------------------------------------------------- messages

def message(method, ident=None, params=None):
    found = {"jsonrpc": "2.0"}
    if ident is not None:
        found["id"] = ident
    found["method"] = method
    if params is not None:
        found["params"] = params
    return found


def initialize(ident=0, version=VERSION, capabilities=None, name="client", client_version="1", **more):
    params = {"protocolVersion": version, "capabilities": capabilities or {},
              "clientInfo": {"name": name, "version": client_version}}
    params.update(more)
    return message("initialize", ident, params)


INITIALIZED = message("notifications/initialized")


def encode(line):
    if isinstance(line, (bytes, bytearray)):
        return bytes(line)
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def no_json(word):
    """NaN and Infinity, which the json module takes and nobody may write."""
    raise ValueError("%s is no JSON" % word)


def same_id(left, right):
    return type(left) is type(right) and left == right


# ----------------------------------------------------------------------------------- one relay

class Relay:
    """A running relay: `send` lines, `read` lines, look at its processes."""

    def __init__(self, box, argv, env, cwd=None, stderr_path=None, preexec=None, executable=None):
        self.box = box
        self.ids = itertools.count(1)
        self.buffer = bytearray()
        self.raw = []     # every line read, as bytes with its LF
        self.kept = []    # messages read while looking for another one
        self.eof = False
        self.stderr_path = stderr_path
        self.started = time.monotonic()
        with open(stderr_path, "ab") as errors:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=cwd,
                preexec_fn=preexec, executable=executable, bufsize=0)
        self.pid = self.process.pid
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)

    # --------------------------------------------------------------------------------- writing
    def send(self, *lines, timeout=WAIT_S, reading=True):
        """Writes the lines; with `reading`, takes in what arrives meanwhile."""
        view = memoryview(b"".join(encode(line) for line in lines))
        end = time.monotonic() + timeout
        while len(view):
            try:
                view = view[os.write(self.stdin, view):]
                continue
            except BlockingIOError:
                pass
            left = end - time.monotonic()
            assert left > 0, "the relay did not take %d bytes within %.1f s" % (len(view), timeout)
            poll = select.poll()
            poll.register(self.stdin, select.POLLOUT)
            if reading and not self.eof:
                poll.register(self.stdout, select.POLLIN)
            for fd, _ in poll.poll(left * 1000):
                if fd == self.stdout:
                    self.fill()

    def request(self, method, params=None, ident=None):
        if ident is None:
            ident = next(self.ids)
        self.send(message(method, ident, params))
        return ident

    def close(self):
        """End of the client's input."""
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def close_output(self):
        self.process.stdout.close()
        self.eof = True

    # --------------------------------------------------------------------------------- reading
    def fill(self):
        try:
            data = os.read(self.stdout, 1 << 20)
        except BlockingIOError:
            return
        if data:
            self.buffer += data
        else:
            self.eof = True

    def line(self, timeout=WAIT_S):
        """The next line as bytes; None at the end of the output; AssertionError when late."""
        end = time.monotonic() + timeout
        searched = 0
        while True:
            at = self.buffer.find(b"\n", searched)
            if at >= 0:
                found = bytes(self.buffer[:at + 1])
                del self.buffer[:at + 1]
                self.raw.append(found)
                return found
            if self.eof:
                assert not self.buffer, "output ends in the middle of a line: %r" % bytes(self.buffer[:200])
                return None
            searched = len(self.buffer)
            left = end - time.monotonic()
            assert left > 0, "no line within %.1f s; log: %s" % (timeout, self.stderr()[-600:])
            select.select([self.stdout], [], [], left)
            self.fill()

    def read(self, timeout=WAIT_S):
        """The next message, decoded; None at the end."""
        found = self.line(timeout)
        return None if found is None else json.loads(found, parse_constant=no_json)

    def answer(self, ident, timeout=WAIT_S):
        """The answer to this id (type and value); what comes before it is kept in `kept`."""
        for index, found in enumerate(self.kept):
            if self.answers(found, ident):
                return self.kept.pop(index)
        end = time.monotonic() + timeout
        while True:
            found = self.read(max(0.001, end - time.monotonic()))
            assert found is not None, "the output ended before the answer to %r" % (ident,)
            if self.answers(found, ident):
                return found
            self.kept.append(found)

    @staticmethod
    def answers(found, ident):
        return isinstance(found, dict) and "method" not in found and same_id(found.get("id"), ident)

    def result(self, ident, timeout=WAIT_S):
        found = self.answer(ident, timeout)
        assert "result" in found, found
        return found["result"]

    def error(self, ident, timeout=WAIT_S):
        """The error to this id; checks what every error of the relay's own has (A10.5)."""
        found = self.answer(ident, timeout)
        assert "error" in found, found
        return found["error"]

    def until_message(self, test, timeout=WAIT_S):
        """The first message, kept or new, for which `test` holds."""
        for index, found in enumerate(self.kept):
            if test(found):
                return self.kept.pop(index)
        end = time.monotonic() + timeout
        while True:
            found = self.read(max(0.001, end - time.monotonic()))
            assert found is not None, "the output ended"
            if test(found):
                return found
            self.kept.append(found)

    def rest(self, timeout=WAIT_S):
        """All messages up to the end of the output."""
        found = []
        while True:
            one = self.read(timeout)
            if one is None:
                return found
            found.append(one)

    # ----------------------------------------------------------------------------- whole steps
    def handshake(self, ident=0, timeout=WAIT_S, **more):
        self.send(initialize(ident, **more))
        result = self.result(ident, timeout)
        self.send(INITIALIZED)
        return result

    def ask(self, method, params=None, timeout=WAIT_S):
        return self.result(self.request(method, params), timeout)

    def start_call(self, tool, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool, timeout=WAIT_S, **arguments):
        return self.result(self.start_call(tool, **arguments), timeout)

    def barrier(self):
        """Proves that nothing is under way: what the relay had to say before this is in `kept`."""
        self.answer(self.request("ping"))
        return self.kept

    # --------------------------------------------------------------------------------- the end
    def signal(self, signum):
        os.kill(self.pid, signum)

    def wait(self, timeout=WAIT_S):
        """Exit status; takes in output meanwhile so that the relay is not held up by us."""
        end = time.monotonic() + timeout
        while True:
            status = self.process.poll()
            if status is not None:
                return status
            left = end - time.monotonic()
            assert left > 0, "the relay did not end within %.1f s" % timeout
            if self.eof:
                time.sleep(0.002)
            else:
                select.select([self.stdout], [], [], min(left, 0.01))
                self.fill()

    def finish(self, timeout=WAIT_S):
        """End of input, all that still comes, exit status 0 (A14)."""
        self.close()
        found = self.rest(timeout)
        assert self.wait(timeout) == 0
        return found

    # ----------------------------------------------------------------------------- looking at it
    def stderr(self):
        return Path(self.stderr_path).read_text("utf-8", "replace")

    def servers(self):
        """Direct children that are not the guard: the running servers (zombies too)."""
        return [pid for pid in children(self.pid) if proc_stat(pid) and not is_guard(pid)]

    def guards(self):
        return [pid for pid in children(self.pid) if is_guard(pid)]

    def asleep(self):
        return not self.servers()

    def exists(self):
        return self.process.poll() is None


def is_guard(pid):
    """The helper that ends the server's group when the relay is killed: a shell in its own session."""
    stat = proc_stat(pid)
    if stat is None or stat["sid"] != pid:
        return False
    try:
        return os.path.basename(cmdline(pid)[0]) in (b"sh", b"dash", b"bash") or b"guard" in b" ".join(cmdline(pid))
    except OSError:
        return False


# -------------------------------------------------------------------------------------- a server

class Fake:
    """The command of one fake server, and what it saw."""

    def __init__(self, box, number, flags, words=(), python=None):
        self.seen_path = box.path / ("seen-%d.jsonl" % number)
        self.control_path = box.path / ("control-%d" % number)
        flags = dict(flags, seen=str(self.seen_path), control=str(self.control_path))
        self.argv = [python or box.python, "-I", "-S", box.server]
        for key, value in flags.items():
            self.argv.append("--%s=%s" % (key.replace("_", "-"), json.dumps(value)))
        self.argv += list(words)

    def set(self, **flags):
        """Changes the server from its next start on, without changing its command line."""
        temporary = str(self.control_path) + ".new"
        Path(temporary).write_text(json.dumps(flags))
        os.replace(temporary, self.control_path)

    def events(self, event=None):
        try:
            lines = self.seen_path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        found = [json.loads(line) for line in lines]
        return [one for one in found if event is None or one["ev"] == event]

    def starts(self):
        return len(self.events("start"))

    def pid(self):
        return self.events("start")[-1]["pid"]

    def descendants(self):
        return [one["pid_of_child"] for one in self.events("child")]

    def methods(self):
        """Methods in the order of arrival, over all starts; None for an answer of the client."""
        return [one.get("method") for one in self.events("got")]

    def lines(self):
        return self.events("got")

    def wait_for(self, event, count=1, timeout=WAIT_S):
        return until(lambda: self.events(event)[count - 1:], timeout, "event %r of the server" % event)

    def wait_method(self, method, count=1, timeout=WAIT_S):
        until(lambda: self.methods().count(method) >= count, timeout, "the server to see %s" % method)


# --------------------------------------------------------------------------------- one test's box

@functools.lru_cache(None)
def launcher():
    """The text that line 1 of the module hands to the interpreter."""
    return re.search(r'-c "(.*)"', MODULE.read_text("utf-8").split("\n", 1)[0]).group(1)


@functools.lru_cache(None)
def bytecode():
    """A folder with the module's bytecode, made by one start, for every Box to begin with (it saves 50 ms a start)."""
    home = tempfile.mkdtemp(prefix="relay-bytecode-")
    atexit.register(shutil.rmtree, home, True)
    subprocess.run([sys.executable, "-I", "-S", "-c", launcher(), str(MODULE), "--version"], env={"HOME": home}, check=True,
                   stdout=subprocess.DEVNULL, timeout=30)
    return Path(home) / ".cache" / "mcp-lazy" / "bytecode"


class Box:
    def __init__(self, path, compiled=True):
        self.path = Path(path)
        self.home = self.path / "home"
        self.cache = self.path / "cache"
        self.home.mkdir()
        (self.path / "tmp").mkdir()
        (self.path / "python").mkdir()  # first on PATH: the interpreter of this test run, for `env python3`
        (self.path / "python" / "python3").symlink_to(sys.executable)
        if compiled:
            shutil.copytree(str(bytecode()), str(self.home / ".cache" / "mcp-lazy" / "bytecode"))
            os.chmod(str(self.home / ".cache" / "mcp-lazy"), 0o700)
        self.mark = "%d-%s" % (os.getpid(), self.path.name)
        self.relays = []
        self.numbers = itertools.count(1)
        self.watched = set()

    # ------------------------------------------------------------------------------- making things
    def fake(self, words=(), python=None, **flags):
        return Fake(self, next(self.numbers), flags, words, python)

    def env(self, **more):
        """A short environment, as clients with a list of names give (see the captured clients)."""
        found = {"HOME": str(self.home), "PATH": "%s:%s" % (self.path / "python", os.environ["PATH"]), "TMPDIR": str(self.path / "tmp"),
                 "LANG": "C.UTF-8", MARK: self.mark, "MCP_LAZY_CACHE_DIR": str(self.cache)}
        found.update(more)
        return {key: value for key, value in found.items() if value is not None}

    python = sys.executable
    module = str(MODULE)
    server = str(FAKE)

    def command(self, *words):
        """The executable file's own start (its first line), with the interpreter of this run: bytecode is cached."""
        return [self.python, "-I", "-S", "-c", launcher(), self.module] + [os.fspath(word) for word in words]

    def script(self, *words):
        """`python3 mcp_lazy.py`: compiled anew each time."""
        return [self.python, "-I", "-S", self.module] + [os.fspath(word) for word in words]

    def relay(self, fake, *options, env=None, argv=None, **more):
        """A running relay: options, then `--`, then the server's command."""
        words = fake.argv if isinstance(fake, Fake) else list(fake)
        argv = argv or self.command(*options, "--", *words)
        number = next(self.numbers)
        relay = Relay(self, argv, env if env is not None else self.env(),
                      stderr_path=str(self.path / ("stderr-%d" % number)), **more)
        self.relays.append(relay)
        return relay

    def run(self, *words, env=None, stdin=b"", timeout=WAIT_S, argv=None, cwd=None):
        """The relay as a command that ends by itself: (status, stdout, stderr)."""
        done = subprocess.run(argv or self.command(*words), input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env if env is not None else self.env(),
                              timeout=timeout, cwd=cwd)
        return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")

    def record(self, fake, *options, lists=("tools/list",), env=None, **handshake):
        """A first session that fills the recording; ends it and returns the initialize result."""
        relay = self.relay(fake, *options, env=env)
        result = relay.handshake(**handshake)
        for method in lists:
            relay.answer(relay.request(method))
        relay.finish()
        return result

    def warm(self, fake, *options, env=None, lists=("tools/list",), **handshake):
        """A session answered from a recording: the relay after its handshake, no server running."""
        self.record(fake, *options, env=env, lists=lists, **handshake)
        relay = self.relay(fake, *options, env=env)
        starts = fake.starts()
        relay.handshake(**handshake)
        relay.answer(relay.request("ping"))
        assert fake.starts() == starts and relay.asleep(), "a warm handshake started the server"
        return relay

    # ------------------------------------------------------------------------------ the recordings
    def recordings(self, directory=None):
        directory = Path(directory or self.cache)
        return sorted(path for path in directory.glob("*.json") if path.name[0] != ".") if directory.is_dir() else []

    def recording(self, directory=None):
        """The one recording, decoded."""
        found = self.recordings(directory)
        assert len(found) == 1, found
        return json.loads(found[0].read_bytes())

    # ------------------------------------------------------------------------------------- the end
    def watch(self, *found):
        """Processes that the test knows of; they must be gone at its end too."""
        self.watched.update(found)

    def close(self):
        """Ends everything and returns what was wrong: processes left over, tracebacks, stray output."""
        faults = []
        for relay in self.relays:
            try:
                relay.close()
            except OSError:
                pass
        for relay in self.relays:
            try:
                if relay.process.poll() is None:
                    relay.wait(6.0)
                while not relay.eof and not relay.process.stdout.closed:
                    relay.line(1.0)
            except (AssertionError, OSError, ValueError) as error:
                faults.append("at the end: %s" % error)
                if relay.process.poll() is None:
                    relay.process.kill()
                    relay.process.wait()
            if not relay.process.stdout.closed:
                relay.process.stdout.close()
            if "Traceback (most recent" in relay.stderr():
                faults.append("traceback: %s" % relay.stderr()[-3000:])
        faults += self.sweep()
        return faults

    def sweep(self, patience_s=3.0):
        """Survivors of this test are killed one by one, by pid, and named."""
        def left():
            found = set(marked(self.mark))
            found.update(pid for pid in self.watched if alive(pid) and self.mark_of(pid))
            found.update(pid for pid in descendants(os.getpid()) if alive(pid))
            return found - {os.getpid()}
        end = time.monotonic() + patience_s
        survivors = left()
        while survivors and time.monotonic() < end:
            time.sleep(0.005)
            survivors = left()
        faults = []
        for pid in survivors:
            try:
                faults.append("left running: %d %s" % (pid, b" ".join(cmdline(pid))[:200]))
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for pid in children(os.getpid()):  # adopted orphans that ended: reap them one by one
            stat = proc_stat(pid)
            if stat and stat["state"] == "Z":
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    pass
        return faults

    def mark_of(self, pid):
        return ("%s=%s" % (MARK, self.mark)).encode() in environ_of(pid)


def adopt_orphans():
    """Makes this process the parent of orphans below it (Linux), so that none of them gets away."""
    if not LINUX:
        return
    try:
        import ctypes
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def read_some(fd, timeout=WAIT_S):
    """What a descriptor has to give, with a deadline; b"" is its end."""
    ready, _, _ = select.select([fd], [], [], timeout)
    assert ready, "nothing to read within %.1f s" % timeout
    return os.read(fd, 1 << 16)


NOBODY = 65534


def become_nobody():
    """For preexec: from root to an ordinary user without any group."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def python_for_everyone():
    """An interpreter that another user may start too, or None (a root's own builds are often private)."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run([path, "-I", "-S", "-c", "import sys; sys.exit(sys.version_info < (3, 9))"],
                                  preexec_fn=become_nobody, stderr=subprocess.DEVNULL, timeout=WAIT_S)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return None


def set_nonblocking(fd, on):
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK if on else flags & ~os.O_NONBLOCK)
