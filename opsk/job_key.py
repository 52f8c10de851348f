"""Identifies a job by cluster and number, for everything that is stored or locked per job.

Each cluster counts its jobs from 1, so that a number alone is ambiguous. Files and locks are named ``CLUSTER.JOB``;
``deploy/slurm/opsk-prolog`` makes the same names. Files of opsk 0.1 are named by number alone:
their cluster is unknown.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_CLUSTER = r"[0-9A-Za-z_-]{1,40}"
_PLAIN = re.compile(_CLUSTER)
_UNSAFE = re.compile(r"[^0-9A-Za-z_+-]")
_MAX_JOB_CHARS = 32
_NAME = re.compile(rf"(?:({_CLUSTER})\.)?([0-9]{{1,10}})")


def cluster_part(cluster: str) -> str:
    """Return a cluster's part of file names: its name, or ``c-`` and a hash of a name with other characters.

    Examples
    --------
    >>> cluster_part("hall-2"), cluster_part("hall/2")
    ('hall-2', 'c-5e9c68742d8a36da')
    """
    if not cluster or _PLAIN.fullmatch(cluster):
        return cluster
    return "c-" + hashlib.sha256(cluster.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKey:
    """Identifies one job.

    Parameters
    ----------
    cluster
        ``ClusterName`` of slurm.conf; empty where it is unknown.
    job
        Slurm's number of the job, or its id as people write it (``4711_3``).
    """

    cluster: str = ""
    job: str

    @property
    def file_name(self) -> str:
        """A name that is safe in any path, ``CLUSTER.JOB``; ``JOB`` where the cluster is not known."""
        job = _UNSAFE.sub("", self.job)[:_MAX_JOB_CHARS] or "job"
        return f"{cluster_part(self.cluster)}.{job}" if self.cluster else job

    @classmethod
    def of_file_name(cls, name: str) -> JobKey | None:
        """Parse the name of a folder or file; ``None`` where it names no job."""
        match = _NAME.fullmatch(name)
        return cls(cluster=match[1] or "", job=match[2]) if match is not None else None

    def __str__(self) -> str:
        """Return the job as text."""
        return f"job {self.job} of cluster {self.cluster}" if self.cluster else f"job {self.job}"
