"""Reads the networks, models and prices from the command line of ``opsk design``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsk.app.inputs.named_inputs import find_unmeasured, load_cluster, load_efficiency, load_model
from opsk.app.inputs.plan_validation import KINDS, parse_flag, validate_fields
from opsk.costmodel.network_cost import PartPrices
from opsk.costmodel.rules import missing_formats
from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.limits import ANYTHING
from opsk.hardware.catalog import gpu as named_gpu
from opsk.hardware.catalog import node as named_node
from opsk.hardware.spec import ClusterSpec, NodeSpec
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.network_design.point import ALL, Point, SweptRow, Wiring, list_swept_rows, parse_network, parse_sweep
from opsk.network_design.rows import Setting
from opsk.network_design.techniques import Extras, Technique
from opsk.planning.search.request import AXES
from opsk.text import escape
from opsk.units import gbit_per_s
from opsk.workload.defaults import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

NETWORKS = ("rail-optimized", "rail-only", "fat-tree:2", "fat-tree:4")
"""Networks that are compared by default; a full fat tree has the parts and the rates of a rail-optimised one."""
USUAL_NODE = "dgx-h100"
USUAL_RADIX = 64
USUAL_SOFTWARE = "megatron-core"
_TOKENS = 4 << 20
"""Tokens of a step where no batch is given, as large runs use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``opsk design`` that say what to compare; ``None`` is "not given"."""

    models: Sequence[str]
    seq: int | None
    global_batch: int | None
    networks: Sequence[str]
    techniques: Sequence[str]
    sweeps: Sequence[str]
    fixed: Sequence[str]
    cluster: str | None
    node: str | None
    gpu: str | None
    gpus: int | None
    radix: int
    hb_domain: str | None
    gpus_per_node: int | None
    nics: int | None
    nic_gbps: float | None
    hb_gbps: float | None
    framework: str
    precision: str
    software: str | None
    efficiency: str | None
    prices: Mapping[str, float | None]
    extras: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The cases to compute, and the assumptions."""

    setting: Setting
    swept_rows: tuple[SweptRow, ...]
    assumed: tuple[Assumption, ...]


def build_comparison(request: Request) -> Comparison:
    """Return the comparison that the options request.

    Raises
    ------
    InputError
        Names what is wrong, and the nearest valid value.
    """
    assumed: list[Assumption] = []
    node, gpus = _resolve_machine(request, assumed)
    sweeps = _parse_sweeps(request.sweeps)
    setting = build_setting(request, node, assumed)
    base = _build_base_point(request, node, gpus, sweeps, setting, assumed)
    networks = [parse_network(text) for text in request.networks or NETWORKS]
    techniques = [Technique(name) for name in dict.fromkeys(_expand_techniques(request.techniques))]
    cases = list_swept_rows(base, list(dict.fromkeys(networks)), techniques, sweeps)
    return Comparison(setting=setting, swept_rows=cases, assumed=tuple(assumed))


def build_setting(request: Request, node: NodeSpec, assumed: list[Assumption]) -> Setting:
    """Return the setting that all rows share: models, prices, the search."""
    limits = FRAMEWORKS[request.framework].limits if request.framework != ANYTHING.name else ANYTHING
    efficiency = load_efficiency(request.efficiency)
    template = build_template(request)
    if missing := missing_formats(template, _build_cluster(node)):
        raise InputError("; ".join(missing), hint="take another --precision or --gpu")
    fixed = parse_fixed_axes(request.fixed)
    prices = {name: value for name, value in request.prices.items() if value is not None}
    if request.models:
        assumed += find_unmeasured(efficiency, template.software, _build_cluster(node))
    return Setting(
        node=node,
        template=template,
        model_requests=tuple(
            ModelRequest(model=_load_model(name, request.seq, assumed), template=template, fixed=fixed)
            for name in dict.fromkeys(request.models)
        ),
        plans=BestPlans(limits, efficiency),
        prices=PartPrices(**prices),
        prices_are_own=bool(prices),
        extras=Extras(**request.extras),
        efficiency=efficiency,
    )


def _build_cluster(node: NodeSpec) -> ClusterSpec:
    """Return a cluster of one node, for rules that ask about its GPU."""
    return replace(load_cluster("superpod-h100"), node=node, name=node.name)


def _load_model(name: str, seq: int | None, assumed: list[Assumption]) -> ModelShape:
    """Return a model with its length of sequences."""
    shape, more = load_model(name, seq=seq)
    assumed += more
    return replace(shape, name=shape.name or escape(name)) if seq is None else replace(shape, seq=seq)


def build_template(request: Request) -> Plan:
    """Return the plan with every field that is not searched."""
    stated = validate_fields({"plan": {"precision": request.precision, "software": request.software or USUAL_SOFTWARE}})
    if stated.wrong:
        raise InputError("; ".join(stated.wrong), hint="opsk predict --help names them")
    return Plan(global_batch=1, **stated.tables["plan"])


