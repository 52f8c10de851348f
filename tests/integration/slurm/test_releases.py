"""Is the Slurm that the tests meet the one that they think, and does it treat submit plugins as our hooks assume?

What `docs/explanation/slurm-releases.md` says of each release is asserted here on the release that was found.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from tests.integration.conftest import RunningLab, Slurm
from tests.integration.releases import roots

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

MOVING = "unstable"
SHOWS = """
function slurm_job_submit(job, partitions, uid)
  if job.name == "boom" then
    slurm.log_user("before")
    error("boom")
  end
  slurm.log_user("per_node %s per_job %s per_task %s", tostring(job.tres_per_node), tostring(job.tres_per_job),
    tostring(job.tres_per_task))
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def plugin_lab(lab_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab of one node whose job_submit.lua tells what it sees, and fails for jobs of the name ``boom``."""
    path = tmp_path_factory.mktemp("plugin") / "lab"
    record, _ = up(path, shape=LabShape(nodes=1), parts=(), progress=lambda _: None)
    try:
        (record.folder.etc / "job_submit.lua").write_text(SHOWS)
        with record.folder.slurm_conf.open("a") as conf:
            conf.write("JobSubmitPlugins=lua\n")
        environment = {"PATH": build_search_path(), "HOME": str(path.parent), "LC_ALL": "C.UTF-8"}
        found = RunningLab(path=path, environment={**environment, **build_slurm_environment(record)})
        assert found.run("scontrol", "reconfigure").returncode == 0
        time.sleep(1.1)
        yield found
    finally:
        take_down(path, record)


def shown(lab: RunningLab, *options: str) -> str:
    said = lab.run("sbatch", "--hold", *options, "--wrap", "true", cwd=lab.path.parent)
    assert said.returncode == 0, said.stderr
    return said.stderr


def test_the_slurm_found_is_that_of_its_source(lab: RunningLab, slurm: Slurm) -> None:
    for program in ("sinfo", "slurmd"):
        said = re.search(r"(\d+)\.(\d+)", lab.run(program, "-V").stdout)
        assert said is not None
        assert (int(said[1]), int(said[2])) == slurm.release
    config = lab.run("scontrol", "show", "config").stdout
    assert re.search(rf"SLURM_VERSION += {slurm.release[0]}\.{slurm.release[1]:02}\.", config)


def test_only_unstable_may_have_moved_on(slurm: Slurm) -> None:
    if slurm.source == roots.INSTALLED:
        assert slurm.release >= (22, 5)
    elif slurm.source == MOVING:
        assert slurm.release >= roots.EXPECTED[MOVING]
    else:
        assert slurm.release == roots.EXPECTED[slurm.source]


def test_a_failing_plugin_rejects_jobs_from_26_05_on(plugin_lab: RunningLab, slurm: Slurm) -> None:
    said = plugin_lab.run("sbatch", "--hold", "-J", "boom", "--wrap", "true", cwd=plugin_lab.path.parent)
    assert (said.returncode == 0) == (slurm.release < (26, 5)), said.stderr


def test_without_the_file_of_its_filter_nothing_can_be_submitted(plugin_lab: RunningLab, tmp_path: Path) -> None:
    """Of all that may happen to the hooks this is the one that stops users: Slurm itself refuses."""
    shutil.copytree(plugin_lab.path / "etc", tmp_path / "etc")
    with (tmp_path / "etc" / "slurm.conf").open("a") as conf:
        conf.write("CliFilterPlugins=lua\n")
    elsewhere = {**plugin_lab.environment, "SLURM_CONF": str(tmp_path / "etc" / "slurm.conf")}
    said = replace(plugin_lab, environment=elsewhere).run(
        "sbatch", "--hold", "--wrap", "true", cwd=plugin_lab.path.parent
    )
    assert said.returncode != 0
    assert "cli_filter.lua" in said.stderr


@pytest.mark.parametrize(
    ("option", "field", "newer", "older"),
    [
        ("--gpus-per-node=8", "per_node", "gres/gpu:8", "gres:gpu:8"),
        ("--gres=gpu:h100:2", "per_node", "gres/gpu:h100:2", "gres:gpu:h100:2"),
        ("--gpus=4", "per_job", "gres/gpu:4", "gres:gpu:4"),
    ],
)
def test_gpus_are_spelt_anew_since_23_02(
    plugin_lab: RunningLab, slurm: Slurm, option: str, field: str, newer: str, older: str
) -> None:
    spelt = re.search(rf"{field} (\S+)", shown(plugin_lab, option))
    assert spelt is not None
    assert spelt[1] == (newer if slurm.release >= (23, 2) else older)


def test_json_of_one_version_is_there_from_24_11_on(lab: RunningLab, slurm: Slurm) -> None:
    said = lab.run("sinfo", "--json=v0.0.42")
    if slurm.release >= (24, 11):
        assert json.loads(said.stdout)["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.42"


def test_a_job_runs_on_the_system_of_the_release(lab: RunningLab, slurm: Slurm, tmp_path: Path) -> None:
    """slurmd, slurmstepd and the job are all in the root; what lies in /tmp is this machine's."""
    tmp_path.chmod(0o755)
    said = lab.run("srun", "-N1", "sh", "-c", f"cat /etc/os-release && : >{tmp_path}/seen", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert said.stdout == (slurm.system / "usr/lib/os-release").read_text()
    assert (tmp_path / "seen").exists()
