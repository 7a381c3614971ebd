"""Recordings on disk: where, how private, how they survive others (A4-A6, cases 051-060)."""

import copy
import json
import os
import random
import shutil
import signal
import stat
import sys
import threading
import time

import pytest

from harness import INITIALIZED, VERSION, become_nobody, initialize, message, until

slow = pytest.mark.slow
ROOT = os.geteuid() == 0
RICH = ('{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":false},"experimental":{"a/b":{"deep":[1.0,null,1e2]}}},'
        '"serverInfo":{"name":"shelf","version":"7.7.7","title":"Regal \u00fc","icons":[{"src":"data:,"}],"websiteUrl":"https://example.org/?a=1&b=<2>"},'
        '"instructions":"First\\nthen \\"this\\".\\u2028End\\/","_meta":{"k/v":1E+2},"later":{"x":[],"y":-0.0}}')


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


def warm_again(box, fake, *options, env=None, expect=True, cwd=None, **handshake):
    """Whether a session is answered from a recording; ends it."""
    starts = fake.starts()
    relay = box.relay(fake, *options, env=env, cwd=cwd)
    relay.handshake(**handshake)
    found = fake.starts() == starts
    relay.finish()
    assert found is expect, "warm" if found else "cold"


# ------------------------------------------------------------------------------------ where (A4, A5.1)

def test_a4_1_the_users_cache_directory(box):
    """XDG_CACHE_HOME when absolute; else HOME's .cache; an empty one is none."""
    fake = box.fake()
    absolute = box.path / "xdg"
    for xdg, place in ((str(absolute), absolute), ("", box.home / ".cache"), (None, box.home / ".cache")):
        shutil.rmtree(str(place), ignore_errors=True)
        box.record(fake, env=box.env(XDG_CACHE_HOME=xdg, MCP_LAZY_CACHE_DIR=None))
        assert len(box.recordings(place / "mcp-lazy")) == 1, xdg


@pytest.mark.parametrize("more", [{"XDG_CACHE_HOME": "relative/dir"}, {"HOME": ""}, {"HOME": None}])
def test_a4_3_the_fallback_is_private_in_the_temp_dir(box, more):
    fake = box.fake()
    env = box.env(MCP_LAZY_CACHE_DIR=None, **more)
    box.record(fake, env=env)
    place = box.path / "tmp" / ("mcp-lazy-%d" % os.getuid())
    assert len(box.recordings(place)) == 1
    assert mode(place) == 0o700
    warm_again(box, fake, env=env)


def test_a4_2_the_option_is_used_as_it_is(box):
    fake = box.fake()
    relay = box.relay(fake, "--cache-dir", "some/where", cwd=str(box.path), env=box.env(MCP_LAZY_CACHE_DIR="/none"))
    relay.handshake()
    relay.finish()
    assert len(box.recordings(box.path / "some" / "where")) == 1


def test_a5_1_a5_4_a5_5_names_modes_and_form(box):
    fake = box.fake()
    umask = os.umask(0)
    try:
        box.record(fake)
    finally:
        os.umask(umask)
    (file,) = box.recordings()
    stem = file.name[:-len(".json")]
    assert len(stem) == 32 and not set(stem) - set("0123456789abcdef")
    assert mode(box.cache) == 0o700 and mode(file) == 0o600
    text = file.read_bytes()
    assert text.endswith(b"}\n")
    for name in os.listdir(str(box.cache)):
        assert not name.startswith(".tmp-"), "nothing is left of the writing"
        assert mode(box.cache / name) & 0o077 == 0, name
    found = json.loads(text)
    assert found["schema"] == 2 and isinstance(found["program"], list)
    (entry,) = found["entries"]
    assert entry["protocolVersion"] == VERSION and entry["initialize"]["serverInfo"] == {"name": "fake", "version": "1"}
    assert entry["serverInfo"] == {"name": "fake", "version": "1"}
    assert abs(entry["recordedAt"] / 1000 - time.time()) < 60
    assert set(entry["lists"]) == {"tools/list"}
    for member in ("era", "capabilities", "scope"):
        assert member in entry


def test_a5_4b_start_requests_are_recorded(box):
    fake = box.fake(ask_roots=True)
    cold = box.relay(fake)
    cold.handshake(capabilities={"roots": {}})
    asked = cold.until_message(lambda one: one.get("method") == "roots/list")
    cold.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
    cold.ask("tools/list")
    cold.call("pid")
    cold.finish()
    assert box.recording()["entries"][0]["startRequests"] == ["roots/list"]


