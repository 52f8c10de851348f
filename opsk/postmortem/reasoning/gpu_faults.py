"""Orders faults of one GPU: a program's fault leaves Xids behind, and broken hardware leaves errors in programs.

A job's log may quote what the kernel said: of itself that proves nothing, for anybody can print it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from opsk.postmortem.logs.levels import find_level
from opsk.postmortem.reasoning.candidate import Candidate
from opsk.postmortem.reasoning.places import is_same_gpu
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.values import FailureClass, Finding, Origin, Role

_WITHIN_S = 120.0
_AFTERMATH_XIDS = frozenset(("43", "45", "109"))
"""Xids that a program's fault can cause; all others of this class are the GPU's own."""
_OF_GPUS = (FailureClass.GPU_HARDWARE, FailureClass.NVLINK)
_QUOTED_CLASSES = frozenset(("reset", "drain", "reboot", "service", "nvlink"))
"""Of Xids that a program prints only these count: broken hardware, by NVIDIA's catalogue."""
_SHOW_FAULTS = ("cuda.", "hip.", "nccl.", "torch.watchdog", "torch.heartbeat", "torch.abort")
_SHOWN_CLASSES = (*_OF_GPUS, FailureClass.SOFTWARE, FailureClass.FABRIC, FailureClass.COLLECTIVE_HANG)


class Scored(Protocol):
    """A candidate with odds that can be changed."""

    @property
    def candidate(self) -> Candidate:
        """Return the candidate."""

    def times(self, factor: float, why: str) -> None:
        """Change the odds for a reason."""


_AS_NEWS = ("DEBUG", "INFO")


def believe_quoted_xids(findings: Sequence[Finding], steps: LastSteps) -> list[Finding]:
    """Return findings in which Xids that a job's log quotes count, where CUDA or a collective failed in that log too.

    Epilogs and people print the kernel log of a node below a failure. Steps of training after it show that it was none,
    and so does a logger that writes it at a level of news.
    """
    failed = {
        each.source
        for each in findings
        if each.signature.startswith(_SHOW_FAULTS)
        and each.role is not Role.ADVICE
        and each.failure in _SHOWN_CLASSES
        and not steps.follow_in_log(each)
    }
    return [
        replace(each, role=Role.ROOT)
        if is_quoted(each)
        and each.role is Role.ADVICE
        and find_level(each) not in _AS_NEWS
        and each.source in failed
        and each.failure in _OF_GPUS
        and each.fields.get("class") in _QUOTED_CLASSES
        and not steps.follow_in_log(each)
        else each
        for each in findings
    ]


def is_quoted(finding: Finding) -> bool:
    """Return whether a program printed what a kernel said."""
    return finding.signature.startswith("kernel.") and finding.origin is Origin.JOB_LOG


def order_faults(scores: Sequence[Scored]) -> None:
    """Lower the odds of consequences of another fault of the same GPU."""
    for cause in scores:
        for consequence in scores:
            if cause is consequence or not _are_on_same_gpu(cause.candidate, consequence.candidate):
                continue
            if _is_aftermath(cause.candidate, consequence.candidate):
                consequence.times(
                    0.08, f"on the same GPU {cause.candidate.what} came before, which can leave this behind"
                )
            elif _is_caused_by_hardware(cause.candidate, consequence.candidate):
                consequence.times(0.1, f"the kernel tells of this GPU: {cause.candidate.what}")


def _are_on_same_gpu(left: Candidate, right: Candidate) -> bool:
    """Return whether two candidates are on one GPU at one time."""
    here, there = left.place, right.place
    if left.first_s is not None and right.first_s is not None and abs(left.first_s - right.first_s) > _WITHIN_S:
        return False
    is_same = is_same_gpu(here.pci, there.pci) or (here.rank is not None and here.rank == there.rank)
    return is_same and (not here.node or not there.node or here.node == there.node)


def _find_xids(candidate: Candidate) -> list[Finding]:
    """Return the Xids of the kernel that a candidate has."""
    return [
        finding
        for finding in candidate.findings
        if finding.signature == "kernel.xid" and finding.origin is Origin.KERNEL
    ]


def _is_aftermath(program: Candidate, hardware: Candidate) -> bool:
    """Return whether a GPU's fault is the consequence of a program's fault."""
    if program.failure is not FailureClass.SOFTWARE or hardware.failure is not FailureClass.GPU_HARDWARE:
        return False
    before, after = _find_xids(program), _find_xids(hardware)
    if not before or not after or len(after) < len(hardware.findings):
        return False
    first = min((finding.time_s or 0.0 for finding in before), default=0.0)
    return all(finding.fields.get("code") in _AFTERMATH_XIDS and (finding.time_s or 0.0) >= first for finding in after)


def _is_caused_by_hardware(hardware: Candidate, program: Candidate) -> bool:
    """Return whether a program's error is caused by hardware that the kernel reports."""
    if hardware.failure not in _OF_GPUS or program.failure is not FailureClass.SOFTWARE or _find_xids(program):
        return False
    kernel_findings = [finding for finding in hardware.findings if finding.origin is Origin.KERNEL]
    return any(finding.fields.get("code") not in _AFTERMATH_XIDS for finding in kernel_findings)
