"""Builds the model shape of a row: stated sizes first, then the public model of that name, then the usual shape.

Where a size is missing and no public model has it, it is solved for from the published number of parameters.

Which layers have a mixer instead of attention, and which have a window: columns take precedence over the public model;
sizes of a stated mixer that are not given are the usual ones of its kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any

from opsk.calibration.runs.columns import Cells
from opsk.calibration.runs.software import RunSoftware, is_tuned
from opsk.workload.defaults import GPT2_VOCAB, LLAMA2_VOCAB, LLAMA3_VOCAB
from opsk.workload.model import Mixer, ModelShape
from opsk.workload.public_models.lookup import public_model

MIXER_SIZES = (
    "mixer_heads",
    "mixer_head_dim",
    "mixer_groups",
    "mixer_state",
    "mixer_conv",
    "mixer_rank",
)
MIXER_COLUMNS = ("mixer_layers", "mlp_layers", *MIXER_SIZES)
_WORDS = {"mamba-hybrid": Mixer.MAMBA2}
"""The mixer of a word of the column that is not the name of a mixer."""
HEAD_DIM = 128
WIDTH_OVER_LAYERS = 128
"""Width over depth of GPT-3 175B, Llama 7B and 13B, for models of which only the size is known."""
MOST_EMBEDDING = 0.5
"""Share of a model's parameters that its embedding has at the most."""
OFF_BY = 0.1
"""Deviation of the usual shape's parameters from the stated ones above which the MLP is solved for [ratio]."""
MAX_LAYERS = 1000
TUNED_SEQ = 512
"""Tokens to which instruction samples are truncated (train.py of tatsu-lab/stanford_alpaca)."""
MAX_SEQ = 8192
"""Maximum training length that is taken from a public model, as longer contexts are extended after training."""
_RATIO = re.compile(r"\d{1,3}(?:\.\d{1,4})?|\d{1,3}/[1-9]\d{0,2}", re.ASCII)
_SIZE_IN_NAME = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?([bBmM])(?![\w.])", re.ASCII)
"""A number of parameters such as ``7B`` that stands by itself: not the ``7B`` of ``8x7B``."""
_LLAMA_2 = re.compile(r"llama[ _-]?[12](?![\w.])", re.IGNORECASE)
"""Models whose names say that they have the tokenizer of Llama 1 and 2: not "llama-1B"."""
_FFN_MULTIPLE = 256
_PLAIN_WORDS = ("gpt", "opt", "bloom", "mpt", "falcon", "pythia", "neox", "cerebras", "turing", "mt-nlg", "bert", "t5")
_PLAIN_ARCHITECTURES = ("gpt", "gpt2", "gpt3", "bert", "encoder", "t5", "opt", "bloom", "mpt", "falcon")
_EXPERT_ARCHITECTURES = ("moe", "mla", "mixtral", "deepseek")
_COLUMNS = {
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "ffn": "ffn_hidden",
    "vocab": "vocab",
    "seq": "seq_len",
    "experts": "experts",
    "top_k": "topk",
}
_SAME_MODEL = ("layers", "hidden", "heads", "kv_heads", "experts")
"""Stated sizes that must agree before the rest is taken from the public model of the same name."""
_OPTIONAL_SIZES = ("head_dim", "kv_lora_rank", "qk_rope_dim", "v_head_dim", "shared_ffn")
_OPTIONAL_COUNTS = ("q_lora_rank", "dense_layers", "shared_experts", "mtp_layers")
_FLAGS = {
    "gated_mlp": ("gated_mlp",),
    "tied_embeddings": ("tied_embeddings",),
    "linear_bias": ("qkv_bias", "output_bias", "mlp_bias"),
    "qk_norm": ("qk_norm",),
}
"""Yes-or-no columns of a model, and the fields of its shape that they decide."""
_UNEVEN_ROUTING = 1.5
"""Work of the busiest expert-parallel rank over the mean where routing is natural: an auxiliary loss leaves the busiest
expert 1.5 to 1.7 times the mean (MaxVio of 0.5 to 0.7 in arXiv 2408.15664, recalled, not read again)."""
_CAPACITY = 1.0


