"""Reads and writes the layouts of layers over pipeline stages that Megatron-LM takes as text.

Source: ``megatron/core/transformer/pipeline_parallel_layer_layout.py`` of Megatron Core 0.13 to 0.20. ``|`` ends a
chunk; ``E`` is the embedding, ``t`` a layer, ``m`` a layer of multi-token prediction, ``L`` the loss; ``t*4`` repeats
one letter, ``(tt|)*30`` several. Chunks are in the order in which a token passes them: stage ``s`` has chunks ``s``,
``s + pp``, ... Megatron-Bridge and NeMo also take a list of words a chunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from opsk.frameworks.layers import chunk_layers
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

LAYOUT = "pipeline_model_parallel_layout"
FIRST, LAST = "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"
COUNTS_EMBEDDING, COUNTS_LOSS = "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"
FLAGS: Mapping[str, str] = MappingProxyType(
    {
        LAYOUT: "--pipeline-model-parallel-layout",
        FIRST: "--decoder-first-pipeline-num-layers",
        LAST: "--decoder-last-pipeline-num-layers",
        COUNTS_EMBEDDING: "--account-for-embedding-in-pipeline-split",
        COUNTS_LOSS: "--account-for-loss-in-pipeline-split",
    }
)
"""Fields of ``TransformerConfig`` that lay out stages, and Megatron-LM's flag of each."""
STATED: Mapping[str, str] = MappingProxyType(
    {
        LAYOUT: "pipeline.layout",
        FIRST: "pipeline.first_layers",
        LAST: "pipeline.last_layers",
        COUNTS_EMBEDDING: "pipeline.counts_embedding",
        COUNTS_LOSS: "pipeline.counts_loss",
    }
)
"""The option of a workload that says that a script has the field."""
MAX_LETTERS = 20_000
"""Far more than the layers and chunks of any model: a longer text is a typo."""
_GROUP = re.compile(r"\(([^()]+)\)\*([0-9]{1,5})")
_LETTER = re.compile(r"([EtmL|])\*([0-9]{1,5})")
_CHUNK = re.compile(r"\[([^\[\]]*)\]")
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_WRITTEN_OUT = 4
"""More layers than these in a chunk are written as ``t*5``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLayout:
    """The chunks of a layout, in the order in which a token passes them.

    Parameters
    ----------
    layers
        Layers of each chunk.
    mtp_chunk, mtp_layers
        The chunk with layers of multi-token prediction, and their number; -1 and 0 where there are none.
    """

    layers: tuple[int, ...]
    mtp_chunk: int = -1
    mtp_layers: int = 0

    def stage_layers(self, pp: int) -> tuple[int, ...]:
        """Return the layers of each of ``pp`` stages, which must divide the chunks."""
        return tuple(sum(self.layers[stage::pp]) for stage in range(pp))


def parse_layout(text: str) -> PipelineLayout:
    """Return the chunks of a layout.

    Raises
    ------
    ValueError
        Its message says what Megatron-LM would not accept.
    """
    chunks = _parse_lists(text) if text.lstrip().startswith("[") else _expand(text).split("|")
    letters = "".join(chunks)
    if wrong := sorted(set(letters) - set("EtmL")):
        raise ValueError(f"{wrong[0]!r} is none of E, t, m and L")
    if not letters.startswith("E") or not letters.endswith("L") or letters.count("E") + letters.count("L") != 2:
        raise ValueError("it must start with E (embedding) and end with L (loss), each of them once")
    with_mtp = [index for index, chunk in enumerate(chunks) if "m" in chunk]
    if len(with_mtp) > 1 or "t" in letters.partition("m")[2]:
        raise ValueError("all m (multi-token prediction) must be in one chunk, after the last t")
    return PipelineLayout(
        layers=tuple(chunk.count("t") for chunk in chunks),
        mtp_chunk=with_mtp[0] if with_mtp else -1,
        mtp_layers=letters.count("m"),
    )


def _expand(text: str) -> str:
    """Return the text with all repetitions written out."""
    for pattern in (_GROUP, _LETTER):
        parts, end, size = [], 0, 0
        for match in pattern.finditer(text := text.replace(",", "").replace(" ", "")):
            parts += [text[end : match.start()], match[1] * min(int(match[2]), MAX_LETTERS)]
            end, size = match.end(), size + len(parts[-1])
            if size > MAX_LETTERS:
                raise ValueError("it has more chunks and layers than any model")
        text = "".join((*parts, text[end:]))
    return text


def _parse_lists(text: str) -> list[str]:
    """Return the chunks of a list of lists of words."""
    chunks = []
    for content in _CHUNK.findall(text[: MAX_LETTERS * 10]):
        words = [word.strip().strip("\"'").lower() for word in content.split(",") if word.strip()]
        if unknown := [word for word in words if word not in _LETTERS]:
            raise ValueError(f"{unknown[0][:40]!r} is none of {', '.join(_LETTERS)}")
        chunks.append("".join(_LETTERS[word] for word in words))
    return chunks or [""]


def write_layout(chunks: Sequence[int], *, mtp_layers: int = 0) -> str:
    """Return the layout of the layers of two chunks or more: ``Et|(tt|)*30mL``."""
    first, *middle, last = [_write_layers(count) for count in chunks]
    runs = [(chunk, len(list(run))) for chunk, run in groupby(middle)]
    written = "".join(f"({chunk}|)*{count}" if count > 1 else f"{chunk}|" for chunk, count in runs)
    return f"E{first}|{written}{last}{'m' * mtp_layers}L"


def _write_layers(count: int) -> str:
    """Return the layers of a chunk."""
    return "t" * count if count <= _WRITTEN_OUT else f"t*{count}"


def has_uneven_chunks(plan: Plan) -> bool:
    """Return whether a chunk of the first or last stage has fewer layers than the stage's others."""
    return bool(plan.first_stage_layers % plan.vpp or plan.last_stage_layers % plan.vpp)


def choose_stage_fields(model: ModelShape, plan: Plan) -> dict[str, int | str | bool]:
    """Return the fields of ``TransformerConfig`` that lay out a plan's stages; empty where all are even.

    Numbers of layers where chunks are even; embedding and loss as layers where it is their place that a chunk lacks;
    else all chunks as a layout.
    """
    first, last = plan.first_stage_layers, plan.last_stage_layers
    if plan.pp == 1 or not (first or last):
        return {}
    if not has_uneven_chunks(plan):
        return {name: layers for name, layers in ((FIRST, first), (LAST, last)) if layers}
    full, rest = divmod(model.layers + (first > 0) + (last > 0), plan.pp)
    if rest or {first, last} - {0} != {full - 1}:
        return {LAYOUT: write_layout(chunk_layers(model, plan), mtp_layers=model.mtp_layers)}
    return {name: True for name, layers in ((COUNTS_EMBEDDING, first), (COUNTS_LOSS, last)) if layers}
