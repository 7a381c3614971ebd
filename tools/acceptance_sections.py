"""One client's sessions with one server, direct and through mcp-lazy, as the sections of acceptance.py.

    for verdict, what, detail in with_claude(scratch, "py2"): ...

A section is a function from a scratch directory and the name of a server to checks: ("ok" | "FAIL" | "info", name,
detail). See tests/real.py for servers and sessions.
"""
import collections
import json
import os
import pathlib
import statistics
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
import harness  # noqa: E402
import real  # noqa: E402

STARTS = 5        # of which the median is told
CHECK_S = 90.0


# What gives a check the start-up parameters of a client: words and environment; whether it probes for the newer era.
Fit = collections.namedtuple("Fit", "words environment probes")


# A check asks for lists that the server does not declare only as a client that is known; raw and ts1 ask for them.
PLAIN, PYTHON, CLAUDE, INSPECTOR = [Fit(["--as", name], {}, name in ("py-sdk", "claude-code"))
                                    for name in ("ts-sdk-1", "py-sdk", "claude-code", "inspector")]
# The name of a program on the newest TypeScript SDK (see clients/package.mjs) is its own, and it is part of the probe.
TYPESCRIPT = Fit([], {"MCP_LAZY_CHECK_INITIALIZE": json.dumps(
    harness.initialize(version=real.VERSION, name="package")["params"])}, True)


def relayed(argv, cache, *options):
    """The command that is the relay in front of a server, with its recordings in this folder."""
    if not harness.MODULE.exists():
        raise real.NotRun("there is no " + harness.MODULE.name)
    own = [str(harness.MODULE)]
    start = own if os.access(own[0], os.X_OK) else [sys.executable] + own
    return start + ["--cache-dir", cache] + list(options) + ["--"] + argv


def check(name, fault, detail=""):
    """One line of the report; `fault` says what is wrong, or is empty."""
    return ("FAIL", name, str(fault)) if fault else ("ok", name, detail)


def without_cursors(value):
    """The same with every cursor made equal: those of the relay are its own (A6.9)."""
    if isinstance(value, dict):
        return {key: "..." if key == "nextCursor" else without_cursors(item) for key, item in value.items()}
    return [without_cursors(item) for item in value] if isinstance(value, list) else value


def essence(method, answer):
    """What of an answer has to be equal. Refusals that are kept as facts come back without the server's own words."""
    code = answer.get("error", {}).get("code") if isinstance(answer, dict) else None
    if method == "server/discover" and code in (-32600, -32601, -32602):
        return "of the older era"
    return code if method == "subscriptions/listen" and code else without_cursors(answer)


def difference(one, other):
    """Where two sessions' answers differ as canonical JSON, or ""."""
    for key in sorted(set(one.answers) | set(other.answers)):
        left, right = (json.dumps(essence(key, side.answers.get(key)), sort_keys=True) for side in (one, other))
        if left != right:
            at = max(0, len(os.path.commonprefix([left, right])) - 40)
            return "%s: ...%s... against ...%s..." % (key, left[at:at + 110], right[at:at + 110])
    return ""


def asleep(session):
    """What ran or was started before the call, or ""."""
    return ", ".join(session.before.values()) or ("%d starts" % session.starts[0] if session.starts[0] else "")


def slept(session, name="no process while warm"):
    """The check that nothing ran until the call, and that the call started one server."""
    return check(name, asleep(session) or session.starts[1] != 1 and "%d starts by the call" % session.starts[1],
                 "until the call")


# ---------------------------------------------------------------------------- sections: yield checks

def compared(scratch, name, session, fit):
    """One client's sessions direct, cold, warm, and as the first after a check; `session(argv)` runs one."""
    argv = scratch.server(name)
    command = relayed(argv, scratch.cache())
    direct = session(argv)
    listed = json.dumps(direct.answers["tools/list"])
    yield check("direct lists the tool", "" if real.SERVERS[name].tool in listed else listed[:200],
                "%d answers" % len(direct.answers))
    cold, warm = session(command), session(command)
    if name == "py1" and fit is TYPESCRIPT:  # the probe has a process of its own, and this server calls it invalid:
        warm = session(command)              # that this means "legacy" is known from the second probe on
    yield check("cold equals direct", difference(direct, cold))
    yield check("warm equals direct", difference(direct, warm))
    yield slept(warm)
    yield check("the call starts it", "" if warm.after else "nothing below the relay after the call",
                "%d processes below the relay, its guard too" % len(warm.after))
    yield check("nothing left", ", ".join(cold.stayed + warm.stayed))
    for what, times in (("direct", direct.times), ("cold", cold.times), ("warm", warm.times)):
        if times:
            yield "info", "answered, " + what, ", ".join("%s %.0f ms" % one for one in times.items())
    yield from after_a_check(scratch, argv, real.SERVERS[name], session, fit, direct)


def after_a_check(scratch, argv, server, session, fit, direct):
    """`mcp-lazy --check` with the client's own parameters, then the client's first session."""
    cache = scratch.cache()
    report, fault, took_ms = checked(scratch, argv, cache, fit)
    yield check("a check succeeds", fault, "%.0f ms, %s" % (took_ms, ", ".join(report.get("eras", []))))
    if fault:
        return
    yield check("its report", report_fault(report, server, fit), json.dumps(report.get("lists"))[:100])
    first = session(relayed(argv, cache))
    if "error" in direct.answers.get("subscriptions/listen", {}):  # a refusal is learnt from the first one, by a call
        first.answers["subscriptions/listen"] = direct.answers["subscriptions/listen"]
    yield check("first session after it equals direct", difference(direct, first))
    yield slept(first, "no process in that session")
    yield check("nothing left after it", ", ".join(first.stayed))
    if first.times:
        yield "info", "answered, checked", ", ".join("%s %.0f ms" % one for one in first.times.items())


