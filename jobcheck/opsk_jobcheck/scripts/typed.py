"""What would ``sbatch`` ask for, besides the script's own lines, if it were typed here and now?

Its command line beats its input environment (``SBATCH_PARTITION``), and both beat the script. Source: INPUT
ENVIRONMENT VARIABLES in sbatch(1); ``env_vars`` in ``src/sbatch/opt.c`` of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from opsk_jobcheck.scripts.sbatch.directives import directive_options, read_words
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


def typed_request(
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    nodes: int | None = None,
    arguments: tuple[str, ...] | None = None,
) -> SlurmRequest:
    """Return what the environment and the command line ask for; never raises.

    Parameters
    ----------
    words
        Options as typed after ``sbatch``.
    environ
        The submitting user's variables.
    nodes
        Number of nodes, if it is given apart; it beats all.
    arguments
        What the script gets as ``$1``, ``$2``, ...; ``None`` where that is not known.
    """
    inherited = [f"--{name}={environ[variable]}" for variable, name in ENVIRONMENT.items() if environ.get(variable)]
    asked = read_words((*inherited, *words), file="sbatch")
    options = directive_options(f"#SBATCH {shlex.join((*inherited, *words))}")
    return SlurmRequest(
        nodes=nodes or asked.nodes,
        ntasks=asked.ntasks,
        ntasks_per_node=asked.ntasks_per_node,
        gpus=asked.gpus,
        gpus_per_node=asked.gpus_per_node,
        gpus_per_task=asked.gpus_per_task,
        gpu_type=asked.gpu_type,
        cpus_per_task=asked.cpus_per_task,
        memory={name: options[name] for name in MEMORY_OPTIONS if options.get(name)},
        partition=asked.partition,
        constraint=asked.constraint,
        is_array="array" in options,
        arguments=arguments,
    )
