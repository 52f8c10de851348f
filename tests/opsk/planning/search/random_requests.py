"""Requests of all kinds, drawn by hypothesis: what a search must hold for, whatever is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, LinkEfficiency, MemoryEfficiency, SoftwareEfficiency
from opsk.costmodel.rules import missing_formats
from opsk.frameworks.limits import ANYTHING, ExpertTensor, Limits, SequenceParallel
from opsk.hardware import catalog
from opsk.hardware.spec import FABRICS, ClusterSpec
from opsk.planning.search.request import PlanRequest
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    OffloadModule,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
)

CLUSTERS = tuple(catalog.cluster(name) for name in catalog.names("cluster"))
YES = st.booleans()


@st.composite
def models(draw: st.DrawFn) -> ModelShape:
    """Return a transformer: dense or with experts, plain, grouped or latent attention, with all that may hang on it."""
    heads = draw(st.sampled_from([4, 8, 16, 32, 40, 96]))
    head_dim = draw(st.sampled_from([64, 80, 128]))
    kind = draw(st.sampled_from(["dense", "experts", "encoder"]))
    layers = draw(st.integers(1, 12) | st.sampled_from([16, 24, 32, 61, 96]))
    hidden = draw(st.sampled_from([512, heads * head_dim]))
    has_experts, has_encoder = kind == "experts", kind == "encoder"
    attention: dict[str, Any] = {"kv_heads": heads // draw(st.sampled_from([1, 2, 4])), "head_dim": head_dim}
    if draw(YES) and not has_encoder:
        rank = draw(st.sampled_from([0, 192]))
        attention = {"kv_heads": heads, "head_dim": 192, "q_lora_rank": rank, "kv_lora_rank": 128}
        attention |= {"qk_rope_dim": 64, "v_head_dim": 128}
    experts: dict[str, Any] = {}
    if has_experts:
        experts = {
            "experts": draw(st.sampled_from([2, 6, 8, 16])),
            "top_k": draw(st.integers(1, 2)),
            "expert_ffn": draw(st.sampled_from([256, 1024, 8192])),
            "shared_experts": draw(st.integers(0, 1)),
            "dense_layers": draw(st.just(0) | st.integers(0, layers)),
            "dense_interleaved": draw(YES),
            "expert_imbalance": draw(st.sampled_from([1.0, 1.5])),
            "capacity_factor": draw(st.sampled_from([0.0, 1.25])),
        }
    encoder = {"encoder_layers": draw(st.integers(1, 12)), "encoder_seq": 1024} if has_encoder else {}
    mixers = _mixers(draw, layers, heads, lone=not experts.get("dense_layers")) if kind != "encoder" else {}
    attending = layers - mixers.get("mixer_layers", 0) - mixers.get("mlp_layers", 0)
    window = {"attention_window": 256, "windowed_layers": draw(st.integers(0, attending))} if draw(YES) else {}
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=draw(st.sampled_from([hidden, 4 * hidden, 16 * hidden])),
        vocab=draw(st.sampled_from([1000, 32000, 256000])),
        seq=draw(st.sampled_from([512, 2048, 6144, 131072])),
        gated_mlp=draw(YES),
        tied_embeddings=draw(YES),
        learned_positions=draw(YES),
        flash_attention=draw(YES),
        mtp_layers=draw(st.sampled_from([0, 0, 1, 2])),
        norms_per_layer=draw(st.sampled_from([2, 2, 4, 1, 0])),
        qk_norm=draw(YES),
        **attention,
        **experts,
        **encoder,
        **window,
        **mixers,
    )


def _mixers(draw: st.DrawFn, layers: int, heads: int, *, lone: bool) -> dict[str, Any]:
    """Return mixers of some layers, one time in three; ``lone`` tells that others may be an MLP alone."""
    if draw(st.integers(0, 2)):
        return {}
    number = draw(st.integers(1, layers))
    sizes = {"mixer_heads": heads, "mixer_head_dim": 64, "mixer_state": 64, "mixer_conv": 4, "mixer_rank": 64}
    kind = draw(st.sampled_from(["mamba", "mamba2", "gated-deltanet", "kda", "lightning"]))
    mlps = draw(st.integers(0, layers - number)) if lone else 0
    groups = draw(st.sampled_from([1, heads]))
    return {"mixer": kind, "mixer_layers": number, "mixer_groups": groups, "mlp_layers": mlps, **sizes}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSpec:
    """Return a cluster of the catalogue, or one of another network."""
    cluster = draw(st.sampled_from(CLUSTERS))
    if draw(YES):
        return cluster
    gpu = cluster.node.gpu
    if draw(YES):
        gpu = replace(gpu, memory_bytes=gpu.memory_bytes // 8, usable_bytes=None)
    domain = draw(st.sampled_from([1, 2, 4, 8, 72]))
    return replace(
        cluster,
        node=replace(cluster.node, gpu=gpu, hb_domain_gpus=domain, nics=draw(st.sampled_from([1, 4, 8]))),
        fabric=draw(st.sampled_from(FABRICS)),
        oversubscription=draw(st.sampled_from([1.0, 4.0])),
        in_network_reduction=draw(YES),
    )


@st.composite
def efficiencies(draw: st.DrawFn) -> Efficiency:
    """Return the efficiencies of opsk, or those of a site that measured something else."""
    if draw(YES):
        return DEFAULT
    share = st.sampled_from([0.0, 0.3, 1.0])
    overlaps = ("dp_overlap", "fsdp_overlap", "tp_overlap", "ep_overlap", "cp_overlap", "pp_overlap")
    software = SoftwareEfficiency(
        **{name: draw(share) for name in overlaps},
        straggler_fraction=draw(st.sampled_from([0.0, 0.05])),
        step_overhead_s=draw(st.sampled_from([0.0, 0.1])),
        kernel_gap_s=draw(st.sampled_from([0.0, 5e-6, 1e-3])),
    )
    fraction = st.sampled_from([0.0, 0.05, 0.4])
    return Efficiency(
        software=dict.fromkeys(Software, software),
        links=LinkEfficiency(hb_hop_s=draw(st.sampled_from([0.0, 1e-5])), nic_hop_s=draw(st.sampled_from([0.0, 1e-4]))),
        memory=MemoryEfficiency(
            context_bytes=draw(st.sampled_from([0.0, 1e9])),
            workspace_bytes=draw(st.sampled_from([0.0, 1e8])),
            slack_fraction=draw(fraction),
            fragmentation_fraction=draw(fraction),
        ),
    )


@st.composite
def templates(draw: st.DrawFn, cluster: ClusterSpec) -> Plan:
    """Return what of a plan is not searched, such as this cluster can run."""
    precisions = [one for one in Precision if not missing_formats(Plan(precision=one, global_batch=1), cluster)]
    if not {"bf16"} <= cluster.node.gpu.peak_flop_per_s.keys():
        precisions = [Precision.FP16]
    lora_rank = draw(st.sampled_from([0, 0, 16]))
    return Plan(
        global_batch=1,
        precision=draw(st.sampled_from(precisions)),
        states=draw(st.sampled_from(States)),
        optimizer=draw(st.sampled_from(Optimizer)),
        offload=draw(st.just(Offload.NONE) | st.sampled_from(Offload)),
        software=draw(st.sampled_from(Software)),
        overlap=draw(st.sampled_from([True, True, False])),
        tp_overlap=draw(YES),
        compiled=draw(YES),
        fused_moe=draw(YES),
        moe_dispatcher=draw(st.sampled_from(MoeDispatcher)),
        moe_gemm=draw(st.sampled_from(MoeGemm)),
        moe_permute_fusion=draw(YES),
        ep_overlap=draw(YES),
        loss=draw(st.sampled_from(Loss)),
        lora_rank=lora_rank,
        base_bits=draw(st.sampled_from([4, 8, 16, 32])) if lora_rank else 16,
        frozen_fraction=0.0 if lora_rank else draw(st.sampled_from([0.0, 0.0, 0.5])),
        recompute_modules=" ".join(draw(st.just(set()) | st.sets(st.sampled_from(RecomputeModule)))),
        offload_modules=" ".join(draw(st.just(set()) | st.sets(st.sampled_from(OffloadModule)))),
        offload_layers=draw(st.sampled_from([0, 0, 2])),
        offload_fraction=draw(st.sampled_from([1.0, 0.5])),
        moment_format=draw(st.sampled_from(StateFormat)),
        master_format=draw(st.sampled_from(StateFormat)),
        fp8_weights=draw(YES),
    )


@st.composite
def requests(
    draw: st.DrawFn,
    gpus: st.SearchStrategy[int],
    batches: st.SearchStrategy[int],
    *,
    fixes: bool = True,
) -> PlanRequest:
    """Return what somebody may ask; with ``fixes`` some axes may take certain values only."""
    cluster = draw(clusters())
    model, count = draw(models()), draw(gpus)
    return PlanRequest(
        model=model,
        cluster=cluster,
        template=draw(templates(cluster)),
        gpus=count,
        global_batch=draw(batches),
        efficiency=draw(efficiencies()),
        fixed=draw(_fixed()) if fixes else {},
        most=draw(st.integers(1, 4)),
    )


@st.composite
def tiny_models(draw: st.DrawFn) -> ModelShape:
    """Return a model of few layers whose sizes divide now and then only."""
    kv_heads = draw(st.sampled_from([1, 2, 3]))
    has_experts, has_encoder = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    experts: dict[str, Any] = {}
    if has_experts:
        experts = {"experts": draw(st.sampled_from([2, 3, 4])), "top_k": 1}
        experts |= {"expert_ffn": draw(st.sampled_from([16, 24, 32])), "shared_experts": draw(st.integers(0, 1))}
    return ModelShape(
        layers=draw(st.integers(1, 4)),
        hidden=draw(st.sampled_from([48, 64, 96])),
        heads=kv_heads * draw(st.sampled_from([1, 2])),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([16, 64])),
        ffn=draw(st.sampled_from([32, 48, 64, 96])),
        vocab=1000,
        seq=draw(st.sampled_from([4, 6, 8, 12, 64])),
        encoder_layers=draw(st.integers(1, 3)) if has_encoder else 0,
        encoder_seq=draw(st.sampled_from([4, 6, 8])) if has_encoder else 0,
        **experts,
    )


def _some(values: type[Any]) -> st.SearchStrategy[frozenset[Any]]:
    """Return all members of an enumeration, or some."""
    return st.just(frozenset(values)) | st.frozensets(st.sampled_from(values), min_size=1)


LIMITS = st.builds(
    Limits,
    shardings=_some(Sharding),
    pipelined_shardings=_some(Sharding),
    partial_sharding=YES,
    partial_shardings=_some(Sharding),
    replicated_alone=YES,
    sequence_parallel=st.sampled_from(SequenceParallel),
    recomputes=_some(Recompute),
    recompute_layers=YES,
    schedules=_some(Schedule),
    interleaved=YES,
    uneven_stages=YES,
    **{f"largest_{axis}": st.sampled_from([0, 1, 2]) for axis in ("tp", "pp", "cp", "ep")},
    apart=st.sampled_from([frozenset(), frozenset({("cp", "tp")}), frozenset({("pp", "ep")})]),
    expert_tensors=_some(ExpertTensor),
    expert_shardings=_some(Sharding),
)
"""What some framework may have."""


@st.composite
def tiny_requests(draw: st.DrawFn) -> PlanRequest:
    """Return a request whose plans can be enumerated by nested loops over everything."""
    cluster = draw(st.sampled_from(CLUSTERS))
    return PlanRequest(
        model=draw(tiny_models()),
        cluster=cluster,
        template=draw(templates(cluster)),
        gpus=draw(st.sampled_from([1, 2, 2, 3, 4, 6])),
        global_batch=draw(st.sampled_from([1, 2, 3, 4])),
        fixed=draw(_fixed()),
        limits=draw(st.sampled_from([ANYTHING, ANYTHING]) | LIMITS),
        most=draw(st.integers(1, 4)),
    )


@st.composite
def _fixed(draw: st.DrawFn) -> dict[str, tuple[Any, ...]]:
    """Return values for a few axes, or for none."""
    axes = draw(st.lists(st.sampled_from(sorted(FIXED)), max_size=3, unique=True))
    return {axis: tuple(draw(st.lists(FIXED[axis], min_size=1, max_size=2, unique=True))) for axis in axes}


FIXED: dict[str, st.SearchStrategy[Any]] = {
    **{axis: st.sampled_from([1, 2, 4]) for axis in ("tp", "pp", "cp", "ep", "dp")},
    "vpp": st.sampled_from([1, 2, 3]),
    "etp": st.sampled_from([0, 1, 2]),
    "sharding": st.sampled_from(Sharding),
    "shard_gpus": st.sampled_from([0, 2, 4]),
    "sequence_parallel": YES,
    "recompute": st.sampled_from(Recompute),
    "recompute_layers": st.sampled_from([0, 1, 2]),
    "first_stage_layers": st.sampled_from([0, 1, 2]),
    "last_stage_layers": st.sampled_from([0, 1, 2]),
    "micro_batch": st.sampled_from([1, 2, 4]),
    "schedule": st.sampled_from(Schedule),
}
"""Values that an axis may be bound to."""
