"""Runs `mcp-lazy config ...` with a hand in every system call, for tests/test_config_write.py.

    place = Place(folder, "json")              a config file, a state folder, a relay; nothing else in there
    outcome = place.run("wrap")                status, stdout, stderr and calls of the command
    place.run("wrap", hook=Fail(7, errno.ENOSPC))

A start of the interpreter costs eighty milliseconds; here a command runs in this process, or, where it is to be killed
or to run beside others, in a fork that has the module loaded: so it can be run once for each of its system calls.
Meanwhile the name `posix` of the module is a `Gate`: before each call it asks the hook, which may raise OSError, kill
the process, change the file as a foreign program would, or give another result.  `fcntl.flock` and what is called
through ctypes pass the same hook.  Descriptors 0 to 2 are left alone.
"""

import ctypes
import fcntl
import gc
import hashlib
import io
import json
import os
import posix
import signal
import stat
import sys
import tempfile
import time
import traceback
import types

import mcp_lazy

from harness import WAIT_S

# They ask for nothing that can fail, or are no system calls at all.
NO_CALLS = {"getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "umask", "fspath", "strerror", "_exit",
            "urandom", "sysconf", "WIFEXITED", "WIFSIGNALED", "WEXITSTATUS", "WTERMSIG", "get_inheritable", "cpu_count"}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None  # where a sync costs nothing
EXCHANGE = ("renameat2", "renamex_np")  # how Linux and macOS call it
# What Python reports of files that are opened or changed behind the back of the gate.
WATCHED_EVENTS = {"open"} | {"os." + name for name in (
    "rename", "remove", "mkdir", "rmdir", "chmod", "chown", "link", "symlink", "truncate", "setxattr", "utime",
    "listdir", "scandir")}
SECRET = "s3cret-of-a-server"


class Call:
    """One system call: its number in the run (from 1), its name, its arguments."""

    def __init__(self, number, name, args, kwargs):
        self.number, self.name, self.args, self.kwargs = number, name, args, kwargs

    def path(self):
        """The first argument that is a path, "" if there is none."""
        words = [word for word in self.args if isinstance(word, (str, bytes))]
        return os.fsdecode(words[0]) if words and self.name != "write" else ""

    def mode(self):
        """The mode of what it makes, None if it makes nothing."""
        if self.name == "mkdir":
            return self.kwargs.get("mode", self.args[1] if len(self.args) > 1 else 0o777)
        if self.creates():
            return self.kwargs.get("mode", self.args[2] if len(self.args) > 2 else 0o777)
        return None

    def opens(self):
        return self.name == "open"

    def creates(self):
        return self.name == "open" and len(self.args) > 1 and bool(self.args[1] & os.O_CREAT)

    def allocates(self):
        """True for what a full disk refuses."""
        return self.creates() or self.name in ("write", "pwrite", "writev", "mkdir", "link", "symlink", "setxattr",
                                               "fsync", "fdatasync")

    def changes(self):
        """True for what a disk that became read-only refuses."""
        return self.allocates() or self.name in EXCHANGE + (
            "rename", "replace", "unlink", "remove", "rmdir", "chmod", "fchmod", "chown", "fchown", "ftruncate",
            "truncate", "utime", "removexattr")


