"""L7: the engine on a simulated clock, as transcripts; no process, no sleep (A6-A13, C, design 4)."""

import json

import pytest

import mcp_lazy as lazy
from mcp_lazy import (ASLEEP, CLIENT, LIVE, REPLAY, SERVER, SETTLE, STOPPING, ClearTimer, ClientGone, ClientTooLong, CloseInput,
                      Exit, Exited, HoldClient, KillGroup, KillWake, OutputClosed, Release, RunWake, Save, ServerBroke, Spawn,
                      Spawned, SpawnFailed, StopSignal, WakeEnded, Write)
from playbook import Failure, Playbook, Timer, advance, says, to_client, to_server
from sim import (INITIALIZED, VERSION, World, acknowledged, both, engine, handshake, initialize, line, listen, modern, notification, raw,
                 recording, refusal, request, result, settings)

TOOLS = {"tools": [{"name": "a"}]}
MORE = {"tools": [{"name": "a"}, {"name": "b"}]}
NO_TOOLS = {"tools": []}
CALL = request(7, "tools/call", {"name": "a"})
ROOTS = {"roots": {"listChanged": True}}
CHANGED = notification("notifications/tools/list_changed")
EOF = ClientGone("end of input")
CALLED_OFF = to_client(notification("notifications/cancelled", {"requestId": "s1"}))


def params_of(one):
    return raw(json.loads(one)["params"])


def cancel(ident):
    return notification("notifications/cancelled", {"requestId": ident})


def own_initialize(generation=1, one=None):
    return to_server(b'{"jsonrpc":"2.0","id":"mcp-lazy-init-%d","method":"initialize","params":%s}\n' % (
        generation, params_of(one or initialize())))


def own_list(method="tools/list", generation=1):
    return to_server(line(id="mcp-lazy-check-%d-%s" % (generation, method), method=method))


def recorded(lists=None, **more):
    return recording({"tools/list": TOOLS} if lists is None else lists, **more)


def warm(lists=None, starts=(), capabilities=None, result=None, **changed):
    """ASLEEP, behind a handshake that the recording answered."""
    found = recorded(lists, starts=starts, capabilities=capabilities, result=result)
    book = Playbook(engine(found, **changed)).then(initialize(**(capabilities or {})), INITIALIZED)
    assert book.relay.state == ASLEEP
    return book


def cold(found=None, **changed):
    """LIVE, behind a handshake that the server answered."""
    book = Playbook(engine(**changed)).then(
        initialize(), Spawned(1), says(line(id=0, result=found or handshake())), INITIALIZED)
    assert book.relay.state == LIVE
    return book


def replaying(lists=None, **changed):
    """REPLAY: a call with id 7 woke the server, which has not answered yet."""
    book = warm(lists, **changed).then(CALL, Spawned(1))
    assert book.relay.state == REPLAY
    return book


def replayed(generation=1, found=None):
    return says(line(id="mcp-lazy-init-%d" % generation, result=found or handshake()))


def relisted(value=None, method="tools/list", generation=1):
    return says(line(id="mcp-lazy-check-%d-%s" % (generation, method), result=TOOLS if value is None else value))


def woken(lists=None, **changed):
    """LIVE behind a replay, the listing equal, the call answered."""
    book = replaying(lists, **changed).then(replayed(), relisted(), says(result(7)))
    assert book.relay.state == LIVE
    return book


def stopping(**changed):
    """STOPPING after an idle stop."""
    book = woken(idle_stop_s=5.0, **changed).then(advance(5.0))
    assert book.relay.state == STOPPING
    return book


def kept(book, method="tools/list"):
    """(is_error, pages) of what is recorded for the legacy client, None for nothing."""
    answer = book.relay.shelf.entry.answers.get(method)
    return None if answer is None else (answer.is_error, answer.pages)


def gone(book, text="exit status 0"):
    return book.then(Exited(text, b""), OutputClosed())



# --------------------------------------------------------------------------------------- the table

def test_the_table_is_total():
    events = {event for _, event in lazy.RELAY_TABLE}
    assert set(lazy.RELAY_TABLE) == {(state, event) for state in lazy.STATES for event in events}
    for name in lazy.RELAY_TABLE.values():
        assert name == lazy.IGNORE or callable(getattr(lazy.Relay, name))
    for owner, method in lazy.TIMERS.values():
        assert callable(getattr(type(getattr(engine(), owner)), method))
    children = {state for state, _ in lazy.CHILD_TABLE}
    assert set(lazy.CHILD_TABLE) == {(state, event) for state in children for _, event in lazy.CHILD_TABLE}


# ---------------------------------------------------------------------------------- cold and asleep

