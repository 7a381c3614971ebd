"""The hub and what nobody should write: lines that cannot be read, broken pipes, answers that are none, odd moments.

Each of these once ended the hub, made it spin, or left a call or a process behind (H23, G9, G9.5, I33, case 195).
"""

import json
import os
import signal
import sys

import pytest

from harness import alive, until
from test_hub import config_file, entry, fake, start, start_at

MIB = 1 << 20
DEEP = 600
UNREADABLE = {"a large beginning of an array": "[" + "x" * (3 * MIB), "arrays in arrays": "[" * 2000 + "]" * 2000,
              "arrays in an array": "[[[]]]", "an array of what is none": '[1,"x",null,[]]', "half a line": '{"jsonrpc":"2.0"',
              "a number too long": '{"jsonrpc":"2.0","method":"x","params":{"n":%s1}}' % ("9" * 5000),
              "deep params": '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"x":%s%s}}'
                             % ("[" * 980, "]" * 980)}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=list(UNREADABLE))
class TestLines:
    def test_of_a_server(self, box, line):
        hub = start(box, [entry("a", fake(box))])
        hub.invoke("a", "raw", text=line + "\n")
        assert hub.invoke("a", "echo", x=1) == {"echo": {"x": 1}}

    def test_of_the_client(self, box, line):
        hub = start(box, [entry("a", fake(box))])
        hub.send(line.encode() + b"\n")
        ident = hub.request("ping")
        found = hub.until_message(lambda one: isinstance(one, dict) and one.get("id") == ident)
        assert found["result"] == {}


@pytest.fixture
def deep_reader():
    """The test itself has to read what the hub passes on."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20000)
    yield
    sys.setrecursionlimit(limit)


def deep_progress(depth, token):
    return '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%s","progress":1,"x":%s%s}}\n' % (
        token, "[" * depth, "]" * depth)


@pytest.mark.parametrize("depth", [100, 900, 960, 970, 975, 978, 979, 980, 985, 990, 995, 1500])
def test_progress_at_any_depth(box, depth, deep_reader):
    """What the first reader takes and the next one, some frames deeper, does not."""
    server = fake(box)
    hub = start(box, [entry("a", server)])
    ident = hub.start_invoke("a", "late", meta={"progressToken": "mine"})
    token = until(lambda: [one["params"]["_meta"]["progressToken"] for one in server.lines()
                           if one["method"] == "tools/call"], what="the token")[0]
    hub.invoke("a", "raw", text=deep_progress(depth, token))
    assert hub.invoke("a", "flush")["flushed"] and hub.result(ident)["late"] is True


@pytest.mark.parametrize("answer", ['"result":{"x":NaN}', '"result":{"x":1,}', '"result":', '"error":{"code":NaN}'])
def test_an_answer_of_the_client_that_nobody_can_read(box, answer):
    """The server is told, and its call goes on."""
    hub = start(box, [entry("a", fake(box))], capabilities={"elicitation": {}})
    ident = hub.start_invoke("a", "client", {"id": "q", "method": "elicitation/create"})
    asked = hub.until_message(lambda one: one.get("method") == "elicitation/create")
    hub.send(('{"jsonrpc":"2.0","id":%s,%s}\n' % (json.dumps(asked["id"]), answer)).encode())
    assert hub.ask("ping") == {}
    hub.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"again": 1}})  # it counts where the first was no message
    assert set(hub.result(ident)["answer"]) & {"error", "result"}


NO_ANSWERS = {"neither": "", "null error": ',"error":null', "error that is a number": ',"error":5', "error without code": ',"error":{}',
              "result that is no object": ',"result":5'}


@pytest.mark.parametrize("rest", NO_ANSWERS.values(), ids=list(NO_ANSWERS))
@pytest.mark.parametrize("modern", [True, False])
def test_forwarded_answers_that_are_none(box, rest, modern):
    """One error answer that is JSON-RPC, and names the server."""
    code = ('import sys, json\nfor line in sys.stdin:\n m = json.loads(line)\n'
            ' if m.get("method") == "initialize": r = \',"result":{"protocolVersion":"2025-06-18","capabilities":{"prompts":{}},'
            '"serverInfo":{"name":"s","version":"1"}}\'\n else: r = %r\n'
            ' if "id" in m: print(\'{"jsonrpc":"2.0","id":%%s%%s}\' %% (json.dumps(m["id"]), r), flush=True)' % rest)
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", code], forwardPrompts=True)], shaken=not modern)
    params = {"name": "a::p"}
    error = hub.error(hub.modern("prompts/get", params) if modern else hub.request("prompts/get", params))
    assert error["code"] == -32603 and error["message"].startswith("a answered prompts/get")


def test_one_bad_item_of_a_list(box):
    """It is left out, and the other servers' lists are there."""
    bad = ('import sys, json\nfor line in sys.stdin:\n m = json.loads(line)\n'
           ' r = {"prompts": [None, 7, {"name": "good"}]} if m.get("method") == "prompts/list" else {"protocolVersion":'
           ' "2025-06-18", "capabilities": {"prompts": {}}, "serverInfo": {"name": "s", "version": "1"}}\n'
           ' if "id" in m: print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)')
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", bad], forwardPrompts=True),
                      entry("b", fake(box, prompt_names=["p"]), forwardPrompts=True)])
    assert [one["name"] for one in hub.ask("prompts/list")["prompts"]] == ["a::good", "b::p"]


