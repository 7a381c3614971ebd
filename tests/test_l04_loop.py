"""L4: timers, descriptors, bounded output, tasks, and signals that wake the wait (design 5, A8.8, case 042)."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest

from generated import seeded
from harness import MODULE, set_nonblocking
from mcp_lazy import Cancelled, Future, Loop, Outbox, OwnLines, SignalPipe, StderrSink, Tasks

SOON_S = 0.001


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def pipe():
    """(read end, write end), both non-blocking; closed in the end whatever a test did."""
    ends = os.pipe()
    for fd in ends:
        set_nonblocking(fd, True)
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            pass


def turns(loop, condition, limit_s=3.0):
    """Turns of the loop until the condition holds; a guard timer keeps a turn from waiting for ever."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the loop did not come to it"
        loop.set_timer("the test's guard", time.monotonic() + 0.05, lambda: None)
        loop.turn()
    loop.clear_timer("the test's guard")


def drained(fd):
    found = b""
    while True:
        try:
            piece = os.read(fd, 1 << 20)
        except BlockingIOError:
            return found
        if not piece:
            return found
        found += piece


# ------------------------------------------------------------------------------------------ timers

def test_timers_fire_in_the_order_of_their_times(loop):
    rng, fired, now_s = seeded("timers"), [], time.monotonic()
    times = [now_s - rng.random() for _ in range(50)]
    for number, at_s in enumerate(times):
        loop.set_timer("t%d" % number, at_s, lambda at_s=at_s: fired.append(at_s))
    loop.turn()
    assert fired == sorted(times) and not loop.has_timers()


def test_a_timer_of_the_same_name_is_replaced(loop):
    fired, now_s = [], time.monotonic()
    loop.set_timer("a", now_s - 1, lambda: fired.append("early"))
    loop.set_timer("a", now_s + 0.01, lambda: fired.append("late"))
    loop.turn()
    turns(loop, lambda: fired)
    assert fired == ["late"] and time.monotonic() >= now_s + 0.01


def test_a_cleared_timer_does_not_fire(loop):
    fired, now_s = [], time.monotonic()
    loop.set_timer("a", now_s - 1, lambda: fired.append("a"))
    loop.set_timer("b", now_s - 1, lambda: fired.append("b"))
    loop.clear_timer("a")
    loop.clear_timer("never set")
    loop.turn()
    assert fired == ["b"]


def test_a_timer_is_never_early(loop):
    seen, at_s = [], time.monotonic() + 0.02
    loop.set_timer("a", at_s, lambda: seen.append((time.monotonic(), loop.now_s)))
    turns(loop, lambda: seen)
    assert seen[0][0] >= at_s and seen[0][1] >= at_s


def test_timers_that_change_timers(loop):
    """One clears a due one, one arms another and itself again: the cleared one is silent, the others come a turn later."""
    fired, now_s = [], time.monotonic()

    def first():
        fired.append("first")
        loop.clear_timer("second")
        loop.set_timer("third", now_s - 5, lambda: fired.append("third"))
        if fired.count("first") < 2:
            loop.set_timer("first", now_s - 5, first)
    loop.set_timer("first", now_s - 2, first)
    loop.set_timer("second", now_s - 1, lambda: fired.append("second"))
    loop.turn()
    assert fired == ["first"]
    loop.turn()
    assert sorted(fired) == ["first", "first", "third"]
    assert "second" not in fired


def test_an_error_of_a_timer_comes_out_and_the_loop_goes_on(loop):
    fired = []
    loop.set_timer("bad", 0.0, lambda: 1 / 0)
    loop.set_timer("good", 1.0, lambda: fired.append(1))
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.turn()
    assert fired == [1]


# ------------------------------------------------------------------------------------- descriptors

def test_what_came_goes_before_a_timer_that_is_long_due(loop, pipe):
    """Behind a SIGSTOP the wait ends by the clock alone, with nothing ready; the answer that lies in the pipe comes first."""
    read_fd, write_fd = pipe
    order = []
    loop.watch(read_fd, lambda: order.append(drained(read_fd) and "data"))
    loop.set_timer("late", loop.now_s - 1.0, lambda: order.append("timer"))
    turns(loop, lambda: order)
    order.clear()

    class Blind:
        """A selector whose first wait sees nothing, as one that a signal interrupted does."""
        def __init__(self, inner):
            self.inner, self.waits = inner, 0

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def select(self, timeout=None):
            self.waits += 1
            return [] if self.waits == 1 else self.inner.select(timeout)

    loop._selector = Blind(loop._selector)
    os.write(write_fd, b"x")
    loop.set_timer("late", loop.now_s - 1.0, lambda: order.append("timer"))
    loop.turn()
    assert order == ["data", "timer"]


