"""The hub from outside, second part: calls and what may go wrong with them, servers' requests, recordings, the end.

G8, G9, G14, G16.2, G16.3, G17, cases 134, 135, 138, 142, 144 and the kinds of the relay that a hub has too (002, 010,
017, 018, 020, 023, 024, 027, 031, 034, 050).  The driver and the first part are in test_hub.py.

Where the lines of G14 are shown absent: G3.2, G12.2, G13.4, G13.6, G13.9 and G15.5 in TestWithoutTheNetwork (there is
no HTTP yet; the redaction of bodies is in test_hub_log.py), G7.4 in test_hub.py::TestDiscovery::test_all_pages, G9.2 in
TestResults::test_three_errors_are_no_three_restarts and TestUnderWay::test_a_limit_that_is_reached, G9.5 in
TestFailures, G10.1 in test_hub.py::TestFace, G10.3 in test_idle_stop, G11.3 in the last test, G16.2 in TestPermissions
and test_hub.py::TestCommandLine::test_a_wrong_file.
"""

import json
import os
import re
import shlex
import signal
import time

import pytest

import harness
from harness import alive, children, fds, group, message, proc_stat, until
import test_hub
from test_hub import ALONE, config_file, entry, fake, start, start_at

shelf, made_once = test_hub.shelf, test_hub.made_once  # fixtures of the first part

KINDS = {
    "text": '{"content":[{"type":"text","text":"a\\u00e9\\n\u00fc"}]}', "empty": '{"content":[]}', "nothing": "{}",
    "error": '{"content":[{"type":"text","text":"disk full"}],"isError":true}',
    "no error": '{"isError":false,"content":[]}',
    "image": '{"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},'
             '{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]}',
    "resources": '{"content":[{"type":"resource_link","uri":"file:///x","name":"x"},'
                 '{"type":"resource","resource":{"uri":"mem://y","text":"t"}}]}',
    "structured": '{"content":[],"structuredContent":{"n":1.0,"e":1e400,"big":12345678901234567890,"none":null}}',
    "case 138": '{"content":[{"type":"text","text":"a"}],"structuredContent":{"n":1.0},"isError":true,'
                '"_meta":{"k/v":[null]},"future":{}}',
    "blanks": '{ "content" : [ ] , "content2":[1 , 2] }', "twice": '{"a":1,"a":2}',
    "surrogate": '{"content":[{"type":"text","text":"\\ud800"}]}'}


# --------------------------------------------------------------------------------------- G8: results

class TestResults:
    @pytest.fixture(scope="class")
    def server(self, shelf):
        return fake(shelf)

    @pytest.fixture(scope="class")
    def hub(self, shelf, server):
        return start(shelf, [entry("f", server)])

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_result_is_the_servers_own(self, hub, kind):
        """G8.2, case 138: byte for byte."""
        assert hub.raw_result(hub.start_invoke("f", "result", {"raw": KINDS[kind]})) == KINDS[kind].encode()

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_result_for_a_modern_client(self, hub, kind):
        """The same members and values, and `resultType`."""
        raw = hub.raw_result(hub.modern("tools/call", {"name": "invoke_command", "arguments": {
            "server": "f", "command_name": "result", "parameters": {"raw": KINDS[kind]}}}))
        assert json.loads(raw) == dict(json.loads(KINDS[kind]), resultType="complete")

    def test_input_required_of_a_server_with_a_handshake(self, hub):
        """It is nothing of its era, and never the hub's own result."""
        raw = '{"resultType":"input_required","requestState":"s"}'
        ident = hub.modern("tools/call", {"name": "invoke_command", "arguments": {
            "server": "f", "command_name": "result", "parameters": {"raw": raw}}})
        failure = hub.failed(ident)
        assert "does not know" in failure.text and failure.result["resultType"] == "complete"

    @pytest.mark.parametrize("raw", ["null", "7", '"text"', "[]", "true"])
    def test_a_result_that_is_no_object(self, hub, raw):
        """It is no result of a tool; whatever the hub makes of it, the answer is valid and the hub goes on."""
        for ident in (hub.start_invoke("f", "result", {"raw": raw}), hub.modern("tools/call",
                                                                                {"name": "invoke_command",
                                                                                 "arguments": {
                "server": "f", "command_name": "result", "parameters": {"raw": raw}}})):
            failure = hub.failed(ident)
            assert re.search(r"\bf\b", failure.text) and failure.code != "INVALID_PARAMETERS"

    @pytest.mark.parametrize("size", [0, 65535, 65536, 1 << 20, 9 << 20])
    def test_sizes(self, hub, size):
        """Case 004."""
        assert len(hub.invoke("f", "length", s="x" * size)["back"]) == size

    @pytest.mark.parametrize("data", [None, {"url": "https://a.example/x"}, "text", [1]])
    def test_an_error_of_the_server(self, hub, server, data):
        """G8.4, G9.2, case 144 (2): code, message and data can be read; the server keeps its process."""
        before = hub.invoke("f", "pid")
        error = {"code": -32042, "message": "login needed"}
        if data is not None:
            error["data"] = data
        failure = hub.invoke_fails("f", "rpc", raw=json.dumps(error))
        assert failure.text.startswith("Error: login needed") and "-32042" in failure.text
        assert data is None or all(word in failure.text for word in re.findall(r"\w+", json.dumps(data)))
        assert failure.result["_meta"]["lazyMcp"]["rpc"] == error
        after = hub.invoke("f", "pid")
        assert (after["pid"], after["calls"] - before["calls"], server.starts()) == (before["pid"], 2, 1)

    @pytest.mark.parametrize("raw", ["null", "7", "{}", '{"code":"x","message":7}',
                                     '{"code":1e3,"message":"' + "m" * 100000 + '"}'])
    def test_an_error_that_is_none(self, hub, raw):
        failure = hub.invoke_fails("f", "rpc", raw=raw)
        assert "f" in failure.text or "m" * 1000 in failure.text
        assert hub.ask("ping") == {}

    def test_an_answer_without_result_or_error(self, hub, server):
        """Case 144 (4)."""
        failure = hub.invoke_fails("f", "bare")
        assert "f" in failure.text and re.search("neither|without|no result", failure.text)
        assert "SERVER_CRASHED" != failure.code
        assert hub.invoke("f", "pid")["calls"] > 1 and server.starts() == 1

    def test_noise_between_answers(self, hub):
        """Case 001: what is no message does not reach the client."""
        for text in ("starting...\n", "{\n", "{}\n", "\n\n", "[]\n", "7\n", "\xff\xfe\n",
                     '{"jsonrpc":"2.0","id":"hub-999","result":{}}\n',
                     '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}\n',
                     '{"jsonrpc":"2.0","method":"nosuch"}\n'):
            assert hub.invoke("f", "raw", text=text)["content"][0]["text"] == "raw"
        assert hub.barrier() == []

    def test_three_errors_are_no_three_restarts(self, hub, server):
        """G9.2 in G14, beside a call that is open all the time."""
        held = hub.start_invoke("f", "late")
        for _ in range(3):
            hub.invoke_fails("f", "rpc", raw='{"code":-32602,"message":"invalid"}')
        assert hub.invoke("f", "flush") and hub.result(held) == {"late": True} and server.starts() == 1


def test_the_form_of_the_older_hub(box):
    """G8.2: `resultMode` json puts the whole result into a text; isError is outside too."""
    hub = start(box, [entry("f", fake(box))], resultMode="json")
    for kind, raw in KINDS.items():
        if kind in ("structured", "surrogate"):
            continue
        result = hub.invoke("f", "result", raw=raw)
        value = json.loads(raw)
        assert set(result) <= {"content", "isError"} and result.get("isError", False) == (value.get("isError") is True)
        assert len(result["content"]) == 1
        assert json.loads(result["content"][0]["text"], parse_constant=harness.no_json) == value
    text = hub.invoke("f", "result", raw=KINDS["structured"])["content"][0]["text"]
    assert "12345678901234567890" in text and '"n": 1.0' in text
    assert re.search(r'"e": 1e\+?400\b', text), "Infinity is no JSON"
    assert hub.invoke_fails("f", "rpc", raw='{"code":5,"message":"m"}').result["_meta"]["lazyMcp"]["rpc"]["code"] == 5


