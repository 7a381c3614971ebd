"""L10b: JSON files of other programs by spans (D9, D3.2; cases 081 to 107 of kind config-json).

What is edited is proved from outside: every byte beside the edits stays, the value of the new text is the edited value
(`json` is the judge where the text is strict), and undone by the rules of the interface it is the old text again.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from generated import any_string, any_value, seeded, spell_number, spell_string
from harness import FULL
from mcp_lazy import JsonTextError, LazyError, json_document

MIB = 1 << 20


def read(raw):
    return json_document(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"))


def spelled(text):
    """What `json` reads, numbers as they are spelled; NaN and Infinity are no JSON."""
    return json.loads(text, parse_int=str.encode, parse_float=str.encode, parse_constant=lambda name: pytest.fail(name))


def apply(raw, edits):
    """`raw` with the edits; they are sorted and do not overlap."""
    pieces, done = [], 0
    for _, start, end, new, _ in edits:
        assert done <= start <= end
        pieces += [raw[done:start], new]
        done = end
    return b"".join(pieces + [raw[done:]])


def edit(text, *changes):
    """The text (str) after changes, read again and compared with the changed value."""
    document = read(text)
    after = apply(document.raw, document.edits(changes))
    assert read(after).value == changed(document.value, changes), after
    return after.decode("utf-8")


def changed(value, changes):
    """A copy of a decoded value with the changes in it."""
    value = copied(value)
    for path, new in changes:
        parent = value
        for name in path[:-1]:
            parent = parent.get(name, {})
        if new is None:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = new
    return value


def copied(value):
    return {name: copied(item) for name, item in value.items()} if isinstance(value, dict) else value


def undone(raw, after, edits):
    """`after` with replacements and insertions taken back, each found anew by its path as the interface says."""
    document, back = read(after), []
    for path, start, end, new, at in edits:
        place = document.find(path)
        first = place.span[0] if at is None else place.member[0] - at
        assert after[first:first + len(new)] == new and (at is not None or place.span == (first, first + len(new)))
        back.append((path, first, first + len(new), raw[start:end], None))
    return apply(after, sorted(back, key=lambda one: one[1:3]))


def error_of(raw):
    """(line, column, text) of the error of a text; the text is one line."""
    with pytest.raises(JsonTextError) as caught:
        read(raw)
    assert isinstance(caught.value, LazyError) and isinstance(caught.value, ValueError)
    text = str(caught.value)
    assert text and text.isprintable()
    return caught.value.line, caught.value.column, text


# ------------------------------------------------------------------------------------------------------------- reading

READ = [
    ('{"a":1,"b":[true,false,null,"x"]}', {"a": b"1", "b": [True, False, None, "x"]}),
    ('{// c\n"a":1/**/,/* , " { */"b":"// no /* comment */"}// end', {"a": b"1", "b": "// no /* comment */"}),
    ('/* a\n*//**/{"a":[1,2,],}\n//', {"a": [b"1", b"2"]}),
    ('{"a":[[1 // x\n,// ]\n],/*}*/\n],}', {"a": [[b"1"]]}),
    ('{"u":"http://x/","c":",]","d":",}\\",}",}', {"u": "http://x/", "c": ",]", "d": ',}",}'}),
    ('{"a":"\\\\","b":"\\"//",/*"*/"c":"\\u0041\\ud83d\\ude00"}', {"a": "\\", "b": '"//', "c": "A\U0001f600"}),
    ('{"a":1,"a":2}', {"a": b"2"}), ("[]", []), (" 1 ", b"1"), ('"x"', "x"), ("// x\n[1,]", [b"1"]), ("{}//", {}),
    ("[/**/]", []),
    ("// cr\r[1]", [b"1"]), ("\ufeff{}", {}), ("\ufeff//\n{}\r\n", {}),
    ('{"\u00e9":"\u20ac\U0001f600"/*\u20ac*/}', {"\u00e9": "\u20ac\U0001f600"}),
]


@pytest.mark.parametrize("text, value", READ, ids=[ascii(text) for text, _ in READ])
def test_d3_2_what_is_read(text, value):
    """Comments, trailing commas and a byte-order mark at the start; the last member of a name counts."""
    assert read(text).value == value and read(text).raw == text.encode()


@pytest.mark.parametrize("number", ["1e400", "-1E1000", "1.0", "-0", "12345678901234567890", "1e-400", "7" * 5000, "0.10"])
def test_087_numbers_are_what_they_are_spelled_as(number):
    """Case 087, and more digits than CPython turns into an integer; no number equals a text."""
    assert read('{"n":%s,"a":["%s"]}' % (number, number)).value == {"n": number.encode(), "a": [number]}
    assert edit('{"n":%s}' % number, (("m",), "x")) == '{"n":%s, "m":"x"}' % number


STRICT = [
    ("{}", None), ('{"a":"// b"}', None), ("[1]\n", None), ("\ufeff[1,] // a", "a byte-order mark in line 1"),
    ("[1,\n2,\n] // a", "a trailing comma in line 2"), ("[1,\n2] // a", "a comment in line 2"),
    ("[1 /*\n\n*/,\n]", "a comment in line 1"), ("[1 // a\n,[2,],\n// b\n]", "a comment in line 1"),
    ('{"a":",]"}', None), ("\n[\n[1,],[2,]]", "a trailing comma in line 3")]


@pytest.mark.parametrize("text, trouble", STRICT, ids=[ascii(text) for text, _ in STRICT])
def test_081_what_a_strict_reader_would_not_load_is_told(text, trouble):
    """Case 081: the first reason and its line."""
    assert read(text).strict_trouble == trouble
    if trouble is None:
        json.loads(text)
    else:
        with pytest.raises(ValueError):
            json.loads(text)


REFUSED = [
    # case 097 and its kin
    ("", 1, 1, "empty"), (" ", 1, 2, "no value"), ("\n\n", 3, 1, "no value"), ("\ufeff", 1, 1, "no value"),
    ("\ufeff \n", 2, 1, "no value"),
    ("// x", 1, 5, "no value"), ("/**/\n/**/", 2, 5, "no value"), (b"\0" * 63, 1, 1, "NUL"),
    (b"\0" * 9 + b"\n", 1, 1, "NUL"),
    # other encodings (D3.2)
    ('{"a":1}'.encode("utf-16"), 1, 1, "UTF-16"), ('{"a":1}'.encode("utf-16-le"), 1, 2, "UTF-16"),
    ('{"a":1}'.encode("utf-16-be"), 1, 1, "UTF-16"),
    ('{"a":1}'.encode("utf-32"), 1, 1, "UTF-16"), ('{"\u00e9":1}'.encode("utf-16-be"), 1, 6, "UTF-16"),
    (b'{\n"a\xc3\xa9": "\xe9"}', 2, 8, "0xE9 at offset 10"), (b"\xef\xbb\xbf[\xff]", 1, 2, "0xFF at offset 4"),
    (b'["\xed\xa0\x80"]', 1, 3, "0xED"),
    # the places; columns count characters, not bytes (case 096)
    ('{\n  "mcpServers": {\n    "\u00e9": {\n      "command": "npx"\n      "args": []\n    }\n  }\n}', 5, 7, "comma"),
    ('{"\u00e9\u20ac\U0001f600" 1}', 1, 8, "colon"), ('/* \u00e9 */ {"a" 1}', 1, 14, "colon"),
    ("\ufeff{a:1}", 1, 2, "double quotes"),
    ("\ufeff\n{a:1}", 2, 2, "double quotes"), ("\ufeff\ufeff{}", 1, 1, "byte-order mark"),
    ("[\ufeff]", 1, 2, "byte-order mark"),
    ('{"a":1', 1, 7, "cut off"), ('{"mcpServers":{"a":{"args":[]}},"o":{"id":"u-1"\n', 2, 1, "cut off"),
    ('{"a":"x', 1, 6, "no end"), ("[1,", 1, 4, "cut off"),
    ("{'a':1}", 1, 2, "double quotes"), ("['a']", 1, 2, "double quotes"), ("[NaN]", 1, 2, "no value"),
    ('["NaN",\n-Infinity]', 2, 2, "no value"),
    ("[1,,]", 1, 4, "no value"), ("[,]", 1, 2, "no value"), ("[ /*x*/ , ]", 1, 9, "no value"),
    ("{,}", 1, 2, "double quotes"), ('{"a":1,,}', 1, 8, "quotes"),
    ('{"a":,}', 1, 7, "no value"), ('{"a",}', 1, 6, "colon"), ("[1 2]", 1, 4, "comma"),
    ('{"a":1}x', 1, 8, "behind the end"), ("[1],", 1, 4, "behind the end"),
    ('{"a":1}{}', 1, 8, "behind the end"), ('["a\tb"]', 1, 4, "control"), ('["a\nb"]', 1, 4, "line"),
    (b'["\x00"]', 1, 3, "control"), ('["\\x"]', 1, 3, "backslash"),
    ("[1 /* x ]", 1, 4, "comment"), ("/*", 1, 1, "comment"), ("/*/", 1, 1, "comment"), ("[1] /", 1, 5, "behind"),
    ("[1 / 2]", 1, 4, "comma"), ("[1 # x\n]", 1, 4, "comma"),
    ("[01]", 1, 3, "comma"), ("[.5]", 1, 2, "no value"), ("[1}", 1, 3, "bracket"), ("[True]", 1, 2, "no value"),
    ("[undefined]", 1, 2, "no value"), ("\x0b[]", 1, 1, "no value"),
]


@pytest.mark.parametrize("raw, line, column, word", REFUSED, ids=[ascii(raw)[:60] for raw, _, _, _ in REFUSED])
def test_096_what_is_refused_is_named_with_its_place(raw, line, column, word):
    """Cases 094, 096, 097: one hint, line and column."""
    found = error_of(raw)
    assert found[:2] == (line, column) and word in found[2]


def nested(levels):
    return '{"history":' + "[" * levels + "]" * levels + ',"mcpServers":{"fs":{"command":"fs-mcp","args":[]}}}\n'


@pytest.mark.parametrize("levels", [200, 400, 900, 5000, 10 ** 6])
def test_107_deep_files_are_read_or_refused_in_one_line(levels):
    """Case 107: some hundred levels work."""
    started = time.monotonic()
    try:
        after = edit(nested(levels), (("mcpServers", "fs", "command"), "r")) if levels < 500 else ""
        document = read(nested(levels))
        assert document.edits([(("mcpServers", "fs", "command"), "r")])[0][3] == b'"r"'
        assert levels >= 500 or after == nested(levels).replace("fs-mcp", "r")
    except JsonTextError as error:
        assert levels >= 500 and "nested too deeply" in str(error) and "\n" not in str(error)
        assert (error.line, error.column) == (1, 10 + min(levels + 1, 1000))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("before", ["", "\ufeff", "// [[[[ {\n", '{"\u00e9[[[":[],\n"a":['])
def test_107_the_place_of_what_is_too_deep(before):
    """Line and column of the bracket that lies too deep; those in strings and comments are none."""
    levels = 10 ** 5
    closes = "]}" * before.count('"a"')
    outer = 2 * before.count('"a"')
    line, column, word = error_of(before + '["[[[",\n' + "[" * levels + "]" * levels + "]" + closes)
    assert "nested too deeply" in word and line == before.count("\n") + 2
    assert column == 1000 - 1 - outer


def test_107_a_find_from_deep_in_the_stack_is_refused_in_one_line():
    """What was read at the bottom of the stack may be too deep for one who asks from higher up."""
    document, seen = read(nested(400)), []

    def deeper():
        try:
            deeper()
        except RecursionError:
            pass
        if not seen:
            try:
                seen.append(document.find(("mcpServers", "fs")))
            except JsonTextError as error:
                seen.append(str(error))
            except RecursionError:  # no stack left for the call itself
                pass

    deeper()
    assert seen and (not isinstance(seen[0], str) or "nested too deeply" in seen[0])
    assert document.find(("mcpServers", "fs", "command")).value == "fs-mcp"


CORPUS = Path(os.environ.get("MCP_LAZY_CORPORA") or "nowhere") / "json-test-suite"
# Not JSON, but what people write in client files and what we accept there (D3.2).
JSON_WITH_COMMENTS = {
    "n_array_extra_comma.json": "a trailing comma", "n_array_number_and_comma.json": "a trailing comma",
    "n_object_trailing_comma.json": "a trailing comma", "n_object_trailing_comment.json": "a comment",
    "n_object_trailing_comment_slash_open.json": "a comment", "n_structure_object_with_comment.json": "a comment"}


def test_the_json_test_suite_but_for_comments_and_trailing_commas():
    if not CORPUS.is_dir():
        pytest.skip("MCP_LAZY_CORPORA does not name a folder with json-test-suite in it")
    wrong, seen = [], 0
    for path in sorted(CORPUS.glob("*.json")):
        raw, seen = path.read_bytes(), seen + 1
        try:
            document = read(raw)
        except JsonTextError as error:
            document = None
            assert str(error).isprintable() and error.line >= 1 and error.column >= 1, path.name
        extra = JSON_WITH_COMMENTS.get(path.name)
        if document is None:
            wrong += [path.name] if path.name[0] == "y" or extra else []
        elif path.name[0] == "n":
            wrong += [path.name] if not extra or not document.strict_trouble.startswith(extra) else []
        elif not raw.startswith(b"\xef\xbb\xbf"):
            wrong += [path.name] if document.value != spelled(raw.decode()) or document.strict_trouble else []
    assert seen > 200 and wrong == []


# ------------------------------------------------------------------------------------------------------------- finding

def test_a_place():
    raw = '\ufeff{\r\n "\u00e9": {"a.b" : [1, "x"] /* c */, "\\u0061": 5},\n "c": null}'.encode()
    document = read(raw)
    place = document.find(("\u00e9", "a.b"))
    assert (place.value, place.line, place.kind) == ([b"1", "x"], 2, "value")
    assert raw[slice(*place.span)] == b'[1, "x"]' and raw[slice(*place.member)] == b'"a.b" : [1, "x"]'
    assert raw[slice(*document.find(("\u00e9", "a")).member)] == b'"\\u0061": 5'
    assert document.find(("c",)).value is None and document.find(("c",)).line == 3
    for path in ((), ("d",), ("c", "d"), ("\u00e9", "a.b", "0"), ("\u00e9", "a", "x"), ("\u00e9.a.b",)):
        assert document.find(path) is None
    assert read("[{}]").find(("a",)) is None and read("5").find(("a",)) is None


def test_092_names_are_opaque():
    """Case 092: dots, slashes, blanks, a dash, digits."""
    text = ('{"mcpServers":{"io":{"github":{"example":{"command":"wrong"}}},"io.github.example/notes v2":{"command":"npx"},'
            '"-y":{"command":"dash"},"7":{"command":"seven"},"":{"command":"none"},"\\"\\\\":{"command":"odd"}}}')
    for name, command in (("io.github.example/notes v2", "npx"), ("-y", "dash"), ("7", "seven"), ("", "none"), ('"\\', "odd")):
        path = ("mcpServers", name, "command")
        assert read(text).find(path).value == command
        assert edit(text, (path, "r")) == text.replace('"%s"}' % command, '"r"}')


TWICE = [
    ('{"mcpServers":{},\n"mcpServers":{"s":{"command":"a"}}}', "mcpServers", (1, 2), (2, 1)),
    ('{"mcpServers":{\n"s":{},\n\n"s":{"command":"a"}}}', "s", (2, 1), (4, 1)),
    ('{"mcpServers":{"s":{"command":"a",\n"command":"a"}}}', "command", (1, 21), (2, 1)),
    ('{"mcpServers":{"s":{"command":"a",\n "c\\u006fmmand":"a"}}}', "command", (1, 21), (2, 2)),
    ('{"x":1,"mcpServers":{"s":{"command":"a"}},\n"x":1}', "x", (1, 2), (2, 1)),
    ('{"mcpServers":{"s":{"command":"a","\u00e9":1,\n"\\u00e9":1}}}', "\u00e9", (1, 35), (2, 1)),
    ('\ufeff{"\u00e9":1,"x":1,"mcpServers":{"s":{"command":"a"}},"x":1}', "x", (1, 8), (1, 49))]


@pytest.mark.parametrize("text, name, first, second", TWICE)
def test_d9_5_a_name_twice_in_an_object_on_the_path(text, name, first, second):
    """Both places are named, also in one line; the error's own is the second one."""
    path = ("mcpServers", "s", "command")
    for ask in (lambda: read(text).find(path), lambda: read(text).edits([(path, "r")])):
        with pytest.raises(JsonTextError) as caught:
            ask()
        assert (caught.value.line, caught.value.column) == second and '"%s" stands twice' % name in str(caught.value)
        assert "line %d, column %d, and in line %d, column %d" % (first + second) in str(caught.value)


