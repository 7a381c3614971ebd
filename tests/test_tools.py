"""The tools: each check passes on the module, and each can fail on a broken one."""

import ast
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULE = os.path.join(ROOT, "mcp_lazy.py")
LAYERED = '''\
#!/usr/bin/env -S python3 -I -S -c "import sys;exec(open(sys.argv[1]).read(200))"
if "__file__" not in globals():
    import os, sys
    sys.exit(os.path.exists(sys.argv[1]))
# ....................................
__doc__ = """mcp-lazy: short.

Map
  L0 PRELUDE imports     L1 VALUES records
  L3 KERNEL  calls       L15 CLI   main
"""
# ============================================================================
# L0 PRELUDE - launcher and imports                                      [hot]
# ----------------------------------------------------------------------------
# Uses:   -                          Used by: L1 L3 L15
# Owns:   VERSION, LIMIT
# Never:  works
# Tests:  tests/test_any.py
# ----------------------------------------------------------------------------
import sys
import time
try:
    import _json as json
except ImportError:
    import json

VERSION = "1.0"
LIMIT = 3
# ============================================================================
# L1 VALUES - records                                                   [pure]
# ----------------------------------------------------------------------------
# Uses:   L0                         Used by: L3 L7 L15
# Owns:   Record, TABLE
# Never:  reads a clock
# Tests:  tests/test_any.py
# ----------------------------------------------------------------------------
# Theory: `Record.add` obeys `LIMIT`, as `os.kill` and `ENOENT` do; see L0.

TABLE = {"a": 1}


class Record:
    def add(self, time=LIMIT):
        """A local name is nobody's: `time` here, and a loop's `main`."""
        return [main for main in TABLE], time
# ============================================================================
# L3 KERNEL - calls                                                      [I/O]
# ----------------------------------------------------------------------------
# Uses:   L0 L1                      Used by: L15
# Owns:   now
# Never:  thinks
# Tests:  tests/test_any.py
# ----------------------------------------------------------------------------


def now(record=Record):
    import os
    return time.time(), os.getpid(), LIMIT
# ============================================================================
# L15 CLI - the commands                                                 [I/O]
# ----------------------------------------------------------------------------
# Uses:   L0 L1 L3                   Used by: -
# Owns:   main
# Never:  waits
# Tests:  tests/test_any.py
# ----------------------------------------------------------------------------


def main():
    Record().add()
    sys.exit(now())
'''
RELAY = '''\
#!/usr/bin/env -S python3 -I -S -c "import sys;exec(open(sys.argv[1]).read(400))"
if "__file__" not in globals():
    import sys
    from _frozen_importlib import ModuleSpec, _load
    from _frozen_importlib_external import SourceFileLoader
    spec = ModuleSpec("mcp_lazy", SourceFileLoader("mcp_lazy", sys.argv[1]), origin=sys.argv[1])
    spec.has_location = True
    sys.exit(_load(spec).main())
# .......................................................................
import posix
import sys
VERSION = "1.0"
ANSWER = b'{"result":{}}\\n'


def main():
    words = sys.argv[1 + (sys.argv[0] == "-c"):]
    if words == ["--version"]:
        print("mcp-lazy", VERSION)
    elif words != ["demo", "--server"]:
        relay(words[0] + " </dev/null")
    return 0


def relay(server):
    try:
        posix.mkdir(posix.environ[b"MCP_LAZY_CACHE_DIR"])
        posix.system(server)
    except FileExistsError:
        pass    # warm
    for line in sys.stdin:
        if '"id"' in line:
            posix.write(1, ANSWER)


if __name__ == "__main__":
    sys.exit(main())
'''
# Plays a Python, and the one of the environment it makes; FAULT says where it fails.
STUB = '''\
#!/bin/sh
case "$FAULT:$*" in
  old:*print*)                printf '3.8\\nold\\n' ;;
  alien:*print*)              echo hello ;;
  ensurepip:*ensurepip*)      exit 1 ;;
  venv:*"-m venv"*)           echo "No space left"; exit 3 ;;
  pip:*"-m pip --version"*)   exit 1 ;;
  network:*"-m pip install"*) echo "ERROR: No matching distribution"; exit 1 ;;
  import:*"import pytest"*)   exit 1 ;;
  *"import pytest"*)          echo 3.11; cat "$0.ready" ;;
  *"-m pip install"*)         echo "$IDENTITY" > "$0.ready" ;;
  *"-m venv"*)                mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"-m pytest"*)              echo "ran $0 $*"; exit 7 ;;
  *print*)                    printf "3.11\\n$IDENTITY\\n" ;;
esac
'''


