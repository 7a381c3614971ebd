"""The TOML reader and editor: D10 of the specification, and the failure cases of kind config-toml.

Everything runs twice: on vendor/toml_edit.py and on its copy in the module (tools/embed.py).  The corpus is
toml-test, the judges are its expected values and `tomllib` where Python has one.
"""

import ast
import copy
import datetime
import gc
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mcp_lazy
from generated import seeded

try:
    import tomllib
except ImportError:     # before 3.11
    tomllib = None
try:
    import tomli_w
except ImportError:
    tomli_w = None

VENDOR = Path(__file__).resolve().parent.parent / "vendor" / "toml_edit.py"
CORPUS = Path(os.environ.get("MCP_LAZY_CORPORA") or "nowhere") / "toml-test"
CASES = Path(os.environ.get("MCP_LAZY_CASES") or "nowhere") / "inputs"
CONFIGS = Path(os.environ.get("MCP_LAZY_CONFIGS") or CORPUS.parent.parent / "configs")
FULL = os.environ.get("MCP_LAZY_FULL") == "1"
spec = importlib.util.spec_from_file_location("toml_edit", str(VENDOR))
vendor = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vendor)


@pytest.fixture(params=["vendor", "embedded"])
def toml(request):
    """The one or the other copy, as a module."""
    if request.param == "vendor":
        return vendor
    if not hasattr(mcp_lazy, "toml_document"):
        pytest.skip("mcp_lazy has no toml_document yet: tools/embed.py --write")
    return mcp_lazy


# ---------------------------------------------------------------------------------------- helpers

def read(toml, text):
    return toml.toml_document(text if isinstance(text, bytes) else text.encode("utf-8")).value


def wrong(toml, raw):
    """The error of a document."""
    with pytest.raises(toml.TomlError) as caught:
        toml.toml_document(raw if isinstance(raw, bytes) else raw.encode("utf-8"))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    return caught.value


def model(value, changes):
    """What the decoded document has to be after the changes."""
    value = copy.deepcopy(value)
    for path, new in changes:
        table = value
        for key in path[:-1]:
            table = table[key]
        if new is None:
            del table[path[-1]]
        else:
            table[path[-1]] = new
    return value


def splice(raw, edits):
    """The bytes after the edits, put together another way than `toml_apply` does; the spans do not overlap."""
    before = 0
    for _, start, end, new, at in edits:
        assert before <= start <= end <= len(raw) and isinstance(new, bytes)
        assert at is None or start == end and 0 <= at < len(new)
        before = end
    for _, start, end, new, _ in reversed(edits):
        raw = raw[:start] + new + raw[end:]
    return raw


def edit(toml, raw, changes):
    """The bytes after the changes; everything that has to hold after an edit is checked here."""
    raw = raw if isinstance(raw, bytes) else raw.encode("utf-8")
    document = toml.toml_document(raw)
    assert document.raw == raw
    edits = document.edits(changes)
    result = toml.toml_apply(raw, edits)
    assert result == splice(raw, edits)
    assert {one[0] for one in edits} <= {tuple(path) for path, _ in changes}
    after = toml.toml_document(result)
    assert toml.toml_same(after.value, model(document.value, changes)), result
    if judged(raw) is not None:
        assert judged(result) is not None, "valid TOML 1.0 became something else: %r" % result
        assert same_as_judge(toml, after.value, judged(result))
    undone(toml, raw, after, edits)
    return result


def undone(toml, raw, after, edits):
    """What was inserted or replaced is found again, and taken back it gives the old bytes (D9.9)."""
    if any(at is None and after.find(path) is None for path, _, _, _, at in edits):
        return      # something was removed
    back = after.raw
    spans = []
    for path, start, end, new, at in edits:
        place = after.find(path)
        begin = place.span[0] if at is None else place.member[0] - at
        assert back[begin:begin + len(new)] == new, (path, new)
        spans.append((begin, len(new), raw[start:end]))
    for begin, length, old in sorted(spans, reverse=True):
        back = back[:begin] + old + back[begin + length:]
    assert back == raw


def judged(raw):
    """What `tomllib` reads, or None: no tomllib here, or it knows no TOML 1.1."""
    try:
        return tomllib and tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def same_as_judge(toml, mine, theirs):
    if isinstance(theirs, dict):
        return isinstance(mine, dict) and mine.keys() == theirs.keys() \
            and all(same_as_judge(toml, mine[key], theirs[key]) for key in mine)
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(mine) == len(theirs) \
            and all(same_as_judge(toml, one, other) for one, other in zip(mine, theirs))
    if isinstance(mine, toml.TomlTime):
        kinds = {"local date": datetime.date, "local time": datetime.time}
        kind = kinds.get(mine.kind, datetime.datetime)
        return type(theirs) is kind and kind.fromisoformat(mine.upper()) == theirs \
            and (kind is not datetime.datetime or (theirs.tzinfo is not None) == (mine.kind == "offset datetime"))
    if isinstance(theirs, float) and math.isnan(theirs):
        return isinstance(mine, float) and math.isnan(mine)
    return type(mine) is type(theirs) and mine == theirs


# ------------------------------------------------------------------------------------------ values

VALUES = [
    ('"a"', "a"), ('""', ""), ("''", ""), (r'"\b\t\n\f\r\e\"\\"', "\b\t\n\f\r\x1b\"\\"),
    (r'"\x41\u00e9\U0001F600"', "A\u00e9\U0001f600"),
    (r"'\n'", "\\n"), ('"\u00e9\u2028\u0085"', "\u00e9\u2028\u0085"), ('"a\tb"', "a\tb"), ("'a\tb'", "a\tb"),
    ('"\ufeff"', "\ufeff"),
    ('"""a"""', "a"), ('"""\na\n"""', "a\n"), ('"""\r\na\r\n"""', "a\n"), ('"""\n\na"""', "\na"),
    ('""""a"""""', '"a""'), ('""""""', ""),
    ('"""a ""b"""', 'a ""b'), ('"""a\\\n  \n  b"""', "ab"), ('"""a\\  \r\n\t b"""', "ab"), ('"""\\\n"""', ""),
    (r'"""\""""""', '"""'),
    ("'''a'''", "a"), ("'''\n'a''\\'''", "'a''\\"), ("''''a'''''", "'a''"), ("'''\r\na\r\n'''", "a\n"),
    ('"""\u00e9\\u00e9\u00e9"""', "\u00e9" * 3),
    ("true", True), ("false", False),
    ("0", 0), ("+0", 0), ("-0", 0), ("42", 42), ("+1_000", 1000), ("-17", -17), ("0xdead_BEEF", 0xdeadbeef),
    ("0o7_55", 0o755), ("0b1_01", 5),
    ("9223372036854775807", 2 ** 63 - 1), ("-9223372036854775808", -2 ** 63), ("0x" + "f" * 40, 2 ** 160 - 1),
    ("1.0", 1.0), ("-0.01", -0.01), ("5e+22", 5e22), ("1E06", 1e6), ("6.626e-34", 6.626e-34),
    ("9_2.4_4e1_0", 92.44e10), ("1e400", math.inf),
    ("inf", math.inf), ("-inf", -math.inf), ("+nan", math.nan), ("nan", math.nan), ("-0.0", -0.0), ("0e0", 0.0),
    ("[]", []), ("[1,2,]", [1, 2]), ("[ [1], ['a', 2.0] ]", [[1], ["a", 2.0]]),
    ("[\n1 # one\n, # two\n2\n,\r\n]", [1, 2]), ("[[[]]]", [[[]]]),
    ("{}", {}), ("{ }", {}), ("{a=1}", {"a": 1}), ("{ a.b = 1, a.c = 2 }", {"a": {"b": 1, "c": 2}}),
    ("{\n  a = 1, # c\r\n  b = 2,\n}", {"a": 1, "b": 2}),
    ("{ a = 1\n, b = [{}, {c = {d = 1}}] }", {"a": 1, "b": [{}, {"c": {"d": 1}}]}), ("{\n}", {}), ("{ # c\n}", {}),
    ("{a=1,}", {"a": 1}),
]


@pytest.mark.parametrize("text, value", VALUES, ids=ascii)
def test_a_value(toml, text, value):
    for form in "k = %s", "k=%s # c", " k\t=\t%s \r\nz = 1\n", "k = [%s\n]", "[a]\nb = { k = %s }":
        raw = form % text
        found = read(toml, raw)
        if "[a]" in raw:
            found = found["a"]["b"]
        wanted = [value] if "[%s" in form else value
        assert toml.toml_same(found["k"], wanted), raw
        if judged(raw.encode("utf-8")) is not None:
            assert same_as_judge(toml, read(toml, raw), judged(raw.encode("utf-8")))