def parse_fixed_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the fixed axes of the plan: ``tp=8``, ``sharding=none,zero1``.

    Raises
    ------
    InputError
        Names an unknown axis, or an invalid value.
    """
    fixed: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in AXES or not values:
            raise InputError(
                escape(f"--fix {text[:80]!r} names no axis and values"),
                hint=f"AXIS=V1,V2 with AXIS one of {', '.join(AXES)}",
            )
        fixed[name] = tuple(_parse_axis_value(name, value.strip()) for value in values.split(","))
    return fixed


def _parse_axis_value(name: str, text: str) -> Any:
    """Return one value of an axis."""
    if KINDS["plan"][name] is bool:
        words = {"yes": True, "true": True, "no": False, "false": False}
        if text.casefold() in words:
            return words[text.casefold()]
        raise InputError(escape(f"--fix {name}: {text[:40]!r} is neither yes nor no"))
    stated = validate_fields({"plan": {name: parse_flag("plan", name, text)}})
    if stated.wrong:
        raise InputError(escape(f"--fix {'; '.join(stated.wrong)}"), hint="opsk predict --help names the values")
    return stated.tables["plan"][name]


def _expand_techniques(names: Sequence[str]) -> Sequence[str]:
    """Return the options, ``all`` being every one of them."""
    return [*Technique] if ALL in names else names


def _parse_sweeps(texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the sweeps, each key once."""
    sweeps: dict[str, tuple[float, ...]] = {}
    for text in texts:
        key, values = parse_sweep(text)
        sweeps[key] = tuple(dict.fromkeys([*sweeps.get(key, ()), *values]))
    return sweeps


def _resolve_machine(request: Request, assumed: list[Assumption]) -> tuple[NodeSpec, int | None]:
    """Return the node type, and the GPUs of the cluster where one is named."""
    if request.cluster and request.node:
        raise InputError("--cluster and --node both say what a node is", hint="give one of them")
    gpus = None
    if request.cluster:
        cluster = load_cluster(request.cluster)
        node, gpus = cluster.node, cluster.gpus
    else:
        node = named_node(request.node or USUAL_NODE)
        if request.node is None:
            why = "neither --cluster nor --node is given"
            assumed.append(Assumption(field="node", value=node.name, why=why))
    if request.gpu:
        node = replace(node, gpu=named_gpu(request.gpu))
    return node, gpus


def _build_base_point(
    request: Request,
    node: NodeSpec,
    gpus: int | None,
    sweeps: Mapping[str, Sequence[float]],
    setting: Setting,
    assumed: list[Assumption],
) -> Point:
    """Return the base point that networks and sweeps vary."""
    swept = {key: int(values[0]) for key, values in sweeps.items() if values[0] != float("inf")}
    count = request.gpus or gpus or swept.get("gpus")
    if count is None:
        raise InputError("how many GPUs?", hint="give --gpus N, or a --cluster")
    gpus_per_node = request.gpus_per_node or swept.get("gpus-per-node") or node.gpus
    nics = request.nics or swept.get("nics") or round(node.nics / node.gpus * gpus_per_node) or 1
    hb = gbit_per_s(request.hb_gbps) if request.hb_gbps else node.gpu.hb_bytes_per_s or node.gpu.pcie_bytes_per_s
    batch = request.global_batch or swept.get("global-batch") or 0
    if setting.model_requests and not batch:
        batch = _choose_batch(max(asked.model.seq for asked in setting.model_requests), count)
        why = "no --global-batch: about four million tokens, and a sequence for every eight GPUs at least"
        assumed.append(Assumption(field="global_batch", value=batch, why=why))
    return Point(
        wiring=Wiring.RAIL_OPTIMIZED,
        gpus=count,
        hb_domain=_parse_hb_domain(request.hb_domain, count, node, gpus_per_node),
        gpus_per_node=gpus_per_node,
        nics=nics,
        radix=request.radix,
        nic_bytes_per_s=gbit_per_s(request.nic_gbps) if request.nic_gbps else node.nic.bytes_per_s,
        hb_bytes_per_s=hb,
        global_batch=batch,
    )


def _parse_hb_domain(text: str | None, gpus: int, node: NodeSpec, gpus_per_node: int) -> int:
    """Return the GPUs of an HB domain: a number, ``all``, or as the node type has it."""
    if text is None:
        return gpus_per_node if node.hb_domain_gpus == node.gpus else node.hb_domain_gpus
    if text == ALL:
        return gpus
    try:
        return int(text)
    except ValueError:
        raise InputError(
            escape(f"--hb-domain {text[:40]!r} is not a number"), hint="a number of GPUs, or all"
        ) from None


def _choose_batch(seq: int, gpus: int) -> int:
    """Return a power of two: four million tokens, or a sequence for every eight GPUs."""
    return 1 << (max(_TOKENS // seq, gpus // 8, 1) - 1).bit_length()
