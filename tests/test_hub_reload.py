"""The hub reads its file again: on SIGHUP, or by itself with "watch" (G11, cases 188-192).

The first part drives a hub for the other tests of it, too.
"""

import ctypes
import functools
import itertools
import json
import os
import re
import select
import signal

import pytest

from harness import FULL, INITIALIZED, LINUX, alive, initialize, proc_stat, until

pytestmark = pytest.mark.skipif(not LINUX, reason="reads /proc")
slow = pytest.mark.slow


# -------------------------------------------------------------------------------------- a hub


def entry(name, fake, **more):
    """One server of a servers.json: a Fake, or the words of a command."""
    return dict({"name": name, "description": "The server %s" % name, "command": getattr(fake, "argv", fake)}, **more)


class Hub:
    """A running hub in a Box. `servers` are entries, `config` is the rest of its file; stderr: "2>FILE" of a shell."""

    numbers = itertools.count(1)

    def __init__(self, box, servers, options=(), env=None, greet=True, preexec=None, stderr=None, **config):
        self.path = box.path / ("servers-%d.json" % next(self.numbers))
        self.write(servers, **config)
        argv = box.command("hub", "--config", self.path, *options)
        if stderr:
            argv = ["sh", "-c", 'exec "$@" %s' % stderr, "sh"] + argv
        self.relay = box.relay([], argv=argv, env=env, preexec=preexec)
        self.pid = self.relay.pid
        if greet:
            self.relay.handshake()

    # ------------------------------------------------------------------------------- its file
    def write(self, servers, **config):
        self.write_raw(json.dumps(dict({"servers": servers}, **config)))

    def write_raw(self, text):
        fresh = "%s.new" % self.path
        with open(fresh, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        os.replace(fresh, str(self.path))

    def hup(self, event="config_reload_success"):
        """SIGHUP; the line of the log that tells how it ended."""
        before = len(self.log(event))
        self.relay.signal(signal.SIGHUP)
        return until(lambda: self.log(event)[before:], what="the log to say %s" % event)[0]

    def reload(self, servers, **config):
        self.write(servers, **config)
        return self.hup()

    # -------------------------------------------------------------------------------- its tools
    def start(self, tool, **arguments):
        """The id of a call that is under way."""
        return self.relay.request("tools/call", {"name": tool, "arguments": arguments})

    def tool(self, tool, timeout=8.0, **arguments):
        """What a meta-tool says, decoded."""
        return said(self.relay.result(self.start(tool, **arguments), timeout))

    def fails(self, tool, timeout=8.0, **arguments):
        """(code, text) of a meta-tool's failure."""
        return failure(self.relay.result(self.start(tool, **arguments), timeout))

    def begin(self, server, command, **parameters):
        return self.start("invoke_command", server=server, command_name=command, parameters=parameters)

    def invoke(self, server, command, timeout=8.0, **parameters):
        """The result of a command of a server, which has to be none of the hub's own failures."""
        found = self.relay.result(self.begin(server, command, **parameters), timeout)
        assert "lazyMcp" not in found.get("_meta", {}), found
        return found

    def refused(self, server, command, timeout=8.0, **parameters):
        """(code, text) of the failure of a command."""
        return failure(self.relay.result(self.begin(server, command, **parameters), timeout))

    def rows(self):
        """{name: row} of list_servers."""
        return {row["name"]: row for row in self.tool("list_servers")["servers"]}

    def await_row(self, server, test, what):
        """The first row of a server for which `test` holds."""

        def look():
            row = self.rows()[server]
            return row if test(row) else None

        return until(look, what="the row of %s to be %s" % (server, what))

    # ---------------------------------------------------------------------------------- its log
    def log(self, event=None):
        """The lines of its log, decoded; a line that is not whole yet is left out."""
        lines = self.relay.stderr().split("\n")[:-1]
        found = [json.loads(line) for line in lines if line]
        return [line for line in found if event is None or line.get("event") == event]


def said(result):
    assert not result.get("isError"), result
    (item,) = result["content"]
    return json.loads(item["text"])


def failure(result):
    """(code, text) of a result that is a failure of the hub's own (G5.2, G9.4)."""
    assert result.get("isError") is True, result
    (item,) = result["content"]
    return result["_meta"]["lazyMcp"]["code"], item["text"]


def gone(pid):
    until(lambda: not alive(pid), what="the end of %d" % pid)


# ------------------------------------------------------------------------ what changes, what stays


def shape(form, servers, blank=" "):
    """The text of a file in either form, each entry spelt with its members in the other order, with comments."""

    def turned(value):
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(list(value))}
        return value

    if form == "list":
        document = {"servers": [turned(server) for server in servers]}
    else:
        document = {
            "mcpServers": {
                server["name"]: turned(
                    {"args": server["command"][1:], "command": server["command"][0], "env": server.get("env", {})}
                )
                for server in servers
            }
        }
    return "// read again\n%s%s\n/* the end */\n" % (blank, json.dumps(document, indent=3))


