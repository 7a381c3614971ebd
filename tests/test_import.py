"""The one-time import of an older relay's recording (A5.11): key of A5.1, form of A5.4, what of it may be used (A6.5)."""

import hashlib
import json
import os
import shutil
import time

import pytest

from harness import VERSION, initialize, message

KEY = "io.modelcontextprotocol/"
PROBE = ('{"_meta":{"%sprotocolVersion":"2026-07-28","%sclientInfo":{"name":"c","version":"%%s"},"%sclientCapabilities":{}}}' % (KEY, KEY, KEY))
CALL = '{"name":"echo","arguments":{"x":1}}'
# Spellings that a decoder would not keep, in members that nobody knows.
HANDSHAKE = ('{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"0.1"},'
             '"n":[1.0,1E2,-0.0,12345678901234567890],"t":"\\u003c\\/<>&\u00fc"}')
TOOLS = '{"tools":[{"name":"old-tool","inputSchema":{"type":"object","maximum":1.0}}],"n":2.50}'


def old_key(words):
    """The older relay's file name for these words, in the working directory of the test run (A5.1)."""
    lines = ["schema=1"]
    for word in words:
        lines.append("arg=" + word)
        path = os.path.abspath(word)
        if os.path.isfile(path):
            stat = os.stat(path)
            lines.append("file=%s size=%d mtime=%d" % (path, stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()[:32]


def exact_key(method, params):
    return "%s:%s" % (method, hashlib.sha256(params.encode()).hexdigest()[:16])


def tolerant_key(params):
    found = json.loads(params)
    del found["_meta"][KEY + "clientInfo"]["version"]
    plain = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return "server/discover:unsupported:" + hashlib.sha256(plain.encode()).hexdigest()[:32]


def old_text(fake, handshake=HANDSHAKE, lists='"tools/list":' + TOOLS, before="", version=VERSION):
    """A file as the older relay wrote it: compact, one LF at its end."""
    return '{"schema":1,"command":%s,"entries":{"%s":{"initialize":%s,"lists":{%s}}}%s}\n' % (
        json.dumps(fake.argv, separators=(",", ":")), version, handshake, lists, ',"before":{%s}' % before if before else "")


def leave(box, fake, text=None, directory=None, **parts):
    """Puts the older relay's file into the cache directory; its path."""
    directory = directory or box.cache
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / (old_key(fake.argv) + ".json")
    path.write_bytes(text if isinstance(text, bytes) else (old_text(fake, **parts) if text is None else text).encode("utf-8"))
    path.chmod(0o600)
    return path


def raw_start_up(box, fake, **handshake):
    """The lines of a start-up as bytes: handshake and tools/list."""
    relay = box.relay(fake)
    relay.send(initialize(0, **handshake), message("notifications/initialized"), message("tools/list", 1))
    lines = sorted(relay.line() for _ in range(2))
    relay.finish()
    return lines


def cold(box, fake):
    """Asserts that a session's handshake needs the server."""
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake"
    assert fake.starts() == starts + 1
    relay.finish()


def discover(box, fake, params):
    """(answer, starts) of a probe in a session of its own."""
    starts = fake.starts()
    relay = box.relay(fake)
    relay.send(('{"jsonrpc":"2.0","id":"p","method":"server/discover","params":%s}\n' % params).encode())
    answer = relay.answer("p")
    relay.finish()
    return answer, fake.starts() - starts


# ------------------------------------------------------------------------------------- what is served

@pytest.mark.parametrize("capabilities", [{}, {"roots": {"listChanged": True}, "elicitation": {"form": {}}}])
def test_a5_11_handshake_and_lists_are_served_to_any_capabilities(box, capabilities):
    """A5.4, A5.11: byte for byte as they stand in the file, with the numbers' spelling; no start."""
    fake = box.fake()
    leave(box, fake)
    lines = raw_start_up(box, fake, capabilities=capabilities)
    assert lines == [b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (ident, text.encode("utf-8"))
                     for ident, text in ((0, HANDSHAKE), (1, TOOLS))]
    assert fake.starts() == 0


def test_a5_11_several_kinds_of_client_one_after_another(box):
    """The first session's import takes nothing away from a client of other capabilities."""
    fake = box.fake()
    leave(box, fake)
    for capabilities in ({}, {"roots": {}}, {"sampling": {}, "elicitation": {}}, {}):
        assert raw_start_up(box, fake, capabilities=capabilities)[0].endswith(HANDSHAKE.encode("utf-8") + b"}\n")
    assert fake.starts() == 0


def test_a5_11_each_protocol_version_of_the_file(box):
    fake = box.fake()
    text = old_text(fake)
    second = '"2024-11-05":{"initialize":%s,"lists":{}},' % HANDSHAKE.replace(VERSION, "2024-11-05")
    leave(box, fake, text.replace('"entries":{', '"entries":{' + second))
    for version in ("2024-11-05", VERSION):
        relay = box.relay(fake)
        assert relay.handshake(version=version)["protocolVersion"] == version
        relay.finish()
    assert fake.starts() == 0
    relay = box.relay(fake)
    relay.handshake(version="2025-11-25")
    assert fake.starts() == 1, "a version that is not in it"


def test_a5_11_all_four_lists(box):
    fake = box.fake()
    lists = {"tools/list": '{"tools":[]}', "prompts/list": '{"prompts":[{"name":"p"}]}', "resources/list": '{"resources":[]}',
             "resources/templates/list": '{"resourceTemplates":[]}'}
    leave(box, fake, lists=",".join('"%s":%s' % pair for pair in lists.items()))
    relay = box.relay(fake)
    relay.handshake()
    for method, text in lists.items():
        assert relay.ask(method) == json.loads(text)
    assert fake.starts() == 0


def test_a5_11_other_methods_among_the_lists_are_not_taken(box):
    """Only the four lists can be recorded (A17.3)."""
    fake = box.fake()
    leave(box, fake, lists='"tools/list":%s,"tools/call":{"content":[]},"completion/complete":{"completion":{}}' % TOOLS)
    relay = box.relay(fake)
    relay.handshake()
    assert relay.call("echo", x=5) == {"echo": {"x": 5}}
    assert fake.starts() == 1


def test_a5_11_a_modern_list_is_not_served_from_it(box):
    """What was recorded for the old protocol says nothing about the new one (A17.2)."""
    fake = box.fake()
    leave(box, fake)
    relay = box.relay(fake)
    relay.ask("tools/list", json.loads(PROBE % "1"))
    assert fake.starts() == 1


def test_a5_1_the_key_holds_size_and_time_of_every_file_among_the_words(box):
    """Unlike our own key: a data file that changed makes the older recording another one's."""
    data = box.path / "data.txt"
    data.write_text("1")
    fake = box.fake(words=[str(data), "plain", ""])
    leave(box, fake)
    raw_start_up(box, fake)
    assert fake.starts() == 0
    shutil.rmtree(str(box.cache))
    path = leave(box, fake)
    os.utime(str(data), ns=(5, 5))
    assert path.name != old_key(fake.argv) + ".json"
    cold(box, fake)


def test_a5_1_the_path_is_lexical_and_symlinks_are_followed_for_its_metadata(box):
    link = box.path / "link.txt"
    (box.path / "real.txt").write_text("12345")
    link.symlink_to(box.path / "real.txt")
    fake = box.fake(words=[str(link), str(box.path), "/nonexistent"])
    leave(box, fake)
    raw_start_up(box, fake)
    assert fake.starts() == 0


def test_a5_1_relative_words_are_taken_from_the_working_directory(box):
    (box.path / "rel.txt").write_text("1")
    fake = box.fake(words=["rel.txt"])
    here = os.getcwd()
    os.chdir(str(box.path))
    try:
        leave(box, fake)
        relay = box.relay(fake, cwd=str(box.path))
    finally:
        os.chdir(here)
    relay.handshake()
    assert fake.starts() == 0


# ------------------------------------------------------------------------------- what `before` may give

def test_a6_5_a_recorded_probe_is_answered(box):
    """server/discover: its success and its -32601, under the exact key."""
    fake = box.fake()
    found = '{"supportedVersions":["2026-07-28"],"capabilities":{},"n":1.0}'
    error = '{"code":-32601,"message":"not there"}'
    other = PROBE.replace("{}}}", '{"roots":{}}}}') % "1"
    leave(box, fake, before='"%s":{"result":%s},"%s":{"error":%s}' % (
        exact_key("server/discover", PROBE % "1"), found, exact_key("server/discover", other), error))
    answer, starts = discover(box, fake, PROBE % "1")
    assert answer["result"]["supportedVersions"] == ["2026-07-28"] and starts == 0
    answer, starts = discover(box, fake, other)
    assert answer["error"] == json.loads(error) and starts == 0
    answer, starts = discover(box, fake, PROBE % "2")
    assert starts == 1, "another text is another key"


def test_b7_the_tolerant_key_of_the_file_serves_other_versions_of_the_client(box):
    fake = box.fake()
    leave(box, fake, before='"%s":{"error":{"code":-32601,"message":"not there"}}' % tolerant_key(PROBE % "1"))
    answer, starts = discover(box, fake, PROBE % "7.7")
    assert answer["error"]["code"] == -32601 and starts == 0
    answer, starts = discover(box, fake, (PROBE % "7.7").replace('"name":"c"', '"name":"d"'))
    assert starts == 1


def test_b7_the_tolerant_key_never_gives_a_success(box):
    fake = box.fake()
    leave(box, fake, before='"%s":{"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}' % tolerant_key(PROBE % "1"))
    answer, starts = discover(box, fake, PROBE % "7.7")
    assert answer["error"]["code"] == -32601 and starts == 1, "the server's own answer"


@pytest.mark.parametrize("code", [-32000, -32603, -32602, 1])
def test_a6_5_other_errors_of_a_probe_are_not_taken(box, code):
    """A passing trouble of an earlier day must not be replayed for ever."""
    fake = box.fake()
    leave(box, fake, before='"%s":{"error":{"code":%d,"message":"busy"}}' % (exact_key("server/discover", PROBE % "1"), code))
    answer, starts = discover(box, fake, PROBE % "1")
    assert answer["error"]["code"] == -32601 and starts == 1, "the server's own answer"


@pytest.mark.parametrize("first", [False, True])
def test_a6_5_a_call_recorded_before_a_handshake_is_executed_each_time(box, first):
    """The older relay's fault; in the same words, with the same key, before and after a handshake."""
    fake = box.fake()
    leave(box, fake, before='"%s":{"result":{"echo":"RECORDED"}}' % exact_key("tools/call", CALL))
    for count in (1, 2):
        relay = box.relay(fake)
        if not first:
            relay.handshake()
        relay.send(('{"jsonrpc":"2.0","id":"c","method":"tools/call","params":%s}\n' % CALL).encode())
        assert relay.result("c") == {"echo": {"x": 1}}
        relay.finish()
        assert fake.starts() == count and fake.methods().count("tools/call") == count


@pytest.mark.parametrize("method, params", [("tools/list", "{}"), ("resources/read", '{"uri":"mem://r0"}'), ("ping2", "{}")])
def test_a6_5_nothing_else_of_before_is_served(box, method, params):
    fake = box.fake()
    leave(box, fake, lists="", before='"%s":{"result":{"tools":[],"from":"RECORDED"}}' % exact_key(method, params))
    relay = box.relay(fake)
    relay.send(('{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' % (method, params)).encode())
    assert "RECORDED" not in json.dumps(relay.answer(1))
    assert fake.starts() == 1


# ------------------------------------------------------------------------- damaged, foreign, dangerous

DAMAGED = {
    "empty": b"", "not JSON": b"{", "text": b"hello\n", "cut": None, "null": b"null\n", "array": b"[]\n", "not UTF-8": b'{"schema":1,"entries":{"\xff":{}}}\n',
    "no entries": b'{"schema":1,"command":[]}\n', "entries null": b'{"schema":1,"command":[],"entries":null}\n',
    "entries a list": b'{"schema":1,"command":[],"entries":[]}\n',
    "an entry of text": b'{"schema":1,"command":[],"entries":{"2025-06-18":"x"}}\n',
    "no handshake": b'{"schema":1,"command":[],"entries":{"2025-06-18":{"lists":{}}}}\n',
    "a handshake of text": b'{"schema":1,"command":[],"entries":{"2025-06-18":{"initialize":"x","lists":{}}}}\n',
    "lists null": b'{"schema":1,"command":[],"entries":{"2025-06-18":{"initialize":7,"lists":null}}}\n',
    "deep": b'{"schema":1,"entries":' + b'{"a":' * 20000 + b"1" + b"}" * 20000 + b"}\n",
    "zeros": b"\0" * 4096}
OTHER_SCHEMA = ["0", "3", '"1"', "1.5", "true", "null", "[1]"]


@pytest.mark.parametrize("name", DAMAGED)
def test_a5_6_a_damaged_file_counts_as_empty(box, name):
    """Never an error; the session runs cold, is recorded, and the next one is warm."""
    fake = box.fake()
    text = DAMAGED[name]
    if text is None:
        text = old_text(fake).encode("utf-8")[:-40]
    leave(box, fake, text)
    cold(box, fake)
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake" and fake.starts() == starts
    relay.finish()


@pytest.mark.parametrize("schema", OTHER_SCHEMA)
def test_a5_6_another_schema_counts_as_empty(box, schema):
    fake = box.fake()
    leave(box, fake, old_text(fake).replace('"schema":1', '"schema":%s' % schema))
    cold(box, fake)


@pytest.mark.parametrize("kind", ["device", "dangling", "fifo", "directory"])
def test_a5_6_anything_but_a_regular_file_counts_as_empty(box, kind):
    """Opening never blocks."""
    fake = box.fake()
    path = leave(box, fake)
    path.unlink()
    if kind in ("device", "dangling"):
        path.symlink_to("/dev/zero" if kind == "device" else "/nonexistent/x")
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(str(path))
    cold(box, fake)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file away")
def test_a5_6_another_users_file_counts_as_empty(box):
    fake = box.fake()
    os.chown(str(leave(box, fake)), 65534, 65534)
    cold(box, fake)


def test_a5_6_a_file_above_64_mib_counts_as_empty(box):
    fake = box.fake()
    path = leave(box, fake)
    with open(str(path), "r+b") as file:
        file.truncate((64 << 20) + 1)
    began = time.monotonic()
    cold(box, fake)
    assert time.monotonic() - began < 8


def test_a5_11_another_commands_file_is_not_taken(box):
    """The key is of the command: other words, another file."""
    one, two = box.fake(), box.fake(words=["more"])
    leave(box, one)
    cold(box, two)


# ------------------------------------------------------------------------------- ours, theirs, and when

def test_a5_11_a_live_answer_replaces_it(box):
    """The wake replays the handshake and reads the lists again; the client hears of the change, the next session gets the new ones."""
    fake = box.fake(tools=2)
    leave(box, fake)
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "old"
    assert relay.ask("tools/list")["tools"][0]["name"] == "old-tool"
    assert relay.call("pid")["calls"] == 1
    relay.until_message(lambda one: one.get("method") == "notifications/tools/list_changed")
    assert len(relay.ask("tools/list")["tools"]) == 2
    relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake"
    assert [tool["name"] for tool in relay.ask("tools/list")["tools"]] == ["tool0", "tool1"]
    assert fake.starts() == starts


def test_a5_11_our_own_file_wins(box):
    fake = box.fake(tools=2)
    box.record(fake)
    leave(box, fake)
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake" and len(relay.ask("tools/list")["tools"]) == 2
    assert fake.starts() == starts


def test_a5_11_a_check_replaces_it(box):
    fake = box.fake(tools=2)
    leave(box, fake)
    assert box.run("--check", "--", *fake.argv)[0] == 0
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake" and len(relay.ask("tools/list")["tools"]) == 2
    assert fake.starts() == starts


def test_a5_11_the_older_relays_file_stays_as_it_is(box):
    """It may still be in use by that relay."""
    fake = box.fake()
    path = leave(box, fake)
    before = path.read_bytes(), path.stat().st_mtime_ns
    for _ in range(2):
        relay = box.relay(fake)
        relay.handshake()
        relay.call("pid")
        relay.finish()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    ours = [one for one in box.recordings() if one != path]
    assert len(ours) == 1 and json.loads(ours[0].read_bytes())["schema"] == 2


def test_a5_11_it_is_imported_once(box):
    """After a session has written our file, a change of the older one has no effect."""
    fake = box.fake(tools=2)
    path = leave(box, fake)
    relay = box.relay(fake)
    relay.handshake()
    relay.call("pid")
    relay.finish()
    path.write_bytes(old_text(fake, handshake=HANDSHAKE.replace('"old"', '"older"')).encode("utf-8"))
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake"


def test_a5_11_it_is_looked_for_in_the_cache_directory_of_the_relay(box):
    fake = box.fake()
    other = box.path / "other"
    leave(box, fake, directory=other)
    relay = box.relay(fake, "--cache-dir", str(other))
    assert relay.handshake()["serverInfo"]["name"] == "old" and fake.starts() == 0
    relay.finish()
    cold(box, fake)


def test_a5_9_with_a_scope_it_is_not_served(box):
    """The older relay did not know for which client, directory or variable it recorded."""
    fake = box.fake()
    leave(box, fake)
    relay = box.relay(fake, "--cache-scope", "client")
    assert relay.handshake()["serverInfo"]["name"] == "fake" and fake.starts() == 1
