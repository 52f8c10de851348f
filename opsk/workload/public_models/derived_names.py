"""Finds the public model after which people name what they trained further: ``Qwen2.5-0.5B-Instruct-my-task-merged``.

A name is taken only where it has a family and a size that the catalogue lists together, all sizes in it belong to that
one model, and no word says that the shape was changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

MAX_WORDS = 24
"""Words of a name that are looked at: what is longer is no name."""
MAX_FAMILY_WORDS = 5
_SMALLEST = frozenset({"gpt2", "distilgpt2"})
"""Names of one word that are those of one size: the other sizes of the family say so (``gpt2-medium``)."""
_SIZE = re.compile(r"(\d{1,4}x)?\d{1,4}(\.\d{1,3})?[bm]")
_NUMBER = re.compile(r"\d{1,2}")
_CHANGES_SHAPE = re.compile(
    r"(distil\w*|prun\w*|slic\w*|shear\w*|upscal\w*|expand\w*|grow\w*|stack\w*|franken\w*|passthrough|custom|scratch|random\w*|reduced|half|\d*layers?|depth\w*|width\w*|draft"
    r"|\w*mamba\w*|hybrid|rwkv\w*|retnet|linear\w*"
    r"|eagle\d*|medusa|moe|mod|tiny|mini|nano|micro|small|large|medium|base|xl|xxl|huge|giant)"
)
"""Words after which the layers may be others than those of the model that is named."""
_ADDS_PARTS = re.compile(
    r"(\w*vl|vlm\w*|vla|vision|visual|image\w*|img|video\w*|ocr|omni\w*|multimodal|mm|audio\w*|speech\w*|voice|asr|tts|clip\w*|vit\w*"
    r"|siglip|blip\w*|llava\w*|internvl\w*|minigpt\w*|diffusion|dit|vae|encoder|decoder|fusion|adapter\w*|projector)"
)
"""Words of models that have other parts beside the one that is named."""
_HAS_OTHER_WEIGHTS = re.compile(
    r"(gptq|awq|gguf|ggml|exl\d|mlx|hqq|aqlm|bitnet|fp8|nvfp4|mxfp4|int\d|w\d+a\d+|[1-8]-?bit|quant\w*)"
)
"""Words of weights in a format that the name of the model does not tell."""
_DOES_NOT_COUNT = frozenset({"tokens", "toks", "samples", "steps", "ctx", "context", "params"})


def find_base(words: str, names: Collection[str], sizeless: Collection[str] = ()) -> str | None:
    """Return the name of the catalogue after which a model is named; ``None`` where none certainly is.

    Parameters
    ----------
    words
        Normalised words of the name, with a hyphen between.
    names
        Normalised names of the catalogue, and these names without separators.
    sizeless
        Those of them that tell a size without a number: ``roberta-large``.

    Examples
    --------
    >>> find_base("qwen2.5-0.5b-my-task", {"qwen2.5-0.5b", "qwen2.5-7b"}), find_base("my-task-7b", {"qwen2.5-7b"})
    ('qwen2.5-0.5b', None)
    """
    parts = words.split("-")
    if not 1 < len(parts) <= MAX_WORDS:
        return None
    sizes = {part for part in parts if _SIZE.fullmatch(part)}
    known = names if sizes else sizeless
    for start, stop in _iterate_windows(len(parts)):
        window = parts[start:stop]
        is_name = len(window) > 1 or sizes or window[0] in _SMALLEST
        if is_name and sizes <= set(window) and (name := _match("-".join(window), known)):
            return name if _keeps_shape([*parts[:start], *parts[stop:]]) else None
    return _find_apart(parts, sizes, names)


def _match(name: str, names: Collection[str]) -> str | None:
    """Return the spelling of a name that the catalogue has."""
    joined = re.sub(r"[-.]", "", name)
    return name if name in names else joined if joined in names else None


def _iterate_windows(count: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of words that may be a name, the longest first."""
    for length in range(min(count, MAX_FAMILY_WORDS + 2), 0, -1):
        for start in range(count - length + 1):
            yield start, start + length


def _find_apart(parts: Sequence[str], sizes: Collection[str], names: Collection[str]) -> str | None:
    """Return the one model whose family and size stand apart in a name: ``llama-3-my-task-8b``."""
    if len(sizes) != 1:
        return None
    size = next(iter(sizes))
    place = parts.index(size)
    if place and _NUMBER.fullmatch(parts[place - 1]):
        return None  # 1-8b is 1.8b
    places: dict[str, tuple[int, int]] = {}
    for start, stop in _iterate_windows(len(parts)):
        if start <= place < stop:
            continue
        name = _match(f"{'-'.join(parts[start:stop])}-{size}", names)
        is_part = any(first <= start and stop <= last for first, last in places.values())
        if name and not is_part:
            places[name] = (start, stop)
    if len(places) != 1:
        return None
    ((name, (start, stop)),) = places.items()
    rest = [part for index, part in enumerate(parts) if index != place and not start <= index < stop]
    return name if _keeps_shape(rest) else None


def _keeps_shape(rest: Sequence[str]) -> bool:
    """Return whether the words beside a model's name leave its layers and the format of its weights as they are."""
    return not any(
        word in _DOES_NOT_COUNT
        or _CHANGES_SHAPE.fullmatch(word)
        or _ADDS_PARTS.fullmatch(word)
        or _HAS_OTHER_WEIGHTS.fullmatch(word)
        for word in rest
    )
