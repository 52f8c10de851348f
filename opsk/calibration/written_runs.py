"""How does a job of one's own become a row of a table of runs, for `opsk calibrate`?

The row is read back before it is written: what no column can say is refused rather than lost.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from opsk.calibration.runs import Run, parse_runs
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.units import GB, as_gbit_per_s
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding, Software

COLUMNS = (
    *("id", "source", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq_len"),
    *("experts", "topk", "gpu", "gpu_mem_gb", "gpus", "gpus_per_node", "intra_node_gbps", "nic_gbps", "nics_per_node"),
    *("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "sequence_parallel", "recompute", "precision"),
    *("micro_batch", "global_batch", "iter_time_s", "notes"),
)
_WORDS = {
    Software.MEGATRON: "megatron 2022",
    Software.MEGATRON_CORE: "megatron-core 2025",
    Software.DEEPSPEED: "deepspeed 2025",
    Software.PYTORCH: "pytorch 2025",
}
"""How a source names its software, so that the reader of tables knows it again."""
_PLAN_FIELDS = (
    *("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "recompute", "precision", "micro_batch", "global_batch"),
    *("software", "sequence_parallel", "offload", "optimizer", "lora_rank"),
)
_MODEL_FIELDS = (
    *("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq", "gated_mlp", "experts", "top_k"),
    *("expert_ffn", "shared_experts", "dense_layers", "flash_attention", "kv_lora_rank"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOfJob:
    """A job that ran well: its model, plan and cluster, and the median time of its steady steps [s]."""

    name: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    step_s: float


def run_row(job: RunOfJob) -> dict[str, str]:
    """Return the row of a job, by column.

    Raises
    ------
    InputError
        Names everything that is read back differently, for which a table has no column.
    """
    row = {name: str(value) for name, value in _values(job).items()}
    read = parse_runs(_text([row], COLUMNS, header=True), origin=job.name)
    if not read.runs:
        why = read.unpredictable[0].why if read.unpredictable else "no row"
        raise InputError(f"{job.name}: no row of a table of runs: {why}", hint="opsk calibrate could not read it")
    lost = _lost(job, read.runs[0])
    if lost:
        raise InputError(
            f"{job.name}: a table of runs has no column for {', '.join(lost)}",
            hint="leave this job out, or fit by hand",
        )
    return row


def append_run(path: Path, job: RunOfJob) -> None:
    """Add the row of a job to a table, which is made where there is none.

    Raises
    ------
    InputError
        The row cannot be written, or says less than the job.
    """
    row = run_row(job)
    try:
        columns, is_open = _columns_of(path)
        with path.open("a", encoding="utf-8", newline="") as stream:
            stream.write(("\n" if is_open else "") + _text([row], columns or COLUMNS, header=not columns))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8 text"
        raise InputError(f"{path}: {reason}", hint="name a CSV that you may write") from error


def _columns_of(path: Path) -> tuple[tuple[str, ...], bool]:
    """Return the columns of a table that is there, and whether its last line has no end.

    Raises
    ------
    InputError
        It lacks columns that a row needs.
    """
    if not path.exists() or not path.stat().st_size:
        return (), False
    text = path.read_text(encoding="utf-8-sig")
    columns = tuple(next(csv.reader(io.StringIO(text)), ()))
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}", hint="name a table of runs, or a new file")
    return columns, not text.endswith("\n")


def _text(rows: list[dict[str, str]], columns: tuple[str, ...], *, header: bool) -> str:
    """Return rows as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=columns, restval="", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _values(job: RunOfJob) -> dict[str, object]:
    """Return the cells."""
    model, plan, node = job.model, job.plan, job.cluster.node
    return {
        "id": job.name,
        "source": f"own run, {_WORDS[plan.software]}",
        "model": model.name,
        "arch": "moe" if model.experts else "llama" if model.gated_mlp else "gpt",
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn_hidden": model.expert_ffn if model.experts else model.ffn,
        "vocab": model.vocab,
        "seq_len": model.seq,
        "experts": model.experts or "",
        "topk": model.top_k or "",
        "gpu": node.gpu.name,
        "gpu_mem_gb": f"{node.gpu.memory_bytes / GB:.6g}",
        "gpus": plan.gpus,
        "gpus_per_node": node.gpus,
        "intra_node_gbps": f"{as_gbit_per_s(node.gpu.hb_bytes_per_s):.6g}",
        "nic_gbps": f"{as_gbit_per_s(node.nic_bytes_per_s_per_gpu):.6g}",
        "nics_per_node": node.nics,
        **{axis: getattr(plan, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "dp")},
        "sharding": "zero3/fsdp" if plan.sharding is Sharding.ZERO3 else plan.sharding.value,
        "sequence_parallel": "yes" if plan.sequence_parallel else "no",
        "recompute": plan.recompute.value,
        "precision": plan.precision.value,
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "iter_time_s": f"{job.step_s:.6g}",
        "notes": "; ".join(_notes(model)),
    }


def _notes(model: ModelShape) -> list[str]:
    """Return the settings that have no column, in the words that the reader knows."""
    notes = [f"head_dim {model.head_dim}", "flash attention" if model.flash_attention else "unfused attention"]
    if model.gated_mlp:
        notes.append("swiglu")
    if model.experts:
        notes += [f"{model.shared_experts} shared experts", f"dense layers ffn {model.ffn}"]
    if model.experts and model.dense_layers:
        notes.append(f"first {model.dense_layers} layers dense")
    return notes


def _lost(job: RunOfJob, run: Run) -> list[str]:
    """Return the fields that are read back differently."""
    plan = [f"plan.{name}" for name in _PLAN_FIELDS if getattr(job.plan, name) != getattr(run.plan, name)]
    fields = [name for name in _MODEL_FIELDS if not (name == "ffn" and job.model.experts)]
    model = [f"model.{name}" for name in fields if getattr(job.model, name) != getattr(run.model, name)]
    return [*plan, *model]