def build_model(cells: Cells, software: RunSoftware, *, fused_attention: bool) -> ModelShape | None:
    """Return the shape of a row's model; errors are recorded."""
    stated = {name: value for name, column in _COLUMNS.items() if (value := cells.size(column)) is not None}
    is_moe = cells.text("arch").lower() in _EXPERT_ARCHITECTURES or "experts" in stated
    if is_moe and "ffn" in stated:
        stated["expert_ffn"] = stated.pop("ffn")
    stated |= _read_other_sizes(cells, stated, is_moe=is_moe)
    if "seq" not in stated and is_tuned(cells) and not cells.flag("packed"):
        why = "samples of instructions have a few hundred tokens; Stanford Alpaca cuts them at 512"
        stated["seq"] = int(cells.assume("model.seq", TUNED_SEQ, why))
    values = dict(stated) | _read_kinds(cells)
    public = None if cells.wrong else _find_public(cells, stated)
    if public is not None:
        _take_public(cells, values, public)
    else:
        _take_usual(cells, values, software, is_moe=is_moe)
    if cells.wrong:
        return None
    return _build_shape(cells, values, software, fused_attention=fused_attention)


def _read_other_sizes(cells: Cells, stated: Mapping[str, int], *, is_moe: bool) -> dict[str, Any]:
    """Return the sizes whose columns few models need."""
    sizes: dict[str, Any] = {name: value for name in _OPTIONAL_SIZES if (value := cells.size(name)) is not None}
    sizes |= {name: value for name in _OPTIONAL_COUNTS if (value := cells.count(name)) is not None}
    plain = cells.size("qk_nope_dim")
    if "kv_lora_rank" in sizes and plain is not None:
        sizes["head_dim"] = plain + sizes.get("qk_rope_dim", 0)
    if is_moe and (width := cells.size("dense_ffn")) is not None:
        sizes["ffn"] = width
    ratio = _read_ratio(cells)
    if ratio and "hidden" in stated and "ffn" not in stated and not is_moe:
        sizes["ffn"] = _round_up(int(ratio * stated["hidden"]), _FFN_MULTIPLE)
    return sizes


def _read_ratio(cells: Cells) -> Fraction | None:
    """Return the width of the MLP over that of the model, where it is stated."""
    text = cells.text("mlp_ratio")
    if not text:
        return None
    if not _RATIO.fullmatch(text):
        cells.wrong.append(f"mlp_ratio is {text[:40]!r}, must be a number or a fraction such as 8/3")
        return None
    return Fraction(text)


def _read_kinds(cells: Cells) -> dict[str, Any]:
    """Return what the row states about the kind of its layers."""
    details: dict[str, Any] = {}
    for column, names in _FLAGS.items():
        if (stated := cells.flag(column)) is not None:
            details |= dict.fromkeys(names, stated)
    if positions := cells.choice("positions"):
        details["learned_positions"] = positions == "learned"
    if norm := cells.choice("norm"):
        details["norm_bias"] = norm == "layernorm"
    if (rate := cells.share("dropout")) is not None:
        details["dropout"] = rate > 0
    return details


