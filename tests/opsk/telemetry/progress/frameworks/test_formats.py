"""Is each row of the table of line formats right about its own example, and safe against hostile lines?"""

from __future__ import annotations

import pytest

from opsk.telemetry.progress.frameworks.formats import FRAMEWORKS, LineFramework
from tests.fakes.progress_logs import megatron_line, read_log

UNTIMED = ("openpi", "corenet")
"""They print no time of a step: the lines' own timestamps give it."""


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_example_of_a_row_is_read_as_a_step_of_its_framework(framework: LineFramework) -> None:
    reader, steps, _ = read_log(framework.example + "\n")
    assert reader.framework == framework.name
    assert len(steps) == 1
    assert steps[0].iteration is not None
    assert steps[0].loss is not None
    assert framework.name in UNTIMED or steps[0].step_s or steps[0].samples_per_s or steps[0].tokens_per_s_per_gpu


@pytest.mark.parametrize(
    "line",
    [
        "completed step: {}, seconds: 1.2, loss: 1\n",
        "global_step={}, RunningAvgSamplesPerSec=2\n",
        "Epoch 1 | iter {0} step {0} | loss train: 1, val: n/a | iter time: 250.00 ms\n",
        '{{"current_steps": {0}, "total_steps": {0}, "loss": 1}}\n',
        "Training epoch 0, iteration {0}/{0} | train_step_timing in s: 1 | reduced_train_loss: 1\n",
        " validation loss at iteration {} | lm loss value: 2.5E+00 |\n",
        "saving checkpoint at iteration {} to /scratch\n",
    ],
)
def test_a_step_with_thousands_of_digits_is_no_step(line: str) -> None:
    """Python refuses to convert them: a reader that tried would end the exporter's reading of this job."""
    _, steps, _ = read_log(line.format("9" * 5000) + megatron_line(7) + "\n")
    assert [step.iteration for step in steps] == [7]


def test_metrics_of_a_block_count_after_its_head_only() -> None:
    """Another program's line that looks like a metric of Composer does not end the reading of its steps."""
    reader, steps, _ = read_log(
        "steps: 10 loss: 2.1 iter time (s): 1.25 samples/sec: 204.8\n"
        "[Rank 0] step=20, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n\t Train throughput/tokens_per_sec: 3\n"
    )
    assert reader.framework == "deepspeed"
    assert [step.iteration for step in steps] == [10, 20]
