"""Each check of a soak reports the one thing that is wrong in a small soak of three jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.soak import checks
from tests.soak.checks import Check, Soaked
from tests.soak.faults import FaultDone
from tests.soak.gauges import Gauges, Growth, Look
from tests.soak.kinds import BY_NAME
from tests.soak.planned import Plan, PlannedJob
from tests.soak.truth import Accounted, Truth

AT_S = 1_790_000_000
KINDS = ("short", "train", "nan")
HASH = "abcdef123456"


def planned(number: int, kind: str) -> PlannedJob:
    return PlannedJob(number=number, kind=BY_NAME[kind], at_s=0.0, seconds=5, user=0)


def accounted(number: int, kind: str, **more: Any) -> Accounted:
    job = Accounted(
        label=str(number), number=str(number), name=planned(number, kind).name,
        state="FAILED" if kind == "nan" else "COMPLETED", submit_s=AT_S, start_s=AT_S + 1, end_s=AT_S + 60, nodes="n0",
        node_count=1, user="root", gpus=2, admin_comment=f"opsk:v1 verdict=fits hash={HASH}" if kind == "train" else "",
    )  # fmt: skip
    return replace(job, **more)


def row(**more: Any) -> dict[str, Any]:
    """A training job as the store exports it."""
    return {
        "job": "1", "submitted_at": "2026-09-21T14:13:20+00:00", "started_at": "2026-09-21T14:13:21+00:00",
        "ended_at": "2026-09-21T14:14:20+00:00", "state": "COMPLETED", "user": "root", "node_list": "n0", "nodes": 1,
        "gpus": 2, **more,
    }  # fmt: skip


def soaked() -> Soaked:
    """A soak of which all holds."""
    report = {"job": "2", "root_cause": "numeric"}
    truth = Truth(
        jobs=[accounted(number, kind) for number, kind in enumerate(KINDS)],
        reports={"2": {"root_cause": {"class": "numeric"}}}, evidence={"2": ["n0@1.json", "report.json"]},
        store={"job": [row()], "report": [report], "failure": [{"source": "postmortem", "job": "2"}]}, store_said="",
        audit=[{"script_sha256": HASH + "0" * 52}], audit_broken=0, logs={"advisor.out": "opsk advisor: INFO answers"},
    )  # fmt: skip
    daemons = SimpleNamespace(names=("advisor",), ended_by_themselves=["mariadbd at 12:00:00"], deaf=[])
    submissions = SimpleNamespace(ids={0: "0", 1: "1", 2: "2"}, refused={}, again=1, problems=[])
    jobs = tuple(planned(number, kind) for number, kind in enumerate(KINDS))
    return Soaked(
        plan=Plan(seed=1, span_s=10.0, jobs=jobs, faults=()), site=cast("Any", SimpleNamespace(daemons=daemons)),
        submissions=cast("Any", submissions), faults=[], gauges=Gauges(cast("Any", daemons), ()), truth=truth,
    )  # fmt: skip


def fault(name: str, what: str = "", *, from_s: float = 0.0, until_s: float = 5.0) -> FaultDone:
    killed = ("advisor",) if name == "advisor killed" else ()
    return FaultDone(name=name, what=what, began_s=AT_S + from_s, ended_s=AT_S + until_s, killed=killed)


def test_of_a_sound_soak_all_holds() -> None:
    assert [(check.name, check.wrong) for check in checks.check(soaked()) if not check.holds] == []


def refused(soak: Soaked) -> None:
    soak.submissions.refused[0] = "Invalid account"


def lost(soak: Soaked) -> None:
    del soak.truth.jobs[0]


def twice(soak: Soaked) -> None:
    soak.truth.jobs.append(replace(soak.truth.jobs[0], label="9"))


def runs_on(soak: Soaked) -> None:
    soak.truth.jobs[0] = replace(soak.truth.jobs[0], state="RUNNING", end_s=None)


def failed(soak: Soaked) -> None:
    soak.truth.jobs[0] = replace(soak.truth.jobs[0], state="NODE_FAIL")


def no_report(soak: Soaked) -> None:
    soak.truth.reports.clear()


def wrong_class(soak: Soaked) -> None:
    soak.truth.reports["2"]["root_cause"]["class"] = "fabric"


def report_on_a_good_one(soak: Soaked) -> None:
    soak.truth.reports["0"] = {"root_cause": None}


def stored(**more: Any) -> Callable[[Soaked], None]:
    def change(soak: Soaked) -> None:
        soak.truth.store["job"] = [row(**more)]

    return change


def not_stored(soak: Soaked) -> None:
    soak.truth.store["job"] = []


def report_not_stored(soak: Soaked) -> None:
    soak.truth.store["report"] = []


def failure_not_stored(soak: Soaked) -> None:
    soak.truth.store["failure"] = []


def no_line(soak: Soaked) -> None:
    soak.truth.audit.clear()


def broken_line(soak: Soaked) -> None:
    soak.truth.audit_broken = 1


def without_advice(soak: Soaked) -> None:
    soak.truth.jobs[1] = replace(soak.truth.jobs[1], admin_comment="")


def ended_by_itself(soak: Soaked) -> None:
    soak.site.daemons.ended_by_themselves.append("exporter-n3 at 12:00:01")


def deaf(soak: Soaked) -> None:
    soak.site.daemons.deaf.append("recorder had not ended 120 s after SIGTERM")


def traceback(soak: Soaked) -> None:
    soak.truth.logs["exporter-n0.out"] = "Traceback (most recent call last):\nKeyError: 1\n"


def grown(soak: Soaked) -> None:
    for look in range(60):
        at = Look(at_s=3.0 * look, rss_bytes=(50 + look) << 20, files=10)
        soak.gauges.looks.setdefault(("advisor", 5), []).append(at)


@pytest.mark.parametrize(
    ("hurt", "sees"),
    [
        (refused, checks.submissions), (lost, checks.nothing_lost), (twice, checks.nothing_lost),
        (runs_on, checks.nothing_lost), (failed, checks.states), (no_report, checks.reports),
        (wrong_class, checks.reports), (report_on_a_good_one, checks.reports),
        (stored(state="RUNNING"), checks.store_jobs), (stored(ended_at=None), checks.store_jobs),
        (stored(node_list="n1"), checks.store_jobs), (stored(gpus=4), checks.store_jobs),
        (stored(job="77"), checks.store_jobs), (not_stored, checks.store_jobs),
        (report_not_stored, checks.store_reports), (failure_not_stored, checks.store_reports),
        (no_line, checks.audit), (broken_line, checks.audit), (without_advice, checks.advice),
        (ended_by_itself, checks.daemons), (deaf, checks.daemons),
        (traceback, checks.daemons), (grown, checks.leaks),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_what_is_wrong_is_seen(hurt: Callable[[Soaked], None], sees: Callable[[Soaked], Check]) -> None:
    soak = soaked()
    hurt(soak)
    assert len(sees(soak).wrong) >= 1


def test_of_a_daemon_that_ended_by_itself_its_last_words_are_shown() -> None:
    soak = soaked()
    soak.site.daemons.ended_by_themselves.append("slurmctld at 12:00:01")
    soak.truth.logs["slurmctld.out"] = "slurmctld: up\n" * 9 + "slurmctld: error: late\nslurmctld: fatal: no\n"
    (said,) = checks.daemons(soak).wrong
    assert said == "slurmctld at 12:00:01; last it said: slurmctld: up | slurmctld: error: late | slurmctld: fatal: no"


def test_of_a_daemon_that_told_where_its_threads_are_all_of_them_are_shown() -> None:
    soak = soaked()
    soak.site.daemons.ended_by_themselves.append("exporter-n0 at 12:00:01")
    threads = [
        f"Thread 0x{number} (most recent call first):\n  File serving.py, line {number} in run\n" for number in (1, 2)
    ]
    soak.truth.logs["exporter-n0.out"] = "serves\n" * 9 + "Fatal Python error: Aborted\n\n" + "\n".join(threads)
    (said,) = checks.daemons(soak).wrong
    assert "line 1 in run" in said
    assert "line 2 in run" in said
    assert "serves" not in said


def test_of_a_traceback_the_lines_are_shown_that_say_what_it_was() -> None:
    soak = soaked()
    soak.truth.logs["advisor.out"] = (
        "opsk advisor: INFO answers\nopsk advisor: ERROR records that cannot be kept\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in main\n    run()\n  File "b.py", line 7, in run\n'
        "    return kept[name]\nKeyError: 'name'\n" + "opsk advisor: INFO answers\n" * 100
    )
    assert checks.daemons(soak).wrong == [
        'advisor.out: opsk advisor: ERROR records that cannot be kept | File "b.py", line 7, in run |'
        " return kept[name] | KeyError: 'name'"
    ]


def test_of_a_report_that_names_a_wrong_cause_it_is_shown_on_what_it_rests() -> None:
    soak = soaked()
    wrong_class(soak)
    sign = {"source": "n0: kmsg", "text": "mlx5_1: link down"}
    soak.truth.reports["2"] |= {"gathered": {"logs": "1"}, "evidence": [sign], "unreadable": ["out-2: not there"]}
    assert checks.reports(soak).wrong == [
        "2 soak-0002-nan on n0: fabric, not numeric; gathered: {'logs': '1'}; unreadable: ['out-2: not there'];"
        " signs: ['n0: kmsg: mlx5_1: link down']"
    ]


def test_what_is_left_is_told() -> None:
    assert checks.left_over(replace(soaked(), left=["socket advisor.sock"])).wrong == ["socket advisor.sock"]


@pytest.mark.parametrize(
    ("name", "is_excused"), [("advisor killed", True), ("disk full", False), ("recorder killed", False)]
)
def test_a_line_that_was_on_its_way_when_the_advisor_was_killed_is_no_defect(name: str, is_excused: bool) -> None:
    soak = replace(soaked(), faults=[fault(name)])
    no_line(soak)
    assert checks.audit(soak).holds is is_excused


def test_a_full_disk_may_cost_lines_that_the_log_tells_of() -> None:
    soak = replace(soaked(), faults=[fault("disk full")])
    soak.truth.audit[:] = [{"lost_before": 1}]
    assert checks.audit(soak).holds


def test_a_job_whose_slurmd_was_killed_may_end_with_its_node() -> None:
    soak = replace(soaked(), faults=[fault("slurmd killed", "slurmd-n0 killed, started again")])
    failed(soak)
    soak.truth.reports["0"] = {"root_cause": {"class": "node"}}
    assert checks.states(soak).holds
    assert checks.reports(soak).holds


def test_a_job_that_came_and_went_while_no_recorder_ran_is_in_the_store_afterwards() -> None:
    soak = replace(soaked(), faults=[fault("recorder killed", until_s=70.0)])
    not_stored(soak)
    assert not checks.store_jobs(soak).holds


def test_a_job_that_never_ran_need_not_be_in_the_store() -> None:
    soak = soaked()
    soak.truth.jobs[1] = replace(soak.truth.jobs[1], start_s=None)
    not_stored(soak)
    assert checks.store_jobs(soak).holds


def test_a_process_may_take_up_what_new_work_needs() -> None:
    flat = Growth(name="x", pid=1, looks=50, lived_s=150, rss_bytes=(100 << 20, 110 << 20), files=(10, 12))
    assert flat.is_flat
    assert not replace(flat, files=(10, 40)).is_flat
