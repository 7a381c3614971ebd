"""The wake predicate, when not to sleep, what must survive a restart, the relay's log (C1-C10, A9.8, A11, A12, A16).

With real processes. What tests/test_relay.py, test_process.py and test_modern.py have of A9.8, A11.6, A12 and C9 is
not repeated here; the same rules on a simulated clock are in tests/test_l07_relay.py.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import (FAKE, FULL, INITIALIZED, WAIT_S, alive, cmdline, environ_of, fds, group, initialize, marked, memory_kib, message,
                     proc_stat, until)
from test_modern import ACK, meta

BUSY = str(FAKE.parent / "busy.py")
IDLE = "--idle-stop=80ms"
ANSWER_S = 1.0  # C6
slow = pytest.mark.slow


# ------------------------------------------------------------------------------------------ helpers

class Probe:
    """A wake predicate that notes its runs: `sh -c` with `then` behind the note; $0.yes is the file `yes`."""

    def __init__(self, box, then="exit 1", name="ran"):
        self.path = box.path / name
        self.yes = box.path / (name + ".yes")
        self.argv = ["sh", "-c", 'echo $$ >>"$0"; ' + then, str(self.path)]

    def options(self, interval="20ms", timeout="20s"):
        return ("--wake-command", json.dumps(self.argv), "--wake-interval", interval, "--wake-timeout", timeout)

    def pids(self):
        try:
            return [int(line) for line in self.path.read_bytes().split()]
        except FileNotFoundError:
            return []

    def count(self):
        return len(self.pids())

    def more(self, by=1, timeout=WAIT_S):
        """Waits for `by` further runs."""
        wanted = self.count() + by
        until(lambda: self.count() >= wanted, timeout, "%d runs of the predicate" % wanted)

    def running(self):
        """The pid of a run that has noted itself and goes on."""
        return until(lambda: [pid for pid in self.pids()[-1:] if alive(pid)], what="a running predicate")[0]

    def moments(self, count, timeout=WAIT_S, seen=None):
        """When the `count` runs behind the first `seen` (default: those so far) were seen to begin (monotonic seconds)."""
        seen, found = self.count() if seen is None else seen, []
        while len(found) < count:
            until(lambda: self.count() > seen + len(found), timeout, "the next run")
            found += [time.monotonic()] * (self.count() - seen - len(found))
        return found


WHEN_THERE = '[ -e "$0.yes" ]'  # exit status 0 or 1


def pass_time(seconds):
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, seconds + WAIT_S, "time")


def stays_awake(relay, seconds=0.4):
    """Five times the idle time and no stop."""
    end = time.monotonic() + seconds
    until(lambda: relay.asleep() or time.monotonic() > end, what="time")
    assert not relay.asleep(), "the server was stopped: %s" % relay.stderr()[-600:]


def falls_asleep(relay, timeout=WAIT_S):
    until(relay.asleep, timeout, "the idle stop")


def busy(box, **flags):
    box.server = BUSY
    return box.fake(**flags)


def texts(path):
    """The texts of a log in text form, without pid and time."""
    try:
        return [line.split(" ", 2)[2] for line in Path(path).read_text("utf-8").split("\n") if line]
    except FileNotFoundError:
        return []


def logged(path, words, count=1, timeout=WAIT_S):
    """Waits until so many lines of a log hold these words."""
    return until(lambda: [one for one in texts(path) if words in one][count - 1:], timeout, "%r in the log" % words)


# ----------------------------------------------------------------------- when it runs (C1, C2, C9, C10)

def test_c1_not_before_initialized_and_not_without_initialize(box):
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options())
    relay.send(INITIALIZED)  # of a client that said nothing else
    relay.ask("ping")
    pass_time(0.15)
    assert probe.count() == 0
    relay.send(initialize())
    relay.result(0)
    pass_time(0.15)
    assert probe.count() == 0, "the client has not said `initialized` to this handshake"
    relay.send(INITIALIZED)
    probe.more(3)
    assert fake.starts() == 1 and relay.barrier() == []


def test_c2_once_right_after_initialized(box):
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h"))
    relay.handshake()
    until(probe.count, 1.0, "the first run")
    pass_time(0.15)
    assert probe.count() == 1 and relay.barrier() == []


def test_c2_the_beat_began_with_the_relay(box):
    """Not with the initialization: the second run is due 0.8 s after the start, not 0.8 s after the first run."""
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options("800ms"))
    relay.send(initialize())
    relay.result(0)
    begun = relay.started
    until(lambda: time.monotonic() - begun > 0.45, what="time")
    relay.send(INITIALIZED)
    first, second = probe.moments(2, seen=0)
    assert first - begun < 0.75 and 0.75 < second - begun < 1.1, (first - begun, second - begun)


def waking(box, interval):
    """(a sleeping relay with a predicate that says no at each interval, the predicate); the first run has begun."""
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options(interval))
    relay.handshake()
    probe.more(1)
    return relay, probe


@slow
def test_c2_c10_a_fixed_beat_without_jitter(box):
    _, probe = waking(box, "100ms")
    found = probe.moments(16)
    off = sorted(one - found[0] - 0.1 * number for number, one in enumerate(found))
    assert abs(off[len(off) // 2]) < 0.03, "the middle of 16 runs is %.3f s off the beat" % off[len(off) // 2]


@slow
def test_c2_the_beat_holds_after_a_late_tick(box):
    """A machine that was busy for a while does not shift all later runs (a ticker, not a pause between two)."""
    relay, probe = waking(box, "400ms")
    beat = probe.moments(1)[0]
    until(relay.asleep, what="the end of that run")
    relay.signal(signal.SIGSTOP)
    before = probe.count()
    until(lambda: time.monotonic() - beat > 1.0, what="time")  # 2.5 intervals
    relay.signal(signal.SIGCONT)
    late, following = probe.moments(2, seen=before)
    assert late - beat < 1.15 and 1.12 < following - beat < 1.33, (late - beat, following - beat)


def test_c2_ticks_while_it_runs_are_skipped_not_queued(box):
    fake, probe = box.fake(), Probe(box, "sleep 0.25; exit 1")
    box.record(fake)
    relay = box.relay(fake, *probe.options("60ms"))
    relay.handshake()
    found = probe.moments(4)
    gaps = [later - earlier for earlier, later in zip(found, found[1:])]
    assert all(0.24 < gap < 0.45 for gap in gaps), gaps
    assert fake.starts() == 1


def test_c1_c2_never_while_the_server_runs_and_again_after_an_idle_stop_and_a_crash(box):
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options("10ms"), "--idle-stop=250ms")
    relay.handshake()
    probe.more(1)

    def quiet_while_it_lives():
        relay.call("pid")
        before = probe.count()  # a run that had begun before the call has noted itself by now
        end = time.monotonic() + 0.12
        until(lambda: time.monotonic() > end, what="time")
        assert not relay.asleep() and probe.count() == before
    quiet_while_it_lives()
    falls_asleep(relay)
    probe.more(2)
    quiet_while_it_lives()
    relay.error(relay.start_call("die", how="exit3"))
    falls_asleep(relay)
    probe.more(2)
    assert relay.kept == []


def test_c1_not_while_a_server_stops(box):
    """The ladder of a server that ignores everything takes 750 ms; until it is gone nothing is asked."""
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options("10ms"), "--idle-stop=30ms")
    fake.set(ignore_eof=True, ignore=["SIGTERM"])
    relay.handshake()
    relay.call("pid")
    before, pid = probe.count(), fake.pid()
    fake.wait_for("eof", 2)
    until(lambda: not alive(pid) or probe.count() > before, what="the end of the ladder")
    assert not alive(pid) and probe.count() == before
    probe.more(2)


def test_c1_no_run_in_a_cold_session_until_it_sleeps(box):
    fake, probe = box.fake(), Probe(box)
    relay = box.relay(fake, *probe.options("10ms"), "--idle-stop=150ms")
    relay.handshake()
    relay.ask("tools/list")
    relay.barrier()
    assert probe.count() == 0 and fake.starts() == 1
    falls_asleep(relay)
    probe.more(2)
    assert fake.starts() == 1


def test_c9_a_modern_request_that_needs_no_server_arms_it(box):
    """A listing that the relay answers itself does; a ping of the older era does not."""
    box.server = str(FAKE.parent / "modern.py")
    fake, probe = box.fake(), Probe(box)
    relay = box.relay(fake)
    for method in ("server/discover", "tools/list"):
        relay.answer(relay.request(method, meta()))
    relay.finish()
    relay = box.relay(fake, *probe.options("15ms"))
    relay.ask("ping")
    pass_time(0.1)
    assert probe.count() == 0
    relay.answer(relay.request("tools/list", meta()))
    probe.more(3)
    assert fake.starts() == 1, "exit status 1: it goes on sleeping"
    relay.result(relay.request("tools/call", dict(meta(), name="echo", arguments={})))
    before = probe.count()
    pass_time(0.1)
    assert probe.count() == before and fake.starts() == 2


# ---------------------------------------------------------------------- how it is started (C3, A1, B)

def test_c3_a_direct_child_in_its_own_group_with_the_relays_environment_and_folder(box):
    fake = box.fake()
    box.record(fake)
    folder = box.path / "here"
    folder.mkdir()
    env = box.env(**{"ODD-NAME.1": "a=b", "EMPTY": ""})
    relay = box.relay(fake, "--wake-command", '["sleep","30"]', "--wake-timeout=30s", env=env, cwd=str(folder))
    relay.handshake()
    pid = until(lambda: [one for one in relay.servers() if cmdline(one) == [b"sleep", b"30"]], what="the predicate")[0]
    stat, own = proc_stat(pid), proc_stat(relay.pid)
    assert stat["ppid"] == relay.pid and stat["pgid"] == pid != own["pgid"] and stat["sid"] == own["sid"]
    wanted = {("%s=%s" % pair).encode() for pair in env.items()}
    found = {one for one in environ_of(pid) if one}
    assert wanted <= found and {one.partition(b"=")[0] for one in found - wanted} <= {b"LC_CTYPE", b"_"}
    assert os.readlink("/proc/%d/cwd" % pid) == str(folder)
    found = until(lambda: len(fds(pid)) == 3 and fds(pid), what="its three descriptors, libraries loaded")
    assert found[0] == "/dev/null" and found[1] == found[2], found
    assert found[1].startswith("pipe:"), "which the relay empties; the guard knows it by that, if the relay is killed now"
    fields = dict(line.split(":\t", 1) for line in Path("/proc/%d/status" % pid).read_text().split("\n") if ":\t" in line)
    assert int(fields["SigBlk"], 16) == 0 and not int(fields["SigIgn"], 16) & 0x7fffffff  # 32 and 33 are the C library's


def test_c3_the_first_word_is_looked_up_on_path_and_no_shell_reads_the_others(box):
    fake, folder = box.fake(), box.path / "bin"
    folder.mkdir()
    (folder / "is-work-there").write_text('#!/bin/sh\nprintf "%s|" "$@" >"$OUT"; exit 1\n')
    os.chmod(str(folder / "is-work-there"), 0o755)
    box.record(fake)
    env = box.env(OUT=str(box.path / "out"), PATH="%s:%s" % (folder, box.env()["PATH"]))
    relay = box.relay(fake, "--wake-command", '["is-work-there","$HOME *","","a;b"]', "--wake-interval=1h", env=env)
    relay.handshake()
    until(lambda: (box.path / "out").exists() and (box.path / "out").read_text() == "$HOME *||a;b|", what="its words")


def test_c3_input_is_empty_and_output_is_discarded(box):
    """It reads to the end at once, takes no line of the client, and its megabytes reach nobody."""
    fake = box.fake()
    probe = Probe(box, "cat; head -c 4000000 /dev/zero; head -c 4000000 /dev/zero >&2; exit 1")
    box.record(fake)
    relay = box.relay(fake, *probe.options("10ms", "5s"))
    relay.handshake()
    for _ in range(20):
        assert relay.ask("ping") == {}
    probe.more(5)
    assert relay.barrier() == [] and relay.stderr() == "" and fake.starts() == 1


@pytest.mark.parametrize("name, value, ran", [
    ("flag over variable", ("--wake-command", ""), False), ("empty variable", (), False), ("variable", (), True),
    ("bad variable, flag off", ("--wake-command=",), False)])
def test_a1_6_a1_7_where_it_comes_from(box, name, value, ran):
    """`--wake-command ""` switches off whatever the variable holds; an empty variable is none (A1.6)."""
    fake, probe = box.fake(), Probe(box)
    box.record(fake)
    text = {"empty variable": "", "bad variable, flag off": "["}.get(name, json.dumps(probe.argv))
    env = box.env(MCP_LAZY_WAKE_COMMAND=text, MCP_LAZY_WAKE_INTERVAL="15ms", MCP_LAZY_WAKE_TIMEOUT="5s")
    relay = box.relay(fake, *value, env=env)
    relay.handshake()
    if ran:
        probe.more(3)
    else:
        pass_time(0.15)
        assert probe.count() == 0 and relay.asleep() and not relay.guards()


def test_a1_2_the_limit_comes_from_its_variable_too(box):
    fake, log = box.fake(), box.path / "log"
    box.record(fake)
    relay = box.relay(fake, "--log-file", log, env=box.env(
        MCP_LAZY_WAKE_COMMAND='["sleep","30"]', MCP_LAZY_WAKE_TIMEOUT="40ms", MCP_LAZY_WAKE_INTERVAL="30ms"))
    relay.handshake()
    logged(log, "longer", 2)


def test_b_never_in_a_check(box):
    """Part B says nothing of it: a check starts the server anyhow and has nothing to wait for."""
    fake, probe = box.fake(), Probe(box, "exit 0")
    status, out, err = box.run("--check", *probe.options("1ms"), "--", *fake.argv)
    assert status == 0 and json.loads(out)["ok"] is True, err
    assert probe.count() == 0


# --------------------------------------------------------------------------- what its end means (C4, C5)

def test_c4_exit_0_starts_the_server_with_replay_and_refresh(box):
    fake, probe = box.fake(), Probe(box, WHEN_THERE)
    box.record(fake)
    relay = box.relay(fake, *probe.options())
    relay.handshake()
    probe.more(3)
    assert fake.starts() == 1, "exit status 1 is sleep"
    probe.yes.touch()
    fake.wait_method("tools/list", 2)
    assert fake.methods()[-3:] == ["initialize", "notifications/initialized", "tools/list"] and fake.starts() == 2
    assert relay.call("pid")["pid"] == fake.pid() and relay.barrier() == [], "the client sees nothing of it"


def test_c4_a_server_that_it_started_sleeps_again_when_idle(box):
    fake, probe = box.fake(), Probe(box, WHEN_THERE)
    box.record(fake)
    relay = box.relay(fake, *probe.options(), IDLE)
    relay.handshake()
    probe.yes.touch()
    fake.wait_for("start", 2)
    probe.yes.unlink()
    fake.wait_for("end", 2)
    falls_asleep(relay)
    probe.more(2)
    assert fake.starts() == 2
    probe.yes.touch()
    fake.wait_for("start", 3)


def test_c4_a_match_that_comes_when_the_server_runs_already_is_ignored(box):
    fake, probe = box.fake(), Probe(box, 'while [ ! -e "$0.yes" ]; do sleep 0.01; done')
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h"))
    relay.handshake()
    pid = probe.running()
    server = relay.call("pid")["pid"]
    probe.yes.touch()
    until(lambda: not alive(pid), what="the end of the predicate")
    relay.barrier()
    assert relay.call("pid")["pid"] == server and fake.starts() == 2 and fake.methods().count("initialize") == 2


def bad_predicates(box):
    """{name: (argv, words of the log)} of predicates that are no answer."""
    for name, text, mode in (("plain", "x", 0o644), ("lost", "#!/no/such/interpreter\n", 0o755), ("binary", "\x7fELFx", 0o755)):
        (box.path / name).write_text(text)
        os.chmod(str(box.path / name), mode)
    return {
        "status": (["sh", "-c", "exit 7"], "exit status 7"), "127": (["sh", "-c", "nonsense-"], "exit status 127"),
        "255": (["sh", "-c", "exit 255"], "exit status 255"), "signal": (["sh", "-c", "kill -USR1 $$"], "SIGUSR1"),
        "killed": (["sh", "-c", "kill -9 $$"], "SIGKILL"), "missing": (["no-such-program-here"], "not found on PATH"),
        "no file": (["/no/such/file"], "no such file"), "plain": ([str(box.path / "plain")], "execute bit"),
        "directory": ([str(box.path)], "is a directory"), "lost": ([str(box.path / "lost")], "/no/such/interpreter"),
        "binary": ([str(box.path / "binary")], "not a program"), "hangs": (["sleep", "30"], "longer")}


@pytest.mark.parametrize("name", ["status", "127", "255", "signal", "killed", "missing", "no file", "plain", "directory",
                                  "lost", "binary", "hangs"])
def test_c4_any_other_end_is_one_line_in_the_log_and_sleep(box, name):
    """And the next tick tries again. The client hears nothing and is served; a person hears of one that never ran, once."""
    fake, log, (argv, words) = box.fake(), box.path / "log", bad_predicates(box)[name]
    box.record(fake)
    relay = box.relay(fake, "--log-file", log, "--wake-command", json.dumps(argv), "--wake-interval=120ms", "--wake-timeout=50ms")
    relay.handshake()
    logged(log, words, 3)
    assert relay.barrier() == [] and fake.starts() == 1
    relay.finish()
    lines = [line for line in texts(log) if "wake" in line]
    assert all(words in line for line in lines), "one line a run: %r" % lines
    never_ran = name not in ("status", "255", "signal", "killed", "hangs")
    assert relay.stderr() == ("mcp-lazy: %s\n" % lines[0] if never_ran else "")


@pytest.mark.parametrize("verbose", [False, True])
def test_c4_a_misspelt_predicate_is_told_without_any_log(box, verbose):
    """It would look like one that never has anything to do."""
    fake = box.fake()
    box.record(fake)
    relay = box.relay(fake, "--wake-command", '["tset-","-s","x"]', "--wake-interval=20ms", *(["--verbose"] if verbose else []))
    relay.handshake()
    until(lambda: "wake command failed: tset-: not found on PATH" in relay.stderr(), what="the line on stderr")
    pass_time(0.2)
    assert relay.barrier() == [] and fake.starts() == 1
    relay.finish()
    lines = [line for line in relay.stderr().split("\n") if "wake" in line]
    assert lines[0].startswith("mcp-lazy: wake command failed: tset-: not found") is not verbose
    assert len(lines) > 3 if verbose else len(lines) == 1


def test_c4_verbose_shows_a_predicate_that_has_nothing_to_do(box):
    """In one line, not one at each interval; and again when it had failed meanwhile."""
    fake, probe = box.fake(), Probe(box, 'if [ -e "$0.yes" ]; then exit 3; fi; exit 1')
    box.record(fake)
    relay, words = box.relay(fake, *probe.options("10ms"), "--verbose"), "wake command: nothing to do (exit status 1)"
    relay.handshake()
    probe.more(5)
    assert relay.stderr().count(words) == 1
    probe.yes.touch()
    until(lambda: "exit status 3" in relay.stderr(), what="a failure")
    probe.yes.unlink()
    until(lambda: relay.stderr().count(words) == 2, what="the line again")
    probe.more(5)
    relay.finish()
    assert relay.stderr().count(words) == 2


@pytest.mark.parametrize("status", [0, 1, 9])
@pytest.mark.parametrize("kind", ["sleep 300", "trap '' TERM INT HUP; sleep 300", "setsid sleep 0.3"])
def test_c5_what_it_leaves_in_the_background_dies_with_every_run(box, kind, status):
    """The group is killed after each run. Another session is outside the boundary (A13.9) and ends by itself here."""
    fake = box.fake()
    probe = Probe(box, '(%s) </dev/null & echo $! >>"$0.child"; exit %d' % (kind, status))
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h"))
    relay.handshake()
    child = until(lambda: Path(str(probe.path) + ".child").exists() and Path(str(probe.path) + ".child").read_text().split(), what="a child")
    leader = probe.pids()[0]
    until(lambda: not alive(leader) and not alive(int(child[0])) and not group(leader), 2.0, "the end of the group")
    if status == 0:
        fake.wait_for("start", 2)


def test_c5_a_run_over_the_limit_is_killed_with_its_whole_group(box):
    fake = box.fake()
    probe = Probe(box, "trap '' TERM INT HUP; sleep 300 & sleep 300 & wait; wait")
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h", "150ms"))
    relay.handshake()
    leader = probe.running()
    begun = time.monotonic()
    until(lambda: len(group(leader)) == 3, 0.14, "its children")
    until(lambda: not group(leader), 2.0, "the end of the group")
    assert time.monotonic() - begun < 0.6 and relay.asleep() and fake.starts() == 1


def test_c6_a_request_does_not_wait_for_a_predicate_that_hangs(box):
    fake, probe = box.fake(), Probe(box, "exec sleep 5")
    box.record(fake)
    relay = box.relay(fake, *probe.options("10ms"))
    relay.handshake()
    pid = probe.running()
    begun = time.monotonic()
    relay.call("pid", timeout=ANSWER_S)
    assert time.monotonic() - begun < ANSWER_S and alive(pid) and probe.count() == 1


# ------------------------------------------------------------------------------------ shutdown (C7)

@pytest.mark.parametrize("way", ["EOF", "SIGTERM", "SIGINT", "SIGHUP", "output"])
@pytest.mark.parametrize("awake", [False, True], ids=["asleep", "server runs"])
def test_c7_every_way_out_kills_it(box, way, awake):
    fake = box.fake()
    probe = Probe(box, "trap '' TERM INT HUP; sleep 300 & wait; wait")
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h"))
    relay.handshake()
    leader = probe.running()
    until(lambda: len(group(leader)) == 2, what="its child")
    if awake:
        relay.call("pid")
    begun = time.monotonic()
    if way == "EOF":
        relay.close()
    elif way == "output":
        relay.close_output()
        relay.send(message("ping", 99), reading=False)  # the answer meets a closed pipe (A13.12)
    else:
        relay.signal(getattr(signal, way))
    assert relay.wait(2.0) == 0 and time.monotonic() - begun < 1.0
    assert proc_stat(leader) is None, "reaped, not only killed"
    until(lambda: not group(leader), 1.0, "the end of its child")


def test_c7_a13_10_kill_9_of_the_relay_ends_it_too(box):
    fake = box.fake()
    probe = Probe(box, "trap '' TERM INT HUP; sleep 300 & wait; wait")
    box.record(fake)
    relay = box.relay(fake, *probe.options("1h"))
    relay.handshake()
    leader = probe.running()
    until(lambda: len(group(leader)) == 2, what="its child")
    relay.signal(signal.SIGKILL)
    relay.wait()
    until(lambda: not group(leader), 2.0, "the end of the group")


def test_c7_none_starts_behind_the_end_of_input(box):
    fake, probe = box.fake(ignore_eof=True), Probe(box)
    box.record(fake)
    relay = box.relay(fake, *probe.options("5ms"))
    relay.handshake()
    relay.call("pid")
    before = probe.count()
    relay.finish()  # the ladder takes a quarter of a second
    assert probe.count() == before


# --------------------------------------------------------------- starts that come to nothing (C8, case 075)

@pytest.mark.parametrize("flags, words", [
    ({"die": "exit3"}, "server exited (exit status 3)"), ({"hang_at": ["initialize"]}, "timed out after 300ms"),
    ({"hang_at": ["tools/list"]}, "timed out after 300ms"), ({"die_at": {"initialize": "SIGSEGV"}}, "SIGSEGV"),
    ({"refuse": {"initialize": {"code": -32000, "message": "no"}}}, "refused the handshake")])
def test_c8_a_server_that_fails_each_time_is_logged_and_tried_again(box, flags, words):
    fake, probe, log = box.fake(), Probe(box, "exit 0"), box.path / "log"
    box.record(fake)
    fake.set(**flags)
    timeout = "300ms" if "hang_at" in flags else "5s"
    relay = box.relay(fake, *probe.options("30ms"), "--log-file", log, "--restart-backoff=0", "--start-timeout", timeout)
    relay.handshake()
    logged(log, words, 4)
    assert relay.barrier() == [], "nobody asked, so nobody is told"
    fake.set()
    seen = [0, 0.0]

    def steady():
        if fake.pid() != seen[0]:
            seen[:] = [fake.pid(), time.monotonic()]
        return time.monotonic() - seen[1] > 0.5
    until(steady, what="a server that stays")
    assert relay.call("pid")["pid"] == seen[0] and relay.kept == []


def test_c8_a_command_that_is_gone_is_logged_at_each_try(box):
    fake, probe, log = box.fake(), Probe(box, WHEN_THERE), box.path / "log"
    program = box.path / "server"
    program.symlink_to(fake.argv[0])
    words = [str(program)] + fake.argv[1:]
    relay = box.relay(words)
    relay.handshake()
    relay.finish()
    relay = box.relay(words, *probe.options("30ms"), "--log-file", log, "--restart-backoff=0")
    relay.handshake()
    program.unlink()
    probe.yes.touch()
    logged(log, "cannot start the server: %s: no such file" % program, 4)
    assert relay.barrier() == [] and fake.starts() == 1
    program.symlink_to(fake.argv[0])
    fake.wait_for("start", 2)


def test_c8_a10_13_the_backoff_holds_for_the_predicate_too(box):
    """Three failed starts, then a pause: no storm of starts. The log tells no start that is not made."""
    fake, probe, log = box.fake(), Probe(box, "exit 0"), box.path / "log"
    box.record(fake)
    fake.set(die="exit3")
    relay = box.relay(fake, *probe.options("20ms"), "--log-file", log, "--restart-backoff=30s")
    relay.handshake()
    fake.wait_for("start", 4)
    probe.more(10)
    assert fake.starts() == 4 and relay.barrier() == []
    assert "exit status 3" in relay.error(relay.start_call("pid"))["message"], "a request meanwhile is told at once"
    relay.finish()
    told = [line for line in texts(log) if line == "wake command matched: starting the server"]
    assert len(told) == 3, "%d times `starting the server` for 3 starts" % len(told)


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="no pgrep here")
def test_case_075_a_search_that_finds_itself_is_true_and_the_handshake_decides(box):
    """`sh -c "pgrep -f NAME; :"` meets its own shell: true means no more than `try`."""
    name = "no-program-of-this-name-%d" % os.getpid()
    found = subprocess.run(["sh", "-c", "pgrep -f %s; exit $?" % name], stdout=subprocess.PIPE, timeout=WAIT_S)
    assert found.returncode == 0, "the trap itself"
    fake, log = box.fake(), box.path / "log"
    box.record(fake)
    fake.set(refuse={"initialize": {"code": -32000, "message": "the application is not there"}})
    relay = box.relay(fake, "--wake-command", json.dumps(["sh", "-c", "pgrep -f %s; exit $?" % name]), "--wake-interval=30ms",
                      "--restart-backoff=0", "--log-file", log)
    relay.handshake()
    logged(log, "refused the handshake", 2)
    assert relay.barrier() == [] and len(relay.ask("tools/list")["tools"]) == 1, "it goes on serving what is recorded"
    fake.set()
    relay.call("pid")
    assert relay.kept == []


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="no pgrep here")
def test_case_075_without_a_shell_a_search_finds_neither_itself_nor_the_relay(box):
    """pgrep leaves itself out; the name stands in the predicate of the relay's command line alone."""
    name = "no-program-of-this-name-%d" % os.getpid()
    fake = box.fake()
    box.record(fake)
    ran = box.path / "ran"
    script = 'pgrep -f "$(cat %s)"; found=$?; echo $found >>%s; exit $found' % (box.path / "name", ran)
    (box.path / "name").write_text(name)
    relay = box.relay(fake, "--wake-command", json.dumps(["sh", "-c", script]), "--wake-interval=30ms")
    relay.handshake()
    until(lambda: ran.exists() and len(ran.read_text().split()) >= 3, what="three runs")
    assert set(ran.read_text().split()) == {"1"} and fake.starts() == 1


