"""`mcp-lazy config`, item by item of the specification (D1.1 to D10.9), through its command line in a fresh HOME.

    home = Home(tmp_path)                          a HOME with an executable to register as the relay, `home.relay`
    path = home.put("claude", '{"mcpServers":{}}')      the client's default file, with these bytes
    report = home.config("wrap", "claude", "NAME")      the report, or a list of them with None (--all) for the name
    text = home.refused("wrap", "claude", "NAME")       stderr of a command that failed and changed nothing at all

Most commands run in a forked child of the test process, which has the module loaded (a few ms); what depends on how
the command was started runs as a process of its own.  The write under faults is in test_config_write.py, random
documents are in test_config_property.py, the handed failure cases in test_config_cases.py.
"""

import collections
import ctypes
import fcntl
import gc
import hashlib
import io
import json
import os
import posix
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback

import pytest

import mcp_lazy
from harness import FULL, LINUX, MODULE, launcher, until

try:
    import tomllib
except ImportError:  # before 3.11
    tomllib = None

Done = collections.namedtuple("Done", "status out err")
SECRET = "hunter2-is-not-shown"
FILES = {"claude": ".claude.json", "claude-desktop": ".config/Claude/claude_desktop_config.json",
         "cursor": ".cursor/mcp.json",
         "codex": ".codex/config.toml", "grok": ".grok/config.toml", "gemini": ".gemini/settings.json",
         "qwen": ".qwen/settings.json", "copilot": ".copilot/mcp-config.json",
         "cline": ".cline/data/settings/cline_mcp_settings.json", "vscode": ".config/Code/User/mcp.json",
         "windsurf": ".codeium/windsurf/mcp_config.json", "opencode": ".config/opencode/opencode.jsonc",
         "zed": ".config/zed/settings.json"}
if not LINUX:
    FILES["claude-desktop"] = "Library/Application Support/Claude/claude_desktop_config.json"
    FILES["vscode"] = "Library/Application Support/Code/User/mcp.json"
# A forked child has what its parent had: modules, and the patterns that `re` keeps.
assert ctypes and mcp_lazy.toml_document(b'a = "1"').value == mcp_lazy.json_document(b'{"a": "1"}').value
BOTH = pytest.mark.parametrize("client", ["claude", "codex"])


# --------------------------------------------------------------------------------------------- running the command

def begin(argv, env, cwd, before=None):
    """A forked child that runs mcp_lazy.main(); `before` is called there first. (pid, its two outputs)"""
    pipes = [os.pipe(), os.pipe()]
    pid = os.fork()
    if pid == 0:
        child(argv, env, cwd, before, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    return pid, [read for read, _ in pipes]


def finish(begun, timeout=20.0):
    """Done, of a child that was begun."""
    pid, outputs = begun
    found, end, open_fds = {fd: b"" for fd in outputs}, time.monotonic() + timeout, list(outputs)
    try:
        while open_fds:
            ready, _, _ = select.select(open_fds, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError("did not end within %.0f s: %s" % (timeout, list(found.values())))
            for fd in ready:
                piece = os.read(fd, 1 << 16)
                found[fd] += piece
                if not piece:
                    open_fds.remove(fd)
    finally:
        _, raw = os.waitpid(pid, 0)
        for fd in outputs:
            os.close(fd)
    status = os.WEXITSTATUS(raw) if os.WIFEXITED(raw) else -os.WTERMSIG(raw)
    return Done(status, *(text.decode("utf-8") for text in found.values()))


def child(argv, env, cwd, before, outputs):
    """Becomes the command; never returns."""
    status = 70
    try:
        for number, fd in enumerate([os.open(os.devnull, os.O_RDONLY)] + outputs):
            os.dup2(fd, number)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        os.chdir(str(cwd))
        for here, values in ((os.environ, env),
                             (posix.environ, {os.fsencode(k): os.fsencode(v) for k, v in env.items()})):
            here.clear()
            here.update(values)
        sys.argv = argv
        gc.disable()                   # it would touch, and so copy, every page of our parent
        posix.fsync = lambda fd: None  # half the time of a test; what it is for only a power cut could show
        if before is not None:
            before()
        status = mcp_lazy.main()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(status or 0)


class Home:
    """A user's home with an executable file that is registered as the relay."""

    def __init__(self, path):
        self.path = path
        self.home = path / "home"
        self.home.mkdir(exist_ok=True)
        self.state = self.home / ".config" / "mcp-lazy" / "registrations"
        self.relay = self.executable("bin/mcp-lazy")

    def executable(self, name):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    # ------------------------------------------------------------------------------------------------ its files
    def file(self, client):
        return self.home / FILES[client]

    def put(self, client, text, mode=0o600):
        """Writes the client's file in place; its path."""
        path = self.file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        path.chmod(mode)
        return path

    def key(self, client, server, path=None):
        """K of D2.1: the name of everything that is kept about a registration."""
        text = "\n".join([client, os.path.realpath(str(path or self.file(client))), server])
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]

    def metadata_path(self, client="claude", server="s", path=None):
        return self.state / (self.key(client, server, path) + ".json")

    def metadata(self, client="claude", server="s"):
        return json.loads(self.metadata_path(client, server).read_bytes())

    def forget_spans(self, client="claude", server="s"):
        """Makes the record one that says nothing of bytes, as older versions wrote it."""
        path, found = self.metadata_path(client, server), self.metadata(client, server)
        del found["spans"]
        path.write_text(json.dumps(found, indent=2))

    def backups(self, client="claude", server="s"):
        return sorted((self.state / "backups").glob(self.key(client, server) + "-*"))

    def tree(self):
        """{path: what it is} of all that is in this home; that there are folders for state and locks tells nothing."""
        found = {}
        for folder, names, files in os.walk(str(self.home)):
            names[:] = [name for name in names if name not in ("locks", ".cache")]
            for name in files + [name for name in names if ".config" not in os.path.join(folder, name)]:
                path = os.path.join(folder, name)
                facts = os.lstat(path)
                content = None
                if stat.S_ISREG(facts.st_mode):
                    with open(path, "rb") as file:
                        content = (facts.st_ino, facts.st_mtime_ns, file.read())
                elif stat.S_ISLNK(facts.st_mode):
                    content = os.readlink(path)
                found[os.path.relpath(path, str(self.home))] = (facts.st_mode, facts.st_uid, content)
        return found

    # -------------------------------------------------------------------------------------------- its commands
    def env(self, **more):
        found = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(self.path)}
        found.update(more)
        return {name: value for name, value in found.items() if value is not None}

    def words(self, action, client, server, more):
        """The command line that registers our relay, unless it names another one."""
        found = ["config", action, "--client", client] + (["--all"] if server is None else ["--server=" + server])
        if not any(str(word).lstrip("-").startswith("relay") for word in more):
            found += ["--relay", self.relay]
        return found + [str(word) for word in more]

    def run(self, *words, env=None, cwd=None, before=None, timeout=20.0):
        argv = [str(MODULE)] + [str(word) for word in words]
        done = finish(begin(argv, self.env() if env is None else env, cwd or self.home, before), timeout)
        assert "Traceback" not in done.err, done.err
        return done

    def config(self, action, client, server="s", *more, status=0, **options):
        """The report of a command on one server; with None for the name those of all of them."""
        done = self.run(*self.words(action, client, server, more), **options)
        assert done.status == status, done
        reports = [one_report(line) for line in done.out.splitlines()]
        if server is None:
            return reports
        assert len(reports) == 1, done
        return reports[0]

    def row(self, client, *steps):
        """The client's file (bytes) after each of some commands, which all succeed, in one process.

        A step is (action, server, words of the command line), or a function that does something to the file.
        """
        path, result = self.file(client), self.path / "row"
        todo = [step if callable(step) else self.words(step[0], client, step[1], step[2]) for step in steps]

        def work():
            found = [one_step(step) + (path.read_bytes().decode("latin-1"),) for step in todo]
            result.write_text(json.dumps(found), "utf-8")
            os._exit(0)
        done = self.run(before=work)
        assert done.status == 0, done
        found = json.loads(result.read_text("utf-8"))
        for step, (status, out, err, raw) in zip(todo, found):
            assert status == 0 and (callable(step) or one_report(out)["action"] == step[1]), (step, status, out, err)
        return [raw.encode("latin-1") for _, _, _, raw in found]

    def refused(self, action, client, server="s", *more, status=1, **options):
        """stderr of a command that fails and leaves everything as it is (D1.2)."""
        before = self.tree()
        done = self.run(*self.words(action, client, server, more), **options)
        assert done.status == status, done
        return self.nothing_done(done, before)

    def nothing_done(self, done, before):
        assert done.out == "" and re.fullmatch(r"mcp-lazy: [^\n]+\n", done.err), done
        assert SECRET not in done.err
        assert self.tree() == before
        return done.err

    def there_and_back(self, client, server="s", *more):
        """Bytes of the wrapped file; unwrap has to give the first ones back (D9.9)."""
        path = self.file(client)
        raw, before = path.read_bytes(), path.stat()
        wrapped, unwrapped = self.row(client, ("wrap", server, more), ("unwrap", server, ()))
        assert wrapped != raw and unwrapped == raw
        after = path.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        assert not list(self.state.glob("*.json"))
        return wrapped


def one_step(step):
    """(status, stdout, stderr) of a command line or function, in this process."""
    if callable(step):
        step()
        return 0, "", ""
    sys.argv, sys.stdout, sys.stderr = [str(MODULE)] + step, io.StringIO(), io.StringIO()
    streams = sys.stdout, sys.stderr
    try:
        status = mcp_lazy.main()
    except SystemExit as stop:
        status = stop.code
    return (status, streams[0].getvalue(), streams[1].getvalue())


def one_report(line):
    """A line of a report: JSON, its members in order (D7.1)."""
    pairs = json.loads(line, object_pairs_hook=lambda found: found)
    names = [name for name, _ in pairs]
    assert names == sorted(set(names)), line
    return json.loads(line)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


# ------------------------------------------------------------------------------------------ documents and judges

COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.S)


def strict_json(raw):
    """The text without what only JSON with comments has."""
    text = raw.decode("utf-8-sig")
    for pattern in (COMMENT, LAST_COMMA):
        text = pattern.sub(lambda found: found.group() if found.group()[0] == '"' else " ", text)
    return text


def settings(client, raw):
    """The decoded document; `json` and `tomllib` are the judges."""
    if not FILES[client].endswith(".toml"):
        return json.loads(strict_json(raw))
    if tomllib is not None:
        return tomllib.loads(raw.decode("utf-8-sig"))
    return mcp_lazy.toml_document(raw).value


def exact(value):
    """A form in which == is equality of settings: types apart, NaN equal to itself, keys in any order."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return type(value).__name__, repr(value)


def entry(home, client, server="s"):
    """The decoded registration as it stands in the file."""
    found = settings(client, home.file(client).read_bytes())
    return found[{"codex": "mcp_servers", "grok": "mcp_servers"}.get(client, "mcpServers")][server]


def document(client, command="npx", args=("-y", "x"), env=None, name="s"):
    """A file with one server; None leaves a member out."""
    members = {"command": command, "args": None if args is None else list(args), "env": env}
    members = {key: value for key, value in members.items() if value is not None}
    if client != "codex":
        return json.dumps({"mcpServers": {name: members}}, separators=(",", ":"))
    lines = ["[mcp_servers.%s]" % json_text(name)]
    for key, value in members.items():
        text = json_text(value)
        if isinstance(value, dict):
            pairs = ["%s = %s" % (json_text(one), json_text(value[one])) for one in value]
            text = "{ %s }" % ", ".join(pairs) if pairs else "{}"
        lines.append("%s = %s" % (key, text))
    return "\n".join(lines) + "\n"


def json_text(value):
    """A string or an array of them, as JSON and TOML have it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def wrapped_args(home, client, server="s"):
    found = entry(home, client, server)
    assert found["command"] == home.relay
    return found["args"]


# --------------------------------------------------------------------------------------------- D1: command line

@pytest.mark.parametrize("words", [
    "--client claude --server s --relay R", "-client claude -server s -relay R", "--client=claude --server=s --relay=R",
    "-client=claude -server=s -relay=R", "-server s --relay=R -client=claude",
    "--server other --client cursor --client claude "
    "-server=s --relay R", "--client claude --server s --relay R --dry-run=false",
    "--client claude --server s --relay R -dry-run=F"])
def test_d1_1_the_flag_grammar_is_the_relays(home, words):
    path = home.put("claude", document("claude"))
    done = home.run("config", "wrap", *words.replace(" R", " " + home.relay).replace("=R", "=" + home.relay).split(" "))
    assert done.status == 0, done
    assert one_report(done.out)["action"] == "wrap" and wrapped_args(home, "claude") == ["npx", "-y", "x"]
    assert path.read_bytes() != document("claude").encode()


@pytest.mark.parametrize("flag", ["--dry-run", "-dry-run", "--dry-run=true", "-dry-run=1", "--dry-run=T"])
def test_d1_1_booleans(home, flag):
    home.put("claude", document("claude"))
    before = home.tree()
    assert home.config("wrap", "claude", "s", flag)["dryRun"] is True
    assert home.tree() == before
    home.refused("wrap", "claude", "s", flag.partition("=")[0], "false", status=2)  # never takes the next word
    home.refused("wrap", "claude", "s", "--dry-run=maybe", status=2)


@pytest.mark.parametrize("words",
                         [["-h"], ["--help"], ["wrap", "-h"], ["wrap", "--client", "claude", "--help"],
                          ["status", "-help"]])
def test_d1_1_help_goes_to_stdout(home, words):
    """I12: exit 0."""
    done = home.run("config", *words)
    assert (done.status, done.err) == (0, "")
    for word in ("wrap", "reapply", "status", "unwrap", "list", "watch", "--client", "--server", "--env", "--dry-run"):
        assert word in done.out, word


@pytest.mark.parametrize("words", [
    [], ["frobnicate"], ["wrap"], ["wrap", "--client", "claude"], ["wrap", "--server", "s"],
    ["wrap", "--client=claude", "--server="],
    ["wrap", "--client", "nobody", "--server", "s"], ["wrap", "--client", "", "--server", "s"],
    ["wrap", "--client", "claude", "--server", "s", "--all"], ["wrap", "--client", "claude", "--server"],
    ["wrap", "--client", "claude", "--server", "s", "extra"], ["wrap", "--client", "claude", "--server", "s", "--frob"],
    ["wrap", "--client", "claude", "--server", "s", "--recover"],
    ["reapply", "--client", "claude", "--server", "s", "--recover"],
    ["status", "--client", "claude", "--server", "s", "--recover"],
    ["wrap", "--client", "claude", "--server", "s", "---dry-run"],
    ["wrap", "--client", "cursor", "--server", "s", "--project", "/p"],
    ["wrap", "--client", "claude", "--server", "s", "--file", ""],
    ["wrap", "--client", "claude", "--server", "s", "--keep-backups", "many"],
    ["wrap", "--client", "claude", "--server", "s", "--keep-backups=-1"]], ids=" ".join)
def test_d1_2_usage_errors_are_status_2(home, words):
    """One line on stderr, nothing on stdout, nothing done."""
    home.put("claude", document("claude"))
    home.put("cursor", document("cursor"))
    before = home.tree()
    more = ["--relay", home.relay] if words and "--server" != words[-1] else []
    done = home.run("config", *(words[:1] + more + words[1:]))
    assert done.status == 2, done
    home.nothing_done(done, before)


