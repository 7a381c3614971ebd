"""L2: lines out of bytes, JSON with spans, envelopes (A6.6, A7.13 to A7.16, A10.14)."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import mcp_lazy
from generated import any_string, any_value, exact, oracle, seeded, spell
from harness import MODULE
from mcp_lazy import (BAD, BATCH, LATE_STEP, MAX_LATE, MAX_OVERDUE, NOTIFICATION, ODD, REQUEST, RESPONSE, SHORT_BYTES,
                      TOKEN_CHARS, Flight, Flights, LineSplitter, all_notifications, canonical, members, parse_json,
                      progress_token, read_envelope, same_json, token_key)

BOM = b"\xef\xbb\xbf"


# ------------------------------------------------------------------------------------------ lines

def split(pieces, limit=1 << 20, rest=True):
    """(lines, how often a line was too long) of a stream that arrives in these pieces."""
    splitter, blocks, too_long = LineSplitter(limit), [], 0
    for piece in pieces:
        blocks += splitter.feed(piece)
        if splitter.too_long:
            splitter.too_long, too_long = False, too_long + 1
    if rest:
        blocks += splitter.rest()
    assert all(block[-1:] == b"\n" for block in blocks), "a block is whole lines"
    return [line + b"\n" for block in blocks for line in bytes(block)[:-1].split(b"\n")], too_long


def cuts(data):
    """The stream whole, byte by byte, and cut at each offset."""
    yield [data]
    yield [data[at:at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


STREAMS = [
    b"",
    b"\n",
    b"a\n",
    b"a\nbb\nccc\n",
    b"\n\na\n\n",
    b'{"a":1}\r\n{"b":2}\r\n',
    '{"a":"\u2028\u2029\u0085\x0b\x0c\x1c"}\n{"b":1}\n'.encode(),
    b"\r\r\n\r",
    b"\0\n\xff\xfe\n\xc3\n",
    b"one\ntwo",
]


@pytest.mark.parametrize("data", STREAMS, ids=ascii)
def test_lines_end_at_0x0a_only_however_the_bytes_arrive(data):
    """A7.13, design 4.1: U+2028, VT, FF and CR do not end a line; the last one needs no LF."""
    wanted = [line + b"\n" for line in data.split(b"\n")]
    wanted = wanted[:-1] if data[-1:] in (b"", b"\n") else wanted
    for pieces in cuts(data):
        assert split(pieces) == (wanted, 0), pieces


def test_a7_13_the_last_line_is_given_once_with_an_lf():
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a\n"]
    assert splitter.rest() == [b"b\n"]
    assert splitter.rest() == []


def test_a10_14_a_byte_order_mark_before_the_first_line_is_dropped():
    assert split([BOM + b"{}\n" + BOM + b"{}\n"]) == ([b"{}\n", BOM + b"{}\n"], 0)
    assert split([BOM, b"{}\n"]) == ([b"{}\n"], 0)


def test_a10_14_a_byte_order_mark_in_pieces_is_dropped_too():
    for pieces in cuts(BOM + b"{}\n"):
        assert split(pieces) == ([b"{}\n"], 0), pieces


@pytest.mark.parametrize("size", [65535, 65536, 65537, 300000])
def test_long_lines_are_whole_and_unchanged(size):
    long = b"x" * size + b"\n"
    data = b"before\n" + long + b"behind\n"
    for step in (1 << 10, 1 << 16, len(data)):
        lines, too_long = split([data[at:at + step] for at in range(0, len(data), step)])
        assert lines == [b"before\n", long, b"behind\n"] and not too_long


def test_a7_13_a_line_above_the_limit_is_skipped_and_the_next_is_in_step():
    data = b"a\n" + b"x" * 200 + b"\nb\n" + b"y" * 300 + b"\n" + b"c"
    pieces = [data[at:at + 20] for at in range(0, len(data), 20)]
    assert split(pieces, limit=100) == ([b"a\n", b"b\n", b"c\n"], 2)


def test_a7_13_a_line_at_the_limit_is_none_too_many():
    data = b"x" * 99 + b"\n" + b"y" * 99 + b"\n"
    for step in (7, 50, len(data)):
        assert split([data[at:at + step] for at in range(0, len(data), step)], limit=100) == (
            [b"x" * 99 + b"\n", b"y" * 99 + b"\n"], 0)


def test_a7_13_the_limit_does_not_depend_on_how_the_bytes_arrive():
    data = b"a\n" + b"x" * 200 + b"\nb\n"
    for pieces in cuts(data):
        assert split(pieces, limit=100) == ([b"a\n", b"b\n"], 1), [len(piece) for piece in pieces]


def test_a7_13_an_endless_line_keeps_no_memory():
    import tracemalloc
    splitter, piece, seen = LineSplitter(1 << 16), b"z" * 4096, 0
    tracemalloc.start()
    for _ in range(1000):
        assert splitter.feed(piece) == []
        seen += splitter.too_long
        splitter.too_long = False
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 1 and peak < 1 << 18
    assert splitter.rest() == [] and LineSplitter(10).feed(b"") == []


# ------------------------------------------------------------------------------------------- JSON

def test_a6_6_parse_json_reads_what_json_reads():
    rng = seeded("parse")
    for _ in range(1500):
        text = spell(rng, any_value(rng))
        raw = text.encode("utf-8")
        assert parse_json(raw) == oracle(text) and parse_json(text) == parse_json(raw)


def test_broken_json_is_refused_where_json_refuses_it():
    rng = seeded("broken")
    for _ in range(1500):
        text = mutated(rng, spell(rng, any_value(rng)))
        try:
            wanted = repr(oracle(text))
        except (ValueError, RecursionError):
            with pytest.raises(ValueError):
                parse_json(text)
        else:
            assert repr(parse_json(text)) == wanted


def mutated(rng, text):
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + rng.choice('{}[],:"\\0-.eE tfn\x01') + text[at:]
    return text[:at] + text[at + 1:] if kind == 1 else text[:at]


@pytest.mark.parametrize("raw", [b"", b" ", b"\xff", b"{", b'{"a"', b"[1,", b"nul", b'"', b'"\\', b"-", b"1 2", b"{}x", b"[" * 100000,
                                 b'{"a":' * 100000, b"1" * 5000, BOM + b"{}", b"\xed\xa0\x80", b"\x00"], ids=lambda raw: ascii(raw[:12]))
def test_what_is_no_json_is_a_value_error_of_any_kind(raw):
    with pytest.raises(ValueError):
        parse_json(raw)
    with pytest.raises(ValueError):
        parse_json(raw, exact=True)


EQUAL = [("1", "1.0"), ("1", "1e0"), ("1.0", "10e-1"), ("100", "1E+2"), ("0", "-0"), ("0", "-0.0"), ("0", "0e99"), ("1e400", "10e399"),
         ("1e400", "1" + "0" * 400), ("9007199254740993", "9007199254740993.0"), ("0.10", "0.1"), ('"a"', '"\\u0061"'), ('"/"', '"\\/"'),
         ('{"a":1,"b":2}', '{ "b" : 2.0, "a":1 }'), ('{"a":1,"a":2}', '{"a":2}'), ("[]", "[ ]"), ('"\\ud800"', '"\\uD800"'),
         ('"\\ud83d\\ude00"', '"\U0001f600"'), ("-1.50e1", "-15"), ("1e500", "10e499"), ("1e-500", "0.1e-499")]
DIFFERENT = [("1", "true"), ("0", "false"), ("1", '"1"'), ("null", "0"), ("null", '"null"'), ("9007199254740993", "9007199254740992"),
             ("9007199254740993", "9007199254740992.0"), ("1e400", "1e401"), ("1e400", "2e400"), ("1", "-1"), ("[]", "{}"), ("[1,2]", "[2,1]"),
             ("[1]", "[1,1]"), ('"a"', '"A"'), ('""', "null"), ("0.1", "0.10000000000000001"), ("{}", '{"a":null}'), ('{"a":1}', '{"a":true}'),
             ('"\\u0000"', '""'), ("1e-400", "0"), ('"1.0"', "1.0")]


@pytest.mark.parametrize("one, other", EQUAL, ids=ascii)
def test_a6_6_spellings_of_one_value_are_equal(one, other):
    assert same_json(one.encode(), other.encode()) and same_json(other.encode(), one.encode())


def test_a6_6_an_integer_equals_its_exponent_spelling_at_any_size():
    for size in (399, 400, 401, 500, 3000):
        assert same_json(b"1" + b"0" * size, b"1e%d" % size), size


@pytest.mark.parametrize("one, other", DIFFERENT, ids=ascii)
def test_a6_6_different_values_are_different(one, other):
    assert not same_json(one.encode(), other.encode()) and not same_json(other.encode(), one.encode())


def test_a6_6_same_json_is_equality_of_exact_values():
    rng = seeded("same")
    equal = 0
    for _ in range(1200):
        value = any_value(rng, 2)
        one, other = spell(rng, value), spell(rng, value if rng.random() < 0.6 else any_value(rng, 2))
        wanted = exact(one) == exact(other)
        equal += wanted
        assert same_json(one.encode(), other.encode()) == wanted, (one, other)
    assert 400 < equal < 1150


def test_a6_6_canonical_text_is_json_and_the_same_for_each_spelling():
    rng = seeded("canonical")
    for _ in range(800):
        value = any_value(rng)
        one, other = spell(rng, value), spell(rng, value)
        text = canonical(parse_json(one, exact=True))
        assert text == canonical(parse_json(other, exact=True)) and text.isascii()
        assert exact(text) == exact(one), "canonical text is JSON of the same value"


@pytest.mark.parametrize("raw", [b"", b"{", b"nope", b"\xff", b"[" * 3000 + b"]" * 3000, b"1e" + b"9" * 5000, b"1" * 5000], ids=lambda raw: ascii(raw[:8]))
def test_same_json_of_what_cannot_be_read_is_never_an_error(raw):
    assert same_json(raw, b"{}") is False and same_json(b"{}", raw) is False


def test_members_are_cut_out_verbatim():
    """A5.4: what is recorded is spelled as the server spelled it."""
    rng = seeded("members")
    for _ in range(800):
        pairs = [(any_string(rng), spell(rng, any_value(rng, 2)).strip()) for _ in range(rng.randrange(5))]
        text = "{%s}" % ",".join("%s %s :%s %s" % (rng.choice(("", " ")), json.dumps(name), rng.choice(("", "\t ")), value)
                                 for name, value in pairs)
        found = members(text.encode("utf-8"))
        assert found == {name: value.encode("utf-8") for name, value in pairs}


def test_members_of_a_line_of_any_bytes_like():
    line = b' {"a" : 1.0 , "b":[ 1,{"a":2} ],"\\u0061":"\xe2\x82\xac" } \n'
    wanted = {"a": b'"\xe2\x82\xac"', "b": b'[ 1,{"a":2} ]'}
    assert members(line) == wanted and members(bytearray(line)) == wanted
    assert members(b"{}") == {} and members(b" { } ") == {}


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b'"a"', b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b"{a:1}", b'{"a":nope}', b"\xff", b'{"a":"\xff"}',
                                 b'{"a":' + b"[" * 100000, b'{"a":' + b"1" * 5000 + b"}"], ids=lambda raw: ascii(raw[:10]))
def test_members_of_what_is_no_object_is_a_value_error(raw):
    with pytest.raises(ValueError):
        members(raw)


@pytest.mark.parametrize("raw", [b'{"a":1} x', b'{"a":1}{"b":2}', b'{"a":1}}', b'{"a" 1}', b'{"a";1}', b'{"a":1 "b":2}', b'{"a":1,}', b'{"a":1;"b":2}'], ids=ascii)
def test_members_wants_one_whole_object(raw):
    with pytest.raises(ValueError):
        members(raw)


CORPUS = Path(os.environ.get("MCP_LAZY_CORPORA") or "nowhere") / "json-test-suite"


def test_the_json_test_suite_is_judged_as_json_judges_it():
    """y_ accepted, n_ refused, i_ (free) as `json` does."""
    if not CORPUS.is_dir():
        pytest.skip("MCP_LAZY_CORPORA does not name a folder with json-test-suite in it")
    deviations, seen = [], 0
    for path in sorted(CORPUS.glob("*.json")):
        raw, kind, seen = path.read_bytes(), path.name[0], seen + 1
        try:
            value, mine = parse_json(raw), True
        except ValueError:
            value, mine = None, False
        try:
            wanted, theirs = oracle(raw.decode("utf-8")), True
        except (ValueError, RecursionError):
            wanted, theirs = None, False
        if mine != {"y": True, "n": False}.get(kind, theirs) or repr(value) != repr(wanted):
            deviations.append(path.name)
        envelope = read_envelope(raw)
        assert envelope.kind in (REQUEST, NOTIFICATION, RESPONSE, BATCH, ODD, BAD)
        if kind == "y":
            assert envelope.kind in ([BATCH] if isinstance(value, list) else [ODD, RESPONSE]), path.name
    assert seen > 200 and deviations == []


# -------------------------------------------------------------------------------------- envelopes

KINDS = [
    (b'{"jsonrpc":"2.0","id":1,"method":"a"}', REQUEST, "a", b"1"),
    (b'{"jsonrpc":"2.0","id":1,"method":"a","params":{}}', REQUEST, "a", b"1"),
    (b'{"method":"a","params":{"id":7},"jsonrpc":"2.0","id":"x"}', REQUEST, "a", b'"x"'),
    (b'{"jsonrpc":"2.0","method":"a"}', NOTIFICATION, "a", None),
    (b'{"jsonrpc":"2.0","method":"a","id":null}', NOTIFICATION, "a", None),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', RESPONSE, None, b"1"),
    (b'{"result":null,"id":1,"jsonrpc":"2.0"}', RESPONSE, None, b"1"),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"method"}}', RESPONSE, None, b"1"),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}', RESPONSE, None, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', BATCH, None, None),
    (b"[]", BATCH, None, None),
    (b"{}", ODD, None, None),
    (b'{"jsonrpc":"2.0","id":1}', RESPONSE, None, b"1"),  # of a request that went wrong
    (b'{"jsonrpc":"2.0","id":1,"method":5}', ODD, None, b"1"),
    (b'{"jsonrpc":"2.0","id":1,"method":null,"result":{}}', ODD, None, b"1"),
    (b"1", ODD, None, None),
    (b'"{}"', ODD, None, None),
    (b"null", ODD, None, None),
    (b"", BAD, None, None),
    (b" ", BAD, None, None),
    (b"{", BAD, None, None),
    (b"{} {}", BAD, None, None),
    (b"hello", BAD, None, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"a"', BAD, None, None),
    (b'\xff{"jsonrpc":"2.0","id":1,"method":"a"}', BAD, None, None),
    (b"Content-Length: 12\r", BAD, None, None),
]


@pytest.mark.parametrize("line, kind, method, id_raw", KINDS, ids=lambda value: ascii(value)[:60])
def test_what_a_line_is(line, kind, method, id_raw):
    """A7.14, A7.15."""
    for ending in (b"", b"\n", b"\r\n", b" \t\n"):
        for form in (bytes, bytearray):
            env = read_envelope(form(line + ending))
            assert (env.kind, env.method) == (kind, method)
            if kind in (REQUEST, NOTIFICATION, RESPONSE):
                assert env.id_raw == id_raw and (env.id_key is None) == (id_raw is None)


def test_a7_14_names_are_exact_and_the_last_duplicate_counts():
    assert read_envelope(b'{"METHOD":"a","ID":1}').kind == ODD
    env = read_envelope(b'{"id":1,"method":"a","id":2,"method":"b"}')
    assert (env.kind, env.method, env.id_key, env.id_raw) == (REQUEST, "b", 2, b"2")
    env = read_envelope(b'{"id":1,"method":"a","id":null}')
    assert (env.kind, env.id_key) == (NOTIFICATION, None)


def test_names_and_values_may_be_escaped():
    env = read_envelope(b'{"\\u0069d":"\\u0061\\/","meth\\u006fd":"tools\\/call"}')
    assert (env.kind, env.method, env.id_key, env.id_raw) == (REQUEST, "tools/call", "a/", b'"\\u0061\\/"')


IDS = [b"0", b"1", b"-1", b"1.0", b"1e0", b"1.5", b"9007199254740993", b"123456789012345678901234567890", b"1e400", b'""', b'"1"', b'"a\\"b"',
       b'"\\u0041"', b'"A"', b'"\xe2\x82\xac"', b'"\\ud800"', b'"null"', b"true", b"false", b"[1]", b"[]", b'{"a":1}', b"-0", b"0.0", b"1" * 4000]


@pytest.mark.parametrize("raw", IDS, ids=lambda raw: ascii(raw[:20]))
def test_a7_16_an_id_of_any_shape_is_kept_as_it_is_spelled(raw):
    for template in (b'{"jsonrpc":"2.0","id":%s,"method":"a"}', b'{"method":"a","id": %s }', b'{"method":"a","params":{"t":"\\\\"},"id":%s}\n',
                     b'{"id":%s,"method":"a","params":{"pad":"' + b"p" * 2000 + b'"}}\n'):
        env = read_envelope(template % raw)
        assert (env.kind, env.method) == (REQUEST, "a")
        assert env.id_raw == raw
        hash(env.id_key)


SAME_IDS = [("1", "1.0"), ("1", "1e0"), ("0", "-0"), ('"A"', '"\\u0041"'), ("100", "1E2"), ('"/"', '"\\/"')]
OTHER_IDS = [("1", '"1"'), ("1", "true"), ("0", "false"), ('""', "0"), ("9007199254740993", "9007199254740992"), ('"null"', "0"), ("1.5", "1"),
             ("1e400", "1e401")]


def keys_of(one, other):
    return [read_envelope(('{"id":%s,"method":"a"}' % text).encode()).id_key for text in (one, other)]


@pytest.mark.parametrize("one, other", SAME_IDS)
def test_a7_16_ids_match_by_value(one, other):
    left, right = keys_of(one, other)
    assert left == right and hash(left) == hash(right)


@pytest.mark.parametrize("one, other", OTHER_IDS)
def test_a7_16_ids_differ_by_type_and_value(one, other):
    left, right = keys_of(one, other)
    assert left != right


def any_message(rng, containers=1):
    """[(name, raw value)] of a message as SDKs and odd peers write it, and the index of a container to make long (or None)."""
    pairs = []
    if rng.random() < 0.9:
        pairs.append(("jsonrpc", '"2.0"'))
    ident = rng.choice(("1", "17", '"a-1"', "1.0", "null", '"\\u0069d"', '"\\"id\\":4"', "true", "9007199254740993", '"}{"', "-5", '""'))
    if rng.random() < 0.7:
        pairs.append(("id", ident))
    shape = rng.randrange(5)
    big = json.dumps({"text": any_string(rng), "n": any_string(rng)}) if rng.random() < 0.5 else spell(
        rng, {"a": any_value(rng, 2), "b": any_string(rng), "c": any_value(rng, 2)})
    if shape < 3:
        pairs.append(("method", rng.choice(('"tools/call"', '"a"', '"notifications/progress"', '"\\u0061"', "5", '""', '"method"'))))
        if rng.random() < 0.8:
            pairs.append(("params", big))
    elif shape == 3:
        pairs.append(("result", big))
    else:
        pairs.append(("error", big))
    for _ in range(containers - 1):
        pairs.append((rng.choice(("_meta", "extra")), spell(rng, {"x": any_value(rng, 1)})))
    if rng.random() < 0.2:
        pairs.append((rng.choice(("id", "extra")), rng.choice(("2", '"z"', "null", '"} ]"'))))
    rng.shuffle(pairs)
    return pairs


def text_of(rng, pairs, spaces):
    gap = (lambda: rng.choice(("", "", " ", "\t", "  "))) if spaces else (lambda: "")
    return gap() + "{" + ",".join(gap() + '"%s"' % name + gap() + ":" + gap() + raw + gap() for name, raw in pairs) + "}" + gap()


def padded(rng, pairs, size=2000):
    """The same message with its last container made long by a member that is no message member."""
    found = [index for index, (_, raw) in enumerate(pairs) if raw.startswith("{")]
    if not found:
        return pairs + [("pad", '"%s"' % ("\\\\\\\"}{][," * (size // 10)))]
    index = rng.choice(found)
    pad = '"pad":"%s"' % rng.choice(("p" * size, "\\\\" * (size // 2), '\\"id\\":1,' * (size // 9), "}{][,:" * (size // 6)))
    name, raw = pairs[index]
    inner = raw[1:-1].strip()
    raw = "{" + (pad + "," + inner if rng.random() < 0.5 and inner else inner + "," + pad if inner else pad) + "}"
    return pairs[:index] + [(name, raw)] + pairs[index + 1:]


def said(env):
    return env.kind, env.method, env.id_key, env.id_raw if env.kind != ODD else None


def wanted_of(text):
    """(kind, method) by `json`."""
    found = oracle(text)
    method, ident = found.get("method"), found.get("id")
    if isinstance(method, str):
        return (NOTIFICATION if ident is None else REQUEST), method
    if "method" not in found and (ident is not None or "result" in found or "error" in found):
        return RESPONSE, None
    return ODD, None


def check_long_like_short(rng, containers):
    for number in range(1200):
        pairs = any_message(rng, containers)
        spaces = rng.random() < 0.3
        short = text_of(rng, pairs, spaces)
        long = text_of(rng, padded(rng, pairs), spaces)
        assert len(long) > 1024
        if len(short) <= 1000:
            env = read_envelope(short.encode() + b"\n")
            assert (env.kind, env.method) == wanted_of(short), short
            got = read_envelope(long.encode() + b"\n")
            if env.kind == ODD:
                assert got.kind == ODD, long
            else:
                assert (got.kind, got.method, got.id_key, got.id_raw) == (env.kind, env.method, env.id_key, env.id_raw), long


def test_a_long_line_is_judged_as_a_short_one():
    check_long_like_short(seeded("long"), 1)


def test_a_long_line_with_several_containers_is_judged_as_a_short_one():
    check_long_like_short(seeded("long-several"), 3)


def test_nothing_inside_the_params_of_a_long_line_fools():
    """Strings full of quotes, backslashes and braces, members named id and method further inside."""
    rng = seeded("inside")
    for _ in range(400):
        inside = spell(rng, {any_string(rng): any_value(rng, 3), "id": any_value(rng, 1), "method": any_string(rng), "t": "\\\"" * rng.randrange(600)})
        pad = "x" * rng.choice((1100, 3000))
        for line in ('{"jsonrpc":"2.0","id":5,"method":"m","params":{"p":"%s","q":%s}}' % (pad, inside),
                     '{"method":"m","params":{"q":%s,"p":"%s"},"jsonrpc":"2.0","id":5}' % (inside, pad),
                     '{"jsonrpc":"2.0","method":"m","params":[%s,"%s"],"id":5}' % (inside, pad)):
            env = read_envelope(line.encode() + b"\n")
            assert (env.kind, env.method, env.id_key, env.id_raw) == (REQUEST, "m", 5, b"5"), line


@pytest.mark.parametrize("size", [70000, 300000, 2000000])
def test_huge_lines_in_the_orders_of_the_sdks(size):
    text = '\\"id\\":9,{"id":9}]}'.replace('"id":9}', '\\"id\\":9}') * (size // 20)
    big = '{"content":[{"type":"text","text":"%s"}],"id":8,"method":"no"}' % text
    lines = [
        ('{"jsonrpc":"2.0","id":3,"result":%s}', RESPONSE, None),            # Python, Go
        ('{"result":%s,"jsonrpc":"2.0","id":3}', RESPONSE, None),            # JavaScript
        ('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":%s}', REQUEST, "tools/call"),
        ('{"method":"tools/call","params":%s,"jsonrpc":"2.0","id":3}', REQUEST, "tools/call"),
        ('{ "jsonrpc" : "2.0", "method" : "tools/call", "params" : %s , "id" : 3 }', REQUEST, "tools/call"),
    ]
    for form, kind, method in lines:
        env = read_envelope((form % big).encode() + b"\n")
        assert (env.kind, env.method, env.id_key, env.id_raw) == (kind, method, 3, b"3")
    env = read_envelope(('{"method":"notifications/x","params":%s,"jsonrpc":"2.0"}' % big).encode())
    assert (env.kind, env.method, env.id_key) == (NOTIFICATION, "notifications/x", None)


def test_a7_14_a_second_member_behind_the_container_of_a_long_line_wins():
    pad = '{"p":"%s"}' % ("x" * 2000)
    env = read_envelope(('{"id":1,"method":"a","params":%s,"id":2,"method":"b"}' % pad).encode())
    assert (env.kind, env.method, env.id_key) == (REQUEST, "b", 2)
    env = read_envelope(('{"id":1,"method":"a","params":%s,"id":2,"extra":%s}' % (pad, pad)).encode())
    assert (env.kind, env.id_key) == (REQUEST, 2)
    env = read_envelope(('{"id":1,"method":"a","params":%s,"\\u0069d":2,"extra":{}}' % pad).encode())
    assert (env.kind, env.id_key) == (REQUEST, 2)


def test_garbage_of_any_kind_is_an_envelope():
    rng = seeded("garbage")
    good = b'{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2,"\\u00e9\\"}"]}}}'
    for number in range(3000):
        if number % 3 == 0:
            line = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
        else:
            line = bytearray(good if number % 3 == 1 else good.replace(b'"x"', b'"%s"' % (b"x" * 1500)))
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(line))
                line[at:at + rng.choice((0, 1, 5))] = bytes([rng.choice(b'"\\{}[],:0n \xff\x00\n')]) * rng.choice((0, 1, 1, 3))
        env = read_envelope(bytes(line))
        assert env.kind in (REQUEST, NOTIFICATION, RESPONSE, BATCH, ODD, BAD)
        assert env.kind != REQUEST or env.id_key is not None


def test_garbage_in_an_interpreter_that_never_loaded_json():
    """The C scanner of 3.9 to 3.12 raises SystemError where `json.decoder` was not imported."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import mcp_lazy as m\n"
        "assert 'json' not in sys.modules and 'json.decoder' not in sys.modules\n"
        "for raw in (b'', b'{', b'{\"a\"', b'{\"a\":', b'{\"a\":1', b'[1,', b'nope', b'\"', b'\"\\\\', b'\"\\\\u12', b'\"\\\\q\"', b'{1:2}', b'[' * 99999):\n"
        "    assert m.read_envelope(raw).kind == m.BAD, raw\n"
        "    for read in (m.parse_json, m.members):\n"
        "        try: read(raw)\n"
        "        except ValueError: pass\n"
        "        else: raise SystemExit(repr(raw))\n"
        "print('good')\n")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(MODULE.parent)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout == b"good\n"