@pytest.mark.parametrize("text, kind", [
    ("1979-05-27T07:32:00Z", "offset datetime"), ("1979-05-27 07:32:00.999999-07:00", "offset datetime"),
    ("1979-05-27t00:32:00.5z", "offset datetime"),
    ("1979-05-27T07:32Z", "offset datetime"), ("1979-05-27T07:32:00", "local datetime"),
    ("1979-05-27 07:32", "local datetime"),
    ("1979-05-27", "local date"), ("2000-02-29", "local date"), ("2024-02-29", "local date"),
    ("07:32:00", "local time"), ("07:32", "local time"),
    ("00:32:00.999999", "local time"), ("23:59:60", "local time"), ("1990-12-31T23:59:60Z", "offset datetime")])
def test_a_date_or_time_is_text_with_a_kind(toml, text, kind):
    for raw in "k = " + text, "k = %s # c\n" % text, "k = [ %s, 1 ]" % text, "k = {a = %s}" % text:
        found = read(toml, raw)["k"]
        found = found[0] if isinstance(found, list) else found["a"] if isinstance(found, dict) else found
        assert (type(found), str(found), found.kind) == (toml.TomlTime, text, kind)
        assert copy.deepcopy(found).kind == kind
        assert not toml.toml_same(found, text)


@pytest.mark.parametrize("text", [
    "1979-13-01", "1979-00-01", "1979-02-29", "1900-02-29", "1979-04-31", "1979-01-00", "1979-1-1", "79-01-01",
    "1979-05-27T", "1979-05-27T7:32:00",
    "1979-05-27T24:00:00", "1979-05-27T07:60:00", "1979-05-27T07:32:61", "1979-05-27T07:32:00.",
    "1979-05-27T07:32:00+24:00", "1979-05-27T07:32:00+00:60",
    "1979-05-27T07:32:00+7", "07:3", "7:32:00", "24:00", "07:32:00Z", "07:32:00+01:00", "1979-05-27  07:32:00",
    "1979-05-27 07", "1979-",
    "+1979-05-27", "01", "-01", "1__0", "_1", "1_", "0x", "0X1", "0x_1", "0x1_", "+0x1", "0o8", "0b2", "1.", ".5",
    "1._5", "1_.5", "1.e5", "1e", "1e_5", "1e5_",
    "00.5", "+", "-", "++1", "Inf", "NaN", "infinity", "True", "TRUE", "null", "abc", "a b", "1 2", "[1 2]", "[,]",
    "[1,,2]", "[", "[1", "{", "{a}", "{a=}", "{a=1 b=2}",
    "{,}", "{a=1,,b=2}", "{a=1,b=2", "{a=1,a=2}", "{a.b=1,a=2}", "{a={b=1},a.c=2}", "{a=[1],a.b=1}", '"', '"a', "'",
    "'a", '"a\nb"', "'a\nb'", '"""', '"""a""', "'''a",
    '"""a""""""', "'''a''''''", r'"\a"', r'"\x4"', r'"\u12"', r'"\uD800"', r'"\U00110000"', r'"\ "', '"\\\n"',
    '"""\\ a"""', '"\x00"', '"\x1f"', '"\x7f"', "'\x01'",
    '"""\x00"""', "'''\x7f'''", '"a\rb"', '"""a\rb"""', "'''a\rb'''", '"""a\\\n\r b"""', '"""a\\\rb"""',
    "1\r", "[1\r]", "[#\r\n]\r", "]", "}", "=", "#", "\n", ",", "\ufeff1", "\u00e9"], ids=ascii)
def test_what_is_no_value(toml, text):
    error = wrong(toml, "\n[t]\nk = " + text)
    assert error.line >= 3 and error.column >= 1
    assert str(error).startswith("line %d, column %d: " % (error.line, error.column))
    assert judged(("\n[t]\nk = " + text).encode()) is None


@pytest.mark.parametrize("digits", [4300, 4301, 10000, 50000])
def test_an_integer_of_any_reasonable_size_is_an_integer(toml, digits):
    """Newer Pythons raise ValueError for more than 4,300 digits; ours has a limit of its own and names it."""
    for sign in "", "-", "+":
        value = read(toml, "k = %s%s" % (sign, "9" * digits))["k"]
        assert value == (10 ** digits - 1) * (-1 if sign == "-" else 1)
    assert "integer of more than 50000 digits" in str(wrong(toml, "k = " + "9" * 50001))


# ------------------------------------------------------------------------------------ whole documents

VALID = [
    ("", {}), ("\n", {}), ("# c", {}), ("\ufeff", {}), ("\ufeffa = 1", {"a": 1}),
    ("a = 1\r\n\r\n# c\r\nb = 2", {"a": 1, "b": 2}), ("  a=1#c", {"a": 1}),
    ("a.b . 'c d'.\"e.f\" = 1", {"a": {"b": {"c d": {"e.f": 1}}}}), ("1.2 = 3", {"1": {"2": 3}}),
    ("'' = 1\n'a'.\"\" = 2", {"": 1, "a": {"": 2}}), ("- = 1\n_ = 2", {"-": 1, "_": 2}),
    ("true = 1\ninf = 2", {"true": 1, "inf": 2}), ("[a]\n[a.b]\nc = 1\n[d]", {"a": {"b": {"c": 1}}, "d": {}}),
    ("[ a . 'b' ] # c\nx=1", {"a": {"b": {"x": 1}}}),
    ("[a.b]\n[a]\nx = 1", {"a": {"b": {}, "x": 1}}), ("[a.b.c]\n[a]\nb.x = 1", {"a": {"b": {"c": {}, "x": 1}}}),
    ("a.b = 1\n[a.c]\nd = 1", {"a": {"b": 1, "c": {"d": 1}}}),
    ("a.b.c = 1\na.d = 2\na.b.e = 3", {"a": {"b": {"c": 1, "e": 3}, "d": 2}}),
    ("[[a]]\nx=1\n[[a]]\n[a.b]\ny=2", {"a": [{"x": 1}, {"b": {"y": 2}}]}),
    ("[[a.b]]\n[a]\nx = 1", {"a": {"b": [{}], "x": 1}}),
    ("[[a]]\n[[a.b]]\n[[a.b]]\n[[a]]\n[[a.b]]", {"a": [{"b": [{}, {}]}, {"b": [{}]}]}),
    ("[[a]]\nb.c = 1\n[[a]]\nb.c = 2", {"a": [{"b": {"c": 1}}, {"b": {"c": 2}}]}),
    ("[a]\nb = {c = 1}\n[a.d]", {"a": {"b": {"c": 1}, "d": {}}}),
]


@pytest.mark.parametrize("text, value", VALID, ids=ascii)
def test_a_document(toml, text, value):
    assert toml.toml_same(read(toml, text), value)
    if tomllib:
        assert judged(text.encode("utf-8")) == value


