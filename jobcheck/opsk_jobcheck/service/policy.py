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
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS
from opsk.text import escape
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.guesses import find_guesses
from opsk_jobcheck.service.analysis import Analysis
from opsk_jobcheck.submission.request import SlurmRequest

MAX_CHANGE_CHARS = 240
"""Longest change that is named [characters]: nobody pastes more flags from an error message."""


def oom_probability(advice: Advice) -> float | None:
    """Return the probability to run out of memory; ``None`` when nothing was predicted."""
    if advice.prediction is None:
        return None
    fit = float(advice.prediction.memory.fit_probability)
    return 1.0 - fit if 0 <= fit <= 1 else None


def find_memory_guesses(advice: Advice) -> tuple[str, ...]:
    """Return the inputs of the memory prediction that were guessed, sorted."""
    return tuple(sorted(set(find_guesses(advice.workload, advice.assumed)) & MEMORY_INPUTS))


def explain_oom(advice: Advice) -> str:
    """Return the memory that is needed, and the capacity, for a job that will run out; else nothing."""
    if advice.prediction is None or advice.verdict is not Verdict.OOM:
        return ""
    memory = advice.prediction.memory
    needed, capacity = float(memory.total_bytes.expected), float(memory.capacity_bytes)
    return f"will run out of GPU memory: {as_gib(needed):.1f} GiB of {as_gib(capacity):.1f} GiB per GPU"


def would_fit(advice: Advice) -> str:
    """Return the first change that makes it fit, for a job that will run out; empty where there is none."""
    if advice.verdict is not Verdict.OOM:
        return ""
    for entry in advice.suggestions:
        if entry.verdict is Verdict.FITS:
            text = " ".join(entry.flags) or entry.what
            return escape(f"{text}: {as_gib(entry.memory_bytes):.1f} GiB") if len(text) <= MAX_CHANGE_CHARS else ""
    return ""


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
