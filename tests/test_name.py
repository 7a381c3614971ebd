"""Part F: the `--name` personality, and the program started as dsh-lazy-mcp."""

import json
import os
import re
import shutil
import signal
import time

import pytest

from harness import INITIALIZED, MODULE, alive, group, initialize, message, until

slow = pytest.mark.slow
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


class Named:
    """One name's files, and starts of it."""

    def __init__(self, box, name="notes"):
        self.box, self.name = box, name
        self.state_dir, self.log_dir = box.path / "state", box.path / "logs"
        self.state, self.log = self.state_dir / (name + ".json"), self.log_dir / (name + ".log")

    def env(self, **more):
        more.setdefault("MCP_LAZY_CACHE_DIR", None)
        return self.box.env(DSH_LAZY_MCP_STATE_DIR=str(self.state_dir), DSH_LAZY_MCP_LOG_DIR=str(self.log_dir), **more)

    def relay(self, fake, *options, **more):
        more.setdefault("env", self.env())
        return self.box.relay(fake, "--name", self.name, *options, **more)

    def entries(self):
        try:
            return json.loads(self.state.read_bytes())["entries"]
        except FileNotFoundError:
            return []

    def filled(self, count=4):
        until(lambda: self.entries() and len(self.entries()[0]["lists"]) == count, what="the fill")

    def record(self, fake, *options, count=4, **handshake):
        relay = self.relay(fake, *options)
        relay.handshake(**handshake)
        self.filled(count)
        relay.finish()

    def text(self):
        return self.log.read_text()


@pytest.fixture
def named(box):
    return Named(box)


@pytest.fixture
def full(box):
    return box.fake(tools=2, prompts=1, resources=1, templates=1)


# ------------------------------------------------------------------------------------ F13's seven tests

def test_f13_1_f5_a_cold_start_fills_all_lists(named, full):
    relay = named.relay(full)
    relay.handshake()
    named.filled()
    assert full.starts() == 1
    assert set(named.entries()[0]["lists"]) == set(LISTS)
    assert relay.barrier() == []


def test_f13_2_f4_a_warm_start_has_no_process(named, full):
    named.record(full)
    relay = named.relay(full)
    relay.handshake()
    for method in LISTS:
        assert relay.ask(method)
    assert relay.ask("ping") == {}
    assert relay.asleep() and full.starts() == 1
    relay.finish()


def test_f13_3_f6_lazy_start_and_forwarding(named, full):
    named.record(full)
    relay = named.relay(full)
    relay.handshake(name="the-host", client_version="3")
    before = len(full.lines())
    relay.send(message("tools/call", "x-1", {"name": "echo", "arguments": {"a": 1}}))
    assert relay.result("x-1") == {"echo": {"a": 1}}
    seen = full.lines()[before:]
    assert seen[0]["params"]["clientInfo"] == {"name": "the-host", "version": "3"}, "the host's own params (F6)"
    assert seen[-1]["id"] == "x-1"
    relay.send(message("notifications/cancelled", params={"requestId": "none"}))
    full.wait_method("notifications/cancelled")


def test_f13_4_f7_list_changed_on_drift(named, full):
    named.record(full)
    full.set(tools=4)
    relay = named.relay(full)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2
    relay.call("pid")
    assert [one["method"] for one in relay.barrier()] == ["notifications/tools/list_changed"]
    assert len(relay.ask("tools/list")["tools"]) == 4
    relay.finish()
    assert "tools/list" in named.text() and "2" in named.text() and "4" in named.text()


def test_f13_5_f8_idle_kill_and_restart(named, full):
    named.record(full)
    relay = named.relay(full, "--idle-timeout-min=0.002")
    relay.handshake()
    first = relay.call("pid")["pid"]
    until(relay.asleep, what="the idle stop")
    assert relay.call("pid")["pid"] != first
    relay.finish()
    assert "idle" in named.text()


@slow
@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"])
def test_f13_6_f11_no_orphans(named, box, how):
    fake = box.fake(children=["stubborn", "middle"], ignore_eof=True, ignore=["SIGTERM"], prompts=1, resources=1, templates=1)
    relay = named.relay(fake)
    relay.handshake()
    pid = relay.call("pid")["pid"]
    found = until(lambda: len(fake.descendants()) == 3 and fake.descendants(), what="the descendants")
    if how == "eof":
        relay.close()
    else:
        relay.signal(getattr(signal, how))
    until(lambda: not group(pid) and not any(alive(one) for one in found), 2.5, "the end of all")
    assert relay.wait() == (-9 if how == "SIGKILL" else 0)


