"""Name a job by cluster and number, for whatever is kept or locked by job.

Each cluster counts its jobs from 1: a number alone names one job in each of them. Whatever is kept or locked by job is
called ``CLUSTER.JOB``; ``deploy/slurm/opsk-prolog`` makes the same names. Files of opsk 0.1 are called by number alone:
their cluster is not known.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_CLUSTER = r"[0-9A-Za-z_-]{1,40}"
_PLAIN = re.compile(_CLUSTER)
_UNSAFE = re.compile(r"[^0-9A-Za-z_+-]")
_LONGEST_JOB = 32
_NAME = re.compile(rf"(?:({_CLUSTER})\.)?([0-9]{{1,10}})")


def cluster_part(cluster: str) -> str:
    """Return what stands for a cluster in names of files: its own name, or ``c-`` and a hash of one with odd signs.

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
    """What names one job.

    Parameters
    ----------
    cluster
        ``ClusterName`` of slurm.conf; empty where nobody tells it.
    job
        Slurm's number of the job, or its id as people write it (``4711_3``).
    """

    cluster: str = ""
    job: str

    @property
    def file_name(self) -> str:
        """One word that is safe in any path, ``CLUSTER.JOB``; ``JOB`` where the cluster is not known."""
        job = _UNSAFE.sub("", self.job)[:_LONGEST_JOB] or "job"
        return f"{cluster_part(self.cluster)}.{job}" if self.cluster else job

    @classmethod
    def of_file_name(cls, name: str) -> JobKey | None:
        """Return the job of which a folder or file is called so; ``None`` where it is no such name."""
        found = _NAME.fullmatch(name)
        return cls(cluster=found[1] or "", job=found[2]) if found is not None else None

    def __str__(self) -> str:
        """Return the job in words."""
        return f"job {self.job} of cluster {self.cluster}" if self.cluster else f"job {self.job}"
