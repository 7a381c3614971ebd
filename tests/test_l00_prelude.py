"""L0: line 1, the launcher behind it, the bytecode folder, and what an import does (design 3)."""

import ast
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_lazy
from harness import MODULE, NOBODY

TEXT = MODULE.read_text("utf-8")
LINE_1 = TEXT.split("\n", 1)[0]
VERSION_LINE = "mcp-lazy %s\n" % mcp_lazy.VERSION


def words_of_line_1():
    """What `env -S` makes of line 1."""
    return shlex.split(LINE_1.partition(" -S ")[2])


def read_characters():
    return int(re.search(r"\.read\((\d+)\)", LINE_1).group(1))


class Place:
    """A copy of the file in a folder of its own, a home, and the program started as a client does."""

    def __init__(self, path):
        self.path, self.home = path, path / "home"
        self.home.mkdir()
        (path / "bin").mkdir()
        (path / "bin" / "python3").symlink_to(sys.executable)
        self.file = Path(shutil.copy2(str(MODULE), str(path / "mcp_lazy.py")))
        self.file.chmod(0o755)

    def env(self, **more):
        found = {"PATH": "%s:/usr/bin:/bin" % (self.path / "bin"), "HOME": str(self.home)}
        found.update(more)
        return {key: value for key, value in found.items() if value is not None}

    def start(self, *words, argv=None, cwd=None, preexec=None, **more):
        argv = argv or [str(self.file)] + list(words or ("--version",))
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env(**more), cwd=cwd,
                              timeout=20, preexec_fn=preexec)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def version(self, **more):
        """Answers --version, without a word on stderr."""
        assert self.start(**more) == (0, VERSION_LINE, "")

    def prime(self, compiled):
        """Put the bytecode in place that a first start left elsewhere: `compiled` is its (name, bytes)."""
        target = self.folder / str(self.file.parent)[1:] / compiled[0]
        target.parent.mkdir(parents=True)
        for folder in (self.folder, self.folder.parent, self.folder.parent.parent):
            folder.chmod(0o700)
        target.write_bytes(compiled[1])
        return target

    @property
    def folder(self):
        return self.home / ".cache" / "mcp-lazy" / "bytecode"

    def compiled(self, folder=None):
        found = list((folder or self.folder).rglob("*.pyc"))
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """(name, bytes) of the bytecode that a start writes."""
    first = Place(tmp_path_factory.mktemp("first"))
    first.version()
    return first.compiled().name, first.compiled().read_bytes()


@pytest.fixture
def warm(place, compiled):
    """A place that was started before; its bytecode is in use."""
    place.prime(compiled)
    return place


# -------------------------------------------------------------------------------------- the text

def test_line_1_is_short_enough_for_every_kernel():
    assert LINE_1.startswith("#!/usr/bin/env -S ") and len(LINE_1.encode()) < 127 and not LINE_1.endswith("\r")
    words = words_of_line_1()
    assert words[:4] == ["python3", "-I", "-S", "-c"] and len(words) == 5


def test_the_text_that_line_1_reads_ends_inside_the_ruler_and_compiles_alone():
    part = TEXT[:read_characters()]
    last = part.rpartition("\n")[2]
    ruler = TEXT.split("\n")[part.count("\n")]
    assert ruler.startswith("# ---") and "line 1 reads to here" in ruler
    assert last and ruler.startswith(last), "the cut is inside the ruler"
    assert len(ruler) - len(last) > 3 and len(last) > 3, "with room for a few characters on each side"
    tree = ast.parse(part)
    assert isinstance(tree.body[-1], ast.If), "nothing of the module itself"


def test_the_text_is_ascii_wherever_an_interpreter_may_read_it_in_another_encoding():
    """The first read takes a block of 8 KiB and more; a locale like C decodes nothing else."""
    assert MODULE.read_bytes()[:16384].isascii()


def test_the_launcher_uses_nothing_newer_than_its_refusal():
    """An old interpreter has to read the text before it can refuse."""
    ast.parse(TEXT[:read_characters()], feature_version=(3, 5))


