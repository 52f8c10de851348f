"""Which causes are looked for? A new one is a file in ``causes`` and a line here."""

from __future__ import annotations

from collections.abc import Callable

from opsk.planner.losses.causes.checkpointing import checkpointing
from opsk.planner.losses.causes.congested_link import congested_link
from opsk.planner.losses.causes.data_loading import data_loading
from opsk.planner.losses.causes.power_cap import power_cap
from opsk.planner.losses.causes.recompute import recompute
from opsk.planner.losses.causes.straggler import straggler
from opsk.planner.losses.causes.thermal_cap import thermal_cap
from opsk.planner.losses.causes.wrong_plan import wrong_plan
from opsk.planner.losses.situation import Situation, Suspicion

CAUSES: tuple[Callable[[Situation], Suspicion | None], ...] = (
    straggler,
    thermal_cap,
    power_cap,
    congested_link,
    data_loading,
    checkpointing,
    recompute,
    wrong_plan,
)