INVALID = [
    ("a = 1\na = 2", 2, 1, "`a` is there already: an integer in line 1"),
    ("[a]\n[b]\n[a]", 3, 1, "`a` is there already: a table with a header in line 1"),
    ("a = 1\n[a]", 2, 1, "already"), ("a = 1\na.b = 2", 2, 1, "an integer"), ("a.b = 1\n[a]", 2, 1, "dotted keys"),
    ("a.b = 1\na = 2", 2, 1, "dotted keys"),
    ("[a.b]\nx=1\n[a]\nb.y = 1", 4, 1, "a table with a header in line 1"), ("[a]\nb.c=1\n[a.b]", 3, 1, "dotted keys"),
    ("[a.b.c]\n[a]\nb.x=1\n[a.b]", 4, 1, "dotted keys"),
    ("[a.b]\n[a]\nb = 1", 3, 1, "a table with a header in line 1"), ("[a.b.c]\n[a]\nb = 1", 3, 1, "only sub-tables"),
    ("a = {}\n[a]", 2, 1, "an inline table"), ("a = {}\n[a.b]", 2, 1, "an inline table"),
    ("a = {b.c=1}\na.b.d=2", 2, 1, "an inline"),
    ("a = []\n[[a]]", 2, 1, "an array"), ("[a]\n[[a]]", 2, 1, "a table"), ("[[a]]\n[a]", 2, 1, "an array of tables"),
    ("[[a.b]]\n[a]\nb.x = 1", 3, 1, "an array of tables"),
    ("[a.b]\n[[a]]", 2, 1, "sub-tables"), ("a = 07:32\na = 1", 2, 1, "a local time"),
    ('"\\n\\u001b" = 1\n"\\n\\e" = 2', 2, 1, '"\\n\\u001B"` is there already'),
    ("[[a]]\n[[a.b]]\n[a.b]", 3, 1, "an array of tables"), ("[a]\nb = [1]\n[a.b.c]", 3, 1, "an array"),
    ("[a]\nx=1\nx.y=2", 3, 1, "an integer in line 2"),
    ("a", 1, 2, "end of file, but `=` is expected"), ("a\n", 1, 2, "end of line, but `=`"),
    ("a = \n", 1, 3, "no value behind `=`"), ("a = # c", 1, 3, "no value behind `=`"),
    ("a =\r\n", 1, 3, "no value behind `=`"), ("= 1", 1, 1, "a key"), ("a. = 1", 1, 4, "a key"),
    (".a = 1", 1, 1, "a key"), ("a..b = 1", 1, 3, "a key"), ("a b = 1", 1, 3, "`b`"),
    ("a = 1 b = 2", 1, 7, "end of line is expected"), ("\u00e9 = 1", 1, 1, "`\u00e9`, but a key"),
    ("'\u00e9\u00e9' = 1 \u00e9", 1, 10, "`\u00e9`"), ('"""a""" = 1', 1, 3, "`=`"),
    ("[]", 1, 2, "a key"), ("[a", 1, 3, "`.` or `]`"), ("[a]]", 1, 4, "end of line"), ("[[a]", 1, 4, "`]]`"),
    ("[a\n]", 1, 3, "`]`"), ("[ [a]]", 1, 3, "a key"), ("[a.]", 1, 4, "a key"),
    ("[a] b = 1", 1, 5, "end of line"), ("[a]\n[[b] ]", 2, 4, "`]]`"), ("a = 1\n\n  ]", 3, 3, "`]`"),
    ("k = abc", 1, 5, "no value that TOML knows (text needs quotes)"),
    ("a = 1\x00", 1, 6, "control character U+0000"), ("# a\x01b", 1, 4, "U+0001"), ("# a\x7f", 1, 4, "U+007F"),
    ("a = 1 # \x1f\n", 1, 9, "U+001F"), ("\x0ca = 1", 1, 1, "U+000C"),
    ("a = 1\rb = 2", 1, 6, "carriage return"), ("# a\rb = 1", 1, 4, "carriage return"),
    ("\r", 1, 1, "carriage return"), ("[a]\r", 1, 4, "carriage return"),
    ("x = 1\n\ufeff[a]", 2, 1, "byte-order mark"), ("\ufeff\ufeffx = 1", 1, 1, "byte-order mark"),
    ("\ufeffx y", 1, 3, "`y`"), ("x = \u2028", 1, 5, "character U+2028"),
    ("a = \"b", 1, 5, "without closing quote"), ("a = '''b\n", 1, 5, "without closing quotes"),
    ('a = "\\q"', 1, 6, "`\\q` is no escape sequence"), ('a = "\\', 1, 6, "escape"),
    ("\n\na = [1,\n 2 3]", 4, 4, "`3`, but `,` or `]`"), ("a = {b = 1\n c = 2}", 2, 2, "`c`, but `,` or `}`"),
    ("a = {\n  b\n}", 2, 4, "`=`"), ("a = {b =\n1}", 1, 8, "no value"),
]


@pytest.mark.parametrize("text, line, column, words", INVALID, ids=ascii)
def test_an_error_has_a_place_and_a_reason(toml, text, line, column, words):
    """Lines and columns count from 1 and in characters; a byte-order mark is none."""
    error = wrong(toml, text)
    assert (error.line, error.column) == (line, column) and words in str(error)
    assert isinstance(error, ValueError)
    assert judged(text.encode("utf-8")) is None or text.startswith("\ufeff\ufeff")


@pytest.mark.parametrize("raw, line, words", [
    ("x = 1".encode("utf-16"), 1, "UTF-16"), ("\ufeffx = 1".encode("utf-16-be"), 1, "UTF-16"),
    ("x = 1".encode("utf-16-le"), 1, "UTF-16"), ("x = 1".encode("utf-16-be"), 1, "UTF-16"),
    ("x = 1".encode("utf-32"), 1, "UTF-32"), ("\ufeffx = 1".encode("utf-32-be"), 1, "UTF-32"),
    (b"\0" * 100, 1, "control character U+0000"),
    (b"# d\xe9j", 1, "byte 0xE9 at offset 3"), (b'x = 1\n\ny = "\xc0\xaf"', 3, "byte 0xC0 at offset 12"),
    (b'x = "\xed\xa0\x80"', 1, "offset 5"), (b"x = '\xc3", 1, "offset 5"),
    (b"\xef\xbb\xbf\nx = '\xff'", 2, "offset 9"), (b"\xef\xbb", 1, "offset 0"),
    (b"x = '\xf4\x90\x80\x80'", 1, "not UTF-8")], ids=ascii)
def test_another_encoding_is_named(toml, raw, line, words):
    """Cases 121 and 132."""
    error = wrong(toml, raw)
    assert error.line == line and words in str(error)


# ---------------------------------------------------------------------------------------------- find

SHAPES = b"""\xef\xbb\xbf# c
top.a.x = 1 # c
[t] # c
  k = "v"
  d.e.f = ['a',
   'b']
  i = { a = { b.c = 'x' } }
[u.v.w]
[[l]]
x = 1
"a.b\\u00e9" = 2
['\xc3\xa9'."q.r"]
k = '\xc3\xa9'
"""


@pytest.mark.parametrize("path, kind, line, member, span", [
    (("top", "a", "x"), "value", 2, b"top.a.x = 1", b"1"), (("top",), "dotted table", 2, None, None),
    (("top", "a"), "dotted table", 2, None, None),
    (("t",), "table", 3, None, None), (("t", "k"), "value", 4, b'k = "v"', b'"v"'),
    (("t", "d", "e", "f"), "value", 5, b"d.e.f = ['a',\n   'b']", b"['a',\n   'b']"),
    (("t", "i"), "inline table", 7, b"i = { a = { b.c = 'x' } }", b"{ a = { b.c = 'x' } }"),
    (("t", "i", "a"), "inline table", 7, b"a = { b.c = 'x' }", b"{ b.c = 'x' }"),
    (("t", "i", "a", "b"), "dotted table", 7, None, None),
    (("t", "i", "a", "b", "c"), "value", 7, b"b.c = 'x'", b"'x'"), (("u",), "implicit table", 8, None, None),
    (("u", "v", "w"), "table", 8, None, None), (("l",), "array of tables", 9, None, None),
    (("\u00e9", "q.r", "k"), "value", 13, "k = '\u00e9'".encode(), "'\u00e9'".encode()),
    ((), "table", 1, None, None)])
def test_find_tells_the_place(toml, path, kind, line, member, span):
    document = toml.toml_document(SHAPES)
    place = document.find(path)
    assert (place.kind, place.line) == (kind, line)
    assert (place.member and SHAPES[slice(*place.member)], place.span and SHAPES[slice(*place.span)]) == (member, span)
    value = document.value
    for key in path:
        value = value[key]
    assert toml.toml_same(place.value, value)


@pytest.mark.parametrize("path", [
    ("x",), ("t", "x"), ("t", "i", "x"), ("top", "a", "b", "c"), ("q", "r"), ("\u00e9", "q", "r"), ("T",), ("", "t")])
def test_find_tells_what_is_not_there(toml, path):
    assert toml.toml_document(SHAPES).find(path) is None


@pytest.mark.parametrize("path, words", [
    (("l", "x"), "line 9, column 1: `l` is an array of tables, not a table"), (("l", "x", "y"), "array of tables"),
    (("t", "k", "x"), "line 4, column 3: `t.k` is a string, not a table"),
    (("t", "d", "e", "f", "0"), "`t.d.e.f` is an array"),
    (("\u00e9", "q.r", "k", "z"), '"\u00e9"."q.r".k` is a string')])
def test_find_refuses_what_is_no_table_on_the_path(toml, path, words):
    document = toml.toml_document(SHAPES)
    for act in document.find, lambda path: document.edits([(path, "x")]), lambda path: document.edits([(path, None)]):
        with pytest.raises(toml.TomlError) as caught:
            act(path)
        assert words in str(caught.value)


@pytest.mark.slow
def test_same_tells_types_apart(toml):
    """D10.8: NaN is equal to itself."""
    different = [1, True, 1.0, "1", [1], {"1": 1}, 0, False, 0.0, -0.0, "", [], {}, [1, 2], {"1": 1, "2": 2}, {"2": 1},
                 [[1]], [True], {"1": True}, math.nan, math.inf, [math.nan],
                 toml.TomlTime("07:32", "local time"), "07:32"]
    for index, one in enumerate(different):
        for other, value in enumerate(different):
            assert toml.toml_same(one, copy.deepcopy(value)) == (index == other), (one, value)
    assert toml.toml_same({"a": [1, {"b": float("nan")}], "c": "x"}, {"c": "x", "a": [1, {"b": float("nan")}]})
    deep = []
    for _ in range(100000):
        deep = [deep, {"a": 1}]
    other = []
    for _ in range(100000):
        other = [other, {"a": 1}]
    assert toml.toml_same(deep, other) and not toml.toml_same(deep, [other])


# ------------------------------------------------------------------------------------------- edits