def test_d9_5_a_name_twice_elsewhere_is_let_be():
    text = ('{"x":{"a":1,"a":2},"mcpServers":{"t":{"command":1,"command":2},"s":{"command":"a","env":{"A":"1","A":"2"}}},'
            '"z":[{"b":1,"b":2}]}')
    assert edit(text, (("mcpServers", "s", "command"), "r")) == text.replace('"a","env"', '"r","env"')


def test_elements_of_an_array():
    raw = b'{"c":[ "npx" /* , */ ,\n4,["]"],\n{}, ], "d":[], "e":{}}'
    document = read(raw)
    assert [raw[start:end] for start, end in document.elements(("c",))] == [b'"npx"', b"4", b'["]"]', b"{}"]
    assert document.elements(("d",)) == document.elements(("e",)) == document.elements(("f",)) == []


# ------------------------------------------------------------------------------------------------------------- editing

EDITS = [
    # D9.1 replace
    ('{"a":1,"b":2}', [("b", "x")], '{"a":1,"b":"x"}'),
    ('{ "a" : [ 1,\n2 ] }', [("a", ["node", "x"])], '{ "a" : ["node","x"] }'),
    ('{"a":"\\u006e"}', [("a", "n")], '{"a":"n"}'), ('{"a":/*x*/1/*y*/}', [("a", [])], '{"a":/*x*/[]/*y*/}'),
    ('{"a":1}', [("a", "")], '{"a":""}'),
    ('{"a":1}', [("a", "<>&\u2028\u2029\u00e9\U0001f600\"\\\n\x01\x7f")],
     '{"a":"\\u003c\\u003e\\u0026\\u2028\\u2029\u00e9\U0001f600\\"\\\\\\n\\u0001\x7f"}'),
    ('{"a":1}', [("a", ["\ud800", b"1.0"])], '{"a":["\\ud800",1.0]}'),
    # D9.2 insert, in one line
    ("{}", [("a", "x")], '{"a": "x"}'), ('{ /* none */ }', [("a", "x")], '{ /* none */ "a": "x"}'),
    ("{ // none\n}", [("a", "x")], '{ // none\n"a": "x"}'),
    ("{}", [("a", "x"), ("b", "y"), ("c", "z")], '{"a": "x", "b": "y", "c": "z"}'),
    ('{"a": 1}', [("b", "x")], '{"a": 1, "b": "x"}'),
    ('{"a":1}', [("b", "x"), ("c", "y")], '{"a":1, "b":"x", "c":"y"}'),
    ('{"a" :  1 }', [("b", "x")], '{"a" :  1, "b" :  "x" }'),
    ('{"a":\n1}', [("b", "x")], '{"a":\n1, "b": "x"}'), ('{"a":/**/1}', [("b", "x")], '{"a":/**/1, "b": "x"}'),
    ('{"a":{}}', [("b", "x")], '{"a":{}, "b":"x"}'),
    ('{"a": 1}', [("env", {"B": "2", "A": "1"})], '{"a": 1, "env": {"A":"1","B":"2"}}'),
    ("{}", [("env", {})], '{"env": {}}'), ("{}", [("\u2028<", "x")], '{"\\u2028\\u003c": "x"}'),
    # D9.2 in many lines; D9.8, cases 085 and 086
    ('{\n  "a": 1\n}', [("b", "x"), ("c", "y")], '{\n  "a": 1,\n  "b": "x",\n  "c": "y"\n}'),
    ('{\r\n\t"a":\t1\r\n}\r\n', [("b", "x")], '{\r\n\t"a":\t1,\r\n\t"b":\t"x"\r\n}\r\n'),
    ('{\n\t\t"a"\t:\t1\n}', [("b", "x")], '{\n\t\t"a"\t:\t1,\n\t\t"b"\t:\t"x"\n}'),
    ('{"a": 1,\n   "z": 1}', [("b", "x")], '{"a": 1,\n   "z": 1,\n   "b": "x"}'),
    ('{\n  "a": 1, "z": 2\n}', [("b", "x")], '{\n  "a": 1, "z": 2, "b": "x"\n}'),
    ('{\n"a": 1\n}', [("b", "x")], '{\n"a": 1,\n"b": "x"\n}'), ("{\n}", [("b", "x")], '{\n"b": "x"}'),
    ('{\r"a":1\r}', [("b", "x")], '{\r"a":1, "b":"x"\r}'),
    ('{\n  "a": {\n    "b": 1\n  }\n}', [("c", "x")], '{\n  "a": {\n    "b": 1\n  },\n  "c": "x"\n}'),
    # trailing commas, case 083
    ('{"a":1,}', [("b", "x")], '{"a":1, "b":"x"}'), ('{\n  "a": 1,\n}', [("b", "x"),
    ("c", "y")], '{\n  "a": 1,\n  "b": "x",\n  "c": "y"\n}'),
    ('{"a":1 /* , */ , /* , */ }', [("b", "x")], '{"a":1 /* , */ , "b":"x" /* , */ }'),
    ('{\n  "a": 1 // x\n  ,\n}', [("b", "x")], '{\n  "a": 1 // x\n  ,\n  "b": "x"\n}'),
    # comments stay beside their member, case 084
    ('{\n  "a": 1 // one\n  // end\n}', [("b", "x")], '{\n  "a": 1, "b": "x" // one\n  // end\n}'),
    ('{\n  "a": 1\n  // end\n}', [("b", "x")], '{\n  "a": 1,\n  "b": "x"\n  // end\n}'),
    ('{\n  "a": 1, // one\n}', [("b", "x"), ("c", "y")], '{\n  "a": 1, "b": "x", "c": "y" // one\n}'),
    ('{\n  /* a */ "a": 1\n}', [("b", "x")], '{\n  /* a */ "a": 1, "b": "x"\n}'),
    ('{\n  "a": 1 /* o\nne */\n}', [("b", "x")], '{\n  "a": 1, "b": "x" /* o\nne */\n}'),
    ('{\n  "a": 1// one\n}', [("b", "x")], '{\n  "a": 1, "b": "x"// one\n}'),
    # D9.3 remove
    ('{"a":1,"b":2,"c":3}', [("a", None)], '{"b":2,"c":3}'), ('{"a":1,"b":2,"c":3}', [("b", None)], '{"a":1,"c":3}'),
    ('{"a":1,"b":2,"c":3}', [("c", None)], '{"a":1,"b":2}'),
    ('{"a":1,"b":2,"c":3}', [("b", None), ("c", None)], '{"a":1}'), ('{"a":1,"b":2,"c":3}', [("c", None),
    ("a", None)], '{"b":2}'), ('{ "a" : 1 }', [("a", None)], '{  }'),
    ('{"a":1,"b":2,"c":3}', [("a", None), ("b", None), ("c", None)], "{}"),
    ('{\n  "a": 1,\n  "b": 2\n}', [("a", None)], '{\n  "b": 2\n}'),
    ('{\n  "a": 1,\n  "b": 2\n}', [("b", None)], '{\n  "a": 1\n}'), ('{"a":1,"b":2,}', [("b", None)], '{"a":1,}'),
    ('{"a":1,}', [("a", None)], "{}"),
    ('{"a":1,"b":2,}', [("a", None), ("b", None)], "{}"), ('{"a":1}', [("z", None)], '{"a":1}'),
    ("{}", [("z", None)], "{}"),
    # comments of the others stay
    ('{\n  "a": 1, // one\n  // two\n  "b": 2\n}', [("a", None)], '{\n   // one\n  // two\n  "b": 2\n}'),
    ('{"a":1/*1*/,/*2*/"b":2/*3*/}', [("a", None)], '{/*1*//*2*/"b":2/*3*/}'),
    ('{\n  "a": 1, // one\n  // two\n  "b": 2 // three\n}', [("b", None)], '{\n  "a": 1 // one\n  // two\n   // three\n}'),
    ('{"a":1//1\n,//2\n"b":2}', [("b", None)], '{"a":1//1\n//2\n}'),
    ('{"a":1 /*1*/ , /*2*/ }', [("a", None)], '{ /*1*/  /*2*/ }'), ('{"a":1//1\n,//2\n"b":2//3\n,}', [("a", None),
    ("b", None)], '{//1\n//2\n//3\n}'),
    # several at once
    ('{"a":1,"b":2}', [("b", None), ("c", "x")], '{"a":1, "c":"x"}'), ('{"a":1}', [("a", None), ("b", "x"),
    ("c", "y")], '{"b":"x", "c":"y"}'),
    ('{"a":1,}', [("a", None), ("b", "x")], '{"b":"x"}'), ('{"a":1,"b":2,}', [("b", None),
    ("c", "x")], '{"a":1, "c":"x"}'),
    ('{"a":1,"b":2,"c":3}', [("a", "x"), ("b", None), ("d", "y"), ("c", "z")], '{"a":"x","c":"z", "d":"y"}'),
    ('{"a":1,//1\n"b":2}', [("a", None), ("b", None), ("c", "x")], '{//1\n"c":"x"}'),
    ('{\n "a": 1, // 1\n "b": 2 // 2\n}', [("b", None), ("c", "x")], '{\n "a": 1 // 1\n , "c": "x" // 2\n}'),
]


