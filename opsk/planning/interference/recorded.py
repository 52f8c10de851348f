"""Estimates the traffic of a running job from the advice in its Slurm record.

The record has the plan and what was predicted for it, not the model. Speed in FLOP/s over speed in tokens/s is 6 FLOP a
parameter (forward and backward pass), which gives the size of the model; the tokens of a step give the batch. A dense
model of that size is substituted. Anyone who may write the Slurm comment can forge a record: its numbers are bounded,
and are used for advice only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.load import JobShape, job_shape
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel, step_model
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.units import TERA
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_FLOP_A_PARAMETER = 6.0
_HEAD_DIM, _FFN, _GROUPS = 128, 3.5, 8
_WEIGHTS_A_LAYER = 2.0 + 2.0 / _GROUPS + 3.0 * _FFN
"""Times hidden squared: attention with one key-value head for eight query heads, gated MLP of 3.5 times the width."""
_WIDE = 102.4
"""Width over layers of a usual dense model: 8192 over 80."""
_USUAL_PARAMETERS = 70e9
_MIN_PARAMETERS, _MAX_PARAMETERS = 1e8, 1e14
_SEQ, _VOCAB = 8192, 128256
_MICRO_BATCHES, _MAX_MICRO_BATCHES = 4, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job reconstructed from its record; ``guessed`` describes what the record does not contain."""

    shape: JobShape
    guessed: tuple[str, ...]


def reconstruct_job(
    record: AdviceRecord,
    gpus: int,
    gpus_per_node: int,
    cluster: ClusterSpec | None,
    efficiency: Efficiency,
    node_gpus: int | None = None,
) -> RecordedJob | None:
    """Return the job that a record describes; ``None`` where it names no plan, or one of another size than the job.

    Parameters
    ----------
    cluster
        For the communication that computation hides; where it is not known, none is assumed to be hidden.
    """
    if None in (record.tp, record.pp, record.dp):
        return None
    tp, pp, cp, dp = record.tp or 1, record.pp or 1, record.cp or 1, record.dp or 1
    if tp * pp * cp * dp != gpus:
        return None
    guessed: list[str] = []
    try:
        model = _stand_in(record, tp, pp, guessed)
        plan = Plan(
            tp=tp, pp=pp, cp=cp, ep=record.ep or 1, dp=dp, sequence_parallel=tp > 1,
            global_batch=dp * _micro_batches(record, gpus, dp, pp, guessed),
        )  # fmt: skip
        rank_grid(plan, RankOrder.TP_CP_EP_DP_PP)  # refuses groups that do not divide
        step = step_model(model, plan, cluster, efficiency) if cluster is not None else COMMUNICATION_ONLY
        shape = job_shape(model, plan, gpus_per_node, step=_as_recorded(step, record), node_gpus=node_gpus)
    except OpskError:
        return None
    if plan.ep > 1:
        guessed.append("its experts: their all-to-all traffic is left out")
    if cluster is None:
        guessed.append("how much communication its computation hides")
    return RecordedJob(shape=shape, guessed=tuple(guessed))


def _stand_in(record: AdviceRecord, tp: int, pp: int, guessed: list[str]) -> ModelShape:
    """Return a dense model of the size that the record implies."""
    if record.tflops and record.tokens_per_s_per_gpu:
        parameters = record.tflops * TERA / (_FLOP_A_PARAMETER * record.tokens_per_s_per_gpu)
        parameters = min(max(parameters, _MIN_PARAMETERS), _MAX_PARAMETERS)
    else:
        parameters = _USUAL_PARAMETERS
        guessed.append("its model: a dense one of 70 billion parameters stands in")
    wide = (parameters * _WIDE / _WEIGHTS_A_LAYER) ** (1.0 / 3.0)
    heads = max(round(wide / (_HEAD_DIM * tp)), 1) * tp
    hidden = heads * _HEAD_DIM
    return ModelShape(
        name="stand-in", layers=max(round(parameters / (_WEIGHTS_A_LAYER * hidden**2) / pp), 1) * pp, hidden=hidden,
        ffn=round(_FFN * hidden / tp) * tp, heads=heads, kv_heads=tp if heads >= _GROUPS * tp else heads,
        head_dim=_HEAD_DIM, vocab=_VOCAB, seq=_SEQ, gated_mlp=True, tied_embeddings=False,
    )  # fmt: skip


def _micro_batches(record: AdviceRecord, gpus: int, dp: int, pp: int, guessed: list[str]) -> int:
    """Return the sequences of a step for each replica."""
    if record.tokens_per_s_per_gpu and record.step_s:
        sequences = record.tokens_per_s_per_gpu * gpus * record.step_s / _SEQ
        return round(min(max(sequences / dp, 1.0), _MAX_MICRO_BATCHES))
    guessed.append("its batch: four micro-batches a stage")
    return _MICRO_BATCHES * pp


def _as_recorded(step: StepModel, record: AdviceRecord) -> StepModel:
    """Return the step model with the time that was predicted at submission, for links as assumed then.

    Without a cluster the time of the links is added to it.
    """
    if not record.step_s:
        return step
    other_s = step.other_s + (record.step_s - step.least_s) / step.straggler
    return replace(step, other_s=max(other_s, 0.0), is_whole=True)
