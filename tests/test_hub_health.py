"""What the hub knows of its servers' health, without waking one for it (G6, G10, cases 180-187)."""

import json
import os
import re
import signal
import time

import pytest

from harness import FULL, LINUX, alive, fds, message, until
from test_hub_reload import Hub, entry, failure, gone, said

pytestmark = pytest.mark.skipif(not LINUX, reason="reads /proc")
slow = pytest.mark.slow
QUICK = {"interval": 100, "timeout": 60}  # the shortest interval; a probe that is not answered ends before the next


def pings(fake):
    return fake.methods().count("ping")


def rounds(fake, count):
    """Wait for so many looks of the monitor at a server that is live: the clock of tests in which nothing happens."""
    fake.wait_method("ping", pings(fake) + count)


def clocked(box, servers, **config):
    """A hub whose monitor looks ten times a second, and the Fake of a live server `clock` that sees each look."""
    clock = box.fake()
    hub = Hub(box, servers + [entry("clock", clock)], **dict({"healthMonitor": QUICK}, **config))
    hub.invoke("clock", "pid")
    return hub, clock


# ------------------------------------------------------------------------------ nothing wakes a server


def test_g10_5_neither_tools_list_nor_list_servers_nor_the_monitor_starts_a_server(box):
    """Case 180 and the defect G10.1 of the older hub."""
    fakes = [box.fake() for _ in range(3)]
    hub, clock = clocked(box, [entry("s%d" % number, fake) for number, fake in enumerate(fakes)])
    for _ in range(3):
        hub.relay.ask("tools/list")
        hub.rows()
        rounds(clock, 1)
    rows = hub.rows()
    for number in range(3):
        assert rows["s%d" % number] == {
            "name": "s%d" % number,
            "description": "The server s%d" % number,
            "available": True,
            "loaded": False,
            "tools_count": None,
            "healthy": None,
            "state": "asleep",
        }
    assert not any(fake.starts() for fake in fakes) and len(hub.relay.servers()) == 1
    hub.relay.finish()


def test_g10_5_what_is_recorded_is_known_although_nobody_was_started(box):
    fake = box.fake(tools=4)
    first = Hub(box, [entry("s", fake)])
    assert len(first.tool("list_commands", server="s")) == 4
    first.relay.finish()
    hub, clock = clocked(box, [entry("s", fake)])
    rounds(clock, 2)
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"], row["loaded"], row["tools_count"]) == ("asleep", None, True, 4)
    assert fake.starts() == 1
    hub.relay.finish()


def test_g10_5_with_wake_a_tool_call_starts_them_and_tools_list_still_does_not(box):
    fakes = [box.fake() for _ in range(2)]
    hub = Hub(
        box,
        [entry("s%d" % number, fake) for number, fake in enumerate(fakes)],
        healthMonitor=dict(QUICK, timeout=5000, wake=True),
    )
    hub.relay.ask("tools/list")
    hub.relay.barrier()
    assert hub.relay.asleep()
    hub.rows()
    for name in ("s0", "s1"):
        row = hub.await_row(name, lambda row: row["state"] == "live" and row["loaded"], "live and loaded")
        assert row["healthy"] is True and row["tools_count"] == 1
    assert [fake.starts() for fake in fakes] == [1, 1]
    hub.relay.finish()


@slow
def test_g10_3_the_monitor_stops_when_nobody_uses_the_hub(box):
    """Two hubs: the second one, which never stops, is the clock."""
    quiet, clock = clocked(box, [], healthMonitor=dict(QUICK, idleTimeout=250)), clocked(
        box, [], healthMonitor=dict(QUICK, idleTimeout=0)
    )
    rounds(clock[1], 5)
    count = pings(quiet[1])
    rounds(clock[1], 3)
    assert pings(quiet[1]) == count >= 1
    quiet[0].rows()
    rounds(quiet[1], 1)  # a call begins it anew
    for hub, _ in (quiet, clock):
        hub.relay.finish()


@slow
def test_g10_4_a_monitor_that_is_off_looks_at_nothing(box):
    off, clock = clocked(box, [entry("s", box.fake())], healthMonitor=dict(QUICK, enabled=False, wake=True)), clocked(
        box, []
    )
    rounds(clock[1], 3)
    off[0].rows()
    rounds(clock[1], 2)
    rows = off[0].rows()
    assert pings(off[1]) == 0 and len(off[0].relay.servers()) == 1
    assert rows["clock"]["healthy"] is True and rows["s"]["healthy"] is None
    for hub, _ in (off, clock):
        hub.relay.finish()