@pytest.mark.parametrize("form", ["list", "object"])
def test_g11_1_g11_5_case_188_only_what_changed_is_touched(box, form):
    same, changed, removed, added = box.fake(), box.fake(words=["--old"]), box.fake(), box.fake()
    before = [entry("same", same, env={"A": "1", "B": "2"}), entry("changed", changed), entry("removed", removed)]
    hub = Hub(box, before)
    hub.write_raw(shape(form, before))
    hub.hup()
    pids = {name: hub.invoke(name, "pid")["pid"] for name in ("same", "changed", "removed")}
    changed.argv[-1] = "--new"
    after = [entry("added", added), entry("changed", changed), entry("same", same, env={"B": "2", "A": "1"})]
    hub.write_raw(shape(form, after, "\n\t\n"))
    line = hub.hup()
    assert "1 added, 1 removed, 1 modified, 1 unchanged" in line["message"]
    assert (line["added"], line["removed"], line["modified"]) == (["added"], ["removed"], ["changed"])
    assert list(hub.rows()) == ["added", "changed", "same"], "the order is not that of the file"
    assert hub.invoke("same", "pid") == {"pid": pids["same"], "calls": 2}
    assert hub.invoke("added", "echo", x=1) == {"echo": {"x": 1}}
    assert hub.invoke("changed", "argv")["argv"][-1] == "--new"
    gone(pids["removed"])
    gone(pids["changed"])
    assert hub.refused("removed", "pid")[0] == "SERVER_NOT_FOUND"
    assert same.starts() == 1 and removed.starts() == 1
    assert not [found for found in hub.relay.kept if "method" in found], "a notification that nobody needs"
    hub.relay.finish()


def test_g11_3_a_reload_without_a_change_restarts_nothing(box):
    """Commands that are arrays are no change by themselves; neither is the same file again and again."""
    fakes = [box.fake() for _ in range(3)]
    servers = [entry("s%d" % at, fake) for at, fake in enumerate(fakes)]
    hub = Hub(box, servers)
    pids = [hub.invoke("s%d" % at, "pid")["pid"] for at in range(3)]
    for _ in range(3):
        assert "0 added, 0 removed, 0 modified, 3 unchanged" in hub.hup()["message"]
    assert [hub.invoke("s%d" % at, "pid")["pid"] for at in range(3)] == pids
    hub.relay.finish()


def test_g11_1_a_server_that_was_asleep_is_not_started_by_a_reload(box):
    fakes = [box.fake() for _ in range(3)]
    hub = Hub(box, [entry("a", fakes[0]), entry("b", fakes[1])])
    hub.reload([entry("a", fakes[0]), entry("b", fakes[1], tags=["new"]), entry("c", fakes[2])])
    assert {name: row["state"] for name, row in hub.rows().items()} == dict.fromkeys("abc", "asleep")
    assert hub.relay.asleep() and not any(fake.starts() for fake in fakes)
    hub.relay.finish()


