"""Lists what a job of each framework can be changed to: its limits and checks, and the names of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from opsk.frameworks import deepspeed, fsdp, megatron, torchtitan
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel
from opsk.frameworks.settings import (
    deepspeed_config,
    huggingface,
    megatron_flags,
    nanotron,
    nemo,
    published_programs,
    pytorch_programs,
)
from opsk.frameworks.settings.setting_names import SettingNames, Style
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding

NO_NAMES = SettingNames(style=Style.FLAG, numbers={})
_WHOLE_LAYERS = frozenset({Recompute.NONE, Recompute.FULL})
_DATA_PARALLEL = replace(fsdp.LIMITS, replicated_alone=False, shardings=frozenset({Sharding.ZERO3}))
"""HuggingFace's Trainer and frameworks based on it: no tp, no pp, layers recomputed as a whole."""
_ONE_CHUNK = replace(megatron.LIMITS, interleaved=False, recomputes=_WHOLE_LAYERS)
_AXES_ALONE = replace(_ONE_CHUNK, recomputes=frozenset({Recompute.NONE}), sequence_parallel=SequenceParallel.NEVER)
_TRAINERS = MappingProxyType(
    {
        "hf-trainer": (huggingface.TRAINER, huggingface.ON_DEEPSPEED),
        "trl": (huggingface.TRAINER, huggingface.ON_DEEPSPEED),
        "accelerate": (huggingface.TRAINER, huggingface.ON_DEEPSPEED),
        "hf-trainer+deepspeed": (huggingface.ON_DEEPSPEED, huggingface.ON_DEEPSPEED),
        "axolotl": (huggingface.AXOLOTL, huggingface.AXOLOTL),
        "llama-factory": (huggingface.LLAMA_FACTORY, huggingface.LLAMA_FACTORY),
        "deepspeed": (deepspeed_config.NAMES, deepspeed_config.NAMES),
        "lightning": (NO_NAMES, NO_NAMES),
        "openrlhf": (NO_NAMES, NO_NAMES),
        "ms-swift": (huggingface.TRAINER, huggingface.ON_DEEPSPEED),
    }
)
"""Frameworks that FSDP or DeepSpeed's engine can run, and their settings with either."""
_FSDP = MappingProxyType(
    {
        "pytorch-fsdp": NO_NAMES,
        "open_lm": NO_NAMES,
        "fms-fsdp": pytorch_programs.FMS,
        "llama-cookbook": pytorch_programs.COOKBOOK,
        "composer": pytorch_programs.COMPOSER,
        "torchtune": pytorch_programs.TORCHTUNE,
        "litgpt": pytorch_programs.LITGPT,
        "olmo": pytorch_programs.OLMO,
    }
)
_REPLICAS = ("pytorch-ddp", published_programs.DIT, "ultralytics", "yolov5", "nnunet")
"""Frameworks that hold a whole replica on every rank: sharding would take another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A framework as scripts name it.

    Parameters
    ----------
    limits
        The plans that it supports.
    refusals
        Checks of its own that `limits` cannot express.
    shardings
        The shardings that a job can change to beside its own; ``None`` for all that the limits have.
    names
        Its settings, where they are names with values; other settings are written by a function of their own.
    names_on_deepspeed
        Its settings where DeepSpeed's engine runs it, which has all stages; ``None`` if it cannot run there.
    limits_of_model
        Returns the limits for a model, where they differ; if left out, `limits` apply to all.
    """

    limits: Limits = ANYTHING
    refusals: Callable[[ModelShape, Plan], tuple[str, ...]] | None = None
    # Megatron FSDP and ZeRO-2 and -3 of Megatron-DeepSpeed are more than a flag: other checkpoints, no pipeline
    shardings: frozenset[Sharding] | None = frozenset({Sharding.ZERO1})
    names: SettingNames = NO_NAMES
    names_on_deepspeed: SettingNames | None = None
    limits_of_model: Callable[[ModelShape], Limits] | None = None

    def limits_for(self, model: ModelShape) -> Limits:
        """Return the limits for a model's plans."""
        return self.limits_of_model(model) if self.limits_of_model else self.limits


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "megatron-lm": Family(limits=megatron.LIMITS, refusals=megatron.refusals),
        "megatron-bridge": Family(limits=megatron.LIMITS, refusals=megatron.refusals),
        "nemo": Family(limits=megatron.LIMITS, refusals=megatron.refusals, names=nemo.NAMES),
        "megatron-deepspeed": Family(
            limits=replace(deepspeed.LIMITS, recomputes=frozenset(Recompute)), refusals=deepspeed.refusals
        ),
        "gpt-neox": Family(limits=replace(_ONE_CHUNK, name="gpt-neox"), names=deepspeed_config.NEOX),
        "nanotron": Family(limits=replace(_ONE_CHUNK, name="nanotron"), names=nanotron.NAMES),
        "picotron": Family(
            limits=replace(_AXES_ALONE, name="picotron"), shardings=frozenset(), names=nanotron.PICOTRON
        ),
        "bionemo": Family(
            limits=replace(_AXES_ALONE, name="bionemo"),
            refusals=megatron.refusals,
            shardings=frozenset(),
            names=megatron_flags.BIONEMO,
        ),
        # plans are in the user's Python code, on the engine that it selects
        **{name: Family() for name in ("olmo-core", "verl", "xtuner", "oumi", "nemo-automodel")},
        "torchtitan": Family(
            limits=torchtitan.LIMITS,
            refusals=torchtitan.refusals,
            shardings=None,
            limits_of_model=torchtitan.limits_for,
        ),
        **{
            name: Family(
                limits=replace(_DATA_PARALLEL, name=name),
                shardings=frozenset({Sharding.ZERO2, Sharding.ZERO3}),
                names=names,
                names_on_deepspeed=on_deepspeed,
            )
            for name, (names, on_deepspeed) in _TRAINERS.items()
        },
        **{
            name: Family(
                limits=fsdp.LIMITS,
                refusals=fsdp.refusals if name == "pytorch-fsdp" else None,
                shardings=None,
                names=names,
            )
            for name, names in _FSDP.items()
        },
        **{name: Family(limits=replace(_DATA_PARALLEL, name=name), shardings=frozenset()) for name in _REPLICAS},
        **{
            name: Family(limits=replace(_DATA_PARALLEL, name=name), shardings=frozenset(), names=names)
            for name, names in published_programs.SETTINGS.items()
        },
    }
)
"""All frameworks by the name that a workload has for them."""
OTHER = Family()
"""Any framework that is not listed."""
