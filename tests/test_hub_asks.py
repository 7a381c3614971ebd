"""What servers ask, on its way through the hub to a client of 2026-07-28, and servers that speak only 2026-07-28.

protocol.md 2.4 (input_required in place of requests) and 3.4 (upstream interaction), behaviour G4.3, G9.2.  The server
is hub_fake.py: its tools `client`, `several` and `ask` put the questions.  A client with a handshake is asked by real
requests, as test_hub_calls.py::TestServersRequests shows; here it stands in front of servers of 2026-07-28.
"""

import json
import os
import re
import shutil
import signal
import time

import pytest

import harness
from harness import alive, message, until
import test_hub
from test_hub import KEY, MODERN, config_file, entry, fake, start, start_at

shelf, made_once = test_hub.shelf, test_hub.made_once  # fixtures of the first part

OFFERS = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
SUBSCRIPTION = KEY + "subscriptionId"


# ------------------------------------------------------------------ a client that is asked in results

def command(server, name, /, **parameters):
    """The params of a call through invoke_command."""
    return {"name": "invoke_command", "arguments": {"server": server, "command_name": name, "parameters": parameters}}


def begin(hub, params, method="tools/call", offers=None, **meta):
    """A request of 2026-07-28 whose client offers `offers`; all three unless told."""
    return hub.modern(method, params, dict({KEY + "clientCapabilities": OFFERS if offers is None else offers}, **meta))


def again(hub, params, asked, answers, **more):
    """The request once more, with the answers to what was asked."""
    return begin(hub, dict(params, inputResponses=answers, requestState=asked["requestState"]), **more)


def asked_in(result):
    """The checked `input_required` result: exactly its members, and no cache hints (protocol.md 2.4)."""
    assert set(result) - {"_meta"} == {"resultType", "inputRequests", "requestState"}, result
    assert result["resultType"] == "input_required"
    assert type(result["requestState"]) is str and result["requestState"]
    assert result["inputRequests"] and all(set(one) <= {"method", "params"} for one in result["inputRequests"].values())
    return result


def asked(hub, ident):
    return asked_in(hub.result(ident))


def only(result):
    """(key, request) of the one question in it."""
    (found,) = result["inputRequests"].items()
    return found


def answer_all(hub, params, result, say, **more):
    """Sends the request again until nothing is asked any more: (result, number of rounds)."""
    for rounds in range(40):
        if result.get("resultType") != "input_required":
            return result, rounds
        answers = {key: say(one) for key, one in asked_in(result)["inputRequests"].items()}
        result = hub.result(again(hub, params, result, answers, **more))
    raise AssertionError("it never ends")


def client(ident="q", method=ELICIT, **params):
    return command("a", "client", id=ident, method=method, params=params)


def calls_of(server):
    return [one for one in server.lines() if one["method"] == "tools/call"]


def heard(server, ident):
    """What the server got as answer to its question, once and no more."""
    found = [one["message"] for one in server.wait_for("heard") if one["message"]["id"] == ident]
    assert len(found) == 1, found
    return found[0]


def until_heard(server, ident):
    until(lambda: [one for one in server.events("heard") if one["message"]["id"] == ident],
          what="an answer to %r" % (ident,))
    return heard(server, ident)


def cancelled_at(server):
    """The ids of calls that the server was told to forget."""
    return [one["params"]["requestId"] for one in server.lines() if one["method"] == "notifications/cancelled"]


def quiet(hub):
    """Nothing came without being an answer: such a client can be asked only in results (and knows no ping)."""
    hub.result(begin(hub, {"name": "list_servers"}))
    assert hub.kept == [], hub.kept
    return True


class OneServer:
    """A hub with one server, for a client of 2026-07-28; all tests of a class share both."""

    @pytest.fixture(scope="class")
    def server(self, shelf):
        return fake(shelf)

    @pytest.fixture(scope="class")
    def hub(self, shelf, server):
        return start(shelf, [entry("a", server)], shaken=False)


# ------------------------------------------------------------------------------- A1: the question

class TestTheQuestion(OneServer):
    @pytest.fixture(scope="class")
    def server(self, shelf):
        return fake(shelf, raw=str(shelf.path / "raw"), requestTimeout=60000)

    @pytest.mark.parametrize("method, params, answer", [
        (ELICIT, {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "number"}}}},
         {"action": "accept", "content": {"n": 1.0}}),
        (SAMPLE, {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10},
         {"role": "assistant", "content": {"type": "text", "text": "lo"}, "model": "m"}),
        (ROOTS, {}, {"roots": [{"uri": "file:///folder/x y"}]})], ids=[ELICIT, SAMPLE, ROOTS])
    def test_it_is_the_result(self, hub, server, method, params, answer):
        """protocol.md 3.4: the answer of the call is `input_required`, and no request is written to such a client."""
        call = client("id-" + method, method, **params)
        found = asked(hub, begin(hub, call))
        key, request = only(found)
        assert (request["method"], request.get("params", {})) == (method, params)
        assert quiet(hub)
        result = hub.result(again(hub, call, found, {key: answer}))
        assert result == {"answer": {"jsonrpc": "2.0", "id": "id-" + method, "result": answer},
                          "resultType": "complete"}
        assert heard(server, "id-" + method)["result"] == answer

    def test_what_the_server_sent_is_unchanged(self, hub):
        """Numbers, escapes, blanks and members that nobody knows come as they were sent."""
        raw = '{"message":"a\\u00e9 \\n ü","n":[1.0,1e2, 12345678901234567890,1e400],"future":{"a":null} }'
        call = command("a", "client_raw", id="r1",
                       raw='{"jsonrpc":"2.0","id":"r1","method":"%s","params":%s}' % (ELICIT, raw))
        found = asked(hub, begin(hub, call))
        assert raw.encode() in hub.raw[-1]
        hub.result(again(hub, call, found, {only(found)[0]: {"action": "decline"}}))

    def test_a_question_without_params(self, hub):
        call = command("a", "client_raw", id="r2", raw='{"jsonrpc":"2.0","id":"r2","method":"roots/list"}')
        found = asked(hub, begin(hub, call))
        assert only(found)[1].get("params", {}) == {}
        result = hub.result(again(hub, call, found, {only(found)[0]: {"roots": []}}))
        assert result["answer"]["result"] == {"roots": []}

    def test_the_answer_goes_to_the_server_byte_for_byte(self, hub, shelf):
        """A3: with a new id, and all spelled as the client did."""
        call = command("a", "client", id="bytes", method=ELICIT, params={}, untold=True)
        found = asked(hub, begin(hub, call))
        raw = '{ "action":"accept", "content":{"n":1.0,"big":12345678901234567890,"e":1e400,"u":"\\u00e9ü"},"x":[ ] }'
        line = json.dumps(message("tools/call", "by-hand", dict(
            call, inputResponses={only(found)[0]: "RAW"}, requestState=found["requestState"],
            _meta={KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": OFFERS})))
        hub.send((line.replace('"RAW"', raw) + "\n").encode())
        assert hub.result("by-hand")["heard"] == 1
        assert raw.encode() in (shelf.path / "raw").read_bytes()

    @pytest.mark.parametrize("offers", [{}, {"sampling": {}, "roots": {}}, {"experimental": {"elicitation": {}}}],
                             ids=json.dumps)
    def test_what_is_not_offered_is_refused_at_once(self, hub, offers):
        """-32601 upstream, and the call goes on."""
        result = hub.result(begin(hub, client("no"), offers=offers))
        assert result["answer"]["error"]["code"] == -32601 and result["resultType"] == "complete" and quiet(hub)

    def test_no_roots_where_roots_are_not_offered(self, hub):
        result = hub.result(begin(hub, client("no", ROOTS), offers={"elicitation": {}}))
        assert result["answer"]["result"] == {"roots": []} and quiet(hub)

    def test_each_request_offers_what_it_offers_itself(self, hub):
        """The one before had it; this one has not."""
        call = client("mine")
        found = asked(hub, begin(hub, call))
        other = hub.result(begin(hub, command("a", "echo", x=1), offers={}))
        assert other["echo"] == {"x": 1}
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "cancel"}}))
        assert result["answer"]["result"] == {"action": "cancel"}
        assert hub.result(begin(hub, client("m2"), offers={}))["answer"]["error"]["code"] == -32601

    @pytest.mark.parametrize("method", ["nosuch/method", "tools/list", "completion/complete"])
    def test_nothing_else_can_be_asked(self, hub, method):
        assert hub.result(begin(hub, client("odd", method)))["answer"]["error"]["code"] == -32601 and quiet(hub)

    def test_a_ping_is_the_hubs(self, hub):
        assert hub.result(begin(hub, client("ping", "ping")))["answer"]["result"] == {}

    @pytest.mark.parametrize("ident", ["q-1", 0, -7, "ü\"\\", "mcp-lazy-hub-1"])
    def test_ids_of_servers_are_theirs(self, hub, ident):
        call = client(ident)
        found = asked(hub, begin(hub, call))
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "decline"}}))
        assert result["answer"]["id"] == ident and type(result["answer"]["id"]) is type(ident)

    def test_two_questions_at_once(self, hub, server):
        """A3: both in one answer, or one after the other; each gets its own."""
        call = command("a", "several", questions=[["s1", ELICIT, {"message": "1"}], ["s2", SAMPLE, {"messages": []}]])
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"to": one["method"]})
        assert result["answers"] == {"s1": {"result": {"to": ELICIT}}, "s2": {"result": {"to": SAMPLE}}}
        assert 1 <= rounds <= 2
        assert (heard(server, "s1")["result"], heard(server, "s2")["result"]) == ({"to": ELICIT}, {"to": SAMPLE})

    def test_one_question_behind_the_other(self, hub):
        """A3: the answer to the second request is `input_required` again, and never with the same requestState."""
        call, states = command("a", "several", in_turn=True, questions=[["t%d" % n, ELICIT, {"message": "no %d" % n}]
                                                                        for n in range(5)]), set()
        result = hub.result(begin(hub, call))
        for n in range(5):
            key, request = only(asked_in(result))
            assert request["params"] == {"message": "no %d" % n} and result["requestState"] not in states
            states.add(result["requestState"])
            result = hub.result(again(hub, call, result, {key: {"action": "accept", "content": {"n": n}}}))
        assert result["answers"] == {"t%d" % n: {"result": {"action": "accept", "content": {"n": n}}}
                                     for n in range(5)}

    @pytest.mark.parametrize("left_out", ["all", "one", "another one"])
    def test_questions_that_were_left_out_are_asked_again(self, hub, server, left_out):
        """A3."""
        ids = ["%s-%d" % (left_out, n) for n in range(2)]
        call = command("a", "several", questions=[[ident, ELICIT, {"message": ident}] for ident in ids])
        first = asked(hub, begin(hub, call))
        given = {key: {"of": one["params"]["message"]} for key, one in first["inputRequests"].items()}
        given = {"all": {}, "one": dict(list(given.items())[:1]), "another one": {"stranger": {}}}[left_out]
        second = asked(hub, again(hub, call, first, given))
        assert second["requestState"] != first["requestState"]
        assert all(key not in given for key in second["inputRequests"])
        result, _ = answer_all(hub, call, second, lambda one: {"of": one["params"]["message"]})
        assert result["answers"] == {ident: {"result": {"of": ident}} for ident in ids}
        assert all(heard(server, ident)["result"] == {"of": ident} for ident in ids)

    @pytest.mark.parametrize("later", [0, 0.05])
    def test_a_question_that_the_call_does_not_wait_for(self, hub, server, later):
        """The result of the call reaches the client, and the server gets one answer."""
        call = command("a", "aside", id="aside-%g" % later, method=ELICIT, later=later)
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"action": "accept"})
        assert result["done"] is True and rounds <= 1
        assert set(until_heard(server, "aside-%g" % later)) & {"result", "error"}

    @pytest.mark.parametrize("answer", [7, None, [], "text", {}, {"error": {"code": -1}}], ids=json.dumps)
    def test_an_answer_of_any_kind(self, hub, answer):
        """What is no result is the client's own fault: the call ends, and the hub goes on."""
        call = client("kind")
        found = asked(hub, begin(hub, call))
        ended = hub.answer(again(hub, call, found, {only(found)[0]: answer}))
        if isinstance(answer, dict):
            assert ended["result"]["answer"]["result"] == answer
        else:
            assert ended.get("error", {}).get("code") == -32602 or ended["result"]["answer"], ended
        assert quiet(hub)

    def test_a_server_asks_for_one_of_two_calls(self, hub):
        """It does not say for which: a call that cannot be asked is never the one that is."""
        ask, deaf = client("which"), begin(hub, command("a", "late"), offers={})
        ident = begin(hub, ask)
        found = asked(hub, ident)
        result = hub.result(again(hub, ask, found, {only(found)[0]: {"action": "accept"}}))
        assert result["answer"]["result"] == {"action": "accept"}
        assert hub.result(begin(hub, command("a", "flush")))["flushed"] is True
        assert hub.result(deaf)["late"] is True and quiet(hub)

    def test_many_calls_that_wait(self, hub):
        """Each state leads on its own call, in any order."""
        calls = [client("many-%d" % n, message="for %d" % n) for n in range(20)]
        found = [asked(hub, begin(hub, call)) for call in calls]
        assert len({one["requestState"] for one in found}) == 20
        for n in reversed(range(20)):
            assert only(found[n])[1]["params"] == {"message": "for %d" % n}
            result = hub.result(again(hub, calls[n], found[n], {only(found[n])[0]: {"of": n}}))
            assert result["answer"]["id"] == "many-%d" % n and result["answer"]["result"] == {"of": n}

    def test_many_calls_at_once(self, hub):
        """The server does not say for which it asks, so any of them may bring a question; each has its own result."""
        calls = [client("once-%d" % n, message="for %d" % n) for n in range(20)]
        waiting, results = {begin(hub, call): n for n, call in enumerate(calls)}, {}
        while waiting:
            found = hub.until_message(lambda one: one.get("id") in waiting)
            n, result = waiting.pop(found["id"]), found["result"]
            if result["resultType"] == "complete":
                results[n] = result["answer"]
                continue
            said = {key: {"of": one["params"]["message"]} for key, one in asked_in(result)["inputRequests"].items()}
            waiting[again(hub, calls[n], result, said)] = n
        assert [(results[n]["id"], results[n]["result"]) for n in range(20)] == \
            [("once-%d" % n, {"of": "for %d" % n}) for n in range(20)]

    def test_a_call_that_waits_for_its_client_is_not_asked_for_another(self, hub):
        """Who never comes back for its own call holds up no other: the request that is open is answered with it."""
        mine = command("a", "upon", id="upon", method=ELICIT)
        ident = begin(hub, mine)
        other = client("never-led-on")
        parked = asked(hub, begin(hub, other))
        assert hub.result(begin(hub, command("a", "now"), offers={}))["now"] is True
        found = asked(hub, ident)
        assert hub.result(again(hub, mine, found, {only(found)[0]: {"n": 1}}))["answer"]["result"] == {"n": 1}
        assert hub.result(again(hub, other, parked, {only(parked)[0]: {"n": 2}}))["answer"]["result"] == {"n": 2}


