"""States how many parameters the models have that a user's own program makes, where nothing names its model."""

from __future__ import annotations

from opsk.workload.counted_model import COUNTED_INPUT, COUNTED_STEP
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
from opsk_jobcheck.scripts.settings.reader import Reading

USUAL_MARGIN = 2
"""What a step may take over that with a sample of the size that a setting names."""


def state_parameters(followed: Followed | None, reading: Reading) -> None:
    """State the parameters of the models that the program makes; see `opsk.workload.counted_parameters`."""
    count = followed.count if followed is not None else None
    if count is None:
        return
    for name, span in ((COUNTED, count.parameters), (COUNTED_TRAINED, count.trained)):
        reading.findings.options[name] = str(ParameterRange(low=span.low, high=span.high))
    step = followed.step if followed is not None else None
    if step is None:
        return
    high = step.saved_bytes.high, step.transient_bytes.high
    whole = None if step.reason or high[0] is None or high[1] is None else high[0] + high[1]
    if followed is not None and followed.is_usual:
        whole = None if whole is None else USUAL_MARGIN * whole
        reading.findings.options[COUNTED_INPUT] = "settings"
    reading.findings.options[COUNTED_STEP] = str(ParameterRange(low=step.saved_bytes.low, high=whole))
