"""What the hub logs, and what it never tells (G15, cases 195-201)."""

import json
import os
import random
import re
import resource
import select
import time

import pytest

from harness import LINUX, alive, memory_kib, message, until
from test_hub_reload import Hub, entry, failure

pytestmark = pytest.mark.skipif(not LINUX, reason="reads /proc")
slow = pytest.mark.slow
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
DEBUG = {"level": "debug"}
ALL = {"level": "debug", "dumpBodies": True}


def lines_of(text):
    """The lines of a log in JSON, decoded: every one has the form of G15.2."""
    found = []
    for line in text.split("\n"):
        if not line:
            continue
        one = json.loads(line)
        assert isinstance(one, dict) and re.fullmatch(STAMP, one["timestamp"]), line
        assert one["level"] in ("error", "info", "debug") and isinstance(one["message"], str), line
        assert None not in one.values(), line
        assert line.isprintable(), "a character that is not seen: %r" % line
        found.append(one)
    return found


def frames(relay):
    """Every line that the hub wrote to stdout so far; each one has to be a message of JSON-RPC 2.0 (case 197)."""
    for raw in relay.raw:
        found = json.loads(raw.decode("utf-8"))
        for one in found if isinstance(found, list) else [found]:
            assert one["jsonrpc"] == "2.0" and (
                "method" in one or "id" in one and ("result" in one) != ("error" in one)
            ), raw[:300]
    return relay.raw


def traffic(box, hub_path):
    """The bytes of all that was written and may hold a secret, recordings and logs among it; not the input files."""
    found = b""
    for folder, _, names in os.walk(str(box.path)):
        for name in names:
            path = os.path.join(folder, name)
            if path != str(hub_path) and not name.startswith(("seen-", "control-")) and os.path.isfile(path):
                with open(path, "rb") as file:
                    found += file.read()
    return found


# ----------------------------------------------------------------------------- form, level, first lines


def test_g15_1_g15_2_every_line_is_json_and_says_what_was_done(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake), entry("none", ["/nonexistent/program"])])
    hub.relay.ask("tools/list")
    hub.invoke("s", "echo", x=1)
    hub.refused("none", "pid")
    hub.reload([entry("s", fake)])
    hub.relay.finish()
    found = lines_of(hub.relay.stderr())
    events = [line.get("event") for line in found]
    assert events[0] == "service_start" and "service_shutdown_start" in events
    assert {"mcp_request", "lazy_tool_execution", "config_reload_start", "config_reload_success"} <= set(events)
    assert {line["mcpMethod"] for line in found if line.get("event") == "mcp_request"} >= {
        "initialize",
        "tools/list",
        "tools/call",
    }
    ok, bad = [line for line in found if line.get("event") == "lazy_tool_execution" and line["phase"] == "finish"]
    assert (ok["status"], ok["level"], ok["lazyTool"], ok["downstreamServer"], ok["downstreamCommand"]) == (
        "ok",
        "info",
        "invoke_command",
        "s",
        "echo",
    )
    assert (bad["status"], bad["level"], bad["downstreamServer"]) == ("error", "error", "none")
    assert isinstance(ok["durationMs"], int) and isinstance(bad["durationMs"], int)


def test_g15_2_plain_lines(box):
    hub = Hub(box, [entry("s", box.fake())], logging={"format": "plain"})
    hub.invoke("s", "echo", text="two words")
    hub.relay.finish()
    lines = hub.relay.stderr().split("\n")[:-1]
    assert len(lines) >= 4
    for line in lines:
        assert re.match(r"\[%s\] (ERROR|INFO|DEBUG) \S" % STAMP, line), line
    assert [line for line in lines if " lazyTool=invoke_command" in line and " downstreamServer=s" in line]