@slow
def test_g10_5_a_look_does_not_keep_a_server_awake(box):
    """Its idle time ends although the monitor looks at it meanwhile; and no look starts it again (case 180)."""
    fake = box.fake()
    hub, clock = clocked(box, [entry("s", fake, idleStop=350)])
    pid = hub.invoke("s", "pid")["pid"]
    fake.wait_method("ping")
    gone(pid)
    row = hub.await_row("s", lambda row: row["state"] == "asleep", "asleep")
    assert row["healthy"] is True and "error" not in row, "it was well when it was last seen"
    rounds(clock, 3)
    assert fake.starts() == 1
    hub.relay.finish()


# --------------------------------------------------------------------------------- what is no death


@slow
def test_case_180_a_silent_ping_is_no_death_and_is_told_once(box):
    """The case: the same process, healthy, after thirty looks; here after five, and told once, not 362 times a day."""
    mute = box.fake(hang_at=["ping"])
    hub, clock = clocked(box, [entry("mute", mute)])
    pid = hub.invoke("mute", "pid")["pid"]
    mute.wait_method("ping")
    rounds(clock, 5)
    row = hub.rows()["mute"]
    assert (row["state"], row["healthy"]) == ("live", True) and "error" not in row
    assert hub.invoke("mute", "pid") == {"pid": pid, "calls": 2} and mute.starts() == 1
    told = [line for line in hub.log() if line.get("server") == "mute" and "ping" in line["message"]]
    assert len(told) == 1, told
    hub.relay.finish()


def test_case_180_a_server_without_ping_is_alive(box):
    fake = box.fake(refuse={"ping": {"code": -32601, "message": "Method not found"}})
    hub, _ = clocked(box, [entry("s", fake)], healthMonitor=dict(QUICK, timeout=5000))
    pid = hub.invoke("s", "pid")["pid"]
    fake.wait_method("ping", 3)
    first = hub.rows()["s"]
    row = hub.await_row("s", lambda row: row["last_checked"] > first["last_checked"], "checked anew")
    assert (row["state"], row["healthy"]) == ("live", True) and hub.invoke("s", "pid")["pid"] == pid
    assert not [
        line
        for line in hub.log()
        if line["level"] == "error" or line.get("server") == "s" and "ping" in line["message"]
    ]
    hub.relay.finish()


@slow
def test_case_180_a_server_that_works_hard_is_not_taken_for_dead(box):
    """A single thread that computes for a while answers no ping; its call ends as it should."""
    fake = box.fake()
    hub, clock = clocked(box, [entry("s", fake)])
    pid = hub.invoke("s", "pid")["pid"]
    call = hub.begin("s", "sleep", s=0.7)
    rounds(clock, 4)
    assert hub.rows()["s"]["healthy"] is True
    assert hub.relay.result(call) == {"slept": 0.7}
    assert hub.invoke("s", "pid")["pid"] == pid
    hub.relay.finish()


# ------------------------------------------------------------------------------------ what is death


@pytest.mark.parametrize(
    "how, words", [("exit0", "exit status 0"), ("exit3", "exit status 3"), ("SIGSEGV", "SIGSEGV")]
)
def test_case_187_a_death_in_a_call_is_told_with_its_status(box, how, words):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)])
    code, text = hub.refused("s", "die", how=how, stderr="out of luck\n")
    assert code == "SERVER_CRASHED" and words in text and "out of luck" in text and text.startswith("Error: ")
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"]) == ("failing", False)
    assert words in row["error"]
    assert hub.invoke("s", "pid")["pid"] == fake.pid() and fake.starts() == 2
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"]) == ("live", True) and "error" not in row and "next_try_ms" not in row
    hub.relay.finish()


