"""Do real shells complete ``opsk`` with the files that the tree carries?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.conftest import program, run

BASH = """
source "$1"
COMP_WORDS=(opsk "$2") COMP_CWORD=1
_opsk_completion opsk
printf '%s\\n' "${COMPREPLY[@]}"
"""
# compadd and its kin work only while a line is edited: stand-ins show what they are called with.
ZSH = """
compdef() { :; }
compadd() { print -l -- "$@"; }
_describe() { print -l -- ${(P)3}; }
source "$1"
words=(opsk "$2") CURRENT=2
_opsk_completion
"""
FISH = 'source $argv[1]; complete --do-complete "opsk $argv[2]"'


@pytest.fixture
def environment(tree: Path) -> dict[str, str]:
    return {"PATH": f"{tree / 'share' / 'opsk' / 'deploy' / 'bin'}:/usr/bin:/bin"}


def test_bash(tree: Path, environment: dict[str, str]) -> None:
    file = tree / "share" / "bash-completion" / "completions" / "opsk"
    done = run(program("bash", "bash"), "-c", BASH, "bash", file, "che", **environment)
    assert (done.stdout.split(), done.stderr) == (["check"], "")


def test_bash_on_options_of_a_command(tree: Path, environment: dict[str, str]) -> None:
    text = BASH.replace('(opsk "$2") COMP_CWORD=1', '(opsk check "$2") COMP_CWORD=2')
    file = tree / "share" / "bash-completion" / "completions" / "opsk"
    done = run(program("bash", "bash"), "-c", text, "bash", file, "--clu", **environment)
    assert done.stdout.split() == ["--cluster"]


def test_zsh(tree: Path, environment: dict[str, str]) -> None:
    file = tree / "share" / "zsh" / "site-functions" / "_opsk"
    assert file.read_text(encoding="utf-8").startswith("#compdef opsk\n")
    done = run(program("zsh", "zsh"), "-f", "-c", ZSH, "zsh", file, "che", **environment)
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("check") for line in done.stdout.splitlines())


def test_fish(tree: Path, environment: dict[str, str], tmp_path: Path) -> None:
    file = tree / "share" / "fish" / "vendor_completions.d" / "opsk.fish"
    done = run(
        program("fish", "fish"), "--no-config", "-c", FISH, file, "che", **{**environment, "HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["check"]


def test_it_lies_where_bash_completion_looks_for_a_command_on_path(tree: Path) -> None:
    # "../share/bash-completion/completions" beside the folder of the command (bash-completion 2.12, _comp_load).
    beside = tree / "share" / "opsk" / "deploy" / "share" / "bash-completion" / "completions" / "opsk"
    assert beside.samefile(tree / "share" / "bash-completion" / "completions" / "opsk")
