"""States how many parameters the models have that a user's own program makes, where nothing names its model."""

from __future__ import annotations

from opsk.workload.counted_model import COUNTED_INPUT, COUNTED_PLACES, COUNTED_STEP
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk.workload.unstated.layer_limit import LayerSums, limit_images, limit_tokens
from opsk.workload.unstated.sizes import Size, Task, find_range
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
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
    if count is None:
        return
    for name, span in ((COUNTED, count.parameters), (COUNTED_TRAINED, count.trained)):
        reading.findings.options[name] = str(ParameterRange(low=span.low, high=span.high))
    step = followed.step if followed is not None else None
    if followed is not None and _limit_by_layers(followed, reading, inputs):
        return
    if step is None:
        return
    high = step.saved_bytes.high, step.transient_bytes.high
    whole = None if step.reason or high[0] is None or high[1] is None else high[0] + high[1]
    if followed is not None and followed.is_usual:
        whole = None if whole is None else USUAL_MARGIN * whole
        reading.findings.options[COUNTED_INPUT] = "settings"
    reading.findings.options[COUNTED_STEP] = str(ParameterRange(low=step.saved_bytes.low, high=whole))


def _limit_by_layers(followed: Followed, reading: Reading, inputs: Inputs) -> bool:
    """State what a step saves at most by the layers of the models; return whether that is known."""
    sums, count = followed.layers, followed.count
    batch = max(inputs.batch, followed.batch_size)
    if sums is None or count is None or count.parameters.high is None or not batch or not inputs.is_single:
        return False
    places, saved_bytes = "", None
    if sums.first == "Embedding" or (sums.patch and sums.positions):
        places, saved_bytes = _limit_tokens(sums, inputs.length if not sums.patch else 0)
    elif sums.first == "Conv2d":
        usual = find_range(Size.IMAGE_SIDE, Task.ANY_IMAGES)
        side = max(inputs.side, followed.cut_side) or (usual.generous if usual is not None else 0)
        saved_bytes = limit_images(sums, parameters=count.parameters.high, side=side) if side else None
        places = f"images of {side} × {side}"
    if saved_bytes is None:
        return False
    reading.findings.options[COUNTED_STEP] = str(ParameterRange(low=0, high=batch * saved_bytes))
    reading.findings.options[COUNTED_PLACES] = places
    return True


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