def test_case_187_a_death_between_calls_is_seen_at_once(box):
    """Nobody calls it: the hub notices by itself, and says so in its log, too."""
    fake = box.fake()
    hub = Hub(box, [entry("s", fake), entry("other", box.fake())])
    pid = hub.invoke("s", "pid")["pid"]
    os.kill(pid, signal.SIGKILL)
    line = until(
        lambda: [one for one in hub.log() if one.get("server") == "s" and one.get("state") == "failing"],
        what="the log to tell the death",
    )[0]
    assert "SIGKILL" in line["reason"]
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"]) == ("failing", False) and "SIGKILL" in row["error"]
    until(lambda: not hub.relay.servers(), what="the reaping")
    assert hub.invoke("s", "pid")["pid"] != pid
    hub.relay.finish()


def test_case_187_a_server_that_ends_after_each_call_serves_every_call(box):
    """Each call has a process of its own; between them its exit status is told, and no failure is counted."""
    fake = box.fake(one_call=True)
    hub = Hub(box, [entry("s", fake)])
    seen = []
    for _ in range(5):
        seen.append(hub.invoke("s", "pid")["pid"])
        row = hub.await_row("s", lambda row: row["state"] in ("asleep", "failing"), "stopped")
        assert row["state"] == "asleep" and "exit status 0" in row["reason"] and not {"error", "next_try_ms"} & set(row), row
    assert len(set(seen)) == 5 and fake.starts() == 5
    hub.relay.finish()


@slow
@pytest.mark.parametrize("how", ["closeout", "deaf"])
def test_case_180_a_server_whose_pipe_is_shut_is_dead_although_its_process_lives(box, how):
    """Its output is closed, or its input. The next call has a new process, the old one is ended."""
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)], requestTimeout=3000)
    pid = hub.invoke("s", "pid")["pid"]
    if how == "deaf":
        hub.invoke("s", "deaf")
        until(lambda: 0 not in fds(pid), what="the server to close its input")
    assert hub.refused("s", "closeout" if how == "closeout" else "pid")[0] == "SERVER_CRASHED"
    row = hub.rows()["s"]
    assert row["state"] in ("failing", "stopping") and row["healthy"] is not True, row
    assert hub.invoke("s", "pid")["pid"] == fake.pid() != pid
    gone(pid)
    hub.relay.finish()


@slow
def test_case_034_a_start_that_timed_out_leaves_nothing_behind(box):
    """When the error goes out the group is killed: the lock that it held is free for the next start."""
    lock = box.path / "lock"
    fake = box.fake(lock=str(lock), hang_at=["initialize"], children=["sleeper"])
    hub = Hub(box, [entry("s", fake, startTimeout=700)])
    code, text = hub.refused("s", "pid")
    assert code == "SERVER_TIMEOUT" and "0.7 s" in text and "startTimeout" in text
    assert not alive(fake.pid())
    for pid in fake.descendants():  # killed, too; nobody waits until an orphan has noticed
        until(lambda: not alive(pid), 0.5, "the end of its child")
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"]) == ("failing", False) and "startTimeout" in row["error"]
    fake.set(hang_at=[])
    assert hub.invoke("s", "pid")["pid"] == fake.pid()
    hub.relay.finish()


# ---------------------------------------------------------------------------------------- backoff


def test_case_182_backoff_belongs_to_the_server_and_calls_get_the_last_error_at_once(box):
    """A hundred calls of every kind: few starts. Each answer has the reason, and when the next try is."""
    fake, other = box.fake(die="exit3", stderr="no licence here\n"), box.fake()
    hub = Hub(box, [entry("s", fake), entry("other", other)])
    begun, took = time.monotonic(), []
    for number in range(99):
        at = time.monotonic()
        tool, more = [
            ("invoke_command", {"command_name": "pid"}),
            ("list_commands", {}),
            ("describe_commands", {"command_names": ["x"]}),
        ][number % 3]
        result = hub.relay.result(hub.start(tool, server="s", **more))
        took.append(time.monotonic() - at)
        text = failure(result)[1]
        assert "no licence here" in text and "exit status 3" in text, text
    passed = time.monotonic() - begun
    assert fake.starts() <= 3 + passed / 0.5 + 1, "%d starts in %.2f s" % (fake.starts(), passed)
    assert max(took[6:]) < 0.2
    row = hub.rows()["s"]
    assert row["state"] == "failing" and 0 < row["next_try_ms"] <= 30000 and "no licence here" in row["error"]
    assert result["_meta"]["lazyMcp"]["code"] in ("SERVER_CRASHED", "DISCOVERY_FAILED")
    assert hub.invoke("other", "pid") == {"pid": other.pid(), "calls": 1}
    hub.relay.finish()


