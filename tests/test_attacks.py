"""What an attack on the relay found, each kind once more: real processes where the system matters, the engine elsewhere."""

import os
import signal
import time

import pytest

import mcp_lazy
from harness import WAIT_S, alive, encode, initialize, message, until
from sim import INITIALIZED
from test_l07_relay import advance, cold, initialize as sim_initialize, replaying, request, result, says, to_client, woken

from mcp_lazy import Envelope, LineSplitter, TimerFired, Write, read_envelope

slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("asleep", [False, True])
def test_a13_6_a_client_that_goes_while_it_is_held_back_is_noticed(box, asleep):
    """A10.12 stops the reading above 8 MiB; the end of the client is acted on all the same (case 030)."""
    fake = box.fake(start_delay=60.0) if asleep else box.fake()
    relay = box.relay(fake)
    if asleep:
        relay.send(initialize())
    else:
        relay.handshake()
        relay.start_call("sleep", s=60)
    note = encode({"jsonrpc": "2.0", "method": "notifications/x", "params": {"pad": "x" * 60000}})
    os.set_blocking(relay.stdin, False)
    end = time.monotonic() + WAIT_S
    quiet = 0
    while quiet < 20 and time.monotonic() < end:
        try:
            os.write(relay.stdin, note)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
    relay.close()
    assert relay.wait(5.0) == 0


@slow
def test_a13_8_what_a_client_wrote_before_it_went_is_not_lost_while_it_is_held_back(box):
    """More than the queue holds, from a writer that is gone before the server has started."""
    fake = box.fake(start_delay=1.5)
    relay = box.relay(fake, "--drain=20s")
    relay.send(initialize())
    pad = "x" * 60000
    for ident in range(1, 142):  # just above 8 MiB: the last one waits in the pipe when the writer closes it
        relay.send(message("tools/call", ident, {"name": "pid", "arguments": {"pad": pad}}))
    relay.close()
    assert all("result" in relay.answer(ident, 20.0) for ident in range(1, 142))
    assert relay.wait(10.0) == 0


@pytest.mark.parametrize("option", ["--idle-stop=2000000h", "--call-timeout=2000000h", "--start-timeout=2000000h"])
def test_a2_3_the_longest_durations_are_only_long(box, option):
    relay = box.relay(box.fake(), option)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1
    relay.finish()


DEEP = b"[" * 100000 + b"]" * 100000
LONG = b"7" * 5000


@pytest.mark.parametrize("value", [DEEP, LONG])
def test_a11_4_an_answer_that_cpython_cannot_read_is_an_answer(value):
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[],"x":%s}}\n' % value
    book = cold().then(request(1, "tools/list"))
    (book >> says(answer) << to_client(answer)).check()
    assert not book.relay.flights


@pytest.mark.parametrize("pad", [0, 3000])
@pytest.mark.parametrize("value", [b"NaN", b'"\xff"', b'"\x01"', b"[1,]"])
def test_a10_14_the_length_of_a_line_does_not_decide_what_passes(value, pad):
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"x":%s,"pad":"%s"}}\n' % (value, b"p" * pad)
    book = cold().then(request(1, "x"))
    (book >> says(answer) << to_client(answer)).check()
    assert not book.relay.flights


@pytest.mark.parametrize("late", ["mcp-lazy-check-1-tools/list", "mcp-lazy-init-1"])
def test_a8_2_a_second_or_late_answer_to_our_own_request_is_not_shown(late):
    book = replaying(refresh_fatal=False).then()
    book.then(says(result("mcp-lazy-init-1", {"protocolVersion": "2025-06-18", "capabilities": {}})))
    book.then(TimerFired("own-limit", b""))
    book >> says(result(late, {"tools": []}))
    assert not [effect for effect, _ in book.open if type(effect) is Write and effect.side == "client"]


def test_a8_1_a_refused_second_handshake_does_not_spoil_the_first():
    book = woken().then(sim_initialize(2), says(b'{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"already"}}\n'))
    assert book.relay.told.init_params is not None and book.relay.shelf.initialize() is not None


