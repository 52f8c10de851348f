"""What does a submitted script say about its training run, and on which line does it say so?"""

from __future__ import annotations

from dataclasses import dataclass, field

from opsk.workload.model import StatedModel
from opsk.workload.plan import StatedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a value was read.

    ``field`` is dotted (``model.layers``, ``plan.tp``); ``file`` and ``line`` (from 1) point at ``text``, the words
    that state it. A value fixed by arithmetic carries the formula as ``text`` and the line of its last input.
    """

    field: str
    value: object
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A value that cannot be told, and why (``"TP_SIZE comes from $1, known only when the job runs"``)."""

    field: str
    why: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A rule that the input breaks: what, where (``file``, ``line`` from 1; 0 when no line is to blame), what to do."""

    what: str
    file: str = ""
    line: int = 0
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything that a script states about its training run.

    Parameters
    ----------
    framework
        ``megatron-lm``, ``megatron-deepspeed``, ...; ``None`` when no training framework was recognised.
    job_name
        What the script calls the job (``--job-name``); ``None`` when it does not.
    launcher
        How ranks are started, in words (``srun + torchrun``); ``None`` when it cannot be told.
    is_training
        False when nothing in the script looks like a training job: then nobody should be bothered with advice.
    opted_out
        True when the script says ``#OPSK off``.
    gpu
        GPU type asked of Slurm (``h100`` of ``--gres=gpu:h100:8``); ``None`` when no type was asked for.
    model, plan
        What is stated; ``None`` fields are "cannot tell".
    options
        Other facts that the memory or time depends on and that a framework names its own way, by dotted name
        (``optimizer.main_grads`` = ``bf16``); readers fill it, the completion reads it.
    wanted_files
        Paths that the script names, as far as they can be told, and whose text would say more (a HuggingFace
        ``config.json``): whoever may read them for the submitting user passes their text to the reader and asks again.
    """

    framework: str | None
    job_name: str | None = None
    launcher: str | None = None
    is_training: bool = True
    opted_out: bool = False
    gpu: str | None = None
    model: StatedModel = field(default_factory=StatedModel)
    plan: StatedPlan = field(default_factory=StatedPlan)
    options: tuple[tuple[str, str], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    wanted_files: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[Problem, ...] = ()
