"""L5: the stop ladder as a table, with its times (A13.1 to A13.5, A13.11)."""

import pytest

from mcp_lazy import (CHILD_TABLE, CLOSING, DOWN, DRAINING, KILLED, STUCK, TERMED, UP, Child, ClearTimer, CloseInput, Ended, Exited,
                      KillGroup, Log, OutputClosed, SetTimer, SpawnFailed, Spawned, StopWanted, TimerFired, Unreapable)

STATES = (DOWN, UP, CLOSING, TERMED, KILLED, DRAINING, STUCK)
EVENTS = {Spawned: Spawned(7), SpawnFailed: SpawnFailed("no"), StopWanted: StopWanted(False), Exited: Exited("exit status 3", b"tail"),
          OutputClosed: OutputClosed(), TimerFired: TimerFired("ladder", b"")}
TICK, STOP, HURRY, EXIT, CLOSED = EVENTS[TimerFired], StopWanted(False), StopWanted(True), EVENTS[Exited], OutputClosed()
ENDED = Ended("exit status 3", b"tail")
TERM, KILL = KillGroup(15), KillGroup(9)
GRACE = 0.5


class Script:
    """A child on a clock of ours: `at(time, event)` gives the effects, Log lines apart."""

    def __init__(self, grace_s=GRACE):
        self.child, self.logs = Child(grace_s), []

    def at(self, now_s, event):
        effects = self.child.handle(event, now_s)
        self.logs += [effect.text for effect in effects if isinstance(effect, Log)]
        return [effect for effect in effects if not isinstance(effect, Log)]


def up(grace_s=GRACE):
    script = Script(grace_s)
    assert script.at(0.0, Spawned(7)) == [] and script.child.state == UP and script.child.pid == 7
    return script


def in_state(state, closed=False):
    """A child that was led there by events alone, its output closed on the way if wanted."""
    script = Script() if state == DOWN else up()
    if closed:
        assert script.at(0.0, CLOSED) == []
    if state in (CLOSING, TERMED, KILLED, STUCK):
        script.at(0.0, STOP)
    for wanted in (TERMED, KILLED, STUCK):
        if state in (TERMED, KILLED, STUCK) and script.child.state != state:
            script.at(0.0, TICK)
    if state == DRAINING:
        script.at(0.0, EXIT)
    assert script.child.state == state
    return script


def test_the_table_is_total():
    """Design 9, style 2.6: each state meets each event, and nothing else is in the table."""
    assert set(CHILD_TABLE) == {(state, kind) for state in STATES for kind in EVENTS}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_no_event_is_an_error_in_any_state(state, kind):
    script = in_state(state)
    effects = script.at(5.0, EVENTS[kind])
    assert script.child.state in STATES
    assert [effect for effect in effects if isinstance(effect, KillGroup)] == (
        [TERM] if (state, kind) == (CLOSING, TimerFired) else [KILL] if (state, kind) == (TERMED, TimerFired) else [])


NEXT = {
    (DOWN, "spawned"): UP,
    (UP, "stop"): CLOSING, (UP, "hurry"): KILLED, (UP, "exit"): DRAINING,
    (CLOSING, "hurry"): KILLED, (CLOSING, "timer"): TERMED, (CLOSING, "exit"): DRAINING,
    (TERMED, "hurry"): KILLED, (TERMED, "timer"): KILLED, (TERMED, "exit"): DRAINING,
    (KILLED, "timer"): STUCK, (KILLED, "exit"): DRAINING,
    (DRAINING, "timer"): DOWN, (DRAINING, "closed"): DOWN,
    (STUCK, "exit"): DRAINING,
}
WORDS = {"spawned": Spawned(8), "failed": SpawnFailed(""), "stop": STOP, "hurry": HURRY, "exit": EXIT, "closed": CLOSED, "timer": TICK}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("state", STATES)
def test_the_next_state_is_that_of_the_theory(state, word):
    script = in_state(state)
    script.at(1.0, WORDS[word])
    assert script.child.state == NEXT.get((state, word), state)


# ------------------------------------------------------------------------------------ transcripts

def test_a13_1_the_whole_ladder():
    script = up()
    assert script.at(10.0, STOP) == [CloseInput(False), SetTimer("ladder", 10.25)]
    assert script.at(10.25, TICK) == [CloseInput(True), TERM, SetTimer("ladder", 10.75)]
    assert script.at(10.75, TICK) == [KILL, SetTimer("ladder", 11.75)]
    assert script.at(11.75, TICK) == [Unreapable(), ClearTimer("ladder")] or script.child.state == STUCK
    assert [word for word in ("SIGTERM", "SIGKILL") if any(word in text for text in script.logs)] == ["SIGTERM", "SIGKILL"]