class Watch:
    """Counts the calls of a run and asks the hook before each."""

    def __init__(self, hook):
        self.hook, self.calls, self.unseen, self.inside, self.opened = hook, [], [], False, set()

    def __call__(self, name, real, args, kwargs):
        is_stream = args and type(args[0]) is int and 0 <= args[0] <= 2
        if self.inside or is_stream:
            return real(*args, **kwargs)
        self.inside = True
        try:
            call = Call(len(self.calls) + 1, name, args, kwargs)
            self.calls.append([name, call.path(), call.mode()])
            try:
                given = self.hook(call) if self.hook else None
            except OSError:
                if name == "close":  # it is closed all the same, as Linux does
                    self.done(name, args, real(*args, **kwargs))
                raise
            try:
                return self.done(name, args, real(*args, **kwargs)) if given is None else given
            finally:
                if self.hook:
                    self.hook.after(call)
        finally:
            self.inside = False

    def done(self, name, args, result):
        """Keeps count of the descriptors that the command has open."""
        if name in ("open", "dup"):
            self.opened.add(result)
        elif name == "pipe":
            self.opened.update(result)
        elif name == "close":
            self.opened.discard(args[0])
        return result

    def audit(self, event, args):
        """Hears of every file that Python opens or changes; whatever did not come through the gate is noted."""
        if not self.inside and event in WATCHED_EVENTS and args and isinstance(args[0], (str, bytes)):
            self.unseen.append([event, os.fsdecode(args[0])])


class Gate:
    """Stands in for the module `posix`."""

    def __init__(self, watch, environ):
        self._watch, self.environ = watch, environ

    def __getattr__(self, name):
        real = getattr(posix, name)
        if not isinstance(real, types.BuiltinFunctionType) or name in NO_CALLS:
            return real

        def passed(*args, **kwargs):
            return self._watch(name, real, args, kwargs)
        setattr(self, name, passed)
        return passed


class Library:
    """Stands in for what `ctypes.CDLL` gives: its functions pass the hook, an OSError of it becomes errno and -1."""

    def __init__(self, watch, real):
        self._watch, self._real = watch, real

    def __getattr__(self, name):
        real = getattr(self._real, name)

        def passed(*args, **kwargs):
            try:
                return self._watch(name, real, args, kwargs)
            except OSError as error:
                ctypes.set_errno(error.errno)
                return -1
        return passed


# ------------------------------------------------------------------------------------------ one run

