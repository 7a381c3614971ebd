"""The command line of the relay (A1-A3, part 0, A14), through the program itself."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from harness import INITIALIZED, MODULE, encode, initialize, until
from mcp_lazy import (
    KNOWN_CLIENTS, OPTIONS, UsageError, age_text, members, older_than_s, one_line, elements, read_cache_words, read_plan, read_probes,
    report_text, size_text, table_lines, usage)

USAGE = "usage"


def fails(box, *words, env=None, argv=None):
    """The program's reason for refusing: exit 2, nothing on stdout, no server (A1.4, case 197)."""
    status, out, err = box.run(*words, env=env, argv=argv, stdin=encode(initialize()))
    assert (status, out) == (2, b""), (status, out, err)
    assert "Traceback" not in err
    return err


def usage_shown(err):
    """The usage text lists the options; a one-line message does not."""
    return USAGE in err.lower() and "--start-timeout" in err.replace(" -start", " --start")


def accepted(box, *words, env=None, argv=None):
    """Starts the relay with an echoing server as the last words; the server's own words, seen by it."""
    relay = box.relay([], env=env, argv=argv or box.command(*words))
    relay.handshake()
    return relay


# ------------------------------------------------------------------------------ A1.3, line by line

def test_a1_3_value_in_the_next_word(box):
    fake = box.fake()
    relay = accepted(box, "--idle-stop", "5s", *fake.argv)
    assert relay.call("pid")["calls"] == 1


def test_a1_3_one_dash_and_equals_sign(box):
    fake = box.fake()
    relay = accepted(box, "-idle-stop=5s", "--", *fake.argv)
    assert relay.call("pid")["calls"] == 1


def test_a1_3_a_boolean_never_takes_the_next_word(box):
    # `false` is then the server's command: a program that ends at once.
    relay = box.relay([], argv=box.command("--verbose", "false", "node"))
    relay.send(initialize())
    assert "server exited" in relay.error(0)["message"]
    until(lambda: "mcp-lazy[" in relay.stderr(), what="a verbose line")


def test_a1_3_a_boolean_with_false_is_off(box):
    fake = box.fake()
    relay = accepted(box, "--verbose=false", *fake.argv)
    relay.finish()
    assert relay.stderr() == ""  # case 197 too: a good run says nothing


@pytest.mark.parametrize("word", ["--verbose=", "--verbose=yes", "--verbose=2", "--verbose=tRUE", "--no-argv0=on"])
def test_a1_3_invalid_boolean(box, word):
    err = fails(box, word, "server")
    assert "invalid boolean value" in err and word.split("=")[0].lstrip("-") in err and usage_shown(err)


def test_a1_3_other_options_always_take_the_next_word(box):
    fake = box.fake()
    relay = box.relay([], argv=box.command("--log-file", "--verbose", *fake.argv), cwd=str(box.path))
    relay.handshake()
    relay.call("pid")
    relay.finish()
    assert (box.path / "--verbose").read_text().startswith("mcp-lazy[")
    assert relay.stderr() == ""


def test_a1_3_empty_value(box):
    fake = box.fake()
    relay = box.relay([], argv=box.command("--log-file=", *fake.argv), cwd=str(box.path))
    relay.handshake()
    relay.finish()


@pytest.mark.parametrize("words, name", [(["--log-file==x"], "=x"), (["--log-file", "a=b"], "a=b"), (["--log-file=a=b"], "a=b")])
def test_a1_3_equals_signs_in_values(box, words, name):
    fake = box.fake()
    relay = box.relay([], argv=box.command(*words, *fake.argv), cwd=str(box.path))
    relay.handshake()
    relay.finish()
    assert (box.path / name).is_file()


@pytest.mark.parametrize("option", ["--log-file", "-idle-stop", "--cache-dir", "--wake-command", "--stderr-log"])
def test_a1_3_an_option_without_its_value(box, option):
    err = fails(box, option)
    assert "flag needs an argument" in err and option.lstrip("-") in err and usage_shown(err)


