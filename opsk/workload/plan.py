"""How is a training run cut over GPUs?

``Plan`` is complete and consistent; ``StatedPlan`` is what somebody wrote down. The axes are those of Megatron-LM:
``gpus = tp * pp * cp * dp``, and ``ep`` overlaps ``dp``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from opsk.errors import PlanInfeasibleError


class Sharding(StrEnum):
    """What data-parallel ranks keep a share of (ZeRO stages; FSDP full shard is ``zero3``)."""

    NONE = "none"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Recompute(StrEnum):
    """Which activations are thrown away and computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Precision(StrEnum):
    """The number format of the matrix products; states are in fp32 unless a recipe says otherwise."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPlan:
    """The part of a plan that a script states or fixes by arithmetic; ``None`` is "cannot tell".

    ``vpp`` is the number of model chunks a pipeline stage holds; ``micro_batch`` and ``global_batch`` count sequences.
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    dp: int | None = None
    sharding: Sharding | None = None
    sequence_parallel: bool | None = None
    recompute: Recompute | None = None
    precision: Precision | None = None
    micro_batch: int | None = None
    global_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A complete plan.

    Raises
    ------
    PlanInfeasibleError
        Names every rule that the plan breaks, with its numbers.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sharding: Sharding = Sharding.NONE
    sequence_parallel: bool = False
    recompute: Recompute = Recompute.NONE
    precision: Precision = Precision.BF16
    micro_batch: int = 1
    global_batch: int

    def __post_init__(self) -> None:
        """Refuse a plan that breaks arithmetic, naming all that is wrong with it."""
        sizes = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")
        wrong = [f"{name} is {value}, must be at least 1" for name in sizes if (value := getattr(self, name)) < 1]
        if not wrong and self.global_batch % (self.micro_batch * self.dp):
            wrong.append(
                f"global batch {self.global_batch} is not a multiple of micro batch {self.micro_batch} x dp {self.dp}"
            )
        if wrong:
            raise PlanInfeasibleError(tuple(wrong))

    @property
    def gpus(self) -> int:
        """Number of GPUs that the plan uses: tp x pp x cp x dp."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches that one data-parallel rank runs in a step."""
        return self.global_batch // (self.micro_batch * self.dp)


PLAN_FIELDS = tuple(field.name for field in fields(StatedPlan))
