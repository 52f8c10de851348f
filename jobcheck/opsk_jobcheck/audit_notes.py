"""What does the audit log keep of a question, of the policy that held, and of the verdict?"""

from __future__ import annotations

from opsk_jobcheck.policy import Decision
from opsk_jobcheck.thinking import Advised, Thought

AUDITED = (
    *("nodes", "gpus", "gpus_per_node", "gpus_per_task", "gpu_type", "partition", "account", "qos", "time_limit_s"),
    *("is_heterogeneous", "is_crontab", "is_array", "is_exclusive"),
)
"""Parts of a request that the audit log keeps."""


def size_notes(thought: Thought) -> dict[str, object]:
    """Return what the audit log may know of a script and its request."""
    request = thought.request
    asked = {name: value for name in AUDITED if (value := getattr(request, name)) not in (None, False)}
    return {"script_chars": len(thought.text), "files": len(thought.files), "request": asked}


def policy_notes(decision: Decision) -> dict[str, object]:
    """Return which rule counts, and what it wants."""
    return {"policy": {"rule": decision.rule, "action": decision.action}}


def verdict_notes(advised: Advised) -> dict[str, object]:
    """Return what was concluded, whether or not anybody is told."""
    notes: dict[str, object] = {"verdict": advised.verdict}
    if advised.oom_probability is not None:
        notes["oom_probability"] = round(advised.oom_probability, 6)
    if advised.guessed:
        notes["guessed"] = list(advised.guessed)
    if advised.is_short:
        notes["short"] = True
    if advised.opted_out:
        notes["opted_out"] = True
    return notes
