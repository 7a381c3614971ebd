"""L13c: the hub's log and its failures, and what neither tells (G5.2, G9.3, G9.4, G15; cases 195, 197 to 199, 201).

`LogOptions` stands here again, as the layer takes any record with these fields.
"""

import json
import os
import time
from collections import namedtuple
from pathlib import Path

import pytest

from generated import any_value, seeded, spell
from mcp_lazy import (HubError, HubLog, Redaction, classify_failure, error_result, redacted, redacted_text, stderr_end)

LogOptions = namedtuple("LogOptions", "level format dump_bodies max_body_bytes redact_keys")
NOW_S = 1764000000.1239
STAMP = "2025-11-24T16:00:00.123Z"
MIB, BIG = 1 << 20, 1 << 18
SECRETS = frozenset((b"S3CR3T-env-1", b"S3CR3T-env-2", b"Bearer S3CR3T-hdr-1", b"S3CR3T-hdr-2",
                     b'quo"te\\back\nand-line-2', "schl\u00fcssel/\u20ac".encode("utf-8"), b"\xff\xfe-raw-bytes",
                     b"https://user:S3CR3T-url-1@h.example/mcp"))


class Log(HubLog):
    """A log whose lines are kept."""

    def __init__(self, secrets=SECRETS, level="debug", style="json", dump=True, most=8192, keys=()):
        self.raw = []
        super().__init__(self.raw.append, LogOptions(level, style, dump, most, keys), secrets)

    @property
    def lines(self):
        return [json.loads(raw, parse_constant=lambda name: pytest.fail(name + " is no JSON")) for raw in self.raw]

    @property
    def text(self):
        return b"".join(self.raw).decode("utf-8")


def plain(text):
    """The text behind all escapes, so that no spelling of a secret is overlooked."""
    for _ in range(4):
        text = text.replace("\\\\", "\\").replace('\\"', '"').replace("\\/", "/").replace("\\n", "\n")
    return text


# -- the form of a line ----------------------------------------------------------

def test_json_line():
    """G15.2: timestamp, level and message first, fields in order, None left out, one line of JSON."""
    log = Log()
    log.event("info", "server a is live", NOW_S, event="server_state", server="a", reason=None, attempt=2, ok=True,
        ms=1.5, tags=["x"])
    assert log.raw[0].endswith(b"}\n") and log.raw[0].count(b"\n") == 1
    assert list(log.lines[0].items()) == [
        ("timestamp", STAMP), ("level", "info"), ("message", "server a is live"), ("event", "server_state"),
        ("server", "a"), ("attempt", 2), ("ok", True), ("ms", 1.5), ("tags", ["x"])]


def test_plain_line():
    """G15.2: [timestamp] LEVEL message key=value; a value that could be taken for two is quoted."""
    log = Log(style="plain")
    log.event("error", 'no "key"\nhere', NOW_S, server="a", reason="exit status 1", pair="a=b", empty="", n=3,
        none=None, l=[1])
    assert log.text == STAMP.join(("[", "] ")) + (
        'ERROR no "key"\\nhere server=a reason="exit status 1" pair="a=b" empty="" n=3 l=[1]\n')


@pytest.mark.parametrize("level, told", [
    ("error", ["error"]), ("info", ["error", "info"]), ("debug", ["debug", "error", "info"])])
def test_level_holds_from_the_first_line_on(level, told):
    """Case 197: the level is applied before the first line; stderr is a matter of debug."""
    log = Log(level=level)
    for each in ("debug", "info", "error"):
        log.event(each, "x", NOW_S)
    assert sorted(line["level"] for line in log.lines) == told
    log.raw.clear()
    log.stderr("a", b"x\n", NOW_S)
    log.body("in", b"{}", NOW_S)
    assert len(log.raw) == (2 if level == "debug" else 0)


@pytest.mark.parametrize("style", ["json", "plain"])
def test_nothing_in_a_line_moves_a_cursor(style):
    log = Log(style=style)
    hostile = "\x1b[2J\r\n\x00\x7f\x85\u2028\u202e\ud800\udcff"
    log.event("info", "m" + hostile, NOW_S, server="s" + hostile, reason="r\u00e9" + hostile,
        more={"k" + hostile: [hostile]})
    log.stderr("s", b"x" + hostile.encode("utf-8", "surrogatepass") + b"\xff\xc3\n", NOW_S)
    text = log.text
    assert log.lost == 0 and text.isprintable() is False and text.replace("\n", "").isprintable()
    assert text.count("\n") == len(log.raw) and "r\u00e9" in text


