"""L8: what only the driver does: pressure, broken output, retried saves, the journal, the end of the flush."""

import fcntl
import json
import os
import re
import select
import signal
import stat
import sys
import time
from types import SimpleNamespace

import pytest

import mcp_lazy
from harness import INITIALIZED, LINUX, alive, encode, initialize, message, proc_stat, until
from mcp_lazy import Answer, Journal, Recording, Store, entry_key

pytestmark = pytest.mark.skipif(not LINUX, reason="reads /proc")
slow = pytest.mark.slow
MIB = 1024 * 1024


def high_water_kib(pid):
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1))


def held_bytes(pid):
    """What it has read and not written, from any descriptor and in all its life."""
    with open("/proc/%d/io" % pid) as file:
        found = dict(line.split(": ") for line in file.read().splitlines())
    return int(found["rchar"]) - int(found["wchar"])


def steady(value, spell_s=0.05):
    """The value, if it is the same a moment later."""
    before, end_s = value(), time.monotonic() + spell_s
    until(lambda: time.monotonic() > end_s)
    return before if value() == before else None


def live(box, fake, *options):
    relay = box.relay(fake, *options)
    relay.handshake()
    return relay, relay.call("pid")["pid"]


def fill(relay, stream):
    """Writes as long as the relay takes something; how many bytes it took."""
    view, written, poll = memoryview(stream), 0, select.poll()
    poll.register(relay.stdin, select.POLLOUT)
    while written < len(stream) and poll.poll(300):
        written += os.write(relay.stdin, view[written:written + MIB])
    return written


# --------------------------------------------------------------------------------------- pressure

def growth_while_nobody_reads(box):
    """KiB that a relay grew by while its client did not read 60 MB; what it holds and passes on is checked."""
    relay, pid = live(box, box.fake())
    before = high_water_kib(relay.pid)
    call = relay.start_call("notify", times=600, bytes=100000)
    until(lambda: high_water_kib(relay.pid) - before > 30 * 1024, what="a full output")
    held = until(lambda: steady(lambda: held_bytes(relay.pid)), what="the end of the reading")
    assert 31 * MIB < held < 34 * MIB, "32 MiB, what was under way, and its own start"
    assert relay.result(call)["content"], "the server went on when the client read"
    numbers = [found["params"]["n"] for found in relay.kept]
    assert numbers == list(range(600))
    return high_water_kib(relay.pid) - before


@slow
def test_a10_15_a_client_that_does_not_read_holds_the_server_and_loses_nothing(box):
    """The allocator keeps holes: on a loaded machine one run in eight has a high water of 44 to 54 MiB. Three in a row have not."""
    assert any(growth_while_nobody_reads(box) < 48 * 1024 for _ in range(3))


@slow
def test_a10_12_a_server_that_does_not_read_holds_the_client_and_loses_nothing(box):
    relay, pid = live(box, box.fake())
    before = high_water_kib(relay.pid)
    os.kill(pid, signal.SIGSTOP)
    stream = encode(message("tools/call", "x", {"name": "length", "arguments": {"s": "y" * 100000}})) * 160
    written = fill(relay, stream)
    assert 8 * MIB < written < 10 * MIB, "8 MiB, a read and two pipes"
    assert high_water_kib(relay.pid) - before < 20 * 1024
    os.kill(pid, signal.SIGCONT)
    relay.send(stream[written:])
    for _ in range(160):
        found = relay.read()
        assert (found["id"], found["result"]["length"]) == ("x", 100000)
    assert high_water_kib(relay.pid) - before < 20 * 1024
    relay.finish()


@slow
def test_a10_12_deadlines_and_signals_work_under_pressure_from_both_sides(box):
    """The server is stopped, the client does not read: TERM ends it all the same."""
    relay, pid = live(box, box.fake())
    relay.start_call("notify", times=100, bytes=10000)
    os.kill(pid, signal.SIGSTOP)
    fill(relay, encode(message("tools/call", 1, {"name": "length", "arguments": {"s": "y" * 100000}})) * 160)
    begun = time.monotonic()
    relay.signal(signal.SIGTERM)
    relay.signal(signal.SIGINT)
    assert relay.process.wait(5) == 0
    assert time.monotonic() - begun < 2.5 and not alive(pid)
    relay.eof = True


@slow
def test_a_long_line_costs_little_more_than_itself(box):
    relay, _ = live(box, box.fake())
    before = high_water_kib(relay.pid)
    size = 24 * MIB
    call = relay.start_call("size", n=size)
    line = relay.line()
    assert len(line) == size and json.loads(line)["id"] == call
    assert high_water_kib(relay.pid) - before < 2.5 * size / 1024, "design 3: 2.5 times the line at most"


