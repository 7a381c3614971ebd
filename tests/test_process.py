"""Processes: the ladder, the group, the guard, what a server inherits (A13, A14, A8.4, cases 027-050)."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from harness import (INITIALIZED, WAIT_S, Relay, alive, children, cpu_s, encode, environ_of, fds, group, initialize, marked,
                     message, proc_stat, read_some, set_nonblocking, until)

slow = pytest.mark.slow
STUBBORN = {"ignore_eof": True, "ignore": ["SIGTERM", "SIGINT", "SIGHUP"]}


def live(box, fake, *options, **more):
    """A relay with a running server behind it, and the server's pid."""
    relay = box.relay(fake, *options, **more)
    relay.handshake()
    return relay, relay.call("pid")["pid"]


def ended(relay, timeout=4.0):
    """Seconds until the relay ended with status 0."""
    begun = time.monotonic()
    assert relay.wait(timeout) == 0
    return time.monotonic() - begun


# ------------------------------------------------------------------------------ the ladder (A13.1-A13.6)

def test_a13_1_case_031_a_good_server_ends_by_itself_and_sees_no_signal(box):
    fake = box.fake(eof_wait=0.1, on_term=0.0)
    relay, pid = live(box, fake)
    relay.close()
    took = ended(relay)
    assert 0.1 <= took < 0.25, "as long as the server needs, not the grace"
    assert [one["by"] for one in fake.events("saved")] == ["eof"] and not fake.events("signal")
    assert not alive(pid)


def test_a13_1_term_after_a_quarter_of_a_second(box):
    fake = box.fake(ignore_eof=True, on_term=0.0)
    relay, pid = live(box, fake)
    relay.close()
    took = ended(relay)
    assert 0.25 <= took < 0.6
    assert len(fake.events("signal")) == 1 and not alive(pid)


def test_a13_1_a13_5_case_030_kill_after_the_second_grace(box):
    log = box.path / "log"
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake, "--log-file", log)
    relay.close()
    took = ended(relay)
    assert 0.75 <= took < 1.3
    assert not alive(pid) and "SIGKILL" in log.read_text(), "the log names the step that was needed"


def test_a13_1_stop_grace_is_the_wait_between_term_and_kill(box):
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake, "--stop-grace=50ms")
    relay.close()
    took = ended(relay)
    assert 0.3 <= took < 0.65 and not alive(pid)


@slow
def test_case_040_a_program_that_needs_long_to_pass_the_signal_on(box):
    """`docker run` in the small: TERM is handed on, and there is time for it."""
    fake = box.fake(ignore_eof=True, on_term=0.8)
    relay, pid = live(box, fake, "--stop-grace=5s")
    relay.close()
    took = ended(relay)
    assert 1.0 <= took < 2.5
    assert [one["by"] for one in fake.events("saved")] == ["signal"] and not alive(pid)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a13_6_case_036_every_signal_leads_to_the_same_stop(box, name):
    """The case wants the status to tell the signal; A14.1 says 0, and the specification wins."""
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake)
    relay.signal(getattr(signal, name))
    took = ended(relay)
    assert 0.75 <= took < 1.4 and not alive(pid)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a13_6_signals_while_asleep(box, name):
    fake = box.fake()
    relay = box.warm(fake)
    relay.signal(getattr(signal, name))
    assert ended(relay) < 0.5 and fake.starts() == 1


@slow
def test_case_042_signals_are_never_late(box):
    """Sent at every moment of a relay's life, from its first instruction on; it ends at once each time."""
    fake = box.fake()
    box.record(fake)
    for step in range(12):
        relay = box.relay(fake)
        relay.send(initialize())
        relay.result(0)
        relay.send(*[message("ping", n) for n in range(step)])
        relay.signal(signal.SIGTERM)
        assert ended(relay, 1.0) < 1.0


def test_case_042_the_death_of_a_server_wakes_the_loop(box):
    fake = box.fake()
    relay, pid = live(box, fake)
    ident = relay.start_call("hang")
    fake.wait_method("tools/call", 2)
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in relay.error(ident)["message"]
    assert time.monotonic() - begun < 0.5


