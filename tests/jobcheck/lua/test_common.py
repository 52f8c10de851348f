"""Is what both hooks share the same text in both, and what Lua 5.1 to 5.4 understand?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opsk_jobcheck.hooks import HOOKS, hook_text

BEGIN, END = "-- >>> common to both hooks", "-- <<< common to both hooks"


def common_part(name: str) -> str:
    text = hook_text(name)
    return text[text.index(BEGIN) : text.index(END)]


def test_both_hooks_carry_the_same_common_part() -> None:
    assert common_part("job_submit.lua") == common_part("cli_filter.lua")


@pytest.mark.parametrize("compiler", ["luac5.1", "luac5.3", "luac5.4"])
@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_compiles(name: str, compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / name).write_text(hook_text(name))
    done = subprocess.run([compiler, "-p", str(tmp_path / name)], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_defines_only_what_slurm_asks_for(name: str, tmp_path: Path) -> None:
    """Globals would meet those of a site's own script."""
    if shutil.which("luac5.1") is None:
        pytest.skip("luac5.1 is not installed")
    (tmp_path / name).write_text(hook_text(name))
    listing = subprocess.run(
        ["luac5.1", "-l", "-p", str(tmp_path / name)], capture_output=True, text=True, check=True
    ).stdout
    defined = {line.split(";")[-1].strip() for line in listing.splitlines() if "SETGLOBAL" in line}
    assert (
        defined
        == {
            "job_submit.lua": {"slurm_job_submit", "slurm_job_modify"},
            "cli_filter.lua": {"slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit"},
        }[name]
    )
