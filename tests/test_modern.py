"""The 2026-07-28 era with real processes: no handshake, discovery, listings, listen streams, pages, two eras
on one connection (A5.10, A6.5, A6.9, A17, B5-B7, protocol notes sections 4 and 8)."""

import json
import os
import random
import re
from pathlib import Path

import pytest

from harness import INITIALIZED, WAIT_S, initialize, message, until

SERVER = str(Path(__file__).resolve().parent / "servers" / "modern.py")
MCP = "io.modelcontextprotocol/"
SUBSCRIPTION = MCP + "subscriptionId"
MODERN = "2026-07-28"
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
ACK = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
CLAUDE = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}  # what it declares in both eras
IDLE = "--idle-stop=200ms"  # longer than a request takes on a busy machine
slow = pytest.mark.slow


# ------------------------------------------------------------------------------------------ helpers

def modern(box, **flags):
    """The command of one server of tests/servers/modern.py."""
    box.server = SERVER
    return box.fake(**flags)


def meta(version=MODERN, caps=None, name="client", client_version="1", **more):
    """Params of a modern request: the envelope, with further `_meta` members from `more`."""
    found = {MCP + "protocolVersion": version, MCP + "clientInfo": {"name": name, "version": client_version},
             MCP + "clientCapabilities": caps if caps is not None else {}}
    found.update(more)
    return {"_meta": found}


def asked(relay, method, ident=None, params=None, **members):
    """The whole answer to one modern request; `members` are further params."""
    return relay.answer(relay.request(method, dict(params or meta(), **members), ident))


def ask(relay, method, ident=None, params=None, **members):
    found = asked(relay, method, ident, params, **members)
    assert "result" in found, found
    return found["result"]


def refused(relay, method, code, params=None, **members):
    found = asked(relay, method, None, params, **members)
    assert "error" in found and found["error"]["code"] == code, found
    return found["error"]


def call(relay, tool="echo", params=None, **arguments):
    return ask(relay, "tools/call", None, params, name=tool, arguments=arguments)


def record(box, fake, methods=("server/discover", "tools/list"), *options, params=None):
    """A first session that leaves a recording; the answers by method."""
    relay = box.relay(fake, *options)
    found = {method: asked(relay, method, None, params) for method in methods}
    relay.finish()
    return found


def still_asleep(relay, fake, starts):
    """No server runs, none was started; whatever else was said is in `kept`."""
    relay.barrier()
    assert relay.asleep() and fake.starts() == starts, "the server was started: %r" % (fake.methods(),)


def warm(box, fake, methods=("server/discover", "tools/list"), *options, params=None):
    """A second session in front of a sleeping server whose answers to `methods` are recorded."""
    record(box, fake, methods, *options, params=params)
    return box.relay(fake, *options)


def lines_of_last_start(fake):
    """What the newest process got, in order."""
    pid = fake.pid()
    return [one for one in fake.lines() if one["pid"] == pid]


def methods_of_last_start(fake):
    return [one.get("method") for one in lines_of_last_start(fake)]


def aged(box, by_ms):
    """Makes all recordings older: every moment noted in the files goes back by so much, the rest stays byte for byte."""
    for path in box.recordings():
        before = path.read_bytes()
        after = re.sub(rb'("(?:at|[a-z]+At)":)(\d{12,14})\b', lambda found: b"%s%d" % (found[1], int(found[2]) - by_ms), before)
        assert after != before, "no moment in the recording"
        path.write_bytes(after)


def listen(relay, ident="listen:0", notifications=None, params=None):
    """Opens a stream and returns what was granted; the acknowledgement carries the id in its own type."""
    relay.request("subscriptions/listen", dict(params or meta(), notifications=ALL if notifications is None else notifications), ident)
    found = relay.until_message(lambda one: one.get("method") == ACK)
    tag = found["params"]["_meta"][SUBSCRIPTION]
    assert type(tag) is type(ident) and tag == ident, found
    assert "id" not in found and found["jsonrpc"] == "2.0"
    return found["params"]["notifications"]


def is_change(found, ident, method=CHANGED):
    tag = found.get("params", {}).get("_meta", {}).get(SUBSCRIPTION) if isinstance(found.get("params"), dict) else None
    return found.get("method") == method and type(tag) is type(ident) and tag == ident


def until_asleep(relay):
    until(relay.asleep, what="the idle stop")


def names(result):
    return [one["name"] for member in ("tools", "prompts", "resources", "resourceTemplates") for one in result.get(member, ())]


# ------------------------------------------------------------------------ which requests are modern (A17.1)

@pytest.mark.parametrize("wrong", [
    {"progressToken": 0}, {MCP + "protocolVersion": 20260728}, {MCP + "protocolVersion": None}, None, []])
def test_a17_1_what_does_not_carry_a_version_string_is_not_modern(box, wrong):
    """A list without a version in its `_meta` is not answered from what was recorded for the modern era."""
    fake = modern(box, tools=2, strict=True)
    relay = warm(box, fake)
    starts = fake.starts()
    assert asked(relay, "tools/list", params={"_meta": wrong})["error"]["code"] == -32602, "the server's own refusal"
    assert fake.starts() == starts + 1


def test_a17_1_discover_is_modern_with_any_params(box):
    """A probe without an envelope is no part of a legacy handshake: -32601 is kept under its exact params (B5)."""
    fake = modern(box)
    relay = box.relay(fake)
    first = relay.answer(relay.request("server/discover"))
    assert first["error"]["code"] == -32601
    relay.finish()
    again = box.relay(fake)
    assert again.answer(again.request("server/discover", ident=7))["error"] == first["error"]
    still_asleep(again, fake, 1)


# --------------------------------------------------------- recording and serving (A17.3, A17.4, A17.5, trap 3)

def test_a17_4_discover_and_the_four_lists_are_served_without_a_server(box):
    fake = modern(box, tools=3, prompts=2, resources=2, templates=1, ttl=0, announce=True)
    methods = ("server/discover",) + LISTS
    first = record(box, fake, methods)
    relay = box.relay(fake)
    for number, method in enumerate(methods):
        assert asked(relay, method, "w-%d" % number)["result"] == first[method]["result"], method
    still_asleep(relay, fake, 1)


def test_trap_3_a_list_is_the_first_line_of_a_session(box):
    """A client that probed a sibling process opens with a listing: no discover, no handshake, cold and warm."""
    fake = modern(box, tools=2)
    first = record(box, fake, ("tools/list",))
    assert fake.methods() == ["tools/list"], "nothing of the relay's own comes before it"
    relay = box.relay(fake)
    assert ask(relay, "tools/list") == first["tools/list"]["result"]
    still_asleep(relay, fake, 1)


def test_trap_3_the_probe_of_a_sibling_and_the_list_of_another_session_meet(box):
    fake = modern(box, tools=2)
    record(box, fake, ("server/discover",))
    record(box, fake, ("tools/list",))
    relay = box.relay(fake)
    starts = fake.starts()
    assert ask(relay, "server/discover")["supportedVersions"] == [MODERN]
    assert len(ask(relay, "tools/list")["tools"]) == 2
    still_asleep(relay, fake, starts)


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_a17_4_trap_6_members_that_are_not_in_the_key(box, method):
    """progressToken (0 too), logLevel, trace members and the client's name and version; cursor null; the order."""
    fake = modern(box, tools=2)
    relay = warm(box, fake)
    same = [meta(progressToken=0), meta(progressToken="t"), meta(traceparent="00-1-2-01", tracestate="a=b", baggage="c=d"),
            meta(**{MCP + "logLevel": "debug"}), meta(client_version="2"), meta(name="other"), dict(meta(), cursor=None),
            {"_meta": dict(reversed(list(meta()["_meta"].items())))}]
    without = meta()
    del without["_meta"][MCP + "clientInfo"]
    for params in same + [without]:
        if method == "server/discover" and "cursor" in params:
            continue
        assert "result" in relay.answer(relay.request(method, params)), params
    still_asleep(relay, fake, 1)


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
@pytest.mark.parametrize("other", [
    meta(caps={"elicitation": {}}), dict(meta(), more=1), dict(meta(), cursor="x")], ids=["capabilities", "param", "cursor"])
def test_a17_4_members_that_are_in_the_key(box, method, other):
    fake = modern(box, tools=2, ask_caps=True)
    relay = warm(box, fake)
    relay.answer(relay.request(method, other))
    assert fake.starts() == 2


@slow
def test_a17_4_capabilities_are_compared_as_values(box):
    """Order and spelling of the capabilities do not matter, their content does; both are kept side by side."""
    fake = modern(box, tools=1, ask_caps=True)
    one, two = {"a": {"x": 1, "y": [1]}, "b": {}}, {"elicitation": {}}
    record(box, fake, ("tools/list",), params=meta(caps=one))
    record(box, fake, ("tools/list",), params=meta(caps=two))
    relay = box.relay(fake)
    starts = fake.starts()
    assert len(ask(relay, "tools/list", params=meta(caps={"b": {}, "a": {"y": [1], "x": 1}}))["tools"]) == 1
    assert len(ask(relay, "tools/list", params=meta(caps=two))["tools"]) == 4
    still_asleep(relay, fake, starts)


def test_a17_4_the_version_is_in_the_key(box):
    fake = modern(box, tools=2, knows=[MODERN, "2027-01-01"])
    relay = warm(box, fake)
    assert ask(relay, "tools/list", params=meta("2027-01-01"))["tools"]
    assert fake.starts() == 2


def test_a17_4_a5_9_a_scope_separates_clients(box):
    fake = modern(box, tools=2)
    relay = warm(box, fake, ("tools/list",), "--cache-scope=client")
    assert ask(relay, "tools/list", params=meta(client_version="9"))["tools"]
    still_asleep(relay, fake, 1)
    assert ask(relay, "tools/list", params=meta(name="other"))["tools"]
    assert fake.starts() == 2


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
@pytest.mark.parametrize("code", [-32603, -32000, -32602, -32600, -32021, -32020])
def test_a17_4_a6_5_other_errors_are_not_recorded(box, method, code):
    fake = modern(box, tools=2, refuse={method: {"code": code, "message": "not now"}})
    assert record(box, fake, (method,))[method]["error"]["code"] == code
    fake.set(refuse={})
    relay = box.relay(fake)
    assert ask(relay, method)
    assert fake.starts() == 2


@slow
def test_a17_4_a_list_that_the_server_does_not_have(box):
    """-32601 to a list is recorded, and replaced by the first success."""
    fake = modern(box)
    first = record(box, fake, ("server/discover", "prompts/list"))["prompts/list"]
    assert first["error"]["code"] == -32601
    relay = box.relay(fake)
    assert asked(relay, "prompts/list")["error"] == first["error"]
    still_asleep(relay, fake, 1)
    fake.set(prompts=2)
    call(relay)
    assert len(ask(relay, "prompts/list")["prompts"]) == 2
    relay.finish()
    again = box.relay(fake)
    assert len(ask(again, "prompts/list")["prompts"]) == 2
    still_asleep(again, fake, 2)


