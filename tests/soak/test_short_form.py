"""The soak in its short form: 6 nodes, 40 jobs, each fault once, and every check holds at its end.

``OPSK_SOAK_SEED`` plans another one; ``make soak`` is the long form.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsk.lab.programs import find_missing
from tests.soak.checks import CHECKS
from tests.soak.faults import FAULTS
from tests.soak.report import document, table
from tests.soak.running import SHORT, Result, soak

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(1200)]

SEED = int(os.environ.get("OPSK_SOAK_SEED", "1"))


@pytest.fixture(scope="module")
def result() -> Iterator[Result]:
    absent = find_missing()
    if absent:
        pytest.skip("not installed: " + ", ".join(f"{name} (package {package})" for name, package in absent.items()))
    top = Path(tempfile.mkdtemp(prefix="opsk-soak-"))  # not below pytest's, which other users may not enter
    top.chmod(0o755)
    try:
        yield _soaked(top / "1")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _soaked(top: Path) -> Result:
    """Run it and print what came of it, whether it holds or not."""
    top.mkdir(mode=0o755)
    found = soak(SHORT, SEED, top, print)
    print(table(document(found)))
    return found


@pytest.mark.parametrize("place", range(len(CHECKS)), ids=[each.__name__ for each in CHECKS])
def test_it_holds(result: Result, place: int) -> None:
    found = result.checks[place]
    assert not found.wrong, f"{found.name}: {'; '.join(found.wrong)[:5000]}"


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_was_done(result: Result, name: str) -> None:
    if name in result.not_here:
        pytest.skip(f"{name}: {result.not_here[name]}")
    assert name in {fault.name for fault in result.soaked.faults}
