"""Runs the two commands of the README on a machine that holds only make, git and Python.

``make demo`` runs whole. ``make test`` installs all that it needs and runs a few of its tests, one with a lab: all
others are running now, and a type checker finds nothing else in a bare root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bare_root.root import BareMachine, copy_root, make_bare_root
from tests.packaging.conftest import snapshot

PACKAGES = "make,git,python3"
DEMO, TEST = "make demo", "make test"
LAB = "tests/integration/exporters/test_lab_exporters.py::test_exporters_are_known_to_the_lab_and_end_with_it"
A_FEW = f"tests/opsk/cli/test_error_reporting.py {LAB}"
FIRST_TIMEOUT_S = 1500.0
"""A command that comes first installs for two to three minutes; beside other tests, longer."""

MARKS = [pytest.mark.slurm, pytest.mark.timeout(2 * FIRST_TIMEOUT_S)]


@contextmanager
def prepare_machine(suite: str, checkout: Path, folder: Path) -> Iterator[BareMachine]:
    """Yield a bare machine with a checkout in /srv/opsk."""
    bare = copy_root(make_bare_root(suite, PACKAGES), folder / "root")
    snapshot(checkout, bare / "srv" / "opsk")
    machine = BareMachine(root=bare, suite=suite)
    machine.connect()
    machine.take_cached_packages()
    if machine.run("apt-get -qq update && apt-cache show slurm-wlm >/dev/null", 120.0).returncode:
        pytest.skip(f"the packages of Debian {suite} cannot be reached from here")
    yield machine
    machine.cache_packages()


def show_demo(machine: BareMachine) -> None:
    """Run ``make demo`` and look for what a person is to see."""
    done, running = machine.run_and_list_processes(f"cd /srv/opsk && {DEMO}", FIRST_TIMEOUT_S)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert "Traceback" not in output
    # Advice by real sbatch, an alert of a Prometheus that scraped the exporter, and a remap.
    assert "sbatch: opsk  memory   ✓ " in output
    assert "sbatch: opsk  memory   ✗ " in output
    assert "Submitted batch job 2" in output
    assert "alert OpskXidDrain" in output
    assert "spare n8 for n5" in output
    assert "processes ended" in output
    assert running == []


def add_stand_ins(machine: BareMachine) -> None:
    """Put stand-ins in place of Chromium and PostgreSQL, a quarter of what ``make test`` installs; no test runs them.

    On the other machine they are installed.
    """
    for name in ("chromium", "initdb"):
        program = machine.root / "usr" / "local" / "bin" / name
        program.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
        program.chmod(0o755)


def run_a_few_tests(machine: BareMachine) -> None:
    """Run ``make test`` with a few of its tests."""
    done, running = machine.run_and_list_processes(f'cd /srv/opsk && {TEST} TESTS="{A_FEW}"', FIRST_TIMEOUT_S)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert " passed" in output
    assert " failed" not in output
    assert "not installed" not in output
    assert "SLURM RELEASES" in output
    assert running == []
