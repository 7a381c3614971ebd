"""A simulated world for the relay's engine: a clock that jumps, a server in this process, a client that keeps a log.

    world = World(settings(), recording({"tools/list": ...}), SomeServer)
    world.send(request(1, "tools/call"))     lines of the client, as one block
    world.run()                              until nothing is due any more (or `run(until_s)`)
    world.client, world.server               what each side was written, line by line

The world carries out effects as the driver of L8 does: one event at a time, what an effect causes at once is the next
event.  tests/playbook.py is the other use of the engine: transcripts without any world.
"""

import heapq
import json

import mcp_lazy as lazy
from mcp_lazy import (CLIENT, ClientGone, ClientLines, Exited, OutputClosed, ServerLines, Spawned, SpawnFailed, StopSignal,
                      TimerFired, WakeEnded)

VERSION, MODERN = "2025-06-18", "2026-07-28"
SUBSCRIBED = "notifications/subscriptions/acknowledged"
# Wall time when the simulated clock shows START_S.
START_S, START_MS = 100.0, 1764513600000


def wall_ms(now_s):
    """Unix time in ms at a moment of the simulated clock."""
    return START_MS + int((now_s - START_S) * 1000)


# ------------------------------------------------------------------------------------------ lines

def line(**members):
    return json.dumps(dict({"jsonrpc": "2.0"}, **members), separators=(",", ":")).encode() + b"\n"


def request(ident, method, params=None):
    return line(id=ident, method=method, **({} if params is None else {"params": params}))


def notification(method, params=None):
    return line(method=method, **({} if params is None else {"params": params}))


def result(ident, value=None):
    return line(id=ident, result={} if value is None else value)


def refusal(ident, code=-32601, text="no"):
    return line(id=ident, error={"code": code, "message": text})


def initialize(ident=0, version=VERSION, **capabilities):
    return request(ident, "initialize", {"protocolVersion": version, "capabilities": capabilities,
                                         "clientInfo": {"name": "c", "version": "1"}})


INITIALIZED = notification("notifications/initialized")


def meta(version=MODERN, capabilities=None, **more):
    """`_meta` of a modern request: the envelope, and further members from `more`."""
    found = {lazy.VERSION_KEY: version, lazy.CLIENT_KEY: {"name": "c", "version": "1"},
             lazy.CAPABILITIES_KEY: {} if capabilities is None else capabilities}
    found.update(more)
    return found


def modern(ident, method, _meta=None, **params):
    """A request that stands for itself (A17.1)."""
    return request(ident, method, dict({"_meta": meta() if _meta is None else _meta}, **params))


def listen(ident, _meta=None, **kinds):
    """`subscriptions/listen`; without kinds, for changed tools."""
    return modern(ident, "subscriptions/listen", _meta, notifications=kinds or {"toolsListChanged": True})


def acknowledged(ident, **kinds):
    return notification(SUBSCRIBED, {"_meta": {lazy.SUBSCRIPTION_KEY: ident}, "notifications": kinds})


def tagged(ident, method="notifications/tools/list_changed"):
    """A notification on a stream."""
    return notification(method, {"_meta": {lazy.SUBSCRIPTION_KEY: ident}})


def handshake(version="1", **capabilities):
    """The result of a server's handshake."""
    return {"protocolVersion": VERSION, "capabilities": dict({"tools": {}}, **capabilities),
            "serverInfo": {"name": "s", "version": version}}


def discovery(**capabilities):
    """The result of a modern server's `server/discover`."""
    return {"supportedVersions": [MODERN], "capabilities": capabilities or {"tools": {"listChanged": True}},
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "_meta": {lazy.SERVER_KEY: {"name": "s", "version": "1"}}}


def raw(value):
    return json.dumps(value, separators=(",", ":")).encode()


def settings(**changed):
    values = dict(start_timeout_ns=60 * 10 ** 9, idle_stop_s=0, stop_grace_s=0.5, drain_s=0, call_timeout_ns=0,
                  restart_backoff_s=0.5, refresh_fatal=True, fill=False, server_name="srv", wake=False,
                  wake_interval_s=5.0, wake_timeout_s=1.0, log_calls=False, secrets=())
    assert not set(changed) - set(values), changed
    values.update(changed)
    return lazy.Settings(*[values[name] for name in lazy.Settings.__slots__])


