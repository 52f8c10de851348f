"""What was run in each row of a table of measured runs, as the cost model takes it, and what had to be assumed?

The table's columns are described in the notes that come with it: one row a run, empty where the source does not say.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from opsk.errors import OpskError
from opsk.hardware.catalog import gpu
from opsk.hardware.spec import ClusterSpec, NicSpec, NodeSpec
from opsk.units import gbit_per_s
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding

SC21_MICRO_BATCH_AND_CHUNKS = {
    "GPT-1.7B": (16, 1),
    "GPT-3.6B": (16, 1),
    "GPT-7.5B": (16, 1),
    "GPT-18.4B": (8, 1),
    "GPT-39.1B": (4, 1),
    "GPT-76.1B": (2, 3),
    "GPT-145.6B": (2, 2),
    "GPT-310.1B": (1, 2),
    "GPT-529.6B": (1, 3),
    "GPT-1008.0B": (1, 1),
}
"""Micro-batch and model chunks a stage of Narayanan et al. 2021, table 1, which the table itself leaves out.

Source: the authors' own launch script for that table, Megatron-LM examples/sc21/run_table_1.sh.
"""

_PRECISIONS = {
    "fp32": Precision.FP32,
    "fp16": Precision.FP16,
    "bf16": Precision.BF16,
    "amp_bf16": Precision.BF16,
    "fp8": Precision.FP8,
    "mxfp8": Precision.FP8,
    "fp8-mx": Precision.FP8,
    "fp8-cs": Precision.FP8,
    "fp8 hybrid": Precision.FP8,
}
_GPU_NAMES = {"A100-40": "a100-sxm-40gb", "A100": "a100-sxm-80gb", "H100": "h100-sxm", "A800": "a800-sxm-80gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One run: inputs of the cost model, what was measured (``None`` where it was not), and what was assumed."""

    id: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    assumed: tuple[str, ...]
    columns: dict[str, str]

    @property
    def source(self) -> str:
        """Prefix of the id: which publication."""
        return self.id.rsplit("-", 1)[0]

    def number(self, column: str) -> float | None:
        """Return a measured column as a number."""
        return float(self.columns[column]) if self.columns[column] else None


def read_rows(path: Path) -> tuple[list[MeasuredRow], dict[str, str]]:
    """Return the rows that can be predicted, and by id why the others cannot."""
    rows: list[MeasuredRow] = []
    skipped: dict[str, str] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for columns in csv.DictReader(stream):
            try:
                rows.append(_row(columns))
            except (OpskError, ValueError, KeyError) as error:
                skipped[columns["id"]] = f"{type(error).__name__}: {error}"
    return rows, skipped


def _row(columns: dict[str, str]) -> MeasuredRow:
    """Return one row; raises what names the missing or unusable input."""
    assumed: list[str] = []
    model = _model(columns, assumed)
    return MeasuredRow(
        id=columns["id"],
        model=model,
        plan=_plan(columns, assumed),
        cluster=_cluster(columns, assumed),
        assumed=tuple(assumed),
        columns=columns,
    )


def _model(columns: dict[str, str], assumed: list[str]) -> ModelShape:
    def number(name: str, default: int | None = None) -> int:
        if columns[name]:
            return int(columns[name])
        if default is None:
            raise ValueError(f"{name} is not stated")
        assumed.append(f"{name}={default}")
        return default

    hidden, moe = number("hidden"), columns["arch"] == "moe"
    heads = number("heads", max(hidden // 128, 1))
    gated = columns["arch"] in ("llama", "moe")
    vocab = number("vocab", 51200 if columns["arch"] == "gpt" else 32000)
    ffn = number("ffn_hidden", 4 * hidden if not gated else int(8 * hidden / 3 / 256 + 1) * 256)
    return ModelShape(
        name=columns["model"],
        layers=number("layers"),
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=number("kv_heads", heads),
        head_dim=128 if moe else hidden // heads,
        vocab=vocab,
        seq=number("seq_len"),
        gated_mlp=gated,
        experts=number("experts", 0) if moe else 0,
        top_k=number("topk", 0) if moe else 0,
        expert_ffn=ffn if moe else 0,
        tied_embeddings=not gated,
        learned_positions=columns["arch"] == "gpt",
        flash_attention=columns["source"].startswith(("llm-foundry", "MosaicML"))
        or columns["arch"] != "gpt"
        or columns["gpu"] != "A100"
        or "flash attention" in columns["notes"],
    )


def _plan(columns: dict[str, str], assumed: list[str]) -> Plan:
    def number(name: str, default: int) -> int:
        if columns[name]:
            return int(columns[name])
        assumed.append(f"{name}={default}")
        return default

    tp, pp, cp = number("tp", 1), number("pp", 1), number("cp", 1)
    published = SC21_MICRO_BATCH_AND_CHUNKS.get(columns["model"]) if columns["id"].startswith("nar1-") else None
    micro_batch, vpp = published or (0, number("vpp", 1))
    dp = number("dp", int(columns["gpus"]) // (tp * pp * cp))
    if not columns["micro_batch"] and not micro_batch:
        raise ValueError("micro_batch is not stated")
    return Plan(
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        ep=number("ep", 1),
        dp=dp,
        sharding=Sharding("zero3" if "zero3" in columns["sharding"] else columns["sharding"] or "zero1"),
        sequence_parallel=columns["sequence_parallel"] == "yes"
        or (columns["sequence_parallel"] == "" and columns["gpu"] != "A100" and tp > 1),
        recompute=Recompute(columns["recompute"] or "none"),
        precision=_PRECISIONS[columns["precision"] or "bf16"],
        micro_batch=int(columns["micro_batch"] or micro_batch),
        global_batch=int(columns["global_batch"]),
    )


def _cluster(columns: dict[str, str], assumed: list[str]) -> ClusterSpec:
    small = columns["gpu"] == "A100" and columns["gpu_mem_gb"] == "40"
    spec = gpu("a100-sxm-40gb" if small else _GPU_NAMES.get(columns["gpu"], columns["gpu"].lower()))
    if columns["intra_node_gbps"]:
        spec = replace(spec, hb_bytes_per_s=gbit_per_s(float(columns["intra_node_gbps"])))
    gpus_per_node = int(columns["gpus_per_node"] or 8)
    nic_gbps = float(columns["nic_gbps"] or (200 if columns["gpu"].startswith("A") else 400))
    if not columns["nic_gbps"]:
        assumed.append(f"nic_gbps={nic_gbps}")
    nic = NicSpec(name="as stated", bytes_per_s=gbit_per_s(nic_gbps))
    domain = 72 if columns["gpu"].startswith("GB") else gpus_per_node
    node = NodeSpec(name="as stated", gpu=spec, gpus=gpus_per_node, nic=nic, nics=gpus_per_node, hb_domain_gpus=domain)
    return ClusterSpec(name="as stated", node=node, nodes=int(columns["gpus"]) // gpus_per_node, fabric="fat-tree")