def test_a_readable_descriptor_calls_back_and_a_forgotten_one_does_not(loop, pipe):
    seen = []
    loop.watch(pipe[0], lambda: seen.append(os.read(pipe[0], 100)))
    os.write(pipe[1], b"a")
    loop.turn()
    loop.watch(pipe[0])
    os.write(pipe[1], b"b")
    loop.set_timer("end", 0.0, lambda: None)
    loop.turn()
    assert seen == [b"a"]
    loop.watch(pipe[0], lambda: seen.append(os.read(pipe[0], 100)))
    loop.turn()
    assert seen == [b"a", b"b"]


def test_both_callbacks_of_one_descriptor(loop):
    import socket
    one, other = socket.socketpair()
    with one, other:
        seen = []
        loop.watch(one.fileno(), lambda: seen.append("read"), lambda: seen.append("write"))
        other.send(b"x")
        loop.turn()
        assert seen == ["read", "write"]
        loop.watch(one.fileno(), None, lambda: seen.append("write"))
        loop.turn()
        assert seen == ["read", "write", "write"]
        loop.watch(one.fileno(), lambda: seen.append(one.recv(9)))
        loop.turn()
        assert seen[3:] == [b"x"]
        loop.watch(one.fileno())


def test_a_callback_forgets_a_descriptor_of_the_same_turn(loop):
    """Whoever comes first closes all the others; their numbers may mean something else by then."""
    pipes, called = [os.pipe() for _ in range(5)], []

    def forget_others(mine):
        called.append(mine)
        for read_fd, _ in pipes:
            if read_fd != mine:
                loop.watch(read_fd)
                os.close(read_fd)
    for read_fd, write_fd in pipes:
        loop.watch(read_fd, lambda read_fd=read_fd: forget_others(read_fd))
        os.write(write_fd, b"x")
    loop.turn()
    assert len(called) == 1
    loop.watch(called[0])
    os.close(called[0])
    for _, write_fd in pipes:
        os.close(write_fd)


def test_a_callback_replaces_the_callback_of_the_same_turn(loop):
    import socket
    one, other = socket.socketpair()
    with one, other:
        seen = []

        def readable():
            seen.append("read")
            loop.watch(one.fileno(), None, lambda: seen.append("new write"))
        loop.watch(one.fileno(), readable, lambda: seen.append("old write"))
        other.send(b"x")
        loop.turn()
        assert seen == ["read", "new write"]
        loop.watch(one.fileno())


def test_regular_files_are_always_ready(loop, tmp_path):
    """epoll refuses them; a relay may have a file as its input or output."""
    (tmp_path / "in").write_bytes(b"abc")
    seen = []
    with open(tmp_path / "in", "rb", buffering=0) as file, open(tmp_path / "out", "wb", buffering=0) as out:
        def read():
            piece = file.read(1)
            seen.append(piece)
            if not piece:
                loop.watch(file.fileno())
        loop.watch(file.fileno(), read)
        loop.watch(out.fileno(), None, lambda: (out.write(b"x"), loop.watch(out.fileno())))
        loop.set_timer("late", time.monotonic() + 30, lambda: seen.append("late"))
        for _ in range(4):
            loop.turn()
        assert seen == [b"a", b"b", b"c", b""]
        assert (tmp_path / "out").read_bytes() == b"x"
        loop.clear_timer("late")
        before = time.monotonic()
        loop.set_timer("t", before + 0.02, lambda: None)
        loop.turn()
        assert time.monotonic() >= before + 0.02, "without a watched file the wait is a wait again"


def test_closed_and_reused_numbers_are_watched_again(loop):
    for _ in range(20):
        read_fd, write_fd = os.pipe()
        seen = []
        loop.watch(read_fd, lambda: seen.append(os.read(read_fd, 9)))
        os.write(write_fd, b"x")
        loop.turn()
        assert seen == [b"x"]
        loop.watch(read_fd)
        os.close(read_fd)
        os.close(write_fd)


# ------------------------------------------------------------------------------------------ outbox

def test_an_outbox_keeps_the_order_over_partial_writes(pipe):
    rng, outbox, sent, got = seeded("outbox"), Outbox(pipe[1]), b"", b""
    for number in range(400):
        piece = bytes([number % 256]) * rng.choice((0, 1, 7, 500, 70000))
        piece = rng.choice((bytes, bytearray))(piece)
        outbox.put(piece)
        sent += piece
        if rng.random() < 0.5:
            outbox.flush()
        assert outbox.pending_bytes >= len(sent) - len(got) - (1 << 20)
        if rng.random() < 0.7:
            got += os.read(pipe[0], rng.randrange(1, 200000)) if outbox.pending_bytes < len(sent) - len(got) else b""
    while outbox.pending_bytes:
        got += drained(pipe[0])
        assert outbox.flush()
    got += drained(pipe[0])
    assert got == sent and not outbox.broken


