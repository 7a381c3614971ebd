"""Runs pytest in two processes at once; tools/test.py imports this, it is no command.

    from shards import run_tests
    status = run_tests(["python", "-m", "pytest"], root)

Most tests wait for processes most of the time, so two at once take little more than half the
time on two cores.  Each half is a list of files, balanced by their sizes: the longer a file,
the longer it runs, roughly.  What the second half prints is shown behind the first.
"""

import os
import subprocess
import tempfile


def halves(folder):
    """The test files of a folder in two lists of about the same size in bytes; empty ones where there is no folder."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    files = [os.path.join(folder, name) for name in names if name.startswith("test_") and name.endswith(".py")]
    parts = [[], []]
    for path in sorted(files, key=os.path.getsize, reverse=True):
        min(parts, key=lambda part: sum(map(os.path.getsize, part))).append(path)
    return [sorted(part) for part in parts]


def run_tests(command, root):
    """The worse of the two statuses of pytest."""
    first, second = halves(os.path.join(root, "tests"))
    if not second:
        return subprocess.call(command, cwd=root)
    with tempfile.TemporaryFile() as kept:
        other = subprocess.Popen(command + second, cwd=root, stdin=subprocess.DEVNULL,
                                 stdout=kept, stderr=subprocess.STDOUT)
        try:
            status = subprocess.call(command + first, cwd=root)
        except BaseException:
            other.terminate()
            raise
        finally:
            other.wait()
        kept.seek(0)
        print(kept.read().decode("utf-8", "replace"), flush=True)
    return max(status, other.returncode, key=abs)