@pytest.mark.parametrize("kind, options", [
    ("eof", ()), ("SIGTERM", ()), ("SIGINT", ()), ("SIGHUP", ()), ("idle", ("--idle-stop=30ms",)),
    ("timeout", ("--start-timeout=300ms",)), ("crash", ()), ("output", ())])
def test_case_027_no_member_of_the_group_survives_any_way_out(box, kind, options):
    """K1: grandchildren that ignore signals and hold the pipes are gone too (A13.2)."""
    fake = box.fake(children=["middle", "stubborn", "sleeper"])
    if kind == "timeout":
        fake.set(hang_at=["initialize"])
        relay = box.relay(fake, "--stop-grace=50ms", *options)
        relay.send(initialize())
        assert "timed out" in relay.error(0)["message"]
        pid = fake.pid()
    else:
        relay, pid = live(box, fake, *options)
    found = until(lambda: len(fake.descendants()) == 4 and fake.descendants(), what="the descendants")
    if kind == "eof":
        relay.close()
    elif kind == "crash":
        relay.error(relay.start_call("die", how="SIGSEGV"))
    elif kind == "output":
        relay.close_output()
        relay.start_call("pid")
    elif kind.startswith("SIG"):
        relay.signal(getattr(signal, kind))
    until(lambda: not any(alive(one) for one in found) and not group(pid), 3.0, "the end of the group")
    if kind in ("idle", "timeout", "crash"):
        assert relay.exists()
    else:
        ended(relay)


def test_case_028_a_leader_that_leaves_at_once(box):
    """The case wants its child to serve on; A10.8 takes the leader's exit for the server's end and kills the
    rest of the group, and the specification wins.  What counts: nothing is left, and an error is given."""
    fake = box.fake(leave=True)
    relay = box.relay(fake)
    relay.send(initialize())
    relay.answer(0)  # an answer or the error, as the race goes
    left = until(fake.descendants, what="the child")
    until(lambda: not alive(left[0]), 2.0, "the end of the child")
    assert relay.exists()


def test_case_029_a13_2_a13_3_exit_is_judged_by_the_status_not_by_the_pipes(box):
    fake = box.fake(children=["sleeper"])
    relay, pid = live(box, fake)
    relay.close()
    assert ended(relay) < 0.6, "at most the drain of 250 ms"
    assert not alive(fake.descendants()[0])


def test_a13_3_k1_a_crash_with_a_grandchild_on_the_pipes(box):
    fake = box.fake(children=["stubborn"])
    relay, pid = live(box, fake)
    begun = time.monotonic()
    assert "server exited" in relay.error(relay.start_call("die", how="exit3"))["message"]
    assert time.monotonic() - begun < 0.7
    until(lambda: not alive(fake.descendants()[0]), 1.0, "the grandchild's end")


def test_a13_4_output_during_the_ladder_is_delivered(box):
    fake = box.fake(eof_say='{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"bye"}}\n')
    relay, pid = live(box, fake)
    assert [one["params"] for one in relay.finish()] == [{"data": "bye"}]


def test_a13_7_a_request_just_before_the_end_is_processed(box):
    fake = box.fake()
    relay = box.warm(fake)
    ident = relay.start_call("pid")
    relay.close()
    found = relay.rest()
    assert [one["id"] for one in found] == [ident], "an answer or the error, but one"
    assert fake.starts() == 2 and relay.wait() == 0


def test_a13_7_what_cannot_be_answered_in_time_gets_the_error(box):
    """A server that ignores the end of its input has 250 ms and the grace to answer."""
    fake = box.fake(ignore_eof=True)
    relay, pid = live(box, fake)
    ident = relay.start_call("hang")
    fake.wait_method("tools/call", 2)
    relay.close()
    found = relay.rest()
    assert [(one["id"], one["error"]["code"]) for one in found] == [(ident, -32000)]
    assert "server exited" in found[0]["error"]["message"] and relay.wait() == 0


def test_a13_7_a_slow_answer_within_the_grace_is_delivered(box):
    fake = box.fake()
    relay, pid = live(box, fake)
    ident = relay.start_call("sleep", s=0.1)
    fake.wait_method("tools/call", 2)
    relay.close()
    assert [one.get("result") for one in relay.rest()] == [{"slept": 0.1}]


