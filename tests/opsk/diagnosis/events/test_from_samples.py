"""From an exporter's series, and from Slurm's records, to what is looked at."""

from __future__ import annotations

from opsk.diagnosis.events.from_samples import build_job, build_node, build_node_parts
from opsk.metrics.exposition import Sample
from opsk.slurm.records import JobRecord, NodeRecord


def gpu(name: str, value: float, uuid: str = "GPU-a", **labels: str) -> Sample:
    return Sample(f"opsk_gpu_{name}", {"gpu": uuid, **labels}, value)


def port(name: str, value: float, **labels: str) -> Sample:
    return Sample(f"opsk_infiniband_port_{name}", {"device": "mlx5_2", "port": "1", **labels}, value)


def test_all_series_of_a_gpu_make_one() -> None:
    (found,) = build_node_parts(
        "n3",
        [
            gpu("up", 1), gpu("info", 1, index="5"), gpu("xid_errors_total", 2, xid="63"),
            gpu("xid_last_seen_timestamp_seconds", 77.0, xid="63"),
            gpu("ecc_volatile_errors_total", 1, error="uncorrected", location="dram"),
            gpu("ecc_volatile_errors_total", 2, error="uncorrected", location="sram"),
            gpu("ecc_volatile_errors_total", 9, error="corrected", location="sram"),
            gpu("row_remap_pending", 1), gpu("row_remap_failed", 0),
            gpu("recovery_action", 0, action="none"), gpu("recovery_action", 1, action="gpu_reset"),
            gpu("nvlinks", 17, state="active"), gpu("nvlinks", 1, state="inactive"),
            gpu("fabric_healthy", 0), gpu("fabric_fault", 1, fault="route_unhealthy"),
            gpu("fabric_fault", 0, fault="bandwidth"),
        ],
    ).gpus  # fmt: skip
    assert (found.node, found.index, found.is_up) == ("n3", 5, True)
    assert [(told.code, told.count, told.last_s) for told in found.xids] == [(63, 2, 77.0)]
    assert found.uncorrected == 3
    assert (found.remap_pending, found.remap_failed) == (True, False)
    assert found.recovery == "gpu_reset"
    assert found.links_active == 17
    assert found.fabric_faults == ("route_unhealthy", "unhealthy")


def test_a_lost_gpu_has_its_uuid_or_its_index() -> None:
    found = build_node_parts("n3", [gpu("up", 0), gpu("up", 0, uuid="index-4")]).gpus
    assert [(each.index, each.uuid, each.is_up) for each in found] == [(None, "GPU-a", False), (4, "", False)]


def test_joining_a_fabric_takes_its_time() -> None:
    series = [gpu("info", 1, index="0"), gpu("fabric_joined", 0)]
    assert build_node_parts("n0", [*series, gpu("fabric_state", 1, state="in_progress")]).gpus[0].fabric_faults == ()
    assert build_node_parts("n0", [*series, gpu("fabric_state", 1, state="completed")]).gpus[0].fabric_faults


def test_a_port_knows_its_leaf_from_the_rails_file() -> None:
    (found,) = build_node_parts(
        "n1",
        [
            port("state", 1), port("rate_bytes_per_second", 25e9), port("link_downed_total", 3),
            port("info", 1, leaf="leaf2", rail="2", role="compute"),
        ],
    ).ports  # fmt: skip
    assert (found.name, found.is_up, found.downs, found.leaf, found.rail) == ("n1/mlx5_2", False, 3, "leaf2", 2)


def test_an_nvswitch_tells_its_errors() -> None:
    labels = {"pci": "0000:c5:00.0", "sxid": "20034", "severity": "always_fatal"}
    (found,) = build_node_parts("n1", [Sample("opsk_nvswitch_sxid_errors_total", labels, 2)]).sxids
    assert (found.code, found.severity, found.count) == (20034, "always_fatal", 2)


def test_damaged_and_hostile_series_say_nothing() -> None:
    found = build_node_parts(
        "n1",
        [
            gpu("up", float("nan")), gpu("info", 1, index="-1"), gpu("info", 1, uuid="GPU-b", index="9" * 40),
            gpu("xid_errors_total", 1, xid="other"), Sample("opsk_gpu_up", {}, 0), Sample("up", {"gpu": "GPU-a"}, 0),
            Sample("opsk_infiniband_port_state", {}, 1), gpu("recovery_action", 1),
        ],
    )  # fmt: skip
    assert found.gpus == ()
    assert found.ports == ()


def test_slurm_says_who_is_down_and_how_many_gpus_there_should_be() -> None:
    down = build_node(NodeRecord(name="n1", state="DOWN", state_flags=("NOT_RESPONDING",), gpus=8, gpu_type="h100"))
    assert (down.is_down, down.gpus, down.state) == (True, 8, "DOWN+NOT_RESPONDING")
    silent = build_node(NodeRecord(name="n1", state="IDLE", state_flags=("NOT_RESPONDING",)))
    assert (silent.is_down, silent.is_silent) == (False, True)
    for flag in ("POWERED_DOWN", "POWERING_UP"):
        asleep = build_node(NodeRecord(name="n1", state="DOWN", state_flags=("NOT_RESPONDING", flag)))
        assert not asleep.is_down
        assert not asleep.is_silent
    drained = build_node(NodeRecord(name="n1", state="IDLE", state_flags=("DRAIN",), gpus=8))
    assert not drained.is_down
    assert build_node(NodeRecord(name="n1", state="IDLE", gpus=56, gpu_type="1g.10gb")).gpus is None


def test_a_job_holds_gpus() -> None:
    record = JobRecord(id=7, label="7", user="a", name="b", state="RUNNING", nodes=("n1",), gpu_indices={"n1": (2, 3)})
    assert build_job(record).gpus == {"n1": (2, 3)}


def test_a_rack_is_the_domain_that_its_gpus_name() -> None:
    """The name is that of `opsk.fabric.hb_domains`; an empty or a null cluster is one node's own domain."""
    rack = [gpu("fabric_info", 1, uuid=f"GPU-{at}", cluster_uuid="6f0c", clique="3") for at in range(3)]
    own = [gpu("fabric_info", 1, cluster_uuid="00000000-0000", clique="0")]
    found = build_node_parts("n1", [*rack, *own])
    assert found.domain == "6f0c.3"
    assert build_node(NodeRecord(name="n1", state="IDLE"), parts=found).hb_domain == "6f0c.3"
    assert build_node_parts("n1", own).domain == ""
