"""What does cli_filter.lua do to a submission? It prints advice on stderr within its deadline, or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.bad_servers import BAD_SERVERS, AnswerWith, Serve
from tests.fakes.hook_runner import CONTROL, Hooks, milliseconds
from tests.fakes.submissions import SCRIPT, WITHOUT_LFS, pre_submit, questions, sbatch, shown_advice

DEADLINE_MS = 400
GRACE_MS = 80


def test_advice_is_printed_with_the_commands_name(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(shown_advice()))
    ran = sbatch(hooks)
    assert ran.stderr == "sbatch: opsk  gpt on 16 GPUs\nsbatch: opsk  memory fits\n"
    assert ran.one("returned") == "0"


def test_the_question_carries_script_options_and_mentioned_variables(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    hooks.environ |= {"LAYERS": "32", "HF_TOKEN": "hf_secret", "UNUSED": "x", "PWD": "/home/u"}
    sbatch(hooks)
    asked = questions(answers)[0]
    assert asked["kind"] == "advise"
    assert asked["script"] == SCRIPT
    assert asked["argv"] == [f"{hooks.directory}/train.sh", "8"]
    assert json.loads(asked["options_json"])["gpus-per-node"] == "8"
    assert asked["env"] == {"LAYERS": "32"}
    assert asked["cwd"] == "/home/u"
    assert 0 < asked["left_ms"] <= DEADLINE_MS


@pytest.mark.parametrize(
    ("environ", "ascii_only"),
    [
        ({}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "en_GB.UTF-8"}, False),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LANG": "en_GB.UTF-8", "LC_ALL": "POSIX"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
    ],
)
def test_the_question_says_whether_signs_can_be_shown(
    hooks: Hooks, serve: Serve, environ: dict[str, str], *, ascii_only: bool
) -> None:
    hooks.environ |= environ
    serve(answers := AnswerWith(shown_advice()))
    sbatch(hooks)
    assert questions(answers)[0].get("ascii", False) is ascii_only


def test_a_variable_named_like_a_secret_is_never_sent(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    names = ["WANDB_API_KEY", "MY_SECRET", "DB_PASSWORD", "hf_token", "AUTH_HEADER"]
    hooks.environ |= dict.fromkeys(names, "hush")
    sbatch(hooks, "#!/bin/bash\ntorchrun train.py " + " ".join(f"${{{name}}}" for name in names) + "\n")
    assert b"hush" not in answers.questions[0]


def test_one_question_is_all_that_is_said(hooks: Hooks, serve: Serve) -> None:
    """That its answer was shown, the advisor takes from the end of the connection."""
    serve(answers := AnswerWith(shown_advice()))
    sbatch(hooks)
    assert [asked["kind"] for asked in questions(answers)] == ["advise"]


def test_advice_of_no_lines_prints_nothing(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(shown_advice(lines=[])))
    assert sbatch(hooks).stderr == ""


@pytest.mark.parametrize("command", ["salloc", "srun"])
def test_a_typed_command_is_asked_about(hooks: Hooks, serve: Serve, command: str) -> None:
    serve(answers := AnswerWith(shown_advice()))
    ran = hooks.filter(pre_submit(f'type = "{command}", argv = {{ "torchrun", "train.py", "a b" }}'))
    assert ran.stderr.startswith(f"{command}: opsk  gpt")
    asked = questions(answers)[0]
    assert asked["command"] == command
    assert asked["argv"] == ["torchrun", "train.py", "a b"]
    assert "script" not in asked


@pytest.mark.parametrize("words", ['"bash", "-e", "train.sh", "8"', '"./train.sh", "8"', '"train.sh", "8"'])
def test_a_script_among_typed_words_is_read(hooks: Hooks, serve: Serve, words: str) -> None:
    serve(answers := AnswerWith(shown_advice()))
    (hooks.directory / "train.sh").write_text(SCRIPT)
    hooks.filter(pre_submit(f'type = "srun", argv = {{ {words} }}'))
    asked = questions(answers)[0]
    assert asked["script"] == SCRIPT
    assert asked["argv"][1:] == ["8"]


def test_a_program_among_typed_words_is_not_read(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    hooks.filter(pre_submit('type = "srun", argv = { "/bin/sh", "-c", "torchrun train.py" }'))
    hooks.filter(pre_submit('type = "srun", argv = { "/bin/true", "train" }'))
    assert all("script" not in asked for asked in questions(answers) if asked["kind"] == "advise")


@pytest.mark.parametrize(
    "words",
    [
        ["salloc", "-N2", "--gpus-per-node=8", "torchrun", "x.py", "-N", "3"],
        ["salloc", "-N", "2", "--gpus-per-node", "8", "torchrun", "x.py", "-N", "3"],
        ["salloc", "-QN2", "-v", "--exclusive", "--bell", "-J", "torchrun", "torchrun", "x.py", "-N", "3"],
        ["salloc", "-N2", "--gpus=8", "--", "torchrun", "x.py", "-N", "3"],
        ["salloc", "-N2", ":", "-N1", "--gpus=8", "torchrun", "x.py", "-N", "3"],
    ],
)
def test_words_after_salloc_are_found_where_slurm_hides_them(hooks: Hooks, serve: Serve, words: list[str]) -> None:
    """In 22.05 ``argv`` of salloc is empty: they are what follows the options on its command line."""
    serve(answers := AnswerWith(shown_advice()))
    (hooks.directory / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    hooks.filter(
        f"""
        local open = io.open
        io.open = function(path, mode)
          return open(path == "/proc/self/cmdline" and "{hooks.directory}/cmdline" or path, mode)
        end
        """
        + pre_submit('type = "salloc", argv = {}')
    )
    assert questions(answers)[0]["argv"] == ["torchrun", "x.py", "-N", "3"]


@pytest.mark.parametrize("words", [["salloc", "-N2", "--gpus=8"], ["salloc", "-J", "train"], ["salloc", "--"], []])
def test_an_interactive_shell_is_no_training_job(hooks: Hooks, serve: Serve, words: list[str]) -> None:
    server = serve(AnswerWith(shown_advice()))
    (hooks.directory / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    ran = hooks.filter(
        f"""
        local open = io.open
        io.open = function() return open("{hooks.directory}/cmdline", "rb") end
        """
        + pre_submit('type = "salloc", argv = {}')
    )
    assert server.connections == 0
    assert ran.one("returned") == "0"


def test_a_wrapped_command_is_sent_as_the_script_that_sbatch_makes(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    hooks.filter(pre_submit('wrap = "torchrun train.py"'))
    expected = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\ntorchrun train.py\n"
    assert questions(answers)[0]["script"] == expected


@pytest.mark.parametrize(
    ("fields", "environ"),
    [
        ('quiet = "1"', {}),
        ("", {"SLURM_JOB_ID": "7"}),
        ("", {"OPSK_ADVICE": "off"}),
        ('type = "scrontab"', {}),
        ("argv = {}", {}),
    ],
    ids=["--quiet", "inside a job", "OPSK_ADVICE=off", "scrontab", "script on stdin"],
)
def test_silence(hooks: Hooks, serve: Serve, fields: str, environ: dict[str, str]) -> None:
    server = serve(AnswerWith(shown_advice()))
    hooks.environ |= environ
    ran = sbatch(hooks, fields=fields)
    assert server.connections == 0
    assert ran.stderr == ""
    assert ran.one("returned") == "0"


@pytest.mark.parametrize(
    "text",
    ["#!/bin/bash\n./lammps\n", "#!/bin/bash\n#OPSK off\ntorchrun train.py\n", ""],
    ids=["no training", "opted out", "empty"],
)
def test_no_question_is_asked_about_other_scripts(hooks: Hooks, serve: Serve, text: str) -> None:
    server = serve(AnswerWith(shown_advice()))
    assert sbatch(hooks, text).stderr == ""
    assert server.connections == 0


def test_no_question_is_asked_about_jobs_without_gpus(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(shown_advice()))
    (hooks.directory / "train.sh").write_text(SCRIPT)
    hooks.filter(pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}', options_json='\'{"nodes":"2"}\''))
    assert server.connections == 0


def test_gpus_may_be_implied_by_the_site(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(shown_advice()))
    hooks.settings(gpus_implied="yes")
    (hooks.directory / "train.sh").write_text(SCRIPT)
    hooks.filter(pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}', options_json='\'{"nodes":"2"}\''))
    assert server.connections == 1


@pytest.mark.parametrize("options_json", ["nil", "false", "7", "'{\"gpus\":'", "'\\255\\0gpu'"])
def test_broken_options_let_the_job_through(hooks: Hooks, serve: Serve, options_json: str) -> None:
    serve(AnswerWith(shown_advice()))
    ran = hooks.filter(f"""
    local asked = options({{ argv = {{ "none" }}, wrap = "torchrun train.py" }})
    slurm.json_cli_options = function() return {options_json} end
    emit("returned", slurm_cli_pre_submit(asked, 0))
    slurm.json_cli_options = nil
    emit("returned", slurm_cli_pre_submit(asked, 0))
    emit("returned", slurm_cli_pre_submit(nil, 0))
    """)
    assert ran.of("returned") == ["0", "0", "0"]


def test_all_three_functions_are_there(hooks: Hooks) -> None:
    ran = hooks.filter("""
    emit("returned", slurm_cli_setup_defaults(options({}), false))
    emit("returned", slurm_cli_post_submit(0, 12, 4294967294))
    """)
    assert ran.of("returned") == ["0", "0"]


@pytest.mark.parametrize("kind", BAD_SERVERS)
def test_a_bad_server_costs_at_most_the_deadline(hooks: Hooks, serve: Serve, kind: str) -> None:
    server = serve(BAD_SERVERS[kind])
    ran = sbatch(hooks, times=3)
    assert server.connections == 3
    assert ran.of("returned") == ["0", "0", "0"]
    assert ran.stderr == ""
    assert milliseconds(ran) < DEADLINE_MS + GRACE_MS


def test_without_an_advisor_nothing_is_printed(hooks: Hooks) -> None:
    ran = sbatch(hooks)
    assert ran.stderr == ""
    assert ran.one("returned") == "0"


def test_no_control_character_reaches_the_terminal(hooks: Hooks, serve: Serve) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\u009b31m\u202eback\r\nsbatch: Submitted batch job 1 %s%n\x00\x7f"
    serve(AnswerWith(shown_advice(lines=[evil, "x" * 5000] + ["y"] * 100)))
    ran = sbatch(hooks)
    assert not CONTROL.search(ran.stderr)
    lines = ran.stderr.splitlines()
    assert all(line.startswith("sbatch: opsk  ") for line in lines)
    assert len(lines) == 40
    assert max(map(len, lines)) < 450


def test_text_of_other_scripts_survives(hooks: Hooks, serve: Serve) -> None:
    """Multi-byte characters pass whole, also where a long line is cut."""
    serve(AnswerWith(shown_advice(lines=["64 × H100 · ✗ 96 GiB → PP4", "ж" * 500])))
    lines = sbatch(hooks).stderr.splitlines()
    assert lines[0] == "sbatch: opsk  64 × H100 · ✗ 96 GiB → PP4"
    assert set(lines[1].removeprefix("sbatch: opsk  ")) == {"ж", "."}


@pytest.mark.parametrize("lfs", ["", WITHOUT_LFS], ids=["as installed", "without lua-filesystem"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "missing", "large", "binary", "unreadable"])
def test_what_is_no_readable_script_is_left_alone(hooks: Hooks, serve: Serve, kind: str, lfs: str) -> None:
    server = serve(AnswerWith(shown_advice()))
    path = hooks.directory / "train.sh"
    make: dict[str, Callable[[Path], object]] = {
        "fifo": os.mkfifo,
        "directory": Path.mkdir,
        "missing": lambda path: None,
        "large": lambda path: path.write_text(SCRIPT + "x" * (1 << 20)),
        "binary": lambda path: path.write_bytes(b"\x7fELF\x00torchrun train"),
        "unreadable": lambda path: path.write_text(SCRIPT) and path.chmod(0),
    }
    make[kind](path)
    if kind == "unreadable":
        if os.geteuid() != 0:
            pytest.skip("only root can run the hook as somebody else")
        hooks.user = 65534
    ran = hooks.filter(lfs + pre_submit(f'argv = {{ "{path}" }}'))
    assert server.connections == 0
    assert ran.stderr == ""
    assert ran.one("returned") == "0"


@pytest.mark.parametrize(("mode", "questions_asked"), [("file", 1), ("named pipe", 0), ("nil", 0)])
def test_lua_filesystem_spares_the_shell(hooks: Hooks, serve: Serve, mode: str, questions_asked: int) -> None:
    server = serve(AnswerWith(shown_advice()))
    hooks.environ["PATH"] = "/nonexistent"
    (hooks.directory / "train.sh").write_text(SCRIPT)
    hooks.filter(
        f"""
        local mode = "{mode}"
        io.popen = nil
        package.preload.lfs = function()
          return {{ attributes = function() return mode ~= "nil" and mode or nil end }}
        end
        """
        + pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}')
    )
    assert server.connections == questions_asked


def test_a_fifo_keeps_what_the_job_wants_from_it(hooks: Hooks, serve: Serve) -> None:
    """``sbatch <(make-script)``: the hook must not take a byte of it."""
    serve(AnswerWith(shown_advice()))
    path = hooks.directory / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with path.open("w") as writer:
        writer.write(SCRIPT)
    hooks.filter(pre_submit(f'argv = {{ "{path}" }}'))
    assert os.read(reader, 1 << 16).decode() == SCRIPT
    os.close(reader)


def test_a_script_name_is_no_command(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    name = "a'; touch ran; '$(touch ran)`touch ran`.sh"
    (hooks.directory / name).write_text(SCRIPT)
    hooks.filter(WITHOUT_LFS + pre_submit(f'argv = {{ "{name}" }}'))
    assert questions(answers)[0]["script"] == SCRIPT
    assert not (hooks.directory / "ran").exists()


def test_a_script_name_that_starts_with_a_dash_is_no_option(hooks: Hooks, serve: Serve) -> None:
    serve(answers := AnswerWith(shown_advice()))
    (hooks.directory / "-n").write_text(SCRIPT)
    hooks.filter(WITHOUT_LFS + pre_submit('argv = { "-n" }'))
    assert questions(answers)[0]["script"] == SCRIPT


def test_a_site_script_can_call_it_as_a_library(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(shown_advice()))
    ran = hooks.filter(f"""
    slurm_cli_pre_submit = nil
    local opsk = assert(loadfile("{hooks.directory}/cli_filter.lua"))("library")
    emit("global", slurm_cli_pre_submit)
    emit("returned", opsk.pre_submit(options({{ wrap = "torchrun train.py" }}), 0))
    """)
    assert ran.one("global") == "nil"
    assert "opsk  gpt" in ran.stderr


@pytest.mark.parametrize(("value", "detail"), [("long", "long"), ("short", "short"), ("loud", None), ("", None)])
def test_the_user_says_how_much_to_read(hooks: Hooks, serve: Serve, value: str, detail: str | None) -> None:
    answers = AnswerWith(shown_advice())
    serve(answers)
    hooks.environ["OPSK_ADVICE"] = value
    sbatch(hooks)
    (asked,) = (each for each in questions(answers) if each["kind"] == "advise")
    assert asked.get("detail") == detail


@pytest.mark.parametrize(("offset", "asked"), [("0", 1), ("1", 0), ("nil", 1)])
def test_only_the_first_component_is_asked_about(hooks: Hooks, serve: Serve, offset: str, asked: int) -> None:
    server = serve(AnswerWith(shown_advice()))
    (hooks.directory / "train.sh").write_text(SCRIPT)
    fields = f'argv = {{ "{hooks.directory}/train.sh" }}'
    hooks.filter(f"slurm_cli_pre_submit(options({{ {fields} }}, nil), {offset})")
    assert server.connections == asked
