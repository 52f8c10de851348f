"""Reads which layers of a row's model have a mixer instead of attention, and which have a window.

Columns take precedence over the public model; sizes of a stated mixer that are not given are the usual ones of its
kind.
"""

from __future__ import annotations

from typing import Any

from opsk.calibration.runs.cells import Cells
from opsk.workload.model import Mixer

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


def take_mixers(cells: Cells, values: dict[str, Any]) -> None:
    """Add windows and mixers to the values of a row's model, which hold its sizes and those of a public model."""
    if (window := cells.size("window")) is not None:
        layers = cells.size("windowed_layers") or values.get("windowed_layers") or values["layers"]
        values |= {"attention_window": window, "windowed_layers": layers}
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