# ----------------------------------------------------------------------------------- what (A5.4, A6)

def test_case_051_a5_4_the_recording_is_the_servers_own_result(box):
    """Warm and cold results are equal byte for byte."""
    fake = box.fake(init_raw=RICH, list_raw={"tools/list": '{"tools":[{"name":"\\u0061","inputSchema":{"type":"object","n":1.50}}],"x":[]}'})
    results = []
    for _ in range(2):
        relay = box.relay(fake)
        relay.send(initialize(0), INITIALIZED, message("tools/list", 1))
        results.append(sorted(relay.line() for _ in range(2)))
        relay.finish()
    assert fake.starts() == 1
    assert results[0] == results[1]
    assert any(RICH.encode() in line for line in results[1])


def test_a5_4_insignificant_space_may_go_spelling_stays(box):
    fake = box.fake(init_raw='{ "protocolVersion" : "2025-06-18", "capabilities":{} , "serverInfo":{"name":"a  b","version":"1"}, "n":[1.0, 2e1 ] }')
    box.record(fake, lists=())
    relay = box.relay(fake)
    relay.send(initialize(0))
    line = relay.line()
    assert b"1.0" in line and b"2e1" in line and b'"a  b"' in line and fake.starts() == 1


def test_case_052_lists_the_server_does_not_have(box):
    """Only what was recorded; -32601 comes back as it is, cold and (a6.3) recorded; nothing is made up."""
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    for method in ("prompts/list", "resources/templates/list"):
        assert relay.error(relay.request(method)) == {"code": -32601, "message": "no such method"}
    relay.ask("tools/list")
    relay.finish()
    relay = box.relay(fake)
    relay.handshake()
    for method in ("prompts/list", "resources/templates/list"):
        assert relay.error(relay.request(method)) == {"code": -32601, "message": "no such method"}
    assert fake.starts() == 1
    assert relay.error(relay.request("resources/list"))["code"] == -32601
    assert fake.starts() == 2, "what was not recorded is asked"


def test_a6_3_not_found_is_replaced_by_the_first_success(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    relay.error(relay.request("prompts/list"))
    relay.finish()
    fake.set(prompts=2)
    relay = box.relay(fake)
    relay.handshake()
    relay.call("pid")  # a live server
    assert len(relay.ask("prompts/list")["prompts"]) == 2
    relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("prompts/list")["prompts"]) == 2 and fake.starts() == starts


def test_case_055_a6_3_errors_are_not_recorded(box):
    fake = box.fake(refuse={"tools/list": {"code": -32603, "message": "index not ready", "times": 1}})
    relay = box.relay(fake)
    relay.handshake()
    assert relay.error(relay.request("tools/list"))["code"] == -32603
    relay.finish()
    assert box.recording()["entries"][0].get("lists", {}) == {}
    relay = box.relay(fake)
    relay.handshake()
    assert relay.error(relay.request("tools/list"))["code"] == -32603, "asked again of a fresh server"
    assert relay.ask("tools/list")["tools"]
    relay.finish()
    relay = box.relay(fake)
    relay.handshake()
    starts = fake.starts()
    assert relay.ask("tools/list")["tools"] and fake.starts() == starts


@pytest.mark.parametrize("refusal", [{"code": -32602, "message": "no"}, {"code": -32601, "message": "no"}])
def test_a6_1_a_failed_handshake_is_not_recorded(box, refusal):
    fake = box.fake(refuse={"initialize": refusal})
    relay = box.relay(fake)
    relay.send(initialize())
    assert relay.error(0) == refusal, "the server's own answer"
    relay.finish()
    assert not box.recordings() or not box.recording()["entries"]


def test_a6_3_other_parameters_are_not_recorded(box):
    fake = box.fake(prompts=1)
    relay = box.relay(fake)
    relay.handshake()
    relay.ask("tools/list", {"filter": "x"})
    relay.ask("prompts/list", {"_meta": {"progressToken": 3}})
    relay.finish()
    assert set(box.recording()["entries"][0]["lists"]) == {"prompts/list"}


