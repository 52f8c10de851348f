"""Names of files by cluster and job: one name a job, whatever the cluster is called, and the old ones still read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.job_key import JobKey, cluster_part

SAFE = re.compile(r"[0-9A-Za-z_-]{1,40}")


def test_a_name_says_cluster_and_job() -> None:
    assert JobKey(cluster="hall-2", job="4711_3").file_name == "hall-2.4711_3"
    assert str(JobKey(cluster="hall-2", job="4711")) == "job 4711 of cluster hall-2"


def test_without_a_cluster_it_is_the_name_that_opsk_0_1_gave() -> None:
    assert JobKey(job="4711").file_name == "4711"
    assert str(JobKey(job="4711")) == "job 4711"


@pytest.mark.parametrize("cluster", ["", "hall-2", "41", "c-0123456789abcdef"])
def test_a_name_is_read_again(cluster: str) -> None:
    assert JobKey.of_file_name(f"{cluster}.7" if cluster else "7") == JobKey(cluster=cluster, job="7")


@pytest.mark.parametrize("name", ["", "x", ".7", "a.b.7", "a/7", "classes", "hall.7.s1", "hall.", "-x", "h\u00e4.7"])
def test_what_is_no_name_of_a_job_is_none(name: str) -> None:
    assert JobKey.of_file_name(name) is None


@pytest.mark.parametrize("job", ["", "..", "7/../x", "7;x", "JOBID", "a.7"])
def test_what_is_no_number_stays_one_safe_word(job: str) -> None:
    assert re.fullmatch(r"hall\.[0-9A-Za-z_+-]{1,32}", JobKey(cluster="hall", job=job).file_name)


@given(st.text(min_size=1, max_size=80))
def test_a_cluster_cannot_name_another_folder(cluster: str) -> None:
    part = cluster_part(cluster)
    assert SAFE.fullmatch(part)
    assert part == cluster or not SAFE.fullmatch(cluster)


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_two_clusters_never_have_one_name(one: str, other: str) -> None:
    assert (cluster_part(one) == cluster_part(other)) is (one == other)
