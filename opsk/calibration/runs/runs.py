"""Parses a table of runs: the model, plan and cluster of each row, its measurements, and what was assumed.

The columns are those of `opsk.calibration.runs.columns`; every one may be absent. Unknown columns and values are
reported; a row that cannot be parsed or is impossible is reported separately.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opsk.calibration.runs.cluster import find_gpu
from opsk.calibration.runs.columns import BY_NAME, MAX_SHOWN, Cells
from opsk.calibration.runs.model import build_model
from opsk.calibration.runs.plan import build_plan, needs_sharding
from opsk.calibration.runs.software import RunSoftware, attention_is_fused, identify_software
from opsk.costmodel.rules import find_violations
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS, TIME_INPUTS
from opsk.errors import InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.units import GB, MIB
from opsk.workload.defaults import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding

MAX_TABLE_BYTES = 64 * MIB
"""Size above which a table is refused unread; one of 620 runs has 0.3 MB."""
NEEDED_COLUMNS = frozenset({"id", "model", "gpu", "gpus", "params_b", "layers", "hidden"})
"""A table without any of these is not a table of runs."""
UNKNOWN_BATCH = "plan.global_batch"
UNMODELLED = ("mamba", "ssm", "rwkv", "hybrid", "encoder", "diffusion", "vision")
"""Kinds of model that the columns do not describe well enough, or that are not modelled."""
UNUSABLE = ("INCONSISTENT", "SUSPECT", "OOM")
"""Tags in the notes that exclude a time from comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a row reports, ``None`` where it does not; rates in the row's conventions.

    ``flops_convention`` is ``model`` or ``hardware`` (recomputation counted), ``attn_flops`` ``full``, ``causal`` or
    ``none``: the share of the s x s attention that its FLOP count. ``mem_definition`` is ``device``, ``reserved`` or
    ``allocated``, ``mem_rank`` ``max``, ``first`` or ``last``.
    """

    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    flops_convention: str = "model"
    attn_flops: str = "full"
    mfu: float | None = None
    hfu: float | None = None
    peak_mem_bytes: float | None = None
    mem_definition: str = "device"
    mem_rank: str = "max"
    is_oom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run that can be predicted.

    ``source`` is the prefix of the id, ``group`` the model's kind as the table calls it (gpt, llama, moe), ``gpu`` the
    GPU as printed, empty where it is not; ``tags`` the words in capitals of the notes; ``problems`` the warnings about
    the row.
    """

    id: str
    line: int
    source: str
    group: str
    gpu: str
    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    assumed: tuple[Assumption, ...]
    measured: Measured
    tags: frozenset[str] = frozenset()
    is_toy: bool = False
    problems: tuple[str, ...] = ()

    def count_assumed(self, inputs: Container[str]) -> int:
        """Return how many of some inputs were assumed."""
        return sum(entry.field in inputs for entry in self.assumed)

    @property
    def states_time_inputs(self) -> bool:
        """Whether every input that decides the time is stated."""
        return not self.count_assumed(TIME_INPUTS)

    @property
    def states_memory_inputs(self) -> bool:
        """Whether every input that decides the memory is stated."""
        return not self.count_assumed(MEMORY_INPUTS)

    @property
    def is_time_scored(self) -> bool:
        """Whether the row's time is compared.

        It is not where the source contradicts itself, where the model is so small that launches dominate, where
        seconds are published for a step with an unknown batch, and where nobody says on which GPU it ran.
        """
        lacks_batch = self.measured.step_s is not None and any(entry.field == UNKNOWN_BATCH for entry in self.assumed)
        return bool(self.gpu) and not (self.is_toy or lacks_batch or self.tags.intersection(UNUSABLE))

    @property
    def is_memory_unusable(self) -> bool:
        """Whether the row's memory is excluded from comparison: contradictory, or the memory at which a run failed."""
        return bool(self.tags.intersection(UNUSABLE))

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return total_parameters(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpredictableRun:
    """A row that cannot be predicted, with all that is wrong with it."""

    id: str
    line: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """All rows of a table: those that can be predicted and those that cannot, each in the table's order.

    ``unknown_columns`` are those of the table that are not used.
    """

    runs: tuple[Run, ...]
    unpredictable: tuple[UnpredictableRun, ...]
    unknown_columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.runs) + len(self.unpredictable)


