"""What is handed to launchers, and what is left out because it is not certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opsk.planner.launch import Launch, launch_of
from opsk.planner.placement import place
from opsk.topology.rails import Rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

RailsMaker = Callable[..., Rails]
PLAN = Plan(tp=4, dp=2, global_batch=2)


def launched(model: ModelShape, rails: Rails, nodes: list[str], plan: Plan = PLAN) -> Launch:
    return launch_of(place(model, plan, rails, nodes, 4), rails)


def settings(launch: Launch) -> dict[str, str]:
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
