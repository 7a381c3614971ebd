"""What once broke the relay, each fault as a whole kind: odd acknowledgements, refusals of what was recorded, late answers,
full files, nesting, secrets, clocks, relays in a row.  (A5, A6, A9, A10, A17, B)"""

import fcntl
import json
import os
import re
import shutil
import sys
import time

import pytest

import mcp_lazy as lazy
from harness import MODULE, until
from sim import (INITIALIZED, START_MS, SimServer, World, acknowledged, discovery, handshake, initialize, listen, modern,
                 modern_recording, notification, raw, recording, request, result, settings, tagged)
from test_check import both_eras, check, passes
from test_modern import ACK, CHANGED, MCP, MODERN, SERVER, SUBSCRIPTION, asked, call, meta, names
from test_modern import modern as modern_server

slow = pytest.mark.slow
HOUR_MS = 3600 * 1000
NEST = "[" * 900 + "]" * 900
SECRET = "s3cr3t-value-99"


# ------------------------------------------------------------------------------------------ helpers

def twisted(box, text, **flags):
    """tests/servers/modern.py with functions of its own in place of some."""
    fake, path = box.fake(**flags), box.path / "twisted.py"
    path.write_text("import os, sys\nsys.path.insert(0, %r)\nimport modern\n%s\nmodern.fake.main()\n" % (os.path.dirname(SERVER), text))
    fake.argv[fake.argv.index(box.server)] = str(path)
    return fake


def small_files(limit, *words):
    """The command of a relay whose recordings may take so many bytes."""
    text = "import sys; sys.path.insert(0, %r); import mcp_lazy; mcp_lazy.MAX_RECORDING_BYTES = %d; sys.exit(mcp_lazy.main())"
    return [sys.executable, "-I", "-S", "-c", text % (str(MODULE.parent), limit)] + list(words)


def start_of(capabilities):
    """The variable that makes a check a client with these capabilities, without any probe."""
    params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
    return {"MCP_LAZY_CHECK_INITIALIZE": json.dumps(params), "MCP_LAZY_CHECK_BEFORE": "[]"}


def probes(*all_params):
    return {"MCP_LAZY_CHECK_BEFORE": json.dumps([{"method": "server/discover", "params": params} for params in all_params])}


class TwoEras(SimServer):
    """Answers in both eras: `pages` of tools; a call changes the last one and says so on each stream."""
    pages, found = [["a"], ["old"]], discovery()

    def __init__(self):
        super().__init__()
        self.pages, self.streams = [list(page) for page in self.pages], []

    def got(self, one):
        message = json.loads(one)
        method, ident, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            self.say(result(ident, handshake(tools={"listChanged": True})))
        elif method == "server/discover":
            self.say(result(ident, self.found))
        elif method == "subscriptions/listen":
            self.streams.append(ident)
            self.say(acknowledged(ident, toolsListChanged=True))
        elif method == "tools/list":
            index = int(params.get("cursor") or 0)
            more = {"nextCursor": str(index + 1)} if index + 1 < len(self.pages) else {}
            self.say(result(ident, dict({"tools": [{"name": name} for name in self.pages[index]]}, **more)))
        elif method == "tools/call":
            self.pages[-1] = ["new"]
            self.say(b"".join([tagged(stream) for stream in self.streams] or [notification(CHANGED)]) + result(ident))


class Client:
    """One session of a client in a simulated world."""

    def __init__(self, era, world):
        self.era, self.world, self.last = era, world, 0

    def ask(self, method, **params):
        self.last += 1
        self.world.send(modern(self.last, method, **params) if self.era == "modern" else request(self.last, method, params))
        self.world.run(0.1)
        (answer,) = self.world.answers(self.last)
        return answer["result"]

    def begin(self):
        if self.era == "modern":
            self.ask("server/discover")
            return
        self.world.send(initialize("i"), INITIALIZED)
        self.world.run(0.1)

    def tools(self):
        """The names on all pages."""
        found = self.ask("tools/list")
        seen = names(found)
        while found.get("nextCursor"):
            found = self.ask("tools/list", cursor=found["nextCursor"])
            seen += names(found)
        return seen