def test_case_182_a_call_that_comes_too_early_is_told_when_it_may_come_again(box):
    fake = box.fake(die="exit3")
    hub = Hub(box, [entry("s", fake)])
    for _ in range(3):
        hub.refused("s", "pid")
    starts = fake.starts()
    result = hub.relay.result(hub.begin("s", "pid"))
    assert fake.starts() == starts == 3
    assert 0 < result["_meta"]["lazyMcp"]["next_try_ms"] <= 500, result
    hub.relay.finish()


def test_case_182_concurrent_calls_share_one_failing_start(box):
    fake = box.fake(die="exit3", stderr="x\n")
    hub = Hub(box, [entry("s", fake)])
    calls = [hub.begin("s", "pid") for _ in range(30)] + [
        hub.start("list_commands", servers=["s", "s"]) for _ in range(5)
    ]
    for call in calls:
        found = hub.relay.result(call)
        assert found.get("isError"), found
    assert fake.starts() <= 3
    hub.relay.finish()


@slow
def test_case_181_a_server_that_comes_back_is_used_again(box):
    """A call behind the next try starts it; nothing of the failure stays in its row."""
    fake = box.fake(die="exit3")
    hub = Hub(box, [entry("s", fake)])
    for _ in range(4):
        hub.refused("s", "pid")
    fake.set(die=None)
    hub.await_row("s", lambda row: "next_try_ms" not in row, "due")
    assert hub.invoke("s", "pid")["pid"] == fake.pid()
    row = hub.rows()["s"]
    assert (row["state"], row["healthy"], row["loaded"]) == ("live", True, False) or row["loaded"] is True
    assert "error" not in row and "next_try_ms" not in row
    hub.relay.finish()


@slow
def test_case_181_with_wake_a_server_that_comes_back_is_healthy_without_a_call(box):
    fake = box.fake(die="exit3")
    hub = Hub(box, [entry("s", fake)], healthMonitor=dict(QUICK, timeout=5000, wake=True))
    hub.await_row("s", lambda row: "next_try_ms" in row, "failing again and again")
    fake.set(die=None)
    row = hub.await_row("s", lambda row: row["state"] == "live", "live")
    assert row["healthy"] is True and "error" not in row
    assert fake.starts() <= 6
    hub.relay.finish()


@pytest.mark.skipif(not FULL, reason="waits until a start counts as a good one; MCP_LAZY_FULL=1 runs it")
def test_case_182_a_start_that_lived_long_enough_forgets_the_failures_before(box):
    fake = box.fake(die="exit3")
    hub = Hub(box, [entry("s", fake), entry("clock", box.fake())])
    for _ in range(3):
        hub.refused("s", "pid")
    fake.set(die=None)
    hub.await_row("s", lambda row: "next_try_ms" not in row, "due")
    pid, begun = hub.invoke("s", "pid")["pid"], time.monotonic()
    until(lambda: time.monotonic() - begun > 5.5, 7.0, "a start that lived long enough")
    os.kill(pid, signal.SIGKILL)
    row = hub.await_row("s", lambda row: row["state"] == "failing", "failing")
    assert "next_try_ms" not in row
    assert hub.invoke("s", "pid")["pid"] != pid
    hub.relay.finish()


# ------------------------------------------------------------------------------------ states and words


