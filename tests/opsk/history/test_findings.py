"""Does history say what happened last time, and warn only where that speaks for it?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.history.findings import RequestedGpu, summarise, summarise_program
from opsk.history.runs import PastRun
from opsk.history.submission import Submission
from opsk.units import GIB

RUN = PastRun(
    job="1", ended_at_s=1.0, settings={"GPUs": "4"}, gpu_type="h100", gpus=4, capacity_bytes=80 * GIB,
    memory_peak_bytes=61.3 * GIB, activity=0.9, idle_gpus=0, observed_s=600.0, elapsed_s=7200.0, time_limit_s=86400.0,
    state="COMPLETED",
)  # fmt: skip
ENDED = replace(RUN, ended_at_s=2.0, state="TIMEOUT", elapsed_s=86400)
H100 = RequestedGpu(name="H100", capacity_bytes=80 * GIB)


def texts(runs: list[PastRun], gpu: RequestedGpu = H100, limit_s: float | None = None, **settings: str) -> list[str]:
    submission = Submission(script_key="s", command_key="c", command="foldit", settings={"GPUs": "4", **settings})
    history = summarise(runs, submission, gpu=gpu, time_limit_s=limit_s)
    assert history is not None
    return [("! " if finding.is_warning else "") + finding.text for finding in history.findings]


def test_memory_is_compared_with_the_gpu_that_is_requested() -> None:
    runs = [
        replace(RUN, ended_at_s=number, memory_peak_bytes=gib * GIB) for number, gib in enumerate((58.9, 61.3, 61.8))
    ]
    a100 = RequestedGpu(name="A100", capacity_bytes=39.4 * GIB)
    start = "your last 3 runs of this script peaked at 61.3 GiB a GPU on H100 (58.9–61.8)"
    assert texts(runs) == [start]
    assert texts(runs, a100) == [f"! {start}: will not fit into A100 (39.4 GiB)"]
    assert texts(runs, replace(H100, capacity_bytes=64 * GIB)) == [f"! {start}: tight in H100 (64.0 GiB)"]


def test_a_program_that_takes_a_share_of_any_gpu_is_not_refused() -> None:
    """JAX takes 75 % at its start: 60 of 80 GiB say nothing about a GPU of 40 GiB."""
    (text,) = texts([replace(RUN, memory_peak_bytes=60 * GIB)], RequestedGpu(name="A100", capacity_bytes=39.4 * GIB))
    assert "may not fit into A100 (39.4 GiB), unless it takes whatever memory there is" in text


def test_a_change_is_named_with_its_effect() -> None:
    runs = [
        replace(RUN, ended_at_s=batch, memory_peak_bytes=gib * GIB, settings={"GPUs": "4", "-b": str(batch)})
        for batch, gib in ((4, 31.7), (2, 16.9), (4, 31.7))
    ]
    assert texts(runs, **{"-b": "8"})[1] == (
        "changed since then: -b 4 → 8; memory was 2.1 + 7.4 GiB per -b in 3 runs: about 61 GiB (55–67)"
    )
    assert texts(runs[:1], **{"-b": "8"})[1] == (
        "changed since then: -b 4 → 8; no earlier runs show what that does to memory"
    )


def test_a_change_of_unknown_effect_does_not_hide_that_the_last_run_needed_more_than_the_gpu_has() -> None:
    """The change may lower memory: what is known is said, and no more."""
    a100 = RequestedGpu(name="A100", capacity_bytes=39.4 * GIB)
    before = [replace(RUN, memory_peak_bytes=52 * GIB, settings={"GPUs": "4", "-b": "4"})]
    assert texts(before, a100, **{"-b": "8"}) == [
        "! your last run of this script peaked at 52.0 GiB a GPU on H100, more than A100 (39.4 GiB) has",
        "changed since then: -b 4 → 8; no earlier runs show what that does to memory",
    ]
    share = [replace(RUN, memory_peak_bytes=60 * GIB, settings={"GPUs": "4", "-b": "4"})]
    assert texts(share, a100, **{"-b": "8"})[0] == "your last run of this script peaked at 60.0 GiB a GPU on H100"


def test_runs_of_the_command_count_where_those_of_the_script_do_not_show_its_memory() -> None:
    """A script with one flag more is another script; its command has run with the requested batch before."""
    submission = Submission(
        script_key="s", command_key="c", command="foldit", settings={"GPUs": "4", "-b": "8", "--verbose": "on"}
    )
    of_script = [replace(RUN, job="3", ended_at_s=3.0, settings={"GPUs": "4", "-b": "4", "--verbose": "on"})]
    of_command = [*of_script, replace(RUN, memory_peak_bytes=70 * GIB, settings={"GPUs": "4", "-b": "8"})]
    history = summarise_program(of_script, of_command, submission, gpu=H100)
    assert history is not None
    assert history.findings[0].text == "your last run of foldit peaked at 70.0 GiB a GPU on H100"
    alone = summarise_program(of_script, of_script, submission, gpu=H100)
    assert alone is not None
    assert alone.is_same_script
    assert "no earlier runs show" in alone.findings[1].text
    assert summarise_program([], [], submission, gpu=H100) is None


@pytest.mark.parametrize(
    ("runs", "limit_s", "text"),
    [
        (
            [ENDED, ENDED, replace(RUN, elapsed_s=36 * 3600)],
            86400.0, "! ended by the time limit twice in 3 runs (after 24 h): 36 h needed",
        ),
        ([RUN], 3600.0, "! runs took 2 h or more: the limit of 60 min is too short"),
        ([replace(RUN, activity=0.22)], None, "! used 22% of the GPUs' time in 1 run"),
        ([replace(RUN, activity=0.5, idle_gpus=2)], None, "! nothing ran on 2 of 4 GPUs in 1 run: request 2"),
        (
            [replace(RUN, state="OUT_OF_MEMORY", host_memory_peak_bytes=61 * GIB)], None,
            "! ran out of host memory in 1 of 1 run, at 61.0 GiB in one task: request more with --mem",
        ),
        ([replace(RUN, state="FAILED")] * 2, None, "! 2 of your last 2 runs failed, and none completed"),
    ],
    ids=["time limit", "too short", "waits", "idle", "host memory", "fails"],
)  # fmt: skip
def test_what_went_wrong_is_a_warning(runs: list[PastRun], limit_s: float | None, text: str) -> None:
    assert text in texts(runs, limit_s=limit_s)


def test_a_longer_limit_than_the_one_that_ended_runs_is_no_warning() -> None:
    ended = replace(RUN, state="TIMEOUT", elapsed_s=3600)
    assert not any(text.startswith("!") for text in texts([ended], limit_s=7200))


def test_names_from_scripts_and_slurm_are_escaped() -> None:
    hostile = replace(RUN, gpu_type="h\x1b[31m", settings={"GPUs": "4", "-\x07": "1"})
    assert all(text.isprintable() for text in texts([hostile], RequestedGpu(name="\x1b", capacity_bytes=GIB)))
