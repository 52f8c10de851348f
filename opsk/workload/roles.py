"""Defines the models that share the GPUs of a job beside the one that it trains: preference training and RL.

A script's reader states them as options of the workload (`ROLE_PREFIXES`); `complete_roles` makes values of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from opsk.workload.defaults import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Plan
from opsk.workload.public_models.lookup import public_model
from opsk.workload.workload import Workload


class Role(StrEnum):
    """What a model does in a job of several models."""

    ACTOR = "actor"
    """The model that is trained: the policy."""
    CRITIC = "critic"
    """The second model that is trained: the value function of PPO."""
    REFERENCE = "reference"
    REWARD = "reward model"
    ROLLOUT = "rollout engine"
    """vLLM or SGLang, with weights and a KV cache of its own; or the actor's own ``generate``."""


class WeightPlace(StrEnum):
    """Where a role's weights are."""

    NONE = "none"
    """There is no such model, or it is the actor with its adapters off."""
    GPU = "gpu"
    """On the GPUs that train."""
    HOST = "host"
    """In host memory; they pass through the GPU layer by layer."""
    PERHAPS = "perhaps"
    """On the GPU or in host memory: that depends on the release."""
    OTHER_GPUS = "other-gpus"
    """On GPUs of their own, or of another job."""


METHOD = "roles.method"
"""The option that states that a job holds several models: ``dpo``, ``ppo``, ``grpo``, ``rm``, ..."""
SEQUENCES = "roles.sequences"
"""Sequences that are trained for each of the micro-batch: 2 where chosen and rejected ones go through together."""
SCORES = "roles.scores"
"""``true`` where the trained model has a head of one number instead of logits: reward models."""
TOKENS = "roles.tokens"
"""Tokens of a micro-batch on one GPU, where the program packs sequences up to a number of tokens."""
LOSS_BYTES = "roles.loss_bytes"
"""``low`` where log-probabilities are computed in place on 16-bit logits, ``medium`` where compiled code computes their
entropy too (verl); left out where it is the loss of the trainer."""
PADDING_FREE = "roles.padding_free"
"""``true`` where a micro-batch has the tokens of its sequences alone, however long the longest may be."""
ACTOR_GPUS, ACTOR_RESTS = "roles.actor.gpus", "roles.actor.rests"
"""GPUs that train, where they are not all; and what they move to host memory between updates: ``weights optimizer``."""
REFERENCE, REFERENCE_BITS = "roles.reference", "roles.reference.bits"
REWARD, REWARD_MODEL = "roles.reward", "roles.reward.model"
CRITIC, CRITIC_MODEL, CRITIC_BATCH, CRITIC_RESTS = (
    *("roles.critic", "roles.critic.model", "roles.critic.micro_batch"),
    "roles.critic.rests",
)
ENGINE, ENGINE_PLACE, ENGINE_SHARE, ENGINE_TP = (
    *("rollout.engine", "rollout.place", "rollout.memory_share"),
    "rollout.tp",
)
ENGINE_SLEEPS, ENGINE_EAGER, ENGINE_LENGTH = "rollout.sleeps", "rollout.eager", "rollout.length"
ENGINE_GPUS = "engine.gpus"
"""GPUs of the job that are the engine's alone, where some of its GPUs train and others generate."""
LOG_PROBS = "roles.log_probs.sequences"
"""Sequences (or with `TOKENS` tokens) of a forward pass that only computes log-probabilities."""
WEIGHTS_REST, OPTIMIZER_REST = "weights", "optimizer"
OWN_GENERATION = "generate"
"""The engine where the trained model itself generates (``model.generate``)."""
_MAX_DIGITS = 9
_LOSSES: Mapping[str, Loss] = MappingProxyType({"low": Loss.KERNEL, "medium": Loss.FP32_KERNEL})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldModel:
    """A model that is in memory beside the actor.

    Parameters
    ----------
    role
        What it does.
    model
        Its shape; that of the actor where no other is known (``is_known`` is then false).
    place
        Where its weights are while it is not used.
    bits
        Bits of a weight.
    micro_batch
        Sequences of a micro-batch, for a critic.
    rests
        What a critic moves to host memory between its updates.
    is_known
        Whether its size is known.
    """

    role: Role
    model: ModelShape
    place: WeightPlace
    bits: int = 16
    micro_batch: int = 1
    rests: frozenset[str] = frozenset()
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEngine:
    """What generates.

    Parameters
    ----------
    name
        ``vllm``, ``sglang``, ``generate``.
    place
        On the GPUs that train, or on others.
    memory_share
        Share of a GPU's memory that it takes for weights and KV cache; 0 where it manages none (``generate``).
    tp
        Its tensor parallelism.
    sleeps
        Whether it frees weights and cache while the actor is trained.
    is_eager
        Whether it captures no CUDA graphs.
    length
        Tokens of prompt and answer together.
    """

    name: str
    place: WeightPlace
    memory_share: float = 0.0
    tp: int = 1
    sleeps: bool = False
    is_eager: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSet:
    """All models of a job.

    Parameters
    ----------
    method
        ``dpo``, ``grpo``, ...
    model, plan
        The actor, with the tokens of its micro-batch as they are trained.
    rests
        What it moves to host memory between updates.
    held
        The models beside it.
    engine
        What generates; ``None`` in preference training.
    has_scores
        True where the actor has a head of one number.
    loss
        How log-probabilities are computed, where that is not the plan's loss.
    is_padding_free
        True where a micro-batch has no padding, or where it is not known whether layers are recomputed: activations may
        then be a small part of what is computed.
    log_probs
        Tokens of a forward pass that only computes log-probabilities.
    assumed
        What was assumed of them.
    """

    method: str
    model: ModelShape
    plan: Plan
    rests: frozenset[str] = frozenset()
    held: tuple[HeldModel, ...] = ()
    engine: RolloutEngine | None = None
    has_scores: bool = False
    loss: Loss | None = None
    is_padding_free: bool = False
    log_probs: int = 0
    assumed: tuple[Assumption, ...] = ()


