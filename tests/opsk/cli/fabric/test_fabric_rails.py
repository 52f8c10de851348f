"""``opsk fabric --rails-file``: does each HCA port get the rail, leaf and switch port that it is cabled to?"""

from __future__ import annotations

import json
import os
import string
import subprocess
from pathlib import Path

import pytest

from opsk.app.inputs.fabric_files import read_dump
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_hca_links
from opsk.fabric.rails import find_rails
from opsk.telemetry.network.port_places import build_port_places
from opsk.telemetry.network.rails_file import PortPlace, RailsFile
from tests.fakes.warm_opsk import warm

FABRIC = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)


def opsk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm().run(["fabric", *arguments], cwd=folder, environment=os.environ, stdin="", timeout_s=60.0)


def test_the_command_writes_what_a_node_reads(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(render_ibnetdiscover(FABRIC))
    done = opsk(tmp_path, "a.topo", "--rails-file", "rails.json", "--json")
    assert done.returncode == 0, done.stderr
    # 4 nodes of 2 HCAs with one port each.
    assert "rails.json: rail, leaf and switch port of 8 HCA ports" in done.stderr
    assert len(json.loads(done.stdout)["rails"]) == 2
    guid = next(iter(FABRIC.hcas))
    reading = RailsFile(tmp_path / "rails.json").read([guid])
    (place,) = reading.places.values()
    assert (place.guid, place.port, place.role) == (guid, 1, "compute")
    assert place.leaf == FABRIC.switches[place.switch].description


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a.topo").write_text(render_ibnetdiscover(FABRIC))
    done = opsk(tmp_path, "a.topo", "--rails-file", "no/rails.json")
    assert done.returncode == 2
    assert "no/rails.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_topology_of_slurm_tells_no_cables(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=leaf0 Nodes=n[0-3]\n")
    done = opsk(tmp_path, "topology.conf", "--rails-file", "rails.json")
    assert done.returncode == 2
    assert "--rails-file needs a dump" in done.stderr
    assert not (tmp_path / "rails.json").exists()


def check(fabric: Fabric) -> int:
    """Compare every place with the cables and rails that it must be of; return how many there were."""
    rails = find_rails(fabric)
    places = {(place.guid, place.port): place for place in build_port_places(fabric, rails)}
    # A GUID that someone has blacked out is no GUID of any node.
    links = {
        (link.hca.zfill(16), link.hca_port): link
        for link in find_hca_links(fabric)
        if not set(link.hca) - set(string.hexdigits)
    }
    assert places.keys() == links.keys()
    for key, link in links.items():
        assert (places[key].switch, places[key].switch_port) == (link.switch, link.switch_port)
        assert places[key].node == (fabric.hcas[link.hca].node or "")
    by_leaf: dict[tuple[str, str], list[PortPlace]] = {}
    for place in places.values():
        by_leaf.setdefault((place.guid, place.switch), []).append(place)
    for attachments in rails.attachments.values():
        for attachment in attachments:
            here = by_leaf[attachment.guid.zfill(16), attachment.leaf]
            assert attachment.rail in [place.rail for place in here]
            assert all(place.role == "compute" for place in here)
    rails_of_attachments = sorted(
        str(each.rail) for attachments in rails.attachments.values() for each in attachments if each.rail is not None
    )
    assert sorted(str(place.rail) for place in places.values() if place.rail is not None) == rails_of_attachments
    return len(places)


@pytest.mark.parametrize("hcas", [1, 2, 8])
def test_every_port_of_a_made_fabric_is_placed(hcas: int) -> None:
    assert check(rail_optimized_fabric(nodes=4, hcas=hcas, leaves=hcas, spines=2)) == 4 * hcas


@pytest.mark.shared
def test_every_port_of_real_fabrics_is_placed(shared: Path) -> None:
    answers = json.loads((shared / "data" / "real" / "EXPECTED.json").read_text(encoding="utf-8"))["ib_fabric"]
    for name, answer in answers.items():
        if "refuse" not in answer:
            fabric = read_dump(shared / "data" / "real" / "ib_fabric" / name)
            assert check(fabric) > 0, name
