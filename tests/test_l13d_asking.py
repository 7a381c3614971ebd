"""What servers ask: one request of a client of 2026-07-28 over the requests that carry it (protocol.md 2.4, 3.4)."""

import json

import pytest

import mcp_lazy as lazy

PARTS = {"name": b'"x"', "arguments": b'{"a":1.0}', "_meta": b"{}"}


class World:
    """A loop, the parked calls, and one call whose work the test ends."""

    def __init__(self, limit_s=60.0):
        self.loop = lazy.Loop()
        self.tasks = lazy.Tasks(self.loop)
        self.dialogues = lazy.Dialogues(self.loop, limit_s)
        self.result, self.cancelled = lazy.Future(), False

    async def work(self):
        try:
            return await self.result
        except lazy.Cancelled:
            self.cancelled = True
            raise

    def call(self, offers=None):
        dialogue = lazy.Dialogue("tools/call", PARTS, offers or {"roots": {}})
        dialogue.begin(self.tasks.start(self.work()))
        return dialogue

    def carried(self, dialogue):
        return json.loads(self.tasks.run(self.dialogues.carry(dialogue)))

    def resumed(self, state, answers=None, **changed):
        parts = dict(PARTS, requestState=json.dumps(state).encode(), **changed)
        if answers is not None:
            parts["inputResponses"] = json.dumps(answers).encode()
        return self.dialogues.resumed("tools/call", parts)

    def turns(self):
        self.tasks.run(self.sleep(0.01))

    async def sleep(self, seconds_s):
        await self.tasks.sleep(seconds_s)


@pytest.fixture
def world():
    found = World()
    yield found
    found.loop.close()


def parked(world):
    """(a call that has asked, its requestState, the future of the answer)"""
    dialogue = world.call()
    key, future = dialogue.ask("elicitation/create", b'{"message":"why?"}')
    result = world.carried(dialogue)
    assert result == {"resultType": "input_required", "requestState": result["requestState"],
                      "inputRequests": {key: {"method": "elicitation/create", "params": {"message": "why?"}}}}
    return dialogue, result["requestState"], key, future


def refused(world, state, *answers, **changed):
    with pytest.raises(lazy.PeerError) as caught:
        world.resumed(state, *answers, **changed)
    assert caught.value.rpc_code == -32602
    return str(caught.value)


def test_no_question(world):
    dialogue = world.call()
    world.result.set(b'{"content":[]}')
    assert world.carried(dialogue) == {"content": [], "resultType": "complete"}


def test_what_is_complete_is_not_the_servers_to_say(world):
    dialogue = world.call()
    world.result.set(b'{"resultType":"input_required"}')
    assert world.carried(dialogue) == {"resultType": "complete"}


def test_a_question_and_its_answer(world):
    dialogue, state, key, future = parked(world)
    assert world.resumed(state, {key: {"action": "accept"}, "ask-9": {}}) is dialogue
    assert json.loads(future.value) == {"action": "accept"}
    world.result.set(b"{}")
    assert world.carried(dialogue) == {"resultType": "complete"}


def test_a_state_leads_on_once(world):
    dialogue, state, key, _ = parked(world)
    world.resumed(state, {key: {}})
    assert "used" in refused(world, state, {key: {}})


def test_what_was_left_out_is_asked_again(world):
    dialogue, state, key, future = parked(world)
    again = world.carried(world.resumed(state, {}))
    assert list(again["inputRequests"]) == [key] and again["requestState"] != state and not future.done


@pytest.mark.parametrize("changed", [{"arguments": b'{"a":2}'}, {"arguments": b'{"a":1.0,"b":1}'}, {"more": b"1"}])
def test_other_params(world, changed):
    """A try with other params does not use the state up; another spelling of the same ones is the same."""
    dialogue, state, key, _ = parked(world)
    assert "other params" in refused(world, state, {key: {}}, **changed)
    assert world.resumed(state, {key: {}}, arguments=b'{ "a" : 1.0 }', _meta=b'{"x":1}') is dialogue


def test_no_state_and_unknown_ones(world):
    for state in (None, "", "x", 7, ["x"], {"x": 1}):
        assert "anew" in refused(world, state, {})
    _, state, _, _ = parked(world)
    assert "no object" in refused(world, state, ["x"])


def test_a_state_is_not_to_be_guessed(world):
    states = {parked(world)[1] for _ in range(20)}
    assert len(states) == 20 and all(len(state) == 32 for state in states)


