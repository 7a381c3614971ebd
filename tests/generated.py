"""Seeded JSON for property tests: values, several spellings of one value, and an exact oracle.

    rng = seeded("name")                prints the seed; MCP_LAZY_SEED=N takes another one
    value = any_value(rng)              a Python value; numbers are Decimal
    spell(rng, value)                   one of its many JSON texts (str)
    exact(text)                         what `json` reads, in a form where == is equality of JSON values
"""

import json
import os
import random
from decimal import Decimal

CHARACTERS = "ab{}[]\":,\\/ \t\n\r\0\x0b\x0c\x1f\x7f\u0085\u2028\u2029\u00e9\u20ac\U0001f600\ud800"
WORDS = ("", "id", "method", "params", "result", '"id":1', '{"id":2}', '"method":"x"', "\\", "\\\"", "jsonrpc", "2.0", "}\n{", "\\u0069d")
NUMBERS = ("0", "-0", "1", "-1", "10", "100", "1.5", "0.1", "-0.25", "9007199254740993", "9007199254740992", "1e400", "1e-400",
           "123456789012345678901234567890", "0.1000000000000000055511151231257827", "4.9e-324", "1.7976931348623157e308")


def seeded(name):
    seed = "%s/%s" % (os.environ.get("MCP_LAZY_SEED", "1"), name)
    print("seed", seed)
    return random.Random(seed)


def any_string(rng):
    if rng.random() < 0.4:
        return rng.choice(WORDS)
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(8)))


def any_text(rng):
    """A string that is sometimes one of few, so that it may meet itself."""
    return rng.choice("ab") + any_string(rng)


def any_value(rng, depth=3):
    kind = rng.randrange(7 if depth else 5)
    if kind < 3:
        return (None, True, False)[rng.randrange(3)] if kind == 0 else any_string(rng) if kind == 1 else Decimal(rng.choice(NUMBERS))
    if kind < 5:
        return Decimal(rng.randrange(-2000, 2000)) / (10 ** rng.randrange(3))
    if kind == 5:
        return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {any_string(rng): any_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def spell(rng, value, spaces=True):
    """One JSON text of a value: space, order of members, escapes and number spellings at random."""
    def gap():
        return "".join(rng.choice(" \t\r") for _ in range(rng.randrange(3))) if spaces and rng.random() < 0.3 else ""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return spell_string(rng, value)
    if isinstance(value, Decimal):
        return spell_number(rng, value)
    if isinstance(value, list):
        return "[%s%s]" % (gap(), ",".join(gap() + spell(rng, item, spaces) + gap() for item in value))
    names = list(value)
    rng.shuffle(names)
    pairs = [(name, value[name]) for name in names]
    if names and rng.random() < 0.1:  # a second member of a name: the last one counts
        pairs.insert(0, (rng.choice(names), any_value(rng, 0)))
    return "{%s%s}" % (gap(), ",".join(
        gap() + spell_string(rng, name) + gap() + ":" + gap() + spell(rng, item, spaces) + gap() for name, item in pairs))


def spell_string(rng, text):
    if rng.random() < 0.3:
        return json.dumps(text)
    out = ['"']
    for c in text:
        if c in '"\\':
            out.append("\\" + c if rng.random() < 0.8 else "\\u%04X" % ord(c))
        elif c < " " or "\ud800" <= c <= "\udfff" or rng.random() < 0.1 and c <= "\uffff":
            out.append(rng.choice(("\\u%04x", "\\u%04X")) % ord(c))
        else:
            out.append("\\/" if c == "/" and rng.random() < 0.5 else c)
    return "".join(out) + '"'


def spell_number(rng, value):
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0") or "0"
    added = 0 if text == "0" else rng.choice((0, 0, 0, 1, 3))
    text, exponent = text + "0" * added, exponent - added
    plain = exponent == 0 or text == "0"
    if 0 <= exponent <= 30 and rng.random() < 0.6:
        text, exponent, plain = (text + "0" * exponent if text != "0" else "0"), 0, True
    if -30 <= exponent < 0 and rng.random() < 0.6:
        text = text.rjust(-exponent + 1, "0")
        text, exponent, plain = text[:exponent] + "." + text[exponent:], 0, True
    if not plain or rng.random() < 0.2:
        if "." not in text and rng.random() < 0.3:
            text += ".0"
        text += rng.choice(("e%d", "E%d", "e%+d", "E%+03d")) % exponent
    return "-" * sign + text


def exact(text):
    """The value that `json` reads, with every number exact and no two types equal."""
    return _tagged(oracle(text, parse_int=Decimal, parse_float=Decimal))


def oracle(text, **more):
    """What `json` reads, without the constants (NaN, Infinity) that it takes beyond the standard."""
    return json.loads(text, parse_constant=_refuse, **more)


def _refuse(text):
    raise ValueError(text)


def _tagged(value):
    if isinstance(value, dict):
        return {name: _tagged(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    return (type(value).__name__, value)
