"""Computes what the published scaling laws and closed forms say of a training run, one quantity a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.estimates import scaling_laws
from opsk.costmodel.estimates.scaling_laws import BESIROGLU, HOFFMANN_PRINTED, HOFFMANN_UNROUNDED, KAPLAN_JOINT
from opsk.costmodel.sizes.parameters import active_parameters
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.volumes import axis_traffic, compute_active_pair_share
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision

_YIN, _KAPLAN, _HOFFMANN = "Yin et al. 2023", "Kaplan et al. 2020", "Hoffmann et al. 2022"
_WANG = "Wang et al. 2023, rail-only"
_KORTHIKANTI, _NARAYANAN = "Korthikanti et al. 2022", "Narayanan et al. 2021"
_ADAM_PARTS = "parameters 1, Adam's states 2, gradients and residue 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    """What is known of a run; a formula whose inputs are not known is left out.

    Parameters
    ----------
    parameters
        Parameters of the model; those of ``shape`` where it is given.
    tokens
        Tokens of the whole run; ``None`` takes 20 a parameter.
    flop_per_s
        What the whole system achieves [FLOP/s].
    power_w
        Mean power of the whole system [W].
    gpus
        GPUs of the system, for formulas of memory and traffic per GPU.
    tp, pp
        Tensor and pipeline parallelism; the rest of ``gpus`` is data parallelism.
    shape, global_batch, micro_batch
        A public model and its batches, for formulas of a step and of a layer.
    """

    parameters: float
    tokens: float | None = None
    flop_per_s: float | None = None
    power_w: float | None = None
    gpus: int | None = None
    tp: int = 1
    pp: int = 1
    shape: ModelShape | None = None
    global_batch: int | None = None
    micro_batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number: its formula as printed, its unit, its source, and what to know of it (a slip in the source, say)."""

    group: str
    name: str
    formula: str
    value: float
    unit: str
    source: str
    note: str = ""


def compute_scaling(request: ScalingRequest) -> tuple[Quantity, ...]:
    """Return all quantities whose inputs are known, in groups."""
    return (
        *_compute_flop(request),
        *_compute_time(request),
        *_compute_loss(request),
        *_compute_memory(request),
        *_compute_traffic(request),
        *_compute_axes(request),
        *_compute_step(request),
        *_compute_layer(request),
    )


def _tokens(request: ScalingRequest) -> float:
    """Return the tokens of the run."""
    return scaling_laws.optimal_tokens(request.parameters) if request.tokens is None else request.tokens


def _run_flop(request: ScalingRequest) -> float:
    """Return the FLOP of the run."""
    return scaling_laws.training_flop(parameters=request.parameters, tokens=_tokens(request))


