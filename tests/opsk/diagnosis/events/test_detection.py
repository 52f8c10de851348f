"""When does a failure begin, what is it part of, and when is it over? Times are those of ``actions.toml``."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.diagnosis.events.actions import actions
from opsk.diagnosis.events.detection import NOTHING, Known, detect, sort_events
from opsk.diagnosis.events.observations import (
    Event,
    FailedPart,
    GpuSeen,
    JobSeen,
    Observations,
    Severity,
    SxidSeen,
    XidSeen,
)
from tests.fakes.seen_hardware import GPUS, RATE, looked, with_gpu, with_node, with_port, without_exporter

T = 1_000_000.0
SLACK = actions().hysteresis
Change = Callable[[Observations], Observations]


def detect_events(seen: Observations, known: Known = NOTHING) -> tuple[Event, ...]:
    """Return the events of a round, in order."""
    return sort_events(detect(seen, known))


def after(*looks: Observations) -> Known:
    known = NOTHING
    for seen in looks:
        known = detect(seen, known)
    return known


def open_events(known: Known) -> dict[str, Event]:
    return {event.failed: event for event in sort_events(known) if not event.is_over}


def every_five_s(first_s: float, count: int, change: Change = lambda seen: seen, nodes: int = 4) -> list[Observations]:
    return [change(looked(first_s + 5 * at, nodes)) for at in range(count)]


def broken(seen: Observations, *changes: Change) -> Observations:
    for change in changes:
        seen = change(seen)
    return seen


def xid(node: str, gpu: int, code: int, at_s: float = T, count: int = 1) -> Change:
    return lambda seen: with_gpu(seen, node, gpu, xids=(XidSeen(code=code, count=count, last_s=at_s),))


def lost(node: str, gpu: int) -> Change:
    """As the exporter tells of it: neither index nor anything else but the UUID."""

    def change(seen: Observations) -> Observations:
        gone = GpuSeen(node=node, index=None, uuid=f"GPU-{node}-{gpu}", is_up=False)
        return replace(seen, gpus=tuple(gone if (each.node, each.index) == (node, gpu) else each for each in seen.gpus))

    return change


def domain_down(node: str) -> Change:
    def change(seen: Observations) -> Observations:
        for gpu in range(GPUS):
            seen = with_gpu(seen, node, gpu, fabric_faults=("unhealthy",), links_active=0)
        return seen

    return change


def leaf_down(leaf: int, nodes: Iterable[int]) -> Change:
    def change(seen: Observations) -> Observations:
        for node in nodes:
            seen = with_port(seen, f"n{node}", f"mlx5_{leaf}", is_up=False, rate_bytes_per_s=None)
        return seen

    return change


def test_a_sound_cluster_has_no_event() -> None:
    assert not detect_events(looked(T))
    assert not sort_events(after(*every_five_s(T, 20)))


def test_a_lost_gpu_shows_in_the_first_look_with_its_jobs_and_what_to_do() -> None:
    (event,) = detect_events(broken(looked(T), lost("n2", 3)))
    assert (event.failed, event.part, event.severity) == ("gpu:n2/3", FailedPart.GPU, Severity.FATAL)
    assert event.jobs == (7,)
    assert event.nodes == ("n2",)
    assert "power-cycle" in event.action
    assert event.source


def test_xid_79_says_the_same_of_the_same_gpu_as_its_silence() -> None:
    """One event a part, whatever tells of it: its key must not change as more becomes known."""
    first = detect(broken(looked(T), xid("n2", 3, 79)))
    second = detect(broken(looked(T + 5), lost("n2", 3)), first)
    assert list(open_events(second)) == ["gpu:n2/3"]
    event = open_events(second)["gpu:n2/3"]
    assert (event.first_seen_s, event.last_seen_s, event.count) == (T, T + 5, 2)


def test_what_the_first_look_shows_may_be_older_than_that_look() -> None:
    known = detect(broken(looked(T), lost("n2", 3)))
    assert open_events(known)["gpu:n2/3"].was_there
    known = detect(broken(looked(T + 5), lost("n2", 3), lost("n1", 0)), known)
    assert open_events(known)["gpu:n2/3"].was_there
    assert not open_events(known)["gpu:n1/0"].was_there


def test_a_gpu_that_another_job_holds_is_none_of_this_ones() -> None:
    seen = replace(looked(T), jobs=(JobSeen(id=7, nodes=("n2",), gpus={"n2": (0, 1)}), JobSeen(id=8, nodes=("n2",))))
    (event,) = detect_events(broken(seen, xid("n2", 3, 48)))
    assert event.jobs == (8,)


@pytest.mark.parametrize(
    ("code", "severity"), [(79, "fatal"), (95, "fatal"), (64, "fatal"), (74, "fatal"), (63, "degraded"), (92, "watch")]
)
def test_what_an_xid_means_is_its_class(code: int, severity: str) -> None:
    """Classes as the catalogue of XIDs has them: 63 resets when idle, 92 is to be watched."""
    (event,) = detect_events(broken(looked(T), xid("n0", 0, code)))
    assert event.severity.value == severity
    assert f"XID {code}" in event.text


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_what_the_application_did_is_no_event(code: int) -> None:
    assert not detect_events(broken(looked(T), xid("n0", 0, code)))


def test_the_same_gpu_again_and_again_is_worth_a_look() -> None:
    (event,) = detect_events(broken(looked(T), xid("n0", 0, 31, count=3)))
    assert event.severity is Severity.WATCH


def test_an_old_xid_is_over_once_the_driver_calls_the_gpu_well() -> None:
    known = after(broken(looked(T), xid("n0", 0, 95)))
    for at in range(1, 20):
        known = detect(broken(looked(T + 5 * at), xid("n0", 0, 95, at_s=T)), known)
    (event,) = sort_events(known)
    assert event.is_over
    assert detect_events(broken(looked(T + 60), xid("n0", 0, 95, at_s=T))) == ()


def test_an_xid_counts_for_long_where_the_driver_does_not_tell_of_recovery() -> None:
    def quiet(seen: Observations) -> Observations:
        return replace(seen, gpus=tuple(replace(gpu, recovery="") for gpu in seen.gpus))

    known = after(*(quiet(broken(looked(T + at), xid("n0", 0, 95, at_s=T))) for at in range(0, 600, 60)))
    assert list(open_events(known)) == ["gpu:n0/0"]


def test_an_xid_without_a_time_counts_when_its_number_grows() -> None:
    def counted(count: int) -> Change:
        return lambda seen: with_gpu(seen, "n0", 0, xids=(XidSeen(code=95, count=count),))

    assert not open_events(after(broken(looked(T), counted(4)), broken(looked(T + 5), counted(4))))
    grown = after(broken(looked(T), counted(4)), broken(looked(T + 5), counted(5)))
    assert list(open_events(grown)) == ["gpu:n0/0"]


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"uncorrected": 2}, "degraded"),
        ({"remap_failed": True}, "fatal"),
        ({"remap_pending": True}, "watch"),
        ({"recovery": "node_reboot"}, "fatal"),
        ({"recovery": "drain_p2p"}, "degraded"),
        ({"recovery": "something_new"}, "watch"),
        ({"links_active": 0}, "fatal"),
        ({"links_active": 17}, "degraded"),
        ({"fabric_faults": ("route_unhealthy",)}, "fatal"),
    ],
)
def test_each_sign_of_a_gpu(changes: dict[str, object], severity: str) -> None:
    (event,) = detect_events(with_gpu(looked(T), "n1", 2, **changes))
    assert (event.failed, event.severity.value) == ("gpu:n1/2", severity)


def test_gpus_without_nvlink_miss_none() -> None:
    seen = looked(T)
    assert not detect_events(replace(seen, gpus=tuple(replace(gpu, links_active=0) for gpu in seen.gpus)))


def test_a_gpu_that_vanished_is_missed_after_a_while() -> None:
    def gone(seen: Observations) -> Observations:
        return replace(seen, gpus=tuple(gpu for gpu in seen.gpus if (gpu.node, gpu.index) != ("n1", 3)))

    known = after(looked(T), *every_five_s(T + 5, 2, gone))
    assert not open_events(known)
    known = after(looked(T), *every_five_s(T + 5, 4, gone))
    assert list(open_events(known)) == ["gpu:n1/3"]


def test_fewer_gpus_than_slurm_has_configured_from_the_start_is_told_of_the_node() -> None:
    def gone(seen: Observations) -> Observations:
        return replace(seen, gpus=tuple(gpu for gpu in seen.gpus if (gpu.node, gpu.index) != ("n1", 3)))

    (event,) = open_events(after(*every_five_s(T, 4, gone))).values()
    assert event.failed == "node:n1"
    assert "3 of the 4 GPUs" in event.text


def test_one_port_down_is_a_nic() -> None:
    (event,) = detect_events(broken(looked(T), leaf_down(1, [2])))
    assert (event.failed, event.severity) == ("nic:n2/mlx5_1", Severity.FATAL)


def test_ports_of_one_leaf_are_the_leaf() -> None:
    (event,) = detect_events(broken(looked(T), leaf_down(1, [0, 1, 2, 3])))
    assert (event.failed, event.part) == ("leaf:leaf1", FailedPart.LEAF)
    assert event.nodes == ("n0", "n1", "n2", "n3")
    assert "4 of 4 ports" in event.text


def test_a_leaf_whose_ports_are_seen_to_fall_one_after_the_other_becomes_one_event() -> None:
    known = after(broken(looked(T), leaf_down(1, [0])), broken(looked(T + 5), leaf_down(1, range(4))))
    assert list(open_events(known)) == ["leaf:leaf1"]


def test_fewer_than_half_of_a_leafs_ports_are_nics() -> None:
    found = detect_events(broken(looked(T, 8), leaf_down(0, [0, 1, 2])))
    assert {event.failed for event in found} == {"nic:n0/mlx5_0", "nic:n1/mlx5_0", "nic:n2/mlx5_0"}


def test_no_port_left_is_the_node() -> None:
    (event,) = detect_events(broken(looked(T), leaf_down(0, [2]), leaf_down(1, [2])))
    assert event.failed == "node:n2"


def test_a_port_that_never_was_cabled_is_no_event() -> None:
    empty = with_port(looked(T), "n0", "mlx5_1", is_up=False, leaf="", role="", rate_bytes_per_s=None)
    assert not detect_events(empty)


def test_a_slow_link_is_told_when_it_stays_slow() -> None:
    def slow(seen: Observations) -> Observations:
        return with_port(seen, "n0", "mlx5_1", rate_bytes_per_s=RATE / 2)

    assert not open_events(after(looked(T), slow(looked(T + 5))))
    (event,) = open_events(after(looked(T), *every_five_s(T + 5, 5, slow))).values()
    assert (event.failed, event.severity) == ("nic:n0/mlx5_1", Severity.DEGRADED)
    assert "200 Gbit/s, its best is 400" in event.text


def test_a_link_that_goes_down_between_looks_flaps() -> None:
    looks = [with_port(looked(T + 5 * at), "n0", "mlx5_1", downs=at) for at in range(4)]
    (event,) = open_events(after(*looks)).values()
    assert "went down 3 times" in event.text
    assert event.severity is Severity.DEGRADED


def test_a_flapping_fault_is_one_event() -> None:
    known = NOTHING
    for at in range(40):
        is_bad = at % 10 < 2
        known = detect(broken(looked(T + 5 * at), *([leaf_down(1, [2])] if is_bad else [])), known)
    assert len(known.events) == 1
    (event,) = known.events.values()
    assert event.first_seen_s == T
    assert event.count == 8


def test_all_nvlinks_of_a_node_are_its_domain() -> None:
    (event,) = detect_events(broken(looked(T), domain_down("n2")))
    assert (event.failed, event.part) == ("hb:n2", FailedPart.HB_DOMAIN)
    assert "4 of 4 GPUs" in event.text


def test_half_of_a_rack_is_the_rack() -> None:
    domains = ["rack0", "rack0", "rack1", "rack1"]
    (event,) = detect_events(broken(looked(T, domains=domains), domain_down("n2")))
    assert event.failed == "hb:rack1"
    assert event.nodes == ("n2", "n3")


def test_nodes_of_one_rack_that_are_down_are_the_rack() -> None:
    seen = looked(T, domains=["rack0", "rack0", "rack1", "rack1"])
    for node in ("n2", "n3"):
        seen = with_node(without_exporter(seen, node), node, is_down=True, state="DOWN+NOT_RESPONDING")
    assert {event.failed for event in detect_events(seen)} == {"hb:rack1"}


def test_an_nvswitch_that_fails_is_the_domain() -> None:
    seen = with_node(looked(T), "n1", sxids=(SxidSeen(code=20034, severity="always_fatal", last_s=T),))
    (event,) = detect_events(seen)
    assert (event.failed, event.severity) == ("hb:n1", Severity.FATAL)
    assert "SXid 20034" in event.text


def test_peers_that_miss_links_to_a_dead_gpu_are_not_dead_themselves() -> None:
    """Without NVSwitches each GPU has links to each other one: 6 of 18 go to each of three peers."""
    seen = broken(looked(T), lost("n1", 3))
    for gpu in range(3):
        seen = with_gpu(seen, "n1", gpu, links_active=12)
    known = after(looked(T - 5), seen)
    assert list(open_events(known)) == ["gpu:n1/3"]


def test_all_gpus_lost_is_the_node() -> None:
    (event,) = detect_events(broken(looked(T), *(lost("n1", gpu) for gpu in range(GPUS))))
    assert event.failed == "node:n1"


def test_a_node_that_is_down_takes_its_parts_with_it() -> None:
    known = after(broken(looked(T), lost("n1", 0), leaf_down(1, [1])))
    assert set(open_events(known)) == {"gpu:n1/0", "nic:n1/mlx5_1"}
    down = with_node(without_exporter(looked(T + 5), "n1"), "n1", is_down=True, state="DOWN", reason="Not responding")
    known = detect(down, known)
    (event,) = open_events(known).values()
    assert event.failed == "node:n1"
    assert event.text == "Slurm: DOWN: Not responding"


def test_a_node_that_is_silent_for_a_moment_is_no_event() -> None:
    def silent(seen: Observations) -> Observations:
        return with_node(seen, "n1", is_silent=True, state="IDLE+NOT_RESPONDING")

    assert not open_events(after(looked(T), *every_five_s(T + 5, 3, silent), looked(T + 20)))
    assert list(open_events(after(looked(T), *every_five_s(T + 5, 6, silent)))) == ["node:n1"]


def test_nothing_ends_on_a_node_that_does_not_answer() -> None:
    known = after(
        broken(looked(T), lost("n1", 0)), *(without_exporter(looked(T + 5 * at), "n1") for at in range(1, 99))
    )
    assert list(open_events(known)) == ["gpu:n1/0"]


def test_an_event_ends_when_its_part_has_been_well_for_a_while_and_is_forgotten_later() -> None:
    known = after(broken(looked(T), lost("n1", 0)), looked(T + 5), looked(T + 30))
    assert open_events(known)
    known = detect(looked(T + 5 + SLACK.settle_s), known)
    assert not open_events(known)
    assert [event.is_over for event in sort_events(known)] == [True]
    assert not sort_events(detect(looked(T + SLACK.forget_s + 60), known))


def test_what_comes_back_after_long_is_a_new_event() -> None:
    known = after(broken(looked(T), lost("n1", 0)), looked(T + 5), looked(T + 60))
    late = T + SLACK.flap_s + 60
    (event,) = open_events(detect(broken(looked(late), lost("n1", 0)), known)).values()
    assert (event.first_seen_s, event.count) == (late, 1)


def test_one_look_alone_does_not_wait() -> None:
    seen = with_port(looked(T), "n0", "mlx5_1", rate_bytes_per_s=RATE / 2)
    assert not sort_events(detect(seen))
    assert [event.failed for event in sort_events(detect(seen, is_single_round=True))] == ["nic:n0/mlx5_1"]


CHANGES = st.lists(
    st.one_of(
        st.builds(lost, st.sampled_from(["n0", "n1", "n2", "n3"]), st.integers(0, GPUS - 1)),
        st.builds(
            xid, st.sampled_from(["n0", "n1"]), st.integers(0, GPUS - 1), st.sampled_from([31, 48, 63, 74, 79, 94])
        ),
        st.builds(domain_down, st.sampled_from(["n0", "n3"])),
        st.builds(leaf_down, st.integers(0, 1), st.sets(st.integers(0, 3))),
        st.sampled_from(["n1", "n2"]).map(lambda name: lambda seen: without_exporter(seen, name)),
        st.sampled_from(["n1", "n2"]).map(lambda name: lambda seen: with_node(seen, name, is_down=True)),
    ),
    max_size=4,
)


@given(first=CHANGES, second=CHANGES, seed=st.integers(0, 1000))
def test_order_says_nothing(first: list[Change], second: list[Change], seed: int) -> None:
    looks = [broken(looked(T), *first), broken(looked(T + 5), *second)]
    shuffle = random.Random(seed)

    def mixed(seen: Observations) -> Observations:
        return replace(
            seen,
            nodes=tuple(shuffle.sample(seen.nodes, len(seen.nodes))),
            gpus=tuple(shuffle.sample(seen.gpus, len(seen.gpus))),
            ports=tuple(shuffle.sample(seen.ports, len(seen.ports))),
        )

    assert sort_events(after(*looks)) == sort_events(after(*map(mixed, looks)))


@given(first=CHANGES, second=CHANGES)
def test_the_same_look_twice_changes_nothing(first: list[Change], second: list[Change]) -> None:
    known = after(broken(looked(T), *first), broken(looked(T + 5), *second))
    assert detect(broken(looked(T + 5), *second), known) == known


@given(st.lists(CHANGES, min_size=1, max_size=4), st.lists(st.booleans(), min_size=8, max_size=8))
def test_parts_that_are_the_very_same_as_before_change_nothing(changes: list[list[Change]], again: list[bool]) -> None:
    """Of the same tuples nothing is worked out anew; what comes out is what comes out of equal ones."""
    looks: list[Observations] = []
    for at, repeats in enumerate(again):
        seen = broken(looked(T + 5 * at), *changes[at % len(changes)])
        looks.append(replace(looks[-1], at_s=seen.at_s) if repeats and looks else seen)

    def anew(seen: Observations) -> Observations:
        return replace(seen, gpus=tuple(map(replace, seen.gpus)), ports=tuple(map(replace, seen.ports)))

    assert after(*looks) == after(*map(anew, looks))


@given(first=CHANGES, second=CHANGES)
def test_every_part_has_one_open_event_and_ends_when_all_is_well(first: list[Change], second: list[Change]) -> None:
    known = after(broken(looked(T), *first), broken(looked(T + 5), *second))
    assert all(event.key == event.failed == key for key, event in known.events.items())
    for at in range(3, 60):
        known = detect(looked(T + 5 * at), known)
    assert not open_events(known)
