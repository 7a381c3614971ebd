"""L6: keys, the file's form, merging, page sets, requests of the modern era (A5, A6.9, A17.1, B5, B6, cases 051 to 056)."""

import hashlib
import itertools
import json
import re

import pytest

import mcp_lazy
from generated import any_text, any_value, exact, oracle, seeded, spell
from mcp_lazy import (BEFORE, Answer, Entry, PageSet, PeerError, Recording, entry_key, file_key, merged_recording, parse_json,
                      probe_keys, program_words, write_recording)

RESULT = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1.0"}}'
TOOLS = b'{"tools":[{"name":"a","x":1.0}]}'
EMPTY = b'{"tools":[]}'


# ---------------------------------------------------------------------------------- the file's name

def stat_of(files):
    """A `stat` for program_words from {word: (path, size, mtime, executable)}."""
    return lambda word, index: files.get(word)


def indexes(words, **files):
    named = {word: ("/" + word.strip("/"), 10, 20, executable) for word, executable in files.items()}
    return [index for index, *_ in program_words(words, stat_of({**{word.replace("__", "."): seen for word, seen in named.items()}}))]


def key(*words, programs=()):
    return file_key([word.encode() for word in words], list(programs))


def test_a5_1_the_key_is_32_hex_digits_and_always_the_same():
    assert key("npx", "-y", "pkg") == key("npx", "-y", "pkg")
    assert len(key("npx")) == 32 and set(key("npx")) <= set("0123456789abcdef")


def test_a5_2_each_word_and_their_order_count():
    words = ["node", "server.mjs", "--port", "1", ""]
    keys = {key(*words)}
    for index in range(len(words)):
        changed = list(words)
        changed[index] += "x"
        keys.add(key(*changed))
        keys.add(key(*(words[:index] + words[index + 1:])))
        keys.add(key(*(words[:index] + [words[index]] + words[index:])))
    swapped = [words[0], words[2], words[1]] + words[3:]
    keys.add(key(*swapped))
    assert len(keys) == 17


def test_a5_3_words_cannot_look_like_other_words():
    """A newline, a length, a word that looks like a line of the key: all commands have their own."""
    commands = [["a", "b"], ["a\nb"], ["a\n1:b"], ["a", "1:b"], ["1:a", "b"], ["a", "", "b"], ["a", "b", ""], ["", "a", "b"], ["ab"],
                ["a\n\nb"], ["1:a\n1:b"], ["a", "file 0 1:/ 1 1"], ["a", "b\nfile 0 2:/a 1 1"]]
    assert len({key(*words) for words in commands}) == len(commands)
    assert key("a", programs=[(0, "/a", 1, 1)]) != key("a", "file 0 2:/a 1 1")
    with_newline = [(0, "/a\nfile 1 2:/b 1 1", 1, 1)]
    assert key("a", "b", programs=with_newline) != key("a", "b", programs=[(0, "/a", 1, 1), (1, "/b", 1, 1)])


def test_a5_2_touching_or_moving_a_program_file_counts():
    base = (1, "/s/server.mjs", 100, 5)
    keys = {key("node", "server.mjs", programs=[change]) for change in
            (base, (1, "/s/server.mjs", 101, 5), (1, "/s/server.mjs", 100, 6), (1, "/t/server.mjs", 100, 5), (0, "/s/server.mjs", 100, 5))}
    keys.add(key("node", "server.mjs"))
    assert len(keys) == 6


def test_words_and_paths_that_are_no_text_have_a_key():
    assert len(file_key([b"\xff\xfe", b"\0"], [(0, "/\udcff", 1, 1)])) == 32


def test_design_6_word_0_always_counts_as_a_program():
    assert indexes(["server"], server=False) == [0]
    assert indexes(["server"]) == [], "what is no regular file cannot"


@pytest.mark.parametrize("name, counts", [
    ("s.py", True), ("s.pyz", True), ("s.js", True), ("s.mjs", True), ("s.cjs", True), ("s.ts", True), ("s.jar", True), ("s.rb", True),
    ("s.php", True), ("s.sh", True), ("s.wasm", True), ("S.PY", True), ("s.db", False), ("s.log", False), ("s.json", False), ("s.txt", False),
    ("py", False), ("s", False), (".py.log", False), ("s.tar.gz", False), ("s.sqlite3", False)])
def test_design_6_extensions_of_programs(name, counts):
    files = {"cmd": ("/bin/cmd", 1, 1, True), name: ("/x/" + name, 1, 1, False)}
    assert [index for index, *_ in program_words(["cmd", "--flag", name], stat_of(files))] == ([0, 2] if counts else [0])


def test_design_6_an_executable_among_the_words_is_a_program_and_data_is_not():
    files = {"env": ("/usr/bin/env", 1, 1, True), "tool": ("/x/tool", 2, 3, True), "data.db": ("/x/data.db", 9, 9, False)}
    assert program_words(["env", "tool", "data.db"], stat_of(files)) == [(0, "/usr/bin/env", 1, 1), (1, "/x/tool", 2, 3)]


@pytest.mark.parametrize("words, script", [
    (["python3", "server", "data"], 1), (["/usr/bin/python3.11", "-I", "-S", "server", "data"], 3), (["node", "server", "data"], 1),
    (["bun", "run", "data"], None), (["deno", "server"], 1), (["ruby", "server"], 1), (["php", "server"], 1), (["perl", "server"], 1),
    (["sh", "server"], 1), (["bash", "-e", "server"], 2), (["java", "-jar", "server"], 2), (["java", "server"], None),
    (["java", "-Xmx1g", "-jar", "server", "data"], 3), (["java", "data", "-jar"], None), (["npx", "-y", "server"], None), (["uvx", "server"], None),
    (["python3", "-m", "module", "data"], None), (["python3"], None), (["PYTHON3", "server"], 1)])
def test_a5_1_the_word_behind_an_interpreter_is_a_program(words, script):
    """A5.1: the first word that is not an option; it need not be executable nor have an extension."""
    files = {word: ("/x/" + word, 1, 1, False) for word in ("server", "data")}
    assert [index for index, *_ in program_words(words, stat_of(files))] == ([] if script is None else [script])


# --------------------------------------------------------------------------------- the entry's key

def caps(text):
    return parse_json(text, exact=True)


def test_a5_9_the_order_and_spelling_of_capabilities_do_not_matter():
    one = entry_key("v", caps(b'{"roots":{"listChanged":true},"sampling":{},"x":1.0,"y":["a"]}'), "")
    for text in (b'{"sampling":{},"y":["\\u0061"],"x":1,"roots":{ "listChanged" : true }}', b'{"x":10e-1,"y":["a"],"roots":{"listChanged":true},"sampling":{}}'):
        assert entry_key("v", caps(text), "") == one
    rng = seeded("capabilities")
    for _ in range(300):
        value = any_value(rng, 3)
        assert entry_key("v", caps(spell(rng, value)), "s") == entry_key("v", caps(spell(rng, value)), "s")