def test_a17_4_an_unknown_version_is_recorded(box):
    """-32022 with its data, under the version that was asked for."""
    fake = modern(box, knows=["2027-01-01"])
    first = record(box, fake, ("server/discover",))["server/discover"]
    assert first["error"]["code"] == -32022
    relay = box.relay(fake)
    assert asked(relay, "server/discover", "again")["error"] == first["error"]
    assert first["error"]["data"] == {"supported": ["2027-01-01"], "requested": MODERN}
    still_asleep(relay, fake, 1)


@pytest.mark.parametrize("kind", ["input_required", "task", "later"])
def test_a17_4_a17_9_results_that_are_not_complete_are_not_recorded(box, kind):
    fake = modern(box, raw_result={"tools/list": '{"tools":[],"resultType":"%s","requestState":"s"}' % kind})
    assert record(box, fake, ("tools/list",))["tools/list"]["result"]["resultType"] == kind
    fake.set(raw_result={}, tools=2)
    relay = box.relay(fake)
    assert len(ask(relay, "tools/list")["tools"]) == 2
    assert fake.starts() == 2


def test_a17_9_input_required_passes_and_its_retry_is_an_ordinary_request(box):
    fake = modern(box)
    for _ in range(2):
        relay = box.relay(fake)
        first = call(relay, "confirm")
        assert first["resultType"] == "input_required" and first["inputRequests"]["sure"]["method"] == "elicitation/create"
        again = ask(relay, "tools/call", name="confirm", arguments={}, inputResponses={"sure": {"action": "accept"}},
                    requestState=first["requestState"])
        assert again["confirmed"] == {"sure": {"action": "accept"}} and again["state"] == first["requestState"]
        relay.finish()
    assert len(fake.events("call")) == 4
    assert b"requestState" not in b"".join(path.read_bytes() for path in box.recordings())


def test_a17_5_all_but_the_hints_is_verbatim(box):
    """Spelling of numbers, escapes, order and unknown members are the server's; -0 and big numbers too."""
    text = ('{"x":1.0,"tools":[{"name":"\\u0061","inputSchema":{"type":"object"},"n":1E+2,"big":123456789012345678901234567890}],'
            '"ttlMs":0,"_meta":{"k/v":[-0.0]},"resultType":"complete","cacheScope":"public","later":{"ttlMs":5,"cursor":null}}')
    fake = modern(box, raw_result={"tools/list": text})
    relay = warm(box, fake, ("tools/list",))
    relay.answer(relay.request("tools/list", meta(), "one"))
    assert relay.raw[-1] == b'{"jsonrpc":"2.0","id":"one","result":' + text.encode() + b"}\n"
    still_asleep(relay, fake, 1)


# --------------------------------------------------------------------- ttlMs and its age (A17.5, A5.10, trap 5)

@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_a17_5_trap_5_a_ttl_gets_shorter_with_age(box, method):
    fake = modern(box, ttl=60000, scope="public")
    first = record(box, fake, (method,))[method]["result"]
    aged(box, 20000)
    relay = box.relay(fake)
    found = ask(relay, method)
    assert 60000 - 20000 - 1000 * WAIT_S <= found["ttlMs"] <= 40000
    assert dict(found, ttlMs=60000) == first, "nothing else differs"
    still_asleep(relay, fake, 1)


@pytest.mark.parametrize("ttl, age_ms", [(5000, 60000), (0, 1), (-1, 0), (1, 3600000)])
def test_a17_5_a_ttl_never_goes_below_zero_and_the_list_is_still_served(box, ttl, age_ms):
    fake = modern(box, ttl=ttl)
    record(box, fake)
    if age_ms:
        aged(box, age_ms)
    relay = box.relay(fake)
    assert ask(relay, "tools/list")["ttlMs"] == 0
    still_asleep(relay, fake, 1)


def test_a17_5_a_clock_that_was_set_back_extends_nothing(box):
    """A recording from the future is as fresh as a new one, not fresher."""
    fake = modern(box, ttl=60000)
    record(box, fake)
    aged(box, -3600000)
    relay = box.relay(fake)
    assert ask(relay, "tools/list")["ttlMs"] <= 60000


def test_a17_5_a_session_that_lasts_counts_the_time_too(box):
    """The same session, some time later: the ttl has gone on falling."""
    fake = modern(box, ttl=60000)
    relay = warm(box, fake)
    first = ask(relay, "tools/list")["ttlMs"]
    assert 0 < first <= 60000
    until(lambda: ask(relay, "tools/list")["ttlMs"] < first, what="a shorter ttl")
    still_asleep(relay, fake, 1)


@pytest.mark.parametrize("ttl", ['"60000"', "null", "true", "[]", "1e999", "60000.5", "1" + "0" * 400])
def test_a17_5_odd_ttls_are_never_an_error(box, ttl):
    """What is no sensible number of milliseconds is served as a number that is none too long."""
    fake = modern(box, raw_result={"tools/list": '{"tools":[],"ttlMs":%s,"cacheScope":"public","resultType":"complete"}' % ttl})
    relay = warm(box, fake, ("tools/list",))
    found = ask(relay, "tools/list")
    assert fake.starts() == 2 or (type(found["ttlMs"]) is int and 0 <= found["ttlMs"]), found


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_trap_5_members_that_the_server_left_out_are_added(box, method):
    """resultType complete, ttlMs 0, cacheScope private: every modern result has them when the relay gives it."""
    fake = modern(box, bare=True)
    first = record(box, fake, (method,))[method]["result"]
    assert not set(first) & {"resultType", "ttlMs", "cacheScope"}
    relay = box.relay(fake)
    assert ask(relay, method) == dict(first, resultType="complete", ttlMs=0, cacheScope="private")
    still_asleep(relay, fake, 1)


@slow
def test_a5_10_an_old_list_is_served_and_refreshed_behind(box):
    """Past --cache-max-age the answer comes from the recording, and the server is started behind it."""
    fake = modern(box, tools=1, ttl=60000)
    record(box, fake, ("server/discover", "tools/list"), "--cache-max-age=10s")
    young = box.relay(fake, "--cache-max-age=10s")
    ask(young, "tools/list")
    still_asleep(young, fake, 1)
    young.finish()
    aged(box, 20000)
    fake.set(tools=2)
    relay = box.relay(fake, "--cache-max-age=10s", IDLE)
    assert len(ask(relay, "tools/list")["tools"]) == 1
    fake.wait_for("start", 2)
    fake.wait_method("tools/list", 2)
    until_asleep(relay)
    relay.finish()
    again = box.relay(fake)
    assert len(ask(again, "tools/list")["tools"]) == 2


# ------------------------------------------------------------------------- what is never recorded (A6.5, A17.3)

@slow
@pytest.mark.parametrize("enveloped", [True, False])
def test_a6_5_a_call_before_any_handshake_is_executed_each_time(box, enveloped):
    """The same call in three sessions is three calls; nothing of it is in a recording (K2)."""
    fake = modern(box)
    for number in range(1, 4):
        relay = box.relay(fake)
        params = dict(meta() if enveloped else {}, name="echo", arguments={"secret": "marker-a65"})
        assert relay.result(relay.request("tools/call", params, 1))["echo"] == {"secret": "marker-a65"}
        relay.finish()
        assert len(fake.events("call")) == number and fake.starts() == number
    assert not any(b"marker-a65" in path.read_bytes() for path in box.recordings())


@slow
@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "completion/complete", "tasks/get", "x/unknown",
                                    "tools/list/", "Tools/list"])
@pytest.mark.parametrize("enveloped", [True, False])
def test_a17_3_a6_5_no_other_method_is_recorded(box, method, enveloped):
    """Not even the -32601 of such a method."""
    fake = modern(box)
    record(box, fake, ("server/discover",))
    for number in range(2, 4):
        relay = box.relay(fake)
        params = meta() if enveloped else {}
        assert relay.error(relay.request(method, params))["code"] == -32601
        relay.finish()
        assert fake.starts() == number and fake.methods().count(method) == number - 1


@slow
def test_a6_5_a_call_is_executed_each_time_while_the_lists_are_served(box):
    fake = modern(box)
    relay = warm(box, fake, ("server/discover", "tools/list"), IDLE)
    for number in range(1, 4):
        assert ask(relay, "tools/list")["tools"]
        assert call(relay, x=1)["n"] == 1, "each is the first call of its process"
        until_asleep(relay)
        assert len(fake.events("call")) == number


# ------------------------------------------------------------------------------ the wake (A17.6, traps 2 and 8)

def test_a17_6_the_start_replays_nothing_and_refreshes_what_was_served(box):
    """No handshake; the call in its own bytes; the served list again, with the `_meta` of its last request."""
    fake = modern(box, tools=2, prompts=1, resources=1)
    relay = warm(box, fake, ("server/discover",) + LISTS[:3])
    ask(relay, "tools/list", params=meta(name="first"))
    ask(relay, "tools/list", params=meta(name="last", client_version="7", progressToken=5))
    call(relay, x=1)
    until(lambda: methods_of_last_start(fake).count("tools/list") == 1, what="the refresh")
    relay.finish()
    seen = lines_of_last_start(fake)
    assert not {"initialize", "notifications/initialized", "server/discover", "prompts/list", "resources/list"} & \
        set(methods_of_last_start(fake)), "only what this session was served is asked again"
    (check,) = [one for one in seen if one["method"] == "tools/list"]
    assert isinstance(check["id"], str) and check["id"].startswith("mcp-lazy-")
    envelope = check["params"]["_meta"]
    assert envelope[MCP + "clientInfo"] == {"name": "last", "version": "7"}
    assert envelope[MCP + "protocolVersion"] == MODERN and envelope[MCP + "clientCapabilities"] == {}
    assert "cursor" not in check["params"]


def test_a9_5_a17_6_an_unchanged_list_makes_no_line(box):
    fake = modern(box, tools=2, ttl=5000, announce=True)
    relay = warm(box, fake)
    ask(relay, "server/discover")
    ask(relay, "tools/list")
    listen(relay)
    call(relay)
    until(lambda: "tools/list" in methods_of_last_start(fake), what="the refresh")
    ask(relay, "tools/list")
    relay.barrier()
    assert relay.kept == [], "the refresh and its differing ttl are the relay's own business"


def test_a17_6_drift_is_recorded_and_told_to_nobody_who_did_not_ask(box):
    """Without a stream the modern era has no way to tell: no stray notification, but the next session has the new list."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    fake.set(tools=3)
    call(relay)
    until(lambda: "tools/list" in methods_of_last_start(fake), what="the refresh")
    assert len(ask(relay, "tools/list")["tools"]) == 3
    relay.barrier()
    assert relay.kept == []
    relay.finish()
    again = box.relay(fake)
    assert len(ask(again, "tools/list")["tools"]) == 3
    still_asleep(again, fake, 2)


@slow
def test_b7_a_probe_called_invalid_in_one_process_and_a_handshake_in_another(box):
    """The TypeScript SDK's client probes in a process of its own; Python SDK 1.x answers it -32602."""
    fake = modern(box, era="legacy", tools=1, discover=-32602)
    for _ in range(2):  # probed twice: before and behind the first handshake
        relay = box.relay(fake)
        refused(relay, "server/discover", -32602)
        relay.finish()
        relay = box.relay(fake)
        relay.handshake()
        relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    refused(relay, "server/discover", -32601)
    assert fake.starts() == starts, "known as legacy by now"


