"""One suite of scripts on two worlds: the simulated one, and a real relay with a real server; their transcripts are equal.

Both worlds run the code of tests/servers/fake.py, or of modern.py on top of it, so what differs could only be the
simulation (tests/sim.py) or the binding of the engine to pipes, processes and clocks (L8).  A script is a list of
sessions over one recording.
"""

import importlib.util
import json
import signal
import sys
import time

import pytest

import harness
import mcp_lazy as lazy
from sim import (INITIALIZED, SUBSCRIBED, SimServer, World, initialize, listen, meta, modern, notification, request, result,
                 settings)

pytestmark = pytest.mark.slow
MODERN_SERVER = harness.FAKE.parent / "modern.py"
OPTIONS = {  # option: how the engine's Settings say it
    "start-timeout": lambda s: {"start_timeout_ns": int(s * 1e9)}, "call-timeout": lambda s: {"call_timeout_ns": int(s * 1e9)},
    "idle-stop": lambda s: {"idle_stop_s": s}, "drain": lambda s: {"drain_s": s},
    "restart-backoff": lambda s: {"restart_backoff_s": s}}


def call(ident, tool, **arguments):
    return request(ident, "tools/call", {"name": tool, "arguments": arguments})


# ------------------------------------------------------------------------------ the simulated world

class Died(Exception):
    """The fake ended itself in the middle of its code."""


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeServer(SimServer):
    """tests/servers/fake.py in this process, on simulated time; `path` may be modern.py, which changes it."""

    def __init__(self, path, flags):
        super().__init__()
        self.path, self.flags, self.module, self.slept_s = path, flags, None, 0.0
        self.ignores = ("eof",) if flags.get("ignore_eof") else ()

    def start(self):
        module = self.module = load("simulated_fake", harness.FAKE)
        module.OPT.clear()
        module.OPT.update(self.flags)
        module.note = lambda event, **more: None
        module.write_all = lambda fd, data: self.say(bytes(data), self.slept_s) if fd == 1 else None
        module.sleep = self.sleep
        module.die = self.ends
        if self.path != harness.FAKE:
            before, path = sys.modules.get("fake"), list(sys.path)
            sys.modules["fake"] = module
            try:
                load("simulated_modern", self.path)
            finally:
                sys.path[:] = path
                sys.modules.pop("fake") if before is None else sys.modules.update(fake=before)
        if "die" in self.flags:
            self.die("exit status " + self.flags["die"][4:])

    def sleep(self, seconds):
        self.slept_s += seconds

    def ends(self, how):
        self.die(how if how.startswith("SIG") else "exit status " + how[4:], self.slept_s)
        raise Died

    def got(self, one):
        try:
            self.module.got(one)
        except Died:
            pass
        self.slept_s = 0.0

    def stop_step(self, step):
        if step == "eof" and self.module.opt("eof_say"):
            self.say(self.module.opt("eof_say").encode())
        super().stop_step(step)


class SimRelay(World):
    """A session on the simulated world; `disk` is the recording's file."""

    def __init__(self, config, disk, make_server):
        self.disk = disk
        recorded = lazy.Recording(["fake"])
        assert not disk or recorded.read(disk)
        super().__init__(config, recorded, make_server)

    def _Save(self, effect):
        self.saves += 1
        self.disk = lazy.merged_recording(self.disk, self.relay.shelf.recording, self.relay.shelf.take_dirty())

    def until(self, test):
        for _ in range(10000):
            if test():
                return
            self.step()
        raise AssertionError("it never came; got %r" % self.client)

    def wait(self, test):
        self.until(lambda: any(test(one) for one in self.messages()))

    def sleep_again(self):
        self.until(lambda: self.child is None)

    def stay_awake(self, for_s):
        self.run(for_s)
        assert self.child is not None, "it was stopped"

    def end(self, signum):
        if signum is None:
            self.close()
        else:
            self.signal(signal.Signals(signum).name)
        self.until(lambda: self.exits)
        return self.client, self.exits[0]