def _compute_flop(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield tokens and FLOP of the run, and of the compute-optimal one."""
    parameters, flop = request.parameters, _run_flop(request)

    def row(name: str, formula: str, value: float, unit: str, source: str, note: str = "") -> Quantity:
        return Quantity(group="compute", name=name, formula=formula, value=value, unit=unit, source=source, note=note)

    yield row("FLOP of the run", "6 N D", flop, "FLOP", f"{_KAPLAN}, 2.1", "attention and recomputation left out")
    if request.shape is not None and request.shape.experts:
        note = "routed experts that a token is not sent to are left out: take these for N in 6 N D"
        active = float(active_parameters(request.shape))
        yield row("parameters that a token passes", "-", active, "parameters", "", note)
    yield row("compute-optimal tokens", "20 P", scaling_laws.optimal_tokens(parameters), "tokens", _HOFFMANN)
    optimal = scaling_laws.optimal_training_flop(parameters)
    yield row("FLOP of a compute-optimal run", "120 P^2", optimal, "FLOP", f"{_YIN}, equation 7")
    by_rule = scaling_laws.optimal_parameters(flop)
    yield row("parameters for this FLOP, by the rule", "sqrt(C / 120)", by_rule, "parameters", _HOFFMANN)
    for law, source, note in (
        (HOFFMANN_UNROUNDED, f"{_HOFFMANN}, equation 4", "digits of the paper's TeX source"),
        (HOFFMANN_PRINTED, f"{_HOFFMANN}, equations 4 and 10", "as printed: the rounded beta moves the optimum"),
        (BESIROGLU, "Besiroglu et al. 2024", "refit of the same runs; agrees with 20 tokens a parameter"),
    ):
        value = law.optimal_parameters(flop)
        yield row("parameters for this FLOP, parametric", "G (C/6)^(b/(a+b))", value, "parameters", source, note)
    for law, source in ((HOFFMANN_UNROUNDED, f"{_HOFFMANN}, equation 4"), (BESIROGLU, "Besiroglu et al. 2024")):
        value = law.optimal_flop(parameters)
        yield row("FLOP for which this size is optimal, parametric", "6 (N/G)^((a+b)/b)", value, "FLOP", source)
    best = scaling_laws.kaplan_optimum(flop)
    note = "too few tokens: the learning rate was not fitted to each length (Hoffmann et al. 2022)"
    yield row(
        "parameters for this FLOP, Kaplan", "1.3e9 C^0.73", best.parameters, "parameters", f"{_KAPLAN}, table 6", note
    )
    yield row("batch at this FLOP", "2.0e6 C^0.24", best.batch_tokens, "tokens", f"{_KAPLAN}, table 6")
    yield row("steps at this FLOP", "5.4e3 C^0.03", best.steps, "steps", f"{_KAPLAN}, table 6")


def _compute_time(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield time and energy where the rate and the power are known."""
    if request.flop_per_s is None:
        return
    flop, rate = _run_flop(request), request.flop_per_s
    time_s = scaling_laws.run_time_s(flop=flop, flop_per_s=rate)
    yield Quantity(group="time", name="time of the run", formula="t = C / R", value=time_s, unit="s", source=_YIN)
    optimal_s = scaling_laws.run_time_s(flop=scaling_laws.optimal_training_flop(request.parameters), flop_per_s=rate)
    yield Quantity(
        group="time", name="time of a compute-optimal run", formula="120 P^2 / R", value=optimal_s, unit="s",
        source=_YIN,
    )  # fmt: skip
    recomputed_s = scaling_laws.training_time_s(
        tokens=_tokens(request), parameters=request.parameters, gpus=1, flop_per_s=rate
    )
    yield Quantity(
        group="time", name="time with full recomputation", formula="8 T P / (n X)", value=recomputed_s, unit="s",
        source=f"{_NARAYANAN}, equation 4",
    )  # fmt: skip
    if request.power_w is not None:
        energy_j = scaling_laws.run_energy_j(time_s=time_s, power_w=request.power_w)
        yield Quantity(group="time", name="energy of the run", formula="E = t W", value=energy_j, unit="J", source=_YIN)


def _compute_loss(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield the loss after the run, by each law."""
    parameters, tokens, flop = request.parameters, _tokens(request), _run_flop(request)

    def row(name: str, formula: str, value: float, source: str, note: str = "") -> Quantity:
        return Quantity(
            group="loss", name=name, formula=formula, value=value, unit="nats/token", source=source, note=note
        )

    joint = KAPLAN_JOINT.loss(parameters=parameters, tokens=tokens)
    yield row("loss", "[(Nc/N)^(aN/aD) + Dc/D]^aD", joint, f"{_KAPLAN}, equation 1.5")
    by_flop = scaling_laws.kaplan_loss_of_compute(flop)
    yield row("loss at the best use of this FLOP", "(Cc/C)^0.050", by_flop, f"{_KAPLAN}, equation 1.3")
    for law, source in (
        (HOFFMANN_UNROUNDED, f"{_HOFFMANN}, equation 10, digits of the TeX source"),
        (BESIROGLU, "Besiroglu et al. 2024"),
    ):
        value = law.loss(parameters=parameters, tokens=tokens)
        yield row("loss", "E + A/N^a + B/D^b", value, source, "another tokenizer and corpus than Kaplan's")


def _compute_memory(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield the memory of states: the whole model's, and what one GPU holds."""
    states = scaling_laws.state_bytes(request.parameters)
    yield Quantity(
        group="memory", name="weights, gradients and Adam, whole model", formula="16 P", value=states, unit="bytes",
        source="Rajbhandari et al. 2020",
    )  # fmt: skip
    if request.gpus is None:
        return
    share = scaling_laws.fsdp_state_share(gpus=request.gpus)
    yield Quantity(
        group="memory", name="states of one GPU, FSDP", formula="6 Mp / N", value=share, unit="Mp",
        source=f"{_YIN}, equation 2", note=f"Mp is the parameters' own memory; {_ADAM_PARTS}",
    )  # fmt: skip
    dp = request.gpus / (request.tp * request.pp)
    degrees = {"tp": request.tp, "pp": request.pp, "dp": round(dp)}
    printed = scaling_laws.deepspeed_state_share_as_printed(**degrees)
    yield Quantity(
        group="memory", name="states of one GPU, DeepSpeed, as printed", formula="2 (DP + PP TP + 1) / N",
        value=printed, unit="Mp", source=f"{_YIN}, equation 5", note="a slip: it splits the optimizer over DP alone",
    )  # fmt: skip
    corrected = scaling_laws.deepspeed_state_share(**degrees)
    yield Quantity(
        group="memory", name="states of one GPU, DeepSpeed, corrected", formula="(2 DP + 4) / N", value=corrected,
        unit="Mp", source="Rajbhandari et al. 2020", note="ZeRO-1 splits it over TP and PP first, then over DP",
    )  # fmt: skip


def _compute_traffic(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield what one GPU sends in a step, in units of the parameters' own memory."""

    def row(name: str, formula: str, value: float, source: str, note: str = "") -> Quantity:
        return Quantity(group="traffic", name=name, formula=formula, value=value, unit="Mp", source=source, note=note)

    yield row("FSDP", "2 all-gathers, 1 reduce-scatter", scaling_laws.FSDP_VOLUME, f"{_YIN}, equation 3")
    yield row("data parallel", "1 all-reduce", scaling_laws.DDP_VOLUME, "Rajbhandari et al. 2020, 7.2.2")
    if request.gpus is not None:
        dp = round(request.gpus / (request.tp * request.pp))
        value = scaling_laws.deepspeed_volume_as_printed(tp=request.tp, pp=request.pp, dp=dp)
        note = "knows neither batch nor sequence, on which tensor-parallel traffic depends: see opsk predict"
        yield row("DeepSpeed, as printed", "(TP/N + 1) 2", value, f"{_YIN}, equation 6", note)


def _compute_axes(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield what one GPU of a public model sends by axis in a step, and the pairs of GPUs that exchange anything."""
    shape, gpus, batch = request.shape, request.gpus, request.global_batch
    if shape is None or gpus is None or batch is None:
        return
    plan = Plan(
        tp=request.tp, pp=request.pp, dp=gpus // (request.tp * request.pp), micro_batch=request.micro_batch,
        global_batch=batch, precision=Precision.BF16,
    )  # fmt: skip
    model = build_shape(shape)
    shares = compute_shares(model, PlanTable.of([plan]))
    traffic = axis_traffic(model, shares, request.parameters / np.array([request.tp * request.pp]))
    whole = float(traffic.total_bytes[0])

    def row(name: str, formula: str, value: float, unit: str, note: str = "") -> Quantity:
        return Quantity(
            group="axes", name=name, formula=formula, value=value, unit=unit, source=f"{_WANG}, III.A", note=note
        )

    for axis, formula, sent in (("tensor parallelism", "ring, 4 all-reduces a layer", traffic.tp_bytes),
                                ("pipeline", "s b h / t, each way", traffic.pp_bytes),
                                ("data parallelism", "ring, gradients once", traffic.dp_bytes)):  # fmt: skip
        yield row(f"sent for {axis}", formula, float(sent[0]), "bytes")
        share = float(sent[0]) / whole if whole else 0.0
        yield row(f"share of {axis}", "of the bytes", share, "ratio", "figure 2a")
    if gpus > 1:
        axes = sum(degree > 1 for degree in (plan.tp, plan.pp, plan.dp))
        pairs = compute_active_pair_share(np.array([float(gpus)]), float(axes))
        note = "a GPU sends to one other for each axis; figure 2b prints that more than 99 % never do"
        yield row("pairs of GPUs that exchange data", "axes / (N - 1)", float(pairs[0]), "ratio", note)
    if request.flop_per_s is not None:
        step_flop = scaling_laws.flop_per_token(
            parameters=request.parameters, layers=shape.layers, heads=shape.heads,
            head_dim=shape.hidden // shape.heads, seq=shape.seq,
        ) * batch * shape.seq  # fmt: skip
        rate = scaling_laws.scaling_bandwidth_bytes_per_s(
            volume_bytes=scaling_laws.FSDP_VOLUME * 2 * request.parameters, flop=step_flop,
            flop_per_s=request.flop_per_s,
        )  # fmt: skip
        yield Quantity(
            group="axes", name="bandwidth of a GPU that hides FSDP's traffic", formula="3 Mp R / C", value=rate,
            unit="bytes/s", source=f"{_YIN}, section 5", note="Mp with 2 bytes a parameter, C the FLOP of a step",
        )  # fmt: skip


def _compute_step(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield the FLOP of one step of a public model."""
    shape, batch = request.shape, request.global_batch
    if shape is None:
        return
    per_token = scaling_laws.flop_per_token(
        parameters=request.parameters, layers=shape.layers, heads=shape.heads, head_dim=shape.hidden // shape.heads,
        seq=shape.seq,
    )  # fmt: skip
    yield Quantity(
        group="step", name="FLOP of a token", formula="6 N + 12 L H Q T", value=per_token, unit="FLOP",
        source="Chowdhery et al. 2022, appendix B",
    )  # fmt: skip
    counted = scaling_laws.gpt_parameters(layers=shape.layers, hidden=shape.hidden, vocab=shape.vocab, seq=shape.seq)
    yield Quantity(
        group="step", name="parameters, closed form", formula="12 l h^2 (1 + 13/12h + (V + s)/12lh)", value=counted,
        unit="parameters", source=f"{_NARAYANAN}, equation 2",
    )  # fmt: skip
    if batch is None:
        return
    sizes = {"seq": shape.seq, "layers": shape.layers, "hidden": shape.hidden, "vocab": shape.vocab}
    for name, formula, value, source, note in (
        ("FLOP of a step", "72 B s l h^2 (1 + s/6h + V/12lh)",
         scaling_laws.gpt_model_flop(global_batch=batch, **sizes), f"{_KORTHIKANTI}, equation 7", ""),
        ("FLOP of a step, full recomputation", "96 B s l h^2 (1 + s/6h + V/16lh)",
         scaling_laws.gpt_step_flop(global_batch=batch, **sizes), f"{_NARAYANAN}, equation 3", ""),
        ("FLOP of a step, selective, as printed", "72 B s l h^2 (1 + s/3h + V/12lh)",
         scaling_laws.gpt_selective_flop_as_printed(global_batch=batch, **sizes), f"{_KORTHIKANTI}, equation 8",
         "a slip: it adds three forwards of the attention products, one is computed"),
    ):  # fmt: skip
        yield Quantity(group="step", name=name, formula=formula, value=value, unit="FLOP", source=source, note=note)


def _compute_layer(request: ScalingRequest) -> Iterator[Quantity]:
    """Yield the activations of one layer of a public model, for GPT shapes: an MLP of 4 h, heads with own keys."""
    shape = request.shape
    if shape is None:
        return
    tokens = {"seq": shape.seq, "micro_batch": request.micro_batch, "hidden": shape.hidden}
    heads, tp = {"heads": shape.heads}, {"tp": request.tp}
    for name, formula, value in (
        ("nothing recomputed", "s b h (34 + 5 a s/h)", scaling_laws.layer_activation_bytes(**tokens, **heads)),
        ("tensor parallel", "s b h (10 + 24/t + 5 a s/(h t))",
         scaling_laws.layer_activation_bytes_tp(**tokens, **heads, **tp)),
        ("and sequence parallel", "s b h/t (34 + 5 a s/h)",
         scaling_laws.layer_activation_bytes_sp(**tokens, **heads, **tp)),
        ("tensor parallel, selective", "s b h (10 + 24/t)",
         scaling_laws.layer_activation_bytes_tp_selective(**tokens, **tp)),
        ("and sequence parallel, selective", "34 s b h/t",
         scaling_laws.layer_activation_bytes_selective(**tokens, **tp)),
        ("full recomputation", "2 s b h", scaling_laws.layer_activation_bytes_full(**tokens)),
    ):  # fmt: skip
        yield Quantity(
            group="layer", name=f"activations, {name}", formula=formula, value=value, unit="bytes",
            source=f"{_KORTHIKANTI}, table 2",
        )  # fmt: skip