# ------------------------------------------------------------- A1: all that may be answered so, and what may not

class TestEveryRequestThatMayBeAsked:
    @staticmethod
    def server_of(box, method, **flags):
        return fake(box, ask_at={method: ["at", ELICIT, {"message": method}]}, tools=2, **flags)

    @pytest.mark.parametrize("tool, arguments", [
        ("list_commands", {"server": "a"}), ("list_commands", {"servers": ["a"]}),
        ("describe_commands", {"server": "a", "command_names": ["tool1"]})], ids=["one", "batch", "describe"])
    def test_meta_tools_that_start_a_server(self, box, tool, arguments):
        """Discovery is work of a server too."""
        hub = start(box, [entry("a", self.server_of(box, "tools/list"))], shaken=False)
        params = {"name": tool, "arguments": arguments}
        found = asked(hub, begin(hub, params))
        assert only(found)[1] == {"method": ELICIT, "params": {"message": "tools/list"}}
        result = hub.result(again(hub, params, found, {only(found)[0]: {"action": "accept"}}))
        assert "tool1" in result["content"][0]["text"] and result["resultType"] == "complete" and quiet(hub)

    def test_a_prompt(self, box):
        server = self.server_of(box, "prompts/get", prompt_names=["p"])
        hub = start(box, [entry("a", server, forwardPrompts=True)], shaken=False)
        params = {"name": "a::p", "arguments": {"who": "me"}}
        found = asked(hub, begin(hub, params, "prompts/get"))
        result = hub.result(again(hub, params, found, {only(found)[0]: {"action": "accept"}}, method="prompts/get"))
        assert result["asked"] == {"name": "p", "arguments": {"who": "me"}} and result["resultType"] == "complete"
        assert result["said"]["result"] == {"action": "accept"} and quiet(hub)

    def test_a_resource(self, box):
        """Its final result has the hints, what is asked has none."""
        server = self.server_of(box, "resources/read", resource_uris=["mem://x"])
        hub = start(box, [entry("a", server)], resources=True, shaken=False)
        params = {"uri": hub.result(begin(hub, {}, "resources/list"))["resources"][0]["uri"]}
        found = asked(hub, begin(hub, params, "resources/read"))
        result = hub.result(again(hub, params, found, {only(found)[0]: {"action": "accept"}}, method="resources/read"))
        assert result["asked"] == {"uri": "mem://x"} and result["said"]["result"] == {"action": "accept"}
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")

    @pytest.mark.parametrize("method", ["prompts/list", "resources/list"])
    def test_a_listing_is_never_asked(self, box, method):
        """protocol.md 2.4: only three methods may be; the server is refused and the list is given."""
        server = self.server_of(box, method, prompt_names=["p"], resource_uris=["mem://x"])
        hub = start(box, [entry("a", server, forwardPrompts=True)], resources=True, shaken=False)
        result = hub.result(begin(hub, {}, method))
        assert result["resultType"] == "complete" and len(result[method.split("/")[0]]) == 1
        assert "error" in heard(server, "at") and quiet(hub)


# -------------------------------------------------------------------------- A2: the work stays open

