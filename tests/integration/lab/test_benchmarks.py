"""Do the benchmarks on a real slurmctld run, and give the figures that the page wants? In small; nothing is timed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from benchmarks.found import Found, arguments
from benchmarks.jobcheck import submissions
from benchmarks.monitoring import lab_up, slurm_poll
from tests.benchmarks.test_short_forms import assert_whole
from tests.fakes.advised_lab import QUICK
from tests.fakes.storms import StormLab, storm_lab
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]


def test_a_lab_comes_up_for_it(lab_programs: None) -> None:
    assert_whole("lab_up", asdict(lab_up.measure(arguments(None).parse_args(["--short"]))))


@pytest.fixture(scope="module")
def storms(lab_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StormLab]:
    """A lab for both, one after the other."""
    with storm_lab(tmp_path_factory.mktemp("benchmarks") / "lab", QUICK) as lab:
        yield lab


@pytest.mark.parametrize(
    ("name", "measure", "parser"),
    [
        ("submissions", submissions.measure_lab, submissions.parser()),
        ("slurm_poll", slurm_poll.measure_lab, arguments(None)),
    ],
)
def test_it_gives_what_the_page_wants(
    name: str,
    measure: Callable[[StormLab, argparse.Namespace], Found],
    parser: argparse.ArgumentParser,
    storms: StormLab,
) -> None:
    assert_whole(name, asdict(measure(storms, parser.parse_args(["--short"]))))