B = ("t", "b")
INSERTS = [
    # D10.4: right behind the header line, with the indentation of the first key line and the line end of the header.
    ("[t]\n", '[t]\nb = "x"\n'), ("[t]\na = 1\n", '[t]\nb = "x"\na = 1\n'),
    ("[t] # c\r\n\t a = 1\r\n", '[t] # c\r\n\t b = "x"\r\n\t a = 1\r\n'),
    ("[t]\n\n# c\n  # d\n  a = 1\n", '[t]\n  b = "x"\n\n# c\n  # d\n  a = 1\n'),
    ("  [ 't' ]  \n  [t.c]\n", '  [ \'t\' ]  \nb = "x"\n  [t.c]\n'),
    ("[t.c]\nb=1\n[t]\n[u]\n", '[t.c]\nb=1\n[t]\nb = "x"\n[u]\n'), ("[t]\na.c = 1\n", '[t]\nb = "x"\na.c = 1\n'),
    ("x = 1\n[t]\r\n", 'x = 1\n[t]\r\nb = "x"\r\n'),
    # A file without a final line end keeps none (case 122; the place is D10.4's, not behind the command line).
    ("[t]", '[t]\nb = "x"'), ("x = 1\r\n[t] # c", 'x = 1\r\n[t] # c\r\nb = "x"'),
    ('[t]\na = "l"', '[t]\nb = "x"\na = "l"'), ("[t]\na=1\n[u]", '[t]\nb = "x"\na=1\n[u]'),
    # No header above it: a dotted key from the root, at the very start.
    ("t.a = 1", 't.b = "x"\nt.a = 1'), ("# c\r\n\r\n  t.a = 1\n", '  t.b = "x"\r\n# c\r\n\r\n  t.a = 1\n'),
    ("\ufefft.a=1\n", '\ufefft.b = "x"\nt.a=1\n'), ("z=1\n[t.e]\nq=1", 't.b = "x"\nz=1\n[t.e]\nq=1'),
    ("\ufeff [t.e]\n[[t.f]]\n", '\ufefft.b = "x"\n [t.e]\n[[t.f]]\n'), ("[t.e.f]\n[z]\n", 't.b = "x"\n[t.e.f]\n[z]\n'),
    # Between braces: behind the last member, the blanks before the brace stay.
    ("t={}", 't={ b = "x" }'), ("t = { }", 't = { b = "x" }'), ("t={a=1}", 't={a=1, b = "x"}'),
    ("t = { a = 1 } # c", 't = { a = 1, b = "x" } # c'), ("t = {a.c=1  }\n", 't = {a.c=1, b = "x"  }\n'),
    ('t = { a = "}", c = [ 1, 2 ] }', 't = { a = "}", c = [ 1, 2 ], b = "x" }'),
    ("t = { a = {} }", 't = { a = {}, b = "x" }'),
    # TOML 1.1: trailing commas and lines.
    ("t = { a = 1, }", 't = { a = 1, b = "x", }'), ("t = {a=1,}", 't = {a=1, b = "x",}'),
    ("t = {\n  a = 1,\n}", 't = {\n  a = 1,\n  b = "x",\n}'),
    ("t = {\n  a = 1\n}", 't = {\n  a = 1,\n  b = "x"\n}'),
    ("t = {\r\n\ta = 1, # c\r\n\r\n}", 't = {\r\n\ta = 1, # c\r\n\tb = "x",\r\n\r\n}'),
    ("t = {\n  a = 1 # c\n}", 't = {\n  a = 1 # c\n  , b = "x"\n}'),
    ("t = {\n  a = 1, }", 't = {\n  a = 1,\n  b = "x", }'),
    ("t = { a = 1,\n      c = 2 }", 't = { a = 1,\n      c = 2,\n      b = "x" }'),
    ("t = {\n}", 't = {\nb = "x" }'), ("t = { # c\n}", 't = { # c\nb = "x" }'),
    ("t = { a = 1 # c\n}", 't = { a = 1, b = "x" # c\n}'),
    ("t = { a = [\n1], c = 2 }", 't = { a = [\n1], c = 2, b = "x" }'),
]


@pytest.mark.parametrize("before, after", INSERTS, ids=ascii)
def test_a_new_key_stands_where_it_should(toml, before, after):
    assert edit(toml, before, [(B, "x")]).decode("utf-8") == after


@pytest.mark.parametrize("before, path, after", [
    ("[a]\nt.c = 1\n", ("a", "t", "b"), '[a]\nt.b = "x"\nt.c = 1\n'),
    ("[a]\n[a.t.e]\n", ("a", "t", "b"), '[a]\nt.b = "x"\n[a.t.e]\n'),
    ("[a.t.e]\n[a]\n", ("a", "t", "b"), '[a.t.e]\n[a]\nt.b = "x"\n'),
    ("[a]\nt.'c d'.e.f = 1\n", ("a", "t", "c d", "e", "b"), '[a]\nt."c d".e.b = "x"\nt.\'c d\'.e.f = 1\n'),
    ("[a]\nt = { c.d = 1, e = 2 }\n", ("a", "t", "c", "b"), '[a]\nt = { c.d = 1, e = 2, c.b = "x" }\n'),
    ("a={b={c={}}}", ("a", "b", "c", "d.e"), 'a={b={c={ "d.e" = "x" }}}'),
    ("[s.\"a.b\"]\n[s.a.b]\n", ("s", "a.b", "k"), '[s."a.b"]\nk = "x"\n[s.a.b]\n'),
    ("[s.'a.b']\n[s.a.b]\n", ("s", "a", "b", "k"), '[s.\'a.b\']\n[s.a.b]\nk = "x"\n'),
    ("", ("b",), 'b = "x"\n'), ("[[l]]\n", ("b",), 'b = "x"\n[[l]]\n'),
    ("[t]\n[[t.l]]\n[t.l.b]\n", B, '[t]\nb = "x"\n[[t.l]]\n[t.l.b]\n')])
def test_a_new_key_of_any_path(toml, before, path, after):
    """D10.1, D10.2, D10.4; names with dots are keys like others (case 115)."""
    assert edit(toml, before, [(path, "x")]).decode("utf-8") == after


@pytest.mark.parametrize("before, after", [
    ("[t]", '[t]\nb = "x"\n"c d" = ["y"]\nenv = { "1.2" = "w", A = "v" }'),
    ("[t]\n a=1\n", '[t]\n b = "x"\n "c d" = ["y"]\n env = { "1.2" = "w", A = "v" }\n a=1\n'),
    ("t.a=1\n", 't.b = "x"\nt."c d" = ["y"]\nt.env = { "1.2" = "w", A = "v" }\nt.a=1\n'),
    ("t={}", 't={ b = "x", "c d" = ["y"], env = { "1.2" = "w", A = "v" } }'),
    ("t={a=1}", 't={a=1, b = "x", "c d" = ["y"], env = { "1.2" = "w", A = "v" }}'),
    ("t={a=1,}", 't={a=1, b = "x", "c d" = ["y"], env = { "1.2" = "w", A = "v" },}'),
    ("t={\n  a=1,\n}", 't={\n  a=1,\n  b = "x",\n  "c d" = ["y"],\n  env = { "1.2" = "w", A = "v" },\n}'),
    ("t={\n  a=1 # c\n}", 't={\n  a=1 # c\n  , b = "x"\n  , "c d" = ["y"]\n  , env = { "1.2" = "w", A = "v" }\n}')])
def test_several_new_keys_keep_their_order(toml, before, after):
    """D10.5: a missing env is one inline table, sorted, its keys bare where that is allowed."""
    changes = [(B, "x"), (("t", "c d"), ["y"]), (("t", "env"), {"A": "v", "1.2": "w"})]
    assert edit(toml, before, changes).decode("utf-8") == after


@pytest.mark.parametrize("before, value, after", [
    ("[t]\n'b'  =\t'old' # c\r\n", "new", "[t]\n'b'  =\t\"new\" # c\r\n"),
    ("[t]\nb = [\n  'a', # c\n  'b', ] # d\n", ["1", "2"], '[t]\nb = ["1", "2"] # d\n'),
    ('[t]\nb = """\n[t]\n"""', "n", '[t]\nb = "n"'), ("t = { \"b\" = 1,c=2}", ["q"], 't = { "b" = ["q"],c=2}'),
    ("t.b=07:32", [], "t.b=[]"), ("t.b={a=1, #\n}", {"k": "v"}, 't.b={ k = "v" }'),
    ("t = {\n  a = { b = 1 }, # c\n  b = 'x' # d\n}", "y", 't = {\n  a = { b = 1 }, # c\n  b = "y" # d\n}'),
    ("[t]\nb = {}", {}, "[t]\nb = {}"), ("t.b = 1", {}, "t.b = {}")])
def test_a_value_is_replaced_and_nothing_else(toml, before, value, after):
    """D10.3: the key keeps its spelling, the comment stays, an array becomes one line."""
    assert edit(toml, before, [(B, value)]).decode("utf-8") == after


