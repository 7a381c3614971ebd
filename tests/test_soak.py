"""Many wakes and sleeps in one relay: nothing grows (marked slow; MCP_LAZY_FULL=1 runs the full number)."""

import json
import os
import time

import pytest

from harness import FULL, children, cpu_s, fds, memory_kib, message, proc_stat, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CYCLES = 1000 if FULL else 150


def switches(pid):
    with open("/proc/%d/status" % pid) as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("voluntary"))


def test_issue_2_wake_and_sleep_cycles_without_growth(box):
    """Descriptors, processes and memory after the first tenth are those at the end."""
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=10ms")

    def cycles(count):
        for _ in range(count):
            relay.call("pid", timeout=10)
            until(relay.asleep, what="the idle stop")
            assert relay.kept == []
            relay.raw.clear()
        return sorted(fds(relay.pid)), sorted(pid for pid in children(relay.pid)), memory_kib(relay.pid)
    first = cycles(CYCLES // 10)
    last = cycles(CYCLES - CYCLES // 10)
    assert last[0] == first[0] and last[1] == first[1]
    assert last[2] - first[2] < 300, "KiB of private memory, %d cycles: %d -> %d" % (CYCLES, first[2], last[2])
    assert all(proc_stat(pid)["state"] != "Z" for pid in last[1])
    assert fake.starts() == CYCLES + 1
    assert not [name for name in os.listdir(str(box.cache)) if name.startswith(".tmp-")]


def test_crashes_and_restarts_without_growth(box):
    """The same for servers that die in a call: an error each time, a fresh one each time."""
    fake = box.fake()
    relay = box.warm(fake, "--restart-backoff=0")

    def cycles(count):
        for _ in range(count):
            assert "exit status 3" in relay.error(relay.start_call("die", how="exit3", stderr="x" * 3000), timeout=10)["message"]
            relay.raw.clear()
        until(relay.asleep, what="the reaping")
        return sorted(fds(relay.pid)), sorted(children(relay.pid)), memory_kib(relay.pid)
    first = cycles(CYCLES // 10)
    last = cycles(CYCLES // 2)
    assert last[:2] == first[:2] and last[2] - first[2] < 300, (first, last)


def test_many_messages_without_growth(box):
    """Calls of one live server, large ones among them: what was buffered is given back."""
    fake = box.fake()
    relay = box.warm(fake)

    def rounds(count):
        for number in range(count):
            relay.call("length", s="m" * (1 << 20 if number % 20 == 0 else 1000), timeout=10)
            relay.raw.clear()
        return sorted(fds(relay.pid)), memory_kib(relay.pid)
    first = rounds(100)
    last = rounds(CYCLES * 4)
    assert last[0] == first[0] and last[1] - first[1] < 1500, (first, last)


def test_issue_4_many_tokens_tasks_and_visits_without_growth(box):
    """Each call has a progress token of its own, and its server tells of a task and of a visit: what is kept of them is bounded."""
    fake = box.fake()
    relay = box.warm(fake)

    def told(method, **params):
        return json.dumps(message(method, params=params)) + "\n"

    def calls(first, count):
        for number in range(first, first + count):
            text = "".join((
                told("notifications/progress", progressToken=number, progress=1),
                told("notifications/progress", progressToken=number - 1, progress=2),
                told("notifications/tasks/status", taskId="t%d" % number, status="working", ttl=1),
                told("notifications/elicitation/complete", elicitationId="e%d" % number)))
            params = {"name": "raw", "arguments": {"text": text}, "_meta": {"progressToken": number}}
            relay.result(relay.request("tools/call", params), timeout=10)
            kept = [one["params"]["progressToken"] for one in relay.kept if one["method"] == "notifications/progress"]
            assert kept == [number], "one is late"
            relay.kept.clear()
            relay.raw.clear()
        return sorted(fds(relay.pid)), memory_kib(relay.pid)
    relay.result(relay.request("tools/call", {"name": "pid", "_meta": {"progressToken": 0}}))
    settled = 4700 if FULL else 1100  # as many as are kept: 1,000 tasks and visits, 4,608 tokens of 70 bytes
    first = calls(1, settled)
    last = calls(settled + 1, CYCLES * 4)
    assert last[0] == first[0] and last[1] - first[1] < 300, (first, last)


def test_design_3_asleep_means_asleep(box):
    """No timer and no wake-up while nothing happens: not one context switch, no processor time."""
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=20ms")
    relay.call("pid")
    until(relay.asleep, what="the idle stop")
    until(lambda: proc_stat(relay.pid)["state"] == "S", what="sleep")
    settled = [switches(relay.pid), time.monotonic()]

    def quiet():
        now = switches(relay.pid)
        if now != settled[0]:
            settled[:] = [now, time.monotonic()]
        return time.monotonic() - settled[1] > 0.3
    until(quiet, what="rest")
    before = (switches(relay.pid), cpu_s(relay.pid))
    end = time.monotonic() + (10 if FULL else 1.5)
    until(lambda: time.monotonic() > end, timeout=20, what="time")
    assert (switches(relay.pid), cpu_s(relay.pid)) == before