@pytest.mark.parametrize("style", ["json", "plain"])
@pytest.mark.parametrize("letter", ["x", '"', "\x00", "\u00e9", "\U0001f600", "\u202e"])
def test_a_line_has_a_limit_and_stays_whole(style, letter):
    """16 KiB a line; what is long is cut, what is short still stands in it."""
    log = Log(style=style)
    log.event("error", letter * MIB, NOW_S, server="a", reason=letter * MIB, more=[letter * 9000] * 3,
        code="SERVER_CRASHED", big=letter * 9000)
    assert 2000 < len(log.raw[0]) <= 16 * 1024
    if style == "json":
        line = log.lines[0]
        assert line["truncated"] is True and line["server"] == "a" and line["code"] == "SERVER_CRASHED"
        assert set(line["message"]) == {letter} and set(line["reason"]) == {letter}
    else:
        assert " server=a " in log.text and " truncated=true" in log.text


def test_an_error_object_is_told_in_parts():
    """G15.2: errors as {name, message, stack}."""
    log = Log()
    try:
        raise ValueError("bad S3CR3T-env-1")
    except ValueError as error:
        log.event("error", "x", NOW_S, error=error)
    told = log.lines[0]["error"]
    assert told["name"] == "ValueError" and told["message"] == "bad ***"
    assert told["stack"].startswith("ValueError in line ")


def test_a_log_call_never_raises():
    """Case 201: a full disk stops logging, not service; what was lost is told by the next line."""
    def write(raw):
        raise OSError(28, "No space left on device")

    class Strange:
        def __str__(self):
            raise RuntimeError("boo")
        __repr__ = __str__

    log = HubLog(write, LogOptions("debug", "json", True, 100, ()), SECRETS)
    log.event("info", "x", NOW_S)
    log.body("in", b"{}", NOW_S)
    log.stderr("a", b"x\ny\n", NOW_S)
    assert log.lost == 4
    log = Log()
    strange = [Strange(), object, float("nan"), float("inf"), {1: Strange()}, b"\xff", {"a"}, range(3), (Strange(),),
        10 ** 5000]
    for value in strange:
        log.event("info", value, NOW_S, value=value)
        log.body("in", value, NOW_S)
        log.stderr("a", value, NOW_S)
    assert log.lines[0]["level"] == "info"
    log.event("info", "x", float("nan"))
    log.event("info", "x", None)
    log.event("info", "x", NOW_S, level="y", message="z")
    loop = []
    loop.append(loop)
    log.event("info", "x", NOW_S, loop=loop)
    log.raw.clear()
    log.lost = 3
    log.event("info", "again", NOW_S)
    log.event("info", "and", NOW_S)
    assert log.lines[0]["lostLines"] == 3 and "lostLines" not in log.lines[1]


def test_configure_replaces_options_and_secrets():
    log = Log(level="error")
    log.configure(LogOptions("info", "plain", False, 1, ("pin",)), [b"another-secret"])
    log.event("info", "another-secret S3CR3T-env-1", NOW_S, pin="1234", Pin="5")
    assert log.text == "[%s] INFO *** S3CR3T-env-1 pin=[REDACTED] Pin=[REDACTED]\n" % STAMP


# -- what is hidden --------------------------------------------------------------

NAMES = ("authorization proxy-authorization token access_token refresh_token authtoken api_key apikey x-api-key"
         " client_secret clientsecret password secret").split()


@pytest.mark.parametrize("name", NAMES + ["Authorization", "API_KEY", "accessToken", "X-Api-Key", "PIN", "deep.pin"])
def test_member_names(name):
    """G15.5: by name in any case, wherever it stands, whatever the value; also inside strings that are JSON."""
    for value in ("plain", 5, None, ["x"], {"a": "x"}):
        inner = {"a": [{name: value, "other": 1}]}
        assert redacted(inner, ("Pin",), ()) == {"a": [{name: "[REDACTED]", "other": 1}]}
        twice = {"text": json.dumps({"text": json.dumps(inner)})}
        found = redacted(twice, ("Pin",), ())
        assert json.loads(json.loads(found["text"])["text"]) == {"a": [{name: "[REDACTED]", "other": 1}]}


def test_other_names_and_values_stay():
    """What only looks like it stays: progress tokens, cursors; numbers keep their spelling."""
    value = {"progressToken": 7, "nextCursor": "abc", "tokens": 3, "s": "basics", "n": 10 ** 30, "f": -0.25, "t": True,
        "z": None,
             "url": "https://h/p#frag", "text": "[1] no JSON {", "mail": "a@b", "list": [[], {}]}
    assert redacted(value, (), SECRETS) == value
    log = Log()
    log.body("in", b'{"a": 1.0, "b": 1e400, "c": "\\u00e9", "d": 123456789012345678901234567890}', NOW_S)
    assert log.lines[0]["body"] == '{"a":1.0,"b":1e400,"c":"\u00e9","d":123456789012345678901234567890}'


