"""The relay with real processes: answers without a server, the wake, failures (A5-A12, cases 001-024)."""

import json
import os
import re
import signal
import time

import pytest

from harness import (INITIALIZED, VERSION, WAIT_S, alive, encode, group, initialize, message, until)
from mcp_lazy import is_trouble

CHANGED = "notifications/tools/list_changed"
slow = pytest.mark.slow


def failed(relay, ident, *words, timeout=WAIT_S):
    """The relay's own error to this id, in the shape of A10.5, with these words in it."""
    found = relay.answer(ident, timeout)
    assert set(found) == {"jsonrpc", "id", "error"} and found["jsonrpc"] == "2.0", found
    error = found["error"]
    assert error["code"] == -32000 and error["message"].startswith("mcp-lazy: "), error
    for word in words:
        assert word in error["message"], (word, error["message"])
    return error["message"]


def notifications(messages, method=None):
    return [one for one in messages if "id" not in one and (method is None or one.get("method") == method)]


# -------------------------------------------------------------------------------- cold (A7.2, A8.3)

def test_a7_2_a_cold_line_reaches_the_server_unchanged(box):
    raw = box.path / "raw"
    fake = box.fake(raw=str(raw))
    relay = box.relay(fake)
    lines = [b'{ "method":"initialize","jsonrpc":"2.0", "id" : "\\u0041-1" ,"params":{"protocolVersion":"2025-06-18",'
             b'"capabilities":{"x":1.0,"y":[1e2]},"clientInfo":{"name":"c\\/d","version":"1"},"more":{}},"odd":null}\n',
             encode(INITIALIZED), encode(message("tools/call", 1, {"name": "pid", "arguments": {}}))]
    relay.send(*lines)
    relay.answer("A-1")
    relay.answer(1)
    assert raw.read_bytes() == b"".join(lines)


def test_a8_3_cold_lines_do_not_wait_for_the_handshake(box):
    fake = box.fake(hang_at=["initialize"])
    relay = box.relay(fake, "--start-timeout", "30s")
    relay.send(initialize(), INITIALIZED, message("tools/list", 1))
    assert relay.result(1)["tools"]
    assert fake.methods() == ["initialize", "notifications/initialized", "tools/list"]


def test_a7_4_ping_is_answered_at_any_time_without_a_server(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.send(message("ping", "p"), message("ping", 2.5), message("ping", 3, {"_meta": {"progressToken": 1}}))
    assert [relay.read() for _ in range(3)] == [{"jsonrpc": "2.0", "id": ident, "result": {}} for ident in ("p", 2.5, 3)]
    assert fake.starts() == 0


# ---------------------------------------------------------------------------- warm (A7.1, A7.3-A7.9)

@pytest.mark.parametrize("ident", [b"0", b"-7", b'"a"', b'"\\u0061\\/\\n"', b"1.0", b"1e3", b"123456789012345678901234567890",
                                   b'""', b'"\xc3\xa9"'])
def test_a7_1_the_recorded_answer_carries_the_clients_id_verbatim(box, ident):
    fake = box.fake()
    box.record(fake)
    relay = box.relay(fake)
    relay.send(b'{"jsonrpc":"2.0","id":%s,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{},'
               b'"clientInfo":{"name":"n","version":"2"}}}\n' % (ident, VERSION.encode()))
    line = relay.line()
    assert line.startswith(b'{"jsonrpc":"2.0","id":' + ident + b',"result":{')
    relay.send(b'{"method":"tools/list","id":%s,"jsonrpc":"2.0"}\n' % ident)
    assert relay.line().startswith(b'{"jsonrpc":"2.0","id":' + ident + b',"result":{"tools":')
    assert fake.starts() == 1


def test_a7_1_a7_3_a7_5_a_warm_session_starts_nothing(box):
    fake = box.fake(prompts=1, resources=2, templates=1)
    lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
    box.record(fake, lists=lists)
    cold = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    for method in lists:
        assert len(relay.ask(method)) == 1
    assert relay.asleep() and relay.finish() == []
    assert fake.starts() == cold


@pytest.mark.parametrize("params", ["null", "{}", '{"_meta":{"progressToken":5}}', '{"cursor":null}',
                                    '{"cursor":null,"_meta":{"a/b":[1]}}', None])
def test_a7_5_a6_3_first_pages_in_all_spellings(box, params):
    fake = box.fake()
    relay = box.warm(fake)
    relay.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"%s}\n'
               % (b"" if params is None else b',"params":' + params.encode()))
    assert len(relay.result(1)["tools"]) == 1
    assert fake.starts() == 1


@pytest.mark.parametrize("params", ['{"cursor":"x#0"}', '{"filter":1}', '{"cursor":""}', "[]", '"x"'])
def test_a7_6_other_parameters_start_the_server(box, params):
    fake = box.fake(hang_at=["tools/list"])
    fake.set(hang_at=[])
    relay = box.warm(fake)
    relay.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%s}\n' % params.encode())
    relay.send(message("tools/call", 2, {"name": "pid"}))
    relay.result(2)
    assert fake.starts() == 2 and fake.lines()[-2]["params"] == json.loads(params)


def test_a7_6_a_list_that_is_not_recorded_starts_the_server(box):
    fake = box.fake(prompts=2)
    relay = box.warm(fake)
    assert len(relay.ask("prompts/list")["prompts"]) == 2
    assert fake.starts() == 2


