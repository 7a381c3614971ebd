"""`mcp-lazy hub import` and `mcp-lazy hub check` from outside: files, what is printed, processes, the end.

    done = importing(box, "claude", text)         the import of a client's file with this text: status, document, said
    done = check(box, path, "--json")             status, rows or table, said

Point 7 of the hub's issue; what the imported file and the recordings are good for is shown with a running hub.
"""

import collections
import fcntl
import json
import os
import pty
import re
import signal
import stat
import subprocess
import termios
import time

import pytest

import harness
from harness import alive, until
import test_hub
from test_hub import config_file, entry, fake, start_at

made_once, shelf = test_hub.made_once, test_hub.shelf  # fixtures
Done = collections.namedtuple("Done", "status out said")
SECRET = "hunter2-is-not-told"
STDIO = {"command": "npx", "args": ["-y", "srv@1", "a b"], "env": {"A": "1"}}
WEB = {"url": "https://h.example/mcp", "headers": {"X-Key": SECRET}}
FLAT = json.dumps({"mcpServers": {"std": STDIO, "web": WEB}})
TOML = ('[mcp_servers.std]\ncommand = "npx"\nargs = ["-y", "srv@1", "a b"]\n[mcp_servers.std.env]\nA = "1"\n'
        '[mcp_servers.web]\nurl = "https://h.example/mcp"\n[mcp_servers.web.%s]\nX-Key = "' + SECRET + '"\n')
HTTP, LOCAL = dict(WEB, type="http"), dict(STDIO, type="stdio")
HEADERS = {"headers": WEB["headers"]}
# The same two servers in each client's form.
CLIENTS = {
    "claude": json.dumps({"numStartups": 3, "mcpServers": {"std": LOCAL, "web": HTTP}}),
    "claude-desktop": FLAT, "cursor": "{// a comment\n" + FLAT[1:],
    "codex": TOML % "http_headers", "grok": TOML % "headers", "qwen": FLAT,
    "gemini": json.dumps({"mcpServers": {"std": STDIO, "web": dict(HEADERS, httpUrl=WEB["url"])}}),
    "copilot": json.dumps({"mcpServers": {"std": dict(STDIO, type="local", tools=["*"]), "web": HTTP}}),
    "cline": json.dumps({"mcpServers": {"std": {"transport": LOCAL},
                                        "web": {"transport": dict(WEB, type="streamableHttp")}}}),
    "vscode": json.dumps({"servers": {"std": LOCAL, "web": HTTP}, "inputs": []}),
    "windsurf": json.dumps({"mcpServers": {"std": STDIO, "web": dict(HEADERS, serverUrl=WEB["url"])}}),
    "opencode": json.dumps({"mcp": {
        "std": {"type": "local", "command": ["npx", "-y", "srv@1", "a b"], "environment": {"A": "1"}},
        "web": dict(WEB, type="remote", enabled=True)}}),
    "zed": json.dumps({"context_servers": {
        "std": {"command": {"path": "npx", "args": STDIO["args"], "env": STDIO["env"]}}, "web": WEB}})}


def servers(**entries):
    return json.dumps({"mcpServers": entries})


def argv_entry(server, **more):
    """A client's registration of a fake."""
    return dict(more, command=server.argv[0], args=server.argv[1:])


def names_of(done):
    return [one["name"] for one in done.out["servers"]]


def client_file(box, text):
    path = box.path / ("client-%d" % next(box.numbers))
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def importing(box, client, text, *words, env=None):
    """The import of a file with this text. Without --output, `out` is the document, and it is all of stdout."""
    words = ["hub", "import", "--client", client, "--file", client_file(box, text)] + list(words)
    status, out, said = box.run(*words, env=env)
    assert "Traceback" not in said and SECRET not in said
    return Done(status, json.loads(out) if out else None, said)


def one_entry(box, client, entry, env=None):
    """(the imported entry, what was said) of a claude-like registration of this client."""
    done = importing(box, client, json.dumps({{"vscode": "servers"}.get(client, "mcpServers"): {"s": entry}}), env=env)
    assert done.status == 0, done.said
    return done.out["servers"][0], done.said


def saved(box, text, entries=None):
    """A servers.json with this text, and an import that is merged into it: its path, its bytes before and after."""
    path = box.path / ("servers-%d.json" % next(box.numbers))
    path.write_bytes(text.encode())
    done = importing(box, "claude", servers(**(entries or {"new": dict(STDIO, env={"A": SECRET})})), "--output", path,
                     "--merge")
    assert done.status == 0, done.said
    return path, text.encode(), path.read_bytes()


# ------------------------------------------------------------------------------------- import: what it reads

