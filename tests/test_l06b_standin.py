"""L6b: what is served in the server's place, what live answers teach, streams, pages and probes (A5.9 to A9, A17, B5 to B7).

The first half asks the Shelf alone; the second runs Listings, OwnRequests and Streams inside the engine, as transcripts
on the simulated clock (tests/playbook.py).
"""

import gc
import json

import types

import pytest

import mcp_lazy

import mcp_lazy as lazy
from mcp_lazy import (ASLEEP, BEFORE, LIVE, STOPPING, Answer, ClientGone, CloseInput, Entry, Exited, OutputClosed, Release, Save,
                      Shelf, Spawn, Spawned, Write, cache_hints, merged_recording, read_modern, write_recording)
from playbook import Failure, Playbook, Timer, advance, says, to_client, to_server
from sim import (INITIALIZED, MODERN, START_MS, VERSION, acknowledged, both, discovery, engine, handshake, initialize, line, listen, meta,
                 modern, modern_recording, notification, raw, recorded_answer, recording, refusal, request, result, tagged)
from test_l06_record import AT_MS, B5_KEY, B6_KEY, CLAUDE, EMPTY, RESULT, TOOLS, answer, entry_of, read, recording_of

HOUR_MS = 3600 * 1000


# ------------------------------------------------------------------------- the shelf: the legacy era

PARAMS = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def stocked(opening=RESULT, scope=(), **lists):
    """(a shelf as a relay has it after its start, the file that it was read from)."""
    disk = write_recording(recording_of(entry_of(opening=opening, **(lists or {"tools_list": (False, TOOLS)}))))
    shelf = Shelf(read(disk), list(scope))
    shelf.now_ms = AT_MS
    assert shelf.select(PARAMS)
    return shelf, disk


def saved(shelf, disk):
    """What the next start finds."""
    dirty = shelf.take_dirty()
    if dirty:
        disk = merged_recording(disk, shelf.recording, dirty)
    again = Shelf(read(disk), [])
    again.now_ms = shelf.now_ms
    assert again.select(PARAMS)
    return again, disk


def given(shelf, method="tools/list", cursor=None):
    """What a legacy client gets for a list: (is_error, raw) or None."""
    return shelf.listing(shelf.entry, method, cursor)


def learn(shelf, method, is_error, *pages):
    return shelf.learn(shelf.entry, method, is_error, list(pages))


def test_a7_1_a7_5_what_is_recorded_is_served():
    shelf, _ = stocked()
    assert shelf.initialize() == RESULT and given(shelf) == (False, TOOLS)
    assert given(shelf, "prompts/list") is None
    assert shelf.declares_changes(shelf.entry, "tools/list") and not shelf.declares_changes(shelf.entry, "prompts/list")
    assert not shelf.has_news() and set(shelf.served) == {(shelf.entry, "tools/list")}


def test_a7_5_no_list_is_served_without_a_handshake():
    """An entry that holds only lists is half of one."""
    shelf = Shelf(recording_of(entry_of(opening=None, tools_list=(False, TOOLS))), [])
    assert shelf.select(PARAMS) and given(shelf) is None and shelf.listing(None, "tools/list", None) is None
    assert not shelf.served


@pytest.mark.parametrize("params", [{}, {"protocolVersion": ""}, {"protocolVersion": 5}, {"protocolVersion": None, "capabilities": {}}, {"protocolVersion": ["2025-06-18"]}], ids=repr)
def test_a6_4_no_version_no_record(params):
    shelf, _ = stocked()
    assert shelf.select(params) is False
    assert shelf.initialize() is None and given(shelf) is None


@pytest.mark.parametrize("raw", [b"{", b"nope", b"[]", b"5", b"", b'{"a":', b'{"a":1}}', b"\xff"], ids=ascii)
def test_case_055_a_damaged_result_line_is_not_served(raw):
    shelf, _ = stocked(opening=raw)
    assert shelf.initialize() is None
    shelf, _ = stocked(tools_list=(False, raw), prompts_list=(False, b'{"prompts":[]}'))
    assert given(shelf) is None and given(shelf, "prompts/list") == (False, b'{"prompts":[]}')
    assert shelf.initialize() == RESULT, "the others are"
    shelf, _ = stocked(tools_list=(False, raw, TOOLS))
    assert given(shelf) is None, "nor the first of several pages"
    shelf = Shelf(modern_recording({"tools/list": {"tools": []}}), [])
    (entry,) = shelf.recording.entries.values()
    entry.answers.update({"server/discover": Answer(False, [raw], 0), "tools/list": Answer(False, [raw], 0), "prompts/list": Answer(True, [raw], 0)})
    assert discovered(shelf) is None and listed(shelf) is None and listed(shelf, "prompts/list") is None
    assert shelf.capabilities(entry) == {} and shelf.refusal(asked(meta("2099-01-01"))) is None


def test_a_damaged_handshake_has_no_capabilities():
    for raw in (b"nope", b"{}", b'{"capabilities":5}', b'{"capabilities":{"tools":[]}}', b"[]"):
        shelf, _ = stocked(opening=raw)
        assert not shelf.declares_changes(shelf.entry, "tools/list") and not shelf.capabilities(shelf.entry).get("tools")


def test_a6_1_verdicts_about_a_handshake():
    shelf, disk = stocked()
    respelled = RESULT.replace(b'"name":"s"', b'"name" : "\\u0073"')
    assert shelf.learn_initialize(shelf.entry, respelled, replayed=False) == "same" and not shelf.has_news()
    assert given(shelf) == (False, TOOLS)
    changed = RESULT.replace(b'"1.0"', b'"1.1"')
    assert shelf.learn_initialize(shelf.entry, changed, replayed=True) == "changed"
    assert given(shelf) == (False, TOOLS), "A6.2: a replayed one keeps the lists"
    again, disk = saved(shelf, disk)
    assert again.initialize() == changed and given(again) == (False, TOOLS)
    assert again.learn_initialize(again.entry, RESULT, replayed=False) == "changed" and given(again) is None


def test_a6_1_a_first_handshake_is_new():
    shelf = Shelf(recording_of(), [])
    assert shelf.select(PARAMS) and shelf.initialize() is None
    shelf.now_ms = 1764513600123
    assert shelf.learn_initialize(shelf.entry, RESULT, replayed=False) == "new" and shelf.initialize() == RESULT
    again, _ = saved(shelf, None)
    assert again.initialize() == RESULT and again.entry.recorded_at_ms() == 1764513600123
    assert again.capabilities(again.entry)["logging"] == {}


def test_a5_7_a_cold_start_does_not_undo_the_lists_of_another_one():
    """Two relays of one registration start cold at once, with the same server: the later handshake keeps the lists that are there."""
    def cold():
        shelf = Shelf(recording_of(), [])
        assert shelf.select({"protocolVersion": "2025-06-18", "capabilities": {}})
        assert shelf.learn_initialize(shelf.entry, RESULT, replayed=False) == "new"
        return shelf
    one, two = cold(), cold()
    assert learn(one, "tools/list", False, TOOLS) == "new"
    disk = merged_recording(None, one.recording, one.take_dirty())
    disk = merged_recording(disk, two.recording, two.take_dirty())
    (found,) = read(disk).entries.values()
    assert found.opening() == RESULT and found.lists() == ["tools/list"] and found.answers["tools/list"].pages == [TOOLS]


def test_a6_1_a_different_live_handshake_empties_the_lists_on_disk_too():
    shelf, disk = stocked()
    assert shelf.learn_initialize(shelf.entry, b'{"serverInfo":{"version":"2"}}', replayed=False) == "changed"
    disk = merged_recording(disk, shelf.recording, shelf.take_dirty())
    (found,) = read(disk).entries.values()
    assert found.lists() == [] and found.opening() == b'{"serverInfo":{"version":"2"}}'


def test_a6_3_verdicts_about_a_list():
    shelf, disk = stocked()
    assert learn(shelf, "tools/list", False, b'{"tools": [{"x":1,"name":"a"}]}') == "same" and not shelf.has_news()
    assert learn(shelf, "prompts/list", False, b'{"prompts":[]}') == "new"
    assert learn(shelf, "tools/list", False, b'{"tools":[{"name":"b"}]}') == "changed"
    assert shelf.forget(shelf.entry, "resources/list") is False, "nothing was there to delete"
    again, disk = saved(shelf, disk)
    assert given(again) == (False, b'{"tools":[{"name":"b"}]}') and given(again, "prompts/list") == (False, b'{"prompts":[]}')
    assert again.forget(again.entry, "tools/list") is True
    again, disk = saved(again, disk)
    assert given(again) is None and given(again, "prompts/list") is not None


def test_a6_3_a_list_that_the_server_does_not_have():
    shelf, disk = stocked()
    error = b'{"code":-32601,"message":"no"}'
    assert learn(shelf, "prompts/list", True, error) == "new" and given(shelf, "prompts/list") == (True, error)
    assert learn(shelf, "prompts/list", True, error) == "same"
    again, disk = saved(shelf, disk)
    assert given(again, "prompts/list") == (True, error)
    assert learn(again, "prompts/list", False, b'{"prompts":[]}') == "changed", "replaced by the first success"
    assert learn(again, "tools/list", True, error) == "changed", "A9.3: an error is no empty list"


def test_a9_2_an_empty_list_needs_a_second_start():
    shelf, disk = stocked()
    assert learn(shelf, "tools/list", False, EMPTY) == "doubted"
    assert given(shelf) == (False, TOOLS)
    again, disk = saved(shelf, disk)
    assert given(again) == (False, TOOLS), "the doubt is kept for the next start"
    assert learn(again, "tools/list", False, EMPTY) == "changed"
    third, disk = saved(again, disk)
    assert given(third) == (False, EMPTY)


def test_a9_2_the_same_start_confirms_nothing():
    shelf, _ = stocked()
    for _ in range(3):
        assert learn(shelf, "tools/list", False, EMPTY) == "doubted" and given(shelf) == (False, TOOLS)
    shelf.new_start()
    assert learn(shelf, "tools/list", False, EMPTY) == "changed" and shelf.entry.doubts == []


def test_a9_2_a_full_list_ends_the_doubt():
    for full, verdict in ((TOOLS, "same"), (b'{"tools":[{"name":"b"}]}', "changed")):
        shelf, disk = stocked()
        assert learn(shelf, "tools/list", False, EMPTY) == "doubted"
        again, disk = saved(shelf, disk)
        assert learn(again, "tools/list", False, full) == verdict
        third, disk = saved(again, disk)
        assert learn(third, "tools/list", False, EMPTY) == "doubted", "it begins anew"