# ------------------------------------------------------------------- acknowledgements and subscriptions (A17.8)

ACKNOWLEDGES = """
def before(real):
    def answer(message, *more):
        ident = message["id"]
        other = float(ident) if isinstance(ident, int) else 0.5
        for named in (ident, str(ident), other, "nobody", 4711, None, [ident], {}):
            modern.tagged(named, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
        if message["method"] == "tools/call" and message["params"]["name"] == "die":
            os._exit(3)
        real(message, *more)
    return answer
modern.call, modern.listing = before(modern.call), before(modern.listing)
"""


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a17_8_an_acknowledgement_takes_nothing_but_a_subscription(box, era):
    """Named are a call, a list, their ids as another type, ids of nobody, and what is no id: one answer to each request."""
    relay = box.relay(twisted(box, ACKNOWLEDGES))
    if era == "legacy":
        relay.handshake()
    params = meta() if era == "modern" else {}
    idents = []
    for method, more in (("tools/call", {"name": "echo"}), ("tools/list", {}), ("tools/call", {"name": "die"}),
                         ("tools/call", {"name": "echo"})):
        idents.append(relay.request(method, dict(params, **more)))
        found = relay.answer(idents[-1])
        assert ("error" if more.get("name") == "die" else "result") in found, found
    relay.finish()
    answered = [one["id"] for one in map(json.loads, relay.raw) if "method" not in one and one["id"] in idents]
    assert answered == idents


def test_a17_8_drift_is_told_on_each_of_many_streams():
    """Seventy streams are opened while it sleeps; the next start finds another list."""
    class Drifted(TwoEras):
        pages = [["a", "b"]]
    world = World(settings(), modern_recording({"tools/list": {"tools": [{"name": "a"}]}}), Drifted)
    client = Client("modern", world)
    assert client.tools() == ["a"]
    world.send(*[listen("s%d" % number) for number in range(70)])
    world.run(0.1)
    assert world.spawns == 0
    assert sum(one.get("method") == ACK for one in world.messages()) == 70
    before = len(world.client)
    world.send(modern("call", "tools/call", name="x"))
    world.run(0.5)
    told = [one["params"]["_meta"][SUBSCRIPTION] for one in world.messages()[before:] if one.get("method") == CHANGED]
    assert world.spawns == 1 and set(told) == {"s%d" % number for number in range(70)}


# --------------------------------------------------------------------- what was recorded and is no longer so (A17.4)

def test_a17_4_a_discovery_that_is_refused_later_is_forgotten_for_every_client(box):
    """Whatever the client that started the server: no text of a probe leads to the old success any more."""
    fake = modern_server(box)
    clients = [meta(name=name) for name in ("A", "B")]
    for params in clients:
        relay = box.relay(fake)
        assert "result" in asked(relay, "server/discover", None, params)
        relay.finish()
    fake.set(era="legacy")
    relay = box.relay(fake)
    heard = fake.methods().count("server/discover")
    assert "result" in asked(relay, "server/discover", None, clients[0]), "what is recorded is served before the start"
    call(relay, params=clients[0])
    fake.wait_method("server/discover", heard + 1)
    call(relay, params=clients[0])  # its answer comes behind the refusal
    relay.finish()
    for params in clients + [meta(name="C")]:
        relay = box.relay(fake)
        assert asked(relay, "server/discover", None, params)["error"]["code"] == -32601, params
        relay.finish()


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a9_8_a_later_page_that_changes_is_recorded_though_the_first_is_the_same(era):
    """The change is announced and the client reads all pages again: the next session has what this client has."""
    first = World(settings(), make_server=TwoEras)
    client = Client(era, first)
    client.begin()
    assert client.tools() == ["a", "old"]
    if era == "modern":
        first.send(listen("s"))
        first.run(0.1)
    client.ask("tools/call", name="x")
    assert client.tools() == ["a", "new"]
    first.run(5)
    second = World(settings(), first.relay.shelf.recording, TwoEras)
    client = Client(era, second)
    client.begin()
    assert client.tools() == ["a", "new"] and second.spawns == 0


