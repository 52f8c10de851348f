"""Which of a site's rules counts for a job, and when may a job be held or refused?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.config import PolicyRule
from opsk_jobcheck.service.policy import SEVERITY, Decision, decide, render_enforcement
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis

CERTAIN = Analysis(verdict="oom", oom_probability=0.999, why="will run out of GPU memory: 90 GiB of 79.1 GiB per GPU")


def rule(action: str, **fields: object) -> PolicyRule:
    return PolicyRule.model_validate({"action": action, **fields})


def job(partition: str | None = None, account: str | None = None, qos: str | None = None) -> SlurmRequest:
    return SlurmRequest(partition=partition, account=account, qos=qos)


def action(rules: list[PolicyRule], request: SlurmRequest) -> tuple[str, int]:
    decision = decide(rules, request)
    return decision.action, decision.rule


def test_without_rules_jobs_are_advised_on() -> None:
    assert action([], job("gpu")) == ("advise", 0)


def test_the_first_rule_that_matches_counts() -> None:
    rules = [rule("annotate", partition="debug"), rule("hold", partition="*"), rule("reject")]
    assert action(rules, job("debug")) == ("annotate", 1)
    assert action(rules, job("gpu")) == ("hold", 2)


def test_patterns_stand_for_any_signs_and_case_counts() -> None:
    rules = [rule("shadow", partition=["h100-*", "a100"])]
    assert action(rules, job("h100-long")) == ("shadow", 1)
    assert action(rules, job("H100-long")) == ("advise", 0)


def test_all_that_a_rule_names_must_match() -> None:
    rules = [rule("reject", partition="gpu", account="students", qos="low")]
    assert action(rules, job("gpu", "students", "low")) == ("reject", 1)
    assert action(rules, job("gpu", "staff", "low")) == ("advise", 0)


def test_of_what_may_apply_the_least_severe_wins() -> None:
    """No account is named: the job may be a student's or not."""
    rules = [rule("reject", account="students"), rule("hold")]
    assert action(rules, job("gpu")) == ("hold", 2)
    assert action([rule("shadow", account="students"), rule("hold")], job("gpu")) == ("shadow", 1)


def test_a_list_of_partitions_matches_when_all_of_them_do() -> None:
    rules = [rule("reject", partition=["a", "b"])]
    assert action(rules, job("a,b")) == ("reject", 1)
    assert action(rules, job("a,c")) == ("advise", 0)
    assert action(rules, job("c,d")) == ("advise", 0)


@given(
    rules=st.lists(
        st.builds(
            rule,
            st.sampled_from(SEVERITY),
            partition=st.sampled_from([(), ("a",), ("b",)]),
            account=st.sampled_from([(), ("x",)]),
        ),
        max_size=4,
    ),
    account=st.sampled_from(["x", "y"]),
)
def test_an_unknown_partition_is_treated_no_worse_than_any_it_may_be(rules: list[PolicyRule], account: str) -> None:
    """Identity: the least severe of what every possible partition would get bounds what the unknown one gets."""
    unknown = SEVERITY.index(decide(rules, job(None, account)).action)
    known = [SEVERITY.index(decide(rules, job(name, account)).action) for name in ("a", "b", "other")]
    assert unknown <= min(known)


def test_only_a_certain_end_is_enforced() -> None:
    held = Decision(action="hold", rule=1, oom_probability=0.99)
    assert held.enforces(CERTAIN, job())
    assert not held.enforces(CERTAIN, SlurmRequest(is_heterogeneous=True))
    assert not held.enforces(CERTAIN, SlurmRequest(is_crontab=True))
    assert not held.enforces(Analysis(verdict="oom", oom_probability=0.95), job())
    assert not held.enforces(Analysis(verdict="oom", oom_probability=0.999, guessed=("plan.micro_batch",)), job())
    assert not held.enforces(Analysis(verdict="tight", oom_probability=0.999), job())
    assert not held.enforces(Analysis(verdict="unknown"), job())
    assert not held.enforces(Analysis(silent=True), job())


@pytest.mark.parametrize("action", ["off", "shadow", "annotate", "advise"])
def test_other_actions_enforce_nothing(action: str) -> None:
    decision = decide([rule(action)], job())
    assert not decision.enforces(CERTAIN, job())


def test_what_is_shown_and_recorded() -> None:
    shown = {name for name in SEVERITY if decide([rule(name)], job()).is_shown}
    recorded = {name for name in SEVERITY if decide([rule(name)], job()).is_recorded}
    assert shown == {"advise", "hold", "reject"}
    assert recorded == {"annotate", *shown}


def test_a_held_user_is_told_why_what_fits_and_how_to_go_on() -> None:
    lines = render_enforcement(
        Decision(action="hold"), Analysis(verdict="oom", why="90 of 80 GiB", would_fit="--tp 2: 50 GiB")
    )
    assert lines[0] == "held: 90 of 80 GiB"
    assert lines[1] == "would fit: --tp 2: 50 GiB"
    assert "scontrol release" in lines[2]


def test_a_refused_user_is_told_why() -> None:
    lines = render_enforcement(Decision(action="reject"), CERTAIN)
    assert lines[0].startswith("refused: will run out of GPU memory")
    assert len(lines) == 2


def test_more_partitions_than_any_site_has_hold_nobody() -> None:
    """Names are matched in the process that answers everybody; half a million took it two seconds."""
    rules = [rule("hold", partition="*a*")]
    assert action(rules, job("a," * 1000 + "a")) == ("hold", 1)
    assert action(rules, job("a," * 500_000 + "a")) == ("advise", 0)
