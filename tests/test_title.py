"""Part E: what `ps` shows for the relay, however it was started; the server stays its direct child."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from harness import (LINUX, MODULE, ROOT, alive, become_nobody, cmdline, initialize, launcher, proc_stat, ps_command,
                     until)

pytestmark = pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")


def first_word(pid):
    return (ps_command(pid).split() or [""])[0]


def titled(pid):
    """E1.1: the basename of the first word starts with mcp-lazy, whatever the case."""
    return os.path.basename(first_word(pid)).lower().startswith("mcp-lazy")


def check(relay, fake):
    """E1.1, E1.2, E4.6: the title holds by the first answer, and the server is a child of that very pid."""
    relay.handshake()
    assert titled(relay.pid), ps_command(relay.pid)
    pid = relay.call("pid")["pid"]
    assert proc_stat(pid)["ppid"] == relay.pid, "E4.5: no process in between"
    out = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], stdout=subprocess.PIPE).stdout
    assert int(out) == relay.pid
    assert titled(relay.pid)


def file_named(box, name):
    target = box.path / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(box.module, str(target))
    target.chmod(0o755)
    return target


@pytest.mark.parametrize("name", ["mcp-lazy", "MCP-Lazy", "anything", "mcp_lazy.py", "x.pyz", "mcp-lazy-2"])
def test_e1_3_the_executable_file_under_any_name(box, name):
    fake = box.fake()
    check(box.relay([], argv=[str(file_named(box, name)), "--", *fake.argv]), fake)


def test_e4_1_the_files_own_path_is_shown_when_it_may_be(box):
    fake = box.fake()
    file = file_named(box, "mcp-lazy")
    relay = box.relay([], argv=[str(file), "--", *fake.argv])
    relay.handshake()
    assert first_word(relay.pid) in (str(file), "mcp-lazy")


def test_e1_4_a_path_with_a_space(box):
    fake = box.fake()
    check(box.relay([], argv=[str(file_named(box, "my dir/mcp-lazy")), "--", *fake.argv]), fake)


def test_e1_4_a_name_with_a_space(box):
    fake = box.fake()
    check(box.relay([], argv=[str(file_named(box, "my relay")), "--", *fake.argv]), fake)


def test_e2_a_link_to_the_file(box):
    fake = box.fake()
    link = box.path / "link"
    link.symlink_to(file_named(box, "mcp-lazy"))
    check(box.relay([], argv=[str(link), "--", *fake.argv]), fake)


def test_e2_found_on_path(box):
    fake = box.fake()
    file = file_named(box, "mcp-lazy")
    env = box.env()
    env["PATH"] = "%s:%s" % (file.parent, env["PATH"])
    check(box.relay([], argv=["mcp-lazy", "--", *fake.argv], executable=str(file), env=env), fake)


@pytest.mark.parametrize("flags", [[], ["-I"], ["-I", "-S"], ["-u", "-B"], ["-X", "dev"]])
def test_e2_python_with_the_file(box, flags):
    fake = box.fake()
    check(box.relay([], argv=[sys.executable, *flags, str(MODULE), "--", *fake.argv]), fake)


def test_e2_python_with_a_relative_path(box):
    fake = box.fake()
    check(box.relay([], argv=[sys.executable, "mcp_lazy.py", "--", *fake.argv], cwd=str(ROOT)), fake)


def test_e2_python_m(box):
    fake = box.fake()
    check(box.relay([], argv=[sys.executable, "-m", "mcp_lazy", "--", *fake.argv], cwd=str(ROOT)), fake)


@pytest.mark.parametrize("name", ["mcp-lazy", "wrapped"])
def test_e2_the_console_script(box, name):
    """What pip writes: import the module, call main()."""
    fake = box.fake()
    script = box.path / name
    script.write_text("#!%s\nimport re\nimport sys\nsys.path.insert(0, %r)\nfrom mcp_lazy import main\nif __name__ == '__main__':\n"
                      "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n    sys.exit(main())\n"
                      % (sys.executable, str(ROOT)))
    script.chmod(0o755)
    check(box.relay([], argv=[str(script), "--", *fake.argv]), fake)


def test_e2_a_zipapp(box):
    fake = box.fake()
    archive = box.path / "app.pyz"
    with zipfile.ZipFile(str(archive), "w") as out:
        out.write(str(MODULE), "mcp_lazy.py")
        out.writestr("__main__.py", "import sys\nfrom mcp_lazy import main\nsys.exit(main())\n")
    check(box.relay([], argv=[sys.executable, str(archive), "--", *fake.argv]), fake)


def test_e3_5_a_caller_that_chose_the_name_is_left_alone(box):
    fake = box.fake()
    relay = box.relay([], argv=["mcp-lazy-mine", "-I", "-S", str(MODULE), "--", *fake.argv], executable=sys.executable)
    check(relay, fake)
    assert first_word(relay.pid) == "mcp-lazy-mine"


def test_e4_1_the_rest_of_the_title_are_the_users_words(box):
    fake = box.fake(words=["--flag", "last"])
    relay = box.relay([], argv=[sys.executable, "-I", "-S", str(MODULE), "--idle-stop", "1h", "--", *fake.argv])
    relay.handshake()
    words = cmdline(relay.pid)
    assert [word.decode() for word in words[1:]] == ["--idle-stop", "1h", "--", *fake.argv]
    assert relay.call("argv")["argv"] == fake.argv, "the server's own words are not touched"


def test_e3_1_very_short_and_very_long_command_lines(box):
    fake = box.fake()
    relay = box.relay([], argv=[sys.executable, "-I", "-S", str(MODULE), *fake.argv, "x" * 100000, ""])
    check(relay, fake)


def test_e4_2_no_argv0(box):
    fake = box.fake()
    for words, env in ((["--no-argv0"], box.env()), ([], box.env(MCP_LAZY_ARGV0="off"))):
        argv = box.script(*words, "--", *fake.argv)
        relay = box.relay([], argv=argv, env=env)
        relay.handshake()
        assert [word.decode() for word in cmdline(relay.pid)] == argv
        relay.finish()


def test_e4_2_a_word_of_the_server_is_no_option_of_ours(box):
    fake = box.fake(words=["--no-argv0"])
    relay = box.relay([], argv=box.command("--", *fake.argv))
    check(relay, fake)


@pytest.mark.skipif(not LINUX, reason="comm is in /proc")
def test_e4_4_the_short_name(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    with open("/proc/%d/comm" % relay.pid) as file:
        assert file.read() == "mcp-lazy\n"


def test_e4_1_no_marker_reaches_the_server(box):
    fake = box.fake()
    relay = box.relay(fake)
    relay.handshake()
    assert not [item for item in relay.call("environ")["environ"] if item.startswith("MCP_LAZY_ARGV_SET")]


def test_e4_1_a_marker_from_outside_is_no_harm(box):
    """The guard variable of another relay above us (a nested start): still titled, still not handed on."""
    fake = box.fake()
    relay = box.relay(fake, env=box.env(MCP_LAZY_ARGV_SET="1"))
    check(relay, fake)
    assert not [item for item in relay.call("environ")["environ"] if item.startswith("MCP_LAZY_ARGV_SET")]


def test_e1_1_the_title_is_there_before_the_server_is(box):
    """E3.1: whoever finds a server as somebody's child finds the relay's name on the parent."""
    fake = box.fake(boot=0.2)
    relay = box.relay([], argv=[sys.executable, str(MODULE), "--", *fake.argv])
    relay.send(initialize())
    until(relay.servers, what="the server")
    assert titled(relay.pid)
    relay.result(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
@pytest.mark.parametrize("how", ["file", "script", "module"])
def test_e4_6_as_an_ordinary_user(open_box, how):
    fake = open_box.fake(python=open_box.python)
    argv = {"file": lambda: [open_box.module, "--"], "script": lambda: [open_box.python, open_box.module, "--"],
            "module": lambda: [open_box.python, "-m", "mcp_lazy", "--"]}[how]() + fake.argv
    relay = open_box.relay([], argv=argv, preexec=become_nobody, cwd=str(open_box.path))
    check(relay, fake)
    assert os.stat("/proc/%d" % relay.pid).st_uid == 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_e3_1_without_new_privileges(open_box):
    """A sandbox's flag: no_new_privs, no capabilities."""
    def sandbox():
        import ctypes
        become_nobody()
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    fake = open_box.fake(python=open_box.python)
    check(open_box.relay(fake, preexec=sandbox), fake)


