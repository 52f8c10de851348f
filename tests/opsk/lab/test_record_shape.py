import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.lab.record import LabShape


def test_the_default_lab_is_sixteen_nodes_on_eight_leaves_and_four_spines():
    shape = LabShape()
    assert (shape.nodes, shape.gpus, shape.hcas, shape.leaves, shape.spines) == (16, 8, 8, 8, 4)
    assert shape.host_list == "n[0-15]"


def test_every_number_out_of_range_is_named():
    with pytest.raises(InputError) as caught:
        LabShape(nodes=0, gpus=99, spines=-1)
    assert all(word in caught.value.message for word in ("nodes is 0", "gpus is 99", "spines is -1"))


def test_leaves_that_do_not_fit_the_hcas_are_refused():
    with pytest.raises(InputError, match="5 leaves"):
        LabShape(hcas=8, leaves=5)


def test_more_hcas_than_ibsim_holds_are_refused():
    with pytest.raises(InputError, match="ibsim"):
        LabShape(nodes=512, hcas=8)


@given(
    nodes=st.integers(1, 30),
    hcas=st.sampled_from([1, 2, 4, 8]),
    leaves=st.sampled_from([1, 2, 4, 8, 16]),
    spines=st.integers(1, 6),
)
def test_leaves_have_as_many_uplinks_as_the_shape_says(nodes: int, hcas: int, leaves: int, spines: int):
    shape = LabShape(nodes=nodes, hcas=hcas, leaves=leaves, spines=spines)
    fabric = rail_optimized_fabric(
        nodes=nodes, hcas=hcas, leaves=leaves, spines=spines, cables_per_pair=shape.cables_per_pair, names=shape.names
    )
    down = dict.fromkeys(fabric.switches, 0)
    up = dict.fromkeys(fabric.switches, 0)
    for cable in fabric.cables:
        ends = (cable.a_guid, cable.b_guid)
        between_switches = all(end in fabric.switches for end in ends)
        for end in ends:
            if end in fabric.switches:
                (up if between_switches else down)[end] += 1
    assert max(down.values()) == shape.leaf_downlinks
    ratios = [down[guid] / up[guid] for guid in fabric.switches if down[guid]]
    assert max(*ratios, 1.0) == shape.oversubscription


def test_the_default_lab_has_full_bisection():
    assert LabShape().oversubscription == 1.0


def test_a_leaf_without_ports_for_full_bisection_is_oversubscribed():
    # 16 nodes x 8 HCAs are 128 downlinks of one leaf; 254 - 128 ports are left for uplinks.
    assert LabShape(leaves=1, spines=1).oversubscription == 128 / 126


def test_a_leaf_with_too_few_ports_is_refused():
    with pytest.raises(InputError, match="use more leaves"):
        LabShape(nodes=64, leaves=1)