def test_case_053_every_tool_once_cold_and_warm(box):
    """Lists of several pages: never the first page alone (recording all pages is A6.9, later)."""
    fake = box.fake(tools=25, page=10)
    for _ in range(2):
        relay = box.relay(fake)
        relay.handshake()
        names, params = [], None
        while True:
            found = relay.ask("tools/list", params)
            names += [tool["name"] for tool in found["tools"]]
            if "nextCursor" not in found:
                break
            params = {"cursor": found["nextCursor"]}
        assert names == ["tool%d" % n for n in range(25)]
        relay.finish()


def test_case_054_a_repeated_cursor_passes_untouched(box):
    fake = box.fake(list_raw={"tools/list": '{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":"SAME"}'})
    for _ in range(2):
        relay = box.relay(fake)
        relay.handshake()
        assert relay.ask("tools/list")["nextCursor"] == "SAME"
        assert relay.ask("tools/list", {"cursor": "SAME"})["nextCursor"] == "SAME"
        relay.finish()


def test_a9_2_a_list_that_became_paged_loses_its_record(box):
    fake = box.fake(tools=2)
    box.record(fake)
    fake.set(tools=25, page=10)
    relay = box.relay(fake)
    relay.handshake()
    relay.ask("tools/list")
    relay.call("pid")
    relay.until_message(lambda one: one.get("method") == "notifications/tools/list_changed")
    relay.finish()
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 10


def test_a6_1_a_different_live_handshake_empties_the_lists(box):
    """A live answer to the client's own initialize; a replayed one keeps them (A6.2, in the relay's tests)."""
    fake = box.fake(version="1")
    box.record(fake)
    fake.set(version="2")
    relay = box.relay(fake)
    relay.call("pid")  # before any handshake: the server runs, and the initialize goes to it (A7.11)
    assert relay.handshake()["serverInfo"]["version"] == "2"
    relay.finish()
    starts = fake.starts()
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["version"] == "2" and fake.starts() == starts
    relay.ask("tools/list")
    assert fake.starts() == starts + 1, "the old list went with the old handshake"


def test_a6_7_no_list_is_recorded_that_nobody_asked_for(box):
    fake = box.fake(prompts=1)
    box.record(fake, lists=())
    assert box.recording()["entries"][0].get("lists", {}) == {}
    assert "tools/list" not in fake.methods()


def test_a6_8_fill_asks_for_all_lists_behind_the_handshake(box):
    fake = box.fake(prompts=1, resources=1, templates=1)
    relay = box.relay(fake, "--fill")
    relay.handshake()
    until(lambda: box.recordings() and len(box.recording()["entries"][0]["lists"]) == 4, what="the fill")
    assert relay.barrier() == []
    relay.finish()
    idents = [one["id"] for one in fake.lines() if "list" in str(one["method"])]
    assert all(str(ident).startswith("mcp-lazy-fill-1-") for ident in idents) and len(set(idents)) == 4
    warm_again(box, fake, "--fill")


def test_a5_8_results_above_eight_megabytes_are_not_stored(box):
    fake = box.fake(list_raw={"tools/list": '{"tools":[{"name":"a","description":"%s","inputSchema":{}}]}' % ("d" * 100)})
    fake.set(list_raw={"tools/list": '{"tools":[{"name":"a","description":"%s","inputSchema":{}}]}' % ("d" * (9 << 20))})
    log = box.path / "log"
    relay = box.relay(fake, "--log-file", log)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"][0]["description"]) == 9 << 20
    relay.finish()
    assert box.recordings()[0].stat().st_size < 100000
    assert "8" in log.read_text()


# --------------------------------------------------------------------------- keys (A5.2, A5.9, case 056)

def script(box, name="server.py"):
    """A program file of its own, so that it can be touched and replaced."""
    from harness import FAKE
    target = box.path / name
    shutil.copy(str(FAKE), str(target))
    return target


def own(box, fake, program, *words):
    fake.argv = [sys.executable, "-I", "-S", str(program)] + [word for word in fake.argv if word.startswith("--")] + list(words)
    return fake


def test_a5_2_touching_or_replacing_the_program_is_a_miss(box):
    program = script(box)
    fake = own(box, box.fake(), program)
    box.record(fake)
    warm_again(box, fake)
    os.utime(str(program), (1, 1))
    warm_again(box, fake, expect=False)
    warm_again(box, fake)
    program.write_text(program.read_text() + "\n")
    warm_again(box, fake, expect=False)


