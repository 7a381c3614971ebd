"""Start-ups of real clients after `mcp-lazy --check` with their own parameters: no server starts (B1-B17, A17).

Needs the captured handshakes: MCP_LAZY_HANDSHAKES names the folder of their .jsonl files (see test_handshakes.py).
The server is servers/captured.py, which answers what the captured one answered in that scenario.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from harness import same_id

sys.path.insert(0, str(Path(__file__).resolve().parent / "servers"))
import captured  # noqa: E402

FOLDER = os.environ.get("MCP_LAZY_HANDSHAKES", "")
SERVERS = ("everything", "py2", "pages")  # `mute` and `stubborn` are about other things
META = captured.META
VERSION = "2025-11-25"  # what nearly all clients ask for; used where one never sent an initialize


class Scenario:
    """One client's start on one server: its lines up to the first call, by process, and what it was answered."""

    def __init__(self, name, server, lines):
        self.name, self.server = name, server
        self.runs, self.answers = [], {}
        for run in dict.fromkeys(found["run"] for found in lines):
            sent, got = ([found["msg"] for found in lines if found["run"] == run and found["ev"] == way]
                         for way in ("c2s", "s2c"))
            self.answers.update(answers_to(sent, got))
            start = start_up(sent)
            if any("id" in line for line in start) and start not in self.runs:
                self.runs.append(start)

    def outline(self):
        """What makes it another start-up than the next one's: ids and progress tokens do not."""
        lines = [[(line["method"], bare_params(line)) for line in run] for run in self.runs]
        return json.dumps([self.server, lines], sort_keys=True)

    def lines(self):
        return [line for run in self.runs for line in run]

    def parameters(self):
        """The two variables for a check that prepares just this start-up."""
        probes = [{"method": line["method"], "params": line["params"]} for line in self.lines()
                  if line["method"] == "server/discover"]
        probes = [probe for index, probe in enumerate(probes) if probe not in probes[:index]]
        return {"MCP_LAZY_CHECK_INITIALIZE": json.dumps(self.initialize()), "MCP_LAZY_CHECK_BEFORE": json.dumps(probes)}

    def initialize(self):
        for line in self.lines():
            if line["method"] == "initialize":
                return line["params"]
        envelope = next(line["params"]["_meta"] for line in self.lines() if "_meta" in line.get("params", {}))
        return {"protocolVersion": VERSION, "capabilities": envelope[META + "clientCapabilities"],
                "clientInfo": envelope[META + "clientInfo"]}


def start_up(sent):
    """The requests and notifications up to the first call; answers to the server's own requests are left out."""
    found = []
    for line in sent:
        if line.get("method") == "tools/call":
            break
        if "method" in line:
            found.append(dict(line, jsonrpc="2.0"))
    return found


def bare_params(line):
    params = dict(line.get("params") or {})
    meta = {name: value for name, value in (params.pop("_meta", None) or {}).items() if name != "progressToken"}
    return [params, meta]


def answers_to(sent, got):
    """{key: outcome} of the requests that the captured server answered."""
    found = {}
    for line in sent:
        if "method" not in line or line.get("id") is None:
            continue
        for one in got:
            if "method" not in one and same_id(one.get("id"), line["id"]):
                found.setdefault(captured.key(line), {name: one[name] for name in ("result", "error") if name in one})
            elif acknowledges(one, line):
                found[captured.key(line)] = {"acknowledged": one["params"]}
    return found


def acknowledges(one, line):
    return (line["method"] == "subscriptions/listen" and one.get("method") == "notifications/subscriptions/acknowledged"
            and same_id(one["params"]["_meta"][META + "subscriptionId"], line["id"]))


def captures():
    """{file's name: its scenarios}, with the servers that matter here."""
    found = {}
    for path in sorted(Path(FOLDER).glob("*.jsonl")) if FOLDER else []:
        groups = []
        for text in path.read_text("utf-8").strip("\n").split("\n"):
            one = json.loads(text)
            if one["ev"] == "scenario":
                groups.append((one, []))
            elif one["ev"] in ("c2s", "s2c") and isinstance(one.get("msg"), dict):
                groups[-1][1].append(one)
        found[path.stem] = [Scenario("%s-%s-%s" % (path.stem, head["mode"], head["server"]), head["server"], lines)
                            for head, lines in groups if head["server"] in SERVERS]
    return found


CAPTURES = captures()


def different(scenarios):
    """Those that are no repetition of an earlier one of the same client."""
    return list({one.outline(): one for one in reversed(scenarios) if one.runs}.values())[::-1]


ALL = [one for scenarios in CAPTURES.values() for one in different(scenarios)]


