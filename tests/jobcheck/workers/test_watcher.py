"""``opsk check --live``: asks once, and says so where it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.config import SiteConfig
from opsk.errors import ConfigError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk_jobcheck import cli as check_module
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.workers.watcher import add_live_state, run_service
from tests.fakes.launch_scripts import megatron_script
from tests.fakes.live_cluster import NODES, UNIT, CountingSlurm, training_job

FLAGS = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CountingSlurm:
    found = CountingSlurm(training_job(7, ["n0", "n1"]))
    monkeypatch.setattr(check_module, "slurm_client", lambda: found)
    (tmp_path / "opsk.toml").write_text('cluster = "superpod-h100"\n')
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    fabric = rail_optimized_fabric(nodes=NODES, hcas=8, leaves=8 * NODES // UNIT, spines=2)
    (tmp_path / "fabric.ib").write_text(render_ibnetdiscover(fabric))
    (tmp_path / "job.sh").write_text(
        megatron_script(f"{FLAGS} --sequence-parallel").replace("#!/bin/bash\n", "#!/bin/bash\n#SBATCH -x n[2-3]\n")
    )
    return found


def check(tmp_path: Path, *options: str) -> Result:
    words = ["check", str(tmp_path / "job.sh"), "--fabric", str(tmp_path / "fabric.ib"), "--json", *options]
    return CliRunner().invoke(opsk, words)


def test_free_nodes_are_asked_for_once(slurm: CountingSlurm, tmp_path: Path) -> None:
    placement = json.loads(check(tmp_path, "--live").stdout)["placement"]
    assert slurm.asked == ["jobs with details", "nodes", "partitions"]
    assert placement["free"]["nodes"] == 12
    assert not {"n0", "n1", "n2", "n3"} & set(placement["nodes"])


def test_without_the_option_slurm_is_left_alone(slurm: CountingSlurm, tmp_path: Path) -> None:
    told = json.loads(check(tmp_path).stdout)
    assert slurm.asked == []
    assert told["placement"]["free"] is None
    assert "--live" in told["interference"]["why"]


def test_slurm_that_does_not_answer_costs_only_that_part(slurm: CountingSlurm, tmp_path: Path) -> None:
    slurm.is_down = True
    result = check(tmp_path, "--live")
    assert result.exit_code in (0, 1)
    assert "did not answer within 10 s" in result.stderr
    assert json.loads(result.stdout)["placement"]["free"] is None


def test_without_a_fabric_there_is_nothing_to_see() -> None:
    with pytest.raises(ConfigError, match="fabric"):
        add_live_state(SiteConfig(), Adviser(), CountingSlurm())


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    site = SiteConfig.model_validate({"fabric": ["/nowhere"], "advisor": {"live_folder": tmp_path / "live"}})
    (tmp_path / "live").mkdir()
    (tmp_path / "live").chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        run_service(site)
    with pytest.raises(ConfigError, match="nothing is watched"):
        run_service(SiteConfig())
