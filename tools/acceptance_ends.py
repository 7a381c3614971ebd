"""Every way for a client to go, and what servers make of a client's roots and capabilities, for acceptance.py.

    for verdict, what, detail in ends(scratch, "memory"): ...
"""
import contextlib
import json
import os
import signal
import time

from acceptance_sections import check, difference, relayed, slept, asleep
import harness
import real

FULL = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}
KILLED_S = 2.0    # until everything is gone after SIGKILL of the relay; real.GONE_S after all other ends


def signal_below(relay):
    """As opencode does: SIGTERM to all that stands below the process that it started, and the end of its input."""
    for pid in harness.descendants(relay.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    relay.close()


def cut_short(relay):
    """As Codex and Copilot do: some milliseconds between SIGTERM and SIGKILL."""
    relay.signal(signal.SIGTERM)
    time.sleep(0.005)
    relay.signal(signal.SIGKILL)


# How a client goes: what then happens to the relay, the exit statuses that are right.
KILLED = -signal.SIGKILL
ENDS = {
    "EOF": (lambda relay: relay.close(), {0}),
    "the client's death": (lambda relay: (relay.close(), relay.close_output()), {0}),
    "SIGTERM": (lambda relay: relay.signal(signal.SIGTERM), {0}),
    "SIGHUP": (lambda relay: relay.signal(signal.SIGHUP), {0}),
    "SIGINT": (lambda relay: relay.signal(signal.SIGINT), {0}),
    "SIGKILL": (lambda relay: relay.signal(signal.SIGKILL), {KILLED}),
    "SIGKILL to the group": (lambda relay: os.killpg(relay.pid, signal.SIGKILL), {KILLED}),
    "SIGTERM, SIGKILL after 5 ms": (cut_short, {0, KILLED}),
    "SIGTERM to all below, EOF": (signal_below, {0}),
}
PHASES = ("cold", "asleep", "starting", "live")


def ends(scratch, name):
    argv, server = scratch.server(name), real.SERVERS[name]
    warm = relayed(argv, scratch.cache())
    real.raw(scratch, name, warm, FULL)
    for how in ENDS:
        seen = [one_end(scratch, relayed(argv, scratch.cache()) if phase == "cold" else warm,
                        server, phase, how) for phase in PHASES]
        yield check("nothing left after " + how, "; ".join(fault for _, faults in seen for fault in faults),
                    ", ".join(text for text, _ in seen))


def bring_to(relay, phase, server):
    """Takes a relay to the phase of its server in which it is to end."""
    if phase == "cold":
        relay.send(harness.initialize(version=real.VERSION, capabilities=FULL))
    else:
        relay.open(FULL)
    if phase in ("starting", "live"):
        call = relay.start_call(server.tool, **server.arguments)
    if phase != "asleep":
        harness.until(lambda: relay.servers(), real.ANSWER_S, "the start of the server")
    if phase == "live":
        relay.answer(call, real.ANSWER_S)


def one_end(scratch, command, server, phase, how):
    """Ends a relay in a phase of its server: (what was seen, faults)."""
    act, statuses = ENDS[how]
    with scratch.box() as (box, env):
        relay = real.Raw(scratch, box, command, env, preexec=os.setsid)  # a group of its own, as Codex gives it
        bring_to(relay, phase, server)
        before = [relay.pid] + harness.descendants(relay.pid)
        limit_s, started = KILLED_S if KILLED in statuses else real.GONE_S, time.monotonic()
        act(relay)
        with contextlib.suppress(AssertionError):
            relay.wait(limit_s)
        stayed = real.left_after(box.mark, before, started + limit_s - time.monotonic())
        took_ms = 1000 * (time.monotonic() - started)
        faults = ["%s: left %s" % (phase, one) for one in stayed]
        if relay.process.poll() not in statuses | {None}:
            faults.append("%s: exit status %d" % (phase, relay.process.poll()))
        return "%s %.0f ms (%d)" % (phase, took_ms, len(before)), faults


def roots(scratch, name):
    """The filesystem server replaces its directories by the client's roots, also when it starts late."""
    argv, capable = scratch.server(name), {"roots": {}}
    first, second = [[(scratch.path / directory).as_uri()] for directory in ("root-a", "root-b")]
    command = relayed(argv, scratch.cache())
    direct = real.raw(scratch, name, argv, capable, first, settle=True)
    cold = real.raw(scratch, name, command, capable, first, settle=True)
    yield check("cold equals direct", difference(direct, cold), json.dumps(direct.answers["tools/call"])[:100])
    warm = real.raw(scratch, name, command, capable, first)
    yield check("the first call of a late start sees them", difference(direct, warm))
    yield check("asked for once", "" if warm.client.asked == ["roots/list"] else warm.client.asked)
    yield slept(warm)
    direct = real.raw(scratch, name, argv, capable, second, settle=True)
    warm = real.raw(scratch, name, command, capable, second)
    yield check("other roots, same recording", difference(direct, warm) or asleep(warm))
    direct = real.raw(scratch, name, argv)
    for state in ("cold", "warm"):
        yield check("client without roots, %s" % state, difference(direct, real.raw(scratch, name, command)))
    command = relayed(argv, scratch.cache())
    direct, _, warm = [real.package(scratch, name, one, "mcp2", first) for one in (argv, command, command)]
    yield check("roots of the mcp package, late start", difference(direct, warm) or asleep(warm))


def capabilities(scratch, name):
    """server-everything shows more tools to a client that can do more, and announces them at each start."""
    argv, kinds = scratch.server(name), {"full": FULL, "none": {}}
    command = relayed(argv, scratch.cache())
    direct = {kind: real.raw(scratch, name, argv, kinds[kind], settle=True) for kind in kinds}
    counts = [len(direct[kind].answers["tools/list"][0]["result"]["tools"]) for kind in ("full", "none")]
    yield check("direct listings differ", "" if counts[0] > counts[1] else counts, "%d and %d tools" % tuple(counts))
    for state in ("cold", "warm"):  # both cold first: neither recording may replace the other
        for kind in kinds:
            seen = real.raw(scratch, name, command, kinds[kind], settle=True)
            yield check("%s, %s equals direct" % (kind, state), difference(direct[kind], seen))
    yield slept(seen)
    late = real.raw(scratch, name, command, FULL, settle=True)
    told, direct_told = ([method for method in session.client.told if method.endswith("list_changed")]
                         for session in (late, direct["full"]))
    yield check("announcements of a late start are no change", ", ".join(told), "%d direct" % len(direct_told))
