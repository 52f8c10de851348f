"""Reads the ranks that ``accelerate launch`` starts, from its flags and its ``--config_file``.

Source: ``accelerate/commands/launch.py``, ``commands/config/config_args.py`` and ``utils/dataclasses.py`` of accelerate
0.12 to 1.14. ``num_processes`` is the number of all ranks on all machines. Flags override the file. In the file, an
FSDP key may lack its prefix ``fsdp_``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation, Text, literal
from opsk_jobcheck.scripts.launchers.programs import collect_flags
from opsk_jobcheck.scripts.settings.arguments import parse_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import (
    DEEPSPEED_OPTION,
    OPTIMIZER_OFFLOAD,
    WEIGHTS_OFFLOAD,
    is_open,
    mark_conflicts_unknown,
    read_deepspeed,
    state_stage,
)
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
    state_fsdp_checkpointing,
    state_number,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Reading

FSDP_OPTION = "fsdp"
HYBRID_OPTION = "fsdp.hybrid"
"""``true`` where FSDP shards inside of every node and keeps a copy in each."""
HYBRID = ("hybrid_shard", "hybrid_shard_zero2", "4", "5")
INSTANCES = "optimizer.instances"
SWITCHES = frozenset(
    {
        *("--quiet", "--cpu", "--multi-gpu", "--tpu", "--enable-cpu-affinity", "--dynamo-use-fullgraph", "--debug"),
        *("--dynamo-use-dynamic", "--dynamo-use-regional-compilation", "--use-deepspeed", "--use-fsdp"),
        *("--use-parallelism-config", "--use-megatron-lm", "--same-network", "--module", "--no-python", "-m"),
        *("--tpu-cluster", "--tpu-use-sudo", "--downcast-bf16", "--fp8-use-autocast-during-eval"),
    }
)
_KINDS = MappingProxyType(
    {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "multi_gpu": "MULTI_GPU", "use_megatron_lm": "MEGATRON_LM"}
)
_PRECISIONS = MappingProxyType({"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"})
_STRATEGIES = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard", "1", "4"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "hybrid_shard_zero2", "2", "5"), "zero2"),
        **dict.fromkeys(("no_shard", "3"), "none"),
    }
)
"""FSDP's strategies, and their numbers in PyTorch's ``ShardingStrategy`` as accelerate counts them."""
_SPLITS = (("plan.tp", ("tp_size",)), ("plan.cp", ("cp_size", "sp_size")))
_MEGATRON = {"tp_degree": "plan.tp", "pp_degree": "plan.pp", "context_parallel_size": "plan.cp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelerateSettings:
    """The settings of accelerate: its flags, and its file (with ``why`` where one is named and not read)."""

    given: dict[str, Entry]
    config: ConfigFile
    is_file_named: bool
    line: int = 0
    kind: str | None = field(default=None)

    def find(self, name: str, section: str = "") -> Entry | None:
        """Return the value of a flag, or of the file, in a section whose names may lack the section's prefix."""
        if name in self.given:
            return self.given[name]
        if not section:
            return self.config.entry(name)
        entry = self.config.entry(section, name)
        return entry if entry is not None else self.config.entry(section, name.removeprefix(_find_prefix(section)))


def find_accelerate_launch(
    words: tuple[Text, ...], invocation: Invocation, reading: Reading
) -> AccelerateSettings | None:
    """Return the settings of accelerate in the words before the program; ``None`` where another launcher is used."""
    names = [word.shown.rpartition("/")[2] for word in words if len(word.shown) < 4096]
    if not any(name in ("accelerate", "accelerate-launch", "accelerate.commands.launch") for name in names):
        return None
    given = collect_flags(parse_arguments(words, valueless=SWITCHES))
    named = parse_arguments(words, valueless=SWITCHES).flags.get("--config-file")
    config = reading.config(named.value, invocation) if named else ConfigFile(path="")
    bare = AccelerateSettings(
        given=given, config=config, is_file_named=named is not None, line=words[-1].line if words else 0
    )
    return AccelerateSettings(
        given=given, config=config, is_file_named=bare.is_file_named, line=invocation.line, kind=_find_kind(bare)
    )


def read_accelerate(launch: AccelerateSettings, invocation: Invocation, reading: Reading) -> None:
    """State the values that accelerate sets and the program's own flags did not."""
    findings = reading.findings
    _state_precision(launch, findings)
    if launch.kind == "DEEPSPEED":
        findings.options[DEEPSPEED_OPTION] = "true"
        _state_deepspeed(launch, invocation, reading)
    elif launch.kind == "FSDP":
        findings.options[FSDP_OPTION] = "true"
        _state_fsdp(launch, findings)
    _state_ranks(launch, findings)
    if launch.config.why:
        mark_all_unknown(findings, ("plan.sharding", "plan.precision"), launch.config.why, launch.line)


def _find_kind(launch: AccelerateSettings) -> str | None:
    """Return how accelerate distributes, by a flag or the file; ``None`` where that is unknown."""
    for name, kind in _KINDS.items():
        entry = launch.given.get(name)
        if entry is not None and not entry.why:
            return kind
    entry = launch.config.entry("distributed_type")
    return str(entry.value).rpartition(".")[2].upper() if entry is not None and entry.value is not None else None


