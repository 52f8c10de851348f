"""Does the TaskProlog read a map as opsk wrote it, and is it silent and status 0 otherwise?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from opsk.planning.placement.rank_map import NodeRanks, RankMap
from tests.opsk.planning.placement.test_rank_map import maps

WHOLE = RankMap(
    job=7, nodes=(NodeRanks(node="n3", ranks=(0, 1)), NodeRanks(node="n1", ranks=(2, 3), gpus=(1, 0)))
).render()
TASK = {
    "OPSK_PLACE": "1", "OPSK_MAP": WHOLE, "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURMD_NODENAME": "n1", "SLURM_LOCALID": "1",
}  # fmt: skip


@pytest.fixture
def prolog(root: Path) -> Path:
    return root / "deploy" / "slurm" / "opsk-task-prolog"


def said(prolog: Path, environ: dict[str, str]) -> dict[str, str]:
    """Run it as Slurm does, and return what it exports."""
    done = subprocess.run(
        [str(prolog)], env={"PATH": os.defpath, **environ}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
    assert all(line.startswith("export ") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines}


def test_a_task_is_told_its_rank(prolog: Path) -> None:
    """Local rank 1 of n1, which holds ranks 2 and 3 and is the second of two nodes; port 15000 + job id."""
    assert said(prolog, TASK) == {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "MASTER_ADDR": "n3",
        "MASTER_PORT": "15007", "OPSK_RANK": "3", "OPSK_NODE_RANK": "1",
    }  # fmt: skip


def test_a_task_that_starts_the_others_is_told_its_nodes_rank(prolog: Path) -> None:
    exported = said(prolog, {**TASK, "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"})
    assert "RANK" not in exported
    assert exported["NODE_RANK"] == "1"


def test_what_the_script_has_set_stays(prolog: Path) -> None:
    own = {"RANK": "9", "LOCAL_RANK": "9", "WORLD_SIZE": "9", "MASTER_ADDR": "x", "MASTER_PORT": "1", "NODE_RANK": "9"}
    assert said(prolog, TASK | own) == {"OPSK_RANK": "3", "OPSK_NODE_RANK": "1"}


def test_gpus_change_places_for_a_task_that_sees_them_all(prolog: Path) -> None:
    assert said(prolog, {**TASK, "CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert "CUDA_VISIBLE_DEVICES" not in said(prolog, {**TASK, "CUDA_VISIBLE_DEVICES": "1"})
    assert "CUDA_VISIBLE_DEVICES" not in said(prolog, {**TASK, "CUDA_VISIBLE_DEVICES": "4,5"})


@pytest.mark.parametrize(
    "changes",
    [
        {"OPSK_PLACE": "0"},
        {"OPSK_PLACE": ""},
        {"OPSK_MAP": ""},
        {"OPSK_MAP": "opsk2 7 4 n1:0-3"},
        {"OPSK_MAP": "rm -rf *"},
        {"SLURM_JOB_ID": "8"},
        {"SLURM_JOB_NUM_NODES": "1"},
        {"SLURM_STEP_NUM_NODES": "1"},
        {"SLURM_STEP_NUM_TASKS": "3"},
        {"SLURM_STEP_NUM_TASKS": "two"},
        {"SLURM_LOCALID": "2"},
        {"SLURMD_NODENAME": "n9"},
    ],
)
def test_on_any_doubt_it_is_silent(prolog: Path, changes: dict[str, str]) -> None:
    assert said(prolog, TASK | changes) == {}


def test_ranks_that_no_launcher_on_a_node_could_number_are_left_out(prolog: Path) -> None:
    mixed = RankMap(job=7, nodes=(NodeRanks(node="n3", ranks=(0, 2)), NodeRanks(node="n1", ranks=(1, 3)))).render()
    assert said(prolog, {**TASK, "OPSK_MAP": mixed, "SLURM_STEP_NUM_TASKS": "2"}) == {}
    assert said(prolog, {**TASK, "OPSK_MAP": mixed})["RANK"] == "3"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=maps())
def test_every_task_finds_the_rank_that_the_map_gives_it(prolog: Path, written: RankMap) -> None:
    node = written.nodes[-1]
    count = str(len(written.nodes))
    environ = {
        **TASK, "OPSK_MAP": written.render(), "SLURM_JOB_ID": str(written.job), "SLURM_STEP_NUM_NODES": count,
        "SLURM_STEP_NUM_TASKS": str(written.world_size), "SLURMD_NODENAME": node.node,
        "SLURM_LOCALID": str(len(node.ranks) - 1),
    }  # fmt: skip
    exported = said(prolog, environ)
    assert (exported["RANK"], exported["MASTER_ADDR"]) == (str(node.ranks[-1]), written.names[0])


@pytest.mark.parametrize("step", ["", "-5", "4294967291"])
def test_the_batch_script_is_known_in_every_release(prolog: Path, tmp_path: Path, step: str) -> None:
    """Measured: 22.05 and 24.11 have no SLURM_STEP_ID there, 26.05 has -5."""
    command = tmp_path / "opsk"
    command.write_text("#!/bin/sh\necho export OPSK_MAP=$*\n")
    command.chmod(0o755)
    environ = {**TASK, "SLURM_STEP_ID": step, "OPSK_COMMAND": str(command)}
    assert said(prolog, environ) == {"OPSK_MAP": "place --job 7 --launch task-prolog"}


@pytest.mark.parametrize("opsk", ["exit 2", "kill -9 $$", "echo 'export OPSK_MAP=x'; exit 1"])
def test_a_batch_script_starts_whatever_opsk_does(prolog: Path, tmp_path: Path, opsk: str) -> None:
    command = tmp_path / "opsk"
    command.write_text(f"#!/bin/sh\n{opsk}\n")
    command.chmod(0o755)
    batch = {name: value for name, value in TASK.items() if name not in ("SLURM_STEP_ID", "OPSK_MAP")}
    assert said(prolog, {**batch, "OPSK_COMMAND": str(command)}) in ({}, {"OPSK_MAP": "x"})
