"""Reads the parts of a model's shape that several flags of Megatron Core, or a pattern of layers, fix together.

Source: ``_eval_pattern``, ``moe_freq_type``, ``_add_mla_args``, ``_add_ssm_args``,
``_add_experimental_attention_variant_args`` and ``_add_network_size_args`` of ``megatron/training/arguments.py``, and
``megatron/core/ssm/mamba_hybrid_layer_allocation.py``: ``M`` is Mamba-2, ``*`` attention, ``-`` the dense MLP and
``E`` experts; each of these is a separate layer after one norm. A pattern of marks is a Python expression of lists,
``+`` and ``*``; it is parsed here and never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from opsk.workload.model import Mixer, count_layer_kinds
from opsk_jobcheck.scripts.launchers.programs import find_program
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match

_DECODER = "--decoder-seq-length"
_OF_IMAGES = ("--vision", "--img-", "--patch-dim", "--language-model-type", "--disable-vision", "--pixel-shuffle")
_TEXT_TO_TEXT = "t5"
MAX_MARKS = 4096
"""No model has so many layers; a longer pattern is not read."""
_LATENT = {
    "--q-lora-rank": "model.q_lora_rank",
    "--kv-lora-rank": "model.kv_lora_rank",
    "--qk-pos-emb-head-dim": "model.qk_rope_dim",
    "--v-head-dim": "model.v_head_dim",
}
_TOKEN = re.compile(r"[0-9]{1,6}|[\[\](),+*]")
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


def read_sequence(match: Match, findings: Findings) -> None:
    """State the length that the language model has, or report why it is unknown."""
    decoder = match.arguments.flags.get(_DECODER)
    if decoder is None:
        return
    program = find_program(match.invocation)
    name = program.name.lower() if program is not None else ""
    if _TEXT_TO_TEXT in name:
        return
    if "multimodal" in name or "vlm" in name or any(flag.startswith(_OF_IMAGES) for flag in match.arguments.flags):
        findings.state_number("model.seq", decoder.value, decoder.line, decoder.shown)
    else:
        findings.mark_unknown("model.seq", f"encoder and decoder ({_DECODER}) have lengths of their own", decoder.line)


def read_shape(arguments: Arguments, findings: Findings) -> None:
    """State latent attention, layers without experts, and biases of the projections into attention."""
    _state_latent_attention(arguments, findings)
    if (argument := arguments.flags.get("--moe-layer-freq")) and findings.get("model.experts"):
        _state_dense_layers(argument, findings)
    if "--add-qkv-bias" in arguments.flags and "--disable-bias-linear" in arguments.flags:
        argument = arguments.flags["--add-qkv-bias"]
        for field, value in (("qkv_bias", True), ("output_bias", False), ("mlp_bias", False)):
            findings.state(f"model.{field}", value, argument.line, argument.flag)
    if (argument := arguments.flags.get("--moe-router-enable-expert-bias")) and argument.certain:
        findings.state("model.router_bias", True, argument.line, argument.flag)


def _state_latent_attention(arguments: Arguments, findings: Findings) -> None:
    """State the ranks and widths of latent attention where all that the shape needs are given."""
    flags = arguments.flags
    needed = ("--multi-latent-attention", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim")
    if not all(name in flags and flags[name].certain for name in needed):
        return
    plain, rotary = (_parse_number(flags[name]) for name in ("--qk-head-dim", "--qk-pos-emb-head-dim"))
    if plain is None or rotary is None:
        return
    for name, field in _LATENT.items():
        if name in flags:
            findings.state_number(field, flags[name].value, flags[name].line, flags[name].shown)
    line = flags["--qk-head-dim"].line
    findings.state("model.head_dim", plain + rotary, line, f"--qk-head-dim {plain} + rotary {rotary}")


def _parse_number(argument: Argument) -> int | None:
    """Return a flag's value as a number of valid size."""
    known = argument.value.known or ""
    return int(known) if known.isascii() and known.isdigit() and len(known) < 7 else None


def _state_dense_layers(argument: Argument, findings: Findings) -> None:
    """State how many layers have no experts, and whether these are interleaved with the others."""
    layers = findings.get("model.layers")
    marks = parse_layer_marks(argument.value.known or "", layers or 0)
    if marks is None or (layers and len(marks) != layers):
        why = argument.value.why or f"{argument.shown[:80]} does not say it for each layer"
        findings.mark_unknown("model.dense_layers", why, argument.line)
        return
    dense = marks.count(False)
    findings.state("model.dense_layers", dense, argument.line, argument.shown[:80])
    findings.state("model.dense_interleaved", any(marks[:dense]), argument.line, argument.shown[:80])


def parse_layer_marks(text: str, layers: int) -> tuple[bool, ...] | None:
    """Return for each layer whether it is marked; ``None`` where the text is no such pattern.

    A plain number N marks one layer in N, the first of each.
    """
    words = "".join(text.split())
    if words.isascii() and words.isdigit() and len(words) < 7:
        every = int(words)
        return tuple(index % every == 0 for index in range(layers)) if every and layers <= MAX_MARKS else None
    tokens = _TOKEN.findall(words)
    if "".join(tokens) != words or len(tokens) > MAX_MARKS * 2:
        return None
    try:
        rest = iter([*tokens, ""])
        marks, end = _parse_sum(rest, depth=0)
    except (ValueError, StopIteration):
        return None
    return None if end else tuple(marks)


def _parse_sum(tokens: Iterator[str], *, depth: int) -> tuple[list[bool], str]:
    """Return the marks of terms that ``+`` joins, and the token after them."""
    marks: list[bool] = []
    while True:
        term, end = _parse_product(tokens, depth=depth)
        marks += term
        if len(marks) > MAX_MARKS:
            raise ValueError
        if end != "+":
            return marks, end


def _parse_product(tokens: Iterator[str], *, depth: int) -> tuple[list[bool], str]:
    """Return the marks of one list or bracket, repeated as often as its factors say, and the token after it."""
    first = next(tokens)
    if first == "[":
        marks = _parse_list(tokens)
    elif first == "(" and depth < 20:
        marks, end = _parse_sum(tokens, depth=depth + 1)
        if end != ")":
            raise ValueError
    else:
        raise ValueError
    end = next(tokens)
    while end == "*":
        times = int(next(tokens))
        if len(marks) * times > MAX_MARKS:
            raise ValueError
        marks, end = marks * times, next(tokens)
    return marks, end


def _parse_list(tokens: Iterator[str]) -> list[bool]:
    """Return the marks of a list after its bracket."""
    marks: list[bool] = []
    while (token := next(tokens)) != "]":
        if not token.isdigit() or int(token) > 1:
            raise ValueError
        marks.append(token == "1")
        if (end := next(tokens)) == "]":
            break
        if end != ",":
            raise ValueError
    return marks


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
