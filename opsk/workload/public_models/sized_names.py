"""Finds public models that are as large as one whose name tells nothing but its size: ``our-lab/Story-3B``."""

from __future__ import annotations

import re
from functools import lru_cache

from opsk.workload.model import Mixer
from opsk.workload.public_models.lookup import normalise_words, public_models

_SIZE = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)([bm])")
_UNITS = {"b": 10**9, "m": 10**6}
_OTHER = re.compile(
    r"\w*(vl|vla|moe|mamba|rwkv|vision|visual|audio|speech|voice|whisper|video|image|clip|vit|diffusion|omni|multimodal"
    r"|mm|ocr|gptq|awq|gguf|exl\d|mlx|fp8|fp4|\d-?bit|int\d|asr|tts|encoder|dit|unet|llava|blip|gen|hybrid|loop\w*)"
    r"|tokens?|toks?|samples?|steps?|ctx|context|a\d+(\.\d+)?b|\d+x\d+(\.\d+)?b"
)
"""Words of models that are no plain transformers of text, and of numbers that are no size of a model."""
SHARES = (0.95, 1.6)
"""Parameters of models that count as as large as a name says, over what it says."""
MAX_MODELS = 6


@lru_cache(maxsize=256)
def find_as_large(name: str) -> tuple[str, ...]:
    """Return models of the catalogue that have as many parameters as a name tells, or some more; none for other names.

    Examples
    --------
    >>> find_as_large("our-lab/Story-7B")[0], find_as_large("our-lab/Story"), find_as_large("our-lab/Story-7B-VL")
    ('llama-1-7b', (), ())
    """
    words = normalise_words(name).split("-")
    sizes = [match for word in words if (match := _SIZE.fullmatch(word))]
    if len(sizes) != 1 or any(map(_OTHER.fullmatch, words)):
        return ()
    number, unit = sizes[0].groups()
    parameters = float(number) * _UNITS[unit]
    rows = [
        (model.parameters, key)
        for key, model in public_models().items()
        if SHARES[0] * parameters <= model.parameters <= SHARES[1] * parameters and _is_plain(key)
    ]
    return tuple(key for _, key in sorted(rows)[:MAX_MODELS]) if any(count >= parameters for count, _ in rows) else ()


def _is_plain(key: str) -> bool:
    """Return whether a model is a decoder without experts or layers of other kinds."""
    shape = public_models()[key].shape
    return shape.experts <= 1 and not shape.encoder_layers and shape.mixer is Mixer.NONE
