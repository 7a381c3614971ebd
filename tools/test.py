#!/usr/bin/env python3
"""Runs the test suite on a machine that has nothing but Python.

    python3 tools/test.py                         everything but network tests, two halves at once
    python3 tools/test.py --python python3.9      the same on another Python
    python3 tools/test.py -k layers -x            all other words go to pytest

Makes a virtual environment in .venv/MAJOR.MINOR (in the user's cache or temp directory where the
checkout cannot be written), installs the test packages, returns pytest's status; 2 before that.
"""
# Old interpreters must get as far as the version check: no f-strings, no annotations.

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ["pytest<10", "pytest-timeout", "tomli-w"]  # 10 drops fixtures of a class that are methods
OLDEST = (3, 9)
# Printed by an interpreter: its version in two words, and what tells two builds apart.
ASK = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.base_prefix, sys.version.split()[0])"
READY = "import pytest, pytest_timeout, tomli_w; " + ASK


class Trouble(Exception):
    """What is missing, and what to do about it, in one line."""


def output(command):
    """What a command prints, or None when it cannot run or fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def find_python(word):
    """(path, "3.11", identity) of the interpreter that a person named, None for this one."""
    path = sys.executable if word is None else shutil.which(os.path.expanduser(word))
    if not path:
        raise Trouble("no Python at '%s'; give the path of an interpreter after --python" % word)
    answer = (output([path, "-c", ASK]) or "").splitlines()
    if len(answer) != 2:
        raise Trouble("%s does not run as Python 3; give another path after --python" % path)
    version, identity = answer
    if tuple(int(part) for part in version.split(".")) < OLDEST:
        raise Trouble("%s is Python %s, the tests need 3.9 or later; use --python PATH"
                      % (path, version))
    return path, version, identity


def places(version):
    """Directories for the environment, best first."""
    name = "mcp-lazy-tests-%s-%s" % (os.getuid(), hashlib.sha256(ROOT.encode()).hexdigest()[:8])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [os.path.join(base, version) for base in
            (os.path.join(ROOT, ".venv"), os.path.join(cache, name),
             os.path.join(tempfile.gettempdir(), name))]


def writable(version):
    """The first place that can be written and lies in a directory of this user's own."""
    for place in places(version):
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK) and os.stat(os.path.dirname(place)).st_uid == os.getuid():
            return place
    raise Trouble("no directory can be written, tried %s; set TMPDIR to one that can"
                  % ", ".join(places(version)))


def environment(python, version, identity):
    """The path of an interpreter that has the test packages; made when there is none."""
    place = writable(version)
    inner = os.path.join(place, "bin", "python")
    answer = output([inner, "-c", READY])
    if answer and answer.splitlines()[1:2] == [identity]:
        return inner
    make(python, version, place)
    install(inner)
    if output([inner, "-c", READY]) is None:
        raise Trouble("the test packages do not import in %s; remove it and try again" % place)
    return inner


def make(python, version, place):
    """A fresh virtual environment with pip."""
    if output([python, "-c", "import venv, ensurepip"]) is None:
        raise Trouble("Python %s has no venv or ensurepip module; install it (Debian and Ubuntu:"
                      " apt install python3-venv) or use --python PATH" % version)
    print("making a virtual environment in %s" % os.path.relpath(place), flush=True)
    shutil.rmtree(place, ignore_errors=True)
    failure = complaint([python, "-m", "venv", place])
    if failure:
        raise Trouble("python -m venv failed (%s); use --python PATH" % failure)


def install(inner):
    """The test packages by name, from wherever pip is set up to look."""
    if output([inner, "-m", "pip", "--version"]) is None:
        raise Trouble("the virtual environment has no working pip; install it (Debian and Ubuntu:"
                      " apt install python3-pip python3-venv) or use --python PATH")
    failure = complaint([inner, "-m", "pip", "install", "--quiet", "--retries", "2",
                         "--disable-pip-version-check"] + PACKAGES)
    if failure:
        raise Trouble("pip cannot install %s (%s); check the network or pip's configuration and"
                      " try again" % (", ".join(PACKAGES), failure))


def complaint(command):
    """None when a command succeeds, else its last line or its status."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    lines = done.stdout.decode("utf-8", "replace").split("\n") if done.returncode else []
    said = [line.strip() for line in lines if line.strip()]
    return (said or ["status %d" % done.returncode])[-1] if done.returncode else None


def main(words):
    if sys.version_info < OLDEST:
        print("tools/test.py: this is Python %d.%d, the tests need 3.9 or later; run it with a newer"
              " python3" % sys.version_info[:2], file=sys.stderr)
        return 2
    python = None
    if words[:1] == ["--python"]:
        python, words = "".join(words[1:2]), words[2:]
    elif words[:1] and words[0].startswith("--python="):
        python, words = words[0][len("--python="):], words[1:]
    try:
        inner = environment(*find_python(python))
    except Trouble as trouble:
        print("tools/test.py: %s" % trouble, file=sys.stderr)
        return 2
    if words:
        return subprocess.call([inner, "-m", "pytest"] + words, cwd=ROOT)
    from shards import run_tests
    return run_tests([inner, "-m", "pytest"], ROOT)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