def test_deep_nesting_is_still_a_message():
    for depth in (900, 5000, 200000):
        for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            env = read_envelope(('{"jsonrpc":"2.0","id":4,"method":"m","params":{"d":%s}}\n' % text).encode())
            assert (env.kind, env.method, env.id_key, env.id_raw) == (REQUEST, "m", 4, b"4")
        assert read_envelope(b"[" * depth).kind == BAD
    short = b'{"jsonrpc":"2.0","id":4,"method":"m","params":' + b"[" * 480 + b"]" * 480 + b"}"
    assert read_envelope(short).kind == REQUEST


def test_integers_of_5000_digits_are_still_a_message():
    env = read_envelope(b'{"jsonrpc":"2.0","id":4,"method":"m","params":{"n":%s}}\n' % (b"7" * 5000))
    assert (env.kind, env.method, env.id_key, env.id_raw) == (REQUEST, "m", 4, b"4")
    env = read_envelope(b'{"jsonrpc":"2.0","id":%s,"method":"m"}\n' % (b"7" * 5000))
    assert env.kind in (REQUEST, BAD), "an id beyond what CPython reads: no error at least"


def test_the_params_of_an_envelope():
    for pad in ("", "x" * 3000):
        line = ('{"jsonrpc":"2.0","id":1,"method":"a","params":{"p":"%s","n":1.5}}\n' % pad).encode()
        assert read_envelope(line).params(line) == {"p": pad, "n": 1.5}
    line = b'{"jsonrpc":"2.0","id":1,"method":"a"}'
    assert read_envelope(line).params(line) is None
    line = b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"p":"%s", oops}}' % (b"x" * 3000)
    assert read_envelope(line).params(line) == (), "no object and no None where they cannot be read"