def test_f13_7_f12_a_slow_server_does_not_slow_a_warm_start(named, full):
    named.record(full)
    full.set(boot=30)
    relay = named.relay(full)
    begun = time.monotonic()
    relay.handshake()
    for method in LISTS:
        relay.ask(method)
    assert time.monotonic() - begun < 1.0


# ------------------------------------------------------------------------------------------------- F1

@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "x" * 129, "a\nb", "../up"])
def test_f1_names_that_are_none(box, named, name):
    status, out, err = box.run("--name", name, "server", env=named.env())
    assert (status, out) == (2, b"") and "name" in err
    assert not named.state_dir.exists()


@pytest.mark.parametrize("name", ["a", "x" * 128, "with space", "caf\u00e9", "...", "-x", "a\\b", "n:1"])
def test_f1_names_that_are_fine(box, full, name):
    named = Named(box, name)
    named.record(full)
    assert named.state.is_file() and named.log.is_file()


def as_dsh(box, name="dsh-lazy-mcp"):
    target = box.path / "bin" / name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(str(MODULE), str(target))
    target.chmod(0o755)
    return str(target)


def test_f1_started_as_dsh_lazy_mcp(box, named, full):
    """The `--` is optional, the name is not (0.1; the refusal is tested with the command line)."""
    for words in (["--name", "notes", "--"], ["--name=notes"], ["--idle-timeout-min", "5", "--name", "notes", "--"]):
        relay = box.relay([], argv=[as_dsh(box), *words, *full.argv], env=named.env())
        relay.handshake()
        relay.ask("tools/list")
        named.filled()
        relay.finish()
    assert full.starts() == 1


def test_0_4_the_name_switches_the_whole_personality_on_and_flags_win(box, named, full):
    relay = named.relay(full, "--fill=false")
    relay.handshake()
    relay.ask("tools/list")
    relay.finish()
    assert set(named.entries()[0]["lists"]) == {"tools/list"}


def test_0_4_the_name_from_the_environment(box, named, full):
    relay = box.relay(full, env=named.env(MCP_LAZY_NAME="notes"))
    relay.handshake()
    named.filled()
    relay.finish()
    assert named.log.is_file()


# ----------------------------------------------------------------------------------------------- F2, F3

def test_f2_default_directories(box, full):
    """Fixed places below HOME; XDG_DATA_HOME is not asked."""
    named = Named(box)
    base = box.home / ".local" / "share" / "dsh" / "state"
    named.state, named.log = base / "lazy-mcp" / "notes.json", base / "mcp-logs" / "notes.log"
    relay = named.relay(full, env=box.env(MCP_LAZY_CACHE_DIR=None, XDG_DATA_HOME=str(box.path / "xdg"), XDG_STATE_HOME=str(box.path / "xdg")))
    relay.handshake()
    named.filled()
    relay.finish()
    assert named.log.is_file() and not (box.path / "xdg").exists()
    assert not list((box.home / ".cache").rglob("*.json")), "the relay's own cache directory is not used"


def test_0_4_cache_dir_is_the_state_directory_of_a_name(box, full):
    """Part 0.4: what a name sets by default can be set by a flag."""
    relay = box.relay(full, "--name=notes", "--cache-dir", box.path / "elsewhere", env=Named(box).env())
    relay.handshake()
    until((box.path / "elsewhere" / "notes.json").is_file, what="the state")
    relay.finish()


def test_f2_modes(box, named, full):
    umask = os.umask(0)
    try:
        named.record(full)
    finally:
        os.umask(umask)
    assert [path.stat().st_mode & 0o777 for path in (named.state_dir, named.log_dir, named.state, named.log)] == [0o700, 0o700, 0o600, 0o600]


def test_f3_another_command_under_the_same_name_is_cold(box, named, full):
    named.record(full)
    other = box.fake(tools=7, prompts=1, resources=1, templates=1)
    relay = named.relay(other)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 7, "never another server's tools"
    named.filled()
    relay.finish()
    assert other.starts() == 1
    assert json.loads(named.state.read_bytes())["schema"] == 2