def test_a1_3_unknown_option(box):
    err = fails(box, "--nope", "server")
    assert "flag provided but not defined" in err and "-nope" in err and usage_shown(err)


def test_a1_4_an_unknown_option_is_shown_without_its_value_and_with_the_nearest_one(box):
    err = fails(box, "--idle-stpo=hunter2", "server")
    assert "idle-stpo" in err and "hunter2" not in err
    assert "idle-stop" in err.splitlines()[0] + err.splitlines()[1]
    err = fails(box, "--zzzzzzzz", "server")
    assert "did you mean" not in err.lower()


@pytest.mark.parametrize("word", ["---x", "-=x", "--=x", "---", "--=", "-="])
def test_a1_3_bad_syntax(box, word):
    err = fails(box, word, "server")
    assert "bad flag syntax" in err and usage_shown(err)


@pytest.mark.parametrize("word", ["-h", "-help", "--help", "--h"])
def test_a1_3_help_is_on_stderr_with_status_2(box, word):
    err = fails(box, word)
    assert usage_shown(err)
    for option in ("idle-stop", "cache-dir", "log-file", "verbose", "wake-command", "wake-interval", "wake-timeout",
                   "version", "name", "idle-timeout-min", "stderr-log", "stderr", "call-timeout", "drain", "stop-grace",
                   "restart-backoff", "refresh-fatal", "cache-scope", "fill", "max-line", "log-format",
                   "no-argv0", "check", "as", "json-errors"):  # A1.2, A1.9, A1.10
        assert "-" + option in err, option


def test_a1_3_a_repeated_option_counts_once_the_last_time(box):
    fake = box.fake()
    relay = accepted(box, "--verbose", "--verbose=false", "--cache-dir", "/nonexistent/x", "--cache-dir", box.cache, *fake.argv)
    relay.finish()
    assert relay.stderr() == "" and len(box.recordings()) == 1


def test_a1_3_a_negative_duration_fails_the_range_check(box):
    err = fails(box, "--start-timeout", "-5s", "server")
    assert "start-timeout" in err and "invalid value" not in err.lower() and not usage_shown(err)


# -------------------------------------------------------------------------------- A1.1, case 202

@pytest.mark.parametrize("words", [["--"], [], ["--verbose=false", "--"], ["--start-timeout=5s"]])
def test_a1_1_where_options_end(box, words):
    """After the first word that is none, everything is the server's."""
    fake = box.fake(words=["--version", "-h", "--check", "--", "--nope"])
    relay = accepted(box, *words, *fake.argv)
    argv = relay.call("argv")["argv"]
    assert argv == fake.argv


def test_a1_1_one_double_dash_is_dropped_once(box):
    # `-- -- x` leaves the command `--`: there is no such program, and the error names it.
    relay = box.relay([], argv=box.command("--", "--", "x"))
    relay.send(initialize())
    found = relay.error(0)
    assert found["code"] == -32000 and "cannot start the server" in found["message"]


def test_a1_1_a_lone_dash_is_a_command(box):
    bin_dir = box.path / "bin"
    bin_dir.mkdir()
    fake = box.fake()
    script = bin_dir / "-"
    script.write_text("#!/bin/sh\nexec \"$@\"\n")
    script.chmod(0o755)
    env = box.env(PATH="%s:%s" % (bin_dir, os.environ["PATH"]))
    relay = box.relay([], argv=box.command("-", *fake.argv), env=env)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


def test_a1_1_an_empty_word_ends_the_options(box):
    # The empty word is the command: it cannot be started, but the line is a good one.
    relay = box.relay([], argv=box.command("", "--nope"))
    relay.send(initialize())
    assert "cannot start the server" in relay.error(0)["message"]