@pytest.mark.parametrize("before, changes, after", EDITS, ids=[ascii(text)[:50] for text, _, _ in EDITS])
def test_d9_edits(before, changes, after):
    """D9.1 to D9.3, D9.8 and cases 083 to 086; also one level lower, behind a byte-order mark and characters of several bytes."""
    assert edit(before, *[((name,), value) for name, value in changes]) == after
    around = '\ufeff{"\u20ac":"\U0001f600", /*\u00e9*/ "in": %s , "out":0.10}'
    assert edit(around % before, *[(("in", name), value) for name, value in changes]) == around % after


def test_edits_of_several_objects_and_the_offset_of_an_inserted_name():
    raw = b'{"s":{"args":[],"env":{}},"t":1}'
    edits = read(raw).edits([(("s", "env", "A"), "1"), (("t",), "x"), (("s", "command"), "r"), (("s", "args"), None),
                             (("u",), {}), (("s", "env", "B"), "2")])
    assert edits == [
        (("s", "args"), 6, 16, b"", None), (("s", "env", "A"), 23, 23, b'"A": "1"', 0), (("s", "env", "B"), 23, 23, b', "B": "2"', 2),
        (("s", "command"), 24, 24, b', "command":"r"', 2), (("t",), 30, 31, b'"x"', None), (("u",), 31, 31, b', "u":{}', 2)]


