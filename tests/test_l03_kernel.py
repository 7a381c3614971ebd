"""L3 on the real kernel: processes, the guard, descriptors, files, the title (A4.3, A5.6, A8.4, A8.8, A10.5, A13, E3)."""

import fcntl
import json
import os
import pty
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_lazy
from harness import LINUX, MODULE, NOBODY, alive, become_nobody, children, group, is_guard, proc_stat, ps_command, set_nonblocking, until, where
from mcp_lazy import (LazyError, Processes, SpawnError, StandardStreams, absolute_path, describe_exit, lock_file, private_dir_trouble,
                      read_private_file, replace_file, rotate_file)

linux_only = pytest.mark.skipif(not LINUX, reason="reads /proc")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to make files of others")
PYTHON = [sys.executable, "-I", "-S", "-c"]


@pytest.fixture
def processes():
    """A Processes whose children are gone in the end, the guard too."""
    made = Processes()
    before = set(children(os.getpid()))
    yield made
    made.close()  # the guard ends with it
    for pid in set(children(os.getpid())) - before:
        made.kill_group(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert set(children(os.getpid())) <= before


def output_of(processes, argv, environment=None):
    """(stdout, wait status) of a program run to its end."""
    read_fd, write_fd = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = processes.spawn(argv, [null, write_fd, null], environment)
    finally:
        os.close(write_fd)
        os.close(null)
    with open(read_fd, "rb") as file:
        raw = file.read()
    return raw, collected(processes, pid)


def collected(processes, pid):
    """The wait status of a child, once it ended."""
    seen = {}
    until(lambda: seen.update(processes.collect()) or pid in seen, what="the end of %d" % pid)
    return seen[pid]


def run_program(program, *words, preexec=None, **more):
    """(status, stdout) of a program that imports the module as `m`."""
    text = "import os, sys\nsys.path.insert(0, %r)\nimport mcp_lazy as m\n%s" % (str(MODULE.parent), program)
    done = subprocess.run(PYTHON + [text] + [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20,
                          preexec_fn=preexec, **more)
    return done.returncode, done.stdout.decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------- spawn

LIBRARY_SIGNALS = 0b111 << 31  # 32 to 34 belong to the C library, nobody else can set them


LOOK = """
import json, os
status = dict(line.rstrip("\\n").split(":", 1) for line in open("/proc/self/status"))
fds = {}
for name in os.listdir("/proc/self/fd"):
    try: fds[name] = os.readlink("/proc/self/fd/" + name)
    except OSError: pass
print(json.dumps([os.getpid(), os.getpgid(0), os.getsid(0), status["SigBlk"], status["SigIgn"], sorted(fds)]))
"""


@linux_only
def test_a8_4_a8_8_a_child_has_its_own_group_three_descriptors_and_clean_signals(processes):
    """Whatever this process leaked, blocks or ignores."""
    leaked = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR2))
    try:
        raw, status = output_of(processes, PYTHON + [LOOK])
    finally:
        signal.signal(signal.SIGUSR1, old)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(leaked)
    pid, pgid, sid, blocked, ignored, fds = json.loads(raw)
    assert status == 0 and pgid == pid and sid == os.getsid(0)
    assert int(blocked, 16) == 0
    own = (1 << signal.SIGPIPE - 1) | (1 << 25 - 1)  # Python ignores SIGPIPE and SIGXFSZ itself
    assert int(ignored, 16) & ~own & ~LIBRARY_SIGNALS == 0
    assert set(fds) <= {"0", "1", "2", "3"}, "3 is its own listing"


@linux_only
def test_a8_8_a_program_in_c_finds_no_signal_ignored(processes):
    raw, _ = output_of(processes, ["/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"])
    assert [int(line.split()[1], 16) & ~LIBRARY_SIGNALS for line in raw.splitlines()] == [0, 0]


def test_a8_4_the_environment_name_by_name(processes):
    environment = {b"PATH": os.environb[b"PATH"], b"a-b.c": b"1", b"1X": b"2", b"EMPTY": b"", b"BYTES": b"\xff\xfe", b"two\nlines": b"3\n4", b"E": b"a=b"}
    raw, status = output_of(processes, PYTHON + ["import os; [os.write(1, k + b'=' + v + b'\\0') for k, v in os.environb.items()]"], environment)
    found = dict(entry.split(b"=", 1) for entry in raw.split(b"\0")[:-1])
    found.pop(b"LC_CTYPE", None)  # made up by the interpreter that shows it
    assert status == 0 and found == environment


