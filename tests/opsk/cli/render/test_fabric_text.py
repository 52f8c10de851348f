"""Matrix and tree in terminals of several widths, with and without colour, whatever a dump says."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from opsk.cli.fabric.text import print_views
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.fabric.views.marks import Loads
from tests.fakes.miswired import clean, findings, miswired, some_loads
from tests.golden.compare import assert_as_golden


def shown(fabric: Fabric, width: int, loads: Loads | None = None, *, colour: bool = False) -> str:
    console = Console(
        width=width, file=io.StringIO(), highlight=False, force_terminal=colour, color_system="256" if colour else None
    )
    faults = findings(fabric) if any(hca.node == "ufm" for hca in fabric.hcas.values()) else ()
    print_views(console, fabric, replace(find_rails(fabric), faults=faults), loads)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", ["clean", "miswired", "loaded"])
def test_the_pictures_are_as_they_were_accepted(name: str, width: int):
    fabric = clean() if name == "clean" else miswired()
    loads = some_loads(fabric) if name == "loaded" else None
    assert_as_golden(f"fabric/{name}-{width}.txt", shown(fabric, width, loads))


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("hcas", [1, 4, 8, 16])
def test_no_line_is_wider_than_the_terminal(hcas: int, width: int):
    fabric = rail_optimized_fabric(
        nodes=40,
        hcas=hcas,
        leaves=2 * hcas,
        spines=2,
        names=[f"a-long-name-of-a-node-{index:03d}" for index in range(40)],
    )
    for loads in (None, some_loads(miswired())):
        assert max(cell_len(line) for line in shown(fabric, width, loads).splitlines()) <= width


def test_every_rail_is_shown_however_narrow_the_terminal():
    fabric = rail_optimized_fabric(nodes=4, hcas=16, leaves=16, spines=1)
    assert set(re.findall(r"rail (\d+)", shown(fabric, 60))) == set(map(str, range(16)))


def test_colour_changes_nothing_but_colour():
    coloured = shown(miswired(), 100, some_loads(miswired()), colour=True)
    assert "\x1b[" in coloured
    plain = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()) + "\n"
    assert plain == shown(miswired(), 100, some_loads(miswired()))


@given(hostile=st.text(max_size=60))
def test_no_text_of_a_dump_controls_the_terminal(hostile: str):
    fabric = miswired()
    switches = {
        guid: replace(entry, description=hostile + entry.description) for guid, entry in fabric.switches.items()
    }
    hcas = {
        guid: replace(hca, node=f"{hostile}{hca.node}", device=f"{hostile}{hca.device}")
        for guid, hca in fabric.hcas.items()
    }
    said = shown(replace(fabric, switches=switches, hcas=hcas), 100, some_loads(fabric))
    assert all(sign.isprintable() or sign == "\n" for sign in said)


def test_a_locale_without_arrows_gets_no_traceback(root: Path, run_opsk):  # type: ignore[no-untyped-def]
    done = run_opsk("fabric", str(root / "examples/lab/fabric.ibnetdiscover"), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "16? 16?" in done.stdout
