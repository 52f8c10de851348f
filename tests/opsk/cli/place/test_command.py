from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.cli.place import command as place_module
from opsk.errors import InputError, OpskError, PlanInfeasibleError, SlurmError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.slurm.records import JobRecord
from tests.fakes.small_plans import small_plan

PLAN = small_plan(gpus_per_node=8, tp=8, dp=2, global_batch=4)


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Eight nodes of 8 HCAs under two units of four, as ibnetdiscover shows them."""
    path = tmp_path / "fabric.ibnetdiscover"
    path.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=8, hcas=8, leaves=16, spines=4)))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, ["place", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def refusal(*arguments: str) -> OpskError:
    error = run(*arguments).exception
    assert isinstance(error, OpskError)
    return error


class FakeSlurm:
    """Stands for a cluster that knows one job."""

    def __init__(self, job: JobRecord | None) -> None:
        self._job = job

    def release(self) -> tuple[int, int]:
        return 22, 5

    def job(self, job_id: str) -> JobRecord:
        if self._job is None:
            raise SlurmError("squeue did not answer within 10 s")
        assert job_id == self._job.label
        return self._job


def use_job(monkeypatch: pytest.MonkeyPatch, job: JobRecord | None) -> None:
    monkeypatch.setattr(place_module, "slurm_client", lambda: FakeSlurm(job))


def running(**changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": 7, "label": "7", "user": "u", "name": "train", "state": "RUNNING", "nodes": ("n5", "n4"), "gpus": 16,
        "gpus_per_node": 8,
    }  # fmt: skip
    return JobRecord(**(values | changes))


def test_json_has_the_keys_that_programs_rely_on(plan_file: str, dump: str) -> None:
    document = answer(plan_file, "--nodes", "n[0-1]", "--fabric", dump)
    keys = {"ranks", "rail_local_fraction", "leaf_local_fraction", "max_link_load", "versus_default", "rank_file"}
    assert keys | {"nccl_env", "slurm_flags"} <= document.keys()
    assert document["versus_default"].keys() >= {"rail_local_fraction", "leaf_local_fraction", "max_link_load"}
    assert [rank["rank"] for rank in document["ranks"]] == list(range(16))
    assert document["ranks"][15] | {"leaf": ""} == {
        "rank": 15, "node": "n1", "local_rank": 7, "gpu": 7, "device": "mlx5_7", "rail": 7, "leaf": "", "tp_rank": 7,
        "pp_rank": 0, "cp_rank": 0, "dp_rank": 1,
    }  # fmt: skip


def test_the_default_order_is_told_apart_where_it_is_worse(plan_file: str, dump: str) -> None:
    """Nodes n3 and n4 are in different units, n4 and n5 in one: all of the ring leaves its leaf by default."""
    document = answer(plan_file, "--nodes", "n[3-5]", "--fabric", dump)
    assert (document["nodes"], document["spare_nodes"]) == (["n4", "n5"], ["n3"])
    assert (document["leaf_local_fraction"], document["versus_default"]["leaf_local_fraction"]) == (1.0, 0.0)
    assert document["versus_default"]["difference"]["leaf_local_fraction"] == 1.0
    assert document["max_link_load"] == 0 < document["versus_default"]["max_link_load"]


def test_without_nodes_the_whole_fabric_is_a_candidate(plan_file: str, dump: str) -> None:
    assert len(answer(plan_file, "--fabric", dump)["spare_nodes"]) == 6


def test_the_picture_fits_eighty_columns(plan_file: str, dump: str) -> None:
    result = run(plan_file, "--nodes", "n[3-5]", "--fabric", dump)
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if dump not in line) <= 80
    assert "n4" in result.stdout
    assert any(line.split() == ["rail", *map(str, range(8))] for line in lines)


def test_a_design_stands_in_for_a_dump_and_is_told(plan_file: str) -> None:
    document = answer(plan_file, "--nodes", "n[0-1]", "--cluster", "superpod-h100")
    assert document["assumed"][0]["field"] == "fabric"
    assert document["rail_local_fraction"] == 1.0
    assert "NCCL_IB_HCA" not in {setting["name"] for setting in document["nccl_env"]}


@pytest.mark.parametrize(("cluster", "nodes"), [("superpod-h100", 300), ("superpod-a100", 150), ("superpod-gb200", 20)])
def test_a_design_is_as_large_as_its_nodes_ask_for(plan_file: str, cluster: str, nodes: int) -> None:
    """More nodes than a spine has ports for make several pods; a unit of 144 nodes has several leaves a rail."""
    document = answer(plan_file, "--nodes", f"n[1-{nodes}]", "--cluster", cluster, "--gpus-per-node", "4")
    assert len(document["nodes"]) == 4
    assert not document["problems"]


def test_a_designs_hb_domains_are_the_catalogues(plan_file: str) -> None:
    """A GB200 NVL72 has 18 nodes of 4 GPUs in one domain: tp 8 over two nodes stays inside."""
    document = answer(plan_file, "--nodes", "n[1-18]", "--cluster", "gb200-nvl72", "--gpus-per-node", "4")
    assert document["inter_node_bytes"] == 0


def test_the_rank_file_is_written_where_asked(plan_file: str, dump: str, tmp_path: Path) -> None:
    path = tmp_path / "ranks"
    run(plan_file, "--nodes", "n[4-5]", "--fabric", dump, "--rank-file", str(path))
    assert path.read_text().split() == ["n4"] * 8 + ["n5"] * 8


def test_a_job_is_placed_on_the_nodes_that_slurm_gave_it(
    monkeypatch: pytest.MonkeyPatch, plan_file: str, dump: str
) -> None:
    use_job(monkeypatch, running())
    document = answer(plan_file, "--job", "7", "--fabric", dump)
    assert document["job"] == "7"
    assert document["nodes"] == ["n5", "n4"]


def test_a_jobs_plan_is_read_from_its_record(monkeypatch: pytest.MonkeyPatch, dump: str) -> None:
    use_job(monkeypatch, running(admin_comment="opsk:v1 verdict=fits tp=8 pp=1 dp=2"))
    document = answer("--job", "7", "--fabric", dump)
    assert (document["plan"]["tp"], document["plan"]["dp"], len(document["ranks"])) == (8, 2, 16)
    assert {item["field"] for item in document["assumed"]} == {"model", "plan.global_batch"}


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (running(), "has no plan"),
        (running(admin_comment="opsk:v1 verdict=unknown"), "has no plan"),
        (running(comment="opsk:v1 verdict=fits tp=8 pp=1 dp=2"), "has no plan"),
        (running(admin_comment="opsk:v1 verdict=fits tp=8 pp=1 dp=2", state="PENDING", nodes=()), "has no nodes"),
        (running(admin_comment="opsk:v1 verdict=fits tp=8 pp=1 dp=2", gpus_per_node=None), "unevenly"),
    ],
)
def test_a_job_that_cannot_be_placed_says_why(
    monkeypatch: pytest.MonkeyPatch, dump: str, job: JobRecord, says: str
) -> None:
    use_job(monkeypatch, job)
    error = refusal("--job", "7", "--fabric", dump)
    assert isinstance(error, InputError)
    assert says in error.message
    assert error.hint


def test_slurm_down_is_exit_status_3(monkeypatch: pytest.MonkeyPatch, plan_file: str, dump: str) -> None:
    use_job(monkeypatch, None)
    assert refusal(plan_file, "--job", "7", "--fabric", dump).exit_status == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nodes", "n[0-1]"), "no fabric"),
        (("--nodes", "n[0-1]", "--cluster", "summit"), "cannot derive its cables"),
        (("--cluster", "superpod-h100"), "no nodes are given"),
        (("--nodes", ""), "--nodes is empty"),
        (("--nodes", "n[0-"), "brackets"),
    ],
)
def test_what_is_missing_is_named(plan_file: str, arguments: tuple[str, ...], says: str) -> None:
    error = refusal(plan_file, *arguments)
    assert says in error.message
    assert error.exit_status == 2


def test_nodes_that_are_too_few_are_refused(plan_file: str, dump: str) -> None:
    error = refusal(plan_file, "--nodes", "n0", "--fabric", dump)
    assert isinstance(error, PlanInfeasibleError)
    assert "needs 16 GPUs" in error.message


def test_an_unreadable_dump_is_one_line_that_names_it(plan_file: str, tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(bytes(range(256)) * 4)
    assert str(path) in refusal(plan_file, "--nodes", "n0", "--fabric", str(path)).message


def test_names_in_a_dump_cannot_steer_the_terminal(plan_file: str, dump: str) -> None:
    text = Path(dump).read_text().replace('"leaf0"', '"leaf\x1b[31m0"').replace("spine0", "spine\x1b[2J0")
    Path(dump).write_text(text)
    result = run(plan_file, "--nodes", "n[0,4]", "--fabric", dump)
    assert result.exception is None
    assert "\x1b" not in result.stdout
