"""The matrix puts alike nodes in one row and each fault in the cell where it is."""

from __future__ import annotations

from dataclasses import replace

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.fabric.views.matrix import Cell, Matrix, Row, State, build_matrix
from tests.fakes.miswired import clean, findings, miswired, some_loads


def found(fabric: Fabric) -> Rails:
    return replace(find_rails(fabric), faults=findings(fabric))


def cell(matrix: Matrix, node: str, rail: int) -> Cell:
    return row(matrix, node).cells[rail]


def row(matrix: Matrix, node: str) -> Row:
    return next(row for block in matrix.blocks for row in block.rows if node in row.nodes)


def test_a_clean_unit_is_one_row():
    matrix = build_matrix(clean(), find_rails(clean()))
    assert [[row.nodes for row in block.rows] for block in matrix.blocks] == [
        [tuple(f"n{index}" for index in range(8))],
        [tuple(f"n{index}" for index in range(8, 16))],
    ]
    assert matrix.devices == (("mlx5_0",), ("mlx5_1",), ("mlx5_2",), ("mlx5_3",))
    assert all(row.regular for block in matrix.blocks for row in block.rows)


def test_swapped_hcas_stand_on_the_rails_where_they_belong():
    fabric = miswired()
    matrix = build_matrix(fabric, found(fabric))
    labels = {guid: switch.description for guid, switch in fabric.switches.items()}
    for rail, device, leaf in ((2, "mlx5_2", "leaf3"), (3, "mlx5_3", "leaf2")):
        wrong = cell(matrix, "n5", rail)
        assert (wrong.state, wrong.devices) == (State.WRONG, (device,))
        assert [labels[guid] for guid in wrong.leaves] == [leaf]


def test_a_missing_hca_and_a_slow_one_are_marked_in_their_cells_alone():
    fabric = miswired()
    matrix = build_matrix(fabric, found(fabric))
    assert [cell.state for cell in row(matrix, "n11").cells] == [State.OK, State.MISSING, State.OK, State.OK]
    slow = cell(matrix, "n3", 0)
    assert slow.state is State.SLOW
    assert slow.bytes_per_s * 2 == slow.usual_bytes_per_s  # HDR among NDR
    assert row(matrix, "n0").nodes == ("n0", "n1", "n2", "n4", "n6", "n7")


def test_what_the_detection_finds_by_itself_shows_as_well():
    fabric = miswired()
    matrix = build_matrix(fabric, find_rails(fabric))
    assert cell(matrix, "n5", 2).state is State.WRONG
    assert cell(matrix, "n11", 1).state is State.MISSING
    assert cell(matrix, "n3", 0).state is State.SLOW


def test_a_short_leaf_is_marked_in_its_unit():
    fabric = miswired()
    marked = [head for block in build_matrix(fabric, found(fabric)).blocks for head in block.heads if head.faults]
    assert [(head.hca_links, head.uplinks) for head in marked] == [(8, 5)]


def test_every_compute_node_stands_in_one_row():
    for fabric in (clean(), miswired(), rail_optimized_fabric(nodes=520, hcas=2, leaves=26, spines=1)):
        rails = find_rails(fabric)
        for fold in (False, True):
            matrix = build_matrix(fabric, rails, fold=fold)
            names = [name for block in matrix.blocks for row in block.rows for name in row.nodes]
            assert sorted(names) == sorted(rails.attachments)


def test_many_units_that_are_alike_are_one_block_and_an_odd_one_stays_alone():
    fabric = rail_optimized_fabric(nodes=127, hcas=2, leaves=32, spines=1)  # 16 units of 8, the last of 7
    matrix = build_matrix(fabric, find_rails(fabric))
    assert [block.units for block in matrix.blocks] == [tuple(range(15)), (15,)]


def test_loads_keep_nodes_apart_by_step_and_stand_in_the_cells():
    fabric = miswired()
    matrix = build_matrix(fabric, found(fabric), some_loads(fabric))
    assert cell(matrix, "n0", 0).load == 0.3
    assert cell(matrix, "n0", 1).load is None
    assert max(head.load or 0 for block in matrix.blocks for head in block.heads) == 1.37


def test_a_fabric_without_compute_nodes_is_an_empty_matrix():
    fabric = replace(clean(), hcas={}, cables=())
    assert build_matrix(fabric, find_rails(fabric)).devices == ()
