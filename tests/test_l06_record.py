"""L6: keys, the file's form, merging, what a live answer teaches (A5, A6, A9.2, cases 051 to 056)."""

import hashlib
import itertools
import json

import pytest

import mcp_lazy
from generated import any_value, seeded, spell
from mcp_lazy import Entry, Recording, Shelf, entry_key, file_key, merged_recording, parse_json, program_words, read_recording, write_recording

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

def entry_of(version="2025-06-18", capabilities=None, scope="", initialize=RESULT, **lists):
    entry = Entry(*entry_key(version, capabilities or {}, scope))
    entry.recorded_at_ms, entry.initialize = 1764513600000, initialize
    entry.lists = {name.replace("_", "/"): value for name, value in lists.items()}
    return entry


def recording_of(*entries, program=("/bin/s",), owner=""):
    recording = Recording(list(program), owner)
    recording.entries = {entry.key(): entry for entry in entries}
    return recording


def shown(entries):
    """Everything that entries hold, to compare."""
    return {key: (entry.recorded_at_ms, entry.initialize, dict(entry.lists), list(entry.start_requests), list(entry.doubts))
            for key, entry in entries.items()}


def full_recording(owner=""):
    one = entry_of(tools_list=(False, TOOLS), prompts_list=(True, b'{"code":-32601,"message":"no"}'))
    one.start_requests, one.doubts = ["roots/list"], ["tools/list"]
    two = entry_of("2024-11-05", {"roots": {}}, "client=x", b'{"serverInfo":{"name":"\\u2028"},"n":9007199254740993}', resources_list=(False, b'{"resources":[]}'))
    three = entry_of("odd \"\\\n\ud800 version", initialize=None)
    return recording_of(one, two, three, program=["/bin/s\ud800", "/x/\n\"server.py"], owner=owner)


@pytest.mark.parametrize("owner", ["", "f" * 32])
def test_what_is_written_is_read_again(owner):
    recording = full_recording(owner)
    raw = write_recording(recording)
    assert shown(read_recording(raw, owner)) == shown(recording.entries)
    assert read_recording(raw, "other" + owner) == {}, "F3: a file of another command is no recording of this one"
    again = recording_of(owner=owner, program=recording.program)
    again.entries = read_recording(raw, owner)
    assert write_recording(again) == raw


def test_a5_4b_the_file_is_one_json_document_with_verbatim_results():
    raw = write_recording(full_recording())
    document = json.loads(raw)
    assert raw[-1:] == b"\n" and document["schema"] == 2
    entry = document["entries"][0]
    assert set(entry) >= {"era", "protocolVersion", "capabilities", "scope", "recordedAt", "serverInfo", "initialize", "lists", "startRequests"}
    assert (entry["era"], entry["protocolVersion"], entry["recordedAt"]) == ("legacy", "2025-06-18", 1764513600000)
    assert entry["initialize"] == json.loads(RESULT) and entry["serverInfo"] == {"name": "s", "version": "1.0"}
    assert entry["lists"]["tools/list"] == {"pages": [json.loads(TOOLS)]} and entry["lists"]["prompts/list"]["error"]["code"] == -32601
    assert RESULT in raw and TOOLS in raw and b'"n":9007199254740993' in raw


def test_an_empty_recording():
    raw = write_recording(recording_of())
    assert json.loads(raw)["entries"] == [] and read_recording(raw) == {}


def test_generated_recordings_survive():
    rng = seeded("recordings")
    for _ in range(150):
        entries = []
        for number in range(rng.randrange(4)):
            def result():
                return spell(rng, {"v": any_value(rng, 3), "serverInfo": any_value(rng, 1)}).encode()
            entry = entry_of("v%d" % number, any_value(rng, 2), rng.choice(("", "a=b\nc=d")), result() if rng.random() < 0.8 else None)
            for method in mcp_lazy.LISTS:
                if rng.random() < 0.5:
                    entry.lists[method] = (rng.random() < 0.3, result())
            entry.start_requests = ["roots/list"] * rng.randrange(2)
            entries.append(entry)
        recording = recording_of(*entries)
        raw = write_recording(recording)
        assert shown(read_recording(raw)) == shown(recording.entries)
        json.loads(raw)