class TestTheWork:
    def test_it_is_not_sent_again(self, box):
        """G8.5: the server sees one call."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        call = client()
        found = asked(hub, begin(hub, call))
        hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert len(calls_of(server)) == 1 and cancelled_at(server) == [] and server.starts() == 1

    @pytest.mark.slow
    def test_no_limit_counts_while_a_question_is_open(self, box):
        """G9.2: the server waits for a person; it is not silent."""
        hub = start(box, [entry("a", fake(box), requestTimeout=150)], shaken=False)
        call = client()
        found = asked(hub, begin(hub, call))
        end = time.monotonic() + 0.4
        until(lambda: time.monotonic() > end)
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert result["answer"]["result"] == {"action": "accept"}

    @pytest.mark.slow
    def test_the_limit_counts_again_behind_the_answer(self, box):
        server = fake(box)
        hub = start(box, [entry("a", server, requestTimeout=200)], shaken=False)
        call = command("a", "several", questions=[["q", ELICIT, {}]], silent=True)
        found = asked(hub, begin(hub, call))
        failure = hub.failed(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert failure.code == "SERVER_TIMEOUT" and failure.result["resultType"] == "complete"

    @pytest.mark.slow
    def test_no_idle_stop(self, box):
        """G10.3."""
        server = fake(box)
        hub = start(box, [entry("a", server, idleStop=60)], shaken=False)
        call = client()
        found = asked(hub, begin(hub, call))
        end = time.monotonic() + 0.4
        until(lambda: time.monotonic() > end)
        assert alive(server.pid())
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert result["answer"]["result"] == {"action": "accept"} and server.starts() == 1
        until(lambda: not alive(server.pid()), what="the idle stop behind it")

    @pytest.mark.parametrize("how", ["removed", "modified"])
    def test_a_reload_lets_it_end(self, box, how):
        """G11.5: like any call that is open."""
        server = fake(box)
        path = config_file(box, [entry("a", server), entry("b", ["true"])])
        hub = start_at(box, path, shaken=False)
        call = client()
        found = asked(hub, begin(hub, call))
        rest = [entry("b", ["true"])] + ([entry("a", server, env={"X": "1"})] if how == "modified" else [])
        path.write_text(json.dumps({"servers": rest}))
        hub.signal(signal.SIGHUP)
        until(lambda: [one for one in hub.log() if one.get("event") == "config_reload_success"], what="the reload")
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert result["answer"]["result"] == {"action": "accept"} and len(calls_of(server)) == 1
        until(lambda: not alive(server.pid()), what="the end of the one that was replaced")


# ------------------------------------------------------------------------------ A4: the requestState

class TestTheState(OneServer):
    @pytest.fixture
    def open_call(self, hub):
        """(params, what was asked, the answers)."""
        call = client("st", note={"b": 1, "a": ["x", None]})
        found = asked(hub, begin(hub, call))
        return call, found, {only(found)[0]: {"action": "accept"}}

    def refused(self, hub, ident):
        """The error that says how to go on."""
        error = hub.error(ident)
        assert error["code"] == -32602, error
        assert "requestState" in error["message"] and re.search("anew|again|without", error["message"]), error
        return True

    def goes_on(self, hub, open_call):
        call, found, answers = open_call
        assert hub.result(again(hub, call, found, answers))["answer"]["result"] == {"action": "accept"}
        return True

    @pytest.mark.parametrize("state", ["", "nonsense", "0" * 32, "mcp-lazy", 7, None, {}, [], True], ids=json.dumps)
    def test_an_unknown_one(self, hub, server, state):
        """G4.3, protocol.md 3.4: -32602, and no server hears of it."""
        before = len(calls_of(server))
        assert self.refused(hub, begin(hub, dict(client(), inputResponses={"x": {}}, requestState=state)))
        assert len(calls_of(server)) == before

    def test_one_that_was_used(self, hub, server, open_call):
        before = len(calls_of(server))
        assert self.goes_on(hub, open_call)
        for _ in range(2):
            assert self.refused(hub, again(hub, *open_call))
        assert len(calls_of(server)) == before

    def test_an_older_one_of_the_same_call(self, hub):
        call = command("a", "several", in_turn=True, questions=[["o1", ELICIT, {}], ["o2", ELICIT, {}]])
        first = asked(hub, begin(hub, call))
        second = asked(hub, again(hub, call, first, {only(first)[0]: {"n": 1}}))
        assert self.refused(hub, again(hub, call, first, {only(second)[0]: {"n": 3}}))
        result = hub.result(again(hub, call, second, {only(second)[0]: {"n": 2}}))
        assert result["answers"] == {"o1": {"result": {"n": 1}}, "o2": {"result": {"n": 2}}}

    @pytest.mark.parametrize("how", ["cut", "longer", "another letter", "upper case", "blank"])
    def test_a_changed_one(self, hub, open_call, how):
        call, found, answers = open_call
        state = found["requestState"]
        other = {"cut": state[:-1], "longer": state + "0", "upper case": state.swapcase(), "blank": state + " ",
                 "another letter": ("0" if state[0] != "0" else "1") + state[1:]}[how]
        if other == state:
            pytest.skip("this state has no letters")
        assert self.refused(hub, again(hub, call, {"requestState": other}, answers))
        assert self.goes_on(hub, open_call)

    @pytest.mark.parametrize("what", ["command", "parameter", "more", "less", "tool", "order", "method"])
    def test_one_of_another_request(self, hub, server, open_call, what):
        """It is not used up by that: the right request still leads on."""
        call, found, answers = open_call
        before, other, method = len(calls_of(server)), json.loads(json.dumps(call)), "tools/call"
        parameters = other["arguments"]["parameters"]
        if what == "command":
            other["arguments"]["command_name"] = "echo"
        elif what == "parameter":
            parameters["id"] = "another"
        elif what == "more":
            parameters["more"] = None
        elif what == "less":
            del parameters["params"]
        elif what == "tool":
            other["name"] = "list_commands"
        elif what == "order":
            parameters["params"]["note"]["a"].reverse()
        else:
            method = "prompts/get"
        assert self.refused(hub, again(hub, other, found, answers, method=method))
        assert len(calls_of(server)) == before and self.goes_on(hub, open_call)

    def test_the_same_request_in_other_words(self, hub, open_call):
        """Compared as JSON values: the order of members and how a text is spelled are nothing."""
        call, found, answers = open_call

        def turned(value):
            return {key: turned(value[key]) for key in reversed(value)} if isinstance(value, dict) else value
        params = turned(dict(call, inputResponses=answers, requestState=found["requestState"], _meta={
            KEY + "clientCapabilities": OFFERS, KEY + "protocolVersion": MODERN}))
        line = json.dumps(message("tools/call", "turned", params), indent=1).replace("\n", "\r")
        assert '"st"' in line
        hub.send(line.replace('"st"', '"\\u0073\\u0074"').encode() + b"\n")
        assert hub.result("turned")["answer"]["result"] == {"action": "accept"}

    @pytest.mark.parametrize("depth", [100, 700])
    def test_a_deep_request(self, hub, open_call, depth):
        """Another one is refused, however deep it is; the same one in other words goes on or is refused."""
        call, found, answers = open_call
        deep = "[" * depth + "]" * depth
        ident = "deep-%d" % depth
        line = json.dumps(message("tools/call", ident, dict(
            call, arguments=dict(call["arguments"], more="DEEP"), inputResponses=answers,
            requestState=found["requestState"], _meta={KEY + "protocolVersion": MODERN,
                                                       KEY + "clientCapabilities": OFFERS})))
        hub.send(line.replace('"DEEP"', deep).encode() + b"\n")
        assert self.refused(hub, ident) and self.goes_on(hub, open_call)

    def test_other_members_of_meta_are_no_other_request(self, hub, open_call):
        call, found, answers = open_call
        ident = again(hub, call, found, answers, offers={"elicitation": {"form": {}}}, progressToken="new",
                      traceparent="x")
        assert hub.result(ident)["answer"]["result"] == {"action": "accept"}

    @pytest.mark.parametrize("answers", [7, None, "text", [], True], ids=json.dumps)
    def test_answers_that_are_no_object(self, hub, open_call, answers):
        call, found, _ = open_call
        assert self.refused(hub, again(hub, call, found, answers))
        assert quiet(hub)

    @pytest.mark.parametrize("answers", [{}, {"ask-1": {"action": "accept"}}, None, []], ids=json.dumps)
    def test_answers_without_a_state(self, hub, server, answers):
        before = len(calls_of(server))
        assert self.refused(hub, begin(hub, dict(client(), inputResponses=answers)))
        assert len(calls_of(server)) == before

    def test_a_state_without_answers(self, hub, open_call):
        """All of them were left out: they are asked again."""
        call, found, answers = open_call
        second = asked(hub, begin(hub, dict(call, requestState=found["requestState"])))
        assert second["inputRequests"] == found["inputRequests"]
        assert self.goes_on(hub, (call, second, answers))

    def test_a_state_is_nothing_that_could_be_guessed(self, hub):
        """protocol.md 3.4: opaque, and with nothing of the call in it."""
        states = [asked(hub, begin(hub, client("guess", secret="word-in-it")))["requestState"] for _ in range(8)]
        assert len(set(states)) == 8 and all(len(one) >= 22 and "word-in-it" not in one for one in states)
        assert all(len(os.path.commonprefix([states[0], one])) < len(one) - 12 for one in states[1:])

    def test_one_of_another_hub(self, shelf, hub, open_call):
        """A restart of the hub forgets what was open; the client is told to begin anew."""
        other = start(shelf, [entry("a", fake(shelf))], shaken=False)
        assert self.refused(other, again(other, *open_call))


@pytest.fixture
def hasty_box(box):
    """The same hub, but for how long it waits for answers: 300 s are 0.25."""
    text = harness.MODULE.read_text("utf-8")
    changed, count = re.subn(r"^(PARKED_S\b[^=\n]*= )300\.0", r"\g<1>0.25", text, flags=re.M)
    assert count == 1, "where is the time of a requestState?"
    box.module = str(box.path / "hasty.py")
    shutil.copymode(str(harness.MODULE), shutil.copy(str(harness.MODULE), box.module))
    with open(box.module, "w", encoding="utf-8") as file:
        file.write(changed)
    return box


@pytest.mark.slow
def test_a_state_that_is_too_old(hasty_box):
    """A4, A5: its question is refused, its call is cancelled, the server stays, and the late client is told."""
    server = fake(hasty_box)
    hub = start(hasty_box, [entry("a", server, idleStop=200)], shaken=False)
    call = client("old")
    found = asked(hub, begin(hub, call))
    below = calls_of(server)[0]["id"]
    assert "error" in until_heard(server, "old")
    until(lambda: cancelled_at(server) == [below], what="the call to be cancelled")
    error = hub.error(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
    assert error["code"] == -32602 and "requestState" in error["message"]
    assert len(calls_of(server)) == 1 and quiet(hub)
    until(lambda: not alive(server.pid()), what="the idle stop: nothing is open any more")


@pytest.mark.slow
def test_an_answer_in_time_starts_the_time_anew(hasty_box):
    """Each round has it whole."""
    hub = start(hasty_box, [entry("a", fake(hasty_box))], shaken=False)
    call = command("a", "several", in_turn=True, questions=[["x%d" % n, ELICIT, {}] for n in range(4)])
    result = hub.result(begin(hub, call))
    for _ in range(4):
        end = time.monotonic() + 0.12
        until(lambda: time.monotonic() > end)
        result = hub.result(again(hub, call, asked_in(result), {only(result)[0]: {"action": "accept"}}))
    assert len(result["answers"]) == 4


# --------------------------------------------------------------------------- A5, A6, A7: ends and progress

class TestCancel(OneServer):
    def cancel(self, hub, ident):
        hub.send(message("notifications/cancelled", params={"requestId": ident,
                                                            "_meta": {KEY + "protocolVersion": MODERN}}))

    def below(self, server, mark):
        """The id of the server for the call that has this mark in its arguments."""
        return until(lambda: [one["id"] for one in calls_of(server) if one["params"]["arguments"].get("mark") == mark],
                     what="the call to arrive")[0]

    def test_of_the_first_request(self, hub, server):
        ident = begin(hub, command("a", "hang", mark="first"))
        below = self.below(server, "first")
        self.cancel(hub, ident)
        until(lambda: below in cancelled_at(server), what="the cancel below")
        assert quiet(hub)

    def test_of_the_second_request(self, hub, server):
        """The whole call is cancelled: with the id that the server knows."""
        call = command("a", "several", mark="second", questions=[["c2", ELICIT, {}]], silent=True)
        found = asked(hub, begin(hub, call))
        below = self.below(server, "second")
        ident = again(hub, call, found, {only(found)[0]: {"action": "accept"}})
        until_heard(server, "c2")
        self.cancel(hub, ident)
        until(lambda: below in cancelled_at(server), what="the cancel below")
        assert quiet(hub)
        error = hub.error(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert error["code"] == -32602

    def test_of_the_second_request_while_the_server_asks_again(self, hub, server):
        """However the two meet: one answer to each question, an error to the one that came too late."""
        call = command("a", "several", mark="both", in_turn=True, questions=[["c3", ELICIT, {}], ["c4", ELICIT, {}]])
        found = asked(hub, begin(hub, call))
        below = self.below(server, "both")
        ident = next(hub.ids)
        params = dict(call, inputResponses={only(found)[0]: {"action": "accept"}}, requestState=found["requestState"],
                      _meta={KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": OFFERS})
        hub.send(message("tools/call", ident, params), message("notifications/cancelled", params={"requestId": ident}))
        until(lambda: below in cancelled_at(server), what="the cancel below")
        hub.result(begin(hub, {"name": "list_servers"}))
        assert [one for one in hub.kept if one.get("id") != ident] == []
        del hub.kept[:]
        assert heard(server, "c3") and "error" in until_heard(server, "c4")

    def test_a_cancel_of_an_answered_request_leaves_others_alone(self, hub, server):
        """The answer and the cancel crossed each other; another call goes on."""
        other = begin(hub, command("a", "late"))
        call = command("a", "client", mark="crossed", id="c5", method=ELICIT, params={})
        ident = begin(hub, call)
        found = asked(hub, ident)
        self.cancel(hub, ident)
        ended = hub.answer(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert ended.get("error", {}).get("code") == -32602 or ended["result"]["answer"]["result"]
        assert hub.result(begin(hub, command("a", "flush")))["flushed"] and hub.result(other)["late"] is True


@pytest.mark.parametrize("end", ["end of input", "SIGTERM"])
def test_the_end_of_the_hub_ends_a_call_that_waits(box, end):
    """A5: the server's question gets an error, its call a cancel, and nothing is left."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    asked(hub, begin(hub, client("end")))
    below = calls_of(server)[0]["id"]
    if end == "SIGTERM":
        hub.signal(signal.SIGTERM)
    else:
        hub.close()
    assert hub.wait() == 0 and not alive(server.pid())
    assert "error" in heard(server, "end") and cancelled_at(server) == [below]


