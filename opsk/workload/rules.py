"""Checks a completed workload against the rules of its framework, and decides whether it can still be predicted.

Source: the assertions of ``validate_args`` in Megatron-LM's ``megatron/training/arguments.py`` and of
``TransformerConfig``; DeepSpeed's ``PipelineEngine``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opsk.workload.defaults import MEGATRON_DEEPSPEED, Filling
from opsk.workload.plan import Sharding
from opsk.workload.workload import Problem

MAX_GPUS = 1 << 24
"""A count above this is a typo."""
MAX_SIZE = 10**9
MAX_COUNT = 10**12
_COUNTS = frozenset({"model.frozen_parameters"})
"""Fields that count parameters."""
_MAY_BE_ZERO = frozenset(
    {
        *("model.experts", "model.top_k", "model.shared_experts", "model.expert_ffn"),
        *("plan.first_stage_layers", "plan.last_stage_layers", "plan.recompute_layers"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule; it may make the model's shape or the plan impossible."""

    problem: Problem
    blocks_model: bool = False
    blocks_plan: bool = False


def find_violations(filling: Filling) -> list[Violation]:
    """Return every rule that the values break, those of the plan first."""
    impossible = list(_sizes(filling))
    if impossible:
        return impossible
    checks = (_gpu_count, _batches, _stages, _interleaving, _heads, _splits, _experts, _sharding)
    return [entry for check in checks for entry in check(filling)]


def _build_violation(
    filling: Filling, fields: tuple[str, ...], what: str, hint: str, *, model: bool = False, plan: bool = False
) -> Violation:
    """Return a violation that points at the last line on which one of the fields is stated."""
    places = [entry for entry in filling.workload.evidence if entry.field in fields and entry.line > 0]
    place = max(places, key=lambda entry: entry.line, default=None)
    problem = Problem(what=what, file=place.file if place else "", line=place.line if place else 0, hint=hint)
    return Violation(problem=problem, blocks_model=model, blocks_plan=plan)


def _sizes(filling: Filling) -> Iterator[Violation]:
    """Every size is positive and at most ``MAX_SIZE``."""
    for name, value in filling.values.items():
        if type(value) is not int or 1 <= value <= MAX_SIZE:
            continue
        minimum = 0 if name in _MAY_BE_ZERO else 1
        largest = MAX_COUNT if name in _COUNTS else MAX_SIZE
        if not minimum <= value <= largest:
            what = f"{name.partition('.')[2]} is {value}: must be between {minimum} and {largest}"
            yield _build_violation(filling, (name,), what, "correct the value", model=True, plan=True)


def _gpu_count(filling: Filling) -> Iterator[Violation]:
    """The axes multiply to the number of GPUs."""
    gpus, nodes, per_node = (filling.get(f"plan.{name}") for name in ("gpus", "nodes", "gpus_per_node"))
    if gpus and gpus > MAX_GPUS:
        what = f"{gpus} GPUs are more than any cluster has"
        yield _build_violation(filling, ("plan.gpus", "plan.dp"), what, "correct the node count", plan=True)
    if gpus and nodes and per_node and nodes * per_node != gpus:
        what = f"{nodes} nodes × {per_node} GPUs are {nodes * per_node}, and {gpus} GPUs are stated"
        yield _build_violation(filling, ("plan.gpus", "plan.nodes"), what, "state the same number everywhere")
    if not gpus or not filling.has("plan.tp", "plan.pp", "plan.cp"):
        return
    tp, pp, cp, dp = (filling.get(f"plan.{name}") for name in ("tp", "pp", "cp", "dp"))
    ranks = tp * pp * cp
    places = ("plan.tp", "plan.pp", "plan.cp")
    if gpus % ranks:
        what = f"{gpus} GPUs are not a multiple of TP {tp} × PP {pp} × CP {cp} = {ranks}"
        hint = "change the node count, TP or PP so that the product divides the GPUs"
        yield _build_violation(filling, places, what, hint, plan=True)
    elif dp and ranks * dp != gpus:
        what = f"TP {tp} × PP {pp} × CP {cp} × DP {dp} is {ranks * dp}, and the job has {gpus} GPUs"
        yield _build_violation(filling, (*places, "plan.dp"), what, f"DP must be {gpus // ranks}", plan=True)