@slow
def test_a5_2_case_056_any_other_word_is_a_miss(box):
    fake = box.fake(words=["a", "b"])
    box.record(fake)
    warm_again(box, fake)
    for words in (["a", "c"], ["b", "a"], ["a"], ["a", "b", ""], ["ab"], ["a\nb"]):
        other = copy.copy(fake)
        other.argv = fake.argv[:-2] + words
        warm_again(box, other, expect=False)
        warm_again(box, other)
    warm_again(box, fake)


def test_a5_2_neither_directory_nor_environment_nor_client_is_in_the_key(box):
    """Case 056 wants cwd and env entries in it; A5.2 leaves both to --cache-scope, and the specification wins."""
    fake = box.fake()
    box.record(fake)
    warm_again(box, fake, cwd="/")
    warm_again(box, fake, env=box.env(SESSION_ID="12345", TERM="xterm"))
    warm_again(box, fake, name="other-client", client_version="99")


def test_a5_2_a_relative_program_file_depends_on_the_directory(box):
    for name in ("one", "two"):
        (box.path / name).mkdir()
        script(box, name + "/server.py")
    fake = own(box, box.fake(), "server.py")
    warm_again(box, fake, cwd=str(box.path / "one"), expect=False)
    warm_again(box, fake, cwd=str(box.path / "one"))
    warm_again(box, fake, cwd=str(box.path / "two"), expect=False)


def test_design_6_data_files_among_the_words_are_not_looked_at(box):
    """A server with a database or log file as argument stays warm while that file changes."""
    data = box.path / "data.db"
    data.write_text("1")
    fake = box.fake(words=[str(data)])
    box.record(fake)
    data.write_text("22")
    os.utime(str(data), (5, 5))
    warm_again(box, fake)


def test_design_6_programs_among_the_words_are_looked_at(box):
    for name, executable in (("x.py", False), ("y.mjs", False), ("tool", True)):
        extra = box.path / name
        extra.write_text("1")
        extra.chmod(0o755 if executable else 0o644)
        fake = box.fake(words=[str(extra)])
        box.record(fake)
        warm_again(box, fake)
        os.utime(str(extra), (5, 5))
        warm_again(box, fake, expect=False)


def test_a5_1_word_0_is_found_on_path(box):
    """Another program of the same name is another key."""
    fake = box.fake()
    for name in ("one", "two"):
        bin_dir = box.path / name
        bin_dir.mkdir()
        tool = bin_dir / "srv"
        tool.write_text('#!/bin/sh\n# %s\nexec %s "$@"\n' % (name, " ".join(fake.argv[:4])))
        tool.chmod(0o755)
    fake.argv = ["srv"] + fake.argv[4:]
    env = {name: box.env(PATH="%s:%s" % (box.path / name, os.environ["PATH"])) for name in ("one", "two")}
    warm_again(box, fake, env=env["one"], expect=False)
    warm_again(box, fake, env=env["one"])
    warm_again(box, fake, env=env["two"], expect=False)


def test_a5_9_capabilities_of_the_client_stand_side_by_side(box):
    """A client's health check and its session; neither replaces the other (design section 6)."""
    fake = box.fake(by_caps=True)
    rich = {"elicitation": {"form": {}}, "roots": {"listChanged": True}}
    for capabilities, count in (({}, 1), (rich, 4)):
        box.record(fake, capabilities=capabilities)
    starts = fake.starts()
    assert starts == 2
    reordered = {"roots": {"listChanged": True}, "elicitation": {"form": {}}}
    for capabilities, count in (({}, 1), (rich, 4), (reordered, 4)):
        relay = box.relay(fake)
        relay.handshake(capabilities=capabilities)
        assert len(relay.ask("tools/list")["tools"]) == count
        relay.finish()
    assert fake.starts() == starts and len(box.recording()["entries"]) == 2


@pytest.mark.parametrize("scope, first, second", [
    ("client", {"name": "a"}, {"name": "b"}), ("client-version", {"client_version": "1"}, {"client_version": "2"})])
def test_a5_9_cache_scope_of_the_client(box, scope, first, second):
    fake = box.fake()
    option = "--cache-scope=" + scope
    warm_again(box, fake, option, expect=False, **first)
    warm_again(box, fake, option, **first)
    warm_again(box, fake, option, expect=False, **second)
    warm_again(box, fake, option, **first)
    assert len(box.recordings()) == 1, "the scope is in the entry, not in the file's name"