def test_progress_goes_to_the_newest_request(box):
    """A6: each request has a token of its own; without one there is none."""
    hub = start(box, [entry("a", fake(box))], shaken=False)

    def told():
        found = [(one["params"]["progressToken"], one["params"]["progress"]) for one in hub.kept]
        del hub.kept[:]
        return found
    for second in ("two", 2, None):
        call = command("a", "several", first=True, n=2, questions=[["p", ELICIT, {}]])
        found = asked(hub, begin(hub, call, progressToken="one"))
        assert told() == [("one", 0)]
        more = {} if second is None else {"progressToken": second}
        hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}, **more))
        shown = told()
        assert ("one", 1) not in shown or second is None
        if second is not None:
            assert shown == [(second, 1), (second, 2)] and all(type(one[0]) is type(second) for one in shown)


class TestDeath:
    @pytest.mark.parametrize("answers", [True, False])
    def test_of_the_server_while_its_question_is_open(self, box, answers):
        """A7: the next request gets the failure as its result; and the next call a new process."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        call = client()
        found = asked(hub, begin(hub, call))
        os.kill(server.pid(), signal.SIGKILL)
        until(lambda: not alive(server.pid()))
        hub.until_state("a", "failing", "asleep")
        failure = hub.failed(again(hub, call, found, {only(found)[0]: {"action": "accept"}} if answers else {}))
        assert failure.code == "SERVER_CRASHED" and "SIGKILL" in failure.text
        assert failure.result["resultType"] == "complete" and len(calls_of(server)) == 1
        assert hub.error(again(hub, call, found, {}))["code"] == -32602
        assert hub.result(begin(hub, command("a", "echo", x=1)))["echo"] == {"x": 1} and server.starts() == 2

    @pytest.mark.parametrize("how, later", [("exit3", 0), ("SIGSEGV", 0), ("exit0", 0.05)])
    def test_of_a_server_that_dies_while_it_asks(self, box, how, later):
        """The question, or the failure at once: it is never silence."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        call = command("a", "die_asking", method=ELICIT, how=how, later=later)
        result, _ = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"action": "accept"})
        assert result["isError"] is True and result["_meta"]["lazyMcp"]["code"] == "SERVER_CRASHED"
        assert len(calls_of(server)) == 1 and quiet(hub)

    def test_a_result_that_came_while_the_question_was_open(self, box):
        """It is kept for the request that comes for it."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        call = command("a", "aside", id="kept", method=ELICIT, later=0.1)
        found = asked(hub, begin(hub, call))
        assert hub.result(begin(hub, command("a", "echo", x=1)))["echo"] == {"x": 1}  # the server is done with the call
        result = hub.result(again(hub, call, found, {}))
        assert result["done"] is True and result["resultType"] == "complete"
        assert set(until_heard(server, "kept")) & {"result", "error"}


# ------------------------------------------------------------------------- A8, A9: several servers, cold ones

class TestRootsAtTheStart:
    """A9: server-filesystem asks for the roots behind `initialized`, and refuses what comes before the answer."""

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("first", ["list_commands", "describe_commands", "invoke_command"])
    def test_a_client_of_2026(self, box, first, count):
        server = fake(box, roots_at_start=count)
        hub = start(box, [entry("a", server)], shaken=False)
        params = {"list_commands": {"name": first, "arguments": {"server": "a"}},
                  "describe_commands": {"name": first, "arguments": {"server": "a", "command_names": ["tool0"]}},
                  "invoke_command": command("a", "echo", x=1)}[first]
        result, rounds = answer_all(hub, params, hub.result(begin(hub, params)), lambda one: {"roots": [one["method"]]})
        assert rounds >= 1 and not result.get("isError")
        told = hub.result(begin(hub, command("a", "roots")))
        assert told["early"] == [] and told["roots"] == [{"result": {"roots": [ROOTS]}}] * count
        assert server.starts() == 1 and quiet(hub)

    @pytest.mark.parametrize("first", ["list_commands", "invoke_command"])
    def test_a_client_with_a_handshake(self, box, first):
        server = fake(box, roots_at_start=True)
        hub = start(box, [entry("a", server)], capabilities={"roots": {}})
        ident = (hub.start_tool("list_commands", server="a") if first == "list_commands" else
                 hub.start_invoke("a", "echo", {"x": 1}))
        request = hub.until_message(lambda found: found.get("method") == ROOTS)
        hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": [{"uri": "file:///w"}]}})
        assert not hub.result(ident).get("isError")
        told = hub.invoke("a", "roots")
        assert told == {"roots": [{"result": {"roots": [{"uri": "file:///w"}]}}], "early": []}

    def test_calls_that_come_meanwhile_wait_too(self, box):
        """Also those that cannot be asked."""
        server = fake(box, roots_at_start=True)
        hub = start(box, [entry("a", server)], capabilities={"roots": {}})
        idents = [hub.start_invoke("a", "echo", {"n": n}) for n in range(3)]
        request = hub.until_message(lambda found: found.get("method") == ROOTS)
        idents += [hub.start_invoke("a", "echo", {"n": n}) for n in range(3, 5)]
        hub.barrier()
        assert calls_of(server) == []
        hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": []}})
        assert [hub.result(ident)["echo"]["n"] for ident in idents] == list(range(5))
        assert hub.invoke("a", "roots")["early"] == []

    def test_a_client_that_refuses(self, box):
        """Its error is an answer too."""
        hub = start(box, [entry("a", fake(box, roots_at_start=True))], capabilities={"roots": {}})
        ident = hub.start_invoke("a", "echo", {"x": 1})
        request = hub.until_message(lambda found: found.get("method") == ROOTS)
        hub.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "none"}})
        assert hub.result(ident)["echo"] == {"x": 1}
        told = hub.invoke("a", "roots")
        assert told["early"] == [] and told["roots"][0]["error"]["message"] == "none"

    @pytest.mark.parametrize("modern", [True, False])
    def test_no_ping_where_there_are_no_roots(self, box, modern):
        """Then nothing can be asked that was worth waiting for; the server has its answer all the same."""
        server = fake(box, roots_at_start=True)
        hub = start(box, [entry("a", server)], shaken=not modern, capabilities={"elicitation": {}})
        if modern:
            hub.result(begin(hub, command("a", "echo"), offers={"elicitation": {}}))
            told = hub.result(begin(hub, command("a", "roots"), offers={}))
        else:
            hub.invoke("a", "echo")
            told = hub.invoke("a", "roots")
        assert told["roots"] == [{"result": {"roots": []}}] and "ping" not in server.methods()

    def test_a_ping_that_is_refused_is_an_answer(self, box):
        server = fake(box, refuse={"ping": {"code": -32601, "message": "no ping"}})
        hub = start(box, [entry("a", server)], capabilities={"roots": {}})
        begun = time.monotonic()
        assert hub.invoke("a", "echo", x=1)["echo"] == {"x": 1}
        assert time.monotonic() - begun < 1.5 and server.methods().count("ping") == 1

    @pytest.mark.slow
    def test_a_ping_that_is_never_answered_costs_two_seconds(self, box):
        """Once for a process."""
        server = fake(box, hang_at=["ping"])
        hub = start(box, [entry("a", server)], capabilities={"roots": {}})
        begun = time.monotonic()
        assert hub.invoke("a", "echo", x=1)["echo"] == {"x": 1}
        first = time.monotonic() - begun
        assert 1.5 < first < 4
        assert hub.invoke("a", "echo", x=2)["echo"] == {"x": 2} and time.monotonic() - begun - first < 1

    def test_a_server_that_dies_with_its_question(self, box):
        """The call ends with the reason."""
        server = fake(box, roots_at_start=True, die_at={"ping": "exit7"})
        hub = start(box, [entry("a", server)], shaken=False)
        call = command("a", "echo")
        result, _ = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"roots": []})
        assert result["isError"] is True and "7" in result["content"][0]["text"]

    @pytest.mark.parametrize("times", [1, 20])
    def test_roots_that_are_asked_for_between_calls(self, box, times):
        """server-everything asks by a timer: the next call carries the question, and waits for the answer.

        Of very many such questions the first few; the others are told none.
        """
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        hub.result(begin(hub, command("a", "aside", id="by", method=ROOTS, behind=True, later=0.05, times=times)))
        until(lambda: server.events("asked"), what="the questions")
        for _ in range(2):
            hub.barrier()
        call = command("a", "echo", x=1)
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"roots": [one["method"]]})
        assert result["echo"] == {"x": 1} and rounds >= 1
        idents = ["by"] + ["by-%d" % n for n in range(1, times)]
        told = [until_heard(server, ident)["result"]["roots"] for ident in idents]
        assert told[0] == [ROOTS] and all(one in ([ROOTS], []) for one in told) and told.count([]) == max(0, times - 8)
        position = [one.get("method") or one.get("id") for one in server.lines()]
        assert position.index("by") < len(position) - 1 - position[::-1].index("tools/call")

    def test_roots_that_a_client_does_not_offer(self, box):
        """They are told at once that there are none, call or no call."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        params = command("a", "aside", id="by", method=ROOTS, behind=True, later=0.05)
        hub.result(begin(hub, params, offers={"elicitation": {}}))
        assert until_heard(server, "by")["result"] == {"roots": []}

    def test_an_answer_before_the_ping_is_answered(self, box):
        """A9: the moment that a server takes to settle its roots is given to it all the same."""
        server = fake(box, roots_at_start=True, delay={"ping": 0.3})
        hub = start(box, [entry("a", server)], capabilities={"roots": {}})
        ident = hub.start_invoke("a", "since_ping")
        request = hub.until_message(lambda found: found.get("method") == ROOTS)
        hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": []}})
        assert hub.result(ident)["s"] >= 0.39  # 0.3 for the ping, 0.1 for the roots

    def test_two_servers_of_one_batch(self, box):
        """A8: several keys in one answer, or one after the other."""
        servers = [fake(box, roots_at_start=True, tools=n + 1) for n in range(2)]
        hub = start(box, [entry("s%d" % n, server) for n, server in enumerate(servers)] + [entry("s2", fake(box))],
                    shaken=False)
        params = {"name": "list_commands", "arguments": {"servers": ["s0", "s1", "s2"]}}
        result, rounds = answer_all(hub, params, hub.result(begin(hub, params)), lambda one: {"roots": []})
        found = json.loads(result["content"][0]["text"])
        assert [len(found["s%d" % n]) for n in range(3)] == [1, 2, 1] and 1 <= rounds <= 2
        assert [server.methods().count("tools/list") for server in servers] == [1, 1]
        for n in range(2):
            told = hub.result(begin(hub, command("s%d" % n, "roots")))
            assert told == {"roots": [{"result": {"roots": []}}], "early": [], "resultType": "complete"}