@slow
def test_trap_8_calls_that_wait_for_the_start_keep_their_order(box):
    """The stream first, then the calls as they came."""
    fake = modern(box, announce=True, boot=0.2)
    relay = warm(box, fake)
    listen(relay)
    idents = [relay.request("tools/call", dict(meta(), name="echo", arguments={"k": number})) for number in range(20)]
    assert [relay.result(ident)["echo"]["k"] for ident in idents] == list(range(20))
    assert [one["arguments"]["k"] for one in fake.events("call")] == list(range(20))
    assert methods_of_last_start(fake)[0] == "subscriptions/listen"
    assert fake.starts() == 2


def test_a17_6_each_kind_of_client_that_was_served_is_refreshed(box):
    """Two sets of capabilities in one session: two refreshes, each with its own envelope, each kept on its own."""
    fake = modern(box, tools=1, ask_caps=True)
    other = meta(caps={"elicitation": {}})
    record(box, fake, ("tools/list",))
    record(box, fake, ("tools/list",), params=other)
    relay = box.relay(fake)
    ask(relay, "tools/list")
    ask(relay, "tools/list", params=other)
    fake.set(tools=2)
    call(relay)
    until(lambda: methods_of_last_start(fake).count("tools/list") == 2, what="both refreshes")
    relay.barrier()
    relay.finish()
    assert sorted(json.dumps(one["params"]["_meta"][MCP + "clientCapabilities"]) for one in lines_of_last_start(fake)
                  if one["method"] == "tools/list") == ['{"elicitation": {}}', "{}"]
    again = box.relay(fake)
    assert len(ask(again, "tools/list")["tools"]) == 2 and len(ask(again, "tools/list", params=other)["tools"]) == 5
    still_asleep(again, fake, 3)


def test_a9_7_a_discovery_that_changed_is_right_in_the_next_session(box):
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "server/discover")
    fake.set(version="2", prompts=1)
    call(relay)
    fake.wait_method("server/discover", 2)
    relay.barrier()
    assert relay.kept == []
    relay.finish()
    again = box.relay(fake)
    found = ask(again, "server/discover")
    assert found["_meta"][MCP + "serverInfo"]["version"] == "2" and found["capabilities"]["prompts"] == {"listChanged": True}
    still_asleep(again, fake, 2)


def test_a17_6_a_server_that_lost_the_version(box):
    """An update takes 2026-07-28 away: the call gets the server's -32022, and so does the next session's probe."""
    fake = modern(box, tools=1)
    relay = warm(box, fake)
    ask(relay, "server/discover")
    ask(relay, "tools/list")
    fake.set(knows=["2027-01-01"])
    assert refused(relay, "tools/call", -32022, name="echo")["data"]["supported"] == ["2027-01-01"]
    relay.barrier()
    relay.finish()
    again = box.relay(fake)
    assert refused(again, "server/discover", -32022)["data"] == {"supported": ["2027-01-01"], "requested": MODERN}


def test_a9_2_a_list_that_comes_back_empty_is_believed_the_second_time(box):
    """Servers fill their lists late: one empty refresh changes nothing, a second start confirms it."""
    fake = modern(box, tools=2, announce=True)
    record(box, fake)
    fake.set(tools=0)
    for confirmed in (False, True):
        relay = box.relay(fake)
        assert len(ask(relay, "tools/list")["tools"]) == 2
        listen(relay)
        still_asleep(relay, fake, 1 + confirmed)
        call(relay)
        if confirmed:
            relay.until_message(lambda one: is_change(one, "listen:0"))
        else:
            until(lambda: "tools/list" in methods_of_last_start(fake), what="the refresh")
        relay.barrier()
        assert relay.kept == []
        relay.finish()
    again = box.relay(fake)
    assert ask(again, "tools/list")["tools"] == []
    still_asleep(again, fake, 3)


