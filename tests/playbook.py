"""Transcripts of the engine: `Playbook(engine()) >> event << effect << effect ... ` and `.check()` at the end.

`>>` takes an event, a block of the client's lines as bytes, or `advance(seconds)`: time passes and the engine's timers
that come due fire in order.  `<<` is the effect that must come next; `<< None`: nothing more came.
"""

import json

from mcp_lazy import CLIENT, SERVER, ClearTimer, ClientLines, Log, Noise, Save, Served, ServerLines, SetTimer, TimerFired, Write
from sim import START_S, wall_ms


def to_client(*lines):
    return Write(CLIENT, b"".join(lines))


def to_server(*lines):
    return Write(SERVER, b"".join(lines))


def says(*lines):
    """Lines of the server, as one block."""
    return ServerLines(b"".join(lines))


class Advance:
    """`>> advance(s)`: time passes; the engine's timers that come due fire in order."""

    def __init__(self, by_s):
        self.by_s = by_s


class Timer:
    """`<< Timer(name, s)`: a SetTimer, due in `s` from now."""

    def __init__(self, name, after_s):
        self.name, self.after_s = name, after_s

    def matches(self, effect, now_s):
        return type(effect) is SetTimer and effect.name == self.name and abs(effect.at_s - now_s - self.after_s) < 1e-6

    def __repr__(self):
        return "Timer(%r, %r)" % (self.name, self.after_s)


class Failure:
    """`<< Failure(id, words...)`: the relay's own error for this id (a list: one array, in this order) with these words."""

    def __init__(self, ident, *words, code=-32000):
        self.ident, self.words, self.code = ident, words, code

    def matches(self, effect, now_s):
        if type(effect) is not Write or effect.side != CLIENT:
            return False
        found = json.loads(effect.raw)
        items = found if isinstance(self.ident, list) else [found]
        idents = self.ident if isinstance(self.ident, list) else [self.ident]
        return (isinstance(items, list) and [one.get("id") for one in items] == idents
                and all(one.get("error", {}).get("code") == self.code
                        and all(word in one["error"]["message"] for word in self.words) for one in items))

    def __repr__(self):
        return "Failure(%r, %s)" % (self.ident, ", ".join(map(repr, self.words)))


class Playbook:
    """A transcript. Logs and clearings of timers that are not armed are left out, everything else is exact.

    Bytes are compared line by line: how lines share a write is the engine's own business.
    """

    def __init__(self, relay, now_s=START_S):
        self.relay, self.now_s, self.timers, self.open, self.said = relay, now_s, {}, [], []
        self._take(relay.begin(now_s))

    def __rshift__(self, event):
        assert not self.open, "not expected: %r\nafter %s" % (self.open, self._told())
        if isinstance(event, Advance):
            self._advance(self.now_s + event.by_s)
            return self
        if isinstance(event, (bytes, bytearray)):
            event = ClientLines(event)
        self.said.append(">> %r" % event)
        self._handle(event)
        return self

    def _advance(self, end_s):
        while self.timers and min(self.timers.values()) <= end_s:
            name = min(self.timers, key=lambda one: (self.timers[one], one))
            self.now_s = max(self.now_s, self.timers.pop(name))
            self.said.append(">> timer %s at %.3f" % (name, self.now_s))
            self._handle(TimerFired(name, b""))
        self.now_s = end_s

    def _handle(self, event):
        self.relay.shelf.now_ms = wall_ms(self.now_s)
        self._take(self.relay.handle(event, self.now_s))

    def _take(self, effects):
        for effect in effects:
            if type(effect) is ClearTimer and self.timers.pop(effect.name, None) is None:
                continue
            if type(effect) is SetTimer:
                self.timers[effect.name] = effect.at_s
            if type(effect) is Save:
                assert self.relay.shelf.take_dirty(), "nothing to save"
            if type(effect) is Write:
                self.open += [(Write(effect.side, bytes(one)), self.now_s) for one in effect.raw.splitlines(True)]
            elif type(effect) not in (Log, Served, Noise):
                self.open.append((effect, self.now_s))

    def __lshift__(self, wanted):
        if wanted is None:
            assert not self.open, "not expected: %r\nafter %s" % (self.open, self._told())
            return self
        if type(wanted) is Write and wanted.raw.count(b"\n") > 1:
            for one in wanted.raw.splitlines(True):
                self << Write(wanted.side, one)
            return self
        assert self.open, "missing: %r\nafter %s" % (wanted, self._told())
        effect, at_s = self.open.pop(0)
        matches = wanted.matches(effect, at_s) if hasattr(wanted, "matches") else wanted == effect
        assert matches, "wanted %r\n   got %r\nafter %s" % (wanted, effect, self._told())
        self.said.append("<< %r" % effect)
        return self

    def then(self, *events):
        """Events whose effects are not this transcript's business."""
        for event in events:
            self.open = []
            self >> event
        self.open = []
        return self

    def check(self):
        return self << None

    def _told(self):
        return "\n      ".join(self.said[-12:])


advance = Advance
