"""Defines the job parameters of a batch script that are not part of the plan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.frameworks.setting import Setting
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan

_TIME = re.compile(r"[0-9]{1,6}|([0-9]{1,4}-)?[0-9]{1,4}(:[0-9]{1,2}){1,2}|[0-9]{1,4}-[0-9]{1,2}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLURM_NAME = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job that runs a plan.

    Parameters
    ----------
    nodes, gpus_per_node
        The requested nodes, and GPUs of each; their product is the plan's GPUs.
    name
        Slurm's name of the job; untrusted text.
    time_limit
        As ``sbatch --time`` takes it.
    partition, account
        Left out where empty.
    hosts
        The nodes in the order in which ranks fill them; empty leaves the choice to Slurm.
    sbatch
        More flags of ``sbatch`` (`opsk.planning.placement.launch`).
    env
        More variables of the job (`opsk.planning.placement.nccl_settings`).
    """

    nodes: int
    gpus_per_node: int
    name: str = "training"
    time_limit: str = "24:00:00"
    partition: str = ""
    account: str = ""
    hosts: tuple[str, ...] = ()
    sbatch: tuple[Setting, ...] = ()
    env: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        """Raise for values that would produce a wrong script, listing all of them."""
        wrong = [
            f"{name} is {value}, must be at least 1"
            for name, value in (("nodes", self.nodes), ("gpus_per_node", self.gpus_per_node))
            if value < 1
        ]
        if not _TIME.fullmatch(self.time_limit):
            wrong.append(f"time limit {self.time_limit!r} is none that sbatch takes (24:00:00, 2-12, 90)")
        if self.hosts and len(self.hosts) != self.nodes:
            wrong.append(f"{len(self.hosts)} hosts for {self.nodes} nodes")
        wrong += [f"{host!r} is no name of a host" for host in self.hosts if not _HOST.fullmatch(host)]
        wrong += _ill_named(self.env, _ENV_NAME, "variable")
        wrong += _ill_named(self.sbatch, _SLURM_NAME, "flag of sbatch")
        if wrong:
            raise InputError("the job cannot be written: " + "; ".join(wrong))


def _ill_named(settings: Iterable[Setting], form: re.Pattern[str], what: str) -> list[str]:
    """Return an error message for every setting with an invalid name."""
    return [f"{setting.name!r} is no name of a {what}" for setting in settings if not form.fullmatch(setting.name)]


def job_for(plan: Plan, cluster: ClusterSpec, *, name: str = "training") -> Job:
    """Return a job with the nodes that the plan's GPUs need on a cluster.

    Raises
    ------
    InputError
        When its GPUs do not fill nodes.
    """
    per_node = min(plan.gpus, cluster.node.gpus)
    if plan.gpus % per_node:
        raise InputError(
            f"{plan.gpus} GPUs do not fill nodes of {per_node}",
            hint="a script starts as many ranks on each node: ask for a multiple",
        )
    return Job(nodes=plan.gpus // per_node, gpus_per_node=per_node, name=name)