def test_a9_2_no_doubt_where_nothing_full_was_recorded():
    shelf, _ = stocked(tools_list=(False, EMPTY))
    assert learn(shelf, "tools/list", False, b'{"tools":[],"more":1}') == "changed"
    assert learn(shelf, "prompts/list", False, b'{"prompts":[]}') == "new"
    shelf, _ = stocked(tools_list=(True, b'{"code":-32601}'))
    assert learn(shelf, "tools/list", False, EMPTY) == "changed"


def test_a9_2_a_doubt_about_one_list_is_none_about_another():
    shelf, disk = stocked(tools_list=(False, TOOLS), prompts_list=(False, b'{"prompts":[1]}'))
    assert learn(shelf, "tools/list", False, EMPTY) == "doubted"
    again, _ = saved(shelf, disk)
    assert learn(again, "prompts/list", False, b'{"prompts":[]}') == "doubted"
    assert learn(again, "tools/list", False, EMPTY) == "changed"


@pytest.mark.parametrize("pages", [(EMPTY,), (b'{"tools":[],"nextCursor":"a"}', EMPTY)])
def test_a9_2_a6_9_a_full_list_of_pages_is_not_emptied_at_once(pages):
    shelf, _ = stocked(tools_list=(False, b'{"tools":[],"nextCursor":"a"}', TOOLS))
    assert learn(shelf, "tools/list", False, *pages) == "doubted"
    shelf.new_start()
    assert learn(shelf, "tools/list", False, *pages) == "changed"


def test_a5_8_a_handshake_that_is_too_big_is_not_stored():
    """Of lists `PageSet` says it: see there, and below for what becomes of the old one."""
    big = b'{"x":"%s"}' % (b"x" * (lazy.MAX_RESULT_BYTES - 8))
    shelf, disk = stocked()
    assert len(big) == lazy.MAX_RESULT_BYTES
    assert shelf.learn_initialize(shelf.entry, big + b" ", replayed=True) == "too big" and shelf.initialize() == RESULT
    assert shelf.learn_initialize(shelf.entry, big, replayed=True) == "changed" and shelf.initialize() == big


def test_a5_8_no_list_over_the_limit_is_stored():
    whole = b'{"tools":["%s"]}' % (b"x" * (lazy.MAX_RESULT_BYTES - 14))
    shelf, _ = stocked()
    assert len(whole) == lazy.MAX_RESULT_BYTES and learn(shelf, "prompts/list", False, whole) == "new"
    assert learn(shelf, "resources/list", False, whole + b" ") == "too big" and given(shelf, "resources/list") is None
    assert learn(shelf, "resources/list", False, whole[:-10], b"0123456789 ") == "too big", "all pages together"
    assert learn(shelf, "tools/list", False, whole + b" ") == "changed" and given(shelf) is None, "the old one is wrong now"


def test_design_4_3_start_requests_are_learnt():
    shelf, disk = stocked()
    shelf.learn_start_requests([])
    assert not shelf.has_news()
    shelf.learn_start_requests(["roots/list"])
    again, disk = saved(shelf, disk)
    assert again.entry.start_requests == ["roots/list"]
    again.learn_start_requests(["roots/list"])
    assert not again.has_news()
    empty = Shelf(recording_of(), [])
    empty.learn_start_requests(["roots/list"])
    assert not empty.has_news(), "nothing to keep it with"


def client(name="c", version="1", capabilities=None):
    return {"protocolVersion": "2025-06-18", "capabilities": capabilities or {}, "clientInfo": {"name": name, "version": version}}


@pytest.mark.parametrize("scope, others", [
    ([], ""), ([("client", "")], "name"), ([("client-version", "")], "version"), ([("client", ""), ("client-version", "")], "name version")])
def test_a5_9_scope_words_tell_clients_apart(scope, others):
    shelf = Shelf(recording_of(), scope)
    assert shelf.select(client())
    shelf.learn_initialize(shelf.entry, RESULT, replayed=False)
    for change, params in (("name", client(name="d")), ("version", client(version="2"))):
        assert shelf.select(params)
        assert (shelf.initialize() is None) == (change in others.split()), change
    assert shelf.select(client()) and shelf.initialize() == RESULT
    assert shelf.select(client(capabilities={"roots": {}})) and shelf.initialize() is None, "capabilities always count"


def test_a5_9_scope_values_of_directory_and_environment():
    recording = recording_of()
    shelf = Shelf(recording, [("cwd", "/a"), ("env:X", "digest")])
    shelf.select(client())
    shelf.learn_initialize(shelf.entry, RESULT, replayed=False)
    for scope, known in (([("cwd", "/a"), ("env:X", "digest")], True), ([("cwd", "/b"), ("env:X", "digest")], False),
                         ([("cwd", "/a"), ("env:X", "unset")], False), ([("cwd", "/a")], False), ([], False)):
        other = Shelf(recording, scope)
        other.select(client())
        assert (other.initialize() == RESULT) == known, scope


@pytest.mark.parametrize("info", [None, 5, [], "x", {}, {"name": 5}, {"name": {"a": [1]}}, {"name": "\ud800"}, {"name": "a\nclient-version=1"}], ids=repr)
def test_a5_9_an_odd_client_info_is_no_error(info):
    shelf = Shelf(recording_of(), [("client", ""), ("client-version", "")])
    assert shelf.select({"protocolVersion": "v", "capabilities": {}, "clientInfo": info})
    shelf.learn_initialize(shelf.entry, RESULT, replayed=False)
    assert shelf.initialize() == RESULT


def test_sides_of_one_recording_stand_beside_each_other():
    """Design 6: neither of two capability sets replaces the other."""
    shelf = Shelf(recording_of(), [])
    for capabilities, tag in (({}, b"1"), ({"roots": {}}, b"2")):
        assert shelf.select(client(capabilities=capabilities))
        assert shelf.learn_initialize(shelf.entry, b'{"n":%s}' % tag, replayed=False) == "new"
    again = Shelf(read(merged_recording(None, shelf.recording, shelf.take_dirty())), [])
    for capabilities, tag in (({"roots": {}}, b"2"), ({}, b"1")):
        assert again.select(client(capabilities=capabilities)) and again.initialize() == b'{"n":%s}' % tag


def test_a5_9_many_clients_of_one_session_are_forgotten_again_if_nothing_was_learnt():
    """A client that declares something new each time makes entries without end; those that hold something stay."""
    shelf = Shelf(recording_of(), [])
    shelf.select(client())
    kept = shelf.entry
    shelf.learn_initialize(kept, RESULT, replayed=False)
    gc.collect()
    before = sum(isinstance(one, Entry) for one in gc.get_objects())
    for number in range(500):
        assert shelf.select(client(capabilities={"x": number})) and shelf.initialize() is None
    assert list(shelf.recording.entries.values()) == [kept]
    assert sum(isinstance(one, Entry) for one in gc.get_objects()) - before <= 100
    assert shelf.select(client()) and shelf.entry is kept


# ---------------------------------------------------------------------------------- ages (A5.10)

def test_a5_10_what_was_said_again_is_as_old_as_that():
    shelf, disk = stocked()
    shelf.now_ms += HOUR_MS
    assert learn(shelf, "tools/list", False, TOOLS) == "same"
    assert shelf.learn_initialize(shelf.entry, RESULT, replayed=True) == "same"
    again, _ = saved(shelf, disk)
    assert {found.at_ms for found in again.entry.answers.values()} == {AT_MS + HOUR_MS} and again.entry.recorded_at_ms() == AT_MS + HOUR_MS


def test_a5_10_but_not_written_down_for_every_minute():
    shelf, _ = stocked()
    shelf.now_ms += 59 * 1000
    assert learn(shelf, "tools/list", False, TOOLS) == "same" and not shelf.has_news()
    shelf.now_ms += 2000
    assert learn(shelf, "tools/list", False, TOOLS) == "same" and shelf.has_news()
    assert shelf.entry.answers["tools/list"].pages == [TOOLS]


def test_a5_10_a_clock_that_was_set_back_is_believed_again():
    """Else a record from the future would never be old."""
    shelf, _ = stocked()
    shelf.now_ms -= HOUR_MS
    assert learn(shelf, "tools/list", False, TOOLS) == "same" and shelf.entry.answers["tools/list"].at_ms == AT_MS - HOUR_MS


@pytest.mark.parametrize("limit_ms, age_ms, old", [(0, 10 ** 12, False), (HOUR_MS, HOUR_MS, False), (HOUR_MS, HOUR_MS + 1, True), (HOUR_MS, -5, False)])
def test_a5_10_what_is_old(limit_ms, age_ms, old):
    shelf = Shelf(recording_of(entry_of(tools_list=(False, TOOLS))), [], limit_ms)
    shelf.now_ms = AT_MS + age_ms
    assert shelf.select(PARAMS) and shelf.is_old(shelf.entry) is old
    shelf.entry.answers["initialize"] = answer(False, RESULT, at_ms=shelf.now_ms)
    assert shelf.is_old(shelf.entry) is old, "the oldest of its answers counts"
    assert not shelf.is_old(Entry("modern", "v", "", "")), "nothing is not old"


# ------------------------------------------------------------------------------ lifetimes (A17.5)

@pytest.mark.parametrize("told, age_ms, left", [
    (b"5000", 0, None), (b"5000", 1, b"4999"), (b"5000", 5000, b"0"), (b"5000", 10 ** 12, b"0"), (b"0", 5, None), (b"0", 0, None),
    (b"5000", -1, b"0"), (b"999999999999999", 1, b"999999999999998"), (b"1000000000000000", 1, b"0"), (b"-5", 0, b"0"), (b"1.5", 0, b"0"), (b"1e3", 0, b"0"),
    (b'"5000"', 0, b"0"), (b"null", 0, b"0"), (b"true", 0, b"0"), (b"[5000]", 0, b"0"), (b"{}", 0, b"0"), (b"-0", 0, b"0")])
def test_a17_5_a_lifetime_less_its_age(told, age_ms, left):
    """A clock that was set back makes no age: nothing is known then. A number of 16 digits is none that a server means."""
    page = b'{"resultType":"complete","ttlMs":%s,"cacheScope":"public"}' % told
    assert cache_hints(page, age_ms) == ({} if left is None else {"ttlMs": left})


