"""Logs the progress of a user's own training loop as one line a step, which opsk parses.

    from opsk.telemetry import report

    for step, batch in enumerate(batches):
        loss = train(batch)
        report(step=step, tokens=1_048_576, loss=loss)

writes ``opsk:step 12/1000 at=2026-11-21T08:00:00.000Z step_s=2.5 tokens=1048576 …`` on standard output, which is the
job's log; ``opsk throughput`` and the exporter find it there. Only the standard library is needed, and no error here
ever reaches the loop.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import SupportsFloat, SupportsInt, TextIO

MARK = "opsk:step"
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables with the rank of a process and the number of ranks: torchrun before Slurm, whose task may be a launcher."""
_MAX_VALUE = 10**15


class _PreviousCall:
    """The values of the previous call."""

    lock = threading.Lock()
    step: int | None = None
    at_s = 0.0
    has_complained = False


def report(
    *,
    step: SupportsInt,
    tokens: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    total: SupportsInt | None = None,
    step_s: SupportsFloat | None = None,
    samples: SupportsFloat | None = None,
    tflops_per_gpu: SupportsFloat | None = None,
    memory_bytes: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    lr: SupportsFloat | None = None,
    gpus: SupportsInt | None = None,
    every_rank: bool = False,
    file: TextIO | None = None,
) -> None:
    """Report that a step is done; call it after every step, or every few steps.

    It never raises: what cannot be written is left out, and the first error is reported on standard
    error. A tensor may be given for any number; reading it waits for the GPU, as ``float(tensor)`` does.

    Parameters
    ----------
    step
        Which step; it may begin anywhere.
    tokens, samples
        What the whole job trains in one step, over all ranks.
    loss, grad_norm, lr
        Of this step.
    total
        How many steps there are to be.
    step_s
        Time of one step [s]; measured from the call before, over the steps between, where it is not given.
    tflops_per_gpu
        TFLOP/s of one GPU, as the loop counts them.
    memory_bytes
        Peak memory of a GPU [bytes].
    gpus
        GPUs of the job; the number of ranks where it is not given.
    every_rank
        Whether ranks other than 0 write too; each line then has its rank.
    file
        Where to write; standard output where it is not given.
    """
    try:
        rank = _read_rank_variable(_RANKS)
        if rank and not every_rank:
            return
        line = _format_line(
            int(step),
            total=total,
            step_s=step_s,
            world=int(gpus) if gpus is not None else _read_rank_variable(_WORLDS),
            tokens=tokens,
            samples=samples,
            loss=loss,
            tflops_per_gpu=tflops_per_gpu,
            memory_bytes=memory_bytes,
            grad_norm=grad_norm,
            lr=lr,
        )
        label = f"[rank{rank or 0}]: " if every_rank else ""
        stream = sys.stdout if file is None else file
        stream.write(f"{label}{line}\n")  # one write: lines of several threads do not mix
        stream.flush()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is no reason to stop a training)
        _report_error(error)


def _format_line(
    step: int,
    *,
    total: SupportsInt | None,
    step_s: SupportsFloat | None,
    world: int | None,
    **values: SupportsFloat | None,
) -> str:
    """Return the line of a step."""
    if not 0 <= step < _MAX_VALUE:
        raise ValueError(f"step {step} is no number of a step")
    measured_s = _measure_step_s(step)
    words: dict[str, SupportsFloat | None] = {"step_s": step_s if step_s is not None else measured_s, "gpus": world}
    now_s = time.time()
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1000) % 1000:03d}Z"
    total_part = f"/{int(total)}" if total is not None and 0 < int(total) < _MAX_VALUE else ""
    joined_values = " ".join(
        f"{name}={float(value):.10g}" for name, value in (words | values).items() if value is not None
    )
    return f"{MARK} {step}{total_part} at={timestamp} {joined_values}".rstrip()


def _measure_step_s(step: int) -> float | None:
    """Return the time of one step since the call before [s]; ``None`` for the first of a start."""
    now_s = time.monotonic()
    with _PreviousCall.lock:
        before, at_s = _PreviousCall.step, _PreviousCall.at_s
        _PreviousCall.step, _PreviousCall.at_s = step, now_s
    return (now_s - at_s) / (step - before) if before is not None and step > before else None


def _read_rank_variable(names: tuple[str, ...]) -> int | None:
    """Return the first of these variables that is a number."""
    return next(
        (int(word) for name in names if (word := os.environ.get(name, "")).isdecimal() and len(word) < 10), None
    )


def _report_error(error: Exception) -> None:
    """Report once why nothing is logged."""
    if _PreviousCall.has_complained:
        return
    _PreviousCall.has_complained = True
    with contextlib.suppress(Exception):
        sys.stderr.write(f"opsk: report: {type(error).__name__}: {str(error)!a}\n")