class SimPlace:
    def __init__(self, flags, path):
        self.flags, self.disk, self.starts, self.path = dict(flags), None, 0, path
        self.name = lazy.server_name(lazy.recorded_command(["python3", str(path)]))

    def set(self, flags):
        self.flags.update(flags)

    def make(self):
        self.starts += 1
        return FakeServer(self.path, dict(self.flags))

    def session(self, options):
        config = {"server_name": self.name}
        for option, value in options.items():
            config.update(OPTIONS[option](value))
        return SimRelay(settings(**config), self.disk, self.make)

    def over(self, relay):
        self.disk = relay.disk


# ------------------------------------------------------------------------------------ the real world

class RealRelay:
    def __init__(self, relay):
        self.relay = relay

    def send(self, *lines):
        self.relay.send(*lines)

    def wait(self, test):
        self.relay.kept.append(self.relay.until_message(test))

    def sleep_again(self):
        harness.until(self.relay.asleep)

    def stay_awake(self, for_s):
        end_s, awake = time.monotonic() + for_s, True
        while awake and time.monotonic() < end_s:
            awake = not self.relay.asleep()
            time.sleep(0.02)
        assert awake, "it was stopped"

    def end(self, signum):
        if signum is None:
            self.relay.close()
        else:
            self.relay.signal(signum)
        self.relay.rest()
        return self.relay.raw, self.relay.wait()


class RealPlace:
    def __init__(self, box, flags, path):
        box.server = str(path)
        self.box, self.fake = box, box.fake(**flags)

    @property
    def starts(self):
        return self.fake.starts()

    def set(self, flags):
        self.fake.set(**flags)

    def session(self, options):
        words = [word for option, value in options.items() for word in ("--" + option, "%gs" % value)]
        return RealRelay(self.box.relay(self.fake, *words))

    def over(self, relay):
        pass


# -------------------------------------------------------------------------------------------- scripts

def answer(ident):
    """Wait for the answer to this id."""
    return lambda relay: relay.wait(lambda one: harness.Relay.answers(one, ident))


def told(method):
    """Wait for a request or notification of this method."""
    return lambda relay: relay.wait(lambda one: isinstance(one, dict) and one.get("method") == method)


def array():
    return lambda relay: relay.wait(lambda one: isinstance(one, list))


def asleep(relay):
    relay.sleep_again()


def awake(relay):
    """Three times as long as the idle stop of these stories."""
    relay.stay_awake(3 * IDLE_S)


def seen(ident, *methods):
    """Wait for the answer to a call `seen`: all that this process was told."""
    return lambda relay: relay.wait(
        lambda one: harness.Relay.answers(one, ident) and one["result"] == {"seen": [*STARTED, *methods, "tools/call"]})


class Run:
    """One session: options, then lines (bytes) to send and waits; `flags` change the server before it."""

    def __init__(self, *steps, options=None, flags=None, signum=None):
        self.steps, self.options, self.flags, self.signum = steps, options or {}, flags or {}, signum


HELLO = (initialize(0), answer(0), INITIALIZED)
RECORD = Run(*HELLO, request("l", "tools/list"), answer("l"))
# A log level and a subscription: what a process must hear again that takes the place of another (A12.7).
STATE = (request(1, "logging/setLevel", {"level": "error"}), answer(1), request(2, "resources/subscribe", {"uri": "u:1"}), answer(2))
UNSUBSCRIBE = (request("u", "resources/unsubscribe", {"uri": "u:1"}), answer("u"))
STARTED = ("initialize", "notifications/initialized")
IDLE_S = 0.4
BATCH = b"[%s,%s]\n" % (request(1, "a").strip(), request("2", "b").strip())
ROOTED = (initialize(0, roots={}), answer(0), INITIALIZED)

