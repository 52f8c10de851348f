"""Do the explanations speak of the code that there is? Parameters, modules, deadlines and links between them."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

from opsk.config import AdvisorConfig


def text(root: Path, name: str) -> str:
    return (root / "docs/explanation" / name).read_text(encoding="utf-8")


def test_every_fitted_parameter_is_explained_and_every_explained_one_is_there(root: Path) -> None:
    tables = tomllib.loads((root / "opsk/costmodel/efficiency/efficiency.toml").read_text(encoding="utf-8"))
    fitted: set[str] = set()
    # [widths] says how well each of the others was fitted
    waiting = [value for name, value in tables.items() if isinstance(value, dict) and name != "widths"]
    for table in waiting:
        waiting += [value for value in table.values() if isinstance(value, dict)]
        fitted |= {name for name, value in table.items() if not isinstance(value, dict)}
    page = text(root, "cost-model.md")
    named = {name for name in fitted if f"`{name}`" in page or (name.endswith("_overlap") and "`…_overlap`" in page)}
    spread = {name for name in fitted if name.endswith("log_sigma")}  # of the ranges: their section tells what they do
    assert fitted - named - spread == set()
    table_of_them = page.partition("## Efficiencies")[2].partition("### Ranges")[0]
    explained = {name for row in re.findall(r"^\| (`[^|]+) \|", table_of_them, re.MULTILINE)
                 for name in re.findall(r"`([a-z0-9_]+)`", row)}  # fmt: skip
    assert explained - fitted == set()


def test_every_module_that_the_cost_model_names_is_there(root: Path) -> None:
    """By its whole name anywhere, or by its short one in the last column of a table of formulas."""
    page = text(root, "cost-model.md")
    whole = set(re.findall(r"`(opsk(?:\.[a-z_]+)+)", page))
    tables = re.findall(r"^\|[^\n]*\| module \|\n(?:\|[^\n]*\n)+", page, re.MULTILINE)
    short = {
        f"opsk.costmodel.{name}"
        for table in tables
        for row in table.splitlines()
        for name in re.findall(r"`([a-z_.]+)`", row.rstrip("| ").rpartition("|")[2])
    }
    assert len(tables) > 3
    assert sorted(name for name in whole | short if not (_is_module(name) or _is_module(name.rpartition(".")[0]))) == []
    assert sorted(name for name in short if not _is_module(name)) == []


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_deadlines_are_those_of_the_configuration(root: Path) -> None:
    page = text(root, "nothing-can-hurt-slurmctld.md")
    submit, client = (AdvisorConfig.model_fields[name].default for name in ("submit_deadline_s", "cli_deadline_s"))
    assert f"≤ {client * 1000:.0f} ms" in page
    assert f"≤ {submit * 1000:.0f} ms" in page
    hook = (root / "jobcheck/opsk_jobcheck/lua/job_submit.lua").read_text(encoding="utf-8")
    share = float(re.findall(r"SHARE_OF_DEADLINE = ([0-9.]+)", hook)[0])
    assert f"waits for {submit * share * 1000:.0f} ms of it" in page