@slow
def test_a5_9_cache_scope_of_directory_and_environment(box):
    fake = box.fake()
    value = "scope-value-4711"
    for env, other in ((box.env(REGION=value), box.env(REGION="x")), (box.env(REGION=value), box.env())):
        shutil.rmtree(str(box.cache), ignore_errors=True)
        warm_again(box, fake, "--cache-scope=env:REGION", env=env, expect=False)
        warm_again(box, fake, "--cache-scope=env:REGION", env=env)
        warm_again(box, fake, "--cache-scope=env:REGION", env=other, expect=False)
        assert value not in "".join(file.read_text() for file in box.recordings())
    for cwd, expect in (("/", False), ("/", True), ("/usr", False)):
        warm_again(box, fake, "--cache-scope=cwd", cwd=cwd, expect=expect)


def test_design_6_secrets_of_words_and_environment_are_not_in_the_file(box):
    log = box.path / "log"
    fake = box.fake(words=["--token=word-secret-1", "word-secret-2", "postgres://u:word-secret-3@h/d"])
    env = box.env(API_KEY="env-secret-1", OTHER="env-secret-2")
    relay = box.relay(fake, "--log-file", log, "--verbose", env=env)
    relay.handshake(name="c")
    relay.ask("tools/list")
    relay.call("pid")
    relay.error(relay.start_call("die", how="exit3"))
    relay.finish()
    everything = log.read_text() + relay.stderr()
    for folder, _, names in os.walk(str(box.cache)):
        for name in names:
            with open(os.path.join(folder, name), errors="replace") as file:
                everything += name + file.read()
    for secret in ("word-secret", "env-secret"):
        assert secret not in everything
    program = box.recording()["program"]
    assert program[0] == sys.executable and any("fake.py" in str(word) for word in program)


# ------------------------------------------------------------------------- files of all kinds (A5.6, A4.3)

def planted(box, fake, make):
    """Puts something in the place of the recording; the session must be cold, work, and (if it can) repair."""
    box.record(fake)
    (file,) = box.recordings()
    good = file.read_bytes()
    file.unlink()
    make(file, good)
    starts = fake.starts()
    relay = box.relay(fake)
    begun = time.monotonic()
    relay.handshake()
    assert time.monotonic() - begun < 4, "opening never blocks"
    assert fake.starts() == starts + 1, "counts as empty"
    assert relay.ask("tools/list")["tools"]
    relay.finish()
    return file


GARBAGE = {
    "empty": lambda good: b"", "no json": lambda good: b"{", "half": lambda good: good[:len(good) // 2], "zeros": lambda good: b"\0" * 4096,
    "list": lambda good: b"[]\n", "schema 1": lambda good: good.replace(b'"schema":2', b'"schema":1'), "text schema": lambda good: good.replace(b'"schema":2', b'"schema":"2"'),
    "no entries": lambda good: b'{"schema":2}\n', "entries of no kind": lambda good: b'{"schema":2,"program":[],"entries":[1,null,{},"x",[]]}\n',
    "entries an object": lambda good: b'{"schema":2,"program":[],"entries":{"2025-06-18":{}}}\n', "number": lambda good: b"5", "deep": lambda good: b"[" * 200000,
    "bytes": lambda good: bytes(range(256)) * 10, "null members": lambda good: b'{"schema":2,"program":null,"entries":[{"era":null,"protocolVersion":"2025-06-18","capabilities":null,"scope":null,"initialize":null,"lists":null}]}\n',
}


@pytest.mark.parametrize("kind", sorted(GARBAGE))
def test_a5_6_case_055_a_broken_file_counts_as_absent_and_is_repaired(box, kind):
    fake = box.fake()
    file = planted(box, fake, lambda file, good: file.write_bytes(GARBAGE[kind](good)))
    assert json.loads(file.read_bytes())["schema"] == 2
    warm_again(box, fake)


def test_a5_4b_a_newer_schema_is_empty_and_stays(box):
    fake = box.fake()
    newer = b'{"schema":3,"entries":[],"news":true}\n'
    file = planted(box, fake, lambda file, good: file.write_bytes(newer))
    assert file.read_bytes() == newer


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "device", "dangling link"])
def test_a5_6_what_is_no_file_counts_as_empty_and_never_blocks(box, kind):
    import socket

    def make(file, good):
        if kind == "fifo":
            os.mkfifo(str(file))
        elif kind == "directory":
            file.mkdir()
        elif kind == "socket":
            os.chdir(str(file.parent))  # socket paths are short
            socket.socket(socket.AF_UNIX).bind(file.name)
            os.chdir("/")
        elif kind == "device":
            file.symlink_to("/dev/zero")
        else:
            file.symlink_to("/nonexistent/x")
    here = os.getcwd()
    fake = box.fake()
    try:
        file = planted(box, fake, make)
    finally:
        os.chdir(here)
    if kind != "directory":  # which cannot be replaced by a rename
        assert stat.S_ISREG(os.lstat(str(file)).st_mode)
        warm_again(box, fake)


