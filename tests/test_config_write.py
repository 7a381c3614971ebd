"""How `mcp-lazy config wrap|reapply|unwrap` writes a client's file (D8): whole, private, and nobody's change lost.

Every system call of a command is made to fail in turn, the process is killed before and after each, and other programs
change the file at each of these points; then in rounds of real processes that run at the same time.  MCP_LAZY_FULL=1
tries every error at every call and 500 rounds; without it the errors take turns and the rounds are 30.
"""

import errno
import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import stat
import struct
import tempfile
import time
from pathlib import Path

import pytest

import faults
from faults import EXCHANGE, MEMORY, SECRET, Act, Fail, FailCalls, HalfWrite, Kill, KillAfter, Place, Signal
from harness import FULL, LINUX

import mcp_lazy

ROUNDS = 500 if FULL else 30
CODES = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.EMFILE)
ROOT = os.geteuid() == 0
NOBODY = 65534
# What stays below the state folder when nothing is wrapped any more.
OURS = re.compile(r"state/(locks/\w{32}\.lock|backups/\w{32}-[\w.]+\.bak)\Z")
STAMP = re.compile(rb"\d{8}T\d{6}\.\d{9}")
BITS = re.compile(rb'seen"?\s*[=:]\s*"([01]+)"')

pytestmark = pytest.mark.timeout(300 if FULL else 60)
needs_exchange = pytest.mark.skipif(not LINUX, reason="how the exchange is called is looked at on Linux only")
needs_root = pytest.mark.skipif(not ROOT, reason="needs root: it becomes another user, or gives files away")


def new_folder(below):
    """A folder that other users may enter too (pytest's own is private)."""
    made = tempfile.mkdtemp(prefix="config-write-", dir=below)
    os.chmod(made, 0o755)
    return made


@pytest.fixture
def folder():
    made = new_folder(None)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def quick():
    """The same where a sync costs nothing, if there is such a place: for tests with hundreds of writes."""
    made = new_folder(MEMORY)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def place(folder):
    return Place(folder)


@pytest.fixture
def quick_place(quick):
    return Place(quick)


# ---------------------------------------------------------------------------------------- scenarios

class Case:
    """One command and what comes before it.

    `tree` is the place then, `allowed` what the config may hold afterwards, `first` what it holds when all is undone.
    """

    def __init__(self, folder, form, action):
        self.place, self.action = Place(folder, form, 0o600 if form == "json" else 0o640), action
        place = self.place
        self.server = None if action.endswith("all") else "one"
        self.first = place.read()
        if action == "reapply":
            place.done("wrap")
            place.write(faults.setup_text(form))
            self.first = place.read()
        elif action.startswith("unwrap"):
            place.done("wrap", server=self.server)
        self.repaired = {}
        self.texts = {self.first, faults.TEXTS[form]}
        self.verb = action.partition("-")[0]
        self.tree, self.names = place.tree(), place.beside()
        self.old = place.read()
        self.good = place.done(self.verb, server=self.server)
        self.new = place.read()
        assert self.new != self.old and place.beside() == self.names
        self.allowed = {self.old, self.new} | self.half_way()
        place.restore(self.tree)

    def half_way(self):
        """With --all each registration is written by itself: only one of them done."""
        if self.server is not None:
            return set()
        found = set()
        for server in ("one", "two"):
            self.place.restore(self.tree)
            self.place.done(self.verb, server=server)
            found.add(self.place.read())
        return found

    def run(self, hook):
        self.place.restore(self.tree)
        return self.place.run(self.verb, server=self.server, hook=hook)

    def call(self, number):
        """One of its calls, for a message."""
        return "call %d %s %s" % (number, *self.good.calls[number - 1][:2])

    def records(self, tree):
        return {path: entry[1] for path, entry in tree.items() if path.startswith("state/") and path.endswith(".json")}

    # -------------------------------------------------------------- what may be wrong, as texts
    def wrong_anyway(self, killed):
        """After anything at all: whole, private, and only our own files beside it."""
        raw = self.place.read()
        if raw not in self.allowed:
            yield "the config is neither old nor new: %r" % raw[:80]
        tree = self.place.tree()
        yield from too_open(tree, self.place)
        for path, (_mode, content) in tree.items():
            if path.endswith(".bak") and "/.tmp-" not in path and content not in self.allowed | self.texts:
                yield "the backup %s is not whole (%d bytes)" % (path, len(content))
        extra = set(self.place.beside()) - set(self.names)
        keys = [os.path.basename(self.place.metadata(server))[:32] for server in ("one", "two")]
        for name in extra:
            if not killed:
                yield "%s stays beside the config" % name
            elif not name.startswith(".mcp-lazy-") or not any(key in name for key in keys):
                yield "%s does not say whose it is" % name

    def wrong_after_error(self, outcome, may_stay=False, sticky=False):
        """After a run in which a call failed. may_stay: the removing of names; sticky: the later ones too."""
        text = outcome.out + outcome.err
        if outcome.status not in (0, 1):
            yield "exit status %d: %s" % (outcome.status, outcome.err[-300:])
        if outcome.status == 1 and self.server and (outcome.out or not one_line(outcome.err)):
            yield "not one line: %r %r" % (outcome.out, outcome.err)
        if "Traceback" in text or SECRET in text:
            yield "a traceback or a secret: %s" % text[-300:]
        yield from self.wrong_anyway(may_stay)
        raw = self.place.read()
        if outcome.status == 0 and raw != self.new:
            yield "it says that it is done, and nothing was changed"
        is_back = self.records(self.place.tree()) == self.records(self.tree)
        if outcome.status == 1 and raw == self.old and not sticky and not is_back:
            yield "the metadata was not put back"

    def wrong_after_repair(self, verbs):
        """The next commands put everything right: the bytes of the start, and nothing left over.

        Many runs end in the same state; it is repaired once.
        """
        state = verbs, tuple(sorted((STAMP.sub(b"", path.encode()), mode, raw and STAMP.sub(b"", raw))
                                    for path, (mode, raw) in self.place.tree().items()))
        if state not in self.repaired:
            self.repaired[state] = list(self.repair(verbs))
        return self.repaired[state]

    def repair(self, verbs):
        """Runs them; the bits that another program has set in the file stay set."""
        expected = BITS.sub(BITS.search(self.place.read()).group(0), self.first)
        for verb in verbs:
            outcome = self.place.run(verb, server=self.server)
            if outcome.status != 0 and verbs != ("unwrap",):  # alone it has nothing to do where nothing was wrapped
                yield "%s afterwards: %r" % (verb, outcome)
            if "Traceback" in outcome.err:
                yield outcome.err[-300:]
        if self.place.read() != expected:
            yield "the bytes after %s are not those of the start: %r" % ("+".join(verbs), self.place.read()[:200])
        if self.place.beside() != self.names:
            yield "left beside the config: %s" % self.place.beside()
        tree = self.place.tree()
        for path, entry in tree.items():
            if path.startswith("state") and entry[1] is not None and not OURS.match(path):
                yield "left in the state folder: %s" % path
        yield from too_open(tree, self.place)