def test_a10_8_a_server_that_closes_only_its_output_fails_what_is_open(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    pid = relay.call("pid")["pid"]
    found = relay.error(relay.start_call("closeout"))
    assert "closed its output" in found["message"]
    until(lambda: not alive(pid), what="the end of the server")
    assert relay.call("pid")["calls"] == 1


def test_a13_7_case_022_a_warm_call_before_the_end_of_input_is_sent(box):
    """No --drain: what was read still gets the 250 ms of the first step to be sent, and its answer the ladder's time."""
    fake = box.fake()
    box.warm(fake).finish()
    relay = box.relay(fake)
    relay.send(initialize(), INITIALIZED, message("tools/call", 5, {"name": "pid", "arguments": {}}))
    relay.close()
    relay.result(0)
    assert "result" in relay.answer(5)
    assert relay.wait() == 0


@pytest.mark.parametrize("line", [
    b'{"a":1,' * 1 + b'"a":1,' * 400000 + b'"z":1}\n', b'{"id":' + b"1" * 3000000 + b"}\n",
    b'{"a":"' + b'\\"' * 1500000 + b'"}\n', b'{"a"' + b" " * 3000000 + b":1}\n", b'{"a":"' + b"\\\\" * 1500000 + b'"}\n',
    b"[" + b"1," * 1500000 + b"1]\n"])
def test_a10_11_no_line_takes_the_time_of_all_others(line):
    begun = time.process_time()
    assert isinstance(read_envelope(line), Envelope)
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize("line", [b"[]\n", b"[1,2,3]\n", b"[2024]\n", b'[{"level":"info"}]\n'])
def test_case_001_an_array_without_a_message_is_noise(line):
    (cold() >> says(line) << None).check()


def test_a7_15_a_batch_that_is_too_long_to_look_into_still_passes():
    answer = b'[{"jsonrpc":"2.0","id":1,"result":{"x":"%s"}}]\n' % (b"x" * 3000000)
    (cold().then(b'[{"jsonrpc":"2.0","id":1,"method":"x"}]\n') >> says(answer) << to_client(answer)).check()


@pytest.mark.parametrize("size", [10, 3000, 3000000])
def test_a11_4_an_answer_with_its_result_between_other_containers_is_one(size):
    answer = b'{"jsonrpc":"2.0","id":1,"_meta":{},"result":{"x":"%s"},"more":{}}\n' % (b"x" * size)
    book = cold().then(request(1, "x"))
    (book >> says(answer) << to_client(answer)).check()
    assert not book.relay.flights


@pytest.mark.parametrize("pieces", [1, 2])
def test_a7_13_the_limit_is_the_same_for_whole_lines_and_pieces(pieces):
    for size, passes in ((100, True), (101, False)):
        splitter, line = LineSplitter(100), b"x" * size + b"\n"
        cuts = [line] if pieces == 1 else [line[:50], line[50:]]
        blocks = [block for cut in cuts for block in splitter.feed(cut)]
        assert (blocks == [line], splitter.too_long) == (passes, not passes)


def test_a7_17_a_late_answer_is_not_taken_for_that_of_a_new_request_with_its_id():
    book = woken(call_timeout_ns=10 ** 9).then(request(8, "old"), advance(1.0), request(8, "new"))
    (book >> says(result(8, {"old": 1})) << None >> says(result(8, {"new": 1})) << to_client(result(8, {"new": 1}))).check()


def test_design_5_a_guard_that_was_killed_is_replaced_at_once(box):
    fake = box.fake(ignore_eof=True, ignore=["SIGTERM", "SIGINT", "SIGHUP"])
    relay = box.relay(fake)
    relay.handshake()
    pid = relay.call("pid")["pid"]
    (guard,) = relay.guards()
    os.kill(guard, signal.SIGKILL)
    until(lambda: relay.guards() not in ([], [guard]), what="another guard")
    relay.signal(signal.SIGKILL)
    until(lambda: not alive(pid), 2.0, "the end of the server")
    assert relay.wait() == -9


@pytest.mark.parametrize("limit", [5, 6, 9, 16])  # with four CPython 3.9 itself does not start
def test_case_050_few_descriptors_are_no_traceback(box, limit):
    import resource
    relay = box.relay(box.fake(), preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    relay.send(initialize())
    relay.close()
    assert relay.wait() in (0, 1)
    assert "Traceback" not in relay.stderr()


def test_a4_a_stdin_that_cannot_be_read_is_an_end_of_input(box):
    words = box.command("--", *box.fake().argv)
    relay = box.relay([], argv=["/bin/sh", "-c", 'exec "$@" 0>/dev/null', "sh", *words])
    assert relay.wait() == 0


def test_a10_5_words_that_are_no_text_are_valid_json_in_an_error(box):
    relay = box.relay([b"/no\xff\xfesuch"])
    relay.send(initialize())
    assert "cannot start the server" in relay.error(0)["message"]
    relay.finish()


def test_a6_2_a_replay_that_is_no_handshake_is_refused_and_not_recorded():
    book = replaying() >> says(result("mcp-lazy-init-1", {"early": 1}))
    told = [effect.raw for effect, _ in book.open if type(effect) is Write and effect.side == "client"]
    assert b"refused the handshake" in told[0] and b"early" not in (book.relay.shelf.initialize() or b"")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads the caught signals from /proc")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a13_6_a_signal_while_the_module_loads_is_an_end_like_any_other(box, signum):
    """From the launcher's first statements on; before them CPython itself answers a SIGINT with its KeyboardInterrupt."""
    def catches(pid):
        with open("/proc/%d/status" % pid) as status:
            caught = [line for line in status if line.startswith("SigCgt:")]
        return int(caught[0].split()[1], 16) >> (signal.SIGTERM - 1) & 1
    for _ in range(5):
        relay = box.relay(box.fake(), argv=[str(mcp_lazy.__file__), "--", *box.fake().argv])
        until(lambda: catches(relay.pid), what="the first handlers")
        relay.signal(signum)
        assert relay.wait() == 0
        assert relay.stderr() == ""