def test_a5_9_everything_else_does():
    keys = {entry_key(*args) for args in (
        ("v", {}, ""), ("w", {}, ""), ("v", {"a": {}}, ""), ("v", None, ""), ("v", [], ""), ("v", True, ""), ("v", caps(b"1"), ""), ("v", "", ""),
        ("v", {}, "client=a"), ("v", {}, "client=b"), ("v", {}, "", "modern"))}
    assert len(keys) == 11


def test_a5_9_a_scope_of_any_text_has_a_key():
    assert entry_key("v", {}, "cwd=/x\ud800") != entry_key("v", {}, "cwd=/x")


@pytest.mark.parametrize("text", [b'{"a":1e' + b"9" * 5000 + b"}", b"[" * 950 + b"]" * 950], ids=["exponent", "deep"])
def test_a5_9_capabilities_that_are_odd_json_still_have_a_key_or_are_refused(text):
    """What `parse_json` accepts must not end the relay; ValueError is what callers look for."""
    try:
        value = caps(text)
    except ValueError:
        return
    try:
        failed, found = None, entry_key("v", value, "")
    except ValueError:
        return
    except RecursionError:  # not shown with its thousand frames
        failed, found = "RecursionError", None
    assert not failed and isinstance(found, tuple)


# ---------------------------------------------------------------------------------- the file's form

AT_MS = 1764513600000


def answer(is_error, *pages, at_ms=AT_MS):
    return Answer(is_error, list(pages), at_ms)


def entry_of(version="2025-06-18", capabilities=None, scope="", opening=RESULT, era="legacy", at_ms=AT_MS, **lists):
    """An entry; `opening` is the raw result that began it, lists {"tools_list": (is an error?, page, page ...)}."""
    entry = Entry(*entry_key(version, capabilities or {}, scope, era))
    if opening is not None:
        entry.answers["initialize" if era == "legacy" else "server/discover"] = answer(False, opening, at_ms=at_ms)
    for name, (is_error, *pages) in lists.items():
        entry.answers[name.replace("_", "/")] = answer(is_error, *pages, at_ms=at_ms)
    return entry


def recording_of(*entries, program=("/bin/s",), owner="", before=()):
    recording = Recording(list(program), owner)
    recording.entries = {entry.key(): entry for entry in entries}
    recording.before = dict(before)
    return recording


def read(raw, owner=""):
    """What a start takes of a file's bytes: an empty Recording where they are none of ours."""
    recording = Recording(["/bin/s"], owner)
    before = recording.entries, recording.before
    if not recording.read(raw):
        assert (recording.entries, recording.before) == before == ({}, {}), "nothing of what is no recording of ours"
    return recording


def shown_answers(answers):
    return {name: (found.is_error, list(found.pages), found.at_ms) for name, found in answers.items()}


def shown(recording):
    """Everything that a recording holds, to compare."""
    return shown_answers(recording.before), {key: (
        shown_answers(entry.answers), list(entry.start_requests), list(entry.doubts), entry.refuses_listen)
        for key, entry in recording.entries.items()}


DISCOVERY = (b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":5,'
             b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"2"}}}')
PROBES = {"server/discover:4019dc22a0d88b45": answer(True, b'{"code":-32601,"message":"no"}', at_ms=7),
          "server/discover:unsupported:e171b175eecf3a073902bfd50fb45700": answer(True, b'{"code":-32601,"message":"no"}', at_ms=8),
          "odd \"key\\\n\ud800": answer(False, b'{"supportedVersions":[]}')}


def full_recording(owner=""):
    """Both eras, pages, errors, probes, and texts of every kind."""
    one = entry_of(tools_list=(False, TOOLS), prompts_list=(True, b'{"code":-32601,"message":"no"}'))
    one.start_requests, one.doubts = ["roots/list"], ["tools/list"]
    two = entry_of("2024-11-05", {"roots": {}}, "client=x", b'{"serverInfo":{"name":"\\u2028"},"n":9007199254740993}', resources_list=(False, b'{"resources":[]}'))
    three = entry_of("odd \"\\\n\ud800 version", opening=None)
    pages = b'{"tools":[1],"nextCursor":"a"}', b'{"tools":[2.0],"nextCursor":"\\u0062"}', b'{"tools":[]}'
    four = entry_of("2026-07-28", {"roots": {}}, "", DISCOVERY, "modern", AT_MS + 5, tools_list=(False, *pages))
    four.answers["prompts/list"] = answer(False, b'{"prompts":[]}', at_ms=AT_MS - 5)
    four.refuses_listen = True
    five = entry_of("2099-01-01", era="modern", opening=None)
    five.answers["server/discover"] = answer(True, b'{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}')
    return recording_of(one, two, three, four, five, program=["/bin/s\ud800", "/x/\n\"server.py"], owner=owner, before=PROBES)


@pytest.mark.parametrize("owner", ["", "f" * 32])
def test_what_is_written_is_read_again(owner):
    recording = full_recording(owner)
    raw = write_recording(recording)
    assert shown(read(raw, owner)) == shown(recording)
    assert not read(raw, "other" + owner).entries, "F3: a file of another command is no recording of this one"
    again = recording_of(owner=owner, program=recording.program)
    assert again.read(raw) is True and write_recording(again) == raw


def test_a5_4b_the_file_is_one_json_document_with_verbatim_results():
    raw = write_recording(full_recording())
    document = json.loads(raw)
    assert raw[-1:] == b"\n" and document["schema"] == 2
    entry = document["entries"][0]
    assert set(entry) >= {"era", "protocolVersion", "capabilities", "scope", "recordedAt", "serverInfo", "initialize", "lists", "startRequests"}
    assert (entry["era"], entry["protocolVersion"], entry["recordedAt"]) == ("legacy", "2025-06-18", AT_MS)
    assert entry["initialize"] == json.loads(RESULT) and entry["openedAt"] == AT_MS
    assert entry["serverInfo"] == {"name": "s", "version": "1.0"} and entry["refusesListen"] is False
    assert entry["lists"]["tools/list"]["pages"] == [json.loads(TOOLS)] and entry["lists"]["prompts/list"]["error"]["code"] == -32601
    assert RESULT in raw and TOOLS in raw and b'"n":9007199254740993' in raw
    for line in (RESULT, TOOLS, DISCOVERY):
        assert line in raw.split(b"\n"), "each result stands alone on a line of its own"


def test_a5_4b_both_eras_stand_in_one_file():
    document = json.loads(write_recording(full_recording()))
    modern, unknown = document["entries"][3:]
    assert (modern["era"], modern["protocolVersion"]) == ("modern", "2026-07-28") and modern["refusesListen"] is True
    assert modern["discover"] == json.loads(DISCOVERY) and "initialize" not in modern
    assert modern["serverInfo"] == {"name": "m", "version": "2"}
    assert [page["tools"] for page in modern["lists"]["tools/list"]["pages"]] == [[1], [2.0], []]
    assert modern["recordedAt"] == AT_MS - 5 == min(
        [modern["openedAt"]] + [stored["at"] for stored in modern["lists"].values()]), "A5.10: the oldest of its answers"
    assert unknown["refused"]["code"] == -32022 and "discover" not in unknown and unknown["serverInfo"] is None
    assert {key: stored["at"] for key, stored in document["before"].items()} == {
        key: stored.at_ms for key, stored in PROBES.items()}


