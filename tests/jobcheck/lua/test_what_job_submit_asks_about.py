"""Which submissions does job_submit.lua ask about? Those that may train, whichever way they ask for GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.bad_servers import AnswerWith, Serve
from tests.fakes.hook_runner import Hooks
from tests.fakes.submissions import TRAINING, advice, question, submit


@pytest.mark.parametrize(
    "fields",
    [
        'tres_per_node = "gres/gpu:h100:8"',
        'tres_per_node = "gres:gpu:8"',
        'tres_per_node = nil, tres_per_job = "gres/gpu:16"',
        'tres_per_node = nil, tres_per_task = "cpu=4,gres/gpu=1"',
        "tres_per_node = nil, shared = 0",
    ],
)
def test_gpus_are_seen_wherever_they_are_asked_for(hooks: Hooks, serve: Serve, fields: str) -> None:
    server = serve(AnswerWith(advice()))
    hooks.submit(submit(fields=fields))
    assert server.connections == 1


@pytest.mark.parametrize(
    ("fields", "script"),
    [
        ('tres_per_node = nil, gres = "nic:1"', TRAINING),
        ("", "#!/bin/bash\\n./lammps -in melt.in\\n"),
        ("", "#!/bin/bash\\n#OPSK off\\ntorchrun train.py\\n"),
        ("", "#!/bin/bash\\n#OPSK   off  \\r\\ntorchrun train.py\\n"),
        ("", "#OPSK off"),
    ],
    ids=["no GPU", "no training", "opted out", "opted out with blanks", "opted out in the only line"],
)
def test_no_question_is_asked_about_other_jobs(hooks: Hooks, serve: Serve, fields: str, script: str) -> None:
    server = serve(AnswerWith(advice()))
    ran = hooks.submit(submit(fields=fields, script=script))
    assert server.connections == 0
    assert ran.said == []
    assert ran.one("admin_comment") == "nil"


def test_a_word_like_the_opt_out_is_none(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(advice()))
    hooks.submit(submit(script="#!/bin/bash\\necho '#OPSK off'\\n#OPSK offset=3\\ntorchrun train.py\\n"))
    hooks.submit(submit(script="torchrun train.py; echo #OPSK off"))
    assert server.connections == 2


def test_a_script_of_two_megabytes_is_left_alone(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(advice()))
    ran = hooks.submit(submit(fields='script = "torchrun train.py\\n" .. string.rep("x", 2000000)'))
    assert server.connections == 0
    assert ran.one("returned") == "0"


def test_a_binary_script_does_no_harm(hooks: Hooks, serve: Serve) -> None:
    answers = AnswerWith(advice())
    serve(answers)
    ran = hooks.submit(submit(fields='script = "torchrun train" .. string.char(0, 1, 27, 127, 128, 255) .. "end"'))
    body = answers.questions[0].decode("utf-8", errors="replace")
    assert json.loads(body)["script"] == "torchrun train\x00\x01\x1b\x7f\ufffd\ufffdend"
    assert ran.one("returned") == "0"


def test_inside_a_running_job_only_the_record_is_asked_for(hooks: Hooks, serve: Serve) -> None:
    answers = AnswerWith(advice(lines=[]))
    serve(answers)
    hooks.submit(submit(fields='environment = { SLURM_JOB_ID = "77" }'))
    assert question(answers)["quiet"] is True


def test_an_interactive_job_is_asked_about_by_its_words(hooks: Hooks, serve: Serve) -> None:
    answers = AnswerWith(advice())
    serve(answers)
    hooks.submit(submit(fields='argv = { "torchrun", "train.py" }, script = nil'))
    assert question(answers)["argv"] == ["torchrun", "train.py"]
    assert "script" not in question(answers)


@pytest.mark.parametrize("words", ['"hostname", "-f"', '"bash", "-c", "nvidia-smi"', '"bash", "-l"'])
def test_an_interactive_job_that_trains_nothing_is_not_asked_about(hooks: Hooks, serve: Serve, words: str) -> None:
    server = serve(AnswerWith(advice()))
    hooks.submit(submit(fields=f"argv = {{ {words} }}, script = nil"))
    assert server.connections == 0


@pytest.mark.parametrize("words", ['"bash", "job.sh"', '"/bin/sh", "-e", "job", "8"', '"./job", "8"', '"job.sh", "8"'])
def test_an_interactive_job_that_runs_a_script_is_asked_about(hooks: Hooks, serve: Serve, words: str) -> None:
    """24.11 shows all words of salloc and srun, and of a script only its name: cli_filter has read it."""
    server = serve(AnswerWith(advice(lines=[])))
    ran = hooks.submit(submit(fields=f"argv = {{ {words} }}, script = nil"))
    assert server.connections == 1
    assert ran.one("admin_comment") == "opsk:v1 verdict=oom"


@pytest.mark.parametrize("words", ["", '"./run"'])
def test_an_interactive_job_whose_words_are_hidden_is_asked_about(hooks: Hooks, serve: Serve, words: str) -> None:
    """22.05 shows no word of salloc and one of srun; the advisor has just heard the others from cli_filter."""
    server = serve(AnswerWith(advice(lines=[])))
    ran = hooks.submit(submit(fields=f"argv = {{ {words} }}, script = nil"))
    assert server.connections == 1
    assert ran.one("admin_comment") == "opsk:v1 verdict=oom"


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("srun --ntasks-per-node=1 bash run_inner.sh 4", 1),
        ("srun --mpi=none \\\\\\n  ./start.sh", 1),
        ("srun hostname\\nsrun ./launch.sh", 1),
        ("source env.sh\\nsrun ./lammps -in melt.in", 0),
        ("srun ./lammps\\n./tidy.sh", 0),
    ],
)
def test_a_script_that_srun_starts_may_be_what_trains(hooks: Hooks, serve: Serve, body: str, asked: int) -> None:
    server = serve(AnswerWith(advice()))
    hooks.submit(submit(script=f"#!/bin/bash\\n{body}\\n"))
    assert server.connections == asked


@pytest.mark.shared
def test_real_training_scripts_are_asked_about(hooks: Hooks, serve: Serve, shared: Path) -> None:
    """The words of training are found in every launch script that people published."""
    scripts = sorted(path for path in (shared / "data" / "real" / "sbatch").iterdir() if path.is_file())
    assert len(scripts) > 20
    hooks.settings(breaker_failures=1000, submit_deadline_ms=5000)
    server = serve(AnswerWith(advice(lines=[])))
    ran = hooks.submit(f"""
    for _, path in ipairs({{ {", ".join(f'"{path}"' for path in scripts)} }}) do
      local asked = job({{ tres_per_node = "gres/gpu:8", script = io.open(path, "rb"):read("*a") }})
      slurm_job_submit(asked, {{}}, 1)
      if not asked.admin_comment then emit("missed", path) end
    end
    """)
    assert ran.of("missed") == []
    assert server.connections == len(scripts)


@pytest.mark.parametrize(("offset", "asked"), [("0", 1), ("1", 0), ("7", 0), ("slurm.NO_VAL", 1), ("nil", 1)])
def test_only_the_first_component_of_a_heterogeneous_job_is_asked_about(
    hooks: Hooks, serve: Serve, offset: str, asked: int
) -> None:
    server = serve(AnswerWith(advice()))
    hooks.submit(submit(fields=f"het_job_offset = {offset}"))
    assert server.connections == asked


def test_a_crontabs_job_is_no_component(hooks: Hooks, serve: Serve) -> None:
    """As 24.11 and 26.05 show it: slurmctld leaves its offset at 0."""
    answers = AnswerWith(advice())
    serve(answers)
    hooks.submit(submit(fields="het_job_offset = 0, cron_job = true"))
    job = question(answers)["job"]
    assert "het_job_offset" not in job
    assert job["cron_job"] is True