@pytest.mark.parametrize("action", ["wrap", "reapply"])
@pytest.mark.parametrize("what", ["missing", "folder", "not executable", "empty", "below a file", "fifo"])
def test_d1_2_the_relay_has_to_be_an_executable_file(home, action, what):
    home.put("claude", document("claude"))
    home.config("wrap", "claude")
    relay = home.path / "other" / "mcp-lazy"
    relay.parent.mkdir()
    if what == "folder":
        relay.mkdir()
    elif what == "not executable":
        relay.write_text("#!/bin/sh\n")
        relay.chmod(0o644)
    elif what == "fifo":
        os.mkfifo(str(relay), 0o755)
    elif what == "below a file":
        relay.write_text("")
        relay = relay / "mcp-lazy"
    home.refused(action, "claude", "s", "--relay=%s" % ("" if what == "empty" else relay), status=2)


def test_d1_2_unwrap_and_status_do_not_need_the_relay(home):
    """It may be gone for long."""
    raw = document("claude").encode()
    path = home.put("claude", raw)
    home.config("wrap", "claude")
    os.unlink(home.relay)
    assert home.config("status", "claude")["wrapped"] is True
    home.config("unwrap", "claude")
    assert path.read_bytes() == raw


def test_d1_2_without_a_place_for_the_state_it_is_status_2(home):
    path = home.put("claude", document("claude"))
    env = home.env(HOME=None)
    home.refused("wrap", "claude", "s", "--file", path, env=env, status=2)
    home.config("wrap", "claude", "s", "--file", path, "--state-dir", home.path / "state", env=env)
    assert len(list((home.path / "state").glob("*.json"))) == 1


def test_d1_2_all_else_is_status_1(home):
    """The file is named."""
    home.put("claude", document("claude"))
    assert "nobody" in home.refused("wrap", "claude", "nobody")
    assert str(home.file("cursor")) in home.refused("wrap", "cursor")
    assert not home.file("cursor").exists(), "a missing file is never made"
    missing = home.path / "missing.json"
    for action in ("wrap", "reapply", "unwrap", "status"):
        assert str(missing) in home.refused(action, "claude", "s", "--file", missing)
    assert str(home.file("claude")) in home.refused("reapply", "claude") or "wrap" in home.refused("reapply", "claude")


