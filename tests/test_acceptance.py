"""Two quick servers of tools/acceptance.py, from the registry, one of either era; all of it is run by hand."""

import json
import shutil
import subprocess
import sys

import pytest

import harness

TOOL = harness.ROOT / "tools" / "acceptance.py"
TOOL_S = 540


def acceptance(*words):
    return subprocess.run([sys.executable, str(TOOL)] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=TOOL_S, universal_newlines=True)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(TOOL_S + 30)
def test_a_real_server_direct_and_through_the_relay():
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    done = acceptance("--only", "memory:raw", "--only", "memory:ends", "--only", "ts2:claude", "--json")
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    missing = [line["detail"] for line in report if line["verdict"] == "not run"]
    if missing:
        pytest.skip("no server to try: %s" % missing[0])
    failed = ["%(section)s %(check)s: %(detail)s" % line for line in report if line["verdict"] == "FAIL"]
    assert not failed and done.returncode == 0, "\n".join(failed) + done.stderr


def test_sections_can_be_listed_and_chosen():
    assert "memory:ends" in acceptance("--list").stdout.split()
    assert acceptance("--list", "--only", "memory:ends").stdout.split() == ["memory:ends"]
    assert {"py2:late", "ts2:claude", "ts2:ts2-auto"} <= set(acceptance("--list").stdout.split())
    assert acceptance("--only", "nothing").returncode == 2


def test_the_clients_whose_registrations_are_edited_are_listed():
    clients = {"claude", "codex", "gemini", "opencode", "qwen", "copilot"}
    assert {"config:" + client for client in clients} <= set(acceptance("--list").stdout.split())
    assert acceptance("--list", "--only", "config:codex").stdout.split() == ["config:codex"]