class Outcome:
    """What a command did: status (negative: a signal), out, err, calls [name, path, mode], notes of the hook."""

    def __init__(self, status, out, err, report):
        self.status, self.out, self.err = status, out, err
        self.calls, self.unseen, self.notes = report.get("calls", []), report.get("unseen", []), report.get("notes", {})

    def __repr__(self):
        return "status %d, stdout %r, stderr %r" % (self.status, self.out, self.err)

    def names(self):
        return [call[0] for call in self.calls]

    def exchanges(self):
        return [number for number, name in enumerate(self.names(), 1) if name in EXCHANGE]

    def report(self):
        """The one line on stdout, decoded."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)


class Stage:
    """The module with a gate in place of the system, for one command; afterwards everything is as it was."""

    def __init__(self, words, environ, watch):
        self._watch, self._argv, self._environ = watch, ["/opt/mcp-lazy"] + words, environ

    def __enter__(self):
        watch, flock, load = self._watch, fcntl.flock, ctypes.CDLL
        self._saved = mcp_lazy.posix, flock, load, sys.argv, os.umask(0)  # 0: whatever is too open must be seen to be
        self._signals = {number: signal.getsignal(number) for number in mcp_lazy.STOP_SIGNALS + (signal.SIGCHLD,)}
        mcp_lazy.posix, sys.argv = Gate(watch, self._environ), self._argv
        fcntl.flock = lambda *args: watch("flock", flock, args, {})
        ctypes.CDLL = lambda *args, **kwargs: Library(watch, load(*args, **kwargs))

    def __exit__(self, *error):
        mcp_lazy.posix, fcntl.flock, ctypes.CDLL, sys.argv, umask = self._saved
        os.umask(umask)
        signal.set_wakeup_fd(-1)
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        for fd in self._watch.opened:  # what an ended process would have given back, the lock among it
            os.close(fd)


def perform(words, environ, watch):
    """The exit status of the command, run in this process; 70 and a traceback if it was no clean end."""
    try:
        with Stage(words, environ, watch):
            return mcp_lazy.main() or 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 70
    except BaseException:  # an assertion, an interrupt: in a fork, it must not go on as a second test run
        traceback.print_exc()
        return 70


def stream(raw):
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", write_through=True)


def run_here(words, environ, hook, notes):
    """The Outcome of a command that was run in this process: four times as quick as a fork."""
    watch, saved, streams = Watch(hook), (sys.stdout, sys.stderr), (stream(io.BytesIO()), stream(io.BytesIO()))
    end_s = time.monotonic() + WAIT_S
    sys.stdout, sys.stderr = streams
    try:
        status = perform(words, environ, watch)
    finally:
        sys.stdout, sys.stderr = saved
    assert time.monotonic() < end_s, "the command took more than %g s; its last call: %s" % (WAIT_S, watch.calls[-1:])
    texts = [one.buffer.getvalue().decode("utf-8", "surrogateescape") for one in streams]
    return Outcome(status, texts[0], texts[1], {"calls": watch.calls, "notes": notes})


class Running:
    """A command that runs in a fork. prepare: run first, in the fork; notes: a dict that the hook may fill."""

    def __init__(self, words, environ, hook=None, prepare=None, notes=None):
        self._files = [tempfile.TemporaryFile(dir=MEMORY) for _ in range(3)]
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(words, environ, hook, prepare, {} if notes is None else notes)

    def _run(self, words, environ, hook, prepare, notes):
        """The fork's whole life."""
        gc.disable()  # it would touch, and so copy, every page
        status, watch = 70, Watch(hook)
        try:
            self._take_streams()
            if prepare:
                prepare()
            if hook is not None:
                hook.report = lambda: self._report(watch, notes)
            sys.addaudithook(watch.audit)
            status = perform(words, environ, watch)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                watch.inside = True
                sys.stdout.flush()
                sys.stderr.flush()
                self._report(watch, notes)
            finally:
                os._exit(status)

    def _take_streams(self):
        null = os.open(os.devnull, os.O_RDONLY)
        for number, fd in enumerate((null, self._files[0].fileno(), self._files[1].fileno())):
            os.dup2(fd, number)
        os.close(null)
        sys.stdout, sys.stderr = (stream(open(number, "wb", 0, closefd=False)) for number in (1, 2))

    def _report(self, watch, notes):
        """Left in a file: a process that is killed cannot send it."""
        raw = json.dumps({"calls": watch.calls, "unseen": watch.unseen, "notes": notes}).encode()
        fd = self._files[2].fileno()
        os.ftruncate(fd, 0)
        os.pwrite(fd, raw, 0)

    def poll(self):
        """True when it has ended."""
        if self.pid is not None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = None
                self._status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.pid is None

    def wait(self, timeout_s=WAIT_S):
        """Its Outcome."""
        end_s = time.monotonic() + timeout_s
        while not self.poll():
            if time.monotonic() > end_s:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("the command did not end within %g s" % timeout_s)
            time.sleep(0.0003)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "surrogateescape"))
            file.close()
        return Outcome(self._status, texts[0], texts[1], json.loads(texts[2] or "{}"))


# ---------------------------------------------------------------------------------------- the hooks

class Hook:
    """Asked before each call and told after it."""

    deadly = False  # it kills the process: in a fork only

    def report(self):
        """Writes the notes down; put in by the run."""

    def __call__(self, call):
        """Before the call: raises OSError in its place, or gives its result in its place, or None."""
        raise NotImplementedError

    def after(self, call):
        """After it, whether it worked or not."""


class Fail(Hook):
    """Call `at` raises OSError(code); `sticky`: so do all later ones of that kind (a name of a method of Call)."""

    def __init__(self, at, code, sticky=None):
        self.at, self.code, self.sticky = at, code, sticky

    def __call__(self, call):
        hit = call.number == self.at if self.sticky is None else call.number >= self.at and getattr(call, self.sticky)()
        if hit:
            raise OSError(self.code, os.strerror(self.code))


class FailCalls(Hook):
    """Every call of these names raises OSError(code)."""

    def __init__(self, names, code):
        self.names, self.code = names, code

    def __call__(self, call):
        if call.name in self.names:
            raise OSError(self.code, os.strerror(self.code))


