"""L5: the stop ladder as a table, with its times (A13.1 to A13.5, A13.11); what keeps an idle server from it (A12)."""

import types

import pytest

from mcp_lazy import (CHILD_TABLE, CLOSING, DOWN, DRAINING, KILLED, MAX_ERRANDS, STUCK, TERMED, UP, Child, ClearTimer, CloseInput,
                      Ended, Errands, Exited, Flights, KillGroup, Log, OutputClosed, SetTimer, SpawnFailed, Spawned, StopWanted, TimerFired,
                      Unreapable)

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


# ---------------------------------------------------------------------------------------- errands

class Told:
    """As much of a relay as `Errands` asks: a clock, a log, subscriptions."""

    def __init__(self):
        self.now_s, self.logs = 1000.0, []
        self.told = types.SimpleNamespace(subscriptions={})
        self.streams = types.SimpleNamespace(of_resources=lambda: self.resources)
        self.resources, self.flights = False, Flights()

    def log(self, text, level):
        self.logs.append(text)


class Held:
    """Errands on a clock of ours: `until_s` is how long they go on from now on, None for ever, 0 if nothing is under way."""

    def __init__(self):
        self.relay = Told()
        self.errands = Errands(self.relay)

    def seen(self, *tasks):
        for task in tasks:
            self.errands.seen(task)
        return self

    @property
    def until_s(self):
        start_s = self.relay.now_s
        for after_s in (0, 0.001, 0.999, 1, 4.999, 5, 599.999, 600, 1e9):
            self.relay.now_s = start_s + after_s
            if not self.errands:
                return after_s
        return None


def task(ident="t", status="working", **more):
    return dict(taskId=ident, status=status, **more)


RUNS, OVER = ("working", "input_required", "submitted", "unheard of", ""), ("completed", "failed", "cancelled")


def test_a12_nothing_is_under_way_at_first():
    assert Held().until_s == 0


@pytest.mark.parametrize("wrapped", [False, True], ids=["flat", "member"])
@pytest.mark.parametrize("name", ["ttl", "ttlMs"])
@pytest.mark.parametrize("status", RUNS + OVER)
def test_a12_a_task_holds_for_its_lifetime(status, name, wrapped):
    """2025-11-25: the answer to a call says {task: {...}}, other answers and the extension say it flat."""
    found = task(status=status, **{name: 5000})
    assert Held().seen({"task": found} if wrapped else found).until_s == (5 if status in OVER else None), "while it runs, a lifetime ends nothing"


@pytest.mark.parametrize("lifetime", [
    {}, {"ttl": None}, {"ttl": "5000"}, {"ttl": True}, {"ttl": False}, {"ttl": -1}, {"ttl": -0.5}, {"ttl": []}, {"ttl": {}}], ids=str)
def test_a12_a_lifetime_that_is_none_runs_for_ever_and_is_kept_ten_minutes(lifetime):
    for status in RUNS:
        assert Held().seen(task(status=status, **lifetime)).until_s is None, status
    for status in OVER:
        assert Held().seen(task(status=status, **lifetime)).until_s == 600, status


@pytest.mark.parametrize("ttl, until_s", [(0, 0), (0.0, 0), (1, 0.001), (999, 0.999), (1000.0, 1), (5e3, 5), (1e300, None), (float("inf"), None)])
def test_a12_a_lifetime_is_in_milliseconds_and_ends_at_its_end(ttl, until_s):
    for status in OVER:
        assert Held().seen(task(status=status, ttl=ttl)).until_s == until_s, status


def test_a12_a_task_that_ends_holds_for_its_results_lifetime():
    """From the last word on, whatever was said before."""
    held = Held().seen(task(), task(status="completed", ttl=5000))
    held.relay.now_s += 4.0
    assert held.until_s == 1
    held = Held().seen(task(ttl=1000), task())
    assert held.until_s is None, "the lifetime that it named last is none"
    assert Held().seen(task(), task(status="completed", ttl=0)).until_s == 0
    assert Held().seen(task(status="completed", ttl=0), task()).until_s is None, "it was wrong, and runs"


def test_a12_a_task_whose_result_was_given_is_over():
    """The answer to tasks/result tells no status (2025-11-25)."""
    held = Held().seen(task("a"), task("b", "completed", ttl=1000))
    for ident in ("a", "b", "of nobody", 5):
        held.errands.given(ident)
    assert held.until_s == 600
    held.relay.now_s += 600
    assert not held.errands