def test_a7_7_a7_9_notifications_and_responses_are_dropped_while_asleep(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.send(message("notifications/cancelled", params={"requestId": 77}), message("notifications/roots/list_changed"),
               {"jsonrpc": "2.0", "id": 5, "result": {}}, {"jsonrpc": "2.0", "id": 6, "error": {"code": 1, "message": "m"}},
               message("notifications/progress", params={"progressToken": 1, "progress": 2}))
    assert relay.barrier() == []
    assert fake.starts() == 1
    before = len(fake.lines())
    relay.call("pid")
    assert [one["method"] for one in fake.lines()[before:]] == ["initialize", "notifications/initialized", "tools/list", "tools/call"]


def test_a7_4b_the_log_level_is_remembered_for_the_next_start(box):
    fake = box.fake(logging=True)
    relay = box.warm(fake)
    assert relay.ask("logging/setLevel", {"level": "debug"}) == {}
    assert relay.ask("logging/setLevel", {"level": "error"}) == {}
    assert fake.starts() == 1
    relay.call("pid")
    levels = [one for one in fake.lines() if one["method"] == "logging/setLevel"]
    assert [one["params"] for one in levels] == [{"level": "error"}]
    assert fake.methods().index("logging/setLevel") < fake.methods().index("tools/call")
    assert relay.barrier() == []


@pytest.mark.parametrize("flags, level", [({}, "debug"), ({"logging": True}, "loud"), ({"logging": True}, 3)])
def test_a7_4b_otherwise_it_starts_the_server(box, flags, level):
    fake = box.fake(**flags)
    relay = box.warm(fake)
    relay.answer(relay.request("logging/setLevel", {"level": level}))
    assert fake.starts() == 2 and fake.methods()[-1] == "logging/setLevel"


def test_a7_11_a_live_server_answers_everything_itself(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.call("pid")
    before = len(fake.lines())
    for method in ("ping", "tools/list"):
        relay.ask(method)
    relay.send(initialize("again"))
    relay.result("again")
    assert [one["method"] for one in fake.lines()[before:]] == ["ping", "tools/list", "initialize"]


def test_case_014_another_version_is_asked_of_the_server(box):
    """Never echoed, never made up; a second recording stands beside the first (A6.1)."""
    fake = box.fake(versions=["2025-03-26", VERSION])
    assert box.record(fake)["protocolVersion"] == VERSION
    for asked, said in (("2024-11-05", VERSION), ("2099-01-01", VERSION), ("2025-03-26", "2025-03-26")):
        starts = fake.starts()
        relay = box.relay(fake)
        assert relay.handshake(version=asked)["protocolVersion"] == said
        relay.finish()
        assert fake.starts() == starts + 1
        relay = box.relay(fake)
        assert relay.handshake(version=asked)["protocolVersion"] == said
        relay.finish()
        assert fake.starts() == starts + 1, "the second session asks nobody"


@pytest.mark.parametrize("version", [None, "", 5, {}])
def test_a6_4_a_handshake_without_a_version_is_never_recorded(box, version):
    fake = box.fake(init_raw='{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}' % VERSION)
    for count in (1, 2):
        relay = box.relay(fake)
        line = initialize()
        if version is None:
            del line["params"]["protocolVersion"]
        else:
            line["params"]["protocolVersion"] = version
        relay.send(line)
        relay.result(0)
        relay.finish()
        assert fake.starts() == count


def test_a6_5_k2_a_call_before_initialize_is_executed_every_session(box):
    fake = box.fake()
    for count in (1, 2, 3):
        relay = box.relay(fake)
        relay.call("echo", x=1)
        relay.finish()
        assert fake.methods().count("tools/call") == count


def test_a17_modern_requests_pass_untouched_and_unrecorded(box):
    """The initialize-free era, as far as it goes now: a pipe; nothing of it is answered by the relay."""
    raw = box.path / "raw"
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    line = encode(message("tools/call", "m", {"name": "echo", "arguments": {"v": 1}, "_meta": meta}))
    fake = box.fake(raw=str(raw))
    relay = box.relay(fake)
    relay.send(line)
    assert relay.result("m") == {"echo": {"v": 1}}
    assert raw.read_bytes() == line


# --------------------------------------------------------------------------------- the wake (A8.2)

def test_a8_2_the_order_of_a_replay(box):
    raw = box.path / "raw"
    fake = box.fake(raw=str(raw), prompts=1)
    box.record(fake, lists=["tools/list", "prompts/list"])
    raw.unlink()
    relay = box.relay(fake)
    params = (b'{"protocolVersion":"%s", "capabilities":{},"clientInfo":{"name":"caf\xc3\xa9 \\u0041","version":"1.0"},'
              b' "_meta":{"n":1.0}}' % VERSION.encode())
    relay.send(b'{"jsonrpc":"2.0","id":"own","method":"initialize","params":' + params + b"}\n", INITIALIZED)
    relay.result("own")
    calls = [encode(message("tools/call", "c%d" % n, {"name": "echo", "arguments": {"n": n}})) for n in range(5)]
    relay.send(*calls)
    for n in range(5):
        assert relay.result("c%d" % n) == {"echo": {"n": n}}
    lines = raw.read_bytes().splitlines(True)
    first = json.loads(lines[0])
    assert first["id"] == "mcp-lazy-init-1" and first["method"] == "initialize"
    assert params in lines[0], "the client's own params, byte for byte"
    assert json.loads(lines[1]) == INITIALIZED
    checks = [json.loads(line) for line in lines[2:4]]
    assert sorted(one["id"] for one in checks) == ["mcp-lazy-check-1-prompts/list", "mcp-lazy-check-1-tools/list"]
    assert all("params" not in one for one in checks)
    assert lines[4:] == calls
    assert relay.kept == [] and relay.barrier() == [], "A9.5: unchanged lists add no line"


def test_a8_2_the_second_start_counts_two(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=20ms")
    for number in (1, 2, 3):
        relay.call("pid")
        until(relay.asleep, what="the idle stop")
        assert [one["id"] for one in fake.lines() if str(one.get("id")).startswith("mcp-lazy-init")][-1] == "mcp-lazy-init-%d" % number


def test_a8_2_answers_of_the_client_pass_the_queue(box):
    """A server may wait for its ping before it answers initialize (A8.5 too)."""
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(early="ping", early_waits=True)
    ident = relay.start_call("pid")
    asked = relay.until_message(lambda one: one.get("method") == "ping")
    relay.send({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
    assert relay.result(ident)["calls"] == 1


def test_a8_6_a_late_initialized_is_swallowed(box):
    fake = box.fake()
    box.record(fake)
    relay = box.relay(fake)
    relay.send(initialize())
    relay.result(0)
    relay.call("pid")  # the wake sends `initialized` in the client's place
    relay.send(INITIALIZED)
    relay.barrier()
    second = fake.methods()[3:]
    assert second.count("notifications/initialized") == 1


def test_case_017_one_start_however_many_wait(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(boot=0.15)
    before = len(fake.lines())
    idents = [relay.start_call("pid") for _ in range(20)]
    pids = {relay.result(ident)["pid"] for ident in idents}
    assert len(pids) == 1 and fake.starts() == 2
    seen = fake.lines()[before:]
    assert [one["method"] for one in seen[:2]] == ["initialize", "notifications/initialized"]
    assert [one["id"] for one in seen if one["method"] == "tools/call"] == idents
    assert [one["method"] for one in seen].count("initialize") == 1


def test_a10_12_k2_a_burst_during_a_slow_start_is_answered_whole(box):
    """More lines, and more bytes, than any queue of the older relay held."""
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(boot=0.2)
    idents = list(range(1000, 1500))
    relay.send(*[message("tools/call", ident, {"name": "echo", "arguments": {"i": ident}}) for ident in idents])
    for ident in idents:
        assert relay.result(ident) == {"echo": {"i": ident}}
    assert [one["id"] for one in fake.lines() if one["method"] == "tools/call"] == idents
    assert fake.starts() == 2


@slow
def test_a10_12_megabytes_that_wait_for_a_slow_start(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(boot=0.4)
    text = "w" * (1 << 20)
    idents = list(range(100, 124))
    for ident in idents:
        relay.send(message("tools/call", ident, {"name": "length", "arguments": {"s": text}}))
    for ident in idents:
        assert relay.result(ident)["length"] == len(text)
    assert fake.starts() == 2


def test_design_4_3_roots_are_asked_before_the_first_call(box):
    """A server that reads the client's roots at start has them before a queued call reaches it."""
    fake = box.fake(ask_roots=True)
    roots = {"roots": [{"uri": "file:///p"}]}

    def serve(relay):
        asked = relay.until_message(lambda one: one.get("method") == "roots/list")
        relay.send({"jsonrpc": "2.0", "id": asked["id"], "result": roots})

    cold = box.relay(fake)
    cold.handshake(capabilities={"roots": {}})
    serve(cold)
    cold.ask("tools/list")
    cold.finish()
    relay = box.relay(fake)
    relay.handshake(capabilities={"roots": {}})
    before = len(fake.lines())
    ident = relay.start_call("pid")
    serve(relay)
    assert relay.result(ident)["calls"] == 1
    seen = [one["method"] for one in fake.lines()[before:]]
    assert seen.index(None) < seen.index("tools/call"), seen


@slow
def test_design_4_3_roots_that_nobody_answers_hold_the_call_two_seconds_at_most(box):
    fake = box.fake(ask_roots=True)
    box.record(fake, capabilities={"roots": {}})
    relay = box.relay(fake)
    relay.handshake(capabilities={"roots": {}})
    begun = time.monotonic()
    relay.call("pid")
    took = time.monotonic() - begun
    assert 1.0 < took < 3.0, took


def test_design_4_3_a_client_without_roots_is_not_waited_for(box):
    fake = box.fake(ask_roots=True)
    relay = box.warm(fake)
    relay.call("pid", timeout=1.5)


@pytest.mark.parametrize("times", [1, 4])
def test_design_4_3_a_change_announced_at_start_is_none_when_the_list_is_equal(box, times):
    fake = box.fake(announce=True)
    relay = box.warm(fake)
    relay.ask("tools/list")
    fake.set(changed_at_start=times)
    relay.call("pid")
    assert notifications(relay.barrier(), CHANGED) == []


def test_design_4_3_a_real_change_at_start_is_announced_once(box):
    fake = box.fake(announce=True)
    relay = box.warm(fake)
    relay.ask("tools/list")
    fake.set(changed_at_start=3, tools=2)
    relay.call("pid")
    assert len(notifications(relay.barrier(), CHANGED)) == 1
    assert len(relay.ask("tools/list")["tools"]) == 2


# ------------------------------------------------------------------------------------- drift (A9)

def test_a9_2_a_changed_list_is_recorded_and_announced(box):
    fake = box.fake()
    relay = box.warm(fake)
    assert len(relay.ask("tools/list")["tools"]) == 1
    fake.set(tools=3)
    relay.call("pid")
    assert len(notifications(relay.barrier(), CHANGED)) == 1
    relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 3
    assert fake.starts() == starts


def test_a9_2_two_changed_kinds_are_two_announcements_and_both_resource_lists_one(box):
    fake = box.fake(prompts=1, resources=1, templates=1)
    lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
    relay = box.warm(fake, lists=lists)
    for method in lists:
        relay.ask(method)
    fake.set(prompts=2, resources=2, templates=2)
    relay.call("pid")
    found = sorted(one["method"] for one in notifications(relay.barrier()))
    assert found == ["notifications/prompts/list_changed", "notifications/resources/list_changed"]


def test_a9_2_an_empty_list_needs_a_second_start(box):
    fake = box.fake(tools=2)
    relay = box.warm(fake, "--idle-stop=30ms")
    relay.ask("tools/list")
    fake.set(tools=0)
    relay.call("pid")
    assert notifications(relay.barrier()) == []
    until(relay.asleep, what="the idle stop")
    assert len(relay.ask("tools/list")["tools"]) == 2, "the record stays for now"
    relay.call("pid")
    relay.until_message(lambda one: one.get("method") == CHANGED)
    until(relay.asleep, what="the idle stop")
    starts = fake.starts()
    assert relay.ask("tools/list")["tools"] == [] and fake.starts() == starts


def test_a9_3_an_error_to_the_internal_list_keeps_the_record(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=30ms")
    relay.ask("tools/list")
    fake.set(refuse={"tools/list": {"code": -32603, "message": "not now"}})
    relay.call("pid")
    assert notifications(relay.barrier()) == []
    until(relay.asleep, what="the idle stop")
    assert len(relay.ask("tools/list")["tools"]) == 1


def test_a9_3_method_not_found_deletes_the_record_and_is_announced(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.ask("tools/list")
    fake.set(refuse={"tools/list": {"code": -32601, "message": "gone"}})
    relay.call("pid")
    assert len(notifications(relay.barrier(), CHANGED)) == 1


@pytest.mark.parametrize("listed, declared, announced", [(False, False, 0), (True, False, 1), (False, True, 1), (True, True, 1)])
def test_a9_4_who_is_told_of_a_change(box, listed, declared, announced):
    fake = box.fake(announce=declared)
    relay = box.warm(fake)
    if listed:
        relay.ask("tools/list")
    fake.set(tools=2)
    relay.call("pid")
    assert len(notifications(relay.barrier(), CHANGED)) == announced
    relay.finish()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2, "recorded in any case"


def test_a9_7_a6_2_a_new_version_of_the_server_is_recorded_silently(box):
    fake = box.fake(version="1")
    relay = box.warm(fake)
    fake.set(version="2")
    relay.call("pid")
    assert relay.barrier() == []
    relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["version"] == "2"
    assert len(relay.ask("tools/list")["tools"]) == 1, "the lists are kept (A6.2)"
    assert fake.starts() == starts


def test_a9_1_a6_6_equal_by_value_is_equal(box):
    fake = box.fake(list_raw={"tools/list": '{"tools":[{"name":"a","inputSchema":{"n":1.0,"m":100,"u":"\\u0041"}}]}'})
    relay = box.warm(fake)
    relay.ask("tools/list")
    fake.set(list_raw={"tools/list": '{ "tools":[{"inputSchema":{"u":"A","m":1e2,"n":1},"name":"a"}] }'})
    relay.call("pid")
    assert notifications(relay.barrier()) == []


def test_a6_6_numbers_are_compared_exactly(box):
    fake = box.fake(list_raw={"tools/list": '{"tools":[{"name":"a","inputSchema":{"n":9007199254740992}}]}'})
    relay = box.warm(fake)
    relay.ask("tools/list")
    fake.set(list_raw={"tools/list": '{"tools":[{"name":"a","inputSchema":{"n":9007199254740993}}]}'})
    relay.call("pid")
    assert len(notifications(relay.barrier(), CHANGED)) == 1


def test_case_060_a_live_change_reaches_the_client_at_once_and_the_next_session(box):
    fake = box.fake(announce=True)
    relay = box.warm(fake)
    assert len(relay.ask("tools/list")["tools"]) == 1
    fake.set(tools=1)
    ident = relay.start_call("grow", announce=5)
    relay.result(ident)
    assert len(notifications(relay.kept, CHANGED)) >= 1, "before the answer that follows them"
    assert len(relay.ask("tools/list")["tools"]) == 2
    relay.finish()
    fake.set(tools=2)
    starts = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2
    assert fake.starts() == starts


@slow
def test_a9_8_the_relay_lists_again_itself_when_the_client_does_not(box):
    fake = box.fake(announce=True)
    relay = box.warm(fake)
    relay.ask("tools/list")
    relay.call("grow", announce=5)
    before = fake.methods().count("tools/list")
    fake.wait_method("tools/list", before + 1, timeout=4)
    relay.barrier()
    assert fake.methods().count("tools/list") == before + 1, "one reading for five announcements"
    relay.finish()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2


# ------------------------------------------------------------------------------- lines (A7.13-A7.17)

def odd_lines():
    return [b"42\n", b"null\n", b'"x"\n', b"{not json\n", b"\n", b"   \t\n", b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
            b'[{"jsonrpc":"2.0","id":20,"method":"tools/list"},{"jsonrpc":"2.0","id":30,"method":"ping"}]\n', b"[]\n", b"\xff\n",
            b'{"jsonrpc":"2.0","id":40,"method":"tools/call","params":{"name":"\xff("}}\n', b"true\n", b"[1\n", b"{}\n",
            b'{"jsonrpc":"2.0","method":7,"id":41}\n', b"\x00\n", b"{" * 5000 + b"\n", b"[" * 100000 + b"]" * 100000 + b"\n",
            b'{"id":{"a":1},"method":"x"}\n', b'{"id":[1],"method":"x"}\n', b'{"id":true,"method":"x"}\n', b"\xef\xbb\xbf{}\n"]


@pytest.mark.parametrize("warm", [False, True])
def test_case_021_odd_lines_end_nothing(box, warm):
    """The case wants -32700 for what is no JSON; A7.10 and A7.15 pass such lines on, and the specification wins."""
    fake = box.fake()
    if warm:
        box.record(fake)
    relay = box.relay(fake)
    relay.handshake()
    relay.send(*odd_lines())
    relay.send(message("no/such", 5), message("tools/list", 6), message("ping", 7), message("tools/call", 8, {"name": "pid"}))
    assert relay.error(5)["code"] == -32601  # the server's own answer
    assert relay.result(6)["tools"]
    assert relay.result(7) == {}
    relay.result(8)
    for found in relay.kept:  # anything the relay said itself is a whole message with id null or a request's id
        if isinstance(found, dict) and "error" in found:
            assert found["id"] is None or found["id"] in (20, 30, 40, 41) or isinstance(found["id"], (dict, list, bool))


@pytest.mark.parametrize("number", range(len(odd_lines())))
def test_a7_15_a_server_that_dies_of_an_odd_line(box, number):
    """Whatever the line was: what is open gets its error, and the next request a fresh server."""
    fake = box.fake(odd_dies=True)
    relay = box.relay(fake, "--restart-backoff=0")
    relay.handshake()
    hanging = relay.start_call("hang")
    relay.send(odd_lines()[number])
    relay.send(message("tools/call", 50, {"name": "die", "arguments": {"how": "exit3"}}))
    failed(relay, hanging, "server exited")
    relay.answer(50)  # met by the death, or by the death it asked for
    ident = relay.request("tools/call", {"name": "pid", "arguments": {}}, 51)
    relay.answer(ident)
    assert relay.exists()


@pytest.mark.parametrize("ident", [b"NaN", b"-Infinity", b'"\xff"', b"01", b"'a'", b'"\\x"', b'"\x01"', b"[1", b"1e400", b"-0", b'"\\ud800"'])
def test_case_021_what_the_relay_says_itself_is_strict_json(box, ident):
    """An id that is no JSON makes the line no message: it is passed on, and never comes back in an error."""
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.send(b'{"jsonrpc":"2.0","id":%s,"method":"no/such/method/hang","params":{}}\n' % ident)
    relay.send(message("tools/call", "d", {"name": "die", "arguments": {"how": "exit3"}}))
    failed(relay, "d")  # every line up to here was decoded strictly
    relay.call("pid")


def test_a7_13_spaces_crlf_and_blank_lines(box):
    raw = box.path / "raw"
    fake = box.fake(raw=str(raw))
    relay = box.relay(fake)
    relay.send(b"\r\n\n  \t" + encode(initialize())[:-1] + b" \r\n", b" \n", encode(INITIALIZED)[:-1] + b"\r\n")
    relay.result(0)
    relay.send(b'\t{"jsonrpc":"2.0","id":"r","method":"ping"}\r\n')
    relay.result("r")
    assert raw.read_bytes() == encode(initialize()) + encode(INITIALIZED) + b'{"jsonrpc":"2.0","id":"r","method":"ping"}\n'


def test_a7_13_the_last_line_needs_no_newline(box):
    fake = box.fake()
    relay = box.relay(fake, "--drain=5s")
    relay.handshake()
    relay.send(encode(message("tools/call", "last", {"name": "pid"}))[:-1])
    relay.close()
    assert relay.result("last")["calls"] == 1
    assert relay.wait() == 0


def test_a7_13_a_client_line_over_the_limit_is_an_error_and_the_stream_stays_in_step(box):
    """Case 005 wants the request's id in the error; A7.13 says id null, and the specification wins."""
    fake = box.fake()
    relay = box.relay(fake, "--max-line=5000")
    relay.handshake()
    relay.send(message("tools/call", 1, {"name": "length", "arguments": {"s": "y" * 20000}}),
               message("tools/call", 2, {"name": "length", "arguments": {"s": "small"}}))
    assert relay.result(2)["length"] == 5
    errors = [one for one in relay.kept if "error" in one]
    assert [(one["id"], one["error"]["code"]) for one in errors] == [(None, -32700)]
    assert [one["id"] for one in fake.lines() if one["method"] == "tools/call"] == [2]


def test_a7_13_lines_just_at_the_limit_pass(box):
    fake = box.fake()
    relay = box.relay(fake, "--max-line=5000")
    relay.handshake()
    line = encode(message("tools/call", 1, {"name": "length", "arguments": {"s": ""}}))
    fill = 4999 - len(line)
    relay.send(message("tools/call", 1, {"name": "length", "arguments": {"s": "y" * fill}}))
    assert relay.result(1)["length"] == fill


def test_a7_13_a_server_line_over_the_limit_fails_what_is_open_and_stops_the_server(box):
    fake = box.fake()
    relay = box.relay(fake, "--max-line=5000")
    relay.handshake()
    hanging = relay.start_call("hang")
    big = relay.start_call("size", n=60000)
    failed(relay, hanging)
    failed(relay, big)
    assert relay.call("pid")["calls"] == 1, "a fresh server"
    assert fake.starts() == 2


def test_a7_14_what_an_id_is(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.send(b'{"jsonrpc":"2.0","ID":50,"METHOD":"ping","method":"tools/list","id":51}\n',
               b'{"jsonrpc":"2.0","id":52,"id":53,"method":"ping"}\n',
               b'{"jsonrpc":"2.0","method":"ping","method":"tools/list","id":54}\n')
    relay.result(51)
    relay.result(53)
    assert relay.result(54)["tools"]
    hanging = relay.start_call("hang")
    relay.send(b'{"jsonrpc":"2.0","id":60,"id":61,"method":"tools/call","params":{"name":"die","arguments":{"how":"exit3"}}}\n')
    failed(relay, hanging)
    failed(relay, 61)
    assert [one for one in relay.barrier() if "error" in one] == [], "60 never was an id"


def test_a7_14_id_null_is_a_notification(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.send(b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"pid"}}\n')
    assert relay.barrier() == [] and fake.starts() == 1, "A7.7: a notification is dropped while asleep"


def test_a7_15_batches_are_tracked(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.send([message("x/y", 1), message("x/y", "two"), message("notifications/x")])
    found = relay.until_message(lambda one: isinstance(one, list))
    assert [one["id"] for one in found] == [1, "two"]
    fake.set(batch_dies=True)


def test_a7_15_a_batch_that_the_server_dies_on_gets_an_array_of_errors(box):
    fake = box.fake(batch_dies=True)
    relay = box.relay(fake)
    relay.handshake()
    hanging = relay.start_call("hang")
    relay.send([message("x/y", 1000), message("x/y", "1000"), message("notifications/x"), 5])
    failed(relay, hanging, "server exited")
    batch = next((one for one in relay.kept if isinstance(one, list)), None) or relay.until_message(lambda one: isinstance(one, list))
    assert sorted((repr(one["id"]), one["error"]["code"]) for one in batch) == [("'1000'", -32000), ("1000", -32000)]


def test_a7_10_a_batch_wakes_the_server(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.send([message("x/y", 1), message("x/y", 2)])
    assert len(relay.until_message(lambda one: isinstance(one, list))) == 2
    assert fake.starts() == 2


def test_a7_16_k2_ids_are_matched_by_value(box):
    """A server that turns 1.0 into 1 has answered; the idle stop comes."""
    fake = box.fake(int_ids=True)
    relay = box.warm(fake, "--idle-stop=30ms")
    relay.send(b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"pid"}}\n')
    assert relay.read()["id"] == 1
    until(relay.asleep, what="the idle stop")


def test_a7_16_one_and_text_one_are_two_requests(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    call = {"name": "hang"}
    relay.send(message("tools/call", 1, call), message("tools/call", "1", call),
               b'{"jsonrpc":"2.0","id":"\\u0061\\/","method":"tools/call","params":{"name":"hang"}}\n',
               message("tools/call", 9, {"name": "die", "arguments": {"how": "exit3"}}))
    for ident in (1, "1", "a/", 9):
        failed(relay, ident)
    assert any(b'"id":"\\u0061\\/"' in line for line in relay.raw), "the id as the client wrote it"


def test_a7_17_an_id_used_twice_gets_both_answers(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.send(message("tools/call", 5, {"name": "late"}), message("tools/call", 5, {"name": "echo", "arguments": {"b": 2}}))
    relay.call("flush")
    found = [one["result"] for one in relay.kept if one.get("id") == 5]
    assert found == [{"echo": {"b": 2}}, {"late": True}]
    relay.send(message("tools/call", 6, {"name": "hang"}), message("tools/call", 6, {"name": "hang"}),
               message("tools/call", 7, {"name": "die", "arguments": {"how": "exit3"}}))
    failed(relay, 7)
    errors = [one for one in relay.kept if one.get("id") == 6]
    while len(errors) < 2:
        errors.append(relay.answer(6))
    assert len(errors) == 2


def test_a11_4_bytes_pass_unchanged_both_ways(box):
    raw = box.path / "raw"
    fake = box.fake(raw=str(raw))
    relay = box.relay(fake)
    relay.handshake()
    there = ('{"zz" : 1.50, "jsonrpc":"2.0","id": 3 ,"method":"tools/call","params":{"name":"raw","_meta":{"a\\/b":"\\u00e9"},'
             '"arguments":{"text":"%s\\n"}},"extra":[ ]}\n')
    back = '{ "jsonrpc":"2.0", "method":"notifications/message","params":{"x":1.0,"y":"\\u2028 \u00e9"}, "odd" : {} }'
    line = (there % json.dumps(back.encode("utf-8").decode("latin-1"))[1:-1]).encode()
    relay.send(line)
    relay.result(3)
    assert raw.read_bytes().endswith(line)
    assert back.encode() + b"\n" in relay.raw


# --------------------------------------------------------------------------------- big and many bytes

@slow
def test_case_004_answers_of_every_size_arrive_whole_at_a_slow_reader(box):
    fake = box.fake()
    relay = box.relay(fake, "--drain=10s")
    sizes = [65535, 65536, 65537, 131072, 1048577]
    relay.send(initialize(), INITIALIZED, *[message("tools/call", n, {"name": "size", "arguments": {"n": n}}) for n in sizes])
    relay.close()
    data = b""
    until(lambda: os.path.exists("/proc/%d" % relay.pid), what="the relay")
    import select
    while True:
        select.select([relay.stdout], [], [], WAIT_S)
        piece = os.read(relay.stdout, 4096)
        if not piece:
            break
        data += piece
        select.select([], [], [], 0.001)  # slow on purpose
    relay.eof = True
    lines = data.splitlines(True)
    assert [len(line) for line in lines[1:]] == sizes
    assert all(json.loads(line)["id"] == n for line, n in zip(lines[1:], sizes))
    assert relay.wait() == 0


@slow
def test_case_005_ten_megabytes_in_one_line_both_ways(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    text = "y" * (10 << 20)
    ident = relay.start_call("length", s=text)
    found = relay.result(ident, timeout=20)
    assert found["length"] == len(text) and found["back"] == text
    assert relay.call("length", s="small")["length"] == 5


@slow
def test_case_007_both_sides_write_more_than_a_pipe_holds(box):
    """The client writes everything before it reads anything; neither side may be stopped for ever."""
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    idents = list(range(1, 65))
    relay.send(message("tools/call", 0, {"name": "notify", "arguments": {"times": 64, "bytes": 65536}}),
               *[message("tools/call", ident, {"name": "length", "arguments": {"s": "q" * 65536}}) for ident in idents],
               reading=False, timeout=15)
    relay.result(0, timeout=10)
    assert [one["params"]["n"] for one in notifications(relay.kept)] == list(range(64))
    for ident in idents:
        assert relay.read()["id"] == ident


def test_case_002_a_server_that_floods_stderr_stays_quick(box):
    fake = box.fake(flood=256 * 1024)
    relay = box.relay(fake)
    relay.handshake()
    begun = time.monotonic()
    relay.call("pid")
    relay.call("pid")
    assert time.monotonic() - begun < 2
    relay.finish()
    assert "W: a line of noise" in relay.stderr()


def test_case_002_a_stderr_that_nobody_reads_holds_nothing_up(box):
    """Our stderr is a full pipe: the rest is dropped, the calls go on (design section 5)."""
    fake = box.fake(flood=256 * 1024)
    read, write = os.pipe()
    try:
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, b"x" * 65536)
        except BlockingIOError:
            pass
        os.set_blocking(write, True)
        relay = box.relay(fake, "--verbose", preexec=lambda: os.dup2(write, 2))
        relay.handshake()
        for _ in range(3):
            relay.call("pid", timeout=4)
        relay.finish()
    finally:
        os.close(read)
        os.close(write)


# ----------------------------------------------------------------------------- both directions (009)

def test_case_009_ids_of_both_directions_are_independent(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.send(message("tools/call", 1, {"name": "ask", "arguments": {"ids": [1, "1"], "methods": ["roots/list", "ping"]}}))
    first, second = relay.read(), relay.read()
    assert (first["id"], first["method"]) == (1, "roots/list") and (second["id"], second["method"]) == ("1", "ping")
    relay.send({"jsonrpc": "2.0", "id": "1", "result": {}}, {"jsonrpc": "2.0", "id": 1, "result": {"roots": ["r"]}})
    assert relay.result(1) == {"client": {"roots": ["r"]}}


def test_a11_6_open_requests_of_a_dead_server_are_cancelled(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.call("ask", ids=["q1", 2], methods=["sampling/createMessage", "roots/list"], forget=True)
    asked = [relay.until_message(lambda one: one.get("method") == method)["id"] for method in ("sampling/createMessage", "roots/list")]
    assert asked == ["q1", 2]
    failed(relay, relay.start_call("die", how="exit3"))
    cancelled = [relay.until_message(lambda one: one.get("method") == "notifications/cancelled")["params"]["requestId"] for _ in asked]
    assert sorted(map(repr, cancelled)) == ["'q1'", "2"]


# --------------------------------------------------------------------------------- cancelling (A11.3)

def test_case_012_a11_3_a_cancelled_call_that_waits_is_never_sent(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(boot=0.15)
    relay.send(message("tools/call", "a", {"name": "pid"}), message("tools/call", "b", {"name": "pid"}),
               message("notifications/cancelled", params={"requestId": "a"}))
    relay.result("b")
    assert relay.barrier() == []
    assert [one["id"] for one in fake.lines() if one["method"] == "tools/call"] == ["b"]
    assert "notifications/cancelled" not in fake.methods()


def test_a8_3_a_cancel_in_a_cold_start_follows_its_request(box):
    """The case wants it removed there too; in a cold start nothing is queued (A8.3), and the specification wins."""
    fake = box.fake(boot=0.1)
    relay = box.relay(fake)
    relay.send(initialize(), INITIALIZED, message("tools/call", "a", {"name": "late"}), message("tools/call", "b", {"name": "pid"}),
               message("notifications/cancelled", params={"requestId": "a"}))
    relay.result("b")
    fake.wait_method("notifications/cancelled")
    assert fake.methods() == ["initialize", "notifications/initialized", "tools/call", "tools/call", "notifications/cancelled"]


def test_a11_3_a_sent_call_is_cancelled_at_the_server_and_gets_nothing_of_ours(box):
    fake = box.fake()
    relay = box.warm(fake)
    ident = relay.start_call("late")
    fake.wait_method("tools/call")
    relay.send(message("notifications/cancelled", params={"requestId": ident, "reason": "r"}))
    fake.wait_method("notifications/cancelled")
    assert fake.lines()[-1]["params"] == {"requestId": ident, "reason": "r"}
    relay.call("flush")
    assert [one["id"] for one in relay.kept] == [ident], "a late answer is passed on"
    relay.kept.clear()
    other = relay.start_call("hang")
    relay.send(message("notifications/cancelled", params={"requestId": other}))
    failed(relay, relay.start_call("die", how="exit3"))
    assert relay.barrier() == [], "no error for a cancelled id"


def test_a11_3_k2_a_cancelled_call_does_not_hold_off_the_idle_stop(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=40ms")
    ident = relay.start_call("hang")
    fake.wait_method("tools/call")
    relay.send(message("notifications/cancelled", params={"requestId": ident}))
    until(relay.asleep, what="the idle stop")
    assert relay.finish() == []


@pytest.mark.parametrize("params", [None, {}, {"requestId": "unknown"}, {"requestId": 0}, {"requestId": None}, [1]])
def test_a11_3_other_cancels_are_harmless(box, params):
    """`initialize` (id 0) cannot be cancelled; an unknown id is no error."""
    fake = box.fake()
    relay = box.relay(fake)
    relay.send(initialize(0), message("notifications/cancelled", params=params))
    relay.result(0)
    relay.send(INITIALIZED)
    assert relay.call("pid")["calls"] == 1 and relay.kept == []


# ----------------------------------------------------------------------------------- idle stop (A12)

def test_a12_1_a12_3_idle_stop_and_wake(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=50ms")
    first = relay.call("pid")["pid"]
    until(relay.asleep, what="the idle stop")
    assert len(relay.ask("tools/list")["tools"]) == 1 and relay.asleep(), "answered from the recording again"
    second = relay.call("pid")["pid"]
    assert first != second and fake.starts() == 3
    assert relay.kept == []


def test_case_018_a12_2_an_open_call_is_not_idle(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=100ms")
    first = relay.start_call("sleep", s=0.4)
    relay.result(first)
    pid = relay.call("pid")["pid"]
    assert fake.starts() == 2 and fake.pid() == pid, "the clock starts after the last answer"
    until(relay.asleep, what="the idle stop")
    assert relay.call("pid")["pid"] != pid


def test_a12_2_a11_5_a_question_of_the_server_is_not_idle(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=50ms")
    relay.call("ask", ids=["q"], methods=["sampling/createMessage"], forget=True)
    begun = time.monotonic()
    until(lambda: relay.asleep() or time.monotonic() - begun > 0.3, what="time")
    assert not relay.asleep(), "it waits for the client"
    relay.send({"jsonrpc": "2.0", "id": "q", "result": {}})
    until(relay.asleep, what="the idle stop")


def test_a12_1_lines_of_the_server_restart_the_clock(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=250ms")
    fake.set(tick=0.02)
    relay.call("pid")
    begun = time.monotonic()
    until(lambda: relay.asleep() or time.monotonic() - begun > 0.6, what="time")
    assert not relay.asleep()


def test_a12_2_without_a_recording_nothing_is_stopped(box):
    """A version-less handshake has no entry: to stop the server would lose the session."""
    fake = box.fake(init_raw='{"protocolVersion":"x","capabilities":{},"serverInfo":{"name":"f","version":"1"}}')
    relay = box.relay(fake, "--idle-stop=30ms")
    line = initialize()
    del line["params"]["protocolVersion"]
    relay.send(line)
    relay.result(0)
    relay.send(INITIALIZED)
    pid = relay.call("pid")["pid"]
    begun = time.monotonic()
    until(lambda: relay.asleep() or time.monotonic() - begun > 0.25, what="time")
    assert relay.call("pid")["pid"] == pid


def test_a12_2_a_handshake_under_way_is_not_idle(box):
    fake = box.fake(delay={"initialize": 0.3})
    relay = box.relay(fake, "--idle-stop=30ms")
    relay.handshake()
    assert fake.starts() == 1


def test_a12_4_recorded_answers_go_out_while_the_server_stops(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=30ms")
    fake.set(ignore_eof=True, ignore=["SIGTERM"])
    relay.call("pid")
    fake.wait_for("eof", 2)  # the ladder has begun; it takes 750 ms with this one
    begun = time.monotonic()
    assert relay.ask("ping") == {} and len(relay.ask("tools/list")["tools"]) == 1
    assert time.monotonic() - begun < 0.4 and not relay.asleep()
    old = fake.pid()
    fake.set(ignore_eof=False, ignore=[])
    assert relay.call("pid")["pid"] != old, "A8.7: queued, then the next generation"
    assert not alive(old)


def test_a12_4_recorded_answers_go_out_while_a_replay_runs(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(boot=0.4)
    ident = relay.start_call("pid")
    relay.ask("ping")
    assert len(relay.ask("tools/list")["tools"]) == 1
    assert "tools/call" not in fake.methods(), "the answers came before the server was up"
    relay.result(ident)


# ------------------------------------------------------------------------------- the deadline (A10.1-4)

def test_a10_3_cold_start_that_times_out_and_is_tried_again(box):
    fake = box.fake(hang_at=["initialize"])
    relay = box.relay(fake, "--start-timeout=150ms")
    relay.send(initialize())
    failed(relay, 0, "timed out", "150ms")
    old = fake.wait_for("start")[0]["pid"]
    assert until(lambda: not alive(old), what="the end of the old server")
    fake.set(hang_at=[])
    relay.send(initialize(1))
    relay.result(1)
    relay.send(INITIALIZED)
    assert relay.call("pid")["calls"] == 1


def test_a10_3_a_replay_that_times_out_fails_all_that_waits_and_replays_none_of_it(box):
    fake = box.fake()
    relay = box.warm(fake, "--start-timeout=400ms")
    fake.set(hang_at=["initialize"])
    idents = [relay.start_call("pid") for _ in range(3)]
    for ident in idents:
        failed(relay, ident, "timed out after 400ms")
    fake.set()
    assert relay.call("pid")["calls"] == 1
    assert fake.methods().count("tools/call") == 1, "A10.3: no retry"
    assert relay.kept == []


def test_a10_1_the_deadline_is_not_extended_by_progress(box):
    fake = box.fake()
    relay = box.warm(fake, "--start-timeout=300ms")
    fake.set(hang_at=["initialize"], tick=0.02)
    begun = time.monotonic()
    failed(relay, relay.start_call("pid"), "timed out")
    assert time.monotonic() - begun < 2


def test_a10_4_the_deadline_does_not_limit_a_call(box):
    fake = box.fake()
    relay = box.warm(fake, "--start-timeout=500ms")
    assert relay.call("sleep", s=0.7) == {"slept": 0.7}


@slow
def test_case_023_long_and_silent_calls_have_no_limit(box):
    """Case 023 in short: the case's minutes are seconds here."""
    fake = box.fake()
    relay = box.relay(fake, "--start-timeout=400ms", "--idle-stop=200ms")
    relay.handshake()
    assert relay.call("sleep", s=2.0) == {"slept": 2.0}


def test_a10_2_a_hanging_refresh_is_fatal_by_default(box):
    fake = box.fake()
    relay = box.warm(fake, "--start-timeout=400ms")
    fake.set(hang_at=["tools/list"])
    failed(relay, relay.start_call("hang"), "timed out after 400ms")


def test_a10_2_and_need_not_be(box):
    fake = box.fake()
    relay = box.warm(fake, "--start-timeout=300ms", "--refresh-fatal=false")
    fake.set(hang_at=["tools/list"])
    pid = relay.call("pid")["pid"]
    assert relay.call("sleep", s=0.5) and relay.call("pid")["pid"] == pid, "it lives beyond the deadline"


def test_a10_1_a_second_initialize_to_a_live_server_has_a_deadline(box):
    fake = box.fake(hang_at={"initialize": 1})
    relay = box.relay(fake, "--start-timeout=300ms")
    relay.handshake()
    relay.call("pid")
    relay.send(initialize("x", version="2025-03-26"))
    failed(relay, "x", "timed out after 300ms")


def test_a10_11_a_server_that_never_reads_does_not_block_us(box):
    fake = box.fake(never_read=True)
    relay = box.relay(fake, "--start-timeout=200ms")
    line = initialize()
    line["params"]["pad"] = "p" * (1 << 20)
    relay.send(line)
    failed(relay, 0, "timed out")
    fake.set(never_read=False)
    relay.send(initialize(1))
    relay.result(1)


def test_a10_11_signals_work_while_a_server_never_reads(box):
    fake = box.fake(never_read=True)
    relay = box.relay(fake)
    line = initialize()
    line["params"]["pad"] = "p" * (1 << 20)
    relay.send(line)
    fake.wait_for("start")
    relay.signal(signal.SIGTERM)
    assert relay.wait(3) == 0


# --------------------------------------------------------------------------------- failures (A10.5-10)

def test_a10_6_a_program_that_is_not_on_path(box):
    relay = box.relay(["no-such-program-xyz"])
    relay.send(initialize(), message("tools/list", 1))
    text = failed(relay, 0, "cannot start the server", "no-such-program-xyz")
    assert "PATH" in text
    failed(relay, 1, "cannot start the server")
    relay.send(message("tools/list", 2))
    failed(relay, 2, "cannot start the server")
    assert relay.finish() == []


def test_a10_5_the_causes_of_a_failed_spawn_are_told_apart(box):
    """Not on PATH, no such file, a directory, no execute bit, its interpreter missing and which."""
    plain = box.path / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o644)
    orphan = box.path / "orphan"
    orphan.write_text("#!/opt/none/such-interpreter -x\n")
    orphan.chmod(0o755)
    texts = {}
    for name, word in (("path", "no-such-xyz"), ("file", str(box.path / "none")), ("dir", str(box.path)), ("bit", str(plain)),
                       ("interpreter", str(orphan))):
        relay = box.relay([word])
        relay.send(initialize())
        texts[name] = failed(relay, 0, "cannot start the server")
    assert "PATH" in texts["path"]
    assert "director" in texts["dir"]
    assert "execut" in texts["bit"]
    assert "/opt/none/such-interpreter" in texts["interpreter"]
    assert len(set(re.sub(r"\W*(%s|\S*/\S+)" % "|".join(texts), "", text) for text in texts.values())) == 5, texts


def test_a10_6_a_file_that_is_no_program(box):
    junk = box.path / "junk"
    junk.write_bytes(b"\x7fELF not really")
    junk.chmod(0o755)
    relay = box.relay([str(junk)])
    relay.send(initialize())
    failed(relay, 0, "cannot start the server")


@pytest.mark.parametrize("how, words", [("exit3", ["exit status 3"]), ("exit0", ["exit status 0"]), ("SIGSEGV", ["SIGSEGV"]),
                                        ("SIGKILL", ["SIGKILL"]), ("SIGTERM", ["SIGTERM"])])
def test_a10_8_case_010_how_the_server_ended_is_said(box, how, words):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    failed(relay, relay.start_call("die", how=how), "server exited", "fake.py", *words)
    assert relay.call("pid")["calls"] == 1


def test_case_010_answers_before_death_arrive_and_halves_do_not(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.call("pid")
    hanging = relay.start_call("hang")
    dying = relay.start_call("die", how="exit7", stderr="fatal: disk on fire\n",
                             partial='{"jsonrpc":"2.0","id":%d,"resu' % hanging)
    begun = time.monotonic()
    failed(relay, hanging, "exit status 7", "disk on fire")
    failed(relay, dying, "exit status 7", "disk on fire")
    assert time.monotonic() - begun < 1
    assert not any(b'"resu' in line and b"result" not in line for line in relay.raw)
    assert relay.call("pid")["calls"] == 1 and fake.starts() == 2


def test_a10_8_the_answer_written_before_death_is_delivered(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    ident = relay.start_call("die", how="exit7", answer="the last word")
    assert relay.result(ident)["content"][0]["text"] == "the last word"
    assert relay.barrier() == []


def test_a10_9_a_death_with_nothing_open_is_silent(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    os.kill(relay.call("pid")["pid"], signal.SIGKILL)
    until(relay.asleep, what="the reaping")
    assert relay.barrier() == [] and relay.stderr() == ""
    assert relay.call("pid")["calls"] == 1


def test_case_187_a_server_that_leaves_after_each_call(box):
    """Three calls, three processes, no error (they left with the handshake done: no back-off)."""
    fake = box.fake(one_call=True)
    relay = box.relay(fake)
    relay.handshake()
    pids = set()
    for _ in range(3):
        pids.add(relay.call("pid")["pid"])
        until(relay.asleep, what="the reaping")
    assert len(pids) == 3


def test_case_024_a_call_is_never_sent_twice(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    begun = time.monotonic()
    failed(relay, relay.start_call("die", how="exit1"), "server exited")
    assert time.monotonic() - begun < 1
    relay.call("pid")
    assert fake.methods().count("tools/call") == 2


def test_a10_7_a_refused_handshake(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(refuse={"initialize": {"code": -32602, "message": "not today"}})
    first, second = relay.start_call("pid"), relay.start_call("pid")
    failed(relay, first, "refused the handshake")
    failed(relay, second, "refused the handshake")
    assert "tools/call" not in fake.methods()
    fake.set()
    assert relay.call("pid")["calls"] == 1


def test_a10_7_an_answer_without_a_result_is_a_refusal(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(hang_at=["initialize"], noise={"initialize": '{"jsonrpc":"2.0","id":"mcp-lazy-init-1"}\n'})
    failed(relay, relay.start_call("pid"), "refused the handshake")


def test_a10_10_a_server_that_stops_accepting_input(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    pid = relay.call("pid")["pid"]
    relay.call("deaf")
    until(lambda: not os.path.exists("/proc/%d/fd/0" % pid), what="the end of its stdin")
    failed(relay, relay.start_call("pid"), "stopped accepting input")
    until(lambda: not alive(pid), what="the ladder")
    assert relay.call("pid")["calls"] == 1


def test_a10_13_restart_backoff(box):
    """After three ends before the handshake the next start waits; meanwhile the reason is told at once, and the log tells it."""
    fake, log = box.fake(die="exit3", stderr="no index\n"), box.path / "log"
    relay = box.relay(fake, "--restart-backoff=300ms", "--log-file", log)
    for ident in range(3):
        relay.send(initialize(ident))
        failed(relay, ident, "exit status 3")
    assert fake.starts() == 3
    begun = time.monotonic()
    relay.send(initialize(3))
    failed(relay, 3, "exit status 3")
    assert fake.starts() == 3 and time.monotonic() - begun < 0.3, "answered at once, not started"
    lines = [line for line in log.read_text().splitlines() if "exited (" in line or "put off" in line]
    assert ["put off" in line for line in lines] == [False, False, False, True], lines
    assert "3 starts" in lines[3] and "0.3 s" in lines[3] and not is_trouble(lines[3]), "doctor tells the cause"
    fake.set(die=None, stderr=None)
    for ident in range(4, 1000):  # the delay passes, then it works
        relay.send(initialize(ident))
        if "result" in relay.answer(ident):
            break
        until(lambda: True, what="nothing")
        time.sleep(0.01)
    assert fake.starts() == 4 and time.monotonic() - begun >= 0.2


def test_a10_13_no_backoff_when_it_is_zero(box):
    fake = box.fake(die="exit3")
    log = box.path / "log"
    relay = box.relay(fake, "--restart-backoff=0", "--log-file", log)
    for ident in range(6):
        relay.send(initialize(ident))
        failed(relay, ident, "exit status 3")
    assert fake.starts() == 6 and "put off" not in log.read_text()


def test_a10_5_secrets_of_the_environment_are_not_shown(box):
    secrets = {"API_TOKEN": "tok-aaaa-1111", "DB_PASSWORD": "pw bbbb 2222", "MY_SECRET_X": "sec/cccc", "SOMEKEY": "key+dddd"}
    fake = box.fake()
    relay = box.relay(fake, env=box.env(PLAIN="visible-value", **secrets))
    relay.handshake()
    said = "login failed for " + " ".join(secrets.values()) + " visible-value\n"
    text = failed(relay, relay.start_call("die", how="exit3", stderr=said), "login failed", "***", "visible-value")
    for value in secrets.values():
        assert value not in text


def test_a10_5_only_the_end_of_stderr_is_shown(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    said = "".join("line %04d of a long story\n" % n for n in range(2000))
    text = failed(relay, relay.start_call("die", how="exit3", stderr=said), "line 1999")
    assert "line 0000" not in text and len(text) < 1200
    assert len("".join(re.findall(r"line \d{4} of a long story", text))) <= 400


def test_a10_5_stderr_that_is_no_text(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    text = failed(relay, relay.start_call("die", how="exit3", stderr_hex=b"\x1b[31mred\0\7 \xe2\x82\xac \xff\xfe\xe2\x82".hex()), "red")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", text), "no control characters reach the client's screen"


def test_a10_5_the_phase_is_said(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(die_at={"initialize": "exit3"})
    start = failed(relay, relay.start_call("pid"), "server exited", "exit status 3")
    fake.set()
    call = failed(relay, relay.start_call("die", how="exit3"), "server exited", "exit status 3")
    assert "handshake" in start and "call" in call, (start, call)


# --------------------------------------------------------------------------------------- noise (A10.14)

def test_case_001_noise_on_stdout_never_reaches_the_client(box):
    log = box.path / "log"
    fake = box.fake(say='=== Fake 3.1 ===\n{ loading plugins }\n{"level":"info","msg":"no frame"}\n\n[warn] x]\n12\n"s"\nnull\n')
    relay = box.relay(fake, "--log-file", log)
    relay.handshake()
    ident = relay.start_call("raw", text="calling go...\r\n{]}\n")
    relay.result(ident)
    assert relay.barrier() == []
    assert len(relay.raw) == 3, relay.raw
    relay.finish()
    assert "non-JSON stdout line (16 bytes)" in log.read_text()
    assert "non-JSON stdout line" in log.read_text() and log.read_text().count("non-JSON stdout line") >= 6
    assert "loading plugins" not in (box.recordings()[0]).read_text()


def test_a10_14_noise_goes_to_stderr_when_verbose(box):
    fake = box.fake(say="Server ready, have fun\n")
    relay = box.relay(fake, "--verbose")
    relay.handshake()
    until(lambda: "have fun" in relay.stderr(), what="the noise on stderr")
    assert not any(line.startswith("Server ready") for line in relay.stderr().splitlines()), "with a prefix"


def test_a10_14_a_byte_order_mark_is_dropped(box):
    fake = box.fake(say="\xef\xbb\xbf")
    relay = box.relay(fake)
    relay.handshake()
    assert relay.raw[0].startswith(b"{")


def test_a10_14_broken_answers_to_the_relay_are_noise(box):
    """What the relay itself reads is parsed whole: a broken list answer changes no recording."""
    fake = box.fake()
    relay = box.warm(fake, "--refresh-fatal=false", "--start-timeout=300ms")
    relay.ask("tools/list")
    fake.set(hang_at=["tools/list"], noise={"tools/list": '{"jsonrpc":"2.0","id":"mcp-lazy-check-1-tools/list","result":{"tools":[1 2]}}\n'})
    relay.call("sleep", s=0.4)
    assert relay.barrier() == []
    relay.finish()
    fake.set()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 1


@pytest.mark.parametrize("say, word", [
    ('Content-Length: 76\r\n\r\n{"jsonrpc":"2.0","id":0,"result":{}}', "Content-Length"),
    ('{\n  "jsonrpc": "2.0",\n  "id": 0,\n  "result": {}\n}\n', "several lines"),
    ("Welcome to the server\nUsage: server FILE\n", "text")])
def test_a10_14_a_failed_handshake_says_what_the_noise_looked_like(box, say, word):
    fake = box.fake(say=say, hang_at=["initialize"])
    relay = box.relay(fake, "--start-timeout=300ms")
    relay.send(initialize())
    text = failed(relay, 0, "timed out")
    assert word.lower() in text.lower(), text


def test_a10_14_a_line_that_never_ends_is_not_a_message(box):
    fake = box.fake(hang_at=["initialize"], say='{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"x"')
    relay = box.relay(fake, "--start-timeout=200ms")
    relay.send(initialize())
    failed(relay, 0, "timed out")
    assert len(relay.raw) == 1


@slow
def test_a10_15_a_client_that_does_not_read_bounds_our_memory(box):
    """More than 32 MiB for a client that stops reading: the server is held up, not our memory filled."""
    from harness import memory_kib
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    before = memory_kib(relay.pid)
    ident = relay.start_call("notify", times=1600, bytes=65536)  # 100 MiB
    last = [0, 0]

    def settled():
        now = memory_kib(relay.pid)
        last[1] = last[1] + 1 if now == last[0] else 0
        last[0] = now
        return last[1] > 60
    until(settled, timeout=15, what="the memory to settle")
    assert memory_kib(relay.pid) - before < 80 * 1024, "KiB"
    relay.result(ident, timeout=20)
    assert len(notifications(relay.kept)) == 1600


# -------------------------------------------------------------------------------- call-timeout (A1.10)

def test_a1_10_call_timeout_cancels_the_call_and_keeps_the_server(box):
    fake = box.fake()
    relay = box.relay(fake, "--call-timeout=200ms")
    relay.handshake()
    pid = relay.call("pid")["pid"]
    ident = relay.start_call("hang")
    failed(relay, ident, "timed out after 200ms")
    fake.wait_method("notifications/cancelled")
    assert fake.lines()[-1]["params"]["requestId"] == ident
    assert relay.call("pid")["pid"] == pid
    assert relay.barrier() == []


# -------------------------------------------------------------------------------------- stderr (A15)

def test_a15_1_stderr_of_the_server_comes_through_as_the_same_bytes(box):
    fake = box.fake(stderr="start of the \u00e9nd\n")
    relay = box.relay(fake)
    relay.handshake()
    relay.call("stderr", text="no newline at the end")
    until(lambda: "no newline at the end" in relay.stderr(), what="the server's stderr")
    assert relay.stderr() == "start of the \u00e9nd\nno newline at the end"
    assert relay.call("status")["fds"][2][1].startswith("pipe:")


def test_a15_1_inherit_hands_the_descriptor_over(box):
    fake = box.fake()
    relay = box.relay(fake, "--stderr=inherit")
    relay.handshake()
    assert relay.call("status")["fds"][2] == [2, str(relay.stderr_path)]
    failed(relay, relay.start_call("die", how="exit3"), "exit status 3")


def test_a15_2_stderr_log(box):
    log = box.path / "server.log"
    log.write_text("before\n")
    log.chmod(0o600)
    fake = box.fake()
    relay = box.relay(fake, "--stderr-log", log)
    relay.handshake()
    assert relay.call("status")["fds"][2] == [2, str(log)], "no copying through the relay"
    failed(relay, relay.start_call("die", how="exit3", stderr="in the file: why\n"), "in the file: why")
    assert log.read_text() == "before\nin the file: why\n" and relay.stderr() == ""


def test_a15_2_stderr_log_is_created_private(box):
    log = box.path / "server.log"
    fake = box.fake()
    relay = box.relay(fake, "--stderr-log", log)
    relay.handshake()
    assert log.stat().st_mode & 0o777 == 0o600


# ------------------------------------------------------------------------------------- start locks (034)

def test_case_034_a_failed_start_is_dead_before_any_new_start(box):
    """The case wants it dead before the error too; A10.3 sends the error first, and the specification wins."""
    lock = box.path / "lock"
    fake = box.fake(lock=str(lock), hang_at=["initialize"], ignore_eof=True, ignore=["SIGTERM"])
    relay = box.relay(fake, "--start-timeout=200ms", "--stop-grace=50ms")
    relay.send(initialize())
    failed(relay, 0, "timed out")
    fake.set(hang_at=[])
    relay.send(initialize(1))
    relay.result(1)
    assert "the lock is taken" not in relay.stderr()
    fake.set(ignore_eof=False, ignore=[])
    assert group(fake.events("start")[0]["pid"]) == []
