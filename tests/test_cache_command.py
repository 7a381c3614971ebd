"""`mcp-lazy cache list|show|check|clear|prune` (design section 6), and when recordings age (A5.10)."""

import json
import os
import re
import shutil
import time

import pytest

from harness import FAKE, VERSION
from test_check import MODERN, both_eras, envelope, passes

DAY_S = 86400
SECRET = "hunter2-in-an-argument"
COMMANDS = ["list", "show", "check", "clear", "prune"]


# ------------------------------------------------------------------------------------------ helpers

def cache(box, *words, status=0, **more):
    """stdout of `mcp-lazy cache WORDS`, which has to end with this status."""
    found, out, err = box.run("cache", *words, **more)
    assert "Traceback" not in err
    assert found == status, (found, out, err)
    return out.decode("utf-8")


def as_json(box, *words, status=0):
    """The items of the one JSON document that `cache WORDS --json` prints."""
    document = json.loads(cache(box, *words, "--json", status=status))
    if isinstance(document, list):
        return document
    (items,) = [value for value in document.values() if isinstance(value, list)]
    return items


def keys(box, *words):
    return sorted(item["key"] for item in as_json(box, "list", *words))


def server(box, name, *words, **flags):
    """A server with a program file of its own, by which it can be told from the others."""
    path = box.path / name
    shutil.copy(str(FAKE), str(path))
    fake = box.fake(**flags)
    fake.argv = [str(path) if word == box.server else word for word in fake.argv] + list(words)
    return fake


def recorded(box, name, *words, **flags):
    """(server, path of its recording) after a session."""
    before = set(box.recordings())
    fake = server(box, name, *words, **flags)
    box.record(fake)
    (path,) = set(box.recordings()) - before
    return fake, path


def age(path, seconds_s):
    """Makes a recording look that old: its answers and its last use."""
    then = time.time() - seconds_s
    text = re.sub(rb'"(at|recordedAt)":\d+', rb'"\1":%d' % (then * 1000), path.read_bytes())
    path.write_bytes(text)
    os.utime(str(path), (then, then))


def unused_for(path, seconds_s):
    then = time.time() - seconds_s
    os.utime(str(path), (then, then))
    return path.stat().st_mtime_ns


def odd_files(box):
    """What else may lie in a cache directory: {what: path}."""
    made = {}
    for number, (name, data) in enumerate({
            "empty": b"", "text": b"hello\n", "array": b"[]\n", "foreign": b'{"name":"something else"}\n', "zeros": b"\0" * 100,
            "newer": b'{"schema":9,"entries":[]}\n', "older": b'{"schema":1,"command":["x"],"entries":{}}\n'}.items()):
        made[name] = box.cache / ("%032x.json" % number)
        made[name].write_bytes(data)
        made[name].chmod(0o600)
    made["oversized"] = box.cache / ("%032x.json" % 100)
    with open(str(made["oversized"]), "wb") as file:
        file.truncate((64 << 20) + 1)
    made["fifo"] = box.cache / ("%032x.json" % 101)
    os.mkfifo(str(made["fifo"]))
    made["directory"] = box.cache / ("%032x.json" % 102)
    made["directory"].mkdir()
    return made


# --------------------------------------------------------------------------------------- the command line

def test_the_command_needs_one_of_its_words(box):
    for words in ([], ["frobnicate"], ["--json"]):
        status, out, err = box.run("cache", *words)
        assert (status, out) == (2, b""), words
        assert "list" in err and "prune" in err, "the words that there are"
    status, out, err = box.run("cache", "list", "--nope")
    assert (status, out) == (2, b"") and "--nope" in err and "cache --help" in err


@pytest.mark.parametrize("words, part", [
    (["list", "--era", "middle"], "era"), (["list", "--older-than", "soon"], "older-than"), (["clear", "--older-than", "-5s"], "older-than"),
    (["list", "--era"], "era"), (["clear", "--cache-dir"], "cache-dir")])