def one_line(text):
    return text.startswith("mcp-lazy: ") and text.count("\n") == 1


def too_open(tree, place):
    """What others may read (D2): nothing below the state folder; beside the config what the config itself allows."""
    for path, (mode, raw) in tree.items():
        if path.startswith("state") and mode & 0o077:
            yield "%s has mode %o" % (path, mode)
        if path.startswith("conf/") and raw is not None and mode & ~place.mode:
            yield "%s has mode %o" % (path, mode)


ORDERS = (("wrap", "unwrap"), ("unwrap",))


def orders(number):
    """How the state is repaired after run `number`: the two ways take turns."""
    return ORDERS if FULL else ORDERS[number % 2:][:1]


def all_of(found, what):
    """Fails with the first of what is wrong, each with the call it happened at."""
    assert not found, "%s, %d findings:\n%s" % (what, len(found), "\n".join(found[:25]))


def numbers_of(case, thinly=1):
    """The calls of a case that are tried; with --all they come again for each server, so the short run takes some."""
    step = 1 if FULL else thinly * (3 if case.server is None else 1)
    return range(1, len(case.good.calls) + 1, step)


ACTIONS = ("wrap", "reapply", "unwrap", "wrap-all", "unwrap-all")
CASES = [(form, action) for form in ("json", "toml") for action in ACTIONS]
# TOML is written by the same calls, so the short run takes two of its cases.
SHORT = [(form, action) for form, action in CASES if form == "json" or action in ("wrap", "unwrap")]
every_case = pytest.mark.parametrize("form, action", CASES if FULL else SHORT)


# ------------------------------------------------------------------------------------ calls that fail

def test_every_system_call_of_a_write_is_seen(quick):
    """What the tests below rest on: no file is opened or changed behind the back of the module `posix`."""
    for action in ("wrap", "reapply", "unwrap"):
        Path(quick, action).mkdir()
        case = Case("%s/%s" % (quick, action), "json", action)
        good = case.place.run(action, fork=True)
        assert good.names() == case.good.names(), "a fork does something else"
        assert [entry for entry in good.unseen if entry[1].startswith(quick)] == []
        assert {"open", "read", "write", "fsync", "flock", "close"} <= set(good.names())
        if LINUX:
            assert len(good.exchanges()) == 1


@pytest.mark.slow
@every_case
def test_a_system_call_that_fails(quick, form, action):
    """D8.1: the file is old or new, exit 1 with one line, metadata put back, no temporary; the next command repairs."""
    case, found = Case(quick, form, action), []
    failed = 0
    for number in numbers_of(case):
        for code in CODES if FULL else (CODES[number % 5],):
            for verbs in orders(number):
                name, path, _mode = case.good.calls[number - 1]
                outcome = case.run(Fail(number, code))
                failed += outcome.status == 1
                # What could not be unlinked is for the next command to remove.
                here = list(case.wrong_after_error(outcome, name == "unlink"))
                if path == case.place.relay and outcome.status == 2 and case.place.read() == case.old:
                    here = []  # a relay that cannot be looked at is a wrong command line (D1.2)
                here += case.wrong_after_repair(verbs)
                found += ["%s %s: %s" % (case.call(number), errno.errorcode[code], text) for text in here]
    all_of(found, action)
    assert failed > 10, "hardly any failure was noticed"


@pytest.mark.parametrize("names, code", [
    ("write", errno.ENOSPC), ("write", errno.EDQUOT), ("fsync", errno.EIO), ("fsync", errno.ENOSPC),
    ("open", errno.EACCES), ("flock", errno.EIO), ("fchmod", errno.EPERM), ("rename", errno.EACCES),
    ("rename", errno.EIO), ("renameat2", errno.EIO), ("renameat2", errno.EACCES), ("renameat2", errno.EROFS)])
def test_failures_that_must_not_be_passed_over(place, names, code):
    """D8: what the safety of the write rests on is an error when it does not work, never a success."""
    if names == "renameat2" and not LINUX:
        pytest.skip("Linux has renameat2")
    before = place.tree("conf")
    outcome = place.run("wrap", hook=FailCalls((names,), code))
    assert outcome.status == 1 and one_line(outcome.err) and not outcome.out, outcome
    assert place.tree("conf") == before and not os.path.exists(place.metadata())


@pytest.mark.slow
@pytest.mark.parametrize("form, action", [case for case in SHORT if case != ("toml", "unwrap")] if not FULL else CASES)
@pytest.mark.parametrize("kind, code", [("allocates", errno.ENOSPC), ("changes", errno.EROFS), ("opens", errno.EMFILE)])
def test_from_some_call_on_nothing_works_any_more(quick, form, action, kind, code):
    """D8.1: a disk that fills up, a disk that becomes read-only, no descriptor left: also the cleaning up meets it.

    Then the metadata cannot always be put back; what counts is that the next command is not misled by it.
    """
    case, found = Case(quick, form, action), []
    for number in numbers_of(case, 3):
        for verbs in orders(number):
            outcome = case.run(Fail(number, code, kind))
            here = list(case.wrong_after_error(outcome, kind == "changes", True)) + list(case.wrong_after_repair(verbs))
            found += ["from %s: %s" % (case.call(number), text) for text in here]
    all_of(found, action)


@pytest.mark.slow
@every_case
def test_a_write_that_stops_half_way(quick, form, action):
    """D8.1: half of the bytes are on the disk, then there is an error, or the process is dead."""
    case, found = Case(quick, form, action), []
    for number in [number for number, name in enumerate(case.good.names(), 1) if name == "write"]:
        for code in (errno.ENOSPC, None):
            for verbs in ORDERS:
                outcome = case.run(HalfWrite(number, code))
                here = list(case.wrong_anyway(code is None))
                here += list(case.wrong_after_repair(verbs))
                if outcome.status != (1 if code else -signal.SIGKILL):
                    here.append("it went on: %r" % outcome)
                found += ["%s %s: %s" % (case.call(number), code, text) for text in here]
    all_of(found, action)


def test_short_writes_are_gone_on_with(place):
    """Case 008: a write that took one byte less than it was given is no error and no end."""
    class Short(faults.Hook):
        def __call__(self, call):
            return os.write(call.args[0], bytes(call.args[1])[:7]) if call.name == "write" else None

    place.done("wrap", hook=Short())
    short = place.read()
    place.done("unwrap", hook=Short())
    assert place.read() == faults.TEXTS["json"]
    place.done("wrap")
    assert place.read() == short


# --------------------------------------------------------------------------------- killed in the middle

@pytest.mark.slow
@pytest.mark.parametrize("form, action, when", [
    (form, action, when) for when in (Kill, KillAfter) for form, action in (CASES if FULL else SHORT)
    if FULL or when is Kill or (form, action) in (("json", "wrap"), ("json", "unwrap"))])