class TestImport:
    @pytest.mark.parametrize("client", CLIENTS)
    def test_every_client(self, shelf, client):
        """The command as one list, env, url and headers, under the same names; the file can be started from."""
        done = importing(shelf, client, CLIENTS[client])
        assert done.status == 0, done.said
        assert done.out == {"servers": [
            {"name": "std", "description": "std, imported from " + client, "command": ["npx", "-y", "srv@1", "a b"],
             "env": {"A": "1"}},
            {"name": "web", "description": "web, imported from " + client, "type": "remote", "url": WEB["url"],
             "headers": WEB["headers"]}]}

    def test_the_clients_own_file_and_a_project_of_claude(self, box):
        text = {"mcpServers": {"user": {"command": "u"}},
                "projects": {"/p": {"mcpServers": {"local": {"command": "l"}}}}}
        (box.home / ".claude.json").write_text(json.dumps(text))
        for words, name in (([], "user"), (["--project", "/p"], "local")):
            status, out, said = box.run("hub", "import", "--client", "claude", *words)
            assert status == 0 and [one["name"] for one in json.loads(out)["servers"]] == [name]
        assert "project /p" in said

    def test_chosen_servers_and_what_is_switched_off(self, shelf):
        text = servers(a={"command": "a"}, b={"command": "b", "disabled": True, "cwd": "/w"}, c={"command": "c"})
        done = importing(shelf, "cline", text, "--server", "b", "--server=c")
        found = [(one["name"], one.get("enabled"), one.get("cwd")) for one in done.out["servers"]]
        assert found == [("b", False, "/w"), ("c", None, None)]
        done = importing(shelf, "cline", text, "--server", "a", "--server", "nosuch")
        assert done.status == 1 and "nosuch: left out: there is no such server" in done.said and names_of(done) == ["a"]

    def test_headers_that_codex_takes_from_variables(self, shelf):
        text = ('[mcp_servers.w]\nurl = "https://h/"\nbearer_token_env_var = "TOK"\nstartup_timeout_sec = 9\n'
                '[mcp_servers.w.env_http_headers]\nX-A = "VAR_A"\n')
        done = importing(shelf, "codex", text, env=shelf.env(TOK=SECRET, VAR_A=SECRET))
        assert done.out["servers"][0]["headers"] == {"X-A": "${VAR_A}", "Authorization": "Bearer ${TOK}"}
        assert done.out["servers"][0]["startTimeout"] == 9000 and "w: stays in codex" in done.said and "take the others out" not in done.said

    def test_tools_that_codex_blocks_stay_blocked(self, shelf):
        """And its limits are the hub's."""
        text = ('[mcp_servers.a]\ncommand = "x"\nenabled_tools = ["one", "two"]\ndisabled_tools = ["two"]\ntool_timeout_sec = 120\n'
                '[mcp_servers.b]\ncommand = "y"\ndisabled_tools = ["rm"]\n')
        first, second = importing(shelf, "codex", text).out["servers"]
        allow, deny = [[{"pattern": name, "action": action} for name in names] for names, action in (
            (("one", "two"), "allow"), (("two",), "deny"))]
        assert first["permissions"] == {"default": "deny", "rules": allow + deny} and first["requestTimeout"] == 120000
        assert second["permissions"] == {"default": "allow", "rules": [{"pattern": "rm", "action": "deny"}]}

    @pytest.mark.parametrize("client, text, written, note", [
        ("claude", "a ${SET} b", "a ${SET} b", None), ("claude", "${SET:-dflt}", "${SET}", "SET is set"),
        ("claude", "${UNSET:-dflt}", "dflt", "UNSET is not set"), ("claude", "$SET", "$SET", None),
        ("gemini", "x$SET.y", "x${SET}.y", None), ("gemini", "pa$word", "pa$word", "stays as it is"),
        ("qwen", "$SET", "${SET}", None),
        ("qwen", "${SET:-d}", "${SET:-d}", "qwen does not"), ("cursor", "${env:SET}", "${SET}", None),
        ("cursor", "${userHome}/x", "${userHome}/x", "cursor does not"),
        ("cursor", "${SET}", "${SET}", "cursor does not"),
        ("vscode", "${input:my-key}", "${MY_KEY}", "set the variable MY_KEY"),
        ("vscode", "${workspaceFolder}", "${workspaceFolder}", "vscode does not"),
        ("claude-desktop", "${SET}", "${SET}", "claude-desktop does not"),
        ("claude-desktop", "$SET {env:SET}", "$SET {env:SET}", None)])
    def test_variables(self, shelf, client, text, written, note):
        """Those that the hub puts in, too, stay; others are written in its way, or it is said that they cannot be."""
        found, said = one_entry(shelf, client, {"command": "c", "env": {"E": text}}, shelf.env(SET=SECRET))
        assert found["env"] == {"E": written}
        assert (note or "env.E") in said if note else "env.E" not in said

    def test_variables_of_opencode(self, shelf):
        text = json.dumps({"mcp": {"s": {"type": "local", "command": ["c"], "environment": {
            "A": "{env:SET}", "B": "{file:/k}", "C": "{file:~/k}", "D": "{file:k}"}}}})
        found = importing(shelf, "opencode", text).out["servers"][0]["env"]
        assert found == {"A": "${SET}", "B": "{file:/k}", "C": "{file:~/k}", "D": "{file:%s/k}" % shelf.path}

    def test_a_variable_in_a_command(self, shelf):
        """The hub looks there only when it is told to (G3.2, G3.3); where the client does not, it must not."""
        found, _ = one_entry(shelf, "claude", {"command": "c", "args": ["${SET}", "$X"]})
        assert (found["command"], found["expandCommand"]) == (["c", "${SET}", "$X"], True)
        found, said = one_entry(shelf, "claude-desktop", {"command": "c", "args": ["${SET}"]})
        assert found["command"] == ["c", "${SET}"] and "expandCommand" not in found and "s: " not in said

    @pytest.mark.parametrize("server, reason, status", [
        ({"type": "sse", "url": "https://h/"}, "does not speak sse", 0),
        ({"command": "x", "url": "https://h/"}, "one of the two has to go", 1),
        ({"command": "x", "args": "y"}, "args is not an array", 1),
        ({"command": "x", "env": {"A": 5}}, "env is not a table", 1),
        ({}, "has no command", 1), ([], "is not an object", 1),
        ({"url": "https://h/", "headers": {"A": 5, "B": None}}, "headers is no text", 1)])
    def test_what_cannot_be_taken_is_left_out_and_told(self, shelf, server, reason, status):
        done = importing(shelf, "claude", json.dumps({"mcpServers": {"odd": server, "good": {"command": "c"}}}))
        assert done.status == status and "odd: left out: " in done.said and reason in done.said
        assert [one["name"] for one in done.out["servers"]] == ["good"]

    def test_nothing_to_import(self, shelf):
        for text in ("{}", '{"mcpServers":{}}'):
            done = importing(shelf, "claude", text, "--output", shelf.path / "none.json")
            assert done.status == 1 and "nothing was imported" in done.said and "Put this" not in done.said
        assert not (shelf.path / "none.json").exists()

    def test_a_broken_file(self, shelf):
        done = importing(shelf, "claude", '{"mcpServers":{"a":{"command":"%s"\n' % SECRET)
        assert done.status == 1 and done.out is None and "line 2" in done.said
        assert importing(shelf, "codex", 'x = "%s"\ny =\n' % SECRET).status == 1

    @pytest.mark.parametrize("words, status", [
        (["--client", "nobody"], 2), ([], 2), (["--client", "claude", "word"], 2),
        (["--client", "claude", "--merge"], 2),
        (["--client", "claude", "--json"], 2), (["--client", "claude", "--output", ""], 2),
        (["--client", "claude", "--nosuch"], 2),
        (["--client", "goose"], 2), (["--client", "claude", "--file", "/nonexistent/x"], 1)])
    def test_a_wrong_command_line(self, shelf, words, status):
        found = shelf.run("hub", "import", *words)
        assert found[:2] == (status, b"") and found[2].startswith("mcp-lazy: ") and "Traceback" not in found[2]

    def test_text_of_every_kind_comes_through(self, shelf):
        """Quotes, controls, other scripts, half a surrogate pair stay what they are; opencode's numbers are words."""
        words = ['"\\\t\n\x01', "ünï \u2028 \U0001f600", "\ud800"]
        text = json.dumps({"mcp": {"s": {"command": ["c"] + words + [4], "environment": {"A": "\ud83d"}}}})
        found = importing(shelf, "opencode", text).out["servers"][0]
        assert found["command"] == ["c"] + words + ["4"] and found["env"] == {"A": "\ud83d"}

    def test_no_secret_is_told(self, shelf):
        """Not even where everything about it is wrong; the file that was written has it."""
        server = {"command": "c", "args": ["--key=" + SECRET, "${%s}" % SECRET],
                  "env": {"TOKEN": SECRET, "X": "${NO:-%s}" % SECRET},
                  "headers": SECRET, "timeout": SECRET, "cwd": "${%s}" % SECRET}
        text = servers(a=server, b={"url": "ftp://u:%s@h/" % SECRET},
                       c={"command": "mcp-lazy", "args": ["--idle-stop", SECRET]})
        assert SECRET in json.dumps(importing(shelf, "claude", text).out)
        assert importing(shelf, "cursor", text).out