def test_an_outbox_tells_whether_something_moved(pipe):
    outbox = Outbox(pipe[1])
    assert outbox.flush() is False
    outbox.put(b"x" * 200000)
    assert outbox.flush() is True and 0 < outbox.pending_bytes < 200000
    assert outbox.flush() is False, "the pipe is full"
    assert drained(pipe[0]) and outbox.flush() is True


def test_many_small_pieces_leave_in_few_writes(pipe):
    outbox = Outbox(pipe[1])
    for _ in range(5000):
        outbox.put(b"ab\n")
    outbox.flush()
    assert outbox.pending_bytes == 0 and drained(pipe[0]) == b"ab\n" * 5000


def test_an_outbox_without_a_reader_is_broken_and_empty(pipe):
    outbox = Outbox(pipe[1])
    os.close(pipe[0])
    outbox.put(b"x" * 100)
    assert outbox.flush() is False and outbox.broken and outbox.pending_bytes == 0
    outbox.put(b"y" * 100)
    assert outbox.pending_bytes == 0 and outbox.flush() is False


def test_a_dropped_outbox_goes_on_with_whole_pieces(pipe):
    outbox = Outbox(pipe[1])
    outbox.put(b"x" * 300000)
    outbox.flush()
    outbox.drop()
    assert outbox.pending_bytes == 0
    drained(pipe[0])
    outbox.put(b"next\n")
    outbox.flush()
    assert drained(pipe[0]) == b"next\n"