class TestParameters:
    """G8.3 and the issue's point 2: what models really send. `db` and `new` are started by no refused call."""

    @pytest.fixture(scope="class")
    def db(self, shelf):
        path = shelf.path / "db-tools"
        path.write_text(json.dumps({"tools": [{"name": "query", "inputSchema": {"type": "object",
                                                                                "properties": {"sql": {},
                                                                                               "limit": {}}}},
                                              {"name": "plain", "inputSchema": {"type": "object"}},
                                              {"name": "odd", "inputSchema": 7}]}))
        return fake(shelf, tools_file=str(path))

    @pytest.fixture(scope="class")
    def hub(self, shelf, db):
        before = start(shelf, [entry("db", db)])
        before.data("list_commands", server="db")
        before.finish()
        return start(shelf, [entry("db", db), entry("new", fake(shelf))])

    @pytest.mark.parametrize("arguments", [
        {"parameters": "sql=1"}, {"parameters": [1]}, {"parameters": "[1]"}, {"parameters": 7}, {"parameters": True},
        {"parameters": "7"},
        {"parameters": '"{}"'}, {"parameters": "{"}, {"parameters": "null"}, {"arguments": {"sql": 1}},
        {"sql": 1, "nosuch": 2},
        {"sql": 1, "parameters": {}}, {"sql": 1, "parameters": {"sql": 2}}, {"command_name": "plain", "sql": 1},
        {"command_name": "odd", "sql": 1},
        {"command_name": "unknown", "sql": 1}, {"server": "new", "sql": 1}, {"command_name": ""}, {"command_name": 7},
        {"command_name": None}],
        ids=json.dumps)
    def test_what_is_refused(self, hub, db, arguments):
        """Nothing is guessed and nothing is dropped; the right call is shown, and no server is started for it."""
        starts = db.starts()
        failure = hub.failure("invoke_command", **dict({"server": "db", "command_name": "query"}, **arguments))
        assert failure.code == "INVALID_PARAMETERS" and "parameters" in failure.text and "command_name" in failure.text
        stray = set(arguments) - {"server", "command_name", "parameters"}
        assert all(name in failure.text for name in stray)
        assert db.starts() == starts and hub.row("new")["state"] == "asleep"

    @pytest.mark.parametrize("text", ['{"sql":1,"sql":2}', '{"sql":1,"sql":1}', '{"sql":1,"\\u0073ql":2}',
                                      '{"a":{"b":1,"b":2}}', '{"a":[{"b":1,"b":2}]}'])
    def test_a_text_with_a_member_twice(self, hub, db, text):
        """Nobody knows which was meant."""
        before = len(db.lines())
        failure = hub.failure("invoke_command", server="db", command_name="query", parameters=text)
        assert failure.code == "INVALID_PARAMETERS" and "parameters" in failure.text and len(db.lines()) == before

    @pytest.mark.parametrize("depth", [90, 900, 50000])
    def test_a_text_that_is_deep(self, hub, depth):
        """It is passed on or refused, and the hub goes on."""
        text = '{"a":' + "[" * depth + "]" * depth + "}"
        found = hub.answer(hub.start_tool("invoke_command", server="new", command_name="length", parameters=text))
        assert found.get("result", {}).get("isError"), found  # `length` wants another argument
        assert hub.ask("ping") == {}

    @pytest.mark.parametrize("arguments, wanted, hinted", [
        ({"parameters": {"sql": "SELECT 1"}}, {"sql": "SELECT 1"}, False), ({"parameters": {}}, {}, False),
        ({}, {}, False),
        ({"parameters": None}, {}, False), ({"parameters": '{"sql":"SELECT 1"}'}, {"sql": "SELECT 1"}, True),
        ({"parameters": ' {"sql": {"deep": [1.0]}} \n'}, {"sql": {"deep": [1.0]}}, True),
        ({"parameters": ""}, {}, True),
        ({"parameters": "  "}, {}, True), ({"parameters": "{}"}, {}, True),
        ({"sql": "SELECT 1"}, {"sql": "SELECT 1"}, True),
        ({"sql": None, "limit": 3}, {"sql": None, "limit": 3}, True)], ids=json.dumps)
    def test_what_is_understood(self, hub, arguments, wanted, hinted):
        """Case 135: a text with an object, nothing, and flattened arguments that the schema knows; with a hint."""
        result = hub.tool("invoke_command", server="db", command_name="query", **arguments)
        assert (result["called"], result["arguments"]) == ("query", wanted)
        hint = result.get("_meta", {}).get("lazyMcp", {}).get("hint")
        assert bool(hint) == hinted and (not hinted or "parameters" in hint)

    def test_the_whole_call_as_a_text(self, hub):
        """Case 135: some APIs send `arguments` itself as a string."""
        text = json.dumps({"server": "db", "command_name": "query", "parameters": {"sql": 1}})
        assert hub.ask("tools/call", {"name": "invoke_command", "arguments": text})["arguments"] == {"sql": 1}

    def test_numbers_go_down_as_they_are_spelled(self, hub, db):
        hub.send(b'{"jsonrpc":"2.0","id":"n","method":"tools/call","params":{"name":"invoke_command","arguments":'
                 b'{"server":"db","command_name":"query","parameters":{"sql":[1.0,1e2,12345678901234567890]}}}}\n')
        assert b"[1.0, 100.0, 12345678901234567890]" in hub.raw_result("n")

    def test_a_hint_keeps_what_the_server_says(self, hub):
        """The hint joins the server's own `_meta`."""
        raw = '{"content":[],"_meta":{"own":1,"lazyMcp":{"x":2}}}'
        result = hub.tool("invoke_command", server="new", command_name="result", parameters=json.dumps({"raw": raw}))
        assert result["_meta"]["own"] == 1 and result["_meta"]["lazyMcp"]["hint"] and result["content"] == []


class TestPermissions:
    """G16.2: the last matching rule of the server, then of the file, then the server's default, then the file's."""

    @pytest.fixture(scope="class")
    def hub(self, shelf):
        servers = {name: fake(shelf) for name in ("plain", "shut", "mixed", "other")}
        return start(shelf, [
            entry("plain", servers["plain"]), entry("shut", servers["shut"], permissions={"default": "deny"}),
            entry("mixed", servers["mixed"], permissions={"default": "deny", "rules": [
                {"pattern": "*", "action": "deny", "message": "Ask first."}, {"pattern": "ec?o", "action": "allow"},
                {"pattern": "pid*", "action": "allow"},
                {"pattern": "*_secret", "action": "deny", "message": "Never."}]}),
            entry("other", servers["other"]), entry("broken", ["true"],
                                                    permissions={"rules": [{"pattern": "*", "action": "denny"}]})],
            permissions={"default": "allow", "rules": [{"pattern": "drop_*", "action": "deny",
                                                        "message": "No dropping."},
                                                       {"pattern": "echo", "action": "deny", "server": "oth*"},
                                                       {"pattern": "pid", "action": "allow", "server": "shut"}]})

    @pytest.mark.parametrize("server, command, message", [
        ("plain", "drop_table", "No dropping."), ("plain", "DROP_X", "No dropping."), ("shut", "echo", None),
        ("shut", "drop_x", "No dropping."),
        ("mixed", "sleep", "Ask first."), ("mixed", "pid_SECRET", "Never."), ("mixed", "xecho", "Ask first."),
        ("other", "echo", None)])
    def test_denied(self, hub, server, command, message):
        """G5.2: its own wording, and the mark that clients know."""
        failure = hub.invoke_fails(server, command)
        assert failure.code == "POLICY_BLOCKED" and failure.result["_meta"]["lazyMcpPolicy"] == "blocked"
        assert not failure.text.startswith("Error")
        assert (failure.text == message if message else command in failure.text)

    @pytest.mark.parametrize("server, command", [("plain", "echo"), ("plain", "xdrop_x"), ("mixed", "echo"),
                                                 ("mixed", "ECHO"), ("mixed", "pid"), ("other", "pid"),
                                                 ("shut", "pid")])
    def test_allowed(self, hub, server, command):
        assert not hub.invoke(server, command).get("isError")

    def test_a_wrong_rule_closes_its_server(self, hub):
        """G14: it fails closed."""
        failure = hub.invoke_fails("broken", "echo")
        assert failure.code == "INVALID_COMMAND" and "permissions" in failure.text
        assert hub.row("broken")["state"] == "error"

    def test_marks_in_the_list(self, hub):
        assert [one.get("denied", False) for one in hub.data("list_commands", server="shut")] == [True]
        assert [one.get("denied", False) for one in hub.data("list_commands", server="plain")] == [False]


def test_a_denied_call_starts_nothing(box):
    server = fake(box)
    hub = start(box, [entry("a", server, permissions={"default": "deny"})])
    for _ in range(3):
        assert hub.invoke_fails("a", "echo").code == "POLICY_BLOCKED"
    assert server.starts() == 0 and children(hub.pid) == []


# ------------------------------------------------ _meta, progress, cancel, limits (G4.3, G9.2, cases 012, 023, 024)

class TestUnderWay:
    @pytest.fixture(scope="class")
    def server(self, shelf):
        return fake(shelf)

    @pytest.fixture(scope="class")
    def hub(self, shelf, server):
        return start(shelf, [entry("f", server, requestTimeout=250)])

    def test_meta_goes_down(self, hub):
        """Case 138; what is between the client and the hub stays there, and no token is made up."""
        params = hub.invoke("f", "meta", meta={"example.com/x": [1.0, None], "traceparent": "00-1"}, a=1)["params"]
        assert params == {"name": "meta", "arguments": {"a": 1}, "_meta": {"example.com/x": [1.0, None],
                                                                           "traceparent": "00-1"}}
        assert "_meta" not in hub.invoke("f", "meta")["params"]
        ident = hub.modern("tools/call", {"name": "invoke_command", "arguments": {"server": "f",
                                                                                  "command_name": "meta"}}, {"k": "v"})
        assert hub.result(ident)["params"]["_meta"] == {"k": "v"}

    @pytest.mark.parametrize("token", ["mine", "", 7, 0, "hub-1"])
    def test_progress(self, hub, token):
        """protocol.md 3.4: the caller's own token above, a fresh one below; in order, before the answer."""
        ident = hub.start_invoke("f", "progress", {"n": 3}, {"progressToken": token})
        result = hub.result(ident)
        told = [hub.kept.pop(0) for _ in range(3)]
        assert [one["params"] for one in told] == [{"progressToken": token, "progress": n + 1, "total": 3,
                                                    "message": "step %d" % n} for n in range(3)]
        assert all(type(one["params"]["progressToken"]) is type(token) for one in told)
        assert result["token"] not in (None, token) and hub.kept == []

    def test_progress_of_two_calls_with_one_token_below_is_not_mixed_up(self, hub):
        idents = [hub.start_invoke("f", "progress", {"n": 2}, {"progressToken": token}) for token in ("one", "two")]
        results = [hub.result(ident)["token"] for ident in idents]
        tokens = [hub.kept.pop(0)["params"]["progressToken"] for _ in range(4)]
        assert tokens == ["one", "one", "two", "two"] and len(set(results)) == 2 and hub.kept == []

    def test_progress_that_nobody_asked_for(self, hub):
        text = "".join(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}) + "\n"
                       for params in ({"progressToken": "x", "progress": 1}, {"progress": 1}, [], None,
                                      {"progressToken": {}, "progress": 1}))
        assert hub.invoke("f", "raw", text=text) and hub.barrier() == []

    def test_cancel(self, hub, server):
        """G4.3: with the id that the server knows; no answer for the client, and the process stays."""
        pid = hub.invoke("f", "pid")["pid"]
        ident = hub.start_invoke("f", "hang", {"for": "cancel"})
        below = until(lambda: [one for one in server.lines() if one["method"] == "tools/call"
                               and one["params"]["arguments"] == {"for": "cancel"}])[0]["id"]
        hub.send(message("notifications/cancelled", params={"requestId": ident, "reason": "enough"}))
        until(lambda: [one for one in server.lines() if one["method"] == "notifications/cancelled"
                       and one["params"]["requestId"] == below])
        assert hub.invoke("f", "pid")["pid"] == pid and hub.barrier() == []

    def test_a_cancel_of_one_call_of_a_batch(self, hub, server):
        """2025-03-26: the others are answered, in their array."""
        hub.send([message("tools/call", "gone", {"name": "invoke_command", "arguments": {
            "server": "f", "command_name": "hang", "parameters": {"for": "batch"}}}), message("ping", "stays")])
        until(lambda: [one for one in server.lines() if (one.get("params") or {}).get("arguments") == {"for": "batch"}])
        hub.send(message("notifications/cancelled", params={"requestId": "gone"}))
        assert hub.read() == [{"jsonrpc": "2.0", "id": "stays", "result": {}}]

    def test_a_limit_that_is_reached(self, hub, server):
        """G9.2, case 023: whose limit it was, a cancel below, and the server stays as it is; others are not held up."""
        pid = hub.invoke("f", "pid")["pid"]
        ident = hub.start_invoke("f", "late")
        assert hub.invoke("f", "echo", x=1) == {"echo": {"x": 1}}
        failure = hub.failed(ident)
        assert failure.code == "SERVER_TIMEOUT" and "f " in failure.text and "0.25 s" in failure.text
        assert "requestTimeout" in failure.text
        below = [one["id"] for one in server.lines() if one["method"] == "tools/call"
                 and one["params"]["name"] == "late"][-1]
        until(lambda: [one for one in server.lines() if one["method"] == "notifications/cancelled"
                       and one["params"]["requestId"] == below])
        assert hub.invoke("f", "flush") == {"flushed": True}  # its late answer is nobody's
        assert hub.invoke("f", "pid")["pid"] == pid and hub.barrier() == [] and hub.row("f")["state"] == "live"

    @pytest.mark.slow
    def test_silence_is_what_counts(self, hub):
        """Case 023: each message of progress starts the limit anew; without one it would have been reached twice."""
        begin = time.monotonic()
        assert hub.invoke("f", "progress", meta={"progressToken": 1}, n=5, every=0.12)["token"]
        assert time.monotonic() - begin > 0.5
        failure = hub.failed(hub.start_invoke("f", "progress", {"n": 2, "hang": True}, {"progressToken": 2}))
        assert failure.code == "SERVER_TIMEOUT"
        assert [one["params"]["progressToken"] for one in hub.kept] == [1] * 5 + [2] * 2
        del hub.kept[:]

    def test_progress_without_a_token_of_the_client(self, hub):
        """The caller asked for none and gets none."""
        hub.invoke("f", "progress", n=2)
        assert hub.barrier() == []


