"""Does the advisor, a real process, do what the site's policy wants, and write down that it did?"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.advisor_process import RunningAdvisor, config_text, eventually, start_advisor

UID = os.getuid()
GPUS = '{"gpus-per-node":"8","nodes":"2","partition":"%s"}'
POLICY = """default_partition = "plain"
[[advisor.policy]]
partition = "held"
action = "hold"
[[advisor.policy]]
partition = "refused"
action = "reject"
oom_probability = 0.9999
[[advisor.policy]]
partition = "noted"
action = "annotate"
[[advisor.policy]]
partition = "shadow"
action = "shadow"
[[advisor.policy]]
partition = ["off", "never-*"]
action = "off"
"""


@pytest.fixture(scope="module")
def advisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdvisor]:
    directory = tmp_path_factory.mktemp("p")
    running = start_advisor(directory, text=config_text(directory, submit_s=1.0) + POLICY)
    yield running
    running.stop()


def script(*orders: str) -> str:
    return f"#!/bin/bash\n# {random.random()}\n" + "".join(f"FAKE {order}\n" for order in orders) + "torchrun x.py\n"


def job(partition: str | None, **fields: object) -> dict[str, object]:
    named = {} if partition is None else {"partition": partition}
    return {"tres_per_node": "gres/gpu:8", "min_nodes": 2, **named, **fields}


def submitted(advisor: RunningAdvisor, partition: str | None, text: str, **fields: object) -> dict[str, object]:
    with advisor.client() as client:
        return client.ask(kind="submit", uid=UID, script=text, job=job(partition, **fields))


def test_a_certain_end_is_held(advisor: RunningAdvisor) -> None:
    answer = submitted(advisor, "held", script("oom 0.995"))
    assert answer["action"] == "hold"
    assert answer["comment"] == "opsk:v1 verdict=oom policy=hold"
    assert answer["lines"] == ["held: as ordered", "to run it all the same: scontrol release, with the job's number"]


def test_a_certain_end_is_refused_from_the_rules_own_bound_on(advisor: RunningAdvisor) -> None:
    assert "action" not in submitted(advisor, "refused", script("oom 0.995"))
    assert submitted(advisor, "refused", script("oom 0.99995"))["action"] == "reject"


@pytest.mark.parametrize("orders", [["oom 0.999 plan.tp"], ["oom 0.95"], []], ids=["guessed", "unsure", "fits"])
def test_what_is_not_certain_is_advised_on(advisor: RunningAdvisor, orders: list[str]) -> None:
    answer = submitted(advisor, "held", script(*orders))
    assert "action" not in answer
    assert answer["lines"]


def test_a_job_that_may_go_elsewhere_is_not_held(advisor: RunningAdvisor) -> None:
    assert "action" not in submitted(advisor, "held,plain", script("oom 0.999"))


def test_a_heterogeneous_job_is_not_held(advisor: RunningAdvisor) -> None:
    assert "action" not in submitted(advisor, "held", script("oom 0.999"), het_job_offset=0)


def test_an_interactive_job_is_not_held(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, argv=["torchrun", "x.py"], job=job("held"))
    assert answer["status"] == "advice"
    assert "action" not in answer


def test_a_user_who_was_told_already_is_told_why_again(advisor: RunningAdvisor) -> None:
    text = script("oom 0.999")
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS % "held")
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, script=text, job=job("held"), quiet=True)
    assert answer["action"] == "hold"
    assert answer["lines"]


def test_advice_for_another_environment_holds_nobody(advisor: RunningAdvisor) -> None:
    """The user exported something else since: what was stored is not about this submission."""
    text = script()
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS % "held", env={"TP": "4"})
        before = advisor.analyses
        question = {"kind": "submit", "uid": UID, "script": text, "job": job("held")}
        client.ask(**question, env={"TP": "4", "SLURM_SUBMIT_DIR": "/x"})
        assert advisor.analyses == before
        client.ask(**question, env={"TP": "8"})
    assert advisor.analyses == before + 1


def test_annotate_gives_the_record_only(advisor: RunningAdvisor) -> None:
    text = script()
    with advisor.client() as client:
        assert client.ask(kind="advise", script=text, options_json=GPUS % "noted") == {"v": 1, "status": "silent"}
        answer = client.ask(kind="submit", uid=UID, script=text, job=job("noted"))
    assert answer["comment"]
    assert "lines" not in answer


def test_shadow_thinks_and_says_nothing(advisor: RunningAdvisor) -> None:
    text, before = script("oom 0.999"), advisor.analyses
    with advisor.client() as client:
        assert client.ask(kind="advise", script=text, options_json=GPUS % "shadow") == {"v": 1, "status": "silent"}
        answer = client.ask(kind="submit", uid=UID, script=text, job=job("shadow"))
    assert answer == {"v": 1, "status": "silent"}
    assert advisor.analyses == before + 1


@pytest.mark.parametrize("partition", ["off", "never-again"])
def test_off_does_not_even_think(advisor: RunningAdvisor, partition: str) -> None:
    text, before = script(), advisor.analyses
    with advisor.client() as client:
        assert client.ask(kind="advise", script=text, options_json=GPUS % partition)["status"] == "silent"
        assert client.ask(kind="submit", uid=UID, script=text, job=job(partition))["status"] == "silent"
    assert advisor.analyses == before


def test_a_job_without_a_partition_goes_to_the_default_one(advisor: RunningAdvisor) -> None:
    """Without ``default_partition`` the mildest of all rules by partition would count: off."""
    assert submitted(advisor, None, script())["lines"]


def test_an_opted_out_script_is_left_alone_unless_it_is_held(advisor: RunningAdvisor) -> None:
    assert submitted(advisor, "plain", script("optout")) == {"v": 1, "status": "silent"}
    assert submitted(advisor, "held", script("optout")) == {"v": 1, "status": "silent"}


def test_later_is_never_held(advisor: RunningAdvisor) -> None:
    assert submitted(advisor, "held", script("sleep 3", "oom 0.999")) == {"v": 1, "status": "later"}


@pytest.mark.parametrize("detail", ["long", "short", "default"])
def test_how_much_is_wanted_reaches_the_analysis(advisor: RunningAdvisor, detail: str) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=script("detail"), options_json=GPUS % "plain", detail=detail)
    assert f"detail {detail}" in answer["lines"]


def test_what_was_decided_is_audited(advisor: RunningAdvisor) -> None:
    text = script("oom 0.9991")
    submitted(advisor, "held", text)

    def mine(records: list[dict[str, object]]) -> list[dict[str, object]]:
        return [each for each in records if each.get("oom_probability") == 0.9991]

    (record,) = mine(advisor.records_when(lambda records: bool(mine(records))))
    assert record["policy"] == {"rule": 1, "action": "hold"}
    assert record["enforced"] == "hold"
    assert record["verdict"] == "oom"
    assert record["shown"] == ["held: as ordered", "to run it all the same: scontrol release, with the job's number"]
    assert record["request"] == {"nodes": 2, "gpus_per_node": 8, "partition": "held"}
    assert record["deadline_ms"] == 1000
    assert float(str(record["took_ms"])) >= float(str(record["think_ms"])) >= 0
    assert float(str(record["queue_ms"])) >= 0
    assert text not in advisor.audit.read_text()


def test_what_comes_too_late_is_audited_as_a_thought(advisor: RunningAdvisor) -> None:
    """It is asked again until one came late: an advisor that is busy computes no more than it can answer."""

    def ask() -> list[dict[str, object]]:
        submitted(advisor, "held", script("sleep 1.5", "oom 0.9992"))
        return advisor.records()

    def is_late(records: list[dict[str, object]]) -> bool:
        return any(each.get("kind") == "thought" and each.get("oom_probability") == 0.9992 for each in records)

    eventually(ask, is_late)


def test_a_log_is_rotated_though_the_configuration_is_broken(tmp_path: Path) -> None:
    running = start_advisor(tmp_path)
    try:
        running.config.write_text("[advisor]\npolicy = 3\n")
        with running.client() as client:
            client.ask(kind="advise", script=script(), options_json=GPUS % "a")
        running.records_when(lambda records: len(records) == 1)
        running.audit.rename(tmp_path / "audit.jsonl.1")
        running.process.send_signal(signal.SIGHUP)
        eventually(running.audit.exists, bool)
    finally:
        running.stop()
