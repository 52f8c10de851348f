"""Reads the parts of a model's shape that several flags of Megatron Core, or a pattern of layers, fix together.

Source: ``_eval_pattern``, ``moe_freq_type`` and ``_add_mla_args`` of ``megatron/training/arguments.py``. A pattern is a
Python expression of lists, ``+`` and ``*``; it is parsed here and never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opsk_jobcheck.scripts.launchers.programs import program_of
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match

_DECODER = "--decoder-seq-length"
_OF_IMAGES = ("--vision", "--img-", "--patch-dim", "--language-model-type", "--disable-vision", "--pixel-shuffle")
_TEXT_TO_TEXT = "t5"


def read_sequence(match: Match, findings: Findings) -> None:
    """State the length that the language model has, or report why it is unknown."""
    decoder = match.arguments.flags.get(_DECODER)
    if decoder is None:
        return
    program = program_of(match.invocation)
    name = program.name.lower() if program is not None else ""
    if _TEXT_TO_TEXT in name:
        return
    if "multimodal" in name or "vlm" in name or any(flag.startswith(_OF_IMAGES) for flag in match.arguments.flags):
        findings.state_number("model.seq", decoder.value, decoder.line, decoder.shown)
    else:
        findings.mark_unknown("model.seq", f"encoder and decoder ({_DECODER}) have lengths of their own", decoder.line)


MAX_MARKS = 4096
"""No model has so many layers; a longer pattern is not read."""
_LATENT = {
    "--q-lora-rank": "model.q_lora_rank",
    "--kv-lora-rank": "model.kv_lora_rank",
    "--qk-pos-emb-head-dim": "model.qk_rope_dim",
    "--v-head-dim": "model.v_head_dim",
}
_TOKEN = re.compile(r"[0-9]{1,6}|[\[\](),+*]")


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
