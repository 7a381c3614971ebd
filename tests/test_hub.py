"""The hub from outside: its command line, its face to the client, discovery, recordings, processes, the end.

Real processes over stdio.  G1 to G7, G9, G14, G16.1, G16.3, G17 and protocol.md 3.4; what one `invoke_command`
does stands in test_hub_calls.py, reload, health and log in files of their own.  The lines of G14 that are about
HTTP and OAuth are shown absent by `TestWithoutTheNetwork`: this version opens no connection at all.
"""

import collections
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import harness
from harness import INITIALIZED, Box, Relay, children, initialize, message, until

HUB_FAKE = Path(__file__).resolve().parent / "servers" / "hub_fake.py"
LEGACY = ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
FOUR = ["list_servers", "list_commands", "describe_commands", "invoke_command"]
KEY = "io.modelcontextprotocol/"
STAMP = {KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}}

Failure = collections.namedtuple("Failure", "text code result")


# ------------------------------------------------------------------------------ the hub as a client sees it

class Hub(Relay):
    """A running `mcp-lazy hub`."""

    def start_tool(self, tool, meta=None, **arguments):
        params = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.request("tools/call", params)

    def tool(self, tool, timeout=harness.WAIT_S, meta=None, **arguments):
        return self.result(self.start_tool(tool, meta, **arguments), timeout)

    def data(self, tool, timeout=harness.WAIT_S, **arguments):
        """What a meta-tool tells: one text with JSON, two spaces deep, and nothing else (G5.1)."""
        result = self.tool(tool, timeout, **arguments)
        assert set(result) == {"content"} and len(result["content"]) == 1, result
        item = result["content"][0]
        assert set(item) == {"type", "text"} and item["type"] == "text"
        value = json.loads(item["text"])
        assert item["text"] == json.dumps(value, indent=2, ensure_ascii=False)
        return value

    def failed(self, ident, timeout=harness.WAIT_S):
        """The Failure of an answer; it has the form of every failure (G5.2, G9.4)."""
        result = self.result(ident, timeout)
        assert result.get("isError") is True, result
        assert [item["type"] for item in result["content"]] == ["text"]
        text, code = result["content"][0]["text"], result["_meta"]["lazyMcp"]["code"]
        assert re.match("[A-Z_]+$", code)
        if code != "POLICY_BLOCKED":
            paragraphs = text.split("\n\n")
            assert text.startswith("Error: "), text
            assert all(re.match("Details: |\U0001f4a1 Suggestion: ", one) for one in paragraphs[1:]
                       if ": " in one[:16]), text
        return Failure(text, code, result)

    def failure(self, tool, timeout=harness.WAIT_S, **arguments):
        return self.failed(self.start_tool(tool, **arguments), timeout)

    def start_invoke(self, server, command, parameters=None, meta=None):
        return self.start_tool("invoke_command", meta, server=server, command_name=command, parameters=parameters or {})

    def invoke(self, server, command, timeout=harness.WAIT_S, meta=None, **parameters):
        return self.result(self.start_invoke(server, command, parameters, meta), timeout)

    def invoke_fails(self, server, command, timeout=harness.WAIT_S, **parameters):
        return self.failed(self.start_invoke(server, command, parameters), timeout)

    def raw_result(self, ident, timeout=harness.WAIT_S):
        """The bytes of a result as they came."""
        self.result(ident, timeout)
        line = next(line for line in reversed(self.raw) if json.loads(line).get("id") == ident)
        return line[line.index(b'"result":') + 9:].rstrip(b"\n")[:-1]

    def modern(self, method, params=None, meta=None):
        """A request of 2026-07-28."""
        return self.request(method, dict(params or {}, _meta=dict(STAMP, **(meta or {}))))

    def rows(self, **arguments):
        return {row["name"]: row for row in self.data("list_servers", **arguments)["servers"]}

    def row(self, name):
        return self.rows()[name]

    def until_state(self, name, *states):
        return until(lambda: [row for row in [self.row(name)] if row["state"] in states],
                     what="%s to be %s" % (name, states))[0]

    def log(self):
        """The events of its log; every line is one (G15.1)."""
        return [json.loads(line) for line in self.stderr().splitlines()]


def entry(name, server, **more):
    """One server of the file; `server` is a Fake or an argv."""
    return dict({"name": name, "description": "the server %s" % name, "command": getattr(server, "argv", server)},
                **more)


def fake(box, **flags):
    box.server = str(HUB_FAKE)
    return box.fake(**flags)


def config_file(box, servers, **top):
    path = box.path / ("servers-%d.json" % next(box.numbers))
    path.write_text(json.dumps(dict(top, servers=servers)))
    return path


def start_at(box, path, *options, env=None, shaken=True, argv=None, **more):
    """The hub of a file, running, its handshake done."""
    argv = argv or box.command("hub", "--config", path, *options)
    hub = Hub(box, argv, env if env is not None else box.env(),
              stderr_path=str(box.path / ("stderr-%d" % next(box.numbers))), **more)
    box.relays.append(hub)
    if shaken:
        hub.handshake()
    return hub


def start(box, servers, *options, env=None, shaken=True, capabilities=None, **top):
    hub = start_at(box, config_file(box, servers, **top), *options, env=env, shaken=False)
    if shaken:
        hub.handshake(capabilities=capabilities)
    return hub


def start_error(box, *words, env=None):
    """The text of a start that fails: exit 1, nothing on stdout, one line of log on stderr (G15.1, G17.1)."""
    status, out, errors = box.run("hub", *words, env=env)
    assert (status, out) == (1, b""), errors
    lines = [json.loads(line) for line in errors.splitlines()]
    assert len(lines) == 1 and lines[0]["level"] == "error" and lines[0]["timestamp"].endswith("Z"), errors
    return lines[0]["message"]


@functools.lru_cache(None)
def compiled():
    """The hub's bytecode too is made once for all boxes."""
    home = harness.bytecode().parent.parent.parent
    subprocess.run([sys.executable, "-I", "-S", "-c", harness.launcher(), str(harness.MODULE), "hub", "--help"],
                   check=True,
                   env={"HOME": str(home)}, stdout=subprocess.DEVNULL, timeout=30)


@pytest.fixture(scope="session", autouse=True)
def made_once():
    compiled()


@pytest.fixture(scope="class")
def shelf(tmp_path_factory):
    """A box that the tests of one class share; they use no other."""
    made = Box(tmp_path_factory.mktemp("hub"))
    try:
        yield made
    finally:
        faults = made.close()
    assert not faults, "\n".join(faults)


ALONE = entry("a", ["/bin/true"])


# ----------------------------------------------------------------------------------- G1: command line