def test_a5_6_a_file_over_64_mib_counts_as_empty(box):
    fake = box.fake()

    def make(file, good):
        with open(str(file), "wb") as out:
            out.write(good)
            out.truncate((64 << 20) + 1)
    file = planted(box, fake, make)
    assert file.stat().st_size < 1 << 20


@pytest.mark.skipif(not ROOT, reason="needs root to make a file of somebody else")
def test_a5_6_a_file_of_somebody_else_counts_as_empty(box):
    fake = box.fake()

    def make(file, good):
        file.write_bytes(good)
        os.chown(str(file), 65534, 65534)
    file = planted(box, fake, make)
    assert file.stat().st_uid == 0, "the next write replaces it"


def unusable(box, fake, *options, env=None, name=None):
    """A directory that must not be used: sessions work, each is cold, one line of the log names it, a warning too."""
    log = box.path / "log-unusable"
    for count in (1, 2):
        starts = fake.starts()
        relay = box.relay(fake, "--log-file", log, *options, env=env)
        relay.handshake()
        assert relay.ask("tools/list")["tools"] and fake.starts() == starts + 1
        relay.finish()
    lines = [line for line in log.read_text().splitlines() if str(name or box.cache) in line]
    assert lines, log.read_text()
    assert len(lines) <= 2, "one line a session: %r" % lines
    warning = relay.stderr()
    assert warning.startswith("mcp-lazy: ") and warning.count("\n") == 1 and str(name or box.cache) in warning


@pytest.mark.skipif(not ROOT, reason="needs root to make a directory of somebody else")
def test_a4_3_a_directory_of_somebody_else_is_refused(box):
    fake = box.fake()
    box.record(fake)
    os.chown(str(box.cache), 65534, 65534)
    before = {file: file.read_bytes() for file in box.recordings()}
    unusable(box, fake)
    assert {file: file.read_bytes() for file in box.recordings()} == before


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o702, 0o1777])
def test_a4_3_a_directory_that_others_can_write_is_refused(box, bits):
    fake = box.fake()
    box.cache.mkdir()
    os.chmod(str(box.cache), bits)
    unusable(box, fake)
    assert box.recordings() == []


def test_a4_3_a_planted_fallback_directory_is_refused(box):
    fake = box.fake()
    place = box.path / "tmp" / ("mcp-lazy-%d" % os.getuid())
    place.mkdir()
    os.chmod(str(place), 0o777)
    unusable(box, fake, env=box.env(MCP_LAZY_CACHE_DIR=None, HOME=""), name=place)
    assert box.recordings(place) == []


def test_a5_5_k1_a_directory_that_cannot_be_made_costs_one_line(box):
    fake = box.fake()
    box.cache.write_text("a file in the way")
    unusable(box, fake)
    assert box.cache.read_text() == "a file in the way"


def test_a5_5_a_directory_that_cannot_be_written(box):
    """/proc refuses even root."""
    fake = box.fake()
    unusable(box, fake, "--cache-dir=/proc/self/task", name="/proc/self/task")


