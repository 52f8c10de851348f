"""Reads the flags and overrides of Megatron that change memory, and reports those that no prediction counts."""

from __future__ import annotations

from itertools import takewhile

from opsk_jobcheck.scripts.frameworks.megatron.memory_flags import (
    BRIDGE_PRECISIONS,
    BRIDGE_SWITCHES,
    BRIDGE_VALUES,
    LISTS,
    NO_CHANGE,
    UNMODELLED,
    VALUES,
)
from opsk_jobcheck.scripts.settings.arguments import Argument
from opsk_jobcheck.scripts.settings.deepspeed_config import FRACTION, PARTLY
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match
from opsk_jobcheck.scripts.settings.uncounted_settings import report_uncounted

_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8": "fp8", "uint8": "fp8"}
_NOTHING = ("null", "None", "")


def read_memory(match: Match, findings: Findings) -> None:
    """Copy the memory settings into options, which the completion reads."""
    flags, overrides = match.arguments.flags, match.arguments.overrides
    for name, option in VALUES.items():
        if (argument := flags.get(name)) is not None:
            _set_option(findings, option, name, argument)
    for name, option in LISTS.items():
        if (argument := flags.get(name)) is not None:
            _set_list_option(match, findings, option, name, argument)
    for name, why in UNMODELLED.items():
        if (argument := flags.get(name)) is not None and argument.value.known not in NO_CHANGE.get(name, ()):
            report_uncounted(findings, name, argument.value.known or "given", why)
    for name, option in BRIDGE_VALUES.items():
        if (argument := overrides.get(name)) is not None and argument.value.known not in _NOTHING:
            _set_option(findings, option, name, argument)
    if "--grad-reduce-in-bf16" in flags and flags["--grad-reduce-in-bf16"].certain:
        # the gradients' buffer has the format in which they are reduced, whatever --main-grads-dtype is
        findings.options["optimizer.main_grads"] = "bf16"
    for name, (option, on, off) in BRIDGE_SWITCHES.items():
        if (argument := overrides.get(name)) is not None and (argument.value.known or "").lower() in ("true", "false"):
            findings.options[option] = on if (argument.value.known or "").lower() == "true" else off
    _state_bridge_precision(match, findings)


def shorten_format(text: str) -> str:
    """Return a number format as flags write it: ``bf16`` for ``torch.bfloat16``."""
    name = text.strip().removeprefix("torch.")
    return _SHORT.get(name, name)


def _set_option(findings: Findings, option: str, name: str, argument: Argument) -> None:
    """Set an option from one value; an unknown value is reported instead."""
    known = argument.value.known
    if known is None and option == FRACTION:
        findings.options[PARTLY] = "true"
    elif known is None:
        report_uncounted(findings, name, "unknown", f"its value cannot be told: {argument.value.why}"[:200])
    elif known:
        findings.options[option] = shorten_format(known)[:80]


def _set_list_option(match: Match, findings: Findings, option: str, name: str, argument: Argument) -> None:
    """Set an option from the words after a flag, up to the next one."""
    words = [argument.value]
    following = match.invocation.words[argument.word_index + 1 : argument.word_index + 33]
    if following and following[0] is argument.value:
        words = list(takewhile(lambda word: not (word.known or "").startswith("-"), following))
    known = [word.known for word in words if word.known is not None]
    if len(known) < len(words) or not argument.certain:
        why = next((word.why for word in words if word.known is None), argument.value.why)
        report_uncounted(findings, name, "unknown", f"its words cannot be told: {why}"[:200])
    else:
        findings.options[option] = " ".join(known)[:200]


def _state_bridge_precision(match: Match, findings: Findings) -> None:
    """State the number format of a recipe of Megatron-Bridge's ``mixed_precision``."""
    words = (word for word in match.invocation.words if (word.known or "").startswith("mixed_precision="))
    word = next(words, None)
    if word is None:
        return
    precision = BRIDGE_PRECISIONS.get((word.known or "").partition("=")[2])
    if precision is None:
        findings.mark_unknown("plan.precision", f"{(word.known or '')[:80]} is no recipe that opsk knows", word.line)
        return
    findings.state("plan.precision", precision[0], word.line, (word.known or "")[:80])
    if precision[1]:
        findings.options.setdefault("fp8.params", precision[1])