def test_case_202_the_servers_words_arrive_byte_for_byte(box):
    """Later `--`, options of ours, empty words, quotes, newlines, bytes that are no UTF-8."""
    words = [b"-p", b"127.0.0.1:1:1", b"img", b"--", b"--check", b"--help", b"-h", b"--", b"", b"a b", b"x=y", b"l1\nl2",
             b"\xff\xfe caf\xc3\xa9", b"'\"$(x)`", b"--version", b"*", b"\\", b"\xc3"]
    fake = box.fake()
    argv = [os.fsencode(word) for word in box.command("--", *fake.argv)] + words
    for locale in ("C.UTF-8", "C", None):
        env = box.env(LANG=locale)
        relay = box.relay([], argv=argv, env=env)
        relay.handshake()
        seen = [word.encode("latin-1") for word in relay.call("argv")["argv"]]
        assert seen == [os.fsencode(word) for word in fake.argv] + words, locale
        relay.finish()


# ------------------------------------------------------------------------------------ A1.4, A1.5

@pytest.mark.parametrize("words", [[], ["--"], ["--verbose"], ["--idle-stop", "5s", "--"]])
def test_a1_4_case_204_no_command(box, words):
    # The case asks for one line; A1.4 shows the usage with it, and the specification wins.
    err = fails(box, *words)
    assert usage_shown(err)
    assert not box.cache.exists()


def test_case_204_a_start_without_command_does_not_disturb_a_good_one(box):
    fake = box.fake()
    good = box.relay(fake)
    bad = box.relay([], argv=box.command())
    good.handshake()
    assert bad.wait() == 2 and bad.rest() == []
    assert good.call("pid")["calls"] == 1
    good.finish()
    assert box.recording()["schema"] == 2


def test_a1_5_version_comes_first(box):
    """Also with no command and with an invalid environment."""
    status, out, err = box.run("--version", env=box.env(MCP_LAZY_IDLE_STOP="never"))
    assert status == 0 and err == ""
    assert out.startswith(b"mcp-lazy ") and out.count(b"\n") == 1
    assert box.run("-version", "server")[:2] == (0, out)
    assert box.run("--version=true")[:2] == (0, out)


def test_a1_5_flag_errors_come_before_version(box):
    assert "not defined" in fails(box, "--version", "--nope")


def test_a1_5_an_invalid_environment_is_told_even_without_a_command(box):
    err = fails(box, env=box.env(MCP_LAZY_START_TIMEOUT="soon"))
    assert "MCP_LAZY_START_TIMEOUT" in err


def test_a1_5_the_range_comes_before_a_missing_command(box):
    err = fails(box, "--start-timeout=0")
    assert "start-timeout" in err and not usage_shown(err)


def test_a1_5_the_range_comes_before_the_wake_command(box):
    err = fails(box, "--start-timeout=0", "--wake-command=x", "server")
    assert "start-timeout" in err and "JSON" not in err


# ------------------------------------------------------------------------------------------ A1.6

@pytest.mark.parametrize("variable, value, option", [
    ("MCP_LAZY_IDLE_STOP", "never", "--idle-stop=1h"), ("MCP_LAZY_START_TIMEOUT", "-", "--start-timeout=9s"),
    ("MCP_LAZY_VERBOSE", "yes", "--verbose=false"), ("MCP_LAZY_WAKE_INTERVAL", "", "--wake-interval=9s"),
    ("MCP_LAZY_WAKE_TIMEOUT", "1", "--wake-timeout=9s"), ("MCP_LAZY_WAKE_COMMAND", "{", "--wake-command="),
    ("MCP_LAZY_DRAIN", "x", "--drain=1s"), ("MCP_LAZY_MAX_LINE", "x", "--max-line=1000000")])
def test_a1_6_a_flag_wins_and_its_variable_is_not_even_parsed(box, variable, value, option):
    env = box.env(**{variable: value})
    assert variable in fails(box, "true", env=env)
    status, out, err = box.run(option, "true", env=env)
    assert (status, out, err) == (0, b"", "")


