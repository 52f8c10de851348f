"""States how many parameters the models have that a user's own program makes, where nothing names its model."""

from __future__ import annotations

from opsk.workload.counted_model import COUNTED_INPUT, COUNTED_PLACES, COUNTED_STEP, MARGIN
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk.workload.unstated.layer_limit import LayerSums, limit_images, limit_tokens
from opsk.workload.unstated.sizes import Size, Task, find_range
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.settings.reader import Reading

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
    if step is None and limit is None:
        return
    whole = _limit_step(step) if step is not None else None
    if followed.is_usual and whole is not None:
        whole = USUAL_MARGIN * whole
    options = reading.findings.options
    low = step.saved_bytes.low if step is not None else 0
    if limit is not None and low <= limit[1] and (whole is None or limit[1] < MARGIN * whole):
        places, whole = limit
        options[COUNTED_PLACES] = places
    elif followed.is_usual:
        options[COUNTED_INPUT] = "settings"
    options[COUNTED_STEP] = str(ParameterRange(low=low, high=whole))


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
        side = max(inputs.side, followed.cut_side) or (usual.generous if usual is not None else 0)
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