@pytest.mark.parametrize("text, changes", [
    ('{"a":1}', [(("b", "c"), "x")]), ('{"a":1}', [(("a", "c"), "x")]), ('{"a":[]}', [(("a", "c"), "x")]),
    ("[]", [(("a",), "x")]),
    ('{"a":{"b":1}}', [(("a",), "x"), (("a", "b"), "y")]), ('{"a":{"b":1}}', [(("a", "c"), "x"), (("a",), None)])])
def test_changes_that_cannot_be_made(text, changes):
    """A member of what is no object, or is not there; one change within another one."""
    with pytest.raises(JsonTextError):
        read(text).edits(changes)


def test_a_removal_where_there_is_nothing_changes_nothing():
    assert read('{"a":1}').edits([(("b", "c"), None), (("a", "c"), None), (("z",), None)]) == [] == read("[]").edits([(("a",), None)])


def test_083_the_one_place_that_may_change():
    """Case 083: behind the comma, and one comma is left."""
    raw = b'{\n  "mcpServers": {\n    "docs": {\n      "command": "docs-mcp",\n    },\n  },\n}\n'
    path = ("mcpServers", "docs")
    edits = read(raw).edits([(path + ("args",), ["docs-mcp"]), (path + ("command",), "r")])
    assert [one[1:3] for one in edits] == [(51, 61), (62, 62)]
    assert apply(raw, edits) == raw.replace(b'"docs-mcp",\n', b'"r",\n      "args": ["docs-mcp"]\n')