@linux_only
def test_a8_4_own_environment_is_the_one_we_were_started_with():
    """Also where os.environ was changed since, and without a made-up LC_CTYPE."""
    environment = {"PATH": os.environ["PATH"], "a.b": "1", "LANG": "C", "X": "a=b"}
    status, out = run_program("os.environ['NEW'] = '1'\nprint(sorted(m.own_environment().items()))", env=environment)
    assert status == 0 and out.strip() == repr(sorted((key.encode(), value.encode()) for key, value in environment.items()))


def make(path, text="", mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return path


def spawn_error(processes, word, *words):
    before = os.listdir("/proc/self/fd") if LINUX else []
    null = os.open(os.devnull, os.O_RDWR)
    try:
        with pytest.raises(SpawnError) as caught:
            processes.spawn([word] + list(words), [null, null, null])
    finally:
        os.close(null)
    assert isinstance(caught.value, LazyError) and "\n" not in str(caught.value)
    assert len(before) + 2 >= len(os.listdir("/proc/self/fd") if LINUX else []), "nothing but the guard's pipe stays open"
    return str(caught.value)


def test_a10_5_case_066_causes_of_a_failed_start_are_told_apart(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "%s:/nowhere/else" % tmp_path)
    texts = {
        "path": spawn_error(processes, "no-such-program-here"),
        "missing": spawn_error(processes, str(tmp_path / "missing")),
        "folder": spawn_error(processes, str(tmp_path)),
        "mode": spawn_error(processes, str(make(tmp_path / "mode", "#!/bin/sh\n", 0o644))),
        "interpreter": spawn_error(processes, str(make(tmp_path / "interpreter", "#!/opt/gone/python9 -I\n"))),
        "crlf": spawn_error(processes, str(make(tmp_path / "crlf", "#!/bin/sh\r\necho\r\n"))),
        "empty": spawn_error(processes, ""),
        "through a file": spawn_error(processes, str(tmp_path / "mode" / "x")),
    }
    assert "no-such-program-here" in texts["path"] and "PATH" in texts["path"] and "/nowhere/else" in texts["path"]
    assert "missing" in texts["missing"] and "no such file" in texts["missing"].lower()
    assert "directory" in texts["folder"]
    assert "execute" in texts["mode"]
    assert "/opt/gone/python9" in texts["interpreter"] and "interpreter" in texts["interpreter"]
    assert "/bin/sh" in texts["crlf"] and "interpreter" in texts["crlf"]
    assert "empty" in texts["empty"]
    assert len(set(texts.values())) == len(texts)
    assert not processes.collect()


def test_a10_5_a_program_of_no_known_format(processes, tmp_path):
    """Without a #! line, and with another machine's header: not the shell's guess, an error or a run, but never a crash."""
    for name, raw in (("other", b"\x7fELF\x02\x01\x01" + b"\0" * 57), ("text", b"hello world\n")):
        (tmp_path / name).write_bytes(raw)
        (tmp_path / name).chmod(0o755)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            pid = processes.spawn([str(tmp_path / name)], [null, null, null])
        except SpawnError as error:
            assert name in str(error) and "not a program" in str(error)
        else:
            assert collected(processes, pid) != 0
        finally:
            os.close(null)


def test_a_nul_in_a_word_is_a_spawn_error(processes):
    assert "cannot be a command" in spawn_error(processes, "a\0b")
    assert "cannot be a command" in spawn_error(processes, sys.executable, "a\0b")


def test_a5_1_the_program_on_path_is_the_one_that_is_started(processes, tmp_path, monkeypatch):
    """The key and the error texts are about the file that the system runs: it passes over one without an execute bit."""
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    make(tmp_path / "one" / "tool", "#!/bin/sh\necho one\n", 0o644)
    make(tmp_path / "two" / "tool", "#!/bin/sh\necho two\n")
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in ("three", "one", "two")) + ":/bin:/usr/bin")
    raw, _ = output_of(processes, ["tool"], dict(os.environb))
    assert raw == b"two\n"
    assert mcp_lazy.find_program("tool") == str(tmp_path / "two" / "tool")


