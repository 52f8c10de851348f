"""Defines what a submitted script states about its training run, and the lines on which it does."""

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
    """A value that cannot be resolved, and why (``"TP_SIZE comes from $1, known only when the job runs"``)."""

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
class OwnName:
    """How the job's own program sets a field of the plan.

    ``name`` is a flag of its parser (``--bs``), one without a value where ``is_switch``; with a ``file`` it is a
    keyword or a constant in that Python text.
    """

    field: str
    name: str
    file: str = ""
    is_switch: bool = False


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
        How ranks are started (``srun + torchrun``); ``None`` when it is unknown.
    is_training
        False when nothing in the script looks like a training job: then no advice is given.
    opted_out
        True when the script contains ``#OPSK off``.
    gpu
        GPU type requested from Slurm (``h100`` of ``--gres=gpu:h100:8``); ``None`` when no type was requested.
    model, plan
        What is stated; ``None`` fields are "unknown".
    options
        Other facts that affect memory or time and that each framework names differently, by dotted name
        (``optimizer.main_grads`` = ``bf16``); readers fill it, the completion reads it.
    own_names
        How the job's own program sets the fields that a change of plan touches, where its text is at hand and it
        accepts nothing else; ``None`` where it takes its framework's flags.
    command_line
        The line of the script on which the command that trains starts; 0 where none is known.
    other_runs, run_count
        The other trainings that the script certainly starts with other settings, and how many it starts in all: more
        than are listed where several have the same settings, or where there are too many to read.
    facts
        What is certain of how the job runs (processes, workers of data loaders, variables of NCCL), for checks that
        need no prediction.
    missing_files
        Paths that the script names and whose text would add information (a HuggingFace ``config.json``): a caller with
        the submitting user's permissions passes their text to the reader and analyses the script again.
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
    own_names: tuple[OwnName, ...] | None = None
    command_line: int = 0
    other_runs: tuple[Workload, ...] = ()
    run_count: int = 1
    facts: tuple[Evidence, ...] = ()
    missing_files: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[Problem, ...] = ()