def test_bad_options_are_named_and_nothing_is_done(box, words, part):
    _, path = recorded(box, "one.py")
    status, out, err = box.run("cache", *words)
    assert (status, out) == (2, b"") and part in err
    assert path.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_or_missing_directory_is_no_error(box, command):
    """And the command does not make it."""
    cache(box, command)
    assert as_json(box, command) == []
    assert not box.cache.exists()
    box.cache.mkdir(mode=0o700)
    cache(box, command)


def test_the_word_cache_is_a_server_behind_two_dashes(box):
    """0.2: a server of that name."""
    folder = box.path / "bin"
    folder.mkdir()
    tool = folder / "cache"
    tool.write_text("#!/bin/sh\nexec %s\n" % " ".join("'%s'" % word for word in box.fake().argv))
    tool.chmod(0o755)
    relay = box.relay(["cache", "list"], env=box.env(PATH="%s:%s" % (folder, os.environ["PATH"])))
    relay.handshake()
    assert relay.call("pid")["calls"] == 1


# -------------------------------------------------------------------------------------------------- list

def test_list_as_a_table(box):
    """A head line and a line for each recording: command, eras, versions, lists and counts, age, size, last use."""
    _, one = recorded(box, "alpha.py", tools=7)
    _, two = recorded(box, "beta.py", tools=3)
    age(two, 3 * DAY_S + 100)
    lines = [line for line in cache(box, "list").split("\n") if line.strip()]
    (first,) = [line for line in lines if "alpha.py" in line]
    (second,) = [line for line in lines if "beta.py" in line]
    for word in ("key", "command", "era", "version", "list", "age", "size", "used"):
        assert word in lines[0].lower(), word
    for line, path, count in ((first, one, 7), (second, two, 3)):
        assert path.name[:8] in line and "legacy" in line and VERSION in line
        assert re.search(r"tools\W*%d\b|\b%d tools" % (count, count), line), line
    assert re.search(r"\s3 ?d\b", second) and not re.search(r"\s3 ?d\b", first)


def test_list_as_json(box):
    fake, path = recorded(box, "alpha.py", tools=7)
    (item,) = as_json(box, "list")
    assert item["key"] == path.name[:-len(".json")]
    assert str(box.path / "alpha.py") in json.dumps(item["command"])
    assert item["eras"] == ["legacy"] and item["versions"] == [VERSION]
    assert "tools/list" in json.dumps(item["lists"]) and "7" in json.dumps(item["lists"])
    assert path.stat().st_size in item.values(), "its size in bytes"


def test_list_shows_both_eras_and_all_versions(box):
    fake = both_eras(box, tools=2, prompts=1)
    passes(box, fake)
    box.record(fake, version="2024-11-05")
    (item,) = as_json(box, "list")
    assert sorted(item["eras"]) == ["legacy", "modern"]
    assert sorted(item["versions"]) == ["2024-11-05", VERSION, MODERN]
    table = cache(box, "list")
    for word in ("legacy", "modern", "2024-11-05", VERSION, MODERN):
        assert word in table


def test_list_filters_by_command_and_key(box):
    _, one = recorded(box, "alpha.py")
    _, two = recorded(box, "beta.py")
    key_one, key_two = one.name[:-5], two.name[:-5]
    assert keys(box) == sorted([key_one, key_two])
    assert keys(box, "alpha") == [key_one]
    assert keys(box, "beta.py") == [key_two]
    assert keys(box, key_two[3:20]) == [key_two]
    assert keys(box, "gamma") == []
    assert "alpha.py" not in cache(box, "list", "beta")


def test_list_filters_do_not_look_at_arguments(box):
    """Nobody can find out a secret by asking for it."""
    recorded(box, "alpha.py", "--token=" + SECRET)
    assert keys(box, SECRET) == [] and keys(box, "token=") == []


def test_list_filters_by_era_and_age(box):
    old_fake, old = recorded(box, "alpha.py")
    modern = both_eras(box, era="modern")
    passes(box, modern)
    (new,) = set(box.recordings()) - {old}
    age(old, 2 * 3600)
    assert keys(box, "--era", "legacy") == [old.name[:-5]]
    assert keys(box, "--era=modern") == [new.name[:-5]]
    assert keys(box, "--older-than", "1h") == [old.name[:-5]]
    assert keys(box, "--older-than", "3h") == []
    assert keys(box, "--older-than", "1h", "--era", "modern") == []


