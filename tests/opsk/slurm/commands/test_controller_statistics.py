"""Tests that sdiag of every release is parsed into SI units, and that missing values stay absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.controller_text import CycleStatistics, SchedulerStatistics, parse_sdiag

TEXT = """\
*******************************************************
sdiag output at Sat Nov 21 10:00:00 2026 (1795255200)
Data since      Sat Nov 21 00:00:00 2026 (1795219200)
*******************************************************
Server thread count:  7
RPC queue enabled:    0
Agent queue size:     2
Agent count:          1
Agent thread count:   3
DBD Agent queue size: 4

Jobs submitted: 32
Jobs started:   22
Jobs completed: 9
Jobs canceled:  2
Jobs failed:    0

Job states ts:  Sat Nov 21 09:59:58 2026 (1795255198)
Jobs pending:   12
Jobs running:   9

Main schedule statistics (microseconds):
\tLast cycle:   250
\tMax cycle:    1500000
\tTotal cycles: 48
\tMean cycle:   500
\tMean depth cycle:  2
\tCycles per minute: 24
\tLast queue length: 3

Main scheduler exit:
\tEnd of job queue:48

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 15
\tTotal backfilled jobs (since last stats cycle start): 14
\tTotal cycles: {cycles}
\tLast cycle when: {when}
\tLast cycle: 1000
\tMax cycle:  2000
\tMean cycle: 1500
\tLast depth cycle: 3
\tDepth Mean: 4
\tLast queue length: 5

Latency for 1000 calls to gettimeofday(): 23 microseconds

Remote Procedure Call statistics by message type
\tREQUEST_SUBMIT_BATCH_JOB                ( 4003) count:26     ave_time:1000   total_time:26000
\tMESSAGE_EPILOG_COMPLETE                 ( 6012) count:4      ave_time:250    total_time:1000

Remote Procedure Call statistics by user
\troot            (       0) count:30     ave_time:900   total_time:27000
"""
WHOLE = TEXT.format(cycles=23, when="Sat Nov 21 09:59:50 2026 (1795255190)")


def test_it_is_read_whole() -> None:
    assert parse_sdiag(WHOLE) == SchedulerStatistics(
        since_unix_s=1795219200, threads=7, agents=1, agent_threads=3, agent_queue=2, database_queue=4,
        jobs={"submitted": 32, "started": 22, "completed": 9, "cancelled": 2, "failed": 0},
        jobs_now={"pending": 12, "running": 9},
        main=CycleStatistics(last_s=250e-6, mean_s=500e-6, longest_s=1.5, cycles=48, depth=2, queue=3),
        backfill=CycleStatistics(
            last_s=1e-3, mean_s=1.5e-3, longest_s=2e-3, cycles=23, depth=4, queue=5, last_unix_s=1795255190
        ),
        backfilled=15, rpcs=30, rpc_s=0.027,
    )  # fmt: skip


def test_before_the_first_cycle_there_is_no_time_of_one() -> None:
    """slurmctld prints zeros then: a cycle that took no time would be a lie."""
    assert parse_sdiag(TEXT.format(cycles=0, when="N/A")).backfill == CycleStatistics(cycles=0)


def test_what_is_missing_is_absent() -> None:
    found = parse_sdiag("Server thread count: 3\n")
    assert found == SchedulerStatistics(threads=3)


@pytest.mark.parametrize("text", ["", "sdiag: error: x", "Server threads: many"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SlurmError, match="cannot be read"):
        parse_sdiag(text)


@pytest.mark.shared
@pytest.mark.parametrize("release", ["24.11", "25.11", "26.05"])
def test_real_text_says_what_its_json_says(shared: Path, release: str) -> None:
    """Both were captured one after the other on a cluster at rest: what does not count requests is the same."""
    folder = shared / "data" / "real" / "slurm-json" / release
    found = parse_sdiag((folder / "sdiag.txt").read_text(encoding="utf-8"))
    truth = json.loads((folder / "sdiag.json").read_text(encoding="utf-8"))["statistics"]
    assert found.jobs == {
        "submitted": truth["jobs_submitted"], "started": truth["jobs_started"], "completed": truth["jobs_completed"],
        "cancelled": truth["jobs_canceled"], "failed": truth["jobs_failed"],
    }  # fmt: skip
    assert found.jobs_now == {"pending": truth["jobs_pending"], "running": truth["jobs_running"]}
    assert found.main.longest_s == truth["schedule_cycle_max"] / 1e6
    assert (found.backfilled, found.backfill.longest_s) == (truth["bf_backfilled_jobs"], truth["bf_cycle_max"] / 1e6)


@pytest.mark.shared
def test_real_text_of_other_releases_is_read(shared: Path) -> None:
    folder = shared / "data" / "real"
    texts = [folder / "slurm-json" / "22.05" / "sdiag.txt", *sorted((folder / "slurm_cli_text").glob("*sdiag*"))]
    for path in (*texts, *sorted((folder / "slurm_cli_text").glob("*scheduler*"))):
        found = parse_sdiag(path.read_text(encoding="utf-8"))
        assert all((found.threads, found.main.cycles, found.main.longest_s)), path.name
        assert set(found.jobs) == {"submitted", "started", "completed", "cancelled", "failed"}
