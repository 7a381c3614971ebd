#!/usr/bin/env python3
"""Real servers and real clients, direct and through mcp-lazy, side by side.

    python3 tools/acceptance.py                    everything: about ten minutes, and a network for the installs
    python3 tools/acceptance.py --list             the sections, without running them
    python3 tools/acceptance.py --only memory      one server; also --only ends, --only memory:raw, repeated
    python3 tools/acceptance.py --keep DIR --json  work in DIR and leave it: its installs serve the next run

Servers come from PyPI and npm into a scratch directory; one of them is started by the launcher `npx`. Clients:
one that writes the lines itself (raw), the `mcp` package of both generations (mcp1, mcp2, and mcp2-auto, which
asks for the newest protocol first) and the Inspector's command line. A section is SERVER:CLIENT, or SERVER:ends
(every way for a client to go), filesystem:roots, everything:capabilities. Each line of the report is a check:

    ok       it held                      FAIL     it did not; the detail says what was seen
    info     a figure, not judged         not run  something could not be installed, with the reason

Exit status: 0 all that ran passed, 1 something failed, 2 nothing could be run.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
import harness  # noqa: E402
import real  # noqa: E402

FULL = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}
KILLED_S = 2.0    # until everything is gone after SIGKILL of the relay; real.GONE_S after all other ends
STARTS = 5        # of which the median is told


def relayed(scratch, argv, cache):
    if not harness.MODULE.exists():
        raise real.NotRun("there is no " + harness.MODULE.name)
    own = [str(harness.MODULE)]
    return (own if os.access(own[0], os.X_OK) else [sys.executable] + own) + ["--cache-dir", cache, "--"] + argv


def check(name, fault, detail=""):
    """One line of the report; `fault` says what is wrong, or is empty."""
    return ("FAIL", name, str(fault)) if fault else ("ok", name, detail)


def difference(one, other):
    """Where two sessions' answers differ as canonical JSON, or ""."""
    for key in sorted(set(one.answers) | set(other.answers)):
        left, right = (json.dumps(side.answers.get(key), sort_keys=True) for side in (one, other))
        if left != right:
            at = max(0, len(os.path.commonprefix([left, right])) - 40)
            return "%s: ...%s... against ...%s..." % (key, left[at:at + 110], right[at:at + 110])
    return ""


def asleep(session):
    """The check that nothing ran until the call."""
    return check("no process while warm", ", ".join(session.before.values()), "until the call")


# ---------------------------------------------------------------------------- sections: yield checks

def compared(scratch, argv, session, lazy=True):
    """One client's sessions direct, cold and warm; `session(argv)` runs one."""
    command = relayed(scratch, argv, scratch.cache())
    direct, cold, warm = session(argv), session(command), session(command)
    yield check("cold equals direct", difference(direct, cold), "%d answers" % len(direct.answers))
    yield check("warm equals direct", difference(direct, warm), "%d answers" % len(direct.answers))
    if lazy:
        yield asleep(warm)
    else:
        yield "info", "processes while warm", ", ".join(warm.before.values()) or "none until the call"
    yield check("the call starts it", "" if warm.after else "nothing below the relay after the call",
                "%d processes below the relay, its guard too" % len(warm.after))
    yield check("nothing left", ", ".join(cold.stayed + warm.stayed))


def with_raw(scratch, name):
    argv = scratch.server(name)
    yield from compared(scratch, argv, lambda command: real.raw(scratch, name, command))
    warm, times = relayed(scratch, argv, scratch.cache()), {"direct": [], "warm": []}
    real.raw(scratch, name, warm)
    for what, command in (("direct", argv), ("warm", warm)) * STARTS:
        with scratch.box() as (box, env):
            client = real.Raw(scratch, box, command, env)
            client.open({})
            times[what].append(client.first_ms)
            client.end()
    yield "info", "start until initialize is answered", "direct %.0f ms, warm %.0f ms" % (
        statistics.median(times["direct"]), statistics.median(times["warm"]))


def with_package(which):
    # The newest protocol has no handshake to record; until its recordings exist it only has to pass through.
    def section(scratch, name):
        return compared(scratch, scratch.server(name), lambda command: real.package(scratch, name, command, which),
                        lazy=which != "mcp2-auto")
    return section


