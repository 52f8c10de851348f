"""From inside a job: the map for the nodes that were really given, or Slurm's own order, and never a failure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.app.inputs import placement as place_inputs
from opsk.cli.main import opsk
from opsk.cli.place import launch as place_launch
from opsk.errors import InputError, SlurmError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.planning.placement.rank_map import RankMap
from opsk.slurm.records import JobRecord
from opsk.workload.plan import Plan

RECORD = "opsk:v1 verdict=fits tp=2 pp=1 dp=6"
NODES = ("n0", "n1", "n2", "n3", "n4", "n5")


class FakeSlurm:
    """Stands for a cluster that knows one job."""

    def __init__(self, job: JobRecord | Exception) -> None:
        self._job = job
        self.asked: list[str] = []

    def release(self) -> tuple[int, int]:
        return 22, 5

    def job(self, job_id: str) -> JobRecord:
        self.asked.append(job_id)
        if isinstance(self._job, Exception):
            raise self._job
        return self._job


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two units whose nodes take turns in Slurm's order, with one cable up a leaf."""
    fabric = rail_optimized_fabric(
        nodes=6, hcas=2, leaves=4, spines=1, cables_per_pair=1, names=[*NODES[::2], *NODES[1::2]]
    )
    (tmp_path / "dump").write_text(render_ibnetdiscover(fabric))
    (tmp_path / "opsk.toml").write_text(f'fabric = ["{tmp_path}/dump"]\n')
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_HET_SIZE", "OPSK_MAP", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)


def use_job(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> FakeSlurm:
    values: dict[str, Any] = {
        "id": 7, "label": "7", "user": "u", "name": "train", "state": "RUNNING", "nodes": NODES, "gpus": 12,
        "gpus_per_node": 2, "admin_comment": RECORD,
    }  # fmt: skip
    return use(monkeypatch, JobRecord(**(values | changes)))


def use(monkeypatch: pytest.MonkeyPatch, job: JobRecord | Exception) -> FakeSlurm:
    slurm = FakeSlurm(job)
    monkeypatch.setattr(place_launch, "CommandClient", lambda **_: slurm)
    return slurm


def run(*arguments: str, launch: str = "srun") -> Result:
    result = CliRunner().invoke(opsk, ["place", "--job", "7", "--launch", launch, *arguments])
    assert (result.exit_code, result.exception) == (0, None)
    return result


def mapped(result: Result) -> RankMap:
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("export OPSK_MAP=")]
    found = RankMap.parse(line.partition("=")[2].strip("'"))
    assert found is not None
    return found


def test_units_that_slurm_would_tear_apart_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    use_job(monkeypatch)
    result = run()
    assert mapped(result).names == ("n0", "n2", "n4", "n1", "n3", "n5")
    assert "--nodelist=n0,n0,n2,n2,n4,n4,n1,n1,n3,n3,n5,n5" in result.stdout


@pytest.mark.parametrize("launch", ["srun", "torchrun", "task-prolog"])
@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n2", "n3", "n4"), NODES])
def test_a_plan_has_as_many_replicas_as_the_nodes_really_given(
    monkeypatch: pytest.MonkeyPatch, nodes: tuple[str, ...], launch: str
) -> None:
    """``--nodes=2-6``, a requeued job, or one that lost nodes: the record's six replicas are what was asked for."""
    use_job(monkeypatch, nodes=nodes, gpus=2 * len(nodes))
    result = run(launch=launch)
    if result.stdout not in ("", "OPSK_SRUN_OPTIONS=\nunset OPSK_MAP\n"):
        assert (set(mapped(result).names), mapped(result).world_size) == (set(nodes), 2 * len(nodes))
    assert launch == "task-prolog" or "OPSK_MAP=" in result.stdout


