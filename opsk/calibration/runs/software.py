"""Identifies the training software of a row and its month, and reads the settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsk.calibration.runs.cluster import find_pytorch_month, find_stated_month
from opsk.calibration.runs.columns import Cells
from opsk.hardware.spec import GpuSpec
from opsk.workload.plan import (
    AdapterFormat,
    Attention,
    LoraTargets,
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    Optimizer,
    OptimizerStep,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.software_defaults import Default, find_defaults, find_family, find_kernel, known_software

_MONTHS = {
    "volta": "2020-01",
    "turing": "2020-01",
    "ampere": "2024-03",
    "ada": "2024-01",
    "hopper": "2024-06",
    "cdna2": "2023-06",
    "cdna3": "2024-10",
}
"""Approximate month in which most published training on a chip generation ran."""
_RECENT = "2025-10"
_NO_FUSED_ATTENTION = ("pascal", "volta", "turing", "cdna1")
"""Chip generations for which FlashAttention-2 and cuDNN's fused attention do not exist."""
_FUSED_LAYERS = ("liger", "fused", "thunder", "te")
_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}
_OWN_PROGRAM = "pytorch"
"""A program without a trainer, whose loss is PyTorch's own."""
_QUANTISED_MOMENTS = ("int8", "fp8")
_TUNING_TASKS = ("sft", "dpo", "grpo")
_USUAL_RANK = 16
_DEEPSPEED_SHARDINGS = (Sharding.ZERO1, Sharding.ZERO2)
_TRAINERS = frozenset({"hf-trainer", "trl", "peft", "accelerate", "axolotl", "llama-factory", "ms-swift", "xtuner"})
"""Programs around HF's models that train with PyTorch's own DDP and FSDP, or with DeepSpeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSoftware:
    """The software of a run: name, family, month, and the defaults for what the row does not state."""

    name: str
    family: Software
    month: str
    defaults: Mapping[str, Default]

    @property
    def year(self) -> int:
        """Year in which it ran."""
        return int(self.month[:4])

    @property
    def has_fp32_logits(self) -> bool:
        """Whether it trains HuggingFace's models, which copy their logits to fp32 before the loss."""
        return self.name in _TRAINERS

    @property
    def routes_naturally(self) -> bool:
        """Whether nothing forces tokens to spread evenly over the experts."""
        return bool(self.defaults["natural_routing"].value)

    @property
    def words(self) -> str:
        """The name in the reasons of assumptions."""
        return f"{self.name or self.family.value} of {self.month}"

    def assume(self, cells: Cells, field: str, setting: str) -> Any:
        """Record and return the default of a setting."""
        default = self.defaults[setting]
        return cells.assume(field, default.value, f"{self.words}: {default.why}")


def identify_software(cells: Cells, gpu: GpuSpec) -> RunSoftware:
    """Return the software of a row; what the row does not state is assumed."""
    name = cells.text("software").lower()
    month = _find_month(cells, gpu)
    if name and name not in known_software():
        cells.odd.append(f"software {name[:40]!r} is not known: taken as a program on PyTorch")
    sharded = cells.choice("sharding").startswith("zero3") or cells.choice("dp_kind") == "fsdp"
    settings = find_defaults(name or _guess_framework(cells), gpu=gpu.architecture, month=month, sharded=sharded)
    family = find_family(settings)
    if name in _TRAINERS and _runs_deepspeed(cells):
        settings = {**settings, **find_defaults("deepspeed", gpu=gpu.architecture, month=month)}
        family = Software.DEEPSPEED
    if not name:
        cells.assume("plan.software", family.value, f"no framework is stated; of about {month}")
    return RunSoftware(name=name, family=family, month=month, defaults=settings)


def _guess_framework(cells: Cells) -> str:
    """Return the framework of a row that states none: one that splits the model is Megatron's kind."""
    splits_model = (cells.size("tp") or 1) * (cells.size("pp") or 1) > 1 or cells.size("model_parallel")
    is_sharded = cells.choice("sharding").startswith("zero3")
    is_small = cells.size("gpus") == 1 or cells.choice("finetuning") in ("lora", "qlora")
    return "pytorch" if (is_sharded or is_small) and not splits_model else "megatron-lm"


def _runs_deepspeed(cells: Cells) -> bool:
    """Return whether a trainer shards with DeepSpeed: PyTorch has no such ZeRO-1 and ZeRO-2."""
    return cells.choice("sharding") in _DEEPSPEED_SHARDINGS or (
        cells.choice("sharding") == Sharding.ZERO3 and cells.choice("dp_kind") != "fsdp"
    )