def test_case_197_at_level_error_a_good_run_says_nothing(box):
    """The level is applied before the first line."""
    fake = box.fake()
    servers, quiet = [entry("s", fake, idleStop=50)], {"level": "error"}
    hub = Hub(box, servers, logging=quiet)
    hub.relay.ask("tools/list")
    pid = hub.invoke("s", "pid")["pid"]
    hub.tool("list_commands", server="s")
    until(lambda: not alive(pid), what="the idle stop")
    hub.invoke("s", "echo")
    hub.write(servers + [entry("t", fake)], logging=quiet)
    hub.relay.signal(1)
    until(lambda: "t" in hub.rows(), what="the reload")
    hub.relay.finish()
    assert hub.relay.stderr() == ""


def test_g15_1_info_has_no_line_of_debug_and_debug_has_some(box):
    levels = {}
    for level in ("info", "debug"):
        hub = Hub(box, [entry("s", box.fake())], logging={"level": level})
        hub.invoke("s", "echo")
        hub.relay.finish()
        levels[level] = {line["level"] for line in lines_of(hub.relay.stderr())}
    assert levels == {"info": {"info"}, "debug": {"info", "debug"}}


@pytest.mark.parametrize(
    "text, words",
    [
        (None, "No such file"),
        ("{", "line 1"),
        ('{"servers": []}', "servers"),
        ('{"servers": [1], "logging": {"format": "xml"}}', "format"),
        (
            '{"servers": [{"name": "s", "description": "d", "command": ["x"]}], "transport": {"type": "http"}}',
            "not part of this version",
        ),
    ],
)
def test_g15_1_a_start_that_fails_says_so_in_one_json_line(box, text, words):
    """There is no file yet that asks for another form."""
    path = box.path / "servers.json"
    if text is not None:
        path.write_text(text)
    status, out, err = box.run("hub", "--config", path)
    (line,) = lines_of(err)
    assert (status, out) == (1, b"") and line["level"] == "error" and words in line["message"], line


def test_g15_1_warnings_are_json_too_and_name_no_value(box):
    hub = Hub(
        box,
        [entry("s", box.fake(), env={"KEY": "before ${S3CR3T_NOT_SET}"})],
        env=box.env(LAZY_MCP_REQUEST_TIMEOUT="S3CR3T-word"),
    )
    hub.relay.finish()
    found = lines_of(hub.relay.stderr())
    assert [line for line in found if "LAZY_MCP_REQUEST_TIMEOUT" in line["message"]]
    assert [line for line in found if "env.KEY" in line["message"]]
    assert "S3CR3T-word" not in hub.relay.stderr() and "before" not in hub.relay.stderr()


@pytest.mark.parametrize(
    "words", [["--nonsense"], ["--config"], ["--transport", "carrier-pigeon"], ["--request-timeout", "-1"], ["word"]]
)
def test_case_197_a_wrong_command_line_writes_nothing_to_stdout(box, words):
    path = box.path / "servers.json"
    path.write_text(json.dumps({"servers": [entry("s", box.fake())]}))
    status, out, err = box.run("hub", "--config", path, *words)
    assert (status, out) == (2, b"") and err


# ---------------------------------------------------------------------------------------- bodies

SENT = {
    "visible": "MARK-1",
    "password": "hide-1",
    "deep": {"a": [{"api_key": "hide-2", "b": {"Access-Token": "hide-3"}}]},
    "text": json.dumps(
        {"token": "hide-4", "shown": "MARK-2", "inner": json.dumps({"client_secret": "hide-5", "n": 1})}
    ),
    "header": "Authorization: Bearer hide-6",
    "basic": "Basic aGlkZS03",
    "custom": "hide-8",
    "url": "https://user:hide-9@h.example/p?key=hide-10&x=1",
    "known": "so says S3CR3T-env here",
}


