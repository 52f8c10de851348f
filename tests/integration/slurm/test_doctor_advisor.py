"""On a real lab: what does not depend on Slurm's release is broken in turn, and `opsk doctor` says which it is."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from opsk_jobcheck.service.hooks import ADVICE
from tests.fakes.advised_lab import FITS, AdvisedLab
from tests.integration.releases.roots import INSTALLED
from tests.integration.slurm.test_doctor import IN_FORCE, instead, looked

pytestmark = [pytest.mark.slurm, pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session")]


@pytest.fixture
def site(advised_lab: AdvisedLab) -> AdvisedLab:
    advised_lab.configure(IN_FORCE)
    return advised_lab


def test_a_hook_of_another_opsk(site: AdvisedLab) -> None:
    path = site.record.folder.etc / "cli_filter.lua"
    with instead(path, path.read_text() + "-- as it was a year ago\n"):
        assert looked(site)[1].keys() == {"hook-old"}


def test_what_the_hook_goes_on_with(site: AdvisedLab) -> None:
    path = site.record.folder.etc / ADVICE
    aside = path.rename(path.with_name("aside"))
    try:
        said = site.sbatch(FITS)
        assert (said.returncode, len(said.advice)) == (0, 2), "the two lines of slurmctld's own hook"
        assert looked(site)[1] == {"hook-missing": "is missing: cli_filter.lua lets every job through without advice"}
    finally:
        aside.rename(path)
    with instead(path, path.read_text() + "-- as it was a year ago\n"):
        assert looked(site)[1].keys() == {"hook-old"}


def test_a_script_of_the_sites_own(site: AdvisedLab) -> None:
    with instead(
        site.record.folder.etc / "cli_filter.lua", "function slurm_cli_pre_submit() return slurm.SUCCESS end\n"
    ):
        assert looked(site)[1].keys() == {"hook-own"}


def test_settings_that_are_not_those_of_the_site(site: AdvisedLab) -> None:
    path = site.record.folder.site
    with instead(path, path.read_text().replace("cli_deadline_s = 5.0", "cli_deadline_s = 4.0")):
        wrong = looked(site)[1]
    assert wrong.keys() == {"hook-settings"}
    assert "cli_deadline_ms = 5000, not 4000" in wrong["hook-settings"]


def test_a_configuration_that_cannot_be_used(site: AdvisedLab) -> None:
    path = site.record.folder.site
    with instead(path, path.read_text() + "\n[exporter]\nfolder_of_jobs = 1\n"):
        assert looked(site)[1].keys() == {"exporter-settings"}
    with instead(path, 'clustre = "x"\n' + path.read_text()):
        wrong = looked(site, "--exporter", "n0=http://127.0.0.1:1")[1]
    assert "clustre: unknown key, closest: cluster" in wrong["configuration"]
    with instead(path, path.read_text().replace(str(site.record.folder.dump), "/no/such/dump")):
        assert looked(site)[1].keys() == {"fabric"}


def test_an_advisor_that_does_not_run_or_answer(site: AdvisedLab) -> None:
    (pid,) = site.advisor_pids()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert looked(site)[1] == {"advisor": "accepts connections but gives no answer within 1 s"}
    finally:
        os.kill(pid, signal.SIGCONT)
    site.stop_advisor()
    try:
        assert looked(site)[1] == {"advisor": "does not run: its socket is missing"}
    finally:
        site.start_advisor()
    assert looked(site) == (0, {})


def test_a_socket_that_users_cannot_reach(site: AdvisedLab) -> None:
    folder = site.socket.parent
    site.socket.chmod(0o600)
    folder.chmod(0o700)
    try:
        assert looked(site)[1].keys() == {"socket-mode", "socket-folder"}
    finally:
        folder.chmod(0o755)
        site.socket.chmod(0o666)


def test_a_clock_that_is_off(site: AdvisedLab, tmp_path: Path) -> None:
    sdiag = tmp_path / "sdiag"
    sdiag.write_text('#!/bin/sh\necho "sdiag output at some time ($(($(date +%s) + 400)))"\n')
    sdiag.chmod(0o755)
    site.environ["PATH"] = f"{tmp_path}{os.pathsep}{site.environ['PATH']}"
    try:
        wrong = looked(site)[1]
    finally:
        site.environ["PATH"] = site.environ["PATH"].removeprefix(f"{tmp_path}{os.pathsep}")
    assert wrong.keys() == {"clock"}
    assert "s ahead of this host's" in wrong["clock"]


def test_slurm_that_does_not_answer(site: AdvisedLab) -> None:
    done = site.run(sys.executable, "-m", "opsk", "doctor", SLURM_CONF="/no/such/slurm.conf")
    assert done.returncode == 1
    assert "slurmctld does not answer" in done.stdout
    assert "Traceback" not in done.stderr
