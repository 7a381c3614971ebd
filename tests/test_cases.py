"""The handed failure cases as they are: MCP_LAZY_CASES names the folder with their servers and client lines.

Our own tests of the same faults stand in the other files; here only what holds for every case of
kind relay is checked: each request gets exactly one answer, what reaches the client is JSON-RPC,
the relay ends with 0 and leaves nothing behind (the box checks that).
"""

import json
import os
import sys
from pathlib import Path

import pytest

from harness import VERSION, initialize

FOLDER = os.environ.get("MCP_LAZY_CASES", "")
# Left out: 012 (its cancel is a matter of cold or warm), 018, 022, 023 (seconds and minutes of waiting).
NUMBERS = ["001", "002", "004", "009", "010", "017", "020", "024", "029", "030", "031", "060"]
pytestmark = pytest.mark.slow


def folder():
    if not FOLDER or not Path(FOLDER).is_dir():
        pytest.skip("MCP_LAZY_CASES names no folder with the inputs of the cases")
    found = Path(FOLDER)
    return found / "inputs" if (found / "inputs").is_dir() else found


def session(box, server, lines):
    """The lines in order; at a pause (`#WAIT`), and at the end, all answers so far are waited for."""
    relay = box.relay([sys.executable, str(server)], "--restart-backoff=0")
    wanted, answered = [], []

    def settle():
        for ident in wanted[len(answered):]:
            answered.append(relay.answer(ident, timeout=10))
    for line in lines:
        if line.startswith("#WAIT"):
            if "roots/list" in line:
                relay.until_message(lambda one: one.get("method") == "roots/list")
            else:
                settle()
            continue
        found = json.loads(line)
        relay.send(found)
        if "method" in found and "id" in found:
            wanted.append(found["id"])
    settle()
    rest = relay.finish() + relay.kept
    assert [one for one in rest if "method" not in one] == [], "an answer too many"
    for one in answered + rest:
        assert one["jsonrpc"] == "2.0"
    return answered


@pytest.mark.parametrize("number", NUMBERS)
def test_each_request_of_a_case_gets_one_answer_cold_and_warm(box, number):
    inputs = folder()
    lines = [line for line in (inputs / (number + "-client.jsonl")).read_text("utf-8").split("\n") if line.strip()]
    server = inputs / (number + "-server.py")
    cold = session(box, server, lines)
    warm = session(box, server, lines)
    assert [one["id"] for one in cold] == [one["id"] for one in warm]
    assert cold[0] == warm[0], "the same handshake"


def test_case_051_with_the_handed_result(box):
    inputs = folder()
    raw = (inputs / "051-init-result.json").read_text("utf-8").strip()
    fake = box.fake(init_raw=raw)
    box.record(fake, lists=())
    relay = box.relay(fake)
    relay.send(initialize(7))
    assert relay.line() == b'{"jsonrpc":"2.0","id":7,"result":' + raw.encode() + b"}\n"
    assert fake.starts() == 1


@pytest.mark.parametrize("warm", [False, True])
def test_case_021_with_the_handed_lines(box, warm):
    data = (folder() / "021-client.txt").read_bytes()
    fake = box.fake()
    if warm:
        box.record(fake, version=VERSION)
    relay = box.relay(fake)
    relay.send(data if data.endswith(b"\n") else data + b"\n")
    assert relay.result(7) == {}