@pytest.mark.parametrize("text, shown", [
    ("Authorization: Bearer abc.DEF-123_~+/=", "Authorization: Bearer ***"),
    ("bearer\tabc, then", "bearer\t*** then"), ("'Basic dXNlcjpwYXNz' x", "'Basic ***' x"),
    ('BEARER "abc" x', 'BEARER "***" x'),
    ("Bearer%20abc", "Bearer%20***"), ('{"h":"Bearer a\\/b"}', '{"h":"Bearer ***"}'), ("the bearer", "the bearer"),
    ("https://user:pw@h.example:8/p", "https://***@h.example:8/p"), ("http://tok@h/", "http://***@h/"),
    ("postgres://u:p@ss@h/d", "postgres://***@h/d"),
    ("GET https://h/mcp?tavilyApiKey=abc&x=1#access_token=q.",
    "GET https://h/mcp?tavilyApiKey=***&x=***#access_token=***"),
    ("https:\\/\\/u:p@h\\/?a=b", "https:\\/\\/***@h\\/?a=***"), ("/mcp?key=abc HTTP/1.1", "/mcp?key=*** HTTP/1.1"),
    ("srv --api-key abc --token=def -p x", "srv --api-key *** --token=*** -p x"),
    ("--github-token 'abc' y", "--github-token '***' y"),
    ("S3CR3T-env-1S3CR3T-env-2 x", "*** x"), ("aS3CR3T-env-1b", "a***b"), ("S3CR3T-hdr-1 alone", "*** alone"),
    ("login S3CR3T-url-1", "login ***"), ("and-line-2", "***"),
    ('as JSON: quo\\"te\\\\back\\nand-line-2', "as JSON: ***"),
    ("schl%C3%BCssel%2F%E2%82%AC", "***"), ("schl%c3%bcssel%2f%e2%82%ac", "***"), ("schl\\u00fcssel/\\u20ac", "***"),
    ("schl\u00fcssel\\/\u20ac", "***"),
])
def test_text(text, shown):
    """Case 195: known secrets in any spelling, Bearer and Basic anywhere, user-info and query values of URLs, flags."""
    assert redacted_text(text, SECRETS) == shown
    assert redacted_text(text, Redaction(SECRETS)) == shown
    assert redacted_text(shown, SECRETS) == shown


def test_places_that_overlap_are_hidden_as_one():
    """Case 198: no part of a secret. One secret replaced after the other would leave the end of the second."""
    assert redacted_text("x abcd1234wxyz y", [b"abcd1234", b"1234wxyz"]) == "x *** y"
    assert redacted_text("aaaaaaa", [b"aaaa"]) == "***" and redacted_text("xababababy", [b"abab"]) == "x***y"
    assert redacted_text("abcdef abcd", [b"abcd", b"abcdef"]) == "*** ***"
    assert redacted_text("abcd1234 x", [b"abcd1234", b"bcd1"]) == "*** x"
    assert redacted_text("a \u00e9\u20ac b", ["\u00e9\u20ac".encode("utf-8"), b"longer-one"]) == "a *** b"
    assert redacted_text("nothing", [b"", b"  ", b"\n"]) == "nothing"


def test_bytes_that_are_no_text():
    log = Log()
    log.stderr("a", b"x \xff\xfe-raw-bytes y\n", NOW_S)
    assert log.lines[0]["message"] == "x *** y"


def test_numbers_that_are_secrets():
    assert redacted({"a": 123456, "b": [99123456.5], "c": 12345}, (), [b"123456"]) == {"a": "***", "b": ["***"],
        "c": 12345}


def test_secrets_in_member_names():
    assert redacted({"S3CR3T-env-1": 1}, (), SECRETS) == {"***": 1}


def test_open_fields_keep_names():
    """Case 199: a variable that is worth "github" does not take the name of that server away."""
    log = Log(secrets=[b"github", b"live", b"debug"])
    log.event("debug", "server github is live", NOW_S, event="server_state", server="github", state="live",
        reason="github")
    line = log.lines[0]
    assert (line["level"], line["server"], line["state"], line["reason"]) == ("debug", "github", "live", "***")


def test_texts_that_are_nearly_json_end_at_the_name():
    """Broken or cut JSON: where the value of `token` ends is not certain, so nothing behind it is shown."""
    log = Log()
    for raw in (b'{"a":1,"token":"hid\\"den","x":1', b'{"a":1,"token":"hidden", NaN}',
        b'[' * 5000 + b'{"token":"hidden"}', b'x {"a":{"api_key" : "hidden"}} y',
                b"{'token': 'hidden'}", json.dumps({"t": '{"a":"{\\"token\\":\\"hidden'}).encode(),
                b'"{\\"token\\":\\"hidden"', b'\xff{"token":"hidden"}',
                b'{"t\\u006fken":"hidden"'):
        log.body("in", raw, NOW_S)
    assert "hid" not in log.text.replace("[REDACTED]", "") and log.text.count("***") == 8
    assert "nested too deep" in log.lines[-1]["body"]


# -- bodies ----------------------------------------------------------------------