@pytest.mark.parametrize("name", ["IDLE_STOP", "START_TIMEOUT", "WAKE_INTERVAL", "WAKE_TIMEOUT", "VERBOSE"])
def test_a1_6_an_empty_variable_counts_as_set(box, name):
    err = fails(box, "server", env=box.env(**{"MCP_LAZY_" + name: ""}))
    assert "MCP_LAZY_" + name in err and not usage_shown(err)


def test_a1_6_an_empty_cache_dir_is_the_default_one(box):
    fake = box.fake()
    box.record(fake, env=box.env(MCP_LAZY_CACHE_DIR="", MCP_LAZY_LOG_FILE="", MCP_LAZY_WAKE_COMMAND=""))
    assert len(box.recordings(box.home / ".cache" / "mcp-lazy")) == 1


def test_a1_6_variables_give_values(box):
    fake = box.fake()
    log = box.path / "log"
    env = box.env(MCP_LAZY_LOG_FILE=str(log), MCP_LAZY_VERBOSE="T", MCP_LAZY_IDLE_STOP="1h", MCP_LAZY_START_TIMEOUT="+5s")
    box.record(fake, env=env)
    assert log.read_text().startswith("mcp-lazy[")


def test_a1_6_variables_are_checked_in_the_order_of_the_table(box):
    every = {"MCP_LAZY_" + name: "?" for name in ("START_TIMEOUT", "IDLE_STOP", "VERBOSE", "WAKE_INTERVAL", "WAKE_TIMEOUT")}
    for name in ("START_TIMEOUT", "IDLE_STOP", "VERBOSE", "WAKE_INTERVAL", "WAKE_TIMEOUT"):
        err = fails(box, "server", env=box.env(**every))
        assert "MCP_LAZY_" + name in err and err.count("MCP_LAZY_") == 1
        del every["MCP_LAZY_" + name]


# ------------------------------------------------------------------------------------ A1.7, A1.8

@pytest.mark.parametrize("value", ["x", "{}", "[]", "null", "3", '"sh"', "[null]", "[1]", '["a", null]', '["a", 1]', '[""]',
                                   '["", "a"]', '["a"', '[["a"]]', '["a",]'])
def test_a1_7_bad_wake_commands(box, value):
    err = fails(box, "--wake-command", value, "server")
    assert "wake-command" in err and not usage_shown(err) and len(err.splitlines()) == 1
    err = fails(box, "server", env=box.env(MCP_LAZY_WAKE_COMMAND=value))
    assert "MCP_LAZY_WAKE_COMMAND" in err or "wake-command" in err


@pytest.mark.parametrize("value", ["", '["false"]', ' [ "false" , "" ] ', '["\\u0066alse"]'])
def test_a1_7_good_wake_commands(box, value):
    status, out, err = box.run("--wake-command", value, "true", env=box.env(MCP_LAZY_WAKE_COMMAND="?"))
    assert (status, out, err) == (0, b"", "")


@pytest.mark.parametrize("option, value, fine", [
    ("start-timeout", "0", 0), ("start-timeout", "0.9ns", 0), ("start-timeout", "0.0000000001s", 0), ("start-timeout", "1ns", 1),
    ("wake-interval", "0", 0), ("wake-interval", "-1s", 0), ("wake-interval", "1ms", 1), ("wake-timeout", "0s", 0),
    ("wake-timeout", "1m", 1), ("idle-stop", "-1ns", 0), ("idle-stop", "0", 1), ("idle-stop", "-0", 1), ("drain", "-1s", 0),
    ("drain", "0", 1), ("call-timeout", "-1s", 0), ("call-timeout", "0", 1), ("stop-grace", "0", 0), ("stop-grace", "1ms", 1),
    ("restart-backoff", "-1s", 0), ("restart-backoff", "0", 1), ("idle-timeout-min", "0", 1), ("idle-timeout-min", "0.05", 1), ("max-line", "0", 0)])
