"""Do a lab's exporters come and go with it, and does the lab know them in between?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsk.config import load_site
from opsk.lab.lifecycle import up as start_lab
from opsk.lab.parts import EXPORTER
from opsk.lab.processes import find_all
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from tests.fakes.advisor_process import eventually
from tests.fakes.exporter import Series, having, series, value
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.releases.roots import INSTALLED

pytestmark = [pytest.mark.slurm, pytest.mark.fabric]

SIZES = ("--nodes", "2", "--gpus", "2", "--hcas", "2", "--spines", "1", "--no-advice", "--exporters", "1")


@pytest.fixture
def lab(lab_programs: None) -> Iterator[Path]:
    """A folder for a lab, which is taken down afterwards."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    yield top / "lab"
    run("down", "--dir", top / "lab")
    shutil.rmtree(top)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    command = [sys.executable, "-m", "opsk", "lab", *map(str, words)]
    return run_warm(command, environment=plain, timeout_s=120)


PATIENCE_S = 60.0
LINE = " iteration %8d/ 900 | elapsed time per iteration (ms): 1500.0 | lm loss: 3.1E+00 |"
TRAIN = f"""#!/bin/bash
#SBATCH --gpus-per-node=1 --nodelist=n0 --job-name=train
for step in 1 2 3 4 5 6; do printf "{LINE}\\n" $step; done
sleep 300
"""


def test_on_each_release_a_job_shows_with_its_gpu_and_its_log(lab: Path) -> None:
    up = run("up", "--dir", lab, *SIZES, "--json")
    assert up.returncode == 0, up.stderr
    status = json.loads(up.stdout)
    address = f"http://127.0.0.1:{status['ports']['exporters']['n0']}/metrics"
    script = lab.parent / "train.sh"
    script.write_text(TRAIN, encoding="ascii")
    environment = {**os.environ, **status["environment"], "PATH": build_search_path()}
    words = ["sbatch", "--parsable", "-D", str(lab.parent), str(script)]
    job = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def scraped() -> Series:
        with urllib.request.urlopen(address, timeout=60) as page:
            return series(page.read().decode())

    found = eventually(scraped, lambda seen: bool(having(seen, "opsk_training_step_seconds")), PATIENCE_S)
    assert value(found, "opsk_training_step_seconds", job=job) == 1.5
    ((told, _one),) = having(found, "opsk_job_info", job=job, gpus_from="prolog").items()
    assert dict(told)["name"] == "train"
    ((labels, _one),) = having(found, "opsk_job_gpu").items()
    gpu = dict(labels)["gpu"]
    busy = eventually(scraped, lambda seen: (value(seen, "opsk_gpu_power_watts", gpu=gpu) or 0.0) > 500.0, PATIENCE_S)
    assert sorted(having(busy, "opsk_gpu_power_watts").values())[0] < 100.0
    subprocess.run(["scancel", job], env=environment, check=True)
    eventually(scraped, lambda seen: not having(seen, "opsk_job_gpu"), PATIENCE_S)


@pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session")
def test_where_prometheus_is_not_installed_nothing_is_pointed_at_it(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk.lab.lifecycle.find_prometheus", lambda: None)
    record, _ = start_lab(lab, shape=LabShape(nodes=1, gpus=1, hcas=1, leaves=1, spines=1), parts=(EXPORTER,),
                          progress=lambda _: None, exporters=1, prometheus=True)  # fmt: skip
    assert "no Prometheus: not installed (package prometheus)" in record.notes
    assert json.loads(run("status", "--dir", lab, "--json").stdout)["ports"]["prometheus"] is None
    assert load_site(record.folder.site).top.prometheus is None


@pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session")
def test_exporters_are_known_to_the_lab_and_end_with_it(lab: Path) -> None:
    up = run("up", "--dir", lab, *SIZES)
    assert up.returncode == 0, up.stderr
    assert "1 of 2 nodes have no exporter: --exporters 2" in up.stdout
    status = json.loads(run("status", "--dir", lab, "--json").stdout)
    assert set(status["ports"]["exporters"]) == {"n0"}
    assert status["ports"]["prometheus"] is None
    daemons = {each["name"]: each["pid"] for each in status["daemons"]}
    assert {"devices", "exporter-n0"} <= daemons.keys()
    with urllib.request.urlopen(f"http://127.0.0.1:{status['ports']['exporters']['n0']}/metrics") as page:
        assert "opsk_exporter_info" in page.read().decode()

    broken = run("break", "nic", "--dir", lab, "n0", "1")
    assert broken.stdout == "lab: broken: n0: nic mlx5_1\n"
    more = run("up", "--dir", lab, "--exporters", "2")
    assert (more.returncode, more.stdout) == (3, "")
    assert "a lab is up with 1 exporters and no Prometheus" in more.stderr
    assert run("up", "--dir", lab).returncode == 0
    shown = run("status", "--dir", lab)
    assert "  broken  n0: nic mlx5_1\n" in shown.stdout
    faults = json.loads(run("status", "--dir", lab, "--json").stdout)["faults"]
    assert faults == [{"node": "n0", "kind": "nic", "what": "mlx5_1", "xid": None}]
    refused = run("break", "gpu", "--dir", lab, "n1", "0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "only nodes with an exporter have devices: n0" in refused.stderr

    os.kill(daemons["exporter-n0"], signal.SIGKILL)
    assert run("status", "--dir", lab).returncode == 1
    assert run("down", "--dir", lab).returncode == 0
    assert find_all(lab, slurm_confs=[lab / "etc" / "slurm.conf"]) == ()
    left = {entry.name for entry in lab.iterdir() if not entry.name.startswith("nvml-")}
    assert left == {"etc", "log", "lab.json", "lock", "fabric.net", "fabric.ibnetdiscover"}
    nowhere = run("break", "gpu", "--dir", lab, "n0", "0")
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert "no lab is up" in nowhere.stderr
    run("down", "--dir", lab, "--purge")
    assert not lab.exists()
