"""What does the site want done about this job? Rules by partition, account and QOS; the first that matches counts.

A rule that may apply, because the request does not name what it goes by, competes with those behind it, and the least
severe wins: nobody is held for a partition that the job may not go to. ``hold`` and ``reject`` act only on a batch
script that is certain to run out of memory: the verdict is ``oom``, with at least the probability that the rule
demands, and nothing that memory depends on was guessed. Everything else gets what ``advise`` gives. So does every
heterogeneous job, of which a hook sees one component at a time, and every crontab: Slurm would refuse it whole, and
loses the reason on the way.
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
from opsk_jobcheck.advice.guesses import guesses
from opsk_jobcheck.service.analysis import Analysis
from opsk_jobcheck.submission.request import SlurmRequest

MAX_WORDS = 240
"""Longest change that is named [characters]: more flags than that nobody pastes from an error message."""


def oom_probability(advice: Advice) -> float | None:
    """Return the probability to run out of memory; ``None`` when nothing was predicted."""
    if advice.prediction is None:
        return None
    fit = float(advice.prediction.memory.fit_probability)
    return 1.0 - fit if 0 <= fit <= 1 else None


def memory_guesses(advice: Advice) -> tuple[str, ...]:
    """Return the inputs of the memory that nobody stated and that may be otherwise, sorted."""
    return tuple(sorted(set(guesses(advice.workload, advice.assumed)) & MEMORY_INPUTS))


def why_oom(advice: Advice) -> str:
    """Say how much memory is needed of how much, for a job that will run out; else nothing."""
    if advice.prediction is None or advice.verdict is not Verdict.OOM:
        return ""
    memory = advice.prediction.memory
    needed, capacity = float(memory.total_bytes.expected), float(memory.capacity_bytes)
    return f"will run out of GPU memory: {as_gib(needed):.1f} GiB of {as_gib(capacity):.1f} GiB per GPU"


def would_fit(advice: Advice) -> str:
    """Name the first change that makes it fit, for a job that will run out and where one was looked for and found."""
    if advice.verdict is not Verdict.OOM:
        return ""
    for entry in advice.suggestions:
        if entry.verdict is Verdict.FITS:
            words = " ".join(entry.flags) or entry.what
            return escape(f"{words}: {as_gib(entry.memory_bytes):.1f} GiB") if len(words) <= MAX_WORDS else ""
    return ""


SEVERITY: tuple[PolicyAction, ...] = ("off", "shadow", "annotate", "advise", "hold", "reject")
"""From what disturbs least to what disturbs most."""
ENFORCING = frozenset({"hold", "reject"})
MAX_PARTITIONS = 1024
"""Of a longer list nothing is told: no site has so many, and the advisor matches names beside everybody's answers."""
NO_RULE = 0
"""What stands as the number of the rule when none applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done.

    Parameters
    ----------
    action
        Of the rule that counts.
    rule
        Its number from 1; 0 is none.
    oom_probability
        From which ``hold`` and ``reject`` act.
    """

    action: PolicyAction = "advise"
    rule: int = NO_RULE
    oom_probability: float = 1.0

    @property
    def is_shown(self) -> bool:
        """Whether the user is told anything."""
        return SEVERITY.index(self.action) >= SEVERITY.index("advise")

    @property
    def is_recorded(self) -> bool:
        """Whether the job gets its record."""
        return SEVERITY.index(self.action) >= SEVERITY.index("annotate")

    def enforces(self, analysis: Analysis, request: SlurmRequest) -> bool:
        """Tell whether this advice is reason enough to hold or refuse a batch job."""
        return (
            self.action in ENFORCING
            and not (request.is_heterogeneous or request.is_crontab)
            and analysis.verdict == Verdict.OOM
            and analysis.oom_probability is not None
            and analysis.oom_probability >= self.oom_probability
            and not analysis.guessed
        )


def decide(rules: Iterable[PolicyRule], request: SlurmRequest) -> Decision:
    """Return what the rules say about a request.

    A partition list (``a,b``) is matched by its parts: a rule applies for certain when all of them match.
    """
    return min(_candidates(rules, request), key=lambda one: SEVERITY.index(one.action))


def _candidates(rules: Iterable[PolicyRule], request: SlurmRequest) -> Iterator[Decision]:
    """Yield what may apply, up to the first rule that does for certain."""
    for number, rule in enumerate(rules, start=1):
        applies = _applies(rule, request)
        if applies is False:
            continue
        yield Decision(action=rule.action, rule=number, oom_probability=rule.oom_probability)
        if applies:
            return
    yield Decision()


def _applies(rule: PolicyRule, request: SlurmRequest) -> bool | None:
    """Tell whether a rule applies; ``None`` is "perhaps"."""
    partitions = (request.partition or "").split(",") if request.partition else []
    found = (
        _matches(rule.partition, partitions),
        _matches(rule.account, [request.account] if request.account else []),
        _matches(rule.qos, [request.qos] if request.qos else []),
    )
    if False in found:
        return False
    return None if None in found else True


def _matches(patterns: tuple[str, ...], names: list[str]) -> bool | None:
    """Tell whether all names match one of the patterns; ``None`` when only some do, or no name is known."""
    if not patterns:
        return True
    if len(names) > MAX_PARTITIONS:
        return None
    hits = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in names]
    if not hits:
        return None
    return hits[0] if len(set(hits)) == 1 else None


def enforced_lines(decision: Decision, analysis: Analysis) -> tuple[str, ...]:
    """Return what a user is told whose job is held or refused: why, what would fit, what to do."""
    told = analysis.why or "will run out of GPU memory"
    if decision.action == "hold":
        what, do = "held", "to run it all the same: scontrol release, with the job's number"
    else:
        what, do = "refused", "the site's policy wants it so; opsk check SCRIPT says more"
    fits = (f"would fit: {analysis.would_fit}",) if analysis.would_fit else ()
    return (f"{what}: {told}", *fits, do)