def test_list_of_another_directory(box):
    """--cache-dir, MCP_LAZY_CACHE_DIR, the user's cache directory: as in a session (A1.6, A4)."""
    fake = server(box, "alpha.py")
    other = box.path / "other"
    box.record(fake, "--cache-dir", str(other))
    assert keys(box) == []
    assert len(keys(box, "--cache-dir", str(other))) == 1
    assert "alpha.py" in cache(box, "list", env=box.env(MCP_LAZY_CACHE_DIR=str(other)))
    box.record(fake, env=box.env(MCP_LAZY_CACHE_DIR=None))
    assert "alpha.py" in cache(box, "list", env=box.env(MCP_LAZY_CACHE_DIR=None))


@pytest.mark.parametrize("words", [["list"], ["show"], ["check"], ["list", "--json"], ["show", "--json"], ["check", "--json"],
                                   ["clear"], ["clear", "--json"]])
def test_arguments_are_never_shown(box, words):
    """Design 6: they may hold secrets; word 0 and the program files are shown, nothing else."""
    recorded(box, "alpha.py", "--token=" + SECRET, SECRET)
    out = cache(box, *words)
    assert "alpha.py" in out
    assert SECRET not in out and "--token" not in out and "--seen" not in out


def test_control_characters_of_a_server_do_not_reach_the_terminal(box):
    raw = json.dumps({"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": {"name": "a\u001b[31mb\u0007\u009b", "version": "\r1"}})
    recorded(box, "alpha.py", init_raw=raw, list_raw={"tools/list": '{"tools":[{"name":"x\\u001b]0;y\\u0007","description":"\\u001b[2J"}]}'})
    for words in (["list"], ["show"], ["check"]):
        out = cache(box, *words)
        assert not set("\x1b\x07\r\x9b") & set(out), words


def test_looking_does_not_count_as_use(box):
    _, path = recorded(box, "alpha.py")
    then = unused_for(path, 5 * DAY_S)
    for words in (["list"], ["show"], ["check"]):
        cache(box, *words)
    assert path.stat().st_mtime_ns == then


# -------------------------------------------------------------------------------------------------- show

def test_show_prints_a_recording_readably(box):
    fake = both_eras(box, tools=2, prompts=1, version="8.8.8")
    passes(box, fake)
    recorded(box, "beta.py", tools=4)
    out = cache(box, "show", "modern.py")
    for word in ("modern.py", "legacy", "modern", VERSION, MODERN, "8.8.8", "tools/list", "tool0", "tool1", "prompt0"):
        assert word in out, word
    assert "tool3" not in out, "the other recording"
    assert "tool3" in cache(box, "show"), "without a filter all are shown"


def test_show_as_json(box):
    _, path = recorded(box, "alpha.py", tools=2)
    (item,) = as_json(box, "show")
    assert item["key"] == path.name[:-5] and "tool1" in json.dumps(item)


def test_show_says_when_there_is_no_such_recording(box):
    recorded(box, "alpha.py")
    status, out, err = box.run("cache", "show", "gamma")
    assert status == 1 and out == b"" and "gamma" in err


# -------------------------------------------------------------------------------------------------- check

def test_check_of_good_recordings(box):
    recorded(box, "alpha.py")
    passes(box, both_eras(box, tools=5, page=2))
    out = cache(box, "check")
    assert "alpha.py" in out and "modern.py" in out
    assert len(as_json(box, "check")) == 2