def test_bodies_only_where_wanted():
    """G15.6 and case 201: never by default, only at debug with dumpBodies."""
    for level, dump, count in (("debug", False, 0), ("info", True, 0), ("error", True, 0), ("debug", True, 1)):
        log = Log(level=level, dump=dump)
        log.body("out", b'{"a":1}', NOW_S, requestId="7")
        assert len(log.raw) == count
    line = log.lines[0]
    assert (line["direction"], line["body"], line["bodyBytes"], line["bodyLoggedBytes"], line["bodyTruncated"],
        line["requestId"]) == (
        "out", '{"a":1}', 7, 7, False, "7")


@pytest.mark.parametrize("most", range(0, 24))
def test_bodies_are_cut_at_a_character(most):
    """G15.6 [ours]: max_body_bytes of UTF-8, never half a character."""
    whole = '["\u00e9\u20ac\U0001f600x"]'
    log = Log(most=most)
    log.body("in", whole.encode("utf-8"), NOW_S)
    line = log.lines[0]
    size = len(line["body"].encode("utf-8"))
    assert whole.startswith(line["body"]) and most - 4 < size <= most or line["body"] == whole
    assert line["bodyTruncated"] is (line["body"] != whole) and line["bodyLoggedBytes"] == size


@pytest.mark.parametrize("most", range(0, 60, 3))
def test_a_cut_never_leaves_a_part(most):
    """Case 198: hidden first, then cut, and no size tells how long a secret is."""
    seen = set()
    for secret in (b"QZ34", b"QZ34567890" * 40):
        log = Log(secrets=[secret], most=most)
        log.body("in", b'{"a":"' + secret + b'","b":"x' + secret + b'y","c":"..........."}', NOW_S)
        assert "QZ" not in log.text
        seen.add(log.text)
    assert len(seen) == 1


def test_events_of_a_stream():
    """G15.5 [ours]: data of SSE is parsed before it is hidden, over several lines too."""
    raw = b': S3CR3T-env-1\r\nevent: message\r\nid: 7\r\ndata: {"token":\r\ndata: "abc", "n": 1}\r\n\r\n' \
        b'data:{"password":"abc"}\n\ndata: Bearer abc'
    log = Log()
    log.body("in", raw, NOW_S)
    assert log.lines[0]["body"] == (
        ': ***\nevent: message\nid: 7\ndata: {"token":"[REDACTED]","n":1}\n\n'
        'data: {"password":"[REDACTED]"}\n\ndata: Bearer ***')


def test_a_body_may_begin_with_a_byte_order_mark():
    log = Log()
    log.body("in", b'\xef\xbb\xbf{"token":"abc"}', NOW_S)
    assert log.lines[0]["body"] == '{"token":"[REDACTED]"}'


def test_bodies_too_long_to_be_searched_are_not_shown():
    log = Log()
    log.body("in", b'["S3CR3T-env-1' + b" " * (3 * MIB) + b'"]', NOW_S)
    assert "too long" in log.lines[0]["body"]
    assert len(log.raw[0]) < 500 and "S3CR3T" not in log.text