def _state_precision(launch: AccelerateSettings, findings: Findings) -> None:
    """State the mixed precision: "no" states nothing, as the weights may be in 16 bits themselves."""
    entry = launch.find("mixed_precision")
    if entry is not None and is_open("plan.precision", findings) and not _is(entry, "no", "auto"):
        state_word(findings, "plan.precision", entry, _PRECISIONS)


def _state_deepspeed(launch: AccelerateSettings, invocation: Invocation, reading: Reading) -> None:
    """Read the DeepSpeed configuration that the launcher names, or its own few settings."""
    findings, section = reading.findings, "deepspeed_config"
    named = launch.find("deepspeed_config_file", section)
    if named is not None and (named.why or named.value not in (None, "none", "")):
        path = literal(str(named.value), named.line)
        config = ConfigFile(path="", why=named.why) if named.why else reading.config(path, invocation, form="json")
        mark_conflicts_unknown(config, findings)
        read_deepspeed(config, findings)
        if config.why:
            mark_all_unknown(findings, ("plan.sharding",), config.why, named.line)
        return
    state_stage(launch.find("zero_stage", section), findings)
    for name, option in (("offload_optimizer_device", OPTIMIZER_OFFLOAD), ("offload_param_device", WEIGHTS_OFFLOAD)):
        entry = launch.find(name, section)
        if entry is not None and _is(entry, "cpu", "nvme"):
            findings.options[option] = "cpu"


def _state_fsdp(launch: AccelerateSettings, findings: Findings) -> None:
    """State FSDP's sharding, recomputation and offloading."""
    section = "fsdp_config"
    if is_open("plan.sharding", findings):
        strategy = launch.find("fsdp_sharding_strategy", section)
        reshard = launch.find("fsdp_reshard_after_forward", section)
        if reshard is not None and not reshard.why and parse_boolean(reshard.value) is not None:
            stage = "zero3" if parse_boolean(reshard.value) else "zero2"
            findings.state("plan.sharding", stage, reshard.line, reshard.text, file=reshard.file)
        elif reshard is not None and strategy is None:
            state_word(findings, "plan.sharding", reshard, _STRATEGIES)
        else:
            state_word(findings, "plan.sharding", strategy, _STRATEGIES)
    for name in ("fsdp_sharding_strategy", "fsdp_reshard_after_forward"):
        entry = launch.find(name, section)
        if entry is not None and _is(entry, *HYBRID):
            findings.options[HYBRID_OPTION] = "true"
    again = launch.find("fsdp_activation_checkpointing", section)
    state_fsdp_checkpointing(findings, again)
    offload = launch.find("fsdp_offload_params", section)
    if offload is not None and parse_boolean(offload.value):
        findings.options |= {OPTIMIZER_OFFLOAD: "cpu", WEIGHTS_OFFLOAD: "cpu"}


def _state_ranks(launch: AccelerateSettings, findings: Findings) -> None:
    """State how many ranks there are and how they are split."""
    count = launch.find("num_processes")
    total = parse_integer(count.value) if count is not None and not count.why else None
    nodes = findings.get("plan.nodes")
    machines = launch.find("num_machines")
    # launched on a part of the nodes: the others are unknown
    is_on_all = nodes is None or machines is None or machines.why or parse_integer(machines.value) == nodes
    if count is not None and total and is_on_all and is_open("plan.gpus", findings):
        state_number(findings, "plan.gpus", count)
        if nodes and total % nodes == 0 and is_open("plan.gpus_per_node", findings):
            text = f"{total} processes / {nodes} nodes"
            findings.state("plan.gpus_per_node", total // nodes, count.line, text, file=count.file)
    if launch.config.why or launch.kind is None:
        return
    if launch.kind == "MEGATRON_LM":
        for name, target in _MEGATRON.items():
            state_number(findings, target, launch.find(f"megatron_lm_{name}", "megatron_lm_config"))
        return
    _state_splits(launch, findings)
    if launch.kind in ("FSDP", "DEEPSPEED", "MULTI_GPU"):
        state_data_parallel_only(findings, "accelerate splits no model unless its parallelism_config does", launch.line)
    is_whole = findings.get("plan.cp") in (None, 1) and findings.get("plan.tp") == 1
    if count is not None and total and is_whole and findings.get("plan.gpus") != total:
        findings.state("plan.dp", total, count.line, count.text, file=count.file)


def _state_splits(launch: AccelerateSettings, findings: Findings) -> None:
    """State tensor and context parallelism where a parallelism configuration asks for them."""
    section = "parallelism_config"
    for target, names in _SPLITS:
        for name in names:
            entry = launch.find(f"parallelism_config_{name}", section)
            if entry is not None and (entry.why or (parse_integer(entry.value) or 1) > 1):
                state_number(findings, target, entry)
    copies = launch.find("parallelism_config_dp_replicate_size", section)
    if copies is not None and not copies.why and (parse_integer(copies.value) or 1) > 1:
        findings.options[INSTANCES] = str(parse_integer(copies.value))


def _find_prefix(section: str) -> str:
    """Return the prefix of the names of a section: ``fsdp_`` in ``fsdp_config``, ``parallelism_config_`` in its."""
    return "parallelism_config_" if section == "parallelism_config" else section.removesuffix("config")


def _is(entry: Entry, *words: str) -> bool:
    """Return whether an entry is one of some words; a plain ``no`` of YAML is false."""
    value = "no" if entry.value is False else str(entry.value).lower()
    return not entry.why and value in words
