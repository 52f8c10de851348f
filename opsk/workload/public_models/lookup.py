"""Looks up the shape and the published parameter count of a public model by name.

The numbers are in ``catalogue/*.toml``, each with its source, and for more names in ``catalogue/names.tsv``, which
``docs/programs/tables/public_models.py`` writes. People, frameworks and papers spell names differently:
``Meta-Llama-3-8B``, ``LLAMA3_8B`` and ``llama-3-8b`` are one model.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from opsk.errors import ConfigError, InputError
from opsk.workload.model import ModelShape
from opsk.workload.public_models.derived_names import find_base

_ORGANISATION = re.compile(r"^(.*/)?(meta[\s_-]+(?=llama))?", re.IGNORECASE | re.DOTALL)
_VARIANT = re.compile(
    r"[\s_-]+(hf|base|instruct|it|chat|pretrain|pretrained|text|(unsloth-)?bnb-4bit)(?=$|[\s_-])", re.IGNORECASE
)
_SEPARATORS = re.compile(r"[^a-z0-9.]+")
_REQUIRED = ("layers", "hidden", "ffn", "heads", "vocab", "seq", "parameters", "source")
_SHAPE = frozenset(item.name for item in fields(ModelShape) if item.name != "measured")
_TRUTHS = frozenset(item.name for item in fields(ModelShape) if str(item.type).startswith("bool"))
TABLE = "names.tsv"
_ABOUT = frozenset(
    {"like", "aliases", "parameters", "active_parameters", "active_counts_embedding", "source", "rounded"}
)


class Kind(StrEnum):
    """What a listed model is."""

    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"
    VISION = "vision"
    CLIP = "clip"
    SPEECH = "speech"
    DIFFUSION = "diffusion"


COUNTED = (Kind.DECODER, Kind.ENCODER, Kind.ENCODER_DECODER, Kind.VISION)
"""Kinds that are predicted as layers of a transformer; the others have parts that are not: convolutions, two towers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicModel:
    """A published model.

    Parameters
    ----------
    shape
        Its shape; ``seq`` is the length of the sequences that it was trained on, or the shortest of several stages.
    parameters, active_parameters
        Published counts; of all parameters, and of those that a token passes (``None`` where none is published).
    active_counts_embedding
        Whether ``active_parameters`` counts the embedding.
    source
        Where shape and counts were published.
    rounded
        True where ``parameters`` is printed with a few digits only.
    aliases
        Aliases that the normalisation does not unify with its name.
    """

    shape: ModelShape
    parameters: int
    source: str
    active_parameters: int | None = None
    active_counts_embedding: bool = True
    rounded: bool = False
    aliases: tuple[str, ...] = ()


def public_model(name: str) -> ModelShape | None:
    """Return the shape of the public model that ``name`` means; ``None`` where it means none, or more than one.

    Case, separators, the organisation before a slash and words such as ``Instruct`` do not count; separators do where
    names differ in them alone (OPT-1.3B and OPT-13B).

    Examples
    --------
    >>> public_model("Meta-Llama-3-8B").hidden, public_model("LLAMA3_70B").layers
    (4096, 80)
    >>> public_model("OPT-1.3B").layers, public_model("OPT13B")
    (24, None)
    """
    names, words = _names(), normalise_words(name)
    match = names.get(words) or names.get(join_words(words))
    if match:
        return public_models()[match].shape
    if words in names or join_words(words) in names:
        return None
    listed = find_listed(name)
    if listed is not None:
        return listed[1] if listed[0] in COUNTED else None
    base = find_base_name(name)
    return public_model(base) if base else None


@lru_cache(maxsize=512)
def find_base_name(name: str) -> str | None:
    """Return the name of the public model after which another is named; ``None`` where that is not certain.

    Examples
    --------
    >>> find_base_name("elyza/Llama-3-ELYZA-JP-8B"), find_base_name("my-model-8b")
    ('llama-3-8b', None)
    """
    words = normalise_words(name)
    names = _names()
    if words in names or join_words(words) in names or find_listed(name) is not None:
        return None
    return find_base(words, *_list_text_models())


@cache
def _list_text_models() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of models of text, and those of them whose sizes are words: the families of before 2020."""
    rows = {kind: {row for row in _table().values() if row.startswith(f"{kind}\t")} for kind in COUNTED[:3]}
    listed = {kind: {key for row in rows[kind] for key in row.rpartition("\t")[2].split()} for kind in rows}
    names = {words for words, model in _names().items() if model}
    sizeless = {words for words in names if words.startswith(("gpt2", "t5-", "flan-t5"))}
    sizeless |= {name for kind in COUNTED[1:3] for name in listed[kind] if not name.startswith("whisper")}
    return frozenset(names.union(*listed.values())), frozenset(sizeless)


def has_own_length(name: str | None) -> bool:
    """Return whether a model fixes the length of its sequences: a vision transformer's are the patches of an image."""
    listed = find_listed(name) if name else None
    return listed is not None and listed[0] is Kind.VISION


