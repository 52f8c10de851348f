"""Which frameworks can a plan be written for?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from types import MappingProxyType

from opsk.frameworks import deepspeed, fsdp, megatron, torchtitan
from opsk.frameworks.expression import expresses
from opsk.frameworks.job import Job
from opsk.frameworks.limits import Limits
from opsk.frameworks.options import Settings
from opsk.frameworks.script import Program, sbatch_script, slurm_name
from opsk.workload.model import MODEL_FIELDS, ModelShape
from opsk.workload.plan import PLAN_FIELDS, Plan

_NOT_OF_A_PLAN = ("nodes", "gpus_per_node", "gpus")
_ALWAYS = ("gated_mlp", "experts", "tied_embeddings", "learned_positions", "flash_attention")
"""Details that are assumed otherwise where nobody states them."""


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
    """Return a value as such a line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A training framework: what it can run, and how a plan is written down for it.

    Parameters
    ----------
    limits
        The part of the space of plans that it has; its name is the framework's.
    title
        How its makers spell it, with the release whose options are written.
    program
        How it is started.
    settings_of
        The options for a model and a plan.
    own_refusals
        Checks of its own that `limits` cannot say.
    is_read
        Whether ``opsk check`` reads its options; if not, a script says the plan in lines of its own.
    limits_of_model
        What it can run of some models only; left out, `limits` of all.
    """

    limits: Limits
    title: str
    program: Program
    settings_of: Callable[[ModelShape, Plan], Settings]
    own_refusals: Callable[[ModelShape, Plan], tuple[str, ...]]
    is_read: bool
    limits_of_model: Callable[[ModelShape], Limits] | None = None

    @property
    def name(self) -> str:
        """What people call it: ``megatron``."""
        return self.limits.name

    def limits_for(self, model: ModelShape) -> Limits:
        """Return the part of the space of a model's plans that it has."""
        return self.limits_of_model(model) if self.limits_of_model else self.limits

    def refuses(self, model: ModelShape, plan: Plan) -> tuple[str, ...]:
        """Return why it cannot run the plan; empty when it can."""
        own = tuple(f"{self.name}: {reason}" for reason in self.own_refusals(model, plan))
        return (*expresses(self.limits, plan, model), *own)

    def settings(self, model: ModelShape, plan: Plan) -> Settings:
        """Return the options to paste for a plan that it can run."""
        return self.settings_of(model, plan)

    def script(self, model: ModelShape, plan: Plan, job: Job, *, told: Sequence[str] = ()) -> str:
        """Return a script for ``sbatch``; ``told`` are more lines for the comment at its head."""
        title = f"{model.name} on {plan.gpus} GPUs with {self.title}, as opsk plan wrote it."
        said = () if self.is_read else stated_lines(model, plan)
        return sbatch_script(
            self.settings(model, plan),
            self.program,
            job,
            title=title,
            told=(_plan_line(plan), *told),
            stated=(name_line(model), *said),
        )


def _plan_line(plan: Plan) -> str:
    """Return the plan in one line."""
    axes = " ".join(
        f"{name.upper()}{size}"
        for name in ("tp", "pp", "vpp", "cp", "ep", "dp")
        if (size := getattr(plan, name)) > 1 or name == "dp"
    )
    kept = f"{plan.sharding} over {plan.shard_gpus} GPUs" if plan.shard_gpus else str(plan.sharding)
    return (
        f"Plan: {axes}, micro-batch {plan.micro_batch}, global batch {plan.global_batch}, {plan.precision}, "
        f"sharding {kept}, recompute {plan.recompute}, {plan.schedule}."
    )


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        framework.name: framework
        for framework in (
            Framework(
                limits=megatron.LIMITS,
                title=f"Megatron-LM ({megatron.RELEASE})",
                program=megatron.PROGRAM,
                settings_of=megatron.settings_of,
                own_refusals=megatron.refusals,
                is_read=True,
            ),
            Framework(
                limits=fsdp.LIMITS,
                title=f"PyTorch FSDP ({fsdp.RELEASE})",
                program=fsdp.PROGRAM,
                settings_of=fsdp.settings_of,
                own_refusals=fsdp.refusals,
                is_read=False,
            ),
            Framework(
                limits=deepspeed.LIMITS,
                title=f"DeepSpeed ({deepspeed.RELEASE})",
                program=deepspeed.PROGRAM,
                settings_of=deepspeed.settings_of,
                own_refusals=deepspeed.refusals,
                is_read=True,
            ),
            Framework(
                limits=torchtitan.LIMITS,
                title=f"torchtitan ({torchtitan.RELEASE})",
                program=torchtitan.PROGRAM,
                settings_of=torchtitan.settings_of,
                own_refusals=torchtitan.refusals,
                is_read=False,
                limits_of_model=torchtitan.limits_for,
            ),
        )
    }
)
"""All frameworks by the name that people call them."""
