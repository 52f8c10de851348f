"""Are Slurm's series right, is Slurm asked seldom and never by a scrape, and do series end when it does not answer?"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.controller_text import SchedulerStatistics
from opsk.slurm.commands.job_text import QueuedJobs
from opsk.slurm.commands.node_text import NodeLoad
from opsk_exporters.core.collector import NoDataError, Scraper
from opsk_exporters.core.exposition import Families
from opsk_exporters.slurm.collector import PollResult, SlurmCollector, SlurmPoller
from opsk_exporters.slurm.election import Election
from opsk_exporters.slurm.nodes import add_nodes
from opsk_exporters.slurm.queue import add_predictions, add_queue
from tests.fakes.slurm_questions import NOW_UNIX_S, FixedSlurm, busy_cluster, node

Series = dict[tuple[str, ...], float]
DOWN = SlurmError("squeue: Unable to contact slurm controller")


def shown(families: Families) -> Series:
    return {
        (sample.name.removeprefix("opsk_slurm_"), *sample.labels.values()): sample.value
        for metric in families.all()
        for sample in metric.samples
    }


def of_queue(*rows: QueuedJobs, partitions: tuple[str, ...] = ("gpu",), users: int = 0) -> Series:
    families = Families()
    add_queue(families, rows, partitions, NOW_UNIX_S, users)
    return shown(families)


def of_nodes(*nodes: NodeLoad) -> Series:
    families = Families()
    add_nodes(families, nodes)
    return shown(families)


def pending(waited_s: float = 0.0, tasks: int = 1, reason: str = "Priority", gpus: int = 8) -> QueuedJobs:
    return QueuedJobs(
        tasks=tasks, state="PENDING", user="ann", partitions=("gpu",), gpus=gpus, reason=reason,
        eligible_unix_s=int(NOW_UNIX_S - waited_s),
    )  # fmt: skip


class TestQueue:
    def test_tasks_of_an_array_are_jobs(self) -> None:
        found = of_queue(pending(tasks=50), pending())
        assert found["jobs", "pending", "gpu"] == found["cluster_jobs", "pending"] == 51
        assert found["job_gpus", "pending", "gpu"] == 408

    def test_a_job_of_two_partitions_waits_in_both_and_is_one(self) -> None:
        found = of_queue(replace(pending(), partitions=("gpu", "debug")))
        assert found["jobs", "pending", "gpu"] == found["jobs", "pending", "debug"] == 1
        assert (found["cluster_jobs", "pending"], found["cluster_job_gpus", "pending"]) == (1, 8)

    def test_an_empty_partition_has_zeros(self) -> None:
        found = of_queue()
        assert found["jobs", "running", "gpu"] == found["cluster_jobs", "pending"] == 0
        assert not any(name.startswith("pending_wait") for name, *_ in found)

    def test_waiting_counts_from_when_a_job_could_have_started(self) -> None:
        """Ten tasks waited 60 s, one 1,000 s, one 5,000 s: 10 of 12 is more than half, 11 of 12 more than 90 %."""
        found = of_queue(pending(60, tasks=10), pending(1000), pending(5000))
        assert found["pending_wait_p50_seconds", "gpu"] == 60
        assert found["pending_wait_p90_seconds", "gpu"] == 1000
        assert found["pending_wait_oldest_seconds", "gpu"] == 5000

    @pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency", "BeginTime"])
    def test_who_waits_on_purpose_does_not_wait_for_nodes(self, reason: str) -> None:
        found = of_queue(pending(9000, reason=reason), pending(60))
        assert found["pending_wait_oldest_seconds", "gpu"] == 60
        assert found["jobs", "pending", "gpu"] == 2

    def test_who_is_eligible_in_future_does_not_wait_yet(self) -> None:
        assert ("pending_wait_oldest_seconds", "gpu") not in of_queue(pending(-3600))

    def test_jobs_are_counted_by_what_was_advised(self) -> None:
        advised = [replace(pending(), admin_comment=f"x opsk:v1 verdict={word}") for word in ("oom", "fits", "fits")]
        found = of_queue(*advised, pending(), replace(pending(), admin_comment="opsk:v1 verdict=nonsense"))
        assert [found["advised_jobs", word, "pending"] for word in ("fits", "oom", "tight", "unknown", "none")] == [
            2, 1, 0, 0, 2,
        ]  # fmt: skip
        assert found["advised_jobs", "fits", "running"] == 0

    def test_users_have_no_series_unless_the_site_wants_them_and_then_the_largest(self) -> None:
        rows = [
            QueuedJobs(tasks=1, state="RUNNING", user=f"u{number}", partitions=("gpu",), gpus=number)
            for number in range(9)
        ]
        assert not any(name.startswith("user_") for name, *_ in of_queue(*rows))
        found = of_queue(*rows, users=2)
        assert {user for name, user, *_ in found if name == "user_gpus"} == {"u8", "u7"}
        assert found["user_gpus", "u8", "running"] == 8

    def test_an_unknown_state_is_told_and_a_strange_one_is_other(self) -> None:
        found = of_queue(replace(pending(), state="STAGE_OUT"), replace(pending(), state="x y{}"))
        assert found["jobs", "stage_out", "gpu"] == found["jobs", "other", "gpu"] == 1


def of_predictions(*rows: QueuedJobs, most: int = 9) -> Series:
    families = Families()
    add_predictions(families, rows, most)
    return shown(families)


def running(label: str, record: str, gpus: int = 8) -> QueuedJobs:
    number = 100 + int(label.partition("_")[2] or label)
    return QueuedJobs(id=number, label=label, tasks=1, state="RUNNING", user="ann", gpus=gpus, admin_comment=record)


class TestPredictions:
    def test_a_running_job_has_what_its_record_says_and_nothing_else(self) -> None:
        record = "noted opsk:v1 verdict=tight fit=0.6 mem_bytes=7e10 step_s=2.5 tokens_per_s_per_gpu=900 mfu=0.4 tp=8"
        assert of_predictions(running("10_3", record)) == {
            ("job_predicted_step_seconds", "10_3", "103"): 2.5,
            ("job_predicted_memory_bytes", "10_3", "103"): 7e10,
            ("job_predicted_tokens_per_second_per_gpu", "10_3", "103"): 900,
            ("job_predicted_mfu_ratio", "10_3", "103"): 0.4,
            ("predicted_jobs",): 1,
        }

    @pytest.mark.parametrize(
        "record", ["", "opsk:v1", "opsk:v1 verdict=nonsense step_s=1", "step_s=1", "xopsk:v1 verdict=fits step_s=1"]
    )
    def test_a_job_without_a_record_has_no_series(self, record: str) -> None:
        assert of_predictions(running("7", record)) == {("predicted_jobs",): 0}

    @pytest.mark.parametrize("value", ["0", "nan", "inf", "1e999", "-1", "x", "1e-400"])
    def test_what_can_be_no_prediction_is_absent(self, value: str) -> None:
        assert of_predictions(running("7", f"opsk:v1 verdict=fits step_s={value}")) == {("predicted_jobs",): 1}

    def test_a_job_that_waits_or_ends_has_none(self) -> None:
        runs = running("7", "opsk:v1 verdict=fits step_s=1")
        for state in ("PENDING", "COMPLETING", "SUSPENDED"):
            assert of_predictions(replace(runs, state=state)) == {("predicted_jobs",): 0}

    def test_the_largest_jobs_have_series_where_there_are_too_many(self) -> None:
        rows = [running(str(gpus), "opsk:v1 verdict=fits step_s=1", gpus=gpus) for gpus in range(20)]
        found = of_predictions(*rows, most=2)
        assert {name[1] for name in found if name[0] == "job_predicted_step_seconds"} == {"19", "18"}
        assert found["predicted_jobs",] == 20


class TestNodes:
    def test_a_node_of_two_partitions_counts_in_both_and_once_in_the_cluster(self) -> None:
        found = of_nodes(node("a", "MIXED", "gpu", "debug", gpus={"h100": 8}, used={"h100": 3}))
        for partition in ("gpu", "debug"):
            assert found["nodes", "mixed", partition] == 1
            assert found["gpus", "allocated", partition] == 3
            assert found["gpus", "idle", partition] == 5
        assert found["cluster_nodes", "mixed"] == 1
        assert (found["cluster_gpus", "allocated"], found["cluster_gpus", "idle"]) == (3, 5)
        assert (found["cluster_cpus", "allocated"], found["cluster_cpus", "idle"]) == (32, 32)

    @pytest.mark.parametrize(
        ("state", "word", "allocated", "idle", "drained", "down"),
        [
            ("MIXED+DRAIN", "draining", 3, 0, 5, 0),
            ("IDLE+NOT_RESPONDING", "not_responding", 3, 0, 0, 5),
            ("DOWN", "down", 3, 0, 0, 5),
            ("MIXED+RESERVED", "mixed", 3, 5, 0, 0),
        ],
    )
    def test_gpus_that_no_job_has_are_as_their_node(
        self, state: str, word: str, allocated: int, idle: int, drained: int, down: int
    ) -> None:
        found = of_nodes(node("a", state, "gpu", gpus={"h100": 8}, used={"h100": 3}))
        assert found["nodes", word, "gpu"] == 1
        told = [found["gpus", each, "gpu"] for each in ("allocated", "idle", "drained", "down")]
        assert told == [allocated, idle, drained, down]

    def test_mig_instances_are_counted_and_told_apart(self) -> None:
        found = of_nodes(
            node("a", "MIXED", "gpu", gpus={"h100": 6, "1g.10gb": 14}, used={"h100": 6, "1g.10gb": 4}),
        )
        assert found["gpus", "allocated", "gpu"] == 10
        assert (found["mig_gpus", "allocated", "gpu"], found["mig_gpus", "idle", "gpu"]) == (4, 10)
        assert found["cluster_type_gpus", "h100", "allocated"] == 6
        assert found["cluster_type_gpus", "1g.10gb", "idle"] == 10

    def test_gpus_used_without_a_type_are_found_among_those_with_one(self) -> None:
        found = of_nodes(node("a", "MIXED", "gpu", gpus={"a100": 2, "v100": 2}, used={"": 3}))
        assert (found["gpus", "allocated", "gpu"], found["gpus", "idle", "gpu"]) == (3, 1)

    def test_more_used_than_configured_makes_no_negative_number(self) -> None:
        found = of_nodes(node("a", "MIXED", "gpu", gpus={"h100": 2}, used={"h100": 8}))
        assert (found["gpus", "allocated", "gpu"], found["gpus", "idle", "gpu"]) == (2, 0)

    def test_a_partition_without_gpus_has_no_series_of_them(self) -> None:
        found = of_nodes(node("a", "IDLE", "cpu"))
        assert not any(name in ("gpus", "mig_gpus") for name, *_ in found)
        assert found["cluster_gpus", "idle"] == 0

    def test_why_nodes_are_out_is_counted_by_class(self) -> None:
        found = of_nodes(
            node("a", "IDLE+DRAIN", "gpu", reason="XID 79"),
            node("b", "DOWN", "gpu"),
            node("c", "IDLE", "gpu", reason="XID 79"),
        )
        assert found["unavailable_nodes", "gpu"] == 1
        assert found["unavailable_nodes", "none"] == 1

    def test_a_partition_that_is_down_on_all_its_nodes_is_down(self) -> None:
        found = of_nodes(replace(node("a", "IDLE", "x", "y"), partitions={"x": False, "y": True}))
        assert (found["partition_up", "x"], found["partition_up", "y"]) == (0, 1)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def asker_of(slurm: FixedSlurm, clock: Clock, on: str = "head1", root: Path = Path("/none")) -> SlurmPoller:
    election = Election(on, procfs=root, cgroups=root, host=lambda: "head1")
    return SlurmPoller(slurm=slurm, election=election, every_s=60.0, clock=clock, now_unix_s=lambda: NOW_UNIX_S)


def values(found: PollResult) -> Series:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in found.metrics or ()
        for sample in metric.samples
    }


class TestAsker:
    def test_slurm_is_asked_once_an_interval_however_often_one_looks(self) -> None:
        slurm, clock = busy_cluster(), Clock()
        asker = asker_of(slurm, clock)
        for _ in range(10):
            asker.round()
        assert slurm.asked.count("queue") == 1
        clock.now += 60
        asker.round()
        assert slurm.asked.count("queue") == 2

    def test_a_slow_slurmctld_is_asked_more_seldom(self) -> None:
        """Answers took 6 s: it is left alone for 20 times that."""
        slurm, clock = busy_cluster(), Clock()
        asker = asker_of(slurm, clock)
        answer = slurm.queue

        def slowly() -> tuple[QueuedJobs, ...]:
            clock.now += 6
            return answer()

        slurm.queue = slowly  # type: ignore[method-assign]
        assert values(asker.round())["opsk_slurm_questions_seconds",] == 6
        clock.now += 119
        asker.round()
        assert slurm.asked.count("queue") == 1
        clock.now += 2
        asker.round()
        assert slurm.asked.count("queue") == 2

    @pytest.mark.parametrize("question", ["jobs", "nodes"])
    def test_without_queue_or_nodes_there_is_nothing(self, question: str) -> None:
        slurm, clock = busy_cluster(), Clock()
        asker = asker_of(slurm, clock)
        asker.round()
        setattr(slurm, question, DOWN)
        clock.now += 60
        with pytest.raises(SlurmError, match="Unable to contact"):
            asker.round()
        setattr(slurm, question, getattr(busy_cluster(), question))
        clock.now += 60
        assert values(asker.round())["opsk_slurm_success", "queue"] == 1

    def test_what_else_fails_loses_its_own_series(self) -> None:
        slurm = busy_cluster()
        slurm.told = slurm.reserved = slurm.known = DOWN
        found = values(asker_of(slurm, Clock()).round())
        for part, is_well in (("queue", 1), ("nodes", 1), ("scheduler", 0), ("reservations", 0), ("controllers", 0)):
            assert found["opsk_slurm_success", part] == is_well
        assert not any(name.startswith(("opsk_slurm_scheduler", "opsk_slurm_reserv")) for name, *_ in found)

    def test_hidden_jobs_are_no_empty_queue(self) -> None:
        slurm = busy_cluster()
        slurm.jobs, slurm.configured = (), {"PrivateData": "accounts,jobs"}
        with pytest.raises(SlurmError, match="hidden from the exporter's user"):
            asker_of(slurm, Clock()).round()
        slurm.told = SchedulerStatistics(jobs_now={"pending": 0, "running": 0})
        with pytest.raises(SlurmError, match="hidden from the exporter's user"):
            asker_of(slurm, Clock()).round()
        slurm.nodes = (node("a", "IDLE", "gpu"),)
        assert values(asker_of(slurm, Clock()).round())["opsk_slurm_cluster_jobs", "running"] == 0

    def test_no_nodes_are_hidden_nodes(self) -> None:
        slurm = busy_cluster()
        slurm.nodes = ()
        with pytest.raises(SlurmError, match="no node"):
            asker_of(slurm, Clock()).round()

    def test_another_node_asks_nothing(self) -> None:
        slurm = busy_cluster()
        assert asker_of(slurm, Clock(), on="head2").round().metrics is None
        assert slurm.asked == []

    def test_a_cluster_has_few_series(self) -> None:
        """20 partitions: 16 + 3 + 4 of nodes, 2 × 5 of jobs, 3 of waiting, 1, and at most 15 reasons each."""
        names = [f"p{number}" for number in range(20)]
        slurm = busy_cluster()
        slurm.nodes = tuple(
            node(f"n{number}", "MIXED", names[number % 20], gpus={"h100": 8}, used={"h100": 1})
            for number in range(2000)
        )
        slurm.jobs = tuple(replace(pending(number), partitions=(names[number % 20],)) for number in range(5000))
        found = values(asker_of(slurm, Clock()).round())
        assert len(found) < 20 * (23 + 10 + 3 + 1 + 15) + 150


class TestCollector:
    def test_a_scrape_takes_what_is_there_and_tells_its_age(self) -> None:
        slurm, clock = busy_cluster(), Clock()
        collector = SlurmCollector(asker_of(slurm, clock), deadline_s=60)
        found = {metric.name: metric for metric in collector.collect()}
        assert found["opsk_slurm_age_seconds"].samples[0].value == 0
        clock.now += 30
        found = {metric.name: metric for metric in collector.collect()}
        assert found["opsk_slurm_age_seconds"].samples[0].value == 30
        assert slurm.asked.count("queue") == 1

    def test_what_is_too_old_is_not_shown(self) -> None:
        clock = Clock()
        collector = SlurmCollector(asker_of(busy_cluster(), clock), deadline_s=60)
        collector.collect()
        clock.now += 181
        with pytest.raises(SlurmError, match="has not answered for 181 s"):
            collector.collect()

    def test_a_failure_drops_the_series_and_success_is_0(self) -> None:
        slurm = busy_cluster()
        slurm.jobs = DOWN
        scrape = Scraper([SlurmCollector(asker_of(slurm, Clock()), deadline_s=60)], deadline_s=60).scrape()
        found = {
            (sample.name, *sample.labels.values()): sample.value for each in scrape.metrics for sample in each.samples
        }
        assert found["opsk_collector_success", "slurm"] == 0
        assert not any(name.startswith("opsk_slurm_") for name, *_ in found)

    def test_a_slurmctld_that_hangs_does_not_hang_a_scrape(self) -> None:
        slurm, gate = busy_cluster(), threading.Event()

        def hang() -> tuple[QueuedJobs, ...]:
            gate.wait(60)
            return ()

        slurm.queue = hang  # type: ignore[method-assign]
        collector = SlurmCollector(asker_of(slurm, Clock()), deadline_s=0.01)
        try:
            with pytest.raises(SlurmError, match="has not answered yet"):
                collector.collect()
        finally:
            gate.set()

    def test_a_node_that_does_not_ask_has_nothing(self) -> None:
        collector = SlurmCollector(asker_of(busy_cluster(), Clock(), on="off"), deadline_s=60)
        with pytest.raises(NoDataError, match="slurm_on"):
            collector.collect()
