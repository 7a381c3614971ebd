"""The demo: its timeline, its JSON, and that nothing stays behind (design 2, L15)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from harness import LINUX, MODULE, marked, until

pytestmark = [pytest.mark.skipif(not LINUX, reason="reads /proc"), pytest.mark.slow]


def left_behind(box):
    """Files that a demo leaves, its bytecode apart."""
    until(lambda: not marked(box.mark), what="the end of all processes")
    return [str(path) for path in box.path.rglob("*") if path.is_file() and "python" not in path.parts and path.suffix != ".pyc"]


def test_the_timeline_for_people(box):
    begun = time.monotonic()
    status, out, errors = box.run("demo")
    took = time.monotonic() - begun
    assert status == 0 and errors == "" and took < 5
    text = out.decode("ascii")
    rows = [line.split() for line in text.splitlines() if line[:9].strip().isdigit()]
    assert [row[1] for row in rows] == ["cold", "cold", "cold", "warm", "warm", "wake", "wake", "idle", "idle", "end"]
    for word in ("cold", "warm", "wake", "idle"):
        assert "%s:" % word in text, "each word is explained"
    assert all(len(line) < 120 for line in text.splitlines())
    assert left_behind(box) == []


def test_the_timeline_as_one_json_document(box):
    begun = time.monotonic()
    status, out, errors = box.run("demo", "--json")
    assert status == 0 and errors == "" and time.monotonic() - begun < 5
    assert out.count(b"\n") == 1 and out.endswith(b"\n")
    found = json.loads(out)
    assert set(found) == {"version", "rows"}
    times = [row["at_ms"] for row in found["rows"]]
    assert times == sorted(times)
    for row in found["rows"]:
        assert set(row) == {"at_ms", "phase", "what", "took_ms", "server_processes", "relay_mib", "server_mib"}
    assert left_behind(box) == []
    check(found["rows"])


def check(timeline):
    """Cold: the server is there. Warm and idle: answers, and no server process. The end: nobody."""
    phases = {}
    for row in timeline:
        phases.setdefault(row["phase"], []).append(row)
    assert list(phases) == ["cold", "warm", "wake", "idle", "end"]
    assert [row["server_processes"] for row in phases["cold"]] == [1, 1, 0]
    assert [row["server_processes"] for row in phases["warm"] + phases["idle"]] == [0, 0, 0, 0]
    assert [row["server_processes"] for row in phases["wake"]] == [1, 1]
    assert [row["server_processes"] for row in phases["end"]] == [0]
    cold, warm, wake = phases["cold"][0]["took_ms"], phases["warm"][0]["took_ms"], phases["wake"]
    assert cold >= 250, "the server needs so long to start"
    assert warm < cold and wake[0]["took_ms"] >= 250 > wake[1]["took_ms"]
    assert phases["idle"][0]["took_ms"] >= 500 and phases["idle"][1]["took_ms"] < 100
    for row in phases["warm"] + phases["idle"]:
        assert row["server_mib"] == 0 and row["relay_mib"] > 1
    assert all(row["server_mib"] > 1 for row in phases["wake"])


def test_words_that_the_demo_does_not_know(box):
    for words in (["--nope"], ["--json", "x"], ["x"], ["--json", "--json"]):
        status, out, errors = box.run("demo", *words)
        assert (status, out) == (2, b"") and errors.startswith("mcp-lazy: ") and errors.count("\n") == 1


def test_variables_of_a_registration_do_not_disturb_the_demo(box):
    """A shell that has MCP_LAZY_... exported for its relays shows the same timeline, and its recordings are left alone."""
    env = box.env(MCP_LAZY_IDLE_STOP="1h", MCP_LAZY_WAKE_COMMAND='["true"]', MCP_LAZY_NAME="mine", MCP_LAZY_START_TIMEOUT="nonsense")
    status, out, errors = box.run("demo", "--json", env=env)
    assert status == 0 and errors == ""
    assert [row["server_processes"] for row in json.loads(out)["rows"] if row["phase"] in ("warm", "idle")] == [0, 0, 0, 0]
    assert left_behind(box) == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_demo_that_is_ended_leaves_no_process(box, name):
    process = subprocess.Popen(box.command("demo"), env=box.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: len(marked(box.mark)) >= 3, what="demo, relay and server")
        process.send_signal(getattr(signal, name))
        process.wait(5)
    finally:
        process.kill()
        process.communicate()
    until(lambda: not marked(box.mark), 4.0, "the end of all processes")


def test_a_copy_of_the_one_file_alone(box):
    """In an empty directory, as an executable file, with the system's own interpreter where there is one, and no HOME."""
    folder = box.path / "alone"
    folder.mkdir()
    copy = shutil.copy(str(MODULE), str(folder / "mcp-lazy"))
    os.chmod(copy, 0o755)
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    check = "import sys; sys.exit(sys.version_info < (3, 9))"
    if subprocess.run([python, "-I", "-S", "-c", check], stderr=subprocess.DEVNULL).returncode:
        python = sys.executable
    (box.path / "python" / "python3").unlink()
    (box.path / "python" / "python3").symlink_to(python)
    status, out, errors = box.run(argv=[copy, "demo", "--json"], cwd=str(folder), env=box.env(HOME=None, MCP_LAZY_CACHE_DIR=None))
    assert status == 0 and errors == ""
    assert [row["server_processes"] for row in json.loads(out)["rows"]] == [1, 1, 0, 0, 0, 1, 1, 0, 0, 0]
    assert os.listdir(str(folder)) == ["mcp-lazy"], "nothing is written beside it"
    until(lambda: not marked(box.mark), what="the end of all processes")
