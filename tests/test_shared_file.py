"""Several programs write one recording at once, and some are killed in the middle (A5.7, case 055).

Each round: two relays and a check start together on a command that nothing is recorded of; one of the three may be killed
with SIGKILL at a random moment.  Then the file must parse, and hold what every writer that ended well had learnt.

MCP_LAZY_FULL=1 makes it 200 rounds (about two minutes), else it is 20.
"""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from harness import VERSION, until

import mcp_lazy

ROUNDS = 200 if os.environ.get("MCP_LAZY_FULL") else 20
WRITERS = {"one": {}, "two": {"roots": {}}, "check": {"sampling": {}}}


class Writer:
    """A relay with a cold session, or a check; `done` once it ended by itself with success."""

    def __init__(self, box, fake, name):
        self.name, self.process = name, None
        capabilities = json.dumps(WRITERS[name])
        params = '{"protocolVersion":"%s","capabilities":%s,"clientInfo":{"name":"w","version":"1"}}' % (VERSION, capabilities)
        if name == "check":
            argv, lines = ["--check", "--", *fake.argv], ""
            env = box.env(MCP_LAZY_CHECK_INITIALIZE=params, MCP_LAZY_CHECK_BEFORE="[]")
        else:
            argv, env = ["--drain=5s", "--", *fake.argv], box.env()
            lines = ('{"jsonrpc":"2.0","id":0,"method":"initialize","params":%s}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
                     '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n') % params
        self.process = subprocess.Popen(box.command(*argv), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.process.stdin.write(lines.encode())
        self.process.stdin.close()

    def finished(self):
        """True if it said what it had to say and ended with 0."""
        out = self.process.stdout.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(20) == 0 and (b'"tools"' in out or b'"ok":true' in out)


def recorded(path):
    recording = mcp_lazy.Recording([])
    raw = path.read_bytes()
    json.loads(raw)
    assert recording.read(raw), "a file that does not parse"
    return {entry.capabilities: entry for entry in recording.entries.values()}


def digest(capabilities):
    return mcp_lazy.entry_key(VERSION, capabilities, "")[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a5_7_case_055_two_relays_and_a_check_write_one_file(box):
    seed = int(os.environ.get("MCP_LAZY_SEED", time.time()))
    rng, ended, killed = random.Random(seed), 0, 0
    for number in range(ROUNDS):
        fake = box.fake(words=["round-%d" % number], tools=2)
        before = {path.name for path in box.recordings()}
        writers = [Writer(box, fake, name) for name in rng.sample(sorted(WRITERS), 3)]
        victim = rng.choice(writers + [None])
        if victim is not None:
            end_s = time.monotonic() + rng.random() * 0.12
            until(lambda: time.monotonic() >= end_s or victim.process.poll() is not None, what="the moment")
            victim.process.send_signal(signal.SIGKILL)
        good = [writer.name for writer in writers if writer.finished()]
        assert len(good) >= 2, ("seed", seed, number, good)
        ended, killed = ended + len(good), killed + (3 - len(good))
        (path,) = [path for path in box.recordings() if path.name not in before]
        found = recorded(path)
        for name in good:
            entry = found.get(digest(WRITERS[name]))
            assert entry is not None and entry.opening() and "tools/list" in entry.answers, ("seed", seed, number, name, good)
    assert killed, "no round tested what it is for"
