"""Reads the models that a Python file holds beside the trained one, where it starts one of TRL's trainers itself."""

from __future__ import annotations

import posixpath
import re

from opsk.frameworks.settings import preferences as names
from opsk.workload.roles import METHOD
from opsk_jobcheck.scripts.frameworks.huggingface.preferences import read_preferences
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import mark_roles_unknown
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.findings import Findings

_TRAINERS = re.compile(r"(DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO)Trainer")
_SETTINGS = (
    *(*names.PRECOMPUTED, *names.BETA, *names.PROMPT, *names.ANSWER, *names.USE_VLLM, *names.MODE, *names.SHARE),
    *(*names.TENSOR, *names.SLEEPS, *names.LENGTH, *names.EAGER, "torch_dtype", "dtype"),
)


def find_loss(function: str) -> str:
    """Return the loss of one of TRL's trainers whose roles are known; empty for anything else."""
    match = _TRAINERS.fullmatch(function)
    return match[1].lower() if match is not None else ""


def find_trainers(settings: ProgramSettings) -> list[Call]:
    """Return the calls that make one of TRL's trainers whose roles are known, where they are TRL's for sure."""
    source = settings.source
    if source is None:
        return []
    has_trl = any(name.partition(".")[0] == "trl" for name in source.imports)
    makers = [call for call in source.calls if find_loss(call.function) and (has_trl or call.owner == "trl")]
    return [call for call in makers if settings.is_active(call) is not False]


def forget_name(settings: ProgramSettings, findings: Findings) -> None:
    """Take back that other models are in memory, where nothing but the name of this file says so."""
    name = posixpath.basename(settings.file)
    if f"in memory too ({name}," in findings.options.get(OPTION, ""):
        del findings.options[OPTION]


def state_python_roles(call: Call, settings: ProgramSettings, findings: Findings) -> None:
    """State the roles of the trainer that a call makes; what its command line states is not read again."""
    kind = find_loss(call.function)
    if METHOD in findings.options or not kind:
        return
    source = settings.source
    others = source.find_calls("SFTTrainer") if source is not None else ()
    if kind in names.GENERATING and any(settings.is_active(other) is not False for other in others):
        # which of the two needs more is not known, and their lengths are different ones
        findings.options[METHOD] = kind
        mark_roles_unknown(findings, f"the program starts an SFTTrainer before it, {settings.file}:{call.line}", 0)
        return
    stated = {name: entry for name in _SETTINGS if (entry := settings.find((name,))) is not None}
    config = ConfigFile(path="", overrides=stated)
    read_preferences(kind, config, findings, usual_bits=32, opaque=settings.closed)
    rewards = call.keywords.get("reward_funcs")
    if rewards is not None and METHOD in findings.options:
        reward = settings.resolve(rewards)
        if isinstance(reward.value, str):
            mark_roles_unknown(findings, f"the size of the reward model {reward.value[:60]}", 0)