def test_a_kill_at_every_system_call(quick, form, action, when):
    """D8.1: the file is old or new, others can read nothing at any time, the next command takes away what is left."""
    case, found = Case(quick, form, action), []
    for number in numbers_of(case):
        for verbs in orders(number):
            outcome = case.run(when(number))
            assert outcome.status == -signal.SIGKILL, outcome
            here = list(case.wrong_anyway(True)) + list(case.wrong_after_repair(verbs))
            found += ["%s %s: %s" % (when.__name__, case.call(number), text) for text in here]
    all_of(found, action)


@pytest.mark.slow
@pytest.mark.parametrize("action", ["wrap", "unwrap"])
def test_a_signal_at_every_system_call(quick, action):
    """SIGTERM: the change is made whole, or not at all and exit 1 says so; never a half."""
    case, found, ended = Case(quick, "json", action), [], set()
    for number in range(1, len(case.good.calls) + 1, 1 if FULL else 2):
        outcome = case.run(Signal(number))
        if outcome.status == -signal.SIGTERM:  # before it listens; nothing is done yet
            here = list(case.wrong_anyway(False)) + ["too late"] * (case.place.tree() != case.tree)
        else:
            here = list(case.wrong_after_error(outcome))
            here += ["a failure, but the change is made"] * (outcome.status == 1 and case.place.read() != case.old)
        ended.add(outcome.status)
        here += case.wrong_after_repair(ORDERS[0])
        found += ["SIGTERM before %s: %s" % (case.call(number), text) for text in here]
    all_of(found, action)
    assert {0, 1} <= ended


def test_case_078_what_is_made_is_private_from_its_first_byte(folder):
    """D2, case 078: files are created 0600 and folders 0700, whatever the umask is (it is 0 in these runs)."""
    for action in ("wrap", "reapply", "unwrap"):
        Path(folder, action).mkdir()
        case = Case("%s/%s" % (folder, action), "json", action)
        made = [call for call in case.good.calls if call[2] is not None]
        assert made and all(mode & 0o077 == 0 for _name, _path, mode in made), made


def test_d8_1_the_order_of_the_write(place):
    """D8.1, D8.5: backup, metadata, temporary, fsync, exchange, its folder; unwrap's metadata goes last (D8.2)."""
    def first(calls, name, part):
        return next(number for number, call in enumerate(calls) if call[0] == name and part in call[1])

    calls = place.done("wrap").calls
    names = [call[0] for call in calls]
    metadata, conf = os.path.basename(place.metadata()), os.path.dirname(place.config)
    swap = first(calls, "renameat2" if LINUX else "renamex_np", "")
    temp = first(calls, "open", conf + "/.mcp-lazy-")
    assert first(calls, "flock", "") < first(calls, "open", place.config)
    assert first(calls, "rename", "/backups/") < first(calls, "rename", metadata) < temp < swap
    assert "fsync" in names[temp:swap] and names.index("fsync", swap) > first(calls[swap:], "open", conf) + swap
    assert place.config in [call[1] for call in calls[temp:swap]], "no last look at the file"
    calls = place.done("unwrap").calls
    gone = max(number for number, call in enumerate(calls) if call[0] == "unlink" and metadata in call[1])
    assert first(calls, "renameat2" if LINUX else "renamex_np", "") < gone


@pytest.mark.parametrize("action", ["wrap", "reapply", "unwrap"])
def test_d7_3_a_dry_run_changes_nothing(folder, action):
    """D7.3: not even the state folder is made, no lock is taken."""
    case = Case(folder, "json", action)
    assert os.path.exists(case.place.state) == (action != "wrap")
    outcome = case.place.done(action, "--dry-run")
    assert case.place.tree() == case.tree
    assert outcome.report()["dryRun"] is True
    changing = {"write", "mkdir", "unlink", "rename", "fsync", "flock", "chmod", "fchmod"} | set(EXCHANGE)
    assert not changing & set(outcome.names())
    assert all(mode is None for _name, _path, mode in outcome.calls)


# --------------------------------------------------------------------- another program changes the file

def bits(raw):
    return BITS.search(raw).group(1)


def flipped(raw, number):
    """The document with one more bit set: what the foreign program does, and by which its changes are known again."""
    start = BITS.search(raw).start(1)
    return raw[:start + number] + b"1" + raw[start + number + 1:]


def change(path, number, how):
    """One foreign change; the new bytes, b"" where the file is no file any more.

    rename: a new file takes the name; place: the bytes change in the same file, size and times stay; truncate: it is
    emptied, then written; chmod: only the mode; delete, folder, fifo: something else or nothing has the name.
    """
    with open(path, "rb") as file:
        raw = flipped(file.read(), number)
    seen = os.stat(path)
    if how == "rename":
        with open(path + ".foreign", "wb") as file:
            file.write(raw)
        os.chmod(path + ".foreign", stat.S_IMODE(seen.st_mode))
        os.rename(path + ".foreign", path)
    elif how in ("place", "truncate"):
        fd = os.open(path, os.O_WRONLY | (os.O_TRUNC if how == "truncate" else 0))
        os.write(fd, raw)
        os.close(fd)
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    elif how == "chmod":
        os.chmod(path, 0o400)
    else:
        os.unlink(path)
        raw = b""
        if how != "delete":
            (os.mkdir if how == "folder" else os.mkfifo)(path)
    return raw


class Foreign:
    """Changes to make at some calls of a run; `notes` has what was written."""

    def __init__(self, place, *hows):
        self.place, self.hows, self.notes = place, hows, {}

    def act(self, index):
        def changed():
            self.notes[str(index)] = change(self.place.config, index, self.hows[index]).decode("latin-1")
        return changed

    def at(self, *numbers, on=None):
        return Act({number: self.act(index) for index, number in enumerate(numbers)}, on)

    def run(self, action, hook):
        outcome = self.place.run(action, hook=hook, notes=self.notes)
        self.written = [text.encode("latin-1") for _index, text in sorted(outcome.notes.items())]
        return outcome


def wrong_after_foreign_bytes(case, outcome, written):
    """A foreign program put `written` there; then either our change is in it too, or exit 1 and exactly its bytes."""
    raw = case.place.read()
    if outcome.status == 0 and raw != flipped(case.new, 0):
        yield "success, and the foreign change is lost: %r" % raw[:80]
    if outcome.status == 1:
        if raw != written or raw != flipped(case.old, 0):
            yield "a conflict, and not the foreign bytes: %r" % raw[:80]
        if not one_line(outcome.err) or "changed during editing" not in outcome.err:
            yield "not the message of a conflict: %r" % outcome.err
        if case.records(case.place.tree()) != case.records(case.tree):
            yield "the metadata was not put back"
    if outcome.status not in (0, 1):
        yield repr(outcome)
    if case.place.beside() != case.names:
        yield "left: %s" % case.place.beside()


@pytest.mark.slow
@pytest.mark.parametrize("form, action, how", [
    (form, action, how)
    for form in ("json", "toml") for action in ("wrap", "reapply", "unwrap") for how in ("rename", "place", "truncate")
    if FULL or (form == "json" and action != "reapply") or (action, how) == ("wrap", "rename")])
