"""What does the audit log keep of a question, of the policy that held, and of the verdict?"""

from __future__ import annotations

from opsk_jobcheck.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.policy import Decision

AUDITED = (
    *("nodes", "gpus", "gpus_per_node", "gpus_per_task", "gpu_type", "partition", "account", "qos", "time_limit_s"),
    *("is_heterogeneous", "is_crontab", "is_array", "is_exclusive"),
)
"""Parts of a request that the audit log keeps."""


def size_notes(query: AnalysisRequest) -> dict[str, object]:
    """Return what the audit log may know of a script and its request."""
    request = query.request
    asked = {name: value for name in AUDITED if (value := getattr(request, name)) not in (None, False)}
    return {"script_chars": len(query.text), "files": len(query.files), "request": asked}


def policy_notes(decision: Decision) -> dict[str, object]:
    """Return which rule counts, and what it wants."""
    return {"policy": {"rule": decision.rule, "action": decision.action}}


def verdict_notes(analysis: Analysis) -> dict[str, object]:
    """Return what was concluded, whether or not anybody is told."""
    notes: dict[str, object] = {"verdict": analysis.verdict}
    if analysis.oom_probability is not None:
        notes["oom_probability"] = round(analysis.oom_probability, 6)
    if analysis.guessed:
        notes["guessed"] = list(analysis.guessed)
    if analysis.is_short:
        notes["short"] = True
    if analysis.opted_out:
        notes["opted_out"] = True
    return notes
