"""Names in few words say the same as all names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric, Switch
from opsk.fabric.views.names import build_switch_labels, format_ranges
from opsk.hostlist import expand

_NAMES = st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,3}(-[a-c]?[0-9]{1,2})?", fullmatch=True), unique=True, max_size=30)


@given(_NAMES)
def test_ranges_expand_to_the_names_they_came_from(names: list[str]):
    assert set(expand(format_ranges(names))) == set(names)


def test_zeros_in_front_are_kept():
    assert format_ranges(["x8", "x9", "x10", "x08", "x09"]) == "x[8,08,9,09-10]"
    assert (
        format_ranges(f"leaf-{rail:02d}-{unit:02d}" for rail in (1, 2) for unit in (8, 9, 10)) == "leaf-[01-02]-[08-10]"
    )


def test_guids_are_no_numbers():
    assert format_ranges(["b8cef60300617a1a", "b8cef60300617a2a"]) == "b8cef60300617a1a,b8cef60300617a2a"


def test_any_text_is_taken():
    assert format_ranges(["", "[", "\x1b1", "\x1b2"]) == ",\x1b[1-2],["
    assert format_ranges([]) == ""


def test_switches_of_one_name_are_called_by_their_guid():
    named = {guid: Switch(guid=guid, description=text, ports=1) for guid, text in (("a", "x"), ("b", "x"), ("c", " "))}
    assert build_switch_labels(Fabric(switches=named, hcas={}, cables=())) == {"a": "a", "b": "b", "c": "c"}
    labels = build_switch_labels(rail_optimized_fabric(nodes=2, hcas=2, leaves=2, spines=1))
    assert sorted(labels.values()) == ["leaf0", "leaf1", "spine0"]
