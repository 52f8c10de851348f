"""Every script is sound shell, starts exactly what its settings say, and stops early where something is not set."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS, Framework
from opsk.frameworks.options import Setting
from opsk.frameworks.script import Job
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from tests.opsk.frameworks.examples import LLAMA_70B, PLANS
from tests.opsk.frameworks.random_plans import trainings

EACH = pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
few = settings(
    max_examples=25, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None
)
STUB = """#!/bin/bash
printf '%s\\0' "$0" "$@" > "$OUT"
"""
SCONTROL = "#!/bin/bash\nprintf 'node-a\\nnode-b\\n'\n"


def job(plan: Plan, **more: object) -> Job:
    """Return a job that fits a plan."""
    return Job(nodes=1, gpus_per_node=plan.gpus, **more)


def run(script: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with stand-ins for srun and scontrol; what srun was given is kept in ``srun.txt``."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("srun", STUB), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    # not all of the environment: a test must not depend on variables of the one who runs it
    base = {"PATH": f"{tools}:{os.environ['PATH']}", "OUT": str(tmp_path / "srun.txt")}
    base |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[a-b]", "RUN_DIR": str(tmp_path / "run dir")}
    return subprocess.run(
        ["bash", "-c", script], env=base | env, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def places(framework: Framework) -> dict[str, str]:
    """Return a value for everything that only the user knows."""
    return {place.name: f"/some/{place.name.lower()} here" for place in framework.program.places}


def started(tmp_path: Path) -> list[str]:
    """Return the words that srun was given."""
    return (tmp_path / "srun.txt").read_text().split("\0")[:-1]


@EACH
@few
@given(st.data())
def test_every_script_is_sound_shell(framework: Framework, data: st.DataObject) -> None:
    model, plan = data.draw(trainings(framework))
    script = framework.script(model, plan, job(plan))
    assert script.isascii()
    assert all(sign == "\n" or sign.isprintable() for sign in script)
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@EACH
def test_a_script_starts_what_its_settings_say(framework: Framework, tmp_path: Path) -> None:
    plan = PLANS[framework.name]
    done = run(framework.script(LLAMA_70B, plan, job(plan)), tmp_path, **places(framework))
    assert (done.returncode, done.stderr) == (0, "")
    words = started(tmp_path)
    for option in framework.settings(LLAMA_70B, plan).options:
        at = words.index(option.name)
        assert option.value is None or words[at + 1] == option.value
    for name, value in places(framework).items():
        assert any(value in word for word in words), name
    for file in framework.settings(LLAMA_70B, plan).files:
        path = tmp_path / "run dir" / file.name
        assert path.read_text().rstrip() == file.text.rstrip()
        assert not file.option or words[words.index(file.option) + 1] == str(path)


@EACH
def test_a_script_stops_where_something_is_not_set(framework: Framework, tmp_path: Path) -> None:
    plan = PLANS[framework.name]
    script = framework.script(LLAMA_70B, plan, job(plan))
    for place in framework.program.places:
        if not place.default:
            done = run(script, tmp_path, **places(framework) | {place.name: ""})
            assert done.returncode == 2
            assert done.stderr.strip() == f"{place.name} is empty: set it to {place.what}"
            assert not (tmp_path / "srun.txt").exists()


@EACH
def test_a_script_says_what_it_needs_by_default(framework: Framework, tmp_path: Path) -> None:
    """What has a default need not be set."""
    plan = PLANS[framework.name]
    needed = {place.name: "x" for place in framework.program.places if not place.default}
    assert run(framework.script(LLAMA_70B, plan, job(plan)), tmp_path, **needed).returncode == 0


def test_hosts_are_filled_in_their_order(tmp_path: Path) -> None:
    framework, plan = FRAMEWORKS["megatron"], PLANS["megatron"]
    hosts = ("n2", "n1")
    wanted = Job(nodes=2, gpus_per_node=plan.gpus // 2, hosts=hosts)
    script = framework.script(LLAMA_70B, plan, wanted)
    assert "#SBATCH --nodelist=n2,n1\n" in script
    assert run(script, tmp_path, **places(framework)).returncode == 0
    assert (tmp_path / "run dir" / "hosts.7").read_text() == "n2\nn1\n"
    words = started(tmp_path)
    assert "--distribution=arbitrary" in words
    assert words[words.index("--master-addr") + 1] == "n2"


def test_settings_of_the_fabric_are_exported_and_asked_of_slurm(tmp_path: Path) -> None:
    framework, plan = FRAMEWORKS["megatron"], PLANS["megatron"]
    env = Setting(name="NCCL_IB_HCA", value="=mlx5_0,mlx5_1 $(touch x)", why="compute\nfabric", source="NCCL")
    flag = Setting(name="--switches", value="1@5:00", why="", source="")
    script = framework.script(LLAMA_70B, plan, job(plan, env=(env,), sbatch=(flag,)))
    assert "#SBATCH --switches=1@5:00\n" in script
    spied = script.replace("srun ", 'printf "%s" "$NCCL_IB_HCA" > hca; srun ', 1)
    assert run(spied, tmp_path, **places(framework)).returncode == 0
    assert (tmp_path / "hca").read_text() == env.value
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["$(touch owned)", "`touch owned`", "x\ntouch owned", "a'b\"c\\", "\udc80 é ✓", ""])
@EACH
def test_no_name_of_a_model_is_ever_run(framework: Framework, name: str, tmp_path: Path) -> None:
    plan = PLANS[framework.name]
    fields = {item: getattr(LLAMA_70B, item) for item in LLAMA_70B.__dataclass_fields__}
    model = ModelShape(**fields | {"name": name})
    script = framework.script(model, plan, job(plan, name=name, partition=name))
    assert run(script, tmp_path, **places(framework)).returncode == 0
    assert not list(tmp_path.rglob("owned"))


def test_a_job_that_cannot_be_written_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(InputError) as refused:
        Job(
            nodes=0,
            gpus_per_node=8,
            time_limit="soon; rm -rf /",
            hosts=("a b",),
            env=(Setting(name="A B", value="", why="", source=""),),
            sbatch=(Setting(name="--x y", value="", why="", source=""),),
        )
    for words in ("nodes is 0", "soon; rm -rf /", "1 hosts for 0 nodes", "'a b'", "'A B'", "'--x y'"):
        assert words in refused.value.message


@few
@given(st.data())
def test_files_state_their_content(data: st.DataObject) -> None:
    framework = data.draw(st.sampled_from(sorted(FRAMEWORKS)))
    model, plan = data.draw(trainings(FRAMEWORKS[framework]))
    for file in FRAMEWORKS[framework].settings(model, plan).files:
        if file.name.endswith(".json"):
            assert json.loads(file.text) == file.content
        elif file.name.endswith(".toml"):
            read = tomllib.loads(file.text)
            description = read["job"].pop("description")
            assert description.isprintable()
            for path, table in file.content.items():
                found = read
                for key in path.split("."):
                    found = found.get(key, {})
                assert {key: value for key, value in table.items() if key != "description"} == {
                    key: found[key]
                    for key in found
                    if not isinstance(found[key], dict)  # a table inside is compared under its own name
                }