def test_a7_2_a_cold_start_passes_every_line_in_order():
    """A8.3, A6.1, A10.1."""
    answer = b'{"jsonrpc":"2.0", "id":0, "result":%s}\n' % raw(handshake())
    (Playbook(engine())
     >> initialize() + INITIALIZED
     << Spawn() << Timer("startup", 60) << to_server(initialize()) << to_server(INITIALIZED)
     >> Spawned(1) << None
     >> request(1, "tools/list") << to_server(request(1, "tools/list"))
     >> says(answer) << Save() << Timer("window", 2) << ClearTimer("startup") << to_client(answer)
     >> says(result(1, TOOLS)) << Save() << to_client(result(1, TOOLS))
     >> EOF << ClearTimer("window") << CloseInput(False) << Timer("ladder", 0.25)
     >> Exited("exit status 0", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Release() << Exit(0)).check()


def test_a7_what_is_answered_asleep_and_what_is_dropped():
    book = (Playbook(engine(recorded(result=handshake(logging={}))))
            >> request("p", "ping") << to_client(result("p"))
            >> initialize(3) << to_client(result(3, handshake(logging={})))
            >> INITIALIZED << None
            >> request("l", "tools/list") << to_client(result("l", TOOLS))
            >> request("m", "tools/list", {"_meta": {"x": 1}, "cursor": None}) << to_client(result("m", TOOLS))
            >> request(4, "logging/setLevel", {"level": "info"}) << to_client(result(4))
            >> cancel(9) + notification("notifications/roots/list_changed") + result("x") + b"\r\n \n" << None)
    assert book.check() and book.relay.state == ASLEEP


@pytest.mark.parametrize("one", [
    request(1, "tools/list", {"cursor": "c"}), request(1, "tools/list", {"x": 1}), request(1, "prompts/list"),
    request(1, "tools/call", {}), request(1, "logging/setLevel", {"level": "info"}), request(1, "completion/complete", {})])
def test_a7_6_a7_10_the_rest_starts_with_a_replay(one):
    (warm() >> one << Spawn() << Timer("startup", 60) << own_initialize()).check()


@pytest.mark.parametrize("one", [request(1, "server/discover", {}), modern(1, "tools/list"), modern(1, "tools/call")], ids=["probe", "list", "call"])
def test_a17_6_a_request_of_the_modern_era_starts_without_a_replay(one):
    """A probe counts as one with any params (A17.1), also behind a handshake of the other era."""
    book = warm() >> one << Spawn() << Timer("startup", 60) << to_server(one)
    book.then() >> Spawned(1)
    assert not [effect for effect, _ in book.open if type(effect) is Write]


@pytest.mark.parametrize("one", [request(1, "server/discover", {}), modern(1, "tools/list")], ids=["probe", "list"])
def test_a10_1_a_modern_listing_behind_a_legacy_handshake_holds_the_deadline_of_its_start(one):
    (warm() >> one << Spawn() << Timer("startup", 60) << to_server(one)
     >> Spawned(1) >> advance(60.0) << Failure(1, "timed out after 1m0s") << CloseInput(False) << Timer("ladder", 0.25)).check()


@pytest.mark.parametrize("one", [b"garbage\n", b"3\n", b"[]\n", b'{"jsonrpc":"2.0","id":1,"method":5}\n'])
def test_a7_15_odd_lines_start_the_server_and_are_not_tracked(one):
    """No answer when it dies; such a line holds no deadline."""
    book = Playbook(engine()) >> one << Spawn() << Timer("startup", 60) << to_server(one) << ClearTimer("startup")
    (book >> Spawned(1) >> Exited("SIGSEGV", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Release()).check()


def test_a7_13_a_line_that_is_too_long_is_refused_and_a_crlf_taken_off():
    book = cold() >> ClientTooLong() << Failure(None, "--max-line", code=-32700)
    (book >> request(1, "x")[:-1] + b" \r\n" << to_server(request(1, "x"))).check()


def test_a7_14_a_null_id_is_a_notification():
    (warm() >> line(id=None, method="tools/call") << None).check()
    book = cold() >> line(id=None, method="tools/call") << to_server(line(id=None, method="tools/call"))
    (book >> Exited("exit status 1", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Release() << ClearTimer("window")).check()


def test_a6_5_a_call_before_a_handshake_is_never_answered_from_a_recording():
    call = request(1, "tools/call", {"name": "a"})
    relay = engine(lazy.Recording(["srv"]))
    for session in range(2):
        book = (Playbook(relay) >> call << Spawn() << Timer("startup", 60) << to_server(call)
                >> Spawned(1) >> says(result(1, {"n": session})) << ClearTimer("startup") << to_client(result(1, {"n": session})))
        book.check()
        relay = engine(relay.shelf.recording)
    assert not relay.shelf.recording.entries


@pytest.mark.parametrize("version", [None, "", 5])
def test_a6_4_a_handshake_without_a_version_is_not_recorded(version):
    params = {"capabilities": {}} if version is None else {"protocolVersion": version, "capabilities": {}}
    (Playbook(engine(recorded())) >> request(0, "initialize", params)
     << Spawn() << Timer("startup", 60) << to_server(request(0, "initialize", params))
     >> Spawned(1) >> says(result(0, handshake())) << ClearTimer("startup") << to_client(result(0, handshake()))).check()


@pytest.mark.parametrize("where", [ASLEEP, REPLAY, SETTLE, STOPPING])
def test_a12_4_recorded_answers_go_out_in_every_state_but_live(where):
    book = {ASLEEP: warm, REPLAY: replaying, STOPPING: stopping, SETTLE: settling}[where]()
    assert book.relay.state == where
    (book >> request(20, "tools/list") << to_client(result(20, TOOLS))
     >> request(21, "ping") << to_client(result(21))).check()


def test_a7_11_live_all_goes_to_the_server():
    for one in (request(20, "tools/list"), request(21, "ping"), request(22, "logging/setLevel", {"level": "info"})):
        (woken() >> one << to_server(one)).check()


def test_a7_1_a_second_handshake_during_a_replay_is_answered_from_the_recording():
    (replaying() >> initialize(30) << to_client(result(30, handshake()))).check()


# ---------------------------------------------------------------------------------- replay, refresh

def test_a8_2_the_order_at_a_wake():
    """initialize with the client's own bytes, initialized, level, subscriptions, listings, the queue (A12.7)."""
    odd = initialize()[:-2].replace(b'"name":"c"', b'"name" : "\\u0063\\/",  "n":1.0e2') + b"}\n"
    params = odd[odd.index(b'"params":') + 9:-2]
    book = Playbook(engine(recorded(result=handshake(logging={})), idle_stop_s=5.0))
    book.then(odd, INITIALIZED, request(1, "logging/setLevel", {"level": "error"}))
    sub = request(2, "resources/subscribe", {"uri": "u:1"})
    book.then(sub, Spawned(1), replayed(found=handshake(logging={})), relisted(), says(result(2) + line(id="mcp-lazy-level-1", result={})))
    gone(book.then(advance(5.0)))
    note = notification("notifications/roots/list_changed")
    (book >> CALL << Spawn() << Timer("startup", 60) << Timer("idle", 5) << to_server(
        b'{"jsonrpc":"2.0","id":"mcp-lazy-init-2","method":"initialize","params":%s}\n' % params)
     >> Spawned(2) << None
     >> note + request(8, "tools/call") << None
     >> result("x") << None  # to the server that is gone: this one never asked (A11.6)
     >> says(request("y", "ping")) << to_client(request("y", "ping")) >> result("y") << to_server(result("y"))
     >> says(line(id="mcp-lazy-init-2", result=handshake(logging={})))
     << to_server(INITIALIZED)
     << to_server(line(id="mcp-lazy-level-2", method="logging/setLevel", params={"level": "error"}))
     << to_server(line(id="mcp-lazy-subscribe-2-1", method="resources/subscribe", params={"uri": "u:1"}))
     << own_list(generation=2) << Timer("window", 2)
     << to_server(CALL) << to_server(note) << to_server(request(8, "tools/call"))).check()


def live_but_refreshing(lists=None, **changed):
    return replaying(lists, **changed).then(replayed(), says(result(7)))


def test_a9_1_an_equal_list_says_nothing():
    """A9.5; other spelling is equal (A6.6)."""
    (live_but_refreshing() >> relisted() << ClearTimer("startup")).check()
    spelled = b'{"jsonrpc":"2.0","id":"mcp-lazy-check-1-tools/list","result":{ "tools":[{"name":"\\u0061"}] }}\n'
    (live_but_refreshing() >> says(spelled) << ClearTimer("startup")).check()


def served_and_refreshing(**more):
    book = warm(**more).then(request(1, "tools/list"), CALL, Spawned(1), replayed(), says(result(7)))
    return book


def test_a9_2_a_different_list_is_saved_and_told_where_it_was_served():
    (served_and_refreshing() >> relisted(MORE) << Save() << to_client(CHANGED) << ClearTimer("startup")
     >> request(2, "tools/list") << to_server(request(2, "tools/list"))
     >> says(result(2, MORE)) << to_client(result(2, MORE))).check()


def test_a9_4_a_list_that_nobody_was_served_is_told_only_where_declared():
    (live_but_refreshing() >> relisted(MORE) << Save() << ClearTimer("startup")).check()
    declared = handshake(tools={"listChanged": True})
    book = warm(result=declared).then(CALL, Spawned(1), replayed(found=declared), says(result(7)))
    (book >> relisted(MORE) << Save() << to_client(CHANGED) << ClearTimer("startup")).check()


def test_a9_4_two_resource_lists_make_one_notification():
    lists = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
    book = warm(lists).then(request(1, "resources/list"), request(2, "resources/templates/list"), CALL, Spawned(1),
                            replayed(), says(result(7)))
    (book >> relisted({"resources": [1]}, "resources/list") << Save()
     >> relisted({"resourceTemplates": [1]}, "resources/templates/list") << Save()
     << to_client(notification("notifications/resources/list_changed")) << ClearTimer("startup")).check()


def test_a6_9_a_list_that_became_paged_is_read_to_its_end_recorded_and_told():
    """The old relay could not record pages and forgot such a list; now it is recorded whole."""
    more = line(id="mcp-lazy-page-1-1", method="tools/list", params={"cursor": "x"})
    book = served_and_refreshing() >> relisted(dict(TOOLS, nextCursor="x")) << to_server(more)
    (book >> says(line(id="mcp-lazy-page-1-1", result=MORE)) << Save() << to_client(CHANGED) << ClearTimer("startup")).check()
    assert kept(book) == (False, [raw(dict(TOOLS, nextCursor="x")), raw(MORE)])


def test_a9_3_an_error_keeps_the_record_and_32601_replaces_it():
    ident = "mcp-lazy-check-1-tools/list"
    book = served_and_refreshing() >> says(refusal(ident, -32000)) << ClearTimer("startup")
    assert kept(book.check()) == (False, [raw(TOOLS)])
    (served_and_refreshing() >> says(refusal(ident, -32601)) << Save() << to_client(CHANGED) << ClearTimer("startup")).check()


def test_a9_2_an_empty_list_counts_from_the_second_start_on():
    book = served_and_refreshing(idle_stop_s=5.0) >> relisted(NO_TOOLS) << Save() << ClearTimer("startup")
    gone(book.check().then(advance(5.0)))
    assert kept(book) == (False, [raw(TOOLS)])
    book.then(CALL, Spawned(2), replayed(2), says(result(7)))
    (book >> relisted(NO_TOOLS, generation=2) << Save() << to_client(CHANGED) << ClearTimer("startup")).check()


def test_a9_2_a_second_empty_answer_of_one_start_confirms_nothing():
    book = replaying().then(replayed(), relisted(NO_TOOLS), says(result(7)), request(8, "tools/list"), says(result(8, NO_TOOLS)))
    assert kept(book) == (False, [raw(TOOLS)])


def test_a9_2_a_difference_is_told_even_when_the_server_dies_before_its_last_list():
    lists = {"tools/list": TOOLS, "prompts/list": {"prompts": []}}
    book = warm(lists).then(request(1, "tools/list"), CALL, Spawned(1), replayed(), says(result(7)))
    told = []
    for event in (relisted(MORE), Exited("exit status 1", b""), OutputClosed(), CALL, Spawned(2), replayed(2),
                  relisted(MORE, generation=2), relisted({"prompts": []}, "prompts/list", 2)):
        book.then() >> event
        told += [effect for effect, _ in book.open if effect == to_client(CHANGED)]
    assert told == [to_client(CHANGED)]


def test_design_4_3_list_changed_at_the_start_is_no_change():
    """Swallowed before the handshake, before the list's answer and behind it; then the list is asked for again."""
    (replaying() >> says(CHANGED) << None
     >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2) << to_server(CALL)
     >> says(CHANGED + result(7) + CHANGED) << to_client(result(7))
     >> relisted() << ClearTimer("startup")).check()
    lists = {"tools/list": TOOLS, "prompts/list": {"prompts": []}}
    prompts = relisted({"prompts": []}, "prompts/list")
    (replaying(lists).then(replayed()) >> relisted() << None
     >> says(CHANGED + CHANGED) << None
     >> prompts << own_list()
     >> relisted() << ClearTimer("startup")
     >> says(CHANGED) << Timer("relist", 2) << to_client(CHANGED)).check()


def test_a9_8_a_changed_list_that_nobody_asks_for_again_is_asked_for_by_us():
    book = woken().then(advance(2.5), says(CHANGED))
    ask = line(id="mcp-lazy-relist-1-1", method="tools/list")
    (book >> advance(2.0) << to_server(ask) >> says(line(id="mcp-lazy-relist-1-1", result=MORE)) << Save()).check()
    book = woken().then(advance(2.5), says(CHANGED))
    (book >> request(9, "tools/list") << to_server(request(9, "tools/list")) >> advance(9.0) << None).check()


def test_a9_4_one_change_is_told_once():
    """What the server announced itself is not announced again when the client lists anew."""
    book = warm().then(request(1, "tools/list"), CALL, Spawned(1), replayed(), relisted(), says(result(7)), says(CHANGED))
    (book >> request(2, "tools/list") << to_server(request(2, "tools/list"))
     >> says(result(2, MORE)) << Save() << to_client(result(2, MORE))).check()


def test_a6_8_fill():
    book = Playbook(engine(fill=True)).then(initialize(), Spawned(1))
    found = handshake(prompts={})
    book.then(says(result(0, found)), INITIALIZED)
    (book >> advance(0.05) << None >> request(1, "x") << to_server(request(1, "x"))).then(advance(1.0), says(result(1)))
    book >> advance(0.2)
    sent = [effect for effect, _ in book.open if type(effect) is Write]
    assert sent == [to_server(line(id="mcp-lazy-fill-1-1", method="tools/list")),
                    to_server(line(id="mcp-lazy-fill-1-2", method="prompts/list"))]
    book.then()
    (book >> says(line(id="mcp-lazy-fill-1-1", result=TOOLS)) << Save()
     >> says(refusal("mcp-lazy-fill-1-2")) << Save()).check()


# ------------------------------------------------------------------------------- roots (design 4.3)

def settling(**changed):
    """SETTLE: handshake replayed, the server is known to ask for roots."""
    book = warm(starts=["roots/list"], capabilities=ROOTS, **changed).then(CALL, Spawned(1), replayed())
    assert book.relay.state == SETTLE
    return book


def test_design_4_3_the_queue_waits_for_the_roots():
    ask = request("s1", "roots/list")
    (settling() >> says(ask) << to_client(ask)
     >> request(8, "x") << None
     >> result("s1", {"roots": []}) << to_server(result("s1", {"roots": []})) << Timer("settle", 0.1)
     >> advance(0.1) << to_server(CALL) << to_server(request(8, "x"))).check()


def test_design_4_3_the_roots_wait_ends_after_two_seconds():
    book = settling() >> advance(1.99) << None
    book >> advance(0.02)
    assert to_server(CALL) in [effect for effect, _ in book.open] and book.relay.state == LIVE


def test_design_4_3_a_list_that_changes_while_the_queue_waits_for_the_roots_is_asked_for_again():
    book = settling().then(relisted())
    (book >> says(CHANGED) << own_list() >> relisted(MORE) << Save()).check()
    assert book.relay.state == SETTLE


def test_design_4_3_another_open_request_of_the_server_does_not_prolong_the_wait():
    book = settling().then(says(request("s0", "sampling/createMessage", {}) + request("s1", "roots/list")))
    (book >> result("s1", {"roots": []}) << to_server(result("s1", {"roots": []})) << Timer("settle", 0.1)
     >> advance(0.1) << to_server(CALL)).check()


def test_design_4_3_no_wait_without_roots_of_the_client_and_the_record_follows_the_server():
    book = warm(starts=["roots/list"]).then(CALL, Spawned(1))
    book >> replayed()
    assert to_server(CALL) in [effect for effect, _ in book.open]
    book.then(relisted())
    (book >> advance(2.0) << Save()).check()
    assert book.relay.shelf.entry.start_requests == []


# ------------------------------------------------------------------------------- cancellation (A11)

def test_a11_3_queued_a_cancel_removes_both():
    (replaying() >> request(8, "x") + cancel(8) << None
     >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2) << to_server(CALL)).check()


def test_a11_3_queued_behind_a_stopping_server_too():
    book = stopping() >> request(8, "x") + cancel(8) << None
    gone(book)
    assert book.relay.state == ASLEEP


def test_a11_3_queued_in_a_batch_the_cancel_is_not_lost():
    batch = b"[%s,%s]\n" % (request(1, "x").strip(), request(2, "x").strip())
    book = replaying().then(batch, cancel(1))
    book >> replayed()
    assert [effect for effect, _ in book.open][-2:] == [to_server(batch), to_server(cancel(1))]


def test_a11_3_sent_a_cancel_is_passed_on_a_late_answer_too_an_error_never():
    (woken() >> request(8, "x") + cancel(8) << to_server(request(8, "x") + cancel(8))
     >> says(result(8)) << to_client(result(8))).check()
    book = woken().then(request(8, "x"), request("8", "x"), cancel(8), Exited("exit status 1", b""))
    book >> OutputClosed()
    failed = [effect for effect, _ in book.open if type(effect) is Write]
    assert len(failed) == 1 and Failure("8", "server exited (exit status 1)").matches(failed[0], 0)


def test_a11_3_answered_and_unknown():
    book = woken().then(request(8, "x"), says(result(8)))
    (book >> cancel(8) << to_server(cancel(8)) >> cancel("nobody") << to_server(cancel("nobody"))).check()
    (replaying() >> cancel("nobody") << None >> replayed() << to_server(INITIALIZED) << own_list()
     << Timer("window", 2) << to_server(CALL) << to_server(cancel("nobody"))).check()


def test_a11_3_initialize_cannot_be_cancelled():
    book = Playbook(engine()).then(initialize(), Spawned(1), cancel(0), Exited("exit status 2", b""))
    book >> OutputClosed()
    assert [e for e, _ in book.open if Failure(0, "exit status 2", "handshake").matches(e, 0)]


def test_a11_3_a_cancelled_request_does_not_hold_off_the_idle_stop():
    book = woken(idle_stop_s=5.0).then(request(8, "x"), cancel(8), advance(5.0))
    assert book.relay.state == STOPPING


def test_a10_1_a_cancelled_request_does_not_hold_the_startup_deadline():
    book = Playbook(engine()).then(request(1, "tools/list"), Spawned(1))
    (book >> cancel(1) << ClearTimer("startup") << to_server(cancel(1)) >> advance(61.0) << None).check()


def test_a11_5_a_request_that_the_server_called_off_does_not_hold_off_the_idle_stop():
    book = woken(idle_stop_s=5.0).then(says(request("s1", "sampling/createMessage", {})), advance(6.0))
    assert book.relay.state == LIVE
    book.then(says(cancel("s1")), advance(11.0))
    assert book.relay.state == STOPPING


def test_a11_6_open_requests_of_a_dead_server_are_called_off():
    book = woken().then(says(request("s1", "sampling/createMessage", {}))) >> Exited("SIGSEGV", b"")
    book.then()
    (book >> OutputClosed() << ClearTimer("ladder") << CALLED_OFF << Release() << ClearTimer("window")).check()


def test_a11_6_also_those_it_made_while_it_stopped():
    """Left open they would hold off every later idle stop (A11.5)."""
    book = stopping().then(says(request("s1", "ping")), Exited("exit status 0", b""))
    (book >> OutputClosed() << ClearTimer("ladder") << CALLED_OFF << Release()).check()


def test_a11_6_an_answer_to_a_stopping_server_closes_its_request():
    book = gone(stopping().then(says(request("s1", "ping")), result("s1")))
    book.then(CALL, Spawned(2), replayed(2), relisted(generation=2), says(result(7)), advance(6.0))
    assert book.relay.state == STOPPING


# ------------------------------------------------------------------------------ ids, batches (A7.15)

IDS = [b"1", b"-7", b"1.0", b"1e3", b'"1"', b'""', b'"\\u0061\\/"', b'"\xc3\xa9"', b"true", b"1.5", b"[1, 2]", b'{"a":1}',
       b"123456789012345678901234567890", b"1e20", b'"\\ud800"']


@pytest.mark.parametrize("ident", IDS)
@pytest.mark.parametrize("size", [0, 3000])
def test_a7_16_ids_of_every_shape_come_back_verbatim(ident, size):
    filler = b"x" * size
    ask = b'{"jsonrpc":"2.0","id":%s,"method":"m","params":{"f":"%s"}}\n' % (ident, filler)
    reply = b'{"jsonrpc":"2.0","id":%s,"result":{"f":"%s"}}\n' % (ident, filler)
    book = cold() >> ask << to_server(ask) >> says(reply) << to_client(reply)
    assert not book.check().relay.flights
    book.then(ask, Exited("exit status 1", b""))
    book >> OutputClosed()
    failed = [e.raw for e, _ in book.open if type(e) is Write]
    assert len(failed) == 1 and failed[0].startswith(b'{"jsonrpc":"2.0","id":' + ident + b',"error":')


@pytest.mark.parametrize("sent, back", [(b"1.0", b"1"), (b"1", b"1.0"), (b"1e3", b"1000"), (b'"\\u0061"', b'"a"'),
                                        (b"1e20", b"100000000000000000000"), (b"-0", b"0")])
def test_a7_16_equal_values_are_equal_ids(sent, back):
    book = cold().then(b'{"jsonrpc":"2.0","id":%s,"method":"m"}\n' % sent)
    book.then(says(b'{"jsonrpc":"2.0","id":%s,"result":{}}\n' % back))
    assert not book.relay.flights


def test_a7_17_an_id_in_use_twice_gets_both_answers():
    book = cold().then(request(1, "x") + request("1", "x") + request(1, "y"))
    (book >> says(result(1, 1)) << to_client(result(1, 1)) >> says(result(1, 2)) << to_client(result(1, 2))).check()
    assert [flight.id_raw for flight in book.relay.flights] == [b'"1"']


def test_a7_15_a_batch_fails_as_one_array():
    batch = b"[%s,%s,%s]\n" % (request(1, "x").strip(), notification("n").strip(), request("b", "y").strip())
    book = cold().then(batch, request(2, "z"), Exited("exit status 3", b""))
    book >> OutputClosed()
    failed = [e for e, _ in book.open if type(e) is Write]
    assert len(failed) == 2 and Failure(2, "exit status 3").matches(failed[0], 0)
    assert Failure([1, "b"], "exit status 3").matches(failed[1], 0)


def test_a7_15_an_answered_batch_is_closed():
    batch = b"[%s,%s]\n" % (request(1, "x").strip(), request(2, "y").strip())
    both = b"[%s,%s]\n" % (result(2).strip(), result(1).strip())
    book = cold() >> batch << to_server(batch) >> says(both) << to_client(both)
    assert not book.check().relay.flights


def test_a8_2_an_answer_to_our_own_request_in_a_batch_is_taken_out():
    """A server that collects what it says: the client gets the rest, as an array."""
    own = json.loads(relisted().raw)
    both = raw([json.loads(result(7)), own]) + b"\n"
    book = replaying().then(replayed(), b"[%s]\n" % request(8, "x").strip())
    book >> says(both) << ClearTimer("startup")
    ((effect, _),) = book.open
    assert json.loads(effect.raw) == [json.loads(result(7))] and effect.side == CLIENT
    assert not book.relay.own.refreshing() and [flight.id_raw for flight in book.relay.flights] == [b"8"]
    (replaying().then(replayed()) >> says(raw([own]) + b"\n") << ClearTimer("startup")).check()


def test_a7_15_a_batch_before_any_handshake_holds_the_deadline():
    """A10.1: or a server that never answers it would hang for ever."""
    batch = b"[%s]\n" % request(1, "tools/list").strip()
    book = Playbook(engine()).then(batch, Spawned(1))
    (book >> advance(60.0) << Failure([1], "timed out after 1m0s"))


@pytest.mark.parametrize("item", [
    b'{"jsonrpc":"2.0","id":1.5,"method":"x","params":NaN}', b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"x","params":[Infinity]}',
    b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"jsonrpc":"2.0","id":1e5,"method":"x"}', b'{"jsonrpc":"2.0","id":[1],"method":"x"}', b"7", b"null", b"[[]]"],
    ids=["nan", "infinity", "deep", "power", "container", "number", "null", "array"])
