"""L9: a client of one process, against the example server and against odd ones."""

import json
import os
import sys

import pytest

from harness import LINUX, MODULE, alive, children, group, is_guard, until
from mcp_lazy import (
    Entry, Findings, Future, Loop, ModernRequest, PeerError, Processes, Recording, Refused, Session, Silence, SpawnError, Tasks,
    entry_key, list_params, probe_keys, read_handshake, within)

EXAMPLE = [sys.executable, "-I", "-S", str(MODULE), "demo", "--server"]
HELLO = b'{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}'


class Late(Exception):
    """What a deadline of these tests raises."""


class Client:
    """A loop with its processes, to run one coroutine at a time."""

    def __init__(self):
        self.loop, self.processes = Loop(), Processes()
        self.tasks, self.sessions = Tasks(self.loop), []

    def open(self, argv):
        session = Session(self.loop, self.processes, argv)
        self.sessions.append(session)
        return session

    def run(self, coroutine, limit_s=5.0):
        return self.tasks.run(self.tasks.deadline(limit_s, coroutine, Late()))

    def close(self):
        for session in self.sessions:
            session.close()
        self.processes.wait_for_all(3.0)
        self.processes.close()
        self.loop.close()


@pytest.fixture
def client():
    before = set(children(os.getpid()))
    made = Client()
    yield made
    made.close()
    assert not [pid for pid in set(children(os.getpid())) - before if alive(pid)], "nothing is left running"


def script(text):
    return [sys.executable, "-I", "-S", "-u", "-c", "import sys, json, os\n" + text]


def test_a_whole_session_with_the_example_server(client):
    async def talk():
        session = client.open(EXAMPLE)
        hello = json.loads(await session.request("initialize", HELLO))
        session.notify("notifications/initialized")
        tools = json.loads(await session.request("tools/list"))
        answer = await session.request("tools/call", b'{"name":"add","arguments":{"a":20,"b":22}}')
        for method in ("ping", "prompts/list", "resources/list", "resources/templates/list"):
            assert isinstance(json.loads(await session.request(method)), dict)
        session.close_input()
        while not client.processes.collect():
            await client.tasks.sleep(0.002)
        return hello, tools, answer
    hello, tools, answer = client.run(talk())
    assert hello["protocolVersion"] == "2025-06-18" and set(hello["capabilities"]) >= {"tools", "prompts", "resources"}
    assert [tool["name"] for tool in tools["tools"]] == ["echo", "add", "wait"]
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools["tools"])
    assert answer == b'{"content":[{"type":"text","text":"42"}]}', "the raw result, as it came"


