"""Defines the interface of Slurm clients; `opsk.slurm.adapter.slurm_client` selects the adapter.

There are two adapters, which pass one suite of tests: `opsk.slurm.commands.command.CommandClient` on Slurm's commands
and `opsk.slurm.pyslurm.client.PyslurmClient` on pyslurm in a process of its own.
"""

from __future__ import annotations

from typing import Protocol

from opsk.slurm.records import JobRecord, NodeRecord


class SlurmClient(Protocol):
    """Read-only queries to one cluster.

    Every method may raise `opsk.errors.SlurmError`: the commands are not installed, the controller does not answer
    within the deadline, or its answer cannot be read. It never hangs and never returns half an answer.
    """

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        """Return pending and active jobs; with ``finished`` those too that Slurm still remembers.

        ``details`` fills in what takes a second query (``admin_comment``, ``gpu_indices``, paths; on 22.05
        ``excluded_nodes``).
        """
        ...

    def job(self, job_id: str) -> JobRecord:
        """Return one job by id (``4711``, ``4711_3``, ``4711+1``) with all details.

        Raises
        ------
        InputError
            ``job_id`` is no job id, or Slurm knows no such job (any more), or it names several jobs.
        SlurmError
            Slurm did not answer.
        """
        ...

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes, in the order in which Slurm lists them."""
        ...

    def release(self) -> tuple[int, int]:
        """Return the release of the commands or library in use, ``(25, 11)``."""
        ...

    def config(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, by parameter; ``SLURM_CONF`` is the path of slurm.conf."""
        ...