def test_a5_11_an_entry_without_times_of_its_answers_has_that_of_the_entry():
    """As the first version with schema 2 wrote it: no `openedAt`, no `at`, no `before`."""
    raw = write_recording(recording_of(entry_of(tools_list=(False, TOOLS), prompts_list=(True, b'{"code":-32601}'))))
    older = raw.replace(b'"openedAt":%d,' % AT_MS, b"").replace(b'"at":%d,' % AT_MS, b"").replace(b',"before":{}', b"")
    assert older.count(b"%d" % AT_MS) == 1 and b"before" not in older
    assert shown(read(older)) == shown(read(raw))


def test_an_empty_recording():
    raw = write_recording(recording_of())
    assert json.loads(raw)["entries"] == [] and json.loads(raw)["before"] == {} and not read(raw).entries


def generated_answer(rng, most_pages=1):
    """Of any values, errors and page sets among them; every page an object."""
    count = rng.randrange(1, most_pages + 1)
    pages = [spell(rng, {"v": any_value(rng, 3), "serverInfo": any_value(rng, 1)}).encode() for _ in range(count)]
    return answer(True, pages[0], at_ms=rng.randrange(10)) if rng.random() < 0.3 else answer(False, *pages, at_ms=rng.randrange(10))


def generated_recording(rng):
    entries = []
    for number in range(rng.randrange(4)):
        era = rng.choice(("legacy", "modern"))
        entry = entry_of("v%d%s" % (number, any_text(rng)), any_value(rng, 2), rng.choice(("", "a=b\nc=d")), None, era)
        for method, most in [("initialize" if era == "legacy" else "server/discover", 1)] + [(method, 4) for method in mcp_lazy.LISTS]:
            if rng.random() < 0.6:
                entry.answers[method] = generated_answer(rng, most)
        entry.start_requests, entry.doubts = ["roots/list"] * rng.randrange(2), [any_text(rng)] * rng.randrange(2)
        entry.refuses_listen = rng.random() < 0.3
        entries.append(entry)
    return recording_of(*entries, before={any_text(rng): generated_answer(rng) for _ in range(rng.randrange(4))})


def test_generated_recordings_survive():
    rng = seeded("recordings")
    for _ in range(300):
        recording = generated_recording(rng)
        raw = write_recording(recording)
        assert shown(read(raw)) == shown(recording)
        assert len(json.loads(raw)["entries"]) == len(recording.entries)


FOREIGN = {
    "nothing": b"", "a line end": b"\n", "text": b"hello\n", "not UTF-8": b"\xff\xfe{}\n", "null": b"null\n", "a list": b"[]\n", "an object": b"{}\n",
    "an older schema": b'{"schema":1,"command":["x"],"entries":{}}\n', "a newer schema": write_recording(full_recording()).replace(b'"schema":2', b'"schema":3'),
    "another layout": b'{"schema":2,"layout":"other","program":[],"entries":[],"before":{}}\n',
    **{name: b'{"schema":2,"layout":"result lines","owner":""%s}\n' % members for name, members in {
        "no entries": b',"before":{}', "entries of no kind": b',"entries":[5],"before":{}',
        "entries as an object": b',"entries":{"a":1},"before":{}', "probes as an array": b',"entries":[],"before":[1]',
        "a probe of no kind": b',"entries":[],"before":{"a":5}', "a time of no kind": b',"entries":[],"before":{"a":{"at":1.5,"error":0}}',
        "a probe without a result": b',"entries":[],"before":{"a":{"at":1}}',
        "a result that is not there": b',"entries":[],"before":{"a":{"at":1,"result":7}}',
        "a list without a page": b',"entries":[{"era":"legacy","protocolVersion":"v","capabilities":"","scope":"","recordedAt":1,"initialize":null,'
                                 b'"startRequests":[],"lists":{"tools/list":{"pages":[]}}}],"before":{}'}.items()},
    "zeros": b"\0" * 300, "half": write_recording(full_recording())[:400], "deep": b"[" * 100000,
    "written anew": json.dumps(json.loads(write_recording(full_recording())), indent=1).encode()}


@pytest.mark.parametrize("name", FOREIGN)
def test_a5_6_what_is_no_recording_of_ours_is_empty(name):
    assert Recording([]).read(FOREIGN[name]) is False and not read(FOREIGN[name]).entries


MEMBERS = [(b'"recordedAt":1764513600000', b'"recordedAt":%s'), (b'"at":1764513600000', b'"at":%s'), (b'"refusesListen":false', b'"refusesListen":%s'),
           (b'"before":{"server/discover:4019dc22a0d88b45":', b'"before":{"x":%s,"server/discover:4019dc22a0d88b45":'), (b'"era":"legacy"', b'"era":%s'), (b'"protocolVersion":"2025-06-18",', b'"protocolVersion":%s,'),
           (b'"startRequests":["roots/list"]', b'"startRequests":%s'), (b'"doubts":["tools/list"]', b'"doubts":%s'), (b'"scope":""', b'"scope":%s')]


@pytest.mark.parametrize("odd", [b"1e999", b"-1e999", b"NaN", b"null", b"[]", b"{}", b"5", b'"x"', b"true", b"[[]]", b'{"a":[]}', b"-1"], ids=ascii)
@pytest.mark.parametrize("member", range(len(MEMBERS)), ids=[old.split(b":")[0].decode() for old, _ in MEMBERS])
def test_a5_6_a_member_of_an_odd_type_is_never_an_error(member, odd):
    """Neither at the start (read) nor when this relay saves what it learnt (merge)."""
    old, new = MEMBERS[member]
    raw = write_recording(full_recording())
    assert old in raw
    raw = raw.replace(old, new % odd, 1)
    read(raw)
    mine = recording_of(entry_of("mine"))
    merged = merged_recording(raw, mine, {(next(iter(mine.entries)), "*")})
    assert next(iter(mine.entries)) in read(merged).entries
    json.loads(merged)


def test_a5_6_case_055_damaged_bytes_are_never_an_error():
    rng = seeded("damage")
    whole = write_recording(full_recording())
    mine = recording_of(entry_of("mine"))
    dirty = {(next(iter(mine.entries)), "*")}
    for _ in range(1500):
        raw = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(raw))
            raw[at:at + rng.choice((0, 1, 4, 100))] = bytes([rng.choice(b'\n"{}[],:0159eE-\\ax\0\xff')]) * rng.choice((0, 1, 1, 2))
        raw = bytes(raw)
        found = read(raw)
        merged = merged_recording(raw, mine, dirty)
        if merged is None:
            assert not found.entries, "only a newer schema is left alone"
        else:
            assert dirty <= {(one, "*") for one in read(merged).entries}


# ------------------------------------------------------------------------------------------- merging