def test_case_077_a_foreign_change_before_every_call(quick, form, action, how):
    """D8.1, D8.3, case 077: no change of another program is lost, whenever it comes: it is in, or a conflict."""
    case, found, ended = Case(quick, form, action), [], []
    for number in range(1, len(case.good.calls) + 1):
        case.place.restore(case.tree)
        foreign = Foreign(case.place, how)
        outcome = foreign.run(action, foreign.at(number))
        ended.append(outcome.status)
        here = list(wrong_after_foreign_bytes(case, outcome, foreign.written[0]))
        here += case.wrong_after_repair(("wrap", "unwrap"))
        found += ["before %s: %s" % (case.call(number), text) for text in here]
    all_of(found, action)
    assert 1 in ended and ended[-1] == 0 and ended[0] == 0, ended


def is_as_left(case, outcome, how, left):
    """Does the config's name stand for what `change` made of it? left: its stat, None if there is none."""
    if left is None or how == "delete":
        return left is None and how == "delete"
    if how == "chmod":
        return stat.S_IMODE(left.st_mode) == 0o400 and case.place.read() == (case.old if outcome.status else case.new)
    return stat.S_ISDIR(left.st_mode) if how == "folder" else stat.S_ISFIFO(left.st_mode)


@pytest.mark.slow
@pytest.mark.parametrize("action, how", [
    ("wrap", "chmod"), ("unwrap", "chmod"), ("wrap", "delete"), ("unwrap", "delete"), ("wrap", "folder"),
    ("unwrap", "fifo")])
def test_the_name_becomes_something_else_before_every_call(quick, action, how):
    """D8.1, case 094: a stricter mode stays, a file that was removed does not come back, nothing else is replaced."""
    case, found = Case(quick, "json", action), []
    for number in range(1, len(case.good.calls) + 1):
        case.place.restore(case.tree)
        foreign = Foreign(case.place, how)
        outcome = foreign.run(action, foreign.at(number))
        left = os.lstat(case.place.config) if os.path.lexists(case.place.config) else None
        text = []
        if outcome.status not in (0, 1) or outcome.status == 1 and not one_line(outcome.err):
            text.append(repr(outcome))
        if not is_as_left(case, outcome, how, left):
            text.append("it is not what the other program left, status %d" % outcome.status)
        if set(case.place.beside()) - set(case.names):
            text.append("left: %s" % case.place.beside())
        found += ["before %s: %s" % (case.call(number), one) for one in text]
        if left is not None and how != "chmod":
            (os.rmdir if how == "folder" else os.unlink)(case.place.config)
    all_of(found, action)


@needs_exchange
@pytest.mark.parametrize("second", ["rename", "truncate", "delete"])
@pytest.mark.parametrize("action", ["wrap", "unwrap"])
def test_d8_3_the_file_changes_again_while_it_is_put_back(folder, action, second):
    """D8.3: a change before the exchange, and one more before it is taken back: both kept, stderr says where, exit 1.

    The next command does not take the kept file for its own leftover.
    """
    case = Case(folder, "json", action)
    foreign = Foreign(case.place, "rename", second)
    outcome = foreign.run(action, foreign.at(1, 2, on=EXCHANGE))
    assert outcome.status == 1 and one_line(outcome.err), outcome
    first, other = foreign.written

    def kept():
        return {entry[1]: path for path, entry in case.place.tree("conf").items() if entry[1] is not None}
    assert first in kept(), "the first change is lost"
    if other:
        assert other in kept(), "the second change is lost"
    if second != "truncate":  # what was written in place was our own file, whatever its name is now
        for path in kept().values():
            assert path == "conf/mcp.json" or os.path.basename(path) in outcome.err, (path, outcome.err)
    assert not list(too_open(case.place.tree(), case.place))
    before = set(kept())
    case.place.run("wrap")
    case.place.run("unwrap")
    lost = before - set(kept())
    assert not lost or lost == {first} and flipped(case.first, 0) in kept(), "taken for a leftover"


@needs_exchange
@pytest.mark.parametrize("action", ["wrap", "unwrap"])
def test_d8_3_killed_before_a_conflict_is_taken_back(folder, action):
    """D8.3: after the exchange the foreign bytes have the temporary's name; the next command must not delete them."""
    case = Case(folder, "json", action)
    foreign = Foreign(case.place, "rename")
    swap = case.good.exchanges()[0]
    for number in (swap + 1, swap + 2):
        case.place.restore(case.tree)
        act = Act({swap: foreign.act(0)})
        act.deadly = True
        act.actions[number] = lambda: (act.report(), os.kill(os.getpid(), signal.SIGKILL))
        outcome = foreign.run(action, act)
        assert outcome.status == -signal.SIGKILL, outcome
        case.place.run("wrap")
        case.place.run("unwrap")
        left = [entry[1] for path, entry in case.place.tree("conf").items() if entry[1] is not None]
        assert any(bits(raw)[:1] == b"1" for raw in left), "the next command deleted the only copy of a foreign change"


@pytest.mark.slow
@needs_exchange
def test_d8_3_a_writer_that_holds_the_file_open(quick):
    """D8.3: it opened the file before the exchange. What it writes until the displaced file is read is noticed.

    What it writes later cannot be.
    """
    case, found = Case(quick, "json", "wrap"), []
    swap = case.good.exchanges()[0]
    for number in range(1, swap + 2):
        case.place.restore(case.tree)
        held = {}

        def take():
            held["fd"] = os.open(case.place.config, os.O_RDWR)

        def write():
            raw = flipped(os.pread(held["fd"], 1 << 16, 0), 0)
            os.pwrite(held["fd"], raw, 0)
        actions = {1: take, number: write} if number > 1 else {1: lambda: (take(), write())}
        outcome = case.place.run("wrap", hook=Act(actions))
        if bits(case.place.read())[:1] != b"1" or outcome.status == 1 and case.place.read() != flipped(case.old, 0):
            found.append("written before %s: %r" % (case.call(number), outcome))
    all_of(found, "held open")


# ------------------------------------------------------------------------------ without the exchange

@needs_exchange
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])
def test_d8_3_file_systems_without_an_exchange(place, code):
    """D8.3: a last look and a rename instead, and the report says so; with an exchange it says nothing."""
    assert "atomic" not in place.done("wrap").report()
    place.done("unwrap")
    before = place.read()
    for action in ("wrap", "unwrap"):
        outcome = place.done(action, hook=FailCalls(EXCHANGE, code))
        assert outcome.report()["atomic"] is False
        assert place.beside() == ["mcp.json"]
        assert os.stat(place.config).st_mode & 0o777 == place.mode
    assert place.read() == before