def test_find_program(tmp_path, monkeypatch):
    make(tmp_path / "tool")
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("PATH", "/nowhere:%s" % tmp_path)
    assert mcp_lazy.find_program("tool") == str(tmp_path / "tool")
    assert mcp_lazy.find_program("folder") is None and mcp_lazy.find_program("absent") is None
    assert mcp_lazy.find_program("./tool") == "./tool" and mcp_lazy.find_program("/x/y") == "/x/y"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ":/nowhere")
    assert absolute_path(mcp_lazy.find_program("tool")) == str(tmp_path / "tool"), "an empty part is the working directory"


# ----------------------------------------------------------------------------------- the end of one

KEEPERS = 'trap "" TERM INT HUP; sleep 300 & echo $!; (trap "" TERM; sleep 300) & echo $!; %s'


def started(processes, script):
    """(pid, pids that it printed) of a shell script; its output stays open to us no longer."""
    read_fd, write_fd = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    pid = processes.spawn(["/bin/sh", "-c", script], [null, write_fd, null])
    os.close(write_fd)
    os.close(null)
    with open(read_fd, "rb", buffering=0) as file:
        raw = b""
        while raw.count(b"\n") < 2:
            raw += file.read(100)
    return pid, [int(word) for word in raw.split()]


@linux_only
def test_a13_2_the_rest_of_a_group_is_killed_when_its_leader_ends(processes):
    pid, rest = started(processes, KEEPERS % "exit 7")
    assert collected(processes, pid) == 7 << 8
    until(lambda: not group(pid), what="the end of the group")
    assert not any(alive(one) for one in rest)


@linux_only
def test_a13_1_a_group_is_signalled_as_a_whole_and_gone_is_no_error(processes):
    pid, rest = started(processes, KEEPERS % "wait")
    assert processes.kill_group(pid, signal.SIGKILL) is True
    assert describe_exit(collected(processes, pid)) == "SIGKILL"
    until(lambda: processes.collect() == [] and not where(pgid=pid), what="the end of the group, zombies too")
    assert not any(alive(one) for one in rest)
    assert processes.kill_group(pid, signal.SIGKILL) is False and processes.collect() == []


@linux_only
def test_case_032_children_that_are_not_ours_are_reaped_but_not_told(processes):
    """We may be process 1, or were started with children."""
    stranger = os.spawnv(os.P_NOWAIT, "/bin/sh", ["sh", "-c", "exit 3"])
    pid, _ = started(processes, "echo 1; echo 2; exit 4")
    seen = []
    until(lambda: seen.extend(processes.collect()) or proc_stat(stranger) is None and seen, what="both ends")
    assert seen == [(pid, 4 << 8)]


@linux_only
def test_many_ends_at_once_are_all_told(processes):
    null = os.open(os.devnull, os.O_RDWR)
    pids = [processes.spawn(["/bin/sh", "-c", "exit %d" % number], [null] * 3) for number in range(20)]
    os.close(null)
    seen = {}
    until(lambda: seen.update(processes.collect()) or len(seen) == 20, what="twenty ends")
    assert seen == {pid: number << 8 for number, pid in enumerate(pids)}


@pytest.mark.parametrize("signum", ["SIGSEGV", "SIGKILL", "SIGTERM", "SIGABRT", "SIGBUS", "SIGINT", "SIGXCPU"])
def test_a10_5_how_it_ended(signum):
    assert describe_exit(int(getattr(signal, signum))) == signum
    assert describe_exit(int(getattr(signal, signum)) | 0x80) == signum, "with a core"


def test_a10_5_exit_statuses():
    assert [describe_exit(status << 8) for status in (0, 1, 255)] == ["exit status 0", "exit status 1", "exit status 255"]
    assert describe_exit(45) == "signal 45"


# --------------------------------------------------------------------------------------- the guard

