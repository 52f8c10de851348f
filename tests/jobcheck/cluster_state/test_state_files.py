"""A state goes through a file and comes out the same, for every process that numbers links alike."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opsk.config import SiteConfig, StorageConfig
from opsk.planning.interference.contention import interference
from opsk.planning.interference.load import default_load, job_shape
from opsk.planning.placement.step_model import DENSE
from opsk.workload.plan import Plan
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.placement import PlacementAdvice
from opsk_jobcheck.advice.recipe_cache import RecipeCache
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES
from opsk_jobcheck.cluster_state.state import LiveReader, LiveState, LiveWriter, fingerprint
from opsk_jobcheck.cluster_state.state_header import LiveHead
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.watcher import StateBuilder
from tests.fakes.live_cluster import CountingSlurm, round_of, small_adviser, training_job

JOBS = (training_job(7, ["n0", "n4", "n8", "n12"]), training_job(8, ["n1", "n5"]), training_job(9, ["n2"]))
TRAINS = (
    "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 "
    "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 128 --vocab-size 50257 --train-iters 1 --use-distributed-optimizer\n"
)


class Clock:
    """A clock that stands."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def adviser() -> Adviser:
    return small_adviser(spines=1)


@pytest.fixture(scope="module")
def state(adviser: Adviser) -> LiveState:
    return StateBuilder(SiteConfig(storage=StorageConfig(job_read_bytes_per_s=1e9)), adviser, CountingSlurm()).state(
        round_of(*JOBS, n15=("DRAIN",))
    )


def handed(folder: Path, adviser: Adviser, state: LiveState, clock: Clock) -> LiveReader:
    assert adviser.fabric_links is not None
    LiveWriter(folder, fingerprint(adviser.fabric_links)).write(state, queried_at_s=90.0)
    return LiveReader(folder, clock, fingerprint(adviser.fabric_links))


def test_all_that_advice_needs_comes_through(tmp_path: Path, adviser: Adviser, state: LiveState) -> None:
    read = handed(tmp_path, adviser, state, Clock()).state()
    assert read is not None
    assert read.age_s == 10.0
    assert sorted(read.nodes, key=lambda node: node.name) == sorted(state.nodes, key=lambda node: node.name)
    assert (read.running, read.source, read.topology) == (3, "Slurm 22.05", "tree")
    assert (read.default_partition, read.min_nodes) == ("gpu", {"big": 4})
    assert read.partitions == state.partitions != {}
    assert read.around == state.around
    assert state.wire is not None
    assert read.wire is not None
    assert set(read.wire.jobs) == {"7", "8", "9"}
    assert read.wire.jobs["7"].nodes == JOBS[0].nodes
    assert (read.wire.known_as, read.wire.assumed) == (dict(state.wire.known_as), state.wire.assumed)
    np.testing.assert_array_equal(read.wire.running.present, state.wire.running.present)
    assert [load.nodes for load in read.wire.running.loads] == [load.nodes for load in state.wire.running.loads]


def test_a_candidate_meets_the_same_on_both_sides(tmp_path: Path, adviser: Adviser, state: LiveState) -> None:
    read = handed(tmp_path, adviser, state, Clock()).state()
    assert read is not None
    assert read.wire is not None
    assert state.wire is not None
    assert adviser.fabric_links is not None
    shape = job_shape(DENSE, Plan(tp=8, dp=4, global_batch=16), 8)
    candidate = default_load("candidate", adviser.fabric_links, shape, ["n3", "n7", "n11", "n13"])
    ours, theirs = (interference(candidate, wire.running) for wire in (state.wire, read.wire))
    assert ours.step_s == theirs.step_s > ours.alone_s
    assert [(one.load.name, one.slowdown_of_job, one.links) for one in ours.neighbours] == [
        (one.load.name, one.slowdown_of_job, one.links) for one in theirs.neighbours
    ]


