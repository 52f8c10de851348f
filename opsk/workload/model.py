"""What does the trained network look like?

``ModelShape`` is complete and is what the cost model takes. ``StatedModel`` is what somebody wrote down: every field
may be missing, and a missing field means "cannot tell".
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from opsk.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedModel:
    """The part of a model's shape that a script states; ``None`` is "cannot tell".

    Sizes count elements: ``hidden`` is the width of the residual stream, ``ffn`` the inner width of the dense MLP,
    ``expert_ffn`` the inner width of one routed expert, ``seq`` the tokens of one training sequence.
    ``vocab`` is the number of rows of the embedding as allocated, padding included, where that is stated.
    """

    name: str | None = None
    layers: int | None = None
    hidden: int | None = None
    ffn: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    seq: int | None = None
    gated_mlp: bool | None = None
    experts: int | None = None
    top_k: int | None = None
    shared_experts: int | None = None
    expert_ffn: int | None = None
    tied_embeddings: bool | None = None
    learned_positions: bool | None = None
    flash_attention: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A complete decoder-only transformer, as the cost model takes it.

    Parameters
    ----------
    layers, hidden, ffn, heads, kv_heads, head_dim, vocab, seq
        As in `StatedModel`; ``ffn`` is the dense MLP's inner width.
    gated_mlp
        True for SwiGLU and GeGLU (three matrices), False for two.
    experts, top_k, shared_experts, expert_ffn
        Mixture of experts: routed experts a layer, experts a token, shared experts a layer, inner width of one expert;
        ``experts`` is 0 for a dense model.
    tied_embeddings
        True when the output head reuses the input embedding.
    learned_positions
        True when there is a trained table of ``seq`` x ``hidden`` positions.
    flash_attention
        True when the attention matrix is never stored.

    Raises
    ------
    InputError
        Names every field that is out of range.
    """

    name: str = "model"
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    seq: int
    gated_mlp: bool = False
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    tied_embeddings: bool = True
    learned_positions: bool = False
    flash_attention: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that cannot exist, naming all that is wrong with it."""
        wrong = [
            f"{name} is {value}, must be at least 1"
            for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq")
            if (value := getattr(self, name)) < 1
        ]
        wrong += [
            f"{name} is {value}, must not be negative"
            for name in ("experts", "top_k", "shared_experts", "expert_ffn")
            if (value := getattr(self, name)) < 0
        ]
        if self.kv_heads >= 1 and self.heads % self.kv_heads:
            wrong.append(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.experts and not 1 <= self.top_k <= self.experts:
            wrong.append(f"top_k {self.top_k} is not between 1 and experts {self.experts}")
        if self.experts and self.expert_ffn < 1:
            wrong.append("expert_ffn is missing for a mixture of experts")
        if wrong:
            raise InputError(f"model {self.name}: " + "; ".join(wrong))


MODEL_FIELDS = tuple(field.name for field in fields(StatedModel))
