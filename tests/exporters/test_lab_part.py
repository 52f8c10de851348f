"""Does a lab get exporters on devices of their own, and a Prometheus with the rules of sites?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from opsk.lab.exporters import write_prometheus
from opsk.lab.parts import EXPORTER, LabSite, list_parts
from opsk.lab.record import LabShape
from opsk.lab.slurm_files import find_deploy_folder
from opsk_exporters.core.settings import load_settings
from opsk_exporters.lab_part import exporter_part

PORTS = {"n0": 20105, "n1": 20106}
SHOWN = """JobId=12 JobName=llama
   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
   WorkDir=/a b
   AdminComment=opsk:v1 step_s=2.5
   StdErr=/a b/err
   StdOut=/a b/out"""
"""What ``scontrol show job`` prints, as far as it matters here."""


@pytest.fixture
def site(tmp_path: Path) -> LabSite:
    for name in ("etc", "run", "log"):
        (tmp_path / name).mkdir()
    return LabSite(
        etc=tmp_path / "etc", run=tmp_path / "run", log=tmp_path / "log", config=tmp_path / "opsk.toml",
        shape=LabShape(nodes=3), exporters=PORTS, prometheus_port=20107,
    )  # fmt: skip


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing on its PATH, no gcc, no Prometheus, on which this user had no lab before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("opsk.lab.exporters.build_search_path", lambda: "/nonexistent")


def test_it_is_installed_as_a_part() -> None:
    assert EXPORTER in list_parts(), "opsk is installed without its lab part: pip install -e . again"


def test_without_gcc_and_prometheus_the_lab_says_so_and_goes_on(site: LabSite, no_compiler: None) -> None:
    part = exporter_part(site)
    assert [daemon.name for daemon in part.daemons] == ["devices", "exporter-n0", "exporter-n1"]
    assert all("LD_LIBRARY_PATH" not in daemon.environment for daemon in part.daemons)
    assert part.notes == (
        "exporters show no GPUs: not installed: gcc (package gcc)",
        "1 of 3 nodes have no exporter: --exporters 3",
    )


def test_a_lab_without_exporters_gets_nothing(site: LabSite) -> None:
    part = exporter_part(LabSite(etc=site.etc, run=site.run, log=site.log, config=site.config))
    part.install()
    assert (part.daemons, part.slurm_lines, part.notes) == ((), (), ())
    assert list(site.etc.iterdir()) == []


def test_each_node_has_settings_that_the_exporter_reads(site: LabSite, no_compiler: None) -> None:
    part = exporter_part(site)
    part.install()
    settings = {
        daemon.name: load_settings(Path(daemon.environment["OPSK_CONFIG"])) for daemon in part.daemons[1:]
    }  # fmt: skip
    for node in PORTS:
        root = site.run / "nodes" / node
        found = settings[f"exporter-{node}"]
        assert (found.sysfs, found.jobs_folder, found.kernel_log) == (root / "sys", root / "jobs", root / "kmsg")
        assert found.cgroup_root == root / "sys" / "fs" / "cgroup"
    # All nodes are the host of slurmctld: one alone may ask it.
    assert [found.slurm_on == "off" for found in settings.values()] == [False, True]
    assert [daemon.socket for daemon in part.daemons[1:]] == list(PORTS.values())


def test_prolog_and_epilog_of_sites_write_where_the_node_reads(site: LabSite, no_compiler: None) -> None:
    part = exporter_part(site)
    part.install()
    assert part.slurm_lines == (
        f"Prolog={site.etc}/lab-prolog", f"Epilog={site.etc}/lab-epilog", "PrologFlags=Alloc"
    )  # fmt: skip
    jobs = site.run / "nodes" / "n1" / "jobs"
    programs = site.run / "bin"
    programs.mkdir()
    scontrol = programs / "scontrol"
    scontrol.write_text(f"#!/bin/sh\ncat <<'END'\n{SHOWN}\nEND\n", encoding="ascii")
    scontrol.chmod(0o755)
    job = {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_CLUSTER_NAME": "lab-1",
        "PATH": f"{programs}:/usr/bin:/bin",
    }
    for node, expected in (("n2", []), ("n1", ["lab-1.12", "lab-1.12.advice"])):
        words = [site.etc / "lab-prolog"]
        done = subprocess.run(words, env={**job, "SLURMD_NODENAME": node}, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in jobs.iterdir()) == expected
    assert "gpus=0,1\n" in (jobs / "lab-1.12").read_text()
    # Releases before 24.05 tell a prolog no file of output: the lab's asks.
    assert "stdout=/a b/out\n" in (jobs / "lab-1.12").read_text()
    assert "name=llama\n" in (jobs / "lab-1.12").read_text()
    assert (jobs / "lab-1.12.advice").read_text() == "opsk:v1 step_s=2.5\n"
    epilog = [site.etc / "lab-epilog"]
    subprocess.run(epilog, env={**job, "SLURMD_NODENAME": "n1"}, timeout=60, check=True)
    assert list(jobs.iterdir()) == []


def test_prometheus_gets_the_scrape_file_and_rules_of_sites(site: LabSite) -> None:
    write_prometheus(site)
    folder = site.etc / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (theirs,) = yaml.safe_load((find_deploy_folder() / "prometheus" / "scrape.yml").read_text())["scrape_configs"]
    assert job["honor_labels"] is theirs["honor_labels"] is True
    assert job["relabel_configs"][: len(theirs["relabel_configs"])] == theirs["relabel_configs"]
    (targets,) = yaml.safe_load((folder / "targets.yml").read_text())
    assert targets == {"targets": ["n0:20105", "n1:20106"], "labels": {"cluster": "lab"}}
    for rules in config["rule_files"]:
        assert Path(rules).read_bytes() == (find_deploy_folder() / "prometheus" / Path(rules).name).read_bytes()
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    words = [program, "check", "config", str(folder / "prometheus.yml")]
    done = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
