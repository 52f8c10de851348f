"""What every test may ask for: the real dumps where there are any, a clean environment, and a loud list of skips."""

from __future__ import annotations

import csv
import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("OPSK_SHARED", ROOT.parent / "shared"))


settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("OPSK_HYPOTHESIS", "same"))
"""The same examples on every run: a change breaks a test, not the dice; ``OPSK_HYPOTHESIS=explore`` generates new
ones, twice as many."""

# A shell that starts the tests in the background has them ignore SIGINT, and every process that they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


MACHINES_OWN = tuple(map(Path, ("/etc/opsk", "/var/lib/opsk", "/var/spool/opsk", "/var/log/opsk", "/run/opsk")))
"""Where an installed opsk keeps what is its own; what a test leaves there others find, on this machine and for good."""


@pytest.fixture(scope="module", autouse=True)
def nothing_of_the_machines_own() -> Iterator[None]:
    """Fail the tests of a file that make a folder of an installed opsk."""
    missing = [path for path in MACHINES_OWN if not path.exists()]
    yield
    made = [str(path) for path in missing if path.exists()]
    assert not made, f"made by a test, and to be removed by hand: {', '.join(made)}"


@pytest.fixture(scope="session")
def root() -> Path:
    """Top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real dumps and measured runs that accompanies the project where it is developed."""
    if not (SHARED / "data").is_dir():
        pytest.skip("real dumps (shared/data) are not beside this checkout")
    return SHARED


FIRST_UNSEEN_SOURCE = "lfh-"
"""Rows from here on were collected after the shipped efficiencies had been fitted; measured-runs.md says so."""


@pytest.fixture(scope="session")
def runs_of_the_fit(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of measured runs as far as the shipped efficiencies were fitted to it.

    How far off they are on the rows that came later is on docs/accuracy.md, under "Sources never seen".
    """
    with (shared / "data" / "measured-runs.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    seen = takewhile(lambda row: not row[0].startswith(FIRST_UNSEEN_SOURCE), rows)
    path = tmp_path_factory.mktemp("runs") / "measured-runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *seen])
    return path


@pytest.fixture
def passable_path() -> Iterator[Path]:
    """A folder that other users may pass and list: in pytest's own they may not once another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="opsk-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the machine's own opsk and Slurm settings out of the tests."""
    for name in list(os.environ):
        if name.startswith(("OPSK_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_")):
            monkeypatch.delenv(name)
    # pytest-xdist tells its workers the width of a terminal that they do not have.
    monkeypatch.delenv("COLUMNS", raising=False)
    # An internal error is one line for a person; a test that looks for a traceback is to find it.
    monkeypatch.setenv("OPSK_TRACEBACK", "1")


WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
"""Which of pytest-xdist's workers this process is, ``gw0`` the first."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: there is next to none among millions of objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every second worker begin at the end: of a fresh checkout each compiles half of the tests."""
    report = yield
    if isinstance(collector, pytest.Directory) and WORKER[2:] and int(WORKER[2:]) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put all workers' tests in one order."""
    if WORKER:
        items.sort(key=lambda item: item.path.parts)


def pytest_collection_finish() -> None:
    """Take what collection made out of the garbage collector's way: it stays until the end, and there is much of it.

    Of what a test keeps the whole is looked through every 700,000 objects, not every 70,000: that was a twentieth of
    all processor time.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 100)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the last lines, by name, what could not run and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons: dict[str, list[str]] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    terminalreporter.section("NOT RUN HERE")
    for reason, names in sorted(reasons.items()):
        terminalreporter.write_line(f"{len(names)} tests: {reason}")
        for name in names:
            terminalreporter.write_line(f"    {name}")
