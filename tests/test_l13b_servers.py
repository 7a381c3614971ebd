"""L13b: what a servers.json says (G2, G3, G16.2, G11.5; cases 133, 134, 142, 158, 188, 192, 195).

Every file here is given as bytes, variables and the files that {file:} names as arguments: nothing is read or started.
"""

import json
import os
import random
import re
import time
from pathlib import Path

import pytest

import mcp_lazy
from mcp_lazy import LazyError, UsageError, decision, read_hub_config, reload_plan, with_overrides

PATH = "/etc/hub/servers.json"
ENVIRONMENT = {"HOME": "/home/u", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TOKEN": "tok-12345", "EMPTY": "",
               "BASE": "https://h.example", "WORK": "/srv/data"}
ONE = {"name": "a", "description": "one", "command": ["srv"]}
CASES = Path(os.environ.get("MCP_LAZY_CASES", "/nowhere")) / "inputs"


class Facts:
    def __init__(self, mode):
        self.mode = mode


def files(**texts):
    """A `read_file` of {path: bytes, (bytes, mode) or an exception}; slashes are spelled __."""
    def read(path):
        found = texts.get(path.replace("/", "__"), FileNotFoundError(2, "No such file or directory"))
        if isinstance(found, Exception):
            raise found
        return (found[0], Facts(found[1])) if isinstance(found, tuple) else found
    return read


def load(value, environment=None, read_file=None):
    """The HubConfig of a decoded file, or of its text."""
    text = value if isinstance(value, (bytes, str)) else json.dumps(value)
    raw = text if isinstance(text, bytes) else text.encode()
    return read_hub_config(raw, PATH, ENVIRONMENT if environment is None else environment, read_file or files())


def server(environment=None, read_file=None, **members):
    """The HubServer of one entry in the list form; `command` is there unless a url is."""
    start = {"name": "a", "description": "one"} if members.get("url") else ONE
    return load({"servers": [dict(start, **members)]}, environment, read_file).servers[0]


def hub(**members):
    return load(dict({"servers": [ONE]}, **members))


def refused(value, *words):
    """The text of the LazyError of a file; it names the file."""
    with pytest.raises(LazyError) as caught:
        load(value)
    text = str(caught.value)
    assert text.startswith(PATH + ": ") and not [word for word in words if word not in text], text
    return text


# -------------------------------------------------------------------------------- files that people have

DOCUMENTED = [
    # the older hub's document: "Usage"
    {"servers": [
        {"name": "chrome-devtools", "description": "Chrome DevTools automation",
         "command": ["npx", "-y", "chrome-devtools-mcp@latest"]},
        {"name": "gitlab", "description": "GitLab MCP server", "url": "https://gitlab.com/api/v4/mcp"},
        {"name": "my-remote-server", "description": "Custom remote MCP server with static token",
         "url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${API_TOKEN}"}},
        {"name": "glean", "description": "Glean enterprise search (OAuth)",
         "url": "https://your-company.glean.com/mcp/default"}]},
    # "Streamable HTTP Transport"
    {"servers": [{"name": "my-server", "description": "My MCP server", "command": ["python", "server.py"]}],
     "transport": {"type": "http", "port": 3000, "host": "localhost", "path": "/mcp", "authToken": "${MY_API_KEY}"}},
    {"servers": [ONE], "transport": {"type": "http", "host": "127.0.0.1", "port": 8080, "path": "/mcp",
                                     "allowedHosts": ["mcp.example.com"],
                                     "allowedOrigins": ["https://mcp.example.com"]}},
    # "Integration"
    {"servers": [
        {"name": "gitlab", "description": "GitLab API integration",
         "command": ["npx", "mcp-remote@latest", "https://..."]},
        {"name": "grepai", "description": "Search codebase", "command": ["grepai", "mcp-serve"]},
        {"name": "context7", "description": "Library documentation", "command": ["npx", "-y", "@upstash/context7-mcp"]},
        {"name": "perplexity", "description": "Web search", "command": ["npx", "-y", "@perplexity-ai/mcp-server"]}]},
    # "OAuth 2.0 Authentication"
    {"servers": [{"name": "glean", "description": "Glean enterprise search",
                  "url": "https://your-company.glean.com/mcp/default", "oauth": {}},
                 {"name": "glean2", "description": "Glean enterprise search",
                  "url": "https://your-company.glean.com/mcp/default",
                  "oauth": {"clientId": "${GLEAN_CLIENT_ID}", "extraHeaders": {"X-Glean-Auth-Type": "OAUTH"}}}]},
    # "Command Format", "Environment Variables"
    {"servers": [{"name": "l", "description": "d", "command": ["npx", "-y", "my-mcp-server", "--port", "3000"]},
                 {"name": "t", "description": "d", "command": "npx", "args": ["-y", "my-mcp-server", "--port", "3000"],
                  "env": {"API_KEY": "${MY_API_KEY}", "DEBUG": "true"}, "enabled": True, "tags": ["api", "browser"],
                  "examples": [{"command": "x", "parameters": {"n": 1}}], "type": "local"}]},
    # "Logging Configuration", "Health Monitoring"
    {"servers": [{"name": "my-server", "description": "Example", "command": ["npx", "-y", "my-mcp-server"]}],
     "logging": {"level": "debug", "format": "json", "dumpBodies": True, "maxBodyLogBytes": 4096,
                 "redactKeys": ["my_custom_secret"]}},
    {"servers": [ONE], "healthMonitor": {"enabled": False}},
    {"servers": [ONE], "requestTimeout": 30000, "mode": "multi-server"},
]


@pytest.mark.parametrize("at", range(len(DOCUMENTED)))
def test_what_the_older_hub_documents_works_unchanged(at):
    """G2.1, issue: with the variables that they name set there is no error and no warning."""
    names = {"API_TOKEN": "t-1234567", "MY_API_KEY": "k-1234567", "GLEAN_CLIENT_ID": "c-1234567"}
    config = load(DOCUMENTED[at], dict(ENVIRONMENT, **names))
    assert [one.error for one in config.servers] == [None] * len(DOCUMENTED[at]["servers"])
    assert config.warnings == []
    assert [one.name for one in config.servers] == [one["name"] for one in DOCUMENTED[at]["servers"]]


