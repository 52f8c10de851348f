"""Defines the catalogue of training frameworks that plans can be written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from types import MappingProxyType

from opsk.frameworks import deepspeed, fsdp, megatron, torchtitan
from opsk.frameworks.limits import Limits, expresses
from opsk.frameworks.options import Settings
from opsk.frameworks.script import Job, Program, sbatch_script, slurm_name
from opsk.workload.model import MODEL_FIELDS, ModelShape
from opsk.workload.plan import PLAN_FIELDS, Plan, Software

_NOT_OF_A_PLAN = ("nodes", "gpus_per_node", "gpus")
_ALWAYS = ("gated_mlp", "experts", "tied_embeddings", "learned_positions", "flash_attention")
"""Details whose assumed value may differ where they are not stated."""


def name_line(model: ModelShape) -> str:
    """Return the line that names the model."""
    return f"#OPSK model.name={slurm_name(model.name)}"


def stated_lines(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return the lines that state model and plan, as far as a script can state them."""
    usual = {item.name: item.default for item in fields(ModelShape)}
    shape = {
        name: getattr(model, name)
        for name in MODEL_FIELDS
        if name != "name" and (name in _ALWAYS or getattr(model, name) != usual[name])
    }
    axes = {name: getattr(plan, name) for name in PLAN_FIELDS if name not in _NOT_OF_A_PLAN}
    return tuple(
        f"#OPSK {' '.join(f'{owner}.{name}={_word(value)}' for name, value in values.items() if value is not None)}"
        for owner, values in (("model", shape), ("plan", axes))
    )


def _word(value: object) -> str:
    """Return a value as text for such a line."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A training framework: its limits, and the functions that convert plans to its options.

    Parameters
    ----------
    limits
        The part of the space of plans that it supports; its name is the framework's.
    title
        Its official name, with the release whose options are written.
    program
        How it is started.
    settings_of
        The options for a model and a plan.
    own_refusals
        Checks of its own that `limits` cannot express.
    is_read
        Whether ``opsk check`` reads its options; if not, a script states the plan in separate lines.
    limits_of_model
        Returns the limits for a model, where they differ; if left out, `limits` apply to all.
    """

    limits: Limits
    title: str
    program: Program
    build_settings: Callable[[ModelShape, Plan], Settings]
    own_refusals: Callable[[ModelShape, Plan], tuple[str, ...]]
    is_read: bool
    limits_of_model: Callable[[ModelShape], Limits] | None = None

    @property
    def name(self) -> str:
        """Its common name: ``megatron``."""
        return self.limits.name

    def limits_for(self, model: ModelShape) -> Limits:
        """Return the limits for a model's plans."""
        return self.limits_of_model(model) if self.limits_of_model else self.limits

    def refuses(self, model: ModelShape, plan: Plan) -> tuple[str, ...]:
        """Return why it cannot run the plan; empty when it can."""
        own_refusals_ = tuple(f"{self.name}: {reason}" for reason in self.own_refusals(model, plan))
        return (*expresses(self.limits, plan, model), *own_refusals_)

    def settings(self, model: ModelShape, plan: Plan) -> Settings:
        """Return the options to paste for a plan that it can run."""
        return self.build_settings(model, plan)

    def list_missing_features(self, model: ModelShape) -> tuple[str, ...]:
        """Return the features of a model that its options cannot express, whatever the plan."""
        return self.settings(model, Plan(global_batch=1)).missing

    def is_for(self, software: Software) -> bool:
        """Return whether plans of a family of software are its own; Megatron-LM of old releases counts as Megatron."""
        own = self.limits.software
        return software is own or (own is Software.MEGATRON_CORE and software is Software.MEGATRON)

    def script(self, model: ModelShape, plan: Plan, job: Job, *, comments: Sequence[str] = ()) -> str:
        """Return a script for ``sbatch``; ``comments`` are more lines for the comment at its head."""
        title = f"{model.name} on {plan.gpus} GPUs with {self.title}, as opsk plan wrote it."
        stated = () if self.is_read else stated_lines(model, plan)
        return sbatch_script(
            self.settings(model, plan),
            self.program,
            job,
            title=title,
            comments=(format_plan_line(plan), *comments),
            stated=(name_line(model), *stated),
        )


def format_plan_line(plan: Plan) -> str:
    """Return the plan in one line."""
    axes = " ".join(
        f"{name.upper()}{size}"
        for name in ("tp", "pp", "vpp", "cp", "ep", "dp")
        if (size := getattr(plan, name)) > 1 or name == "dp"
    )
    sharding = f"{plan.sharding} over {plan.shard_gpus} GPUs" if plan.shard_gpus else str(plan.sharding)
    return (
        f"Plan: {axes}, micro-batch {plan.micro_batch}, global batch {plan.global_batch}, {plan.precision}, "
        f"sharding {sharding}, recompute {plan.recompute}, {plan.schedule}."
    )


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        framework.name: framework
        for framework in (
            Framework(
                limits=megatron.LIMITS,
                title=f"Megatron-LM ({megatron.RELEASE})",
                program=megatron.PROGRAM,
                build_settings=megatron.build_settings,
                own_refusals=megatron.refusals,
                is_read=True,
            ),
            Framework(
                limits=fsdp.LIMITS,
                title=f"PyTorch FSDP ({fsdp.RELEASE})",
                program=fsdp.PROGRAM,
                build_settings=fsdp.build_settings,
                own_refusals=fsdp.refusals,
                is_read=False,
            ),
            Framework(
                limits=deepspeed.LIMITS,
                title=f"DeepSpeed ({deepspeed.RELEASE})",
                program=deepspeed.PROGRAM,
                build_settings=deepspeed.build_settings,
                own_refusals=deepspeed.refusals,
                is_read=True,
            ),
            Framework(
                limits=torchtitan.LIMITS,
                title=f"torchtitan ({torchtitan.RELEASE})",
                program=torchtitan.PROGRAM,
                build_settings=torchtitan.build_settings,
                own_refusals=torchtitan.refusals,
                is_read=False,
                limits_of_model=torchtitan.limits_for,
            ),
        )
    }
)
"""All frameworks by name."""


def frameworks_for(model: ModelShape) -> tuple[Framework, ...]:
    """Return the frameworks whose options express a model; where none does, those that miss the fewest of its features.

    A feature without an option (a norm more a layer) is for the user to add to the framework's own model.
    """
    missing = {name: len(framework.list_missing_features(model)) for name, framework in FRAMEWORKS.items()}
    fewest = min(missing.values())
    return tuple(framework for name, framework in FRAMEWORKS.items() if missing[name] == fewest)


def frameworks_that_run(model: ModelShape, plan: Plan) -> tuple[Framework, ...]:
    """Return the frameworks whose software a plan is for, that run it, and whose options express the model."""
    return tuple(
        framework
        for framework in frameworks_for(model)
        if framework.is_for(plan.software) and not framework.refuses(model, plan)
    )