FOREIGN = {
    "nothing": b"", "a line end": b"\n", "text": b"hello\n", "not UTF-8": b"\xff\xfe{}\n", "null": b"null\n", "a list": b"[]\n", "an object": b"{}\n",
    "an older schema": b'{"schema":1,"command":["x"],"entries":{}}\n', "a newer schema": write_recording(full_recording()).replace(b'"schema":2', b'"schema":3'),
    "another layout": b'{"schema":2,"layout":"other","program":[],"entries":[]}\n', "no entries": b'{"schema":2,"layout":"result lines","owner":""}\n',
    "entries of no kind": b'{"schema":2,"layout":"result lines","owner":"","entries":[5]}\n', "entries as an object": b'{"schema":2,"layout":"result lines","owner":"","entries":{"a":1}}\n',
    "zeros": b"\0" * 300, "half": write_recording(full_recording())[:400], "deep": b"[" * 100000,
    "written anew": json.dumps(json.loads(write_recording(full_recording())), indent=1).encode()}


@pytest.mark.parametrize("name", FOREIGN)
def test_a5_6_what_is_no_recording_of_ours_is_empty(name):
    assert read_recording(FOREIGN[name]) == {}


MEMBERS = [(b'"recordedAt":1764513600000', b'"recordedAt":%s') , (b'"era":"legacy"', b'"era":%s'), (b'"protocolVersion":"2025-06-18",', b'"protocolVersion":%s,'),
           (b'"startRequests":["roots/list"]', b'"startRequests":%s'), (b'"doubts":["tools/list"]', b'"doubts":%s'), (b'"scope":""', b'"scope":%s')]


@pytest.mark.parametrize("odd", [b"1e999", b"-1e999", b"NaN", b"null", b"[]", b"{}", b"5", b'"x"', b"true", b"[[]]", b'{"a":[]}', b"-1"], ids=ascii)
@pytest.mark.parametrize("member", range(len(MEMBERS)), ids=[old.split(b":")[0].decode() for old, _ in MEMBERS])
def test_a5_6_a_member_of_an_odd_type_is_never_an_error(member, odd):
    """Neither at the start (read) nor when this relay saves what it learnt (merge)."""
    old, new = MEMBERS[member]
    raw = write_recording(full_recording())
    assert old in raw
    raw = raw.replace(old, new % odd, 1)
    assert isinstance(read_recording(raw), dict)
    mine = recording_of(entry_of("mine"))
    merged = merged_recording(raw, mine, {(next(iter(mine.entries)), "*")})
    assert next(iter(mine.entries)) in read_recording(merged)
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
        found = read_recording(raw)
        assert isinstance(found, dict)
        merged = merged_recording(raw, mine, dirty)
        if merged is None:
            assert not found, "only a newer schema is left alone"
        else:
            assert dirty <= {(one, "*") for one in read_recording(merged)}


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
    assert shown(read_recording(merged)) == shown(mine.entries)


def test_a5_7_two_entries_of_two_writers_are_kept():
    one, two = recording_of(entry_of("a", tools_list=(False, TOOLS))), recording_of(entry_of("b"))
    disk = merged_recording(None, one, {(next(iter(one.entries)), "*")})
    disk = merged_recording(disk, two, {(next(iter(two.entries)), "*")})
    assert shown(read_recording(disk)) == {**shown(one.entries), **shown(two.entries)}


CHANGES = {
    "initialize": lambda entry, tag: setattr(entry, "initialize", b'{"by":"%s"}' % tag),
    "startRequests": lambda entry, tag: setattr(entry, "start_requests", [tag.decode()]),
    "doubts": lambda entry, tag: setattr(entry, "doubts", [tag.decode()]),
    "tools/list": lambda entry, tag: entry.lists.__setitem__("tools/list", (False, b'{"tools":["%s"]}' % tag)),
    "prompts/list": lambda entry, tag: entry.lists.__setitem__("prompts/list", (True, b'{"code":-32601,"m":"%s"}' % tag)),
    "resources/list": lambda entry, tag: entry.lists.pop("resources/list", None),
    "resources/templates/list": lambda entry, tag: entry.lists.__setitem__("resources/templates/list", (False, b'{"resourceTemplates":["%s"]}' % tag)),
}


def base_entry():
    entry = entry_of(tools_list=(False, TOOLS), resources_list=(False, b'{"resources":[1]}'))
    entry.start_requests, entry.doubts = ["x"], ["y"]
    return entry


def member_of(entry, member):
    return {"initialize": entry.initialize, "startRequests": entry.start_requests, "doubts": entry.doubts}.get(member, entry.lists.get(member))