def test_a5_4b_a_newer_schema_is_not_touched():
    newer = write_recording(full_recording()).replace(b'"schema":2', b'"schema":3')
    mine = recording_of(entry_of())
    for disk in (newer, b'{"schema":99}', b'{\n  "schema": 3,\n  "new": [1]\n}\n'):
        assert merged_recording(disk, mine, {(next(iter(mine.entries)), "*")}) is None


@pytest.mark.parametrize("disk", [None, b"", b"junk", b"\xff", b'{"schema":1}', b'{"schema":true}', b'{"schema":"9"}', b'{"schema":3.5', b"[3]", b"[" * 100000], ids=lambda raw: ascii(raw and raw[:12]))
def test_a5_6_what_cannot_be_read_is_replaced(disk):
    mine = recording_of(entry_of(tools_list=(False, TOOLS)))
    merged = merged_recording(disk, mine, {(next(iter(mine.entries)), "*")})
    assert shown(read(merged)) == shown(mine)


def test_a5_7_two_entries_of_two_writers_are_kept():
    one, two = recording_of(entry_of("a", tools_list=(False, TOOLS))), recording_of(entry_of("a", era="modern"))
    disk = merged_recording(None, one, {(next(iter(one.entries)), "*")})
    disk = merged_recording(disk, two, {(next(iter(two.entries)), "*")})
    assert shown(read(disk)) == shown(recording_of(*one.entries.values(), *two.entries.values()))


def puts(method, is_error, *pages):
    """A change of a recorded method by a writer with a tag."""
    def change(entry, tag):
        entry.answers[method] = answer(is_error, *[page % tag for page in pages], at_ms=len(tag))
    return change


CHANGES = {
    "startRequests": lambda entry, tag: setattr(entry, "start_requests", [tag.decode()]),
    "doubts": lambda entry, tag: setattr(entry, "doubts", [tag.decode()]),
    "refusesListen": lambda entry, tag: setattr(entry, "refuses_listen", True),
    "tools/list": puts("tools/list", False, b'{"tools":["%s"]}', b'{"tools":[],"by":"%s"}'),
    "prompts/list": puts("prompts/list", True, b'{"code":-32601,"m":"%s"}'),
    "resources/list": lambda entry, tag: entry.answers.pop("resources/list", None),
    "resources/templates/list": puts("resources/templates/list", False, b'{"resourceTemplates":["%s"]}'),
}
OPENINGS = {"legacy": "initialize", "modern": "server/discover"}
PROBE_CHANGES = {
    "a probe": lambda before, tag: before.__setitem__("new", answer(True, b'{"code":-32601,"m":"%s"}' % tag)),
    "another probe": lambda before, tag: before.__setitem__("old", answer(False, b'{"by":"%s"}' % tag, at_ms=3)),
    "no probe": lambda before, tag: before.pop("kept", None),
}
PROBE_OF = {"a probe": "new", "another probe": "old", "no probe": "kept"}


def base(era):
    """What both writers read: (entry key, Recording)."""
    entry = entry_of(era=era, opening=RESULT if era == "legacy" else DISCOVERY, tools_list=(False, TOOLS), resources_list=(False, b'{"resources":[1]}'))
    entry.start_requests, entry.doubts = ["x"], ["y"]
    recording = recording_of(entry, before={"old": answer(False, b'{"old":1}'), "kept": answer(False, b"{}")})
    return entry.key(), recording


def changes_of(era):
    return dict(CHANGES, **PROBE_CHANGES, **{OPENINGS[era]: puts(OPENINGS[era], False, b'{"by":"%s"}')})


def change(era, member, tag):
    """(a writer's Recording behind one change, its dirty set)."""
    where, recording = base(era)
    if member in PROBE_CHANGES:
        PROBE_CHANGES[member](recording.before, tag)
        return recording, {(BEFORE, PROBE_OF[member])}
    changes_of(era)[member](recording.entries[where], tag)
    return recording, {(where, member)}


def member_of(era, recording, member):
    """What a recording holds in the place of one change."""
    (entry,) = recording.entries.values()
    if member in PROBE_CHANGES:
        return shown_answers(recording.before).get(PROBE_OF[member])
    return {"startRequests": entry.start_requests, "doubts": entry.doubts, "refusesListen": entry.refuses_listen}.get(
        member, shown_answers(entry.answers).get(member))


@pytest.mark.parametrize("era, first, second", [
    (era, *pair) for era in OPENINGS for pair in itertools.permutations(changes_of(era), 2)], ids="+".join)
def test_a5_7_two_members_by_two_writers_are_both_kept(era, first, second):
    """Both read the same file, each learns one member; the second to write keeps what the first wrote."""
    _, untouched = base(era)
    one, dirty_one = change(era, first, b"one")
    two, dirty_two = change(era, second, b"two")
    disk = merged_recording(write_recording(untouched), one, dirty_one)
    disk = merged_recording(disk, two, dirty_two)
    found = read(disk)
    for member in changes_of(era):
        wanted = one if member == first else two if member == second else untouched
        assert member_of(era, found, member) == member_of(era, wanted, member), member
        assert member not in (first, second) or member_of(era, found, member) != member_of(era, untouched, member), "nothing changed"


@pytest.mark.parametrize("era", OPENINGS)
def test_a5_7_all_members_of_many_writers_are_kept(era):
    """Each writer still has the file as it was at its own start."""
    _, untouched = base(era)
    disk, written = write_recording(untouched), {}
    for number, member in enumerate(changes_of(era)):
        written[member], dirty = change(era, member, b"w%d" % number)
        disk = merged_recording(disk, written[member], dirty)
    found = read(disk)
    for member, recording in written.items():
        assert member_of(era, found, member) == member_of(era, recording, member), member


def test_a5_7_the_later_of_two_writers_of_one_member_counts():
    for member in changes_of("modern"):
        one, dirty = change("modern", member, b"one")
        two, _ = change("modern", member, b"two")
        disk = merged_recording(merged_recording(write_recording(base("modern")[1]), one, dirty), two, dirty)
        assert member_of("modern", read(disk), member) == member_of("modern", two, member), member


def test_a5_7_a_member_of_an_entry_that_was_cleared_meanwhile_brings_the_whole_entry():
    """Somebody emptied the file: half an entry would be one without a handshake."""
    recording, dirty = change("legacy", "tools/list", b"x")
    (found,) = read(merged_recording(write_recording(recording_of()), recording, dirty)).entries.values()
    assert set(found.answers) == {"initialize", "tools/list", "resources/list"}


def test_a5_7_what_is_dirty_but_gone_is_no_error():
    mine = recording_of(entry_of("mine"))
    disk = merged_recording(None, mine, {(entry_of("other").key(), "*"), (BEFORE, "nobody"), (next(iter(mine.entries)), "resources/list")})
    assert shown(read(disk)) == shown(mine)


# ------------------------------------------------------------------------------------------- limits

def shuffled(name, count):
    """Moments in an order that is not theirs."""
    moments = list(range(1, count + 1))
    seeded(name).shuffle(moments)
    return moments