@slow
def test_a13_8_case_022_drain_waits_for_the_answers(box):
    fake = box.fake()
    relay = box.relay(fake, "--drain=10s")
    relay.send(initialize(), INITIALIZED, message("tools/call", 1, {"name": "sleep", "arguments": {"s": 0.5}}),
               message("tools/call", 2, {"name": "sleep", "arguments": {"s": 0.5}}))
    relay.close()
    found = relay.rest()
    assert [one["id"] for one in found] == [0, 1, 2] and all("result" in one for one in found)
    assert relay.wait() == 0


def test_a13_8_drain_has_an_end(box):
    fake = box.fake()
    relay, pid = live(box, fake, "--drain=200ms")
    ident = relay.start_call("hang")
    fake.wait_method("tools/call", 2)
    begun = time.monotonic()
    relay.close()
    assert [one["id"] for one in relay.rest()] == [ident]
    assert 0.2 <= time.monotonic() - begun < 1.2 and relay.wait() == 0


def test_a13_8_drain_is_over_with_the_last_answer(box):
    fake = box.fake()
    relay, pid = live(box, fake, "--drain=30s")
    relay.close()
    assert ended(relay) < 1.0


def test_case_022_nothing_is_waited_for_when_nobody_can_hear_it(box):
    fake = box.fake()
    relay, pid = live(box, fake, "--drain=30s")
    relay.start_call("sleep", s=0.3)
    relay.close_output()
    relay.close()
    assert ended(relay) < 2.0


@pytest.mark.parametrize("first, second", [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("eof", "SIGTERM")])
def test_a13_11_a_second_signal_goes_straight_to_the_kill(box, first, second):
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake, "--stop-grace=20s")
    if first == "eof":
        relay.close()
    else:
        relay.signal(getattr(signal, first))
    fake.wait_for("eof")
    if first == "eof":  # one signal in the ladder that end of input began is the first of its kind
        relay.signal(signal.SIGTERM)
    relay.signal(getattr(signal, second))
    assert ended(relay) < 0.8 and not alive(pid)


def test_a13_11_hup_does_not_shorten(box):
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake)
    relay.signal(signal.SIGTERM)
    fake.wait_for("eof")
    relay.signal(signal.SIGHUP)
    assert ended(relay) >= 0.5


def test_a8_7_a_stop_in_every_state_case_033(box):
    """End of input during a cold start: the process is gone and nothing was recorded."""
    fake = box.fake(never_read=True)
    relay = box.relay(fake)
    relay.send(initialize())
    pid = fake.wait_for("start")[0]["pid"]
    relay.close()
    ended(relay)
    assert not alive(pid) and not box.recordings()


def test_case_033_end_of_input_during_a_replay(box):
    fake = box.fake()
    relay = box.warm(fake)
    fake.set(never_read=True)
    ident = relay.start_call("pid")
    fake.wait_for("start", 2)
    relay.close()
    assert [one["id"] for one in relay.rest()] == [ident]
    assert relay.wait() == 0 and not alive(fake.pid())