# ------------------------------------------------------------------------ B: servers of 2026-07-28 only

ALL = {"tools": {}, "prompts": {}, "resources": {}}


def modern_fake(box, code=-32022, **flags):
    return fake(box, modern_only=code, caps=ALL, **flags)


def questions(*methods):
    return {"k%d" % n: {"method": method, "params": {"message": "no %d" % n}} for n, method in enumerate(methods)}


class TestModernServer:
    @pytest.fixture(scope="class")
    def server(self, shelf):
        return modern_fake(shelf, tools=3, prompt_names=["p"], resource_uris=["mem://x"])

    @pytest.fixture(scope="class")
    def hub(self, shelf, server):
        """Its client shook hands and offers two of the three; requests of 2026-07-28 offer what they say."""
        return start(shelf, [entry("a", server, forwardPrompts=True)], resources=True,
                     capabilities={"roots": {"listChanged": True}, "sampling": {}, "experimental": {}})

    def test_first_of_all_nothing_starts_it(self, hub, server):
        assert hub.row("a")["state"] == "asleep" and hub.barrier() == [] and server.starts() == 0

    def test_a_call(self, hub, server):
        """One process: initialize is refused, server/discover answered, then the call; no `initialized`, no ping."""
        result = hub.invoke("a", "tool0", x=1)
        assert (result["called"], result["arguments"]) == ("tool0", {"x": 1})
        methods = server.methods()
        assert methods[0] in ("initialize", "server/discover") and "server/discover" in methods
        assert "notifications/initialized" not in methods and "ping" not in methods and server.starts() == 1
        assert hub.row("a")["state"] == "live" and hub.row("a")["healthy"] is True

    def test_meta_of_each_request(self, hub, server):
        """protocol.md 2.4: version, client and what can be asked; of the client's handshake here."""
        hub.invoke("a", "tool0")
        hub.data("list_commands", server="a")
        hub.ask("prompts/list")
        found = [one for one in server.lines() if one["method"] != "initialize" and one["id"] is not None]
        assert {one["method"] for one in found} >= {"server/discover", "tools/call", "tools/list", "prompts/list"}
        for one in found:
            meta = one["params"]["_meta"]
            assert meta[KEY + "protocolVersion"] == MODERN
            assert meta[KEY + "clientInfo"]["name"] == "mcp-lazy-hub"
            assert re.match(r"\d+\.\d+\.\d+", meta[KEY + "clientInfo"]["version"])
            assert meta[KEY + "clientCapabilities"] == {"roots": {"listChanged": True}, "sampling": {}}

    def test_meta_of_a_request_of_2026(self, hub):
        """What this request offers, and its other members."""
        offers = {"elicitation": {"form": {}}, "extensions": {"x": 1}}
        result = hub.result(begin(hub, command("a", "tool1"), offers=offers, traceparent="00-1",
                                  **{"example.com/x": [1.0, None]}))
        meta = result["params"]["_meta"]
        assert meta[KEY + "clientCapabilities"] == {"elicitation": {"form": {}}}
        assert (meta["traceparent"], meta["example.com/x"]) == ("00-1", [1.0, None])
        assert meta[KEY + "protocolVersion"] == MODERN
        assert meta[KEY + "clientInfo"]["name"] == "mcp-lazy-hub" and "progressToken" not in meta

    def test_other_members_of_a_handshake_clients_meta(self, hub):
        meta = hub.invoke("a", "tool1", meta={"k": "v"})["params"]["_meta"]
        assert meta["k"] == "v" and meta[KEY + "protocolVersion"] == MODERN

    @pytest.mark.parametrize("modern", [True, False])
    def test_progress(self, hub, modern):
        """The caller's own token comes back."""
        ident = (begin(hub, command("a", "progress"), progressToken="mine") if modern else
                 hub.start_invoke("a", "progress", {}, {"progressToken": "mine"}))
        hub.result(ident)
        assert [one["params"]["progressToken"] for one in hub.kept] == ["mine"]
        del hub.kept[:]

    def test_discovery(self, hub):
        assert [one["name"] for one in hub.data("list_commands", server="a")] == ["tool0", "tool1", "tool2"]
        found = hub.data("describe_commands", server="a", command_names=["tool2"])
        assert found == [{"name": "tool2", "inputSchema": {"type": "object"}}]
        assert len(hub.data("list_commands", servers=["a"])["a"]) == 3 and hub.row("a")["tools_count"] == 3

    def test_prompts_and_resources(self, hub):
        assert [one["name"] for one in hub.ask("prompts/list")["prompts"]] == ["a::p"]
        got = hub.ask("prompts/get", {"name": "a::p", "arguments": {"who": "me"}})["asked"]
        assert (got["name"], got["arguments"]) == ("p", {"who": "me"})
        uri = hub.ask("resources/list")["resources"][0]["uri"]
        assert hub.ask("resources/read", {"uri": uri})["asked"]["uri"] == "mem://x"
        assert hub.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"].endswith("mem://x{x}")
        result = hub.result(begin(hub, {"uri": uri}, "resources/read"))
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")

    def test_an_error_of_it_is_a_failed_call(self, hub, server):
        """G9.2: and no restart."""
        failure = hub.invoke_fails("a", "rpc", raw='{"code":-32042,"message":"login needed"}')
        assert "login needed" in failure.text and server.starts() == 1

    def test_a_cancel(self, hub, server):
        """G4.3."""
        ident = hub.start_invoke("a", "hang", {"mark": 1})
        below = until(lambda: [one["id"] for one in calls_of(server)
                               if one["params"].get("arguments") == {"mark": 1}])[0]
        hub.send(message("notifications/cancelled", params={"requestId": ident}))
        until(lambda: below in cancelled_at(server), what="the cancel below")
        assert hub.barrier() == []

    # ------------------------------------------------------------------------ what it asks
    def test_a_client_with_a_handshake_is_asked_by_requests(self, hub, server):
        """Then the call is sent again, with the answers byte for byte and the server's own requestState."""
        state = "its own \u00fc\"\\ "
        ident = hub.start_invoke("a", "ask", {"questions": questions(SAMPLE, ROOTS), "state": state})
        requests = [hub.until_message(lambda found: found.get("method") == method) for method in (ROOTS, SAMPLE)]
        assert [one["params"] for one in requests] == [{"message": "no 1"}, {"message": "no 0"}]
        for one in requests:
            hub.send({"jsonrpc": "2.0", "id": one["id"], "result": {"to": one["method"], "n": 1.0}})
        result = hub.result(ident)
        assert result["content"] == [] and "inputRequests" not in result and "requestState" not in result
        first, second = result["rounds"]
        assert "inputResponses" not in first and "requestState" not in first
        assert second["inputResponses"] == {"k0": {"to": SAMPLE, "n": 1.0}, "k1": {"to": ROOTS, "n": 1.0}}
        assert second["requestState"] == state + "1"
        assert (first["name"], first["arguments"]) == (second["name"], second["arguments"])
        ids = [one["id"] for one in calls_of(server)]
        assert len(set(map(json.dumps, ids))) == len(ids)

    def test_a_client_of_2026_is_asked_in_results(self, hub):
        """By the hub's own state; the server's is nobody else's business."""
        call = command("a", "ask", questions=questions(ELICIT), state="s-")
        found = asked(hub, begin(hub, call))
        assert only(found)[1] == {"method": ELICIT, "params": {"message": "no 0"}}
        assert found["requestState"] != "s-1" and "s-1" not in json.dumps(found)
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept", "content": {"n": 1.0}}}))
        assert result["resultType"] == "complete"
        assert result["rounds"][1]["inputResponses"] == {"k0": {"action": "accept", "content": {"n": 1.0}}}
        assert result["rounds"][1]["requestState"] == "s-1" and hub.barrier() == []
        assert hub.error(again(hub, call, found, {}))["code"] == -32602

    def test_several_rounds(self, hub):
        call = command("a", "ask", questions=questions(ELICIT, SAMPLE), state="r", rounds=4)
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"to": one["method"]})
        assert 4 <= rounds <= 8 and len(result["rounds"]) == 5
        assert [one.get("requestState") for one in result["rounds"]] == [None, "r1", "r2", "r3", "r4"]
        both = {"k0": {"to": ELICIT}, "k1": {"to": SAMPLE}}
        assert all(one["inputResponses"] == both for one in result["rounds"][1:])

    def test_questions_that_were_left_out_are_asked_again_by_the_hub(self, hub):
        """The server gets all answers at once, or is not called."""
        call = command("a", "ask", questions=questions(ELICIT, SAMPLE), state="l")
        found = asked(hub, begin(hub, call))
        result, _ = answer_all(hub, call, hub.result(again(hub, call, found, {})), lambda one: {"to": one["method"]})
        assert len(result["rounds"]) == 2 and set(result["rounds"][1]["inputResponses"]) == {"k0", "k1"}

    def test_without_a_state_of_its_own(self, hub):
        """protocol.md 2.4: then none may be sent."""
        call = command("a", "ask", questions=questions(ELICIT))
        found = asked(hub, begin(hub, call))
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert "requestState" not in result["rounds"][1]
        assert result["rounds"][1]["inputResponses"] == {"k0": {"action": "accept"}}

    @pytest.mark.parametrize("modern", [True, False])
    def test_a_state_without_questions(self, hub, modern):
        """protocol.md 2.4: one of the two is enough; there is nobody to ask, the call is sent again."""
        parameters = {"state": "only", "rounds": 2}
        ident = begin(hub, command("a", "ask", **parameters)) if modern else hub.start_invoke("a", "ask", parameters)
        rounds = hub.result(ident)["rounds"]
        assert [one.get("requestState") for one in rounds] == [None, "only1", "only2"] and hub.barrier() == []

    @pytest.mark.parametrize("method", [ELICIT, SAMPLE])
    @pytest.mark.parametrize("modern", [True, False])
    def test_what_nobody_can_be_asked_fails_the_call(self, hub, server, modern, method):
        """And says so; the other question is not put to anybody either."""
        before = len(calls_of(server))
        offers, missing = ({"roots": {}}, method) if modern else ({}, ELICIT)
        parameters = {"questions": questions(missing), "state": "n"}
        ident = (begin(hub, command("a", "ask", **parameters), offers=offers) if modern else
                 hub.start_invoke("a", "ask", parameters))
        failure = hub.failed(ident)
        assert missing in failure.text and re.search(r"\ba\b", failure.text)
        assert len(calls_of(server)) == before + 1 and hub.barrier() == []

    def test_an_error_of_the_client_fails_the_call(self, hub, server):
        """It can be no inputResponse; what it said can be read."""
        before = len(calls_of(server))
        ident = hub.start_invoke("a", "ask", {"questions": questions(SAMPLE), "state": "e"})
        request = hub.until_message(lambda found: found.get("method") == SAMPLE)
        hub.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "the user said no"}})
        assert "the user said no" in hub.failed(ident).text and len(calls_of(server)) == before + 1

    def test_a_cancel_of_a_call_that_asks(self, hub, server):
        """A client with a handshake is told to forget the question; the server is not called again."""
        before = len(calls_of(server))
        ident = hub.start_invoke("a", "ask", {"questions": questions(SAMPLE), "state": "c"})
        request = hub.until_message(lambda found: found.get("method") == SAMPLE)
        hub.send(message("notifications/cancelled", params={"requestId": ident}))
        told = hub.until_message(lambda found: found.get("method") == "notifications/cancelled")
        assert told["params"]["requestId"] == request["id"]
        hub.send({"jsonrpc": "2.0", "id": request["id"], "result": {}})
        assert hub.barrier() == [] and len(calls_of(server)) == before + 1

    def test_for_ever(self, hub, server):
        """More than 16 rounds are too many: isError, and the reason."""
        before = len(calls_of(server))
        call = command("a", "ask", questions=questions(ELICIT), state="f", for_ever=True)
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"action": "accept"})
        assert result["isError"] is True and result["resultType"] == "complete" and 15 <= rounds <= 17
        assert "16" in result["content"][0]["text"] and 16 <= len(calls_of(server)) - before <= 18
        before = len(calls_of(server))
        failure = hub.invoke_fails("a", "ask", state="g", for_ever=True)
        assert "16" in failure.text and 16 <= len(calls_of(server)) - before <= 18


