"""Looks up models that were measured layer by layer, because they are no plain transformers.

``catalogue/measured.tsv`` has ConvNets, hierarchical vision transformers, models of two towers, of sound and of
diffusion; ``docs/programs/tables/measured_models.py`` writes it. ``detectors.tsv`` has those of Ultralytics, by
``measured_detectors.py``; ``planned.tsv`` has what programs take that plan for a budget of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from opsk.workload.model import MeasuredParts, ModelShape
from opsk.workload.public_models.lookup import has_own_length, normalise_words, public_model
from opsk.workload.public_models.vision_language import find_vision_language

TABLES = ("measured.tsv", "detectors.tsv", "planned.tsv")
PLANNED = "planned"
"""The kind of models whose patch and batch a planner chooses: a whole step of theirs was measured."""
_WIDTH, _HEADS = 1024, 16
_PER_LAYER = 12 * _WIDTH * _WIDTH
"""Parameters of one layer of a transformer of that width."""
ADAPTED_SHARE = 4313
"""Parameters of a frozen model for one of an adapter of rank 1: 859.5 M for 797,184 of rank 4 (diffusers, Stable
Diffusion 1.5)."""


class Unit(StrEnum):
    """What the size of an input counts: the side of a square image, seconds of sound, or windows of a fixed length."""

    PIXELS = "pixels"
    SECONDS = "seconds"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A measured model; bytes and FLOP are those of one sample of ``size``.

    Parameters
    ----------
    kind
        ``image``, ``clip``, ``speech``, ``diffusion`` or ``planned``.
    frozen_parameters
        Those of the models that its usual training programs hold next to it.
    adapted_bytes, adapted_checkpointed_bytes
        What is stored where the model is frozen and has adapters; 0 where that was not measured.
    """

    name: str
    kind: str
    unit: Unit
    size: int
    parameters: int
    frozen_parameters: int
    sample_bytes: int
    sample_fp32_bytes: int
    checkpointed_bytes: int
    part_bytes: int
    adapted_bytes: int
    adapted_checkpointed_bytes: int
    tensor_bytes: int
    forward_flop: int
    source: str

    @property
    def has_checkpoints(self) -> bool:
        """Whether the package that builds it can recompute its parts."""
        return self.checkpointed_bytes > 0

    def scale(self, size: float | None) -> float:
        """Return what a sample of another size stores over what was measured: tokens and pixels count."""
        ratio = (size or self.size) / self.size
        return ratio * ratio if self.unit is Unit.PIXELS else ratio

    def build_shape(
        self,
        *,
        size: float | None = None,
        adapter_rank: int = 0,
        has_average: bool = False,
        is_loss_local: bool = False,
    ) -> ModelShape:
        """Return the shape for the cost model.

        Parameters
        ----------
        size
            Size of the inputs; ``None`` is the measured one.
        adapter_rank
            Rank of adapters, which alone are trained then; 0 for none.
        has_average
            Whether an average of the weights is held as well (EMA), in fp32.
        is_loss_local
            Whether a contrastive loss compares the samples of a rank alone with all.
        """
        factor, is_adapted = self.scale(size), adapter_rank > 0
        stored, checkpointed = self.sample_bytes, self.checkpointed_bytes
        if is_adapted and self.adapted_bytes:
            stored, checkpointed = self.adapted_bytes, self.adapted_checkpointed_bytes
        trained = max(1, adapter_rank * self.parameters // ADAPTED_SHARE) if is_adapted else self.parameters
        frozen = self.frozen_parameters + (self.parameters if is_adapted else 2 * self.parameters * has_average)
        parts = MeasuredParts(
            parameters=trained,
            frozen_parameters=frozen,
            sample_bytes=round(factor * stored),
            sample_fp32_bytes=round(factor * self.sample_fp32_bytes),
            checkpointed_bytes=round(factor * checkpointed),
            part_bytes=round(factor * self.part_bytes),
            tensor_bytes=round(factor * self.tensor_bytes),
            is_contrastive=self.kind == "clip",
            is_loss_local=is_loss_local,
        )
        return ModelShape(
            name=self.name,
            layers=max(1, round(self.parameters / _PER_LAYER)),
            hidden=_WIDTH,
            ffn=4 * _WIDTH,
            heads=_HEADS,
            kv_heads=_HEADS,
            head_dim=_WIDTH // _HEADS,
            vocab=1,
            seq=max(1, round(factor * self.forward_flop / (2 * self.parameters))),
            measured=parts,
        )


def find_measured(name: str) -> MeasuredModel | None:
    """Return the measured model of a name; ``None`` where there is none.

    Names of timm may have the tag of weights behind a dot (``resnet50.a1_in1k``).

    Examples
    --------
    >>> find_measured("microsoft/resnet-50").parameters, find_measured("resnet50.a1_in1k").parameters
    (25557032, 25557032)
    """
    forms = (name.replace("/", "-"), name, name.partition(".")[0])  # DiT-XL/2 has no organisation before the slash
    row = next((row for form in forms if (row := _table().get(normalise_words(form)))), None)
    return _parse_row(row) if row is not None else None


def is_public(name: str) -> bool:
    """Return whether a name means a model of the catalogue whose memory can be predicted."""
    return any(find(name) is not None for find in (public_model, find_measured, find_vision_language))


def fixes_length(name: str | None) -> bool:
    """Return whether a model's samples have a length of their own: the patches of an image, or what was measured."""
    if not name:
        return False
    return has_own_length(name) or (public_model(name) is None and find_measured(name) is not None)


@cache
def _table() -> Mapping[str, str]:
    """Return the row of the table that has each name; a row is parsed only where it is asked for."""
    folder = files("opsk.workload.public_models").joinpath("catalogue")
    text = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in TABLES)
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {normalise_words(name): row for row in reversed(rows) for name in row.rpartition("\t")[2].split()}


@cache
def _parse_row(row: str) -> MeasuredModel:
    """Parse one row."""
    kind, unit, *numbers, source, names = row.split("\t")
    size, parameters, frozen, stored, full, checkpointed, part, adapted, adapted_checkpointed, tensor, flop = map(
        int, numbers
    )
    return MeasuredModel(
        name=names.partition(" ")[0],
        kind=kind,
        unit=Unit(unit),
        size=size,
        parameters=parameters,
        frozen_parameters=frozen,
        sample_bytes=stored,
        sample_fp32_bytes=full,
        checkpointed_bytes=checkpointed,
        part_bytes=part,
        adapted_bytes=adapted,
        adapted_checkpointed_bytes=adapted_checkpointed,
        tensor_bytes=tensor,
        forward_flop=flop,
        source=source,
    )
