"""Copies vendor/toml_edit.py into the module, between two marker lines.

    python3 tools/embed.py --check            exit 1 when the copy is not the vendor file
    python3 tools/embed.py --write            make it so
    python3 tools/embed.py --check --module M --source S

The markers stand in the module already; the first one holds the SHA-256 of the copy, so that
a change made in the wrong place is told from a vendor file that is newer:

    # == toml_edit begin: sha256 <digest>, do not edit here ==
    # == toml_edit end ==
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN = re.compile(rb"^# == toml_edit begin: sha256 (\S*), do not edit here ==\n", re.M)
END = re.compile(rb"^# == toml_edit end ==$", re.M)
MARKER = "# == toml_edit begin: sha256 %s, do not edit here ==\n"


class Embedding(Exception):
    """The copy cannot be found; the text says why."""


def read(path):
    with open(path, "rb") as file:
        return file.read()


def split(module):
    """(text above the first marker, digest in it, copy, text from the second marker on), all bytes."""
    begins, ends = list(BEGIN.finditer(module)), list(END.finditer(module))
    for name, found in ("begin", begins), ("end", ends):
        if len(found) != 1:
            raise Embedding("%d lines with the toml_edit %s marker, there has to be one" % (len(found), name))
    if ends[0].start() < begins[0].end():
        raise Embedding("the toml_edit end marker stands before the begin marker")
    above, copy = module[:begins[0].start()], module[begins[0].end():ends[0].start()]
    return above, begins[0][1].decode("ascii", "replace"), copy, module[ends[0].start():]


def checked(source):
    """The vendor file, if it can stand between the markers."""
    if not source.endswith(b"\n") or BEGIN.search(source) or END.search(source):
        raise Embedding("the vendor file has a marker line in it, or no last line end")
    return source


def findings(module, source):
    """What is wrong with the copy, as texts."""
    _, said, copy, _ = split(module)
    edited = hashlib.sha256(copy).hexdigest() != said
    if edited:
        yield "the copy does not have the digest of its marker: it was edited there, or never written"
    if copy != checked(source):
        yield "the copy is not vendor/toml_edit.py: " + (
            "move what was changed, then run tools/embed.py --write" if edited else "run tools/embed.py --write")


def embedded(module, source):
    """The module with the vendor file between its markers."""
    above, _, _, below = split(module)
    return above + (MARKER % hashlib.sha256(checked(source)).hexdigest()).encode() + source + below


def replace(path, data):
    """Whole or not at all, with the mode of the old file."""
    handle, name = tempfile.mkstemp(prefix=".embed-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, os.stat(path).st_mode & 0o7777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--check", action="store_true", help="exit 1 when the copy is not the vendor file")
    task.add_argument("--write", action="store_true", help="copy the vendor file into the module")
    parser.add_argument("--module", default=os.path.join(ROOT, "mcp_lazy.py"), help="file with the markers")
    parser.add_argument("--source", default=os.path.join(ROOT, "vendor", "toml_edit.py"), help="file to copy")
    options = parser.parse_args()
    module, source = read(options.module), read(options.source)
    try:
        if options.write:
            wanted = embedded(module, source)
            if wanted != module:
                replace(options.module, wanted)
            return 0
        wrong = list(findings(module, source))
    except Embedding as error:
        wrong = [str(error)]
    for text in wrong:
        print("%s: %s" % (os.path.basename(options.module), text))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
