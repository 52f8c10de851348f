"""Is every state, reason and type of Slurm told in one of a few words, and in the one that people expect?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_exporters.slurm.states import (
    DRAIN_REASONS,
    NODE_STATES,
    PENDING_REASONS,
    classify_drain_reason,
    classify_free_gpus,
    classify_job_state,
    classify_node_state,
    classify_pending_reason,
    is_mig,
)

FLAGS = (
    "DRAIN", "FAIL", "MAINTENANCE", "PLANNED", "NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED", "REBOOT_REQUESTED",
    "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "RESERVED", "COMPLETING", "BLOCKED", "CLOUD", "DYNAMIC_NORM",
)  # fmt: skip
"""Source: node_state_flag_string in src/common/slurm_protocol_defs.c."""


@pytest.mark.parametrize(
    ("state", "is_busy", "word", "free"),
    [
        ("IDLE", False, "idle", "idle"),
        ("MIXED", True, "mixed", "idle"),
        ("ALLOCATED", True, "allocated", "idle"),
        ("MIXED+PLANNED", True, "mixed", "idle"),
        ("IDLE+PLANNED", False, "planned", "idle"),
        ("IDLE+RESERVED", False, "reserved", "idle"),
        ("IDLE+MAINTENANCE+RESERVED", False, "maintenance", "drained"),
        ("MIXED+MAINTENANCE", True, "mixed", "drained"),
        ("IDLE+DRAIN", False, "drained", "drained"),
        ("IDLE+DRAIN+NOT_RESPONDING", False, "drained", "drained"),
        ("DOWN+DRAIN", False, "drained", "drained"),
        ("MIXED+DRAIN", True, "draining", "drained"),
        ("IDLE+COMPLETING+DRAIN", False, "draining", "drained"),
        ("IDLE+COMPLETING", False, "completing", "idle"),
        ("DOWN", False, "down", "down"),
        ("DOWN+NOT_RESPONDING", False, "down", "down"),
        ("IDLE+NOT_RESPONDING", False, "not_responding", "down"),
        ("IDLE+FAIL", False, "failing", "down"),
        ("DOWN+REBOOT_ISSUED", False, "rebooting", "drained"),
        ("IDLE+CLOUD+POWERED_DOWN", False, "powered_down", "idle"),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", True, "powering_up", "idle"),
        ("IDLE+DYNAMIC_NORM", False, "idle", "idle"),
        ("UNKNOWN", False, "unknown", "down"),
        ("", False, "unknown", "down"),
    ],
)
def test_a_node_has_one_state(state: str, is_busy: bool, word: str, free: str) -> None:
    """The order of flags is sinfo's (node_state_string): a drained node that is down is drained."""
    words = tuple(filter(None, state.split("+")))
    assert classify_node_state(words, is_busy=is_busy) == word
    assert classify_free_gpus(word, words) == free


@given(st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "?"]), st.sets(st.sampled_from(FLAGS)))
def test_whatever_flags_there_are_the_words_are_few(base: str, flags: set[str]) -> None:
    assert classify_node_state((base, *flags), is_busy=base in ("MIXED", "ALLOCATED")) in NODE_STATES


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (None, "none"),
        ("Resources", "resources"),
        ("No suitable topology unit found", "resources"),
        ("Priority", "priority"),
        ("Dependency", "dependency"),
        ("DependencyNeverSatisfied", "impossible"),
        ("BeginTime", "begin_time"),
        ("JobHeldUser", "held"),
        ("JobHeldAdmin", "held"),
        ("JobArrayTaskLimit", "array_limit"),
        ("QOSMaxGRESPerUser", "limit"),
        ("AssocGrpCpuLimit", "limit"),
        ("MaxMemPerLimit", "limit"),
        ("PartitionTimeLimit", "limit"),
        ("PartitionDown", "partition"),
        ("Reservation", "reservation"),
        ("Licenses", "licenses"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "nodes_unavailable"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
         "nodes_unavailable"),
        ("BadConstraints", "impossible"),
        ("Prolog", "preparing"),
        ("launch failed requeued held", "held"),
        ("job requeued in held state", "held"),
        ("SomethingNew", "other"),
    ],
)  # fmt: skip
def test_why_a_job_waits_is_a_class(reason: str | None, word: str) -> None:
    assert classify_pending_reason(reason) == word


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (None, "none"),
        ("gres/gpu count reported lower than configured (7 < 8)", "registration"),
        ("Low RealMemory (reported:1 < 100.00% of configured:2)", "registration"),
        ("Kill task failed", "job_end"),
        ("batch job complete failure", "job_end"),
        ("Prolog error", "job_end"),
        ("Not responding", "not_responding"),
        ("Node unexpectedly rebooted", "not_responding"),
        ("XID 79 on gpu 3", "gpu"),
        ("NVLink errors", "gpu"),
        ("mlx5_3 link down", "fabric"),
        ("PSU 2", "power"),
        ("bad DIMM A3", "memory"),
        ("/scratch not mounted", "storage"),
        ("NHC: check_x failed", "health_check"),
        ("firmware upgrade", "maintenance"),
        ("ask Bob", "other"),
    ],
)
def test_why_a_node_is_drained_is_a_class(reason: str | None, word: str) -> None:
    assert classify_drain_reason(reason) == word


@given(st.text())
def test_no_text_makes_a_new_class(text: str) -> None:
    assert classify_pending_reason(text) in PENDING_REASONS
    assert classify_drain_reason(text) in DRAIN_REASONS
    assert len(classify_job_state(text)) <= 24


@pytest.mark.parametrize(
    ("gres_type", "is_one"),
    [
        ("1g.10gb", True), ("a100_3g.20gb", True), ("nvidia_h100_80gb_hbm3_1g.10gb", True), ("1g.12gb.me", True),
        ("h100", False), ("a100-40gb", False), ("nvidia_a100_80gb_pcie", False), ("", False),
    ],
)  # fmt: skip
def test_mig_instances_are_known_by_their_type(gres_type: str, is_one: bool) -> None:
    assert is_mig(gres_type) is is_one