def test_limits_are_there_with_their_units():
    mib = 1024 * 1024
    assert (mcp_lazy.MAX_LINE_BYTES, mcp_lazy.MAX_QUEUE_BYTES, mcp_lazy.MAX_OUTPUT_BYTES) == (64 * mib, 8 * mib, 32 * mib)  # A7.13, A10.12, A10.15
    assert (mcp_lazy.MAX_RESULT_BYTES, mcp_lazy.MAX_RECORDING_BYTES, mcp_lazy.TAIL_BYTES) == (8 * mib, 64 * mib, 8192)  # A5.8, A15.1
    assert re.fullmatch(r"\d+\.\d+\.\d+", mcp_lazy.VERSION)


# ------------------------------------------------------------------------------------- bytecode

def test_the_bytecode_folder_is_made_private_and_used(place):
    old = os.umask(0)
    try:
        place.version()
    finally:
        os.umask(old)
    for folder in (place.folder, place.folder.parent, place.folder.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    compiled = place.compiled()
    os.utime(compiled, ns=(10 ** 18, 10 ** 18))
    before = compiled.read_bytes()
    place.version()
    assert compiled.stat().st_mtime_ns == 10 ** 18 and compiled.read_bytes() == before, "the second start does not compile"
    assert place.compiled() == compiled
    assert not list(place.path.rglob("__pycache__")), "nothing is written beside the file"


def test_xdg_cache_home_is_used_where_it_is_absolute(place):
    xdg = place.path / "xdg"
    place.version(XDG_CACHE_HOME=str(xdg))
    assert place.compiled(xdg).parts[-len(place.compiled(xdg).relative_to(xdg).parts):][:2] == ("mcp-lazy", "bytecode")
    assert not (place.home / ".cache").exists()
    place.version(XDG_CACHE_HOME="")
    assert place.compiled()


@pytest.mark.parametrize("more", [{"HOME": None}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_CACHE_HOME": "relative"}, {"HOME": "/dev/null"}], ids=repr)
def test_without_a_folder_of_the_users_it_still_starts(place, more):
    cwd = place.path / "cwd"
    cwd.mkdir()
    place.version(cwd=str(cwd), **more)
    assert not list(place.path.rglob("*.pyc")) and not os.listdir(cwd), "and writes nothing anywhere else"


def marshalled(text):
    import marshal
    return marshal.dumps(compile(text, "x", "exec"))


DAMAGE = {
    "empty": lambda raw: b"", "three bytes": lambda raw: raw[:3], "the header alone": lambda raw: raw[:16], "half": lambda raw: raw[:len(raw) // 2],
    "one byte short": lambda raw: raw[:-1], "zeros": lambda raw: b"\0" * len(raw), "garbage": lambda raw: b"garbage\n" * 1000,
    "garbage behind the header": lambda raw: raw[:16] + b"\xf3\xff" * 500, "another value behind the header": lambda raw: raw[:16] + b"N", "another magic number": lambda raw: b"\0\0\r\n" + raw[4:],
    "unknown flags": lambda raw: raw[:4] + b"\xff\xff\xff\xff" + raw[8:], "another time": lambda raw: raw[:8] + b"\1\0\0\0" + raw[12:],
    "another size": lambda raw: raw[:12] + b"\1\0\0\0" + raw[16:],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cache_file_is_never_an_error(warm, kind):
    compiled = warm.compiled()
    compiled.write_bytes(DAMAGE[kind](compiled.read_bytes()))
    warm.version()


def test_a_stale_cache_file_is_not_used(warm):
    changed = TEXT.replace('VERSION = "%s"' % mcp_lazy.VERSION, 'VERSION = "9.9.9-other"')
    assert changed != TEXT
    warm.file.write_text(changed, "utf-8")
    assert warm.start() == (0, "mcp-lazy 9.9.9-other\n", "")
    assert warm.start() == (0, "mcp-lazy 9.9.9-other\n", "")
    assert warm.compiled()


def test_a_folder_in_the_place_of_the_cache_file(warm):
    compiled = warm.compiled()
    compiled.unlink()
    compiled.mkdir()
    warm.version()


@pytest.mark.parametrize("bits", [0o720, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(warm, bits):
    """What somebody planted there must not run."""
    compiled = warm.compiled()
    compiled.write_bytes(compiled.read_bytes()[:16] + marshalled("def main():\n print('planted')"))
    assert warm.start()[1] == "planted\n", "the check of this test: a private folder is trusted"
    warm.folder.chmod(bits)
    warm.version()
    assert stat.S_IMODE(warm.folder.stat().st_mode) == bits


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to give a folder away")
def test_a_folder_of_somebody_else_is_not_used(warm):
    compiled = warm.compiled()
    compiled.write_bytes(compiled.read_bytes()[:16] + marshalled("def main():\n print('planted')"))
    os.chown(warm.folder, NOBODY, NOBODY)
    warm.version()


def test_a_link_in_the_place_of_the_folder_is_not_followed(warm):
    warm.folder.rename(warm.path / "elsewhere")
    warm.folder.symlink_to(warm.path / "elsewhere")
    compiled = warm.compiled(warm.path / "elsewhere")
    compiled.write_bytes(compiled.read_bytes()[:16] + marshalled("def main():\n print('planted')"))
    warm.version()


def test_a_file_in_the_place_of_the_folder(place):
    (place.home / ".cache").mkdir()
    (place.home / ".cache" / "mcp-lazy").write_text("x")
    place.version()


def test_a_folder_that_cannot_be_written(place):
    """As on a file system without room."""
    import resource
    place.version(preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)), argv=[str(place.file), "--version"])
    place.version()


# -------------------------------------------------------------------------------- ways to start it

def test_every_way_to_start_it_answers(warm):
    words = words_of_line_1()
    for argv in ([str(warm.file), "--version"], [sys.executable, str(warm.file), "--version"], [sys.executable, "-I", "-S", str(warm.file), "--version"],
                 [sys.executable] + words[1:] + [str(warm.file), "--version"], ["python3"] + words[1:] + ["mcp_lazy.py", "--version"],
                 [sys.executable, "-m", "mcp_lazy", "--version"], ["./mcp_lazy.py", "--version"]):
        executable = str(warm.path / "bin" / "python3") if argv[0] == "python3" else argv[0]
        assert warm.start(argv=[executable] + argv[1:], cwd=str(warm.path)) == (0, VERSION_LINE, ""), argv


@pytest.mark.parametrize("name", ["mcp-lazy", "with space", "\u00e9 a'b\"c$d"])
def test_the_file_may_have_any_name_and_folder(place, name):
    folder = place.path / name
    folder.mkdir()
    moved = folder / name
    shutil.copy(str(place.file), str(moved))
    for _ in range(2):
        assert place.start(argv=[str(moved), "--version"], LANG="C") == (0, VERSION_LINE, "")
    link = place.path / "link"
    link.symlink_to(moved)
    assert place.start(argv=[str(link), "--version"]) == (0, VERSION_LINE, "")


def test_the_locale_does_not_matter(warm):
    for locale in ("C", "POSIX", "C.UTF-8", "xx_XX.nothing", "en_US.ISO-8859-1"):
        warm.version(LC_ALL=locale, LANG=locale)


def test_the_status_of_main_is_the_exit_status(warm):
    status, out, errors = warm.start("--nope")
    assert (status, out) == (2, "") and errors.startswith("mcp-lazy: flag provided but not defined: -nope")
    status, out, errors = warm.start("help")
    assert status == 0 and "usage" in out and errors == ""


def test_variables_of_the_interpreter_and_files_of_the_folder_do_not_matter(warm):
    """-I -S: neither PYTHONPATH nor the working directory nor the script's folder hold modules of ours."""
    for name in ("errno", "time", "posix", "select", "selectors", "json", "site", "sitecustomize"):
        (warm.path / (name + ".py")).write_text("raise SystemExit('planted')")
    warm.version(cwd=str(warm.path), PYTHONPATH=str(warm.path), PYTHONSTARTUP=str(warm.path / "time.py"))


def test_an_import_does_nothing(place):
    program = ("import sys\nsys.path.insert(0, %r)\nbefore = list(sys.argv), sys.pycache_prefix, set(sys.modules)\nsys.dont_write_bytecode = True\n"
               "import mcp_lazy\nassert (list(sys.argv), sys.pycache_prefix) == before[:2]\n"
               "print(mcp_lazy.VERSION, sorted(set(sys.modules) - before[2]))" % str(place.path))
    status, out, errors = place.start(argv=[sys.executable, "-I", "-S", "-c", program])
    assert status == 0 and errors == "" and out.startswith(mcp_lazy.VERSION)
    assert set(ast.literal_eval(out.partition(" ")[2])) <= {"mcp_lazy", "_json", "_signal", "errno", "time"}
    assert os.listdir(place.home) == []


# ---------------------------------------------------------------------------------- the two halves

def test_what_is_below_the_cold_line_is_loaded_by_its_commands_alone(warm):
    """A relay has neither loaded nor compiled it; the first command that needs it does, and keeps it apart."""
    warm.version()
    assert not (warm.folder / "cold").exists() and b"KNOWN_CLIENTS" not in warm.compiled().read_bytes()
    for _ in range(2):
        status, out, errors = warm.start("help")
        assert status == 0 and out.startswith("usage: mcp-lazy") and errors == ""
    assert b"KNOWN_CLIENTS" in warm.compiled(warm.folder / "cold").read_bytes()
    assert stat.S_IMODE((warm.folder).stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cache_file_of_the_cold_half_is_never_an_error(warm, kind):
    assert warm.start("help")[0] == 0
    compiled = warm.compiled(warm.folder / "cold")
    compiled.write_bytes(DAMAGE[kind](compiled.read_bytes()))
    assert warm.start("help")[0] == 0


def test_lines_of_the_cold_half_have_the_numbers_of_the_file(place):
    """What a report of an error names is found in the file."""
    text = TEXT.replace("    if words:\n        raise UsageError(\"help takes no words\")\n", "    if words:\n        1 / 0\n")
    assert text != TEXT
    place.file.write_text(text, "utf-8")
    line = text[:text.index("        1 / 0\n")].count("\n") + 1
    assert "line %d, in help_command" % line in place.start("help", "x")[2]


def test_without_a_cache_the_cold_half_is_there_too(place):
    assert place.start("help", HOME=None)[1].startswith("usage: mcp-lazy")


def test_every_name_behind_the_door_exists():
    """`cold("name")` is a name that no checker follows."""
    names = set(re.findall(r'cold\("(\w+)"\)', TEXT))
    above, _, below = TEXT.partition("\n# == cold line")
    assert names and all("\ndef %s(" % name in below for name in names)
    assert not re.search(r'cold\((?!"|name\))', above), "the name is spelled out"


# ------------------------------------------------------------------------------- old interpreters

REFUSAL = re.compile(r"mcp-lazy: needs Python 3\.9 or later, this is \d+\.\d+\.\d+[^\n]*\n")


@pytest.mark.parametrize("version", [(3, 8, 20), (3, 6, 0), (2, 7, 18)])
def test_an_older_interpreter_is_refused_in_one_line(place, version):
    """Simulated: the launcher's text with another sys.version_info."""
    program = "import sys\nsys.version_info = %r\nsys.version = '%d.%d.%d (main)'\n%s" % ((version,) + version + (words_of_line_1()[-1],))
    status, out, errors = place.start(argv=[sys.executable, "-I", "-S", "-c", program, str(place.file), "--version"])
    assert (status, out) == (2, "") and REFUSAL.fullmatch(errors) and "%d.%d.%d" % version in errors
    assert not (place.home / ".cache").exists()


def older_interpreters():
    """Real ones: on PATH, or beside this one where pyenv keeps them."""
    found = {name: shutil.which(name) for name in ("python3.8", "python3.7", "python3.6")}
    for folder in Path(os.path.realpath(sys.executable)).parents[2].glob("3.[5678].*"):
        name = "python" + folder.name.rpartition(".")[0]
        if (folder / "bin" / name).exists():
            found[name] = str(folder / "bin" / name)
    return sorted(path for path in found.values() if path)


def test_real_older_interpreters_refuse_in_one_line(place):
    seen = 0
    for python in older_interpreters():
        argv = [python] + words_of_line_1()[1:] + [str(place.file), "--version"]
        status, out, errors = place.start(argv=argv)
        if "pyenv: " in errors:  # a name on PATH without an interpreter behind it
            continue
        seen += 1
        assert (status, out) == (2, "") and REFUSAL.fullmatch(errors), (python, errors)
    if not seen:
        pytest.skip("no interpreter older than 3.9 here")