@pytest.mark.slow
@needs_exchange
def test_d8_3_without_an_exchange_a_change_before_the_last_look_is_noticed(quick):
    """D8.1: only between that look and the rename a foreign change can be lost (the limit that the exchange lifts)."""
    class Both(faults.Hook):
        def __init__(self, act):
            self.act = act

        def __call__(self, call):
            if call.name in EXCHANGE:
                raise OSError(errno.EINVAL, "no exchange")
            self.act(call)

    case, lost = Case(quick, "json", "wrap"), []
    calls = case.place.done("wrap", hook=FailCalls(EXCHANGE, errno.EINVAL)).calls
    for number in range(1, len(calls) + 1):
        if calls[number - 1][0] in EXCHANGE:
            continue
        case.place.restore(case.tree)
        foreign = Foreign(case.place, "rename")
        outcome = foreign.run("wrap", Both(foreign.at(number)))
        if list(wrong_after_foreign_bytes(case, outcome, foreign.written[0])):
            lost.append(number)
    final = max(number for number, call in enumerate(calls, 1) if call[0] == "rename" and "/conf/" in call[1])
    looked = max(number for number, call in enumerate(calls[:final - 1], 1) if call[1] == case.place.config)
    assert all(looked < number <= final for number in lost), (lost, looked, final)


# -------------------------------------------------------------------------------- many at the same time

def foreign_writer(place, how, moments_s, log, stop_fd):
    """Another program, in a fork: sets one more bit at each moment and notes it in `log` when it is done."""
    begin_s = time.monotonic()
    for number, moment_s in enumerate(moments_s):
        wait_s = max(0.0, begin_s + moment_s - time.monotonic())
        if select.select([stop_fd], [], [], wait_s)[0]:
            return
        try:
            change(place.config, number, how)
        except (OSError, AttributeError):  # its own reading met its own half of a file: never, it is the only one
            os.write(log, b"!")
            raise
        os.write(log, b"%d\n" % number)


class Round:
    """Two commands and, with `how`, a foreign writer, all at once on one file."""

    def __init__(self, place, commands, how, moments_s):
        self.place, self.is_undone = place, ("unwrap", "one") in commands
        log = tempfile.TemporaryFile()
        stop_read, stop_write = os.pipe()
        pid = os.fork() if how else None
        if pid == 0:
            status = 1
            try:
                os.close(stop_write)
                foreign_writer(place, how, moments_s, log.fileno(), stop_read)
                status = 0
            finally:
                os._exit(status)
        running = [place.start(place.words(action, server=server)) for action, server in commands]
        try:
            self.outcomes = [one.wait() for one in running]
        finally:
            os.close(stop_write)
            os.close(stop_read)
            self.foreign_status = os.waitpid(pid, 0)[1] if pid else 0
        log.seek(0)
        self.written = [int(word) for word in log.read().split()]
        log.close()

    def lost(self):
        """Foreign changes that are not in the file any more."""
        found = bits(self.place.read())
        return [number for number in self.written if found[number:number + 1] != b"1"]

    def wrong(self, first):
        if self.foreign_status != 0:
            yield "the foreign writer failed"
        for outcome in self.outcomes:
            is_clean = outcome.status == 0 or outcome.status == 1 and one_line(outcome.err)
            if not is_clean or SECRET in outcome.err + outcome.out:
                yield repr(outcome)
        put_back = any(outcome.status == 1 and len(outcome.exchanges()) > 1 for outcome in self.outcomes)
        if self.lost() and not put_back:
            yield "foreign changes %s are lost, and both say %s" % (self.lost(), self.outcomes)
        if set(self.place.beside()) - {os.path.basename(self.place.config)} and not put_back:
            yield "left: %s" % self.place.beside()
        if not put_back:
            yield from self.wrong_after_repair(first)

    def is_back(self):
        """Did the foreign program write back a wrapped entry that it had read before an unwrap took it away?"""
        is_managed = os.path.exists(self.place.metadata())
        return self.is_undone and not is_managed and self.place.done("status").report()["wrapped"]

    def wrong_after_repair(self, first):
        if self.is_back():  # nobody can know; --recover is for this
            self.place.done("unwrap", "--recover")
            return
        expected = first
        for number in self.written:
            expected = flipped(expected, number)
        for action in ("wrap", "unwrap"):
            for server in ("one", "two"):
                outcome = self.place.run(action, server=server)
                if outcome.status != 0:
                    yield "%s %s afterwards: %r" % (action, server, outcome)
        if self.place.read() != expected:
            yield "afterwards: %r" % self.place.read()
        if self.place.beside() != [os.path.basename(self.place.config)]:
            yield "left afterwards: %s" % self.place.beside()


PAIRS = ((("wrap", "one"), ("wrap", "two")), (("wrap", "one"), ("wrap", "one")), (("wrap", "two"), ("unwrap", "one")))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form, how", [(form, how) for form in ("json", "toml") for how in ("rename", "truncate", None)
                                       if FULL or (form, how) != ("toml", "truncate")])