DAMAGE = {
    "cut in the middle": lambda raw: raw[:len(raw) // 2],
    "cut by one byte": lambda raw: raw[:-3],
    "a byte of the skeleton": lambda raw: raw.replace(b'"entries"', b'"entrie\xff"'),
    "a result that does not parse": lambda raw: raw.replace(b'"tools": [', b'"tools": [[', 1),
    "half overwritten with zeros": lambda raw: raw[:100] + b"\0" * (len(raw) - 100),
    "empty": lambda raw: b""}


@pytest.mark.parametrize("name", DAMAGE)
def test_check_finds_damaged_recordings(box, name):
    """Exit 1; the file is named, the others are not blamed, nothing is removed."""
    recorded(box, "beta.py")
    fake, path = recorded(box, "alpha.py")
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[name](whole))
    assert path.read_bytes() != whole
    out = cache(box, "check", status=1)
    assert path.name[:8] in out
    (bad,) = [line for line in out.split("\n") if path.name[:8] in line]
    assert "beta.py" not in bad and path.exists()
    assert len(as_json(box, "check", status=1)) == 2
    relay = box.relay(fake)
    assert relay.handshake()["serverInfo"]["name"] == "fake", "a damaged recording is no trouble for a session"


@pytest.mark.parametrize("change", ["touched", "replaced", "gone"])
def test_check_finds_programs_that_changed(box, change):
    """Such a recording is never used again: its key is another one now."""
    recorded(box, "beta.py")
    recorded(box, "alpha.py")
    program = box.path / "alpha.py"
    if change == "touched":
        os.utime(str(program), (5, 5))
    elif change == "replaced":
        program.write_text("pass\n")
    else:
        program.unlink()
    out = cache(box, "check", status=1)
    (line,) = [line for line in out.split("\n") if "alpha.py" in line]
    (good,) = [line for line in out.split("\n") if "beta.py" in line]
    assert line.split()[0] != good.split()[0] or "ok" not in line.lower()
    cache(box, "check", "beta.py")
    cache(box, "check", "alpha.py", status=1)


def test_check_does_not_blame_what_is_still_used(box):
    """Mode, owner and links of a program are not in the key (A5.1, design 6): size and time are."""
    fake, _ = recorded(box, "alpha.py")
    program = box.path / "alpha.py"
    program.chmod(0o755)
    program.chmod(0o644)
    os.link(str(program), str(box.path / "another-name.py"))
    starts = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    relay.finish()
    assert fake.starts() == starts, "this recording is of use"
    cache(box, "check")


def test_check_of_a_program_found_on_path(box):
    """Word 0 without a slash: a shell's name for it is what was recorded."""
    folder = box.path / "bin"
    folder.mkdir()
    tool = folder / "my-mcp"
    tool.write_text("#!/bin/sh\nexec %s\n" % " ".join("'%s'" % word for word in box.fake().argv))
    tool.chmod(0o755)
    env = box.env(PATH="%s:%s" % (folder, os.environ["PATH"]))
    relay = box.relay(["my-mcp", "--token=" + SECRET], env=env)
    relay.handshake()
    relay.finish()
    assert "my-mcp" in cache(box, "check", env=env)
    assert SECRET not in cache(box, "show", env=env)
    tool.unlink()
    assert "my-mcp" in cache(box, "check", status=1, env=env)


def test_check_looks_at_every_odd_file_and_blames_what_can_not_be_used(box):
    recorded(box, "alpha.py")
    made = odd_files(box)
    out = cache(box, "check", status=1)
    for name in ("empty", "text", "array", "foreign", "zeros", "oversized", "fifo"):
        assert made[name].name[:32] in out, name


# --------------------------------------------------------------------------------------- odd files elsewhere

def test_odd_files_disturb_no_command(box):
    """Damaged, foreign, oversized, of a newer schema, no regular files: listed or passed over, never an error."""
    _, path = recorded(box, "alpha.py")
    odd_files(box)
    (box.cache / "notes.txt").write_text("mine")
    (box.cache / ".tmp-1234").write_bytes(b"half")
    assert "alpha.py" in cache(box, "list")
    assert path.name[:-5] in keys(box)
    assert "tool0" in cache(box, "show", "alpha")
    cache(box, "prune")
    assert path.exists()


