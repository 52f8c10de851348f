"""Computes the memory of jobs that hold several models: what each role takes in each phase, and which phase decides.

A job of reinforcement learning generates answers, computes log-probabilities of them, and updates the actor (and the
critic). In each phase another role works, and the others are at rest: on the GPU, or in host memory. Preference
training (DPO, KTO) only updates, next to a frozen reference.

    update       actor at its peak + resident weights of the others + what a sleeping engine leaves, or its share
    critic       critic at its peak + the actor's weights and optimizer, unless they rest in host memory + the same
    log-probs    resident weights of all + one forward pass with its logits
    generate     the actor's and critic's weights and optimizer, unless they rest + the engine's share + its graphs
    engine start weights of the engine + the KV cache of one longest sequence, within the engine's share

Everything here is a formula over the measured model of one training run (`opsk.costmodel.memory`); no job of several
models was measured. So ranges are wide: micro-batches of answers are as long as the longest that the settings allow, or
much shorter. Sources: the hybrid engine of verl (verl/workers/fsdp_workers.py, ``rollout_mode``, ``trainer_mode``),
OpenRLHF (openrlhf/trainer/ray/ppo_actor.py), TRL (trl/trainer/grpo_trainer.py, ``_generate``), vLLM's sleep mode
(docs/features/sleep_mode.md: a tenth or less of what it took remains).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.memory.interval import NOTHING, Interval, add, spread
from opsk.costmodel.memory.serving import GRAPHS, cache_bytes_per_token, engine_memory
from opsk.costmodel.predict import predict_one
from opsk.costmodel.sizes.parameters import active_parameters, total_parameters
from opsk.costmodel.table import PredictionTable
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS, fit_probability
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk.hardware.spec import ClusterSpec
from opsk.units import GIB
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Plan, Sharding, Software
from opsk.workload.roles import (
    OPTIMIZER_REST,
    OWN_GENERATION,
    WEIGHTS_REST,
    HeldModel,
    Role,
    RoleSet,
    WeightPlace,
)


class Phase(StrEnum):
    """What a job of several models does at a time."""

    UPDATE = "update"
    CRITIC = "critic update"
    LOG_PROBS = "log-probs"
    GENERATE = "generate"
    START = "engine start"


ASLEEP = Interval(low=0.2 * GIB, expected=1.5 * GIB, high=4.0 * GIB)
"""What an engine that sleeps leaves on the GPU: its context, graphs, and what PyTorch keeps."""
SHORT_TOKENS, SHORT_UNPADDED = 0.25, 0.1
"""Share of the longest micro-batch that one of real answers may have, padded to its longest sequence or not padded: the
low end of what activations take. (verl's tuned examples on GSM8K allow 1,536 tokens, and answers have 300.)"""
BUFFERS_LOW = 0.7
LOW_LOGITS = 0.3
"""What a loss in place takes over PyTorch's: 4 bytes a logit of 14."""
TRANSIENT_HIGH = 1.25
"""What activations and logits may take over the formula: fragments, copies that a loss makes."""
STATES_LOW, STATES_HIGH = 0.97, 1.05
ENGINE_LOW, ENGINE_HIGH = 0.92, 1.02
"""How much of its share an engine takes; it rounds down to blocks, and its first batch may have had a higher peak."""
LOGIT_BYTES = Interval(low=2.0, expected=6.0, high=12.0)
"""Bytes of a logit of a forward pass without gradients: 2 in 16 bits, 4 more for a copy in fp32 or for the softmax of
the entropy, 4 more for the logarithm."""
IN_PLACE_HIGH = 8.0
"""The same at the most where log-probabilities are computed in place."""
FORWARD_WIDTHS = 8.0
"""Tensors of the width of the model that one layer has in memory in a forward pass without gradients."""
HALF_BITS = 16
_STATES = ("weights", "optimizer")
_OF_PROCESS = ("communication", "context", "workspace")
_BUFFERS, _OF_TOKENS = ("gradients", "buffers"), ("activations", "logits")
_MIN_SIGMA, _MAX_SIGMA = 0.03, 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One phase on one GPU: what each role takes [bytes], and what there is for all.

    Parameters
    ----------
    place
        The GPUs: those that train, or others.
    chance
        The chance that it fits.
    parts
        The actor's part in detail, as `MemoryTable.components` has it, expected values; empty where it is at rest.
    """

    phase: Phase
    place: WeightPlace
    capacity_bytes: float
    roles: Mapping[Role, Interval]
    chance: float
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> Interval:
        """What all roles take together [bytes]."""
        return add(self.roles.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMemory:
    """All phases of a job, in the order in which it runs them, and the one that decides.

    ``prediction`` is that of the actor's own update.
    """

    moments: tuple[Moment, ...]
    binding: Moment
    prediction: PredictionTable


def predict_roles(roles: RoleSet, cluster: ClusterSpec, efficiency: Efficiency) -> RoleMemory:
    """Return the memory of every phase of a job of several models.

    Raises
    ------
    InputError
        As `predict_one` does.
    """
    job = _Job.of(roles, cluster, efficiency)
    moments = tuple(job.list_moments())
    binding = min(moments, key=_rank)
    return RoleMemory(moments=moments, binding=binding, prediction=job.prediction)


def _rank(moment: Moment) -> tuple[int, float]:
    """Return where a phase stands: the worst verdict first, then what fills most of the memory."""
    verdicts = (Verdict.OOM, Verdict.TIGHT, Verdict.FITS, Verdict.UNKNOWN)
    return verdicts.index(compute_verdict(moment.chance)), -moment.total.expected / moment.capacity_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """A trained model: its states at rest, its peak in an update, and the terms of that [bytes]."""

    resting: Interval
    peak: Interval
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job of several models on one GPU of those that train."""

    roles: RoleSet
    capacity: float
    short: float
    prediction: PredictionTable
    actor: _Trained
    critic: _Trained | None

    @classmethod
    def of(cls, roles: RoleSet, cluster: ClusterSpec, efficiency: Efficiency) -> _Job:
        """Return the job with its trained models predicted."""
        plan, short = _with_loss(roles.plan, roles), SHORT_UNPADDED if roles.is_padding_free else SHORT_TOKENS
        prediction = predict_one(roles.model, plan, cluster, efficiency)
        is_megatron = plan.software is Software.MEGATRON_CORE
        critic = next((entry for entry in roles.held if entry.role is Role.CRITIC), None)
        trained = None
        if critic is not None:
            batched = replace(
                plan,
                loss=Loss.FUSED,
                micro_batch=critic.micro_batch,
                global_batch=critic.micro_batch * plan.dp * min(plan.micro_batches, 2),
            )
            model = replace(critic.model, tied_embeddings=True)
            trained = _compute_trained(
                predict_one(model, batched, cluster, efficiency),
                critic.rests,
                short=short,
                is_known=critic.is_known,
                has_gradient_buffer=is_megatron,
            )
        return cls(
            roles=roles,
            capacity=float(cluster.node.gpu.capacity_bytes),
            prediction=prediction,
            short=short,
            actor=_compute_trained(prediction, roles.rests, short=short, has_gradient_buffer=is_megatron),
            critic=trained,
        )

    def list_moments(self) -> Iterator[Moment]:
        """Yield the phases."""
        engine = self.roles.engine
        if engine is not None:
            yield from self._generate()
        if self._computes_log_probs():
            yield self._log_probs()
        if self.critic is not None and self._is_critic_apart():
            yield self._moment(Phase.CRITIC, {Role.CRITIC: self.critic.peak}, place=WeightPlace.OTHER_GPUS)
        elif self.critic is not None:
            resting = {Role.ACTOR: self.actor.resting, **self._compute_held(), **self._engine_at_rest()}
            yield self._moment(Phase.CRITIC, {**resting, Role.CRITIC: self.critic.peak})
        others = {**self._compute_held(), **self._critic_at_rest(), **self._engine_at_rest()}
        yield self._moment(Phase.UPDATE, {Role.ACTOR: self.actor.peak, **others}, parts=self.actor.parts)

    def _computes_log_probs(self) -> bool:
        """Return whether there is a phase of forward passes alone, in which the actor has no gradients."""
        return bool(self.roles.log_probs)

    def _generate(self) -> Iterator[Moment]:
        """Yield the phase of generation, and the start of an engine with a share of its own."""
        engine, model = self.roles.engine, self.roles.model
        if engine is None:
            return
        resting = {Role.ACTOR: self.actor.resting, **self._compute_held(), **self._critic_at_rest()}
        if engine.name == OWN_GENERATION:
            yield self._moment(Phase.GENERATE, {**resting, Role.ROLLOUT: self._own_generation()})
            return
        memory = engine_memory(
            model,
            capacity_bytes=self.capacity,
            memory_share=engine.memory_share,
            tp=engine.tp,
            length=engine.length,
        )
        yield self._moment(Phase.START, {Role.ROLLOUT: memory.sequence}, capacity=memory.budget, place=engine.place)
        graphs = NOTHING if engine.is_eager else GRAPHS
        share = spread(memory.budget, ENGINE_LOW, ENGINE_HIGH)
        taken = add((share, graphs))
        if engine.place is WeightPlace.PERHAPS:
            yield self._moment(Phase.GENERATE, {**resting, Role.ROLLOUT: replace(taken, low=0.0)})
        elif engine.place is WeightPlace.GPU:
            yield self._moment(Phase.GENERATE, {**resting, Role.ROLLOUT: taken})
        else:
            yield self._moment(Phase.GENERATE, {Role.ROLLOUT: taken}, place=engine.place)

    def _own_generation(self) -> Interval:
        """Return what the actor's own ``generate`` takes: its cache, and weights that ZeRO-3 gathers for it."""
        model, plan, engine = self.roles.model, self.roles.plan, self.roles.engine
        length = engine.length if engine is not None else model.seq
        cache = cache_bytes_per_token(model, 1) * length * plan.micro_batch
        gathered = 0.0
        if plan.sharding is Sharding.ZERO3:
            gathered = 2.0 * total_parameters(model)
        return Interval(
            low=self.short * cache,
            expected=cache + gathered,
            high=TRANSIENT_HIGH * cache * plan.micro_batches + gathered,
        )

    def _log_probs(self) -> Moment:
        """Return the phase in which log-probabilities are computed."""
        model, plan, tokens = self.roles.model, self.roles.plan, float(self.roles.log_probs) / self.roles.plan.cp
        logits, layer = tokens * model.vocab / plan.tp, tokens * model.hidden * 2.0 * FORWARD_WIDTHS
        forward = Interval(
            low=self.short * (LOGIT_BYTES.low * logits + layer),
            expected=(LOGIT_BYTES.low if self.roles.loss is Loss.KERNEL else LOGIT_BYTES.expected) * logits + layer,
            high=(LOGIT_BYTES.high if self.roles.loss is None else IN_PLACE_HIGH) * logits + TRANSIENT_HIGH * layer,
        )
        # in this phase the actor's weights are loaded for it, its optimizer is not
        actor = add((self.actor.resting, self._loaded_weights(), forward))
        parts = {Role.ACTOR: actor, **self._compute_held(), **self._critic_at_rest(), **self._engine_at_rest()}
        return self._moment(Phase.LOG_PROBS, parts)

    def _loaded_weights(self) -> Interval:
        """Return the actor's weights where they rest in host memory."""
        if WEIGHTS_REST not in self.roles.rests:
            return NOTHING
        return spread(self.actor.parts["weights"], STATES_LOW, STATES_HIGH)

    def _compute_held(self) -> dict[Role, Interval]:
        """Return what frozen models keep on the GPU."""
        parts: dict[Role, Interval] = {}
        for entry in self.roles.held:
            if entry.role is not Role.CRITIC and entry.place is not WeightPlace.OTHER_GPUS:
                parts[entry.role] = self._compute_frozen(entry)
        return parts

    def _compute_frozen(self, entry: HeldModel) -> Interval:
        """Return what a frozen model keeps on the GPU: its weights, sharded where the actor's are.

        Weights in fp32 may be in 16 bits: transformers 5 loads a model in its own format unless told otherwise. What
        rests in host memory passes through layer by layer; ZeRO-3 and FSDP gather two layers of the others.
        """
        plan, parameters = self.roles.plan, float(total_parameters(entry.model))
        of_experts = _count_experts(entry.model)
        split = (parameters - of_experts) / plan.tp + of_experts / (plan.ep * (plan.etp or plan.tp))
        whole = split / plan.pp * entry.bits / 8.0
        is_sharded = plan.sharding is Sharding.ZERO3
        shards = (plan.shard_gpus or plan.dp * plan.cp) if is_sharded else 1
        passing = (
            2.0 * parameters * 2.0 / max(entry.model.layers, 1)
            if is_sharded or entry.place is WeightPlace.HOST
            else 0.0
        )
        weights = whole / shards
        expected = weights if entry.place is WeightPlace.GPU else 0.0
        low = expected * (0.5 if entry.bits > HALF_BITS else 1.0) if entry.is_known else 0.0
        high = (weights if entry.place is not WeightPlace.HOST else 0.0) * (1.0 if entry.is_known else 2.0)
        return Interval(low=STATES_LOW * low, expected=expected + passing, high=STATES_HIGH * high + 2.0 * passing)

    def _critic_at_rest(self) -> dict[Role, Interval]:
        """Return what the critic keeps on the GPU while it is not updated."""
        is_here = self.critic is not None and not self._is_critic_apart()
        return {Role.CRITIC: self.critic.resting} if self.critic is not None and is_here else {}

    def _is_critic_apart(self) -> bool:
        """Return whether the critic has GPUs of its own."""
        return any(entry.role is Role.CRITIC and entry.place is WeightPlace.OTHER_GPUS for entry in self.roles.held)

    def _engine_at_rest(self) -> dict[Role, Interval]:
        """Return what an engine on the same GPUs keeps while it does not generate."""
        engine = self.roles.engine
        if engine is None or engine.place is WeightPlace.OTHER_GPUS or engine.name == OWN_GENERATION:
            return {}
        if engine.sleeps:
            return {Role.ROLLOUT: ASLEEP}
        share = spread(engine.memory_share * self.capacity, ENGINE_LOW, ENGINE_HIGH)
        taken = share if engine.is_eager else add((share, GRAPHS))
        return {Role.ROLLOUT: replace(taken, low=0.0) if engine.place is WeightPlace.PERHAPS else taken}

    def _moment(
        self,
        phase: Phase,
        roles: Mapping[Role, Interval],
        *,
        capacity: float = 0.0,
        place: WeightPlace = WeightPlace.GPU,
        parts: Mapping[str, float] | None = None,
    ) -> Moment:
        """Return one phase with its chance to fit."""
        available = capacity or self.capacity
        total = add(roles.values())
        return Moment(
            phase=phase,
            place=place,
            capacity_bytes=available,
            roles=roles,
            chance=compute_chance(total, available),
            parts=parts or {},
        )


def _count_experts(model: ModelShape) -> float:
    """Return the parameters of routed experts: a token skips all of them but ``top_k`` of each layer's."""
    if model.experts <= model.top_k:
        return 0.0
    return float(total_parameters(model) - active_parameters(model)) * model.experts / (model.experts - model.top_k)


def _with_loss(plan: Plan, roles: RoleSet) -> Plan:
    """Return the plan with the loss of its framework: a head of one number has no logits."""
    if roles.has_scores:
        return replace(plan, loss=Loss.FUSED)
    return replace(plan, loss=roles.loss) if roles.loss is not None and plan.loss is Loss.PLAIN else plan


def _compute_trained(
    prediction: PredictionTable,
    rests: frozenset[str],
    *,
    short: float,
    is_known: bool = True,
    has_gradient_buffer: bool = False,
) -> _Trained:
    """Return what a trained model takes in its update and at rest."""
    parts = {name: float(size) for name, size in prediction.memory.components.items()}
    process = sum(parts[name] for name in _OF_PROCESS)
    states = sum(parts[name] for name in _STATES)
    low_tokens = short * (parts["activations"] + LOW_LOGITS * parts["logits"])
    buffers, of_tokens = (sum(parts[name] for name in names) for names in (_BUFFERS, _OF_TOKENS))
    cached = parts["slack"] + parts["fragmentation"]
    size_low, size_high = (1.0, 1.0) if is_known else (0.0, 2.0)
    peak = Interval(
        low=0.5 * process + size_low * (STATES_LOW * states + BUFFERS_LOW * buffers + low_tokens),
        expected=process + states + buffers + of_tokens,
        high=1.2 * process + size_high * (STATES_HIGH * states + TRANSIENT_HIGH * (buffers + of_tokens) + cached),
    )
    # Megatron's gradients are in a buffer of their own, which goes with the weights
    buffer = parts["gradients"] if has_gradient_buffer and WEIGHTS_REST not in rests else 0.0
    staying = buffer + sum(
        parts[name] for name, rest in zip(_STATES, (WEIGHTS_REST, OPTIMIZER_REST), strict=True) if rest not in rests
    )
    # gradients may stay in their buffers until the next update (DeepSpeed)
    lingering = parts["gradients"] if not rests and not buffer else 0.0
    resting = Interval(
        low=0.5 * process + size_low * STATES_LOW * staying,
        expected=process + staying,
        high=1.2 * process + size_high * (STATES_HIGH * staying + lingering) + cached,
    )
    return _Trained(resting=resting, peak=peak, parts=parts)


def compute_chance(needed: Interval, capacity_bytes: float) -> float:
    """Return the chance that a range of needed memory fits: nine of ten lie within it.

    Above the expected value the distribution has the spread of the high end, below it that of the low end.
    """
    if needed.expected <= 0:
        return 1.0
    end = needed.high if capacity_bytes >= needed.expected else needed.low
    sigma = abs(math.log(max(end, 1.0) / needed.expected)) / COVERED_SIGMAS
    wide = Spread(memory_log_sigma=min(max(sigma, _MIN_SIGMA), _MAX_SIGMA), memory_fit_log_sigma=0.0)
    return float(fit_probability(np.asarray(needed.expected), np.asarray(capacity_bytes), wide))