def test_g2_3_the_advice_of_an_error_is_what_mends_it(box):
    """A failing server names the file and the signal; following that makes the next call work, whatever its backoff."""
    fake = box.fake()
    hub = Hub(box, [entry("s", ["/nonexistent/program"])])
    for _ in range(4):
        code, text = hub.refused("s", "pid")
    assert code == "INVALID_COMMAND"
    file, pid = re.search(r"edit (\S+), then: kill -HUP (\d+)", text).groups()
    assert file == str(hub.path) and int(pid) == hub.pid
    hub.reload([entry("s", fake)])
    assert hub.rows()["s"]["state"] == "asleep"
    assert hub.invoke("s", "pid")["pid"] == fake.pid()
    hub.relay.finish()


# -------------------------------------------------------------------------------- calls under way


@slow
def test_g11_5_case_191_open_calls_end_normally_and_new_ones_go_to_the_new_set(box):
    old, new, removed = box.fake(words=["--old"]), box.fake(words=["--new"]), box.fake()
    hub = Hub(box, [entry("changed", old), entry("removed", removed)])
    pids = [hub.invoke("changed", "pid")["pid"], hub.invoke("removed", "pid")["pid"]]
    calls = [hub.begin("changed", "late"), hub.begin("removed", "sleep", s=0.6)]
    old.wait_method("tools/call", 2)
    removed.wait_method("tools/call", 2)
    hub.reload([entry("changed", new)])
    assert hub.invoke("changed", "argv")["argv"][-1] == "--new"
    assert hub.refused("removed", "pid")[0] == "SERVER_NOT_FOUND"
    assert list(hub.rows()) == ["changed"]
    assert all(alive(pid) for pid in pids), "a server was stopped with an open call"
    assert hub.relay.result(calls[1]) == {"slept": 0.6}
    gone(pids[1])
    hub.relay.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": calls[0]}})
    gone(pids[0])
    assert old.methods().count("notifications/cancelled") == 1
    hub.relay.finish()


@pytest.mark.skipif(not FULL, reason="waits for the whole drain time; MCP_LAZY_FULL=1 runs it")
def test_g11_5_case_191_after_the_drain_time_an_open_call_is_an_error(box):
    """Case 191 has a call of 10 s; the drain time of the specification is 5 s, and the specification wins."""
    removed, kept = box.fake(), box.fake()
    hub = Hub(box, [entry("removed", removed), entry("kept", kept)], requestTimeout=60000)
    pid = hub.invoke("removed", "pid")["pid"]
    call = hub.begin("removed", "hang")
    removed.wait_method("tools/call", 2)
    hub.reload([entry("kept", kept)])
    found = failure(hub.relay.result(call, 7.0))
    assert found[0] == "SERVER_CRASHED" and "removed" in found[1], found
    gone(pid)
    hub.relay.finish()


@pytest.mark.parametrize("change", ["removed", "modified"])
def test_g11_5_a_call_that_waits_for_the_start_of_what_is_replaced_ends_normally(box, change):
    """It was open when the file changed, although nothing was sent to the server yet."""
    fake, other = box.fake(boot=0.3), box.fake()
    hub = Hub(box, [entry("s", fake), entry("other", other)])
    call = hub.begin("s", "pid")
    fake.wait_for("start")
    hub.reload(([entry("s", fake, tags=["changed"])] if change == "modified" else []) + [entry("other", other)])
    found = hub.relay.result(call)
    assert found.get("pid") == fake.events("start")[0]["pid"], found
    gone(found["pid"])
    hub.relay.finish()


def test_g11_1_a_reload_during_a_start_leaves_an_unchanged_server_alone(box):
    fake = box.fake(boot=0.2)
    hub = Hub(box, [entry("s", fake)])
    calls = [hub.begin("s", "pid") for _ in range(3)]
    fake.wait_for("start")
    hub.reload([entry("s", fake), entry("t", box.fake())])
    assert {hub.relay.result(call)["pid"] for call in calls} == {fake.pid()} and fake.starts() == 1
    hub.relay.finish()