def test_a7_15_odd_items_of_a_batch_break_nothing(item):
    for block in (b"[" + item + b"]\n", b"[" + item.replace(b'"method":"x"', b'"result":1') + b"]\n"):
        cold() >> block
        cold() >> says(block)
        gone(replaying().then(block))


# --------------------------------------------------------------------------- the deadline (A10.1-A10.4)

def test_a10_3_the_deadline_fails_all_and_takes_nothing_more():
    book = Playbook(engine()).then(initialize(), request(1, "tools/list"), Spawned(1))
    (book >> advance(60.0) << Failure(0, "timed out after 1m0s", "start") << Failure(1, "timed out after 1m0s")
     << CloseInput(False) << Timer("ladder", 0.25)
     >> says(result(0, handshake()) + result(1, TOOLS) + request("s1", "ping")) << None
     >> Exited("exit status 0", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Release()
     >> request(2, "tools/call") << Spawn() << Timer("startup", 60) << own_initialize(2)).check()


def test_a10_2_a_hanging_listing_fails_the_call_that_it_let_through():
    book = replaying().then(replayed(), advance(59.0))
    (book >> advance(1.0) << Failure(7, "timed out after 1m0s", "listing") << CloseInput(False)
     << Timer("ladder", 0.25)).check()


def test_a10_2_refresh_fatal_off():
    (replaying(refresh_fatal=False) >> replayed() << to_server(INITIALIZED) << own_list() << Timer("own-limit", 60)
     << Timer("window", 2) << to_server(CALL) << ClearTimer("startup")).then(advance(100.0)).check()


def test_a10_2_refresh_fatal_off_a_hanging_listing_does_not_swallow_changes_for_ever():
    """A11.4: only what comes before the end of the start is part of it."""
    book = replaying(refresh_fatal=False).then(replayed(), says(result(7)), advance(100.0)) >> says(CHANGED)
    assert to_client(CHANGED) in [effect for effect, _ in book.open]


def test_a10_4_no_deadline_behind_the_start():
    (cold().then(request(1, "x"), advance(3.0)) >> advance(1e6) << None).check()


@pytest.mark.parametrize("method, holds", [("tools/list", True), ("server/discover", True), ("x", True)])
def test_a10_1_requests_before_a_handshake_hold_the_deadline(method, holds):
    book = Playbook(engine()) >> request(1, method) << Spawn() << Timer("startup", 60) << to_server(request(1, method))
    answer = result(1, {"supportedVersions": []} if method == "server/discover" else {})
    book >> Spawned(1) >> says(answer)
    if method == "server/discover":  # its answer is recorded since there is a second era
        book << Save()
    (book << ClearTimer("startup") << to_client(answer)).check()


def test_a10_1_modern_calls_do_not_hold_the_deadline_their_listings_do():
    call, listing = modern(1, "tools/call"), modern(2, "tools/list")
    (Playbook(engine()) >> call << Spawn() << Timer("startup", 60) << to_server(call) << ClearTimer("startup")
     >> Spawned(1) >> advance(1e4) << None).check()
    (Playbook(engine()) >> listing + call << Spawn() << Timer("startup", 60) << to_server(listing) << to_server(call)
     >> Spawned(1) >> says(result(2, TOOLS)) << Save() << ClearTimer("startup") << to_client(result(2, TOOLS))
     >> advance(1e4) << None).check()


def test_a10_1_an_initialize_for_a_running_server_arms_it():
    book = cold().then(advance(3.0)) >> initialize(5) << Timer("startup", 60) << to_server(initialize(5))
    (book >> says(result(5, handshake())) << Timer("window", 2) << ClearTimer("startup")
     << to_client(result(5, handshake()))).check()
    book = cold().then(advance(3.0), initialize(5))
    (book >> advance(60.0) << Failure(5, "timed out after 1m0s", "handshake") << CloseInput(False)
     << Timer("ladder", 0.25)).check()


def test_a10_1_a_handshake_that_never_ends_is_named_so_although_a_probe_was_answered():
    book = Playbook(engine()).then(request(1, "server/discover", {}), Spawned(1), says(refusal(1)), initialize(2))
    (book >> advance(60.0) << Failure(2, "timed out after 1m0s", "handshake") << CloseInput(False)
     << Timer("ladder", 0.25)).check()


def test_a10_14_an_answer_that_does_not_parse_is_noise_and_the_deadline_still_holds():
    broken = b'{"jsonrpc":"2.0","id":0,"result":{"a":"' + b"x" * 2000 + b'"]}}\n'
    book = Playbook(engine()).then(initialize(), Spawned(1))
    (book >> says(broken) << None
     >> says(result(0, handshake())) << Save() << Timer("window", 2) << ClearTimer("startup")
     << to_client(result(0, handshake()))).check()


def test_a10_14_an_own_answer_that_does_not_parse_is_noise():
    broken = b'{"jsonrpc":"2.0","id":"mcp-lazy-init-1","result":{"a":"' + b"x" * 2000 + b'"]}}\n'
    (replaying() >> says(broken) << None
     >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2) << to_server(CALL)).check()


@pytest.mark.parametrize("noise, kind", [
    (b"Content-Length: 52\r\n", "Content-Length"), (b"{\n", "several lines"), (b"starting ...\n", "prints text"),
    (b'{"level":"info"}\n', "no JSON-RPC"), (b'{"jsonrpc":"1.0","id":0,"result":{}}\n', "no JSON-RPC")])