def test_nodes_that_are_gone_leave_options_that_name_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``--no-kill`` the environment still lists n1 (facts of Slurm 22.05 to 26.05)."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-2]")
    use_job(monkeypatch, nodes=("n0", "n2"), gpus=4, tasks=6)
    said = run().stdout
    assert "--nodelist=n0,n0,n2,n2 --ntasks=4" in said
    assert said.startswith("unset SLURM_NNODES ")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"admin_comment": None}, "has no plan"),
        ({"nodes": (), "state": "PENDING"}, "has no nodes"),
        ({"gpus_per_node": None, "gpus": 11}, "unevenly"),
        ({"nodes": ("x0", "x1"), "gpus": 4}, "fabric"),
        ({"nodes": ("n0", "x1"), "gpus": 4}, "does not show x1"),
        ({"nodes": ("n0", "n1"), "gpus": 4, "admin_comment": RECORD.replace("tp=2", "tp=3")}, "GPUs"),
        ({"tasks": 7}, "7 tasks"),
    ],
)
def test_any_trouble_leaves_slurms_order_and_says_why(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str
) -> None:
    use_job(monkeypatch, **changes)
    result = run()
    assert result.stdout == "OPSK_SRUN_OPTIONS=\nunset OPSK_MAP\n"
    assert "Slurm's own order of ranks is used" in result.stderr
    assert says in result.stderr


@pytest.mark.parametrize("error", [SlurmError("squeue did not answer"), InputError("no job"), RuntimeError("a bug")])
def test_no_error_ends_the_job(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    use(monkeypatch, error)
    assert run().stdout == "OPSK_SRUN_OPTIONS=\nunset OPSK_MAP\n"
    assert run(launch="task-prolog").stdout == ""


def test_a_site_without_a_fabric_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "opsk.toml").write_text("")
    use_job(monkeypatch)
    assert run().stdout == "OPSK_SRUN_OPTIONS=\nunset OPSK_MAP\n"


def test_the_deadline_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = use_job(monkeypatch)
    monkeypatch.setattr(slurm, "job", lambda _: time.sleep(30))
    result = run("--deadline", "0.2")
    assert "no map within 0.2 s" in result.stderr


def test_a_task_of_an_array_asks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = use_job(monkeypatch)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}.items():
        monkeypatch.setenv(name, value)
    run()
    assert slurm.asked == ["5_2"]


def test_without_a_record_the_jobs_own_script_tells_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    use_job(monkeypatch, admin_comment=None)
    monkeypatch.setattr(place_inputs, "read_script_plan", lambda _: Plan(tp=2, dp=6, global_batch=6))
    assert mapped(run()).world_size == 12


def test_the_wrapper_gets_two_options_and_rank_0_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    use_job(monkeypatch)
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-5]", "SLURM_NNODES": "6", "SLURM_NTASKS": "12"}
    for name, value in inside.items():
        monkeypatch.setenv(name, value)
    whole = CliRunner().invoke(opsk, ["srun-options", "--", "train"]).stdout
    assert whole == "--distribution=arbitrary --nodelist=n0,n0,n2,n2,n4,n4,n1,n1,n3,n3,n5,n5\n"
    one = CliRunner().invoke(opsk, ["srun-options", "--", "--ntasks-per-node=1", "torchrun"]).stdout
    assert one == "--distribution=arbitrary --nodelist=n0,n2,n4,n1,n3,n5\n"
    less = CliRunner().invoke(opsk, ["srun-options", "--", "-l", "-N", "6", "--ntasks-per-node=1", "torchrun"]).stdout
    assert less == one.replace("\n", " 2,3\n")
    for doubtful in (["-N2", "-n4", "train"], ["-n", "3", "train"], ["-w", "n1", "train"]):
        assert CliRunner().invoke(opsk, ["srun-options", "--", *doubtful]).stdout == ""


def test_a_map_of_the_job_spares_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = use_job(monkeypatch)
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_NNODES": "2", "SLURM_NTASKS": "2"}
    for name, value in inside.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPSK_MAP", "opsk1 7 2 n0:0 n1:1")
    assert CliRunner().invoke(opsk, ["srun-options", "--", "train"]).stdout == ""
    assert slurm.asked == []
    monkeypatch.setenv("OPSK_MAP", "opsk1 7 2 n1:0 n0:1")
    assert "first node" in CliRunner().invoke(opsk, ["srun-options", "--", "train"]).stderr
