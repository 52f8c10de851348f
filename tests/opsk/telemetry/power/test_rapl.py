"""Do RAPL's counters become joules that only grow, each zone once, and is what may not be read said to be there?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.power.rapl import RaplReader
from tests.fakes.powercap import SERVER_RANGE_UJ, PowerTree
from tests.fakes.ttar_links import extract_with_links


@pytest.fixture
def tree(tmp_path: Path) -> PowerTree:
    return PowerTree(tmp_path / "sys")


def energies(reader: RaplReader) -> dict[str, float | None]:
    return {zone.zone: zone.energy_j for zone in reader.zones()}


def test_packages_and_what_is_in_them_are_told_in_joules(tree: PowerTree) -> None:
    tree.socket(0, 1_500_000, dram_uj=250_000)
    tree.socket(1, 2_000_000, dram_uj=500_000)
    tree.zone("intel-rapl:2", "psys", 9_000_000)
    # Microjoules over a million.
    assert energies(RaplReader(tree.root)) == {
        "package-0": 1.5,
        "package-1": 2.0,
        "psys": 9.0,
        "package-0/dram": 0.25,
        "package-1/dram": 0.5,
    }


@pytest.mark.parametrize(
    ("name", "domain"),
    [("package-10", "package"), ("package-0-die-1", "package"), ("core", "core"), ("psys-1", "psys"), ("9x", "9x")],
)
def test_a_name_with_digits_has_the_domain_of_its_word(tree: PowerTree, name: str, domain: str) -> None:
    tree.zone("intel-rapl:a", name, 1)
    (zone,) = RaplReader(tree.root).zones()
    assert (zone.zone, zone.domain, zone.top) == (name, domain, True)


def test_the_counter_goes_on_where_the_kernels_begins_again(tree: PowerTree) -> None:
    reader = RaplReader(tree.root)
    tree.socket(0, SERVER_RANGE_UJ - 1_000_000)
    before = energies(reader)["package-0"]
    tree.socket(0, 3_000_000)
    after = energies(reader)["package-0"]
    assert before is not None
    assert after is not None
    # 1 J up to the end of the range and 3 J after it.
    assert after - before == pytest.approx(4.0)


@given(st.lists(st.integers(0, SERVER_RANGE_UJ - 1), min_size=1, max_size=30), st.integers(0, SERVER_RANGE_UJ - 1))
def test_energy_is_what_was_added_however_often_the_counter_turned(added: list[int], start: int) -> None:
    reader, raw = RaplReader(Path("/nowhere")), start
    totals = [reader._total_uj("zone", raw, SERVER_RANGE_UJ)]
    for step in added:
        raw = (raw + step) % SERVER_RANGE_UJ
        totals.append(reader._total_uj("zone", raw, SERVER_RANGE_UJ))
    assert totals[-1] - totals[0] == sum(added)
    assert totals == sorted(totals)


def test_a_counter_without_a_range_never_falls(tree: PowerTree) -> None:
    reader = RaplReader(tree.root)
    tree.zone("intel-rapl:0", "package-0", 5_000_000, range_uj=None)
    reader.zones()
    tree.zone("intel-rapl:0", "package-0", 2_000_000, range_uj=None)
    # Where it turned nobody knows; the 2 J since are sure.
    assert energies(reader) == {"package-0": 7.0}


def test_what_a_second_interface_shows_again_counts_once(tree: PowerTree) -> None:
    tree.socket(0, 1_000_000)
    tree.zone("intel-rapl:0:0", "core", 1)
    tree.zone("intel-rapl-mmio:0", "package-0", 1_000_001)
    tree.zone("intel-rapl-mmio:0:0", "core", 2)
    assert [zone.folder for zone in RaplReader(tree.root).zones()] == ["intel-rapl:0", "intel-rapl:0:0"]


def test_a_second_interface_alone_is_used(tree: PowerTree) -> None:
    tree.zone("intel-rapl-mmio:0", "package-0", 1_000_000)
    assert energies(RaplReader(tree.root)) == {"package-0": 1.0}


def test_two_zones_of_one_name_are_told_apart(tree: PowerTree) -> None:
    tree.zone("intel-rapl:0", "package-0", 1_000_000)
    tree.zone("intel-rapl:1", "package-0", 2_000_000)
    assert energies(RaplReader(tree.root)) == {"package-0": 1.0, "package-0@intel-rapl:1": 2.0}


def test_energy_that_cannot_be_read_is_there_without_a_value(tree: PowerTree) -> None:
    tree.socket(0, 1)
    path = tree.root / "class/powercap/intel-rapl:0/energy_uj"
    path.unlink()
    # read() of a folder fails for everyone, root included.
    path.mkdir()
    (zone,) = RaplReader(tree.root).zones()
    assert (zone.energy_j, zone.unreadable) == (None, "error")


def test_energy_for_root_alone_is_told_as_that(tree: PowerTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.socket(0, 1, dram_uj=1)
    really = os.open

    def refuse(path: str, *rest: int) -> int:
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied")
        return really(path, *rest)

    monkeypatch.setattr("os.open", refuse)
    zones = RaplReader(tree.root).zones()
    assert [(zone.energy_j, zone.unreadable) for zone in zones] == [(None, "permission")] * 2


@pytest.mark.parametrize("text", ["", "N/A", "-5", "1.5e6"])
def test_what_is_no_energy_is_no_zero(tree: PowerTree, text: str) -> None:
    tree.zone("intel-rapl:0", "package-0", text)
    assert [zone.energy_j for zone in RaplReader(tree.root).zones()] in ([], [None])


def test_the_long_term_limit_is_told(tree: PowerTree) -> None:
    path = tree.zone("intel-rapl:0", "package-0", 1)
    tree.write(path / "constraint_0_name", "short_term")
    tree.write(path / "constraint_0_power_limit_uw", "420000000")
    tree.write(path / "constraint_1_name", "long_term")
    tree.write(path / "constraint_1_power_limit_uw", "350000000")
    assert RaplReader(tree.root).zones()[0].limit_w == 350.0


def test_a_node_without_rapl_has_no_zones(tmp_path: Path) -> None:
    assert RaplReader(tmp_path).zones() == ()


@pytest.mark.shared
def test_a_recorded_tree_is_read_as_it_says(shared: Path, tmp_path: Path) -> None:
    extract_with_links(shared / "data/real/sysfs/node_exporter_sys.ttar", tmp_path, "sys/class/powercap")
    # Read off the tree: energy_uj, max_energy_range_uj and the long_term limit of its two zones.
    zones = RaplReader(tmp_path / "sys").zones()
    assert [(zone.zone, zone.energy_j, zone.range_j) for zone in zones] == [
        ("package-0", 240_422.366267, 262_143.32885),
        ("package-0/core", 118_821.284256, 262_143.32885),
    ]