class TestBehindARelay:
    def test_what_config_wrap_wrapped(self, box):
        """Its original command; of the relay's options those that a hub has for a server."""
        relay = box.path / "bin" / "mcp-lazy"
        relay.parent.mkdir()
        relay.write_text("#!/bin/sh\n")
        relay.chmod(0o755)
        path = box.home / ".codex" / "config.toml"
        path.parent.mkdir()
        path.write_text('[mcp_servers.s]\ncommand = "srv"\nargs = ["-x"]\n[mcp_servers.s.env]\nK = "%s"\n' % SECRET)
        done = box.run("config", "wrap", "--client", "codex", "--server", "s", "--relay", relay, "--env",
                       "MCP_LAZY_IDLE_STOP=5m",
                       "--env", "MCP_LAZY_CACHE_DIR=/c")
        assert done[0] == 0, done
        status, out, said = box.run("hub", "import", "--client", "codex")
        assert status == 0 and json.loads(out)["servers"] == [
            {"name": "s", "description": "s, imported from codex", "command": ["srv", "-x"], "idleStop": 300000,
             "env": {"K": SECRET}}]
        assert "s: options of its relay that a hub does not have: cache-dir" in said and SECRET not in said

    @pytest.mark.parametrize("command, args, env, found", [
        ("mcp-lazy", ["--idle-stop", "90s", "--start-timeout=2m", "--call-timeout", "3s", "--", "srv", "--flag"],
         {"MCP_LAZY_STOP_GRACE": "1s"},
         {"idleStop": 90000, "startTimeout": 120000, "requestTimeout": 3000, "stopGrace": 1000}),
        ("/x/bin/mcp-lazy", ["--stderr", "inherit", "srv", "--flag"], {}, {"stderr": "inherit"}),
        ("mcp-lazy", ["--stderr-log", "/l/x.log", "srv", "--flag"], {}, {"stderr": "/l/x.log"}),
        ("python3.11", ["-I", "-S", "/x/mcp_lazy.py", "srv", "--flag"], {}, {}),
        ("uvx", ["mcp-lazy", "--", "mcp-lazy", "--idle-stop=1s", "srv", "--flag"], {}, {"idleStop": 1000}),
        ("dsh-lazy-mcp", ["--name", "n", "--", "srv", "--flag"], {}, {"idleStop": 600000})])
    def test_what_somebody_wrapped_by_hand(self, shelf, command, args, env, found):
        entry, _ = one_entry(shelf, "claude", {"command": command, "args": args, "env": env})
        assert entry == dict({"name": "s", "description": "s, imported from claude", "command": ["srv", "--flag"]},
                             **found)

    def test_a_relay_that_could_not_start(self, shelf):
        text = servers(s={"command": "mcp-lazy", "args": ["--idle-stop", SECRET, "srv"]})
        done = importing(shelf, "claude", text)
        assert done.status == 1 and "its relay refuses what it is given: invalid value for flag -idle-stop" in done.said

    @pytest.mark.parametrize("command, args", [
        ("mcp-lazy", ["hub"]), ("/x/mcp-lazy", ["hub", "--config", "/f"]),
        ("npx", ["-y", "lazy-mcp@latest", "--config", "/f"]),
        ("python3", ["/x/mcp_lazy.py", "hub"]), ("lazy-mcp", []), ("mcp-lazy", ["mcp-lazy", "hub"])])
    def test_a_hub_is_left_out(self, shelf, command, args):
        """It is not one of its own servers (case 142)."""
        done = importing(shelf, "claude", servers(h={"command": command, "args": args}, s={"command": "c"}))
        assert done.status == 0 and names_of(done) == ["s"] and "h: left out: it starts a hub itself" in done.said

    def test_other_commands_of_ours_are_servers(self, shelf):
        entry, _ = one_entry(shelf, "claude", {"command": "mcp-lazy", "args": ["demo", "--server"]})
        assert entry["command"] == ["mcp-lazy", "demo", "--server"]