def test_a5_10_a_clock_that_was_set_back_does_not_keep_an_old_discovery():
    """Recorded an hour in the future: what a start hears now is newer all the same."""
    class Renewed(TwoEras):
        found = dict(discovery(), instructions="new")
    recorded = modern_recording()
    shelf = lazy.Shelf(recorded, [])
    shelf.now_ms = START_MS + HOUR_MS
    shelf.learn_probe(lazy.read_modern(modern(1, "server/discover")), False, raw(discovery()))
    for told, spawns in ((None, 1), ("new", 0)):
        world = World(settings(), recorded, Renewed)
        client = Client("modern", world)
        assert client.ask("server/discover").get("instructions") == told
        if spawns:
            client.ask("tools/call", name="x")
        world.run(5)
        assert world.spawns == spawns


# ---------------------------------------------------------------------------- the size of a recording (A5.7, A5.8)

@slow
def test_a5_8_a_recording_that_is_full_loses_its_oldest_entries(box):
    """Ten clients of one server, room for about six: the newest is served, the oldest is gone, the file stays small."""
    fake = box.fake(tools=20)
    one = 20 * 60
    limit = 6 * one
    for number in range(10):
        status, _, err = box.run(argv=small_files(limit, "--check", "--", *fake.argv), env=box.env(**start_of({"x": number})))
        assert status == 0, err
        assert box.recordings()[0].stat().st_size <= limit
    kept = {entry["capabilities"] for entry in box.recording()["entries"]}
    digests = [lazy.entry_key("", {"x": number}, "")[2] for number in range(10)]
    assert digests[9] in kept and digests[8] in kept and digests[0] not in kept
    starts = fake.starts()
    relay = box.relay(fake, argv=small_files(limit, "--", *fake.argv))
    relay.handshake(capabilities={"x": 9})
    assert len(relay.ask("tools/list")["tools"]) == 20 and fake.starts() == starts
    relay.finish()