def test_what_a_documented_file_says_arrives():
    names = dict(ENVIRONMENT, API_TOKEN="t-1234567", MY_API_KEY="k-1234567")
    first = load(DOCUMENTED[0], names).servers
    assert first[0].kind == "local" and first[0].argv == ["npx", "-y", "chrome-devtools-mcp@latest"]
    assert first[2].kind == "remote" and first[2].headers == {"Authorization": "Bearer t-1234567"}
    both = load(DOCUMENTED[5], names).servers
    assert both[0].argv == both[1].argv == ["npx", "-y", "my-mcp-server", "--port", "3000"]
    assert both[1].env == {"API_KEY": "k-1234567", "DEBUG": "true"}
    assert both[1].tags == ["api", "browser"] and both[1].examples == [{"command": "x", "parameters": {"n": 1}}]
    reached = load(DOCUMENTED[1], names).transport
    assert (reached.type, reached.port, reached.host, reached.path, reached.auth_token) == (
        "http", 3000, "localhost", "/mcp", "k-1234567")
    log = load(DOCUMENTED[6]).log
    assert (log.level, log.dump_bodies, log.max_body_bytes, log.redact_keys) == (
        "debug", True, 4096, ["my_custom_secret"])


def test_the_defaults():
    """G2.5, G2.6, G2.8, G12.1, G15.1, G16.1."""
    config, one = load({"servers": [ONE]}), server()
    assert config.path == PATH and config.request_timeout_s == 10.0
    assert config.health == mcp_lazy.Health(True, 30.0, 10.0, 300.0, False)
    assert config.log == mcp_lazy.LogOptions("info", "json", False, 8192, [])
    assert config.cache == mcp_lazy.CacheOptions("session", 0.0, 0)
    assert config.embed == mcp_lazy.Embed(False, 10)
    assert config.permissions == mcp_lazy.Permissions(None, [])
    assert (config.search, config.resources, config.watch, config.result_mode) == (False, False, False, "native")
    assert config.transport == mcp_lazy.Transport(
        "stdio", 8080, "127.0.0.1", "/mcp", None, 4194304, [], [], frozenset(), None)
    assert (config.warnings, config.secrets) == ([], frozenset())
    assert one == mcp_lazy.HubServer("a", "one", "local", ["srv"], {}, None, None, {}, None, None,
                                     mcp_lazy.Permissions(None, []), False, None, 60.0, None, 0.0, 0.5, one.canonical,
                                     None)


def test_what_a_server_may_say():
    """G2.8."""
    one = server(cwd="${WORK}/x", stderr="~/log", startTimeout=1000, requestTimeout=2500, idleStop=60000, stopGrace=250,
                 forwardPrompts=True, lazyProbe=True, tags=["t"], examples=["plain", {"n": 1.5}],
                 healthCheck={"timeout": 5})
    assert one.error is None
    assert (one.cwd, one.stderr, one.start_timeout_s, one.request_timeout_s) == ("/srv/data/x", "/home/u/log", 1.0, 2.5)
    assert (one.idle_stop_s, one.stop_grace_s, one.forward_prompts) == (60.0, 0.25, True)
    assert one.examples == ["plain", {"n": 1.5}]
    assert server(cwd="~/w").cwd == "/home/u/w" and server(cwd="rel").cwd == "rel"
    assert server(stderr="log").stderr == "log" and server(stderr="inherit").stderr == "inherit"
    assert server(stderr="./x.log").stderr == "./x.log"


def test_null_is_a_member_that_is_not_there():
    one = server(env=None, headers=None, url=None, tags=None, cwd=None, type=None, args=None, oauth=None,
                 requestTimeout=None)
    assert one.error is None and one.env == {} and one.tags is None
    assert load({"servers": [ONE], "logging": None, "transport": None, "mcpServers": None}).servers[0].error is None


def test_comments_and_trailing_commas_are_let_pass():
    config = load('\ufeff// mine\n{"servers": [ /* é */ {"name": "ä", "description": "d", "command": ["x",],},],}\n')
    assert config.servers[0].name == "ä" and config.servers[0].error is None


# -------------------------------------------------------------------------------- the form of clients

def test_the_form_of_clients():
    """Cases 133, 134: `mcpServers`, without descriptions, with members of the client's own."""
    config = load({"mcpServers": {
        "good": {"command": "python3", "args": ["good.py"], "autoApprove": ["x"], "timeout": 3},
        "off": {"command": "x", "disabled": True}, "none": {"command": "x", "enabled": False}}})
    assert [one.name for one in config.servers] == ["good"] and config.warnings == []
    assert config.servers[0].argv == ["python3", "good.py"] and config.servers[0].description is None
    assert config.servers[0].error is None


def test_both_forms_in_one_file_are_refused():
    refused({"servers": [ONE], "mcpServers": {"b": {"command": "x"}}}, "mcpServers", "servers")


def read_case(number):
    path = CASES / ("%s-servers.json" % number)
    if not path.exists():
        pytest.skip("MCP_LAZY_CASES does not name the folder of the cases")
    return load(path.read_bytes())


def test_case_133():
    """Seven names; the broken entry shows its unknown member, the others stay."""
    config = read_case("133")
    assert [one.name for one in config.servers] == ["good", "hangs", "dies", "gone", "slow", "dead-url", "odd"]
    assert [one.name for one in config.servers if one.error] == ["odd"]
    assert "commnad" in config.servers[6].error and config.servers[6].error.startswith("Server 6 (odd): ")


def test_case_142_a_hub_below_itself():
    config = read_hub_config((CASES / "142-servers.json").read_bytes(), "/w/servers.json", ENVIRONMENT, files()) \
        if read_case("142") else None
    assert [one.name for one in config.servers if one.error is None] == ["ok"]
    assert all("one of its own servers" in one.error for one in config.servers[:2])


def test_case_158_spellings():
    """Both spellings of each kind, contradictions with the accepted list, unknown ones."""
    config = read_case("158")
    kinds = {one.name: one.kind for one in config.servers if one.error is None}
    assert kinds == {**dict.fromkeys("abcde", "remote"), **dict.fromkeys("fg", "local")}
    errors = {one.name: one.error for one in config.servers if one.error}
    assert sorted(errors) == list("hijkl")
    assert "sse" in errors["h"] and "not supported" in errors["h"] and "remote, http, streamable-http" in errors["i"]
    assert "only one" in errors["j"] and "not supported" in errors["k"] and "either a command or a url" in errors["l"]
    assert "local, stdio" in server(type="htpp").error


def test_case_192_a_broken_file():
    for name in "broken", "empty":
        path = CASES / ("192-%s.json" % name)
        if not path.exists():
            pytest.skip("MCP_LAZY_CASES does not name the folder of the cases")
        with pytest.raises(LazyError, match=re.escape(PATH) + ": line \\d+, column \\d+: "):
            load(path.read_bytes())
    config = load((CASES / "192-wrongtype.json").read_bytes())
    assert [bool(one.error) for one in config.servers] == [True, False] and "command" in config.servers[0].error