def test_a_cancel_of_a_call_that_waits_for_the_start(box):
    """Case 012: it is never sent; the start serves the others."""
    gate = box.path / "gate"
    server = fake(box, gate=str(gate))
    hub = start(box, [entry("a", server)])
    ident = hub.start_invoke("a", "touch", {"n": 1})
    server.wait_for("start")
    hub.send(message("notifications/cancelled", params={"requestId": ident}))
    other = hub.start_invoke("a", "touch", {"n": 2})
    hub.barrier()
    gate.touch()
    assert hub.result(other) == {"done": True} and hub.barrier() == []
    assert [one["n"] for one in server.events("effect")] == [2] and server.starts() == 1


def test_the_limit_of_the_file_and_of_a_server(box):
    """G2.5, G2.8: the server's own wins."""
    hub = start(box, [entry("a", fake(box)), entry("b", fake(box), requestTimeout=61)], requestTimeout=83)
    assert "0.083 s" in hub.invoke_fails("a", "hang").text and "0.061 s" in hub.invoke_fails("b", "hang").text


# ------------------------------------------------------------------------------ G9: starts, ends and failures

def test_one_start_for_twenty_calls(box):
    """Case 017: one process, one handshake, the calls in their order."""
    gate = box.path / "gate"
    server = fake(box, gate=str(gate))
    hub = start(box, [entry("a", server)])
    idents = [hub.start_invoke("a", "pid", {"n": n}) for n in range(20)]
    server.wait_for("start")
    hub.barrier()
    gate.touch()
    assert {hub.result(ident)["pid"] for ident in idents} == {server.pid()}
    assert server.starts() == 1 and server.methods()[:2] == ["initialize", "notifications/initialized"]
    calls = [one["params"]["arguments"]["n"] for one in server.lines() if one["method"] == "tools/call"]
    assert calls == list(range(20)) and server.methods().count("initialize") == 1


def test_what_a_server_sees(box):
    """G3.6, G9.1, G2.8, I16: environment, folder and handshake."""
    (box.path / "work").mkdir()
    server = fake(box)
    hub = start(box, [entry("a", server, env={"ONE": "${BASE}-x", "TWO": "${NOSUCH}", "THREE": "plain", "HOME": "/tmp"},
                            cwd=str(box.path / "work"))],
                env=box.env(BASE="base", OTHER="other"), capabilities={"roots": {"listChanged": True},
                                                                       "elicitation": {}, "experimental": {"x": 1}})
    found = dict(item.partition("=")[::2] for item in hub.invoke("a", "environ")["environ"])
    assert (found["ONE"], found["TWO"], found["THREE"], found["HOME"], found["OTHER"]) == ("base-x", "${NOSUCH}",
                                                                                           "plain", "/tmp", "other")
    assert re.match(r"[0-9a-f]{64}$", found["MCP_LAZY_HUB"])
    status = hub.invoke("a", "status")
    assert status["cwd"] == str(box.path / "work") and status["pgid"] == status["pid"] == server.pid()
    assert len(status["fds"]) == 3 and status["flags"] == [0, 0, 0]
    params = server.lines()[0]["params"]
    assert params["protocolVersion"] == "2025-06-18" and params["clientInfo"]["name"] == "mcp-lazy-hub"
    assert params["capabilities"] == {"roots": {"listChanged": True}, "elicitation": {}}
    assert any("NOSUCH" in one["message"] for one in hub.log())


class TestFailures:
    """What cannot be started: a reason per server, and the hub goes on (G9.3, G9.5 in G14, case 144)."""

    @pytest.fixture(scope="class")
    def hub(self, shelf):
        def dies(text, status=3):
            return ["sh", "-c", "printf '%s\\n' \"$0\" >&2; exit " + str(status), text]
        (shelf.path / "no-program").write_text("not a program")
        return start(shelf, [
            entry("missing", ["/nonexistent/x", "--key=abcd1234"]), entry("unknown", ["no-such-program-here"]),
            entry("folder", [str(shelf.path)]), entry("one text", "npx-x -y s --api-key k3y-k3y"),
            entry("one path", "/nonexistent/My Server/run"),
            entry("plain", [str(shelf.path / "no-program")]), entry("nowhere", ["true"], cwd="/nonexistent/folder"),
            entry("variable", dies("Error: environment variable API_KEY is required")),
            entry("login", dies("401 Unauthorized")),
            entry("module", dies("Error: Cannot find module 'x'")), entry("command",
                                                                          dies("sh: 1: foo: command not found", 127)),
            entry("port", dies("listen EADDRINUSE: address already in use :::3000")),
            entry("plainly", dies("something broke", 9)),
            entry("silent", ["true"]), entry("signal", ["sh", "-c", "kill -SEGV $$"]),
            entry("secret", dies("bad token s3cr3t-value-77"), env={"KEY": "s3cr3t-value-77"}),
            entry("hangs", ["sleep", "600"], startTimeout=120), entry("talks",
                                                                      ["sh", "-c",
                                                                       "echo starting up >&2; exec sleep 600"],
                                                                      startTimeout=120),
            entry("refuses", fake(shelf, refuse={"initialize": {"code": -32000, "message": "go away"}})),
            entry("odd", fake(shelf, init_raw="{}")), entry("odder", fake(shelf, init_raw="[]")),
            entry("babbles", ["sh", "-c", "while :; do echo hello; sleep 0.01; done"], startTimeout=120),
            entry("closes", ["sh", "-c", "exec 0<&- 1>&-; exec sleep 600"], startTimeout=5000),
            entry("good", fake(shelf))])

    @pytest.mark.parametrize("name, code, words", [
        ("missing", "INVALID_COMMAND", ["/nonexistent/x"]), ("unknown", "INVALID_COMMAND", ["no-such-program-here"]),
        ("one text", "INVALID_COMMAND", ['"command": "npx-x", "args": ["-y", "s", "--api-key", "***"]']),
        ("one path", "INVALID_COMMAND", ["/nonexistent/My Server/run: no such file"]),
        ("folder", "INVALID_COMMAND", []), ("plain", "INVALID_COMMAND", []), ("nowhere", None, ["/nonexistent/folder"]),
        ("variable", "MISSING_ENV_VAR", ["API_KEY"]), ("login", "AUTH_FAILED", ["401 Unauthorized"]),
        ("module", "INVALID_COMMAND", ["Cannot find module"]),
        ("command", "INVALID_COMMAND", ["foo: command not found"]), ("port", "SERVER_CRASHED", ["3000"]),
        ("plainly", "SERVER_CRASHED", ["9", "something broke"]),
        ("silent", "SERVER_CRASHED", []), ("signal", "SERVER_CRASHED", ["SIGSEGV"]), ("secret", None, ["bad token"]),
        ("hangs", "SERVER_TIMEOUT", ["0.12 s", "startTimeout"]), ("talks", "SERVER_TIMEOUT", ["0.12 s", "starting up"]),
        ("refuses", "SERVER_UNREACHABLE", ["go away"]), ("odd", "SERVER_UNREACHABLE", ["protocolVersion"]),
        ("odder", "SERVER_UNREACHABLE", []),
        ("babbles", "SERVER_TIMEOUT", ["0.12 s"]), ("closes", None, [])])
    def test_why_it_does_not_start(self, hub, name, code, words):
        failure = hub.invoke_fails(name, "x")
        assert name in failure.text and all(word in failure.text for word in words), failure.text
        assert failure.code == code or code is None
        assert "abcd1234" not in failure.text and "s3cr3t" not in failure.text
        assert "failing" == hub.row(name)["state"] and hub.row(name)["healthy"] is False
        assert hub.invoke("good", "echo", x=name) == {"echo": {"x": name}}

    def test_nothing_of_them_is_left(self, hub):
        """Case 034: after a failed start its group is dead, before the answer; nothing of it stays (032, 050)."""
        servers = hub.servers()
        assert [harness.proc_stat(pid)["state"] for pid in servers].count("Z") == 0
        assert len(servers) == 1 and len(fds(hub.pid)) < 20, fds(hub.pid)
        assert "s3cr3t" not in hub.stderr() and "abcd1234" not in hub.stderr()


