"""`--check` from outside: part B, cases 053-055, 062-064, 066, 068, 069, and sessions after a check."""

import fcntl
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import (FAKE, VERSION, WAIT_S, Fake, alive, cmdline, encode, initialize, marked, message, read_some, until)
from test_handshakes import ALL as CAPTURED

slow = pytest.mark.slow
MODERN_SERVER = FAKE.parent / "modern.py"
MODERN = "2026-07-28"
KEY = "io.modelcontextprotocol/"
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
INFO = '{"name":"claude-code","title":"Claude Code","version":"%s","description":"Anthropic\'s agentic coding tool","websiteUrl":"https://claude.com/claude-code"}'
CAPS = '{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}'
# The probe of Claude Code 2.1.289 as it was captured; its version stands in for %s.
PROBE = '{"_meta":{"%sprotocolVersion":"%s","%sclientInfo":%s,"%sclientCapabilities":%s}}' % (KEY, MODERN, KEY, INFO, KEY, CAPS)
EXACT = "server/discover:4019dc22a0d88b45"
TOLERANT = "server/discover:unsupported:e171b175eecf3a073902bfd50fb45700"


# ------------------------------------------------------------------------------------------ helpers

def both_eras(box, **flags):
    """A server of tests/servers/modern.py, with its flags."""
    fake = box.fake(**flags)
    fake.argv[fake.argv.index(box.server)] = str(MODERN_SERVER)
    return fake


def check(box, server, *options, env=None, timeout=30.0):
    """(exit status, stdout, stderr) of a check; nothing it started may be there once it has ended (case 062)."""
    words = server.argv if isinstance(server, Fake) else list(server)
    done = box.run("--check", *options, "--", *words, env=env, timeout=timeout)
    if isinstance(server, Fake):
        left = [one["pid"] for one in server.events("start") if alive(one["pid"])] + [pid for pid in server.descendants() if alive(pid)]
        assert left == [], "the check ended before its server"
    return done


def passes(box, server, *options, **more):
    """The report of a check that has to succeed."""
    status, out, err = check(box, server, *options, **more)
    assert status == 0, err
    assert out.endswith(b"}\n") and out.count(b"\n") == 1, out
    report = json.loads(out)
    assert report["ok"] is True
    return report


def fails(box, server, *options, **more):
    """The reason of a check that has to fail (B10): exit 1, silent stdout, one reason, no byte of a recording changed."""
    before = files(box)
    status, out, err = check(box, server, *options, **more)
    assert (status, out) == (1, b""), (status, out, err)
    assert "Traceback" not in err and err.count("mcp-lazy: check failed: ") == 1, err
    assert files(box) == before, "a failed check changed a recording"
    return err.split("mcp-lazy: check failed: ", 1)[1]


def refused(box, server, *options, **more):
    """The reason of a usage error: exit 2, silent stdout, no start."""
    starts = server.starts()
    status, out, err = check(box, server, *options, **more)
    assert (status, out) == (2, b""), (status, out, err)
    assert "Traceback" not in err and server.starts() == starts
    return err


def files(box):
    return {path.name: path.read_bytes() for path in box.recordings()}


def envelope(capabilities=None, **more):
    """Params of a modern request."""
    meta = {KEY + "protocolVersion": MODERN, KEY + "clientInfo": {"name": "client", "version": "1"},
            KEY + "clientCapabilities": capabilities or {}}
    return dict({"_meta": meta}, **more)


def probe(text):
    return encode('{"jsonrpc":"2.0","id":"probe","method":"server/discover","params":%s}\n'.replace("%s", text).encode())


def asked(box, fake, text):
    """(answer to a probe with these raw params in a session of its own, whether it started the server)."""
    starts = fake.starts()
    relay = box.relay(fake)
    relay.send(probe(text))
    answer = relay.answer("probe")
    relay.finish()
    return answer, fake.starts() > starts


def claude(version="2.1.289"):
    return PROBE % version


def checked_with_probe(box, fake, text=None, options=()):
    before = '[{"method":"server/discover","params":%s}]' % (text or claude())
    return passes(box, fake, *options, env=box.env(MCP_LAZY_CHECK_BEFORE=before))


def session(box, fake, lists=("tools/list",), warm=True, **handshake):
    """Results of a legacy start-up; asserts whether it started the server."""
    starts = fake.starts()
    relay = box.relay(fake)
    found = [relay.handshake(**handshake)] + [relay.ask(method) for method in lists]
    relay.finish()
    assert (fake.starts() == starts) is warm, "warm" if fake.starts() == starts else "cold"
    return found


def modern_session(box, fake, lists=("tools/list",), warm=True, capabilities=None):
    """The same for a client of 2026-07-28: discover, then the lists with all their pages."""
    starts = fake.starts()
    relay = box.relay(fake)
    found = [relay.ask("server/discover", envelope(capabilities))]
    for method in lists:
        page = relay.ask(method, envelope(capabilities))
        found.append(page)
        while page.get("nextCursor"):
            page = relay.ask(method, envelope(capabilities, cursor=page["nextCursor"]))
            found.append(page)
    relay.finish()
    assert (fake.starts() == starts) is warm, "warm" if fake.starts() == starts else "cold"
    return found


def by_process(fake):
    """The lines that each process of the server got, in the order of the starts."""
    return [[line for line in fake.lines() if line["pid"] == one["pid"]] for one in fake.events("start")]


def methods_of(lines):
    return [line["method"] for line in lines]