@pytest.mark.parametrize("code", [-32603, -32601])
def test_a9_3_a_refresh_that_is_refused(box, code):
    """An error keeps the recording and is silent; -32601 means that the list is gone, which is a change."""
    fake = modern(box, tools=2, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    listen(relay)
    fake.set(refuse={"tools/list": {"code": code, "message": "not now"}})
    call(relay)
    if code == -32601:
        relay.until_message(lambda one: is_change(one, "listen:0"))
    else:
        until(lambda: "tools/list" in methods_of_last_start(fake), what="the refresh")
    relay.barrier()
    assert relay.kept == []
    relay.finish()
    again = box.relay(fake)
    assert ("result" in asked(again, "tools/list")) == (code != -32601)


def test_a5_7_two_relays_keep_what_both_learnt(box):
    """One registration, two sessions at once, different capabilities and lists: both are in the file afterwards."""
    fake = modern(box, tools=1, prompts=1, ask_caps=True)
    one, two = box.relay(fake), box.relay(fake)
    other = meta(caps={"elicitation": {}})
    ask(one, "tools/list")
    ask(two, "tools/list", params=other)
    ask(one, "prompts/list")
    ask(two, "server/discover", params=other)
    one.finish()
    two.finish()
    relay = box.relay(fake)
    starts = fake.starts()
    assert len(ask(relay, "tools/list")["tools"]) == 1 and len(ask(relay, "tools/list", params=other)["tools"]) == 4
    assert ask(relay, "prompts/list")["prompts"] and ask(relay, "server/discover", params=other)
    still_asleep(relay, fake, starts)


def test_c9_the_wake_predicate_is_armed_by_the_first_modern_request(box):
    """There is no `initialized` in this era; the start that it causes replays nothing and refreshes what was served."""
    fake = modern(box, tools=2)
    record(box, fake)
    ran = box.path / "ran"
    relay = box.relay(fake, "--wake-command", json.dumps(["sh", "-c", "echo >>%s" % ran]), "--wake-interval=10ms")
    still_asleep(relay, fake, 1)
    assert not ran.exists(), "nothing was asked yet"
    ask(relay, "tools/list")
    fake.wait_for("start", 2)
    until(lambda: methods_of_last_start(fake) == ["tools/list"], what="the refresh and nothing else")


def test_a17_6_a_failed_start_answers_the_modern_request(box):
    fake = modern(box, die_at={"tools/call": "exit7"})
    relay = warm(box, fake)
    error = refused(relay, "tools/call", -32000, name="echo", arguments={})
    assert error["message"].startswith("mcp-lazy: ") and "exit status 7" in error["message"]
    fake.set(die_at={})
    assert call(relay, x=2)["echo"] == {"x": 2}


@slow
def test_k1_a10_a_discover_that_is_never_answered_is_an_error_and_no_recording(box):
    fake = modern(box, discover="silence")
    relay = box.relay(fake, "--start-timeout=200ms")
    assert "timed out after 200ms" in refused(relay, "server/discover", -32000)["message"]
    relay.finish()
    fake.set(discover=None)
    again = box.relay(fake)
    assert ask(again, "server/discover")["supportedVersions"] == [MODERN]
    assert fake.starts() == 2


@pytest.mark.parametrize("asks", [["ping"], ["roots/list"], ["ping", "roots/list"]])
def test_a_server_that_asks_at_its_start_holds_nothing_up(box, asks):
    """Modern clients may not write responses: nobody waits for one (2026-07-28, stdio)."""
    fake = modern(box, start_asks=asks)
    relay = warm(box, fake)
    assert call(relay, x=1)["echo"] == {"x": 1}
    assert call(relay, x=2)["n"] == 2
    relay.finish()


# ------------------------------------------------------------------------------- streams held asleep (A17.8)

def test_a17_8_a_stream_is_acknowledged_and_held_without_a_server(box):
    """Granted is what was asked for and what the recorded capabilities announce."""
    fake = modern(box, tools=1, prompts=1, resources=1, caps={
        "tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {"subscribe": True}})
    relay = warm(box, fake)
    assert listen(relay) == {"toolsListChanged": True}
    assert listen(relay, 1, {"promptsListChanged": True}) == {}
    assert listen(relay, 2, {}) == {}
    assert listen(relay, 3, {"toolsListChanged": False, "resourceSubscriptions": []}) == {}
    assert listen(relay, 4, {"toolsListChanged": True, "resourceSubscriptions": []})["toolsListChanged"] is True
    still_asleep(relay, fake, 1)


def test_trap_4_trap_10_ids_keep_their_type(box):
    """0, "0", and a text: three streams, each with its own id and type; drift is told on each."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    idents = (0, "0", "listen:0")
    for ident in idents:
        assert listen(relay, ident) == {"toolsListChanged": True}
    still_asleep(relay, fake, 1)
    fake.set(tools=2)
    call(relay)
    for ident in idents:
        relay.until_message(lambda one: is_change(one, ident))
    relay.barrier()
    assert relay.kept == [], "one notification a stream, and no second acknowledgement"


@pytest.mark.parametrize("wanted", [{"resourceSubscriptions": ["mem://r0"]}, {"toolsListChanged": True, "resourceSubscriptions": ["mem://r0"]},
                                    {"taskIds": ["t"]}, {"somethingNew": True}])
def test_a17_8_what_the_relay_cannot_promise_starts_the_server(box, wanted):
    fake = modern(box, resources=1, announce=True)
    relay = warm(box, fake)
    listen(relay, 5, wanted)
    fake.wait_method("subscriptions/listen")
    (line,) = [one for one in fake.lines() if one["method"] == "subscriptions/listen"]
    assert line["id"] == 5 and line["params"]["notifications"] == wanted
    call(relay)
    relay.barrier()
    assert relay.kept == [], "one acknowledgement: the server's"


@pytest.mark.parametrize("params", [meta(caps={"roots": {}}), None], ids=["other capabilities", "nothing recorded"])
def test_a17_8_without_a_recorded_discovery_the_server_is_asked(box, params):
    fake = modern(box, announce=True)
    if params is None:
        relay = box.relay(fake)
    else:
        relay = warm(box, fake)
    assert listen(relay, 1, params=params) == {"toolsListChanged": True}
    assert fake.methods().count("subscriptions/listen") == 1


def test_a17_8_the_stream_is_opened_at_the_wake_before_the_call(box):
    """The client's own line, its id included; the server's acknowledgement is swallowed."""
    fake = modern(box, announce=True)
    relay = warm(box, fake)
    listen(relay, "listen:0", {"toolsListChanged": True})
    call(relay)
    (line,) = [one for one in fake.lines() if one["method"] == "subscriptions/listen"]
    assert line["id"] == "listen:0" and line["params"] == dict(meta(), notifications={"toolsListChanged": True})
    assert methods_of_last_start(fake)[0] == "subscriptions/listen"
    assert methods_of_last_start(fake).index("subscriptions/listen") < methods_of_last_start(fake).index("tools/call")
    relay.barrier()
    assert relay.kept == []


def test_a17_8_drift_is_announced_on_the_stream(box):
    fake = modern(box, tools=1, prompts=1, announce=True)
    relay = warm(box, fake, ("server/discover", "tools/list", "prompts/list"))
    ask(relay, "tools/list")
    ask(relay, "prompts/list")
    listen(relay, "both", {"toolsListChanged": True, "promptsListChanged": True})
    listen(relay, "prompts", {"promptsListChanged": True})
    fake.set(tools=2, prompts=1)
    call(relay)
    relay.until_message(lambda one: is_change(one, "both"))
    assert len(ask(relay, "tools/list")["tools"]) == 2
    relay.barrier()
    assert relay.kept == [], "the other stream did not ask for tools, and prompts did not change"


def test_a17_8_the_servers_own_changes_come_through(box):
    """Awake, a change of the server's is passed once, as it is."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    listen(relay, 0)
    call(relay, "grow")
    relay.until_message(lambda one: is_change(one, 0))
    assert len(ask(relay, "tools/list")["tools"]) == 2
    relay.barrier()
    assert relay.kept == []


@slow
def test_a17_8_a9_8_a_change_while_live_is_in_the_recording(box):
    """The client does not list again; the relay does, and the next session is right."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    listen(relay, 0)
    call(relay)
    fake.wait_method("tools/list", 2)
    call(relay, "grow")
    fake.wait_method("tools/list", 3)
    relay.barrier()
    relay.finish()
    again = box.relay(fake)
    assert len(ask(again, "tools/list")["tools"]) == 2


@pytest.mark.parametrize("code", [-32601, -32603, "silence"])
def test_a17_8_a_refusal_at_the_wake_is_not_told(box, code):
    """The stream was granted and stays; the call is answered; the client hears nothing of it."""
    fake = modern(box, tools=1, announce=True, listen=code)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    assert listen(relay) == {"toolsListChanged": True}
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, "listen:0"))
    relay.barrier()
    assert relay.kept == []
    assert [one for one in relay.finish() if "error" in one] == []


def test_a17_8_a_refusal_is_known_in_the_next_session(box):
    """-32601 to a listen is a fact about the server: the next one gets it at once."""
    fake = modern(box, announce=True, listen=-32601)
    relay = warm(box, fake)
    listen(relay)
    call(relay)
    relay.finish()
    again = box.relay(fake)
    refused(again, "subscriptions/listen", -32601, notifications=ALL)
    still_asleep(again, fake, 2)


def test_a17_8_a_refusal_met_in_a_cold_session_is_known_too(box):
    fake = modern(box, announce=True, listen=-32601)
    relay = box.relay(fake)
    ask(relay, "server/discover")
    refused(relay, "subscriptions/listen", -32601, notifications=ALL)
    relay.finish()
    again = box.relay(fake)
    refused(again, "subscriptions/listen", -32601, notifications=ALL)
    still_asleep(again, fake, 1)


def test_a17_8_another_refusal_is_forgotten(box):
    """-32603 (a limit reached, say) may be over by then: the next session's stream is held again."""
    fake = modern(box, announce=True, listen=-32603)
    relay = warm(box, fake)
    listen(relay)
    call(relay)
    relay.finish()
    again = box.relay(fake)
    assert listen(again) == {"toolsListChanged": True}
    still_asleep(again, fake, 2)


@slow
def test_a17_8_a12_idle_stop_with_an_open_stream(box):
    """The stream does not keep the server awake; the server's goodbye on it is swallowed; it opens again at each wake."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake, ("server/discover", "tools/list"), IDLE)
    ask(relay, "tools/list")
    listen(relay, 0)
    for number in range(2, 5):
        call(relay)
        assert fake.starts() == number
        until_asleep(relay)
        relay.barrier()
        assert relay.kept == [], "neither the result of the stream nor a second acknowledgement"
    assert fake.methods().count("subscriptions/listen") == 3
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, 0))


@slow
def test_a17_8_a_stream_opened_while_live_stays_over_an_idle_stop(box):
    """Opened cold: the server's own acknowledgement; afterwards it is held like any other."""
    fake = modern(box, tools=1, announce=True)
    relay = box.relay(fake, IDLE)
    ask(relay, "server/discover")
    ask(relay, "tools/list")
    assert listen(relay, "cold") == {"toolsListChanged": True}
    until_asleep(relay)
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, "cold"))
    relay.barrier()
    assert relay.kept == []
    assert fake.methods().count("subscriptions/listen") == 2


@slow
def test_a17_8_a_stream_opened_while_live_and_warm(box):
    """The server acknowledges it, once; from the idle stop on it is held."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake, ("server/discover", "tools/list"), IDLE)
    ask(relay, "tools/list")
    call(relay)
    assert listen(relay, "live") == {"toolsListChanged": True}
    assert [one["id"] for one in fake.events("listen")] == ["live"]
    until_asleep(relay)
    relay.barrier()
    assert relay.kept == []
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, "live"))
    assert [one["id"] for one in fake.events("listen")] == ["live", "live"]
    relay.barrier()
    assert relay.kept == []


def test_a17_8_everything_in_one_burst(box):
    """Stream, list and call written at once to a sleeping relay, and to one that knows nothing: one answer each."""
    fake = modern(box, tools=1, announce=True)
    for starts in (1, 2):
        relay = box.relay(fake)
        relay.send(message("server/discover", 1, meta()), message("subscriptions/listen", 0, dict(meta(), notifications=ALL)),
                   message("tools/list", 2, meta()), message("tools/call", 3, dict(meta(), name="echo", arguments={})))
        assert [relay.result(ident) is not None for ident in (1, 2, 3)] == [True] * 3
        relay.until_message(lambda one: one.get("method") == ACK)
        relay.barrier()
        assert relay.kept == [] and fake.starts() == starts
        assert [one["id"] for one in fake.events("listen")] == [0] * starts
        relay.finish()


@slow
@pytest.mark.parametrize("how", ["silence", -32601])
def test_a17_8_a_stream_that_the_server_does_not_serve_holds_nothing_up(box, how):
    """Neither the start's deadline nor the idle stop waits for its acknowledgement."""
    fake = modern(box, announce=True, listen=how)
    relay = warm(box, fake, ("server/discover",), "--start-timeout=700ms", IDLE)
    listen(relay)
    assert ask(relay, "tools/call", name="sleep", arguments={"s": 1.0})["slept"] == 1.0
    assert fake.starts() == 2
    until_asleep(relay)
    relay.barrier()
    assert relay.kept == []


@pytest.mark.parametrize("held", [True, False])
def test_a17_8_a1_9_a_stream_is_no_call_that_could_time_out(box, held):
    """--call-timeout is for calls; --drain waits for calls: neither looks at an open stream."""
    fake = modern(box, announce=True)
    options = "--call-timeout=500ms", "--drain=30s"
    record(box, fake, ("server/discover",))
    relay = box.relay(fake, *options)
    if held:
        listen(relay)
        call(relay)
    else:
        call(relay)
        listen(relay)
    error = refused(relay, "tools/call", -32000, name="hang", arguments={})
    assert "timed out after 500ms" in error["message"]
    relay.barrier()
    assert relay.kept == []
    assert [one for one in relay.finish() if "error" in one] == []


@slow
@pytest.mark.parametrize("held", [True, False])
def test_a17_8_a_stream_that_the_server_ends_is_over(box, held):
    """Its result reaches the client, once; the stream is not opened again."""
    fake = modern(box, tools=1, announce=True)
    record(box, fake)
    relay = box.relay(fake, IDLE)
    if not held:
        call(relay)
    listen(relay, 0)
    call(relay, "hangup")
    assert relay.result(0) == {"resultType": "complete", "_meta": {SUBSCRIPTION: 0}}
    until_asleep(relay)
    call(relay)
    assert "subscriptions/listen" not in methods_of_last_start(fake)
    relay.barrier()
    assert relay.kept == []


def test_a17_8_a_refusal_is_forgotten_when_the_server_learns(box):
    """Awake, a listen goes to the server: its acknowledgement takes the recorded refusal away."""
    fake = modern(box, tools=1, announce=True, listen=-32601)
    relay = box.relay(fake)
    ask(relay, "server/discover")
    refused(relay, "subscriptions/listen", -32601, notifications=ALL)
    relay.finish()
    fake.set(listen=None)
    relay = box.relay(fake)
    call(relay)
    assert listen(relay) == {"toolsListChanged": True}
    relay.finish()
    again = box.relay(fake)
    assert listen(again) == {"toolsListChanged": True}
    still_asleep(again, fake, 2)


def test_a17_8_a_failed_start_leaves_the_stream_open(box):
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    listen(relay)
    fake.set(die="exit3")
    refused(relay, "tools/call", -32000, name="echo")
    relay.barrier()
    assert relay.kept == []
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, "listen:0"))


def test_a17_8_a_crash_leaves_a_stream_open_that_the_server_acknowledged(box):
    fake = modern(box, tools=1, announce=True)
    relay = box.relay(fake)
    ask(relay, "server/discover")
    listen(relay, "cold")
    refused(relay, "tools/call", -32000, name="die", arguments={"how": "exit3"})
    relay.barrier()
    assert relay.kept == []
    call(relay, "grow")
    relay.until_message(lambda one: is_change(one, "cold"))


def open_streams(relay, letter, count):
    idents = ["%s%d" % (letter, number) for number in range(count)]
    for ident in idents:
        assert listen(relay, ident) == {"toolsListChanged": True}
    return idents


def each_hears_once(relay, idents):
    for ident in idents:
        relay.until_message(lambda one: is_change(one, ident))
    relay.barrier()
    assert relay.kept == []


def test_a17_8_many_streams(box):
    """However many a client opens, asleep or not, each is acknowledged once and hears of a change once, by whomever it is told."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    idents = open_streams(relay, "s", 100)
    still_asleep(relay, fake, 1)
    fake.set(tools=2)
    call(relay)
    each_hears_once(relay, idents)
    idents += open_streams(relay, "t", 50)
    call(relay, "grow")
    each_hears_once(relay, idents)


def test_a17_8_many_streams_in_front_of_a_server_that_did_not_change(box):
    """They are opened there, all of them: the first change is told by it."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    idents = open_streams(relay, "s", 100)
    call(relay, "grow")
    each_hears_once(relay, idents)


def test_a17_8_a10_8_a_crash_leaves_the_stream_open(box):
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    listen(relay, 0)
    refused(relay, "tools/call", -32000, name="die", arguments={"how": "SIGKILL"})
    relay.barrier()
    assert relay.kept == []
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, 0))


