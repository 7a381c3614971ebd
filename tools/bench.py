#!/usr/bin/env python3
"""Measure the budgets of mcp-lazy, each beside its floor, interleaved in one run.

    tools/bench.py [--rows 1,4,6] [--quick] [--seconds 10] [--relay FILE] [--json] [--check]

A floor is the least that any Python relay must cost: a bare interpreter, a 20-line loop that only copies
bytes, or the server without a relay.  Every repetition measures floor and relay in turn, so the noise of
the machine hits both; the table shows medians.  --check exits 1 when a row is outside its "must".
Rows 2, 3 and 8 read /proc and are left out where there is none.

The file is also the programs that it measures with (all run with `-I -S`):
    bench.py --server              an MCP server that costs nearly nothing
    bench.py --copy-loop CMD...    the copy loop
"""
import os
import select
import sys

BLOCK_BYTES = 256 * 1024


# ---- the programs under the clock: nothing here may import more than the three modules above ----------

def copy_loop(command):
    """Run `command` and copy bytes both ways: what every relay does at least."""
    (child_in, to_child), (from_child, child_out) = os.pipe(), os.pipe()
    os.posix_spawnp(command[0], command, os.environ, file_actions=[
        (os.POSIX_SPAWN_DUP2, child_in, 0), (os.POSIX_SPAWN_DUP2, child_out, 1)])
    os.close(child_in)
    os.close(child_out)
    routes, pending = {0: to_child, from_child: 1}, {}      # pending: target -> what it did not take yet
    for target in routes.values():
        os.set_blocking(target, False)      # a blocked write to one side must not keep us from the other
    while from_child in routes:
        sources = [source for source, target in routes.items() if target not in pending]
        readable, writable, _ = select.select(sources, list(pending), [])
        for source in readable:
            data = os.read(source, BLOCK_BYTES)
            if data:
                pending[routes[source]] = memoryview(data)
                writable.append(routes[source])
            else:
                os.close(routes.pop(source))
        for target in writable:
            rest = pending.pop(target)
            try:
                rest = rest[os.write(target, rest):]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return
            if rest:
                pending[target] = rest


NOTES = {   # how the three common kinds of servers spell a notification of about 100 bytes
    "python": b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":%d}}\n',
    "spaced": b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 7, "progress": %d}}\n',
    "js": b'{"method":"notifications/progress","params":{"progressToken":7,"progress":%d},"jsonrpc":"2.0"}\n'}
TEXT = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"%b"}]}}\n'
HELLO = (b'{"jsonrpc":"2.0","id":%b,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":'
         b'{"listChanged":true}},"serverInfo":{"name":"bench","version":"1"}}}\n')
DISCOVERED = (b'{"jsonrpc":"2.0","id":%b,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":'
              b'{"tools":{"listChanged":true}},"ttlMs":60000,"cacheScope":"public"}}\n')
TOOL = (b'{"name":"tool_%d","description":"One of the tools of the server of the benchmark.","inputSchema":'
        b'{"type":"object","properties":{"text":{"type":"string","description":"The text."}}}}')
FILLER = b"A line of text, with \\\"quotes\\\" and an escape at its end.\\n"


def filler(size_bytes):
    """JSON string content of exactly `size_bytes` bytes."""
    return b"x" * (size_bytes % len(FILLER)) + FILLER * (size_bytes // len(FILLER))


def id_of(line):
    """The id of a message as it is spelt, looked for near both ends only; b"" when there is none."""
    for end in (line[:200], line[-200:]):
        _, found, rest = end.partition(b'"id":')
        if found:
            return rest.split(b",")[0].split(b"}")[0].strip()
    return b""


def send(data):
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest):]


def big_answer(id_bytes, size_bytes, made={}):
    """The answer to `big`, made once: building it is slower than writing it."""
    if (id_bytes, size_bytes) not in made:
        made[id_bytes, size_bytes] = TEXT % (id_bytes, filler(size_bytes))
    return made[id_bytes, size_bytes]