def test_084_the_one_place_that_may_change():
    """Case 084: the comment of the command stays on its line, the last one last."""
    raw = (b'{\n  "mcpServers": {\n    "db": {\n      "env": { "PORT": "8080" },\n      // how it is started:\n'
           b'      "command": "db-mcp" // 8080 is the default port\n      // end of db\n    }\n  }\n}\n')
    path = ("mcpServers", "db")
    edits = read(raw).edits([(path + ("args",), ["db-mcp"]), (path + ("command",), "r")])
    assert [one[1:3] for one in edits] == [(110, 118), (118, 118)]
    after = apply(raw, edits)
    assert b'"command": "r", "args": ["db-mcp"] // 8080 is the default port\n      // end of db\n    }' in after
    assert undone(raw, after, edits) == raw


# ------------------------------------------------------------------------------------------------- documents by chance

class Writer:
    """A random document: its text with comments, odd blanks and trailing commas, and `plain`, the same without them."""

    def __init__(self, rng, is_strict):
        self.rng, self.is_strict, self.line_end = rng, is_strict, rng.choice(("\n", "\r\n"))
        self.text, self.plain, self.comments = [], [], 0

    def put(self, text, is_extra=False):
        self.text.append(text)
        self.plain += [] if is_extra else [text]

    def gap(self, indent=""):
        rng = self.rng
        if rng.random() < 0.4:
            self.put(rng.choice(("", " ", "\t", "  ", self.line_end + indent)))
        while not self.is_strict and rng.random() < 0.15:
            self.comments += 1
            inside = rng.choice(("", ",", '"', "}", "\u20ac", "//", "{", "' ]"))
            form = rng.choice(("/*c%d.%s*/", "//c%d.%s" + self.line_end))
            self.put(form % (self.comments, inside), True)

    def value(self, depth, may_repeat):
        rng, kind = self.rng, self.rng.randrange(7 if depth else 4)
        if kind < 2:
            self.put(spell_string(rng, any_string(rng).replace("\ud800", "-")))
        elif kind == 2:
            self.put(rng.choice(("true", "false", "null")))
        elif kind == 3:
            value = any_value(rng, 0)
            self.put("1e400" if isinstance(value, (str, bool, type(None))) else spell_number(rng, value))
        elif kind == 4:
            self.items("[]", [lambda: self.value(depth - 1, True)] * rng.randrange(4), "")
        else:
            self.object(depth, may_repeat)

    def object(self, depth, may_repeat):
        """Names twice only where no path of names leads: within arrays."""
        names = [any_string(self.rng).replace("\ud800", "-") for _ in range(self.rng.randrange(5))]
        if not may_repeat:
            names = list(dict.fromkeys(names))
        elif names and self.rng.random() < 0.3:
            names.append(names[0])
        indent = "  " * (4 - depth) if self.rng.random() < 0.5 else "\t" * (4 - depth)
        self.items("{}", [lambda name=name: self.member(name, depth, may_repeat) for name in names], indent)

    def member(self, name, depth, may_repeat):
        self.put(spell_string(self.rng, name))
        self.gap()
        self.put(":" + self.rng.choice(("", " ")))
        self.gap()
        self.value(depth - 1, may_repeat)

    def items(self, brackets, writers, indent):
        is_tall = self.rng.random() < 0.5
        self.put(brackets[0])
        for number, write in enumerate(writers):
            self.put("," * bool(number))
            self.gap(indent)
            self.put(self.line_end + indent if is_tall else "")
            write()
            self.gap(indent)
        if writers and not self.is_strict and self.rng.random() < 0.3:
            self.put(",", True)
        self.gap(indent)
        self.put(brackets[1])