@pytest.mark.parametrize("code", [-32022, -32601])
@pytest.mark.parametrize("modern", [True, False])
def test_a_modern_server_behind_either_refusal(box, code, modern):
    """B: -32022 with what it supports, or a plain unknown method; for a client of either era."""
    server = modern_fake(box, code)
    hub = start(box, [entry("a", server)], shaken=not modern)
    if modern:
        result = hub.result(begin(hub, command("a", "tool0", x=1)))
    else:
        result = hub.invoke("a", "tool0", x=1)
    assert result["called"] == "tool0" and server.starts() == 1


def test_it_is_recorded_for_the_next_hub(box):
    """L6: the next one lists it asleep, and calls it too."""
    server = modern_fake(box, tools=3)
    hub = start(box, [entry("a", server)])
    hub.data("list_commands", server="a")
    hub.finish()
    starts = server.starts()
    second = start(box, [entry("a", server)])
    assert len(second.data("list_commands", server="a")) == 3 and second.row("a")["tools_count"] == 3
    assert second.data("describe_commands", server="a", command_names=["tool2"])[0]["name"] == "tool2"
    assert server.starts() == starts and harness.children(second.pid) == []
    assert second.invoke("a", "tool2", x=1)["called"] == "tool2"


def test_what_is_recorded_has_the_key_of_its_era(box):
    """L6, A17.4: the list and the discovery; a relay's client of 2026-07-28 is answered from it."""
    server = modern_fake(box, tools=3)
    hub = start(box, [entry("a", server)])
    hub.data("list_commands", server="a")
    hub.finish()
    starts, (kept,) = server.starts(), box.recording()["entries"]
    assert (kept["era"], kept["protocolVersion"]) == ("modern", MODERN) and list(kept["lists"]) == ["tools/list"]
    relay = box.relay(server)
    for method in ("server/discover", "tools/list"):
        result = relay.ask(method, {"_meta": {KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}}})
        assert result["resultType"] == "complete"
    assert len(result["tools"]) == 3 and server.starts() == starts


@pytest.mark.parametrize("found", [["2027-01-01"], [], "2026-07-28", None, -32601, -32603], ids=json.dumps)
def test_a_refusal_without_a_version_of_ours(box, found):
    """It is told apart from what is broken: by the name of what was refused."""
    server = modern_fake(box, -32022 if not isinstance(found, int) else -32601, discover=found)
    hub = start(box, [entry("a", server), entry("b", fake(box))])
    failure = hub.invoke_fails("a", "tool0")
    assert failure.code == "SERVER_UNREACHABLE" and re.search(r"\ba\b", failure.text)
    assert hub.row("a")["state"] == "failing" and calls_of(server) == []
    assert hub.invoke("b", "echo", x=1) == {"echo": {"x": 1}}


@pytest.mark.slow
def test_a_discovery_that_is_never_answered(box):
    """The start has its limit."""
    server = modern_fake(box, discover="silence")
    hub = start(box, [entry("a", server, startTimeout=300)])
    assert hub.invoke_fails("a", "x").code == "SERVER_TIMEOUT"
    until(lambda: not alive(server.pid()), what="the end of what never started")


