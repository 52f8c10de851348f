"""Is a link that fails in the middle of a training of several nodes named, with its node and rank?

Each message of NCCL, CUDA, UCX, libfabric, MPI, DCGM and the Fabric Manager in `tests.fakes.hard_logs` stands in a
whole log: NCCL's own beginning, steps, what the other ranks say of it, and the launcher's report.
"""

from __future__ import annotations

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Report
from tests.fakes.hard_logs.laying import LINK_MESSAGES, HardLog, lay_link_failure


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[HardLog, Report]]:
    folder = tmp_path_factory.mktemp("links")
    laid = [lay_link_failure(seed, folder / str(seed)) for seed in range(len(LINK_MESSAGES))]
    return [(each, explain(read_logs([LogFile(path=path) for path in each.paths], processes=1))) for each in laid]


def test_every_link_that_failed_is_named(judged: list[tuple[HardLog, Report]]) -> None:
    wrong = [
        LINK_MESSAGES[number][1]
        for number, (laid, report) in enumerate(judged)
        if report.root is None or report.root.failure.value != laid.failure
    ]
    assert wrong == []


def test_the_node_is_named_where_the_message_or_a_label_tells_it(judged: list[tuple[HardLog, Report]]) -> None:
    right = [report.root is not None and report.root.where.node == laid.node for laid, report in judged if laid.node]
    assert len(right) > 40
    assert sum(right) >= 0.97 * len(right)


def test_the_rank_is_named_where_a_label_or_the_gpu_of_a_rank_tells_it(judged: list[tuple[HardLog, Report]]) -> None:
    ranked = [(laid.rank, report.root) for laid, report in judged if laid.rank is not None]
    right = [root is not None and root.where.rank == rank for rank, root in ranked]
    assert len(right) > 15
    assert sum(right) >= 0.97 * len(right)
