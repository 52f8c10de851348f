"""Applies the site's policy to a job: rules by partition, account and QOS, of which the first match counts.

A rule that may apply, because the request does not name what it matches on, competes with the rules after it, and the
least severe wins: no job is held for a partition that it may not go to. ``hold`` and ``reject`` act only on a batch
script that is certain to run out of memory: the verdict is ``oom``, with at least the probability that the rule
demands, and no input of the memory prediction was guessed. All other jobs get the result of ``advise``. So does every
heterogeneous job, of which a hook sees one component at a time, and every crontab: Slurm would refuse it as a whole,
and would not pass the reason on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opsk.config import PolicyAction, PolicyRule
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis

SEVERITY: tuple[PolicyAction, ...] = ("off", "shadow", "annotate", "advise", "hold", "reject")
"""Actions by increasing severity."""
ENFORCING = frozenset({"hold", "reject"})
MAX_PARTITIONS = 1024
"""Longer lists are not matched: no site has so many, and matching delays the answers to others."""
NO_RULE = 0
"""The number of the rule when none applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The action of the policy.

    Parameters
    ----------
    action
        The action of the rule that applies.
    rule
        Its number from 1; 0 is none.
    oom_probability
        The probability from which ``hold`` and ``reject`` act.
    """

    action: PolicyAction = "advise"
    rule: int = NO_RULE
    oom_probability: float = 1.0

    @property
    def is_shown(self) -> bool:
        """Whether advice is shown to the user."""
        return SEVERITY.index(self.action) >= SEVERITY.index("advise")

    @property
    def is_recorded(self) -> bool:
        """Whether the job gets its record."""
        return SEVERITY.index(self.action) >= SEVERITY.index("annotate")

    def enforces(self, analysis: Analysis, request: SlurmRequest) -> bool:
        """Return whether this advice justifies holding or refusing a batch job."""
        return (
            self.action in ENFORCING
            and not (request.is_heterogeneous or request.is_crontab)
            and analysis.verdict == Verdict.OOM
            and analysis.oom_probability is not None
            and analysis.oom_probability >= self.oom_probability
            and not analysis.guessed
        )


def decide(rules: Iterable[PolicyRule], request: SlurmRequest) -> Decision:
    """Return the decision of the rules on a request.

    A partition list (``a,b``) is matched by its parts: a rule applies for certain when all of them match.
    """
    return min(_candidates(rules, request), key=lambda decision: SEVERITY.index(decision.action))


def _candidates(rules: Iterable[PolicyRule], request: SlurmRequest) -> Iterator[Decision]:
    """Yield the rules that may apply, up to the first that certainly does."""
    for number, rule in enumerate(rules, start=1):
        applies = _applies(rule, request)
        if applies is False:
            continue
        yield Decision(action=rule.action, rule=number, oom_probability=rule.oom_probability)
        if applies:
            return
    yield Decision()


def _applies(rule: PolicyRule, request: SlurmRequest) -> bool | None:
    """Return whether a rule applies; ``None`` is "perhaps"."""
    partitions = (request.partition or "").split(",") if request.partition else []
    matches = (
        _matches(rule.partition, partitions),
        _matches(rule.account, [request.account] if request.account else []),
        _matches(rule.qos, [request.qos] if request.qos else []),
    )
    if False in matches:
        return False
    return None if None in matches else True


def _matches(patterns: tuple[str, ...], names: list[str]) -> bool | None:
    """Return whether all names match one of the patterns; ``None`` when only some do, or no name is known."""
    if not patterns:
        return True
    if len(names) > MAX_PARTITIONS:
        return None
    matches = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in names]
    if not matches:
        return None
    return matches[0] if len(set(matches)) == 1 else None


def render_enforcement(decision: Decision, analysis: Analysis) -> tuple[str, ...]:
    """Return the lines for a user whose job is held or refused: why, what would fit, what to do."""
    reason = analysis.why or "will run out of GPU memory"
    if decision.action == "hold":
        what, remedy = "held", "to run it all the same: scontrol release, with the job's number"
    else:
        what, remedy = "refused", "the site's policy wants it so; opsk check SCRIPT says more"
    fits = (f"would fit: {analysis.would_fit}",) if analysis.would_fit else ()
    return (f"{what}: {reason}", *fits, remedy)


def policy_notes(decision: Decision) -> dict[str, object]:
    """Return the rule that applies, and its action."""
    return {"policy": {"rule": decision.rule, "action": decision.action}}