def _find_month(cells: Cells, gpu: GpuSpec) -> str:
    """Return when a row ran: its date, the release of its container, or when its GPU was usual; not before PyTorch."""
    return max(find_stated_month(cells) or _MONTHS.get(gpu.architecture, _RECENT), find_pytorch_month(cells))


def attention_is_fused(cells: Cells, software: RunSoftware, gpu: GpuSpec) -> bool:
    """Return whether attention scores are never stored."""
    stated = cells.choice("attention_kernel")
    if stated:
        return stated != "unfused"
    if gpu.architecture in _NO_FUSED_ATTENTION:
        return bool(cells.assume("model.flash_attention", False, f"no fused kernel runs on {gpu.architecture}"))
    default = software.defaults["attention_kernel"]
    return bool(cells.assume("model.flash_attention", default.value != "unfused", f"{software.words}: {default.why}"))


def read_attention(cells: Cells, software: RunSoftware, gpu: GpuSpec) -> Attention:
    """Return which kernel computes fused attention, by default that of the framework."""
    name = cells.choice("attention_kernel") or str(software.defaults["attention_kernel"].value)
    if name == "unfused":
        return Attention.AUTO
    if name in ("flash", "flash2") and not cells.choice("attention_kernel").startswith("flash2"):
        name = str(software.defaults["flash"].value) if "flash" in software.defaults else name
    return find_kernel(name, generation=gpu.architecture, month=software.month)


def read_states(cells: Cells, software: RunSoftware) -> States:
    """Return the formats of the states."""
    if cells.choice("precision") in ("fp32", "tf32"):
        return States.AUTOCAST
    param, grad, master, moment = (cells.choice(f"{name}_dtype") for name in ("param", "grad", "master", "moment"))
    is_16bit = _BITS.get(param) == 16
    if _is_stated_16bit(cells):
        return States.PURE_16BIT
    if master == "none" and _BITS.get(param) == 32:
        return States.AUTOCAST
    # FSDP shards fp32 weights and gathers them in 16 bits: its rows state the format of the gathered weights
    shards_fp32 = software.defaults["states"].value == States.AUTOCAST and not (is_16bit and _keeps_weights(cells))
    if shards_fp32 and master == "fp32":
        return States.AUTOCAST
    if is_16bit and "fp32" in (master, moment) and (grad or (master == "fp32" and _keeps_weights(cells))):
        return States.MIXED if grad == "fp32" else States.MIXED_16BIT_GRADIENTS
    if moment in ("bf16", "fp16") and software.family is not Software.MEGATRON_CORE:
        return States.PURE_16BIT
    if grad and not shards_fp32:
        return States.MIXED if grad == "fp32" else States.MIXED_16BIT_GRADIENTS
    return States(software.assume(cells, "plan.states", "states"))


def _is_stated_16bit(cells: Cells) -> bool:
    """Return whether the weights are stated to be in 16 bits, and the only ones."""
    return cells.choice("master_dtype") == "none" and _BITS.get(cells.choice("param_dtype")) == 16


def _keeps_weights(cells: Cells) -> bool:
    """Return whether every replica is stated to hold whole weights."""
    return cells.text("sharding").lower() in ("none", "zero1", "zero2") and cells.choice("dp_kind") != "fsdp"


def read_optimizer(cells: Cells) -> Optimizer:
    """Return the optimizer; Adam unless another is stated, 8-bit where its moments are."""
    stated = cells.choice("optimizer")
    named = {
        "adam8bit": Optimizer.ADAM_8BIT,
        "adam4bit": Optimizer.ADAM_4BIT,
        "paged-adam8bit": Optimizer.PAGED_ADAM_8BIT,
        "lion": Optimizer.LION,
        "adafactor": Optimizer.ADAFACTOR,
        "muon": Optimizer.MUON,
        "sgd": Optimizer.SGD,
    }
    optimizer = named.get(stated, Optimizer.ADAM)
    moment = cells.choice("moment_dtype")
    if optimizer in (Optimizer.ADAM, Optimizer.ADAM_8BIT) and moment == "int4":
        return Optimizer.ADAM_4BIT
    return Optimizer.ADAM_8BIT if optimizer is Optimizer.ADAM and moment in _QUANTISED_MOMENTS else optimizer