def test_a5_5_a_full_file_system_never_leaves_half_a_file(box):
    """A limit on the size of files makes each write fail as a full disk does."""
    import resource
    fake = box.fake(init_raw=RICH)
    box.cache.mkdir(mode=0o700)
    for _ in range(2):
        relay = box.relay(fake, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        relay.handshake()
        assert relay.ask("tools/list")["tools"]
        relay.finish()
    assert box.recordings() == []
    assert [name for name in os.listdir(str(box.cache)) if name.startswith(".tmp")] == []


def test_a5_5_a_read_only_recording_is_served_and_replaced(box):
    fake = box.fake()
    box.record(fake)
    (file,) = box.recordings()
    file.chmod(0o400)
    warm_again(box, fake)


# ------------------------------------------------------------------------------- several at once (A5.7)

def test_a5_7_k2_concurrent_relays_keep_both_entries(box):
    fake = box.fake()
    versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
    relays = [box.relay(fake) for _ in versions]
    for relay, version in zip(relays, versions):
        relay.send(initialize(0, version=version), INITIALIZED, message("tools/list", 1))
    for relay in relays:
        relay.result(0)
        relay.result(1)
    for relay in relays:
        relay.finish()
    entries = box.recording()["entries"]
    assert sorted(entry["protocolVersion"] for entry in entries) == versions
    assert all(entry["lists"] for entry in entries)
    starts = fake.starts()
    for version in versions:
        warm_again(box, fake, version=version)
    assert fake.starts() == starts


def test_a5_7_only_the_changed_entry_is_merged(box):
    """A relay that read an old state does not bring it back."""
    fake = box.fake()
    box.record(fake)
    old = box.relay(fake)
    old.handshake()
    fake.set(tools=5)
    box.record(fake, version="2025-03-26")
    other = box.relay(fake)
    other.handshake()
    other.call("pid")
    other.barrier()
    other.finish()  # has recorded five tools for the first version
    fake.set(tools=5, prompts=1)
    assert len(old.ask("prompts/list")["prompts"]) == 1
    old.finish()
    entries = {entry["protocolVersion"]: entry for entry in box.recording()["entries"]}
    assert set(entries) == {VERSION, "2025-03-26"}
    relay = box.relay(fake)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 5


@slow
def test_case_055_kill_9_in_the_write_leaves_a_whole_file_or_none(box):
    """Killed at random moments of recording sessions; the file always parses and nothing blocks the next one."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    fake = box.fake(tools=400)
    for turn in range(25):
        relay = box.relay(fake)
        relay.send(initialize(0, version="v%d" % (turn % 5)), INITIALIZED, message("tools/list", 1))
        relay.line()
        end = time.monotonic() + rng.random() * 0.02
        while time.monotonic() < end:
            pass
        relay.signal(signal.SIGKILL)
        assert relay.wait() == -9
        for file in box.recordings():
            assert json.loads(file.read_bytes())["schema"] == 2
    box.record(fake)
    warm_again(box, fake)


@slow
def test_case_055_a_lock_that_somebody_holds_delays_nothing_visible(box):
    """Another process holds every lock file there is: answers still come at once."""
    import fcntl
    fake = box.fake()
    box.record(fake)
    held = []
    for name in os.listdir(str(box.cache)):
        if name.endswith(".lock"):
            fd = os.open(str(box.cache / name), os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            held.append(fd)
    assert held, "A5.7: the lock stands beside the file"
    release = threading.Timer(1.0, lambda: [os.close(fd) for fd in held])
    release.start()
    try:
        relay = box.relay(fake)
        begun = time.monotonic()
        relay.handshake()
        relay.ask("tools/list")
        fake.set(prompts=1)
        relay.call("pid")
        relay.ask("prompts/list")
        assert time.monotonic() - begun < 0.9
        relay.finish()
    finally:
        release.join()


def test_a5_5_temporary_files_of_the_dead_do_not_stay_for_ever(box):
    """Not required to be cleaned, but never taken for a recording."""
    fake = box.fake()
    box.record(fake)
    (box.cache / ".tmp-dead").write_bytes(b"{")
    warm_again(box, fake)


@pytest.mark.skipif(not ROOT, reason="needs root to become another user")
def test_a4_3_another_user_without_a_home_that_it_can_write(open_box):
    fake = open_box.fake(python=open_box.python)
    relay = open_box.relay(fake, argv=open_box.command("--", *fake.argv), env=open_box.env(MCP_LAZY_CACHE_DIR=None),
                           preexec=become_nobody)
    relay.handshake()
    assert relay.ask("tools/list")["tools"]
    assert proc_owner(relay.pid) == 65534
    relay.finish()


def proc_owner(pid):
    return os.stat("/proc/%d" % pid).st_uid