def dumped(box, **logging):
    """(the bodies in the log, all of the log) of one session in which SENT goes down to a server and comes back."""
    hub = Hub(
        box,
        [entry("s", box.fake(), env={"ANY_NAME": "S3CR3T-env"})],
        logging=dict({"redactKeys": ["custom"]}, **logging),
    )
    assert hub.invoke("s", "echo", **SENT) == {"echo": SENT}, "what is hidden in the log was changed on its way"
    arguments = json.dumps(
        {"server": "s", "command_name": "echo", "parameters": json.dumps({"secret": "hide-11", "shown": "MARK-3"})}
    )
    hub.relay.ask("tools/call", {"name": "invoke_command", "arguments": arguments})
    hub.relay.finish()
    text = hub.relay.stderr()
    return [line for line in lines_of(text) if "body" in line], text


def test_g15_5_bodies_are_shown_without_their_secrets(box):
    bodies, text = dumped(box, **ALL)
    shown = "".join(line["body"] for line in bodies)
    for mark in ("MARK-1", "MARK-2", "MARK-3"):
        assert mark in shown
    assert len([line for line in bodies if "MARK-1" in line["body"]]) >= 2, "only one direction is dumped"
    assert all(line["level"] == "debug" and line["direction"] and not line["bodyTruncated"] for line in bodies)
    for word in ["hide-%d" % number for number in range(1, 12)] + ["aGlkZS03", "S3CR3T-env"]:
        assert not re.search(r"%s(?!\d)" % word, text), word
    assert "password" in shown and "REDACTED" in shown, "names stay visible"


@pytest.mark.parametrize(
    "logging", [DEBUG, {"level": "info", "dumpBodies": True}, {"level": "error", "dumpBodies": True}]
)
def test_g15_6_case_201_bodies_only_at_debug_and_only_when_asked_for(box, logging):
    bodies, text = dumped(box, **logging)
    assert not bodies and "MARK-" not in text and "hide-" not in text


def test_g15_6_a_long_body_is_cut_at_a_character(box):
    hub = Hub(box, [entry("s", box.fake())], logging=dict(ALL, maxBodyLogBytes=200))
    for number in range(4):  # whatever the offset, no character is split
        hub.invoke("s", "echo", text="x" * number + "\u00e9\u20ac\U0001f600" * 100)
    hub.relay.finish()
    bodies = [line for line in lines_of(hub.relay.stderr()) if line.get("bodyTruncated")]
    assert len(bodies) >= 4
    for line in bodies:
        size = len(line["body"].encode("utf-8"))
        assert (
            size == line["bodyLoggedBytes"] <= 200 < line["bodyBytes"] and size > 190 and "\ufffd" not in line["body"]
        )


# ------------------------------------------------------------------------------------------ secrets


def secret_servers(box):
    """Case 195, as servers of a hub: each value of env, url, headers and of options that name a secret."""
    fake = box.fake()
    options = ["--api-key", "S3CR3T-arg-1", "--token=S3CR3T-arg-2"]
    return fake, [
        entry(
            "a",
            fake.argv + options,
            env={"GITHUB_PERSONAL_ACCESS_TOKEN": "S3CR3T-env-1", "HARMLESS_NAME": "S3CR3T-env-2"},
        ),
        {
            "name": "b",
            "description": "Remote",
            "url": "https://user:S3CR3T-url-1@h.example/mcp?tavilyApiKey=S3CR3T-url-2&x=1",
            "headers": {"authorization": "Bearer S3CR3T-hdr-1", "X-Weird": "S3CR3T-hdr-2"},
        },
        entry(
            "c", box.fake(die="exit3", stderr="wrong key S3CR3T-env-3 (S3CR3T-env-1)\n"), env={"KEY": "S3CR3T-env-3"}
        ),
        {"name": "d", "description": "Wrong", "command": ["x"], "env": {"A": "S3CR3T-env-4"}, "cwd": 3},
        entry("e", ["/nonexistent/S3CR3T-env-5", "--password", "S3CR3T-arg-4"], env={"A": "S3CR3T-env-5"}),
    ]


