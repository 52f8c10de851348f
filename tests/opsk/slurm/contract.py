"""What every adapter of the Slurm port must do, whatever cluster it asks: a suite to be run on each of them.

A test class inherits `SlurmContract` and gives it a ``client``. The cluster must have jobs of every kind that is told
apart: one that is uneven over its nodes, an array of which tasks run and tasks wait, a heterogeneous job, one that
ended with an error.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from opsk.errors import InputError
from opsk.slurm.client import SlurmClient
from opsk.slurm.pyslurm.records import ENDED_STATES
from opsk.slurm.records import JobRecord, NodeRecord

_ON_TIME = ("run_time_s",)
"""What two questions one after the other may answer differently."""


def a_job(jobs: Iterable[JobRecord], wanted: Callable[[JobRecord], bool]) -> JobRecord:
    """Return the first job of a kind; the cluster under test must have one."""
    found = [job for job in jobs if wanted(job)]
    assert found, "the cluster has no job of the kind that the suite needs"
    return found[0]


def plain(record: JobRecord | NodeRecord, *, without: Iterable[str] = _ON_TIME) -> dict[str, Any]:
    """Return what two ways of asking must agree on.

    pyslurm answers paths of output with the patterns in them filled in, and gives the path of stdout where stderr
    has none; a node's partitions come in any order.
    """
    told = {
        field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name not in without
    }
    if isinstance(record, JobRecord):
        told["gpu_indices"] = dict(record.gpu_indices)
        told["std_out"] = (record.std_out or "").replace("%j", str(record.id))
        told.pop("std_err")
    else:
        told["partitions"] = sorted(record.partitions)
    return told


class SlurmContract:
    """Tests of one client."""

    def test_ended_jobs_are_listed_only_when_asked_for(self, client: SlurmClient) -> None:
        present, remembered = client.jobs(), client.jobs(finished=True)
        assert not [job.label for job in present if job.state in ENDED_STATES]
        assert {job.id for job in present} <= {job.id for job in remembered}
        assert a_job(remembered, lambda job: job.state in ENDED_STATES)

    def test_ids_are_unique_and_labels_name_them(self, client: SlurmClient) -> None:
        jobs = client.jobs(finished=True)
        assert len({job.id for job in jobs}) == len({job.label for job in jobs}) == len(jobs)
        for job in jobs:
            if job.array_job_id is not None:
                assert re.fullmatch(rf"{job.array_job_id}_(\d+|\[.+\])", job.label)
            elif job.het_job_id is not None:
                assert job.label == f"{job.het_job_id}+{job.het_offset}"
            else:
                assert job.label == str(job.id)

    def test_a_job_asked_for_alone_is_the_job_of_the_list(self, client: SlurmClient) -> None:
        jobs = client.jobs(details=True, finished=True)
        kinds = {(job.state, job.array_task is None, job.het_offset): job for job in jobs}
        for job in kinds.values():
            if "[" not in job.label:
                assert plain(client.job(job.label)) == plain(job)

    def test_details_are_what_a_second_question_would_take(self, client: SlurmClient) -> None:
        bare = {job.id: job for job in client.jobs()}
        assert all(job.admin_comment is None and not job.gpu_indices for job in bare.values())
        for job in client.jobs(details=True):
            details = {"admin_comment": None, "gpu_indices": {}, "gpus_per_node": bare[job.id].gpus_per_node}
            if not bare[job.id].excluded_nodes:  # squeue of 22.05 cannot tell them
                details["excluded_nodes"] = ()
            assert plain(dataclasses.replace(job, **details)) == plain(bare[job.id])

    def test_task_0_of_an_array_and_component_0_of_a_heterogeneous_job_have_their_numbers(
        self, client: SlurmClient
    ) -> None:
        jobs = client.jobs(finished=True)
        assert a_job(jobs, lambda job: job.array_task == "0").label.endswith("_0")
        assert a_job(jobs, lambda job: job.het_offset == 0).het_job_id
        assert a_job(jobs, lambda job: job.het_offset == 1).het_job_id

    def test_waiting_tasks_are_one_job_with_their_range(self, client: SlurmClient) -> None:
        waiting = a_job(client.jobs(), lambda job: "[" in job.label)
        assert waiting.state == "PENDING"
        assert waiting.label == f"{waiting.array_job_id}_[{waiting.array_task}]"

    def test_an_id_of_several_jobs_is_refused_with_their_names(self, client: SlurmClient) -> None:
        array = a_job(client.jobs(), lambda job: "[" in job.label).array_job_id
        with pytest.raises(InputError, match=rf"stands for \d+ jobs \(.*{array}_\["):
            client.job(str(array))
        leader = a_job(client.jobs(), lambda job: job.het_offset == 0).het_job_id
        with pytest.raises(InputError, match=rf"stands for 2 jobs \({leader}\+0, {leader}\+1\)"):
            client.job(str(leader))

    def test_gpus_of_a_job_are_counted_once(self, client: SlurmClient) -> None:
        for job in client.jobs(details=True):
            if job.gpu_indices:
                assert sum(map(len, job.gpu_indices.values())) == job.gpus
                assert set(job.gpu_indices) <= set(job.nodes)
            if job.gpus_per_node is not None and job.nodes:
                assert job.gpus_per_node * len(job.nodes) == job.gpus

    def test_an_uneven_job_has_no_number_of_gpus_a_node(self, client: SlurmClient) -> None:
        def is_uneven(job: JobRecord) -> bool:
            return len(set(map(len, job.gpu_indices.values()))) > 1

        uneven = a_job(client.jobs(details=True), is_uneven)
        assert uneven.gpus_per_node is None
        assert client.job(uneven.label).gpu_indices == uneven.gpu_indices

    def test_only_active_jobs_have_nodes_in_use(self, client: SlurmClient) -> None:
        jobs = client.jobs(details=True)
        assert all(not job.nodes and not job.gpu_indices for job in jobs if job.state == "PENDING")
        assert all(len(job.nodes) == job.node_count for job in jobs if job.state == "RUNNING")

    def test_an_exit_code_is_known_once_a_job_has_ended(self, client: SlurmClient) -> None:
        jobs = client.jobs(finished=True)
        assert all(job.exit_code is None for job in jobs if job.state in {"PENDING", "RUNNING"})
        failed = [job for job in jobs if job.state == "FAILED"]
        assert a_job(failed, lambda job: bool(job.exit_code)).exit_signal == 0
        one_of_each = {job.exit_code: job for job in failed}  # each is asked for by a command of its own
        assert all(client.job(job.label).exit_code == code for code, job in one_of_each.items())

    def test_times_name_their_zone(self, client: SlurmClient) -> None:
        for job in client.jobs(finished=True):
            assert job.submit_time is not None
            assert all(time is None or time.tzinfo for time in (job.submit_time, job.start_time, job.end_time))
        assert a_job(client.jobs(), lambda job: job.state == "RUNNING").start_time is not None

    def test_gpus_in_use_on_nodes_are_those_of_the_jobs(self, client: SlurmClient) -> None:
        jobs, nodes = client.jobs(details=True), client.nodes()
        assert nodes
        for node in nodes:
            held = {index for job in jobs for index in job.gpu_indices.get(node.name, ())}
            assert set(node.gpu_indices_used) == held, node.name
            assert node.gpus_used == len(held) <= node.gpus, node.name

    def test_a_node_with_gpus_in_use_is_not_idle(self, client: SlurmClient) -> None:
        used = [node for node in client.nodes() if node.gpus_used]
        assert used
        assert {node.state for node in used} <= {"MIXED", "ALLOCATED"}

    def test_nodes_say_what_they_are(self, client: SlurmClient) -> None:
        for node in client.nodes():
            assert node.partitions
            assert not any(part.endswith("*") for part in node.partitions)
            assert node.memory_bytes > 0
            assert 0 <= node.cpus_used <= node.cpus
            assert re.fullmatch(r"\d+\.\d+\S*", node.release or "")

    def test_an_unknown_job_is_an_error_of_the_input(self, client: SlurmClient) -> None:
        for job_id in ("99999999", "99999999_1", "99999999+1"):
            with pytest.raises(InputError, match="knows no job " + re.escape(job_id)):
                client.job(job_id)

    def test_what_is_no_job_id_is_refused(self, client: SlurmClient) -> None:
        for job_id in ("", "abc", "1;rm", "--help", "1_", "1\n", "99999999999"):
            with pytest.raises(InputError, match="no job id"):
                client.job(job_id)

    def test_the_release_is_told(self, client: SlurmClient) -> None:
        major, minor = client.release()
        assert (22, 5) <= (major, minor) < (40, 0)
