"""What differs between start and end of a job on a node; numbers are made up and small."""

from __future__ import annotations

import copy
from typing import Any

from opsk.postmortem.evidence.node_findings import MAX_DELAY_S, count_evidence, find_node_findings, list_problems
from opsk.postmortem.values import FailureClass, Origin, Role

UUID, PCI = "GPU-1", "0000:1b:00.0"
GPU: dict[str, Any] = {
    "uuid": UUID, "index": 0, "pci": PCI, "ecc": {"uncorrected_volatile": 0}, "recovery_action": "none",
    "violation_s": {"hw_thermal_slowdown": 5.0}, "remap_pending": False, "remap_failure": False, "links_down": [],
}  # fmt: skip
PORT: dict[str, Any] = {
    "device": "mlx5_1", "port": 1, "state": "ACTIVE", "phys_state": "LinkUp",
    "counters": {"link_downed": 1, "symbol_error": 4, "local_ack_timeout_err": 0},
}  # fmt: skip
OTHER = GPU | {"uuid": "GPU-2", "index": 1, "pci": "0000:43:00.0"}


def node(**changed: Any) -> dict[str, Any]:
    state = {"at_s": 1000.0, "gpus": [GPU, OTHER], "ports": [PORT], "job_gpus": [UUID], "cgroup": None}
    said = {"node": "n1", "boot_unix_s": 0.0, "start": state, "end": copy.deepcopy(state) | {"at_s": 1100.0},
            "kernel": {"lines": [], "problem": "", "source": "kmsg"}}  # fmt: skip
    said["end"] |= changed
    return said


def test_a_node_on_which_nothing_happened_says_nothing() -> None:
    assert find_node_findings(node()) == ()


def test_a_port_that_went_down_and_one_that_flapped() -> None:
    (down,) = find_node_findings(node(ports=[PORT | {"state": "DOWN", "phys_state": "Polling"}]))
    assert (down.signature, down.place.node, down.place.hca, down.role) == ("ib.port_down", "n1", "mlx5_1", Role.ROOT)
    assert (down.failure, down.origin, down.time_s) == (FailureClass.FABRIC, Origin.FABRIC, 1100.0)
    flapped, errors = find_node_findings(node(ports=[PORT | {"counters": {"link_downed": 3, "symbol_error": 9}}]))
    assert (flapped.signature, flapped.fields["count"]) == ("ib.link_flapped", "2")
    assert (errors.role, dict(errors.fields)) == (Role.CONFIRMATION, {"symbol_error": "5"})


def test_a_port_that_was_down_before_did_not_fail_now() -> None:
    said = node(ports=[PORT | {"state": "DOWN"}])
    said["start"]["ports"] = [PORT | {"state": "DOWN"}]
    assert find_node_findings(said) == ()


def test_the_port_that_the_kernel_calls_by_its_interface_is_that_of_the_device() -> None:
    """A netdev and the RDMA device behind it are one port: else two ends of one failure have two names."""
    said = node(ports=[PORT | {"netdev": "ib1"}])
    said["kernel"]["lines"] = ["3,1,1050000000,-;mlx5_core 0000:86:00.0 ib1: Link down"]
    (down,) = find_node_findings(said)
    assert (down.signature, down.place.hca, down.fields["netdev"]) == ("kernel.link_down", "mlx5_1", "ib1")
    said["end"]["ports"] = said["start"]["ports"] = [PORT]
    assert find_node_findings(said)[0].place.hca == "ib1"


def test_counters_that_were_cleared_tell_nothing() -> None:
    assert find_node_findings(node(ports=[PORT | {"counters": {"link_downed": 0, "symbol_error": 0}}])) == ()


def test_a_gpu_that_is_lost_keeps_the_name_that_it_had() -> None:
    (lost,) = find_node_findings(node(gpus=[OTHER, {"uuid": None, "index": 0, "pci": None, "lost": "gpu_is_lost"}]))
    assert (lost.signature, lost.place.gpu_uuid, lost.place.pci) == ("gpu.lost", UUID, PCI)


def test_what_a_gpu_counted() -> None:
    worse = GPU | {
        "ecc": {"uncorrected_volatile": 2}, "recovery_action": "gpu_reset", "remap_pending": True,
        "violation_s": {"hw_thermal_slowdown": 55.0}, "links_down": [3],
    }  # fmt: skip
    findings = {finding.signature: finding for finding in find_node_findings(node(gpus=[worse, OTHER]))}
    assert set(findings) == {
        "gpu.needs_recovery",
        "gpu.ecc_uncorrected",
        "gpu.row_remap",
        "gpu.nvlink_down",
        "gpu.capped",
    }
    assert findings["gpu.capped"].failure is None
    assert findings["gpu.capped"].fields["share"] == "0.50"


def test_the_gpus_of_other_jobs_are_not_this_jobs_matter() -> None:
    said = node(gpus=[GPU, OTHER | {"recovery_action": "gpu_reset"}])
    line = "3,1,1050000000,-;NVRM: Xid (PCI:0000:43:00): 79, pid=1, name=x, GPU has fallen off the bus."
    said["kernel"]["lines"] = [line, line.replace("43:00", "1b:00")]
    findings = find_node_findings(said)
    assert [finding.signature for finding in findings] == ["kernel.xid", "kernel.xid"]
    assert {finding.place.pci: finding.role for finding in findings} == {"0000:43:00.0": Role.ADVICE, PCI: Role.ROOT}
    own = next(finding for finding in findings if finding.place.pci == PCI)
    assert (own.place.gpu_index, own.place.gpu_uuid, own.time_s) == (0, UUID, 1050.0)


def test_processes_that_were_killed_for_memory() -> None:
    (killed,) = find_node_findings(node(cgroup={"oom_kills": 2, "memory_limit_bytes": 1000}))
    assert (killed.signature, killed.origin, killed.fields["kills"]) == ("cgroup.oom_kill", Origin.CGROUP, "2")


def test_what_was_looked_at_is_told_and_what_could_not_be() -> None:
    blind = node(gpu_problem="NVML cannot count the GPUs", gpus=[])
    blind["kernel"] = {"problem": "/dev/kmsg: Operation not permitted"}
    assert count_evidence([node(), blind], 2) == {
        "kernel_log": "1 of 2 nodes", "nvml": "1 of 2 nodes", "ib_counters": "2 of 2 nodes",
    }  # fmt: skip
    assert list_problems([node(), blind]) == (
        "n1: kernel log: /dev/kmsg: Operation not permitted",
        "n1: GPUs: NVML cannot count the GPUs",
    )


def test_what_was_read_long_after_the_job_is_told_to_be_so() -> None:
    soon, late = (node() | {"until_s": 1100.0 - after_s} for after_s in (MAX_DELAY_S, MAX_DELAY_S + 1))
    assert list_problems([soon]) == ()
    (told,) = list_problems([soon, late])
    assert told.startswith("n1: GPUs and ports: read more than 120 s after the end")


def test_a_file_of_another_form_says_nothing() -> None:
    for said in ({}, {"start": 7, "end": [], "kernel": "x"}, {"end": {"gpus": [1, None], "ports": {"a": 1}}}):
        assert find_node_findings(said) == ()