def items_of(line):
    return [item for item, _ in mcp_lazy.envelopes_of(read_envelope(line), line)]


def test_a7_15_the_items_of_a_batch():
    """A7.16: an id keeps its spelling, and what may be passed on alone its bytes."""
    line = b'[{"id":1.0,"method":"a"},{"method":"b"},{"id":"\\u0041","result":{}},5,[],{"id":true,"method":"c"}]'
    items = items_of(line)
    assert [(item.kind, item.method, item.id_key) for item in items[:3]] == [(REQUEST, "a", 1), (NOTIFICATION, "b", None), (RESPONSE, None, "A")]
    assert [item.kind for item in items[3:]] == [ODD, ODD, REQUEST]
    assert [item.id_raw for item in items if item.id_key is not None] == [b"1.0", b'"\\u0041"', b"true"]
    spaced = b'\n [ {"b":1.0,\t"a": "\xc3\xa9]"} ,[1, 2] ,\r"x"]\n'
    for line in (spaced, bytearray(spaced)):
        pairs = mcp_lazy.envelopes_of(read_envelope(line), line)
        assert [raw for _, raw in pairs] == [b'{"b":1.0,\t"a": "\xc3\xa9]"}', b"[1, 2]", b'"x"']
    for line in (b"[]", b" [ ]\n", b"[" + b" " * mcp_lazy.PARSED_BYTES + b"5]"):
        assert mcp_lazy.envelopes_of(read_envelope(line), line) == []