def test_trap_9_a_held_stream_is_cancelled_without_a_word(box):
    """Nothing is answered, nothing is forwarded at the wake, and the id is free again."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake)
    ask(relay, "tools/list")
    listen(relay, 0)
    listen(relay, "0")
    relay.send(message("notifications/cancelled", params={"requestId": "0", "reason": "enough"}))
    still_asleep(relay, fake, 1)
    assert relay.kept == []
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, 0))
    relay.barrier()
    assert relay.kept == []
    assert [one["id"] for one in fake.events("listen")] == [0]
    assert relay.result(relay.request("tools/call", dict(meta(), name="echo", arguments={"again": 1}), "0"))["echo"] == {"again": 1}


@slow
def test_trap_9_a_stream_is_cancelled_while_live(box):
    """The cancel reaches the server, and the stream is not opened at the next wake."""
    fake = modern(box, tools=1, announce=True)
    relay = warm(box, fake, ("server/discover", "tools/list"), IDLE)
    listen(relay, 0)
    call(relay)
    relay.send(message("notifications/cancelled", params={"requestId": 0}))
    ask(relay, "tools/list")
    assert [one["id"] for one in fake.events("unlisten")] == [0], "told while it ran"
    until_asleep(relay)
    call(relay)
    assert "subscriptions/listen" not in methods_of_last_start(fake)
    relay.barrier()
    assert relay.kept == []


@slow
def test_trap_9_a_stream_is_cancelled_while_the_server_starts(box):
    """It was sent on already: its acknowledgement comes after the cancel, and is swallowed like any other."""
    fake = modern(box, tools=1, announce=True, boot=0.2)
    relay = warm(box, fake)
    listen(relay, 0)
    listen(relay, 1)
    pending = relay.request("tools/call", dict(meta(), name="echo", arguments={}))
    fake.wait_for("start", 2)
    relay.send(message("notifications/cancelled", params={"requestId": 0}))
    relay.result(pending)
    call(relay, "grow")
    relay.until_message(lambda one: is_change(one, 1))
    relay.barrier()
    assert relay.kept == []


def test_trap_9_trap_10_cancelled_ids_do_not_meet(box):
    """0, "0" and false are three ids: only the cancelled call goes without an error when the server dies (A11.3)."""
    fake = modern(box)
    relay = warm(box, fake)
    for ident in (0, "0"):
        relay.request("tools/call", dict(meta(), name="hang", arguments={}), ident)
    until(lambda: len(fake.events("call")) == 2, what="both calls")
    relay.send(message("notifications/cancelled", params={"requestId": False}),
               message("notifications/cancelled", params={"requestId": "0"}))
    relay.request("tools/call", dict(meta(), name="die", arguments={"how": "exit3"}), 9)
    assert {relay.error(ident)["code"] for ident in (0, 9)} == {-32000}
    relay.barrier()
    assert relay.kept == []


@slow
def test_trap_9_a_call_cancelled_during_the_start_gets_no_word_of_the_relays_own(box):
    fake = modern(box, boot=0.2, die_at={"tools/call": "exit3"})
    relay = warm(box, fake)
    for ident in (0, 1, "1"):
        relay.request("tools/call", dict(meta(), name="echo", arguments={"k": ident}), ident)
    relay.send(message("notifications/cancelled", params={"requestId": 1}))
    assert {relay.error(ident)["code"] for ident in (0, "1")} == {-32000}
    relay.barrier()
    assert relay.kept == []


def test_a17_8_the_end_of_the_client_is_no_error_on_the_stream(box):
    fake = modern(box, announce=True)
    for awake in (False, True):
        relay = warm(box, fake)
        listen(relay)
        if awake:
            call(relay)
        for one in relay.finish():
            assert one["id"] == "listen:0" and one["result"]["resultType"] == "complete", one
            assert one["result"]["_meta"][SUBSCRIPTION] == "listen:0"


# --------------------------------------------------------- checks before serving (section 4, the relay's own answers)

def test_section_4_without_client_capabilities_it_is_invalid(box):
    """Missing or no object: -32602 by the relay, for all that it would answer from the recording of a modern server."""
    fake = modern(box, announce=True)
    relay = warm(box, fake)
    for caps in (None, [], "roots", 1, "missing"):
        params = meta()
        params["_meta"][MCP + "clientCapabilities"] = caps
        if caps == "missing":
            del params["_meta"][MCP + "clientCapabilities"]
        for method in ("server/discover", "tools/list", "prompts/list", "subscriptions/listen"):
            refused(relay, method, -32602, params)
    still_asleep(relay, fake, 1)


def test_section_4_an_unknown_version_is_refused_with_the_known_ones(box):
    """Of a server whose versions are recorded; the error carries them and what was asked for."""
    fake = modern(box, announce=True, lists_versions=[MODERN, "2026-12-24"])
    relay = warm(box, fake)
    for version in ("2099-01-01", "", "2025-11-25", "x" * 3000):
        for method in ("server/discover", "tools/list", "subscriptions/listen"):
            error = refused(relay, method, -32022, meta(version), notifications={})
            assert error["data"] == {"supported": [MODERN, "2026-12-24"], "requested": version}
    still_asleep(relay, fake, 1)


def test_section_4_of_an_unknown_server_nothing_is_claimed(box):
    """No recording: the server itself judges version and capabilities."""
    for params, code in ((meta("2099-01-01"), -32022), ({"_meta": {MCP + "protocolVersion": MODERN}}, -32602)):
        fake = modern(box)
        relay = box.relay(fake)
        refused(relay, "tools/list", code, params)
        assert fake.starts() == 1
        relay.finish()


@pytest.mark.parametrize("recorded", [True, False])
def test_section_4_methods_that_the_era_does_not_have(box, recorded):
    fake = modern(box)
    relay = warm(box, fake) if recorded else box.relay(fake)
    for method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        refused(relay, method, -32601, level="debug", uri="mem://r0")
    still_asleep(relay, fake, int(recorded))


def test_section_4_awake_the_server_answers_them(box):
    fake = modern(box)
    relay = warm(box, fake)
    call(relay)
    assert refused(relay, "ping", -32601)["message"] == "no such method"
    assert fake.methods()[-1] == "ping"


def test_section_4_calls_and_unknown_requests_wake_and_notifications_do_not(box):
    fake = modern(box)
    relay = warm(box, fake)
    relay.send(message("notifications/cancelled", params={"requestId": 5}), message("notifications/x", params=meta()),
               message("notifications/roots/list_changed"), {"jsonrpc": "2.0", "id": 5, "result": {}})
    still_asleep(relay, fake, 1)
    assert relay.kept == []
    relay.answer(relay.request("tools/call", {"_meta": {MCP + "protocolVersion": MODERN}, "name": "echo"}))
    assert fake.starts() == 2, "a call is judged by the server"


# -------------------------------------------------------------------------- known as legacy (A17.7, B5, B6, B7)

def discover_as(name="claude-code", client_version="2.1.332", version=MODERN, caps=None):
    return meta(version, CLAUDE if caps is None else caps, name, client_version)


def test_b5_b6_b7_a_refused_probe_is_answered_for_newer_versions_of_the_same_client(box):
    """-32601 survives a new client version; another name, version or capability asks the server (H4)."""
    fake = modern(box, era="legacy")
    record(box, fake, ("server/discover",), params=discover_as())
    relay = box.relay(fake)
    for params in (discover_as(), discover_as(client_version="2.1.400"), discover_as(client_version="3.0")):
        refused(relay, "server/discover", -32601, params)
    still_asleep(relay, fake, 1)
    relay.finish()
    for number, params in enumerate((discover_as("other"), discover_as(version="2027-01-01"), discover_as(caps={"roots": {}}))):
        relay = box.relay(fake)
        refused(relay, "server/discover", -32601, params)
        assert fake.starts() == 2 + number, params
        relay.finish()


def test_b7_a_success_ends_the_refusal(box):
    """The server learnt the new era; the same probe, answered live, takes the old verdict away for all versions."""
    fake = modern(box, era="legacy")
    record(box, fake, ("server/discover",), params=discover_as())
    fake.set(era="dual")
    relay = box.relay(fake)
    call(relay, params=discover_as())
    assert ask(relay, "server/discover", params=discover_as())["supportedVersions"] == [MODERN]
    relay.finish()
    again = box.relay(fake)
    for client_version in ("2.1.332", "2.1.400"):
        assert ask(again, "server/discover", params=discover_as(client_version=client_version))["supportedVersions"] == [MODERN]
    still_asleep(again, fake, 2)


@pytest.mark.parametrize("code", [-32602, -32600])
def test_b5_another_refusal_counts_once_the_handshake_follows(box, code):
    """Python SDK 1.x answers -32602 and then `initialize`: legacy, so the next probe gets -32601 at once."""
    fake = modern(box, era="legacy", discover=code)
    relay = box.relay(fake)
    assert asked(relay, "server/discover", "probe", discover_as())["error"]["code"] == code, "cold, it is the server's own"
    relay.handshake(version="2025-11-25", capabilities=CLAUDE)
    relay.finish()
    again = box.relay(fake)
    refused(again, "server/discover", -32601, discover_as(client_version="2.1.400"))
    still_asleep(again, fake, 1)


def test_b5_a_refusal_without_a_handshake_is_not_kept(box):
    fake = modern(box, era="legacy", discover=-32602)
    record(box, fake, ("server/discover",), params=discover_as())
    relay = box.relay(fake)
    assert asked(relay, "server/discover", params=discover_as())["error"]["code"] == -32602
    assert fake.starts() == 2


def test_a17_7_a_modern_request_to_a_legacy_server_is_passed_on(box):
    """It is not answered from a legacy list, nor recorded as a modern one."""
    fake = modern(box, era="legacy", tools=2)
    relay = box.relay(fake)
    refused(relay, "server/discover", -32601)
    relay.handshake()
    relay.ask("tools/list")
    relay.finish()
    for number in (2, 3):
        relay = box.relay(fake)
        assert len(ask(relay, "tools/list")["tools"]) == 2
        assert fake.starts() == number and lines_of_last_start(fake)[0]["params"] == meta()
        relay.finish()


def test_section_4_a_listen_to_a_legacy_server_is_refused(box):
    fake = modern(box, era="legacy")
    record(box, fake, ("server/discover",))
    relay = box.relay(fake)
    refused(relay, "subscriptions/listen", -32601, notifications=ALL)
    assert relay.barrier() == []


# -------------------------------------------------------------------------------------- pages (A6.9, H7)

PAGED = dict(tools=5, page=2, announce=True)
ERAS = ("modern", "legacy")


def opened(box, fake, era, *options):
    """A session whose client may list now."""
    relay = box.relay(fake, *options)
    if era == "legacy":
        relay.handshake()
    return relay


def page(relay, era, cursor=None, method="tools/list"):
    params = meta() if era == "modern" else {}
    if cursor is not None:
        params["cursor"] = cursor
    return relay.answer(relay.request(method, params))


def walked(relay, era, cursor=None, most=20):
    """All pages from this cursor on."""
    found = []
    for _ in range(most):
        found.append(page(relay, era, cursor)["result"])
        cursor = found[-1].get("nextCursor")
        if cursor is None:
            return found
    raise AssertionError("more than %d pages" % most)


def recorded_pages(box, era, *options, **flags):
    """A server whose pages a first session has walked through, and those pages."""
    fake = modern(box, **dict(PAGED, **flags))
    relay = opened(box, fake, era, *options)
    if era == "modern":
        ask(relay, "server/discover")
    pages = walked(relay, era)
    relay.finish()
    assert all("mcp-lazy" not in json.dumps(one) for one in pages), "cold, the cursors are the server's"
    return fake, pages


def wake(relay, era):
    if era == "modern":
        return call(relay)
    return relay.call("echo")


def items_of(pages):
    return [name for one in pages for name in names(one)]


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_pages_are_served_asleep_under_cursors_of_the_relays_own(box, era):
    fake, cold = recorded_pages(box, era)
    relay = opened(box, fake, era)
    found = walked(relay, era)
    still_asleep(relay, fake, 1)
    assert len(found) == 3 and items_of(found) == items_of(cold) == ["tool%d" % number for number in range(5)]
    for mine, theirs in zip(found, cold):
        if "nextCursor" in theirs:
            assert re.match(r"mcp-lazy:[^:]+:\d+\Z", mine["nextCursor"]), mine
        assert {key: mine[key] for key in mine if key != "nextCursor"} == {key: theirs[key] for key in theirs if key != "nextCursor"}
    (salt,) = {one["nextCursor"].partition("/+=")[0] for one in cold[:-1]}
    assert salt not in json.dumps(found), "a cursor of a process that is gone helps nobody"


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_relay_cursors_hold_in_later_sessions(box, era):
    """While the recording is the same one; in any order, more than once."""
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    found = walked(relay, era)
    relay.finish()
    again = opened(box, fake, era)
    assert page(again, era, found[1]["nextCursor"])["result"] == found[2]
    for _ in range(2):
        assert page(again, era, found[0]["nextCursor"])["result"] == found[1]
    still_asleep(again, fake, 1)


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_an_incomplete_walk_is_no_recording(box, era):
    """All pages of a list or none."""
    fake = modern(box, **PAGED)
    relay = opened(box, fake, era)
    if era == "modern":
        ask(relay, "server/discover")
    first = page(relay, era)["result"]
    page(relay, era, first["nextCursor"])
    relay.finish()
    again = opened(box, fake, era)
    assert len(page(again, era)["result"]["tools"]) == 2
    again.barrier()
    if fake.starts() == 1:  # served: then the relay had walked to the end by itself, and all of it is there
        assert items_of(walked(again, era)) == ["tool%d" % number for number in range(5)]
        still_asleep(again, fake, 1)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("cursor", ["x", "", "mcp-lazy", "gone/+=2"])
def test_a6_9_an_unknown_cursor_starts_the_server(box, era, cursor):
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    page(relay, era)
    found = page(relay, era, cursor)
    assert found["error"]["code"] == -32602, "the server knows none of them"
    assert fake.starts() == 2
    assert cursor in [(one["params"] or {}).get("cursor") for one in lines_of_last_start(fake)]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("made_up", ["mcp-lazy:", "mcp-lazy:nobody:1", "mcp-lazy:0:1", "mcp-lazy:%s:99", "mcp-lazy:%s:-1", "mcp-lazy:%s:x"])
def test_a6_9_a_relay_cursor_that_was_never_given_is_invalid(box, era, made_up):
    """Asleep and awake; it is never an accident of the relay's."""
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    generation = page(relay, era)["result"]["nextCursor"].split(":")[1]
    cursor = made_up % generation if "%s" in made_up else made_up
    assert page(relay, era, cursor)["error"]["code"] == -32602
    wake(relay, era)
    assert page(relay, era, cursor)["error"]["code"] == -32602
    assert page(relay, era)["result"]["tools"], "the relay is well"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("index", [0, 1])