def test_a10_14_noise_is_not_passed_on_and_is_named_in_the_error(noise, kind):
    book = Playbook(engine()).then(initialize(), Spawned(1)) >> says(noise) << None
    (book >> Exited("exit status 1", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Failure(0, "exit status 1", kind)
     << Release() << ClearTimer("startup")).check()


# ----------------------------------------------------------------------------- ends (A10.5-A10.13)

def test_a10_7_a_refused_handshake():
    (replaying() >> request(8, "x") << None
     >> says(refusal("mcp-lazy-init-1", -32602, "go away"))
     << Failure(7, "refused the handshake: go away") << Failure(8, "refused the handshake") << ClearTimer("startup")
     << CloseInput(False) << Timer("ladder", 0.25)).check()


def test_a10_6_a_spawn_failure():
    (warm() >> CALL << Spawn() << Timer("startup", 60) << own_initialize()
     >> SpawnFailed("no such file") << Failure(7, "cannot start the server: no such file")
     << Release() << ClearTimer("startup")
     >> request(8, "x") << Spawn() << Timer("startup", 60) << own_initialize(2)).check()


@pytest.mark.parametrize("make, phase", [
    (lambda: Playbook(engine()).then(initialize(), CALL, Spawned(1)), "handshake"),
    (lambda: Playbook(engine()).then(CALL, Spawned(1)), "start"), (lambda: replaying(), "handshake"),
    (lambda: replaying().then(replayed()), "listing"), (lambda: woken().then(CALL), "call")])
def test_a10_8_an_unexpected_exit_by_phase(make, phase):
    book = make() >> Exited("SIGSEGV", b"boom \x1b[31m") << Timer("ladder", 0.25)
    book >> OutputClosed()
    failed = [effect for effect, _ in book.open if type(effect) is Write]
    assert Failure(7, "server exited (SIGSEGV)", "during the " + phase, "boom  [31m").matches(failed[-1], 0), failed
    assert book.relay.state == ASLEEP and not book.timers


def test_a10_8_the_output_is_read_for_250_ms_behind_the_exit():
    book = woken().then(CALL) >> Exited("exit status 1", b"") << Timer("ladder", 0.25)
    (book >> says(result(7)) << to_client(result(7))
     >> advance(0.25) << Release() << ClearTimer("window")).check()


def test_a10_10_a_server_that_takes_no_input():
    (woken().then(CALL) >> ServerBroke("server stopped accepting input", b"")
     << Failure(7, "stopped accepting input") << ClearTimer("window") << CloseInput(False) << Timer("ladder", 0.25)
     >> says(result(7)) << None).check()


def crash(book, generation):
    """One start that dies before its handshake is over; what the client was written."""
    book.then() >> request(generation, "x")
    if Spawn() in [effect for effect, _ in book.open]:
        book.then(Spawned(generation), Exited("exit status 9", b"")) >> OutputClosed()
    return [effect for effect, _ in book.open if type(effect) is Write and effect.side == CLIENT]


def test_a10_13_backoff_after_three_starts_that_came_to_nothing():
    book = warm()
    for generation in (1, 2, 3):
        assert Failure(generation, "exit status 9").matches(crash(book, generation)[0], 0)
    (book.then() >> request(4, "x") << Failure(4, "exit status 9", "due in 0.5 s")
     >> b"[%s]\n" % request(5, "x").strip() << Failure([5], "exit status 9") >> advance(0.5) << None
     >> request(6, "x") << Spawn() << Timer("startup", 60) << own_initialize(4))
    book.then(Spawned(4), Exited("exit status 9", b""), OutputClosed())
    (book >> request(7, "x") << Failure(7, "exit status 9", "due in 1.0 s")
     >> request(8, "tools/list") << to_client(result(8, TOOLS)) >> advance(1.0)).then(
         CALL, Spawned(5), replayed(5), Exited("exit status 9", b""), OutputClosed())
    (book >> request(9, "x") << Spawn() << Timer("startup", 60) << own_initialize(6)).check()


def test_a10_13_a_probe_that_is_answered_does_not_make_a_start_good():
    book = Playbook(engine())
    for generation in (1, 2, 3):  # each another one: the refusal of the same is recorded and starts nothing (B5)
        book.then(request(1, "server/discover", {"n": generation}), Spawned(1), says(refusal(1)), initialize(2), Exited("exit status 9", b""),
                  OutputClosed())
    (book >> request(1, "server/discover", {}) << Failure(1, "exit status 9", "next start is due")).check()


# -------------------------------------------------------------------------------- idle stop (A12)

@pytest.mark.parametrize("busy", [
    lambda book: book.then(request(8, "x")), lambda book: book.then(says(request("s1", "ping")))])
def test_a12_2_the_idle_stop_waits_for_what_is_open(busy):
    book = busy(woken(idle_stop_s=5.0)).then(advance(20.0))
    assert book.relay.state == LIVE
    book.then(says(result(8)), result("s1"), advance(10.0))
    assert book.relay.state == STOPPING


def test_a12_1_every_line_puts_it_off():
    book = woken(idle_stop_s=5.0).then(advance(4.0), says(notification("n")), advance(4.0), notification("n"))
    book.then(advance(4.9))
    assert book.relay.state == LIVE
    book.then(advance(0.2))
    assert book.relay.state == STOPPING


def test_a12_2_never_without_a_recorded_handshake():
    book = Playbook(engine(idle_stop_s=5.0)).then(request(1, "x"), Spawned(1), says(result(1)), advance(50.0))
    assert book.relay.state == LIVE


def test_a12_2_a_server_started_for_the_modern_era_needs_none():
    """There is no handshake to replay (A17.6), so nothing is lost by the stop."""
    book = Playbook(engine(idle_stop_s=5.0)).then(modern(1, "x"), Spawned(1), says(result(1)), advance(4.9))
    assert book.relay.state == LIVE
    assert book.then(advance(0.2)).relay.state == STOPPING


def test_a12_2_a_listing_of_ours_that_hangs_does_not_hold_it_off():
    """The refresh has the startup deadline; a later one of ours has none of its own."""
    book = woken(idle_stop_s=5.0).then(advance(2.5), says(CHANGED), advance(2.5), advance(30.0))
    assert book.relay.state == STOPPING


def test_a8_7_requests_for_a_stopping_server_wait_until_it_is_gone():
    (stopping() >> request(8, "x") << None
     >> request(9, "tools/list") << to_client(result(9, TOOLS))
     >> advance(0.25) << CloseInput(True) << KillGroup(15) << Timer("ladder", 0.5)
     >> advance(0.5) << KillGroup(9) << Timer("ladder", 1.0)
     >> Exited("SIGKILL", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Release() << Spawn() << Timer("startup", 60) << Timer("idle", 5)
     << own_initialize(2)
     >> Spawned(2) >> replayed(2) << to_server(INITIALIZED) << own_list(generation=2) << Timer("window", 2)
     << to_server(request(8, "x"))).check()


def test_a8_3_a_pipelined_handshake_for_a_stopping_server_arrives_whole():
    other = initialize(5, "2024-11-05")
    book = stopping() >> other + INITIALIZED + request(6, "tools/list") << None
    book.then(Exited("exit status 0", b"")) >> OutputClosed()
    sent = b"".join(effect.raw for effect, _ in book.open if type(effect) is Write and effect.side == SERVER)
    assert sent == other + INITIALIZED + request(6, "tools/list")


def test_a8_6_the_clients_initialized_behind_a_replay_is_swallowed():
    (woken() >> INITIALIZED << None).check()
    (replaying() >> INITIALIZED << None).check()


def test_a7_11_a_new_handshake_with_a_running_server_has_its_own_initialized():
    book = woken().then(initialize(20), says(result(20, handshake())))
    (book >> INITIALIZED << to_server(INITIALIZED)).check()


# --------------------------------------------------------------------- what holds it off besides (A12)

IDLE, LONG = 5.0, 100000.0
TASK = {"taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None}
STATUS = "notifications/tasks/status"


def now_task(status="completed", ttl=None, **more):
    return dict(TASK, status=status, ttl=ttl, **more)


def asked(book, *lines, ident=20, method="tools/call"):
    """A request of the client, and what the server says then."""
    return book.then(request(ident, method), says(*lines))


def modern_live(**changed):
    """LIVE, started by a modern call."""
    book = Playbook(engine(idle_stop_s=IDLE, **changed)).then(modern(7, "tools/call"), Spawned(1), says(result(7)))
    assert book.relay.state == LIVE
    return book


def live(**changed):
    return woken(idle_stop_s=IDLE, **changed)


def held_for(book, wanted_s):
    """It is not stopped before `wanted_s` (None: ever), and soon after."""
    if wanted_s is None:
        assert book.then(advance(LONG)).relay.state == LIVE
        return
    book.then(advance(max(0, wanted_s - 0.1)))
    assert book.relay.state == LIVE, "stopped too early"
    book.then(advance(2 * IDLE + 0.2))
    assert book.relay.state == STOPPING, "not stopped"


def test_a12_what_holds_it_off_is_more_than_the_idle_stop_itself():
    held_for(live(), IDLE)
    held_for(modern_live(), IDLE)


@pytest.mark.parametrize("how", [
    lambda book: asked(book, result(20, {"task": TASK})),
    lambda book: asked(book, result(20, {"_meta": {}, "task": now_task("input_required")})),
    lambda book: asked(book, result(20, dict(TASK)), method="tasks/get"),
    lambda book: asked(book, result(20, {"tasks": [now_task(taskId="u"), TASK]}), method="tasks/list"),
    lambda book: book.then(says(notification(STATUS, TASK))),
    lambda book: book.then(says(notification("notifications/tasks", TASK))),
    lambda book: book.then(says(notification("n"), notification(STATUS, TASK), notification("n"))),
    lambda book: book.then(says(notification(STATUS, TASK).replace(b"/", b"\\/"))),
    lambda book: book.then(says(notification(STATUS, dict(TASK, statusMessage="x" * 5000)))),
    lambda book: asked(book, result(20, {"task": dict(TASK, statusMessage="x" * 5000)}))],
    ids=["call", "input_required", "tasks/get", "tasks/list", "status", "extension", "block", "escaped", "long", "long answer"])
def test_a12_a_task_that_runs_holds_it_off_wherever_it_is_told_of(how):
    held_for(how(live()), None)
    book = how(live()).then(advance(LONG), says(notification(STATUS, now_task(ttl=100000, taskId="u"))))
    book.then(says(notification(STATUS, now_task(ttl=30000))), says(notification(STATUS, now_task(ttl=30000, taskId="u"))))
    held_for(book, 30)


@pytest.mark.parametrize("status, ttl, wanted_s", [
    ("working", 60000, None), ("input_required", 60000, None), ("completed", 60000, 60), ("failed", 60000, 60), ("cancelled", 60000, 60),
    ("completed", None, 600), ("cancelled", None, 600), ("failed", "1", 600), ("working", None, None), ("working", 0, None), ("completed", 0, 0)])
def test_a12_a_task_of_either_revision_holds_it_off_for_its_lifetime(status, ttl, wanted_s):
    wanted_s = max(wanted_s, IDLE) if wanted_s is not None else None
    held_for(asked(live(), result(20, {"task": now_task(status, ttl)})), wanted_s)
    held_for(asked(live(), result(20, now_task(status, ttl)), method="tasks/cancel"), wanted_s)
    flat = {"resultType": "task", "taskId": "t", "status": status, "ttlMs": ttl}
    held_for(modern_live().then(modern(20, "tools/call"), says(result(20, flat))), wanted_s)
    book = modern_live().then(modern(20, "tools/call"), says(result(20, dict(flat, status="working", ttlMs=None))))
    held_for(book.then(modern(21, "tasks/get", taskId="t"), says(result(21, dict(flat, resultType="complete")))), wanted_s)


@pytest.mark.parametrize("ttl", [10 ** 15, 10 ** 400, -10 ** 400, 1e300], ids=["15", "400", "-400", "1e300"])
def test_a12_a_lifetime_of_any_size_breaks_nothing(ttl):
    assert asked(live(), result(20, {"task": now_task("working", ttl)})).then(advance(LONG)).relay.state == LIVE
    assert live().then(says(notification(STATUS, now_task("working", ttl))), advance(LONG)).relay.state == LIVE


@pytest.mark.parametrize("found", [
    {"content": [{"type": "text", "text": json.dumps(TASK)}]}, {"structuredContent": TASK}, {"task": [TASK]}, {"task": dict(TASK, taskId=5)},
    {"task": {"taskId": "t"}}, {"tasks": TASK}, {"tasks": [[TASK]]}, [TASK], "taskId", None], ids=ascii)
def test_a12_an_answer_that_only_speaks_of_a_task_does_not(found):
    held_for(asked(live(), result(20, found)), IDLE)


def test_a12_a_list_of_tasks_in_a_list_of_tasks_breaks_nothing():
    deep = dict(TASK, status="completed", ttl=0)
    for _ in range(400):
        deep = {"tasks": [deep]}
    held_for(asked(live(), result(20, deep)), IDLE)


def test_a12_an_error_tells_of_no_task():
    held_for(asked(live(), line(id=20, error={"code": -32000, "message": "no", "data": {"task": TASK}})), IDLE)


ELICIT = {"mode": "url", "message": "m", "url": "https://example.com/", "elicitationId": "e"}
COMPLETE = notification("notifications/elicitation/complete", {"elicitationId": "e"})
ASK = line(id="s1", method="elicitation/create", params=ELICIT)
REQUIRED = line(id=20, error={"code": -32042, "message": "no", "data": {"elicitations": [dict(ELICIT, elicitationId="d"), ELICIT]}})


@pytest.mark.parametrize("how", [
    lambda book: book.then(says(ASK), result("s1", {"action": "accept"})),
    lambda book: book.then(says(line(id="s1", method="elicitation/create", params=dict(ELICIT, message="x" * 5000))),
                           result("s1", {"action": "accept"})),
    lambda book: asked(book, REQUIRED).then(says(COMPLETE.replace(b'"e"', b'"d"')))], ids=["request", "long request", "error"])
@pytest.mark.parametrize("done", [COMPLETE, COMPLETE.replace(b"/", b"\\/"), COMPLETE.replace(b"/", b"\\u002f"),
                                  notification("n") + COMPLETE + notification("n")], ids=["plain", "escaped", "u", "block"])
def test_a12_a_visit_to_a_url_holds_it_off_until_it_is_completed(how, done):
    held_for(how(live()), 600)
    book = how(live()).then(advance(500.0))
    assert book.relay.state == LIVE
    held_for(book.then(says(done)), IDLE)


def test_a12_an_elicitation_that_is_no_visit_holds_it_off_until_it_is_answered():
    """A11.5."""
    book = live().then(says(line(id="s1", method="elicitation/create", params={"message": "m", "requestedSchema": {}})), advance(LONG))
    assert book.relay.state == LIVE
    held_for(book.then(result("s1", {"action": "accept"})), IDLE)


@pytest.mark.parametrize("data", [None, [], "x", 5, {}, {"elicitations": None}, {"elicitations": {}}, {"elicitations": "e"},
                                  {"elicitations": [None, 5, "e", []]}, {"elicitations": [{}, {"elicitationId": None}, {"elicitationId": 5}, {"elicitationId": ["e"]}]}], ids=str)
def test_a12_odd_data_of_an_error_is_no_visit(data):
    held_for(asked(live(), line(id=20, error={"code": -32042, "message": "no", "data": data})), IDLE)
    held_for(asked(live(), line(id=20, error="-32042")), IDLE)


@pytest.mark.parametrize("params", [None, [], "x", {}, {"elicitationId": None}, {"elicitationId": 5}, {"elicitationId": []}], ids=str)
def test_a12_odd_elicitations_break_nothing(params):
    book = live().then(says(line(id="s1", method="elicitation/create", params=params)), result("s1"),
                       says(notification("notifications/elicitation/complete", params)), says(notification(STATUS, params)))
    held_for(book, IDLE)


def test_a12_7_a_subscription_to_a_resource_holds_it_off_until_it_is_given_up():
    """An idle server that is stopped would tell of no change."""
    def said(book, ident, method, answer=None):
        return book.then(request(ident, method, {"uri": "u:1"}), says(answer or result(ident)))
    book = said(live(), 20, "resources/subscribe").then(advance(LONG))
    assert book.relay.state == LIVE
    held_for(said(book, 21, "resources/unsubscribe"), IDLE)
    held_for(said(live(), 20, "resources/subscribe", refusal(20)), IDLE)
    book = said(said(live(), 20, "resources/subscribe"), 21, "resources/unsubscribe", refusal(21)).then(advance(LONG))
    assert book.relay.state == LIVE, "it was not given up"


def test_a12_6_a_listen_stream_holds_it_off_only_where_it_was_granted_single_resources():
    def heard(wanted, granted):
        return modern_live().then(listen(20, **wanted), says(acknowledged(20, **granted)))
    uris = {"resourceSubscriptions": ["u:1"]}
    held_for(heard({"toolsListChanged": True}, {"toolsListChanged": True}), IDLE)
    held_for(heard(uris, uris), None)
    held_for(heard(uris, {"resourceSubscriptions": []}), IDLE)
    held_for(heard(uris, {}), IDLE)
    held_for(heard(uris, uris).then(advance(LONG), cancel(20)), IDLE)
    held_for(heard(uris, uris).then(advance(LONG), says(result(20, {"resultType": "complete"}))), IDLE)


URIS = {"resourceSubscriptions": ["u:1", "u:2"], "toolsListChanged": True}


def reopened(ident=20, granted=None):
    """A stream that the server had acknowledged; that one died, and the client's next call started another."""
    book = modern_live().then(listen(ident, **URIS), says(acknowledged(ident, **(URIS if granted is None else granted))))
    return gone(book, "SIGSEGV").then(modern(8, "tools/call"), Spawned(2))


def stream_end(ident):
    return to_client(line(id=ident, result={"resultType": "complete", "_meta": {lazy.SUBSCRIPTION_KEY: ident}}))


@pytest.mark.parametrize("ident", [20, "s", 0], ids=repr)
@pytest.mark.parametrize("answer", [refusal, lambda ident: refusal(ident, -32603), lambda ident: result(ident, {"resultType": "complete"})],
                         ids=["unknown", "no more", "over at once"])
def test_a12_7_a_stream_of_single_resources_that_the_new_server_refuses_is_ended(ident, answer):
    """The client waits for updates that nobody would send: it gets the result by which a server takes a stream down."""
    book = reopened(ident) >> says(answer(ident))
    saved = [effect for effect, _ in book.open if type(effect) is not Save]
    assert saved == [stream_end(ident)] and not book.relay.streams.of_resources()
    held_for(book.then(says(result(8)), advance(0)), IDLE)
    (book.then(Exited("exit status 0", b""), OutputClosed(), modern(9, "tools/call")) >> Spawned(3) << None).check()
    assert to_server(listen(ident, **URIS)) not in [effect for effect, _ in book.open], "it is not opened again"


def test_a12_7_a_stream_of_single_resources_that_the_new_server_takes_goes_on():
    book = reopened()
    (book >> says(acknowledged(20, **dict(URIS, resourceSubscriptions=["u:2", "u:1"]))) << None).check()
    update = notification("notifications/resources/updated", {"uri": "u:1", "_meta": {lazy.SUBSCRIPTION_KEY: 20}})
    (book >> says(update) << to_client(update)).check()
    held_for(book.then(says(result(8))), None)


@pytest.mark.parametrize("granted", [{"toolsListChanged": True}, {"resourceSubscriptions": ["u:2"]}, {"resourceSubscriptions": None},
                                     {"resourceSubscriptions": "u:1 u:2"}, {}], ids=str)
def test_a12_7_a_stream_of_single_resources_that_the_new_server_takes_in_part_is_ended(granted):
    """On both sides: the server is told, and what it still says about it is nobody's."""
    book = reopened()
    (book >> says(acknowledged(20, **granted)) << to_server(cancel(20)) << stream_end(20)
     >> says(result(20, {"resultType": "complete"})) << None).check()
    held_for(book.then(says(result(8))), IDLE)


@pytest.mark.parametrize("granted", [{"toolsListChanged": True}, {"toolsListChanged": True, "resourceSubscriptions": []}], ids=str)
def test_a17_8_a_stream_without_single_resources_stays_with_us_when_it_is_refused(granted):
    """What a start finds out is told on it all the same; resources that were never granted are no loss."""
    for answer in (refusal(20), acknowledged(20)):
        book = reopened(granted=granted) >> says(answer)
        assert not [effect for effect, _ in book.open if type(effect) is not Save]
        book.then(says(CHANGED), cancel(20))


def test_a12_a_crash_ends_its_errands_and_a_stale_task_fails_loudly():
    """The new process is asked, and its refusal is the client's."""
    book = asked(live(), result(20, {"task": TASK}), ASK).then(result("s1"))
    gone(book, "exit status 9")
    assert book.relay.state == ASLEEP and not book.relay.errands
    ask = request(30, "tasks/get", {"taskId": "t"})
    book.then(ask, Spawned(2), replayed(2))
    (book >> says(refusal(30, -32602, "no such task")) << to_client(refusal(30, -32602, "no such task"))).check()
    book.then(relisted(generation=2))
    held_for(book, IDLE)


def test_a12_7_the_level_and_the_subscriptions_come_back_after_a_crash_in_their_order():
    level, first, second = {"level": "error"}, {"uri": "u:1"}, {"uri": "u:2", "x": 1.0}
    book = live().then(
        request(20, "logging/setLevel", level), says(result(20)), request(21, "resources/subscribe", first), says(result(21)),
        request(22, "resources/subscribe", second), says(result(22)), request(23, "resources/subscribe", {"uri": "u:3"}), says(refusal(23)))
    (gone(book, "SIGSEGV").then(CALL, Spawned(2)) >> replayed(2) << to_server(INITIALIZED)
     << to_server(line(id="mcp-lazy-level-2", method="logging/setLevel", params=level))
     << to_server(line(id="mcp-lazy-subscribe-2-1", method="resources/subscribe", params=first))
     << to_server(line(id="mcp-lazy-subscribe-2-2", method="resources/subscribe", params=second))
     << own_list(generation=2) << Timer("window", 2) << to_server(CALL)
     >> says(line(id="mcp-lazy-level-2", result={}), line(id="mcp-lazy-subscribe-2-1", result={}), refusal("mcp-lazy-subscribe-2-2")) << None).check()
    book.then(relisted(generation=2), says(result(7)))
    held_for(book, None)


# -------------------------------------------------------------------------- late progress (issue 4, 6)

def progress(token, number=1, **more):
    return notification("notifications/progress", dict({"progressToken": token, "progress": number}, **more))


def tracked(ident, token, **more):
    return request(ident, "tools/call", dict({"name": "a", "_meta": {"progressToken": token}}, **more))


def passed(book, *lines):
    """True for each line that reaches the client, said alone."""
    found = []
    for one in lines:
        book.then() >> says(one)
        written = b"".join(effect.raw for effect, _ in book.open if type(effect) is Write)
        assert written in (b"", one)
        found.append(written == one)
    book.then()
    return found


TOKENS = [1, 0, "1", "a", "", -1]


@pytest.mark.parametrize("token", TOKENS, ids=repr)
@pytest.mark.parametrize("size", [0, 3000], ids=["short", "long"])
@pytest.mark.parametrize("answer", [result(8), refusal(8)], ids=["result", "error"])
def test_late_progress_is_passed_during_the_call_and_dropped_behind_its_answer(answer, size, token):
    pad = "x" * size
    book = woken().then(tracked(8, token, arguments={"a": pad}))
    one, long = progress(token), progress(token, message="m" * 3000)
    assert passed(book, one, long, one, answer, one, long, progress(token, 1.5)) == [True] * 4 + [False] * 3
    others = [progress(other) for other in TOKENS if repr(other) != repr(token)]
    assert passed(book, *others) == [True] * 5, "1 is not \"1\", and what nobody knows passes"


def test_late_progress_in_one_block_with_the_answer():
    book = woken().then(tracked(8, 1))
    (book >> says(progress(1, 1), result(8), progress(1, 2), notification("n"), progress(1, 3), progress(2), notification("n"))
     << to_client(progress(1, 1), result(8), notification("n"), progress(2), notification("n"))).check()


def test_late_progress_of_a_cancelled_call_is_dropped_its_answer_passes():
    book = woken().then(tracked(8, "p"), cancel(8))
    assert passed(book, progress("p"), result(8), progress("p")) == [False, True, False]


def test_late_progress_of_a_call_that_was_never_sent_is_nobodys_business():
    book = replaying().then(tracked(8, "p"), cancel(8), replayed(), relisted(), says(result(7)))
    assert book.relay.state == LIVE and passed(book, progress("p")) == [True]


def test_late_progress_of_a_call_that_waited_in_the_queue():
    book = replaying().then(tracked(8, "p"), replayed(), relisted())
    assert passed(book, progress("p"), result(8), progress("p")) == [True, True, False]


def test_late_progress_of_a_call_that_took_too_long_is_dropped():
    book = woken(call_timeout_ns=10 ** 9).then(tracked(8, "p"))
    assert passed(book, progress("p")) == [True]
    book.then(advance(2.1))
    assert passed(book, progress("p"), result(8), progress("p")) == [False, False, False]


@pytest.mark.parametrize("found", [{"task": TASK}, dict(TASK, resultType="task", ttlMs=5)], ids=["2025-11-25", "extension"])
def test_late_progress_of_a_task_is_not_late(found):
    """Its token holds as long as the task (25-11, progress)."""
    book = woken().then(tracked(8, "p"), tracked(9, "q"))
    assert passed(book, result(8, found), progress("p"), result(9), progress("p"), progress("q")) == [True, True, True, True, False]
    assert passed(book, notification(STATUS, TASK), progress("p"), progress("q")) == [True, True, False]


GIVEN = {"content": [], "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t"}}}


def want_result(book, *answers):
    return book.then(request(20, "tools/call"), request(21, "tasks/result", {"taskId": "t"}), says(*answers))


@pytest.mark.parametrize("over", [
    lambda book: book.then(says(notification(STATUS, now_task("failed")))),
    lambda book: book.then(says(notification("notifications/tasks", now_task("completed")))),
    lambda book: book.then(says(notification("n"), notification(STATUS, now_task("completed")), notification("n"))),
    lambda book: asked(book, result(20, now_task()), method="tasks/get"),
    lambda book: asked(book, result(20, now_task("cancelled")), method="tasks/cancel"),
    lambda book: asked(book, result(20, {"tasks": [now_task(taskId="u"), now_task()]}), method="tasks/list"),
    lambda book: want_result(book, result(21, GIVEN)), lambda book: want_result(book, result(21, dict(GIVEN, x="x" * 300000)))],
    ids=["status", "extension", "block", "get", "cancel", "list", "result", "large result"])
def test_late_progress_of_a_task_is_late_behind_its_end(over):
    """25-11, tasks: progress stops with the terminal status. That of another task goes on."""
    book = woken().then(tracked(8, "p"), tracked(9, "q"), says(result(8, {"task": TASK}), result(9, {"task": dict(TASK, taskId="v")})))
    assert passed(book, progress("p"), progress("q")) == [True, True]
    book.then(request(30, "tasks/get", {"taskId": "t", "_meta": {"progressToken": "g"}}), says(result(30, TASK)))
    assert passed(book, progress("p"), progress("g")) == [True, False], "asking for it ends nothing, and has a token of its own"
    over(book)
    assert passed(book, progress("p"), progress("q")) == [False, True]
    book.then(tracked(31, "p"))
    assert passed(book, progress("p"), result(31), progress("p")) == [True, True, False]


@pytest.mark.parametrize("answer", [refusal(21), result(20), result("other", GIVEN)], ids=["refused", "other id", "nobody's"])
def test_late_progress_goes_on_where_the_result_of_a_task_was_not_given(answer):
    book = woken().then(tracked(8, "p"), says(result(8, {"task": TASK})))
    want_result(book, answer)
    assert passed(book, progress("p")) == [True]
    book.then(says(request("s1", "elicitation/create", {"message": "m"})), result("s1", dict(GIVEN, action="accept")))
    assert passed(book, progress("p")) == [True], "an answer to a question that the task has"


@pytest.mark.parametrize("params", [None, [], {}, {"taskId": ["t"]}, {"taskId": None}, "t"], ids=str)
def test_late_progress_odd_questions_for_results_break_nothing(params):
    book = asked(live(), result(20, {"task": TASK}))
    book.then(request(21, "tasks/result", params), says(result(21, GIVEN), request("s1", "tasks/result", params)), result("s1", GIVEN))
    held_for(book, None)


def test_late_progress_of_a_task_that_was_over_at_once():
    book = woken().then(tracked(8, "p"))
    assert passed(book, result(8, {"task": now_task("completed")}), progress("p")) == [True, False]


def test_a12_the_result_of_a_task_that_the_client_has_is_asked_for_by_the_server():
    book = live().then(says(request("s1", "sampling/createMessage", {"task": {}})), result("s1", {"task": {"taskId": "t", "status": "working"}}))
    book.then(says(request("s2", "tasks/result", {"taskId": "t"})), result("s2", GIVEN))
    held_for(book, 600)


def test_late_progress_of_an_answer_that_only_speaks_of_a_task_is_late():
    book = woken().then(tracked(8, "p"))
    assert passed(book, result(8, {"structuredContent": {"task": TASK}}), progress("p")) == [True, False]


def test_late_progress_of_a_token_in_use_again_is_passed():
    book = woken().then(tracked(8, 1))
    assert passed(book, result(8), progress(1)) == [True, False]
    book.then(tracked(9, 1))
    assert passed(book, progress(1), result(9), progress(1)) == [True, True, False]
    book.then(tracked(10, "1"))
    assert passed(book, progress("1"), progress(1)) == [True, False]


def test_late_progress_of_a_list_that_is_recorded_and_of_a_handshake():
    """Codex sends a token with its listings."""
    ask = request(8, "tools/list", {"_meta": {"progressToken": 0}})
    book = woken().then(ask)
    assert passed(book, progress(0), result(8, TOOLS), progress(0)) == [True, True, False]
    hello = line(id=0, method="initialize", params=dict(json.loads(initialize())["params"], _meta={"progressToken": "i"}))
    book = Playbook(engine()).then(hello, Spawned(1), cancel(0))
    assert passed(book, progress("i"), result(0, handshake()), progress("i")) == [True, True, False]


def test_late_progress_an_answer_that_is_none_ends_nothing():
    """A10.14: what came was noise, the request is open."""
    book = woken().then(request(8, "tools/list", {"_meta": {"progressToken": 5}}))
    book.then(says(b'{"jsonrpc":"2.0","id":8,"result":{"a":"' + b"x" * 2000 + b'"]}}\n'))
    assert passed(book, progress(5), result(8, TOOLS), progress(5)) == [True, True, False]


def test_late_progress_that_names_no_token_is_passed():
    book = woken().then(tracked(8, "p"), says(result(8)))
    odd = [notification("notifications/progress", params) for params in (
        None, [], [{"progressToken": "p"}], "p", {}, {"progressToken": None}, {"progressToken": ["p"]}, {"progressToken": {"p": 1}},
        {"progressToken": 1.0}, {"progressToken": True}, {"progress": 1}, {"token": "p"})]
    assert passed(book, *odd) == [True] * len(odd)
    assert passed(book, notification("notifications/Progress", {"progressToken": "p"}),
                  notification("notifications/message", {"progressToken": "p", "data": "notifications/progress"})) == [True, True]
    assert passed(book, progress("p").replace(b"progress\"", b"\\u0070rogress\""), progress("p").replace(b"/", b"\\/")) == [False, False]


def test_late_progress_is_forgotten_with_its_process():
    book = gone(woken().then(tracked(8, "p"), says(result(8))), "SIGSEGV")
    book.then(CALL, Spawned(2), replayed(2), relisted(generation=2), says(result(7)))
    assert not book.relay.flights.late and passed(book, progress("p")) == [True]


def written(book, block):
    """The writes that one block of the server makes."""
    book.relay.shelf.now_ms = 0
    return [effect.raw for effect in book.relay.handle(says(block), book.now_s) if type(effect) is Write]


def test_a_flood_of_notifications_leaves_as_the_block_it_came_in(monkeypatch):
    """Nothing is late: nobody looks at its lines, a call of its own open or not."""
    looks, judge = [], lazy.ServerDesk.judge
    monkeypatch.setattr(lazy.ServerDesk, "judge", lambda desk, one: looks.append(one) or judge(desk, one))
    flood = b"".join(progress("p", number) for number in range(2000))
    book = woken()
    looks.clear()
    assert [one is flood for one in written(book, flood)] == [True]
    assert [one is flood for one in written(book.then(tracked(8, "p")), flood)] == [True] and not looks
    book.then(says(result(8)))
    assert written(book, flood) == [] and len(looks) == 2001, "all of it is late"
    looks.clear()
    talk = b"".join(notification("notifications/message", {"n": number}) for number in range(2000))
    assert [one is talk for one in written(book, talk)] == [True] and not looks, "late tokens do not matter to it"
    book.then(tracked(9, "q"))
    mixed = flood.replace(b'"p"', b'"q"')
    assert written(book, mixed) == [mixed], "it was looked at, and leaves in one piece"
    assert written(book, mixed + flood[:len(progress("p", 0))] + mixed) == [mixed, mixed]


# ------------------------------------------------------------------------------ calls, queue limits

def test_a1_10_call_timeout():
    (woken(call_timeout_ns=10 ** 9) >> CALL << to_server(CALL)  # the timer of an earlier call still runs
     >> advance(1.0) << to_server(cancel(7)) << Failure(7, "tools/call timed out after 1s")
     >> says(result(7)) << None).check()


def test_a1_10_call_timeout_of_a_batch_is_one_array_and_a_late_answer_none():
    batch = b"[%s,%s]\n" % (request(1, "x").strip(), request(2, "y").strip())
    book = cold(call_timeout_ns=10 ** 9).then(advance(3.0), batch) >> advance(1.0)
    told = [effect for effect, _ in book.open if type(effect) is Write and effect.side == CLIENT]
    assert len(told) == 1 and Failure([1, 2], "timed out after 1s").matches(told[0], 0), told
    book.then()
    (book >> says(b"[%s,%s]\n" % (result(1).strip(), result(2).strip())) << None).check()


def test_a1_10_a_queued_batch_that_timed_out_is_not_sent():
    batch = b"[%s]\n" % request(1, "x").strip()
    book = replaying(call_timeout_ns=10 ** 9).then(batch) >> advance(1.0)
    assert [effect for effect, _ in book.open if Failure([1], "timed out after 1s").matches(effect, 0)]
    book.then() >> replayed()
    assert to_server(batch) not in [effect for effect, _ in book.open]


def test_a7_17_an_id_that_timed_out_twice_has_two_late_answers():
    book = cold(call_timeout_ns=10 ** 9).then(request(1, "x") + request(1, "y"), advance(1.0))
    (book >> says(result(1, 1)) << None >> says(result(1, 2)) << None).check()


def test_a7_17_the_answer_to_another_request_is_not_recorded_as_a_list():
    """Two requests share an id: nobody can tell which one an answer belongs to; and it is no list (A6.3)."""
    book = cold().then(request(1, "tools/list") + request(1, "x"), says(result(1, {"n": 82})))
    assert kept(book) is None


def test_a1_10_call_timeout_leaves_the_start_to_its_own_deadline():
    """The server stays: nothing may kill it later because its `initialize` was slow."""
    book = Playbook(engine(call_timeout_ns=10 ** 9)).then(initialize(), Spawned(1), advance(2.0), says(result(0, handshake())))
    (book.then(advance(3.0)) >> advance(100.0) << None).check()


def test_a1_10_call_timeout_counts_for_what_waited_behind_a_stopping_server():
    book = gone(stopping(call_timeout_ns=10 ** 9).then(request(8, "x")))
    book.then(Spawned(2), replayed(2), relisted(generation=2)) >> advance(2.0)
    assert [effect for effect, _ in book.open if Failure(8, "x timed out after 1s").matches(effect, 0)]


def test_a6_1_a_late_handshake_is_recorded_under_the_version_that_was_asked_for():
    """A client that gave up on its first `initialize` tries an older version; then the first is answered."""
    book = Playbook(engine()).then(initialize(0), Spawned(1), initialize(1, "2024-11-05"), says(result(0, handshake())))
    assert [key[1] for key in book.relay.shelf.recording.entries] == [VERSION]


def test_a5_9_a_refresh_is_recorded_for_the_client_it_was_made_for():
    found = both(recorded(), recorded(capabilities=ROOTS))
    book = Playbook(engine(found)).then(initialize(), INITIALIZED, CALL, Spawned(1), replayed(), initialize(9, **ROOTS), relisted(MORE))
    assert [entry.answers["tools/list"].pages for entry in book.relay.shelf.recording.entries.values()] == [[raw(MORE)], [raw(TOOLS)]]


def test_a10_12_a_full_queue_holds_the_client_until_it_is_sent():
    big = request(8, "x", {"x": "y" * lazy.MAX_QUEUE_BYTES})
    book = replaying() >> big << HoldClient(True)
    (book >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2) << HoldClient(False)
     << to_server(CALL) << to_server(big)).check()


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a10_12_a_queue_that_shrinks_lets_the_client_go_on(how):
    """The cancel can stand in the same block as the line that filled the queue."""
    big = request(8, "x", {"x": "y" * lazy.MAX_QUEUE_BYTES})
    book = replaying(call_timeout_ns=10 ** 9).then(big)
    book >> (cancel(8) if how == "cancel" else advance(1.0))
    assert HoldClient(False) in [effect for effect, _ in book.open]


