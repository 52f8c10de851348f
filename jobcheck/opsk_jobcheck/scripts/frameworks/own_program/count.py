"""States how many parameters the models have that a user's own program makes, where nothing names its model."""

from __future__ import annotations

from opsk.workload.counted_model import (
    COUNTED_INPUT,
    COUNTED_LIMIT,
    COUNTED_PLACES,
    COUNTED_SIZES,
    COUNTED_STEP,
    MARGIN,
    write_sizes,
)
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk.workload.unstated.layer_limit import LayerSums, limit_images, limit_tokens
from opsk.workload.unstated.sample_limit import KnownSizes, SampleLimits, limit_samples
from opsk.workload.unstated.sizes import Size, Task, find_range
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.settings.reader import Reading

JOINED = 32
"""Parts of a sample that a model joins with the samples of a batch, at most: frames of a clip are 8 to 32."""
USUAL_MARGIN = 2
"""What a step may take over that with a sample of the size that a setting names."""


def state_parameters(followed: Followed | None, reading: Reading, inputs: Inputs) -> None:
    """State the parameters of the models that the program makes; see `opsk.workload.counted_parameters`.

    Parameters
    ----------
    inputs
        Sizes of a sample by the settings of the program.
    """
    count = followed.count if followed is not None else None
    if followed is None or count is None:
        return
    for name, span in ((COUNTED, count.parameters), (COUNTED_TRAINED, count.trained)):
        reading.findings.options[name] = str(ParameterRange(low=span.low, high=span.high))
    limit = _limit_by_layers(followed, inputs)
    step = followed.step
    whole = _limit_step(step) if step is not None else None
    if (
        (count.parameters.high is None or whole is None)
        and limit is None
        and _state_open_limit(followed, reading, inputs)
    ):
        return
    if step is None and limit is None:
        return
    if followed.is_usual and whole is not None:
        whole = USUAL_MARGIN * whole
    options = reading.findings.options
    low = step.saved_bytes.low if step is not None else 0
    if limit is not None and low <= limit[1] and (whole is None or limit[1] < MARGIN * whole):
        places, whole = limit
        options[COUNTED_PLACES] = places
        _state_sizes(_limit_samples(followed, inputs), low, options)
    elif followed.is_usual:
        options[COUNTED_INPUT] = "settings"
    options[COUNTED_STEP] = str(ParameterRange(low=low, high=whole))


def has_no_other_models(followed: Followed | None) -> bool:
    """Return whether all models of a program are known to be of its own."""
    layers = followed.open_layers if followed is not None else None
    return layers is not None and not any(row.has_public for row in layers.rows)


def has_step(followed: Followed | None) -> bool:
    """Return whether following a program told what one of its steps stores."""
    return followed is not None and followed.step is not None and _limit_step(followed.step) is not None


def _state_open_limit(followed: Followed, reading: Reading, inputs: Inputs) -> bool:
    """State, and return whether there is, a limit by layers for samples of which only the data tell the size."""
    limits, count = _limit_samples(followed, inputs), followed.count
    low = followed.step.saved_bytes.low if followed.step is not None else 0
    if limits is None or count is None or low > limits.largest.saved_bytes or count.parameters.low > limits.parameters:
        return False  # it runs a layer more often than was seen
    options = reading.findings.options
    options[COUNTED_PLACES] = limits.largest.describe()
    options[COUNTED_LIMIT] = str(limits.parameters)
    options[COUNTED_STEP] = str(ParameterRange(low=low, high=limits.largest.saved_bytes))
    _state_sizes(limits, low, options)
    return True


def _state_sizes(limits: SampleLimits | None, low: int, options: dict[str, str]) -> None:
    """State what a step stores at most with samples of smaller sizes."""
    rows = [(case.describe(), case.saved_bytes) for case in (limits.smaller if limits is not None else ())]
    if rows := [row for row in rows if row[1] > low]:
        options[COUNTED_SIZES] = write_sizes(rows)


def _limit_samples(followed: Followed, inputs: Inputs) -> SampleLimits | None:
    """Return what a step saves at most, by the layers, for samples of which only the data tell the size."""
    layers = followed.open_layers
    if layers is None:
        return None
    known = KnownSizes(
        side=max(inputs.side, followed.cut_side),
        length=USUAL_MARGIN * inputs.length,
        batch=max(inputs.batch, followed.batch_size),
        parts=max(JOINED, inputs.parts) if layers.joins_parts and inputs.parts else inputs.parts,
        passes=layers.passes,
        reads_images=layers.reads_images,
    )
    return limit_samples(layers.rows, known, is_graph=layers.is_graph)


def _limit_step(step: StepMemory) -> int | None:
    """Return what a step stores at most; ``None`` where that is not known."""
    saved, transient = step.saved_bytes.high, step.transient_bytes.high
    return None if step.reason or saved is None or transient is None else saved + transient


def _limit_by_layers(followed: Followed, inputs: Inputs) -> tuple[str, int] | None:
    """Return on what each layer of the models runs, and what a step then saves at most; ``None`` for not known."""
    sums, count = followed.layers, followed.count
    batch = max(inputs.batch, followed.batch_size)
    if sums is None or count is None or count.parameters.high is None or not batch or not inputs.is_single:
        return None
    places, saved_bytes = "", None
    if sums.first == "Embedding" or (sums.patch and sums.positions):
        places, saved_bytes = _limit_tokens(sums, inputs.length if not sums.patch else 0)
    elif sums.first == "Conv2d":
        usual = find_range(Size.IMAGE_SIDE, Task.ANY_IMAGES)
        fixed = followed.open_layers.rows[0].side if followed.open_layers is not None else 0
        side = fixed or max(inputs.side, followed.cut_side) or (usual.generous if usual is not None else 0)
        saved_bytes = limit_images(sums, parameters=count.parameters.high, side=side) if side else None
        places = f"images of {side} × {side}"
    return (places, batch * saved_bytes) if saved_bytes is not None else None


def _limit_tokens(sums: LayerSums, length: int) -> tuple[str, int | None]:
    """Return of how many tokens a sample is by a setting, or by learned positions, and what these save at most.

    Neither a text nor the patches of an image are more than there are positions for.
    """
    options = []
    if length:
        options.append((USUAL_MARGIN * limit_tokens(sums, length=length), f"texts of {length} tokens"))
    if sums.positions:
        where = f"{sums.positions} tokens, for which it has positions"
        options.append((limit_tokens(sums, length=sums.positions), where))
    saved_bytes, places = min(options, default=(None, ""))
    return places, saved_bytes