def tool(name, *words, **options):
    """The finished process of one tool."""
    return subprocess.run([sys.executable, os.path.join(ROOT, "tools", name), *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          universal_newlines=True, **options)


def check(name, path):
    """(status, everything printed) of a tool's check of one file."""
    done = tool(name, "--check", "--module", path)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def broken(tmp_path):
    """Writes the layered example with one text replaced; the path of it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_any.py").touch()

    def write(old="", new=""):
        assert old in LAYERED
        path = tmp_path / "mcp_lazy.py"
        path.write_text(LAYERED.replace(old, new, 1))
        return path
    return write


# --------------------------------------------------------------------- on the module itself

@pytest.mark.slow
@pytest.mark.parametrize("name", ["check_layers.py", "map.py", "build_pyz.py", "startup.py"])
def test_the_module_passes(name):
    status, said = check(name, MODULE)
    assert status == 0, said


@pytest.mark.parametrize("path", sorted(glob.glob(os.path.join(ROOT, "tools", "*.py"))))
def test_every_tool_explains_itself_with_an_example(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert re.search(r'^(#!.*\n)?"""[^"]+\n\n    \S', text), "no usage example in its docstring"


# ------------------------------------------------------------------------- check_layers.py

def test_check_layers_finds_nothing_in_a_good_module(broken):
    assert check("check_layers.py", broken()) == (0, "")


THEORY = "# Theory: "
RETURN = "        return [main for main in TABLE], time\n"
IMPORT = "import sys\nimport time\n"
NOW = "def now(record=Record):\n"


@pytest.mark.parametrize("old, new, finding", [
    # (a) names of higher layers, wherever they stand
    (RETURN, "        return main()\n", "L1 refers to `main` of L15"),
    ("time=LIMIT", "time=now", "L1 refers to `now` of L3"),
    ("class Record:", "@now\nclass Record:", "L1 refers to `now` of L3"),
    ("class Record:", "class Record(main):", "L1 refers to `main` of L15"),
    (RETURN, "        return lambda x: now(x)\n", "L1 refers to `now` of L3"),
    (RETURN, "        return [now for x in TABLE]\n", "L1 refers to `now` of L3"),
    ("def main():", "LIMIT = 4\n\n\ndef main():", "L15 defines `LIMIT` of L0 again"),
    # (b) doors
    (RETURN, "        import os\n", "L1 imports os, only L3 may"),
    (RETURN, "        from os.path import join\n", "L1 imports os, only L3 may"),
    ('"a": 1', '"a": time.time()', "L1 uses `time`, only L3 may"),
    ('"a": 1', '"a": time', "L1 uses `time`, only L3 may"),
    ("LIMIT = 3", "LIMIT = time.time()", "L0 uses `time`, only L3 may"),
    ("    import os\n    return", "    import ssl\n    return", "L3 imports ssl, only L12 and up may"),
    ("    import os\n    return", "    import http.client\n    return", "L3 imports http, only L12"),
    (RETURN, "        sys.exit(1)\n", "L1 leaves the program, only L15 may"),
    (RETURN, "        raise SystemExit(1)\n", "L1 leaves the program, only L15 may"),
    (RETURN, "        exit()\n", "L1 leaves the program, only L15 may"),
    # (c) sizes
    (NOW, NOW + "    pass\n" * 58, "`now` has 61 lines, limit 60"),
    ("class Record:\n", "class Record:\n" + "    x = 1\n" * 248, "`Record` has 252 lines, limit 250"),
    (NOW, NOW + "    if 1:\n     for x in y:\n      while 1:\n       with z:\n        try:\n"
     "         pass\n        finally:\n         pass\n", "`now` has 5 levels of nesting, limit 4"),
    ("self, time=LIMIT", "self, a, b, c, d, e, time, *, g", "`add` has 7 parameters, limit 6"),
    ("LIMIT = 3", "LIMIT = 3  # " + "x" * 108, "the line has 121 columns, limit 120"),
    # (d) mutable globals
    ("TABLE = ", "table = ", "`table` is mutable and global"),
    ("TABLE = ", "table: dict = ", "`table` is mutable and global"),
    ("TABLE = ", "if LIMIT:\n    cache = set()\nTABLE = ", "`cache` is mutable and global"),
    (RETURN, "        TABLE['b'] = 2\n", "the table `TABLE` is changed"),
    (RETURN, "        del TABLE['b']\n", "the table `TABLE` is changed"),
    (RETURN, "        TABLE.update(b=2)\n", "the table `TABLE` is changed"),
    ("def main():", "TABLE |= {}\n\n\ndef main():", "the table `TABLE` is changed"),
    (RETURN, "        global LIMIT\n", "global statement"),
    # (e) cold imports
    (IMPORT, IMPORT + "import argparse\n", "imports argparse at top level"),
    (IMPORT, IMPORT + "import hashlib\n", "imports hashlib at top level"),
    (IMPORT, IMPORT + "try:\n    import json\nexcept OSError:\n    pass\n", "imports json at top level"),
    ("TABLE = ", "import sys\nTABLE = ", "imports sys at top level"),
    # (f) higher layers in comments
    (THEORY, "# See L15.\n#\n" + THEORY, "L1 speaks of L15"),
    ('"""A local', '"""As L3 says, a local', "L1 speaks of L3"),
    # (g) quoted names
    (THEORY, "# `Recrod` and\n" + THEORY, "`Recrod` is not in this file"),
    ("`Record.add`", "`Record.substract`", "`Record.substract` is not in this file"),
    ("# Owns:   now", "# Owns:   `later`", "`later` is not in this file"),
    # (h) budgets
    ("def main():", "\n" * 1100 + "def main():", "L15 has 1113 lines, limit 1.5 x 700"),
    ("def main():", "\n" * 14200 + "def main():", "hand-written lines, limit 14200"),
], ids=lambda value: value[:40])
def test_check_layers_finds(broken, old, new, finding):
    status, said = check("check_layers.py", broken(old, new))
    assert status == 1
    assert finding in said


def test_check_layers_names_the_line(broken):
    path = broken("    return time.time(), os.getpid(), LIMIT", "    return main")
    _, said = check("check_layers.py", path)
    line = path.read_text().splitlines().index("    return main") + 1
    assert said == "mcp_lazy.py:%d: L3 refers to `main` of L15\n" % line


def test_check_layers_without_check_reports_and_succeeds(broken):
    done = tool("check_layers.py", "--module", broken(RETURN, "        return main()\n"))
    assert (done.returncode, done.stdout.count("refers to")) == (0, 1)


def test_an_elif_chain_is_not_deep(broken):
    chain = "    if 1:\n        pass\n" + "    elif 2:\n        pass\n" * 9
    assert check("check_layers.py", broken(NOW, NOW + chain)) == (0, "")


def test_sizes_are_printed_beside_their_budgets(broken):
    done = tool("check_layers.py", "--sizes", "--module", broken())
    assert re.search(r"^L1 VALUES +\d+ +300 ", done.stdout, re.M)
    assert re.search(r"^hand-written +%d +14200 " % LAYERED.count("\n"), done.stdout, re.M)


def test_a_file_without_layers_is_told(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("x = 1\n")
    for name in ("check_layers.py", "map.py"):
        assert check(name, path) == (1, "plain.py has no layer banner (# L0 PRELUDE - ...)\n")


# ---------------------------------------------------------------------------------- map.py

def test_map_finds_nothing_in_a_good_module(broken):
    assert check("map.py", broken()) == (0, "")


def test_map_prints_what_layers_use(broken):
    rows = [line.split() for line in tool("map.py", "--module", broken()).stdout.splitlines()]
    assert [(row[0], row[4:]) for row in rows[1:]] == [
        ("L0", ["-"]), ("L1", ["L0"]), ("L3", ["L0", "L1"]), ("L15", ["L0", "L1", "L3"])]


@pytest.mark.parametrize("old, new, finding", [
    ("L3 KERNEL  calls", "", "the map does not list L3 KERNEL"),
    ("L3 KERNEL  calls", "L3 KERNEL L4 LOOP", "the map lists L4 LOOP, which is not there"),
    ("L3 KERNEL  calls", "L3 CORE", "the map does not list L3 KERNEL"),
    ("L3 KERNEL  calls", "L3 KERNEL, L3 KERNEL", "the map lists a layer twice"),
    ("__doc__ = ", "text = ", "no docstring with the map"),
    ("# L3 KERNEL", "# L16 KERNEL", "L15 stands after L16"),
    ("# Never:  thinks\n", "", "L3 has no `Never:` in its banner"),
    ("# Never:  thinks\n", "# Never:\n", "L3 has no `Never:` in its banner"),
    ("Used by: L15", "", "L3 has no `Used by:` in its banner"),
    ("Owns:   now", "Owns:   now, later", "L3 does not define `later`, which it says it owns"),
    ("# Uses:   L0 L1 ", "# Uses:   L0 ", "L3 says `Uses: L0`, the code says L0 L1"),
    ("# Uses:   L0 L1 L3 ", "# Uses:   L1 L3 ", "L15 says `Uses: L1 L3`, the code says L0 L1 L3"),
    ("Used by: L1 L3 L15", "Used by: all", "L0 says `Used by: -`, the code says L1 L3 L15"),
    ("Used by: L3 L7 L15", "Used by: L3", "L1 says `Used by: L3`, the code says L3 L15"),
    ("tests/test_any.py", "tests/test_none.py", "L0 has no tests: tests/test_none.py is not there"),
])
def test_map_finds(broken, old, new, finding):
    status, said = check("map.py", broken(old, new))
    assert status == 1
    assert finding in said


# ----------------------------------------------------------- a layer between two others

HALF = """\
# ============================================================================
# L6b STANDIN - cut out of its neighbours                               [pure]
# ----------------------------------------------------------------------------
# Uses:   L0 L1                      Used by: L15
# Owns:   half
# Never:  thinks
# Tests:  tests/test_any.py
# ----------------------------------------------------------------------------
# Theory: what L3 has, `half` of `LIMIT`.


def half():
    return Record(), LIMIT
"""
L15 = "# ============================================================================\n# L15 CLI"


@pytest.fixture
def between(tmp_path):
    """Writes the example with a layer L6b between L3 and L15, which `main` uses, with one text replaced; the path of it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_any.py").touch()
    text = LAYERED
    for old, new in ((L15, HALF + L15), ("L15 CLI   main", "L6b STANDIN half\n  L15 CLI  main"), ("Used by: L1 L3 L15", "Used by: L1 L3 L6b L15"),
                     ("Used by: L3 L7 L15", "Used by: L3 L6b L15"), ("# Uses:   L0 L1 L3 ", "# Uses:   L0 L1 L3 L6b "),
                     ("sys.exit(now())", "sys.exit(now() or half())")):
        assert old in text
        text = text.replace(old, new, 1)

    def write(old="", new=""):
        assert old in text
        path = tmp_path / "mcp_lazy.py"
        path.write_text(text.replace(old, new, 1))
        return path
    return write


def test_a_layer_between_two_others_is_a_layer(between):
    assert check("map.py", between()) == check("check_layers.py", between()) == (0, "")
    done = tool("check_layers.py", "--sizes", "--module", between())
    assert re.search(r"^L6b STANDIN +13 +\d+ ", done.stdout, re.M)
    rows = [line.split() for line in tool("map.py", "--module", between()).stdout.splitlines()]
    assert [(row[0], row[4:]) for row in rows[1:]] == [
        ("L0", ["-"]), ("L1", ["L0"]), ("L3", ["L0", "L1"]), ("L6b", ["L0", "L1"]), ("L15", ["L0", "L1", "L3", "L6b"])]


@pytest.mark.parametrize("name, old, new, finding", [
    ("map.py", "L6b STANDIN half", "", "the map does not list L6b STANDIN"),
    ("map.py", "L6b STANDIN half", "L6b STANDIN L7b HALF", "the map lists L7b HALF, which is not there"),
    ("map.py", "# L6b STANDIN - cut", "# L2b STANDIN - cut", "L2b stands after L3"),
    ("map.py", "# Uses:   L0 L1 L3 L6b ", "# Uses:   L0 L1 L3 ", "L15 says `Uses: L0 L1 L3`, the code says L0 L1 L3 L6b"),
    ("map.py", "Used by: L3 L6b L15", "Used by: L3 L15", "L1 says `Used by: L3 L15`, the code says L3 L6b L15"),
    ("map.py", "Owns:   half", "Owns:   half, quarter", "L6b does not define `quarter`"),
    ("check_layers.py", "time.time(), os.getpid(), LIMIT", "half()", "L3 refers to `half` of L6b"),
    ("check_layers.py", "    return Record(), LIMIT", "    return main()", "L6b refers to `main` of L15"),
    ("check_layers.py", "    return Record(), LIMIT", "    import os", "L6b imports os, only L3 may"),
    ("check_layers.py", "# Never:  thinks\n# Tests:  tests/test_any.py\n# -", "# Never:  what L6b does\n# Tests:  tests/test_any.py\n# -", "L3 speaks of L6b"),
    ("check_layers.py", "what L3 has", "what L15 has", "L6b speaks of L15"),
    ("check_layers.py", "what L3 has", "what L7 has", "L6b speaks of L7")])
def test_what_is_wrong_with_it_is_found(between, name, old, new, finding):
    status, said = check(name, between(old, new))
    assert status == 1
    assert finding in said


def test_it_may_speak_of_itself_and_of_what_is_below(between):
    assert check("check_layers.py", between("what L3 has", "what L3, L6 and L6b have")) == (0, "")


# ---------------------------------------------------------------- startup.py, build_pyz.py

@pytest.fixture
def relay(tmp_path):
    """Writes a module that starts like the real one, with one text replaced; the path of it."""
    def write(old="", new=""):
        assert old in RELAY
        path = tmp_path / "mcp_lazy.py"
        path.write_text(RELAY.replace(old, new, 1))
        return path
    return write


@pytest.mark.slow
def test_startup_finds_nothing_in_a_lean_start(relay):
    assert check("startup.py", relay()) == (0, "as a file: mcp_lazy\nas a module: \n")


@pytest.mark.slow
@pytest.mark.parametrize("old, new, finding", [
    ("import posix\n", "import posix, wave\n", "too much before the first answer: .*wave"),
    ("pass    # warm", "posix.system(server)", "the second session started the server"),
    ("posix.write(1, ANSWER)", "print(end=ANSWER.decode(), flush=True)", "nothing was written"),
    ('"result"', '"error"', "answers are missing or errors"),
])
def test_startup_finds(relay, old, new, finding):
    status, said = check("startup.py", relay(old, new))
    assert status == 1
    for way in "as a file", "as a module":
        assert re.search("^%s: %s" % (way, finding), said, re.M), said


def test_startup_needs_a_first_line_that_starts_python(relay):
    status, said = check("startup.py", relay("#!/usr/bin/env -S python3", "#!/usr/bin/python3"))
    assert status == 1
    assert said.endswith("mcp_lazy.py does not start Python with -c\n")


@pytest.mark.slow
def test_the_zipapp_is_checked(relay):
    assert check("build_pyz.py", relay()) == (0, "")


@pytest.mark.slow
def test_a_zipapp_without_version_is_a_finding(relay):
    status, said = check("build_pyz.py", relay('["--version"]', '["version"]'))
    assert status == 1
    assert "mcp-lazy.pyz: --version gives status" in said


@pytest.mark.slow
def test_the_zipapp_is_a_program_with_source_and_bytecode(relay, tmp_path):
    output = tmp_path / "made" / "mcp-lazy.pyz"
    done = tool("build_pyz.py", "--module", relay(), "--output", output)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(output) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["__main__.py", "mcp_lazy.py", "mcp_lazy.pyc"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert subprocess.check_output([str(output), "--version"]) == b"mcp-lazy 1.0\n"


# --------------------------------------------------------------------------------- test.py

@pytest.fixture
def checkout(tmp_path):
    """Runs a copy of tools/test.py, by itself in a checkout, with the stub as the Python."""
    (tmp_path / "tools").mkdir()
    copy, stub = tmp_path / "tools" / "test.py", tmp_path / "stub"
    for name in ("test.py", "shards.py"):
        shutil.copy(os.path.join(ROOT, "tools", name), str(tmp_path / "tools" / name))
    stub.write_text(STUB)
    stub.chmod(0o755)

    def run(*words, python=stub, fault="", identity="one"):
        env = dict(os.environ, FAULT=fault, IDENTITY=identity, XDG_CACHE_HOME=str(tmp_path / "cache"))
        return subprocess.run([sys.executable, str(copy), "--python", str(python), *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                              stdin=subprocess.DEVNULL, universal_newlines=True, cwd=str(tmp_path))
    return run


@pytest.mark.parametrize("fault, message", [
    ("old", r"\S+/stub is Python 3.8, the tests need 3.9 or later; use --python PATH"),
    ("alien", r"\S+/stub does not run as Python 3; give another path after --python"),
    ("ensurepip", r"Python 3.11 has no venv or ensurepip module; install it .*python3-venv.*"),
    ("venv", r"python -m venv failed \(No space left\); use --python PATH"),
    ("pip", r"the virtual environment has no working pip; install it .*python3-pip.*"),
    ("network", r"pip cannot install pytest<10, pytest-timeout, tomli-w \(ERROR: No matching"
                r" distribution\); check the network or pip's configuration and try again"),
    ("import", r"the test packages do not import in \S+; remove it and try again"),
])
def test_what_is_missing_is_one_line(checkout, fault, message):
    done = checkout(fault=fault)
    assert done.returncode == 2
    assert re.fullmatch("tools/test.py: " + message + "\n", done.stderr), done.stderr


@pytest.mark.parametrize("python", ["", "/no/such/python", "no-such-python", "/"])
def test_no_python_there_is_one_line(checkout, python):
    done = checkout(python=python)
    assert (done.returncode, done.stderr) == (
        2, "tools/test.py: no Python at '%s'; give the path of an interpreter after --python\n" % python)


def test_words_and_status_are_pytests(checkout, tmp_path):
    done = checkout("-k", "some words", "--python=kept")
    inner = tmp_path / ".venv" / "3.11" / "bin" / "python"
    assert done.returncode == 7
    assert done.stdout.endswith("ran %s -m pytest -k some words --python=kept\n" % inner)


def test_an_environment_is_used_again_until_the_python_is_another(checkout):
    made = ["making" in checkout(identity=identity).stdout for identity in ("one", "one", "two", "two")]
    assert made == [True, False, True, False]


def test_a_broken_environment_is_made_again(checkout, tmp_path):
    checkout()
    (tmp_path / ".venv" / "3.11" / "bin" / "python").write_text("")
    assert "making" in checkout().stdout


def test_a_checkout_that_cannot_be_written_uses_the_cache(checkout, tmp_path):
    (tmp_path / ".venv").touch()
    done = checkout()
    assert done.returncode == 7
    assert re.search(r"^ran %s/cache/mcp-lazy-tests-\S+/3.11/bin/python " % tmp_path, done.stdout, re.M)


def test_no_directory_at_all_is_one_line(monkeypatch):
    spec = importlib.util.spec_from_file_location("tools_test", os.path.join(ROOT, "tools", "test.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "places", lambda version: ["/dev/null/" + version])
    with pytest.raises(module.Trouble, match="no directory can be written, tried /dev/null/3.9; set TMPDIR"):
        module.writable("3.9")


def test_an_older_python_gets_as_far_as_the_message():
    with open(os.path.join(ROOT, "tools", "test.py")) as file:
        tree = ast.parse(file.read(), feature_version=(3, 4))
    later = [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr))
             or isinstance(node, ast.arguments) and node.posonlyargs]
    assert not later


# ----------------------------------------------------------------------- .ci/run, packaging

def test_the_ci_script_is_an_executable_bash_script():
    script = os.path.join(ROOT, ".ci", "run")
    assert os.access(script, os.X_OK)
    assert subprocess.call(["bash", "-n", script]) == 0


def test_the_version_is_a_plain_string():
    """So that it is read without importing the module."""
    with open(MODULE, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)
              and [target.id for target in node.targets if isinstance(target, ast.Name)] == ["VERSION"]]
    assert [re.fullmatch(r"\d+(\.\d+)+\S*", ast.literal_eval(value)) is not None for value in values] == [True]


@pytest.fixture
def project(tmp_path):
    """A copy of what is packaged: building writes beside its sources."""
    copy = tmp_path / "project"
    copy.mkdir()
    for name in "pyproject.toml", "mcp_lazy.py", "README.md":
        if os.path.exists(os.path.join(ROOT, name)):
            shutil.copy(os.path.join(ROOT, name), str(copy))
    return copy


@pytest.mark.network
@pytest.mark.slow
def test_the_wheel_holds_one_module_and_one_command(project, tmp_path):
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir",
                    str(tmp_path), str(project)], check=True)
    wheel, = tmp_path.glob("mcp_lazy-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata, commands = (archive.read(name).decode() for name in archive.namelist()
                              if name.endswith(("/METADATA", "/entry_points.txt")))
    assert names == ["mcp_lazy.py"]
    assert "\nName: mcp-lazy\n" in metadata
    assert "\nRequires-Python: >=3.9\n" in metadata
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert required and all("extra ==" in line for line in required)
    assert commands.split() == ["[console_scripts]", "mcp-lazy", "=", "mcp_lazy:main"]


@pytest.mark.network
@pytest.mark.slow
def test_the_installed_command_runs(project, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([str(binaries / "python"), "-m", "pip", "install", "--quiet", str(project)], check=True)
    for command in ["mcp-lazy"], ["python", "-m", "mcp_lazy"]:
        said = subprocess.check_output([str(binaries / command[0]), *command[1:], "--version"])
        assert re.fullmatch(rb"mcp-lazy \d\S*\n", said)


# ------------------------------------------------------------------------------------ embed.py

@pytest.mark.slow
def test_embed_tells_a_copy_from_its_original_and_makes_one(tmp_path):
    """An edited copy, a newer vendor file, and missing markers each have a message of their own."""
    module, source = tmp_path / "mcp_lazy.py", tmp_path / "toml_edit.py"
    begin, end = "# == toml_edit begin: sha256 none, do not edit here ==\n", "# == toml_edit end ==\n"

    def embed(word):
        done = tool("embed.py", word, "--module", module, "--source", source)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr
    source.write_bytes(b'toml = "\xc3\xa9"\n')
    module.write_text("above\n" + begin + end + "below")
    module.chmod(0o750)
    assert embed("--check")[0] == 1 and module.read_text() == "above\n" + begin + end + "below"
    assert embed("--write") == (0, "") == embed("--check")
    assert module.stat().st_mode & 0o777 == 0o750
    written = module.read_bytes()
    assert re.fullmatch(b'above\n# == toml_edit begin: sha256 [0-9a-f]{64}, do not edit here ==\ntoml = "\xc3\xa9"\n# == toml_edit end ==\nbelow', written)
    assert embed("--write") == (0, "") and module.read_bytes() == written
    module.write_bytes(written.replace(b"toml =", b"toml  ="))
    status, said = embed("--check")
    assert status == 1 and "it was edited there" in said and "move what was changed" in said
    module.write_bytes(written)
    source.write_bytes(b"toml_newer = 1\n")
    assert embed("--check") == (1, "mcp_lazy.py: the copy is not vendor/toml_edit.py: run tools/embed.py --write\n")
    assert embed("--write") == (0, "") == embed("--check")
    for text, message in (("", "0 lines with the toml_edit begin marker"), (end + begin, "end marker stands before"), (begin + begin + end, "2 lines"), (begin, "0 lines with the toml_edit end")):
        module.write_text(text)
        for word in "--check", "--write":
            status, said = embed(word)
            assert status == 1 and message in said and module.read_text() == text
    module.write_text(begin + end)
    for bad in "toml = 1", "toml = 1\n" + end:
        source.write_text(bad)
        assert embed("--write")[0] == 1 and module.read_text() == begin + end
    with open(MODULE, encoding="utf-8") as file:
        if "# == toml_edit end ==" not in file.read():
            pytest.skip("the module has no place for the copy yet")
    done = tool("embed.py", "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_two_halves_run_every_test_file_and_tell_the_worse_status(tmp_path):
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import shards
    tests = tmp_path / "tests"
    tests.mkdir()
    for name, body in (("a", "assert True"), ("b", "assert False"), ("c", "assert 1")):
        (tests / ("test_%s.py" % name)).write_text("def test_%s():\n    %s\n" % (name, body))
    first, second = shards.halves(str(tests))
    assert sorted(os.path.basename(path) for path in first + second) == ["test_a.py", "test_b.py", "test_c.py"] and first and second
    command = [sys.executable, "-c", "import sys; sys.exit(1 if any('test_b' in word for word in sys.argv) else 0)"]
    assert shards.run_tests(command, str(tmp_path)) == 1
    (tests / "test_b.py").unlink()
    assert shards.run_tests(command, str(tmp_path)) == 0