def test_the_newest_64_entries_stay():
    entries = {at_ms: entry_of("v%d" % at_ms, at_ms=at_ms) for at_ms in shuffled("entries", 70)}
    recording = recording_of(*entries.values())
    found = read(merged_recording(None, recording, {(key, "*") for key in recording.entries}))
    assert {entry.version for entry in found.entries.values()} == {"v%d" % at_ms for at_ms in range(7, 71)}
    assert len(recording.entries) == 70, "what this relay serves from stays as it is"


def test_the_newest_64_probes_stay_and_take_no_place_of_an_entry():
    before = {"key %d" % at_ms: answer(True, b"{}", at_ms=at_ms) for at_ms in shuffled("probes", 70)}
    recording = recording_of(*[entry_of("v%d" % number) for number in range(64)], before=before)
    recording.trim()
    assert set(recording.before) == {"key %d" % at_ms for at_ms in range(7, 71)} and len(recording.entries) == 64
    recording.trim()
    assert len(recording.before) == 64


def test_an_entry_counts_as_old_as_its_oldest_answer():
    old = entry_of("old", at_ms=1, tools_list=(False, TOOLS))
    old.answers["initialize"] = answer(False, RESULT, at_ms=1000)
    recording = recording_of(old, *[entry_of("v%d" % number, at_ms=500) for number in range(64)])
    recording.trim()
    assert old.key() not in recording.entries and len(recording.entries) == 64


# ------------------------------------------------------------------------------- answers and entries

@pytest.mark.parametrize("one, other, same", [
    ((False, TOOLS), (False, b'{ "tools":[{"x":1,"name":"\\u0061"}]}'), True), ((False, TOOLS), (True, TOOLS), False),
    ((False, TOOLS), (False, TOOLS, TOOLS), False), ((False, TOOLS), (False, EMPTY), False),
    ((False, b'{"a":1,"nextCursor":"x","ttlMs":5}', EMPTY), (False, b'{"a":1,"nextCursor":"y"}', EMPTY), True),
    ((False, EMPTY, b'{"a":1}'), (False, EMPTY, b'{"a":2}'), False), ((False, b"{"), (False, b"{"), True), ((False, b"{"), (False, b"{}"), False),
    ((False, b'{"a":[1]}'), (False, b'{"a":[1.0]}'), True), ((False, b'{"a":[1]}'), (False, b'{"a":["1"]}'), False), ((True, b'{"code":1}'), (True, b'{"code":1.0}'), True),
    ((False, b'{"a":' + b"[" * 100000), (False, b'{"a":[]}'), False)])
def test_a6_6_a6_9_answers_that_say_the_same(one, other, same):
    """Another cursor or lifetime is no change; another number of pages is."""
    one, other = answer(*one), answer(*other, at_ms=1)
    assert one.says_the_same(other) is other.says_the_same(one) is same


def test_a6_9_the_generation_stands_for_exactly_these_pages():
    sets = [(b"{}",), (b"{}", b"{}"), (b"{ }",), (b"{}", b"{ }"), (b"{ }", b"{}"), (b'{"a":1}',)]
    found = [answer(False, *pages).generation() for pages in sets]
    assert len(set(found)) == len(sets) and all(len(one) == 8 and set(one) <= set("0123456789abcdef") for one in found)
    assert answer(False, b"{}", at_ms=1).generation() == found[0], "its age is no part of it"


def test_an_error_is_no_opening():
    entry = entry_of("2099-01-01", era="modern", opening=None)
    assert entry.opening() is None and entry.recorded_at_ms() == 0
    entry.answers["server/discover"] = answer(True, b'{"code":-32022}')
    assert entry.opening() is None and entry.recorded_at_ms() == AT_MS
    entry.answers["server/discover"] = answer(False, DISCOVERY)
    assert entry.opening() == DISCOVERY
    entry.answers["initialize"] = answer(False, RESULT)
    assert entry.opening() == DISCOVERY, "each era has its own"


@pytest.mark.parametrize("method, found, count", [
    ("tools/list", (False, b'{"tools":[1,2]}', b'{"tools":[]}', b'{"tools":[3]}'), 3), ("tools/list", (False, EMPTY), 0),
    ("tools/list", (True, b'{"code":-32601}'), None), ("tools/list", (False, b'{"prompts":[]}'), None), ("tools/list", (False, b"nope"), None),
    ("tools/list", (False, b'{"tools":5}'), None), ("tools/list", (False, b"5"), None), ("server/discover", (False, b"{}"), None)])
def test_how_many_items_a_list_has(method, found, count):
    assert mcp_lazy.item_count(method, answer(*found)) == count


# ------------------------------------------------------------------------------------ probes (B5, B6)

CLAUDE = (b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code",'
          b'"title":"Claude Code","version":"2.1.289","description":"Anthropic\'s agentic coding tool","websiteUrl":"https://claude.com/claude-code"},'
          b'"io.modelcontextprotocol/clientCapabilities":{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}}}')
B5_KEY, B6_KEY = "server/discover:4019dc22a0d88b45", "server/discover:unsupported:e171b175eecf3a073902bfd50fb45700"


def test_b5_b6_the_vectors_of_the_older_relay():
    assert probe_keys(CLAUDE, "") == (B5_KEY, B6_KEY)
    assert probe_keys(CLAUDE, "abc") == (B5_KEY + "@abc", B6_KEY + "@abc"), "A5.9: a scope is part of both"


@pytest.mark.parametrize("old, new", [
    (b"2.1.289", b"2.1.290"), (b'"version":"2.1.289",', b""), (b'"version":"2.1.289"', b'"version":{"x":[1]}'), (b"Anthropic's", b"Anthropic\\u0027s"),
    (b'{"roots"', b'{ "roots"'), (b'{"listChanged":true},"elicitation":{"form":{},"url":{}}', b'{"listChanged":true},"elicitation":{"url":{},"form":{}}')])
def test_b6_what_leaves_the_tolerant_key_as_it_is(old, new):
    assert old in CLAUDE
    exact, tolerant = probe_keys(CLAUDE.replace(old, new), "")
    assert exact != B5_KEY and tolerant == B6_KEY


@pytest.mark.parametrize("old, new", [
    (b"claude-code", b"claude-core"), (b"2026-07-28", b"2026-07-29"), (b'"listChanged":true', b'"listChanged":false'), (b"Claude Code", b"Claude  Code"),
    (b'{"_meta"', b'{"x":1,"_meta"'), (b'"form":{}', b'"form":{"version":1}'), (b'{"_meta":{', b'{"_meta":{"version":"1",')])
def test_b6_what_makes_another_tolerant_key(old, new):
    assert old in CLAUDE
    assert probe_keys(CLAUDE.replace(old, new, 1), "")[1] not in (B6_KEY, None)


def test_b6_the_version_goes_from_both_places():
    """Some clients name themselves in the params, not in `_meta`."""
    texts = [b'{"clientInfo":{"version":"%s","name":"c"},"_meta":{"io.modelcontextprotocol/clientInfo":{"version":%s}}}' % pair for pair in (
        (b"1", b"2"), (b"3", b"null"))] + [b'{"_meta":{"io.modelcontextprotocol/clientInfo":{}},"clientInfo":{"name":"c"}}']
    assert len({probe_keys(text, "")[1] for text in texts}) == 1 and len({probe_keys(text, "")[0] for text in texts}) == 3