def test_two_commands_and_a_foreign_writer_at_once(quick, form, how):
    """No lost foreign change is reported as success (D8.3, case 077).

    The invariant. The foreign program sets one bit after the other in the file, always on top of what it reads there;
    nobody else touches the bits. So a bit that it has set can disappear only through a command of ours that put its
    edit of an older text over it, or through its own reading of such a text. If every command says 0, or 1 before it
    exchanged anything, all bits that were set are there at the end, and the registrations can be wrapped and unwrapped
    to the bytes of the start. A command that met a change at its exchange takes it back and says 1: in between, the
    foreign program may have read or written what stood there, so such a round may miss bits, but it is no success.

    What is left out: a writer that holds the old file open and writes into it after the displaced file was read (D8.3)
    cannot be noticed. The writers here open the file for each change (by rename, or emptied and written in place), so
    that an open before the exchange shows at the displaced file at once.
    """
    seed = int(os.environ.get("MCP_LAZY_SEED", time.time()))
    rng, done, ended, written = random.Random(seed), 0, {0: 0, 1: 0}, 0
    for number in range(ROUNDS if how else ROUNDS // 3):
        sub = "%s/%d" % (quick, number)
        os.mkdir(sub)
        place = Place(sub, form)
        commands, first = PAIRS[number % 3], place.read()
        if ("unwrap", "one") in commands:
            place.done("wrap")
        moments_s = [0.0] * 40 if number % 4 == 0 else sorted(rng.random() * 0.03 for _ in range(2))
        one = Round(place, commands, how, moments_s)
        found = list(one.wrong(first))
        assert not found, ("seed", seed, number, commands, found)
        for outcome in one.outcomes:
            ended[outcome.status] += 1
        done, written = done + 1, written + len(one.written)
        shutil.rmtree(sub)
    is_tested = ended[0] and (ended[1] and written if how else not ended[1])
    assert is_tested, ("no round tested what it is for", seed, ended, written)


# --------------------------------------------------------------------------------------- the lock (D2.2)

def hold(path):
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@pytest.mark.parametrize("action", ["wrap", "unwrap"])
def test_d2_2_waits_for_the_lock(place, action):
    """D2.2: a command waits while another one holds the lock of the file, and then sees what that one has done."""
    if action == "unwrap":
        place.done("wrap")
    os.makedirs(place.state + "/locks", 0o700, exist_ok=True)
    os.chmod(place.state, 0o700)
    read_fd, write_fd = os.pipe()
    fd = hold(place.lock())
    before = place.read()

    class Tell(faults.Hook):
        def after(self, call):
            if call.name == "flock":
                os.write(write_fd, b".")

        def __call__(self, call):
            return None
    running = place.start(place.words(action), hook=Tell())
    try:
        assert select.select([read_fd], [], [], 8.0)[0], "it never asked for the lock"
        assert os.read(read_fd, 1) == b"." and not running.poll()
        assert place.read() == before
        with open(place.config, "wb") as file:
            file.write(flipped(before, 3))
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        for one in (fd, read_fd, write_fd):
            os.close(one)
    outcome = running.wait()
    assert outcome.status == 0, outcome
    assert place.read() != before and bits(place.read())[3:4] == b"1"


class Clock:
    """A clock that moves half a second whenever it is read: what waits half a minute is through at once. For a fork."""

    def __init__(self):
        self.now_s = 1000.0

    def read(self):
        self.now_s += 0.5
        return self.now_s

    def put(self):
        mcp_lazy.monotonic_s = time.monotonic = self.read
        mcp_lazy.pause = time.sleep = lambda seconds: None


def test_d2_2_a_lock_that_stays_held(place):
    """D2.2: after 30 s it gives up with exit 1 and names the lock file; the config is as it was."""
    fd, clock, before = hold(place.lock()), Clock(), place.read()
    notes = {}

    class Seen(faults.Hook):
        def __call__(self, call):
            notes["waited"] = clock.now_s - 1000.0
    try:
        outcome = place.run("wrap", prepare=clock.put, hook=Seen(), notes=notes)
    finally:
        os.close(fd)
    assert outcome.status == 1 and one_line(outcome.err) and place.lock() in outcome.err, outcome
    assert 30.0 <= outcome.notes["waited"] <= 35.0
    assert place.read() == before and not os.path.exists(place.metadata())


def test_d2_2_status_and_dry_run_do_not_wait(place):
    place.done("wrap")
    fd = hold(place.lock())
    try:
        assert place.done("status").report()["wrapped"] is True
        place.done("unwrap", "--dry-run")
    finally:
        os.close(fd)


def test_d2_2_one_lock_for_all_names_of_a_file(place):
    """D2.2: the lock belongs to the file behind the links; it stays, 0600 in a folder of 0700."""
    os.symlink(place.config, place.home + "/link.json")
    place.done("wrap")
    place.done("wrap", server="two", file=place.home + "/link.json")
    assert os.listdir(place.state + "/locks") == [os.path.basename(place.lock())]
    assert stat.S_IMODE(os.stat(place.lock()).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(place.state + "/locks").st_mode) == 0o700


# -------------------------------------------------------------------------------- what the file is (D8.4)

@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o660, 0o755])
def test_case_078_the_mode_is_kept(folder, mode):
    """D8.4, case 078: after wrap and after unwrap, whatever the umask; no other name in the folder."""
    place = Place(folder, mode=mode)
    for action in ("wrap", "unwrap"):
        place.done(action, prepare=lambda: os.umask(0o022))
        assert stat.S_IMODE(os.stat(place.config).st_mode) == mode
        assert place.beside() == ["mcp.json"]


def test_case_079_a_link_stays_a_link(place):
    """D1.4, case 079: the file behind it is edited; text and inode of the link stay."""
    link = place.home + "/.mcp.json"
    os.symlink("../conf/mcp.json", link)
    before = os.lstat(link).st_ino
    assert place.done("wrap", file=link).report()["file"] == place.config
    assert os.readlink(link) == "../conf/mcp.json" and os.lstat(link).st_ino == before
    assert place.read() != faults.TEXTS["json"] and os.listdir(place.home) == [".mcp.json"]
    place.done("unwrap", file=place.config)
    assert place.read() == faults.TEXTS["json"]


def loaded_nobody(place):
    """For a fork: a run in another place loads whatever a command imports, then it becomes an ordinary user."""
    os.mkdir(place.folder + "/loaded")
    Place(place.folder + "/loaded").done("wrap")
    shutil.rmtree(place.folder + "/loaded")
    faults.become_nobody()


def as_nobody(place):
    """`prepare` for a run as an ordinary user (which we may be already)."""
    return (lambda: loaded_nobody(place)) if ROOT else None


def give(place, *paths):
    """To the user that `as_nobody` becomes."""
    if ROOT:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


def without_backups(place):
    return {path: entry for path, entry in place.tree("state").items() if not path.endswith(".bak")}


def test_case_080_a_chain_of_links_and_a_folder_that_nobody_may_write_to(place):
    """Case 080: the temporary stands beside the last hop; a last folder without the right to write is named."""
    store, link = place.folder + "/store", place.home + "/.claude.json"
    conf = os.path.dirname(place.config)
    os.mkdir(store)
    os.symlink("../conf/mcp.json", store + "/h.json")
    os.symlink("../store/h.json", link)
    os.chmod(store, 0o555)
    os.mkdir(place.state, 0o700)
    give(place, place.config, conf, place.state)
    place.done("wrap", file=link, prepare=as_nobody(place))
    assert os.listdir(store) == ["h.json"] and os.readlink(link) == "../store/h.json"
    wrapped = place.read()
    os.chmod(conf, 0o555)
    before, records = os.stat(place.config), without_backups(place)
    try:
        outcome = place.run("unwrap", file=link, prepare=as_nobody(place))
    finally:
        os.chmod(conf, 0o755)
    assert outcome.status == 1 and one_line(outcome.err) and conf in outcome.err, outcome
    after = os.stat(place.config)
    assert place.read() == wrapped and (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert place.beside() == ["mcp.json"] and without_backups(place) == records


@needs_root
def test_d8_4_the_owner_is_kept(place):
    """D8.4: root edits a file of somebody else; it stays that one's, and what stands beside it meanwhile too."""
    os.chown(place.config, 4321, 8765)
    for action in ("wrap", "unwrap"):
        place.done(action)
        seen = os.stat(place.config)
        assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (4321, 8765, 0o600)
    assert place.read() == faults.TEXTS["json"]


@needs_root
@pytest.mark.parametrize("uid, gid", [(0, NOBODY), (NOBODY, 4321)])
def test_d8_4_an_owner_that_cannot_be_kept(place, uid, gid):
    """D8.4, case 078: an ordinary user may write to the file, but not give a new one to its owner or group: refused."""
    os.chown(place.config, uid, gid)
    os.chmod(place.config, 0o666)
    os.mkdir(place.state, 0o700)
    give(place, os.path.dirname(place.config), place.state)
    before = place.tree("conf")
    outcome = place.run("wrap", prepare=as_nobody(place))
    assert outcome.status == 1 and one_line(outcome.err) and "owner" in outcome.err, outcome
    assert place.tree("conf") == before and not os.path.exists(place.metadata())


def set_attribute(path, name, value):
    """Skips the test where the file system has no such attributes."""
    if not hasattr(os, "setxattr"):
        pytest.skip("this system has no os.setxattr")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip("%s cannot be set here: %s" % (name, error.strerror))


def access_list(*entries):
    """The attribute form of an access list: (tag, permissions, id or None) each."""
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, rights, 0xffffffff if ident is None else ident) for tag, rights, ident in entries)


ACCESS_LIST = "system.posix_acl_access"
ONE_MORE_READER = access_list((1, 6, None), (2, 4, 4321), (4, 0, None), (16, 4, None), (32, 0, None))