def test_a5_8_trim_goes_by_age_and_size(monkeypatch):
    recorded = lazy.Recording(["srv"])
    for number in range(10):
        for entry in recording({"tools/list": {"tools": [], "x": "y" * 1000}}, capabilities={"n": number},
                               at_ms=START_MS - number).entries.values():
            recorded.entries[entry.key()] = entry
    newest = sorted(recorded.entries.values(), key=lambda entry: -entry.recorded_at_ms())
    monkeypatch.setattr(lazy, "MAX_RECORDING_BYTES", len(lazy.write_recording(recorded)) * 6 // 10)
    recorded.trim()
    kept = list(recorded.entries.values())
    assert 4 <= len(kept) <= 6 and kept == newest[:len(kept)]
    assert len(lazy.write_recording(recorded)) <= lazy.MAX_RECORDING_BYTES


def test_a5_7_a_recording_that_cannot_be_written_says_so_once(box):
    """A file over its limit: one line of the relay, a failed check, no file."""
    fake, limit = both_eras(box), 200  # less than the names of its program files take
    relay = box.relay(fake, argv=small_files(limit, "--", *fake.argv))
    for name in ("one", "other"):
        asked(relay, "server/discover", None, meta(name=name))
    relay.finish()
    lines = [line for line in relay.stderr().splitlines() if "cannot write recordings" in line]
    assert len(lines) == 1 and "too large" in lines[0], relay.stderr()
    status, out, err = box.run(argv=small_files(limit, "--check", "--", *fake.argv))
    assert (status, out) == (1, b"") and "saving cache" in err and "too large" in err, err
    assert box.recordings() == []


@slow
def test_memory_a_session_keeps_no_more_than_twice_what_a_file_does():
    """A client that declares something else each time; answers of its own entries and of its probes."""
    shelf = lazy.Shelf(lazy.Recording(["srv"]), [])
    most_entries = most_probes = 0
    for number in range(600):
        shelf.now_ms = START_MS + number
        one = lazy.read_modern(modern(1, "server/discover", {MCP + "protocolVersion": MODERN, MCP + "clientCapabilities": {"n": number}}))
        shelf.learn_probe(one, False, raw(discovery()))
        shelf.learn(shelf.modern_entry(one), "tools/list", False, [b'{"tools":[]}'])
        refusal = lazy.read_modern(modern(1, "server/discover", n=number))
        shelf.learn_probe(refusal, True, raw({"code": -32601, "message": "no"}))
        most_entries = max(most_entries, len(shelf.recording.entries))
        most_probes = max(most_probes, len(shelf.recording.before))
    assert 64 <= most_entries <= 2 * 64 and 64 <= most_probes <= 2 * 64 + 1
    assert shelf.discovery(one) is not None, "the newest is there"


# -------------------------------------------------------------------------------------- nesting (A5.9, A17.3, B10)

@pytest.mark.parametrize("member", ["name", "version"])
def test_a5_9_a_client_info_nested_too_deeply_ends_nothing(box, member):
    fake = modern_server(box)
    relay = box.relay(fake, "--cache-scope", "client-version,client")
    params = json.dumps(meta()).replace('"%s": "%s"' % (member, "client" if member == "name" else "1"), '"%s": %s' % (member, NEST))
    assert NEST in params
    relay.send(b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":%s}\n' % params.encode())
    assert "result" in relay.answer(1)
    relay.finish()


def test_a17_3_versions_nested_too_deeply_end_nothing(box):
    """What a server calls its versions is asked when a client comes with one that is not among them."""
    fake = modern_server(box)
    fake.set(raw_result={"server/discover": json.dumps(discovery()).replace('["%s"]' % MODERN, '["%s", %s]' % (MODERN, NEST))})
    relay = box.relay(fake)
    relay.send(json.dumps({"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": meta()}).encode() + b"\n")
    until(lambda: relay.line(), what="the discovery")
    relay.finish()
    relay = box.relay(fake)
    assert asked(relay, "tools/list", None, meta("2027-01-01"))["error"]["code"] == -32022
    assert "result" in asked(relay, "tools/list")
    relay.finish()


def test_b10_capabilities_of_a_check_nested_too_deeply_are_no_error_of_ours(box):
    text = start_of({"a": 0})["MCP_LAZY_CHECK_INITIALIZE"].replace('{"a": 0}', '{"a": %s}' % NEST)
    status, out, err = box.run("--check", "--", *box.fake().argv, env=box.env(MCP_LAZY_CHECK_INITIALIZE=text))
    if status == 2:  # how deep is too deep is the interpreter's business: 3.13 goes deeper than 3.12
        assert out == b"" and "MCP_LAZY_CHECK_INITIALIZE" in err
    else:
        assert (status, err) == (0, "") and json.loads(out)["ok"] is True


# ------------------------------------------------------------------------------------- checks (B7, B12, B16, B17)

@slow
@pytest.mark.parametrize("text", ["5", "[]", '{"resultType":"input_required","inputRequests":{}}'])
def test_b17_a_late_answer_that_is_no_discovery_is_not_recorded(box, text):
    fake = both_eras(box, delay={"server/discover": 0.7}, raw_result={"server/discover": text})
    passes(box, fake, "--start-timeout", "1500ms")
    recorded = box.recording()
    assert recorded["before"] == {} and [entry["era"] for entry in recorded["entries"]] == ["legacy"]
    assert box.run("cache", "check")[0] == 0


@slow
def test_b17_a_probe_without_an_answer_is_not_recorded_as_refused(box):
    """The first of two probes is answered, the second one never."""
    fake = twisted(box, """
def silent(message, real=modern.discover):
    if "n" not in message["params"]["_meta"][modern.CAPS]:
        real(message)
modern.discover = silent
""")
    passes(box, fake, "--start-timeout", "1500ms", env=box.env(**probes(meta(), meta(caps={"n": 2}))))
    recorded = box.recording()
    assert len(recorded["before"]) <= 1 and not any("error" in stored for stored in recorded["before"].values())
    assert {entry["era"] for entry in recorded["entries"]} == {"modern", "legacy"}
    assert not any(entry.get("refused") for entry in recorded["entries"])


REFUSALS = {
    "-32603": {"refuse": {"initialize": {"code": -32603, "message": "2026-07-28 only"}}},
    "-32000": {"refuse": {"initialize": {"code": -32000, "message": "2026-07-28 only"}}},
    "-32602": {"refuse": {"initialize": {"code": -32602, "message": "2026-07-28 only"}}},
    "-32022": {"era": "modern"}, "silence": {"hang_at": ["initialize"]}, "exit": {"die_at": {"initialize": "exit1"}}}


@slow
@pytest.mark.parametrize("how", REFUSALS)
def test_b17_a_server_of_the_modern_era_alone_passes_however_it_refuses_the_other(box, how):
    """What was recorded of the other era goes only where the server says that it does not speak it."""
    fake = both_eras(box)
    timeout = "1500ms" if how == "silence" else "20s"
    assert passes(box, fake)["eras"] == ["modern", "legacy"]
    fake.set(**REFUSALS[how])
    assert passes(box, fake, "--start-timeout", timeout)["eras"] == ["modern"]
    eras = {entry["era"] for entry in box.recording()["entries"] if entry.get("initialize") is not None or entry["era"] == "modern"}
    assert eras == ({"modern"} if how in ("-32602", "-32022") else {"modern", "legacy"})


def test_b16_a_long_list_of_probes_is_read_in_no_time(box):
    """120 KB of parts, of which none is a whole: once this took a minute."""
    text = probes(dict(meta(), a=[1] * 58000))["MCP_LAZY_CHECK_BEFORE"].replace(", ", ",")
    assert 115000 < len(text) < 128000
    started = time.monotonic()
    status, _, err = check(box, both_eras(box), env=box.env(MCP_LAZY_CHECK_BEFORE=text), timeout=60)
    assert status in (0, 2) and time.monotonic() - started < 2, err


# ----------------------------------------------------------------------------------------------- secrets (A10.5)

def secret_env(box):
    return box.env(MY_API_KEY=SECRET)


@slow
@pytest.mark.parametrize("options", [(), ("--json-errors",), ("--verbose",)])
@pytest.mark.parametrize("flags", [
    {"say": "the key is %s\n" % SECRET, "die": "exit3"}, {"stderr": "the key is %s\n" % SECRET, "die": "exit3"},
    {"refuse": {"initialize": {"code": -1, "message": "bad key " + SECRET}}}, {"say": "the key is %s" % SECRET, "boot": 60}],
    ids=["noise", "stderr", "refusal", "half a line"])
def test_a10_5_a_check_that_fails_tells_no_secret(box, flags, options):
    fake, log = box.fake(), box.path / "log"
    fake.set(**flags)
    status, out, err = check(box, fake, "--log-file", str(log), "--start-timeout", "1s" if "boot" in flags else "20s",
                             *options, env=secret_env(box))
    assert status == 1 and (b'"error"' in out if options == ("--json-errors",) else "check failed" in err)
    assert SECRET.encode() not in out
    assert SECRET not in "".join(line for line in err.splitlines(True) if "mcp-lazy" in line)
    assert "***" in err + out.decode()
    assert not log.exists() or SECRET not in log.read_text()


def test_a10_5_a_session_tells_no_secret_of_a_server_that_refuses_or_is_noisy(box):
    """What the server says of its own accord and why it refuses: not to the client, not in a log."""
    fake, log = box.fake(), box.path / "log"
    box.record(fake)
    fake.set(say="the key is %s\n" % SECRET, refuse={"initialize": {"code": -1, "message": "bad key " + SECRET}})
    relay = box.relay(fake, "--verbose", "--log-file", str(log), env=secret_env(box))
    relay.handshake()
    error = relay.error(relay.start_call("echo"))
    relay.finish()
    assert "refused" in error["message"] and "***" in error["message"], error
    assert "***" in log.read_text() and "***" in relay.stderr()
    for text in (json.dumps(error), b"".join(relay.raw).decode(), log.read_text(), relay.stderr()):
        assert SECRET not in text


# ------------------------------------------------------------------------------------------ the files of the cache

def test_cache_what_a_killed_writer_left_is_no_recording(box):
    box.record(box.fake())
    path = box.recordings()[0]
    left = path.with_name(".tmp-" + path.name)
    shutil.copy(str(path), str(left))
    for words in (["list"], ["clear"]):
        status, out, _ = box.run("cache", *words, "--json")
        assert status == 0 and out.count(path.stem.encode()) >= 1 and b".tmp-" not in out, out
    assert not path.exists()


def test_cache_clear_leaves_a_recording_that_is_being_written(box):
    box.record(box.fake())
    path = box.recordings()[0]
    before, lock = path.read_bytes(), path.with_suffix(".lock")
    with open(str(lock), "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, out, _ = box.run("cache", "clear")
        assert status == 1 and b"being written" in out, out
        assert path.read_bytes() == before and lock.exists()
    assert box.run("cache", "clear")[0] == 0 and not path.exists()


@pytest.mark.parametrize("wanted, odd", [
    (rb'"(at|recordedAt|openedAt)":\d+', rb'"\1":' + b"9" * 400), (rb'"(at|recordedAt|openedAt)":\d+', rb'"\1":-5'),
    (rb'"(at|recordedAt|openedAt)":\d+', rb'"\1":1e999'), (rb'"files":\[\{"path":', b'"files":[{"path":[],"x":'),
    (rb'"files":\[.*?\]', b'"files":[5]'), (rb'"files":\[.*?\]', b'"files":5')],
    ids=["huge time", "negative time", "infinite time", "path", "no object", "no array"])
def test_cache_an_odd_recording_hides_no_other(box, wanted, odd):
    """list and show go on, check goes on and names it with exit status 1."""
    fakes = [box.fake(words=[word]) for word in ("good", "bad")]
    box.record(fakes[0])
    good = box.recordings()[0]
    box.record(fakes[1])
    (bad,) = [path for path in box.recordings() if path != good]
    text, count = re.subn(wanted, odd, bad.read_bytes())
    assert count
    bad.write_bytes(text)
    for words, ends in ((["list"], (0,)), (["show"], (0, 1)), (["check"], (1,))):
        status, out, err = box.run("cache", *words)
        assert status in ends and "Traceback" not in err, (words, status, err)
        for path in (good, bad):
            assert path.stem[:8] in out.decode() + err, (words, out, err)


# ---------------------------------------------------------------------------------------- a relay behind a relay

@slow
@pytest.mark.parametrize("outer", ["cold", "warm"])
@pytest.mark.parametrize("inner", ["cold", "warm"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a6_9_a_list_is_paged_through_two_relays(box, era, inner, outer):
    """Cursors of the inner relay look like those of the outer one."""
    fake = both_eras(box, page=1, tools=3)
    behind = box.command("--cache-dir", str(box.path / "inner"), "--", *fake.argv)

    def tools(words):
        relay = box.relay(words)
        params = meta() if era == "modern" else {}
        if era == "legacy":
            relay.handshake()
        found = [relay.ask("tools/list", params)]
        while found[-1].get("nextCursor"):
            found.append(relay.ask("tools/list", dict(params, cursor=found[-1]["nextCursor"])))
        relay.finish()
        return [name for page in found for name in names(page)]
    if outer == "warm":
        tools(behind)
    if inner == "cold":
        shutil.rmtree(str(box.path / "inner"), ignore_errors=True)
    elif outer == "cold":
        assert box.run("--check", "--cache-dir", str(box.path / "inner"), "--", *fake.argv)[0] == 0
    assert tools(behind) == ["tool0", "tool1", "tool2"]
    assert tools(behind) == ["tool0", "tool1", "tool2"], "once more, from what was recorded now"