@pytest.mark.parametrize("params", [b"", b"null", b"[]", b"5", b'"x"', b"[{}]", b"{", b"\xff{}", b"[" * 100000], ids=ascii)
def test_b6_params_that_are_no_object_have_no_tolerant_key(params):
    exact, tolerant = probe_keys(params, "")
    assert exact == "server/discover:" + hashlib.sha256(params).hexdigest()[:16] and tolerant is None


@pytest.mark.parametrize("params", [
    b'{"clientInfo":5,"_meta":[]}', b'{"clientInfo":null,"_meta":{"io.modelcontextprotocol/clientInfo":[1]}}', b'{"_meta":"x"}', b"{}"])
def test_b6_odd_places_of_the_version_are_no_error(params):
    assert len(probe_keys(params, "")[1]) == len(B6_KEY)


GO = [  # (JSON, what Go's encoder makes of what its decoder read with UseNumber)
    ('{"b":1,"a":{"d":[],"c":{}}}', '{"a":{"c":{},"d":[]},"b":1}'), ('"<a href=\'x\'>&"', '"\\u003ca href=\'x\'\\u003e\\u0026"'),
    ('"\\u2028\\u2029\u2028"', '"\\u2028\\u2029\\u2028"'), ('"\\u0001\\u001F\\b\\f\\n\\r\\t\\u007f"', '"\\u0001\\u001f\\b\\f\\n\\r\\t\x7f"'),
    ('"\\/\\"\\\\"', '"/\\"\\\\"'), ('"\\u00e9\u20ac\\ud83d\\ude00"', '"\u00e9\u20ac\U0001f600"'), ('"\\ud800x\\udc00"', '"\ufffdx\ufffd"'),
    ('[1.0,1e5,1E+5,-0,-0.0,123456789012345678901234567890]', '[1.0,1e5,1E+5,-0,-0.0,123456789012345678901234567890]'),
    ('[0,10,-7]', '[0,10,-7]'), ('[true,false,null,""]', '[true,false,null,""]'), ('{"\\u0062":1,"\u00e9":2,"Z":3,"<":4}', '{"\\u003c":4,"Z":3,"b":1,"\u00e9":2}'),
    ('{"a":1,"a":2}', '{"a":2}'), (' { "a" : [ 1 , 2 ] } ', '{"a":[1,2]}'), ("[" + "9" * 5000 + "]", "[" + "9" * 5000 + "]")]


@pytest.mark.parametrize("text, wanted", GO, ids=[ascii(text)[:30] for text, _ in GO])
def test_b6_texts_are_spelled_as_go_spells_them(text, wanted):
    assert mcp_lazy.go_text(mcp_lazy.spelled_json(text.encode("utf-8"))) == wanted


def test_b6_generated_values_keep_their_numbers_and_meaning():
    rng = seeded("go")
    for _ in range(500):
        value = any_value(rng, 3)
        text = spell(rng, value)
        made = mcp_lazy.go_text(mcp_lazy.spelled_json(text.encode("utf-8")))
        assert exact(made) == without_surrogates(exact(text)) and not set("<>&\u2028\u2029") & set(made)
        assert made == mcp_lazy.go_text(mcp_lazy.spelled_json(made.encode("utf-8"))), "made of itself it is the same"