@pytest.mark.parametrize("first, second", list(itertools.permutations(CHANGES, 2)), ids="+".join)
def test_a5_7_two_members_of_one_entry_by_two_writers_are_both_kept(first, second):
    """Both read the same file, each learns one member; the second to write keeps what the first wrote."""
    base = write_recording(recording_of(base_entry()))
    one, two = recording_of(base_entry()), recording_of(base_entry())
    (where, mine), (_, theirs) = next(iter(one.entries.items())), next(iter(two.entries.items()))
    CHANGES[first](mine, b"one")
    CHANGES[second](theirs, b"two")
    disk = merged_recording(base, one, {(where, first)})
    disk = merged_recording(disk, two, {(where, second)})
    found = read_recording(disk)[where]
    untouched = base_entry()
    for member in CHANGES:
        wanted = mine if member == first else theirs if member == second else untouched
        assert member_of(found, member) == member_of(wanted, member), member


def test_a5_7_a_cold_start_does_not_undo_the_lists_of_another_one():
    """Two relays of one registration start cold at once, with the same server: the later handshake keeps the lists that are there."""
    def cold():
        shelf = Shelf(recording_of(), [])
        assert shelf.select({"protocolVersion": "2025-06-18", "capabilities": {}})
        assert shelf.learn_initialize(shelf.entry, RESULT, replayed=False) == "new"
        return shelf
    one, two = cold(), cold()
    assert one.learn_list(one.entry, "tools/list", False, TOOLS) == "new"
    disk = merged_recording(None, one.recording, one.take_dirty())
    disk = merged_recording(disk, two.recording, two.take_dirty())
    (found,) = read_recording(disk).values()
    assert found.initialize == RESULT and found.lists == {"tools/list": (False, TOOLS)}


def test_a6_1_a_different_live_handshake_empties_the_lists_on_disk_too():
    shelf, disk = stocked()
    assert shelf.learn_initialize(shelf.entry, b'{"serverInfo":{"version":"2"}}', replayed=False) == "changed"
    disk = merged_recording(disk, shelf.recording, shelf.take_dirty())
    (found,) = read_recording(disk).values()
    assert found.lists == {} and found.initialize == b'{"serverInfo":{"version":"2"}}'


# -------------------------------------------------------------------------------------------- shelf

PARAMS = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def stocked(initialize=RESULT, scope=(), **lists):
    """(a shelf as a relay has it after its start, the file that it was read from)."""
    disk = write_recording(recording_of(entry_of(initialize=initialize, **(lists or {"tools_list": (False, TOOLS)}))))
    recording = recording_of()
    recording.entries = read_recording(disk)
    shelf = Shelf(recording, list(scope))
    assert shelf.select(PARAMS)
    return shelf, disk


def saved(shelf, disk):
    """What the next start finds."""
    dirty = shelf.take_dirty()
    if dirty:
        disk = merged_recording(disk, shelf.recording, dirty)
    recording = recording_of()
    recording.entries = read_recording(disk)
    again = Shelf(recording, [])
    assert again.select(PARAMS)
    return again, disk


def test_a7_1_a7_5_what_is_recorded_is_served():
    shelf, _ = stocked()
    assert shelf.initialize() == RESULT and shelf.listing("tools/list") == (False, TOOLS)
    assert shelf.listing("prompts/list") is None
    assert shelf.declares_changes("tools/list") and not shelf.declares_changes("prompts/list")
    assert not shelf.has_news()


@pytest.mark.parametrize("params", [{}, {"protocolVersion": ""}, {"protocolVersion": 5}, {"protocolVersion": None, "capabilities": {}}, {"protocolVersion": ["2025-06-18"]}], ids=repr)
def test_a6_4_no_version_no_record(params):
    shelf, _ = stocked()
    assert shelf.select(params) is False
    assert shelf.initialize() is None and shelf.listing("tools/list") is None


@pytest.mark.parametrize("raw", [b"{", b"nope", b"[]", b"5", b"", b'{"a":', b'{"a":1}}', b"\xff"], ids=ascii)
def test_case_055_a_damaged_result_line_is_not_served(raw):
    shelf, _ = stocked(initialize=raw)
    assert shelf.initialize() is None
    shelf, _ = stocked(tools_list=(False, raw), prompts_list=(False, b'{"prompts":[]}'))
    assert shelf.listing("tools/list") is None and shelf.listing("prompts/list") == (False, b'{"prompts":[]}')
    assert shelf.initialize() == RESULT, "the others are"


