"""``opsk fabric --save``, ``--history`` and ``--compare`` from the outside, with a real store of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.warm_opsk import warm

BOTH = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)
SLOWER = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2, speed="HDR")


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "a.topo").write_text(render_ibnetdiscover(BOTH))
    (tmp_path / "b.topo").write_text(render_ibnetdiscover(SLOWER))
    return tmp_path


def opsk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder / "state")}
    return warm().run(["fabric", *arguments], cwd=folder, environment=environment, stdin="", timeout_s=60.0)


def answer(folder: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
    done = opsk(folder, "--json", *arguments)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_fabrics_are_kept_listed_and_compared(dumps: Path) -> None:
    first = answer(dumps, "a.topo", "--save", "--cluster-name", "titan")
    assert first["snapshot"].keys() >= {"id", "hash", "taken_at", "new"}
    assert first["snapshot"]["new"] is True
    again = opsk(dumps, "a.topo", "--save", "--cluster-name", "titan")
    assert "unchanged since" in again.stderr
    answer(dumps, "b.topo", "--save", "--cluster-name", "titan")
    listed = answer(dumps, "--history")["snapshots"]
    assert [(row["cluster"], row["switches"], row["hcas"]) for row in listed] == [("titan", 4, 8)] * 2
    found = answer(dumps, "--compare", "previous", "latest", "--cluster-name", "titan", status=1)
    assert found.keys() == {"from", "to", "changes"}
    assert found["from"]["snapshot"]["id"] == first["snapshot"]["id"]
    assert {change["kind"] for change in found["changes"]} == {"link_changed"}
    assert len(found["changes"]) == 12  # 8 HCAs, 2 leaves x 2 spines
    assert found["changes"][0].keys() >= {"kind", "where", "before", "after"}
    with_file = answer(dumps, "--compare", "b.topo", "latest", "--cluster-name", "titan")
    assert with_file["changes"] == []
    shown = opsk(dumps, "--compare", "a.topo", "b.topo").stdout
    assert "12 link changed" in shown
    assert "4xNDR" in shown
    assert "titan" in opsk(dumps, "--history").stdout


def test_two_files_are_compared_without_any_store(dumps: Path) -> None:
    assert opsk(dumps, "--compare", "a.topo", "./a.topo").returncode == 0
    assert not (dumps / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--compare", "7", "latest"), 2, "no snapshot 7"),
        (("--compare", "a.topo", "./absent"), 2, "No such file"),
        (("--compare", "a.topo", "b.topo", "--history"), 2, "give only one"),
        (("--compare", "a.topo"), 2, "2 arguments"),
    ],
)
def test_what_cannot_be_answered_says_why(dumps: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = opsk(dumps, *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_written_is_a_service_that_is_not_there(dumps: Path) -> None:
    (dumps / "state").write_text("a file where the folder should be")
    done = opsk(dumps, "a.topo", "--save")
    assert done.returncode == 3
    assert "[store]" in done.stderr


def test_without_the_store_extra_the_command_says_how_to_install_it(dumps: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('sqlmodel', 'alembic') else real(name, *a)\n"
        "sys.argv = ['opsk', 'fabric', '--history']; from opsk.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert 'pip install "opsk[store]"' in done.stderr


def test_reading_a_dump_loads_no_database_code(dumps: Path) -> None:
    code = (
        "import sys; sys.argv = ['opsk', 'fabric', 'a.topo', '--json']; from opsk.cli.main import main\n"
        "try: main()\nexcept SystemExit: print([n for n in ('sqlmodel', 'sqlalchemy', 'alembic') if n in sys.modules],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=dumps, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
