"""`mcp-lazy doctor`, `config list` and `config watch` as a user starts them: real processes in a fresh HOME.

    place = Place(folder, mark, kit)            a HOME, a working folder; `place.relay` is the module, named mcp-lazy
    place.put("cursor", {"s": entry("npx")})    the client's default file with these servers
    rows = place.rows()                         `config list --json`
    found = place.findings(status=1)            `doctor --json`: {what: finding}
    place.mended("cursor s")                    runs what doctor prints for it; then doctor has to be content

Both commands only look: every run of one is followed by a comparison of the whole HOME. No run may show what stands in
args, env, headers or a URL (all of these are SECRET here), or a control character.

A watcher needs seconds for what it does (D8.6: quiet for 2 s). So all that is about watchers, or a relay that hangs,
is a scenario: those that were asked for start together in threads when the first test of this file does, the tests at
its end look at the results.
"""

import collections
import concurrent.futures
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import LINUX, MARK, MODULE, WAIT_S, children, cpu_s, encode, fds, initialize, marked, proc_stat, until

Done = collections.namedtuple("Done", "status out err")
SECRET = "hunter2-is-not-shown"
APPLICATIONS = ".config" if LINUX else "Library/Application Support"
FILES = {"claude": ".claude.json", "claude-desktop": APPLICATIONS + "/Claude/claude_desktop_config.json",
         "cursor": ".cursor/mcp.json",
         "codex": ".codex/config.toml", "grok": ".grok/config.toml", "gemini": ".gemini/settings.json",
         "qwen": ".qwen/settings.json", "copilot": ".copilot/mcp-config.json",
         "cline": ".cline/data/settings/cline_mcp_settings.json", "vscode": APPLICATIONS + "/Code/User/mcp.json",
         "windsurf": ".codeium/windsurf/mcp_config.json", "opencode": ".config/opencode/opencode.jsonc",
         "zed": ".config/zed/settings.json"}
# What a client reads in the folder that it is started in.
HERE = {"claude": ".mcp.json", "cursor": ".cursor/mcp.json", "codex": ".codex/config.toml", "grok": ".grok/config.toml",
        "gemini": ".gemini/settings.json", "qwen": ".qwen/settings.json", "vscode": ".vscode/mcp.json",
        "opencode": "opencode.json", "zed": ".zed/settings.json"}
ROOTS = {"codex": "mcp_servers", "grok": "mcp_servers", "vscode": "servers", "opencode": "mcp",
         "zed": "context_servers"}
QUIET_S = 2.0  # D8.6
REMOTE = {"type": "http", "url": "https://%s.example/mcp" % SECRET, "headers": {"Authorization": SECRET}}
NAMES = ("plain", "two\nlines", "esc\x1b[31mred", "tab\tbell\x07", "c1\x9b31m", "cr\rback", "nul\x00", "\x7fdel",
         "- dash", "é🐚", "")
