"""What ``#SBATCH`` lines ask for, read as sbatch(1) and ``src/sbatch/opt.c`` do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.workload import Evidence
from opsk_jobcheck.scripts.sbatch.directives import (
    Directives,
    find_head_end,
    find_late_directives,
    iterate_head_lines,
    list_late_lines,
    read_directives,
    read_words,
    split_sbatch_words,
)


def read(*lines: str) -> Directives:
    return read_directives("\n".join(("#!/bin/bash", *lines)) + "\n", file="job.sbatch")


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --nodes=4",
        "#SBATCH --nodes 4",
        "#SBATCH -N4",
        "#SBATCH -N 4",
        "#SBATCH\t-N\t4",
        "#SBATCH--nodes=4",
        "#SBATCH --nodes='4'",
        "#SBATCH --nodes=4 # number of nodes",
        "#SBATCH --nodes=4#number",
        "#SBATCH --nodes=4-4",
        "#SBATCH -QN4",
        "#SBATCH -N 2 --nodes=4",
        "#SBATCH --exclusive --requeue -p gpu --nodes=4",
        "#SBATCH --container-image image.sqsh --nodes=4",
    ],
)
def test_every_way_to_write_a_node_count_is_read(line: str) -> None:
    assert read(line).nodes == 4


def test_kilo_nodes_are_1024() -> None:
    # _str_to_nodes in src/common/proc_args.c
    assert read("#SBATCH -N 2k").nodes == 2048


def test_options_may_span_lines() -> None:
    # sbatch joins the words of all directive lines to one command line
    assert read("#SBATCH --nodes", "#SBATCH 4").nodes == 4


def test_the_last_of_equal_options_wins() -> None:
    found = read("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=8", "#SBATCH -N 3")
    assert (found.nodes, found.ntasks_per_node) == (3, 8)
    assert [entry.line for entry in found.evidence if entry.field == "plan.nodes"] == [4]


def test_nothing_is_read_behind_the_first_command() -> None:
    assert read("#SBATCH -N 2", "# comment", "", "set -e", "#SBATCH -N 3").nodes == 2


@pytest.mark.parametrize("line", [" #SBATCH -N 4", "##SBATCH -N 4", "# SBATCH -N 4", "#sbatch -N 4"])
def test_a_disabled_directive_is_a_comment(line: str) -> None:
    assert read(line).nodes is None


def test_evidence_names_file_line_and_text() -> None:
    found = read("#SBATCH --gres=gpu:h100:8  # all of them")
    text = "#SBATCH --gres=gpu:h100:8  # all of them"
    assert found.evidence == (
        Evidence(field="plan.gpus_per_node", value=8, file="job.sbatch", line=2, text=text),
        Evidence(field="gpu", value="h100", file="job.sbatch", line=2, text=text),
    )


@pytest.mark.parametrize(
    ("line", "per_node", "in_all", "per_task", "kind"),
    [
        ("--gres=gpu:8", 8, None, None, None),
        ("--gres=gpu", 1, None, None, None),
        ("--gres=gpu:h100:8,nvme:1", 8, None, None, "h100"),
        ("--gres=nvme:1", None, None, None, None),
        ("--gpus-per-node=mi250:8", 8, None, None, "mi250"),
        ("--gpus=h100:32", None, 32, None, "h100"),
        ("-G 32", None, 32, None, None),
        ("--gpus-per-task=1", None, None, 1, None),
        ("--tres-per-task=cpu:4,gres/gpu:2", None, None, 2, None),
        ("--gres=gpu:8 --gpus-per-node=8", 8, None, None, None),
    ],
)
def test_gpus_are_read_from_every_option(
    line: str, per_node: int | None, in_all: int | None, per_task: int | None, kind: str | None
) -> None:
    found = read(f"#SBATCH {line}")
    assert (found.gpus_per_node, found.gpus, found.gpus_per_task, found.gpu_type) == (per_node, in_all, per_task, kind)
    assert not found.problems


@pytest.mark.parametrize("value", ["$NUM_NODES", "${N}", "`nproc`", "$(nproc)"])
def test_a_variable_in_a_directive_is_not_expanded(value: str) -> None:
    found = read(f"#SBATCH --nodes={value}")
    assert found.nodes is None
    assert [entry.field for entry in found.unknown] == ["plan.nodes"]
    assert "does not expand" in found.unknown[0].why
    assert found.problems[0].line == 2
    assert found.problems[0].hint


def test_a_range_of_nodes_is_unknown_and_no_problem() -> None:
    found = read("#SBATCH --nodes=2-4")
    assert found.nodes is None
    assert "range" in found.unknown[0].why
    assert not found.problems


@pytest.mark.parametrize("line", ["-N=4", "--nodes=four", "--ntasks=8.5", "--nodes=4-2", "-n=8", "gpu --nodes=4", "-J"])
def test_what_sbatch_refuses_is_a_problem_with_its_line(line: str) -> None:
    found = read(f"#SBATCH {line}")
    assert [problem.line for problem in found.problems] == [2]


def test_an_open_quote_is_a_problem() -> None:
    assert "quote" in read('#SBATCH --comment="open').problems[0].what


def test_components_of_a_heterogeneous_job_have_no_common_size() -> None:
    found = read("#SBATCH -J x --nodes=2 --gres=gpu:8", "#SBATCH hetjob", "#SBATCH --nodes=4")
    assert found.is_heterogeneous
    assert (found.nodes, found.gpus_per_node, found.job_name) == (None, None, "x")
    assert {"plan.nodes", "plan.gpus"} <= {entry.field for entry in found.unknown}


@pytest.mark.parametrize(
    ("line", "name"), [("#PBS -l select=4", "pbs"), ("#BSUB -nnodes 4", "lsf"), ("#COBALT -n 4", "cobalt")]
)
def test_other_schedulers_are_named_and_not_read(line: str, name: str) -> None:
    assert read(line) == Directives(scheduler=name)


def test_a_script_without_directives_has_no_scheduler() -> None:
    assert read("srun hostname") == Directives()


def test_dos_line_ends_are_a_problem() -> None:
    found = read_directives("#!/bin/bash\r\n#SBATCH -N 4\r\n", file="x")
    assert found.nodes == 4
    assert "DOS" in found.problems[0].what


def test_an_empty_word_ends_the_line() -> None:
    # get_argument returns nothing for "", which its caller takes for the end of the line
    assert split_sbatch_words('-N 4 "" -n 8') == (("-N", "4"), "")


@pytest.mark.parametrize("line", ["<SLURM OPTIONS> --nodes=128 --ntasks-per-node=8", "-p { partition } -N 128 -n 1024"])
def test_behind_a_placeholder_the_rest_is_still_read(line: str) -> None:
    directives = read_directives(f"#!/bin/bash\n#SBATCH {line}\n", file="job.sh")
    assert directives.nodes == 128
    assert len([problem for problem in directives.problems if "does not accept" in problem.what]) == 1


def test_words_typed_behind_a_command_are_the_commands_own() -> None:
    assert read_words(("-N2", "python", "-N", "4"), file="srun").nodes == 2
    assert read_directives("#!/bin/bash\n#SBATCH -N2 -- -N4\n", file="job.sh").nodes == 2


@pytest.mark.parametrize("value", ["gpu:{{ gpus }}", "gpu:<type>:8", "gpu:{n}"])
def test_gpus_left_to_be_filled_in_are_none(value: str) -> None:
    directives = read_directives(f"#!/bin/bash\n#SBATCH --nodes=2 --gres={value} --ntasks-per-node=4\n", file="job.sh")
    assert (directives.nodes, directives.gpus_per_node, directives.gpu_type) == (2, None, None)
    assert [unknown.field for unknown in directives.unknown] == ["plan.gpus_per_node"]


LINES = ["#!/bin/bash", "#SBATCH -N4", " \t# a", "", "  ", "\r", "\v", "srun x", "a # b", "é"]


@given(st.lists(st.sampled_from(LINES)))
def test_the_head_of_a_script_ends_where_its_first_command_begins(lines: list[str]) -> None:
    for text in ("\n".join(lines), "\n".join(lines) + "\n"):
        assert find_head_end(text) == min(sum(len(line) + 1 for line in iterate_head_lines(text)), len(text))


def test_the_same_head_is_cited_with_each_scripts_own_name() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=4\nsrun true\n"
    sources = [read_directives(text, file=file).evidence[0].file for file in ("one.sh", "other.sh", "one.sh")]
    assert sources == ["one.sh", "other.sh", "one.sh"]


def test_a_head_that_is_longer_than_is_kept_is_read_all_the_same() -> None:
    text = "#!/bin/bash\n" + "# so much to say\n" * 1000 + "#SBATCH --nodes=4\nsrun true\n#SBATCH --nodes=5\n"
    assert read_directives(text, file="job.sh").nodes == 4


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("#SBATCH --nodes=2\nmodule load cuda\n#SBATCH --gres=gpu:8\n", 4),
        ("set -e\n\n# why\n#SBATCH -N 2\n#SBATCH -n 2\n", 5),
        ("#SBATCH --nodes=2\npython train.py\n", None),
        ("cat > inner.sh <<EOF\n#SBATCH --nodes=2\nEOF\n", None),  # another script's
        ("echo x\n#SBATCH is read at the top only\n", None),
    ],
)
def test_lines_below_the_first_command_are_said_not_to_be_read(body: str, line: int | None) -> None:
    found = find_late_directives(f"#!/bin/bash\n{body}", file="job.sh")
    assert [problem.line for problem in found] == ([] if line is None else [line])
    assert all("sbatch does not read" in problem.what for problem in found)


def test_all_lines_below_the_first_command_are_listed() -> None:
    text = "#!/bin/bash\nset -e\n#SBATCH -N 2\n\n#SBATCH -n 2\n# x\n#SBATCH --gres=gpu:8\ncat <<E\n#SBATCH -N 4\nE\n"
    assert list_late_lines(text) == (3, 5, 7)
    (problem,) = find_late_directives(text, file="job.sh")
    assert problem.what == (
        "#SBATCH -N 2 and 2 more #SBATCH lines are below the first command, line 2: sbatch does not read them"
    )
