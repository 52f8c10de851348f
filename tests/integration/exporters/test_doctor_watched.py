"""On a lab with exporters and a Prometheus: each is broken in turn, and `opsk doctor` says which it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsk.lab.programs import build_search_path
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]

SIZES = (
    "--nodes",
    "2",
    "--gpus",
    "2",
    "--hcas",
    "2",
    "--spines",
    "1",
    "--no-advice",
    "--exporters",
    "2",
    "--prometheus",
)
WITHOUT_ADVICE = {"hook-not-loaded", "hook-missing", "advisor"}
"""What is wrong with every lab that has no hooks."""
PATIENCE_S = 60.0
JOB = "#!/bin/bash\n#SBATCH --gpus-per-node=1 --nodelist=n0\nsleep 300\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    path: Path
    environment: Mapping[str, str]
    exporters: Mapping[str, int]
    pids: Mapping[str, int]

    def wrong(self, *words: str) -> dict[str, str]:
        """Return what doctor finds wrong besides the submit path, by check."""
        named = [f"--exporter={node}=http://127.0.0.1:{port}" for node, port in self.exporters.items()]
        command = [sys.executable, "-m", "opsk", "doctor", "--json", *named, *words]
        done = run_warm(command, environment=self.environment, timeout_s=120)
        found = json.loads(done.stdout)["findings"]
        return {
            each["check"]: each["what"]
            for each in found
            if each["level"] == "wrong" and each["check"] not in WITHOUT_ADVICE
        }

    def until(self, is_so: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Look until it is so; Prometheus and exporters take their time."""
        end = time.monotonic() + PATIENCE_S
        while not is_so(wrong := self.wrong()):
            assert time.monotonic() < end, wrong
            time.sleep(0.5)
        return wrong


@pytest.fixture(scope="module")
def watched(lab_programs: None) -> Iterator[Watched]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    command = [sys.executable, "-m", "opsk", "lab"]
    place = ["--dir", str(top / "lab")]
    up = run_warm([*command, "up", *place, *SIZES, "--json"], environment=plain, timeout_s=240)
    try:
        assert up.returncode == 0, up.stderr
        status: dict[str, Any] = json.loads(up.stdout)
        site = top / "lab" / "etc" / "opsk.toml"
        if "[top]" not in site.read_text():
            site.write_text(f"{site.read_text()}\n[top]\n")
        if "prometheus" not in site.read_text().partition("[top]")[2]:
            url = f"http://127.0.0.1:{status['ports']['prometheus']}"
            site.write_text(site.read_text().replace("[top]\n", f'[top]\nprometheus = "{url}"\n'))
        yield Watched(
            path=top / "lab",
            environment={**plain, **status["environment"], "PATH": build_search_path(), "HOME": str(top)},
            exporters=status["ports"]["exporters"],
            pids={each["name"]: each["pid"] for each in status["daemons"]},
        )
    finally:
        run_warm([*command, "down", *place], environment=plain, timeout_s=120).check_returncode()
        shutil.rmtree(top)


def test_nothing_is_wrong_once_all_are_scraped(watched: Watched) -> None:
    assert watched.until(lambda wrong: not wrong) == {}


def test_an_exporter_that_is_not_scraped(watched: Watched) -> None:
    targets = watched.path / "etc" / "prometheus" / "targets.yml"
    before = targets.read_text()
    (group,) = yaml.safe_load(before)
    targets.write_text(yaml.safe_dump([{**group, "targets": group["targets"][:1]}]))
    try:
        watched.until(lambda wrong: wrong == {"scrape": "Prometheus has no target for the exporters of n1"})
    finally:
        targets.write_text(before)
    watched.until(lambda wrong: not wrong)


def test_rules_that_are_missing(watched: Watched) -> None:
    config = watched.path / "etc" / "prometheus" / "prometheus.yml"
    before = config.read_text()
    document = yaml.safe_load(before)
    document["rule_files"] = [name for name in document["rule_files"] if "alerts" not in name]
    config.write_text(yaml.safe_dump(document))
    os.kill(watched.pids["prometheus"], signal.SIGHUP)
    try:
        wrong = watched.until(lambda wrong: wrong.keys() == {"rules"})
    finally:
        config.write_text(before)
        os.kill(watched.pids["prometheus"], signal.SIGHUP)
    assert wrong["rules"].startswith("rules are missing: opsk-gpu-alerts")
    watched.until(lambda wrong: not wrong)


def test_a_collector_that_is_blind(watched: Watched) -> None:
    folder = watched.path / "run" / "nodes" / "n1" / "sys" / "class" / "infiniband"
    os.kill(watched.pids["devices"], signal.SIGSTOP)  # which writes there once a second
    aside = folder.rename(folder.with_name("aside"))
    folder.symlink_to(folder)  # leads nowhere: the kernel refuses to list it
    try:
        blind = "collector infiniband is blind on n1: it fails or is too slow"
        watched.until(lambda wrong: wrong.get("collector") == blind)
    finally:
        folder.unlink()
        aside.rename(folder)
        os.kill(watched.pids["devices"], signal.SIGCONT)
    watched.until(lambda wrong: not wrong)


def test_a_job_that_no_prolog_wrote_down(watched: Watched) -> None:
    prolog = watched.path / "etc" / "lab-prolog"
    before = prolog.read_text()
    prolog.write_text("#!/bin/sh\nexit 0\n")
    script = watched.path.parent / "job.sh"
    script.write_text(JOB)
    words = ["sbatch", "--parsable", "-D", str(watched.path.parent), str(script)]
    done = subprocess.run(words, env=dict(watched.environment), capture_output=True, text=True, check=True)
    job = done.stdout.strip()
    try:
        watched.until(lambda wrong: wrong == {"prolog": f"the prolog did not record running jobs on n0: {job}"})
    finally:
        prolog.write_text(before)
        subprocess.run(["scancel", job], env=dict(watched.environment), check=True)


def test_an_exporter_that_does_not_run(watched: Watched) -> None:
    os.kill(watched.pids["exporter-n1"], signal.SIGKILL)
    wrong = watched.until(lambda wrong: {"exporter", "scrape"} <= wrong.keys())
    assert wrong["exporter"] == "no answer from n1: Connection refused"
    assert wrong["scrape"].startswith("Prometheus cannot scrape n1: ")


def test_a_prometheus_that_does_not_run(watched: Watched) -> None:
    os.kill(watched.pids["prometheus"], signal.SIGKILL)
    wrong = watched.until(lambda wrong: "prometheus" in wrong)
    assert "does not answer" in wrong["prometheus"]