# ---------------------------------------------------------------------------------- 10,000 runs

@slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("then", ["exit 1", "sleep 300 & exit 7", "kill -9 $$"])
def test_issue_4_thousands_of_runs_without_growth(box, then):
    """As fast as the option allows; descriptors, zombies and memory after a tenth of the runs are those at the end."""
    total = (10000 if FULL else 200) if then == "exit 1" else (1000 if FULL else 60)
    hold = box.path / "hold"
    fake, probe = box.fake(), Probe(box, 'while [ -e "%s" ]; do sleep 0.01; done; %s' % (hold, then))
    box.record(fake)
    relay = box.relay(fake, *probe.options("1ns", "600s"))
    relay.handshake()

    def state():
        """Measured while one run is held fast."""
        hold.touch()
        seen = [probe.count(), time.monotonic()]

        def at_rest():
            if probe.count() != seen[0]:
                seen[:] = [probe.count(), time.monotonic()]
            return time.monotonic() - seen[1] > 0.15
        until(at_rest, what="a run that is held")
        found = relay.servers()
        assert len(found) == 1 and all(proc_stat(pid)["state"] != "Z" for pid in found), "one run, no zombie"
        kept = sorted(fds(relay.pid)), len(relay.guards()), memory_kib(relay.pid), memory_kib(relay.guards()[0])
        hold.unlink()
        return kept
    until(lambda: probe.count() >= total // 10, 300, "the first tenth")
    first = state()
    until(lambda: probe.count() >= total, 600, "the last run")
    assert relay.ask("ping", timeout=1.0) == {}, "and it goes on serving"
    last = state()
    assert last[:2] == first[:2]
    assert last[2] - first[2] < 300 and last[3] - first[3] < 100, "KiB of relay and guard: %r -> %r" % (first[2:], last[2:])
    assert fake.starts() == 1 and relay.barrier() == []


# --------------------------------------------------------------- tasks: a reason not to sleep (A12, notes 2.4 and 4)

def task_of(relay, ident="t", **more):
    """A call that is answered with a task."""
    return relay.call("task", id=ident, **more)["task"]


def test_a12_a_task_that_works_keeps_the_server_and_its_end_lets_it_sleep_after_its_ttl(box):
    fake = busy(box)
    relay = box.warm(fake, IDLE)
    assert task_of(relay, ttl=60000)["status"] == "working"
    stays_awake(relay)
    relay.call("move", id="t", status="completed", ttl=700, tell=True)
    begun = time.monotonic()
    falls_asleep(relay)
    assert time.monotonic() - begun > 0.6, "its result can be fetched until its ttl is over"
    assert [one["params"]["status"] for one in relay.kept] == ["completed"], "and the client was told"


def told_by_notification(relay):
    relay.call("move", id="t", status="completed", ttl=1, tell=True)


def told_by_get(relay):
    relay.call("move", id="t", status="failed", ttl=1)
    assert relay.ask("tasks/get", {"taskId": "t"})["status"] == "failed"


def told_by_cancel(relay):
    relay.call("move", id="t", status="working", ttl=1)
    assert relay.ask("tasks/cancel", {"taskId": "t"})["status"] == "cancelled"


def told_by_list(relay):
    relay.call("move", id="t", status="completed", ttl=1)
    assert [one["status"] for one in relay.ask("tasks/list")["tasks"]] == ["completed"]


@pytest.mark.parametrize("told", [told_by_notification, told_by_get, told_by_cancel, told_by_list])
def test_a12_wherever_the_end_of_a_task_is_told(box, told):
    relay = box.warm(busy(box), IDLE)
    task_of(relay)
    stays_awake(relay, 0.25)
    told(relay)
    falls_asleep(relay)


@pytest.mark.parametrize("status", ["working", "input_required"])
@pytest.mark.parametrize("how", ["notification", "list"])
def test_a12_a_task_that_was_not_started_by_a_call_is_seen(box, how, status):
    """Of a call that was answered before, or of another client of the same store."""
    relay = box.warm(busy(box), IDLE)
    relay.call("move", id="other", status=status, ttl=None, tell=how == "notification")
    if how == "list":
        relay.ask("tasks/list")
    stays_awake(relay, 0.3)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a12_a_result_without_a_ttl_is_kept_for_a_while(box, status):
    relay = box.warm(busy(box), IDLE)
    task_of(relay, status=status)
    stays_awake(relay, 0.3)


def test_a12_a_ttl_that_ran_out_keeps_nothing_but_what_runs(box):
    relay = box.warm(busy(box), IDLE)
    task_of(relay, "a", ttl=150)
    stays_awake(relay, 0.4)
    relay.call("move", id="a", status="completed", ttl=150, tell=True)
    falls_asleep(relay)


def test_a12_two_tasks_are_two_reasons(box):
    relay = box.warm(busy(box), IDLE)
    task_of(relay, "a")
    task_of(relay, "b")
    relay.call("move", id="a", status="completed", ttl=1, tell=True)
    stays_awake(relay, 0.3)
    relay.call("move", id="b", status="completed", ttl=1, tell=True)
    falls_asleep(relay)


@pytest.mark.parametrize("odd", [{"task": {"taskId": 7, "status": "working"}}, {"task": []}, {"taskId": "x"}, {"status": "working"},
                                 {"structuredContent": {"taskId": "x", "status": "working"}}])
def test_a12_what_is_no_task_keeps_nothing(box, odd):
    relay = box.warm(busy(box), IDLE)
    relay.call("raw", text=json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": odd}) + "\n")
    ident = relay.start_call("hang")
    relay.call("raw", text=json.dumps({"jsonrpc": "2.0", "id": ident, "result": odd}) + "\n")
    assert relay.result(ident) == odd
    falls_asleep(relay)


def test_a12_a_task_of_the_modern_era(box):
    """The extension's: flat in the result, ttlMs instead of ttl."""
    fake = busy(box, era="modern")
    relay = box.relay(fake)
    for method in ("server/discover", "tools/list"):
        relay.answer(relay.request(method, meta()))
    relay.finish()
    relay = box.relay(fake, IDLE)

    def call(tool, **arguments):
        return relay.result(relay.request("tools/call", dict(meta(), name=tool, arguments=arguments)))
    assert call("task", id="t")["resultType"] == "task"
    stays_awake(relay)
    call("move", id="t", status="completed", ttl=1, tell=True)
    falls_asleep(relay)


def test_a12_a13_6_a_running_task_does_not_hold_the_end_of_the_client(box):
    relay = box.warm(busy(box), IDLE)
    task_of(relay)
    begun = time.monotonic()
    assert relay.finish() == [] and time.monotonic() - begun < 0.7


def test_a12_a_stale_task_id_fails_loudly(box):
    """A new process does not know it: its own error reaches the client, once, and keeps nothing awake."""
    fake = busy(box)
    relay = box.warm(fake, IDLE)
    task_of(relay)
    relay.error(relay.start_call("die", how="exit3"))
    falls_asleep(relay)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        found = relay.answer(relay.request(method, {"taskId": "t"}))
        assert found["error"] == {"code": -32602, "message": "Task not found"}, method
    assert relay.barrier() == [] and fake.starts() == 3
    falls_asleep(relay)


def test_a12_tasks_that_end_with_the_server_are_logged(box):
    fake, log = busy(box), box.path / "log"
    relay = box.warm(fake, "--log-file", log)
    task_of(relay, "secret-task")
    relay.error(relay.start_call("die", how="exit3"))
    assert logged(log, "tasks that ended with the server: 1") and "secret-task" not in log.read_text()


# ------------------------------------------------------------------------- visits to a URL, subscriptions

def test_a12_a_visit_that_the_server_asked_for_is_open_until_it_is_complete(box):
    fake = busy(box)
    relay = box.warm(fake, IDLE)
    ident = relay.start_call("visit", id="v1", by="request")
    asked = relay.until_message(lambda one: one.get("method") == "elicitation/create")
    relay.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
    assert relay.result(ident) == {"client": {"action": "accept"}}
    stays_awake(relay)
    relay.call("visited", id="another")
    stays_awake(relay, 0.3)
    relay.call("visited", id="v1")
    falls_asleep(relay)
    assert [one["params"]["elicitationId"] for one in relay.kept] == ["another", "v1"]


def test_a12_a_visit_that_an_error_asks_for(box):
    relay = box.warm(busy(box), IDLE)
    assert relay.answer(relay.start_call("visit", id="v1", by="error"))["error"]["code"] == -32042
    stays_awake(relay)
    relay.call("visited", id="v1")
    falls_asleep(relay)


def test_a12_a_visit_ends_in_any_spelling(box):
    """JSON allows a backslash before a slash, and some servers write one before each."""
    relay = box.warm(busy(box), IDLE)
    relay.answer(relay.start_call("visit", id="v1", by="error"))
    relay.call("visited", id="v1", escaped=True)
    falls_asleep(relay)


def test_a12_a_question_in_a_form_is_open_until_it_is_answered_and_no_longer(box):
    relay = box.warm(busy(box), IDLE)
    ident = relay.start_call("ask", ids=["q"], methods=["elicitation/create"])
    relay.until_message(lambda one: one.get("id") == "q" and "method" in one)
    stays_awake(relay, 0.3)
    relay.send({"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}})
    relay.result(ident)
    falls_asleep(relay)


def test_a12_a_live_subscription_keeps_the_server(box):
    fake = busy(box, resources=2)
    relay = box.warm(fake, IDLE)
    relay.ask("resources/subscribe", {"uri": "mem://r0"})
    relay.ask("resources/subscribe", {"uri": "mem://r1"})
    relay.ask("resources/unsubscribe", {"uri": "mem://r0"})
    stays_awake(relay)
    relay.call("touch")
    assert [one["params"]["uri"] for one in relay.kept] == ["mem://r1"]
    relay.ask("resources/unsubscribe", {"uri": "mem://r1"})
    falls_asleep(relay)


def test_a12_a_subscription_that_was_refused_keeps_nothing_and_is_not_set_again(box):
    fake = busy(box, resources=1, refuse={"resources/subscribe": {"code": -32602, "message": "no"}})
    relay = box.warm(fake, IDLE)
    relay.error(relay.request("resources/subscribe", {"uri": "mem://r0"}))
    falls_asleep(relay)
    assert "resources/subscribe" not in relay.call("seen")["seen"]


def test_a12_a_stream_of_single_resources_keeps_the_server_until_it_is_cancelled(box):
    fake = busy(box, era="modern", resources=1, announce=True)
    relay = box.relay(fake)
    for method in ("server/discover", "tools/list"):
        relay.answer(relay.request(method, meta()))
    relay.finish()
    relay = box.relay(fake, IDLE)
    relay.request("subscriptions/listen", dict(meta(), notifications={"resourceSubscriptions": ["mem://r0"]}), "s")
    found = relay.until_message(lambda one: one.get("method") == ACK)
    assert found["params"]["notifications"] == {"resourceSubscriptions": ["mem://r0"]}
    stays_awake(relay)
    relay.send(message("notifications/cancelled", None, {"requestId": "s"}))
    falls_asleep(relay)
    assert relay.kept == []


def test_a12_7_a_stream_of_single_resources_ends_where_the_next_process_refuses_it(box):
    """By the result with which a server takes a stream down; the client may ask anew and hears the truth."""
    fake = busy(box, era="modern", resources=1, announce=True)
    relay = box.relay(fake)
    for method in ("server/discover", "tools/list"):
        relay.answer(relay.request(method, meta()))
    wanted = dict(meta(), notifications={"resourceSubscriptions": ["mem://r0"], "toolsListChanged": True})
    relay.request("subscriptions/listen", wanted, "s")
    relay.until_message(lambda one: one.get("method") == ACK)
    fake.set(listen=-32603)
    relay.error(relay.request("tools/call", dict(meta(), name="die", arguments={"how": "exit3"})))
    relay.result(relay.request("tools/call", dict(meta(), name="pid", arguments={})))
    assert relay.result("s") == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": "s"}}
    assert relay.error(relay.request("subscriptions/listen", wanted, "again"))["code"] == -32603
    relay.barrier()
    assert relay.kept == []


def test_a12_an_open_call_of_the_modern_era_is_not_idle(box):
    fake = busy(box, era="modern")
    relay = box.relay(fake)
    relay.answer(relay.request("server/discover", meta()))
    relay.finish()
    relay = box.relay(fake, IDLE)
    ident = relay.request("tools/call", dict(meta(), name="sleep", arguments={"s": 0.5}))
    assert relay.result(ident)["slept"] == 0.5 and fake.starts() == 2
    falls_asleep(relay)


# ----------------------------------------------------------------------------- what is set again (A12.7, design 4.2)

def test_a12_7_after_a_crash_everything_is_set_again_in_the_fixed_order(box):
    fake = busy(box, logging=True, resources=3, prompts=1)
    relay = box.warm(fake, lists=("tools/list", "prompts/list"))
    for level in ("debug", "warning"):
        relay.ask("logging/setLevel", {"level": level})
    for uri in ("mem://r2", "mem://r0", "mem://r1"):
        relay.ask("resources/subscribe", {"uri": uri, "_meta": {"trace": uri}})
    relay.ask("resources/unsubscribe", {"uri": "mem://r0"})
    relay.error(relay.start_call("die", how="SIGKILL"))
    idents = [relay.start_call("echo", n=number) for number in range(3)]
    assert [relay.result(ident)["echo"]["n"] for ident in idents] == [0, 1, 2]
    lines = [one for one in fake.lines() if one["pid"] == fake.pid()]
    methods = [one["method"] for one in lines]
    assert methods[:3] == ["initialize", "notifications/initialized", "logging/setLevel"]
    assert methods[3:5] == ["resources/subscribe"] * 2 and sorted(methods[5:7]) == ["prompts/list", "tools/list"]
    assert methods[7:] == ["tools/call"] * 3
    assert lines[2]["params"] == {"level": "warning"}, "the last one"
    assert [one["params"] for one in lines[3:5]] == [{"uri": uri, "_meta": {"trace": uri}} for uri in ("mem://r2", "mem://r1")]
    relay.call("touch")
    relay.call("chat")
    said = [one["params"].get("uri") or one["params"]["level"] for one in relay.barrier()]
    assert said == ["mem://r2", "mem://r1", "warning", "error", "critical", "alert", "emergency"]
    assert all(str(one.get("id", "")).startswith("mcp-lazy") is False for one in relay.kept)


def test_a12_7_what_was_asked_for_in_an_array_is_set_again_after_a_crash(box):
    """2025-03-26 has arrays; what is said in one counts like what is said alone."""
    fake = box.fake(logging=True, resources=1)
    relay = box.warm(fake, version="2025-03-26")
    asked = [message("logging/setLevel", "a", {"level": "error"}), message("tools/call", "b", {"name": "echo"}),
             message("resources/subscribe", "c", {"uri": "mem://r0"})]
    relay.send(json.dumps(asked).encode() + b"\n")
    answers = relay.until_message(lambda one: isinstance(one, list))
    assert [one["id"] for one in answers] == ["a", "b", "c"]
    relay.error(relay.start_call("die", how="SIGKILL"))
    relay.call("pid")
    methods = [one["method"] for one in fake.lines() if one["pid"] == fake.pid()]
    assert methods[:4] == ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"]


def test_a12_7_the_level_is_set_again_after_an_idle_stop(box):
    fake = busy(box, logging=True)
    relay = box.warm(fake, IDLE)
    relay.call("pid")
    relay.ask("logging/setLevel", {"level": "alert"})
    falls_asleep(relay)
    relay.call("chat")
    assert [one["params"]["level"] for one in relay.barrier()] == ["alert", "emergency"]
    assert fake.methods()[-6:-1] == ["initialize", "notifications/initialized", "logging/setLevel", "tools/list", "tools/call"]


@pytest.mark.parametrize("trouble", ["refused", "silent"])
def test_a12_7_a_server_that_does_not_take_the_state_any_more_is_used_all_the_same(box, trouble):
    fake = busy(box, logging=True, resources=1)
    relay = box.warm(fake)
    relay.ask("logging/setLevel", {"level": "alert"})
    relay.ask("resources/subscribe", {"uri": "mem://r0"})
    if trouble == "refused":
        fake.set(refuse={method: {"code": -32603, "message": "no"} for method in ("logging/setLevel", "resources/subscribe")})
    else:
        fake.set(hang_at=["logging/setLevel", "resources/subscribe"])
    relay.error(relay.start_call("die", how="exit3"))
    relay.call("pid")
    assert relay.barrier() == [], "their answers are nobody's"


def test_a12_7_a_level_that_was_refused_is_not_set_again(box):
    fake = busy(box, logging=True, refuse={"logging/setLevel": {"code": -32602, "message": "no", "times": 1}})
    relay = box.warm(fake)
    relay.call("pid")
    relay.error(relay.request("logging/setLevel", {"level": "alert"}))
    relay.error(relay.start_call("die", how="exit3"))
    assert "logging/setLevel" not in relay.call("seen")["seen"]


def test_a12_7_another_handshake_forgets_what_the_first_client_said(box):
    fake = busy(box, logging=True, resources=1)
    relay = box.warm(fake)
    relay.ask("resources/subscribe", {"uri": "mem://r0"})
    relay.handshake(ident="again")
    relay.error(relay.start_call("die", how="exit3"))
    assert "resources/subscribe" not in relay.call("seen")["seen"]


# ------------------------------------------------------------------- an idle stop that keeps serving (A12.4, A8.7)

def test_a12_4_a8_7_many_requests_during_the_ladder_are_one_start_in_order(box):
    """Of a server that ignores everything; recorded answers pass those that wait, and nothing overlaps."""
    fake = busy(box, logging=True)
    relay = box.warm(fake, "--idle-stop=30ms")
    fake.set(ignore_eof=True, ignore=["SIGTERM"])
    relay.call("pid")
    old = fake.pid()
    fake.wait_for("eof", 2)
    fake.set()
    begun = time.monotonic()
    assert relay.ask("ping") == {} and relay.ask("tools/list")["tools"] and relay.ask("logging/setLevel", {"level": "alert"}) == {}
    assert time.monotonic() - begun < 0.3 and alive(old), "answered in the middle of the ladder"
    idents = [relay.start_call("echo", n=number) for number in range(20)]
    cancelled = idents.pop(7)
    relay.send(message("notifications/cancelled", None, {"requestId": cancelled}))
    assert [relay.result(ident)["echo"]["n"] for ident in idents] == [number for number in range(20) if number != 7]
    assert not alive(old) and fake.starts() == 3 and relay.barrier() == []
    starts = fake.events("start")
    calls = [one["params"]["arguments"]["n"] for one in fake.lines() if one["pid"] == starts[-1]["pid"]
             and one["method"] == "tools/call"]
    assert calls == [number for number in range(20) if number != 7], "the cancelled one was never sent"


def test_a12_4_the_modern_era_during_the_ladder(box):
    fake = busy(box, era="modern")
    relay = box.relay(fake)
    for method in ("server/discover", "tools/list"):
        relay.answer(relay.request(method, meta()))
    relay.finish()
    relay = box.relay(fake, "--idle-stop=30ms")
    fake.set(ignore_eof=True, ignore=["SIGTERM"])

    def call(**arguments):
        return relay.result(relay.request("tools/call", dict(meta(), name="echo", arguments=arguments)))["echo"]
    assert call(n=1) == {"n": 1}
    old = fake.pid()
    fake.wait_for("eof", 2)
    fake.set()
    begun = time.monotonic()
    assert relay.result(relay.request("tools/list", meta()))["tools"] and relay.result(relay.request("server/discover", meta()))
    assert time.monotonic() - begun < 0.3 and alive(old)
    assert call(n=2) == {"n": 2} and not alive(old) and fake.starts() == 3


# ----------------------------------------------------------------------- changes of the server while live (A9.8)

@slow
def test_a9_8_the_clients_own_listing_is_the_repair(box):
    fake = box.fake(announce=True)
    relay = box.warm(fake)
    relay.ask("tools/list")
    relay.call("grow", announce=1)
    assert len(relay.ask("tools/list")["tools"]) == 2
    before = fake.methods().count("tools/list")
    pass_time(2.4)
    relay.barrier()
    assert fake.methods().count("tools/list") == before, "nothing is left to be repaired"
    assert len(box.recording()["entries"][0]["lists"]["tools/list"]["pages"][0]["tools"]) == 2


@slow
def test_a9_8_a12_a_change_is_repaired_before_an_idle_stop(box):
    """The server is not put to sleep with a record that it has said to be wrong."""
    fake = box.fake(announce=True)
    relay = box.warm(fake, "--idle-stop=100ms")
    relay.ask("tools/list")
    relay.call("grow", announce=1)
    fake.set(tools=2)  # what a later process lists too
    falls_asleep(relay)
    assert len(relay.ask("tools/list")["tools"]) == 2 and relay.asleep(), "served from the recording"


@slow
@pytest.mark.parametrize("how", ["not recorded", "refused", "silent", "again and again"])
def test_a9_8_a12_a_change_that_is_never_repaired_does_not_keep_the_server(box, how):
    """A list that nobody recorded, or whose repair is not answered, is no reason to stay awake for ever."""
    fake = box.fake(announce=True)
    relay = box.warm(fake, "--idle-stop=100ms", "--start-timeout=1s", "--refresh-fatal=false")
    if how == "refused":
        fake.set(refuse={"tools/list": {"code": -32603, "message": "no"}})
    elif how == "silent":
        fake.set(hang_at={"tools/list": 1})
    relay.ask("tools/list")
    relay.call("pid")
    if how == "not recorded":
        relay.call("notify", method="notifications/prompts/list_changed")
        falls_asleep(relay, 2.0)
    else:
        for _ in range(3 if how == "again and again" else 1):
            relay.call("grow", announce=1)
        falls_asleep(relay)


# ------------------------------------------------------------------------------ late progress (A11, notes 4)

def work(relay, token, ident=None, **arguments):
    return relay.request("tools/call", {"name": "work", "arguments": arguments, "_meta": {"progressToken": token}}, ident)


def heard(relay):
    """Tokens of the progress that the client got."""
    found = [one["params"]["progressToken"] for one in relay.barrier() if one.get("method") == "notifications/progress"]
    relay.kept.clear()
    return found


@pytest.mark.parametrize("token", [0, 5, "tok", "5", ""])
def test_issue_4_progress_behind_the_answer_is_nobodys(box, token):
    relay = box.warm(busy(box))
    relay.result(work(relay, token, steps=3, after=4))
    relay.call("nag", token=token, times=3)
    assert heard(relay) == [token] * 3, "those before the answer"


def test_issue_4_tokens_of_another_type_and_unknown_ones_pass(box):
    relay = box.warm(busy(box))
    relay.result(work(relay, 1))
    for token in (1, "1", 7, "x"):
        relay.call("nag", token=token)
    assert [type(one) for one in heard(relay)] == [str, int, str]


def test_issue_4_progress_of_a_cancelled_call_is_nobodys(box):
    relay = box.warm(busy(box))
    ident = relay.request("tools/call", {"name": "hang", "arguments": {}, "_meta": {"progressToken": "t"}})
    relay.call("nag", token="t")
    assert heard(relay) == ["t"], "it is open"
    relay.send(message("notifications/cancelled", None, {"requestId": ident}))
    relay.call("nag", token="t", times=5)
    assert heard(relay) == []


def test_issue_4_progress_of_a_call_that_we_timed_out_is_nobodys(box):
    relay = box.warm(busy(box), "--call-timeout=150ms")
    ident = relay.request("tools/call", {"name": "hang", "arguments": {}, "_meta": {"progressToken": "t"}})
    assert "timed out" in relay.error(ident)["message"]
    relay.call("nag", token="t", times=2)
    assert heard(relay) == []


def test_issue_4_a_token_in_use_again_passes(box):
    relay = box.warm(busy(box))
    relay.result(work(relay, "t"))
    ident = relay.request("tools/call", {"name": "hang", "arguments": {}, "_meta": {"progressToken": "t"}})
    relay.call("nag", token="t", times=2)
    assert heard(relay) == ["t", "t"]
    relay.send(message("notifications/cancelled", None, {"requestId": ident}))
    relay.call("nag", token="t")
    assert heard(relay) == []


@pytest.mark.parametrize("how", ["told", "cancel", "result"])
def test_issue_4_progress_of_a_task_goes_on_until_the_task_is_over(box, how):
    """The token of a call that was answered with a task is valid for the task's life (25-11, progress)."""
    relay = box.warm(busy(box))
    params = {"name": "task", "arguments": {"id": "t"}, "_meta": {"progressToken": "p"}, "task": {"ttl": 60000}}
    assert relay.ask("tools/call", params)["task"]["status"] == "working"
    relay.call("nag", token="p", times=3)
    assert heard(relay) == ["p"] * 3
    relay.ask("tasks/get", {"taskId": "t"})
    relay.call("nag", token="p")
    assert heard(relay) == ["p"], "asking for it ends nothing"
    if how == "told":
        relay.call("move", id="t", status="completed", tell=True)
    else:
        relay.ask("tasks/%s" % how, {"taskId": "t"})
    relay.call("nag", token="p", times=3)
    assert heard(relay) == []


def test_issue_4_progress_of_one_call_does_not_stop_that_of_another(box):
    relay = box.warm(busy(box))
    relay.result(work(relay, "done"))
    relay.request("tools/call", {"name": "hang", "arguments": {}, "_meta": {"progressToken": "open"}}, "hangs")
    for _ in range(3):
        relay.call("nag", token="done", times=2)
        relay.call("nag", token="open", times=2)
    assert heard(relay) == ["open"] * 6
    relay.send(message("notifications/cancelled", None, {"requestId": "hangs"}))


def test_issue_4_a_long_call_with_a_token_behind_its_arguments(box):
    """1 MiB of arguments, the token at either end of the line."""
    relay = box.warm(busy(box))
    filler = "x" * (1 << 20)
    for first in (True, False):
        head, tail = {"_meta": {"progressToken": "long"}}, {"name": "work", "arguments": {"after": 2, "filler": filler}}
        relay.result(relay.request("tools/call", dict(head, **tail) if first else dict(tail, **head)))
        relay.call("nag", token="long")
        assert heard(relay) == []


def test_issue_4_a_crash_forgets_the_tokens(box):
    relay = box.warm(busy(box))
    relay.result(work(relay, "t"))
    relay.error(relay.start_call("die", how="exit3"))
    ident = work(relay, "t", steps=2)
    relay.result(ident)
    assert heard(relay) == ["t", "t"]


# --------------------------------------------------------------------------------------- the relay's log (A16)

HIDDEN = "hidden-value"  # in params, results, ids, the environment and the predicate; never in a log


class Story:
    """A session that meets everything, and the lines that the log has to show for it, in order."""

    def __init__(self, box, *options):
        self.box, self.log = box, box.path / "log"
        self.fake = busy(box, logging=True, announce=True, resources=1)
        self.probe = Probe(box, '[ -e "$0.bad" ] && exit 7; [ -e "$0.yes" ] && exit 0; exit 1')
        self.options = ("--log-file", self.log, "--restart-backoff=0", "--start-timeout=400ms") + options
        self.env = box.env(SECRET_TOKEN=HIDDEN)
        self.expected, self.relays = [], []

    def start(self, *more):
        self.relays.append(self.box.relay(self.fake, *self.options, *more, env=self.env))
        return self.relays[-1]

    def expect(self, *words):
        self.expected += words

    def seen(self):
        """(the lines as texts, the raw lines)"""
        raw = self.log.read_text("utf-8").split("\n")
        assert raw.pop() == ""
        if "--log-format=json" in self.options:
            return [json.loads(line)["text"] for line in raw], raw
        return [line.split(" ", 2)[2] for line in raw], raw

    def check(self):
        """Each expected line is there behind the one before it."""
        lines = self.seen()[0]
        at = 0
        for words in self.expected:
            found = [index for index in range(at, len(lines)) if words in lines[index]]
            assert found, "%r is not behind line %d of\n%s" % (words, at, "\n".join(lines))
            at = found[0] + 1
        return lines


def cold_session(story):
    relay = story.start()
    relay.handshake()
    relay.ask("tools/list")
    relay.call("echo", word=HIDDEN)
    relay.send(initialize("again"))
    relay.result("again")
    relay.finish()
    story.expect("start (cold)", "no recorded handshake", "server started (pid %d)" % story.fake.pid(),
                 "handshake passed to the running server", "end of input: stopping", "server exited (exit status 0)")


def woken_session(story):
    """Warm; the predicate fails, then matches; the server drifts, sleeps when idle, is called again and crashes."""
    fake, probe = story.fake, story.probe
    bad = Path(str(probe.path) + ".bad")
    bad.touch()
    relay = story.start("--idle-stop=150ms", *probe.options("40ms"))
    relay.handshake()
    relay.ask("tools/list")
    relay.ask("logging/setLevel", {"level": "error"})
    logged_any(story, "wake command failed: exit status 7")
    story.expect("start (warm)", "handshake from cache (2025-06-18)", "wake command failed: exit status 7")
    fake.set(tools=3, version=2)
    probe.yes.touch()
    bad.unlink()
    fake.wait_for("start", 2)
    probe.yes.unlink()
    falls_asleep(relay)
    story.expect("wake command matched: starting the server", "generation 1: replay", "server started (pid %d)" % fake.pid(),
                 "handshake differs, recorded: version 1 -> 2", "tools/list differs", "telling the client",
                 "idle for 150ms: stopping the server", "server exited (exit status 0)")
    relay.call("echo", word=HIDDEN)
    relay.error(relay.start_call("die", how="exit3", stderr=HIDDEN + "\n"))
    story.expect("generation 2: replay", "server started (pid %d)" % fake.pid(), "server exited (exit status 3)")
    return relay


def failures(story, relay):
    """Refused, too slow, killed by a signal, its input closed."""
    fake = story.fake
    fake.set(tools=3, version=2, refuse={"initialize": {"code": -32000, "message": "not today"}})
    relay.error(relay.start_call("echo", word=HIDDEN))
    falls_asleep(relay)
    story.expect("generation 3: replay", "refused the handshake", "server exited")
    fake.set(tools=3, version=2, hang_at=["initialize"])
    relay.error(relay.start_call("echo", word=HIDDEN))
    falls_asleep(relay)
    story.expect("generation 4: replay", "timed out after 400ms", "server exited")
    fake.set(tools=3, version=2, ignore_eof=True)
    relay.error(relay.start_call("die", how="SIGSEGV"))
    story.expect("generation 5: replay", "server exited (SIGSEGV)")
    falls_asleep(relay)
    relay.result(relay.start_call("deaf"))
    relay.error(relay.start_call("echo", word=HIDDEN * 100000))
    story.expect("generation 6: replay", "stopped accepting input", "SIGTERM to its group", "server exited (SIGTERM)")
    falls_asleep(relay)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    story.expect("SIGTERM: stopping")


def logged_any(story, words):
    until(lambda: any(words in line for line in story.seen()[0]), what="%r in the log" % words)


def ordered_stamps(story, raw):
    if "--log-format=json" in story.options:
        found = [json.loads(line) for line in raw]
        assert all(sorted(one) == ["pid", "text", "time"] for one in found)
        stamps = [one["time"] for one in found]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one) for one in stamps)
        pids = {one["pid"] for one in found}
    else:
        found = [re.fullmatch(r"mcp-lazy\[(\d+)\] (\d\d:\d\d:\d\d\.\d{3}) \S.*", line) for line in raw]
        assert all(found), [line for line, one in zip(raw, found) if not one]
        stamps, pids = [one.group(2) for one in found], {int(one.group(1)) for one in found}
    assert stamps == sorted(stamps) or stamps[-1] < stamps[0], "or midnight passed"
    assert pids == {relay.pid for relay in story.relays}


@slow
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("verbose", [False, True], ids=["file", "file and stderr"])
def test_a16_3_every_event_in_the_order_it_happened(box, form, verbose):
    """And nothing of params, results or the environment (A16.4), verbose or not."""
    story = Story(box, *(["--log-format=json"] if form == "json" else []), *(["--verbose"] if verbose else []))
    cold_session(story)
    relay = woken_session(story)
    failures(story, relay)
    lines = story.check()
    ordered_stamps(story, story.seen()[1])
    assert HIDDEN not in story.log.read_text() and str(story.probe.path) not in story.log.read_text()
    if verbose:
        said = "".join(one.stderr() for one in story.relays).split("\n")
        own = [line for line in said if line.startswith(('{"time"', "mcp-lazy["))]
        assert own == story.seen()[1], "stderr shows the same lines in the same order"
        assert any(re.fullmatch(r"tools/list cache [\d.]+", line) for line in lines), "answers from the recording (A16.3)"
        assert any(re.fullmatch(r"tools/call server [\d.]+", line) for line in lines)
        assert "ASLEEP -> REPLAY" in lines and "REPLAY -> LIVE" in lines and "LIVE -> STOPPING" in lines
    else:
        assert not [line for line in lines if "cache 0" in line or " -> " in line and "differs" not in line]


def test_a16_1_verbose_alone_is_stderr_only(box):
    fake = box.fake()
    box.record(fake)
    relay = box.relay(fake, "--verbose", IDLE)
    relay.handshake()
    relay.call("pid")
    falls_asleep(relay)
    relay.finish()
    lines = [line.split(" ", 2)[2] for line in relay.stderr().split("\n") if line.startswith("mcp-lazy[%d]" % relay.pid)]
    wanted = ["start (warm)", "handshake from cache", "initialize cache", "generation 1: replay", "server started", "REPLAY -> LIVE",
              "tools/call server", "idle for 80ms", "LIVE -> STOPPING", "server exited", "STOPPING -> ASLEEP", "end of input"]
    at = [next(index for index, line in enumerate(lines) if words in line) for words in wanted[3:]]
    assert at == sorted(at), lines
    assert all(any(words in line for line in lines) for words in wanted)


def test_a16_3_a_spawn_that_fails_and_noise(box):
    fake, log = box.fake(say="not json\n"), box.path / "log"
    program = box.path / "server"
    program.symlink_to(fake.argv[0])
    relay = box.relay([str(program)] + fake.argv[1:], "--log-file", log, IDLE)
    relay.handshake()
    falls_asleep(relay)
    program.unlink()
    relay.error(relay.start_call("pid"))
    relay.finish()
    found = [line for line in texts(log) if "non-JSON" in line or "cannot start" in line]
    assert [line.split(" (")[0].split(":")[0] for line in found] == ["non-JSON stdout line", "cannot start the server"]


def test_a16_1_our_line_begins_on_a_line_of_its_own(box):
    """Whatever the server left on the stderr that both write to; its own bytes stay as they are."""
    relay, said = box.warm(box.fake(), "--verbose"), ["dots...", "a whole line\n", "no end \u00e9"]
    for text in said:
        relay.call("stderr", text=text)
        until(lambda: text in relay.stderr(), what="the text")
        relay.call("pid")  # which leaves a line in the log
    relay.finish()
    own = "mcp-lazy[%d] " % relay.pid
    between = relay.stderr().split(own)
    assert len(between) > 5 and all(part[-1:] in ("", "\n") for part in between), "a line of ours behind something else"
    assert "\n\n" not in relay.stderr() and all(text.rstrip("\n") + "\n" + own in relay.stderr() for text in said)


def test_a16_1_a_warning_begins_on_a_line_of_its_own(box):
    fake = box.fake()
    box.record(fake)
    relay = box.relay(fake, "--wake-command", '["no-such-program-here"]', "--wake-interval=1h", IDLE)
    relay.send(initialize())
    relay.result(0)
    relay.call("stderr", text="half a line")
    falls_asleep(relay)
    relay.send(INITIALIZED)
    until(lambda: relay.stderr().count("\n"), what="the warning")
    assert relay.stderr().startswith("half a line\nmcp-lazy: wake command failed: no-such-program-here: not found")


def test_f9_in_a_log_that_the_server_writes_to_our_lines_begin_on_their_own(box):
    relay = box.warm(box.fake(), "--name", "glue")
    relay.call("stderr", text="half a line")
    relay.call("stderr", text="a whole one\n")
    relay.finish()
    (log,) = box.path.rglob("glue.log")
    text = log.read_text("utf-8")
    assert "half a line\n[lazy-mcp " in text and "a whole one\n[lazy-mcp " in text and "\n\n" not in text


@pytest.mark.slow
def test_a13_10_kill_9_in_the_moment_of_its_start_leaves_no_predicate(box):
    """The guard finds it by the pipe of its output, where it has not heard the pid yet."""
    fake = box.fake()
    box.record(fake)
    rng = random.Random(20)
    for _ in range(40):
        relay = box.relay(fake, "--wake-command", '["sleep","300"]', "--wake-timeout=300s")
        relay.handshake()
        end_s = time.monotonic() + rng.random() * 0.006
        until(lambda: time.monotonic() >= end_s)
        relay.signal(signal.SIGKILL)
        relay.wait()
    until(lambda: not [pid for pid in marked(box.mark) if cmdline(pid)[:1] == [b"sleep"]], what="the end of all predicates")


def test_c5_a_predicate_that_leaves_its_group_is_killed_all_the_same(box):
    fake = box.fake()
    box.record(fake)
    program = "import os, time\nos.setpgid(0, os.getpgid(os.getppid()))\ntime.sleep(300)"
    relay = box.relay(fake, "--wake-command", json.dumps([sys.executable, "-I", "-S", "-c", program]), "--wake-timeout=300ms")
    relay.handshake()
    (pid,) = until(lambda: [one for one in relay.servers() if b"setpgid" in b" ".join(cmdline(one)) and b"--wake-command" not in cmdline(one)],
                   what="the predicate")  # before its exec a child of the relay, the guard too, has the relay's own words
    until(lambda: not alive(pid), what="its end at the limit")
    relay.finish()