def test_a7_15_a_deep_batch_and_its_ids_are_no_error():
    for depth in (400, 950, 3000):
        line = b'[{"id":1,"method":"a","params":' + b"[" * depth + b"]" * depth + b"}]"
        env = read_envelope(line)
        assert env.kind in (BATCH, BAD)
        try:
            items = items_of(line)
        except RecursionError:  # its traceback takes pytest a minute
            items = None
        assert items is not None, "RecursionError at a depth of %d" % depth
        assert all((item.kind, item.id_key) == (REQUEST, 1) for item in items)


def test_a7_15_an_id_of_a_batch_that_is_no_finite_float():
    (item,) = items_of(b'[{"id":1e400,"method":"a"}]')
    assert item.id_raw == b"1e400"


# ------------------------------------------------------------------------------ blocks of notifications

SENT = ('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"}\\n{ %d"}}',
        '{"method":"notifications/progress","params":{"n":%d},"jsonrpc":"2.0"}',
        '{"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": %d}}')
MIXED_IN = ('{"jsonrpc":"2.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0","id":1,"result":{}}', '{"result":{},"jsonrpc":"2.0","id":4}',
            '{"jsonrpc":"2.0","method":"a","\\u0069d":1}', '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
            '{"jsonrpc":"2.0","\\u006dethod":"notifications/tools/list_changed"}', '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
            "some text", "", "[]", "{}", "}", "{", '{"jsonrpc":"2.0"', '[{"jsonrpc":"2.0","method":"a"}]', '"x"', '{"jsonrpc": "2.0", "id": 3, "method": "m"}',
            ' {"jsonrpc":"2.0","method":"a"}', '{"jsonrpc":"2.0","method":"a"} ', '{"jsonrpc":"1.0","method":"a"}', '{"method":"a"}')


