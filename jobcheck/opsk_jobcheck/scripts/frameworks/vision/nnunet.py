"""Reads trainings of nnU-Net, whose planner chooses patch and batch so that a step takes a budget of GPU memory.

What that takes is published for the presets: ``documentation/resenc_presets.md`` of nnU-Net 2 (nvidia-smi, one A100).
Plans with another budget (``..._40G``) and trainers with another network are not known.
Source: ``nnunetv2/run/run_training.py`` and ``nnunet/run/run_training.py``, their parsers.
"""

from __future__ import annotations

import re
from itertools import pairwise

from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE
from opsk_jobcheck.scripts.launchers.programs import SURE, Program, find_command
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.findings import mark_all_unknown, state_data_parallel_only
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

NNUNET = "nnunet"
_COMMAND, _OLD_COMMAND = "nnUNetv2_train", "nnUNet_train"
_PLANS = {
    "nnUNetPlans": "nnunet-plans",
    "nnUNetPlansv2.1": "nnunet-plans",
    "nnUNetResEncUNetMPlans": "nnunet-resenc-m",
    "nnUNetResEncUNetLPlans": "nnunet-resenc-l",
    "nnUNetResEncUNetXLPlans": "nnunet-resenc-xl",
}
_TRAINERS = re.compile(
    r"nnUNetTrainer(V2)?(_\d+epochs(_NoMirroring)?|_(1|5|10)epochs?|DA5(ord0)?|NoDA|NoMirroring|_onlyMirror01|CELoss|DiceLoss"
    r"|TopkLoss|Diceloss|Adam(3en4)?|Vanilla\w*|CosAnneal|PolyLR|DASegOrd0|_noDeepSupervision|NoDeepSupervision)*"
)
"""The trainers of nnU-Net itself that change neither network nor batch."""
_PLAN_FLAGS, _TRAINER_FLAGS, _COUNT_FLAGS = ("-p", "--plans"), ("-tr", "--trainer"), ("-num_gpus",)
_DEFAULT_PLANS = "nnUNetPlans"


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with nnU-Net."""
    if find_command(invocation, _COMMAND, _OLD_COMMAND) is None:
        return None
    return Match(framework=NNUNET, weight=SURE, invocation=invocation, arguments=get_arguments(invocation))


def read_nnunet(match: Match, reading: Reading) -> None:
    """State the plans that a command trains, and the GPUs that it uses."""
    program = find_command(match.invocation, _COMMAND, _OLD_COMMAND)
    if program is None:
        return
    findings, line = reading.findings, match.invocation.line
    name, why = _find_plans(program)
    if why:
        mark_all_unknown(findings, SHAPE, why, line)
    else:
        reading.model_name = name
    findings.state("plan.micro_batch", 1, line, "the batch of nnU-Net's plans counts as one")
    findings.state("plan.precision", "fp16", line, "nnU-Net computes under autocast")
    findings.state("plan.recompute", "none", line, "nnU-Net recomputes nothing")
    findings.state("plan.sharding", "none", line, "nnU-Net holds a replica on every GPU")
    findings.options["optimizer.name"] = "sgd"
    state_data_parallel_only(findings, "nnU-Net splits no model", line)
    count = _find_value(program, _COUNT_FLAGS)
    known = "1" if count is None else count.known or ""
    if (findings.get("plan.gpus") or 1) > 1 and known.isdigit():
        findings.options[RANKS] = known


NNUNET_READER = Reader(frameworks=(NNUNET,), recognise=recognise, read=read_nnunet)


def _find_plans(program: Program) -> tuple[str, str]:
    """Return the known plans of a command, or why they are not known."""
    trainer = _find_value(program, _TRAINER_FLAGS)
    if program.name.rpartition("/")[2] == _OLD_COMMAND and len(program.words) > 1:
        trainer = program.words[1]
    if trainer is not None and (trainer.known is None or not _TRAINERS.fullmatch(trainer.known[:200])):
        return "", trainer.why or f"the network of {trainer.shown[:80]} is not known"
    plans = _find_value(program, _PLAN_FLAGS)
    stated = _DEFAULT_PLANS if plans is None else plans.known
    if stated is None or stated not in _PLANS:
        shown = plans.why or f"what {plans.shown[:80]} takes is not known" if plans is not None else ""
        return "", shown
    return _PLANS[stated], ""


def _find_value(program: Program, flags: tuple[str, ...]) -> Text | None:
    """Return the word after one of these flags."""
    return next((value for flag, value in pairwise(program.words) if flag.known in flags), None)
