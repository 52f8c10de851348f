"""Which training software ran, how old was it, and what does that settle that the row does not say?

A source names its framework in its title, its path or its notes; the first family whose words stand there is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from opsk.calibration.cells import Cells
from opsk.calibration.notes import Notes
from opsk.hardware.spec import GpuSpec
from opsk.workload.plan import Loss, Offload, Optimizer, Recompute, Sharding, Software, States

FUSED_ATTENTION_SINCE = 2023
"""Training runs published from this year on use fused attention: FlashAttention is of May 2022 (arXiv 2205.14135)."""
LLAMA_SINCE = 2023
"""LLaMA is of February 2023; no model of its kind was trained in public before."""
MEGATRON_CORE_SINCE = 2023
"""Megatron Core and Transformer Engine became Megatron-LM's base in 2023."""

_FAMILIES: tuple[tuple[Software, int, tuple[str, ...]], ...] = (
    (Software.DEEPSPEED, 2021, ("deepspeed", "gpt-neox", "neox", "bloom", "bigscience", "turing nlg", "mt-nlg")),
    (Software.DEEPSPEED, 2023, ("internevo", "internlm", "colossal")),
    (Software.MEGATRON_CORE, 2024, ("megatron-bridge", "megatron-swift", "primus", "dgxc", "pai-megatron")),
    (Software.MEGATRON, 2022, ("nemo-framework-launcher", "nemo framework launcher", "nemo-megatron", "nemo megatron")),
    (Software.MEGATRON_CORE, 2023, ("megatron-core", "mcore", "nemo", "transformer engine", "mlperf")),
    (Software.PYTORCH, 2023, ("llm-foundry", "mosaic", "torchtitan", "torchtune", "litgpt", "lightning", "tinyllama")),
    (
        Software.PYTORCH,
        2023,
        ("olmo", "maxtext", "axolotl", "unsloth", "peft", "trl", "nanogpt", "llama-recipes", "accelerate"),
    ),
    (Software.PYTORCH, 2021, ("fairscale", "xformers", "metaseq", "fairseq", "huggingface", "hugging face")),
    (Software.MEGATRON, 2020, ("megatron",)),
    (Software.PYTORCH, 2021, ("fsdp", "fsdp2", "ddp", "pytorch", "transformers", "torchrun")),
)
"""Family, the year since which its users publish, and the words that name it; earlier entries beat later ones."""
_FUSED_CROSS_ENTROPY = ("llm-foundry", "mosaic", "internevo", "internlm")
"""Software whose models take flash_attn.losses.cross_entropy (llmfoundry/models/layers, InternEvo's FlashGPTLMLoss)."""
_TENSOR_OVERLAP = ("nemo", "megatron-bridge", "mlperf", "dgxc")
"""Software whose published recipes set ``tp_comm_overlap`` (Transformer Engine's user buffers)."""
_PURE_16BIT = ("torchtune",)
_YEAR = re.compile(r"\b(20[12]\d)\b", re.ASCII)
_CONTAINER = re.compile(r"\b(2\d)\.(?:0\d|1[0-2])\b", re.ASCII)
_RELEASE = re.compile(r"\b(2\d)\.(0\d|1[0-2])\b", re.ASCII)
MOE_FUSED_SINCE = (26, 6)
"""Release of Megatron-Bridge whose MoE steps became a third faster at unchanged layouts, dense ones not."""
_GENERATIONS = {"volta": 2019, "ampere": 2021, "ada": 2023, "cdna2": 2023}
"""Year in which most training on a generation was published; later ones are of 2024 and after."""
_RECENT = 2024


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSoftware:
    """What ran: family, year, and whether the family is Megatron's command line with its defaults."""

    family: Software
    year: int
    fuses_attention: bool

    @property
    def is_megatron(self) -> bool:
        """True for Megatron-LM, old or new, and for DeepSpeed's fork of it."""
        return self.family is not Software.PYTORCH


def software_of(cells: Cells, notes: Notes, gpu: GpuSpec) -> RunSoftware:
    """Return the software of a row; what no word of it tells is assumed."""
    origin = f"{cells.text('source')} {cells.text('source_url_or_repo_path')}".lower()
    first_clause = notes.text.partition(";")[0]
    family, why = _family(first_clause, origin, notes.text)
    named = f"{first_clause} {origin}"
    since = next((year for _, year, words in _FAMILIES if _named(words, named)), 0)
    year = max(_year(origin, gpu), since, LLAMA_SINCE if cells.text("arch").lower() in ("llama", "moe") else 0)
    sharding = cells.text("sharding").lower()
    if family is None:
        splits_model = (cells.size("tp") or 1) * (cells.size("pp") or 1) > 1
        is_sharded = "zero3" in sharding or "fsdp" in sharding
        is_small = cells.size("gpus") == 1 or notes.says("lora")
        family = Software.PYTORCH if (is_sharded or is_small) and not splits_model else Software.MEGATRON
    if family is Software.MEGATRON:
        family, why = _megatron(sharding, year, notes, gpu, why)
    cells.assume("plan.software", family.value, f"{why}; of about {year}")
    is_new = year >= FUSED_ATTENTION_SINCE or family is Software.MEGATRON_CORE
    return RunSoftware(family=family, year=year, fuses_attention=is_new and gpu.architecture != "volta")