def test_a_server_of_both_eras_is_shaken_hands_with(box):
    """I16: only a refusal leads to server/discover."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    assert hub.result(begin(hub, command("a", "echo", x=1)))["echo"] == {"x": 1}
    assert "server/discover" not in server.methods() and "notifications/initialized" in server.methods()


@pytest.mark.parametrize("refuse", [-32603, -32602, -32000])
def test_another_refusal_is_a_failed_start(box, refuse):
    server = fake(box, refuse={"initialize": {"code": refuse, "message": "go away"}})
    hub = start(box, [entry("a", server)])
    assert "go away" in hub.invoke_fails("a", "echo").text and calls_of(server) == []


def test_a_modern_server_that_asks_for_a_prompt_and_a_resource(box):
    """protocol.md 2.4: input_required on all three methods."""
    server = modern_fake(box, prompt_names=["p"], resource_uris=["mem://x"], ask_at={
        "prompts/get": ["pk", ELICIT, {"message": "p?"}], "resources/read": ["rk", ELICIT, {"message": "r?"}]})
    hub = start(box, [entry("a", server, forwardPrompts=True)], resources=True, shaken=False)
    uri = hub.result(begin(hub, {}, "resources/list"))["resources"][0]["uri"]
    for method, params, key in (("prompts/get", {"name": "a::p"}, "pk"), ("resources/read", {"uri": uri}, "rk")):
        found = asked(hub, begin(hub, params, method))
        result = hub.result(again(hub, params, found, {only(found)[0]: {"action": "accept"}}, method=method))
        assert result["asked"]["inputResponses"] == {key: {"action": "accept"}} and result["resultType"] == "complete"
        assert result["asked"]["requestState"] == "at"
    assert hub.error(begin(hub, {"name": "a::p"}, "prompts/get", offers={}))["message"]


def test_a_modern_server_that_dies_while_its_client_is_asked(box):
    """Nothing of it is open then: the call is sent again to a new process, or fails with the reason."""
    server = modern_fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    call = command("a", "ask", questions=questions(ELICIT), state="d")
    found = asked(hub, begin(hub, call))
    os.kill(server.pid(), signal.SIGKILL)
    until(lambda: not alive(server.pid()))
    result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
    assert result["resultType"] == "complete"
    assert result.get("isError") or result["rounds"][-1]["requestState"] == "d1"
    assert hub.result(begin(hub, command("a", "tool0")))["called"] == "tool0"


class TestModernServerThatWaits:
    """A2: between two rounds nothing is open at the server; the call is open all the same."""

    @staticmethod
    def asking(box, **more):
        server = modern_fake(box)
        path = config_file(box, [entry("a", server, **more), entry("b", ["true"])])
        hub = start_at(box, path, shaken=False)
        call = command("a", "ask", questions=questions(ELICIT), state="w")
        return server, path, hub, call, asked(hub, begin(hub, call))

    @staticmethod
    def leads_on(server, hub, call, found):
        result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
        assert [one.get("requestState") for one in result["rounds"]] == [None, "w1"] and server.starts() == 1
        return True

    @pytest.mark.slow
    def test_no_idle_stop(self, box):
        server, _, hub, call, found = self.asking(box, idleStop=60)
        end = time.monotonic() + 0.3
        until(lambda: time.monotonic() > end)
        assert alive(server.pid()) and self.leads_on(server, hub, call, found)
        until(lambda: not alive(server.pid()), what="the idle stop behind it")
        assert hub.result(begin(hub, command("a", "tool0")))["called"] == "tool0" and server.starts() == 2

    @pytest.mark.slow
    def test_no_limit(self, box):
        server, _, hub, call, found = self.asking(box, requestTimeout=120)
        end = time.monotonic() + 0.3
        until(lambda: time.monotonic() > end)
        assert self.leads_on(server, hub, call, found)

    @pytest.mark.parametrize("how", ["removed", "modified"])
    def test_a_reload_lets_it_end(self, box, how):
        server, path, hub, call, found = self.asking(box)
        rest = [entry("b", ["true"])] + ([entry("a", server, env={"X": "1"})] if how == "modified" else [])
        path.write_text(json.dumps({"servers": rest}))
        hub.signal(signal.SIGHUP)
        until(lambda: [one for one in hub.log() if one.get("event") == "config_reload_success"], what="the reload")
        assert self.leads_on(server, hub, call, found)
        until(lambda: not alive(server.pid()), what="the end of the one that was replaced")

    @pytest.mark.parametrize("end", ["end of input", "SIGTERM"])
    def test_the_end_of_the_hub(self, box, end):
        server, _, hub, _, _ = self.asking(box)
        if end == "SIGTERM":
            hub.signal(signal.SIGTERM)
        else:
            hub.close()
        assert hub.wait() == 0 and not alive(server.pid()) and len(calls_of(server)) == 1


def test_all_pages_of_a_modern_server(box):
    """G7.4."""
    hub = start(box, [entry("a", modern_fake(box, tools=25, page=10))])
    assert [one["name"] for one in hub.data("list_commands", server="a")] == ["tool%d" % n for n in range(25)]


def test_a_list_that_asks_is_no_list(box):
    """protocol.md 2.4: only three methods may; nothing of it is recorded, and calls go on."""
    path = box.path / "tools"
    path.write_text('{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}')
    server = modern_fake(box, tools_file=str(path))
    hub = start(box, [entry("a", server)], shaken=False)
    failure = hub.failed(begin(hub, {"name": "list_commands", "arguments": {"server": "a"}}))
    assert failure.code == "DISCOVERY_FAILED" and failure.result["resultType"] == "complete"
    assert all("input_required" not in one.read_text() for one in box.recordings())
    assert hub.result(begin(hub, command("a", "tool0")))["called"] == "tool0"


def test_a_modern_server_that_dies_in_a_call(box):
    server = modern_fake(box)
    hub = start(box, [entry("a", server)])
    assert hub.invoke_fails("a", "die", how="exit9").code == "SERVER_CRASHED"
    assert hub.invoke("a", "tool0")["called"] == "tool0" and server.starts() == 2


# -------------------------------------------------------------------------------------- broken kinds

BROKEN = {
    "neither": '{"resultType":"input_required"}',
    "no object": '{"resultType":"input_required","inputRequests":[]}',
    "null": '{"resultType":"input_required","inputRequests":null,"requestState":"s"}',
    "a number": '{"resultType":"input_required","inputRequests":7,"requestState":"s"}',
    "a request that is none": '{"resultType":"input_required","inputRequests":{"k":7}}',
    "without a method": '{"resultType":"input_required","inputRequests":{"k":{"params":{}}}}',
    "a method that is none": '{"resultType":"input_required","inputRequests":{"k":{"method":7}}}',
    "an unknown method": '{"resultType":"input_required","inputRequests":{"k":{"method":"tools/call","params":{}}}}',
    "a state that is none": '{"resultType":"input_required","inputRequests":{},"requestState":7}',
    "an unknown type": '{"resultType":"later"}',
    "a type that is none": '{"resultType":7,"content":[]}'}


class TestBrokenQuestions:
    @pytest.mark.parametrize("kind", BROKEN)
    @pytest.mark.parametrize("modern", [True, False])
    def test_a_modern_server(self, box, kind, modern):
        """An isError result that names it, or what it says is the result; never an input_required that is none."""
        server = modern_fake(box, io_raw=BROKEN[kind])
        hub = start(box, [entry("a", server, requestTimeout=2000)], shaken=not modern,
                    capabilities={"elicitation": {}, "roots": {}, "sampling": {}})
        ident = begin(hub, command("a", "ask")) if modern else hub.start_invoke("a", "ask")
        result = hub.result(ident)
        assert result.get("resultType", "complete") == "complete" or not modern and "input_required" not in BROKEN[kind]
        if "input_required" in BROKEN[kind]:
            assert result["isError"] is True and re.search(r"\ba\b", result["content"][0]["text"])
        assert hub.result(begin(hub, command("a", "tool0")))["called"] == "tool0" and server.starts() == 1
        assert hub.kept == []

    @pytest.mark.parametrize("raw", ['{"resultType":"input_required","requestState":"s"}',
                                     '{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}'])
    @pytest.mark.parametrize("modern", [True, False])
    def test_a_server_with_a_handshake_that_says_input_required(self, box, raw, modern):
        """It is no member of its era: a client is given no state that leads nowhere, and a call is sent once (G8.5)."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=not modern)
        if modern:
            result = hub.result(begin(hub, command("a", "result", raw=raw), offers={}))
            assert result["resultType"] == "complete"
        else:
            result = hub.invoke("a", "result", raw=raw)
            assert result.get("isError") or result == json.loads(raw)  # noise to a client that knows no such member
        assert len(calls_of(server)) == 1

    @pytest.mark.parametrize("line", ['{"jsonrpc":"2.0","id":"z","method":"elicitation/create","params":7}',
                                      '{"jsonrpc":"2.0","id":"z","method":"elicitation/create","params":[1]}',
                                      '{"jsonrpc":"2.0","id":"z","method":"elicitation/create","params":null}'])
    def test_a_question_whose_params_are_none(self, box, line):
        """Asked as it is, or refused; an answer reaches the server either way."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        call = command("a", "client_raw", id="z", raw=line)
        result, _ = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"action": "decline"})
        assert set(result["answer"]) & {"result", "error"} and quiet(hub)

    def test_a_question_that_is_asked_twice_with_one_id(self, box):
        """The server's own fault: the call ends all the same, and the hub goes on."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        line = '{"jsonrpc":"2.0","id":"w","method":"elicitation/create","params":{}}'
        call = command("a", "client_raw", id="w", raw=line + "\n" + line)
        result, _ = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"action": "decline"})
        assert result["answer"]["id"] == "w" and quiet(hub)

    def test_a_question_of_nobodys_call(self, box):
        """Nothing works for a request of the client any more: it is refused, and not kept for the next."""
        server = fake(box)
        hub = start(box, [entry("a", server)], shaken=False)
        assert hub.result(begin(hub, command("a", "aside", id="n", method=ELICIT, behind=True, later=0.05)))["done"]
        assert "error" in until_heard(server, "n") and quiet(hub)
        assert hub.result(begin(hub, command("a", "echo", x=1)))["echo"] == {"x": 1}

    @pytest.mark.slow
    def test_a_thousand_questions(self, box):
        """One call that asks without end of sense: all are answered, in few rounds."""
        hub = start(box, [entry("a", fake(box))], shaken=False)
        call = command("a", "several", questions=[["k%d" % n, ELICIT, {"n": n}] for n in range(1000)])
        result, rounds = answer_all(hub, call, hub.result(begin(hub, call)), lambda one: {"n": one["params"]["n"]})
        assert rounds < 40 and [result["answers"]["k%d" % n]["result"]["n"] for n in range(1000)] == list(range(1000))

    @pytest.mark.slow
    def test_a_large_question_and_a_large_answer(self, box):
        hub = start(box, [entry("a", fake(box))], shaken=False)
        call = client("big", text="x" * (1 << 20))
        found = asked(hub, begin(hub, call))
        assert len(only(found)[1]["params"]["text"]) == 1 << 20
        result = hub.result(again(hub, call, found, {only(found)[0]: {"text": "y" * (1 << 20)}}))
        assert len(result["answer"]["result"]["text"]) == 1 << 20


