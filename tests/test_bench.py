"""tools/bench.py: its programs work, its verdicts are right, and all its rows come out of a real run.

Nothing here asserts a tight ratio: a shared machine is noisy, and the budgets are for a quiet one.
"""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "tools" / "bench.py"
BARE = [sys.executable, "-I", "-S", str(BENCH)]


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output(argv, data):
    return subprocess.run(argv, input=data, stdout=subprocess.PIPE, timeout=20, check=True).stdout


def test_the_copy_loop_changes_nothing():
    data = b"x" * 1000000 + b"\n" + bytes(range(256))
    assert output(BARE + ["--copy-loop", "cat"], data) == data


def test_the_server_answers_what_the_bench_asks(bench):
    asked = [bench.INITIALIZE, bench.INITIALIZED, bench.LIST, bench.call_line(b"echo", bench.filler(500000)),
             bench.call_line(b"big 70000"), bench.call_line(b"flood 4 js 2"),
             b'{"jsonrpc": "2.0", "id": "a-1", "method": "resources/list"}\n']
    answers = [json.loads(line) for line in output(BARE + ["--server"], b"".join(asked)).splitlines()]
    assert [message.get("id") for message in answers] == [0, 1, 7, 7, None, None, None, None, 7, "a-1"]
    assert len(answers[1]["result"]["tools"]) == 10
    assert len(json.dumps(answers[3]["result"])) > 70000
    assert answers[-1]["error"]["code"] == -32601


def test_filler_has_the_size_and_is_json(bench):
    for size in (0, 1, 59, 60, 61, 1000):
        assert len(bench.filler(size)) == size
        json.loads(b'"%b"' % bench.filler(size))


@pytest.mark.parametrize("relay, more, verdict", [
    (1.0, False, "aim"), (1.5, False, "must"), (3.0, False, "MISS"),
    (3.0, True, "aim"), (1.5, True, "must"), (0.5, True, "MISS")])
def test_a_verdict_compares_with_aim_and_must(bench, relay, more, verdict):
    must, aim = (1.5, 2.5) if more else (1.9, 1.4)
    assert bench.ratio("what", "unit", 1.0, relay, must, aim, more).verdict == verdict


def test_rows_that_do_not_exist_are_a_usage_error():
    assert subprocess.run([sys.executable, str(BENCH), "--rows", "11"], stderr=subprocess.PIPE,
                          timeout=20).returncode == 2


@pytest.mark.slow
def test_a_quick_run_gives_every_row():
    ran = subprocess.run([sys.executable, str(BENCH), "--quick", "--json", "--seconds", "1"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=50)
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stderr == b"", "the relay started its server for recorded answers, or spoke"
    rows = json.loads(ran.stdout)["rows"]
    on_linux = sys.platform.startswith("linux")
    assert {row["row"] for row in rows} == set(range(1, 11)) - (set() if on_linux else {2, 3, 8})
    for row in rows:
        assert math.isfinite(row["result"]), row
        if row["row"] == 3:
            assert row["relay"] == 0, row