SHAPES = {
    "braces": b"{" * BIG, "brackets": b"[" * BIG, "quotes": b'"' * BIG, "backslashes": b"\\" * BIG,
    "spaces": b"{" + b" " * BIG,
    "deep": b"[" * (BIG // 2) + b"]" * (BIG // 2), "deep objects": b'{"a":' * (BIG // 6) + b"1" + b"}" * (BIG // 6),
    "deep text": json.dumps("[" * BIG).encode(), "no UTF-8": b"\xff" * BIG,
    "surrogates": b'["' + b"\\ud800" * (BIG // 6) + b'"]',
    "bearer": b"bearer " * (BIG // 7), "bearer spaces": b"bearer" + b" " * BIG, "pluses": b"basic" + b"+" * BIG,
    "schemes": b"://" * (BIG // 3),
    "URLs": b"https://" * (BIG // 8), "queries": b"?a" * (BIG // 2), "amps": b"&#" * (BIG // 2),
    "flags": b"-token" * (BIG // 6),
    "dashes": b"-" * BIG, "flag spaces": b" --token" + b" " * BIG, "names": b'token"' * (BIG // 6),
    "name spaces": b'token"' + b" " * BIG,
    "name quotes": b"token" + b'"' * BIG, "events": b"data:\n" * (BIG // 6), "event": b"data:" * (BIG // 5),
    "lines": b"\n" * BIG,
    "strings": json.dumps(["a b=%d" % i for i in range(BIG // 20)]).encode(),
    "objects": json.dumps([{"a": [1, 2.5]}] * (BIG // 20)).encode(),
    "half secrets": b"S3CR3T-env-" * (BIG // 11), "secrets": b"S3CR3T-env-1" * (BIG // 12),
    "dollars": b"$a" * (BIG // 2)}


@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_text_takes_linear_time(shape):
    """256 KiB of anything: a square of it would take minutes. No line is lost or longer than it may be."""
    raw = SHAPES[shape]
    many = SECRETS | {b"secret-%d-of-many" % i for i in range(500)}
    log = Log(secrets=many, most=1000)
    begin_s = time.monotonic()
    log.body("in", raw, NOW_S)
    log.event("info", raw, NOW_S)
    log.stderr("a", raw + b"\n", NOW_S)
    error_result(HubError(raw.decode("utf-8", "replace"), "SERVER_CRASHED", "x"), Redaction(many))
    classify_failure(raw, None, "start")
    assert time.monotonic() - begin_s < 12, "not linear"
    assert log.lost == 0 and log.raw and all(len(line) <= 16 * 1024 for line in log.raw)
    assert "env-1" not in log.text


def test_json_within_json_is_opened_to_any_depth_that_fits():
    value = {"token": "hidden", "n": 1}
    for _ in range(14):
        value = {"text": json.dumps(value)}
    found = redacted(value, (), ())
    for _ in range(14):
        found = json.loads(found["text"])
    assert found == {"token": "[REDACTED]", "n": 1}


def planted(rng, value, secret):
    """`value` with the secret put into some of its strings, as Python values."""
    if isinstance(value, list):
        return [planted(rng, item, secret) for item in value] + [secret]
    if isinstance(value, dict):
        made = {name: planted(rng, item, secret) for name, item in value.items()}
        made[rng.choice(("x", "token", secret))] = "a" + secret + "b"
        return made
    return secret if rng.random() < 0.3 else value


@pytest.mark.parametrize("seed", range(150))
def test_no_secret_comes_through_in_any_json(seed):
    """Cases 195 and 198: any JSON, any spelling of it, nested as text: no piece of the secret and valid lines."""
    rng = seeded("hublog/%d" % seed)
    secret = rng.choice(("ZQ31xyzzy", 'ZQ31"xy\\zzy', "ZQ31\u00e9\u20ac\U0001f600zzy", "ZQ31/xy zzy",
        "ZQ31xy\nzzy-zzy", "ZQ31\x7f\x00zzy"))
    text = spell(rng, planted(rng, any_value(rng), secret))
    for _ in range(rng.randrange(3)):
        text = spell(rng, {"text": text, "n": [text]})
    log = Log(secrets=[secret.encode("utf-8")], most=10 ** 6)
    log.body("in", text.encode("utf-8", "surrogatepass"), NOW_S)
    log.body("in", b"data: " + text.replace("\r", " ").encode("utf-8", "surrogatepass") + b"\n\n", NOW_S)
    for piece in (text[1:], text[:-1]):  # no JSON any more
        log.body("in", piece.encode("utf-8", "surrogatepass"), NOW_S)
    log.event("info", text, NOW_S, reason=text, server="s")
    assert len(log.lines) == 5 and log.lost == 0
    assert "ZQ31" not in plain(log.text) and "zzy" not in plain(log.text)


# -- a server's stderr -----------------------------------------------------------

def test_stderr_has_the_name_of_its_server():
    """Case 199: each line with its server and a level of its own."""
    log = Log()
    log.stderr("a", b"one\r\ntwo ha", NOW_S)
    log.stderr("b", b"other\n", NOW_S)
    log.stderr("a", b"lf\n\nend", NOW_S)
    log.stderr("a", b"", NOW_S)
    log.stderr("c", b"", NOW_S)
    assert [(line["server"], line["message"]) for line in log.lines] == [
        ("a", "one"), ("b", "other"), ("a", "two half"), ("a", ""), ("a", "end")]
    assert all(line["event"] == "server_stderr" and line["level"] == "debug" for line in log.lines)


def test_stderr_in_any_pieces():
    """However it is cut by reads, lines are whole, and a secret that lies over a cut is found."""
    raw = b'a S3CR3T-env-1 b\n{"password":"x\\u0079zzy","m":"S3CR3T-env-2"}\nBearer abcdef\n'
    shown = ["a *** b", '{"password":"[REDACTED]","m":"***"}', "Bearer ***"]
    for size in (1, 2, 3, 5, 7, 11, len(raw)):
        log = Log()
        for at in range(0, len(raw), size):
            log.stderr("a", raw[at:at + size], NOW_S)
        assert [line["message"] for line in log.lines] == shown


def test_stderr_secret_of_several_lines():
    log = Log(secrets=[b"-----BEGIN KEY-----\nMIIabcdef\nZZghijkl==\n-----END KEY-----"])
    log.stderr("a", b"my key:\n-----BEGIN KEY-----\nMIIabcdef\r\nZZghijkl==\n-----END KEY-----\n", NOW_S)
    assert [line["message"] for line in log.lines] == ["my key:", "***", "***", "***", "***"]


def test_stderr_flood_is_cut_to_a_rate():
    """Case 201: 20 MB in a second are 100 lines and one that says how many were left out, for this server alone."""
    log = Log()
    block = b"E: connection refused, retrying\n" * 2000
    begin_s = time.monotonic()
    for turn in range(300):
        log.stderr("flood", block, NOW_S + turn / 301)
    log.stderr("quiet", b"hello\n", NOW_S + 0.9)
    assert time.monotonic() - begin_s < 5
    assert len(log.raw) == 101 and log.lines[-1]["server"] == "quiet"
    log.stderr("flood", b"next second\n", NOW_S + 1.5)
    left_out, line = log.lines[-2:]
    assert left_out["leftOut"] == 600000 - 100 and "599900" in left_out["message"] and left_out["server"] == "flood"
    assert line["message"] == "next second"
    log.stderr("flood", block, NOW_S + 1.6)
    log.stderr("flood", b"", NOW_S + 1.7)
    assert log.lines[-1]["leftOut"] == 2000 - 99 and len(log.raw) == 101 + 2 + 99 + 1
    log.stderr("flood", b"new process\n", NOW_S + 1.8)
    assert log.lines[-1]["message"] == "new process"


def test_stderr_rate_counts_bytes_and_survives_a_clock_that_is_set_back():
    log = Log()
    log.stderr("a", (b"x" * 30000 + b"\n") * 5, NOW_S)
    log.stderr("a", b"short, but in the same second\n", NOW_S)
    assert [len(line["message"]) > 5000 and line["truncated"] for line in log.lines] == [True, True]
    log.stderr("a", b"y\n", NOW_S - 3600)
    assert [line.get("leftOut") for line in log.lines[2:]] == [4, None]


def test_stderr_line_without_end():
    """More than 64 KiB without a line feed are left out whole: a cut before the search could leave half a secret."""
    log = Log()
    for _ in range(40):
        log.stderr("a", b"x" * 4000 + b"S3CR3T-env-1", NOW_S)
    log.stderr("a", b"\nnext\n", NOW_S)
    log.stderr("a", b"", NOW_S)
    assert [line["message"] for line in log.lines] == ["next", "1 lines of its stderr are left out"]


@pytest.mark.parametrize("most", range(1, 60))
def test_end_of_stderr_is_hidden_before_it_is_cut(most):
    """Case 198: what stands in an error text; the last characters alone would begin with half a secret."""
    raw = b"starting\nusing QZ31-QZ32-QZ33-QZ34 now\nfailed \xff\n"
    text = stderr_end(raw, [b"QZ31-QZ32-QZ33-QZ34"], most)
    assert "QZ" not in text and len(text) <= max(most, 0) and "starting\nusing *** now\nfailed \udcff".endswith(text)


# -- the configuration of case 195 -------------------------------------------------

def case_195():
    folder = os.environ.get("MCP_LAZY_CASES")
    if not folder:
        pytest.skip("MCP_LAZY_CASES names no folder with the inputs of the cases")
    raw = (Path(folder) / "inputs" / "195-servers.json").read_bytes()
    servers = json.loads(raw)["mcpServers"].values()
    found = [value for server in servers for part in ("env", "headers") for value in server.get(part, {}).values()]
    return raw, [value.encode("utf-8") for value in found]


@pytest.mark.parametrize("style", ["json", "plain"])
def test_case_195(style):
    """The whole configuration, its words and its URL through every door: env, headers, URL and arguments 1 and 2 do not
    come out, names do. The third argument (`-p x`) has no form and no known value: documented."""
    raw, secrets = case_195()
    log = Log(secrets=secrets, style=style, most=10 ** 6)
    servers = json.loads(raw)["mcpServers"]
    texts = [" ".join([servers["a"]["command"]] + servers["a"]["args"][:3]), servers["b"]["url"]]
    log.event("error", "cannot start " + texts[0], NOW_S, reason=texts[1], env=servers["a"]["env"],
        headers=servers["b"]["headers"])
    for text in texts + list(servers["a"]["env"].values()) + list(servers["b"]["headers"].values()):
        log.stderr("a", text.encode() + b"\n", NOW_S)
        log.body("in", json.dumps({"text": json.dumps(["say " + text])}).encode(), NOW_S)
        log.raw.append(error_result(HubError(text, "SERVER_CRASHED", text, text), secrets))
    assert b"S3CR3T" not in b"".join(log.raw)
    for part in (b"en", b"hdr", b"url", b"arg"):
        assert b"T-" + part not in b"".join(log.raw), "a part of a secret (case 198)"
    for name in (b"GITHUB_PERSONAL_ACCESS_TOKEN", b"HARMLESS_NAME", b"X-Weird", b"tavilyApiKey", b"h.example",
        b"--api-key"):
        assert name in b"".join(log.raw)


# -- failures --------------------------------------------------------------------

BULB = "\U0001f4a1"


@pytest.mark.parametrize("error, text", [
    (HubError("no", "SERVER_TIMEOUT"), "Error: no"),
    (HubError("no", "SERVER_TIMEOUT", "why"), "Error: no\n\nDetails: why"),
    (HubError("no", "SERVER_TIMEOUT", None, "do"), "Error: no\n\n%s Suggestion: do" % BULB),
    (HubError("no", "SERVER_TIMEOUT", "why\nand why", "do"),
    "Error: no\n\nDetails: why\nand why\n\n%s Suggestion: do" % BULB),
    (HubError("no", "SERVER_TIMEOUT", "", ""), "Error: no"),
])
def test_error_result(error, text):
    """G5.2 and G9.4: isError, one text item of paragraphs, the code in _meta.lazyMcp."""
    assert json.loads(error_result(error, ())) == {
        "content": [{"type": "text", "text": text}], "isError": True, "_meta": {"lazyMcp": {"code": "SERVER_TIMEOUT"}}}
    assert str(error) == "no" and error.rpc is None


def test_error_results_of_their_own_form():
    """G5.2: AUTH_REQUIRED is its paragraph alone, with a URL that works; POLICY_BLOCKED its own wording and mark."""
    page = "Open https://as.example/authorize?client_id=x&state=y to sign in."
    found = json.loads(error_result(HubError(page, "AUTH_REQUIRED", "d", "s"), SECRETS))
    assert found["content"][0]["text"] == page and found["_meta"] == {"lazyMcp": {"code": "AUTH_REQUIRED"}}
    found = json.loads(error_result(HubError("Not on Sundays.", "POLICY_BLOCKED"), SECRETS))
    assert found["content"][0]["text"] == "Not on Sundays." and found["isError"] is True
    assert found["_meta"] == {"lazyMcpPolicy": "blocked", "lazyMcp": {"code": "POLICY_BLOCKED"}}


def test_error_result_of_a_servers_own_error():
    """G8.4 and case 144: code, message and data of the server can be read, URLs included; known secrets cannot."""
    rpc = {"code": -32042, "message": "see S3CR3T-env-1",
        "data": {"elicitations": [{"url": "https://h/?state=q", "token": "t"}], "S3CR3T-env-2": 1.5}}
    error = HubError('see S3CR3T-env-1, data {"url": "https://h/?state=q"}', "TOOL_ERROR", None, None, rpc)
    found = json.loads(error_result(error, SECRETS | {b"32042"}))
    assert found["content"][0]["text"] == 'Error: see ***, data {"url": "https://h/?state=q"}'
    assert found["_meta"]["lazyMcp"] == {"code": "TOOL_ERROR", "rpc": {
        "code": -32042, "message": "see ***", "data": {"elicitations": [{"url": "https://h/?state=q", "token": "t"}],
        "***": 1.5}}}


def test_error_result_is_sound_whatever_it_holds():
    """Lone surrogates, control characters, deep data: valid UTF-8, valid JSON, nothing for a terminal."""
    deep = []
    for _ in range(5000):
        deep = [deep]
    hostile = "x\x1b[2J\ud800\x00\u202e"
    raw = error_result(HubError(hostile, "SERVER_CRASHED", hostile, hostile,
        {"code": 1, "message": hostile, "data": deep}), ())
    found = json.loads(raw.decode("utf-8"))
    assert b"\\ud800" not in raw and b"\n" not in raw and "\x1b" not in found["content"][0]["text"]
    assert "too deep" in json.dumps(found["_meta"])


@pytest.mark.parametrize("said, code", [
    ("Error: the Environment Variable FOO is missing", "MISSING_ENV_VAR"), ("please set env var X", "MISSING_ENV_VAR"),
    ("config: $API_KEY was not found", "MISSING_ENV_VAR"), ("$ echo $HOME: it is not found", "MISSING_ENV_VAR"),
    ("401 Unauthorized", "AUTH_FAILED"), ("Authentication failed", "AUTH_FAILED"), ("Invalid token", "AUTH_FAILED"),
    ("Access denied for user", "AUTH_FAILED"), ("Error: Cannot find module 'x'", "INVALID_COMMAND"),
    ("ModuleNotFoundError: No module named 'x'", "INVALID_COMMAND"), ("code: 'MODULE_NOT_FOUND'", "INVALID_COMMAND"),
    ("sh: foo: command not found", "INVALID_COMMAND"), ("No such file or directory", "INVALID_COMMAND"),
    ("listen EADDRINUSE: address already in use", "SERVER_CRASHED"), ("address in use", "SERVER_CRASHED"),
    ("env var X; unauthorized; no such file", "MISSING_ENV_VAR"), ("no such file; unauthorized", "AUTH_FAILED"),
])
def test_classes_of_failed_starts(said, code):
    """G9.3: the first kind that the words tell, whether the process has ended or not; bytes and text are the same."""
    for exit_text in ("exit status 1", None, ""):
        assert classify_failure(said, exit_text, "start")[0] == code
        assert classify_failure(b"lines before\n" + said.encode(), exit_text, "start")[0] == code


def test_classes_without_telling_words():
    """G9.3 [ours]: what lives has not crashed, whatever it said; later than the handshake nothing is judged."""
    assert classify_failure("", "exit status 9", "start")[0] == "SERVER_CRASHED"
    assert classify_failure(None, None, "start")[0] == "SERVER_TIMEOUT"
    assert classify_failure("server listening on stdio, ready", None, "start")[0] == "SERVER_TIMEOUT"
    assert classify_failure("something else", None, "start")[0] == "SERVER_TIMEOUT"
    assert classify_failure("costs $5, not found", "exit status 1", "start")[0] == "SERVER_CRASHED"
    assert classify_failure("", "srv: not found on PATH (/bin)", "start")[0] == "INVALID_COMMAND"
    for said in ("unauthorized", "no such file", "env var", ""):
        assert classify_failure(said, "SIGSEGV", "call")[0] == "SERVER_CRASHED"
        code, advice = classify_failure(said, None, "call")
        assert code == "SERVER_TIMEOUT" and "did not answer" in advice


def test_every_class_has_advice():
    seen = {classify_failure(said, ended, phase)[1] for said in ("env var", "unauthorized", "no module named",
        "no such file", "eaddrinuse", "")
            for ended in ("exit status 1", None) for phase in ("start", "call")}
    assert len(seen) == 9 and all(len(advice) > 20 for advice in seen)


# ------------------------------------------------------------------------------------------- pieces of longer texts

LONG = "SECRETabcdefghijklmnopqrstuvwxyzSECRET"


@pytest.mark.parametrize("cut", range(1, len(LONG)))
def test_a_secret_that_a_cut_went_through(cut):
    """Case 195: what is left of it at the edge is hidden, and nothing else."""
    hidden = Redaction([LONG.encode()])
    assert hidden.piece(LONG[cut:] + " and more", 100, True) == "*** and more"
    assert hidden.piece("before " + LONG[:cut], 100) == "before ***"


@pytest.mark.parametrize("times", [1, 3, 200])
def test_a_secret_over_and_over(times):
    hidden = Redaction([LONG.encode()])
    late, early = (LONG * times)[11:], (LONG * times)[:-9]
    for shown in (hidden.piece(late, 300, True), hidden.piece(early, 300), stderr_end(late.encode(), hidden, 300, True)):
        assert not any(LONG[at:at + 4] in shown for at in range(len(LONG) - 3)), shown


def test_a_piece_without_secrets_is_only_cut():
    hidden = Redaction([LONG.encode()])
    assert hidden.piece("one two three", 7) == "one two" and hidden.piece("one two three", 5, True) == "three"
    assert hidden.piece("", 7) == "" and Redaction([]).piece("one", 2) == "on"


KEY_FILE = {"type": "service_account", "k": "abc", "private_key": "-----BEGIN-----\nMIIEvqqqqqq\n", "n": [{"deep": "longersecret"}]}


@pytest.mark.parametrize("spelled", [json.dumps(KEY_FILE), json.dumps(KEY_FILE, indent=2),
                                     json.dumps(KEY_FILE, separators=(",", ":"))])
@pytest.mark.parametrize("given", [json.dumps(KEY_FILE), json.dumps(KEY_FILE, indent=1)])
def test_a_secret_that_is_json(given, spelled):
    """Case 198: a key file, however it is spelled and nested, in a body."""
    hidden = Redaction([given.encode()])
    for body in (spelled, json.dumps({"parameters": {"x": spelled}}), json.dumps({"a": json.dumps({"x": spelled})})):
        shown = hidden.body(body)
        assert "MIIE" not in shown and "longersecret" not in shown, shown
    if given == spelled:
        assert "abc" not in hidden.body(json.dumps({"x": spelled}))


@pytest.mark.parametrize("secrets, text, from_end, shown", [
    ([LONG], "x " + LONG, False, "x ***"), ([LONG], LONG + " x", True, "*** x"),
    (["qwertyuiop1x", "xabcdefghi"], "k qwertyuiop1x", False, "k ***"),
    (["qwertyuiop1x", "1xabcdefgh"], "1xabcdefgh k", True, "*** k")])
def test_a_whole_secret_at_the_cut(secrets, text, from_end, shown):
    """Its end may be the beginning of another one; places that overlap are hidden as one."""
    assert Redaction([secret.encode() for secret in secrets]).piece(text, 200, from_end) == shown


@pytest.mark.parametrize("cut", range(5, 12))
def test_a_cut_through_a_letter_of_several_bytes(cut):
    secret = "p\u00e4ssw\u00f6rt\u20ac"
    hidden, raw = Redaction([secret.encode()]), (secret * 3).encode()
    assert "ssw" not in hidden.piece(raw[:cut].decode("utf-8", "replace"), 200)
    assert "ssw" not in hidden.piece(raw[-cut:].decode("utf-8", "surrogateescape"), 200, True)