def any_document(rng, is_strict):
    """(raw, strict text) of a random document whose root is an object."""
    writer = Writer(rng, is_strict)
    writer.gap()
    writer.object(4, False)
    writer.gap()
    mark = "" if is_strict or rng.random() < 0.8 else "\ufeff"
    return (mark + "".join(writer.text)).encode(), "".join(writer.plain)


def objects_of(value, path=()):
    """The paths of all objects that names lead to."""
    if isinstance(value, dict):
        yield path
        for name, item in value.items():
            yield from objects_of(item, path + (name,))


def any_changes(rng, value, kinds):
    """Changes of one to three objects, none within another one; `kinds` of "set insert remove"."""
    changes, paths = {}, list(objects_of(value))
    for path in rng.sample(paths, min(len(paths), rng.randrange(1, 4))):
        here = value
        for name in path:
            here = here[name]
        for name in rng.sample(list(here), rng.randrange(len(here) + 1)):
            kind = rng.choice(kinds)
            if kind != "insert":
                changes[path + (name,)] = None if kind == "remove" else any_new(rng)
        for _ in range(rng.randrange(3) if "insert" in kinds else 0):
            name = "new" + any_string(rng)
            if name not in here:
                changes[path + (name,)] = any_new(rng)
    order = [path for path in changes if not any(path[:size] in changes for size in range(len(path)))]
    rng.shuffle(order)
    return [(path, changes[path]) for path in order]