@slow
def test_g6_7_every_state_has_its_word_its_health_and_its_reason(box):
    slow_start, stubborn, live = box.fake(boot=0.5), box.fake(eof_wait=0.4), box.fake()
    hub = Hub(
        box,
        [
            entry("asleep", box.fake()),
            entry("starting", slow_start),
            entry("live", live),
            entry("stopping", stubborn, idleStop=50),
            entry("failing", ["/nonexistent/program"]),
            {"name": "remote", "description": "Far away", "url": "https://h.example/mcp"},
            {"name": "error", "description": "Wrong", "command": 3},
        ],
    )
    hub.invoke("live", "pid")
    assert hub.refused("failing", "pid")[0] == "INVALID_COMMAND"
    pid = hub.invoke("stopping", "pid")["pid"]
    stubborn.wait_for("eof")
    call = hub.begin("starting", "pid")
    slow_start.wait_for("start")
    rows = hub.rows()
    assert {name: row["state"] for name, row in rows.items()} == {
        "asleep": "asleep",
        "starting": "starting",
        "live": "live",
        "stopping": "stopping",
        "failing": "failing",
        "remote": "unsupported",
        "error": "error",
    }
    assert {name: row["healthy"] for name, row in rows.items()} == {
        "asleep": None,
        "starting": None,
        "live": True,
        "stopping": True,
        "failing": False,
        "remote": False,
        "error": False,
    }
    assert {name for name, row in rows.items() if "error" in row} == {"failing", "remote", "error"}
    assert "/nonexistent/program" in rows["failing"]["error"] and "no such file" in rows["failing"]["error"]
    assert rows["remote"]["error"] == "remote servers are not part of this version"
    assert "command" in rows["error"]["error"] and "kill -HUP %d" % hub.pid in rows["error"]["error"]
    assert hub.relay.result(call)["pid"] == slow_start.pid()
    gone(pid)
    hub.await_row("stopping", lambda row: row["state"] == "asleep", "asleep")
    hub.relay.finish()


def test_g6_1_g6_7_the_row_of_a_live_server_and_the_hub_itself(box):
    fake = box.fake(boot=0.05, tools=2)
    hub = Hub(box, [entry("s", fake, tags=["t"], examples=["do it"])])
    hub.invoke("s", "pid")
    hub.tool("list_commands", server="s")
    found = hub.tool("list_servers")
    (row,) = found["servers"]
    assert (
        row["tags"] == ["t"] and row["examples"] == ["do it"] and row["tools_count"] == 2 and row["available"] is True
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["last_checked"])
    assert isinstance(row["latency_ms"], int) and 0 <= row["latency_ms"] < 8000
    assert found["pid"] == hub.pid and found["config_file"] == str(hub.path) and 0 < found["uptime_ms"] < 60000
    hub.relay.finish()


@pytest.mark.parametrize(
    "flag, words",
    [
        ({"init_raw": "{}"}, "protocolVersion"),
        ({"refuse": {"initialize": {"code": -32000, "message": "not you"}}}, "not you"),
        ({"die_at": {"initialize": "exit7"}}, "exit status 7"),
        ({"die": "SIGKILL"}, "SIGKILL"),
    ],
)
def test_case_187_every_failed_start_has_a_reason(box, flag, words):
    fake = box.fake(**flag)
    hub = Hub(box, [entry("s", fake)])
    assert words in hub.refused("s", "pid")[1]
    assert words in hub.rows()["s"]["error"]
    until(hub.relay.asleep, what="the end of the server")
    hub.relay.finish()


def test_g6_6_list_servers_waits_for_nobody(box):
    """Nor does it for servers that hang in their start or in a call."""
    hanging, busy = box.fake(hang_at=["initialize"]), box.fake()
    hub = Hub(box, [entry("hanging", hanging), entry("busy", busy)], healthMonitor=dict(QUICK, idleTimeout=0))
    calls = [hub.begin("hanging", "pid"), hub.begin("busy", "hang")]
    hanging.wait_method("initialize")
    busy.wait_method("tools/call")
    begun = time.monotonic()
    states = {name: row["state"] for name, row in hub.rows().items()}
    assert time.monotonic() - begun < 1.0 and states == {"hanging": "starting", "busy": "live"}
    for call in calls:
        hub.relay.send(message("notifications/cancelled", params={"requestId": call}))
    hub.relay.finish()


def test_g5_2_a_failure_is_a_result_and_never_ends_the_hub(box):
    """The defect G9.5 of the older hub: a command that does not exist ended it."""
    hub = Hub(box, [entry("none", ["/nonexistent/program"]), entry("folder", [str(box.path)]), entry("s", box.fake())])
    for name in ("none", "folder"):
        for _ in range(3):
            assert hub.refused(name, "pid")[0] == "INVALID_COMMAND"
    found = hub.tool("list_commands", servers=["none", "folder", "s"])
    assert [item["name"] for item in found["s"]] == ["tool0"] and found["none"]["error"] and found["folder"]["error"]
    assert said(hub.relay.result(hub.start("list_servers")))["servers"]
    assert json.dumps(found).count("kill -HUP") >= 2
    hub.relay.finish()