@pytest.mark.parametrize("asked, given", [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25")])
def test_the_example_server_speaks_the_version_it_knows(client, asked, given):
    async def talk():
        return json.loads(await client.open(EXAMPLE).request("initialize", HELLO.replace(b"2025-06-18", asked.encode())))
    assert client.run(talk())["protocolVersion"] == given


@pytest.mark.parametrize("method, params, code", [
    ("nope", b"{}", -32601), ("tools/call", b'{"name":"absent"}', -32602), ("tools/call", b"{}", -32602),
    ("tools/call", b'{"name":"add","arguments":{"a":1}}', -32602), ("tools/call", b'{"name":"add","arguments":{"a":1,"b":"x"}}', -32602), ("tools/call", b"[]", -32602)])
def test_an_error_answer_is_a_peer_error_and_the_session_goes_on(client, method, params, code):
    async def talk():
        session = client.open(EXAMPLE)
        with pytest.raises(PeerError) as caught:
            await session.request(method, params)
        assert await session.request("ping") == b"{}"
        return json.loads(str(caught.value))
    assert client.run(talk())["code"] == code


def test_answers_find_their_requests_in_any_order(client):
    backwards = script("lines = [json.loads(sys.stdin.readline()) for _ in range(5)]\n"
                       "for one in reversed(lines): print(json.dumps({'jsonrpc': '2.0', 'result': one['params'], 'id': one['id']}))\nsys.stdin.read()")

    async def talk():
        session = client.open(backwards)
        futures = [session.request("m", b'{"n":%d}' % number) for number in range(5)]
        return [json.loads(await future)["n"] for future in futures]
    assert client.run(talk()) == [0, 1, 2, 3, 4]


def test_requests_of_the_server_are_refused_and_notifications_are_kept(client):
    asking = script("json.loads(sys.stdin.readline())\n"
                    "print('{\"jsonrpc\":\"2.0\",\"id\":\"s-1\",\"method\":\"roots/list\"}')\n"
                    "print('{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}')\n"
                    "print('some noise')\n"
                    "answer = sys.stdin.readline().strip()\n"
                    "print('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}' % answer)\nsys.stdin.read()")

    async def talk():
        session = client.open(asking)
        answer = json.loads(await session.request("m"))
        return answer, session.heard
    answer, heard = client.run(talk())
    assert answer["id"] == "s-1" and answer["error"]["code"] == -32601 and "notifications/message" in heard


def test_an_answer_with_a_carriage_return_between_its_members_is_one_line(client):
    """A7.13: lines end at LF alone."""
    server = script("sys.stdin.readline()\nos.write(1, b'{\"jsonrpc\":\"2.0\",\\r\"id\":1,\\r\"result\":{\"a\":1}}\\r\\n')\nsys.stdin.read()")

    async def talk():
        return await client.open(server).request("m")
    assert client.run(talk(), 1.0) == b'{"a":1}'


def test_a_large_request_and_a_large_answer(client):
    echo = script("one = json.loads(sys.stdin.readline())\nprint(json.dumps({'jsonrpc': '2.0', 'id': one['id'], 'result': one['params']}))\nsys.stdin.read()")

    async def talk():
        return await client.open(echo).request("m", b'{"t":"%s"}' % (b"x" * 3000000))
    assert json.loads(client.run(talk())) == {"t": "x" * 3000000}


def test_a_process_that_ends_without_an_answer_is_a_peer_error(client):
    async def talk():
        session = client.open(script("sys.stdin.readline()\nsys.exit(3)"))
        futures = [session.request("a"), session.request("b")]
        for future in futures:
            with pytest.raises(PeerError):
                await future
    client.run(talk())


def test_a_request_to_a_process_that_is_gone_is_a_peer_error_too(client):
    async def talk():
        session = client.open(script("sys.exit(3)"))
        with pytest.raises(PeerError):
            await session.request("a")
        with pytest.raises(PeerError):
            await session.request("b")
    client.run(talk(), 1.0)


def test_a_long_answer_that_is_no_json_is_a_peer_error(client):
    """The ends of a long line look like an answer, its middle is garbage."""
    server = script("sys.stdin.readline()\nprint('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":' + 'x' * 3000 + '}}')\n")

    async def talk():
        with pytest.raises(PeerError):
            await client.open(server).request("m")
    client.run(talk(), 1.0)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_closing_kills_the_group_and_gives_the_descriptors_back(client):
    async def talk():
        session = client.open(script("import subprocess\nsubprocess.Popen(['sleep', '300'])\nsys.stdin.readline()\nprint('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}')\n"
                                     "import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: signal.pause()"))
        await session.request("m")
        return session
    session = client.run(talk())
    assert len(group(session.pid)) == 2
    session.close()
    until(lambda: client.processes.collect() and not group(session.pid), what="the end of the group")
    client.sessions.remove(session)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_sessions_give_all_descriptors_back(client):
    def count():
        return len(os.listdir("/proc/self/fd"))

    async def talk():
        session = Session(client.loop, client.processes, EXAMPLE)
        await session.request("ping")
        session.close()
        while not client.processes.collect():
            await client.tasks.sleep(0.002)
    client.run(talk())
    before = count()
    for _ in range(3):
        client.run(talk())
    assert count() == before


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_a_program_that_does_not_start_is_an_error_without_a_leak(client):
    def count():
        return len(os.listdir("/proc/self/fd"))
    with pytest.raises(SpawnError):
        Session(client.loop, client.processes, ["no-such-program-at-all"])
    before = count()
    for _ in range(3):
        with pytest.raises(SpawnError):
            Session(client.loop, client.processes, ["no-such-program-at-all"])
    assert count() == before
    assert [pid for pid in children(os.getpid()) if not is_guard(pid) and alive(pid)] == []


# ------------------------------------------------------------------------------------------- check

def test_an_error_answer_keeps_its_raw_text_and_its_code():
    refused = Refused(b'{"code":-32601,"message":"no","data":{"a":1.0}}')
    assert refused.raw == b'{"code":-32601,"message":"no","data":{"a":1.0}}' and refused.rpc_code == -32601
    for raw in (b"", b"7", b'{"message":"no"}', b'{"code":'):
        assert Refused(raw).rpc_code is None


def test_a_future_that_takes_too_long_is_silence(client):
    async def wait(future):
        return await within(client.tasks, 0.01, future)
    with pytest.raises(Silence):
        client.run(wait(Future()))
    done = Future()
    done.set(7)
    assert client.run(wait(done)) == 7


@pytest.mark.parametrize("meta, cursor, params", [
    (b"", None, b"{}"), (b"", b'"a/+="', b'{"cursor":"a/+="}'), (b'{"x":1.0}', None, b'{"_meta":{"x":1.0}}'),
    (b"{}", b'""', b'{"_meta":{},"cursor":""}')])
def test_b8_params_of_a_list_request(meta, cursor, params):
    assert list_params(meta, cursor) == params


GOOD = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "n", "version": ""}}