def judged(block):
    """True if each line alone is a JSON-RPC 2.0 notification, and none is about a changed list."""
    envelopes = [read_envelope(line) for line in block[:-1].split(b"\n")]
    return all(env.kind == NOTIFICATION and env.version2 and "list_changed" not in env.method for env in envelopes)


def test_a_block_of_notifications_is_seen_as_one():
    for form in SENT:
        for count in (1, 2, 300):
            assert all_notifications("".join(form % n + "\n" for n in range(count)).encode()), form


def test_a_block_with_anything_else_in_it_is_not():
    rng = seeded("blocks")
    passed = 0
    for _ in range(4000):
        form = rng.choice(SENT)
        lines = [(form if rng.random() < 0.9 else rng.choice(SENT)) % rng.randrange(100) for _ in range(rng.randrange(1, 6))]
        for _ in range(rng.choice((0, 1, 1, 2))):
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(MIXED_IN))
        block = "".join(line + "\n" for line in lines).encode()
        found = all_notifications(block)
        passed += found
        assert not found or judged(block), block
    assert passed > 300


@pytest.mark.parametrize("line", MIXED_IN, ids=ascii)
def test_one_odd_line_in_a_block_is_seen_wherever_it_stands(line):
    if judged(line.encode() + b"\n"):
        return
    for form in SENT:
        good = [form % n for n in range(3)]
        for at in range(4):
            assert not all_notifications("".join(one + "\n" for one in good[:at] + [line] + good[at:]).encode())


