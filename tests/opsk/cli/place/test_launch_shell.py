"""What a job's script evaluates: real shells run the lines."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from opsk.cli.place.launch_shell import (
    LaunchMap,
    LaunchTarget,
    OutOfTimeError,
    build_default_lines,
    build_shell_lines,
    build_step_options,
    limit_time,
)
from opsk.errors import InputError
from opsk.frameworks.options import Setting
from opsk.planning.placement.rank_map import NodeRanks, RankMap

TURNED = RankMap(job=7, nodes=(NodeRanks(node="n1", ranks=(0, 1)), NodeRanks(node="n0", ranks=(2, 3))))
MIXED = RankMap(job=7, nodes=(NodeRanks(node="n1", ranks=(0, 2)), NodeRanks(node="n0", ranks=(1, 3))))
HCAS = Setting(name="NCCL_IB_HCA", value="=mlx5_1,mlx5_0", why="", source="")


def evaluated(lines: list[str], say: str, shell: str = "sh", **environ: str) -> list[str]:
    """Run the lines as a careful script would, and return what it then says."""
    script = "set -eu\n" + 'eval "$1"\n' + say
    done = subprocess.run(
        [shell, "-c", script, shell, "\n".join(lines)], env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True,
        text=True, timeout=30, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_srun_gets_its_options_as_plain_words(shell: str) -> None:
    lines = build_shell_lines(LaunchMap(ranks=TURNED, slurm_nodes=("n0", "n1")), LaunchTarget.SRUN, {})
    said = evaluated(lines, 'printf "%s " $OPSK_SRUN_OPTIONS $MASTER_ADDR $MASTER_PORT', shell)
    assert said == ["--distribution=arbitrary", "--nodelist=n1,n1,n0,n0", "--ntasks=4", "n1", "15007"]


def test_torchrun_gets_one_task_a_node_in_the_order_of_node_ranks() -> None:
    lines = build_shell_lines(LaunchMap(ranks=TURNED, slurm_nodes=("n0", "n1")), LaunchTarget.TORCHRUN, {})
    said = evaluated(lines, 'printf "%s " $OPSK_SRUN_OPTIONS $OPSK_NODES $OPSK_RANKS_PER_NODE')
    assert said[1:] == ["--nodelist=n1,n0", "--ntasks=2", "--ntasks-per-node=1", "2", "2"]


def test_torchrun_is_refused_an_order_that_it_cannot_number() -> None:
    with pytest.raises(InputError, match="node by node"):
        build_step_options(MIXED, LaunchTarget.TORCHRUN)


@pytest.mark.parametrize(("is_listed", "count"), [(True, 0), (False, 3)])
def test_slurms_own_order_needs_no_options_unless_nodes_are_gone(is_listed: bool, count: int) -> None:
    launched = LaunchMap(ranks=TURNED, slurm_nodes=("n1", "n0"), is_listed=is_listed)
    assert (
        len(evaluated(build_shell_lines(launched, LaunchTarget.SRUN, {}), 'printf "%s " $OPSK_SRUN_OPTIONS')) == count
    )


def test_what_the_user_has_set_stays() -> None:
    lines = build_shell_lines(LaunchMap(ranks=TURNED, slurm_nodes=("n0", "n1"), env=(HCAS,)), LaunchTarget.SRUN, {})
    say = 'printf "%s " "$NCCL_IB_HCA" "$MASTER_PORT"'
    assert evaluated(lines, say) == ["=mlx5_1,mlx5_0", "15007"]
    assert evaluated(lines, say, NCCL_IB_HCA="mine", MASTER_PORT="1") == ["mine", "1"]


def test_task_prolog_gets_lines_without_quotes_and_only_what_is_not_set() -> None:
    launched = LaunchMap(ranks=TURNED, slurm_nodes=("n0", "n1"), env=(HCAS,))
    whole = ["export OPSK_MAP=opsk1 7 4 n1:0-1 n0:2-3", "export NCCL_IB_HCA==mlx5_1,mlx5_0"]
    assert build_shell_lines(launched, LaunchTarget.TASK_PROLOG, {}) == whole
    assert build_shell_lines(launched, LaunchTarget.TASK_PROLOG, {"NCCL_IB_HCA": "mine"}) == whole[:1]


def test_a_setting_that_is_no_plain_word_is_left_out() -> None:
    odd = Setting(name="NCCL_IB_HCA", value="=mlx5_0\nexport LD_PRELOAD=x", why="", source="")
    lines = build_shell_lines(
        LaunchMap(ranks=TURNED, slurm_nodes=("n0", "n1"), env=(odd,)), LaunchTarget.TASK_PROLOG, {}
    )
    assert lines == ["export OPSK_MAP=opsk1 7 4 n1:0-1 n0:2-3"]


def test_the_default_forgets_a_map_of_another_job() -> None:
    say = 'printf "%s " "[$OPSK_SRUN_OPTIONS]" "[${OPSK_MAP-none}]"'
    assert evaluated(build_default_lines(LaunchTarget.SRUN), say, OPSK_MAP="opsk1 6 1 a:0") == ["[]", "[none]"]
    assert build_default_lines(LaunchTarget.TASK_PROLOG) == []


def test_sixteen_thousand_ranks_go_into_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Linux takes no single word of more than 128 KiB; the map of 2,000 nodes still fits into one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    nodes = tuple(
        NodeRanks(node=f"node{at:04}", ranks=tuple(range(at * 8, at * 8 + 8))) for at in reversed(range(2000))
    )
    large = RankMap(job=7, nodes=nodes)
    lines = build_shell_lines(LaunchMap(ranks=large, slurm_nodes=()), LaunchTarget.SRUN, {})
    (path,) = tmp_path.iterdir()
    assert path.read_text().split() == list(large.hosts)
    assert path.stat().st_mode & 0o077 == 0
    assert f"--nodelist={path}" in lines[0]
    assert max(map(len, lines)) < 1 << 17


def test_a_folder_that_is_no_plain_word_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    nodes = tuple(NodeRanks(node=f"node{at:04}", ranks=tuple(range(at * 8, at * 8 + 8))) for at in range(2000))
    with pytest.raises(InputError, match="unquoted"):
        build_step_options(RankMap(job=7, nodes=nodes), LaunchTarget.SRUN)
    assert not list(folder.iterdir())


def test_work_that_takes_longer_is_called_off_even_where_errors_are_caught() -> None:
    def stubborn() -> None:
        try:
            time.sleep(30)
        except Exception as error:
            raise AssertionError("an ordinary error was seen") from error

    with pytest.raises(OutOfTimeError), limit_time(0.05):
        stubborn()