def test_case_195_secrets():
    """All values of env and headers, those behind option names in the arguments, names and queries of a URL."""
    config = read_case("195")
    hidden = b" ".join(config.secrets)
    for name in "arg-1", "arg-2", "env-1", "env-2", "url-1", "url-2", "hdr-1", "hdr-2":
        assert b"S3CR3T-" + name.encode() in config.secrets, (name, hidden)


# -------------------------------------------------------------------------------- what is wrong with a file

@pytest.mark.parametrize("raw, place", [
    (b"", "line 1, column 1"), (b'{"servers": [\n {"name": }]}', "line 2, column 11"),
    (b'{"servers": []} x', "line 1, column 17"),
    (b"\xff", "line 1"), (b'{"a": NaN}', "line 1, column 7"),
    (b'{\n"servers": [1],\n"servers": [2]}', "servers: stands twice"),
    (b'{"servers":' + b"[" * 20000 + b"]" * 20000 + b"}", "nested")])
def test_a_file_that_cannot_be_read(raw, place):
    """G2.1, case 192: with line and column."""
    assert place in refused(raw)


FILE_LEVEL = [
    ([], "an object"), ({}, "servers"), ({"servers": []}, "at least one"), ({"servers": {}}, "a list"),
    ({"servers": {"a": ONE}}, "a list"), ({"mcpServers": {}}, "at least one"), ({"mcpServers": [ONE]}, "an object"),
] + [(dict({"servers": [ONE]}, **members), words) for members, words in [
    ({"mode": "single"}, "mode"), ({"mode": 1}, "mode"),
    ({"requestTimeout": 0}, "requestTimeout"), ({"requestTimeout": -1}, "requestTimeout"),
    ({"requestTimeout": "10"}, "requestTimeout"), ({"requestTimeout": 1.5}, "requestTimeout"),
    ({"requestTimeout": True}, "requestTimeout"), ({"requestTimeout": 10 ** 15}, "requestTimeout"),
    ({"healthMonitor": []}, "healthMonitor"), ({"healthMonitor": {"enabled": 1}}, "healthMonitor.enabled"),
    ({"healthMonitor": {"interval": 99}}, "healthMonitor.interval"),
    ({"healthMonitor": {"timeout": -1}}, "healthMonitor.timeout"),
    ({"healthMonitor": {"idleTimeout": "0"}}, "healthMonitor.idleTimeout"),
    ({"healthMonitor": {"wake": "no"}}, "healthMonitor.wake"),
    ({"cache": {"strategy": "disk"}}, "cache.strategy"), ({"cache": {"ttl": -1}}, "cache.ttl"),
    ({"cache": {"maxAccessCount": 0.5}}, "cache.maxAccessCount"), ({"cache": "none"}, "cache"),
    ({"logging": "debug"}, "logging"), ({"logging": {"level": "warn"}}, "logging.level"),
    ({"logging": {"format": "text"}}, "logging.format"), ({"logging": {"dumpBodies": "yes"}}, "logging.dumpBodies"),
    ({"logging": {"maxBodyLogBytes": 0}}, "logging.maxBodyLogBytes"),
    ({"logging": {"redactKeys": "k"}}, "logging.redactKeys"),
    ({"logging": {"redactKeys": [1]}}, "logging.redactKeys"),
    ({"embedServerSummaries": True}, "embedServerSummaries"),
    ({"embedServerSummaries": {"enabled": "x"}}, "embedServerSummaries.enabled"),
    ({"embedServerSummaries": {"maxServers": 0}}, "embedServerSummaries.maxServers"),
    ({"transport": "http"}, "transport"), ({"transport": {"type": "sse"}}, "transport.type"),
    ({"transport": {"port": 65536}}, "transport.port"), ({"transport": {"port": "80"}}, "transport.port"),
    ({"transport": {"host": ""}}, "transport.host"), ({"transport": {"path": "mcp"}}, "transport.path"),
    ({"transport": {"authToken": ""}}, "transport.authToken"),
    ({"transport": {"authToken": "two words"}}, "transport.authToken"),
    ({"transport": {"allowedHosts": "h"}}, "transport.allowedHosts"),
    ({"transport": {"allowedOrigins": [1]}}, "transport.allowedOrigins"),
    ({"transport": {"maxPayloadSize": 0}}, "transport.maxPayloadSize"),
    ({"search": "yes"}, "search"), ({"resources": 1}, "resources"), ({"watch": []}, "watch"),
    ({"resultMode": "raw"}, "resultMode"),
    ({"permissions": []}, "permissions"), ({"permissions": None}, "permissions"),
    ({"permissions": {"default": "block"}}, "permissions.default"),
    ({"permissions": {"rules": {}}}, "permissions.rules"), ({"permissions": {"rules": ["x"]}}, "permissions.rules[0]"),
    ({"permissions": {"defualt": "deny"}}, "permissions.defualt"),
    ({"permissions": {"rules": [{"action": "deny"}]}}, "permissions.rules[0]: has to have pattern"),
    ({"permissions": {"rules": [{"pattern": "x"}]}}, "permissions.rules[0]: has to have pattern and action"),
    ({"permissions": {"rules": [{"pattern": "x", "action": "no"}]}}, "permissions.rules[0].action"),
    ({"permissions": {"rules": [{"pattern": "", "action": "deny"}]}}, "permissions.rules[0].pattern"),
    ({"permissions": {"rules": [{"pattern": "x", "action": "deny", "message": 1}]}}, "permissions.rules[0].message"),
    ({"permissions": {"rules": [{"pattern": "x", "action": "deny", "server": 1}]}}, "permissions.rules[0].server"),
    ({"permissions": {"rules": [{"pattern": "x", "action": "deny", "servers": "a"}]}}, "only message and server"),
]]


@pytest.mark.parametrize("at", range(len(FILE_LEVEL)))
def test_what_is_wrong_with_a_file_is_fatal(at):
    """G2.1, G2.5, G16.2 [ours]: the text names file and member; the older hub's fail-open permissions among that."""
    value, words = FILE_LEVEL[at]
    refused(value, words)


def test_a_member_of_the_file_is_named_with_its_line():
    refused('{"servers": [],\n"logging": {\n"level": 3}}', PATH + ": line 3: logging.level: ")
    refused('{"permissions": {\n"rules": [\n3]}, "servers": []}', ": permissions.rules[0]: ", ": line ")
    refused('{\n"servers": [1],\n"servers": [2]}', ": line 3: servers: stands twice")


@pytest.mark.parametrize("number, milliseconds", [("1e4", 10000), ("10000.0", 10000), ("2147483647", 2147483647)])
def test_a_whole_number_however_it_is_spelled(number, milliseconds):
    assert load('{"servers": [{"name": "a", "description": "d", "command": ["x"]}], "requestTimeout": %s}' % number
                ).request_timeout_s == milliseconds / 1000