def test_a6_9_a_relay_cursor_is_translated_when_the_server_was_started_in_between(box, era, index):
    """From there on the client can go on to the end, and nobody sees the relay's own paging."""
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    asleep = [page(relay, era)["result"]]
    for _ in range(index):
        asleep.append(page(relay, era, asleep[-1]["nextCursor"])["result"])
    still_asleep(relay, fake, 1)
    wake(relay, era)
    rest = walked(relay, era, asleep[-1]["nextCursor"])
    assert items_of(asleep + rest) == ["tool%d" % number for number in range(5)]
    relay.barrier()
    assert relay.kept == []
    mine = [one["params"].get("cursor") for one in lines_of_last_start(fake) if one["method"] == "tools/list" and one.get("params")]
    assert not any(isinstance(one, str) and one.startswith("mcp-lazy:") for one in mine), "the server never sees such a cursor"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("change", [{"tools": 7}, {"tools": 3}, {"page": 3}, {"describe": "new"}, {"page": None}], ids=json.dumps)
def test_a6_9_a_mismatch_is_an_invalid_cursor_and_a_change(box, era, change):
    """The list is another one by now: -32602, list_changed, and a new walk gives the new list.

    Where the pages before the cursor are still the same the client may also be led on: nothing is lost or double then.
    """
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    if era == "modern":
        listen(relay)
    first = page(relay, era)["result"]
    fake.set(**change)
    wake(relay, era)
    found = page(relay, era, first["nextCursor"])
    if "result" in found and "tools" in change:
        rest = walked(relay, era, found["result"]["nextCursor"]) if "nextCursor" in found["result"] else []
        assert items_of([first, found["result"]] + rest) == ["tool%d" % number for number in range(change["tools"])]
    else:
        assert found["error"]["code"] == -32602
    if era == "modern":
        relay.until_message(lambda one: is_change(one, "listen:0"))
    else:
        relay.until_message(lambda one: one.get("method") == CHANGED)
    assert items_of(walked(relay, era)) == ["tool%d" % number for number in range(change.get("tools", 5))]
    relay.barrier()
    assert relay.kept == [], "told once"
    relay.finish()
    again = opened(box, fake, era)
    assert items_of(walked(again, era)) == ["tool%d" % number for number in range(change.get("tools", 5))]


@slow
@pytest.mark.parametrize("era", ERAS)
def test_a6_9_a_cursor_of_a_replaced_recording_is_invalid_asleep(box, era):
    fake, _ = recorded_pages(box, era, IDLE)
    relay = opened(box, fake, era, IDLE)
    old = page(relay, era)["result"]["nextCursor"]
    fake.set(tools=6)
    wake(relay, era)
    walked(relay, era)
    until_asleep(relay)
    starts = fake.starts()
    assert page(relay, era, old)["error"]["code"] == -32602
    relay.finish()
    assert fake.starts() == starts
    again = opened(box, fake, era)
    assert page(again, era, old)["error"]["code"] == -32602
    found = walked(again, era)
    assert found[0]["nextCursor"] != old and len(items_of(found)) == 6
    still_asleep(again, fake, starts)


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_the_refresh_walks_all_pages_and_is_silent_when_they_are_equal(box, era):
    """The server's cursors differ with each process: that is no difference."""
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    if era == "modern":
        listen(relay)
    cursor = page(relay, era)["result"]["nextCursor"]
    wake(relay, era)
    until(lambda: methods_of_last_start(fake).count("tools/list") >= 3, what="the refresh of three pages")
    relay.barrier()
    assert relay.kept == []
    relay.finish()
    again = opened(box, fake, era)
    assert "result" in page(again, era, cursor), "the same generation still"
    still_asleep(again, fake, 2)


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_a_change_on_the_last_page_is_a_change(box, era):
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    if era == "modern":
        listen(relay)
    page(relay, era)
    fake.set(tools=6)
    wake(relay, era)
    relay.until_message(lambda one: one.get("method") == CHANGED)
    relay.finish()
    again = opened(box, fake, era)
    assert len(items_of(walked(again, era))) == 6
    still_asleep(again, fake, 2)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("fault", ["repeat", "type", "error"])
def test_a6_9_pages_that_do_not_end_well_are_no_recording(box, era, fault):
    fake = modern(box, page_fault=fault, **PAGED)
    relay = opened(box, fake, era)
    if era == "modern":
        ask(relay, "server/discover")
    cursor = page(relay, era)["result"]["nextCursor"]
    found = page(relay, era, cursor)
    assert ("error" in found) == (fault == "error"), "the client gets what the server says"
    if fault == "repeat":
        page(relay, era, cursor)
    relay.finish()
    fake.set(page_fault=None)
    again = opened(box, fake, era)
    assert items_of(walked(again, era)) == ["tool%d" % number for number in range(5)]
    assert fake.starts() == 2


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("fault", ["repeat", "type", "error", "endless"])
def test_a6_9_pages_that_go_bad_hold_nothing_up(box, era, fault):
    """The refresh meets a broken list: the call is answered, and what is served later is a whole list."""
    fake, _ = recorded_pages(box, era)
    relay = opened(box, fake, era)
    page(relay, era)
    fake.set(page_fault=fault)
    wake(relay, era)
    wake(relay, era)
    fake.wait_method("tools/list", 5)
    relay.finish(timeout=3 * WAIT_S)
    fake.set()
    again = opened(box, fake, era)
    found = items_of(walked(again, era))
    assert found == ["tool%d" % number for number in range(5)]


@slow
def test_a6_9_a_list_without_end_is_given_up(box):
    """The relay's own paging stops by itself; the server is then left in peace and may be stopped for being idle."""
    fake, _ = recorded_pages(box, "modern", IDLE)
    relay = opened(box, fake, "modern", IDLE)
    page(relay, "modern")
    fake.set(page_fault="endless")
    wake(relay, "modern")
    until(relay.asleep, 40, what="the end of the paging")
    assert methods_of_last_start(fake).count("tools/list") <= 10001
    assert call(relay, x=1)["echo"] == {"x": 1}


@pytest.mark.parametrize("era", ERAS)
def test_a6_9_pages_of_all_four_lists(box, era):
    fake = modern(box, tools=3, prompts=3, resources=3, templates=3, page=2)
    relay = opened(box, fake, era)
    for method in LISTS:
        page(relay, era, page(relay, era, None, method)["result"]["nextCursor"], method)
    relay.finish()
    again = opened(box, fake, era)
    seen = []
    for method in LISTS:
        first = page(again, era, None, method)["result"]
        second = page(again, era, first["nextCursor"], method)["result"]
        assert len(names(first)) == 2 and len(names(second)) == 1 and "nextCursor" not in second
        seen.append(first["nextCursor"])
    still_asleep(again, fake, 1)
    for method, cursor in zip(LISTS, seen[1:] + seen[:1]):
        other = page(again, era, cursor, method)
        assert "error" in other or len(names(other["result"])) == 1, "a cursor of another list gives none of that list"


def test_a6_8_a6_9_fill_records_pages_that_the_client_never_asked_for(box):
    fake = modern(box, **PAGED)
    relay = box.relay(fake, "--fill")
    relay.handshake()
    fake.wait_method("tools/list", 3)
    relay.barrier()
    relay.finish()
    again = box.relay(fake)
    again.handshake()
    assert items_of(walked(again, "legacy")) == ["tool%d" % number for number in range(5)]
    still_asleep(again, fake, 1)


def test_a6_9_a17_5_each_page_has_its_hints(box):
    fake, _ = recorded_pages(box, "modern", ttl=60000, scope="public")
    aged(box, 20000)
    relay = box.relay(fake)
    for one in walked(relay, "modern"):
        assert 0 < one["ttlMs"] <= 40000 and one["cacheScope"] == "public" and one["resultType"] == "complete"
    still_asleep(relay, fake, 1)


# ---------------------------------------------------------------- two eras on one connection (A17.2, A17.6, trap 2)