def test_descriptors_come_back(box):
    """Case 050: forty failed starts of every kind leave what was there before."""
    gone = [entry("g%d" % n, ["/nonexistent/x"]) for n in range(20)]
    dead = [entry("d%d" % n, ["sh", "-c", "exit 1"]) for n in range(20)]
    hub = start(box, gone + dead)
    hub.invoke_fails("g0", "x")
    hub.invoke_fails("d0", "x")
    before = len(fds(hub.pid))
    for name in [one["name"] for one in gone[1:] + dead[1:]]:
        assert hub.invoke_fails(name, "x").code in ("INVALID_COMMAND", "SERVER_CRASHED")
    until(lambda: len(fds(hub.pid)) <= before, what="the descriptors to come back")
    assert hub.servers() == []


@pytest.mark.parametrize("how, words", [("exit9", ["9"]), ("SIGKILL", ["SIGKILL"]), ("exit0", ["0"])])
def test_a_server_that_dies_in_a_call(box, how, words):
    """Cases 010, 024, 144 (3): server, command, how it ended, the end of its stderr; sent once."""
    server = fake(box)
    hub = start(box, [entry("f", server, env={"KEY": "s3cr3t-value-77"})])
    first = hub.invoke("f", "pid")["pid"]
    other = hub.start_invoke("f", "hang")
    failure = hub.failed(hub.start_invoke("f", "die",
                                          {"how": how, "stderr": "x" * 70000 + "\nout of memory s3cr3t-value-77\n"}))
    for word in words + ["f", "die", "out of memory"]:
        assert word in failure.text, failure.text
    assert failure.code == "SERVER_CRASHED" and "s3cr3t" not in failure.text and "***" in failure.text
    assert len(failure.text) < 3000
    assert "hang" in hub.failed(other).text and "out of memory" in hub.row("f").get("error", "")
    assert hub.invoke("f", "pid")["pid"] != first and server.starts() == 2
    assert [one["params"]["name"] for one in server.lines() if one["method"] == "tools/call"].count("die") == 1
    assert hub.row("f")["state"] == "live" and "error" not in hub.row("f")


def test_a_server_that_ends_after_each_call(box):
    """A10.13: what counts for the backoff is an end before the handshake; a server that answered may go."""
    server = fake(box)
    hub = start(box, [entry("f", server)])
    for n in range(6):
        result = hub.invoke("f", "die", how="exit0", answer="answer %d" % n)
        assert result["content"][0]["text"] == "answer %d" % n
        until(lambda: hub.row("f")["state"] != "live", what="its end to be seen")  # a call that is sent before is lost
        row = hub.row("f")
        assert row["state"] == "asleep" and "error" not in row and row["healthy"] is not False, row
    assert server.starts() == 6


@pytest.mark.parametrize("how", ["exit3", "SIGKILL"])
def test_another_end_between_calls_is_a_failure(box, how):
    """Only status 0 is an end that was meant."""
    hub = start(box, [entry("f", fake(box))])
    hub.invoke("f", "die", how=how, answer="the last")
    row = hub.until_state("f", "failing", "asleep")
    assert row["state"] == "failing" and how[-1:] in row["error"]
    assert hub.invoke("f", "echo", x=1) == {"echo": {"x": 1}}


def test_what_a_crash_in_a_call_means(box):
    """Case 010: what was open may have been done, and the next call starts the server anew."""
    hub = start(box, [entry("f", fake(box))])
    failure = hub.invoke_fails("f", "touch", n=1, how="exit9")
    advice = failure.text.split("\n\n")[-1]
    assert "Suggestion: " in advice and "may have been carried out" in advice and "the next call starts it anew" in advice


def test_a_server_that_somebody_kills(box):
    """Case 010: the next call starts it anew; the one that is sent into its death says so."""
    server = fake(box)
    hub = start(box, [entry("f", server)])
    for _ in range(2):
        pid = hub.invoke("f", "pid")["pid"]
        os.kill(pid, signal.SIGKILL)
        results = [hub.result(hub.start_invoke("f", "pid")) for _ in range(2)]
        assert results[1].get("pid", pid) != pid and (results[0].get("isError") or results[0]["pid"] != pid)


def test_an_answer_before_the_death(box):
    """Case 010: what was written is delivered."""
    hub = start(box, [entry("f", fake(box))])
    result = hub.invoke("f", "die", how="exit1", answer="last words")
    assert result["content"][0]["text"] == "last words"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deaf", "closeout"])
def test_a_server_that_closes_a_pipe_and_stays(box, how):
    """G9.2: an input that is not taken, or an output that ended, is an end; the old one goes first."""
    server = fake(box)
    hub = start(box, [entry("f", server, requestTimeout=2000)])
    first = hub.invoke("f", "pid")["pid"]
    hub.start_invoke("f", how)
    until(lambda: not os.path.exists("/proc/%d/fd/%d" % (first, 0 if how == "deaf" else 1)),
          what="its pipe to be closed")
    found = until(lambda: [one for one in [hub.result(hub.start_invoke("f", "pid"))] if not one.get("isError")], 10,
                  "a new process")[0]
    assert found["pid"] != first and not alive(first)


def test_a_call_is_never_sent_twice(box):
    """G8.5, I33: however it fails, its effect is there once."""
    server = fake(box)
    hub = start(box, [entry("f", server, requestTimeout=100)])
    hub.invoke_fails("f", "touch", n=1, how="exit1")
    hub.invoke_fails("f", "touch", n=2, how="SIGKILL")
    hub.invoke_fails("f", "hang")
    assert [one["n"] for one in server.events("effect")] == [1, 2] and server.methods().count("tools/call") == 3


@pytest.mark.slow
def test_backoff(box):
    """A10.13: from the third failure on the next try is put off; until then callers get the last reason at once."""
    server = fake(box, die="exit3", stderr="boom\n")
    hub = start(box, [entry("f", server)])
    for n in range(3):
        assert "boom" in hub.invoke_fails("f", "echo").text
    row = hub.row("f")
    assert (server.starts(), row["state"], row["healthy"]) == (3, "failing", False) and 0 < row["next_try_ms"] <= 500
    failure = hub.invoke_fails("f", "echo")
    assert server.starts() == 3 and "boom" in failure.text and "next_try_ms" in json.dumps(failure.result)
    assert server.starts() == 3 and "boom" in hub.failure("list_commands", server="f").text
    server.set(die=None)
    begin = time.monotonic()
    until(lambda: not hub.result(hub.start_invoke("f", "echo")).get("isError"), what="the next try")
    assert server.starts() == 4 and time.monotonic() - begin < 2 and hub.row("f")["state"] == "live"
    assert "next_try_ms" not in hub.row("f")


@pytest.mark.slow
def test_an_input_that_is_not_read(box):
    """Case 007: a server that takes nothing holds up nobody else, and the hub does not turn in circles."""
    stuck, good = fake(box), fake(box)
    hub = start(box, [entry("stuck", stuck, requestTimeout=1500), entry("good", good)])
    first = hub.start_invoke("stuck", "sleep", {"s": 1.0})
    idents = [hub.start_invoke("stuck", "length", {"s": "x" * 300000}) for _ in range(5)]
    for n in range(20):
        assert hub.invoke("good", "echo", n=n) == {"echo": {"n": n}}
    used = harness.cpu_s(hub.pid)
    assert hub.result(first) == {"slept": 1.0} and harness.cpu_s(hub.pid) - used < 0.5
    assert all(hub.result(ident)["length"] == 300000 for ident in idents)


def test_floods(box):
    """Cases 001, 002, G9.1: a server's stderr and its noise hold up nothing."""
    server = fake(box)
    server.set(flood=400000, say="banner\n" * 1000, stderr="x" * 300000)
    hub = start(box, [entry("f", server)])
    for n in range(5):
        assert hub.invoke("f", "echo", n=n) == {"echo": {"n": n}}
    assert harness.memory_kib(hub.pid) < 60 * 1024


@pytest.mark.slow
def test_idle_stop(box):
    """Cases 018, 020, G10.3 in G14: not during a call; the next one starts it again, unseen."""
    server = fake(box)
    hub = start(box, [entry("a", server, idleStop=150)])
    first = hub.invoke("a", "pid")["pid"]
    assert hub.invoke("a", "sleep", s=0.4) == {"slept": 0.4} and alive(first)
    until(lambda: not alive(first), what="the idle stop")
    hub.until_state("a", "asleep")
    assert [one["ev"] for one in server.events() if one["ev"] in ("eof", "signal", "end")] == ["eof",
        "end"]  # case 031: no signal
    assert hub.invoke("a", "pid")["pid"] != first and server.starts() == 2
    until(lambda: hub.row("a")["state"] == "asleep" and hub.servers() == [], what="the second stop")
    assert [one["method"] for one in server.lines()].count("initialize") == 2 and hub.kept == []


@pytest.mark.slow
def test_a_call_during_an_idle_stop(box):
    """Case 034: it waits for the end of the old process and gets a new one; never two at a time."""
    server = fake(box, ignore_eof=True, on_term=0.3)
    hub = start(box, [entry("a", server, idleStop=50, stopGrace=3000)])
    first = hub.invoke("a", "pid")["pid"]
    server.wait_for("eof")
    assert hub.row("a")["state"] == "stopping"
    found = hub.invoke("a", "pid")["pid"]
    assert found != first and not alive(first) and server.events("saved")