def test_e_the_launcher_refuses_an_old_interpreter_in_one_line(box):
    """Design section 3: a Python before 3.9 gets one line and exit 2, also where it cannot parse the module."""
    old = [path for path in (shutil.which("python3.%d" % minor) for minor in (8, 7, 6)) if path]
    old += [path for path in ("/usr/bin/python2.7",) if os.path.exists(path)]
    versions = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))))
    if os.path.isdir(versions):
        old += [os.path.join(versions, name, "bin", "python3") for name in os.listdir(versions) if re.match(r"3\.[678]\.", name)]
    old = [path for path in old if os.path.exists(path) and "shims" not in path]
    if not old:
        pytest.skip("no interpreter older than 3.9 here")
    for path in old:
        done = subprocess.run([path, "-I", "-S", "-c", launcher(), str(MODULE), "true"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=box.env())
        text = done.stderr.decode()
        assert (done.returncode, done.stdout) == (2, b"") and len(text.splitlines()) == 1 and "3.9" in text, (path, text)


def test_design_3_the_first_line_of_the_file(box):
    first = MODULE.read_bytes().splitlines()[0]
    assert first.startswith(b"#!/usr/bin/env -S python3") and len(first) < 127
    assert os.access(str(MODULE), os.X_OK)


@pytest.mark.parametrize("kind", ["read-only", "garbage", "a file in the way"])
def test_design_3_the_bytecode_cache_is_never_an_error(box, kind):
    """Unwritable, corrupt or blocked: it only costs time."""
    shutil.rmtree(str(box.home / ".cache"))
    fake = box.fake()
    argv = [str(MODULE), "--", *fake.argv]
    env = box.env(MCP_LAZY_CACHE_DIR=None)
    if kind == "garbage":
        relay = box.relay([], argv=argv, env=env)
        relay.handshake()
        relay.finish()
        found = [os.path.join(folder, name) for folder, _, names in os.walk(str(box.home)) for name in names if name.endswith(".pyc")]
        assert found, "compiled once"
        for path in found:
            with open(path, "r+b") as file:
                file.seek(16)
                file.write(b"\0garbage\xff" * 20)
    elif kind == "read-only":
        env["HOME"] = "/proc/self"
    else:
        (box.home / ".cache").write_text("in the way")
    relay = box.relay([], argv=argv, env=env)
    check(relay, fake)
    assert "Traceback" not in relay.stderr()


def test_design_3_the_bytecode_cache_is_private(box):
    shutil.rmtree(str(box.home / ".cache"))
    fake = box.fake()
    umask = os.umask(0)
    try:
        relay = box.relay([], argv=[str(MODULE), "--", *fake.argv], env=box.env(MCP_LAZY_CACHE_DIR=None))
        relay.handshake()
        relay.finish()
    finally:
        os.umask(umask)
    mine = box.home / ".cache" / "mcp-lazy"
    assert mine.stat().st_mode & 0o777 == 0o700, "nobody else gets below it"
    assert list(mine.rglob("*.pyc"))


def test_e4_1_repeated_starts_leave_no_trace(box):
    """Twenty quick starts and ends in the first milliseconds of a life: no leftover, no wrong status."""
    fake = box.fake()
    for _ in range(5):
        relay = box.relay(fake)
        relay.close()
        assert relay.wait() == 0 and not alive(relay.pid)