@pytest.mark.parametrize("text, written", [
    ("", '""'), ('a"b\\', r'"a\"b\\"'), ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
    ("\0\x01\x1b\x1f\x7f", r'"\u0000\u0001\u001B\u001F\u007F"'),
    ("\u00e9\u0085\u2028\ufeff\U0001f600'", '"\u00e9\u0085\u2028\ufeff\U0001f600\'"')],
    ids=ascii)
def test_strings_are_written_as_basic_strings(toml, text, written):
    """D10.7."""
    assert edit(toml, "[t]\nb = 1", [(B, text)]).decode("utf-8") == "[t]\nb = " + written
    key = edit(toml, "[t]\n", [(("t", text), [text])]).decode("utf-8")
    assert key == "[t]\n%s = [%s]\n" % (written, written)


@pytest.mark.parametrize("key, written", [
    ("a", "a"), ("A-_9", "A-_9"), ("1", "1"), ("-", "-"), ("_", "_"), ("a b", '"a b"'), ("a.b", '"a.b"'), ("", '""'),
    ("\u00e9", '"\u00e9"'), ("\u00b2", '"\u00b2"'), ("a\n", '"a\\n"')], ids=ascii)
def test_keys_are_bare_where_that_is_allowed(toml, key, written):
    wanted = '[t]\n%s = "x"\nenv = { %s = "y" }\n' % (written, written)
    assert edit(toml, "[t]\n", [(("t", key), "x"), (("t", "env"), {key: "y"})]).decode("utf-8") == wanted


# ----------------------------------------------------------------------------------------- removal

@pytest.mark.parametrize("before, paths, after", [
    # D10.6: only the bytes of the expression; blank line and comment remain.
    ("[t]\n  b = 1 # c\nd = 2", "t.b", "[t]\n   # c\nd = 2"), ("[t]\nb = [\n1, # x\n2] # c\n", "t.b", "[t]\n # c\n"),
    ("t.b=1\r\nt.c=2", "t.b", "\r\nt.c=2"),
    # A table with a header: header, keys, sub-tables; comments stay.
    ("[t]\na=1\n[t.b] # h\n# c\nx = 1 # x\n\n[t.b.c]\ny.z=1\n[[t.b.l]]\nq=1\n[[t.b.l]]\n[u]\n", "t.b",
     "[t]\na=1\n # h\n# c\n # x\n\n\n\n\n\n\n[u]\n"),
    ("[t.b.c]\nx=1\n[u]\n[t.b]\ny=1\n[t]\n", "t.b", "\n\n[u]\n\n\n[t]\n"),
    ("[t]\nb.c=1\nd=2\nb.e=3\n[t.b.f]\ng=4\n[u]", "t.b", "[t]\n\nd=2\n\n\n\n[u]"),
    # The last line that makes a table leaves one that keeps it: the others are asked for in `changes`.
    ("t.b = 1 # c", "t.b", "t = {} # c"), ("[a]\n'b' . c .d=1\n", "a.b.c.d", "[a]\n'b' . c = {}\n"),
    ("t.e.b=1\nt.e.c=2\n", "t.e.b t.e.c", "t.e = {}\n\n"), ("t.e.b=1\nt.e.c=2\n", "t.e", "t = {}\n\n"),
    ("t.e.b=1\nt.e.c=2\n", "t", "\n\n"), ("[ t . b ] # c\nx=1\n[t.b.c]\n", "t.b", "[t] # c\n\n\n"),
    ("[t.b.c]\n[[t.b.c.d]]\n", "t.b", "[t]\n\n"), ("x = { t.b = 1 }", "x.t.b", "x = { t = {} }"),
    ("x = { t . b = 1, c = 2 , t.d = 3}", "x.t.b x.t.d", "x = { t = {}, c = 2 }"), ("[t.b]\n[a]\n", "t", "\n[a]\n"),
    # Between braces: one comma goes too, and the blanks up to the next member.
    ("t = { b = 1 }", "t.b", "t = {  }"), ("t={b=1}", "t.b", "t={}"), ("t={b=1,}", "t.b", "t={}"),
    ("t = { a = 1, b = 2, c = 3 }", "t.a", "t = { b = 2, c = 3 }"),
    ("t = { a = 1, b = 2, c = 3 }", "t.b", "t = { a = 1, c = 3 }"),
    ("t = { a = 1, b = 2, c = 3 }", "t.c", "t = { a = 1, b = 2 }"),
    ("t = { a = 1 ,b = 2 ,c = 3 }", "t.b t.c", "t = { a = 1  }"),
    ("t = { a = 1, b = 2, c = 3 }", "t.c t.a", "t = { b = 2 }"),
    ("t = { a = 1, b = 2, c = 3 }", "t.a t.b t.c", "t = {  }"), ("t = { a = 1, b = 2, }", "t.b", "t = { a = 1,  }"),
    ("t = {\n  a = 1, # a\n  b = 2, # b\n}", "t.a", "t = {\n   # a\n  b = 2, # b\n}"),
    ("t = {\n  a = 1, # a\n  b = 2 # b\n}", "t.b", "t = {\n  a = 1 # a\n   # b\n}"),
    ("t = {\n  a = 1 # a\n  , b = 2\n}", "t.a", "t = {\n   # a\n  b = 2\n}"),
    ("t = {\n  a = 1,\n  b = 2\n}", "t.b", "t = {\n  a = 1\n}"),
    ("t = { a = { b = { c = 1, d = 2 } }, e = 3 }", "t.a.b.c", "t = { a = { b = { d = 2 } }, e = 3 }"),
    ("t = { a.b = 1, c = 2, a.d = { e = 1 } }", "t.a", "t = { c = 2 }")], ids=ascii)
def test_a_removal_takes_what_makes_it_and_leaves_the_rest(toml, before, paths, after):
    assert edit(toml, before, [(tuple(path.split(".")), None) for path in paths.split()]).decode("utf-8") == after


@pytest.mark.parametrize("before, changes, after", [
    ("t = { a = 1, b = 2 }", {"b": None, "c": "x"}, 't = { a = 1, c = "x" }'),
    ("t = { b = 1 }", {"b": None, "c": "x", "d": "y"}, 't = { c = "x", d = "y" }'),
    ("t = {b=1,}", {"b": None, "c": "x"}, 't = { c = "x",}'),
    ("t.b = 1", {"b": None, "c": "x"}, 't.c = "x"\n'),
    ("[t]\nb = 1 # c\n", {"b": None, "c": "x"}, '[t]\nc = "x"\n # c\n'),
    ("[t]\nb = 1\n", {"c": "x", "b": "y", "d": ["z"]}, '[t]\nc = "x"\nd = ["z"]\nb = "y"\n'),
    ("[t.b]\nx = 1\n", {"b": None, "c": "x"}, 't.c = "x"\n\n\n'),
    ("t = {\n  a = 1,\n  b = 2 # c\n}", {"b": None, "c": "x"}, 't = {\n  a = 1 # c\n  , c = "x"\n}'),
    ("t = {\n  b = 2\n}", {"b": None, "c": "x"}, 't = {\n  \n  c = "x"\n}')],
    ids=ascii)
def test_changes_of_several_kinds_in_one_table(toml, before, changes, after):
    assert edit(toml, before, [(("t", key), value) for key, value in changes.items()]).decode("utf-8") == after


@pytest.mark.parametrize("raw, path, value, words", [
    ("[[t]]\nb=1", B, "x", "line 1, column 1: `t` is an array of tables"),
    ("\n[[t]]\n", ("t",), "x", "line 2, column 1: `t` is an array of tables"),
    ("[[t]]\n", ("t",), None, "is an array of tables"),
    ("[[s]]\n[s.t]\n", ("s", "t", "b"), "x", "`s` is an array of tables"), ("t = [{b=1}]", B, "x", "`t` is an array"),
    ("t = 1", B, "x", "`t` is an integer, not a table"), ("t = 1979-05-27", B, None, "a local date"),
    ("[t]\n[t.b]", B, {"A": "x"}, "line 2, column 1: `t.b` is a table with a header"),
    ("t.b.c=1", B, "x", "`t.b` is a table made of dotted keys"),
    ("[t.b.c]", B, "x", "`t.b` is a table that only sub-tables name"),
    ("[t]", ("t", "a", "b"), "x", "`t.a` is not there"), ("", B, {"A": "x"}, "`t` is not there"),
    ("[t]", B, None, "`t.b` is not there"), ("[t]", ("t", "a", "b"), None, "`t.a` is not there"),
    ("[t]", ("t", "x.y", "\n"), None, '`t."x.y"` is not there'),
    ("a = 1", (), None, "the whole file"), ("a = 1", (), "x", "the whole file"),
    ("[t]", B, "\udc80", "surrogate"), ("[t]", ("t", "\udc80"), "x", "surrogate"),
    ("t={}", B, {"\ud800": "x"}, "surrogate")], ids=ascii)