def test_case_195_case_198_no_secret_of_the_file_comes_out_anywhere(box):
    """Start, failures of all kinds, lists, reload, at the most talkative level; nor the start of one (case 198)."""
    fake, servers = secret_servers(box)
    hub = Hub(box, servers, logging=ALL)
    hub.relay.ask("tools/list")
    hub.rows()
    hub.tool("list_servers", filter="S3CR3T-env-1")
    hub.relay.result(hub.start("list_commands", servers=["a", "b", "c", "d", "e", "nobody"]))
    for name in "bcde":
        assert failure(hub.relay.result(hub.begin(name, "pid")))[1]
    code, text = hub.refused(
        "a",
        "die",
        how="exit1",
        stderr="cannot use %s\n"
        % " ".join(
            "S3CR3T-" + word for word in "env-1 env-2 env-3 env-5 arg-1 arg-2 arg-4 hdr-1 hdr-2 url-1 url-2".split()
        ),
    )
    assert code == "SERVER_CRASHED" and "cannot use" in text and "cannot use" in hub.rows()["a"]["error"]
    hub.reload([entry("a", fake)] + servers[1:], logging=ALL)
    hub.write_raw(json.dumps({"servers": servers})[:-2])
    hub.hup("config_reload_failed")
    hub.relay.finish()
    everything = b"".join(frames(hub.relay)) + traffic(box, hub.path)
    assert b"cannot use" in everything
    # What was sent by this client is in its own log, redacted: nothing may be left of any secret.
    assert b"S3CR3T" not in everything, sorted(set(re.findall(rb"[^\n]{0,120}S3CR3T[^\n]{0,40}", everything)))[:5]


def test_case_195_secrets_in_an_error_that_a_server_answers(box):
    """Message and data of a JSON-RPC error are the server's own words, but a known secret is none of them."""
    fake = box.fake(refuse={"tools/call": {"code": -32000, "message": "no access with S3CR3T-env-1 for you"}})
    hub = Hub(box, [entry("s", fake, env={"X": "S3CR3T-env-1"})], logging=ALL)
    result = hub.relay.result(hub.begin("s", "pid"))
    hub.relay.finish()
    assert (
        result["isError"]
        and "no access with" in result["content"][0]["text"]
        and result["_meta"]["lazyMcp"]["rpc"]["code"] == -32000
    )
    assert "S3CR3T" not in json.dumps(result) and "S3CR3T" not in hub.relay.stderr()


def test_case_195_secrets_that_a_server_logs(box):
    """On a line of its own, on a long one, at the cut of one that is too long, on one without an end."""
    fake = box.fake()
    secret = "S3CR3T-" + "long" * 40
    hub = Hub(box, [entry("s", fake, env={"X": secret}, stderr="log")], logging=DEBUG)
    hub.invoke("s", "stderr", text="short line with %s in it\n" % secret)
    hub.invoke("s", "stderr", text=("part %s " % secret) * 250 + "\n")
    hub.invoke("s", "stderr", text=("%s " % secret) * 2000 + "\n")
    hub.refused("s", "die", how="exit1", stderr="at the end %s" % secret)
    hub.relay.finish()
    text = hub.relay.stderr()
    assert "short line with" in text and "part ***" in text and "S3CR3T" not in text and "longlong" not in text


ODD = [
    "\x1b[31m",
    "\u202e",
    "\n\r\t",
    "\x00",
    "\ud800",
    "a" * 3000,
    "\U0001f600",
    '"',
    "\\",
    "${HOME}",
    "{file:/etc/passwd}",
    "",
]


