"""Completes a workload for the largest memory that it can take, where a script leaves open what only lowers it.

Adapters, a quantised base and a frozen part take less memory than training the whole model; sharding, recomputation
and parallelism lower it too. Where a value of that kind is not known, its largest effect is: a job that fits even then
fits for sure. Nothing else follows from such a case, above all not that a job runs out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from opsk.workload.completion import Completion, complete
from opsk.workload.counted_model import COUNTED_INPUT, COUNTED_PLACES, build_largest_shape
from opsk.workload.defaults import ROLE_PREFIXES, Assumption, find_usual_length
from opsk.workload.model import ModelShape, StatedModel
from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import fixes_length
from opsk.workload.public_models.tower_limits import OPEN_TOWER
from opsk.workload.public_models.vision_language import build_frozen_shape, find_vision_language
from opsk.workload.roles import METHOD, REFERENCE
from opsk.workload.workload import Workload

PREFIX = "worst."
CHECKED = f"{PREFIX}checked"
"""The option that states that a sample of the program is one text or one image, as far as its text says (``true``)."""
UNSEEN = f"{PREFIX}unseen"
"""The option that states that the text of a program with the Trainer's flags is not at hand (``true``)."""
UNSEEN_TEXTS = 8
"""Texts of a sample that such a program has in memory at most: five choices, or a few negatives, mostly one."""
MICRO_BATCH = f"{PREFIX}micro_batch"
"""The option that states how many samples a GPU works on at most."""
MAX_TOKENS = f"{PREFIX}seq"
"""The option that states how many tokens a sample has at most."""
TRAINED = f"{PREFIX}trained"
"""The option that states that no other model is in memory, whatever part is trained (``true``)."""
ADAPTER_RANK, ADAPTER_TARGETS = f"{PREFIX}adapters.rank", f"{PREFIX}adapters.targets"
ADAPTER_BASE = f"{PREFIX}adapters.base_bits"
"""The options that state the rank of the adapters that alone are trained, and the layers that have them at most; and
the bits of a base weight, where it is quantized for sure."""
_TRAINABLE = "trainable"
_WEIGHTS = "weights.dtype"
_FROZEN = "unknown: part of the model is frozen"
_OF_TOWER = "unknown: the vision tower of"
_OF_ADAPTERS = ("unknown: only adapters are trained", "unknown: the weights are quantized")
_BASE_BITS, _WHOLE_BITS = "adapters.base_bits", "32"
_RECIPES = frozenset({"torchtune", "llama-factory", "axolotl", "litgpt", "ms-swift"})
"""Frameworks that run programs of their own, of which a sample is one text."""
_OF_ROLES = frozenset({"verl", "openrlhf"})
"""Frameworks with programs of their own whose roles state how many texts are in memory."""
LOWERING = (
    *("plan.tp", "plan.pp", "plan.cp", "plan.vpp", "plan.dp", "plan.global_batch", "plan.sharding", "plan.recompute"),
    "plan.sequence_parallel",
)
"""Fields whose values lower the memory, or do not change it; unset they do not."""
_LIGHT_OPTIMIZERS = frozenset(
    {*("lamb", "adabelief", "rmsprop", "adagrad", "nadam", "radam", "adamax", "sophia", "sophiag", "lars", "adadelta")}
)
"""Optimizers that keep no more numbers of a parameter than Adam does."""
_SHAPE = ("model.layers", "model.hidden", "model.heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """Completed workloads of which the one with the largest memory counts, and why they are the largest.

    ``workload`` is the one that was completed: its options state which other models are in memory. ``has_copies`` tells
    that 16-bit copies of all weights come on top: autocast saves those of a base in 32 bits for the backward pass.
    """

    workload: Workload
    completions: tuple[Completion, ...]
    assumed: tuple[Assumption, ...]
    has_copies: bool = False


def find_worst_case(workload: Workload) -> WorstCase | None:
    """Return the worst case of a workload; ``None`` where a value that is not known has no largest effect."""
    options = dict(workload.options)
    has_unknown_roles = METHOD not in options and any(name.startswith(ROLE_PREFIXES) for name in options)
    counted = build_largest_shape(options, workload.model.name)
    if not workload.is_training or has_unknown_roles or not (_is_checked(workload) or counted):
        return None
    assumed: list[Assumption] = []
    if not (_limit_counted if counted is not None else _limit_trained)(options, assumed):
        return None
    workload = _limit_gpus(workload, assumed)
    _limit_optimizer(options, assumed)
    options.setdefault("loss.kernel", "native")  # what a framework does unless told otherwise depends on its release
    unknown = {entry.field for entry in workload.unknown}
    model = workload.model if counted is not None else _limit_model(workload, unknown, options, assumed)
    if model is None:
        return None
    changes: dict[str, Any] = {}
    for field in sorted(unknown & set(LOWERING)):
        changes[field.removeprefix("plan.")] = None
    if changes:
        names = ", ".join(sorted(changes))
        assumed.append(Assumption(field="plan", value="unset", why=f"whatever {names} may be, they lower the memory"))
    if "plan.sharding" in unknown:
        changes["sharding"] = Sharding.NONE
    if workload.plan.recompute is None or "plan.recompute" in unknown:
        changes["recompute"] = Recompute.NONE  # what a framework does unless told otherwise depends on its release
    if (workload.plan.micro_batch is None or "plan.micro_batch" in unknown) and MICRO_BATCH in options:
        changes["micro_batch"] = int(options[MICRO_BATCH])
        assumed.append(Assumption(field="plan.micro_batch", value=changes["micro_batch"], why="at most that many"))
    if counted is not None:
        changes |= {"micro_batch": 1, "global_batch": None}
    elif (batch := changes.get("micro_batch", workload.plan.micro_batch)) is not None and UNSEEN in options:
        changes |= {"micro_batch": UNSEEN_TEXTS * batch, "global_batch": None}
        why = f"the program is not at hand: a sample has {UNSEEN_TEXTS} texts at most"
        assumed.append(Assumption(field="plan.micro_batch", value=changes["micro_batch"], why=why))
    precisions: tuple[Precision | None, ...] = (workload.plan.precision,)
    if "plan.precision" in unknown or workload.plan.precision is None:
        is_16bit = ADAPTER_RANK in options and _WEIGHTS in options
        # no GPU lacks fp16; adapters on weights of 16 bits work in 16 bits
        precisions = (Precision.FP16,) if is_16bit else (Precision.FP32, Precision.FP16)
    if Precision.FP32 in precisions and len(precisions) > 1:
        assumed.append(Assumption(field="plan.precision", value="fp32", why="no number format is certain"))
    open_fields = {*LOWERING, "plan.precision", "plan.optimizer"}
    open_fields |= {"model.seq"} if model is not workload.model or fixes_length(model.name) else set()
    open_fields |= {"plan.micro_batch"} if "micro_batch" in changes else set()
    limited = replace(
        workload,
        model=model,
        plan=replace(workload.plan, **changes),
        options=tuple(sorted(options.items())),
        unknown=tuple(entry for entry in workload.unknown if entry.field not in open_fields),
    )
    completions = tuple(complete(_state_precision(limited, precision)) for precision in precisions)
    if counted is not None:
        completions = tuple(_put_counted(entry, counted) for entry in completions)
    if any(entry.model is None or entry.plan is None for entry in completions):
        return None
    has_copies = options.get(_BASE_BITS) == _WHOLE_BITS
    return WorstCase(workload=limited, completions=completions, assumed=tuple(assumed), has_copies=has_copies)


def _is_checked(workload: Workload) -> bool:
    """Return whether a sample is one text or image, or a few of them, as far as its program is known."""
    options = dict(workload.options)
    has_roles = workload.framework in _OF_ROLES and METHOD in options
    return workload.framework in _RECIPES or has_roles or "true" in (options.get(CHECKED), options.get(UNSEEN))


def _state_precision(workload: Workload, precision: Precision | None) -> Workload:
    """Return a workload in a number format; adapters in 32 bits save what those in 16 bits save of twice the batch."""
    options, micro_batch = dict(workload.options), workload.plan.micro_batch
    if precision is Precision.FP32 and options.get("adapters") == "lora":
        options.setdefault(_BASE_BITS, _WHOLE_BITS)
        doubled = 2 * micro_batch if micro_batch is not None else None
        plan = replace(workload.plan, precision=Precision.FP16, micro_batch=doubled, global_batch=None)
        return replace(workload, plan=plan, options=tuple(sorted(options.items())))
    return replace(workload, plan=replace(workload.plan, precision=precision))


def _limit_gpus(workload: Workload, assumed: list[Assumption]) -> Workload:
    """Return the workload on two GPUs, each with all states, where the number of its GPUs is not known."""
    plan = workload.plan
    if plan.gpus is not None or (plan.nodes is not None and plan.gpus_per_node is not None):
        return workload
    why = "on any number of GPUs no one of them has more than all states"
    assumed.append(Assumption(field="plan.gpus", value=2, why=why))
    plan = replace(plan, nodes=1, gpus_per_node=2, gpus=2, dp=None, sharding=Sharding.NONE)
    return replace(workload, plan=plan)


def _limit_trained(options: dict[str, str], assumed: list[Assumption]) -> bool:
    """Train the whole model where the trained part is not known; return whether that is the largest case."""
    if not options.get(_TRAINABLE, "").startswith("unknown: "):
        return True
    if OPEN_TOWER in options and options[_TRAINABLE].startswith(_OF_TOWER):
        why = options.pop(_TRAINABLE).removeprefix("unknown: ").partition(",")[0]
        assumed.append(Assumption(field=OPEN_TOWER, value=options[OPEN_TOWER], why=why))
        return True
    if ADAPTER_RANK in options:
        rank, targets = options[ADAPTER_RANK], options[ADAPTER_TARGETS]
        del options[_TRAINABLE]
        options.pop(REFERENCE, None)  # it is the trained model with its adapters off
        options |= {"adapters": "lora", "adapters.rank": rank, "adapters.targets": targets, "adapters.dropout": "true"}
        why = "the base is no larger than it is unquantized"
        if ADAPTER_BASE in options:
            options[_BASE_BITS] = options[ADAPTER_BASE]
            why = f"on a base of {options[ADAPTER_BASE]} bits"
        elif _WEIGHTS not in options:
            options[_BASE_BITS] = _WHOLE_BITS
        assumed.append(Assumption(field=_TRAINABLE, value=f"LoRA rank {rank}", why=why))
        return True
    # where its trainer tells which models there are, adapters and bits of the base are all that is not known
    are_models_known = METHOD in options and options[_TRAINABLE].startswith(_OF_ADAPTERS)
    if options.get(TRAINED) != "true" and not are_models_known:
        return False
    why = options.pop(_TRAINABLE).removeprefix("unknown: ")
    assumed.append(Assumption(field=_TRAINABLE, value="all", why=f"{why}: training all of it takes more"))
    return True


def _put_counted(completion: Completion, counted: ModelShape) -> Completion:
    """Return a completion with the counted model in place of one whose shape is not known."""
    assumed = tuple(entry for entry in completion.assumed if not entry.field.startswith("model."))
    return replace(completion, model=counted, assumed=assumed, missing=())


def _limit_counted(options: dict[str, str], assumed: list[Assumption]) -> bool:
    """Train all counted parameters; return whether there are no others, as far as the program's text tells."""
    why = options.get(_TRAINABLE, "")
    if why and not why.startswith(_FROZEN):
        return False
    if options.pop(_TRAINABLE, ""):
        why = why.removeprefix("unknown: ")
        assumed.append(Assumption(field=_TRAINABLE, value="all", why=f"{why}: training all of it takes more"))
    if COUNTED_PLACES in options:
        why = "its forward pass is not followed: each layer is taken to run once"
        assumed.append(Assumption(field="model.input", value=options[COUNTED_PLACES], why=why))
    elif COUNTED_INPUT in options:
        why = "its data set does not tell how large a sample is"
        assumed.append(Assumption(field="model.input", value=f"by its {options[COUNTED_INPUT]}", why=why))
    return True


def _limit_optimizer(options: dict[str, str], assumed: list[Assumption]) -> None:
    """Take Adam's states for those of an optimizer that has no more."""
    name = options.get("optimizer.name", "").lower()
    if name in _LIGHT_OPTIMIZERS:
        del options["optimizer.name"]
        assumed.append(Assumption(field="plan.optimizer", value="adam", why=f"{name} keeps no more states"))


def _limit_model(
    workload: Workload, unknown: set[str], options: dict[str, str], assumed: list[Assumption]
) -> StatedModel | None:
    """Return the largest model that it can be; ``None`` where none is known."""
    stated = workload.model
    if (stated.seq is None or "model.seq" in unknown) and options.get(MAX_TOKENS, "").isdecimal():
        why = "the model has positions for no more tokens"
        assumed.append(Assumption(field="model.seq", value=int(options[MAX_TOKENS]), why=why))
        stated = replace(stated, seq=int(options[MAX_TOKENS]))
        unknown = unknown - {"model.seq"}
    tower = find_vision_language(stated.name or "")
    shape = build_frozen_shape(tower) if tower is not None else public_model(stated.name or "")
    if fixes_length(stated.name) and not unknown & set(_SHAPE):
        return stated
    if shape is None or unknown & set(_SHAPE):
        is_stated = all(getattr(stated, field.removeprefix("model.")) for field in (*_SHAPE, "model.seq"))
        return stated if is_stated else None
    if stated.seq is None and "model.seq" not in unknown and find_usual_length(workload.framework):
        return stated
    if stated.seq is None or "model.seq" in unknown:
        # an encoder has no more tokens than positions either, or those of a window of fixed length
        if not shape.learned_positions or (shape.encoder_layers and shape.encoder_seq < shape.seq):
            return None
        why = f"{stated.name} has positions for no more tokens"
        assumed.append(Assumption(field="model.seq", value=shape.seq, why=why))
        return replace(stated, seq=shape.seq)
    return stated