@pytest.mark.slow
def test_calls_that_nobody_leads_on_are_bounded(box):
    """A client that never comes back: the hub stays small and goes on to answer, and ends at once."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=False)
    found = [hub.answer(begin(hub, client("b%d" % n))) for n in range(400)]
    parked = [one for one in found if one.get("result", {}).get("resultType") == "input_required"]
    assert len(parked) >= 100 and all("error" in one or one["result"].get("isError") or one in parked for one in found)
    assert harness.memory_kib(hub.pid) < 60 * 1024
    assert hub.result(begin(hub, command("a", "echo", x=1)))["echo"] == {"x": 1}
    hub.close()
    assert hub.wait() == 0


# --------------------------------------------------------------------- C: subscriptions of a modern client

SUMMARIES = {"enabled": True}


def listen(hub, ident, **wanted):
    hub.request("subscriptions/listen", {"notifications": wanted, "_meta": {
        KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}}}, ident=ident)
    return hub.until_message(lambda found: found.get("method") == "notifications/subscriptions/acknowledged")["params"]


def changed_file(hub, path, text):
    """The summaries change by a reload."""
    before = len([one for one in hub.log() if one.get("event") == "config_reload_success"])
    path.write_text(path.read_text().replace("the server a", text))
    hub.signal(signal.SIGHUP)
    until(lambda: len([one for one in hub.log() if one.get("event") == "config_reload_success"]) > before,
          what="the reload")


class TestListen:
    @pytest.mark.parametrize("wanted, summaries, honoured", [
        ({"toolsListChanged": True}, True, {"toolsListChanged": True}), ({"toolsListChanged": True}, False, {}),
        ({}, True, {}), ({"toolsListChanged": False}, True, {}), ({"toolsListChanged": 1}, True, {}),
        ({"promptsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["mem://x"],
          "taskIds": ["t"], "toolsListChanged": True}, True, {"toolsListChanged": True})], ids=json.dumps)
    @pytest.mark.parametrize("ident", ["listen:0", 7])
    def test_it_is_acknowledged(self, box, wanted, summaries, honoured, ident):
        """protocol.md 2.4: at once, with what is honoured, and no server is started for it."""
        server = fake(box)
        top = {"embedServerSummaries": SUMMARIES} if summaries else {}
        hub = start(box, [entry("a", server)], shaken=False, **top)
        params = listen(hub, ident, **wanted)
        assert params == {"_meta": {SUBSCRIPTION: ident}, "notifications": honoured}
        assert type(params["_meta"][SUBSCRIPTION]) is type(ident)
        assert quiet(hub) and server.starts() == 0

    def test_a_change_is_told_to_those_who_asked(self, box):
        """Each on its own stream, tagged with its id; the others hear nothing."""
        path = config_file(box, [entry("a", fake(box))], embedServerSummaries=SUMMARIES)
        hub = start_at(box, path, shaken=False)
        for ident, wanted in (("one", {"toolsListChanged": True}), (2, {"toolsListChanged": True}), ("none", {})):
            listen(hub, ident, **wanted)
        changed_file(hub, path, "another text")
        hub.result(begin(hub, {"name": "list_servers"}))
        told = [hub.kept.pop(0) for _ in range(len(hub.kept))]
        assert [one["method"] for one in told] == ["notifications/tools/list_changed"] * 2
        assert [one["params"]["_meta"][SUBSCRIPTION] for one in told] == ["one", 2]
        assert "another text" in hub.result(begin(hub, {}, "tools/list"))["tools"][0]["description"]

    def test_no_change_is_told_without_a_subscription(self, box):
        path = config_file(box, [entry("a", fake(box))], embedServerSummaries=SUMMARIES)
        hub = start_at(box, path, shaken=False)
        hub.result(begin(hub, {}, "tools/list"))
        changed_file(hub, path, "another text")
        assert quiet(hub)

    def test_a_client_with_a_handshake_is_told_as_before(self, box):
        path = config_file(box, [entry("a", fake(box))], embedServerSummaries=SUMMARIES)
        hub = start_at(box, path)
        changed_file(hub, path, "another text")
        assert [one["method"] for one in hub.barrier()] == ["notifications/tools/list_changed"]

    def test_a_cancel_ends_it_without_an_answer(self, box):
        path = config_file(box, [entry("a", fake(box))], embedServerSummaries=SUMMARIES)
        hub = start_at(box, path, shaken=False)
        listen(hub, "gone", toolsListChanged=True)
        listen(hub, "stays", toolsListChanged=True)
        hub.send(message("notifications/cancelled", params={"requestId": "gone"}))
        assert quiet(hub)
        changed_file(hub, path, "another text")
        hub.result(begin(hub, {"name": "list_servers"}))
        assert [one["params"]["_meta"][SUBSCRIPTION] for one in hub.kept] == ["stays"]
        listen(hub, "gone", toolsListChanged=True)  # the id is free again

    @pytest.mark.parametrize("end", ["end of input", "SIGTERM"])
    def test_the_end_of_the_hub_is_its_result(self, box, end):
        """Soon: an open one is no call that has to be waited for."""
        hub = start(box, [entry("a", fake(box))], shaken=False, embedServerSummaries=SUMMARIES)
        for ident in ("x", 5):
            listen(hub, ident, toolsListChanged=True)
        begun = time.monotonic()
        if end == "SIGTERM":
            hub.signal(signal.SIGTERM)
        else:
            hub.close()
        answers = {one["id"]: one["result"] for one in hub.rest()}
        assert answers == {ident: {"resultType": "complete", "_meta": {SUBSCRIPTION: ident}} for ident in ("x", 5)}
        assert hub.wait() == 0 and time.monotonic() - begun < 1.5

    @pytest.mark.parametrize("params", [{}, {"notifications": 7}, {"notifications": None}], ids=json.dumps)
    def test_notifications_that_are_none(self, box, params):
        """Nothing is honoured, or it is an error; not silence."""
        hub = start(box, [entry("a", fake(box))], shaken=False, embedServerSummaries=SUMMARIES)
        ident = begin(hub, params, "subscriptions/listen")
        found = hub.read()
        assert found.get("error", {}).get("code") == -32602 and found["id"] == ident or \
            found["params"]["notifications"] == {}, found

    def test_a_client_with_a_handshake_has_no_such_method(self, box):
        """protocol.md 3: -32601."""
        hub = start(box, [entry("a", fake(box))], embedServerSummaries=SUMMARIES)
        assert hub.error(hub.request("subscriptions/listen", {"notifications": {}}))["code"] == -32601


@pytest.mark.parametrize("modern", [True, False])
def test_questions_without_end(box, modern):
    """Those that are open are bounded for each server, whatever its client answers; the rest is refused at once."""
    server = fake(box)
    hub = start(box, [entry("a", server)], shaken=not modern, capabilities=OFFERS)
    call = command("a", "aside", id="q", method=ELICIT, times=1500)
    ident = begin(hub, call) if modern else hub.request("tools/call", call)
    until(lambda: len(server.events("heard")) >= 400, what="the refusals")
    refused = [one["message"] for one in server.events("heard") if "error" in one["message"]]
    assert refused and "too many" in refused[0]["error"]["message"]
    if modern:
        result = hub.result(ident)
        assert len(result.get("inputRequests", ())) <= 1024
    else:
        assert hub.result(ident)["done"] is True
        assert len([one for one in hub.kept if one.get("method") == ELICIT]) <= 1024


def test_a_question_outlives_the_call_that_carries_it(box):
    """A server with a handshake asks for A, B carries it and ends: the client's answer reaches A all the same."""
    hub = start(box, [entry("a", fake(box))], shaken=False)
    first = begin(hub, command("a", "upon", id="q", method=ELICIT))
    late, now = command("a", "late"), command("a", "now")
    second, third = begin(hub, late), hub.result(begin(hub, now))
    is_in_third = third["resultType"] == "input_required"  # else its answer came before its client could be asked
    call, found = (now, third) if is_in_third else (late, asked(hub, second))
    assert hub.result(begin(hub, command("a", "flush"), offers={}))["flushed"]
    result = hub.result(again(hub, call, found, {only(found)[0]: {"action": "accept"}}))
    assert result.get("now") or result.get("late")
    assert hub.result(first)["answer"]["result"] == {"action": "accept"}


def test_a_modern_server_whose_tools_change(box):
    """It tells of that on a stream only, which the hub opens where the server says that it has such news."""
    server = fake(box, modern_only=-32022, tools=1, announce=True)
    hub = start(box, [entry("a", server)])
    assert len(hub.data("list_commands", server="a")) == 1
    hub.invoke("a", "grow", by=2)
    assert len(hub.data("list_commands", server="a")) == 3
    assert server.methods().count("subscriptions/listen") == 1
    other = modern_fake(box)
    start(box, [entry("a", other)]).data("list_commands", server="a")
    assert "subscriptions/listen" not in other.methods()