class TestCommandLine:
    def test_version_and_help(self, shelf):
        """G1.2: the bare version; help is an answer, not an error."""
        for words in (["--version"], ["-v"]):
            status, out, errors = shelf.run("hub", *words)
            assert (status, errors) == (0, "") and re.match(rb"\d+\.\d+\.\d+\S*\n$", out)
        status, out, errors = shelf.run("hub", "--help")
        assert (status, errors) == (0, "")
        for word in (b"--config", b"--request-timeout", b"check", b"import"):
            assert word in out

    @pytest.mark.parametrize("words", [
        ["npx", "server"], ["--nosuch"], ["--nosuch=1"], ["--config"], ["--request-timeout"], ["--transport", "sse"],
        ["--port", "65536"], ["--port", "80abc"], ["--port=-1"], ["--path", "mcp"], ["--request-timeout", "0"],
        ["--request-timeout=-5"],
        ["--request-timeout", "80abc"], ["--request-timeout=1.5"], ["--max-payload-size", "0"],
        ["--max-payload-size=many"],
        ["--version", "--config"]], ids=" ".join)
    def test_a_wrong_command_line(self, shelf, words):
        """G1.3, G1.4, I13: exit 2, on stderr what is wrong; numbers are strict; also where there is no file to read."""
        path = shelf.path / "right.json"
        path.write_text(json.dumps({"servers": [ALONE]}))
        for config in ([], ["--config=/nonexistent/servers.json"], ["--config=%s" % path]):
            status, out, errors = shelf.run("hub", *config, *words)
            assert (status, out) == (2, b""), config
            assert words[0].lstrip("-").partition("=")[0] in errors and "Traceback" not in errors

    def test_both_spellings_of_an_option(self, shelf):
        """G1.1."""
        path = config_file(shelf, [ALONE])
        for words in (["--config", path, "--request-timeout", "77"], ["--config=%s" % path, "--request-timeout=77"]):
            status, _, errors = shelf.run("hub", *words)
            assert status == 0, errors

    def test_no_configuration(self, shelf):
        """G1.5: exit 1, and where one is looked for."""
        text = start_error(shelf)
        assert str(shelf.home / ".config/mcp-lazy/servers.json") in text
        assert str(shelf.home / ".config/lazy-mcp/servers.json") in text
        text = start_error(shelf, "--config", "/nonexistent/servers.json")
        assert "/nonexistent/servers.json" in text and "No such file" in text

    @pytest.mark.parametrize("at", ["flag", "variable", "xdg new", "xdg old", "home new", "home old"])
    def test_where_the_file_is_looked_for(self, box, at):
        """G1.5: each place wins over those behind it; `~/` is the home."""
        places = {"flag": box.home / "flag.json", "variable": box.path / "variable.json",
                  "xdg new": box.path / "xdg/mcp-lazy/servers.json", "xdg old": box.path / "xdg/lazy-mcp/servers.json",
                  "home new": box.home / ".config/mcp-lazy/servers.json",
                  "home old": box.home / ".config/lazy-mcp/servers.json"}
        order = list(places)
        for name in order[order.index(at):]:
            places[name].parent.mkdir(parents=True, exist_ok=True)
            places[name].write_text(json.dumps({"servers": [entry("from", ["true"], tags=[name])]}))
        env = box.env(LAZY_MCP_CONFIG=str(places["variable"]) if order.index(at) < 2 else "",
                      XDG_CONFIG_HOME=str(box.path / "xdg") if at != "home new" and at != "home old" else None)
        words = ["--config", "~/flag.json"] if at == "flag" else []
        hub = start_at(box, None, env=env, argv=box.command("hub", *words))
        told = hub.data("list_servers")
        assert told["servers"][0]["tags"] == [at] and told["config_file"] == str(places[at])

    def test_a_relative_path(self, box):
        """G1.5: relative to the working directory; what is told is the whole path."""
        config_file(box, [ALONE]).rename(box.path / "here.json")
        hub = start_at(box, None, argv=box.command("hub", "--config", "here.json"), cwd=str(box.path))
        assert hub.data("list_servers")["config_file"] == str(box.path / "here.json")

    @pytest.mark.parametrize("text, words", [
        ("", ["line 1"]), ("{\n \"servers\": [\n", ["line"]), ("[]", ["object"]), ("{}", ["servers"]),
        ('{"servers":[]}', ["servers"]),
        ('{"servers":{"a":1}}', ["servers"]), ('{"servers":[%s],"mode":"single"}', ["mode"]),
        ('{"servers":[%s],\n"requestTimeout":"10s"}', ["requestTimeout", "line 2"]),
        ('{"servers":[%s],"requestTimeout":0}', ["requestTimeout"]),
        ('{"servers":[%s],"logging":{"level":"loud"}}', ["logging.level"]),
        ('{"servers":[%s],"embedServerSummaries":7}', ["embedServerSummaries"]),
        ('{"servers":[%s],"transport":{"type":"http"}}', ["transport", "not part of this version"]),
        ('{"servers":[%s],"permissions":{"default":"perhaps"}}', ["permissions.default"]),
        ('{"servers":[%s],"permissions":{"rules":[{"pattern":"*","acton":"deny"}]}}', ["permissions"])])
    def test_a_wrong_file(self, shelf, text, words):
        """G2.1, G16.2 and G14 (permissions fail open): fatal at the start, with file, place and member."""
        path = shelf.path / "wrong.json"
        path.write_text(text.replace("%s", json.dumps(ALONE)))
        found = start_error(shelf, "--config", path)
        assert all(word in found for word in words), found
        assert str(path) in found or "transport" in words

    @pytest.mark.parametrize("how", ["a folder", "unreadable", "binary"])
    def test_a_file_that_is_none(self, shelf, how):
        path = shelf.path / how.replace(" ", "-")
        if how == "a folder":
            path.mkdir()
        else:
            path.write_bytes(b"\xff\xfe\0{" if how == "binary" else b"{}")
        if how == "unreadable":
            path.chmod(0)
            if os.access(str(path), os.R_OK):
                path.chmod(0o600)  # a superuser reads everything: then it is a file without servers
        assert str(path) in start_error(shelf, "--config", path)

    def test_http_is_refused_wherever_it_comes_from(self, shelf):
        """This version has no HTTP face; a flag wins over the file, the file over the environment (G1.6)."""
        plain, http, stdio = (config_file(shelf, [ALONE], **more) for more in (
            {}, {"transport": {"type": "http", "port": 1, "authToken": "t0ken-t0ken"}},
            {"transport": {"type": "stdio"}}))
        env = shelf.env(LAZY_MCP_TRANSPORT="http")
        for words, environment in ((["--transport", "http"], None), ([], env)):
            assert "not part of this version" in start_error(shelf, "--config", plain, *words, env=environment)
        assert "t0ken" not in start_error(shelf, "--config", http)
        assert shelf.run("hub", "--config", http, "--transport=stdio")[0] == 0
        assert shelf.run("hub", "--config", stdio, env=env)[0] == 0

    def test_variables_that_are_wrong(self, shelf):
        """G1.6: a warning and no more, but for a path, which is fatal; an empty one is none."""
        path = config_file(shelf, [ALONE])
        for name, value in (("REQUEST_TIMEOUT", "soon"), ("PORT", "99999"), ("TRANSPORT", "pigeon"),
                            ("MAX_PAYLOAD_SIZE", "-1")):
            status, _, errors = shelf.run("hub", "--config", path, env=shelf.env(**{"LAZY_MCP_" + name: value}))
            assert status == 0
            assert any("LAZY_MCP_" + name in json.loads(line)["message"] for line in errors.splitlines()), errors
        assert "LAZY_MCP_PATH" in start_error(shelf, "--config", path, env=shelf.env(LAZY_MCP_PATH="mcp"))
        empty = {"LAZY_MCP_" + name: "" for name in ("TRANSPORT", "PORT", "HOST", "PATH", "AUTH_TOKEN",
                                                     "MAX_PAYLOAD_SIZE", "REQUEST_TIMEOUT")}
        status, _, errors = shelf.run("hub", "--config", path, env=shelf.env(**empty))
        assert status == 0 and "LAZY_MCP" not in errors

    @pytest.mark.parametrize("flag, file, variable, limit", [(71, 72, "73", 0.071), (None, 72, "73", 0.072),
                                                             (None, None, "73", 0.073)])
    def test_whose_limit_it_is(self, box, flag, file, variable, limit):
        """G1.6, G1.7: flags, then the file, then the environment."""
        server = fake(box)
        top = {} if file is None else {"requestTimeout": file}
        words = [] if flag is None else ["--request-timeout=%d" % flag]
        hub = start(box, [entry("a", server)], *words, env=box.env(LAZY_MCP_REQUEST_TIMEOUT=variable), **top)
        assert "%g s" % limit in hub.invoke_fails("a", "hang").text

    def test_started_by_the_older_hubs_name(self, box):
        """`lazy-mcp --config F` is the hub."""
        link = box.path / "lazy-mcp"
        link.symlink_to(box.module)
        hub = start_at(box, None, argv=[box.python, "-I", "-S", str(link), "--config", str(config_file(box, [ALONE]))])
        assert sorted(tool["name"] for tool in hub.ask("tools/list")["tools"]) == sorted(FOUR)