SCRIPTS = {
    "cold": [{}, Run(*HELLO, request("l", "tools/list"), answer("l"), call(1, "echo", x=[1.0, "\u00e9"]), answer(1))],
    "warm": [{}, RECORD, Run(*HELLO, request(1, "tools/list"), request(2.5, "ping"), answer(2.5))],
    "a wake tells of a changed list": [
        {}, RECORD, Run(*HELLO, request(1, "tools/list"), call(2, "echo"), answer(2), told("notifications/tools/list_changed"),
                        request(3, "tools/list"), answer(3), flags={"tools": 2})],
    "list_changed at the start": [
        {"announce": True, "changed_at_start": 3}, Run(*HELLO, request("l", "tools/list"), answer("l")),
        Run(*HELLO, request(1, "tools/list"), call(2, "seen"), answer(2))],
    "a death in a call": [{}, Run(*HELLO, call(1, "die", how="exit3"), answer(1), call(2, "seen"), answer(2))],
    "a death by a signal in a batch": [{"batch_dies": True}, Run(*HELLO, BATCH, array())],
    "a start that takes too long": [
        {"hang_at": ["initialize"]}, Run(initialize(0) + call(1, "echo"), answer(0), asleep, options={"start-timeout": 0.3})],
    "a refused handshake": [
        {}, RECORD, Run(*HELLO, call(1, "echo"), answer(1), asleep,
                        flags={"refuse": {"initialize": {"code": -32602, "message": "not today"}}})],
    "a call that takes too long": [
        {}, Run(*HELLO, call(1, "late"), answer(1), call(2, "flush"), answer(2), options={"call-timeout": 0.5})],
    "idle": [{"logging": True}, Run(
        *RECORD.steps, *STATE, *UNSUBSCRIBE, asleep, request(3, "tools/list"), answer(3), call(4, "seen"),
        seen(4, "logging/setLevel", "tools/list"), asleep, call(5, "seen"), seen(5, "logging/setLevel", "tools/list"),
        options={"idle-stop": IDLE_S})],
    "idle, but subscribed": [{"logging": True}, Run(
        *RECORD.steps, *STATE, awake, call(3, "seen"), seen(3, "tools/list", "logging/setLevel", "resources/subscribe"), awake,
        *UNSUBSCRIBE, asleep, options={"idle-stop": IDLE_S})],
    "a death of a server with a state": [{"logging": True}, Run(
        *RECORD.steps, *STATE, call(3, "die", how="exit3"), answer(3), call(4, "seen"),
        seen(4, "logging/setLevel", "resources/subscribe", "tools/list"), awake, *UNSUBSCRIBE, asleep, call(5, "seen"),
        seen(5, "logging/setLevel", "tools/list"), options={"idle-stop": IDLE_S})],
    "the end in a call": [{}, Run(*HELLO, call(1, "hang"), call(2, "echo"), answer(2))],
    "a signal in a call": [{}, Run(*HELLO, call(1, "hang"), call(2, "echo"), answer(2), signum=signal.SIGTERM)],
    "drained": [{}, Run(*HELLO, call(1, "sleep", s=0.3), options={"drain": 5.0})],
    "noise and odd lines": [
        {}, Run(*HELLO, b"garbage\n", b"[]\n", b'{"jsonrpc":"2.0","id":9,"method":7}\n', b" \r\n",
                call(1, "raw", text="noise\n{\n{\"a\":1}\n\n"), answer(1), BATCH, array())],
    "roots first": [
        {"ask_roots": True}, Run(*ROOTED, told("roots/list"), result("roots-1", {"roots": []}), call(1, "echo"), answer(1)),
        Run(*ROOTED, call(1, "echo"), told("roots/list"), result("roots-1", {"roots": []}), answer(1))],
    "cancelled": [
        {}, Run(*HELLO, call(1, "late"), notification("notifications/cancelled", {"requestId": 1}), call(2, "flush"), answer(2),
                call(3, "hang"), notification("notifications/cancelled", {"requestId": 3}), call(4, "echo"), answer(4))],
    "a server that is called off": [
        {}, Run(*HELLO, call(1, "ask", ids=["q"], methods=["sampling/createMessage"], forget=True), answer(1),
                call(2, "die", how="SIGKILL"), told("notifications/cancelled"), answer(2))],
    "put off": [{}, RECORD, Run(*HELLO, *[step for ident in (1, 2, 3, 4) for step in (call(ident, "echo"), answer(ident))],
                                flags={"die": "exit7"}, options={"restart-backoff": 20.0})],
}


def mcall(ident, tool, **arguments):
    return modern(ident, "tools/call", name=tool, arguments=arguments)