@pytest.mark.parametrize("client, text", [
    ("claude", '{"mcpServers":{"s":{"command":"npx","args":["SECRET",5]}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx","env":{"TOKEN":"SECRET","N":5}}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx","env":{"TOKEN":["SECRET"]}}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx","env":"SECRET"}}}'),
    ("claude", '{"mcpServers":{"s":{"url":"https://u:SECRET@host/?key=SECRET","headers":{"A":"Bearer SECRET"}}}}'),
    ("claude", '{"mcpServers":{"s":{"command":["SECRET"]}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"mcp-lazy","args":["--token=SECRET"]}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx","env":{"TOKEN":"SECRET" "SECRET"}}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx","env":{"TOKEN":"SECRET\n"}}}}'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nenv = { TOKEN = "SECRET", N = 5 }\n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nenv = { TOKEN = "SECRET\n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nenv.TOKEN = SECRET\n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nargs = ["SECRET", 5]\n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nenv.A = "1"\nenv.A = "SECRET"\n')])
def test_d1_2_no_secret_is_in_a_message(home, client, text):
    """`refused` looks for it."""
    home.put(client, text.replace("SECRET", SECRET))
    for action in ("wrap", "status")[:2 - ("mcp-lazy" in text)]:
        home.refused(action, client, "s")


@BOTH
def test_d1_3_env(home, client):
    """The value may be anything, also empty; the last one of a name wins."""
    home.put(client, document(client))
    words = ["--env", "MCP_LAZY_EMPTY=", "--env=MCP_LAZY_TWO=a=b", "-env", "MCP_LAZY_X=first", "--env",
             "MCP_LAZY_X=last",
             "--env", "MCP_LAZY_ODD=\"\\\n\t\u00e9\U0001f600\x7f</script>"]
    report = home.config("wrap", client, "s", *words)
    assert entry(home, client)["env"] == {"MCP_LAZY_EMPTY": "", "MCP_LAZY_TWO": "a=b", "MCP_LAZY_X": "last",
                                          "MCP_LAZY_ODD": "\"\\\n\t\u00e9\U0001f600\x7f</script>"}
    assert report["changedFields"] == ["args", "command", "env.MCP_LAZY_EMPTY", "env.MCP_LAZY_ODD", "env.MCP_LAZY_TWO",
                                       "env.MCP_LAZY_X"]


@pytest.mark.parametrize(
    "word", ["X=%s", "mcp_lazy_X=%s", "MCP_LAZY_A B=%s", "MCP_LAZY_A.B=%s", "MCP_LAZY_A\tB=%s", "MCP_LAZY_A\nB=%s",
                                  "MCP_LAZY_A%s", "=%s", "%s", "MCP_LAZ=%s", " MCP_LAZY_X=%s", ""])
def test_d1_3_other_names_are_refused(home, word):
    home.put("claude", document("claude"))
    word = word.replace("%s", SECRET)
    if "=" not in word and word.startswith("MCP_LAZY_"):
        word = "MCP_LAZY_A"
    home.refused("reapply", "claude", "s", "--env", word, status=2)


REFUSED_VALUES = (
    "IDLE_STOP=10 minutes", "START_TIMEOUT=0", "DRAIN=-1s", "VERBOSE=perhaps", "VERBOSE=", "MAX_LINE=1e3",
    "IDLE_TIMEOUT_MIN=soon", "STDERR=nowhere", "LOG_FORMAT=xml", "NAME=a/b", "WAKE_COMMAND=true", "CACHE_SCOPE=moon")


@pytest.mark.parametrize("action", ["wrap", "reapply", "watch"])
def test_d1_3_values_that_the_relay_would_refuse(home, action):
    """At once and in the relay's own words: nobody sees what a registration's relay says."""
    home.put("claude", document("claude"))
    for word in REFUSED_VALUES:
        said = home.refused(action, "claude", "s", "--env", "MCP_LAZY_A=1", "--env=MCP_LAZY_" + word, status=2)
        name, _, value = ("MCP_LAZY_" + word).partition("=")
        relay = home.run("--", "true", env=home.env(**{name: value}))
        assert relay.status == 2 and said == relay.err.replace("mcp-lazy: ", "mcp-lazy: config: --env: ", 1), word
    home.config("wrap", "claude", "s", "--env=MCP_LAZY_IDLE_STOP=10 minutes", "--env=MCP_LAZY_IDLE_STOP=10m")


def test_d1_3_a_name_that_the_relay_does_not_know(home):
    """It may be one of another version's relay: it is set, and said. Those that it knows are no news."""
    home.put("claude", document("claude"))
    words = ["--env=MCP_LAZY_IDLESTOP=1m", "--env=MCP_LAZY_IDLE_STOP=1m", "--env=MCP_LAZY_ARGV0=off"]
    done = home.run(*home.words("wrap", "claude", "s", words))
    assert done.status == 0 and done.err.count("has no variable") == 1 and "variable MCP_LAZY_IDLESTOP;" in done.err
    assert entry(home, "claude")["env"]["MCP_LAZY_IDLESTOP"] == "1m"


@pytest.mark.parametrize("action", ["status", "unwrap"])
def test_d1_3_status_and_unwrap_take_no_env(home, action):
    home.put("claude", document("claude"))
    home.config("wrap", "claude", "s", "--env", "MCP_LAZY_A=1")
    home.refused(action, "claude", "s", "--env", "MCP_LAZY_A=2", status=2)
    home.refused(action, "claude", "s", "--unset-env", "MCP_LAZY_A", status=2)
    raw = document("claude").encode()
    home.config("unwrap", "claude")
    assert home.file("claude").read_bytes() == raw


@BOTH
@pytest.mark.parametrize("action", ["wrap", "reapply"])
def test_d1_3_unset_env_gives_a_variable_back(home, client, action):
    raw = document(client, env={"MCP_LAZY_A": "mine", "K": "v"})
    path = home.put(client, raw)
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1", "--env", "MCP_LAZY_B=2", "--env", "MCP_LAZY_C=3")
    report = home.config(action, client, "s", "--unset-env", "MCP_LAZY_A", "--unset-env=MCP_LAZY_B")
    assert entry(home, client)["env"] == {"MCP_LAZY_A": "mine", "K": "v", "MCP_LAZY_C": "3"}
    assert report["changedFields"] == ["env.MCP_LAZY_A", "env.MCP_LAZY_B"]
    found = home.metadata(client)
    assert found["managedEnv"] == {"MCP_LAZY_C": "3"} and found["baseEnv"] == {"MCP_LAZY_C": None}
    home.config("unwrap", client)
    assert settings(client, path.read_bytes()) == settings(client, raw.encode())


@BOTH
def test_d1_4_symbolic_links_survive(home, client):
    """The target is edited, and reported; a chain too."""
    target = home.path / "dots" / "target"
    target.parent.mkdir()
    target.write_text(document(client))
    (home.path / "dots" / "middle").symlink_to("target")
    link = home.file(client)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home.path / "dots" / "middle")
    report = home.config("wrap", client)
    assert report["file"] == str(target) == home.metadata(client)["config"]
    assert os.readlink(str(link)) == str(home.path / "dots" / "middle") and home.relay.encode() in target.read_bytes()
    home.config("unwrap", client, "s", "--file", target)
    assert target.read_text() == document(client) and link.is_symlink()


def test_d1_4_a_relative_file_is_made_absolute(home):
    folder = home.path / "work" / "deep"
    folder.mkdir(parents=True)
    path = home.path / "work" / ".mcp.json"
    path.write_text(document("claude"))
    report = home.config("wrap", "claude", "s", "--file", "../.mcp.json", cwd=folder)
    assert report["file"] == os.path.realpath(str(path)) and home.metadata_path("claude", "s", path).exists()
    home.config("unwrap", "claude", "s", "--file", path)


def test_d1_4_a_file_that_is_out_of_reach(home):
    """Only "does not exist" is that it is absent; each is status 1, with the path."""
    plain = home.path / "plain"
    plain.write_text(document("claude"))
    loop = home.path / "loop"
    loop.symlink_to(loop)
    for path in (home.path / "no" / "such.json", plain / "x.json", loop, home.path / ("n" * 300)):
        assert path.name in home.refused("wrap", "claude", "s", "--file", path)
    assert plain.read_text() == document("claude")


# As installed: an executable file that is found by its own path, or on PATH.

def installed(home, name):
    path = home.path / "opt" / name
    path.parent.mkdir(exist_ok=True)
    shutil.copy(str(MODULE), str(path))
    path.chmod(0o755)
    (home.path / "python").mkdir(exist_ok=True)
    if not (home.path / "python" / "python3").exists():
        (home.path / "python" / "python3").symlink_to(sys.executable)
    return path


def process(home, *argv, **more):
    path = "%s:%s:%s" % (home.path / "opt", home.path / "python", os.environ["PATH"])
    done = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          env=home.env(PATH=path), timeout=30, **more)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_d1_5_the_relay_is_this_executable(home):
    """However it was called: by path, relative, found on PATH."""
    tool = installed(home, "mcp-lazy")
    which = ["--client", "claude", "--server", "s"]
    for word, cwd in ((tool, home.home), ("./mcp-lazy", tool.parent), ("mcp-lazy", home.home)):
        home.put("claude", document("claude"))
        done = process(home, word, "config", "wrap", *which, cwd=str(cwd))
        assert done.status == 0, done
        assert entry(home, "claude")["command"] == str(tool)
        assert process(home, word, "config", "unwrap", *which, cwd=str(cwd)).status == 0
        assert home.file("claude").read_text() == document("claude")


def test_d1_5_a_script_is_no_relay(home):
    """Part E: what is registered has a basename that starts with mcp-lazy, so `python3 mcp_lazy.py` needs --relay."""
    home.put("claude", document("claude"))
    tool = installed(home, "mcp_lazy.py")
    before = home.tree()
    words = ["config", "wrap", "--client", "claude", "--server", "s"]
    for start in ([sys.executable, tool], [tool], [sys.executable, "-I", "-S", "-c", launcher(), tool]):
        done = process(home, *start, *words)
        assert done.status == 2, done
        assert "--relay" in home.nothing_done(done, before)
    assert process(home, sys.executable, tool, *words, "--relay", home.relay).status == 0
    assert entry(home, "claude")["command"] == home.relay


def test_d1_5_a_link_to_a_script_registers_a_name_that_is_recognized(home):
    """Or nothing: never a path that nobody knows for a relay later."""
    home.put("claude", document("claude"))
    tool = installed(home, "mcp_lazy.py")
    (tool.parent / "mcp-lazy").symlink_to(tool)
    done = process(home, "mcp-lazy", "config", "wrap", "--client", "claude", "--server", "s")
    if done.status == 0:
        assert entry(home, "claude")["command"] == str(tool.parent / "mcp-lazy")
    else:
        assert done.status == 2 and entry(home, "claude")["command"] == "npx", done


def test_d1_5_the_relay_is_registered_by_its_absolute_path(home):
    home.put("claude", document("claude"))
    home.config("wrap", "claude", "s", "--relay", "bin/mcp-lazy", cwd=home.path)
    assert entry(home, "claude")["command"] == home.relay


def test_d1_6_where_the_state_is_kept(home):
    home.put("claude", document("claude"))
    home.config("wrap", "claude")
    assert home.metadata_path().exists()
    home.config("unwrap", "claude")
    home.config("wrap", "claude", env=home.env(XDG_CONFIG_HOME=str(home.path / "xdg")))
    (found,) = (home.path / "xdg" / "mcp-lazy" / "registrations").glob("*.json")
    assert found.name == home.key("claude", "s") + ".json"
    home.config("unwrap", "claude", env=home.env(XDG_CONFIG_HOME=str(home.path / "xdg")))
    home.config("wrap", "claude", "s", "--state-dir", "here/state", cwd=home.path)
    assert (home.path / "here" / "state" / found.name).exists() and not home.metadata_path().exists()
    assert home.config("status", "claude", "s", "--state-dir", home.path / "here" / "state")["managed"] is True
    home.config("unwrap", "claude", "s", "--state-dir", "state", cwd=home.path / "here")
    assert home.file("claude").read_text() == document("claude")


# ------------------------------------------------------------------------------------------- D2: state directory

def mode(path):
    return stat.S_IMODE(os.stat(str(path)).st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_d2_the_state_is_private(home, umask):
    """D2.1, D2.2, D2.3: files 0600, folders 0700, whatever the umask."""
    home.put("claude", document("claude"))
    home.config("wrap", "claude", before=lambda: os.umask(umask))
    (lock,) = (home.state / "locks").iterdir()
    (backup,) = home.backups()
    for path in (home.metadata_path(), lock, backup):
        assert mode(path) == 0o600 and path.is_file(), path
    for path in (lock.parent, backup.parent, home.state):
        assert mode(path) == 0o700, path
    assert mode(home.file("claude")) == 0o600


@pytest.mark.parametrize("client, server",
                         [("claude", "s"), ("codex", "a.b/c d"), ("cursor", "-x"), ("grok", "caf\u00e9")])
def test_d2_1_the_metadata_file_is_named_by_client_file_and_server(home, client, server):
    text = document("codex" if client == "grok" else client, name=server)
    home.put(client, text)
    home.config("wrap", client, server)
    assert [path.name for path in home.state.glob("*.json")] == [home.key(client, server) + ".json"]


def test_d2_2_one_lock_for_each_file(home):
    """Named by the file alone, kept when done, not taken for status or a dry run."""
    path = home.put("claude", document("claude"))
    home.config("status", "claude")
    home.config("wrap", "claude", "s", "--dry-run")
    assert not (home.state / "locks").exists()
    home.config("wrap", "claude")
    home.config("unwrap", "claude")
    (lock,) = (home.state / "locks").iterdir()
    assert lock.name == hashlib.sha256(str(path).encode()).hexdigest()[:32] + ".lock"


def locked(home):
    """Holds the lock of claude's file; the open file."""
    path = home.state / "locks" / (hashlib.sha256(str(home.file("claude")).encode()).hexdigest()[:32] + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = open(str(path), "a")
    os.chmod(str(path), 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def started(home, *words):
    """A command as a process of its own."""
    return subprocess.Popen([sys.executable, "-I", "-S", str(MODULE)] + [str(word) for word in words],
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=home.env())


def test_d2_2_a_command_waits_for_the_lock(home):
    """And reads behind it only: what is written while it waits is what it edits."""
    home.put("claude", document("claude"))
    seen, real = home.path / "seen", fcntl.flock

    def flock(*args):
        seen.write_text("")
        return real(*args)

    def before():
        lock.close()  # or the child would hold it, too
        fcntl.flock = flock
    with locked(home) as lock:
        assert home.config("status", "claude")["wrapped"] is False
        home.config("wrap", "claude", "s", "--dry-run")
        words = home.words("wrap", "claude", "s", ())
        waiting = begin([str(MODULE)] + words, home.env(), home.home, before)
        until(seen.exists, what="the command to come to the lock")
        assert select.select(waiting[1], [], [], 0.1)[0] == [], "it says nothing and goes on waiting"
        home.put("claude", document("claude", command="newer"))
    assert finish(waiting).status == 0
    assert wrapped_args(home, "claude") == ["newer", "-y", "x"]


@pytest.mark.skipif(not FULL, reason="takes 30 s; MCP_LAZY_FULL=1 runs it")
@pytest.mark.timeout(120)
def test_d2_2_after_30_seconds_the_lock_is_named(home):
    home.put("claude", document("claude"))
    with locked(home) as lock:
        began = time.monotonic()
        assert lock.name in home.refused("wrap", "claude", before=lock.close, timeout=60.0)
        assert 29.5 < time.monotonic() - began < 40


@BOTH
def test_d2_3_backups(home, client):
    """The whole file before each change, under a name with the time in UTC."""
    raw = document(client).encode()
    path = home.put(client, raw)
    home.config("wrap", client)
    wrapped = path.read_bytes()
    home.config("wrap", client)
    assert len(home.backups(client)) == 1, "no change, no backup"
    home.config("unwrap", client)
    first, second = home.backups(client)
    assert (first.read_bytes(), second.read_bytes()) == (raw, wrapped)
    today = time.strftime("%Y%m%d", time.gmtime(first.stat().st_mtime))
    for one in (first, second):
        assert re.fullmatch(re.escape(home.key(client, "s")) + "-" + today + r"T\d{6}\.\d{9}\.bak", one.name)


@pytest.mark.parametrize("env", [None, {}, {"K": "v"}, {"MCP_LAZY_A": "mine"}])
@pytest.mark.parametrize("args", [None, [], ["-y"]])
@BOTH
def test_d2_4_members_of_the_metadata(home, client, args, env):
    path = home.put(client, document(client, args=args, env=env))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1", "--env", "MCP_LAZY_B=")
    raw = home.metadata_path(client).read_bytes()
    found = json.loads(raw)
    spans, backup = found.pop("spans"), found.pop("backup", None)
    assert backup is None or (home.state / "backups" / backup).exists(), "ours: the one that is never pruned (D2.6)"
    assert found == {"schema": 1, "client": client, "config": str(path), "server": "s", "relay": home.relay,
                     "command": "npx",
                     "args": args or [], "hadArgs": args is not None, "hadEnv": env is not None,
                     "managedEnv": {"MCP_LAZY_A": "1", "MCP_LAZY_B": ""},
                     "baseEnv": {"MCP_LAZY_A": (env or {}).get("MCP_LAZY_A"), "MCP_LAZY_B": None}}
    assert raw.startswith(b'{\n  "') and raw.endswith(b"\n}"), "two spaces, no final newline"
    for one in spans:
        assert set(one) == {"at", "field", "new", "old"} and one["new"] in path.read_text(), one
        assert (one["at"] is None) == (one["old"] is not None)
    assert {"command", "args"} <= {one["field"] for one in spans}


DAMAGE = {
    "not JSON": lambda found: b"{", "empty": lambda found: b"", "an array": lambda found: b"[]",
    "NUL bytes": lambda found: b"\0" * 50,
    "schema 2": lambda found: dict(found, schema=2), "schema as text": lambda found: dict(found, schema="1"),
    "no schema": lambda found: without(found, "schema"), "another client": lambda found: dict(found, client="cursor"),
    "another file": lambda found: dict(found, config="/other"), "another server": lambda found: dict(found, server="t"),
    "command empty": lambda found: dict(found, command=""), "no command": lambda found: without(found, "command"),
    "managedEnv null": lambda found: dict(found, managedEnv=None),
    "no managedEnv": lambda found: without(found, "managedEnv"),
    "baseEnv null": lambda found: dict(found, baseEnv=None), "no baseEnv": lambda found: without(found, "baseEnv")}


def without(found, name):
    return {key: value for key, value in found.items() if key != name}


@pytest.mark.parametrize("damage", DAMAGE)
def test_d2_5_invalid_metadata(home, damage):
    home.put("claude", document("claude"))
    home.config("wrap", "claude")
    found = DAMAGE[damage](home.metadata())
    home.metadata_path().write_bytes(found if isinstance(found, bytes) else json.dumps(found).encode())
    commands = [("wrap", []), ("unwrap", ["--recover"]), ("reapply", []), ("unwrap", []), ("status", []),
                ("wrap", ["--dry-run"])]
    for action, more in commands[:6 if FULL or damage == "not JSON" else 2]:
        assert str(home.metadata_path()) in home.refused(action, "claude", "s", *more)


def old_backups(home, count, year, server="s", content=b"old"):
    """Backups of a year long past, one a day of a month; oldest first."""
    made = []
    for number in range(count):
        path = home.state / "backups" / ("%s-%d%02d%02dT000000.%09d.bak"
                                         % (home.key("claude", server), year, number // 28 + 1,
                                                                             number % 28 + 1, number))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(content)
        path.chmod(0o600)
        then = time.mktime((year, number // 28 + 1, number % 28 + 1, 0, 0, 0, 0, 0, 0))
        os.utime(str(path), (then, then))
        made.append(path)
    return made


def kept(paths):
    return [path for path in paths if path.exists()]


def test_d2_6_old_backups_are_pruned(home):
    """The newest 20 of a registration stay; those of others are not looked at."""
    home.put("claude", document("claude"))
    old, others = old_backups(home, 40, 2020), old_backups(home, 40, 2020, "another")
    home.config("wrap", "claude")
    assert kept(old) in (old[20:], old[21:]) and kept(others) == others
    assert len(home.backups()) in (20, 21)


def test_d2_6_younger_than_30_days_stays(home):
    home.put("claude", document("claude"))
    old, now = old_backups(home, 30, 2020), time.time()
    young = []
    for number, path in enumerate(old):
        then = now - 29 * 86400 + number
        name = time.strftime("%Y%m%dT%H%M%S", time.gmtime(then)) + ".%09d.bak" % number
        young.append(path.with_name(home.key("claude", "s") + "-" + name))
        os.rename(str(path), str(young[-1]))
        os.utime(str(young[-1]), (then, then))
    home.config("wrap", "claude")
    assert kept(young) == young and len(young) == 30


def test_d2_6_the_backup_before_a_wrap_stays_while_it_is_wrapped(home):
    home.put("claude", document("claude"))
    home.config("wrap", "claude", before=lambda: setattr(mcp_lazy, "wall_s", lambda: 1546300800.0))
    (first,) = home.backups()
    assert "-20190101T000000." in first.name
    os.utime(str(first), (1546300800, 1546300800))
    later = old_backups(home, 40, 2020, content=home.file("claude").read_bytes())
    home.config("wrap", "claude", "s", "--env", "MCP_LAZY_A=1")
    assert first.exists(), "the only copy of the registration as it was"
    assert len(kept(later)) in (19, 20, 21)


def test_d2_6_keep_backups(home):
    home.put("claude", document("claude"))
    old = old_backups(home, 12, 2020)
    home.config("wrap", "claude", "s", "--keep-backups", "5")
    assert kept(old) in (old[-5:], old[-4:])


# ------------------------------------------------------------------------------------- D3: reading the registration

HELD = [  # client, its file before, and after (@R@ is the relay's path, as JSON)
    ("claude", '{"mcpServers":{"s":{"command":"npx","args":["-y"]}}}',
     '{"mcpServers":{"s":{"command":@R@,"args":["npx","-y"]}}}'),
    ("cursor", '{"mcpServers":{"s":{"command":"npx","args":["-y"]}}}',
     '{"mcpServers":{"s":{"command":@R@,"args":["npx","-y"]}}}'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nargs = ["-y"]\n',
     '[mcp_servers.s]\ncommand = @R@\nargs = ["npx", "-y"]\n'),
    ("grok", '[mcp_servers.s]\ncommand = "npx"\nargs = ["-y"]\n',
     '[mcp_servers.s]\ncommand = @R@\nargs = ["npx", "-y"]\n')]
EXTENDED = [
    (client, '{"mcpServers":{"s":{"command":"npx","args":["-y"]}}}',
     '{"mcpServers":{"s":{"command":@R@,"args":["npx","-y"]}}}')
    for client in ("claude-desktop", "gemini", "qwen", "copilot", "cline", "windsurf")] + [
    ("vscode", '{"servers":{"s":{"type":"stdio","command":"npx","args":["-y"]}}}',
     '{"servers":{"s":{"type":"stdio","command":@R@,"args":["npx","-y"]}}}'),
    ("cline", '{"mcpServers":{"s":{"transport":{"type":"stdio","command":"npx","args":["-y"]}}}}',
     '{"mcpServers":{"s":{"transport":{"type":"stdio","command":@R@,"args":["npx","-y"]}}}}'),
    ("zed", '{"context_servers":{"s":{"command":"npx","args":["-y"],"env":{}}}}',
     '{"context_servers":{"s":{"command":@R@,"args":["npx","-y"],"env":{}}}}'),
    ("zed", '{"context_servers":{"s":{"command":{"path":"npx","args":["-y"],"env":{}}}}}',
     '{"context_servers":{"s":{"command":{"path":@R@,"args":["npx","-y"],"env":{}}}}}'),
    ("opencode", '{"mcp":{"s":{"type":"local","command":["npx", 4],"environment":{}}}}',
     '{"mcp":{"s":{"type":"local","command":[@R@,"npx", 4],"environment":{}}}}')]


def toml_spaces(text):
    """Blanks around brackets and commas are the editor's own business in what it writes."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|[ \t]+', lambda found: found.group(1) or "", text)


@pytest.mark.parametrize("client, before, after", HELD + EXTENDED)
def test_d3_1_where_each_client_keeps_its_servers(home, client, before, after):
    """D3.6: the extensions too, each in its default file and in its own shape."""
    home.put(client, before)
    wrapped = home.there_and_back(client).decode()
    expected = after.replace("@R@", json_text(home.relay))
    assert wrapped == expected or FILES[client].endswith(".toml") and toml_spaces(wrapped) == toml_spaces(expected)


@pytest.mark.parametrize("client, before, after", HELD + EXTENDED)
def test_d3_1_variables_where_each_client_keeps_them(home, client, before, after):
    """`env` is there for some and not for others; opencode calls it `environment`."""
    home.put(client, before)
    report = home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    fields = ["command"] if client == "opencode" else ["args", "command"]
    assert report["changedFields"] == fields + ["env.MCP_LAZY_A"]
    found = str(settings(client, home.file(client).read_bytes()))
    name = "environment" if client == "opencode" else "env"
    assert "'%s': {'MCP_LAZY_A': '1'}" % name in found
    home.config("unwrap", client)
    assert home.file(client).read_text() == before


@pytest.mark.parametrize("client, text", [
    ("claude", '{"servers":{"s":{"command":"x"}},"s":{"command":"x"}}'),
    ("cursor", '{"mcp_servers":{"s":{"command":"x"}}}'),
    ("vscode", '{"mcpServers":{"s":{"command":"x"}}}'), ("zed", '{"mcpServers":{"s":{"command":"x"}}}'),
    ("opencode", '{"mcpServers":{"s":{"type":"local","command":["x"]}}}'), ("codex", '[mcpServers.s]\ncommand = "x"\n'),
    ("codex", '[mcp_servers.t]\ncommand = "x"\n[mcp_servers.t.s]\ncommand = "x"\n'),
    ("claude", '{"mcpServers":{"t":{"s":{"command":"x"},"command":"y"}}}'), ("claude", "{}"), ("codex", ""),
    ("claude", '{"projects":{"/p":{"mcpServers":{"s":{"command":"x"}}}}}')])
def test_d3_1_elsewhere_is_not_found(home, client, text):
    """And the message tells which member was looked for."""
    home.put(client, text)
    for action in ("wrap", "reapply", "unwrap", "status"):
        err = home.refused(action, client, "s")
        assert "mcpServers" in err or "servers" in err or '"s"' in err or " s " in err or "mcp" in err


BAD_JSON = ['{"url":"https://x"}', '{"url":"https://x","command":"npx"}', '{"url":"","command":"npx"}', "{}",
            '{"args":["x"]}',
            '{"command":""}', '{"command":5}', '{"command":null}', '{"command":["npx"]}', '{"command":{}}',
            '{"command":true}',
            '{"command":"npx","args":"x"}', '{"command":"npx","args":[1]}', '{"command":"npx","args":["a",null]}',
            '{"command":"npx","args":{}}', '{"command":"npx","args":null}', '{"command":"npx","args":[["a"]]}',
            '{"command":"npx","env":"x"}', '{"command":"npx","env":[]}', '{"command":"npx","env":{"A":1}}',
            '{"command":"npx","env":{"A":null}}', '{"command":"npx","env":false}', '"npx"', "null", "[]", "5"]
BAD_TOML = ['url = "https://x"', 'url = "https://x"\ncommand = "npx"', "", 'args = ["x"]', 'command = ""',
            "command = 5",
            'command = ["npx"]', "command = {}", "command = true", "command = 2026-01-02",
            'command = "npx"\nargs = "x"',
            'command = "npx"\nargs = [1]', 'command = "npx"\nargs = ["a", 1.5]', 'command = "npx"\nargs = {}',
            'command = "npx"\nenv = "x"', 'command = "npx"\nenv = []', 'command = "npx"\nenv = { A = 1 }',
            'command = "npx"\n[mcp_servers.s.env]\nA = true', 'command = "npx"\n[[mcp_servers.s.env]]\nA = "x"',
            'command = "npx"\nenv.A.B = "x"']


@pytest.mark.parametrize("text", BAD_JSON + BAD_TOML)
def test_d3_2_registrations_that_are_refused(home, text):
    client = "claude" if text in BAD_JSON else "codex"
    home.put(client, ('{"a":1,"mcpServers":{"s":%s}}' if client == "claude" else "a = 1\n[mcp_servers.s]\n%s\n") % text)
    for action in ("wrap", "status") if FULL else ("wrap",):
        home.refused(action, client, "s")


@pytest.mark.parametrize("client, text", [
    ("claude", '{"mcpServers":{"s":{"command":"npx"}}} x'), ("claude", '{"mcpServers":{"s":{"command":"npx"}}}{}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx"}}'), ("claude", ""), ("claude", " \n"), ("claude", "\ufeff"),
    ("claude", "\0" * 20),
    ("claude", "{'mcpServers':{}}"), ("claude", '{"mcpServers":{"s":{"command":"npx","x":NaN}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx",,}}}'), ("claude", '{"mcpServers":{"s":{"command":"npx"}}/*'),
    ("claude", '\ufeff\ufeff{"mcpServers":{"s":{"command":"npx"}}}'),
    ("claude", '{"mcpServers":{"s":{"command":"n\tpx"}}}'),
    ("claude", '[{"mcpServers":{"s":{"command":"npx"}}}]'), ("claude", '{"mcpServers":[{"s":{"command":"npx"}}]}'),
    ("claude", '{"mcpServers":{"s":{"command":"npx"}}}'.encode("utf-16")),
    ("claude", b'{"a":"\xe9","mcpServers":{"s":{"command":"npx"}}}'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\nx = \n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\ncommand = "x"\n'),
    ("codex", '[mcp_servers.s]\ncommand = "npx"\n[mcp_servers.s]\nargs = []\n'), ("codex", 'mcp_servers = 5\n'),
    ("codex", '[mcp_servers]\ns = "npx"\n'), ("codex", '[mcp_servers.s]\r\ncommand = "npx"\rargs = []\n')])
def test_d3_2_files_that_are_refused(home, client, text):
    """Each with the file; what does not parse with the line."""
    home.put(client, text)
    for action in ("wrap", "status"):
        assert str(home.file(client)) in home.refused(action, client, "s")


def test_d3_2_the_place_of_an_error_is_told(home):
    """Case 096: line and column in characters, one hint."""
    home.put("claude", '{\n  "mcpServers": {\n    "\u00e9\u00e9": {"command": "npx" "args": []}\n  }\n}\n')
    assert re.search(r":3:2[89]: |line 3,? column 2[89]\b", home.refused("wrap", "claude", "\u00e9\u00e9"))
    home.put("codex", '[mcp_servers."\u00e9"]\n"\u00e9\u00e9" = = 1\n')
    assert re.search(r":2:[5-8]: |line 2,? column [5-8]\b", home.refused("wrap", "codex", "\u00e9"))


def test_d3_2_only_regular_files(home):
    """A folder, a FIFO (nobody writes: it must not wait), a device."""
    fifo = home.path / "fifo"
    os.mkfifo(str(fifo))
    for path in (home.path, fifo, "/dev/null", "/dev/zero"):
        assert str(path) in home.refused("wrap", "claude", "s", "--file", path)


@pytest.mark.parametrize("text", [
    '{"mcpServers":{"s":{"command":"npx","url":null,"args":[],"env":null}}}',
    '\ufeff{"mcpServers":{"s":{"command":"npx"}}}',
    '// c\n{"mcpServers":{"s":{"command":"npx"/* d */,},},} // e', '{"mcpServers":{"s":{"command":"npx"}},}\r\n\r\n'])
def test_d3_2_null_comments_commas_and_a_byte_order_mark(home, text):
    """For every client with a JSON file; also for those that will not load it so themselves (D6.1 warns of that)."""
    for client in [client for client in FILES if client not in ("codex", "grok", "vscode", "zed", "opencode")]:
        home.put(client, text)
        wrapped = home.there_and_back(client)
        found, old = (json.loads(strict_json(raw))["mcpServers"]["s"] for raw in (wrapped, text.encode()))
        assert found == dict(old, command=home.relay, args=["npx"])
        assert wrapped.startswith(text.encode()[:15]) and wrapped.count(b"\xef\xbb\xbf") == text.count("\ufeff")
        for part in re.findall("//[^\n]*|/[*].*?[*]/", text):
            assert part.encode() in wrapped


@BOTH
def test_d3_3_wrapped_is_what_the_record_says(home, client):
    """Metadata and a command that is its relay, exactly; another spelling of the path is another relay."""
    home.put(client, document(client))
    home.config("wrap", client)
    raw = home.file(client).read_bytes()
    other = home.relay.replace("/bin/", "/bin/../bin/")
    home.put(client, raw.replace(home.relay.encode(), other.encode()))
    found = home.config("status", client)
    assert (found["wrapped"], found["managed"], found["recoverable"]) == (True, True, False), "by its name (D3.4)"
    home.refused("reapply", client)  # D3.5
    home.put(client, raw)
    assert home.config("reapply", client)["changedFields"] == []


@pytest.mark.parametrize("command", ["-y", "--", "-", "--verbose"])
@BOTH
def test_d3_2_a_command_that_a_relay_would_take_for_an_option(home, client, command):
    """Wrapped it could neither run nor be unwrapped."""
    home.put(client, document(client, command))
    home.refused("wrap", client)


RELAYS = ["mcp-lazy", "/usr/bin/mcp-lazy", "C:/bin/MCP-LAZY.exe", "/opt/Mcp-Lazy-0.3.0-7cdb9cc", "mcp-lazyx",
          "./mcp-lazy"]


@pytest.mark.parametrize("command", RELAYS)
@BOTH
def test_d3_4_d3_5_no_relay_in_front_of_a_relay(home, client, command):
    """D3.5: wrap, reapply and plain unwrap refuse a recognizable relay (D3.4) without a record; so nothing nests."""
    home.put(client, document(client, command, ["npx", "x"]))
    for action in ("wrap", "reapply", "unwrap"):
        home.refused(action, client)
    found = home.config("status", client)
    assert (found["wrapped"], found["managed"], found["recoverable"], found["relay"]) == (True, False, True, command)


@pytest.mark.parametrize("command", ["lazy-mcp-x/run", "/opt/mcp-lazy/server", "xmcp-lazy", "mcp_lazy.py", "mcplazy"])
def test_d3_4_other_names_are_servers(home, command):
    home.put("claude", document("claude", command=command))
    assert home.config("status", "claude")["wrapped"] is False
    home.config("wrap", "claude")
    assert wrapped_args(home, "claude") == [command, "-y", "x"]


def test_d3_4_the_given_relay_is_one_by_its_path(home):
    """Whatever it is called."""
    other = home.executable("bin/renamed")
    home.put("claude", document("claude", command=other))
    home.refused("wrap", "claude", "s", "--relay", other)
    assert home.config("status", "claude", "s", "--relay", other)["wrapped"] is True
    assert home.config("status", "claude")["wrapped"] is False


@pytest.mark.parametrize("command, args", [
    ("python3", ["/opt/mcp-lazy", "npx"]), ("/usr/bin/python3.11", ["-I", "-S", "/x/mcp_lazy.py", "npx"]),
    ("python", ["mcp_lazy.py", "npx"])])
def test_d3_5_a_relay_behind_an_interpreter_is_one_too(home, command, args):
    """I32."""
    home.put("claude", document("claude", command=command, args=args))
    home.refused("wrap", "claude")


@pytest.mark.parametrize(
    "command, args", [("python3", ["/opt/server.py", "mcp-lazy"]), ("node", ["/opt/mcp-lazy"]), ("python3", []),
                                           ("lazy-mcp", ["--config", "x"]),
                                           ("/usr/bin/dsh-lazy-mcp", ["--name", "x", "npx"])])
def test_d3_5_others_are_servers(home, command, args):
    """Also the older programs of other people, whose names are like ours."""
    home.put("claude", document("claude", command=command, args=args))
    home.config("wrap", "claude")
    assert wrapped_args(home, "claude") == [command] + args


@BOTH
def test_d3_5_wrapped_with_nothing_to_run(home, client):
    raw = document(client)
    home.put(client, raw)
    home.config("wrap", client)
    home.put(client, document(client, command=home.relay, args=[]))
    for action in ("wrap", "reapply", "unwrap"):
        home.refused(action, client)


def test_d3_6_a_project_of_claude(home):
    """Its servers are others than the user's of the same name; the key is compared as text."""
    raw = json.dumps({"mcpServers": {"s": {"command": "user", "args": []}}, "projects": {
        "/p/app": {"mcpServers": {"s": {"command": "local", "args": ["."]}}, "history": []},
        "/p/app/": {"mcpServers": {}},
        "D:\\p": {"mcpServers": {"s": {"command": "back"}}}, "/q": {"x": 1}}}, indent=2)
    path = home.put("claude", raw)
    for folder, command in (("/p/app", "local"), ("D:\\p", "back")):
        home.config("wrap", "claude", "s", "--project", folder)
        found = json.loads(path.read_bytes())
        assert found["projects"][folder]["mcpServers"]["s"]["args"][0] == command
        assert home.config("status", "claude", "s", "--project", folder)["managed"] is True
    assert json.loads(path.read_bytes())["mcpServers"]["s"] == {"command": "user", "args": []}
    assert home.config("status", "claude")["managed"] is False
    home.config("wrap", "claude")
    for folder in ("/p/app/", "/q", "/nowhere", "D:/p", "/p"):
        home.refused("wrap", "claude", "s", "--project", folder)
    home.config("unwrap", "claude", "s", "--project", "D:\\p")
    home.config("unwrap", "claude")
    home.config("unwrap", "claude", "s", "--project=/p/app")
    assert path.read_text() == raw


def test_d3_6_a_project_file_of_claude(home):
    path = home.home / "work" / ".mcp.json"
    path.parent.mkdir()
    path.write_text(document("claude"))
    assert home.config("wrap", "claude", "s", "--file", path)["file"] == str(path)
    home.config("unwrap", "claude", "s", "--file", path)
    assert path.read_text() == document("claude")


@pytest.mark.parametrize("variable, client, name", [
    ("CODEX_HOME", "codex", "config.toml"), ("XDG_CONFIG_HOME", "opencode", "opencode/opencode.jsonc"),
    ("XDG_CONFIG_HOME", "opencode", "opencode/opencode.json"), ("XDG_CONFIG_HOME", "zed", "zed/settings.json")])
def test_d3_6_default_files_follow_the_clients_own_variables(home, variable, client, name):
    path = home.path / "elsewhere" / name
    path.parent.mkdir(parents=True)
    before = [one for one in HELD + EXTENDED if one[0] == client][0][1]
    path.write_text(before)
    report = home.config("wrap", client, env=home.env(**{variable: str(home.path / "elsewhere")}))
    assert report["file"] == str(path) and home.relay in path.read_text()


def test_d3_6_opencodes_plain_json_file(home):
    before = EXTENDED[-1][1]
    path = home.file("opencode").with_suffix(".json")
    path.parent.mkdir(parents=True)
    path.write_text(before)
    assert home.config("wrap", "opencode")["file"] == str(path)
    home.config("unwrap", "opencode")
    assert path.read_text() == before


@pytest.mark.parametrize(
    "text", ['{"mcp":{"s":{"type":"remote","url":"https://x"}}}', '{"mcp":{"s":{"type":"local","command":[]}}}',
                                  '{"mcp":{"s":{"type":"local","command":["npx",null]}}}',
                                  '{"mcp":{"s":{"type":"local","command":"npx"}}}',
                                  '{"mcp":{"s":{"type":"local","command":["npx",["x"]]}}}',
                                  '{"mcp":{"s":{"type":"local"}}}',
                                  '{"mcp":{"s":{"type":"local","command":[4]}}}',
                                  '{"mcp":{"s":{"type":"local","command":[""]}}}'])
def test_d3_6_opencode_commands_that_are_refused(home, text):
    home.put("opencode", text)
    home.refused("wrap", "opencode")


@pytest.mark.parametrize("client, word", [("goose", "cmd"), ("continue", "command")])
def test_d3_6_yaml_clients_are_told_what_to_paste(home, client, word):
    before = home.tree()
    done = home.run(*home.words("wrap", client, "s", ["--file", home.path / "config.yaml"]))
    assert (done.status, done.out) == (1, "") and done.err.startswith("mcp-lazy: ")
    assert "config.yaml" in done.err and re.search(r"\b%s: .*mcp-lazy" % word, done.err) and "args:" in done.err
    assert home.tree() == before


def test_d3_6_all_servers_of_a_file(home):
    """--all: a report for each one that has a command; those with a url are passed over, which is said."""
    servers = {"b": {"command": "b-mcp"}, "web": {"url": "https://x"}, "a": {"command": "a-mcp", "args": ["x"]}}
    raw = json.dumps({"mcpServers": servers}, indent=1)
    path = home.put("claude", raw)
    done = home.run(*home.words("wrap", "claude", None, ()))
    reports = [one_report(line) for line in done.out.splitlines()]
    assert done.status == 0 and sorted(one["server"] for one in reports) == ["a", "b"]
    assert "web" in done.err and len(re.findall("restart or reconnect", done.err)) == 1
    found = json.loads(path.read_bytes())["mcpServers"]
    assert (found["a"]["args"], found["b"]["args"], found["web"]) == (["a-mcp", "x"], ["b-mcp"], servers["web"])
    assert [one["wrapped"] for one in home.config("status", "claude", None)] == [True, True]
    home.config("unwrap", "claude", None)
    assert path.read_text() == raw


def test_d3_6_all_tells_which_ones_failed(home):
    """The others are wrapped nevertheless; exit 1."""
    path = home.put("claude", '{"mcpServers":{"a":{"command":"a","args":5},"b":{"command":"b"},'
                              '"c":{"command":"mcp-lazy","args":["x"]}}}')
    done = home.run(*home.words("wrap", "claude", None, ()))
    assert done.status == 1
    assert [one_report(line)["server"] for line in done.out.splitlines()] == ["b"]
    assert re.search(r"\ba\b", done.err) and re.search(r"\bc\b", done.err)
    assert json.loads(path.read_bytes())["mcpServers"]["b"]["args"] == ["b"]


def test_d3_6_list_shows_every_registration(home):
    """As a table, and as one JSON document."""
    home.put("claude", '{"mcpServers":{"one":{"command":"npx"},"web":{"url":"https://x"}},'
                       '"projects":{"/p":{"mcpServers":{"three":{"command":"y"}}}}}')
    home.put("codex", '[mcp_servers.two]\ncommand = "x"\nenv = { K = "%s" }\n' % SECRET)
    home.config("wrap", "codex", "two")
    table = home.run("config", "list")
    assert table.status == 0 and SECRET not in table.out
    lines = {name: [line for line in table.out.splitlines() if re.search(r"\b%s\b" % name, line)]
             for name in ("one", "two", "three", "web")}
    assert all(lines.values()), table.out
    assert "claude" in lines["one"][0] and "codex" in lines["two"][0]
    done = home.run("config", "list", "--json")
    found = {item["server"]: item for item in items_of(json.loads(done.out))}
    assert set(found) >= {"one", "two", "three"} and found["two"]["client"] == "codex"
    assert found["two"]["wrapped"] is True and found["one"]["wrapped"] is False and SECRET not in done.out
    only = home.run("config", "list", "--json", "--client", "codex")
    assert {item["server"] for item in items_of(json.loads(only.out))} == {"two"}


def items_of(found):
    """All objects with a server, wherever they are in the document."""
    if isinstance(found, dict):
        below = [item for value in found.values() for item in items_of(value)]
        return [found] + below if isinstance(found.get("server"), str) else below
    return [item for value in found for item in items_of(value)] if isinstance(found, list) else []


# --------------------------------------------------------------------------------------------- D4: wrap and reapply

@BOTH
def test_d4_1_reapply_needs_a_record(home, client):
    home.put(client, document(client))
    home.refused("reapply", client)
    home.config("wrap", client)
    assert home.config("reapply", client)["changedFields"] == []
    home.put(client, document(client, command="newer"))
    assert home.config("reapply", client)["action"] == "reapply"
    assert wrapped_args(home, client) == ["newer", "-y", "x"]
    home.put(client, document(client, command="newest"))
    assert home.config("wrap", client)["changedFields"] == ["args", "command"]
    assert wrapped_args(home, client) == ["newest", "-y", "x"]


@pytest.mark.parametrize("env", [None, {}, {"K": "v", "MCP_LAZY_A": "mine"}])
@pytest.mark.parametrize("args", [None, [], ["-y", "--", "--x=1", ""]])
@BOTH
def test_d4_2_a_new_registration(home, client, args, env):
    raw = document(client, args=args, env=env)
    path = home.put(client, raw)
    report = home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    found = entry(home, client)
    assert found == {"command": home.relay, "args": ["npx"] + (args or []), "env": dict(env or {}, MCP_LAZY_A="1")}
    assert report["changedFields"] == ["args", "command", "env.MCP_LAZY_A"]
    assert (home.metadata(client)["hadArgs"], home.metadata(client)["hadEnv"]) == (args is not None, env is not None)
    home.config("unwrap", client)
    assert path.read_text() == raw


@BOTH
def test_d4_3_once_more_changes_nothing(home, client):
    """Not the file, not its time; the record is written anew."""
    path = home.put(client, document(client))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    os.utime(str(path), (5, 5))
    os.utime(str(home.metadata_path(client)), (5, 5))
    before = path.stat()
    for action, more in (("wrap", []), ("reapply", []), ("wrap", ["--env", "MCP_LAZY_A=1"])):
        done = home.run(*home.words(action, client, "s", more))
        assert done.status == 0 and one_report(done.out)["changedFields"] == []
        assert "restart" not in done.err, "nothing changed, nobody has to"
    after = path.stat()
    for name in ("st_ino", "st_mtime_ns", "st_ctime_ns"):
        assert getattr(before, name) == getattr(after, name), name
    assert home.metadata_path(client).stat().st_mtime > 5 and len(home.backups(client)) == 1


@BOTH
def test_d4_3_what_the_user_edits_behind_the_relay_stays(home, client):
    path = home.put(client, document(client))
    home.config("wrap", client)
    raw = path.read_bytes().replace(b'"-y"', b'"-z"').replace(b'"npx"', b'"uvx"')
    path.write_bytes(raw)
    assert home.config("wrap", client)["changedFields"] == []
    assert path.read_bytes() == raw
    found = home.metadata(client)
    assert (found["command"], found["args"]) == ("uvx", ["-z", "x"])
    home.config("unwrap", client)
    assert entry(home, client) == {"command": "uvx", "args": ["-z", "x"]}


@BOTH
def test_d4_3_a_variable_that_is_added_later(home, client):
    """Its value of then is what unwrap gives back; those managed before stay managed."""
    raw = document(client, env={"MCP_LAZY_B": "mine"})
    path = home.put(client, raw)
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    report = home.config("reapply", client, "s", "--env", "MCP_LAZY_B=2")
    assert report["changedFields"] == ["env.MCP_LAZY_B"]
    assert entry(home, client)["env"] == {"MCP_LAZY_A": "1", "MCP_LAZY_B": "2"}
    assert home.metadata(client)["managedEnv"] == {"MCP_LAZY_A": "1", "MCP_LAZY_B": "2"}
    assert home.metadata(client)["baseEnv"] == {"MCP_LAZY_A": None, "MCP_LAZY_B": "mine"}
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=3")
    assert home.metadata(client)["baseEnv"] == {"MCP_LAZY_A": None, "MCP_LAZY_B": "mine"}
    home.config("unwrap", client)
    assert path.read_text() == raw


@pytest.mark.parametrize("base", [None, "mine"])
@pytest.mark.parametrize("now, restored", [("1", "base"), ("2", "2"), (None, None)])
@BOTH
def test_d4_4_a_setup_that_registers_anew(home, client, base, now, restored):
    """Its command is adopted; a variable that still has our value is our override that it kept, not the user's."""
    home.put(client, document(client, env={"MCP_LAZY_A": base, "K": "v"} if base else {"K": "v"}))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    home.put(client, document(client, "uvx", None, {"MCP_LAZY_A": now, "K": "w"} if now else {"K": "w"}))
    home.config("reapply", client)
    assert entry(home, client) == {"command": home.relay, "args": ["uvx"], "env": {"K": "w", "MCP_LAZY_A": "1"}}
    found, expected = home.metadata(client), base if restored == "base" else restored
    assert found["baseEnv"] == {"MCP_LAZY_A": expected}
    assert (found["command"], found["args"], found["hadArgs"]) == ("uvx", [], False)
    home.config("unwrap", client)
    env = {"K": "w", "MCP_LAZY_A": expected} if expected else {"K": "w"}
    assert entry(home, client) == {"command": "uvx", "env": env}


@pytest.mark.parametrize("first, then, had", [
    (None, {"MCP_LAZY_A": "1"}, False), ({}, {"MCP_LAZY_A": "1"}, True), (None, {}, True), ({}, None, False),
    ({"K": "v"}, None, False),
    (None, {"K": "v"}, True), (None, {"MCP_LAZY_A": "1", "K": "v"}, True), (None, {"MCP_LAZY_A": "other"}, True)])
@BOTH
def test_d4_4_whether_there_was_an_env(home, client, first, then, had):
    """Not to be told where it holds nothing but our own override: then what is known already stays."""
    home.put(client, document(client, env=first))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    home.put(client, document(client, env=then))
    home.config("reapply", client)
    assert home.metadata(client)["hadEnv"] is had
    home.config("unwrap", client)
    expected = {key: value for key, value in (then or {}).items() if (key, value) != ("MCP_LAZY_A", "1")}
    assert entry(home, client).get("env") == (expected if had else None)


@BOTH
def test_d4_5_another_relay(home, client):
    raw = document(client, args=None)
    path = home.put(client, raw)
    newer = home.executable("bin/mcp-lazy-2")
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    report = home.config("reapply", client, "s", "--relay", newer)
    assert report["changedFields"] == ["command"]
    assert entry(home, client) == {"command": newer, "args": ["npx"], "env": {"MCP_LAZY_A": "1"}}
    found = home.metadata(client)
    assert (found["relay"], found["priorRelay"]) == (newer, home.relay)
    assert home.config("status", client, "s", "--relay", newer)["relay"] == newer
    home.config("unwrap", client)
    assert path.read_text() == raw


@BOTH
@pytest.mark.parametrize("finish", ["reapply", "wrap", "unwrap"])
def test_d4_5_an_upgrade_that_was_interrupted(home, client, finish):
    """The record has the new relay, the file the old one: still wrapped, and the next command ends it."""
    raw = document(client)
    path = home.put(client, raw)
    home.config("wrap", client)
    old = path.read_bytes()
    newer = home.executable("bin/mcp-lazy-2")
    home.config("wrap", client, "s", "--relay", newer)
    path.write_bytes(old)
    found = home.config("status", client, "s", "--relay", newer)
    assert (found["wrapped"], found["managed"], found["relay"]) == (True, True, home.relay) and "changed" not in found
    home.config(finish, client, "s", "--relay", newer)
    if finish != "unwrap":
        assert entry(home, client) == {"command": newer, "args": ["npx", "-y", "x"]}
        home.config("unwrap", client, "s", "--relay", newer)
    assert path.read_text() == raw


# ----------------------------------------------------------------------------------------------------- D5: unwrap

@BOTH
def test_d5_1_without_a_record(home, client):
    home.put(client, document(client))
    home.refused("unwrap", client)


@pytest.mark.parametrize("had, now, expected", [
    (None, ["npx"], None), (["-y"], ["npx"], []), ([], ["npx"], []), (None, ["uvx", "a"], ["a"]),
    (["-y"], ["uvx", "a", ""], ["a", ""])])
@BOTH
def test_d5_1_command_and_args_come_from_the_present_args(home, client, had, now, expected):
    home.put(client, document(client, args=had))
    home.config("wrap", client)
    home.put(client, document(client, home.relay, now))
    home.config("unwrap", client)
    assert entry(home, client) == dict({"command": now[0]}, **({} if expected is None else {"args": expected}))


@pytest.mark.parametrize("text", ["direct", "env edited"])
@BOTH
def test_d5_1_no_longer_wrapped(home, client, text):
    """Cases 100 and 205: command and args stay, our variables go, the record too; not an error."""
    home.put(client, document(client))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    env = {"MCP_LAZY_A": "1", "K": "v"} if text == "env edited" else None
    now = document(client, "other", ["z"], env)
    path = home.put(client, now)
    report = home.config("unwrap", client)
    assert report["changedFields"] == (["env.MCP_LAZY_A"] if env else [])
    assert entry(home, client) == dict({"command": "other", "args": ["z"]}, **({"env": {"K": "v"}} if env else {}))
    assert env or path.read_text() == now
    assert not home.metadata_path(client).exists()


@BOTH
def test_d5_1_the_entry_is_gone(home, client):
    """Case 100: not made again."""
    home.put(client, document(client))
    home.config("wrap", client)
    home.put(client, document(client, name="t"))
    home.refused("unwrap", client)


@BOTH
def test_d5_2_variables_that_the_user_changed_are_kept(home, client):
    home.put(client, document(client, env={"MCP_LAZY_A": "a", "MCP_LAZY_B": "b", "K": "v"}))
    home.config("wrap", client, "s", *["--env=MCP_LAZY_%s=1" % name for name in "ABCD"])
    found = dict(entry(home, client))
    found["env"].update(MCP_LAZY_B="user", MCP_LAZY_D="user", L="w")
    home.put(client, document(client, found["command"], found["args"], found["env"]))
    report = home.config("unwrap", client)
    assert entry(home, client)["env"] == {"MCP_LAZY_A": "a", "MCP_LAZY_B": "user", "K": "v", "MCP_LAZY_D": "user",
                                          "L": "w"}
    assert report["changedFields"] == ["args", "command", "env.MCP_LAZY_A", "env.MCP_LAZY_C"]


@BOTH
def test_d5_2_a_variable_that_the_user_removed_stays_away(home, client):
    home.put(client, document(client, env={"MCP_LAZY_A": "a", "K": "v"}))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    home.put(client, document(client, home.relay, ["npx"], {"K": "v"}))
    home.config("unwrap", client)
    assert entry(home, client)["env"] == {"K": "v"}


@pytest.mark.parametrize("env", [None, {}, {"K": "v"}])
@pytest.mark.parametrize("known", [True, False])
@BOTH
def test_d5_3_an_env_that_came_with_the_relay_goes_with_it(home, client, known, env):
    """Where a record of 0.3.0 does not tell, an empty one is kept."""
    home.put(client, document(client, env=env))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    home.forget_spans(client)
    if not known:
        found = without(home.metadata(client), "hadEnv")
        home.metadata_path(client).write_text(json.dumps(found, indent=2))
    home.config("unwrap", client)
    assert entry(home, client).get("env") == (env if known or env else {})


@pytest.mark.parametrize(
    "text", [
        '[mcp_servers.s]\nargs = ["npx"]\ncommand = @R@\n\n[mcp_servers.s.env] # e\nMCP_LAZY_A = "1" # f\n'
    "\n[t]\nx = 1\n",
                                  '[mcp_servers.s]\nenv.MCP_LAZY_A = "1"\nargs = ["npx"]\ncommand = @R@\n',
                                  'mcp_servers.s = { command = @R@, args = ["npx"], env = { MCP_LAZY_A = "1" } }\n'])
def test_d5_3_the_env_is_a_table_now(home, text):
    """Codex writes it so; gone is the whole of it."""
    home.put("codex", document("codex", args=None))
    home.config("wrap", "codex", "s", "--env", "MCP_LAZY_A=1")
    home.put("codex", text.replace("@R@", json_text(home.relay)))
    home.config("unwrap", "codex")
    assert entry(home, "codex") == {"command": "npx"}
    raw = home.file("codex").read_text()
    assert "# e" not in text or "# e" in raw and "# f" in raw and "[t]\nx = 1\n" in raw and "env" not in raw


@BOTH
def test_d5_3_an_env_with_something_else_in_it_stays(home, client):
    home.put(client, document(client))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    home.put(client, document(client, home.relay, ["npx"], {"MCP_LAZY_A": "1", "NEW": "x"}))
    home.config("unwrap", client)
    assert entry(home, client)["env"] == {"NEW": "x"}


@BOTH
def test_d5_4_the_record_is_removed(home, client):
    home.put(client, document(client))
    home.config("wrap", client)
    home.config("unwrap", client)
    assert not home.metadata_path(client).exists() and home.config("status", client)["managed"] is False
    home.refused("unwrap", client)


@BOTH
def test_d5_5_recover_without_a_record(home, client):
    """A stale writer put the wrapped registration back: command and args are restored, env is not ours to judge."""
    path = home.put(client, document(client, args=None))
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    stale = path.read_bytes()
    home.config("unwrap", client)
    path.write_bytes(stale)
    backups = len(home.backups(client))
    found = home.config("status", client)
    assert (found["wrapped"], found["managed"], found["recoverable"]) == (True, False, True)
    before = home.tree()
    dry = home.config("unwrap", client, "s", "--recover", "--dry-run")
    assert dry == {"action": "unwrap", "changedFields": ["args", "command"], "dryRun": True,
                   "environmentPreserved": True,
                   "file": str(path), "recovered": True, "server": "s"} and home.tree() == before
    report = home.config("unwrap", client, "s", "--recover")
    assert report == without(dry, "dryRun")
    assert entry(home, client) == {"command": "npx", "args": [], "env": {"MCP_LAZY_A": "1"}}
    assert not home.metadata_path(client).exists() and len(home.backups(client)) == backups + 1


@pytest.mark.parametrize("command, args", [
    ("npx", ["x"]), ("mcp-lazy", []), ("mcp-lazy", None), ("mcp-lazy", [""]), ("mcp-lazy", ["--verbose", "npx"]),
    ("mcp-lazy", ["-"]),
    ("mcp-lazy", ["mcp-lazy", "npx"]), ("mcp-lazy", ["/x/MCP-lazy-2", "npx"])])
@BOTH
def test_d5_5_what_can_not_be_recovered(home, client, command, args):
    home.put(client, document(client, command, args))
    home.refused("unwrap", client, "s", "--recover")
    assert home.config("status", client)["recoverable"] is False


@BOTH
def test_d5_5_with_a_record_it_is_the_ordinary_way(home, client):
    raw = document(client)
    path = home.put(client, raw)
    home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1")
    report = home.config("unwrap", client, "s", "--recover")
    assert "recovered" not in report and "environmentPreserved" not in report
    assert path.read_text() == raw


# ----------------------------------------------------------------------------------------------------- D6: status

@BOTH
def test_d6_1_status(home, client):
    path = home.put(client, document(client, env={"K": SECRET}))
    direct = {"backups": 0, "client": client, "file": str(path), "managed": False, "recoverable": False, "server": "s",
              "wrapped": False}
    assert home.config("status", client) == direct
    before = home.tree()
    home.config("status", client)
    assert home.tree() == before and not home.state.exists(), "it writes nothing"
    home.config("wrap", client)
    assert home.config("status", client) == dict(direct, backups=1, managed=True, relay=home.relay, wrapped=True)
    home.config("unwrap", client)
    assert home.config("status", client) == dict(direct, backups=2)


@BOTH
def test_d6_1_status_tells_when_an_old_copy_came_back(home, client):
    """Case 205; and reapply puts it right."""
    raw = document(client)
    path = home.put(client, raw)
    home.config("wrap", client)
    path.write_text(raw)
    done = home.run(*home.words("status", client, "s", ()))
    found = one_report(done.out)
    assert done.status == 0 and found["changed"] is True and (found["managed"], found["wrapped"]) == (True, False)
    assert "relay" not in found and "s: no longer wrapped" in done.err
    home.config("reapply", client)
    assert wrapped_args(home, client) == ["npx", "-y", "x"]
    home.config("unwrap", client)
    assert path.read_text() == raw


def test_d6_1_a_client_that_reads_no_comments_is_warned_of(home):
    """Case 081: nothing is repaired."""
    for client in ("claude", "claude-desktop", "windsurf", "copilot", "cline", "cursor"):
        path = home.put(client, '{ // c\n"mcpServers":{"s":{"command":"npx"}}}')
        done = home.run(*home.words("status", client, "s", ()))
        assert done.status == 0 and (str(path) in done.err and "line 1" in done.err) == (client != "cursor"), done
        home.put(client, document(client))
        assert home.run(*home.words("status", client, "s", ())).err == ""


# ------------------------------------------------------------------------------------------------------ D7: reports

@BOTH
def test_d7_1_reports(home, client):
    path = home.put(client, document(client))
    report = home.config("wrap", client, "s", "--dry-run", "--env", "MCP_LAZY_A=1")
    assert report == {"action": "wrap", "changedFields": ["args", "command", "env.MCP_LAZY_A"], "dryRun": True,
                      "file": str(path), "server": "s"}
    assert home.config("wrap", client, "s", "--env", "MCP_LAZY_A=1") == without(report, "dryRun")
    assert home.config("reapply", client) == {"action": "reapply", "changedFields": [], "file": str(path),
                                              "server": "s"}
    found = home.config("unwrap", client)
    assert set(found) == {"action", "changedFields", "file", "server"} and found["action"] == "unwrap"
    assert found["changedFields"] in (["args", "command", "env"], ["args", "command", "env.MCP_LAZY_A"])


def test_d7_1_one_line_says_who_has_to_start_again(home):
    """Case 205: on stderr, after what changed something."""
    home.put("claude", document("claude"))
    for action in ("wrap", "unwrap", "wrap"):
        done = home.run(*home.words(action, "claude", "s", ()))
        assert re.fullmatch(r"(?i)mcp-lazy: restart or reconnect .*claude.* to use it\n", done.err)
        assert done.out.count("\n") == 1
    assert home.run(*home.words("wrap", "claude", "s", ["--dry-run", "--env=MCP_LAZY_FILL=1"])).err == ""


@BOTH
def test_d7_2_values_are_never_printed(home, client):
    home.put(client, document(client, "npx", ["--token=" + SECRET], {"K": SECRET}))
    for action, more in (("wrap", ["--env", "MCP_LAZY_A=" + SECRET]), ("status", []),
                         ("reapply", ["--env", "MCP_LAZY_B=" + SECRET]),
                         ("unwrap", ["--dry-run"]), ("unwrap", [])):
        done = home.run(*home.words(action, client, "s", more))
        assert done.status == 0 and SECRET not in done.out + done.err


@BOTH
def test_d7_3_a_dry_run_makes_nothing(home, client):
    """Not even the state directory; and it refuses what would be refused."""
    home.put(client, document(client))
    before = home.tree()
    home.config("wrap", client, "s", "--dry-run")
    assert home.tree() == before and not home.state.exists() and not (home.home / ".config").exists()
    home.config("wrap", client)
    before = home.tree()
    home.config("wrap", client, "s", "--dry-run", "--env", "MCP_LAZY_A=1")
    home.config("unwrap", client, "s", "--dry-run")
    assert home.tree() == before
    home.put(client, document(client, args=["x"], env={"A": "b"}).replace('"b"', "5"))
    home.refused("wrap", client, "s", "--dry-run")


# -------------------------------------------------------------------------------------------------- D8: the write

NOT_CALLED = ("_exit", "abort", "fork", "execv", "execve", "WIFSIGNALED")


def each_call(callback):
    """Have `callback(number, name, args)` called before each system call of the module."""
    numbers = iter(range(1 << 30))

    def patched(name, real):
        def call(*args, **more):
            callback(next(numbers), name, args)
            return real(*args, **more)
        return call
    for name in dir(posix):
        real = getattr(posix, name)
        if callable(real) and not isinstance(real, type) and name[0] != "_" and name not in NOT_CALLED:
            setattr(posix, name, patched(name, real))


def calls_of(home, *words):
    """Number of system calls of a command, which is undone in the test's home by the caller."""
    path = home.path / "calls"
    home.run(*words, before=lambda: each_call(lambda number, name, args: path.write_text(str(number + 1))))
    return int(path.read_text())


def leftovers(home, client):
    return [name for name in os.listdir(str(home.file(client).parent)) if ".mcp-lazy-" in name]


@BOTH
def test_d8_1_a_change_during_the_edit_is_never_lost(home, client):
    """D8.3 and case 077: another program replaces the file at any moment of ours.

    What it wrote is in the file afterwards, with our edit or without; when we say that we failed, nothing of ours is
    left but backups.  (No second try: the specification wins over the case.)
    """
    raw = document(client).encode()
    both = raw.replace(b"}}}", b'},"late":{"command":"late-mcp"}}}')
    both += b'[mcp_servers.late]\ncommand = "late-mcp"\n' if client == "codex" else b""
    home.put(client, raw)
    count = calls_of(home, *home.words("wrap", client, "s", ()))
    home.config("unwrap", client)
    assert count > 10
    outcomes, known = set(), len(home.backups(client))
    for at in range(0, count, 1 if FULL else 3):
        path = home.put(client, raw)

        def foreign(number, name, args, at=at, path=path):
            if number == at:
                other = str(path) + ".theirs"
                with open(other, "wb") as file:
                    file.write(both)
                os.replace(other, str(path))
        done = home.run(*home.words("wrap", client, "s", ()), before=lambda: each_call(foreign))
        now, where = path.read_bytes(), "a change before system call %d" % at
        assert b"late-mcp" in now, where
        assert done.status in (0, 1) and leftovers(home, client) == [], (where, done)
        if done.status == 1:
            assert now == both and not home.metadata_path(client).exists(), where
            assert "changed during editing" in done.err
        elif now == both:
            home.metadata_path(client).unlink()  # theirs came last
        else:
            home.config("unwrap", client)
            assert path.read_bytes() == both, where
        outcomes.add((done.status, now == both, len(home.backups(client)) - known))
        known = len(home.backups(client))
    assert {(1, True, 0), (1, True, 1)} <= outcomes, "noticed before a backup is made, and behind it"


@BOTH
def test_d8_1_d8_2_the_order_of_the_write(home, client):
    """Backup, record, file; when undone: backup, file, and only then the record is removed."""
    raw = document(client).encode()
    path, seen = home.put(client, raw), home.path / "seen"
    metadata, backups = home.metadata_path(client), home.state / "backups"

    def look(number, name, args):
        count = len(list(backups.iterdir())) if backups.exists() else 0
        full = [one.name for one in backups.iterdir() if one.stat().st_size] if count else []
        with open(str(seen), "a") as file:
            file.write("%d %d %d\n" % (len(full), metadata.exists(), path.read_bytes() != raw))

    def states(action):
        seen.write_text("")
        home.config(action, client, "s", before=lambda: each_call(look))
        found = [tuple(int(word) for word in line.split()) for line in seen.read_text().splitlines()]
        return [one for number, one in enumerate(found) if number == 0 or found[number - 1] != one]
    assert states("wrap") in ([(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)], [(0, 0, 0), (1, 0, 0), (1, 1, 0)])
    assert states("unwrap")[:3] == [(1, 1, 1), (2, 1, 1), (2, 1, 0)]
    assert not metadata.exists() and path.read_bytes() == raw


def test_d8_1_leftovers_of_a_dead_run_are_removed(home):
    """Those of this registration; what others are at work on stays."""
    path = home.put("claude", document("claude"))
    mine, others = home.path / "mine", path.with_name(".mcp-lazy-%s-1" % ("0" * 32))
    others.write_text("x")

    def die(number, name, args):
        if name in ("fsync", "fdatasync") and leftovers(home, "claude") != [others.name]:
            mine.write_text(leftovers(home, "claude")[0])
            os.kill(os.getpid(), signal.SIGKILL)
    done = home.run(*home.words("wrap", "claude", "s", ()), before=lambda: each_call(die))
    assert done.status == -signal.SIGKILL
    assert home.key("claude", "s") in " ".join(leftovers(home, "claude")), "its name tells whose it is"
    home.config("wrap", "claude")
    assert leftovers(home, "claude") == [others.name]
    home.config("unwrap", "claude")
    assert path.read_text() == document("claude")


def renamed_without_exchange():
    """A file system that can not exchange two names."""
    import errno

    class Library:
        def __init__(self, *ignored, **more):
            pass

        def __getattr__(self, name):
            def call(*args):
                ctypes.set_errno(errno.EINVAL)
                return -1
            if name == "__name__" or name.startswith("__"):
                raise AttributeError(name)
            return Call(call)

    class Call:
        def __init__(self, function):
            self.__dict__["function"] = function

        def __call__(self, *args):
            return self.function(*args)
    ctypes.CDLL = ctypes.PyDLL = Library
    ctypes.pythonapi = Library()


@BOTH
def test_d8_3_atomic_is_told_only_where_it_was_not(home, client):
    raw = document(client)
    path = home.put(client, raw)
    assert home.config("wrap", client, "s", before=renamed_without_exchange)["atomic"] is False
    assert wrapped_args(home, client) == ["npx", "-y", "x"] and leftovers(home, client) == []
    assert "atomic" not in home.config("unwrap", client)
    assert path.read_text() == raw


@BOTH
def test_d8_3_without_an_exchange_the_file_is_compared_once_more(home, client):
    """A change before that is still noticed; one between that and the rename is lost, as D8.3 says."""
    path, theirs = home.put(client, document(client)), document(client, command="late-mcp").encode()

    def foreign(number, name, args):
        if name == "fsync" and leftovers(home, client):
            path.write_bytes(theirs)

    def before():
        renamed_without_exchange()
        each_call(foreign)
    done = home.run(*home.words("wrap", client, "s", ()), before=before)
    assert done.status == 1 and "changed during editing" in done.err
    assert path.read_bytes() == theirs and leftovers(home, client) == [] and not home.metadata_path(client).exists()


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o644, 0o444, 0o777])
def test_d8_4_permission_bits_stay(home, bits):
    """Case 078, whatever the umask."""
    path = home.put("claude", document("claude"), bits)
    for action in ("wrap", "unwrap"):
        home.config(action, "claude", before=lambda: os.umask(0o077))
        assert mode(path) == bits


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to somebody else")
def test_d8_4_the_owner_stays(home):
    path = home.put("claude", document("claude"), 0o640)
    os.chown(str(path), 12345, 23456)
    home.config("wrap", "claude")
    facts = path.stat()
    assert (facts.st_uid, facts.st_gid, mode(path)) == (12345, 23456, 0o640)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_d8_4_extended_attributes_stay(home):
    path = home.put("claude", document("claude"))
    try:
        os.setxattr(str(path), "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    for action in ("wrap", "unwrap"):
        home.config(action, "claude")
        assert os.getxattr(str(path), "user.note") == b"mine"


def test_d8_4_hard_links(home):
    """Refused, unless it may be written in place: then both names stay one file."""
    path = home.put("claude", document("claude"))
    other = home.home / "other"
    os.link(str(path), str(other))
    for action in ("wrap", "reapply"):
        err = home.refused(action, "claude")
        assert action == "reapply" or "--in-place" in err
    home.config("wrap", "claude", "s", "--in-place")
    assert other.read_bytes() == path.read_bytes() != document("claude").encode() and path.stat().st_nlink == 2
    home.refused("unwrap", "claude")
    home.config("unwrap", "claude", "s", "--in-place")
    assert other.read_text() == document("claude")


@BOTH
def test_d8_5_the_folder_is_synced_behind_the_exchange(home, client):
    raw = document(client).encode()
    path, seen = home.put(client, raw), home.path / "seen"

    def look(number, name, args):
        if name == "fsync":
            with open(str(seen), "a") as file:
                file.write("%s %s\n" % (path.read_bytes() == raw, os.readlink("/proc/self/fd/%d" % args[0])))
    home.config("wrap", client, "s", before=lambda: each_call(look))
    lines = seen.read_text().splitlines()
    assert "False %s" % path.parent in lines, lines
    assert "True %s/.mcp-lazy-" % path.parent in seen.read_text(), "the new file, before it is the file"


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_d8_6_watch(home):
    """A registration that was written anew is wrapped again once the file is quiet for 2 s; ends on SIGTERM."""
    path = home.put("claude", document("claude"))
    home.config("wrap", "claude")
    watching = started(home, *home.words("watch", "claude", "s", ()))
    try:
        began = time.monotonic()
        for number in range(3):  # several writes in a row are one change
            path.write_text(document("claude", command="newer-%d" % number))
        until(lambda: home.relay in path.read_text(), 15, "the registration to be wrapped again")
        assert time.monotonic() - began >= 1.9
        assert wrapped_args(home, "claude") == ["newer-2", "-y", "x"] and watching.poll() is None
        watching.send_signal(signal.SIGTERM)
        out, err = watching.communicate(timeout=10)
        assert watching.returncode == 0, err
        assert "reapply" in out.decode() and b"Traceback" not in err
    finally:
        if watching.poll() is None:
            watching.kill()
            watching.communicate()


# --------------------------------------------------------------------------------------------- D9: JSON, to the byte

def json_home(home, before, *more, client="claude"):
    """The wrapped text with the relay as @R@; and unwrap gives the first bytes back."""
    home.put(client, before)
    return home.there_and_back(client, "s", *more).decode("utf-8").replace(json_text(home.relay), "@R@")


ONE = ["--env", "MCP_LAZY_A=1"]
TWO = ["--env", "MCP_LAZY_B=2", "--env", "MCP_LAZY_A=1"]


@pytest.mark.parametrize("command, args, expected", [
    ('"node"', '[ "x" ]', '["node","x"]'), ('"node"', "[\n]", '["node"]'),
    ('"a<b>&c"', "[]", '["a\\u003cb\\u003e\\u0026c"]'),
    ('"\u2028\u2029"', '["\u00e9\U0001f600"]', '["\\u2028\\u2029","\u00e9\U0001f600"]'),
    ('"\\u00e9\\/"', '["\\"\\\\"]', '["\u00e9/","\\"\\\\"]'), ('"n"', '["\\n\\t\\u0001\\u007f"]', None)])
def test_d9_1_values_are_compact(home, command, args, expected):
    before = '{ "mcpServers" : { "s" : { "command" : %s , "args" : %s , "x" : [ 1.0, 1e2 ] } } }\n' % (command, args)
    after = json_home(home, before)
    head, tail = '{ "mcpServers" : { "s" : { "command" : @R@ , "args" : ', ' , "x" : [ 1.0, 1e2 ] } } }\n'
    assert after.startswith(head) and after.endswith(tail)
    new = after[len(head):-len(tail)]
    assert new == expected if expected else json.loads(new) == [json.loads(command)] + json.loads(args)
    assert not set(new) & set("<>&\u2028\u2029\n\t\x01")


@pytest.mark.parametrize("inside, more, after", [
    ('{"command": "npx"}', [], '{"command": @R@, "args": ["npx"]}'),
    ('{"command": "npx" }', [], '{"command": @R@, "args": ["npx"] }'),
    ('{"command": "npx", "x": [1, {"y": 2}]}', [], '{"command": @R@, "x": [1, {"y": 2}], "args": ["npx"]}'),
    ('{"command": "npx", "args": []}', ONE, '{"command": @R@, "args": ["npx"], "env": {"MCP_LAZY_A":"1"}}'),
    ('{"command": "npx"}', TWO, '{"command": @R@, "args": ["npx"], "env": {"MCP_LAZY_A":"1","MCP_LAZY_B":"2"}}'),
    ('{"command": "npx", "args": [], "env": {"K": "v"}}', TWO,
     '{"command": @R@, "args": ["npx"], "env": {"K": "v", "MCP_LAZY_A": "1", "MCP_LAZY_B": "2"}}'),
    ('{"command": "npx", "args": [], "env": {"MCP_LAZY_A": "mine", "K": "v"}}', ONE,
     '{"command": @R@, "args": ["npx"], "env": {"MCP_LAZY_A": "1", "K": "v"}}'),
    ('{"command": "npx", "args": [], "env": {}}', ONE, '{"command": @R@, "args": ["npx"], "env": {"MCP_LAZY_A": "1"}}'),
    ('{"command": "npx", "args": [], "env": { }}', ONE,
     '{"command": @R@, "args": ["npx"], "env": { "MCP_LAZY_A": "1"}}')])
def test_d9_2_new_members_on_one_line(home, inside, more, after):
    """D9.4: args before env, variables in order."""
    found = json_home(home, '{"mcpServers": {"s": %s}}' % inside, *more)
    expected = '{"mcpServers": {"s": %s}}' % after
    assert strip_commas(found) == strip_commas(expected)


def strip_commas(text):
    """Blanks inside what is written new are not told by the specification where it may look like its neighbours."""
    return re.sub(r'(?<=[,:]) (?=["@\[{])', "", text)


def test_d9_2_a_compact_neighbourhood(home):
    found = json_home(home, '{"mcpServers":{"s":{"command":"npx","x":1}}}', *ONE)
    assert re.fullmatch(
        r'\{"mcpServers":\{"s":\{"command":@R@,"x":1, ?"args": ?\["npx"\], ?"env": ?\{"MCP_LAZY_A": ?"1"\}\}\}\}',
        found)


@pytest.mark.parametrize("order",
                         [("a", "b", "MCP_LAZY_A"), ("a", "MCP_LAZY_A", "b"), ("MCP_LAZY_A", "a", "b"), ("MCP_LAZY_A",
                          )])
@pytest.mark.parametrize("gap", ["", " ", "\n    "])
def test_d9_3_d9_7_a_member_is_removed(home, order, gap):
    """From its start to the next one's; the last from the end of the one before; the only one by itself."""
    home.put("claude", '{"mcpServers":{"s":{"command":"npx"}}}')
    home.config("wrap", "claude", "s", *ONE)
    home.forget_spans()
    members = ['"%s"%s:%s"1"' % (name, gap, gap) for name in order]

    def text(members, command, args):
        env = "{%s%s%s}" % (gap, (gap + "," + gap).join(members), gap)
        return '{"mcpServers":{"s":{"env":%s,"command":%s%s}}}' % (env, json_text(command), args)
    path = home.put("claude", text(members, home.relay, ',"args":["npx"]'))
    home.metadata_path().write_text(json.dumps(dict(home.metadata(), hadEnv=True), indent=2))
    home.config("unwrap", "claude")
    rest = [member for member, name in zip(members, order) if name != "MCP_LAZY_A"]
    assert path.read_text() == text(rest, "npx", "") or not rest and path.read_text() == text([""], "npx", "")


def test_d9_3_what_stands_around_a_removed_member(home):
    home.put("claude", '{"mcpServers":{"s":{"command":"npx"}}}')
    home.config("wrap", "claude")
    home.forget_spans()
    path = home.put("claude",
                    '{"mcpServers":{"s":{ "args" : ["npx"] , "command" : %s , "x":1 }}}' % json_text(home.relay))
    home.config("unwrap", "claude")
    assert path.read_text() == '{"mcpServers":{"s":{ "command" : "npx" , "x":1 }}}'


@pytest.mark.parametrize(
    "name", ["sample.with.dot", "a/b", "7", "-y", "--all", "a b", "\u00e9\U0001f600", "a\"b\\c", "__proto__", "$", "#",
             "*",
                                  "a.b.c.command", "mcpServers", "line\nfeed", "'", " "])
@BOTH
def test_d9_4_d9_7_a_name_is_one_key(home, client, name):
    """Case 092; the nested one that its dots would lead to is another."""
    text = document(client, name=name)
    if client == "claude":
        text = text.replace('{"mcpServers":{',
                            '{"mcpServers":{"sample":{"with":{"dot":{"command":"wrong"}}},'
                            '"a":{"b":{"command":"wrong"}},')
    home.put(client, text)
    home.config("wrap", client, name, *ONE)
    assert wrapped_args(home, client, name) == ["npx", "-y", "x"]
    assert home.file(client).read_text().count(home.relay) == 1
    home.config("unwrap", client, name)
    assert home.file(client).read_text() == text


@pytest.mark.parametrize("text, lines", [
    ('{"mcpServers":{},\n"x":1,\n"mcpServers":{"s":{"command":"npx"}}}', (1, 3)),
    ('{"mcpServers":{"s":{"command":"npx"},\n\n"s":{"command":"uvx"}}}', (1, 3)),
    ('{"mcpServers":{"s":{"command":"npx",\n"command":"uvx"}}}', (1, 2)),
    ('{"mcpServers":{"s":{"command":"npx",\n"args":[],\n"\\u0061rgs":["x"]}}}', (2, 3)),
    ('{"mcpServers":{"s":{"command":"npx",\n"env":{},\n"env":{"A":"1"}}}}', (2, 3)),
    ('{"mcpServers":{"s":{"command":"npx",\n"env":{"MCP_LAZY_A":"1",\n"MCP_LAZY_A":"2"}}}}', (2, 3))])
def test_d9_5_a_key_twice_on_the_way(home, text, lines):
    home.put("cursor", text)
    err = home.refused("wrap", "cursor", "s", *ONE)
    for line in lines:
        assert re.search(r"\b%d\b" % line, err), err


def test_d9_5_a_key_twice_elsewhere(home):
    before = '{"x":{"a":1,"a":2},"mcpServers":{"t":{"command":"a","command":"b"},"s":{"command":"npx",' \
             '"x":{"y":1,"y":1}}},"z":[{"b":1,"b":2}]}'
    assert json_home(home, before, *ONE).startswith(before[:before.index('"npx"')] + "@R@,")


def test_d9_6_numbers_are_bytes(home):
    """Case 087; also one of more digits than Python turns into an integer."""
    before = '{"a":1e400,"b":-0,"c":12345678901234567890123,"d":%s,"e":1E-999,' \
             '"mcpServers":{"s":{"command":"npx","args":[],"t":1.0}},"f":0.10}' % ("9" * 5000)
    assert json_home(home, before) == before.replace('"npx","args":[]', '@R@,"args":["npx"]')


MANY_LINES = [
    # two blanks; the neighbours' indentation, line ends and colons
    ('{\n  "mcpServers": {\n    "s": {\n      "command": "npx"\n    }\n  }\n}\n', [],
     '{\n  "mcpServers": {\n    "s": {\n      "command": @R@,\n      "args": ["npx"]\n    }\n  }\n}\n'),
    ('{\n\t"mcpServers" : {\n\t\t"s"\t:\t{\n\t\t\t"command":\t"npx"\n\t\t}\n\t}\n}', [],
     '{\n\t"mcpServers" : {\n\t\t"s"\t:\t{\n\t\t\t"command":\t@R@,\n\t\t\t"args":\t["npx"]\n\t\t}\n\t}\n}'),
    ('{\r\n  "mcpServers": {\r\n    "s": {\r\n      "command": "npx"\r\n    }\r\n  }\r\n}\r\n', [],
     '{\r\n  "mcpServers": {\r\n    "s": {\r\n      "command": @R@,\r\n      "args": ["npx"]\r\n    }\r\n  }\r\n}\r\n'),
    ('{\n  "mcpServers": {\n    "s": {\n      "command": "npx",\n    },\n  },\n}\n', [],
     '{\n  "mcpServers": {\n    "s": {\n      "command": @R@,\n      "args": ["npx"]\n    },\n  },\n}\n'),
    ('{"mcpServers":{"s":{\n "env": {\n  "K": "v"\n },\n "args": [\n  "x"\n ],\n "command": "npx"\n}}}', ONE,
     '{"mcpServers":{"s":{\n "env": {\n  "K": "v",\n  "MCP_LAZY_A": "1"\n },\n'
     ' "args": ["npx","x"],\n "command": @R@\n}}}')]


@pytest.mark.parametrize("before, more, after", MANY_LINES)
def test_d9_8_new_members_look_like_their_neighbours(home, before, more, after):
    """After a trailing comma (case 083) the new one may have one too, or not."""
    found = json_home(home, before, *more, client="cursor")
    assert found == after or found == after.replace('"args": ["npx"]\n    },\n', '"args": ["npx"],\n    },\n')


def test_d9_8_comments_stay_with_their_members(home):
    """Case 084."""
    before = '{"mcpServers":{"s":{\n  // about it\n  "command": "npx" // as root\n  // the end\n}}}'
    found = json_home(home, before, client="cursor")
    line = [one for one in found.splitlines() if '"command"' in one]
    assert len(line) == 1 and line[0].endswith("// as root") and "// about it\n" in found
    assert found.endswith("  // the end\n}}}")
    found = settings("cursor", found.replace("@R@", '"r"').encode())
    assert found["mcpServers"]["s"] == {"command": "r", "args": ["npx"]}


JSON_SHAPES = [
    '{"mcpServers":{"s":{"command":"npx"}}}', '{"mcpServers":{"s":{"command":"npx","args":[]}}}',
    '{"mcpServers":{"s":{"args":["a"],"command":"npx"}}}',
    '{"mcpServers":{"s":{"command":"npx","env":{}}}}', '{"mcpServers":{"s":{"command":"npx","env":null}}}',
    '{"mcpServers":{"s":{"env":{"MCP_LAZY_A":"mine","MCP_LAZY_B":"2"},"command":"npx"}}}',
    '{"mcpServers":{"s":{"command":"npx"},}}',
    '{"mcpServers":{"s":{"command":"npx",}}}', '{"mcpServers":{"s":{"command":"npx","env":{"K":"v",},},},}',
    '{"mcpServers":{"s":{ "command":"npx" /*c*/ , /*d*/ }}}',
    '{"mcpServers":{"s":{"env":{/*e*/},"command":"npx"//f\n}}}',
    '\ufeff{\r\n"mcpServers":{\r\n"s":{\r\n"command"\r\n:\r\n"npx"\r\n}\r\n}\r\n}',
    '{"mcpServers":{"s":{"command":"\\u006epx","args":["\\/\\u00e9"]}}}',
    '\n\n{\t"mcpServers":\t{\t"s":\t{\t"command":\t"npx"\t}\t}\t}\n\n',
    '{"mcpServers":{"s":{"\\u0063ommand":"npx","arg\\u0073":[ "x" ,\n"y"]}}}',
    '{"mcpServers":{"s":{"command":"npx","args":["a", // first\n"b" /* second */,]}}}',
    '{\n  "mcpServers": {\n    "s": {\n      "command": "npx", // one\n      "env": {\n'
    '        "K": "v" // two\n        // three\n      }\n    }\n  }\n}\n',
    '{"mcpServers":{"\\u0073":{"command":"npx","args":["\\ud800"]}}}',
    '{"mcpServers":{"s":{"command":"npx","env":{  \n\n  }}}}\r\n']


@pytest.mark.parametrize("text", JSON_SHAPES)
@pytest.mark.parametrize("more", [[], TWO], ids=["", "two"])
def test_d9_9_every_held_shape_comes_back_to_the_byte(home, text, more):
    home.put("cursor", text)
    wrapped = home.there_and_back("cursor", "s", *more)
    old, new = (settings("cursor", raw)["mcpServers"]["s"] for raw in (text.encode(), wrapped))
    assert new["command"] == home.relay and new["args"] == [old["command"]] + old.get("args", [])
    mine = dict(word.split("=") for word in more if "=" in word)
    assert (new.get("env") or {}) == dict(old.get("env") or {}, **mine)
    assert b",," not in wrapped and wrapped.count(b"\xef\xbb\xbf") == text.encode().count(b"\xef\xbb\xbf")
    assert text.count("\r\n") == 0 or b"\n" not in wrapped.replace(b"\r\n", b"") or "\n" in text.replace("\r\n", "")


@pytest.mark.parametrize("text", JSON_SHAPES[:7])
def test_d9_9_several_rounds_and_commands(home, text):
    """Wrapped again, upgraded, variables added: it is still the first bytes that come back."""
    path = home.put("cursor", text)
    newer = home.executable("bin/mcp-lazy-2")
    home.config("wrap", "cursor")
    home.config("reapply", "cursor", "s", *ONE)
    home.config("wrap", "cursor", "s", "--relay", newer)
    home.config("wrap", "cursor", "s", "--relay", newer, *TWO)
    home.config("reapply", "cursor", "s", "--relay", newer, "--unset-env", "MCP_LAZY_B")
    home.config("unwrap", "cursor")
    assert path.read_text() == text


@BOTH
def test_d9_9_edits_elsewhere_are_kept(home, client):
    """Case 100: the spans are found again wherever they are now."""
    text = document(client)
    path = home.put(client, text)
    home.config("wrap", client, "s", *ONE)
    wrapped = path.read_text()
    if client == "claude":
        path.write_text('{"numStartups":9, "x": {"command":"npx"},\n' + wrapped[1:-1] + ',\n"z":1}\n')
        expected = '{"numStartups":9, "x": {"command":"npx"},\n' + text[1:-1] + ',\n"z":1}\n'
    else:
        path.write_text("# new\r\nnumStartups = 9\n" + wrapped + '[mcp_servers.z]\ncommand = "z"\n')
        expected = "# new\r\nnumStartups = 9\n" + text + '[mcp_servers.z]\ncommand = "z"\n'
    home.config("unwrap", client)
    assert path.read_text() == path.read_text().replace("\r\n", "\n") == expected.replace("\r\n", "\n")
    assert path.read_bytes() == expected.encode()


def test_d9_9_edits_of_the_same_place_give_the_settings_back(home):
    path = home.put("claude", '{"mcpServers":{"k":{"command":"k-mcp","args":[ "-v" ]}}}')
    home.config("wrap", "claude", "k", *ONE)
    found = json.loads(path.read_bytes())
    found.update(numStartups=9)
    found["mcpServers"]["z"] = {"command": "z"}
    path.write_text(json.dumps(found, indent=4, sort_keys=True))
    home.config("unwrap", "claude", "k")
    found["mcpServers"]["k"] = {"command": "k-mcp", "args": ["-v"]}
    assert json.loads(path.read_bytes()) == found
    assert path.read_text().count("\n") >= json.dumps(found, indent=4).count("\n") - 6, "the client's own lines stay"


# -------------------------------------------------------------------------------------------- D10: TOML, to the byte

def toml_home(home, before, *more, server="s"):
    """The wrapped text with the relay as @R@; it parses, and unwrap gives the first bytes back."""
    home.put("codex", before)
    wrapped = home.there_and_back("codex", server, *more)
    settings("codex", wrapped)
    return wrapped.decode("utf-8").replace(json_text(home.relay), "@R@")


TOML_SHAPES = [
    '[mcp_servers.s]\ncommand = "npx"\n', '[mcp_servers.s]\ncommand = "npx"\nargs = ["a"]\n',
    '[mcp_servers."s"]\nargs=[]\ncommand="npx"',
    "[ mcp_servers . 's' ] # c\n\"command\" = 'npx' # d\n", '[mcp_servers]\ns.command = "npx"\n',
    '[mcp_servers]\ns.command = "npx"\ns.args = ["a"]\ns.env.K = "v"\n',
    'mcp_servers.s.command = "npx"\nmcp_servers.s.env.MCP_LAZY_A = "mine"\n',
    '[mcp_servers]\ns = { command = "npx" }\n',
    '[mcp_servers]\ns={command="npx",args=["a"],env={K="v"}} # c\n',
    'mcp_servers = { s = { command = "npx", env = {} } }\n',
    'mcp_servers.s = { command = "npx", args = [ "a" , ] }\n',
    '[mcp_servers.s]\r\ncommand = "npx"\r\n\r\n[mcp_servers.s.env]\r\nK = "v"\r\n',
    '[mcp_servers.s.env]\nK = "v"\n\n[other]\n[mcp_servers.s]\ncommand = """\nnpx"""\nargs = [\n'
    '  "a", # one\n\n  \'b\', # two\n]\n[mcp_servers]\n',
    '\ufeff[mcp_servers.s]\ncommand = "npx"\nenv = { "K" = "v", MCP_LAZY_A = "mine" }',
    '[mcp_servers.s]\n\tcommand = "npx"\n\n\tenv.K = "v"\n',
    '[mcp_servers.s]\ncommand = "npx"\n[mcp_servers.s.env]',
    '[mcp_servers.s]\ncommand = "npx"\n[mcp_servers.s.env]\n[mcp_servers.s.tools.x]\ny = 1\n',
    "x = '''\n[mcp_servers.s]\ncommand = 1\n'''\n[[a]]\n[[a.b]]\n[mcp_servers.s] # z\ncommand = 'npx'\n[[a]]\n",
    "[mcp_servers.s]\ncommand = \"npx\"\r\nargs = [\"a\"]\n\r\n[x]\r\n",
    'mcp_servers."s".command = "npx"', '[mcp_servers.s]\nenv.MCP_LAZY_B = "2"\ncommand = "\\u006epx"\n',
    '[mcp_servers]\n[mcp_servers.s]\ncommand = "npx"\nenv = {\t}\n']


@pytest.mark.parametrize("text", TOML_SHAPES)
@pytest.mark.parametrize("more", [[], TWO], ids=["", "two"])
def test_d10_1_every_held_shape(home, text, more):
    """D9.9, D10.2: accepted, edited to what is meant, and back to the byte."""
    home.put("codex", text)
    before = settings("codex", text.encode())
    wrapped = home.there_and_back("codex", "s", *more)
    after = settings("codex", wrapped)
    old = before["mcp_servers"]["s"]
    mine = dict(word.split("=") for word in more if "=" in word)
    expected = dict(old, command=home.relay, args=[old["command"]] + old.get("args", []))
    if mine or "env" in old:
        expected["env"] = dict(old.get("env", {}), **mine)
    before["mcp_servers"]["s"] = expected
    assert after == before


def test_d10_2_inline_tables(home):
    """The two values inside the braces; what stays there stays."""
    before = '[mcp_servers]\na={command="a"}\ns = { command = "npx", args = [ "x" ], k = 1.0 }   # b\nmore = 1\n'
    found = toml_home(home, before)
    assert toml_spaces(found) == toml_spaces(before.replace('"npx"', "@R@").replace('[ "x" ]', '["npx","x"]'))
    assert found.startswith('[mcp_servers]\na={command="a"}\ns = { command = @R@, args = [')
    assert found.endswith("], k = 1.0 }   # b\nmore = 1\n")
    found = toml_home(home, '[mcp_servers]\ns = { command = "npx" } # c\n', *ONE)
    assert found.startswith("[mcp_servers]\ns = { command = @R@, args = [")
    assert found.endswith(" } # c\n") and found.count("\n") == 2


@pytest.mark.parametrize("text, kind", [
    ('[[mcp_servers]]\ncommand = "npx"\n', "array of tables"),
    ('[[mcp_servers.s]]\ncommand = "npx"\n', "array of tables"),
    ('mcp_servers = [{ s = { command = "npx" } }]\n', "array"),
    ('[mcp_servers]\ns = [{ command = "npx" }]\n', "array")])
def test_d10_2_arrays_of_tables_are_refused(home, text, kind):
    """Case 128: the type is named."""
    home.put("codex", text)
    assert kind in home.refused("wrap", "codex", "s")


@pytest.mark.parametrize("before, after", [
    ('[mcp_servers.s]\n"command" = \'npx\' # c\nargs=["x"]# d\n',
     '[mcp_servers.s]\n"command" = @R@ # c\nargs=["npx", "x"]# d\n'),
    ('[mcp_servers.s]\n  command\t=\t"npx"\t\n  \'args\' = []',
     '[mcp_servers.s]\n  command\t=\t@R@\t\n  \'args\' = ["npx"]'),
    ('[mcp_servers.s]\ncommand = """\nnpx"""\nargs = [ # a\n  "x", # b\n  \'y\'\n  # c\n] # d\n',
     '[mcp_servers.s]\ncommand = @R@\nargs = ["npx", "x", "y"] # d\n'),
    ('mcp_servers . s . command = "npx"\nmcp_servers.s."args" = ["x"] # e\n',
     'mcp_servers . s . command = @R@\nmcp_servers.s."args" = ["npx", "x"] # e\n')])
def test_d10_3_only_the_value_is_replaced(home, before, after):
    assert toml_home(home, before).replace('","', '", "') == after


@pytest.mark.parametrize("before, after", [
    # behind the header of the deepest table; a comment there stays on its line
    ('a = 1\n[mcp_servers.s] # c\n\ncommand = "npx"\n', 'a = 1\n[mcp_servers.s] # c\n%s\n\ncommand = @R@\n'),
    ('[mcp_servers.s]\r\ncommand = "npx"\r\n', '[mcp_servers.s]\r\n%s\r\ncommand = @R@\r\n'),
    ('[mcp_servers.s]\ncommand = "npx"', '[mcp_servers.s]\n%s\ncommand = @R@'),
    ('x = 1\r\n[mcp_servers.s]\ncommand = "npx"\r\n', 'x = 1\r\n[mcp_servers.s]\n%s\ncommand = @R@\r\n'),
    ('[mcp_servers]\n\n# d\ns.command = "npx"\n', '[mcp_servers]\ns.%s\n\n# d\ns.command = @R@\n'),
    ('# top\nmcp_servers.s.command = "npx"\n[x]\n', 'mcp_servers.s.%s\n# top\nmcp_servers.s.command = @R@\n[x]\n'),
    ('\ufeffmcp_servers.s.command = "npx"\r\n', '\ufeffmcp_servers.s.%s\r\nmcp_servers.s.command = @R@\r\n'),
    ('[mcp_servers.s.env]\nA = "1"\n[mcp_servers.s]\ncommand = "npx"\n[mcp_servers.s.tools]\n',
     '[mcp_servers.s.env]\nA = "1"\n[mcp_servers.s]\n%s\ncommand = @R@\n[mcp_servers.s.tools]\n')])
def test_d10_4_a_new_line(home, before, after):
    found = toml_home(home, before)
    assert toml_spaces(found) == toml_spaces(after % 'args = ["npx"]')
    assert found.count("\r\n") == (after % "").count("\r\n") and found.count("\n") == (after % "").count("\n")


def test_d10_4_the_last_header_has_no_line_end(home):
    found = toml_home(home, '[mcp_servers.s]\ncommand = "npx"\nargs = []\n[mcp_servers.s.env]', *ONE)
    assert re.fullmatch(
        r'\[mcp_servers\.s\]\ncommand = @R@\nargs = \["npx"\]\n\[mcp_servers\.s\.env\]\n"?MCP_LAZY_A"? = "1"\n?', found)


def test_d10_4_a_name_that_needs_quotes(home):
    found = toml_home(home, '[mcp_servers]\n"a.b c".command = "npx"\n', server="a.b c")
    assert toml_spaces(found) == toml_spaces('[mcp_servers]\n"a.b c".args = ["npx"]\n"a.b c".command = @R@\n')


def test_d10_5_a_missing_env_is_one_inline_table(home):
    found = toml_home(home, '[mcp_servers.s]\ncommand = "npx"\nargs = []\n[mcp_servers.s.tools]\nx = 1\n', *TWO)
    pattern = r'\[mcp_servers\.s\]\nenv = \{ "?MCP_LAZY_A"? = "1", "?MCP_LAZY_B"? = "2" \}\ncommand = @R@\n' \
              r'args = \["npx"\]\n\[mcp_servers\.s\.tools\]\nx = 1\n'
    assert re.fullmatch(pattern, found), found


@pytest.mark.parametrize("env, lines",
                         [('env = { "K" = "v" } # c', 1), ("[mcp_servers.s.env] # c\nK = \"v\"", 3),
                          ('env.K = "v" # c', 2), ("env = {} # c", 1)])
def test_d10_5_variables_in_an_env_that_is_there(home, env, lines):
    """There is one env, and what was in it stays."""
    before = '[mcp_servers.s]\ncommand = "npx"\nargs = []\n%s\n' % env
    found = toml_home(home, before, *ONE)
    assert "# c\n" in found and found.count("\n") == 3 + lines
    assert found.count("env = {") == env.count("env = {") and found.count(".env]") == env.count(".env]")


def test_d10_6_what_is_left_of_a_removed_key(home):
    """The expression's bytes go; its line and comment stay."""
    home.put("codex", '[mcp_servers.s]\ncommand = "npx"\n')
    home.config("wrap", "codex", "s", *ONE)
    home.forget_spans("codex")
    relay = json_text(home.relay)
    path = home.put("codex",
                    '[mcp_servers.s]\ncommand = %s\nargs = ["npx"] # why\n\n'
                    '[mcp_servers.s.env] # e\nMCP_LAZY_A = "1"\n# f\n[x]\n' % relay)
    home.config("unwrap", "codex")
    left = r'\[mcp_servers\.s\]\ncommand = "npx"\n *# why\n\n *# e\n\n?# f\n\[x\]\n'
    assert re.fullmatch(left, path.read_text()), path.read_text()


@pytest.mark.parametrize("text",
                         ['"', "\\", "\x7f", "\x01", "\t", "\n", "\r", "\u00e9", "\U0001f600", "\u2028", "\x85", "'''",
                          '"""', "${X:-y}", "<&>"])
def test_d10_7_strings(home, text):
    escaped = json.dumps(text).replace("\\ud83d\\ude00", "\\U0001F600").replace("\x7f", "\\u007f")
    home.put("codex", '[mcp_servers.s]\ncommand = "a%sb"\nargs = [%s]\n' % (escaped[1:-1], escaped))
    wrapped = home.there_and_back("codex", "s", "--env", "MCP_LAZY_A=" + text).decode("utf-8")
    found = settings("codex", wrapped.encode())["mcp_servers"]["s"]
    assert found == {"command": home.relay, "args": ["a%sb" % text, text], "env": {"MCP_LAZY_A": text}}
    assert not set(wrapped) & set("\x7f\x01\r\t") and "'''" not in wrapped.replace("\"'''\"", "").replace("a'''b", "")


def test_d10_8_nan_is_no_trouble(home):
    before = 'a = nan\nb = [+nan, -nan, inf]\n[mcp_servers.s]\ncommand = "npx"\nargs = []\nx = { y = nan }\n'
    assert toml_home(home, before).startswith("a = nan\nb = [+nan, -nan, inf]\n[mcp_servers.s]\ncommand = @R@\n")


@pytest.mark.parametrize("before, after", [
    ('[mcp_servers]\ns = {\n  command = "npx",\n  args = ["x"],\n}\n',
     '[mcp_servers]\ns = {\n  command = @R@,\n  args = ["npx", "x"],\n}\n'),
    ('a = "\\e\\x41"\nb = 07:32\nc = 1979-05-27 07:32\n[mcp_servers.s]\ncommand = "np\\x78"\nargs = []\n',
     'a = "\\e\\x41"\nb = 07:32\nc = 1979-05-27 07:32\n[mcp_servers.s]\ncommand = @R@\nargs = ["npx"]\n')])
def test_d10_9_toml_1_1_is_read(home, before, after):
    """tomllib of today reads 1.0 only, so it is no judge here."""
    home.put("codex", before)
    wrapped = home.there_and_back("codex").decode().replace(json_text(home.relay), "@R@")
    assert wrapped.replace('","', '", "') == after


def test_d10_9_what_is_written_is_toml_1_0(home):
    if tomllib is None:
        pytest.skip("no tomllib in this Python")
    home.put("codex", '[mcp_servers]\ns = { command = "np\\u0078" }\n')
    wrapped = home.there_and_back("codex", "s", "--env", "MCP_LAZY_A=\x1b\x7f\u00e9")
    found = tomllib.loads(wrapped.decode())["mcp_servers"]["s"]
    assert found == {"command": home.relay, "args": ["npx"], "env": {"MCP_LAZY_A": "\x1b\x7f\u00e9"}}