@pytest.mark.parametrize("number", ["1e999999999", "1e-1", "-0", pytest.param("9" * 5000, id="long"),
                                    pytest.param("1e" + "9" * 5000, id="power"), "2147483648"])
def test_a_number_that_is_no_time(number):
    entry = json.dumps(ONE)
    refused('{"servers": [%s], "requestTimeout": %s}' % (entry, number), "requestTimeout")


# -------------------------------------------------------------------------------- what is wrong with one server

WRONG_ENTRIES = [
    ("text", "Server 0 (unnamed): "), (5, "Server 0 (unnamed): "), (None, "an object"), ([], "an object"),
    ({"description": "d", "command": ["x"]}, "name"), ({"name": "", "description": "d", "command": ["x"]}, "name"),
    ({"name": "  ", "description": "d", "command": ["x"]}, "name"),
    ({"name": 5, "description": "d", "command": ["x"]}, "name"),
    ({"name": "a\x1b[31m", "description": "d", "command": ["x"]}, "Server 0 (a [31m): name"),
    ({"name": "a\nb", "description": "d", "command": ["x"]}, "Server 0 (a b): name"),
    ({"name": "a\u202eb", "description": "d", "command": ["x"]}, "Server 0 (a b): name"),
    ({"name": "a\ud800", "description": "d", "command": ["x"]}, "name"),
    ({"name": "a", "command": ["x"]}, "description"),
    ({"name": "a", "description": "", "command": ["x"]}, "description"),
    ({"name": "a", "description": 7, "command": ["x"]}, "description"),
    ({"name": "a", "description": "d"}, "either"), ({"name": "a", "description": "d", "command": None}, "either"),
] + [(dict({"name": "a", "description": "d"}, **members), words) for members, words in [
    ({"command": []}, "command"), ({"command": ""}, "command"), ({"command": [""]}, "command"),
    ({"command": {"a": 1}}, "command"),
    ({"command": ["x", 4]}, "command"), ({"command": 4}, "command"), ({"command": "x", "args": "y"}, "args"),
    ({"command": "x", "args": [1]}, "args"), ({"command": "x", "args": {}}, "args"), ({"command": ["x", "\0"]}, "NUL"),
    ({"command": "x", "args": ["\ud800"]}, "surrogate"), ({"command": "x", "expandCommand": 1}, "expandCommand"),
    ({"command": ["${NOT_SET}"], "expandCommand": True}, "NOT_SET"),
    ({"command": "x", "url": "http://h"}, "only one"), ({"command": "x", "type": "remote"}, "type"),
    ({"url": "http://h", "type": "local"}, "type"), ({"command": "x", "type": 5}, "type"),
    ({"type": "local"}, "either"),
    ({"command": "x", "type": "stdio", "transport": "http"}, "transport"),
    ({"url": "http://h", "type": "sse"}, "sse and websocket are not supported"),
    ({"url": "ws://h/x"}, "WebSocket"), ({"url": "wss://h/x"}, "WebSocket"), ({"url": "ftp://h"}, "http://"),
    ({"url": "http://"}, "url"),
    ({"url": "h/x"}, "url"), ({"url": ""}, "url"), ({"url": 5}, "url"), ({"url": "http://h/ x"}, "url"),
    ({"url": "http://h/\n"}, "url"),
    ({"url": "${NOT_SET}/mcp"}, "NOT_SET"),
    ({"url": "http://h", "headers": []}, "headers"), ({"url": "http://h", "headers": {"A": 1}}, "headers.A"),
    ({"url": "http://h", "headers": {"A b": "x"}}, "headers"), ({"url": "http://h", "headers": {"": "x"}}, "headers"),
    ({"url": "http://h", "headers": {"A": "x\r\nB: y"}}, "headers.A"),
    ({"url": "http://h", "headers": {"A": "${NOT_SET}"}}, "headers.A"),
    ({"url": "http://h", "headers": {"A": "${EMPTY}"}}, "headers.A"),
    ({"url": "http://h", "headers": {"A": "{file:/gone}"}}, "headers.A"),
    ({"command": "x", "env": []}, "env"), ({"command": "x", "env": {"A": 1}}, "env.A"),
    ({"command": "x", "env": {"A": True}}, "env.A"),
    ({"command": "x", "env": {"A": None}}, "env.A"), ({"command": "x", "env": {"A=B": "1"}}, "env"),
    ({"command": "x", "env": {"": "1"}}, "env"),
    ({"command": "x", "env": {"A\0": "1"}}, "env"), ({"command": "x", "env": {"A": "\0"}}, "env.A"),
    ({"command": "x", "env": {"A": "\ud800"}}, "env.A"),
    ({"command": "x", "env": {"A": "{file:/gone}"}}, "env.A"), ({"command": "x", "cwd": ""}, "cwd"),
    ({"command": "x", "cwd": 5}, "cwd"),
    ({"command": "x", "cwd": "${NOT_SET}"}, "cwd"), ({"command": "x", "cwd": "\0"}, "cwd"),
    ({"command": "x", "oauth": {}}, "oauth"), ({"url": "http://h", "oauth": []}, "oauth"),
    ({"url": "http://h", "oauth": {"clientId": 5}}, "oauth.clientId"),
    ({"url": "http://h", "oauth": {"clientSecret": ""}}, "oauth.clientSecret"),
    ({"url": "http://h", "oauth": {"clientId": "${NOT_SET}"}}, "oauth.clientId"),
    ({"url": "http://h", "oauth": {"extraHeaders": {"A": 1}}}, "oauth.extraHeaders.A"),
    ({"command": "x", "tags": "t"}, "tags"), ({"command": "x", "tags": [1]}, "tags"),
    ({"command": "x", "examples": "e"}, "examples"),
    ({"command": "x", "forwardPrompts": "yes"}, "forwardPrompts"),
    ({"command": "x", "stderr": "logs"}, "stderr"), ({"command": "x", "stderr": True}, "stderr"),
    ({"command": "x", "stderr": "/a\0"}, "stderr"),
    ({"command": "x", "startTimeout": 0}, "startTimeout"), ({"command": "x", "requestTimeout": "1"}, "requestTimeout"),
    ({"command": "x", "idleStop": -1}, "idleStop"), ({"command": "x", "stopGrace": 0}, "stopGrace"),
    ({"command": "x", "permissions": []}, "permissions"), ({"command": "x", "permissions": None}, "permissions"),
    ({"command": "x", "permissions": {"default": "no"}}, "permissions.default"),
    ({"command": "x", "permissions": {"rule": []}}, "permissions.rule"),
    ({"command": "x", "permissions": {"rules": [{"pattern": "x", "action": "deny", "server": "s"}]}},
     "permissions.rules[0]: has to have pattern and action, else only message"),
]]