def test_what_cannot_be_edited_is_refused(toml, raw, path, value, words):
    """Case 128 among others: the type and the line are named."""
    document = toml.toml_document(raw.encode("utf-8"))
    with pytest.raises(toml.TomlError) as caught:
        document.edits([(path, value)])
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_changes_that_overlap_are_refused(toml):
    document = toml.toml_document(b"[t]\nb = {c = 1}\n[t.e]\n")
    for one, other in ((B, B), (B, ("t", "b", "c")), (("t",), B), (("t", "e"), ("t", "e", "x"))):
        for changes in ([(one, None), (other, "x")], [(other, None), (one, None)]):
            with pytest.raises(toml.TomlError, match="two changes overlap"):
                document.edits(changes)


def test_only_texts_lists_and_tables_are_written(toml):
    for value in 1, True, 1.5, b"x", ["a", 1], {"a": None}:
        with pytest.raises(TypeError):
            toml.toml_document(b"[t]").edits([(B, value)])
    assert edit(toml, "[t]\nb=1", [(["t", "b"], ["\u00e9", "x"])]).decode("utf-8") == '[t]\nb=["\u00e9", "x"]'


def test_a_path_may_be_a_list_and_edits_need_no_order(toml):
    raw = b"[t]\nb = 1\nc = 2\n[a]\nx = 3\n"
    changes = [(("a", "x"), "3"), (("a", "n"), "4"), (("t", "c"), None), (("t", "b"), ["1"]), (("a", "m"), "5")]
    assert edit(toml, raw, changes) == b'[t]\nb = ["1"]\n\n[a]\nn = "4"\nm = "5"\nx = "3"\n'
    assert toml.toml_document(raw).edits([]) == []


# --------------------------------------------------------- the corpus, real files, handed cases

def corpus(kind):
    if not CORPUS.is_dir():
        pytest.skip("MCP_LAZY_CORPORA does not name a folder with toml-test in it")
    found = sorted((CORPUS / kind).rglob("*.toml"))
    assert len(found) > 100
    return found


def tagged(toml, value):
    """A value as toml-test writes it; times in one of their spellings."""
    if isinstance(value, dict):
        return {key: tagged(toml, item) for key, item in value.items()}
    if isinstance(value, list):
        return [tagged(toml, item) for item in value]
    if isinstance(value, toml.TomlTime):
        names = {"offset datetime": "datetime", "local datetime": "datetime-local", "local date": "date-local",
                 "local time": "time-local"}
        return {"type": names[value.kind], "value": moment(value)}
    if isinstance(value, bool):
        return {"type": "bool", "value": str(value).lower()}
    names = {str: "string", int: "integer", float: "float"}
    return {"type": names[type(value)], "value": repr(value) if isinstance(value, float) else str(value)}


def moment(text):
    """One spelling of a date or time: capital T and Z, seconds, no zeros at the end of their fraction."""
    text = re.sub(r"(^|T)([0-9]{2}:[0-9]{2})(?=$|[Z+-])", r"\1\2:00", text.upper().replace(" ", "T"))
    return re.sub(r"\.([0-9]*?)0*(?=$|[Z+-])", lambda found: "." + found[1] if found[1] else "", text)


def expected(value):
    """The same for what stands beside the files of toml-test."""
    if isinstance(value, list):
        return [expected(item) for item in value]
    if set(value) == {"type", "value"} and isinstance(value["value"], str):
        kind, text = value["type"], value["value"]
        same = {"float": lambda: repr(float(text)), "string": lambda: text}.get(kind, lambda: moment(text))
        return {"type": kind, "value": same() if kind not in ("bool", "integer") else text}
    return {key: expected(item) for key, item in value.items()}


def test_every_valid_file_of_the_corpus_has_the_expected_value(toml):
    """D10.9."""
    for path in corpus("valid"):
        wanted = expected(json.loads(path.with_suffix(".json").read_text("utf-8")))
        assert tagged(toml, toml.toml_document(path.read_bytes()).value) == wanted, path.name


def test_every_invalid_file_of_the_corpus_is_refused(toml):
    for path in corpus("invalid"):
        error = wrong(toml, path.read_bytes())
        assert error.line >= 1 and error.column >= 1, path.name


def paths_of(value, path=()):
    """The paths of all keys that no list is in the way of."""
    for key in value:
        yield path + (key,)
        if isinstance(value[key], dict):
            yield from paths_of(value[key], path + (key,))


def each_edit(toml, raw):
    """Every key of a document replaced, and removed, and a new one put beside it: the outcome is checked by `edit`."""
    document, count = toml.toml_document(raw), 0
    for path in [()] + list(paths_of(document.value)):
        place, count = document.find(path), count + 1
        if place.kind in ("value", "inline table"):
            edit(toml, raw, [(path, ["new", "\u00e9\n"])])
        if place.kind != "array of tables" and path:
            edit(toml, raw, [(path, None)])
        if isinstance(place.value, dict) and "new key" not in place.value:
            edit(toml, raw, [(path + ("new key",), {"A": "x"}), (path + ("n2",), "y")])
    return count


@pytest.mark.slow
def test_every_edit_of_the_corpus_changes_its_span_only(toml):
    assert sum(each_edit(toml, path.read_bytes()) for path in corpus("valid")) > 500


@pytest.mark.slow
def test_every_edit_of_files_that_clients_wrote(toml):
    """D10.1: what Codex and Grok write, and what people write for them."""
    found = sorted(CONFIGS.rglob("*.toml")) if CONFIGS.is_dir() else []
    if not found:
        pytest.skip("MCP_LAZY_CONFIGS does not name a folder with files of clients")
    for path in found:
        for raw in path.read_bytes(), path.read_bytes().replace(b"\n", b"\r\n"), path.read_bytes().rstrip(b"\n"):
            assert each_edit(toml, raw) > 3


def cases():
    if not CASES.is_dir():
        pytest.skip("MCP_LAZY_CASES names no folder with the inputs of the cases")
    for path in sorted(CASES.glob("1*.expect.md")):
        for block in re.findall(r"```json\n(.*?)```", path.read_text("utf-8"), re.S):
            case = json.loads(block)
            if case["input"].endswith(".toml"):
                yield case, (CASES / case["input"]).read_bytes()


@pytest.mark.slow
def test_the_handed_cases_change_where_they_may(toml):
    """Cases 110 to 131: command and args are replaced in their spans; a missing one is D10.4's matter (114, 122)."""
    edited = refused = 0
    for case, raw in cases():
        path = ("mcp_servers", case["target"])
        if case["result"] == "refused":
            refused += 1
            continue
        place = toml.toml_document(raw).find(path)
        args = [place.value["command"], *place.value.get("args", ())]
        changes = [(path + ("command",), "mcp-lazy"), (path + ("args",), args)]
        document = toml.toml_document(raw)
        spans = [(start, end) for _, start, end, _, at in document.edits(changes) if at is None]
        allowed = [span for span in case["may_change"] if span["from"] < span["to"]]
        assert spans == [(span["from"], span["to"]) for span in allowed], case
        assert [raw[start:end].decode() for start, end in spans] == [span["now"] for span in allowed]
        edit(toml, raw, changes)
        each_edit(toml, raw)
        edited += 1
    assert edited > 10 and refused >= 2


def test_a_removal_of_a_registration_leaves_its_neighbours(toml):
    """Case 114: its sub-tables go with it, what only begins with the same letters stays."""
    raw = b"[m.fs]\nc = 1\n\n[m.fs.env]\nT = 1 # t\n[m.fs.tools.rm]\na = 1\n\n[m.fsx]\nc = 2\n"
    assert edit(toml, raw, [(("m", "fs"), None)]) == b"\n\n\n\n # t\n\n\n\n[m.fsx]\nc = 2\n"
    assert edit(toml, raw, [(("m", "fs", "args"), ["x"])]) == raw.replace(b"c = 1", b'args = ["x"]\nc = 1')


# ------------------------------------------------------------------------------------- properties

WORDS = ["a", "b", "c", "env", "args", "x.y", "", "1", "a b", "\u00e9", "true", "-", '"', "'", "\\", "\n",
         "\t", "#", "=", "[a]", "\u2028", "\x7f"]
TEXTS = WORDS + ["[t]\nx = 1\n", '"""', "'''", "} ]", "a = 1 # c", "two words", "\U0001f600", "\\u0041", "x" * 300]