def test_a17_2_a_modern_request_is_no_handshake(box):
    """A probe and a modern list, then `initialize`: at the wake for a legacy call the server is opened as a legacy one."""
    fake = modern(box, tools=2, announce=True, lock=True)
    record(box, fake)
    box.record(fake)
    relay = box.relay(fake)
    starts = fake.starts()
    ask(relay, "server/discover")
    listen(relay)
    ask(relay, "tools/list")
    relay.handshake(ident="init")
    relay.ask("tools/list")
    still_asleep(relay, fake, starts)
    assert relay.call("echo", x=1)["echo"] == {"x": 1}
    seen = methods_of_last_start(fake)
    assert seen[:2] == ["initialize", "notifications/initialized"], seen
    assert "subscriptions/listen" not in seen and "server/discover" not in seen, "nothing of the other era"
    assert not any(MCP + "protocolVersion" in json.dumps(one.get("params")) for one in lines_of_last_start(fake))
    relay.barrier()
    assert relay.kept == []


def test_a17_2_both_eras_are_recorded_side_by_side(box):
    fake = modern(box, tools=2)
    relay = box.relay(fake)
    modern_list = ask(relay, "tools/list")
    relay.handshake(ident="init")
    legacy_list = relay.ask("tools/list")
    relay.finish()
    assert "ttlMs" in modern_list and "ttlMs" not in legacy_list
    again = box.relay(fake)
    assert again.handshake(ident="init")["serverInfo"]["name"] == "fake"
    assert again.ask("tools/list") == legacy_list, "a legacy client gets no member of the other era"
    assert ask(again, "tools/list") == modern_list
    still_asleep(again, fake, 1)


def test_a17_6_a_locked_server_is_restarted_once_for_initialize(box):
    """Python SDK 2.x refuses `initialize` after a modern request: the client sees only the second process's answer."""
    fake = modern(box, tools=2, lock=True)
    relay = box.relay(fake)
    assert ask(relay, "tools/list")["tools"]
    result = relay.handshake(ident="init")
    assert result["protocolVersion"] == "2025-06-18"
    assert relay.ask("tools/list")["tools"] and relay.call("echo", x=1)["echo"] == {"x": 1}
    relay.barrier()
    assert relay.kept == [] and fake.starts() == 2
    inits = [one for one in fake.lines() if one["method"] == "initialize"]
    assert len(inits) == 2 and inits[0]["params"] == inits[1]["params"] == initialize("init")["params"]
    assert methods_of_last_start(fake)[:2] == ["initialize", "notifications/initialized"]


def test_a17_6_a_modern_request_in_flight_at_that_restart_gets_an_answer(box):
    fake = modern(box, lock=True)
    relay = box.relay(fake)
    pending = relay.request("tools/call", dict(meta(), name="hang", arguments={}), "pending")
    until(lambda: fake.events("call"), what="the call")
    relay.send(initialize("init"))
    assert relay.error(pending)["code"] == -32000
    assert relay.result("init")["protocolVersion"] == "2025-06-18"
    relay.barrier()
    assert relay.kept == []


def test_a17_6_a_stream_outlives_that_restart(box):
    """The legacy process cannot serve it: it is held, not ended with an error, and not sent to that process."""
    fake = modern(box, tools=1, lock=True, announce=True)
    relay = box.relay(fake)
    ask(relay, "server/discover")
    listen(relay)
    relay.handshake(ident="init")
    assert relay.call("echo", x=1)["echo"] == {"x": 1}
    relay.barrier()
    assert relay.kept == []
    assert methods_of_last_start(fake) == ["initialize", "notifications/initialized", "tools/call", "ping"]


@slow
def test_a12_a17_6_a_crash_with_an_initialize_under_way_leaves_nothing_armed(box):
    """`initialize` went to a running modern server, which died: the next start is like any other and goes to sleep again."""
    fake = modern(box, tools=1)
    relay = box.relay(fake, IDLE, "--start-timeout=700ms")
    relay.send(message("tools/call", "d", dict(meta(), name="die", arguments={"how": "exit3"})), initialize("init"))
    assert relay.error("d")["code"] == relay.error("init")["code"] == -32000
    assert ask(relay, "tools/call", name="sleep", arguments={"s": 1.0})["slept"] == 1.0, "no deadline of the dead one's"
    until_asleep(relay)
    assert fake.starts() == 2


@slow
def test_a17_6_a_dual_server_serves_both_eras_in_one_process(box):
    """It forgives: `initialize` goes to the running process, and a later start is a legacy or a modern one by its cause."""
    fake = modern(box, tools=2, announce=True)
    relay = box.relay(fake, IDLE)
    relay.send(message("tools/call", "m", dict(meta(), name="sleep", arguments={"s": 0.3})), initialize("init"), INITIALIZED,
               message("tools/list", "l"))
    assert relay.result("m")["slept"] == 0.3 and relay.result("init") and relay.result("l")["tools"]
    assert fake.starts() == 1
    until_asleep(relay)
    assert relay.call("echo", x=1)["echo"] == {"x": 1}
    assert methods_of_last_start(fake)[:2] == ["initialize", "notifications/initialized"]
    until_asleep(relay)
    assert call(relay, x=2)["echo"] == {"x": 2}
    relay.barrier()
    assert "initialize" not in methods_of_last_start(fake) and fake.starts() == 3
    assert relay.kept == []


@slow
def test_a17_8_a_stream_waits_over_a_legacy_start(box):
    """Held, then a legacy call (not sent on), an idle stop, and a modern call: now it is opened."""
    fake = modern(box, tools=1, announce=True, lock=True)
    record(box, fake)
    box.record(fake)
    relay = box.relay(fake, IDLE)
    ask(relay, "tools/list")
    listen(relay)
    relay.handshake(ident="init")
    relay.call("echo")
    assert not fake.events("listen")
    until_asleep(relay)
    fake.set(tools=2)
    call(relay)
    relay.until_message(lambda one: is_change(one, "listen:0"))
    assert [one["id"] for one in fake.events("listen")] == ["listen:0"]


@slow
def test_a17_6_a_server_without_the_legacy_era_is_not_restarted_for_ever(box):
    """-32022 again from the fresh process: that is the answer, and it comes once."""
    fake = modern(box, era="modern")
    relay = box.relay(fake, IDLE)
    assert ask(relay, "tools/list")
    relay.send(initialize("init"))
    error = relay.error("init")
    assert error["code"] == -32022 and error["data"]["supported"] == [MODERN]
    assert ask(relay, "tools/list"), "the modern era goes on"
    relay.barrier()
    assert relay.kept == [] and fake.starts() <= 3
    until_asleep(relay)


def test_a17_6_initialize_alone_is_refused_without_a_restart(box):
    """Nothing modern was sent to this process: its refusal is no question of a fixed era."""
    fake = modern(box, era="modern")
    relay = box.relay(fake)
    relay.send(initialize("init"))
    assert relay.error("init")["code"] == -32022
    relay.barrier()
    assert relay.kept == [] and fake.starts() == 1
    relay.finish()
    assert not any(b'"initialize":{' in path.read_bytes() for path in box.recordings())


def test_a17_6_a_modern_request_goes_to_a_running_legacy_server_as_it_is(box):
    """One server at a time: the locked process says -32600, and that is not recorded."""
    fake = modern(box, tools=2, lock=True)
    relay = box.relay(fake)
    relay.handshake(ident="init")
    refused(relay, "tools/list", -32600)
    assert fake.starts() == 1
    relay.finish()
    again = box.relay(fake)
    assert ask(again, "tools/list")["tools"]
    assert fake.starts() == 2


@slow
def test_trap_2_a_warm_session_of_either_era_opens_the_server_in_that_era(box):
    """The recording knows both; the locked process is never probed and never shaken hands with by the wrong one."""
    fake = modern(box, tools=2, lock=True)
    record(box, fake)
    box.record(fake)
    for era in ("modern", "legacy", "modern"):
        relay = opened(box, fake, era)
        page(relay, era)
        assert wake(relay, era)["echo"] == {}
        relay.barrier()
        assert relay.kept == []
        relay.finish()
        assert ("initialize" in methods_of_last_start(fake)) == (era == "legacy")


# --------------------------------------------------------------------------- Claude Code's order (trap 1, H58)

PROBE = "server-discover-probe-1"


def claude_probe(relay):
    relay.send(message("server/discover", PROBE, discover_as()))


def claude_initialize(relay):
    relay.send(initialize(0, "2025-11-25", CLAUDE, "claude-code", "2.1.332"))


def claude_legacy(relay):
    """What follows a refused or unanswered probe; everything in one burst after the answer."""
    claude_initialize(relay)
    result = relay.result(0)
    relay.send(INITIALIZED, message("tools/list", 1), message("prompts/list", 2), message("resources/list", 3))
    return [result] + [relay.answer(ident).get("result") for ident in (1, 2, 3)]


def claude_modern(relay):
    """What follows a discovery: a stream, discovery again, the lists."""
    relay.request("subscriptions/listen", dict(discover_as(), notifications=ALL), "listen:0")
    opened = relay.until_message(lambda one: one.get("method") == ACK or one.get("id") == "listen:0")
    found = [opened.get("params") or opened["error"]["code"], ask(relay, "server/discover", 0, discover_as())]
    idents = [relay.request(method, discover_as(), number) for number, method in
              enumerate(("prompts/list", "resources/list", "tools/list"), 1)]
    return found + [relay.answer(ident).get("result") for ident in idents]


def claude(relay):
    """A whole start-up as Claude Code does it; ("modern" | "legacy", the answers)."""
    claude_probe(relay)
    answer = relay.answer(PROBE)
    versions = answer.get("result", {}).get("supportedVersions", [])
    if MODERN in versions:
        return "modern", claude_modern(relay)
    return "legacy", claude_legacy(relay)


SERVERS = {
    "legacy": ({"era": "legacy"}, "legacy"),
    "python-sdk-1": ({"era": "legacy", "discover": -32602, "strict": True}, "legacy"),
    "modern": ({"era": "modern"}, "modern"),
    "dual": ({"era": "dual"}, "modern"),
    "python-sdk-2": ({"era": "dual", "lock": True}, "modern"),
    "python-sdk-2-no-listen": ({"era": "dual", "lock": True, "listen": -32601}, "modern"),
    "legacy-versions-only": ({"era": "dual", "discover": "legacy-only"}, "legacy"),
    "unusable-versions": ({"era": "dual", "discover": "wrong"}, "legacy"),
}


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_trap_1_claude_codes_order_cold_and_warm(box, kind):
    """Cold: answers of the server, one process.  Warm: the same answers, none; then a call is executed."""
    flags, era = SERVERS[kind]
    fake = modern(box, **dict({"tools": 2, "prompts": 1, "announce": True}, **flags))
    cold = box.relay(fake)
    found_era, first = claude(cold)
    assert found_era == era and fake.starts() == 1
    cold.finish()
    relay = box.relay(fake)
    again_era, again = claude(relay)
    assert (again_era, again) == (era, first)
    still_asleep(relay, fake, 1)
    assert wake_as(relay, era)["echo"] == {"x": 1}
    relay.barrier()
    assert relay.kept == []
    assert ("initialize" in methods_of_last_start(fake)) == (era == "legacy")
    if era == "legacy":
        assert "server/discover" not in methods_of_last_start(fake), "never probed when it will be initialized"


