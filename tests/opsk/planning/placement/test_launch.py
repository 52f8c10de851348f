"""What is handed to launchers, and what is left out because it is not certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from opsk.fabric.fabric import Cable, Fabric, Hca, Switch
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.rails import Rails
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.launch import JobLaunch, build_launch, sharp_switches
from opsk.planning.placement.placement import Placement, RankPlace, TrafficShare, place
from opsk.slurm.topology.release import Release
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

RailsMaker = Callable[..., Rails]
PLAN = Plan(tp=4, dp=2, global_batch=2)


def launched(model: ModelShape, rails: Rails, nodes: list[str], plan: Plan = PLAN) -> JobLaunch:
    return build_launch(
        place(PlacementProblem(model=model, plan=plan, rails=rails, nodes=nodes, gpus_per_node=4)), rails
    )


def settings(launch: JobLaunch) -> dict[str, str]:
    return {setting.name: setting.value for setting in (*launch.nccl_env, *launch.slurm_flags)}


def test_the_rank_file_has_one_host_per_rank(model: ModelShape, rails_of: RailsMaker) -> None:
    assert launched(model, rails_of([["a", "b"]], hcas=4), ["a", "b"]).rank_file == "a\n" * 4 + "b\n" * 4


def test_hcas_are_named_in_rail_order_and_exactly(model: ModelShape, rails_of: RailsMaker) -> None:
    """Both nodes have mlx5_0 on rail 1 and mlx5_1 on rail 0."""
    rails = rails_of([["a", "b"]], hcas=4, swapped={"a": (0, 1), "b": (0, 1)})
    found = settings(launched(model, rails, ["a", "b"]))
    assert found == {"NCCL_IB_HCA": "=mlx5_1,mlx5_0,mlx5_2,mlx5_3", "NCCL_CROSS_NIC": "0"}


def test_one_hca_cabled_otherwise_leaves_cross_nic_alone(model: ModelShape, rails_of: RailsMaker) -> None:
    launch = launched(model, rails_of([["a", "b"]], hcas=4, swapped={"b": (0, 1)}), ["a", "b"])
    assert settings(launch).keys() == {"NCCL_IB_HCA"}
    assert any("NCCL_CROSS_NIC is left alone" in note and "(b)" in note for note in launch.notes)
    assert launch.gpu_order == {"b": "1,0,2,3"}


def test_names_that_no_kernel_gives_are_not_suggested(model: ModelShape, rails_of: RailsMaker) -> None:
    rails = rails_of([["a", "b"]], hcas=4)
    renamed = {
        node: tuple(replace(hca, device=hca.device.replace("mlx5_", "HCA-")) for hca in hcas)
        for node, hcas in rails.attachments.items()
    }
    launch = launched(model, replace(rails, attachments=renamed), ["a", "b"])
    assert "NCCL_IB_HCA" not in settings(launch)
    assert any("HCA-0" in note for note in launch.notes)


def test_nodes_with_different_hcas_get_no_common_list(model: ModelShape, rails_of: RailsMaker) -> None:
    launch = launched(model, rails_of([["a", "b", "c"]], hcas=4, missing={"c": 3}), ["a", "c"])
    assert "NCCL_IB_HCA" not in settings(launch)


def test_switches_are_asked_for_where_one_leaf_group_of_several_holds_the_job(
    model: ModelShape, rails_of: RailsMaker
) -> None:
    """The default wait limit of Slurm is 300 s = 5:00."""
    rails = rails_of([["a", "b"], ["c", "d"]], hcas=4)
    assert settings(launched(model, rails, ["a", "b", "c", "d"]))["--switches"] == "1@5:00"
    assert "--switches" not in settings(launched(model, rails_of([["a", "b"]], hcas=4), ["a", "b"]))
    wide = Plan(tp=4, dp=3, global_batch=3)
    assert "--switches" not in settings(launched(model, rails, ["a", "b", "c", "d"], wide))


def test_one_node_needs_nothing(model: ModelShape, rails_of: RailsMaker) -> None:
    launch = launched(model, rails_of([["a", "b"]], hcas=4), ["a", "b"], Plan(tp=4, global_batch=1))
    assert (settings(launch), launch.notes) == ({}, ())


def test_nccl_chooses_its_algorithm_itself(model: ModelShape, rails_of: RailsMaker) -> None:
    found = settings(launched(model, rails_of([["a", "b"]], hcas=4), ["a", "b"]))
    assert not {"NCCL_ALGO", "NCCL_PROTO", "NCCL_TOPO_FILE"} & found.keys()


NONE = TrafficShare(rail_local_fraction=1.0, leaf_local_fraction=1.0, max_link_load=0.0, inter_node_bytes=0.0)


def placed(
    hosts: list[str], *, gpus: int = 4, dp: int = 1, spare: tuple[str, ...] = (), leaf: str | None = None
) -> Placement:
    """Put ranks on hosts in this order; consecutive ranks are one replica of the model, ``dp`` replicas in all."""
    seen: dict[str, int] = {}
    ranks = []
    for rank, host in enumerate(hosts):
        local = seen.get(host, 0)
        seen[host] = local + 1
        ranks.append(
            RankPlace(
                rank=rank,
                node=host,
                local_rank=local,
                gpu=local % gpus,
                device=None,
                rail=None,
                leaf=leaf,
                tp_rank=0,
                pp_rank=0,
                cp_rank=0,
                dp_rank=rank * dp // len(hosts),
            )
        )
    return Placement(
        ranks=tuple(ranks), traffic=NONE, default_traffic=NONE, nodes=tuple(seen), spare_nodes=spare,
        needs_rank_file=True,
    )  # fmt: skip


def in_order(hosts: list[str], each: int) -> list[str]:
    return [host for host in hosts for _ in range(each)]


def racks(*sizes: int) -> list[HbDomain]:
    return [
        HbDomain(name=f"rack{rack}", nodes=tuple(f"r{rack}n{k}" for k in range(size)))
        for rack, size in enumerate(sizes)
    ]


def test_the_mpi_rankfile_names_host_and_core_of_every_rank(rails_of: RailsMaker) -> None:
    """The form that mpirun(1) of Open MPI 4 and prte-map(1) of 5 give: rank <N>=<hostname> slot=<slot list>."""
    launch = build_launch(placed(["b", "b", "a", "a"]), rails_of([["a", "b"]], hcas=4))
    assert launch.mpi_rank_file == "rank 0=b slot=0\nrank 1=b slot=1\nrank 2=a slot=0\nrank 3=a slot=1\n"


def test_torchrun_gets_node_ranks_in_the_order_of_the_ranks(rails_of: RailsMaker) -> None:
    launch = build_launch(placed(in_order(["c", "a", "b"], 4)), rails_of([["a", "b", "c"]], hcas=4))
    assert launch.torchrun is not None
    assert launch.torchrun.master_addr == "c"
    assert launch.torchrun.node_rank == {"c": 0, "a": 1, "b": 2}
    assert launch.torchrun.nproc_per_node == 4
    assert any("SLURM_NODEID" in note and "torchrun" in note for note in launch.notes)


@pytest.mark.parametrize("hosts", [["a", "b", "a", "b"], ["a", "a", "b"], ["a", "b", "b", "b"]])
def test_orders_that_torchrun_cannot_bring_about_get_no_node_ranks(rails_of: RailsMaker, hosts: list[str]) -> None:
    launch = build_launch(placed(hosts), rails_of([["a", "b"]], hcas=4))
    assert launch.torchrun is None
    assert any("torchrun cannot" in note for note in launch.notes)


def test_the_notes_never_send_the_host_file_to_sbatch(rails_of: RailsMaker) -> None:
    launch = build_launch(placed(["b", "a"]), rails_of([["a", "b"]], hcas=4))
    assert "never for sbatch itself" in launch.notes[0]


def test_a_replica_over_several_nodes_is_one_segment_of_a_block(rails_of: RailsMaker) -> None:
    """12 nodes, 3 replicas of 4 nodes, racks of 18: --segment=4 divides 12."""
    hosts = [f"r0n{k}" for k in range(12)]
    launch = build_launch(placed(in_order(hosts, 4), dp=3), rails_of([hosts], hcas=4), domains=racks(18, 18))
    assert settings(launch)["--segment"] == "4"
    assert any("--exclusive=topo" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("nodes", "dp", "sizes", "segment"),
    [
        (32, 1, (18, 18), "16"),  # one replica on 32 nodes: parts of 16, the largest divisor of 32 up to 18
        (36, 2, (18, 18), "18"),
        (12, 12, (18, 18), None),  # a replica on one node needs no other
        (8, 2, (1, 1), None),  # no NVLink between nodes: no blocks
        (14, 2, (4, 4), None),  # 7 nodes a replica: no common divisor up to 4
    ],
)  # fmt: skip
def test_segments_divide_the_job_and_fit_a_block(
    rails_of: RailsMaker, nodes: int, dp: int, sizes: tuple[int, ...], segment: str | None
) -> None:
    hosts = [f"h{k}" for k in range(nodes)]
    launch = build_launch(placed(in_order(hosts, 2), dp=dp), rails_of([hosts], hcas=2), domains=racks(*sizes))
    assert settings(launch).get("--segment") == segment


@pytest.mark.parametrize(("release", "there"), [((22, 5), False), ((24, 5), True), (None, True)])
def test_releases_without_blocks_get_no_segment(rails_of: RailsMaker, release: Release | None, there: bool) -> None:
    hosts = [f"h{k}" for k in range(4)]
    launch = build_launch(placed(in_order(hosts, 2)), rails_of([hosts], hcas=2), domains=racks(18), release=release)
    assert ("--segment" in settings(launch)) is there


def test_a_node_with_fewer_links_is_excluded_where_others_can_take_its_place(rails_of: RailsMaker) -> None:
    """b has 3 of 4 links: 75 % of the bandwidth; c is a candidate that the job does not need otherwise."""
    rails = rails_of([["a", "b", "c"]], hcas=4, missing={"b": 1})
    launch = build_launch(placed(in_order(["a", "b"], 4), spare=("c",)), rails)
    (flag,) = [flag for flag in launch.slurm_flags if flag.name == "--exclude"]
    assert (flag.value, "75%" in flag.why) == ("b", True)
    alone = build_launch(placed(in_order(["a", "b"], 4)), rails)
    assert "--exclude" not in settings(alone)
    assert any("b: links for 75%" in note for note in alone.notes)


def test_a_slow_spare_is_excluded_too_since_slurm_might_take_it(rails_of: RailsMaker) -> None:
    rails = rails_of([["a", "b", "c"]], hcas=4, missing={"c": 1})
    assert settings(build_launch(placed(in_order(["a", "b"], 4), spare=("c",)), rails))["--exclude"] == "c"


def test_reducing_switches_are_noted_and_nothing_is_set(rails_of: RailsMaker) -> None:
    rails = rails_of([["a", "b"]], hcas=1)
    launch = build_launch(placed(["a", "b"], leaf="u0r0"), rails, sharp={"u0r0"})
    assert any("NCCL_COLLNET_ENABLE" in note for note in launch.notes)
    assert "NCCL_COLLNET_ENABLE" not in settings(launch)
    assert not any("COLLNET" in note for note in build_launch(placed(["a", "b"], leaf="u0r0"), rails).notes)


def test_switches_with_an_aggregation_node_are_found_by_its_cable() -> None:
    hca = Hca(guid="h", description="n0 mlx5_0", node="n0", device="mlx5_0")
    node = Hca(guid="x", description="Mellanox Technologies Aggregation Node", node=None, device=None, sharp=True)
    switches = {guid: Switch(guid=guid, description=guid, ports=4) for guid in ("s0", "s1")}
    cables = tuple(
        Cable(a_guid=a, a_port=1, b_guid=b, b_port=port, width=4, speed="NDR", bytes_per_s=50e9)
        for port, (a, b) in enumerate([("h", "s1"), ("s0", "x")])
    )
    assert sharp_switches(Fabric(switches=switches, hcas={"h": hca, "x": node}, cables=cables)) == {"s0"}


def test_a_hostile_host_name_stays_one_word_of_one_line(rails_of: RailsMaker) -> None:
    launch = build_launch(placed(["a b\nrank 9=evil", "a"]), rails_of([["a"]], hcas=1))
    assert launch.rank_file.splitlines() == ["a_b_rank_9_evil", "a"]
    assert len(launch.mpi_rank_file.splitlines()) == 2