SERVER = """import json, sys
open(sys.argv[1], "a").write("started ")
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = {"tools": []} if asked["method"] == "tools/list" else {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


# --------------------------------------------------------------------------------------------- a user's place

class Kit:
    """What the places share: the program, and its bytecode, which saves each of them a compilation."""

    def __init__(self, folder):
        self.bin, self.python = folder / "bin", folder / "python"
        self.bin.mkdir()
        self.python.mkdir()
        (self.python / "python3").symlink_to(sys.executable)
        self.relay = str(shutil.copy(str(MODULE), str(self.bin / "mcp-lazy")))
        os.chmod(self.relay, 0o755)
        first = Place(folder / "first", None, self)
        first.run("--version")
        self.bytecode = first.home / ".cache" / "mcp-lazy" / "bytecode"


class Place:
    def __init__(self, path, mark, kit, home="home"):
        self.path, self.kit, self.relay, self.mark = Path(path), kit, kit.relay, mark or "kit"
        self.home, self.work = self.path / home, self.path / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.state = self.home / ".config" / "mcp-lazy" / "registrations"
        if mark:
            os.umask(0o077)
            shutil.copytree(str(kit.bytecode), str(self.home / ".cache" / "mcp-lazy" / "bytecode"))
            os.umask(0o022)
            for folder in (self.home / ".cache" / "mcp-lazy", self.home / ".cache" / "mcp-lazy" / "bytecode"):
                folder.chmod(0o700)

    # ------------------------------------------------------------------------------------------------ its files
    def file(self, client):
        return self.home / FILES[client]

    def put(self, client, servers, path=None):
        """Writes a client's file in place: servers, or its whole text; its path."""
        path = path or self.file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = servers if isinstance(servers, bytes) else text_of(client, servers).encode("utf-8", "surrogatepass")
        path.write_bytes(raw)
        return path

    def replace(self, client, servers):
        """The same as most programs do it: by another file that is renamed."""
        other = self.put(client, servers, self.file(client).with_name("other"))
        os.replace(str(other), str(self.file(client)))

    def program(self, name, text):
        """An executable script that can be a relay."""
        path = self.path / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def records(self):
        return sorted(self.state.glob("*.json"))

    def lock(self, path):
        """The lock file of a client's file (D2.2)."""
        digest = hashlib.sha256(os.path.realpath(str(path)).encode("utf-8")).hexdigest()[:32]
        return self.state / "locks" / (digest + ".lock")

    def recordings(self):
        return sorted((self.home / ".cache" / "mcp-lazy").glob("*.json"))

    def tree(self):
        """{path: what it is} below HOME and the working folder, without the bytecode."""
        found = {}
        for top in (str(self.home), str(self.work)):
            for folder, names, files in os.walk(top):
                names[:] = [name for name in names if name != "bytecode"]
                for path in [os.path.join(folder, name) for name in names + files]:
                    facts = os.lstat(path)
                    found[path] = (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        return found

    # --------------------------------------------------------------------------------------------- its commands
    def env(self, **more):
        found = {"HOME": str(self.home), "PATH": "%s:%s:%s" % (self.kit.bin, self.kit.python, os.environ["PATH"]),
                 "LANG": "C.UTF-8", "TMPDIR": str(self.path), MARK: self.mark}
        found.update(more)
        return {name: value for name, value in found.items() if value is not None}

    def run(self, *words, env=None, cwd=None, argv=None):
        done = subprocess.run(argv or [self.relay] + [str(word) for word in words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env or self.env(),
                              cwd=str(cwd or self.work), timeout=30)
        return Done(done.returncode, seemly(done.stdout), seemly(done.stderr))

    def look(self, *words, **options):
        """A command that changes nothing at all, and has nothing to say on stderr but an error."""
        before = self.tree()
        done = self.run(*words, **options)
        assert self.tree() == before
        return done

    def rows(self, *words, **options):
        """The rows of `config list --json`; its members are sorted."""
        done = self.look("config", "list", "--json", *words, **options)
        assert (done.status, done.err) == (0, ""), done
        found = json.loads(done.out)
        assert done.out.count("\n") == 1 and all(list(row) == sorted(row) for row in found), done.out
        return found

    def table(self, *words, **options):
        """The lines of `config list` behind its head."""
        done = self.look("config", "list", *words, **options)
        assert (done.status, done.err) == (0, ""), done
        lines = done.out.split("\n")
        assert lines.pop() == "" and lines.pop(0).split() == ["CLIENT", "SERVER", "KIND", "WRAPPED", "FILE"], done.out
        return lines

    def doctor(self, *words, status=0, **options):
        done = self.look("doctor", *words, **options)
        assert (done.status, done.err) == (status, ""), done
        return done.out

    def findings(self, *words, status=0, **options):
        """{what: finding} of `doctor --json`; the exit status says whether one of them is bad."""
        text = self.doctor("--json", *words, status=status, **options)
        found = json.loads(text)
        assert text.count("\n") == 1
        for one in found:
            assert list(one) == ["good", "mend", "text", "what"] and one["good"] in (True, False, None), one
            assert one["text"] and one["what"] and (one["mend"] or one["good"] is not False), one
        assert any(one["good"] is False for one in found) == bool(status)
        by_name = {one["what"]: one for one in found}
        assert len(by_name) == len(found), "two findings have one name"
        return by_name

    def printed_mends(self, status=1, words=(), **options):
        """{what is wrong: the command below its line, as it is printed}."""
        lines, found = self.doctor(*words, status=status, **options).splitlines(), {}
        for line, after in zip(lines, lines[1:] + [""]):
            if line.startswith("WRONG "):
                assert re.match(r" +mend it: \S", after), lines
                found[line[6:].partition(": ")[0].strip()] = after.partition("mend it: ")[2]
        return found

    def mended(self, what, *expect, words=(), tries=1, **options):
        """What is wrong is `what`; the commands for it, with these words in them, mend it as they are printed."""
        for number in range(tries):
            mends = self.printed_mends(words=words, **options)
            if not number:
                assert list(mends) == ([what] if isinstance(what, str) else list(what)), mends
                assert not expect or all(word in mend for word, mend in zip(expect * len(mends), mends.values())), mends
            for mend in mends.values():
                done = self.run(argv=["/bin/sh", "-c", mend], **options)
                assert done.status == 0, (mend, done)
            last = self.look("doctor", *words, **options)
            if last.status == 0:
                return
        raise AssertionError("still wrong: %s" % last.out)

    def config(self, action, client, server, *more, status=0, relay=None):
        words = ["config", action, "--client", client] + (["--all"] if server is None else ["--server=" + server])
        done = self.run(*words, *(["--relay", relay] if relay else []), *more)
        assert done.status == status, done
        return done

    def wrapped(self, client="cursor", relay=None, **servers):
        """The client's file with these servers, wrapped."""
        self.put(client, servers or {"s": entry("npx")})
        self.config("wrap", client, None, relay=relay)
        return self.file(client)


def seemly(raw):
    """Output as text: without control characters, tracebacks and what nobody may see."""
    text = raw.decode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), ascii(text)
    assert SECRET not in text and "Traceback" not in text, text
    return text


def entry(command, *args, **env):
    found = {"command": command, "args": list(args) or [SECRET]}
    return dict(found, env=env or {"TOKEN": SECRET})


def picked(rows, names):
    return [tuple(row[name] for name in names.split()) for row in rows]


def text_of(client, servers):
    """A file of this client with these servers, in the shape that it has."""
    if FILES[client].endswith(".toml"):
        return "".join(toml_table(name, members) for name, members in servers.items())
    entries = {name: shaped(client, members) for name, members in servers.items()}
    return json.dumps({ROOTS.get(client, "mcpServers"): entries})


def shaped(client, members):
    if client == "opencode" and isinstance(members, dict) and "command" in members:
        return {"type": "local", "command": [members["command"]] + members["args"], "environment": members["env"]}
    if client == "cline" and isinstance(members, dict) and "command" in members:
        return {"transport": dict(members, type="stdio")}
    return members


def toml_text(value):
    """A string, or an array of them: JSON's form but for DEL and characters beyond 16 bits."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_table(name, members):
    lines = ["[mcp_servers.%s]" % toml_text(name)]
    for key, value in members.items():
        if isinstance(value, dict):
            text = "{ %s }" % ", ".join("%s = %s" % (toml_text(one), toml_text(value[one])) for one in value)
        else:
            text = toml_text(value)
        lines.append("%s = %s" % (key, text))
    return "\n".join(lines) + "\n"


def entry_in(path, *names):
    found = json.loads(Path(path).read_bytes())
    for name in names or ("mcpServers", "s"):
        found = found[name]
    return found


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    return Kit(tmp_path_factory.mktemp("kit"))


@pytest.fixture
def place(tmp_path, kit, pool):
    made = Place(tmp_path, "doctor-%d-%s" % (os.getpid(), tmp_path.name), kit)
    yield made
    until(lambda: not marked(made.mark), 3.0, "the end of what was started")


# --------------------------------------------------------------------------------------------- config list

def test_4_the_default_file_of_every_client_is_found(place):
    """Issue 5, point 4: all thirteen, each with its own shape of a server."""
    for client in FILES:
        place.put(client, {"the-" + client: entry("npx")})
    assert picked(place.rows(), "client server file kind wrapped problem") == [
        (client, "the-" + client, str(place.file(client)), "stdio", False, None) for client in FILES]
    assert [line.split() for line in place.table()] == [
        [client, "the-" + client, "stdio", "no"] + str(place.file(client)).split() for client in FILES]
    found = place.findings()
    assert {"%s the-%s" % (client, client) for client in FILES} <= set(found)


def test_4_every_client_wrapped(place):
    """With nothing but the client's name; list and doctor know it in each shape; --client shows one only."""
    for client in FILES:
        place.wrapped(client)
    assert picked(place.rows(), "client server file wrapped managed relay") == [
        (client, "s", str(place.file(client)), True, True, place.relay) for client in FILES]
    assert [line.split()[:4] for line in place.table("--client=zed")] == [["zed", "s", "stdio", "yes"]]
    assert [row["client"] for row in place.rows("--client", "claude")] == ["claude"]
    found = place.findings()
    for client in FILES:
        assert found[client + " s"]["good"] is True and "wrapped" in found[client + " s"]["text"]


def test_4_variables_move_the_files(place):
    """CODEX_HOME, CLAUDE_CONFIG_DIR and, where it is honoured, XDG_CONFIG_HOME."""
    moved = {"codex": "codex here/config.toml", "claude": "claude here/.claude.json",
             "opencode": "xdg/opencode/opencode.jsonc",
             "zed": "xdg/zed/settings.json"}
    if LINUX:
        moved.update({"vscode": "xdg/Code/User/mcp.json", "claude-desktop": "xdg/Claude/claude_desktop_config.json"})
    for client, name in moved.items():
        place.put(client, {"at-home": entry("npx")})
        place.put(client, {"moved": entry("npx")}, place.path / name)
    variables = {"CODEX_HOME": "codex here", "CLAUDE_CONFIG_DIR": "claude here", "XDG_CONFIG_HOME": "xdg"}
    env = place.env(**{name: str(place.path / folder) for name, folder in variables.items()})
    assert {row["client"]: (row["server"], row["file"]) for row in place.rows(env=env)} == {
        client: ("moved", str(place.path / name)) for client, name in moved.items()}
    assert {client + " moved" for client in moved} <= set(place.findings(env=env))
    assert {row["server"] for row in place.rows(env=place.env(**dict.fromkeys(variables, "")))} == {"at-home"}


def test_4_opencode_has_two_names_for_its_file(place):
    path = place.put("opencode", {"s": entry("npx")}, place.home / ".config/opencode/opencode.json")
    assert [(row["client"], row["file"]) for row in place.rows()] == [("opencode", str(path))]
    place.put("opencode", {"t": entry("npx")})
    assert {row["server"] for row in place.rows()} == {"s", "t"}


def test_4_files_of_the_working_folder(place):
    for client, name in HERE.items():
        place.put(client, {"here-" + client: entry("npx")}, place.work / name)
    place.put("cursor", {"user": entry("npx")})
    rows = {(row["client"], row["server"]): row["file"] for row in place.rows()}
    expected = {(client, "here-" + client): str(place.work / name) for client, name in HERE.items()}
    expected["cursor", "user"] = str(place.file("cursor"))
    assert rows == expected
    assert [row["server"] for row in place.rows(cwd=place.path)] == ["user"]


def test_4_a_working_folder_that_is_gone(place):
    place.put("cursor", {"s": entry("npx")})
    gone = place.path / "gone"
    gone.mkdir()
    line = "cd '%s' && rmdir '%s' && mcp-lazy config list && mcp-lazy doctor" % (gone, gone)
    done = place.run(argv=["/bin/sh", "-c", line])
    assert done.status == 0 and "cursor  s" in done.out and "cursor s: is not wrapped" in done.out, done


def test_4_projects_of_claude(place):
    text = {"mcpServers": {"user": entry("npx")}, "projects": {
        "/projects/one": {"mcpServers": {"p": entry("npx")}},
        "/it's here": {"mcpServers": {"p": entry("npx"), "r": REMOTE}}, "/none": {}}}
    place.put("claude", json.dumps(text).encode())
    rows = place.rows()
    assert [(row["project"], row["server"], row["kind"]) for row in rows] == [
        (None, "user", "stdio"), ("/projects/one", "p", "stdio"), ("/it's here", "p", "stdio"),
        ("/it's here", "r", "remote")]
    lines = place.table()
    assert len(lines) == 4 and "/projects/one" in lines[1] and "/it's here" in lines[2]
    place.config("wrap", "claude", "p", "--project", "/it's here")
    assert [row["wrapped"] for row in place.rows()] == [False, False, True, False]


def test_4_the_same_file_is_listed_once(place):
    """The home folder as the working folder, a HOME that is a symlink, a file that is one."""
    place.put("cursor", {"s": entry("npx")})
    linked = place.path / "linked"
    linked.symlink_to(place.home)
    env = place.env(HOME=str(linked))
    assert len(place.rows(cwd=place.home)) == len(place.rows(cwd=place.home, env=env)) == len(place.rows(env=env)) == 1
    real = place.home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    os.rename(str(place.file("cursor")), str(real))
    place.file("cursor").symlink_to(real)
    assert [row["file"] for row in place.rows()] == [str(real)]
    assert len(place.rows(cwd=place.home)) == 1


def test_4_remote_and_broken_entries(place):
    servers = {
        "remote": REMOTE, "streamable": {"httpUrl": "https://%s/" % SECRET},
        "windsurf": {"serverUrl": "https://%s/" % SECRET},
        "both": dict(REMOTE, command="npx"), "number": 5, "list": [SECRET], "no-command": {"args": [SECRET]},
        "empty": {"command": ""}, "words": {"command": [SECRET, 4]}, "args": {"command": "npx", "args": SECRET},
        "env": {"command": "npx", "env": {"A": [SECRET]}},
        "fine": entry("npx")}
    place.put("cursor", servers)
    rows = {row["server"]: row for row in place.rows()}
    assert list(rows) == list(servers)
    assert [name for name, row in rows.items() if row["kind"] == "remote"] == [
        "remote", "streamable", "windsurf"]
    assert [name for name, row in rows.items() if row["problem"]] == [
        "both", "number", "list", "no-command", "empty", "words", "args", "env"]
    assert rows["fine"]["kind"] == "stdio" and not any(row["wrapped"] or row["managed"] for row in rows.values())
    assert len(place.table()) == len(servers)
    found = place.findings(status=1)
    assert {what for what, one in found.items() if one["good"] is False} == {
        "cursor " + name for name, row in rows.items() if row["problem"]}


def test_4_broken_files_are_rows_and_hide_no_other(place):
    """Each says what is wrong with it, without a word of what stands there."""
    secret = SECRET.encode()
    broken = {"claude": b'{"mcpServers": {', "claude-desktop": b'{"a": 1} ' + secret, "cursor": b"",
              "codex": b'[mcp_servers.s]\nargs = ["%s]\n' % secret,
              "grok": b"%s\n" % secret, "gemini": b"\xff\xfe{\0}\0",
              "qwen": b'{"mcpServers": {"s": {"env": {"A": "%s"} "b"}}}' % secret,
              "copilot": b'{"a": "\xff%s"}' % secret, "cline": b"[" * 100000, "opencode": b'{"mcp": {} /* '}
    for client, text in broken.items():
        place.put(client, text)
    place.put("vscode", {"s": entry("npx")})
    rows = {row["client"]: row for row in place.rows()}
    assert list(rows) == [client for client in FILES if client in broken or client == "vscode"]
    for client in broken:
        assert picked([rows[client]], "file server kind") == [(str(place.file(client)), None, None)]
        assert rows[client]["problem"]
    assert rows["vscode"]["kind"] == "stdio"
    assert len(place.table()) == len(rows)
    wrong = [one for one in place.findings(status=1).values() if one["good"] is False]
    assert len(wrong) == len(broken)
    for client in broken:
        assert any(str(place.file(client)) in one["what"] + one["text"] for one in wrong)
        place.file(client).unlink()
    place.findings()


def test_4_things_that_are_no_file(place):
    """None of them is waited for, or read without end."""
    made = {"cursor": os.mkdir, "claude": os.mkfifo, "gemini": lambda path: os.symlink("/dev/zero", path),
            "qwen": lambda path: os.symlink(path, path),
            "zed": lambda path: os.symlink("nothing", path)}
    for client, make in made.items():
        place.file(client).parent.mkdir(parents=True, exist_ok=True)
        make(str(place.file(client)))
    rows = {row["client"]: row for row in place.rows()}
    assert {"cursor", "claude", "gemini"} <= set(rows)
    assert all(row["problem"] and row["server"] is None for row in rows.values())
    assert len(place.table()) == len(rows)
    place.findings(status=1)


def test_4_files_without_servers(place):
    texts = ("{}", '{"mcpServers": {}}', '{"mcpServers": null}', '{"mcpServers": []}', "[]", "1",
             '{"projects": {"/x": 1}}')
    clients = [client for client in FILES if client not in ROOTS][:len(texts)]
    assert clients[0] == "claude"
    for client, text in zip(clients, reversed(texts)):
        place.put(client, text.encode())
    assert [(row["client"], row["server"], row["problem"]) for row in place.rows()] == [
        (client, None, None) for client in FILES if client in clients]
    assert len(place.table()) == len(clients)
    place.findings()


def test_4_nothing_at_all(place):
    assert place.rows() == []
    done = place.look("config", "list")
    assert done.status == 0 and done.out.count("\n") == 1 and "no client" in done.out


def test_4_wrapped_by_hand_or_not_any_more(place):
    """Case 205: a registration that somebody wrote anew is told from one that never was wrapped."""
    names = ("never", "managed", "rewritten")
    place.put("cursor", {name: entry("npx") for name in names})
    for name in names[1:]:
        place.config("wrap", "cursor", name)
    now = json.loads(place.file("cursor").read_bytes())["mcpServers"]
    now.update({"rewritten": entry("npx"), "hand": entry("/opt/MCP-Lazy-9", "npx"), "bare": entry("mcp-lazy", "npx")})
    place.put("cursor", now)
    expected = {"never": (False, False, "no"), "managed": (True, True, "yes"),
                "rewritten": (True, False, "not any more"),
                "hand": (False, True, "by hand"), "bare": (False, True, "by hand")}
    assert {row["server"]: (row["managed"], row["wrapped"]) for row in place.rows()} == {
        name: words[:2] for name, words in expected.items()}
    for line in place.table():
        name = line.split()[1]
        assert re.search(r" stdio +%s +/" % expected[name][2], line), line
    assert {row["server"]: row["relay"] for row in place.rows()} == {
        "never": None, "managed": place.relay, "rewritten": None, "hand": "/opt/MCP-Lazy-9", "bare": "mcp-lazy"}


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_4_no_name_disturbs_the_screen(place, client):
    """`seemly` looks at what is printed; every row keeps to its line, and --json has the names as they are."""
    servers = {name: entry("npx") for name in NAMES}
    place.put(client, servers)
    assert [row["server"] for row in place.rows()] == list(NAMES)
    assert len(place.table()) == len(NAMES)
    assert len([line for line in place.doctor().splitlines() if re.match(r"\S+ +%s " % client, line)]) == len(NAMES)


def test_4_names_that_are_no_text(place):
    """Lone surrogates, which a client's JSON may hold, in every place of it."""
    odd = '"a\\ud800b"'
    text = ('{"mcpServers": {@: {"command": "npx"}, "c": {"command": @}, "w": {"command": "mcp-lazy", "args": [@],'
            ' "env": {@: @}}}, "projects": {@: {"mcpServers": {@: {"command": "npx"}}}}}')
    place.put("claude", text.replace("@", odd).encode())
    assert {row["server"] for row in place.rows()} == {"a\ud800b", "c", "w"}
    assert len(place.table()) == 4
    assert "a?b" in place.look("doctor").out


def test_4_a_table_stays_narrow_beside_a_broken_file(place):
    """What is wrong with one file does not push the columns of all the others aside."""
    place.put("claude", b'{"mcpServers": {')
    place.put("cursor", {"s": entry("npx")})
    fine = place.table()[1]
    assert len(fine) < 60 + len(str(place.file("cursor"))), fine


def test_4_command_line_of_list(place):
    for words in (["--client", "nobody"], ["--client="], ["--nonsense"], ["x"], ["--server", "s"]):
        done = place.look("config", "list", *words)
        assert done.status == 2 and not done.out and done.err.startswith("mcp-lazy: "), (words, done)
    done = place.look("config", "list", env=place.env(HOME=None))
    assert done.status == 2 and "HOME" in done.err and "--state-dir" in done.err
    place.put("cursor", {"here": entry("npx")}, place.work / ".cursor" / "mcp.json")
    rows = place.rows("--state-dir", place.path / "state", env=place.env(HOME=None))
    assert [row["server"] for row in rows] == ["here"]
    assert not (place.path / "state").exists()


# --------------------------------------------------------------------------------------------- doctor

def test_7_what_doctor_says_of_itself(place):
    """Point 7: Python version and paths, process title, folders and their modes."""
    place.wrapped()
    text = place.doctor()
    assert "%d.%d.%d" % sys.version_info[:3] in text and str(place.kit.python / "python3") in text
    version = place.run("--version").out.split()[-1]
    assert version in text and "process title" in text
    for folder in (place.home / ".cache" / "mcp-lazy", place.state, place.home / ".cache" / "mcp-lazy" / "bytecode"):
        assert re.search("%s.*0?700" % re.escape(str(folder)), text), folder
    moved = place.findings(env=place.env(MCP_LAZY_CACHE_DIR=str(place.path / "recordings")))
    assert str(place.path / "recordings") in json.dumps(list(moved.values()))
    assert not (place.path / "recordings").exists()


def test_7_text_and_json_say_the_same(place):
    place.put("cursor", {"fine": entry("npx"), "hand": entry("/gone/mcp-lazy", "npx"), "remote": REMOTE})
    found = place.findings(status=1)
    lines = place.doctor(status=1).splitlines()
    said = [re.match(r"(ok|WRONG|-) +(.*)$", line) for line in lines if not line.startswith("  ")]
    marks = {True: "ok", False: "WRONG", None: "-"}
    assert [(match.group(1), match.group(2)) for match in said] == [
        (marks[one["good"]], "%s: %s" % (one["what"], one["text"])) for one in found.values()]


def test_7_what_is_not_wrong_asks_for_no_mending(place):
    """A registration that nobody wrapped is no fault: it has no "mend it" below it."""
    place.put("cursor", {"s": entry("npx"), "r": REMOTE})
    assert "mend it" not in place.doctor()


def test_7_command_line_of_doctor(place):
    for words in (["x"], ["--nonsense"], ["--state-dir"], ["--json=perhaps"]):
        done = place.look("doctor", *words)
        assert done.status == 2 and not done.out and done.err.startswith("mcp-lazy: "), (words, done)
    for word in ("-h", "--help"):
        assert "--state-dir" in place.doctor(word) and "starts no server" in place.doctor(word)
    assert place.doctor("-json", "--state-dir=%s" % place.state).startswith("[")


def test_7_without_a_home(place):
    done = place.look("doctor", env=place.env(HOME=None))
    assert done.status == 2 and "HOME" in done.err and "--state-dir" in done.err and done.err.count("\n") == 1
    assert not done.err.startswith("mcp-lazy: config"), "it is doctor that was started"
    assert "mcp-lazy" in place.findings("--state-dir", place.state, env=place.env(HOME=None))


def test_7_nobody_reads_it(place):
    """A full pipe or a closed stdout is status 1 with a line, as for every command of ours."""
    done = place.run(argv=["/bin/sh", "-c", "mcp-lazy doctor >&-"])
    assert done.status == 1 and "stdout" in done.err and done.err.count("\n") == 1, done


def test_7_no_server_is_started(place):
    """Only the relay is, once for all its registrations, and with nothing of theirs."""
    script, started = place.path / "server.py", place.path / "started"
    script.write_text(SERVER)
    relay = place.program("mcp-lazy-noting", 'echo "$@" >> %s/relay-words; exec %s "$@"\n' % (place.path, place.relay))
    place.wrapped(relay=relay, one=entry("python3", str(script), str(started)), two=entry(str(script), str(started)))
    for client in ("claude", "zed", "codex"):
        place.wrapped(client, relay=relay, s=entry("python3", str(script), str(started)))
    place.put("gemini", {"direct": entry("python3", str(script), str(started))})
    assert not (place.path / "relay-words").exists()
    found = place.findings()
    wrapped = ("cursor one", "cursor two", "claude s", "zed s", "codex s")
    assert [found[name]["good"] for name in wrapped + ("gemini direct",)] == [True] * 5 + [None]
    assert not started.exists()
    assert (place.path / "relay-words").read_text() in ("--version\n", "paths\n")
    place.table()
    assert (place.path / "relay-words").read_text().count("\n") == 1


def test_7_no_program_of_a_project_file_is_started(place):
    """A folder that was cloned may name any program "mcp-lazy-x"; looking at it must not run it."""
    place.program("work/mcp-lazy-x", "touch %s/ran\n" % place.path)
    for client, name in HERE.items():
        place.put(client, {"s": entry("./mcp-lazy-x", "npx"), "t": entry(str(place.work / "mcp-lazy-x"), "npx")},
                  place.work / name)
    place.look("doctor")
    place.look("config", "list")
    assert not (place.path / "ran").exists()


def test_7_a_relative_path_is_not_started(place):
    """The folder that a client starts in is not known, and the one of doctor may be anybody's."""
    (place.work / "tools").mkdir()
    place.program("work/tools/mcp-lazy", "touch %s/ran\n" % place.path)
    place.put("cursor", {"s": entry("tools/mcp-lazy", "npx"), "t": entry("./tools/mcp-lazy", "npx")})
    assert "cursor s" in place.look("doctor").out
    assert not (place.path / "ran").exists()


def test_7_same_names(place):
    """Which of them is meant stands in the line itself: no two begin alike."""
    projects = {folder: {"mcpServers": {"s": entry("npx")}} for folder in ("/one", "/two")}
    place.put("claude", json.dumps({"mcpServers": {"s": entry("npx")}, "projects": projects}).encode())
    place.put("claude", {"s": entry("npx")}, place.work / HERE["claude"])
    for path in (None, place.work / HERE["cursor"]):
        place.put("cursor", {"s": entry("npx")}, path)
    found = place.findings()
    assert len([what for what in found if what.startswith("claude")]) == 4
    assert len([what for what in found if what.startswith("cursor")]) == 2


# -- what is wrong, and what mends it

def test_7_a_relay_that_is_gone(place):
    """In every shape of a registration."""
    relay = place.program("mcp-lazy-old", "exit 0\n")
    clients = ("claude", "cursor", "codex", "cline", "opencode", "zed")
    for client in clients:
        place.wrapped(client, relay=relay)
    place.findings()
    os.unlink(relay)
    assert all(relay in place.findings(status=1)[client + " s"]["text"] for client in clients)
    place.mended([client + " s" for client in clients], "reapply")
    for client in clients:
        assert place.relay in place.file(client).read_text() and relay not in place.file(client).read_text()


def test_7_relays_that_do_not_start(place):
    texts = {"exit": "#!/bin/sh\nexit 3\n", "mode": "#!/bin/sh\n", "interpreter": "#!/nonexistent/python\n",
             "empty": "", "rubbish": "\x7fELF rubbish",
             "killed": "#!/bin/sh\nkill -9 $$\n", "folder": None}
    place.put("cursor", {name: entry("npx") for name in texts})
    for name in texts:
        place.config("wrap", "cursor", name, relay=place.program("mcp-lazy-" + name, "exit 0\n"))
    place.findings()
    for name, text in texts.items():
        relay = place.path / ("mcp-lazy-" + name)
        relay.write_text(text or "")
        if name == "mode":
            relay.chmod(0o644)
        elif text is None:
            relay.unlink()
            relay.mkdir()
    place.mended(["cursor " + name for name in texts], "reapply")
    assert all(members["command"] == place.relay for members in entry_in(place.file("cursor"), "mcpServers").values())


def test_7_what_a_relay_prints_is_not_shown(place):
    relay = place.program("mcp-lazy-old", "exit 0\n")
    place.wrapped(relay=relay)
    place.program("mcp-lazy-old", "cat; echo %s; echo %s >&2; exit 3\n" % (SECRET, SECRET))
    place.findings(status=1)


def test_7_relays_that_stand_in_path_alone(place):
    """`mcp-lazy` without a slash is looked for as a client would."""
    place.put("cursor", {"s": entry("mcp-lazy", "npx"), "t": entry("mcp-lazy-nowhere", "npx")})
    found = place.findings(status=1)
    assert found["cursor s"]["good"] is True and found["cursor t"]["good"] is False


def test_7_a_relay_by_hand_that_is_gone(place):
    """No record tells what was there before; a recovery takes it out, or the words say what to edit (D5.5)."""
    args = {"plain": ["npx", "-y", "x"], "option": ["--idle-stop", "5m", "npx"], "dashes": ["--", "npx"],
            "both": ["-verbose", "--", "npx"]}
    for client in ("cursor", "codex"):
        place.put(client, {name: entry("/gone/mcp-lazy", *words) for name, words in args.items()})
    mends = place.printed_mends()
    assert list(mends) == ["%s %s" % (client, name) for client in ("cursor", "codex") for name in args]
    for what, mend in mends.items():
        if mend.startswith("mcp-lazy "):
            assert place.run(argv=["/bin/sh", "-c", mend]).status == 0
        else:
            assert what.split()[1] != "plain" and str(place.file(what.split()[0])) in mend, mend
    left = place.printed_mends()
    assert list(left) == [what for what, mend in mends.items() if not mend.startswith("mcp-lazy ")]


def test_7_another_relay_than_the_recorded_one(place):
    """Somebody put the path of another relay there, which is gone: two commands at most and all is well."""
    path = place.wrapped()
    path.write_text(path.read_text().replace(place.relay, "/gone/mcp-lazy"))
    place.mended("cursor s", tries=2)
    assert "/gone" not in path.read_text()


def test_7_not_wrapped_any_more(place):
    clients = ("claude", "cursor", "codex", "opencode")
    for client in clients:
        place.wrapped(client)
        place.put(client, {"s": entry("npx")})
    place.mended([client + " s" for client in clients], "reapply")
    assert all(place.relay in place.file(client).read_text() for client in clients)


@pytest.mark.parametrize("home", ["it's a \"b\" $c `d`", "-home;& é"])
def test_7_the_command_is_quoted(tmp_path, kit, home):
    """HOME, names and projects with everything that a shell has a meaning for."""
    place = Place(tmp_path, "doctor-%d-%s" % (os.getpid(), tmp_path.name), kit, home)
    name, project = "a 'b' \"c\" $HOME `x`; --all", "/p/it's \"$HOME\""
    place.put("claude", json.dumps({"projects": {project: {"mcpServers": {name: entry("npx")}}}}).encode())
    place.config("wrap", "claude", name, "--project", project)
    place.put("claude", json.dumps({"projects": {project: {"mcpServers": {name: entry("npx")}}}}).encode())
    what, = place.printed_mends()
    assert what.startswith("claude " + name) and project in what
    place.mended(what, "reapply")
    assert entry_in(place.file("claude"), "projects", project, "mcpServers", name)["command"] == place.relay


def test_7_names_with_control_characters_are_whole_in_json(place):
    """What is printed cannot be the name then; the command of --json is the right one."""
    name = "two\nlines \x1b[31m"
    place.wrapped(**{name: entry("npx")})
    place.put("cursor", {name: entry("npx")})
    wrong, = [one for one in place.findings(status=1).values() if one["good"] is False]
    assert place.run(argv=["/bin/sh", "-c", wrong["mend"]]).status == 0
    place.findings()


def test_7_the_command_names_the_program_that_was_started(place):
    """By its path, where PATH does not lead to it."""
    place.wrapped()
    place.put("cursor", {"s": entry("npx")})
    place.mended("cursor s", "reapply", env=place.env(PATH="%s:%s" % (place.kit.python, os.environ["PATH"])))


def test_7_the_state_folder_that_was_given_is_in_the_command(place):
    state = place.path / "other state"
    place.put("cursor", {"s": entry("npx")})
    place.config("wrap", "cursor", "s", "--state-dir", str(state))
    place.put("cursor", {"s": entry("npx")})
    place.mended("cursor s", "reapply", words=("--state-dir", str(state)))
    assert list(state.glob("*.json")) and not place.records()


def test_7_folders_that_others_may_write_to(place):
    """Each of them stops something: recordings are not used, records not kept, bytecode not cached."""
    place.wrapped()
    state, cache = ".config/mcp-lazy/registrations", ".cache/mcp-lazy"
    modes = {cache: 0o777, cache + "/bytecode": 0o770, state: 0o702, state + "/locks": 0o777, state + "/backups": 0o720}
    (place.home / cache).chmod(0o755)
    (place.home / state).chmod(0o750)
    place.findings()
    for name, mode in modes.items():
        (place.home / name).chmod(mode)
    wrong = [one for one in place.findings(status=1).values() if one["good"] is False]
    assert len(wrong) == len(modes)
    for name, mode in modes.items():
        assert any(str(place.home / name) in one["text"] and "%o" % mode in one["text"] for one in wrong), wrong
    place.mended([one["what"] for one in wrong], "chmod")
    for name in modes:
        assert (place.home / name).stat().st_mode & 0o722 == 0o700


def test_7_folders_that_their_owner_may_not_use(place):
    """By the mode alone, so that it is seen by root too; what is needed is a right, not a removal."""
    place.wrapped()
    for path, mode in ((place.state, 0o500), (place.state / "locks", 0o300),
                       (place.home / ".cache" / "mcp-lazy", 0o400)):
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        wrong, = [one for one in place.findings(status=1).values() if one["good"] is False and str(path) in one["text"]]
        place.mended(wrong["what"], "chmod")
        assert path.stat().st_mode & 0o777 == before
    assert place.records()


@pytest.mark.parametrize("what", ["file", "dangling"])
def test_7_something_else_where_a_folder_should_be(place, what):
    recordings = place.path / "recordings"
    for path in (recordings, place.state):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x") if what == "file" else path.symlink_to("nothing")
    env = place.env(MCP_LAZY_CACHE_DIR=str(recordings))
    wrong = [one for one in place.findings(status=1, env=env).values() if one["good"] is False]
    for path in (recordings, place.state):
        assert [one for one in wrong if str(path) in one["text"]], wrong
    place.put("cursor", {"s": entry("npx")})
    place.mended([one["what"] for one in wrong], env=env)
    place.config("wrap", "cursor", "s")


def test_7_a_folder_that_is_a_link_is_fine(place):
    """Dotfiles and other disks."""
    place.wrapped()
    os.rename(str(place.state), str(place.path / "elsewhere"))
    place.state.symlink_to(place.path / "elsewhere")
    place.findings()


def test_7_records_that_are_not_valid(place):
    """D2.5: nothing goes on with them; the command that mends it is about the record, not about the client's file."""
    damages = (b"", b"{}", b"not json " + SECRET.encode(), b'{"schema": 2}', "other file")
    names = ["s%d" % number for number in range(len(damages))]
    path = place.wrapped(**{name: entry("npx") for name in names})
    records = {json.loads(record.read_bytes())["server"]: record for record in place.records()}
    for name, damage in zip(names, damages):
        raw = records[name].read_bytes()
        other = raw.replace(str(path).encode(), b"/another/file.json")
        records[name].write_bytes(other if damage == "other file" else damage)
    before, found = path.read_bytes(), place.findings(status=1)
    for name in names:
        one = found["cursor " + name]
        assert str(records[name]) in one["text"] and str(records[name]) in one["mend"]
    place.mended(["cursor " + name for name in names])
    assert path.read_bytes() == before and all(row["wrapped"] for row in place.rows())


def test_7_a_strict_client_with_comments(place):
    """Case 081: the client will not load its file."""
    place.put("claude", b'{"mcpServers": {"s": {"command": "npx"}} /* why */}')
    assert any("comment" in (row["problem"] or "") for row in place.rows())
    wrong, = [one for one in place.findings(status=1).values() if one["good"] is False]
    assert "comment" in wrong["text"]
    place.put("cursor", b'{"mcpServers": {"s": {"command": "npx"}} /* why */}')
    assert not any(row["problem"] for row in place.rows("--client", "cursor"))


def test_7_arguments_that_the_relay_refuses(place):
    """The option is named, its value is not shown."""
    servers = {"idle-stop": (["--idle-stop", SECRET, "npx"], {}), "flag": (["--%s" % SECRET, "npx"], {}),
               "COMMAND": ([], {}), "MCP_LAZY_IDLE_STOP": (["npx"], {"MCP_LAZY_IDLE_STOP": SECRET}),
               "name": (["--name", "../" + SECRET, "npx"], {}),
               "wake-command": (["--wake-command", SECRET, "npx"], {}),
               "cache-scope": (["--cache-scope", SECRET, "npx"], {})}
    place.put("cursor", {
        name: {"command": place.relay, "args": args, "env": env} for name, (args, env) in servers.items()})
    found = place.findings(status=1)
    for name in servers:
        one = found["cursor " + name]
        assert one["good"] is False and name in one["text"] and str(place.file("cursor")) in one["mend"], one


WRONG_VARIABLES = (
    {"MCP_LAZY_IDLE_STOP": "10 minutes"}, {"MCP_LAZY_STOP_GRACE": "0"}, {"MCP_LAZY_DRAIN": "-1s"},
    {"MCP_LAZY_VERBOSE": "perhaps"}, {"MCP_LAZY_MAX_LINE": "1e3"}, {"MCP_LAZY_IDLE_TIMEOUT_MIN": "soon"},
    {"MCP_LAZY_STDERR": "nowhere"}, {"MCP_LAZY_NAME": "a/b"}, {"MCP_LAZY_WAKE_COMMAND": "true"},
    {"MCP_LAZY_CACHE_SCOPE": "moon"},
    {"MCP_LAZY_DRAIN": "-1s", "MCP_LAZY_VERBOSE": "perhaps", "MCP_LAZY_CACHE_DIR": "/c"})


@pytest.mark.parametrize("wrong", WRONG_VARIABLES, ids=" ".join)
def test_7_variables_of_ours_that_the_relay_refuses(place, wrong):
    """Whatever the relay's text looks like: the command gives up each one that is wrong and no other, and mends it."""
    path = place.wrapped()
    members = entry_in(path)
    place.put("cursor", {"s": dict(members, env=wrong)})  # as one that an older version wrote
    record, = place.records()
    record.write_bytes(json.dumps(dict(json.loads(record.read_text()), managedEnv=wrong,
                                       baseEnv=dict.fromkeys(wrong))).encode())
    mend, = place.printed_mends().values()
    refused = sorted(set(wrong) - {"MCP_LAZY_CACHE_DIR"})
    assert sorted(re.findall("--unset-env (\\w+)", mend)) == refused and "wrap" in mend
    place.mended("cursor s")
    assert entry_in(path).get("env", {}) == {name: wrong[name] for name in wrong if name not in refused}


def test_7_entries_that_make_no_sense_end_in_a_finding(place):
    entries = [{"command": "mcp-lazy\0x", "args": ["npx"]}, {"args": ["np\0x"]}, {"args": ["npx"], "env": {"A": "\0"}},
               {"args": ["npx"], "env": {"A=B": "x", "": "y"}}, {"args": ["--log-file", "/a\0b", "npx"]},
               {"args": ["--cache-dir", "/a\0b", "npx"]},
               {"args": ["--log-file", "/dev/zero", "npx"]}, {"args": ["--cache-dir", "/dev/null", "npx"]},
               {"args": ["--check", "npx"]}, {"args": ["--version"]}, {}, {"args": ["doctor"]},
               {"args": ["--name", "n", "npx"], "env": {"HOME": ""}}]
    place.put("cursor", {
        "s%d" % number: dict({"command": "mcp-lazy"}, **members) for number, members in enumerate(entries)})
    found = {one["what"] for one in json.loads(place.look("doctor", "--json").out)}
    assert {"cursor s%d" % number for number in range(len(entries))} <= found


# -- recordings and logs

@pytest.fixture
def recorded(place):
    """A wrapped server with a recording, and the words of the server."""
    script = place.path / "server.py"
    script.write_text(SERVER)
    words = ["python3", str(script), str(place.path / "started")]
    place.wrapped(s=entry(*words))
    assert "not recorded" in place.findings()["cursor s"]["text"]
    assert place.run("--check", "--", *words).status == 0
    (place.path / "started").unlink()
    return place


def test_7_a_recording_and_its_age(recorded):
    assert re.search(r"recorded \d+ s ago", recorded.findings()["cursor s"]["text"])
    path, = recorded.recordings()
    for back_s, words in ((180, "3 min"), (3600 * 5, "5 h"), (86400 * 40, "40 d")):
        old = str(int((time.time() - back_s) * 1000)).encode()
        path.write_bytes(re.sub(rb'("recordedAt"|"at"|"openedAt"):\d+', rb"\1:" + old, path.read_bytes()))
        assert "recorded %s ago" % words in recorded.findings()["cursor s"]["text"]
    assert not (recorded.path / "started").exists()
    path.unlink()
    assert recorded.findings()["cursor s"]["good"] is True


def test_7_a_recording_that_is_damaged(recorded):
    """`cache check` calls it a fault, so does doctor; its command takes it away."""
    path, = recorded.recordings()
    raw = path.read_bytes()
    for damaged in (raw[:len(raw) // 2], b"", SECRET.encode() * 9):
        path.write_bytes(damaged)
        recorded.mended("cursor s")
        assert not path.exists()
    assert not (recorded.path / "started").exists()


def test_7_a_recording_where_the_registration_says(recorded):
    """A relay's own settings, in its arguments or variables, count."""
    place, path = recorded, recorded.recordings()[0]
    words = [str(word) for word in entry_in(place.file("cursor"))["args"]]
    (place.path / "kept").mkdir(mode=0o700)
    path.rename(place.path / "kept" / path.name)
    assert "not recorded" in place.findings()["cursor s"]["text"]
    for members in ({"args": ["--cache-dir", str(place.path / "kept")] + words},
                    {"env": {"MCP_LAZY_CACHE_DIR": str(place.path / "kept")}}):
        place.put("gemini", {"s": dict({"command": place.relay, "args": words}, **members)})
        assert re.search(r"recorded \d+ s ago", place.findings()["gemini s"]["text"]), members


def test_7_the_last_error_of_a_log(place):
    """Point 7: the end of the log says why the last server did not start; lines that went well do not count."""
    log, gone = place.path / "relay.log", place.path / "no-such-server"
    place.put("cursor", {"s": entry(str(gone))})
    place.config("wrap", "cursor", "s", "--env", "MCP_LAZY_LOG_FILE=%s" % log)
    assert "last error" not in place.findings()["cursor s"]["text"]
    asked = encode(initialize(1))
    relay = subprocess.Popen([place.relay, str(gone)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env=place.env(MCP_LAZY_LOG_FILE=str(log)))
    try:
        relay.stdin.write(asked)
        relay.stdin.flush()
        assert select.select([relay.stdout], [], [], WAIT_S)[0] and b'"error"' in os.read(relay.stdout.fileno(), 65536)
    finally:
        relay.stdin.close()
        relay.wait(WAIT_S)
        relay.stdout.close()
    text = place.findings()["cursor s"]["text"]
    assert "last error: " in text and "cannot start" in text, text
    with open(str(log), "a") as file:
        file.write("mcp-lazy[1] 00:00:00.000 cannot start \x1b[31mred\r\nmcp-lazy[1] 00:00:00.000 all is well\n")
    assert "cannot start" in place.findings()["cursor s"]["text"].rpartition("last error: ")[2]


def test_7_the_last_error_is_a_server_that_ends_at_once(place):
    """What goes wrong most often; "server exited" is a fault when its status is one."""
    log = place.path / "relay.log"
    place.put("cursor", {"s": entry("false")})
    place.config("wrap", "cursor", "s", "--env", "MCP_LAZY_LOG_FILE=%s" % log)
    log.write_text("mcp-lazy[7] 10:00:00.000 starting the server, generation 1: no recorded handshake\n"
                   "mcp-lazy[7] 10:00:00.010 server exited (exit status 1)\n")
    assert "exited (exit status 1)" in place.findings()["cursor s"]["text"]


def test_7_many_recordings_are_read_once(recorded):
    """Sixty registrations beside sixty recordings: seconds if each registration read all of them."""
    path, = recorded.recordings()
    raw = path.read_bytes().replace(b'{"tools": []}', b'{"tools": [%s]}' % b",".join(
        b'{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}' % (n, b"d" * 1000) for n in range(150)))
    assert len(raw) > 150000
    path.write_bytes(raw)
    for number in range(59):
        (path.parent / ("%032x.json" % number)).write_bytes(raw)
    members = entry_in(recorded.file("cursor"))
    recorded.put("gemini", {"s%d" % number: members for number in range(60)})
    start_s = cpu_of_children()
    text = recorded.doctor()
    assert len(re.findall(r"recorded \d+ \w+ ago", text)) == 61
    assert cpu_of_children() - start_s < 2.0


def cpu_of_children():
    times = os.times()
    return times.children_user + times.children_system


# --------------------------------------------------------------------------------------------- scenarios

class Watcher:
    """A running `config watch`, and what it says."""

    def __init__(self, place, *words, stdout=None):
        self.place, self.path = place, place.path / ("said-%d" % time.monotonic_ns())
        self.file = open(str(self.path), "wb")
        self.process = subprocess.Popen([place.relay, "config", "watch"] + list(words), stdin=subprocess.DEVNULL,
                                        stdout=stdout or self.file,
                                        stderr=self.file, env=place.env(), cwd=str(place.work))
        self.pid = self.process.pid

    def said(self):
        return seemly(self.path.read_bytes())

    def reports(self):
        """The reports of what was changed."""
        found = [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]
        return [one for one in found if one["changedFields"]]

    def ready(self):
        """It waits for the first time: it listens to signals, and knows which file it is about."""
        if LINUX:
            until(lambda: "anon_inode:[eventpoll]" in fds(self.pid).values() and proc_stat(self.pid)["state"] == "S",
                  WAIT_S, "a watcher")
        return self

    def end(self, signum=signal.SIGTERM):
        """Ends with 0 within a second, at whatever moment."""
        start_s = time.monotonic()
        self.process.send_signal(signum)
        status = self.process.wait(10)
        took_s = time.monotonic() - start_s
        self.file.close()
        assert status == 0 and took_s < 1.0, (signum, status, took_s, self.said())
        return self.said()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.file.close()


def is_wrapped(path, relay):
    """Is every server of a JSON file behind the relay? None while it is not whole."""
    try:
        found = json.loads(Path(path).read_bytes())["mcpServers"]
    except (OSError, ValueError):
        return None
    return bool(found) and all(members["command"] == relay for members in found.values())


def rewrapped(place, client="cursor", timeout=20.0):
    until(lambda: is_wrapped(place.file(client), place.relay), timeout, "the reapply")


def watch_rename(place, watching):
    """D8.6: another program's rewrite by rename is wrapped again, and what was done is printed."""
    place.wrapped()
    watcher = watching("--client", "cursor", "--server", "s")
    place.replace("cursor", {"s": entry("newer")})
    rewrapped(place)
    assert entry_in(place.file("cursor"))["args"][0] == "newer"
    until(watcher.reports, WAIT_S, "a report")
    said = watcher.end()
    report, = watcher.reports()
    assert (report["action"], report["server"], report["file"]) == ("reapply", "s", str(place.file("cursor")))
    assert report["changedFields"] == ["args", "command"] and "restart or reconnect cursor" in said


def watch_in_place(place, watching):
    """D8.6: the same for a rewrite of the file itself; and once more; its own writes do not start it again."""
    place.wrapped()
    watcher = watching("--client", "cursor", "--all")
    for number in (1, 2):
        place.put("cursor", {"s": entry("newer-%d" % number)})
        rewrapped(place)
        until(lambda: len(watcher.reports()) == number, WAIT_S, "a report")
    before = place.file("cursor").stat()
    held_for(lambda: place.file("cursor").stat().st_mtime_ns == before.st_mtime_ns, 3.5)
    assert len(watcher.reports()) == 2 and watcher.process.poll() is None
    watcher.end(signal.SIGINT)


def watch_codex(place, watching):
    """D8.6 in TOML, where the client drops comments and order at each rewrite."""
    place.wrapped("codex")
    watcher = watching("--client=codex", "--server=s")
    place.replace("codex", {"s": entry("newer"), "t": entry("npx")})
    until(lambda: json.dumps(place.relay) in place.file("codex").read_text(), 20.0, "the reapply")
    assert place.file("codex").read_text().count(json.dumps(place.relay)) == 1
    watcher.end(signal.SIGHUP)


def watch_quiet(place, watching):
    """D8.6: nothing is done while the file was written within the last 2 s."""
    place.wrapped()
    watcher = watching("--client", "cursor", "--server", "s").ready()
    end_s, number = time.monotonic() + 4.5, 0
    while time.monotonic() < end_s:
        number += 1
        place.replace("cursor", {"s": entry("newer-%d" % number)})
        written_s = time.monotonic()
        held_for(lambda: entry_in(place.file("cursor"))["command"] == "newer-%d" % number, 0.4)
    rewrapped(place)
    assert time.monotonic() - written_s >= QUIET_S - 0.1
    assert entry_in(place.file("cursor"))["args"][0] == "newer-%d" % number
    watcher.end()


def held_for(condition, time_s):
    """A condition that has to hold all the time."""
    end_s = time.monotonic() + time_s
    while time.monotonic() < end_s:
        assert condition()
        time.sleep(0.02)


def watch_locked(place, watching):
    """D8.6: never while the lock is taken; once it is free the work is done."""
    path = place.wrapped()
    lock = os.open(str(place.lock(path)), os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher = watching("--client", "cursor", "--server", "s").ready()
        place.put("cursor", {"s": entry("newer")})
        held_for(lambda: entry_in(path)["command"] == "newer", 4.2)
        if LINUX:  # it does not even ask for the lock, which a command does every 50 ms
            turns = switches(watcher.pid)
            held_for(lambda: entry_in(path)["command"] == "newer", 1.5)
            assert switches(watcher.pid) - turns < 12
        assert watcher.process.poll() is None and watcher.said() == "", watcher.said()
    finally:
        os.close(lock)
    rewrapped(place)
    watcher.end()


def watch_survives(place, watching):
    """A file that is broken is named once, one that is gone is waited for, and what comes back is wrapped."""
    path = place.wrapped()
    watcher = watching("--client", "cursor", "--server", "s").ready()
    place.put("cursor", b'{"mcpServers": {"s": "%s' % SECRET.encode())
    until(lambda: str(path) in watcher.said(), 20.0, "a word about the broken file")
    path.unlink()
    held_for(lambda: watcher.process.poll() is None, 2.5)
    shutil.rmtree(str(path.parent))
    place.put("cursor", {"s": entry("back")})
    rewrapped(place)
    assert len([line for line in watcher.said().splitlines() if "line 1" in line]) == 1, watcher.said()
    watcher.end()


def watch_nothing_yet(place, watching):
    """--all of a file that is not there at the start: it waits for it like --server does."""
    path = place.wrapped()
    text = place.file("cursor").read_bytes()
    path.unlink()
    watcher = watching("--client", "cursor", "--all").ready()
    held_for(lambda: watcher.process.poll() is None, 1.5)
    place.put("cursor", text)
    place.put("cursor", {"s": entry("back")})
    rewrapped(place)
    watcher.end()


def watch_broken_at_start(place, watching):
    """The same with a file that cannot be read."""
    place.wrapped()
    place.put("cursor", b'{"mcpServers": ')
    watcher = watching("--client", "cursor", "--all").ready()
    held_for(lambda: watcher.process.poll() is None, 1.5)
    place.put("cursor", {"s": entry("back")})
    rewrapped(place)
    watcher.end()


def watch_busy(place, watching):
    """What is written while it works is not lost: here it hangs in its report, as behind Ctrl-S, meanwhile."""
    path = place.wrapped()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    try:
        while True:
            filled += os.write(writer, b"-" * 1024)
    except BlockingIOError:
        os.set_blocking(writer, True)
    watcher = watching("--client", "cursor", "--server", "s", stdout=writer)
    os.close(writer)
    place.put("cursor", {"s": entry("newer")})
    rewrapped(place)
    place.put("cursor", {"s": entry("newest")})
    while filled > 0:
        filled -= len(os.read(reader, 65536))
    rewrapped(place)
    assert entry_in(path)["args"][0] == "newest"
    watcher.end()
    os.close(reader)


def watch_link(place, watching):
    """Qwen, Copilot and Cline put a file where a symlink was: what the client reads is wrapped, or it says why not."""
    real = place.home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    place.put("cursor", {"s": entry("npx")}, real)
    place.file("cursor").parent.mkdir()
    place.file("cursor").symlink_to(real)
    place.config("wrap", "cursor", "s")
    watcher = watching("--client", "cursor", "--server", "s").ready()
    place.replace("cursor", {"s": entry("newer")})
    until(lambda: is_wrapped(place.file("cursor"), place.relay) or "mcp-lazy: " in watcher.said(), 12.0, "a word")
    watcher.end()


def watch_ends(place, watching):
    """0 within a second after each of the signals, asleep or just started, and nothing is left."""
    place.wrapped()
    watchers = [watching("--client", "cursor", "--server", "s").ready() for _ in range(3)]
    for watcher, signum in zip(watchers, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        watcher.end(signum)
    early = watching("--client", "cursor", "--server", "s")
    early.process.send_signal(signal.SIGTERM)
    assert early.process.wait(10) in (0, -signal.SIGTERM)  # before line 1 runs nobody can catch it


def watch_idle(place, watching):
    """No processor time, no process, no more descriptors while nothing happens."""
    place.wrapped()
    watcher = watching("--client", "cursor", "--server", "s").ready()
    before = place.file("cursor").stat().st_mtime_ns
    until(lambda: watcher.said(), 20.0, "its first look") if watcher.said() else held_for(lambda: True, 3.5)
    used_s, turns, held = cpu_s(watcher.pid), switches(watcher.pid), len(os.listdir("/proc/%d/fd" % watcher.pid))
    held_for(lambda: not children(watcher.pid), 3.0)
    assert cpu_s(watcher.pid) - used_s <= 0.02
    assert switches(watcher.pid) - turns <= 20
    assert len(os.listdir("/proc/%d/fd" % watcher.pid)) == held
    assert place.file("cursor").stat().st_mtime_ns == before
    watcher.end()


def switches(pid):
    """How often a process has gone to sleep."""
    status = Path("/proc/%d/status" % pid).read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M).group(1))


def watch_killed(place, watching):
    """Killed outright, another one takes over: neither lock nor temporary is in its way."""
    place.wrapped()
    first = watching("--client", "cursor", "--server", "s").ready()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)
    place.put("cursor", {"s": entry("newer")})
    second = watching("--client", "cursor", "--server", "s")
    rewrapped(place)
    second.end()
    assert [path.name for path in place.file("cursor").parent.iterdir()] == ["mcp.json"]


def watch_two(place, watching):
    """Two of them on one file: it is wrapped once, and neither complains."""
    place.wrapped()
    watchers = [watching("--client", "cursor", "--server", "s").ready() for _ in range(2)]
    place.put("cursor", {"s": entry("newer")})
    rewrapped(place)
    before = place.file("cursor").stat()
    held_for(lambda: place.file("cursor").stat().st_mtime_ns == before.st_mtime_ns, 3.5)
    assert sum(len(watcher.reports()) for watcher in watchers) == 1
    assert not any("changed during" in watcher.end() for watcher in watchers)


def doctor_hanging(place, watching):
    """A relay that hangs is given 5 s, once, and ends with all that it started; then the command mends it."""
    relay = place.program("mcp-lazy-old", "exit 0\n")
    place.wrapped(relay=relay, one=entry("npx"), two=entry("npx"))
    place.program("mcp-lazy-old", "sleep 100 & sleep 100\n")
    start_s = time.monotonic()
    mends = place.printed_mends()
    assert 4.5 < time.monotonic() - start_s < 9.0
    assert list(mends) == ["cursor one", "cursor two"] and all("reapply" in mend for mend in mends.values())
    until(lambda: not marked(place.mark), 2.0, "the end of the relay")
    for mend in mends.values():
        assert place.run(argv=["/bin/sh", "-c", mend]).status == 0
    place.findings()


def doctor_told_to_stop(place, watching):
    """Ctrl-C and the like end it at once, and the relay that it tries."""
    relay = place.program("mcp-lazy-old", "exit 0\n")
    place.wrapped(relay=relay)
    place.program("mcp-lazy-old", "echo > %s/$PPID\nsleep 100\n" % place.path)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = subprocess.Popen([place.relay, "doctor"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=place.env(), cwd=str(place.work))
        until(lambda: (place.path / str(process.pid)).exists(), WAIT_S, "the start of the relay")
        start_s = time.monotonic()
        process.send_signal(signum)
        said = seemly(process.communicate(timeout=15)[0])
        assert time.monotonic() - start_s < 1.5, (signum, said)
        assert process.returncode != 0 and said.count("\n") <= 1, said
        until(lambda: not marked(place.mark), 2.0, "the end of the relay")


SCENARIOS = {made.__name__: made for made in (
    watch_rename, watch_in_place, watch_codex, watch_quiet, watch_locked, watch_survives, watch_nothing_yet,
    watch_broken_at_start, watch_busy, watch_link, watch_ends, watch_idle, watch_killed, watch_two,
    doctor_hanging, doctor_told_to_stop)}
ONLY_LINUX = ("watch_idle",)


def played(name, folder, kit):
    """One scenario, in a thread; what it started ends with it."""
    place, watchers = Place(folder, "doctor-%d-%s" % (os.getpid(), name), kit), []

    def watching(*words, **options):
        watchers.append(Watcher(place, *words, **options))
        return watchers[-1]

    try:
        SCENARIOS[name](place, watching)
        until(lambda: not marked(place.mark), 3.0, "the end of what was started")
    finally:
        for watcher in watchers:
            watcher.kill()


@pytest.fixture(scope="module")
def pool(request, kit, tmp_path_factory):
    """{name: future} of the scenarios among the tests that were asked for."""
    here = [item for item in request.session.items if item.fspath == request.node.fspath and hasattr(item, "callspec")]
    wanted = [item.callspec.params["scenario"] for item in here if "scenario" in item.callspec.params]
    with concurrent.futures.ThreadPoolExecutor(len(SCENARIOS)) as threads:
        yield {name: threads.submit(played, name, tmp_path_factory.mktemp(name), kit)
               for name in wanted if LINUX or name not in ONLY_LINUX}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_d8_6(pool, scenario):
    """D8.6 and point 7; what each is about stands in the scenario."""
    if scenario not in pool:
        pytest.skip("reads /proc")
    pool[scenario].result(50)


def test_d8_6_nothing_to_watch(place):
    """It would wait for ever and never do anything: what was never wrapped is no registration to apply again."""
    words = ["config", "watch", "--client", "claude"]
    place.put("claude", {"s": entry("npx")})
    path, other = place.file("claude"), place.wrapped("cursor")
    place.config("wrap", "claude", "s", "--file", place.put("claude", {"s": entry("npx")}, place.path / "other.json"))
    for more, named in ((["--all"], path), (["--server", "s"], path), (["--all", "--project", "/p"], path),
                        (["--all", "--file", other], other)):
        done = place.look(*words, *more)
        assert done.status == 1 and not done.out, done
        assert done.err.startswith("mcp-lazy: ") and re.search("was (n?)ever wrapped", done.err), done
        assert str(named) in done.err and "use wrap" in done.err and done.err.count("\n") == 1, done
    place.config("wrap", "claude", "s")
    place.config("unwrap", "claude", "s")
    assert place.look(*words, "--all").status == 1, "nothing is left of it"


def test_d8_6_command_line_of_watch(place):
    place.put("cursor", {"s": entry("npx")})
    for words in ([], ["--client", "cursor"], ["--client", "cursor", "--server", "s", "--all"],
                  ["--client", "nobody", "--all"],
                  ["--client", "cursor", "--server", "s", "--relay", "/gone/mcp-lazy"],
                  ["--client", "cursor", "--all", "x"],
                  ["--client", "cursor", "--server", "s", "--recover"]):
        done = place.look("config", "watch", *words)
        assert done.status == 2 and not done.out and done.err.startswith("mcp-lazy: "), (words, done)
    done = place.look("config", "watch", "--client", "goose", "--all")
    assert done.status == 1 and "YAML" in done.err
