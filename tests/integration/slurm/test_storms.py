"""On a real slurmctld: whatever befalls the advisor, is every submission accepted, and slurmctld not held up?

`benchmarks/jobcheck/submissions.py` does the same with 2,000 submissions and measures. Times here are inside slurmctld,
as ``sdiag`` has them; bounds are wide enough for a machine that does much else.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from opsk.config import load_site
from opsk.lab.parts import ADVISOR, list_parts
from tests.fakes.advised_lab import QUICK
from tests.fakes.storms import CASES, HEALTHY, StormLab, restarted, storm_lab
from tests.integration.conftest import OLDEST_AND_NEWEST, Slurm
from tests.integration.releases.roots import INSTALLED

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600), OLDEST_AND_NEWEST]

SUBMISSIONS, FEW = 100, 30
"""In all cases together of this machine's Slurm one after the other; of each other release."""
CLIENTS = 8
TRAINING = 0.2
SAMPLED = 9
UNTIL_OPEN = 4
"""Three failures open the circuit breaker; one more is for a hook that slurmctld reads anew."""
SLACK_MS = 60.0
"""What a machine that does other things as well may add to most submissions."""
MOST_MS = 1000.0
"""What no submission waits, whatever the machine does."""
SLACK_OF_SHORTEST_MS = 8.0
"""What it may add to the shortest of several: less than half the deadline, which all wait where no breaker opens."""


@pytest.fixture(scope="module")
def storms(lab_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StormLab]:
    """A lab of its own, whose advisor is hurt."""
    assert ADVISOR in list_parts(), "opsk is installed without its lab part: pip install -e . again"
    with storm_lab(tmp_path_factory.mktemp("storms") / "lab", QUICK) as lab:
        yield lab


@pytest.fixture(scope="module")
def usual_ms(storms: StormLab) -> float:
    """What slurmctld takes for a job that trains nothing: its hook asks no question [ms]."""
    return median(storms.inside_ms(storms.scripts(SAMPLED, training=0)))


@pytest.fixture
def submissions(slurm: Slurm) -> int:
    return SUBMISSIONS if slurm.source == INSTALLED else FEW


@pytest.fixture(autouse=True)
def leave_nothing(storms: StormLab) -> Iterator[None]:
    yield
    storms.cancel()


@pytest.mark.parametrize("name", CASES)
def test_every_job_is_accepted_and_slurmctld_waits_for_the_deadline_at_most(
    storms: StormLab, usual_ms: float, submissions: int, name: str
) -> None:
    storms.forget()
    deadline_ms = load_site(storms.record.folder.site).advisor.submit_deadline_s * 1e3
    with CASES[name](storms):
        took = storms.inside_ms(storms.scripts(SAMPLED, training=1))
        storm = storms.submit(storms.scripts(submissions, training=TRAINING), CLIENTS)
    assert storm.refused == ()
    assert len(storm.jobs) == submissions
    assert median(took) < usual_ms + deadline_ms + SLACK_MS
    assert max(took) < MOST_MS  # a busy machine may take its processor away from one
    if name not in HEALTHY:
        assert min(took[UNTIL_OPEN:]) < usual_ms + SLACK_OF_SHORTEST_MS


def test_an_advisor_that_is_restarted_in_the_middle_loses_no_job(storms: StormLab, submissions: int) -> None:
    storm = restarted(storms, storms.scripts(submissions, training=TRAINING), CLIENTS)
    assert storm.refused == ()
    assert len(storm.jobs) == submissions


def test_with_a_full_disk_advice_goes_on(storms: StormLab) -> None:
    with CASES["full disk"](storms):
        storms.submit(storms.scripts(2, training=1), 1)
        storm = storms.submit(storms.scripts(4, training=1), 1)
    assert storm.advised == 4