def test_a12_what_a_client_answers_about_a_task_is_its_result_only_where_that_was_asked_for():
    """2025-11-25: an elicitation's answer names the task that it is for, too; that one goes on."""
    about = b'{"jsonrpc":"2.0","id":1,"result":{"action":"accept","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}'
    held = Held().seen(task())
    held.errands.replied(1, about)
    assert held.until_s is None
    held.errands.wanted("t", 1)
    held.errands.wanted(["t"], 2)
    held.errands.replied(2, about)
    assert held.until_s is None
    held.errands.replied(1, about)
    assert held.until_s == 600


def test_issue_4_a_progress_token_is_good_until_its_task_is_over():
    held, late = Held(), lambda: list(held.relay.flights.late)
    for ident in "abc":
        held.relay.flights.no_more("p" + ident)  # its call was answered
        held.errands.seen({"task": task(ident)}, "p" + ident)
    assert late() == []
    held.seen(task("a"), task("a", "input_required"), task("a", "failed"), task("a", "failed"))
    assert late() == ["pa"]
    held.errands.given("b")
    assert late() == ["pa", "pb"]
    held.errands.reset()
    held.seen(task("c", "completed"))
    assert late() == ["pa", "pb"], "the process is gone, and the next one has other tasks"
    held.relay.flights.no_more("pd")
    held.errands.seen({"task": task("d", "completed")}, "pd")
    assert late() == ["pa", "pb", "pd"], "it was over at once"
    for number in range(MAX_ERRANDS + 1):
        held.relay.flights.no_more(number)
        held.errands.seen(task("t%d" % number), number)
    assert late() == ["pa", "pb", "pd"], "the one that finds no place is never taken for late: its task may run"


def test_a12_each_task_holds_for_itself():
    held = Held().seen(task("a", "failed", ttl=1000), task("b", "failed", ttl=5000), task("", "failed", ttl=999))
    assert held.until_s == 5
    assert Held().seen(task("a"), task("b"), task("a", "failed", ttl=1)).until_s is None
    assert Held().seen(task("a"), task("b"), task("a", "failed", ttl=1), task("b", "failed", ttl=1)).until_s == 0.001


def test_a12_an_errand_that_is_over_by_the_clock_stays_over():
    held = Held().seen(task(status="failed", ttl=1000))
    held.relay.now_s += 1.0
    assert not held.errands
    held.relay.now_s -= 1.0
    assert not held.errands, "it was forgotten"


@pytest.mark.parametrize("found", [
    None, (), [], "x", 5, True, {}, {"task": None}, {"task": []}, {"task": "t"}, {"task": {}}, [task()], {"task": [task()]}, {"tasks": 5},
    {"taskId": "t"}, {"status": "working"}, task(5), task(None), task(True), task(["t"]), task({}), task("t", None), task("t", 5),
    task("t", ["working"]), {"task": {"taskId": "t"}, "status": "working"}, {"task": None, "taskId": "t", "status": "working"},
    {"content": [task()]}, {"structuredContent": task()}], ids=str)
def test_a12_what_is_no_task_is_no_errand(found):
    held = Held()
    held.errands.seen(found)
    assert held.until_s == 0


def test_a12_each_task_of_a_list_of_tasks_is_seen():
    """The answer to tasks/list."""
    held = Held()
    held.errands.seen({"tasks": [task("a", "failed", ttl=5000), None, 5, "t", [], {}, task(5), task("b", "completed", ttl=1000)]})
    assert held.until_s == 5
    assert Held().seen(task("a")).until_s is None
    held = Held().seen(task("a"), task("b"))
    held.errands.seen({"tasks": [task("a", "failed", ttl=0), task("b", "failed", ttl=1000)], "nextCursor": "x"})
    assert held.until_s == 1


def test_a12_lists_of_tasks_in_lists_of_tasks_break_nothing():
    deep = task()
    for _ in range(5000):
        deep = {"tasks": [deep]}
    Held().errands.seen(deep)


@pytest.mark.parametrize("ttl", [10 ** 400, -10 ** 400, float("nan"), float("-inf")], ids=["400", "-400", "nan", "-inf"])
def test_a12_a_lifetime_that_is_no_number_of_seconds_breaks_nothing(ttl):
    """A server that never ends its tasks, as far as we can see."""
    assert Held().seen(task(ttl=ttl)).until_s is None


