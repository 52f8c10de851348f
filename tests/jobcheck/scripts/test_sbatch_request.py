"""Tests that the command line and the environment of sbatch override the script, in sbatch's order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.sbatch_request import ENVIRONMENT, build_typed_request


def test_options_are_read_as_sbatch_reads_them() -> None:
    requested = build_typed_request(["-N4", "--gpus-per-node", "h100:8", "-pgpu", "--ntasks-per-node=1"], {})
    assert (
        requested.nodes,
        requested.gpus_per_node,
        requested.gpu_type,
        requested.partition,
    ) == (4, 8, "h100", "gpu")
    assert requested.ntasks_per_node == 1


def test_the_environment_counts() -> None:
    requested = build_typed_request([], {"SBATCH_GPUS_PER_NODE": "4", "SBATCH_PARTITION": "gpu", "HOME": "/root"})
    assert (requested.gpus_per_node, requested.partition) == (4, "gpu")


def test_the_command_line_beats_the_environment() -> None:
    requested = build_typed_request(["--partition=own"], {"SBATCH_PARTITION": "inherited"})
    assert requested.partition == "own"


def test_nodes_that_are_given_apart_beat_all() -> None:
    assert build_typed_request(["--nodes=2"], {}, nodes=4).nodes == 4


@pytest.mark.parametrize("variable", ["SLURM_NNODES", "SLURM_GPUS", "SALLOC_GPUS", "SBATCH_NODES"])
def test_variables_that_sbatch_does_not_read_do_not_count(variable: str) -> None:
    assert build_typed_request([], {variable: "4"}) == build_typed_request([], {})


def test_an_empty_variable_is_none() -> None:
    assert build_typed_request([], {"SBATCH_GPUS": ""}).gpus is None


@given(words=st.lists(st.text(max_size=20), max_size=6), value=st.text(max_size=20))
def test_nothing_that_is_typed_raises(words: list[str], value: str) -> None:
    build_typed_request(words, dict.fromkeys(ENVIRONMENT, value))
