"""Writes the batch script that measures a node, or the links between some, with the program inside it."""

from __future__ import annotations

import shlex
from importlib.resources import files

from opsk.errors import InputError

MAX_NODES = 8
"""More nodes show no link that fewer do not."""
MINUTES = 10
START_S = 60
"""Time that starting all processes may take, out of the job's time [s]."""
_MARK = "END_OF_PROGRAM"


def read_program() -> str:
    """Return the text of the measuring program."""
    return files("opsk.probe").joinpath("program.py").read_text(encoding="utf-8")


def write_batch_script(*, nodes: int, gpus_per_node: int, python: str = "python3", output: str = "") -> str:
    """Return an sbatch script; it needs no opsk on the nodes.

    Parameters
    ----------
    python
        The interpreter whose PyTorch measures.
    output
        File of the document; by default named after the job.

    Raises
    ------
    InputError
        Too many nodes, or none.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise InputError(f"{nodes} nodes", hint=f"1 node, or 2 to {MAX_NODES} for the links between them")
    if not 1 <= gpus_per_node <= 128:
        raise InputError(f"{gpus_per_node} GPUs per node", hint="--gpus-per-node names those of one node")
    seconds = MINUTES * 60 - START_S
    target = shlex.quote(output) if output else "opsk-probe-$SLURM_JOB_ID.json"
    return f"""#!/bin/bash
#SBATCH --job-name=opsk-probe
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={gpus_per_node}
#SBATCH --gpus-per-node={gpus_per_node}
#SBATCH --exclusive
#SBATCH --time={MINUTES}
#SBATCH --output=opsk-probe-%j.log
#OPSK off
# Measures what GPUs, hosts and links reach. Load the module of your PyTorch here.
set -eu
PROGRAM=opsk-probe-$SLURM_JOB_ID.py
trap 'rm -f "$PROGRAM"' EXIT
cat > "$PROGRAM" <<'{_MARK}'
{read_program().rstrip()}
{_MARK}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun {shlex.quote(python)} "$PROGRAM" --seconds {seconds} --output {target}
"""