def init(**changes):
    """The text of an initialize result with members changed; None takes one away."""
    result = {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
    for name, value in changes.items():
        if value is None:
            del result[name]
        else:
            result[name] = value
    return json.dumps(result)


def own_server(box, text):
    """A small server of this test (its starts are counted): `text` runs for each message `m`; ok() and fail() answer it."""
    fake, path = box.fake(), box.path / "own_server.py"
    path.write_text(
        "import json, os, sys, time\n"
        "open(%r, 'a').write(json.dumps({'ev': 'start', 'pid': os.getpid()}) + '\\n')\n" % str(fake.seen_path) +
        "def send(o): os.write(1, (json.dumps(o) + '\\n').encode())\n"
        "def ok(m, r): send({'jsonrpc': '2.0', 'id': m['id'], 'result': r})\n"
        "def fail(m, code): send({'jsonrpc': '2.0', 'id': m['id'], 'error': {'code': code, 'message': 'no'}})\n"
        "INIT = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 'own', 'version': '1'}}\n"
        "count = 0\n"
        "for line in iter(sys.stdin.readline, ''):\n"
        "    m = json.loads(line)\n"
        "    method = m.get('method')\n"
        "    count += 1\n" + "".join("    %s\n" % line for line in text.strip("\n").split("\n")))
    fake.argv = [box.python, "-I", "-S", str(path)]
    return fake


# ------------------------------------------------------------------------------- B1, B2, B3, B4, B15

def test_b1_stdin_is_not_read_no_tool_is_called_no_predicate_runs(box):
    fake = both_eras(box, tools=2)
    lines, mark = box.path / "input", box.path / "predicate-ran"
    lines.write_bytes(encode(message("tools/call", 1, {"name": "echo"})) * 3)
    env = box.env(MCP_LAZY_WAKE_COMMAND=json.dumps(["touch", str(mark)]), MCP_LAZY_WAKE_INTERVAL="10ms")
    with open(str(lines), "rb") as stdin:
        done = subprocess.run(box.command("--check", "--", *fake.argv), stdin=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env, timeout=WAIT_S)
        assert os.lseek(stdin.fileno(), 0, os.SEEK_CUR) == 0, "its input was read"
    assert done.returncode == 0 and json.loads(done.stdout)["ok"] is True
    assert "tools/call" not in fake.methods()
    assert not mark.exists()


def test_b1_options_and_words_as_in_a_session(box):
    """The check warms exactly the command that the session runs, wherever options and `--` stand."""
    fake = box.fake()
    status, out, _ = box.run("-check", "--start-timeout", "20s", "--verbose=false", *fake.argv)
    assert status == 0
    assert json.loads(out)["cachePath"] == str(box.recordings()[0])
    session(box, fake)


def test_b1_check_without_a_command_is_a_usage_error(box):
    status, out, err = box.run("--check")
    assert (status, out) == (2, b"") and "usage" in err.lower()


def test_b1_check_false_is_a_session(box):
    fake = box.fake()
    relay = box.relay(fake, "--check=false")
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


def test_b2_the_default_parameters(box):
    fake = box.fake()
    version = box.run("--version")[1].decode().split()[-1]
    passes(box, fake)
    (first,) = [line for line in fake.lines() if line["method"] == "initialize"]
    assert first["params"] == {"protocolVersion": "2025-06-18", "capabilities": {},
                               "clientInfo": {"name": "mcp-lazy-check", "version": version}}


def test_b2_empty_initialize_variable_means_the_default(box):
    fake = box.fake()
    passes(box, fake, env=box.env(MCP_LAZY_CHECK_INITIALIZE=""))
    (first,) = [line for line in fake.lines() if line["method"] == "initialize"]
    assert first["params"]["clientInfo"]["name"] == "mcp-lazy-check"


GOOD_INFO = '"clientInfo":{"name":"n","version":"1"}'


@pytest.mark.parametrize("value", [
    "nope", " ", "[]", "null", "7", '"text"', "{}",
    '{"capabilities":{},%s}' % GOOD_INFO,
    '{"protocolVersion":"","capabilities":{},%s}' % GOOD_INFO,
    '{"protocolVersion":7,"capabilities":{},%s}' % GOOD_INFO,
    '{"protocolVersion":"2025-06-18",%s}' % GOOD_INFO,
    '{"protocolVersion":"2025-06-18","capabilities":null,%s}' % GOOD_INFO,
    '{"protocolVersion":"2025-06-18","capabilities":[],%s}' % GOOD_INFO,
    '{"protocolVersion":"2025-06-18","capabilities":{}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":"n 1"}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"version":"1"}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"","version":"1"}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n"}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":""}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":1}}',
    '{"protocolVersion":"2025-06-18","capabilities":{},%s}x' % GOOD_INFO])
def test_b2_b3_invalid_initialize_parameters(box, value):
    err = refused(box, box.fake(), env=box.env(MCP_LAZY_CHECK_INITIALIZE=value))
    assert "MCP_LAZY_CHECK_INITIALIZE" in err and "MCP_LAZY_CHECK_BEFORE" not in err


@pytest.mark.parametrize("value", [
    "", "nope", "null", "{}", "7", "[1]", "[null]", '["server/discover"]', "[{}]", '[{"params":{}}]',
    '[{"method":"server/discover"}]', '[{"method":"server/discover","params":null}]',
    '[{"method":"server/discover","params":[]}]', '[{"method":"tools/list","params":{}}]',
    '[{"method":"tools/call","params":{"name":"x"}}]', '[{"method":"initialize","params":{}}]',
    '[{"method":"Server/Discover","params":{}}]', '[{"method":"server/discover","params":{}},7]',
    '[{"method":"server/discover","params":{}}'])
def test_b2_b3_invalid_probes(box, value):
    err = refused(box, box.fake(), env=box.env(MCP_LAZY_CHECK_BEFORE=value))
    assert "MCP_LAZY_CHECK_BEFORE" in err and "MCP_LAZY_CHECK_INITIALIZE" not in err


@pytest.mark.parametrize("name", ["MCP_LAZY_CHECK_INITIALIZE", "MCP_LAZY_CHECK_BEFORE"])
@pytest.mark.parametrize("value", [b"\xff", b'{"a":' * 5000, b"[" * 5000, b'[{"method":"server/discover","params":{"x":"\xff"}}]',
                                   b'{"protocolVersion":"x","capabilities":{"a":NaN},"clientInfo":{"name":"n","version":"1"}}'])
def test_b3_bytes_that_nobody_can_read(box, name, value):
    env = {key.encode(): text.encode() for key, text in box.env().items()}
    env[name.encode()] = value
    assert name in refused(box, box.fake(), env=env)


def test_b2_an_empty_list_of_probes_sends_none(box):
    fake = box.fake()
    report = passes(box, fake, env=box.env(MCP_LAZY_CHECK_BEFORE="[]"))
    assert report["beforeRequests"] == 0 and report["eras"] == ["legacy"]
    assert [(line["method"], line["id"]) for line in fake.lines()] == [
        ("initialize", "mcp-lazy-inspect-1"), ("notifications/initialized", None), ("tools/list", "mcp-lazy-inspect-2")]


def test_b2_several_probes_in_their_order(box):
    fake = box.fake()
    probes = ['{"_meta":{"n":%d}}' % number for number in (1, 2, 3)]
    text = "[%s]" % ",".join('{"method":"server/discover","params":%s}' % one for one in probes)
    report = passes(box, fake, env=box.env(MCP_LAZY_CHECK_BEFORE=text))
    assert report["beforeRequests"] == 3
    assert [line["params"]["_meta"]["n"] for line in fake.lines() if line["method"] == "server/discover"] == [1, 2, 3]
    assert fake.methods()[3] == "initialize"


def test_b2_b4_the_raw_text_of_the_variables_reaches_the_server(box):
    """Member order, spacing and spelling of numbers and escapes stay as they were captured."""
    raw = box.path / "wire"
    fake = box.fake(raw=str(raw))
    info, caps = '{"version":"1.0", "name":"z\\u0041"}', '{"b":{"n":1.0},  "a":{}}'
    params = '{"clientInfo":%s, "x":[1e2],"capabilities":%s,"protocolVersion":"2025-06-18"}' % (info, caps)
    passes(box, fake, env=box.env(MCP_LAZY_CHECK_INITIALIZE=params))
    lines = raw.read_text().split("\n")
    assert params in lines[1]
    assert ('{"_meta":{"%sprotocolVersion":"2026-07-28","%sclientInfo":%s,"%sclientCapabilities":%s}}'
            % (KEY, KEY, info, KEY, caps)) in lines[0], "B4"


def test_b4_the_default_probe(box):
    fake = box.fake()
    passes(box, fake)
    first = fake.lines()[0]
    assert (first["method"], first["id"]) == ("server/discover", "mcp-lazy-inspect-1")
    assert list(first["params"]["_meta"]) == [KEY + "protocolVersion", KEY + "clientInfo", KEY + "clientCapabilities"]
    assert first["params"]["_meta"][KEY + "clientInfo"]["name"] == "mcp-lazy-check"
    assert first["params"]["_meta"][KEY + "clientCapabilities"] == {}


def test_b15_other_options_are_judged_first(box):
    fake = box.fake()
    err = refused(box, fake, env=box.env(MCP_LAZY_IDLE_STOP="soon", MCP_LAZY_CHECK_INITIALIZE="nope"))
    assert "MCP_LAZY_IDLE_STOP" in err
    err = refused(box, fake, env=box.env(MCP_LAZY_WAKE_COMMAND="[]"))
    assert "MCP_LAZY_WAKE_COMMAND" in err
    assert "start-timeout" in refused(box, fake, "--start-timeout", "0s")


def test_a1_2_a_session_does_not_read_the_variables_of_the_check(box):
    fake = box.fake()
    relay = box.relay(fake, env=box.env(MCP_LAZY_CHECK_INITIALIZE="nope", MCP_LAZY_CHECK_BEFORE="nope", MCP_LAZY_AS="nobody"))
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


# ------------------------------------------------------------------------------------------ B5, B6, B7

def test_b5_b6_the_vectors_in_the_recording(box):
    fake = box.fake()
    assert checked_with_probe(box, fake)["beforeRequests"] == 1
    text = box.recordings()[0].read_text()
    assert '"%s"' % EXACT in text and '"%s"' % TOLERANT in text


def test_b5_the_exact_key_is_made_of_the_raw_text(box):
    fake = box.fake()
    raw = '{ "_meta" : {"a":1.0, "\\u0062":[]} }'
    checked_with_probe(box, fake, raw)
    assert '"server/discover:%s"' % hashlib.sha256(raw.encode()).hexdigest()[:16] in box.recordings()[0].read_text()


def test_b6_sorted_members_kept_numbers_and_escapes_of_the_fallback_key(box):
    fake = box.fake()
    raw = '{"z":1.0,"clientInfo":{"version":"9","name":"<n>&\\u2028"},"a":[1E2,"\\u00fc"]}'
    checked_with_probe(box, fake, raw)
    plain = '{"a":[1E2,"\u00fc"],"clientInfo":{"name":"\\u003cn\\u003e\\u0026\\u2028"},"z":1.0}'
    key = "server/discover:unsupported:" + hashlib.sha256(plain.encode("utf-8")).hexdigest()[:32]
    assert '"%s"' % key in box.recordings()[0].read_text()


def test_b5_the_captured_probe_is_answered_without_a_start(box):
    fake = box.fake()
    checked_with_probe(box, fake)
    answer, started = asked(box, fake, claude())
    assert answer["error"]["code"] == -32601 and not started


@pytest.mark.parametrize("version", ["2.1.290", "3.0.0-beta", ""])
def test_b7_another_version_of_the_client_is_answered_too(box, version):
    fake = box.fake()
    checked_with_probe(box, fake)
    answer, started = asked(box, fake, claude(version))
    assert answer["error"]["code"] == -32601 and not started


def test_b7_the_version_may_be_missing_and_members_in_another_order(box):
    fake = box.fake()
    checked_with_probe(box, fake)
    params = json.loads(claude())
    params["_meta"][KEY + "clientInfo"].pop("version")
    params["_meta"] = dict(reversed(list(params["_meta"].items())))
    answer, started = asked(box, fake, json.dumps(params))
    assert answer["error"]["code"] == -32601 and not started


def changed(change):
    params = json.loads(claude("2.1.290"))
    change(params, params["_meta"])
    return json.dumps(params)


MISSES = {
    "name": lambda params, meta: meta[KEY + "clientInfo"].update(name="other"),
    "title": lambda params, meta: meta[KEY + "clientInfo"].update(title="Other"),
    "protocol": lambda params, meta: meta.update({KEY + "protocolVersion": "2027-01-01"}),
    "capabilities": lambda params, meta: meta[KEY + "clientCapabilities"].pop("roots"),
    "an extra _meta member": lambda params, meta: meta.update(progressToken=1),
    "an extra parameter": lambda params, meta: params.update(x=1),
    "version elsewhere": lambda params, meta: params.update(version="1")}


@pytest.mark.parametrize("change", MISSES.values(), ids=MISSES.keys())
def test_b7_any_other_change_misses(box, change):
    fake = box.fake()
    checked_with_probe(box, fake)
    answer, started = asked(box, fake, changed(change))
    assert answer["error"]["code"] == -32601 and started, "the server itself has to say so"


def test_b6_a_success_has_no_fallback_key(box):
    """Another version of the client finds it by capabilities and protocol (A17.4), never by the fallback."""
    fake = both_eras(box)
    checked_with_probe(box, fake)
    text = box.recordings()[0].read_text()
    assert '"%s"' % EXACT in text and "unsupported:" not in text
    answer, started = asked(box, fake, claude())
    assert answer["result"]["supportedVersions"] == [MODERN] and not started
    answer, started = asked(box, fake, claude("9.9"))
    assert answer["result"]["supportedVersions"] == [MODERN] and not started
    answer, started = asked(box, fake, changed(MISSES["capabilities"]))
    assert answer["result"]["supportedVersions"] == [MODERN] and started


def live_probe_after(box, fake, **flags):
    """A check against a server without discovery; then, with these flags, its live answer to the same probe."""
    checked_with_probe(box, fake)
    fake.set(**flags)
    relay = box.relay(fake)
    relay.handshake()
    relay.call("pid")
    relay.send(probe(claude()))
    answer = relay.answer("probe")
    relay.finish()
    return answer


def test_b7_a_later_success_clears_the_fallback(box):
    fake = both_eras(box, era="legacy")
    assert "result" in live_probe_after(box, fake, era="dual")
    assert TOLERANT not in box.recordings()[0].read_text()
    answer, started = asked(box, fake, claude("2.1.290"))
    assert "result" in answer, "never -32601 again"


def test_b7_any_other_later_answer_clears_the_fallback(box):
    fake = both_eras(box, era="legacy")
    assert live_probe_after(box, fake, discover=-32000)["error"]["code"] == -32000
    assert TOLERANT not in box.recordings()[0].read_text()
    answer, started = asked(box, fake, claude("2.1.290"))
    assert started and answer["error"]["code"] == -32000


def test_b12_a_check_clears_stale_fallback_keys(box):
    fake = both_eras(box, era="legacy")
    checked_with_probe(box, fake)
    assert TOLERANT in box.recordings()[0].read_text()
    fake.set(era="dual")
    checked_with_probe(box, fake)
    assert TOLERANT not in box.recordings()[0].read_text()
    answer, started = asked(box, fake, claude())
    assert "result" in answer and not started


@pytest.mark.parametrize("code", [-32602, -32600])
def test_b17_a_probe_refused_as_invalid_before_a_handshake_is_kept_as_not_found(box, code):
    """Python SDK 1.x says -32602: the handshake that follows shows that the server is a legacy one."""
    fake = both_eras(box, era="legacy", discover=code)
    assert checked_with_probe(box, fake)["eras"] == ["legacy"]
    for version in ("2.1.289", "2.1.290"):
        answer, started = asked(box, fake, claude(version))
        assert answer["error"]["code"] == -32601 and not started


@pytest.mark.parametrize("code", [-32000, -32603, -32021])
def test_b10_b17_any_other_refusal_is_neither_a_failure_nor_recorded(box, code):
    fake = both_eras(box, era="legacy", discover=code)
    assert checked_with_probe(box, fake)["eras"] == ["legacy"]
    session(box, fake)
    answer, started = asked(box, fake, claude())
    assert answer["error"]["code"] == code and started, "a passing trouble must not be replayed for ever (A6.5)"


# --------------------------------------------------------------------------------------------- B8, B9

def test_b8_order_ids_and_parameters_of_the_requests(box):
    fake = box.fake(tools=3, prompts=1, resources=1, templates=1, page=2)
    passes(box, fake)
    seen = fake.lines()
    assert methods_of(seen) == ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/list",
                                "prompts/list", "resources/list", "resources/templates/list"]
    assert [line["id"] for line in seen if line["id"] is not None] == ["mcp-lazy-inspect-%d" % n for n in range(1, 8)]
    assert [line["params"] for line in seen[3:]] == [{}, {"cursor": "at/+=#2"}, {}, {}, {}]
    assert fake.starts() == 1 and len(fake.events("end")) == 1, "its input was closed and it ended by itself (A13)"