@pytest.mark.parametrize("change, words", [
    ({"protocolVersion": None}, "protocolVersion is missing or no text"), ({"capabilities": []}, "capabilities is missing or no object"),
    ({"serverInfo": "n"}, "serverInfo is missing or no object"), ({"serverInfo": {"name": "n"}}, "serverInfo.version is missing"),
    ({"serverInfo": {"name": 7, "version": "1"}}, "serverInfo.name is missing")])
def test_b10_what_a_handshake_lacks_is_named(change, words):
    assert read_handshake(json.dumps(GOOD).encode()) == GOOD
    with pytest.raises(PeerError, match=words):
        read_handshake(json.dumps(dict(GOOD, **change)).encode())


@pytest.mark.parametrize("raw", [b"[]", b"null", b"7", b'"x"', b"", b'{"a":'])
def test_b10_a_handshake_that_is_no_object(raw):
    with pytest.raises(PeerError, match="no object"):
        read_handshake(raw)


CLIENT = b'"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}'
PROBE = b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",%s}}' % CLIENT


def findings_of(recording):
    return Findings(recording, []), ModernRequest(PROBE)


def old_recording():
    """One that knows the server as modern, with a list, and another entry."""
    recording = Recording(["server"])
    for version in ("2026-07-28", "2027-01-01"):
        key = entry_key(version, {}, "", "modern")
        entry = recording.entries[key] = Entry(*key)
        Findings(recording, []).put(entry, "server/discover", False, [b'{"supportedVersions":["%s"]}' % version.encode()])
        Findings(recording, []).put(entry, "tools/list", False, [b'{"tools":[]}'])
    return recording


def test_b12_a_probe_that_succeeds_replaces_its_entry_as_a_whole_and_no_other():
    recording = old_recording()
    findings, asked = findings_of(recording)
    entry = findings.probe(asked, False, b'{"supportedVersions":[]}')
    assert list(entry.answers) == ["server/discover"] and entry.answers["server/discover"].pages == [b'{"supportedVersions":[]}']
    assert recording.entries[entry.key()] is entry and len(recording.entries) == 2
    assert (entry.key(), "*") in findings.dirty()
    (other,) = [one for one in recording.entries.values() if one is not entry]
    assert list(other.answers) == ["server/discover", "tools/list"]


def test_b7_b12_a_probe_that_is_not_found_is_kept_by_both_keys_and_empties_what_was_modern():
    recording = old_recording()
    findings, asked = findings_of(recording)
    assert findings.probe(asked, True, b'{"code":-32601,"message":"no"}') is None
    assert set(recording.before) == set(probe_keys(PROBE, ""))
    assert [list(entry.answers) for entry in recording.entries.values()] == [[], ["server/discover", "tools/list"]]
    assert findings.probe(asked, True, b'{"code":-32000,"message":"later"}') is None
    assert recording.before == {}, "a passing trouble clears them"


def test_a17_4_an_unsupported_version_is_kept_in_the_entry_as_an_error():
    findings, asked = findings_of(Recording(["server"]))
    entry = findings.probe(asked, True, b'{"code":-32022,"message":"no","data":{"supported":[]}}')
    _, tolerant = probe_keys(PROBE, "")
    assert entry.answers["server/discover"].is_error and tolerant not in findings.shelf.recording.before
