"""Is each hook put together from its parts, and what Lua 5.1 to 5.4 understand?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from opsk_jobcheck.service.hooks import ADVICE, HOOKS, read_hook

FILES = (*HOOKS, ADVICE)


@pytest.mark.parametrize("part", ["words", "asking", "hearing"])
def test_both_hooks_carry_what_they_share(part: str) -> None:
    shared = read_hook(f"shared/{part}.lua")
    assert all(shared in read_hook(name) for name in ("job_submit.lua", ADVICE))


@pytest.mark.parametrize("name", FILES)
def test_a_hook_is_installed_whole(name: str) -> None:
    """Without the files that it was put together from."""
    assert "--@" not in read_hook(name)


def chunks(name: str) -> list[str]:
    """Return what Lua compiles: the file, and the part of it that is compiled on demand."""
    text = read_hook(name)
    found = re.findall(r"\[==\[\n(.*?)\]==\]", text, re.DOTALL)
    return [text, *found]


def compiled(compiler: str, text: str, path: Path) -> str:
    """Return the listing of a chunk."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    path.write_text(text)
    done = subprocess.run([compiler, "-l", "-p", str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("compiler", ["luac5.1", "luac5.3", "luac5.4"])
@pytest.mark.parametrize("name", FILES)
def test_a_hook_compiles(name: str, compiler: str, tmp_path: Path) -> None:
    assert [compiled(compiler, text, tmp_path / name) for text in chunks(name)]


KNOWN = {
    "assert",
    "debug",
    "error",
    "io",
    "ipairs",
    "load",
    "loadstring",
    "math",
    "next",
    "os",
    "package",
    "pairs",
    "pcall",
}
KNOWN |= {"loadfile", "require", "setmetatable", "slurm", "string", "table", "tonumber", "tostring", "type"}


@pytest.mark.parametrize("name", FILES)
def test_a_hook_uses_and_defines_only_the_globals_it_should(name: str, tmp_path: Path) -> None:
    """A misspelt local would be one, and new ones would meet those of a site's own script."""
    used: dict[str, set[str]] = {"GETGLOBAL": set(), "SETGLOBAL": set()}
    for text in chunks(name):
        for line in compiled("luac5.1", text, tmp_path / name).splitlines():
            for operation, names in used.items():
                if operation in line:
                    names.add(line.split(";")[-1].strip())
    assert used["GETGLOBAL"] <= KNOWN
    assert (
        used["SETGLOBAL"]
        == {
            "job_submit.lua": {"slurm_job_submit", "slurm_job_modify"},
            "cli_filter.lua": {"slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit"},
            ADVICE: set[str](),
        }[name]
    )


def test_what_every_submission_reads_is_small() -> None:
    """One page of memory: reading more of it would take longer than what it does."""
    assert len(read_hook("cli_filter.lua").encode()) < 4096


def test_what_few_submissions_need_is_compiled_on_demand_alone() -> None:
    _, *parts = chunks(ADVICE)
    assert parts == [read_hook("cli_filter/typed.lua"), read_hook("cli_filter/files.lua")]


@pytest.mark.parametrize(
    "command",
    [
        "trl sft --config sft.yaml",
        "srun python -m llama_cookbook.finetuning --enable_fsdp",
        "llamafactory-cli sft.yaml",
        "axolotl preprocess full.yml",
        "python deepy.py train.py -d configs neox.yml",
        "litgpt finetune_full EleutherAI/pythia-160m",
    ],
)
def test_commands_that_readers_know_hold_a_word_that_lets_the_question_through(command: str) -> None:
    words = re.search(r"TRAINING_WORDS = \{(.*?)\}", read_hook("shared/words.lua"), re.DOTALL)
    assert words is not None
    assert any(word in command.lower() for word in re.findall(r'"([^"]+)"', words[1]))