@pytest.mark.parametrize("params", [[1], None, 5, {"uri": []}, {"uri": {"a": 1}}, {}])
@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"])
def test_odd_params_of_what_is_kept_for_later_starts_break_nothing(method, params):
    one = line(id=1, method=method, params=params)
    (woken() >> one << to_server(one) >> says(result(1)) << to_client(result(1))).check()


@pytest.mark.parametrize("capabilities", [b"[" * 900 + b"]" * 900, b"1e" + b"1" * 5000, b"1" * 5000, b"NaN", b'"\\ud800"'],
                         ids=["deep", "power", "digits", "nan", "surrogate"])
def test_odd_capabilities_pass_like_any_others(capabilities):
    one = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"v","capabilities":%s}}\n' % capabilities
    book = Playbook(engine()) >> one << Spawn() << Timer("startup", 60) << to_server(one)
    book.then(Spawned(1)) >> says(result(0, handshake()))
    assert to_client(result(0, handshake())) in [effect for effect, _ in book.open]


# ----------------------------------------------------------------------------- leaving (A13.6-A13.12)

def test_a13_7_in_flight_at_the_end_is_answered_during_the_ladder_or_failed():
    (woken().then(CALL, request(8, "x"), advance(3.0)) >> EOF << CloseInput(False) << Timer("ladder", 0.25)
     >> says(result(7)) << to_client(result(7))
     >> Exited("exit status 0", b"") << Timer("ladder", 0.25)
     >> OutputClosed() << ClearTimer("ladder") << Failure(8, "server exited (exit status 0)") << Release() << Exit(0)).check()