def test_where_stderr_goes(box):
    """G2.8: into a file, or to where the hub's own goes; an error tells its end all the same."""
    path = box.path / "server.log"
    hub = start(box, [entry("file", fake(box, stderr="first words\n"), stderr=str(path)),
                      entry("through", fake(box, stderr="other words\n"), stderr="inherit"),
                      entry("dead", ["sh", "-c", "echo last words >&2; exit 1"], stderr=str(path)),
                      entry("quiet", fake(box, stderr="hidden words\n"))])
    for name in ("file", "through", "quiet"):
        assert hub.invoke(name, "echo") == {"echo": {}}
    assert "last words" in hub.invoke_fails("dead", "x").text
    assert path.read_text() == "first words\nlast words\n" and path.stat().st_mode & 0o077 == 0
    text = hub.stderr()
    assert "other words\n" in text and "first words" not in text and "hidden words" not in text


def test_revisions_of_servers(box):
    """I16: another legacy version is taken, and a server that speaks only 2026-07-28 is spoken to in that."""
    box.server = str(harness.ROOT / "tests" / "servers" / "modern.py")
    modern = box.fake(era="modern")
    hub = start(box, [entry("old", fake(box, versions=["2024-11-05"])), entry("modern", modern)])
    assert hub.invoke("old", "echo", x=1) == {"echo": {"x": 1}} and len(hub.data("list_commands", server="old")) == 1
    assert hub.data("list_commands", server="modern") and not hub.invoke("modern", "echo", x=1).get("isError")


# -------------------------------------------------------------------------- what servers ask (G4.3, protocol.md 3.4)

class TestServersRequests:
    @pytest.fixture(scope="class")
    def hub(self, shelf):
        return start(shelf, [entry("a", fake(shelf)), entry("b", fake(shelf, early="ping", early_waits=True))],
                     capabilities={"roots": {}, "sampling": {}})

    def start_asking(self, hub, method, ident="q-1", params=None):
        """Our call, and the request that it makes the server send to us."""
        call = hub.start_invoke("a", "client", {"id": ident, "method": method, "params": params or {}})
        return call, hub.until_message(lambda found: found.get("method") == method)

    @pytest.mark.parametrize("ident", ["q-1", 1, 0, "mcp-lazy-hub-1"])
    def test_a_declared_one_is_handed_on(self, hub, ident):
        """Case 009: ids of both sides have nothing to do with each other; params and answer are the peers' own."""
        call, request = self.start_asking(hub, "sampling/createMessage", ident, {"messages": [], "maxTokens": 1.0})
        assert request["params"] == {"messages": [], "maxTokens": 1.0}
        hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {"role": "assistant", "x": [1, None]}})
        assert hub.result(call)["answer"] == {"jsonrpc": "2.0", "id": ident,
                                              "result": {"role": "assistant", "x": [1, None]}}

    def test_an_error_of_the_client(self, hub):
        call, request = self.start_asking(hub, "roots/list")
        hub.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "not now", "data": {"k": 1}}})
        assert hub.result(call)["answer"]["error"] == {"code": -1, "message": "not now", "data": {"k": 1}}

    def test_two_at_once_in_the_other_order(self, hub):
        calls = [self.start_asking(hub, "roots/list", "x%d" % n) for n in range(2)]
        for n in (1, 0):
            hub.send({"jsonrpc": "2.0", "id": calls[n][1]["id"], "result": {"roots": [n]}})
            assert hub.result(calls[n][0])["answer"]["result"] == {"roots": [n]}

    def test_an_undeclared_one_is_refused(self, hub):
        for method in ("elicitation/create", "nosuch/method", "tools/list"):
            result = hub.invoke("a", "client", id="q", method=method)
            assert result["answer"]["error"]["code"] == -32601
        assert hub.invoke("a", "client", id="p", method="ping")["answer"]["result"] == {} and hub.kept == []

    def test_a_ping_during_the_handshake(self, hub):
        """K3, A7: answered by the hub, or the handshake would never end."""
        assert hub.invoke("b", "echo", x=1) == {"echo": {"x": 1}}


def test_a_client_that_declared_nothing(box):
    """`roots/list` has the answer none, the rest is refused."""
    hub = start(box, [entry("a", fake(box))])
    assert hub.invoke("a", "client", id=1, method="roots/list")["answer"]["result"] == {"roots": []}
    for method in ("sampling/createMessage", "elicitation/create"):
        assert hub.invoke("a", "client", id=1, method=method)["answer"]["error"]["code"] == -32601


@pytest.mark.slow
def test_a_server_that_waits_for_the_client_is_not_silent(box):
    """G9.2 counts the silence of the server: while it waits for the client (a person, say) it is not silent."""
    hub = start(box, [entry("a", fake(box), requestTimeout=150)], capabilities={"elicitation": {}})
    call = hub.start_invoke("a", "client", {"id": 1, "method": "elicitation/create"})
    request = hub.until_message(lambda found: found.get("method") == "elicitation/create")
    end = time.monotonic() + 0.4
    until(lambda: time.monotonic() > end)
    hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept"}})
    assert hub.result(call)["answer"]["result"] == {"action": "accept"}


@pytest.mark.slow
def test_many_calls_that_wait_for_the_client(box):
    """H23: however many calls are open, what the client says next is read: it may free the others."""
    server = fake(box)
    hub = start(box, [entry("a", server)])
    idents = [hub.start_invoke("a", "late") for _ in range(400)]
    server.wait_method("tools/call", 200)
    hub.barrier()
    assert hub.invoke("a", "flush") == {"flushed": True}
    assert all(hub.result(ident) == {"late": True} for ident in idents)


# ------------------------------------------------------------------------------ prompts and resources (G16.3, H47)

class TestPrompts:
    @pytest.fixture(scope="class")
    def hub(self, shelf):
        return start(shelf, [
            entry("a:b\\c", fake(shelf, prompt_names=["p", "x::y", "\\", "a:b"]), forwardPrompts=True),
            entry("two", fake(shelf, prompt_names=["p"]), forwardPrompts=True),
            entry("gone", ["/nonexistent/x"], forwardPrompts=True),
            entry("none", fake(shelf), forwardPrompts=True), entry("hidden", fake(shelf, prompt_names=["h"]))],
                     shaken=False)

    def test_it_is_announced(self, hub):
        assert hub.handshake()["capabilities"]["prompts"] == {}

    def test_the_list(self, hub):
        """`\\` and `:` are escaped in both parts; who fails is left out and logged."""
        names = [one["name"] for one in hub.ask("prompts/list")["prompts"]]
        assert names == ["a\\:b\\\\c::p", "a\\:b\\\\c::x\\:\\:y", "a\\:b\\\\c::\\\\", "a\\:b\\\\c::a\\:b", "two::p"]
        assert hub.ask("prompts/list")["prompts"][0]["arguments"] == [{"name": "who"}]
        assert any(one.get("event") == "prompts_list_failed" and one.get("server") == "gone" for one in hub.log())

    def test_one_of_them(self, hub):
        for name in ["p", "x::y", "\\", "a:b"]:
            shown = "a\\:b\\\\c::" + name.replace("\\", "\\\\").replace(":", "\\:")
            result = hub.ask("prompts/get", {"name": shown, "arguments": {"who": "me"}})
            assert result == {"messages": [], "asked": {"name": name, "arguments": {"who": "me"}}}

    def test_an_unknown_one(self, hub):
        for name in ("p", "nope::p", "hidden::h", "", "::", "two:p", 7, None, "\\"):
            assert hub.error(hub.request("prompts/get", {"name": name}))["code"] == -32602
        assert "/nonexistent/x" in hub.error(hub.request("prompts/get", {"name": "gone::p"}))["message"]

    def test_a_modern_client(self, hub):
        result = hub.result(hub.modern("prompts/list"))
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
        got = hub.result(hub.modern("prompts/get", {"name": "two::p"}))
        assert got["resultType"] == "complete" and got["asked"] == {"name": "p"}


def test_resources(box):
    """H47, opt-in: what is listed can be read, and goes to its own server with its own URI."""
    hub = start(box, [entry("a:1", fake(box, resource_uris=["file:///x y", "mem://::a"])),
                      entry("b", fake(box, resource_uris=["mem://b"])),
                      entry("gone", ["/nonexistent/x"])], resources=True, shaken=False)
    assert hub.handshake()["capabilities"]["resources"] == {}
    listed = [one["uri"] for one in hub.ask("resources/list")["resources"]]
    assert len(listed) == len(set(listed)) == 3
    assert [hub.ask("resources/read", {"uri": uri})["asked"]["uri"] for uri in listed] == ["file:///x y", "mem://::a",
                                                                                           "mem://b"]
    templates = [one["uriTemplate"] for one in hub.ask("resources/templates/list")["resourceTemplates"]]
    assert len(templates) == 3 and all(one.endswith("{x}") for one in templates)
    assert hub.ask("resources/read", {"uri": templates[2].replace("{x}", "7")})["asked"]["uri"] == "mem://b7"
    for uri in ("mem://b", "", 7, None, "hub+nope::x"):
        assert "error" in hub.answer(hub.request("resources/read", {"uri": uri}))
    assert hub.ask("ping") == {}


FORWARDED = ("prompts/list", "resources/list", "resources/templates/list")


def forwarding(box, *servers, **top):
    """A hub that forwards prompts and resources of all servers."""
    return start(box, [entry("s%d" % n, server, forwardPrompts=True) for n, server in enumerate(servers)],
                 resources=True, **top)


def counts(hub):
    return [len(next(iter(value for name, value in hub.ask(method).items() if isinstance(value, list))))
            for method in FORWARDED]