@pytest.mark.parametrize("members", range(8))
def test_a17_5_what_the_server_left_out(members):
    """26, schema CacheableResult: the revision requires all three."""
    every = [("resultType", '"complete"'), ("cacheScope", '"private"'), ("ttlMs", "0")]
    there = [one for index, one in enumerate(every) if members >> index & 1]
    page = "{%s}" % ",".join('"%s":%s' % one for one in there)
    assert cache_hints(page.encode(), 0) == {name: value.encode() for name, value in every if (name, value) not in there}


def test_a17_5_other_values_of_the_server_stay():
    assert cache_hints(b'{"resultType":"other","cacheScope":"public","ttlMs":7}', 0) == {}
    with pytest.raises(ValueError):
        cache_hints(b"[]", 0)


# --------------------------------------------------------------------- the shelf: the modern era (A17)

def asked(envelope=None, **params):
    """The ModernRequest of params with this `_meta`."""
    found = dict({"_meta": meta() if envelope is None else envelope}, **params)
    return read_modern(request(1, "tools/list", found))


def asked_raw(params_raw):
    return read_modern(b'{"jsonrpc":"2.0","id":1,"method":"server/discover"%s}\n' % (b',"params":' + params_raw if params_raw else b""))


def listed(shelf, method="tools/list", cursor=None, envelope=None):
    """What a modern client gets for a list: (is_error, parsed) or None."""
    one = asked(envelope)
    found = shelf.listing(shelf.modern_entry(one), method, cursor, one.meta_raw)
    return found and (found[0], json.loads(found[1]))


def discovered(shelf, one=None):
    found = shelf.discovery(asked() if one is None else one)
    return found and (found[0], json.loads(found[1]))


def modern_shelf(lists=None, found=None, **more):
    shelf = Shelf(modern_recording(lists, found, **more), [])
    shelf.now_ms = START_MS
    return shelf


def test_a17_4_what_is_recorded_is_served_to_its_version_and_capabilities():
    shelf = modern_shelf({"tools/list": {"tools": [1]}, "prompts/list": -32601}, capabilities={"roots": {"a": 1, "b": 2}})
    mine = meta(capabilities={"roots": {"b": 2.0, "a": 1}})
    assert listed(shelf, envelope=mine) == (False, {"tools": [1], "resultType": "complete", "cacheScope": "private", "ttlMs": 0})
    assert listed(shelf, "prompts/list", envelope=mine) == (True, {"code": -32601, "message": "no"})
    assert discovered(shelf, asked(mine)) == (False, discovery())
    for other in (meta(), meta(capabilities={"roots": {"a": 1}}), meta("2026-07-29", {"roots": {"b": 2.0, "a": 1}})):
        assert listed(shelf, envelope=other) is None and discovered(shelf, asked(other)) is None


def test_a17_4_the_rest_of_meta_is_no_part_of_the_key():
    shelf = modern_shelf({"tools/list": {"tools": []}})
    for more in ({"progressToken": 5}, {lazy.CLIENT_KEY: {"name": "d"}}, {"traceparent": "x"}, {lazy.CLIENT_KEY: 5}):
        assert listed(shelf, envelope=meta(**more)) is not None and discovered(shelf, asked(meta(**more))) is not None


@pytest.mark.parametrize("envelope", [{}, {lazy.VERSION_KEY: MODERN}, meta(5), {lazy.VERSION_KEY: MODERN, lazy.CAPABILITIES_KEY: []},
                                      {lazy.VERSION_KEY: MODERN, lazy.CAPABILITIES_KEY: None}], ids=repr)
def test_a17_4_an_envelope_that_is_not_whole_has_no_entry(envelope):
    shelf = modern_shelf({"tools/list": {"tools": []}})
    assert shelf.modern_entry(asked(envelope)) is None and listed(shelf, envelope=envelope) is None


def test_a17_4_capabilities_nested_too_deeply_have_no_entry():
    deep = asked_raw(b'{"_meta":{"%s":"v","%s":{"a":%s}}}' % (
        lazy.VERSION_KEY.encode(), lazy.CAPABILITIES_KEY.encode(), b"[" * 900 + b"]" * 900))
    shelf = modern_shelf()
    assert deep is None or shelf.modern_entry(deep) is None or isinstance(shelf.modern_entry(deep), Entry)


def test_trap_3_lists_are_served_without_a_discovery():
    """A modern client may begin with a list: there is no handshake."""
    assert listed(modern_shelf({"tools/list": {"tools": []}}, 0)) is not None


@pytest.mark.parametrize("age_ms, left", [(0, 5000), (1000, 4000), (5000, 0), (10 ** 9, 0), (-1, 0)])
def test_a17_5_a_served_page_has_the_rest_of_its_lifetime(age_ms, left):
    page = {"tools": [], "ttlMs": 5000, "x": 1}
    shelf = modern_shelf({"tools/list": page}, dict(discovery(), ttlMs=5000))
    shelf.now_ms += age_ms
    assert listed(shelf)[1]["ttlMs"] == discovered(shelf)[1]["ttlMs"] == left


def test_a17_5_the_legacy_era_has_no_lifetimes():
    shelf, _ = stocked(tools_list=(False, b'{"tools":[1],"ttlMs":5000}'))
    shelf.now_ms += 1000
    assert given(shelf) == (False, b'{"tools":[1],"ttlMs":5000}')


def test_a17_6_the_meta_of_the_last_request_is_kept():
    shelf = modern_shelf({"tools/list": {"tools": []}})
    for number in (1, 2):
        assert listed(shelf, envelope=meta(trace=number, progressToken=number))
    ((entry, method), kept), = shelf.followed.items()
    assert json.loads(kept) == meta(trace=2) and method == "tools/list" and entry.era == "modern"


def test_a17_6_what_was_served_is_not_kept_without_end():
    shelf = Shelf(recording_of(), [])
    entries = [Entry("modern", "v%d" % number, "", "") for number in range(500)]
    for entry in entries:
        shelf.note_served(entry, "tools/list", b"")
    assert len(shelf.served) <= 256 and len(shelf.followed) <= 256 and (entries[-1], "tools/list") in shelf.followed


# -- pages (A6.9)

def paged(era, ttl=None):
    """A shelf with a list of three pages: (ask(cursor) -> (is_error, parsed) or None, its Answer)."""
    pages = [{"tools": [number], "nextCursor": "theirs %d" % number} for number in (0, 1)] + [{"tools": [2]}]
    if ttl is not None:
        pages = [dict(page, ttlMs=ttl) for page in pages]
    shelf = Shelf((recording if era == "legacy" else modern_recording)({"tools/list": pages}), [])
    shelf.now_ms = START_MS
    (entry,) = shelf.recording.entries.values()
    if era == "legacy":
        shelf.select({"protocolVersion": VERSION, "capabilities": {}})

    def ask(cursor):
        found = shelf.listing(entry, "tools/list", cursor, b"")
        return found and (found[0], json.loads(found[1]))
    return ask, entry.answers["tools/list"], shelf


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a6_9_pages_are_served_under_cursors_of_our_own(era):
    ask, recorded, _ = paged(era)
    seen, cursor = [], None
    for _ in range(3):
        is_error, page = ask(cursor)
        assert not is_error
        seen += page["tools"]
        cursor = page.get("nextCursor")
        assert cursor is None or cursor == "mcp-lazy:%s:%d" % (recorded.generation(), len(seen))
    assert seen == [0, 1, 2] and cursor is None
    assert ask("mcp-lazy:%s:0" % recorded.generation()) == ask(None)


def test_a6_9_a17_5_each_page_has_its_hints_and_all_else_is_verbatim():
    ask, recorded, shelf = paged("modern", ttl=1000)
    shelf.now_ms += 400
    assert [ask(cursor)[1]["ttlMs"] for cursor in (None, "mcp-lazy:%s:2" % recorded.generation())] == [600, 600]
    ask, recorded, shelf = paged("legacy")
    entry = shelf.entry
    entry.answers["tools/list"] = Answer(False, [b'{"x" : 1.0,"nextCursor": "a" ,"tools":[ ]}', b'{"tools":[]}'], 0)
    found = shelf.listing(entry, "tools/list", None)
    assert found == (False, b'{"x" : 1.0,"nextCursor": "mcp-lazy:%s:1" ,"tools":[ ]}' % entry.answers["tools/list"].generation().encode())
    assert shelf.listing(entry, "tools/list", "mcp-lazy:%s:1" % entry.answers["tools/list"].generation()) == (False, b'{"tools":[]}')


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("cursor", ["mcp-lazy:%s:3", "mcp-lazy:%s:-1", "mcp-lazy:%s:x", "mcp-lazy:%s:", "mcp-lazy:%s", "mcp-lazy:00000000:1", "mcp-lazy:", "mcp-lazy:%s:99999"])
def test_a6_9_a_cursor_of_ours_that_stands_for_nothing_is_invalid(era, cursor):
    ask, recorded, _ = paged(era)
    is_error, error = ask(cursor.replace("%s", recorded.generation()))
    assert is_error and error["code"] == -32602 and "invalid cursor" in error["message"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("cursor", ["", "x", "theirs 0", "Mcp-lazy:0:1"])
def test_a6_9_any_other_cursor_is_for_the_server(era, cursor):
    assert paged(era)[0](cursor) is None


def test_a6_9_a_cursor_of_a_list_that_is_an_error_or_gone_is_invalid():
    for change in (lambda entry: entry.answers.update({"tools/list": recorded_answer(-32601)}), lambda entry: entry.answers.pop("tools/list")):
        ask, recorded, shelf = paged("modern")
        change(next(iter(shelf.recording.entries.values())))
        assert ask("mcp-lazy:%s:1" % recorded.generation())[1]["code"] == -32602


# -- discovery: the order of its keys (A17.4, B5 to B7)

def probed(before=None, **more):
    """A shelf of the probe answers of this recording, beside a modern entry."""
    shelf = modern_shelf(**more)
    shelf.recording.before = before or {}
    return shelf


NO = {"code": -32601, "message": "no"}


def test_b5_the_exact_key_comes_first():
    one = asked_raw(CLAUDE)
    exact, tolerant = lazy.probe_keys(CLAUDE, "")
    assert (exact, tolerant) == (B5_KEY, B6_KEY)
    capabilities = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}
    before = {exact: recorded_answer({"by": "B5"}), tolerant: recorded_answer(-32601)}
    assert discovered(probed(before, capabilities=capabilities), one)[1]["by"] == "B5"
    del before[exact]
    assert discovered(probed(before, capabilities=capabilities), one)[1]["supportedVersions"] == [MODERN], "then the entry (A17.4)"
    assert discovered(probed(before), one) == (True, NO), "then the tolerant one (B6)"
    assert discovered(probed({}), one) is None


