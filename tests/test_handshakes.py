"""Start-ups of real clients, line by line, against the relay with the built-in example server.

Needs the captured handshakes: MCP_LAZY_HANDSHAKES names the folder of their .jsonl files (the header
line of each scenario says client, mode and server; `c2s` lines are what the client wrote).
"""

import json
import os
import sys
from pathlib import Path

import pytest

from harness import MODULE, same_id

FOLDER = os.environ.get("MCP_LAZY_HANDSHAKES", "")
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
DEMO = [sys.executable, "-I", "-S", str(MODULE), "demo", "--server"]


def modern(line):
    """A17.1: carries the version in _meta, or is the probe itself."""
    params = line.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return line.get("method") == "server/discover" or (isinstance(meta, dict) and isinstance(meta.get(VERSION_KEY), str))


def follows_a_cursor(line):
    """A further page of another server's list; the example server never gave that cursor out."""
    params = line.get("params")
    return isinstance(params, dict) and params.get("cursor") is not None


def sessions():
    """(id, messages of one process, the server's own requests that it answered) for each captured start."""
    if not FOLDER or not Path(FOLDER).is_dir():
        return
    for path in sorted(Path(FOLDER).glob("*.jsonl")):
        head, runs, known = None, {}, set()
        for text in path.read_text("utf-8").strip("\n").split("\n") + ['{"ev":"scenario"}']:
            found = json.loads(text)
            if found["ev"] == "scenario":
                for number, messages in enumerate(runs.values()):
                    outline = json.dumps([(one.get("method"), (one.get("params") or {}).get("capabilities")) for one in messages
                                          if "method" in one and not follows_a_cursor(one)])
                    if messages and outline not in known:
                        known.add(outline)
                        yield "%s-%s-%s-%d" % (path.stem, head.get("mode"), head.get("server"), number), messages
                head, runs = found, {}
            elif found["ev"] == "c2s" and isinstance(found.get("msg"), dict):
                runs.setdefault(found.get("run"), []).append(found["msg"])


ALL = list(sessions())


def test_the_captured_handshakes_are_there():
    if not FOLDER:
        pytest.skip("MCP_LAZY_HANDSHAKES names no folder of captured handshakes")
    assert len({name.rsplit("-", 3)[0] for name, _ in ALL}) >= 10


def play(box, messages):
    """Sends the start-up lines in order; for each request its one answer, in `found`."""
    relay = box.relay(DEMO)
    wanted, pids, begun_call = [], [], False
    for line in messages:
        if "method" not in line:
            continue  # an answer to another server's question
        if line["method"] == "tools/call":
            begun_call = True
        if line["method"] == "notifications/cancelled":
            continue  # of requests that are long answered
        if follows_a_cursor(line):
            continue
        relay.send(dict({"jsonrpc": "2.0"}, **line))
        if line.get("id") is not None:
            wanted.append(line)
            if line["method"] in ("initialize", "server/discover"):
                answer = relay.answer(line["id"])
                relay.kept.append(answer)
        if not begun_call:
            pids += relay.servers()
    for line in wanted:
        until_answered(relay, line["id"])
    answers = [one for one in relay.kept if "method" not in one]
    rest = relay.finish()
    answers += [one for one in rest if "method" not in one]
    for line in wanted:
        count = sum(1 for one in answers if same_id(one.get("id"), line["id"]))
        uses = sum(1 for one in wanted if same_id(one["id"], line["id"]))
        assert count == uses, (line, answers)
    assert len(answers) == len(wanted)
    return answers, bool(pids)


def until_answered(relay, ident):
    if not any("method" not in one and same_id(one.get("id"), ident) for one in relay.kept):
        relay.kept.append(relay.answer(ident))


@pytest.mark.parametrize("name, messages", ALL, ids=[name for name, _ in ALL])
def test_each_request_of_a_real_client_gets_one_answer(box, name, messages):
    cold, _ = play(box, messages)
    warm, started = play(box, messages)
    assert len(cold) == len(warm)
    legacy = not any(modern(line) for line in messages)
    if legacy and any(line.get("method") == "initialize" for line in messages):
        assert not started, "a warm legacy start-up starts no server before a call"
        by_id = {json.dumps(one["id"]): one for one in cold}
        for one in warm:
            same = by_id[json.dumps(one["id"])]
            assert ("error" in one) == ("error" in same)
            assert not ("result" in one and "tools" in one["result"]) or one["result"] == same["result"]