@pytest.mark.parametrize("at", range(len(WRONG_ENTRIES)))
def test_what_is_wrong_with_one_server_leaves_the_others(at):
    """G2.2 to G2.4, G2.7, G3.3 to G3.5: listed with an error that names server, member and file."""
    entry, words = WRONG_ENTRIES[at]
    config = load('{"servers": [\n%s,\n%s]}' % (json.dumps(entry), json.dumps(dict(ONE, name="good"))))
    bad, good = config.servers
    assert good.error is None and good.name == "good"
    assert re.match(r"Server 0 \([^)]*\): ", bad.error) and bad.error.endswith(" (in %s)" % PATH), bad.error
    assert words in bad.error, bad.error
    assert isinstance(bad.name, str) and bad.name.isprintable() and bad.error.isprintable()
    assert bad.argv is None and bad.url is None and bad.permissions is None


def test_what_is_deep_or_long_is_an_error_of_its_server():
    deep = "[" * 400 + "]" * 400
    for text in ('"examples": [%s]' % deep, '"x": %s' % deep, '"x": 1e%s' % ("9" * 5000)):
        config = load('{"servers": [{"name": "a", "description": "d", "command": ["x"], %s}, %s]}' % (
            text, json.dumps(dict(ONE, name="b"))))
        assert config.servers[1].error is None and config.servers[0].name == "a"


def test_a_name_that_stands_twice():
    """G2.4 [ours], in either form: an error of the second, and both are listed."""
    config = load({"servers": [ONE, dict(ONE, command=["other"]), dict(ONE, enabled=False), dict(ONE, name="c")]})
    assert [one.name for one in config.servers] == ["a", "a", "c"]
    assert [bool(one.error) for one in config.servers] == [False, True, False]
    assert config.servers[1].error.startswith("Server 1 (a): name: ") and "server 0" in config.servers[1].error
    config = load('{"mcpServers": {"a": {"command": "x"},\n"a": {"command": "y"}, "b": {"command": "z"}}}')
    assert [(one.name, bool(one.error)) for one in config.servers] == [("a", False), ("a", True), ("b", False)]
    assert config.servers[0].argv == ["x"] and PATH in config.servers[1].error


@pytest.mark.parametrize("text, member", [
    ('"command": ["x"], "command": ["y"]', "command"), ('"command": ["x"], "env": {"A": "1", "A": "2"}', "env.A"),
    ('"command": ["x"], "permissions": {"default": "deny", "default": "allow"}', "permissions.default")])
def test_a_member_that_stands_twice(text, member):
    one = load('{"servers": [{"name": "a", "description": "d", %s}]}' % text).servers[0]
    assert "%s: stands twice" % member in one.error


def test_hundreds_of_servers_half_of_them_broken():
    """Issue: 200 servers of which 50 are broken; here 600 and 300."""
    rng = random.Random(7)
    broken = [entry for entry, _ in WRONG_ENTRIES if isinstance(entry, dict)]
    entries = [dict(ONE, name="s%d" % at) if at % 2 else dict(rng.choice(broken), marker="m%d" % at)
               for at in range(600)]
    start = time.process_time()
    config = load({"servers": entries})
    assert time.process_time() - start < 2.0
    assert len(config.servers) == 600 and sum(one.error is None for one in config.servers) == 300
    assert all(one.error is None for one in config.servers[1::2])


def test_a_disabled_server_is_not_there():
    """G2.2, G2.4: only literal false disables; what is wrong with a disabled entry does not matter."""
    config = load({"servers": [dict(ONE, enabled=False), dict(ONE, name="b", enabled="false"),
        {"enabled": False}, dict(ONE, name="c", enabled=0)]})
    assert [one.name for one in config.servers] == ["b", "c"] and [one.error for one in config.servers] == [None, None]
    assert len(config.warnings) == 2 and all("enabled" in text for text in config.warnings)
    assert load({"servers": [dict(ONE, enabled=False)]}).servers == []


def test_what_is_ignored_is_said():
    config = load({"servers": [dict(ONE, permisions={}, zzz=1), dict(ONE, name="b", args=["x"])], "permisions": {}})
    assert config.servers[0].error is None and config.servers[1].argv == ["srv"]
    assert len(config.warnings) == 3 and all(text.startswith(PATH + ": ") for text in config.warnings)
    assert "permisions" in config.warnings[0]
    assert "Server 0 (a)" in config.warnings[1] and "permisions, zzz" in config.warnings[1]
    assert "Server 1 (b)" in config.warnings[2] and "args" in config.warnings[2]


# -------------------------------------------------------------------------------- variables and files

@pytest.mark.parametrize("text, value", [
    ("${TOKEN}", "tok-12345"), ("a${TOKEN}b${TOKEN}", "atok-12345btok-12345"), ("${NOT_SET}", "${NOT_SET}"),
    ("${EMPTY}", "${EMPTY}"),
    ("${}", "${}"), ("$TOKEN", "$TOKEN"), ("${TOKEN", "${TOKEN"), ("$${TOKEN}", "$tok-12345"),
    ("${A${TOKEN}}", "${A${TOKEN}}"),
    ("${TOKEN:-x}", "${TOKEN:-x}"), ("{file:/t}", "in ${TOKEN}"), ("{file: /t }", "in ${TOKEN}"),
    ("x{file:/t}y${TOKEN}", "xin ${TOKEN}ytok-12345"),
    ("{file:~/t}", "home"), ("{file:%WORK%/t}", "work"), ("{file:/%NOT_SET%}", "percent"), ("{file:t}", "{file:t}"),
    ("{file:}", "{file:}"),
    ("{file:/crlf}", "a\r\n"), ("{file:/two}", "a\n"), ("{file:C:/x}", "drive"), ("{file:/void}", ""),
    ("{file:/bytes}", "\udcff")])
def test_expansion_in_env(text, value):
    """G3.1, G3.3, G3.4: one pass; what is missing stays as it is, with a warning."""
    read = files(__t=b"in ${TOKEN}\n", __home__u__t=b"home\r\n", __srv__data__t=b"work", __crlf=b"a\r\n\r\n",
                 __two=b"a\n\n", __void=b"\n",
                 __bytes=b"\xff\n", **{"__%NOT_SET%": b"percent", "C:__x": b"drive"})
    config = load({"servers": [dict(ONE, env={"A": text})]}, read_file=read)
    assert config.servers[0].error is None and config.servers[0].env == {"A": value}
    stays = value == text and ("NOT_SET" in text or "EMPTY" in text or "A$" in text or ":-" in text or "{file" in text)
    assert len(config.warnings) == stays and all("Server 0 (a): env.A: " in warning for warning in config.warnings)