def test_a_half_written_result_is_shown_as_damaged_not_as_good(box):
    _, path = recorded(box, "alpha.py", tools=3)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"tool1"', b'"tool1'))
    assert path.read_bytes() != whole
    cache(box, "list")
    cache(box, "show")
    cache(box, "check", status=1)


# -------------------------------------------------------------------------------------------------- clear

def test_clear_removes_what_matches_and_says_so(box):
    one_fake, one = recorded(box, "alpha.py")
    _, two = recorded(box, "beta.py")
    out = cache(box, "clear", "alpha")
    assert "alpha.py" in out and "beta.py" not in out
    assert not one.exists() and two.exists()
    starts = one_fake.starts()
    relay = box.relay(one_fake)
    relay.handshake()
    assert one_fake.starts() == starts + 1


def test_clear_without_a_filter_removes_all_recordings_and_nothing_else(box):
    """Without a question; files of others and what a symbolic link points to stay."""
    recorded(box, "alpha.py")
    recorded(box, "beta.py")
    elsewhere = box.path / "elsewhere.json"
    elsewhere.write_text("{}")
    (box.cache / ("%032x.json" % 7)).symlink_to(elsewhere)
    (box.cache / "notes.txt").write_text("mine")
    (box.cache / "settings.json").write_text("{}")
    (box.cache / "folder").mkdir()
    (box.cache / "folder" / "x.json").write_text("{}")
    items = as_json(box, "clear")
    assert len([item for item in items if "alpha.py" in json.dumps(item) or "beta.py" in json.dumps(item)]) == 2
    assert elsewhere.read_text() == "{}"
    for name in ("notes.txt", "settings.json", "folder/x.json"):
        assert (box.cache / name).exists(), name
    assert keys(box) == []
    cache(box, "clear")


def test_clear_in_the_default_directory_leaves_the_bytecode(box):
    env = box.env(MCP_LAZY_CACHE_DIR=None)
    box.record(server(box, "alpha.py"), env=env)
    place = box.home / ".cache" / "mcp-lazy"
    assert len(box.recordings(place)) == 1
    cache(box, "clear", env=env)
    assert box.recordings(place) == [] and list((place / "bytecode").rglob("*.pyc"))


def test_clear_while_a_session_runs_disturbs_nothing(box):
    """It goes on; what it learns is written again, and the next session is warm."""
    fake = server(box, "alpha.py")
    relay = box.relay(fake)
    relay.handshake()
    relay.ask("tools/list")
    cache(box, "clear")
    assert box.recordings() == []
    relay.call("pid")
    relay.finish()
    box.record(fake)
    starts = fake.starts()
    relay = box.relay(fake)
    relay.handshake()
    relay.ask("tools/list")
    assert fake.starts() == starts


def test_json_is_a_boolean_like_every_other(box):
    """A1.3, A3: `--json=false` is off, `--json=maybe` an error."""
    recorded(box, "alpha.py")
    assert "alpha.py" in cache(box, "list", "--json=false") and not cache(box, "list", "--json=false").startswith(("[", "{"))
    assert json.loads(cache(box, "list", "-json=true"))
    cache(box, "list", "--json=maybe", status=2)


def test_clear_by_age_and_era(box):
    _, one = recorded(box, "alpha.py")
    _, two = recorded(box, "beta.py")
    age(one, 10 * DAY_S)
    cache(box, "clear", "--era", "modern")
    assert one.exists() and two.exists()
    cache(box, "clear", "--older-than", "100h")
    assert not one.exists() and two.exists()


def test_clear_removes_damaged_files_too(box):
    """A filter of the key finds them where no command can be read."""
    _, path = recorded(box, "alpha.py")
    path.write_bytes(path.read_bytes()[:50])
    cache(box, "clear", path.name[:16])
    assert not path.exists()


# ----------------------------------------------------------------------------------- prune, last use (A5.10)

