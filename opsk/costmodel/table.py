"""The tables that the cost model takes and returns: one row a plan, one numpy array a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.errors import InputError
from opsk.workload.plan import Plan, Precision, Recompute, Sharding

IntColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
BoolColumn = npt.NDArray[np.bool_]

SHARDINGS = tuple(Sharding)
RECOMPUTES = tuple(Recompute)
PRECISIONS = tuple(Precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Plans as columns of equal length; enum columns index ``SHARDINGS``, ``RECOMPUTES``, ``PRECISIONS``."""

    tp: IntColumn
    pp: IntColumn
    vpp: IntColumn
    cp: IntColumn
    ep: IntColumn
    dp: IntColumn
    sharding: IntColumn
    sequence_parallel: BoolColumn
    recompute: IntColumn
    precision: IntColumn
    micro_batch: IntColumn
    global_batch: IntColumn

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Return the table whose rows are ``plans``, in order.

        Raises
        ------
        InputError
            A size does not fit into 64 bits.
        """

        def column(name: str) -> IntColumn:
            try:
                return np.array([getattr(plan, name) for plan in plans], dtype=np.int64)
            except OverflowError as error:
                raise InputError(f"{name} of a plan is too large for any machine", hint="check the number") from error

        return cls(
            **{name: column(name) for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")},
            sharding=np.array([SHARDINGS.index(plan.sharding) for plan in plans], dtype=np.int64),
            sequence_parallel=np.array([plan.sequence_parallel for plan in plans], dtype=np.bool_),
            recompute=np.array([RECOMPUTES.index(plan.recompute) for plan in plans], dtype=np.int64),
            precision=np.array([PRECISIONS.index(plan.precision) for plan in plans], dtype=np.int64),
        )

    def __len__(self) -> int:
        """Return the number of plans."""
        return int(self.tp.shape[0])

    def row(self, index: int) -> Plan:
        """Return row ``index`` as a `Plan`."""
        return Plan(
            tp=int(self.tp[index]),
            pp=int(self.pp[index]),
            vpp=int(self.vpp[index]),
            cp=int(self.cp[index]),
            ep=int(self.ep[index]),
            dp=int(self.dp[index]),
            sharding=SHARDINGS[int(self.sharding[index])],
            sequence_parallel=bool(self.sequence_parallel[index]),
            recompute=RECOMPUTES[int(self.recompute[index])],
            precision=PRECISIONS[int(self.precision[index])],
            micro_batch=int(self.micro_batch[index]),
            global_batch=int(self.global_batch[index]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A predicted quantity: one entry a plan in each of ``low``, ``expected``, ``high``."""

    low: FloatColumn
    expected: FloatColumn
    high: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory of one GPU of the most loaded pipeline stage, one entry a plan [bytes].

    ``components`` keys: ``weights``, ``gradients``, ``optimizer``, ``activations``, ``logits``, ``communication``,
    ``context``, ``slack``; they add up to ``total_bytes.expected``. ``stage`` is the stage (from 0) of the peak.
    ``fit_probability`` is the chance that a GPU with ``capacity_bytes`` holds it.
    """

    capacity_bytes: float
    total_bytes: Range
    components: Mapping[str, FloatColumn]
    stage: IntColumn
    fit_probability: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Time of one optimizer step, one entry a plan.

    ``components`` [s] keys: ``compute``, ``recompute``, ``tp``, ``cp``, ``ep``, ``pp``, ``bubble``, ``dp``,
    ``optimizer``; they add up to ``step_s.expected``, communication counted only where nothing hides it.
    ``mfu`` and ``hfu`` are ratios of the dense peak; ``flop`` are the model FLOP of one step.
    """

    step_s: Range
    tokens_per_s_per_gpu: Range
    tflops_per_gpu: Range
    mfu: Range
    hfu: Range
    model_flop: FloatColumn
    hardware_flop: FloatColumn
    components: Mapping[str, FloatColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyTable:
    """Energy of the GPUs of a plan, one entry a plan: ``step_j`` and ``j_per_token`` of all GPUs together [J].

    ``gpu_w`` is the mean power of one GPU [W].
    """

    step_j: Range
    j_per_token: Range
    gpu_w: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """What the cost model says of each row of a `PlanTable`."""

    memory: MemoryTable
    time: TimeTable
    energy: EnergyTable