def test_a12_odd_task_ids_are_ids():
    held = Held()
    for ident in ("", " ", "\u0000", "\ud800", "\U0001f600", "x" * 100000, "null"):
        held.seen(task(ident), task(ident, "completed", ttl=1))
    assert held.until_s == 0.001


def test_a12_a_task_that_finds_no_place_holds_the_process_to_its_end():
    held = Held().seen(*[task("t%d" % number) for number in range(MAX_ERRANDS)])
    held.seen(task("one more"))
    for number in range(MAX_ERRANDS):
        held.seen(task("t%d" % number, "completed", ttl=0))
    held.relay.now_s += 1
    assert held.until_s is None, "nobody knows when it is over"
    held.errands.reset()
    assert not held.errands


def test_a12_what_is_over_makes_room_for_what_runs():
    held = Held().seen(*[task("t%d" % number, "completed", ttl=1000) for number in range(MAX_ERRANDS)])
    held.seen(task("runs"))
    held.relay.now_s += 2
    assert held.until_s is None
    held.seen(task("runs", "completed", ttl=0))
    assert not held.errands


def test_a12_a_url_visit_holds_until_it_is_completed_or_for_ten_minutes():
    held = Held()
    held.errands.visit("e")
    assert held.until_s == 600
    held = Held()
    held.errands.visit("e")
    held.errands.visit("f")
    held.errands.visited("e")
    assert held.errands
    held.errands.visited("f")
    assert held.until_s == 0
    held.errands.visited("f")
    held.errands.visited("unknown")
    assert held.until_s == 0


def test_a12_a_visit_that_is_asked_for_again_begins_again():
    held = Held()
    held.errands.visit("e")
    held.relay.now_s += 595
    held.errands.visit("e")
    held.relay.now_s += 595
    assert held.until_s == 5


def test_a12_visits_and_tasks_do_not_share_their_names():
    held = Held().seen(task("e"))
    held.errands.visited("e")
    assert held.until_s is None
    held = Held().seen(task("e", "completed", ttl=0))
    held.errands.visit("e")
    held.seen(task("e", "completed", ttl=0))
    assert held.until_s == 600


@pytest.mark.parametrize("ident", [None, 5, 0, True, 1.5, [], ["e"], {}, {"e": 1}], ids=str)
def test_a12_a_visit_without_a_name_is_none(ident):
    held = Held()
    held.errands.visit(ident)
    held.errands.visited(ident)
    assert held.until_s == 0


def test_a12_a_visit_that_finds_no_place_holds_the_process_to_its_end():
    held = Held()
    for number in range(MAX_ERRANDS):
        held.errands.visit("e%d" % number)
    held.errands.visit("one more")
    for number in range(MAX_ERRANDS):
        assert held.errands
        held.errands.visited("e%d" % number)
    assert held.until_s is None
    held.errands.reset()
    assert not held.errands


def test_a12_subscriptions_of_both_eras_hold_without_end():
    held = Held()
    held.relay.told.subscriptions["u:1"] = b"{}"
    assert held.until_s is None
    held.relay.told.subscriptions.clear()
    assert held.until_s == 0
    held.relay.resources = True
    assert held.until_s is None


def test_a12_the_end_of_the_process_ends_its_errands_and_is_told_where_tasks_were_lost():
    held = Held().seen(task("a"), task("b", "completed"))
    held.errands.visit("e")
    held.errands.reset()
    assert held.until_s == 0 and held.relay.logs == ["tasks that ended with the server: 2"]
    held.errands.visit("e")
    held.errands.reset()
    held.errands.reset()
    assert held.until_s == 0 and len(held.relay.logs) == 1
    held.relay.told.subscriptions["u:1"] = b"{}"
    held.errands.reset()
    assert held.errands, "a subscription is the client's, it is restored"


def test_a12_what_is_over_by_the_clock_makes_room_for_what_runs():
    """The thousand-and-first task is no less a task than the first, if those are long gone."""
    held = Held()
    for number in range(1000):
        held.seen(task("old-%d" % number, "failed", ttl=1))
        held.errands.visit("visit-%d" % number)
    held.relay.now_s += 700.0
    held.seen(task("new"))
    held.errands.visit("new")
    held.relay.now_s += 10.0
    assert bool(held.errands) is True
    held.errands.visited("new")
    assert held.until_s is None, "the task still runs"