def recorded_answer(value, at_ms=START_MS):
    """An Answer of a result, of a list of pages, or of an int: an error with this code."""
    if isinstance(value, int):
        return lazy.Answer(True, [raw({"code": value, "message": "no"})], at_ms)
    return lazy.Answer(False, [raw(page) for page in (value if isinstance(value, list) else [value])], at_ms)


def recording(lists=None, starts=(), result=None, capabilities=None, at_ms=START_MS):
    """A recording of one handshake: lists {method: what `recorded_answer` takes}."""
    found = lazy.Recording(["srv"])
    entry = lazy.Entry(*lazy.entry_key(VERSION, capabilities or {}, ""))
    entry.answers["initialize"] = recorded_answer(handshake() if result is None else result, at_ms)
    for method, value in (lists or {}).items():
        entry.answers[method] = recorded_answer(value, at_ms)
    entry.start_requests = list(starts)
    found.entries[entry.key()] = entry
    return found


def modern_recording(lists=None, found=None, capabilities=None, at_ms=START_MS, version=MODERN):
    """The same of a modern server: `found` is what it says to `server/discover`, 0 for nothing."""
    recorded = lazy.Recording(["srv"])
    entry = lazy.Entry(*lazy.entry_key(version, capabilities or {}, "", "modern"))
    if found != 0:
        entry.answers["server/discover"] = recorded_answer(discovery() if found is None else found, at_ms)
    for method, value in (lists or {}).items():
        entry.answers[method] = recorded_answer(value, at_ms)
    recorded.entries[entry.key()] = entry
    return recorded


def both(*recordings):
    """All entries in one recording."""
    found = lazy.Recording(["srv"])
    for one in recordings:
        found.entries.update(one.entries)
        found.before.update(one.before)
    return found


def engine(recorded=None, max_age_ms=0, **changed):
    return lazy.Relay(settings(**changed), lazy.Shelf(recorded or lazy.Recording(["srv"]), [], max_age_ms))


# ---------------------------------------------------------------------------------------- servers

class SimServer:
    """A server that answers nothing. `say`, `die` and `later` act on its world; subclasses decide when."""
    ignores = ()          # of "eof", "term": stop steps that it does not mind
    holds_output = False  # somebody keeps its stdout open behind its exit

    def __init__(self):
        self.world = self.pid = None
        self.alive = self.input_open = False
        self.output_open, self.at_s = True, 0.0

    def start(self):
        pass

    def got(self, one):
        pass

    def later(self, delay_s, action):
        """Do it in `delay_s` of simulated time, if the process still lives then. Never overtakes an earlier one."""
        self.at_s = max(self.at_s, self.world.now_s + delay_s)
        self.world.at(self.at_s, lambda: self.alive and action())

    def say(self, block, delay_s=0.0):
        self.later(delay_s, lambda: self.world.from_server(self, block))

    def die(self, text="exit status 0", delay_s=0.0):
        self.later(delay_s, lambda: self.world.exited(self, text))

    def stop_step(self, step):
        if step == "kill" or step not in self.ignores:
            self.die({"eof": "exit status 0", "term": "SIGTERM", "kill": "SIGKILL"}[step])


# ------------------------------------------------------------------------------------------ world