def test_a13_8_drain_waits_for_what_is_in_flight():
    (woken(drain_s=3.0).then(CALL, advance(2.5)) >> EOF << Timer("drain", 3)
     >> says(result(7)) << to_client(result(7)) << CloseInput(False) << Timer("ladder", 0.25)).check()
    (woken(drain_s=3.0).then(CALL, advance(2.5)) >> EOF << Timer("drain", 3)
     >> advance(3.0) << CloseInput(False) << Timer("ladder", 0.25)).check()
    (woken(drain_s=3.0).then(advance(2.5)) >> EOF << CloseInput(False) << Timer("ladder", 0.25)).check()


@pytest.mark.parametrize("first, second, hurried", [
    (StopSignal("SIGTERM"), StopSignal("SIGTERM"), True), (StopSignal("SIGINT"), StopSignal("SIGTERM"), True),
    (StopSignal("SIGHUP"), StopSignal("SIGHUP"), False), (StopSignal("SIGTERM"), EOF, False)])
def test_a13_11_a_second_signal_skips_to_sigkill(first, second, hurried):
    book = woken().then(advance(3.0)) >> first << CloseInput(False) << Timer("ladder", 0.25) >> second
    if hurried:
        book << CloseInput(True) << KillGroup(9) << Timer("ladder", 1.0)
    book.check()