GUARDED = """
import signal
p = m.Processes()
null = os.open(os.devnull, os.O_RDWR)
pids = [p.spawn(["/bin/sh", "-c", 'trap "" TERM INT HUP; sleep 300 & echo $! >"$0.$$"; mv "$0.$$" "$0-$1"; while :; do sleep 1; done', sys.argv[1], str(n)],
                [null, null, null]) for n in range(2)]
gone = p.spawn(["/bin/sh", "-c", "exit 0"], [null, null, null])
ended = []
while not ended:
    ended += p.collect()
assert ended == [(gone, 0)]
print(*pids, flush=True)
signal.pause()
"""


@linux_only
@pytest.mark.parametrize("before", [None, "guard", "all"])
def test_a13_10_the_guard_ends_all_groups_when_its_owner_is_killed(tmp_path, before):
    """Design 5. `before`: signals that clients send to it first (TERM, INT, HUP to everything below them)."""
    text = "import os, sys\nsys.path.insert(0, %r)\nimport mcp_lazy as m\n%s" % (str(MODULE.parent), GUARDED)
    owner = subprocess.Popen(PYTHON + [text, str(tmp_path / "child")], stdout=subprocess.PIPE)
    try:
        pids = [int(word) for word in owner.stdout.readline().split()]
        below = until(lambda: [int(path.read_text()) for path in tmp_path.glob("child-*")][1:] and
                      [int(path.read_text()) for path in tmp_path.glob("child-*")], what="both grandchildren")
        guards = [pid for pid in children(owner.pid) if is_guard(pid)]
        assert len(pids) == 2 and len(guards) == 1
        if before:
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(guards[0], signum)
                if before == "all":
                    for pid in pids:
                        os.killpg(pid, signum)
            assert alive(guards[0])
        everything = pids + below + guards
        assert all(alive(pid) for pid in everything)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    until(lambda: not any(alive(pid) for pid in everything), 2.0, "the end of everything within two seconds")
    for pid in everything:  # adopted by us
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


@linux_only
def test_design_5_the_guard_is_alone_and_small(processes):
    before = set(children(os.getpid()))
    pid, _ = started(processes, "echo 1; echo 2; sleep 300")
    (guard,) = [one for one in set(children(os.getpid())) - before if is_guard(one)]
    found = proc_stat(guard)
    assert found["sid"] == guard and found["pgid"] == guard
    targets = [os.readlink("/proc/%d/fd/%s" % (guard, name)) for name in os.listdir("/proc/%d/fd" % guard)]
    assert len(targets) == 3 and sum(target.startswith("pipe:") for target in targets) == 1
    assert {target for target in targets if not target.startswith("pipe:")} == {os.devnull}


@linux_only
def test_design_5_one_guard_and_a_new_one_if_it_was_killed(processes):
    before = set(children(os.getpid()))

    def guards():
        return [one for one in set(children(os.getpid())) - before if is_guard(one) and alive(one)]
    first, _ = started(processes, "echo 1; echo 2; sleep 300")
    second, _ = started(processes, "echo 1; echo 2; sleep 300")
    (guard,) = guards()
    os.kill(guard, signal.SIGKILL)
    until(lambda: not guards(), what="the end of the guard")
    assert processes.collect() == []
    third, _ = started(processes, "echo 1; echo 2; sleep 300")
    until(lambda: len(guards()) == 1 and guards() != [guard], what="another guard")
    os.kill(first, signal.SIGKILL)
    assert collected(processes, first) == signal.SIGKILL
    processes.close()
    until(lambda: not any(map(alive, (second, third))), what="groups of before are known to the new guard")


@linux_only
def test_design_5_a_server_ends_after_its_guard_was_killed(processes):
    """opencode and others signal all descendants one by one: the end of the server is told all the same."""
    before = set(children(os.getpid()))
    pid, _ = started(processes, "echo 1; echo 2; sleep 300")
    (guard,) = [one for one in set(children(os.getpid())) - before if is_guard(one)]
    os.kill(guard, signal.SIGKILL)
    until(lambda: not alive(guard), what="the end of the guard")
    assert processes.collect() == []
    os.kill(pid, signal.SIGKILL)
    assert collected(processes, pid) == signal.SIGKILL


@linux_only
def test_design_5_closing_ends_the_guard_and_waits_for_it(processes):
    before = set(children(os.getpid()))
    pid, _ = started(processes, "echo 1; echo 2; exit 0")
    collected(processes, pid)
    processes.close()
    assert set(children(os.getpid())) - before == set(), "no zombie either"
    processes.close()


