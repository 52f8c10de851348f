"""Progress lines as training frameworks print them, with the numbers that a test wants."""

from __future__ import annotations

import os
from pathlib import Path

from opsk.telemetry.progress.records import Event, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from opsk_exporters.jobs.training import TrainingCollector
from tests.fakes.job_notes import Node


def megatron_line(
    step: int,
    *,
    total: int = 1000,
    step_ms: float = 2000.0,
    batch: int = 512,
    tflops: float | None = None,
    loss: float | None = 2.0,
    stamp: str = "",
) -> str:
    """One iteration line of Megatron-LM, of the core releases if it has TFLOP/s."""
    parts = [
        f"{stamp} iteration {step:8d}/{total:8d}",
        f" consumed samples: {step * batch:12d}",
        f" elapsed time per iteration (ms): {step_ms:.1f}",
        *([f" throughput per GPU (TFLOP/s/GPU): {tflops:.1f}"] if tflops is not None else []),
        " learning rate: 1.500000E-04",
        f" global batch size: {batch:5d}",
        *([f" lm loss: {loss:.6E}"] if loss is not None else []),
        " loss scale: 1.0",
        " grad norm: 0.812",
        " number of skipped iterations:   0",
        " number of nan iterations:   0 ",
    ]
    return " |".join(parts) + "|"


def training_collector(root: Path, jobs: int = 2) -> TrainingCollector:
    """Write a node whose jobs train and were predicted; return the collector that looks at them."""
    root.mkdir()
    node = Node(root)
    for job in range(1, jobs + 1):
        log = root / f"{job}.out"
        lines = ("seq_length ..... 4096", *(megatron_line(step, tflops=400.0) for step in (1, 2, 3)))
        log.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        node.note(job, [0], uid=os.getuid(), stdout=log)
        node.cgroups.add(job, {"batch": [100 + job]})
        (node.jobs / f"{job}.advice").write_text(
            "opsk:v1 verdict=fits step_s=2 step_s_low=1.8 step_s_high=2.3\n", encoding="ascii"
        )
    return TrainingCollector(node.mapper(), node.jobs, node.proc)


def read_log(text: str, **known: float) -> tuple[ProgressReader, list[StepRecord], list[Event]]:
    """Read a log; return its reader, its steps and its events."""
    reader = ProgressReader(**known)  # type: ignore[arg-type]
    steps: list[StepRecord] = []
    events: list[Event] = []
    for each in (*reader.feed(text.encode()), *reader.finish()):
        if isinstance(each, StepRecord):
            steps.append(each)
        else:
            events.append(each)
    return reader, steps, events
