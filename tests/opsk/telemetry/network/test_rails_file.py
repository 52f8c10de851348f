"""Does a node find the place of its own ports in the site's rails file, and only those?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.telemetry.network.rails_file import PortPlace, RailsFile, write_rails

PLACES = tuple(
    PortPlace(
        guid=f"{index:016x}",
        port=port,
        node=f"n{index}",
        rail=index % 8 if port == 1 else None,
        leaf=f'leaf "{index}"',
        switch=f"ffff{index:012x}",
        switch_port=index,
        role="compute" if port == 1 else "storage",
    )
    for index in range(20)
    for port in (1, 2)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_rails(tmp_path / "rails.json", PLACES, source="dump", generated="2026-01-02T03:04:05+00:00")
    return tmp_path / "rails.json"


def test_a_node_reads_its_own_ports(path: Path) -> None:
    reading = RailsFile(path).read([f"{3:016x}", f"{5:016x}", "not a guid"])
    assert reading.places == {(each.guid, each.port): each for each in PLACES if each.node in ("n3", "n5")}
    assert reading.problem == ""
    assert reading.modified == path.stat().st_mtime


def test_the_file_is_one_json_document(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["source"], document["generated"]) == ("dump", "2026-01-02T03:04:05+00:00")
    assert len(document["ports"]) == len(PLACES)
    assert document["ports"][f"{3:016x}/1"]["rail"] == 3


def test_an_empty_fabric_makes_a_document_too(tmp_path: Path) -> None:
    assert write_rails(tmp_path / "r.json", (), source="", generated="") == 0
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["ports"] == {}
    assert RailsFile(tmp_path / "r.json").read(["0" * 16]).problem == ""


def test_a_file_that_changed_is_read_again_and_else_not(path: Path) -> None:
    rails, guid = RailsFile(path), PLACES[0].guid
    first = rails.read([guid])
    assert rails.read([guid]) is first
    write_rails(path, [PortPlace(guid=guid, port=1, rail=7)], source="", generated="")
    assert rails.read([guid]).places == {(guid, 1): PortPlace(guid=guid, port=1, rail=7)}


def test_a_new_hca_is_looked_for(path: Path) -> None:
    rails = RailsFile(path)
    rails.read([PLACES[0].guid])
    assert (PLACES[2].guid, 1) in rails.read([PLACES[0].guid, PLACES[2].guid]).places


def test_no_file_is_said_and_one_that_comes_is_read(path: Path, tmp_path: Path) -> None:
    rails = RailsFile(tmp_path / "later.json")
    reading = rails.read([PLACES[0].guid])
    assert "No such file" in reading.problem
    assert (reading.modified, reading.places) == (None, {})
    path.rename(tmp_path / "later.json")
    assert rails.read([PLACES[0].guid]).problem == ""


@pytest.mark.parametrize("text", ["", "{}", '{"ports": {}}', "\x00\xff", "x" * 100_000])
def test_another_file_is_no_rails_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    assert "no rails file" in RailsFile(tmp_path / "r.json").read([PLACES[0].guid]).problem


def test_damaged_lines_are_counted_and_the_others_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(f'"{PLACES[0].guid}/1": {{"node"', f'"{PLACES[0].guid}/1": {{node')
    path.write_text(text, encoding="utf-8")
    reading = RailsFile(path).read([PLACES[0].guid])
    assert list(reading.places) == [(PLACES[0].guid, 2)]
    assert "1 damaged" in reading.problem


@given(st.integers(0, 4000))
def test_a_file_that_was_cut_gives_what_is_left(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "rails.json"
    write_rails(path, PLACES, source="dump", generated="")
    path.write_bytes(path.read_bytes()[:length])
    places = RailsFile(path).read(each.guid for each in PLACES).places
    assert set(places.values()) <= set(PLACES)


@pytest.mark.parametrize("nested", ["[" * 3900 + "]", '{"a":' * 700 + "1" + "}" * 700, "9" * 4000])
def test_a_line_that_is_nested_too_deeply_is_damaged(tmp_path: Path, nested: str) -> None:
    path = tmp_path / "rails.json"
    write_rails(path, PLACES, source="dump", generated="2026-01-02T03:04:05+00:00")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[1] = f'"{0:016x}/1": {{"rail": {nested}}},\n'
    path.write_text("".join(lines), encoding="utf-8")
    reading = RailsFile(path).read([f"{0:016x}", f"{5:016x}"])
    assert (f"{5:016x}", 1) in reading.places
    place = reading.places.get((f"{0:016x}", 1))
    assert place is None or place.rail is None


def test_values_of_another_type_are_left_out(tmp_path: Path) -> None:
    guid = PLACES[0].guid
    (tmp_path / "r.json").write_text(
        '{"format": "opsk rails 1", "ports": {\n'
        f'"{guid}/1": {{"rail": "x", "leaf": 3, "switch_port": true}},\n'
        "}}\n",
        encoding="utf-8",
    )
    assert RailsFile(tmp_path / "r.json").read([guid]).places == {(guid, 1): PortPlace(guid=guid, port=1)}


def test_a_folder_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rails\.json: No such file"):
        write_rails(tmp_path / "no" / "rails.json", PLACES, source="", generated="")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a plain list to compare with