def test_a5_10_prune_removes_what_was_unused_for_90_days(box):
    paths = {}
    for name, days in (("alpha.py", 91), ("beta.py", 89), ("gamma.py", 0)):
        _, paths[name] = recorded(box, name)
        unused_for(paths[name], days * DAY_S)
    out = cache(box, "prune")
    assert "alpha.py" in out and "beta.py" not in out and "gamma.py" not in out
    assert [name for name, path in paths.items() if path.exists()] == ["beta.py", "gamma.py"]
    assert as_json(box, "prune") == []


def test_a5_10_prune_removes_odd_recordings_but_nothing_of_others(box):
    _, path = recorded(box, "alpha.py")
    damaged = box.cache / ("%032x.json" % 5)
    damaged.write_bytes(b"{")
    notes = box.cache / "notes.txt"
    notes.write_text("mine")
    for one in (path, damaged, notes):
        unused_for(one, 100 * DAY_S)
    cache(box, "prune")
    assert not path.exists() and not damaged.exists() and notes.exists()


def stale(box, number):
    """A recording of a program that nobody uses any more."""
    path = box.cache / ("%032x.json" % number)
    path.write_bytes(b'{"schema":2}\n')
    path.chmod(0o600)
    unused_for(path, 100 * DAY_S)
    return path


def a_day_later(box):
    """Every trace of the last pruning gets a day older."""
    for path in box.cache.iterdir():
        if path.suffix != ".json":
            unused_for(path, 25 * 3600)


def test_a5_10_a_check_prunes_at_most_once_a_day(box):
    fake = server(box, "alpha.py")
    box.cache.mkdir(mode=0o700)
    first = stale(box, 1)
    passes(box, fake)
    assert not first.exists(), "pruned behind the check"
    second = stale(box, 2)
    passes(box, fake)
    assert second.exists(), "not again on the same day"
    a_day_later(box)
    passes(box, fake)
    assert not second.exists()
    assert len(keys(box)) == 1


def test_a5_10_a_failed_check_prunes_nothing_that_is_in_use(box):
    fake = server(box, "alpha.py")
    passes(box, fake)
    fake.set(die="exit1")
    assert box.run("--check", "--", *fake.argv)[0] == 1
    assert len(box.recordings()) == 1


def test_a5_10_sessions_never_prune(box):
    box.cache.mkdir(mode=0o700)
    path = stale(box, 1)
    fake, _ = recorded(box, "alpha.py")
    a_day_later(box)
    relay = box.relay(fake)
    relay.handshake()
    relay.call("pid")
    relay.finish()
    assert path.exists()


def test_a5_10_last_use_is_the_files_mtime_touched_once_a_day(box):
    fake, path = recorded(box, "alpha.py")
    raw = path.read_bytes()

    def session():
        starts = fake.starts()
        relay = box.relay(fake)
        relay.handshake()
        relay.ask("tools/list")
        relay.finish()
        assert fake.starts() == starts and path.read_bytes() == raw
    then = unused_for(path, 3600)
    session()
    assert path.stat().st_mtime_ns == then, "used within the day: no write at all"
    unused_for(path, 50 * 3600)
    session()
    assert abs(path.stat().st_mtime - time.time()) < 60
    then = path.stat().st_mtime_ns
    session()
    assert path.stat().st_mtime_ns == then


def test_a5_10_a_modern_session_is_a_use_too(box):
    """It has no handshake: discovery alone, answered from the recording."""
    fake = both_eras(box, era="modern")
    passes(box, fake)
    (path,) = box.recordings()
    unused_for(path, 50 * 3600)
    starts = fake.starts()
    relay = box.relay(fake)
    relay.ask("server/discover", envelope())
    relay.finish()
    assert fake.starts() == starts and abs(path.stat().st_mtime - time.time()) < 60


def test_a5_10_a_used_recording_survives_its_90_days(box):
    fake, path = recorded(box, "alpha.py")
    unused_for(path, 89 * DAY_S)
    relay = box.relay(fake)
    relay.handshake()
    relay.finish()
    cache(box, "prune")
    assert path.exists()


def test_the_last_use_is_listed(box):
    _, path = recorded(box, "alpha.py")
    unused_for(path, 5 * DAY_S + 100)
    assert re.search(r"\b5 ?d", cache(box, "list"))