@pytest.mark.parametrize("name, value", [("user.note", b"kept\0as it is"), (ACCESS_LIST, ONE_MORE_READER)],
                         ids=["user", "access-list"])
def test_d8_4_extended_attributes_are_kept(place, name, value):
    """D8.4: a user's attribute, and an access list with one more reader; the mode with them."""
    set_attribute(place.config, name, value)
    mode = os.stat(place.config).st_mode
    for action in ("wrap", "unwrap"):
        place.done(action)
        assert os.getxattr(place.config, name) == value
        assert os.stat(place.config).st_mode == mode


def test_d8_4_a_folder_gives_no_new_readers(folder):
    """A folder may give every new file a reader (default access list). The config had none, and has none afterwards."""
    place = Place(folder, mode=0o640)
    set_attribute(os.path.dirname(place.config), "system.posix_acl_default",
                  access_list((1, 7, None), (2, 4, 4321), (4, 5, None), (16, 5, None), (32, 5, None)))
    for action in ("wrap", "unwrap"):
        place.done(action)
        assert ACCESS_LIST not in os.listxattr(place.config), action
        assert stat.S_IMODE(os.stat(place.config).st_mode) == 0o640


def test_d8_4_attributes_that_cannot_be_kept(place):
    """D8.4: a disk without room for them refuses the whole change."""
    set_attribute(place.config, "user.note", b"x")
    before = place.tree("conf")
    outcome = place.run("wrap", hook=FailCalls(("setxattr",), errno.ENOSPC))
    assert outcome.status == 1 and one_line(outcome.err), outcome
    assert place.tree("conf") == before


def test_d8_4_hard_links_are_refused_unless_in_place(place):
    """D8.4: a second name would keep the old file. --in-place writes into it: both names show the change."""
    other = place.home + "/second.json"
    os.link(place.config, other)
    before, inode = place.read(), os.stat(place.config).st_ino
    outcome = place.run("wrap")
    assert outcome.status == 1 and one_line(outcome.err) and "--in-place" in outcome.err, outcome
    assert place.read() == before and not os.path.exists(place.metadata())
    place.done("wrap", "--in-place")
    assert place.read() != before and os.path.samefile(place.config, other) and os.stat(other).st_ino == inode
    assert place.run("unwrap").status == 1
    place.done("unwrap", "--in-place")
    assert place.read() == before and os.stat(other).st_ino == inode and os.stat(other).st_nlink == 2


@pytest.mark.slow
def test_in_place_keeps_a_whole_copy_while_it_writes(quick_place):
    """--in-place is not whole in a crash; but the backup is there, whole, before the first byte is changed."""
    place = quick_place
    os.link(place.config, place.home + "/second.json")
    before = place.read()
    place.done("wrap", "--in-place")
    place.done("unwrap", "--in-place")
    tree = place.tree()
    calls = place.done("wrap", "--in-place").calls
    for number in range(1, len(calls) + 1):
        for hook in (Kill(number), KillAfter(number), HalfWrite(number, errno.ENOSPC), HalfWrite(number, None)):
            if isinstance(hook, HalfWrite) and calls[number - 1][0] != "write":
                continue
            place.restore(tree)
            outcome = place.run("wrap", "--in-place", hook=hook)
            copies = [Path(path).read_bytes() for path in place.backups()]
            assert outcome.status in (1, -signal.SIGKILL), outcome
            assert before in copies + [place.read()], (number, calls[number - 1])
            if outcome.status == 1:
                assert place.read() == before and one_line(outcome.err), (number, calls[number - 1], outcome)


# ------------------------------------------------------------------- what is no config that we may edit

def refused(place, action="wrap", file=None, **how):
    """The message; nothing was made beside the file, and no metadata."""
    outcome = place.run(action, file=file, **how)
    assert outcome.status == 1 and one_line(outcome.err) and not outcome.out, outcome
    assert not [path for path in place.tree("state") if path.endswith(".json")] if os.path.isdir(place.state) else True
    assert SECRET not in outcome.err
    return outcome.err


@pytest.mark.parametrize("action", ["wrap", "unwrap"])
def test_case_094_what_is_not_a_readable_file(place, action):
    """D3.2, case 094: a folder, a path below a file, a link to nothing, a loop, a pipe, a device: named, left alone."""
    conf = os.path.dirname(place.config)
    os.mkdir(conf + "/folder")
    os.symlink("nowhere", conf + "/dangling")
    os.symlink("loop", conf + "/loop")
    os.mkfifo(conf + "/pipe")
    before = place.beside()
    for name in ("folder", "mcp.json/below", "dangling", "loop", "pipe", "missing", "no/such/folder"):
        path = "%s/%s" % (conf, name)
        assert os.path.basename(os.path.realpath(path)) in refused(place, action, file=path)
    assert os.devnull in refused(place, action, file=os.devnull)
    assert place.beside() == before and os.listdir(conf + "/folder") == []
    assert place.read() == faults.TEXTS["json"]


def test_case_094_a_file_that_may_not_be_read(place):
    """Case 094: mode 0000 for an ordinary user; bytes, times and inode stay."""
    os.mkdir(place.state, 0o700)
    os.chmod(place.config, 0)
    give(place, place.config, place.state, os.path.dirname(place.config))
    before = os.stat(place.config)
    assert place.config in refused(place, prepare=as_nobody(place))
    after = os.stat(place.config)
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (before.st_ino, before.st_mtime_ns, before.st_mode)


def test_a_file_above_the_limit(place):
    """It is refused with the limit in the message."""
    os.truncate(place.config, mcp_lazy.MAX_CONFIG_BYTES + 1)
    assert str(mcp_lazy.MAX_CONFIG_BYTES) in refused(place)


@pytest.mark.parametrize("raw", [b"", b" \n", b"\xef\xbb\xbf", b"\0" * 4096, b'{"mcpServers":'],
                         ids=["empty", "blank", "mark", "zeros", "half"])
def test_case_097_what_a_crash_leaves(place, raw):
    """Case 097: an empty file, blanks, zeros, half a document: invalid, not empty."""
    place.write(raw)
    assert place.config in refused(place)
    assert place.read() == raw


@pytest.mark.parametrize("what", ["a file", "a folder below a file", "not ours"])
def test_a_state_folder_that_cannot_be(place, what):
    """D2: without a place for metadata and backup nothing is changed."""
    if what == "not ours":
        os.mkdir(place.state, 0o755)
        os.chmod(place.state, 0o555)
        give(place, place.config, os.path.dirname(place.config))
    else:
        Path(place.state).write_bytes(b"")
        if what == "a folder below a file":
            place.state += "/below"
    before = place.tree("conf")
    outcome = place.run("wrap", prepare=as_nobody(place) if what == "not ours" else None)
    assert outcome.status == 1 and one_line(outcome.err) and place.state in outcome.err, outcome
    assert place.tree("conf") == before


# ------------------------------------------------------------------------------------------ backups (D2.3)

