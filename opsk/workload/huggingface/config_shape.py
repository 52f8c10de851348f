"""Reads the sizes and flags of a model from a parsed ``config.json``, with the key that states each.

``max_position_embeddings`` is the longest sequence that the model accepts, not the one that is trained: ``seq`` stays
open. Quantisation and generation settings do not affect the shape and are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opsk.workload.huggingface import families

MAX_TEXT = 200
MAX_COUNT = 10**9

NESTED = ("text_config", "llm_config", "language_config", "language_model")
"""Keys under which a model of several parts holds the shape of its decoder."""
KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim", "v_head_dim"),
    "ffn": ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "num_selected_experts", "moe_k"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size"),
}
_MAY_BE_ZERO = frozenset({"experts", "top_k", "shared_experts", "expert_ffn"})
_PARTS = ("attn_config", "ffn_config")
_PART_KEYS = {"kv_heads": ("kv_n_heads",), "ffn": ("ffn_hidden_size",)}
"""MPT and DBRX hold part of the shape in nested objects."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFault:
    """A wrong or doubtful value, with the path of its key, and a remedy.

    ``is_doubt`` means that the shape can be read all the same.
    """

    what: str
    path: Path
    hint: str
    is_doubt: bool = False


class ConfigShape:
    """The shape that one parsed file states.

    ``fields`` has the fields of `ModelShape` that the file states or its family fixes, ``paths`` the key of each,
    ``faults`` the errors and doubts. ``values`` is the object that describes the decoder, ``root`` the whole file.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.path: Path = ()
        self.root = self.values = root
        self.fields: dict[str, Any] = {}
        self.paths: dict[str, Path] = {}
        self.faults: list[ConfigFault] = []
        self._enter_decoder()
        kind = self.values.get("model_type", root.get("model_type"))
        self.family = kind[:MAX_TEXT] if isinstance(kind, str) else ""

    @property
    def is_decoder(self) -> bool:
        """Whether the file describes a decoder-only transformer."""
        return self.root.get("is_encoder_decoder") is not True and self.family not in families.NOT_DECODERS

    def read_sizes(self) -> None:
        """Read name, sizes, experts and the flags that nearly every file states."""
        self._name()
        for name, keys in KEYS.items():
            self.take_first(name, keys, self.values, self.path)
        self._parts()
        self._heads()
        self._ffn()
        self._experts()
        self._flags()

    def _enter_decoder(self) -> None:
        """Select the decoder's nested object, when the shape is not at the top level."""
        for name in NESTED:
            inner = self.root.get(name)
            if isinstance(inner, dict) and not any(key in self.root for key in KEYS["layers"]):
                self.values, self.path = inner, (name,)
                what = f"only the text decoder ({name}) is read; the other parts of the model are not counted"
                self.doubt(what, (name,), "expect more memory when they are trained too")
                return

    def _name(self) -> None:
        """State the display name: the last part of the path that it was saved under, or the family."""
        for key in ("_name_or_path", "name_or_path", "model_type"):
            written = self.root.get(key)
            shown = written.rstrip("/").rpartition("/")[2][:MAX_TEXT] if isinstance(written, str) else ""
            if shown.strip("."):
                self.state("name", shown, (key,))
                return

    def take_first(
        self, name: str, keys: Iterable[str], values: Mapping[str, Any], path: Path, *, minimum: int = 1
    ) -> None:
        """State the first of several keys that holds a count."""
        if name in self.fields:
            return
        minimum = 0 if name in _MAY_BE_ZERO else minimum
        for key in keys:
            value = values.get(key)
            if value is None:
                continue
            if type(value) is int and minimum <= value < MAX_COUNT:
                self.state(name, value, (*path, key))
                return
            what = f"{key} is {repr(value)[:60]}, must be a whole number from {minimum} on"
            self.faults.append(ConfigFault(what=what, path=(*path, key), hint="correct the file"))

    def _parts(self) -> None:
        """Read the nested objects of MPT and DBRX."""
        for part in _PARTS:
            inner = self.values.get(part)
            if isinstance(inner, dict):
                for name, keys in (*_PART_KEYS.items(), *KEYS.items()):
                    if name not in ("hidden", "layers", "vocab"):
                        self.take_first(name, keys, inner, (*self.path, part))

    def _heads(self) -> None:
        """State the key and value heads of families that do not give their number."""
        heads = self.fields.get("heads")
        if self.family in ("gpt_bigcode", "falcon") and not self.values.get("new_decoder_architecture"):
            alone = self.values.get("multi_query", True)
            if isinstance(alone, bool):
                self.forget("kv_heads")
                self.state_if("kv_heads", 1 if alone else heads, self.or_family("multi_query"))
        elif "kv_heads" in self.fields:
            return
        elif self.values.get("multi_query") is True:
            self.state("kv_heads", 1, (*self.path, "multi_query"))
        elif self.family in families.ALL_HEADS | families.HEADS_BY_DEFAULT or (
            self.family in ("falcon", "mpt") or self.values.get("multi_query") is False
        ):
            self.state_if("kv_heads", heads, self.or_family("multi_query"))

    def _ffn(self) -> None:
        """State the inner width of families that do not give it, or give it by other keys."""
        ratio = self.values.get("expansion_ratio", 4)
        hidden = self.fields.get("hidden")
        if "ffn" not in self.fields and self.family in families.FOUR_TIMES and hidden and ratio in (1, 2, 3, 4, 8):
            self.state("ffn", int(ratio) * hidden, self.or_family("expansion_ratio"))
        if self.family in families.HALF_FFN and "ffn" in self.fields:
            half = self.fields["ffn"] // 2
            self.forget("ffn")
            self.state_if("ffn", half, (*self.path, "intermediate_size"))

    def _experts(self) -> None:
        """State what a mixture of experts leaves to its family."""
        if not self.fields.get("experts"):
            for name in ("top_k", "shared_experts", "expert_ffn"):
                self.forget(name)
            return
        if not self.fields.get("expert_ffn"):
            self.forget("expert_ffn")
            width, path = self.values.get("intermediate_size"), (*self.path, "intermediate_size")
            if type(width) is not int or not 0 < width < MAX_COUNT:
                width, path = self.fields.get("ffn"), (*self.path, "ffn_config", "ffn_hidden_size")
            self.state_if("expert_ffn", width, path)
        shared, width = self.values.get("shared_expert_intermediate_size"), self.fields.get("expert_ffn")
        if "shared_experts" in self.fields:
            return
        if type(shared) is int and width and shared >= 0 and shared % width == 0:
            self.state("shared_experts", shared // width, (*self.path, "shared_expert_intermediate_size"))
        elif self.family in ("llama4", "llama4_text"):
            self.state("shared_experts", 1, self.or_family(""))

    def _flags(self) -> None:
        """State gating, tied embeddings and learned positions, each by its key or by the family."""
        activation = self.values.get("hidden_act", self.values.get("hidden_activation", ""))
        gated = by_family(self.family, families.GATED, families.PLAIN)
        if gated is not None:
            self.state("gated_mlp", gated, self.or_family(""))
        elif isinstance(activation, str) and activation in families.GATED_ACTIVATIONS | families.PLAIN_ACTIVATIONS:
            key = "hidden_act" if "hidden_act" in self.values else "hidden_activation"
            self.state("gated_mlp", activation in families.GATED_ACTIVATIONS, (*self.path, key))
        for values, path in ((self.values, self.path), (self.root, ())):
            tied = values.get("tie_word_embeddings")
            if isinstance(tied, bool) and "tied_embeddings" not in self.fields:
                self.state("tied_embeddings", tied, (*path, "tie_word_embeddings"))
        if "tied_embeddings" not in self.fields:
            tied = by_family(self.family, families.TIED, families.UNTIED)
            self.state_if("tied_embeddings", tied, self.or_family(""))
        learned = by_family(self.family, families.LEARNED_POSITIONS, families.NO_LEARNED_POSITIONS)
        if learned is not None:
            self.state("learned_positions", learned, self.or_family(""))
        elif "rope_theta" in self.values:
            self.state("learned_positions", False, (*self.path, "rope_theta"))

    def or_family(self, key: str) -> Path:
        """Return the path of a key, or that of the family's name where the key is not given."""
        if key in self.values:
            return (*self.path, key)
        return (*self.path, "model_type") if "model_type" in self.values else ("model_type",)

    def state(self, name: str, value: object, path: Path) -> None:
        """Set a value and the path of the key that states it."""
        self.fields[name] = value
        self.paths[name] = path

    def state_if(self, name: str, value: object, path: Path) -> None:
        """Set a value unless it is ``None``."""
        if value is not None:
            self.state(name, value, path)

    def forget(self, name: str) -> None:
        """Remove a value."""
        self.fields.pop(name, None)
        self.paths.pop(name, None)

    def refuse(self) -> None:
        """Report that the file does not describe a decoder."""
        what = f"{self.family or 'the model'} is no decoder-only transformer, and is not predicted"
        self.doubt(what, ("model_type",), "state the shape of a comparable decoder in #OPSK lines")

    def doubt(self, what: str, path: Path, hint: str) -> None:
        """Report a part of the shape that is modelled only approximately."""
        self.faults.append(ConfigFault(what=what, path=path, hint=hint, is_doubt=True))


def by_family(family: str, yes: frozenset[str], no: frozenset[str]) -> bool | None:
    """Return what a family fixes, ``None`` when it is not known."""
    return True if family in yes else False if family in no else None