def test_braces_without_an_end_take_linear_time():
    start = time.process_time()
    for text in "${x" * 100000, "{file:" * 100000, "${x" * 100000 + "}", "{file:}" * 1000 + "${" * 100000:
        assert server(env={"A": text}).env == {"A": text}
    assert time.process_time() - start < 2.0


def test_where_variables_are_put_in():
    """G3.3 [ours]: env, headers, url, cwd, oauth; commands only where they ask for it."""
    config = load({"servers": [
        {"name": "r", "description": "d", "url": "${BASE}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},
         "oauth": {"clientId": "${TOKEN}", "clientSecret": "s-${TOKEN}", "extraHeaders": {"X": "${TOKEN}"}}},
        {"name": "c", "description": "${TOKEN}", "command": ["x", "${TOKEN}", "${NOT_SET}"]},
        {"name": "e", "description": "d", "command": "${WORK}/x", "args": ["--t", "${TOKEN}"], "expandCommand": True}]})
    remote, literal, expanded = config.servers
    assert remote.url == "https://h.example/mcp" and remote.headers == {"Authorization": "Bearer tok-12345"}
    assert json.loads(remote.canonical)["oauth"] == {
        "clientId": "tok-12345", "clientSecret": "s-tok-12345", "extraHeaders": {"X": "tok-12345"}}
    assert literal.argv == ["x", "${TOKEN}", "${NOT_SET}"] and literal.error is None
    assert literal.description == "${TOKEN}"
    assert expanded.argv == ["/srv/data/x", "--t", "tok-12345"]
    assert {b"tok-12345", b"s-tok-12345", b"Bearer tok-12345"} <= config.secrets


def test_what_is_missing_where_it_helps_nobody():
    """G3.3, G3.4 [ours]: a server-level error with the name of the variable, and no other value."""
    why = server(url="http://h", headers={"A": "Bearer ${NOT_SET}"}).error
    assert "headers.A: the variable NOT_SET is not set" in why
    one = server(url="http://h", headers={"A": "p4${w0rd!}x"})
    assert one.error and "w0rd" not in one.error
    assert "headers.A" in server(url="http://h", headers={"A": "{file:rel}"}).error
    assert "empty" in server(url="http://h", headers={"A": "{file:/void}"}, read_file=files(__void=b"\n")).error
    why = server(env={"A": "{file:/x}"}, read_file=files(__x=PermissionError(13, "Permission denied"))).error
    assert "env.A" in why and "Permission denied" in why and "/x" not in why
    assert server(env={"A": "{file:/x}"}, read_file=files(__x=LazyError("whatever"))).error
    assert server(env={"A": "{file:/x}"}, read_file=files(__x=ValueError("embedded null byte"))).error


def test_a_file_that_others_may_read():
    """G3.4 [ours]: a warning."""
    config = load({"servers": [dict(ONE, env={"A": "{file:/open}", "B": "{file:/own}"})]},
                  read_file=files(__open=(b"secret-1", 0o644), __own=(b"secret-2", 0o600)))
    assert config.servers[0].env == {"A": "secret-1", "B": "secret-2"}
    assert len(config.warnings) == 1 and "env.A" in config.warnings[0] and {b"secret-1", b"secret-2"} <= config.secrets


# -------------------------------------------------------------------------------- secrets

def test_secrets():
    """Brief of redaction, cases 195 and 198: every value of env, headers and tokens; not what everybody may see."""
    config = load({"servers": [
        dict(ONE, env={"A": "plain-1", "H": "${HOME}", "P": "${PATH}", "D": "true", "S": "abc",
                       "J": 'q"u\\o\nline-two', "U": "pässword", "W": "${HOME}/w"}),
        {"name": "r", "description": "d", "url": "https://us3r:pw-1234@h/x?key=q-1234&b=12",
         "headers": {"Authorization": "Bearer hd-1234", "X": "xv-1234"}}],
        "transport": {"authToken": "at-1234"}})
    assert {b"plain-1", b"us3r", b"pw-1234", b"q-1234", b"hd-1234", b"Bearer hd-1234", b"xv-1234",
            b"at-1234"} <= config.secrets
    assert {b"line-two", 'pässword'.encode(), b"p\\u00e4ssword", b'q\\"u\\\\o\\nline-two',
            b"/home/u/w"} <= config.secrets
    assert not {b"/home/u", b"/usr/bin:/bin", b"true", b"abc", b"Bearer", b"12"} & config.secrets
    assert isinstance(config.secrets, frozenset)
    assert all(isinstance(one, bytes) and len(one) >= 4 for one in config.secrets)


def test_what_was_put_in_is_a_secret_of_its_own():
    """It may turn up alone; a word of the command is one only behind an option."""
    config = load({"servers": [dict(ONE, env={"DSN": "db://${TOKEN}@${HOME}/{file:/t}"}, command=[
        "srv", "--api-key", "key-1234", "--token=tok-5678", "PUBLIC-KEY", "plain-99", "--key", "--other"])]},
        read_file=files(__t=b"file-123"))
    assert {b"tok-12345", b"file-123", b"db://tok-12345@/home/u/file-123", b"key-1234", b"tok-5678"} <= config.secrets
    assert not {b"/home/u", b"plain-99", b"PUBLIC-KEY", b"--other", b"--api-key"} & config.secrets


def test_long_names_do_not_fill_the_messages():
    one = server(**{"name": "n" * 100000, "env": {"E" * 100000: 5}})
    assert one.name == "n" * 100000 and len(one.error) < 500
    assert len("".join(load({"servers": [dict(ONE, **{"m%d" % at * 1000: 1 for at in range(99)})]}).warnings)) < 2000