@slow
def test_g11_5_the_hub_answers_while_a_stubborn_server_is_being_ended(box):
    """The ladder of what was removed takes its time; nobody waits for it, and two generations may end at once."""
    flags = {"ignore_eof": True, "ignore": ["SIGTERM", "SIGINT", "SIGHUP"], "children": ["stubborn"]}
    first, second, other = box.fake(**flags), box.fake(**flags), box.fake()
    hub = Hub(box, [entry("s", first), entry("other", other)])
    pids = [hub.invoke("s", "pid")["pid"]]
    hub.invoke("other", "pid")
    hub.reload([entry("s", second), entry("other", other)])
    pids.append(hub.invoke("s", "pid")["pid"])
    hub.reload([entry("other", other)])
    assert hub.invoke("other", "pid")["pid"] == other.pid()
    assert all(alive(pid) for pid in pids), "they were not stubborn, or the call waited for them"
    for pid in pids + first.descendants() + second.descendants():
        gone(pid)
    hub.relay.finish()


def test_g17_2_the_end_of_the_hub_ends_what_was_replaced_too(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake), entry("other", box.fake())], requestTimeout=60000)
    pid = hub.invoke("s", "pid")["pid"]
    hub.begin("s", "hang")
    fake.wait_method("tools/call", 2)
    hub.reload([entry("other", box.fake())])
    hub.relay.signal(signal.SIGTERM)
    assert hub.relay.wait(3.0) == 0
    assert not alive(pid)


@slow
def test_case_189_all_tools_see_one_set_while_it_is_switched(box):
    """A client that invokes at once what it saw: what is in both sets never is unknown, and never restarts."""
    both, a, b = box.fake(), box.fake(), box.fake()
    sets = [[entry("both", both), entry("a", a)], [entry("b", b), entry("both", both)]]
    hub = Hub(box, sets[0])
    names, reloads = set(), 100 if FULL else 25
    for number in range(reloads):
        hub.write(sets[(number + 1) % 2])
        calls = [hub.start("list_servers"), hub.begin("both", "pid"), hub.start("list_commands", servers=["both"])]
        hub.relay.signal(signal.SIGHUP)
        calls += [
            hub.start("list_servers"),
            hub.begin("both", "pid"),
            hub.start("describe_commands", server="both", command_names=["tool0"]),
        ]
        results = [hub.relay.result(call) for call in calls]
        assert not [result for result in results if result.get("isError")], results
        for seen in (said(results[0]), said(results[3])):
            shown = sorted(row["name"] for row in seen["servers"])
            assert shown in (["a", "both"], ["b", "both"]), shown
        other = shown[0]
        names.add(other)
        found = hub.relay.result(hub.begin(other, "echo", n=number))
        assert found == {"echo": {"n": number}} or failure(found)[0] == "SERVER_NOT_FOUND", found
    assert both.starts() == 1 and names == {"a", "b"}
    until(lambda: len(hub.relay.servers()) <= 2, what="the end of the servers of the other set")
    hub.relay.finish()


# ------------------------------------------------------------------------------- files that are wrong


def bad_files(good):
    """(what is wrong, text or None for no file, what the log has to name)."""

    def with_member(**more):
        return json.dumps(dict({"servers": good}, **more))

    return [
        ("absent", None, "No such file"),
        ("empty", "", "line 1"),
        ("blanks", " \n\n ", "line"),
        ("cut", with_member()[:-1], "line 1"),
        ("not UTF-8", b'{"servers": "\xff"}', ""),
        ("NUL", b"{}\0", ""),
        ("an array", "[]", "object"),
        ("null", "null", "object"),
        ("no servers", "{}", "servers"),
        ("empty servers", '{"servers": []}', "servers"),
        ("wrong servers", '{"servers": 3}', "servers"),
        ("case 192 broken", '{"mcpServers":{"a":{"command":"x"}', "line 1"),
        ("request timeout", with_member(requestTimeout="soon"), "requestTimeout"),
        ("level", "{\n" + with_member(logging={"level": "loud"})[1:], "line 2"),
        ("permissions", with_member(permissions={"default": "maybe"}), "permissions"),
        ("rules", with_member(permissions={"rules": [{"pattern": "*", "action": "dney"}]}), "permissions"),
        ("twice", '{"servers": [], "servers": %s}' % json.dumps(good), "servers"),
        ("deep", "[" * 100000, ""),
    ]


