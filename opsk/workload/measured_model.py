"""Fills in the model of a workload that names one of those that were measured layer by layer."""

from __future__ import annotations

from opsk.units import MIB
from opsk.workload.defaults import Assumption, Filling
from opsk.workload.model import MODEL_FIELDS
from opsk.workload.public_models.measured import PLANNED, MeasuredModel, Unit, find_measured

INPUT_SIZE = "input.size"
"""The option that states the side of an image, in pixels, or the seconds of a sound."""
DATA_SET = "input.data_set"
"""The option that states the name of the data set that a setting of the program names."""
HAS_AVERAGE = "weights.average"
"""The option that states that an average of the weights is held as well (``true``)."""
LOCAL_LOSS = "loss.local"
"""The option that states that a contrastive loss compares the samples of a rank alone with all (``true``)."""
_FIELDS = tuple(name for name in MODEL_FIELDS if name != "name")
_MAX_SIZE = 1 << 16
_USUAL_RANK = 4
"""Rank of the adapters of diffusers' examples unless they are told another (``--rank``)."""


def fill_measured(filling: Filling, name: str) -> bool:
    """Fill in the shape of a measured model; return whether the name is one of those."""
    model = find_measured(name)
    if model is None:
        return False
    options = filling.options
    is_adapted = options.pop("adapters", "") != ""  # they are counted here, not as those of a language model
    rank = (_parse_number(options.get("adapters.rank", "")) or _USUAL_RANK) if is_adapted else 0
    size = _parse_number(options.get(INPUT_SIZE, "")) if model.unit is not Unit.WINDOWS else 0
    shape = model.build_shape(
        size=size or None,
        adapter_rank=rank,
        has_average=options.get(HAS_AVERAGE) == "true",
        is_loss_local=options.get(LOCAL_LOSS) == "true",
    )
    for field in _FIELDS:
        value = getattr(shape, field)
        if value or value is False:
            filling.values[f"model.{field}"] = value
    filling.values["model.measured"] = shape.measured
    filling.assumed.append(
        Assumption(field="model.activations", value=_describe(model, size), why=_explain(model, is_adapted=rank > 0))
    )
    return True


def _describe(model: MeasuredModel, size: int) -> str:
    """Return what a sample stores as text."""
    mib = model.scale(size or None) * model.sample_bytes / MIB
    unit = {Unit.PIXELS: " pixels", Unit.SECONDS: " s", Unit.WINDOWS: " window"}[model.unit]
    return f"{mib:.0f} MiB a sample of {size or model.size}{unit} in 16 bits"


def _explain(model: MeasuredModel, *, is_adapted: bool) -> str:
    """Return where the numbers come from."""
    less = ", less with a frozen base" if is_adapted and model.adapted_bytes else ""
    how = "" if model.kind == PLANNED else ", measured layer by layer without a GPU"
    return f"{model.source}{how}: the range is wide{less}"


def _parse_number(text: str) -> int:
    """Return a whole number, 0 for anything else."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return number if number <= _MAX_SIZE else 0