def test_a13_6_end_of_input_during_an_idle_stop(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=20ms")
    fake.set(**STUBBORN)
    relay.call("pid")
    fake.wait_for("eof", 2)
    relay.close()
    assert ended(relay) < 1.5 and not alive(fake.pid())


# -------------------------------------------------------------------------- the guard (A13.10, case 035)

def test_a13_10_kill_9_of_the_relay_leaves_nothing(box):
    fake = box.fake(children=["middle", "stubborn", "sleeper"], **STUBBORN)
    relay, pid = live(box, fake)
    found = until(lambda: len(fake.descendants()) == 4 and fake.descendants(), what="the descendants")
    everything = set(found) | {pid} | set(children(relay.pid))
    relay.signal(signal.SIGKILL)
    begun = time.monotonic()
    until(lambda: not any(alive(one) for one in everything), 2.0, "the end of all")
    print("gone after", time.monotonic() - begun)
    until(lambda: not marked(box.mark), 1.0, "the end of the guard")
    assert relay.wait() == -9


def test_a13_10_kill_9_in_the_moment_of_a_spawn(box):
    """Before the relay knows the pid, the guard finds the server by the pipe that is its stdin."""
    deaf = box.path / "deaf.py"
    deaf.write_text("import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)\n")
    for _ in range(8):
        relay = box.relay([sys.executable, "-I", "-S", str(deaf)])
        relay.send(initialize())
        until(lambda: len(children(relay.pid)) >= 2, what="guard and server")  # no pause behind it
        relay.signal(signal.SIGKILL)
        assert relay.wait() == -9
        until(lambda: not marked(box.mark), 2.0, "the end of all")


def test_a13_10_kill_9_after_a_restart(box):
    """The guard knows the present group, and no old one."""
    fake = box.fake(**STUBBORN)
    fake.set(ignore_eof=False, ignore=[])
    relay = box.warm(fake, "--idle-stop=20ms")
    for _ in range(3):
        relay.call("pid")
        until(relay.asleep, what="the idle stop")
    fake.set()
    pid = relay.call("pid")["pid"]
    relay.signal(signal.SIGKILL)
    until(lambda: not alive(pid), 2.0, "the server's end")
    assert relay.wait() == -9


def test_a13_10_kill_9_in_the_middle_of_the_ladder(box):
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake, "--stop-grace=30s")
    relay.close()
    fake.wait_for("eof")
    relay.signal(signal.SIGKILL)
    until(lambda: not alive(pid), 2.0, "the server's end")
    assert relay.wait() == -9


def test_a13_10_kill_9_of_the_whole_group_as_some_clients_do(box):
    """The relay leads a group of its own here; the guard is in none of the killed groups (design section 5)."""
    fake = box.fake(**STUBBORN)
    relay, pid = live(box, fake, preexec=os.setpgrp)
    os.killpg(relay.pid, signal.SIGKILL)
    until(lambda: not alive(pid), 2.0, "the server's end")
    assert relay.wait() == -9


def test_design_5_a_client_that_terms_all_descendants_first(box):
    """opencode's end: TERM to what is below the relay, guard included, then end of input; the guard stays useful."""
    fake = box.fake(children=["stubborn"], **STUBBORN)
    relay, pid = live(box, fake)
    found = until(fake.descendants, what="the grandchild")
    below = children(relay.pid)
    for one in below + found:
        os.kill(one, signal.SIGTERM)
    relay.call("pid")
    assert set(below) <= set(children(relay.pid))
    relay.signal(signal.SIGKILL)
    until(lambda: not any(alive(one) for one in below + found), 2.0, "the end of all")
    assert relay.wait() == -9