def test_b7_the_tolerant_key_never_supplies_anything_else():
    one = asked_raw(CLAUDE)
    for value in ({"supportedVersions": []}, -32022, -32602, -32000):
        assert discovered(probed({B6_KEY: recorded_answer(value)}), one) is None, value
    assert discovered(probed({B5_KEY: recorded_answer(-32022)}), one)[1]["code"] == -32022


@pytest.mark.parametrize("params", [b"", b"{}", b'{"_meta":{},"x":1}', b'{"_meta":null}'])
def test_b5_a_probe_without_an_envelope_is_found_by_its_text(params):
    """A17.1: `server/discover` is modern with any params; without an envelope there is no entry."""
    one = asked_raw(params)
    shelf = modern_shelf()
    assert discovered(shelf, one) is None
    shelf.learn_probe(one, False, b'{"n":1}')
    assert discovered(shelf, one)[1]["n"] == 1 and len(shelf.recording.before) == 1
    assert discovered(shelf, asked_raw(b"{ " + params[1:] if params else b"{}")) is None, "exactly this text"


def test_a17_4_a_probe_with_further_params_has_no_entry():
    """The entry's key knows only version, capabilities and scope."""
    shelf, one = modern_shelf(), asked(more=1)
    assert discovered(shelf, one) is None and discovered(shelf) is not None
    shelf.learn_probe(one, False, b'{"n":1}')
    assert discovered(shelf, one)[1]["n"] == 1 and "n" not in discovered(shelf)[1]


def probe_keys_of(shelf):
    return sorted(shelf.recording.before)


def test_b7_a_refusal_is_written_under_both_keys_and_a_success_ends_it():
    shelf, one = Shelf(recording_of(), []), asked_raw(CLAUDE)
    shelf.learn_probe(one, True, raw(NO))
    assert probe_keys_of(shelf) == sorted([B5_KEY, B6_KEY]) and shelf.take_dirty() == {(BEFORE, B5_KEY), (BEFORE, B6_KEY)}
    newer = asked_raw(CLAUDE.replace(b"2.1.289", b"2.1.290"))
    assert discovered(shelf, one) == discovered(shelf, newer) == (True, NO), "it outlives an update of the client"
    shelf.learn_probe(newer, False, raw(discovery()))
    assert B6_KEY not in shelf.recording.before and discovered(shelf, newer) == (False, discovery())


@pytest.mark.parametrize("code", [-32000, -32602, -32600, -32603, None])
def test_b7_any_other_answer_ends_the_refusal_and_is_not_kept(code):
    shelf, one = Shelf(recording_of(), []), asked_raw(CLAUDE)
    shelf.learn_probe(one, True, raw(NO))
    disk = merged_recording(None, shelf.recording, shelf.take_dirty())
    shelf.learn_probe(one, True, raw({"code": code, "message": "x"}))
    assert probe_keys_of(shelf) == [] and discovered(shelf, one) is None
    assert not read(merged_recording(disk, shelf.recording, shelf.take_dirty())).before, "nor in the file"


def test_a17_4_an_unsupported_version_is_kept_in_its_entry():
    shelf, one = Shelf(recording_of(), []), asked(meta("2099-01-01"))
    error = {"code": -32022, "message": "x", "data": {"supported": [MODERN]}}
    shelf.learn_probe(one, True, raw(error))
    assert discovered(shelf, one) == (True, error) and list(shelf.recording.before) == [lazy.probe_keys(one.params_raw, "")[0]]
    (entry,) = shelf.recording.entries.values()
    assert entry.opening() is None and entry.version == "2099-01-01"


def test_a17_4_a_refusal_takes_a_recorded_success_away():
    """The server was replaced by one that knows only the other era."""
    shelf = modern_shelf()
    assert discovered(shelf) is not None
    shelf.learn_probe(asked(), True, raw(NO))
    assert discovered(shelf) == (True, NO)
    (entry,) = shelf.recording.entries.values()
    assert entry.opening() is None


def test_a17_4_a_success_takes_the_exact_refusal_away():
    shelf = Shelf(recording_of(), [])
    shelf.learn_probe(asked(), True, raw(NO))
    shelf.learn_probe(asked(), False, raw(discovery()))
    assert discovered(shelf) == (False, discovery())
    assert [answer.is_error for answer in shelf.recording.before.values()] == [False], "the tolerant key is gone (B7)"


def test_a5_9_a_scope_tells_probes_apart():
    shelf = Shelf(recording_of(), [("client", "")])
    one, other = (asked_raw(CLAUDE.replace(b'"claude-code"', name)) for name in (b'"a"', b'"b"'))
    shelf.learn_probe(one, True, raw(NO))
    assert discovered(shelf, one) == (True, NO) and discovered(shelf, other) is None
    unscoped = Shelf(shelf.recording, [])
    assert discovered(unscoped, one) is None


# -- what is refused without a start (26, section 4)

@pytest.mark.parametrize("envelope, code", [
    (meta(), None), ({lazy.VERSION_KEY: MODERN}, -32602), ({lazy.VERSION_KEY: MODERN, lazy.CAPABILITIES_KEY: None}, -32602),
    ({lazy.VERSION_KEY: MODERN, lazy.CAPABILITIES_KEY: []}, -32602), ({lazy.VERSION_KEY: "2099-01-01", lazy.CAPABILITIES_KEY: "x"}, -32602),
    (meta("2099-01-01"), -32022), (meta(""), -32022), ({}, None), (meta(5), None), ({lazy.CAPABILITIES_KEY: {}}, None)], ids=repr)
def test_section_4_what_this_server_would_not_take(envelope, code):
    found = modern_shelf().refusal(asked(envelope))
    assert (found and json.loads(found)["code"]) == code


def test_section_4_the_refusal_names_what_is_supported_and_what_was_asked():
    shelf = modern_shelf(found=dict(discovery(), supportedVersions=["2026-07-28", "\u00e9"]))
    error = json.loads(shelf.refusal(asked(meta('2099"'))))
    assert error["data"] == {"supported": ["2026-07-28", "\u00e9"], "requested": '2099"'} and isinstance(error["message"], str)


@pytest.mark.parametrize("found", [0, -32022, {}, {"supportedVersions": "2026-07-28"}, {"supportedVersions": None}, {"supportedVersions": {"2026-07-28": 1}}], ids=repr)
def test_section_4_of_a_server_that_is_not_known_nothing_is_claimed(found):
    shelf = modern_shelf({"tools/list": {"tools": []}}, found)
    assert shelf.refusal(asked(meta("2099-01-01"))) is None
    assert Shelf(recording_of(entry_of()), []).refusal(asked({lazy.VERSION_KEY: MODERN})) is None


def test_section_4_the_newest_discovery_counts():
    """Entries of two clients: the server was updated between them."""
    older = modern_recording(None, dict(discovery(), supportedVersions=["2099-01-01"]), at_ms=START_MS - 5)
    newer = modern_recording(None, discovery(), {"roots": {}})
    shelf = Shelf(both(newer, older), [])
    assert json.loads(shelf.refusal(asked(meta("2099-01-01"))))["code"] == -32022 and shelf.refusal(asked()) is None


# -- what an older relay left (A5.11)

def test_a5_11_an_imported_handshake_is_served_to_any_capabilities_until_a_live_answer():
    text = b'{"schema":1,"entries":{"%s":{"initialize":%s,"lists":{"tools/list":%s}}}}' % (VERSION.encode(), RESULT, TOOLS)
    shelf = Shelf(recording_of(), [])
    dirty = lazy.import_older(text, shelf.recording)
    for capabilities in ({}, {"roots": {}}):
        assert shelf.select(client(capabilities=capabilities)) and shelf.initialize() == RESULT and given(shelf) == (False, TOOLS)
    assert shelf.learn_initialize(shelf.entry, b'{"n":1}', replayed=False) == "changed" and given(shelf) is None
    assert shelf.select(client()) and shelf.initialize() == RESULT, "each kind of client has its own live answer"
    assert Shelf(shelf.recording, [("client", "")]).select(client()) and len(dirty) == 1
    scoped = Shelf(shelf.recording, [("client", "")])
    assert scoped.select(client()) and scoped.initialize() is None, "it was recorded for no scope"


# ------------------------------------------------------- in the engine: transcripts of the modern era

TOOL_LIST, MORE = {"tools": [{"name": "a"}]}, {"tools": [{"name": "a"}, {"name": "b"}]}
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
CALL = modern("call", "tools/call", name="a")
CHANGED = notification("notifications/tools/list_changed")
GRANT = {"toolsListChanged": True}
EOF = ClientGone("end of input")


def own(kind, number, method="tools/list", generation=1, envelope=None, **params):
    """A request of the relay's own in the modern era, as the server gets it."""
    return to_server(modern("mcp-lazy-%s-%d-%d" % (kind, generation, number), method, envelope, **params))


def own_answer(kind, number, value, generation=1):
    return says(result("mcp-lazy-%s-%d-%d" % (kind, generation, number), value))


def asleep(lists=None, found=None, capabilities=None, max_age_ms=0, **changed):
    """ASLEEP in front of a server that is known as modern."""
    return Playbook(engine(modern_recording({"tools/list": TOOL_LIST} if lists is None else lists, found, capabilities), max_age_ms, **changed))


def holding(ident="L", **more):
    """The same with a held stream."""
    return asleep(**more).then(listen(ident))


def woken(ident="L", **more):
    """LIVE for a call, the stream forwarded and acknowledged; nobody was given a list."""
    book = holding(ident, **more).then(CALL, Spawned(1), says(acknowledged(ident, **GRANT)), says(result("call")))
    assert book.relay.state == LIVE
    return book


def entry_in(book, era="modern"):
    (entry,) = [entry for entry in book.relay.shelf.recording.entries.values() if entry.era == era]
    return entry


def pages_in(book, method="tools/list", era="modern"):
    found = entry_in(book, era).answers.get(method)
    return None if found is None else [json.loads(page) for page in found.pages]