def _batches(filling: Filling) -> Iterator[Violation]:
    """The global batch is a whole number of micro-batches on every replica."""
    if not filling.has("plan.global_batch", "plan.micro_batch", "plan.dp"):
        return
    batch, micro, dp = (filling.get(f"plan.{name}") for name in ("global_batch", "micro_batch", "dp"))
    if batch % (micro * dp):
        what = f"global batch {batch} is not a multiple of micro batch {micro} × DP {dp} = {micro * dp}"
        hint = f"make the global batch {-(-batch // (micro * dp)) * micro * dp}, or change nodes or micro batch"
        yield _build_violation(filling, ("plan.global_batch",), what, hint, plan=True)


def _stages(filling: Filling) -> Iterator[Violation]:
    """Every pipeline stage gets the same number of layers, and at least one."""
    if not filling.has("model.layers", "plan.pp", "plan.vpp"):
        return
    layers, pp, vpp = filling.get("model.layers"), filling.get("plan.pp"), filling.get("plan.vpp")
    if pp == 1:
        return
    stages, words = pp * vpp, f"PP {pp}" + (f" × VPP {vpp}" if vpp > 1 else "")
    ends = count_ends(filling.options)
    count = layers + sum(ends.values())
    fields = ("model.layers", "plan.pp", "plan.vpp")
    names = [name for name, counts in zip(("embedding", "head"), ends.values(), strict=False) if counts]
    counted = f"{layers} layers" + (f", {' and '.join(names)}" if names else "")
    if count < stages and "pipeline.layout" not in filling.options:
        what = f"{counted} cannot fill {words} = {stages} stages"
        yield _build_violation(filling, fields, what, f"use at most {count} stages", plan=True)
    elif _has_stated_layout(filling):
        yield from _stated_stages(filling, layers, pp, vpp)
    elif count % stages:
        what = f"{counted} do not divide evenly over {words} = {stages} stages"
        hint = f"use a number of stages that divides {count}, or lay the layers out by hand"
        yield _build_violation(filling, fields, what, hint)


def count_ends(options: Mapping[str, str]) -> dict[str, int]:
    """Return whether embedding and head count as a layer of the first and the last stage; empty where neither does."""
    if "embedding" in options.get("pipeline.partition", ""):
        return {"first": 1, "last": 1}  # Megatron-DeepSpeed: "type:transformer|embedding"
    ends = {
        "first": int(options.get("pipeline.counts_embedding") == "true"),
        "last": int(options.get("pipeline.counts_loss") == "true"),
    }
    return ends if any(ends.values()) else {}


def _has_stated_layout(filling: Filling) -> bool:
    """Return whether the script states how many layers the first or last stage gets."""
    return any(name in filling.options for name in ("pipeline.first_layers", "pipeline.last_layers", "pipeline.layout"))


def _stated_stages(filling: Filling, layers: int, pp: int, vpp: int) -> Iterator[Violation]:
    """First and last stage that are given leave layers that all other stages share, chunk by chunk."""
    if "pipeline.layout" in filling.options:
        return  # its reader has checked it
    texts = {name: filling.options.get(f"pipeline.{name}_layers", "") for name in ("first", "last")}
    given = {name: int(text) for name, text in texts.items() if text.isascii() and text.isdigit() and len(text) < 7}
    fields = ("model.layers", "plan.pp", "plan.vpp")
    words = " and ".join(f"{count} in the {name} stage" for name, count in given.items())
    if count_ends(filling.options):
        what = f"{words} cannot be combined with embedding or loss counted as a layer"
        yield _build_violation(filling, fields, what, "leave out one of them")
        return
    others, rest = pp - len(given), layers - sum(given.values())
    chunks = others * vpp
    if rest < others or (rest and not others):
        what = f"{words} leaves {rest} of {layers} layers for {others} other stages"
        yield _build_violation(filling, fields, what, "give the first and last stage other layers")
    elif chunks and rest % chunks:
        what = f"{words} leaves {rest} of {layers} layers, which do not divide over {others} other stages"
        what += f" of {vpp} chunks" if vpp > 1 else ""
        nearest = min(
            (count for count in range(1, layers) if (layers - count) % chunks == 0),
            key=lambda count: abs(count - sum(given.values())),
            default=0,
        )
        hint = f"leave a multiple of {chunks}" + (f": {nearest} layers there" if nearest else "")
        yield _build_violation(filling, fields, what, hint)
    elif odd := [f"{count} layers of the {name} stage" for name, count in given.items() if count % vpp]:
        what = f"{' and '.join(odd)} cannot be cut into VPP {vpp} chunks"
        yield _build_violation(filling, fields, what, f"use a multiple of {vpp}")