class HalfWrite(Hook):
    """The write that is call `at` takes half of what it is given; the next call raises `code`, or kills (None)."""

    def __init__(self, at, code):
        self.at, self.code, self.deadly = at, code, code is None

    def __call__(self, call):
        if call.number == self.at:
            raw = bytes(call.args[1])
            return os.write(call.args[0], raw[:max(1, len(raw) // 2)])
        if call.number == self.at + 1:
            if self.code is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(self.code, os.strerror(self.code))


class Signal(Hook):
    """SIGTERM to the process right before call `at`."""

    deadly, signum = True, signal.SIGTERM

    def __init__(self, at):
        self.at = at

    def __call__(self, call):
        if call.number == self.at:
            self.report()
            os.kill(os.getpid(), self.signum)


class Kill(Signal):
    """SIGKILL right before call `at`."""

    signum = signal.SIGKILL


class KillAfter(Hook):
    """SIGKILL right after call `at`, before anything is made of its result."""

    deadly = True

    def __init__(self, at):
        self.at = at

    def __call__(self, call):
        return None

    def after(self, call):
        if call.number == self.at:
            self.report()
            os.kill(os.getpid(), signal.SIGKILL)


class Act(Hook):
    """Runs `actions[number]()` before the call of that number; with `on` only the calls of these names are counted."""

    def __init__(self, actions, on=None):
        self.actions, self.on, self.seen = actions, on, 0

    def __call__(self, call):
        if self.on is None:
            number = call.number
        elif call.name in self.on:
            self.seen += 1
            number = self.seen
        else:
            return
        if number in self.actions:
            self.actions[number]()


# --------------------------------------------------------------------------------------- the places

JSON_TEXT = """\
{
  "seen": "0000000000000000000000000000000000000000",
  "mcpServers": {
    "one": {
      "command": "npx",
      "args": ["-y", "one-mcp"],
      "env": { "TOKEN": "%s" }
    },
    "two": {"command": "uvx", "args": ["two-mcp", "--key=%s"]}
  },
  "last": 1.50
}
""" % (SECRET, SECRET)
TOML_TEXT = """\
# by hand
seen = "0000000000000000000000000000000000000000"

[mcp_servers.one]
command = 'npx'  # kept
args = [
  "-y",
  "one-mcp",
]

[mcp_servers.one.env]
TOKEN = "%s"

[mcp_servers.two]
command = "uvx"
args = ["two-mcp", "--key=%s"]
""" % (SECRET, SECRET)
# What a product's own setup makes of the entry `one`: a plain registration again, with another command.
SETUP = {
    "json": [(JSON_TEXT[JSON_TEXT.index('    "one"'):JSON_TEXT.index('    "two"')],
              '    "one": {"command": "node", "args": ["one.js"], "env": {"TOKEN": "%s"}},\n' % SECRET)],
    "toml": [(TOML_TEXT[TOML_TEXT.index("[mcp_servers.one]"):TOML_TEXT.index("[mcp_servers.two]")],
              '[mcp_servers.one]\ncommand = "node"\nargs = ["one.js"]\nenv = { TOKEN = "%s" }\n\n' % SECRET)],
}
TEXTS = {"json": JSON_TEXT.encode(), "toml": TOML_TEXT.encode()}
CLIENTS = {"json": "cursor", "toml": "codex"}


def setup_text(form):
    """The config after the product's setup registered `one` anew."""
    text = TEXTS[form].decode()
    for old, new in SETUP[form]:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def digest(*words):
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


class Place:
    """A folder with a config (`config`), a state folder and a relay, and the commands on it."""

    def __init__(self, folder, form="json", mode=0o600):
        self.folder, self.form, self.client = str(folder), form, CLIENTS[form]
        self.home, self.state = self.folder + "/home", self.folder + "/state"
        self.relay = self.folder + "/bin/mcp-lazy"
        self.config = "%s/conf/mcp.%s" % (self.folder, form)
        for name in ("home", "conf", "bin"):
            os.mkdir(self.folder + "/" + name)
        with open(self.relay, "w") as file:
            file.write("#!/bin/sh\n")
        os.chmod(self.relay, 0o755)
        self.mode = mode
        self.write(TEXTS[form])

    def write(self, raw):
        with open(self.config, "wb") as file:
            file.write(raw)
        os.chmod(self.config, self.mode)

    def read(self):
        with open(self.config, "rb") as file:
            return file.read()

    def metadata(self, server="one"):
        return "%s/%s.json" % (self.state, digest(self.client, os.path.realpath(self.config), server))

    def lock(self):
        return "%s/locks/%s.lock" % (self.state, digest(os.path.realpath(self.config)))

    def backups(self, server="one"):
        """Paths of the backups of one registration, oldest first."""
        prefix, folder = digest(self.client, os.path.realpath(self.config), server), self.state + "/backups"
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return ["%s/%s" % (folder, name) for name in sorted(names) if name.startswith(prefix)]

    def words(self, action, *more, server="one", file=None):
        words = ["config", action, "--client", self.client, "--file", file or self.config, "--state-dir", self.state]
        words += ["--all"] if server is None else ["--server", server]
        if action in ("wrap", "reapply"):
            words += ["--relay", self.relay, "--env", "MCP_LAZY_IDLE_STOP=5m"]
        return words + list(more)

    def environ(self):
        return {b"HOME": self.home.encode(), b"PATH": b"/usr/bin:/bin", b"LANG": b"C.UTF-8"}

    def start(self, words, **how):
        """The command in a fork."""
        return Running(list(words), self.environ(), **how)

    def run(self, action, *more, server="one", file=None, fork=False, **how):
        """The Outcome of one command; in this process where nothing speaks against it."""
        words, hook = self.words(action, *more, server=server, file=file), how.get("hook")
        if fork or how.get("prepare") or hook is not None and hook.deadly:
            return self.start(words, **how).wait()
        return run_here(words, self.environ(), hook, how.get("notes", {}))

    def done(self, action, *more, **how):
        """The Outcome of a command that has to succeed."""
        outcome = self.run(action, *more, **how)
        assert outcome.status == 0, outcome
        return outcome

    # --------------------------------------------------------------------------------- all of it
    def tree(self, *below):
        """{path below the place: (mode, bytes; None of a folder)}; `below` narrows it."""
        found = {}
        for top in below or ("conf", "state"):
            for folder, _names, names in os.walk("%s/%s" % (self.folder, top)):
                found[os.path.relpath(folder, self.folder)] = (stat.S_IMODE(os.stat(folder).st_mode), None)
                for name in names:
                    path = folder + "/" + name
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, self.folder)] = (stat.S_IMODE(os.lstat(path).st_mode), file.read())
        return found

    def restore(self, tree):
        """Make the place what it was when `tree` was taken."""
        now = self.tree()
        for path in sorted(now, reverse=True):
            if path not in tree:
                full = self.folder + "/" + path
                (os.rmdir if now[path][1] is None else os.unlink)(full)
        for path in sorted(tree):
            mode, raw = tree[path]
            full = self.folder + "/" + path
            if now.get(path) == (mode, raw):
                continue
            if raw is None:
                os.makedirs(full, exist_ok=True)
            else:
                if path in now:
                    os.chmod(full, 0o600)
                with open(full, "wb") as file:
                    file.write(raw)
            os.chmod(full, mode)

    def beside(self):
        """The names in the config's folder."""
        return sorted(os.listdir(os.path.dirname(self.config)))


def become_nobody():
    """From root to an ordinary user, in a fork; what a command imports has to be loaded before."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


for _form, _raw in TEXTS.items():  # loaded and compiled once, not in every fork
    mcp_lazy.sha256_hex(_raw)
    mcp_lazy.read_document(_raw, "", _form == "toml")