# --------------------------------------------------------------------------------------------- files

def test_a4_3_private_folders(tmp_path):
    path = tmp_path / "a" / "b" / "c"
    assert private_dir_trouble(str(path), create=False)
    old = os.umask(0)
    try:
        assert private_dir_trouble(str(path), create=True) is None
    finally:
        os.umask(old)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent, path.parent.parent)] == [0o700] * 3
    for mode in (0o755, 0o750, 0o700):
        path.chmod(mode)
        assert private_dir_trouble(str(path), create=False) is None
    for mode in (0o720, 0o702, 0o777, 0o1777):
        path.chmod(mode)
        assert "write" in private_dir_trouble(str(path), create=True), oct(mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode, "left as it is"


def test_a4_3_what_is_no_private_folder(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "good").mkdir(0o700)
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "dangling").symlink_to("nowhere")
    for create in (False, True):
        assert private_dir_trouble(str(tmp_path / "file"), create) == "not a directory"
        assert private_dir_trouble(str(tmp_path / "file" / "x"), create)
        assert private_dir_trouble(str(tmp_path / "dangling"), create)
        assert private_dir_trouble(str(tmp_path / "link"), create) is None
        assert private_dir_trouble("/dev/null", create) == "not a directory"


@root_only
def test_a4_3_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "x").mkdir(0o700)
    os.chown(tmp_path / "x", NOBODY, NOBODY)
    assert private_dir_trouble(str(tmp_path / "x"), create=True) == "owned by another user"


def test_a5_6_private_files_are_read_whole(tmp_path):
    for size in (0, 1, 70000, 3000000):
        (tmp_path / "f").write_bytes(b"x" * size)
        assert read_private_file(str(tmp_path / "f"), 3000000) == b"x" * size
    (tmp_path / "link").symlink_to("f")
    assert len(read_private_file(str(tmp_path / "link"), 3000000)) == 3000000
    assert read_private_file(str(tmp_path / "f"), 2999999) is None, "too large"