# ---------------------------------------------------------------------------------- broken output

def test_a13_12_output_that_breaks_in_the_middle_of_a_line(box):
    relay, pid = live(box, box.fake())
    relay.start_call("size", n=4 * MIB)
    until(lambda: select.select([relay.stdout], [], [], 0)[0], what="the first piece")
    os.read(relay.stdout, 1000)
    relay.close_output()
    begun = time.monotonic()
    assert relay.process.wait(5) == 0
    assert time.monotonic() - begun < 2 and not alive(pid)


# --------------------------------------------------------------------------------- internal trouble

ODD = {
    "deep capabilities": b'{"jsonrpc":"2.0","id":"odd","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"a":%s},'
                         b'"clientInfo":{"name":"x","version":"1"}}}' % (b"[" * 900 + b"]" * 900),
    "an endless exponent in capabilities": b'{"jsonrpc":"2.0","id":"odd","method":"initialize","params":{"protocolVersion":"2025-06-18",'
                                           b'"capabilities":{"a":1e%s},"clientInfo":{"name":"x","version":"1"}}}' % (b"9" * 5000),
    "a batch with an id without end": b'[{"jsonrpc":"2.0","id":1e400,"method":"ping"},{"jsonrpc":"2.0","id":"odd","method":"ping"}]',
    "a batch with a deep item": b'[{"jsonrpc":"2.0","id":"odd","method":"ping","params":%s}]' % (b"[" * 950 + b"]" * 950),
    "a cancel of a deep id": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}' % (b"[" * 950 + b"]" * 950),
    "a cancel of an id without end": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e400}}',
    "a list with deep params": b'{"jsonrpc":"2.0","id":"odd","method":"tools/list","params":%s}' % (b"[" * 950 + b"]" * 950),
}


@pytest.mark.parametrize("when", ["asleep", "live"])
@pytest.mark.parametrize("name", ODD)
def test_json_of_odd_shapes_neither_ends_nor_breaks_the_session(box, name, when):
    """A7.15, A10.11: it goes to the server as it is; what comes behind it is served, and no error is ours."""
    fake = box.fake()
    relay = box.relay(fake)
    if when == "live":
        relay.handshake()
        relay.call("pid")
    relay.send(ODD[name] + b"\n")
    if when == "asleep" and "initialize" not in ODD[name].decode():
        relay.send(initialize("first"))
        assert "result" in relay.answer("first")
    relay.send(INITIALIZED)
    assert relay.call("echo", x=1) == {"echo": {"x": 1}}
    assert relay.exists() and "internal error" not in relay.stderr()
    assert not [found for found in relay.kept if "internal error" in json.dumps(found)]
    relay.finish()


def test_design_5_a_killed_guard_does_not_take_the_relay_with_it(box):
    """A client that kills what is below it one by one: the death of the server is an ordinary one."""
    relay, pid = live(box, box.fake())
    (guard,) = relay.guards()
    call = relay.start_call("hang")
    os.kill(guard, signal.SIGKILL)
    until(lambda: proc_stat(guard) is None, what="the reaping of the guard")
    os.kill(pid, signal.SIGKILL)
    assert "server exited" in relay.error(call)["message"]
    assert relay.call("echo", x=2) == {"echo": {"x": 2}} and len(relay.guards()) == 1
    relay.finish()


# -------------------------------------------------------------------------------------------- saves

