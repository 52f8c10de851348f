"""The SVG of a fabric: as accepted, well-formed whatever a dump says, small, and drawn by a real browser."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.app.inputs.fabric_files import read_dump
from opsk.cli.render.fabric_svg import KINDS, render_fabric_svg
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.fabric.views.marks import Loads
from tests.fakes.browser import chromium_or_skip
from tests.fakes.miswired import clean, findings, miswired, some_loads
from tests.golden.compare import assert_as_golden

SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {"svg", "title", "desc", "style", "rect", "text", "path", "g"}
_HOSTILE = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("<>&\"'\x00\x1b\x08\u202e\ufffe\U0001f600;]")), max_size=80
)


def drawn(fabric: Fabric, kind: str = "both", loads: Loads | None = None) -> str:
    faults = findings(fabric) if any(hca.node == "ufm" for hca in fabric.hcas.values()) else ()
    return render_fabric_svg(fabric, replace(find_rails(fabric), faults=faults), loads, kind=kind)


def read(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.encode())


@pytest.mark.parametrize(
    ("name", "fabric", "loads"),
    [
        ("clean", clean(), None),
        ("miswired", miswired(), None),
        ("loaded", miswired(), some_loads(miswired())),
    ],
)
def test_the_picture_is_as_it_was_accepted(name: str, fabric: Fabric, loads: Loads | None):
    assert_as_golden(f"fabric/{name}.svg", drawn(fabric, loads=loads))


@pytest.mark.parametrize("kind", KINDS)
def test_the_picture_stands_on_its_own_and_says_what_it_is(kind: str):
    root = read(drawn(miswired(), kind, some_loads(miswired())))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= _ELEMENTS
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[1].tag == f"{SVG}desc"
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "prefers-color-scheme:dark" in (style.text or "")
    assert not re.search(r"url\(|@import|http", style.text or "")
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]


def test_faults_are_told_in_words_where_they_are():
    said = " | ".join(element.text or "" for element in read(drawn(miswired())).iter(f"{SVG}text"))
    for words in (
        "⇄ leaf3",
        "⇄ leaf2",
        "✗ missing",
        "▾ 200 of 400 Gbit/s",
        "0 of 2",
        "1 of 2",
        "slow",
        "⚠ hosts on a sp",
    ):
        assert words in said
    assert "⚠" not in " ".join(element.text or "" for element in read(drawn(clean())).iter(f"{SVG}text"))


def test_loads_stand_as_numbers_in_tooltips_and_on_the_busiest_link():
    root = read(drawn(miswired(), "tree", some_loads(miswired())))
    tooltips = [title.text or "" for path in root.iter(f"{SVG}path") for title in path.iter(f"{SVG}title")]
    assert "leaf6 to spine3\n1 of 2 cables\nup: 137%" in tooltips
    assert "137%" in [element.text for element in root.iter(f"{SVG}text")]


@given(switch=_HOSTILE, node=_HOSTILE, source=_HOSTILE)
def test_no_text_of_a_dump_breaks_the_document(switch: str, node: str, source: str):
    fabric = miswired()
    switches = {guid: replace(entry, description=switch + entry.description) for guid, entry in fabric.switches.items()}
    hcas = {
        guid: replace(hca, node=f"{node}{hca.node}", device=f"{node}{hca.device}", description=switch)
        for guid, hca in fabric.hcas.items()
    }
    hostile = replace(fabric, switches=switches, hcas=hcas, source=source)
    found = find_rails(hostile, compute_nodes=[f"{node}n{index}" for index in range(16)])
    root = read(render_fabric_svg(hostile, found, some_loads(fabric)))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= _ELEMENTS


@given(damage=st.randoms(use_true_random=False))
def test_any_cabling_can_be_drawn(damage: random.Random) -> None:
    fabric = miswired()
    ends = list(fabric.switches)
    cables = tuple(
        replace(cable, b_guid=damage.choice(ends)) if damage.random() < 0.3 else cable
        for cable in fabric.cables
        if damage.random() < 0.8
    )
    broken = replace(fabric, cables=cables)
    assert read(render_fabric_svg(broken, find_rails(broken))).tag == f"{SVG}svg"


@pytest.mark.parametrize("fabric", [replace(clean(), cables=()), replace(clean(), switches={}, cables=(), hcas={})])
def test_a_fabric_of_nothing_is_a_picture_all_the_same(fabric: Fabric):
    assert read(drawn(fabric)).tag == f"{SVG}svg"


def test_two_thousand_nodes_make_a_small_picture():
    fabric = rail_optimized_fabric(nodes=2048, hcas=8, leaves=512, spines=32, pods=8, cores_per_spine=4)
    loads = {(leaf, spine): 0.1 * (index % 9) for index, (leaf, spine) in enumerate(_up(fabric))}
    assert len(render_fabric_svg(fabric, find_rails(fabric))) < 100_000
    assert len(render_fabric_svg(fabric, find_rails(fabric), loads)) < 5_000_000


def _up(fabric: Fabric) -> list[tuple[str, str]]:
    switches = fabric.switches
    return [(c.a_guid, c.b_guid) for c in fabric.cables if c.a_guid in switches and c.b_guid in switches]


def test_the_command_writes_what_was_asked_for(tmp_path: Path, run_opsk):  # type: ignore[no-untyped-def]
    dump = tmp_path / "dump"
    dump.write_text(render_ibnetdiscover(miswired()))
    out = tmp_path / "out.svg"
    done = run_opsk("fabric", str(dump), "--svg", str(out), "--svg-kind", "tree")
    assert done.returncode == 0
    assert "Tiers" in done.stdout
    assert "Rails by node" not in out.read_text()
    done = run_opsk("fabric", str(dump), "--svg", "-")
    assert read(done.stdout).tag == f"{SVG}svg"
    done = run_opsk("fabric", str(dump), "--svg", "-", "--json")
    assert (done.returncode, done.stdout, "--json" in done.stderr) == (2, "", True)
    done = run_opsk("fabric", str(dump), "--svg", str(tmp_path / "no" / "out.svg"))
    assert (done.returncode, "--svg" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_the_example_is_the_miswired_fabric(root: Path):
    assert (root / "examples/miswired.ibnetdiscover").read_text() == render_ibnetdiscover(miswired())


def test_a_real_browser_draws_it(tmp_path: Path):
    """Chromium shows a page of its own in place of a picture with an error: what is drawn has the picture's texts."""
    browser = chromium_or_skip()
    page = tmp_path / "fabric.svg"
    page.write_text(drawn(miswired(), loads=some_loads(miswired())))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
         f"--screenshot={tmp_path}/fabric.png", "--window-size=1201,1200", page.as_uri()],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-500:]
    assert (tmp_path / "fabric.png").stat().st_size > 20_000  # an empty page of this size is below 10 kB


@pytest.mark.shared
def test_every_open_fabric_can_be_drawn(shared: Path):
    for path in sorted((shared / "data/real/ib_fabric").iterdir()):
        try:
            fabric = read_dump(path)
        except InputError:
            continue
        rails = find_rails(fabric)
        for kind in KINDS:
            drawn_kind = render_fabric_svg(fabric, rails, kind=kind)
            assert read(drawn_kind).tag == f"{SVG}svg", path.name
            assert len(drawn_kind) < 500_000


@pytest.mark.shared
def test_the_swapped_hcas_of_the_dgx_cluster_are_seen(shared: Path):
    fabric = read_dump(shared / "data/real/ib_fabric/ndr_dgx_rail_40sw.ibnetdiscover")
    said = [element.text or "" for element in read(render_fabric_svg(fabric, find_rails(fabric))).iter(f"{SVG}text")]
    assert [text for text in said if text.startswith("⇄ ") and "LEAF" in text] == [
        "⇄ B09-P1-IBLEAF-04-08",
        "⇄ B09-P1-IBLEAF-03-08",
    ]