def parsed_answer(line):
    import json
    message = json.loads(line)
    text = message["params"]["arguments"]["text"]
    return (json.dumps({"jsonrpc": "2.0", "id": message["id"],
                        "result": {"content": [{"type": "text", "text": text}]}}) + "\n").encode()


def answer(line):
    """Answer one line.  Calls: `echo`, `parsed` (as the smallest real server: json in, json out), `big BYTES`,
    `flood COUNT SPELLING PER_WRITE`."""
    head, id_bytes = line[:300], id_of(line)
    if b"tools/call" in head:
        name, *words = head.partition(b'"name":"')[2].partition(b'"')[0].split()
        if name == b"parsed":
            send(parsed_answer(line))
            return
        if name == b"flood":
            count, per_write = int(words[0]), int(words[2])
            block = b"".join(NOTES[words[1].decode()] % (10000 + i) for i in range(per_write))
            for _ in range(count // per_write):
                send(block)
        send(big_answer(id_bytes, int(words[0])) if name == b"big" else TEXT % (id_bytes, b"ok"))
    elif b'"initialize"' in head:
        send(HELLO % id_bytes)
    elif b'"server/discover"' in head:
        send(DISCOVERED % id_bytes)
    elif b"tools/list" in head:
        tools = b",".join(TOOL % i for i in range(10))
        send(b'{"jsonrpc":"2.0","id":%b,"result":{"tools":[%b]}}\n' % (id_bytes, tools))
    elif id_bytes:
        send(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"no such method"}}\n' % id_bytes)


def server():
    """The server: one write for each answer, as real servers do."""
    parts = []      # of a long line: only what `answer` looks at, the first block and the last two
    while True:
        block = os.read(0, BLOCK_BYTES)
        if not block:
            return
        *lines, rest = block.split(b"\n")
        for line in lines:
            answer(b"".join(parts) + line)
            parts.clear()
        if rest:
            parts.append(rest)
            del parts[1:-2]


if __name__ == "__main__" and sys.argv[1:2] == ["--server"]:
    sys.exit(server())
if __name__ == "__main__" and sys.argv[1:2] == ["--copy-loop"]:
    sys.exit(copy_loop(sys.argv[2:]))


# ---- processes of the bench ---------------------------------------------------------------------------

import argparse
import contextlib
import json
import shutil
import signal
import tempfile
import time
from statistics import median

HERE = os.path.dirname(os.path.abspath(__file__))
END_OF_PROGRAMS = "\n# ---- processes of the bench"
MIB = 1024 * 1024
INITIALIZE = (b'{"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
              b'"clientInfo":{"name":"bench","version":"1"}},"jsonrpc":"2.0","id":0}\n')
ENVELOPE = (b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":'
            b'{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}')
DISCOVER = b'{"method":"server/discover","params":%b},"jsonrpc":"2.0","id":0}\n' % ENVELOPE
LISTEN = b'{"method":"subscriptions/listen","params":%b,"notifications":{"toolsListChanged":true}},"jsonrpc":"2.0","id":9}\n' % ENVELOPE
MODERN_LIST = b'{"method":"tools/list","params":%b},"jsonrpc":"2.0","id":1}\n' % ENVELOPE
INITIALIZED = b'{"method":"notifications/initialized","jsonrpc":"2.0"}\n'
LIST = b'{"method":"tools/list","jsonrpc":"2.0","id":1}\n'
HUB_CALL = (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"invoke_command","arguments":'
            b'{"server":"bench","command_name":"echo","parameters":{"text":""}}}}\n')
STEP_S = 60.0       # no single step takes a tenth of this, even on a loaded machine


def call_line(name, argument=b"", call_id=7):
    return (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":{"text":"%b"}}}\n'
            % (call_id, name, argument))


