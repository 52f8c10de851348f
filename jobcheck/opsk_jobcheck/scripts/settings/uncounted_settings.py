"""Lists the settings of configuration files that change memory and that no prediction counts.

Source: ``deepspeed/runtime/zero/config.py``, ``precision_config.py`` and ``offload_config.py`` of DeepSpeed 0.19,
``torchtitan/config``, torchtune's recipes, ``conf/megatron_gpt_config.yaml`` of NeMo 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from opsk.workload.memory_settings import UNMODELLED
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean

AUTO = "auto"
_BUCKET = "DeepSpeed's default size, 500 million elements, is assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedSetting:
    """A setting that no prediction counts: what is taken instead, and the values with which it changes nothing."""

    why: str
    harmless: tuple[object, ...] = (False, None, AUTO)


def _make_size(default: float, why: str) -> UncountedSetting:
    """Return a size whose default is counted."""
    return UncountedSetting(why=why, harmless=(default, AUTO, None))


UNCOUNTED_DEEPSPEED: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "zero_optimization.reduce_bucket_size": _make_size(5e8, _BUCKET),
        "zero_optimization.allgather_bucket_size": _make_size(5e8, _BUCKET),
        "zero_optimization.stage3_max_live_parameters": _make_size(
            1e9, "DeepSpeed's default limit, a billion, is assumed"
        ),
        "zero_optimization.sub_group_size": _make_size(1e9, "DeepSpeed's default size, a billion elements, is assumed"),
        "zero_optimization.zero_hpz_partition_size": _make_size(1, "a second copy of the weights is not counted"),
        "zero_optimization.zero_quantized_weights": UncountedSetting(why="weights are counted as gathered in 16 bits"),
        "zero_optimization.mics_shard_size": UncountedSetting(
            why="states are counted as sharded over all", harmless=(-1, 0, None)
        ),
        "activation_checkpointing.partition_activations": UncountedSetting(
            why="inputs of recomputed layers are counted whole on each rank"
        ),
        "activation_checkpointing.contiguous_memory_optimization": UncountedSetting(
            why="its one large buffer is not counted"
        ),
    }
)
UNCOUNTED_TORCHTITAN: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns": UncountedSetting(
            why="every second product is assumed to be repeated", harmless=((), None)
        ),
        "float8.enable_fsdp_float8_all_gather": UncountedSetting(why="weights are counted as gathered in 16 bits"),
        "compile.backend": UncountedSetting(
            why="the memory that another compiler needs is not known", harmless=("inductor", None)
        ),
    }
)
UNCOUNTED_TORCHTUNE: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "ac_mode": UncountedSetting(why="recomputation of all layers is assumed", harmless=("full", None)),
        "ac_option": UncountedSetting(why="recomputation of all layers is assumed", harmless=(None, 1)),
    }
)
UNCOUNTED_NEMO: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "model.cpu_offloading": UncountedSetting(why="activations are counted as on the GPU"),
        "model.activations_checkpoint_layers_per_pipeline": UncountedSetting(
            why="each stage is counted as recomputing as much", harmless=(0, None)
        ),
        "model.num_micro_batches_with_partial_activation_checkpoints": UncountedSetting(
            why="all micro-batches are counted as recomputed alike", harmless=(0, None)
        ),
        "model.ub_tp_comm_overlap": UncountedSetting(why="user buffers of tensor parallelism are not counted"),
    }
)


def report_uncounted_settings(config: ConfigFile, table: Mapping[str, UncountedSetting], findings: Findings) -> None:
    """Report every setting of a file that changes memory and is not predicted."""
    if config.why and not config.overrides:
        return
    for key, setting in table.items():
        entry = config.entry(key)
        if entry is None or (entry.why and config.why):
            continue
        if entry.why:
            report_uncounted(findings, key, "unknown", f"its value is unknown: {entry.why}"[:200])
        elif not _is_among(entry.value, setting.harmless):
            report_uncounted(findings, key, str(entry.value), setting.why)


def report_uncounted(findings: Findings, name: str, value: str, why: str) -> None:
    """Report that a setting changes memory and is not predicted."""
    findings.options[f"{UNMODELLED}{name}"] = f"{value[:80].replace(': ', ' ')}: {why}"


def is_on(entry: Entry | None) -> bool:
    """Return whether a switch is on, for sure."""
    return entry is not None and not entry.why and parse_boolean(entry.value) is True


def _is_among(value: object, harmless: Iterable[object]) -> bool:
    """Return whether a value is one of those that change nothing, whether a file or a flag gives it."""
    text = str(value).strip().lower()
    number = _parse_number(text)
    return any(
        value == allowed or text == str(allowed).lower() or (number is not None and number == allowed)
        for allowed in harmless
    )


def _parse_number(text: str) -> float | None:
    try:
        return float(text) if len(text) < 30 else None
    except ValueError:
        return None