def test_g11_1_case_192_a_wrong_file_changes_nothing_and_is_told(box):
    fake = box.fake()
    good = [entry("s", fake)]
    hub = Hub(box, good)
    pid = hub.invoke("s", "pid")["pid"]
    for what, text, word in bad_files(good):
        if text is None:
            os.unlink(str(hub.path))
        else:
            hub.write_raw(text)
        line = hub.hup("config_reload_failed")
        assert line["level"] == "error" and str(hub.path) in line["message"] and word in line["message"], (what, line)
        assert hub.invoke("s", "pid")["pid"] == pid, what
    os.unlink(str(hub.path))
    os.mkdir(str(hub.path))
    hub.hup("config_reload_failed")
    os.rmdir(str(hub.path))
    assert list(hub.rows()) == ["s"] and not hub.log("config_reload_success")
    assert "1 unchanged" in hub.reload(good)["message"]
    assert hub.invoke("s", "pid")["pid"] == pid and fake.starts() == 1
    hub.relay.finish()


def test_g11_5_case_192_one_wrong_server_is_shown_at_once_and_the_others_are_taken(box):
    """Of case 192: `a` is shown as broken, and `b` taken. A list is no command in that form of the file."""
    fake = box.fake()
    hub = Hub(box, [entry("a", fake), entry("b", fake)])
    hub.write_raw(
        json.dumps({"mcpServers": {"a": {"command": ["x"]}, "b": {"command": fake.argv[0], "args": fake.argv[1:]}}})
    )
    hub.hup()
    rows = hub.rows()
    assert rows["a"]["state"] == "error" and rows["a"]["healthy"] is False and "command" in rows["a"]["error"]
    code, text = hub.refused("a", "pid")
    assert code == "INVALID_COMMAND" and "Server 0 (a)" in text and "kill -HUP %d" % hub.pid in text
    assert hub.invoke("b", "echo") == {"echo": {}} and hub.rows()["b"]["healthy"] is True
    hub.relay.finish()


# -------------------------------------------------------------------------------------- when it comes


def test_case_192_a_hup_before_the_first_request(box):
    fake = box.fake()
    hub = Hub(box, [entry("old", fake)], greet=False)
    until(lambda: hub.log("service_start"), what="the start")
    hub.reload([entry("new", fake)])
    hub.relay.handshake()
    assert list(hub.rows()) == ["new"]
    hub.relay.finish()


def test_case_192_a_hup_that_was_pending_at_the_start(box):
    def pending():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        os.kill(os.getpid(), signal.SIGHUP)

    hub = Hub(box, [entry("s", box.fake())], preexec=pending)
    assert list(hub.rows()) == ["s"]
    hub.relay.finish()


def listens_to_hup(pid):
    """Has it a handler for SIGHUP, or ignores it?"""
    found = dict(line.split(":", 1) for line in open("/proc/%d/status" % pid, encoding="ascii") if line[:3] == "Sig")
    return (int(found["SigCgt"], 16) | int(found["SigIgn"], 16)) & 1