def find_listed(name: str) -> tuple[Kind, ModelShape] | None:
    """Return kind and shape of a model of the table of names; ``None`` where it has no such name."""
    words = normalise_words(name)
    row = _table().get(words)
    return _parse_row(row, words) if row is not None else None


def iterate_listed() -> Iterator[tuple[Kind, ModelShape, tuple[str, ...]]]:
    """Yield kind, shape and normalised names of each row of the table of names."""
    for row in dict.fromkeys(_table().values()):
        names = tuple(row.rpartition("\t")[2].split())
        yield (*_parse_row(row, names[0]), names)


def _parse_row(row: str, name: str) -> tuple[Kind, ModelShape]:
    """Return kind and shape of a row of the table of names."""
    kind, sizes, *_ = row.split("\t")
    shape: dict[str, Any] = {}
    for pair in sizes.split():
        key, _, value = pair.partition("=")
        shape[key] = value == "1" if key in _TRUTHS else int(value)
    shape.setdefault("kv_heads", shape["heads"])
    shape.setdefault("head_dim", shape["hidden"] // shape["heads"])
    return Kind(kind), ModelShape(name=name, **shape)


@cache
def _table() -> Mapping[str, str]:
    """Return the row of the table that has each name; a row is parsed only where it is asked for."""
    text = files("opsk.workload.public_models").joinpath("catalogue", TABLE).read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {key: row for row in rows for key in row.rpartition("\t")[2].split()}


def normalise_words(name: str) -> str:
    """Return the normalised words of a name, which are compared first.

    Examples
    --------
    >>> normalise_words("meta-llama/Meta-Llama-3-8B-Instruct"), normalise_words("Qwen2.5 14B")
    ('llama-3-8b', 'qwen2.5-14b')
    """
    bare = _VARIANT.sub("", _ORGANISATION.sub("", name.strip()))
    return _SEPARATORS.sub("-", bare.casefold()).strip("-.")


def join_words(words: str) -> str:
    """Return the words without separators, which are compared where no model has exactly these words."""
    return re.sub(r"[-.]", "", words)


@cache
def public_models() -> Mapping[str, PublicModel]:
    """Return the catalogue: name to model, in the order of its files."""
    models: dict[str, PublicModel] = {}
    for origin, text in _catalogue_files():
        models |= read_catalogue(text, origin=origin)
    return models


def read_catalogue(text: str, *, origin: str) -> dict[str, PublicModel]:
    """Return the models that one catalogue file describes.

    Raises
    ------
    ConfigError
        Lists all that is wrong with the file.
    """
    wrong: list[str] = []
    tables: dict[str, dict[str, Any]] = {}
    models: dict[str, PublicModel] = {}
    for name, table in tomllib.loads(text).items():
        parent = tables.get(table.get("like", name), {} if "like" not in table else None)
        unknown = sorted(set(table) - _SHAPE - _ABOUT)
        if parent is None or unknown:
            wrong.append(f"{name}: unknown {', '.join(unknown) or table['like']}")
            continue
        tables[name] = {key: value for key, value in parent.items() if key not in _ABOUT} | table
        missing = [key for key in _REQUIRED if key not in tables[name]]
        if missing:
            wrong.append(f"{name}: {', '.join(missing)} is missing")
            continue
        try:
            models[name] = _model(name, tables[name])
        except (InputError, TypeError) as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ConfigError(f"{origin}: {'; '.join(wrong)}")
    return models


def _model(name: str, table: dict[str, Any]) -> PublicModel:
    """Build one model; key and value heads and head width default to values derived from the heads."""
    shape = {key: value for key, value in table.items() if key in _SHAPE}
    shape.setdefault("kv_heads", shape["heads"])
    shape.setdefault("head_dim", shape["hidden"] // shape["heads"])
    return PublicModel(
        shape=ModelShape(name=name, **shape),
        parameters=table["parameters"],
        source=table["source"],
        active_parameters=table.get("active_parameters"),
        active_counts_embedding=table.get("active_counts_embedding", True),
        rounded=table.get("rounded", False),
        aliases=tuple(table.get("aliases", ())),
    )


@cache
def _names() -> Mapping[str, str | None]:
    """Return the model of every name and alias; ``None`` for an ambiguous one."""
    exact: dict[str, str | None] = {}
    loose: dict[str, str | None] = {}
    for name, model in public_models().items():
        for words in {normalise_words(entry) for entry in (name, *model.aliases)}:
            exact[words] = name if exact.get(words, name) == name else None
            key = join_words(words)
            loose[key] = name if loose.get(key, name) == name else None
    return loose | exact


def _catalogue_files() -> Iterator[tuple[str, str]]:
    """Yield name and text of every catalogue file."""
    folder = files("opsk.workload.public_models").joinpath("catalogue")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            yield f"catalogue/{file.name}", file.read_text(encoding="utf-8")