class Writer:
    """Writes a random document, table by table, in any of the forms that TOML has for one."""

    def __init__(self, rng, newer=True):
        self.rng, self.newer = rng, newer           # newer: what only TOML 1.1 has, too
        self.end = rng.choice(["\n", "\n", "\r\n"])

    def chance(self, share):
        return self.rng.random() < share

    def document(self):
        root, later = self.table(3), []
        blocks = [self.body(root)]
        self.headers((), root, later)
        if not any(many for _, _, many in later):
            self.rng.shuffle(later)                 # a table may stand before the one around it
        for path, lines, many in later:
            header = self.gap() + ".".join(self.gap() + self.key(part) + self.gap() for part in path) + self.gap()
            blocks.append([self.gap() + ("[[%s]]" if many else "[%s]") % header + self.comment()] + lines)
        text = self.end.join(self.end.join(block) for block in blocks if block)
        text += self.end if text and self.chance(0.7) else ""
        return ("\ufeff" if self.chance(0.1) else "") + text

    def gap(self):
        return self.rng.choice(["", "", "", " ", "\t", "  "])

    def comment(self):
        return self.rng.choice(["", "", "", "  ", " # c", "# [x] = \u00e9 'y\""])

    def key(self, key):
        bare = re.fullmatch("[A-Za-z0-9_-]+", key)
        if bare and self.chance(0.8):
            return key
        if self.chance(0.5) and not re.search("['\x00-\x08\n-\x1f\x7f]", key):
            return "'%s'" % key
        return self.basic(key)

    def basic(self, text):
        return '"%s"' % "".join(self.escaped(char) for char in text)

    def escaped(self, char):
        if char in '"\\' or char < " " and char != "\t" or char == "\x7f" or self.chance(0.05):
            named = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
            if char in named and self.chance(0.8):
                return named[char]
            return "\\u%04X" % ord(char) if char <= "\uffff" else "\\U%08x" % ord(char)
        return char

    def table(self, depth):
        return {self.rng.choice(WORDS): self.any(depth) for _ in range(self.rng.randrange(depth, 3 + depth * 2))}

    def any(self, depth):
        kind = self.rng.randrange(18 if depth else 7)
        if kind < 3:
            return self.rng.choice(TEXTS)
        if kind < 5:
            return self.rng.choice([0, 1, -5, 2 ** 63 - 1, True, False, 1.5, -0.0, math.inf, math.nan, 1e300])
        if kind == 5:
            return [self.any(0) for _ in range(self.rng.randrange(4))]
        if kind == 6:
            return [self.rng.choice(TEXTS) for _ in range(self.rng.randrange(3))]
        if kind in (7, 8):
            return Tables(self.table(depth - 1) for _ in range(self.rng.randrange(1, 3)))
        return self.table(depth - 1)

    def body(self, table, prefix=()):
        """The lines of a table; what gets a header of its own is left for `headers`, and marked."""
        lines = []
        for key, value in table.items():
            lines += [self.rng.choice(["", self.gap() + self.comment(), "# [c]"])] if self.chance(0.2) else []
            if isinstance(value, Tables) and not prefix:
                continue
            if isinstance(value, dict) and value and self.chance(0.25):
                lines += self.body(value, prefix + (key,))
                continue
            if isinstance(value, dict) and not prefix and self.chance(0.6):
                table[key] = Headed(value)
                continue
            name = (self.gap() + "." + self.gap()).join(map(self.key, prefix + (key,)))
            lines.append(self.gap() + name + self.gap() + "=" + self.gap() + self.value(value) + self.comment())
        return lines

    def headers(self, path, table, later):
        for key, value in list(table.items()):
            if isinstance(value, Tables):
                for one in value:
                    later.append((path + (key,), self.body(one), True))
                    self.headers(path + (key,), one, later)
            elif isinstance(value, Headed):
                lines = self.body(value)
                below = [inner for inner in value.values() if isinstance(inner, (Tables, Headed))]
                if lines or not below or self.chance(0.5):
                    later.append((path + (key,), lines, False))
                self.headers(path + (key,), value, later)

    def value(self, value):
        if isinstance(value, bool) or isinstance(value, (int, float)):
            return str(value).lower() if isinstance(value, bool) or value == value else self.rng.choice(["nan", "+nan"])
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, dict):
            return self.inline(value)
        breaks = self.rng.choice(["", "", " ", self.end + "  ", " # c" + self.end])
        items = [self.value(item) for item in value]
        tail = breaks + "," if items and self.chance(0.3) else ""
        return "[" + breaks + ("," + breaks).join(items) + tail + breaks + "]"

    def string(self, text):
        form = self.rng.randrange(6)
        plain = not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)
        if form == 0 and plain and "'" not in text and "\n" not in text:
            return "'%s'" % text
        if form == 1 and plain and "'''" not in text and not text.endswith("'"):
            return "'''%s%s'''" % (self.end, text.replace("\n", self.end))
        if form == 2:
            lines = [self.basic(line)[1:-1] for line in text.split("\n")]
            return '"""%s%s%s"""' % (self.end, self.end.join(lines), self.rng.choice(["", "\\" + self.end + "   "]))
        return self.basic(text)

    def inline(self, table):
        breaks = self.rng.choice(["", " ", self.end + "\t", " # c" + self.end][:4 if self.newer else 2])
        parts = []
        for key, value in table.items():
            if isinstance(value, dict) and value and self.chance(0.3):
                inner = {self.key(key) + self.gap() + "." + self.gap() + self.key(name): item
                         for name, item in value.items()}
            else:
                inner = {self.key(key): value}
            parts += [name + self.gap() + "=" + self.gap() + self.value(item) for name, item in inner.items()]
        tail = "," if parts and self.newer and self.chance(0.3) else ""
        return "{" + breaks + (self.gap() + "," + breaks).join(parts) + tail + breaks + "}"


class Tables(list):
    """An array of tables."""


class Headed(dict):
    """A table with a header of its own."""


def random_changes(rng, document):
    """Some changes that can be made: values replaced, members removed, new ones added."""
    changes, taken = [], []
    paths = [()] + list(paths_of(document.value))
    rng.shuffle(paths)
    for path in paths[:rng.randrange(1, 6)]:
        place = document.find(path)
        new = rng.choice([rng.choice(TEXTS), [rng.choice(TEXTS), "y"], {"B": "x", rng.choice(WORDS): "z"}, None])
        if isinstance(place.value, dict) and rng.random() < 0.6:
            path, new = path + (rng.choice(["new", "n w", "a", "env"]),), new or "x"
            if path[-1] in place.value:
                continue
        elif not path or place.kind == "array of tables" or new is not None and place.span is None:
            continue
        if not any(path[:len(other)] == other or other[:len(path)] == path for other in taken):
            taken.append(path)
            changes.append((path, new))
    return changes


ROUNDS = 4000 if FULL else 80


@pytest.mark.slow
@pytest.mark.parametrize("newer", [False, True], ids=["1.0", "1.1"])
def test_random_documents_and_random_edits(toml, newer):
    """D10.8: outside the edits all bytes are equal, parse(edit(x)) is the edited parse; undone, x is back (D9.9)."""
    rng = seeded("toml" + str(newer))
    judged_ones = changed = 0
    kinds, forms = set(), set()
    for _ in range(ROUNDS):
        raw = Writer(rng, newer).document().encode("utf-8")
        document = toml.toml_document(raw)
        theirs = judged(raw)
        if theirs is not None:
            assert same_as_judge(toml, document.value, theirs), raw
            judged_ones += 1
        assert newer or theirs is not None or tomllib is None, raw
        for _ in range(3):
            changes = random_changes(rng, document)
            edit(toml, raw, changes)
            changed += len(changes)
        kinds |= {document.find(path).kind for path in paths_of(document.value)}
        forms |= {form for form in (b"\r\n", b"\xef\xbb\xbf", b"[[", b'"""', b"'''") if form in raw}
    assert len(kinds) == 6 and len(forms) == 5, "the writer does not write every form"
    assert changed > ROUNDS * 2 and judged_ones >= (0 if newer or tomllib is None else ROUNDS)


@pytest.mark.slow
def test_random_documents_of_another_writer(toml):
    if tomli_w is None:
        pytest.skip("tomli-w is not installed")
    rng = seeded("tomli-w")
    for _ in range(ROUNDS):
        raw = tomli_w.dumps(Writer(rng).table(3), multiline_strings=rng.random() < 0.5).encode("utf-8")
        document = toml.toml_document(raw)
        assert tomllib is None or same_as_judge(toml, document.value, judged(raw))
        edit(toml, raw, random_changes(rng, document))


@pytest.mark.slow
def test_damaged_documents_are_read_or_refused(toml):
    """Any garbage ends in TomlError; what `tomllib` reads, we read."""
    rng = seeded("damage")
    for _ in range(ROUNDS * 4):
        raw = bytearray(Writer(rng).document().encode("utf-8"))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(raw) + 1)
            pieces = [b"", b" "] + (b"\" ' [ ] { } = , . \n \r # \\ a 1 \xff \0 '''".split(b" "))
            raw[at:at + rng.randrange(3)] = rng.choice(pieces)
        raw = bytes(raw)
        try:
            document = toml.toml_document(raw)
        except toml.TomlError as error:
            assert judged_strictly(raw) is None, (raw, error)
            continue
        theirs = judged(raw)
        assert theirs is None or same_as_judge(toml, document.value, theirs), raw


