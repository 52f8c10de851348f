"""Determines whose problem a failure is: the job's owner's, the cluster's, or nobody's."""

from __future__ import annotations

import re

from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.values import Cause, FailureClass, Report, Role

_SURE = 0.6
_OF_CLUSTER = frozenset((FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE))
_ON_PURPOSE = (FailureClass.CANCELLED, FailureClass.PREEMPTED)
_UNCLEAR = (FailureClass.COLLECTIVE_HANG, FailureClass.RENDEZVOUS)
_FULL = ("storage.full", "storage.write_failed")
"""A full file system or quota: its owner makes room."""
_QUOTA = re.compile(r"quota", re.IGNORECASE)
_OF_SETTINGS = ("rendezvous.address_in_use", "rendezvous.name_unknown")
"""Ports and host names that the job itself chose."""
_OF_SITE = ("host.locked_memory", "slurm.no_configuration", "gpu.driver_replaced")
"""Limits of slurmd, Slurm's own configuration, a driver: only the site sets these."""
_NOT_FAILED = ("ended well", "COMPLETED")


def is_owned_by_cluster(root: Cause) -> bool:
    """Return whether a failure is the cluster's."""
    signatures = {finding.signature for finding in root.findings if finding.role is Role.ROOT}
    if root.failure is FailureClass.STORAGE:
        return not signatures & set(_FULL)
    return root.failure in _OF_CLUSTER or (bool(signatures) and signatures <= set(_OF_SITE))


def is_owned_by_user(root: Cause) -> bool:
    """Return whether a failure is of the job itself: its program, its settings, what it asked for."""
    if root.failure is FailureClass.RENDEZVOUS:
        return any(finding.signature in _OF_SETTINGS for finding in root.findings)
    return root.failure not in (*_ON_PURPOSE, *_UNCLEAR) and not is_owned_by_cluster(root)


def describe_owner(report: Report) -> str:
    """Return whose problem a report is, for whoever is on call; empty where nothing shows that there is one."""
    root = report.root
    if root is None:
        if report.state in _NOT_FAILED:
            return "nobody: it ended as asked"
        return "" if report.state == "unknown" else "not known: the evidence shows no cause"
    if root.failure in _ON_PURPOSE:
        return "nobody: it was ended on purpose" if root.confidence >= _SURE else "probably nobody: it was asked to end"
    if is_owned_by_cluster(root) or is_owned_by_user(root):
        owner = "the cluster" if is_owned_by_cluster(root) else "the job's owner"
        if _is_full(root):
            owner += ", or the cluster where df shows the whole file system full"
        return owner if root.confidence >= _SURE else f"probably {owner}"
    if root.failure is FailureClass.RENDEZVOUS:
        return "not known yet: ranks did not find each other, and nothing says why"
    place = root.where
    if place.rank is None and not place.ranks and not place.node:
        return "not known yet: ranks waited for each other, and nothing says for which"
    return f"not known yet: look at {describe_place(place)}, which the others waited for"


def _is_full(root: Cause) -> bool:
    """Return whether no space was left, and nothing says that it was a quota."""
    full = [finding for finding in root.findings if finding.signature in _FULL]
    return bool(full) and not any(_QUOTA.search(finding.text) for finding in full)