def without_surrogates(value):
    """As Go reads a string: what is no character is U+FFFD."""
    if isinstance(value, dict):
        return {without_surrogates(name): without_surrogates(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(without_surrogates, value))
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


# ------------------------------------------------------------------------- members of served results

def test_a17_5_members_are_set_and_all_else_stays_byte_for_byte():
    rng = seeded("members")
    for _ in range(500):
        value = any_value(rng, 2)
        value = value if isinstance(value, dict) else {"a": value}
        text = spell(rng, value)
        changed = {name: spell(rng, any_value(rng, 1)).encode() for name in rng.sample(list(value), rng.randrange(len(value) + 1))}
        changed.update({"new %d" % number: b"%d" % number for number in range(rng.randrange(3))})
        made = mcp_lazy.with_members(text.encode("utf-8"), changed).decode("utf-8")
        wanted = dict(exact(text), **{name: exact(raw.decode("utf-8")) for name, raw in changed.items()})
        assert exact(made) == wanted
        assert list(oracle(made)) == list(oracle(text)) + [name for name in changed if name not in value], "their order stays"
        untouched = [raw for name, raw in mcp_lazy.members(text.encode("utf-8")).items() if name not in changed]
        assert [raw for name, raw in mcp_lazy.members(made.encode("utf-8")).items() if name not in changed] == untouched
        longer = sum(len(raw) for raw in changed.values()) - sum(
            len(raw) for name, raw in mcp_lazy.members(text.encode("utf-8")).items() if name in changed)
        added = [name for name in changed if name not in value]
        assert len(made.encode()) - len(text.encode()) == longer + sum(len(json.dumps(name)) + 1 for name in added) + len(
            added) - (not value and bool(added)), "nothing else was added"


@pytest.mark.parametrize("raw, wanted", [
    (b"{}", b'{"a":1}'), (b" { } ", b' { "a":1} '), (b'{"b":2 }\n', b'{"b":2 ,"a":1}\n'), (b'{"a":0,"a" : [2]}', b'{"a":0,"a" : 1}'),
    (b'{"\\u0061":"}"}', b'{"\\u0061":1}'), (b'{"b":{"a":2}}', b'{"b":{"a":2},"a":1}')])
def test_a17_5_one_member_is_set(raw, wanted):
    assert mcp_lazy.with_members(raw, {"a": b"1"}) == wanted
    assert mcp_lazy.with_members(raw, {}) == raw


@pytest.mark.parametrize("raw", [b"", b"5", b"[]", b"{", b'{"a":1}x', b"\xff", b'{"a" 1}', b'{"a":1,}'], ids=ascii)
def test_what_is_no_object_takes_no_members(raw):
    with pytest.raises(ValueError):
        mcp_lazy.with_members(raw, {"a": b"1"})


# ---------------------------------------------------------------------------------- page sets (A6.9)

def page_of(method="tools/list", cursor=None, **more):
    member = mcp_lazy.LIST_MEMBER.get(method, "x")
    return json.dumps(dict({member: []}, **({} if cursor is None else {"nextCursor": cursor}), **more), separators=(",", ":")).encode()


@pytest.mark.parametrize("method", mcp_lazy.LISTS)
def test_a6_9_the_cursor_leads_on_until_there_is_none(method):
    pages = PageSet(method)
    for cursor in ("a", "", None):
        first = PageSet(method)
        assert first.add(page_of(method, cursor)) == (b'"a"' if cursor == "a" else None), "A6.3: an empty one ends it"
    assert [pages.add(page_of(method, cursor)) for cursor in ("a", "\u00e9\"", None)] == [b'"a"', b'"\\u00e9\\""', None], "as it is spelled"
    assert pages.pages == [page_of(method, cursor) for cursor in ("a", "\u00e9\"", None)] and not pages.too_long


@pytest.mark.parametrize("page, reason", [
    (b"[]", "no object"), (b"5", "no object"), (b"{", "no object"), (b"{}", "tools is missing"), (b'{"tools":{}}', "no array"),
    (b'{"tools":null}', "no array"), (b'{"tools":[],"nextCursor":5}', "not a string"), (b'{"tools":[],"nextCursor":["a"]}', "not a string"),
    (b'{"tools":[],"nextCursor":"first"}', "came twice"), (b'{"tools":[],"resultType":"input_required"}', "not complete"),
    (b'{"tools":[],"resultType":5}', "not complete")], ids=ascii)
def test_a6_9_case_054_what_can_never_become_a_whole_list(page, reason):
    pages = PageSet("tools/list")
    assert pages.add(page_of(cursor="first")) == b'"first"'
    fresh = PageSet("tools/list")
    for one in (pages, fresh) if "first" not in page.decode() else (pages,):
        with pytest.raises(PeerError, match=reason):
            one.add(page)
        assert not one.too_long


def test_a6_9_a_list_ends_at_a_thousand_pages():
    """Where opencode stops, too."""
    pages = PageSet("tools/list")
    for number in range(999):
        assert pages.add(page_of(cursor="c%d" % number)) is not None
    with pytest.raises(PeerError, match="more than 1000 pages"):
        pages.add(page_of(cursor="c999"))
    whole = PageSet("tools/list")
    for number in range(999):
        whole.add(page_of(cursor="c%d" % number))
    assert whole.add(page_of()) is None and len(whole.pages) == 1000


@pytest.mark.parametrize("count", [1, 3])
def test_a5_8_all_pages_together_have_a_limit(count):
    pages, size = PageSet("tools/list"), mcp_lazy.MAX_RESULT_BYTES // count
    for number in range(count - 1):
        pages.add(page_of(cursor="c%d" % number, pad="x" * (size - 100)))
    whole = page_of(pad="x" * (mcp_lazy.MAX_RESULT_BYTES - sum(map(len, pages.pages)) - len(page_of(pad=""))))
    longer = page_of(pad="xx") + b" " * (len(whole) + 1 - len(page_of(pad="xx")))
    with pytest.raises(PeerError, match="over 8388608 bytes"):
        pages.add(longer)
    assert pages.too_long
    again = PageSet("tools/list")
    for page in pages.pages[:count - 1] + [whole]:
        assert again.add(page) is None or page is not whole
    assert not again.too_long and sum(map(len, again.pages)) == mcp_lazy.MAX_RESULT_BYTES


def test_a17_4_a_discovery_has_one_page():
    """What looks like a cursor in it is none."""
    pages = PageSet("server/discover")
    assert pages.add(b'{"supportedVersions":[],"nextCursor":"x","resultType":"complete"}') is None
    with pytest.raises(PeerError, match="not complete"):
        PageSet("server/discover").add(b'{"supportedVersions":[],"resultType":"input_required"}')
    with pytest.raises(PeerError, match="supportedVersions"):
        PageSet("server/discover").add(b'{"n":1}')


@pytest.mark.parametrize("text, found", [
    ("mcp-lazy:0123abcd:1", ("0123abcd", 1)), ("mcp-lazy:0123abcd:0", ("0123abcd", 0)), ("mcp-lazy:0123abcd:99999", ("0123abcd", 99999)),
    (None, None), ("", None), (5, None), ({}, None), ("x", None), ("mcp-lazy", None), ("Mcp-lazy:a:1", None), (" mcp-lazy:a:1", None)], ids=repr)
def test_a6_9_cursors_of_our_own(text, found):
    assert mcp_lazy.own_cursor(text) == found


@pytest.mark.parametrize("text", ["mcp-lazy:", "mcp-lazy:a", "mcp-lazy:a:", "mcp-lazy:a:-1", "mcp-lazy:a:1.0", "mcp-lazy:a:x", "mcp-lazy:a:\u0661",
                                  "mcp-lazy:a:\u00b2", "mcp-lazy:a:100000", "mcp-lazy:a:1:2", "mcp-lazy:a:" + "1" * 9000])
def test_a6_9_a_made_up_cursor_of_ours_stands_for_no_page(text):
    generation, index = mcp_lazy.own_cursor(text)
    assert index >= mcp_lazy.MAX_PAGES or generation != "a"


# ---------------------------------------------------------------------- what the older relay left (A5.11)

def older(entries='"2025-06-18":{"initialize":{"protocolVersion":"2025-06-18"},"lists":{"tools/list":{"tools":[{"x": 1.0}]}}}', before=None, schema="1"):
    return ('{"schema":%s,"command":["s"],"entries":{%s}%s}\n' % (
        schema, entries, "" if before is None else ',"before":{%s}' % before)).encode()


def imported(raw):
    recording = recording_of(entry_of("mine"))
    return mcp_lazy.import_older(raw, recording), recording


def test_a5_11_a_file_of_the_older_relay_is_taken_over():
    """Each result verbatim, for any capabilities, as old as can be."""
    found = '{"supportedVersions": ["2026-07-28"]}'
    dirty, recording = imported(older(before='"server/discover:aa":{"result":%s},"server/discover:unsupported:bb":{"error":{"code":-32601,"message":"x"}}' % found))
    (entry,) = recording.entries.values()
    assert entry.key() == ("legacy", "2025-06-18", mcp_lazy.ANY_CAPABILITIES, "")
    assert shown_answers(entry.answers) == {"initialize": (False, [b'{"protocolVersion":"2025-06-18"}'], 0), "tools/list": (False, [b'{"tools":[{"x": 1.0}]}'], 0)}
    assert shown_answers(recording.before) == {"server/discover:aa": (False, [found.encode()], 0),
                                               "server/discover:unsupported:bb": (True, [b'{"code":-32601,"message":"x"}'], 0)}
    assert dirty == {(entry.key(), "*"), (BEFORE, "server/discover:aa"), (BEFORE, "server/discover:unsupported:bb")}
    assert shown(read(merged_recording(None, recording, dirty))) == shown(recording)


@pytest.mark.parametrize("key, stored", [
    ("tools/call:aa", '{"result":{}}'), ("tools/list:aa", '{"result":{}}'), ("ping:aa", '{"result":{}}'), ("server/discovery:aa", '{"result":{}}'),
    ("server/discover:aa", '{"error":{"code":-32000,"message":"x"}}'), ("server/discover:aa", '{"error":{"code":-32602}}'),
    ("server/discover:aa", '{"error":5}'), ("server/discover:aa", '{"result":5}'), ("server/discover:aa", '{"result":[]}')])
def test_a5_11_a6_5_calls_and_other_errors_are_not_taken_over(key, stored):
    """The older relay answered them for ever."""
    dirty, recording = imported(older(before='"%s":%s' % (key, stored)))
    assert not recording.before and len(recording.entries) == 1 and not [one for one in dirty if one[0] == BEFORE]


@pytest.mark.parametrize("error", ['{"code":-32601,"message":"x"}', '{"code":-32022,"message":"x","data":{"supported":[]}}'])
def test_a5_11_errors_that_count_are(error):
    _, recording = imported(older(before='"server/discover:aa":{"error":%s}' % error))
    assert shown_answers(recording.before) == {"server/discover:aa": (True, [error.encode()], 0)}


@pytest.mark.parametrize("listing", ['"tools/list":null', '"tools/list":[]', '"tools/list":5', '"tools/call":{"tools":[]}'])
def test_a5_11_lists_of_no_kind_are_not_taken_over(listing):
    _, recording = imported(older('"v":{"initialize":{},"lists":{%s}}' % listing))
    (entry,) = recording.entries.values()
    assert list(entry.answers) == ["initialize"]


def test_a5_11_an_indented_file_is_taken_over():
    raw = json.dumps(json.loads(older(before='"server/discover:aa":{"result":{"a":[1,2]}}')), indent=2).encode()
    _, recording = imported(raw)
    assert json.loads(recording.before["server/discover:aa"].pages[0]) == {"a": [1, 2]}
    assert b"\n" not in recording.before["server/discover:aa"].pages[0], "the file's form: a result is one line"


@pytest.mark.parametrize("raw", [
    b"", b"{", b"[]", b"null", b"\xff", older(schema="2"), older(schema='"1"'), older(schema="1.0"), older("5"), older('"v":5'), older('"v":{"lists":{}}'),
    older('"v":{"initialize":{},"lists":5}'), older(before='"server/discover:a":5'), older(before='"server/discover:a":{}'), older()[:60],
    b'{"schema":1}', b'{"schema":1,"entries":[]}', b'{"schema":1,"entries":{},"before":[]}', b"[" * 100000], ids=lambda raw: ascii(raw[:40]))
def test_a5_11_nothing_of_a_file_that_is_not_whole(raw):
    dirty, recording = imported(raw)
    assert dirty == set() and list(recording.entries) == [entry_of("mine").key()] and not recording.before


def test_a5_1_the_key_of_the_older_relay():
    words = [b"/usr/bin/node", b"s.mjs", b"--x"]
    text = b"schema=1\narg=/usr/bin/node\nfile=/usr/bin/node size=10 mtime=20\narg=s.mjs\nfile=/d/s.mjs size=1 mtime=2\narg=--x\n"
    programs = {0: ("/usr/bin/node", 10, 20), 1: ("/d/s.mjs", 1, 2)}
    assert mcp_lazy.older_file_key(words, programs) == hashlib.sha256(text).hexdigest()[:32]


# ---------------------------------------------------------------------------------------- the rest

def test_digests_are_sha_256():
    for raw in (b"", b"abc", b"x" * 10000):
        assert mcp_lazy.sha256_hex(raw) == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("params, plain", [
    (None, True), ({}, True), ({"cursor": None}, True), ({"_meta": {"progressToken": 1}}, True), ({"_meta": {}, "cursor": None}, True),
    ({"cursor": "x"}, False), ({"cursor": ""}, False), ({"filter": 1}, False), ([], False), (5, False), ((), False),
    ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, True)], ids=repr)  # `is_modern` tells the eras apart