def test_a_block_where_one_line_has_two_methods_and_another_none():
    """A count of `"method"` alone does not tell which line it stands in."""
    two = '{"jsonrpc":"2.0","method":"a","params":{"method":"b"}}\n'
    for none in ('{"jsonrpc":"2.0","result":{}}\n', '{"jsonrpc":"2.0","params":{}}\n'):
        for block in (two + none, none + two, two + two + none):
            assert not all_notifications(block.encode()), block
    assert not all_notifications(b'{"jsonrpc":"2.0","x":"method"}\n')


def test_an_unended_block_is_not():
    for block in (b"", b"\n", b"{", b'{"jsonrpc":"2.0","method":"a"}', b'{"jsonrpc":"2.0","method":"a"}\n{"jsonrpc":"2.0","method":"a"}'):
        assert not all_notifications(block)


# ------------------------------------------------------------------- progress tokens and open requests

TOKENS = ("1", "0", "-1", "7777777", "1" + "0" * 30, '"1"', '""', '"a"', '"a b"', '"null"', '"a:b"', '"{"', '"[x]"', '"a\\\\b"', '"a\\"b"',
          '"\u00e9"', '"\\u00e9"', '"\\ud83d\\ude00"', '"' + "t" * 200 + '"')
NO_TOKENS = ("true", "false", "null", "1.0", "1e3", "1.5", "[]", "[1]", "{}", '{"a":1}', "[[[[[[]]]]]]", "1" + "0" * 5000)
PAD = "x" * 3 * SHORT_BYTES
FORMS = {
    "short": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":%s}}}',
    "spaced": '{ "jsonrpc" : "2.0", "id" : 1, "method" : "tools/call", "params" : { "_meta" : { "progressToken" : %s , "b" : 1 } } }',
    "head": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":%s},"arguments":{"a":"' + PAD + '"}}}',
    "head, spaced": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken" : %s , "b":1},"a":"' + PAD + '"}}',
    "tail": '{"method":"tools/call","params":{"arguments":{"a":"' + PAD + '"},"_meta":{"progressToken":%s}},"jsonrpc":"2.0","id":1}',
    "tail, spaced": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"' + PAD + '","_meta":{"progressToken"\t:\t%s\t}}}',
}