class World:
    """Clock, timers, one client, one server at a time, the wake predicate. `wake`: texts of its ends, in turn."""

    def __init__(self, config, recorded=None, make_server=SimServer, wake=(), max_age_ms=0):
        self.relay = lazy.Relay(config, lazy.Shelf(recorded or lazy.Recording(["srv"]), [], max_age_ms))
        self.make_server, self.wake_ends = make_server, list(wake)
        self.now_s, self.timers, self.actions, self.order = START_S, {}, [], 0
        self.client, self.server, self.effects = [], [], []   # lines written to each side; every effect
        self.spawns, self.saves, self.exits, self.held = 0, 0, [], False
        self.child, self.wake_running = None, False
        self.events, self.busy, self.splitter = [], False, None
        for effect in self.relay.begin(self.now_s):
            self.carry_out(effect)

    # -- the client --

    def send(self, *lines):
        self.post(ClientLines(b"".join(lines)))

    def close(self):
        self.post(ClientGone("end of input"))

    def signal(self, name="SIGTERM"):
        self.post(StopSignal(name))

    def messages(self):
        return [json.loads(one) for one in self.client]

    def answers(self, ident):
        return [one for one in self.messages() if "method" not in one and one.get("id") == ident]

    # -- time --

    def at(self, at_s, action):
        self.order += 1  # what is due at one instant keeps its order
        heapq.heappush(self.actions, (at_s, self.order, action))

    def next_s(self):
        """When the next thing is due, None if nothing is."""
        due = list(self.timers.values()) + [at_s for at_s, _, _ in self.actions[:1]]
        return min(due) if due else None

    def step(self):
        """Jump to the next thing and do it; actions of the world go before timers of the same instant."""
        self.now_s = max(self.now_s, self.next_s())
        if self.actions and self.actions[0][0] <= self.now_s:
            heapq.heappop(self.actions)[2]()
            return
        name = min(self.timers, key=lambda one: (self.timers[one], one))
        del self.timers[name]
        self.post(TimerFired(name, b""))

    def run(self, for_s=None, limit=10000):
        """Until nothing is due, or `for_s` of simulated time are over."""
        end_s = None if for_s is None else self.now_s + for_s
        for _ in range(limit):
            due_s = self.next_s()
            if due_s is None or end_s is not None and due_s > end_s:
                self.now_s = end_s if end_s is not None else self.now_s
                return self
            self.step()
        raise AssertionError("not at rest after %d steps; timers %r" % (limit, self.timers))

    # -- events and effects, as L8 does it --

    def post(self, event):
        self.events.append(event)
        if self.busy:
            return
        self.busy = True
        try:
            while self.events:
                self.relay.shelf.now_ms = wall_ms(self.now_s)
                for effect in self.relay.handle(self.events.pop(0), self.now_s):
                    self.carry_out(effect)
        finally:
            self.busy = False

    def carry_out(self, effect):
        self.effects.append(effect)
        getattr(self, "_" + type(effect).__name__)(effect)

    def _Write(self, effect):
        assert effect.raw.endswith(b"\n"), effect
        lines = effect.raw.splitlines(True)
        if effect.side == CLIENT:
            self.client += map(bytes, lines)
        elif self.child is not None and self.child.input_open:
            for one in map(bytes, lines):
                self.server.append(one)
                self.at(self.now_s, lambda child=self.child, one=one: child.alive and child.got(one))

    def _Spawn(self, effect):
        assert self.child is None, "a second generation before the end of the first"
        made = self.make_server()
        self.spawns += 1
        if isinstance(made, str):
            self.events.append(SpawnFailed(made))
            return
        self.child, made.world, made.pid = made, self, self.spawns
        made.alive = made.input_open = True
        made.at_s = self.now_s
        self.events.append(Spawned(made.pid))
        made.start()

    def from_server(self, child, block):
        """Bytes on the server's stdout; whole lines go on, as the splitter gives them."""
        if self.splitter is None or self.splitter[0] is not child:
            self.splitter = child, lazy.LineSplitter()
        for whole in self.splitter[1].feed(block):
            if child is self.child:
                self.post(ServerLines(whole))

    def exited(self, child, text):
        if not child.alive:
            return
        child.alive = False
        self.post(Exited(text, b""))
        if not child.holds_output:
            self.at(self.now_s, lambda: child is self.child and self.post(OutputClosed()))

    def _CloseInput(self, effect):
        if self.child is not None and self.child.input_open:
            self.child.input_open = False
            self.at(self.now_s, lambda child=self.child: child.alive and child.stop_step("eof"))

    def _KillGroup(self, effect):
        if self.child is not None and self.child.alive:
            self.child.stop_step("kill" if effect.signum == 9 else "term")

    def _Release(self, effect):
        if self.child is not None:
            assert not self.child.alive, "released while it lives"
        self.child = None

    def _SetTimer(self, effect):
        self.timers[effect.name] = effect.at_s

    def _ClearTimer(self, effect):
        self.timers.pop(effect.name, None)

    def _RunWake(self, effect):
        assert not self.wake_running, "two wake commands at once"
        self.wake_running = True
        text, delay_s = self.wake_ends.pop(0) if self.wake_ends else ("exit status 1", 0.0)
        if delay_s is not None:
            self.at(self.now_s + delay_s, lambda: self.wake_ended(text))

    def wake_ended(self, text):
        if self.wake_running:
            self.wake_running = False
            self.post(WakeEnded(text))

    def _KillWake(self, effect):
        self.at(self.now_s, lambda: self.wake_ended("SIGKILL"))

    def _Save(self, effect):
        self.saves += 1
        assert self.relay.shelf.take_dirty(), "nothing to save"

    def _HoldClient(self, effect):
        self.held = effect.hold

    def _Exit(self, effect):
        self.exits.append(effect.status)

    def _ignored(self, effect):
        pass

    _Log = _Served = _Noise = _ignored