def test_b8_only_advertised_lists_are_asked_for(box):
    fake = box.fake(init_raw=init(capabilities={"prompts": {}, "logging": {}}), prompts=2)
    report = passes(box, fake)
    assert [method for method in fake.methods() if method.endswith("/list")] == ["prompts/list"]
    assert report["lists"] == {"prompts/list": {"cached": True, "count": 2, "pages": 1}}


def test_b8_a_server_without_lists(box):
    fake = box.fake(init_raw=init(capabilities={}))
    assert passes(box, fake)["lists"] == {}
    session(box, fake, lists=())


@pytest.mark.parametrize("end", [None, ""])
def test_b8_a_cursor_that_is_null_or_empty_is_the_end(box, end):
    fake = box.fake(list_raw={"tools/list": json.dumps({"tools": [{"name": "a"}], "nextCursor": end})})
    assert passes(box, fake)["lists"]["tools/list"]["pages"] == 1


@slow
def test_b8_the_full_ladder_ends_a_server_that_does_not_obey(box):
    fake = box.fake(ignore=["SIGTERM", "SIGINT", "SIGHUP"], ignore_eof=True, children=["stubborn"])
    passes(box, fake)
    fake.set(ignore=[], ignore_eof=False, children=[], eof_wait=0.15)
    passes(box, fake)
    assert len(fake.events("saved")) == 1, "a server that leaves in its own time is not killed"


@pytest.mark.parametrize("kind", ["sleeper", "stubborn", "middle"])
def test_b8_what_the_server_left_behind_ends_with_it(box, kind):
    """A13.2: it goes at the end of its input; its descendants do not, and are killed."""
    fake = box.fake(children=[kind])
    passes(box, fake)
    assert fake.events("end") and fake.descendants()


@pytest.mark.parametrize("method", ["initialize"] + LISTS)
def test_b9_expiry_names_the_method(box, method):
    fake = box.fake(prompts=1, resources=1, templates=1)
    passes(box, fake)
    fake.set(hang_at=[method])
    began = time.monotonic()
    reason = fails(box, fake, "--start-timeout", "700ms")
    assert method in reason and "700ms" in reason
    assert time.monotonic() - began >= 0.7


def test_b9_expiry_in_the_modern_pass(box):
    fake = both_eras(box)
    passes(box, fake)
    fake.set(hang_at=["tools/list"])
    assert "tools/list" in fails(box, fake, "--start-timeout", "700ms")


@slow
def test_b9_one_deadline_for_all_requests(box):
    """Each answer comes in time, all together do not."""
    fake = box.fake(prompts=1, resources=1, templates=1, delay={method: 0.4 for method in ["initialize"] + LISTS})
    reason = fails(box, fake, "--start-timeout", "1200ms")
    assert any(method in reason for method in LISTS)


@slow
def test_b9_a_server_that_reads_nothing(box):
    fake = box.fake(never_read=True)
    assert "initialize" in fails(box, fake, "--start-timeout", "600ms")


# ------------------------------------------------------------------------------------------------- B10