def test_a_secret_in_a_forwarded_error(box):
    """Case 195: the way of prompts tells no more than that of commands."""
    code = ('import sys, json, os\nfor line in sys.stdin:\n m = json.loads(line)\n'
            ' r = {"error": {"code": -1, "message": "bad key " + os.environ["K"], "data": [os.environ["K"]]}}\n'
            ' if m.get("method") == "initialize": r = {"result": {"protocolVersion": "2025-06-18", "capabilities": {},'
            ' "serverInfo": {"name": "s", "version": "1"}}}\n'
            ' if "id" in m: print(json.dumps(dict(r, jsonrpc="2.0", id=m["id"])), flush=True)')
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", code], forwardPrompts=True, env={"K": "SECRETabcdef12345"})])
    error = hub.error(hub.request("prompts/get", {"name": "a::p"}))
    assert error == {"code": -1, "message": "bad key ***", "data": ["***"]}


def test_a_handshake_refused_with_deep_data(box):
    """No call and no process is left behind, whatever goes wrong in a start."""
    data = {}
    for _ in range(DEEP):
        data = {"d": data}
    code = ('import sys, json\nfor line in sys.stdin:\n m = json.loads(line)\n d = "1"\n for _ in range(%d): d = "[%%s]" %% d\n'
            ' if "id" in m: print(\'{"jsonrpc":"2.0","id":%%s,"error":{"code":-1,"message":"no","data":%%s}}\' %%'
            ' (json.dumps(m["id"]), d), flush=True)' % DEEP)
    hub = start(box, [entry("a", ["python3", "-I", "-S", "-c", code])])
    for _ in range(2):
        assert "refused the handshake" in hub.failure("list_commands", server="a").text
    assert hub.row("a")["state"] == "failing" and hub.servers() == []


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_server_that_closes_its_input_while_bytes_wait(box):
    """The call ends soon, the server is replaced, and no time is burnt."""
    server = fake(box)
    hub = start(box, [entry("a", server, requestTimeout=6000)])
    first = hub.invoke("a", "pid")["pid"]
    before = cpu_s(hub.pid)
    hub.start_invoke("a", "deaf")
    text = hub.failed(hub.start_invoke("a", "echo", {"x": "y" * (2 * MIB)})).text
    assert "takes no more input" in text or "ended" in text
    until(lambda: not alive(first), what="the old server to be gone")
    assert hub.invoke("a", "pid")["pid"] != first and cpu_s(hub.pid) - before < 1.5


def test_a_server_that_takes_its_question_back(box):
    """The client is told, and later calls have their limit again."""
    hub = start(box, [entry("a", fake(box), requestTimeout=400)], capabilities={"elicitation": {}})
    hub.invoke("a", "echo")
    question = '{"jsonrpc":"2.0","id":"mine","method":"elicitation/create","params":{}}\n'
    back = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine"}}\n'
    hub.invoke("a", "raw", text=question)
    asked = hub.until_message(lambda one: one.get("method") == "elicitation/create")
    hub.invoke("a", "raw", text=back)
    told = hub.until_message(lambda one: one.get("method") == "notifications/cancelled")
    assert told["params"]["requestId"] == asked["id"]
    assert hub.invoke_fails("a", "hang").code == "SERVER_TIMEOUT"


def test_the_idle_stop_of_a_server_that_a_reload_changed(box):
    """Its timer is its own: the old one's last call does not take it away."""
    server = fake(box)
    path = config_file(box, [entry("a", server, idleStop=300)])
    hub = start_at(box, path)
    ident = hub.start_invoke("a", "sleep", {"s": 0.6})
    until(lambda: hub.row("a")["state"] == "live", what="the call")
    path.write_text(path.read_text().replace("the server a", "another text"))
    hub.signal(signal.SIGHUP)
    until(lambda: hub.row("a")["description"] == "another text", what="the reload")
    hub.invoke("a", "echo")
    hub.result(ident)
    hub.until_state("a", "asleep")
    until(lambda: hub.servers() == [], what="both to be gone")


def test_a_second_signal_within_the_last_two_seconds(box):
    """The open call has its error all the same."""
    hub = start(box, [entry("a", fake(box))])
    ident = hub.start_invoke("a", "late")
    until(lambda: hub.row("a")["state"] == "live", what="the call")
    hub.close()
    hub.signal(signal.SIGTERM)
    assert hub.error(ident)["code"] == -32603 and hub.wait() == 0


def test_the_calls_of_an_array_are_counted(box):
    """As many are open as of single lines; the rest is refused."""
    hub = start(box, [entry("a", fake(box), requestTimeout=60000)])
    hub.invoke("a", "echo")
    calls = [{"jsonrpc": "2.0", "id": "c%d" % n, "method": "tools/call", "params": {"name": "invoke_command", "arguments": {
        "server": "a", "command_name": "late"}}} for n in range(4500)]
    hub.send(json.dumps(calls).encode() + b"\n")
    until(lambda: hub.stderr().count("mcp_request") >= 4000, what="the array to be taken up")
    hub.signal(signal.SIGTERM)
    answers = hub.until_message(lambda one: isinstance(one, list))
    refused = [one for one in answers if "too many" in one["error"]["message"]]
    assert len(answers) == 4500 and 300 < len(refused) < 600


def test_recordings_that_a_reload_turns_on(box):
    """G2.6: from the next start of a server on; until then nothing is written anywhere."""
    server = fake(box)
    path = config_file(box, [entry("a", server, idleStop=100)], cache={"strategy": "none"})
    hub = start_at(box, path)
    hub.data("list_commands", server="a")
    path.write_text(path.read_text().replace('"none"', '"session"'))
    hub.signal(signal.SIGHUP)
    until(lambda: [one for one in hub.log() if one.get("event") == "config_reload_success"], what="the reload")
    hub.until_state("a", "asleep")
    hub.invoke("a", "echo")
    until(box.recordings, what="the recording")
    assert "nonexistent" not in hub.stderr()