def _interleaving(filling: Filling) -> Iterator[Violation]:
    """Stages are interleaved only where there are several."""
    vpp, pp = filling.get("plan.vpp"), filling.get("plan.pp")
    if vpp and pp == 1 and vpp > 1:
        what = f"VPP {vpp} has no meaning with one pipeline stage, and is taken as 1"
        filling.values["plan.vpp"] = 1
        yield _build_violation(filling, ("plan.vpp",), what, "leave it out, or use pipeline parallelism")


def _heads(filling: Filling) -> Iterator[Violation]:
    """Heads divide the width, the groups divide the heads."""
    heads, kv_heads, hidden = (filling.get(f"model.{name}") for name in ("heads", "kv_heads", "hidden"))
    if hidden and heads and not filling.has("model.head_dim") and hidden % heads:
        what = f"hidden size {hidden} is not a multiple of {heads} heads"
        hint = "change one of them, or state the width of a head"
        yield _build_violation(filling, ("model.heads", "model.hidden"), what, hint, model=True, plan=True)
    if heads and kv_heads and heads % kv_heads:
        what = f"{heads} heads are not a multiple of {kv_heads} key and value heads"
        yield _build_violation(
            filling, ("model.kv_heads", "model.heads"), what, "change one of them", model=True, plan=True
        )


def _splits(filling: Filling) -> Iterator[Violation]:
    """Tensor and context parallelism split without a rest."""
    tp, cp = filling.get("plan.tp") or 1, filling.get("plan.cp") or 1
    for name, words in (("heads", "heads"), ("ffn", "columns of the MLP")):
        value = filling.get(f"model.{name}")
        if value and value % tp:
            what = f"{value} {words} cannot be split over TP {tp}"
            yield _build_violation(filling, (f"model.{name}", "plan.tp"), what, f"use a TP that divides {value}")
    kv_heads, seq = filling.get("model.kv_heads"), filling.get("model.seq")
    if kv_heads and kv_heads % tp and tp % kv_heads:
        what = f"{kv_heads} key and value heads can be neither split over TP {tp} nor copied evenly"
        yield _build_violation(
            filling, ("model.kv_heads", "plan.tp"), what, "use a TP that divides them, or a multiple"
        )
    if seq and filling.get("plan.sequence_parallel") and seq % tp:
        what = f"sequence length {seq} cannot be split over TP {tp} (sequence parallelism)"
        yield _build_violation(filling, ("model.seq", "plan.tp"), what, f"make it a multiple of {tp}")
    if seq and cp > 1 and seq % (2 * cp):
        what = f"sequence length {seq} is not a multiple of 2 × CP {cp}"
        yield _build_violation(filling, ("model.seq", "plan.cp"), what, f"make it a multiple of {2 * cp}")


def _experts(filling: Filling) -> Iterator[Violation]:
    """Experts spread evenly over ranks; these are taken from TP x CP x DP, so EP may exceed DP."""
    ep, experts, top_k = filling.get("plan.ep") or 1, filling.get("model.experts"), filling.get("model.top_k")
    if experts and top_k and top_k > experts:
        what = f"{top_k} experts a token of {experts} experts"
        yield _build_violation(filling, ("model.top_k",), what, "lower top-k", model=True, plan=True)
    if ep == 1 or experts is None:
        return
    if not experts:
        what = f"EP {ep} has no meaning without experts, and is taken as 1"
        filling.values["plan.ep"] = 1
        yield _build_violation(filling, ("plan.ep",), what, "state the number of experts, or leave EP out")
        return
    if experts % ep:
        what = f"{experts} experts cannot be spread evenly over EP {ep}"
        yield _build_violation(filling, ("plan.ep", "model.experts"), what, f"use an EP that divides {experts}")
    if not filling.has("plan.tp", "plan.cp", "plan.dp"):
        return
    ranks = filling.get("plan.tp") * filling.get("plan.cp") * filling.get("plan.dp")
    if ranks % ep:
        what = f"EP {ep} does not divide the {ranks} ranks of a stage (TP × CP × DP)"
        yield _build_violation(filling, ("plan.ep", "plan.tp"), what, f"use an EP that divides {ranks}")


def _sharding(filling: Filling) -> Iterator[Violation]:
    """DeepSpeed's pipeline runs with ZeRO stage 0 or 1 only."""
    sharding, pp = filling.get("plan.sharding"), filling.get("plan.pp") or 1
    is_deepspeed = filling.workload.framework == MEGATRON_DEEPSPEED
    if is_deepspeed and pp > 1 and sharding in (Sharding.ZERO2, Sharding.ZERO3):
        what = f"DeepSpeed cannot combine {sharding} with PP {pp}"
        yield _build_violation(
            filling, ("plan.sharding", "plan.pp"), what, "use ZeRO stage 1 with pipeline parallelism"
        )