def with_inspector(scratch, name):
    return compared(scratch, scratch.server(name), lambda command: real.inspector(scratch, name, command))


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
    warm = relayed(scratch, argv, scratch.cache())
    real.raw(scratch, name, warm, FULL)
    for how in ENDS:
        seen = [one_end(scratch, relayed(scratch, argv, scratch.cache()) if phase == "cold" else warm,
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
    command = relayed(scratch, argv, scratch.cache())
    direct = real.raw(scratch, name, argv, capable, first, settle=True)
    cold = real.raw(scratch, name, command, capable, first, settle=True)
    yield check("cold equals direct", difference(direct, cold), json.dumps(direct.answers["tools/call"])[:100])
    warm = real.raw(scratch, name, command, capable, first)
    yield check("the first call of a late start sees them", difference(direct, warm))
    yield check("asked for once", "" if warm.client.asked == ["roots/list"] else warm.client.asked)
    yield asleep(warm)
    direct = real.raw(scratch, name, argv, capable, second, settle=True)
    warm = real.raw(scratch, name, command, capable, second)
    yield check("other roots, same recording", difference(direct, warm) or ", ".join(warm.before.values()))
    direct = real.raw(scratch, name, argv)
    for state in ("cold", "warm"):
        yield check("client without roots, %s" % state, difference(direct, real.raw(scratch, name, command)))
    command = relayed(scratch, argv, scratch.cache())
    direct, _, warm = [real.package(scratch, name, one, "mcp2", first) for one in (argv, command, command)]
    yield check("roots of the mcp package, late start", difference(direct, warm) or ", ".join(warm.before.values()))


def capabilities(scratch, name):
    """server-everything shows more tools to a client that can do more, and announces them at each start."""
    argv, kinds = scratch.server(name), {"full": FULL, "none": {}}
    command = relayed(scratch, argv, scratch.cache())
    direct = {kind: real.raw(scratch, name, argv, kinds[kind], settle=True) for kind in kinds}
    counts = [len(direct[kind].answers["tools/list"]["result"]["tools"]) for kind in ("full", "none")]
    yield check("direct listings differ", "" if counts[0] > counts[1] else counts, "%d and %d tools" % tuple(counts))
    for state in ("cold", "warm"):  # both cold first: neither recording may replace the other
        for kind in kinds:
            seen = real.raw(scratch, name, command, kinds[kind], settle=True)
            yield check("%s, %s equals direct" % (kind, state), difference(direct[kind], seen))
    yield asleep(seen)
    late = real.raw(scratch, name, command, FULL, settle=True)
    told, direct_told = ([method for method in session.client.told if method.endswith("list_changed")]
                         for session in (late, direct["full"]))
    yield check("announcements of a late start are no change", ", ".join(told), "%d direct" % len(direct_told))


CLIENTS = {"raw": with_raw, "mcp1": with_package("mcp1"), "mcp2": with_package("mcp2"),
           "mcp2-auto": with_package("mcp2-auto"), "inspector": with_inspector, "ends": ends}


def sections():
    """{name: (function, server)} in the order of the report."""
    found = {"%s:%s" % (name, client): (CLIENTS[client], name) for name in real.SERVERS for client in CLIENTS}
    found["filesystem:roots"] = (roots, "filesystem")
    found["everything:capabilities"] = (capabilities, "everything")
    return found


# ---------------------------------------------------------------------------- the report

def run(scratch, chosen):
    """Runs the sections and yields the lines of the report: {section, verdict, check, detail}."""
    for section, (function, name) in chosen.items():
        try:
            for verdict, what, detail in function(scratch, name):
                yield dict(section=section, verdict=verdict, check=what, detail=detail)
        except real.NotRun as reason:
            yield dict(section=section, verdict="not run", check="", detail=str(reason))
        except (AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            yield dict(section=section, verdict="FAIL", check="ran to its end",
                       detail="%s: %s" % (type(error).__name__, str(error)[:400]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the sections and end")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="SERVER, CLIENT or SERVER:CLIENT")
    parser.add_argument("--keep", metavar="DIR", help="work in this directory and leave it there")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON list")
    options = parser.parse_args()
    wanted = set(options.only)
    chosen = {section: found for section, found in sections().items()
              if not wanted or wanted & {section, *section.split(":")}}
    if not chosen:
        parser.error("no section is called %s; see --list" % " or ".join(options.only))
    if options.list:
        print("\n".join(chosen))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the boxes end what they started
    report = []
    with contextlib.ExitStack() as stack:
        where = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="acceptance-"))
        for line in run(real.Scratch(where), chosen):
            report.append(line)
            if not options.json:
                print("%(verdict)-8s %(section)-24s %(check)-44s %(detail)s" % line, flush=True)
    verdicts = collections.Counter(line["verdict"] for line in report)
    print(json.dumps(report, indent=1) if options.json else
          ", ".join("%d %s" % (number, verdict) for verdict, number in verdicts.items()))
    return 1 if verdicts["FAIL"] else 0 if verdicts["ok"] else 2


if __name__ == "__main__":
    sys.exit(main())
