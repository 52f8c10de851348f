"""From a part that dies under a running job to the job on its new map: the event, the options, the first of them.

The lab's devices break for real as far as anybody can see: exporters tell it, nobody tells Slurm. The job says itself
which rank runs where.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from tests.fakes.settling import settle
from tests.integration.conftest import AT_ONCE, OLDEST_AND_NEWEST, RunningLab, Slurm, path_is

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(600), OLDEST_AND_NEWEST]

SHAPE = LabShape(nodes=8, gpus=2, hcas=2, leaves=4, spines=2)
"""Two units of four nodes; a leaf is one rail of a unit."""
JOB_NODES = 4
PLAN = """
gpus_per_node = 2
[model]
like = "llama-3-8b"
[plan]
tp = 2
dp = 4
sharding = "zero1"
sequence_parallel = true
micro_batch = 1
global_batch = 8
"""
CLUSTER = """
name = "lab"
nodes = 8
fabric = "rail-optimized"
leaves = 4
spines = 2
cores = 0
oversubscription = 4.0
nodes_per_unit = 4
[node]
like = "dgx-h100"
name = "lab-node"
nic = "hdr"
nics = 2
gpus = 2
hb_domain_gpus = 2
"""
"""As the lab is: two GPUs a node, each with an HCA of its own."""
DEADLINE_S = 60.0
SHOWS_WITHIN_S = 10.0
BODY = """
if [ -s {ranks} ]; then export SLURM_HOSTFILE={ranks}; arrange=--distribution=arbitrary; fi
srun $arrange bash -c '
    echo "start ${{SLURM_RESTART_COUNT:-0}} $SLURM_PROCID $SLURMD_NODENAME $SLURM_LOCALID"; sleep 600'