def read_runs(path: Path) -> Runs:
    """Read a table of runs (CSV, UTF-8, one header line).

    Raises
    ------
    InputError
        The file cannot be read, or is not a table of runs.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TABLE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {reason}", hint="give a CSV of runs") from error
    if len(data) > MAX_TABLE_BYTES:
        raise InputError(f"{path}: larger than {MAX_TABLE_BYTES} bytes", hint="is this a table of runs?")
    try:
        return parse_runs(data.decode("utf-8-sig"), origin=str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no UTF-8 text at byte {error.start}", hint="is this a CSV?") from error


def parse_runs(text: str, *, origin: str = "the table") -> Runs:
    """Return the rows of a table; see `read_runs`."""
    reader = csv.DictReader(io.StringIO(text.replace("\0", ""), newline=""))
    try:
        columns = {name.strip() for name in reader.fieldnames or () if name}
        if not columns & NEEDED_COLUMNS:
            raise InputError(
                f"{origin}: no column of a table of runs", hint=f"such as {', '.join(sorted(NEEDED_COLUMNS))}"
            )
        runs: list[Run] = []
        unpredictable: list[UnpredictableRun] = []
        for columns_of_row in reader:
            if not any(columns_of_row.values()):
                continue
            row = _parse_row(columns_of_row, reader.line_num)
            if isinstance(row, Run):
                runs.append(row)
            else:
                unpredictable.append(row)
    except csv.Error as error:
        raise InputError(f"{origin}: line {reader.line_num}: {error}", hint="is this a CSV?") from error
    return Runs(
        runs=tuple(runs), unpredictable=tuple(unpredictable), unknown_columns=tuple(sorted(columns - BY_NAME.keys()))
    )


def _parse_row(columns: Mapping[str | None, str | list[str] | None], line: int) -> Run | UnpredictableRun:
    """Return one row, or why it cannot be predicted."""
    cells = Cells({key.strip(): value for key, value in columns.items() if key and isinstance(value, str)})
    name = cells.text("id") or f"line {line}"
    try:
        run = _build_run(cells, name, line)
    except OpskError as error:
        cells.wrong.append(error.message)
        run = None
    if run is None:
        return UnpredictableRun(id=name, line=line, why="; ".join(dict.fromkeys(cells.wrong)))
    return run


def _build_run(cells: Cells, name: str, line: int) -> Run | None:
    """Return a row that can be predicted; ``None`` after recording errors."""
    gpu = find_gpu(cells)
    if gpu is None:
        return None
    software = identify_software(cells, gpu)
    model = build_model(cells, software, fused_attention=attention_is_fused(cells, software, gpu))
    if model is None:
        return None
    result = build_plan(cells, model, gpu, software)
    if result is None or cells.wrong:
        return None
    plan, cluster = result
    if needs_sharding(cells, software, model, plan, cluster):
        why = f"it ran, and whole weights do not fit on {gpu.name}"
        sharded = Assumption(field="plan.sharding", value=Sharding.ZERO3, why=why)
        return _build_run(cells.with_assumed("sharding", "zero3/fsdp", sharded), name, line)
    _note_oddities(cells, model, plan)
    text = cells.text("notes")
    measured = _drop_incomparable(_read_measured(cells, software, text), cells)
    return Run(
        id=name,
        line=line,
        source=name.rpartition("-")[0] or name,
        group=cells.text("arch") or ("moe" if model.experts else "llama" if model.gated_mlp else "gpt"),
        gpu=cells.text("gpu"),
        model=model,
        plan=plan,
        cluster=cluster,
        assumed=tuple(cells.assumed),
        measured=measured,
        tags=frozenset(word for word in ("DERIVED", *UNUSABLE) if _has_tag(text, word)),
        is_toy=cells.flag("toy") is True,
        problems=(*cells.odd, *find_violations(model, plan)),
    )


def _note_oddities(cells: Cells, model: ModelShape, plan: Plan) -> None:
    """Record what a row states and the prediction cannot model."""
    kind, chunks = cells.text("arch").lower(), cells.size("vpp")
    is_hybrid = cells.choice("mixer") not in ("", "sliding-window")
    if (any(word in kind for word in UNMODELLED) or is_hybrid) and not model.mixer_layers:
        cells.odd.append(f"arch is {kind[:MAX_SHOWN]!r}: read as a decoder of attention layers")
    if plan.pp == 1 and chunks is not None and chunks > 1:
        cells.odd.append(f"vpp {chunks} has no meaning with one stage, and is taken as 1")
    ranks, stated = plan.tp * plan.pp * plan.cp, cells.size("dp")
    if stated is not None and stated != plan.dp:
        cells.odd.append(f"dp {stated} x tp x pp x cp {ranks} is not the number of GPUs: dp {plan.dp} is taken")


def _has_tag(text: str, word: str) -> bool:
    """Return whether the notes contain a tag; "too close to OOM" does not count."""
    return word in text.replace("close to OOM", "")


def _memory_definition(cells: Cells, software: RunSoftware) -> str:
    """Return the definition of the measured memory: stated, or that of the framework's own output."""
    stated, usual = cells.choice("mem_definition"), software.defaults.get("memory_definition")
    if stated or usual is None:
        return stated
    return str(cells.assume("measured.mem_definition", usual.value, f"{software.words}: {usual.why}"))


def _drop_incomparable(measured: Measured, cells: Cells) -> Measured:
    """Return the measurements without the seconds of a step with an unknown batch, where there is also a rate."""
    rates = (measured.tokens_per_s_per_gpu, measured.tflops_per_gpu, measured.mfu, measured.hfu)
    if any(entry.field == UNKNOWN_BATCH for entry in cells.assumed) and any(rates):
        return replace(measured, step_s=None)
    return measured


def _read_measured(cells: Cells, software: RunSoftware, notes: str) -> Measured:
    """Return what a row reports, without the columns that it marks as recalled from memory."""
    recalled = cells.text("from_memory")

    def value(column: str) -> float | None:
        return None if column in recalled else cells.read_measurement(column)

    peak = value("peak_mem_gb")
    convention = cells.choice("flops_convention")
    counted, rank = cells.choice("attn_flops"), cells.choice("mem_rank")
    definition = _memory_definition(cells, software) if peak else ""
    return Measured(
        step_s=value("iter_time_s"),
        tokens_per_s_per_gpu=value("tokens_per_s_per_gpu"),
        tflops_per_gpu=value("tflops_per_gpu"),
        flops_convention="hardware" if convention == "hardware" else "model",
        attn_flops=counted if counted in ("causal", "none") else "full",
        mfu=value("mfu"),
        hfu=value("hfu"),
        peak_mem_bytes=None if peak is None else peak * GB,
        mem_definition=definition if definition in ("allocated", "reserved") else "device",
        mem_rank=rank if rank in ("first", "last") else "max",
        is_oom=_has_tag(notes, "OOM"),
    )