def _megatron(sharding: str, year: int, notes: Notes, gpu: GpuSpec, why: str) -> tuple[Software, str]:
    """Return which of Megatron-LM's ages ran, or DeepSpeed where its ZeRO-3 did."""
    if year >= MEGATRON_CORE_SINCE or notes.flags or gpu.architecture not in ("ampere", "volta"):
        return Software.MEGATRON_CORE, why
    if "zero3" in sharding:
        return Software.DEEPSPEED, f"{why}, which had no ZeRO-3 of its own"
    return Software.MEGATRON, why


def _family(*texts: str) -> tuple[Software | None, str]:
    """Return the family that the first text with any such word names, and the word that told."""
    for text in texts:
        for family, _, words in _FAMILIES:
            if word := _named(words, text):
                return family, f"the source says {word!r}"
    return None, "no framework is named"


def _named(words: Sequence[str], text: str) -> str:
    """Return the first of the words that stands in a text, and is not the name of a setting (``fsdp=0``)."""
    return next((word for word in words if re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z]*=)", text)), "")


def _year(origin: str, gpu: GpuSpec) -> int:
    """Return the year of publication, by the GPU where the source does not say."""
    if found := _YEAR.search(origin):
        return int(found[1])
    if found := _CONTAINER.search(origin):
        return 2000 + int(found[1])
    return _GENERATIONS.get(gpu.architecture, _RECENT)


def attention_is_fused(cells: Cells, notes: Notes, software: RunSoftware) -> bool:
    """Return whether attention scores are never stored."""
    backend = notes.flags.get("attention-backend", "")
    if backend:
        return backend != "unfused"
    if notes.says("no flash", "without flash", "unfused attention", "eager attention"):
        return False
    if notes.says("flash attention", "flashattention", "flash-attn", "flash_attn"):
        return True
    if _is_local_mcore(cells.text("model")):
        why = "a Megatron Core test without Transformer Engine (te) in its name runs the local, unfused attention"
        return bool(cells.assume("model.flash_attention", False, why))
    why = f"{software.family.value} of {software.year}"
    return bool(cells.assume("model.flash_attention", software.fuses_attention, why))


def _is_local_mcore(model: str) -> bool:
    """Return whether a name is that of a functional test of Megatron Core that does without Transformer Engine."""
    words = model.lower().split("_")
    return "mcore" in words and not {"te", "weekly"} & set(words)


def states_of(cells: Cells, notes: Notes, software: RunSoftware) -> States:
    """Return in which formats states are kept."""
    if notes.says("pure bf16", "pure 16", "bf16 weights and optimizer", "bf16-true"):
        return States.PURE_16BIT
    if notes.says("fp32 gradient accumulation", "fp32 gradients", "fp32 grad"):
        return States.MIXED
    if cells.text("precision").lower() in ("fp32", "tf32"):
        return States.AUTOCAST
    origin = f"{cells.text('source')} {cells.text('source_url_or_repo_path')}".lower()
    if (word := _named(_PURE_16BIT, origin)) and cells.text("precision").lower() in ("", "bf16"):
        why = f"{word}'s bf16 keeps weights, gradients and moments in 16 bits"
        return States(cells.assume("plan.states", States.PURE_16BIT.value, why))
    defaults = {
        Software.PYTORCH: (States.AUTOCAST, "PyTorch keeps weights in fp32 and computes in 16 bits"),
        Software.DEEPSPEED: (States.MIXED_16BIT_GRADIENTS, "DeepSpeed's fp16 and bf16 engines keep 16-bit gradients"),
    }
    states, why = defaults.get(software.family, (States.MIXED, "Megatron-LM accumulates gradients in fp32"))
    cells.assume("plan.states", states.value, why)
    return states


def optimizer_of(notes: Notes) -> Optimizer:
    """Return the optimizer; Adam in full precision unless the notes name another."""
    is_8bit = notes.says("8-bit adam", "8bit adam", "adam8bit", "adamw8bit", "adam 8bit", "adamw 8bit", "adamw 8-bit")
    is_paged = notes.says("pagedadam", "paged adam", "paged_adam")
    if is_8bit and is_paged:
        return Optimizer.PAGED_ADAM_8BIT
    if is_8bit or is_paged:
        return Optimizer.ADAM_8BIT if is_8bit else Optimizer.PAGED_ADAM
    named = {"adafactor": Optimizer.ADAFACTOR, "lion optimizer": Optimizer.LION, "muon": Optimizer.MUON}
    named |= {"sgd": Optimizer.SGD, "rmsprop": Optimizer.SGD}
    return next((kind for word, kind in named.items() if notes.says(word)), Optimizer.ADAM)