def test_a_large_piece_costs_its_own_size_only(pipe):
    """Design 3: a 64 MiB line is not copied on its way."""
    size = 16 << 20
    outbox, piece, got = Outbox(pipe[1]), bytearray(size), 0
    tracemalloc.start()
    outbox.put(piece)
    while outbox.pending_bytes:
        outbox.flush()
        got += len(drained(pipe[0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    got += len(drained(pipe[0]))
    assert got == size and peak < size // 4


# ------------------------------------------------------------------------------------- stderr sink

def test_a_sink_writes_at_once_where_it_can(loop, pipe):
    set_nonblocking(pipe[1], False)
    sink = StderrSink(loop, pipe[1])
    sink.put(b"a")
    sink.put(b"b" * 10000)
    assert drained(pipe[0]) == b"a" + b"b" * 10000


def test_a_sink_is_bounded_and_tells_what_was_left_out(loop, pipe):
    """Design 5: never waited for; beyond 64 KiB it is dropped, and said so."""
    set_nonblocking(pipe[1], False)
    sink, sent = StderrSink(loop, pipe[1]), 0
    before = time.monotonic()
    for number in range(400):
        sink.put(b"%07d\n" % number * 128)
        sent += 1024
    assert time.monotonic() - before < 1.0
    got = b""

    def told():
        nonlocal got
        got += drained(pipe[0])
        return b"left out" in got and not one_turn(loop)
    turns(loop, told)
    text, _, rest = got.partition(b"\nmcp-lazy: ")
    left_out = int(rest.split()[0])
    assert len(text) + left_out == sent and text == b"".join(b"%07d\n" % number * 128 for number in range(400))[:len(text)]
    assert 65536 <= len(text) <= 65536 + (1 << 17)
    sink.put(b"again\n")
    assert drained(pipe[0]) == b"again\n"


def test_a16_1_a_line_of_ours_begins_on_a_line_of_its_own(loop, pipe):
    """The server's bytes stay as they came; only in front of a line of ours is one that it did not end ended."""
    set_nonblocking(pipe[1], False)
    sink = StderrSink(loop, pipe[1])
    ways = {"put": sink, "say": OwnLines(sink)}
    for whose, text, seen in (("say", b"first\n", b"first\n"), ("say", b"ours\n", b"ours\n"), ("put", b"half", b"half"), ("put", b"", b""),
                              ("say", b"ours\n", b"\nours\n"), ("put", b"a whole\n", b"a whole\n"), ("say", b"ours\n", b"ours\n"),
                              ("put", b"half", b"half"), ("put", b" a line\n", b" a line\n"), ("say", b"", b""), ("put", b"x", b"x"),
                              ("say", b"", b"\n"), ("say", b"", b"")):
        ways[whose].put(text)
        assert drained(pipe[0]) == seen, (whose, text)


def test_a16_1_a_line_of_ours_behind_what_a_slow_reader_did_not_get(loop, pipe):
    """Both what was cut and the note about it are over when the next line of ours begins."""
    set_nonblocking(pipe[1], False)
    sink, got = StderrSink(loop, pipe[1]), b""
    sink.put(b"#" * 1000000)
    OwnLines(sink).put(b"amid\n")

    def told():
        nonlocal got
        got += drained(pipe[0])
        return b"left out here" in got and not one_turn(loop)
    turns(loop, told)
    OwnLines(sink).put(b"ours\n")
    got += drained(pipe[0])
    lines = [one for one in got.split(b"\n") if one.strip(b"#")]
    assert lines[0].startswith(b"mcp-lazy: ") and lines[-1] == b"ours" and set(lines[1:-1]) <= {b"amid"}, lines


def one_turn(loop):
    """A turn that does not wait, for what is ready now."""
    loop.set_timer("now", 0.0, lambda: None)
    loop.turn()


def test_a_sink_without_a_reader_is_no_error(loop, pipe):
    sink = StderrSink(loop, pipe[1])
    os.close(pipe[0])
    for _ in range(3):
        sink.put(b"x" * 100000)
    one_turn(loop)


def test_a_sink_takes_one_large_text(loop, pipe):
    set_nonblocking(pipe[1], False)
    sink, got = StderrSink(loop, pipe[1]), b""
    sink.put(b"#" * 1000000)

    def told():
        nonlocal got
        got += drained(pipe[0])
        return b"left out here" in got
    turns(loop, told)
    assert got.startswith(b"#" * 60000) and got.count(b"#") <= 65536


# ------------------------------------------------------------------------------- futures and tasks

def test_a_future_is_done_once():
    future, called = Future(), []
    future.when_done(lambda: called.append("before"))
    assert not future.done and called == []
    future.set(5)
    future.set(6)
    future.fail(ValueError())
    future.when_done(lambda: called.append("behind"))
    assert (future.done, future.value, future.error, called) == (True, 5, None, ["before", "behind"])


def test_the_result_of_a_task_and_its_error(loop):
    tasks = Tasks(loop)

    async def add(a, b):
        await tasks.sleep(0)
        return a + b

    async def broken():
        await tasks.sleep(0)
        raise KeyError("k")

    async def both():
        assert await tasks.start(add(1, 2)) == 3
        with pytest.raises(KeyError):
            await tasks.start(broken())
        task = tasks.start(add(3, 4))
        await tasks.sleep(SOON_S)
        return task.done, await task
    assert tasks.run(both()) == (True, 7)
    with pytest.raises(KeyError):
        tasks.run(broken())


def test_a_task_runs_from_the_loop_only_and_in_order(loop):
    tasks, seen, gate = Tasks(loop), [], Future()

    async def one(name):
        seen.append(name + " starts")
        await gate
        seen.append(name + " goes on")

    async def main():
        started = [tasks.start(one(name)) for name in "abc"]
        assert seen == [], "not inside another task's step"
        await tasks.sleep(SOON_S)
        assert seen == ["a starts", "b starts", "c starts"]
        gate.set()
        assert len(seen) == 3
        for task in started:
            await task
    tasks.run(main())
    assert seen[3:] == ["a goes on", "b goes on", "c goes on"]


def test_a_failed_future_raises_where_it_is_awaited(loop):
    tasks, future = Tasks(loop), Future()

    async def wait():
        try:
            await future
        except OSError as error:
            return str(error)

    async def main():
        task = tasks.start(wait())
        await tasks.sleep(0)
        future.fail(OSError("gone"))
        return await task, await tasks.start(wait())
    assert tasks.run(main()) == ("gone", "gone")


def test_sleeping_takes_its_time(loop):
    tasks, order = Tasks(loop), []

    async def sleeper(seconds):
        await tasks.sleep(seconds)
        order.append(seconds)

    async def main():
        for task in [tasks.start(sleeper(seconds)) for seconds in (0.03, 0.01, 0.02)]:
            await task
    before = time.monotonic()
    tasks.run(main())
    assert order == [0.01, 0.02, 0.03] and time.monotonic() - before >= 0.03


def test_cancelling_reaches_the_await_and_finally_runs(loop):
    tasks, seen = Tasks(loop), []

    async def waiter():
        try:
            await tasks.sleep(30)
        finally:
            seen.append("finally")

    async def main():
        task = tasks.start(waiter())
        await tasks.sleep(SOON_S)
        task.cancel()
        with pytest.raises(Cancelled):
            await task
        other = tasks.start(waiter())
        other.cancel(KeyError("why"))
        with pytest.raises(KeyError):
            await other
    tasks.run(main())
    assert seen == ["finally", "finally"]


def test_a_cancelled_task_may_go_on_and_old_wake_ups_do_not_hit_it(loop):
    tasks, first, second = Tasks(loop), Future(), Future()

    async def stubborn():
        try:
            await first
        except Cancelled:
            pass
        return await second

    async def main():
        task = tasks.start(stubborn())
        await tasks.sleep(SOON_S)
        task.cancel()
        await tasks.sleep(SOON_S)
        first.set("old")
        await tasks.sleep(SOON_S)
        assert not task.done, "it waits for the second future now"
        second.set("new")
        return await task
    assert tasks.run(main()) == "new"


def test_cancelling_what_is_done_does_nothing(loop):
    tasks = Tasks(loop)

    async def quick():
        return 1

    async def main():
        task = tasks.start(quick())
        await task
        task.cancel()
        await tasks.sleep(SOON_S)
        return await task
    assert tasks.run(main()) == 1


def test_a_deadline_raises_inside_and_outside(loop):
    tasks, seen = Tasks(loop), []

    async def slow():
        try:
            await tasks.sleep(30)
        except TimeoutError:
            seen.append("inside")
            raise

    async def main():
        before = time.monotonic()
        with pytest.raises(TimeoutError):
            await tasks.deadline(0.01, slow(), TimeoutError("late"))
        return time.monotonic() - before
    assert 0.01 <= tasks.run(main()) < 1.0
    assert seen == ["inside"]


def test_a_deadline_that_is_met_leaves_nothing_behind(loop):
    tasks = Tasks(loop)

    async def quick():
        await tasks.sleep(0)
        return "good"

    async def broken():
        raise KeyError()

    async def main():
        assert await tasks.deadline(30, quick(), TimeoutError()) == "good"
        with pytest.raises(KeyError):
            await tasks.deadline(30, broken(), TimeoutError())
    tasks.run(main())
    one_turn(loop)
    assert not loop.has_timers()


def test_cancelling_reaches_what_runs_under_a_deadline(loop):
    """Design 2: cancellation is delivered at the await, also where the awaited coroutine has a deadline of its own."""
    tasks, seen = Tasks(loop), []

    async def inner():
        try:
            await tasks.sleep(30)
        except Cancelled:
            seen.append("inner")
            raise

    async def main():
        task = tasks.start(tasks.deadline(20, inner(), TimeoutError()))
        await tasks.sleep(SOON_S)
        task.cancel()
        with pytest.raises(Cancelled):
            await task
        await tasks.sleep(SOON_S)
    tasks.run(main())
    assert seen == ["inner"]


# ----------------------------------------------------------------------------------------- signals

SIGNAL_PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import mcp_lazy, signal
loop, pipe, seen = mcp_lazy.Loop(), mcp_lazy.SignalPipe(), []
loop.watch(pipe.fd, lambda: seen.append(pipe.read()))
for number in range(100):
    signum = (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT)[number % 4]
    os.kill(os.getpid(), signum)   # arrives before the wait begins
    loop.turn()                    # no timer: a lost signal would wait for ever
    assert seen.pop() == {signum} and not seen, number
for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGCHLD):
    os.kill(os.getpid(), signum)
loop.turn()
assert seen == [{signal.SIGTERM, signal.SIGCHLD}], seen
for _ in range(70000):             # a storm of SIGCHLD fills the pipe and is no harm
    signal.raise_signal(signal.SIGCHLD)
loop.turn()
assert seen[-1] == {signal.SIGCHLD}
print("good")
"""


def test_case_042_a_signal_just_before_the_wait_wakes_it_a_hundred_times():
    done = subprocess.run([sys.executable, "-I", "-S", "-c", SIGNAL_PROGRAM, str(MODULE.parent)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=20)
    assert (done.returncode, done.stdout) == (0, b"good\n")


def test_case_032_signals_that_were_ignored_and_blocked_by_the_parent_arrive():
    """A8.8: an inherited SIG_IGN and mask are undone."""
    def inherit():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", SIGNAL_PROGRAM, str(MODULE.parent)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=20, preexec_fn=inherit)
    assert (done.returncode, done.stdout) == (0, b"good\n")


def test_signal_pipe_gives_nothing_where_nothing_came():
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)}
    pipe = SignalPipe()
    try:
        assert pipe.read() == set()
        os.kill(os.getpid(), signal.SIGHUP)
        assert pipe.read() == {signal.SIGHUP} and pipe.read() == set()
    finally:
        signal.set_wakeup_fd(-1)
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        os.close(pipe.fd)