class TestForwardedLists:
    """G10.1, case 133: clients ask for them when they open, and that wakes no server whose lists are known."""

    def test_a_second_hub_starts_nothing(self, box):
        server = fake(box, prompt_names=["p"], resource_uris=["mem://a", "mem://b"])
        hub = forwarding(box, server)
        assert counts(hub) == [1, 2, 2] and server.starts() == 1
        hub.finish()
        hub = forwarding(box, server)
        assert counts(hub) == [1, 2, 2] and server.starts() == 1 and children(hub.pid) == []
        assert hub.ask("prompts/get", {"name": "s0::p"})["asked"] == {"name": "p"} and server.starts() == 2

    def test_a_check_records_them(self, box):
        server = fake(box, prompt_names=["p"], resource_uris=["mem://a"])
        path = config_file(box, [entry("s0", server, forwardPrompts=True)], resources=True)
        assert box.run("hub", "check", "--config", path)[0] == 0 and server.starts() == 1
        hub = start_at(box, path)
        assert counts(hub) == [1, 1, 1] and server.starts() == 1

    def test_a_server_that_promises_none(self, box):
        """Once its capabilities are known, it is not started for what it does not have."""
        server = fake(box)
        hub = start(box, [entry("s0", server)])
        hub.data("list_commands", server="s0")
        hub.finish()
        hub = forwarding(box, server)
        assert counts(hub) == [0, 0, 0] and server.starts() == 1

    def test_one_that_hangs_in_its_start(self, box):
        """The others' lists come at its requestTimeout; its start goes on."""
        hub = forwarding(box, fake(box, prompt_names=["p"]), fake(box, hang_at=["initialize"]), requestTimeout=500)
        begun = time.monotonic()
        assert [one["name"] for one in hub.ask("prompts/list")["prompts"]] == ["s0::p"]
        assert time.monotonic() - begun < 5 and hub.row("s1")["state"] == "starting"

    def test_a_list_that_changes(self, box):
        """Asked for again when the server says so."""
        server = fake(box, prompt_names=["p"])
        hub = forwarding(box, server)
        assert counts(hub)[0] == 1 and counts(hub)[0] == 1
        asked_before = server.methods().count("prompts/list")
        hub.invoke("s0", "notify", method="notifications/prompts/list_changed")
        until(lambda: counts(hub)[0] == 1 and server.methods().count("prompts/list") > asked_before,
              what="the list to be asked for again")


def test_tools_that_changed_are_asked_for_at_once(box):
    """Case 060: a burst is one look; whoever asks behind the news is not told what is old."""
    server = fake(box, tools=1)
    hub = start(box, [entry("a", server)])
    assert len(hub.data("list_commands", server="a")) == 1
    for n in range(5):
        hub.invoke("a", "grow", by=1, announce=3)
        assert len(hub.data("list_commands", server="a")) == n + 2


class TestPassedOn:
    """What the client says goes on to the server that it is for."""

    @pytest.mark.parametrize("roots", [{"listChanged": True}, {}, {"listChanged": False}])
    def test_roots_that_changed(self, box, roots):
        server = fake(box)
        hub = start(box, [entry("a", server), entry("asleep", fake(box))], capabilities={"roots": roots})
        hub.invoke("a", "echo")
        hub.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        hub.invoke("a", "echo")
        assert server.methods().count("notifications/roots/list_changed") == (roots.get("listChanged") is True)

    @pytest.mark.parametrize("reason", ["no longer \u201cneeded\u201d", None, 7])
    def test_the_reason_of_a_cancel(self, box, reason):
        server = fake(box)
        hub = start(box, [entry("a", server)])
        ident = hub.start_invoke("a", "late")
        until(lambda: [one for one in server.lines() if one["method"] == "tools/call"], what="the call")
        told = {"requestId": ident} if reason is None else {"requestId": ident, "reason": reason}
        hub.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
        heard = until(lambda: [one["params"] for one in server.lines() if one["method"] == "notifications/cancelled"],
                      what="the cancel")[0]
        assert heard.get("reason") == (reason if isinstance(reason, str) else None)


class TestTheEndOfTheInput:
    def test_of_a_client_that_does_not_read(self, box):
        """Case 030: more waits for it than is kept, so it is not read; that it went is seen all the same."""
        server = fake(box)
        hub = start(box, [entry("a", server)])
        hub.invoke("a", "echo")
        hub.start_invoke("a", "size", {"n": 40 << 20})
        until(lambda: harness.memory_kib(hub.pid) > 60 * 1024, what="the answer to wait")
        hub.close()
        hub.process.wait(harness.WAIT_S)
        assert not alive(server.pid())
        box.relays.remove(hub)  # which would read the rest of a line that is cut

    def test_a_call_that_takes_longer_is_answered(self, box):
        """Its two seconds are over: a last error, or a script would wait for it."""
        hub = start(box, [entry("a", fake(box))])
        ident = hub.start_invoke("a", "late")
        until(lambda: hub.row("a")["state"] == "live", what="the call")
        hub.close()
        assert hub.error(ident)["code"] == -32603 and hub.wait() == 0


def test_calls_around_an_idle_stop(box):
    """G9.6: one that comes in the very moment waits for the next process; none is lost."""
    server = fake(box)
    hub = start(box, [entry("a", server, idleStop=30)])
    for n in range(60):
        assert hub.invoke("a", "echo", n=n) == {"echo": {"n": n}}
        time.sleep(0.024 + n % 12 / 1000)  # around the limit; not to wait for anything
    assert server.starts() > 1


def test_secrets_at_the_cut_of_a_text(box):
    """Case 195: what is shown of stdout and stderr is cut, and a secret that the cut goes through is hidden."""
    secret = "SECRETabcdefghijklmnopqrstuvwxyzSECRET"
    code = ("import os, sys; s = os.environ['K']; sys.stdout.write('x' * 50 + s * 3000 + chr(10)); sys.stdout.flush(); "
            "sys.stderr.write(s * 4000); sys.exit(1)")
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", code], env={"K": secret})])
    told = hub.failure("list_commands", server="a").text + json.dumps(hub.rows()) + hub.stderr()
    assert "xxxx" in told and not any(secret[at:at + 5] in told.replace("SECRET_", "") for at in range(len(secret) - 4))


