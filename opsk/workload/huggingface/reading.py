"""What of a model's shape does a parsed ``config.json`` state, and by which key?

``max_position_embeddings`` is the longest sequence that the model can take, not the one that is trained: ``seq`` stays
open. Quantisation and generation settings say nothing of the shape and are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opsk.workload.huggingface import families

MAX_TEXT = 200
MAX_COUNT = 10**9

NESTED = ("text_config", "llm_config", "language_config", "language_model")
"""Where a model of several parts keeps the shape of its decoder."""
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
"""MPT and DBRX keep part of the shape in objects of their own."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong or doubtful, with the path of the key that says it, and what to do.

    ``is_doubt`` tells that the shape can be read all the same.
    """

    what: str
    path: Path
    hint: str
    is_doubt: bool = False


class ConfigShape:
    """The shape that one parsed file states.

    ``found`` has the fields of `ModelShape` that the file states or its family fixes, ``paths`` the key behind each,
    ``faults`` what is wrong or left out. ``values`` is the object that describes the decoder, ``root`` the whole file.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.path: Path = ()
        self.root = self.values = root
        self.found: dict[str, Any] = {}
        self.paths: dict[str, Path] = {}
        self.faults: list[Fault] = []
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
            self.first_of(name, keys, self.values, self.path)
        self._parts()
        self._heads()
        self._ffn()
        self._experts()
        self._flags()

    def _enter_decoder(self) -> None:
        """Go on in the decoder's own object, when the shape does not stand at the top."""
        for name in NESTED:
            inner = self.root.get(name)
            if isinstance(inner, dict) and not any(key in self.root for key in KEYS["layers"]):
                self.values, self.path = inner, (name,)
                what = f"only the text decoder ({name}) is read; the other parts of the model are not counted"
                self.doubt(what, (name,), "expect more memory when they are trained too")
                return

    def _name(self) -> None:
        """Keep a name for people: the last part of the path it was saved under, or the family."""
        for key in ("_name_or_path", "name_or_path", "model_type"):
            written = self.root.get(key)
            shown = written.rstrip("/").rpartition("/")[2][:MAX_TEXT] if isinstance(written, str) else ""
            if shown.strip("."):
                self.state("name", shown, (key,))
                return

    def first_of(
        self, name: str, keys: Iterable[str], values: Mapping[str, Any], path: Path, *, least: int = 1
    ) -> None:
        """Keep the first of several keys that holds a count."""
        if name in self.found:
            return
        least = 0 if name in _MAY_BE_ZERO else least
        for key in keys:
            value = values.get(key)
            if value is None:
                continue
            if type(value) is int and least <= value < MAX_COUNT:
                self.state(name, value, (*path, key))
                return
            what = f"{key} is {repr(value)[:60]}, must be a whole number from {least} on"
            self.faults.append(Fault(what=what, path=(*path, key), hint="correct the file"))

    def _parts(self) -> None:
        """Read the objects in which MPT and DBRX keep part of the shape."""
        for part in _PARTS:
            inner = self.values.get(part)
            if isinstance(inner, dict):
                for name, keys in (*_PART_KEYS.items(), *KEYS.items()):
                    if name not in ("hidden", "layers", "vocab"):
                        self.first_of(name, keys, inner, (*self.path, part))

    def _heads(self) -> None:
        """Tell the key and value heads of families that do not give their number."""
        heads = self.found.get("heads")
        if self.family in ("gpt_bigcode", "falcon") and not self.values.get("new_decoder_architecture"):
            alone = self.values.get("multi_query", True)
            if isinstance(alone, bool):
                self.forget("kv_heads")
                self.state_if("kv_heads", 1 if alone else heads, self.or_family("multi_query"))
        elif "kv_heads" in self.found:
            return
        elif self.values.get("multi_query") is True:
            self.state("kv_heads", 1, (*self.path, "multi_query"))
        elif self.family in families.ALL_HEADS | families.HEADS_BY_DEFAULT or (
            self.family in ("falcon", "mpt") or self.values.get("multi_query") is False
        ):
            self.state_if("kv_heads", heads, self.or_family("multi_query"))

    def _ffn(self) -> None:
        """Tell the inner width of families that do not give it, or give it another way."""
        ratio = self.values.get("expansion_ratio", 4)
        hidden = self.found.get("hidden")
        if "ffn" not in self.found and self.family in families.FOUR_TIMES and hidden and ratio in (1, 2, 3, 4, 8):
            self.state("ffn", int(ratio) * hidden, self.or_family("expansion_ratio"))
        if self.family in families.HALF_FFN and "ffn" in self.found:
            half = self.found["ffn"] // 2
            self.forget("ffn")
            self.state_if("ffn", half, (*self.path, "intermediate_size"))

    def _experts(self) -> None:
        """Tell what a mixture of experts leaves to its family."""
        if not self.found.get("experts"):
            for name in ("top_k", "shared_experts", "expert_ffn"):
                self.forget(name)
            return
        if not self.found.get("expert_ffn"):
            self.forget("expert_ffn")
            width, path = self.values.get("intermediate_size"), (*self.path, "intermediate_size")
            if type(width) is not int or not 0 < width < MAX_COUNT:
                width, path = self.found.get("ffn"), (*self.path, "ffn_config", "ffn_hidden_size")
            self.state_if("expert_ffn", width, path)
        shared, width = self.values.get("shared_expert_intermediate_size"), self.found.get("expert_ffn")
        if "shared_experts" in self.found:
            return
        if type(shared) is int and width and shared >= 0 and shared % width == 0:
            self.state("shared_experts", shared // width, (*self.path, "shared_expert_intermediate_size"))
        elif self.family in ("llama4", "llama4_text"):
            self.state("shared_experts", 1, self.or_family(""))

    def _flags(self) -> None:
        """Tell gating, tied embeddings and learned positions, each by its key or by the family."""
        activation = self.values.get("hidden_act", self.values.get("hidden_activation", ""))
        gated = by_family(self.family, families.GATED, families.PLAIN)
        if gated is not None:
            self.state("gated_mlp", gated, self.or_family(""))
        elif isinstance(activation, str) and activation in families.GATED_ACTIVATIONS | families.PLAIN_ACTIVATIONS:
            key = "hidden_act" if "hidden_act" in self.values else "hidden_activation"
            self.state("gated_mlp", activation in families.GATED_ACTIVATIONS, (*self.path, key))
        for values, path in ((self.values, self.path), (self.root, ())):
            tied = values.get("tie_word_embeddings")
            if isinstance(tied, bool) and "tied_embeddings" not in self.found:
                self.state("tied_embeddings", tied, (*path, "tie_word_embeddings"))
        if "tied_embeddings" not in self.found:
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
        """Keep a value and the path of the key that states it."""
        self.found[name] = value
        self.paths[name] = path

    def state_if(self, name: str, value: object, path: Path) -> None:
        """Keep a value when there is one."""
        if value is not None:
            self.state(name, value, path)

    def forget(self, name: str) -> None:
        """Drop a value that its family reads otherwise."""
        self.found.pop(name, None)
        self.paths.pop(name, None)

    def refuse(self) -> None:
        """Say that the file describes no decoder."""
        what = f"{self.family or 'the model'} is no decoder-only transformer, and is not predicted"
        self.doubt(what, ("model_type",), "state the shape of a comparable decoder in #OPSK lines")

    def doubt(self, what: str, path: Path, hint: str) -> None:
        """Keep what of the shape is counted only roughly."""
        self.faults.append(Fault(what=what, path=path, hint=hint, is_doubt=True))


def by_family(family: str, yes: frozenset[str], no: frozenset[str]) -> bool | None:
    """Return what a family fixes, ``None`` when it is not known."""
    return True if family in yes else False if family in no else None