def test_a1_8_ranges(box, option, value, fine):
    """A1.8, A1.10: out of range is one line and exit 2."""
    if fine:
        assert box.run("--%s=%s" % (option, value), "true") == (0, b"", "")
        return
    err = fails(box, "--%s" % option, value, "server")
    assert option in err and len(err.splitlines()) == 1


def test_a1_8_one_combined_message(box):
    err = fails(box, "--start-timeout=0", "--idle-stop=-1s", "--wake-interval=0", "--wake-timeout=-5s", "server")
    assert len(err.splitlines()) == 1
    for option in ("start-timeout", "idle-stop", "wake-interval", "wake-timeout"):
        assert option in err


@pytest.mark.parametrize("option, good, bad", [
    ("stderr", ["pipe", "inherit"], ["none", "", "PIPE"]), ("log-format", ["text", "json"], ["xml", ""]),
    ("cache-scope", ["", "client", "client-version,cwd", "env:HOME,env:X_1,cwd"], ["clients", "capability", "env:", "env", "client cwd"]),
    ("max-line", ["1024", "67108864"], ["", "x", "1.5", "1k", "0x10", "1_000", "-5"]),
    ("idle-timeout-min", ["10", "0.5", "0"], ["", "x", "nan", "inf", "1m", "-1"]),
    ("refresh-fatal", ["true", "0"], ["yes", ""]), ("fill", ["T", "false"], ["on", ""])])
def test_a1_10_values_of_the_additions(box, option, good, bad):
    for value in good:
        assert box.run("--%s=%s" % (option, value), "true") == (0, b"", ""), value
    for value in bad:
        err = fails(box, "--%s=%s" % (option, value), "server")
        assert option in err, value
    variable = "MCP_LAZY_" + option.upper().replace("-", "_")
    assert box.run("true", env=box.env(**{variable: good[-1]})) == (0, b"", "")
    assert variable in fails(box, "server", env=box.env(**{variable: bad[0]}))


def test_a1_10_argv0_variable(box):
    assert box.run("true", env=box.env(MCP_LAZY_ARGV0="off")) == (0, b"", "")


@pytest.mark.parametrize("value", ["1", "1.5", "1S", "5 s", "1d", "3000000h", "\u0665s"])
def test_a2_3_a_bad_duration_on_the_command_line(box, value):
    err = fails(box, "--idle-stop", value, "server")
    assert "idle-stop" in err and usage_shown(err)
    assert "MCP_LAZY_IDLE_STOP" in fails(box, "server", env=box.env(MCP_LAZY_IDLE_STOP=value))


@pytest.mark.parametrize("value", ["1h2m3.5s", "250\u00b5s", ".5s", "00s", "+0", "2562047h47m16.854775807s"])
def test_a2_3_a_good_duration_on_the_command_line(box, value):
    assert box.run("--idle-stop", value, "true") == (0, b"", "")
    assert box.run("true", env=box.env(MCP_LAZY_IDLE_STOP=value)) == (0, b"", "")


# ---------------------------------------------------------------------------------------- part 0

def as_name(box, name):
    """A copy of the module under another file name, started directly."""
    target = box.path / "bin" / name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(str(MODULE), str(target))
    return [sys.executable, "-I", "-S", str(target)]


@pytest.mark.parametrize("word", ["config", "hub", "cache", "demo", "doctor", "paths", "help"])
def test_0_2_reserved_words_are_servers_behind_a_double_dash(box, word):
    bin_dir = box.path / "bin"
    bin_dir.mkdir()
    fake = box.fake()
    script = bin_dir / word
    script.write_text("#!/bin/sh\nexec \"$@\"\n")
    script.chmod(0o755)
    env = box.env(PATH="%s:%s" % (bin_dir, os.environ["PATH"]))
    relay = box.relay([], argv=box.command("--", word, *fake.argv), env=env)
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


@pytest.mark.parametrize("name", ["mcp-lazy", "MCP-LAZY", "other.py", "relay", "mcp-lazy.exe", "mcp_lazy.py"])
def test_0_1_any_other_name_is_the_relay(box, name):
    fake = box.fake()
    relay = box.relay([], argv=as_name(box, name) + ["--", *fake.argv])
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