def hostile_line(rand, number):
    """A line that no good client sends. In it is a `CL13NT-` that by its place or its form is a credential."""
    word, strange, ident = "CL13NT-%d" % number, rand.choice(ODD), "id-%d" % number
    bearer, raw = "Bearer " + word, word.encode()

    def tool(name, arguments, **more):
        return message("tools/call", ident, dict({"name": name, "arguments": arguments}, **more))

    def invoke(**changes):
        return tool("invoke_command", dict({"server": "s", "command_name": "echo"}, **changes))

    cut = b'{"jsonrpc":"2.0","id":"%s","method":"ping","params":{"token":"%s\xc3"}}' % (ident.encode(), raw)
    return rand.choice(
        [
            lambda: b'{"token":"%s",' % raw,
            lambda: b"\xff\xfe Authorization: Bearer %s" % raw,
            lambda: cut,
            lambda: message(strange + bearer, ident),
            lambda: message("resources/read", ident, {"uri": "https://u:%s@h/?token=%s" % (word, word)}),
            lambda: message("notifications/" + strange, None, {"password": word}),
            lambda: {"jsonrpc": "2.0", "id": "not-asked-%d" % number, "result": {"secret": word}},
            lambda: {"jsonrpc": "2.0", "id": ident, "error": {"code": 1, "message": bearer}},
            lambda: tool(strange, {"api_key": word}),
            lambda: tool(bearer, {}),
            lambda: tool("invoke_command", '{"token": "%s"' % word),
            lambda: tool("invoke_command", [{"token": word}]),
            lambda: invoke(parameters='{"token": "%s", ' % word),
            lambda: invoke(parameters=json.dumps({"token": word, "t": strange})),
            lambda: invoke(parameters={"password": word, "t": strange}),
            lambda: invoke(token=word),
            lambda: invoke(server=bearer),
            lambda: invoke(server="dies", command_name="\n" + bearer),
            lambda: tool("list_servers", {"filter": bearer}),
            lambda: tool("list_commands", {"servers": [bearer, strange, "s"], "cursor": bearer}),
            lambda: tool("describe_commands", {"server": "s", "command_names": [bearer, strange]}),
            lambda: tool("list_servers", {}, _meta={"token": word, "progressToken": bearer}),
            lambda: tool("list_servers", {}, _meta=[bearer]),
            lambda: message("tools/call", ident, [{"token": word}]),
            lambda: tool({"token": word}, {"x": json.loads("[" * 60 + "]" * 60), "secret": word}),
            lambda: [tool("list_servers", {"filter": bearer}), {"token": word}],
        ]
    )()


def messages_of(found):
    """The messages of a decoded line: of a batch all of them."""
    return found if isinstance(found, list) else [found]


def escaped(line):
    """As JSON, with everything but ASCII escaped: a lone surrogate goes as it is meant."""
    return line + b"\n" if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"


@pytest.mark.parametrize("form", ["json", "plain"])
def test_case_197_case_195_two_hundred_hostile_lines(box, form):
    """Each request is answered, by frames only; the log has no secret and no broken line; and the hub goes on."""
    fake = box.fake()
    hub = Hub(
        box,
        [
            entry("s", fake, env={"X": "S3CR3T-env-1"}),
            entry("dies", box.fake(die="exit1", stderr="\x1b[31mS3CR3T-env-1 Bearer S3CR3T-2\x1b[0m\n")),
        ],
        logging=dict(ALL, format=form),
    )
    rand = random.Random(1)
    lines = [hostile_line(rand, number) for number in range(200)]
    for line in lines:
        hub.relay.send(escaped(line))
    hub.refused("dies", "echo")
    decoded = [line for line in lines if not isinstance(line, bytes)]
    asked = [one["id"] for line in decoded for one in messages_of(line) if "method" in one and "id" in one]
    assert len(asked) > 100
    assert hub.invoke("s", "pid")["pid"] == fake.pid() and fake.starts() == 1
    hub.relay.finish()
    answers = [one for raw in frames(hub.relay) for one in messages_of(json.loads(raw))]
    assert not [one for one in answers if one.get("error", {}).get("code") == -32603]
    answered = [one["id"] for one in answers if one.get("id") is not None]
    assert set(asked) <= set(answered) and len(answered) == len(set(answered)), "not one answer for each request"
    text = hub.relay.stderr()
    assert "CL13NT" not in text, sorted(set(re.findall(r".{0,100}CL13NT.{0,20}", text)))[:5]
    assert "S3CR3T" not in text + b"".join(hub.relay.raw).decode() and "internal error" not in text
    assert b"CL13NT" not in traffic(box, hub.path)
    if form == "json":
        lines_of(text)
    else:
        lines = text.split("\n")[:-1]
        assert all(re.match(r"\[%s\] (ERROR|INFO|DEBUG) " % STAMP, line) and line.isprintable() for line in lines)


