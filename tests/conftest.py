"""Fixtures of the real-process tests; the driver itself is tests/harness.py."""

import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness  # noqa: E402


def pytest_configure(config):
    harness.adopt_orphans()


@pytest.fixture
def box(tmp_path):
    """A test's own directory and processes; the test fails when one of them outlives it."""
    made = harness.Box(tmp_path)
    try:
        yield made
    finally:
        faults = made.close()
    assert not faults, "\n".join(faults)


@pytest.fixture
def open_box():
    """The same for tests that become another user: everything in it can be read and written by all."""
    python = harness.python_for_everyone()
    if python is None:
        pytest.skip("no interpreter here that another user can start")
    folder = tempfile.mkdtemp(prefix="relay-test-")
    os.chmod(folder, 0o777)
    made = harness.Box(folder, compiled=False)
    made.python = python
    for path in (made.home, made.path / "tmp"):
        os.chmod(str(path), 0o777)
    os.unlink(str(made.path / "python" / "python3"))
    os.symlink(python, str(made.path / "python" / "python3"))
    made.module = shutil.copy(str(harness.MODULE), folder)
    made.server = shutil.copy(str(harness.FAKE), folder)
    os.chmod(made.module, 0o755)
    try:
        yield made
    finally:
        faults = made.close()
        shutil.rmtree(folder, ignore_errors=True)
    assert not faults, "\n".join(faults)
