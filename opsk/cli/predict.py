"""The command ``opsk predict``: memory, time and energy of one plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import click

from opsk.cli.cluster_choice import named_cluster
from opsk.cli.document import echo_json
from opsk.cli.plan_file import PlanFile, plan_of_tables, read_plan_file
from opsk.cli.prediction_picture import picture
from opsk.config import load_site
from opsk.costmodel.document import prediction_document
from opsk.costmodel.predict import predict as predict_table
from opsk.costmodel.rules import excess_gpus, violations
from opsk.costmodel.table import PlanTable
from opsk.costmodel.verdict import Verdict
from opsk.errors import ExitStatus, InputError, PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding

Command = TypeVar("Command", bound=Callable[..., Any])

_CHOICES: Mapping[Any, list[str]] = {
    kind: [str(member) for member in kind] for kind in (Sharding, Recompute, Precision)
}
_HELP = {
    "name": "What to call the model.",
    "layers": "Transformer layers.",
    "heads": "Attention heads of one layer.",
    "hidden": "Width of the residual stream.",
    "ffn": "Inner width of the dense MLP.",
    "kv_heads": "Key and value heads; left out, as many as heads.",
    "head_dim": "Width of one head; left out, hidden / heads.",
    "vocab": "Rows of the embedding.",
    "seq": "Tokens of one training sequence.",
    "gated_mlp": "Three matrices (SwiGLU), or two.",
    "experts": "Routed experts a layer; 0 is a dense model.",
    "top_k": "Routed experts that a token passes.",
    "shared_experts": "Experts that every token passes.",
    "expert_ffn": "Inner width of one expert.",
    "tied_embeddings": "The head reuses the embedding, or has its own.",
    "learned_positions": "A trained table of positions, or none.",
    "flash_attention": "Fused attention, or stored scores.",
    "tp": "Tensor-parallel size.",
    "pp": "Pipeline stages.",
    "vpp": "Model chunks that a stage holds.",
    "cp": "Context-parallel size.",
    "ep": "Expert-parallel size, inside dp.",
    "dp": "Data-parallel size.",
    "sharding": "What data-parallel ranks keep a share of; FSDP is zero3.",
    "sequence_parallel": "Split norms and dropout over tp, or not.",
    "recompute": "Which activations are computed again.",
    "precision": "Number format of the matrix products.",
    "micro_batch": "Sequences of one micro-batch.",
    "global_batch": "Sequences of one step.",
}
_PREFIX = {ModelShape: "model_", Plan: "plan_"}
MAX_SIZE = 10**9
"""A size above this is a slip of the finger: the largest models have 10^5 wide layers and 10^6 token sequences."""


def _fields_as_flags(value_class: type[Any], flag_prefix: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command one flag for each field of a value."""
    hints = get_type_hints(value_class)

    def decorate(command: Command) -> Command:
        for item in reversed(fields(value_class)):
            name = f"--{flag_prefix}{item.name.replace('_', '-')}"
            destination = f"{_PREFIX[value_class]}{item.name}"
            kind, words = hints[item.name], _HELP.get(item.name)
            if kind is bool:
                off = f"--{flag_prefix}no-{item.name.replace('_', '-')}"
                command = click.option(f"{name}/{off}", destination, default=None, help=words)(command)
            elif kind in _CHOICES:
                choice = click.Choice(_CHOICES[kind])
                command = click.option(name, destination, type=choice, help=words)(command)
            else:
                number = click.IntRange(max=MAX_SIZE) if kind is int else click.STRING
                metavar = "N" if kind is int else "TEXT"
                command = click.option(name, destination, type=number, metavar=metavar, help=words)(command)
        return command

    return decorate


@click.command()
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue name of the cluster, or a cluster TOML.")
@click.option(
    "--nodes", type=click.IntRange(1, MAX_SIZE), metavar="N", help="With --gpus-per-node it fixes --dp where left out."
)
@click.option(
    "--gpus-per-node", type=click.IntRange(1, MAX_SIZE), metavar="N", help="GPUs of one node that the job uses."
)
@_fields_as_flags(ModelShape, "model-")
@_fields_as_flags(Plan, "")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def predict(
    plan_file: str | None,
    *,
    cluster: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Predict memory, time and energy of the plan in PLAN.toml, or of the flags; flags beat the file.

    Exit status: 0 fits or tight; 1 will run out of memory; 2 the plan or the cluster cannot be.
    """
    stated = _tables({"cluster": cluster, "nodes": nodes, "gpus_per_node": gpus_per_node}, flags)
    if plan_file is None and not {"model", "plan"} & stated.keys():
        raise click.UsageError("give a PLAN.toml (- is standard input), or the flags of a model and a plan")
    asked = read_plan_file(plan_file, instead=stated) if plan_file else plan_of_tables(stated, source="the flags")
    machine = _cluster_of(asked)
    refuse_impossible(asked, machine)
    table = predict_table(asked.model, PlanTable.of([asked.plan]), machine)
    document = {
        **prediction_document(table, 0),
        "cluster": {"name": machine.name, "gpu": machine.node.gpu.name},
        "model": asked.model,
        "plan": {"gpus": asked.plan.gpus, **{item.name: getattr(asked.plan, item.name) for item in fields(Plan)}},
    }
    if as_json:
        echo_json(document)
    else:
        picture(document)
    return ExitStatus.BAD_NEWS if document["verdict"] == Verdict.OOM else ExitStatus.ANSWER


def _tables(top: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given as the tables of a plan file."""
    tables: dict[str, Any] = {key: value for key, value in top.items() if value is not None}
    for name, prefix in (("model", "model_"), ("plan", "plan_")):
        given = {
            key.removeprefix(prefix): value
            for key, value in flags.items()
            if key.startswith(prefix) and value is not None
        }
        if given:
            tables[name] = given
    return tables


def _cluster_of(asked: PlanFile) -> ClusterSpec:
    """Return the cluster of the plan, or of the site where the plan names none."""
    named = asked.cluster or load_site().cluster
    if named is None:
        raise InputError(
            f"{asked.source}: no cluster is named",
            hint="give --cluster, or set cluster in the plan file or in /etc/opsk/opsk.toml",
        )
    return named_cluster(named)


def refuse_impossible(asked: PlanFile, cluster: ClusterSpec) -> None:
    """Refuse a plan that no framework would start on this cluster.

    Raises
    ------
    PlanInfeasibleError
        Names every rule that the plan breaks, with its numbers.
    """
    wrong = [*violations(asked.model, asked.plan), *excess_gpus(asked.plan, cluster)]
    if asked.gpus_per_node and asked.gpus_per_node > cluster.node.gpus:
        wrong.append(f"gpus_per_node {asked.gpus_per_node}, a {cluster.node.name} has {cluster.node.gpus}")
    if wrong:
        raise PlanInfeasibleError(tuple(wrong), hint=f"change the plan ({asked.source}) or the cluster")