def test_case_201_without_dumps_nothing_of_a_message_is_in_the_log(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)], logging=DEBUG)
    hub.invoke("s", "echo", text="PAYL0AD")
    hub.relay.result(hub.start("invoke_command", server="s", command_name="echo", parameters='{"text": "PAYL0AD"'))
    hub.relay.result(hub.start("invoke_command", server="s", command_name="echo", PAYL0AD="PAYL0AD-value"))
    hub.relay.send(b'{"PAYL0AD": \n')
    hub.relay.barrier()
    hub.relay.finish()
    assert (
        "PAYL0AD-value" not in hub.relay.stderr()
        and '"PAYL0AD"' not in hub.relay.stderr()
        and "text" not in hub.relay.stderr()
    )


# ------------------------------------------------------------------------------------ servers' stderr


def test_case_199_every_failure_line_has_server_state_reason_attempt_and_duration(box):
    """One line for each failed start, whoever asked for it and how often."""
    hub = Hub(
        box,
        [
            entry("hangs", box.fake(hang_at=["initialize"]), startTimeout=200),
            entry("dies", box.fake(die="exit3", stderr="no luck\n")),
            entry("gone", ["/nonexistent/program"]),
            entry("odd", box.fake(init_raw='"odd"')),
        ],
    )
    names = ["hangs", "dies", "gone", "odd"]
    for call in [hub.begin(name, "pid") for name in names for _ in range(2)]:
        assert failure(hub.relay.result(call))
    hub.relay.finish()
    lines = [line for line in lines_of(hub.relay.stderr()) if line.get("event") == "server_state"]
    failed = {line["server"]: line for line in lines if line["state"] == "failing"}
    assert sorted(failed) == sorted(names)
    assert all(line["level"] == "error" and line["reason"] for line in failed.values())
    assert "startTimeout" in failed["hangs"]["reason"] and "exit status 3" in failed["dies"]["reason"]
    assert "no such file" in failed["gone"]["reason"] and "protocolVersion" in failed["odd"]["reason"]
    assert all(line["attempt"] >= 1 and isinstance(line["durationMs"], int) for line in failed.values()), failed
    assert failed["hangs"]["durationMs"] >= 200


def test_case_199_a_servers_stderr_goes_where_its_entry_says(box):
    path = box.path / "server.err"
    path.write_text("was here\n")
    fakes = {name: box.fake() for name in ("kept", "log", "inherit", "file")}
    hub = Hub(
        box,
        [
            entry("kept", fakes["kept"]),
            entry("log", fakes["log"], stderr="log"),
            entry("inherit", fakes["inherit"], stderr="inherit"),
            entry("file", fakes["file"], stderr=str(path)),
        ],
        logging=DEBUG,
    )
    for name in fakes:
        hub.invoke(name, "stderr", text="says %s\nand more\n" % name)
    until(lambda: "says inherit" in hub.relay.stderr() and "says log" in hub.relay.stderr(), what="what they said")
    assert path.read_text() == "was here\nsays file\nand more\n"
    assert "says kept" in hub.refused("kept", "die", how="exit1")[1]
    hub.relay.finish()
    text = hub.relay.stderr()
    assert "\nsays inherit\nand more\n" in "\n" + text
    found = lines_of(text.replace("says inherit\nand more\n", ""))
    logged = [
        (line["server"], line["level"], line["message"]) for line in found if line.get("event") == "server_stderr"
    ]
    assert logged == [("log", "debug", "says log"), ("log", "debug", "and more")]
    assert "says file" not in text and not [
        line for line in found if "says kept" in line["message"] and line["level"] != "error"
    ]