def checked(scratch, argv, cache, fit):
    """Runs a check: (its report, what was wrong, ms)."""
    command = relayed(argv, cache, "--check", *fit.words)
    started = time.monotonic()
    with scratch.box() as (box, env):
        done = subprocess.run(command, env=dict(env, **fit.environment), cwd=str(scratch.path / "work"),
                              timeout=CHECK_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        took_ms = 1000 * (time.monotonic() - started)
        left = real.left_after(box.mark, [], real.GONE_S)
    if done.returncode or left:
        said = [line for line in done.stderr.decode("utf-8", "replace").split("\n") if line.startswith("mcp-lazy: ")]
        fault = "; ".join(["exit status %d" % done.returncode] + said[-1:] + ["left " + one for one in left])
        return {}, fault, took_ms
    return json.loads(done.stdout), "", took_ms


def report_fault(report, server, fit):
    """What the report of a check says otherwise than the server's entry in the table, or ""."""
    eras = [era for era in server.eras if era != "modern" or fit.probes]
    tools = report["lists"].get("tools/list", {})
    if report["ok"] is not True or report["eras"] != eras:
        return "ok %r, eras %r and not %r" % (report["ok"], report["eras"], eras)
    return "" if (tools.get("pages"), tools.get("cached")) == (server.pages, True) else "tools/list: %s" % tools


def with_raw(scratch, name):
    yield from compared(scratch, name, lambda command: real.raw(scratch, name, command), PLAIN)
    argv = scratch.server(name)
    warm, times = relayed(argv, scratch.cache()), {"direct": [], "warm": []}
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
    fit = PYTHON if which.startswith("mcp") else PLAIN if which == "ts1" else TYPESCRIPT
    return lambda scratch, name: compared(
        scratch, name, lambda command: real.package(scratch, name, command, which), fit)


def with_claude(scratch, name):
    """Its probe is answered in time, cold and warm, and then it goes on by initialize or by subscribing."""
    return compared(scratch, name, lambda command: real.claude(scratch, name, command), CLAUDE)


def with_inspector(scratch, name):
    return compared(scratch, name, lambda command: real.inspector(scratch, name, command), INSPECTOR)


def late(scratch, name):
    """A modern server that comes up after Claude Code has given its probe up and said `initialize` to it: directly
    it refuses that, as it has fixed its era by then (A17.6)."""
    direct = real.claude(scratch, name, scratch.server(name))
    argv = scratch.server(name, "sh", "-c", 'sleep "$0"; exec "$@"', "%.1f" % (1.3 * real.PROBE_S))
    cold = real.claude(scratch, name, relayed(argv, scratch.cache()))
    probe, hello = [cold.answers.get(method, {}) for method in ("server/discover", "initialize")]
    yield check("the probe is late, cold", "" if "late" in probe else probe, ", ".join(
        "%s %.0f ms" % one for one in cold.times.items()))
    yield check("initialize is answered all the same", "" if "result" in hello else hello)
    yield check("its call as well", "" if "result" in cold.answers["tools/call"] else cold.answers["tools/call"])
    yield check("nothing left", ", ".join(cold.stayed))
    yield from after_a_check(scratch, argv, real.SERVERS[name], lambda command: real.claude(scratch, name, command),
                             CLAUDE, direct)


IDLE_S = 1.0  # server-everything is quiet for longer than that when nobody is subscribed


def state(scratch, name):
    """A log level and a subscription survive a crash; the server is not idle while it has to watch a resource, and
    the level survives the idle stop that comes when it has not."""
    argv = scratch.server(name)
    for level in ("debug", "error"):  # what the server says of subscriptions is heard, and not heard
        with scratch.box() as (box, env):
            direct = real.listener(scratch, box, argv, env, level)
            expected = direct.hears()
            direct.end()
        yield check("direct, level %s" % level, "" if len(expected) == (4 if level == "debug" else 2) else expected,
                    ", ".join("%s %s" % one for one in expected)[:100])
        with scratch.box() as (box, env):
            command = relayed(argv, scratch.cache(), "--idle-stop", "%gs" % IDLE_S)
            yield from survived(real.listener(scratch, box, command, env, level), level, expected)


def survived(client, level, expected):
    """One session through the relay: cold, after a crash, watched for longer than the idle time, after an idle stop."""
    def heard(when):
        found = client.hears()
        return check("level %s, %s" % (level, when), "" if found == expected else found, "%d notifications" % len(found))

    def gone():
        harness.until(client.asleep, real.ANSWER_S, "the end of the server")
    yield heard("cold")
    os.kill(client.servers()[0], signal.SIGKILL)
    gone()
    yield heard("after a crash")
    pids = client.servers()
    client.quiet(3 * IDLE_S)
    yield check("level %s, not idle while it watches" % level, "" if pids == client.servers() else "stopped",
                "%g s of silence" % (3 * IDLE_S))
    assert client.outcome("resources/unsubscribe", {"uri": real.SUBSCRIBED}) == {"result": {}}
    gone()
    client.heard.clear()
    assert client.outcome("resources/subscribe", {"uri": real.SUBSCRIBED}) == {"result": {}}
    client.quiet()
    told = [one for one in client.heard if one[0] == "message"]
    yield check("level %s, after an idle stop" % level, "" if bool(told) == (level == "debug") else client.heard,
                "%d log messages" % len(told))
    yield heard("subscribed again")
    client.end()
    yield check("level %s, nothing left" % level, ", ".join(real.left_after(client.box.mark, [], real.GONE_S)))