def judged_strictly(raw):
    try:
        return judged(raw)
    except UnicodeDecodeError:
        return None


@pytest.mark.slow
def test_undone_one_by_one_in_any_document(toml):
    """Each insertion taken back alone, from the last to the first, the file is TOML all the way."""
    rng = seeded("one by one")
    for _ in range(ROUNDS):
        raw = Writer(rng).document().encode("utf-8")
        document = toml.toml_document(raw)
        changes = [(path, value) for path, value in random_changes(rng, document) if value is not None]
        edits = document.edits(changes)
        result = toml.toml_apply(raw, edits)
        for path, start, end, new, at in reversed(edits):
            place = toml.toml_document(result).find(path)
            begin = place.span[0] if at is None else place.member[0] - at
            assert result[begin:begin + len(new)] == new
            result = result[:begin] + raw[start:end] + result[begin + len(new):]
        assert result == raw


# ------------------------------------------------------------------------------------ limits, time

@pytest.mark.parametrize("number", [200, 299, 900, 5000, 1000000])
def test_nesting_works_or_is_refused_in_one_line(toml, number):
    """Case 107: at least 200 levels of arrays, inline tables, dotted keys and headers; beyond the limit one line."""
    begun = time.process_time()
    rest = '\n[mcp_servers.fs]\ncommand = "fs-mcp"\nargs = []\n'
    dotted = ".".join(["h"] * number)
    whole = ["h = " + "[" * number + "]" * number, "h = " + "{a=" * number + "1" + "}" * number,
             "h = " + "[{a=" * (number // 2) + "1" + "}]" * (number // 2),
             dotted + " = 1", "[%s]" % dotted, "[[%s]]" % dotted, "h = {%s = 1}" % dotted]
    for head in whole + ["h = " + "[" * number, "h = " + "{a=" * number, "h = " + "[{a=" * (number // 2) + "1"]:
        raw = (head + rest).encode()
        try:
            document = toml.toml_document(raw)
        except toml.TomlError as error:
            assert number >= 300 or head not in whole
            assert "\n" not in str(error) and len(str(error)) < 200
            if number > 300:
                assert "nested more than 300 levels deep" in str(error)
            continue
        assert number < 300 and head in whole
        path = ("mcp_servers", "fs")
        result = toml.toml_apply(raw, document.edits([(path + ("command",), "x"), (path + ("args",), ["y"])]))
        assert result == raw.replace(b'"fs-mcp"', b'"x"').replace(b"args = []", b'args = ["y"]')
        assert toml.toml_same(toml.toml_document(result).value["h"], document.value["h"])
        assert copy.deepcopy(document.value) == document.value and repr(document.value)
    assert time.process_time() - begun < 5


def realistic(size):
    """TOML like that of the clients, of a size."""
    block = """\
# servers
[mcp_servers.alpha%d]
command = "npx"                # why npx
args = ["-y", "alpha-server"]
startup_timeout_sec = 30
enabled = false
note = 'C:\\x'
env = { A = "1", "x.y" = "two" }

[mcp_servers.alpha%d.tools.danger]
approval_mode = "approve\\n"
since = 2026-01-02T03:04:05Z

"""
    blocks, length, number = [], 0, 0
    while length < size:
        blocks.append(block % (number, number))
        length, number = length + len(blocks[-1]), number + 1
    return "".join(blocks).encode()


def spent(act):
    """Seconds of processor time. Without the collector, which looks at all that the other tests have left."""
    gc.collect()
    gc.disable()
    try:
        begun = time.process_time()
        act()
        return time.process_time() - begun
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_mebibyte_is_read_in_less_than_a_second(toml):
    raw = realistic(1 << 20)
    assert any(spent(lambda: toml.toml_document(raw)) < 0.8 for _ in range(5))


LARGE = {
    "headers": lambda n: b"".join(b"[a%d.b]\n" % i for i in range(n)),
    "keys": lambda n: b"".join(b"k%d = 1\n" % i for i in range(n)), "array": lambda n: b"a = [" + b"1, " * n + b"]",
    "tables": lambda n: b"[[a]]\n" * n,
    "inline": lambda n: b"a = {" + b", ".join(b"k%d = 1" % i for i in range(n)) + b"}",
    "array of inline": lambda n: b"a = [" + b"{b=1}," * n + b"]",
    "string": lambda n: b'a = "' + b"xyz " * (n * 40) + b'"', "escapes": lambda n: b'a = "' + b"\\n" * n + b'"',
    "long string": lambda n: b'a = """' + b'""x\n' * n + b'"""',
    "folds": lambda n: b'a = """' + b"\\\n" * n + b'"""', "open string": lambda n: b'a = "' + b"x\\n" * n,
    "open text": lambda n: b'a = """' + b'x""\n' * n, "blanks": lambda n: b"a = 1" + b" " * (n * 40) + b"x",
    "comments": lambda n: b"# c\n" * n, "comment": lambda n: b"#" * (n * 40) + b"\0",
    "digits": lambda n: b"a = 0." + b"1" * (n * 40), "underscores": lambda n: b"a = " + b"1_" * (n * 10),
    "hex": lambda n: b"a = 0x" + b"9" * (n * 20),
    "line ends": lambda n: b"\r\n" * n, "dotted": lambda n: b"".join(b"a.b.c%d.d = 1\n" % i for i in range(n)),
    "non-ASCII": lambda n: b"a = '" + b"\xc3\xa9" * (n * 20) + b"'\n" + b"# \xc3\xa9\nb" + b"b" * n + b"='\xc3\xa9'",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(LARGE))
def test_time_grows_with_the_size(toml, kind):
    """Four times as much takes four times as long, with room for what else the machine does; never sixteen times."""
    def work(raw):
        try:
            document = toml.toml_document(raw)
            toml.toml_apply(raw, document.edits([(("new",), "x")]))
        except toml.TomlError:
            pass
    small, large = LARGE[kind](2000), LARGE[kind](8000)
    work(small)
    for _ in range(5):
        ratio = spent(lambda: work(large)) / max(min(spent(lambda: work(small)) for _ in range(2)), 0.0005)
        if ratio < 8:
            return
    raise AssertionError("%s: %.1f times as long for four times as much" % (kind, ratio))


@pytest.mark.slow
def test_edits_of_many_members_take_linear_time(toml):
    def work(number):
        lines, members = (mark.join(b"k%d = 1" % i for i in range(number)) for mark in (b"\n", b", "))
        raw = b"[t]\n" + lines + b"\n[u]\ni = {" + members + b"}\n"
        changes = [(("t", "k%d" % i), None) for i in range(0, number, 2)]
        changes += [(("u", "i", "k%d" % i), None if i % 3 else "x") for i in range(number)]
        changes += [(("u", "i", "n%d" % i), "x") for i in range(number)]
        begun = time.process_time()
        toml.toml_apply(raw, toml.toml_document(raw).edits(changes))
        return time.process_time() - begun
    work(100)
    ratio = 99
    for _ in range(4):
        ratio = min(ratio, min(work(2000) for _ in range(2)) / min(work(500) for _ in range(2)))
        if ratio < 8:
            return
    raise AssertionError("%.1f times as long for four times as much" % ratio)


# ------------------------------------------------------------------------------------ form of the file

def test_the_file_can_be_embedded_flat():
    """Names, imports and sizes as the layers' rules want them: see the house style, section 3."""
    text = VENDOR.read_text("utf-8")
    tree = ast.parse(text)
    assert text.isascii() and text.count("\n") <= 800 and max(map(len, text.split("\n"))) <= 120
    for node in tree.body:
        names = [node.name] if hasattr(node, "name") else [target.id for target in getattr(node, "targets", ())]
        assert all(re.match("_?toml", name, re.I) for name in names)
        assert not isinstance(node, (ast.Import, ast.ImportFrom))
    imports = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imports == ["re"] and not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_it_imports_nothing_before_it_is_used():
    code = ("import sys; exec(open(sys.argv[1]).read()); "
            "print('re' in sys.modules, toml_document(b'a = 1').value, 're' in sys.modules)")
    said = subprocess.check_output([sys.executable, "-I", "-S", "-c", code, str(VENDOR)], universal_newlines=True)
    assert said.split() == ["False", "{'a':", "1}", "True"]


def test_the_tables_of_the_file_are_never_changed(toml):
    """A document's values are its own: whoever changes them changes no other document."""
    one, other = (toml.toml_document(b"a = {}\nb = []\nc = inf\n") for _ in range(2))
    one.value["a"]["x"] = one.value["b"]
    one.value["b"].append(1)
    assert other.value == {"a": {}, "b": [], "c": math.inf} == toml.toml_document(other.raw).value
