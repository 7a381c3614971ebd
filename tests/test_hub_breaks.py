"""What broke the hub when somebody tried: one test for each kind of fault (issue 5)."""

import sys

import pytest

from test_hub import KEY, entry, made_once, start  # noqa: F401

# Answers tools/call by the name of the tool; a line for each thing that a server may do wrong.
ODD = r"""import json, sys
def say(**more):
    sys.stdout.write(json.dumps(dict(more, jsonrpc="2.0")) + "\n")
    sys.stdout.flush()
asked = []
for line in sys.stdin:
    said = json.loads(line)
    method, ident = said.get("method"), said.get("id")
    if method == "initialize":
        say(id=ident, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "o", "version": "1"}})
    elif method == "tools/list":
        say(id=ident, result={"tools": []})
    elif method == "tools/call":
        name = said["params"]["name"]
        if name == "long":
            sys.stdout.write("x" * (65 << 20) + "\n")
            sys.stdout.flush()
        elif name == "ask":
            say(id="q%d" % len(asked), method="elicitation/create", params={"message": "?", "requestedSchema": {"type": "object"}})
            asked.append(ident)
        elif name == "nothing":
            say(id=ident)
        elif name == "text":
            say(id=ident, error="bad")
        elif name == "well":
            say(id=ident, result={"content": []})
        elif name == "noisy end":
            sys.stderr.write("the reason\n" + "y" * 90000)
            sys.exit(3)
"""


def odd(**more):
    return entry("odd", [sys.executable, "-I", "-c", ODD], **more)


@pytest.mark.slow
def test_a_line_that_is_too_long_ends_the_server_and_not_its_use(box):
    """G9.2, case 005: the call fails, the next one starts the server anew."""
    hub = start(box, [odd()])
    failure = hub.invoke_fails("odd", "long", timeout=30)
    assert "longer than allowed" in failure.text or "more than" in failure.text
    assert hub.invoke("odd", "well", timeout=20) == {"content": []}


def test_a_question_whose_call_was_cancelled_is_withdrawn_and_holds_no_clock(box):
    """G9.2, G4.3: the client is told to forget it, and the next call has its limit again."""
    hub = start(box, [odd(requestTimeout=400)], capabilities={"elicitation": {}})
    call = hub.start_invoke("odd", "ask")
    question = hub.until_message(lambda found: found.get("method") == "elicitation/create")
    hub.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    told = hub.until_message(lambda found: found.get("method") == "notifications/cancelled")
    assert told["params"]["requestId"] == question["id"]
    assert hub.invoke_fails("odd", "silent").code == "SERVER_TIMEOUT"


def test_a_question_of_a_server_that_dies_is_withdrawn(box):
    hub = start(box, [odd()], capabilities={"elicitation": {}})
    call = hub.start_invoke("odd", "ask")
    question = hub.until_message(lambda found: found.get("method") == "elicitation/create")
    hub.invoke_fails("odd", "noisy end")
    assert hub.failed(call).code == "SERVER_CRASHED"
    told = hub.until_message(lambda found: found.get("method") == "notifications/cancelled")
    assert told["params"]["requestId"] == question["id"]


def test_an_answer_without_result_or_error_is_told_as_that(box):
    """Case 144 (3)."""
    hub = start(box, [odd()])
    assert "without result or error" in hub.invoke_fails("odd", "nothing").text
    assert '"bad"' in hub.invoke_fails("odd", "text").text


def test_the_end_of_stderr_is_told_although_its_last_line_is_long(box):
    """G9.1."""
    hub = start(box, [odd()])
    assert "Details: " in hub.invoke_fails("odd", "noisy end").text


def test_a_call_within_the_backoff_is_told_when_it_may_come_again(box):
    """Case 182."""
    hub = start(box, [entry("gone", ["/nonexistent/program"])])
    texts = [hub.invoke_fails("gone", "x").text for _ in range(4)]
    assert "not tried again for" not in texts[0] and "not tried again for" in texts[-1]


def test_what_is_wrong_in_the_file_is_a_line_of_the_log_for_each_server(box):
    """Case 199."""
    hub = start(box, [odd(), entry("typo", ["x"], env={"A": 5}), {"name": "web", "description": "d", "url": "https://example.com/mcp"}])
    hub.rows()
    told = {line["server"]: line["state"] for line in hub.log() if line.get("event") == "server_state"}
    assert told == {"typo": "error", "web": "unsupported"}


def test_discovery_of_2026_tells_the_server_in_meta(box):
    """protocol.md 2: the final schema moved serverInfo there."""
    hub = start(box, [odd()])
    assert hub.result(hub.modern("server/discover"))["_meta"][KEY + "serverInfo"]["name"] == "lazy-mcp-proxy"


def test_a_call_that_a_reload_stops_is_told_so(box):
    """G11.5: open calls get their time; then the reason is not the server's."""
    hub = start(box, [odd(requestTimeout=60000)])
    call = hub.start_invoke("odd", "silent")
    hub.until_state("odd", "live")
    path = next(box.path.glob("servers-*.json"))
    path.write_text(path.read_text().replace("the server odd", "another one"))
    hub.signal(1)
    assert "by a reload" in hub.failed(call, timeout=12).text


def test_a_server_that_talks_garbage_is_not_called_slow(box):
    hub = start(box, [entry("garbage", ["sh", "-c", "while read x; do echo 'Welcome to my server'; done"], startTimeout=400)])
    text = hub.invoke_fails("garbage", "x").text
    assert "no JSON-RPC, it begins: Welcome to my server" in text and "startTimeout\" of this server" not in text