def test_a13_1_a_stuck_server_is_told_once_and_may_still_end():
    script = in_state(KILLED)
    effects = script.at(3.0, TICK)
    assert effects.count(Unreapable()) == 1 and ClearTimer("ladder") in effects
    assert script.at(4.0, TICK) == [] and script.at(4.0, STOP) == [] and script.at(4.0, HURRY) == []
    assert script.at(9.0, EXIT) == [SetTimer("ladder", 9.25)]
    assert script.at(9.25, TICK) == [ClearTimer("ladder"), ENDED]


@pytest.mark.parametrize("grace_s", [0.05, 0.5, 30.0])
def test_a13_1_the_grace_is_between_term_and_kill_only(grace_s):
    script = up(grace_s)
    assert script.at(1.0, STOP)[-1] == SetTimer("ladder", 1.25)
    assert script.at(1.25, TICK)[-1] == SetTimer("ladder", 1.25 + grace_s)
    assert script.at(1.25 + grace_s, TICK)[-1] == SetTimer("ladder", 1.25 + grace_s + 1.0)


def test_a13_5_the_longest_ladder():
    """1.75 s, and a quarter of a second of draining."""
    script, now_s, timers = up(), 0.0, 0
    effects = script.at(now_s, STOP)
    while script.child.state != STUCK:
        now_s, timers = [effect.at_s for effect in effects if isinstance(effect, SetTimer)][0], timers + 1
        effects = script.at(now_s, TICK)
    assert (now_s, timers) == (1.75, 3)
    assert script.at(now_s, EXIT) == [SetTimer("ladder", 2.0)]


@pytest.mark.parametrize("state, now_s", [(UP, 0.0), (CLOSING, 0.1), (TERMED, 0.3), (KILLED, 0.8), (STUCK, 9.0)])
def test_a13_2_a13_3_an_exit_at_each_step_drains_and_ends(state, now_s):
    script = in_state(state)
    assert script.at(now_s, EXIT) == [SetTimer("ladder", now_s + 0.25)]
    assert script.at(now_s + 0.25, TICK) == [ClearTimer("ladder"), ENDED]
    assert script.child.state == DOWN and script.at(now_s + 9, TICK) == []


@pytest.mark.parametrize("state", [UP, CLOSING, TERMED, KILLED])
def test_a13_3_output_that_closed_before_the_exit_is_not_waited_for(state):
    script = in_state(state, closed=True)
    effects = script.at(2.0, EXIT)
    assert effects[-1] == ENDED and effects.count(ENDED) == 1 and script.child.state == DOWN
    timers = [effect for effect in effects if isinstance(effect, (SetTimer, ClearTimer))]
    assert timers[-1] == ClearTimer("ladder"), "no timer is left over"


def test_a13_3_output_that_closes_after_the_exit_ends_the_drain():
    script = up()
    script.at(1.0, EXIT)
    assert script.at(1.1, CLOSED) == [ClearTimer("ladder"), ENDED]
    assert script.at(1.25, TICK) == [] and script.at(1.3, CLOSED) == []


def test_a13_closed_output_alone_is_no_end():
    script = up()
    assert script.at(1.0, CLOSED) == [] and script.child.state == UP
    assert script.at(2.0, STOP) == [CloseInput(False), SetTimer("ladder", 2.25)]


@pytest.mark.parametrize("state", [UP, CLOSING, TERMED])
def test_a13_11_hurry_at_each_step(state):
    script = in_state(state)
    effects = script.at(0.1, HURRY)
    assert effects == [CloseInput(True), KILL, SetTimer("ladder", 1.1)]
    assert script.at(0.2, HURRY) == [] and script.at(0.3, STOP) == [], "once is enough"
    assert script.at(0.4, EXIT) == [SetTimer("ladder", 0.65)]


@pytest.mark.parametrize("state", [DOWN, KILLED, DRAINING, STUCK])
def test_a13_11_hurry_where_nothing_is_left_to_hurry(state):
    script = in_state(state)
    assert script.at(1.0, HURRY) == [] and script.child.state == state


@pytest.mark.parametrize("state", [CLOSING, TERMED, KILLED, DRAINING])
def test_a_second_plain_stop_changes_nothing(state):
    script = in_state(state)
    assert script.at(1.0, STOP) == [] and script.child.state == state


def test_one_child_serves_many_generations():
    script = Script()
    for number in range(3):
        assert script.at(number, Spawned(100 + number)) == [] and script.child.pid == 100 + number
        if number == 1:
            script.at(number, CLOSED)
        effects = script.at(number + 0.5, Exited("SIGSEGV", b"n%d" % number))
        if number == 1:
            assert effects[-1] == Ended("SIGSEGV", b"n1")
        else:
            assert effects == [SetTimer("ladder", number + 0.75)], "closed output of an earlier generation is forgotten"
            assert script.at(number + 0.75, TICK)[-1] == Ended("SIGSEGV", b"n%d" % number)
    assert script.at(9.0, SpawnFailed("no")) == [] and script.child.state == DOWN
