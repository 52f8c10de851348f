"""On a real slurmctld: is the tree that opsk writes taken as it is meant, and do ranks land where the host file says?

The lab has two units of three nodes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from opsk.slurm.commands.command import CommandClient
from opsk.slurm.topology.conf import TopologyConf, read_topology_conf
from opsk.slurm.topology.difference import compare_topologies
from tests.fakes.small_plans import small_plan
from tests.integration.conftest import RunningLab

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(600)]

UNITS = ({"n0", "n1", "n2"}, {"n3", "n4", "n5"})
PLAN = small_plan(gpus_per_node=2, tp=2, dp=3, global_batch=6)


def done(lab: RunningLab, *words: str, cwd: Path | None = None) -> str:
    said = lab.run(*words, cwd=cwd)
    assert said.returncode == 0, f"{' '.join(words)}: {said.stdout}{said.stderr}"
    return said.stdout


def shown(lab: RunningLab) -> TopologyConf:
    """Return what slurmctld says the topology is."""
    return read_topology_conf(done(lab, "scontrol", "show", "topology"), source="scontrol")


def nodes_of(lab: RunningLab, job: str) -> set[str]:
    listed = re.search(r" NodeList=(\S+)", done(lab, "scontrol", "show", "job", job))
    assert listed is not None
    return set(done(lab, "scontrol", "show", "hostnames", listed[1]).split())


def test_slurmctld_has_the_tree_that_was_written(units_lab: RunningLab) -> None:
    written = read_topology_conf((units_lab.path / "etc" / "topology.conf").read_text())
    assert [set(nodes) for nodes in written.groups.values()] == list(UNITS)
    assert compare_topologies(shown(units_lab), written).is_same
    log = (units_lab.path / "log" / "slurmctld.log").read_text()
    assert not re.search(r"Multiple leaf switches|switches lack access|Invalid hostnames", log), log


def test_the_live_file_means_what_the_cabling_says(units_lab: RunningLab) -> None:
    dump = str(units_lab.path / "fabric.ibnetdiscover")
    assert units_lab.opsk("fabric", dump, "--write", "tree", "--diff").returncode == 0
    changed = units_lab.opsk("fabric", dump, "--write", "tree", "--nodes", "n[0-4]", "--diff")
    assert changed.returncode == 1
    assert "1 nodes are removed: n5" in changed.stdout


def test_the_release_of_this_cluster_decides_what_is_written(units_lab: RunningLab) -> None:
    release = CommandClient(environment=units_lab.environment).release()
    said = units_lab.opsk("fabric", str(units_lab.path / "fabric.ibnetdiscover"), "--write", "block")
    assert said.returncode == (0 if release >= (24, 5) else 2), said.stderr


def test_a_job_that_asks_for_one_switch_gets_one_unit(units_lab: RunningLab, tmp_path: Path) -> None:
    """n0 is taken, so of the five free nodes only n3 to n5 are a whole unit."""
    held = done(units_lab, "sbatch", "--parsable", "-w", "n0", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 120")
    try:
        command = ("srun", "-N3", "--exclusive", "--switches=1@5:00", "printenv", "SLURMD_NODENAME")
        assert set(done(units_lab, *command, cwd=tmp_path).split()) == UNITS[1]
    finally:
        done(units_lab, "scancel", held.strip())


def test_ranks_of_a_step_land_where_the_host_file_says(units_lab: RunningLab, tmp_path: Path) -> None:
    """The step's hosts are in an order that Slurm itself never takes: last node first, one node in two pieces."""
    order = ["n5", "n5", "n3", "n4", "n3", "n4"]
    (tmp_path / "hosts").write_text("".join(f"{host}\n" for host in order))
    step = (
        f"SLURM_HOSTFILE={tmp_path}/hosts srun --distribution=arbitrary -n 6 "
        """bash -c 'echo "$SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME"'"""
    )
    said = done(
        units_lab, "salloc", "-Q", "-w", "n[3-5]", "-N3", "--ntasks-per-node=2", "bash", "-c", step, cwd=tmp_path
    )
    ranks = sorted(tuple(line.split()) for line in said.splitlines())
    assert [host for _, _, host in ranks] == order
    assert [local for _, local, _ in ranks] == ["0", "1", "0", "0", "1", "1"]


def test_the_host_file_of_opsk_place_starts_every_rank_on_its_node(units_lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    options = ("--nodes", "n[3-5]", "--fabric", str(units_lab.path / "fabric.ibnetdiscover"), "--json")
    command = (sys.executable, "-m", "opsk", "place", str(tmp_path / "plan.toml"), *options)
    placed = units_lab.run(*command, "--host-file", str(tmp_path / "hosts"))
    assert placed.returncode == 0, placed.stderr
    hosts = (tmp_path / "hosts").read_text().split()
    assert len(hosts) == 6
    step = f"SLURM_HOSTFILE={tmp_path}/hosts srun -m arbitrary -n 6 bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME'"
    said = done(
        units_lab, "salloc", "-Q", "-w", "n[3-5]", "-N3", "--ntasks-per-node=2", "bash", "-c", step, cwd=tmp_path
    )
    assert [host for _, host in sorted(tuple(line.split()) for line in said.splitlines())] == hosts


def test_torchruns_node_rank_is_found_by_the_nodes_own_name(units_lab: RunningLab, tmp_path: Path) -> None:
    """The line that docs/howto gives for job scripts, on every node of a job."""
    (tmp_path / "ranks").write_text("n5 0\nn3 1\nn4 2\n")
    look_up = f"awk -v n=\"$SLURMD_NODENAME\" '$1 == n {{print n, $2}}' {tmp_path}/ranks"
    said = done(units_lab, "srun", "-w", "n[3-5]", "-N3", "bash", "-c", look_up, cwd=tmp_path)
    assert sorted(said.splitlines()) == ["n3 1", "n4 2", "n5 0"]