def test_design_5_the_guard_is_one_small_process_without_descriptors_of_ours(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-stop=20ms")
    for _ in range(3):
        relay.call("pid")
        until(relay.asleep, what="the idle stop")
    guards = relay.guards()
    assert len(guards) == 1, children(relay.pid)
    stat = proc_stat(guards[0])
    assert stat["sid"] == guards[0] and stat["sid"] != proc_stat(relay.pid)["sid"]
    own = {os.stat("/proc/self/fd/%d" % fd).st_ino for fd in (relay.stdin, relay.stdout)}
    held = fds(guards[0])
    inodes = set()
    for number in held:
        try:
            inodes.add(os.stat("/proc/%d/fd/%d" % (guards[0], number)).st_ino)
        except OSError:
            pass
    assert not own & inodes, "it would keep the client from seeing our end"
    assert relay.stderr_path not in held.values()


def test_design_5_no_guard_without_a_server(box):
    fake = box.fake()
    relay = box.warm(fake)
    assert children(relay.pid) == [], "an untouched warm relay is one process"


def test_design_5_the_guard_goes_with_the_relay(box):
    fake = box.fake()
    relay, pid = live(box, fake)
    guards = relay.guards()
    relay.finish()
    until(lambda: not any(alive(one) for one in guards), 1.0, "the guard's end")


def test_design_5_a_server_ended_by_the_leaving_client_is_not_reported(box):
    """TERM to the descendants, then end of input: no restart, no error for nothing."""
    fake = box.fake()
    relay, pid = live(box, fake)
    os.kill(pid, signal.SIGTERM)
    relay.close()
    assert relay.rest() == [] and relay.wait() == 0
    assert fake.starts() == 1 and relay.stderr() == ""


# --------------------------------------------------------------------------- reaping (case 032, A8.7)

@slow
def test_case_032_no_zombie_after_fifty_idle_stops(box):
    fake = box.fake(children=["sleeper"], python=sys.executable)
    relay = box.warm(fake, "--idle-stop=5ms")
    before, starts = fds(relay.pid), fake.starts()  # the recording session may have slept in between, too
    for _ in range(50):
        relay.call("pid")
        until(relay.asleep, what="the idle stop")
    states = [proc_stat(pid)["state"] for pid in children(relay.pid)]
    assert "Z" not in states and len(states) <= 1, "at most the guard"
    assert abs(len(fds(relay.pid)) - len(before)) <= 2, (before, fds(relay.pid))
    assert fake.starts() == starts + 50


def test_case_032_an_ignored_sigchld_is_no_harm(box):
    """Inherited SIG_IGN would reap behind our back (A8.8)."""
    fake = box.fake()
    relay = box.relay(fake, preexec=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    relay.handshake()
    assert "exit status 3" in relay.error(relay.start_call("die", how="exit3"))["message"]
    relay.finish()


def test_a8_8_blocked_signals_are_no_harm(box):
    fake = box.fake()
    every = {signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1}
    relay = box.relay(fake, preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, every))
    relay.handshake()
    assert int(relay.call("status")["masks"]["SigBlk"], 16) == 0
    assert "exit status 3" in relay.error(relay.start_call("die", how="exit3"))["message"]
    relay.signal(signal.SIGTERM)
    ended(relay)


def test_case_032_children_that_were_there_before_are_left_alone(box):
    """A relay that was exec'd by a shell with a child of its own must not trip over it."""
    fake = box.fake()
    words = box.command("--", *fake.argv)
    relay = box.relay([], argv=["/bin/sh", "-c", 'sleep 0.05 & exec "$@"', "sh", *words])
    relay.handshake()
    assert relay.call("sleep", s=0.2)
    assert relay.call("pid")["calls"] == 2
    relay.finish()


@slow
def test_case_050_every_start_gives_back_all_it_took(box):
    """Starts that fail in every way: descriptors and children are as before."""
    fake = box.fake()
    fake.set(die="exit3")
    relay = box.relay(fake, "--restart-backoff=0", "--start-timeout=150ms")
    count = iter(range(10000))

    def once(**flags):
        fake.set(**flags)
        ident = next(count)
        relay.send(initialize(ident))
        relay.answer(ident)
        until(relay.asleep, what="the end of the server")
    once(die="exit3")
    before = sorted(fds(relay.pid))
    for _ in range(8):
        once(die="exit3")
        once(die="SIGKILL", children=["sleeper"])
        once(say='{"id":0,"result":{}}\n', hang_at=["initialize"])
        once(leave=True)
    assert sorted(fds(relay.pid)) == before
    assert len(children(relay.pid)) <= 1


def test_case_050_no_descriptors_left_to_open(box):
    """The one start fails with its reason; the relay lives, and works when there is room again."""
    import resource
    fake = box.fake()
    relay = box.warm(fake)
    had = resource.prlimit(relay.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, (max(fds(relay.pid)) + 2, had[1]))
    ident = relay.start_call("pid")
    assert "cannot start the server" in relay.error(ident)["message"]
    assert relay.ask("ping") == {}
    resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, had)
    assert relay.call("pid")["calls"] == 1


# ------------------------------------------------------------------- the client's descriptors (case 008)