def test_no_message_tells_a_value():
    """Every wrong entry again, with a value in each text: none of it is in an error or a warning."""
    rng = random.Random(3)
    values = [{"env": {"A": "S3CR3T", "B": 5}}, {"env": {"A": "S3CR3T\0"}}, {"env": {"A": "S3CR3T${NOT_SET}"}},
        {"env": "S3CR3T"}, {"env": ["S3CR3T"]},
              {"headers": {"A": "S3CR3T\n"}}, {"headers": {"A": "S3CR3T${NOT_SET}"}}, {"headers": "S3CR3T"},
              {"cwd": ["S3CR3T"]},
              {"stderr": "S3CR3T"}, {"startTimeout": "S3CR3T"}, {"tags": "S3CR3T"}, {"args": "S3CR3T"},
              {"permissions": "S3CR3T"},
              {"permissions": {"default": "S3CR3T"}}, {"env": {"A": "{file:/S3CR3T}"}},
              {"env": {"A": "{file:S3CR3T}"}}, {"type": "S3CR3T"}]
    remote = [{"url": "S3CR3T"}, {"url": "ftp://S3CR3T"}, {"url": "ws://S3CR3T"}, {"url": "http://S3CR3T@"},
        {"url": "http://h/ S3CR3T"},
              {"url": "http://h", "oauth": "S3CR3T"},
              {"url": "http://h", "oauth": {"clientSecret": "S3CR3T${NOT_SET}"}}]
    entries = [dict(ONE, name="l%d" % at, **members) for at, members in enumerate(values)]
    entries += [dict({"name": "r%d" % at, "description": "d"}, **members) for at, members in enumerate(remote)]
    rng.shuffle(entries)
    config = load({"servers": entries})
    assert len(config.servers) == len(values) + len(remote)
    # two of them are only warned about
    assert sum(one.error is None for one in config.servers) == 2
    assert "S3CR3T" not in " ".join([one.error or "" for one in config.servers] + config.warnings)
    for members in ({"transport": {"authToken": "S3CR3T\n"}}, {"requestTimeout": "S3CR3T"},
                    {"permissions": "S3CR3T"}, {"transport": {"path": "S3CR3T"}}, {"mode": "S3CR3T"}):
        assert "S3CR3T" not in refused(dict({"servers": [ONE]}, **members))


# -------------------------------------------------------------------------------- a hub below itself

@pytest.mark.parametrize("argv, same", [
    (["mcp-lazy", "hub", "--config", PATH], True), (["/opt/bin/mcp-lazy", "hub", "--config=" + PATH], True),
    (["mcp-lazy", "hub", "--config", "servers.json"], True), (["mcp-lazy", "hub", "--config", "./servers.json"], True),
    (["python3", "/opt/mcp_lazy.py", "hub", "--config", PATH], True),
    (["mcp-lazy", "relay", "--", "mcp-lazy", "hub", "--config", PATH], True),
    (["npx", "lazy-mcp@latest", "--config", PATH], True), (["lazy-mcp", "--config", PATH], True),
    (["mcp-lazy", "hub", "--config", "/etc/other/servers.json"], False),
    (["mcp-lazy", "hub", "--config", "other.json"], False),
    (["mcp-lazy", "hub", "--config"], False), (["mcp-lazy", "hub"], False), (["other", "hub", "--config", PATH], False),
    (["mcp-lazy", "srv", "--config", PATH], False), (["npx", "lazy-mcp@latest", "npx", "-y", "x"], False)])
def test_an_entry_that_is_this_hub(argv, same):
    """Case 142."""
    one = server(command=argv)
    assert bool(one.error) is same and ("one of its own servers" in (one.error or "")) is same


# -------------------------------------------------------------------------------- options and variables

def overridden(members, flags=None, **variables):
    return with_overrides(hub(**members), flags or {}, variables)


SOURCES = [("request-timeout", "requestTimeout", "LAZY_MCP_REQUEST_TIMEOUT", (4000, 5000, 6000)),
           ("transport", "type", "LAZY_MCP_TRANSPORT", ("http", "stdio", "http")),
           ("port", "port", "LAZY_MCP_PORT", (1, 2, 3)),
           ("host", "host", "LAZY_MCP_HOST", ("h1", "h2", "h3")), ("path", "path", "LAZY_MCP_PATH", ("/1", "/2", "/3")),
           ("auth-token", "authToken", "LAZY_MCP_AUTH_TOKEN", ("token-1", "token-2", "token-3")),
           ("max-payload-size", "maxPayloadSize", "LAZY_MCP_MAX_PAYLOAD_SIZE", (10, 20, 30))]


@pytest.mark.parametrize("option, member, variable, values", SOURCES)
def test_flags_win_over_the_file_and_that_over_the_environment(option, member, variable, values):
    """G1.6, I7."""
    flag, said, from_environment = values
    members = {member: said} if option == "request-timeout" else {"transport": {member: said}}

    def found(config):
        assert config.warnings == [] and config.path == PATH
        if option == "request-timeout":
            return config.request_timeout_s * 1000
        return getattr(config.transport, mcp_lazy.SETTINGS[option][1])

    assert found(overridden(members, {option: str(flag)}, **{variable: str(from_environment)})) == flag
    assert found(overridden(members, {option: flag})) == flag
    assert found(overridden(members, **{variable: str(from_environment)})) == said
    assert found(overridden({}, **{variable: str(from_environment)})) == from_environment
    assert found(overridden({}, **{variable: ""})) == found(overridden({}, {option: None}))


@pytest.mark.parametrize("option, text", [
    ("request-timeout", "80abc"), ("request-timeout", "0"), ("request-timeout", "-5"), ("request-timeout", "1.5"),
    ("request-timeout", ""),
    pytest.param("request-timeout", "9" * 5000, id="long"), ("request-timeout", "\u0663"), ("transport", "sse"),
        ("transport", "HTTP"), ("port", "65536"), ("port", " 80"),
    ("host", ""), ("path", "mcp"), ("path", ""), ("auth-token", ""), ("auth-token", "a b"),
    ("max-payload-size", "0"), ("max-payload-size", "4M")])
def test_a_wrong_flag_or_variable(option, text):
    """G1.3, G1.6: a flag is a usage error, a variable is ignored with a warning; a path or a token (I8) is fatal."""
    with pytest.raises(UsageError, match="^--%s: " % option):
        overridden({}, {option: text})
    variable = "LAZY_MCP_" + option.upper().replace("-", "_")
    if not text:
        return
    if option in ("path", "auth-token"):
        with pytest.raises(LazyError, match="^%s: " % variable) as caught:
            overridden({}, **{variable: text})
        assert not isinstance(caught.value, UsageError)
    else:
        config = overridden({}, **{variable: text})
        assert len(config.warnings) == 1 and config.warnings[0].startswith(variable + ": ")
        assert config == mcp_lazy.replaced(hub(), warnings=config.warnings)