M_RECORD = Run(modern("d", "server/discover"), answer("d"), modern("l", "tools/list"), answer("l"))
CHANGED = "notifications/tools/list_changed"
OPTED = {"announce": True}
MODERN_SCRIPTS = {
    "modern, cold": [{}, Run(modern("d", "server/discover"), answer("d"), modern("l", "tools/list"), answer("l"), mcall(1, "echo", x=1.0), answer(1))],
    "modern, warm": [{}, M_RECORD, Run(modern(1, "server/discover"), modern("2", "tools/list"), modern(3, "ping"), answer(3), mcall(4, "echo"), answer(4))],
    "modern, refused asleep": [{}, M_RECORD, Run(modern(1, "tools/list", meta("2099-01-01")), answer(1), modern(2, "subscriptions/listen", {}), answer(2))],
    "a stream that is held": [OPTED, M_RECORD, Run(listen("s"), told(SUBSCRIBED), modern(1, "tools/list"), answer(1))],
    "a stream that tells of drift": [OPTED, M_RECORD, Run(
        listen(5), told(SUBSCRIBED), modern(1, "tools/list"), mcall(2, "echo"), answer(2), told(CHANGED), modern(3, "tools/list"), answer(3),
        flags={"tools": 3})],
    "a stream that tells what the server says": [OPTED, M_RECORD, Run(
        listen("s"), told(SUBSCRIBED), mcall(1, "grow"), answer(1), told(CHANGED), modern(2, "tools/list"), answer(2))],
    "a stream that the server refuses": [OPTED, M_RECORD, Run(
        listen("s"), told(SUBSCRIBED), mcall(1, "echo"), answer(1), flags={"listen": -32601}), Run(listen("t"), answer("t"))],
    "a stream over an idle stop": [OPTED, M_RECORD, Run(
        listen("s"), told(SUBSCRIBED), mcall(1, "echo"), answer(1), asleep, mcall(2, "grow"), answer(2), told(CHANGED), options={"idle-stop": IDLE_S})],
    "a stream over a death": [OPTED, M_RECORD, Run(
        listen("s"), told(SUBSCRIBED), mcall(1, "die", how="exit3"), answer(1), mcall(2, "grow"), answer(2), told(CHANGED))],
    "a stream that is cancelled": [OPTED, M_RECORD, Run(
        listen("s"), told(SUBSCRIBED), notification("notifications/cancelled", {"requestId": "s"}), mcall(1, "grow"), answer(1), modern(2, "tools/list"), answer(2))],
    "a stream of a cold start": [OPTED, Run(listen("s"), told(SUBSCRIBED), mcall(1, "grow"), answer(1), told(CHANGED))],
    "a start once more for the other era": [{"lock": True}, Run(
        modern("d", "server/discover"), answer("d"), initialize(0), answer(0), INITIALIZED, call(1, "echo"), answer(1), request(2, "tools/list"), answer(2)),
        Run(modern("d", "server/discover"), answer("d"), initialize(0), answer(0), INITIALIZED, request(2, "tools/list"), answer(2))],
    "a probe of a legacy server": [{"era": "legacy", "discover": -32602}, Run(modern("d", "server/discover"), answer("d"), *HELLO), Run(
        modern("d", "server/discover"), answer("d"), *HELLO)],
    "modern, a start that takes too long": [{"hang_at": ["tools/list"]}, Run(
        modern(1, "tools/list"), mcall(2, "echo"), answer(1), asleep, options={"start-timeout": 0.3})],
}
SCRIPTS.update({name: [dict(flags, server=MODERN_SERVER), *runs] for name, (flags, *runs) in MODERN_SCRIPTS.items()})


def play(place, runs):
    """[(lines to the client, exit status)] of each session, and how often the server was started."""
    seen = []
    for run in runs:
        if run.flags:
            place.set(run.flags)
        relay = place.session(run.options)
        for step in run.steps:
            if isinstance(step, bytes):
                relay.send(step)
            else:
                step(relay)
        lines, status = relay.end(run.signum)
        seen.append(([bytes(one) for one in lines], status))
        place.over(relay)
    return seen, place.starts


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_worlds_tell_the_same_story(box, name):
    flags, *runs = SCRIPTS[name]
    flags = dict(flags)
    path = flags.pop("server", harness.FAKE)
    simulated = play(SimPlace(flags, path), runs)
    real = play(RealPlace(box, flags, path), runs)
    for (ours, _), (theirs, _) in zip(simulated[0], real[0]):
        assert [json.loads(one) for one in ours] == [json.loads(one) for one in theirs]
    assert simulated == real
