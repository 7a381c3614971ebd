"""Shows which modules a sleeping relay has loaded when its first answer leaves.

    python3 tools/startup.py                     prints them, per way of starting
    python3 tools/startup.py --check             exit 1 when one is not on the frozen list
    python3 tools/startup.py --module OTHER.py   another file

Every import before that moment is paid by every registered server of every client at each
start.  The relay is warm: a first session with the built-in example server records, a second
one is looked at.  A spy on `posix.write` sees the first byte that goes to descriptor 1.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading

MODULE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mcp_lazy.py")
# Beside what the interpreter loads for an empty program, which is asked for at run time.
ALLOWED = {"_json", "_sha2", "_sha256", "errno", "mcp_lazy"}
SESSION = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"startup","version":"1"}}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
SPY = """
def spy(name, side_path):
    import posix, sys
    real, seen = getattr(posix, name), []
    def spied(fd, data):
        if fd == 1 and not seen:
            seen.append(fd)
            side = posix.open(side_path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
            posix.write(side, " ".join(sorted(sys.modules)).encode())
            posix.close(side)
        return real(fd, data)
    for module in {"posix", "os"} & set(sys.modules):
        setattr(sys.modules[module], name, spied)
spy("write", %r), spy("writev", %r)
del spy
"""
# The first line of the module: flags and a program. `python3 -m` in words a spy can precede.
SHEBANG = re.compile(r'#!/usr/bin/env -S python3 (.*) -c "(.*)"$')
AS_MODULE = "import runpy; runpy.run_module(%r, run_name='__main__', alter_sys=True)"
LIMIT_S = 10


class Stage:
    """A private directory with a recording, an example server and a log of its starts."""

    def __init__(self, directory, module):
        self.directory, self.module = directory, os.path.abspath(module)
        self.side, self.starts, self.server = map(self.path, ("modules", "starts", "server"))
        with open(self.server, "w") as file:
            file.write("#!/bin/sh\necho started >> '%s'\nexec '%s' '%s' demo --server\n"
                       % (self.starts, sys.executable, self.module))
        os.chmod(self.server, 0o700)
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("PYTHON", "MCP_LAZY_"))}
        self.env.update(XDG_CACHE_HOME=self.path("cache"), MCP_LAZY_CACHE_DIR=self.path("recordings"))

    def path(self, name):
        return os.path.join(self.directory, name)

    def session(self, command):
        """Runs a relay through one whole session; returns the two answers."""
        relay = subprocess.Popen(command + [self.server], stdin=subprocess.PIPE, env=self.env,
                                 stdout=subprocess.PIPE, cwd=os.path.dirname(self.module))
        watchdog = threading.Timer(LIMIT_S, relay.kill)
        watchdog.start()
        try:
            with relay:
                return [self.ask(relay, lines) for lines in SESSION]
        except BrokenPipeError:
            return [b""]
        finally:
            watchdog.cancel()

    def ask(self, relay, lines):
        relay.stdin.write(lines)
        relay.stdin.flush()
        return relay.stdout.readline()

    def started(self):
        """How often the server was started so far."""
        with open(self.starts, "a+") as file:
            file.seek(0)
            return len(file.readlines())


def commands(stage):
    """(title, an empty program, the relay under the spy) per way of starting."""
    with open(stage.module, encoding="utf-8") as file:
        shebang = SHEBANG.match(file.readline().rstrip("\n"))
    empty, spy = stage.path("empty_program.py"), SPY % (stage.side, stage.side)
    with open(empty, "w") as file:
        file.write("import sys; print(*sys.modules)")
    if not shebang:
        sys.exit("the first line of %s does not start Python with -c" % stage.module)
    bare = [sys.executable, *shebang[1].split(), "-c"]
    yield "as a file", bare + [shebang[2], empty], bare + [spy + shebang[2], stage.module]
    name = os.path.splitext(os.path.basename(stage.module))[0]
    elsewhere = "import sys; sys.path[0] = %r; " % stage.directory
    yield ("as a module", [sys.executable, "-c", elsewhere + AS_MODULE % "empty_program"],
           [sys.executable, "-c", spy + AS_MODULE % name])


def look(stage, empty, spied):
    """(modules beside the empty program's, complaints) of a warm start."""
    base = set(subprocess.run(empty, stdout=subprocess.PIPE, env=stage.env, check=True,
                              universal_newlines=True).stdout.split())
    answers = stage.session(spied)
    cold = stage.started()
    answers += stage.session(spied)
    complaints = []
    if not all(b'"result"' in answer for answer in answers):
        complaints.append("answers are missing or errors: %r" % answers)
    if stage.started() > cold:
        complaints.append("the second session started the server, so it was not warm")
    if not os.path.exists(stage.side):
        return [], complaints + ["nothing was written to descriptor 1 through posix.write"]
    with open(stage.side) as file:
        return sorted(set(file.read().split()) - base), complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a module is too much")
    parser.add_argument("--module", default=MODULE, help="the module to start")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage(directory, options.module)
        for title, empty, spied in commands(stage):
            modules, complaints = look(stage, empty, spied)
            print("%s: %s" % (title, " ".join(modules)))
            extra = [name for name in modules if name not in ALLOWED]
            if extra:
                complaints.append("too much before the first answer: " + " ".join(extra))
            found += ["%s: %s" % (title, text) for text in complaints]
    for text in found:
        print(text)
    return 1 if found and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