def test_case_199_the_last_words_of_a_server_are_logged_although_their_line_has_no_end(box):
    hub = Hub(box, [entry("s", box.fake(), stderr="log")], logging=DEBUG)
    hub.refused("s", "die", how="exit1", stderr="first\nlast words")
    until(
        lambda: [line for line in hub.log("server_stderr") if line["message"] == "last words"], what="the last words"
    )
    hub.relay.finish()


def test_g9_1_only_the_end_of_a_long_stderr_is_shown(box):
    hub = Hub(box, [entry("s", box.fake())])
    code, text = hub.refused("s", "die", how="exit1", stderr="begin\n" + "some words\n" * 30000 + "the end\n")
    assert code == "SERVER_CRASHED" and "the end" in text and "begin" not in text and len(text) < 3000
    assert len(hub.rows()["s"]["error"]) < 3000
    hub.relay.finish()


def test_case_201_a_flood_is_cut_to_a_rate_with_one_line_that_says_so(box):
    fake = box.fake()
    hub = Hub(box, [entry("noisy", fake, stderr="log"), entry("s", box.fake())], logging=DEBUG)
    begun = time.monotonic()
    for _ in range(5):
        hub.invoke("noisy", "stderr", lines=60000)  # 1 MB
        hub.invoke("s", "echo")
    hub.refused("noisy", "die", how="exit1")
    passed = time.monotonic() - begun
    hub.relay.finish()
    text = hub.relay.stderr()
    found = lines_of(text)
    noise = [line for line in found if line.get("event") == "server_stderr"]
    shown = [line for line in noise if line["message"] == "noise on stderr"]
    told = [line for line in noise if "leftOut" in line]
    assert len(shown) <= 100 * (passed + 2) and len(text) < (passed + 2) * 64 * 1024 + 20000
    assert (
        told and sum(line["leftOut"] for line in told) + len(shown) == 300000
    ), "some lines are neither shown nor counted"
    assert len(told) <= passed + 2 and {line["server"] for line in noise} == {"noisy"}


def test_case_201_a_server_that_floods_without_end_slows_nobody(box):
    """It writes as fast as it can; calls of it and of others are answered, and the hub does not grow."""
    noisy, other = box.fake(), box.fake()
    flood = ["sh", "-c", 'yes "E: connection refused, retrying" >&2 & exec "$@"', "sh"] + noisy.argv
    hub = Hub(box, [entry("noisy", flood), entry("log", flood, stderr="log"), entry("s", other)], logging=DEBUG)
    for name in ("noisy", "log", "s"):
        hub.invoke(name, "pid")
    before, took = memory_kib(hub.pid), []
    for _ in range(15):
        for name in ("noisy", "log", "s"):
            at = time.monotonic()
            hub.invoke(name, "echo")
            took.append(time.monotonic() - at)
    assert max(took) < 1.0
    assert memory_kib(hub.pid) - before < 4000
    hub.relay.finish()
    assert len(hub.relay.stderr()) < 1000000


# ---------------------------------------------------------------------- a log that nobody reads, or cannot