def hold_lock(box):
    (path,) = list(box.cache.glob("*.lock"))
    fd = os.open(str(path), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def versions(box):
    return {entry["protocolVersion"] for entry in box.recording()["entries"]}


def test_a5_7_a_save_is_tried_again_until_the_lock_is_free(box):
    fake = box.fake()
    box.record(fake)
    fd = hold_lock(box)
    relay = box.relay(fake)
    relay.handshake(version="2024-11-05")
    relay.barrier()
    assert versions(box) == {"2025-06-18"}
    os.close(fd)
    until(lambda: versions(box) == {"2025-06-18", "2024-11-05"}, what="the second entry, while the relay runs")
    relay.ask("tools/list")
    relay.finish()
    assert all(entry["lists"] for entry in box.recording()["entries"])


def test_a5_7_a_save_that_waited_goes_with_the_end(box):
    """The lock is free again when the relay ends; nothing is lost though nothing came in between."""
    fake = box.fake()
    box.record(fake)
    fd = hold_lock(box)
    relay = box.relay(fake)
    relay.handshake(version="2024-11-05")
    relay.close()
    os.close(fd)
    assert relay.wait() == 0
    assert versions(box) == {"2025-06-18", "2024-11-05"}


@slow
def test_a5_5_a_lock_that_stays_taken_costs_one_line(box):
    fake, log = box.fake(), box.path / "log"
    box.record(fake)
    fd = hold_lock(box)
    relay = box.relay(fake, "--log-file", log)
    relay.handshake(version="2024-11-05")
    until(lambda: "cannot write recordings" in log.read_text(), 5.0, "the line about it")
    relay.ask("tools/list")
    relay.finish()
    os.close(fd)
    assert log.read_text().count("cannot write recordings") == 1 and str(box.cache) in log.read_text()
    assert versions(box) == {"2025-06-18"}


def entries_in(path):
    """{entry key: Entry} of a recording's file."""
    found = Recording([])
    assert found.read(path.read_bytes())
    return found.entries


def a_store(path):
    recording = Recording(["/bin/s"])
    key = entry_key("v", {}, "")
    entry = recording.entries[key] = mcp_lazy.Entry(*key)
    entry.answers["initialize"] = Answer(False, [b'{"serverInfo":{}}'], 5)
    lines = []
    store = Store(path and str(path), recording)
    store.attach(SimpleNamespace(line=lambda text, level=1: lines.append(text), warn=lines.append))
    return store, key, lines


def test_a5_5_a_store_writes_a_private_file_in_a_private_folder(tmp_path):
    store, key, lines = a_store(tmp_path / "a" / "b" / "x.json")
    assert store.save({(key, "*")}, 10.0) is True and lines == []
    assert set(entries_in(tmp_path / "a" / "b" / "x.json")) == {key}
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / "x.json").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["x.json", "x.lock"]
    before = (tmp_path / "a" / "b" / "x.json").stat().st_ino
    assert store.save(set(), 11.0) is True
    assert (tmp_path / "a" / "b" / "x.json").stat().st_ino == before, "nothing new, nothing written"


