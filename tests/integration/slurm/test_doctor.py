"""On a real lab, of each release: each thing is broken in turn, and `opsk doctor` says which it is."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opsk.config import load_site
from opsk_jobcheck.service.hooks import install_hooks
from tests.fakes.advised_lab import FITS, PATIENT, AdvisedLab, wait_until
from tests.integration.conftest import INSTALLED_ONLY, RunningLab

pytestmark = [pytest.mark.slurm]

NO_EXPORTERS = "\n[top]\nexporter_port = 0\n"
IN_FORCE = PATIENT + NO_EXPORTERS


@pytest.fixture
def site(advised_lab: AdvisedLab) -> AdvisedLab:
    advised_lab.configure(IN_FORCE)
    hooks_again(advised_lab)
    forget(advised_lab)
    return advised_lab


def looked(site: AdvisedLab | RunningLab, *words: str) -> tuple[int, dict[str, str]]:
    """Return the exit status, and what is wrong by check."""
    done = site.run(sys.executable, "-m", "opsk", "doctor", "--json", *words)
    document = json.loads(done.stdout)
    assert all(each["hint"] for each in document["findings"] if each["level"] == "wrong"), document
    return done.returncode, {each["check"]: each["what"] for each in document["findings"] if each["level"] == "wrong"}


def hooks_again(site: AdvisedLab) -> None:
    """Put sound hooks back, and have slurmctld read them."""
    etc = site.record.folder.etc
    install_hooks(etc, load_site(site.record.folder.site))
    later = time.time() + next(site.ticks)
    os.utime(etc / "job_submit.lua", (later, later))


def forget(site: AdvisedLab) -> None:
    """Empty slurmctld's log: tests before on this lab may have left their circuit breaker open, which it tells of."""
    os.truncate(site.record.folder.log / "slurmctld.log", 0)


@contextmanager
def instead(path: Path, text: str) -> Iterator[None]:
    """Have another text in a file for a while."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def test_nothing_is_wrong_at_a_sound_site(site: AdvisedLab) -> None:
    assert looked(site) == (0, {})
    said = site.run(sys.executable, "-m", "opsk", "doctor", "--all").stdout
    assert "nothing wrong" in said
    assert "✓ hook: job_submit.lua belongs to opsk" in said


def test_a_hook_that_is_missing(site: AdvisedLab) -> None:
    path = site.record.folder.etc / "cli_filter.lua"
    aside = path.rename(path.with_name("aside"))
    try:
        status, wrong = looked(site)
        assert status == 1
        assert wrong == {"hook-missing": "is missing: Slurm itself refuses every submission without it"}
    finally:
        aside.rename(path)


def test_hooks_that_are_not_loaded(lab: RunningLab) -> None:
    conf = lab.path / "etc" / "slurm.conf"
    status, wrong = looked(lab, "--exporter", "n0=http://127.0.0.1:1")
    assert status == 1
    assert wrong.keys() == {"hook-not-loaded", "hook-missing", "advisor", "exporter"}
    assert "slurm.conf does not have CliFilterPlugins=lua" in wrong["hook-not-loaded"]
    (conf.parent / "opsk.conf").write_text("JobSubmitPlugins=lua\nCliFilterPlugins=lua\n")
    with instead(conf, conf.read_text() + "Include opsk.conf\n"):
        wrong = looked(lab)[1]
    (conf.parent / "opsk.conf").unlink()
    assert "slurmctld has not read yet" in wrong["hook-not-loaded"]


@INSTALLED_ONLY
def test_a_breaker_that_is_open(site: AdvisedLab) -> None:
    settings, log = site.record.folder.etc / "opsk-hooks.conf", site.record.folder.log / "slurmctld.log"
    settings.write_text(settings.read_text().replace("breaker_pause_s = 5\n", "breaker_pause_s = 60\n"))
    hooks_again(site)
    site.stop_advisor()
    try:
        for _ in range(4):
            assert site.sbatch(FITS, "--hold", OPSK_ADVICE="off").job
        wait_until(lambda: "opsk: the advisor gives no answer" in log.read_text())
        wrong = looked(site)[1]
        assert wrong["breaker"].startswith("open: slurmctld's hook asks nothing for 60 s")
    finally:
        settings.unlink()
        hooks_again(site)
        site.start_advisor()
        site.cancel()
        forget(site)
    assert looked(site) == (0, {})
