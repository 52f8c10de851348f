"""Defines the Slurm request that advice is based on: a hook's merged request, or a script's own ``#SBATCH`` lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
"""Options that request host memory; a job has one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRequest:
    """A job request; ``None`` is "not asked for".

    When a hook fills it, command line, ``SBATCH_*`` environment and ``#SBATCH`` lines are already merged by Slurm and
    its values beat the script's own lines. ``environment`` holds the submitting user's variables where they are known:
    only those that the job will see (``--export``). ``arguments`` are the script's own arguments (``$1``, ``$2``, ...),
    ``None`` where nobody knows them: whoever checks a script may give it some when it is submitted.

    Parameters
    ----------
    is_merged
        This is the complete request to Slurm. A ``#SBATCH`` line for a size that is ``None`` here is not in force: the
        command line gives a range, or ``srun``, ``salloc`` or slurmrestd never read that line.
    is_heterogeneous
        The job has several components with sizes of their own, of which a hook sees one at a time: no size is set.
    is_crontab
        The job is started by a line of a crontab, whenever its time comes.
    is_array
        Each task of an array is a job of its own, of the requested size.
    memory
        Given values of ``mem``, ``mem-per-cpu``, ``mem-per-gpu``, as text; ``job_submit`` does not get them.
    is_left_to_partition
        No number of nodes was requested: ``nodes`` is Slurm's number in a partition without ``MinNodes``.
    is_exclusive
        Whole nodes are requested.
    directory, submit_directory
        Where the job starts (``--chdir``), and where it was submitted; absolute.
    """

    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str | None = None
    cpus_per_task: int | None = None
    memory: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    reservation: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit_s: float | None = None
    is_merged: bool = False
    is_heterogeneous: bool = False
    is_crontab: bool = False
    is_array: bool = False
    is_left_to_partition: bool = False
    is_exclusive: bool = False
    directory: str | None = None
    submit_directory: str | None = None
    arguments: tuple[str, ...] | None = None
    environment: Mapping[str, str] | None = field(default=None)
