"""The hub with a hundred servers, with two hundred of which a quarter is broken, and what it costs (issue 6)."""

import os
import statistics
import time

import pytest

from harness import (
    FULL,
    INITIALIZED,
    LINUX,
    ROOT,
    Relay,
    alive,
    children,
    encode,
    initialize,
    memory_kib,
    message,
    until,
)
from test_hub_reload import Hub, entry, failure, gone, said

pytestmark = [pytest.mark.skipif(not LINUX, reason="reads /proc"), pytest.mark.slow, pytest.mark.timeout(180)]
SERVERS, RECORDED = 100, 100 if FULL else 20
MOST_PSS_KIB, MOST_LIST_MS, MOST_ADDED_MS = 30 * 1024, 100.0, 1.5
TURNS = 8  # a measurement on a machine that others use: the best turn counts


def pss_kib(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def best(measure, limit):
    """The least of a few turns; the first one below the limit is enough."""
    found = []
    while len(found) < TURNS:
        found.append(measure())
        if found[-1] <= limit:
            break
    return min(found)


def examples(box, count):
    """So many times the example server, under RECORDED different commands, each of which has a recording of its own."""
    return [
        {
            "name": "demo-%d" % number,
            "description": "Example server number %d" % number,
            "tags": ["example"],
            "command": ["env", "NUMBER=%d" % (number % RECORDED)] + box.command("demo", "--server"),
        }
        for number in range(count)
    ]


def test_issue_6_a_hundred_servers_from_recordings_run_nothing_and_cost_little(box):
    """All four ways of discovery: no process but the hub, 30 MiB, and a list of all in 100 ms."""
    servers = examples(box, SERVERS)
    names = [server["name"] for server in servers]
    first = Hub(box, servers)
    recorded = first.tool("list_commands", servers=names[:RECORDED], timeout=90.0)
    assert not [name for name in recorded if "error" in recorded[name]]
    first.relay.close()
    assert first.relay.wait(20.0) == 0
    assert len(box.recordings()) == RECORDED

    hub = Hub(box, servers, search=True)
    at = time.perf_counter()
    found = hub.tool("list_commands", servers=names)
    first_ms = (time.perf_counter() - at) * 1000
    assert list(found) == names and all(found[name] == recorded[names[0]] for name in names)
    assert len(hub.tool("list_servers", filter="EXAMPLE")["servers"]) == SERVERS
    assert {(row["state"], row["tools_count"], row["healthy"]) for row in hub.rows().values()} == {("asleep", 3, None)}
    assert {tool["name"] for tool in hub.relay.ask("tools/list")["tools"]} >= {"list_servers", "search_commands"}
    for name in names:
        (command,) = hub.tool("describe_commands", server=name, command_names=["add"])
        assert set(command["inputSchema"]["properties"]) == {"a", "b"}
    assert hub.tool("search_commands", query="adds numbers")["total"] == SERVERS

    def turn():
        spent = []
        for _ in range(15):
            begun = time.perf_counter()
            hub.relay.result(hub.start("list_commands", servers=names))
            spent.append((time.perf_counter() - begun) * 1000)
        return statistics.median(spent)

    list_ms = best(turn, MOST_LIST_MS)
    print("list_commands of %d servers: %.1f ms at first, then %.1f ms (p50)" % (SERVERS, first_ms, list_ms))
    assert list_ms < MOST_LIST_MS
    assert not [pid for pid in children(hub.pid)], "a process beside the hub"
    print("the hub with %d servers: %.1f MiB (PSS)" % (SERVERS, pss_kib(hub.pid) / 1024))
    assert pss_kib(hub.pid) < MOST_PSS_KIB
    hub.invoke("demo-7", "add", a=1, b=2)
    assert len(hub.relay.servers()) == 1
    hub.relay.finish()


def call_line(relay, tool, arguments):
    return encode(message("tools/call", 1, {"name": tool, "arguments": arguments}))


def test_issue_6_a_call_through_the_hub_costs_little_more_than_one_through_the_relay(box):
    """Direct, relay and hub in turn, so that the noise of the machine hits all three; medians."""
    server = [box.python, "-I", "-S", str(ROOT / "tools" / "bench.py"), "--server"]
    direct = Relay(box, server, box.env(), stderr_path=str(box.path / "direct"))
    box.relays.append(direct)
    hub = Hub(box, [entry("s", server)], logging={"level": "error"})
    kinds = [
        (direct, "echo", {}),
        (box.relay(server), "echo", {}),
        (hub.relay, "invoke_command", {"server": "s", "command_name": "echo"}),
    ]
    for process, tool, arguments in kinds[:2]:
        process.send(initialize(0), INITIALIZED)
        process.answer(0)
    lines = [call_line(*kind) for kind in kinds]

    def ask(at):
        kinds[at][0].send(lines[at])
        answer = kinds[at][0].line()
        assert b'"ok"' in answer, answer

    def turn():
        spent = [[], [], []]
        for number in range(150):
            for at in (number % 3, (number + 1) % 3, (number + 2) % 3):
                begun = time.perf_counter()
                ask(at)
                spent[at].append((time.perf_counter() - begun) * 1000)
        p50 = [statistics.median(times) for times in spent]
        print("a call, p50: direct %.3f ms, relay %.3f ms, hub %.3f ms" % tuple(p50))
        return p50[2] - p50[1]

    for at in range(3):
        for _ in range(10):
            ask(at)
    assert best(turn, MOST_ADDED_MS) <= MOST_ADDED_MS
    hub.relay.finish()


def broken(box):
    """(entries, names by kind): ten servers of each kind that cannot work; `loops` are Fakes."""
    kinds = {"missing": [], "hangs": [], "loops": [], "floods": [], "garbage": []}
    loops = [box.fake(die="exit1", stderr="no luck\n") for _ in range(9)]
    for number in range(9):
        kinds["missing"].append((["/nonexistent/program-%d" % number], {}))
        kinds["hangs"].append((box.fake(hang_at=["initialize"], children=["sleeper"]), {"startTimeout": 1000}))
        kinds["loops"].append((loops[number], {}))
        words = "yes '{\"no\": 1}'" if number < 2 else "yes 'E: noise' >&2"
        kinds["floods"].append((["sh", "-c", words, "flood-%d" % number], {"startTimeout": 1000, "stderr": "log"}))
        kinds["garbage"].append((box.fake(say="\x00\xff{]\n" * 50, init_raw='["odd"]', boot=0.1), {}))
    entries = [
        entry("%s-%d" % (kind, number), fake, **more)
        for kind, found in kinds.items()
        for number, (fake, more) in enumerate(found)
    ]
    return entries, {kind: ["%s-%d" % (kind, number) for number in range(9)] for kind in kinds}, loops


def test_issue_6_two_hundred_servers_of_which_fifty_are_broken(box):
    """All 150 others work meanwhile, nothing of the broken ones stays, and none of them is started again and again."""
    fakes = [box.fake() for _ in range(150 if FULL else 12)]
    good = [entry("good-%d" % number, fakes[number % len(fakes)]) for number in range(150)]
    bad, kinds, loops = broken(box)
    twice = [entry("good-%d" % number, ["/nonexistent/second"]) for number in range(5)]
    servers = [server for pair in zip(good[:45], bad) for server in pair] + good[45:] + twice
    assert len(servers) == 200
    hub = Hub(box, servers, healthMonitor={"interval": 100, "timeout": 1000}, logging={"level": "debug"})
    names = [server["name"] for server in servers[:-5]]
    pids = [hub.invoke("good-%d" % number, "pid")["pid"] for number in range(10)]
    if not FULL:  # they are recorded: what the batch starts are the broken ones
        hub.tool("list_commands", servers=names[:24:2], timeout=20.0)
    before, begun = memory_kib(hub.pid), time.monotonic()

    batch, took = hub.start("list_commands", servers=names), []
    while not [one for one in hub.relay.kept if one.get("id") == batch]:
        for number in range(10):
            at = time.monotonic()
            assert hub.invoke("good-%d" % number, "pid")["pid"] == pids[number]
            took.append(time.monotonic() - at)
        assert time.monotonic() - begun < 40
    found = said(hub.relay.result(batch))
    print("%d calls while %d servers were broken: longest %.0f ms" % (len(took), len(bad), max(took) * 1000))
    assert (
        max(took) < 2.0 and statistics.median(took) < 0.25
    )  # a live server takes a millisecond; the machine may be busy
    assert sorted(found) == sorted(names)
    for name in names:
        assert ("error" in found[name]) == (not name.startswith("good")), (name, found[name])
    words = {
        "missing": "no such file",
        "hangs": "startTimeout",
        "loops": "no luck",
        "floods": "startTimeout",
        "garbage": "protocolVersion",
    }
    for kind, members in kinds.items():
        assert all(words[kind] in found[name]["error"] for name in members), (kind, found[members[0]])

    for _ in range(12):  # insisting does not help, and costs no starts
        for name in (kinds["loops"][0], kinds["missing"][0], "good-1"):
            result = hub.relay.result(hub.begin(name, "pid"))
            assert (name == "good-1") != bool(result.get("isError"))
    assert loops[0].starts() <= 3 + (time.monotonic() - begun) / 0.5 and {fake.starts() for fake in loops[1:]} == {1}
    rows = hub.tool("list_servers")["servers"]
    assert {row["state"] for row in rows if row["name"] in found and not row["name"].startswith("good")} == {"failing"}
    assert len(rows) == 200, "one of those with a name that another has is not listed"
    for number in range(5):
        states = [row["state"] for row in rows if row["name"] == "good-%d" % number]
        assert sorted(states) == ["error", "live"], states
    running = len(hub.relay.servers())
    assert running <= 150 and memory_kib(hub.pid) - before < 12000, (running, memory_kib(hub.pid) - before)
    hub.relay.close()
    assert hub.relay.wait(10.0) == 0
    assert not [pid for pid in pids if alive(pid)]
    assert len(hub.relay.stderr()) < 3000000


def test_issue_6_a_broken_file_of_two_hundred_servers_and_its_repair(box):
    """Half of the entries are wrong and listed with their reasons; a reload mends them, and restarts nobody."""
    fake = box.fake()
    good = [entry("good-%d" % number, fake) for number in range(100)]
    wrong = [
        {"name": "wrong-%d" % number, "description": "d", "command": [None, [], "", 3, ["x", 1], {}][number % 6]}
        for number in range(100)
    ]
    hub = Hub(box, good + wrong)
    pid = hub.invoke("good-99", "pid")["pid"]
    rows = hub.rows()
    assert len(rows) == 200 and [rows["wrong-%d" % number]["state"] for number in range(100)] == ["error"] * 100
    assert all("command" in rows["wrong-%d" % number]["error"] for number in range(100))
    assert failure(hub.relay.result(hub.begin("wrong-3", "pid")))[0] == "INVALID_COMMAND"
    line = hub.reload(good + [entry(server["name"], fake) for server in wrong])
    assert "0 added, 0 removed, 100 modified, 100 unchanged" in line["message"]
    assert hub.invoke("wrong-3", "pid")["pid"] != pid == hub.invoke("good-99", "pid")["pid"]
    hub.reload(good[:1])
    gone(pid)
    until(lambda: not hub.relay.servers(), what="the end of all others")
    hub.relay.finish()
    assert os.path.exists(str(hub.path))