def read_optimizer_step(cells: Cells, software: RunSoftware) -> OptimizerStep:
    """Return how the optimizer steps through the parameters."""
    stated = cells.choice("optimizer_impl")
    if stated:
        return OptimizerStep.FUSED if stated in ("loop", "cpu") else OptimizerStep(stated)
    default = software.defaults.get("optimizer_step")
    if default is None:
        return OptimizerStep.FUSED
    return OptimizerStep(software.assume(cells, "plan.optimizer_step", "optimizer_step"))


_LOSSES = {"liger": Loss.FUSED, "stored-chunks": Loss.CHUNKED}
"""Words of a table for a loss that has another name in a plan: ``chunked`` is what the software does."""


def read_loss(cells: Cells, software: RunSoftware) -> Loss:
    """Return how logits and cross entropy are computed."""
    stated = cells.choice("loss_kernel")
    if stated == "fused" and software.family is Software.MEGATRON_CORE:
        return Loss.MEGATRON_FUSED
    if stated == "fused":
        return Loss.FP32_KERNEL if software.has_fp32_logits else Loss.KERNEL
    usual = Loss(software.defaults["loss_kernel"].value)
    if stated == "chunked" and usual is Loss.FP32_KERNEL:  # chunks of fp32 logits, all of which are stored
        return usual
    if stated == "chunked":
        return Loss(software.defaults["chunked_loss"].value)
    if stated:
        return _LOSSES.get(stated) or Loss(stated)
    if "compiled_loss" in software.defaults and _compiles(cells, software):
        return Loss(software.assume(cells, "plan.loss", "compiled_loss"))
    if usual is Loss.PLAIN and software.name == _OWN_PROGRAM and _is_stated_16bit(cells):
        return Loss(cells.assume("plan.loss", Loss.NATIVE.value, "nothing copies logits of a 16-bit model to fp32"))
    if usual is Loss.PLAIN:
        return usual
    return Loss(software.assume(cells, "plan.loss", "loss_kernel"))


def pipelines_tensor_parallel(cells: Cells, software: RunSoftware) -> bool:
    """Return whether the software pipelines tensor-parallel communication with its products."""
    stated = cells.choice("tp_comm_overlap")
    if stated:
        return stated != "no"
    if (cells.size("tp") or 1) > 1 and "tp_comm_overlap" in software.defaults:
        return bool(software.assume(cells, "plan.tp_overlap", "tp_comm_overlap"))
    return False


def is_compiled(cells: Cells, software: RunSoftware) -> bool:
    """Return whether norms and activation functions are fused where the software's own modules are not."""
    has_fused_layers = software.family is Software.PYTORCH and cells.choice("layer_kernels") in _FUSED_LAYERS
    return has_fused_layers or _compiles(cells, software)


def _compiles(cells: Cells, software: RunSoftware) -> bool:
    """Return whether a compiler makes the kernels: of the loss, too, which fused layers leave as it is."""
    stated = cells.flag("torch_compile")
    if cells.choice("compiler") in ("torch", "thunder", "xla"):
        return True
    if stated is not None:
        return stated
    compiled = software.defaults.get("compiled")
    return bool(compiled is not None and compiled.value)


def uses_cuda_graphs(cells: Cells, software: RunSoftware) -> bool:
    """Return whether layers are launched as CUDA graphs."""
    stated = cells.flag("cuda_graphs")
    if stated is not None:
        return stated
    return bool(_get_default(software, "cuda_graphs"))


def read_expert_settings(cells: Cells, software: RunSoftware) -> dict[str, Any]:
    """Return the plan's settings for experts: dispatcher, products, permutation and overlap."""
    dispatcher = MoeDispatcher(_read_setting(cells, software, "moe_dispatcher"))
    leaves_host_out = bool(cells.flag("cuda_graphs") or _get_default(software, "fused_moe", otherwise=False))
    permutes = cells.flag("moe_permute_fusion")
    if permutes is None:
        permutes = bool(_get_default(software, "moe_permute_fusion", otherwise=False))
    gemm = cells.choice("moe_gemm")
    if gemm in ("", "grouped"):
        # the implementation of Megatron's grouped product depends on its release
        gemm = _get_default(software, "moe_gemm", otherwise=MoeGemm.GROUPED)
        if cells.choice("moe_gemm"):
            gemm = MoeGemm.GROUPED if gemm == MoeGemm.SEQUENTIAL else gemm
    elif gemm == "torch_mm":
        gemm = MoeGemm.GROUPED
    overlaps = cells.flag("ep_comm_overlap")
    if overlaps is None:
        overlaps = bool(_get_default(software, "ep_comm_overlap", otherwise=False))
    return {
        "moe_dispatcher": dispatcher,
        "moe_gemm": MoeGemm(gemm),
        "moe_permute_fusion": permutes,
        "ep_overlap": overlaps,
        "fused_moe": leaves_host_out and dispatcher is MoeDispatcher.HYBRIDEP,
    }