@slow
def test_case_201_a_log_that_is_not_read_holds_nothing_up(box):
    """Its pipe is full: calls go on. What is read later are whole lines, one of which tells what is missing."""
    fifo = str(box.path / "fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    hub = Hub(box, [entry("s", box.fake(), stderr="log")], stderr='2>"%s"' % fifo, logging=ALL)
    hub.invoke("s", "echo")
    took = []
    for number in range(60):
        at = time.monotonic()
        hub.invoke("s", "echo", n=number, text="x" * 30000)
        took.append(time.monotonic() - at)
    assert max(took) < 1.0
    found = bytearray()

    def read(limit=0.5):
        while select.select([reader], [], [], limit)[0]:
            data = os.read(reader, 1 << 16)
            if not data:
                return
            found.extend(data)

    read()
    hub.invoke("s", "echo", text="MARK")
    read()
    hub.relay.close()
    assert hub.relay.wait() == 0
    read(0.1)
    os.close(reader)
    lines = lines_of(bytes(found).decode("utf-8"))
    assert len(lines) > 10 and [line for line in lines if "MARK" in line.get("body", "")]
    assert [
        line for line in lines if line.get("lostLines") or line.get("lostBytes")
    ], "nothing says that lines are missing"


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_case_201_a_log_that_cannot_be_written_stops_no_service(box, stderr):
    """Closed, or on a full disk. What the hub opens later must not become its stderr."""
    fake = box.fake()
    hub = Hub(
        box,
        [entry("s", fake, stderr="log"), entry("dies", box.fake(die="exit1", stderr="x\n"), stderr="inherit")],
        stderr=stderr,
        logging=ALL,
    )
    pid = hub.invoke("s", "pid")["pid"]
    assert hub.refused("dies", "pid")[0] == "SERVER_CRASHED"
    hub.write_raw("{")
    hub.relay.signal(1)
    hub.invoke("s", "stderr", text="words\n", lines=1000)
    hub.write([entry("s", fake, stderr="log"), entry("t", fake)])
    hub.relay.signal(1)
    until(lambda: "t" in hub.rows(), what="the reload")
    assert hub.invoke("s", "pid")["pid"] == pid
    hub.relay.finish()
    frames(hub.relay)


def test_case_201_a_reader_that_goes_away_stops_no_service(box):
    fifo = str(box.path / "fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    hub = Hub(box, [entry("s", box.fake())], stderr='2>"%s"' % fifo, logging=ALL)
    pid = hub.invoke("s", "pid")["pid"]
    os.close(reader)
    for _ in range(5):
        assert hub.invoke("s", "pid")["pid"] == pid
    hub.relay.finish()


# ------------------------------------------------------------------------- stdout is for the protocol


def test_case_197_what_servers_print_to_stdout_stays_where_it_is(box):
    """Banners, half lines, bytes that are no text: not on the hub's stdout; the calls work."""
    fake = box.fake(say="Welcome!\n\xff\xfe\n{\"half\": \n\n[]\n\x00\n3\n", noise={"tools/call": "progress: 50%\r\n"})
    hub = Hub(box, [entry("s", fake)])
    for _ in range(3):
        assert hub.invoke("s", "echo", x=1) == {"echo": {"x": 1}}
    hub.relay.finish()
    assert "Welcome" not in b"".join(frames(hub.relay)).decode()
    lines_of(hub.relay.stderr())


def test_case_197_a_hub_without_descriptors_answers_by_frames(box):
    """A fault from inside: a start fails half-way. It is that call's failure, and the next one may work."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))

    hub = Hub(box, [entry("s%d" % number, box.fake()) for number in range(8)], preexec=few)
    results = [hub.relay.result(hub.begin("s%d" % number, "pid")) for number in range(8)]
    failed = [failure(result) for result in results if result.get("isError")]
    assert 0 < len(failed) < 8, "the limit is not one"
    assert all(
        code in ("INVALID_COMMAND", "SERVER_UNREACHABLE", "SERVER_CRASHED") and text.startswith("Error: ")
        for code, text in failed
    )
    pids = [result["pid"] for result in results if not result.get("isError")]
    assert hub.invoke("s0", "pid")["pid"] == pids[0]
    hub.relay.finish()
    frames(hub.relay)
    assert "internal error" not in hub.relay.stderr()


def test_case_197_a_line_that_is_too_long_or_cut_off_is_one_error(box):
    hub = Hub(box, [entry("s", box.fake())], greet=False)
    hub.relay.send(b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"t":"' + b"x" * 300000)
    hub.relay.close()
    assert hub.relay.wait() == 0
    rest = hub.relay.rest()
    assert [one["error"]["code"] for one in rest] == [-32700], rest
    frames(hub.relay)
    lines_of(hub.relay.stderr())