@pytest.mark.parametrize("name", ["mcp-lazy", "Lazy-MCP-2"])
@pytest.mark.parametrize("ignored", [True, False], ids=["from the start", "from line 1 on"])
def test_case_192_hups_at_any_moment_of_the_start(box, ignored, name):
    """One each millisecond until it answers, and the file of the last one is the one that counts.

    Before line 1 runs nobody but who starts it can see to it that a HUP does not end it; what is inherited as ignored
    must not become the end later. The first round compiles.
    """
    fake, script = box.fake(), box.path / name
    script.symlink_to(box.module)
    env = box.env(XDG_CACHE_HOME=str(box.path / "cache"))
    for number in range(12 if FULL else 5):
        path = box.path / ("hupped-%d.json" % number)
        path.write_text(json.dumps({"servers": [entry("old", fake)]}))
        words = ["--config", str(path)] if name[0] == "L" else ["hub", "--config", str(path)]
        hub = box.relay([], argv=box.command()[:-1] + [str(script)] + words, env=env,
                        preexec=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN) if ignored else None)
        if not ignored:
            until(lambda: listens_to_hup(hub.pid), what="line 1")
        fresh = box.path / "fresh.json"
        fresh.write_text(json.dumps({"servers": [entry("new", fake)]}))
        fresh.replace(path)
        hub.send(initialize(0))
        while not select.select([hub.stdout], [], [], 0.001)[0]:
            hub.signal(signal.SIGHUP)
        assert hub.process.poll() is None, (number, hub.process.poll(), hub.stderr())
        assert hub.result(0)["serverInfo"]
        hub.send(INITIALIZED)
        until(lambda: '\\"new\\"' in json.dumps(hub.ask("tools/call", {"name": "list_servers", "arguments": {}})),
              what="the last file: no reload is lost")
        hub.finish()


@pytest.mark.parametrize("words", [["npx"], ["hub", "check"], ["hub", "import", "--client", "claude"]], ids=" ".join)
def test_only_a_hub_stays_when_the_terminal_goes(box, words):
    """A relay that starts and a check end at once, as the ladder of signals says."""
    cache = box.path / "empty"  # nothing is compiled: there is time
    relay = box.relay([], argv=box.command(*words), env=box.env(XDG_CACHE_HOME=str(cache)))
    until(lambda: listens_to_hup(relay.pid), what="line 1")
    relay.signal(signal.SIGHUP)
    assert relay.process.wait(10) == 0


def test_case_192_a_hup_while_the_file_is_read_for_the_first_time(box):
    """It comes when the file is opened; reading hundreds of servers takes a while. inotify says when."""
    fake = box.fake()
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert watcher >= 0
    opened = []

    class Watched(Hub):
        def write_raw(self, text):
            super().write_raw(text)
            opened.append(libc.inotify_add_watch(watcher, os.fsencode(str(self.path)), 0x20))  # IN_OPEN

    hub = Watched(box, [entry("s%d" % number, fake) for number in range(400)], greet=False)

    def seen():
        try:
            return os.read(watcher, 4096)
        except BlockingIOError:
            return None

    assert opened[0] >= 0
    until(seen, what="the hub to open its file")
    hub.relay.signal(signal.SIGHUP)
    os.close(watcher)
    hub.relay.send(initialize(0))
    assert hub.relay.result(0)["serverInfo"]
    hub.relay.send(INITIALIZED)
    assert len(hub.rows()) == 400
    hub.relay.finish()


def test_g11_1_two_hups_in_a_row_end_with_the_newest_file(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)])
    pid = hub.invoke("s", "pid")["pid"]
    for number in range(20):
        hub.write([entry("s", fake), entry("n%d" % number, fake)])
        hub.relay.signal(signal.SIGHUP)
        hub.relay.signal(signal.SIGHUP)
    until(lambda: list(hub.rows()) == ["s", "n19"], what="the newest file")
    assert hub.invoke("s", "pid")["pid"] == pid and fake.starts() == 1
    hub.relay.finish()


# ------------------------------------------------------------------------------- what is taken over