def complete_roles(workload: Workload, model: ModelShape, plan: Plan) -> RoleSet | None:
    """Return the models of a job; ``None`` for a job of one model."""
    options = dict(workload.options)
    if METHOD not in options:
        return None
    trained, batched = _count_trained_tokens(options, model, plan)
    assumed: list[Assumption] = []
    held = [
        *_find_reference(options, model),
        *_find_other(options, Role.REWARD, REWARD, REWARD_MODEL, model, assumed),
        *_find_other(options, Role.CRITIC, CRITIC, CRITIC_MODEL, model, assumed),
    ]
    log_probs = _number(options, LOG_PROBS)
    return RoleSet(
        method=options[METHOD],
        model=trained,
        plan=batched,
        rests=frozenset(options.get(ACTOR_RESTS, "").split()),
        held=tuple(held),
        engine=_find_engine(options, model),
        has_scores=options.get(SCORES) == "true",
        loss=_LOSSES.get(options.get(LOSS_BYTES, "")),
        is_padding_free=options.get(PADDING_FREE) == "true" or workload.plan.recompute is None,
        log_probs=log_probs if TOKENS in options and log_probs else log_probs * model.seq,
        assumed=tuple(assumed),
    )


def _count_trained_tokens(options: Mapping[str, str], model: ModelShape, plan: Plan) -> tuple[ModelShape, Plan]:
    """Return the actor and its plan with the tokens that a micro-batch has when it is trained."""
    cp = plan.cp
    gpus = _number(options, ACTOR_GPUS) or plan.gpus
    dp = max(gpus // (plan.tp * plan.pp * cp), 1)
    micro = plan.micro_batch * max(_number(options, SEQUENCES), 1)
    if tokens := _number(options, TOKENS):
        micro, model = 1, replace(model, seq=max(tokens * cp, model.seq))
    steps = 2 if plan.micro_batches > 1 or TOKENS in options else 1
    return model, replace(plan, dp=dp, micro_batch=micro, global_batch=micro * dp * steps)


def _find_reference(options: Mapping[str, str], model: ModelShape) -> list[HeldModel]:
    """Return the frozen copy of the actor, where there is one."""
    place = _place(options, REFERENCE)
    if place is WeightPlace.NONE:
        return []
    bits = _number(options, REFERENCE_BITS) or 16
    return [HeldModel(role=Role.REFERENCE, model=model, place=place, bits=bits)]


def _find_other(
    options: Mapping[str, str], role: Role, option: str, name: str, actor: ModelShape, assumed: list[Assumption]
) -> list[HeldModel]:
    """Return the reward model or the critic; one of unknown size is taken to be as large as the actor."""
    place = _place(options, option)
    if place is WeightPlace.NONE:
        return []
    named = options.get(name, "")
    shape = public_model(named) if named else None
    if shape is None:
        what = f"the size of {named[:60]} is not known" if named else "no model is named for it"
        assumed.append(Assumption(field=f"{option}.size", value=actor.name, why=f"{what}: taken as the actor's"))
    is_critic = role is Role.CRITIC
    return [
        HeldModel(
            role=role,
            model=replace(shape, seq=actor.seq) if shape is not None else actor,
            place=place,
            micro_batch=_number(options, CRITIC_BATCH) or 1,
            rests=frozenset(options.get(CRITIC_RESTS, "").split()) if is_critic else frozenset(),
            is_known=shape is not None,
        )
    ]


def _find_engine(options: Mapping[str, str], model: ModelShape) -> RolloutEngine | None:
    """Return what generates, where the job generates at all."""
    name = options.get(ENGINE)
    if not name:
        return None
    return RolloutEngine(
        name=name,
        place=_place(options, ENGINE_PLACE, otherwise=WeightPlace.GPU),
        memory_share=parse_share(options.get(ENGINE_SHARE, "")) or 0.0,
        tp=_number(options, ENGINE_TP) or 1,
        sleeps=options.get(ENGINE_SLEEPS) == "true",
        is_eager=options.get(ENGINE_EAGER) == "true",
        length=_number(options, ENGINE_LENGTH) or model.seq,
    )


def _place(options: Mapping[str, str], name: str, *, otherwise: WeightPlace = WeightPlace.NONE) -> WeightPlace:
    """Return the place that an option states."""
    word = options.get(name, "")
    return WeightPlace(word) if word in set(WeightPlace) else otherwise


def _number(options: Mapping[str, str], name: str) -> int:
    """Return an option as a number, 0 where it is none."""
    text = options.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0


def parse_share(text: str) -> float | None:
    """Return a share between 0 and 1; ``None`` for anything else.

    Examples
    --------
    >>> parse_share("0.6"), parse_share("60"), parse_share("1e-1")
    (0.6, None, None)
    """
    digits = text.strip()
    if not digits or len(digits) > 20 or not digits.isascii() or set(digits) - set("0123456789."):
        return None
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