"""
Where = dict[int, tuple[str, int]]


@pytest.fixture(scope="module")
def watched_lab(slurm: Slurm) -> Iterator[RunningLab]:
    """Eight nodes, each with an exporter."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    with path_is(slurm.path):
        record, _ = up(top / "lab", shape=SHAPE, parts=("exporter",), progress=lambda _: None, exporters=SHAPE.nodes)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        environment = {
            **kept,
            "PATH": build_search_path(),
            "XDG_STATE_HOME": str(top / "state"),
            **build_slurm_environment(record),
        }
    lab = RunningLab(path=top / "lab", environment=environment)
    try:
        (top / "exporters").write_text(
            "".join(f"{node}=http://127.0.0.1:{port}/metrics\n" for node, port in record.exporter_ports.items())
        )
        (top / "plan.toml").write_text(PLAN)
        (top / "cluster.toml").write_text(CLUSTER)
        conf = lab.path / "etc" / "slurm.conf"
        conf.write_text(conf.read_text().replace("bf_interval=5", AT_ONCE))
        assert lab.run("scontrol", "reconfigure").returncode == 0
        settle(lab)
        yield lab
    finally:
        take_down(top / "lab", record)
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def job(watched_lab: RunningLab) -> Iterator[str]:
    """A job on n0 to n3 that says where its ranks are, again after each start."""
    top = watched_lab.path.parent
    (top / "ranks").unlink(missing_ok=True)
    submitted = watched_lab.run(
        "sbatch", "--parsable", f"-N{JOB_NODES}", "--nodelist=n[0-3]", "--ntasks-per-node=2", "--gpus-per-node=2",
        "--requeue", "--open-mode=append", "-t60", "-o", str(top / "out-%j"), "--wrap",
        BODY.format(ranks=top / "ranks"), cwd=top,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    number = submitted.stdout.strip()
    until(lambda: len(said(watched_lab, number, 0)), 2 * JOB_NODES)
    yield number
    watched_lab.run("scancel", number)
    watched_lab.opsk("lab", "repair", "--dir", str(watched_lab.path))
    drained = watched_lab.run("sinfo", "-h", "-N", "-t", "drain,drained,draining", "-o", "%N").stdout.split()
    if drained:
        watched_lab.run("scontrol", "update", f"nodename={','.join(sorted(set(drained)))}", "state=resume")
    settle(watched_lab)


def until(question: Callable[[], Any], wanted: Any, deadline_s: float = DEADLINE_S, *, pause_s: float = 0.2) -> None:
    end = time.monotonic() + deadline_s
    while (found := question()) != wanted:
        assert time.monotonic() < end, found
        time.sleep(pause_s)


def until_shown(lab: RunningLab, failed: str) -> dict[str, dict[str, Any]]:
    """Wait for an event; every look asks all exporters."""
    until(lambda: failed in shown_events(lab), True, SHOWS_WITHIN_S, pause_s=1.0)
    return shown_events(lab)


def said(lab: RunningLab, number: str, start: int) -> Where:
    """Return node and local rank of each rank, as the job itself printed them at its so-manieth start."""
    out = lab.path.parent / f"out-{number}"
    rows = [line.split() for line in out.read_text().splitlines()] if out.exists() else []
    return {int(row[2]): (row[3], int(row[4])) for row in rows if row[:2] == ["start", str(start)] and len(row) == 5}


def shown_events(lab: RunningLab) -> dict[str, dict[str, Any]]:
    answered = lab.opsk("events", "--exporters", str(lab.path.parent / "exporters"), "--json")
    assert answered.returncode in {0, 1}, answered.stderr
    return {event["failed"]: event for event in json.loads(answered.stdout)["events"]}


def new_events(found: Mapping[str, dict[str, Any]], old: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the events that are neither old ones, nor of nodes on which a test before has repaired something.

    An exporter looks for lost GPUs once a minute: until then, a GPU of a repaired domain shows alone.
    """
    repaired = {node for event in old.values() for node in event["nodes"]}
    return {
        failed for failed, event in found.items()
        if failed not in old and not (event["nodes"] and set(event["nodes"]) <= repaired)
    }  # fmt: skip


def broken(lab: RunningLab, number: str, failed: str, *what: str) -> dict[str, Any]:
    """Break something; return its event, which must show in time with the job that it hits, and no other beside it."""
    old = shown_events(lab)
    assert lab.opsk("lab", "break", *what, "--dir", str(lab.path)).returncode == 0
    found = until_shown(lab, failed)
    assert new_events(found, old) <= {failed}
    assert found[failed]["severity"] == "fatal"
    assert found[failed]["jobs"] == [int(number)]
    return found[failed]


def remap(lab: RunningLab, number: str, failed: str, *more: str) -> dict[str, Any]:
    top = lab.path.parent
    answered = lab.opsk(
        "remap", number, "--failed", failed, "--plan", str(top / "plan.toml"), "--cluster", str(top / "cluster.toml"),
        "--fabric",
        str(lab.path / "fabric.ibnetdiscover"), "--rank-file", str(top / "ranks"), "--json", *more, cwd=top,
    )  # fmt: skip
    assert answered.returncode == 0, json.loads(answered.stdout or "{}").get("applied", {}).get("said", answered.stderr)
    document = json.loads(answered.stdout)
    assert isinstance(document, dict)
    return document


def journal_of(lab: RunningLab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lab.opsk("remap", "--journal", "--json").stdout)["remaps"]
    return found


def apply_first(lab: RunningLab, number: str, failed: str) -> dict[str, Any]:
    """Apply the first option, and hold the plan against what the job then says of itself."""
    before = said(lab, number, 0)
    shown = remap(lab, number, failed, "--apply", "1", "--yes")
    option = shown["options"][0]
    assert option["way"] == "requeue", option["title"]
    assert shown["applied"]["refused"] is None, shown["applied"]
    planned = before | {move["rank"]: (move["to_node"], move["to_gpu"]) for move in option["moves"]}
    assert planned != before
    until(lambda: said(lab, number, 1), planned)
    assert lab.run("squeue", "-h", "-j", number, "-o", "%T").stdout.strip() == "RUNNING"
    return shown


def test_a_dead_gpu(watched_lab: RunningLab, job: str) -> None:
    assert not shown_events(watched_lab)
    event = broken(watched_lab, job, "gpu:n2/1", "gpu", "n2", "1")
    assert "XID 79" in event["text"]
    shown = apply_first(watched_lab, job, "gpu:n2/1")
    assert all(move["from_node"] == "n2" for move in shown["options"][0]["moves"])
    name = shown["applied"]["journal"]
    listed = [(row["id"], row["state"]) for row in journal_of(watched_lab) if row["job"] == job]
    assert listed == [(name, "applied")]
    undone = watched_lab.opsk("remap", "--undo", name, "--yes", "--json")
    assert json.loads(undone.stdout)["applied"]["done"] == ["scontrol update nodename=n2 state=resume"]


def test_a_whole_hb_domain(watched_lab: RunningLab, job: str) -> None:
    broken(watched_lab, job, "hb:n1", "domain", "n1")
    apply_first(watched_lab, job, "hb:n1")
    assert "n1" not in {node for node, _ in said(watched_lab, job, 1).values()}


def test_a_leaf(watched_lab: RunningLab, job: str) -> None:
    """Rail 0 of the first unit goes dark under all four nodes: the job moves to the other unit."""
    broken(watched_lab, job, "leaf:leaf0", "leaf", "leaf0")
    apply_first(watched_lab, job, "leaf:leaf0")
    assert {node for node, _ in said(watched_lab, job, 1).values()} == {f"n{number}" for number in range(4, 8)}


def test_a_nic(watched_lab: RunningLab, job: str) -> None:
    """It kills no GPU: its ranks go by another HCA of the node, slower, until another node takes over."""
    old = shown_events(watched_lab)
    assert watched_lab.opsk("lab", "break", "nic", "n3", "1", "--dir", str(watched_lab.path)).returncode == 0
    found = until_shown(watched_lab, "nic:n3/mlx5_1")
    assert new_events(found, old) <= {"nic:n3/mlx5_1"}
    assert found["nic:n3/mlx5_1"]["jobs"] == [int(job)]
    assert remap(watched_lab, job, "nic:n3/mlx5_1")["damage"]["degraded"]
    apply_first(watched_lab, job, "nic:n3/mlx5_1")
    assert "n3" not in {node for node, _ in said(watched_lab, job, 1).values()}


def test_killed_in_the_middle_it_is_gone_on_with(watched_lab: RunningLab, job: str) -> None:
    """SIGKILL as soon as the job has been requeued; nobody names its nodes, until opsk goes on."""
    top = watched_lab.path.parent
    before = said(watched_lab, job, 0)
    option = remap(watched_lab, job, "node:n3")["options"][0]
    words = [
        sys.executable, "-m", "opsk", "remap", job, "--failed", "node:n3", "--plan", str(top / "plan.toml"),
        "--cluster", str(top / "cluster.toml"), "--fabric", str(watched_lab.path / "fabric.ibnetdiscover"),
        "--rank-file", str(top / "ranks"), "--apply", "1", "--yes",
    ]  # fmt: skip
    applying = subprocess.Popen(words, env=dict(watched_lab.environment), cwd=top)
    journals = top / "state" / "opsk" / "remaps"
    until(
        lambda: any(
            '"number":1,"said"' in file.read_text() for file in journals.glob(f"{watched_lab.cluster}.{job}-*.jsonl")
        ),
        True,
    )
    applying.kill()
    applying.wait()
    (left,) = [row for row in journal_of(watched_lab) if row["job"] == job]
    assert left["state"] == "applying"
    gone_on = watched_lab.opsk("remap", "--resume", left["id"], "--yes", "--json")
    assert gone_on.returncode == 0, gone_on.stdout
    planned = before | {move["rank"]: (move["to_node"], move["to_gpu"]) for move in option["moves"]}
    until(lambda: said(watched_lab, job, 1), planned)
    assert not said(watched_lab, job, 2)


def test_an_option_of_a_world_that_has_changed_is_refused(watched_lab: RunningLab, job: str) -> None:
    option = remap(watched_lab, job, "gpu:n2/1")["options"][0]
    watched_lab.run("scontrol", "update", "nodename=n5", "state=drain", "reason=by hand")
    other = watched_lab.run(
        "scontrol", "update", f"nodename={option['moves'][0]['to_node']}", "state=drain", "reason=x"
    )
    assert other.returncode == 0
    top = watched_lab.path.parent
    answered = watched_lab.opsk(
        "remap", job, "--failed", "gpu:n2/1", "--plan", str(top / "plan.toml"), "--cluster", str(top / "cluster.toml"),
        "--fabric",
        str(watched_lab.path / "fabric.ibnetdiscover"), "--apply", "1", "--world", option["world"], "--yes", "--json",
    )  # fmt: skip
    assert answered.returncode == 3
    assert json.loads(answered.stdout)["applied"]["is_outdated"]
    assert watched_lab.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"


@pytest.fixture
def held_spare(watched_lab: RunningLab) -> Iterator[str]:
    """A job on n0 to n4 whose launcher uses four of them; it never leaves its nodes."""
    top = watched_lab.path.parent
    task = 'echo "start $OPSK_TEST_STARTS $RANK $SLURMD_NODENAME $LOCAL_RANK $MASTER_ADDR"; exec sleep 600'
    body = f"""
export OPSK_TEST_STARTS=0
{sys.executable} -m opsk launch --nodes 4 --grace 3 --wait 60 -- bash -c '{task}'
"""
    submitted = watched_lab.run(
        "sbatch", "--parsable", "-N5", "--nodelist=n[0-4]", "--ntasks-per-node=2", "--gpus-per-node=2", "-t60",
        "-o", str(top / "out-%j"), "--wrap", body, cwd=top,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    number = submitted.stdout.strip()
    until(lambda: len(launched(watched_lab, number)), 8)
    yield number
    watched_lab.run("scancel", number)
    watched_lab.opsk("lab", "repair", "--dir", str(watched_lab.path))
    watched_lab.run("scontrol", "update", "nodename=n1", "state=resume")
    settle(watched_lab)


def launched(lab: RunningLab, number: str, start: int = 0) -> list[list[str]]:
    """Return what each task of the so-manieth step printed: rank, node, local rank, master."""
    out = lab.path.parent / f"out-{number}"
    rows = [line.split() for line in out.read_text().splitlines()] if out.exists() else []
    tasks = [row[2:] for row in rows if row[0] == "start"]
    return sorted(tasks[8 * start : 8 * start + 8], key=lambda row: int(row[0]))


def test_a_spare_that_the_job_holds_takes_over_without_a_queue(watched_lab: RunningLab, held_spare: str) -> None:
    """The launcher tells where its ranks are, takes the new map, and MASTER_ADDR stays where rank 0 is."""
    job, top = held_spare, watched_lab.path.parent
    plan = PLAN.replace("global_batch = 8", "global_batch = 512")
    (top / "plan4.toml").write_text(plan)
    before = launched(watched_lab, job)
    assert [row[1] for row in before] == [f"n{rank // 2}" for rank in range(8)]
    broken(watched_lab, job, "gpu:n1/0", "gpu", "n1", "0")
    answered = watched_lab.opsk(
        "remap", job, "--failed", "gpu:n1/0", "--plan", str(top / "plan4.toml"),
        "--cluster", str(top / "cluster.toml"), "--fabric", str(watched_lab.path / "fabric.ibnetdiscover"),
        "--rank-file", str(top / "ranks"), "--apply", "1", "--yes", "--json", cwd=top,
    )  # fmt: skip
    document = json.loads(answered.stdout)
    option, applied = document["options"][0], document["applied"]
    assert (option["kind"], option["way"]) == ("spare_node", "relaunch")
    assert (answered.returncode, applied["refused"], applied["left"]) == (0, None, []), applied
    moved = {move["rank"]: move["to_node"] for move in option["moves"]}
    assert set(moved.values()) == {"n4"}
    until(lambda: len(launched(watched_lab, job, 1)), 8)
    after = launched(watched_lab, job, 1)
    assert [row[1] for row in after] == [moved.get(rank, row[1]) for rank, row in enumerate(before)]
    assert {row[3] for row in after} == {after[0][1]}
    assert watched_lab.run("squeue", "-h", "-j", job, "-o", "%T %N").stdout.split() == ["RUNNING", "n[0-4]"]


TORCHRUN = """#!/bin/bash
# Numbers ranks from its environment as torchrun does, and starts them.
for ((local = 0; local < PET_NPROC_PER_NODE; local++)); do
    rank=$((PET_NODE_RANK * PET_NPROC_PER_NODE + local))
    echo "torch $rank $SLURMD_NODENAME $local $PET_MASTER_ADDR:$PET_MASTER_PORT $((PET_NNODES * PET_NPROC_PER_NODE))"
done
exec sleep 600
"""


@pytest.fixture
def torchrun_job(watched_lab: RunningLab) -> Iterator[str]:
    """A job on n0 to n4 that uses four of them, with a torchrun on each."""
    top = watched_lab.path.parent
    (top / "torchrun").write_text(TORCHRUN)
    (top / "torchrun").chmod(0o755)
    body = f"{sys.executable} -m opsk launch --nodes 4 --per-node --grace 3 --wait 60 -- {top}/torchrun train.py"
    submitted = watched_lab.run(
        "sbatch", "--parsable", "-N5", "--nodelist=n[0-4]", "--ntasks-per-node=2", "--gpus-per-node=2", "-t60",
        "-o", str(top / "out-%j"), "--wrap", body, cwd=top,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    number = submitted.stdout.strip()
    until(lambda: len(torch_ranks(watched_lab, number)), 8)
    yield number
    watched_lab.run("scancel", number)
    watched_lab.opsk("lab", "repair", "--dir", str(watched_lab.path))
    watched_lab.run("scontrol", "update", "nodename=n0", "state=resume")
    settle(watched_lab)


def torch_ranks(lab: RunningLab, number: str) -> list[list[str]]:
    """Return what each start of torchrun said of its ranks: rank, node, local rank, master, size."""
    out = lab.path.parent / f"out-{number}"
    rows = [line.split() for line in out.read_text().splitlines()] if out.exists() else []
    return [row[1:] for row in rows if row[:1] == ["torch"] and len(row) == 6]


def test_torchrun_gets_another_master_when_the_node_of_rank_0_is_replaced(
    watched_lab: RunningLab, torchrun_job: str
) -> None:
    """Host file, MASTER_ADDR and node ranks follow the map, not SLURM_NODEID: the spare n4 is node rank 0 then."""
    job, top = torchrun_job, watched_lab.path.parent
    (top / "plan4.toml").write_text(PLAN.replace("global_batch = 8", "global_batch = 512"))
    before = sorted(torch_ranks(watched_lab, job), key=lambda row: int(row[0]))
    port = before[0][3].partition(":")[2]
    assert before == [[str(rank), f"n{rank // 2}", str(rank % 2), f"n0:{port}", "8"] for rank in range(8)]
    broken(watched_lab, job, "gpu:n0/1", "gpu", "n0", "1")
    answered = watched_lab.opsk(
        "remap", job, "--failed", "gpu:n0/1", "--plan", str(top / "plan4.toml"),
        "--cluster", str(top / "cluster.toml"), "--fabric", str(watched_lab.path / "fabric.ibnetdiscover"),
        "--rank-file", str(top / "ranks"), "--apply", "1", "--yes", "--json", cwd=top,
    )  # fmt: skip
    document = json.loads(answered.stdout)
    option = document["options"][0]
    assert (option["kind"], option["way"], answered.returncode) == ("spare_node", "relaunch", 0), document["applied"]
    moved = {move["rank"]: move["to_node"] for move in option["moves"]}
    assert moved == {0: "n4", 1: "n4"}
    until(lambda: len(torch_ranks(watched_lab, job)), 16)
    after = sorted(torch_ranks(watched_lab, job)[8:], key=lambda row: int(row[0]))
    assert after == [[*row[:1], moved.get(rank, row[1]), row[2], f"n4:{port}", "8"] for rank, row in enumerate(before)]
    assert watched_lab.run("squeue", "-h", "-j", job, "-o", "%T %N").stdout.split() == ["RUNNING", "n[0-4]"]