def test_g11_1_g16_2_permissions_change_at_once_and_restart_nothing(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)])
    pid = hub.invoke("s", "pid")["pid"]
    hub.reload([entry("s", fake)], permissions={"rules": [{"pattern": "p*", "action": "deny", "message": "not now"}]})
    result = hub.relay.result(hub.begin("s", "pid"))
    assert (
        result["isError"]
        and result["_meta"]["lazyMcpPolicy"] == "blocked"
        and "not now" in result["content"][0]["text"]
    )
    assert hub.invoke("s", "echo") == {"echo": {}}
    hub.write([entry("s", fake)], permissions={"rules": [{"pattern": "p*", "action": "perhaps"}]})
    hub.hup("config_reload_failed")
    assert failure(hub.relay.result(hub.begin("s", "pid")))[0] == "POLICY_BLOCKED", "a wrong file opened what was shut"
    hub.reload([entry("s", fake)])
    assert hub.invoke("s", "pid")["pid"] == pid
    hub.reload([entry("s", fake, permissions={"default": "deny"})])
    assert hub.refused("s", "pid")[0] == "POLICY_BLOCKED"
    assert [row.get("denied") for row in hub.tool("list_commands", server="s")] == [True]
    hub.relay.finish()


def test_g11_5_the_request_timeout_is_taken_over_and_keeps_the_server(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)])
    pid = hub.invoke("s", "pid")["pid"]
    hub.reload([entry("s", fake)], requestTimeout=150)
    code, text = hub.refused("s", "hang", timeout=3.0)
    assert code == "SERVER_TIMEOUT" and "0.15 s" in text
    hub.reload([entry("s", fake)], requestTimeout=5000)
    assert hub.invoke("s", "sleep", s=0.2) == {"slept": 0.2}
    assert hub.invoke("s", "pid")["pid"] == pid and fake.starts() == 1
    hub.relay.finish()


def test_g1_6_a_flag_still_wins_behind_a_reload(box):
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)], options=["--request-timeout=150"])
    hub.reload([entry("s", fake)], requestTimeout=60000)
    assert hub.refused("s", "hang", timeout=3.0)[0] == "SERVER_TIMEOUT"
    hub.relay.finish()


def test_g11_1_log_cache_and_search_are_taken_over_and_a_transport_needs_a_restart(box):
    fake, other = box.fake(), box.fake()
    hub = Hub(box, [entry("s", fake)], cache={"strategy": "none"})
    assert len(hub.tool("list_commands", server="s")) == 1 and not box.recordings()
    hub.reload(
        [entry("s", fake), entry("other", other)],
        logging={"level": "debug"},
        search=True,
        transport={"type": "http", "authToken": "S3CR3T-transport"},
    )
    assert [line for line in hub.log() if "transport" in line["message"] and "restart" in line["message"]]
    assert "S3CR3T" not in hub.relay.stderr()
    assert "search_commands" in [tool["name"] for tool in hub.relay.ask("tools/list")["tools"]]
    hub.invoke("other", "pid")
    assert [line for line in hub.log() if line["level"] == "debug"]
    hub.tool("list_commands", server="other")
    until(box.recordings, what="a recording, which the new file allows")
    hub.relay.finish()


def test_g11_5_list_changed_only_when_the_embedded_summaries_changed(box):
    fake, other = box.fake(), box.fake()
    first, embed = [entry("s", fake)], {"enabled": True}
    hub = Hub(box, first, embedServerSummaries=embed)

    def told(servers, **config):
        hub.reload(servers, **config)
        hub.relay.barrier()
        found, hub.relay.kept[:] = [one.get("method") for one in hub.relay.kept], []
        return found

    def description():
        return hub.relay.ask("tools/list")["tools"][0]["description"]

    changed = ["notifications/tools/list_changed"]
    assert "- s: The server s" in description()
    assert told(first, embedServerSummaries=embed) == []
    assert told([entry("s", fake, tags=["t"])], embedServerSummaries=embed) == []
    assert told(first, embedServerSummaries=embed, requestTimeout=500) == []
    assert told([entry("s", fake, description="Another text")], embedServerSummaries=embed) == changed
    assert "- s: Another text" in description()
    assert told([entry("s", fake), entry("t", other)], embedServerSummaries=embed) == changed
    assert (
        told([entry("s", fake), entry("t", other)], embedServerSummaries={"enabled": True, "maxServers": 1}) == changed
    )
    assert "- t:" not in description() and "and 1 more" in description()
    assert told(first) == changed
    assert "- s:" not in description()
    assert told([entry("t", other)]) == []
    hub.write_raw("{")
    hub.hup("config_reload_failed")
    assert hub.relay.barrier() == [] and fake.starts() == 0
    hub.relay.finish()