def _find_public(cells: Cells, stated: Mapping[str, int]) -> ModelShape | None:
    """Return the public model of the row's name, unless a stated size contradicts it."""
    if all(name in stated for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim")):
        return None
    for name in _name_candidates(cells.text("model")):
        shape = public_model(name)
        if shape is not None and all(
            stated.get(size, getattr(shape, size)) == getattr(shape, size) for size in _SAME_MODEL
        ):
            return shape
    return None


def _name_candidates(name: str) -> list[str]:
    """Return the names that a cell may mean: the whole text, the text without brackets, and that in brackets."""
    inside = re.findall(r"\(([^()]{2,60})\)", name)
    return [name, re.sub(r"\s*\([^()]*\)", "", name), *inside] if name else []


def _take_public(cells: Cells, values: dict[str, Any], public: ModelShape) -> None:
    """Fill in the values of the public model that the row does not state."""
    why = f"the public model {public.name}"
    plain = {item.name: item.default for item in fields(ModelShape)}
    for name, default in plain.items():
        value = getattr(public, name) if name != "seq" else min(public.seq, MAX_SEQ)
        if name in values or name in ("name", "flash_attention"):
            continue
        values[name] = value
        follows = name == "head_dim" and value * values["heads"] == values["hidden"]
        if (name == "gated_mlp" or value != default) and not follows:
            cells.assume(f"model.{name}", value, why)


def _take_usual(cells: Cells, values: dict[str, Any], software: RunSoftware, *, is_moe: bool) -> None:
    """Fill in the usual shape of a GPT, a Llama or a mixture of experts."""
    gated = values.setdefault("gated_mlp", None)
    if gated is None:
        gated = values["gated_mlp"] = _is_gated(cells)
    values.setdefault("tied_embeddings", not gated)
    values.setdefault("learned_positions", not gated)
    if "seq" not in values:
        length = 2048 if software.year <= 2022 or not gated else 4096
        values["seq"] = cells.assume("model.seq", length, f"usual in {software.year}")
    if "vocab" not in values:
        values["vocab"] = _choose_vocab(cells, software, gated=gated)
    if is_moe:
        _take_experts(cells, values)
    _take_size(cells, values, gated=gated)
    if cells.wrong:
        return
    _take_heads(cells, values)
    if "ffn" not in values:
        _take_ffn(cells, values, gated=gated, is_moe=is_moe)
    if is_moe and "expert_ffn" not in values:
        values["expert_ffn"] = cells.assume("model.expert_ffn", values["ffn"], "an expert is as wide as the dense MLP")


def _is_gated(cells: Cells) -> bool:
    """Return whether the MLP has three matrices, by the kind of model."""
    architecture, name = cells.text("arch").lower(), cells.text("model").lower()
    if architecture in _PLAIN_ARCHITECTURES:
        return False
    if architecture:
        return True
    return bool(cells.assume("model.gated_mlp", not any(word in name for word in _PLAIN_WORDS), "by the model's name"))


def _choose_vocab(cells: Cells, software: RunSoftware, *, gated: bool) -> int:
    """Return the usual vocabulary."""
    if not gated or "gpt" in cells.text("model").lower():
        padded = _round_up(GPT2_VOCAB, 128 * (cells.size("tp") or 1))
        return int(cells.assume("model.vocab", padded, "GPT-2's tokenizer, padded as Megatron-LM does"))
    if software.year <= 2023 or _LLAMA_2.search(cells.text("model")):
        return int(cells.assume("model.vocab", LLAMA2_VOCAB, "Llama's tokenizer"))
    if _find_most_rows(cells) < LLAMA3_VOCAB:
        return int(cells.assume("model.vocab", LLAMA2_VOCAB, "a small model's: Llama 3's would be most of it"))
    return int(cells.assume("model.vocab", LLAMA3_VOCAB, "Llama 3's tokenizer"))


def _find_most_rows(cells: Cells) -> float:
    """Return how many rows the embedding of a model of the stated size may have, infinite where no size is stated."""
    params_b = cells.quantity("params_b") or _parse_named_size(cells)
    if params_b is None:
        return math.inf
    width = WIDTH_OVER_LAYERS * _find_usual_depth(params_b * 1e9)
    return float(MOST_EMBEDDING * params_b * 1e9 / width)


def _find_usual_depth(parameters: float) -> float:
    """Return the layers of a model of so many parameters that is as deep and wide as usual."""
    return float((parameters / (12 * WIDTH_OVER_LAYERS**2)) ** (1 / 3))


def _take_experts(cells: Cells, values: dict[str, Any]) -> None:
    """Fill in how many experts there are and how many a token passes."""
    if "experts" not in values:
        values["experts"] = cells.assume("model.experts", 8, "eight experts are usual where nothing is stated")
    if "top_k" not in values:
        values["top_k"] = cells.assume("model.top_k", min(2, values["experts"]), "two experts a token")


def _take_size(cells: Cells, values: dict[str, Any], *, gated: bool) -> None:
    """Fill in layers and width, from the number of parameters where one of them is missing."""
    if "layers" in values and "hidden" in values:
        return
    params_b = cells.quantity("params_b") or _parse_named_size(cells)
    if params_b is None:
        missing = [name for name in ("layers", "hidden") if name not in values]
        cells.wrong.append(f"{' and '.join(missing)} not stated, and no params_b to find out from")
        return
    parameters = params_b * 1e9
    if "hidden" not in values and "layers" not in values:
        layers = max(round(_find_usual_depth(parameters) / 4) * 4, 4)
        values["layers"] = cells.assume("model.layers", layers, f"width over depth of {WIDTH_OVER_LAYERS}, as GPT-3's")
    why = f"fits {params_b:g} billion parameters"
    if "hidden" not in values:
        size = _solve_size(values, "hidden", parameters, gated=gated, step=128, maximum=1 << 17)
        values["hidden"] = cells.assume("model.hidden", size, why)
    else:
        step = cells.size("pp") or 1
        step = step if step <= MAX_LAYERS // 4 else 1
        size = _solve_size(values, "layers", parameters, gated=gated, step=1, maximum=MAX_LAYERS)
        nearest = max(round(size / step), 1) * step
        values["layers"] = cells.assume("model.layers", nearest if abs(nearest - size) <= 1 else size, why)


def _parse_named_size(cells: Cells) -> float | None:
    """Return the billions of parameters in the model's name, ``None`` where it has none."""
    match = _SIZE_IN_NAME.search(cells.text("model"))
    return float(match[1]) * {"b": 1.0, "m": 1e-3}[match[2].lower()] if match and float(match[1]) > 0 else None


def _solve_size(
    values: Mapping[str, Any], name: str, parameters: float, *, gated: bool, step: int, maximum: int
) -> int:
    """Return the size, a multiple of ``step``, with which the parameters are nearest to the published ones."""

    def miss(count: int) -> float:
        return abs(_estimate_parameters({**values, name: count * step}, gated=gated) / parameters - 1)

    low, high = 1, max(maximum // step, 1)
    while low < high:  # parameters grow with every size: bisect for the first that is not too small
        middle = (low + high) // 2
        if _estimate_parameters({**values, name: middle * step}, gated=gated) < parameters:
            low = middle + 1
        else:
            high = middle
    return min((max(low - 1, 1), low), key=miss) * step


def _estimate_parameters(values: Mapping[str, Any], *, gated: bool) -> float:
    """Return the approximate parameters of a shape; missing sizes are the usual ones."""
    hidden, layers = float(values["hidden"]), float(values["layers"])
    heads = values.get("heads") or max(hidden // HEAD_DIM, 1)
    width = heads * values["head_dim"] if "head_dim" in values else hidden
    kv_width = width * (values.get("kv_heads") or heads) / heads
    matrices = 3 if gated else 2
    ffn = values.get("ffn") or _usual_ffn(int(hidden), gated=gated)
    experts = values.get("experts", 0)
    inner = experts * values.get("expert_ffn", ffn) if experts else ffn
    ends = (1 if values.get("tied_embeddings", True) else 2) * values["vocab"] * hidden
    return float(layers * (2 * hidden * (width + kv_width) + matrices * hidden * inner) + ends)


def _usual_ffn(hidden: int, *, gated: bool) -> int:
    """Return the inner width of GPT's MLP (4 h) and of Llama's (8/3 h, up to a multiple of 256)."""
    return _round_up(8 * hidden // 3, _FFN_MULTIPLE) if gated else 4 * hidden


def _take_heads(cells: Cells, values: dict[str, Any]) -> None:
    """Fill in heads, key and value heads, and the width of a head."""
    hidden = values["hidden"]
    if "heads" not in values:
        tp = cells.size("tp") or 1
        groups = math.lcm(tp, values.get("kv_heads") or 1)
        fitting = [heads for heads in range(1, min(hidden, 1024) + 1) if hidden % heads == 0 and heads % groups == 0]
        heads = min(fitting or [1], key=lambda heads: abs(math.log(hidden / heads / HEAD_DIM)))
        values["heads"] = cells.assume("model.heads", heads, f"heads about {HEAD_DIM} wide")
    if "kv_heads" not in values:
        values["kv_heads"] = cells.assume("model.kv_heads", values["heads"], "every head has its own key and value")
    if "head_dim" not in values:
        values["head_dim"] = max(hidden // values["heads"], 1)
        if hidden % values["heads"]:
            cells.assume("model.head_dim", values["head_dim"], f"hidden {hidden} / heads {values['heads']}")


def _take_ffn(cells: Cells, values: dict[str, Any], *, gated: bool, is_moe: bool) -> None:
    """Fill in the MLP: the usual one, or the one that gives the published number of parameters."""
    hidden, params_b = values["hidden"], cells.quantity("params_b")
    usual = _usual_ffn(hidden, gated=gated)
    rule = f"8/3 of hidden {hidden}, up to a multiple of 256" if gated else f"4 x hidden {hidden}"
    chosen = usual
    if params_b is not None and not is_moe:
        parameters = params_b * 1e9
        if abs(_estimate_parameters({**values, "ffn": usual}, gated=gated) / parameters - 1) > OFF_BY:
            chosen = _solve_size(values, "ffn", parameters, gated=gated, step=256, maximum=1 << 18)
            rule = f"fits {params_b:g} billion parameters"
    values["ffn"] = chosen
    if not is_moe or "expert_ffn" not in values:
        cells.assume("model.ffn", chosen, rule)


def _build_shape(
    cells: Cells, values: dict[str, Any], software: RunSoftware, *, fused_attention: bool
) -> ModelShape | None:
    """Return the shape of complete values."""
    values["flash_attention"] = fused_attention
    capacity = cells.quantity("capacity_factor")
    if capacity is not None:
        values["capacity_factor"] = capacity
    elif cells.choice("moe_drop") == "drop":
        values["capacity_factor"] = cells.assume("model.capacity_factor", _CAPACITY, "no capacity is stated")
    if cells.flag("moe_balanced") is False:
        values["expert_imbalance"] = cells.assume("model.expert_imbalance", _UNEVEN_ROUTING, "routing is natural")
    elif cells.flag("moe_balanced") is None and (cells.size("ep") or 1) > 1 and software.routes_naturally:
        why = f"{software.words}: {software.defaults['natural_routing'].why}"
        values["expert_imbalance"] = cells.assume("model.expert_imbalance", _UNEVEN_ROUTING, why)
    take_mixers(cells, values)
    if not values.get("experts"):
        for name in ("top_k", "shared_experts", "expert_ffn", "dense_layers", "shared_ffn"):
            values.pop(name, None)
    elif not values.get("ffn"):
        values["ffn"] = values["expert_ffn"]
    return ModelShape(name=cells.text("model") or "model", **values)


def _round_up(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


def take_mixers(cells: Cells, values: dict[str, Any]) -> None:
    """Add windows and mixers to the values of a row's model, which hold its sizes and those of a public model."""
    _take_stated_mixers(cells, values)
    if (window := cells.size("window")) is not None:
        attending = values["layers"] - values.get("mixer_layers", 0) - values.get("mlp_layers", 0)
        layers = cells.size("windowed_layers") or values.get("windowed_layers") or max(attending, 0)
        values |= {"attention_window": window, "windowed_layers": layers}


def _take_stated_mixers(cells: Cells, values: dict[str, Any]) -> None:
    """Add the mixers that a row states to the values of its model."""
    stated = {name: size for name in MIXER_COLUMNS if (size := cells.size(name)) is not None}
    word = cells.choice("mixer")
    mixer = _WORDS.get(word) or (Mixer(word) if word in tuple(Mixer) else None)
    if mixer is not None and values.get("mixer", mixer) is not mixer and values.get("mixer_layers"):
        for name in ("mixer_layers", *MIXER_SIZES):
            values.pop(name, None)
    values |= stated
    if mixer is None or (not values.get("mixer_layers") and not stated):
        return
    values["mixer"] = mixer
    for name, size in _usual_sizes(mixer, values).items():
        if not values.get(name):
            values[name] = cells.assume(f"model.{name}", size, f"usual of {mixer}")


def _usual_sizes(mixer: Mixer, values: dict[str, Any]) -> dict[str, int]:
    """Return the sizes that are usual: Megatron Core's defaults, Jamba's, Qwen3-Next's, Kimi's and MiniMax's."""
    hidden, heads, width = values["hidden"], values["heads"], values["head_dim"]
    if mixer is Mixer.MAMBA:
        inner = {"mixer_heads": 2 * hidden, "mixer_head_dim": 1, "mixer_groups": 1, "mixer_state": 16}
        return {**inner, "mixer_conv": 4, "mixer_rank": -(-hidden // 16)}
    if mixer is Mixer.MAMBA2:
        number = max(2 * hidden // 64, 1)
        groups = next(groups for groups in (8, 4, 2, 1) if number % groups == 0)
        return {
            "mixer_heads": number,
            "mixer_head_dim": 64,
            "mixer_groups": groups,
            "mixer_state": 128,
            "mixer_conv": 4,
        }
    if mixer is Mixer.GATED_DELTANET:
        groups = max(hidden // 128, 1)
        number = {"mixer_heads": 2 * groups, "mixer_groups": groups}
        return {**number, "mixer_head_dim": 128, "mixer_state": 128, "mixer_conv": 4}
    of_attention = {"mixer_heads": heads, "mixer_groups": heads}
    if mixer is Mixer.KDA:
        return {**of_attention, "mixer_head_dim": 128, "mixer_state": 128, "mixer_conv": 4, "mixer_rank": 128}
    return {**of_attention, "mixer_head_dim": width, "mixer_state": width}