def test_case_008_descriptors_of_the_client_are_as_before(box):
    """Non-blocking ends in the parent's hands, before, during and after."""
    for began in (True, False):
        fake = box.fake()
        to_relay, ours = os.pipe()
        theirs, from_relay = os.pipe()
        set_nonblocking(to_relay, began)
        set_nonblocking(from_relay, began)
        flags = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (to_relay, from_relay)]
        with open(box.path / "stderr-own", "ab") as errors:
            process = subprocess.Popen(box.command("--", *fake.argv), stdin=to_relay, stdout=from_relay, stderr=errors, env=box.env())
        data = b""
        os.write(ours, encode(initialize()) + encode(INITIALIZED)
                 + encode(message("tools/call", 1, {"name": "size", "arguments": {"n": 5 << 20}}))
                 + encode(message("tools/call", 2, {"name": "status"})))
        turn = 0
        while data.count(b"\n") < 3:
            turn += 1
            set_nonblocking(from_relay, turn % 2 == 0)  # somebody else shares the pipe
            data += read_some(theirs)
        lines = data.splitlines(True)
        assert len(lines[1]) == 5 << 20
        import json
        assert json.loads(lines[2])["result"]["flags"] == [0, 0, 0], "the server's own are blocking ones"
        os.close(ours)
        assert process.wait(WAIT_S) == 0
        assert fcntl.fcntl(to_relay, fcntl.F_GETFL) == flags[0]
        for fd in (to_relay, theirs, from_relay):
            os.close(fd)


@pytest.mark.parametrize("way", ["eof", "SIGTERM", "SIGTERM twice", "usage"])
def test_case_008_blocking_mode_is_restored_on_every_way_out(box, way):
    fake = box.fake(**STUBBORN)
    to_relay, ours = os.pipe()
    theirs, from_relay = os.pipe()
    words = ["--nope"] if way == "usage" else ["--stop-grace=100ms", "--", *fake.argv]
    process = subprocess.Popen(box.command(*words), stdin=to_relay, stdout=from_relay, stderr=subprocess.DEVNULL, env=box.env())
    if way != "usage":
        os.write(ours, encode(initialize()))
        assert read_some(theirs).startswith(b"{")
    if way == "eof":
        os.close(ours)
    elif way != "usage":
        os.kill(process.pid, signal.SIGTERM)
        if way.endswith("twice"):
            fake.wait_for("eof")
            os.kill(process.pid, signal.SIGTERM)
    assert process.wait(WAIT_S) == (2 if way == "usage" else 0)
    assert os.get_blocking(to_relay) and os.get_blocking(from_relay)
    for fd in {to_relay, theirs, from_relay} | (set() if way == "eof" else {ours}):
        os.close(fd)


def test_clients_12_sockets_work_as_pipes_do(box):
    """Node and Bun hand out socket pairs (captured clients)."""
    import socket
    fake = box.fake()
    here, there = socket.socketpair()
    errors_here, errors_there = socket.socketpair()
    process = subprocess.Popen(box.command("--", *fake.argv), stdin=there, stdout=there, stderr=errors_there, env=box.env())
    here.settimeout(WAIT_S)
    here.sendall(encode(initialize()) + encode(INITIALIZED) + encode(message("tools/call", 1, {"name": "size", "arguments": {"n": 1 << 20}})))
    file = here.makefile("rb")
    assert file.readline().startswith(b"{") and len(file.readline()) == 1 << 20
    here.shutdown(socket.SHUT_WR)
    assert process.wait(WAIT_S) == 0
    assert os.get_blocking(there.fileno())
    for one in (file, here, there, errors_here, errors_there):
        one.close()


def test_design_5_files_and_dev_null_as_input_and_output(box):
    fake = box.fake()
    (box.path / "in").write_bytes(encode(initialize()) + encode(INITIALIZED) + encode(message("tools/call", 1, {"name": "pid"})))
    with open(box.path / "in", "rb") as source, open(box.path / "out", "wb") as sink:
        status = subprocess.run(box.command("--drain=5s", "--", *fake.argv), stdin=source, stdout=sink, stderr=subprocess.DEVNULL,
                                env=box.env(), timeout=WAIT_S).returncode
    assert status == 0 and (box.path / "out").read_bytes().count(b"\n") == 2
    with open(os.devnull, "r+b") as null:
        assert subprocess.run(box.command("--", *fake.argv), stdin=null, stdout=null, stderr=null, env=box.env(), timeout=WAIT_S).returncode == 0