def test_case_195_secrets_of_a_removed_server_stay_hidden_while_it_drains(box):
    """Its call is still open: what it says at its end goes through the same hands as before."""
    fake = box.fake(delay={"tools/call": 0.3})
    secret = "S3CR3T-of-the-old-set"
    hub = Hub(box, [entry("s", fake, env={"ANY_NAME": secret}, stderr="log")], logging={"level": "debug"})
    call = hub.begin("s", "die", how="exit3", stderr="the variable is %s\n" % secret)
    fake.wait_method("tools/call")
    hub.reload([entry("other", box.fake())], logging={"level": "debug"})
    result = json.dumps(hub.relay.result(call))
    hub.relay.finish()
    assert "exit status 3" in result and "the variable is" in result
    assert secret not in result and secret not in hub.relay.stderr()


# -------------------------------------------------------------------------------------------- watch


@slow
def test_g11_5_watch_reads_a_changed_file_by_itself(box):
    """Hubs side by side, since it takes its time: one watches from its start, one since a reload, one never."""
    fake = box.fake()
    servers = [entry("s", fake)]
    hubs = [Hub(box, servers, watch=True), Hub(box, servers), Hub(box, servers)]
    pids = [hub.invoke("s", "pid")["pid"] for hub in hubs]
    hubs[1].reload(servers, watch=True)
    watching, seen = hubs[:2], [len(hub.log("config_reload_success")) for hub in hubs]

    def wait(test, what):
        for number, hub in enumerate(watching):
            until(lambda: test(hub), timeout=6.0, what="hub %d to read %s" % (number, what))

    for hub in hubs:
        hub.write(servers + [entry("added", fake)], watch=True)
    wait(lambda hub: "added" in hub.rows(), "the changed file")
    assert [hub.invoke("s", "pid")["pid"] for hub in hubs] == pids
    assert [len(hub.log("config_reload_success")) for hub in watching] == [number + 1 for number in seen[:2]]
    for hub in watching:
        hub.write_raw("{")
    wait(lambda hub: hub.log("config_reload_failed"), "the wrong file")
    assert [hub.invoke("s", "pid")["pid"] for hub in hubs] == pids and "added" in watching[0].rows()
    if FULL:
        for hub in watching:
            hub.write(servers, watch=True)
        wait(lambda hub: list(hub.rows()) == ["s"], "the mended file")
        assert [len(hub.log("config_reload_failed")) for hub in watching] == [
            1,
            1,
        ], "a wrong file was read again and again"
    assert list(hubs[2].rows()) == ["s"] and not hubs[2].log(
        "config_reload_start"
    ), "it reads its file although nobody said so"
    for hub in hubs:
        hub.relay.finish()


def test_a_reload_leaves_no_descriptor_behind(box):
    """Servers that come and go, and files that are wrong: what was opened for them is given back."""
    fake = box.fake()
    hub = Hub(box, [entry("s", fake)])

    def round_trip():
        for servers in ([entry("s", fake, tags=["x"])], [entry("s", fake)]):
            hub.reload(servers)
            hub.invoke("s", "pid")
        until(lambda: len(hub.relay.servers()) == 1, what="the end of the old server")
        hub.write_raw("{")
        hub.hup("config_reload_failed")
        return len(os.listdir("/proc/%d/fd" % hub.pid))

    first = round_trip()
    assert [round_trip() for _ in range(3)] == [first] * 3
    assert not [pid for pid in hub.relay.servers() if proc_stat(pid)["state"] == "Z"]
    hub.relay.finish()
