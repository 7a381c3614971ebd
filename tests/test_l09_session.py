"""L9: a client of one process, against the example server and against odd ones."""

import json
import os
import sys

import pytest

from harness import LINUX, MODULE, alive, children, group, is_guard, until
from mcp_lazy import Loop, PeerError, Processes, Session, SpawnError, Tasks

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