@pytest.mark.parametrize("closed", [(2,), (0,), (1,), (0, 1, 2)])
def test_design_5_closed_standard_descriptors(box, closed):
    """A client that closed one of 0, 1, 2: no traceback, no hang, and no file of ours lands on that number."""
    fake = box.fake()

    def shut():
        for fd in closed:
            os.close(fd)
    relay = Relay(box, box.command("--", *fake.argv), box.env(), stderr_path=str(box.path / "stderr-x"), preexec=shut)
    box.relays.append(relay)
    if closed == (2,):
        relay.handshake()
        assert relay.call("pid")["calls"] == 1
        relay.finish()
        return
    relay.close()
    assert relay.wait(4.0) in (0, 1, 2)


def test_a13_12_case_011_a_client_that_closes_its_end(box):
    """EPIPE is end of input: one orderly stop, little processor time, exit 0."""
    for both in (True, False):
        fake = box.fake(tick=0.002)
        relay, pid = live(box, fake)
        relay.close_output()
        if both:
            relay.close()
        until(lambda: not relay.exists() or cpu_s(relay.pid) > 0.5, 5.0, "the end")
        assert relay.wait(1.0) == 0 and not alive(pid)
        assert "Traceback" not in relay.stderr() and len(relay.stderr()) < 1000


def test_a13_12_k2_an_answer_that_meets_a_closed_pipe(box):
    fake = box.fake()
    relay = box.warm(fake)
    relay.close_output()
    relay.request("ping")
    assert ended(relay) < 1.0 and relay.stderr() == ""


def test_a13_12_an_ended_reader_is_noticed_while_the_server_is_silent(box):
    fake = box.fake(children=["stubborn"])
    relay, pid = live(box, fake)
    relay.close_output()
    relay.request("ping")
    assert ended(relay) < 2.5 and not alive(pid)


def test_case_037_a_terminals_interrupt_does_not_reach_the_server(box):
    """The relay in a terminal's foreground group; ^C stops it in order, and the server gets no SIGINT."""
    fake = box.fake(eof_wait=0.05)
    leader, follower = pty.openpty()
    to_relay, ours = os.pipe()
    theirs, from_relay = os.pipe()

    def foreground():
        os.setsid()
        import termios
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    process = subprocess.Popen(box.command("--", *fake.argv), stdin=to_relay, stdout=from_relay, stderr=follower, env=box.env(),
                               preexec_fn=foreground)
    os.write(ours, encode(initialize()) + encode(INITIALIZED) + encode(message("tools/call", 1, {"name": "stderr", "arguments": {"text": "to the terminal\n"}})))
    data = b""
    while data.count(b"\n") < 2:
        data += read_some(theirs)
    assert b"to the terminal" in read_some(leader), "and no SIGTTOU stopped anything"
    os.write(leader, b"\x03")
    assert process.wait(WAIT_S) == 0
    assert [one["by"] for one in fake.events("saved")] == ["eof"], "it ended by end of input"
    for fd in (leader, follower, to_relay, ours, theirs, from_relay):
        os.close(fd)


# --------------------------------------------------------------------- what a server inherits (A8.4, A8.8)

def test_a8_4_e1_2_direct_child_and_leader_of_its_group(box):
    fake = box.fake()
    relay, pid = live(box, fake, cwd=str(box.path))
    status = relay.call("status")
    assert status["ppid"] == relay.pid and status["pid"] == pid
    assert status["pgid"] == pid, "its own group"
    assert status["sid"] == proc_stat(relay.pid)["sid"], "setpgid, not setsid"
    assert status["cwd"] == os.path.realpath(str(box.path))


