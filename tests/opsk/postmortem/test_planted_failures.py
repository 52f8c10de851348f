"""Of failures that were planted, are class and place found, and is the confidence honest?

200 failures (issue 9: class >= 97 %, place >= 95 %), 150 whose wordings were held out from the signatures, 150
that lost what tells of the cause, and healthy jobs. Seeds from 5000 on were never looked at while rules were written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Cause, JobFacts, Report
from tests.fakes.planted_failures import Planted, Truth, plant, plant_healthy

FIRST = 5000


@dataclass(frozen=True)
class Judged:
    """What was said of one planted failure."""

    seed: int
    truth: Truth
    report: Report

    @property
    def right_class(self) -> bool:
        return self.report.root is not None and self.report.root.failure.value == self.truth.failure

    @property
    def right_place(self) -> bool:
        """Every part of the place that was planted is named; what concerns the whole job names no rank and node."""
        root, truth = self.report.root, self.truth
        if root is None:
            return False
        said = root.where
        if truth.is_job_wide:
            return said.rank is None and (not said.node or truth.nodes == 1)
        is_rank = truth.rank is None or said.rank == truth.rank or bool(truth.pci and said.pci.startswith(truth.pci))
        is_port = not truth.hca or said.hca in (truth.hca, truth.netdev)
        return is_rank and is_port and (not truth.node or said.node == truth.node)

    @property
    def confidence(self) -> float:
        return self.report.root.confidence if self.report.root is not None else 0.0


def is_bare_exception(root: Cause) -> bool:
    """Nothing is missing then: only the owner of the program can say more."""
    return {finding.signature for finding in root.findings} == {"python.exception"}


def explained(planted: Planted) -> Report:
    """Read and explain a planted job as the command does."""
    logs = [LogFile(path=path) for path in planted.logs]
    logs += [LogFile(path=path, kind="kernel", node=node) for node, path in planted.kernel_logs]
    evidence = read_logs(logs, processes=1)
    if planted.job is not None:
        evidence = replace(
            evidence,
            job=JobFacts(**planted.job),  # type: ignore[arg-type]
            gathered={**evidence.gathered, "sacct": "one record"},
        )
    return explain(evidence)


def judged(folder: Path, count: int, **how: bool) -> list[Judged]:
    found = []
    for seed in range(FIRST, FIRST + count):
        planted = plant(seed, folder / str(seed), **how)
        assert planted.truth is not None
        found.append(Judged(seed, planted.truth, explained(planted)))
    return found


def share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def wrong(found: Sequence[Judged], *, place: bool = False) -> str:
    """Name what was not found, so that a failing test says more than a number."""
    bad = [each for each in found if not (each.right_place if place else each.right_class)]
    return "; ".join(
        f"{each.seed} {each.truth.failure}/{each.truth.wording}: {each.report.root and each.report.root.what}"
        for each in bad
    )


@pytest.fixture(scope="module")
def open_ones(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    return judged(tmp_path_factory.mktemp("open"), 100)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    return judged(tmp_path_factory.mktemp("held"), 80, held_out=True)


@pytest.fixture(scope="module")
def robbed(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    return judged(tmp_path_factory.mktemp("robbed"), 80, loses_cause=True)


def test_every_class_is_planted(open_ones: list[Judged]) -> None:
    assert len({each.truth.failure for each in open_ones}) == 15


def test_the_class_is_right(open_ones: list[Judged]) -> None:
    assert share([each.right_class for each in open_ones]) >= 0.97, wrong(open_ones)


def test_the_place_is_right(open_ones: list[Judged]) -> None:
    assert share([each.right_place for each in open_ones]) >= 0.95, wrong(open_ones, place=True)


def test_wordings_that_were_held_out_are_told_apart_nearly_as_well(
    held_out: list[Judged], capsys: pytest.CaptureFixture[str]
) -> None:
    classes, places = (share([getattr(e, name) for e in held_out]) for name in ("right_class", "right_place"))
    with capsys.disabled():
        print(f" held-out wordings: class {classes:.1%}, place {places:.1%} ", end="")
    assert classes >= 0.85, wrong(held_out)
    assert places >= 0.85, wrong(held_out, place=True)


def test_confidence_is_honest(open_ones: list[Judged], robbed: list[Judged], held_out: list[Judged]) -> None:
    """What is said with 90 % is right nine times in ten or more, and what is said with less is right less often.

    All three kinds together: where the cause's own words are gone, symptoms are left, and confidence must say so.
    """
    bins: dict[str, list[bool]] = defaultdict(list)
    for each in (*open_ones, *robbed, *held_out):
        if each.report.root is not None:
            low = each.confidence < 0.7
            bins["below 70 %" if low else "70 to 90 %" if each.confidence < 0.9 else "90 % and more"].append(
                each.right_class
            )
    assert share(bins["90 % and more"]) >= 0.93
    assert share(bins["below 70 %"]) < share(bins["90 % and more"])
    assert share(bins["below 70 %"]) <= 0.8


def test_where_the_cause_left_nothing_no_confidence_is_shown(robbed: list[Judged]) -> None:
    mistaken = [each.confidence for each in robbed if each.report.root is not None and not each.right_class]
    assert sum(confidence >= 0.9 for confidence in mistaken) <= 0.05 * len(robbed)
    assert not mistaken or sum(mistaken) / len(mistaken) <= 0.65


def test_it_says_what_is_missing_where_the_cause_left_nothing(robbed: list[Judged]) -> None:
    unsure = [
        each
        for each in robbed
        if each.report.root is not None and each.confidence < 0.7 and not is_bare_exception(each.report.root)
    ]
    assert unsure
    assert all(each.report.missing for each in unsure)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 45))
def test_a_healthy_job_has_no_cause(seed: int, tmp_path: Path) -> None:
    report = explained(plant_healthy(seed, tmp_path))
    assert report.root is None, (report.root and report.root.what, report.state)
