"""What mixes tokens in the layers of a hybrid model that have no attention?

A layer is a mixer (attention, or one of `Mixer`) and an MLP behind it, or in Nemotron-H one of them alone.
"""

from __future__ import annotations

from enum import StrEnum


class Mixer(StrEnum):
    """A kind of layer that passes a state of fixed size from token to token.

    ``mamba``: Gu and Dao 2023 (arXiv 2312.00752); ``mamba2``: Dao and Gu 2024 (arXiv 2405.21060); ``gated-deltanet``:
    Yang et al. 2024 (arXiv 2412.06464); ``kda``: Kimi Linear (arXiv 2510.26692); ``lightning``: MiniMax-01 (arXiv
    2501.08313).
    """

    NONE = "none"
    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    GATED_DELTANET = "gated-deltanet"
    KDA = "kda"
    LIGHTNING = "lightning"


USUAL_CHUNKS = {
    Mixer.NONE: 1,
    Mixer.MAMBA: 1,
    Mixer.MAMBA2: 256,
    Mixer.GATED_DELTANET: 64,
    Mixer.KDA: 64,
    Mixer.LIGHTNING: 256,
}
"""Tokens that a kernel works on at a time: ``chunk_size`` of mamba_ssm's Mamba2, 64 in flash-linear-attention's delta
rules, ``block_size`` of MiniMax's lightning attention. Mamba's scan has no chunks that cost products."""


def kinds_of_pattern(pattern: str) -> tuple[int, int, int, int] | None:
    """Return how many layers are attention, Mamba, dense MLP and experts; ``None`` where a text is no such pattern.

    The letters are those of Megatron Core's ``hybrid_override_pattern``: ``*``, ``M``, ``-`` and ``E``; ``|`` ends a
    pipeline stage, and what follows a ``/`` is multi-token prediction.

    Examples
    --------
    >>> kinds_of_pattern("M-M*ME")
    (1, 3, 1, 1)
    """
    main = pattern.partition("/")[0].replace("|", "")
    if not main or set(main) - set("*M-E"):
        return None
    attention, mamba, dense, experts = (main.count(letter) for letter in "*M-E")
    return attention, mamba, dense, experts