@pytest.mark.parametrize("token", ["${NOT_SET}", "S3CR3T${EMPTY}", "{file:/gone}", "{file:rel}", "two words ${NOT_SET}"])
def test_a_token_that_is_not_there_is_an_error_for_http_alone(token):
    """G3.3: nobody needs it on stdio. For http it is fatal (I8), whoever says http, and no variable takes its place."""
    named = {"transport": {"authToken": token}}
    http = {"transport": {"authToken": token, "type": "http"}}
    for members, flags, variables in ((http, {}, {}), (named, {"transport": "http"}, {}),
                                      (named, {}, {"LAZY_MCP_TRANSPORT": "http"}),
                                      (http, {}, {"LAZY_MCP_AUTH_TOKEN": "token-9"})):
        with pytest.raises(LazyError, match="^%s: line 1: transport.authToken: " % PATH) as caught:
            overridden(members, flags, **variables)
        assert not isinstance(caught.value, UsageError) and "S3CR3T" not in str(caught.value)
    for members, flags in ((named, {}), (http, {"transport": "stdio"})):
        config = overridden(members, flags, LAZY_MCP_AUTH_TOKEN="token-9")
        assert (config.transport.type, config.transport.auth_token, config.warnings) == ("stdio", None, [])
        assert config.transport == overridden(members, flags, NEW="1").transport, "a reload sees no change"
    assert overridden(http, {"auth-token": "token-9"}).transport.auth_token == "token-9"


def test_a_token_from_outside_is_a_secret():
    assert b"token-9" in overridden({}, {"auth-token": "token-9"}).secrets
    assert b"token-9" in overridden({}, LAZY_MCP_AUTH_TOKEN="token-9").secrets
    assert b"token-8" in overridden({"transport": {"authToken": "token-8"}}, {"auth-token": "token-9"}).secrets


# -------------------------------------------------------------------------------- permissions

def permissions(default=None, *rules):
    """Permissions of (pattern, action[, message[, server]])."""
    value = {"rules": [dict(zip(("pattern", "action", "message", "server"), rule)) for rule in rules]}
    return hub(permissions=dict(value, default=default)).permissions


DENY, ALLOW = ("*", "deny"), ("*", "allow")


@pytest.mark.parametrize("ours, theirs, allowed", [
    (None, None, True), (permissions(), permissions(), True), (permissions("deny"), None, False),
    (permissions("deny"), permissions("allow"), True),
    (permissions("allow"), permissions("deny"), False), (permissions("allow", DENY), permissions("allow"), False),
    (permissions("allow", DENY), permissions("allow", ALLOW), True),
    (permissions("deny", ALLOW), permissions("deny"), True),
    (permissions(None, DENY, ALLOW), None, True), (permissions(None, ALLOW, DENY), None, False),
    (permissions(None, DENY), permissions(None, ("get_*", "allow")), True),
    (permissions(None, DENY), permissions(None, ("set_*", "allow")), False),
    (permissions(None, ("*", "deny", "m", "s*")), None, False),
    (permissions(None, ("*", "deny", "m", "t*")), None, True)])
def test_the_order_of_permissions(ours, theirs, allowed):
    """G16.2: last matching rule of the server, then of the hub, then the defaults, then allow. `ours` is the hub's."""
    assert decision(ours, theirs, "srv", "get_it")[0] is allowed


def test_the_message_of_a_rule():
    rules = permissions(None, ("*", "allow", "not shown"), ("drop_*", "deny", "ask first"), ("rm", "deny"))
    assert decision(rules, None, "s", "drop_all") == (False, "ask first")
    assert decision(rules, None, "s", "rm") == (False, None) and decision(rules, None, "s", "x") == (True, None)


def test_patterns_against_regular_expressions():
    """G16.2: * any run, ? one character, the whole name, capitals do not matter."""
    rng = random.Random(11)
    for _ in range(4000):
        pattern = "".join(rng.choice("aAbB.*?[") for _ in range(rng.randrange(7)))
        text = "".join(rng.choice("aAbB.[\n") for _ in range(rng.randrange(9)))
        wanted = re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), text, re.I | re.S)
        assert mcp_lazy.glob_matches(pattern, text) is bool(wanted), (pattern, text)
    assert mcp_lazy.glob_matches("STRA?E_*", "straße_\U0001f600") and mcp_lazy.glob_matches("?", "\0")
    assert not mcp_lazy.glob_matches("?", "\0\0")


def test_a_pattern_takes_linear_time():
    start = time.process_time()
    assert not mcp_lazy.glob_matches("*a" * 30 + "b", "a" * 100000)
    assert time.process_time() - start < 1.0


# -------------------------------------------------------------------------------- reload

def test_a_reload_compares_what_was_read():
    """G11.5, case 188: order, blanks and comments are no change; a file's or a variable's new content is one,
    and another text of an error (the broken one has moved)."""
    before = load('''{"mcpServers": {
        "same": {"command": "x", "env": {"A": "1", "B": "2"}, "startTimeout": 1000}, "changed": {"command": "x"},
        "removed": {"command": "x"}, "file": {"command": "x", "env": {"T": "{file:/t}"}},
        "var": {"command": "x", "env": {"T": "${TOKEN}"}}, "off": {"command": "x"}, "broken": {"command": 5},
        "mended": {"command": 5}, "oauth": {"url": "http://h", "oauth": {"clientId": "1"}}}}''',
                  read_file=files(__t=b"1"))
    after = load('''{"mcpServers": { // mine
        "oauth": {"url": "http://h", "oauth": {"clientId": "2"}}, "added": {"command": "x"},
        "changed": {"command": "x", "args": ["n"]}, "var": {"env": {"T": "${TOKEN}"}, "command": "x"},
        "file": {"command": "x", "env": {"T": "{file:/t}"}}, "off": {"command": "x", "enabled": false},
        "same": {"startTimeout": 1e3, "env": {"B": "2", "A": "1"}, "command": "x"}, "broken": {"command": 5},
        "mended": {"command": "x"},}}''', dict(ENVIRONMENT, TOKEN="other"), files(__t=b"2"))
    assert [sorted(names) for names in reload_plan(before, after)] == [
        ["added"], ["off", "removed"], ["broken", "changed", "file", "mended", "oauth", "var"], ["same"]]
    assert reload_plan(before, before) == ([], [], [], [one.name for one in before.servers])


def test_a_reload_with_a_name_that_stands_twice():
    """The first one of a name is the one that runs."""
    one, twice = load({"servers": [ONE]}), load({"servers": [ONE, dict(ONE, command=["y"])]})
    assert reload_plan(one, twice) == ([], [], [], ["a"]) == reload_plan(twice, one)
    assert reload_plan(one, load({"servers": [dict(ONE, command=["y"]), ONE]})) == ([], [], ["a"], [])


def test_a_reload_after_a_variable_was_missing():
    entry = {"servers": [{"name": "r", "description": "d", "url": "http://h", "headers": {"A": "${LATER}"}}]}
    before, after = load(entry), load(entry, dict(ENVIRONMENT, LATER="x-12345"))
    assert before.servers[0].error and not after.servers[0].error
    assert reload_plan(before, after) == ([], [], ["r"], [])