# What the older hub's document shows, member by member; `/bin/true` and the like stand in its commands' place.
OLDER = {
    "usage": {"servers": [
        {"name": "chrome-devtools", "description": "Chrome DevTools automation",
         "command": ["npx", "-y", "chrome-devtools-mcp@latest"]},
        {"name": "gitlab", "description": "GitLab MCP server", "url": "https://gitlab.com/api/v4/mcp"},
        {"name": "my-remote-server", "description": "Custom remote MCP server with static token",
         "url": "https://api.example.com/mcp",
         "headers": {"Authorization": "Bearer ${API_TOKEN}"}},
        {"name": "glean", "description": "Glean enterprise search (OAuth)",
         "url": "https://your-company.glean.com/mcp/default"}]},
    "after": {"servers": [
        {"name": "chrome-devtools", "description": "Chrome DevTools automation",
         "command": ["npx", "-y", "chrome-devtools-mcp@latest"]},
        {"name": "gitlab", "description": "GitLab API integration", "command": ["npx", "mcp-remote@latest",
                                                                                "https://..."]},
        {"name": "grepai", "description": "Search codebase", "command": ["grepai", "mcp-serve"]},
        {"name": "context7", "description": "Library documentation", "command": ["npx", "-y", "@upstash/context7-mcp"]},
        {"name": "perplexity", "description": "Web search", "command": ["npx", "-y", "@perplexity-ai/mcp-server"]}]},
    "oauth": {"servers": [
        {"name": "one", "description": "d", "url": "https://your-company.glean.com/mcp/default", "oauth": {}},
        {"name": "two", "description": "d", "url": "https://your-company.glean.com/mcp/default",
         "oauth": {"clientId": "${GLEAN_CLIENT_ID}", "extraHeaders": {"X-Glean-Auth-Type": "OAUTH"}}}]},
    "commands": {"servers": [
        {"name": "new", "description": "d", "command": ["npx", "-y", "my-mcp-server", "--port", "3000"],
         "tags": ["api", "browser"],
         "examples": [{"command": "x", "parameters": {"a": 1}}], "env": {"API_KEY": "${API_TOKEN}", "DEBUG": "true"}},
        {"name": "old", "description": "d", "command": "npx", "args": ["-y", "my-mcp-server", "--port", "3000"],
         "enabled": True},
        {"name": "off", "description": "d", "command": "npx", "enabled": False}]},
    "settings": {"mode": "multi-server", "requestTimeout": 30000, "servers": [
        {"name": "my-server", "description": "Example", "command": ["npx", "-y", "my-mcp-server"]}],
        "logging": {"level": "debug", "format": "json", "dumpBodies": True, "maxBodyLogBytes": 4096,
                    "redactKeys": ["my_custom_secret"]},
        "healthMonitor": {"enabled": True, "interval": 30000, "timeout": 10000, "idleTimeout": 300000},
        "transport": {"type": "stdio", "port": 3000, "host": "localhost", "path": "/mcp", "authToken": "${API_TOKEN}",
                      "maxPayloadSize": 4194304,
                      "allowedHosts": ["mcp.example.com"], "allowedOrigins": ["https://mcp.example.com"]}},
}


@pytest.mark.parametrize("name", OLDER)
def test_a_configuration_of_the_older_hub_works_unchanged(box, name):
    """The issue's promise; remote servers are listed with the reason that they cannot be used yet."""
    path = box.path / "servers.json"
    path.write_text(json.dumps(OLDER[name], indent=2))
    hub = start_at(box, path, env=box.env(API_TOKEN="tok-12345678", GLEAN_CLIENT_ID="client-7"))
    rows, wanted = hub.rows(), [one for one in OLDER[name]["servers"] if one.get("enabled") is not False]
    assert list(rows) == [one["name"] for one in wanted]
    for one in wanted:
        row = rows[one["name"]]
        assert row["description"] == one["description"] and row.get("tags") == one.get("tags")
        assert row.get("examples") == one.get("examples")
        assert row["state"] == ("unsupported" if "url" in one else "asleep")
        assert ("not part of this version" in row.get("error", "")) == ("url" in one)
    assert children(hub.pid) == [] and "tok-12345678" not in hub.stderr()


# --------------------------------------------------------------------------------- G4: towards the client

