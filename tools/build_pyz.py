"""Builds dist/mcp-lazy.pyz, the one-file form that also carries compiled bytecode.

    python3 tools/build_pyz.py                          writes dist/mcp-lazy.pyz
    python3 tools/build_pyz.py --check                  builds twice elsewhere and compares
    python3 tools/build_pyz.py --module M --output O    another module, another place

The same module and the same Python give the same bytes.  The bytecode serves the Python
version that built it; every other version compiles the source beside it at each start.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = b"import sys\nimport mcp_lazy\nsys.exit(mcp_lazy.main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)   # the earliest time that a zip entry can have
# The file is never looked at again (unchecked hash): the source lies in the same archive.
COMPILE = """
import py_compile, sys
py_compile.compile(sys.argv[1], sys.argv[2], "mcp_lazy.py", doraise=True,
                   invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
WHERE = "import sys; sys.path.insert(0, sys.argv[1]); import mcp_lazy; print(mcp_lazy.__file__)"


def bytecode(module):
    """The .pyc of a module.

    Made by a fresh interpreter with a fixed hash seed: what marshal writes depends on the
    order of sets and on which strings the running process shares."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as directory:
        target = os.path.join(directory, "mcp_lazy.pyc")
        subprocess.run([sys.executable, "-S", "-c", COMPILE, module, target],
                       env=dict(plain, PYTHONHASHSEED="0"), check=True)
        with open(target, "rb") as file:
            return file.read()


def build(module, output):
    """Writes the archive; entries are stored, so no zlib is needed or waited for at start."""
    with open(module, "rb") as file:
        source = file.read()
    os.makedirs(os.path.dirname(os.path.abspath(output)), exist_ok=True)
    with open(output, "wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in (("__main__.py", MAIN), ("mcp_lazy.py", source),
                               ("mcp_lazy.pyc", bytecode(module))):
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, data)
    os.chmod(output, 0o755)


def findings(module):
    """What is wrong with archives built now, as lines of text."""
    with tempfile.TemporaryDirectory() as directory:
        first, second = (os.path.join(directory, name, "mcp-lazy.pyz") for name in "ab")
        build(module, first)
        build(module, second)
        with open(first, "rb") as one, open(second, "rb") as two:
            if one.read() != two.read():
                yield "two builds differ"
        loaded = run([sys.executable, "-I", "-c", WHERE, first])
        if not loaded.stdout.strip().endswith("mcp_lazy.pyc"):
            yield "the bytecode is not used: loaded from %s %s" % (loaded.stdout, loaded.stderr[-500:])
        version = run([sys.executable, first, "--version"])
        if version.returncode or not version.stdout.startswith("mcp-lazy "):
            yield "--version gives status %d and %r %s" % (
                version.returncode, version.stdout, version.stderr[-500:])


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, universal_newlines=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="build twice, compare, try")
    parser.add_argument("--module", default=os.path.join(ROOT, "mcp_lazy.py"), help="the module")
    parser.add_argument("--output", default=os.path.join(ROOT, "dist", "mcp-lazy.pyz"))
    options = parser.parse_args()
    if options.check:
        found = list(findings(options.module))
        for text in found:
            print("mcp-lazy.pyz: %s" % text)
        return 1 if found else 0
    build(options.module, options.output)
    print("%s, %d bytes" % (os.path.relpath(options.output), os.path.getsize(options.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