def test_a5_7_a_store_collects_what_is_dirty_until_it_has_the_lock(tmp_path):
    store, key, lines = a_store(tmp_path / "x.json")
    os.chmod(tmp_path, 0o700)
    fd = os.open(str(tmp_path / "x.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert store.save({(key, "initialize")}, 10.0) is False
    store.recording.entries[key].answers["tools/list"] = Answer(False, [b'{"tools":[]}'], 6)
    assert store.save({(key, "tools/list")}, 11.0) is False and not (tmp_path / "x.json").exists()
    os.close(fd)
    assert store.save(set(), 11.9) is True and lines == []
    found = entries_in(tmp_path / "x.json")[key]
    assert found.lists() == ["tools/list"] and found.answers["tools/list"].pages == [b'{"tools":[]}']


def test_a4_3_a_store_that_may_not_write_says_so_once(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o777)
    store, key, lines = a_store(tmp_path / "d" / "x.json")
    assert store.save({(key, "*")}, 1.0) is True and store.save({(key, "*")}, 2.0) is True
    assert len(lines) == 1 and str(tmp_path / "d") in lines[0] and os.listdir(tmp_path / "d") == []
    store, key, lines = a_store(None)
    assert store.save({(key, "*")}, 1.0) is True and lines == []


def test_a9_2_an_empty_list_asked_for_twice_in_one_start_is_no_second_start(box):
    fake = box.fake(tools=2)
    relay = box.warm(fake)
    fake.set(tools=0)
    relay.call("pid")
    assert relay.ask("tools/list")["tools"] == []
    assert relay.ask("tools/list")["tools"] == []
    relay.finish()
    (entry,) = box.recording()["entries"]
    assert len(entry["lists"]["tools/list"]["pages"][0]["tools"]) == 2, "one start said so, however often"
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2 and relay.asleep()
    relay.call("pid")
    relay.finish()
    (entry,) = box.recording()["entries"]
    assert entry["lists"]["tools/list"]["pages"][0]["tools"] == [], "the second start confirms it"


# ----------------------------------------------------------------------------------------- journal

class Sink:
    """Takes what would go to stderr."""

    def __init__(self):
        self.sent = b""

    def put(self, raw):
        self.sent += raw


def test_a16_1_off_unless_asked_for(tmp_path):
    Journal(None, "text", 1, Sink(), False).line("x")
    assert os.listdir(tmp_path) == []


FORMS = {"text": rb"mcp-lazy\[%d\] \d\d:\d\d:\d\d\.\d{3} a  b\n", "dsh": rb"\[lazy-mcp \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z pid=%d\] a  b\n",
         "json": rb'\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","pid":%d,"text":"a  b"\}\n'}


@pytest.mark.parametrize("form", FORMS)
def test_a16_2_f9_forms_of_a_line(tmp_path, form):
    Journal(str(tmp_path / "log"), form, 1, Sink(), False).line("a\n\x1bb")
    assert re.fullmatch(FORMS[form] % os.getpid(), (tmp_path / "log").read_bytes())
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_case_201_a_log_that_cannot_be_written_costs_one_warning(tmp_path):
    (tmp_path / "log").mkdir()
    sink = Sink()
    made = Journal(str(tmp_path / "log"), "text", 1, sink, False)
    made.line("one")
    made.line("two")
    assert sink.sent.count(b"\n") == 1 and str(tmp_path / "log").encode() in sink.sent


def test_a16_1_to_stderr_and_the_file_by_level(tmp_path):
    sink = Sink()
    both = Journal(str(tmp_path / "log"), "text", 2, sink, True)
    both.line("seldom", 2)
    both.line("always")
    assert sink.sent == (tmp_path / "log").read_bytes() and b"seldom" in sink.sent and b"always" in sink.sent
    Journal(str(tmp_path / "other"), "text", 1, Sink(), False).line("seldom", 2)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("style", FORMS)
def test_a16_1_texts_of_any_kind_are_one_line_in_each_form(tmp_path, style):
    made = Journal(str(tmp_path / style), style, 1, Sink(), False)
    for text in ("\ud800", "\u2028\u00e9\U0001f600", "a\r\nb\0", "x" * 100000, '"\\'):
        made.line(text)
    lines = (tmp_path / style).read_bytes().split(b"\n")
    assert len(lines) == 6 and lines[5] == b""
    if style == "json":
        assert [json.loads(line)["text"] for line in lines[:2]] == ["?", "\u2028\u00e9\U0001f600"]


def test_f10_a_large_log_is_moved_aside_at_the_start(tmp_path):
    (tmp_path / "log").write_bytes(b"x" * (10 * MIB + 1))
    Journal(str(tmp_path / "log"), "text", 1, Sink(), False).line("new")
    assert (tmp_path / "log.1").stat().st_size == 10 * MIB + 1 and b"new" in (tmp_path / "log").read_bytes()

# ------------------------------------------------------------------------------ the end of the flush

def unread_answer(box, size=4 * MIB):
    """A relay that holds an answer which nobody reads, and its server."""
    fake = box.fake()
    relay, pid = live(box, fake)
    relay.start_call("size", n=size)
    relay.start_call("hang")
    fake.wait_method("tools/call", 3)  # it wrote all of the answer before it read this
    return relay, pid


@slow
def test_a13_5_a_client_that_reads_nothing_does_not_hold_up_the_end_after_a_signal(box):
    relay, pid = unread_answer(box)
    begun = time.monotonic()
    relay.signal(signal.SIGTERM)
    assert relay.process.wait(5) == 0
    took = time.monotonic() - begun
    assert 0.9 < took < 2.5 and not alive(pid), "a second without progress"
    relay.close_output()


@slow
def test_a_client_that_reads_slowly_gets_everything(box):
    """Longer than the stall limit in all, but never so long without progress."""
    relay, pid = unread_answer(box)
    relay.signal(signal.SIGTERM)
    got, begun = b"", time.monotonic()
    while len(got) < 4 * MIB:
        piece = os.read(relay.stdout, 64 * 1024) if select.select([relay.stdout], [], [], 2.0)[0] else b""
        assert piece, "the relay left after %d bytes" % len(got)
        got += piece
        time.sleep(0.02)  # a slow reader, not a wait for something
    assert got[4 * MIB - 1:4 * MIB] == b"\n" and got[:4 * MIB].count(b"\n") == 1 and time.monotonic() - begun > 1.0
    assert relay.process.wait(5) == 0
    relay.eof = True


@slow
def test_a13_7_a_client_that_reads_nothing_after_its_end_of_input(box):
    relay, pid = unread_answer(box)
    begun = time.monotonic()
    relay.close()
    assert relay.process.wait(8) == 0
    assert 4.9 < time.monotonic() - begun < 7 and not alive(pid)
    relay.close_output()


# --------------------------------------------------------------------------------- the command's words

def test_design_6_what_of_a_command_is_kept_as_text(tmp_path):
    (tmp_path / "server.py").write_text("")
    (tmp_path / "data.db").write_text("")
    words = [sys.executable, str(tmp_path / "server.py"), "--token", "secret-value", str(tmp_path / "data.db")]
    raw, programs, shown = mcp_lazy.recorded_command(words)
    assert raw == [word.encode() for word in words]
    assert [index for index, *_ in programs] == [0, 1] and shown == words[:2]
    assert programs[1][1:3] == (str(tmp_path / "server.py"), 0)
    assert mcp_lazy.recorded_command(["no-such-program-anywhere", "x"])[1:] == ([], ["no-such-program-anywhere"])