def written(book, side="server"):
    """What was written to one side since the last `then`, and not said yet in the transcript."""
    return b"".join(effect.raw for effect, _ in book.open if type(effect) is Write and effect.side == side)


def stop_to_sleep(book, *events):
    """The end of a generation that was told to stop."""
    book.then(*events, Exited("exit status 0", b""), OutputClosed())
    assert book.relay.state == ASLEEP
    return book


# -- asleep

def test_a17_5_asleep_all_of_the_modern_era_is_answered():
    book = (asleep({"tools/list": TOOL_LIST, "prompts/list": -32601})
            >> modern(1, "server/discover") << to_client(result(1, discovery()))
            >> modern("2", "tools/list") << to_client(result("2", dict(TOOL_LIST, resultType="complete", cacheScope="private", ttlMs=0)))
            >> modern(3, "prompts/list") << to_client(refusal(3))
            >> notification("notifications/cancelled", {"requestId": 3}) + INITIALIZED << None)
    assert book.check() and book.relay.state == ASLEEP


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
def test_section_4_methods_that_the_era_does_not_have(method):
    book = asleep() >> modern(1, method, level="info", uri="u:1")
    ((effect, _),) = book.open
    assert json.loads(effect.raw)["error"]["code"] == -32601 and book.relay.state == ASLEEP


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "subscriptions/listen"])
@pytest.mark.parametrize("envelope, code", [({lazy.VERSION_KEY: MODERN}, -32602), (meta("2099-01-01"), -32022)])
def test_section_4_what_the_server_would_not_take_is_refused_without_it(method, envelope, code):
    book = asleep() >> modern("x", method, envelope, notifications=GRANT)
    ((effect, _),) = book.open
    found = json.loads(effect.raw)
    assert found["id"] == "x" and found["error"]["code"] == code and book.relay.state == ASLEEP


@pytest.mark.parametrize("params", [[], 5, None, "x"], ids=repr)
def test_a17_1_a_probe_that_cannot_be_read_is_for_the_server(params):
    one = line(id=1, method="server/discover", params=params)
    book = asleep() >> one << Spawn() << Timer("startup", 60) << to_server(one)
    (book.then(Spawned(1)) >> says(refusal(1, -32602)) << lazy.ClearTimer("startup") << to_client(refusal(1, -32602))).check()
    assert not book.relay.shelf.recording.before


def test_section_4_a_call_is_never_refused_here():
    one = modern(1, "tools/call", meta("2099-01-01"))
    (asleep() >> one << Spawn() << Timer("startup", 60) << to_server(one)).then()


# -- streams

@pytest.mark.parametrize("ident", ["L", 5, 5.5, "\u00e9\"", "5"])
def test_a17_8_a_stream_is_acknowledged_and_held_without_a_server(ident):
    """The tag is the id in its own JSON type (trap 10)."""
    book = asleep(idle_stop_s=5.0) >> listen(ident) << to_client(acknowledged(ident, **GRANT)) << None
    assert (book >> advance(1e5) << None).check().relay.state == ASLEEP and not book.relay.flights and not book.timers