REFUSING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize" and message["params"]["protocolVersion"] not in %r:
        answer = {"error": {"code": -32602, "message": "Unsupported protocol version",
                            "data": {"supported": %r, "requested": "x"}}}
    elif message["method"] == "initialize":
        answer = {"result": {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                             "serverInfo": {"name": "s", "version": "1"}}}
    elif message["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "t", "inputSchema": {}}]}}
    else:
        answer = {"error": {"code": -32601, "message": "no"}}
    if "id" in message:
        print(json.dumps(dict(answer, jsonrpc="2.0", id=message["id"])), flush=True)
"""


def test_a_server_that_refuses_the_version_and_names_its_own(box):
    """I16: the newest that both speak is taken; where there is none, the text names what the server has."""
    def server(*versions):
        return ["python3", "-I", "-S", "-c", REFUSING % (versions, list(versions))]
    hub = start(box, [entry("old", server("2024-11-05", "2025-03-26")), entry("other", server("1999-01-01"))])
    assert [one["name"] for one in hub.data("list_commands", server="old")] == ["t"]
    failure = hub.failure("list_commands", server="other")
    assert "-32602" in failure.text and "1999-01-01" in failure.text and "the hub speaks" in failure.text


def test_a_folder_that_is_not_there(box):
    """G2.8: told before anything is started."""
    hub = start(box, [entry("a", fake(box), cwd=str(box.path / "none"))])
    failure = hub.failure("list_commands", server="a")
    assert failure.code == "INVALID_COMMAND" and "cwd" in failure.text and "edit" in failure.text


@pytest.mark.parametrize("how, words", [
    ("import os, time; os.close(1); time.sleep(60)", "closed its output"),
    ("print('x' * (65 << 20), flush=True); import time; time.sleep(60)", "longer than allowed")])
def test_a_start_whose_stdout_is_of_no_use(box, how, words):
    """It is not its slowness, so startTimeout is no advice."""
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", how])])
    failure = hub.failure("list_commands", server="a")
    assert words in failure.text and "startTimeout" not in failure.text and "stdout" in failure.text


def test_an_answer_in_several_lines(box):
    """Whose fault it is: the server's, whose lines are no messages."""
    hub = start(box, [entry("a", fake(box), requestTimeout=300)])
    hub.invoke("a", "echo")
    ident = hub.start_invoke("a", "hang")
    hub.invoke("a", "raw", text='{\n  "jsonrpc": "2.0",\n  "id": 1\n}\n')
    text = hub.failed(ident).text
    assert "4 lines" in text and "no JSON-RPC" in text and "a line of its own" in text


LINKS = ('{"content":[{"type":"text","text":"file:///x"},'
         '{"type":"resource_link","uri":"file:///a b","name":"x","n":1.0},'
         '{"type":"resource","resource":{"uri":"mem://y","text":"t"}}],'
         '"structuredContent":{"e":1e400,"uri":"mem://z"}}')


class TestLinks:
    """A resource_link in a result is read through the hub, where that is on."""

    @pytest.fixture(scope="class")
    def hub(self, shelf):
        return start(shelf, [entry("a:1", fake(shelf, resource_uris=["mem://x"]))], resources=True)

    @pytest.mark.parametrize("modern", [True, False])
    def test_it_can_be_read(self, hub, modern):
        params = {"name": "invoke_command", "arguments": {"server": "a:1", "command_name": "result",
                                                          "parameters": {"raw": LINKS}}}
        raw = hub.raw_result(hub.modern("tools/call", params) if modern else hub.request("tools/call", params))
        result, before = json.loads(raw), json.loads(LINKS)
        uri = result["content"][1]["uri"]
        assert uri == "hub+a\\:1::file:///a b"
        before["content"][1]["uri"] = uri
        assert result == (dict(before, resultType="complete") if modern else before)
        assert b'"n":1.0' in raw and b'"e":1e400' in raw
        assert hub.ask("resources/read", {"uri": uri})["asked"]["uri"] == "file:///a b"

    def test_with_a_hint_too(self, hub):
        """Both are told."""
        text = json.dumps({"raw": LINKS})
        result = hub.tool("invoke_command", server="a:1", command_name="result", parameters=text)
        assert result["content"][1]["uri"] == "hub+a\\:1::file:///a b" and result["_meta"]["lazyMcp"]["hint"]

    @pytest.mark.parametrize("raw", [
        '{"content":[{"type":"resource_link"}]}', '{"content":[{"type":"resource_link","uri":7}]}',
        '{"content":{"type":"resource_link","uri":"mem://x"}}', '{"resource_link":"mem://x"}',
        '{"content":["resource_link",7,null]}'])
    def test_an_odd_one_comes_as_it_is(self, hub, raw):
        assert hub.invoke("a:1", "result", raw=raw) == json.loads(raw)


def test_a_link_is_the_servers_own_where_resources_are_off(box):
    """G8.2: byte for byte; the client has no resources/read."""
    hub = start(box, [entry("a", fake(box))])
    assert hub.raw_result(hub.start_invoke("a", "result", {"raw": LINKS})) == LINKS.encode()


# -------------------------------------------------------------------------------- recordings, shared with the relay

def test_after_a_check_discovery_starts_nothing(box):
    """H50, design 8: the recordings of `--check` serve the hub."""
    server = fake(box, tools=25, page=10)
    status, _, errors = box.run("--check", "--", *server.argv)
    assert status == 0, errors
    starts = server.starts()
    hub = start(box, [entry("a", server)])
    assert len(hub.data("list_commands", servers=["a"])["a"]) == 25
    assert hub.data("describe_commands", server="a", command_names=["tool24"])[0]["inputSchema"] == {"type": "object"}
    row = hub.row("a")
    assert (row["state"], row["loaded"], row["tools_count"]) == ("asleep", True, 25) and row["healthy"] in (None, True)
    assert server.starts() == starts and children(hub.pid) == []


def test_what_the_hub_recorded_serves_a_relay(box):
    """L6: same files, same keys. The relay answers handshake and list without the server."""
    server = fake(box, tools=3)
    hub = start(box, [entry("a", server)])
    hub.data("list_commands", server="a")
    hub.finish()
    starts = server.starts()
    relay = box.relay(server)
    assert relay.handshake()["serverInfo"]["name"] == "fake"
    assert [tool["name"] for tool in relay.ask("tools/list")["tools"]] == ["tool0", "tool1", "tool2"]
    assert server.starts() == starts and relay.asleep()
    relay.finish()
    again = start(box, [entry("a", server)])
    assert len(again.data("list_commands", server="a")) == 3 and server.starts() == starts


@pytest.mark.slow
def test_what_a_relay_recorded_serves_the_hub(box):
    """Any client's entry will do; and the start repairs what is old."""
    server = fake(box, tools=2)
    box.record(server, version="2025-11-25", name="other", capabilities={"roots": {}})
    starts = server.starts()
    server.set(tools=4)
    hub = start(box, [entry("a", server)])
    assert len(hub.data("list_commands", server="a")) == 2 and server.starts() == starts
    hub.invoke("a", "echo")
    until(lambda: len(hub.data("list_commands", server="a")) == 4, what="the new list")


@pytest.mark.slow
def test_no_recordings_where_they_are_not_wanted(box):
    """G2.6: `none` writes and reads nothing."""
    server = fake(box)
    box.record(server)
    before = [(path, path.read_bytes()) for path in box.recordings()]
    starts = server.starts()
    hub = start(box, [entry("a", server), entry("b", fake(box))], cache={"strategy": "none"})
    assert len(hub.data("list_commands", server="a")) == 1 and server.starts() == starts + 1
    hub.data("list_commands", server="b")
    hub.finish()
    assert [(path, path.read_bytes()) for path in box.recordings()] == before


@pytest.mark.parametrize("how", ["broken", "read only", "file"])
def test_a_folder_of_recordings_that_is_no_use(box, how):
    """A5: discovery goes on without."""
    server = fake(box, tools=2)
    cache = box.path / "elsewhere"
    if how == "broken":
        box.record(server, "--cache-dir=%s" % cache)
        for path in cache.glob("*.json"):
            path.write_bytes(path.read_bytes()[:100])
    elif how == "file":
        cache.write_text("x")
    else:
        cache.mkdir(mode=0o500)
    hub = start(box, [entry("a", server)], "--cache-dir", str(cache))
    assert len(hub.data("list_commands", server="a")) == 2 and hub.invoke("a", "echo") == {"echo": {}}


@pytest.mark.slow
def test_two_hubs_with_one_folder_of_recordings(box):
    """A5.7, H10: what both write is there afterwards."""
    servers = [fake(box, tools=n + 1) for n in range(6)]
    hubs = [start(box, [entry("s%d" % n, server) for n, server in enumerate(servers)]) for _ in range(2)]
    names = ["s%d" % n for n in range(6)]
    idents = [hub.start_tool("list_commands", servers=names[:4] if hub is hubs[0] else names[2:]) for hub in hubs]
    for hub, ident in zip(hubs, idents):
        hub.result(ident)
        hub.finish()
    starts = [server.starts() for server in servers]
    third = start(box, [entry("s%d" % n, server) for n, server in enumerate(servers)])
    found = third.data("list_commands", servers=names)
    assert [len(found[name]) for name in names] == [1, 2, 3, 4, 5, 6]
    assert [server.starts() for server in servers] == starts


def test_a_relay_in_front_of_a_hub(box):
    """I32 is about wrapping what is wrapped; a hub is a server like any other, and ends as one."""
    server = fake(box)
    path = config_file(box, [entry("a", server)])
    relay = box.relay(box.command("hub", "--config", path))
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 4
    assert relay.call("invoke_command", server="a", command_name="echo", parameters={"x": 1}) == {"echo": {"x": 1}}
    relay.finish()
    assert not alive(server.pid())


# ------------------------------------------------------------------------------------- hostile and many

def escaped(hub, tool, **arguments):
    """The result of a call that is written in ASCII only: half of a surrogate pair has no other spelling."""
    ident = next(hub.ids)
    hub.send(json.dumps(message("tools/call", ident, {"name": tool, "arguments": arguments})).encode() + b"\n")
    return hub.result(ident)


@pytest.mark.slow
def test_hostile_tools(box):
    """Case 134, K3: names and descriptions are data; lines stay lines and calls find their command."""
    names = ["list_servers", "search", "a:b/c.d \u00e9" * 8, "new\nline", "nul\0", "esc\x1b[31m", "\u202eright",
             "\ud800", '"};{"', "x" * (1 << 20), " ", "\u2028"]
    path = box.path / "tools"
    path.write_text(json.dumps({"tools": [{"name": name, "description": "\x1b[2J\0\r\n" + "y" * length,
                                           "inputSchema": {"type": "object"}}
                                          for name, length in zip(names, [1 << 20] * 2 + [1 << 16] * 20)]}))
    hub = start(box, [entry("a", fake(box, tools_file=str(path))), entry("b", fake(box, tools_file=str(path)))])
    listed, cursor = [], None
    while cursor is not None or not listed:
        text = hub.tool("list_commands", server="a",
                        **({} if cursor is None else {"cursor": cursor}))["content"][0]["text"]
        assert len(text) < 1200000
        part = json.loads(text)
        listed, cursor = listed + part["commands"], part.get("nextCursor")
    assert [one["name"] for one in listed] == names and all(len(one["description"]) <= 201 for one in listed)
    for name in names:
        described = json.loads(escaped(hub, "describe_commands", server="b",
                                       command_names=[name])["content"][0]["text"])
        assert described[0]["name"] == name and described[0]["description"].endswith("y" * 100)
        for server in ("a", "b"):
            assert escaped(hub, "invoke_command", server=server, command_name=name,
                           parameters={"x": 1}) == {"called": name, "arguments": {"x": 1}}
        refused = escaped(hub, "invoke_command", server=name, command_name="x")
        assert refused["_meta"]["lazyMcp"]["code"] in ("SERVER_NOT_FOUND", "INVALID_PARAMETERS")
        assert len(refused["content"][0]["text"]) < 2000
    assert all(max(map(ord, line)) >= 32 and "\x1b" not in line for line in hub.stderr().splitlines()) and hub.log()


@pytest.mark.slow
def test_200_servers_of_which_50_are_broken(box):
    """The others are as quick as ever, and each broken one has its reason."""
    kinds = [["/nonexistent/x"], ["sh", "-c", "echo broken >&2; exit 1"], ["sleep", "600"],
             ["sh", "-c", "echo '{}'; exec sleep 600"], []]
    broken = {"b%d" % n: kinds[n % 5] for n in range(50)}
    good = {"g%d" % n: fake(box) for n in range(150)}
    hub = start(box,
                [entry(name, server, startTimeout=300) for name, server in list(good.items()) + list(broken.items())])
    assert len(hub.rows()) == 200 and children(hub.pid) == []
    waiting = hub.start_tool("list_commands", servers=list(broken) + ["g0"])
    begin = time.monotonic()
    for name in ("g1", "g75", "g149"):
        assert hub.invoke(name, "echo", x=name) == {"echo": {"x": name}}
    print("three starts while fifty fail: %.0f ms" % ((time.monotonic() - begin) * 1000))
    found = json.loads(hub.result(waiting, 30)["content"][0]["text"])
    assert all(found[name]["error"] for name in broken) and found["g0"][0]["name"] == "tool0"
    rows = hub.rows()
    assert all(rows[name]["state"] in ("failing", "error") and rows[name]["error"] for name in broken)
    assert [name for name in good if rows[name]["state"] != "asleep"] == ["g0", "g1", "g75", "g149"]
    assert sorted(hub.servers()) == sorted(good[name].pid() for name in ("g0", "g1", "g75", "g149"))


def test_a_hub_below_itself(box):
    """Case 142: its own entry is refused when the file is read, behind a wrapper by the mark; the others work."""
    good, path = fake(box), box.path / "servers.json"
    script = box.path / "wrapper"
    script.write_text("#!/bin/sh\nexec %s\n" % " ".join(map(shlex.quote, box.command("hub", "--config", str(path)))))
    script.chmod(0o755)
    path.write_text(json.dumps({"servers": [
        entry("direct", ["mcp-lazy", "hub", "--config", str(path)]), entry("relayed",
                                                                           ["mcp-lazy", "--", "mcp-lazy", "hub",
                                                                            "--config", str(path)]),
        entry("hidden", [str(script)]), entry("ok", good)]}))
    hub = start_at(box, path)
    rows = hub.rows()
    assert [rows[name]["state"] for name in ("direct", "relayed", "hidden", "ok")] == ["error", "error", "asleep",
                                                                                       "asleep"]
    assert "one of its own servers" in rows["direct"]["error"]
    assert hub.invoke_fails("direct", "x").code == "INVALID_COMMAND"
    inner = json.loads(hub.invoke("hidden", "list_servers")["content"][0]["text"])["servers"]
    assert all(row["state"] == "error" for row in inner)
    assert "this hub is one of its own servers" in {row["name"]: row for row in inner}["ok"]["error"]
    refused = hub.result(hub.start_invoke("hidden", "invoke_command", {"server": "ok", "command_name": "echo"}))
    assert refused["isError"] is True and "one of its own servers" in refused["content"][0]["text"]
    assert hub.invoke("ok", "echo", x=1) == {"echo": {"x": 1}}
    assert good.starts() == 1 and len(hub.servers()) == 2


class TestWithoutTheNetwork:
    """G14: the lines about headers, hosts, OAuth and HTTP. This version opens no connection, and says so."""

    @pytest.fixture(scope="class")
    def hub(self, shelf):
        return start(shelf, [
            {"name": "set", "description": "d", "url": "https://h.invalid/mcp",
             "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"name": "unset", "description": "d", "url": "https://h.invalid/mcp",
             "headers": {"Authorization": "Bearer ${NOSUCH}"}},
            {"name": "oauth", "description": "d", "url": "http://127.0.0.1:9/mcp", "oauth": {}}],
                     env=shelf.env(TOKEN="tok-1234567"))

    @pytest.mark.parametrize("name", ["set", "unset", "oauth"])
    def test_a_remote_server(self, hub, name):
        """G3.2/G3.3: a variable that is not set is an error; no use of a url does anything."""
        row = hub.row(name)
        if name == "unset":
            assert row["state"] == "error" and "NOSUCH" in row["error"]
        else:
            assert row["state"] == "unsupported"
            assert row["error"].startswith("remote servers are not part of this version")
        for failure in (hub.invoke_fails(name, "x"), hub.failure("list_commands", server=name),
                        hub.failure("describe_commands", server=name, command_names=["x"])):
            assert failure.code == ("INVALID_COMMAND" if name == "unset" else "SERVER_UNREACHABLE")
        assert not any("socket:" in target for target in fds(hub.pid).values()) and children(hub.pid) == []
        assert "tok-1234567" not in hub.stderr() and "tok-1234567" not in json.dumps(hub.rows())


# ----------------------------------------------------------------------------------- the end (G4.4, G17)

@pytest.mark.slow
def test_the_end_of_input_waits_for_open_calls(box):
    """G4.4: what is under way is finished and delivered; then all is over, exit 0."""
    server = fake(box)
    hub = start(box, [entry("a", server)])
    ident = hub.start_invoke("a", "sleep", {"s": 0.4})
    server.wait_method("tools/call")
    hub.close()
    assert hub.result(ident) == {"slept": 0.4}
    assert hub.rest() == [] and hub.wait() == 0 and not alive(server.pid())


def test_calls_that_came_with_the_end_of_input(box):
    """Case 022: requests piped in at once are answered, the start of their server included."""
    hub = start(box, [entry("a", fake(box))], shaken=False)
    hub.send(harness.initialize(0), harness.INITIALIZED, message("tools/list", 1), *[message("tools/call", n, {
        "name": "invoke_command", "arguments": {"server": "a", "command_name": "echo", "parameters": {"n": n}}})
                                                                                     for n in (2, 3)])
    hub.close()
    answers = {one["id"]: one for one in hub.rest()}
    assert sorted(answers) == [0, 1, 2, 3] and answers[3]["result"] == {"echo": {"n": 3}} and hub.wait() == 0


@pytest.mark.slow
def test_the_end_of_input_does_not_wait_for_ever(box):
    """G4.4: two seconds, then the ladder."""
    server = fake(box, ignore_eof=True)
    hub = start(box, [entry("a", server)])
    hub.start_invoke("a", "hang")
    server.wait_method("tools/call")
    begin = time.monotonic()
    hub.close()
    assert hub.wait() == 0 and 1.5 < time.monotonic() - begin < 4.5 and not alive(server.pid())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(box, signum):
    """G17: exit 0, at once also with an open call; what a server started goes too (G9.6)."""
    server = fake(box, children=["sleeper"])
    hub = start(box, [entry("a", server), entry("b", fake(box))])
    hub.start_invoke("a", "hang")
    server.wait_method("tools/call")
    box.watch(*server.descendants())
    begin = time.monotonic()
    hub.signal(signum)
    assert hub.wait() == 0 and time.monotonic() - begin < 1.5
    assert group(server.pid()) == []


@pytest.mark.slow
def test_all_servers_go_at_once(box):
    """G17.2: the ladder runs in parallel; each gets its TERM and the time to save (case 031)."""
    servers = [fake(box, ignore_eof=True, on_term=0.2) for _ in range(6)]
    hub = start(box, [entry("s%d" % n, server, stopGrace=2000) for n, server in enumerate(servers)])
    for n in range(6):
        hub.invoke("s%d" % n, "echo")
    begin = time.monotonic()
    hub.finish()
    assert time.monotonic() - begin < 2
    assert all([one["by"] for one in server.events("saved")] == ["signal"] for server in servers)


def test_a_second_signal_is_the_last(box):
    """G17.2: a server that ignores everything is killed at once then."""
    server = fake(box, ignore=["SIGTERM", "SIGINT"], ignore_eof=True)
    hub = start(box, [entry("a", server, stopGrace=30000)])
    hub.invoke("a", "echo")
    hub.signal(signal.SIGTERM)
    server.wait_for("eof")
    begin = time.monotonic()
    hub.signal(signal.SIGTERM)
    assert hub.wait() == 0 and time.monotonic() - begin < 2 and not alive(server.pid())


@pytest.mark.slow
def test_a_killed_hub_leaves_nothing(box):
    """Case 035: the servers' groups end too, even those that ignore the end of their input."""
    servers = [fake(box, ignore_eof=True, children=["stubborn"]), fake(box)]
    hub = start(box, [entry("s%d" % n, server) for n, server in enumerate(servers)])
    for n in range(2):
        hub.invoke("s%d" % n, "echo")
    box.watch(*servers[0].descendants())
    guards = hub.guards()
    hub.process.kill()
    hub.wait()
    until(lambda: not any(group(server.pid()) for server in servers), what="the groups to end")
    until(lambda: not any(map(alive, guards)), what="the guard to end")


def test_a_signal_during_a_start(box):
    """Case 033: also what is not yet live goes."""
    server = fake(box, gate=str(box.path / "never"))
    hub = start(box, [entry("a", server)])
    hub.start_invoke("a", "echo")
    server.wait_for("start")
    hub.signal(signal.SIGTERM)
    assert hub.wait() == 0 and not alive(server.pid()) and box.recordings() == []


def test_a_client_that_closed_its_end(box):
    """Case 011: a write that fails is an end like any other."""
    server = fake(box)
    hub = start(box, [entry("a", server)])
    hub.invoke("a", "echo")
    hub.close_output()
    hub.request("ping")
    assert hub.wait() == 0 and not alive(server.pid())


@pytest.mark.slow
def test_a_client_that_does_not_read(box):
    """Case 007: what waits for it is bounded, the hub rests meanwhile, and in the end nothing is lost."""
    hub = start(box, [entry("a", fake(box))])
    hub.invoke("a", "echo")
    idents = []
    for _ in range(100):
        idents.append(next(hub.ids))
        hub.send(message("tools/call", idents[-1], {"name": "invoke_command", "arguments": {
            "server": "a", "command_name": "size", "parameters": {"n": 1 << 20}}}), reading=False)
    used = [harness.cpu_s(hub.pid), -1]
    until(lambda: used.append(harness.cpu_s(hub.pid)) or (time.sleep(0.1), used[-1] == used[-2])[1], 20,
          "the hub to rest")
    print("memory of the hub: %d KiB" % harness.memory_kib(hub.pid))
    assert harness.memory_kib(hub.pid) < 80 * 1024
    for ident in idents:
        assert len(hub.result(ident, 20)["t"]) > 1000000


@pytest.mark.slow
def test_a_client_that_does_not_read_and_goes(box):
    """A full output does not keep the hub: it ends, and so do its servers."""
    server = fake(box)
    hub = start(box, [entry("a", server)])
    for ident in range(1, 9):
        hub.send(message("tools/call", ident, {"name": "invoke_command", "arguments": {
            "server": "a", "command_name": "size", "parameters": {"n": 1 << 20}}}), reading=False)
    server.wait_method("tools/call", 8)
    hub.close()
    until(lambda: not hub.exists(), 6, "the hub to end")
    assert not alive(server.pid())
    hub.close_output()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_without_standard_streams(box, closed):
    """A13.12's kin: the numbers 0 and 1 are not taken for something else; the hub ends, and says nothing odd."""
    path = config_file(box, [ALONE])
    status, out, errors = box.run(argv=["sh", "-c", 'exec "$@" ' + closed, "x"] + box.command("hub", "--config", path))
    assert status in (0, 1) and out == b"" and "Traceback" not in errors and "internal error" not in errors


@pytest.mark.slow
def test_rounds_leave_no_zombie(box):
    """Case 032: start and stop, many times."""
    server = fake(box)
    hub = start(box, [entry("a", server, idleStop=1)])
    for n in range(12):
        assert hub.invoke("a", "echo", n=n) == {"echo": {"n": n}}
        until(lambda: hub.servers() == [], what="stop %d" % n)
    assert server.starts() == 12 and len(fds(hub.pid)) < 16
    assert [pid for pid in children(hub.pid) if proc_stat(pid) and proc_stat(pid)["state"] == "Z"] == []


def test_unchanged_entries_keep_their_process_at_a_reload(box):
    """G11.3 in G14: SIGHUP without a change, or with other members' order, restarts nothing."""
    server = fake(box)
    path = config_file(box, [entry("a", server, env={"A": "1", "B": "2"})])
    hub = start_at(box, path)
    pid = hub.invoke("a", "pid")["pid"]
    one = json.loads(path.read_text())["servers"][0]
    for text in (path.read_text(), json.dumps({"servers": [dict(reversed(list(one.items())),
                                                                env={"B": "2", "A": "1"})]}, indent=7)):
        path.write_text(text)
        done = sum(found.get("event") == "config_reload_success" for found in hub.log())
        hub.signal(signal.SIGHUP)
        until(lambda: sum(found.get("event") == "config_reload_success" for found in hub.log()) > done,
              what="the reload")
        assert hub.invoke("a", "pid")["pid"] == pid
    assert server.starts() == 1