def test_a6_3_requests_for_a_plain_list(params, plain):
    assert mcp_lazy.is_plain_listing(params) is plain


@pytest.mark.parametrize("params, page", [
    (None, True), ({}, True), ({"cursor": "x"}, True), ({"cursor": ""}, True), ({"cursor": None, "_meta": {}}, True), ({"cursor": 5}, False),
    ({"cursor": ["x"]}, False), ({"cursor": True}, False), ({"filter": 1}, False), ({"cursor": "x", "filter": 1}, False), ([], False), ((), False), ("x", False)], ids=repr)
def test_a6_9_requests_for_a_page(params, page):
    assert mcp_lazy.is_list_request(params) is page


@pytest.mark.parametrize("raw, good", [
    (RESULT, True), (b'{"protocolVersion":"v","capabilities":{}}', True), (b'{"protocolVersion":5,"capabilities":{}}', False),
    (b'{"protocolVersion":"v"}', False), (b'{"protocolVersion":"v","capabilities":[]}', False), (b"5", False), (b"nope", False), (b"{}", False), (b"null", False)])
def test_a6_2_results_that_are_a_handshake(raw, good):
    assert mcp_lazy.is_handshake(raw) is good


@pytest.mark.parametrize("params, modern", [
    (None, False), ({}, False), ({"_meta": None}, False), ({"_meta": {}}, False), ({"_meta": {"io.modelcontextprotocol/protocolVersion": 5}}, False),
    ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, True)], ids=repr)
def test_a17_1_requests_of_the_modern_era(params, modern):
    assert mcp_lazy.is_modern(params) is modern


def modern_line(params):
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/list"%s}\n' % (b',"params":' + params if params else b"")


@pytest.mark.parametrize("meta, kept", [
    (b'{"a":1.0, "progressToken":"x" ,"b":"\\u0062"}', b'{"a":1.0,"b":"\\u0062"}'), (b'{"progressToken":0}', b"{}"), (b"{}", b""),
    (b'{"a":{"progressToken":1}}', b'{"a":{"progressToken":1}}')])
def test_a17_6_the_meta_of_a_request_is_kept_without_its_progress_token(meta, kept):
    """It is sent again by us: the client waits for no progress of that (A17.6)."""
    found = mcp_lazy.read_modern(modern_line(b'{"cursor":null,"_meta":%s}' % meta))
    assert found.meta_raw == kept and found.params_raw.startswith(b'{"cursor"')


@pytest.mark.parametrize("params", [b"", b"{}", b'{"_meta":null}', b'{"_meta":[1]}', b'{"_meta":"x"}'])
def test_a17_1_a_request_without_meta_has_an_empty_one(params):
    found = mcp_lazy.read_modern(modern_line(params))
    assert found.meta == {} and found.meta_raw == b""


@pytest.mark.parametrize("line", [modern_line(b"[]"), modern_line(b"5"), modern_line(b"null"), b"[]\n", b"nope\n", modern_line(b'{"a":' + b"[" * 99999 + b"]" * 99999 + b"}")],
                         ids=lambda line: ascii(line[:60]))
def test_a17_1_what_cannot_be_read_is_no_modern_request(line):
    assert mcp_lazy.read_modern(line) is None


def test_parts_of_answers_that_are_odd():
    for raw in (b"5", b"[]", b"nope", b"null", b'"x"', b'{"code":null,"message":null}'):
        assert mcp_lazy.error_code({"error": raw}) is None
        assert isinstance(mcp_lazy.error_text({"error": raw}), str)
        assert mcp_lazy.version_of(raw) is None
    assert mcp_lazy.error_code({}) is None and mcp_lazy.error_text({}) == ""
    assert mcp_lazy.error_code({"error": b'{"code":-32601}'}) == -32601
    assert mcp_lazy.version_of(RESULT) == "1.0"
