"""Reads the memory settings of Trainer programs beyond batch and length: attention, loss, compilers.

Source: ``TrainingArguments`` and ``attn_implementation`` of transformers, ``SFTConfig`` of TRL, ``hparams/*.py`` of
LLaMA-Factory, axolotl's schemas and its plugins (Liger kernels, cut cross entropy).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.launchers.programs import is_open
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.uncounted_settings import UncountedSetting, is_on, report_uncounted_settings

_FUSED_LOSSES = (
    *("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy"),
    *("cut_cross_entropy",),
)
"""Switches under which head and loss are one kernel, so that the logits never exist."""
_ATTENTION = ("attn_implementation", "flash_attn")
_UNFUSED = frozenset({"eager", "disabled"})
_AUTO = frozenset({"auto", "none", "null", ""})
_SWITCHES = MappingProxyType({"flash_attention": True, "sdp_attention": True, "eager_attention": False})
"""axolotl's switches, and whether attention is then fused."""
_OFFLOADING = ("activation_offloading", "use_unsloth_gc")

_OPTIMIZER_STATES = "the optimizer's states are counted as they are without it"
_UNCOUNTED = "what it adds to memory is not counted"
LEFT_OUT: Mapping[str, UncountedSetting] = MappingProxyType(
    {
        "torch_empty_cache_steps": UncountedSetting(why="cached blocks are counted as if they were never given back"),
        "use_galore": UncountedSetting(why=_OPTIMIZER_STATES),
        "use_apollo": UncountedSetting(why=_OPTIMIZER_STATES),
        "use_badam": UncountedSetting(why="all layers are counted as trained at a time"),
        "galore_rank": UncountedSetting(why=_OPTIMIZER_STATES, harmless=(None,)),
        "upcast_layernorm": UncountedSetting(why="norms are counted in the format of the weights"),
        "upcast_lmhead_output": UncountedSetting(why="logits are counted as the framework keeps them"),
        "shift_attn": UncountedSetting(why="attention is counted over the whole length"),
        "mixture_of_depths": UncountedSetting(why=_UNCOUNTED, harmless=(None, False, "none")),
        "use_llama_pro": UncountedSetting(why="all layers are counted as trained"),
        "neat_packing": UncountedSetting(why="the block-diagonal mask is not counted"),
        "lora_mlp_kernel": UncountedSetting(why="layers are counted as keeping what they keep without the kernel"),
        "lora_qkv_kernel": UncountedSetting(why="layers are counted as keeping what they keep without the kernel"),
        "xformers_attention": UncountedSetting(why="attention is counted as PyTorch's own"),
        "fp16_full_eval": UncountedSetting(why="evaluation is not counted"),
        "bf16_full_eval": UncountedSetting(why="evaluation is not counted"),
        "fp8_enable_fsdp_float8_all_gather": UncountedSetting(why="weights are counted as gathered in 16 bits"),
        "tiled_mlp": UncountedSetting(why="MLPs are counted as computed at once"),
        "use_tiled_mlp": UncountedSetting(why="MLPs are counted as computed at once"),
    }
)
"""Settings that change memory and that no prediction counts, and what is taken instead."""


def read_memory(config: ConfigFile, findings: Findings) -> None:
    """State the kernels of attention and loss and what is offloaded; report what is not counted."""
    if any(is_on(config.entry(name)) for name in _FUSED_LOSSES):
        findings.options["loss.kernel"] = "fused"
    if is_on(config.entry("torch_compile")):
        findings.options["compiled"] = "true"
    if any(is_on(config.entry(name)) for name in _OFFLOADING):
        findings.options["activations.offload"] = "cpu"
    _read_attention(config, findings)
    report_uncounted_settings(config, LEFT_OUT, findings)


def _read_attention(config: ConfigFile, findings: Findings) -> None:
    """State whether one kernel computes attention, where a setting states it."""
    for name in _ATTENTION:
        entry = config.entry(name)
        if entry is None or entry.why or not is_open(findings, "model.flash_attention"):
            continue
        word = str(entry.value).strip().lower()
        if word not in _AUTO:
            findings.state("model.flash_attention", word not in _UNFUSED, entry.line, entry.text, file=entry.file)
    for name, is_fused in _SWITCHES.items():
        entry = config.entry(name)
        if entry is not None and is_on(entry) and is_open(findings, "model.flash_attention"):
            findings.state("model.flash_attention", is_fused, entry.line, entry.text, file=entry.file)