@pytest.mark.parametrize("kinds, capabilities, granted", [
    ({"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}, {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {}}, GRANT),
    ({"toolsListChanged": False}, {"tools": {"listChanged": True}}, {}), ({"toolsListChanged": 1}, {"tools": {"listChanged": True}}, {}),
    ({"toolsListChanged": True}, {"tools": {"listChanged": 1}}, {}), ({"toolsListChanged": True}, {"tools": True}, {}), ({"toolsListChanged": True}, {"x": {}}, {}),
    ({"resourcesListChanged": True, "resourceSubscriptions": []}, {"resources": {"listChanged": True}}, {"resourcesListChanged": True}),
    ({"unknownKind": False, "other": None, "promptsListChanged": True}, {"prompts": {"listChanged": True}}, {"promptsListChanged": True})])
def test_a17_8_what_is_granted(kinds, capabilities, granted):
    book = asleep(found=discovery(**capabilities)) >> listen(1, **kinds)
    (book << to_client(acknowledged(1, **granted))).check()


@pytest.mark.parametrize("one", [
    listen(1, resourceSubscriptions=["u:1"]), listen(1, resourceSubscriptions="u:1"), listen(1, toolsListChanged=True, unknownKind=True), listen(1, tasks={}),
    modern(1, "subscriptions/listen"), modern(1, "subscriptions/listen", notifications=None), modern(1, "subscriptions/listen", notifications=[])])
def test_a17_8_what_only_the_server_can_promise_starts_it(one):
    (asleep() >> one << Spawn() << Timer("startup", 60) << to_server(one)).then()


@pytest.mark.parametrize("make, one", [
    (lambda: Playbook(engine()), listen(1)), (lambda: asleep(found=0), listen(1)), (lambda: asleep(found=-32022), listen(1)),
    (lambda: asleep(), listen(1, meta(capabilities={"x": {}})))], ids=["cold", "lists alone", "an unsupported version", "other capabilities"])
def test_a17_8_without_the_recorded_discovery_of_this_client_the_server_is_asked(make, one):
    (make() >> one << Spawn() << Timer("startup", 60) << to_server(one)).then()


def test_a17_8_at_the_wake_the_clients_own_line_goes_first():
    """Then what this client was given (A17.6), then what woke it; the acknowledgement is swallowed."""
    spaced = listen("L").replace(b'"id":"L",', b'"id" : "\\u004c", ')
    book = asleep() >> spaced
    granted = written(book, "client")
    assert json.loads(granted)["params"]["_meta"][lazy.SUBSCRIPTION_KEY] == "L" and b'"\\u004c"' in granted
    (book.then(modern(1, "tools/list", meta(progressToken=1)))
     >> CALL << Spawn() << Timer("startup", 60) << to_server(spaced) << own("check", 1) << to_server(CALL)
     >> Spawned(1) >> says(acknowledged("L", **GRANT)) << None
     >> says(result("call")) << to_client(result("call"))
     >> own_answer("check", 1, TOOL_LIST) << lazy.ClearTimer("startup")).check()


def test_a17_6_the_start_is_over_with_the_last_refresh():
    """It holds the startup deadline (A10.2); an equal list makes no line (A9.5)."""
    book = asleep().then(modern(1, "tools/list"), CALL, Spawned(1))
    (book >> says(result("call")) << to_client(result("call"))
     >> own_answer("check", 1, dict(TOOL_LIST, ttlMs=5)) << lazy.ClearTimer("startup")).check()
    book = asleep().then(modern(1, "tools/list"), CALL, Spawned(1)) >> advance(60.0)
    (book << Failure("call", "timed out after 1m0s") << CloseInput(False) << Timer("ladder", 0.25)).check()


def test_a17_6_a_discovery_that_its_exact_key_served_is_compared_too():
    """Recorded live it stands under B5's key and in its entry; both would be wrong for ever."""
    book = Playbook(engine()).then(modern("d", "server/discover"), Spawned(1), says(result("d", discovery())))
    book = Playbook(engine(book.relay.shelf.recording)) >> modern("d", "server/discover") << to_client(result("d", discovery()))
    (book >> CALL << Spawn() << Timer("startup", 60) << own("check", 1, "server/discover") << to_server(CALL)).then(Spawned(1), says(result("call")))
    book.then(advance(1.0), own_answer("check", 1, discovery(prompts={})))
    again = Playbook(engine(book.relay.shelf.recording), 200.0)
    (again >> modern("d", "server/discover") << to_client(result("d", discovery(prompts={})))).check()


def test_a17_6_what_the_server_said_itself_is_compared_at_the_next_start():
    """The client has these answers, by whomever."""
    book = Playbook(engine(idle_stop_s=5.0)).then(modern("d", "server/discover"), Spawned(1), says(result("d", discovery())))
    stop_to_sleep(book.then(modern("l", "tools/list"), says(result("l", TOOL_LIST))), advance(5.0))
    book >> CALL
    assert written(book) == own("check", 1, "server/discover", 2).raw + own("check", 2, "tools/list", 2).raw + CALL


def test_a17_6_what_a_dead_server_still_owed_is_not_waited_for_at_the_next_one():
    book = asleep().then(modern(1, "tools/list"), CALL, Spawned(1), Exited("exit status 1", b""), OutputClosed())
    book >> CALL << Spawn() << Timer("startup", 60) << own("check", 2, generation=2) << to_server(CALL)
    book.then(Spawned(2), says(result("call")))
    (book >> own_answer("check", 2, TOOL_LIST, generation=2) << lazy.ClearTimer("startup")).check()


def test_a17_6_refresh_fatal_off():
    book = asleep(refresh_fatal=False).then(modern(1, "tools/list"), CALL, Spawned(1)) >> advance(60.0) << None
    assert book.check().relay.state == LIVE


def test_a17_6_the_meta_of_the_last_request_goes_into_the_refresh():
    book = asleep().then(modern(1, "tools/list", meta(trace=1)), modern(2, "tools/list", meta(progressToken=7, trace=2)))
    book >> CALL
    assert own("check", 1, envelope=meta(trace=2)).raw in written(book) and b"progressToken" not in written(book)


def test_a17_6_nothing_else_is_refreshed():
    """Two lists are recorded, one was served, of another client's entry none."""
    found = both(modern_recording({"tools/list": TOOL_LIST, "prompts/list": {"prompts": []}}), modern_recording({"tools/list": TOOL_LIST}, None, {"x": {}}))
    book = Playbook(engine(found)).then(modern(1, "prompts/list")) >> CALL
    assert written(book) == own("check", 1, "prompts/list").raw + CALL


def test_a17_8_drift_is_told_on_each_stream_that_was_granted_it():
    """Tagged with the id in its JSON type; behind the last list."""
    book = asleep({"tools/list": TOOL_LIST, "prompts/list": {"prompts": []}}, discovery(tools={"listChanged": True}, prompts={"listChanged": True}))
    book.then(listen(5), listen("5"), listen("p", promptsListChanged=True), modern(1, "tools/list"), modern(2, "prompts/list"), CALL, Spawned(1))
    book.then(says(result("call")), says(acknowledged(5, **GRANT) + acknowledged("5", **GRANT) + acknowledged("p", promptsListChanged=True)))
    (book >> own_answer("check", 1, MORE) << Save()
     >> own_answer("check", 2, {"prompts": []}) << to_client(tagged(5)) << to_client(tagged("5")) << lazy.ClearTimer("startup")).check()
    assert pages_in(book) == [MORE]


def test_a17_8_resources_and_their_templates_make_one_notification():
    lists = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
    book = asleep(lists, discovery(resources={"listChanged": True})).then(listen("r", resourcesListChanged=True))
    book.then(modern(1, "resources/list"), modern(2, "resources/templates/list"), CALL, Spawned(1), says(result("call")))
    book.then(own_answer("check", 1, {"resources": [1]}))
    (book >> own_answer("check", 2, {"resourceTemplates": [1]}) << Save() << to_client(tagged("r", "notifications/resources/list_changed"))
     << lazy.ClearTimer("startup")).check()


def test_design_4_3_what_the_server_calls_changed_at_its_start_is_no_change():
    """Before the list's answer it says nothing; behind it the list is asked for again, and told only if it differs."""
    book = asleep({"tools/list": TOOL_LIST, "prompts/list": {"prompts": []}}).then(listen("L"), modern(1, "tools/list"), modern(2, "prompts/list"), CALL)
    (book.then(Spawned(1), says(acknowledged("L", **GRANT)), says(result("call"))) >> says(tagged("L")) << None
     >> own_answer("check", 1, TOOL_LIST) << None
     >> says(tagged("L") + tagged("L")) << None
     >> own_answer("check", 2, {"prompts": []}) << own("check", 3)
     >> own_answer("check", 3, TOOL_LIST) << lazy.ClearTimer("startup")
     >> says(tagged("L")) << Timer("relist", 2) << to_client(tagged("L"))).check()


def test_a10_2_refresh_fatal_off_what_differs_is_told_although_another_list_hangs():
    book = asleep({"tools/list": TOOL_LIST, "prompts/list": {"prompts": []}}, refresh_fatal=False)
    book.then(listen("L"), modern(1, "tools/list"), modern(2, "prompts/list"), CALL, Spawned(1), says(acknowledged("L", **GRANT)), says(result("call")))
    (book >> own_answer("check", 1, MORE) << Save() >> advance(60.0) << to_client(tagged("L"))).check()


def test_a17_8_drift_without_a_stream_is_recorded_and_told_to_nobody():
    book = asleep().then(modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    (book >> own_answer("check", 1, MORE) << Save() << lazy.ClearTimer("startup")).check()
    assert pages_in(book) == [MORE]


@pytest.mark.parametrize("code, kept", [(-32601, True), (-32600, False), (-32000, False)])
def test_a17_8_a_refusal_at_the_wake_is_swallowed_and_the_stream_stays(code, kept):
    book = holding("L").then(modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    book >> says(refusal("L", code))
    if kept:
        book << Save()
    (book >> own_answer("check", 1, MORE) << Save() << to_client(tagged("L")) << lazy.ClearTimer("startup")).check()
    assert entry_in(book).refuses_listen is kept


def test_a17_8_a_refusal_is_known_in_a_later_session_until_the_server_takes_one():
    found = modern_recording()
    entry = next(iter(found.entries.values()))
    entry.refuses_listen = True
    book = Playbook(engine(found)) >> listen(1)
    assert json.loads(written(book, "client"))["error"]["code"] == -32601 and book.relay.state == ASLEEP
    book = book.then(CALL, Spawned(1), says(result("call")), listen(2))
    (book >> says(acknowledged(2, **GRANT)) << Save() << to_client(acknowledged(2, **GRANT))).check()
    assert entry.refuses_listen is False


def test_a17_8_a_refusal_met_live_is_kept_too():
    book = Playbook(engine(modern_recording())).then(CALL, Spawned(1), says(result("call")))
    (book >> listen(2) << to_server(listen(2)) >> says(refusal(2)) << Save() << to_client(refusal(2))).check()
    assert entry_in(book).refuses_listen is True


def test_a17_8_the_servers_own_changes_come_through_as_they_are():
    """And the list is asked for again when nobody else does (A9.8)."""
    book = woken("L").then(modern(2, "tools/list"), says(result(2, dict(TOOL_LIST, **HINTS))))
    told = tagged("L").replace(b'"L"', b'"\\u004c"')
    (book >> says(told) << Timer("relist", 2) << to_client(told)
     >> advance(2.0) << own("relist", 1)
     >> own_answer("relist", 1, MORE) << Save()).check()
    assert pages_in(book) == [MORE]


def test_a12_6_an_open_stream_does_not_hold_off_the_idle_stop_and_outlives_it():
    book = woken("L", idle_stop_s=5.0).then(advance(5.0))
    assert book.relay.state == STOPPING
    book.then(Exited("exit status 0", b"")) >> OutputClosed()
    assert not written(book, "client")
    book.then()
    (book >> CALL << Spawn() << Timer("startup", 60) << Timer("idle", 5) << to_server(listen("L")) << to_server(CALL)).then()


def test_a17_8_the_servers_end_of_a_stream_while_it_stops_is_swallowed():
    book = woken("L", idle_stop_s=5.0).then(advance(5.0))
    (book >> says(result("L", {"resultType": "complete"})) << None).check()


def test_a17_8_the_servers_end_of_a_stream_is_an_end():
    """It is told once; the stream is no longer opened at later starts."""
    book = woken("L", idle_stop_s=5.0)
    (book >> says(result("L")) << to_client(result("L"))).check()
    stop_to_sleep(book, advance(5.0))
    book >> CALL
    assert written(book) == CALL


def test_a10_8_a_crash_leaves_the_stream_open():
    book = woken("L").then(Exited("SIGSEGV", b""))
    book >> OutputClosed()
    assert not written(book, "client"), "a stream is no request that waits"
    book.then() >> CALL
    assert written(book) == listen("L") + CALL


def test_a17_8_a_stream_opened_live_is_held_like_one_of_ours():
    book = Playbook(engine(modern_recording(), idle_stop_s=5.0)).then(CALL, Spawned(1), says(result("call")))
    (book >> listen(9) << to_server(listen(9)) >> says(acknowledged(9, **GRANT)) << to_client(acknowledged(9, **GRANT))).check()
    assert not book.relay.flights
    stop_to_sleep(book, advance(5.0))
    book >> CALL
    assert written(book) == listen(9) + CALL
    (book.then(Spawned(2)) >> says(acknowledged(9, **GRANT)) << None).check()


def test_a10_8_a_listen_that_was_not_acknowledged_fails_with_its_server():
    book = Playbook(engine(modern_recording())).then(listen(9, unknownKind=True), Spawned(1), Exited("exit status 1", b""))
    book >> OutputClosed()
    assert [effect for effect, _ in book.open if Failure(9, "server exited (exit status 1)").matches(effect, 0)]
    book.then() >> CALL
    assert written(book) == CALL


@pytest.mark.parametrize("ident, other", [(5, "5"), ("5", 5)])
def test_trap_9_trap_10_a_stream_is_cancelled_without_a_word(ident, other):
    book = asleep().then(listen(ident), listen(other))
    (book >> notification("notifications/cancelled", {"requestId": ident}) << None).check()
    book >> CALL
    assert written(book) == listen(other) + CALL, "only that one"


def test_trap_9_a_stream_is_cancelled_live():
    cancel = notification("notifications/cancelled", {"requestId": "L"})
    book = woken("L", idle_stop_s=5.0)
    (book >> cancel << to_server(cancel) >> says(result("L")) << to_client(result("L"))).check()
    stop_to_sleep(book, advance(5.0))
    book >> CALL
    assert written(book) == CALL


@pytest.mark.parametrize("late", [acknowledged("L", **GRANT), refusal("L"), result("L")], ids=["taken", "refused", "ended"])
def test_trap_9_what_the_server_says_late_of_a_stream_that_was_closed_meanwhile_is_not_told(late):
    """The client has the acknowledgement from us and took the stream back before the server's own came."""
    cancel = notification("notifications/cancelled", {"requestId": "L"})
    book = asleep().then(listen("L") + CALL + cancel, Spawned(1))
    (book >> says(late) << None).check()
    assert entry_in(book).refuses_listen is False


def test_a11_3_a_late_acknowledgement_of_the_servers_own_passes_like_any_late_answer():
    """The stream was opened and taken back live: nobody has acknowledged it yet."""
    cancel = notification("notifications/cancelled", {"requestId": 9})
    book = Playbook(engine(modern_recording())).then(CALL, Spawned(1), says(result("call")), listen(9))
    (book >> cancel << to_server(cancel) >> says(acknowledged(9, **GRANT)) << to_client(acknowledged(9, **GRANT))).check()


def test_trap_9_the_server_calls_a_stream_off():
    book = woken("L", idle_stop_s=5.0)
    off = notification("notifications/cancelled", {"requestId": "L"})
    (book >> says(off) << to_client(off)).check()
    stop_to_sleep(book, advance(5.0))
    book >> CALL
    assert written(book) == CALL


def test_a17_8_the_end_of_the_client_is_no_error_on_the_stream():
    (holding("L") >> EOF << lazy.Exit(0)).check()
    book = woken("L") >> EOF << CloseInput(False) << Timer("ladder", 0.25)
    book >> Exited("exit status 0", b"") << Timer("ladder", 0.25)
    (book >> OutputClosed() << lazy.ClearTimer("ladder") << Release() << lazy.Exit(0)).check()


def test_a17_8_streams_are_not_held_without_end():
    book = asleep()
    for number in range(lazy.MAX_STREAMS):
        book.then(listen(number))
    one = listen(lazy.MAX_STREAMS)
    (book >> one << Spawn() << Timer("startup", 60)).then()
    assert book.relay.state != ASLEEP


# -- pages (A6.9)

def page(number, last=False, **more):
    return dict({"tools": [number]}, **({} if last else {"nextCursor": "p%d" % number}), **more)


PAGES = [page(0), page(1), page(2, True)]


def cursor_of(book, index, era="modern"):
    return "mcp-lazy:%s:%d" % (entry_in(book, era).answers["tools/list"].generation(), index)


def test_a6_9_the_clients_first_page_makes_us_read_the_rest():
    """Cold it gets the server's own cursors; the pages are recorded as a whole, with the last."""
    book = Playbook(engine()).then(modern(1, "tools/list"), Spawned(1))
    (book >> says(result(1, PAGES[0])) << own("page", 1, cursor="p0") << lazy.ClearTimer("startup") << to_client(result(1, PAGES[0]))
     >> own_answer("page", 1, PAGES[1]) << own("page", 2, cursor="p1")
     >> modern(2, "tools/list", cursor="p0") << to_server(modern(2, "tools/list", cursor="p0"))
     >> says(result(2, PAGES[1])) << to_client(result(2, PAGES[1]))).check()
    assert not book.relay.shelf.recording.entries, "half of it is nothing"
    (book >> own_answer("page", 2, PAGES[2]) << Save()).check()
    assert pages_in(book) == PAGES


@pytest.mark.parametrize("event", [Exited("exit status 1", b""), says(refusal("mcp-lazy-page-1-1", -32000)), says(refusal("mcp-lazy-page-1-1", -32601))])
def test_a6_9_an_incomplete_walk_is_no_recording(event):
    book = Playbook(engine()).then(modern(1, "tools/list"), Spawned(1), says(result(1, PAGES[0])))
    book >> event
    assert Save() not in [effect for effect, _ in book.open] and not book.relay.shelf.recording.entries


@pytest.mark.parametrize("known", [{"tools/list": PAGES}, {"tools/list": -32601}, {}])
def test_a6_9_another_first_page_is_walked_again(known):
    """What is recorded stays until the last page is there."""
    book = asleep(known).then(CALL, Spawned(1), says(result("call")), modern(1, "tools/list"))
    before = pages_in(book)
    (book >> says(result(1, page(9))) << own("page", 1, cursor="p9") << to_client(result(1, page(9)))).check()
    assert pages_in(book) == before
    (book >> own_answer("page", 1, PAGES[2]) << Save()).check()
    assert pages_in(book) == [page(9), PAGES[2]]


@pytest.mark.parametrize("odd", [
    dict(PAGES[1], nextCursor="p9"), dict(PAGES[1], nextCursor=5), {"tools": {}}, {"nextCursor": "x"}, {"tools": [], "resultType": "input_required"}])
def test_a6_9_case_054_pages_that_do_not_end_well_leave_the_old_recording(odd):
    book = asleep({"tools/list": PAGES}).then(CALL, Spawned(1), says(result("call")), modern(1, "tools/list"))
    (book >> says(result(1, page(9))) << own("page", 1, cursor="p9")).then()
    (book >> own_answer("page", 1, odd) << None).check()
    assert pages_in(book) == PAGES


def test_a5_8_a_list_that_is_too_long_now_is_forgotten():
    """The old one is known to be wrong, and nothing can take its place."""
    big = dict(page(9, True), pad="x" * lazy.MAX_RESULT_BYTES)
    book = asleep().then(listen("L"), CALL, Spawned(1), says(result("call")), modern(1, "tools/list"))
    book >> says(result(1, big))
    assert Save() in [effect for effect, _ in book.open] and pages_in(book) is None
    assert written(book, "client").endswith(result(1, big)), "the client gets it all the same"
    book = asleep().then(listen("L"), modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    (book >> own_answer("check", 1, big) << Save() << to_client(tagged("L")) << lazy.ClearTimer("startup")).check()
    assert pages_in(book) is None


def test_a6_9_an_equal_first_page_of_a_recorded_set_is_not_walked_again():
    """The start did that already."""
    book = asleep({"tools/list": PAGES}).then(CALL, Spawned(1), says(result("call")))
    (book >> modern(1, "tools/list") << to_server(modern(1, "tools/list"))
     >> says(result(1, dict(PAGES[0], nextCursor="other"))) << to_client(result(1, dict(PAGES[0], nextCursor="other")))).check()
    assert pages_in(book) == PAGES


def test_a6_9_the_refresh_reads_all_pages():
    book = asleep({"tools/list": PAGES}).then(listen("L"), modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    book >> own_answer("check", 1, dict(PAGES[0], nextCursor="q0")) << own("page", 2, cursor="q0")
    (book >> own_answer("page", 2, dict(PAGES[1], nextCursor="q1")) << own("page", 3, cursor="q1")
     >> own_answer("page", 3, PAGES[2]) << lazy.ClearTimer("startup")).check()
    assert pages_in(book) == PAGES, "other cursors are no change"


def test_a6_9_a_change_on_the_last_page_is_a_change():
    book = asleep({"tools/list": PAGES}).then(listen("L"), modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    book.then(own_answer("check", 1, PAGES[0]), own_answer("page", 2, PAGES[1]))
    (book >> own_answer("page", 3, page(7, True)) << Save() << to_client(tagged("L")) << lazy.ClearTimer("startup")).check()
    assert pages_in(book) == PAGES[:2] + [page(7, True)]


# -- a cursor of ours meets a live server (A6.9)

def live_with_cursor(index, **more):
    """(LIVE book, the client's request for the page of this index with our cursor)."""
    book = asleep({"tools/list": PAGES}, **more).then(listen("L"), CALL, Spawned(1), says(acknowledged("L", **GRANT)), says(result("call")))
    assert book.relay.state == LIVE
    return book, modern(3, "tools/list", cursor=cursor_of(book, index))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a6_9_a_cursor_of_ours_is_translated_by_reading_up_to_it(index):
    """The answer is the live page, with the server's own cursor; those before it need only be equal."""
    book, ask = live_with_cursor(index)
    book >> ask << own("page", 1)
    fresh = [dict(one, nextCursor="q%d" % number) for number, one in enumerate(PAGES[:2])] + [PAGES[2]]
    for number in range(index):
        (book >> own_answer("page", number + 1, fresh[number]) << own("page", number + 2, cursor="q%d" % number))
    wanted = to_client(result(3, fresh[index]))
    (book >> own_answer("page", index + 1, fresh[index]) << wanted).check()
    assert not book.relay.flights


@pytest.mark.parametrize("odd", [page(9), page(0, True), {"tools": 5}, dict(page(0), nextCursor=7)])
def test_a6_9_a_mismatch_is_an_invalid_cursor_and_a_change(odd):
    """The client reads the list anew; so do we if it does not (A9.8)."""
    book, ask = live_with_cursor(2)
    book.then(ask)
    book >> own_answer("page", 1, odd)
    if b"page-1-2" in written(book):  # a page before the wanted one only shows itself when all are read
        book.then() >> own_answer("page", 2, PAGES[1])
        if b"page-1-3" in written(book):
            book.then() >> own_answer("page", 3, PAGES[2])
    told = written(book, "client").splitlines(True)
    assert json.loads(told[0])["id"] == 3 and json.loads(told[0])["error"]["code"] == -32602 and told[1:] == [tagged("L")]
    assert [effect for effect, at_s in book.open if Timer("relist", 2).matches(effect, at_s)] and not book.relay.flights


def test_a6_9_a_mismatch_that_was_told_already_is_only_an_invalid_cursor():
    """The list was replaced while we read: the client has the new one already."""
    book, ask = live_with_cursor(1)
    book.then(modern(4, "tools/list"), ask)
    (book >> says(result(4, page(7, True))) << Save()).then()
    assert pages_in(book) == [page(7, True)]
    book >> own_answer("page", 1, page(7, True))
    told = written(book, "client")
    assert json.loads(told)["error"]["code"] == -32602 and not [effect for effect, at_s in book.open if Timer("relist", 2).matches(effect, at_s)]


def test_a6_9_a_translation_that_the_server_refuses_is_refused():
    book, ask = live_with_cursor(2)
    (book.then(ask) >> says(refusal("mcp-lazy-page-1-1", -32603)) << to_client(refusal(3, -32603))).check()


def test_a6_9_a_translation_is_a_request_like_any_other():
    """It holds off the idle stop, can be cancelled and fails with the server."""
    book, ask = live_with_cursor(2, idle_stop_s=5.0)
    book.then(ask, advance(20.0))
    assert book.relay.state == LIVE
    book.then(notification("notifications/cancelled", {"requestId": 3}))
    for number in (0, 1, 2):
        book >> own_answer("page", number + 1, PAGES[number])
        assert not written(book, "client"), "no answer to what was cancelled"
        book.then()
    book, ask = live_with_cursor(2)
    book.then(ask, Exited("exit status 1", b"")) >> OutputClosed()
    assert [effect for effect, _ in book.open if Failure(3, "server exited").matches(effect, 0)]


@pytest.mark.parametrize("of_another", ["mcp-lazy:00000000:1", "mcp-lazy:", "mcp-lazy:x"])
def test_a6_9_a_cursor_that_this_relay_never_gave_goes_to_the_server(of_another):
    """There may be another relay behind this one."""
    book, _ = live_with_cursor(0)
    one = modern(3, "tools/list", cursor=of_another)
    (book >> one << to_server(one)).check()


@pytest.mark.parametrize("made_up", ["mcp-lazy:%s:3", "mcp-lazy:%s:99999"])
def test_a6_9_a_page_that_we_never_gave_is_invalid_live_too(made_up):
    book, _ = live_with_cursor(0)
    made_up = made_up.replace("%s", entry_in(book).answers["tools/list"].generation())
    book >> modern(3, "tools/list", cursor=made_up)
    assert json.loads(written(book, "client"))["error"]["code"] == -32602 and not written(book)


def test_a6_9_the_servers_own_cursors_and_words_like_ours_pass():
    book, _ = live_with_cursor(0)
    for one in (modern(3, "tools/list", cursor="p0"), modern(4, "tools/call", text="mcp-lazy:00000000:1"), modern(5, "prompts/list", cursor="x mcp-lazy:"),
                modern(6, "tools/list", filter="mcp-lazy:", cursor="mcp-lazy:00000000:1")):
        book >> one << to_server(one)
    book.check()


def test_a6_9_in_the_legacy_era_too():
    book = Playbook(engine(recording({"tools/list": PAGES}))).then(initialize(), INITIALIZED)
    first = dict(PAGES[0], nextCursor=cursor_of(book, 1, "legacy"))
    (book >> request(1, "tools/list") << to_client(result(1, first))
     >> request(2, "tools/list", {"cursor": cursor_of(book, 2, "legacy")}) << to_client(result(2, PAGES[2]))).check()
    book.then(request("c", "tools/call"), Spawned(1), says(result("mcp-lazy-init-1", handshake())), says(result("c")))
    book.then(says(result("mcp-lazy-check-1-tools/list", PAGES[0])), says(result("mcp-lazy-page-1-1", PAGES[1])), says(result("mcp-lazy-page-1-2", PAGES[2])))
    assert book.relay.state == LIVE and not book.relay.own.refreshing()
    book >> request(3, "tools/list", {"cursor": cursor_of(book, 1, "legacy")}) << to_server(request("mcp-lazy-page-1-3", "tools/list"))
    (book >> says(result("mcp-lazy-page-1-3", PAGES[0])) << to_server(request("mcp-lazy-page-1-4", "tools/list", {"cursor": "p0"}))
     >> says(result("mcp-lazy-page-1-4", PAGES[1])) << to_client(result(3, PAGES[1]))).check()


# -- both eras on one connection (A17.2, A17.6)

UNSUPPORTED = {"code": -32022, "message": "x", "data": {"supported": [MODERN]}}


def fixed(*more):
    """A modern server that was started cold by a discovery and refuses the client's `initialize`."""
    return Playbook(engine()).then(modern("d", "server/discover"), Spawned(1), says(result("d", discovery())), initialize("i"), *more)


def refuses_initialize(ident="i"):
    return says(line(id=ident, error=UNSUPPORTED))


def test_a17_6_a_server_that_fixed_its_era_is_restarted_once_for_initialize():
    """The client sees only the answer of the second process."""
    book = fixed() >> refuses_initialize() << lazy.ClearTimer("startup") << CloseInput(False) << Timer("ladder", 0.25)
    book >> Exited("exit status 0", b"") << Timer("ladder", 0.25)
    (book >> OutputClosed() << lazy.ClearTimer("ladder") << Release() << Spawn() << Timer("startup", 60) << to_server(initialize("i"))
     >> Spawned(2) >> says(result("i", handshake())) << Save() << Timer("window", 2) << lazy.ClearTimer("startup") << to_client(result("i", handshake()))
     >> INITIALIZED << to_server(INITIALIZED)).check()
    assert {entry.era for entry in book.relay.shelf.recording.entries.values()} == {"legacy", "modern"}


def restarted(book):
    return book.then(refuses_initialize(), Exited("exit status 0", b""), OutputClosed(), Spawned(2))


def test_a17_6_once():
    book = restarted(fixed())
    (book >> refuses_initialize() << lazy.ClearTimer("startup") << to_client(line(id="i", error=UNSUPPORTED))).check()
    assert book.relay.state == LIVE


def test_a17_6_of_two_handshakes_each_gets_its_answer():
    """A client that gave up on the first tries another version; the restart is for the last one alone."""
    other = initialize("j", "2024-11-05")
    book = fixed(other)
    (book >> refuses_initialize("i") << to_client(line(id="i", error=UNSUPPORTED))).check()
    book.then(refuses_initialize("j"), Exited("exit status 0", b"")) >> OutputClosed()
    assert written(book) == other
    (book.then(Spawned(2)) >> says(result("j", handshake()))).then()
    assert not book.relay.flights


def test_a17_6_a_handshake_alone_is_refused_without_a_restart():
    book = Playbook(engine()).then(initialize("i"), Spawned(1))
    (book >> refuses_initialize() << lazy.ClearTimer("startup") << to_client(line(id="i", error=UNSUPPORTED))).check()


def test_a17_6_what_was_open_at_that_restart_gets_an_answer():
    book = fixed(modern(7, "tools/call")) >> refuses_initialize()
    assert [effect for effect, _ in book.open if Failure(7, "started again for initialize").matches(effect, 0)]
    assert b'"id":"i"' not in written(book, "client")


def test_a17_6_a_handshake_that_was_pipelined_arrives_whole_at_the_second_process():
    """The client says `initialized` without waiting; the new process must hear that, too (A8.3)."""
    book = fixed(INITIALIZED).then(refuses_initialize(), Exited("exit status 0", b"")) >> OutputClosed()
    assert written(book) == initialize("i") + INITIALIZED
    book = fixed().then(refuses_initialize(), INITIALIZED, Exited("exit status 0", b"")) >> OutputClosed()
    assert written(book) == initialize("i") + INITIALIZED, "also while the first one stops"


def test_a17_6_a13_7_the_end_of_the_client_meanwhile_leaves_the_handshake_its_chance():
    """What was read before the end of input is still served, and nothing stays."""
    book = fixed().then(refuses_initialize(), EOF, Exited("exit status 0", b""), OutputClosed(), Spawned(2))
    book >> says(result("i", handshake()))
    assert b'"id":"i"' in written(book, "client")
    book.then(advance(lazy.CLOSE_WAIT_S))
    assert book.relay.state == STOPPING
    book.then(Exited("exit status 0", b"")) >> OutputClosed()
    assert [effect for effect, _ in book.open][-1] == lazy.Exit(0)


@pytest.mark.parametrize("code", [-32602, -32600])
def test_b5_a_sound_probe_that_is_called_invalid_is_a_refusal_once_the_handshake_follows(code):
    """Python SDK 1.x answers so: it is as legacy as one that says -32601."""
    book = Playbook(engine()).then(modern("d", "server/discover"), Spawned(1))
    (book >> says(refusal("d", code)) << lazy.ClearTimer("startup") << to_client(refusal("d", code))).check()
    assert not book.relay.shelf.recording.before
    book.then(initialize("i"), says(result("i", handshake())))
    assert {json.loads(found.pages[0])["code"] for found in book.relay.shelf.recording.before.values()} == {-32601}
    again = Playbook(engine(book.relay.shelf.recording)) >> modern("d", "server/discover", meta(**{lazy.CLIENT_KEY: {"name": "c", "version": "9"}}))
    assert json.loads(written(again, "client"))["error"]["code"] == -32601 and again.relay.state == ASLEEP


@pytest.mark.parametrize("events", [
    (says(refusal("d", -32602)), Exited("exit status 1", b""), OutputClosed(), initialize("i"), Spawned(2), says(result("i", handshake()))),
    (says(refusal("d", -32000)), initialize("i"), says(result("i", handshake()))),
    (says(refusal("d", -32602)), initialize("i"), says(refusal("i", -32602)))], ids=["another process", "another error", "no handshake"])
def test_b5_it_is_none_without_that(events):
    book = Playbook(engine()).then(modern("d", "server/discover"), Spawned(1), *events)
    assert not book.relay.shelf.recording.before


# -- refresh-behind (A5.10)

def test_a5_10_an_old_recording_is_served_and_compared_behind_it():
    """The server is started when the burst is answered, and stopped when it is known: nobody needs it."""
    book = asleep(max_age_ms=1000).then(advance(2.0))
    (book >> modern(1, "tools/list") << to_client(result(1, dict(TOOL_LIST, resultType="complete", cacheScope="private", ttlMs=0))) << Timer("age", 0.2)
     >> modern(2, "server/discover") << to_client(result(2, discovery()))
     >> advance(0.2) << Spawn() << Timer("startup", 60) << own("check", 1) << own("check", 2, "server/discover")
     >> Spawned(1) >> own_answer("check", 1, TOOL_LIST)).then()
    (book >> own_answer("check", 2, discovery()) << lazy.ClearTimer("startup") << CloseInput(False) << Timer("ladder", 0.25)).check()


def test_a5_10_young_recordings_are_left_alone_and_old_ones_compared_once():
    (asleep(max_age_ms=1000).then(modern(1, "tools/list")) >> advance(100.0) << None).check()
    book = asleep(max_age_ms=1000).then(advance(2.0), modern(1, "tools/list"), advance(1.0), Spawned(1))
    stop_to_sleep(book, own_answer("check", 1, TOOL_LIST))
    (book.then(advance(100.0), modern(2, "tools/list")) >> advance(100.0) << None).check()


def old_legacy(**changed):
    """REPLAY for a comparison: one list was served."""
    found = recording({"tools/list": TOOL_LIST})
    book = Playbook(engine(found, 1000, **changed)).then(advance(2.0), initialize(), INITIALIZED, request(1, "tools/list"))
    book >> advance(0.2) << Spawn() << Timer("startup", 60) << to_server(request("mcp-lazy-init-1", "initialize", json.loads(initialize())["params"]))
    return book.then(Spawned(1))


def relisted(value):
    return says(result("mcp-lazy-check-1-tools/list", value))


@pytest.mark.parametrize("fatal", [True, False], ids=["", "refresh-fatal off"])
@pytest.mark.parametrize("value", [TOOL_LIST, MORE])
def test_a5_10_in_the_legacy_era_behind_a_replay(value, fatal):
    book = old_legacy(refresh_fatal=fatal).then(says(result("mcp-lazy-init-1", handshake())))
    book >> relisted(value)
    assert (written(book, "client") == CHANGED) == (value is MORE), "drift is told (A9.2)"
    assert CloseInput(False) in [effect for effect, _ in book.open] and book.relay.state == STOPPING


@pytest.mark.parametrize("when", ["in the replay", "live"])
def test_a5_10_a_server_that_somebody_uses_meanwhile_stays(when):
    book, call = old_legacy(), request("c", "tools/call")
    for event in ([call] if when == "in the replay" else []) + [says(result("mcp-lazy-init-1", handshake()))] + (
            [call] if when == "live" else []) + [says(result("c")), relisted(TOOL_LIST)]:
        book.then(event)
    assert book.relay.state == LIVE


def test_a5_10_a_comparison_that_fails_costs_nothing():
    book = old_legacy().then(Exited("exit status 1", b""))
    book >> OutputClosed()
    assert not written(book, "client") and book.relay.state == ASLEEP
    (book.then() >> request(2, "tools/list") << to_client(result(2, TOOL_LIST))).check()


def test_a5_10_nothing_is_compared_behind_the_end():
    book = asleep(max_age_ms=1000).then(advance(2.0), modern(1, "tools/list"))
    (book >> EOF << lazy.Exit(0) >> advance(5.0) << None).check()
    book = asleep(max_age_ms=1000).then(advance(2.0), modern(1, "tools/list"), CALL, Spawned(1), says(result("call")))
    (book >> advance(5.0) << None).check()


def test_a9_8_a_list_that_was_called_changed_and_not_read_again_is_not_served_behind_the_servers_end():
    """It crashed before the look: the next request for it has to start the server."""
    own = mcp_lazy.OwnRequests(types.SimpleNamespace(listings=types.SimpleNamespace(announce=lambda: None)))
    entry = mcp_lazy.Entry("legacy", "2025-06-18", "", "")
    entry.answers = {"tools/list": mcp_lazy.Answer(False, [b'{"tools":[]}'], 0), "prompts/list": mcp_lazy.Answer(False, [b'{"prompts":[]}'], 0)}
    own.stale.add((entry, "tools/list"))
    own.reset()
    assert list(entry.answers) == ["prompts/list"] and not own.stale