def loss_of(cells: Cells, notes: Notes) -> Loss:
    """Return how logits and cross entropy are computed."""
    if notes.says("liger", "cut cross entropy", "fused linear cross entropy"):
        return Loss.FUSED
    if notes.says("chunked cross entropy", "chunked loss", "fused cross entropy", "fused_crossentropy"):
        return Loss.CHUNKED
    origin = f"{cells.text('source')} {cells.text('source_url_or_repo_path')}".lower()
    if word := _named(_FUSED_CROSS_ENTROPY, origin):
        why = f"{word} takes FlashAttention's cross entropy, which keeps no fp32 copy of the logits"
        return Loss(cells.assume("plan.loss", Loss.CHUNKED.value, why))
    return Loss.PLAIN


def pipelines_tensor_parallel(cells: Cells, notes: Notes) -> bool:
    """Return whether the software pipelines tensor-parallel communication with its products."""
    if notes.says("async tp", "asynctp", "tp overlap", "tp comm overlap", "tp_comm_overlap"):
        return not notes.says("tp overlap off", "no tp overlap", "without tp overlap")
    origin = f"{cells.text('source')} {cells.text('source_url_or_repo_path')}".lower()
    word = _named(_TENSOR_OVERLAP, origin)
    if word and (cells.size("tp") or 1) > 1:
        return bool(cells.assume("plan.tp_overlap", True, f"recipes of {word} overlap it with user buffers"))
    return False


def is_compiled(notes: Notes) -> bool:
    """Return whether norms and activation functions are fused beside what the software's own modules are."""
    return notes.says("compile", "nvfuser", "liger", "fused kernels") and not notes.says(
        "no compile", "without compile"
    )


def moe_is_fused(cells: Cells, notes: Notes) -> bool:
    """Return whether routing and dispatch of experts are fused, as in Megatron-Bridge's containers from 26.06."""
    if notes.says("alltoall dispatcher", "allgather dispatcher"):
        return False
    if notes.says("hybridep", "hybrid-ep"):
        return True
    origin = f"{cells.text('source')} {cells.text('source_url_or_repo_path')}".lower()
    if "megatron-bridge" not in origin or not cells.size("experts"):
        return False
    release = _RELEASE.search(origin)
    if release is None:
        return bool(cells.assume("plan.fused_moe", True, "Megatron-Bridge of no stated release: the current one"))
    return (int(release[1]), int(release[2])) >= MOE_FUSED_SINCE


def offload_of(notes: Notes) -> Offload:
    """Return what is kept in host memory."""
    if notes.says("activation offloading", "activation cpu offload true", "activations offloaded"):
        return Offload.ACTIVATIONS
    if notes.says("param offload", "parameter offload", "zero-infinity"):
        return Offload.OPTIMIZER_AND_WEIGHTS
    if notes.says("optimizer offload", "cpu offload true", "zero-offload", "cpuadam"):
        return Offload.OPTIMIZER
    return Offload.NONE


def sharding_of(cells: Cells, software: RunSoftware) -> Sharding:
    """Return what data-parallel ranks share."""
    stated = cells.text("sharding").lower()
    if stated:
        named = {"zero0": "none", "ddp": "none", "fsdp": "zero3", "hsdp": "zero3", "fsdp2": "zero3", "zero-1": "zero1"}
        named |= {"zero-2": "zero2", "zero-3": "zero3", "distributed optimizer": "zero1", "zero3/fsdp": "zero3"}
        word = named.get(stated, stated)
        if word in set(Sharding):
            return Sharding(word)
        cells.wrong.append(f"sharding is {stated[:40]!r}, must be one of none, zero1, zero2, zero3/fsdp")
    if software.family is Software.MEGATRON:
        chosen, why = Sharding.NONE, "Megatron-LM of that time replicates states"
    elif software.family is Software.PYTORCH:
        chosen, why = Sharding.ZERO3, "FSDP is what PyTorch shards with"
    else:
        chosen, why = Sharding.ZERO1, "the distributed optimizer (ZeRO-1) is usual"
    return Sharding(cells.assume("plan.sharding", chosen.value, why))


def recompute_of(cells: Cells, notes: Notes) -> Recompute | None:
    """Return what is recomputed, where the row or its notes say it."""
    stated = cells.text("recompute").lower()
    if not stated:
        if notes.says("gradient checkpointing", "activation checkpointing", "full recompute"):
            return Recompute(cells.assume("plan.recompute", Recompute.FULL.value, "the notes speak of checkpointing"))
        return None
    if stated in set(Recompute):
        return Recompute(stated)
    cells.wrong.append(f"recompute is {stated[:40]!r}, must be one of none, selective, full")
    return None
