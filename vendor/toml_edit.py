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