# ------------------------------------------------------------------------------------- import: what it writes

class TestOutput:
    def test_a_new_file(self, box):
        """0600, its folder is made; what a hub needs: it runs from it (black box of both)."""
        path = box.path / "new" / "deep" / "servers.json"
        server = fake(box, tools=2)
        text = servers(s=argv_entry(server, env={"TOKEN": SECRET}))
        done = importing(box, "claude", text, "--output", path)
        assert done.status == 0 and done.out is None and stat.S_IMODE(path.stat().st_mode) == 0o600
        hub = start_at(box, path)
        assert [row["name"] for row in hub.data("list_commands", server="s")] == ["tool0", "tool1"]
        assert SECRET in str(hub.invoke("s", "environ"))  # it is the server's, and only there

    @pytest.mark.parametrize("kind", ["a file", "an empty file", "a folder", "a dangling link to nowhere"])
    def test_never_over_what_is_there(self, box, kind):
        path = box.path / "there"
        if kind == "a folder":
            path.mkdir()
        elif "link" in kind:
            path.symlink_to(box.path / "nowhere" / "x")
        else:
            path.write_bytes(b"{}" if kind == "a file" else b"")
        before = os.lstat(str(path))
        done = importing(box, "claude", FLAT, "--output", path)
        after = os.lstat(str(path))
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
        assert done.status == 1 and done.out is None, done.said
        assert "is there already; --merge adds" in done.said and not (box.path / "nowhere").exists()

    @pytest.mark.parametrize("text", [
        '{\n  "servers": [\n    {"name": "old", "description": "d", "command": ["x"]}\n  ]\n}\n',
        '{"servers":[{"name":"old","description":"d","command":["x"]}]}', '{"servers": []}',
        '{ "servers" : [ ] , "search":true }',
        '// mine\n{"servers": [ // first\n\t{"name":"old","description":"d","command":["x"]}, // last\n],\n'
        '"requestTimeout": 1e4}',
        '{\r\n  "servers": [\r\n    {"name": "old", "description": "d", "url": "https://h/"}\r\n  ]\r\n}',
        '{"mcpServers": {"old": {"command": "x"}}}', '{"mcpServers": {}, "search": true}',
        '{"mcpServers": {\n  // c\n  "old": {"command": "x"},\n}}'])
    def test_merge_adds_and_touches_nothing_else(self, box, text):
        """One insertion: what stood there is before and behind it; a hub reads both servers."""
        path, before, after = saved(box, text, entries={
            "old": {"command": "other"}, "new": dict(STDIO, disabled=True),
            "ünï": {"url": "https://h/", "headers": {"A": "b"}},
            "idle": {"command": "mcp-lazy", "args": ["--idle-stop=1s", "x", "y"]}})
        at = next(at for at in range(len(before) + 1) if at == len(before) or before[at] != after[at])
        more = len(after) - len(before)
        assert any(before[:cut] + after[cut:cut + more] + before[cut:] == after for cut in range(at + 1)), after
        assert (b"other" in after) == ("old" not in text)
        assert "\r\n" not in text or b"\n" not in after.replace(b"\r\n", b"")
        hub = start_at(box, path)
        assert sorted(hub.rows()) == ["idle", "old", "ünï"] and b'"new"' in after  # which is switched off
        hub.finish()

    def test_a_second_merge_changes_nothing(self, box):
        path, _, after = saved(box, '{"servers": []}')
        seen = path.stat()
        done = importing(box, "claude", servers(new={"command": "other"}), "--output", path, "--merge")
        assert done.status == 0 and "new: is in %s already" % path in done.said
        assert path.read_bytes() == after and path.stat().st_ino == seen.st_ino

    @pytest.mark.parametrize("text", ["{}", "[]", '{"servers":[],"mcpServers":{}}', '{"servers":7}', "",
                                      '{"servers":[]', '{"servers":[],"servers":[]}'])
    def test_merge_into_what_is_no_servers_json(self, box, text):
        path = box.path / "servers.json"
        path.write_text(text)
        done = importing(box, "claude", FLAT, "--output", path, "--merge")
        assert done.status == 1 and path.read_text() == text and str(path) in done.said

    def test_merge_keeps_mode_and_link_and_may_begin_a_file(self, box):
        real, link = box.path / "real.json", box.path / "link.json"
        link.symlink_to(real)
        for times in range(2):
            text = servers(**{"s%d" % times: {"command": "c"}})
            done = importing(box, "claude", text, "--output", link, "--merge")
            assert done.status == 0 and link.is_symlink(), done.said
            if not times:
                real.chmod(0o640)
        assert stat.S_IMODE(real.stat().st_mode) == 0o640
        assert [one["name"] for one in json.loads(real.read_bytes())["servers"]] == ["s0", "s1"]
        assert sorted(path.name for path in box.path.glob(".*")) == []


