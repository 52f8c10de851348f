"""Forwarding tables given to ``opsk fabric``: with ``--routes`` or among the files, sound, damaged, and alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsk.app.inputs.fabric_files import read_routes, split_routes
from opsk.cli.fabric.command import fabric
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.forwarding import as_dump_fts, shortest_paths, with_lids

FABRIC = with_lids(rail_optimized_fabric(nodes=4, hcas=2, leaves=4, spines=2))
TABLES = as_dump_fts(FABRIC, shortest_paths(FABRIC))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    dump, tables = tmp_path / "fabric.topo", tmp_path / "tables.fts"
    dump.write_text(render_ibnetdiscover(FABRIC))
    tables.write_text(TABLES)
    return dump, tables


def answer(*arguments: Path | str) -> dict[str, Any]:
    done = CliRunner().invoke(fabric, ["--json", *map(str, arguments)], standalone_mode=False)
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


@pytest.mark.parametrize("option", [("--routes",), ()])
def test_tables_are_followed_wherever_they_are_named(files: tuple[Path, Path], option: tuple[str, ...]) -> None:
    dump, tables = files
    document = answer(dump, *option, tables)
    assert document["routes"] == {
        "source": str(tables), "switches": 6, "destinations": 8, "unreachable": 0, "loops": 0,
    }  # fmt: skip
    assert document["faults"] == []
    assert [network["role"] for network in document["fabrics"]] == ["compute"]


def test_without_tables_routes_are_null(files: tuple[Path, Path]) -> None:
    assert answer(files[0])["routes"] is None


def test_a_dead_end_is_among_the_faults(files: tuple[Path, Path]) -> None:
    dump, tables = files
    tables.write_text(TABLES.replace("0x000e 003", "0x000e 077", 1))
    document = answer(dump, "--routes", tables)
    assert document["routes"]["unreachable"] == 1
    assert [fault["kind"] for fault in document["faults"]] == ["dead_end_route"]


def test_a_file_without_tables_is_a_finding_and_the_fabric_is_shown(files: tuple[Path, Path]) -> None:
    dump, _ = files
    document = answer(dump, "--routes", dump)
    assert document["routes"] is None
    assert [fault["kind"] for fault in document["faults"]] == ["unreadable_file"]
    assert document["summary"]["switches"] == 6


def test_one_good_file_of_two_is_enough(files: tuple[Path, Path]) -> None:
    dump, tables = files
    read = read_routes([tables, dump])
    assert read is not None
    assert [fault.kind for fault in read.faults] == ["unreadable_file"]
    with pytest.raises(InputError, match="no forwarding table"):
        read_routes([dump])
    assert read_routes([]) is None


def test_tables_alone_are_refused_with_a_hint(files: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="without a fabric"):
        fabric.main([str(files[1])], standalone_mode=False)


def test_packed_tables_are_told_too(files: tuple[Path, Path]) -> None:
    dump, tables = files
    packed = tables.with_suffix(".gz")
    packed.write_bytes(gzip.compress(tables.read_bytes()))
    assert split_routes([dump, packed, dump.parent, Path("-"), Path("absent")]) == (
        [dump, dump.parent, Path("-"), Path("absent")],
        [packed],
    )
    assert answer(dump, packed)["routes"]["switches"] == 6
