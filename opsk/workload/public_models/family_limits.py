"""Names the largest models of the family after which an unknown one is named: ``our-lab/newsBERT``.

Only families count that have a largest member in practice, beyond which a name says that it is larger.
"""

from __future__ import annotations

import re
from functools import lru_cache

from opsk.workload.public_models.lookup import normalise_words

_SPEECH = ("facebook/wav2vec2-large-xlsr-53", "facebook/hubert-large-ls960-ft")
_FAMILIES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), names)
    for pattern, names in (
        (r"\w*whisper\w*", ("openai/whisper-large-v3",)),
        (r"\w*(wav2vec2?|hubert|wavlm|xlsr)\w*", _SPEECH),
        (r"\w*gpt2\w*", ("gpt2-xl",)),
        (r"opus", ("Helsinki-NLP/opus-mt-en-es",)),
        (r"\w*bart(ez|pho)?", ("facebook/mbart-large-50",)),
        (r"[a-z]*t5[a-z]*", ("google/mt5-large",)),
        (r"[a-z]*bert[a-z]*\d?", ("roberta-large", "xlm-roberta-large", "microsoft/deberta-v3-large")),
    )
)
"""Families by a word of their names, the first that matches; large BERT has the shape of large RoBERTa."""
_SIZE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)(b|bn|m)")
MAX_MILLIONS = 300
"""A model whose name says that it has more millions of parameters is none of these families' usual ones."""
_OTHER = re.compile(
    r"x{1,4}l|x{1,4}large|huge|giant|mega\w*|ultra|moe|\d+x\d+b|prot\w*|\w*layers?|custom\w*|scratch|deep\w*|wide|stack\w*"
    r"|modern\w*|mm\w*|nomic|jina|neo\w*|mosaic\w*|long\w*|big\w*|led|funnel|ettin|gte|flash\w*|linear\w*|mamba\w*|rwkv\w*"
    r"|v?lm?vl\w*|vl|visual\w*|vision\w*|image\w*|video\w*|layout\w*|clip\w*|vit\w*|audio\w*|speecht5|multimodal|fusion|col\w*"
    r"|byt5|ul2|flamingo|decision|time\w*|chronos|codet5\w*|bartscore|gptq|awq|gguf|int\d|fp8|\d-?bit|ensemble|dual|siamese"
)
"""Words of models that are larger than a family usually is, have other parts, or read longer texts."""


@lru_cache(maxsize=256)
def find_largest_of_family(name: str) -> tuple[str, ...]:
    """Return the largest models of the family after which a model is named; none where it is named after none.

    Examples
    --------
    >>> find_largest_of_family("our-lab/whisper-small-story"), find_largest_of_family("our-lab/Story-BERT-xl")
    (('openai/whisper-large-v3',), ())
    """
    words = normalise_words(name).split("-")
    sizes = [match for word in words if (match := _SIZE.fullmatch(word))]
    is_larger = any(unit != "m" or float(number) > MAX_MILLIONS for number, unit in (size.groups() for size in sizes))
    if is_larger or any(map(_OTHER.fullmatch, words)):
        return ()
    families = {names for word in words if (names := _find_family(word))}
    return next(iter(families)) if len(families) == 1 else ()


def _find_family(word: str) -> tuple[str, ...]:
    """Return the largest models of the family that a word of a name tells."""
    return next((names for pattern, names in _FAMILIES if pattern.fullmatch(word)), ())