def _read_setting(cells: Cells, software: RunSoftware, setting: str) -> Any:
    """Return a stated setting, or the software's default, which is recorded."""
    stated = cells.choice(setting)
    return stated or software.assume(cells, f"plan.{setting}", setting)


def _get_default(software: RunSoftware, setting: str, *, otherwise: Any = None) -> Any:
    """Return the default of a setting without recording it, ``otherwise`` without one."""
    default = software.defaults.get(setting)
    return otherwise if default is None else default.value


def read_offload(cells: Cells) -> Offload:
    """Return what is offloaded to host memory."""
    words = {word.strip() for word in cells.text("offload").lower().split("+")} - {"", "none"}
    kinds = {
        "activations": Offload.ACTIVATIONS,
        "params": Offload.OPTIMIZER_AND_WEIGHTS,
        "optimizer": Offload.OPTIMIZER,
    }
    if unknown := words - kinds.keys():
        cells.odd.append(f"offload {', '.join(sorted(unknown))[:40]!r} is not known: taken as none")
    if "activations" in words and len(words) > 1:
        cells.odd.append("offload of states beside activations: only that of the states is predicted")
    return next((kinds[word] for word in ("params", "optimizer", "activations") if word in words), Offload.NONE)


def read_sharding(cells: Cells, software: RunSoftware) -> Sharding:
    """Return what data-parallel ranks shard."""
    stated = cells.text("sharding").lower()
    if stated:
        word = "zero3" if stated == "zero3/fsdp" else stated
        if word in set(Sharding):
            return Sharding(word)
        cells.wrong.append(f"sharding is {stated[:40]!r}, must be one of none, zero1, zero2, zero3/fsdp")
        return Sharding.NONE
    kind = cells.choice("dp_kind")
    if kind == "fsdp" or cells.flag("hsdp"):
        return Sharding.ZERO3
    if cells.size("gpus") == 1 or cells.size("dp") == 1:
        return Sharding.NONE
    return Sharding(software.assume(cells, "plan.sharding", "sharding"))


def read_module_settings(cells: Cells, software: RunSoftware) -> dict[str, Any]:
    """Return the settings of PyTorch's own modules that affect memory, stated or by the software's defaults."""
    layout = cells.choice("qkv_layout") or _get_default(software, "qkv_layout", otherwise=QkvLayout.SEPARATE)
    settings: dict[str, Any] = {"qkv_layout": QkvLayout(layout)}
    for name in (
        *("reentrant", "keeps_gathered", "fused_norms", "expandable_segments", "gathers_fp32", "keeps_kv_cache"),
        *("accumulates_unsharded", "flat_adapters", "gathers_logits", "bare_loop", "distributed_tensors"),
    ):
        stated = cells.flag(name)
        settings[name] = stated if stated is not None else bool(_get_default(software, name))
    stated = cells.flag("tp_async")
    settings["tp_async"] = stated if stated is not None else bool(_get_default(software, "tp_async", otherwise=True))
    reduced = cells.choice("reduce_dtype")
    settings["reduces_16bit"] = _BITS.get(reduced) == 16 if reduced else bool(_get_default(software, "reduces_16bit"))
    if cells.size("tp") == 1 and not cells.flag("gathers_logits"):
        settings["gathers_logits"] = False
    settings["reduces_fp32"] = _BITS.get(reduced) == 32
    return settings


def is_tuned(cells: Cells) -> bool:
    """Return whether the run fine-tunes a model."""
    return cells.choice("task") in _TUNING_TASKS or cells.choice("finetuning") in ("lora", "qlora")


def read_micro_batch(cells: Cells, software: RunSoftware, dp_batch: int | None) -> int | None:
    """Return the sequences of a micro-batch: stated, or the software's default where it divides a replica's batch."""
    stated = cells.size("micro_batch")
    setting = "micro_batch" if is_tuned(cells) else "pretrain_micro_batch"
    usual = _get_default(software, setting)
    if stated is not None or usual is None or (dp_batch is not None and dp_batch % usual):
        return stated
    return int(software.assume(cells, "plan.micro_batch", setting))


