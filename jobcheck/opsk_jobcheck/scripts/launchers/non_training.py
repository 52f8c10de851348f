"""Recognises commands that do not train: data preparation, conversion, evaluation, serving, network tests.

Commands are recognised by the names of their programs; a name that mentions training (``train_eval.py``) trains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import SURE, names_of, program_of
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading, find_best_match
from opsk_jobcheck.scripts.settings.statements import state_data_parallel_only

MAX_OTHERS = 8
"""Other commands that are read for this."""
_GROUPS = ("model.", "plan.")


def doubt_what_differs(
    chosen: Match, readers: Sequence[Reader], invocations: Sequence[Invocation], reading: Reading
) -> None:
    """Mark values as unknown where another command that may train differs and the chosen one may not run.

    Parameters
    ----------
    chosen
        The command that was read into ``reading``.
    invocations
        The commands of the script that may train.
    """
    if chosen.invocation.certain:
        return
    others = [entry for entry in invocations if entry is not chosen.invocation][:MAX_OTHERS]
    for pair in filter(None, (find_best_match(readers, [entry]) for entry in others)):
        reader, match = pair
        separate = replace(
            reading, findings=Findings(reading.findings.file, places=reading.findings.places), missing_files=[]
        )
        reader.read(match, separate)
        _take_back(separate.findings, reading.findings)


def _take_back(other: Findings, findings: Findings) -> None:
    """Mark the values as unknown that differ in another command."""
    for field, value in other.values.items():
        if field.startswith(_GROUPS) and field in findings.values and findings.values[field] != value:
            entry = other.evidence.get(field)
            alternative = f", another has {entry.text[:80]}" if entry is not None else ""
            line = findings.evidence[field].line if field in findings.evidence else 0
            findings.mark_unknown(field, f"it depends on which command runs{alternative}", line)


CONNECTIVITY = "none: a connectivity test"
_PROGRAM = re.compile(r"torch[-_]distributed[-_]gpu[-_]test\.py")


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that starts such a test."""
    program = program_of(invocation)
    if program is None or not _PROGRAM.fullmatch(program.file):
        return None
    return Match(framework=CONNECTIVITY, weight=SURE, invocation=invocation, arguments=arguments_of(invocation))


def read_connectivity(match: Match, reading: Reading) -> None:
    """State that ranks are data-parallel only."""
    state_data_parallel_only(reading.findings, "all ranks meet in the same barriers", match.invocation.line)


CONNECTIVITY_READER = Reader(frameworks=(CONNECTIVITY,), recognise=recognise, read=read_connectivity)


_WORDS = (
    *(
        "pre_?process",
        "pre_?processing",
        "tokeni[sz]e",
        "tokeni[sz]er",
        "convert",
        "converter",
        "convertor",
        "conversion",
        "round_?trip",
        "reshard",
    ),
    *("consolidate", "consolidation", "merge", "dedup", "deduplicate", "download", "upload", "sync", "export", "pack"),
    *("eval", "evaluate", "evaluation", "evalharness", "infer", "inference", "generate", "generation", "serve"),
    *("server", "vllm", "bandwidth", "all_?reduce", "nccl", "analy[sz]e", "plot", "visuali[sz]e", "test"),
    *("pytest", "coverage", r"hf2\w+", r"\w{1,40}2hf", r"\w{1,40}2mcore", r"mcore2\w+"),
)
_OTHER = re.compile(rf"(^|[_.-])({'|'.join(_WORDS)})s?(?=[_.-]|$)", re.IGNORECASE)
_HARNESS = re.compile(r"(^|/)(lm_eval|[\w.-]*eval(uation)?[_-]harness)([./]|$)|(^|\.)lm_eval(\.|$)")
_FOLDER = re.compile(r"(^|/)[\w.-]{0,60}(conversions?|convert(er|or)?s?)/")
_TRAINS = re.compile(r"train|finetun|fine_tun|(^|[_.-])(sft|dpo|orpo|grpo|ppo|clm|mlm)(?=[_.-]|$)", re.IGNORECASE)
_IMAGES = frozenset({"build", "pull", "push", "import", "create"})
_CONTAINERS = frozenset({"docker", "podman", "enroot", "singularity", "apptainer"})


def does_other_work(invocation: Invocation) -> bool:
    """Return whether a command's program is certainly not a trainer, by its name; computed once."""
    cached: bool | None = invocation.facts.get("other work")
    if cached is None:
        cached = invocation.facts["other work"] = _does_other_work(invocation)
    return cached


def _does_other_work(invocation: Invocation) -> bool:
    first_names = names_of(invocation)[:8]
    if any(first in _CONTAINERS and second in _IMAGES for first, second in pairwise(first_names)):
        return True
    program = program_of(invocation)
    if program is None:
        return False
    return _is_other(program.name, is_module=program.is_module)


@lru_cache(maxsize=1024)
def _is_other(name: str, *, is_module: bool) -> bool:
    """Return whether a program of this name, or a module, does other work; scripts start the same ones."""
    if _HARNESS.search(name):
        return True
    names = name.split(".") if is_module else [name.rpartition("/")[2].removesuffix(".py")]
    is_other = any(_OTHER.search(name) for name in names) or (not is_module and _FOLDER.search(name) is not None)
    return is_other and not _TRAINS.search(names[-1])


def filter_training(invocations: Sequence[Invocation]) -> list[Invocation]:
    """Return the commands without those that do other work."""
    return [invocation for invocation in invocations if not does_other_work(invocation)]
