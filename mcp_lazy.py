#!/usr/bin/env -S python3 -I -S -c "import sys,_signal;_signal.signal(2,0);exec(open(sys.argv[1]).read(3158))"
# The lines down to the ruler run twice: as the text that line 1 hands to exec (no __file__), and in the module (idle).
import sys
if "__file__" not in globals():
    if sys.version_info < (3, 9):
        sys.stderr.write("mcp-lazy: needs Python 3.9 or later, this is %s\n" % sys.version.split()[0])
        sys.exit(2)
    import _signal  # line 1 has set SIGINT back to its default: no KeyboardInterrupt before this
    import posix
    import _frozen_importlib_external as loaders
    words = ["hub"] * (sys.argv[1].rpartition("/")[2][:8].lower() == "lazy-mcp") + sys.argv[2:]
    reloads = words[:1] == ["hub"] and words[1:2] not in (["check"], ["import"])  # its file is read later, HUP or not
    for number in (1, 2, 15):  # HUP, INT, TERM until the relay listens itself: there is nothing yet to clean up
        _signal.signal(number, lambda number, frame: number == 1 and reloads or posix._exit(0))

    def bytecode_folder(env):
        """Our own folder that nobody else may write to; "/dev/null" (never a folder) turns the caching off."""
        root = env.get(b"XDG_CACHE_HOME") or env.get(b"HOME") and env[b"HOME"] + b"/.cache"
        if not root or root[:1] != b"/":
            return "/dev/null"
        for name in (b"", b"/mcp-lazy", b"/bytecode"):
            root += name
            try:
                posix.mkdir(root, 0o700)
            except OSError:
                pass
        try:
            seen = posix.lstat(root)
        except OSError:
            return "/dev/null"
        safe = seen.st_uid == posix.geteuid() and seen.st_mode & 0o170022 == 0o040000
        return root.decode(sys.getfilesystemencoding(), "surrogateescape") if safe else "/dev/null"

    path = sys.argv[1] if sys.argv[1][:1] == "/" else posix.getcwd() + "/" + sys.argv[1]

    def half(cold, folder):
        """The code of this file above or below the cold line, each with a bytecode cache of its own."""
        def compiled(data, path):
            above, line, below = data.partition(b"\n# == cold line")
            text = b"\n" * above.count(b"\n") + b"\n#" + below if cold else above
            return compile(text, path, "exec", dont_inherit=True, optimize=2)

        loader = loaders.SourceFileLoader("mcp_lazy", path)
        loader.source_to_code, sys.pycache_prefix = compiled, folder
        try:
            return loader.get_code("mcp_lazy")
        except Exception:  # damaged bytecode costs time once, it is never an error
            try:
                posix.unlink(loaders.cache_from_source(path))
            except OSError:
                pass
            return compiled(loader.get_data(path), path)
        finally:
            sys.pycache_prefix = None

    folder = bytecode_folder(posix.environ)
    sys.argv[:2] = [path]
    sys.modules["mcp_lazy"] = module = type(sys)("mcp_lazy")
    module.__file__, module.load_cold = path, lambda: exec(half(True, folder + "/cold"), module.__dict__)
    exec(half(False, folder), module.__dict__)
    sys.exit(module.main())
# ------------------------------------------------------------------------------------------- line 1 reads to here ---
__doc__ = """mcp-lazy: MCP servers that sleep until somebody needs them.

    mcp-lazy [options] [--] COMMAND ARG...     in a registration, instead of COMMAND ARG...
    mcp-lazy config wrap --client claude --all that done to a client's file, and undone, byte for byte
    mcp-lazy demo                              what it does, shown in five seconds
    mcp-lazy help                              every option and variable

Map - search for the tag with the name behind it. A layer refers only to lower ones.
L0 to L8b run in every relay, what is below the cold line is not even loaded there.

  L0 PRELUDE launcher, limits          L5 CHILD  start, stop, kill
  L1 VALUES  records, errors, words    L6 RECORD answers without waking
  L2 BYTES   lines, JSON, envelopes    L6b STANDIN what the relay says itself
  L3 KERNEL  every system call         L7 RELAY  the engine: who gets what when
  L4 LOOP    selector, timers, tasks   L8 RUN    binds the engine to the world
  ------ cold line ------              L8b ENTRY a relay's command line, main
  L8c DISK   system calls of commands  L10b SPANS JSON edited by spans
  L9 SESSION the client side of MCP    L11 CONFIG registrations, wrap and unwrap
  L9b CACHE  recordings for people     L11b EDIT the write of a client's file
  L10 TOML   generated, do not edit    L13b SERVERS what a servers.json says
  L13d ASKING what servers ask         L13c HUBLOG what a hub tells, and what not
  L13e UPSTREAM one server of the hub  L14b COMMANDS config, doctor, hub
  L14 HUB    many behind four tools    L15 CLI    check, help, demo

Start reading at L7 (what happens), then L5 (processes), then L3 (every system call)."""
# ============================================================================
# L0 PRELUDE - launcher, hot imports, version, limits            [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   -
# Used by: L1 L2 L3 L5 L6 L6b L8 L8b L8c L9 L9b L10b L13b L13c L13e L14 L14b L15
# Owns:   VERSION, MAX_LINE_BYTES, MAX_QUEUE_BYTES, MAX_OUTPUT_BYTES, MAX_RESULT_BYTES, MAX_RECORDING_BYTES, TAIL_BYTES
# Never:  imports what the first warm answer does not need
# Tests:  tests/test_l00_prelude.py
# ----------------------------------------------------------------------------
# Theory: a sleeping relay is mostly the cost of its start. CPython compiles a
# script each time it is run (50 ms for 6,000 lines) but loads cached bytecode
# in under 1 ms, and only the import system writes that cache. So line 1 runs
# the first bytes of this file as a program that loads the same file through
# the source loader, with the cache in a folder of the user's own. It loads what
# stands above the cold line alone (and leaves docstrings out); what is below has a
# cache of its own and is loaded when `cold` is asked for it: 1,000 lines would cost each
# relay 0.9 ms and 0.15 MiB. Imported, or run by its path, the file is one whole.
# `-I -S` leave out the user's site packages and the `site` module (30 ms where
# packages install .pth files). What is imported here was chosen by measuring
# (one machine, bare interpreter 14.5 ms): `posix` instead of `os` saves 3 ms,
# `_signal` instead of `signal` 2 to 9, `_json` instead of `json` 20. They are
# the C halves of the public modules, which stand in where one is missing.
# `selectors` costs 6 ms and is imported by the loop after the first answers.
# What can still go wrong: no folder of the user's own (HOME unset, read-only):
# then the file is compiled at each start and nothing else changes. A SIGINT in
# the moment between CPython's own start and line 1 is a KeyboardInterrupt; a HUP
# there ends a hub, too, but for one that was started with HUP ignored.
# ----------------------------------------------------------------------------
import errno
import time
try:
    import posix
except ImportError:  # no POSIX system: main says so
    posix = None
try:
    import _signal
except ImportError:
    import signal as _signal
try:
    from _json import make_scanner, scanstring, encode_basestring_ascii
except ImportError:
    from json.decoder import JSONDecoder, scanstring
    from json.encoder import encode_basestring_ascii

    def make_scanner(options):
        return JSONDecoder(parse_float=options.parse_float, parse_constant=options.parse_constant).scan_once

VERSION = "1.0.0"

# One message a line (MCP stdio). The bound keeps a peer that never sends LF from
# eating the memory; room for base64 blobs (A7.13). Set by --max-line.
MAX_LINE_BYTES = 64 * 1024 * 1024
# Waiting for the server: above it the client is not read (A10.12).
MAX_QUEUE_BYTES = 8 * 1024 * 1024
# Waiting for the client: above it the server is not read (A10.15).
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
# A single recorded result (A5.8), and a recording file.
MAX_RESULT_BYTES = 8 * 1024 * 1024
MAX_RECORDING_BYTES = 64 * 1024 * 1024
# Of a server's stderr, kept for the error texts (A15.1).
TAIL_BYTES = 8 * 1024

# ============================================================================
# L1 VALUES - records, errors, durations, words, secrets          [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L0
# Used by: L3 L4 L5 L6 L6b L7 L8 L8b L8c L9 L9b L10b L11 L11b L13b L13c L13d L13e L14 L14b L15
# Owns:   Record, LazyError, UsageError, SpawnError, PeerError, Bug, error_place, EXIT_OK, EXIT_FAILED, EXIT_USAGE,
#         parse_duration, format_duration, parse_bool, seconds, printable, redact, secret_values, format_log_line
# Never:  reads a clock, the environment or a file
# Tests:  tests/test_l01_values.py
# ----------------------------------------------------------------------------
# Theory: durations and booleans are Go's, because the registrations that people
# have today were written for a Go program: `1h2m3.5s`, no bare number but 0, the
# words of strconv.ParseBool. Go computes in 64-bit integers and drops fraction
# digits that no longer fit; we follow it digit by digit, so that a value that
# was refused there is refused here (the vectors are in the tests).
# `Record` and not dataclass or NamedTuple: 40 dataclasses cost 26 ms a start,
# and NamedTuples of different types compare equal, which hides errors in tests.
# ----------------------------------------------------------------------------
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


class Record:
    """Base of events and effects: slots are the fields, equality looks at the type too."""
    __slots__ = ()

    def __init__(self, *values):
        for name, value in zip(self.__slots__, values):
            setattr(self, name, value)

    def __eq__(self, other):
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None

    def __repr__(self):
        fields = ", ".join("%s=%.200r" % (name, getattr(self, name, "?")) for name in self.__slots__)
        return "%s(%s)" % (type(self).__name__, fields)


def record(name, fields, meaning):
    """A Record class in one line: `fields` is a text, `meaning` its docstring."""
    return type(name, (Record,), {"__slots__": tuple(fields.split()), "__doc__": meaning, "__module__": __name__})


class LazyError(Exception):
    """Anything that this program reports in a sentence; the text says whose fault it is."""


class UsageError(LazyError):
    """The command line or the environment is wrong; exit status 2. `show_usage` adds the option list."""

    def __init__(self, text, show_usage=False):
        super().__init__(text)
        self.show_usage = show_usage


class SpawnError(LazyError):
    """The operating system did not start a program; the text tells the causes apart (A10.5)."""


class PeerError(LazyError):
    """The other side broke the protocol; `rpc_code` is the JSON-RPC code for it."""

    def __init__(self, text, rpc_code=-32600):
        super().__init__(text)
        self.rpc_code = rpc_code


class Bug(LazyError):
    """An error of this program itself; its processes are gone when this is raised."""


def error_place(error):
    """"TypeError (...) in line 7": an error of ours in a few words, without values of anybody's."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return "%s in line %d" % (type(error).__name__, trace.tb_lineno)


DIGITS = frozenset("0123456789")
UNIT_NS = {"ns": 1, "us": 1000, "\u00b5s": 1000, "\u03bcs": 1000, "ms": 10 ** 6,
           "s": 10 ** 9, "m": 60 * 10 ** 9, "h": 3600 * 10 ** 9}
GO_LIMIT = 1 << 63
TRUE_WORDS = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def parse_duration(text):
    """Nanoseconds of a Go duration ("1h2m3.5s"; behaviour A2). ValueError for anything else."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        value, at = _duration_part(rest, at)
        total += value
        if total > GO_LIMIT:
            raise ValueError("duration out of range")
    if not rest or total > GO_LIMIT - 1 and not (sign < 0 and total == GO_LIMIT):
        raise ValueError("invalid duration")
    return sign * total


def _duration_part(text, at):
    """One number with its unit: (nanoseconds, position behind it)."""
    end = _past_digits(text, at)
    whole, digits, fraction = int(text[at:end] or "0"), end - at, ""
    if text[end:end + 1] == ".":
        start, end = end + 1, _past_digits(text, end + 1)
        fraction = text[start:end]
        digits += len(fraction)
    if not digits:
        raise ValueError("invalid duration")
    start = end
    while end < len(text) and text[end] != "." and text[end] not in DIGITS:
        end += 1
    unit = UNIT_NS.get(text[start:end])
    if unit is None or whole > GO_LIMIT // unit:
        raise ValueError("missing or unknown unit, or out of range")
    number, scale = 0, 1
    for digit in fraction:
        if number > (GO_LIMIT - 1) // 10 or number * 10 + int(digit) > GO_LIMIT:
            break  # what no longer fits 63 bits is ignored, as Go does (A2.4)
        number, scale = number * 10 + int(digit), scale * 10
    value = whole * unit + int(float(number) * (float(unit) / scale))
    if value > GO_LIMIT:
        raise ValueError("duration out of range")
    return value, end


def _past_digits(text, at):
    while at < len(text) and text[at] in DIGITS:
        at += 1
    return at


def format_duration(ns):
    """Go's spelling of nanoseconds: 0s, 1.5s, 100ms, 2h0m0s (A2.5)."""
    if ns < 0:
        return "-" + format_duration(-ns)
    if ns == 0:
        return "0s"
    for unit, places in (("ns", 0), ("\u00b5s", 3), ("ms", 6)):
        if ns < 10 ** (places + 3):
            return _decimal(ns, places) + unit
    minutes, rest = divmod(ns, 60 * 10 ** 9)
    text = _decimal(rest, 9) + "s"
    if minutes >= 60:
        return "%dh%dm%s" % (minutes // 60, minutes % 60, text)
    return "%dm%s" % (minutes, text) if minutes else text


def _decimal(number, places):
    whole, rest = divmod(number, 10 ** places)
    return str(whole) + ("." + ("%0*d" % (places, rest)).rstrip("0") if rest else "")


def seconds(ns):
    """Seconds (float) of nanoseconds, what timers take."""
    return ns / 1e9


def parse_bool(text):
    """True or False of one of Go's words (A3). ValueError for anything else."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError("invalid boolean value %r" % text)


SECRET_NAME_PARTS = (b"TOKEN", b"SECRET", b"PASSWORD", b"KEY")


def secret_values(environment):
    """The values (bytes, longest first) of the variables whose names look secret (A10.5).

    Shorter than four bytes they would cut holes into every text and hide nothing.
    """
    found = {value for name, value in environment.items()
             if len(value) >= 4 and any(part in name.upper() for part in SECRET_NAME_PARTS)}
    return sorted(found, key=len, reverse=True)


def printable(text):
    """`text` without control characters, line feeds excepted: it ends on somebody's screen."""
    return "".join(c if c >= " " and c != "\x7f" and not "\x80" <= c < "\xa0" or c == "\n" else " " for c in
                   text.encode("utf-8", "replace").decode("utf-8"))


def redact(raw, secrets):
    """`raw` (bytes) with each of `secrets` replaced by ***."""
    for value in secrets:
        raw = raw.replace(value, b"***")
    return raw


def format_log_line(style, pid, stamp, text):
    """One line of the relay's log (A16.2; style "text", "json" or "dsh", F9), LF included; stamp is UTC, with ms."""
    text = printable(text).replace("\n", " ")
    if style == "text":
        return "mcp-lazy[%d] %s %s\n" % (pid, stamp.partition("T")[2], text)
    if style == "dsh":
        return "[lazy-mcp %sZ pid=%d] %s\n" % (stamp, pid, text)
    return '{"time":"%sZ","pid":%d,"text":%s}\n' % (stamp, pid, encode_basestring_ascii(text))


# ============================================================================
# L2 BYTES - lines, JSON with spans, JSON-RPC envelopes, keys     [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L0
# Used by: L5 L6 L6b L7 L8 L8b L9 L9b L10b L11 L11b L13b L13c L13d L13e L14 L14b L15
# Owns:   LineSplitter, parse_json, members, canonical, same_json, json_string, Envelope, read_envelope,
#         envelopes_of, all_notifications, is_modern, progress_token, cancelled_key, kind_of_noise, Flight, Flights,
#         clean_line, result_line, error_object, error_line, errors_array
# Never:  changes a byte of a line that is passed on
# Tests:  tests/test_l02_bytes.py
# ----------------------------------------------------------------------------
# Theory: MCP over stdio is one JSON-RPC message a line, split at 0x0A only:
# U+2028, U+0085, VT and FF are legal inside a JSON string, so no `splitlines`.
# A line is passed on as the bytes that came; parsing is only for looking.
#
# How to look at a line for little. A short line is parsed whole by the C scanner
# (2 us). A long one is skimmed: the members before its first container and those
# behind its last one are read, because peers put `id`, `method` and `jsonrpc` at
# one of the two ends and one big container between. Reading backwards is sound
# in valid JSON: from the end, which is outside of strings, a quote with an even
# number of backslashes before it opens or closes a string. What the middle of a
# line hides (a second `id`) is looked for by a substring search up to
# SEARCHED_BYTES; a longer line is judged by its two ends alone, because a search
# runs at 1.6 GB/s, no faster than the pipe it would slow down.
# A whole block of notifications needs four substring counts and no loop at all.
#
# The C scanner returns where a value ends, so spans of members cost nothing:
# a recorded result is cut out of its line verbatim (`1.0` stays `1.0`).
# `json` cannot be used for that, it would cost 20 ms a start, and it turns
# numbers into floats: 2**53 + 1 and 1e400 would compare wrongly. Equality of
# two results is equality of their canonical text with exact numbers.
#
# What can go wrong: integers of more than 4,300 digits (ValueError by CPython),
# nesting deeper than the C stack (RecursionError), lone surrogates (decode, but
# do not encode): each is caught here and such a line is skimmed or passed on.
# ----------------------------------------------------------------------------
WHITESPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY, SERVER_KEY, SUBSCRIPTION_KEY = [
    "io.modelcontextprotocol/" + name
    for name in ("protocolVersion", "clientCapabilities", "clientInfo", "serverInfo", "subscriptionId")]
# A line up to here is parsed whole; measured, the skim is quicker above.
SHORT_BYTES = 1024
# Up to here the middle of a skimmed line is searched for second members.
SEARCHED_BYTES = 256 * 1024
# A long line of an unusual shape is parsed whole up to here, above it is only passed on.
PARSED_BYTES = 2 * 1024 * 1024
# Steps of a skim over blanks, digits, backslashes or quotes; a line made to need more is not worth the others' time.
SKIM_STEPS, MOST_MEMBERS = 20000, 100
# A line at least this long leaves the splitter as a block of its own: no copy of it is made.
LONG_BYTES = 64 * 1024
# Many short lines that came in one read go on in blocks of this size: the other side works on the first ones while we
# judge the next; halving it costs a flood of notifications a quarter of its rate.
BLOCK_BYTES = 32 * 1024


class LineSplitter:
    """Blocks of whole lines out of a byte stream.

    `feed(data)` returns a list of blocks (bytes or bytearray, each ending in LF,
    a long line alone in its block). `too_long` is set to True when a line passed
    the limit; its rest is skipped up to the next LF.
    """
    __slots__ = ("limit", "too_long", "_tail", "_skipping", "_start")

    def __init__(self, limit=MAX_LINE_BYTES):
        self.limit, self.too_long = limit, False
        self._tail, self._skipping, self._start = bytearray(), False, b""

    def feed(self, data):
        if self._start is not None:  # nothing has come yet but perhaps a piece of a byte-order mark
            data = self._start + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return []
            self._start, data = None, data[3:] if data.startswith(BOM) else data
        blocks = []
        if self._tail or self._skipping:
            first = data.find(b"\n") + 1
            if not first:
                self._keep(data)
                return blocks
            blocks += self._finish(data[:first])
            data = data[first:]
        cut = data.rfind(b"\n") + 1
        if cut > self.limit:
            blocks += self._within_limit(data[:cut])
        elif cut > BLOCK_BYTES:
            blocks += _short_blocks(data, cut)
        elif cut:
            blocks.append(data if cut == len(data) else data[:cut])
        if cut < len(data):
            self._keep(data[cut:])
        return blocks

    def _keep(self, data):
        if self._skipping:
            return
        self._tail += data
        if len(self._tail) - self._tail.endswith(b"\n") > self.limit:
            self.too_long = self._skipping = True
            self._tail = bytearray()

    def _within_limit(self, block):
        """The lines of a block that are not too long; only for limits below the size of a read."""
        lines = block.split(b"\n")[:-1]
        self.too_long = self.too_long or max(map(len, lines)) > self.limit
        return [line + b"\n" for line in lines if len(line) <= self.limit]

    def _finish(self, data):
        """The kept piece and its end: one block, unless it grew too long."""
        self._keep(data)  # does nothing for a line that is skipped already
        if self._skipping:
            self._skipping = False
            return []
        line, self._tail = self._tail, bytearray()
        return [line if len(line) >= LONG_BYTES else bytes(line)]

    def rest(self):
        """The last line where the stream ended without LF (A7.13), as a list of blocks."""
        line, self._tail = self._tail, bytearray()
        return [bytes(line) + b"\n"] if line and not self._skipping else []


def _short_blocks(data, cut):
    """`data[:cut]` in blocks of about BLOCK_BYTES, cut behind a LF."""
    blocks, at = [], 0
    while at < cut:
        end = data.rfind(b"\n", at, at + BLOCK_BYTES) + 1 or data.find(b"\n", at) + 1
        blocks.append(data[at:end])
        at = end
    return blocks


# -- JSON ----------------------------------------------------------------------

# Zeros are written out up to here, so that 1e400 does not become a text of any size.
LONGEST_NUMBER = 400


class NotJson(ValueError):
    """NaN and Infinity, which CPython would take."""


class Unreadable(ValueError):
    """JSON perhaps, but nested deeper or with more digits than CPython reads."""


def _no_constant(text):
    raise NotJson(text)


class _Plain:
    """What the C scanner reads its options from."""
    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float, parse_int, parse_constant = float, int, staticmethod(_no_constant)


class _Exact(_Plain):
    """Floats stay text, so that two spellings can be compared exactly."""
    parse_float = staticmethod(lambda text: _Number(text))


class _Number(str):
    """The text of a JSON number that is not an integer literal."""


class _Spelled(_Exact):
    """All numbers stay text, as they are spelled."""
    parse_int = staticmethod(lambda text: _Number(text))


_scan = make_scanner(_Plain)
_scan_exact = make_scanner(_Exact)
_scan_spelled = make_scanner(_Spelled)
# SystemError: the C scanner takes its JSONDecodeError from `json.decoder` and raises nothing where that was never
# imported (3.9 to 3.12), which the interpreter reports so.
_SCAN_ERRORS = (ValueError, StopIteration, RecursionError, IndexError, SystemError)


def parse_json(raw, exact=False):
    """The value of one JSON text (bytes or str). ValueError if it is not one.

    exact=True leaves non-integer numbers as text. RecursionError and the limit of
    4,300 digits come out as ValueError too.
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8")
    start = _past_space(text, 0)
    try:
        value, end = (_scan_exact if exact else _scan)(text, start)
    except _SCAN_ERRORS as error:
        raise ValueError("not JSON: %s" % error) from None
    if _past_space(text, end) != len(text):
        raise ValueError("text behind the JSON value")
    return value


def _past_space(text, at):
    while text[at:at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def members(raw):
    """{name: raw text (bytes)} of the top-level members of a JSON object; the last of a name wins.

    Values are cut out verbatim. ValueError if `raw` is not one whole object.
    """
    text = bytes(raw).decode("utf-8")
    return {name: text[start:end].encode("utf-8") for name, (start, end) in _spans(text).items()}


def with_members(raw, changes):
    """A JSON object (bytes) with top-level members set: {name: raw value}; other bytes stay. ValueError as above."""
    text = bytes(raw).decode("utf-8")
    spans, edits, added = _spans(text), [], ""
    for name, value in changes.items():
        if name in spans:
            edits.append(spans[name] + (value.decode("utf-8"),))
        else:
            added += "," + encode_basestring_ascii(name) + ":" + value.decode("utf-8")
    if added:
        close = text.rindex("}")
        edits.append((close, close, added if spans else added[1:]))
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    return text.encode("utf-8")


def _spans(text):
    """{name: (start, end) of its value} of the top-level members of an object's text."""
    found = {}
    at = _past_space(text, 0)
    try:
        more = text[at] == "{"
        at = _past_space(text, at + 1)
        while more and not (text[at] == "}" and not found):
            if text[at] != '"':
                raise ValueError("no name")
            name, at = scanstring(text, at + 1)
            colon = _past_space(text, at)
            start = _past_space(text, colon + 1)
            end = _scan(text, start)[1]
            found[name] = start, end
            at = _past_space(text, end)
            if text[colon] != ":" or text[at] not in ",}":
                raise ValueError("no colon or comma")
            more = text[at] == ","
            at = _past_space(text, at + 1) if more else at
        if text[at] != "}" or _past_space(text, at + 1) != len(text):
            raise ValueError("no object, or text behind it")
    except _SCAN_ERRORS as error:
        if isinstance(error, RecursionError) or type(error) is ValueError and "digit" in str(error):
            raise Unreadable("too deep or too long to read: %s" % error) from None
        raise ValueError("not a JSON object: %s" % error) from None
    return found


def elements(raw):
    """The raw texts (bytes) of the elements of a JSON array that was parsed before."""
    text, found = raw.decode("utf-8"), []
    at = _past_space(text, _past_space(text, 0) + 1)
    while text[at] != "]":
        end = _scan(text, at)[1]
        found.append(text[at:end].encode("utf-8"))
        at = _past_space(text, end)
        at = _past_space(text, at + 1) if text[at] == "," else at
    return found


def _exact_number(text):
    """A spelling of a decimal number that equals that of every equal number; ints as ints."""
    mantissa, _, power = text.lower().partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or "0") - len(fraction) + len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    return sign + digits + ("0" * exponent if 0 <= exponent <= LONGEST_NUMBER else "e%d" % exponent)


def canonical(value):
    """Canonical JSON text (str) of a parsed value: sorted names, no spaces, exact numbers.

    `value` comes from parse_json(..., exact=True). Lone surrogates stay escaped. Equal text = equal value (A6.6).
    """
    if value is None or value is True or value is False:
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, _Number):
        return _exact_number(value)
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{%s}" % ",".join(
            encode_basestring_ascii(name) + ":" + canonical(value[name]) for name in sorted(value))
    if isinstance(value, list):
        return "[%s]" % ",".join([canonical(item) for item in value])
    text = str(value)
    return text if len(text) <= LONGEST_NUMBER else _exact_number(text)


def spelled_json(raw):
    """The value of a JSON text with every number as the text that it is spelled with, for `go_text`. ValueError."""
    text = raw.decode("utf-8")
    try:
        value, end = _scan_spelled(text, _past_space(text, 0))
    except _SCAN_ERRORS as error:
        raise ValueError("not JSON: %s" % error) from None
    return value


def go_text(value):
    """The text that Go's encoder makes of a value of `spelled_json` (B6).

    Sorted names, no spaces, text as UTF-8, `<>&` and U+2028/9 escaped, lone surrogates become U+FFFD.
    """
    if isinstance(value, dict):
        return "{%s}" % ",".join(_go_string(name) + ":" + go_text(value[name]) for name in sorted(value))
    if isinstance(value, list):
        return "[%s]" % ",".join([go_text(item) for item in value])
    if isinstance(value, _Number):
        return str(value)
    return _go_string(value) if isinstance(value, str) else canonical(value)


def _go_string(text):
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    out = ['"']
    for c in text:
        if c < " " or c in '"\\':
            out.append(encode_basestring_ascii(c)[1:-1])
        else:
            out.append("\\u%04x" % ord(c) if c in "<>&\u2028\u2029" else c)
    return "".join(out) + '"'


def same_json(one, other):
    """True if two raw JSON texts (bytes) have the same value; False also where one cannot be read."""
    if one == other:
        return True
    try:
        return canonical(parse_json(one, exact=True)) == canonical(parse_json(other, exact=True))
    except (ValueError, RecursionError):
        return False


def json_string(text):
    """A JSON string literal (bytes, ASCII) of `text`; lone surrogates become escapes."""
    return encode_basestring_ascii(text).encode("ascii")


# -- envelopes -------------------------------------------------------------------

REQUEST, NOTIFICATION, RESPONSE = "request", "notification", "response"
BATCH, ODD, BAD = "batch", "odd", "bad"


class Envelope:
    """What one line is.

    kind: REQUEST, NOTIFICATION, RESPONSE, BATCH (a JSON array), ODD (JSON, but no
    message), BAD (no JSON). method: str or None. id_key: hashable, equal for equal
    JSON values of one type; None without an id. id_raw: the id as spelled (bytes).
    version2: it says "jsonrpc":"2.0". body: the parsed value, None if only skimmed.
    """
    __slots__ = ("kind", "method", "id_key", "id_raw", "version2", "body")

    def __init__(self, kind, method=None, id_key=None, id_raw=None, version2=False, body=None):
        self.kind, self.method, self.id_key, self.id_raw = kind, method, id_key, id_raw
        self.version2, self.body = version2, body

    def params(self, line):
        """The parsed params, None without any, () where they cannot be read. A skimmed line is parsed whole."""
        try:
            return (self.body if self.body is not None else parse_json(line)).get("params")
        except (ValueError, AttributeError):
            return ()


def id_key_of(value, raw):
    """A key by JSON type and value: 1 and 1.0 are equal, 1 and "1" and true are not (A7.16)."""
    kind = type(value)
    if kind is int or kind is str:
        return value
    if kind is float and raw != b"null":
        text = _exact_number(bytes(raw).decode("ascii"))
        return ("number", text) if "e" in text else int(text)
    return ("raw", bytes(raw))


def spell_id(value):
    """A text (bytes) for a parsed id whose own spelling is not at hand."""
    if type(value) is float:
        return str(value).encode("ascii") if value - value == 0.0 else b"null"
    try:
        return canonical(value).encode("ascii")
    except (RecursionError, ValueError):
        return b"null"


def classify(body, raw):
    """The Envelope of a parsed value; `raw` is its text (bytes), to take the id's spelling from."""
    if type(body) is not dict:
        return Envelope(BATCH if type(body) is list else ODD, body=body)
    method, ident = body.get("method"), body.get("id")
    key = id_raw = None
    if type(ident) is int and (ident or b"-0" not in raw):
        key, id_raw = ident, b"%d" % ident
    elif ident is not None:
        if type(ident) is str and b"\\" not in raw:
            id_raw = b'"%s"' % ident.encode("utf-8")
        else:
            id_raw = members(raw)["id"]
        key = id_key_of(ident, id_raw)
    if type(method) is str:
        kind = NOTIFICATION if key is None else REQUEST
    elif "method" not in body and (key is not None or "result" in body or "error" in body):
        kind, method = RESPONSE, None  # also one with neither: the answer to a request that went wrong
    else:
        kind, method = ODD, None
    return Envelope(kind, method, key, id_raw, body.get("jsonrpc") == "2.0", body)


def read_envelope(line):
    """The Envelope of one line (bytes-like, with or without LF). Never raises."""
    if len(line) > SHORT_BYTES:
        skimmed = _skim(line)
        if skimmed is not None:
            return skimmed
        if len(line) > PARSED_BYTES:
            return Envelope(BATCH if line[:1] == b"[" else ODD)
    try:
        text = line.decode("utf-8")
        body, end = _scan(text, 0 if text[0] == "{" else _past_space(text, 0))
        if text[end:] != "\n" and text[end:].strip(" \t\r\n"):
            return Envelope(BAD)
        return classify(body, line)
    except _SCAN_ERRORS:
        # Not JSON (NaN, a byte that is not UTF-8 ...), or JSON that CPython refuses (nesting, digits): as a long line,
        # it is judged by its ends, or the length of a line would decide what passes.
        return _skim(line) or Envelope(BAD)


def envelopes_of(batch, line):
    """[(Envelope, raw text)] of the elements of a BATCH envelope, as of lines of their own; [] if it is too long."""
    try:
        return [(classify(item, raw) if type(item) is dict else Envelope(ODD), raw)
                for item, raw in zip(batch.body, elements(line))] if batch.body else []
    except _SCAN_ERRORS:  # so deep that a frame or two more than at the first look are too many
        return []


class _GiveUp(Exception):
    """A skim took too many steps."""


def _skim(line):
    """The Envelope of an object by its two ends, or None where they do not tell."""
    try:
        return _skim_ends(line)
    except _GiveUp:
        return None


def _skim_ends(line):
    head, head_end = _head_members(line)
    if head is None:
        return None
    tail, tail_start = ({}, head_end) if head_end is None else _tail_members(line)
    if tail is None:
        return None
    if head_end is not None and not _one_container(line, head_end, tail_start):
        return None
    head.update(tail)
    if head.get("id") == b"":  # a container: only the whole line tells its text
        return None
    if not head.keys() & {"method", "result", "error"}:  # what makes it a message lies in the middle
        if len(line) <= PARSED_BYTES or line.find(b'"method"') >= 0:
            return None
        head["result"] = b""  # an answer, as nothing in it is a method, and too long to be asked further
    return _envelope_of_raw(head)


def _one_container(line, start, end):
    """False if something between the ends could be a second `id` or `method`."""
    if end - start > SEARCHED_BYTES:
        return True
    return (line.find(b'"id"', start, end) < 0 and line.find(b'"method"', start, end) < 0
            and line.find(b"\\u00", start, end) < 0)


def _envelope_of_raw(found):
    """An Envelope of {name: raw value}, where a container is b""; None if a value is no JSON."""
    method_raw, id_raw = found.get("method"), found.get("id", b"null")
    method = key = None
    try:
        if method_raw:
            method = parse_json(method_raw)
        if id_raw.lstrip(b"-").isdigit() and len(id_raw) > LONGEST_NUMBER:
            key = ("raw", id_raw)  # more digits than CPython converts
        elif id_raw != b"null":
            key = id_key_of(parse_json(id_raw), id_raw)
    except ValueError:
        return None
    if key is None:
        id_raw = None
    version2 = found.get("jsonrpc") == b'"2.0"'
    if type(method) is str:
        return Envelope(NOTIFICATION if key is None else REQUEST, method, key, id_raw, version2)
    if "method" not in found and (key is not None or "result" in found or "error" in found):
        return Envelope(RESPONSE, None, key, id_raw, version2)
    return Envelope(ODD, version2=version2)


def _head_members(line):
    """({name: raw}, position of the first container or None at the end); (None, 0) if it is no object."""
    found, at, members_seen = {}, _skip(line, 0), SKIM_STEPS - MOST_MEMBERS
    if line[at:at + 1] != b"{":
        return None, 0
    at = _skip(line, at + 1)
    while line[at:at + 1] == b'"':
        members_seen = _count(members_seen)
        end = _string_end(line, at)
        name = bytes(line[at + 1:end - 1])
        at = _skip(line, end)
        if not end or b"\\" in name or line[at:at + 1] != b":":
            return None, 0
        at = _skip(line, at + 1)
        name, first = name.decode("utf-8", "replace"), line[at:at + 1]
        if first in (b"{", b"["):
            found[name] = b""
            return found, at
        end = _string_end(line, at) if first == b'"' else _scalar_end(line, at)
        if not end:
            return None, 0
        found[name] = bytes(line[at:end])
        at = _skip(line, end)
        if line[at:at + 1] == b"}":
            return (found, None) if _skip(line, at + 1) == len(line) else (None, 0)
        at = _skip(line, at + 1)
    return None, 0


def _tail_members(line):
    """({name: raw}, end of the last container), read backwards from the closing brace; (None, 0) if unclear."""
    found, at, members_seen = {}, _skip_back(line, len(line)), SKIM_STEPS - MOST_MEMBERS
    if line[at - 1:at] != b"}":
        return None, 0
    at = _skip_back(line, at - 1)
    while line[at - 1:at] not in (b"}", b"]"):
        members_seen = _count(members_seen)
        start = _string_start(line, at) if line[at - 1:at] == b'"' else _scalar_start(line, at)
        colon = _skip_back(line, start)
        if start < 1 or line[colon - 1:colon] != b":":
            return None, 0
        name_end = _skip_back(line, colon - 1)
        name_start = _string_start(line, name_end) if line[name_end - 1:name_end] == b'"' else 0
        comma = _skip_back(line, name_start)
        name = bytes(line[name_start + 1:name_end - 1])
        if name_start < 1 or b"\\" in name or line[comma - 1:comma] != b",":
            return None, 0
        found.setdefault(name.decode("utf-8", "replace"), bytes(line[start:at]))
        at = _skip_back(line, comma - 1)
    return found, at


def _count(steps):
    if steps > SKIM_STEPS:
        raise _GiveUp
    return steps + 1


def _skip(line, at):
    steps = 0
    while line[at:at + 1] in (b" ", b"\t", b"\r", b"\n"):
        at, steps = at + 1, _count(steps)
    return at


def _skip_back(line, at):
    steps = 0
    while at > 0 and line[at - 1] in WHITESPACE:
        at, steps = at - 1, _count(steps)
    return at


def _string_end(line, at):
    """Behind the closing quote of the string that opens at `at`; 0 if there is none."""
    end, steps = line.find(b'"', at + 1), 0
    while end > 0 and _backslashes(line, end) % 2:
        end, steps = line.find(b'"', end + 1), _count(steps)
    return end + 1


def _string_start(line, end):
    """The opening quote of the string whose closing quote is before `end`; -1 if there is none."""
    start, steps = line.rfind(b'"', 0, end - 1), 0
    while start > 0 and _backslashes(line, start) % 2:
        start, steps = line.rfind(b'"', 0, start), _count(steps)
    return start


def _backslashes(line, at):
    count = 0
    while at - count > 0 and line[at - count - 1] == 0x5C:
        count = _count(count)
    return count


def _scalar_end(line, at):
    end = at
    while line[end:end + 1] not in (b",", b"}", b"]", b"", b" ", b"\t", b"\r", b"\n"):
        end = at + _count(end - at)
    return end if end > at else 0


def _scalar_start(line, end):
    start = end
    while start > 0 and line[start - 1] not in b' \t\r\n,:{}[]"':
        start = end - _count(end - start)
    return start if start < end else 0


def all_notifications(block):
    """True if every line of a block is a notification that nobody here has to look at.

    A few counts at memory speed instead of a loop. Sound because a raw LF cannot stand inside a
    JSON string: the head behind each line's opening brace and `"jsonrpc":"2.0"` right before its
    closing one are members of each line, and no line holds an `id`.
    """
    if len(block) > SEARCHED_BYTES or b'"id"' in block[:SHORT_BYTES]:
        return False  # a long line, where the counts would cost more than they save; or plainly not
    lines = block.count(b"\n")
    if block[:1] != b"{" or block.count(b"}\n{") != lines - 1 or block[-2:] != b"}\n":
        return False
    for head in (b'{"jsonrpc":"2.0","method":"', b'{"jsonrpc": "2.0", "method": "', b'{"method":"'):
        if block.startswith(head):
            break
    else:
        return False
    if block.count(b"\n" + head) != lines - 1 or head[2:3] == b"m" and block.count(b'"jsonrpc":"2.0"}\n') != lines:
        return False
    return (b'"id"' not in block and b"list_changed" not in block and b"cancelled" not in block
            and b"acknowledged" not in block and b"/tasks" not in block and b"elicitation" not in block
            and b"\\u00" not in block)


def is_modern(params):
    """True if params carry the 2026-07-28 envelope (A17.1)."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get(VERSION_KEY), str)


def member_of(value, name):
    """A member of what may be an object, None otherwise."""
    return value.get(name) if isinstance(value, dict) else None


def progress_token(env, line):
    """The progress token of a request as a key, None without one. Of a line over 2 MiB only the ends are looked at."""
    if env.body is not None:
        return token_key(member_of(member_of(env.body.get("params"), "_meta"), "progressToken"))
    raw, value = bytes(line) if len(line) <= PARSED_BYTES else b"", None
    if raw and b'"progressToken"' in raw:
        try:
            return token_key(parse_json(members(members(members(raw)["params"])["_meta"])["progressToken"]))
        except (KeyError, ValueError):
            return None
    for part in (bytes(line[:SHORT_BYTES]), bytes(line[-SHORT_BYTES:])) if not raw else ():
        text = part.partition(b'"progressToken"')[2].lstrip(WHITESPACE + b":").decode("utf-8", "replace")
        try:
            found, end = _scan(text, 0)
            value = found if end < len(text) else value  # a number could go on behind the part
        except _SCAN_ERRORS:
            pass
    return token_key(value)


def token_key(value):
    """What a string or integer is known by: itself (1 is not "1"), size and hash of a long one; None for all else."""
    if type(value) is str:
        return value if len(value) <= TOKEN_CHARS and value.isascii() else (len(value), hash(value))
    if type(value) is int:
        return value if value.bit_length() <= 64 else (value.bit_length(), hash(value))
    return None


def cancelled_key(env, line):
    """The id key that a `notifications/cancelled` names, or None."""
    params = env.params(line)
    ident = params.get("requestId") if isinstance(params, dict) else None
    return None if ident is None else id_key_of(ident, spell_id(ident))


def kind_of_noise(text):
    """What a line that is no message looks like, for the error of a handshake that fails after it (A10.14)."""
    if text.lower().startswith(b"content-length"):
        return "it frames its messages with Content-Length headers"
    if text in (b"{", b"}", b"[", b"]") or text[:1] == b'"':
        return "it prints JSON over several lines"
    return "it prints JSON that is no JSON-RPC 2.0 message" if text[:1] == b"{" else "it prints text"


# -- open requests ---------------------------------------------------------------

# Late answers that are waited for after --call-timeout, and requests of a server that are kept in mind.
MAX_OVERDUE = 10000
# Progress tokens of requests that are over: of each process the last MAX_LATE, at times LATE_STEP more. Measured with
# all of them: 0.3 MiB for integers, 0.5 for UUIDs, 0.7 whatever a client takes, as of long ones only a hash is kept.
MAX_LATE, LATE_STEP, TOKEN_CHARS = 4096, 512, 64

class Flight:
    """One open request of the client.

    token: the key of its progress token; note: what its answer teaches (a recorded method, or (method, params));
    entry: the one it is recorded in; before: what a handshake that is refused falls back to, a request of the modern
    era as it was read, or the line of a subscription; batch: the number of its array or 0; startup: it keeps the
    startup deadline armed.
    """
    __slots__ = ("method", "key", "id_raw", "batch", "queued", "startup", "token", "note", "entry", "before", "since_s")

    def __init__(self, env, since_s, queued, batch=0):
        self.method, self.key, self.id_raw, self.batch = env.method, env.id_key, env.id_raw, batch
        self.queued, self.startup, self.note, self.since_s = queued, False, None, since_s
        self.entry = self.before = self.token = None


class Flights:
    """Who waits for what: the client's requests and the server's, each by the value of its id.

    late: progress tokens of requests that ended; what still comes for them is nobody's (Cursor drops the connection).
    """
    __slots__ = ("_open", "server", "startup", "late", "_overdue", "_tokens")

    def __init__(self):
        self._open, self.server, self.startup, self.late, self._overdue, self._tokens = {}, {}, 0, {}, {}, {}

    def __bool__(self):
        return bool(self._open)

    def __iter__(self):
        return (flight for flights in self._open.values() for flight in flights)

    def add(self, flight):
        """An id that is in use already gets a second place: both answers will be delivered (A7.17)."""
        self._open.setdefault(flight.key, []).append(flight)
        if flight.token is not None:
            self.late.pop(flight.token, None)
            self._tokens[flight.token] = self._tokens.get(flight.token, 0) + 1

    def hold_start(self, flight):
        """This one keeps the startup deadline armed."""
        flight.startup = True
        self.startup += 1

    def first(self, key):
        """The oldest open request with this id; None if there is none."""
        return self._open[key][0] if key in self._open else None

    def take(self, key):
        """The same, now closed."""
        flight = self.first(key)
        if flight is not None:
            self.close(flight)
        return flight

    def put_back(self, flight):
        """Open again: what came was no answer."""
        self.add(flight)
        self.startup += flight.startup

    def close(self, flight):
        """Close this very one; False if it is no longer open."""
        flights = self._open.get(flight.key, [])
        if flight not in flights:
            return False
        flights.remove(flight)
        if not flights:
            del self._open[flight.key]
        self.startup -= flight.startup
        if flight.token is not None:
            self._token_closed(flight)
        return True

    def _token_closed(self, flight):
        """Its token is nobody's now, unless another open request has the same."""
        left = self._tokens[flight.token] = self._tokens[flight.token] - 1
        if not left:
            del self._tokens[flight.token]
            if flight.batch or not flight.queued:  # what is cancelled inside a queued array is sent all the same
                self.no_more(flight.token)

    def no_more(self, token):
        """What comes for this token now is late, if no open request has it; the oldest are forgotten by the hundred."""
        if token is not None and token not in self._tokens:
            if len(self.late) >= MAX_LATE + LATE_STEP:
                self.late = dict.fromkeys(list(self.late)[LATE_STEP:])
            self.late[token] = None

    def overdue(self, flight):
        """Close one that we answered ourselves; its late answer will be dropped."""
        self.close(flight)
        if not flight.queued and len(self._overdue) < MAX_OVERDUE:
            self._overdue[flight.key] = self._overdue.get(flight.key, 0) + 1

    def was_overdue(self, key):
        """True once for each answer that comes too late."""
        count = self._overdue.get(key, 0)
        if count > 1:
            self._overdue[key] = count - 1
        return self._overdue.pop(key, 0) == 1 if count == 1 else count > 1

    def new_server(self):
        """What the last one still owed cannot come any more."""
        self._overdue.clear()
        self.late.clear()

    def take_all(self):
        """Close and return all."""
        taken = list(self)
        self._open, self.startup = {}, 0
        self._overdue.clear()
        self.late.clear()
        self._tokens.clear()
        return taken


# -- answers ---------------------------------------------------------------------

def clean_line(line):
    """One message, LF behind it and nothing around it; the same object where it is so already."""
    if line[-1:] == b"\n" and line[-2:-1] not in (b" ", b"\t", b"\r") and line[0] not in WHITESPACE:
        return line
    return bytes(line).strip() + b"\n"

def result_line(id_raw, result_raw):
    """A success response, LF included (bytes)."""
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (id_raw, result_raw)


def error_object(code, text):
    """A JSON-RPC error object (bytes)."""
    return b'{"code":%d,"message":%s}' % (code, json_string(text))


def error_line(id_raw, error_raw):
    """An error response, LF included (bytes)."""
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (id_raw, error_raw)


def errors_array(id_raws, error_raw):
    """One error for every request of a batch, as an array (A7.15)."""
    return b"[" + b",".join(error_line(id_raw, error_raw)[:-1] for id_raw in id_raws) + b"]\n"

# ============================================================================
# L3 KERNEL - every system call                                    [I/O, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1
# Used by: L4 L6 L8 L8b L8c L9 L9b L11 L11b L13c L13d L13e L14 L14b L15
# Owns:   monotonic_s, wall_s, this_pid, filesystem_bytes, read_some, write_some, make_pipe, open_null, open_append,
#         close_quietly, set_blocking, StandardStreams, SignalPipe, Processes, describe_exit, current_environment,
#         own_environment, set_title, run_again_with_title, user_cache_dir, home_dir, private_dir_trouble,
#         read_private_file, replace_file, lock_file, append_to_file, rotate_file, file_tail, program_stat,
#         find_program, absolute_path, poll_now, hung_up, selector_class, read_proc, stat_of, write_all, exit_now
# Never:  decides anything about MCP; blocks
# Tests:  tests/test_l03_kernel.py
# ----------------------------------------------------------------------------
# Theory, processes. One spawn, one way to kill, for servers, predicates and
# helpers. `posix_spawn(setpgroup=0)` gives the child a group whose id is its
# pid, known without asking (asking fails once the leader was reaped). Exit is
# judged by wait status; a helper that keeps the pipes open proves nothing.
# The rest of a group is killed while its dead leader is still a zombie: until
# the reap the kernel cannot hand the number out again, so the signal cannot
# hit a stranger. (waitid with WNOWAIT; where it is missing, right after.)
# A child inherits ignored signals and the mask from us, and Python ignores
# SIGPIPE and SIGXFSZ: every signal is set back to its default at the spawn.
#
# SIGKILL of the relay runs no code here. The guard is a /bin/sh in a session
# of its own that reads `+PGID` and `-PGID` from a pipe of which only we hold
# the other end; when we are gone, however, its read ends and it ends what is
# listed. `posix_spawn` returns only after the exec, so between the start of a
# server and its `+PID` lie milliseconds; before it the guard hears `?INODE`, the
# pipe that will be the server's stdin, and looks for it in /proc if nothing else
# comes: the new process holds a copy of the guard's pipe until its exec, so
# at the end of input it is there to be found. (Before: 20 of 25 servers stayed
# when the relay was killed at once.) What remains: a system without /proc, and
# the predicate, which has no such pipe, for the same milliseconds.
#
# Theory, descriptors. O_NONBLOCK belongs to the open file, not to us: whoever
# shares our stdin or stdout gets it too, so it is set on pipes and sockets only
# and taken back on every way out. stderr often is the terminal of everybody
# and stays blocking: at most 4 KiB (PIPE_BUF) after it polled writable.
# `set_wakeup_fd` writes a byte per signal from the C handler: a signal that
# arrives just before the wait still wakes it (PEP 475 restarts the call).
#
# Theory, the title (E). ps shows the argv area; it is writable through
# /proc/self/mem at the addresses of /proc/self/stat, without privileges. The
# new text must end in NUL inside the area, or the kernel reads on into the
# environment. Where that fails (macOS, not dumpable): one more exec.
# ----------------------------------------------------------------------------
READ_BYTES = 256 * 1024
STDERR_WRITE_BYTES = 4096
NULL_DEVICE = "/dev/null"
# The words of the guard: a list of groups kept by `+` and `-` lines, ended at end of input. `sleep 0.5` is not POSIX,
# but understood by every sh system this runs on; where it is not, KILL follows TERM at once.
GUARD_SCRIPT = r"""trap '' TERM INT HUP; g=' '; s=
while read -r w; do p=${w#?}
case $w in '?'*) s=$p ;; +*) s=; g="$g$p " ;; -*) case $g in *" $p "*) g="${g%% $p *} ${g#* $p }" ;; esac ;; esac; done
[ "$s" ] &&
g="$g$(ls -l /proc/[0-9]*/fd/[01] 2>/dev/null | sed -n "s|.* /proc/\([0-9]*\)/fd/[01] -> pipe:.$s.\$|\1|p") "
[ "$g" = ' ' ] && exit
for p in $g; do kill -TERM -$p; done; sleep 0.5; for p in $g; do kill -KILL -$p; done
"""
RUN_AGAIN_VARIABLE = b"MCP_LAZY_ARGV_SET"

monotonic_s = time.monotonic
wall_s = time.time
pause = time.sleep  # only where nothing else is left to do: our own end, the example server


def utc_stamp(at_wall_s):
    """2026-11-30T16:21:06.491 of a unix time."""
    date = time.gmtime(at_wall_s)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03d" % (date[:6] + (int(at_wall_s * 1000) % 1000,))


def is_posix_system():
    return posix is not None


def this_pid():
    return posix.getpid()


def exit_now(status):
    """Leave without running anything more (after a fork, or when the world is beyond repair)."""
    posix._exit(status)


def filesystem_bytes(text):
    """The bytes that the system knows a str from argv or a path by."""
    return text if isinstance(text, bytes) else text.encode(sys.getfilesystemencoding(), "surrogateescape")


def filesystem_text(raw):
    return raw if isinstance(raw, str) else raw.decode(sys.getfilesystemencoding(), "surrogateescape")


# -- descriptors -----------------------------------------------------------------

def read_some(fd, size=READ_BYTES):
    """What can be read now: bytes, b"" at end of input, None if nothing is there yet. A broken peer is an end."""
    try:
        return posix.read(fd, size)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in (errno.EIO, errno.ECONNRESET, errno.EBADF):  # EBADF: stdin that was opened for writing
            return b""
        raise


def write_some(fd, pieces):
    """Bytes written of a list of bytes-likes (0 if the peer is full). OSError (EPIPE ...) if it is gone."""
    try:
        return posix.writev(fd, pieces)
    except BlockingIOError:
        return 0


def make_pipe():
    """(read end, write end), both close-on-exec."""
    return posix.pipe()


def open_null(flags=0):
    return posix.open(NULL_DEVICE, flags or posix.O_RDWR | posix.O_CLOEXEC)


def close_quietly(fd):
    try:
        posix.close(fd)
    except OSError:
        pass


def set_blocking(fd, blocking):
    posix.set_blocking(fd, blocking)


def poll_now(fd, writable):
    """True if a write (or read) on `fd` would not block now."""
    import select
    poll = select.poll()
    poll.register(fd, select.POLLOUT if writable else select.POLLIN)
    return bool(poll.poll(0))


def hung_up(fd):
    """True if nobody can write to `fd` any more, whatever is still unread in it."""
    import select
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def selector_class():
    """The best selector of this system; imported late, it costs 6 ms."""
    import selectors
    return selectors.DefaultSelector


class StandardStreams:
    """Descriptors 0 to 2 as we found them, and how to leave them so."""
    __slots__ = ("_changed",)

    def __init__(self):
        self._changed = []
        for fd in (0, 1, 2):
            try:
                posix.fstat(fd)
            except OSError:  # closed by the caller: the next open would take its number
                posix.open(NULL_DEVICE, posix.O_RDWR)

    def make_nonblocking(self, fd):
        """True if `fd` is a pipe or a socket, and now does not block."""
        if posix.fstat(fd).st_mode & 0o170000 not in (0o010000, 0o140000):
            return False
        if posix.get_blocking(fd):
            posix.set_blocking(fd, False)
            self._changed.append(fd)
        return True

    def restore(self):
        for fd in self._changed:
            try:
                posix.set_blocking(fd, True)
            except OSError:
                pass
        self._changed = []


# -- signals ---------------------------------------------------------------------

STOP_SIGNALS = (_signal.SIGTERM, _signal.SIGINT, getattr(_signal, "SIGHUP", 1))


class SignalPipe:
    """Signals as bytes on a descriptor: `fd` becomes readable, `read()` tells which."""
    __slots__ = ("fd", "_write_fd")

    def __init__(self):
        self.fd, self._write_fd = posix.pipe()
        posix.set_blocking(self.fd, False)
        posix.set_blocking(self._write_fd, False)
        _signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in STOP_SIGNALS + (_signal.SIGCHLD,):
            _signal.signal(signum, lambda *ignored: None)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, STOP_SIGNALS + (_signal.SIGCHLD,))

    def read(self):
        """The set of signal numbers that came since the last call."""
        return set(read_some(self.fd) or b"")

    def ignore(self):
        """All is done: a signal while the interpreter ends (it sets handlers back) must not change the exit status."""
        for signum in STOP_SIGNALS:
            _signal.signal(signum, _signal.SIG_IGN)


def signal_name(signum):
    """SIGSEGV for 11."""
    for name in dir(_signal):
        if name[:3] == "SIG" and name[3:4] != "_" and getattr(_signal, name) == signum:
            return name
    return "signal %d" % signum


def describe_exit(status):
    """"exit status 7" or "SIGSEGV", of a wait status."""
    if posix.WIFSIGNALED(status):
        return signal_name(posix.WTERMSIG(status))
    return "exit status %d" % posix.WEXITSTATUS(status)


# -- processes -------------------------------------------------------------------

def current_environment():
    """{name: value} (bytes) as this process sees it; enough for its own options."""
    return posix.environ


def own_environment():
    """{name: value} (bytes) that this process was started with.

    Read from /proc, because CPython sets LC_CTYPE for itself in a C locale (A8.4).
    """
    try:
        fd = posix.open("/proc/self/environ", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        found = dict(posix.environ)
        if not found.get(b"LC_ALL") and found.get(b"LANG", b"C") in (b"C", b"POSIX", b""):
            found.pop(b"LC_CTYPE", None)
    else:
        raw = bytearray()
        piece = posix.read(fd, READ_BYTES)
        while piece:
            raw += piece
            piece = posix.read(fd, READ_BYTES)
        posix.close(fd)
        found = {}
        for entry in bytes(raw).split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if name and equals:
                found.setdefault(name, value)
    found.pop(RUN_AGAIN_VARIABLE, None)
    return found


class Processes:
    """Every process that this one starts: spawn, kill, collect. Nothing else may do that."""
    __slots__ = ("_live", "_guard_pid", "_guard_fd", "_environment")

    def __init__(self):
        self._live = set()
        self._guard_pid = self._guard_fd = self._environment = None

    def spawn(self, argv, fds, environment=None):
        """Pid (= group id) of a new process with `fds` (three) as its 0 to 2. SpawnError if there is none."""
        if self._environment is None:
            self._environment = own_environment()
            _close_strangers_on_exec()
        self._start_guard()
        actions = [(posix.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
        for seen in map(posix.fstat, fds[1::-1]):  # its stdin is said last, if both are pipes
            if seen.st_mode & 0o170000 == 0o010000:
                self._tell_guard(b"?%d\n" % seen.st_ino)
        try:
            pid = posix.posix_spawnp(
                argv[0], argv, self._environment if environment is None else environment, file_actions=actions,
                setpgroup=0, setsigmask=(), setsigdef=_signal.valid_signals())
        except (OSError, ValueError) as error:
            self._tell_guard(b"?\n")
            raise SpawnError(_spawn_trouble(argv[0], error)) from None
        self._live.add(pid)
        self._tell_guard(b"+%d\n" % pid)
        return pid

    def spawn_detached(self, argv):
        """As `spawn`, with nothing to read (C3): (pid, descriptor of an output that nobody wants).

        The pipe is what the guard finds it by, if we are killed before it has heard the pid.
        """
        opened = []
        try:
            opened.append(open_null())
            opened += make_pipe()
            return self.spawn(argv, [opened[0], opened[2], opened[2]]), opened.pop(1)
        except OSError as error:
            raise SpawnError("no descriptors for it: %s" % error.strerror) from None
        finally:
            for fd in opened:
                posix.close(fd)

    def _start_guard(self):
        if self._guard_pid is not None:
            return
        try:
            read_fd, write_fd = posix.pipe()
            null = open_null()
        except OSError as error:
            raise SpawnError("no descriptors for the guard process: %s" % error.strerror) from None
        posix.set_blocking(write_fd, False)
        self._guard_fd = write_fd
        for pid in self._live:  # in the pipe before there is a reader: we may be killed at any moment
            self._tell_guard(b"+%d\n" % pid)
        actions = [(posix.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((read_fd, null, null))]
        try:
            self._guard_pid = posix.posix_spawn(
                "/bin/sh", ["sh", "-c", GUARD_SCRIPT], {b"PATH": b"/usr/bin:/bin"}, file_actions=actions,
                setsigmask=(), setsigdef=_signal.valid_signals(), setsid=True)
        except NotImplementedError:  # a libc without POSIX_SPAWN_SETSID
            self._guard_pid = _fork_guard(read_fd, null)
        except OSError as error:
            close_quietly(write_fd)
            self._guard_fd = None
            raise SpawnError("the guard process (/bin/sh) does not start: %s" % error.strerror) from None
        finally:
            posix.close(read_fd)
            posix.close(null)

    def _start_guard_again(self):
        """Somebody killed the guard; what runs is not left without one."""
        try:
            self._start_guard()
        except SpawnError:  # the next spawn tries once more, and says so
            pass

    def _tell_guard(self, line):
        try:
            if self._guard_fd is not None:
                posix.write(self._guard_fd, line)
        except OSError:  # it was killed: the next spawn starts another
            pass

    def kill_group(self, pgid, signum):
        """Signal a whole group; False if it is gone already (not an error)."""
        try:
            posix.killpg(pgid, signum)
        except ProcessLookupError:
            if pgid not in self._live:
                return False
            posix.kill(pgid, signum)  # a child that left its own group; not reaped yet, so the number is its own
        except PermissionError:  # macOS: EPERM for a group of zombies; elsewhere a member changed its user
            return True
        return True

    def collect(self):
        """[(pid, wait status)] of our children that ended; the rest of their groups is killed first (A13.2)."""
        ended = []
        while True:
            pid, status = self._next_ended()
            if not pid:
                return ended
            if pid in self._live:
                self._live.discard(pid)
                self._tell_guard(b"-%d\n" % pid)
                ended.append((pid, status))
            elif pid == self._guard_pid:
                posix.close(self._guard_fd)
                self._guard_pid = self._guard_fd = None
                if self._live:
                    self._start_guard_again()

    def _next_ended(self):
        """(pid, status) of one ended child, ours or adopted (we may be process 1); (0, 0) if there is none."""
        try:
            if not hasattr(posix, "waitid"):
                pid, status = posix.waitpid(-1, posix.WNOHANG)
                if pid in self._live:
                    self.kill_group(pid, _signal.SIGKILL)
                return pid, status
            seen = posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
            if seen is None:
                return 0, 0
            if seen.si_pid in self._live:
                self.kill_group(seen.si_pid, _signal.SIGKILL)
            return posix.waitpid(seen.si_pid, 0)
        except ChildProcessError:
            return 0, 0

    def wait_for_all(self, limit_s):
        """Reap what was killed, `limit_s` at most; only at our own end."""
        end_s = monotonic_s() + limit_s
        self.collect()
        while self._live and monotonic_s() < end_s:
            pause(0.001)
            self.collect()

    def close(self):
        """End the guard and wait for it, half a second at most; groups still listed end with it."""
        if self._guard_pid is None:
            return
        posix.close(self._guard_fd)
        pid, self._guard_pid, self._guard_fd = self._guard_pid, None, None
        limit_s = monotonic_s() + (1.5 if self._live else 0.5)
        try:
            while monotonic_s() < limit_s and posix.waitpid(pid, posix.WNOHANG)[0] == 0:
                pause(0.001)  # its sh needs about a millisecond to see the end of its input
        except ChildProcessError:
            pass


def _fork_guard(read_fd, null):
    """The guard where posix_spawn has no setsid."""
    pid = posix.fork()
    if pid:
        return pid
    try:
        posix.setsid()
        for number, fd in enumerate((read_fd, null, null)):
            posix.dup2(fd, number)
        posix.execve("/bin/sh", ["sh", "-c", GUARD_SCRIPT], {b"PATH": b"/usr/bin:/bin"})
    finally:
        exit_now(127)


def _close_strangers_on_exec():
    """Descriptors that our parent leaked into us are not for the server."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            numbers = [int(name) for name in posix.listdir(folder) if name.isdigit()]
        except OSError:
            continue
        for fd in numbers:
            try:
                if fd > 2:
                    posix.set_inheritable(fd, False)
            except OSError:
                pass
        return


def find_program(word):
    """The path (str) a command word stands for: itself with a slash, else the first such file on PATH, else None."""
    if "/" in word:
        return word
    first = None
    for folder in search_path():
        path = folder + "/" + word
        seen = stat_of(path)
        if seen is not None and seen.st_mode & 0o170000 == 0o100000:
            if seen.st_mode & 0o111:  # execvp goes on behind one that it may not execute
                return path
            first = first or path
    return first


def search_path():
    """The folders of PATH (str)."""
    return [folder or "." for folder in filesystem_text(posix.environ.get(b"PATH", b"/bin:/usr/bin")).split(":")]


def _spawn_trouble(word, error):
    """Why a program did not start, told apart (A10.5, case 066)."""
    if word and isinstance(error, ValueError):
        return "%r cannot be a command: %s" % (word, error)
    path = find_program(word) if word else None
    seen = stat_of(path) if path else None
    if not word:
        return "the command is an empty word"
    if path is None:
        return "%s: not found on PATH (%s)" % (word, ":".join(search_path()))
    if seen is None:
        return "%s: no such file" % path
    if seen.st_mode & 0o170000 == 0o040000:
        return "%s: is a directory" % path
    if not seen.st_mode & 0o111:
        return "%s: has no execute bit (chmod +x)" % path
    interpreter = _interpreter_of(path)
    if error.errno == errno.ENOENT and interpreter:
        return "%s: its interpreter %s does not exist" % (path, interpreter)
    if error.errno == errno.ENOEXEC:
        return "%s: not a program for this system (no #! line, or another machine's)" % path
    return "%s: %s" % (path, error.strerror)


def _interpreter_of(path):
    """The program of a #! line, or None."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
        raw = posix.read(fd, 256)
        posix.close(fd)
    except OSError:
        return None
    words = raw[2:].split(b"\n")[0].split()
    return filesystem_text(words[0]) if raw[:2] == b"#!" and words else None


# -- the process title -------------------------------------------------------------

def set_title(words):
    """Show `words` (list of bytes) as this process's command line (E3.1). False where that does not work."""
    try:
        shown = read_proc("/proc/self/cmdline")
        fields = read_proc("/proc/self/stat").rpartition(b")")[2].split()
        start, size = int(fields[45]), int(fields[46]) - int(fields[45])
        text = b"\0".join(words)[:size - 1]
        fd = posix.open("/proc/self/mem", posix.O_RDWR | posix.O_CLOEXEC)
        try:
            if size < 2 or posix.pread(fd, size, start) != shown:
                return False
            posix.pwrite(fd, text.ljust(size, b"\0"), start)
        finally:
            posix.close(fd)
        append_to_file("/proc/self/comm", b"mcp-lazy")
        return read_proc("/proc/self/cmdline").startswith(text)
    except (OSError, IndexError, ValueError):
        return False


def shown_command():
    """The first word of our command line as ps shows it (bytes)."""
    try:
        return read_proc("/proc/self/cmdline").partition(b"\0")[0]
    except OSError:
        return filesystem_bytes(getattr(sys, "orig_argv", sys.argv)[0])


def run_again_with_title(name, script, arguments):
    """Replace this process by itself under another argv[0] (E3.2), once; returns only where that fails."""
    if RUN_AGAIN_VARIABLE in posix.environ or not sys.executable:
        return
    environment = own_environment()
    environment[RUN_AGAIN_VARIABLE] = b"1"
    try:
        with open(script) as source:
            first_line = source.readline()
        program = first_line.split('"')[1] if first_line.startswith("#!") else None
        start = ["-c", program, script] if program else [script]
        posix.execve(sys.executable, [name, "-I", "-S"] + start + arguments, environment)
    except (OSError, IndexError):
        return


def read_proc(path):
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        raw = posix.read(fd, READ_BYTES)
        piece = raw
        while piece:
            piece = posix.read(fd, READ_BYTES)
            raw += piece
        return raw
    finally:
        posix.close(fd)


# -- files -----------------------------------------------------------------------

def stat_of(path):
    try:
        return posix.stat(path)
    except (OSError, ValueError):
        return None


def program_stat(path):
    """(size in bytes, mtime in ns, executable?) of a regular file, symlinks followed; None for anything else."""
    seen = stat_of(path)
    if seen is None or seen.st_mode & 0o170000 != 0o100000:
        return None
    return seen.st_size, seen.st_mtime_ns, bool(seen.st_mode & 0o111)


def word_stat(word, index):
    """(absolute path, size, mtime in ns, executable?) of the regular file that a word of a command names, or None."""
    path = find_program(word) if index == 0 else word
    seen = program_stat(path) if path else None
    return (absolute_path(path),) + seen if seen else None


def absolute_path(path):
    """Lexically absolute and normalised, symlinks left alone."""
    if path[:1] != "/":
        path = posix.getcwd() + "/" + path
    kept = []
    for part in path.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept)


def working_directory():
    try:
        return posix.getcwd()
    except OSError:
        return ""


def home_dir(environment):
    """HOME (str), or None."""
    return filesystem_text(environment[b"HOME"]) if environment.get(b"HOME") else None


def user_cache_dir(environment):
    """The folder (str) for recordings: below the user's cache folder, else our own in the temp dir (A4.1, A4.3)."""
    xdg, home = environment.get(b"XDG_CACHE_HOME", b""), environment.get(b"HOME", b"")
    if sys.platform == "darwin":
        root = home + b"/Library/Caches" if home else b""
    else:
        root = xdg or (home + b"/.cache" if home else b"")
    if root[:1] == b"/":
        return filesystem_text(root) + "/mcp-lazy"
    temp = filesystem_text(environment.get(b"TMPDIR") or b"/tmp")
    return "%s/mcp-lazy-%d" % (temp, posix.geteuid())


def private_dir_trouble(path, create):
    """None if `path` is a folder of ours that nobody else may write to, made 0700 if wanted; else why not."""
    if create:
        for end in [at for at, c in enumerate(path) if c == "/" and at] + [len(path)]:
            try:
                posix.mkdir(path[:end], 0o700)
                posix.chmod(path[:end], 0o700)  # an odd umask would leave a folder that is of no use
            except OSError:
                pass
    try:
        seen = posix.stat(path)
    except OSError as error:
        return error.strerror
    if seen.st_mode & 0o170000 != 0o040000:
        return "not a directory"
    if seen.st_uid != posix.geteuid():
        return "owned by another user"
    return "others may write to it" if seen.st_mode & 0o022 else None


def read_private_file(path, limit):
    """The bytes of a regular file of ours of at most `limit` bytes; None for anything else (A5.6). Never blocks."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        seen = posix.fstat(fd)
        if seen.st_mode & 0o170000 != 0o100000 or seen.st_uid != posix.geteuid() or seen.st_size > limit:
            return None
        raw = posix.read(fd, seen.st_size + 1)
        while len(raw) < seen.st_size:
            piece = posix.read(fd, seen.st_size - len(raw))
            if not piece:
                break
            raw += piece
        return raw
    except OSError:
        return None
    finally:
        posix.close(fd)


def touch_older(path, age_s):
    """Set a file's times to now if its mtime is older than age_s; a failure is nobody's trouble."""
    try:
        if time.time() - posix.stat(path).st_mtime > age_s:
            posix.utime(path)
    except OSError:
        pass


def write_all(fd, raw):
    view = memoryview(raw)
    while view:
        view = view[posix.write(fd, view):]


def replace_file(path, raw):
    """Put `raw` in place of a file by a private temporary beside it and one rename. OSError if not.

    The caller holds the file's lock, so what another writer left when it was killed is ours to remove.
    """
    temporary = "%s/.tmp-%s" % (path.rpartition("/")[0] or ".", path.rpartition("/")[2])
    close_quietly_unlink(temporary)
    fd = posix.open(temporary, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
    try:
        write_all(fd, raw)
        posix.close(fd)
        fd = None
        posix.rename(temporary, path)
    except OSError:
        if fd is not None:
            posix.close(fd)
        close_quietly_unlink(temporary)
        raise


def close_quietly_unlink(path):
    try:
        posix.unlink(path)
    except OSError:
        pass


def lock_file(path):
    """A descriptor that holds the exclusive lock of `path`; None if another process holds it. OSError otherwise."""
    import fcntl
    fd = posix.open(path, posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NONBLOCK, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if posix.fstat(fd).st_ino == posix.stat(path).st_ino:  # else it was removed between open and flock
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:  # a descriptor left open would hold the lock against ourselves
        posix.close(fd)
        raise
    posix.close(fd)
    return None


def append_to_file(path, raw):
    """One write at the end of a file, made 0600. False if it did not work (a log never stops the service, A16.1)."""
    try:
        fd = open_append(path)
    except (OSError, ValueError):
        return False
    try:
        posix.write(fd, raw)
        return True
    except OSError:
        return False
    finally:
        posix.close(fd)


def open_append(path):
    return posix.open(path, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NONBLOCK
                      | posix.O_NOCTTY, 0o600)


def rotate_file(path, limit):
    """Rename a file above `limit` bytes to `.1` (one generation, F10)."""
    seen = stat_of(path)
    if seen is not None and seen.st_size > limit:
        try:
            posix.rename(path, path + ".1")
        except OSError:
            pass


def file_tail(path, size):
    """The last `size` bytes of a file, b"" if it cannot be read."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        end = posix.lseek(fd, 0, 2)
        posix.lseek(fd, max(0, end - size), 0)
        return posix.read(fd, size)
    except OSError:
        return b""
    finally:
        posix.close(fd)


# ============================================================================
# L4 LOOP - selector, timers, bounded output, tasks                [I/O, hot]
# ----------------------------------------------------------------------------
# Uses:   L1 L3
# Used by: L8 L9 L11b L13d L13e L14 L14b L15
# Owns:   Loop, Outbox, StderrSink, OwnLines, Journal, Future, Task, Tasks
# Never:  blocks, except in the one wait of Loop.turn
# Tests:  tests/test_l04_loop.py
# ----------------------------------------------------------------------------
# Theory: one thread, one selector, named timers. `selectors` is imported at the
# first wait and not before: what the client wrote while we started is read and
# answered in the first turn, then nobody waits for us any more. (Measured: it
# takes the warm answer from 1.9 to 1.3 times a bare interpreter.)
# Timers are few (under ten for a relay, some hundreds for a hub): a dict and its
# kept minimum are quicker than a heap with lazy deletion, and re-arming a name
# replaces it. Asleep there is no timer, so the wait has no end and the process
# no wake-up.
# epoll refuses regular files (EPERM): they are always ready, and are asked each
# turn while something wants them.
# Output is a deque of whole pieces, written with writev; a piece is never joined
# or copied, so a 64 MiB line costs its own size only. Pressure is the owner's
# business: it looks at `pending_bytes` and stops reading the other side.
# Tasks are coroutines for flows that are a sequence of waits (a client session,
# a check). A task is resumed by the loop only, never inside another task's step.
# ----------------------------------------------------------------------------
PIECES_PER_WRITE = 64
# epoll counts its milliseconds in a C int, 24.8 days; a wait that ends early finds nothing due and goes on.
LONGEST_WAIT_S = 24 * 3600.0
STDERR_BACKLOG_BYTES = 64 * 1024
LOG_FILE_LIMIT_BYTES = 10 * 1024 * 1024


class Loop:
    """Callbacks on readable and writable descriptors and at times. `now_s` is the time of this turn."""
    __slots__ = ("now_s", "running", "_selector", "_watched", "_always", "_timers", "_next_s")

    def __init__(self):
        self.now_s, self.running = monotonic_s(), True
        self._selector, self._watched, self._always = None, {}, set()
        self._timers, self._next_s = {}, None

    def watch(self, fd, on_readable=None, on_writable=None):
        """Call back while `fd` is ready; with neither callback the descriptor is forgotten."""
        before = self._watched.get(fd, (None, None))
        if before == (on_readable, on_writable):
            return
        if on_readable or on_writable:
            self._watched[fd] = (on_readable, on_writable)
        else:
            del self._watched[fd]
        if self._selector is not None:
            self._tell_selector(fd, before)

    def _tell_selector(self, fd, before):
        wanted = self._watched.get(fd)
        if wanted is None:
            self._always.discard(fd)
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            return
        mask = (1 if wanted[0] else 0) | (2 if wanted[1] else 0)  # EVENT_READ, EVENT_WRITE
        if fd in self._always:
            return
        if fd in self._selector.get_map():
            if mask != (1 if before[0] else 0) | (2 if before[1] else 0):
                self._selector.modify(fd, mask)
            return
        try:
            self._selector.register(fd, mask)
        except PermissionError:
            self._always.add(fd)

    def set_timer(self, name, at_s, callback):
        """Call `callback()` once at `at_s` (monotonic seconds); a timer of that name is replaced."""
        self._timers[name] = (at_s, callback)
        self._next_s = None

    def clear_timer(self, name):
        self._timers.pop(name, None)
        self._next_s = None

    def has_timers(self):
        return bool(self._timers)

    def stop(self):
        self.running = False

    def turn(self):
        """Wait for something, then call back for all of it."""
        if self._selector is None:
            self._selector = selector_class()()
            for fd in self._watched:
                self._tell_selector(fd, (None, None))
        timeout = None
        if self._timers:
            if self._next_s is None:
                self._next_s = min(at_s for at_s, _ in self._timers.values())
            timeout = min(max(0.0, self._next_s - monotonic_s()), LONGEST_WAIT_S)
        ready = self._selector.select(0 if self._always else timeout)
        if not ready and timeout is not None:  # behind a SIGSTOP the wait ends by the clock alone: what came goes first
            ready = self._selector.select(0)
        self.now_s = monotonic_s()
        for key, mask in ready:
            self._call(key.fd, mask)
        for fd in list(self._always):
            self._call(fd, 3)
        if self._timers and (self._next_s is None or self._next_s <= self.now_s):
            self._fire()

    def _call(self, fd, mask):
        # A callback may have forgotten or changed a later descriptor of the same turn.
        on_readable = self._watched.get(fd, (None, None))[0]
        if mask & 1 and on_readable:
            on_readable()
        on_writable = self._watched.get(fd, (None, None))[1]
        if mask & 2 and on_writable:
            on_writable()

    def _fire(self):
        due = sorted((at_s, name) for name, (at_s, _) in self._timers.items() if at_s <= self.now_s)
        for at_s, name in due:
            timer = self._timers.get(name)
            if timer is not None and timer[0] == at_s:
                del self._timers[name]
                timer[1]()
        self._next_s = None

    def close(self):
        if self._selector is not None:
            self._selector.close()


class Outbox:
    """Bytes on their way to one descriptor, in order, never copied.

    `pending_bytes` is what waits; `broken` is set when the reader is gone.
    """
    __slots__ = ("fd", "pending_bytes", "broken", "_pieces")

    def __init__(self, fd):
        self.fd, self.pending_bytes, self.broken, self._pieces = fd, 0, False, []

    def put(self, raw):
        if not self.broken:
            self._pieces.append(raw)
            self.pending_bytes += len(raw)

    def flush(self):
        """Write what the reader takes now. True if that was something."""
        moved = False
        while self._pieces:
            try:
                count = write_some(self.fd, self._pieces[:PIECES_PER_WRITE])
            except OSError:
                self.drop()
                self.broken = True
                return moved
            if not count:
                return moved
            moved = True
            self.pending_bytes -= count
            self._take(count)
        return moved

    def _take(self, count):
        done = 0
        for piece in self._pieces:
            if count < len(piece):
                break
            count -= len(piece)
            done += 1
        del self._pieces[:done]
        if count:
            self._pieces[0] = memoryview(self._pieces[0])[count:]

    def drop(self):
        self._pieces, self.pending_bytes = [], 0


class StderrSink:
    """Text on its way to a descriptor that blocks and belongs to others: bounded, polled, never waited for.

    unfinished: the last byte of it was no LF.
    """
    __slots__ = ("fd", "unfinished", "_loop", "_backlog", "_left_out")

    def __init__(self, loop, fd=2):
        self._loop, self.fd, self.unfinished, self._backlog, self._left_out = loop, fd, False, bytearray(), 0

    def put(self, raw):
        room = STDERR_BACKLOG_BYTES - len(self._backlog)
        if len(raw) > room:
            self._left_out += len(raw) - room
            raw = raw[:room]
        if raw:
            self.unfinished = raw[-1:] != b"\n"
        self._backlog += raw
        self.pump()

    def room(self):
        """How many bytes can wait."""
        return STDERR_BACKLOG_BYTES - len(self._backlog)

    def pump(self):
        """Write while the descriptor polls writable, 4 KiB (PIPE_BUF) at a time."""
        try:
            while self._backlog and poll_now(self.fd, writable=True):
                count = write_some(self.fd, [bytes(self._backlog[:STDERR_WRITE_BYTES])])
                if not count:
                    break
                del self._backlog[:count]
                if self._left_out and not self._backlog:
                    self._backlog += b"\nmcp-lazy: %d bytes of stderr left out here, its reader was too slow\n" % (
                        self._left_out)
                    self._left_out, self.unfinished = 0, False
        except OSError:  # nobody reads stderr any more
            self._backlog, self._left_out = bytearray(), 0
        self._loop.watch(self.fd, None, self.pump if self._backlog else None)

    def drain(self, limit_s):
        """Wait for a slow reader at the end of a command, this long at most."""
        end_s = monotonic_s() + limit_s
        self._loop.set_timer("drain", end_s, lambda: None)
        while self._backlog and monotonic_s() < end_s:
            self._loop.turn()


class OwnLines:
    """Our own lines on their way to a StderrSink: they begin on a line of their own, whatever the server left there."""
    __slots__ = ("_sink",)

    def __init__(self, sink):
        self._sink = sink

    def put(self, raw):
        self._sink.put(b"\n" + raw if self._sink.unfinished else raw)


class Journal:
    """The relay's own log: to a file, to stderr, or nowhere (A16, F9). Never payloads."""
    __slots__ = ("_path", "_style", "_level", "_sink", "_stderr", "_shared")

    def __init__(self, path, style, level, stderr, verbose, shared=False):
        """path: None for no file; stderr: OwnLines or the like, for all lines if verbose; level 2 keeps everything.

        shared: the server writes its stderr to the same file. Our line begins on a line of its own there too, unless
        the server writes in that very moment.
        """
        self._path, self._style, self._level, self._stderr, self._shared = path, style, level, stderr, shared
        self._sink = stderr if verbose else None
        if path:
            rotate_file(path, LOG_FILE_LIMIT_BYTES)

    def warn(self, text):
        """A trouble of our own that people must hear of although no log is on; it stops nothing."""
        self.line(text)
        if not self._sink:
            self._stderr.put(("mcp-lazy: %s\n" % text).encode("utf-8", "replace"))

    def line(self, text, level=1):
        """Level 1 is always kept, 2 only in detail, 0 is a warning."""
        if level == 0:
            self.warn(text)
        elif level <= self._level:
            self._write(text)

    def _write(self, text):
        if not (self._path or self._sink):
            return
        line = format_log_line(self._style, this_pid(), utc_stamp(wall_s()), text).encode("utf-8", "replace")
        unfinished = self._shared and self._path and file_tail(self._path, 1) not in (b"", b"\n")
        if self._path and not append_to_file(self._path, b"\n" + line if unfinished else line):
            path, self._path = self._path, None
            self.warn("cannot append to the log file %s, going on without it" % path)
        if self._sink:
            self._sink.put(line)


# -- tasks -----------------------------------------------------------------------

class Future:
    """A value that comes later; `await` it. `set(value)` or `fail(error)` once; later ones are ignored."""
    __slots__ = ("done", "value", "error", "_waiters")

    def __init__(self):
        self.done, self.value, self.error, self._waiters = False, None, None, []

    def set(self, value=None):
        self._finish(value, None)

    def fail(self, error):
        self._finish(None, error)

    def _finish(self, value, error):
        if not self.done:
            self.done, self.value, self.error = True, value, error
            for wake in self._waiters:
                wake()

    def when_done(self, callback):
        if self.done:
            callback()
        else:
            self._waiters.append(callback)

    def __await__(self):
        if not self.done:
            yield self
        if self.error is not None:
            raise self.error
        return self.value


class Cancelled(BaseException):
    """Raised at the await of a task that is cancelled."""


class Task(Future):
    """A running coroutine; as a Future it is its result."""
    __slots__ = ("_coroutine", "_tasks", "_turn")

    def __init__(self, tasks, coroutine):
        super().__init__()
        self._coroutine, self._tasks, self._turn = coroutine, tasks, 0
        tasks.soon(self._step)

    def _step(self, error=None):
        if self.done:
            return
        self._turn += 1
        turn = self._turn
        try:
            waited = self._coroutine.throw(error) if error else self._coroutine.send(None)
        except StopIteration as stop:
            self.set(stop.value)
        except (Exception, Cancelled) as failed:
            self.fail(failed)
        else:
            # A wake-up that belongs to an earlier wait (cancelled meanwhile) is not ours any more.
            waited.when_done(lambda: self._tasks.soon(lambda: self._step() if turn == self._turn else None))

    def cancel(self, error=None):
        """Raise `error` (or Cancelled) where the task waits."""
        self._tasks.soon(lambda: self._step(error or Cancelled()))


class Tasks:
    """Runs coroutines on a Loop: start, sleep, deadline."""
    __slots__ = ("loop", "_count")

    def __init__(self, loop):
        self.loop, self._count = loop, 0

    def soon(self, callback):
        self._count += 1
        self.loop.set_timer("task-%09d" % self._count, self.loop.now_s, callback)

    def start(self, coroutine):
        return Task(self, coroutine)

    def sleep(self, seconds_s):
        """A Future that is done in `seconds_s`."""
        future = Future()
        self._count += 1
        self.loop.set_timer("sleep-%d" % self._count, monotonic_s() + seconds_s, future.set)
        return future

    async def deadline(self, seconds_s, coroutine, error):
        """The result of `coroutine`, or `error` raised inside it after `seconds_s`."""
        task = self.start(coroutine)
        self._count += 1
        name = "deadline-%d" % self._count
        self.loop.set_timer(name, monotonic_s() + seconds_s, lambda: task.cancel(error))
        try:
            return await task
        except BaseException:
            if not task.done:  # we were cancelled ourselves
                task.cancel()
            raise
        finally:
            self.loop.clear_timer(name)

    def run(self, coroutine):
        """Run the loop until `coroutine` has ended; its result."""
        task = self.start(coroutine)
        while not task.done:
            self.loop.turn()
        if task.error is not None:
            raise task.error
        return task.value

# ============================================================================
# L5 CHILD - when to start, stop and kill one server process      [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2
# Used by: L6b L7 L8 L9 L13e L14b
# Owns:   CHILD_TABLE, Child, Wake, RunWake, KillWake, WakeEnded, Backoff, SetTimer, ClearTimer, Spawn, CloseInput,
#         KillGroup, Log, Ended, Unreapable, Spawned, SpawnFailed, Exited, OutputClosed, TimerFired, StopWanted,
#         HoldClient, Queue, Errands
# Never:  reads a clock, touches a descriptor, knows what an MCP message is
# Tests:  tests/test_l05_child.py
# ----------------------------------------------------------------------------
# Theory: the stop ladder of A13 as a table. Close the input (a good server ends
# by itself and sees no signal), 250 ms; SIGTERM to the group, the stop grace
# (500 ms, settable: containers need more); SIGKILL to the group, 1 s; a process
# that is not reaped then is stuck in the kernel, and the owner must say so.
#
#   state     StopWanted  Hurry     TimerFired     Exited     OutputClosed
#   DOWN      -           -         -              -          -
#   UP        CLOSING     KILLED    -              DRAINING   (noted)
#   CLOSING   -           KILLED    TERMED         DRAINING   (noted)
#   TERMED    -           KILLED    KILLED         DRAINING   (noted)
#   KILLED    -           -         STUCK          DRAINING   (noted)
#   DRAINING  -           -         DOWN + Ended   -          DOWN + Ended
#   STUCK     -           -         -              DRAINING   (noted)
#
# An exit is a wait status. After it the output is read for 250 ms more at most,
# because somebody who left the group may hold the pipe open for ever. Closed
# output alone is no exit; what it means for open requests is the owner's business.
# What can still go wrong: a member that moved to another session is out of
# reach, and a STUCK process keeps its memory; both are said in the manual.
#
# Around that table stand the relay's other reasons to start or not to stop: the
# wake predicate, the delay behind starts that fail, the queue that waits for a
# start, and the errands of a server that looks idle but is not.
# ----------------------------------------------------------------------------
CLOSE_WAIT_S, KILL_WAIT_S, DRAIN_WAIT_S = 0.25, 1.0, 0.25
# Starts that fail in a row before the next one is put off; the longest delay (A10.13).
QUICK_EXITS, LONGEST_BACKOFF_S = 3, 30.0
# Nothing is looked at more often, whatever --wake-interval or --idle-stop say.
SHORTEST_BEAT_S = 0.001
DOWN, UP, CLOSING, TERMED, KILLED, DRAINING, STUCK = (
    "DOWN", "UP", "CLOSING", "TERMED", "KILLED", "DRAINING", "STUCK")
IGNORE = "ignore"
# How long a finished task whose server named no lifetime can still be asked for its result, and a visit to a URL lasts.
RESULT_WAIT_S, VISIT_WAIT_S, MAX_ERRANDS = 600.0, 600.0, 1000
# What a shell, or another program that runs one, exits with when it cannot run a word or does not find it.
NEVER_RAN = ("exit status 126", "exit status 127")
SIGTERM, SIGKILL = 15, 9  # the same number on every POSIX system


SetTimer = record("SetTimer", "name at_s", "effect: arm a named timer at `at_s`; re-arming replaces")
ClearTimer = record("ClearTimer", "name", "effect: forget a named timer")
Spawn = record("Spawn", "", "effect: start the server; answered by Spawned or SpawnFailed")
CloseInput = record(
    "CloseInput", "force", "effect: close the server's stdin once what is queued is written; at once if force")
KillGroup = record("KillGroup", "signum", "effect: signal the server's group")
Log = record(
    "Log", "text level", "effect: a line for the log; level 1 = always kept, 2 = only when verbose, 0 = also a warning")
Ended = record(
    "Ended", "text tail", "effect for the owner: the process is reaped and its output read; text says how it ended")
Unreapable = record("Unreapable", "", "effect for the owner: not dead after SIGKILL")
Spawned = record("Spawned", "pid", "event: pid")
SpawnFailed = record("SpawnFailed", "text", "event: the reason as a text")


class Exited(Record):
    """event: how it ended ("exit status 7"), and the end of its stderr, redacted (bytes)"""
    __slots__ = ("text", "tail")


OutputClosed = record("OutputClosed", "", "event: end of the server's stdout")
StopWanted = record("StopWanted", "hurry", "event: stop it; hurry skips to SIGKILL")
TimerFired = record(
    "TimerFired", "name tail", "event: a named timer; tail is the end of the server's stderr, redacted")


RunWake = record("RunWake", "", "effect: start the wake predicate; answered by WakeEnded")
KillWake = record("KillWake", "", "effect: kill the wake predicate's group")
WakeEnded = record("WakeEnded", "text", "event: the wake predicate ended (exit status 0 ...), or why it did not start")


class Wake:
    """The wake predicate (C1-C10): when it may run, what its end means. modern: the first modern request came (C9)."""
    __slots__ = ("_relay", "_running", "_overran", "_due_s", "_last", "_warned", "modern")

    def __init__(self, relay):
        self._relay, self._running, self._overran, self._due_s, self.modern = relay, False, False, 0.0, False
        self._last, self._warned = "", False

    def begin(self):
        """The relay starts, and with it the beat."""
        self._due_s = self._relay.now_s
        self._beat()

    def _beat(self):
        """The next tick, on a beat that began with the relay and does not drift (C2, C10)."""
        relay = self._relay
        every_s = max(relay.settings.wake_interval_s, SHORTEST_BEAT_S)
        self._due_s += every_s * (1 + int(max(0.0, relay.now_s - self._due_s) / every_s))
        relay.out.append(SetTimer("wake-tick", self._due_s))

    def modern_request(self):
        """A client of the modern era is there; it says no `initialized`."""
        if not self.modern:
            self.modern = True
            self.consider()

    def greeted(self, again):
        """The client says `initialized`; what it says again is no news (C2)."""
        if not again:
            self.consider()

    def consider(self):
        """Run it, if there is one and nothing speaks against it."""
        relay = self._relay
        if relay.settings.wake and not self._running and relay.may_wake():
            self._running, self._overran = True, False
            relay.out += [RunWake(), SetTimer("wake-limit", relay.now_s + relay.settings.wake_timeout_s)]

    def tick(self, event):
        self._beat()
        self.consider()

    def overran(self, event):
        self._overran = True
        self._relay.log("wake command failed: it ran longer than its limit", 1)
        self._relay.out.append(KillWake())

    def ended(self, text):
        self._running = False
        relay, last, self._last = self._relay, self._last, text
        relay.out.append(ClearTimer("wake-limit"))
        if self._overran:  # or we killed it, as we leave
            return
        if text == "exit status 0":
            at = len(relay.out)
            if relay.may_wake() and relay.life.start(None, None):
                relay.out.insert(at, Log("wake command matched: starting the server", 1))
        elif text != "exit status 1":
            level = self._weight(text)
            shown = text if level == 0 else text.partition(" (")[0]  # no PATH at each beat (A16.4)
            relay.log("wake command failed: %s" % shown, level)
        elif last != text:  # not at each interval
            relay.log("wake command: nothing to do (exit status 1)", 2)

    def _weight(self, text):
        """The level of a failure in the log. Of one that stays, a word misspelt, a person must hear, once."""
        never_ran = text in NEVER_RAN or ":" in text  # which no exit status has, and each reason not to start
        level, self._warned = 0 if never_ran and not self._warned else 1, self._warned or never_ran
        return level

    def stop(self):
        """The relay leaves: no tick any more, and a run ends now (C7)."""
        if self._running:
            self._overran = True
            self._relay.out.append(KillWake())
        if self._relay.settings.wake:
            self._relay.out += [ClearTimer("wake-tick"), ClearTimer("wake-limit")]


class Backoff:
    """When a server that fails at its start may be tried again (A10.13)."""
    __slots__ = ("trouble", "failures", "_first_s", "_due_s", "_log")

    def __init__(self, first_s, log=lambda text, level: None):
        self.trouble, self.failures, self._first_s, self._due_s, self._log = "", 0, first_s, 0.0, log

    def succeeded(self):
        self.failures = 0

    def failed(self, trouble, now_s):
        """Count a start that came to nothing; from the third one on the next is put off, longer each time."""
        self.failures += 1
        self.trouble = trouble
        if self.failures >= QUICK_EXITS and self._first_s:
            wait_s = min(LONGEST_BACKOFF_S, self._first_s * 2 ** min(self.failures - QUICK_EXITS, 20))
            self._due_s = now_s + wait_s
            text = "%d starts in a row came to nothing: the next one is put off for %g s"
            self._log(text % (self.failures, wait_s), 1)

    def wait_s(self, now_s):
        return self._due_s - now_s


CHILD_TABLE = {
    (DOWN, Spawned): "_up", (DOWN, SpawnFailed): IGNORE, (DOWN, StopWanted): IGNORE,
    (DOWN, OutputClosed): IGNORE, (DOWN, TimerFired): IGNORE, (DOWN, Exited): IGNORE,
    (UP, StopWanted): "_close", (UP, Exited): "_gone", (UP, OutputClosed): "_note", (UP, TimerFired): IGNORE,
    (UP, Spawned): IGNORE, (UP, SpawnFailed): IGNORE,
    (CLOSING, StopWanted): "_hurry", (CLOSING, Exited): "_gone", (CLOSING, OutputClosed): "_note",
    (CLOSING, TimerFired): "_terminate", (CLOSING, Spawned): IGNORE, (CLOSING, SpawnFailed): IGNORE,
    (TERMED, StopWanted): "_hurry", (TERMED, Exited): "_gone", (TERMED, OutputClosed): "_note",
    (TERMED, TimerFired): "_kill", (TERMED, Spawned): IGNORE, (TERMED, SpawnFailed): IGNORE,
    (KILLED, StopWanted): IGNORE, (KILLED, Exited): "_gone", (KILLED, OutputClosed): "_note",
    (KILLED, TimerFired): "_stuck", (KILLED, Spawned): IGNORE, (KILLED, SpawnFailed): IGNORE,
    (DRAINING, StopWanted): IGNORE, (DRAINING, Exited): IGNORE, (DRAINING, OutputClosed): "_done",
    (DRAINING, TimerFired): "_done", (DRAINING, Spawned): IGNORE, (DRAINING, SpawnFailed): IGNORE,
    (STUCK, StopWanted): IGNORE, (STUCK, Exited): "_gone", (STUCK, OutputClosed): "_note",
    (STUCK, TimerFired): IGNORE, (STUCK, Spawned): IGNORE, (STUCK, SpawnFailed): IGNORE,
}


class Child:
    """One server process at a time. handle(event, now_s) -> effects; its timer is called "ladder"."""
    __slots__ = ("state", "pid", "_grace_s", "_output_closed", "_exited", "_now_s", "_out")

    def __init__(self, grace_s):
        self.state, self.pid, self._grace_s = DOWN, None, grace_s
        self._output_closed, self._exited, self._now_s, self._out = False, None, 0.0, []

    def handle(self, event, now_s):
        """The effects of one event; see the table in the theory."""
        self._now_s = now_s
        name = CHILD_TABLE[self.state, type(event)]
        if name is not IGNORE:
            getattr(self, name)(event)
        out, self._out = self._out, []
        return out

    def _become(self, state, wait_s=None):
        self.state = state
        self._out.append(ClearTimer("ladder") if wait_s is None else SetTimer("ladder", self._now_s + wait_s))

    def _up(self, event):
        self.state, self.pid, self._output_closed = UP, event.pid, False

    def _note(self, event):
        self._output_closed = True

    def _close(self, event):
        if event.hurry:
            self._hurry(event)
            return
        self._out.append(CloseInput(False))
        self._become(CLOSING, CLOSE_WAIT_S)

    def _terminate(self, event):
        self._out += [CloseInput(True), Log("server still runs after its input was closed: SIGTERM to its group", 1),
                      KillGroup(SIGTERM)]
        self._become(TERMED, self._grace_s)

    def _hurry(self, event):
        if event.hurry:
            self._out.append(CloseInput(True))
            self._kill(event)

    def _kill(self, event):
        self._out += [Log("server still runs: SIGKILL to its group", 1), KillGroup(SIGKILL)]
        self._become(KILLED, KILL_WAIT_S)

    def _stuck(self, event):
        self._out += [Log("server %d is not dead after SIGKILL" % self.pid, 1), Unreapable()]
        self._become(STUCK)

    def _gone(self, event):
        self._exited = event
        self._become(DRAINING, DRAIN_WAIT_S)
        if self._output_closed:
            self._done(event)

    def _done(self, event):
        self._become(DOWN)
        self._out.append(Ended(self._exited.text, self._exited.tail))


HoldClient = record("HoldClient", "hold", "effect: stop (or go on) reading the client, the queue is full")


class Queue:
    """Lines that wait for a server that starts. Bounded: above MAX_QUEUE_BYTES the client is not read."""
    __slots__ = ("_relay", "_lines", "_bytes", "_holding")

    def __init__(self, relay):
        self._relay, self._lines, self._bytes, self._holding = relay, [], 0, False

    def __bool__(self):
        return bool(self._lines)

    def has_handshake(self):
        return any(env.method == "initialize" for env, _, _ in self._lines)

    def is_modern(self):
        """True if its first line is a request of the modern era."""
        env, line, _ = self._lines[0] if self._lines else (None, b"", 0)
        return env is not None and env.kind == REQUEST and (
            env.method == "server/discover" or is_modern(env.params(line)))

    def add(self, env, line):
        self._relay.books.track(env, line, queued=True)
        self._lines.append((env, line, self._relay.life.batches))
        self._weigh(len(line))

    def _weigh(self, size):
        """Count, and hold the client while the queue is full."""
        self._bytes += size
        if (self._bytes > MAX_QUEUE_BYTES) != self._holding:
            self._holding = not self._holding
            self._relay.out.append(HoldClient(self._holding))

    def remove(self, flight):
        """A queued request, or the batch that it is part of, was cancelled or timed out: it is never sent."""
        for index, (env, line, batch) in enumerate(self._lines):
            if (env.kind == BATCH and batch == flight.batch if flight.batch
                    else env.kind == REQUEST and env.id_key == flight.key):
                del self._lines[index]
                self._weigh(-len(line))
                return

    def send(self):
        """All of it to the server, in order of arrival."""
        lines = self._lines
        self.drop()
        for flight in self._relay.flights:
            flight.queued = False
        if lines:
            self._relay.to_server(b"".join([clean_line(line) for _, line, _ in lines]))

    def drop(self):
        self._lines = []
        self._weigh(-self._bytes)


class Errands:
    """Why a server that has nothing to answer must not be stopped: what it still does for the client (design of A12).

    Tasks of the 2025-11-25 revision (and of the tasks extension) that run, or whose result can still be fetched; visits
    to a URL that the server asked for and has not seen completed; subscriptions to single resources. And the progress
    tokens of calls that a running task answered: they are good until it ends (25-11, progress).
    """
    __slots__ = ("_relay", "_tasks", "_tokens", "_visits", "_asked", "_wanted", "_overflowed")

    def __init__(self, relay):
        self._relay, self._tasks, self._tokens, self._visits, self._asked, self._wanted = relay, {}, {}, {}, {}, {}
        self._overflowed = False  # something is under way that found no room: this process is never idle

    def reset(self):
        """The process is gone, and what it did with it."""
        self._forget()
        if self._tasks:
            self._relay.log("tasks that ended with the server: %d" % len(self._tasks), 1)
        self._tasks, self._tokens, self._visits, self._asked, self._wanted, self._overflowed = {}, {}, {}, {}, {}, False

    def __bool__(self):
        """True if something is under way."""
        self._forget()
        relay = self._relay
        return bool(self._overflowed or self._tasks or self._visits
                    or relay.told.subscriptions or relay.streams.of_resources())

    def _forget(self):
        """What is over by the clock."""
        now_s = self._relay.now_s
        for table in (self._tasks, self._visits):
            for key in [key for key, until_s in table.items() if until_s is not None and until_s <= now_s]:
                del table[key]

    def seen(self, found, token=None):
        """Take notice of tasks, wherever their state is told (parsed result or params).

        token: the progress token of the call that this answers.
        """
        listed, task = member_of(found, "tasks"), member_of(found, "task")
        for one in listed if isinstance(listed, list) else ():
            self._seen(one)
        self._seen(found if isinstance(found, dict) and "task" not in found else task, token)

    def _seen(self, task, token=None):
        ident, status = member_of(task, "taskId"), member_of(task, "status")
        if not isinstance(ident, str) or not isinstance(status, str):
            return
        ttl_ms, until_s = task.get("ttl", task.get("ttlMs")), None
        over = status in ("completed", "failed", "cancelled")  # until then it runs, whatever its lifetime
        if over:
            lasts = type(ttl_ms) in (int, float) and ttl_ms >= 0
            until_s = self._relay.now_s + (min(ttl_ms, 1e15) / 1000 if lasts else RESULT_WAIT_S)
        self._tasks.pop(ident, None)
        if len(self._tasks) >= MAX_ERRANDS:
            self._forget()
        if len(self._tasks) >= MAX_ERRANDS:  # what is over only waits to be fetched
            self._tasks.pop(next((key for key, at_s in self._tasks.items() if at_s is not None), None), None)
        if len(self._tasks) < MAX_ERRANDS:
            self._tasks[ident] = until_s
        else:
            self._overflowed |= not over
        if over:
            self._silence(ident)
        elif token is not None:
            self._relay.flights.late.pop(token, None)
            if len(self._tokens) < MAX_ERRANDS:
                self._tokens[ident] = token

    def _silence(self, ident):
        """Progress for this task is late from now on."""
        self._relay.flights.no_more(self._tokens.pop(ident, None))

    def wanted(self, ident, key):
        """The server asks the client for the result of a task, in its request `key`."""
        if isinstance(ident, str) and len(self._wanted) < MAX_ERRANDS:
            self._wanted[key] = ident

    def given(self, ident):
        """tasks/result was answered; the answer tells no status."""
        if isinstance(ident, str) and self._tasks.get(ident, 0) is None:
            self._tasks[ident] = self._relay.now_s + RESULT_WAIT_S
            self._silence(ident)

    def visit(self, ident, key=None):
        """The user is sent to a URL; `notifications/elicitation/complete` will tell. key: of the request for it."""
        self._forget()
        if isinstance(ident, str) and len(self._visits) < MAX_ERRANDS:
            self._visits[ident] = self._relay.now_s + VISIT_WAIT_S
            self._asked[key] = ident
        else:
            self._overflowed |= isinstance(ident, str)

    def replied(self, key, line):
        """The client answered a request: the user does not go there, or the client has a task of its own."""
        self.given(self._wanted.pop(key, None))
        ident = self._asked.pop(key, None)
        if ident is None and not (len(line) < SEARCHED_BYTES and b'"taskId"' in line):
            return
        try:
            result = member_of(parse_json(line), "result")
        except ValueError:
            return
        self.seen(result)
        if member_of(result, "action") in ("decline", "cancel"):
            self.visited(ident)

    def visited(self, ident):
        if isinstance(ident, str):
            self._visits.pop(ident, None)

# ============================================================================
# L6 RECORD - recordings: keys, entries, file form, merge   [mostly pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3
# Used by: L6b L7 L8 L8b L9 L9b L11b L13d L13e L14 L14b L15
# Owns:   SCHEMA, LISTS, LIST_MEMBER, program_words, file_key, Answer, Entry, entry_key, probe_keys, Recording,
#         write_recording, merged_recording, import_older, Store, recorded_command, load_store, PageSet,
#         ModernRequest, is_handshake, is_plain_listing, error_code, error_text, version_of
# Never:  reads a clock; touches a file but in `Store` and `load_store`
# Tests:  tests/test_l06_record.py, tests/test_cache.py, tests/test_import.py
# ----------------------------------------------------------------------------
# Theory: a recording is what a server answered to `initialize`, `server/discover`
# and the listings, verbatim, with the time, under everything that can change
# these answers: the file's name is made of the command (all words, and size and
# time of the program files among them); an entry's key of the era, the protocol
# version asked for, the client's capabilities and the chosen scope. Arguments may
# hold secrets: only word 0 and program files are stored as text, the other words
# enter the digest alone.
# Sizes and times are taken of programs only. The older relay hashes every file
# named in the arguments, so a server with its database as argument was never
# warm. Words are length-prefixed: none can look like two (A5.3).
#
# File form: one JSON object in which every recorded result stands alone on a
# line of its own (a result came as one line, so it holds no LF). Odd lines are
# the skeleton, even lines results; a start parses the skeleton (a few hundred
# bytes) and only the results that it serves. A file of another layout, and
# whatever does not parse, counts as never recorded.
#
# Writers share the file: under its lock each one reads it again and lays only
# what it has learnt itself (`dirty`: entry and member) over what is there.
# A file of a newer schema is left alone. What an older relay left (schema 1) is
# imported once where nothing of ours is there; of its probes only discoveries, as
# it kept whatever came before a handshake, calls too (A6.5).
#
# Comparing two answers, the cursors of pages and a lifetime that counts down are left
# out: they differ from process to process.
# ----------------------------------------------------------------------------
SCHEMA, LAYOUT = 2, "result lines"
OPENING = {"legacy": "initialize", "modern": "server/discover"}
# Stands in the place of an entry key for what is known of probes (B5).
BEFORE = ("", "", "", "")
ANY_CAPABILITIES = "*"
# Clients that declare something new each time must not let a file grow for ever.
MAX_ENTRIES, MAX_PROBES = 64, 64
LIST_MEMBER = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
               "resources/templates/list": "resourceTemplates"}
LISTS = tuple(LIST_MEMBER)
CAPABILITY_OF = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
                 "resources/templates/list": "resources"}
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION = -32022
RECORDED_ERRORS = (METHOD_NOT_FOUND, UNSUPPORTED_VERSION)
# What a cursor of ours begins with; and where a list is no longer read (opencode stops there, too).
OWN_CURSOR, MAX_PAGES = "mcp-lazy:", 1000
LOCK_RETRY_S, LOCK_GIVE_UP_S = 0.05, 2.0
# A recording's mtime is its last use; so often it is set anew (A5.10).
USED_S = 24 * 3600.0
INTERPRETERS = ("node", "bun", "deno", "ruby", "php", "perl", "sh", "bash", "java")
PROGRAM_EXTENSIONS = frozenset((
    "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "jar", "rb", "php", "pl", "sh", "bash", "wasm", "exe"))


def sha256_hex(raw):
    """64 hex digits; the C module alone, `hashlib` costs 3 ms."""
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        from hashlib import sha256
    return sha256(raw).hexdigest()


def program_words(words, stat):
    """[(index, absolute path, size, mtime in ns)] of the program files among the words of a command.

    Word 0 always; another one only if it names a regular file that is executable, has a program's
    extension, or is the first plain word behind an interpreter (design 6). `stat(word, index)` gives
    (absolute path, size, mtime in ns, executable?) of a regular file, or None.
    """
    found, script = [], _script_index(words)
    for index, word in enumerate(words):
        seen = stat(word, index)
        if seen is None:
            continue
        path, size, mtime_ns, executable = seen
        _, dot, extension = path.rpartition("/")[2].lower().rpartition(".")
        if index == 0 or index == script or executable or dot and extension in PROGRAM_EXTENSIONS:
            found.append((index, path, size, mtime_ns))
    return found


def _script_index(words):
    """The index of the word that directly follows an interpreter, or None."""
    base = words[0].rpartition("/")[2].lower()
    if base == "java":
        return words.index("-jar") + 1 if "-jar" in words[1:-1] else None
    if base not in INTERPRETERS and not base.startswith("python"):
        return None
    for index, word in enumerate(words[1:], 1):
        if word[:1] != "-":
            return index
    return None


def file_key(words, programs):
    """32 hex digits for a command: `words` as bytes, `programs` from program_words."""
    pieces = [b"mcp-lazy schema %d" % SCHEMA]
    for word in words:
        pieces.append(b"%d:%s" % (len(word), word))
    for index, path, size, mtime_ns in programs:
        raw = path.encode("utf-8", "surrogateescape")
        pieces.append(b"file %d %d:%s %d %d" % (index, len(raw), raw, size, mtime_ns))
    return sha256_hex(b"\n".join(pieces))[:32]


class Answer:
    """One recorded answer: its raw pages in order (one, but for long lists), or an error object as the only page.

    at_ms: unix time when the server last said so.
    """
    __slots__ = ("is_error", "pages", "at_ms")

    def __init__(self, is_error, pages, at_ms):
        self.is_error, self.pages, self.at_ms = is_error, pages, at_ms

    def says_the_same(self, other):
        return (self.is_error == other.is_error and len(self.pages) == len(other.pages)
                and all(map(_same_page, self.pages, other.pages)))

    def size(self):
        """About how many bytes it takes in the file."""
        return sum(len(page) + 100 for page in self.pages)

    def recorded_at_ms(self):
        return self.at_ms

    def generation(self):
        """Eight hex digits that stand for exactly these pages in a cursor of ours (A6.9)."""
        return sha256_hex(b"\n".join(self.pages))[:8]


def _same_page(one, other):
    """Equal but for what may differ from process to process: the cursor, and a lifetime that counts down."""
    if one == other:
        return True
    try:
        values = [parse_json(raw, exact=True) for raw in (one, other)]
        for value in values:
            for name in ("nextCursor", "ttlMs"):
                value.pop(name, None)
        return canonical(values[0]) == canonical(values[1])
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


class Entry:
    """What one kind of client was answered.

    era "legacy" or "modern"; version: the protocolVersion asked for; capabilities, scope: digests, capabilities
    ANY_CAPABILITIES for what an older relay left; answers: {method: Answer} for "initialize", "server/discover" and
    the lists; start_requests: methods the server sent at its last start; doubts: lists that once came back empty
    (A9.2); refuses_listen: the server does not know `subscriptions/listen`.
    """
    __slots__ = ("era", "version", "capabilities", "scope", "answers", "start_requests", "doubts", "refuses_listen")

    def __init__(self, era, version, capabilities, scope):
        self.era, self.version, self.capabilities, self.scope = era, version, capabilities, scope
        self.answers, self.start_requests, self.doubts, self.refuses_listen = {}, [], [], False

    def key(self):
        return self.era, self.version, self.capabilities, self.scope

    def opening(self):
        """The raw result that began it, of `initialize` or `server/discover`; None if there is none, or an error."""
        answer = self.answers.get(OPENING[self.era])
        return None if answer is None or answer.is_error else answer.pages[0]

    def lists(self):
        return [method for method in LISTS if method in self.answers]

    def size(self):
        """About how many bytes it takes in the file."""
        return len(self.version) * 6 + sum(answer.size() for answer in self.answers.values())

    def recorded_at_ms(self):
        """When the oldest of its answers was heard (A5.10)."""
        return min([answer.at_ms for answer in self.answers.values()] or [0])

    def copy_for(self, key):
        """The same answers for another key."""
        entry = Entry(*key)
        entry.answers, entry.start_requests = dict(self.answers), list(self.start_requests)
        return entry


def entry_key(version, capabilities, scope_text, era="legacy"):
    """The key of an entry. `capabilities` is the parsed (exact) value that the client declared."""
    try:
        told = canonical(capabilities).encode("ascii")
    except RecursionError:
        raise ValueError("capabilities nested too deeply") from None
    return era, version, sha256_hex(told)[:32], scope_digest(scope_text)


def scope_digest(scope_text):
    return sha256_hex(scope_text.encode("utf-8", "surrogatepass"))[:32] if scope_text else ""


def probe_keys(params_raw, scope):
    """(exact, tolerant) keys of raw `server/discover` params; None for tolerant if they are no object (B5, B6)."""
    suffix = "@" + scope if scope else ""
    exact = "server/discover:" + sha256_hex(params_raw)[:16] + suffix
    try:
        params = spelled_json(params_raw)
        if not isinstance(params, dict):
            return exact, None
        meta = params.get("_meta")
        for holder, name in ((params, "clientInfo"), (meta, CLIENT_KEY)):
            client = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(client, dict):
                client.pop("version", None)
        text = go_text(params).encode("utf-8")
    except (ValueError, RecursionError):
        return exact, None
    return exact, "server/discover:unsupported:" + sha256_hex(text)[:32] + suffix


class Recording:
    """The entries of one file: {entry key: Entry}, and {probe key: Answer} of `server/discover` (B5).

    program: the words that may be shown; owner: the command key where the file has another name (F3); files: [(path,
    size, mtime in ns)] of the program files, as they are in the key.
    """
    __slots__ = ("program", "owner", "files", "entries", "before")

    def __init__(self, program, owner="", files=()):
        self.program, self.owner, self.files, self.entries, self.before = program, owner, files, {}, {}

    def read(self, raw):
        """Take over a file's bytes; nothing of what is not a recording of ours (A5.6). False if it was none."""
        try:
            document, results = _take_apart(raw)
            if document.get("schema") != SCHEMA or document.get("owner", "") != self.owner:
                return False
            entries = [_entry_of(item, results) for item in document["entries"]]
            before = {str(key): _answer_of(stored, results, 0) for key, stored in document.get("before", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return False
        self.entries, self.before = {entry.key(): entry for entry in entries}, before
        return True

    def trim(self, kept=()):
        """Keep the newest where clients vary what they declare without end, and where all is more than a file may hold.

        kept: keys of what was just learnt: new whatever the clock says.
        """
        left = MAX_RECORDING_BYTES * 7 // 8
        for table, limit in ((self.entries, MAX_ENTRIES), (self.before, MAX_PROBES)):
            newest = sorted(table, key=lambda key: (key in kept, table[key].recorded_at_ms()), reverse=True)
            for count, key in enumerate(newest):
                left -= table[key].size()
                if left < 0 or count >= limit:
                    del table[key]


def _take_apart(raw):
    """(document with numbers in place of the results, results). ValueError if it is not JSON."""
    lines = raw.split(b"\n")
    skeleton = []
    for index, line in enumerate(lines[:-1]):
        skeleton.append(line if index % 2 == 0 else b"%d" % (index // 2))
    document = parse_json(b"".join(skeleton))
    if not isinstance(document, dict) or document.get("layout") != LAYOUT:
        raise ValueError("not our layout")
    return document, lines[1::2]


def _answer_of(stored, results, at_ms):
    """An Answer of the skeleton; each result is checked when it is served. TypeError for a wrong type."""
    at_ms = stored.get("at", at_ms)
    is_error = "error" in stored
    indexes = stored["pages"] if "pages" in stored else [stored["error" if is_error else "result"]]
    pages = [results[index] for index in indexes]
    if type(at_ms) is not int or not 0 <= at_ms < 1 << 53 or not pages:
        raise TypeError("not what we write")
    return Answer(is_error, pages, at_ms)


def _entry_of(item, results):
    key = (item["era"], item["protocolVersion"], item["capabilities"], item["scope"])
    if set(map(type, key)) != {str} or item["era"] not in OPENING:
        raise TypeError("not what we write")
    entry = Entry(*key)
    for name, is_error in ((OPENING[entry.era].rpartition("/")[2], False), ("refused", True)):
        if item.get(name) is not None:
            entry.answers[OPENING[entry.era]] = _answer_of(
                {"error" if is_error else "result": item[name]}, results, item.get("openedAt", item["recordedAt"]))
    for method, stored in item["lists"].items():
        if method in LIST_MEMBER:
            entry.answers[method] = _answer_of(stored, results, item["recordedAt"])
    entry.start_requests = [str(method) for method in item["startRequests"]]
    entry.doubts = [str(method) for method in item.get("doubts", ())]
    entry.refuses_listen = item.get("refusesListen") is True
    return entry


def write_recording(recording):
    """The file's bytes: see the theory for their form."""
    files = b",".join(b'{"path":%s,"size":%d,"mtimeNs":%d}' % (json_string(path), size, mtime_ns)
                      for path, size, mtime_ns in recording.files)
    out = [b'{"schema":%d,"layout":%s,"owner":%s,"program":%s,"files":[%s],"entries":[' % (
        SCHEMA, json_string(LAYOUT), json_string(recording.owner), _strings(recording.program), files)]
    separator = b""
    for entry in recording.entries.values():
        out[-1] += separator + b'{"era":%s,"protocolVersion":%s,"capabilities":%s,"scope":%s,"recordedAt":%d' % (
            json_string(entry.era), json_string(entry.version), json_string(entry.capabilities),
            json_string(entry.scope), entry.recorded_at_ms())
        out[-1] += b',"serverInfo":%s,"startRequests":%s,"doubts":%s,"refusesListen":%s' % (
            server_info(entry), _strings(entry.start_requests), _strings(entry.doubts),
            b"true" if entry.refuses_listen else b"false")
        opening, name = entry.answers.get(OPENING[entry.era]), OPENING[entry.era].rpartition("/")[2].encode("ascii")
        if opening is None:
            out[-1] += b',"%s":null' % name
        else:
            out[-1] += b',"openedAt":%d,"%s":' % (opening.at_ms, b"refused" if opening.is_error else name)
            out += [opening.pages[0], b""]
        out[-1] += b',"lists":{'
        _put_answers(out, {method: entry.answers[method] for method in entry.lists()}, (b'"pages":[', b"]}"))
        out[-1] += b"}}"
        separator = b","
    out[-1] += b'],"before":{'
    _put_answers(out, recording.before, (b'"result":', b"}"))
    out[-1] += b"}}"
    return b"\n".join(out) + b"\n"


def _strings(words):
    return b"[%s]" % b",".join(map(json_string, words))


def _put_answers(out, answers, brackets):
    """Each page on a line of its own, and the next skeleton line behind it."""
    comma = b""
    for name, answer in answers.items():
        opens, closes = (b'"error":', b"}") if answer.is_error else brackets
        out[-1] += comma + json_string(name) + b':{"at":%d,' % answer.at_ms + opens
        for index, page in enumerate(answer.pages):
            out[-1] += b"," if index else b""
            out += [page, b""]
        out[-1] += closes
        comma = b","


def server_info(entry):
    """The raw serverInfo of the recorded handshake or discovery, null if there is none."""
    try:
        found = members(entry.opening() or b"")
        if entry.era == "legacy":
            return found["serverInfo"]
        return members(found["_meta"])[SERVER_KEY]
    except (ValueError, KeyError):
        return b"null"


def merged_recording(disk, recording, dirty):
    """The bytes to write: what `disk` (bytes or None) holds, with the dirty members of `recording` laid over it.

    dirty: set of (entry key, member); member is "*" (the whole entry), "startRequests", "doubts", "refusesListen" or a
    recorded method; for the key BEFORE a probe key. None if the file belongs to a newer program.
    """
    if disk is not None and newer_schema(disk):
        return None
    merged = Recording(recording.program, recording.owner, recording.files)
    if disk:
        merged.read(disk)
    for key, member in sorted(dirty):
        if key == BEFORE:
            _lay_over(merged.before, recording.before, member)
            continue
        mine = recording.entries.get(key)
        if mine is None:
            continue
        if member == "*" or key not in merged.entries:
            merged.entries[key] = mine
            continue
        theirs = merged.entries[key]
        if member == "startRequests":
            theirs.start_requests = mine.start_requests
        elif member == "doubts":
            theirs.doubts = mine.doubts
        elif member == "refusesListen":
            theirs.refuses_listen = mine.refuses_listen
        else:
            _lay_over(theirs.answers, mine.answers, member)
    merged.trim({member if key == BEFORE else key for key, member in dirty})
    return write_recording(merged)


def _lay_over(theirs, mine, name):
    if name in mine:
        theirs[name] = mine[name]
    else:
        theirs.pop(name, None)


def newer_schema(disk):
    try:
        schema = _take_apart(disk)[0].get("schema")
    except (ValueError, RecursionError):
        try:
            document = parse_json(disk)
        except ValueError:
            return False
        schema = document.get("schema") if isinstance(document, dict) else None
    return type(schema) is int and schema > SCHEMA


# -- what the older relay left (A5.11) -----------------------------------------------

def older_file_key(words, programs):
    """The key under which the relay of schema 1 kept a command (A5.1); programs: {index: (path, size, mtime in ns)}."""
    lines = [b"schema=1\n"]
    for index, word in enumerate(words):
        lines.append(b"arg=%s\n" % word)
        if index in programs:
            path, size, mtime_ns = programs[index]
            lines.append(b"file=%s size=%d mtime=%d\n" % (path.encode("utf-8", "surrogateescape"), size, mtime_ns))
    return sha256_hex(b"".join(lines))[:32]


def import_older(raw, recording):
    """Take a file of schema 1 into a Recording: handshakes, lists, and of `before` the probes alone (A6.5).

    Returns what is to be saved: a set of (entry key, member). Nothing of a file that is not whole.
    """
    found = Recording(recording.program, recording.owner)
    try:
        document = members(raw.replace(b"\n", b" "))  # between values only: a raw LF cannot stand in a JSON string
        if document["schema"] != b"1":
            return set()
        for version, stored in members(document["entries"]).items():
            entry = Entry("legacy", version, ANY_CAPABILITIES, "")
            parts = members(stored)
            if parts["initialize"][:1] != b"{":
                continue
            entry.answers["initialize"] = Answer(False, [parts["initialize"]], 0)
            for method, result in members(parts.get("lists", b"{}")).items():
                if method in LIST_MEMBER and result[:1] == b"{":
                    entry.answers[method] = Answer(False, [result], 0)
            found.entries[entry.key()] = entry
        for key, stored in members(document.get("before", b"{}")).items():
            parts = members(stored)
            if key.startswith("server/discover:") and (
                    error_code(parts) in RECORDED_ERRORS if "error" in parts else parts["result"][:1] == b"{"):
                found.before[key] = Answer("error" in parts, [parts.get("error") or parts["result"]], 0)
    except (ValueError, KeyError):
        return set()
    recording.entries, recording.before = found.entries, found.before
    return {(key, "*") for key in found.entries} | {(BEFORE, key) for key in found.before}


def is_handshake(raw):
    """True if a raw result is one that a client takes for an answer to `initialize`."""
    try:
        parts = members(raw)
    except ValueError:
        return False
    return parts.get("protocolVersion", b"")[:1] == b'"' and parts.get("capabilities", b"")[:1] == b"{"


def item_count(method, answer):
    """How many items a recorded list has; None for an error or what cannot be read."""
    try:
        return sum(len(parse_json(page)[LIST_MEMBER[method]]) for page in answer.pages)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_list_request(params):
    """True if a list request asks for a page and nothing else."""
    return params is None or isinstance(params, dict) and all(
        name == "_meta" or name == "cursor" and (value is None or isinstance(value, str))
        for name, value in params.items())


def is_plain_listing(params):
    """True if it asks for the first page (A6.3)."""
    return is_list_request(params) and (params is None or params.get("cursor") is None)


def error_code(parts):
    try:
        return parse_json(parts["error"]).get("code")
    except (KeyError, ValueError, AttributeError):
        return None


def error_text(parts):
    try:
        return str(parse_json(parts["error"])["message"])[:200]
    except (KeyError, ValueError, TypeError):
        return ""


def version_of(initialize):
    try:
        return parse_json(members(initialize)["serverInfo"]).get("version")
    except (KeyError, ValueError, AttributeError):
        return None


def own_cursor(text):
    """(generation, index) of a cursor of ours, None for anything else."""
    if not isinstance(text, str) or not text.startswith(OWN_CURSOR):
        return None
    generation, _, index = text[len(OWN_CURSOR):].partition(":")
    return generation, int(index) if index.isascii() and index.isdigit() and len(index) < 6 else MAX_PAGES


class ModernRequest:
    """A request of the modern era as it is needed here.

    params: parsed exactly; params_raw; meta: its `_meta` ({} without one); meta_raw: the same for a request of our own,
    without the progress token.
    """
    __slots__ = ("params", "params_raw", "meta", "meta_raw")

    def __init__(self, params_raw):
        """ValueError for params that are no object."""
        self.params_raw, self.params = params_raw, parse_json(params_raw or b"{}", exact=True)
        if not isinstance(self.params, dict):
            raise ValueError("params are no object")
        meta = self.params.get("_meta")
        self.meta, self.meta_raw = meta if isinstance(meta, dict) else {}, b""
        if self.meta:
            parts = members(members(params_raw)["_meta"])
            self.meta_raw = b"{%s}" % b",".join(
                json_string(name) + b":" + raw for name, raw in parts.items() if name != "progressToken")


def read_modern(line):
    """The ModernRequest of a line, None where it cannot be read."""
    try:
        return ModernRequest(members(line).get("params", b""))
    except (ValueError, RecursionError):
        return None


class PageSet:
    """The pages of one listing as they come. `add(result)` gives the cursor (raw) that leads on, None behind the last.

    PeerError with the reason if they can never become a whole list (case 054).
    """
    __slots__ = ("method", "pages", "too_long", "_cursors", "_bytes")

    def __init__(self, method):
        self.method, self.pages, self.too_long, self._cursors, self._bytes = method, [], False, set(), 0

    @classmethod
    def is_whole(cls, method, result):
        """True if a result that is no list can be recorded."""
        try:
            return cls(method).add(result) is None
        except PeerError:
            return False

    def add(self, result):
        try:
            found = members(result)
        except ValueError:
            raise PeerError("the result is no object") from None
        if found.get("resultType", b'"complete"') != b'"complete"':
            raise PeerError("the result is not complete")
        array = "supportedVersions" if self.method == OPENING["modern"] else LIST_MEMBER.get(self.method)
        if array is not None and found.get(array, b"")[:1] != b"[":
            raise PeerError("%s is missing or no array" % array)
        self._bytes += len(result)
        self.pages.append(bytes(result))
        self.too_long = self._bytes > MAX_RESULT_BYTES
        if self.too_long:
            raise PeerError("it is over %d bytes" % MAX_RESULT_BYTES)
        cursor = found.get("nextCursor", b"null") if self.method in LIST_MEMBER else b"null"
        if cursor in (b"null", b'""'):  # "" may lead on (26, pagination) or be an end: who follows it wakes the server
            return None
        if cursor[:1] != b'"':
            raise PeerError("nextCursor is not a string")
        if cursor in self._cursors:
            raise PeerError("the cursor %s came twice" % cursor.decode("utf-8", "replace")[:80])
        if len(self.pages) >= MAX_PAGES:
            raise PeerError("it has more than %d pages" % MAX_PAGES)
        self._cursors.add(cursor)
        return cursor


# -- the file ------------------------------------------------------------------------

class Store:
    """The recording's file: load once, lay over what was learnt, under a lock that is never waited for."""
    __slots__ = ("path", "recording", "_journal", "_dirty", "_failed", "_since_s")

    def __init__(self, path, recording, dirty=()):
        self.path, self.recording = path, recording
        self._journal, self._dirty, self._failed, self._since_s = None, set(dirty), False, None

    def attach(self, journal):
        self._journal = journal

    def save(self, dirty, now_s):
        """True if all is written (or cannot be); False if another process holds the lock: call again."""
        self._dirty |= dirty
        if not self._dirty or self.path is None:
            return True
        if self._since_s is None:
            self._since_s = now_s
        folder = self.path.rpartition("/")[0] or "."
        try:
            trouble = private_dir_trouble(folder, create=True)
            if trouble:
                raise OSError(errno.EACCES, trouble)
            lock = lock_file(self.path[:-len("json")] + "lock")
            if lock is None:
                if now_s - self._since_s < LOCK_GIVE_UP_S:
                    return False
                raise OSError(errno.EAGAIN, "another process keeps its lock")
            try:
                raw = merged_recording(read_private_file(self.path, MAX_RECORDING_BYTES), self.recording, self._dirty)
                if raw is not None and len(raw) > MAX_RECORDING_BYTES:
                    raise OSError(errno.EFBIG, "a recording of %d bytes is too large" % len(raw))
                if raw is not None:
                    replace_file(self.path, raw)
            finally:
                close_quietly(lock)
        except OSError as error:
            if not self._failed:
                self._journal.warn("cannot write recordings in %s: %s" % (folder, error.strerror or error))
            self._failed = True
        self._dirty, self._since_s = set(), None
        return True

    def used(self):
        """Note in the file that it is in use, and write what was imported."""
        self.save(set(), monotonic_s())
        if self.path is not None and self.recording.entries:
            touch_older(self.path, USED_S)

    def finish(self):
        """A last try for what still waits for its lock."""
        for _ in range(4):
            if self.save(set(), monotonic_s()):
                break
            pause(LOCK_RETRY_S)


def recorded_command(argv):
    """(words as bytes, program files, words that may be stored) of a command; see `file_key`."""
    programs = program_words(argv, word_stat)
    shown = [argv[0]] + [argv[index] for index, *_ in programs if index]
    return [filesystem_bytes(word) for word in argv], programs, shown


def load_store(options):
    """(Store, why caching is off or None). A folder that somebody else may write to is never read (A4.3)."""
    words, programs, shown = options.command
    key = file_key(words, programs)
    owner = key if options.name is not None else ""
    recording = Recording(shown, owner, [found[1:] for found in programs])
    path = "%s/%s.json" % (options.cache_dir, options.name if options.name is not None else key)
    trouble = private_dir_trouble(options.cache_dir, create=False)
    if trouble in ("owned by another user", "others may write to it", "not a directory"):
        return Store(None, recording), "recordings are off: %s: %s" % (options.cache_dir, trouble)
    raw, imported = read_private_file(path, MAX_RECORDING_BYTES), set()
    if raw:
        recording.read(raw)
    elif raw is None and options.name is None:
        imported = import_older(older_recording(options) or b"", recording)
    return Store(path, recording, imported), None


def older_recording(options):
    """The bytes of what a relay of schema 1 recorded for this command (A5.11), or None."""
    seen = [(index, word_stat(word, index)) for index, word in enumerate(options.argv)]
    key = older_file_key(options.command[0], {index: found[:3] for index, found in seen if found is not None})
    return read_private_file("%s/%s.json" % (options.cache_dir, key), MAX_RECORDING_BYTES)

# ============================================================================
# L6b STANDIN - what the relay says in somebody's place           [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L5 L6
# Used by: L7 L8 L9 L13e L14
# Owns:   Shelf, Ask, Listings, OwnRequests, Streams
# Never:  reads a clock, touches a descriptor
# Tests:  tests/test_l06b_standin.py, tests/test_modern.py
# ----------------------------------------------------------------------------
# Theory: this layer was cut out of its neighbours when the second era came. It holds
# what the relay says itself: to the client in the server's place (`Shelf`, `Streams`),
# to the server in the client's (`OwnRequests`, `Listings`). When is decided above.
#
# Two eras. Legacy: one `initialize` chooses the entry for the whole session.
# Modern (2026-07-28): each request carries version and capabilities in `_meta`
# and chooses its own; there is no handshake to replay, so a start begins with the
# client's subscriptions, then the listings it was served, then what woke it.
#
# A recorded modern answer leaves with `ttlMs` reduced by its age: a client counts
# from receipt, and a fresh number would extend it with every start. Serving
# what is stale at all is this program's licence (design 4.6): it says 0 then, and each
# real start checks it.
#
# server/discover has three keys. A success, or -32022, is found by the entry or by
# the exact text of the request, whichever is newer. A refusal (-32601) is found by
# that text or, so that it outlives an update of the client, by the text without the
# client's version (B5, B6). A server that calls a sound probe invalid (Python SDK
# 1.x says -32602) and answers `initialize`, next or in another session, is as legacy
# as one that says -32601, and recorded as that.
#
# Pages. A list is recorded whole or not at all. Its cursors belong to a process
# that is gone: the client gets ours, `mcp-lazy:GENERATION:INDEX`, the generation a
# digest of the pages. One that meets a live server is translated by reading the
# pages before it; if these are not the recorded ones the cursor is invalid.
#
# Streams. `subscriptions/listen` opens one that lasts: it is acknowledged here with
# what the recorded capabilities allow, and sent on, the client's own line with its
# own id, to each modern process that starts; that acknowledgement is swallowed.
# A server that refuses the stream leaves the client with ours, which tells only what
# a start finds out. That is no substitute for single resources: where one of those that
# were granted is not granted again, the client is told that the stream has ended, in the way
# of a server that takes one down (an empty complete result), and may ask anew.
# ----------------------------------------------------------------------------
# What the ids of our own requests to the server begin with.
OWN_ID = "mcp-lazy-"
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
CANCELLED = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n'
CHANGED = {"tools/list": "notifications/tools/list_changed", "prompts/list": "notifications/prompts/list_changed",
           "resources/list": "notifications/resources/list_changed",
           "resources/templates/list": "notifications/resources/list_changed"}
# What a stream can ask for, and the capability whose listChanged grants it (26, basic/patterns/subscriptions).
STREAM_KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
# Methods that the 2026-07-28 revision no longer has.
GONE_METHODS = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
# A list that the server called changed and nobody asked for again is asked for by us (A9.8).
RELIST_WAIT_S = 2.0
MAX_STREAMS, MAX_STREAM_BYTES, MAX_SERVED = 1000, 64 * 1024, 64
# What was said again is written down again only if the record is older than this.
CONFIRM_MS = 60 * 1000
INVALID_CURSOR = error_object(INVALID_PARAMS, "invalid cursor: the list has changed, read it from its start")
NOT_FOUND = error_object(METHOD_NOT_FOUND, "Method not found")


def is_own_id(key):
    return isinstance(key, str) and key.startswith(OWN_ID)


class Lessons:
    """What live answers teach: lays them into the recording, and knows what of it is not saved yet.

    now_ms: unix time, set by whoever hands in the events.
    """
    __slots__ = ("recording", "now_ms", "_dirty", "_doubted_now")

    def __init__(self, recording):
        self.recording, self.now_ms, self._dirty, self._doubted_now = recording, 0, set(), set()

    def new_start(self):
        """A server starts: what it says once more is said by another start (A9.2)."""
        self._doubted_now = set()

    def take_dirty(self):
        dirty, self._dirty = self._dirty, set()
        return dirty

    def has_news(self):
        return bool(self._dirty)

    def learn_initialize(self, entry, raw, replayed):
        """Store a handshake's result. "same", "new", "changed" or "too big"; a live change empties the lists (A6.1)."""
        before = entry.opening()
        if before is not None and same_json(before, raw):
            self._confirm(entry, "initialize")
            return "same"
        if len(raw) > MAX_RESULT_BYTES:
            return "too big"
        emptied = before is not None and not replayed
        if emptied:
            entry.answers, entry.start_requests, entry.doubts = {}, [], []
        entry.answers["initialize"] = Answer(False, [raw], self.now_ms)
        self._note(entry, "*" if emptied else "initialize")
        return "new" if before is None else "changed"

    def learn(self, entry, method, is_error, pages):
        """Store the answer to a listing or discovery, whole. "same", "new", "changed", "doubted" or "too big"."""
        answer, before = Answer(is_error, pages, self.now_ms), entry.answers.get(method)
        if sum(map(len, pages)) > MAX_RESULT_BYTES:
            return "changed" if self.forget(entry, method) else "too big"
        if before is not None and before.says_the_same(answer):
            self._doubt(entry, method, False)
            self._confirm(entry, method)
            return "same"
        if before is not None and not before.is_error and not is_error and self._emptied(entry, method, before, answer):
            return "doubted"
        self._doubt(entry, method, False)
        entry.answers[method] = answer
        self._note(entry, method)
        return "new" if before is None else "changed"

    def forget(self, entry, method):
        """What is recorded is known to be wrong, and nothing can take its place. True if there was something."""
        if entry.answers.pop(method, None) is None:
            return False
        self._note(entry, method)
        return True

    def _note_probe(self, key, answer):
        before = self.recording.before
        if answer is not None:
            before[key] = answer
            if len(before) > 2 * MAX_PROBES:
                self.recording.trim()
        elif before.pop(key, None) is None:
            return
        self._dirty.add((BEFORE, key))

    def _confirm(self, entry, method):
        """It was said again: its age begins anew (A5.10)."""
        answer = entry.answers[method]
        if abs(self.now_ms - answer.at_ms) > CONFIRM_MS:
            entry.answers[method] = Answer(answer.is_error, answer.pages, self.now_ms)
            self._note(entry, method)

    def _emptied(self, entry, method, before, after):
        """True for an empty list behind a full one, until another start says so too: servers fill lists late (A9.2)."""
        if item_count(method, after) != 0 or not item_count(method, before):
            return False
        if method in entry.doubts and method not in self._doubted_now:
            return False
        self._doubted_now.add(method)
        self._doubt(entry, method, True)
        return True

    def _doubt(self, entry, method, doubted):
        if (method in entry.doubts) != doubted:
            (entry.doubts.append if doubted else entry.doubts.remove)(method)
            self._note(entry, "doubts")

    def learn_listen(self, entry, refused):
        """Store whether the server knows `subscriptions/listen` at all."""
        if entry is not None and entry.refuses_listen != refused:
            entry.refuses_listen = refused
            self._note(entry, "refusesListen")

    def _note(self, entry, member):
        self.recording.entries[entry.key()] = entry
        if len(self.recording.entries) > 2 * MAX_ENTRIES:
            self.recording.trim()
        self._dirty.add((entry.key(), member))


class Shelf(Lessons):
    """The recorded answers for this client: what can be served.

    entry: the one of the legacy handshake, or None; served: (entry, method) of what this client was given of it;
    followed: {(entry, method): raw `_meta` of the last request} of what it was given of the modern era, by whomever.
    """
    __slots__ = ("scope", "max_age_ms", "entry", "served", "followed", "generations", "_exact", "_fresh", "_parsed",
                 "_checked")

    def __init__(self, recording, scope, max_age_ms=0):
        super().__init__(recording)
        self.scope, self.max_age_ms, self.entry, self.served, self.followed = scope, max_age_ms, None, set(), {}
        self.generations, self._exact, self._fresh, self._parsed, self._checked = set(), {}, {}, (None, {}), set()

    # -- whose answers

    def select(self, params):
        """Choose the entry for a client's `initialize` params (exact). False if it can never be recorded (A6.4)."""
        self.entry = None
        version = params.get("protocolVersion")
        if not isinstance(version, str) or not version:
            return False
        self.entry = self._entry("legacy", version, params.get("capabilities"), params.get("clientInfo"))
        return True

    def modern_entry(self, asked):
        """The entry for a ModernRequest, None where its `_meta` is not whole."""
        version, capabilities = asked.meta.get(VERSION_KEY), asked.meta.get(CAPABILITIES_KEY)
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            return None
        try:
            return self._entry("modern", version, capabilities, asked.meta.get(CLIENT_KEY))
        except ValueError:
            return None

    def _entry(self, era, version, capabilities, client):
        scope, entries = self.scope_text(client), self.recording.entries
        key = entry_key(version, capabilities, scope, era)
        imported = entries.get((era, version, ANY_CAPABILITIES, ""))
        if key not in entries and imported is not None and not scope:
            entries[key] = imported.copy_for(key)
        if key not in entries and len(self._fresh) > MAX_ENTRIES:
            self._fresh = {}
        return entries.get(key) or self._fresh.setdefault(key, Entry(*key))

    def scope_text(self, client):
        """What --cache-scope adds to a key (A5.9); client: its clientInfo."""
        client = client if isinstance(client, dict) else {}
        lines = []
        for word, value in self.scope:
            if word in ("client", "client-version"):
                value = client.get("name" if word == "client" else "version")
                value = canonical(value) if isinstance(value, str) else "none"
            lines.append("%s=%s" % (word, value))
        return "\n".join(lines)

    # -- serving

    def initialize(self):
        """The recorded handshake (raw) or None."""
        raw = self.entry.opening() if self.entry is not None else None
        return raw if raw is not None and self._usable(raw) else None

    def listing(self, entry, method, cursor, meta_raw=b""):
        """(is_error, raw) for a list request, None if it must come from the server (A6.9)."""
        if entry is None or entry.era == "legacy" and entry.opening() is None:
            return None
        answer, wanted = entry.answers.get(method), own_cursor(cursor)
        if cursor is not None and wanted is None:
            return None
        if wanted is not None and (answer is None or answer.is_error or wanted[0] != answer.generation()
                                   or wanted[1] >= len(answer.pages)):
            return True, INVALID_CURSOR
        found = self._given(entry, answer, wanted[1] if wanted else 0)
        if found is not None:
            self.note_served(entry, method, meta_raw)
        return found

    def _given(self, entry, answer, index):
        """(is_error, raw) of one page as it is served, None if it is not there or damaged."""
        if answer is None:
            return None
        raw, changes = answer.pages[index], {}
        if index + 1 < len(answer.pages):
            generation = answer.generation()
            self.generations.add(generation)
            changes["nextCursor"] = json_string("%s%s:%d" % (OWN_CURSOR, generation, index + 1))
        if answer.is_error or entry.era == "legacy" and not changes:
            return (answer.is_error, raw) if self._usable(raw) else None
        try:
            if entry.era == "modern":
                changes.update(cache_hints(raw, self.now_ms - answer.at_ms))
            return False, with_members(raw, changes) if changes else raw
        except ValueError:
            return None

    def gave_out(self, entry, method, cursor):
        """True if a cursor of our form is one of this session, or of what is recorded now."""
        generation, answer = own_cursor(cursor)[0], entry.answers.get(method)
        return generation in self.generations or answer is not None and generation == answer.generation()

    def is_old(self, entry):
        """True if --cache-max-age asks to compare it with the server."""
        return bool(self.max_age_ms and entry.answers) and self.now_ms - entry.recorded_at_ms() > self.max_age_ms

    def note_served(self, entry, method, meta_raw):
        if len(self.served) < MAX_SERVED:
            self.served.add((entry, method))
        if entry.era == "modern":
            self.follow(entry, method, meta_raw)

    def follow(self, entry, method, meta_raw):
        """The client has this answer now: a start compares it (A17.6)."""
        self.followed[entry, method] = meta_raw
        if len(self.followed) > MAX_SERVED:
            del self.followed[next(iter(self.followed))]

    def known_legacy(self):
        """True if the server is recorded as one that has no `server/discover` (A17.7)."""
        return any(answer.is_error and error_code({"error": answer.pages[0]}) == METHOD_NOT_FOUND
                   for answer in self.recording.before.values()) and not self._known_modern()

    def shakes_hands(self):
        """True if the server is recorded with an answer to `initialize`, and with no other era."""
        return not self._known_modern() and any(
            entry.era == "legacy" and entry.opening() for entry in self.recording.entries.values())

    def _known_modern(self):
        return [entry for entry in self.recording.entries.values() if entry.era == "modern" and entry.opening()]

    def _probe(self, asked):
        """(exact key, tolerant key, entry or None) of a `server/discover` (A17.4)."""
        exact, tolerant = probe_keys(asked.params_raw, scope_digest(self.scope_text(asked.meta.get(CLIENT_KEY))))
        return exact, tolerant, self.modern_entry(asked) if set(asked.params) == {"_meta"} else None

    def discovery(self, asked):
        """(is_error, raw) for a `server/discover`, None if it is not recorded."""
        before = self.recording.before
        exact, tolerant, entry = self._probe(asked)
        known = before.get(exact)
        answer = entry.answers.get("server/discover") if entry is not None else None
        if answer is not None and (known is None or answer.at_ms > known.at_ms):  # a start compared it since
            known = answer
        if known is not None and entry is not None and not known.is_error:
            self.note_served(entry, "server/discover", asked.meta_raw)
            self._exact[entry] = exact
        if known is None:
            known = before.get(tolerant)
            if known is None or not known.is_error or error_code({"error": known.pages[0]}) != METHOD_NOT_FOUND:
                return None
        return self._given(Entry("modern", "", "", ""), known, 0)

    def learn_probe(self, asked, is_error, raw):
        """Store the answer to a `server/discover` of the client's (A17.4, B7)."""
        exact, tolerant, entry = self._probe(asked)
        code = error_code({"error": raw}) if is_error else None
        if len(raw) > MAX_RESULT_BYTES:
            return
        if code == METHOD_NOT_FOUND:
            for key in filter(None, (exact, tolerant)):
                self._note_probe(key, Answer(True, [raw], self.now_ms))
            if entry is not None:
                self.forget(entry, "server/discover")
                self.compared(entry, True)
            return
        good = code == UNSUPPORTED_VERSION or not is_error
        self._note_probe(exact, Answer(is_error, [raw], self.now_ms) if good else None)
        self._note_probe(tolerant, None)
        if good and entry is not None:
            self.learn(entry, "server/discover", is_error, [raw])

    def compared(self, entry, refused):
        """A start heard its discovery: what was kept by the text of a probe is older. refused: for every client."""
        kept = [key for key, answer in self.recording.before.items() if not answer.is_error] if refused else [
            self._exact.pop(entry, None)]
        for key in kept:
            self._note_probe(key, None)

    def refusal(self, asked):
        """The error (raw) for an envelope that this server, known as modern, would not take; None if it may."""
        known, meta = self._known_modern(), asked.meta
        if not known or not isinstance(meta.get(VERSION_KEY), str):
            return None
        if not isinstance(meta.get(CAPABILITIES_KEY), dict):
            return error_object(INVALID_PARAMS, "params._meta lacks the object %s" % CAPABILITIES_KEY)
        newest = max(known, key=Entry.recorded_at_ms)
        supported = self.opening_value(newest).get("supportedVersions")
        if (not isinstance(supported, list) or meta[VERSION_KEY] in supported
                or not all(isinstance(version, str) for version in supported)):
            return None
        return b'{"code":%d,"message":"Unsupported protocol version","data":{"supported":%s,"requested":%s}}' % (
            UNSUPPORTED_VERSION, canonical(supported).encode("ascii"), json_string(meta[VERSION_KEY]))

    def learn_start_requests(self, methods):
        """Store which requests the server made at its start (design 4.3)."""
        entry = self.entry
        if entry is not None and entry.opening() is not None and entry.start_requests != methods:
            entry.start_requests = methods
            self._note(entry, "startRequests")

    def _usable(self, raw):
        """A damaged result counts as not recorded."""
        if raw in self._checked:
            return True
        try:
            good = isinstance(parse_json(raw), dict)
        except ValueError:
            good = False
        if good:
            self._checked.add(raw)
        return good

    def opening_value(self, entry):
        """The parsed result that began an entry, {} if there is none."""
        raw = entry.opening() if entry is not None else None
        if self._parsed[0] is not raw or raw is None:
            try:
                value = parse_json(raw) if raw is not None else {}
            except ValueError:
                value = {}
            self._parsed = raw, value if isinstance(value, dict) else {}
        return self._parsed[1]

    def capabilities(self, entry):
        """The server's recorded capabilities (dict)."""
        found = self.opening_value(entry).get("capabilities")
        return found if isinstance(found, dict) else {}

    def declares_changes(self, entry, method):
        declared = self.capabilities(entry).get(CAPABILITY_OF[method])
        return isinstance(declared, dict) and declared.get("listChanged") is True

def cache_hints(raw, age_ms):
    """{member: raw value} to set in modern results: what the revision requires, and a lifetime less its age (A17.5)."""
    found, changes = members(raw), {}
    if "resultType" not in found:
        changes["resultType"] = b'"complete"'
    if "cacheScope" not in found:
        changes["cacheScope"] = b'"private"'
    told = found.get("ttlMs", b"")
    left = int(told) - age_ms if told[:15].isdigit() and len(told) <= 15 and age_ms >= 0 else 0
    if told != b"%d" % max(0, left):
        changes["ttlMs"] = b"%d" % max(0, left)
    return changes


class Ask:
    """One request of ours that is open.

    kind: "replay", "state", "refresh", "relist", "fill", "walk" (the rest of a list whose first page the client asked
    for) or "seek" (a cursor of ours met a live server); base: raw `_meta` to send, b"" in the legacy era (of a
    subscription its uri); seek: (flight,
    the Answer whose page is wanted, its index).
    """
    __slots__ = ("kind", "method", "entry", "base", "pages", "seek")

    def __init__(self, kind, method, entry, base=b""):
        self.kind, self.method, self.entry, self.base = kind, method, entry, base
        self.pages, self.seek = PageSet(method), None

    def params(self, cursor=None):
        """The raw params for its next page, None for no params."""
        parts = ([b'"_meta":' + self.base] if self.base else []) + ([b'"cursor":' + cursor] if cursor else [])
        return b"{%s}" % b",".join(parts) if parts else None

    def take(self, parts):
        """Add the page of an answer: (cursor that leads on or None, why it can never be a whole list or None)."""
        if parts.get("result", b"")[:1] != b"{":
            return None, None
        try:
            return self.pages.add(parts["result"]), None
        except PeerError as error:
            return None, str(error)


class Listings:
    """Lists as they come from the server, by whom ever asked: pages, cursors of ours, and what is to be told."""
    __slots__ = ("_relay", "_announce")

    def __init__(self, relay):
        self._relay, self._announce = relay, set()

    def page(self, ask, parts):
        """An answer to a listing of ours: the next page, or the end."""
        cursor, trouble = ask.take(parts)
        if ask.seek is not None and (cursor is None or len(ask.pages.pages) > ask.seek[2]):
            self._sought(ask, parts, trouble)
            return
        if cursor is not None:
            self._relay.own.send(self._relay.own.ident("page"), ask, ask.params(cursor))
            return
        verdict = self._unreadable(ask, trouble) if trouble else self._store(ask, parts)
        if ask.kind == "refresh":
            if verdict == "changed":
                self._differs(ask)
            self._relay.own.refresh_over()

    def _store(self, ask, parts):
        """Keep a whole answer, a success or one of the errors that count. The shelf's verdict, None for nothing."""
        relay, entry, method = self._relay, ask.entry, ask.method
        before = entry.answers.get(method)
        is_error = "error" in parts
        kept = RECORDED_ERRORS[:1 if entry.era == "legacy" else 2]
        if is_error and (ask.pages.pages or error_code(parts) not in kept):
            return None
        pages = [parts["error"]] if is_error else ask.pages.pages
        if not pages:
            return None
        if method == "server/discover":
            refused = is_error and error_code(parts) == METHOD_NOT_FOUND
            relay.shelf.compared(entry, refused)
            if refused:  # which belongs to a probe, not to an entry
                relay.shelf.forget(entry, method)
                relay.save()
                return None
        verdict = relay.shelf.learn(entry, method, is_error, pages)
        if verdict == "changed" and method in LIST_MEMBER:
            relay.log("%s differs from the recording: %s -> %s items" % (
                method, item_count(method, before), item_count(method, entry.answers[method])), 1)
        relay.save()
        return verdict

    def _unreadable(self, ask, trouble):
        """A list that can never be recorded. What is recorded stays (case 054), unless it is too long now."""
        relay = self._relay
        relay.log("%s is not recorded: %s" % (ask.method, trouble), 1)
        if ask.pages.too_long and relay.shelf.forget(ask.entry, ask.method):
            relay.save()
            return "changed"
        return None

    def first_page(self, flight, parts):
        """The client's own plain listing was answered: keep it, with the pages that follow. The verdict or None."""
        entry, method = flight.entry, flight.note
        if entry is None or entry.era == "legacy" and entry.opening() is None:
            return None
        if entry.era == "modern":
            if self._relay.shelf.known_legacy():
                return None
            self._relay.shelf.follow(entry, method, flight.before.meta_raw)
        ask = Ask("walk", method, entry, flight.before.meta_raw if flight.before is not None else b"")
        cursor, trouble = ask.take(parts)
        if trouble:
            return self._unreadable(ask, trouble)
        known = entry.answers.get(method)
        if cursor is None:
            return self._store(ask, parts)
        if known is None or known.is_error or not Answer(False, known.pages[:1], 0).says_the_same(
                Answer(False, ask.pages.pages, 0)):
            self._relay.own.send(self._relay.own.ident("page"), ask, ask.params(cursor))
        return None

    def probe_answered(self, flight, parts):
        """The client's `server/discover` was answered. A refusal of another kind waits for what `initialize` says."""
        relay, is_error = self._relay, "error" in parts
        raw = parts["error"] if is_error else parts.get("result", b"")
        try:
            if not is_error:
                PageSet(flight.method).add(raw)
        except PeerError as error:
            relay.log("the discovery is not recorded: %s" % error, 1)
            return
        unclear = error_code(parts) in (INVALID_REQUEST, INVALID_PARAMS) and flight.entry is not None
        relay.life.refused_probe = flight.before if unclear else None
        if unclear and relay.shelf.shakes_hands():
            raw = NOT_FOUND
        relay.shelf.learn_probe(flight.before, is_error, raw)
        if not is_error and flight.entry is not None:
            relay.shelf.follow(flight.entry, flight.method, flight.before.meta_raw)
        relay.save()

    def seek(self, flight, entry, method, cursor, base):
        """A cursor of ours goes to a live server: read up to the page that it stands for (A6.9)."""
        answer, wanted = entry.answers.get(method), own_cursor(cursor)
        if answer is None or answer.is_error or wanted[0] != answer.generation() or wanted[1] >= len(answer.pages):
            self._reply(flight, True, INVALID_CURSOR)
            return
        ask = Ask("seek", method, entry, base)
        ask.seek = flight, answer, wanted[1]
        self._relay.own.send(self._relay.own.ident("page"), ask, ask.params())

    def _sought(self, ask, parts, trouble):
        """Answer the client's request for a page, if the pages before it are those that it has."""
        flight, answer, index = ask.seek
        if "error" in parts and not ask.pages.pages:
            self._reply(flight, True, parts["error"])
            return
        same = Answer(False, answer.pages[:index], 0).says_the_same(Answer(False, ask.pages.pages[:index], 0))
        if not trouble and same and len(ask.pages.pages) > index:
            self._reply(flight, False, ask.pages.pages[index])
            return
        self._reply(flight, True, INVALID_CURSOR)
        told = ask.entry.answers.get(ask.method) is not answer or self._relay.own.refreshing((ask.entry, ask.method))
        if not told:
            self._differs(ask)
            self.announce()
            self._relay.own.relist_soon({(ask.entry, ask.method)})

    def _reply(self, flight, is_error, raw):
        """Answer a request of the client's, if it still waits."""
        if self._relay.flights.close(flight):
            self._relay.to_client((error_line if is_error else result_line)(flight.id_raw, raw))
            self._relay.life.settle_start()

    def _differs(self, ask):
        """The client is to hear of it, if it was given the list or told that it would hear (A9.4)."""
        relay, method = self._relay, ask.method
        shelf, known = relay.shelf, (ask.entry, method) in relay.shelf.served
        if method in CHANGED and (ask.entry.era == "modern" or ask.entry is shelf.entry and (
                known or shelf.declares_changes(ask.entry, method))):
            self._announce.add((ask.entry.era, CHANGED[method]))

    def announce(self):
        for era, notification in sorted(self._announce):
            self._relay.log("telling the client: %s" % notification, 1)
            if era == "modern":
                self._relay.streams.announce(notification)
            else:
                self._relay.to_client(b'{"jsonrpc":"2.0","method":%s}\n' % json_string(notification))
        self._announce = set()


class OwnRequests:
    """The relay's own requests to the server: replay, refresh, re-listing, fill."""
    __slots__ = ("_relay", "_open", "_again", "stale", "_count")

    def __init__(self, relay):
        self._relay, self._open, self._count = relay, {}, 0
        self._again, self.stale = set(), set()

    def reset(self):
        """A generation ended: what it still owed us will not come, what it taught is told."""
        for entry, method in self.stale:  # called changed, and gone before it was read again: the next has to be asked
            entry.answers.pop(method, None)
        self._open, self._again, self.stale = {}, set(), set()
        self._relay.listings.announce()

    def refreshing(self, pair=None):
        """True if the listings (or that (entry, method)) are being compared."""
        return any(ask.kind == "refresh" and pair in (None, (ask.entry, ask.method)) for ask in self._open.values())

    def take(self, key):
        """The request of ours with this id, now closed; None if it is not ours."""
        return self._open.pop(key, None) if self._open else None

    def put_back(self, key, ask):
        self._open[key] = ask

    def send(self, ident, ask, params_raw=None):
        params = b"" if params_raw is None else b',"params":' + params_raw
        self._relay.to_server(b'{"jsonrpc":"2.0","id":%s,"method":%s%s}\n' % (
            json_string(ident), json_string(ask.method), params))
        self._open[ident] = ask

    def ident(self, kind):
        self._count += 1
        return OWN_ID + "%s-%d-%d" % (kind, self._relay.life.generation, self._count)

    def replay_handshake(self):
        relay = self._relay
        self.send(OWN_ID + "init-%d" % relay.life.generation, Ask("replay", "initialize", relay.shelf.entry),
                  relay.told.init_params)

    def answered(self, ask, parts):
        """One of ours came back; parts: the members of the answer."""
        if ask.kind == "replay":
            self._replayed(ask.entry, parts)
        elif ask.kind != "state":
            self._relay.listings.page(ask, parts)
        elif "error" in parts:
            self._relay.log("%s is refused at the wake" % ask.method, 1)
            self._relay.told.subscriptions.pop(ask.base, None)

    def _replayed(self, entry, parts):
        relay, result = self._relay, parts.get("result", b"null")
        if not is_handshake(result):
            reason = error_text(parts).encode("utf-8", "replace")
            reason = redact(reason, relay.settings.secrets).decode("utf-8", "replace")
            relay.life.fail("refused the handshake%s" % (": " + reason if reason else ""), b"")
            return
        before = entry.opening()
        if relay.shelf.learn_initialize(entry, result, replayed=True) == "changed":
            relay.log("handshake differs, recorded: version %s -> %s" % (version_of(before), version_of(result)), 1)
        relay.save()
        self._restore_state()
        relay.life.handshake_done()

    def _restore_state(self):
        """What a server that had been there all the time would know (A12.7); then our listings."""
        relay, told = self._relay, self._relay.told
        relay.to_server(INITIALIZED)
        relay.life.sent_initialized = True
        if told.level is not None:
            self.send(OWN_ID + "level-%d" % relay.life.generation, Ask("state", "logging/setLevel", None), told.level)
        for number, (uri, params) in enumerate(told.subscriptions.items(), 1):
            self.send(OWN_ID + "subscribe-%d-%d" % (relay.life.generation, number),
                      Ask("state", "resources/subscribe", None, uri), params)
        for method in relay.shelf.entry.lists() if relay.shelf.entry else ():
            self._refresh(relay.shelf.entry, method)
        if not relay.settings.refresh_fatal:
            self._limit()

    def modern_start(self):
        """A server starts for a modern request: its streams, and what the client was given of it (A17.6)."""
        relay = self._relay
        relay.streams.reopen()
        for entry, method in list(relay.shelf.followed):
            self._refresh(entry, method)
        if self._open and not relay.settings.refresh_fatal:
            self._limit()

    def _limit(self):
        relay = self._relay
        relay.out.append(SetTimer("own-limit", relay.now_s + seconds(relay.settings.start_timeout_ns)))

    def _refresh(self, entry, method):
        ask = Ask("refresh", method, entry, self._relay.shelf.followed.get((entry, method), b""))
        self.send(OWN_ID + "check-%d-%s" % (self._relay.life.generation, method) if entry.era == "legacy"
                  else self.ident("check"), ask, ask.params())

    def refresh_over(self):
        """Behind the last answer: ask again what changed meanwhile, or tell the client what is new."""
        if not self.refreshing():
            again, self._again = self._again, set()
            for entry, method in sorted(again, key=lambda pair: pair[1]):
                self._refresh(entry, method)
        if not self.refreshing():
            self._relay.listings.announce()
        self._relay.life.settle_start()

    def list_changed(self, notification):
        """The server says that a list changed. True if the client hears it now."""
        relay = self._relay
        recorded = {(entry, method) for entry, method in self._watched() if CHANGED[method] == notification}
        if relay.life.in_replay() or self.refreshing():
            # Part of the start: only an answer that came before this line may be older than the change.
            waiting = {(ask.entry, ask.method) for ask in self._open.values() if ask.kind == "refresh"}
            settled = relay.life.sent_initialized or relay.life.modern
            self._again.update(recorded - waiting if settled else ())
            if not waiting and settled:
                self.refresh_over()
            return False
        for pair in recorded:  # the client is told just now
            relay.shelf.served.discard(pair)
        if recorded and not relay.life.stopping():
            self.relist_soon(recorded)
        return True

    def _watched(self):
        """The recorded lists that the running server stands behind."""
        shelf = self._relay.shelf
        if self._relay.life.modern:
            return [(entry, method) for entry, method in shelf.followed if method in CHANGED]
        return [(shelf.entry, method) for method in shelf.entry.lists()] if shelf.entry is not None else []

    def relist_soon(self, pairs):
        self.stale.update(pairs)
        self._relay.out.append(SetTimer("relist", self._relay.now_s + RELIST_WAIT_S))

    def asked_again(self, entry, method):
        """The client lists it itself. Of several pages the first may be as before: we read these all the same."""
        known = entry.answers.get(method) if entry is not None else None
        if known is None or len(known.pages) == 1:
            self.stale.discard((entry, method))

    def relist(self, event):
        """Nobody asked for a changed list: ask, so that the recording is right (A9.8)."""
        stale, self.stale = self.stale, set()
        for entry, method in sorted(stale, key=lambda pair: pair[1]):
            ask = Ask("relist", method, entry, self._relay.shelf.followed.get((entry, method), b""))
            self.send(self.ident("relist"), ask, ask.params())

    def fill(self):
        """Ask for every advertised list that is not recorded yet (A6.8)."""
        shelf = self._relay.shelf
        if shelf.entry is None or shelf.entry.opening() is None:
            return
        for method in LISTS:
            if CAPABILITY_OF[method] in shelf.capabilities(shelf.entry) and method not in shelf.entry.answers:
                self.send(self.ident("fill"), Ask("fill", method, shelf.entry))
                self._limit()

    def give_up(self, event):
        """What nobody waits for was not answered in time."""
        for key, ask in list(self._open.items()):
            if ask.kind in ("fill", "refresh", "walk"):
                del self._open[key]
                self._relay.log("%s was not answered: not recorded" % ask.method, 1)
        self.refresh_over()


class Stream:
    """A held `subscriptions/listen`. granted: {kind: value} as acknowledged; ours: we gave it, not the server."""
    __slots__ = ("id_raw", "line", "entry", "granted", "ours")

    def __init__(self, id_raw, line, entry, granted, ours):
        self.id_raw, self.line, self.entry, self.granted, self.ours = id_raw, bytes(line), entry, granted, ours


def _resources(granted):
    """The URIs of what an acknowledgement grants."""
    uris = member_of(granted, "resourceSubscriptions")
    return uris if isinstance(uris, list) else []


class Streams:
    """The client's open `subscriptions/listen`, with or without a server (A17.8): {id key: Stream}."""
    __slots__ = ("_relay", "_held", "_opening")

    def __init__(self, relay):
        self._relay, self._held, self._opening = relay, {}, set()

    def answer(self, env, line, asked):
        """True if the request is answered here: acknowledged and held, or refused as the server does."""
        relay = self._relay
        shelf, entry = relay.shelf, relay.shelf.modern_entry(asked)
        wanted = asked.params.get("notifications")
        if entry is not None and entry.refuses_listen:
            relay.to_client(error_line(env.id_raw, NOT_FOUND))
            return True
        if (entry is None or entry.opening() is None or not isinstance(wanted, dict) or len(self._held) >= MAX_STREAMS
                or len(line) > MAX_STREAM_BYTES):
            return False
        granted, capabilities = {}, shelf.capabilities(entry)
        for kind, value in wanted.items():
            if kind not in STREAM_KINDS and value not in (False, None, []):
                return False  # of single resources, or of tasks, only the server can tell
            declared = capabilities.get(STREAM_KINDS.get(kind))
            if value is True and isinstance(declared, dict) and declared.get("listChanged") is True:
                granted[kind] = True
        self._held[env.id_key] = Stream(env.id_raw, line, entry, granted, True)
        told = json_string(SUBSCRIPTION_KEY), env.id_raw, canonical(granted).encode("ascii")
        relay.to_client(b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",'
                        b'"params":{"_meta":{%s:%s},"notifications":%s}}\n' % told)
        return True

    def reopen(self):
        """A modern server starts: it gets the client's own lines."""
        for key, stream in self._held.items():
            stream.ours = True
            self._relay.to_server(stream.line)
        self._opening = set(self._held)

    def lost(self):
        """The server is gone; the streams stay."""
        self._opening = set()

    def acknowledged(self, env, line):
        """The server acknowledges. True if the client is to hear it."""
        params = env.params(line)
        ident = member_of(member_of(params, "_meta"), SUBSCRIPTION_KEY)
        key = None if ident is None else id_key_of(ident, spell_id(ident))
        opening = key in self._opening
        self._opening.discard(key)
        stream = self._held.get(key)
        if stream is not None:
            self._relay.shelf.learn_listen(stream.entry, False)
            left = _resources(member_of(params, "notifications"))
            if stream.ours and any(uri not in left for uri in _resources(stream.granted)):
                self._relay.to_server(CANCELLED % stream.id_raw)
                self._opening.add(key)  # its answer to that is nobody's
                self._end(key)
            return not stream.ours
        if opening:  # cancelled meanwhile
            return False
        flight = self._relay.flights.first(key)
        if flight is None or flight.note != "subscriptions/listen":
            return True
        self._relay.flights.close(flight)
        granted = params.get("notifications")
        if len(self._held) < MAX_STREAMS and len(flight.before) <= MAX_STREAM_BYTES:
            granted = granted if isinstance(granted, dict) else {}
            self._held[key] = Stream(flight.id_raw, flight.before, flight.entry, granted, False)
            self._relay.shelf.learn_listen(flight.entry, False)
            self._relay.save()
        self._relay.life.settle_start()
        if key not in self._held:  # one that nobody could re-open for the client is none
            self._relay.to_server(CANCELLED % flight.id_raw)
            self._opening.add(key)
            self._over(flight.id_raw, "there are too many subscriptions, or it is too long")
        return key in self._held

    def ended(self, key, line):
        """An answer to a stream: its end. True if the client is to hear it; None if it is no stream's."""
        if key not in self._held:
            return False if key in self._opening else None  # cancelled meanwhile
        relay = self._relay
        if relay.life.stopping():  # it ends because we stop it; the stream stays with us (A17.8)
            return False
        if key in self._opening:  # the server does not take it; the client has it from us
            self._opening.discard(key)
            try:
                refused = error_code(members(line)) == METHOD_NOT_FOUND
            except ValueError:
                refused = False
            relay.log("the server refuses the subscription that the client has", 1)
            relay.shelf.learn_listen(self._held[key].entry, refused)
            relay.save()
            if _resources(self._held[key].granted):
                self._end(key)
            return False
        del self._held[key]
        return True

    def _end(self, key):
        """Tell the client that a stream is over: it waits for updates that nobody sends any more."""
        self._over(self._held.pop(key).id_raw, "single resources are not granted again")

    def _over(self, ident, why):
        self._relay.log("%s: the client is told that its subscription ended" % why, 1)
        self._relay.to_client(result_line(
            ident, b'{"resultType":"complete","_meta":{%s:%s}}' % (json_string(SUBSCRIPTION_KEY), ident)))

    def cancelled(self, key):
        """The client closes a stream. True if there was one."""
        return self._held.pop(key, None) is not None

    def of_resources(self):
        """True if one of them was granted single resources: the server must live to see them change."""
        return any(_resources(stream.granted) for stream in self._held.values())

    def announce(self, notification):
        """Tell of a changed list on every stream that was granted it."""
        for stream in self._held.values():
            for kind, capability in STREAM_KINDS.items():
                if stream.granted.get(kind) is True and notification == "notifications/%s/list_changed" % capability:
                    self._relay.to_client(b'{"jsonrpc":"2.0","method":%s,"params":{"_meta":{%s:%s}}}\n' % (
                        json_string(notification), json_string(SUBSCRIPTION_KEY), stream.id_raw))

# ============================================================================
# L7 RELAY - the engine: one client, one server                   [pure, hot]
# ----------------------------------------------------------------------------
# Uses:   L1 L2 L5 L6 L6b
# Used by: L8 L8b L13e
# Owns:   Settings, ClientLines, ClientTooLong, ClientGone, StopSignal, ServerLines, ServerBroke, Write,
#         Served, Noise, Release, Save, Exit, Told, StartRequests, Troubles, Rest, Life,
#         Books, ClientDesk, ServerDesk, Relay, RELAY_TABLE
# Never:  reads a clock, touches a descriptor, parses more of a line than it must
# Tests:  tests/test_l07_relay.py
# ----------------------------------------------------------------------------
# Theory: states of the server side, as the client's lines meet them.
#
#   ASLEEP    no process. Recorded answers go out; the first other request starts.
#   COLD      started by a line that passes straight on: a handshake that is not
#             recorded, a request before any handshake, or one of the modern era, which
#             has none. All lines pass, in order.
#   REPLAY    started behind the client's back: its own `initialize` goes first under
#             our id. Requests queue; recorded answers still go out; the client's
#             answers to the server bypass the queue (a server may wait for a ping).
#   SETTLE    handshake done, and the recording says that this server asks for
#             `roots/list` at its start: the queue waits until the client answered
#             that and the server had a moment for it, 2 s at most: a late start
#             looks like an early one.
#   LIVE      all lines pass.
#   STOPPING  the child is on its ladder. After an idle stop or a failure this looks
#             like ASLEEP, but a start waits until the process is reaped: never two
#             generations at once. When the client leaves, nothing starts any more.
#
# The order at a wake is fixed: initialize, its answer, initialized, log level, subscriptions,
# our listings, then the queue as it came; in the modern era the open streams, our listings,
# the queue. The listings are compared with the recording: a recording is a promise that each
# real start checks. What a server announces between its start and the end of that check is no
# change: it is folded into the comparison (server-everything sends `list_changed` four times).
#
# Every accepted request gets exactly one answer. `Flights` knows them by the JSON value of their ids,
# both ways, and is emptied whole at each failure. A call is never sent twice. A cancelled request gets no
# answer of ours; a late one of the server passes. In a batch each id is known, failures come as one array.
#
# A startup deadline is armed at the spawn, and at an `initialize` for a running server; it ends
# when replay, listings, probes and handshakes are answered (A10.1), and never limits a call: of
# the 2026-07-28 revision, which has no handshake, only discovery and listings hold it.
#
# The trigger chooses the era of a process: a modern request starts it without a replay, all else with
# one. Some servers fix their era with their first request and refuse `initialize` then (-32022): that
# one is started again, once, for the same line, and the client sees the second answer alone (A17.6).
#
# Two desks judge lines, one per direction; the relay itself owns the state, the
# timers and the ways in and out of a generation. A judge returns True for "pass it
# on as it is": neighbours that pass leave as one slice of the block they came in.
# What can still go wrong: a client that reuses an id of ours ("mcp-lazy-...").
# ----------------------------------------------------------------------------
ASLEEP, COLD, REPLAY, SETTLE, LIVE, STOPPING = "ASLEEP", "COLD", "REPLAY", "SETTLE", "LIVE", "STOPPING"
CLIENT, SERVER = "client", "server"
# How long a start may wait for the client's roots, and how long `list_changed` counts as part of it (design 4.3).
SETTLE_WAIT_S = 2.0
# The rest that a server gets to make use of the roots: the filesystem server looks each of them up before they count,
# while it already takes calls. Measured on it: after 20 ms 3 or 4 of 6 first calls saw them, after 50 ms all.
ROOTS_REST_S = 0.1
FILL_IDLE_S, FILL_BUSY_S = 0.1, 1.0
# The burst of a client's start-up is answered before an old recording is compared with the server.
AGE_REST_S = 0.2
# A server that closed its output mostly ends just then, and its exit tells more.
MUTE_WAIT_S = 0.25
# Requests that change nothing, whoever answers them.
HARMLESS = LISTS + ("initialize", "ping", "server/discover", "subscriptions/listen")
# What may be answered without the server; all else starts it.
ANSWERED = frozenset(HARMLESS + GONE_METHODS)
STATE_METHODS = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Settings(Record):
    """What the command line said, in seconds and plain values; see the option table of the CLI."""
    __slots__ = (
        "start_timeout_ns", "idle_stop_s", "stop_grace_s", "drain_s", "call_timeout_ns", "restart_backoff_s",
        "refresh_fatal", "fill", "server_name", "wake", "wake_interval_s", "wake_timeout_s", "log_calls", "secrets")


class ClientLines(Record):
    """event: a block of whole lines from the client"""
    __slots__ = ("raw",)

    def __init__(self, raw):  # said out, as in the next two, because it is made for every block: 1 us less
        self.raw = raw


class ServerLines(Record):
    """event: a block of whole lines from the server"""
    __slots__ = ("raw",)

    def __init__(self, raw):
        self.raw = raw


ClientTooLong = record("ClientTooLong", "", "event: a line of the client passed the limit and is skipped")
ClientGone = record("ClientGone", "cause", "event: end of the client's input, or its output is closed")
StopSignal = record("StopSignal", "name", "event: SIGTERM, SIGINT or SIGHUP came; the name")
ServerBroke = record("ServerBroke", "text tail", "event: the server's side cannot go on (it does not take input,"
                     " or a line passed the limit); tail as in Exited")


class Write(Record):
    """effect: bytes (whole lines) for CLIENT or SERVER"""
    __slots__ = ("side", "raw")

    def __init__(self, side, raw):
        self.side, self.raw = side, raw


Save = record("Save", "", "effect: the recording has something new (`Shelf.take_dirty`)")
Served = record("Served", "method", "effect, for the log alone: a request was answered from the recording")
Release = record("Release", "", "effect: the generation is over, close what is left of its descriptors")
Noise = record("Noise", "raw", "effect: the start of a line of the server's stdout that is no message")
Exit = record("Exit", "status", "effect: nothing is left to do; leave with this status once the client has its bytes")


class Told:
    """What the client has said that a late server must hear: handshake, log level, subscriptions.

    init_line: the whole line of the handshake; restarted: the server was already started once more for it (A17.6).
    """
    __slots__ = ("init_params", "init_line", "capabilities", "initialized", "level", "subscriptions", "restarted")

    def __init__(self):
        self.init_params, self.init_line, self.capabilities, self.initialized = None, None, {}, False
        self.level, self.subscriptions, self.restarted = None, {}, False

    def is_handshake(self, flight):
        """True if this is the open request of `init_line`."""
        return self.init_line is not None and read_envelope(self.init_line).id_key == flight.key


class Books:
    """Keeps account of what goes to the server: a flight for each request, and what its answer will teach."""
    __slots__ = ("_relay",)

    def __init__(self, relay):
        self._relay = relay

    def track(self, env, line, queued=False):
        """Open a flight for each request of a line that goes to the server."""
        relay = self._relay
        relay.life.for_refresh = False
        if env.kind == REQUEST:
            flight = Flight(env, relay.now_s, queued)
            flight.token = progress_token(env, line)
            relay.flights.add(flight)
            self._annotate(flight, env, line)
        elif env.kind == BATCH:
            relay.life.batches += 1
            for item, raw in envelopes_of(env, line):
                self._track_element(item, raw, queued)
        relay.troubles.watch_calls()

    def _track_element(self, env, raw, queued):
        """The same for one element of an array."""
        relay = self._relay
        if env.kind == RESPONSE:
            relay.flights.server.pop(env.id_key, None)
        elif env.kind == NOTIFICATION and env.method == "notifications/cancelled":
            relay.client_desk.cancel(env, raw)
        elif env.kind == REQUEST:
            flight = Flight(env, relay.now_s, queued, relay.life.batches)
            flight.token = progress_token(env, raw)
            relay.flights.add(flight)
            if env.method in STATE_METHODS:
                flight.note = self._state_note(env.method, env, raw)
            if relay.told.init_params is None:
                relay.flights.hold_start(flight)

    def _annotate(self, flight, env, line):
        """What the answer to this request will teach, and whether it belongs to the start (A10.1)."""
        relay, method = self._relay, env.method
        if method == "initialize":
            if relay.state in (COLD, LIVE):
                relay.log("handshake passed to the running server", 1)
                flight.before = (relay.told, relay.shelf.entry)
                relay.client_desk.remember(line)
                relay.life.new_handshake()
            flight.entry = relay.shelf.entry
            flight.note = "initialize" if flight.entry is not None else None
            relay.flights.hold_start(flight)
            return
        recordable = method in LIST_MEMBER or method == "server/discover"
        may_be = recordable or method == "subscriptions/listen" or relay.told.init_params is None
        modern = method == "server/discover" or may_be and is_modern(env.params(line))
        if modern:
            self._annotate_modern(flight, line)
        elif recordable and is_plain_listing(env.params(line)):
            flight.note, flight.entry = method, relay.shelf.entry
            relay.own.asked_again(flight.entry, method)
        elif method in STATE_METHODS:
            flight.note = self._state_note(method, env, line)
        elif method == "tasks/result":
            flight.before = member_of(env.params(line), "taskId")
        first = relay.told.init_params is None and (recordable or not modern)
        if first or modern and recordable and relay.state != LIVE:
            relay.flights.hold_start(flight)

    def _annotate_modern(self, flight, line):
        """The same for a request of the modern era."""
        relay, asked = self._relay, read_modern(line)
        relay.life.modern_spoken = relay.wake.modern = True
        if asked is None:
            return
        flight.entry, flight.before = relay.shelf.modern_entry(asked), asked
        if flight.method == "subscriptions/listen":
            flight.note, flight.before = flight.method, bytes(line)
        elif flight.method == "server/discover":
            flight.note = flight.method
        elif flight.method in LIST_MEMBER and is_plain_listing(asked.params) and flight.entry is not None:
            flight.note = flight.method
            relay.own.asked_again(flight.entry, flight.method)

    def _state_note(self, method, env, line):
        """(method, uri or None, params raw) of a request that a later start must repeat; None if it is malformed."""
        params = env.params(line)
        uri = params.get("uri") if isinstance(params, dict) else 5
        if not (params.get("level") in LOG_LEVELS if uri is None else isinstance(uri, str)):
            return None
        return method, uri, members(line)["params"]


class ClientDesk:
    """Judges the client's lines. A judge returns True if the line passes to the server as it is."""
    __slots__ = ("_relay",)
    JUDGES = {ASLEEP: "_asleep", COLD: "_passing", REPLAY: "_queueing", SETTLE: "_queueing", LIVE: "_passing",
              STOPPING: "_stopping"}

    def __init__(self, relay):
        self._relay = relay

    def judge(self, line):
        return getattr(self, self.JUDGES[self._relay.state])(read_envelope(line), line)

    def _asleep(self, env, line):
        relay = self._relay
        if relay.leaving:
            return False
        if env.kind == REQUEST:
            if not self._answer(env, line):
                relay.life.start(env, line)
        elif env.kind == NOTIFICATION:
            if env.method == "notifications/initialized":
                again, relay.told.initialized = relay.told.initialized, True
                relay.wake.greeted(again)
            elif env.method == "notifications/cancelled":
                self.cancel(env, line)
        elif env.kind != RESPONSE:
            relay.life.start(env, line)
        return False

    def _stopping(self, env, line):
        """As asleep, but what starts a server waits; behind the first such line all others keep their order."""
        relay = self._relay
        if env.kind == RESPONSE:
            return self._reply(env, line)
        return self._queueing(env, line) if relay.life.queue and not relay.leaving else self._asleep(env, line)

    def _queueing(self, env, line):
        relay = self._relay
        if env.kind == RESPONSE:
            if self._reply(env, line):
                relay.to_server(line)
                relay.start_requests.answered(env.id_key)
            return False
        if env.kind == NOTIFICATION and env.method == "notifications/initialized":
            relay.told.initialized = True
            if not relay.life.queue.has_handshake():  # the replay says so itself
                return False
        elif env.kind == NOTIFICATION and env.method == "notifications/cancelled":
            flight = self.cancel(env, line)
            if flight is not None and flight.queued and not flight.batch:
                relay.life.queue.remove(flight)
                return False
        elif env.kind == REQUEST and not (relay.life.sent_initialized and env.method == "logging/setLevel") and not (
                env.method == "initialize" and relay.life.queue.has_handshake()):
            if self._answer(env, line):
                return False
        relay.life.queue.add(env, line)
        return False

    def _passing(self, env, line):
        relay = self._relay
        if env.kind in (REQUEST, BATCH):
            if env.kind == REQUEST and self._seeks(env, line):
                return False
            relay.books.track(env, line)
        elif env.kind == RESPONSE:
            return self._reply(env, line)
        elif env.kind == NOTIFICATION:
            if env.method == "notifications/cancelled":
                self.cancel(env, line)
                relay.life.settle_start()
            elif env.method == "notifications/initialized":
                relay.told.initialized = True
                if relay.life.sent_initialized:  # the replay said so already (A8.6)
                    return False
                relay.life.sent_initialized = True
            elif env.method == "notifications/tasks/status":
                relay.errands.seen(env.params(line))
        return True

    def _reply(self, env, line):
        """An answer of the client's; False if it is for a server that is gone (A11.6): this one never asked."""
        relay = self._relay
        known = relay.flights.server.pop(env.id_key, None)
        if known is None and relay.life.generation > 1 and len(relay.flights.server) < MAX_OVERDUE:
            return False
        relay.errands.replied(env.id_key, line)
        return True

    def _answer(self, env, line):
        """True if the request is answered without the server (A7)."""
        relay, method, found = self._relay, env.method, None
        if method not in ANSWERED:
            return False
        params = env.params(line)
        if method == "server/discover" or is_modern(params):
            answered = self._answer_modern(env, line)
            relay.wake.modern_request()
            return answered
        if method == "initialize":
            self.remember(line)
            if relay.shelf.initialize() is not None:
                found = False, relay.shelf.initialize()
        elif method == "ping":
            found = False, b"{}"
        elif method == "logging/setLevel":
            found = self._set_level(params, line)
        elif method in LIST_MEMBER and is_list_request(params):
            found = relay.shelf.listing(relay.shelf.entry, method, params.get("cursor") if params else None)
        return found is not None and self._give(env, relay.shelf.entry, *found)

    def _answer_modern(self, env, line):
        """The same for a request that stands for itself (A17)."""
        relay, method, asked = self._relay, env.method, read_modern(line)
        if asked is None:
            return False
        shelf, entry, refusal = relay.shelf, relay.shelf.modern_entry(asked), relay.shelf.refusal(asked)
        if method in GONE_METHODS:
            found = True, NOT_FOUND
        elif refusal is not None:
            found = True, refusal
        elif method == "subscriptions/listen":
            return relay.streams.answer(env, line, asked)
        elif method == "server/discover":
            found = shelf.discovery(asked)
        else:
            found = is_list_request(asked.params) and method in LIST_MEMBER and shelf.listing(
                entry, method, asked.params.get("cursor"), asked.meta_raw) or None
        return found is not None and self._give(env, entry, *found)

    def _give(self, env, entry, is_error, raw):
        """Answer from the recording; True."""
        relay = self._relay
        relay.to_client((error_line if is_error else result_line)(env.id_raw, raw))
        if env.method == "initialize":
            relay.log("handshake from cache (%s)" % entry.version, 1)
        relay.out.append(Served(env.method))
        if entry is not None and relay.shelf.is_old(entry):
            relay.rest.refresh_soon()
        return True

    def _set_level(self, params, line):
        """Answered here if the level is one and the server is known to log (A7.4b)."""
        shelf = self._relay.shelf
        if (not isinstance(params, dict) or params.get("level") not in LOG_LEVELS
                or shelf.initialize() is None or "logging" not in shelf.capabilities(shelf.entry)):
            return None
        self._relay.told.level = members(line)["params"]
        return False, b"{}"

    def remember(self, line):
        """Keep a client's `initialize` for later starts, and look up its entry."""
        relay = self._relay
        relay.told, relay.shelf.entry = Told(), None
        try:
            raw = members(line).get("params", b"null")
            params = parse_json(raw, exact=True)
            if not isinstance(params, dict) or not relay.shelf.select(params):
                return
        except (ValueError, RecursionError):  # nothing that could be a key
            relay.shelf.entry = None
            return
        relay.told.init_params, relay.told.capabilities = raw, params.get("capabilities")
        relay.told.init_line = bytes(line)

    def _seeks(self, env, line):
        """True if a list request carries a cursor of ours: it is answered by reading up to there (A6.9)."""
        if env.method not in LIST_MEMBER or OWN_CURSOR.encode() not in line:
            return False
        relay, asked = self._relay, read_modern(line)
        if asked is None or not is_list_request(asked.params) or own_cursor(asked.params.get("cursor")) is None:
            return False
        entry = relay.shelf.modern_entry(asked) if is_modern(asked.params) else relay.shelf.entry
        if entry is None or not relay.shelf.gave_out(entry, env.method, asked.params["cursor"]):
            return False  # of another relay, behind this one
        flight, relay.life.for_refresh = Flight(env, relay.now_s, False), False
        relay.flights.add(flight)
        meta_raw = asked.meta_raw if entry.era == "modern" else b""
        relay.listings.seek(flight, entry, env.method, asked.params["cursor"], meta_raw)
        relay.troubles.watch_calls()
        return True

    def cancel(self, env, line):
        """The flight that `notifications/cancelled` names, closed without an answer; None if there is none (A11.3)."""
        flights, key = self._relay.flights, cancelled_key(env, line)
        flight = flights.take(key) if key is not None else None
        if flight is not None and flight.method == "initialize":  # cannot be cancelled
            flights.put_back(flight)
            return None
        if flight is None:
            self._relay.streams.cancelled(key)
        return flight


class ServerDesk:
    """Judges the server's lines. A judge returns True if the line passes to the client as it is."""
    __slots__ = ("_relay",)

    def __init__(self, relay):
        self._relay = relay

    def judge(self, line, env=None):
        relay = self._relay
        if relay.life.discarding:
            return False
        env = env or read_envelope(line)
        kind = env.kind
        if kind == RESPONSE and env.version2:
            return self._response(env, line)
        if kind == REQUEST and env.version2:
            if len(relay.flights.server) < MAX_OVERDUE:
                relay.flights.server[env.id_key] = env.id_raw
            relay.start_requests.seen(env.method, env.id_key)
            if env.method == "elicitation/create":
                relay.errands.visit(member_of(env.params(line), "elicitationId"), env.id_key)
            elif env.method == "tasks/result":
                relay.errands.wanted(member_of(env.params(line), "taskId"), env.id_key)
            return True
        if kind == NOTIFICATION and env.version2:
            return self._notification(env, line)
        if kind == BATCH:
            return self._batch(env, line)
        relay.noise(line)
        return False

    def _notification(self, env, line):
        relay, method = self._relay, env.method
        if method == "notifications/cancelled":
            key = cancelled_key(env, line)
            relay.flights.server.pop(key, None)
            return relay.streams.ended(key, b"{}") is not False
        if method == "notifications/progress":
            return token_key(member_of(env.params(line), "progressToken")) not in relay.flights.late
        if method == "notifications/subscriptions/acknowledged":
            return relay.streams.acknowledged(env, line)
        if method in ("notifications/tasks/status", "notifications/tasks"):
            relay.errands.seen(env.params(line))
        elif method == "notifications/elicitation/complete":
            relay.errands.visited(member_of(env.params(line), "elicitationId"))
        return not method.endswith("list_changed") or relay.own.list_changed(method)

    def _response(self, env, line):
        relay, key = self._relay, env.id_key
        own = relay.own.take(key)
        if own is not None:
            if relay.state != STOPPING and not self._own_answer(own, line):
                relay.own.put_back(key, own)
                relay.noise(line)
            return False
        if relay.flights.was_overdue(key):
            return False
        flight = relay.flights.take(key)
        if flight is None:  # a second or late answer: ours is nobody's business (A8.2), theirs may be of use to them
            return relay.streams.ended(key, line) is not False and not is_own_id(key)
        if flight.note is not None or flight.startup:
            try:
                if self._learn(flight, members(line)):
                    return False
            except Unreadable:  # an answer for the client, if not for us
                relay.log("the answer to %s cannot be read here: not recorded" % flight.method, 1)
            except ValueError:  # no JSON after all, so it was no answer
                relay.flights.put_back(flight)
                relay.noise(line)
                return False
        elif not flight.queued:
            relay.life.answered()
        if len(line) < SEARCHED_BYTES and (b'"taskId"' in line or b"-32042" in line):
            self._errand(flight, line)
        if flight.method == "tasks/result" and (env.body is None or "result" in env.body):
            relay.errands.given(flight.before)
        if relay.settings.log_calls:
            relay.log("%s server %.1f" % (flight.method, (relay.now_s - flight.since_s) * 1000), 2)
        relay.life.settle_start()
        return True

    def _errand(self, flight, line):
        """An answer that may leave something under way: a task, or a URL for the user."""
        relay = self._relay
        try:
            body = parse_json(line)
        except ValueError:
            return
        relay.errands.seen(body.get("result"), None if flight.method.startswith("tasks/") else flight.token)
        visits = member_of(member_of(body.get("error"), "data"), "elicitations")
        for one in visits if isinstance(visits, list) else ():
            relay.errands.visit(member_of(one, "elicitationId"))

    def _own_answer(self, own, line):
        """Take an answer to a request of ours; False if it is no JSON."""
        try:
            parts = members(line)
        except ValueError:
            return False
        self._relay.own.answered(own, parts)
        return True

    def _learn(self, flight, parts):
        """Take what an answer teaches. True if the client is not to see it."""
        relay, note, good = self._relay, flight.note, parts.get("result", b"")[:1] == b"{"
        if flight.method == "initialize":
            return self._learn_handshake(flight, parts, good)
        if good:
            relay.life.answered()
        if note in LIST_MEMBER:
            served = (flight.entry, note) in relay.shelf.served
            if relay.listings.first_page(flight, parts) == "changed" and served:
                relay.shelf.served.discard((flight.entry, note))
                if flight.entry.era == "modern":
                    relay.streams.announce(CHANGED[note])
                else:
                    relay.to_client(b'{"jsonrpc":"2.0","method":%s}\n' % json_string(CHANGED[note]))
        elif note == "server/discover":
            relay.listings.probe_answered(flight, parts)
        elif note == "subscriptions/listen":
            if error_code(parts) == METHOD_NOT_FOUND:
                relay.shelf.learn_listen(flight.entry, True)
                relay.save()
        elif note is not None and good:
            self._keep_state(*note)
        return False

    def _learn_handshake(self, flight, parts, good):
        relay, entry = self._relay, flight.entry
        if good and entry is not None and is_handshake(parts["result"]):
            outcome = relay.shelf.learn_initialize(entry, parts["result"], replayed=False)
            relay.log("handshake recorded (%s, %s)" % (entry.version, outcome), 2)
            if relay.life.refused_probe is not None:  # so it is legacy, whatever it called the probe
                relay.shelf.learn_probe(relay.life.refused_probe, True, NOT_FOUND)
                relay.life.refused_probe = None
            relay.save()
        elif (error_code(parts) == UNSUPPORTED_VERSION and relay.life.modern_spoken and not relay.leaving
                and not relay.told.restarted and relay.told.is_handshake(flight)):
            relay.life.start_again(flight)
            return True
        elif entry is relay.shelf.entry:  # refused: a later start replays the handshake that was good, if there was one
            relay.told, relay.shelf.entry = flight.before or (Told(), None)
            relay.life.sent_initialized = relay.told.initialized
        if good:
            relay.life.cold_handshake_done()
        return False

    def _keep_state(self, method, uri, params):
        """A log level or subscription that a later generation must hear (A12.7)."""
        told = self._relay.told
        if method == "logging/setLevel":
            told.level = params
        elif method == "resources/subscribe":
            told.subscriptions[uri] = params
        else:
            told.subscriptions.pop(uri, None)

    def _batch(self, env, line):
        """An array (2025-03-26): each element is judged as a line would be, what passes stays verbatim."""
        pairs, passing = envelopes_of(env, line), []
        if not pairs and env.body != []:  # too long to look into
            return True
        if not any(item.version2 for item, _ in pairs):
            self._relay.noise(line)
            return False
        for item, raw in pairs:
            item.version2 = True  # one that says so speaks for all
            if item.kind == ODD or self.judge(raw, item):
                passing.append(raw)
        if passing and len(passing) < len(pairs):
            self._relay.to_client(b"[" + b",".join(passing) + b"]\n")
        return len(passing) == len(pairs)


TIMERS = {"startup": ("life", "startup_expired"), "window": ("start_requests", "window_closed"),
          "settle": ("life", "release_queue"), "call": ("troubles", "calls_overdue"), "own-limit": ("own", "give_up"),
          "ladder": ("life", "child_event"), "mute": ("rest", "output_closed"), "age": ("rest", "refresh_behind"),
          "idle": ("rest", "idle"), "fill": ("rest", "fill"), "relist": ("own", "relist"), "last": ("life", "stop"),
          "wake-tick": ("wake", "tick"), "wake-limit": ("wake", "overran"), "drain": ("rest", "drain_over")}
GENERATION_TIMERS = ("startup", "idle", "settle", "window", "relist", "fill", "own-limit", "call", "mute", "last")
# Of a line that is no message, what a person may see.
NOISE_BYTES = 200


class Troubles:
    """The answers that the relay makes when the server gives none (A10.5)."""
    __slots__ = ("_relay", "noise_seen", "_call_timer")

    def __init__(self, relay):
        self._relay, self.noise_seen, self._call_timer = relay, "", False

    def text(self, what, tail, advice):
        """What failed, whose fault it looks like, what to do next."""
        parts = ["mcp-lazy: %s: %s" % (self._relay.settings.server_name, what)]
        if self.noise_seen:
            parts.append("its stdout is not MCP: %s" % self.noise_seen)
        words = printable(bytes(tail).decode("utf-8", "replace")).strip()
        if words:
            parts.append("its stderr ends: %s" % words)
        return printable("; ".join(parts + [advice]))

    def answer_all(self, what, tail, advice="the next request starts the server again"):
        """An error for every open request; the server's own are called off."""
        taken = self._relay.flights.take_all()
        sent = [flight for flight in taken if not flight.queued]
        unclear = any(flight.method not in HARMLESS for flight in sent)
        done = "a call that was sent may have been carried out; " if unclear else "nothing was carried out; "
        self._answer(sent, self.text(what, tail, done + advice))
        self._answer([flight for flight in taken if flight.queued], self.text(
            what, tail, "the request was not sent; " + advice))
        self.call_off()

    def _answer(self, flights, text):
        """The same error for all of `flights`; those of one batch as one array (A7.15)."""
        error, batches = error_object(-32000, text), {}
        for flight in flights:
            self._relay.log("%s answered with an error" % flight.method, 2)
            if flight.batch:
                batches.setdefault(flight.batch, []).append(flight.id_raw)
            else:
                self._relay.to_client(error_line(flight.id_raw, error))
        for id_raws in batches.values():
            self._relay.to_client(errors_array(id_raws, error))

    def call_off(self):
        """The server's open requests end with it (A11.6)."""
        for id_raw in self._relay.flights.server.values():
            self._relay.to_client(CANCELLED % id_raw)
        self._relay.flights.server.clear()

    def refuse(self, env, line, what, advice):
        """An error for the requests of one line that goes nowhere (A10.13)."""
        items = [item for item, _ in envelopes_of(env, line)] if env.kind == BATCH else [env]
        self._answer([Flight(item, 0.0, True, env.kind == BATCH) for item in items if item.kind == REQUEST],
                     self.text(what, b"", advice))

    def watch_calls(self):
        """Arm the timer of --call-timeout for the oldest open call; a handshake has the startup deadline."""
        limit_ns = self._relay.settings.call_timeout_ns
        since = [flight.since_s for flight in self._relay.flights if not flight.startup] if (
            limit_ns and not self._call_timer) else None
        if since:
            self._call_timer = True
            self._relay.out.append(SetTimer("call", min(since) + seconds(limit_ns)))

    def calls_overdue(self, event):
        """Answer calls that are open too long; the server is told and stays."""
        relay, limit_ns = self._relay, self._relay.settings.call_timeout_ns
        self._call_timer = False
        late = [flight for flight in relay.flights
                if not flight.startup and flight.since_s + seconds(limit_ns) <= relay.now_s]
        for flight in late:
            if flight.queued:
                relay.life.queue.remove(flight)
            else:
                relay.to_server(CANCELLED % flight.id_raw)
            relay.flights.overdue(flight)
        methods = ", ".join(sorted({flight.method for flight in late}))
        what = "%s timed out after %s (--call-timeout)" % (methods, format_duration(limit_ns))
        self._answer(late, self.text(what, event.tail, "the server goes on and was told to cancel"))
        self.watch_calls()


class StartRequests:
    """What the server asks right after its start: part of the recording, and answered before the queue (design 4.3)."""
    __slots__ = ("_relay", "_asked", "_roots_key", "_started_s")

    def __init__(self, relay):
        self._relay, self._asked, self._roots_key, self._started_s = relay, [], None, relay.now_s

    def expects_roots(self):
        relay, capabilities = self._relay, self._relay.told.capabilities
        return (relay.shelf.entry is not None and "roots/list" in relay.shelf.entry.start_requests
                and isinstance(capabilities, dict) and "roots" in capabilities)

    def seen(self, method, key):
        """A request of the server."""
        if method == "roots/list":
            self._roots_key = key
        relay = self._relay
        early = relay.now_s - self._started_s < SETTLE_WAIT_S or relay.state in (COLD, REPLAY, SETTLE)
        if early and method not in self._asked and method != "ping":
            self._asked.append(method)
            known = relay.shelf.entry.start_requests if relay.shelf.entry else ()
            if method not in known:
                relay.shelf.learn_start_requests(sorted(set(known) | {method}))
                relay.save()

    def window_closed(self, event):
        self._relay.shelf.learn_start_requests(sorted(self._asked))
        self._relay.save()

    def answered(self, key):
        """The client answered a request of the server; if it was the one for its roots, the queue may go soon."""
        if self._relay.state == SETTLE and key is not None and key == self._roots_key:
            self._relay.out.append(SetTimer("settle", self._relay.now_s + ROOTS_REST_S))


class Rest:
    """What happens when nobody asks: idle stop, filling the recording, comparing one that is old, and late ends."""
    __slots__ = ("_relay", "_aged")

    def __init__(self, relay):
        self._relay, self._aged = relay, False

    def idle(self, event):
        """Stop a server that nobody needs (A12.2); ask again later while something is open."""
        relay, idle_s = self._relay, self._relay.settings.idle_stop_s
        due_s = relay.active_s + idle_s
        if relay.now_s < due_s:
            relay.out.append(SetTimer("idle", due_s))
        elif (relay.state == LIVE and not relay.flights and not relay.flights.server and not relay.life.startup_armed
                and (relay.shelf.initialize() is not None or relay.life.modern_spoken and not relay.told.initialized)
                and not relay.errands and not relay.own.stale):
            relay.log("idle for %s: stopping the server" % format_duration(int(idle_s * 1e9)), 1)
            relay.life.stop()
        else:
            relay.out.append(SetTimer("idle", relay.now_s + max(idle_s, SHORTEST_BEAT_S)))

    def fill(self, event):
        relay = self._relay
        due_s = relay.now_s + FILL_BUSY_S if relay.flights else relay.active_s + FILL_IDLE_S
        if relay.now_s < due_s or relay.state not in (COLD, LIVE):
            relay.out.append(SetTimer("fill", max(due_s, relay.now_s + FILL_IDLE_S)))
        else:
            relay.own.fill()

    def want_fill(self):
        if self._relay.settings.fill:
            self._relay.out.append(SetTimer("fill", self._relay.now_s + FILL_IDLE_S))

    def refresh_soon(self):
        """What was served is old: compare it with the server, behind the answers; once in a session (A5.10)."""
        if not self._aged:
            self._aged = True
            self._relay.out.append(SetTimer("age", self._relay.now_s + AGE_REST_S))

    def refresh_behind(self, event):
        relay = self._relay
        if relay.state == ASLEEP and not relay.leaving:
            relay.log("the recording is older than --cache-max-age: comparing it", 1)
            relay.life.start(None, None)
            relay.life.for_refresh = relay.state != ASLEEP

    def drain_over(self, event):
        self._relay.leave(ClientGone("end of input, and --drain is over"))

    def output_closed(self, event):
        """It still runs, but no answer can come any more."""
        self._relay.life.fail("server closed its output", event.tail)


class Life:
    """The generations of the server: start, queue, deadline, stop, and what is said when one ends badly.

    Fields up to `_started_s` belong to one generation and are set anew at its start. modern: it was started for a
    modern request; modern_spoken: it has got one; refused_probe: the ModernRequest that it called invalid; for_refresh:
    nobody needs it, its answers are only compared (A5.10).
    """
    __slots__ = (
        "startup_armed", "sent_initialized", "discarding", "heard", "modern", "modern_spoken", "refused_probe",
        "for_refresh", "last_wish", "_started_s", "generation", "batches", "queue", "_relay", "_child", "_backoff")

    def __init__(self, relay):
        self._relay, self._child = relay, Child(relay.settings.stop_grace_s)
        self.generation, self.batches, self.queue, self.last_wish = 0, 0, Queue(relay), False
        self._backoff = Backoff(relay.settings.restart_backoff_s, relay.log)
        self._new_generation()

    def _new_generation(self):
        self.startup_armed = self.sent_initialized = self.discarding = self.heard = False
        self.modern = self.modern_spoken = self.for_refresh = False
        self.refused_probe = None
        self._started_s, self._relay.start_requests = self._relay.now_s, StartRequests(self._relay)
        self._relay.troubles = Troubles(self._relay)
        self._relay.shelf.new_start()

    def start(self, env, line):
        """Start the server for a line (None: for nobody). While one stops, the line waits. False if it is too early."""
        relay = self._relay
        wait_s = self._backoff.wait_s(relay.now_s)
        if wait_s > 0:
            if env is not None:
                relay.troubles.refuse(env, line, "%s, the last of %d starts that failed" % (
                    self._backoff.trouble, self._backoff.failures),
                    "the request was not sent; the next start is due in %.1f s" % wait_s)
            return False
        if env is not None:
            self.queue.add(env, line)
        if relay.state == ASLEEP:
            self._launch()
        return True

    def _launch(self):
        """Spawn it, and begin as what waits for it wants: its own handshake, a replay, or none in the modern era."""
        relay = self._relay
        self.generation += 1
        self._new_generation()
        self.modern = self.queue.is_modern() or not self.queue and relay.told.init_params is None
        replay = relay.told.init_params is not None and not self.queue.has_handshake() and not self.modern
        relay.log("starting the server, generation %d: %s" % (self.generation, (
            "replay" if replay else "no handshake in this era" if self.modern else "no recorded handshake")), 1)
        relay.out.append(Spawn())
        self._arm_startup()
        relay.troubles.watch_calls()
        if relay.settings.idle_stop_s:
            relay.out.append(SetTimer("idle", relay.now_s + relay.settings.idle_stop_s))
        relay.become(REPLAY if replay else COLD)
        if replay:
            relay.own.replay_handshake()
            return
        if self.modern:
            self.modern_spoken = True
            relay.own.modern_start()
        self.queue.send()
        self.settle_start()

    def in_replay(self):
        return self._relay.state in (REPLAY, SETTLE)

    def stopping(self):
        return self._relay.state == STOPPING

    def answered(self):
        """It answered something: it is up."""
        if not self.heard:
            self.heard = True
            self._backoff.succeeded()

    def start_again(self, flight):
        """The process fixed its era and takes no handshake: one more in the legacy era, for the same line (A17.6)."""
        relay, line = self._relay, self._relay.told.init_line
        relay.log("the server serves the other era: starting it again for initialize", 1)
        relay.told.restarted = True
        relay.troubles.answer_all("it was started again for initialize", b"", "send the request once more")
        self.discarding = True
        self.stop()
        self.queue.add(read_envelope(line), line)
        if relay.told.initialized:
            self.queue.add(read_envelope(INITIALIZED), INITIALIZED)

    def new_handshake(self):
        """The client sends an `initialize` to a running server."""
        self.sent_initialized = False
        self._arm_startup()

    def _arm_startup(self):
        if not self.startup_armed:
            self.startup_armed = True
            self._relay.out.append(SetTimer(
                "startup", self._relay.now_s + seconds(self._relay.settings.start_timeout_ns)))

    def handshake_done(self):
        """A replay was answered: let the server ask what it asks at its start, then let the queue go."""
        relay = self._relay
        self.answered()
        relay.out.append(SetTimer("window", relay.now_s + SETTLE_WAIT_S))
        if relay.start_requests.expects_roots() and not relay.leaving:
            relay.become(SETTLE)
            relay.out.append(SetTimer("settle", relay.now_s + SETTLE_WAIT_S))
        else:
            self.release_queue()

    def cold_handshake_done(self):
        """The client's own handshake was answered."""
        relay = self._relay
        self.answered()
        if relay.shelf.entry is not None:
            relay.out.append(SetTimer("window", relay.now_s + SETTLE_WAIT_S))
            self._relay.rest.want_fill()

    def release_queue(self, event=None):
        relay = self._relay
        if relay.state not in (REPLAY, SETTLE):
            return
        relay.out.append(ClearTimer("settle"))
        self.queue.send()
        relay.become(LIVE)
        relay.log("server ready after %.0f ms" % ((relay.now_s - self._started_s) * 1000), 2)
        self._relay.rest.want_fill()
        self.settle_start()
        if relay.leaving:
            self.stop()

    def has_waiting(self):  # for a server that starts, or that starts when the last one is gone
        return self.in_replay() or self.stopping() and bool(self.queue)

    def hurry_replay(self):
        """The client's input ended while requests wait: they go out as soon as the handshake allows, or not at all."""
        self.last_wish = self._relay.state == STOPPING
        if self._relay.state == SETTLE:
            self.release_queue()
        elif not self.last_wish:
            self._relay.out.append(SetTimer("last", self._relay.now_s + CLOSE_WAIT_S))

    def settle_start(self):
        """End the startup deadline once nothing of the start is open (A10.1)."""
        relay = self._relay
        refreshing = relay.own.refreshing()
        if (self.startup_armed and relay.state in (COLD, LIVE) and not relay.flights.startup
                and not (refreshing and relay.settings.refresh_fatal)):
            self.startup_armed = False
            relay.out.append(ClearTimer("startup"))
            relay.become(LIVE)
        if self.for_refresh and relay.state == LIVE and not relay.flights and not refreshing:
            relay.log("the recording was compared: stopping the server", 1)
            self.stop()

    def startup_expired(self, event):
        text = "timed out after %s (--start-timeout; --check warms it without a client that waits)"
        self.fail(text % format_duration(self._relay.settings.start_timeout_ns), event.tail)

    def fail(self, text, tail):
        """The generation is no good: error to all, nothing more is taken from it, ladder (A10.3)."""
        relay = self._relay
        phase = self._phase()
        relay.log("%s (%s)" % (text, phase), 1)
        if not self.heard:
            self._backoff.failed(text, relay.now_s)
        relay.troubles.answer_all("%s during the %s" % (text, phase), tail)
        self.queue.drop()
        self.discarding = True
        self.stop()

    def _phase(self):
        relay = self._relay
        if any(flight.method == "initialize" and not flight.queued for flight in relay.flights):
            return "handshake"
        if not self.heard:
            return "handshake" if relay.told.init_params is not None else "start"
        return "listing" if self.startup_armed and relay.own.refreshing() else "call"

    def stop(self, event=None):
        """Put the child on its ladder, once."""
        relay = self._relay
        relay.out += [ClearTimer(name) for name in GENERATION_TIMERS]
        relay.troubles = Troubles(relay)
        self.startup_armed = False
        if relay.state == STOPPING:
            return
        relay.become(STOPPING)
        self.child_event(StopWanted(False))

    def child_event(self, event):
        """Hand an event to the child's table, and take what it says about itself."""
        relay = self._relay
        for effect in self._child.handle(event, relay.now_s):
            if type(effect) is Ended:
                self._ended(effect)
            elif type(effect) is Unreapable:
                self.queue.drop()
                relay.troubles.answer_all("the server does not die, even by SIGKILL", b"", "mcp-lazy ends")
                relay.leaving = True
                relay.exit(EXIT_FAILED)
            else:
                relay.out.append(effect)
        if type(event) is OutputClosed and self._child.state == UP and relay.state != STOPPING:
            relay.out.append(SetTimer("mute", relay.now_s + MUTE_WAIT_S))

    def spawn_failed(self, event):
        self.child_event(event)
        relay, text = self._relay, "cannot start the server: %s" % event.text
        relay.log(text, 1)
        for flight in relay.flights:
            flight.queued = True  # there was nobody to send it to
        relay.troubles.answer_all(text, b"", "correct the command of the registration; the next request tries again")
        self.queue.drop()
        self._end_generation()

    def _ended(self, ended):
        relay, planned = self._relay, self._relay.state == STOPPING
        text = "server exited (%s)" % ended.text
        relay.log(text, 1)
        if not planned:
            if not self.heard:
                self._backoff.failed(text, relay.now_s)
            relay.troubles.answer_all("%s during the %s" % (text, self._phase()), ended.tail)
            self.queue.drop()
        elif relay.leaving and not self.last_wish:
            relay.troubles.answer_all(text + ", because the client is leaving", ended.tail, "--drain waits for answers")
            self.queue.drop()
        else:
            relay.troubles.call_off()
        self._end_generation()

    def _end_generation(self):
        """The process is reaped: sleep, leave, or serve what came meanwhile."""
        relay = self._relay
        relay.out += [Release()] + [ClearTimer(name) for name in GENERATION_TIMERS]
        relay.own.reset()
        relay.streams.lost()
        relay.errands.reset()
        relay.flights.new_server()
        self.startup_armed = False
        relay.become(ASLEEP)
        wish, self.last_wish = self.last_wish, False
        if self.queue and (wish or not relay.leaving):
            self._launch()
            if relay.leaving:
                self.hurry_replay()
        elif relay.leaving:
            relay.exit(EXIT_OK)


STATES = (ASLEEP, COLD, REPLAY, SETTLE, LIVE, STOPPING)
# One row per event, one column per state, in the order of STATES; IGNORE is a decision too.
_ROWS = {
    ClientLines: ("_client_lines",) * 6,
    ClientTooLong: ("_client_too_long",) * 6,
    ClientGone: ("leave",) + ("_client_gone",) * 5,
    StopSignal: ("_stop_signal",) * 6,
    ServerLines: (IGNORE,) + ("_server_lines",) * 5,
    ServerBroke: (IGNORE,) + ("_server_broke",) * 4 + (IGNORE,),
    Spawned: ("_child_event",) * 6,
    SpawnFailed: (IGNORE,) + ("_spawn_failed",) * 5,
    Exited: ("_child_event",) * 6,
    OutputClosed: ("_child_event",) * 6,
    TimerFired: ("_timer",) * 6,
    WakeEnded: ("_wake_ended",) * 6,
}
RELAY_TABLE = {(state, event): name for event, row in _ROWS.items() for state, name in zip(STATES, row)}


class Relay:
    """The engine. handle(event, now_s) -> [effects]; see the theory for the states."""
    __slots__ = ("settings", "shelf", "state", "now_s", "out", "told", "flights", "own", "listings", "streams",
                 "errands", "wake", "rest", "books", "troubles", "life", "start_requests", "leaving", "active_s",
                 "client_desk", "_server_desk", "_draining", "_exited")

    def __init__(self, settings, shelf):
        self.settings, self.shelf, self.state, self.now_s, self.out = settings, shelf, ASLEEP, 0.0, []
        self.told, self.flights, self.own, self.listings, self.streams = (
            Told(), Flights(), OwnRequests(self), Listings(self), Streams(self))
        self.errands, self.wake, self.rest, self.books = Errands(self), Wake(self), Rest(self), Books(self)
        self.life, self.client_desk, self._server_desk = Life(self), ClientDesk(self), ServerDesk(self)
        self.leaving, self.active_s, self._draining, self._exited = False, 0.0, False, False

    def begin(self, now_s):
        """The effects of the relay's own start."""
        self.now_s = now_s
        if self.settings.wake:
            self.wake.begin()
        return self._taken()

    def handle(self, event, now_s):
        """The effects of one event."""
        self.now_s = now_s
        name = RELAY_TABLE[self.state, type(event)]
        if name is not IGNORE:
            getattr(self, name)(event)
        if self._draining and not self.flights and not self.leaving:
            self.leave(event)
        return self._taken()

    def _taken(self):
        out, self.out = self.out, []
        return out

    def may_wake(self):
        """True if a wake command may start the server: the client is there, the server is not (C1)."""
        told = self.told
        return self.state == ASLEEP and not self.leaving and (
            self.wake.modern if told.init_params is None else told.initialized)

    def become(self, state):
        """The only writer of `state`."""
        if state != self.state:
            self.log("%s -> %s" % (self.state, state), 2)
            self.state = state

    def log(self, text, level):
        self.out.append(Log(text, level))

    def save(self):
        if self.shelf.has_news():
            self.out.append(Save())

    def to_client(self, raw):
        self.out.append(Write(CLIENT, raw))

    def to_server(self, line):
        self.out.append(Write(SERVER, clean_line(line)))

    def noise(self, line):
        """A line of the server that is no message: told, never passed on (A10.14)."""
        self.troubles.noise_seen = self.troubles.noise_seen or kind_of_noise(bytes(line[:200]).strip())
        self.log("non-JSON stdout line (%d bytes) of %s" % (len(line.strip()), self.settings.server_name), 1)
        self.out.append(Noise(bytes(line[:NOISE_BYTES])))

    def _client_lines(self, event):
        self.active_s = self.now_s
        self._walk(event.raw, self.client_desk.judge, SERVER)

    def _server_lines(self, event):
        self.active_s = self.now_s
        if (self.state in (LIVE, COLD) and not self.own.refreshing() and all_notifications(event.raw)
                and not (self.flights.late and b"progress" in event.raw)):
            self.out.append(Write(CLIENT, event.raw))
            return
        self._walk(event.raw, self._server_desk.judge, CLIENT)

    def _walk(self, block, judge, side):
        """Give each line of a block to `judge`; neighbours that pass leave as one slice."""
        size, at, start = len(block), 0, None
        while at < size:
            end = block.find(b"\n", at) + 1 or size
            line = block if end - at == size else block[at:end]
            before = len(self.out)
            blank = line[0] in WHITESPACE and not line.strip()
            passes = not blank and judge(line)
            clean = passes and line[0] in b"{[" and line[-2] in b"}]"
            if not clean:
                if start is not None:
                    self.out.insert(before, Write(side, block[start:at]))
                    start = None
                if passes:
                    self.out.append(Write(side, clean_line(line)))
            elif start is None:
                start = at
            at = end
        if start is not None:
            self.out.append(Write(side, block if start == 0 else block[start:]))

    def _client_too_long(self, event):
        text = "mcp-lazy: the client's line is longer than --max-line and was not read"
        self.to_client(error_line(b"null", error_object(-32700, text)))

    def _client_gone(self, event):
        if self.leaving:
            return
        if self.settings.drain_s and self.flights and event.cause == "end of input":
            self._draining = True
            self.log("%s: waiting for open requests" % event.cause, 1)
            self.out.append(SetTimer("drain", self.now_s + self.settings.drain_s))
            return
        self.leave(event)

    def _stop_signal(self, event):
        if self.leaving:
            if event.name != "SIGHUP":  # the second one of a closing terminal is nobody's wish for hurry
                self.life.child_event(StopWanted(True))
            return
        self.log("%s: stopping" % event.name, 1)
        self.leave(event)

    def leave(self, event):
        """The client is gone or we are told to go: nothing starts any more."""
        if self.leaving:
            return
        if type(event) is ClientGone:
            self.log("%s: stopping" % event.cause, 1)
        self.leaving, self._draining = True, False
        self.wake.stop()
        if self.state == ASLEEP:
            self.exit(EXIT_OK)
        elif type(event) is ClientGone and event.cause == "end of input" and self.life.has_waiting():
            self.life.hurry_replay()  # what was read still gets its chance (A13.7)
        else:
            self.life.stop()

    def exit(self, status):
        """The last effect, said once."""
        if not self._exited:
            self._exited = True
            self.out.append(Exit(status))

    def _server_broke(self, event):
        self.life.fail(event.text, event.tail)

    def _child_event(self, event):
        self.life.child_event(event)

    def _spawn_failed(self, event):
        self.life.spawn_failed(event)

    def _timer(self, event):
        owner, method = TIMERS[event.name]
        getattr(getattr(self, owner), method)(event)

    def _wake_ended(self, event):
        self.wake.ended(event.text)

# ============================================================================
# L8 RUN - binds the engine to loop, processes and files           [I/O, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L5 L6 L6b L7
# Used by: L8b L9 L13e
# Owns:   RunOptions, ClientLink, ServerLink, Driver, run_relay
# Never:  decides what the protocol wants; that is the engine's
# Tests:  tests/test_l08_run.py, and every real-process test
# ----------------------------------------------------------------------------
# Theory: one table, effect -> function of a few lines. An event is handed to the
# engine, its effects are carried out in order; what they cause at once (a spawn
# that fails, a pipe that breaks) is the next event, never a nested one. Output is
# written once per turn, as one writev per side.
#
# Pressure: too much waiting for the server stops the reading of the client, too
# much waiting for the client stops the reading of the server, nothing else stops.
# Deadlines and signals work all the time, because nothing here waits.
#
# The end, in this order: the engine says Exit, the client's bytes go out (as long
# as it takes any: FLUSH_STALL_S without progress ends that), a recording that could
# not get its lock is tried once more, descriptors are set back, the guard leaves.
# Nothing that matters is written at the end: clients kill within milliseconds.
#
# A broken pipe to the server mostly means that it just died: its wait status
# comes within milliseconds and tells more, so that is waited for BROKEN_WAIT_S.
# What can still go wrong: a reader of our stderr that takes nothing costs lines
# (64 KiB are kept); a save that never gets the lock is lost, the next start has it.
# ----------------------------------------------------------------------------
FLUSH_STALL_S, FLUSH_STALL_AFTER_SIGNAL_S = 5.0, 1.0
BROKEN_WAIT_S, END_WAIT_S, HANGUP_LOOK_S, PIPE_READS = 0.1, 1.0, 0.5, 32
TROUBLE_BYTES = 400


class RunOptions(Record):
    """What a relay needs besides Settings: paths (str or None), `recorded_command` of argv, scope [(word, value)]."""
    __slots__ = ("argv", "command", "cache_dir", "name", "scope", "max_line_bytes", "log_file", "verbose", "log_style",
                 "stderr_log", "stderr_inherit", "wake_argv", "cache_max_age_ms")


class ServerLink:
    """The descriptors of one server process."""
    __slots__ = ("pid", "stdin", "stdout_fd", "stderr_fd", "splitter", "closing", "_driver", "_tail")

    def __init__(self, driver):
        """Start it. SpawnError if it does not start; all descriptors are given back then."""
        self._driver, self._tail, self.closing, self.stderr_fd = driver, bytearray(), False, None
        self.splitter = LineSplitter(driver.options.max_line_bytes)
        opened = []
        try:
            opened += make_pipe()
            opened += make_pipe()
            theirs = [opened[0], opened[3], self._stderr(opened)]
            self.pid = driver.processes.spawn(driver.options.argv, theirs)
        except (SpawnError, OSError) as error:
            for fd in opened:
                close_quietly(fd)
            if isinstance(error, SpawnError):
                raise
            raise SpawnError("no descriptors for it: %s" % error.strerror) from None
        self.stdin, self.stdout_fd = Outbox(opened[1]), opened[2]
        for fd in opened:
            if fd not in (opened[1], opened[2], self.stderr_fd):
                close_quietly(fd)
        for fd in (opened[1], opened[2], self.stderr_fd):
            if fd is not None:
                set_blocking(fd, False)
        if self.stderr_fd is not None:
            driver.loop.watch(self.stderr_fd, self.read_stderr)

    def _stderr(self, opened):
        """The descriptor that becomes the server's stderr (A15)."""
        options = self._driver.options
        if options.stderr_inherit:
            return 2
        if options.stderr_log:
            try:
                fd = open_append(options.stderr_log)
            except OSError as error:  # a log never stops the service
                self._driver.journal.warn("cannot append to %s: %s" % (options.stderr_log, error.strerror))
            else:
                opened.append(fd)
                set_blocking(fd, True)
                return fd
        opened += make_pipe()
        self.stderr_fd = opened[-2]
        return opened[-1]

    def read_stderr(self):
        """Copy what is there to our stderr, keep its end."""
        raw = read_some(self.stderr_fd)
        if raw is None:
            return
        if not raw:
            self._forget_stderr()
            return
        self._driver.sink.put(raw)
        self._tail += raw
        del self._tail[:-TAIL_BYTES]

    def _forget_stderr(self):
        self._driver.loop.watch(self.stderr_fd)
        close_quietly(self.stderr_fd)
        self.stderr_fd = None

    def tail(self):
        """The end of the server's stderr, redacted, for an error text (bytes)."""
        if self.stderr_fd is not None:
            self.read_stderr()
        options = self._driver.options
        tail = bytes(self._tail) or (file_tail(options.stderr_log, TAIL_BYTES) if options.stderr_log else b"")
        tail = redact(tail, secret_values(own_environment())).strip()
        last = tail[-TROUBLE_BYTES:]
        return tail if len(tail) <= TROUBLE_BYTES else last.partition(b"\n")[2] or last

    def close_stdin(self):
        if self.stdin.fd is not None:
            self._driver.loop.watch(self.stdin.fd)
            close_quietly(self.stdin.fd)
            self.stdin.drop()
            self.stdin.fd, self.stdin.broken = None, True

    def close_stdout(self):
        if self.stdout_fd is not None:
            self._driver.loop.watch(self.stdout_fd)
            close_quietly(self.stdout_fd)
            self.stdout_fd = None

    def close(self):
        self.close_stdin()
        self.close_stdout()
        if self.stderr_fd is not None:
            self.read_stderr()
        if self.stderr_fd is not None:
            self._forget_stderr()


class ClientLink:
    """Descriptors 0 and 1: the client's lines, and what waits for it."""
    __slots__ = ("outbox", "open", "held", "_splitter")

    def __init__(self, max_line_bytes):
        self.outbox, self.open, self.held, self._splitter = Outbox(1), True, False, LineSplitter(max_line_bytes)

    def watch_for_end(self, loop, wanted, post):
        """While the client is not read, look whether it went: a selector would tell of every unread byte, too."""
        def look():
            for _ in range(PIPE_READS if hung_up(0) else 0):  # what it left is a pipe full at most, then comes the end
                for event in self.read() if self.open else ():
                    post(event)
            if self.open:
                loop.set_timer("hangup", loop.now_s + HANGUP_LOOK_S, look)

        if wanted:
            loop.set_timer("hangup", loop.now_s + HANGUP_LOOK_S, look)
        else:
            loop.clear_timer("hangup")

    def read(self):
        """The events of what can be read now."""
        raw = read_some(0)
        if raw is None:
            return []
        events = [ClientLines(block) for block in (self._splitter.feed(raw) if raw else self._splitter.rest())]
        if self._splitter.too_long:
            self._splitter.too_long = False
            events.append(ClientTooLong())
        if not raw:
            self.open = False
            events.append(ClientGone("end of input"))
        return events


class WakeLink:
    """One run of the wake predicate: its pid, and what it prints for nobody."""
    __slots__ = ("pid", "_fd", "_loop")

    def __init__(self, driver):
        """SpawnError if it does not start."""
        self._loop = driver.loop
        self.pid, self._fd = driver.processes.spawn_detached(driver.options.wake_argv)
        set_blocking(self._fd, False)
        self._loop.watch(self._fd, self._drop)

    def _drop(self):
        if read_some(self._fd) == b"":
            self._loop.watch(self._fd)

    def close(self):
        self._loop.watch(self._fd)
        close_quietly(self._fd)


class Driver:
    """Carries out what the engine says, and tells it what happened."""
    __slots__ = ("options", "loop", "processes", "sink", "journal", "relay", "store", "client", "link", "_signals",
                 "_events", "_busy", "_status", "_wake", "_streams", "_stall_s", "_failed", "_save_wanted", "_watched")

    def __init__(self, options, relay, store):
        self.options, self.relay, self.store = options, relay, store
        self.loop, self.processes = Loop(), Processes()
        self.sink, named = StderrSink(self.loop), options.name is not None
        self.journal = Journal(
            options.log_file, "dsh" if named and options.log_style == "text" else options.log_style,
            2 if options.verbose or named else 1, OwnLines(self.sink), options.verbose,
            options.log_file == options.stderr_log)
        store.attach(self.journal)
        self.link = self._wake = self._status = None
        self._events, self._busy, self._stall_s, self._failed = [], False, FLUSH_STALL_S, False
        self.client = ClientLink(options.max_line_bytes)
        self._save_wanted, self._watched, self._streams, self._signals = False, None, StandardStreams(), SignalPipe()

    def post(self, event):
        """Hand an event to the engine and carry out what it says; one at a time."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        while self._events:
            event = self._events.pop(0)
            for effect in self._handled(event):
                getattr(self, EFFECTS[type(effect)])(effect)
            if not self._events:
                self._flush()
        self._busy = False
        if self._save_wanted:
            self._save()
        self._watch()

    def _handled(self, event):
        """The engine's effects. An error of ours fails what is open, once; a second one ends the relay."""
        self.relay.shelf.now_ms = int(wall_s() * 1000)
        try:
            return self.relay.handle(event, self.loop.now_s)
        except Exception as error:
            if self._failed or self.relay.leaving or self.relay.state in (ASLEEP, STOPPING):
                raise
            self._failed = True
            text = "internal error of mcp-lazy, please report it: %s at %s" % (error_place(error), self.relay.state)
            self.journal.line(text)
            return self.relay.handle(ServerBroke(text, b""), self.loop.now_s)

    def _flush(self):
        """Write what waits; a reader that is gone is the next event."""
        if self.client.outbox.pending_bytes:
            self.client.outbox.flush()
            if self.client.outbox.broken:
                self._events.append(ClientGone("output closed"))
                self.client.open = False
        link = self.link
        if link is not None and link.stdin.pending_bytes:
            link.stdin.flush()
            if link.stdin.broken:
                link.close_stdin()
                self.loop.set_timer("broken", self.loop.now_s + BROKEN_WAIT_S, self._report_broken)
        if link is not None and link.closing and not link.stdin.pending_bytes:
            link.close_stdin()

    def _report_broken(self):
        self.post(ServerBroke("server stopped accepting input", self._tail()))

    def _watch(self):
        """Set the watching of each descriptor by what waits where; most turns leave it as it is."""
        link, watch, client = self.link, self.loop.watch, self.client
        waiting, pending = link.stdin.pending_bytes if link is not None else 0, client.outbox.pending_bytes
        reads = client.open and not client.held and waiting <= MAX_QUEUE_BYTES and self._status is None
        now = (client.open, reads, waiting > 0, pending > 0, pending > MAX_OUTPUT_BYTES,
               link, link and link.stdin.fd, self._status)
        if now == self._watched:
            return
        self._watched = now
        watch(0, self._read_client if reads else None)
        client.watch_for_end(self.loop, client.open and not reads and self._status is None, self.post)
        watch(1, None, self._more if pending else None)
        if link is not None:
            if link.stdin.fd is not None:
                watch(link.stdin.fd, None, self._more if waiting else None)
            if link.stdout_fd is not None:
                watch(link.stdout_fd, self._read_server if pending <= MAX_OUTPUT_BYTES else None)
        if self._status is not None and not pending:
            self.loop.stop()

    def _more(self):
        """A reader takes more."""
        before = self.client.outbox.pending_bytes
        self._busy = True
        self._flush()
        self._busy = False
        if self._status is not None and self.client.outbox.pending_bytes < before:
            self._arm_stall()
        if self._events:
            self.post(self._events.pop())
        else:
            self._watch()

    def _read_client(self):
        for event in self.client.read():
            self.post(event)

    def _read_server(self):
        link = self.link
        raw = read_some(link.stdout_fd)
        if raw is None:
            return
        if not raw:
            link.close_stdout()
        for block in link.splitter.feed(raw) if raw else link.splitter.rest():
            self.post(ServerLines(block))
        if self.link is not link:  # its generation ended meanwhile
            return
        if link.splitter.too_long:
            link.splitter.too_long = False
            self.post(ServerBroke("the server wrote a line longer than --max-line", self._tail()))
        if not raw:
            self.post(OutputClosed())

    def _signalled(self):
        arrived = self._signals.read()
        self._collect()
        for signum in STOP_SIGNALS:
            if signum in arrived:
                self.client.open, self._stall_s = False, FLUSH_STALL_AFTER_SIGNAL_S
                self.post(StopSignal(signal_name(signum)))

    def _collect(self):
        """Tell the engine which of its processes ended."""
        for pid, status in self.processes.collect():
            if self.link is not None and pid == self.link.pid:
                self.loop.clear_timer("broken")
                self.post(Exited(describe_exit(status), self._tail()))
            elif self._wake is not None and pid == self._wake.pid:
                self._wake = self._wake.close()
                self.post(WakeEnded(describe_exit(status)))

    def _tail(self):
        return self.link.tail() if self.link is not None else b""

    def _fired(self, name):
        self.post(TimerFired(name, self._tail() if name in ("startup", "call") else b""))

    def _write(self, effect):
        if effect.side == CLIENT:
            self.client.outbox.put(effect.raw)
        elif self.link is not None:
            self.link.stdin.put(effect.raw)

    def _spawn(self, effect):
        try:
            self.link = ServerLink(self)
        except SpawnError as error:
            self._events.append(SpawnFailed(str(error)))
            return
        self.journal.line("server started (pid %d)" % self.link.pid)
        self._events.append(Spawned(self.link.pid))

    def _close_input(self, effect):
        if self.link is not None:
            self.link.closing = True
            if effect.force or not self.link.stdin.pending_bytes:
                self.link.close_stdin()

    def _kill_group(self, effect):
        if self.link is not None:
            self.processes.kill_group(self.link.pid, effect.signum)

    def _release(self, effect):
        self.loop.clear_timer("broken")
        if self.link is not None:
            self.link.close()
            self.link = None

    def _set_timer(self, effect):
        self.loop.set_timer(effect.name, effect.at_s, lambda: self._fired(effect.name))

    def _clear_timer(self, effect):
        self.loop.clear_timer(effect.name)

    def _note(self, effect):
        if type(effect) is Log:
            self.journal.line(effect.text, effect.level)
        elif type(effect) is Served:
            self.journal.line("%s cache %.1f" % (effect.method, (monotonic_s() - self.loop.now_s) * 1000), 2)
        elif self.options.verbose:
            raw = redact(effect.raw.strip(), self.relay.settings.secrets)
            OwnLines(self.sink).put(b"mcp-lazy: stdout of the server: %s\n" % raw)

    def _want_save(self, effect):
        self._save_wanted = True  # behind the answer; again later while another process has the lock

    def _save(self):
        self._save_wanted = False
        if not self.store.save(self.relay.shelf.take_dirty(), self.loop.now_s):
            self.loop.set_timer("save", self.loop.now_s + LOCK_RETRY_S, self._save)

    def _run_wake(self, effect):
        try:
            self._wake = WakeLink(self)
        except SpawnError as error:
            self._events.append(WakeEnded(str(error)))

    def _kill_wake(self, effect):
        if self._wake is not None:
            self.processes.kill_group(self._wake.pid, 9)

    def _hold_client(self, effect):
        self.client.held = effect.hold

    def _exit(self, effect):
        if self._status is None:
            self._status = effect.status
            self._arm_stall()

    def _arm_stall(self):
        self.loop.set_timer("stall", self.loop.now_s + self._stall_s, self.loop.stop)

    def run(self):
        """Serve until the client is gone; the exit status."""
        try:
            self._streams.make_nonblocking(1)
            quick = self._streams.make_nonblocking(0)
            self.loop.watch(self._signals.fd, self._signalled)
            for effect in self.relay.begin(self.loop.now_s):
                getattr(self, EFFECTS[type(effect)])(effect)
            self._watch()
            if quick:
                self._read_client()  # what was written while we started, before `selectors` is loaded
            self.store.used()
            while self.loop.running:
                self.loop.turn()
        finally:
            self._end()
        return self._status or EXIT_OK

    def _end(self):
        if self.link is not None:  # only after a stall or an error of ours
            self.processes.kill_group(self.link.pid, 9)
            self.link.close()
        self.processes.wait_for_all(END_WAIT_S)
        self.store.finish()
        self._signals.ignore()
        self._streams.restore()
        self.processes.close()
        self.loop.close()


EFFECTS = {
    Write: "_write", Spawn: "_spawn", CloseInput: "_close_input", KillGroup: "_kill_group", Release: "_release",
    SetTimer: "_set_timer", ClearTimer: "_clear_timer", Log: "_note", Noise: "_note", Served: "_note",
    Save: "_want_save", RunWake: "_run_wake", KillWake: "_kill_wake", HoldClient: "_hold_client", Exit: "_exit",
}


def run_relay(options, settings):
    """One relay from start to end; its exit status."""
    store, trouble = load_store(options)
    relay = Relay(settings, Shelf(store.recording, options.scope, options.cache_max_age_ms))
    try:
        driver = Driver(options, relay, store)
    except OSError as error:
        raise LazyError("cannot start: %s" % error.strerror) from None
    if trouble:
        driver.journal.warn(trouble)
    driver.journal.line("start (%s)" % ("warm" if store.recording.entries else "cold"))
    try:
        return driver.run()
    except Exception as error:  # the server is dead by now
        OwnLines(driver.sink).put(b"")
        raise Bug("internal error, please report it: %s" % error_place(error)) from error

# ============================================================================
# L8b ENTRY - the command line of a relay                          [I/O, hot]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L6 L7 L8
# Used by: L9b L11 L14b L15
# Owns:   Option, OPTIONS, parse_flags, parse_environment, make_run, relay_command, cold, main
# Never:  imports argparse (8 ms); writes to stdout while a relay runs
# Tests:  tests/test_cli.py, tests/test_title.py, tests/test_name.py
# ----------------------------------------------------------------------------
# Theory: the flag grammar is Go's `flag` package (A1.3), because registrations in
# the field were written for it: -x and --x are one, a boolean never takes the next
# word, any other option always does, `--` is dropped once, the last one wins. A
# flag on the command line wins over its variable, which is then not even parsed;
# a variable that is set but empty counts as set (A1.6).
# The order of the checks is part of the contract (A1.5): flags, --version,
# variables, ranges, wake command, and only then the missing COMMAND.
#
# The personality comes from the name that we were started under (part 0), then
# from a first word that is reserved, then it is the relay. It sets defaults only.
#
# What every relay needs of the command line stands here, above the cold line: line 1
# does not even load what is below it. `cold` is the only door there.
# ----------------------------------------------------------------------------
COMMANDS = ("config", "hub", "cache", "demo", "doctor", "paths", "help")
DURATION, BOOLEAN, TEXT, BYTES, DECIMAL = "duration", "boolean", "text", "bytes", "decimal"


class Option(Record):
    """One option: name, kind, default as text, may it be zero?, help; `choices` of a text."""
    __slots__ = ("name", "kind", "default", "zero", "help", "choices")

    def variable(self):
        return "MCP_LAZY_" + self.name.upper().replace("-", "_")


OPTIONS = (
    Option("start-timeout", DURATION, "60s", False, "limit for the start of the server, with its handshake", ()),
    Option("idle-stop", DURATION, "0", True, "stop the server after so much silence; 0 = never", ()),
    Option("cache-dir", TEXT, "", True, "folder of the recordings (default: the user's cache folder)", ()),
    Option("log-file", TEXT, "", True, "append the relay's own log to this file", ()),
    Option("verbose", BOOLEAN, "false", True, "the relay's own log on stderr, in detail", ()),
    Option("wake-command", TEXT, "", True, "JSON array; exit status 0 of this command starts the server", ()),
    Option("wake-interval", DURATION, "5s", False, "time between two runs of the wake command", ()),
    Option("wake-timeout", DURATION, "1s", False, "limit for one run of the wake command", ()),
    Option("check", BOOLEAN, "false", True,
           "ask the server for all that clients ask at their start, record it, report", ()),
    Option("as", TEXT, "", True, "with --check: ask as a known client does (claude-code, codex ...)", ()),
    Option("json-errors", BOOLEAN, "false", True, "with --check: a failure as JSON on stdout too", ()),
    Option("version", BOOLEAN, "false", True, "print the version", ()),
    Option("name", TEXT, "", True,
           "keep state and log under this name, stop after 10 idle minutes, fill all lists", ()),
    Option("idle-timeout-min", DECIMAL, "", True, "idle stop in minutes (default 10 with --name)", ()),
    Option("stderr-log", TEXT, "", True, "append the server's stderr to this file", ()),
    Option("stderr", TEXT, "pipe", True, "pipe: copied, its end shown in errors; inherit: handed over",
           ("pipe", "inherit")),
    Option("call-timeout", DURATION, "0", True, "limit for one request; 0 = none", ()),
    Option("drain", DURATION, "0", True, "at end of input wait so long for open requests", ()),
    Option("stop-grace", DURATION, "500ms", False, "time between SIGTERM and SIGKILL", ()),
    Option("restart-backoff", DURATION, "500ms", True, "first delay after three starts that failed; 0 = none", ()),
    Option("refresh-fatal", BOOLEAN, "true", True, "a listing that hangs after a start ends the start", ()),
    Option("cache-scope", TEXT, "", True, "recordings apart by: client, client-version, cwd, env:NAME (commas)", ()),
    Option("cache-max-age", DURATION, "0", True,
           "compare an older recording with the server, behind the answers; 0 = never", ()),
    Option("fill", BOOLEAN, "false", True, "record every advertised list, asked for or not (true with --name)", ()),
    Option("max-line", BYTES, str(MAX_LINE_BYTES), False, "longest line from either side, in bytes", ()),
    Option("log-format", TEXT, "text", True, "text or json", ("text", "json")),
    Option("no-argv0", BOOLEAN, "false", True, "leave the process title alone (also MCP_LAZY_ARGV0=off)", ()),
)
# What a variable would set for every session, too.
WITHOUT_VARIABLE = ("check", "as", "json-errors", "version")


def find_option(name):
    for option in OPTIONS:
        if option.name == name:
            return option
    return None


def parse_flags(words):
    """({option name: value} of what the command line says, the server's command). UsageError, A1.3."""
    given, at = {}, 0
    while at < len(words) and len(words[at]) > 1 and words[at][0] == "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, text = word[2 if word[:2] == "--" else 1:].partition("=")
        if not name or name[0] == "-":
            raise UsageError("bad flag syntax: %s" % word.partition("=")[0], show_usage=True)
        if name in ("h", "help"):
            raise UsageError("", show_usage=True)
        option = find_option(name)
        if option is None:
            raise UsageError("flag provided but not defined: -%s%s" % (name, _nearest(name)), show_usage=True)
        if not equals and option.kind != BOOLEAN:
            if at == len(words):
                raise UsageError("flag needs an argument: -%s" % name, show_usage=True)
            text, at = words[at], at + 1
        elif not equals:
            text = "true"
        try:
            given[name] = parse_value(option, text)
        except ValueError as error:
            raise UsageError("invalid value for flag -%s: %s" % (name, error), show_usage=True) from None
    return given, words[at:]


def parse_value(option, text):
    """The value of an option's text; ValueError with a reason."""
    if option.kind == DURATION:
        try:
            return parse_duration(text)
        except ValueError:
            raise ValueError("%r is not a duration (like 1m30s), or too long" % text) from None
    if option.kind == BOOLEAN:
        return parse_bool(text)
    if option.kind == BYTES:
        if not text.isascii() or not text.isdigit():
            raise ValueError("%r is not a number of bytes" % text)
        return int(text[:18])
    if option.kind == DECIMAL:
        digits = text.replace(".", "", 1)
        value = float(text) if digits and set(digits) <= DIGITS else -1.0
        if not 0 <= value < 1e9:
            raise ValueError("%r is not a number of minutes" % text)
        return value
    if option.choices and text not in option.choices:
        raise ValueError("%r is not one of %s" % (text, ", ".join(option.choices)))
    return text


def _nearest(name):
    """" (did you mean -x?)" for an option at most two edits away, else ""."""
    best = min(OPTIONS, key=lambda option: _edits(name, option.name))
    return " (did you mean -%s?)" % best.name if _edits(name, best.name) <= 2 else ""


def _edits(one, other):
    """Edit distance of two words."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def parse_environment(given, environment):
    """`given` completed from variables, in the order of the table (A1.6). UsageError names the variable."""
    values = dict(given)
    for option in OPTIONS:
        if option.name in given or option.name in WITHOUT_VARIABLE:
            continue
        raw = environment.get(option.variable().encode("ascii"))
        if raw is None or raw == b"" and option.kind == TEXT and not option.choices:
            continue
        try:
            values[option.name] = parse_value(option, filesystem_text(raw))
        except ValueError as error:
            raise UsageError("%s: %s" % (option.variable(), error)) from None
    return values


def origin(name, given):
    """Where a value came from, for a message about it: the option, or its variable."""
    return name if name in given else find_option(name).variable()


def check_ranges(values, given):
    """One line for every value out of its range together (A1.8)."""
    wrong = []
    for option in OPTIONS:
        value = values.get(option.name)
        if option.kind in (DURATION, BYTES) and value is not None and (value < 0 or value == 0 and not option.zero):
            rule = "not be negative" if option.zero else "be more than 0"
            wrong.append("%s must %s" % (origin(option.name, given), rule))
    if wrong:
        raise UsageError(", ".join(wrong))


def parse_wake(text, where):
    """The argv of a wake command (A1.7), None without one."""
    if not text:
        return None
    try:
        words = parse_json(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(type(word) is str for word in words) or not words[0]:
        raise UsageError("%s must be a JSON array of strings, the first one not empty" % where)
    return words


def parse_scope(text, environment, where):
    """[(word, value)] of --cache-scope (A5.9); environment values as digests only."""
    scope = []
    for word in text.split(",") if text else ():
        if word == "cwd":
            scope.append((word, working_directory()))
        elif word[:4] == "env:" and len(word) > 4:
            value = environment.get(filesystem_bytes(word[4:]))
            scope.append((word, "unset" if value is None else sha256_hex(value)))
        elif word in ("client", "client-version"):
            scope.append((word, ""))
        elif word != "capabilities":  # these always count
            raise UsageError("%s: %r is not one of client, client-version, cwd, env:NAME" % (where, word))
    return sorted(scope)


def check_name(name, required):
    """The name as it may stand in a path (F1), None without one."""
    if not name and not required:
        return None
    if name is None:
        raise UsageError("--name NAME is required when started as dsh-lazy-mcp")
    if not name or name in (".", "..") or len(name) > 128 or any(c in name for c in "/\0\n"):
        raise UsageError("name must be 1 to 128 characters, no /, and not . or ..: %r" % name)
    return name


def idle_stop_ns(given, values, named):
    """The idle stop that holds: --idle-stop, or minutes, or the default of the personality (F8, I2)."""
    if "idle-stop" in given and "idle-timeout-min" in given:
        raise UsageError("idle-stop and idle-timeout-min say the same thing: give one")
    if "idle-stop" in values and "idle-timeout-min" not in given:
        return values["idle-stop"]
    minutes = values.get("idle-timeout-min", 10.0 if named else 0.0)
    return int(minutes * 60e9)


def make_run(words, environment, named):
    """(RunOptions, Settings, values) of a relay's command line. UsageError; `named` asks for --name (F1)."""
    given, argv = parse_flags(words)
    if given.get("version"):
        return None, None, given
    values = parse_environment(given, environment)
    check_ranges(values, given)
    wake_argv = parse_wake(values.get("wake-command", ""), origin("wake-command", given))
    scope = parse_scope(values.get("cache-scope", ""), environment, origin("cache-scope", given))
    name = check_name(values.get("name"), named or "name" in given)
    idle_ns = idle_stop_ns(given, values, name is not None)
    if {"check", "as", "json-errors"} & set(given):
        cold("check_client")(given)
    if not argv:
        raise UsageError("no COMMAND to run", show_usage=True)
    for option in OPTIONS:
        if option.name not in values and option.default:
            values[option.name] = parse_value(option, option.default)
    state_dir, log_path = dsh_paths(name, environment)
    stderr_log = values.get("stderr-log") or (log_path if "stderr" not in given else None)
    command = recorded_command(argv)
    options = RunOptions(
        argv, command, values.get("cache-dir") or state_dir or user_cache_dir(environment), name, scope,
        values["max-line"], values.get("log-file") or log_path, values["verbose"], values["log-format"], stderr_log,
        values["stderr"] == "inherit", wake_argv, values["cache-max-age"] // 10 ** 6)
    settings = Settings(
        values["start-timeout"], seconds(idle_ns), seconds(values["stop-grace"]), seconds(values["drain"]),
        values["call-timeout"], seconds(values["restart-backoff"]), values["refresh-fatal"],
        values["fill"] or name is not None and "fill" not in given, name or server_name(command),
        wake_argv is not None, seconds(values["wake-interval"]), seconds(values["wake-timeout"]),
        values["verbose"] or name is not None, secret_values(environment))
    return options, settings, values


def dsh_paths(name, environment):
    """(state folder, log file) of a name (F2), (None, None) without one."""
    if name is None:
        return None, None
    home = home_dir(environment)
    temporary = {b"TMPDIR": environment.get(b"TMPDIR")}
    base = home + "/.local/share/dsh/state" if home else user_cache_dir(temporary) + "/dsh"
    state = filesystem_text(environment.get(b"DSH_LAZY_MCP_STATE_DIR") or b"") or base + "/lazy-mcp"
    logs = filesystem_text(environment.get(b"DSH_LAZY_MCP_LOG_DIR") or b"") or base + "/mcp-logs"
    return state, "%s/%s.log" % (logs, name)


def server_name(command):
    """What the server is called in errors: its program's basename, the script's behind an interpreter (A10.5)."""
    _, _, shown = command
    return shown[:2][-1].rpartition("/")[2]


def show_title(words, script):
    """Make the first word of the command line that ps shows start with mcp-lazy (E4)."""
    shown = shown_command()
    if _names_us(shown):
        return
    name = script if _names_us(filesystem_bytes(script)) and script[:1] == "/" else "mcp-lazy"
    raw_words = [filesystem_bytes(word) for word in [name] + words]
    if not set_title(raw_words):
        run_again_with_title(name, script, words)


def _names_us(raw):
    return raw.rpartition(b"/")[2].lower().startswith(b"mcp-lazy") and not set(raw) & set(WHITESPACE)


def relay_command(words, script, named):
    environment = current_environment()
    options, settings, values = make_run(words, environment, named)
    if options is None:
        return say("mcp-lazy %s\n" % VERSION)
    plan = cold("read_plan")(values.get("as"), environment) if values["check"] else None
    if options.name is not None:
        private_dir_trouble(options.log_file.rpartition("/")[0] or ".", create=True)
    if not values["no-argv0"] and environment.get(b"MCP_LAZY_ARGV0") != b"off":
        show_title(words, script)
    if plan is not None:
        return cold("check_command")(options, settings, plan, values["json-errors"])
    return run_relay(options, settings)


def say(text):
    """Write a command's result to stdout; the exit status, 1 if nobody can take it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError) as error:
        sys.stdout = None  # or the interpreter tries once more and complains
        trouble = getattr(error, "strerror", None) or "it is closed"
        sys.stderr.write("mcp-lazy: cannot write to stdout: %s\n" % trouble)
        return EXIT_FAILED
    return EXIT_OK


def cold(name):
    """A function that stands below the cold line; where line 1 left that half out it is loaded now."""
    names = globals()
    if name not in names:
        names["load_cold"]()
    return names[name]


def run_command(argv):
    """The exit status of one command line (argv[0] is the name we were started under)."""
    words, script = argv[1:], absolute_path(argv[0])
    base = script.rpartition("/")[2].lower()
    if base.startswith("lazy-mcp"):
        return cold("own_command_line")("hub", words)
    if words[:1] and words[0] in COMMANDS and not base.startswith("dsh-lazy-mcp"):
        return cold("own_command_line")(words[0], words[1:])
    return relay_command(words, script, base.startswith("dsh-lazy-mcp"))


def main():
    """The exit status; errors as one line on stderr, never a traceback on stdout."""
    if sys.version_info < (3, 9):
        sys.stderr.write("mcp-lazy: needs Python 3.9 or later, this is %s\n" % sys.version.split()[0])
        return EXIT_USAGE
    if not is_posix_system():
        sys.stderr.write("mcp-lazy: this system has no POSIX processes; it runs on Linux and macOS\n")
        return EXIT_USAGE
    try:
        return run_command(sys.argv)
    except UsageError as error:
        text = "mcp-lazy: %s\n" % error if str(error) else ""
        sys.stderr.write(text + (cold("usage")() if error.show_usage else ""))
        return EXIT_USAGE
    except (LazyError, OSError) as error:
        sys.stderr.write("mcp-lazy: %s\n" % (getattr(error, "strerror", None) or error))
        return EXIT_FAILED

# == cold line: what line 1 leaves out until it is needed =====================
# ============================================================================
# L8c DISK - system calls that only commands make                 [I/O, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L3
# Used by: L9 L9b L11b L13d L14 L14b L15
# Owns:   FileFacts, read_whole, resolved_path, user_config_dir, write_private, write_beside, write_over, exchange,
#         move_file, sync_dir, make_temporary_dir, folder_names, file_facts, remove_file, is_terminal, resident_kib
# Never:  decides what a file should hold; runs in a relay
# Tests:  tests/test_config_write.py, tests/test_cache_command.py
# ----------------------------------------------------------------------------
# Theory: the cold half of L3; a relay never loads it. A file of somebody else's is
# replaced by a complete, synced one with its owner, attributes and mode, which is
# 0600 until then: `write_beside` makes it, `exchange` puts it there. The exchange
# (renameat2 with RENAME_EXCHANGE, renamex_np with RENAME_SWAP) is what a plain rename
# is not: a compare-and-swap. What was displaced is still there under the other name
# and can be compared with what was read before; a rename destroys it unseen. File
# systems and sandboxes without it say EINVAL, ENOSYS, ENOTSUP or EPERM.
# What can still go wrong: a writer that holds the displaced file open and writes
# into it afterwards is not noticed.
# ----------------------------------------------------------------------------
EXCHANGE_FLAG, AT_FDCWD = 2, -100
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM)

FileFacts = record("FileFacts", "dev ino mode uid gid links size mtime_ns",
                   "what tells one state of a file from another")


def facts_of(seen):
    return FileFacts(seen.st_dev, seen.st_ino, seen.st_mode & 0o7777, seen.st_uid, seen.st_gid, seen.st_nlink,
                     seen.st_size, seen.st_mtime_ns)


def read_whole(path, limit):
    """(bytes, FileFacts) of a regular file of at most `limit` bytes, whoever owns it. OSError says why not."""
    fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY)
    try:
        seen = posix.fstat(fd)
        if seen.st_mode & 0o170000 == 0o040000:
            raise OSError(errno.EISDIR, "it is a directory")
        if seen.st_mode & 0o170000 != 0o100000:
            raise OSError(errno.EINVAL, "it is not a regular file")
        raw = bytearray()
        piece = posix.read(fd, READ_BYTES)
        while piece:
            raw += piece
            if len(raw) > limit:
                raise OSError(errno.EFBIG, "it is larger than %d bytes" % limit)
            piece = posix.read(fd, READ_BYTES)
        return bytes(raw), facts_of(seen)
    finally:
        close_quietly(fd)


def file_identity(path):
    """The FileFacts of a path, None if it cannot be looked at."""
    seen = stat_of(path)
    return None if seen is None else facts_of(seen)


def is_absent(path):
    """Is there nothing under this name, not even a link? What may not be looked at is not absent (case 094)."""
    try:
        posix.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def resolved_path(path):
    """The absolute path behind every symlink; a loop stays as it is and fails when it is opened."""
    from os.path import realpath
    return realpath(path)


def user_config_dir(environment):
    """The folder (str) for settings that programs keep, None without a home (D1.6)."""
    xdg, home = environment.get(b"XDG_CONFIG_HOME", b""), environment.get(b"HOME", b"")
    if sys.platform == "darwin":
        root = home and home + b"/Library/Application Support"
    else:
        root = xdg if xdg[:1] == b"/" else home and home + b"/.config"
    return filesystem_text(root) if root[:1] == b"/" else None


def write_private(path, raw):
    """A synced file of ours, 0600, whole under its name or not there at all. OSError."""
    temporary = "%s/.tmp-%s" % (path.rpartition("/")[0], path.rpartition("/")[2])
    close_quietly_unlink(temporary)  # the caller holds the lock: what is there was left by a run that is dead
    try:
        fd = posix.open(temporary, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
        try:
            write_all(fd, raw)
            posix.fsync(fd)
        finally:
            posix.close(fd)
        posix.rename(temporary, path)
    except OSError:
        close_quietly_unlink(temporary)
        raise
    sync_dir(path.rpartition("/")[0])


def write_beside(path, temporary, raw, facts):
    """A synced copy-to-be of `path`: `raw` with the owner, the attributes and at last the mode of `facts`. OSError."""
    fd = posix.open(temporary, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
    try:
        write_all(fd, raw)
        mine = posix.fstat(fd)
        if (mine.st_uid, mine.st_gid) != (facts.uid, facts.gid):
            try:
                posix.fchown(fd, facts.uid, facts.gid)
            except OSError as error:
                raise OSError(error.errno, "its owner and group cannot be kept: %s" % error.strerror) from None
        copy_attributes(path, fd)
        posix.fchmod(fd, facts.mode)
        posix.fsync(fd)
    finally:
        posix.close(fd)


def copy_attributes(path, fd):
    """Extended attributes, access lists among them; those that only the system may set stay its own business."""
    if not hasattr(posix, "listxattr"):
        return
    try:
        names = posix.listxattr(path)
    except OSError:  # a file system without any
        return
    for name in posix.listxattr(fd):  # the folder's default access list would give new readers
        if name not in names:
            posix.removexattr(fd, name)
    for name in names:
        try:
            posix.setxattr(fd, name, posix.getxattr(path, name))
        except OSError as error:
            if name[:5] == "user." or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise OSError(error.errno, "its attribute %s cannot be kept: %s" % (name, error.strerror)) from None


def write_over(path, raw, facts, old):
    """Write into the file itself, for hard links; not whole if we are killed meanwhile.

    OSError; the `old` bytes are put back then. False if that fails too: the file is damaged.
    """
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOCTTY)
    try:
        seen = posix.fstat(fd)
        if (seen.st_dev, seen.st_ino) != (facts.dev, facts.ino):
            raise OSError(errno.ESTALE, "it was replaced meanwhile")
        try:
            overwrite(fd, raw)
        except OSError:
            try:
                overwrite(fd, old)
            except OSError:
                return False
            raise
        return True
    finally:
        posix.close(fd)


def overwrite(fd, raw):
    posix.lseek(fd, 0, 0)
    write_all(fd, raw)
    posix.ftruncate(fd, len(raw))
    posix.fsync(fd)


def exchange(one, other):
    """Swap what two names stand for in one step; False where the system cannot. OSError if it would not."""
    try:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        swap = libc.renamex_np if sys.platform == "darwin" else libc.renameat2
    except (ImportError, OSError, AttributeError):
        return False
    first, second = filesystem_bytes(one), filesystem_bytes(other)
    words = (first, second) if sys.platform == "darwin" else (AT_FDCWD, first, AT_FDCWD, second)
    if swap(*words, EXCHANGE_FLAG) == 0:
        return True
    code = ctypes.get_errno()
    if code in NO_EXCHANGE:
        return False
    raise OSError(code, posix.strerror(code))


def move_file(one, other):
    posix.rename(one, other)


def sync_dir(path):
    """Make a folder's names lasting; False where the system does not do that, or could not."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        posix.fsync(fd)
        return True
    except OSError:
        return False
    finally:
        close_quietly(fd)


def random_hex(size_bytes):
    """A text that nobody can guess: hexadecimal digits of so many random bytes."""
    return posix.urandom(size_bytes).hex()


def resident_kib(pid):
    """Resident memory of a process in KiB; 0 where /proc does not tell."""
    try:
        for line in read_proc("/proc/%d/status" % pid).split(b"\n"):
            if line.startswith(b"VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def child_pids(pid):
    """Pids of the children of a process (Linux), [] where /proc does not tell."""
    try:
        return [int(word) for word in read_proc("/proc/%d/task/%d/children" % (pid, pid)).split()]
    except OSError:
        return []


def child_title(pid):
    """The words of a process's command line (bytes)."""
    try:
        return read_proc("/proc/%d/cmdline" % pid).split(b"\0")
    except OSError:
        return []


def make_temporary_dir(prefix):
    """A new folder of ours, 0700, in the temp dir."""
    import tempfile
    return tempfile.mkdtemp(prefix=prefix)


def remove_dir(path):
    import shutil
    shutil.rmtree(path, ignore_errors=True)


def is_terminal(fd):
    return posix.isatty(fd)


def folder_names(path):
    """The names in a folder, sorted; [] where there is none to be read."""
    try:
        return sorted(posix.listdir(path))
    except OSError:
        return []


def file_facts(path):
    """(size in bytes, mtime as unix seconds, regular file?) of a path; None if it is gone."""
    try:
        seen = posix.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return seen.st_size, seen.st_mtime, seen.st_mode & 0o170000 == 0o100000


def remove_file(path):
    """None if a file is gone now, else why it is not."""
    try:
        posix.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return error.strerror
    return None

# ============================================================================
# L9 SESSION - the client side of MCP, as coroutines; --check    [mixed, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L5 L6 L6b L8 L8c
# Used by: L9b L13d L13e L14 L14b L15
# Owns:   Session, Refused, Checked, Findings, Progress, Check, Plan, CheckFailed
# Never:  is loaded by a relay's warm start
# Tests:  tests/test_l09_session.py, tests/test_check.py
# ----------------------------------------------------------------------------
# Theory: a client of one process: requests are futures by id, notifications are kept,
# the server's requests get -32601. At the end: close its input, wait, only then kill.
#
# A check (part B) is such a client without patience: a line that is no JSON, a
# request that it cannot answer, a list without end are failures. All is saved at
# once behind the last answer: a check that fails leaves the file as it was.
#
# SDK servers of 2026 fix the era of a process on its first request (Python SDK
# 2.3.0: -32022 to a later `initialize`), so behind a probe that succeeds the
# handshake gets a second process, started when the first is gone (servers lock
# files). A client whose capabilities differ between health check and session
# shakes hands for each, in a process of its own.
# -32602 or -32600 and then a good handshake in the same process is a legacy server
# (Python SDK 1.x), recorded as -32601. Silence is no answer, a late success is one.
#
# The deadline and signals raise their error where the flow waits, never on the ladder.
# What goes wrong: a request of the server behind its last list is not heard.
# ----------------------------------------------------------------------------
DISCOVER, TEMPLATES = OPENING["modern"], "resources/templates/list"
# The part of the deadline that a probe may take; what is asked beside the point waits EXTRA_WAIT_S.
PROBE_SHARE, EXTRA_WAIT_S, PROGRESS_S, STDERR_WAIT_S = 3, 1.0, 0.2, 1.0
# Errors by which a legacy server may mean that it does not know a probe.
UNCLEAR = (INVALID_PARAMS, INVALID_REQUEST)


class Refused(PeerError):
    """The error answer of a peer. raw: the error object; `rpc_code`: the code in it, None without one."""

    def __init__(self, raw):
        super().__init__(raw.decode("utf-8", "replace"), error_code({"error": raw}))
        self.raw = raw


class Session:
    """An MCP client of a process that it starts. `await request(...)` gives the raw result (bytes).

    Refused for an error answer, PeerError for a dead process.
    """
    __slots__ = ("pid", "heard", "_loop", "_processes", "_out", "_stdout_fd", "_splitter", "_waiting", "_count",
                 "_trouble")

    id_prefix, read_bytes = "", READ_BYTES

    def __init__(self, loop, processes, argv, environment=None):
        their_in, our_out = make_pipe()
        our_in, their_out = make_pipe()
        null = open_null()
        try:
            self.pid = processes.spawn(argv, [their_in, their_out, null], environment)
        except SpawnError:
            for fd in (our_in, our_out):
                close_quietly(fd)
            raise
        finally:
            for fd in (their_in, their_out, null):
                close_quietly(fd)
        for fd in (our_in, our_out):
            set_blocking(fd, False)
        self._begin(loop, processes, Outbox(our_out), our_in, LineSplitter())

    def _begin(self, loop, processes, out, stdout_fd, splitter):
        self._loop, self._processes, self._waiting, self._count, self.heard = loop, processes, {}, 0, []
        self._out, self._stdout_fd, self._splitter, self._trouble = out, stdout_fd, splitter, None
        loop.watch(stdout_fd, self._read)

    def notify(self, method, params_raw=None):
        params = b',"params":' + params_raw if params_raw else b""
        self._write(b'{"jsonrpc":"2.0","method":%s%s}\n' % (json_string(method), params))

    def request(self, method, params_raw=b"{}"):
        """A Future of the result."""
        self._count += 1
        future, ident = Future(), self.newest_id()
        if self._trouble is not None:
            future.fail(self._trouble)
            return future
        self._waiting[ident] = future
        self._write(b'{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}\n' % (
            spell_id(ident), json_string(method), params_raw))
        return future

    def newest_id(self):
        """The id of the newest request."""
        return self.id_prefix + str(self._count) if self.id_prefix else self._count

    def fail(self, error):
        """Every open request, and every later one, ends with `error`."""
        waiting, self._waiting, self._trouble = self._waiting, {}, error
        for future in waiting.values():
            future.fail(error)

    def _write(self, line):
        self._out.put(line)
        self._flush()

    def _flush(self):
        self._out.flush()
        if self._out.fd is not None:  # epoll tells of a broken one for ever
            is_wanted = self._out.pending_bytes and not self._out.broken
            self._loop.watch(self._out.fd, None, self._flush if is_wanted else None)

    def _read(self):
        raw = read_some(self._stdout_fd, self.read_bytes)
        if raw is None:
            return
        if not raw:
            self._loop.watch(self._stdout_fd)
            self._closed()
            return
        for block in self._splitter.feed(raw):
            for line in block.split(b"\n")[:-1]:
                self._take(line)
        if self._splitter.too_long:
            self.fail(PeerError("a line on its stdout is longer than allowed"))

    def _closed(self):
        """End of the output."""
        self.fail(PeerError("the process ended without an answer"))

    def _take(self, line):
        env = read_envelope(line)
        if env.kind == RESPONSE:
            try:
                self._answered(env.id_key, members(line))
            except ValueError:  # no JSON after all
                self._noise(line)
        elif env.kind == REQUEST:
            self._asked(env)
        elif env.kind == NOTIFICATION:
            self.heard.append(env.method)
        elif env.kind not in (ODD, BATCH):
            self._noise(line)

    def _answered(self, key, parts):
        future = self._waiting.pop(key, None)
        if future is not None and parts.get("error", b"null") == b"null" and "result" in parts:
            future.set(parts["result"])
        elif future is not None:
            future.fail(Refused(parts.get("error", b"")))

    def _asked(self, env):
        self._write(error_line(env.id_raw, error_object(METHOD_NOT_FOUND, "not a method of this client")))

    def _noise(self, line):
        """A line that is no JSON."""

    def close_input(self):
        """End of input for the process; once."""
        if self._out.fd is not None:
            self._out.drop()
            self._loop.watch(self._out.fd)
            close_quietly(self._out.fd)
            self._out.fd, self._out.broken = None, True

    def close(self):
        """Give the descriptors back; the process must be gone or is killed now."""
        self.close_input()
        self._processes.kill_group(self.pid, SIGKILL)
        self._loop.watch(self._stdout_fd)
        close_quietly(self._stdout_fd)


# -- check -------------------------------------------------------------------------

Plan = record("Plan", "probes handshakes client", "raw params of what a check sends; client: the name of --as, or None")
Heard = record("Heard", "version server_info lists", "what one era gave: {method: {cached, count, pages}} of its lists")


class CheckFailed(LazyError):
    """Why a check failed; stage: start, probe, handshake, listing, end or saving."""

    def __init__(self, text, stage):
        super().__init__(text)
        self.stage = stage


class Silence(LazyError):
    """No answer within a limit, and that is no failure."""


class Checked(Session):
    """A session that trusts nothing (B10). asked: methods the server requested; exited: a Future of how it ended."""
    __slots__ = ("link", "asked", "has_roots", "acknowledged", "exited", "_output_closed")

    id_prefix = OWN_ID + "inspect-"

    def __init__(self, driver):
        """SpawnError. `driver` has what a ServerLink wants."""
        self.link, self.asked, self.has_roots, self._output_closed = ServerLink(driver), [], False, False
        self.pid, self.acknowledged, self.exited = self.link.pid, Future(), Future()
        self._begin(driver.loop, driver.processes, self.link.stdin, self.link.stdout_fd, self.link.splitter)

    def _asked(self, env):
        if env.method == "ping" or env.method == "roots/list" and self.has_roots:
            self._write(result_line(env.id_raw, b"{}" if env.method == "ping" else b'{"roots":[]}'))
        else:
            self.fail(PeerError("the server sent the request %s, which a check cannot answer" % env.method))
        if env.method != "ping":
            self.asked.append(env.method)

    def _take(self, line):
        super()._take(line)
        if self.heard[-1:] == ["notifications/subscriptions/acknowledged"]:
            self.acknowledged.set()

    def _noise(self, line):
        text = bytes(line).strip()
        if text:
            self.fail(PeerError("a line on its stdout is not JSON (%s): %s" % (
                kind_of_noise(text), text[:200].decode("utf-8", "replace"))))

    def _closed(self):
        self._output_closed = True
        for line in self._splitter.rest():
            self._take(line)
        self._lost()

    def _flush(self):
        super()._flush()
        if self._out.broken:
            self._lost()

    def ended(self, text):
        """The process is reaped."""
        self.exited.set(text)
        self._lost()

    def _lost(self):
        """One sign of its end comes a little before the others, which tell more."""
        if self.exited.done and self._output_closed:
            self._give_up()
        else:
            self._loop.set_timer("lost-%d" % self.pid, monotonic_s() + DRAIN_WAIT_S, self._give_up)

    def _give_up(self):
        text = "closed its output" if self._output_closed else "takes no more input"
        self.fail(PeerError("the server %s" % (
            "exited (%s) without an answer" % self.exited.value if self.exited.done else text)))

    def evidence(self):
        """What it printed last, as a list of texts."""
        rest = b"".join(self._splitter.rest()).decode("utf-8", "replace").strip()
        tail = self.link.tail().decode("utf-8", "replace")
        found = ["its stdout ends: %s" % rest] if rest else []
        return found + (["its stderr ends: %s" % tail] if tail else [])

    def close(self):
        self._loop.clear_timer("lost-%d" % self.pid)
        self._loop.watch(self._stdout_fd)
        self.link.close()


async def within(tasks, limit_s, future):
    """The value of a Future, Silence if it takes longer."""
    async def wait():
        return await future
    return await tasks.deadline(limit_s, wait(), Silence("no answer"))


class Findings:
    """What a check has heard, on its way into the recording. eras: {era: Heard}."""
    __slots__ = ("shelf", "eras", "_keys")

    def __init__(self, recording, scope):
        self.shelf, self.eras, self._keys = Shelf(recording, scope), {}, set()
        self.shelf.now_ms = int(wall_s() * 1000)

    def entry(self, key, is_error=False, raw=None):
        """A new entry in the place of the one with this key (B12), begun by the answer `raw`."""
        entry = self.shelf.recording.entries[key] = Entry(*key)
        self._keys.add(key)
        if raw is not None:
            self.put(entry, OPENING[entry.era], is_error, [raw])
        return entry

    def put(self, entry, method, is_error, pages):
        entry.answers[method] = Answer(is_error, pages, self.shelf.now_ms)

    def probe(self, asked, is_error, raw):
        """Record what a probe was answered (A17.4, B7); the new entry that begins with it, or None."""
        known = self.shelf.modern_entry(asked) if set(asked.params) == {"_meta"} else None
        self.shelf.learn_probe(asked, is_error, raw)
        if known is not None and (not is_error or error_code({"error": raw}) == UNSUPPORTED_VERSION):
            return self.entry(known.key(), is_error, raw)
        if known is not None and known.answers:  # it was modern at the last check, and is no more
            self.entry(known.key())
        return None

    def dirty(self):
        """What is to be saved, for `Store.save`."""
        return self.shelf.take_dirty() | {(key, "*") for key in self._keys}


class Progress:
    """The way to our stderr; on a terminal with a line at its end that tells what is going on."""
    __slots__ = ("_sink", "_loop", "_name", "_since_s", "_on", "_shown")

    def __init__(self, loop, name):
        self._sink, self._loop, self._name = StderrSink(loop), loop, name
        self._since_s, self._on, self._shown = monotonic_s(), is_terminal(2), False

    def put(self, raw):
        """Something of the server's, behind the line as it was before."""
        if self._shown:
            self._sink.put(b"\r\x1b[K")
            self._shown = False
        self._sink.put(raw)

    def tell(self, what):
        if self._on:
            text = "mcp-lazy: checking %s: %s, %.1f s" % (self._name, what, monotonic_s() - self._since_s)
            self.put(printable(text).replace("\n", " ")[:79].encode("utf-8", "replace"))
            self._shown = True
            self._loop.set_timer("progress", monotonic_s() + PROGRESS_S, lambda: self.tell(what))

    def end(self):
        self._on = False
        self._loop.clear_timer("progress")
        self.put(b"")
        self._sink.drain(STDERR_WAIT_S)


def why_failed(error, what, session):
    """Why a check failed, in one line without secrets: what, what the server printed last, what to do."""
    text = str(error)
    if isinstance(error, Refused):
        text = "the server answered with error %s: %s" % (error.rpc_code, error_text({"error": error.raw}))
    text = "; ".join(["%s: %s" % (what, text)] + (session.evidence() if session is not None else []))
    text = redact(text.encode("utf-8", "replace"), secret_values(own_environment())).decode("utf-8", "replace")
    if "Ok to proceed" in text or "Need to install" in text:  # npx
        text += "; it waits for a yes: put -y in front of the package"
    return printable(text).replace("\n", " | ")


class Check:
    """One run of --check: asks a command what clients will ask, in both eras. What a ServerLink calls its driver."""
    __slots__ = ("options", "loop", "processes", "sink", "journal", "findings", "stage", "_plan", "_settings", "_tasks",
                 "_task", "_broken", "_session", "_signals", "_what", "_doubtful")

    def __init__(self, options, settings, plan, recording):
        self.options, self._settings, self._plan, self.loop = options, settings, plan, Loop()
        self.processes, self._tasks, self._signals = Processes(), Tasks(self.loop), SignalPipe()
        self.sink = Progress(self.loop, settings.server_name)
        self.journal = Journal(options.log_file, options.log_style, 1, self.sink, options.verbose)
        self.findings = Findings(recording, options.scope)
        self._session, self._task, self._broken, self._doubtful = None, None, None, []
        self._doing("start", "start")
        self.loop.watch(self._signals.fd, self._signalled)

    def run(self, store):
        """Ask everything, stop the server, save. CheckFailed."""
        limit_ns, self._task = self._settings.start_timeout_ns, self._tasks.start(self._flow(store))
        late = LazyError("no answer, timed out after %s (--start-timeout)" % format_duration(limit_ns))
        self.loop.set_timer("deadline", monotonic_s() + seconds(limit_ns), lambda: self._break(late))
        try:
            while not self._task.done:
                self.loop.turn()
        finally:
            self.sink.end()
            self.processes.wait_for_all(0)
            self.processes.close()
            self.loop.close()
        if self._task.error is not None:
            raise self._task.error

    def _doing(self, stage, what):
        self.stage, self._what = stage, what
        self.journal.line("check: %s" % what)
        self.sink.tell(what)

    def _break(self, error):
        """End the flow with an error, but not on the ladder."""
        if self.stage == "end":
            self._broken = error
        else:
            self._task.cancel(error)

    def _signalled(self):
        arrived = self._signals.read()
        for pid, status in self.processes.collect():
            if self._session is not None and pid == self._session.pid:
                self._session.ended(describe_exit(status))
        if arrived & set(STOP_SIGNALS):
            if self.stage == "end" and self._session is not None:  # the second one, or nothing is left to be asked
                self.processes.kill_group(self._session.pid, SIGKILL)
            self._break(CheckFailed("check interrupted", self.stage))

    async def _flow(self, store):
        try:
            await self._probes()
            for params_raw in self._plan.handshakes:
                await self._legacy(params_raw, self._session is None)
                if params_raw is self._plan.handshakes[-1]:
                    self.loop.clear_timer("deadline")
                await self._stop()
            self._doing("saving", "saving")
            await self._save(store)
        except (LazyError, OSError) as error:
            what = "cannot start the server" if self.stage == "start" else self._what
            failed = error if isinstance(error, CheckFailed) else CheckFailed(
                "%s: %s" % (self._settings.server_name, why_failed(error, what, self._session)), self.stage)
            try:
                await self._stop()
            except LazyError:  # why it failed is known
                pass
            raise failed from None

    def _open(self):
        """The session with the running server, a new one if there is none."""
        if self._session is None:
            self._doing("start", "start")
            self._session = Checked(self)
        return self._session

    async def _stop(self):
        """The ladder of A13."""
        session = self._session
        if session is None:
            return
        self._doing("end", "stopping")
        session.close_input()
        for wait_s, signum in ((CLOSE_WAIT_S, SIGTERM), (self._settings.stop_grace_s, SIGKILL), (KILL_WAIT_S, None)):
            try:
                await within(self._tasks, wait_s, session.exited)
                break
            except Silence:
                if signum is None:
                    raise LazyError("the server is not dead after SIGKILL") from None
                self.processes.kill_group(session.pid, signum)
        session.close()
        self._session = None
        if self._broken is not None:
            raise self._broken

    def _share_s(self):
        """How long silence is taken for an answer."""
        return seconds(self._settings.start_timeout_ns) / PROBE_SHARE

    async def _probes(self):
        """Each probe, and the lists where it is answered as a server of its era does (B17)."""
        limit_s, spoke = self._share_s(), False
        for params_raw in self._plan.probes:
            session, asked = self._open(), ModernRequest(params_raw)
            session.has_roots = "roots" in object_of(asked.meta.get(CAPABILITIES_KEY))
            self._doing("probe", DISCOVER)
            future = session.request(DISCOVER, params_raw)
            try:
                await self._discovered(asked, await within(self._tasks, limit_s, future))
                spoke = True
            except Silence:
                self._doubtful.append((asked, future))
                break
            except Refused as error:
                if future.error is not error:  # a list was refused
                    raise
                if error.rpc_code in UNCLEAR:
                    self._doubtful.append((asked, future))
                else:
                    self.findings.probe(asked, True, error.raw)
        if spoke:
            await self._stop()

    async def _discovered(self, asked, result):
        """A probe succeeded: lists and a subscription, if it names the version that was asked for."""
        found = parse_json(result)
        if isinstance(found, dict) and not isinstance(found.get("supportedVersions"), list):
            return  # some legacy servers answer {} to whatever they do not know
        PageSet(DISCOVER).add(result)
        entry = self.findings.probe(asked, False, result)
        versions, declared = found.get("supportedVersions"), object_of(found.get("capabilities"))
        if entry is None or not isinstance(versions, list) or asked.meta[VERSION_KEY] not in versions:
            return
        kinds = [kind for kind, name in STREAM_KINDS.items()
                 if object_of(declared.get(name)).get("listChanged") is True]
        lists = await self._lists(entry, declared, asked.meta_raw)
        if kinds or self._plan.client is not None:  # clients open it regardless
            await self._listen(entry, kinds or list(STREAM_KINDS), asked.meta_raw)
        self.findings.eras["modern"] = Heard(entry.version, server_info(entry), lists)

    async def _listen(self, entry, kinds, meta_raw):
        """Learn whether the server knows the stream that clients open at once."""
        self._doing("listing", "subscriptions/listen")
        session, either = self._session, Future()
        answer = session.request("subscriptions/listen", b'{"_meta":%s,"notifications":{%s}}' % (
            meta_raw, b",".join(json_string(kind) + b":true" for kind in kinds)))
        answer.when_done(either.set)
        session.acknowledged.when_done(either.set)
        try:
            await within(self._tasks, EXTRA_WAIT_S, either)
        except Silence:
            return
        entry.refuses_listen = isinstance(answer.error, Refused) and answer.error.rpc_code == METHOD_NOT_FOUND
        if not answer.done:
            session.notify("notifications/cancelled", b'{"requestId":%s}' % spell_id(session.newest_id()))

    async def _legacy(self, params_raw, fresh):
        """A handshake and its lists (B8); nothing where the server turns out to be modern only."""
        session, told = self._open(), parse_json(params_raw, exact=True)
        session.has_roots = "roots" in told["capabilities"]
        self._doing("handshake", "initialize")
        answer, modern = session.request("initialize", params_raw), fresh and "modern" in self.findings.eras
        try:
            result = await (within(self._tasks, self._share_s(), answer) if modern else answer)
        except (PeerError, Silence) as error:
            code = error.rpc_code if isinstance(error, Refused) else None
            if modern and code in UNCLEAR + RECORDED_ERRORS:
                self.findings.shelf.select(told)
                self.findings.entry(self.findings.shelf.entry.key())  # what was recorded before is no longer so (B12)
            if modern and (code is not None or isinstance(error, Silence) or session.exited.done):
                return  # it speaks the other era alone (B17)
            if fresh or code != UNSUPPORTED_VERSION:
                raise
            self._settle(legacy=False)
            await self._stop()
            await self._legacy(params_raw, True)
            return
        found = read_handshake(result)
        version = found["protocolVersion"]
        if version != told["protocolVersion"] and self._plan.client is None:
            raise PeerError("asked for protocol version %s, the server speaks %s: name that one in"
                            " MCP_LAZY_CHECK_INITIALIZE" % (told["protocolVersion"], version))
        self.findings.shelf.select(told)
        entry = self.findings.entry(self.findings.shelf.entry.key(), False, result)
        session.notify("notifications/initialized")
        lists = await self._lists(entry, found["capabilities"], b"")
        self._settle(legacy=True)
        entry.start_requests = sorted(set(session.asked))
        self.findings.eras["legacy"] = Heard(version, server_info(entry), lists)

    def _settle(self, legacy):
        """What probes without a clear answer are taken for, once the answer to the handshake is known."""
        for asked, future in self._doubtful:
            refused = isinstance(future.error, Refused) and future.error.rpc_code in UNCLEAR + (METHOD_NOT_FOUND,)
            if future.done and future.error is None and PageSet.is_whole(DISCOVER, future.value):  # late, but
                self.findings.probe(asked, False, future.value)
            elif legacy and refused:
                self.findings.probe(asked, True, NOT_FOUND)
        self._doubtful = []

    async def _lists(self, entry, declared, meta_raw):
        """{method: {cached, count, pages}} of the lists that a server declares, asked for in their order.

        As a known client also for the others behind them: clients ask, and -32601 is an answer too. These may fail.
        """
        lists, named = {}, [method for method in LISTS if declared.get(CAPABILITY_OF[method]) not in (None, False)]
        for method in named + [method for method in LISTS if self._plan.client is not None and method not in named]:
            self._doing("listing", method)
            pages, cursor, cached, strict = PageSet(method), None, True, method in named
            try:
                while cursor is not None or not pages.pages:
                    answer = self._session.request(method, list_params(meta_raw, cursor))
                    cursor = pages.add(await (answer if strict else within(self._tasks, EXTRA_WAIT_S, answer)))
                self.findings.put(entry, method, False, pages.pages)
            except Refused as error:
                # The capability `resources` does not promise templates: servers on Python SDK 1.x have none.
                absent = error.rpc_code == METHOD_NOT_FOUND and not pages.pages and (not strict or method == TEMPLATES)
                if strict and not absent:
                    raise
                if absent:
                    self.findings.put(entry, method, True, [error.raw])
            except (PeerError, Silence):
                cached = False
                if strict and not pages.too_long:
                    raise
            if strict:
                lists[method] = {"cached": cached, "count": item_count(method, pages), "pages": len(pages.pages)}
        return lists

    async def _save(self, store):
        """Write it all; CheckFailed if that does not work, or if the file belongs to a newer program."""
        store.attach(self)
        dirty = self.findings.dirty()
        while not store.save(dirty, monotonic_s()):
            dirty = set()
            await self._tasks.sleep(LOCK_RETRY_S)
        written = Recording(store.recording.program, store.recording.owner)
        if not written.read(read_private_file(store.path, MAX_RECORDING_BYTES) or b""):
            self.warn("%s is too large, or of a newer version of mcp-lazy" % store.path)

    def warn(self, text):
        """What a Store tells its Journal in a relay, where a recording that cannot be written stops nothing."""
        raise CheckFailed("saving cache: %s" % text, "saving")


def object_of(value):
    return value if isinstance(value, dict) else {}


def list_params(meta_raw, cursor):
    """The raw params of a list request; meta_raw b"" in the legacy era, cursor (raw) None for the first page."""
    parts = [b'"_meta":' + meta_raw] if meta_raw else []
    return b"{%s}" % b",".join(parts + ([b'"cursor":' + cursor] if cursor is not None else []))


def read_handshake(raw):
    """The parsed result of `initialize`. PeerError names what is wrong with it (B10)."""
    PageSet("initialize").add(raw)
    found = parse_json(raw)
    for name, kind in (("protocolVersion", str), ("capabilities", dict), ("serverInfo", dict)):
        if not isinstance(found.get(name), kind) or found[name] == "":
            raise PeerError("%s is missing or no %s" % (name, "text" if kind is str else "object"))
    for name in ("name", "version"):
        if not isinstance(found["serverInfo"].get(name), str):
            raise PeerError("serverInfo.%s is missing or no text" % name)
    return found

# ============================================================================
# L9b CACHE - recordings for people: list, show, check, clear, prune [I/O, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L6 L8b L8c L9
# Used by: L14b L15
# Owns:   read_words, Stored, stored_in, cache_command, prune_daily, table_lines, age_text, size_text
# Never:  starts a server; shows a word of a command that is not stored
# Tests:  tests/test_cache_command.py
# ----------------------------------------------------------------------------
# Theory: the folder of recordings belongs to many relays at work. Reading takes no lock, a
# file is replaced whole; removing one takes its lock, so that no writer lays its news over
# a file that is going. What a newer or older version wrote is shown and left alone.
# A file's mtime is its last use (a relay sets it once a day), which is what prune goes by.
# ----------------------------------------------------------------------------
UNUSED_S, LEFTOVER_S, PRUNE_EVERY_S = 90 * 86400.0, 86400.0, 86400.0
CACHE_USAGE = """usage: mcp-lazy cache list | show | check | clear | prune [options] [FILTER...]

  list    one line for each recording
  show    what is in them
  check   can each be read and used? exit status 1 if not
  clear   remove them; says what it removed, asks nothing
  prune   remove what nobody used for 90 days

  FILTER          only those whose command, key or server's name contains this text
  --era E         only those of the era legacy or modern
  --older-than D  only those recorded longer ago than D (like 36h or 30d)
  --cache-dir D   the folder, if not the one of MCP_LAZY_CACHE_DIR or the user's
  --json          one JSON document instead of text
"""
LIST_WORD = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
             "resources/templates/list": "templates"}

LIST = "list"  # an option that may be given more than once
CACHE_OPTIONS = {"json": BOOLEAN, "era": TEXT, "older-than": TEXT, "cache-dir": TEXT}

CacheWords = record("CacheWords", "folder as_json era older_s filters", "what follows `mcp-lazy cache ACTION`")


class Stored:
    """One file with the name of a recording. problem: why it cannot be used, None if it can; fault: is that damage?"""
    __slots__ = ("key", "path", "size", "used_s", "recording", "program", "command", "files", "problem", "fault")

    def __init__(self, folder, key, facts):
        self.key, self.path, self.recording, self.program = key, "%s/%s.json" % (folder, key), None, []
        self.files = []
        self.size, self.used_s, self.problem, self.fault, self.command = facts[0], facts[1], None, False, "?"
        raw = read_private_file(self.path, MAX_RECORDING_BYTES) if facts[2] else None
        if raw is None:
            self._is_bad("it is no regular file of yours of at most %s" % size_text(MAX_RECORDING_BYTES))
        else:
            self._read(raw)

    def _is_bad(self, problem, fault=True):
        self.problem, self.fault, self.recording = problem, fault, None

    def _read(self, raw):
        try:
            document = parse_json(b"".join([b"0" if n % 2 else line for n, line in enumerate(raw.split(b"\n")[:-1])]))
            schema = document["schema"]
            if schema != SCHEMA:
                return self._is_bad("it belongs to %s version" % ("a newer" if schema > SCHEMA else "an older"), False)
            self.recording = Recording([], document["owner"])
            self.program = [str(word) for word in document["program"]]
            self.files = [(str(one["path"]), one["size"], one["mtimeNs"]) for one in document.get("files", ())]
            self.command = " ".join(self.program)
            pages = self.recording.read(raw) and [
                page for answer in self.answers() for page in answer.pages if not isinstance(parse_json(page), dict)]
        except (ValueError, KeyError, TypeError, RecursionError):
            pages = False
        if pages is False:
            self._is_bad("it is damaged, or no recording")
        elif pages:
            self._is_bad("it is damaged: a result is no object")

    def answers(self):
        return [answer for entry in self.entries() for answer in entry.answers.values()] + list(
            self.recording.before.values() if self.recording else ())

    def entries(self):
        return [entry for entry in self.recording.entries.values() if entry.answers] if self.recording else []

    def recorded_s(self):
        """When its newest entry was recorded; the file's own time where that cannot be read."""
        return max([entry.recorded_at_ms() / 1000 for entry in self.entries()] or [self.used_s])

    def servers(self):
        """What its servers call themselves, sorted."""
        found = [object_of(parse_json(server_info(entry))).get("name") for entry in self.entries()]
        return sorted({name for name in found if isinstance(name, str)})

    def facts(self):
        """For JSON, and for the table."""
        lists = {}
        for entry in self.entries():
            for method in [method for method in entry.lists() if not entry.answers[method].is_error]:
                lists[method] = max(lists.get(method, 0), item_count(method, entry.answers[method]) or 0)
        return {"key": self.key, "path": self.path, "command": self.program, "servers": self.servers(),
                "bytes": self.size, "lists": lists,
                "eras": sorted({entry.era for entry in self.entries()}),
                "versions": sorted({entry.version for entry in self.entries()}),
                "recordedAt": int(self.recorded_s() * 1000), "usedAt": int(self.used_s * 1000), "problem": self.problem}


def stored_in(folder):
    """The Stored files of a folder: what has a key for its name, and recordings of a --name."""
    found = []
    for name in folder_names(folder):
        facts, key = file_facts(folder + "/" + name), name[:-5]
        if facts is not None and name[-5:] == ".json" and name[:1] != ".":
            item = Stored(folder, key, facts)
            if item.recording is not None or len(key) == 32 and not set(key) - set("0123456789abcdef"):
                found.append(item)
    return found


def cache_command(words):
    """`cache ACTION`: look at the recordings of a folder, or remove them."""
    actions = {"list": cache_list, "show": cache_show, "check": cache_check, "clear": cache_clear, "prune": cache_prune}
    if set(words) & {"-h", "-help", "--help"}:
        return say(CACHE_USAGE)
    if not words or words[0] not in actions:
        raise UsageError("cache needs one of its words\n" + CACHE_USAGE.rstrip())
    asked, now_s = read_cache_words(words[1:], current_environment()), wall_s()
    items = [item for item in stored_in(asked.folder) if is_asked_for(item, asked, now_s)]
    if words[0] == "show" and asked.filters and not items:
        raise LazyError("no recording in %s matches %s" % (asked.folder, " ".join(asked.filters)))
    if words[0] == "prune":
        remove_leftovers(asked.folder, now_s)
    found, lines, status = actions[words[0]](items, now_s)
    trouble = private_dir_trouble(asked.folder, create=False) if words[0] == "check" and items else None
    if trouble:
        raise LazyError("recordings in %s are not used: %s" % (asked.folder, trouble))
    if asked.as_json:
        return say(canonical(found) + "\n") or status
    text = "\n".join(printable(line).replace("\n", " ").rstrip() for line in lines)
    return say((text or "nothing to %s in %s" % (words[0], asked.folder)) + "\n") or status


def read_words(words, kinds, command):
    """({option: value}, other words) of what follows a command; kinds: {option: BOOLEAN, TEXT or LIST}. UsageError.

    Options may stand anywhere before a `--`; the last one wins, those of kind LIST are all kept.
    """
    given, others, at = {}, [], 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return given, others + words[at:]
        if word[:1] != "-" or len(word) < 2:
            others.append(word)
            continue
        name, equals, text = word[2 if word[:2] == "--" else 1:].partition("=")
        if name not in kinds:
            raise UsageError("%s: no such option: %s (%s --help tells more)" % (
                command, word.partition("=")[0], command.split()[0]))
        if kinds[name] == BOOLEAN:
            text = parse_switch(text if equals else "true", command, name)
        elif not equals:
            if at == len(words):
                raise UsageError("%s: --%s needs a value" % (command, name))
            text, at = words[at], at + 1
        given[name] = given.get(name, []) + [text] if kinds[name] == LIST else text
    return given, others


def parse_switch(text, command, name):
    try:
        return parse_bool(text)
    except ValueError as error:
        raise UsageError("%s: --%s: %s" % (command, name, error)) from None


def read_cache_words(words, environment):
    """CacheWords of the words behind the action. UsageError."""
    given, filters = read_words(words, CACHE_OPTIONS, "cache")
    if "" in filters:
        raise UsageError("cache: an empty FILTER would be every recording; leave it out to say that")
    if given.get("era", "legacy") not in OPENING:
        raise UsageError("cache: --era is legacy or modern, not %r" % given["era"])
    folder = given.get("cache-dir") or filesystem_text(environment.get(b"MCP_LAZY_CACHE_DIR") or b"")
    older_s = older_than_s(given.get("older-than", "0"))
    return CacheWords(folder or user_cache_dir(environment), given.get("json", False), given.get("era"),
                      older_s, filters)


def older_than_s(text):
    """Seconds of --older-than: a duration, or whole days."""
    try:
        days = text[-1:] == "d" and text[:-1].isdigit()
        found = float(text[:-1]) * 86400 if days else seconds(parse_duration(text))
    except ValueError:
        found = -1
    if found < 0:
        raise UsageError("cache: --older-than is a time like 36h or 30d, not %r" % text)
    return found


def is_asked_for(item, asked, now_s):
    words = [item.key, item.command] + item.servers()
    return ((not asked.filters or any(text in word for text in asked.filters for word in words))
            and (asked.era is None or any(entry.era == asked.era for entry in item.entries()))
            and (not asked.older_s or now_s - item.recorded_s() > asked.older_s))


def cache_list(items, now_s):
    """(for JSON, lines, exit status): one row for each."""
    rows, all_facts = [("KEY", "ERAS", "VERSIONS", "LISTS", "AGE", "SIZE", "USED", "SERVER", "COMMAND")], []
    for item in items:
        facts = dict(item.facts(), problem=item.problem or program_trouble(item))
        lists = ["%s %d" % (LIST_WORD[method], facts["lists"][method]) for method in LISTS if method in facts["lists"]]
        rows.append((item.key[:8], ",".join(facts["eras"]) or "-", ",".join(facts["versions"]) or "-",
                     ", ".join(lists) or "-", age_text(now_s - item.recorded_s()), size_text(item.size),
                     age_text(now_s - item.used_s), ",".join(facts["servers"]) or "-",
                     item.command if facts["problem"] is None else "(%s)" % facts["problem"]))
        all_facts.append(facts)
    return all_facts, table_lines(rows) if items else [], EXIT_OK


def table_lines(rows):
    """Rows of words as lines; the last column is as wide as it is."""
    widths = [max(map(len, column)) for column in list(zip(*rows))[:-1]]
    return ["  ".join([word.ljust(width) for word, width in zip(row, widths)] + [row[-1]]) for row in rows]


def cache_show(items, now_s):
    """(for JSON, lines, exit status): all that is in them."""
    found, lines = [], []
    for item in items:
        facts, details = item.facts(), list(map(entry_details, item.entries()))
        found.append(dict(facts, entries=details))
        lines += ["%s  %s" % (item.key, item.problem or item.command),
                  "  %s, %s, used %s ago" % (item.path, size_text(item.size), age_text(now_s - item.used_s))]
        for detail in details:
            info = detail["serverInfo"]
            lines.append("  %s %s, server %s %s, recorded %s ago, capabilities %s" % (
                detail["era"], detail["version"], info.get("name", "?"), info.get("version", "?"),
                age_text(now_s - detail["recordedAt"] / 1000), detail["capabilities"][:8]))
            lines += ["    %-24s %s" % (method, list_text(names)) for method, names in detail["lists"].items()]
    return found, lines, EXIT_OK


def list_text(names):
    """What was recorded of a list: its names, or the code of the error."""
    return "%d: %s" % (len(names), ", ".join(names)) if isinstance(names, list) else "error %s" % names


def entry_details(entry):
    """One entry for `cache show`: names instead of results; the code of an error in the place of a list."""
    lists = {}
    for method in entry.lists():
        answer, names = entry.answers[method], []
        if answer.is_error:
            lists[method] = error_code({"error": answer.pages[0]})
            continue
        for page in answer.pages:
            found = parse_json(page).get(LIST_MEMBER[method])
            names += [str(object_of(one).get("name")) for one in found] if isinstance(found, list) else []
        lists[method] = names
    return {"era": entry.era, "version": entry.version, "capabilities": entry.capabilities, "scope": entry.scope,
            "lists": lists, "recordedAt": entry.recorded_at_ms(), "startRequests": entry.start_requests,
            "refusesListen": entry.refuses_listen, "serverInfo": object_of(parse_json(server_info(entry)))}


def cache_check(items, now_s):
    """(for JSON, lines, exit status): which of them are of no use."""
    found, lines, status = [], [], EXIT_OK
    for item in items:
        problem = item.problem or program_trouble(item)
        status = EXIT_FAILED if problem and (item.fault or item.problem is None) else status
        found.append(dict(item.facts(), problem=problem))
        lines.append("%s  %s  %s" % (item.key, item.command, "not usable: %s" % problem if problem else "ok"))
    return found, lines, status


def program_trouble(item):
    """Why a recording's program is another one now, or None: size and time of its files are part of the key."""
    for path, size, mtime_ns in item.files:
        seen = program_stat(path)
        if seen is None:
            return "the program file %s is gone" % path
        if seen[:2] != (size, mtime_ns):
            return "the program file %s has changed" % path
    return None


def cache_clear(items, now_s):
    """(for JSON, lines, exit status): remove them all."""
    lines, status = [], EXIT_OK
    for item in items:
        trouble = remove_recording(item)
        status = EXIT_FAILED if trouble else status
        lines.append("%s %s  %s" % ("not removed (%s):" % trouble if trouble else "removed", item.key, item.command))
    return [item.facts() for item in items], lines, status


def remove_recording(item):
    """None, or why it is still there. Its lock file goes with it."""
    lock_path = item.path[:-len("json")] + "lock"
    try:
        lock = lock_file(lock_path)
    except OSError:  # then it is not to be had for writers either
        return remove_file(item.path)
    if lock is None:
        return "it is being written"
    trouble = remove_file(item.path) or remove_file(lock_path)
    close_quietly(lock)
    return trouble


def cache_prune(items, now_s):
    """(for JSON, lines, exit status): remove what nobody used for long."""
    unused = [item for item in items if now_s - item.used_s > UNUSED_S]
    ours = [item for item in unused if item.problem is None or item.fault]  # other versions note no use
    return cache_clear(ours, now_s)


def remove_leftovers(folder, now_s):
    """What writers left that were killed."""
    for name in folder_names(folder):
        facts = file_facts(folder + "/" + name) if name[:5] == ".tmp-" else None
        if facts is not None and now_s - facts[1] > LEFTOVER_S:
            remove_file(folder + "/" + name)


def prune_daily(folder):
    """Prune behind a check, at most once a day; a file without content keeps the time (A5.10)."""
    stamp, now_s = folder + "/.pruned", wall_s()
    facts = file_facts(stamp)
    if facts is not None and 0 <= now_s - facts[1] < PRUNE_EVERY_S:
        return
    try:
        replace_file(stamp, b"")
    except OSError:
        return
    remove_leftovers(folder, now_s)
    cache_prune(stored_in(folder), now_s)


def age_text(age_s):
    """A time span in one unit: 12 s, 5 min, 30 h, 3 d."""
    for unit, size_s, limit_s in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if age_s < limit_s:
            return "%d %s" % (max(0, age_s) // size_s, unit)
    return "%d d" % (age_s // 86400)


def size_text(size):
    """A number of bytes: 812 B, 3.4 KiB, 64.0 MiB."""
    if size < 1024:
        return "%d B" % size
    return "%.1f KiB" % (size / 1024) if size < 1024 * 1024 else "%.1f MiB" % (size / 1024 / 1024)

# ============================================================================
# L10 TOML - generated copy of the TOML editor in vendor           [pure, cold]
# ----------------------------------------------------------------------------
# Uses:   -
# Used by: L11
# Owns:   toml_document, toml_same, toml_apply, TomlError
# Never:  is edited here: tools/embed.py copies vendor/toml_edit.py between the two markers
# Tests:  tests/test_l10_toml.py
# ----------------------------------------------------------------------------
# == toml_edit begin: sha256 2e995ea7366a961be42ecdaef11bab66408b59df117d835885778e24ce9ee3fa, do not edit here ==
"""A TOML 1.1 reader that knows where everything stands, and an editor that changes nothing else.

    document = toml_document(raw)              bytes in; TomlError where they are no TOML 1.1
    document.value                             plain dict, list, str, bool, int, float; TomlTime for dates and times
    document.find(("servers", "a", "args"))    a TomlPlace, or None
    edits = document.edits([(("servers", "a", "args"), ["x", "y"])])
    raw = toml_apply(raw, edits)               what is written is valid TOML 1.0

Nothing is ever printed anew: an edit is a span of the old bytes and the bytes that take its place, so comments, order,
line ends and spellings elsewhere cannot change. The reader works on the file decoded as Latin-1, in which an index is a
byte offset; what stands in strings and keys is decoded from its bytes. No pattern has a repeat inside a repeat, and
nesting is kept on lists of its own: time and memory grow with the size of the file, whatever stands in it.
"""

# How deep a value may lie: parts of headers and dotted keys, arrays and inline tables together. Low enough that whoever
# gets the value may still copy, compare or print it by recursion.
TOML_MAX_DEPTH = 300
# Turning digits into a number takes more than linear time, and nobody registers a number of this size.
_TOML_MAX_DIGITS = 50000
_TOML_BOM = b"\xef\xbb\xbf"
_TOML_WORDS = {"true": True, "false": False, "inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"),
               "nan": float("nan"), "+nan": float("nan"), "-nan": float("nan")}
_TOML_UNESCAPED = {'"': '"', "\\": "\\", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TOML_ESCAPED = {**{code: "\\u%04X" % code for code in (*range(32), 127)},
                 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_TOML_WHAT = {"inline table": "an inline table", "array of tables": "an array of tables",
              "table": "a table with a header", "dotted table": "a table made of dotted keys",
              "implicit table": "a table that only sub-tables name"}
_TOML_TYPES = {bool: "a boolean", int: "an integer", float: "a float", list: "an array", str: "a string"}


class TomlError(ValueError):
    """The bytes are no TOML, or the change cannot be made; line and column count from 1, 0 where there is no place."""

    def __init__(self, text, line=0, column=0):
        super().__init__("line %d, column %d: %s" % (line, column, text) if line else text)
        self.text, self.line, self.column = text, line, column


class TomlTime(str):
    """A date or time as it is spelled; kind: offset datetime, local datetime, local date, local time."""
    __slots__ = ("kind",)

    def __new__(cls, text, kind=""):
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class TomlPlace:
    """Where a key stands: value, span, member, line, kind.

    span: byte offsets (start, end) of the value, None for tables that are not one piece of text; member: the same from
    the first byte of its key, all of it where it is dotted; line: of the key or header, from 1; kind: value, table
    (with a header), inline table, dotted table, implicit table (only headers below name it), array of tables.
    """
    __slots__ = ("value", "span", "member", "line", "kind")

    def __init__(self, node, line):
        whole = node.kind in ("value", "inline table")
        self.value, self.kind, self.line = node.value, node.kind, line
        self.span = (node.start, node.end) if whole else None
        self.member = (node.key, node.end) if whole else None


class _TomlNode:
    """One value, or one table: its decoded value and its offsets.

    key: where its expression or header begins (of dotted and implicit tables: the first one that names them);
    start, end: the value's text, the header of a table.
    """
    __slots__ = ("kind", "value", "key", "start", "end")
    members = None      # of whatever is no table

    def __init__(self, kind, value, key, start, end=0):
        self.kind, self.value, self.key, self.start, self.end = kind, value, key, start, end


class _TomlTable(_TomlNode):
    """members: {key: node}; first: offset of the table's first key line, or -1.

    Of an inline table, items are the nodes of its expressions in order, and commas the offsets of the commas behind
    them. Of an array of tables, items are its tables (and it has no members).
    """
    __slots__ = ("members", "first", "items", "commas")

    def __init__(self, kind, key, start, end=0):
        super().__init__(kind, {}, key, start, end)
        self.members, self.first, self.items, self.commas = {}, -1, [], []


class _TomlPatterns:
    """The compiled patterns; `re` is imported and keeps them from the first document on."""

    def __init__(self):
        import re
        control = r"\x00-\x08\x0a-\x1f\x7f"      # no tab
        date = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
        clock = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?"
        digits = r"[0-9][0-9_]*"
        self.blank = re.compile(r"[ \t]*").match
        self.space = re.compile(r"[ \t\n]*").match
        self.comment = re.compile(r"#[^%s]*" % control).match
        self.line_end = re.compile(r"[ \t]*(?:#[^%s]*)?(?:\r?\n|\Z)" % control).match
        self.bare = re.compile(r"[A-Za-z0-9_-]+").match
        self.token = re.compile(r"[A-Za-z0-9_+.:-]*").match
        self.short = {'"': re.compile(r'[^"\\%s]*' % control).match, "'": re.compile("[^'%s]*" % control).match}
        control = r"\x00-\x08\x0b-\x1f\x7f"      # nor line feed
        self.long = {'"': re.compile(r'[^"\\%s]*' % control).match, "'": re.compile("[^'%s]*" % control).match}
        self.quotes = re.compile("\"{1,5}|'{1,5}").match
        self.escape = re.compile(r'\\(?:(["\\befnrt])|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))').match
        self.fold = re.compile(r"\\[ \t]*\r?\n[ \t\r\n]*").match
        self.integer = re.compile(r"[+-]?(?:0|[1-9][0-9_]*)").fullmatch
        self.float = re.compile(r"[+-]?(?:0|[1-9][0-9_]*)(?:\.%s)?(?:[eE][+-]?%s)?" % (digits, digits)).fullmatch
        self.based = re.compile(r"0(?:x[0-9A-Fa-f][0-9A-Fa-f_]*|o[0-7][0-7_]*|b[01][01_]*)").fullmatch
        self.loose = re.compile(r"_(?![0-9A-Fa-f])").search
        self.loose_decimal = re.compile(r"_(?![0-9])").search
        self.moment = re.compile(date + r"(?:[Tt ]" + clock + r"([Zz]|[+-]([0-9]{2}):([0-9]{2}))?)?").match
        self.clock = re.compile(clock).match


class _TomlScanner:
    """Tokens of a file: each method takes an offset and gives what stands there and the offset behind it."""

    def __init__(self, raw):
        self.raw, self.text, self.ascii, self.find = raw, raw.decode("latin-1"), raw.isascii(), _TomlPatterns()

    def error(self, text, pos):
        return TomlError(text, *_toml_position(self.raw, pos))

    def wrong(self, pos, wanted):
        """The error that something else than `wanted` stands at an offset."""
        char = self.text[pos:pos + 1]
        if not char:
            seen = "end of file"
        elif char == "\n" or self.text.startswith("\r\n", pos):
            seen = "end of line"
        elif char == "\r":
            seen = "carriage return without line feed"
        elif self.raw.startswith(_TOML_BOM, pos):
            seen = "byte-order mark that is not at the start of the file"
        elif char < " " or char == "\x7f":
            seen = "control character U+%04X" % ord(char)
        else:
            char = self.raw[pos:pos + 4].decode("utf-8", "ignore")[0]
            seen = "`%s`" % char if char.isprintable() else "character U+%04X" % ord(char)
        return self.error("%s, but %s is expected" % (seen, wanted), pos)

    def decoded(self, start, end):
        return self.text[start:end] if self.ascii else self.raw[start:end].decode("utf-8")

    def skip(self, pos):
        """Over blanks, line ends and comments."""
        while True:
            pos = self.find.space(self.text, pos).end()
            char = self.text[pos:pos + 1]
            if char == "#":
                pos = self.find.comment(self.text, pos).end()
            elif char == "\r" and self.text.startswith("\r\n", pos):
                pos += 2
            else:
                return pos

    def end_line(self, pos):
        """Over blanks, a comment and the line end, which have to follow."""
        found = self.find.line_end(self.text, pos)
        if found:
            return found.end()
        pos = self.find.blank(self.text, pos).end()
        comment = self.find.comment(self.text, pos)
        raise self.wrong(comment.end() if comment else pos, "end of line")

    def keys(self, pos, most=0):
        """A dotted key: its parts, the offset right behind the last one. most: take no more parts, if not 0."""
        parts = []
        while True:
            found = self.find.bare(self.text, pos)
            if found:
                part, end = found.group(), found.end()
            elif self.text[pos:pos + 1] in ('"', "'"):
                part, end = self.string(pos)
            else:
                raise self.wrong(pos, "a key (letters, digits, _ and - need no quotes)")
            parts.append(part)
            dot = self.find.blank(self.text, end).end()
            if self.text[dot:dot + 1] != "." or len(parts) == most:
                return parts, end
            if len(parts) > TOML_MAX_DEPTH:
                raise self.too_deep(pos)
            pos = self.find.blank(self.text, dot + 1).end()

    def too_deep(self, pos):
        return self.error("nested more than %d levels deep" % TOML_MAX_DEPTH, pos)

    def scalar(self, pos):
        """A value that is no array and no inline table."""
        char = self.text[pos:pos + 1]
        if char in ('"', "'"):
            return self.long_string(pos) if self.text.startswith(char * 3, pos) else self.string(pos)
        token = self.find.token(self.text, pos).group()
        if token in _TOML_WORDS:
            return _TOML_WORDS[token], pos + len(token)
        if self.find.integer(token) and not self.find.loose_decimal(token):
            return self.integer(token, pos), pos + len(token)
        if self.find.float(token) and not self.find.loose_decimal(token):
            return float(token.replace("_", "")), pos + len(token)
        if self.find.based(token) and not self.find.loose(token):
            return int(token, 0), pos + len(token)
        if token[4:5] == "-" or token[2:3] == ":":
            return self.moment(pos)
        if token:
            raise self.error("no value that TOML knows (text needs quotes)", pos)
        raise self.wrong(pos, "a value")

    def integer(self, token, pos):
        digits = token.replace("_", "").lstrip("+-")
        if len(digits) > _TOML_MAX_DIGITS:
            raise self.error("integer of more than %d digits" % _TOML_MAX_DIGITS, pos)
        return _toml_integer(digits) * (-1 if token[0] == "-" else 1)

    def moment(self, pos):
        """A date, a time, or both."""
        found, zone = self.find.moment(self.text, pos), None
        if found:
            year, month, day, hour, minute, second, zone, *offset = found.groups()
        else:
            found = self.find.clock(self.text, pos)
            if not found:
                raise self.error("no date or time", pos)
            year, month, day, offset, (hour, minute, second) = "2000", "01", "01", (None, None), found.groups()
        leap = year[2:] != "00" and int(year) % 4 == 0 or int(year) % 400 == 0
        most = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
        # RFC 3339 has leap seconds.
        if not ("01" <= month <= "12" and 1 <= int(day) <= most[int(month) - 1] and (hour or "00") <= "23"
                and (minute or "00") <= "59" and (second or "00") <= "60"
                and (offset[0] or "00") <= "23" and (offset[1] or "00") <= "59"):
            raise self.error("there is no such date or time", pos)
        day_kind = "offset datetime" if zone else "local datetime" if hour else "local date"
        return TomlTime(found.group(), "local time" if found.re.groups == 3 else day_kind), found.end()

    def string(self, pos):
        """A string on one line."""
        quote, parts = self.text[pos], []
        start = pos + 1
        while True:
            end = self.find.short[quote](self.text, start).end()
            char = self.text[end:end + 1]
            if char == quote:
                text = self.decoded(start, end)
                return ("".join(parts) + text if parts else text), end + 1
            if char != "\\":
                if char in ("", "\n") or self.text.startswith("\r\n", end):
                    raise self.error("string without closing quote", pos)
                raise self.wrong(end, "text or the closing quote of a string")
            parts.append(self.decoded(start, end))
            text, start = self.unescaped(end)
            parts.append(text)

    def long_string(self, pos):
        """A string between three quotes; its line ends become line feeds, as TOML allows."""
        quote, parts = self.text[pos], []
        start = pos + 3
        start += 1 if self.text.startswith("\n", start) else 2 if self.text.startswith("\r\n", start) else 0
        while True:
            end = self.find.long[quote](self.text, start).end()
            parts.append(self.decoded(start, end))
            char = self.text[end:end + 1]
            if char == quote:
                start = self.find.quotes(self.text, end).end()
                if start - end >= 3:
                    return "".join(parts) + quote * (start - end - 3), start
                text = self.text[end:start]
            elif char == "\\":
                text, start = self.folded(end) or self.unescaped(end)
            elif self.text.startswith("\r\n", end):
                text, start = "\n", end + 2
            elif not char:
                raise self.error("string without closing quotes", pos)
            else:
                raise self.wrong(end, "text or the closing quotes of a string")
            parts.append(text)

    def folded(self, pos):
        """Over a backslash at the end of a line and all white space behind it; None if it stands elsewhere."""
        found = self.find.fold(self.text, pos)
        if not found:
            return None
        lone = found.group().replace("\r\n", "  ").find("\r")
        if lone >= 0:
            raise self.wrong(pos + lone, "white space or text")
        return "", found.end()

    def unescaped(self, pos):
        """The character of an escape sequence."""
        found = self.find.escape(self.text, pos)
        if not found:
            char = self.raw[pos + 1:pos + 5].decode("utf-8", "ignore")[:1]
            raise self.error("`\\%s` is no escape sequence" % (char if char.isprintable() else ""), pos)
        simple, *coded = found.groups()
        if simple:
            return _TOML_UNESCAPED[simple], found.end()
        code = int(next(filter(None, coded)), 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self.error("`%s` is no character" % found.group(), pos)
        return chr(code), found.end()


def _toml_integer(digits):
    """The number of decimal digits, in pieces: newer Pythons refuse more than 4,300 at once."""
    if len(digits) <= 4000:
        return int(digits)
    half = len(digits) // 2
    return _toml_integer(digits[:-half]) * 10 ** half + _toml_integer(digits[-half:])


def _toml_position(raw, pos):
    """(line, column) of a byte offset, from 1, in characters; a byte-order mark is none."""
    start = raw.rfind(b"\n", 0, pos) + 1 or len(_TOML_BOM) * raw.startswith(_TOML_BOM)
    return raw.count(b"\n", 0, pos) + 1, len(raw[start:pos].decode("utf-8", "replace")) + 1


class _TomlParser:
    """Reads a whole file into a tree of nodes; `root` is its top."""

    def __init__(self, raw):
        self.scan = _TomlScanner(raw)
        self.root = self.table = _TomlTable("table", 0, 0)
        self.depth = 0      # of what stands directly in `table`, the table that key lines belong to

    def parse(self, pos):
        text = self.scan.text
        while True:
            pos = self.scan.skip(pos)
            if pos == len(text):
                return self.root
            pos = self.header(pos) if text[pos] == "[" else self.expression(pos)

    def header(self, pos):
        """Over the line of a header, which becomes the table of what follows."""
        scan, text = self.scan, self.scan.text
        brackets = 2 if text.startswith("[[", pos) else 1
        keys, end = scan.keys(scan.find.blank(text, pos + brackets).end())
        end = scan.find.blank(text, end).end()
        if not text.startswith("]" * brackets, end):
            raise scan.wrong(end, "`.` or `%s`" % ("]" * brackets))
        end += brackets
        table, self.depth = self.root, len(keys) + brackets - 1
        for key in keys[:-1]:
            table = self.above(table, key, pos)
        if self.depth > TOML_MAX_DEPTH:
            raise scan.too_deep(pos)
        define = self.element if brackets == 2 else self.defined
        self.table = define(table, keys[-1], _TomlTable("table", pos, pos, end))
        return scan.end_line(end)

    def above(self, table, key, pos):
        """The table that a part of a header names which is not its last."""
        node = table.members.get(key)
        if node is None:
            node = table.members[key] = _TomlTable("implicit table", pos, pos)
            table.value[key] = node.value
        elif node.kind == "array of tables":
            self.depth += 1
            node = node.items[-1]
        elif node.kind in ("value", "inline table"):
            raise self.twice(node, key, pos)
        return node

    def defined(self, table, key, new):
        """The table that a header in single brackets defines: a new one, or one that was implicit so far."""
        node = table.members.get(key)
        if node is None:
            table.members[key], table.value[key] = new, new.value
            return new
        if node.kind != "implicit table":
            raise self.twice(node, key, new.key)
        node.kind, node.key, node.start, node.end = new.kind, new.key, new.start, new.end
        return node

    def element(self, table, key, new):
        """The next table of the array of tables that a header in double brackets names."""
        node = table.members.get(key)
        if node is None:
            node = table.members[key] = _TomlTable("array of tables", new.key, new.start, new.end)
            node.members, node.value = None, []
            table.value[key] = node.value
        elif node.kind != "array of tables":
            raise self.twice(node, key, new.key)
        node.items.append(new)
        node.value.append(new.value)
        return new

    def expression(self, pos):
        """Over a line `key = value`."""
        keys, at = self.assigned(pos)
        depth = self.depth + len(keys)
        if self.scan.text[at] in "[{":
            node = self.nested(at, pos, depth)
        elif depth > TOML_MAX_DEPTH:
            raise self.scan.too_deep(pos)
        else:
            value, end = self.scan.scalar(at)
            node = _TomlNode("value", value, pos, at, end)
        if self.table.first < 0:
            self.table.first = pos
        self.add(self.table, keys, node)
        return self.scan.end_line(node.end)

    def assigned(self, pos):
        """(parts of the key, offset of the value)"""
        scan, text = self.scan, self.scan.text
        keys, end = scan.keys(pos)
        end = scan.find.blank(text, end).end()
        if text[end:end + 1] != "=":
            raise scan.wrong(end, "`=`")
        at = scan.find.blank(text, end + 1).end()
        if text[at:at + 1] in ("", "\n", "#") or text.startswith("\r\n", at):
            raise scan.error("no value behind `=`", end)
        return keys, at

    def add(self, table, keys, node):
        """Put a value into a table, under a dotted key."""
        for key in keys[:-1]:
            inner = table.members.get(key)
            if inner is None:
                inner = table.members[key] = _TomlTable("dotted table", node.key, node.key)
                table.value[key] = inner.value
            elif inner.kind == "implicit table":    # named by headers so far: as long as it has none of its own
                inner.kind = "dotted table"
            elif inner.kind != "dotted table":
                raise self.twice(inner, key, node.key)
            table = inner
        key = keys[-1]
        if key in table.members:
            raise self.twice(table.members[key], key, node.key)
        table.members[key], table.value[key] = node, node.value

    def twice(self, node, key, pos):
        line = _toml_position(self.scan.raw, node.key)[0]
        return self.scan.error("`%s` is there already: %s in line %d" % (_toml_key(key), _toml_what(node), line), pos)

    def nested(self, pos, key, depth):
        """The node of the array or inline table at `pos`, whose expression began at `key`."""
        scan, text = self.scan, self.scan.text
        keys, stack = (), []    # [(array or inline table that is open, its keys in the one around it, its depth)]
        while True:
            if depth > TOML_MAX_DEPTH:
                raise scan.too_deep(pos)
            char = text[pos:pos + 1]
            if char == "[" or char == "{":
                opened = _TomlTable("inline table", key, pos) if char == "{" else _TomlNode("value", [], key, pos)
                stack.append((opened, keys, depth))
                pos = scan.skip(pos + 1)
            else:
                value, end = scan.scalar(pos)
                pos = self.attach(stack[-1][0], keys, _TomlNode("value", value, key, pos, end))
            while text[pos:pos + 1] == ("}" if stack[-1][0].members is not None else "]"):
                done, keys, depth = stack.pop()
                done.end = pos + 1
                if not stack:
                    return done
                pos = self.attach(stack[-1][0], keys, done)
            key, keys, depth = pos, (), stack[-1][2] + 1
            if stack[-1][0].members is not None:
                keys, pos = self.assigned(pos)
                depth += len(keys) - 1

    def attach(self, around, keys, node):
        """Put a complete value into the array or table around it; the offset of what follows it or its comma."""
        inline = around.members is not None
        if inline:
            self.add(around, keys, node)
            around.items.append(node)
        else:
            around.value.append(node.value)
        pos = self.scan.skip(node.end)
        if self.scan.text.startswith(",", pos):
            if inline:
                around.commas.append(pos)
            return self.scan.skip(pos + 1)
        if not self.scan.text.startswith("}" if inline else "]", pos):
            raise self.scan.wrong(pos, "`,` or `}`" if inline else "`,` or `]`")
        return pos


def _toml_what(node):
    """What a node is, in words."""
    if node.kind == "value":
        return "a " + node.value.kind if isinstance(node.value, TomlTime) else _TOML_TYPES[type(node.value)]
    return _TOML_WHAT[node.kind]


def _toml_path(path):
    return ".".join(map(_toml_key, path))


def _toml_key(key):
    """A part of a key: bare where that is allowed."""
    bare = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if bare else '"%s"' % key.translate(_TOML_ESCAPED)


def _toml_text(value):
    """One line of TOML 1.0: a string, an array of strings, or an inline table of strings, sorted."""
    if isinstance(value, str):
        return '"%s"' % value.translate(_TOML_ESCAPED)
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(_toml_text, value))
    if isinstance(value, dict):
        members = ["%s = %s" % (_toml_key(key), _toml_text(value[key])) for key in sorted(value)]
        return "{ %s }" % ", ".join(members) if members else "{}"
    raise TypeError("cannot write %s" % type(value).__name__)


def toml_document(raw):
    """A TomlDocument of the bytes of a file; TomlError where they are no TOML 1.1 in UTF-8."""
    return TomlDocument(raw)


def toml_apply(raw, edits):
    """The bytes after the edits, which are as `TomlDocument.edits` gives them."""
    pieces, at = [], 0
    for _, start, end, new, _ in edits:
        pieces += [raw[at:start], new]
        at = end
    return b"".join(pieces) + raw[at:]


def toml_same(one, other):
    """Deep equality, at any depth: 1, True and 1.0 differ, 0.0 and -0.0 too, NaN is equal to itself."""
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            if one.keys() != other.keys():
                return False
            pairs.extend((one[key], other[key]) for key in one)
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other))
        elif repr(one) != repr(other) if isinstance(one, float) else one != other:
            return False
    return True


def _toml_checked(raw):
    """The offset behind the byte-order mark; TomlError for another encoding, named as far as it can be told."""
    name = "UTF-32" if raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")) \
        else "UTF-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) \
        else "UTF-16 or UTF-32" if len(raw) > 1 and (raw[0] == 0) != (raw[1] == 0) else ""
    if name:
        raise TomlError("the file is %s, it has to be UTF-8" % name, 1, 1)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TomlError("not UTF-8: byte 0x%02X at offset %d" % (raw[error.start], error.start),
                        *_toml_position(raw, error.start)) from None
    return len(_TOML_BOM) * raw.startswith(_TOML_BOM)


class TomlDocument:
    """One file: raw, value, and where each key of it stands."""

    def __init__(self, raw):
        start, parser = _toml_checked(raw), _TomlParser(raw)
        self.raw, self.scan, self.root = raw, parser.scan, parser.parse(start)
        self.value = self.root.value

    def find(self, path):
        """The TomlPlace of a path of keys (a tuple of str, dots mean nothing), or None.

        TomlError where the path goes through a value that is no table, or through an array of tables.
        """
        nodes = self.walk(path)
        return TomlPlace(nodes[-1], _toml_position(self.raw, nodes[-1].key)[0]) if len(nodes) > len(path) else None

    def edits(self, changes):
        """[(path, start, end, new, at)] for [(path, value)], sorted by offset and free of overlaps.

        value: str, list of str, dict of str to str, or None to remove. at: offset in `new` of the first byte of the
        inserted key, None for replacements and removals. A removal may take several pieces, all with its path; what a
        table needs to remain a table (`= {}`, a header) stays in the place of one. TomlError where a change is not
        possible: its parent is absent, it is absent and to be removed, a table with lines of its own is to become a
        value, two changes overlap. New members of an empty `{}` can be cut out again all together, not one by one.
        """
        return _TomlEditor(self, changes).edits()

    def walk(self, path):
        """The nodes from the top along a path, as far as they are there."""
        nodes = [self.root]
        for index, key in enumerate(path):
            node = nodes[-1]
            if node.members is None:
                raise TomlError("`%s` is %s, not a table" % (_toml_path(path[:index]), _toml_what(node)),
                                *_toml_position(self.raw, node.key))
            if key not in node.members:
                break
            nodes.append(node.members[key])
        return nodes


class _TomlEditor:
    """Turns the changes of one call into edits."""

    def __init__(self, document, changes):
        self.document, self.raw, self.text = document, document.raw, document.scan.text
        self.changes = [(tuple(path), value) for path, value in changes]
        self.removed = {path for path, value in self.changes if value is None}
        self.made = []      # the edits
        self.braces = {}    # {offset of an inline table: (node, {id of a removed node: path}, [(path, keys, value)])}
        self.kept = {}      # {offset of an expression or header: what stays of it because its table would vanish}

    def edits(self):
        paths = sorted(path for path, _ in self.changes)
        for path, following in zip(paths, paths[1:]):
            if following[:len(path)] == path:
                raise self.refused("two changes overlap at `%s`", path)
        for path in sorted(self.removed):
            self.keep(path)
        for path, value in self.changes:
            self.change(path, value)
        for table, gone, new in self.braces.values():
            self.thin_out(table, gone)
            self.fill(table, gone, new)
        return sorted(self.made, key=lambda edit: edit[1:3])

    def edit(self, path, start, end, text, at=None):
        try:
            self.made.append((path, start, end, text.encode("utf-8"), at))
        except UnicodeEncodeError:
            raise TomlError("half of a surrogate pair: TOML can hold no such text") from None

    def refused(self, text, path, node=None):
        place = (0, 0) if node is None else _toml_position(self.raw, node.key)
        return TomlError(text % _toml_path(path), *place)

    def change(self, path, value):
        nodes = self.document.walk(path)
        node = nodes[-1]
        if len(nodes) < len(path):
            raise self.refused("`%s` is not there", path[:len(nodes)])
        if len(nodes) == len(path):
            if value is None:
                raise self.refused("`%s` is not there", path)
            self.insert(path, nodes, value)
        elif node is self.document.root:
            raise self.refused("the whole file is no value%s", path)
        elif node.kind == "array of tables":
            raise self.refused("`%s` is an array of tables", path, node)
        elif value is None:
            self.remove(path, nodes)
        elif node.kind in ("value", "inline table"):
            self.edit(path, node.start, node.end, _toml_text(value))
        else:
            raise self.refused("`%s` is " + _toml_what(node) + ": its keys can be set one by one", path, node)

    def insert(self, path, nodes, value):
        """A new key: into the braces, or below the header, of the deepest table around it that has some."""
        base = _toml_base(nodes)
        table, keys = nodes[base], path[base:]
        if table.kind == "inline table":
            self.brace(table)[2].append((path, keys, value))
            return
        indent = self.indent(table.first)
        line = "%s%s = %s" % (indent, _toml_path(keys), _toml_text(value))
        if table is self.document.root:
            at = len(_TOML_BOM) * self.raw.startswith(_TOML_BOM)
            self.edit(path, at, at, line + self.line_end(at), len(indent))
            return
        at, end = self.text.find("\n", table.end) + 1, self.line_end(table.end)
        if at:
            self.edit(path, at, at, line + end, len(indent))
        else:   # nothing ends the header's line, so nothing will end the new one
            at = len(self.text)
            self.edit(path, at, at, end + line, len(end + indent))

    def line_end(self, pos):
        """The end of the line at an offset; of the one before where it has none."""
        at = self.text.find("\n", pos)
        at = at if at >= 0 else self.text.rfind("\n", 0, pos)
        return "\r\n" if at > 0 and self.text[at - 1] == "\r" else "\n"

    def indent(self, pos):
        """The blanks before the first key line of a table, whose offset this is (-1: it has none)."""
        line = self.text[self.text.rfind("\n", 0, pos) + 1:pos] if pos >= 0 else ""
        return line[len(line.rstrip(" \t")):]

    def remove(self, path, nodes):
        """The lines that make a value or table, without their comments and line ends; or its members between braces."""
        around = nodes[_toml_base(nodes[:-1])]
        for piece in _toml_pieces(nodes[-1]):
            stays = self.kept.get(piece.key)
            if around.kind == "inline table" and stays is None:
                self.brace(around)[1][id(piece)] = path
            else:
                self.edit(path, piece.key, piece.end, stays or "")

    def keep(self, path):
        """Where removals take all lines that make a table which is not itself removed: one that keeps it, empty."""
        path = path[:-1]
        nodes = self.document.walk(path)
        if len(nodes) <= len(path) or nodes[-1].kind not in ("dotted table", "implicit table"):
            return
        if any(path + (key,) not in self.removed for key in nodes[-1].members) \
                or any(value is not None and other[:len(path)] == path for other, value in self.changes):
            return
        at, scan = _toml_pieces(nodes[-1])[0].key, self.document.scan
        if self.text[at] != "[":
            end = scan.keys(at, len(path) - _toml_base(nodes))[1]
            self.kept[at] = scan.decoded(at, end) + " = {}"
            return
        start = scan.find.blank(self.text, at + 1 + self.text.startswith("[[", at)).end()
        self.kept[at] = "[%s]" % scan.decoded(start, scan.keys(start, len(path))[1])

    def brace(self, table):
        return self.braces.setdefault(table.start, (table, {}, []))

    def thin_out(self, table, gone):
        """Removes members between braces, each with one comma and the blanks up to its neighbour; comments stay."""
        items, commas = table.items, table.commas
        left = [index for index, item in enumerate(items) if id(item) not in gone]
        tail = left[-1] + 1 if left else len(items)     # from here on nothing is left
        for index, item in enumerate(items):
            if id(item) not in gone:
                continue
            spans = [(item.key, item.end)]
            if index == tail and len(commas) < len(items):      # the last one left needs its comma no more
                spans.insert(0, (commas[index - 1], commas[index - 1] + 1))
            if index < len(commas):
                spans.append((commas[index], commas[index] + 1))
                following = items[index + 1].key if index + 1 < len(items) else -1
                if following >= 0 and not self.text[commas[index] + 1:following].strip(" \t"):
                    spans.append((following, following))
            for start, end in self.joined(spans):
                self.edit(gone[id(item)], start, end, "")

    def joined(self, spans):
        """The same spans, one where nothing but white space lies between two."""
        made = spans[:1]
        for start, end in spans[1:]:
            if self.text[made[-1][1]:start].strip(" \t\r\n"):
                made.append((start, end))
            else:
                made[-1] = (made[-1][0], end)
        return made

    def fill(self, table, gone, new):
        """Adds members between braces, behind the last one that is there."""
        if not new:
            return
        at, before, between, after = self.gap(table)
        first = before if all(id(item) in gone for item in table.items) else between
        for number, (path, keys, value) in enumerate(new):
            lead = between if number else first
            text = "%s%s = %s%s" % (lead, _toml_path(keys), _toml_text(value), after)
            if not table.items and number == len(new) - 1:
                text += " "
            self.edit(path, at, at, text, len(lead))

    def gap(self, table):
        """Where new members go; the text before the first if nothing else is left, before all others, behind each."""
        if not table.items:
            at = table.end - 1
            return at, "" if self.text[at - 1] in " \t\n" else " ", ", ", ""
        last, trailing = table.items[-1], len(table.commas) == len(table.items)
        at = table.commas[-1] + 1 if trailing else last.end
        line = self.text.rfind("\n", 0, last.key) + 1
        if line <= table.start or self.text[line:last.key].strip(" \t"):
            return (at, " ", " ", ",") if trailing else (at, "", ", ", "")
        # Each member on a line of its own: so is the new one, and a comment behind the last one stays in its line.
        lead = self.line_end(line - 1) + self.text[line:last.key]
        end = self.document.scan.find.blank(self.text, at).end()
        comment = self.document.scan.find.comment(self.text, end)
        end = comment.end() if comment else end
        if trailing:
            return end if self.text[end] in "\r\n" else at, lead, lead, ","
        return (end, lead, lead + ", ", "") if comment else (at, lead, "," + lead, "")


def _toml_base(nodes):
    """The index of the deepest table along a path that has a header or braces; the top of the file is one too."""
    return max(index for index, node in enumerate(nodes) if node.kind in ("table", "inline table"))


def _toml_pieces(node):
    """The nodes of all expressions and headers that make a node, in order of the file."""
    found, stack = [], [node]
    while stack:
        node = stack.pop()
        if node.kind in ("value", "inline table", "table"):
            found.append(node)
        if node.kind == "array of tables":
            stack += node.items
        elif node.kind not in ("value", "inline table"):
            stack += node.members.values()
    return sorted(found, key=lambda one: one.key)
# == toml_edit end ==

# ============================================================================
# L10b SPANS - JSON files of other programs, edited by spans     [pure, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2
# Used by: L11 L13b L14b
# Owns:   JsonTextError, JsonPlace, JsonDocument, json_document, json_literal
# Never:  writes a document anew: what it returns are spans and new bytes
# Tests:  tests/test_l10b_spans.py
# ----------------------------------------------------------------------------
# Theory: the C scanner reads a file and says where a value ends. It knows strict
# JSON only, so a file that it refuses is tried once more with blanks in place of
# comments and trailing commas, as many bytes as they had. Spans are offsets into
# that text read as Latin-1, where an offset is a byte; values come from the UTF-8
# text, with numbers as they are spelled (1e400, 5,000 digits: never computed).
# They are bytes there, so that no number equals a text that looks like it.
#
# Members are walked only in the objects on a path, where a name that is there
# twice is refused (D9.5): which one a client takes is not for us to guess.
#
# An insertion is one piece directly behind the last value or its comma, never
# behind a comment. So where a comment follows on that line the new member goes
# on the line too: on a line of its own it would take the comment with it.
# A removal leaves the comments around it, as the text that has to stay.
#
# What can go wrong: the C scanner recurses, some 900 levels are the most on 3.11.
# Whoever cuts an insertion out again has to read the result: a member that was
# put behind it since may need the comma that stood before it.
# ----------------------------------------------------------------------------
BLANKS = "[ \t\n\r]*"
# Pieces at a time: the pattern engine remembers each one, a file may have millions.
STRINGS_AND = '(?:%s|"[^"\\\\]*"){1,1000}'
COMMA_ENDS = '[^",]+|,(?!%s[]}])' % BLANKS
WIDE = "this is UTF-16 or UTF-32, it has to be saved as UTF-8"
# Not every interpreter reads so much, 3.9 to 3.11 less, others more: where it is too much for one, this place is named.
TOO_DEEP, DEEPEST = "arrays and objects are nested too deeply to be read", 1000
# By the text at the error, or by how `json` names it.
HINTS = ((TOO_DEEP, TOO_DEEP), ("'", "names and strings stand in double quotes"),
         ("\ufeff", "a byte-order mark may only stand at the start"),
         ("/*", "this comment has no end"), ("Expecting ':'", "a colon is missing behind the name"),
         ("Expecting ','", "a comma or a closing bracket is missing before this"),
         ("Expecting property", "a name in double quotes has to stand here"),
         ("Invalid control", "a string has no end on its line, or holds a control character"),
         ("Unterminated", "this string has no end"), ("Invalid \\", "no such escape; a backslash is written twice"),
         ("Extra data", "there is text behind the end of the value"), ("", "this is no value that JSON knows"))


class JsonTextError(LazyError, ValueError):
    """A JSON file that cannot be read or edited. line, column: 1-based, in characters; the text does not hold them."""

    def __init__(self, text, line=1, column=1):
        super().__init__(text)
        self.line, self.column = line, column


# span: of the value's text; member: from its name to the end of the value; line: of the name; kind: always "value".
JsonPlace = record("JsonPlace", "value span member line kind", "A member of an object; offsets in bytes.")
# Numbers as they are spelled; and for the end of a value alone: as little as can be is made of what is in it.
_scan_written = make_scanner(type("_Written", (_Plain,), {"parse_int": str.encode, "parse_float": str.encode}))
_scan_ends = make_scanner(type("_Ends", (_Plain,), {"parse_int": str, "parse_float": str, "object_pairs_hook": bool}))


def json_document(raw):
    """The JsonDocument of a JSON file (bytes); comments, trailing commas and one byte-order mark are let pass."""
    raw = bytes(raw)
    mark, comment, commas = raw[:3] == BOM, [], []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "byte 0x%02X at offset %d is not UTF-8" % (raw[error.start], error.start)
        wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in raw[:2]
        raise JsonTextError("%s (%s)" % (WIDE, hint) if wide else hint, *_place(raw, error.start)) from None
    plain = text if len(text) == len(raw) else raw.decode("latin-1")
    value, trouble = _whole(text, mark)
    if trouble:
        plain, comment, commas = _without_extras(raw, plain)
        text = plain if plain.isascii() else plain.encode("latin-1").decode("utf-8")
        value, trouble = _whole(text, mark)
    if trouble:
        raise _text_error(raw, text, *trouble)
    extras = [(0, "a byte-order mark")] * mark + [(at, "a comment") for at in comment]
    at, extra = min(extras + [(at, "a trailing comma") for at in commas[:1]], default=(0, ""))
    return JsonDocument(raw, value, "%s in line %d" % (extra, _place(raw, at)[0]) if extra else None, plain, commas)


def _place(raw, offset):
    """(line, column) of a byte, 1-based, the column in characters and without a byte-order mark."""
    first = raw.rfind(b"\n", 0, offset) + 1 or 3 * (raw[:3] == BOM)
    return raw.count(b"\n", 0, offset) + 1, len(raw[first:offset].decode("utf-8", "replace")) + 1


def _text_error(raw, text, at, message):
    """The JsonTextError of what `_whole` found wrong."""
    if b"\0" in raw[:2]:
        hint = WIDE if raw.strip(b"\0\r\n") else "the file is filled with NUL bytes"
    elif not text.strip("\ufeff \t\r\n"):
        hint = "there is no value in the file" if raw else "the file is empty"
    elif at >= len(text):
        hint = "the text ends too early, the file may be cut off"
    else:
        hint = next(ours for theirs, ours in HINTS if message.startswith(theirs) or text.startswith(theirs, at))
    return JsonTextError(hint, *_place(raw, len(text[:at].encode("utf-8"))))


def _unwatched(work, *arguments):
    """What `work` returns; the garbage collector, which would look at millions of new objects for seconds, waits."""
    import gc
    running = gc.isenabled()
    try:
        gc.disable()
        return work(*arguments)
    except RecursionError:
        raise JsonTextError(TOO_DEEP) from None
    finally:
        if running:
            gc.enable()


def _whole(text, start):
    """(value, None) of a strict JSON text, or (None, (offset of the error, what `json` calls it))."""
    import re
    from json.decoder import JSONDecodeError  # before the scan: the C scanner looks for it among the loaded modules
    past = re.compile(BLANKS).match
    try:
        value, end = _unwatched(_scan_written, text, past(text, start).end())
    except StopIteration as error:
        return None, (error.value, "no value")
    except JSONDecodeError as error:
        return None, (error.pos, error.msg)
    except NotJson:  # no other word has these letters
        return None, (_stop(text, 0, '[^"NI]+'), "NaN or Infinity")
    except JsonTextError:
        return None, (_deepest(text), TOO_DEEP)
    end = past(text, end).end()
    return (value, None) if end == len(text) else (None, (end, "Extra data"))


def _stop(text, at, passed):
    """The first offset from `at`, outside of strings, where the pattern `passed` does not go on, or the length."""
    import re
    match = re.compile(STRINGS_AND % passed).match
    while at < len(text):
        found = match(text, at)
        if not found and text[at] != '"':
            break
        try:
            at = found.end() if found else scanstring(text, at + 1)[1]  # a string with escapes
        except ValueError:  # a broken one: `_whole` says what is wrong with it
            return len(text)
    return at


def _deepest(text):
    """The offset of the bracket that lies deepest, or of the first one that lies too deep."""
    depth, most, found, brackets = 0, 0, 0, '[^]["{}]+'
    at = _stop(text, 0, brackets)
    while at < len(text) and most < DEEPEST:
        depth += 1 if text[at] in "[{" else -1
        if depth > most:
            most, found = depth, at
        at = _stop(text, at + 1, brackets)
    return found


def _without_extras(raw, plain):
    """(text with blanks for comments and trailing commas, [offset of the first comment], those of the commas)."""
    import re
    out, comment, commas, line_end = bytearray(raw), [], [], re.compile("[\r\n]|\\Z").search
    at = _stop(plain, 0, '[^"/]+') if "//" in plain or "/*" in plain else len(plain)
    while plain[at:at + 2] in ("//", "/*"):
        end = line_end(plain, at).start() if plain[at + 1] == "/" else plain.find("*/", at + 2) + 2
        if end < at + 2:  # it has no end
            break
        comment = comment or [at]
        out[at:end] = b" " * (end - at)
        at = _stop(plain, end, '[^"/]+')
    plain = out.decode("latin-1")
    at = _stop(plain, 0, COMMA_ENDS) if re.search("," + BLANKS + "[]}]", plain) else len(plain)
    while at < len(plain):
        before = at - 1
        while before > 0 and plain[before] in " \t\n\r":
            before -= 1
        if plain[before] not in "[{,":  # `[,]` has no trailing comma
            commas.append(at)
            out[at] = 32
        at = _stop(plain, at + 1, COMMA_ENDS)
    return out.decode("latin-1"), comment, commas


class JsonDocument:
    """A JSON file: raw (bytes), value (decoded), strict_trouble (why a strict reader refuses the file, or None)."""
    __slots__ = ("raw", "value", "strict_trouble", "_plain", "_commas", "_start", "_tables")

    def __init__(self, raw, value, strict_trouble, plain, commas):
        self.raw, self.value, self.strict_trouble, self._plain, self._commas = raw, value, strict_trouble, plain, commas
        self._start, self._tables = plain.index("{") if isinstance(value, dict) else 0, {}

    def find(self, path):
        """The JsonPlace of a path (names), or None. JsonTextError: a name twice in an object that leads there."""
        at, member, value = self._start, None, self.value
        for name in path:
            member = self._table(at)[0].get(name)
            if member is None:
                return None
            at, value = member[1], value[name]
        return member and JsonPlace(value, member[1:], (member[0], member[2]), _place(self.raw, member[0])[0], "value")

    def _table(self, start):
        """({name: (start of the name, start and end of the value)}, offset of `}`) of the object at `start`."""
        if start not in self._tables:
            self._tables[start] = _unwatched(self._walk, start) if self._plain[start] == "{" else ({}, start)
        return self._tables[start]

    def _walk(self, start):
        import re
        plain, members, at = self._plain, {}, start + 1
        opening, colon = re.compile('%s,?%s"' % (BLANKS, BLANKS)).match, re.compile("%s:%s" % (BLANKS, BLANKS)).match
        found = opening(plain, at)
        while found:
            key = found.end() - 1
            name, at = scanstring(plain, key + 1)
            if not name.isascii():
                name = scanstring(self.raw[key:at].decode("utf-8"), 1)[0]
            if name in members:
                first, again = _place(self.raw, members[name][0]), _place(self.raw, key)
                text = "%.99s stands twice in one object, in line %d, column %d, and in line %d, column %d"
                raise JsonTextError(text % ((json_literal(name),) + first + again), *again)
            value = colon(plain, at).end()
            at = _scan_ends(plain, value)[1]
            members[name] = key, value, at
            found = opening(plain, at)
        return members, plain.index("}", at)

    def elements(self, path):
        """[(start, end)] of the elements of the array at a path; [] where there is none."""
        import re
        place, past, found = self.find(path), re.compile(BLANKS + ",?" + BLANKS).match, []
        if place is None or self._plain[place.span[0]] != "[":
            return found
        at = past(self._plain, place.span[0] + 1).end()
        while self._plain[at] != "]":
            end = _unwatched(_scan_ends, self._plain, at)[1]
            found.append((at, end))
            at = past(self._plain, end).end()
        return found

    def edits(self, changes):
        """[(path, start, end, new, at)] of [(path, value)]: what to splice into `raw`, sorted, never overlapping.

        value: str, list of str, dict of str, None to remove. at: where in `new` an inserted name begins, else None.
        """
        objects, found = {}, []
        for path, value in changes:
            objects.setdefault(tuple(path[:-1]), {})[path[-1]] = value
        for parent, wanted in objects.items():
            place = self.find(parent)
            start = place.span[0] if place else -1 if parent else self._start
            if start >= 0 and self._plain[start] == "{":
                found += self._edits_in(parent, start, wanted)
            elif any(value is not None for value in wanted.values()):
                what = " ".join(map(json_literal, parent)) or "the file"
                raise JsonTextError("%.200s is no object to put a member into" % what, *_place(self.raw, max(start, 0)))
        found.sort(key=lambda edit: edit[1:3])
        if any(one[2] > other[1] for one, other in zip(found, found[1:])):
            raise JsonTextError("one of the changes lies within another one")
        return found

    def _edits_in(self, parent, start, wanted):
        """The edits of {name: value} in the object at `start`."""
        members, close = self._table(start)
        spans, numbers, found = list(members.values()), {name: at for at, name in enumerate(members)}, []
        comma = next((at for at in self._commas if spans and spans[-1][2] <= at < close), None)
        kept = max((numbers[name] for name in members if wanted.get(name, "") is not None), default=-1)
        offset = close if not spans else spans[-1][2] if comma is None else comma + 1
        gap, colon = self._manner(spans[-1], offset, close) if spans else (b" ", b": ")
        before = b"" if kept < 0 else gap if comma is not None else b"," + gap
        for name, value in wanted.items():
            new, path = b"" if value is None else _compact(value).encode("utf-8"), parent + (name,)
            if name in members and value is None:
                found.append((path,) + self._removal(spans, numbers[name], kept, comma) + (None,))
            elif name in members:
                found.append((path,) + members[name][1:] + (new, None))
            elif value is not None:
                new = before + json_literal(name).encode("utf-8") + colon + new
                found.append((path, offset, offset, new, len(before)))
                before = b"," + gap
        return found

    def _manner(self, last, offset, close):
        """What stands before and behind the name of a new member at `offset`: as the last one, `last`, has it."""
        raw, line = self.raw, self.raw.rfind(b"\n", 0, last[0]) + 1
        gap, colon = raw[line:last[0]], raw[scanstring(self._plain, last[0] + 1)[1]:last[1]]
        one_line = gap.strip(b" \t") or b"/" in raw[offset:close].partition(b"\n")[0]
        gap = b" " if one_line else (b"\r\n" if raw[line - 2:line] == b"\r\n" else b"\n") + gap
        return gap, b": " if colon.strip(b" \t") != b":" else colon

    def _removal(self, spans, index, kept, comma):
        """(start, end, the comments that have to stay) of a member; kept: index of the last one that is not removed."""
        raw, (key, _, end) = self.raw, spans[index]
        if index < kept:
            after, comma = spans[index + 1][0], self._plain.index(",", end)
            return (key, comma + 1, raw[end:comma]) if b"/" in raw[end:after] else (key, after, b"")
        start, stay = spans[index - 1][2] if index else key, b""
        if b"/" in raw[start:key]:
            start = self._plain.index(",", start)
            stay = raw[start + 1:key]
        if kept < 0 and index == len(spans) - 1 and comma is not None:  # nothing is left that it could follow
            return start, comma + 1, stay + raw[end:comma]
        return start, end, stay


def _compact(value):
    """The JSON text of a text, list or dict: no blanks, sorted names (D9.1). Of bytes: the number that they spell."""
    if isinstance(value, dict):
        return "{%s}" % ",".join(json_literal(name) + ":" + _compact(value[name]) for name in sorted(value))
    if isinstance(value, list):
        return "[%s]" % ",".join(map(_compact, value))
    return value.decode("ascii") if isinstance(value, bytes) else json_literal(value)


def json_literal(text):
    """A string as Go spells it: `<>&` and U+2028/9 escaped, other text readable; half a surrogate pair is kept."""
    return '"%s"' % "".join(encode_basestring_ascii(c)[1:-1] if c < " " or c in '"\\' or "\ud800" <= c <= "\udfff" else
                            "\\u%04x" % ord(c) if c in "<>&\u2028\u2029" else c for c in text)

# ============================================================================
# L11 CONFIG - registrations: where they stand, what a wrap changes [pure, cold]
# ----------------------------------------------------------------------------
# Uses:   L1 L2 L3 L8b L10 L10b
# Used by: L11b L14 L14b
# Owns:   Client, CLIENTS, YAML_CLIENTS, Registration, NotThere, NotOurs, Remote, read_document, read_registration,
#         registrations_of, is_relay, plan_wrap, plan_unwrap, plan_recovery, Edited, edited, read_metadata,
#         metadata_bytes
# Never:  touches a file; serialises a document
# Tests:  tests/test_config.py, tests/test_config_cases.py, tests/test_config_property.py
# ----------------------------------------------------------------------------
# Theory: a registration is a command with its arguments and variables, somewhere in
# a client's file. Wrapped, its command is the relay and its first argument the old
# command. Nothing else of it is ours: marker keys and comments do not survive the
# clients' own rewriting, so whether it is wrapped is read from command and args, and
# what it was from the metadata that we keep, or from the args themselves.
#
# A plan says what has to become of which field: {"args": [...], "env.NAME": None}.
# `edited` turns it into edits of byte spans and proves them: the result is parsed
# anew, and its decoded value must be that of the old document with the plan applied
# to it, or nothing is written. Not one byte outside the edits is touched.
#
# The way back is exact (D9.9). For every edit the metadata keeps the bytes that it
# put there and those that it replaced. Where the first are still found at their place,
# unwrap puts the second back; where somebody edited them, it restores the values by the
# rules of D5. A reapply that edits inside such a place extends it. If the exact way
# does not prove (two of our members, one of them edited, may share a comma), the
# rules are tried alone.
#
# Between wrap and reapply a product's own setup may write the registration anew, with
# or without our variables. A direct command is taken as the new original. Of a
# variable that holds what we set, nobody can tell who set it; its base stays.
#
# Shapes. Most clients: command, args, env in the entry. cline has them one level
# lower, in `transport`; older zed in `command`, the program as `path`. opencode has one
# array: the relay is put in front of it, element by element, so that numbers in it
# keep their spelling.
# ----------------------------------------------------------------------------
# A client's file is read whole, and parsed twice.
MAX_CONFIG_BYTES = 64 * 1024 * 1024
METADATA_SCHEMA = 1
FIELDS = ("command", "args", "env")

FLAT, LOWER, NESTED, ARRAY = "flat", "transport", "nested", "array"  # see Shapes above
Client = record("Client", "name files here root is_toml is_strict shape", (
    "A client: its files, and those of a project's folder; where the servers stand; does it refuse comments?"
    " how an entry looks"))
# %config: ~/.config or macOS's Application Support; %xdg: ~/.config everywhere; the others as `client_files` says.
CLIENTS = (
    Client("claude", ("%claude/.claude.json",), (".mcp.json",), ("mcpServers",), False, True, FLAT),
    Client("claude-desktop", ("%config/Claude/claude_desktop_config.json",), (), ("mcpServers",), False, True, FLAT),
    Client("cursor", ("~/.cursor/mcp.json",), (".cursor/mcp.json",), ("mcpServers",), False, False, FLAT),
    Client("codex", ("%codex/config.toml",), (".codex/config.toml",), ("mcp_servers",), True, False, FLAT),
    Client("grok", ("~/.grok/config.toml",), (".grok/config.toml",), ("mcp_servers",), True, False, FLAT),
    Client("gemini", ("~/.gemini/settings.json",), (".gemini/settings.json",), ("mcpServers",), False, False, FLAT),
    Client("qwen", ("~/.qwen/settings.json",), (".qwen/settings.json",), ("mcpServers",), False, False, FLAT),
    Client("copilot", ("~/.copilot/mcp-config.json",), (), ("mcpServers",), False, True, FLAT),
    Client("cline", ("~/.cline/data/settings/cline_mcp_settings.json",), (), ("mcpServers",), False, True, LOWER),
    Client("vscode", ("%config/Code/User/mcp.json",), (".vscode/mcp.json",), ("servers",), False, False, FLAT),
    Client("windsurf", ("~/.codeium/windsurf/mcp_config.json",), (), ("mcpServers",), False, True, FLAT),
    Client("opencode", ("%xdg/opencode/opencode.jsonc", "%xdg/opencode/opencode.json"),
           ("opencode.jsonc", "opencode.json"), ("mcp",), False, False, ARRAY),
    Client("zed", ("%xdg/zed/settings.json",), (".zed/settings.json",), ("context_servers",), False, False, NESTED),
)
# Clients whose files are YAML, with the names that they give to the command and the arguments.
YAML_CLIENTS = {"goose": ("~/.config/goose/config.yaml", "cmd", "args"),
                "continue": ("~/.continue/config.yaml", "command", "args")}

Registration = record("Registration", "name paths is_array command args env", (
    "One stdio server: the paths of its fields, is its command one array?, the values; None for what is not there"))
Intent = record("Intent", "changes fields metadata restored", (
    "{field: new value, None to remove it}, the fields to report, the metadata to keep (without spans),"
    " the fields that go back to what they were"))
Edited = record("Edited", "raw spans", "A document with a plan carried out, and the spans that undo it")


def find_client(name):
    for client in CLIENTS:
        if client.name == name:
            return client
    return None


def client_files(templates, environment, config_dir):
    """The paths (str) of templates like those of CLIENTS; those without a home are left out."""
    home = filesystem_text(environment.get(b"HOME") or b"")
    xdg = filesystem_text(environment.get(b"XDG_CONFIG_HOME") or b"")
    places = {"~": home, "%config": config_dir, "%xdg": xdg if xdg[:1] == "/" else home and home + "/.config",
              "%claude": filesystem_text(environment.get(b"CLAUDE_CONFIG_DIR") or b"") or home,
              "%codex": filesystem_text(environment.get(b"CODEX_HOME") or b"") or home and home + "/.codex"}
    found = [(places[text.partition("/")[0]], text.partition("/")[2]) for text in templates]
    return ["%s/%s" % (place.rstrip("/"), rest) for place, rest in found if place]


# -- reading -----------------------------------------------------------------------

def read_document(raw, path, is_toml):
    """The parsed document; LazyError with file, line and column for what is not one."""
    try:
        return toml_document(raw) if is_toml else json_document(raw)
    except ValueError as error:
        raise LazyError("%s: line %d, column %d: %s" % (path, error.line, error.column, plain_text(error))) from None


def plain_text(error):
    return printable(getattr(error, "text", None) or str(error)).replace("\n", " ")


def same_value(value, other):
    """Do two decoded documents say the same? NaN equals itself, 1 is not 1.0 (D10.8)."""
    return toml_same(value, other)


def value_at(value, path):
    """The decoded value at a path, None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def with_value(value, path, new):
    """A copy of a decoded document with one place set, or removed (None); nobody changes what the two share."""
    copy = dict(value or {})
    if len(path) > 1:
        copy[path[0]] = with_value(copy.get(path[0]), path[1:], new)
    elif new is None:
        copy.pop(path[0], None)
    else:
        copy[path[0]] = new
    return copy


def without_null(value, path):
    """A decoded document without a member that is null: an env of null is none (D3.2), but comes back as null."""
    return with_value(value, path, None) if value_at(value, path) is None and value_at(value, path[:-1]) else value


def root_path(document, client, project):
    """Where the servers of a client, or of one of its projects, stand in this document. LazyError."""
    if project is None:
        return client.root
    projects = value_at(document.value, ("projects",))
    for key in (project, absolute_path(project)):
        if isinstance(projects, dict) and key in projects:
            return ("projects", key) + client.root
    alike = [key for key in projects if same_folder(key, project)] if isinstance(projects, dict) else []
    hint = "; give one of these as --project: " + ", ".join(sorted(alike)) if alike else ""
    raise LazyError("there is no project %s%s" % (project, hint))


def same_folder(one, other):
    """Two spellings of one folder: slashes of either kind, a final one, the case of a drive letter (case 090)."""
    def plain(text):
        text = text.replace("\\", "/").rstrip("/")
        while "//" in text:
            text = text.replace("//", "/")
        return text[:1].lower() + text[1:] if text[1:2] == ":" else text
    return plain(one) == plain(other)


def registrations_of(document, client, project):
    """{name: Registration, or the LazyError that says why it is none} of a file."""
    root = root_path(document, client, project)
    found = {}
    for name in value_at(document.value, root) or () if isinstance(value_at(document.value, root), dict) else ():
        try:
            found[name] = read_registration(document, client, project, name)
        except LazyError as error:
            found[name] = error
    return found


class NotThere(LazyError):
    """The file has no such server."""


class NotOurs(LazyError):
    """A registration that a command on all of them leaves alone."""


class Remote(NotOurs):
    """A server that is not started but reached by a URL: there is nothing to relay."""


def read_registration(document, client, project, name):
    """The Registration of one server. LazyError where there is none, or none that can be wrapped (D3.1, D3.2)."""
    path = root_path(document, client, project) + (name,)
    try:
        place = document.find(path)
        if place is None:
            raise NotThere("no server %r in %s%s" % (name, ".".join(client.root), names_in(document, path[:-1])))
        return checked_registration(document, client.shape, path, place.kind)
    except ValueError as error:  # twice there, or in a form that cannot be edited
        raise LazyError("line %d, column %d: %s" % (error.line, error.column, plain_text(error))) from None


def names_in(document, root):
    names = value_at(document.value, root)
    if not isinstance(names, dict):
        return ", which is not there"
    return " (it has: %s)" % ", ".join(map(repr, sorted(names)[:20])) if names else ", which is empty"


def checked_registration(document, shape, path, kind):
    entry, name = value_at(document.value, path), path[-1]
    if not isinstance(entry, dict):
        raise LazyError("server %r is %s" % (name, "not an object or table" if kind == "value" else "an " + kind))
    if entry.get("url") is not None:
        lines = [document.find(path + (key,)).line for key in ("url", "command") if entry.get(key) is not None]
        if len(lines) > 1:
            raise LazyError("server %r has a url (line %d) and a command (line %d): one of the two has to go first"
                            % (name, *lines))
        raise Remote("server %r has a url (line %d): it is remote, there is no command to relay" % (name, *lines))
    base, words = path, FIELDS
    if shape == LOWER and isinstance(entry.get("transport"), dict):
        base, entry = path + ("transport",), entry["transport"]
    elif shape == NESTED and isinstance(entry.get("command"), dict):
        base, entry, words = path + ("command",), entry["command"], ("path", "args", "env")
    elif shape == ARRAY:
        words = ("command", "args", "environment")
    paths = {field: base + (word,) for field, word in zip(FIELDS, words)}
    for field in FIELDS:  # asks for the places, so that what cannot be edited is refused now
        document.find(paths[field])
    command, args, env = [entry.get(word) for word in words]
    if shape == ARRAY:
        command, args = array_command(name, entry)
    if type(command) is not str or not command:
        kind = Remote if entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl") else \
            NotOurs if shape == NESTED and not command else LazyError  # zed's extensions have settings only
        raise kind("server %r has no command%s" % (name, " that is a string" if command else ""))
    if "args" in entry and shape != ARRAY and not (isinstance(args, list) and all(type(word) is str for word in args)):
        raise LazyError("server %r: args is not an array of strings" % name)
    if env is not None and not (isinstance(env, dict) and all(type(value) is str for value in env.values())):
        raise LazyError("server %r: %s is not a table of strings" % (name, words[2]))
    return Registration(name, paths, shape == ARRAY, command, args, env)


def array_command(name, entry):
    """(command, args) of a command that is one array; its numbers, which opencode writes itself, are bytes."""
    words = entry.get("command")
    if words is None:
        return None, []
    is_array = isinstance(words, list) and all(type(word) in (str, bytes) for word in words)
    if not is_array or not words or type(words[0]) is not str:
        raise LazyError("server %r: command is not an array of strings" % name)
    return words[0], words[1:]


def text_of(word):
    """A word of a command as text; numbers of a JSON file are bytes."""
    return word.decode("ascii") if isinstance(word, bytes) else word


def is_relay(command, relay):
    """A recognizable relay: the given one, or a program whose name starts with mcp-lazy (D3.4)."""
    return command == relay or command.rpartition("/")[2].lower().startswith("mcp-lazy")


def runs_our_script(found):
    """Is it an interpreter with this program behind it, as one registers it where `env -S` is missing?"""
    script = next((word for word in map(text_of, found.args or ()) if word[:1] != "-"), "")
    return "python" in found.command.rpartition("/")[2] and is_relay(script.replace("mcp_lazy", "mcp-lazy"), None)


def is_wrapped(found, metadata):
    """Is its command the relay that the metadata speaks of (D3.3)?"""
    return metadata is not None and found.command in (metadata["relay"], metadata.get("priorRelay"))


def is_recoverable(found, relay):
    """Can a wrap without metadata be taken out (D5.5)?"""
    first = found.args[0] if found.args else ""
    return is_relay(found.command, relay) and first != "" and first[:1] != "-" and not is_relay(first, relay)


# -- plans -------------------------------------------------------------------------

def original_of(found):
    """(command, args) behind the relay in a wrapped registration, without options of the relay that somebody added."""
    words = list(found.args or ())
    if words and words[0][:1] in ("-", b"-"):
        try:
            words = parse_flags(words)[1]
        except UsageError:
            words = []
    if not words or not words[0]:
        raise LazyError("server %r is wrapped, but its args hold no command: put it back by hand" % found.name)
    return words[0], words[1:]


def prior_relay(old, relay):
    """The path of another relay that stood there before this one, by the metadata there is."""
    return old["relay"] if old["relay"] != relay else old.get("priorRelay")


def plan_wrap(found, old, relay, wanted, unwanted):
    """The Intent that puts `relay` in front of a registration, or keeps it there (D4). LazyError.

    `old` is the metadata there is, or None; `wanted` {name: value} of variables to set, `unwanted` names to give up.
    """
    wrapped = is_wrapped(found, old)
    if not wrapped and (is_relay(found.command, relay) or runs_our_script(found)):
        raise NotOurs("server %r already starts a relay that is not managed here:"
                      " take it out with unwrap --recover" % found.name)
    if not wrapped and found.command[:1] == "-":
        raise LazyError("server %r: the relay would take its command for an option of its own" % found.name)
    stored = old["managedEnv"] if old else {}
    managed = {name: value for name, value in dict(stored, **wanted).items() if name not in unwanted}
    env, changes = found.env or {}, {}
    base = {}
    for name in managed:
        retained = name in stored and (wrapped or env.get(name) == stored[name])
        base[name] = old["baseEnv"].get(name) if retained else env.get(name)
    metadata = {"relay": relay, "managedEnv": managed, "baseEnv": base}
    if wrapped:
        command, args = original_of(found)
        metadata["hadArgs"], had_env = old["hadArgs"], old.get("hadEnv")
        prior = found.command if found.command != relay else prior_relay(old, relay)
        changes["command"] = relay
    else:
        command, args = found.command, found.args or []
        metadata["hadArgs"], had_env = found.args is not None, env_before(found, stored, old)
        prior = prior_relay(old, relay) if old else None
        changes["command"], changes["args"] = relay, [command] + args
    metadata.update({"command": command, "args": list(map(text_of, args)), "hadEnv": had_env, "priorRelay": prior})
    dropped = {name: old["baseEnv"].get(name) for name in unwanted if name in stored and env.get(name) == stored[name]}
    changes.update({"env." + name: value for name, value in dict(dropped, **managed).items()})
    plan = finished_plan(found, changes, {key: value for key, value in metadata.items() if value is not None})
    plan.restored = {"env." + name for name in dropped}
    return plan


def env_before(found, stored, old):
    """Had the registration an env of its own? None if nobody can tell (D4.4)."""
    if not found.env or any(stored.get(name) != value for name, value in found.env.items()):
        return found.env is not None
    return old.get("hadEnv")


def finished_plan(found, changes, metadata):
    """The Intent of changes that change something; a missing env is created, an emptied one of ours removed."""
    now = {"command": found.command, "args": found.args}
    now.update({"env." + name: value for name, value in (found.env or {}).items()})
    changes = {field: value for field, value in changes.items() if now.get(field) != value}
    fields = sorted(changes)
    added = {field[4:]: value for field, value in changes.items() if field[:4] == "env."}
    if found.env is None and added:
        changes = {field: value for field, value in changes.items() if field[:4] != "env."}
        changes["env"] = {name: value for name, value in added.items() if value is not None}
    if found.is_array and changes.keys() & {"command", "args"}:
        words = [changes.pop("command", found.command)] + (changes.pop("args", found.args) or [])
        changes["command"], fields = words, sorted(set(fields) - {"args"} | {"command"})
    return Intent(changes, fields, metadata, set(changes))


def plan_unwrap(found, old):
    """The Intent that takes the relay out and restores the variables it had set (D5)."""
    changes, env = {}, dict(found.env or {})
    if is_wrapped(found, old):
        changes["command"], args = original_of(found)
        changes["args"] = args if args or old["hadArgs"] else None
    for name, value in old["managedEnv"].items():
        if env.get(name) == value:
            base = changes["env." + name] = old["baseEnv"].get(name)
            env.pop(name)
            env.update({name: base} if base is not None else {})
    if old.get("hadEnv") is False and not env and found.env is not None:
        changes = {field: value for field, value in changes.items() if field[:4] != "env."}
        plan = finished_plan(found, changes, None)
        return Intent(dict(plan.changes, env=None), sorted(plan.fields + ["env"]), None, set(plan.changes) | {"env"})
    return finished_plan(found, changes, None)


def plan_recovery(found, relay):
    """What `unwrap --recover` without metadata: the command and the args, nothing else (D5.5)."""
    if found.args and text_of(found.args[0])[:1] == "-" and is_relay(found.command, relay):
        raise LazyError("server %r: its args begin with options of the relay; remove them by hand,"
                        " then it can be recovered" % found.name)
    if not is_recoverable(found, relay):
        raise LazyError("server %r cannot be recovered: its command is no relay,"
                        " or its first argument no command" % found.name)
    return finished_plan(found, {"command": found.args[0], "args": found.args[1:]}, None)


# -- carrying a plan out -------------------------------------------------------------

def spliced(raw, edits):
    """`raw` with every (path, start, end, new, at) carried out."""
    pieces, done = [], 0
    for _, start, end, new, _ in edits:
        pieces += [raw[done:start], new]
        done = end
    return b"".join(pieces + [raw[done:]])


def path_of(found, field):
    return found.paths["env"] + (field[4:],) if field[:4] == "env." else found.paths[field]


def field_of(found, path):
    names = {found.paths[field]: field for field in FIELDS}
    return names[path] if path in names else "env." + path[-1]


def plan_edits(document, found, changes):
    """The edits that carry changes out by the rules of the format (D9, D10)."""
    edits, wanted = [], []
    for field in sorted(changes):
        if found.is_array and field == "command":
            edits += array_edits(document, found, changes[field])
        else:
            wanted.append((path_of(found, field), changes[field]))
    return sorted(edits + document.edits(wanted), key=lambda edit: edit[1:3])


def array_edits(document, found, words):
    """The edits of a command that is one array: an element goes in front, or goes, or is another; the others stay."""
    path, held = found.paths["command"], [found.command] + found.args
    spans, text = document.elements(path), json_literal(words[0]).encode("utf-8")
    first = spans[0]
    if words[1:] == held:
        gap = document.raw[document.find(path).span[0] + 1:first[0]]
        return [(path, first[0], first[0], text + b"," + (b" " if gap.strip() else gap), 0)]
    if words[1:] == held[1:]:
        return [(path, first[0], first[1], text, None)]
    left = len(held) - len(words)
    if left > 0 and words == held[left:]:
        return [(path, first[0], spans[left][0], b"", None)]
    return document.edits([(path, words)])


def edited(document, found, plan, old_spans):
    """The Edited document of a plan. LazyError if what comes out is not what was planned.

    `old_spans` are those of the metadata there is: where they still hold, what is restored gets its old bytes.
    """
    expected, error = document.value, None
    for field, value in plan.changes.items():
        expected = with_value(expected, path_of(found, field), value)
    places = [(place, span) for place, span in ((place_of(document, found, span), span) for span in old_spans) if place]
    for restored in (plan.restored, set()):  # the exact way first, then the rules alone
        try:
            back, left, kept = undo_edits(found, plan.changes, restored, places)
            edits = plan_edits(document, found, left)
            raw = spliced(document.raw, sorted(back + edits, key=lambda edit: edit[1:3]))
            parsed = (json_document(raw) if isinstance(document, JsonDocument) else toml_document(raw)).value
            if same_value(parsed, expected) \
                    or restored and same_value(without_null(parsed, found.paths["env"]), expected):
                return Edited(raw, spans_after(document, found, back, edits, kept))
        except ValueError as refused:
            error = refused
    raise LazyError("this form cannot be edited%s. By hand: put the path of the relay into command, and the old "
                    "command in front of args" % (" (line %d: %s)" % (error.line, plain_text(error)) if error else ""))


def place_of(document, found, span):
    """(start, end) of the bytes that an edit of ours left, None if they are not there any more."""
    path, new, at = path_of(found, span["field"]), span["new"].encode("utf-8"), span["at"]
    place = document.find(path)
    if place is None or place.span is None:
        return None
    if found.is_array and span["field"] == "command":  # there the rules are exact
        return None
    start = place.span[0] if at is None else place.member[0] - at
    end = place.span[1] if at is None else start + len(new)
    return (start, end) if start >= 0 and document.raw[start:end] == new else None


def undo_edits(found, changes, restored, places):
    """(edits that put the bytes of before back, the changes that are left for the rules, the places that stay).

    Where all variables go back, so does the env that was made for them.
    """
    exact, kept, left = [], [], dict(changes)
    whole_env = all(field in restored for field in changes)
    for (start, end), span in places:
        field, covered = span["field"], {span["field"]} | set(span.get("also", ()))
        all_env = whole_env and field == "env"
        mine = [name for name in left if name in restored and (name in covered or all_env and name[:4] == "env.")]
        env_goes = field[:4] == "env." and "env" in left  # as a whole, by the rules
        if mine and covered - {"env"} <= set(mine) and not env_goes:
            exact.append((path_of(found, field), start, end, (span["old"] or "").encode("utf-8"), None))
            left = {name: value for name, value in left.items() if name not in mine}
        else:
            kept.append(((start, end), span))
    return exact, left, kept


def spans_after(document, found, back, edits, places):
    """The spans for the metadata: what each edit put in place of what; an edit inside an older place extends that one.

    An env that is one piece of text is such a place too, beside its members: they share commas and blanks.
    """
    spans, env, every = [], document.find(found.paths["env"]), sorted(back + edits, key=lambda edit: edit[1:3])
    if env is not None and env.span and all(span["field"] != "env" for _, span in places) and any(
            field_of(found, edit[0])[:4] == "env." for edit in every):
        old = document.raw[env.span[0]:env.span[1]].decode("utf-8")
        places = places + [(env.span, {"field": "env", "at": None, "new": old, "old": old})]
    rest = list(edits)
    for (start, end), span in places:
        inside = [edit for edit in every
                  if start <= edit[1] and edit[2] <= end and not edit[1] == edit[2] in (start, end)]
        if (span["field"], span["at"]) != ("env", None):
            rest = [edit for edit in rest if edit not in inside]
        spans.append(extended(document, found, span, start, end, inside))
    for path, start, end, new, at in rest:
        old = document.raw[start:end].decode("utf-8") if at is None else None
        spans.append({"field": field_of(found, path), "at": at, "new": new.decode("utf-8"), "old": old})
    return sorted(spans, key=lambda span: span["field"])


def extended(document, found, span, start, end, inside):
    """A span with the edits inside its place; `also` are the fields of others that stand in it now."""
    moved = [(path, one - start, other - start, new, at) for path, one, other, new, at in inside]
    span = dict(span, new=spliced(document.raw[start:end], moved).decode("utf-8"))
    if span["at"] is not None:
        span["at"] += sum(len(new) - (other - one) for _, one, other, new, _ in moved if other <= span["at"])
    others = {field_of(found, edit[0]) for edit in inside} - {span["field"]} if span["field"] != "env" else ()
    return dict(span, also=sorted(others | set(span.get("also", ())))) if others else span


# -- metadata ------------------------------------------------------------------------

def read_metadata(raw, client, config, server):
    """The metadata (dict) of a registration; LazyError where it is not valid (D2.5).

    Older ones have neither hadEnv nor spans.
    """
    try:
        found = parse_json(raw)
    except ValueError:
        found = None
    good = (isinstance(found, dict) and found.get("schema") == METADATA_SCHEMA
            and [found.get(name) for name in ("client", "config", "server")] == [client, config, server]
            and type(found.get("command")) is str and found["command"] and type(found.get("relay")) is str
            and isinstance(found.get("managedEnv"), dict) and isinstance(found.get("baseEnv"), dict)
            and all(type(value) is str for value in found["managedEnv"].values())
            and all(value is None or type(value) is str for value in found["baseEnv"].values()))
    if not good:
        raise LazyError("its record is not valid")
    spans = found.get("spans")
    found["spans"] = [span for span in spans if is_span(span)] if isinstance(spans, list) else []
    found["hadArgs"] = bool(found.get("hadArgs"))
    return found


def is_span(span):
    return (isinstance(span, dict) and type(span.get("new")) is str
            and (span.get("at") is None or type(span["at"]) is int)
            and (span.get("old") is None or type(span["old"]) is str)
            and all(type(field) is str for field in span.get("also") or ())
            and (span.get("field") in FIELDS or str(span.get("field"))[:4] == "env."))


def metadata_bytes(metadata):
    """The text of a metadata file: two-space indented, no final newline (D2.4)."""
    import json
    order = ("schema", "client", "config", "server", "project", "relay", "priorRelay", "command", "args", "hadArgs",
             "hadEnv", "managedEnv", "baseEnv", "spans")
    kept = {name: metadata[name] for name in order if metadata.get(name) is not None}
    return json.dumps(kept, indent=2).encode("ascii")  # lone surrogates of a client's file come back as they were

# ============================================================================
# L11b EDIT - changing a client's file, and the way back           [I/O, cold]
# ----------------------------------------------------------------------------
# Uses:   L1 L2 L3 L4 L6 L8c L11
# Used by: L14b
# Owns:   Target, Order, Conflict, Interrupt, change_registration, registration_status, read_config, records_in,
#         is_locked, survey
# Never:  leaves a half-written file; tells a value of somebody's variable
# Tests:  tests/test_config_write.py, tests/test_config.py
# ----------------------------------------------------------------------------
# Theory: other programs write the same file whenever they like and know nothing of our
# lock, which keeps only our own commands apart. So the file is compared with what was
# read three times: before anything is written, behind the backup and the metadata, and,
# where the system can exchange two names, once more after ours is in place: what was
# displaced must be the very file that was read (inode and bytes). If it is not, the
# exchange is made again the other way round at once, and nothing was lost.
#
# The order: backup, metadata, new file, its name, and for an unwrap only then the
# metadata's end. Killed anywhere, the client's file is whole, old or new, and the
# metadata errs on the safe side: a record of a wrap that is not in the file is taken
# for a registration that somebody's setup wrote anew, which the next wrap adopts and
# the next unwrap forgets.
#
# The temporary's name tells what it is: our registration and file, and the digests of
# what was read and of what is to be written. A later run finds it under the lock: one
# that holds either text is litter. One that holds anything else was displaced by an exchange that
# nobody lived to check: somebody else's newer file. It goes back to its place if ours is
# still there; else both stay and the user is told.
#
# What can still go wrong: a program that holds the old file open and writes into it
# after the exchange; one that ignores the file and writes its own memory later.
# ----------------------------------------------------------------------------
LOCK_WAIT_S, LOCK_POLL_S = 30.0, 0.05
KEEP_BACKUPS, KEEP_BACKUPS_S = 20, 30 * 86400.0
TEMPORARY = ".mcp-lazy-"

Order = record("Order", "action relay wanted unwanted dry_run recover in_place keep_backups",
               "What one command wants done")
Found = record("Found", "raw facts document registration metadata_raw metadata",
               "A registration, and the file it was read from")


class BadRecord(LazyError):
    """A record that says nothing about this registration."""


class Conflict(LazyError):
    """The file is not what it was when it was read; nothing of ours is in it."""


def changed_meanwhile(target):
    """The Conflict for a file that another program has written since it was read."""
    return Conflict("%s changed during editing; it was left as it is now. Close the program that writes it,"
                    " and try again" % target.path)


class Interrupt:
    """Signals that end a command: asked for at the points where nothing is half done."""
    __slots__ = ("_signals", "_loop", "_came")

    def __init__(self):
        self._signals, self._loop, self._came = SignalPipe(), Loop(), False
        self._loop.watch(self._signals.fd, self._read)

    def _read(self):
        self._came |= bool(self._signals.read() & set(STOP_SIGNALS))

    def wait(self, limit_s):
        """True as soon as a signal has come, False after `limit_s`."""
        end_s = monotonic_s() + limit_s
        self._loop.set_timer("wait", end_s, lambda: None)
        while not self._came and monotonic_s() < end_s:
            self._loop.turn()
        return self._came

    def check(self):
        """LazyError if the command was told to stop."""
        self._read()
        if self._came:
            raise LazyError("stopped by a signal; nothing was changed")


class Target:
    """One registration of one file, and where we keep what belongs to it."""
    __slots__ = ("client", "path", "project", "server", "state_dir", "key", "file_key")

    def __init__(self, client, path, project, server, state_dir):
        self.client, self.project, self.server, self.state_dir = client, project, server, state_dir
        self.path = resolved_path(path)
        words = [client.name, self.path, server] + ([project] if project is not None else [])
        self.key = sha256_hex("\n".join(words).encode("utf-8", "surrogatepass"))[:32]  # a JSON name may be half a pair
        self.file_key = sha256_hex(filesystem_bytes(self.path))[:32]

    @property
    def folder(self):
        return self.path.rpartition("/")[0] or "/"

    @property
    def metadata_path(self):
        return "%s/%s.json" % (self.state_dir, self.key)

    @property
    def lock_path(self):
        return "%s/locks/%s.lock" % (self.state_dir, self.file_key)

    def backups(self):
        """The names of its backups, oldest first."""
        return [name for name in folder_names(self.state_dir + "/backups")
                if name[:33] == self.key + "-" and name[-4:] == ".bak"]


# -- reading -------------------------------------------------------------------------

def read_config(target):
    """(bytes, FileFacts) of the client's file. LazyError."""
    try:
        return read_whole(target.path, MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise LazyError("cannot read %s: %s" % (target.path, getattr(error, "strerror", error))) from None


def find_target(target):
    """The Found registration. LazyError with the file's name."""
    raw, facts = read_config(target)
    document = read_document(raw, target.path, target.client.is_toml)
    try:
        registration = read_registration(document, target.client, target.project, target.server)
    except LazyError as error:
        raise type(error)("%s: %s" % (target.path, error)) from None
    metadata_raw = read_metadata_file(target)
    return Found(raw, facts, document, registration, metadata_raw, checked_metadata(target, metadata_raw))


def read_metadata_file(target):
    """The bytes of its metadata, None where there are none. Only "does not exist" means that."""
    try:
        return read_whole(target.metadata_path, MAX_CONFIG_BYTES * 2)[0]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LazyError("cannot read the record %s: %s" % (target.metadata_path, error.strerror)) from None


def records_in(state_dir):
    """(file name, value) of each record that can be read; who asks has to know a record."""
    for name in [name for name in folder_names(state_dir) if name[-5:] == ".json"]:
        try:
            yield name, parse_json(read_whole("%s/%s" % (state_dir, name), MAX_CONFIG_BYTES * 2)[0])
        except (OSError, ValueError):  # no record of ours
            pass


def checked_metadata(target, raw):
    if raw is None:
        return None
    try:
        return read_metadata(raw, target.client.name, target.path, target.server)
    except LazyError:
        raise BadRecord("the record %s is not valid or belongs to another file; remove it to go on without it" % (
            target.metadata_path)) from None


def registration_status(target, relay):
    """({member: value} of the status report, the file's strict trouble or None). Takes no lock, writes nothing (D6)."""
    found = find_target(target)
    entry, metadata = found.registration, found.metadata
    wrapped = is_wrapped(entry, metadata) or is_relay(entry.command, relay)
    report = {"client": target.client.name, "file": target.path, "server": target.server,
              "managed": metadata is not None, "wrapped": wrapped,
              "recoverable": metadata is None and is_recoverable(entry, relay), "backups": len(target.backups())}
    if wrapped:
        report["relay"] = entry.command
    if metadata is not None and not is_wrapped(entry, metadata):
        report["changed"] = True
    return report, strict_trouble(target.client, found.document)


def strict_trouble(client, document):
    """Why a client that reads strict JSON will not load this file, None if it will (case 081)."""
    return getattr(document, "strict_trouble", None) if client.is_strict else None


# -- the change ----------------------------------------------------------------------

def change_registration(target, order, interrupt):
    """The report (dict) of wrap, reapply or unwrap on one registration. LazyError."""
    if order.dry_run:
        found, plan, _ = planned(target, order)
        return report_of(target, order, plan, found, None)
    lock = take_lock(target, interrupt)
    try:
        settle_leftovers(target)
        found, plan, result = planned(target, order)
        interrupt.check()
        is_atomic = commit(target, order, plan, found, result)
        return report_of(target, order, plan, found, is_atomic)
    except OSError as error:
        raise LazyError("cannot write in %s: %s; %s is as it was" % (
            target.state_dir, error.strerror or error, target.path)) from None
    finally:
        close_quietly(lock)


def planned(target, order):
    """(Found, Intent, Edited) of what is wanted, nothing of it written. LazyError."""
    try:
        found = find_target(target)
        plan = plan_of(found, order)
        spans = found.metadata["spans"] if found.metadata else []
        return found, plan, edited(found.document, found.registration, plan, spans)
    except LazyError as error:
        raise type(error)("%s; nothing was changed" % error) from None


def plan_of(found, order):
    if order.action == "unwrap":
        if found.metadata is not None:
            return plan_unwrap(found.registration, found.metadata)
        if order.recover:
            return plan_recovery(found.registration, order.relay)
        can_recover = is_recoverable(found.registration, order.relay)
        raise NotOurs("server %r is not managed here%s" % (found.registration.name, (
            ": unwrap --recover takes a relay out without its record" if can_recover else "")))
    if order.action == "reapply" and found.metadata is None:
        raise NotOurs("server %r was never wrapped here: use wrap" % found.registration.name)
    return plan_wrap(found.registration, found.metadata, order.relay, order.wanted, order.unwanted)


def report_of(target, order, plan, found, is_atomic):
    """What D7.1 reports; no values."""
    report = {"action": order.action, "changedFields": plan.fields, "file": target.path, "server": target.server}
    if order.dry_run:
        report["dryRun"] = True
    if order.action == "unwrap" and found.metadata is None:
        report["recovered"] = report["environmentPreserved"] = True
    if is_atomic is False:
        report["atomic"] = False
    return report


def take_lock(target, interrupt):
    """A descriptor that holds the lock of the file (D2.2). LazyError after 30 s."""
    try:
        for folder in (target.state_dir, target.state_dir + "/locks"):
            must_be_private(folder)
        end_s = monotonic_s() + LOCK_WAIT_S
        lock = lock_file(target.lock_path)
        while lock is None:
            if monotonic_s() > end_s:
                raise LazyError("another mcp-lazy holds %s; nothing was changed" % target.lock_path)
            interrupt.wait(LOCK_POLL_S)
            interrupt.check()
            lock = lock_file(target.lock_path)
        return lock
    except OSError as error:
        raise LazyError("cannot lock %s: %s; nothing was changed" % (target.lock_path, error.strerror)) from None


def must_be_private(folder):
    """A folder for records that nobody else may write to, made if it is missing. LazyError."""
    trouble = private_dir_trouble(folder, create=True)
    if trouble:
        raise LazyError("cannot keep records in %s: %s; nothing was changed" % (folder, trouble))


def is_locked(target):
    """Does another command hold the file's lock just now?"""
    try:
        lock = lock_file(target.lock_path)
    except OSError:  # nobody ever took it
        return False
    if lock is not None:
        close_quietly(lock)
    return lock is None


def commit(target, order, plan, found, result):
    """Write what has to be written, in the order of D8.1.

    True, or False where the file was not exchanged in one step. None: no change.
    """
    is_new = result.raw != found.raw
    must_be_as_read(target, found)
    if is_new and found.facts.links > 1 and not order.in_place:
        raise LazyError("%s has %d hard links; --in-place writes into the file itself,"
                        " which is not safe against a crash" % (target.path, found.facts.links))
    if is_new:
        write_backup(target, found.raw)
    keeps = order.action != "unwrap"
    if keeps:
        write_private(target.metadata_path, metadata_bytes(dict(
            plan.metadata, schema=METADATA_SCHEMA, client=target.client.name, config=target.path, server=target.server,
            project=target.project, spans=result.spans)))
    try:
        is_atomic = put_in_place(target, found, result.raw) if is_new else None
    except BaseException as error:
        if keeps:
            restore_metadata(target, found.metadata_raw)
        if isinstance(error, OSError):
            own = str(error.strerror).startswith("its ")  # its owner, its attributes
            raise LazyError("cannot write %s: %s; %s is as it was" % (
                target.path if own else target.folder, error.strerror or error, target.path)) from None
        raise
    if not keeps and found.metadata_raw is not None:
        trouble = remove_file(target.metadata_path)
        if trouble:
            raise LazyError("%s is restored, but its record %s cannot be removed: %s" % (
                target.path, target.metadata_path, trouble))
    if is_new:
        prune_backups(target, order.keep_backups, keeps)
    return is_atomic


def must_be_as_read(target, found):
    """Conflict unless the file is the one that was read: same inode, owner, mode and bytes."""
    if not is_file(target.path, found.facts, found.raw):
        raise changed_meanwhile(target)


def write_backup(target, raw):
    """A new backup with the whole file (D2.3)."""
    name = "%s-%s.bak" % (target.key, backup_stamp(int(wall_s() * 1e9)))
    must_be_private(target.state_dir + "/backups")
    write_private("%s/backups/%s" % (target.state_dir, name), raw)


def backup_stamp(at_ns):
    """20261130T162106.491000000 of a unix time in ns (D2.3, UTC)."""
    text = utc_stamp(at_ns // 10 ** 9)
    return "%s.%09d" % (text[:19].replace("-", "").replace(":", ""), at_ns % 10 ** 9)


def restore_metadata(target, raw):
    """Put the record back as it was before a write that failed."""
    try:
        if raw is None:
            remove_file(target.metadata_path)
        else:
            write_private(target.metadata_path, raw)
    except OSError:  # then it speaks of a wrap that is not there, which the next command sees
        pass


def prune_backups(target, keep, is_wrapped_now):
    """Remove backups beyond the newest `keep` that are older than 30 days, but the one from before the wrap (D2.6)."""
    now_s, names = wall_s(), target.backups()
    facts = {name: file_facts("%s/backups/%s" % (target.state_dir, name)) for name in names[:max(0, len(names) - keep)]}
    old = [name for name in facts if facts[name] is not None and now_s - facts[name][1] > KEEP_BACKUPS_S]
    spared = newest_direct(target, names) if old and is_wrapped_now else None
    for name in old:
        if name != spared:
            remove_file("%s/backups/%s" % (target.state_dir, name))


def newest_direct(target, names):
    """The name of the newest backup in which no relay is in front of the registration."""
    for name in reversed(names):
        try:
            raw, _ = read_whole("%s/backups/%s" % (target.state_dir, name), MAX_CONFIG_BYTES)
            document = read_document(raw, name, target.client.is_toml)
            if not is_relay(read_registration(document, target.client, target.project, target.server).command, None):
                return name
        except (LazyError, OSError):
            pass
    return None


# -- the new file --------------------------------------------------------------------

def short_digest(raw):
    return sha256_hex(raw)[:16]


def put_in_place(target, found, raw):
    """Make `raw` the client's file; True if it was compared and swapped in one step. Conflict, OSError."""
    if found.facts.links > 1:
        must_be_as_read(target, found)
        if not write_over(target.path, raw, found.facts, found.raw):
            raise LazyError("%s is damaged, it could not be written to its end; its newest backup in %s/backups"
                            " is whole" % (target.path, target.state_dir))
        return False
    temporary = "%s/%s%s-%s-%s-%s" % (target.folder, TEMPORARY, target.key, target.file_key[:8],
                                      short_digest(found.raw), short_digest(raw))
    part = temporary + ".part"
    try:
        write_beside(target.path, part, raw, found.facts)
        move_file(part, temporary)
        mine = file_identity(temporary)
        must_be_as_read(target, found)
        swapped = exchange(temporary, target.path)
        if not swapped:
            move_file(temporary, target.path)
    except BaseException:
        close_quietly_unlink(part)
        close_quietly_unlink(temporary)
        raise
    if swapped:
        check_displaced(target, found, temporary, (mine, raw))
    sync_dir(target.folder)
    return swapped


def check_displaced(target, found, temporary, ours):
    """Remove the displaced file if it is the one that was read; else put it back. Conflict.

    ours: FileFacts and bytes of the new file.
    """
    if is_file(temporary, found.facts, found.raw):
        close_quietly_unlink(temporary)
        return
    try:
        good = exchange(temporary, target.path) and is_file(temporary, *ours)
    except OSError:
        good = False
    if not good:
        raise Conflict("%s was written twice while it was edited: compare it with %s,"
                       " which is another program's version, and remove that" % (target.path, temporary))
    close_quietly_unlink(temporary)
    raise changed_meanwhile(target)


def is_file(path, facts, raw):
    """Is it the very file, unchanged? Where it cannot be read (no descriptors left), size and time have to do."""
    try:
        now_raw, now = read_whole(path, MAX_CONFIG_BYTES)
    except OSError:
        now = file_identity(path)
        now_raw = raw if now is not None and (now.size, now.mtime_ns) == (facts.size, facts.mtime_ns) else None
    return now_raw == raw and all(
        getattr(now, name) == getattr(facts, name) for name in ("dev", "ino", "mode", "uid", "gid"))


def settle_leftovers(target):
    """Deal with temporaries of runs that died, under the lock. LazyError if one holds what nobody else has."""
    for folder in (target.state_dir, target.state_dir + "/backups"):
        for name in folder_names(folder):
            if name.startswith(".tmp-" + target.key):
                remove_file("%s/%s" % (folder, name))
    for name in folder_names(target.folder):
        parts = name[len(TEMPORARY):].split("-")
        if name[:len(TEMPORARY)] == TEMPORARY and len(parts) == 4 and parts[1] == target.file_key[:8]:
            path = "%s/%s" % (target.folder, name)
            if name[-5:] != ".part" and digest_of(path) not in parts[2:]:
                put_back(target, path, parts[3])
            trouble = remove_file(path)
            if trouble:
                raise LazyError("cannot remove %s: %s" % (path, trouble))


def digest_of(path):
    return short_digest(read_whole(path, MAX_CONFIG_BYTES)[0])


def put_back(target, path, ours):
    """Another program's version that a killed run displaced goes back where ours stands; else LazyError, both stay."""
    if digest_of(target.path) != ours or not exchange(path, target.path) or digest_of(path) != ours:
        raise LazyError("%s holds a version of %s that a killed run displaced: compare the two, then remove it"
                        % (path, target.path))


# -- what is there ---------------------------------------------------------------------

def survey(environment, state_dir, relay, only=None):
    """[row] of every registration in the files that clients read here; rows with a problem and no server are files.

    A row: client, file, project, server, kind ("stdio", "remote", None), wrapped, managed, relay, problem; and for
    the doctor registration, record, here (a file of the working folder, which anybody may have written).
    """
    rows, home = [], working_directory()
    for client in CLIENTS if only is None else (only,):
        known = set()
        users = client_files(client.files, environment, user_config_dir(environment))
        for path in users + ["%s/%s" % (home, name) for name in client.here if home]:
            if not is_absent(path) and resolved_path(path) not in known:
                known.add(resolved_path(path))
                rows += [dict(row, here=path not in users) for row in file_rows(client, path, state_dir, relay)]
    return rows


def file_rows(client, path, state_dir, relay):
    """The rows of one file, servers of its projects behind its own."""
    rows, place = [], Target(client, path, None, "", state_dir)
    try:
        raw, _ = read_config(place)
        document = read_document(raw, place.path, client.is_toml)
        projects = value_at(document.value, ("projects",)) if client.name == "claude" else None
        for project in [None] + (list(projects) if isinstance(projects, dict) else []):
            for server, found in registrations_of(document, client, project).items():
                rows.append(server_row(Target(client, path, project, server, state_dir), found, relay))
        trouble = strict_trouble(client, document)
        trouble = trouble and "%s will not load it: it has %s" % (client.name, trouble)
    except LazyError as error:
        trouble = str(error)
        trouble = trouble[len(place.path) + 2:] if trouble.startswith(place.path + ": ") else trouble
    if trouble or not rows:
        rows.append(empty_row(place, trouble))
    return rows


def empty_row(target, problem=None):
    row = dict.fromkeys(("project", "kind", "relay", "registration", "record"))
    row.update({"client": target.client.name, "file": target.path, "project": target.project,
                "server": target.server or None, "wrapped": False, "managed": False, "problem": problem})
    return row


def server_row(target, found, relay):
    """One row: what is known of a Registration, or the error in its place."""
    row = empty_row(target)
    row["server"] = target.server
    if isinstance(found, NotOurs):
        row["kind"] = "remote" if isinstance(found, Remote) else "other"
    elif isinstance(found, LazyError):
        row["problem"] = str(found)
    else:
        row.update({"kind": "stdio", "wrapped": is_relay(found.command, relay), "registration": found})
        try:
            row["record"] = checked_metadata(target, read_metadata_file(target))
            row["managed"] = row["record"] is not None
            row["wrapped"] = row["wrapped"] or is_wrapped(found, row["record"])
        except LazyError as error:
            row["problem"] = str(error)
            row["record"] = target.metadata_path if isinstance(error, BadRecord) else None
        row["relay"] = found.command if row["wrapped"] else None
    return row

# ============================================================================
# L13b SERVERS - what a servers.json says                         [pure, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L10b
# Used by: L14 L14b
# Owns:   HubConfig, HubServer, Health, LogOptions, CacheOptions, Embed, Transport, Permissions, Rule, read_hub_config,
#         check_flags, with_overrides, decision, reload_plan
# Never:  reads a file, the environment or a clock; tells a value of a variable, a header or a token
# Tests:  tests/test_l13b_servers.py
# ----------------------------------------------------------------------------
# Theory: the file has two forms, the older hub's list `servers` and the object `mcpServers` of clients.
# What is wrong with one server is its `error`, and it stays in the list; what is wrong with the file as a
# whole, its permissions among that, is fatal at a start and rejects a reload. A message names file, server
# and member, and what has to stand there, never what does: it may be a misplaced token. Wrong is what would
# make something else happen than was written: a permission that is not understood never means "allow" (the
# older hub dropped it), a name that stands twice is refused; other unknown members only get a warning.
# Variables and files are put in by one pass: what comes from them is not looked through again. What is
# missing is an error, for a literal ${TOKEN} in a header helps nobody; in `env` it stays, as in the older
# hub, with a warning. A reload compares the entry after that pass: order and comments are no change.
# Secrets are all values of `env` and headers, what was put in, words behind options like --api-key, names and
# queries in a URL; but nothing below four bytes, no words of everybody, not the hub's own PATH. What can go
# wrong: an entry that runs this hub again is known by its words only; behind a script, when it is started.
# ----------------------------------------------------------------------------
HubConfig = record(
    "HubConfig", "path servers request_timeout_s health log cache permissions embed search resources watch result_mode"
    " transport warnings secrets", "A servers.json that was checked, with what it names put in")
HubServer = record(
    "HubServer", "name description kind argv env cwd url headers tags examples permissions forward_prompts stderr"
    " start_timeout_s request_timeout_s idle_stop_s stop_grace_s canonical error",
    "kind: local or remote; error: None, or why it cannot be used, and most other fields are None then")
Health = record("Health", "enabled interval_s timeout_s idle_timeout_s wake", "healthMonitor (G2.5)")
LogOptions = record("LogOptions", "level format dump_bodies max_body_bytes redact_keys", "logging (G15.1)")
CacheOptions = record("CacheOptions", "strategy ttl_s max_access_count", "cache (G2.6)")
Embed = record("Embed", "enabled max_servers", "embedServerSummaries (G16.1)")
Transport = record("Transport", "type port host path auth_token max_payload_size allowed_origins allowed_hosts said"
                   " trouble",
                   "G12.1; said: the fields of SETTINGS that the file gives, and the environment cannot change (G1.6);"
                   " trouble: why there is no token although the file names one, which is no matter but for http")
Permissions = record("Permissions", "default rules", "default: allow, deny or None; rules: the last that matches wins")
Rule = record("Rule", "pattern action message server", "patterns with * and ?; message and server may be None")

LOCAL, REMOTE = ("local", "stdio"), ("remote", "http", "streamable-http", "streamableHttp", "streamable_http")
SERVER_MEMBERS = frozenset((
    "name description type transport command args url headers oauth env enabled examples tags permissions healthCheck"
    " forwardPrompts cwd stderr startTimeout requestTimeout idleStop stopGrace lazyProbe expandCommand").split())
HUB_MEMBERS = frozenset((
    "servers mcpServers mode requestTimeout healthMonitor logging cache permissions embedServerSummaries search"
    " resources watch resultMode transport $schema").split())
# Variables whose values everybody may see, and words that are no secret wherever they stand.
HARMLESS_NAMES = frozenset("PATH HOME LANG LANGUAGE LC_ALL USER LOGNAME SHELL TERM TMPDIR TZ PWD HOSTNAME".split())
HARMLESS_WORDS = frozenset((
    "true false null none error warn warning info debug trace production test stdio"
    # Words of our own texts: to hide them would make each message unreadable.
    " server servers tool tools command commands call exit exited status name names list live config file").split())

# The kinds of members: what has to stand there, and a function that gives the value or None for a wrong one.
A_FLAG = "true or false", lambda value: value if isinstance(value, bool) else None
A_TEXT = "a text that is not empty", lambda value: value if type(value) is str and value.strip() else None
A_PATH = "a path that begins with /", lambda value: value if type(value) is str and value[:1] == "/" else None
A_LIST = "a list", lambda value: value if type(value) is list else None
TEXTS = "a list of texts", lambda value: value if type(value) is list and {str}.issuperset(map(type, value)) else None
A_TOKEN = "a text without blanks that a header can hold", lambda value: value if (
    type(value) is str and value.isascii() and value.isprintable() and value.split() == [value]) else None


def one_of(*words):
    return "one of: " + ", ".join(words), lambda value: value if type(value) is str and value in words else None


def whole(least=1, most=2 ** 31 - 1, unit=1):
    """A whole number, spelled in any way (1e4); unit 1000: seconds (float) of a member in milliseconds."""
    def read(value):
        try:
            number = int(_exact_number(value)) if isinstance(value, _Number) else least - 1
        except ValueError:
            return None
        return (number if unit == 1 else number / unit) if least <= number <= most else None
    return "a whole number from %d to %d" % (least, most), read


ACTION, MILLISECONDS, FROM_ZERO = one_of("allow", "deny"), whole(unit=1000), whole(0, unit=1000)
# Option: (member of the file, field, kind, default). The option's variable is LAZY_MCP_ and its name in capitals.
SETTINGS = {"request-timeout": ("requestTimeout", "request_timeout_s", MILLISECONDS, 10.0),
            "transport": ("type", "type", one_of("stdio", "http"), "stdio"), "path": ("path", "path", A_PATH, "/mcp"),
            "host": ("host", "host", A_TEXT, "127.0.0.1"), "port": ("port", "port", whole(0, 65535), 8080),
            "auth-token": ("authToken", "auth_token", A_TOKEN, None),
            "max-payload-size": ("maxPayloadSize", "max_payload_size", whole(), 4194304)}


class WrongMember(LazyError):
    """A member is not what it has to be; the text begins with its path."""


class Members(dict):
    """A JSON object that keeps its `pairs`: a name may stand twice in it."""
    def __init__(self, pairs):
        super().__init__(pairs)
        self.pairs = pairs


_scan_pairs = make_scanner(type("_Pairs", (_Spelled,), {"object_pairs_hook": Members}))


def in_one_line(text):
    """`text` without what breaks a line, or turns around what follows on a screen."""
    return "".join(" " if c == "\n" or "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" else c
                   for c in printable(text))


class Table:
    """A JSON object whose members are asked for by kind; null is a member that is not there. Raises WrongMember."""
    __slots__ = ("value", "where")

    def __init__(self, value, where=""):
        if not isinstance(value, dict):
            raise WrongMember("%s: has to be an object" % (where or "the file"))
        self.value, self.where, names = value, where, sorted(name for name, _ in getattr(value, "pairs", ()))
        for name in [name for name, following in zip(names, names[1:]) if name == following]:
            raise self.wrong(name, "stands twice in one object")

    def path(self, name):
        return (self.where and self.where + ".") + in_one_line(name[:100])

    def wrong(self, name, reason):
        return WrongMember("%s: %s" % (self.path(name), reason))

    def has(self, name):
        return self.value.get(name) is not None

    def table(self, name):
        return Table(self.value[name] if self.has(name) else {}, self.path(name))

    def get(self, name, kind, default=None):
        found = kind[1](self.value[name]) if self.has(name) else default
        if found is None and self.has(name):
            raise self.wrong(name, "has to be " + kind[0])
        return found

    def strangers(self, known):
        return ", ".join(in_one_line(name[:100]) for name in sorted(set(self.value).difference(known))[:10])


class Reading:
    """One reading of one file: puts variables and files into texts (G3), and gathers what must never be shown."""
    __slots__ = ("path", "environment", "secrets", "warnings", "is_list", "title", "taken", "_read_file")

    def __init__(self, path, environment, read_file):
        self.path, self.environment, self._read_file, self.title = path, environment, read_file, ""
        self.secrets, self.warnings, self.is_list, self.taken = set(), [], False, {}

    def note(self, member, what):
        self.warnings.append("%s: %s%s: %s" % (self.path, self.title, member, what))

    def hide(self, text):
        """`text` is a secret, as it is and as JSON spells it; and so are its lines: output comes line by line."""
        if text == self.path or text in [self.environment.get(name) for name in HARMLESS_NAMES]:
            return
        for piece in {text}.union(line.strip() for line in text.split("\n")):
            for raw in piece.encode("utf-8", "surrogateescape"), json_string(piece)[1:-1]:
                if len(raw) >= 4 and piece.lower() not in HARMLESS_WORDS:
                    self.secrets.add(raw)

    def put_into(self, text, member, keeps=False):
        """`text` with ${NAME} and {file:PATH} replaced; what is missing is wrong, or stays as it is, where `keeps`."""
        import re
        def value_of(found):
            name = found[1]
            value = self._content(found[2], member) if name is None else self.environment.get(name) or None
            if value is not None and (value or keeps):
                self.hide("" if name in HARMLESS_NAMES else value)
                return value
            what = "its {file:} is empty or has no absolute path" if name is None else "the variable %s is not set" % (
                name if re.fullmatch("[A-Za-z0-9_]{1,99}", name) else "in it")  # else it may be a piece of a password
            if not keeps:
                raise WrongMember("%s: %s" % (member, what))
            self.note(member, what + ", the text stays as it is")
            return found[0]
        end = text.rfind("}") + 1  # behind it each opening brace would be a search to the end for nothing
        return sendable(re.sub(r"\$\{([^}]+)\}|\{file:([^}]*)\}", value_of, text[:end]) + text[end:], member)

    def home(self, path):
        return self.environment.get("HOME", "") + path[1:] if path[:2] == "~/" else path

    def _content(self, path, member):
        """The text of a file without its last line end; None for a path that is not absolute (G3.4)."""
        import re
        path = re.sub("%([^%]+)%", lambda found: self.environment.get(found[1]) or found[0], self.home(path.strip()))
        if not re.match(r"/|\\\\|[A-Za-z]:[\\/]", path):
            return None
        try:
            read = self._read_file(path)
        except (OSError, ValueError, LazyError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise WrongMember("%s: its {file:} cannot be read: %s" % (member, why)) from None
        raw, facts = read if isinstance(read, tuple) else (read, None)
        if facts is not None and facts.mode & 0o077:
            self.note(member, "others than the owner may read its {file:}")
        return re.sub("\r?\n\\Z", "", raw.decode("utf-8", "surrogateescape"))

    def mapping(self, table, name, keeps=False):
        """{name: text} of a member whose values are all texts, with variables put in; all of them secrets."""
        inner, found = table.table(name), {}
        for key, value in inner.value.items():
            if not sendable(key, inner.path(key)) or "=" in key or type(value) is not str:
                raise inner.wrong(key, "has to be a text, under a name without =")
            found[key] = self.put_into(value, inner.path(key), keeps)
            self.hide(found[key])
        return found

    def headers(self, table, name):
        import re
        found = self.mapping(table, name)
        for key, value in found.items():
            if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", key, re.A) or re.search("[\0-\x08\n-\x1f\x7f]", value):
                raise table.wrong("%s.%s" % (name, key), "holds a character that no header can have")
            self.hide(value.partition(" ")[2].strip())  # without the word Bearer it is as much of a secret
        return found

    def url(self, table):
        import re
        url = self.put_into(table.get("url", A_TEXT), "url")
        found = re.fullmatch(r"https?://(?:([^/?#]*)@)?[^/?#@\s]+(?:/[^?#\s]*)?(?:\?([^#\s]*))?(?:#\S*)?", url, re.I)
        if not found or not url.isprintable():
            raise WrongMember("url: has to be http:// or https:// and a host, no blanks; WebSocket is not supported")
        for secret in (found[1] or "").split(":") + [pair.partition("=")[2] for pair in (found[2] or "").split("&")]:
            self.hide(secret)
        return url

    def oauth(self, table):
        """The oauth member with variables put in, which so far only a reload compares; None without one."""
        inner = table.table("oauth")
        texts = [(name, inner.get(name, A_TEXT)) for name in ("clientId", "clientSecret")]
        found = {name: self.put_into(text, inner.path(name)) for name, text in texts if text}
        self.hide(found.get("clientSecret", ""))
        found["extraHeaders"] = self.headers(inner, "extraHeaders")
        return dict(inner.value, **found) if table.has("oauth") else None

    def command(self, table):
        """The argv of a local server. In the form that clients write, the command is a text (case 192)."""
        is_argv, args = self.is_list and type(table.value["command"]) is list, table.get("args", TEXTS, [])
        words = table.get("command", TEXTS) if is_argv else [table.get("command", A_TEXT)] + args
        if is_argv and args:
            self.note("args", "it is ignored, the command is a list already")
        work = self.put_into if table.get("expandCommand", A_FLAG) else sendable
        words = [work(word, "command") for word in words]
        if not words or not words[0].strip():
            raise table.wrong("command", "names no program")
        # A whole command line in one text does not start, but is told.
        said = words if len(words) > 1 else words[0].split()
        for word, following in zip(said[1:], said[2:] + ["-"]):
            name, equals, value = word.partition("=")
            if name[:1] == "-" and any(part in name.upper().encode("utf-8", "replace") for part in SECRET_NAME_PARTS):
                self.hide(value if equals else "" if following[:1] == "-" else following)
        return words


def sendable(text, member):
    """`text`, if a command line can hold it."""
    if "\0" in text or any("\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff" for c in text):
        raise WrongMember("%s: holds a NUL character, or half of a surrogate pair" % member)
    return text


def kind_of(table):
    """"local" or "remote". WrongMember for contradictions, with what is accepted (case 158)."""
    given, unknown = list(filter(table.has, ("command", "url"))), table.strangers(SERVER_MEMBERS)
    if len(given) != 1:
        raise WrongMember("command: there has to be either a command or a url%s" % (
            ", only one of them" if given else unknown and ", and there is a member that nobody knows: " + unknown))
    words = LOCAL if given == ["command"] else REMOTE
    for name in filter(table.has, ("type", "transport")):
        if table.value[name] not in words:
            raise table.wrong(name, "has to be one of: %s, beside a %s; sse and websocket are not supported" % (
                ", ".join(words), given[0]))
    return words[0]


def starts_hub(argv, config_path):
    """Do these words start a hub on the file that is read (case 142)? A relative path is judged by its end."""
    for at, word in enumerate(argv):
        name, rest = word.rpartition("/")[2].lower().replace("_", "-"), argv[at + 1:]
        if name.startswith("lazy-mcp") or name.startswith("mcp-lazy") and rest[:1] == ["hub"]:
            given = [after for word, after in zip(rest, rest[1:]) if word == "--config"]
            for path in given + [word[9:] for word in rest if word.startswith("--config=")]:
                end = path[2:] if path[:2] in ("./", "~/") else path
                if path == config_path or end[:1] != "/" and config_path.endswith("/" + end):
                    return True
    return False


def permissions_of(table, *scopes):
    """The Permissions of a member; what is not known in them is wrong (G16.2). scopes: "server" in those of the hub."""
    inner, rules = Table(table.value.get("permissions", {}), "permissions"), []
    for at, value in enumerate(inner.get("rules", A_LIST, [])):
        rule, others = Table(value, "permissions.rules[%d]" % at), ("message",) + scopes
        if not rule.has("pattern") or not rule.has("action") or rule.strangers(("pattern", "action") + others):
            raise WrongMember("%s: has to have pattern and action, else only %s" % (rule.where, " and ".join(others)))
        rules.append(Rule(*[rule.get(name, ACTION if name == "action" else A_TEXT) for name in Rule.__slots__]))
    if inner.strangers(("default", "rules")):
        raise inner.wrong(inner.strangers(("default", "rules")), "is not known, permissions have default and rules")
    return Permissions(inner.get("default", ACTION), rules)


def entry_fields(table, reading):
    """{field of HubServer: value} of an entry that is right in all of its members."""
    kind, oauth, env = kind_of(table), reading.oauth(table), reading.mapping(table, "env", keeps=True)
    stderr, examples = sendable(table.get("stderr", A_TEXT, ""), "stderr"), table.get("examples", A_LIST)
    if kind == "local" and oauth is not None:
        raise table.wrong("oauth", "is for remote servers, and this one has a command")
    if stderr not in ("", "inherit", "log") and not stderr.startswith(("/", "./", "../", "~/")):
        raise table.wrong("stderr", "has to be inherit, log, or a path that begins with / or ./ or ../ or ~/")
    fields = {
        "kind": kind, "argv": reading.command(table) if kind == "local" else None, "env": env,
        "url": reading.url(table) if kind == "remote" else None, "headers": reading.headers(table, "headers"),
        "cwd": reading.home(reading.put_into(table.get("cwd", A_TEXT, ""), "cwd")) or None,
        "tags": table.get("tags", TEXTS), "examples": examples and parse_json(canonical_text(examples)),
        "permissions": permissions_of(table), "forward_prompts": table.get("forwardPrompts", A_FLAG, False),
        "stderr": reading.home(stderr) or None, "start_timeout_s": table.get("startTimeout", MILLISECONDS, 60.0),
        "request_timeout_s": table.get("requestTimeout", MILLISECONDS),
        "idle_stop_s": table.get("idleStop", FROM_ZERO, 0.0), "stop_grace_s": table.get("stopGrace", MILLISECONDS, 0.5)}
    if kind == "local" and starts_hub(fields["argv"], reading.path):
        raise table.wrong("command", "this hub would be one of its own servers, it is started with this very file")
    put_in = {"env": env, "headers": fields["headers"], "url": fields["url"], "cwd": fields["cwd"], "oauth": oauth,
              "command": fields["argv"], "args": None}
    entry = {name: put_in.get(name, value) for name, value in table.value.items() if value is not None}
    return dict(fields, canonical=canonical_text(entry))


def canonical_text(value):
    try:
        return canonical(parse_json(canonical(value), exact=True))  # of what can be read again
    except (RecursionError, ValueError):
        raise WrongMember("the entry: is nested too deeply, or holds a number that nobody can read") from None


def read_servers(table, reading):
    """[HubServer] of a whole file, without the disabled ones."""
    form, name = (dict, "mcpServers") if table.has("mcpServers") else (list, "servers")
    if form is dict and table.has("servers"):
        raise table.wrong(name, "there are servers, too; only one of them can be meant")
    value, reading.is_list = table.value.get(name), form is list
    if not value or not isinstance(value, form):
        raise table.wrong(name, "has to be %s with at least one server" % ("a list" if form is list else "an object"))
    pairs = [(isinstance(entry, dict) and entry.get("name"), entry) for entry in value] if form is list else value.pairs
    return [read_server(at, name, entry, reading) for at, (name, entry) in enumerate(pairs) if not (
        isinstance(entry, dict) and (entry.get("enabled") is False or form is dict and entry.get("disabled") is True))]


def read_server(index, name, entry, reading):
    """The HubServer of one entry; what is wrong with it is its `error` (G2.3)."""
    fields = {"name": in_one_line(name) if type(name) is str and name.strip() else "unnamed"}
    reading.title = "Server %d (%s): " % (index, fields["name"][:100])
    try:
        table = Table(entry, "" if isinstance(entry, dict) else "the entry")
        fields["description"] = table.get("description", A_TEXT)
        if name != fields["name"]:
            raise table.wrong("name", "has to be a text that is not empty and holds no control characters")
        if reading.taken.setdefault(name, index) != index:
            raise table.wrong("name", "server %d has the same" % reading.taken[name])
        if reading.is_list and not table.has("description"):
            raise table.wrong("description", "is missing")
        fields.update(entry_fields(table, reading))
        if not isinstance(table.value.get("enabled", True), bool):
            reading.note("enabled", "only false, without quotes, disables a server")
        if reading.is_list and table.strangers(SERVER_MEMBERS):  # clients have members of their own
            reading.note("members that are ignored", table.strangers(SERVER_MEMBERS))
    except WrongMember as error:
        fields["error"] = "%s%s (in %s)" % (reading.title, error, reading.path)
    return HubServer(*[fields.get(field) for field in HubServer.__slots__])


def read_hub_config(raw, path, environment, read_file):
    """The HubConfig of a file's bytes; LazyError for what is wrong with the file as a whole.
    environment: {str: str}. read_file(path) gives bytes, or (bytes, facts with `mode`), or raises OSError.
    """
    raw, reading, document = bytes(raw), Reading(path, environment, read_file), None
    try:
        document, text = json_document(raw), raw.decode("latin-1")
        text = (_without_extras(raw, text)[0] if document.strict_trouble else text).encode("latin-1").decode("utf-8")
        table = Table(_unwatched(_scan_pairs, text, _past_space(text, int(text[0] == "\ufeff")))[0])
        fields = hub_fields(table, reading)
        if table.strangers(HUB_MEMBERS):
            reading.note("members that are ignored", table.strangers(HUB_MEMBERS))
        fields.update(path=path, servers=read_servers(table, reading), warnings=reading.warnings,
                      secrets=frozenset(reading.secrets))
        trouble = fields["transport"].trouble
        fields["transport"].trouble = trouble and "%s: %s%s" % (path, line_of(document, trouble), trouble)
    except (WrongMember, JsonTextError) as error:
        place = "line %d, column %d: " % (error.line, error.column) if isinstance(error, JsonTextError) \
            else line_of(document, error)
        raise LazyError("%s: %s%s" % (path, place, error)) from None
    return HubConfig(*[fields[field] for field in HubConfig.__slots__])


def line_of(document, error):
    """"line 3: " of the member that a WrongMember begins with, or of the one around it; "" where it has no line."""
    names, line = str(error).partition(":")[0].split("."), ""
    for count in range(1, len(names) + 1):
        try:
            place = document.find(tuple(names[:count]))
        except JsonTextError as twice:
            place = twice
        if place is not None:
            line = "line %d: " % place.line
    return line


def hub_fields(table, reading):
    """{field of HubConfig: value} of all but the servers."""
    table.get("mode", one_of("multi-server"))
    health, log, cache, embed = map(table.table, ("healthMonitor", "logging", "cache", "embedServerSummaries"))
    limit_s = table.get("requestTimeout", MILLISECONDS, 10.0)  # the one of SETTINGS that stands outside of transport
    said = dict(table.table("transport").value, requestTimeout=table.value.get("requestTimeout"))
    fields, trouble = [field for member, field, _, _ in SETTINGS.values() if said.get(member) is not None], None
    if table.table("transport").get("authToken", A_TEXT):
        try:
            said["authToken"] = reading.put_into(said["authToken"], "transport.authToken")
            reading.hide(said["authToken"])
        except WrongMember as error:
            said["authToken"], trouble = None, error
    reached = Table(said, "transport")
    found = {field: reached.get(member, kind, default) for member, field, kind, default in SETTINGS.values()}
    found.update(
        allowed_hosts=reached.get("allowedHosts", TEXTS, []), said=frozenset(fields),
        allowed_origins=reached.get("allowedOrigins", TEXTS, []), trouble=trouble)
    return {
        "request_timeout_s": limit_s, "transport": Transport(*map(found.get, Transport.__slots__)),
        "health": Health(health.get("enabled", A_FLAG, True), health.get("interval", whole(100, unit=1000), 30.0),
                         health.get("timeout", FROM_ZERO, 10.0), health.get("idleTimeout", FROM_ZERO, 300.0),
                         health.get("wake", A_FLAG, False)),
        "log": LogOptions(log.get("level", one_of("error", "info", "debug"), "info"),
                          log.get("format", one_of("json", "plain"), "json"), log.get("dumpBodies", A_FLAG, False),
                          log.get("maxBodyLogBytes", whole(), 8192), log.get("redactKeys", TEXTS, [])),
        "cache": CacheOptions(cache.get("strategy", one_of("session", "none", "persistent"), "session"),
                              cache.get("ttl", FROM_ZERO, 0.0), cache.get("maxAccessCount", whole(0), 0)),
        "embed": Embed(embed.get("enabled", A_FLAG, False), embed.get("maxServers", whole(), 10)),
        "permissions": permissions_of(table, "server"), "search": table.get("search", A_FLAG, False),
        "resources": table.get("resources", A_FLAG, False), "watch": table.get("watch", A_FLAG, False),
        "result_mode": table.get("resultMode", one_of("native", "json"), "native")}


def replaced(value, **changes):
    return type(value)(*[changes.get(name, getattr(value, name)) for name in value.__slots__])


def setting(option, text):
    """What the text of an option or its variable means, None for a wrong one."""
    what, read = SETTINGS[option][2]
    is_number = what.startswith("a whole") and str(text).isascii() and str(text).isdigit()
    return read(_Number(text) if is_number else str(text))


def check_flags(flags):
    """UsageError for a wrong text in flags ({option: text}), whatever the file says (G1.3)."""
    for option, text in flags.items():
        if text is not None and setting(option, text) is None:
            raise UsageError("--%s: has to be %s" % (option, SETTINGS[option][2][0]))


def with_overrides(config, flags, environment):
    """The HubConfig with what flags ({option: text}) and LAZY_MCP_* say: flags > file > environment (G1.6).
    UsageError for a wrong flag. A wrong variable gives a warning, but LazyError for a path or token: they protect (I8).
    """
    check_flags(flags)
    changes, warnings, tokens = {"trouble": None}, [], Reading(config.path, {}, None)
    for option, (_, field, (what, _), _) in SETTINGS.items():
        where, text = "LAZY_MCP_" + option.upper().replace("-", "_"), flags.get(option)
        if text is None and field not in config.transport.said:
            text = environment.get(where) or None
        value = None if text is None else setting(option, text)
        if value is not None:
            changes[field] = value
        elif text is not None and option in ("path", "auth-token"):
            raise LazyError("%s: has to be %s" % (where, what))
        elif text is not None:
            warnings.append("%s: has to be %s; the variable is ignored" % (where, what))
    tokens.hide(changes.get("auth_token", ""))
    transport = replaced(config.transport, **changes)
    if transport.type == "http" and transport.auth_token is None and config.transport.trouble:
        raise LazyError(config.transport.trouble)
    return replaced(
        config, request_timeout_s=changes.get("request_timeout_s", config.request_timeout_s), transport=transport,
        warnings=config.warnings + warnings, secrets=config.secrets | tokens.secrets)


def glob_matches(pattern, text):
    """Does the whole text match * and ?, whatever its capitals? One step per character, for any pattern.
    Bit n of `states`: the first n characters of the pattern, stars not counted, have been found.
    """
    length, stays, bits = 0, 0, {}
    for c in pattern:
        if c == "*":
            stays |= 1 << length
        else:
            bits[c.casefold()] = bits.get(c.casefold(), 0) | 1 << length
            length += 1
    anything, states = bits.pop("?", 0), 1
    for c in text:
        states = (states & (bits.get(c.casefold(), 0) | anything)) << 1 | states & stays
    return bool(states >> length & 1)


def decision(config_permissions, server_permissions, server_name, command):
    """(may it be called, the message of the rule that forbids it or None), G16.2."""
    levels = [permissions for permissions in (server_permissions, config_permissions) if permissions is not None]
    for permissions in levels:
        for rule in reversed(permissions.rules):
            if glob_matches(rule.pattern, command) and (rule.server is None or glob_matches(rule.server, server_name)):
                return (True, None) if rule.action == "allow" else (False, rule.message)
    return next((permissions.default for permissions in levels if permissions.default), "allow") == "allow", None


def reload_plan(old_config, new_config):
    """(added, removed, modified, unchanged): lists of names. Of a name that stands twice the first is compared."""
    old, new = ({server.name: server for server in reversed(config.servers)} for config in (old_config, new_config))
    names = list(dict.fromkeys(server.name for server in new_config.servers + old_config.servers))
    both = [name for name in names if name in old and name in new]
    same = [name for name in both if (new[name].canonical, new[name].error) == (old[name].canonical, old[name].error)]
    return ([name for name in names if name not in old], [name for name in names if name not in new],
            [name for name in both if name not in same], same)

# ============================================================================
# L13c HUBLOG - what the hub tells, and what it never tells       [pure, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3
# Used by: L13d L13e L14 L14b
# Owns:   Redaction, redacted, redacted_text, stderr_end, HubLog, HubError, error_result, classify_failure
# Never:  writes a secret, a part of one or the length of one; raises out of a log call
# Tests:  tests/test_l13c_hublog.py
# ----------------------------------------------------------------------------
# Theory: hidden are the values known to be secret (env, headers, tokens), wherever they
# turn up; members whose name says it; credentials by their form. Known values are found
# by their first letters in one pass, however many there are, and places that overlap are
# hidden as one: one after the other would leave the end of the second. All is hidden
# before it is cut, since no search finds half a secret; sizes are those of the hidden
# text. JSON inside a string is opened, hidden and closed again. A text that holds JSON
# but is none ends at the first name that says secret: nobody knows where its value ends.
# What can still go wrong: a spelling that nobody foresaw (base64, reversed); what was
# cut before it came here (`stderr_end` is for that).
# ----------------------------------------------------------------------------
HUB_LOG_LEVELS = {"error": 0, "info": 1, "debug": 2}
# A line without its body, and one value of it: a long message leaves room for what else is known.
LOG_LINE_BYTES, LOG_VALUE_BYTES = 16 * 1024, 6 * 1024
# A longer body is not searched, so none of it is shown; deeper containers could not be walked by recursion.
LOG_BODY_BYTES, LOG_DEPTH = PARSED_BYTES, 64
STDERR_LINES_PER_S, STDERR_BYTES_PER_S = 100, 64 * 1024
LEAF_CHARACTERS = 8
# What bytes that are no UTF-8 become.
CUT_LETTERS = "\ufffd" + "".join(map(chr, range(0xDC80, 0xDD00)))
HIDDEN, HIDDEN_MEMBER, NOT_SHOWN = "***", "[REDACTED]", "[too long or nested too deep to be shown]"
# Filled by this program or with names of the configuration: a variable whose value is
# "github" must not take the name of that server from every line (case 199).
OPEN_FIELDS = frozenset(("event", "server", "state", "phase", "code"))
SECRET_MEMBERS = ("authorization", "proxy-authorization", "token", "access_token", "refresh_token", "authtoken",
                  "api_key", "x-api-key", "client_secret", "password", "secret")
# Bearer x, --token x, user:x@ and ?name=x. Each runs over a place of the text a bounded number of times.
CREDENTIAL_FORMS = (
    (r"(?i)((?:bearer|basic)(?:[ \t]|%20|\+)+[\"']?)(?:[^\s\"'\\]|\\/)+", r"\1***"),
    (r"(?i)(?<![\w.-])(--?[\w.-]{0,40}?(?:token|secret|passw(?:or)?d|api[_-]?key)[\w.-]{0,40}(?:=|[ \t]+)[\"']?)"
     r"[^\s\"']+", r"\1***"),
    (r"(:\\?/\\?/)[^\s/?#\"'<>\\]*@", r"\1***@"),
    (r"([?&#][^\s?&#=\"'<>]*=)[^\s&#\"'<>]+", r"\1***"))


def _bare_name(name):
    """One spelling of access_token, Access-Token and accessToken; of a.b.c only c."""
    return name.lower().replace("-", "").replace("_", "").rpartition(".")[2]


def _text_of(raw):
    """Bytes as text; what is no UTF-8 becomes lone surrogates, so that a secret of such bytes is still found."""
    return raw if isinstance(raw, str) else bytes(raw).decode("utf-8", "surrogateescape")


def _quoted(text):
    """A JSON string literal (str): letters as they are, but nothing that moves a cursor or cannot be seen."""
    if text.isascii():
        return encode_basestring_ascii(text)
    return '"%s"' % "".join([c if c.isprintable() and c not in '"\\' else encode_basestring_ascii(c)[1:-1]
                             for c in text.encode("utf-8", "replace").decode("utf-8")])


def _encoded(value):
    """Compact JSON (str) of a value that went through Redaction.value."""
    if isinstance(value, dict):
        return "{%s}" % ",".join([_quoted(name) + ":" + _encoded(item) for name, item in value.items()])
    if isinstance(value, list):
        return "[%s]" % ",".join([_encoded(item) for item in value])
    return _quoted(value) if type(value) is str else str(value) if isinstance(value, _Number) else canonical(value)


def _flat(text):
    """`text` without escapes, however often it was put in quotes; to search in, not to show."""
    import re
    for _ in range(4 if "\\" in text else 0):
        text = re.sub(r"\\+(?:u([0-9a-fA-F]{4})|([^u]))", lambda hit: hit[2] or chr(int(hit[1], 16)), text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _json_in(text):
    """The object or array that a text holds; None for any other text."""
    try:
        return parse_json(text, exact=True) if text.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        return None


def _leaves(value):
    """The longer texts in a secret that is JSON (a key file), which somebody may spell anew."""
    if isinstance(value, (dict, list)):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _leaves(item)]
    return [value] if type(value) is str and len(value) >= LEAF_CHARACTERS else []


def _forms_of(secret):
    """The texts that give a secret (bytes) away: itself, its parts that are secret, each as JSON and URLs spell it."""
    text = _text_of(secret).strip()
    scheme, _, rest = text.partition(" ")
    user = text.partition("://")[2].rpartition("@")[0]
    parts = text.splitlines() + [user.partition(":")[2], rest if scheme.isalpha() else ""]
    parts += _leaves(_json_in(text))
    for part in {text} | {part.strip() for part in parts if len(part.strip()) >= 4}:
        letters = [chr(b) if chr(b) in "-._~" or b < 128 and chr(b).isalnum() else "%%%02X" % b
                   for b in part.encode("utf-8", "surrogateescape")]
        lower = [letter.lower() if len(letter) == 3 else letter for letter in letters]
        yield from (part, encode_basestring_ascii(part)[1:-1], _quoted(part)[1:-1], part.replace("/", "\\/"))
        yield from ("".join(letters), "".join(lower), _flat(part))


def _overlap(form, text, from_end):
    """How many characters at the edge of `text`, where it was cut, belong to a form that goes on beyond it."""
    for size in range(min(len(form) - 1, len(text)), 0, -1):
        if text.startswith(form[-size:]) if from_end else text.endswith(form[:size]):
            return size
    return 0


class Redaction:
    """What is hidden, made ready once: `secrets` are bytes, `keys` member names beside those of G15.5."""
    __slots__ = ("_forms", "_start", "_names", "_name_form")

    def __init__(self, secrets, keys=()):
        import re
        forms = {form for secret in secrets for form in _forms_of(secret) if form}
        self._start, self._forms = min([4] + [len(form) for form in forms]), {}
        for form in forms:
            self._forms.setdefault(form[:self._start], []).append(form)
        self._names = frozenset(map(_bare_name, SECRET_MEMBERS + tuple(keys))) - {""}
        letters = ["[-_]?".join(map(re.escape, name)) for name in self._names]
        self._name_form = r"(?i)(?<![^\W_])(?:%s)[\"'\\]+\s*:" % "|".join(letters)

    def known(self, text, edge=(0, 0)):
        """`text` without known secrets: all that may be hidden of what has to be usable, as the page to sign in at.

        edge: one more place (start, end) to hide.
        """
        pieces, end = [], 0
        for start, stop in sorted(list(self._places(text)) + [edge] * (edge[1] > edge[0])):
            if start > end or not pieces:
                pieces += [text[end:start], HIDDEN]
            end = max(end, stop)
        return "".join(pieces) + text[end:]

    def _places(self, text):
        """(start, end) of each known secret in a text."""
        find = self._forms.get
        for at in range(len(text) - self._start + 1) if self._forms else ():
            for form in find(text[at:at + self._start], ()):
                if text.startswith(form, at):
                    yield at, at + len(form)

    def piece(self, text, most, from_end=False):
        """`text`, a piece of something longer, hidden and cut to its first (or last) `most` characters.

        A secret that the cut went through has no known form; what is left of it at the edge is hidden there, with
        what is left of a letter of several bytes.
        """
        text = text.lstrip(CUT_LETTERS) if from_end else text.rstrip(CUT_LETTERS)
        left = max((_overlap(form, text, from_end) for forms in self._forms.values() for form in forms), default=0)
        text = self.text(self.known(text, (0, left) if from_end else (len(text) - left, len(text))))
        return text[-most:] if from_end else text[:most]

    def text(self, text):
        """`text` without secrets and credentials (case 195)."""
        import re
        text = self.known(text)
        for form, shown in CREDENTIAL_FORMS if not text.isalnum() else ():
            text = re.sub(form, shown, text)
        return text

    def hides(self, name):
        """True if a member of this name is hidden."""
        return _bare_name(name) in self._names

    def value(self, value, verbatim=False, depth=LOG_DEPTH):
        """A new value (JSON types) with all of it hidden; verbatim: only known secrets, as a client has to get it."""
        if isinstance(value, BaseException):
            place = error_place(value) if value.__traceback__ else None
            value = {"name": type(value).__name__, "message": str(value), "stack": place}
        if isinstance(value, (dict, list, tuple)) and not depth:
            return NOT_SHOWN
        if isinstance(value, dict):
            return {self.text(str(name)): HIDDEN_MEMBER if not verbatim and self.hides(str(name)) else
                    self.value(item, verbatim, depth - 1) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item, verbatim, depth - 1) for item in value]
        if type(value) is str:
            inner = _json_in(value) if depth and not verbatim else None
            if inner is not None and _json_in(self.known(value)) is None:
                inner = None  # a secret that is JSON itself: spelled anew it would not be found
            return _encoded(self.value(inner, False, depth - 1)) if inner is not None else (
                self.known(value) if verbatim else self._no_json(value))
        if value is None or isinstance(value, bool):
            return value
        if not isinstance(value, (int, float, _Number)) or isinstance(value, float) and value - value != 0:
            return "<%s>" % type(value).__name__  # what it says of itself could be anything; infinity is no JSON
        return value if self.known(str(value)) == str(value) else HIDDEN

    def body(self, text):
        """The text of a message: JSON, or events whose data is JSON (SSE), or anything."""
        import re
        text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        parts = re.split(r"((?:^|(?<=\n))data:.*(?:\ndata:.*)*)", text)  # every second one is the data of an event
        return self.value(text) if len(parts) == 1 else "".join([
            "data: " + self.value(re.sub(r"(?m)^data:[ ]?", "", part)) if at % 2 else self._no_json(part)
            for at, part in enumerate(parts)])

    def _no_json(self, text):
        import re
        text = self.text(text)
        named = re.search(self._name_form, text) if ":" in text else None
        text = text[:named.end()] + HIDDEN if named else text
        flat = _flat(text) if "\\" in text else ""  # a piece of JSON: its writer escapes what letters he likes
        return NOT_SHOWN if self.known(flat) != flat or not named and re.search(self._name_form, flat) else text


def redacted(value, keys, secrets):
    """A decoded JSON value without hidden members, secrets and credentials (G15.5)."""
    return Redaction(secrets, keys).value(value)


def redacted_text(text, secrets):
    """A text without secrets and credentials. `secrets`: bytes, or a Redaction, which costs less the second time."""
    return (secrets if isinstance(secrets, Redaction) else Redaction(secrets)).text(text)


def stderr_end(raw, secrets, most, is_cut=False):
    """The last `most` characters of a server's stderr, from a whole word on; hidden first and then cut.

    is_cut: raw is the end of something longer.
    """
    hidden = secrets if isinstance(secrets, Redaction) else Redaction(secrets)
    text = (hidden.piece(_text_of(raw), len(raw), True) if is_cut else hidden.text(_text_of(raw))).strip()
    end = text[-most:]
    return text if len(text) <= most else end.partition("\n" if "\n" in end else " ")[2] or end


_Stderr = record("_Stderr", "splitter since_wall_s lines bytes left_out",
                 "One server's stderr; how many lines and bytes of it may still be logged in this second")


class HubLog:
    """The log. write(bytes) takes whole lines; `lost` lines were not taken since the last that was."""
    __slots__ = ("lost", "_write", "_options", "_redaction", "_streams")

    def __init__(self, write, options, secrets):
        self.lost, self._write, self._streams = 0, write, {}
        self.configure(options, secrets)

    def configure(self, options, secrets):
        """From now on these options and secrets (bytes)."""
        self._options, self._redaction = options, Redaction(secrets, options.redact_keys)

    def event(self, level, message, now_wall_s, /, **fields):
        """One line (G15.2) if `level` is logged; fields that are None are left out."""
        if self._logs(level):
            self._guarded(self._put, level, message, now_wall_s, fields)

    def body(self, direction, raw, now_wall_s, /, **fields):
        """One message that came or went, where the configuration wants that (G15.6)."""
        if self._options.dump_bodies and self._logs("debug"):
            self._guarded(self._put_body, raw, now_wall_s, {"event": "body_dump", "direction": direction, **fields})

    def stderr(self, server, raw, now_wall_s):
        """What a server wrote to its stderr, b"" at its end: whole lines, up to a rate (case 201)."""
        if self._logs("debug"):
            self._guarded(self._put_stderr, server, raw, now_wall_s)

    def _logs(self, level):
        return HUB_LOG_LEVELS.get(level, 0) <= HUB_LOG_LEVELS.get(self._options.level, 1)

    def _guarded(self, work, *given):
        try:
            work(*given)
        except Exception:  # a full disk or a strange field ends the line, never a call (case 201)
            self.lost += 1

    def _put_body(self, raw, now_wall_s, fields):
        """Sizes are those of the hidden text: the real one beside it would tell how long a secret is (case 198)."""
        text = NOT_SHOWN if len(raw) > LOG_BODY_BYTES else self._redaction.body(_text_of(raw))
        whole = text.encode("utf-8", "replace")
        shown = whole[:max(0, self._options.max_body_bytes)].decode("utf-8", "ignore")
        size = len(shown.encode("utf-8"))
        fields.update(bodyBytes=len(whole), bodyLoggedBytes=size, bodyTruncated=size < len(whole))
        self._put("debug", "message body", now_wall_s, fields, shown)

    def _put_stderr(self, server, raw, now_wall_s):
        fields = {"event": "server_stderr", "server": server}
        stream = self._streams.setdefault(server, _Stderr(LineSplitter(STDERR_BYTES_PER_S), -1, 0, 0, 0))
        if not 0 <= now_wall_s - stream.since_wall_s < 1:
            self._tell_left_out(stream, now_wall_s, fields)
            stream.since_wall_s, stream.lines, stream.bytes = now_wall_s, STDERR_LINES_PER_S, STDERR_BYTES_PER_S
        for block in stream.splitter.feed(raw) if raw else stream.splitter.rest():
            stream.left_out += block.count(b"\n")
            for line in bytes(block).split(b"\n")[:-1] if stream.lines else ():
                if not stream.lines or stream.bytes < len(line):
                    stream.lines = 0  # nothing more in this second, or lines would stand apart that belong together
                    break
                stream.lines, stream.bytes = stream.lines - 1, stream.bytes - len(line)
                stream.left_out -= 1
                self._guarded(self._put, "debug", _text_of(line).rstrip("\r"), now_wall_s, fields)
        stream.left_out, stream.splitter.too_long = stream.left_out + stream.splitter.too_long, False
        if not raw:
            self._tell_left_out(self._streams.pop(server), now_wall_s, fields)

    def _tell_left_out(self, stream, now_wall_s, fields):
        left_out, stream.left_out = stream.left_out, 0
        if left_out:
            text = "%d lines of its stderr are left out" % left_out
            self._put("debug", text, now_wall_s, dict(fields, leftOut=left_out))

    def _put(self, level, message, now_wall_s, fields, body=None):
        """Write one line. What does not fit is cut, after all was hidden."""
        parts, room, is_cut = [], LOG_LINE_BYTES - 256, False
        for name, value in {"message": message, **fields, "lostLines": self.lost or None}.items():
            if value is None:
                continue
            if not (type(value) is int or name in OPEN_FIELDS and type(value) is str):
                value = HIDDEN_MEMBER if self._redaction.hides(name) else self._redaction.value(value)
            whole = _encoded(value)
            text = _short_json(value, whole)
            size = len(name) + len(text.encode("utf-8")) + 4
            is_cut = is_cut or text is not whole or size > room
            if size <= room:
                room -= size
                parts.append((name, text))
        parts += [("truncated", "true")] * is_cut + ([("body", _quoted(body))] if body is not None else [])
        self._write(self._line(level, utc_stamp(now_wall_s) + "Z", parts))
        self.lost = 0

    def _line(self, level, stamp, parts):
        """The bytes of a line; `parts` are names and JSON texts, the message first."""
        if self._options.format != "plain":
            pairs = ",".join(["%s:%s" % (_quoted(name), text) for name, text in parts])
            return ('{"timestamp":"%s","level":%s,%s}\n' % (stamp, _quoted(level), pairs)).encode("utf-8")
        words = ["[%s]" % stamp, level.upper(), parts[0][1][1:-1].replace('\\"', '"')]
        for name, text in parts[1:]:
            is_plain = text[:1] == '"' and text[1:-1] and not set(text[1:-1]) & set(' "=\\')
            words.append("%s=%s" % (name, text[1:-1] if is_plain else text))
        return (" ".join(words) + "\n").encode("utf-8")


def _short_json(value, whole):
    """`whole`, the JSON text of a value; a string of its start where it is too long for a line."""
    if len(whole.encode("utf-8")) <= LOG_VALUE_BYTES:
        return whole
    start = (value if type(value) is str else whole)[:LOG_VALUE_BYTES - 2]
    while len(_quoted(start).encode("utf-8")) > LOG_VALUE_BYTES:
        start = start[:len(start) * 3 // 4]
    return _quoted(start)


class HubError(LazyError):
    """A meta-tool failed: `code` of G9.4, two more paragraphs, and `rpc`, the error of a server (dict or None)."""

    def __init__(self, text, code, details=None, suggestion=None, rpc=None):
        super().__init__(text)
        self.code, self.details, self.suggestion, self.rpc, self.next_try_ms = code, details, suggestion, rpc, None


def error_result(error, secrets):
    """The result (bytes) of a failed call (G5.2). A server's own words, and a page to sign in at, keep their URLs."""
    hidden = secrets if isinstance(secrets, Redaction) else Redaction(secrets)
    is_own = error.code in ("AUTH_REQUIRED", "POLICY_BLOCKED")
    text = hidden.known(str(error)) if is_own or error.rpc is not None else hidden.text(str(error))
    more = (("Details: ", error.details), ("\U0001f4a1 Suggestion: ", error.suggestion))
    paragraphs = [text if is_own else "Error: " + text] + [
        title + hidden.text(words) for title, words in more if words and not is_own]
    told = {"code": error.code}
    if error.next_try_ms is not None:
        told["next_try_ms"] = error.next_try_ms
    if error.rpc is not None:
        told["rpc"] = {name: value if name == "code" and type(value) is int else hidden.value(value, True)
                       for name, value in error.rpc.items()}
    meta = {"lazyMcpPolicy": "blocked", "lazyMcp": told} if error.code == "POLICY_BLOCKED" else {"lazyMcp": told}
    content = [{"type": "text", "text": printable("\n\n".join(paragraphs))}]
    return _encoded({"content": content, "isError": True, "_meta": meta}).encode("utf-8")


# (code, what tells it in lower case, advice); the first that a server said before its handshake counts (G9.3).
START_FAULTS = (
    ("MISSING_ENV_VAR", ("environment variable", "env var"),
     'set the variable in "env" of this server and reload the hub'),
    ("AUTH_FAILED", ("unauthorized", "authentication", "invalid token", "access denied"),
     "check the token or key of this server"),
    ("INVALID_COMMAND", ("module not found", "cannot find module", "module_not_found", "no module named"),
     "install the package of this server, or correct its args"),
    ("INVALID_COMMAND", ("command not found", "no such file", "cannot find", "not found on path"),
     "install the command of this server, or correct it"),
    ("SERVER_CRASHED", ("address already in use", "address in use", "eaddrinuse"),
     "another program has the port of this server"))


def classify_failure(stderr_text, exit_text, phase):
    """(code, suggestion) of a failure; exit_text is empty or None while the process lives, which then has not crashed.

    What it said is judged in the phase "start" only: later its words are about calls (G9.3).
    """
    said = "%s\n%s" % (_text_of(stderr_text or "").lower(), (exit_text or "").lower())
    if phase != "start" and exit_text:
        return "SERVER_CRASHED", "it is started anew by the next call; what was open may have been carried out"
    if phase != "start":
        return "SERVER_TIMEOUT", 'it did not answer but lives on; "requestTimeout" of this server gives it more time'
    words = [word for line in said.split("\n") for word in line.rpartition("not found")[0].split("$")[1:]]
    if any(word[:1].isidentifier() for word in words):  # "$VAR ... not found"
        return START_FAULTS[0][0], START_FAULTS[0][2]
    for code, words, advice in START_FAULTS:
        if any(word in said for word in words):
            return code, advice
    if exit_text:
        return "SERVER_CRASHED", "run its command in a terminal to see why it ends"
    return "SERVER_TIMEOUT", 'its handshake was not over in time; "startTimeout" of this server gives it more'

# ============================================================================
# L13d ASKING - what servers ask, on its way to the client       [mixed, cold]
# ----------------------------------------------------------------------------
# Uses:   L1 L2 L3 L4 L6 L8c L9 L13c
# Used by: L13e L14
# Owns:   ASKABLE, CARRIERS, Dialogue, Dialogues, Subscriptions, carrier_of, answer_server, ask_client
# Never:  keeps a question whose call is over; has a call sent to its server a second time by itself
# Tests:  tests/test_l13d_asking.py, tests/test_hub_asks.py
# ----------------------------------------------------------------------------
# Theory: servers ask for roots, sampling and elicitation in two ways, and clients are
# asked in two (protocol.md 2.4, 3.4). The hub joins each with each:
#
#   server        client with a handshake            client of 2026-07-28
#   handshake     its request is passed on           the call waits, its request is answered input_required
#   2026-07-28    a request, then the call is sent   the same, then the call is sent
#                 again with the answers             again with the answers
#
# A Dialogue is one request of a client of 2026-07-28, through all requests that carry it:
# the first, and for each round of questions one more, with the answers. Its work is
# one task that goes on between them.
#
#   state     work ends   server asks      next request        cancelled   300 s
#   CARRIED   answer      PARKED           -                   END         -
#   PARKED    (kept)      (kept)           CARRIED (answers)   -           END
#
# What was asked with a call whose work ended stays open while that is PARKED, as it may be
# for another call; what nobody was asked yet goes with another call, or is refused.
#
# PARKED is: has a requestState. That is a random text, known to nobody but whom it was
# given to, and good for one request with the same params: nothing in it can be forged, nothing
# replayed. END cancels the work, which cancels upstream and refuses what is still asked.
#
# A server with a handshake does not say for which of its calls it asks: the newest one that
# has no question yet carries it, as a call that asks mostly does so at once.
# For roots some ask by a timer, with no call open (server-everything), and keep what they are
# told for good: the question waits for the next call, which waits for the answer.
# What can still go wrong: with two calls open on such a server the question turns up in the
# wrong one; its answer reaches the server all the same.
# ----------------------------------------------------------------------------
ASKABLE = {"roots/list": "roots", "sampling/createMessage": "sampling", "elicitation/create": "elicitation"}
# Requests that may be answered `input_required`.
CARRIERS = ("tools/call", "prompts/get", "resources/read")
# How long a question waits for a person; rounds that a server may ask for.
PARKED_S, MOST_ROUNDS = 300.0, 16
# Calls that wait for answers at a time, and the bytes of their params: with more, the next one fails.
MOST_PARKED, MOST_PARKED_BYTES = 256, 32 * 1024 * 1024
# Questions of one server that are open, and their bytes; those for roots that wait for a call to carry them.
MOST_ASKED, MOST_ASKED_BYTES, MOST_HELD = 1024, 8 * 1024 * 1024, 8
# What a request says beyond the call itself.
ROUND_MEMBERS = ("_meta", "inputResponses", "requestState")
ANEW = "; send the call anew, without requestState and inputResponses"


class CallOver(PeerError):
    """The call that carried a question is over, and its client was not asked."""


class Dialogue:
    """One request of a client of 2026-07-28.

    offers: what can be asked (dict); progress: the raw token of its newest request.
    """
    __slots__ = ("offers", "progress", "is_parked", "_method", "_parts", "_work", "_questions", "_news", "_count")

    def __init__(self, method, parts, offers):
        """parts: {name: raw} of its params."""
        self.offers, self.progress, self._method = offers, None, method
        self._parts = {name: raw for name, raw in parts.items() if name not in ROUND_MEMBERS}
        self._work, self._questions, self._news, self._count = None, {}, Future(), 0
        self.is_parked = False

    def begin(self, work):
        """work: the Task that has its result."""
        self._work = work
        work.when_done(self._over)

    def _over(self):
        """The work ended. What the client is asked now may be for another call of that server: it is answered yet."""
        if not self.is_parked:
            self._give_up()
        self._news.set()

    def _give_up(self):
        questions, self._questions = self._questions, {}
        for _, _, future in questions.values():
            future.fail(CallOver("the call that it asked for is over"))

    def end(self, error=None):
        """Nobody carries it on."""
        self.is_parked = False
        self._work.cancel(error)
        self._give_up()

    def ask(self, method, params_raw):
        """(key, Future of the client's raw result). CallOver when the call ends before."""
        self._count += 1
        key, future = "ask-%d" % self._count, Future()
        self._questions[key] = (method, params_raw, future)
        self._news.set()
        return key, future

    def wanted_progress(self):
        """The progress token of the request that is open now, None without one."""
        return None if self.is_parked else self.progress

    def has_asked(self):
        """Does a question of it wait for its answer?"""
        return bool(self._questions)

    def withdraw(self, key):
        """The client need not answer this any more."""
        self._questions.pop(key, None)

    def take(self, answers):
        """answers: {key: raw result} of the client."""
        for key, raw in answers.items():
            if key in self._questions:
                self._questions.pop(key)[2].set(raw)

    async def turn(self):
        """The raw result when it is there; None as soon as the client has to be asked."""
        while not self._work.done and not self._questions:
            self._news = Future()
            await self._news
        if not self._work.done:
            return None
        self._give_up()
        return await self._work

    def questions(self, state):
        """The raw `input_required` result."""
        asked = [b'%s:{"method":%s%s}' % (json_string(key), json_string(method), b',"params":' + raw if raw else b"")
                 for key, (method, raw, _) in self._questions.items()]
        return b'{"resultType":"input_required","inputRequests":{%s},"requestState":%s}' % (
            b",".join(asked), json_string(state))

    def is_of(self, method, parts):
        """Is that the same request, but for its answers?"""
        theirs = {name: raw for name, raw in parts.items() if name not in ROUND_MEMBERS}
        return method == self._method and theirs.keys() == self._parts.keys() and all(
            same_json(raw, theirs[name]) for name, raw in self._parts.items())

    def size_bytes(self):
        return sum(map(len, self._parts.values()))


class Dialogues:
    """The calls that wait for a client's answers, by the requestState that leads on; each leads on once."""
    __slots__ = ("_loop", "_parked", "_limit_s")

    def __init__(self, loop, limit_s=PARKED_S):
        self._loop, self._parked, self._limit_s = loop, {}, limit_s

    async def carry(self, dialogue):
        """The raw result for the request that carries it now: the final one, or what is asked."""
        try:
            raw = await dialogue.turn()
        except Cancelled as error:
            dialogue.end(error)
            raise
        return with_members(raw, {"resultType": b'"complete"'}) if raw is not None else self._park(dialogue)

    def _park(self, dialogue):
        parked = self._parked.values()
        if len(parked) >= MOST_PARKED or sum(one.size_bytes() for one in parked) > MOST_PARKED_BYTES:
            dialogue.end()
            raise PeerError("too many calls wait for answers", INTERNAL_ERROR)
        state = random_hex(16)
        self._parked[state], dialogue.is_parked = dialogue, True
        self._loop.set_timer("parked-" + state, monotonic_s() + self._limit_s, lambda: self._taken(state).end())
        return dialogue.questions(state)

    def _taken(self, state):
        self._loop.clear_timer("parked-" + state)
        return self._parked.pop(state)

    def resumed(self, method, parts):
        """The Dialogue that a request carries on; it has its answers. PeerError."""
        state, answers = parse_json(parts.get("requestState", b"null")), parts.get("inputResponses", b"{}")
        if answers[:1] != b"{":
            raise PeerError("inputResponses is no object" + ANEW, INVALID_PARAMS)
        dialogue = self._parked.get(state) if isinstance(state, str) else None
        if dialogue is None:
            what = "there is no requestState" if state is None else "this requestState is unknown, used or expired"
            raise PeerError(what + ANEW, INVALID_PARAMS)
        if not dialogue.is_of(method, parts):
            raise PeerError("this requestState belongs to a call with other params" + ANEW, INVALID_PARAMS)
        dialogue.take(members(answers))
        dialogue.is_parked = False
        return self._taken(state)

    def end(self):
        for state in list(self._parked):
            self._taken(state).end()


def carrier_of(upstream, method, dialogue=None):
    """What asks the client (`ask`, `withdraw`) for a server: a call of it, or the client's connection, or None."""
    wanted, face = ASKABLE.get(method), upstream.hub.face
    able = [one for one in ([dialogue] if dialogue is not None else reversed(upstream.callers)) if wanted in one.offers]
    if able:
        return min(able, key=Dialogue.has_asked)  # the first that has not, if there is one
    return face if dialogue is None and wanted in upstream.declared and face.can_ask() else None


def answer_server(upstream, session, env, line):
    """A request of a server with a handshake: handed to the client if that can answer it (G4.3)."""
    carrier = carrier_of(upstream, env.method)
    can_wait = "roots" in upstream.declared and not upstream.calls and len(session.held) < MOST_HELD
    if env.method == "ping":
        session.answer(env.id_raw, False, b"{}")
    elif len(session.asking) >= MOST_ASKED or session.asked_bytes > MOST_ASKED_BYTES:
        session.answer(env.id_raw, True, error_object(INTERNAL_ERROR, "too many requests to the client are open"))
    elif carrier is not None:
        session.was_asked = True
        session.asked_count += 1  # an id that is open already is no reason to lose sight of either
        key = (env.id_key, session.asked_count) if env.id_key in session.asking else env.id_key
        session.asking[key] = upstream.hub.tasks.start(_pass_on(upstream, session, env, (key, line)))
    elif env.method == "roots/list" and can_wait:
        session.held.append((env, line))
    elif env.method == "roots/list":
        session.answer(env.id_raw, False, NO_ROOTS)
    else:
        error = error_object(METHOD_NOT_FOUND, "the hub's client does not offer %s" % env.method)
        session.answer(env.id_raw, True, error)


NO_ROOTS = b'{"roots":[]}'


async def _pass_on(upstream, session, env, question):
    """While the client thinks, the server is not silent: it waits. Its calls over, the client is told to forget it."""
    key, line = question
    session.asked_bytes += len(line)
    try:
        session.answer(env.id_raw, False, await _carried(upstream, env.method, members(line).get("params")))
    except Refused as error:
        session.answer(env.id_raw, True, error.raw or error_object(INTERNAL_ERROR, "the client gave no answer"))
    except PeerError as error:
        session.answer(env.id_raw, True, error_object(INTERNAL_ERROR, str(error)))
    except (ValueError, RecursionError):
        session.answer(env.id_raw, True, error_object(INVALID_REQUEST, "its params cannot be read"))
    except Cancelled:
        session.answer(env.id_raw, True, error_object(INTERNAL_ERROR, "the call that asked for it is over"))
    finally:
        session.asked_bytes -= len(line)
        session.asking.pop(key, None)


async def _carried(upstream, method, params_raw):
    """The client's raw result. A question whose call ends before the client is asked goes with another. PeerError."""
    while True:
        carrier = carrier_of(upstream, method)
        if carrier is None:
            raise PeerError("the call that it asked for is over")
        key, future = carrier.ask(method, params_raw)
        try:
            return await future
        except CallOver:
            continue
        except Cancelled:
            carrier.withdraw(key)
            raise


async def ask_client(upstream, raw, dialogue):
    """The members for the next round of a call that a server of 2026-07-28 answered `input_required`. HubError."""
    asked, answers = [], {}
    try:
        parts = members(raw)
        for key, request in members(parts.get("inputRequests", b"{}")).items():
            question = members(request)
            method = parse_json(question["method"])
            carrier = carrier_of(upstream, method, dialogue)
            if carrier is not None:
                asked.append((key, carrier) + carrier.ask(method, question.get("params")))
            elif method == "roots/list":
                answers[key] = NO_ROOTS
            else:
                text = "%s asks the client for %s, which it does not offer" % (upstream.name, printable(str(method)))
                raise HubError(text, "TOOL_ERROR", None, "call it from a client that offers this")
        for key, _, _, future in asked:
            answers[key] = await future
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HubError("%s answered with questions that are none" % upstream.name, "SERVER_UNREACHABLE") from None
    except PeerError as error:
        why = str(error) or "neither a result nor an error came"
        raise HubError("the client did not answer what %s asks: %s" % (upstream.name, why), "TOOL_ERROR") from None
    finally:
        for _, carrier, key, future in asked:
            if not future.done:
                carrier.withdraw(key)
    given = b"{%s}" % b",".join(json_string(key) + b":" + answer for key, answer in answers.items())
    state = {"requestState": parts["requestState"]} if "requestState" in parts else {}
    return dict(state, inputResponses=given) if answers else state


class Subscriptions:
    """The open `subscriptions/listen` of a client of 2026-07-28. write(line) takes what is to be sent."""
    __slots__ = ("_write", "_open")

    def __init__(self, write):
        self._write, self._open = write, {}

    async def listen(self, id_raw, wanted, granted):
        """Hold one open, its acknowledgement sent; the raw result at our end of it. wanted: names asked for (dict)."""
        kinds = {kind: True for kind in granted if wanted.get(kind) is True}
        closed = Future()
        self._open[id_raw] = (kinds, closed)
        told = b'"notifications":%s,' % canonical(kinds).encode("ascii")
        self._tell(id_raw, "notifications/subscriptions/acknowledged", told)
        try:
            await closed
        finally:
            self._open.pop(id_raw, None)
        return b'{"resultType":"complete","_meta":{%s:%s}}' % (json_string(SUBSCRIPTION_KEY), id_raw)

    def _tell(self, id_raw, method, params=b""):
        self._write(b'{"jsonrpc":"2.0","method":%s,"params":{%s"_meta":{%s:%s}}}\n' % (
            json_string(method), params, json_string(SUBSCRIPTION_KEY), id_raw))

    def changed(self, kind, method):
        for id_raw, (kinds, _) in list(self._open.items()):
            if kind in kinds:
                self._tell(id_raw, method)

    def end(self):
        for _, closed in list(self._open.values()):
            closed.set()

# ============================================================================
# L13e UPSTREAM - one server of the hub: its start, its calls, its end [mixed, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L5 L6 L6b L7 L8 L9 L13c L13d
# Used by: L14 L14b
# Owns:   HubSession, Gate, Catalogue, Upstream, listing, known_pages, in_rounds, commands_of, newest_answer, hub_keys
# Never:  starts a server that nobody needs; sends a call twice; lets a line of a server raise into the loop
# Tests:  tests/test_hub_calls.py, tests/test_hub_breaks.py, tests/test_hub_health.py, tests/test_hub_lines.py
# ----------------------------------------------------------------------------
# Theory: one Upstream per server of the configuration, with one state:
#
#   state      needed by a call      start succeeds  start fails  its process ends       stop, idle  deaf or mute
#   asleep     STARTING              -               -            -                      -           -
#   starting   waits for it          LIVE            FAILING      FAILING                STOPPING    FAILING
#   live       used                  -               -            STOPPING (read the     STOPPING    FAILING
#                                                                 rest), then ASLEEP
#                                                                 or FAILING
#   stopping   waits, then STARTING  -               -            ASLEEP                 waits       -
#   failing    STARTING when due,    -               -            -                      -           -
#              refused before
#   error, unsupported: by its configuration, refused for good
#
# What is known of its commands comes from the relay's recordings, same files and keys, and from
# its own listings, which are recorded in turn. A start is shared by all that wait for it and
# goes on when they stop waiting. A server is kept on JSON-RPC errors and on timeouts; only its
# exit, or an input that it does not take, ends it. An exit is judged when all that was written
# before it is read: with status 0, nothing open and something answered it is asleep again. Quick
# failures are counted: the next try is put off, longer each time (L5's Backoff).
#
# Silence is what a call's limit counts: each progress message starts it anew, and while the
# server waits for an answer of the client it is not silent.
#
# Servers get a handshake; one that refuses it and answers `server/discover` is spoken to in
# 2026-07-28. What they ask goes the way of L13d.
#
# What can still go wrong: two servers of one command share a recording, whatever their
# variables; the first start of either repairs it.
# ----------------------------------------------------------------------------
HUB_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")
HUB_MODERN = "2026-07-28"
HUB_CLIENT = b'{"name":"mcp-lazy-hub","version":%s}' % json_string(VERSION)
# What the hub says to its servers; the version of a plain --check, so that its recordings serve.
UPSTREAM_VERSION = "2025-06-18"
ASLEEP_UP, STARTING_UP, LIVE_UP, STOPPING_UP, FAILING_UP = "asleep", "starting", "live", "stopping", "failing"
STDERR_KEPT_BYTES, COMPARE_S = 64 * 1024, 0.5
# Of a line that is no message: what is searched for secrets, and what is shown of it then.
NOISE_SEARCHED, NOISE_SHOWN = 4096, 200
FIRST_BACKOFF_S, DETAIL_BYTES = 0.5, 1000
# So long a discovery waits for a start before it says "still starting" (case 139): below the minute after which most
# clients give up, above what a package runner takes that has to fetch its package.
DISCOVERY_WAIT_S = 30.0
# Of these failures a caller learns that they came with a discovery by the tool that it called.
KEPT_CODES = ("INVALID_COMMAND", "MISSING_ENV_VAR", "AUTH_FAILED", "AUTH_REQUIRED", "SERVER_UNREACHABLE")
# How long a start waits for the answer to a ping, and for the roots that were asked for before it.
PING_WAIT_S, ROOTS_WAIT_S = 2.0, 10.0
CLEAN_EXIT = describe_exit(0)
# What reading JSON of somebody's raises, however it is nested.
UNREADABLE = (ValueError, RecursionError, IndexError, KeyError, StopIteration)
ROOTS_CHANGED = "notifications/roots/list_changed"
HUB_MARK = b"MCP_LAZY_HUB"


def spawn_trouble(server, error):
    """Why it does not start. A whole command line in one text, as people write it, is shown as it has to be written."""
    argv, words = server.argv, server.argv[0].split()
    is_line = len(argv) == 1 and len(words) > 1 and not word_stat(argv[0], 0)
    if is_line and ("/" not in words[0] or word_stat(words[0], 0)):
        error = 'no program is called "%s"; the words behind its name are an array: "command": %s, "args": [%s]' % (
            argv[0], canonical(words[0]), ", ".join(map(canonical, words[1:])))
    return "%s cannot be started: %s" % (server.name, error)


def refuse_missing_folder(upstream):
    """HubError where the folder is not there that the server should run in."""
    seen = stat_of(upstream.server.cwd) if upstream.server.cwd else None
    if upstream.server.cwd and (seen is None or seen.st_mode & 0o170000 != 0o040000):
        text = "%s cannot be started: its cwd %s is no folder" % (upstream.name, upstream.server.cwd)
        raise HubError(text, "INVALID_COMMAND", None, upstream.hub.advice())


class Sinkhole:
    """A server's stderr: its end is kept, lines go where its configuration says."""
    __slots__ = ("tail", "_name", "_log", "_wanted")

    def __init__(self, name, log, wanted):
        self.tail, self._name, self._log, self._wanted = bytearray(), name, log, wanted

    def put(self, raw):
        self.tail += raw
        del self.tail[:-STDERR_KEPT_BYTES]
        if self._wanted:
            self._log.stderr(self._name, raw, wall_s())

    def end(self):
        """The server is gone: what has no line end yet is a line."""
        if self._wanted:
            self._log.stderr(self._name, b"", wall_s())


class UpstreamDriver:
    """What a ServerLink wants to know of whoever starts it; `spawn` adds the variables of one server."""
    __slots__ = ("options", "loop", "processes", "sink", "journal", "_all", "_environment")

    def __init__(self, hub, server, cache_dir):
        argv = server.argv
        if server.cwd:  # posix_spawn cannot change the folder
            argv = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', server.cwd] + argv
        is_file = server.stderr not in ("inherit", "log", None)
        self.options = RunOptions(
            argv, recorded_command(server.argv), cache_dir, None, [], MAX_LINE_BYTES, None, False, "text",
            server.stderr if is_file else None, server.stderr == "inherit", None, 0)
        self.loop, self._all, self.processes = hub.loop, hub.processes, self
        self.sink, self.journal = Sinkhole(server.name, hub.log, server.stderr == "log"), hub
        self._environment = dict(own_environment())
        for name, value in (server.env or {}).items():
            self._environment[filesystem_bytes(name)] = filesystem_bytes(value)
        self._environment[HUB_MARK] = hub.mark

    def spawn(self, argv, fds):
        return self._all.spawn(argv, fds, self._environment)

    def stderr_tail(self):
        """The end of the server's stderr, wherever that goes; b"" where it is not ours to see."""
        path = self.options.stderr_log
        return bytes(self.sink.tail) or (file_tail(path, STDERR_KEPT_BYTES) if path else b"")

    def kill_group(self, pid, signum):
        return self._all.kill_group(pid, signum)


class HubSession(Checked):
    """The session with one running server of the hub.

    progress: {token: callback}; asking: {id: task} of its own requests that the client has not answered; is_ready:
    its handshake is over; has_answered: a request behind it; is_silent: it did not answer a ping; last_read: a
    Future, set when nothing more is read, to whether a request was open then; is_modern: it speaks 2026-07-28;
    was_asked: the client was asked for it; held: its questions (envelope, line) that wait for a call to carry them.
    """
    __slots__ = ("progress", "asking", "asked_bytes", "asked_count", "held", "was_asked", "is_ready", "has_answered",
                 "is_silent", "is_modern", "is_paused", "last_read", "noise", "noise_lines", "_is_held", "_upstream")

    # Little at a time: one server that floods would hold up the answers of all others.
    id_prefix, read_bytes = "hub-", 16 * 1024

    def __init__(self, driver, upstream):
        super().__init__(driver)
        self.progress, self.asking, self.is_silent, self.is_modern, self._upstream = {}, {}, False, False, upstream
        self.is_ready, self.has_answered, self.last_read, self.noise = False, False, Future(), ""
        self.held, self.was_asked, self.noise_lines, self.asked_bytes, self.asked_count = [], False, 0, 0, 0
        self.is_paused = self._is_held = False

    def request(self, method, params_raw=b"{}"):
        return super().request(method, stamped(params_raw, self._upstream.declared) if self.is_modern else params_raw)

    def listen(self, capabilities):
        """Have a server of 2026-07-28 tell of lists that change. Its answer is the end of that: nobody waits for it."""
        kinds = {kind: True for kind, name in STREAM_KINDS.items()
                 if member_of(capabilities.get(name), "listChanged") is True}
        if kinds:
            wanted = canonical({"notifications": kinds}).encode("ascii")
            self._write(b'{"jsonrpc":"2.0","id":"%slisten","method":"subscriptions/listen","params":%s}\n' % (
                self.id_prefix.encode("ascii"), stamped(wanted, self._upstream.declared)))

    def withdraw(self):
        """Nobody waits for what it asked the client for."""
        for task in list(self.asking.values()):
            task.cancel()

    def is_open(self):
        """Does somebody wait for an answer of it?"""
        return bool(self._waiting)

    def _take(self, line):
        """No line of a server may raise into the loop; what cannot be read is noise."""
        try:
            env = read_envelope(line)
            for one, raw in envelopes_of(env, line) if env.kind == BATCH and env.body else ((env, line),):
                self._message(one, raw)
        except UNREADABLE:
            self._noise(line)

    def _message(self, env, line):
        if env.kind == REQUEST:
            answer_server(self._upstream, self, env, bytes(line))
        elif env.kind == NOTIFICATION:
            self._heard(env, bytes(line))
        elif env.kind == BATCH:  # one in another, or too long to be read
            self._noise(line)
        else:
            super()._take(line)

    def _read(self):
        face = self._upstream.hub.face
        self.is_paused = face.is_full()
        if self.is_paused or self._out.pending_bytes > MAX_OUTPUT_BYTES:  # who does not read is not read either
            self._loop.watch(self._stdout_fd)
            self._is_held = not self.is_paused
            if self.is_paused:
                face.when_read(self._resume)
            return
        super()._read()
        if self._splitter.too_long:
            self._upstream.lost(self, "wrote a line of more than %d bytes" % MAX_LINE_BYTES)

    def _resume(self):
        self.is_paused = self._is_held = False
        if not self._output_closed and self.link.stdout_fd is not None:
            self._loop.watch(self._stdout_fd, self._read)

    def _flush(self):
        super()._flush()
        if self._is_held and self._out.pending_bytes <= MAX_OUTPUT_BYTES:
            self._resume()

    def _heard(self, env, line):
        if env.method == "notifications/progress":
            known = self.progress.get(token_key(member_of(env.params(line), "progressToken")))
            if known is not None:
                known(line)
        elif env.method == "notifications/cancelled":
            question = self.asking.get(cancelled_key(env, line))
            if question is not None:
                question.cancel()
        else:
            self._upstream.catalogue.changed(env.method)

    def _noise(self, line):
        """Servers print what they like. The first of it at a start, then the newest, tells why there is no message."""
        text = bytes(line[:NOISE_SEARCHED]).decode("utf-8", "replace").strip()
        if text:
            hidden = self._upstream.hub.secrets()
            text = (hidden.piece(text, NOISE_SHOWN) if len(line) > NOISE_SEARCHED else hidden.text(text))[:NOISE_SHOWN]
            self.noise, self.noise_lines = text if self.is_ready else self.noise or text, self.noise_lines + 1

    def _answered(self, key, parts):
        self.has_answered = self.is_ready
        super()._answered(key, parts)

    def _give_up(self):
        if self.is_paused and not self._output_closed:  # what it wrote is not read yet, for its client's sake
            self._loop.set_timer("lost-%d" % self.pid, monotonic_s() + DRAIN_WAIT_S, self._give_up)
            return
        self.last_read.set(self.is_open())
        super()._give_up()
        self._upstream.lost(self, "closed its output" if self._output_closed else "takes no more input")

    def answer(self, id_raw, is_error, raw):
        self._write((error_line if is_error else result_line)(id_raw, raw))

    def cancel(self, ident, reason):
        """Nobody waits for it any more; reason: text, or whatever a client gave for one."""
        self._waiting.pop(ident, None)
        why = b',"reason":%s' % json_string(reason) if isinstance(reason, str) else b""
        self.notify("notifications/cancelled", b'{"requestId":%s%s}' % (spell_id(ident), why))


class Gate:
    """Lets so many pass at a time; the others wait in their order."""
    __slots__ = ("_free", "_waiting")

    def __init__(self, free):
        self._free, self._waiting = free, []

    async def passed(self, begin):
        """The result of the coroutine that `begin()` gives, once it may begin."""
        if self._free:
            self._free -= 1
        else:
            turn = Future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:  # who stops waiting gives the turn on, if it has come meanwhile
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._left()
                raise
        try:
            return await begin()
        finally:
            self._left()

    def _left(self):
        if self._waiting:
            self._waiting.pop(0).set()
        else:
            self._free += 1


class Catalogue:
    """What is known of a server's lists: the relay's recording of its command, and what it said itself.

    Its tools are kept as commands; of the other lists, which few hubs forward, the pages, None for one to ask for anew.
    """
    __slots__ = ("_hub", "_upstream", "_known", "_lists", "_store", "_since_s", "_uses", "_comparing",
                 "_is_stale")

    def __init__(self, hub, upstream):
        self._hub, self._upstream, self._known, self._lists, self._store = hub, upstream, None, {}, None
        self._since_s, self._uses, self._comparing, self._is_stale = 0.0, 0, False, False

    def used(self):
        """Is it known well enough for a use more? With cache.ttl or maxAccessCount the server is asked again (G2.6)."""
        cache, self._uses = self._hub.config.cache, self._uses + 1
        is_old = cache.ttl_s and self._since_s and monotonic_s() - self._since_s > cache.ttl_s
        is_old = is_old or self._is_stale and self._upstream.state == LIVE_UP
        is_used_up = cache.max_access_count and self._uses > cache.max_access_count
        return self._known is not None and not is_old and not is_used_up

    def _keep(self, pages):
        self._known, self._since_s, self._uses, self._is_stale = commands_of(pages), monotonic_s(), 0, False

    def _opened(self):
        """The Store of the recording; None where recordings are off."""
        options = self._upstream.driver().options
        if self._store is None and self._hub.cache_dir == options.cache_dir:
            self._store, trouble = load_store(options)
            self._store.attach(self._hub)
            if trouble:
                self._hub.warn(trouble)
        return self._store

    def commands(self, declared):
        """[tool (dict)] for a client with these capabilities, of its own entry or the newest; None: none is known."""
        if self._known is None:
            pages = recorded_pages(self._entries(), declared, "tools/list")
            if pages is not None:
                self._keep(pages)
        return self._known

    def _entries(self):
        store = self._opened()
        return store.recording.entries if store is not None else {}

    def pages(self, method):
        """[raw page] of a list that is not that of the tools, None if nothing is known of it."""
        if method not in self._lists:
            self._lists[method] = recorded_pages(self._entries(), self._upstream.declared, method)
        return self._lists[method]

    def changed(self, notification):
        """The server says that a list is another one now."""
        self._lists.update((method, None) for method in list(self._lists) if CHANGED[method] == notification)
        if notification == CHANGED["tools/list"]:
            self._is_stale = True
            self.compare()

    def compare(self):
        """Read what is known of a running server again, a moment later; a burst is one look (case 060)."""
        self._hub.loop.set_timer("compare-%x" % id(self), monotonic_s() + COMPARE_S, self._compare)

    def _compare(self):
        if self._upstream.state == LIVE_UP and not self._comparing:
            self._comparing = True
            self._hub.tasks.start(self._read_again())

    async def _read_again(self):
        try:
            session = await self._upstream.live()
            for method in ["tools/list"] + [method for method, pages in self._lists.items() if pages is not None]:
                await listing(self._upstream, session, method)
        except HubError as error:
            text = "what is known of %s was not read again: %s" % (self._upstream.name, error)
            self._hub.log.event("info", text, wall_s(), server=self._upstream.name)
        finally:
            self._comparing = False

    def listed(self, session, method, pages):
        """What the server lists now."""
        self.record(session, method, pages)
        if method == "tools/list":
            self._tools_listed(pages)
        else:
            self._lists[method] = pages

    def _tools_listed(self, pages):
        self._keep(pages)
        left_out = sum(len(elements(members(raw).get("tools", b"[]"))) for raw in pages) - len(self._known)
        if left_out:
            text = "%d entries of its tools have no name and are left out" % left_out
            self._hub.log.event("info", text, wall_s(), server=self._upstream.name)

    def record(self, session, method, pages):
        """Keep an answer where the next hub, and a relay, find it."""
        store, key = self._opened(), hub_keys(self._upstream.declared)[session.is_modern]
        if store is None:
            return
        entry = store.recording.entries.setdefault(key, Entry(*key))
        if method in entry.answers and entry.answers[method].pages == pages:
            return
        entry.answers[method] = Answer(False, pages, int(wall_s() * 1000))
        self._save({(key, method)})

    def _save(self, dirty):
        if not self._store.save(dirty, monotonic_s()):  # another process holds its lock
            due_s = monotonic_s() + LOCK_RETRY_S
            self._hub.loop.set_timer("save-%x" % id(self), due_s, lambda: self._save(set()))


def hub_keys(declared):
    """The keys under which a hub records servers: (with a handshake, of 2026-07-28)."""
    return entry_key(UPSTREAM_VERSION, declared, ""), entry_key(HUB_MODERN, declared, "", "modern")


def newest_answer(entries, keys, method):
    """The newest Answer to a list in entries of these keys, None for none."""
    answers = [entries[key].answers.get(method) for key in keys if key in entries]
    return max([answer for answer in answers if answer is not None], key=lambda answer: answer.at_ms, default=None)


def recorded_pages(entries, declared, method):
    """[raw page] of a list for a client with these capabilities, of its own entry or the newest; None: none is known.

    [] for a list that the server refused, or that what it says of itself does not promise.
    """
    own = hub_keys(declared)
    answer = newest_answer(entries, own, method) or newest_answer(entries, list(entries), method)
    if answer is not None:
        return [] if answer.is_error else answer.pages
    openings = [entries[key].opening() for key in own if key in entries]
    said = [object_of(object_of(parse_json(raw)).get("capabilities")) for raw in openings if raw is not None]
    return [] if said and not any(CAPABILITY_OF[method] in one for one in said) else None


class Upstream:
    """One server of the hub: its state, its process, what is known of its commands."""
    __slots__ = ("server", "state", "error", "latency_ms", "checked_s", "calls", "callers", "used_s", "declared",
                 "hub", "_session", "_driver", "_starting", "_stopped", "catalogue", "_backoff",
                 "_is_retired")

    def __init__(self, hub, server):
        self.server, self.hub = server, hub
        self.state, self.error = first_state(hub, server)
        self.latency_ms = self.checked_s = self._session = self._starting = self._stopped = self._driver = None
        self.calls, self.callers, self.used_s, self.declared = 0, [], 0.0, {}
        self._is_retired = False
        self._backoff, self.catalogue = Backoff(FIRST_BACKOFF_S), Catalogue(hub, self)

    name = property(lambda self: self.server.name)
    pid = property(lambda self: self._session.pid if self._session else None)

    def become(self, state, error=None, took_s=None):
        """The only writer of `state`; says it in the log. took_s: how long a start took."""
        if state != self.state:
            self.hub.log.event(
                "error" if state == FAILING_UP else "debug", "server %s is %s" % (self.name, state), wall_s(),
                event="server_state", server=self.name, state=state, reason=str(error) if error else None,
                attempt=self._backoff.failures or None,
                durationMs=None if took_s is None else int(took_s * 1000))
        self.state, self.error = state, error
        self.checked_s = wall_s()

    def driver(self):
        if self._driver is None:
            self._driver = UpstreamDriver(self.hub, self.server, self.hub.cache_dir or "/nonexistent")
        return self._driver

    def stderr_end(self):
        """What its stderr said last, without secrets; None for nothing."""
        tail = self._driver.stderr_tail() if self._driver is not None else b""
        return stderr_end(tail, self.hub.secrets(), DETAIL_BYTES, len(tail) >= STDERR_KEPT_BYTES) or None

    # -- what is known

    def commands(self):
        """[tool (dict)] as recorded or listed, None if nothing is known yet."""
        return None if self.server.error or self.server.kind == "remote" else self.catalogue.commands(self.declared)

    async def listed(self, dialogue=None):
        """`commands`, from the server itself where nothing is known. HubError."""
        if self.commands() is None or not self.catalogue.used():
            await self.hub.gate.passed(lambda: counted(self, discover(self), dialogue))
        return self.commands() or []

    # -- the process

    def next_try_ms(self):
        """How long until it may be tried again, None for at once."""
        wait_s = self._backoff.wait_s(monotonic_s()) if self.state == FAILING_UP else 0
        return int(wait_s * 1000) + 1 if wait_s > 0 else None

    def usable(self):
        """HubError at once while it cannot be used: its configuration, or a try that is not yet due."""
        if self.state in ("error", "unsupported") or self.next_try_ms():
            raise not_now(self.error, self.next_try_ms())

    async def live(self, patience_s=None):
        """The session; one start for all that wait, which goes on when they stop waiting. HubError."""
        self.usable()
        if self.state == LIVE_UP:
            return self._session
        if self._starting is None or self._starting.done:
            self._starting = self.hub.tasks.start(self._start())
        try:
            return await (within(self.hub.tasks, patience_s, self._starting) if patience_s else self._starting)
        except Silence:
            text, advice = "%s is still starting" % self.name, "try again in a moment"
            raise HubError(text, "SERVER_TIMEOUT", None, advice) from None

    async def _start(self):
        while self._stopped is not None:
            await self._stopped
        self.usable()
        if self._is_retired:
            raise HubError("%s was stopped for good" % self.name, "SERVER_CRASHED")
        start_s = monotonic_s()
        self.declared = self.hub.methods.declared()
        self.become(STARTING_UP)
        self._driver = None  # a new one: its stderr begins anew, and a reload may have changed where recordings go
        limit_s = self.server.start_timeout_s
        late = HubError("%s did not answer its handshake within %g s (startTimeout)" % (self.name, limit_s),
                        "SERVER_TIMEOUT")
        try:
            refuse_missing_folder(self)
            try:
                session = self._session = HubSession(self.driver(), self)
            except SpawnError as error:
                raise HubError(spawn_trouble(self.server, error), "INVALID_COMMAND", None, self.hub.advice()) from None
            await self.hub.tasks.deadline(limit_s, shake_hands(self, session), late)
            await roots_given(self, session)
        except HubError as error:
            raise await self._failed_start(error, start_s) from None
        except Exception as error:  # ours: without this its process would be nobody's
            text = "%s: internal error of the hub, please report it: %s" % (self.name, error_place(error))
            raise await self._failed_start(HubError(text, "SERVER_UNREACHABLE"), start_s) from None
        self.latency_ms = int((monotonic_s() - start_s) * 1000)
        session.is_ready = True
        self.become(LIVE_UP)
        self.touch()
        if self.commands() is not None:
            self.catalogue.compare()
        return session

    async def _failed_start(self, error, start_s):
        """End what was started; the HubError with what its stderr said."""
        if self._stopped is not None:  # somebody else ends it, who sets the state, too
            await self._stopped
            return error
        session = self._session
        exit_text = session.exited.value if session is not None and session.exited.done else None
        noise = session.noise if session is not None else ""
        await self._end(STARTING_UP)
        failed = failed_start(error, self.stderr_end(), exit_text, noise)
        self._backoff.failed(str(failed), monotonic_s())
        self.become(FAILING_UP, failed, monotonic_s() - start_s)
        return failed

    def ended(self, text):
        """Its process is reaped. If it went by itself, it is judged when all that it wrote is read."""
        session = self._session
        if session is None:
            return
        session.ended(text)
        if self.state == LIVE_UP:
            self._put_down(STOPPING_UP)
            self.hub.tasks.start(self._bury(session, text))

    def _put_down(self, state, error=None):
        """From this moment on it is not used; who needs it waits until it is gone."""
        self._stopped = Future()
        self.become(state, error)

    async def _bury(self, session, text):
        was_open = await session.last_read
        if was_open or not session.has_answered:
            self._backoff.failed(text, monotonic_s())
        else:  # servers may end when they have done their work
            self._backoff.succeeded()
        is_crash = was_open or not session.has_answered or text != CLEAN_EXIT
        tail = self.stderr_end() if is_crash else None
        error = HubError("%s ended by itself (%s)" % (self.name, text), "SERVER_CRASHED", tail)
        self.become(FAILING_UP if is_crash else ASLEEP_UP, error)
        self._close(session)
        stopped, self._stopped = self._stopped, None
        stopped.set()

    def _close(self, session):
        if self._session is session:  # else somebody else was quicker
            self._session = None
            was_stopped = self.state == STOPPING_UP
            session.fail(PeerError("the server was stopped" if was_stopped else "the server ended without an answer"))
            session.withdraw()
            session.close()
            self.driver().sink.end()

    def lost(self, session, why):
        """It takes or gives nothing more although it runs: it has to go (G9.2)."""
        if session is self._session and self.state == LIVE_UP and not session.exited.done:
            self._backoff.failed(why, monotonic_s())
            self._put_down(FAILING_UP, HubError("%s %s" % (self.name, why), "SERVER_CRASHED", self.stderr_end(), None))
            self.hub.tasks.start(self._end(FAILING_UP))

    async def stop(self, why="the hub ended"):
        """The ladder, for good; the state is asleep then. What is dead already is closed. why: for calls still open."""
        self._is_retired = True
        if self._session is not None:
            self._session.fail(PeerError(why))
        if self._stopped is not None:
            await self._stopped
        elif self.state in (LIVE_UP, STARTING_UP):
            self._put_down(STOPPING_UP)
            await self._end(ASLEEP_UP)
        elif self._session is not None:
            self._close(self._session)

    async def _end(self, state):
        """The ladder of A13; nothing of the process is left behind it. state: the one that follows."""
        session, stopped = self._session, self._stopped or Future()
        self._stopped = stopped
        if session is not None:
            await self._ladder(session)
        self.become(state, self.error if state == FAILING_UP else None)
        self._stopped = None
        stopped.set()

    async def _ladder(self, session):
        session.withdraw()
        await self.hub.tasks.sleep(0)  # what it asked is refused now, and the last cancels are on their way
        session.close_input()
        for wait_s, signum in ((CLOSE_WAIT_S, SIGTERM), (self.server.stop_grace_s, SIGKILL), (KILL_WAIT_S, None)):
            try:
                await within(self.hub.tasks, wait_s, session.exited)
                break
            except Silence:
                if signum is not None:
                    self.hub.processes.kill_group(session.pid, signum)
        self._close(session)

    def kill(self):
        if self._session is not None:
            self.hub.processes.kill_group(self._session.pid, SIGKILL)

    def patience_s(self):
        """How long silence may last (G9.2)."""
        return self.server.request_timeout_s or self.hub.config.request_timeout_s

    def noted(self, took_s):
        """It answered, so soon."""
        self.latency_ms, self.checked_s = int(took_s * 1000), wall_s()

    def touch(self):
        """Somebody used it: the idle time begins anew."""
        self.used_s = monotonic_s()
        if self.server.idle_stop_s:
            self.hub.loop.set_timer("idle-%x" % id(self), self.used_s + self.server.idle_stop_s, self._idle)

    def _idle(self):
        if self.state != LIVE_UP:
            return
        if self.calls or monotonic_s() - self.used_s < self.server.idle_stop_s:
            self.hub.loop.set_timer("idle-%x" % id(self), monotonic_s() + self.server.idle_stop_s, self._idle)
        else:
            self._put_down(STOPPING_UP)
            self.hub.tasks.start(self._end(ASLEEP_UP))

    async def request(self, named, params_raw, progress=None, dialogue=None):
        """The raw result of a client's request. HubError; Refused for a server's own error. named: as in `quietly`."""
        async def ask():
            session = await self.live()
            if session.held:
                await ask_held(self, session)
            return await in_rounds(self, session, named, params_raw, (progress, dialogue))
        return await counted(self, ask(), dialogue)

    def roots_changed(self):
        """The client's roots are others now; a server that was told of such news hears it."""
        was_told = member_of(self.declared.get("roots"), "listChanged") is True
        if was_told and self.state == LIVE_UP and not self._session.is_modern:
            self._session.notify(ROOTS_CHANGED)


async def counted(upstream, coroutine, dialogue):
    """Its result; a reload and an idle stop wait for it. dialogue: of the client that may be asked meanwhile."""
    upstream.calls += 1
    upstream.callers += [dialogue] if dialogue is not None else []
    try:
        return await coroutine
    finally:
        upstream.calls -= 1
        if dialogue is not None:
            upstream.callers.remove(dialogue)
        upstream.touch()


def failed_start(error, tail, exit_text, noise):
    """The HubError of a start that failed, by what its stderr says, else by what was seen of its stdout.

    tail: the end of its stderr; noise: the first of a stdout that is no JSON.
    """
    text, code, suggestion = str(error), error.code, error.suggestion
    if noise:
        text += "; its stdout is no JSON-RPC, it begins: %s" % printable(noise)
    if code in ("SERVER_CRASHED", "SERVER_TIMEOUT"):
        code, suggestion = classify_failure(tail or "", exit_text, "start")
    if code == "SERVER_TIMEOUT" and (noise or error.code == "SERVER_CRASHED"):
        code = error.code
        suggestion = "run its command in a terminal: its stdout has to carry JSON-RPC messages, a line each"
    return HubError(text, code, tail, suggestion)


def not_now(error, wait_ms):
    """The HubError for a call that comes while nothing is tried; wait_ms: until the next try, None for never."""
    text = "%s; not tried again for %.1f s" % (error, wait_ms / 1000) if wait_ms else str(error)
    refused = HubError(text, error.code, error.details, error.suggestion)
    refused.next_try_ms = wait_ms
    return refused


def first_state(hub, server):
    """(state, HubError or None) of a server that nobody has used yet."""
    if server.error or hub.is_nested:
        text = server.error or "this hub is one of its own servers"
        return "error", HubError(text, "INVALID_COMMAND", None, hub.advice())
    if server.kind == "remote":
        return "unsupported", HubError("remote servers are not part of this version", "SERVER_UNREACHABLE")
    return ASLEEP_UP, None


async def shake_hands(upstream, session):
    """The handshake; with a server that has none, the discovery of 2026-07-28 in its place. HubError."""
    try:
        try:
            raw = await greeted(upstream, session, UPSTREAM_VERSION)
        except Refused as error:
            version = offered_version(error.raw)
            if version is not None:
                await greeted(upstream, session, version)
                return  # not recorded: a relay's client that asks for UPSTREAM_VERSION is refused by this server
            if error.rpc_code not in (UNSUPPORTED_VERSION, METHOD_NOT_FOUND):
                raise
            session.is_modern, raw = True, await discovered(upstream, session, error)
            session.listen(object_of(object_of(parse_json(raw)).get("capabilities")))
    except Refused as error:
        text = "%s refused the handshake: %s" % (upstream.name, refusal_text(error.raw))
        advice = "the hub speaks %s and %s to its servers" % (", ".join(HUB_VERSIONS), HUB_MODERN)
        raise HubError(text, "SERVER_UNREACHABLE", None, advice) from None
    except PeerError as error:
        raise HubError("%s: %s" % (upstream.name, error), "SERVER_CRASHED") from None
    upstream.catalogue.record(session, OPENING["modern" if session.is_modern else "legacy"], [bytes(raw)])


async def greeted(upstream, session, version):
    """The raw result of `initialize`, which is told that it was heard. Refused, PeerError, HubError."""
    raw = await session.request("initialize", b'{"protocolVersion":"%s","capabilities":%s,"clientInfo":%s}' % (
        version.encode("ascii"), canonical(upstream.declared).encode("ascii"), HUB_CLIENT))
    if not is_handshake(raw):
        text = "%s answered its handshake without %s" % (upstream.name, (
            "a protocolVersion" if b'"protocolVersion"' not in raw else "an object of capabilities"))
        raise HubError(text, "SERVER_UNREACHABLE", None, "this is a fault of the server")
    session.notify("notifications/initialized")
    return raw


def offered_version(error_raw):
    """The newest version of ours that a server names as it refuses another one, None for none."""
    try:
        named = parse_json(error_raw)["data"]["supported"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((version for version in HUB_VERSIONS if isinstance(named, list) and version in named), None)


def refusal_text(raw):
    """An error object of a server in one line: message, code, data."""
    try:
        found = object_of(parse_json(raw))
    except ValueError:
        found = {}
    try:
        data = ", data %s" % canonical(found["data"])[:300] if "data" in found else ""
    except RecursionError:
        data = ""
    return "%s (code %s%s)" % (str(found.get("message") or "no message")[:300], found.get("code"), data)


async def discovered(upstream, session, refusal):
    """The raw result of `server/discover`. PeerError; refusal, its answer to the handshake, without 2026-07-28."""
    try:
        raw = await session.request(DISCOVER, stamped(b"{}", upstream.declared))
        versions = member_of(parse_json(raw), "supportedVersions")
    except Refused:
        versions = None
    if not isinstance(versions, list) or HUB_MODERN not in versions:
        raise refusal
    return raw


def stamped(params_raw, offers):
    """Params with what each request of 2026-07-28 has in its `_meta`; members that are there stay.

    offers: capabilities (dict).
    """
    meta = members(params_raw).get("_meta", b"{}")
    own = {VERSION_KEY: b'"%s"' % HUB_MODERN.encode("ascii"), CLIENT_KEY: HUB_CLIENT,
           CAPABILITIES_KEY: canonical(offers).encode("ascii")}
    missing = {name: own[name] for name in own.keys() - members(meta).keys()}
    return with_members(params_raw, {"_meta": with_members(meta, missing)})


async def roots_given(upstream, session):
    """Wait for the roots that a server asked for right behind its handshake.

    Server-filesystem serves none before it has them. It has read `initialized` when it answers the ping behind it, so
    its question is here before.
    """
    if "roots" not in upstream.declared or session.is_modern:
        return
    try:
        await within(upstream.hub.tasks, PING_WAIT_S, session.request("ping"))
    except (Silence, Refused):  # not all servers know it
        pass
    except PeerError as error:
        raise HubError("%s: %s" % (upstream.name, error), "SERVER_CRASHED") from None
    await settled(upstream, session)
    if session.last_read.done:
        raise HubError("%s ended right behind its handshake" % upstream.name, "SERVER_CRASHED")


async def settled(upstream, session):
    """Wait until what a server asked for is answered; it settles that a moment later (`ROOTS_REST_S`)."""
    tasks, end_s = upstream.hub.tasks, monotonic_s() + ROOTS_WAIT_S
    for task in list(session.asking.values()):
        try:
            await within(tasks, max(0.0, end_s - monotonic_s()), task)
        except Silence:
            break
    if session.was_asked:
        await tasks.sleep(ROOTS_REST_S)


async def ask_held(upstream, session):
    """What a server asked for while there was no call to carry it goes with this call, which waits for the answer."""
    held, session.held, session.was_asked = session.held, [], False
    for env, line in held:
        answer_server(upstream, session, env, line)
    if session.was_asked:
        await settled(upstream, session)


async def known_pages(upstream, method):
    """[raw page] of a list beside the tools: as known, else as the server says, which is started for it. HubError."""
    upstream.usable()
    if upstream.catalogue.pages(method) is None:
        await upstream.hub.gate.passed(lambda: counted(upstream, discover(upstream, method), None))
    return upstream.catalogue.pages(method) or []


async def discover(upstream, method="tools/list"):
    """Start a server of whose list nothing is known, and ask for it. HubError.

    Of the tools its caller waits for this server alone; the other lists are of all servers, and not held up by one.
    """
    patience_s = upstream.patience_s()
    try:
        session = await upstream.live(max(patience_s, DISCOVERY_WAIT_S) if method == "tools/list" else patience_s)
        await listing(upstream, session, method)
    except HubError as error:
        code = error.code if error.code in KEPT_CODES else "DISCOVERY_FAILED"
        failed = HubError(str(error), code, error.details, error.suggestion)
        failed.next_try_ms = error.next_try_ms
        raise failed from None


async def listing(upstream, session, method="tools/list"):
    """Ask a running server for all pages of a list, and keep them. HubError."""
    pages, cursor = PageSet(method), b""
    while cursor is not None:
        params = b'{"cursor":%s}' % cursor if cursor else b"{}"
        try:
            cursor = pages.add(await quietly(upstream, session, (method, method), params))
        except Refused as error:
            if error.rpc_code == METHOD_NOT_FOUND:  # a server of other things only
                pages.pages, cursor = [b'{"%s":[]}' % LIST_MEMBER[method].encode("ascii")], None
                continue
            text = "%s refused %s: %s" % (upstream.name, method, error_text({"error": error.raw}))
            raise HubError(text, "DISCOVERY_FAILED") from None
        except PeerError as error:
            text = "%s: its answer to %s is not usable: %s" % (upstream.name, method, error)
            raise HubError(text, "DISCOVERY_FAILED") from None
    upstream.catalogue.listed(session, method, pages.pages)


async def in_rounds(upstream, session, named, params_raw, caller):
    """As `quietly`. What a server of 2026-07-28 asks in between is asked of the client.

    The request is sent again with the answers. caller: (progress, the Dialogue of a client of 2026-07-28 or None).
    """
    progress, dialogue = caller
    if session.is_modern:
        params_raw = stamped(params_raw, upstream.declared if dialogue is None else dialogue.offers)
    asked = params_raw
    for _ in range(MOST_ROUNDS):
        raw = await quietly(upstream, session, named, asked, progress)
        kind = members(raw).get("resultType") if raw[:1] == b"{" and b'"resultType"' in raw else None
        if kind != b'"input_required"' or not session.is_modern:
            return understood(upstream, session, raw, kind)
        asked = with_members(params_raw, await ask_client(upstream, raw, dialogue))
    raise HubError("%s still asks after %d rounds of %s" % (upstream.name, MOST_ROUNDS, named[1]), "SERVER_UNREACHABLE")


def understood(upstream, session, raw, kind):
    """`raw`, if a result of this type can be given to a client. HubError."""
    if kind == b'"input_required"' or session.is_modern and kind not in (None, b'"complete"'):
        raise HubError("%s answered with a result of the type %s, which the hub does not know" % (
            upstream.name, printable(kind[:40].decode("utf-8", "replace"))), "SERVER_UNREACHABLE")
    return raw


def too_late(upstream, session, what, noise_lines):
    """The HubError of a request without an answer; noise_lines: of its stdout meanwhile that are no message."""
    text = "%s did not answer %s within %g s (requestTimeout)" % (upstream.name, what, upstream.patience_s())
    advice = "the server was told to cancel and stays; give it a longer requestTimeout if it needs that"
    if noise_lines:
        text += "; of its stdout %d lines meanwhile are no JSON-RPC, one begins: %s" % (
            noise_lines, printable(session.noise))
        advice = "the server has to write each message as JSON on a line of its own, and nothing else, to its stdout"
    return HubError(text, "SERVER_TIMEOUT", None, advice)


async def quietly(upstream, session, named, params_raw, progress=None):
    """The raw result of a request on a session that is there, with a limit on silence.

    HubError; Refused for the server's own error. named: the method, and what to call the request in a message;
    progress: (key of our token, what to do with each line of progress).
    """
    hub, limit_s = upstream.hub, upstream.patience_s()
    future, begin_s = session.request(named[0], params_raw), monotonic_s()
    ident = session.newest_id()
    timer = "quiet-%d-%s" % (session.pid, ident)
    noise_before = session.noise_lines

    def arm():
        hub.loop.set_timer(timer, monotonic_s() + limit_s, expired)

    def expired():
        waits = session.is_paused or session.asking and monotonic_s() - begin_s < PARKED_S
        if waits:  # for the client, which reads nothing or has a question; it is not silent
            arm()
        else:
            future.fail(too_late(upstream, session, named[1], session.noise_lines - noise_before))

    def progressed(line):
        arm()
        progress[1](line)

    arm()
    if progress is not None:
        session.progress[progress[0]] = progressed
    try:
        raw = await future
        upstream.noted(monotonic_s() - begin_s)
        return raw
    except Refused:
        raise
    except PeerError as error:
        is_kept = hub.upstreams.get(upstream.name) is upstream
        advice = "what it was asked may have been carried out; " + (
            "the next call starts it anew" if is_kept else "list_servers tells which servers there are now")
        text = "%s: %s during %s" % (upstream.name, error, named[1])
        raise HubError(text, "SERVER_CRASHED", upstream.stderr_end(), advice) from None
    except (HubError, Cancelled) as error:
        session.cancel(ident, error.args[0] if error.args else None)
        if not session.is_open():
            session.withdraw()
        raise
    finally:
        hub.loop.clear_timer(timer)
        if progress is not None:
            session.progress.pop(progress[0], None)


def commands_of(pages):
    """The tools (dicts) of the pages of a listing; what has no name is left out (case 136)."""
    found = []
    for raw in pages:
        for tool in spelled_json(raw).get("tools", ()):
            if isinstance(tool, dict) and type(tool.get("name")) is str and tool["name"]:
                found.append(tool)
    return found

# ============================================================================
# L14 HUB - many servers behind four meta-tools, all asleep       [mixed, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L6 L6b L8c L9 L11 L13b L13c L13d L13e
# Used by: L14b
# Owns:   META_TOOLS, MetaTools, Methods, Face, Hub, hub_path, load_hub_config, run_hub
# Never:  starts a server for `tools/list`, for `list_servers` or for a look at its health
# Tests:  tests/test_hub.py, tests/test_hub_calls.py, tests/test_hub_breaks.py, tests/test_hub_reload.py
# ----------------------------------------------------------------------------
# Theory: a hub is an MCP server towards one client and a client of many servers. A
# command is the pair (server, command); nothing is renamed, and the list of tools
# never changes but for the summaries in a description.
#
# Every request of the client is a task. Its end, good or bad, is one line. A cancel
# ends the task where it waits, which cancels downstream.
#
# A reload reads and checks the file first, then swaps the whole set in one assignment. A server whose
# entry is the same keeps its process; the old ones get time for their open calls.
# ----------------------------------------------------------------------------
DRAIN_S, LEAVE_S, HUNG_UP_S = 5.0, 2.0, 0.5
# Open requests of the client, and their bytes; one more is refused at once. Not reading the client would keep back
# its cancels, its answers to servers, and the very call that others wait for.
MAX_OPEN, MAX_OPEN_BYTES = 4096, MAX_LINE_BYTES // 2
# Servers that are started only to be listed, at a time: a start costs a moment in which nobody is served.
MOST_DISCOVERIES = 8
HANGUP = STOP_SIGNALS[2]
PAGE_COMMANDS, PAGE_BYTES, LINE_CHARACTERS = 100, 32 * 1024, 200


# -- the tools -----------------------------------------------------------------------

META_TOOLS = (
    ("list_servers", "List the configured MCP servers: name, description, state, health."
     " An auth_required text is for the user: show it, do not call that server.",
     '{"filter":{"type":"string","description":"part of a name, description or tag"}}', ()),
    ("list_commands", "List the commands of servers, with descriptions. Several at once with servers.",
     '{"server":{"type":"string"},"servers":{"type":"array","items":{"type":"string"}},"cursor":{"type":"string"}}',
     ()),
    ("describe_commands", "Input schemas of commands of one server. Read them before the first call.",
     '{"server":{"type":"string"},"command_names":{"type":"array","items":{"type":"string"}}}',
     ("server", "command_names")),
    ("invoke_command", "Call a command of a server. Its own arguments go into parameters, as an object.",
     '{"server":{"type":"string"},"command_name":{"type":"string"},"parameters":{"type":"object"}}',
     ("server", "command_name")),
)
SEARCH_TOOL = ("search_commands", "Find commands of all servers by words in names and descriptions. Starts no server.",
               '{"query":{"type":"string"},"limit":{"type":"integer"}}', ("query",))
SHOWN_OF_A_TOOL = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
MOST_FOUND = 20

Call = record("Call", "arguments raw meta dialogue", (
    "One call of a meta-tool: decoded and raw arguments, the client's `_meta` (raw members), its Dialogue or None"))


def pretty(value, indent="\n"):
    """JSON for a model, two spaces a level, numbers as they are spelled."""
    from json.encoder import encode_basestring
    inner = indent + "  "
    if isinstance(value, dict) and value:
        rows = [inner + encode_basestring(name) + ": " + pretty(item, inner) for name, item in value.items()]
        return "{%s%s}" % (",".join(rows), indent)
    if isinstance(value, (list, tuple)) and value:
        return "[%s%s]" % (",".join([inner + pretty(item, inner) for item in value]), indent)
    if isinstance(value, (dict, list, tuple)):
        return "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, str) and not isinstance(value, _Number):
        return encode_basestring(value)
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)


def text_result(value):
    return b'{"content":[{"type":"text","text":%s}]}' % json_string(pretty(value))


def one_line_of(text):
    """A description cut to one short line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS - 1] + "\u2026"


class MetaTools:
    """What a client may call. Each gives the raw result (bytes), HubError for a failure that it should read."""
    __slots__ = ("_hub",)

    def __init__(self, hub):
        self._hub = hub

    def tools(self):
        """The tools of `tools/list`, in their order."""
        return META_TOOLS + ((SEARCH_TOOL,) if self._hub.config.search else ())

    def listing(self):
        """The raw result of `tools/list`."""
        found = []
        for name, description, properties, required in self.tools():
            if name == "list_servers":
                description += self.summaries()
            found.append(b'{"name":"%s","description":%s,"inputSchema":{"type":"object","properties":%s%s}}' % (
                name.encode("ascii"), json_string(description), properties.encode("ascii"),
                b',"required":[%s]' % b",".join(map(json_string, required)) if required else b""))
        return b'{"tools":[%s]}' % b",".join(found)

    def summaries(self):
        """What embedServerSummaries adds to a description (G16.1)."""
        embed, servers = self._hub.config.embed, self._hub.config.servers
        if not embed.enabled or not servers:
            return ""
        lines = []
        for server in servers:
            name, description = printable(server.name).replace("\n", " "), printable(server.description or "")
            lines.append("- %s: %s" % (name, one_line_of(description)))
        if len(lines) > embed.max_servers:
            lines[embed.max_servers:] = ["... and %d more" % (len(lines) - embed.max_servers)]
        return "\nConfigured servers:\n" + "\n".join(lines)

    async def call(self, name, call):
        """Run a meta-tool by its name."""
        names = [tool[0] for tool in self.tools()]
        if name not in names:
            text = "there is no tool %r here; the tools are %s" % (str(name)[:100], ", ".join(names))
            raise HubError(text, "INVALID_PARAMETERS", None, "call a server's command with invoke_command")
        return await getattr(self, name)(call)

    def upstream(self, name):
        """The Upstream of a name. HubError for an unknown one."""
        found = self._hub.upstreams.get(name) if isinstance(name, str) else None
        if found is None:
            near = ", ".join(sorted(one for one in self._hub.upstreams if "\0" not in one)[:20])
            near = "the servers are: %s" % near if near else None
            if name is None:
                raise HubError("server is missing", "INVALID_PARAMETERS", None, near)
            raise HubError("there is no server %r" % str(name)[:100], "SERVER_NOT_FOUND", None, near)
        return found

    # -- list_servers

    async def list_servers(self, call):
        wanted = call.arguments.get("filter")
        if wanted is not None and not isinstance(wanted, str):
            raise HubError("filter is not a string", "INVALID_PARAMETERS")
        shown = [self.row(upstream) for upstream in self._hub.upstreams.values() if matches(upstream.server, wanted)]
        return text_result({
            "servers": shown, "version": VERSION, "pid": this_pid(), "config_file": self._hub.config.path,
            "uptime_ms": int((monotonic_s() - self._hub.since_s) * 1000)})

    def row(self, upstream):
        server, known, state, checked_s = upstream.server, upstream.commands(), upstream.state, upstream.checked_s
        healthy = {LIVE_UP: True, STOPPING_UP: True, ASLEEP_UP: True if checked_s else None, STARTING_UP: None}
        why = error_words(upstream.error, self._hub.secrets()) if upstream.error else None
        row = {"name": server.name, "description": server.description, "available": True, "loaded": known is not None,
               "tools_count": len(known) if known is not None else None, "healthy": healthy.get(state, False),
               "state": state, "reason" if state == ASLEEP_UP else "error": why, "examples": server.examples,
               "tags": server.tags, "latency_ms": upstream.latency_ms,
               "last_checked": iso_time(checked_s) if checked_s else None, "next_try_ms": upstream.next_try_ms()}
        kept = ("loaded", "tools_count", "healthy")
        return {name: value for name, value in row.items() if value is not None or name in kept}

    # -- list_commands

    async def list_commands(self, call):
        names = call.arguments.get("servers")
        if names is None:
            if call.arguments.get("server") is None:
                raise HubError("which server? give server or servers", "INVALID_PARAMETERS", None,
                               'like {"servers": ["NAME"]}')
            return text_result(await self.listed(call.arguments["server"], call))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise HubError("servers is not an array of names", "INVALID_PARAMETERS", None, 'like {"servers": ["NAME"]}')
        tasks = {name: self._hub.tasks.start(self.listed(name, call)) for name in names}
        found, failed, last = {}, 0, None
        try:
            for name, task in tasks.items():
                try:
                    found[name] = await task
                except HubError as error:
                    found[name], last, failed = {"error": error_words(error, self._hub.secrets())}, error, failed + 1
        except Cancelled:
            for task in tasks.values():
                task.cancel()
            raise
        if failed and failed == len(found):
            raise last if failed == 1 else HubError(
                "none of these servers could be asked", "DISCOVERY_FAILED", pretty(found))
        return text_result(found)

    async def listed(self, name, call):
        """The commands of one server: an array, or one part of a long list (G7.7)."""
        upstream, cursor = self.upstream(name), call.arguments.get("cursor")
        tools = await upstream.listed(call.dialogue)
        rows = [self.command_row(upstream, tool) for tool in tools]
        whole_size = sum(len(row["name"]) + len(row["description"]) for row in rows)
        if cursor is None and len(rows) <= PAGE_COMMANDS and whole_size <= PAGE_BYTES:
            return rows
        if cursor is not None and not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
            raise HubError("cursor is not one of nextCursor", "INVALID_PARAMETERS")
        first, size, part = int((cursor or "0")[:9]), 0, []
        for row in rows[first:first + PAGE_COMMANDS]:
            row["description"] = one_line_of(row["description"])
            size += len(row["name"]) + len(row["description"])
            if part and size > PAGE_BYTES:
                break
            part.append(row)
        page = {"commands": part, "total": len(rows)}
        if first + len(part) < len(rows):
            page["nextCursor"] = str(first + len(part))
        return page

    def command_row(self, upstream, tool):
        """What a list tells of a command."""
        allowed, _ = decision(self._hub.config.permissions, upstream.server.permissions, upstream.name, tool["name"])
        row = {"name": tool["name"], "description": description_of(tool)}
        return row if allowed else dict(row, denied=True)

    # -- describe_commands

    async def describe_commands(self, call):
        names = call.arguments.get("command_names")
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise HubError("command_names is not an array of names", "INVALID_PARAMETERS", None, (
                'like {"server": "NAME", "command_names": ["COMMAND"]}'))
        upstream = self.upstream(call.arguments.get("server"))
        known = {tool["name"]: tool for tool in reversed(await upstream.listed(call.dialogue))}
        shown = [{key: known[name][key] for key in SHOWN_OF_A_TOOL if key in known[name]}
                 for name in names if name in known]
        missing = [name for name in names if name not in known]
        if not shown:
            text = "server %s has no command %s" % (upstream.name, ", ".join(missing)[:200])
            raise HubError(text, "INVALID_PARAMETERS", None, "list_commands tells which there are")
        return text_result({"commands": shown, "missing": missing} if missing else shown)

    # -- invoke_command

    async def invoke_command(self, call):
        upstream, command = self.upstream(call.arguments.get("server")), call.arguments.get("command_name")
        if not isinstance(command, str) or not command:
            raise HubError("command_name is missing or no string", "INVALID_PARAMETERS", None, CALL_SHAPE)
        allowed, message = decision(self._hub.config.permissions, upstream.server.permissions, upstream.name, command)
        if not allowed:
            raise HubError(message or "the command %s of %s is not allowed by the configuration" % (
                command, upstream.name), "POLICY_BLOCKED")
        arguments, hint = arguments_of(call, upstream, command)
        meta = {name: raw for name, raw in call.meta.items()
                if name != "progressToken" and not name.startswith("io.modelcontextprotocol/")}
        progress = None
        if "progressToken" in call.meta:
            token = self._hub.new_token()
            meta["progressToken"] = json_string(token)
            progress = token_key(token), lambda line: self._hub.face.progress(
                call.dialogue.wanted_progress() if call.dialogue is not None else call.meta["progressToken"], line)
        told = b",".join(json_string(name) + b":" + raw for name, raw in meta.items())
        params = b'{"name":%s,"arguments":%s%s}' % (
            json_string(command), arguments, b',"_meta":{%s}' % told if meta else b"")
        try:
            raw = await upstream.request(("tools/call", "the call of %s" % command), params, progress, call.dialogue)
        except Refused as error:
            raise refused_call(upstream.name, command, error) from None
        if raw[:1] != b"{":
            text = "%s answered the call of %s with a result that is no object" % (upstream.name, command)
            raise HubError(text, "SERVER_UNREACHABLE")
        if self._hub.config.result_mode == "json":
            raw = wrapped_result(raw)
        elif self._hub.config.resources and b'"resource_link"' in raw:
            raw = with_hub_uris(upstream, raw, "content", "resource_link")
        return with_hint(raw, hint) if hint else bytes(raw)

    # -- search_commands

    async def search_commands(self, call):
        query, limit = call.arguments.get("query"), call.arguments.get("limit", MOST_FOUND)
        if not isinstance(query, str) or not query.split() or type(limit) is not int or limit < 1:
            raise HubError("query is words to look for, limit a number", "INVALID_PARAMETERS", None,
                           'like {"query": "read file"}')
        words, found = query.lower().split(), []
        for upstream in self._hub.upstreams.values():
            for tool in upstream.commands() or ():
                score = rank(words, tool["name"].lower(), description_of(tool).lower())
                if score:
                    found.append((-score, upstream.name, tool["name"], tool))
        shown = []
        for _, name, _, tool in sorted(found, key=lambda hit: hit[:3])[:min(limit, 100)]:
            row = self.command_row(self._hub.upstreams[name], tool)
            shown.append(dict({"server": name}, **dict(row, description=one_line_of(row["description"]))))
        answer = {"commands": shown, "total": len(found)}
        unknown = [upstream.name for upstream in self._hub.upstreams.values() if upstream.commands() is None]
        if unknown:
            answer.update(not_searched=unknown, advice="list_commands of a server makes its commands known")
        return text_result(answer)


CALL_SHAPE = 'like {"server": "NAME", "command_name": "COMMAND", "parameters": {...}}'


def description_of(tool):
    return str(tool.get("description") or "")


def matches(server, wanted):
    """Is `wanted` part of a name, a description or a tag (G6.5)?"""
    words = [server.name, server.description or ""] + [tag for tag in server.tags or () if isinstance(tag, str)]
    return not wanted or any(wanted.lower() in word.lower() for word in words)


def rank(words, name, text):
    """How well a command fits: names before descriptions, whole words before parts; 0 unless every word is there."""
    score = 0
    for word in words:
        if word not in name and word not in text:
            return 0
        score += 8 if word == name else 4 if word in name else 1
    return score


def arguments_of(call, upstream, command):
    """(raw arguments for the command, a hint for the caller or None). HubError for what is not unambiguous (G8.3)."""
    given = members(call.raw)
    raw = given.get("parameters", b"null")
    stray = [name for name in given if name not in ("server", "command_name", "parameters")]
    if stray:
        return flattened(call, upstream, command, given, stray)
    if raw[:1] == b"{":
        return raw, None
    if raw == b"null":
        return b"{}", None
    value = parse_json(raw)
    if isinstance(value, str):
        if not value.strip():
            return b"{}", "parameters was an empty string; leave it out, or give an object"
        try:
            inner = value.strip().encode("utf-8")
            members(inner)
            refuse_twins(value)
            return inner, "parameters was a string that holds an object; give the object itself"
        except ValueError:  # lone surrogates among them
            pass
    raise HubError("parameters is %s, not an object" % kind_word(value), "INVALID_PARAMETERS", None, CALL_SHAPE)


def refuse_twins(text):
    """ValueError for JSON that names a member twice: nobody knows which was meant."""
    import json

    def checked(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a member stands there twice")
    json.loads(text, object_pairs_hook=checked)


def flattened(call, upstream, command, given, stray):
    """Arguments beside the three members, where all of them are the command's own and `parameters` is not there."""
    tool = next((tool for tool in upstream.commands() or () if tool["name"] == command), None)
    properties = member_of(member_of(tool, "inputSchema"), "properties")
    if "parameters" not in given and isinstance(properties, dict) and all(name in properties for name in stray):
        raw = b"{%s}" % b",".join(json_string(name) + b":" + given[name] for name in stray)
        return raw, "%s stood beside parameters; put them into it" % ", ".join(stray)
    meant = list(members(given["arguments"])) if stray == ["arguments"] and given["arguments"][:1] == b"{" else stray
    shape = b'{"server":%s,"command_name":%s,"parameters":{%s}}' % (
        json_string(upstream.name), json_string(command), b",".join(json_string(name) + b":..." for name in meant))
    raise HubError("invoke_command does not know %s" % ", ".join(stray)[:200], "INVALID_PARAMETERS", None,
                   "call it as %s" % shape.decode("utf-8"))


def kind_word(value):
    if value is None:
        return "null"
    return {bool: "a boolean", list: "an array", str: "a string", dict: "an object"}.get(type(value), "a number")


def refused_call(server, command, error):
    """The HubError of a JSON-RPC error of the server: code, message and data are in it (G8.4)."""
    try:
        rpc = parse_json(error.raw)
    except ValueError:
        rpc = None
    if not isinstance(rpc, dict):
        what = "without result or error" if rpc is None else "with an error that is no object: %s" % pretty(rpc)[:200]
        return HubError("%s of %s answered %s" % (command, server, what), "SERVER_UNREACHABLE")
    text = str(rpc.get("message") or "the server gave an error without a message")
    extra = "code %s" % rpc.get("code") + (", data %s" % pretty(rpc["data"]) if "data" in rpc else "")
    return HubError("%s (%s of %s answered: %s)" % (text, command, server, extra), "TOOL_ERROR", None, None, rpc)


def wrapped_result(raw):
    """The older hub's form: the whole result as text (G8.2)."""
    is_error = members(raw).get("isError") == b"true"
    return b'{"content":[{"type":"text","text":%s}]%s}' % (
        json_string(pretty(spelled_json(raw))), b',"isError":true' if is_error else b"")


def with_hint(raw, hint):
    """A result with a hint in its `_meta`."""
    meta, ours = members(raw).get("_meta", b"{}"), {"lazyMcp": b'{"hint":%s}' % json_string(hint)}
    return with_members(raw, {"_meta": with_members(meta if meta[:1] == b"{" else b"{}", ours)})


# -- towards the client ----------------------------------------------------------------

class Methods:
    """The methods of the hub as a server, of both eras. has_shaken: its client shook hands, so it can be asked."""
    __slots__ = ("has_shaken", "_hub", "_declared")

    def __init__(self, hub):
        self._hub, self._declared, self.has_shaken = hub, {}, False

    def declared(self):
        """What the client offers to servers: as it said in its handshake, or in its newest request of 2026-07-28."""
        return dict(self._declared)

    def _learn(self, capabilities):
        offers = {name: capabilities[name] for name in ASKABLE.values() if isinstance(capabilities.get(name), dict)}
        self._declared = offers
        return offers

    async def result(self, env, line):
        """The raw result of a request. PeerError is an error answer."""
        try:
            params_raw = members(line).get("params", b"{}")
            params = parse_json(params_raw)
        except ValueError as error:
            raise PeerError("this is not JSON in UTF-8, or too deep: %s" % type(error).__name__, -32700) from None
        if not isinstance(params, dict):
            raise PeerError("params are no object", INVALID_PARAMS)
        self._hub.log.event("info", "request", wall_s(), event="mcp_request", mcpMethod=env.method)
        if is_modern(params) or env.method == DISCOVER:
            return await self._modern(env, params, params_raw)
        return await self._legacy(env.method, params, params_raw)

    async def _legacy(self, method, params, params_raw):
        if method == "initialize":
            version, capabilities = params.get("protocolVersion"), params.get("capabilities")
            self.has_shaken, _ = True, self._learn(object_of(capabilities))
            version = version if version in HUB_VERSIONS else HUB_VERSIONS[1]
            return self._welcome(b'"protocolVersion":%s,' % json_string(version))
        if method == "ping":
            return b"{}"
        return await self._served(method, params, params_raw, None)

    def _welcome(self, first):
        prompts = b',"prompts":{}' if any(server.forward_prompts for server in self._hub.config.servers) else b""
        resources = b',"resources":{}' if self._hub.config.resources else b""
        changes = b'{"listChanged":true}' if self._hub.config.embed.enabled else b"{}"
        return b'{%s"capabilities":{"tools":%s%s%s},"serverInfo":{"name":"lazy-mcp-proxy","version":%s}}' % (
            first, changes, prompts, resources, json_string(VERSION))

    async def _modern(self, env, params, params_raw):
        """A request of 2026-07-28 (G4.1, A17): no handshake, its version in each request."""
        method, meta = env.method, object_of(params.get("_meta"))
        version = meta.get(VERSION_KEY)
        if version != HUB_MODERN:
            raise unsupported(version)
        if not isinstance(meta.get(CAPABILITIES_KEY), dict):
            raise PeerError("_meta has no object %s" % CAPABILITIES_KEY, INVALID_PARAMS)
        offers = self._learn(meta[CAPABILITIES_KEY])
        hints = {"resultType": b'"complete"', "ttlMs": b"0", "cacheScope": b'"private"'}
        if method == DISCOVER:
            raw = self._welcome(b'"supportedVersions":["%s"],' % HUB_MODERN.encode("ascii"))
            meta = b"{%s:%s}" % (json_string(SERVER_KEY), members(raw)["serverInfo"])
            return with_members(raw, dict(hints, _meta=meta))
        if method in ("ping", "initialize", "logging/setLevel"):
            raise PeerError("%s is no method of %s" % (method, HUB_MODERN), METHOD_NOT_FOUND)
        if method == "subscriptions/listen":
            granted = ("toolsListChanged",) if self._hub.config.embed.enabled else ()
            wanted = object_of(params.get("notifications"))
            return await self._hub.face.subscriptions.listen(env.id_raw, wanted, granted)
        if method in CARRIERS:
            raw = await self._carried(method, params, params_raw, offers)
            is_read = method == "resources/read" and "inputRequests" not in members(raw)
            return with_members(raw, hints) if is_read else raw
        return with_members(await self._served(method, params, params_raw, None), hints)

    async def _carried(self, method, params, params_raw, offers):
        """The raw result of a request that may be answered by questions, or that brings answers."""
        hub, parts = self._hub, members(params_raw)
        if "requestState" in parts or "inputResponses" in parts:
            dialogue = hub.dialogues.resumed(method, parts)
        else:
            dialogue = Dialogue(method, parts, offers)
            dialogue.begin(hub.tasks.start(self._served(method, params, params_raw, dialogue)))
        dialogue.progress = members(parts["_meta"]).get("progressToken")
        return await hub.dialogues.carry(dialogue)

    async def _served(self, method, params, params_raw, dialogue):
        """What both eras have."""
        hub = self._hub
        if method == "tools/list":
            return hub.tools.listing()
        if method == "tools/call":
            return await self._call(params, params_raw, dialogue)
        if method in ("prompts/list", "prompts/get") and any(server.forward_prompts for server in hub.config.servers):
            if method == "prompts/list":
                return await prompts_list(hub)
            return await prompts_get(hub, params, params_raw, dialogue)
        if method in ("resources/list", "resources/templates/list", "resources/read") and hub.config.resources:
            if method != "resources/read":
                return await resources_list(hub, method)
            return await resources_read(hub, params, params_raw, dialogue)
        raise PeerError("the hub has no method %s" % method[:100], METHOD_NOT_FOUND)

    async def _call(self, params, params_raw, dialogue):
        """tools/call: a meta-tool's result, or its failure as a result."""
        hub, name, begin_s = self._hub, params.get("name"), monotonic_s()
        parts = members(params_raw)
        raw, arguments = parts.get("arguments", b"{}"), params.get("arguments")
        if arguments is None:
            raw, arguments = b"{}", {}
        fields = {"lazyTool": name if isinstance(name, str) else None, "event": "lazy_tool_execution"}

        def finished(level, text, status, code=None):
            hub.log.event(level, text, wall_s(), phase="finish", status=status, code=code,
                          durationMs=int((monotonic_s() - begin_s) * 1000), **fields)
        hub.used()
        try:
            if isinstance(arguments, str):
                raw, arguments = object_text(arguments)
            if not isinstance(arguments, dict):
                raise HubError("arguments is %s, not an object" % kind_word(arguments), "INVALID_PARAMETERS")
            if isinstance(arguments.get("server"), str):
                fields["downstreamServer"] = arguments["server"]
            if isinstance(arguments.get("command_name"), str):
                fields["downstreamCommand"] = arguments["command_name"]
            meta = members(parts["_meta"]) if parts.get("_meta", b"")[:1] == b"{" else {}
            result = await hub.tools.call(name, Call(arguments, raw, meta, dialogue))
            finished("info", "done", "ok")
            return result
        except (HubError, RecursionError) as fault:
            error = fault if isinstance(fault, HubError) else HubError(
                "what the server gave is nested too deeply to be shown", "SERVER_UNREACHABLE")
            finished("error" if error.code != "POLICY_BLOCKED" else "info", str(error), "error", error.code)
            return error_result(error, hub.secrets())


def failure(id_raw, code, text):
    """The line of an error of the hub's own."""
    return error_line(id_raw, error_object(code, text))


class Face:
    """The hub as a server on stdin and stdout: lines in, one answer for each request out, as they get ready."""
    __slots__ = ("open", "subscriptions", "_hub", "_out", "_splitter", "_tasks", "_asked", "_count", "streams",
                 "_paused", "_open_bytes")

    def __init__(self, hub, streams):
        self._hub, self._out, self._splitter, self.open = hub, Outbox(1), LineSplitter(), True
        self._tasks, self._asked, self._count, self._open_bytes = {}, {}, 0, 0
        self.streams, self._paused, self.subscriptions = streams, [], Subscriptions(self._write)
        for fd in (0, 1):
            self.streams.make_nonblocking(fd)
        hub.loop.watch(0, self._read)

    def busy(self):
        return bool(self._tasks)

    def _read(self):
        raw = read_some(0)
        if raw is None:
            return
        for block in self._splitter.feed(raw) if raw else self._splitter.rest():
            for line in block.split(b"\n"):
                if line.strip():
                    self._line(bytes(line))
        if self._splitter.too_long:
            self._splitter.too_long = False
            self._write(failure(b"null", INVALID_REQUEST, "a line is longer than %d bytes" % MAX_LINE_BYTES))
        if not raw:
            self._end()
        self._watch()

    def _watch(self):
        """Read while there is room for answers. A client that went left a pipe full at most, and then comes the end."""
        if not self.open:
            return
        is_paused = self.is_full() and not hung_up(0)
        self._hub.loop.watch(0, None if is_paused else self._read)
        if is_paused:  # no selector tells of an end while nothing is to be read
            self._hub.loop.set_timer("hung up", monotonic_s() + HUNG_UP_S, self._watch)

    def _end(self):
        self.open = False
        self._hub.loop.watch(0)
        for future in self._asked.values():
            future.fail(PeerError("the client is gone"))
        self._asked = {}
        self._hub.leave(LEAVE_S)

    def _write(self, line):
        self._out.put(line)
        self._flush()

    def _flush(self):
        self._out.flush()
        is_wanted = self._out.pending_bytes and not self._out.broken  # epoll tells of a broken one for ever
        self._hub.loop.watch(1, None, self._flush if is_wanted else None)
        if self._out.broken and self.open:
            self._end()
        if not self.is_full():
            paused, self._paused = self._paused, []
            for resume in paused:
                resume()
        self._watch()

    def is_full(self):
        """Does the client not take its answers? Then no server is read that may have more of them."""
        return self._out.pending_bytes > MAX_OUTPUT_BYTES

    def when_read(self, resume):
        self._paused.append(resume)

    def drain(self, limit_s):
        """Wait for a slow reader at the end, this long at most."""
        end_s = monotonic_s() + limit_s
        self._hub.loop.set_timer("drain", end_s, lambda: None)
        while self._out.pending_bytes and monotonic_s() < end_s:
            self._hub.loop.turn()

    # -- lines

    def _line(self, line):
        """No line of the client may raise into the loop."""
        env = read_envelope(line)
        self._hub.log.body("request", line, wall_s(), method=env.method)
        try:
            items = envelopes_of(env, line) if env.kind == BATCH else []
            if items:
                self._hub.tasks.start(self._array(items))
            else:
                self._message(env, line, self._write)
        except UNREADABLE:
            self._write(failure(b"null", INVALID_REQUEST, "this cannot be read"))

    async def _array(self, items):
        """A batch of 2025-03-26: one array of answers, none where nobody asked anything."""
        answers, tasks = [], []
        for env, raw in items:
            try:
                tasks.append(self._message(env, raw, answers.append))
            except UNREADABLE:
                answers.append(failure(b"null", INVALID_REQUEST, "this cannot be read"))
        for task in tasks:
            if task is not None:
                await task
        if answers:
            self._write(b"[%s]\n" % b",".join(answer.rstrip(b"\n") for answer in answers))

    def _message(self, env, line, write):
        """Take one message; the Task of a request that is taken up. write: for its answer."""
        if env.kind == BAD:
            write(failure(b"null", -32700, "not JSON"))
        elif has_bad_id(env):
            write(failure(b"null", INVALID_REQUEST, "an id is a string or an integer"))
        elif env.kind == REQUEST and (len(self._tasks) >= MAX_OPEN or self._open_bytes > MAX_OPEN_BYTES):
            write(failure(env.id_raw, INTERNAL_ERROR, "too many requests are open; wait for answers"))
        elif env.kind == REQUEST:
            task = self._tasks[env.id_key] = self._hub.tasks.start(self._respond(env, line, write))
            return task
        elif env.kind == NOTIFICATION:
            self._notified(env, line)
        elif env.kind == RESPONSE:
            self._answered(env, line)
        else:
            write(failure(b"null", INVALID_REQUEST, "not a JSON-RPC message"))
        return None

    async def _respond(self, env, line, write):
        """Answer one request, whatever happens."""
        task = self._tasks.get(env.id_key)
        self._open_bytes += len(line)
        try:
            raw = await self._hub.methods.result(env, line)
            self._hub.log.body("response", raw, wall_s(), method=env.method)
            write(result_line(env.id_raw, raw))
        except PeerError as error:
            write(error_line(env.id_raw, getattr(error, "raw", None) or error_object(error.rpc_code, str(error))))
        except Cancelled:
            self._hub.log.event("debug", "cancelled", wall_s(), method=env.method)
            if self._hub.is_over:
                write(failure(env.id_raw, INTERNAL_ERROR, "the hub ended, with its client's input or by a signal"))
        except Exception as error:  # ours: one request fails, the hub goes on
            place = error_place(error)
            self._hub.log.event("error", "internal error, please report it: %s" % place, wall_s(),
                                event="service_unhandled_error")
            write(failure(env.id_raw, INTERNAL_ERROR, "internal error of the hub: %s" % place))
        finally:
            self._open_bytes -= len(line)
            if self._tasks.get(env.id_key) is task:
                del self._tasks[env.id_key]

    def cancel_all(self):
        for task in list(self._tasks.values()):
            task.cancel()

    def _notified(self, env, line):
        if env.method == "notifications/cancelled":
            task = self._tasks.get(cancelled_key(env, line))
            if task is not None:
                task.cancel(Cancelled(member_of(env.params(line), "reason")))
        elif env.method == ROOTS_CHANGED:
            for upstream in self._hub.upstreams.values():
                upstream.roots_changed()

    # -- requests of servers

    def ask(self, method, params_raw):
        """(id, Future of the client's raw result). Refused, PeerError."""
        self._count += 1
        future, ident = Future(), "mcp-lazy-hub-%d" % self._count
        self._asked[id_key_of(ident, spell_id(ident))] = future
        params = b',"params":' + params_raw if params_raw else b""
        self._write(b'{"jsonrpc":"2.0","id":%s,"method":%s%s}\n' % (spell_id(ident), json_string(method), params))
        return ident, future

    def withdraw(self, ident):
        """The client need not answer this any more."""
        if self._asked.pop(id_key_of(ident, spell_id(ident)), None) is not None and self.open:
            self._write(CANCELLED % spell_id(ident))

    def _answered(self, env, line):
        future = self._asked.pop(env.id_key, None)
        if future is None:
            return
        try:
            parts = members(line)
        except UNREADABLE:
            future.fail(PeerError("the client's answer cannot be read"))
            return
        if "result" in parts:
            future.set(parts["result"])
        else:
            future.fail(Refused(parts.get("error", b"")))

    def progress(self, token_raw, line):
        """A server's progress, with the client's own token; None where nobody waits for it."""
        if token_raw is None:
            return
        params = with_members(members(line)["params"], {"progressToken": token_raw})
        self._write(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%s}\n' % params)

    def can_ask(self):
        """Can the client be sent requests and notifications that it did not ask for?"""
        return self.open and self._hub.methods.has_shaken

    def tools_changed(self):
        """The list of tools is another one now."""
        method = "notifications/tools/list_changed"
        if self.can_ask():
            self._write(b'{"jsonrpc":"2.0","method":%s}\n' % json_string(method))
        self.subscriptions.changed("toolsListChanged", method)


def has_bad_id(env):
    """Is it a request whose id is none (MCP: a string or an integer)? Without any id it is a notification."""
    is_null = env.kind == NOTIFICATION and isinstance(env.body, dict) and "id" in env.body
    return is_null or env.kind == REQUEST and isinstance(env.id_key, tuple) and not env.id_raw.lstrip(b"-").isdigit()


def object_text(text):
    """(raw, decoded) of arguments that a caller sent as a string of JSON (case 135). HubError."""
    try:
        raw = text.strip().encode("utf-8") or b"{}"
        members(raw)
        return raw, parse_json(raw)
    except ValueError:
        raise HubError("arguments is a string that holds no object", "INVALID_PARAMETERS") from None


def unsupported(version):
    """The -32022 of 2026-07-28 for a version that the hub has not."""
    error = PeerError("this version is not supported", UNSUPPORTED_VERSION)
    error.raw = b'{"code":%d,"message":"unsupported protocol version","data":{"supported":["%s"],"requested":%s}}' % (
        UNSUPPORTED_VERSION, HUB_MODERN.encode("ascii"), json_string(version if isinstance(version, str) else ""))
    return error


# -- prompts and resources, where the configuration forwards them ------------------------

def escaped_name(text):
    """A name as part of `server::prompt` (G16.3)."""
    return text.replace("\\", "\\\\").replace(":", "\\:")


def parted(text):
    """(server, name) of a name of `escaped_name`s joined by `::`, None where it is none."""
    server, at = "", 0
    while at < len(text):
        if text[at] == "\\":
            server, at = server + text[at + 1:at + 2], at + 2
        elif text.startswith("::", at):
            rest, name, at = text[at + 2:], "", 0
            while at < len(rest):
                step = 1 if rest[at] == "\\" else 0
                name, at = name + rest[at + step:at + step + 1], at + step + 1
            return server, name
        else:
            server, at = server + text[at], at + 1
    return None


async def gathered(hub, upstreams, method):
    """[(upstream, raw item)] of one listing of several servers, all pages; who fails is left out and logged."""
    tasks, items = [(upstream, hub.tasks.start(known_pages(upstream, method))) for upstream in upstreams], []
    for upstream, task in tasks:
        try:
            for page in await task:
                listed = elements(members(page)[LIST_MEMBER[method]])
                items += [(upstream, raw) for raw in listed if raw[:1] == b"{"]
        except HubError as error:
            hub.log.event("error", "%s of %s failed: %s" % (method, upstream.name, error), wall_s(),
                          event="prompts_list_failed", server=upstream.name)
    return items


async def prompts_list(hub):
    """The prompts of all servers that forward theirs, as `server::prompt`."""
    wanted = [upstream for upstream in hub.upstreams.values() if upstream.server.forward_prompts]
    shown = []
    for upstream, raw in await gathered(hub, wanted, "prompts/list"):
        name = parse_json(members(raw).get("name", b"null"))
        if isinstance(name, str):
            full_name = "%s::%s" % (escaped_name(upstream.name), escaped_name(name))
            shown.append(with_members(raw, {"name": json_string(full_name)}))
    return b'{"prompts":[%s]}' % b",".join(shown)


async def prompts_get(hub, params, params_raw, dialogue):
    found = parted(params.get("name")) if isinstance(params.get("name"), str) else None
    upstream = hub.upstreams.get(found[0]) if found else None
    if upstream is None or not upstream.server.forward_prompts:
        raise PeerError("there is no prompt %s" % str(params.get("name"))[:100], INVALID_PARAMS)
    params_raw = with_members(without_meta(params_raw), {"name": json_string(found[1])})
    return await forwarded(upstream, "prompts/get", params_raw, dialogue)


async def resources_list(hub, method):
    """The resources (or templates) of all servers; the URI says whose it is."""
    member, key = LIST_MEMBER[method], "uri" if method == "resources/list" else "uriTemplate"
    shown = []
    for upstream, raw in await gathered(hub, list(hub.upstreams.values()), method):
        uri = parse_json(members(raw).get(key, b"null"))
        if isinstance(uri, str):
            shown.append(with_members(raw, {key: json_string(hub_uri(upstream, uri))}))
    return b'{"%s":[%s]}' % (member.encode("ascii"), b",".join(shown))


async def resources_read(hub, params, params_raw, dialogue):
    uri = params.get("uri")
    found = parted(uri[4:]) if isinstance(uri, str) and uri[:4] == "hub+" else None
    upstream = hub.upstreams.get(found[0]) if found else None
    if upstream is None:
        raise PeerError("there is no resource %s" % str(uri)[:100], INVALID_PARAMS)
    raw = await forwarded(upstream, "resources/read", with_members(without_meta(params_raw), {
        "uri": json_string(uri[4:][len(escaped_name(found[0])) + 2:])}), dialogue)
    return with_hub_uris(upstream, raw, "contents", None)


def hub_uri(upstream, uri):
    """The URI of a server's resource for a client of the hub."""
    return "hub+%s::%s" % (escaped_name(upstream.name), uri)


def with_hub_uris(upstream, raw, member, kind):
    """A result whose items (those of a type, None for all) name their resource as the client knows it.

    A result that is odd stays as it is.
    """
    try:
        items, listed = [], members(raw)[member]
        if listed[:1] != b"[":
            return raw
        for item in elements(listed):
            parts = members(item)
            uri = parse_json(parts.get("uri", b"null"))
            is_meant = isinstance(uri, str) and (kind is None or parts.get("type") == json_string(kind))
            items.append(with_members(item, {"uri": json_string(hub_uri(upstream, uri))}) if is_meant else item)
        return with_members(raw, {member: b"[%s]" % b",".join(items)})
    except (ValueError, KeyError):
        return raw


def without_meta(params_raw):
    """Params of the client for a server: its `_meta` is between the client and the hub."""
    return with_members(b"{}", {name: raw for name, raw in members(params_raw).items() if name != "_meta"})


async def forwarded(upstream, method, params_raw, dialogue):
    """The raw result (an object) of a server; what else it or the hub gives is an error answer."""
    hidden = upstream.hub.secrets()
    try:
        raw = await upstream.request((method, method), params_raw, None, dialogue)
    except HubError as error:
        raise PeerError(hidden.text(str(error)), INTERNAL_ERROR) from None
    except Refused as error:
        raise plain_refusal(upstream, method, error.raw) from None
    if raw[:1] != b"{":
        raise PeerError("%s answered %s with a result that is no object" % (upstream.name, method), INTERNAL_ERROR)
    return raw


def plain_refusal(upstream, method, raw):
    """The Refused of a server's error, without what is secret; a PeerError for an error that is none."""
    hidden = upstream.hub.secrets()
    try:
        found = parse_json(raw)
        if not isinstance(found, dict) or type(found.get("code")) is not int or type(found.get("message")) is not str:
            raise ValueError
        text = raw.decode("utf-8")
        return Refused(raw if hidden.known(text) == text else canonical(hidden.value(found, True)).encode("ascii"))
    except UNREADABLE:
        return PeerError("%s answered %s with neither a result nor an error" % (upstream.name, method), INTERNAL_ERROR)


# -- the whole ---------------------------------------------------------------------------

HubFiles = record("HubFiles", "path environment flags", "Which file the hub reads, and what stands beside it")


class Hub:
    """Everything together. config and upstreams are replaced as wholes, at a reload.

    is_over: it ends, and open calls had their time.
    """
    __slots__ = ("config", "is_over", "upstreams", "loop", "tasks", "processes", "log", "face", "tools", "methods",
                 "dialogues", "gate", "since_s", "mark", "is_nested", "_recordings", "_files", "_signals", "_leaving",
                 "_over", "_tokens", "_retired", "_sink", "_used_s", "_monitoring", "_watched", "_old_secrets",
                 "_redaction")

    def __init__(self, files, config, cache_dir, opened):
        self._files, self.config, self._recordings = files, config, cache_dir
        self.loop, self.processes, self.since_s = Loop(), Processes(), monotonic_s()
        self.tasks, self._sink, self._signals = Tasks(self.loop), StderrSink(self.loop), opened[1]
        self.log = HubLog(self._put_line, config.log, config.secrets)
        self._tokens, self._leaving, self.is_over, self._over, self._retired = 0, False, False, False, []
        self._used_s, self._monitoring, self._watched = 0.0, False, None
        self._learn()
        mine = sha256_hex(filesystem_bytes(resolved_path(config.path))).encode("ascii")
        marks = files.environment.get(HUB_MARK, b"")
        self.is_nested, self.mark = mine in marks.split(b","), b",".join(filter(None, [marks, mine]))
        self.tools, self.methods, self.face, self.gate = MetaTools(self), Methods(self), None, Gate(MOST_DISCOVERIES)
        self.upstreams, self.dialogues = {}, Dialogues(self.loop)
        self.face = Face(self, opened[0])
        self.upstreams = {key: Upstream(self, server) for key, server in keyed(config.servers)}
        self.loop.watch(self._signals.fd, self._signalled)

    # -- what others need

    @property
    def cache_dir(self):
        """The folder of the recordings, None for none."""
        return self._recordings if self.config.cache.strategy != "none" else None

    def secrets(self):
        """The Redaction of what must not be told."""
        return self._redaction

    def _learn(self, old_secrets=frozenset()):
        """Take over what the configuration hides and how it logs; old_secrets: of servers with calls still open."""
        self._old_secrets = old_secrets
        self._redaction = Redaction(self.config.secrets | old_secrets)
        self.log.configure(self.config.log, self.config.secrets | old_secrets)

    def _put_line(self, line):
        """A whole line of the log or nothing: what does not fit is counted, and told in the next one."""
        if self._sink.room() < len(line):
            raise LazyError("nobody reads stderr")
        self._sink.put(line)

    def advice(self):
        return "edit %s, then: kill -HUP %d" % (self.config.path, this_pid())

    def new_token(self):
        self._tokens += 1
        return "mcp-lazy-hub-%d" % self._tokens

    def warn(self, text):
        """For a Store and a ServerLink: a trouble that stops nothing."""
        self.log.event("info", text, wall_s())

    def line(self, text, level=1):
        self.log.event("debug", text, wall_s())

    # -- life

    def run(self):
        """Serve until the client is gone or a signal comes; the exit status."""
        text = "lazy hub %s with %d servers from %s" % (VERSION, len(self.upstreams), self.config.path)
        self.log.event("info", text, wall_s(), event="service_start", pid=this_pid())
        for warning in self.config.warnings:
            self.log.event("info", warning, wall_s(), event="config_warning")
        self._tell_wrong()
        self._watch_file()
        try:
            while not self._over:
                self.loop.turn()
        finally:
            self.face.drain(0.5)
            self._sink.drain(0.2)
            self.face.streams.restore()
            self.processes.wait_for_all(0)
            self.processes.close()
            self.loop.close()
        return EXIT_OK

    def _signalled(self):
        arrived = self._signals.read()
        for pid, status in self.processes.collect():
            for upstream in list(self.upstreams.values()) + self._retired:
                if upstream.pid == pid:
                    upstream.ended(describe_exit(status))
        if arrived & (set(STOP_SIGNALS) - {HANGUP}):
            if self._leaving:
                for upstream in list(self.upstreams.values()) + self._retired:
                    upstream.kill()
            self.leave(0)
        elif HANGUP in arrived:
            self.reload()

    def leave(self, patience_s):
        """End: open calls may finish for `patience_s`, then every server goes by the ladder, all at once."""
        if not self._leaving:
            self._leaving = True
            self.log.event("info", "shutting down", wall_s(), event="service_shutdown_start")
            self.tasks.start(self._leave(monotonic_s() + patience_s))
        elif not patience_s:
            self.is_over = True
            self.face.cancel_all()

    async def _leave(self, end_s):
        self.face.subscriptions.end()
        self.dialogues.end()
        while self.face.busy() and monotonic_s() < end_s:
            await self.tasks.sleep(0.02)
        self.is_over = True
        self.face.cancel_all()
        for task in [self.tasks.start(upstream.stop()) for upstream in list(self.upstreams.values()) + self._retired]:
            await task
        self._over = True

    # -- reload

    def reload(self):
        """Read the file again; nothing changes if it is not valid (G11)."""
        if self._leaving:
            return
        self.log.event("info", "reloading %s" % self.config.path, wall_s(), event="config_reload_start")
        try:
            config = self._files_now()
        except LazyError as error:
            text = "not reloaded, the running configuration stays: %s" % error
            self.log.event("error", text, wall_s(), event="config_reload_failed")
            return
        added, removed, modified, unchanged = reload_plan(self.config, config)
        before = self.upstreams
        kept = set(unchanged)
        summaries, old_secrets = self.tools.summaries(), self.config.secrets | self._old_secrets
        if config.transport != self.config.transport:
            self.log.event("info", "a changed transport needs a restart of the hub", wall_s())
        self.config = config
        self._learn(old_secrets if self._retired or removed or modified else frozenset())
        self.upstreams = {key: before[key] if key in kept else Upstream(self, server)
                          for key, server in keyed(config.servers)}
        for name in [name for name in removed + modified if name in before]:
            self._retired.append(before[name])
            self.tasks.start(self._retire(before[name]))
        self.log.event("info", "reloaded: %d added, %d removed, %d modified, %d unchanged" % (
            len(added), len(removed), len(modified), len(unchanged)), wall_s(), event="config_reload_success",
            added=added, removed=removed, modified=modified)
        self._tell_wrong()
        self._watch_file()
        if self.tools.summaries() != summaries:
            self.face.tools_changed()

    def _tell_wrong(self):
        """A line for each server that cannot be used as it is written (case 199)."""
        for upstream in self.upstreams.values():
            if upstream.error is not None and upstream.state in ("error", "unsupported"):
                self.log.event("error", str(upstream.error), wall_s(), event="server_state",
                               server=upstream.name, state=upstream.state)

    def _files_now(self):
        return load_hub_config(self._files.path, self._files.environment, self._files.flags)

    async def _retire(self, upstream):
        """A server that is no more, or another one now: its open calls get their time."""
        end_s = monotonic_s() + DRAIN_S
        while upstream.calls and monotonic_s() < end_s:
            await self.tasks.sleep(0.02)
        await upstream.stop("the hub stopped it, its entry was changed or removed by a reload,")
        self._retired.remove(upstream)
        if not self._retired:
            self._learn()

    def _watch_file(self):
        """With "watch": true a changed file is read a second after its last change (G11.5)."""
        if not self.config.watch:
            return
        now, now_s = file_identity(self.config.path), monotonic_s()
        if self._watched is None:  # as it was read
            self._watched = (now, now_s, True)
        elif self._watched[0] != now:
            self._watched = (now, now_s, False)
        elif not self._watched[2] and now_s - self._watched[1] >= 1.0:
            self._watched = (now, now_s, True)
            self.reload()
        self.loop.set_timer("watch", now_s + 1.0, self._watch_file)

    # -- health

    def used(self):
        """A call of the client: the look at running servers goes on (G10)."""
        self._used_s = monotonic_s()
        if self.config.health.enabled and not self._monitoring:
            self._monitoring = True
            self.tasks.start(self._monitor())

    async def _monitor(self):
        """Look at running servers now and then, until nobody has used the hub for a while.

        Starts none but where "wake" says so.
        """
        health = self.config.health
        while not self._leaving:
            idle_s = self.config.health.idle_timeout_s
            if idle_s and monotonic_s() - self._used_s > idle_s:
                break
            looks = [self.tasks.start(self._look(upstream, health)) for upstream in list(self.upstreams.values())
                     if upstream.state == LIVE_UP or health.wake and upstream.state in (ASLEEP_UP, FAILING_UP)]
            for task in looks:
                await task
            await self.tasks.sleep(max(0.1, self.config.health.interval_s))
            health = self.config.health
        self._monitoring = False

    async def _look(self, upstream, health):
        """No answer to a ping is a hint, not death, and told once: only a process that ends is dead (case 180)."""
        begin_s = monotonic_s()
        try:
            session = await upstream.live()
            await within(self.tasks, health.timeout_s, session.request("ping"))
        except HubError:
            return
        except Refused:  # it answers
            pass
        except (PeerError, Silence):
            if not session.is_silent:
                session.is_silent = True
                self.log.event("info", "%s does not answer a ping" % upstream.name, wall_s(),
                               event="health_monitor_error", server=upstream.name)
            return
        upstream.noted(monotonic_s() - begin_s)
        if health.wake and upstream.commands() is None:
            try:
                await listing(upstream, session)
            except HubError as error:
                self.log.event("info", str(error), wall_s(), event="health_monitor_error", server=upstream.name)


def keyed(servers):
    """(key, server) of each: its name; the second of a name, an error, gets a key that nobody can ask for (G2.4)."""
    seen = set()
    for at, server in enumerate(servers):
        yield "%s\0%d" % (server.name, at) if server.name in seen else server.name, server
        seen.add(server.name)


def hub_path(given, environment):
    """The configuration file to read (G1.5). LazyError where there is none."""
    home = filesystem_text(environment.get(b"HOME") or b"")
    named = given or filesystem_text(environment.get(b"LAZY_MCP_CONFIG") or b"")
    if named:
        return absolute_path(home + named[1:] if named[:2] == "~/" and home else named)
    xdg = filesystem_text(environment.get(b"XDG_CONFIG_HOME") or b"") or home and home + "/.config"
    paths = ["%s/%s/servers.json" % (xdg, name) for name in ("mcp-lazy", "lazy-mcp")] if xdg else []
    for path in paths:
        if file_identity(path) is not None:
            return path
    where = " or ".join(paths) or "one, there is no HOME"
    raise LazyError("no configuration: give --config FILE, or write %s" % where)


def load_hub_config(path, environment, flags):
    """The HubConfig of a file, with flags and variables. LazyError."""
    def read_file(name):
        return read_whole(name, MAX_CONFIG_BYTES)[0]
    try:
        raw = read_file(path)
    except (OSError, ValueError) as error:
        raise LazyError("cannot read %s: %s" % (path, getattr(error, "strerror", error))) from None
    texts = {filesystem_text(name): filesystem_text(value) for name, value in environment.items()}
    return with_overrides(read_hub_config(raw, path, texts, read_file), flags, texts)


def iso_time(at_wall_s):
    return utc_stamp(at_wall_s) + "Z"


def error_words(error, secrets):
    """An error in one text, for a member of a result."""
    words = [str(error)] + [part for part in (error.details, error.suggestion) if part]
    return redacted_text(" - ".join(words), secrets)


def run_hub(path, flags, environment, cache_dir):
    """Serve a configuration on stdin and stdout; the exit status."""
    streams = StandardStreams()  # before anything is opened: one of them may be closed
    signals = SignalPipe()  # a HUP that comes while the file is read for the first time is a reload behind it
    config = load_hub_config(path, environment, flags)
    if config.transport.type != "stdio":
        raise LazyError("the HTTP transport is not part of this version: leave out transport, or set it to stdio")
    return Hub(HubFiles(path, environment, flags), config, cache_dir, (streams, signals)).run()

# ============================================================================
# L14b COMMANDS - config, doctor and hub, as a person types them   [I/O, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L5 L6 L8b L8c L9 L9b L10b L11 L11b L13b L13c L13e L14
# Used by: L15
# Owns:   recordings_folder, bytecode_path, own_command, config_command, doctor_command, hub_command, hub_import,
#         hub_check
# Never:  decides what a wrap changes, or what a hub does
# Tests:  tests/test_config.py, tests/test_doctor.py, tests/test_hub_tools.py
# ----------------------------------------------------------------------------
# Theory: words become an order for the layers below, what they return becomes a line of
# JSON or a table on stdout; reasons go to stderr in a line each. Whatever names a
# command to run names one that can be pasted: quoted, with the path of this program
# where PATH does not lead to it. Nothing that only a file of the working folder names
# is started: it may have come with a stranger's project.
# ----------------------------------------------------------------------------
def recordings_folder(environment):
    return filesystem_text(environment.get(b"MCP_LAZY_CACHE_DIR") or b"") or user_cache_dir(environment)


def bytecode_path(environment):
    """Where the launcher keeps bytecode, as it sees it; None for nowhere."""
    home = environment.get(b"HOME")
    root = environment.get(b"XDG_CACHE_HOME") or home and home + b"/.cache" or b""
    return filesystem_text(root) + "/mcp-lazy/bytecode" if root[:1] == b"/" else None


def own_command():
    """The words that start this program again."""
    path = absolute_path(__file__)
    seen = program_stat(path)
    if seen is None:  # inside a zipapp
        return [sys.executable, "-I", absolute_path(sys.argv[0])]
    return [path] if seen[2] else [sys.executable, "-I", "-S", path]


# -- config ------------------------------------------------------------------------

CONFIG_USAGE = """\
usage: mcp-lazy config wrap | reapply | unwrap | status | watch --client C (--server NAME | --all) [options]
       mcp-lazy config list [--client C] [--json]

  wrap      put the relay in front of a registration
  reapply   the same for one that was wrapped before and that somebody wrote anew
  unwrap    take it out; the file is as it was, byte for byte
  status    is it wrapped?
  watch     reapply whenever another program has written the file, until a signal
  list      every registration that the clients on this machine know

  --client C        claude, claude-desktop, cursor, codex, grok, gemini, qwen, copilot, cline, vscode, windsurf,
                    opencode, zed
  --file F          the file, if it is not the client's own one
  --server NAME     the registration; --all for every one that starts a program
  --project DIR     claude: the servers of this project in ~/.claude.json
  --env NAME=VALUE  set a variable MCP_LAZY_..., for the relay; --unset-env NAME gives it up again
  --relay PATH      the relay, if not this program
  --state-dir D     where records and backups are kept
  --keep-backups N  backups kept of a registration however old (20)
  --dry-run         do everything but write
  --in-place        write into a file that has hard links
  --recover         unwrap: also without a record, from what the registration says
"""
ACTIONS = ("wrap", "reapply", "unwrap", "status", "watch", "list")
TARGET_OPTIONS = {"client": TEXT, "file": TEXT, "server": TEXT, "all": BOOLEAN, "project": TEXT, "state-dir": TEXT,
                  "relay": TEXT}
WRITE_OPTIONS = dict(TARGET_OPTIONS, **{"dry-run": BOOLEAN, "in-place": BOOLEAN, "keep-backups": TEXT})
WRAP_OPTIONS = dict(WRITE_OPTIONS, **{"env": LIST, "unset-env": LIST})
ACTION_OPTIONS = {"wrap": WRAP_OPTIONS, "reapply": WRAP_OPTIONS, "watch": WRAP_OPTIONS, "status": TARGET_OPTIONS,
                  "unwrap": dict(WRITE_OPTIONS, recover=BOOLEAN),
                  "list": {"client": TEXT, "state-dir": TEXT, "json": BOOLEAN}}
# Variables of a relay that no option goes with.
OTHER_VARIABLES = ("MCP_LAZY_ARGV0", "MCP_LAZY_CHECK_INITIALIZE", "MCP_LAZY_CHECK_BEFORE")
WATCH_POLL_S, WATCH_QUIET_S = 1.0, 2.0
# By: is there a record of ours? does the command start a relay?
WRAPPED_WORDS = {(True, True): "yes", (False, True): "by hand", (True, False): "not any more", (False, False): "no"}


def config_command(words):
    """`config ACTION`: registrations in the files of clients."""
    if set(words) & {"-h", "-help", "--help"}:
        return say(CONFIG_USAGE)
    if not words or words[0] not in ACTIONS:
        raise UsageError("config needs one of its words, %s%s (config --help tells more)" % (
            ", ".join(ACTIONS), ", not %r" % words[0] if words else ""))
    action, environment = words[0], current_environment()
    given, others = read_words(words[1:], ACTION_OPTIONS[action], "config " + action)
    if others:
        raise UsageError("config %s takes no words: %r" % (action, others[0]))
    given["state-dir"] = state_dir_of(given, environment)
    if action == "list":
        return config_list(given, environment)
    if "" in (given.get("file"), given.get("relay"), given.get("project")):
        raise UsageError("config: --file, --relay and --project take a path")
    order = order_of(action, given)
    if action == "watch":
        return watch(given, order, environment)
    targets, interrupt = targets_of(given, environment), Interrupt()
    if action == "status":
        return each_target(targets, given, lambda target: status_of(target, order.relay))
    status = each_target(targets, given, lambda target: change(target, order, interrupt))
    known = [option.variable() for option in OPTIONS if option.name not in WITHOUT_VARIABLE]
    for name in set(order.wanted).difference(known, OTHER_VARIABLES):  # another version's relay may have it
        sys.stderr.write("mcp-lazy: this relay has no variable %s; it is set all the same\n" % printable(name))
    return status


def state_dir_of(given, environment):
    """Where records and backups are (D1.6). UsageError where there is no home for them."""
    folder = given.get("state-dir")
    if folder:
        return absolute_path(folder)
    base = user_config_dir(environment)
    if base is None:
        raise UsageError("no HOME and no XDG_CONFIG_HOME: give --state-dir")
    return base + "/mcp-lazy/registrations"


def order_of(action, given):
    """The Order of an action's options. UsageError (D1.2, D1.3, D1.5)."""
    wanted = {}
    for text in given.get("env", ()):
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError("config: --env is NAME=VALUE")
        wanted[variable_name(name)] = value
    trouble = refusal(wanted)
    if trouble:
        raise UsageError("config: --env: %s" % trouble)
    keep = given.get("keep-backups", str(KEEP_BACKUPS))
    if not keep.isascii() or not keep.isdigit():
        raise UsageError("config: --keep-backups is a number")
    relay = absolute_path(given["relay"]) if given.get("relay") else own_relay(action in ("wrap", "reapply", "watch"))
    if action in ("wrap", "reapply", "watch"):
        seen = program_stat(relay)
        if seen is None or not seen[2]:
            raise UsageError("config: the relay %s is not an executable file" % relay)
    unwanted = [variable_name(name) for name in given.get("unset-env", ())]
    return Order("reapply" if action == "watch" else action, relay, wanted, unwanted, given.get("dry-run", False),
                 given.get("recover", False), given.get("in-place", False), int(keep[:9]))


def variable_name(name):
    if name[:9] != "MCP_LAZY_" or set(name) & set(" .\t\n\r"):
        raise UsageError("config: variables begin with MCP_LAZY_ and have no space or dot: %r" % name)
    return name


def refusal(variables):
    """Why a relay refuses {name: value} of variables that it would be given, None if it does not."""
    environment = {filesystem_bytes(name): filesystem_bytes(value) for name, value in variables.items()}
    try:
        make_run(["--", "server"], environment, False)
    except UsageError as error:
        return str(error)
    return None


def own_relay(must_fit):
    """The path of this program for a registration. UsageError if it is not one that clients may start (D1.5)."""
    script = absolute_path(sys.argv[0])
    for path in (resolved_path(script), script):
        if is_relay(path, None):
            return path
    if must_fit:
        raise UsageError("config: a registration needs a program whose name starts with mcp-lazy, this is %s:"
                         " give --relay, or install it" % script.rpartition("/")[2])
    return script


def targets_of(given, environment):
    """The Targets of a command line. UsageError, LazyError."""
    client, path, project = client_of(given, environment), file_of(given, environment), given.get("project")
    if "server" in given:
        return [Target(client, path, project, given["server"], given["state-dir"])]
    whole = Target(client, path, project, "", given["state-dir"])
    document = read_document(read_config(whole)[0], whole.path, client.is_toml)
    root = root_path(document, client, project)
    if not isinstance(value_at(document.value, root), dict):
        raise LazyError("%s: there are no servers: no object or table %s" % (whole.path, ".".join(root)))
    return [Target(client, path, project, name, given["state-dir"])
            for name in registrations_of(document, client, project)]


def client_of(given, environment):
    """The Client of a command line that names one server or all. UsageError; LazyError for those that keep YAML."""
    client = find_client(given.get("client"))
    if given.get("client") in YAML_CLIENTS or given.get("file", "").rpartition(".")[2] in ("yaml", "yml"):
        raise LazyError(yaml_refusal(given, environment))
    if client is None:
        raise UsageError("config: --client is one of %s" % ", ".join(one.name for one in CLIENTS))
    if ("server" in given) == given.get("all", False) or given.get("server") == "":
        raise UsageError("config: give either --server NAME or --all")
    if "project" in given and client.name != "claude":
        raise UsageError("config: --project is for claude")
    return client


def file_of(given, environment):
    """The file that was named, or the client's own; of several the first that is there. UsageError without a home."""
    if given.get("file"):
        return absolute_path(given["file"])
    client = find_client(given["client"])
    paths = client_files(client.files, environment, user_config_dir(environment))
    if not paths:
        raise UsageError("config: no HOME: give --file")
    return next((path for path in paths if file_identity(path) is not None), paths[0])


def yaml_refusal(given, environment):
    """What to do by hand for a client that keeps YAML."""
    name = given.get("client")
    template, command, args = YAML_CLIENTS.get(name, (given.get("file"), "command", "args"))
    path = given.get("file") or "".join(client_files((template,), environment, None))
    return ("%s is YAML, which is not edited here; put the relay in front by hand:\n"
            "  %s: %s\n"
            "  %s: [OLD COMMAND, OLD ARGS...]" % (path, command, given.get("relay") or "/path/of/mcp-lazy", args))


def each_target(targets, given, action, only_news=False):
    """Do something for one target, or for all in turn, whatever fails; the exit status. `action` tells if it wrote."""
    status, wrote = EXIT_OK, False
    for target in targets:
        try:
            report, has_written = action(target)
            wrote |= has_written
            status = (has_written or not only_news) and say(canonical(report) + "\n") or status
        except NotOurs as error:
            if not given.get("all"):
                raise
            sys.stderr.write("mcp-lazy: left alone: %s\n" % error)
        except LazyError as error:
            if not given.get("all"):
                raise
            sys.stderr.write("mcp-lazy: %s\n" % error)
            status = EXIT_FAILED
    if wrote:
        sys.stderr.write("mcp-lazy: restart or reconnect %s to use it\n" % given["client"])
    return status


def status_of(target, relay):
    """(report, False) of what holds; warnings on stderr."""
    report, trouble = registration_status(target, relay)
    if trouble:
        sys.stderr.write("mcp-lazy: %s has %s, %s will not load it\n" % (target.path, trouble, target.client.name))
    if report.get("changed"):
        text = "no longer wrapped; reapply wraps it again, unwrap forgets it"
        if report["wrapped"]:
            text = ("starts another relay than the one that was put there; unwrap forgets that one,"
                    " then unwrap --recover takes the other out")
        sys.stderr.write("mcp-lazy: %s\n" % printable("%s: %s" % (target.server, text)).replace("\n", " "))
    return report, False


def change(target, order, interrupt):
    """(report of an Order carried out, did it write?)."""
    report = change_registration(target, order, interrupt)
    if order.action == "unwrap" and "command" not in report["changedFields"]:
        if is_relay(find_target(target).registration.command, order.relay):
            sys.stderr.write("mcp-lazy: it still starts a relay, which was not put there by wrap:"
                             " unwrap --recover takes it out\n")
    return report, bool(report["changedFields"]) and not order.dry_run


def watch(given, order, environment):
    """Reapply when the file has changed and was quiet for a while, until a signal (D8.6).

    What fails is said, and tried at the next change. What the file was before a reapply counts as done, so that a
    change meanwhile is seen.
    """
    interrupt, state, since_s, done = Interrupt(), None, 0.0, None
    client, path = client_of(given, environment), file_of(given, environment)
    if "server" in given:
        target = Target(client, path, given.get("project"), given["server"], given["state-dir"])
        if read_metadata_file(target) is None:
            raise LazyError("server %r of %s was never wrapped here: use wrap" % (given["server"], path))
    place = [client.name, resolved_path(path), given.get("project")]
    records = [object_of(record) for _, record in records_in(given["state-dir"])]
    if place not in [[record.get(name) for name in ("client", "config", "project")] for record in records]:
        raise LazyError("no server of %s was ever wrapped here: use wrap" % path)

    def reapply(target):
        return change(target, order, interrupt)
    while not interrupt.wait(WATCH_POLL_S):
        now = file_identity(path)
        if now != state:
            state, since_s = now, monotonic_s()
        elif now not in (None, done) and monotonic_s() - since_s >= WATCH_QUIET_S:
            if not is_locked(Target(client, path, None, "", given["state-dir"])):
                done = now
                try:
                    each_target(targets_of(given, environment), dict(given, all=True), reapply, True)
                except LazyError as error:
                    sys.stderr.write("mcp-lazy: %s\n" % error)
    return EXIT_OK


def config_list(given, environment):
    """Every registration that clients know here, as a table or as JSON."""
    only = find_client(given.get("client"))
    if only is None and "client" in given:
        raise UsageError("config: --client is one of %s" % ", ".join(one.name for one in CLIENTS))
    rows = survey(environment, given["state-dir"], own_relay(False), only)
    for row in rows:
        for name in ("registration", "record", "here"):
            row.pop(name)
    if given.get("json"):
        return say(canonical(rows) + "\n")
    lines = [("CLIENT", "SERVER", "KIND", "WRAPPED", "FILE")] + [list_words(row) for row in rows]
    lines = [[printable(word).replace("\n", " ") for word in line] for line in lines]
    return say("\n".join(map(str.rstrip, table_lines(lines) if rows else ["no client's file was found"])) + "\n")


def list_words(row):
    """The words of a row of the survey, for the table."""
    wrapped = WRAPPED_WORDS[bool(row["managed"]), bool(row["wrapped"])] if row["kind"] == "stdio" else "-"
    place = row["file"] + (" in %s" % row["project"] if row["project"] else "")
    return (row["client"], row["server"] if row["server"] is not None else "-",
            row["kind"] or ("?" if row["problem"] else "none"), wrapped,
            place + (": %s" % row["problem"] if row["problem"] else ""))


# -- doctor ------------------------------------------------------------------------

DOCTOR_USAGE = """usage: mcp-lazy doctor [--json] [--state-dir D]

Looks at this program, its folders, the clients' files and each registration; starts no server.
Exit status 1 if something is wrong; each line that says so names the command that mends it.
"""
RELAY_LIMIT_S = 5.0
LOG_TAIL_BYTES = 65536
LOG_TROUBLES = ("cannot ", "failed", "exceeded", "refused", "not dead")
Finding = record("Finding", "what good text mend",
                 "One thing looked at: is it good (None: only worth knowing)? and what mends it")


def doctor_command(words):
    """Look at everything that a registration needs; the exit status says whether something is wrong."""
    if set(words) & {"-h", "-help", "--help"}:
        return say(DOCTOR_USAGE)
    environment = current_environment()
    given, others = read_words(words, {"json": BOOLEAN, "state-dir": TEXT}, "doctor")
    if others:
        raise UsageError("doctor takes no words: %r" % others[0])
    named_dir, given["state-dir"] = given.get("state-dir"), state_dir_of(given, environment)
    findings = own_findings(given, environment) + client_findings(given, environment, named_dir)
    findings += orphan_findings(given["state-dir"])
    status = EXIT_FAILED if any(finding.good is False for finding in findings) else EXIT_OK
    if given.get("json"):
        report = [{name: getattr(finding, name) for name in finding.__slots__} for finding in findings]
        return say(canonical(report) + "\n") or status
    lines = []
    for finding in findings:
        mark = {True: "ok", False: "WRONG", None: "-"}[finding.good]
        lines.append("%-6s %s: %s" % (mark, finding.what, finding.text))
        lines += ["       mend it: " + finding.mend] if finding.mend else []
    return say("\n".join(printable(line).replace("\n", " ") for line in lines) + "\n") or status


def own_findings(given, environment):
    """What this program needs itself."""
    titled = set_title([b"mcp-lazy", b"doctor"])
    title = "is set in place" if titled else "is set by one more exec at each start"
    found = [Finding("mcp-lazy", True, "%s, Python %s at %s" % (VERSION, sys.version.split()[0], sys.executable), None),
             Finding("process title", True, title, None)]
    records = given["state-dir"]
    folders = (("recordings", recordings_folder(environment)), ("bytecode", bytecode_path(environment)),
               ("records", records), ("locks", records + "/locks"), ("backups", records + "/backups"))
    return found + [folder_finding(what, folder) for what, folder in folders]


def folder_finding(what, folder):
    """Is one of our folders there (None: there is no place for it), and is it ours alone?"""
    if not folder:
        return Finding(what, None, "there is no home: compiled at each start", None)
    facts = file_identity(folder)
    if facts is None and file_facts(folder) is None:  # else a symlink to nothing
        return Finding(what, None, "%s is not there yet" % folder, None)
    trouble, path = private_dir_trouble(folder, create=False), shell_word(folder)
    mend = "mv %s %s" % (path, shell_word(folder + ".old"))
    if trouble and "may write" in trouble:
        mend = "chmod go-w %s" % path
    elif not trouble and facts.mode & 0o700 != 0o700:
        trouble, mend = "its owner may not use it", "chmod u+rwx %s" % path
    text = folder + (", mode %04o" % facts.mode if facts else "")
    return Finding(what, False, "%s: %s" % (text, trouble), mend) if trouble else Finding(what, True, text, None)


def shell_word(text):
    from shlex import quote
    return quote(text)


def client_findings(given, environment, named_dir):
    """The files of clients, and each registration in them. named_dir: what --state-dir said, for what mends."""
    found, trials, program = [], RelayTrials(), own_words()
    for row in survey(environment, given["state-dir"], own_relay(False)):
        options = ["--client", row["client"], "--file", row["file"], "--server=" + (row["server"] or "")]
        options += ["--project", row["project"]] if row["project"] else []
        options += ["--state-dir", named_dir] if named_dir else []
        options += [] if is_relay(own_relay(False), None) else ["--relay", "/path/of/mcp-lazy"]
        where = "%s %s" % (row["client"], row["file"] if row["server"] is None else row["server"])
        if row["server"] is not None and (row["project"] or row["here"]):
            where += " in %s" % (row["project"] or row["file"])
        commands = [program + " config ", " " + " ".join(map(shell_word, options))]
        found += [Finding(where, *words) for words in row_findings(row, commands, trials, environment)]
    return found


def own_words():
    """How a person starts this program again, for a shell."""
    path = find_program("mcp-lazy")
    if path is not None and resolved_path(path) == resolved_path(sys.argv[0]):
        return "mcp-lazy"
    return " ".join(map(shell_word, own_command()))


def config_line(commands, *actions):
    """The command that a person may paste, or several. commands: what stands before the action and behind it."""
    return "; ".join(action.join(commands) for action in actions)


def orphan_findings(state_dir):
    """Records of registrations that are gone."""
    found = []
    for name, record in records_in(state_dir):
        try:
            client = find_client(record["client"])
            find_target(Target(client, record["config"], record.get("project"), record["server"], state_dir))
        except (NotThere, LazyError) as error:
            if isinstance(error, NotThere) or is_absent(record["config"]):
                text = "the record of %s in %s, which is not there any more" % (record["server"], record["config"])
                mend = "rm %s" % shell_word("%s/%s" % (state_dir, name))
                found.append(Finding("record %s" % name[:8], None, text, mend))
        except (ValueError, KeyError, TypeError, AttributeError):  # no record of ours
            pass
    return found


def row_findings(row, commands, trials, environment):
    """[(good, text, mend)] of one row of the survey."""
    if row["problem"]:
        mend = "put it right by hand, in %s" % row["file"]
        if type(row["record"]) is str:
            mend = "rm -r %s" % shell_word(row["record"])
        elif row["problem"].startswith("cannot read"):
            mend = "ls -ld %s" % shell_word(row["file"])
        return [(False, row["problem"], mend)]
    if row["kind"] != "stdio":
        return [(None, "%s, nothing to relay" % row["kind"] if row["kind"] else "no servers", None)]
    if not row["wrapped"]:
        if row["managed"]:
            return [(False, "is not wrapped any more", config_line(commands, "reapply"))]
        return [(None, "is not wrapped", None)]
    entry = row["registration"]
    if row["managed"] and not is_wrapped(entry, row["record"]):
        mend = config_line(commands, "unwrap", "unwrap --recover")
        return [(False, "starts another relay than the one that was put there", mend)]
    trouble = trials.trouble(row["relay"], may_start=row["managed"] or not row["here"])
    if trouble:
        mend = config_line(commands, "reapply") if row["managed"] else config_line(commands, "unwrap --recover") \
            if is_recoverable(entry, None) else "put the command back by hand, in %s" % row["file"]
        return [(False, "its relay %s %s" % (row["relay"], trouble), mend)]
    return [arguments_finding(row, entry, commands, environment)]


def arguments_finding(row, entry, commands, environment):
    """What the relay makes of a registration's arguments and variables; no value is told."""
    settings, mend = dict(environment), "put its arguments or variables right by hand, in %s" % row["file"]
    try:
        settings.update((filesystem_bytes(name), filesystem_bytes(value)) for name, value in (entry.env or {}).items())
        words = list(map(text_of, entry.args or ()))
        options = make_run(words, settings, False)[0]
    except UsageError as error:
        ours, env = row["record"]["managedEnv"] if row["managed"] else {}, entry.env or {}
        wrong = ["--unset-env " + shell_word(name) for name in ours if name in env and refusal({name: env[name]})]
        mend = config_line(commands, " ".join(["wrap"] + wrong)) if wrong else mend
        return False, "its relay refuses what it is given: %s" % str(error).partition("\n")[0].partition(": ")[0], mend
    except ValueError:
        return False, "it holds characters that no program can be given", mend
    if options is None:
        return False, "its relay only tells its version", mend
    good, text, mend = recording_finding(options, words)
    return good, "wrapped%s, %s" % ("" if row["managed"] else " by hand", text), mend


def recording_finding(options, words):
    """(good, what is known of the recording and the last error, what mends it) for a relay's options."""
    if any("$" in word or "{env:" in word for word in words):
        return True, "its recording was not looked for: the client puts variables into the arguments", None
    folder, key = options.cache_dir, options.name or file_key(*options.command[:2])
    facts = file_facts("%s/%s.json" % (folder, key))
    item = Stored(folder, key, facts) if facts else None
    log = file_tail(options.log_file, LOG_TAIL_BYTES) if options.log_file else b""
    wrong = [line for line in log.decode("utf-8", "replace").splitlines() if is_trouble(line)]
    error = "; last error: %s" % wrong[-1][:200] if wrong else ""
    if item is not None and item.problem:
        return False, "its recording cannot be used: %s%s" % (item.problem, error), "rm -r %s" % shell_word(item.path)
    text = "recorded %s ago" % age_text(wall_s() - item.recorded_s()) if item else "not recorded yet"
    return True, text + error, None


def is_trouble(line):
    """Does a line of a relay's log tell of something that went wrong?"""
    return any(word in line for word in LOG_TROUBLES) or "exited (" in line and "exited (exit status 0)" not in line


class RelayTrials:
    """Starts each relay once, to see whether it does."""

    def __init__(self):
        self._known, self._signals, self._stopped = {}, SignalPipe(), False

    def trouble(self, word, may_start):
        """None if a relay starts and ends with 0 for --version within 5 s, else what happened.

        may_start=False: look only. A file of the working folder may have come with a stranger's project.
        """
        path = find_program(word)
        if path is None:
            return "is not there, or not executable"
        if path[:1] != "/":
            return "has a relative path: which file it is depends on the folder that the client starts in"
        if path not in self._known and may_start:
            self._known[path] = self._start(path)
        return self._known.get(path)

    def _start(self, path):
        loop, processes, null, ended = Loop(), Processes(), open_null(2), []
        end_s = monotonic_s() + RELAY_LIMIT_S
        try:
            pid = processes.spawn([path, "--version"], (null, null, null))
            loop.watch(self._signals.fd, lambda: self._signalled(processes, ended))
            loop.set_timer("limit", end_s, lambda: processes.kill_group(pid, SIGKILL))
            while not ended and not self._stopped:
                loop.turn()
        except SpawnError as error:
            return "does not start: %s" % error
        finally:
            processes.close()
            loop.close()
            close_quietly(null)
        if self._stopped:
            raise LazyError("stopped by a signal")
        if monotonic_s() >= end_s:
            return "gave no answer within %g s" % RELAY_LIMIT_S
        return None if ended[0][1] == 0 else "does not start: %s" % describe_exit(ended[0][1])

    def _signalled(self, processes, ended):
        self._stopped = bool(self._signals.read() & set(STOP_SIGNALS))
        ended += processes.collect()


# -- hub ---------------------------------------------------------------------------

HUB_USAGE = """usage: mcp-lazy hub [--config FILE] [options]
       mcp-lazy hub check [--config FILE] [--cache-dir D] [--json] [NAME...]
       mcp-lazy hub import --client C [--file F] [--project DIR] [--server NAME]... [--output FILE [--merge] [--json]]

Serves all servers of a servers.json on stdin and stdout as one MCP server with four tools. The file: --config, the
variable LAZY_MCP_CONFIG, or servers.json in ~/.config/mcp-lazy or ~/.config/lazy-mcp.

  check   start each server once, record what it has, print a table; exit status 1 if one of them failed
  import  write a servers.json from the registrations of a client, to stdout or to a new file; --merge adds to one

  --request-timeout MS  limit for silence in a call (10000)
  --cache-dir D         folder of the recordings, if not the relay's
  --transport stdio     the only one of this version; --port, --host, --path, --auth-token and \
--max-payload-size are for http
"""
HUB_OPTIONS = {"config": TEXT, "cache-dir": TEXT, "request-timeout": TEXT, "transport": TEXT, "port": TEXT,
               "host": TEXT, "path": TEXT, "auth-token": TEXT, "max-payload-size": TEXT}


def hub_command(words):
    """`hub`: serve, check or import; the exit status."""
    if set(words) & {"-h", "-help", "--help"}:
        return say(HUB_USAGE)
    if words in (["--version"], ["-v"]):
        return say(VERSION + "\n")
    if words[:1] == ["check"]:
        return hub_check(words[1:])
    if words[:1] == ["import"]:
        return hub_import(words[1:])
    given, others = read_words(words, HUB_OPTIONS, "hub")
    if others:
        raise UsageError("hub takes no words: write %r into a servers.json (hub --help tells more)" % others[0])
    environment = current_environment()
    flags = {name: text for name, text in given.items() if name not in ("config", "cache-dir")}
    check_flags(flags)  # before a file is looked for (G1.4)
    try:
        path = hub_path(given.get("config"), environment)
        return run_hub(path, flags, environment, given.get("cache-dir") or recordings_folder(environment))
    except UsageError:
        raise
    except LazyError as error:  # the log's form: the file that says how is what is missing or wrong
        line = {"timestamp": iso_time(wall_s()), "level": "error", "message": str(error),
                "event": "service_start_error"}
        sys.stderr.write(canonical(line) + "\n")
        return EXIT_FAILED


# -- hub import --------------------------------------------------------------------

IMPORT_OPTIONS = {"client": TEXT, "file": TEXT, "project": TEXT, "server": LIST, "all": BOOLEAN, "output": TEXT,
                  "merge": BOOLEAN, "json": BOOLEAN, "state-dir": TEXT}
# Which variables a client puts into its texts, as groups of REFERENCE; one without an entry puts in none.
VARIABLES = {"claude": "plain default", "copilot": "plain default", "gemini": "plain default bare",
             "grok": "plain default bare", "qwen": "plain bare", "cursor": "env", "vscode": "env input",
             "windsurf": "env", "cline": "env", "opencode": "braces file"}
REFERENCE = (
    r"\$\{(?P<plain>\w+)\}|\$\{(?P<name>\w+):-(?P<default>[^}]*)\}|\$\{env:(?P<env>\w+)\}"
    r"|\{env:(?P<braces>\w+)\}|\$\{input:(?P<input>[^}]+)\}|\{file:(?P<file>[^}]+)\}|\$(?P<bare>[A-Za-z_]\w*)"
    r"|\$\{[^}]+\}")
LAUNCHERS = ("npx", "uvx", "bunx", "uv", "pipx", "python")
# What a hub has of a relay's options, for each server; the others here are of no use behind a hub.
RELAY_MEMBERS = {"start-timeout": "startTimeout", "stop-grace": "stopGrace", "call-timeout": "requestTimeout"}
SILENT_OPTIONS = frozenset("idle-stop idle-timeout-min stderr name fill verbose no-argv0".split()).union(RELAY_MEMBERS)
TAKEN_MEMBERS = frozenset((
    "type command args env environment url serverUrl httpUrl headers http_headers env_http_headers bearer_token_env_var"
    " cwd enabled disabled description path source transport enabled_tools disabled_tools startup_timeout_sec"
    " tool_timeout_sec").split())
REMOVALS = {"claude": "mcp remove -s user", "gemini": "mcp remove -s user", "qwen": "mcp remove -s user",
            "codex": "mcp remove", "grok": "mcp remove", "copilot": "mcp remove", "cline": "mcp uninstall"}


class Import:
    """Turns registrations into entries of a servers.json. notes: texts without values; failed: was one refused?"""
    __slots__ = ("entries", "notes", "failed", "_target", "_document", "_environment", "_is_used")

    def __init__(self, target, document, environment):
        self.entries, self.notes, self.failed, self._is_used = [], [], False, False
        self._target, self._document, self._environment = target, document, environment

    def take(self, name, found):
        """Add one registration, or note why it stays where it is."""
        client, project, first = self._target.client, self._target.project, len(self.notes)
        told = object_of(value_at(self._document.value, root_path(self._document, client, project) + (name,)))
        told = dict(told, **object_of(told.get("transport")))
        text = told.get("description")
        entry = {"name": name, "description": text if type(text) is str and text.strip() else (
            "%s, imported from %s" % (name, client.name))}
        try:
            if isinstance(found, LazyError) and not isinstance(found, Remote):
                raise found
            entry.update(self._remote(told) if isinstance(found, Remote) else self._local(found))
            entry.update({"cwd": self._text(told["cwd"], "cwd")} if told.get("cwd") else {})
            entry.update(codex_members(told))
            entry.update({"enabled": False} if told.get("enabled") is False or told.get("disabled") is True else {})
            self._lost("members", {key for key in set(told) - TAKEN_MEMBERS if told[key] not in ([], {}, ["*"], False)})
            self.entries.append(entry)
        except LazyError as error:
            self.failed |= not isinstance(error, NotOurs)
            self.notes.append("left out: %s" % error)
        self.notes[first:] = ["%s: %s" % (name, text) for text in self.notes[first:]]

    def _lost(self, what, names):
        self.notes += ["%s that a hub does not have: %s" % (what, ", ".join(sorted(names)))] if names else []

    def _remote(self, told):
        urls = [told[key] for key in ("url", "serverUrl", "httpUrl") if told.get(key)]
        if told.get("command") is not None or len(urls) != 1:
            raise LazyError("which of its command and urls is meant?")
        if told.get("type") in ("sse", "ws", "websocket"):
            raise NotOurs("a hub does not speak %s" % told["type"])
        given = dict(object_of(told.get("headers")), **object_of(told.get("http_headers")))
        headers = {key: self._text(value, "headers") for key, value in given.items()}
        headers.update((key, "${%s}" % name) for key, name in object_of(told.get("env_http_headers")).items())
        if told.get("bearer_token_env_var"):
            headers["Authorization"] = "Bearer ${%s}" % told["bearer_token_env_var"]
        return dict({"type": "remote", "url": self._text(urls[0], "url")}, **({"headers": headers} if headers else {}))

    def _local(self, found):
        """The members of a server that is started, without the relay that may stand in front of it."""
        target = self._target
        place = Target(target.client, target.path, target.project, found.name, target.state_dir)
        words, env, members = [found.command] + list(map(text_of, found.args or ())), found.env or {}, {}
        rest = behind_us(words, is_wrapped(found, checked_metadata(place, read_metadata_file(place))))
        while rest is not None and (rest[1][:1] == ["hub"] or not set(rest[1][:1]) & set(COMMANDS)):
            if rest[0][:8] == "lazy-mcp" or rest[1][:1] == ["hub"]:
                raise NotOurs("it starts a hub itself")
            words = self._behind_relay(rest, env, members)
            env, rest = {name: env[name] for name in env if name[:9] != "MCP_LAZY_"}, behind_us(words, False)
        first, self._is_used = len(self.notes), False
        expanded = [self._text(word, "command") for word in words]
        command = {"command": expanded, "expandCommand": True} if self._is_used else {"command": words}
        if not self._is_used:  # neither of the two puts anything in there
            self.notes[first:] = []
        env = {name: self._text(value, "env." + name) for name, value in env.items()}
        return dict(command, **members, **({"env": env} if env else {}))

    def _behind_relay(self, rest, env, members):
        """The command behind a relay; what the relay's options are for a hub goes into `members`."""
        own = {filesystem_bytes(name): filesystem_bytes(env[name]) for name in env if name[:9] == "MCP_LAZY_"}
        try:
            options, settings, values = make_run(rest[1], own, rest[0][:3] == "dsh")
        except UsageError as error:
            why = str(error).partition("\n")[0].partition(": ")[0]
            raise LazyError("its relay refuses what it is given: %s" % why) from None
        if options is None:
            raise LazyError("its relay only tells its version")
        usual = {one.name: parse_value(one, one.default) if one.default else None for one in OPTIONS}
        given = {name: value for name, value in values.items() if value != usual[name]}
        found = {to: max(1, given[name] // 10 ** 6) for name, to in RELAY_MEMBERS.items() if name in given}
        found.update({"idleStop": max(1, int(settings.idle_stop_s * 1000))} if settings.idle_stop_s else {})
        if given.get("stderr-log", "")[:1] == "/" or "stderr" in given:
            found["stderr"] = given.pop("stderr-log", "inherit")
        members.update(dict(found, **members))
        self._lost("options of its relay", set(given) - SILENT_OPTIONS)
        return options.argv

    def _text(self, text, member):
        """A text with the client's variables as a hub writes them."""
        import re
        if not isinstance(text, (str, bytes)):
            raise LazyError("%s is no text" % member)
        return re.sub(REFERENCE, lambda found: self._put(found, member), text_of(text))

    def _put(self, found, member):
        """What stands for one reference. A name that may be a piece of a password is not told."""
        kind, who = found.lastgroup, self._target.client.name
        name = found["name"] or kind and found[kind]
        is_set = bool(name and self._environment.get(filesystem_bytes(name)))
        is_theirs = kind in VARIABLES.get(who, "").split()
        if not is_theirs or kind == "bare" and not is_set:
            if is_theirs:
                self.notes.append("%s: a $NAME of a variable that is not set now stays as it is" % member)
            elif found[0][:2] == "${" or kind == "file":
                self.notes.append("%s: a hub takes a part of it for a variable or a file, %s does not" % (member, who))
            return found[0]
        self._is_used = True
        if kind == "file":
            is_whole = name[:1] == "/" or name[:2] == "~/"
            return "{file:%s}" % (name if is_whole else "%s/%s" % (self._target.folder, name))
        if kind == "default":
            how, what = ("set", "variable") if is_set else ("not set", "default")
            self.notes.append("%s: a hub has no defaults; as %s is %s, the %s stands there" % (member, name, how, what))
            return "${%s}" % name if is_set else found[kind]
        if kind == "input":
            name = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).upper()
            self.notes.append("%s: set the variable %s for the hub, %s asks for this value" % (member, name, who))
        return "${%s}" % name


def behind_us(words, is_ours):
    """(base name, the words behind it) where a command line starts this program or the older hub, else None."""
    at = 0
    if words[0].rpartition("/")[2].rstrip("0123456789.") in LAUNCHERS:
        at = next((at for at, word in enumerate(words) if at and word[:1] != "-" and word not in ("run", "tool")), 0)
    base = words[at].rpartition("/")[2].lower().replace("_", "-")
    return (base, words[at + 1:]) if is_ours or base.startswith(("mcp-lazy", "lazy-mcp", "dsh-lazy-mcp")) else None


def json_bytes(value, gap="\n"):
    """JSON for people; half of a surrogate pair comes out as its escape."""
    import json
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", gap).encode("utf-8", "backslashreplace")


def servers_text(entries):
    return json_bytes({"servers": entries}) + b"\n"


def merged(raw, path, entries):
    """(a servers.json with the entries whose names it lacks, these names); no other byte of it changes. LazyError."""
    document = read_document(raw, path, False)
    rows, table = value_at(document.value, ("servers",)), value_at(document.value, ("mcpServers",))
    if isinstance(rows, list) == isinstance(table, dict):
        raise LazyError("%s has neither a list `servers` nor an object `mcpServers` to add to" % path)
    known = table if rows is None else [object_of(row).get("name") for row in rows]
    new = [entry for entry in entries if entry["name"] not in known]
    if rows is None:
        forms = {entry["name"]: with_text_command(entry) for entry in new}
        edits = document.edits([(("mcpServers", name), {
            key: value if isinstance(value, (str, list, dict)) else json_bytes(value) for key, value in form.items()})
            for name, form in forms.items()])
        wanted = dict(document.value, mcpServers=dict(table, **json_document(json_bytes(forms)).value))
    else:
        spans = document.elements(("servers",))
        at = spans[-1][1] if spans else document.find(("servers",)).span[0] + 1
        line = raw[:spans[-1][0]].rpartition(b"\n")[2] if spans else b"    "
        gap = ("\r\n" if b"\r\n" in raw else "\n") + ("    " if line.strip() else line.decode("ascii"))
        text = b",".join(gap.encode("ascii") + json_bytes(entry, gap) for entry in new)
        edits = [((), at, at, b"," * bool(spans and new) + text, None)]
        wanted = dict(document.value, servers=rows + json_document(json_bytes(new)).value)
    result = spliced(raw, edits)
    if not same_value(read_document(result, path, False).value, wanted):
        raise LazyError("%s cannot be added to: import into a new file, and copy from that by hand" % path)
    return result, [entry["name"] for entry in new]


def with_text_command(entry):
    """An entry as it stands in `mcpServers`: without its name, the command as a text and its arguments."""
    form = {key: value for key, value in entry.items() if key != "name"}
    return dict(form, command=form["command"][0], args=form["command"][1:]) if "command" in form else form


def put_servers(target, named, entries, merge):
    """Write a new servers.json, or add to the one that is there; the names that are new in it. LazyError.

    `named` is the path as it was given: a new file is made by this name, never behind a link.
    """
    path, lock = target.path if merge else named, None
    try:
        if merge and file_identity(path) is not None:
            lock = take_lock(target, Interrupt())
            settle_leftovers(target)
            raw, facts = read_config(target)
            new, names = merged(raw, path, entries)
            if names:
                put_in_place(target, Found(raw, facts, None, None, None, None), new)
            return names
        private_dir_trouble(path.rpartition("/")[0], create=True)
        open(path, "x").close()  # now it is ours, whoever else makes one at this moment
        write_private(path, servers_text(entries))
    except JsonTextError as error:
        raise LazyError("%s: %s" % (path, error)) from None
    except FileExistsError:
        raise LazyError("%s is there already; --merge adds what it does not have" % path) from None
    except OSError as error:
        raise LazyError("cannot write %s: %s" % (path, error.strerror or error)) from None
    finally:
        if lock is not None:
            close_quietly(lock)
    return [entry["name"] for entry in entries]


def hub_import(words):
    """Write a servers.json from registrations, and tell what to put into the client instead; the exit status."""
    given, others = read_words(words, IMPORT_OPTIONS, "hub import")
    client, environment, output = find_client(given.get("client")), current_environment(), given.get("output")
    if client is None or others or not output and {"merge", "json", "output"} & set(given):
        raise UsageError("hub import takes --client, one of %s; with --output FILE, --merge and --json; no words" % (
            ", ".join(one.name for one in CLIENTS)))
    source = Target(client, file_of(given, environment), given.get("project"), "", state_dir_of(given, environment))
    document = read_document(read_config(source)[0], source.path, client.is_toml)
    found, work = registrations_of(document, client, source.project), Import(source, document, environment)
    for name in given.get("server", found):
        work.take(name, found.get(name) or NotThere("there is no such server in %s" % source.path))
    names, path = [entry["name"] for entry in work.entries], "/path/of/servers.json"
    if output and names:
        target = Target(client, absolute_path(output), None, "", source.state_dir)
        path, added = target.path, put_servers(target, absolute_path(output), work.entries, given.get("merge", False))
        work.notes += ["%s: is in %s already" % (name, path) for name in names if name not in added]
    work.notes += [] if names else ["%s: nothing was imported" % source.path]
    local = [entry["name"] for entry in work.entries if "url" not in entry]
    text = "%s: stays in %s, the hub of this version does not reach remote servers"
    work.notes += [text % (entry["name"], client.name) for entry in work.entries if "url" in entry]
    advice = import_advice(source, given.get("file"), local, path) if local else ""
    status = EXIT_FAILED if work.failed or not names else EXIT_OK
    sys.stderr.write("".join("mcp-lazy: %s\n" % printable(note).replace("\n", " ") for note in work.notes))
    if given.get("json"):
        report = {"client": client.name, "from": source.path, "file": path, "servers": names, "notes": work.notes}
        return say(canonical(dict(report, instead=advice)) + "\n") or status
    sys.stderr.write(advice)
    return status if output or not names else say(servers_text(work.entries).decode("utf-8")) or status


def codex_members(told):
    """What Codex says of tools and times, as the hub says it; a tool that was blocked must not become callable."""
    only, never, found = told.get("enabled_tools"), told.get("disabled_tools"), {}
    rules = [{"pattern": name, "action": "allow"} for name in only or () if type(name) is str]
    rules += [{"pattern": name, "action": "deny"} for name in never or () if type(name) is str]
    if isinstance(only, list) or rules:
        found["permissions"] = {"default": "deny" if isinstance(only, list) else "allow", "rules": rules}
    for name, member in (("startup_timeout_sec", "startTimeout"), ("tool_timeout_sec", "requestTimeout")):
        if type(told.get(name)) in (int, float) and told[name] > 0:
            found[member] = max(1, int(told[name] * 1000))
    return found


def import_advice(source, file, names, path):
    """What a person has to put into the client's file instead of these servers."""
    client, own, root = source.client, own_relay(False), ".".join(source.client.root)
    seen = program_stat(own)
    words = ([own] if seen and seen[2] else own_command()) + ["hub", "--config", path]
    entry = {"command": words[0], "args": words[1:]}
    if client.shape == ARRAY:
        entry = {"type": "local", "command": words, "enabled": True}
    elif client.name in ("claude", "vscode", "cline", "copilot"):
        entry["type"] = "stdio"
    if client.name == "copilot":
        entry.update(type="local", tools=["*"])
    text = json_bytes({root: {"hub": {"transport": entry} if client.shape == LOWER else entry}})
    if client.is_toml:
        command, *args = [json_bytes(word) for word in words]
        text = b"[%s.hub]\ncommand = %s\nargs = [%s]" % (root.encode("ascii"), command, b", ".join(args))
    remove = "  %s, from %s" % (", ".join(names), root)
    if client.name in REMOVALS and not file and not source.project:
        remove = "\n".join("  %s %s %s" % (client.name, REMOVALS[client.name], shell_word(name)) for name in names)
    where = "%s%s" % (source.path, ", project %s" % source.project if source.project else "")
    return printable("Put this into %s:\n\n%s\n\nand take the others out:\n%s\nThen restart or reconnect %s.\n"
                     "mcp-lazy hub check --config %s tries all of them.\n" % (
                         where, text.decode("utf-8"), remove, client.name, shell_word(path)))


# -- hub check ---------------------------------------------------------------------

CHECKS_AT_ONCE, REASON_CHARACTERS = 4, 300


class HubCheck(Hub):
    """A hub that nobody talks to, which visits servers once. rows: {upstream: what was found, {} meanwhile}."""
    __slots__ = ("rows", "_progress", "_has_warned")

    def __init__(self, config, environment, cache_dir, streams):
        super().__init__(HubFiles(config.path, environment, {}), config, cache_dir, (streams, SignalPipe()))
        streams.restore()
        self.loop.watch(0)
        self.log, self.rows, self._has_warned = HubLog(lambda raw: None, config.log, config.secrets), {}, False
        self._progress = Progress(self.loop, config.path.rpartition("/")[2])

    def advice(self):
        return "edit %s" % self.config.path

    def reload(self):  # a hangup is the end here
        self.leave(0)

    def warn(self, text):
        self._has_warned = True
        self._progress.put(("mcp-lazy: %s\n" % text).encode("utf-8", "replace"))

    def visit(self, names):
        """The rows of these servers; no process is left behind it. LazyError if a signal ended it."""
        self.rows = {upstream: None for upstream in self.upstreams.values() if upstream.name in names}
        waiting = iter(list(self.rows))
        workers = [self.tasks.start(self._work(waiting)) for _ in range(CHECKS_AT_ONCE)]
        try:
            while not self._over and (self._leaving or not all(task.done for task in workers)):
                self.loop.turn()
        finally:
            self._progress.end()
            self.processes.wait_for_all(0)
            self.processes.close()
            self.loop.close()
        if self._leaving:
            raise LazyError("stopped by a signal")
        for worker in workers:
            if worker.error is not None:
                raise worker.error
        return [dict(row, server=upstream.name) for upstream, row in self.rows.items()]

    async def _work(self, waiting):
        for upstream in waiting:
            if not self._leaving:
                self._note(upstream, {})
                self._note(upstream, await self._visit(upstream))

    def _note(self, upstream, row):
        self.rows[upstream] = row
        under_way = ", ".join(one.name for one, row in self.rows.items() if row == {})
        done = sum(map(bool, self.rows.values()))
        self._progress.tell("%d of %d done, now %s" % (done, len(self.rows), under_way or "the end"))

    async def _visit(self, upstream):
        """What there is to tell of one server, which is stopped then."""
        begin_s, row = monotonic_s(), {"commands": None, "ms": None}
        try:
            before = self._recorded(upstream)
            session = await upstream.live()
            for method in ["tools/list"] + self._forwarded(upstream):
                await listing(upstream, session, method)
            row.update(commands=len(upstream.commands()), ms=int((monotonic_s() - begin_s) * 1000))
            await upstream.stop()
            row.update(state="ok", reason=await self._news(upstream, before))
        except HubError as error:
            state = upstream.state if upstream.state in ("error", "unsupported") else FAILING_UP
            await upstream.stop()
            row.update(state=state, reason=error_words(error, self.secrets()))
        return row

    def _forwarded(self, upstream):
        """The lists that the hub passes on to its client, and that this server has."""
        wanted = ["prompts/list"] if upstream.server.forward_prompts else []
        wanted += ["resources/list", "resources/templates/list"] if self.config.resources else []
        return [method for method in wanted if upstream.catalogue.pages(method) != []]

    def _recorded(self, upstream):
        """The recorded Answer to `tools/list`, None if there is none."""
        if not self.cache_dir or upstream.server.argv is None:
            return None
        return newest_answer(load_store(upstream.driver().options)[0].recording.entries, hub_keys({}), "tools/list")

    async def _news(self, upstream, before):
        """What is recorded now, compared with `before`. HubError if nothing is."""
        if not self.cache_dir:
            return "not recorded, as cache.strategy is none"
        end_s, now = monotonic_s() + LOCK_GIVE_UP_S, self._recorded(upstream)
        while now is None and monotonic_s() < end_s and not self._has_warned:  # another process has the lock
            await self.tasks.sleep(LOCK_RETRY_S)
            now = self._recorded(upstream)
        if now is None:
            raise HubError("what it has could not be recorded in %s" % self.cache_dir, "DISCOVERY_FAILED")
        if before is None or now.pages == before.pages:
            return "recorded" if before is None else "as recorded %s ago" % age_text(wall_s() - before.at_ms / 1000)
        old, new = [{tool["name"] for tool in commands_of(answer.pages)} for answer in (before, now)]
        return "recorded anew: %d new, %d gone" % (len(new - old), len(old - new))


def hub_check(words):
    """Start each server of a servers.json once, record what it has, print a table; the exit status."""
    given, names = read_words(words, {"config": TEXT, "cache-dir": TEXT, "json": BOOLEAN}, "hub check")
    environment, streams = current_environment(), StandardStreams()
    config = load_hub_config(hub_path(given.get("config"), environment), environment, {})
    known = [server.name for server in config.servers]
    for name in names:
        if name not in known:
            raise LazyError("%s has no server %r; it has: %s" % (config.path, name, ", ".join(known)))
    sys.stderr.write("".join("mcp-lazy: %s\n" % warning for warning in config.warnings))
    check = HubCheck(config, environment, given.get("cache-dir") or recordings_folder(environment), streams)
    rows = check.visit(names or known)
    status = EXIT_OK if all(row["state"] in ("ok", "unsupported") for row in rows) else EXIT_FAILED
    if given.get("json"):
        return say(canonical(rows) + "\n") or status
    lines = [("SERVER", "STATE", "COMMANDS", "TIME", "REASON")]
    for row in rows:
        count, took = ("-", "-") if row["ms"] is None else (str(row["commands"]), "%d ms" % row["ms"])
        lines.append((row["server"], row["state"], count, took, row["reason"][:REASON_CHARACTERS]))
    lines = [[printable(word).replace("\n", " ") for word in line] for line in lines]
    return say("\n".join(map(str.rstrip, table_lines(lines))) + "\n") or status

# ============================================================================
# L15 CLI - checks, help, demo; the only sys.exit                [I/O, cold]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L2 L3 L4 L6 L8b L8c L9 L9b L14b
# Used by: -
# Owns:   usage, own_command_line, KNOWN_CLIENTS, read_plan, check_command, demo_command
# Never:  imports argparse (8 ms)
# Tests:  tests/test_cli.py, tests/test_check.py, tests/test_demo.py
# ----------------------------------------------------------------------------
# Theory: everything but relaying: what a person types. None of it is loaded by a relay.
# Results go to stdout as a table or as one JSON document, reasons to stderr in a line.
# ----------------------------------------------------------------------------
def usage():
    """The option list."""
    lines = ["usage: mcp-lazy [options] [--] COMMAND [ARG...]",
             "       mcp-lazy --check [options] [--] COMMAND [ARG...]",
             "       mcp-lazy config wrap | reapply | unwrap | status | watch | list",
             "       mcp-lazy hub [--config FILE] | check | import",
             "       mcp-lazy cache list | show | check | clear | prune",
             "       mcp-lazy demo | doctor | paths | help", "", "options:"]
    for option in OPTIONS:
        value = "" if option.kind == BOOLEAN else " " + option.kind.upper()
        default = " (%s)" % option.default if option.default not in ("", "false") else ""
        lines.append("  --%-28s %s%s" % (option.name + value, option.help, default))
    lines.append("Each option but %s has a variable: MCP_LAZY_ and its name, as MCP_LAZY_IDLE_STOP." % (
        ", ".join(WITHOUT_VARIABLE)))
    lines.append("The check also reads MCP_LAZY_CHECK_INITIALIZE (params of its handshake)"
                 " and MCP_LAZY_CHECK_BEFORE (probes).")
    return "\n".join(lines) + "\n"


def own_command_line(word, words):
    """Run one of our own commands; the exit status."""
    command = {"help": help_command, "paths": paths_command, "demo": demo_command, "cache": cache_command,
               "config": config_command, "doctor": doctor_command, "hub": hub_command}.get(word)
    if command is None:
        raise UsageError("the command %s is not part of version %s; a server of that name starts with:"
                         " mcp-lazy -- %s" % (word, VERSION, word))
    return command(words)


def paths_command(words):
    """Where files go, by the variables of this moment; makes nothing."""
    if words:
        raise UsageError("paths takes no words")
    environment = current_environment()
    state, log_path = dsh_paths("NAME", environment)
    config_dir = user_config_dir(environment)
    rows = (("recordings", recordings_folder(environment)),
            ("bytecode", bytecode_path(environment) or "none: compiled at each start"),
            ("records of config", config_dir + "/mcp-lazy/registrations" if config_dir else "none: give --state-dir"),
            ("with --name: recording", state + "/NAME.json"), ("with --name: log", log_path))
    return say("".join("%-23s %s\n" % row for row in rows))


def help_command(words):
    if words:
        raise UsageError("help takes no words")
    return say(usage())


# -- check -------------------------------------------------------------------------

FORMS = '"elicitation":{"form":{},"url":{}}'
APPS = '"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}'
CLAUDE = ('{"name":"claude-code","title":"Claude Code","version":"2.1.332",'
          '"description":"Anthropic\'s agentic coding tool","websiteUrl":"https://claude.com/claude-code"}')
CODEX = '{"name":"codex-mcp-client","title":"Codex","version":"0.171.0"}'


def _info(name, version):
    return '{"name":"%s","version":"%s"}' % (name, version)


def _plain(name, version, probes=False):
    return probes, "2025-11-25", ((_info(name, version), "{}"),)


# What clients say at their start, as captured: do they probe first, the version they ask for, and clientInfo with
# capabilities of each kind of start, health check before session. An SDK without a number is its newest release.
KNOWN_CLIENTS = {
    "claude-code": (True, "2025-11-25", ((CLAUDE, '{"roots":{"listChanged":true},%s}' % FORMS),)),
    "codex": (False, "2025-06-18", ((CODEX, "{%s}" % FORMS),
                                    (CODEX, '{"experimental":{"codex/auth-change":{}},%s}' % FORMS))),
    "gemini": (False, "2025-06-18", ((_info("mcp-test-client", "0.0.1"), "{}"),
                                     (_info("gemini-cli-mcp-client", "0.61.0"), '{"roots":{"listChanged":true}}'))),
    "opencode": (False, "2025-11-25", ((_info("opencode", "1.18.33"), '{"roots":{}}'),)),
    "copilot": (True, "2025-11-25", ((_info("copilot-cli", "1.0.102"), '{"sampling":{},%s}' % FORMS),)),
    "cline": (False, "2024-11-05", ((_info("@cline/core", "0.0.0"), "{}"),)),
    "grok": (False, "2025-11-25", ((_info("grok-shell", "1.0.41"), "{%s}" % APPS), (
        _info("grok-shell", "1.0.41"), '{%s,"elicitation":{"form":{"schemaValidation":true},"url":{}}}' % APPS))),
    "qwen": (False, "2025-11-25", ((_info("mcp-test-client", "0.0.1"), "{%s}" % APPS),
                                   (_info("qwen-cli-mcp-client", "0.0.1"), '{%s,"roots":{}}' % APPS))),
    "continue": _plain("continue-cli-client", "1.0.0"),
    "pi": (False, "2025-11-25", ((_info("pi-mcp", "1.0.0"), "{%s}" % APPS),)),
    "mcporter": _plain("mcporter", "0.12.3"),
    "inspector": (False, "2025-11-25", ((
        _info("inspector-cli", "2.12.0"), '{"roots":{"listChanged":true},"extensions":'
        '{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/skills":{}}}'),)),
    "fastmcp": _plain("fastmcp", "4.2.3", probes=True),
    "py-sdk": _plain("mcp", "0.1.0", probes=True), "py-sdk-1": _plain("mcp", "0.1.0"),
    "py-sdk-2": _plain("mcp", "0.1.0", probes=True),
    "ts-sdk": _plain("ts2", "1", probes=True), "ts-sdk-1": _plain("ts1", "1"),
    "ts-sdk-2": _plain("ts2", "1", probes=True),
}
CHECK_START = ('{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":%s}'
               % _info("mcp-lazy-check", VERSION)).encode("ascii")
MODERN_VERSION = b"2026-07-28"


def read_plan(client, environment):
    """The Plan of a check: a known client's, or what the two variables say (B2). UsageError names the variable."""
    if client is not None:
        probes, version, starts = KNOWN_CLIENTS[client]
        form = '{"protocolVersion":"%s","capabilities":%s,"clientInfo":%s}'
        handshakes = [(form % (version, capabilities, info)).encode("ascii") for info, capabilities in starts]
        return Plan([probe_params(members(handshakes[-1]))] if probes else [], handshakes, client)
    handshake = one_line(environment.get(b"MCP_LAZY_CHECK_INITIALIZE") or CHECK_START)
    parts = read_start(handshake, "MCP_LAZY_CHECK_INITIALIZE")
    before = environment.get(b"MCP_LAZY_CHECK_BEFORE")
    probes = [probe_params(parts)] if before is None else read_probes(one_line(before), "MCP_LAZY_CHECK_BEFORE")
    return Plan(probes, [handshake], None)


def one_line(raw):
    """JSON as it may stand in a line: a raw line feed is between its tokens, never inside a string."""
    return raw.strip(WHITESPACE).replace(b"\n", b" ").replace(b"\r", b" ") or b" "


def probe_params(parts):
    """The raw params of a probe for the raw members of a handshake's params (B4)."""
    return b'{"_meta":{"%s":"%s","%s":%s,"%s":%s}}' % (
        VERSION_KEY.encode("ascii"), MODERN_VERSION, CLIENT_KEY.encode("ascii"), parts["clientInfo"],
        CAPABILITIES_KEY.encode("ascii"), parts["capabilities"])


def read_start(raw, where):
    """The raw members of the params of `initialize`. UsageError."""
    try:
        parts, told = members(raw), parse_json(raw)
    except ValueError:
        raise UsageError("%s is not a JSON object" % where) from None
    info = told.get("clientInfo")
    texts = [told.get("protocolVersion"), member_of(info, "name"), member_of(info, "version")]
    try:
        entry_key("", told.get("capabilities"), "")
    except ValueError as error:
        raise UsageError("%s: %s" % (where, error)) from None
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(told.get("capabilities"), dict):
        raise UsageError("%s must have protocolVersion, an object capabilities, and clientInfo with name and version"
                         % where)
    return parts


def read_probes(raw, where):
    """The raw params of each probe of a JSON array. UsageError."""
    try:
        items = parse_json(raw)
    except ValueError:
        raise UsageError("%s is not a JSON array" % where) from None
    if not isinstance(items, list) or not all(
            member_of(item, "method") == DISCOVER and isinstance(item.get("params"), dict) for item in items):
        raise UsageError('%s must be an array of {"method":"%s","params":{...}}' % (where, DISCOVER))
    return [members(item)["params"] for item in elements(raw)]


def check_client(given):
    """UsageError for options of --check that stand alone, and for a client that nobody knows."""
    for name in ("as", "json-errors"):
        if name in given and not given.get("check"):
            raise UsageError("%s goes with --check only" % name)
    if given.get("as", next(iter(KNOWN_CLIENTS))) not in KNOWN_CLIENTS:
        raise UsageError("as: %r is no client that is known here; these are: %s" % (
            given["as"], ", ".join(KNOWN_CLIENTS)))


def check_command(options, settings, plan, json_errors):
    """Run one check, and tell what it found in one line of JSON."""
    start_s, streams = monotonic_s(), StandardStreams()
    try:
        store, trouble = load_store(options)
        if trouble:
            raise CheckFailed("saving cache: %s" % trouble, "saving")
        check = Check(options, settings, plan, store.recording)
        check.run(store)
    except CheckFailed as error:
        if json_errors:
            say(report_text({"ok": False, "error": str(error), "stage": error.stage}))
        raise LazyError("check failed: %s" % error) from None
    except Exception as error:  # the server is dead by now
        raise Bug("internal error, please report it: %s" % error_place(error)) from error
    finally:
        streams.restore()
    prune_daily(options.cache_dir)
    report = check_report(check.findings.eras, plan, options, monotonic_s() - start_s)
    return say(report_text(dict(report, cachePath=absolute_path(store.path))))


def check_report(eras, plan, options, took_s):
    """What a check tells (B13), but for the file's path."""
    main = eras.get("legacy") or eras["modern"]
    info = object_of(parse_json(main.server_info))
    report = {
        "beforeRequests": len(plan.probes), "durationMs": int(took_s * 1000), "lists": main.lists, "ok": True,
        "eras": [era for era in ("modern", "legacy") if era in eras], "protocolVersion": main.version,
        "scope": [word for word, _ in options.scope], "version": VERSION,
        "serverInfo": {name: info[name] for name in ("name", "version") if name in info}}
    return report if plan.client is None else dict(report, **{"as": plan.client})


def report_text(value):
    """One line of JSON: sorted, ASCII, `<>&` escaped (B13)."""
    text = canonical(value)
    for c in "<>&":
        text = text.replace(c, "\\u%04x" % ord(c))
    return text + "\n"


# -- demo --------------------------------------------------------------------------

DEMO_LIMIT_S, DEMO_START_S, DEMO_IDLE_S = 10.0, 0.25, 0.6
EXAMPLE_TOOLS = (
    ("echo", "Returns its message.", '{"message":{"type":"string"}}', '["message"]'),
    ("add", "Adds two numbers.", '{"a":{"type":"number"},"b":{"type":"number"}}', '["a","b"]'),
    ("wait", "Answers after so many seconds.", '{"seconds":{"type":"number"}}', '["seconds"]'),
)
EXAMPLE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def example_server(delay_s):
    """A small MCP server on stdin and stdout: tools, prompts, resources, logging. For the demo and for tests."""
    pause(delay_s)
    for line in sys.stdin.buffer:
        env = read_envelope(line)
        if env.kind != REQUEST:
            continue
        try:
            params = env.params(line)
            result = example_answer(env.method, params if isinstance(params, dict) else {})
            answer = result_line(env.id_raw, result.encode("ascii"))
        except (PeerError, KeyError, TypeError, ValueError) as error:
            code = getattr(error, "rpc_code", -32602)
            answer = error_line(env.id_raw, error_object(code, str(error) or "invalid params"))
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        except OSError:  # nobody reads any more
            exit_now(EXIT_OK)
    return EXIT_OK


def example_answer(method, params):
    """The result (JSON text) of one request to the example server. PeerError if there is none."""
    if method == "initialize":
        version = params.get("protocolVersion")
        return ('{"protocolVersion":%s,"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{},'
                '"logging":{}},"serverInfo":{"name":"mcp-lazy-example","version":"%s"},"instructions":"An example."}'
                % (encode_basestring_ascii(version if version in EXAMPLE_VERSIONS else EXAMPLE_VERSIONS[-1]), VERSION))
    if method == "tools/list":
        tools = ['{"name":"%s","description":"%s","inputSchema":{"type":"object","properties":%s,"required":%s}}' % tool
                 for tool in EXAMPLE_TOOLS]
        return '{"tools":[%s]}' % ",".join(tools)
    if method == "prompts/list":
        return '{"prompts":[{"name":"greet","description":"A greeting."}]}'
    if method == "resources/list":
        return '{"resources":[{"uri":"example://readme","name":"readme","mimeType":"text/plain"}]}'
    if method == "resources/templates/list":
        return '{"resourceTemplates":[]}'
    if method in ("ping", "logging/setLevel"):
        return "{}"
    if method == "tools/call":
        return '{"content":[{"type":"text","text":%s}]}' % encode_basestring_ascii(
            example_call(params["name"], params.get("arguments") or {}))
    raise PeerError("Method not found", METHOD_NOT_FOUND)


def example_call(tool, arguments):
    if tool == "echo":
        return str(arguments["message"])
    if tool == "add":
        return str(arguments["a"] + arguments["b"])
    if tool == "wait":
        pause(min(float(arguments["seconds"]), 60.0))
        return "waited"
    raise PeerError("Unknown tool", -32602)


def children_of(pid):
    """[(pid, resident KiB)] of the processes below one, the guard left out; Linux only, [] elsewhere."""
    found = []
    for child in child_pids(pid):
        if child_title(child)[:2] != [b"sh", b"-c"]:
            found.append((child, resident_kib(child)))
    return found


class Demo:
    """Sessions of a scripted client with a relay in front of the example server, as a timeline."""

    def __init__(self, folder):
        self.loop, self.processes, self.rows, self.start_s = Loop(), Processes(), [], monotonic_s()
        self.tasks = Tasks(self.loop)
        self.environment = {name: value for name, value in own_environment().items() if name[:9] != b"MCP_LAZY_"}
        self.command = own_command() + [
            "--cache-dir", folder, "--idle-stop", "%dms" % (DEMO_IDLE_S * 1000), "--"] + own_command() + [
            "demo", "--server", "--delay", str(DEMO_START_S)]

    def note(self, phase, text, took_s, session=None):
        """One row: what was seen, how long it took, and the processes and memory at that moment."""
        servers = children_of(session.pid) if session else []
        self.rows.append({
            "at_ms": round((monotonic_s() - self.start_s) * 1000), "phase": phase, "what": text,
            "took_ms": round(took_s * 1000, 1), "server_processes": len(servers),
            "relay_mib": round(resident_kib(session.pid) / 1024, 1) if session else 0.0,
            "server_mib": round(sum(kib for _, kib in servers) / 1024, 1)})

    async def timed(self, awaitable):
        start_s = monotonic_s()
        value = await awaitable
        return value, monotonic_s() - start_s

    async def open(self, phase):
        """A session up to its listing, as every client begins."""
        start_s = monotonic_s()
        session = Session(self.loop, self.processes, self.command, self.environment)
        await session.request("initialize", b'{"protocolVersion":"2025-06-18","capabilities":{},'
                                            b'"clientInfo":{"name":"demo","version":"1"}}')
        self.note(phase, "start to handshake answered", monotonic_s() - start_s, session)
        session.notify("notifications/initialized")
        _, took_s = await self.timed(session.request("tools/list"))
        self.note(phase, "tools/list answered", took_s, session)
        return session

    async def close(self, session, phase):
        start_s = monotonic_s()
        below = [pid for pid, _ in children_of(session.pid)]
        session.close_input()
        while not self.processes.collect() or any(resident_kib(pid) for pid in below):
            await self.tasks.sleep(0.002)
        session.close()
        self.note(phase, "input closed, relay and server gone", monotonic_s() - start_s)

    async def until(self, condition):
        while not condition():
            await self.tasks.sleep(0.005)

    async def run(self):
        session = await self.open("cold")
        await self.close(session, "cold")
        session = await self.open("warm")
        call = b'{"name":"add","arguments":{"a":20,"b":22}}'
        result, took_s = await self.timed(session.request("tools/call", call))
        if b'"42"' not in result:
            raise LazyError("the example server answered %r" % result)
        self.note("wake", "tools/call started the server and was answered", took_s, session)
        _, took_s = await self.timed(session.request("tools/call", call))
        self.note("wake", "tools/call to the running server", took_s, session)
        start_s = monotonic_s()
        await self.until(lambda: not children_of(session.pid))
        self.note("idle", "silence, then the server was stopped", monotonic_s() - start_s, session)
        _, took_s = await self.timed(session.request("tools/list"))
        self.note("idle", "tools/list, still answered", took_s, session)
        await self.close(session, "end")


def demo_command(words):
    """The timeline of a cold and a warm session, a wake, an idle stop and the end; --json for machines."""
    if words[:1] == ["--server"]:
        if words[1:2] not in ([], ["--delay"]) or len(words) not in (1, 3):
            raise UsageError("demo --server takes --delay SECONDS")
        try:
            return example_server(float(words[2]) if len(words) == 3 else 0.0)
        except ValueError:
            raise UsageError("demo --server: %r is not a number of seconds" % words[2]) from None
    if words not in ([], ["--json"]):
        raise UsageError("demo takes --json, or --server [--delay SECONDS]")
    folder = make_temporary_dir("mcp-lazy-demo-")
    demo, signals = Demo(folder), SignalPipe()

    def stop():
        if signals.read() & set(STOP_SIGNALS):
            raise LazyError("stopped")

    demo.loop.watch(signals.fd, stop)
    try:
        demo.tasks.run(demo.tasks.deadline(DEMO_LIMIT_S, demo.run(), LazyError("the demo took too long")))
    finally:
        demo.processes.wait_for_all(0)
        demo.processes.close()
        remove_dir(folder)
    return say(demo_report(demo.rows, bool(words)))


def demo_report(rows, as_json):
    if as_json:
        import json
        return json.dumps({"version": VERSION, "rows": rows}) + "\n"
    lines = ["An example server (it needs %d ms to start) behind mcp-lazy %s:" % (DEMO_START_S * 1000, VERSION), "",
             "    at ms  phase  took ms  server processes  relay MiB  server MiB  what"]
    for row in rows:
        lines.append("%(at_ms)9d  %(phase)-5s %(took_ms)8.1f %(server_processes)17d %(relay_mib)10.1f"
                     " %(server_mib)11.1f  %(what)s" % row)
    lines += [
        "", "cold: nothing was recorded, the server is started and asked. warm: answered from the recording,",
        "no server process. wake: a call needs the server. idle: it is stopped again, the client notices nothing."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