def test_a13_1_the_whole_ladder_and_a_process_that_does_not_die():
    (woken(stop_grace_s=2.0).then(CALL, advance(3.0)) >> StopSignal("SIGTERM") << CloseInput(False) << Timer("ladder", 0.25)
     >> advance(0.25) << CloseInput(True) << KillGroup(15) << Timer("ladder", 2.0)
     >> advance(2.0) << KillGroup(9) << Timer("ladder", 1.0)
     >> advance(1.0) << Failure(7, "does not die") << Exit(1)).check()


def test_a13_1_nothing_happens_behind_the_exit_of_a_stuck_server():
    book = stopping().then(request(8, "x"), advance(5.0))
    (book >> Exited("SIGKILL", b"") << Timer("ladder", 0.25) >> OutputClosed() << ClearTimer("ladder") << Release()).check()


@pytest.mark.parametrize("event", [EOF, ClientGone("output closed"), StopSignal("SIGTERM")])
@pytest.mark.parametrize("make", [lambda: warm(), lambda: cold(), lambda: replaying(), lambda: settling(), lambda: woken(),
                                  lambda: stopping(),
                                  lambda: Playbook(engine()).then(initialize(), Spawned(1))],
                         ids=["ASLEEP", "LIVE-cold", "REPLAY", "SETTLE", "LIVE", "STOPPING", "COLD"])
def test_a13_6_the_client_goes_in_every_state(make, event):
    """One Exit, nothing started any more, no timer left."""
    book = make()
    seen = []
    for one in (event, Exited("exit status 0", b""), OutputClosed(), advance(100.0), EOF, StopSignal("SIGINT")):
        book.then() >> one
        seen += [effect for effect, _ in book.open]
    assert seen.count(Exit(0)) == 1 and Spawn() not in seen and not book.timers
    assert seen[-1] == Exit(0)


# --------------------------------------------------------------------------------- wake command (C)

def waking(**changed):
    """ASLEEP, the first wake command (right behind `initialized`) still runs."""
    return warm(wake=True, **changed)


def test_c1_c2_when_the_wake_command_runs():
    (Playbook(engine(recorded(), wake=True)) << Timer("wake-tick", 5)
     >> advance(5.0) << Timer("wake-tick", 5)
     >> initialize() << to_client(result(0, handshake())) >> advance(5.0) << Timer("wake-tick", 5)
     >> advance(1.0) >> INITIALIZED << RunWake() << Timer("wake-limit", 1)
     >> WakeEnded("exit status 1") << ClearTimer("wake-limit")
     >> advance(4.0) << Timer("wake-tick", 5) << RunWake() << Timer("wake-limit", 1)
     >> WakeEnded("SIGSEGV") << ClearTimer("wake-limit")).check()


def test_c2_initialized_that_is_said_again_runs_nothing():
    """One run behind the first; after another handshake it is said for the first time again."""
    (waking() >> INITIALIZED << None >> WakeEnded("exit status 1") << ClearTimer("wake-limit")
     >> INITIALIZED << None >> INITIALIZED << None
     >> initialize(1) << to_client(result(1, handshake())) >> INITIALIZED << RunWake() << Timer("wake-limit", 1)).check()


NOTHING = ("wake command: nothing to do (exit status 1)", 2)


def failed(text, level=1):
    return "wake command failed: %s" % text, level


def logs_of_runs(*texts):
    """(text, level) of the log's lines about a wake command whose runs end so, in turn."""
    world = World(settings(wake=True), recorded(), wake=[(text, 0.0) for text in texts])
    world.send(initialize(), INITIALIZED)
    world.run(for_s=5.0 * (len(texts) - 1))
    assert not world.wake_ends and world.spawns == 0
    return [(effect.text, effect.level) for effect in world.effects if type(effect) is lazy.Log and "wake" in effect.text]


@pytest.mark.parametrize("text", ["x: not found on PATH (/bin)", "/x: has no execute bit", "SIG: x", "exit status 126", "exit status 127"])
def test_c4_a_predicate_that_never_ran_is_told_to_a_person_once(text):
    """Level 0 goes to stderr where no log is on; a word that is misspelt is so at each interval, then without the value of PATH (A16.4)."""
    short = text.partition(" (")[0]
    assert logs_of_runs(text, text, "exit status 1", text, "exit status 127") == [
        failed(text, 0), failed(short), NOTHING, failed(short), failed("exit status 127")]


@pytest.mark.parametrize("text", ["exit status 2", "exit status 255", "exit status 128", "SIGSEGV", "signal 40", "exit status 12"])
def test_c4_a_predicate_that_ran_and_failed_is_the_logs_business(text):
    assert logs_of_runs(text, text, "exit status 127") == [failed(text), failed(text), failed("exit status 127", 0)]


def test_c4_nothing_to_do_is_one_line_for_verbose_until_something_else_happens():
    assert logs_of_runs("exit status 1", "exit status 1", "exit status 1") == [NOTHING]
    assert logs_of_runs("exit status 1", "exit status 3", "exit status 1", "exit status 1") == [NOTHING, failed("exit status 3"), NOTHING]


def test_c4_a_match_starts_with_a_replay_and_a_refresh():
    (waking() >> WakeEnded("exit status 0") << ClearTimer("wake-limit") << Spawn() << Timer("startup", 60) << own_initialize()
     >> Spawned(1) >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2)
     >> relisted() << ClearTimer("startup")
     >> advance(20.0)).then() >> request(8, "x") << to_server(request(8, "x"))


def test_c5_a_wake_command_that_runs_too_long_is_killed():
    (waking() >> advance(1.0) << KillWake() >> WakeEnded("SIGKILL") << None).check()


def test_c6_a_request_does_not_wait_for_the_wake_command():
    (waking() >> CALL << Spawn() << Timer("startup", 60) << own_initialize()
     >> Spawned(1) >> WakeEnded("exit status 0") << ClearTimer("wake-limit")).check()


def test_c7_leaving_kills_it_and_its_end_means_nothing_any_more():
    (waking() >> EOF << KillWake() << ClearTimer("wake-tick") << ClearTimer("wake-limit") << Exit(0)).check()
    book = waking().then(EOF) >> WakeEnded("exit status 0")
    assert not [effect for effect, _ in book.open if type(effect) is not ClearTimer]