def test_a8_4_a8_8_descriptors_and_signals_are_clean(box):
    fake = box.fake()
    read, write = os.pipe()
    os.set_inheritable(write, False)
    relay = box.relay(fake, "--idle-stop=1h", "--log-file", box.path / "log",
                      preexec=lambda: (signal.signal(signal.SIGPIPE, signal.SIG_DFL), signal.signal(signal.SIGUSR1, signal.SIG_DFL)))
    relay.handshake()
    status = relay.call("status")
    assert [number for number, _ in status["fds"]] == [0, 1, 2], status["fds"]
    assert all(target.startswith("pipe:") for _, target in status["fds"])
    masks = {key: int(value, 16) for key, value in status["masks"].items()}
    assert masks["SigBlk"] == 0
    ignored = [number for number in range(1, 32) if masks["SigIgn"] >> (number - 1) & 1]
    # The fake is a Python: it ignores SIGPIPE and SIGXFSZ itself; a shell shows the rest below.
    assert set(ignored) <= {signal.SIGPIPE, signal.SIGXFSZ}
    os.close(read)
    os.close(write)


def test_a8_8_dispositions_as_a_program_without_its_own_sees_them(box):
    out = box.path / "status"
    script = box.path / "show"
    script.write_text("#!/bin/sh\ncat /proc/self/status >%s.new; mv %s.new %s; exec cat >/dev/null\n" % (out, out, out))
    script.chmod(0o755)
    relay = box.relay([str(script)], preexec=lambda: [signal.signal(number, signal.SIG_IGN) for number in (
        signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD)] and None)
    relay.send(initialize())
    until(out.exists, what="the program")
    fields = dict(line.split(":\t", 1) for line in out.read_text().splitlines() if ":\t" in line)
    assert int(fields["SigBlk"], 16) == 0
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD):
        assert not int(fields["SigIgn"], 16) >> (number - 1) & 1, number
    relay.signal(signal.SIGTERM)
    relay.wait()


def relayed_environment(box, env, how=None):
    """What /proc shows for the server, and what it would show for a program started directly."""
    fake = box.fake()
    argv = (how or box.command)("--", *fake.argv)
    relay = box.relay([], argv=argv, env=env)
    relay.handshake()
    pid = relay.call("pid")["pid"]
    return relay, sorted(item for item in environ_of(pid) if item)


def test_a8_4_the_environment_name_by_name(box):
    """Names that are no identifiers, empty values, bytes that are no text, equals signs."""
    env = {os.fsencode(key): os.fsencode(value) for key, value in box.env().items()}
    env.update({b"a.b-c": b"1", b"x y": b"2", b"EMPTY": b"", b"BYTES": b"\xff\xfe", b"EQ": b"a=b=c", b"1st": b"x", b"\xc3\xa9": b"e",
                b"PYTHONPATH": b"/tmp/none", b"MCP_LAZY_VERBOSE": b"0", b"LD_BIND_NOW": b"1", b"PS1": b"$ ", b"_": b"/bin/x",
                b"NEW": b"a\nb", b"PWD": b"/somewhere", b"SHLVL": b"7"})
    relay, seen = relayed_environment(box, env)
    assert seen == sorted(key + b"=" + value for key, value in env.items())


@pytest.mark.parametrize("locale", [{}, {"LANG": "C"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_CTYPE": "C"}, {"LANG": "de_DE.UTF-8"}])
def test_a8_4_no_lc_ctype_is_made_up(box, locale):
    """Python sets LC_CTYPE for itself in the C locale; the server must not get it, and one of the client's must stay."""
    env = box.env(LANG=None, **locale) if "LANG" not in locale else box.env(**locale)
    relay, seen = relayed_environment(box, env, box.script)
    assert seen == sorted(("%s=%s" % item).encode() for item in env.items())


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LC_CTYPE": "C.UTF-8"}])
def test_a8_4_the_same_through_the_executable_file(box, locale):
    """The first line's `env` adds nothing, and neither does the launcher or a second exec."""
    from harness import MODULE
    env = box.env(LANG=None, **locale)
    relay, seen = relayed_environment(box, env, lambda *words: [str(MODULE), *words])
    assert seen == sorted(("%s=%s" % item).encode() for item in env.items())


def test_a8_4_an_almost_empty_environment(box):
    """No PATH, no HOME (A4.1): it still works."""
    fake = box.fake()
    relay = box.relay(fake, env={"RELAY_TEST_MARK": box.mark, "TMPDIR": str(box.path / "tmp")})
    relay.handshake()
    assert relay.call("pid")["calls"] == 1