@pytest.mark.parametrize("name", ["dsh-lazy-mcp", "DSH-Lazy-MCP.py", "dsh-lazy-mcp-2"])
def test_0_1_f1_the_dsh_name_wants_a_name(box, name):
    err = fails(box, argv=as_name(box, name) + ["server"])
    assert "name" in err
    assert fails(box, argv=as_name(box, name) + ["--name", "", "server"])


def test_0_1_only_the_first_word_is_a_command(box):
    """`config` later in the line belongs to the server (0.2)."""
    fake = box.fake(words=["config"])
    relay = box.relay([], argv=box.command("--verbose=false", *fake.argv))
    relay.handshake()
    assert relay.call("argv")["argv"][-1] == "config"


# -------------------------------------------------------------------------------------------- A14

def test_a14_1_the_servers_status_is_never_the_relays(box):
    fake = box.fake(status=7)
    relay = box.relay(fake)
    relay.handshake()
    assert relay.finish() == []
    relay = box.relay(["false"])
    relay.send(initialize())
    relay.error(0)
    assert relay.finish() == []


def test_a14_1_end_of_input_without_a_line(box):
    assert box.run("no-such-program-anywhere") == (0, b"", "")  # nothing asked, nothing started
    assert not box.recordings()


def test_a1_5_input_of_a_whole_session_from_a_file(box):
    """Piped one-shot use: the answers come out, the end is clean (with --drain, A13.8)."""
    fake = box.fake()
    lines = encode(initialize()) + encode(INITIALIZED) + encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    status, out, err = box.run("--drain=5s", "--", *fake.argv, stdin=lines)
    assert status == 0 and err == "" and len(out.splitlines()) == 2


# ------------------------------------------------------------------------------------------ A16.1

def test_a16_1_the_log_file_is_private_and_appended_to(box):
    fake = box.fake()
    log = box.path / "log"
    box.record(fake, "--log-file", log)
    first = log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    box.record(fake, "--log-file", log)
    assert log.read_text().startswith(first) and len(log.read_text()) > len(first)


def test_a16_1_a_log_that_cannot_be_written_is_no_error(box):
    fake = box.fake()
    relay = box.relay(fake, "--log-file", "/proc/no/such/dir/log")
    relay.handshake()
    assert relay.finish() == []


def test_a16_2_lines_of_the_log(box):
    import re
    fake = box.fake()
    relay = box.relay(fake, "--verbose")
    relay.handshake()
    relay.call("pid")
    relay.finish()
    lines = relay.stderr().splitlines()
    assert lines
    for line in lines:
        assert re.match(r"mcp-lazy\[%d\] \d\d:\d\d:\d\d\.\d\d\d \S" % relay.pid, line), line


def test_a16_2_the_json_log_has_a_date(box):
    import json
    fake = box.fake()
    log = box.path / "log"
    relay = box.relay(fake, "--log-file", log, "--log-format", "json")
    relay.handshake()
    relay.finish()
    for line in log.read_text().splitlines():
        found = json.loads(line)
        assert any(str(value).startswith("20") and "T" in str(value) for value in found.values()), found


def test_a16_3_what_must_be_logged_and_a16_4_what_never_is(box):
    fake = box.fake()
    log = box.path / "log"
    relay = box.relay(fake, "--log-file", log, env=box.env(SOME_TOKEN="tok-1234567"))
    relay.handshake(name="client-secret-name")
    relay.call("echo", word="payload-word")
    server = fake.pid()
    relay.finish()
    warm = box.relay(fake, "--log-file", log, "--idle-stop=30ms", "--verbose")
    warm.handshake()
    warm.call("echo", word="payload-word")
    until(warm.asleep, what="the idle stop")
    warm.start_call("die", how="exit3")
    until(lambda: "exit status 3" in log.read_text(), what="the exit in the log")
    warm.finish()
    text = log.read_text()
    for word in ("no recorded handshake", "server started", str(server), "server exited", "idle for 30ms", "exit status 3"):
        assert word in text, (word, text)
    assert "payload-word" not in text and "client-secret-name" not in text and "tok-1234567" not in text


