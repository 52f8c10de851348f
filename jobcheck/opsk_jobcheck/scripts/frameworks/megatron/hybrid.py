"""Reads the layer kinds of Megatron Core's hybrid models from flags.

Kinds are Mamba-2, gated DeltaNet, attention with a window, MLP alone and experts alone. Source: ``_add_ssm_args``,
``_add_experimental_attention_variant_args`` and ``_add_network_size_args`` of ``megatron/training/arguments.py``, and
``megatron/core/ssm/mamba_hybrid_layer_allocation.py``: ``M`` is Mamba-2, ``*`` attention, ``-`` the dense MLP and
``E`` experts; each of these is a separate layer after one norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.workload.model import Mixer, count_layer_kinds
from opsk_jobcheck.scripts.frameworks.megatron.shape import parse_layer_marks
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments
from opsk_jobcheck.scripts.settings.findings import Findings

MAX_PATTERN = 4096
_PATTERNS = ("--hybrid-override-pattern", "--hybrid-layer-pattern")
_RATIOS = ("--hybrid-attention-ratio", "--hybrid-mlp-ratio")
_MAMBA = MappingProxyType(
    {
        "mixer_head_dim": ("--mamba-head-dim", 64),
        "mixer_groups": ("--mamba-num-groups", 8),
        "mixer_state": ("--mamba-state-dim", 128),
    }
)
_DELTA = MappingProxyType(
    {
        "mixer_heads": ("--linear-num-value-heads", 32),
        "mixer_head_dim": ("--linear-value-head-dim", 128),
        "mixer_groups": ("--linear-num-key-heads", 16),
        "mixer_state": ("--linear-key-head-dim", 128),
        "mixer_conv": ("--linear-conv-kernel-dim", 4),
    }
)
"""Flags of the sizes of a mixer, and their defaults."""


def read_hybrid(arguments: Arguments, findings: Findings) -> None:
    """State the kinds of the layers where flags give them."""
    flags = arguments.flags
    if argument := next((flags[name] for name in _PATTERNS if name in flags), None):
        _state_pattern(argument, flags, findings)
    elif argument := next((flags[name] for name in _RATIOS if name in flags), None):
        why = "the allocation of layers by a ratio is not read; give --hybrid-override-pattern"
        findings.mark_unknown("model.mixer_layers", why, argument.line)
    if (argument := flags.get("--linear-attention-freq")) and _is_delta(flags):
        _state_deltanet(argument, flags, findings)
    if argument := flags.get("--window-size"):
        _state_window(argument, flags, findings)
    if (argument := flags.get("--attention-output-gate")) and argument.certain:
        findings.state("model.attention_gate", True, argument.line, argument.flag)


def _is_delta(flags: Mapping[str, Argument]) -> bool:
    """Return whether linear attention is gated DeltaNet."""
    variant = flags.get("--experimental-attention-variant", flags.get("--linear-attention-type"))
    return variant is not None and variant.value.known == "gated_delta_net"


def _state_pattern(argument: Argument, flags: Mapping[str, Argument], findings: Findings) -> None:
    """State Mamba-2, lone MLP layers and the number of all layers."""
    kinds = count_layer_kinds((argument.value.known or "")[:MAX_PATTERN])
    if kinds is None:
        why = argument.value.why or f"{argument.shown[:80]} is no pattern of M, *, - and E"
        findings.mark_unknown("model.mixer_layers", why, argument.line)
        return
    _, mamba, dense, experts = kinds
    shown = argument.shown[:80]
    findings.state("model.layers", sum(kinds), argument.line, shown)
    findings.state("model.norms_per_layer", 1, argument.line, shown)
    if dense + experts:
        findings.state("model.mlp_layers", dense + experts, argument.line, shown)
    if not mamba:
        return
    hidden = findings.get("model.hidden") or 0
    _state_sizes(Mixer.MAMBA2, mamba, argument, flags, findings, _MAMBA)
    findings.state("model.mixer_conv", 4, argument.line, shown)
    heads = flags.get("--mamba-num-heads")
    if heads is not None:
        findings.state_number("model.mixer_heads", heads.value, heads.line, heads.shown)
    elif width := findings.get("model.mixer_head_dim"):
        findings.state(
            "model.mixer_heads", max(2 * hidden // width, 1), argument.line, f"2 x hidden {hidden} / {width}"
        )


def _state_deltanet(argument: Argument, flags: Mapping[str, Argument], findings: Findings) -> None:
    """State gated DeltaNet: a number N leaves one layer in N with attention, a pattern marks those without."""
    layers, text = findings.get("model.layers") or 0, argument.value.known or ""
    if text.isascii() and text.isdigit() and len(text) < 7 and int(text):
        linear = layers - layers // int(text)
    else:
        marks = parse_layer_marks(text, layers)
        if marks is None or len(marks) != layers:
            why = argument.value.why or f"{argument.shown[:80]} does not say it for each layer"
            findings.mark_unknown("model.mixer_layers", why, argument.line)
            return
        linear = marks.count(True)
    if linear:
        _state_sizes(Mixer.GATED_DELTANET, linear, argument, flags, findings, _DELTA)


def _state_sizes(
    mixer: Mixer,
    layers: int,
    argument: Argument,
    flags: Mapping[str, Argument],
    findings: Findings,
    sizes: Mapping[str, tuple[str, int]],
) -> None:
    """State a mixer, its layers, and its sizes by their flags or Megatron's defaults."""
    findings.state("model.mixer", mixer.value, argument.line, argument.shown[:80])
    findings.state("model.mixer_layers", layers, argument.line, argument.shown[:80])
    for name, (flag, default) in sizes.items():
        if flag in flags:
            findings.state_number(f"model.{name}", flags[flag].value, flags[flag].line, flags[flag].shown)
        else:
            findings.state(f"model.{name}", default, argument.line, f"Megatron's default of {flag}")


def _state_window(argument: Argument, flags: Mapping[str, Argument], findings: Findings) -> None:
    """State a sliding window: ``--window-size 127,0`` sees 128 tokens, its own among them."""
    text = (argument.value.known or "").replace("(", "").replace(")", "")
    before = text.split(",")[0].strip()
    layers = findings.get("model.layers") or 0
    if not (before.isascii() and before.isdigit() and len(before) < 8):
        findings.mark_unknown(
            "model.attention_window", argument.value.why or f"{argument.shown[:80]} is no window", argument.line
        )
        return
    windowed, frequency = layers, flags.get("--window-attn-skip-freq")
    if frequency is not None:
        skipped = frequency.value.known or ""
        if skipped.isascii() and skipped.isdigit() and len(skipped) < 7 and int(skipped):
            windowed = layers - layers // int(skipped)
        elif (marks := parse_layer_marks(skipped, layers)) is not None and len(marks) == layers:
            windowed = marks.count(True)
        else:
            why = frequency.value.why or f"{frequency.shown[:80]} does not say it for each layer"
            findings.mark_unknown("model.windowed_layers", why, frequency.line)
            return
    findings.state("model.attention_window", int(before) + 1, argument.line, argument.shown[:80])
    if windowed:
        findings.state("model.windowed_layers", windowed, argument.line, argument.shown[:80])