@pytest.mark.parametrize("version", LEGACY + ("2026-07-28", "1999-01-01", None))
def test_the_handshake_of_each_revision(box, version):
    """G4.1: the wanted version where it is known, else 2025-06-18; nothing is promised that is not there."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    params = initialize(0)["params"]
    params["protocolVersion"] = version
    hub.send(message("initialize", "i-1", params))
    result = hub.result("i-1")
    hub.send(INITIALIZED)
    assert result["protocolVersion"] == (version if version in LEGACY else "2025-06-18")
    assert result["capabilities"] == {"tools": {}} and "instructions" not in result
    assert result["serverInfo"]["name"] == "lazy-mcp-proxy"
    assert re.match(r"\d+\.\d+\.\d+", result["serverInfo"]["version"])
    assert hub.invoke("a", "echo", x=version) == {"echo": {"x": version}}
    assert [one["params"]["protocolVersion"] for one in server.lines()
            if one["method"] == "initialize"] == ["2025-06-18"]  # I16
    hub.finish()


class TestFace:
    """One hub, asked in every way; the server behind it answers calls of the tools of hub_fake.py."""

    @pytest.fixture(scope="class")
    def server(self, shelf):
        return fake(shelf)

    @pytest.fixture(scope="class")
    def hub(self, shelf, server):
        return start(shelf, [entry("a", server), entry("gone", ["/nonexistent/x"])])

    def test_first_of_all_no_list_starts_anything(self, hub, server):
        """G10.1 in G14: tools/list, list_servers, ping and what is unknown leave every server asleep."""
        for method in ("tools/list", "tools/list", "ping", "prompts/list", "resources/list", "server/discover"):
            hub.answer(hub.request(method))
        hub.result(hub.modern("server/discover"))
        hub.result(hub.modern("tools/list"))
        assert {row["state"] for row in hub.rows(filter="a").values()} == {"asleep"}
        hub.barrier()
        assert children(hub.pid) == [] and server.starts() == 0

    def test_the_four_tools(self, hub):
        """G5, protocol.md 3.4: names that every client takes, one fixed list, no cursor."""
        result = hub.ask("tools/list")
        assert set(result) == {"tools"}
        tools = {tool["name"]: tool for tool in result["tools"]}
        assert list(tools) == FOUR and all(re.match("[a-zA-Z0-9_-]{1,64}$", name) for name in tools)
        shapes = {name: (tool["inputSchema"]["type"], set(tool["inputSchema"]["properties"]),
                         sorted(tool["inputSchema"].get("required", [])))
                  for name, tool in tools.items()}
        assert shapes == {
            "list_servers": ("object", {"filter"}, []), "list_commands": ("object", {"server", "servers", "cursor"},
                                                                          []),
            "describe_commands": ("object", {"server", "command_names"}, ["command_names", "server"]),
            "invoke_command": ("object", {"server", "command_name", "parameters"}, ["command_name", "server"])}
        assert tools["invoke_command"]["inputSchema"]["properties"]["parameters"]["type"] == "object"
        assert "auth_required" in tools["list_servers"]["description"]
        assert "parameters" in tools["invoke_command"]["description"]
        assert hub.ask("tools/list", {"cursor": "anything"}) == result  # G4.2

    def test_the_four_tools_cost_less_than_700_tokens(self, hub):
        raw = hub.raw_result(hub.request("tools/list"))
        print("tools/list: %d bytes, %d tokens" % (len(raw), len(raw) / 4))
        assert len(raw) / 4 < 700

    def test_ping_and_what_is_unknown(self, hub):
        """G4.2; prompts and resources are not there unless they are configured."""
        assert hub.ask("ping") == {}
        for method in ("nosuch", "prompts/list", "prompts/get", "resources/list", "resources/read",
                       "resources/templates/list",
                       "completion/complete", "logging/setLevel", "tasks/list"):
            assert hub.error(hub.request(method, {"name": "x"}))["code"] == -32601

    def test_an_unknown_tool(self, hub):
        """G5.2: a result that a model can read, in both eras."""
        for ident in (hub.start_tool("search_commands", query="x"), hub.modern("tools/call",
                                                                               {"name": "nope", "arguments": {}}),
                      hub.request("tools/call", {"name": 7}), hub.request("tools/call", {}), hub.request("tools/call")):
            failure = hub.failed(ident)
            assert failure.code == "INVALID_PARAMETERS" and all(name in failure.text for name in FOUR)

    def test_arguments_of_every_kind(self, hub):
        """G5.3: none is `{}`; a text that holds an object is that object (case 135); the rest is refused."""
        names = ["a", "gone"]
        for params in ({}, {"arguments": None}, {"arguments": {}}, {"arguments": "{}"}, {"arguments": {"filter": None}},
                       {"arguments": {"filter": ""}}):
            result = hub.ask("tools/call", dict(params, name="list_servers"))
            assert [row["name"] for row in json.loads(result["content"][0]["text"])["servers"]] == names, params
        for wrong in ([], 7, True, "filter", "[1]", {"filter": 7}, {"filter": ["a"]}):
            failure = hub.failed(hub.request("tools/call", {"name": "list_servers", "arguments": wrong}))
            assert failure.code == "INVALID_PARAMETERS", wrong

    def test_discover(self, hub):
        """G4.1, A17: a client of 2026-07-28."""
        raw = hub.result(hub.modern("server/discover"))
        assert raw["supportedVersions"] == [MODERN] and raw["capabilities"] == {"tools": {}}
        assert (raw["resultType"], raw["ttlMs"], raw["cacheScope"]) == ("complete", 0, "private")

    @pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
    def test_a_version_that_is_not_there(self, hub, method):
        error = hub.error(hub.request(method, {"_meta": dict(STAMP, **{KEY + "protocolVersion": "2027-01-01"})}))
        assert error["code"] == -32022 and error["data"] == {"supported": [MODERN], "requested": "2027-01-01"}

    def test_what_a_modern_request_must_carry(self, hub):
        for meta in ({KEY + "protocolVersion": MODERN}, {KEY + "protocolVersion": MODERN,
                                                         KEY + "clientCapabilities": 7}):
            assert hub.error(hub.request("tools/list", {"_meta": meta}))["code"] == -32602

    def test_methods_that_the_modern_era_has_not(self, hub):
        for method in ("ping", "initialize", "logging/setLevel", "resources/subscribe", "nosuch", "prompts/list"):
            assert hub.error(hub.modern(method))["code"] == -32601, method

    def test_modern_results(self, hub):
        """The hints of a list, `resultType` on everything, failures too."""
        legacy = hub.ask("tools/list")["tools"]
        result = hub.result(hub.modern("tools/list"))
        assert (result.pop("resultType"), result.pop("ttlMs"), result.pop("cacheScope")) == ("complete", 0, "private")
        assert result["tools"] == legacy
        for arguments in ({"server": "a", "command_name": "echo", "parameters": {"x": 1}},
                          {"server": "nope", "command_name": "echo"}):
            result = hub.result(hub.modern("tools/call", {"name": "invoke_command", "arguments": arguments}))
            assert result["resultType"] == "complete" and "ttlMs" not in result
            assert result.get("isError", False) == (arguments["server"] == "nope")

    def test_both_eras_in_one_session(self, hub):
        """A17.2: a probe does not disturb the handshake."""
        assert hub.result(hub.modern("server/discover"))["supportedVersions"]
        assert hub.handshake(ident="again", version="2025-11-25")["protocolVersion"] == "2025-11-25"
        assert hub.ask("ping") == {}

    @pytest.mark.parametrize("ident", ["text", "", "ü\"\\\n\u2028", 0, -1, 2 ** 53 + 1, 12345678901234567890123])
    def test_ids_come_back_as_they_are(self, hub, ident):
        assert hub.result(hub.request("ping", ident=ident)) == {}

    def test_the_spelling_of_an_id(self, hub):
        for spelled in (b"1.0", b"1e2", b'"\\u0041"'):
            hub.send(b'{"jsonrpc":"2.0","id":' + spelled + b',"method":"ping"}\n')
            assert b'"id":' + spelled in hub.line()

    @pytest.mark.parametrize("line, code", [
        (b"nonsense\n", -32700), (b'{"jsonrpc":"2.0","id":1,"method"\n', -32700), (b"\xff\xfe\n", -32700),
        (b'{"id":NaN}\n', -32700),
        (b"7\n", -32600), (b"null\n", -32600), (b'"x"\n', -32600), (b"{}\n", -32600), (b"[]\n", -32600),
        (b'{"jsonrpc":"2.0","method":7}\n', -32600)])
    def test_a_line_that_is_no_message(self, hub, line, code):
        """Case 021: an error with id null, and the session goes on."""
        hub.send(line)
        found = hub.read()
        assert found["error"]["code"] == code and found["id"] is None and "result" not in found
        assert hub.ask("ping") == {}

    @pytest.mark.parametrize("ident", ["null", "true", "false", "1.5", "-0.5", "{}", "[]", "[1]", '{"a":1}', "1e-3"])
    @pytest.mark.parametrize("method", ["ping", "tools/call", "nosuch", "notifications/cancelled"])
    def test_an_id_that_is_none(self, hub, ident, method):
        """JSON-RPC: an error with id null, never silence; without an id it is a notification."""
        line = '{"jsonrpc":"2.0","id":%s,"method":"%s","params":{"name":"list_servers"}}' % (ident, method)
        for sent, wrap in ((line, False), ("[%s]" % line, True)):
            hub.send(sent.encode() + b"\n")
            found = hub.read()
            found = found[0] if wrap and isinstance(found, list) and len(found) == 1 else found
            assert found["error"]["code"] == -32600 and found["id"] is None and "result" not in found
        hub.send('{"jsonrpc":"2.0","method":"%s","params":{}}\n'.replace("%s", method).encode())
        assert hub.barrier() == []

    def test_lines_that_say_nothing(self, hub):
        hub.send(b"\n", b"  \r\n", message("notifications/nosuch"), message("notifications/cancelled",
                                                                            params={"requestId": "none"}),
                 message("notifications/cancelled", params=[7]), message("notifications/cancelled"),
                 {"jsonrpc": "2.0", "id": "x", "result": {}},
                 {"jsonrpc": "2.0", "id": 99, "error": 7}, b'{"jsonrpc":"2.0","id":5,"method":"ping"}\r\n')
        assert hub.answer(5)["result"] == {} and hub.kept == []

    def test_params_that_are_none(self, hub):
        for params in ([], 7, "x", [{"name": "list_servers"}]):
            assert hub.error(hub.request("tools/call", params))["code"] == -32602

    def test_deep_nesting(self, hub):
        deep = b"[" * 50000 + b"]" * 50000
        hub.send(b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{"name":"list_servers","arguments":'
                 b'{"filter":' + deep + b"}}}\n")
        found = hub.answer("deep")
        assert "error" in found or found["result"]["isError"] is True
        assert hub.ask("ping") == {}

    def test_batches(self, hub):
        """2025-03-26: one array for what was asked, nothing for what was not."""
        hub.send([message("ping", 1), message("notifications/nosuch"), message("nosuch", "two"),
                  message("tools/list", 3),
                  message("tools/call", 4, {"name": "invoke_command", "arguments": {"server": "a",
                      "command_name": "echo", "parameters": {"x": 4}}}),
                  7, {"jsonrpc": "2.0", "id": "x", "result": {}}])
        found = hub.read()
        assert isinstance(found, list) and len(found) == 5
        answers = {json.dumps(one["id"]): one for one in found}
        assert answers["1"]["result"] == {} and answers['"two"']["error"]["code"] == -32601
        assert answers["null"]["error"]["code"] == -32600
        assert len(answers["3"]["result"]["tools"]) == 4 and answers["4"]["result"] == {"echo": {"x": 4}}
        hub.send([message("notifications/nosuch"), {"jsonrpc": "2.0", "id": "x", "result": {}}])
        assert hub.barrier() == []

    def test_64_calls_at_once(self, hub, server):
        """G4.3: each gets its own answer, once; one process."""
        starts = max(server.starts(), 1)
        idents = [hub.start_invoke("a", "echo", {"n": n}) for n in range(64)]
        for n, ident in reversed(list(enumerate(idents))):
            assert hub.result(ident) == {"echo": {"n": n}}
        assert hub.barrier() == [] and server.starts() == starts

    def test_one_id_twice(self, hub):
        """A client's fault that costs nobody an answer."""
        for _ in range(2):
            hub.request("tools/call", {"name": "invoke_command", "arguments": {"server": "a", "command_name": "late"}},
                        ident="same")
        hub.invoke("a", "flush")
        assert [hub.result("same") for _ in range(2)] == [{"late": True}] * 2

    def test_answers_come_in_the_order_they_are_ready(self, hub):
        """G4.3."""
        slow = hub.start_invoke("a", "late")
        assert hub.ask("ping") == {} and hub.invoke("a", "echo", x=1) == {"echo": {"x": 1}}
        assert hub.invoke("a", "flush") == {"flushed": True} and hub.result(slow) == {"late": True}