def test_a_damaged_handshake_has_no_capabilities():
    for raw in (b"nope", b"{}", b'{"capabilities":5}', b'{"capabilities":{"tools":[]}}', b"[]"):
        shelf, _ = stocked(initialize=raw)
        assert not shelf.declares_changes("tools/list")


def test_a6_1_verdicts_about_a_handshake():
    shelf, disk = stocked()
    respelled = RESULT.replace(b'"name":"s"', b'"name" : "\\u0073"')
    assert shelf.learn_initialize(shelf.entry, respelled, replayed=False) == "same" and not shelf.has_news()
    assert shelf.listing("tools/list") == (False, TOOLS)
    changed = RESULT.replace(b'"1.0"', b'"1.1"')
    assert shelf.learn_initialize(shelf.entry, changed, replayed=True) == "changed"
    assert shelf.listing("tools/list") == (False, TOOLS), "A6.2: a replayed one keeps the lists"
    again, disk = saved(shelf, disk)
    assert again.initialize() == changed and again.listing("tools/list") == (False, TOOLS)
    assert again.learn_initialize(again.entry, RESULT, replayed=False) == "changed" and again.listing("tools/list") is None


def test_a6_1_a_first_handshake_is_new():
    shelf = Shelf(recording_of(), [])
    assert shelf.select(PARAMS) and shelf.initialize() is None
    shelf.now_ms = 1764513600123
    assert shelf.learn_initialize(shelf.entry, RESULT, replayed=False) == "new" and shelf.initialize() == RESULT
    again, _ = saved(shelf, None)
    assert again.initialize() == RESULT and again.entry.recorded_at_ms == 1764513600123
    assert again.capabilities()["logging"] == {}


def test_a6_3_verdicts_about_a_list():
    shelf, disk = stocked()
    assert shelf.learn_list(shelf.entry, "tools/list", False, b'{"tools": [{"x":1,"name":"a"}]}') == "same" and not shelf.has_news()
    assert shelf.learn_list(shelf.entry, "prompts/list", False, b'{"prompts":[]}') == "new"
    assert shelf.learn_list(shelf.entry, "tools/list", False, b'{"tools":[{"name":"b"}]}') == "changed"
    assert shelf.learn_list(shelf.entry, "resources/list", False, None) == "same", "nothing was there to delete"
    again, disk = saved(shelf, disk)
    assert again.listing("tools/list") == (False, b'{"tools":[{"name":"b"}]}') and again.listing("prompts/list") == (False, b'{"prompts":[]}')
    assert again.learn_list(again.entry, "tools/list", False, None) == "changed"
    again, disk = saved(again, disk)
    assert again.listing("tools/list") is None and again.listing("prompts/list") is not None


def test_a6_3_a_list_that_the_server_does_not_have():
    shelf, disk = stocked()
    error = b'{"code":-32601,"message":"no"}'
    assert shelf.learn_list(shelf.entry, "prompts/list", True, error) == "new" and shelf.listing("prompts/list") == (True, error)
    assert shelf.learn_list(shelf.entry, "prompts/list", True, error) == "same"
    again, disk = saved(shelf, disk)
    assert again.listing("prompts/list") == (True, error)
    assert again.learn_list(again.entry, "prompts/list", False, b'{"prompts":[]}') == "changed", "replaced by the first success"
    assert again.learn_list(again.entry, "tools/list", True, error) == "changed", "A9.3: an error is no empty list"


def test_a9_2_an_empty_list_needs_a_second_start():
    shelf, disk = stocked()
    assert shelf.learn_list(shelf.entry, "tools/list", False, EMPTY) == "doubted"
    assert shelf.listing("tools/list") == (False, TOOLS)
    again, disk = saved(shelf, disk)
    assert again.listing("tools/list") == (False, TOOLS), "the doubt is kept for the next start"
    assert again.learn_list(again.entry, "tools/list", False, EMPTY) == "changed"
    third, disk = saved(again, disk)
    assert third.listing("tools/list") == (False, EMPTY)