PAGE = '{"tools":[{"name":"a"}],"nextCursor":%s}'
FAILURES = {
    "no JSON on stdout": ({"noise": {"initialize": "starting up\n"}}, ["JSON"]),
    "a banner first": ({"say": "Welcome!\n"}, ["JSON"]),
    "Content-Length": ({"noise": {"tools/list": "Content-Length: 20\r\n\r\n"}}, ["JSON"]),
    "half a message": ({"noise": {"tools/list": '{"jsonrpc":"2.0",\n'}}, ["JSON"]),
    "asks for a completion": ({"early": "sampling/createMessage"}, ["sampling/createMessage"]),
    "asks the user": ({"early": "elicitation/create"}, ["elicitation/create"]),
    "asks for roots that were not declared": ({"ask_roots": True}, ["roots/list"]),
    "initialize refused": ({"refuse": {"initialize": {"code": -32603, "message": "broken"}}}, ["initialize"]),
    "initialize not found": ({"refuse": {"initialize": {"code": -32601, "message": "no"}}}, ["initialize"]),
    "list refused": ({"refuse": {"tools/list": {"code": -32603, "message": "index not ready"}}}, ["tools/list"]),
    "list invalid": ({"refuse": {"tools/list": {"code": -32602, "message": "no"}}}, ["tools/list"]),
    "result is an array": ({"init_raw": "[]"}, ["initialize"]),
    "result is null": ({"init_raw": "null"}, ["initialize"]),
    "result is text": ({"init_raw": '"x"'}, ["initialize"]),
    "result is a number": ({"init_raw": "7"}, ["initialize"]),
    "no protocolVersion": ({"init_raw": init(protocolVersion=None)}, ["initialize", "protocolVersion"]),
    "protocolVersion a number": ({"init_raw": init(protocolVersion=7)}, ["initialize", "protocolVersion"]),
    "no capabilities": ({"init_raw": init(capabilities=None)}, ["initialize", "capabilities"]),
    "capabilities an array": ({"init_raw": init(capabilities=[])}, ["initialize", "capabilities"]),
    "no serverInfo": ({"init_raw": init(serverInfo=None)}, ["initialize", "serverInfo"]),
    "serverInfo is text": ({"init_raw": init(serverInfo="n 1")}, ["initialize", "serverInfo"]),
    "no serverInfo.name": ({"init_raw": init(serverInfo={"version": "1"})}, ["initialize", "serverInfo"]),
    "no serverInfo.version": ({"init_raw": init(serverInfo={"name": "n"})}, ["initialize", "serverInfo"]),
    "serverInfo.name a number": ({"init_raw": init(serverInfo={"name": 1, "version": "1"})}, ["initialize", "serverInfo"]),
    "another version": ({"versions": ["2024-11-05"]}, ["2024-11-05"]),
    "list is an array": ({"list_raw": {"tools/list": "[]"}}, ["tools/list"]),
    "list is null": ({"list_raw": {"tools/list": "null"}}, ["tools/list"]),
    "no array": ({"list_raw": {"tools/list": "{}"}}, ["tools/list"]),
    "array is null": ({"list_raw": {"tools/list": '{"tools":null}'}}, ["tools/list"]),
    "array is an object": ({"list_raw": {"tools/list": '{"tools":{}}'}}, ["tools/list"]),
    "another array": ({"list_raw": {"tools/list": '{"prompts":[]}'}}, ["tools/list"]),
    "cursor is a number": ({"list_raw": {"tools/list": PAGE % "5"}}, ["tools/list", "nextCursor"]),
    "cursor is an object": ({"list_raw": {"tools/list": PAGE % "{}"}}, ["tools/list", "nextCursor"]),
    "cursor is false": ({"list_raw": {"tools/list": PAGE % "false"}}, ["tools/list", "nextCursor"]),
    "a repeated cursor": ({"list_raw": {"tools/list": PAGE % '"SAME"'}}, ["tools/list", "cursor"]),
    "exit at once": ({"die": "exit7", "stderr": "out of luck\n"}, ["exit status 7", "out of luck"]),
    "exit in the handshake": ({"die_at": {"initialize": "exit3"}}, ["initialize", "exit status 3"]),
    "crash in a list": ({"die_at": {"tools/list": "SIGSEGV"}}, ["tools/list", "SIGSEGV"]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_b10_failures_leave_the_recording_as_it_was(box, name):
    flags, words = FAILURES[name]
    fake = box.fake()
    passes(box, fake)
    fake.set(**flags)
    reason = fails(box, fake)
    for word in words:
        assert word.lower() in reason.lower(), reason
    fake.set()
    session(box, fake)


@pytest.mark.parametrize("fault, word", [("type", "nextCursor"), ("repeat", "cursor"), ("error", "tools/list")])
def test_b10_faults_of_later_pages_in_the_modern_pass(box, fault, word):
    fake = both_eras(box, tools=6)
    passes(box, fake)
    fake.set(page=2, page_fault=fault)
    assert word in fails(box, fake)
    modern_session(box, fake)


@pytest.mark.parametrize("where", ["init_raw", "list_raw"])
@pytest.mark.parametrize("broken", ['[{"name":}]', '[{"name":"a"},]', "[NaN]", '["\\x"]', "[01]", '["\t"]', "[}"])
def test_b10_an_answer_that_is_broken_inside_is_no_json(box, where, broken):
    """Its head and tail look well; that is found when it comes, not at the end of the deadline."""
    fake = box.fake()
    passes(box, fake)
    fake.set(**{where: init(x="BROKEN").replace('"BROKEN"', broken) if where == "init_raw" else {"tools/list": '{"tools":%s}' % broken}})
    reason = fails(box, fake, "--start-timeout", "4s")
    assert "timed out" not in reason and "json" in reason.lower()


@pytest.mark.parametrize("result", ["[]", "None", "7", "'x'"])
def test_b10_a_discovery_that_is_no_object(box, result):
    server = own_server(box, """
if method == 'server/discover': ok(m, %s)
elif method == 'initialize': ok(m, INIT)
elif method == 'tools/list': ok(m, {'tools': []})
elif 'id' in m: fail(m, -32601)""" % result)
    assert "server/discover" in fails(box, server)


def test_b17_an_empty_discovery_is_no_modern_server(box):
    """Some legacy servers answer `{}` to whatever they do not know."""
    server = own_server(box, """
if method == 'initialize': ok(m, INIT)
elif method == 'tools/list': ok(m, {'tools': []})
elif 'id' in m: ok(m, {})""")
    assert passes(box, server)["eras"] == ["legacy"]
    session(box, server)


def test_a7_13_lines_may_end_in_crlf(box):
    server = own_server(box, """
def ok(m, r): os.write(1, (json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}) + '\\r\\n\\r\\n').encode())
if method == 'initialize': ok(m, INIT)
elif method == 'tools/list': ok(m, {'tools': []})
elif 'id' in m: fail(m, -32601)""")
    passes(box, server)
    session(box, server)


def test_b10_nothing_is_written_by_a_first_check_that_fails(box):
    fake = box.fake(refuse={"tools/list": {"code": -32603, "message": "no"}})
    fails(box, fake)
    assert box.recordings() == []
    session(box, fake, lists=(), warm=False)


def test_b10_cursors_that_go_in_a_circle(box):
    server = own_server(box, """
if method == 'initialize': ok(m, INIT)
elif method == 'tools/list':
    cursor = m['params'].get('cursor')
    ok(m, {'tools': [], 'nextCursor': {None: 'a', 'a': 'b', 'b': 'c', 'c': 'a'}[cursor]})
elif 'id' in m: fail(m, -32601)""")
    assert "cursor" in fails(box, server)


def test_b10_a_server_that_takes_no_more_input(box):
    """A write failure; the reason comes at once, not at the end of the minute that a start may take."""
    server = own_server(box, """
if method == 'server/discover':
    os.close(0); fail(m, -32601)
    while True: time.sleep(60)""")
    began = time.monotonic()
    fails(box, server)
    assert time.monotonic() - began < WAIT_S


def test_b10_a_server_that_closes_its_output(box):
    server = own_server(box, """
if method == 'initialize':
    os.close(1)
    while True: time.sleep(60)
elif 'id' in m: fail(m, -32601)""")
    assert "initialize" in fails(box, server, "--start-timeout", "2s")


def test_b10_ping_is_answered(box):
    fake = box.fake(early="ping", early_waits=True)
    passes(box, fake)
    (answer,) = [line for line in fake.lines() if line["method"] is None]
    assert answer["id"] == "early"


def test_b10_roots_are_answered_where_they_were_declared(box):
    server = box.fake(early="roots/list", early_waits=True, raw=str(box.path / "wire"))
    params = '{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},%s}' % GOOD_INFO
    passes(box, server, env=box.env(MCP_LAZY_CHECK_INITIALIZE=params))
    answers = [json.loads(line) for line in (box.path / "wire").read_text().split("\n") if '"result"' in line]
    assert answers == [{"jsonrpc": "2.0", "id": "early", "result": {"roots": []}}]


def test_b11_unknown_answers_and_notifications_are_skipped(box):
    noise = [{"jsonrpc": "2.0", "id": "nobody", "result": {"tools": 7}}, {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
             {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
             {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    text = "".join(json.dumps(one) + "\n" for one in noise)
    fake = box.fake(noise={"initialize": text, "tools/list": text, "server/discover": text})
    assert passes(box, fake)["lists"]["tools/list"]["count"] == 1
    assert session(box, fake)[1]["tools"][0]["name"] == "tool0"


SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"]


@slow
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("at", ["initialize", "tools/list"])
def test_b10_signals_interrupt_the_check(box, name, at):
    """The server and its stubborn child are gone when the check is."""
    fake = box.fake()
    passes(box, fake)
    before = files(box)
    fake.set(hang_at=[at], ignore=SIGNALS, ignore_eof=True, children=["stubborn"])
    count = fake.methods().count(at)
    running = box.relay([], argv=box.command("--check", "--", *fake.argv))
    fake.wait_method(at, count + 1)
    running.signal(getattr(signal, name))
    assert running.wait() == 1
    left = [pid for pid in [one["pid"] for one in fake.events("start")] + fake.descendants() if alive(pid)]
    assert left == [], "processes outlived the check"
    assert running.rest() == [] and "check interrupted" in running.stderr()
    assert files(box) == before


@slow
def test_b10_a_signal_in_the_second_process(box):
    fake = both_eras(box, lock=True, hang_at=["initialize"])
    running = box.relay([], argv=box.command("--check", "--", *fake.argv))
    fake.wait_method("initialize")
    running.signal(signal.SIGTERM)
    assert running.wait() == 1 and "check interrupted" in running.stderr()
    assert fake.starts() == 2 and box.recordings() == []


@slow
def test_design_5_a_check_that_is_killed_leaves_no_process(box):
    fake = box.fake(hang_at=["initialize"], ignore=SIGNALS, ignore_eof=True, children=["stubborn"])
    running = box.relay([], argv=box.command("--check", "--", *fake.argv))
    fake.wait_method("initialize")
    running.process.kill()
    running.process.wait()
    until(lambda: marked(box.mark) == [], what="the end of all its processes")


def no_files():
    """For preexec: no file can grow; what runs sees EFBIG."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_b10_a_recording_that_cannot_be_written_is_a_failure(box):
    fake = box.fake()
    passes(box, fake)
    before = files(box)
    done = subprocess.run(box.command("--check", "--", *fake.argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=box.env(), timeout=WAIT_S, preexec_fn=no_files)
    err = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert "check failed: " in err and "saving cache" in err and "Traceback" not in err
    assert files(box) == before
    assert [name for name in os.listdir(str(box.cache)) if name.startswith(".tmp-")] == []


@slow
def test_b10_a_lock_that_another_process_keeps_is_a_failure(box):
    """A writer that was stopped in the middle must not hold the check for ever."""
    fake = box.fake()
    passes(box, fake)
    with open(str(box.recordings()[0])[:-len("json")] + "lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "saving cache" in fails(box, fake)


def test_b10_a_report_that_cannot_be_written_has_a_reason(box):
    """Exit 1 never comes without one."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(box.command("--check", "--", *box.fake().argv), stdin=subprocess.DEVNULL, stdout=full,
                              stderr=subprocess.PIPE, env=box.env(), timeout=WAIT_S)
    err = done.stderr.decode()
    assert done.returncode == 1 and "mcp-lazy: " in err and "Traceback" not in err


def test_b10_a_cache_folder_that_cannot_be_made_is_a_failure(box):
    blocker = box.path / "file"
    blocker.write_text("")
    assert "saving cache" in fails(box, box.fake(), "--cache-dir", str(blocker / "below"))


def test_a4_3_a_cache_folder_of_everybody_is_a_failure(box):
    shared = box.path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "saving cache" in fails(box, box.fake(), "--cache-dir", str(shared))
    assert list(shared.glob("*.json")) == []


def test_b16_json_errors(box):
    fake = box.fake(hang_at=["tools/list"])
    status, out, err = check(box, fake, "--json-errors", "--start-timeout", "500ms")
    assert status == 1 and out.endswith(b"\n") and out.count(b"\n") == 1
    found = json.loads(out, object_pairs_hook=in_order)
    assert set(found) == {"error", "ok", "stage"} and found["ok"] is False
    assert "tools/list" in found["error"] and found["error"] in err
    assert isinstance(found["stage"], str) and found["stage"]


def test_b16_the_stages_differ(box):
    stages = []
    for server in (["no-such-program"], box.fake(refuse={"initialize": {"code": -32603, "message": "no"}}).argv,
                   box.fake(refuse={"tools/list": {"code": -32603, "message": "no"}}).argv):
        stages.append(json.loads(check(box, server, "--json-errors")[1])["stage"])
    assert len(set(stages)) == 3, stages


def test_b16_json_errors_of_a_success_change_nothing(box):
    assert passes(box, box.fake(), "--json-errors")["ok"] is True


# --------------------------------------------------------------------------------- B12, B13, B14, report

def test_b12_other_protocols_and_capabilities_stay(box):
    fake = box.fake(tools=2)
    passes(box, fake)
    for version, caps in (("2024-11-05", "{}"), (VERSION, '{"roots":{}}')):
        params = '{"protocolVersion":"%s","capabilities":%s,%s}' % (version, caps, GOOD_INFO)
        passes(box, fake, env=box.env(MCP_LAZY_CHECK_INITIALIZE=params))
    session(box, fake)
    session(box, fake, version="2024-11-05")
    session(box, fake, capabilities={"roots": {}})
    session(box, fake, version="2025-03-26", warm=False)


def test_b12_the_entry_is_replaced_as_a_whole(box):
    """A list that the server no longer has is not served any more."""
    fake = box.fake(init_raw=init(capabilities={"tools": {}, "prompts": {}}), prompts=3)
    passes(box, fake)
    session(box, fake, lists=["tools/list", "prompts/list"])
    fake.set(init_raw=init(capabilities={"tools": {}}, serverInfo={"name": "n", "version": "2"}), tools=5)
    passes(box, fake)
    assert len(session(box, fake)[1]["tools"]) == 5
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["version"] == "2"
    relay.answer(relay.request("prompts/list"))
    assert fake.starts() == starts + 1


def test_b12_a_modern_era_that_is_gone_is_forgotten(box):
    fake = both_eras(box)
    assert passes(box, fake)["eras"] == ["modern", "legacy"]
    fake.set(era="legacy")
    assert passes(box, fake)["eras"] == ["legacy"]
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.error(relay.request("server/discover", envelope()))["code"] == -32601
    relay.finish()
    session(box, fake)
    assert fake.starts() == starts + 1, "asked, because this client's probe is another text"


def test_b12_a_legacy_era_that_is_gone_is_forgotten(box):
    """No client may be told of a handshake that the server refuses: the last check has seen that."""
    fake = both_eras(box)
    assert passes(box, fake)["eras"] == ["modern", "legacy"]
    fake.set(era="modern")
    assert passes(box, fake)["eras"] == ["modern"]
    relay = box.relay(fake)
    relay.send(initialize(0))
    assert relay.error(0)["code"] == -32022
    relay.finish()
    modern_session(box, fake)


def test_b12_a_check_confirms_an_empty_list(box):
    """A9.2: at a wake an empty list is doubted; a check settles it."""
    fake = box.fake(tools=3)
    passes(box, fake)
    fake.set(tools=0)
    passes(box, fake)
    assert session(box, fake)[1]["tools"] == []


def in_order(pairs):
    names = [name for name, _ in pairs]
    assert names == sorted(names), "not in alphabetical order: %r" % names
    return dict(pairs)


def test_b13_the_report(box):
    fake = box.fake(tools=5, prompts=1, resources=2, templates=1, page=2)
    status, out, _ = check(box, fake, "--cache-scope", "cwd,client")
    assert status == 0
    report = json.loads(out, object_pairs_hook=in_order)
    assert set(report) == {"beforeRequests", "cachePath", "durationMs", "eras", "lists", "ok", "protocolVersion", "scope",
                           "serverInfo", "version"}
    assert report["lists"] == {"prompts/list": {"cached": True, "count": 1, "pages": 1},
                               "resources/list": {"cached": True, "count": 2, "pages": 1},
                               "resources/templates/list": {"cached": True, "count": 1, "pages": 1},
                               "tools/list": {"cached": True, "count": 5, "pages": 3}}
    assert report["protocolVersion"] == VERSION and report["eras"] == ["legacy"] and report["beforeRequests"] == 1
    assert report["serverInfo"] == {"name": "fake", "version": "1"} and sorted(report["scope"]) == ["client", "cwd"]
    assert report["version"] == box.run("--version")[1].decode().split()[-1]
    assert type(report["durationMs"]) is int and 0 < report["durationMs"] < 30000
    assert report["cachePath"] == str(box.recordings()[0])
    assert passes(box, fake)["scope"] == []


def test_b13_escapes(box):
    fake = box.fake(init_raw=init(serverInfo={"name": "a<b>&c", "version": "\u00fc"}))
    status, out, _ = check(box, fake)
    assert status == 0 and b"a\\u003cb\\u003e\\u0026c" in out and not set(b"<>&") & set(out)
    assert json.loads(out)["serverInfo"] == {"name": "a<b>&c", "version": "\u00fc"}


def test_b14_the_servers_stderr_stays_on_stderr(box):
    fake = box.fake(stderr="<said once>\n", flood=190)
    status, _, err = check(box, fake)
    assert status == 0 and err.count("<said once>\n") == 1
    assert err.count("W: a line of noise\n") == 40, "ten at discover, initialize, initialized, tools/list each"


def test_b14_case_002_more_stderr_than_a_pipe_holds_stops_nothing(box):
    fake = box.fake(stderr="<said once>\n", flood=300000)
    status, _, err = check(box, fake)
    assert status == 0 and err.count("<said once>\n") == 1


def test_a_good_check_says_nothing_on_stderr(box):
    status, _, err = check(box, box.fake())
    assert (status, err) == (0, "")


def terminal_output(box, fake, *options):
    """(stdout, stderr) of a check whose stderr is a terminal."""
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(box.command("--check", *options, "--", *fake.argv), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=slave, env=box.env(TERM="xterm"))
        os.close(slave)
        slave = None
        shown = b""
        while True:
            try:
                data = read_some(master, 20)
            except OSError:  # EIO: nobody holds the other side any more
                break
            if not data:
                break
            shown += data
        out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, shown
        return out, shown.decode("utf-8", "replace")
    finally:
        os.close(master)
        if slave is not None:
            os.close(slave)


@slow
def test_progress_only_on_a_terminal(box):
    """Phase and elapsed time, while it runs; stdout has the report alone."""
    fake = box.fake(delay={"initialize": 0.7, "tools/list": 0.7})
    out, shown = terminal_output(box, fake)
    assert out.count(b"\n") == 1 and json.loads(out)["ok"] is True
    assert "initialize" in shown and "tools/list" in shown
    assert re.search(r"\d(\.\d+)? ?m?s", shown), shown
    status, _, err = check(box, fake)
    assert (status, err) == (0, "")


# ------------------------------------------------------------------------------------------------- B17

def test_b17_both_eras_in_two_processes_one_after_the_other(box):
    """SDKs fix the era of a process on its first request; and the second must find the first one gone (lock files)."""
    fake = both_eras(box, lock=True, tools=2, prompts=1)
    report = passes(box, fake)
    assert report["eras"] == ["modern", "legacy"] and report["protocolVersion"] == VERSION
    assert report["lists"] == {"prompts/list": {"cached": True, "count": 1, "pages": 1},
                               "tools/list": {"cached": True, "count": 2, "pages": 1}}
    first, second = by_process(fake)
    assert methods_of(first) == ["server/discover", "tools/list", "prompts/list"]
    assert methods_of(second) == ["initialize", "notifications/initialized", "tools/list", "prompts/list"]
    for line in first:
        assert line["params"]["_meta"] == first[0]["params"]["_meta"], "the envelope of the probe"
    assert all(re.fullmatch("mcp-lazy-inspect-[1-9][0-9]*", line["id"]) for line in first + second if line["id"] is not None)
    order = [(one["ev"], one["pid"]) for one in fake.events() if one["ev"] in ("start", "end")]
    assert order[1] == ("end", first[0]["pid"]), "the first process ended before the second began"
    session(box, fake, ["tools/list", "prompts/list"])
    modern_session(box, fake, ["tools/list", "prompts/list"])


def test_b17_a_server_of_the_modern_era_alone(box):
    fake = both_eras(box, era="modern", tools=2)
    report = passes(box, fake)
    assert report["eras"] == ["modern"] and report["protocolVersion"] == MODERN
    assert report["lists"]["tools/list"]["count"] == 2
    assert report["serverInfo"] == {"name": "modern", "version": "1"}
    modern_session(box, fake)


def test_b17_a_modern_server_that_does_not_know_initialize(box):
    fake = both_eras(box, era="dual", refuse={"initialize": {"code": -32601, "message": "no"}})
    assert passes(box, fake)["eras"] == ["modern"]


def test_b17_a_server_of_the_legacy_era_alone_stays_in_one_process(box):
    fake = both_eras(box, era="legacy")
    report = passes(box, fake)
    assert report["eras"] == ["legacy"] and report["protocolVersion"] == VERSION and fake.starts() == 1
    session(box, fake)


@pytest.mark.parametrize("how", ["legacy-only", "wrong"])
@pytest.mark.parametrize("lock", [False, True])
def test_b17_a_discovery_without_a_version_of_ours_is_no_modern_server(box, how, lock):
    fake = both_eras(box, discover=how, lock=lock)
    report = passes(box, fake)
    assert report["eras"] == ["legacy"] and report["protocolVersion"] == VERSION
    session(box, fake)


def test_b17_an_unsupported_version_is_recorded_and_the_legacy_pass_goes_on(box):
    """-32022 to the probe: a later probe of that version gets it again, with its data, from the recording."""
    fake = both_eras(box, knows=["2027-01-01"])
    report = passes(box, fake)
    assert report["eras"] == ["legacy"]
    starts = fake.starts()
    relay = box.relay(fake)
    error = relay.error(relay.request("server/discover", envelope()))
    assert error["code"] == -32022 and error["data"] == {"supported": ["2027-01-01"], "requested": MODERN}
    relay.finish()
    assert fake.starts() == starts
    session(box, fake)


@slow
def test_b17_silence_for_a_third_of_the_deadline(box):
    fake = both_eras(box, era="legacy", discover="silence")
    began = time.monotonic()
    report = passes(box, fake, "--start-timeout", "2400ms")
    assert 0.8 <= time.monotonic() - began < 2.4
    assert report["eras"] == ["legacy"] and fake.starts() == 1
    assert fake.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/list"]
    session(box, fake)


@slow
def test_b17_a_probe_answered_late_by_a_server_that_fixed_its_era(box):
    """It slept through the wait for the probe, then refuses the handshake with -32022: a second process is needed."""
    fake = both_eras(box, lock=True, delay={"server/discover": 2.2})
    report = passes(box, fake, "--start-timeout", "6s")
    assert "legacy" in report["eras"] and report["protocolVersion"] == VERSION
    first, second = by_process(fake)
    assert methods_of(first)[:2] == ["server/discover", "initialize"] and methods_of(second)[0] == "initialize"
    session(box, fake)


@slow
def test_b17_a_success_that_comes_late_is_not_recorded_as_not_found(box):
    """A server that works at its discovery while it serves others: silent for a third of the deadline, then a result.
    Of errors only those are recorded that a server really gave (A17.4, B7)."""
    server = own_server(box, """
found = {'resultType': 'complete', 'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}}, 'ttlMs': 0, 'cacheScope': 'private'}
if method == 'server/discover' and os.path.exists('%s'): ok(m, found)
elif method == 'server/discover': late = m
elif method == 'initialize': ok(m, INIT)
elif method == 'tools/list':
    ok(late, found)
    ok(m, {'tools': []})
elif 'id' in m: fail(m, -32601)""" % (box.path / "quick"))
    params = claude()
    assert "legacy" in checked_with_probe(box, server, options=("--start-timeout", "1500ms"))["eras"]
    (box.path / "quick").write_text("")
    answer, _ = asked(box, server, params)
    assert "result" in answer, answer


def test_b17_each_era_keeps_its_own_lists(box):
    """A server that shows a legacy client other tools than a modern one."""
    server = own_server(box, """
modern = 'protocolVersion' in json.dumps(m.get('params', {}).get('_meta', {}))
if method == 'server/discover':
    ok(m, {'resultType': 'complete', 'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}}, 'ttlMs': 0, 'cacheScope': 'private'})
elif method == 'initialize': ok(m, INIT)
elif method == 'tools/list': ok(m, {'tools': [{'name': 'modern' if modern else 'legacy', 'inputSchema': {}}]})
elif 'id' in m: fail(m, -32601)""")
    assert passes(box, server)["eras"] == ["modern", "legacy"]
    assert session(box, server)[1]["tools"][0]["name"] == "legacy"
    assert modern_session(box, server)[1]["tools"][0]["name"] == "modern"


def test_b17_an_incomplete_modern_result_is_not_recorded(box):
    """A17.4: `input_required` is no listing."""
    server = own_server(box, """
if method == 'server/discover':
    ok(m, {'resultType': 'complete', 'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}}, 'ttlMs': 0, 'cacheScope': 'private'})
elif method == 'tools/list': ok(m, {'resultType': 'input_required', 'requestState': 's', 'tools': []})
elif 'id' in m: fail(m, -32601)""")
    assert "tools/list" in fails(box, server)
    assert box.recordings() == []


# ------------------------------------------------------------------------------- sessions after a check

def test_after_a_check_a_legacy_session_starts_nothing_until_its_call(box):
    fake = box.fake(tools=2, prompts=1, resources=1, templates=1)
    passes(box, fake)
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"] == {"name": "fake", "version": "1"}
    for method in LISTS:
        relay.ask(method)
    assert fake.starts() == 1 and relay.asleep()
    assert relay.call("pid")["calls"] == 1 and fake.starts() == 2
    assert relay.barrier() == [], "the lists are as they were recorded"


@pytest.mark.parametrize("lock", [False, True])
def test_after_a_check_a_modern_session_starts_nothing_until_its_call(box, lock):
    fake = both_eras(box, lock=lock, tools=2, prompts=1, announce=True)
    passes(box, fake)
    starts = fake.starts()
    relay = box.relay(fake)
    found = relay.ask("server/discover", envelope())
    assert found["supportedVersions"] == [MODERN] and found["resultType"] == "complete"
    listen = relay.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
    told = relay.until_message(lambda one: one.get("method") == "notifications/subscriptions/acknowledged")
    assert told["params"]["notifications"] == {"toolsListChanged": True}
    assert told["params"]["_meta"][KEY + "subscriptionId"] == listen
    assert len(relay.ask("tools/list", envelope())["tools"]) == 2
    assert len(relay.ask("prompts/list", envelope())["prompts"]) == 1
    assert fake.starts() == starts and relay.asleep()
    assert relay.ask("tools/call", envelope(name="echo", arguments={"x": 1}))["echo"] == {"x": 1}
    assert fake.starts() == starts + 1


def test_after_a_check_claude_codes_order_on_a_legacy_server(box):
    """Probe, answer, then initialize on the same connection."""
    fake = box.fake()
    passes(box, fake, "--as", "claude-code")
    starts = fake.starts()
    relay = box.relay(fake)
    relay.send(probe(claude("2.1.332")))
    assert relay.error("probe")["code"] == -32601
    relay.handshake(version="2025-11-25", capabilities=json.loads(CAPS), name="claude-code")
    relay.ask("tools/list")
    assert fake.starts() == starts


def test_case_053_pages_of_a_check_are_served_in_order_legacy_and_modern(box):
    fake = both_eras(box, tools=25, page=10)
    report = passes(box, fake)
    assert report["lists"]["tools/list"] == {"cached": True, "count": 25, "pages": 3}
    starts = fake.starts()
    for params in (lambda **more: more, lambda **more: envelope(**more)):
        relay = box.relay(fake)
        relay.ask("server/discover", envelope())
        relay.handshake()
        names, cursor = [], None
        while cursor is None or cursor:
            page = relay.ask("tools/list", params(cursor=cursor) if cursor else params())
            names += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor", "")
            assert cursor == "" or cursor.startswith("mcp-lazy:")
        assert names == ["tool%d" % n for n in range(25)]
        relay.finish()
    assert fake.starts() == starts


def test_a5_9_the_scope_of_the_check_is_the_scope_of_the_session(box):
    fake = box.fake()
    passes(box, fake, "--cache-scope", "env:REGION", env=box.env(REGION="region-eu"))
    for region, warm in (("region-eu", True), ("region-us", False)):
        starts = fake.starts()
        relay = box.relay(fake, "--cache-scope", "env:REGION", env=box.env(REGION=region))
        relay.handshake()
        assert (fake.starts() == starts) is warm
        relay.finish()
    assert b"region-eu" not in box.recordings()[0].read_bytes(), "values of the environment enter as a digest only"


def test_a5_7_a_session_at_the_same_time_keeps_its_entry(box):
    """Both write the file; neither loses what the other learnt."""
    fake = box.fake(tools=2, prompts=1)
    relay = box.relay(fake)
    relay.handshake(version="2024-11-05")
    passes_beside(box, fake)
    relay.ask("prompts/list")
    relay.finish()
    session(box, fake, ["tools/list", "prompts/list"])
    session(box, fake, ["prompts/list"], version="2024-11-05")


def passes_beside(box, fake):
    """A check while a session has its server running."""
    status, _, err = box.run("--check", "--", *fake.argv)
    assert status == 0, err


@slow
def test_a5_7_checks_at_the_same_time_keep_each_others_entries(box):
    fake = box.fake()
    versions = ["2024-11-05", "2025-03-26", VERSION, "2025-11-25", "a", "b"]
    running = []
    for version in versions:
        params = '{"protocolVersion":"%s","capabilities":{},%s}' % (version, GOOD_INFO)
        running.append(box.relay([], argv=box.command("--check", "--", *fake.argv), env=box.env(MCP_LAZY_CHECK_INITIALIZE=params)))
    assert [one.wait(30) for one in running] == [0] * len(versions)
    for version in versions:
        session(box, fake, version=version)


def test_a5_6_a_damaged_recording_is_replaced(box):
    fake = box.fake()
    passes(box, fake)
    (path,) = box.recordings()
    for data in (b"", b"{", b"[]\n", b'{"schema":2}\n', path.read_bytes()[:-30]):
        path.write_bytes(data)
        passes(box, fake)
        session(box, fake)


def test_a5_4b_a_recording_of_a_newer_program_is_left_alone(box):
    """It cannot be written, and a check whose work is lost has failed."""
    fake = box.fake()
    passes(box, fake)
    (path,) = box.recordings()
    path.write_bytes(b'{"schema":9,"entries":[]}\n')
    assert "saving cache" in fails(box, fake)


def test_a5_8_a_result_above_8_mib_is_not_stored(box):
    """The report says so; the rest is recorded."""
    fake = box.fake(prompts=1)
    fake.set(list_raw={"tools/list": '{"tools":[{"name":"a","description":"%s","inputSchema":{}}]}' % ("d" * (9 << 20))})
    report = passes(box, fake)
    assert report["lists"]["prompts/list"]["cached"] is True
    assert report["lists"]["tools/list"] == {"cached": False, "count": 1, "pages": 1}, "counted, though not kept (B13)"
    assert box.recordings()[0].stat().st_size < 100000
    session(box, fake, ["prompts/list"])


def test_part_f_a_check_with_a_name_warms_the_session_of_that_name(box):
    fake = box.fake()
    env = box.env(DSH_LAZY_MCP_STATE_DIR=str(box.path / "state"), DSH_LAZY_MCP_LOG_DIR=str(box.path / "log"), MCP_LAZY_CACHE_DIR=None)
    report = passes(box, fake, "--name", "shelf", env=env)
    assert os.path.basename(report["cachePath"]) == "shelf.json" and os.path.exists(report["cachePath"])
    relay = box.relay(fake, "--name", "shelf", env=env)
    relay.handshake()
    relay.ask("tools/list")
    assert fake.starts() == 1


# ------------------------------------------------------------------------------------------------ --as

URL, UI = {"form": {}, "url": {}}, {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
# What the captured clients ask for: version, and the capabilities of their health check and their session.
KNOWN = {
    "claude-code": ("2025-11-25", [{"roots": {"listChanged": True}, "elicitation": URL}]),
    "codex": ("2025-06-18", [{"elicitation": URL}, {"experimental": {"codex/auth-change": {}}, "elicitation": URL}]),
    "gemini": ("2025-06-18", [{}, {"roots": {"listChanged": True}}]),
    "opencode": ("2025-11-25", [{"roots": {}}]),
    "copilot": ("2025-11-25", [{"sampling": {}, "elicitation": URL}]),
    "cline": ("2024-11-05", [{}]),
    "grok": ("2025-11-25", [{"extensions": UI}, {"extensions": UI, "elicitation": {"form": {"schemaValidation": True}, "url": {}}}]),
    "qwen": ("2025-11-25", [{"extensions": UI}, {"extensions": UI, "roots": {}}]),
    "continue": ("2025-11-25", [{}]),
    "pi": ("2025-11-25", [{"extensions": UI}]),
    "mcporter": ("2025-11-25", [{}]),
    "inspector": ("2025-11-25", [{"roots": {"listChanged": True},
                                  "extensions": {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/skills": {}}}]),
    "py-sdk": ("2025-11-25", [{}]),
    "ts-sdk": ("2025-11-25", [{}])}


@pytest.mark.parametrize("name", KNOWN)
def test_as_a_known_client_is_warm_afterwards(box, name):
    """With the capabilities of its health check and of its session, both; a list of another set does not mix in."""
    version, sets = KNOWN[name]
    fake = box.fake(by_caps=True, prompts=1)
    report = passes(box, fake, "--as", name)
    assert report["as"] == name and report["protocolVersion"] == version and report["eras"] == ["legacy"]
    for capabilities in sets:
        found = session(box, fake, ["tools/list", "prompts/list"], version=version, capabilities=capabilities)
        assert len(found[1]["tools"]) == (4 if "elicitation" in capabilities else 1)


@pytest.mark.parametrize("name", ["claude-code", "copilot", "py-sdk"])
def test_as_a_client_that_probes_is_warm_on_a_modern_server(box, name):
    fake = both_eras(box, lock=True, ask_caps=True)
    report = passes(box, fake, "--as", name)
    assert report["eras"] == ["modern", "legacy"]
    for capabilities in KNOWN[name][1]:
        modern_session(box, fake, capabilities=capabilities)


def test_as_an_unknown_client_lists_the_known_ones(box):
    err = refused(box, box.fake(), "--as", "netscape")
    assert "netscape" in err and [name for name in KNOWN if name not in err] == []


@slow
def test_as_every_name_that_is_listed_runs(box):
    fake = box.fake()
    listed = refused(box, fake, "--as", "netscape").strip().split("\n")[0].rpartition(":")[2]
    names = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", listed)
    assert set(KNOWN) <= set(names)
    for name in set(names) - set(KNOWN):  # those have a test of their own
        assert passes(box, fake, "--as", name)["as"] == name


def test_as_wins_over_the_variable_and_has_none_itself(box):
    fake = box.fake()
    params = '{"protocolVersion":"2024-11-05","capabilities":{},%s}' % GOOD_INFO
    passes(box, fake, "--as", "claude-code", env=box.env(MCP_LAZY_CHECK_INITIALIZE=params))
    sent = [line["params"] for line in fake.lines() if line["method"] == "initialize"]
    assert {one["clientInfo"]["name"] for one in sent} == {"claude-code"}
    report = passes(box, fake, env=box.env(MCP_LAZY_AS="claude-code", MCP_LAZY_JSON_ERRORS="nonsense"))
    assert "as" not in report and report["protocolVersion"] == VERSION


def test_as_and_json_errors_are_options_of_the_check_alone(box):
    """A1.10: "with --check only"."""
    for words in (["--as", "codex"], ["--json-errors"]):
        status, out, err = box.run(*words, "--", *box.fake().argv, stdin=encode(initialize()))
        assert (status, out) == (2, b"") and words[0].lstrip("-") in err and "check" in err


def test_as_records_another_negotiated_version_as_the_client_would_get_it(box):
    fake = box.fake(versions=["2024-11-05"])
    report = passes(box, fake, "--as", "claude-code")
    assert report["protocolVersion"] == "2024-11-05"
    found = session(box, fake, version="2025-11-25", capabilities=json.loads(CAPS))
    assert found[0]["protocolVersion"] == "2024-11-05"


def captured_starts():
    """Start-ups of captured clients (up to their first call) by the name that `--as` knows them by."""
    for ident, messages in CAPTURED:
        client = ident.rsplit("-", 3)[0]
        (name, *_) = [one for one in sorted(KNOWN, key=len, reverse=True) if client.startswith(one)] or [None]
        if name == "ts-sdk":  # the program that uses it chooses the name in its probe: nobody can know that
            messages = [line for line in messages if line.get("method") != "server/discover"]
        if name and messages and "-everything-" in ident:
            yield pytest.param(name, messages, id=ident)


@slow
@pytest.mark.parametrize("name, messages", list(captured_starts()))
def test_as_after_a_check_the_captured_start_up_starts_nothing(box, name, messages):
    """Each request up to the first call, as the client wrote it."""
    fake = box.fake(tools=2, prompts=1, resources=1, templates=1, logging=True)
    passes(box, fake, "--as", name)
    starts = fake.starts()
    relay = box.relay(fake)
    for line in messages:
        if line.get("method") in ("tools/call", "notifications/cancelled"):
            break
        relay.send(dict({"jsonrpc": "2.0"}, **line))
        if line.get("id") is not None and "method" in line:
            relay.answer(line["id"])
        assert fake.starts() == starts, line
    relay.finish()


# ---------------------------------------------------------------------------------------------- cases

def handed(box, name):
    folder = Path(os.environ.get("MCP_LAZY_CASES", "/nonexistent")) / "inputs"
    if not (folder / name).is_file():
        pytest.skip("MCP_LAZY_CASES names no folder with the inputs of the cases")
    return [box.python, str(folder / name)]


def test_case_053_with_the_handed_server(box):
    server = handed(box, "053-server.py")
    assert passes(box, server)["lists"]["tools/list"] == {"cached": True, "count": 25, "pages": 3}
    relay = box.relay(server)
    relay.handshake()
    names, cursor = [], None
    while cursor is None or cursor:
        page = relay.ask("tools/list", {"cursor": cursor} if cursor else None)
        names += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor", "")
    assert names == ["t%02d" % n for n in range(25)] and relay.asleep()


def test_case_054_with_the_handed_server(box):
    began = time.monotonic()
    assert "cursor" in fails(box, handed(box, "054-server.py"))
    assert time.monotonic() - began < WAIT_S


@slow
def test_case_054_a_list_without_end(box):
    """A new cursor with every page: a limit of pages ends it long before the deadline; the older recording stays."""
    flag = box.path / "endless"
    server = own_server(box, """
if method == 'initialize': ok(m, INIT)
elif method == 'tools/list':
    page = {'tools': [{'name': 'x'}]}
    if os.path.exists(%r): page['nextCursor'] = str(count)
    ok(m, page)
elif 'id' in m: fail(m, -32601)""" % str(flag))
    passes(box, server)
    flag.write_text("")
    began = time.monotonic()
    assert "tools/list" in fails(box, server)
    assert time.monotonic() - began < 40


def test_case_055_with_the_handed_server(box):
    assert "tools/list" in fails(box, handed(box, "055-server.py"))
    assert box.recordings() == []


@slow
def test_case_062_checks_and_a_session_one_after_another_find_the_lock_free(box):
    fake = box.fake(lock=str(box.path / "lock"), eof_wait=0.2)
    for _ in range(3):
        passes(box, fake)
    relay = box.relay(fake)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1
    assert "the lock is taken" not in relay.stderr()


def npx(box, asks):
    """A folder with an `npx` that asks before it installs, unless -y stands before the package."""
    folder = box.path / "bin"
    folder.mkdir()
    tool = folder / "npx"
    tool.write_text('#!/bin/sh\necho "$@" >>"$WORDS"\ncase "$1" in -y|--yes) exec %s;; esac\n%s\nread -r answer\nsleep 300\n'
                    % (" ".join("'%s'" % word for word in box.fake().argv), asks))
    tool.chmod(0o755)
    words = box.path / "words"
    return box.env(PATH="%s:%s" % (folder, os.environ["PATH"]), WORDS=str(words)), words


@slow
@pytest.mark.parametrize("where", ["", ">&2"])
def test_case_063_a_question_on_the_pipe_is_shown_with_a_hint(box, where):
    """On stderr, or (B10: no JSON on stdout) on stdout; the words of the command are never changed."""
    env, words = npx(box, 'printf "Need to install:\\n  some-mcp\\nOk to proceed? (y) " %s' % where)
    reason = fails(box, ["npx", "some-mcp", "-y"], "--start-timeout", "1s", env=env)
    assert "-y" in reason and ("Ok to proceed" in reason or "Need to install" in reason), reason
    assert words.read_text() == "some-mcp -y\n"
    passes(box, ["npx", "-y", "some-mcp"], env=env)


@slow
def test_case_064_a_slow_first_start(box):
    """The check has a limit of its own, far beyond the clients'; then the first answers come from the recording."""
    fake = box.fake(boot=2.5)
    report = passes(box, fake)
    assert report["durationMs"] >= 2500
    session(box, fake)


def test_case_066_five_reasons_at_once(box):
    """A wrong sub-command, no such program, none that can be run, one that ends quietly, one that crashes."""
    plain = box.path / "README.md"
    plain.write_text("hello\n")
    commands = [(["sh", "-c", "echo 'Error: no such command: mcp' >&2; exit 2"], ["exit status 2", "no such command: mcp"]),
                (["no-such-mcp-program"], ["no-such-mcp-program", "path"]),
                ([str(plain)], ["README.md", "execut"]),
                (["true"], ["exit status 0"]),
                (["sh", "-c", "kill -SEGV $$"], ["SIGSEGV"])]
    reasons = []
    for words, parts in commands:
        began = time.monotonic()
        reason = fails(box, words)
        assert time.monotonic() - began < 5, "at once, not at the time-out"
        for part in parts:
            assert part.lower() in reason.lower(), reason
        reasons.append(re.sub(r"\W+", " ", reason))
    assert len(set(reasons)) == 5


def test_case_066_arguments_are_not_shown(box):
    """They may hold secrets; the program is named."""
    for command in (["sh", "-c", "exit 4", "--token=hunter2"], ["no-such-mcp-program", "--token=hunter2"]):
        reason = fails(box, command)
        assert "hunter2" not in reason and command[0] in reason


def test_case_068_the_path_that_was_searched_is_shown(box):
    reason = fails(box, ["my-mcp"], env=box.env(PATH="/opt/mine/bin:/opt/other"))
    assert "my-mcp" in reason and "/opt/mine/bin:/opt/other" in reason


def test_case_068_the_registrations_path_finds_the_program(box):
    folder = box.path / "mine"
    folder.mkdir()
    (folder / "my-mcp").write_text("#!/bin/sh\nexec %s\n" % " ".join("'%s'" % word for word in box.fake().argv))
    (folder / "my-mcp").chmod(0o755)
    passes(box, ["my-mcp"], env=box.env(PATH=str(folder)))


def test_case_069_a_server_that_waits_for_the_roots(box):
    """With a client that has roots.  Without (the default of the check) the case wants -32601 and a success,
    B10 a failure on any request but ping; the specification wins (see the table of failures)."""
    server = handed(box, "069-server.py")
    report = passes(box, server, "--as", "claude-code")
    assert report["lists"]["tools/list"]["count"] == 1


def test_case_069_a_server_that_refuses_everything_before_initialized(box):
    fake = both_eras(box, era="legacy", strict=True, discover=-32602)
    assert passes(box, fake)["lists"]["tools/list"]["count"] == 1


def test_case_069_a_mute_server(box):
    reason = fails(box, ["sleep", "600"], "--start-timeout", "600ms")
    assert "initialize" in reason and "600ms" in reason


def test_e1_the_check_shows_its_name(box):
    """Behaviour E: the first word of its command line begins with mcp-lazy while it runs."""
    fake = box.fake(hang_at=["initialize"])
    running = box.relay([], argv=box.command("--check", "--", *fake.argv))
    fake.wait_method("initialize")
    assert os.path.basename(cmdline(running.pid)[0]).startswith(b"mcp-lazy")
    running.signal(signal.SIGTERM)
    assert running.wait() == 1
