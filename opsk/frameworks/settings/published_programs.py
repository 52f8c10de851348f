"""Lists published training programs of models other than language models: their own flags, and their defaults.

Sources are the argument parsers of each program, as released up to 2025: ``train.py`` of pytorch-image-models,
``references/classification/train.py`` of torchvision, ``imagenet/main.py`` of pytorch/examples, ``main.py`` of DeiT,
``main_finetune.py`` of MAE, ``main.py`` of ConvNeXt, ``open_clip_train/params.py`` of OpenCLIP, ``train.py`` of DiT,
and ``examples/text_to_image`` and ``examples/dreambooth`` of diffusers. Names are written with underscores.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from opsk.frameworks.settings.setting_names import SettingNames, Style
from opsk.workload.plan import Recompute

TIMM, TORCHVISION, IMAGENET = "timm", "torchvision", "pytorch-ddp"
DEIT, MAE, CONVNEXT, OPEN_CLIP, DIFFUSERS, DIT = "deit", "mae", "convnext", "open-clip", "diffusers", "dit"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedProgram:
    """A training program that many users run as it is published.

    Parameters
    ----------
    file, path
        Regular expressions: the name of its file or module, and a part of its path that names it for sure.
    flags, min_flags
        Flags that are its own, and how many of them tell it from other programs of the same file name.
    models, default_model, model_prefix
        Flags that name the model, the model without them, and what is put before a name to look it up.
    batches, default_batch, is_batch_of_node
        Flags of the samples of a GPU, their number without them, and whether all GPUs of a node share that number.
    sizes, default_size
        Flags of the side of an image, and the side without them; 0 is the model's own.
    formats, always, has_open_format
        Flags that switch a number format on; the format that is always used, else fp32; releases differ in it.
    format_words
        Flags whose words name a number format.
    averages, has_average, no_average
        Flags of an average of the weights on the GPU, whether there is one without them, and flags that leave it out.
    optimizers, default_optimizer
        Flags that name the optimizer, and the optimizer without them.
    freezes
        Flags that freeze a part of the model, or train more: what is stored is not known then.
    adapters
        True where only adapters are trained; their rank is ``--rank``, 4 unless stated.
    """

    framework: str
    file: str
    path: str = ""
    flags: frozenset[str] = frozenset()
    min_flags: int = 2
    models: tuple[str, ...] = ("model",)
    default_model: str = ""
    model_prefix: str = ""
    batches: tuple[str, ...] = ("batch_size",)
    default_batch: int = 0
    is_batch_of_node: bool = False
    sizes: tuple[str, ...] = ()
    default_size: int = 0
    steps: tuple[str, ...] = ()
    formats: tuple[tuple[str, str], ...] = ()
    always: str = ""
    has_open_format: bool = False
    format_words: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    averages: tuple[str, ...] = ()
    has_average: bool = False
    no_average: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    default_optimizer: str = "adamw"
    freezes: tuple[str, ...] = ()
    adapters: bool = False
    local_losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Diffusers:
    """What differs between the examples of diffusers."""

    file: str
    batch: int
    size: int
    adapters: bool = False
    freezes: tuple[str, ...] = field(default=("train_text_encoder",))


_IMAGE_FLAGS = frozenset(
    {
        *(
            "sched",
            "aa",
            "reprob",
            "remode",
            "recount",
            "mixup",
            "cutmix",
            "smoothing",
            "drop_path",
            "train_interpolation",
        ),
        *("warmup_epochs", "color_jitter", "clip_grad", "opt_eps", "opt_betas", "min_lr", "warmup_lr", "mixup_prob"),
    }
)
"""Flags of timm that DeiT, MAE, ConvNeXt and many others took over."""
_TIMM_FLAGS = frozenset(
    {
        *("amp", "amp_dtype", "amp_impl", "native_amp", "apex_amp", "channels_last", "checkpoint_hist", "pin_mem"),
        *("model_ema", "model_ema_decay", "opt", "weight_decay", "train_split", "val_split", "initial_checkpoint"),
        *("img_size", "crop_pct", "validation_batch_size", "bce_loss", "aug_splits", "jsd_loss", "dist_bn", "sync_bn"),
        *("grad_accum_steps", "grad_checkpointing", "log_interval", "recovery_interval", "use_multi_epochs_loader"),
        *("decay_rate", "decay_epochs", "layer_decay", "drop", "num_classes", "torchcompile", "dataset", "class_map"),
    }
)
_TORCHVISION_FLAGS = frozenset(
    {
        *("lr_step_size", "lr_gamma", "lr_scheduler", "lr_warmup_epochs", "lr_warmup_method", "lr_warmup_decay"),
        *("label_smoothing", "mixup_alpha", "cutmix_alpha", "auto_augment", "random_erase", "train_crop_size"),
        *("val_crop_size", "val_resize_size", "ra_sampler", "ra_reps", "norm_weight_decay", "bias_weight_decay"),
        *(
            "transformer_embedding_decay",
            "model_ema_steps",
            "data_path",
            "print_freq",
            "cache_dataset",
            "interpolation",
        ),
        *("clip_grad_norm", "weights", "weights_backbone", "use_v2", "use_deterministic_algorithms"),
    }
)
_CLIP_FLAGS = frozenset(
    {
        *("train_data", "val_data", "dataset_type", "imagenet_val", "imagenet_v2", "zeroshot_frequency", "csv_img_key"),
        *("csv_separator", "csv_caption_key", "train_num_samples", "local_loss", "gather_with_grad", "accum_freq"),
        *("lock_image", "lock_text", "save_frequency", "dataset_resampled", "force_quick_gelu", "grad_checkpointing"),
    }
)
_DIFFUSERS_EXAMPLES = (
    _Diffusers(file=r"train_text_to_image\.py", batch=16, size=512),
    _Diffusers(file=r"train_text_to_image_sdxl\.py", batch=16, size=1024),
    _Diffusers(file=r"train_text_to_image_lora\.py", batch=16, size=512, adapters=True),
    _Diffusers(file=r"train_text_to_image_lora_sdxl\.py", batch=16, size=1024, adapters=True),
    _Diffusers(file=r"train_dreambooth\.py", batch=4, size=512),
    _Diffusers(file=r"train_dreambooth_(sd3|flux)\.py", batch=4, size=512),
    _Diffusers(file=r"train_dreambooth_lora\.py", batch=4, size=512, adapters=True),
    _Diffusers(file=r"train_dreambooth_lora_sdxl\.py", batch=4, size=1024, adapters=True),
    _Diffusers(file=r"train_dreambooth_lora_(sd3|flux)\.py", batch=4, size=512, adapters=True),
    _Diffusers(file=r"train_instruct_pix2pix\.py", batch=16, size=256),
    _Diffusers(file=r"train_instruct_pix2pix_sdxl\.py", batch=16, size=256),
)

PROGRAMS: tuple[PublishedProgram, ...] = (
    PublishedProgram(
        framework=TIMM,
        file=r"train\.py|distributed_train\.sh",
        path=r"pytorch-image-models|(^|/)timm/",
        flags=_IMAGE_FLAGS | _TIMM_FLAGS,
        default_model="resnet50",
        batches=("batch_size", "b"),
        default_batch=128,
        sizes=("img_size", "input_size"),
        steps=("grad_accum_steps",),
        formats=(("amp", "fp16"), ("native_amp", "fp16"), ("apex_amp", "fp16")),
        checkpoints=("grad_checkpointing",),
        averages=("model_ema",),
        optimizers=("opt",),
        default_optimizer="sgd",
    ),
    PublishedProgram(
        framework=TORCHVISION,
        file=r"train\.py",
        path=r"references/classification",
        flags=_TORCHVISION_FLAGS,
        default_model="resnet18",
        batches=("batch_size", "b"),
        default_batch=32,
        sizes=("train_crop_size",),
        default_size=224,
        formats=(("amp", "fp16"), ("apex", "fp16")),
        averages=("model_ema",),
        optimizers=("opt",),
        default_optimizer="sgd",
    ),
    PublishedProgram(
        framework=IMAGENET,
        file=r"main\.py|main_\w+\.py|imagenet\.py",
        path=r"examples/imagenet|imagenet/main\.py",
        flags=frozenset(
            {"multiprocessing_distributed", "dist_url", "dist_backend", "world_size", "rank", "print_freq", "arch"}
        ),
        min_flags=3,
        models=("arch", "a"),
        batches=("batch_size", "b"),
        is_batch_of_node=True,
        default_size=224,
        default_optimizer="sgd",
    ),
    PublishedProgram(
        framework=DEIT,
        file=r"main\.py|run_with_submitit\.py",
        path=r"(^|/)deit/",
        flags=_IMAGE_FLAGS
        | {
            "teacher_model",
            "distillation_type",
            "repeated_aug",
            "data_set",
            "inat_category",
            "bce_loss",
            "ThreeAugment",
        },
        min_flags=2,
        default_model="deit_base_patch16_224",
        default_batch=64,
        sizes=("input_size",),
        default_size=224,
        always="fp16",
        has_average=True,
        no_average=("no_model_ema", "model_ema_force_cpu"),
        optimizers=("opt",),
        freezes=("attn_only", "distillation_type"),
    ),
    PublishedProgram(
        framework=MAE,
        file=r"main_finetune\.py|submitit_finetune\.py",
        flags=_IMAGE_FLAGS
        | {"blr", "accum_iter", "layer_decay", "finetune", "global_pool", "cls_token", "nb_classes", "dist_eval"},
        default_model="vit_large_patch16",
        default_batch=64,
        sizes=("input_size",),
        default_size=224,
        steps=("accum_iter",),
        always="fp16",
    ),
    PublishedProgram(
        framework=CONVNEXT,
        file=r"main\.py|run_with_submitit\.py|main_finetune\.py",
        path=r"(?i)(^|/)convnext",
        flags=_IMAGE_FLAGS
        | {
            "update_freq",
            "use_amp",
            "layer_scale_init_value",
            "head_init_scale",
            "model_ema_eval",
            "model_ema",
            "nb_classes",
        },
        default_model="convnext_tiny",
        default_batch=64,
        sizes=("input_size",),
        default_size=224,
        steps=("update_freq",),
        formats=(("use_amp", "fp16"),),
        averages=("model_ema",),
        optimizers=("opt",),
    ),
    PublishedProgram(
        framework=OPEN_CLIP,
        file=r"(open_clip_train|training|src\.open_clip_train|src\.training)\.main|main\.py",
        flags=_CLIP_FLAGS,
        default_model="RN50",
        model_prefix="openclip-",
        default_batch=64,
        sizes=("force_image_size",),
        steps=("accum_freq",),
        format_words=("precision",),
        has_open_format=True,
        checkpoints=("grad_checkpointing",),
        freezes=("lock_image", "lock_text", "distill_model"),
        local_losses=("local_loss",),
    ),
    PublishedProgram(
        framework=DIT,
        file=r"train\.py",
        path=r"(^|/)(DiT|SiT)/",
        flags=frozenset(
            {"global_batch_size", "global_seed", "vae", "ckpt_every", "log_every", "image_size", "num_classes"}
        ),
        min_flags=3,
        default_model="DiT-XL/2",
        batches=(),
        sizes=("image_size",),
        default_size=256,
        has_average=True,
    ),
    *(
        PublishedProgram(
            framework=DIFFUSERS,
            file=example.file,
            flags=frozenset({"pretrained_model_name_or_path", "train_batch_size", "resolution", "instance_data_dir"}),
            models=("pretrained_model_name_or_path",),
            batches=("train_batch_size",),
            default_batch=example.batch,
            sizes=("resolution",),
            default_size=example.size,
            steps=("gradient_accumulation_steps",),
            format_words=("mixed_precision",),
            checkpoints=("gradient_checkpointing",),
            averages=("use_ema",),
            freezes=example.freezes,
            adapters=example.adapters,
        )
        for example in _DIFFUSERS_EXAMPLES
    ),
)


@lru_cache(maxsize=1)
def read_flags() -> dict[str, frozenset[str]]:
    """Return all flags that the programs of a framework take, in any release."""
    text = files(__package__).joinpath("published_flags.toml").read_text(encoding="utf-8")
    return {name: frozenset(words.split()) for name, words in tomllib.loads(text).items()}


SETTINGS = {
    TIMM: SettingNames(
        style=Style.FLAG,
        numbers={"micro_batch": "batch-size", "micro_batches": "grad-accum-steps"},
        recompute={Recompute.FULL: (("grad-checkpointing", ""),)},
    ),
    TORCHVISION: SettingNames(style=Style.FLAG, numbers={"micro_batch": "batch-size"}),
    DEIT: SettingNames(style=Style.FLAG, numbers={"micro_batch": "batch-size"}),
    MAE: SettingNames(style=Style.FLAG, numbers={"micro_batch": "batch_size", "micro_batches": "accum_iter"}),
    CONVNEXT: SettingNames(style=Style.FLAG, numbers={"micro_batch": "batch_size", "micro_batches": "update_freq"}),
    OPEN_CLIP: SettingNames(
        style=Style.FLAG,
        numbers={"micro_batch": "batch-size", "micro_batches": "accum-freq"},
        recompute={Recompute.FULL: (("grad-checkpointing", ""),)},
    ),
    DIFFUSERS: SettingNames(
        style=Style.FLAG,
        numbers={"micro_batch": "train_batch_size", "micro_batches": "gradient_accumulation_steps"},
        recompute={Recompute.FULL: (("gradient_checkpointing", ""),)},
    ),
}
"""The settings that a suggestion may change, in the words of each program."""