# --------------------------------------------------------------------------- what --check asks (B2, B4)

def test_b2_without_variables_one_probe_and_one_handshake():
    plan = read_plan(None, {})
    assert plan.client is None and len(plan.probes) == len(plan.handshakes) == 1
    assert json.loads(plan.handshakes[0])["protocolVersion"] == "2025-06-18"
    meta = json.loads(plan.probes[0])["_meta"]
    assert list(meta) == ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo",
                          "io.modelcontextprotocol/clientCapabilities"]
    assert meta["io.modelcontextprotocol/clientInfo"] == json.loads(plan.handshakes[0])["clientInfo"]


def test_b2_the_text_of_the_variables_is_kept_but_for_its_line_feeds():
    """A message is one line; between tokens a space says the same."""
    raw = b'\n{"protocolVersion" : "2025-06-18",\r\n "capabilities":{"x":1.0},\t"clientInfo":{"name":"n","version":"1"}}\n'
    plan = read_plan(None, {b"MCP_LAZY_CHECK_INITIALIZE": raw, b"MCP_LAZY_CHECK_BEFORE": b"[]"})
    assert plan.probes == []
    assert plan.handshakes == [raw.strip().replace(b"\r\n", b"  ")]
    assert one_line(b"") == b" ", "no text at all is not the default"


@pytest.mark.parametrize("texts", [[], ['{"a":[1,2,{"b":"},{"}]}'], ['{"a":1}', ' {"a":"\\",{\\""} ', '{"b":{"c":[",",{}]}}']])
def test_b2_the_raw_elements_of_an_array_of_objects(texts):
    raw = " [%s] " % ",".join(texts)
    assert len(json.loads(raw)) == len(texts)
    assert elements(raw.encode()) == [text.strip().encode() for text in texts]


def test_b2_several_probes_keep_their_raw_params():
    raw = b'[{"method":"server/discover","params":{"n":1.0, "x":"],["}}, {"params":{ },"method":"server/discover"}]'
    assert read_probes(raw, "X") == [b'{"n":1.0, "x":"],["}', b"{ }"]
    with pytest.raises(UsageError, match="^X"):
        read_probes(b'[{"method":"tools/list","params":{}}]', "X")


# ------------------------------------------------------------------------------------ --as: the known clients

@pytest.mark.parametrize("name", KNOWN_CLIENTS)
def test_as_the_plan_of_each_known_client_can_be_sent(name):
    plan = read_plan(name, {b"MCP_LAZY_CHECK_INITIALIZE": b"ignored", b"MCP_LAZY_CHECK_BEFORE": b"ignored"})
    assert plan.client == name and len(set(plan.handshakes)) == len(plan.handshakes) > 0
    for raw in plan.handshakes:
        told = json.loads(raw)
        assert list(told) == ["protocolVersion", "capabilities", "clientInfo"] and set(told["clientInfo"]) >= {"name", "version"}
        assert b"\n" not in raw


CAPTURES = {
    "claude-code": "claude-code", "codex": "codex", "gemini": "gemini-cli", "opencode": "opencode", "copilot": "copilot-cli",
    "cline": "cline", "grok": "grok", "qwen": "qwen-code", "continue": "continue-cli", "pi": "pi", "mcporter": "mcporter",
    "inspector": "inspector-cli", "fastmcp": "fastmcp-client", "py-sdk-1": "py-sdk-1-client", "py-sdk-2": "py-sdk-2-client-auto",
    "py-sdk": "py-sdk-2-client-auto", "ts-sdk-1": "ts-sdk-1-client", "ts-sdk-2": "ts-sdk-2-client-auto",
    "ts-sdk": "ts-sdk-2-client-auto"}