@contextlib.contextmanager
def deadline(seconds, what):
    """TimeoutError in whatever blocks longer than `seconds`."""
    def expired(signum, frame):
        raise TimeoutError("%s: no answer within %g s" % (what, seconds))
    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Process:
    """A child with pipes on fds 0 and 1.  `born_s` is the moment before it was spawned."""

    def __init__(self, bench, argv):
        (child_in, self.to_fd), (self.from_fd, child_out) = os.pipe(), os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, child_in, 0), (os.POSIX_SPAWN_DUP2, child_out, 1),
                   (os.POSIX_SPAWN_DUP2, bench.stderr_fd, 2)]
        self.pipes = [self.to_fd, self.from_fd]
        self.bench, self.argv, self.born_s = bench, argv, time.perf_counter()
        try:
            self.pid = os.posix_spawnp(argv[0], argv, bench.env, file_actions=actions,
                                       setsigdef=[signal.SIGPIPE])
        finally:
            os.close(child_in)
            os.close(child_out)
        bench.alive.append(self)

    def ask(self, data, lines=1):
        """Write a little, read until `lines` lines have come; all that was read."""
        with deadline(STEP_S, self.argv[0]):
            os.write(self.to_fd, data)
            return b"".join(self._read(lines, []))

    def _read(self, lines, blocks):
        while lines > 0:
            blocks.append(os.read(self.from_fd, BLOCK_BYTES))
            if not blocks[-1]:
                raise EOFError("%s ended in the middle" % self.argv[0])
            lines -= blocks[-1].count(b"\n")
        return blocks

    def exchange(self, data, lines=1):
        """(seconds, bytes read): write much, reading meanwhile, until `lines` lines have come."""
        rest, blocks = memoryview(data), []
        os.set_blocking(self.to_fd, False)
        with deadline(STEP_S, self.argv[0]):
            start_s = time.perf_counter()
            while rest:
                readable, writable, _ = select.select([self.from_fd], [self.to_fd], [])
                if writable:
                    rest = rest[os.write(self.to_fd, rest):]
                if readable:
                    blocks.append(os.read(self.from_fd, BLOCK_BYTES))
                    lines -= blocks[-1].count(b"\n")
            self._read(lines, blocks)
            spent_s = time.perf_counter() - start_s
        os.set_blocking(self.to_fd, True)
        return spent_s, b"".join(blocks)

    def greet(self):
        """Open a session as clients do: initialize, initialized, tools/list."""
        self.ask(INITIALIZE)
        self.ask(INITIALIZED + LIST)
        return self

    def greet_modern(self):
        """Open a session as clients of the 2026-07-28 revision do: discover, tools/list."""
        self.ask(DISCOVER)
        self.ask(MODERN_LIST)
        return self

    def wait(self, seconds):
        """True once the child has been reaped."""
        end_s = time.perf_counter() + seconds
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.perf_counter() > end_s:
                return False
            time.sleep(0.0005)
        return True

    def hang_up(self):
        while self.pipes:
            os.close(self.pipes.pop())

    def close(self):
        """End the child: its input closes, then TERM, then KILL.  A relay ends its own server."""
        self.hang_up()
        for signum in (signal.SIGTERM, signal.SIGKILL, None):
            if self.wait(3.0):
                break
            if signum:
                os.kill(self.pid, signum)
        self.bench.alive.remove(self)