def test_a5_6_anything_else_is_none_and_never_blocks(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    master, slave = pty.openpty()
    try:
        for path in (tmp_path / "fifo", tmp_path, tmp_path / "absent", tmp_path / "dangling", tmp_path / "loop", "/dev/null", "/dev/zero",
                     os.ttyname(slave), "a\0b", tmp_path / ("n" * 300)):
            assert read_private_file(str(path), 1 << 20) is None, path
    finally:
        os.close(master)
        os.close(slave)


@root_only
def test_a5_6_a_file_of_somebody_else_is_none(tmp_path):
    (tmp_path / "f").write_text("x")
    os.chown(tmp_path / "f", NOBODY, NOBODY)
    assert read_private_file(str(tmp_path / "f"), 100) is None


def test_a5_5_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "f"
    for raw in (b"first", b"", b"x" * 3000000):
        replace_file(str(path), raw)
        assert path.read_bytes() == raw and stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["f"]
    path.chmod(0o644)
    (tmp_path / "link").symlink_to("f")
    replace_file(str(tmp_path / "link"), b"other")
    assert path.read_bytes() == b"x" * 3000000 and not (tmp_path / "link").is_symlink(), "a link is replaced, not followed"


def test_a5_5_the_leftover_of_a_killed_writer_is_removed(tmp_path):
    leftover = tmp_path / ".tmp-f"
    leftover.symlink_to("/etc/passwd")
    replace_file(str(tmp_path / "f"), b"new")
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"new"


def test_a5_5_a_failed_replacement_leaves_no_temporary(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "full").write_text("")
    with pytest.raises(OSError):
        replace_file(str(tmp_path / "f"), b"new")
    assert os.listdir(tmp_path) == ["f"]
    with pytest.raises(OSError):
        replace_file(str(tmp_path / "absent" / "f"), b"new")


def test_a5_5_a_full_file_system_leaves_the_old_file_and_no_temporary(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    program = ("import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
               "try: m.replace_file(sys.argv[1], b'x' * 5000)\nexcept OSError as error: print('refused', error.errno)\n"
               "print(sorted(os.listdir(os.path.dirname(sys.argv[1]))), len(open(sys.argv[1]).read()))")
    status, out = run_program(program, tmp_path / "f")
    assert status == 0 and out == "refused 27\n['f'] 3\n"


@root_only
def test_a5_5_a_folder_that_may_not_be_written(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir(0o755)
    (folder / "f").write_bytes(b"old")
    (folder / "f").chmod(0o644)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            become_nobody()
            try:
                replace_file(str(folder / "f"), b"new")
            except PermissionError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] in (0, 256)
    assert os.listdir(folder) == ["f"] and (folder / "f").read_bytes() == b"old"


def test_a5_7_a_lock_is_for_one_and_ends_with_its_holder(tmp_path):
    path = str(tmp_path / "lock")
    fd = lock_file(path)
    assert fd is not None and stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert lock_file(path) is None
    status, out = run_program("print(m.lock_file(sys.argv[1]))", path)
    assert (status, out) == (0, "None\n"), "neither for another process"
    assert os.get_inheritable(fd) is False
    os.close(fd)
    status, out = run_program("print(m.lock_file(sys.argv[1]) is not None)", path)
    assert (status, out) == (0, "True\n")
    again = lock_file(path)
    assert again is not None, "a dead holder holds nothing"
    os.close(again)
    with pytest.raises(OSError):
        lock_file(str(tmp_path / "absent" / "lock"))


def test_a5_7_a_lock_that_is_refused_gives_its_descriptor_back(tmp_path):
    fd = lock_file(str(tmp_path / "lock"))
    low = os.dup(fd)
    os.close(low)
    for _ in range(50):
        assert lock_file(str(tmp_path / "lock")) is None
    high = os.dup(fd)
    os.close(high)
    os.close(fd)
    assert high == low


def test_f10_a_log_is_rotated_once(tmp_path):
    path = tmp_path / "log"
    rotate_file(str(path), 10)
    assert not os.listdir(tmp_path)
    path.write_bytes(b"x" * 10)
    rotate_file(str(path), 10)
    assert os.listdir(tmp_path) == ["log"]
    path.write_bytes(b"y" * 11)
    (tmp_path / "log.1").write_bytes(b"older")
    rotate_file(str(path), 10)
    assert os.listdir(tmp_path) == ["log.1"] and (tmp_path / "log.1").read_bytes() == b"y" * 11
    path.write_bytes(b"z" * 11)
    (tmp_path / "log.1").unlink()
    (tmp_path / "log.1").mkdir()
    (tmp_path / "log.1" / "x").mkdir()
    rotate_file(str(path), 10)
    assert path.read_bytes() == b"z" * 11, "what cannot be renamed stays"


def test_a16_1_appending_makes_a_private_file_and_is_never_an_error(tmp_path):
    path = tmp_path / "log"
    assert mcp_lazy.append_to_file(str(path), b"a\n") and mcp_lazy.append_to_file(str(path), b"b\n")
    assert path.read_bytes() == b"a\nb\n" and stat.S_IMODE(path.stat().st_mode) == 0o600
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path, tmp_path / "no" / "log", tmp_path / "fifo", "a\0b"):
        assert mcp_lazy.append_to_file(str(odd), b"x") is False


def test_a15_2_the_end_of_a_file(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    assert [mcp_lazy.file_tail(str(tmp_path / "f"), size) for size in (3, 10, 100)] == [b"789", b"0123456789", b"0123456789"]
    assert mcp_lazy.file_tail(str(tmp_path / "absent"), 3) == b"" and mcp_lazy.file_tail(str(tmp_path), 3) == b""


def test_absolute_paths_are_lexical(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    here = str(tmp_path)
    for path, wanted in (("a", here + "/a"), ("./a", here + "/a"), ("link/../a", here + "/a"), ("/a/./b//c/", "/a/b/c"), ("/..", "/"),
                         ("/../../a", "/a"), ("/a/../..", "/"), ("", here), (".", here), ("link", here + "/link"), ("/a b/\udcff", "/a b/\udcff")):
        assert absolute_path(path) == wanted


@pytest.mark.parametrize("environment, wanted", [
    ({b"XDG_CACHE_HOME": b"/x"}, "/x/mcp-lazy"), ({b"XDG_CACHE_HOME": b"/x", b"HOME": b"/h"}, "/x/mcp-lazy"), ({b"HOME": b"/h"}, "/h/.cache/mcp-lazy"),
    ({b"XDG_CACHE_HOME": b"", b"HOME": b"/h"}, "/h/.cache/mcp-lazy"), ({b"XDG_CACHE_HOME": b"rel", b"HOME": b"/h"}, None), ({}, None),
    ({b"TMPDIR": b"/t"}, "/t/mcp-lazy-%d" % os.geteuid()), ({b"HOME": b""}, None)], ids=repr)
@pytest.mark.skipif(sys.platform == "darwin", reason="another folder there")
def test_a4_1_a4_3_the_users_cache_folder(environment, wanted):
    assert mcp_lazy.user_cache_dir(environment) == (wanted or "/tmp/mcp-lazy-%d" % os.geteuid())


def test_design_6_stat_of_programs(tmp_path):
    make(tmp_path / "x", "abc")
    make(tmp_path / "y", "abcd", 0o644)
    (tmp_path / "link").symlink_to("x")
    os.utime(tmp_path / "x", ns=(5, 123456789))
    assert mcp_lazy.program_stat(str(tmp_path / "x")) == (3, 123456789, True)
    assert mcp_lazy.program_stat(str(tmp_path / "link")) == (3, 123456789, True)
    assert mcp_lazy.program_stat(str(tmp_path / "y"))[2] is False
    assert [mcp_lazy.program_stat(str(path)) for path in (tmp_path, tmp_path / "absent", "/dev/null", "a\0b")] == [None] * 4


# ------------------------------------------------------------------------------------- descriptors

def test_case_008_standard_streams_are_left_as_they_were_found():
    """Pipes and sockets are made non-blocking and set back; files, terminals and what was non-blocking before stay."""
    program = ("s = m.StandardStreams()\nout = [s.make_nonblocking(0), s.make_nonblocking(1), os.get_blocking(0), os.get_blocking(1)]\n"
               "s.restore()\ns.restore()\nopen(sys.argv[1], 'w').write(repr(out + [os.get_blocking(0), os.get_blocking(1)]))")

    def outcome(tmp, stdin, stdout):
        text = "import os, sys\nsys.path.insert(0, %r)\nimport mcp_lazy as m\n%s" % (str(MODULE.parent), program)
        subprocess.run(PYTHON + [text, tmp], stdin=stdin, stdout=stdout, check=True)
        return eval(Path(tmp).read_text())
    import socket
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result")
        read_fd, write_fd = os.pipe()
        one, other = socket.socketpair()
        master, slave = pty.openpty()
        try:
            assert outcome(result, read_fd, write_fd) == [True, True, False, False, True, True]
            assert outcome(result, one, one) == [True, True, False, False, True, True]
            assert os.get_blocking(read_fd) and os.get_blocking(write_fd) and os.get_blocking(one.fileno())
            with open(os.path.join(folder, "file"), "w+") as file:
                assert outcome(result, file, slave) == [False, False, True, True, True, True]
            set_nonblocking(read_fd, True)
            assert outcome(result, read_fd, write_fd) == [True, True, False, False, False, True]
            assert not os.get_blocking(read_fd), "it was so before"
        finally:
            for fd in (read_fd, write_fd, master, slave):
                os.close(fd)
            one.close()
            other.close()


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_standard_descriptors_become_the_null_device(closed, tmp_path):
    program = ("for fd in %r: os.close(fd)\ns = m.StandardStreams()\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
               "os.write(fd, repr((fd > 2, [os.fstat(n).st_rdev == os.stat(os.devnull).st_rdev for n in %r])).encode())" % (closed, closed))
    run_program(program, tmp_path / "out")
    assert (tmp_path / "out").read_text() == repr((True, [True] * len(closed)))


def test_reading_and_writing_do_not_block_and_tell_an_end():
    read_fd, write_fd = mcp_lazy.make_pipe()
    assert not os.get_inheritable(read_fd) and not os.get_inheritable(write_fd)
    mcp_lazy.set_blocking(read_fd, False)
    mcp_lazy.set_blocking(write_fd, False)
    assert mcp_lazy.read_some(read_fd) is None
    assert mcp_lazy.write_some(write_fd, [b"ab", bytearray(b"cd"), memoryview(b"ef")]) == 6
    assert mcp_lazy.read_some(read_fd, 4) == b"abcd" and mcp_lazy.read_some(read_fd) == b"ef"
    while mcp_lazy.write_some(write_fd, [b"x" * 65536]):
        pass
    assert mcp_lazy.poll_now(write_fd, writable=True) is False and mcp_lazy.poll_now(read_fd, writable=False) is True
    mcp_lazy.close_quietly(write_fd)
    while mcp_lazy.read_some(read_fd):
        pass
    assert mcp_lazy.read_some(read_fd) == b""
    mcp_lazy.close_quietly(read_fd)
    mcp_lazy.close_quietly(read_fd)


@linux_only
def test_the_end_of_a_terminal_is_an_end():
    master, slave = pty.openpty()
    os.close(slave)
    assert mcp_lazy.read_some(master) == b"", "EIO"
    os.close(master)


# ------------------------------------------------------------------------------------------ the title

def titled(words, *argv):
    """(what set_title said, what ps shows, /proc/self/environ afterwards) of a process started with these words."""
    program = ("print(m.set_title(%r), flush=True)\nsys.stdout.write(repr(m.own_environment()) + '\\n')\nsys.stdout.flush()\nsys.stdin.read()" % (words,))
    text = "import os, sys\nsys.path.insert(0, %r)\nimport mcp_lazy as m\n%s" % (str(MODULE.parent), program)
    process = subprocess.Popen(PYTHON + [text] + list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"MARK": "kept", "PATH": os.environ["PATH"]})
    try:
        said, environment = process.stdout.readline().decode().strip(), eval(process.stdout.readline())
        shown = ps_command(process.pid)
        with open("/proc/%d/comm" % process.pid) as file:
            comm = file.read().strip()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    return said, shown, environment, comm


@linux_only
@pytest.mark.parametrize("words, shown", [
    ([b"mcp-lazy"], "mcp-lazy"), ([b"/opt/mcp-lazy", b"--verbose", b"node", b"x"], "/opt/mcp-lazy --verbose node x"), ([b"mcp-lazy", b"", b"a b"], "mcp-lazy  a b")])
def test_e3_1_the_title_is_what_ps_shows(words, shown):
    said, found, environment, comm = titled(words)
    assert said == "True" and found.rstrip() == shown.rstrip() and comm == "mcp-lazy"
    assert environment[b"MARK"] == b"kept"


@linux_only
def test_e3_1_a_title_that_is_too_long_is_cut_and_the_environment_stays():
    said, found, environment, comm = titled([b"mcp-lazy", b"x" * 100000])
    assert said == "True" and found.startswith("mcp-lazy xxx") and "MARK" not in found
    assert environment == {b"MARK": b"kept", b"PATH": os.environb[b"PATH"]}


def test_resource_numbers_are_never_an_error():
    assert mcp_lazy.resident_kib(os.getpid()) > 1000 or not LINUX
    assert mcp_lazy.resident_kib(0x3fffffff) == 0
    assert mcp_lazy.child_pids(0x3fffffff) == [] and mcp_lazy.child_title(0x3fffffff) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_stamps_are_utc_with_milliseconds():
    assert mcp_lazy.utc_stamp(0.0) == "1970-01-01T00:00:00.000"
    assert mcp_lazy.utc_stamp(1764513600.25) == "2025-11-30T14:40:00.250"


def test_names_of_the_file_system_survive():
    for raw in (b"plain", b"\xff\xfe", "\u00e9".encode()):
        assert mcp_lazy.filesystem_bytes(mcp_lazy.filesystem_text(raw)) == raw
        assert mcp_lazy.filesystem_bytes(raw) == raw


def test_fcntl_flags_of_a_lock_do_not_block(tmp_path):
    """A fifo in the lock's place is no hang."""
    os.mkfifo(tmp_path / "lock")
    try:
        fd = lock_file(str(tmp_path / "lock"))
    except OSError:
        return
    if fd is not None:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
        os.close(fd)


def test_standard_streams_of_this_process_are_untouched():
    streams = StandardStreams()
    before = [os.get_blocking(fd) for fd in (0, 1, 2)]
    streams.restore()
    assert [os.get_blocking(fd) for fd in (0, 1, 2)] == before