def token_of(text):
    """The token of a request, whatever kind of bytes its line comes in."""
    raw = text.encode("utf-8")
    found = {progress_token(read_envelope(one), one) for one in (raw, raw + b"\n", bytearray(raw))}
    assert read_envelope(raw).kind == REQUEST and len(found) == 1, found
    return found.pop()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", TOKENS, ids=ascii)
def test_a_progress_token_is_found_in_short_lines_and_at_both_ends_of_long_ones(text, form):
    value = json.loads(text)
    assert token_of(FORMS[form] % text) == token_key(value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", NO_TOKENS, ids=lambda text: text[:10])
def test_what_is_no_progress_token_is_none(text, form):
    assert token_of(FORMS[form] % text) is None


@pytest.mark.parametrize("text", ['"a,b"', '"a}b"', '"},{"'])
@pytest.mark.parametrize("form", FORMS)
def test_a_progress_token_with_signs_of_json_in_it(form, text):
    assert token_of(FORMS[form] % text) == json.loads(text)


def test_a_progress_token_is_found_wherever_it_stands_in_a_line_of_up_to_2_mib():
    """And only in `_meta` of the params (issue 3, point 6)."""
    begin = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"'
    for line in (begin + PAD + '","_meta":{"progressToken":12345},"b":"' + PAD + '"}}',
                 begin + PAD + '","_meta":{"b":"' + PAD + '","progressToken":12345},"arguments":{"progressToken":"no"}}}'):
        assert token_of(line) == token_key(12345)
    assert token_of(begin + PAD + '","arguments":{"progressToken":"no"}}}') is None


def test_a_progress_token_that_the_looked_at_part_cuts_is_none_and_never_another():
    """Not 12 for 12345: a progress for 12 would be dropped. Only the ends of a line over 2 MiB are looked at."""
    found, pad = set(), "x" * mcp_lazy.PARSED_BYTES
    begin = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"'
    for size in range(SHORT_BYTES - 60, SHORT_BYTES + 20, 4):
        for line in (begin + "x" * (size - len(begin)) + '","_meta":{"progressToken":12345},"b":"' + pad + '"}}',
                     begin + pad + '","_meta":{"progressToken":12345},"b":"' + "x" * (size - 9) + '"}}'):
            found.add(token_of(line))
    assert found == {token_key(12345), None}


@pytest.mark.parametrize("params", [
    "", ',"params":null', ',"params":[]', ',"params":"progressToken"', ',"params":5', ',"params":{}', ',"params":{"progressToken":1}',
    ',"params":{"_meta":null}', ',"params":{"_meta":[]}', ',"params":{"_meta":["progressToken",1]}', ',"params":{"_meta":{}}',
    ',"params":{"_meta":{"a":{"progressToken":1}}}', ',"params":{"arguments":{"progressToken":1}}',
    ',"params":{"_meta":{"x":"\\"progressToken\\":1"}}'])
def test_a_request_without_a_progress_token_has_none(params):
    assert token_of('{"jsonrpc":"2.0","id":1,"method":"tools/call"%s}' % params) is None


def test_a_progress_token_that_is_only_quoted_in_a_long_line_is_none():
    quoted = json.dumps('{"progressToken":1,"progressToken": 2}')
    for text in ('{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":%s,"b":"%s"}}' % (quoted, PAD),
                 '{"jsonrpc":"2.0","id":1,"method":"a","params":{"b":"%s","a":%s}}' % (PAD, quoted)):
        assert token_of(text) is None


def test_token_keys_tell_types_apart():
    assert len({token_key(value) for value in (1, "1", 0, "0", "", -1, "-1", -2, "-2")}) == 9
    for value in (1, "a", -5, 2 ** 64 - 1, "x" * TOKEN_CHARS):
        assert token_key(value) == value and type(token_key(value)) is type(value)
    for value in (None, True, False, 1.0, 0.0, [], {}, (), b"1"):
        assert token_key(value) is None, value


def test_token_keys_of_what_is_long_are_short_and_differ():
    """What is kept of a token does not depend on its length."""
    for value, other in ((2 ** 64, 2 ** 64 + 1), (-2 ** 100, 2 ** 100), (10 ** 4000, 10 ** 4000 + 1), ("x" * 10 ** 6, "x" * 10 ** 6 + "y"),
                         ("\u20ac", "\u20ad"), ("\ud800", "\ud801"), ("x" * 65, "y" * 65)):
        again = int(str(value)) if type(value) is int else "".join(list(value))
        assert token_key(value) == token_key(again) != token_key(other) and type(token_key(value)) is tuple
        assert sys.getsizeof(token_key(value)) + sum(map(sys.getsizeof, token_key(value))) < 150


def flight(ident=1, token="t", queued=False, startup=False):
    one = Flight(read_envelope(b'{"jsonrpc":"2.0","id":%d,"method":"m"}' % ident), 0.0, queued)
    one.token, one.startup = token_key(token), startup
    return one


def flights(*ones):
    found = Flights()
    for one in ones:
        found.add(one)
    return found


def late(found):
    return list(found.late)


CLOSED = {"taken": lambda found, one: found.take(one.key) is one, "closed": lambda found, one: found.close(one),
          "overdue": lambda found, one: found.overdue(one) is None}


@pytest.mark.parametrize("how", CLOSED)
def test_late_a_request_that_is_over_leaves_its_token(how):
    for token in (1, "1", "", 0):
        one, other = flight(1, token), flight(2, "other")
        found = flights(one, other)
        assert not found.late
        assert CLOSED[how](found, one) and list(found.late) == [token_key(token)] and list(found) == [other]


@pytest.mark.parametrize("how", CLOSED)
def test_late_nothing_comes_for_what_was_never_sent_or_has_no_token(how):
    for one in (flight(queued=True), flight(token=None), flight(token=1.5)):
        assert CLOSED[how](flights(one), one)
        found = flights(one)
        CLOSED[how](found, one)
        assert not found.late and not found


def test_late_what_was_queued_and_then_sent_counts():
    one = flight(queued=True)
    found = flights(one)
    one.queued = False
    found.close(one)
    assert late(found) == ["t"]


def test_late_a_token_in_use_again_is_not_late():
    found = flights(flight(1))
    found.take(1)
    found.add(flight(2))
    assert not found.late
    found.take(2)
    assert late(found) == ["t"]
    found.add(flight(3, "t", queued=True))
    assert not found.late, "nothing can come for the old one before this one is sent, but it is going to be"
    found = flights(flight(1, 1))
    found.take(1)
    found.add(flight(2, "1"))
    assert late(found) == [1], "1 is not \"1\""


def test_late_a_token_that_another_open_request_has_is_not_late():
    one, other = flight(1), flight(2)
    found = flights(one, other)
    found.close(one)
    assert not found.late
    found.close(other)
    assert late(found) == ["t"]


def test_late_put_back_is_open_again():
    one = flight(startup=True)
    found = flights()
    found.add(one)
    found.startup = 1
    taken = found.take(1)
    assert late(found) == ["t"] and found.startup == 0
    found.put_back(taken)
    assert not found.late and found.startup == 1 and list(found) == [one]
    assert found.take(1) is one and late(found) == ["t"] and found.startup == 0


def test_late_what_is_closed_twice_is_closed_once():
    one = flight()
    found = flights(one)
    assert found.close(one) is True
    found.late.clear()
    assert found.close(one) is False and found.take(1) is None and not found.late


def test_late_an_id_in_use_twice_has_two_tokens():
    found = flights(flight(1, "a"), flight(1, "b"))
    found.take(1)
    assert late(found) == ["a"]
    found.take(1)
    assert late(found) == ["a", "b"] and found.take(1) is None


def test_late_the_last_4096_tokens_are_known_and_few_more():
    found, most = flights(), MAX_LATE + LATE_STEP
    for number in range(3 * MAX_LATE):
        found.add(flight(number, number))
        found.take(number)
        assert len(found.late) <= most
    assert late(found)[-MAX_LATE:] == list(range(2 * MAX_LATE, 3 * MAX_LATE)) and MAX_LATE == 4096
    found.add(flight(1, "new"))
    found.take(1)
    kept, first = len(found.late), late(found)[0]
    assert late(found)[-1] == "new" and "new" not in late(found)[:-1]
    for _ in range(3):
        found.add(flight(1, "new"))
        found.take(1)
    assert len(found.late) == kept and late(found)[0] == first, "one that comes again takes no second place"


@pytest.mark.parametrize("token", [lambda number: number, lambda number: "%032x-%03d" % (number, 1), lambda number: str(number) * 5000,
                                   lambda number: "\U0001f600" * 60 + str(number), lambda number: 10 ** 4000 + number],
                         ids=["integer", "uuid", "long", "wide", "digits"])
def test_late_tokens_cost_less_than_a_mebibyte(token):
    """The bound that stands at MAX_LATE: measured, whatever the client takes for a token."""
    found = flights()
    tracemalloc.start()
    for number in range(MAX_LATE + LATE_STEP):
        found.no_more(token_key(token(number)))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found.late) == MAX_LATE + LATE_STEP and size < 0.9 * 2 ** 20, size


