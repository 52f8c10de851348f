"""Computes the request that ``sbatch`` would make with its command line and environment, besides the script's lines.

The command line overrides the input environment (``SBATCH_PARTITION``), and both override the script. Source: INPUT
ENVIRONMENT VARIABLES in sbatch(1); ``env_vars`` in ``src/sbatch/opt.c`` of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from opsk_jobcheck.scripts.sbatch.directives import read_directive_options, read_words
from opsk_jobcheck.submission.request import MEMORY_OPTIONS, SlurmRequest

ENVIRONMENT = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_PARTITION": "partition",
    "SBATCH_TRES_PER_TASK": "tres-per-task",
}
"""Those variables that advice depends on, and the options that they stand for."""


def build_typed_request(
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    nodes: int | None = None,
    arguments: tuple[str, ...] | None = None,
) -> SlurmRequest:
    """Return the request of the environment and the command line; never raises.

    Parameters
    ----------
    words
        Options as typed after ``sbatch``.
    environ
        The submitting user's variables.
    nodes
        Number of nodes, if given separately; it overrides all.
    arguments
        The script's ``$1``, ``$2``, ...; ``None`` where that is not known.
    """
    inherited = [f"--{name}={environ[variable]}" for variable, name in ENVIRONMENT.items() if environ.get(variable)]
    requested = read_words((*inherited, *words), file="sbatch")
    options = read_directive_options(f"#SBATCH {shlex.join((*inherited, *words))}")
    return SlurmRequest(
        nodes=nodes or requested.nodes,
        ntasks=requested.ntasks,
        ntasks_per_node=requested.ntasks_per_node,
        gpus=requested.gpus,
        gpus_per_node=requested.gpus_per_node,
        gpus_per_task=requested.gpus_per_task,
        gpu_type=requested.gpu_type,
        cpus_per_task=requested.cpus_per_task,
        memory={name: options[name] for name in MEMORY_OPTIONS if options.get(name)},
        partition=requested.partition,
        constraint=requested.constraint,
        is_array="array" in options,
        arguments=arguments,
    )