def answers_of(scenario):
    """What the server is to say: the scenario's own answers; the rest, such as pages that this client did not
    read but a check does, as that server said it to the same client, or else to another one."""
    found = {}
    own_file = [scenarios for scenarios in CAPTURES.values() if scenario in scenarios][0]
    for scenarios in list(CAPTURES.values()) + [own_file, [scenario]]:
        for one in scenarios:
            if one.server == scenario.server:
                found.update(one.answers)
    # No client ever asked for the templates in the newest protocol, but a check does: the same with its members.
    old, new = (json.dumps([era, "resources/templates/list", None]) for era in ("legacy", "modern"))
    found[new] = {"result": dict(found[old]["result"], resultType="complete", ttlMs=0, cacheScope="private")}
    return found


class Play:
    """Plays start-ups against a command; `cursors` says what stands for a captured cursor in this session."""

    def __init__(self, relay, first=None):
        self.relay, self.first = relay, first
        self.cursors, self.waiting, self.answers = {}, [], []

    def run(self, lines):
        """The answers to the requests, in their order."""
        for line in lines:
            cursor = (line.get("params") or {}).get("cursor")
            if cursor is not None:
                self.collect()  # no client can name a page before it has read the one before
                line = dict(line, params=dict(line["params"], cursor=self.cursors[cursor]))
            self.relay.send(line)
            if line.get("id") is not None:
                self.waiting.append(line)
            if line["method"] in ("initialize", "server/discover", "subscriptions/listen"):
                self.collect()
        self.collect()
        return self.answers

    def collect(self):
        for line in self.waiting:
            found = self.relay.until_message(lambda one: acknowledges(one, line) or self.relay.answers(one, line["id"]))
            self.learn_cursor(found)
            self.answers.append(found)
        self.waiting = []

    def learn_cursor(self, found):
        """The direct session's cursors are the captured ones, and the same answer tells ours."""
        cursor = next_cursor(found)
        if cursor is not None:
            self.cursors[next_cursor(self.first[len(self.answers)]) if self.first else cursor] = cursor


def next_cursor(found):
    return found.get("result", {}).get("nextCursor")


def same_answer(direct, found):
    """Asserts that they are equal as JSON values but for the cursor, and time to live, which only shrinks (A17.5)."""
    if "ttlMs" in direct.get("result", {}):
        assert 0 <= found["result"]["ttlMs"] <= direct["result"]["ttlMs"], found
    assert comparable(direct) == comparable(found)


def comparable(found):
    """Canonical text, in which 1 and 1.0 are told apart and the order of members is not; of some only that they are."""
    if "result" in found:
        found = dict(found, result={name: name if name in ("nextCursor", "ttlMs") else value
                                    for name, value in found["result"].items()})
    return json.dumps(found, sort_keys=True)


@pytest.fixture
def server(box, scenario):
    """(the command, a function that says how often it was started)"""
    answers, starts = box.path / "answers", box.path / "starts"
    answers.write_text(json.dumps(answers_of(scenario)))
    starts.touch()
    command = [sys.executable, "-I", "-S", captured.__file__, str(answers), str(starts)]
    return command, lambda: len(starts.read_text().splitlines())


def test_the_captured_start_ups_are_there():
    if not FOLDER:
        pytest.skip("MCP_LAZY_HANDSHAKES names no folder of captured handshakes")
    assert len(CAPTURES) >= 10 and all(different(scenarios) for scenarios in CAPTURES.values())
    assert {one.server for one in ALL} == set(SERVERS)


@pytest.mark.parametrize("scenario", ALL, ids=[one.name for one in ALL])
def test_after_a_check_the_start_up_of_a_real_client_starts_no_server(box, scenario, server):
    """B17, A6.9, A17.5, A17.8: each answer is the direct one, for every process that the client starts."""
    command, starts = server
    direct = []
    for lines in scenario.runs:
        session = box.relay([], argv=command)
        direct.append(Play(session).run(lines))
        session.finish()
        for line, found in zip(requests(lines), direct[-1]):
            expected = scenario.answers.get(captured.key(line))
            assert expected is None or comparable(expected) == comparable(outcome(found)), "the stand-in is wrong"
    status, report, said = box.run("--check", "--", *command, env=box.env(**scenario.parameters()))
    assert status == 0, said
    assert json.loads(report)["ok"] is True
    before = starts()
    for lines, wanted in zip(scenario.runs, direct):
        relay = box.relay(command)
        found = Play(relay, wanted).run(lines)
        asleep = relay.asleep()  # one that is only now starting has not written its line
        rest = relay.kept + relay.finish()
        assert asleep and starts() == before, "the start-up started a server"
        for one, other in zip(wanted, found):
            same_answer(one, other)
        ends = [line["id"] for line in lines if line["method"] == "subscriptions/listen"]  # a stream may end with one
        assert not [one for one in rest if "method" in one or one["id"] not in ends], "nobody asked for it: %s" % rest


def requests(lines):
    return [line for line in lines if line.get("id") is not None]


def outcome(found):
    """As answers are kept: without what belongs to one message."""
    if "method" in found:
        return {"acknowledged": found["params"]}
    return {name: found[name] for name in ("result", "error") if name in found}