def test_late_a_token_that_is_open_is_not_called_late():
    found = flights(flight(1, "open"))
    found.no_more("open")
    found.no_more(None)
    assert late(found) == []


def test_late_what_was_cancelled_inside_a_queued_array_is_sent_all_the_same():
    one = Flight(read_envelope(b'{"jsonrpc":"2.0","id":1,"method":"m"}'), 0.0, True, 3)
    one.token = "t"
    found = flights(one)
    found.take(1)
    assert late(found) == ["t"]


def test_late_is_forgotten_with_the_process():
    found = flights(flight(1, "a"), flight(2, "b", startup=True))
    found.startup = 1
    found.take(1)
    assert late(found) == ["a"]
    assert [one.key for one in found.take_all()] == [2]
    assert not found.late and not found and found.startup == 0


def test_late_answers_of_overdue_requests_are_counted_apart():
    one, other = flight(1, "a"), flight(1, "b")
    found = flights(one, other)
    found.overdue(one)
    found.overdue(other)
    assert late(found) == ["a", "b"]
    assert [found.was_overdue(1) for _ in range(3)] == [True, True, False] and late(found) == ["a", "b"]
    found = flights()
    for number in range(MAX_OVERDUE + 1):
        one = flight(number, number)
        found.add(one)
        found.overdue(one)
    assert found.was_overdue(0) and not found.was_overdue(MAX_OVERDUE) and len(found.late) >= MAX_LATE


# ---------------------------------------------------------------------------------------- answers

def test_what_is_built_is_valid_json_on_one_line():
    rng = seeded("answers")
    for _ in range(500):
        text, raw = any_string(rng), spell(rng, any_value(rng, 2)).encode()
        ident = rng.choice((b"1", b'"a"', b"1.0", b'"\\u0041"', b"null"))
        error = mcp_lazy.error_object(-32000, text)
        assert json.loads(error) == {"code": -32000, "message": text} and b"\n" not in error and error.isascii()
        line = mcp_lazy.error_line(ident, error)
        assert line[-1:] == b"\n" and json.loads(line) == {"jsonrpc": "2.0", "id": json.loads(ident), "error": json.loads(error)}
        line = mcp_lazy.result_line(ident, raw)
        assert line.startswith(b'{"jsonrpc":"2.0","id":%s,' % ident) and line.count(b"\n") == 1
        assert members(line)["result"] == raw.strip() and members(line)["id"] == ident
        assert json.loads(mcp_lazy.json_string(text)) == text


def test_a7_15_the_errors_of_a_batch_are_one_array():
    line = mcp_lazy.errors_array([b"1", b'"a"'], mcp_lazy.error_object(-32000, "gone"))
    assert line.count(b"\n") == 1 and line[-1:] == b"\n"
    assert [(item["id"], item["error"]["message"]) for item in json.loads(line)] == [(1, "gone"), ("a", "gone")]