def any_new(rng):
    words = [any_string(rng) for _ in range(rng.randrange(3))]
    return rng.choice((any_string(rng), words, dict(zip(words, words))))


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "comments"])
def test_d9_any_edit_of_any_document_changes_what_it_says(is_strict):
    """D9.6: `json` reads what the document is, and what it became where it is strict; all else keeps its bytes."""
    rng, edited = seeded("spans %s" % is_strict), 0
    for _ in range(20000 if FULL else 1500):
        raw, plain = any_document(rng, is_strict)
        document = read(raw)
        assert document.value == spelled(plain), raw
        assert (document.strict_trouble is None) == (raw == plain.encode())
        changes = any_changes(rng, document.value, ("set", "insert", "remove"))
        edits = document.edits(changes)
        after, wanted = apply(raw, edits), changed(document.value, changes)
        again = read(after)
        assert again.value == wanted, (raw, changes, after)
        assert not is_strict or spelled(after.decode()) == wanted and again.strict_trouble is None
        check_edits(document, dict(changes), edits)
        edited += len(edits)
    assert edited > 1000


COMMENT = re.compile(rb"/\*c\d+.*?\*/|//c\d+[^\n]*")


def check_edits(document, changes, edits):
    """Each edit stays with its member, and no comment is lost but inside of a removed member."""
    raw = document.raw
    assert {path for path, _, _, _, _ in edits} == {path for path in changes if changes[path] is not None or document.find(path)}
    for path, start, end, new, at in edits:
        place = document.find(path)
        if place is None:
            assert start == end and json.JSONDecoder().raw_decode(new[at:].decode())[0] == path[-1]
        elif changes[path] is not None:
            assert (start, end) == place.span and at is None
        else:
            beside = raw[start:place.member[0]] + raw[place.member[1]:end]
            assert start <= place.member[0] and place.member[1] <= end and at is None
            assert COMMENT.findall(beside) == COMMENT.findall(new) and not COMMENT.sub(b"", new).strip()


def test_d9_9_replacements_and_insertions_can_be_undone_to_the_byte():
    """By the rules of the interface: the member is found again in the new text, its bytes are looked at and taken back."""
    rng, edited = seeded("spans undone"), 0
    for number in range(10000 if FULL else 1500):
        raw, _ = any_document(rng, number % 3 == 0)
        document = read(raw)
        edits = document.edits(any_changes(rng, document.value, ("set", "insert")))
        assert undone(raw, apply(raw, edits), edits) == raw
        edited += len(edits)
    assert edited > 1000


def test_084_an_insertion_takes_no_comment_from_its_line():
    """Case 084, by chance: what stood before a comment on its line still begins that line."""
    rng, seen = seeded("spans comments"), 0
    for _ in range(1500):
        raw, _ = any_document(rng, False)
        document = read(raw)
        changes = any_changes(rng, document.value, ("insert",))
        after = apply(raw, document.edits(changes))
        for line in raw.split(b"\n"):
            comment = COMMENT.search(line)
            if comment and b"}" not in line[:comment.start()]:  # a new member may take the end of its object to a new line
                found = next(one for one in after.split(b"\n") if comment.group() in one)
                assert is_woven(line[:comment.start()], found[:found.index(comment.group())]), (raw, changes, after)
                seen += 1
    assert seen > 500


def is_woven(old, new):
    """Is `old` within `new`, in order? Insertions may stand between its bytes."""
    rest = iter(new)
    return all(byte in rest for byte in old)


GARBAGE = (b"", b",", b'"', b"}", b"]", b"/", b"*", b"\\", b"\xe9", b"\0", b"{", b"\n", b":", b"/*", b"NaN", b"\xef\xbb\xbf")