class Bench:
    """Where the files are, how to start each thing, how often to repeat."""

    def __init__(self, options, work_dir):
        self.quick, self.seconds, self.work_dir = options.quick, options.seconds, work_dir
        self.relay_file = os.path.abspath(options.relay)
        # A python3 that is a shell script in front of an interpreter (pyenv) would hide every difference:
        # the interpreter behind it comes first in PATH, for floor and relay alike.
        self.python = os.path.realpath(sys.executable)
        bin_dir = os.path.join(work_dir, "bin")
        os.mkdir(bin_dir)
        os.symlink(self.python, os.path.join(bin_dir, "python3"))
        self.env = {"PATH": bin_dir + os.pathsep + os.environ.get("PATH", os.defpath), "HOME": work_dir,
                    "LANG": "C.UTF-8"}
        self.stderr_fd = os.open(os.path.join(work_dir, "stderr"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.alive, self.caches = [], 0
        self.bare = [os.path.join(bin_dir, "python3"), "-I", "-S"]
        programs = os.path.join(work_dir, "programs.py")    # the whole file would take 10 ms more to compile
        with open(__file__) as source, open(programs, "w") as file:
            file.write(source.read().partition(END_OF_PROGRAMS)[0])
        self.server_argv = self.bare + [programs, "--server"]
        self.copy_argv = self.bare + [programs, "--copy-loop"] + self.server_argv

    def times(self, full, quick):
        return range(quick if self.quick else full)

    def floor(self, code):
        return Process(self, self.bare + ["-c", code])

    def direct(self):
        return Process(self, self.server_argv)

    def copy(self):
        return Process(self, self.copy_argv)

    def relay(self, cold=False, options=()):
        """A relay: warm, that is with a recording made by an earlier session, or `cold`."""
        self.caches += cold
        cache = os.path.join(self.work_dir, "cold%d" % self.caches if cold else "warm")
        return Process(self, [self.relay_file, "--cache-dir", cache, *options, "--", *self.server_argv])

    def hub(self):
        """A hub with the server behind it; it says nothing of a good run."""
        path = os.path.join(self.work_dir, "servers.json")
        with open(path, "w") as file:
            json.dump({"servers": [{"name": "bench", "description": "The server", "command": self.server_argv}],
                       "logging": {"level": "error"}}, file)
        return Process(self, [self.relay_file, "hub", "--config", path, "--cache-dir", os.path.join(self.work_dir, "hub")])

    def warm_up(self):
        """In both eras twice: one compiles the bytecode and makes the recording, the other proves that it serves."""
        for greet in (Process.greet, Process.greet_modern) * 2:
            with self.closing(greet(self.relay())) as relay:
                served_asleep = not descendants(relay.pid)
        if not served_asleep and os.path.exists("/proc/self/task"):
            print("bench: the relay starts its server for recorded answers", file=sys.stderr)

    @contextlib.contextmanager
    def closing(self, *processes):
        try:
            yield processes[0] if len(processes) == 1 else processes
        finally:
            for process in processes:       # all hear of it before the first is waited for
                process.hang_up()
            for process in processes:
                process.close()

    def end_all(self):
        for process in list(self.alive):
            process.close()
        os.close(self.stderr_fd)


# ---- /proc --------------------------------------------------------------------------------------------

def proc_number(pid, name, field):
    """The number behind `field:` in /proc/PID/name."""
    with open("/proc/%d/%s" % (pid, name)) as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise LookupError("/proc/%d/%s has no %s" % (pid, name, field))


def descendants(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                for child in file.read().split():
                    found += [int(child)] + descendants(int(child))
    return found


def tree_sum(pid, name, field):
    return sum(proc_number(each, name, field) for each in [pid] + descendants(pid))


def switches(pid):
    """Voluntary context switches of all threads of `pid` and of its descendants."""
    return sum(proc_number(each, "task/%s/status" % task, "voluntary_ctxt_switches")
               for each in [pid] + descendants(pid) for task in os.listdir("/proc/%d/task" % each))


def await_true(condition, seconds, what):
    end_s = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > end_s:
            raise TimeoutError("%s did not happen within %g s" % (what, seconds))
        time.sleep(0.02)


# ---- rows ---------------------------------------------------------------------------------------------

class Row:
    """One line of the table.  `result` is compared: at most `must` and `aim`, or at least when `more`."""

    def __init__(self, what, unit, floor, relay, result, must=None, aim=None, more=False):
        self.what, self.unit, self.floor, self.relay = what, unit, floor, relay
        self.result, self.must, self.aim, self.more = result, must, aim, more

    @property
    def verdict(self):
        if self.must is None:
            return "-"
        reached = [self.result >= bound if self.more else self.result <= bound for bound in (self.aim, self.must)]
        return "aim" if reached[0] else "must" if reached[1] else "MISS"


def ratio(what, unit, floor, relay, must=None, aim=None, more=False):
    return Row(what, unit, floor, relay, relay / floor if floor > 0 else float("inf"), must, aim, more)


def excess(what, floor, relay, must, aim):
    """Lists of seconds -> milliseconds of the medians and how much the relay's is over the floor's."""
    floor_ms, relay_ms = median(floor) * 1000, median(relay) * 1000
    return Row(what, "ms", floor_ms, relay_ms, relay_ms - floor_ms, must, aim)


def row_start(bench):
    floors, relays, moderns, middle = [], [], [], []
    for _ in bench.times(60, 5):
        process = bench.floor("pass")
        with deadline(STEP_S, "bare interpreter"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        floors.append(time.perf_counter() - process.born_s)
        process.close()
        for line, found in ((INITIALIZE, relays), (DISCOVER, moderns)):
            process = bench.relay()
            process.ask(line)
            found.append(time.perf_counter() - process.born_s)
            process.close()
        process = bench.floor("import os; os.write(1, os.read(0, 65536))")
        process.ask(INITIALIZE)
        middle.append(time.perf_counter() - process.born_s)
        process.close()
    yield ratio("exec -> initialize answered, warm", "ms", median(floors) * 1000, median(relays) * 1000, 1.9, 1.4)
    yield ratio("exec -> server/discover answered, warm", "ms", median(floors) * 1000, median(moderns) * 1000, 1.9, 1.4)
    yield ratio("  floor: a loop of canned answers", "ms", median(floors) * 1000, median(middle) * 1000)


def row_memory(bench):
    def mean_pss(make):
        with bench.closing(*[make() for _ in bench.times(50, 3)]) as processes:
            await_true(lambda: all(asleep(process.pid) for process in processes), 10, "sleep of all")
            return sum(tree_sum(process.pid, "smaps_rollup", "Pss") for process in processes) / len(processes) / 1024

    def asleep(pid):
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] == "S"

    def idle():
        process = bench.floor("import os, sys; os.write(1, b'\\n'); sys.stdin.read()")
        process.ask(b"\n")
        return process
    def modern():
        process = bench.relay().greet_modern()
        process.ask(LISTEN)
        return process
    floor, relay = mean_pss(idle), mean_pss(lambda: bench.relay().greet())
    yield ratio("PSS of one of many sleeping relays", "MiB", floor, relay, 1.8, 1.4)
    yield ratio("  the same, 2026-07-28, with an open subscription", "MiB", floor, mean_pss(modern), 1.8, 1.4)


def row_switches(bench):
    def idle():
        return bench.floor("import sys; sys.stdin.read()")

    def stopped():
        process = bench.relay(options=["--idle-stop", "1s"]).greet()
        process.ask(call_line(b"echo"))
        await_true(lambda: len(descendants(process.pid)) < 2, 10, "idle stop")
        return process
    kinds = [idle(), bench.relay().greet(), stopped()]
    with bench.closing(*kinds):
        time.sleep(1.0)     # what follows an answer or a stop is not sleep yet
        before = [switches(process.pid) for process in kinds]
        time.sleep(bench.seconds)
        floor, fresh, again = (switches(process.pid) - count for process, count in zip(kinds, before))
    yield Row("voluntary switches in %g s asleep" % bench.seconds, "", floor, fresh, fresh, 0, 0)
    yield Row("  asleep again after an idle stop", "", floor, again, again, 0, 0)


def row_latency(bench):
    call = call_line(b"echo")
    with bench.closing(bench.direct(), bench.copy(), bench.relay(), bench.hub()) as kinds:
        spent, lines = [[] for _ in kinds], [call, call, call, HUB_CALL]
        for process, line in zip(kinds, lines):
            process.greet()
            process.ask(line)
        for block in bench.times(60, 6):
            for k in ((block + step) % len(kinds) for step in range(len(kinds))):
                for _ in range(50):
                    start_s = time.perf_counter()
                    kinds[k].ask(lines[k])
                    spent[k].append((time.perf_counter() - start_s) * 1e6)
    direct, copy, relay, hub = (median(times) for times in spent)
    yield ratio("added latency of a small call, p50 (direct %.0f us)" % direct, "us", copy - direct, relay - direct,
                2.0, 1.3)
    yield Row("  hub call: over the relay's added latency, p50", "us", relay - direct, hub - direct, hub - relay, 1500, 500)


def throughput(bench, data, lines, work, repetitions):
    """Medians of work per second through (direct, copy loop, relay), the servers live; the answers must agree."""
    with bench.closing(bench.direct(), bench.copy(), bench.relay()) as kinds:
        for process in kinds:
            process.greet()
            process.ask(call_line(b"echo"))
        rates = [[] for _ in kinds]
        for _ in repetitions:
            answers = []
            for rate, process in zip(rates, kinds):
                spent_s, got = process.exchange(data, lines)
                answers.append(got)
                rate.append(work / spent_s)
            if any(got != answers[0] for got in answers):
                raise ValueError("the answers differ: %s" % [len(got) for got in answers])
    return [median(rate) for rate in rates]


def row_big_lines(bench):
    size = (2 if bench.quick else 16) * MIB
    text = filler(size)
    js = (b'{"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}},"jsonrpc":"2.0","id":7}\n' % text)
    for what, data, verdict in (("client to server", call_line(b"echo", text), {"must": 0.6, "aim": 0.9}),
                                ("  the same, id at the end", js, {}),
                                ("server to client", call_line(b"big %d" % size), {"must": 0.6, "aim": 0.9})):
        direct, copy, relay = throughput(bench, data, 1, size / 1e6, bench.times(15, 2))
        yield ratio("%s, %d MiB lines (direct %.0f)" % (what, size / MIB, direct), "MB/s", copy, relay, more=True,
                    **verdict)


def row_notifications(bench):
    count = 10000 if bench.quick else 200000
    for spelling in NOTES:
        for per_write in (1, 100):
            verdict = {"must": 0.35, "aim": 0.6} if (spelling, per_write) == ("python", 1) else {}
            data = call_line(b"flood %d %s %d" % (count, spelling.encode(), per_write))
            direct, copy, relay = throughput(bench, data, count + 1, count / 1000, bench.times(7, 2))
            yield ratio("%snotifications, %s, %d a write (direct %.0f)"
                        % ("" if verdict else "  ", spelling, per_write, direct), "k/s", copy, relay, more=True, **verdict)


def row_burst(bench):
    """The verdict is on a server that parses JSON, as each real one must; one that does not is shown beside it."""
    for name, verdict in ((b"parsed", {"must": 0.7, "aim": 0.85}), (b"echo", {})):
        data = b"".join(call_line(name, b"", 1000 + i) for i in range(500))
        what = "500 calls at once" if verdict else "  the same, a server that parses nothing"
        direct, copy, relay = throughput(bench, data, 500, 500 / 1000, bench.times(40, 3))
        yield ratio("%s, live (copy loop %.0f)" % (what, copy), "k/s", direct, relay, more=True, **verdict)
        floors, relays = burst_asleep(bench, data)
        yield ratio("%s, asleep (floor: direct with its start)" % what, "k/s", 0.5 / floors, 0.5 / relays, more=True,
                    **verdict)


def burst_asleep(bench, data):
    """Median seconds of 500 calls to (a server that must be started first, a relay that sleeps)."""
    floors, relays = [], []
    for _ in bench.times(15, 2):
        with bench.closing(bench.direct()) as process:
            process.greet()
            _, expected = process.exchange(data, 500)
            floors.append(time.perf_counter() - process.born_s)
        with bench.closing(bench.relay().greet()) as process:
            spent_s, got = process.exchange(data, 500)
            relays.append(spent_s)
        if got != expected:
            raise ValueError("asleep: %d of 500 calls answered as they are directly" % got.count(b'"result"'))
    return median(floors), median(relays)


def row_big_memory(bench):
    size = (4 if bench.quick else 63) * MIB

    def peak(process, data):
        with open("/proc/%d/clear_refs" % process.pid, "w") as file:
            file.write("5")     # the high-water mark starts again from here
        before = proc_number(process.pid, "status", "VmRSS")
        process.exchange(data)
        return (proc_number(process.pid, "status", "VmHWM") - before) * 1024 / size
    for what, data in (("client to server", call_line(b"echo", filler(size))),
                       ("server to client", call_line(b"big %d" % size))):
        with bench.closing(bench.copy().greet(), bench.relay().greet()) as kinds:
            for process in kinds:
                process.ask(call_line(b"echo"))
            copy, relay = (peak(process, data) for process in kinds)
        yield Row("memory over line size, %d MiB %s" % (size / MIB, what), "x", copy, relay, relay, 2.5, 1.3)


def row_wake(bench):
    floors, relays = [], []
    for _ in bench.times(40, 3):
        with bench.closing(bench.direct()) as process:
            process.ask(INITIALIZE)
            process.ask(INITIALIZED + call_line(b"echo"))
            floors.append(time.perf_counter() - process.born_s)
        with bench.closing(bench.relay().greet()) as process:
            start_s = time.perf_counter()
            process.ask(call_line(b"echo"))
            relays.append(time.perf_counter() - start_s)
    yield excess("wake: over the server's own start", floors, relays, 15, 5)


def row_cold(bench):
    floors, relays = [], []
    for _ in bench.times(40, 3):
        for spent, process in ((floors, bench.direct()), (relays, bench.relay(cold=True))):
            with bench.closing(process):
                process.ask(INITIALIZE)
                spent.append(time.perf_counter() - process.born_s)
    yield excess("cold start over a direct connection", floors, relays, 60, 30)


ROWS = {1: row_start, 2: row_memory, 3: row_switches, 4: row_latency, 5: row_big_lines, 6: row_notifications,
        7: row_burst, 8: row_big_memory, 9: row_wake, 10: row_cold}
NEED_PROC = {2, 3, 8}


# ---- report -------------------------------------------------------------------------------------------

def number(value):
    return "%.0f" % value if abs(value) >= 1000 else "%.3g" % value


def print_row(key, row):
    bound = ">=" if row.more else "<="
    limits = [bound + number(limit) if limit is not None else "" for limit in (row.must, row.aim)]
    print("%2s  %-58s %8s %8s %-4s %7s  %-7s %-7s %s" % (
        key, row.what, number(row.floor), number(row.relay), row.unit, number(row.result), *limits, row.verdict),
        flush=True)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="rows to measure, such as 1,4,6")
    parser.add_argument("--quick", action="store_true", help="few repetitions, small sizes: for tests")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long row 3 watches (10)")
    parser.add_argument("--relay", default=os.path.join(HERE, os.pardir, "mcp_lazy.py"), help="the file to measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="exit 1 when a row is outside its must")
    options = parser.parse_args(argv)
    try:
        options.rows = [int(word) for word in options.rows.split(",")]
    except ValueError:
        parser.error("--rows is a list of numbers")
    if not set(options.rows) <= set(ROWS):
        parser.error("rows are 1 to %d" % max(ROWS))
    return options


def main(argv):
    options = parse(argv)
    work_dir = tempfile.mkdtemp(prefix="bench-")
    bench = Bench(options, work_dir)
    facts = {"python": "%s %s" % (sys.implementation.name, sys.version.split()[0]), "cpus": os.cpu_count(),
             "load": os.getloadavg()[0], "quick": options.quick, "rows": []}
    if not options.json:
        print("%(python)s, %(cpus)s CPUs, load %(load).2f" % facts)
        print("%2s  %-58s %8s %8s %-4s %7s  %-7s %-7s %s" % (
            "", "", "floor", "relay", "", "result", "must", "aim", "verdict"))
    try:
        bench.warm_up()
        for key in options.rows:
            if key in NEED_PROC and not os.path.exists("/proc/self/smaps_rollup"):
                continue
            for row in ROWS[key](bench):
                facts["rows"].append(dict(vars(row), row=key, verdict=row.verdict))
                if not options.json:
                    print_row(key, row)
    except (OSError, EOFError, ValueError) as error:
        print("bench: %s" % error, file=sys.stderr)
        os.lseek(bench.stderr_fd, 0, os.SEEK_SET)
        sys.stderr.write(os.read(bench.stderr_fd, 4000).decode(errors="replace"))
        return 2
    finally:
        bench.end_all()
        shutil.rmtree(work_dir, ignore_errors=True)
    if options.json:
        print(json.dumps(facts, indent=1))
    return int(options.check and any(row["verdict"] == "MISS" for row in facts["rows"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