def test_c7_no_wake_command_runs_behind_the_exit():
    book = waking().then(WakeEnded("exit status 1"), EOF) >> advance(20.0)
    assert RunWake() not in [effect for effect, _ in book.open]


def test_c8_a_start_by_the_wake_command_that_fails_tells_nobody():
    book = waking().then(WakeEnded("exit status 0"), Spawned(1)) >> Exited("exit status 1", b"") << Timer("ladder", 0.25)
    (book >> OutputClosed() << ClearTimer("ladder") << Release() << ClearTimer("startup")
     >> advance(5.0) << Timer("wake-tick", 5) << RunWake() << Timer("wake-limit", 1)).check()


def test_a13_7_a_block_behind_a_broken_output_starts_nothing():
    """The two blocks of one read: the answer to the first finds the client's end closed."""
    (warm() >> ClientGone("output closed") << Exit(0) >> CALL << None).check()


def test_a12_7_a_subscription_that_the_new_server_refuses_is_given_up():
    """Else it would hold off the idle stop for ever, for nothing."""
    book = live().then(request(20, "resources/subscribe", {"uri": "u:1"}), says(result(20)))
    gone(book, "SIGSEGV").then(CALL, Spawned(2), replayed(2), says(refusal("mcp-lazy-subscribe-2-1")), relisted(generation=2), says(result(7)))
    assert book.relay.told.subscriptions == {}
    held_for(book, IDLE)


def test_a7_17_what_a_stopped_server_owed_does_not_swallow_an_answer_of_the_next():
    """--call-timeout waits for the late answer of a call; behind an idle stop it cannot come any more."""
    book = stopping_behind_a_timeout()
    gone(book).then(CALL, Spawned(2), replayed(2), relisted(generation=2))
    (book >> says(result(7)) << to_client(result(7))).check()


def stopping_behind_a_timeout():
    book = woken(idle_stop_s=5.0, call_timeout_ns=10 ** 9).then(CALL, advance(1.5), advance(3.6))
    assert book.relay.state == STOPPING
    return book


# -- answers of the client, and what it said before it went

ASKS = request("s1", "elicitation/create", {"mode": "url", "elicitationId": "e", "url": "https://x/"})


@pytest.mark.parametrize("action, held", [("accept", True), ("decline", False), ("cancel", False)])
def test_a12_a_visit_that_the_user_declines_holds_off_nothing(action, held):
    book = live().then(says(ASKS), result("s1", {"action": action}))
    assert bool(book.relay.errands) is held


def test_a12_a_task_that_the_client_has_for_the_server_holds_it_off():
    """2025-11-25: the receiver of a request makes the task, and that can be the client."""
    book = live().then(says(request("s1", "sampling/createMessage", {"task": {}})), result("s1", {"task": {"taskId": "t", "status": "working"}}))
    held_for(book, None)
    book.then(notification("notifications/tasks/status", {"taskId": "t", "status": "completed", "ttl": 0}), advance(2 * IDLE + 1))
    assert book.relay.state == STOPPING


def test_a11_6_an_answer_that_crosses_the_end_of_its_server_does_not_reach_the_next():
    """It could be taken for consent to what that one asks under the same id."""
    book = gone(live().then(says(ASKS)), "SIGSEGV").then(CALL, Spawned(2), replayed(2), relisted(generation=2), says(result(7)))
    (book >> result("s1", {"action": "accept"}) << None).check()


def test_a7_15_answers_and_cancels_inside_an_array_close_what_they_name():
    book = live().then(says(request("s1", "ping")), request(20, "x"))
    book.then(b"[%s,%s]\n" % (result("s1").strip(), cancel(20).strip()))
    assert not book.relay.flights and not book.relay.flights.server
    held_for(book, IDLE)


# -- arrays (2025-03-26)

def array(*lines):
    return b"[%s]\n" % b",".join(one.strip() for one in lines)


SET_LEVEL, SUBSCRIBE = request(20, "logging/setLevel", {"level": "error"}), request(21, "resources/subscribe", {"uri": "u:1", "x": 1.0})
UNSUBSCRIBE = request(23, "resources/unsubscribe", {"uri": "u:1"})


def told(book):
    return book.relay.told.level, book.relay.told.subscriptions


@pytest.mark.parametrize("answers", [[array(result(21), result(20))], [result(20), result(21)], [array(result(20)), array(result(21))],
                                     [array(result(20).replace(b'"jsonrpc":"2.0",', b""), result(21))]],
                         ids=["one array", "lines", "two arrays", "one version"])
def test_a12_7_what_is_asked_for_inside_an_array_is_set_again(answers):
    """As said alone: in its order, the params with the bytes that the client sent."""
    ask = array(SET_LEVEL.replace(b'"error"', b'"error" , "y": 1.0'), request(22, "tools/call"), SUBSCRIBE)
    book = live().then(ask, says(result(22)))
    assert told(book) == (None, {}), "not before it is granted"
    for one in answers:
        book.then(says(one))
    assert told(book) == (b'{"level":"error" , "y": 1.0}', {"u:1": b'{"uri":"u:1","x":1.0}'}) and not book.relay.flights
    (gone(book, "SIGSEGV").then(CALL, Spawned(2)) >> replayed(2) << to_server(INITIALIZED)
     << to_server(b'{"jsonrpc":"2.0","id":"mcp-lazy-level-2","method":"logging/setLevel","params":{"level":"error" , "y": 1.0}}\n')
     << to_server(line(id="mcp-lazy-subscribe-2-1", method="resources/subscribe", params={"uri": "u:1", "x": 1.0}))
     << own_list(generation=2) << Timer("window", 2) << to_server(CALL)).check()
    held_for(book.then(relisted(generation=2), says(result(7))), None)


def test_a12_7_what_is_given_up_or_refused_inside_an_array_is_not_set_again():
    book = live().then(array(SET_LEVEL, SUBSCRIBE, request(22, "resources/subscribe", {"uri": "u:2"})))
    book.then(says(array(refusal(20), result(21), refusal(22))))
    assert told(book) == (None, {"u:1": b'{"uri":"u:1","x":1.0}'})
    book.then(array(UNSUBSCRIBE), says(array(refusal(23))))
    assert told(book)[1], "it was not given up"
    book.then(array(UNSUBSCRIBE, request(24, "x")), says(array(result(23), result(24))))
    assert told(book) == (None, {})
    held_for(book, IDLE)


def test_a12_7_an_array_that_starts_the_server_is_remembered_too():
    book = warm(idle_stop_s=IDLE).then(array(SET_LEVEL, SUBSCRIBE), Spawned(1), replayed(), relisted(), says(array(result(20), result(21))))
    assert told(book) == (b'{"level":"error"}', {"u:1": b'{"uri":"u:1","x":1.0}'})


@pytest.mark.parametrize("params", [None, [], {}, {"level": "loud"}, {"level": 5}, {"uri": 5}, {"uri": None}], ids=str)
@pytest.mark.parametrize("method", lazy.STATE_METHODS)
def test_a12_7_odd_state_inside_an_array_is_not_kept(method, params):
    book = live().then(array(request(20, method, params)), says(array(result(20))))
    assert told(book) == (None, {}) and not book.relay.flights


def said(book, block):
    """The bytes that reach the client."""
    book.then() >> says(block)
    return b"".join(effect.raw for effect, _ in book.open if type(effect) is Write)


def test_late_progress_inside_an_array_is_dropped_and_the_rest_stays_verbatim():
    """What is left of the array has the bytes that it had; an array of which nothing is left is not sent."""
    book = woken().then(array(tracked(8, "p"), tracked(9, "q")))
    both = array(progress("p"), progress("q"))
    assert said(book, both) == both
    book.then(says(array(result(8))))
    odd = b' {"method":"n", "params":{"b":1.0,"a":"\\u00e9\xc3\xa9"} ,"jsonrpc":"2.0"} '
    assert said(book, both) == array(progress("q"))
    assert said(book, b"[%s,%s, %s]\n" % (progress("p").strip(), odd, result("x", {"n": 1e5}).strip())) == b"[%s,%s]\n" % (
        odd.strip(), result("x", {"n": 1e5}).strip())
    assert said(book, array(progress("p"), progress("p", 2))) == b""
    assert said(book, both[:-2] + b",7]\n") == array(progress("q"), b"7")
    assert said(book, array(result(9), progress("q"), notification("n"))) == array(result(9), notification("n")), "one by one, in order"


def test_late_progress_of_a_call_that_was_cancelled_inside_an_array():
    book = woken().then(array(tracked(8, "p"), request(9, "x")), array(cancel(8), notification("n")))
    assert said(book, array(progress("p"), result(9))) == array(result(9)) and not book.relay.flights
    assert passed(book, progress("p"), result(8)) == [False, True]


def test_late_progress_of_a_call_that_was_cancelled_in_the_array_it_waited_in():
    """A11.2: the server gets both; A11.3: nobody waits for an answer, so it may sleep."""
    ask = array(tracked(8, "p"), cancel(8))
    book = warm(idle_stop_s=IDLE).then(ask, Spawned(1)) >> replayed() << to_server(INITIALIZED) << own_list() << Timer("window", 2)
    (book << to_server(ask)).check()
    book.then(relisted())
    assert passed(book, progress("p")) == [False]
    held_for(book, IDLE)


def test_late_progress_of_an_array_that_took_too_long():
    book = woken(call_timeout_ns=10 ** 9).then(array(tracked(8, "p"), tracked(9, "q")), advance(1.1))
    assert said(book, array(progress("p"), result(9), progress("q"), notification("n"))) == array(notification("n"))


def test_a9_8_a_change_inside_an_array_is_a_change():
    """It is part of the start, or makes the record stale, like one that is said alone."""
    book = replaying().then(replayed())
    assert said(book, array(CHANGED, notification("n"))) == array(notification("n"))
    book = woken() >> says(array(CHANGED)) << Timer("relist", 2)
    (book << to_client(array(CHANGED))).check()


def test_a11_6_requests_and_cancels_of_the_server_inside_an_array():
    book = woken()
    assert said(book, array(request("s1", "roots/list"), request("s2", "ping"))) and len(book.relay.flights.server) == 2
    book.then(says(array(line(method="notifications/cancelled", params={"requestId": "s2"}))))
    (book >> Exited("SIGKILL", b"") << Timer("ladder", 0.25) >> OutputClosed() << ClearTimer("ladder")
     << CALLED_OFF).then()


def test_a7_15_an_array_too_long_to_look_into_passes_whole(monkeypatch):
    block = array(progress("p"), notification("n", {"pad": "x" * lazy.PARSED_BYTES}))
    book = woken().then(tracked(8, "p"), says(result(8)))
    assert said(book, block) == block

    def too_deep(raw):
        raise RecursionError
    monkeypatch.setattr(lazy, "elements", too_deep)
    block = array(progress("p"), notification("n"))
    assert said(book, block) == block, "or too deep"


def test_a10_13_the_requests_of_an_array_that_comes_too_early_keep_their_ids():
    book = warm()
    for generation in (1, 2, 3):
        crash(book, generation)
    book.then() >> b'[{"jsonrpc":"2.0","id":1.0,"method":"x"},{"jsonrpc":"2.0","id":"\\u0061","method":"x"}]\n'
    ((effect, _),) = book.open
    assert b'"id":1.0,' in effect.raw and b'"id":"\\u0061",' in effect.raw


def test_a13_7_what_waited_for_a_stopping_server_is_served_behind_the_end_of_input():
    book = stopping().then(request(8, "x"), lazy.ClientGone("end of input"))
    gone(book).then(Spawned(2), replayed(2))
    (book >> says(result(8)) << to_client(result(8))).check()
    book.then(Exited("exit status 0", b"")) >> OutputClosed()
    assert [effect for effect, _ in book.open][-1] == lazy.Exit(0)