def test_calls_before_the_handshake(box):
    """G4.2: they are answered; the server is told of no capabilities."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    assert hub.invoke("a", "echo", x=1) == {"echo": {"x": 1}}
    assert len(hub.ask("tools/list")["tools"]) == 4
    assert server.lines()[0]["params"]["capabilities"] == {}
    assert server.lines()[0]["params"]["clientInfo"]["name"] == "mcp-lazy-hub"


def test_a_line_that_is_too_long(box):
    """Case 005: an error, and the stream stays in step."""
    hub = start(box, [ALONE])
    hub.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * (65 << 20) + b'"}}\n', timeout=30)
    assert hub.read()["error"]["code"] == -32600
    assert hub.ask("ping") == {}


def test_summaries_in_a_description(box):
    """G16.1: names and cut descriptions of the first servers; without it the client learns nothing."""
    servers = [entry("s%d" % n, ["true"], description="word%d " % n * 100) for n in range(5)]
    plain = start(box, servers).ask("tools/list")["tools"]
    hub = start(box, servers, embedServerSummaries={"enabled": True, "maxServers": 3}, shaken=False)
    assert hub.handshake()["capabilities"]["tools"] in ({}, {"listChanged": True})
    tools = hub.ask("tools/list")["tools"]
    text = tools[0]["description"]
    assert tools[1:] == plain[1:] and text.startswith(plain[0]["description"]) and "Configured servers" in text
    lines = text.splitlines()
    assert [bool(re.search(r"\bs%d\b" % n, text)) for n in range(5)] == [True, True, True, False, False]
    assert "and 2 more" in lines[-1] and all(len(line) < 230 for line in lines[1:])
    assert "word0" not in json.dumps(plain)


# --------------------------------------------------------------------------------------- G6: list_servers

class TestListServers:
    @pytest.fixture(scope="class")
    def hub(self, shelf):
        dead = ["sh", "-c", "echo no key >&2; exit 3"]
        return start(shelf, [
            entry("good", fake(shelf, tools=3), tags=["api", "Browser"], examples=[{"x": 1}],
                  description="Finds THINGS"),
            entry("dies", dead), entry("gone", ["/nonexistent/x"]), entry("off", ["true"], enabled=False),
            {"name": "web", "description": "remote", "url": "https://example.invalid/mcp"},
            {"name": "bare", "command": ["true"]}, {"name": "both", "description": "d", "command": ["true"],
                                                    "url": "https://example.invalid"},
            {"name": "typo", "description": "d", "commnad": ["true"]}, entry("good", ["true"]),
            entry("ws", None, url="ws://example.invalid/x"),
            entry("words", ["true"], args="x"), {"description": "no name", "command": ["true"]}])

    def test_what_it_tells(self, hub):
        """G6.1, G6.2, G2.4: in the order of the file, the disabled one is invisible."""
        told = hub.data("list_servers")
        names = [row["name"] for row in told["servers"]]
        assert names[:4] == ["good", "dies", "gone", "web"] and "off" not in names
        assert set(told) == {"servers", "version", "pid", "config_file", "uptime_ms"}
        assert told["pid"] == hub.pid and os.path.isabs(told["config_file"]) and type(told["uptime_ms"]) is int
        row = told["servers"][0]
        assert row["description"] == "Finds THINGS" and row["tags"] == ["api", "Browser"]
        assert row["examples"] == [{"x": 1}]
        assert row["available"] is True and "error" not in row and "auth_required" not in row
        if row["state"] == "asleep" and not row["loaded"]:
            assert (row["tools_count"], row["healthy"]) == (None, None)

    def test_an_error_of_the_file_does_not_stop_the_others(self, hub):
        """G2.2, G2.3, G6.3, case 133: the reason, the file, and how to go on."""
        rows, path = hub.data("list_servers"), hub.data("list_servers")["config_file"]
        broken = {row["name"]: row for row in rows["servers"] if row["state"] == "error"}
        for name, word in (("bare", "description"), ("both", "url"), ("typo", "commnad"), ("words", "args")):
            error = broken[name]["error"]
            assert word in error and path in error and "(%s)" % name in error, error
            assert "kill -HUP %d" % hub.pid in error
            assert broken[name]["healthy"] is False
            failure = hub.invoke_fails(name, "x")
            assert failure.code == "INVALID_COMMAND" and word in failure.text
            assert "kill -HUP %d" % hub.pid in failure.text
        assert "ws" in broken and len(broken) == 7

    def test_a_name_that_stands_twice(self, hub):
        """G2.4: the first works, the second is told as an error."""
        rows = [row for row in hub.data("list_servers")["servers"] if row["name"] == "good"]
        assert sorted(row["state"] == "error" for row in rows) == [False, True]
        assert hub.invoke("good", "echo", x=1) == {"echo": {"x": 1}}

    @pytest.mark.parametrize("text, names", [("GOOD", ["good", "good"]), ("things", ["good"]), ("browser", ["good"]),
                                             ("nothing of it", []),
                                             ("the server dies", ["dies"]), ("bare", ["bare"]), ("remote", ["web"])])
    def test_filter(self, hub, text, names):
        """G6.5: name, description or a tag; a server without a description is no trouble."""
        assert [row["name"] for row in hub.data("list_servers", filter=text)["servers"]] == names

    def test_states(self, hub):
        """G6.7, G10: each state with its reason; a server is healthy when it proved it."""
        hub.invoke("good", "echo")
        hub.invoke_fails("dies", "x")
        hub.invoke_fails("gone", "x")
        rows = {row["name"]: row for row in hub.data("list_servers")["servers"]
                if not (row["name"] == "good" and row["state"] == "error")}
        states = {name: row["state"] for name, row in rows.items()}
        assert states["good"] == "live" and states["dies"] == states["gone"] == "failing"
        assert states["web"] == "unsupported"
        assert rows["good"]["healthy"] is True and rows["good"]["latency_ms"] >= 0
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", rows["good"]["last_checked"])
        assert rows["dies"]["healthy"] is False and "no key" in rows["dies"]["error"]
        assert "/nonexistent/x" in rows["gone"]["error"]
        assert "remote servers are not part of this version" in rows["web"]["error"] and rows["web"]["healthy"] is False

    def test_tools_are_counted_when_they_are_known(self, hub):
        hub.data("list_commands", server="good")
        row = hub.data("list_servers", filter="things")["servers"][0]
        assert (row["loaded"], row["tools_count"]) == (True, 3)

    def test_an_unknown_server(self, hub):
        """The servers that there are stand in the text."""
        for tool, arguments in (("list_commands", {"server": "nope"}),
                                ("describe_commands", {"server": "nope", "command_names": ["x"]}),
                                ("invoke_command", {"server": "nope", "command_name": "x"}),
                                ("invoke_command", {"server": "off", "command_name": "x"}),
                                ("invoke_command", {"server": 7, "command_name": "x"}),
                                ("invoke_command", {"command_name": "x"})):
            failure = hub.failure(tool, **arguments)
            assert failure.code in ("SERVER_NOT_FOUND", "INVALID_PARAMETERS") and "good" in failure.text


@pytest.mark.slow
def test_the_form_of_clients(box):
    """Case 133: `mcpServers` is understood too; every entry is shown, and the good one works while others hang."""
    good, hold = fake(box), box.path / "hold"
    slow = fake(box, gate=str(hold))
    path = box.path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {
        "good": {"command": good.argv[0], "args": good.argv[1:]}, "hangs": {"command": "sleep", "args": ["600"]},
        "dies": {"command": "sh", "args": ["-c", "echo no key >&2; exit 1"]}, "gone": {"command": "no-such-program"},
        "slow": {"command": slow.argv[0], "args": slow.argv[1:]}, "dead-url": {"url": "http://127.0.0.1:9/mcp"},
        "odd": {"commnad": "typo"}}}))
    hub = start_at(box, path)
    begin = time.monotonic()
    rows = hub.rows()
    assert len(rows) == 7 and "commnad" in rows["odd"]["error"] and time.monotonic() - begin < 1
    waiting = [hub.start_tool("list_commands", server=name) for name in ("hangs", "slow")]
    assert hub.invoke("good", "echo", x=1) == {"echo": {"x": 1}}
    assert hub.data("describe_commands", server="good", command_names=["tool0"])[0]["name"] == "tool0"
    assert "no key" in hub.failure("list_commands", server="dies").text
    rows = hub.rows()
    assert [rows[name]["state"] for name in ("hangs", "slow", "good", "dies")] == ["starting", "starting", "live",
                                                                                   "failing"]
    hold.touch()
    assert json.loads(hub.result(waiting[1])["content"][0]["text"])[0]["name"] == "tool0"
    hub.signal(signal.SIGTERM)  # it need not wait for what hangs
    assert hub.wait() == 0


# ----------------------------------------------------------------------------------------- G7: discovery

class TestDiscovery:
    @pytest.fixture(scope="class")
    def hub(self, shelf):
        return start(shelf, [
            entry("pages", fake(shelf, tools=25, page=10)), entry("few", fake(shelf, tools=2), permissions={"rules": [
                {"pattern": "tool1", "action": "deny"}]}),
            entry("gone", ["/nonexistent/x"]), entry("many", fake(shelf, tools=250)),
            entry("none", fake(shelf, tools=0)),
            entry("refuses", fake(shelf, refuse={"tools/list": {"code": -32603, "message": "not today"}})),
            entry("odd", fake(shelf, list_raw={"tools/list": '{"tools":7}'})),
            entry("wide", fake(shelf, tools_file=self.wide(shelf))), entry("full",
                                                                           fake(shelf, tools_file=self.full(shelf)))])

    @staticmethod
    def wide(shelf):
        """A few tools with long descriptions of many lines."""
        path = shelf.path / "wide"
        path.write_text(json.dumps({"tools": [{"name": "w%d" % n, "description": "first line\nsecond " + "x" * 9000,
                                               "inputSchema": {"type": "object"}}
                                              for n in range(10)]}))
        return str(path)

    @staticmethod
    def full(shelf):
        """One tool with everything that a tool may have."""
        path = shelf.path / "full"
        path.write_text(json.dumps({"tools": [{
            "name": "all", "title": "All", "description": "it", "inputSchema": {"type": "object",
                                                                                "properties": {"a": {"enum": [1,
                                                                                                              None]}}},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "destructiveHint": False}},
                                              {"name": "bare"}]}))
        return str(path)

    def test_one_server(self, hub):
        """G7.1: the bare array; G16.2: what is denied is marked."""
        found = hub.data("list_commands", server="few")
        assert found == [{"name": "tool0", "description": ""}, {"name": "tool1", "description": "", "denied": True}]
        assert hub.data("list_commands", server="none") == []

    def test_all_pages(self, hub):
        """G7.4 in G14."""
        assert [one["name"] for one in hub.data("list_commands", server="pages")] == ["tool%d" % n for n in range(25)]

    def test_several_servers(self, hub):
        """G7.1, G7.2: a failure is one entry and not the whole; `servers` wins over `server`."""
        found = hub.data("list_commands", servers=["pages", "gone", "few", "nope", "refuses"], server="none")
        assert list(found) == ["pages", "gone", "few", "nope", "refuses"]
        assert (len(found["pages"]), len(found["few"])) == (25, 2)
        assert "/nonexistent/x" in found["gone"]["error"] and "nope" in found["nope"]["error"]
        assert "not today" in found["refuses"]["error"]
        assert hub.data("list_commands", servers=[], server="few") == {}
        assert hub.data("list_commands", servers=["few", "few"])["few"][0]["name"] == "tool0"

    def test_all_of_them_fail(self, hub):
        """G7.2: only then it is an error."""
        failure = hub.failure("list_commands", servers=["gone", "nope"])
        assert "gone" in failure.text and "nope" in failure.text and "/nonexistent/x" in failure.text
        assert hub.failure("list_commands", servers=["gone"]).code == "INVALID_COMMAND"

    @pytest.mark.parametrize("arguments", [{}, {"server": None}, {"server": 7}, {"servers": "few"}, {"servers": [7]},
                                           {"servers": {}},
                                           {"server": "few", "cursor": 7}, {"server": "few", "cursor": "-1"},
                                           {"server": "few", "cursor": "x"}])
    def test_what_cannot_be_meant(self, hub, arguments):
        assert hub.failure("list_commands", **arguments).code in ("INVALID_PARAMETERS", "SERVER_NOT_FOUND")

    def test_a_refused_listing(self, hub):
        """G7.6: the reason is told; the server stays as it is (G9.2)."""
        for name, word in (("refuses", "not today"), ("odd", "tools")):
            failure = hub.failure("list_commands", server=name)
            assert failure.code == "DISCOVERY_FAILED" and word in failure.text and name in failure.text
            assert hub.invoke(name, "pid")["calls"] >= 1

    def test_a_long_list_comes_in_parts(self, hub):
        """G7.7: each command once, in order; descriptions on one line."""
        names, cursor, parts = [], None, 0
        while parts == 0 or cursor is not None:
            part = hub.data("list_commands", server="many", **({} if cursor is None else {"cursor": cursor}))
            assert part["total"] == 250 and 0 < len(part["commands"]) <= 100 and len(json.dumps(part)) < 40000
            names += [one["name"] for one in part["commands"]]
            cursor, parts = part.get("nextCursor"), parts + 1
        assert names == ["tool%d" % n for n in range(250)] and parts == 3
        past = hub.tool("list_commands", server="many", cursor="9999")
        assert "nextCursor" not in past["content"][0]["text"]

    def test_a_list_of_long_descriptions(self, hub):
        """G7.7: 32 KiB is the other measure."""
        part = hub.data("list_commands", server="wide")
        assert part["total"] == 10
        assert all("\n" not in one["description"] and one["description"].startswith("first line second")
                                           for one in part["commands"])
        assert len(json.dumps(part)) <= 40000
        whole = hub.data("describe_commands", server="wide", command_names=["w3"])[0]
        assert len(whole["description"]) > 9000  # a single entry is given whole

    def test_describe(self, hub):
        """G7.3, protocol.md 3.4: in the order asked, with output schema, annotations and title."""
        found = hub.data("describe_commands", server="full", command_names=["bare", "all"])
        assert found == [{"name": "bare"}, {
            "name": "all", "title": "All", "description": "it", "inputSchema": {"type": "object",
                                                                                "properties": {"a": {"enum": [1,
                                                                                                              None]}}},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "destructiveHint": False}}]

    def test_describe_with_unknown_names(self, hub):
        """G7.3: what is known is given, the others are listed; with none of them it is an error."""
        found = hub.data("describe_commands", server="full", command_names=["x", "all", "y"])
        assert [one["name"] for one in found["commands"]] == ["all"] and found["missing"] == ["x", "y"]
        failure = hub.failure("describe_commands", server="full", command_names=["x", "y"])
        assert "x" in failure.text and "full" in failure.text

    @pytest.mark.parametrize("arguments", [{"server": "few"}, {"command_names": ["x"]},
                                           {"server": "few", "command_names": []},
                                           {"server": "few", "command_names": [7]},
                                           {"server": "few", "command_names": {}}])
    def test_describe_needs_both(self, hub, arguments):
        assert hub.failure("describe_commands", **arguments).code in ("INVALID_PARAMETERS", "SERVER_NOT_FOUND")


def test_unusual_schemas(box):
    """Case 136: they are data, described as they came; what has no name is left out with a note, the others stay."""
    entries = [
        '{"name":"ok","inputSchema":{"type":"object"}}',
        '{"name":"either","inputSchema":{"anyOf":[{"type":"object"},{"required":["a"]}]}}',
        '{"name":"yes","inputSchema":{"type":"object","properties":{"x":true}}}', '{"name":"none"}',
        '{"name":"str","inputSchema":{"type":"string"}}',
        '{"name":"ring","inputSchema":{"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}}',
        '{"name":"req","inputSchema":{"type":"object","properties":{"c":{"type":"string"},"required":["c"]}}}',
        '{"name":"out","inputSchema":{"type":"object"},"outputSchema":{"type":{"type":"x"}}}',
        '{"inputSchema":{"type":"object"}}', '7', '{"name":7}',
        '{"name":"num","inputSchema":{"type":"object","properties":{"k":'
        '{"default":1.0,"maximum":1e400,"minimum":12345678901234567890}}}}']
    path = box.path / "tools"
    path.write_text('{"tools":[%s]}' % ",".join(entries))
    hub = start(box, [entry("a", fake(box, tools_file=str(path)))])
    names = [one["name"] for one in hub.data("list_commands", server="a")]
    assert names == ["ok", "either", "yes", "none", "str", "ring", "req", "out", "num"]
    described = hub.data("describe_commands", server="a", command_names=names[:-1])
    assert described == [json.loads(text) for text in entries[:8]]
    text = hub.tool("describe_commands", server="a", command_names=["num"])["content"][0]["text"]
    assert re.search(r'"default": 1\.0\b', text) and re.search(r'"maximum": 1e\+?400\b', text, re.I)
    assert "12345678901234567890" in text
    assert any("name" in one["message"] and one.get("server") == "a" for one in hub.log()
               if one["level"] != "debug"), "no note about three entries"


def test_a_batch_does_not_go_one_by_one(box):
    """G7.2: each of these servers waits for the other to be started."""
    marks = [box.path / "one", box.path / "two"]
    servers = [fake(box, seen_too=n, gate=str(marks[n])) for n in (0, 1)]
    touching = [["sh", "-c", 'touch "$0"; exec "$@"', str(marks[1 - n])] + servers[n].argv for n in (0, 1)]
    hub = start(box, [entry("a", touching[0]), entry("b", touching[1])])
    found = hub.data("list_commands", servers=["a", "b"])
    assert len(found["a"]) == len(found["b"]) == 1


@pytest.mark.parametrize("fault", ["repeat", "endless"])
def test_pages_without_end(box, fault):
    """Case 054: the listing fails with a reason, and soon."""
    path = harness.ROOT / "tests" / "servers" / "modern.py"
    box.server = str(path)
    server = box.fake(tools=4, page=2, page_fault=fault)
    hub = start(box, [entry("a", server)])
    failure = hub.failure("list_commands", server="a", timeout=30)
    assert failure.code == "DISCOVERY_FAILED"
    assert all("tools/list" not in path.read_text() for path in box.recordings())


def test_a_server_that_is_starting(box):
    """Case 139: never an empty list; a caller who gives up leaves the start as it is, later ones see the truth."""
    gate = box.path / "gate"
    server = fake(box, gate=str(gate), tools=2)
    hub = start(box, [entry("a", server)])
    first = hub.start_tool("list_commands", server="a")
    server.wait_for("start")
    hub.send(message("notifications/cancelled", params={"requestId": first}))
    second = hub.start_tool("list_commands", server="a")
    assert hub.row("a")["state"] == "starting"
    gate.touch()
    assert len(json.loads(hub.result(second)["content"][0]["text"])) == 2
    assert server.starts() == 1 and hub.barrier() == []


@pytest.mark.slow
def test_a_list_that_changes(box):
    """Case 060: the hub reads again, and its own four tools never change."""
    server = fake(box, tools=1, announce=True)
    hub = start(box, [entry("a", server)])
    assert len(hub.data("list_commands", server="a")) == 1
    hub.invoke("a", "grow", by=2, announce=30)
    until(lambda: len(hub.data("list_commands", server="a")) == 3, what="the new list")
    assert server.methods().count("tools/list") <= 3 and hub.kept == []
    assert len(hub.ask("tools/list")["tools"]) == 4


@pytest.mark.parametrize("cache", [{"ttl": 150}, {"maxAccessCount": 2}])
def test_what_is_known_for_a_while_only(box, cache):
    """G2.6: a list that is older, or was given more often, than the file says comes from the server again."""
    server = fake(box, tools=1)
    hub = start(box, [entry("a", server)], cache=cache)
    assert len(hub.data("list_commands", server="a")) == 1
    hub.invoke("a", "grow", by=2)
    until(lambda: len(hub.data("list_commands", server="a")) == 3, what="the list to be read again")
    assert server.methods().count("tools/list") >= 2


def test_search(box):
    """Opt-in: over all that is known, nothing is started for it."""
    known, unknown = fake(box, tools=12), fake(box, tools=12)
    start(box, [entry("a", known)]).data("list_commands", server="a")
    starts = known.starts()
    hub = start(box, [entry("a", known), entry("b", unknown)], search=True)
    tools = hub.ask("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == FOUR + ["search_commands"]
    found = json.dumps(hub.data("search_commands", query="tool1"))
    assert '"tool1"' in found and '"tool11"' in found and '"tool2"' not in found and '"b"' in found
    assert len(hub.data("search_commands", query="tool", limit=2)["commands"]) == 2
    for wrong in ({}, {"query": ""}, {"query": 7}, {"query": "x", "limit": 0}, {"query": "x", "limit": "many"}):
        assert hub.failure("search_commands", **wrong).code == "INVALID_PARAMETERS"
    assert (known.starts(), unknown.starts()) == (starts, 0) and children(hub.pid) == []


def test_search_tells_what_is_denied_and_what_is_not_searched(box):
    """G16.2: marked, not hidden; and how the rest becomes known."""
    known, unknown = fake(box, tools=3), fake(box, tools=3)
    rules = {"rules": [{"pattern": "tool1", "action": "deny"}]}
    hub = start(box, [entry("a", known, permissions=rules), entry("b", unknown)], search=True)
    hub.data("list_commands", server="a")
    found = hub.data("search_commands", query="tool")
    marks = {one["name"]: one.get("denied") for one in found["commands"]}
    assert marks == {"tool0": None, "tool1": True, "tool2": None}
    assert found["not_searched"] == ["b"] and "list_commands" in found["advice"]
    hub.data("list_commands", server="b")
    found = hub.data("search_commands", query="tool")
    assert found["total"] == 6 and not {"advice", "not_searched"} & set(found)


NO_TOOLS = """import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said:
        body = {"result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}}
        if said["method"] != "initialize":
            body = {"error": {"code": -32601, "message": "none of mine"}}
        print(json.dumps(dict(body, jsonrpc="2.0", id=said["id"])), flush=True)
"""


def test_a_server_without_tools_has_none_and_that_is_no_failure(box):
    """It may have prompts or resources only: -32601 to tools/list is an answer."""
    hub = start(box, [{"name": "none", "description": "d", "command": [sys.executable, "-c", NO_TOOLS]}])
    assert json.loads(hub.tool("list_commands", server="none")["content"][0]["text"]) == []