def test_f3_two_names_are_two_states(box, full):
    Named(box, "one").record(full)
    Named(box, "two").record(full)
    assert full.starts() == 2


def test_f14_another_version_of_the_protocol_is_cold(named, full):
    named.record(full)
    relay = named.relay(full)
    relay.handshake(version="2024-11-05")
    assert full.starts() == 2


# -------------------------------------------------------------------------------------------------- F5

def test_f5_the_handshake_is_not_held_back_for_the_lists(box, named):
    fake = box.fake(prompts=1, resources=1, templates=1, hang_at=["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
    relay = named.relay(fake)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1, "and client traffic is not held up (A6.8)"


def test_f5_lists_that_are_not_advertised(box, named):
    """Recorded as not found when asked for once."""
    fake = box.fake()
    named.record(fake, count=1)
    relay = named.relay(fake)
    relay.handshake()
    assert relay.error(relay.request("prompts/list"))["code"] == -32601
    relay.finish()
    starts = fake.starts()
    relay = named.relay(fake)
    relay.handshake()
    assert relay.error(relay.request("prompts/list"))["code"] == -32601
    assert fake.starts() == starts


def test_a6_8_a_failing_fill_is_only_logged(box, named):
    fake = box.fake(refuse={"tools/list": {"code": -32603, "message": "not yet"}})
    relay = named.relay(fake)
    relay.handshake()
    fake.wait_method("tools/list")
    assert relay.call("pid")["calls"] == 1
    assert relay.barrier() == []
    relay.finish()


# -------------------------------------------------------------------------------------------------- F7

def test_f7_a_client_that_just_got_the_new_list_is_not_told(box, named, full):
    """Suppressed, unless the client was served the old one in this session."""
    named.record(full)
    full.set(tools=2)
    relay = named.relay(full)
    relay.handshake()
    relay.call("grow")
    assert len(relay.ask("tools/list")["tools"]) == 3
    assert relay.barrier() == []


def test_f7_a_client_that_was_served_the_old_list_is_told(box, named, full):
    named.record(full)
    relay = named.relay(full)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 2
    relay.call("grow")
    assert len(relay.ask("tools/list")["tools"]) == 3
    assert "notifications/tools/list_changed" in [one.get("method") for one in relay.barrier()]
    relay.finish()
    relay = named.relay(full)
    relay.handshake()
    assert len(relay.ask("tools/list")["tools"]) == 3


# -------------------------------------------------------------------------------------------------- F8

@pytest.mark.parametrize("value", ["-1", "nan", "inf", "x", "", "5m", "-0.1", "1e999"])
def test_f8_bad_minutes(box, named, value):
    status, out, err = box.run("--name=n", "--idle-timeout-min", value, "server", env=named.env())
    assert (status, out) == (2, b"") and "idle-timeout-min" in err


def test_f8_i2_two_units_of_one_thing_conflict(box, named):
    for words in (["--name=n"], []):
        status, out, err = box.run(*words, "--idle-timeout-min=1", "--idle-stop=1m", "server", env=named.env())
        assert (status, out) == (2, b"") and "idle-stop" in err and "idle-timeout-min" in err


def test_f8_idle_stop_serves_with_a_name_too(named, full):
    """Part 0.4: every default can be reached by the other's flag."""
    named.record(full)
    relay = named.relay(full, "--idle-stop=30ms")
    relay.handshake()
    relay.call("pid")
    until(relay.asleep, what="the idle stop")


def test_f8_minutes_serve_without_a_name_too(box):
    fake = box.fake()
    relay = box.warm(fake, "--idle-timeout-min=0.0005")
    relay.call("pid")
    until(relay.asleep, what="the idle stop")


def test_f8_zero_is_never(named, full):
    named.record(full)
    relay = named.relay(full, "--idle-timeout-min=0")
    relay.handshake()
    pid = relay.call("pid")["pid"]
    assert relay.call("sleep", s=0.1) and relay.call("pid")["pid"] == pid


# ----------------------------------------------------------------------------------------------- F9, F10

PREFIX = r"\[lazy-mcp \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z pid=%d\] \S"


def test_f9_stderr_of_the_server_and_our_lines_go_to_the_log(box, named):
    fake = box.fake(stderr="server says hello\n", prompts=1, resources=1, templates=1)
    relay = named.relay(fake)
    relay.handshake()
    relay.call("stderr", text="and this\n")
    relay.finish()
    assert relay.stderr() == ""
    lines = named.text().splitlines()
    assert "server says hello" in lines and "and this" in lines
    own = [line for line in lines if line.startswith("[lazy-mcp")]
    assert own and all(re.match(PREFIX % relay.pid, line) for line in own)
    assert len(own) + 2 == len(lines)


@slow
def test_f10_required_lines_and_no_payloads(named, full):
    for _ in range(2):
        relay = named.relay(full, "--idle-timeout-min=0.008")
        relay.handshake(name="host-name-x")
        relay.ask("tools/list")
        named.filled()
        relay.call("echo", word="payload-word")
        pid = full.pid()
        until(relay.asleep, what="the idle stop")
        relay.finish()
    text = named.text()
    assert re.search(r"\bcold\b", text) and re.search(r"\bwarm\b", text)
    assert re.search(r"initialize cache \d+(\.\d+)?", text) and re.search(r"tools/list cache \d+(\.\d+)?", text)
    assert re.search(r"tools/call server \d+(\.\d+)?", text) and re.search(r"initialize server \d+(\.\d+)?", text)
    assert str(pid) in text and "exit status 0" in text and "idle" in text
    assert re.search(r"shutdown|end of input|EOF", text, re.IGNORECASE)
    assert "payload-word" not in text and "host-name-x" not in text


def test_f10_a_log_over_ten_megabytes_is_moved_aside_at_the_start(named, full):
    named.log_dir.mkdir(mode=0o700)
    old = named.log_dir / "notes.log.1"
    old.write_text("older\n")
    named.log.write_bytes(b"x" * (10 << 20) + b"yz")
    relay = named.relay(full)
    relay.handshake()
    relay.finish()
    assert old.stat().st_size == (10 << 20) + 2 and named.log.stat().st_size < 100000
    assert sorted(os.listdir(str(named.log_dir))) == ["notes.log", "notes.log.1"], "one generation"


def test_f10_a_smaller_log_is_appended_to(named, full):
    named.log_dir.mkdir(mode=0o700)
    named.log.write_bytes(b"earlier line\n")
    relay = named.relay(full)
    relay.handshake()
    relay.finish()
    assert named.text().startswith("earlier line\n[lazy-mcp ")


def test_f9_a_log_that_cannot_be_opened_stops_nothing(box, full):
    named = Named(box)
    named.log_dir.write_text("a file in the way")
    relay = named.relay(full)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1
    relay.finish()


def test_f2_a_state_that_cannot_be_written_stops_nothing(box, full):
    named = Named(box)
    named.state_dir.write_text("a file in the way")
    relay = named.relay(full)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1
    relay.finish()
    assert str(named.state_dir) in named.text()


def test_a10_5_errors_use_the_name(named, full):
    relay = named.relay(full)
    relay.handshake()
    text = relay.error(relay.start_call("die", how="exit3", stderr="why it died\n"))["message"]
    assert text.startswith("mcp-lazy: ") and "notes" in text and "exit status 3" in text and "why it died" in text


def test_f14_the_start_timeout_holds_here_too(named, full):
    full.set(hang_at=["initialize"])
    relay = named.relay(full, "--start-timeout=200ms")
    relay.send(initialize())
    assert "timed out after 200ms" in relay.error(0)["message"]


def test_e1_1_the_title_under_the_dsh_name(box, named, full):
    """The contract of part E holds for every personality: the first word's basename starts with mcp-lazy."""
    from harness import ps_command
    relay = box.relay([], argv=[as_dsh(box), "--name", "notes", *full.argv], env=named.env())
    relay.handshake()
    assert os.path.basename(ps_command(relay.pid).split()[0]).lower().startswith("mcp-lazy"), ps_command(relay.pid)


def test_f_two_hosts_under_one_name_at_once(named, full):
    relays = [named.relay(full) for _ in range(3)]
    for relay in relays:
        relay.send(initialize(), INITIALIZED, message("tools/list", 1))
    for relay in relays:
        relay.result(0)
        assert len(relay.result(1)["tools"]) == 2
    named.filled()
    for relay in relays:
        relay.finish()
    for line in named.text().splitlines():
        assert line.startswith("[lazy-mcp "), "each line is one write"