class TestAdvice:
    @pytest.mark.parametrize("client", CLIENTS)
    def test_the_one_entry_in_the_clients_own_form(self, shelf, client):
        """What is printed, put into a file, is a registration that starts the hub on this file."""
        path = shelf.path / ("servers of %s.json" % client)
        done = importing(shelf, client, CLIENTS[client], "--output", path, "--json")
        advice = done.out["instead"]
        text = advice.split("\n\n")[1] + "\n"
        status, out, _ = shelf.run("hub", "import", "--client", client, "--file", client_file(shelf, text))
        assert status == 1 and out == b""  # read as a hub, which is left out
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
        assert words[words.index("--config") - 1:][:3] == ["hub", "--config", str(path)]
        assert done.out["servers"] == ["std", "web"] and "\n  std, from" in advice, "the remote one stays where it is"

    def test_how_to_take_the_others_out(self, box):
        (box.home / ".claude.json").write_text(json.dumps({"mcpServers": {"a b": {"command": "c"}}}))
        status, out, said = box.run("hub", "import", "--client", "claude")
        assert status == 0 and "\n  claude mcp remove -s user 'a b'\n" in said
        assert '"--config",\n        "/path/of/servers.json"' in said

    def test_a_report_for_machines(self, shelf):
        done = importing(shelf, "claude", FLAT, "--output", shelf.path / "s.json", "--json")
        assert set(done.out) == {"client", "from", "file", "servers", "notes", "instead"}
        assert done.out["file"] == str(shelf.path / "s.json")
        assert SECRET not in json.dumps(done.out) and "Put this" not in done.said


