"""``opsk plan`` on nodes and cables: the times, placements and nodes are those of ``opsk place``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import InputError, OpskError
from tests.golden.compare import assert_as_golden

MISWIRED = Path(__file__).resolve().parents[4] / "examples" / "miswired.ibnetdiscover"
ASKED = (
    *("--model", "llama-3-8b", "--cluster", "superpod-h100", "--global-batch", "64", "--gpus-per-node", "4"),
    *("--vpp", "1", "--schedule", "1f1b", "--sharding", "zero1", "--recompute", "selective"),
)
PLACED = ("rail_local_fraction", "leaf_local_fraction", "max_link_load", "inter_node_bytes")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, arguments)


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def refusal(*arguments: str) -> OpskError:
    error = run("plan", *arguments).exception
    assert isinstance(error, OpskError), error
    return error


def written(plan: dict[str, Any], path: Path) -> str:
    """Write a plan of the document as a plan file for the same model and cluster."""
    lines = ['cluster = "superpod-h100"', "gpus_per_node = 4", "[model]", 'like = "llama-3-8b"', "[plan]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in plan.items() if name != "gpus"]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.parametrize(
    "cables",
    [
        ("--node-list", "n[0-3,8-11]", "--fabric", str(MISWIRED)),
        ("--node-list", "n[3,5,6,11]", "--fabric", str(MISWIRED)),
        ("--node-list", "a[1-8]"),
    ],
)
def test_place_says_the_same_of_the_plan(cables: tuple[str, ...], tmp_path: Path) -> None:
    planned = document("plan", *ASKED, *cables)
    assert planned["fabric"]["is_exact"]
    for best in planned["best"][:2]:
        on = ("--nodes", *cables[1:])
        placed = document("place", written(best["plan"], tmp_path / "plan.toml"), *on)
        mine = best["placement"]
        assert mine["step_s"] == pytest.approx(placed["predicted"]["step_s"], rel=1e-9)
        assert mine["predicted"] == placed["predicted"]
        assert {name: mine[name] for name in PLACED} == {name: placed[name] for name in PLACED}
        assert mine["versus_default"] == placed["versus_default"]
        assert mine["nodes"] == placed["nodes"]
        assert best["time"]["step_s"]["expected"] == pytest.approx(mine["step_s"])
        assert mine["step_s"] >= mine["ideal_step_s"] * (1 - 1e-9)


def test_the_node_list_fixes_the_gpus() -> None:
    planned = document("plan", *ASKED, "--node-list", "a[1-8]")
    assert (planned["gpus"], planned["fabric"]["nodes"]) == (32, 8)
    assert all(best["plan"]["gpus"] == 32 for best in planned["best"])
    assert "fabric" in {item["field"] for item in planned["assumed"]}


def test_of_more_nodes_than_needed_the_best_are_taken() -> None:
    """Nodes n3, n5 and n11 have faults; of the eight nodes of the first unit four are wanted."""
    planned = document("plan", *ASKED, "--node-list", "n[0-7]", "--fabric", str(MISWIRED), "--gpus", "16", "--tp", "4")
    assert len(planned["best"][0]["placement"]["nodes"]) == 4
    assert len(planned["best"][0]["placement"]["spare_nodes"]) == 4
    assert "n3" in planned["best"][0]["placement"]["spare_nodes"]


def test_without_a_node_list_all_of_the_fabric_may_be_used() -> None:
    planned = document("plan", *ASKED, "--fabric", str(MISWIRED), "--tp", "4", "--pp", "1", "--cp", "1")
    assert planned["gpus"] == 64


def test_without_cables_nothing_changes() -> None:
    planned = document("plan", *ASKED, "--gpus", "32")
    assert "fabric" not in planned
    assert isinstance(planned["best"][0]["placement"], list)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--node-list", ""), "names no node"),
        (("--node-list", "n[0-"), "brackets"),
        (("--node-list", "a[1-2]", "--gpus", "64"), "64 GPUs are wanted, 2 nodes of 4 have 8"),
        (("--node-list", "a[1-2]", "--nodes", "3"), "12 GPUs are wanted"),
        (("--node-list", "x[1-2]", "--fabric", str(MISWIRED)), "none of the 2 nodes"),
        (("--fabric", "/does/not/exist"), "does/not/exist"),
    ],
)
def test_what_is_wrong_with_cables_is_told(arguments: tuple[str, ...], says: str) -> None:
    error = refusal(*ASKED, *arguments)
    assert isinstance(error, InputError)
    assert says in error.message
    assert error.exit_status == 2


@pytest.mark.parametrize("other", ["--pareto", "--what-if", "--gpu-counts=8,16", "--array=4"])
def test_answers_that_know_no_cables_are_refused_beside_them(other: str) -> None:
    result = run("plan", *ASKED, "--node-list", "a[1-8]", other)
    assert result.exit_code == 2 or result.exception is not None
    assert other.split("=")[0] in str(result.exception) + result.output


def test_ctrl_c_leaves_what_is_placed_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsk.planning.search import fabric_search as on_fabric

    taken = on_fabric.FabricSearch.place_layouts

    def interrupted(self: Any, *arguments: Any) -> Any:
        for number, found in enumerate(taken(self, *arguments)):
            yield found
            if number == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(on_fabric.FabricSearch, "place_layouts", interrupted)
    planned = document("plan", *ASKED, "--node-list", "a[1-8]")
    assert planned["interrupted"]
    assert 1 <= len(planned["best"]) <= 3


def test_the_picture_says_what_cables_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MISWIRED.parent)
    result = run("plan", *ASKED, "--node-list", "n[3,5,6,11]", "--fabric", MISWIRED.name, "--top", "3")
    assert result.exception is None, result.output
    assert_as_golden("plan/fabric.txt", result.stdout[result.stdout.index("on 4 nodes") :])


def test_a_script_names_the_nodes_in_the_order_of_the_ranks(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    found = document("plan", *ASKED, "--fabric", str(MISWIRED), "--node-list", "n[3,5,6,11]", "--sbatch", str(script))
    nodes = (found["best_fitting"] or found["best"])[0]["placement"]["nodes"]
    assert f"#SBATCH --nodelist={','.join(nodes)}\n" in script.read_text()
    assert "#SBATCH --gpus-per-node=4\n" in script.read_text()