def test_d2_1_each_file_has_metadata_and_backups_of_its_own(place):
    """D2.1: the file is part of the name; the same server may stand in a second file of the same client."""
    second = os.path.dirname(place.config) + "/second.json"
    shutil.copy(place.config, second)
    place.done("wrap")
    place.done("wrap", file=second)
    names = [faults.digest(place.client, path, "one") for path in (place.config, second)]
    assert {name[:-5] for name in os.listdir(place.state) if name.endswith(".json")} == set(names)
    assert sorted(name[:32] for name in os.listdir(place.state + "/backups")) == sorted(names)
    for path in (place.config, second):
        place.done("unwrap", file=path)
        assert Path(path).read_bytes() == faults.TEXTS["json"]


DAY_S = 86400


class Past:
    """The wall clock of a run, some days ago; the files that the run made are as old."""

    def __init__(self, place, days):
        self.place, self.at_s = place, time.time() - days * DAY_S

    def put(self):
        mcp_lazy.wall_s = time.time = lambda: self.at_s
        time.time_ns = lambda: int(self.at_s * 1e9)

    def done(self, action, *more):
        known = set(self.place.tree("state"))
        self.place.done(action, *more, prepare=self.put)
        for path in set(self.place.tree("state")) - known:
            os.utime("%s/%s" % (self.place.folder, path), (self.at_s, self.at_s))


def stamps(place, server="one"):
    return [os.path.basename(path)[33:-4] for path in place.backups(server)]


def test_d2_3_name_mode_and_content_of_a_backup(place):
    """D2.3: K and the time in UTC to the nanosecond, 0600 in a folder of 0700, the whole file before the change."""
    begin, texts = time.time() - 1, []
    for action in ("wrap", "unwrap", "wrap"):
        texts.append(place.read())
        place.done(action)
    paths = place.backups()
    assert [Path(path).read_bytes() for path in paths] == texts
    assert stat.S_IMODE(os.stat(place.state + "/backups").st_mode) == 0o700
    for path in paths:
        name = re.fullmatch(r"([0-9a-f]{32})-(\d{8}T\d{6})\.(\d{9})\.bak", os.path.basename(path))
        assert name and stat.S_IMODE(os.stat(path).st_mode) == 0o600
        moment = time.mktime(time.strptime(name[2] + " UTC", "%Y%m%dT%H%M%S %Z")) - time.timezone
        assert begin - 1 <= moment <= time.time() + 1


def test_d4_3_no_change_no_backup(place):
    """D4.3, D2.3: nor for a dry run; status says how many there are (D6.1)."""
    place.done("wrap")
    place.done("wrap")
    place.done("reapply")
    place.done("unwrap", "--dry-run")
    assert len(place.backups()) == 1 and place.done("status").report()["backups"] == 1


def test_d2_3_the_backup_is_there_before_the_change(place):
    """D8.1: at the moment of the exchange the backup holds the old bytes, and the metadata is complete."""
    notes, before = {}, place.read()

    def look():
        notes["backups"] = [Path(path).read_bytes().decode() for path in place.backups()]
        notes["record"] = Path(place.metadata()).read_bytes().decode()
    place.done("wrap", hook=Act({1: look}, EXCHANGE), notes=notes)
    outcome = place.run("unwrap", hook=Act({1: look}, EXCHANGE), notes=notes)
    assert outcome.notes["backups"][0] == before.decode() and len(outcome.notes["backups"]) == 2
    assert json.loads(outcome.notes["record"])["server"] == "one"


def test_d8_1_the_backup_of_a_failed_change_stays(place):
    """D8.1: and after the conflict it is still the file of the time before."""
    before = place.read()
    foreign = Foreign(place, "rename")
    assert foreign.run("wrap", foreign.at(1, on=EXCHANGE)).status == 1
    assert [Path(path).read_bytes() for path in place.backups()] == [before]


def changes(place, past, number):
    """A change of the wrapped entry, so that a backup is made."""
    past.done("wrap", "--env", "MCP_LAZY_IDLE_STOP=%dm" % number)


@pytest.mark.slow
def test_d2_6_old_backups_go(quick_place):
    """D2.6: the newest 20 stay; those of other registrations and strangers' files are left alone."""
    place = quick_place
    Past(place, 60).done("wrap")
    Past(place, 60).place.done("wrap", server="two")
    stranger = place.state + "/backups/note.txt"
    Path(stranger).write_text("by hand")
    os.utime(stranger, (1, 1))
    for number in range(25):
        changes(place, Past(place, 50 - number * 0.1), 10 + number)
    other = place.backups("two")
    place.done("unwrap")
    place.done("wrap")  # from here on the first backup is no pre-wrap backup of what is wrapped now
    place.done("wrap", "--env", "MCP_LAZY_IDLE_STOP=99m")
    found = stamps(place)
    assert len(found) == 20 and found == sorted(found)
    assert place.backups("two") == other and os.path.exists(stranger)


@pytest.mark.slow
def test_d2_6_young_backups_stay(quick_place):
    """D2.6: everything younger than 30 days, however many."""
    place = quick_place
    Past(place, 29).done("wrap")
    for number in range(24):
        changes(place, Past(place, 28 - number * 0.1), 10 + number)
    place.done("wrap", "--env", "MCP_LAZY_IDLE_STOP=99m")
    assert len(stamps(place)) == 26


@pytest.mark.slow
def test_d2_6_the_backup_from_before_the_wrap_stays(quick_place):
    """D2.6: as long as the registration is wrapped, the newest backup without the wrapper in it is never deleted."""
    place = quick_place
    before = place.read()
    Past(place, 90).done("wrap")
    (first,) = place.backups()
    for number in range(24):
        changes(place, Past(place, 50 - number * 0.1), 10 + number)
    place.done("wrap", "--env", "MCP_LAZY_IDLE_STOP=99m")
    assert first in place.backups() and Path(first).read_bytes() == before
    assert len(place.backups()) in (20, 21)


def test_d2_6_keep_backups(quick_place):
    """D2.6: --keep-backups N instead of the 20."""
    place = quick_place
    Past(place, 90).done("wrap")
    (first,) = place.backups()
    for number in range(6):
        changes(place, Past(place, 50 - number), 10 + number)
    place.done("wrap", "--keep-backups", "3", "--env", "MCP_LAZY_IDLE_STOP=99m")
    found = place.backups()
    assert first in found and len(found) in (3, 4)
    assert found[-1] == max(found) and b"99m" not in Path(found[-1]).read_bytes()


def test_d2_6_a_backup_that_cannot_be_deleted_is_no_failure(quick_place):
    """Pruning comes after the change that was asked for; its trouble does not undo or deny it."""
    place = quick_place
    Past(place, 90).done("wrap")
    for number in range(4):
        changes(place, Past(place, 50 - number), 10 + number)

    class NoPruning(faults.Hook):
        def __call__(self, call):
            if call.name == "unlink" and call.path().endswith(".bak"):
                raise OSError(errno.EACCES, "no")
    place.done("wrap", "--keep-backups", "1", "--env", "MCP_LAZY_IDLE_STOP=99m", hook=NoPruning())
    assert b"99m" in place.read()