def test_a9_2_a_full_list_ends_the_doubt():
    for full, verdict in ((TOOLS, "same"), (b'{"tools":[{"name":"b"}]}', "changed")):
        shelf, disk = stocked()
        assert shelf.learn_list(shelf.entry, "tools/list", False, EMPTY) == "doubted"
        again, disk = saved(shelf, disk)
        assert again.learn_list(again.entry, "tools/list", False, full) == verdict
        third, disk = saved(again, disk)
        assert third.learn_list(third.entry, "tools/list", False, EMPTY) == "doubted", "it begins anew"


def test_a9_2_no_doubt_where_nothing_full_was_recorded():
    shelf, _ = stocked(tools_list=(False, EMPTY))
    assert shelf.learn_list(shelf.entry, "tools/list", False, b'{"tools":[],"more":1}') == "changed"
    assert shelf.learn_list(shelf.entry, "prompts/list", False, b'{"prompts":[]}') == "new"
    shelf, _ = stocked(tools_list=(True, b'{"code":-32601}'))
    assert shelf.learn_list(shelf.entry, "tools/list", False, EMPTY) == "changed"


def test_a9_2_a_doubt_about_one_list_is_none_about_another():
    shelf, disk = stocked(tools_list=(False, TOOLS), prompts_list=(False, b'{"prompts":[1]}'))
    assert shelf.learn_list(shelf.entry, "tools/list", False, EMPTY) == "doubted"
    again, _ = saved(shelf, disk)
    assert again.learn_list(again.entry, "prompts/list", False, b'{"prompts":[]}') == "doubted"
    assert again.learn_list(again.entry, "tools/list", False, EMPTY) == "changed"


def test_a5_8_what_is_too_big_is_not_stored():
    big = b'{"tools":["%s"]}' % (b"x" * (8 * 1024 * 1024))
    shelf, disk = stocked()
    assert shelf.learn_list(shelf.entry, "prompts/list", False, big) == "too big" and shelf.listing("prompts/list") is None
    assert shelf.learn_list(shelf.entry, "tools/list", False, big) in ("changed", "too big")
    assert shelf.listing("tools/list") is None, "the old one is wrong now"
    assert shelf.learn_initialize(shelf.entry, big, replayed=True) == "too big" and shelf.initialize() != big
    again, disk = saved(shelf, disk)
    assert again.listing("tools/list") is None and len(disk) < 10000
    at_limit = b'{"t":"%s"}' % (b"x" * (8 * 1024 * 1024 - 8))
    assert len(at_limit) == 8 * 1024 * 1024 and shelf.learn_list(shelf.entry, "resources/list", False, at_limit) == "new"


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
    again = Shelf(recording_of(), [])
    again.recording.entries = read_recording(merged_recording(None, shelf.recording, shelf.take_dirty()))
    for capabilities, tag in (({"roots": {}}, b"2"), ({}, b"1")):
        assert again.select(client(capabilities=capabilities)) and again.initialize() == b'{"n":%s}' % tag


def test_digests_are_sha_256():
    for raw in (b"", b"abc", b"x" * 10000):
        assert mcp_lazy.sha256_hex(raw) == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("params, plain", [
    (None, True), ({}, True), ({"cursor": None}, True), ({"_meta": {"progressToken": 1}}, True), ({"_meta": {}, "cursor": None}, True),
    ({"cursor": "x"}, False), ({"cursor": ""}, False), ({"filter": 1}, False), ([], False), (5, False), ((), False),
    ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, False)], ids=repr)
def test_a6_3_requests_for_a_plain_list(params, plain):
    assert mcp_lazy.is_plain_listing(params) is plain


@pytest.mark.parametrize("params, modern", [
    (None, False), ({}, False), ({"_meta": None}, False), ({"_meta": {}}, False), ({"_meta": {"io.modelcontextprotocol/protocolVersion": 5}}, False),
    ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, True)], ids=repr)
def test_a17_1_requests_of_the_modern_era(params, modern):
    assert mcp_lazy.is_modern(params) is modern


def test_parts_of_answers_that_are_odd():
    for raw in (b"5", b"[]", b"nope", b"null", b'"x"', b'{"code":null,"message":null}'):
        assert mcp_lazy.error_code({"error": raw}) is None
        assert isinstance(mcp_lazy.error_text({"error": raw}), str)
        assert mcp_lazy.version_of(raw) is None
    assert mcp_lazy.error_code({}) is None and mcp_lazy.error_text({}) == ""
    assert mcp_lazy.error_code({"error": b'{"code":-32601}'}) == -32601
    assert mcp_lazy.version_of(RESULT) == "1.0"
