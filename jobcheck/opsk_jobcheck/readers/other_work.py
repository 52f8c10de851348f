"""Does a command do other work than training: prepare data, convert weights, evaluate, serve, or test the network?

Told by the name of its program; one that is called after training (``train_eval.py``) trains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from opsk_jobcheck.readers.programs import names_of, program_of
from opsk_jobcheck.readers.shell.values import Invocation

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
    """Return whether a command's program is certainly not a trainer, by its name; worked out once."""
    found: bool | None = invocation.facts.get("other work")
    if found is None:
        found = invocation.facts["other work"] = _does_other_work(invocation)
    return found


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
    """Tell whether a program of this name, or a module, does other work; scripts start the same ones."""
    if _HARNESS.search(name):
        return True
    names = name.split(".") if is_module else [name.rpartition("/")[2].removesuffix(".py")]
    is_other = any(_OTHER.search(name) for name in names) or (not is_module and _FOLDER.search(name) is not None)
    return is_other and not _TRAINS.search(names[-1])


def training_only(invocations: Sequence[Invocation]) -> list[Invocation]:
    """Return the commands without those that do other work."""
    return [invocation for invocation in invocations if not does_other_work(invocation)]