def test_a_state_whose_links_are_numbered_otherwise_is_not_used(
    tmp_path: Path, adviser: Adviser, state: LiveState
) -> None:
    handed(tmp_path, adviser, state, Clock())
    other = small_adviser(spines=2)
    assert other.fabric_links is not None
    assert LiveReader(tmp_path, Clock(), fingerprint(other.fabric_links)).state() is None


def test_the_generation_changes_with_what_is_known_and_not_with_time(
    tmp_path: Path, adviser: Adviser, state: LiveState
) -> None:
    assert adviser.fabric_links is not None
    head, clock = LiveHead(tmp_path, Clock()), Clock()
    assert (head.generation(), head.age_s()) == ("", None)
    writer = LiveWriter(tmp_path, fingerprint(adviser.fabric_links))
    writer.write(state, queried_at_s=90.0)
    first = head.generation()
    writer.write(replace(state), queried_at_s=95.0)
    assert (head.generation(), head.age_s()) == (first, 5.0)
    reader = LiveReader(tmp_path, clock, fingerprint(adviser.fabric_links))
    old = reader.state()
    writer.write(replace(state, running=2), queried_at_s=99.0)
    assert head.generation() != first
    assert head.age_s() == 1.0
    new = reader.state()
    assert old is not None
    assert new is not None
    assert (old.running, new.running) == (3, 2)
    # what was read from the file that is gone can still be used
    assert old.wire is not None
    assert old.wire.running.present.sum() > 0
    assert len(list(tmp_path.glob("state-*"))) == 1


def test_a_state_without_loads_comes_through(tmp_path: Path, adviser: Adviser, state: LiveState) -> None:
    read = handed(tmp_path, adviser, replace(state, wire=None), Clock()).state()
    assert read is not None
    assert read.wire is None


def test_an_empty_folder_and_a_damaged_file_are_no_state(tmp_path: Path) -> None:
    reader = LiveReader(tmp_path, Clock(), "")
    assert reader.state() is None
    (tmp_path / "state-1").write_bytes(b"something else")
    (tmp_path / "current").symlink_to("state-1")
    assert reader.state() is None


def test_two_processes_number_the_links_of_a_fabric_alike(adviser: Adviser, root: Path) -> None:
    program = (
        "from tests.fakes.live_cluster import small_adviser\n"
        "from opsk_jobcheck.cluster_state.state import fingerprint\n"
        "print(fingerprint(small_adviser(spines=1).fabric_links))"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert adviser.fabric_links is not None
    assert said.stdout.strip() == fingerprint(adviser.fabric_links)


def test_what_was_placed_before_holds_no_file_of_the_state_that_it_was_placed_with(
    tmp_path: Path, adviser: Adviser
) -> None:
    """A state is some megabytes of memory while anybody maps it, and a generation comes every few seconds."""
    assert adviser.fabric_links is not None
    watch, cached = StateBuilder(SiteConfig(), adviser, CountingSlurm()), replace(adviser, cache=RecipeCache())
    writer, reader = LiveWriter(tmp_path, fingerprint(adviser.fabric_links)), LiveReader(tmp_path, Clock(), "")
    workload = read_script(TRAINS, file="job.sh", request=SlurmRequest(nodes=2))
    for number in range(6):
        writer.write(watch.state(round_of(training_job(number, ["n0", "n4"]))), queried_at_s=90.0)
        state = reader.state()
        advice = replace(cached, live=state).advise(workload, ANY_NODES)
        assert advice.placement.live is state
        assert advice.placement.sharing is not None
    assert cached.cache is not None
    assert cached.cache.count(PlacementAdvice) == 6
    del state, advice
    assert len([name for name in mapped_files() if name.startswith(str(tmp_path))]) == 1


def mapped_files() -> list[str]:
    """Return the files that this process maps or has open, those too that are removed."""
    rows = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return [row[5] for row in rows if len(row) == 6]
