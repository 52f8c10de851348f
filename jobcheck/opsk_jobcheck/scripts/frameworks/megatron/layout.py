"""Reads how many layers each pipeline stage has from the flags of Megatron-LM, Megatron-Bridge and NeMo.

Source: ``validate_args`` in ``megatron/training/arguments.py`` and ``TransformerConfig.__post_init__`` of Megatron Core
0.20, which stop where a layout does not fit the model or other flags.
"""

from __future__ import annotations

from opsk.frameworks.settings.megatron_flags import LAYOUTS, PER_CHUNK
from opsk.frameworks.settings.megatron_layout import PipelineLayout, parse_layout
from opsk.workload.workload import Problem
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.uncounted_settings import report_uncounted

_NOTHING = ("null", "None", "")
_OTHERS = ("first_layers", "last_layers", "counts_embedding", "counts_loss")
_OTHER_FLAGS = "flags for first and last stage, or for embedding and loss"


def read_layout(arguments: Arguments, findings: Findings) -> None:
    """State the chunks of a stage, and the layers of the first and the last one, where a layout gives them."""
    if (chunk := arguments.flags.get(PER_CHUNK)) is not None:
        why = chunk.value.why or f"{chunk.shown[:80]} cuts the layers by hand"
        findings.mark_unknown("plan.vpp", why, chunk.line)
    for name in LAYOUTS:
        argument = arguments.flags.get(name) or arguments.overrides.get(name)
        if argument is not None and argument.value.known not in _NOTHING:
            read_layout_argument(argument, findings)


def read_layout_argument(argument: Argument, findings: Findings) -> None:
    """State what one layout gives, or why it gives nothing."""
    known, shown = argument.value.known, f"the layout {argument.value.shown[:60]}"
    if known is None:
        findings.mark_unknown("plan.vpp", argument.value.why, argument.line)
        return
    try:
        layout = parse_layout(known.replace("\\|", "|"))
    except ValueError as error:
        findings.mark_unknown("plan.vpp", f"{shown} cannot be read: {error}", argument.line)
        _report(findings, argument, f"{shown}: {error}", "see pipeline_parallel_layer_layout.py of Megatron Core")
        return
    pp = findings.get("plan.pp") or (1 if "plan.pp" not in findings.unknown and argument.flag in LAYOUTS[:1] else 0)
    chunks = len(layout.layers)
    if not pp:
        findings.mark_unknown(
            "plan.vpp", f"{shown} has {chunks} chunks, for an unknown number of stages", argument.line
        )
        return
    if chunks % pp:
        findings.mark_unknown("plan.vpp", f"{shown} has {chunks} chunks for {pp} stages", argument.line)
        _report(
            findings,
            argument,
            f"{shown} has {chunks} chunks, which is not a multiple of PP {pp}",
            f"write {-(-chunks // pp) * pp} chunks, or change PP",
        )
        return
    findings.state("plan.vpp", chunks // pp, argument.line, argument.shown[:80])
    _check_layers(layout, argument, shown, findings)
    _state_ends(layout, layout.stage_layers(pp), argument.flag, findings)


def _check_layers(layout: PipelineLayout, argument: Argument, shown: str, findings: Findings) -> None:
    """Report a layout that has other layers than the model, or that comes with other flags of the same purpose."""
    layers, mtp = findings.get("model.layers"), findings.options.get("mtp.layers", "0")
    if layers and sum(layout.layers) != layers:
        what = f"{shown} has {sum(layout.layers)} layers (t), the model {layers}"
        _report(findings, argument, what, f"write a layout of {layers} layers")
    if mtp.isascii() and mtp.isdigit() and int(mtp[:6]) != layout.mtp_layers and (layout.mtp_layers or layers):
        what = f"{shown} has {layout.mtp_layers} layers of multi-token prediction (m), the model {int(mtp[:6])}"
        _report(findings, argument, what, "make --mtp-num-layers and the layout agree")
    if any(findings.options.get(f"pipeline.{name}", "false") != "false" for name in _OTHERS):
        _report(findings, argument, f"{shown} cannot be combined with {_OTHER_FLAGS}", "leave those out")


def _state_ends(layout: PipelineLayout, stages: tuple[int, ...], flag: str, findings: Findings) -> None:
    """Set the layers of the first and the last stage where they differ from the fullest of the others."""
    for name in _OTHERS:
        findings.options.pop(f"pipeline.{name}", None)
    findings.options["pipeline.layout"] = "by hand"
    if len(stages) == 1:
        return
    middle = stages[1:-1] or (max(stages),)
    ends = {"first": stages[0], "last": stages[-1]}
    for name, count in ends.items():
        if count != max(middle) or 0 in stages or len(stages) == 2:
            findings.options[f"pipeline.{name}_layers"] = str(max(count, 1))
    if 0 in stages:
        report_uncounted(findings, flag, "a stage without layers", "one layer is counted on it")
    if len(stages) > 2 and max(middle) > -(-sum(middle) // len(middle)):
        why = f"stages between first and last are counted as even, {sum(middle) / len(middle):.3g} layers each"
        report_uncounted(findings, flag, f"{max(middle)} layers on the fullest stage", why)
    if layout.mtp_layers and layout.mtp_chunk % len(stages) != len(stages) - 1:
        report_uncounted(findings, flag, "multi-token prediction not on the last stage", "it is counted on the last")


def _report(findings: Findings, argument: Argument, what: str, hint: str) -> None:
    """Report what Megatron-LM stops at."""
    file, line = findings.locate(argument.line)
    findings.problems.append(Problem(what=what, file=file, line=line, hint=hint))