def captured(client, method):
    """The params of this method in all captures of a client, compact, in their order."""
    folder = Path(os.environ.get("MCP_LAZY_HANDSHAKES", "/nonexistent"))
    (path,) = list(folder.glob(client + "-[0-9]*.jsonl")) or pytest.skip("MCP_LAZY_HANDSHAKES names no folder with captures")
    found = []
    for line in path.read_text("utf-8").strip("\n").split("\n"):
        message = json.loads(line).get("msg")
        if isinstance(message, dict) and message.get("method") == method:
            found.append(json.dumps(message["params"], separators=(",", ":"), ensure_ascii=False).encode())
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", CAPTURES)
def test_as_each_known_client_asks_what_was_captured(name):
    """Version and capabilities of every kind of start, none besides, in the captured member order."""
    def asked(raws):
        return sorted((members(raw)["protocolVersion"], members(raw)["capabilities"]) for raw in raws)
    plan = read_plan(name, {})
    assert asked(plan.handshakes) == sorted(set(asked(captured(CAPTURES[name], "initialize"))))
    assert plan.probes == captured(CAPTURES[name], "server/discover"), "B5: the exact text of its probe"


def test_as_the_table_has_a_capture_for_every_name():
    assert set(CAPTURES) == set(KNOWN_CLIENTS)


# ----------------------------------------------------------------------------------- texts for people

def test_the_usage_names_the_commands_and_every_option():
    text = usage()
    assert "mcp-lazy --check" in text and "mcp-lazy cache list" in text
    assert [option.name for option in OPTIONS if "--%s " % option.name not in text] == []


@pytest.mark.parametrize("seconds, text", [
    (-5, "0 s"), (0, "0 s"), (0.9, "0 s"), (119.9, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172799, "47 h"),
    (172800, "2 d"), (3 * 86400 + 100, "3 d"), (1e9, "11574 d")])
def test_ages_have_one_unit(seconds, text):
    assert age_text(seconds) == text


@pytest.mark.parametrize("size, text", [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1048575, "1024.0 KiB"), (1048576, "1.0 MiB"), (67108864, "64.0 MiB")])
def test_sizes_have_one_unit(size, text):
    assert size_text(size) == text


def test_a_table_pads_all_columns_but_the_last():
    assert table_lines([("A", "BB", "C"), ("aaa", "b", "a long one")]) == ["A    BB  C", "aaa  b   a long one"]


def test_b13_a_report_is_one_sorted_line_of_ascii():
    assert report_text({"b": "<&>\u00fc\u2028", "a": [True, None, {"z": 1, "y": 2}]}) == (
        '{"a":[true,null,{"y":2,"z":1}],"b":"\\u003c\\u0026\\u003e\\u00fc\\u2028"}\n')


@pytest.mark.parametrize("text, found", [("0", 0), ("90s", 90), ("1h30m", 5400), ("30d", 30 * 86400), ("0d", 0)])
def test_older_than_takes_durations_and_days(text, found):
    assert older_than_s(text) == found


@pytest.mark.parametrize("text", ["", "d", "soon", "5", "-1h", "-3d", "1.5d", "3 d"])
def test_older_than_takes_nothing_else(text):
    with pytest.raises(UsageError, match="older-than"):
        older_than_s(text)


def test_words_of_the_cache_command():
    asked = read_cache_words(["a", "--era=modern", "-json", "--older-than", "1h", "b", "--cache-dir", "/x"], {})
    assert (asked.folder, asked.as_json, asked.era, asked.older_s, asked.filters) == ("/x", True, "modern", 3600, ["a", "b"])
    asked = read_cache_words([], {b"MCP_LAZY_CACHE_DIR": b"/y"})
    assert (asked.folder, asked.as_json, asked.era, asked.older_s, asked.filters) == ("/y", False, None, 0, [])
    assert read_cache_words(["--cache-dir="], {b"HOME": b"/h"}).folder.startswith("/h/")