def test_a_call_that_ends_while_it_is_parked(world):
    """Its result is kept for the next request; the answer that comes with that may be for another call, and is given."""
    dialogue, state, key, future = parked(world)
    world.result.set(b'{"late":1}')
    world.turns()
    assert not future.done
    assert world.carried(world.resumed(state, {key: {"a": 1}})) == {"late": 1, "resultType": "complete"}
    assert json.loads(future.value) == {"a": 1}


def test_an_answer_that_is_left_out_when_the_call_is_over(world):
    """Nothing is asked again for its sake."""
    dialogue, state, key, future = parked(world)
    world.result.set(b"{}")
    assert world.carried(world.resumed(state, {})) == {"resultType": "complete"}
    assert isinstance(future.error, lazy.CallOver)


def test_a_call_that_ends_before_its_client_is_asked(world):
    dialogue = world.call()
    _, future = dialogue.ask("roots/list", None)
    world.result.set(b"{}")
    assert world.carried(dialogue) == {"resultType": "complete"}
    assert isinstance(future.error, lazy.CallOver)


def test_a_call_that_fails(world):
    dialogue, state, key, _ = parked(world)
    world.result.fail(lazy.PeerError("broken", -32603))
    with pytest.raises(lazy.PeerError, match="broken"):
        world.carried(world.resumed(state, {key: {}}))


def test_a_state_that_expires(world):
    short = World(0.02)
    _, state, key, future = parked(short)
    short.tasks.run(short.sleep(0.1))
    assert short.cancelled and isinstance(future.error, lazy.PeerError)
    assert "expired" in refused(short, state, {key: {}})
    short.loop.close()


def test_a_request_that_is_cancelled(world):
    """With it the call: nobody carries it on."""
    dialogue = world.call()
    carrying = world.tasks.start(world.dialogues.carry(dialogue))
    world.turns()
    carrying.cancel()
    world.turns()
    assert world.cancelled


def test_the_end_of_the_hub(world):
    _, state, key, future = parked(world)
    world.dialogues.end()
    world.turns()
    assert world.cancelled and future.done
    refused(world, state, {key: {}})


def test_calls_that_wait_are_counted(world):
    for _ in range(lazy.MOST_PARKED):
        parked(world)
    dialogue = world.call()
    _, future = dialogue.ask("roots/list", None)
    with pytest.raises(lazy.PeerError, match="too many"):
        world.carried(dialogue)
    world.turns()
    assert future.done


def test_bytes_of_calls_that_wait_are_counted(world, monkeypatch):
    """One large call may wait at any time; behind it no other."""
    monkeypatch.setattr(lazy, "MOST_PARKED_BYTES", 4)
    _, state, key, _ = parked(world)
    dialogue = world.call()
    dialogue.ask("roots/list", None)
    with pytest.raises(lazy.PeerError, match="too many"):
        world.carried(dialogue)
    world.resumed(state, {key: {}})
    parked(world)


def test_params_too_deep_to_compare(world):
    """Only the same text is the same then; it is no error of ours."""
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    dialogue, state, key, _ = parked(world)
    assert "other params" in refused(world, state, {key: {}}, arguments=deep)


def test_a_withdrawn_question(world):
    dialogue = world.call()
    key, _ = dialogue.ask("roots/list", None)
    dialogue.withdraw(key)
    world.result.set(b"{}")
    assert world.carried(dialogue) == {"resultType": "complete"}


def test_subscriptions(world):
    """Acknowledged with what is granted of it; told of changes of that alone; ended by a result."""
    lines = []
    held = lazy.Subscriptions(lines.append)
    stamp = {"io.modelcontextprotocol/subscriptionId": 7}
    listening = world.tasks.start(held.listen(b"7", {"toolsListChanged": True, "x": True}, ("toolsListChanged",)))
    other = world.tasks.start(held.listen(b'"8"', {"toolsListChanged": True}, ()))
    world.turns()
    held.changed("toolsListChanged", "notifications/tools/list_changed")
    other.cancel()
    held.end()
    world.turns()
    said = [json.loads(line) for line in lines]
    assert [(one["method"], one["params"]) for one in said] == [
        ("notifications/subscriptions/acknowledged", {"notifications": {"toolsListChanged": True}, "_meta": stamp}),
        ("notifications/subscriptions/acknowledged", {"notifications": {}, "_meta": {
            "io.modelcontextprotocol/subscriptionId": "8"}}),
        ("notifications/tools/list_changed", {"_meta": stamp})]
    assert json.loads(listening.value) == {"resultType": "complete", "_meta": stamp}
