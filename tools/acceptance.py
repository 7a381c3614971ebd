#!/usr/bin/env python3
"""Real servers and real clients, direct and through mcp-lazy, side by side.

    python3 tools/acceptance.py                    everything: about twenty minutes, and a network for the installs
    python3 tools/acceptance.py --list             the sections, without running them
    python3 tools/acceptance.py --only memory      one server; also --only ends, --only memory:raw, repeated
    python3 tools/acceptance.py --keep DIR --json  work in DIR and leave it: its installs serve the next run

Servers come from PyPI and npm into a scratch directory; one of them is started by the launcher `npx`, four stand on
the Python and TypeScript SDKs of both generations and list their tools in pages. Clients: one that writes the lines
itself (raw), one that does it in Claude Code's order (claude), the SDKs' own (mcp1, mcp2, ts1, ts2; with -auto they
ask for the newest protocol first, ts2-listen subscribes besides) and the Inspector's command line. A section is
SERVER:CLIENT, or SERVER:ends (every way for a client to go), filesystem:roots, everything:capabilities,
everything:state (level and subscriptions over a crash and an idle stop), py2:late (it comes up when Claude Code waits
no longer for its probe), config:CLIENT (Claude Code, Codex, Gemini CLI, opencode, Qwen Code and Copilot read and
rewrite registrations that `mcp-lazy config` edited), hub:CLIENT (three servers behind one hub) or hub:asks (what
servers ask their clients goes through the hub). Each line of the report is a check:

    ok       it held                      FAIL     it did not; the detail says what was seen
    info     a figure, not judged         not run  something could not be installed, with the reason

Exit status: 0 all that ran passed, 1 something failed, 2 nothing could be run.
"""
import argparse
import collections
import contextlib
import json
import signal
import subprocess
import sys
import tempfile

from acceptance_sections import late, state, with_claude, with_inspector, with_package, with_raw
from acceptance_ends import capabilities, ends, roots
import acceptance_asks
import acceptance_config
import acceptance_hub
import real

PACKAGES = ("mcp1", "mcp2", "mcp2-auto", "ts1", "ts2", "ts2-auto", "ts2-listen")
CLIENTS = dict({"raw": with_raw, "claude": with_claude}, **{which: with_package(which) for which in PACKAGES})
CLIENTS.update(inspector=with_inspector, ends=ends)


def sections():
    """{name: (function, server)} in the order of the report."""
    found = {"%s:%s" % (name, client): (CLIENTS[client], name) for name in real.SERVERS for client in CLIENTS}
    found["filesystem:roots"] = (roots, "filesystem")
    found["everything:capabilities"] = (capabilities, "everything")
    found["everything:state"] = (state, "everything")
    found["py2:late"] = (late, "py2")
    found.update(("config:" + which, (acceptance_config.configured, which)) for which in acceptance_config.CLIENTS)
    found.update(("hub:" + which, (acceptance_hub.behind_a_hub, which)) for which in acceptance_hub.CLIENTS)
    found["hub:asks"] = (acceptance_asks.asks, "asks")
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