def wake_as(relay, era):
    params = dict(discover_as() if era == "modern" else {}, name="echo", arguments={"x": 1})
    return relay.result(relay.request("tools/call", params, 4))


def test_trap_1_an_unanswered_probe_then_initialize_on_the_same_process(box):
    """A silent legacy server: `initialize` follows the probe after a while and is answered by the same process."""
    fake = modern(box, era="legacy", tools=2, discover="silence")
    for number in (1, 2):
        relay = box.relay(fake)
        claude_probe(relay)
        fake.wait_method("server/discover", number)
        assert len(claude_legacy(relay)[1]["tools"]) == 2
        assert fake.starts() == number, "silence is no answer that could be recorded"
        assert relay.call("echo", x=1)["echo"] == {"x": 1}
        relay.finish()


@slow
def test_trap_1_a_slow_legacy_server_answers_the_probe_late(box):
    """Both answers come, each once; the probe is settled for the next session."""
    fake = modern(box, era="legacy", tools=2, boot=0.3)
    relay = box.relay(fake)
    claude_probe(relay)
    claude_initialize(relay)
    assert relay.error(PROBE)["code"] == -32601
    assert relay.result(0)["protocolVersion"] == "2025-11-25"
    relay.send(INITIALIZED)
    relay.barrier()
    assert relay.kept == [] and fake.starts() == 1
    relay.finish()
    again = box.relay(fake)
    claude_probe(again)
    assert again.error(PROBE)["code"] == -32601
    claude_initialize(again)
    again.result(0)
    still_asleep(again, fake, 1)


@slow
@pytest.mark.parametrize("pipelined", [True, False])
def test_trap_1_a17_6_a_slow_locked_server_is_restarted_for_the_client_that_gave_up_waiting(box, pipelined):
    """Python SDK 2.x got the probe, started slowly, and is modern by now; `initialize` came after 3 s."""
    fake = modern(box, tools=2, lock=True, boot=0.3)
    relay = box.relay(fake)
    claude_probe(relay)
    if not pipelined:
        fake.wait_for("start")
    claude_initialize(relay)
    if pipelined:  # more than any client does: what went to the first process is answered, be it with an error (I33)
        relay.send(INITIALIZED, message("tools/list", "early"))
    assert relay.result(0)["protocolVersion"] == "2025-11-25"
    if pipelined:
        assert relay.answer("early")
    else:
        relay.send(INITIALIZED)
    relay.send(message("tools/list", 1))
    assert len(relay.result(1)["tools"]) == 2
    assert relay.call("echo", x=1)["echo"] == {"x": 1}
    relay.barrier()
    assert [one for one in relay.kept if one.get("id") != PROBE] == [], "one answer to initialize"
    assert fake.starts() == 2
    assert methods_of_last_start(fake)[:2] == ["initialize", "notifications/initialized"]
    relay.finish()
    again = box.relay(fake)
    claude_initialize(again)
    again.result(0)
    again.send(INITIALIZED, message("tools/list", 1))
    assert len(again.result(1)["tools"]) == 2
    still_asleep(again, fake, 2)


def test_trap_1_a17_6_the_silent_locked_server(box):
    """The probe is never answered but has fixed the era: restarted once, one answer."""
    fake = modern(box, tools=2, lock=True, discover="silence")
    relay = box.relay(fake)
    claude_probe(relay)
    fake.wait_method("server/discover")
    assert len(claude_legacy(relay)[1]["tools"]) == 2
    assert fake.starts() == 2
    relay.barrier()
    assert not any(one.get("id") == 0 for one in relay.kept)


def test_trap_1_a_warm_probe_is_answered_before_a_slow_server_could_be(box):
    fake = modern(box, tools=2, announce=True)
    cold = box.relay(fake)
    claude(cold)
    cold.finish()
    fake.set(boot=30)
    relay = box.relay(fake)
    assert claude(relay)[0] == "modern"
    still_asleep(relay, fake, 1)


def test_trap_1_the_lists_of_a_dual_server_belong_to_the_era_that_asked(box):
    """Both kinds of client on one registration, one after the other: each is warm after its own first session."""
    fake = modern(box, tools=2, announce=True, lock=True)
    for expected in (1, 1):
        relay = box.relay(fake)
        assert claude(relay)[0] == "modern" and fake.starts() == expected
        relay.finish()
    for _ in range(2):
        relay = box.relay(fake)
        relay.handshake(name="codex-mcp-client", capabilities={"elicitation": {"form": {}, "url": {}}})
        assert relay.result(relay.request("tools/list", {"_meta": {"progressToken": 0}}))["tools"]
        assert fake.starts() == 2
        relay.finish()
    relay = box.relay(fake)
    assert claude(relay)[0] == "modern"
    still_asleep(relay, fake, 2)


# --------------------------------------------------------------------------------- ids of the client (trap 10)

@pytest.mark.parametrize("raw", [b"0", b'"0"', b"1.0", b"-0", b'"\\u0030"', b"123456789012345678901234567890", b"1e2"])
def test_trap_10_ids_are_given_back_verbatim(box, raw):
    fake = modern(box)
    relay = warm(box, fake)
    relay.send(b'{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":%s}\n' % (raw, json.dumps(meta()).encode()))
    assert relay.line().startswith(b'{"jsonrpc":"2.0","id":' + raw + b',"result":{')
    relay.send(b'{"jsonrpc":"2.0","id":%s,"method":"ping","params":%s}\n' % (raw, json.dumps(meta()).encode()))
    found = relay.line()
    assert b'"id":' + raw + b"," in found and b"-32601" in found
    still_asleep(relay, fake, 1)


def test_a17_4_a_recording_holds_no_words_of_the_command_and_its_file_is_private(box):
    """The modern entry keeps the rules of all recordings: mode, one file, `era` in the entry (A5.4b)."""
    fake = modern(box, tools=2)
    record(box, fake)
    (path,) = box.recordings()
    assert os.stat(str(path)).st_mode & 0o077 == 0
    (entry,) = box.recording()["entries"]
    assert entry["era"] == "modern" and entry["protocolVersion"] == MODERN
    assert "initialize" not in entry and "discover" in entry and set(entry["lists"]) == {"tools/list"}
    assert str(fake.seen_path) not in path.read_text()


# ------------------------------------------------------------------------------------- any order of all of it

class Session:
    """A client that does anything in any order and checks what must hold in every order.

    Each request has one answer, a call is carried out with its own arguments, a stream is acknowledged once and never
    answered, what is said on it carries its id.
    """
    ACTIONS = ("list", "list", "page", "discover", "echo", "echo", "grow", "listen", "listen", "cancel", "ping", "unknown", "die",
               "legacy", "legacy-list", "asleep", "settle", "settle")

    def __init__(self, relay, rng, codes):
        self.relay, self.rng, self.codes = relay, rng, codes
        self.waiting, self.cursors, self.count, self.shaken = {}, [], 0, False
        self.streams, self.cancelled, self.acknowledged = set(), set(), set()  # ids as JSON

    def ident(self):
        """Ids of both types with the same digits."""
        self.count += 1
        number = self.count // 2
        return number if self.count % 2 else str(number)

    def ask(self, kind, method, params=None, **members):
        ident = self.ident()
        self.relay.request(method, dict(params if params is not None else meta(), **members), ident)
        self.waiting[json.dumps(ident)] = (kind, members)
        return ident

    def step(self):
        action = self.rng.choice(self.ACTIONS)
        if action == "list":
            self.ask("list", self.rng.choice(LISTS))
        elif action == "page" and self.cursors:
            self.ask("page", "tools/list", cursor=self.rng.choice(self.cursors))
        elif action == "discover":
            self.ask("discover", "server/discover")
        elif action in ("echo", "grow"):
            self.ask(action, "tools/call", name=action, arguments={"k": self.count})
        elif action == "die" and not self.rng.randrange(3):
            self.ask("any", "tools/call", name="die", arguments={"how": "exit3"})
        elif action in ("ping", "unknown"):
            self.ask("error", {"ping": "ping", "unknown": "x/y"}[action])
        elif action.startswith("legacy"):
            self.legacy(action)
        elif action == "asleep":
            self.settle()
            until_asleep(self.relay)
        elif action == "settle":
            self.settle()
        else:
            self.stream(action)

    def stream(self, action):
        if action == "listen":
            ident = self.ident()
            self.streams.add(json.dumps(ident))
            self.relay.request("subscriptions/listen", dict(meta(), notifications=ALL), ident)
        elif action == "cancel" and self.streams - self.cancelled:
            raw = self.rng.choice(sorted(self.streams - self.cancelled))
            self.cancelled.add(raw)
            self.relay.send(message("notifications/cancelled", params={"requestId": json.loads(raw)}))

    def legacy(self, action):
        if action == "legacy" and not self.shaken:
            self.shaken = True
            ident = self.ident()
            self.relay.send(initialize(ident), INITIALIZED)
            self.waiting[json.dumps(ident)] = ("any", {})
        elif self.shaken:
            self.ask("any", "tools/list", {})

    def settle(self):
        """All that was asked is answered."""
        while self.waiting:
            self.take(self.relay.read())

    def take(self, found):
        if "method" in found:
            self.kept(found)
            return
        raw = json.dumps(found["id"])
        if raw in self.streams and "error" in found and raw not in self.acknowledged:
            self.streams.discard(raw)  # the server was asked and died before it said a word
            return
        assert raw in self.waiting, "no such request waits: %r" % (found,)
        kind, members = self.waiting.pop(raw)
        if kind == "error":
            assert "error" in found, found
        elif kind == "echo" and "result" in found:
            assert found["result"]["echo"] == members["arguments"]
        elif kind in ("list", "page") and isinstance(found.get("result", {}).get("nextCursor"), str):
            if "tools" in found["result"]:
                self.cursors.append(found["result"]["nextCursor"])
        if "error" in found:
            assert found["error"]["code"] in self.codes, found

    def kept(self, found):
        """A notification: on a stream, or the legacy one."""
        tag = found.get("params", {}).get("_meta", {}).get(SUBSCRIPTION)
        if tag is None:
            assert self.shaken and found["method"] == CHANGED, found
            return
        raw = json.dumps(tag)
        assert raw in self.streams, found
        if found["method"] == ACK:
            assert raw not in self.acknowledged, "a second acknowledgement"
            self.acknowledged.add(raw)


@slow
@pytest.mark.parametrize("seed", range(9))
def test_any_order_of_requests_streams_and_both_eras(box, seed):
    rng = random.Random(seed)
    fake = modern(box, tools=3, prompts=1, page=2, announce=True, ttl=rng.choice([0, 60000]), lock=seed % 3 == 0)
    codes = (-32601, -32602, -32000) + ((-32600, -32022) if seed % 3 == 0 else ())  # a locked process refuses the other era
    for _ in range(2):
        session = Session(box.relay(fake, "--idle-stop=20ms"), rng, codes)
        for _ in range(60):
            session.step()
        session.settle()
        session.relay.barrier()
        for one in session.relay.kept:
            session.take(one)
        assert session.streams - session.cancelled <= session.acknowledged, "each stream that lives was acknowledged"
        for one in session.relay.finish():
            assert "method" in one or json.dumps(one["id"]) in session.streams and "result" in one, one