def test_any_garbage_is_read_or_refused_with_a_place():
    """Bytes changed, cut or doubled in good documents: a JsonTextError or a value, `json` agrees where it reads the text."""
    rng, refused = seeded("spans garbage"), 0
    for number in range(20000 if FULL else 3000):
        raw = bytearray(any_document(rng, number % 2 == 0)[0])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(raw) + 1)
            raw[at:at + rng.randrange(3)] = rng.choice(GARBAGE)
        try:
            found = read(bytes(raw))
        except JsonTextError as error:
            refused += 1
            assert 1 <= error.line <= raw.count(b"\n") + 1 and 1 <= error.column <= len(raw) + 1 and str(error).isprintable()
            found = None
        try:
            wanted = json.loads(raw.decode(), parse_int=str.encode, parse_float=str.encode, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            continue
        assert found is not None and found.value == wanted and found.strict_trouble is None, bytes(raw)
    assert refused > 500


# ------------------------------------------------------------------------------------------------------------ the time

SHAPES = {
    "members": lambda n: "{%s}" % ",".join('"k%d":"v"' % i for i in range(n)),
    "comments": lambda n: "[%s1]" % ("1,/**/" * n),
    "line comments": lambda n: "[\n%s1]" % ("1, // x\n" * n), "trailing commas": lambda n: "[%s1]" % ("[1,]," * n),
    "blanks": lambda n: "[1,%s]" % (" " * 8 * n),
    "commas in texts": lambda n: "[%s1,]" % ('",]",' * n), "escapes": lambda n: '["%s",]' % ("\\n" * 4 * n),
    "backslashes": lambda n: '["%s" /**/]' % ("\\\\" * 4 * n),
    "openings of comments": lambda n: "[" + "/*" * 4 * n, "slashes": lambda n: "[1 /" + "/" * 8 * n,
    "stars": lambda n: "[1,/*" + "*" * 8 * n + "/]",
    "quotes": lambda n: "[" + '"' * 8 * n, "commas": lambda n: "[1" + "," * 8 * n + "]",
    "blanks and commas": lambda n: "[1" + " ," * 4 * n + "]", "lines": lambda n: "\n" * 8 * n + "[1,]",
    "broken at the end": lambda n: "[%s1 1]" % ('{"a":"\\n"},' * n),
    "constant at the end": lambda n: "[%sNaN]" % ('"N\\n",' * n),
    "digits": lambda n: "[%s]" % ("7" * 8 * n),
    "one comment in blanks": lambda n: "[1%s//\n%s,]" % (" " * 4 * n, " " * 4 * n)}


@pytest.mark.parametrize("name", SHAPES)
def test_the_time_grows_with_the_length_alone(name):
    """Four times the text takes about four times as long."""
    def spent(size):
        raw, best = SHAPES[name](size).encode(), 9.0
        for _ in range(3):
            started = time.process_time()
            try:
                document = read(raw)
                document.find(("k5", "x"))
                document.edits([(("new",), "x")] if isinstance(document.value, dict) else [])
            except JsonTextError:
                pass
            best = min(best, time.process_time() - started)
        return best
    small = spent(8000)
    assert spent(32000) < max(small, 0.002) * 12, small


def test_many_edits_take_as_long_as_their_number():
    def spent(size):
        raw = ("{%s}" % ",".join('"k%d":"v"' % i for i in range(size))).encode()
        started = time.process_time()
        changes = [(("k%d" % i,), "x" if i % 2 else None) for i in range(size)] + [(("n%d" % i,), "x") for i in range(size)]
        edits = read(raw).edits(changes)
        assert len(edits) == 2 * size
        return time.process_time() - started
    small = min(spent(1000) for _ in range(3))
    assert min(spent(4000) for _ in range(3)) < small * 12


def client_file(size, extra=""):
    """A state file as a client writes it."""
    one = ('    "/home/u/p%d": {\n      "allowedTools": [],\n      "history": [{"display": "do %d \u00e9 \\n http://x", '
           '"pastedContents": {}}],\n      "mcpServers": {},\n      "lastCost": %d.25\n    }')
    rows = [one % (number, number, number) for number in range(size // 190)]
    text = '{\n  "numStartups": 4,%s\n  "projects": {\n%s\n  },\n  "mcpServers": {"a": {"command": "npx"}}\n}'
    return (text % (extra, ",\n".join(rows))).encode()


@pytest.mark.parametrize("extra, times", [("", 10), (" // five", 25)], ids=["strict", "comment"])
def test_a_mebibyte_takes_a_few_times_what_json_needs(extra, times):
    """About 20 ms where json.loads takes 8."""
    raw, path = client_file(MIB, extra), ("mcpServers", "a")
    strict, mine, theirs = client_file(MIB), 9.0, 9.0
    for _ in range(5):
        started = time.process_time()
        json.loads(strict)
        theirs, started = min(theirs, time.process_time() - started), time.process_time()
        document = read(raw)
        assert document.find(path + ("command",)).value == "npx"
        assert len(document.edits([(path + ("command",), "r"), (path + ("args",), ["npx"])])) == 2
        mine = min(mine, time.process_time() - started)
    assert mine < theirs * times


MEASURED = """
import resource, sys, time
sys.path[:0] = %r
from test_l10b_spans import client_file, read, MIB
raw = client_file(50 * MIB, sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
document = read(raw)
edits = document.edits([(("mcpServers", "a", "command"), "r"), (("mcpServers", "a", "args"), ["npx"])])
print(len(edits), time.process_time() - started, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(not FULL, reason="takes some seconds and 1 GiB; MCP_LAZY_FULL=1 runs it")
@pytest.mark.parametrize("extra", ["", " // five"], ids=["strict", "comment"])
def test_50_mebibytes(extra):
    """Two seconds of an idle machine, and no ten copies in memory; the bound leaves room for a busy one."""
    done = subprocess.run([sys.executable, "-c", MEASURED % sys.path[:], extra], stdout=subprocess.PIPE, check=True, timeout=120)
    count, spent, grown_mib = map(float, done.stdout.split())
    assert count == 2 and spent < 6 and grown_mib < 600, done.stdout


def test_the_garbage_collector_is_left_as_it_was():
    import gc
    for wanted in (True, False):
        (gc.enable if wanted else gc.disable)()
        try:
            read('{"a":{"b":1}}').find(("a", "b"))
            error_of("[" * 10 ** 5)
            assert gc.isenabled() == wanted
        finally:
            gc.enable()