# ------------------------------------------------------------------------------------------------- check

def check(box, path, *words, env=None, timeout=harness.WAIT_S):
    """A check that ends by itself; `out` is the rows with --json, else the lines of the table."""
    status, out, said = box.run("hub", "check", "--config", path, *words, env=env, timeout=timeout)
    assert "Traceback" not in said, said
    rows = {row["server"]: row for row in json.loads(out)} if "--json" in words else out.decode().splitlines()
    return Done(status, rows, said)


def begun(box, path, *words, stderr=None):
    """A check that runs; the caller ends it."""
    return subprocess.Popen(box.command("hub", "check", "--config", path, *words), env=box.env(),
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE if stderr is None else stderr)


def running(servers):
    """Those fakes whose newest process runs."""
    return [one for one in servers if one.starts() and alive(one.pid())]


class TestCheck:
    def test_good_and_bad_ones_side_by_side(self, box):
        """A table with one line for each, exit 1; each was started once, and all of them are gone."""
        good, dies, hangs = fake(box, tools=3), fake(box, die="exit3", stderr="no such key\n"), fake(box, boot=60)
        refuses = fake(box, refuse={"tools/list": {"code": -32603, "message": "not today"}})
        path = config_file(box, [
            entry("good", good), entry("dies", dies), entry("hangs", hangs, startTimeout=300),
            entry("refuses", refuses),
            entry("missing", ["/nonexistent/x"]), entry("web", None, url="https://h.example/", command=None),
            entry("wrong", "x", args=5)])
        done = check(box, path)
        assert done.status == 1 and done.said == ""
        assert done.out[0].split() == ["SERVER", "STATE", "COMMANDS", "TIME", "REASON"]
        rows = {line.split()[0]: line for line in done.out[1:]}
        assert list(rows) == ["good", "dies", "hangs", "refuses", "missing", "web", "wrong"]
        assert re.match(r"good +ok +3 +\d+ ms +recorded$", rows["good"])
        for name, state, words in (("dies", "failing", "exit status 3.*no such key"),
                                   ("hangs", "failing", "0.3 s .startTimeout"),
                                   ("refuses", "failing", "not today"), ("missing", "failing", "/nonexistent/x"),
                                   ("web", "unsupported", "not part of this version"), ("wrong", "error", "args")):
            assert re.match("%s +%s +- +- +.*%s" % (name, state, words), rows[name]), rows[name]
        assert [one.starts() for one in (good, dies, hangs, refuses)] == [1, 1, 1, 1]

    def test_good_ones_alone(self, box):
        """Remote ones are no failure."""
        path = config_file(box, [entry("a", fake(box, tools=0)), entry("web", None, url="https://h.example/",
                                                                       command=None)])
        done = check(box, path, "--json")
        assert done.status == 0 and done.said == ""
        assert set(done.out["a"]) == {"server", "state", "commands", "ms", "reason"}
        assert (done.out["a"]["state"], done.out["a"]["commands"], done.out["web"]["state"]) == ("ok", 0, "unsupported")

    def test_what_it_recorded_is_enough_for_a_hub(self, box):
        """All pages; a hub's discovery starts nothing behind it, for a client with capabilities of its own, too."""
        server = fake(box, tools=5, page=2)
        path = config_file(box, [entry("a", server)])
        assert check(box, path, "--json").out["a"]["commands"] == 5
        hub = start_at(box, path, shaken=False)
        hub.handshake(capabilities={"roots": {}, "elicitation": {}})
        assert hub.row("a")["tools_count"] == 5 and len(hub.data("list_commands", server="a")) == 5
        assert hub.data("describe_commands", server="a", command_names=["tool4"])[0]["name"] == "tool4"
        assert server.starts() == 1 and hub.row("a")["state"] == "asleep"

    def test_a_second_run_tells_what_is_recorded(self, box):
        """The same, or what is new; the hub knows the new list then."""
        server = fake(box, tools=2)
        path = config_file(box, [entry("a", server)])
        reasons = [check(box, path, "--json").out["a"]["reason"] for _ in range(2)]
        assert reasons[0] == "recorded" and re.match(r"as recorded \d+ s ago$", reasons[1])
        server.set(tools=3)
        assert check(box, path, "--json").out["a"]["reason"] == "recorded anew: 1 new, 0 gone"
        assert server.starts() == 3
        hub = start_at(box, path)
        assert len(hub.data("list_commands", server="a")) == 3 and server.starts() == 3

    def test_it_replaces_what_a_hub_recorded(self, box):
        server = fake(box, tools=2)
        path = config_file(box, [entry("a", server)])
        hub = start_at(box, path)
        assert len(hub.data("list_commands", server="a")) == 2
        hub.finish()
        server.set(tools=1)
        assert check(box, path, "--json").out["a"]["reason"] == "recorded anew: 0 new, 1 gone"

    def test_at_most_four_at_a_time(self, box):
        fakes = [fake(box, gate=str(box.path / ("gate-%d" % number))) for number in range(7)]
        path = config_file(box, [entry("s%d" % number, server) for number, server in enumerate(fakes)])
        running_check, most = begun(box, path, "--json"), 0
        for number in range(7):
            until(lambda: len(running(fakes)) == min(4, 7 - number), what="as many as may run at a time")
            most = max(most, len(running(fakes)))
            (box.path / ("gate-%d" % number)).touch()
            until(lambda: number not in [fakes.index(one) for one in running(fakes)])
        out, said = running_check.communicate(timeout=harness.WAIT_S)
        assert running_check.returncode == 0 and most == 4 and len(json.loads(out)) == 7 and said == b""

    def test_chosen_servers(self, box):
        one, other = fake(box), fake(box)
        path = config_file(box, [entry("one", one), entry("other", other)])
        assert list(check(box, path, "--json", "other").out) == ["other"] and one.starts() == 0
        done = check(box, path, "other", "nosuch")
        assert done.status == 1 and done.out == [] and "'nosuch'; it has: one, other" in done.said
        assert other.starts() == 1

    @pytest.mark.parametrize("words, status", [(["--nosuch"], 2), (["--config"], 2), (["--config", "/nonexistent/x"],
                                                                                      1), ([], 1)])
    def test_a_wrong_command_line(self, box, words, status):
        found = box.run("hub", "check", *words)
        assert found[:2] == (status, b"") and found[2].startswith("mcp-lazy: ") and "Traceback" not in found[2]

    def test_where_the_file_and_the_recordings_are(self, box):
        """As for the hub (G1.5); --cache-dir wins."""
        made = config_file(box, [entry("a", fake(box))])
        path = box.home / ".config" / "mcp-lazy" / "servers.json"
        path.parent.mkdir(parents=True)
        made.rename(path)
        assert box.run("hub", "check")[0] == 0 and len(box.recordings()) == 1
        other = box.path / "elsewhere"
        assert box.run("hub", "check", "--cache-dir", other)[0] == 0 and len(box.recordings(other)) == 1

    def test_recordings_that_are_off(self, box):
        path = config_file(box, [entry("a", fake(box))], cache={"strategy": "none"})
        done = check(box, path, "--json")
        assert done.status == 0 and "not recorded" in done.out["a"]["reason"] and box.recordings() == []

    def test_recordings_that_cannot_be_written(self, box):
        """It is a failure: recording is what it is for."""
        box.cache.write_text("a file in the folder's place")
        done = check(box, config_file(box, [entry("a", fake(box))]), "--json")
        assert done.status == 1 and done.out["a"]["state"] == "failing"
        assert "could not be recorded" in done.out["a"]["reason"] and str(box.cache) in done.said

    def test_the_end_of_a_server_is_waited_for(self, box):
        """It has its time to save, and goes by the ladder where it does not go (A13)."""
        slow, stubborn = fake(box, eof_wait=0.1), fake(box, ignore_eof=True, ignore=["SIGTERM"], children=["stubborn"])
        done = check(box, config_file(box, [entry("a", slow), entry("b", stubborn, stopGrace=100)]))
        assert done.status == 0 and slow.events("saved")
        assert not alive(stubborn.pid()) and not any(map(alive, stubborn.descendants()))

    def test_secrets_and_control_characters_of_a_server(self, box):
        """What it says on stderr may hold the value of its variable, and what a terminal would obey."""
        server = fake(box, die="exit1", stderr="bad token %s \x1b[31mred\n" % SECRET)
        path = config_file(box, [entry("a\u202eb", "x"), entry("a", server, env={"TOKEN": SECRET})])
        for words in ([], ["--json"]):
            status, out, said = box.run("hub", "check", "--config", path, *words)
            assert status == 1 and SECRET.encode() not in out and SECRET not in said and b"bad token" in out
            assert words or b"\x1b" not in out

    def test_warnings_about_the_file(self, box):
        done = check(box, config_file(box, [entry("a", fake(box), nosuch=1)]))
        assert done.status == 0 and "nosuch" in done.said and len(done.out) == 2

    def test_a_closed_stdin_and_nothing_on_it(self, box):
        """It needs none: no end of input, no closed descriptor ends it."""
        path = config_file(box, [entry("a", fake(box))])
        argv = ["/bin/sh", "-c", 'exec "$@" <&-', "sh"] + box.command("hub", "check", "--config", path)
        done = subprocess.run(argv, env=box.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=harness.WAIT_S)
        assert done.returncode == 0 and b" ok " in done.stdout, done.stderr


    def test_its_stdin_and_stdout_are_as_they_were(self, box):
        """A table that nobody reads yet is longer than a pipe holds; whoever gave the pipes finds them blocking."""
        rows = [entry("w%d" % number, None, url="https://h.example/", command=None) for number in range(1500)]
        path = config_file(box, rows)
        reading, writing = os.pipe()
        with subprocess.Popen(box.command("hub", "check", "--config", path, "--json"), env=box.env(), stdin=reading,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            size = fcntl.ioctl(process.stdout, termios.FIONREAD, b"\0" * 4)
            until(lambda: fcntl.ioctl(process.stdout, termios.FIONREAD, b"\0" * 4) != size, what="a full pipe")
            out, said = process.communicate(timeout=harness.WAIT_S)
        blocking = os.get_blocking(reading)
        os.close(reading)
        os.close(writing)
        assert (process.returncode, said, len(json.loads(out)), blocking) == (0, b"", 1500, True)


class TestCheckOnATerminal:
    def test_progress_is_one_line_that_is_gone_at_the_end(self, box):
        """On a terminal only; nothing of it is left in front of the table."""
        gate = box.path / "gate"
        path = config_file(box, [entry("first", fake(box)), entry("second", fake(box, gate=str(gate)))])
        ours, theirs = pty.openpty()
        try:
            process = begun(box, path, stderr=theirs)
            os.close(theirs)
            said = b""
            while b"1 of 2 done, now second" not in said:
                said += harness.read_some(ours)
            gate.touch()
            out, _ = process.communicate(timeout=harness.WAIT_S)
            try:
                while True:
                    said += harness.read_some(ours)
            except OSError:  # what a terminal says when nobody holds its other end
                pass
        finally:
            os.close(ours)
        assert process.returncode == 0 and len(out.splitlines()) == 3
        assert said.endswith(b"\r\x1b[K") and b"\n" not in said
        assert all(len(line) < 90 for line in said.split(b"\r\x1b[K"))

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_ends_everything_at_once(self, box, signum):
        """Those that start, that list and that hang; those that waited are not started any more."""
        booting, listing = fake(box, boot=60), fake(box, hang_at=["tools/list"])
        good = [fake(box, gate=str(box.path / "never")) for _ in range(4)]
        path = config_file(box, [entry("s%d" % n, one) for n, one in enumerate([booting, listing] + good)])
        process = begun(box, path)
        until(lambda: len(running([booting, listing] + good)) == 4 and "tools/list" in listing.methods())
        began = time.monotonic()
        process.send_signal(signum)
        out, said = process.communicate(timeout=harness.WAIT_S)
        assert time.monotonic() - began < 2.5
        assert (process.returncode, out) == (1, b"") and b"stopped by a signal" in said
        assert harness.marked(box.mark) == [] and good[3].starts() == 0

    def test_a_second_signal_does_not_wait_for_the_stubborn(self, box):
        server = fake(box, hang_at=["tools/list"], ignore_eof=True, ignore=["SIGTERM"])
        process = begun(box, config_file(box, [entry("a", server, stopGrace=60000)]))
        server.wait_method("tools/list")
        process.send_signal(signal.SIGINT)
        server.wait_for("eof")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=harness.WAIT_S)
        assert process.returncode == 1 and not alive(server.pid())

    def test_killed_it_leaves_nothing(self, box):
        """As everything that starts servers here: the guard ends them."""
        server = fake(box, hang_at=["tools/list"], ignore_eof=True)
        process = begun(box, config_file(box, [entry("a", server)]))
        server.wait_method("tools/list")
        process.kill()
        process.communicate(timeout=harness.WAIT_S)
        until(lambda: not harness.marked(box.mark), what="the end of all")


def test_import_then_check_then_a_hub(box):
    """The way of a user: from a client's file to a hub whose discovery needs no server."""
    fakes = [fake(box, tools=2), fake(box, tools=1)]
    text = servers(s0=argv_entry(fakes[0]), s1=argv_entry(fakes[1]))
    path = box.path / "servers.json"
    assert importing(box, "claude", text, "--output", path).status == 0
    assert check(box, path).status == 0
    hub = start_at(box, path)
    found = hub.data("list_commands", servers=["s0", "s1"])
    assert {name: len(found[name]) for name in found} == {"s0": 2, "s1": 1}
    assert [one.starts() for one in fakes] == [1, 1]