def has_varied_lengths(cells: Cells, software: RunSoftware) -> bool:
    """Return whether samples of different lengths are padded to the longest of a micro-batch.

    That is so in fine-tuning unless samples are packed or synthetic.
    """
    stated = cells.flag("packed")
    if stated is not None or software.family is not Software.PYTORCH:
        return stated is False
    if not is_tuned(cells) or cells.choice("data") == "mock":
        return False
    return bool(cells.assume("plan.varied_lengths", True, "fine-tuning pads samples of different lengths"))


def read_adapters(cells: Cells, software: RunSoftware) -> dict[str, Any]:
    """Return the settings of adapters on a frozen base; empty where the whole model is trained."""
    kind = cells.choice("finetuning")
    if kind not in ("lora", "qlora"):
        return {}
    rank, bits = cells.size("lora_rank"), cells.size("base_bits")
    if rank is None:
        rank = _usual_rank(cells, software)
    targets, stored = cells.choice("lora_targets"), cells.choice("adapter_format")
    if not targets:
        default = software.defaults.get("lora_targets")
        targets = LoraTargets.ALL if default is None else software.assume(cells, "plan.lora_targets", "lora_targets")
    if not stored:
        stored = _get_default(software, "adapter_format") or AdapterFormat.BASE
    return {
        "lora_rank": rank,
        "base_bits": bits or (4 if kind == "qlora" else 16),
        "upcast_base": _upcasts(cells, software, is_quantised=kind == "qlora"),
        "lora_targets": LoraTargets(targets),
        "adapter_format": AdapterFormat(stored),
        **{name: _read_flag(cells, software, name) for name in ("lora_dropout", "keeps_base_inputs", "quantised_head")},
    }


def _usual_rank(cells: Cells, software: RunSoftware) -> int:
    """Return the rank of adapters where none is stated."""
    if "lora_rank" in software.defaults:
        return int(software.assume(cells, "plan.lora_rank", "lora_rank"))
    return int(cells.assume("plan.lora_rank", _USUAL_RANK, "the rank of the adapters is not stated"))


def _read_flag(cells: Cells, software: RunSoftware, name: str) -> bool:
    """Return a boolean setting of adapters and their base; an assumed one is recorded."""
    stated = cells.flag(name)
    if stated is not None:
        return stated
    if name != "lora_dropout" and cells.choice("finetuning") != "qlora":
        return False
    return bool(_get_default(software, name)) and bool(software.assume(cells, f"plan.{name}", name))


def _upcasts(cells: Cells, software: RunSoftware, *, is_quantised: bool) -> bool:
    """Return whether the unquantised part of a base is converted to fp32.

    It is not under FSDP, which needs one format, and by plugins that replace layers, whose kernels read 16 bits.
    """
    stated = cells.flag("upcast_base")
    if stated is not None or not is_quantised:
        return bool(stated)
    is_sharded = cells.choice("sharding").startswith("zero3") or cells.choice("dp_kind") == "fsdp"
    is_replaced = cells.choice("layer_kernels") in _FUSED_LAYERS
    if is_sharded or is_replaced or "upcast_base" not in software.defaults:
        return False
    return bool(software.assume(cells, "plan.upcast_base", "upcast_base"))


def read_recompute(cells: Cells, software: RunSoftware) -> Recompute | None:
    """Return what is recomputed, where the row states it or its software decides it."""
    stated = cells.text("recompute").lower()
    if stated in set(Recompute):
        return Recompute(stated)
    if stated:
        cells.wrong.append(f"recompute is {stated[:40]!r}, must be one of none, selective, full")
        return None
    if cells.text("recompute_modules") or cells.choice("recompute_policy"):
        return Recompute.SELECTIVE
    if cells.size("recompute_layers") or cells.share("recompute_share"):
        return Recompute.FULL
    if cells.choice("finetuning") == "qlora" and "quantised_recompute" in software.defaults:
        return Recompute(software.assume(cells, "plan.recompute", "quantised_recompute"))
    if (is_tuned(cells) or cells.choice("finetuning")) and "recompute" in software.defaults:
        return Recompute(software.assume(cells, "plan.recompute", "recompute"))
    return None
