"""Do the commands that the pages show print what stands below them, and can every other command line be typed?"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from opsk.cli.main import opsk
from opsk.config import SiteConfig
from opsk_exporters.core.settings import Settings
from tests.fakes.warm_opsk import warm

ROOT = Path(__file__).resolve().parents[2]
SHOWN = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "programs" / "shown.py")))
PAGES = SHOWN.pages()
EXACT = [block for page in PAGES for block in SHOWN.blocks(page) if not block.needs_lab and not block.why_not]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"(?:^|[|;&`]\s*|\$\(|^\$ )opsk ((?:\\\n|[^\n])*)", re.MULTILINE)


@pytest.mark.parametrize("block", EXACT, ids=lambda block: f"{block.page}:{block.line}")
def test_a_command_prints_what_the_page_shows(block: SimpleNamespace) -> None:
    session = SHOWN.Session(**warm().shell_function())
    try:
        for command, shown in block.shown:
            assert block.same(session.run(command)) == block.same(shown), "run python docs/programs/outputs.py"
    finally:
        session.close()


def test_what_is_not_run_says_why_and_only_three_pages_have_a_lab() -> None:
    for page in PAGES:
        for block in SHOWN.blocks(page):
            assert not block.mark or block.needs_lab or block.why_not or block.mark.startswith("differs in "), block
            assert not block.mark.startswith("not run") or len(block.why_not) > 10, block
            assert not block.needs_lab or block.page in SHOWN.WITH_LAB, block


def command_lines(text: str) -> list[str]:
    """What stands behind ``opsk`` in blocks without a language, up to a comment, a pipe or the like."""
    found = []
    for language, body in FENCE.findall(text):
        if language in ("", "bash", "console"):
            found += [re.sub(r"\\\n", " ", line) for line in LINE.findall(body)]
    return [re.split(r"\s#\s|\s[|;&>]|[)`]", line, maxsplit=1)[0].strip() for line in found]


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words name, and the words behind its name."""
    command: click.Command = opsk
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, f"no command {words[0]!r}"
        command, words = inner, words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_line_that_calls_opsk_can_be_typed(page: Path) -> None:
    wrong = []
    if page.name == "cli.md":  # usages, written by the commands themselves
        return
    for line in command_lines(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]", line) is None:  # an output, an ellipsis
            continue
        words = shlex.split(line.replace("…", ""), comments=True)
        try:
            command, rest = resolved(words)
        except AssertionError as error:
            wrong.append(f"{line}: {error}")
            continue
        if "--" in rest:
            rest = rest[: rest.index("--")]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        takes_any = command.ignore_unknown_options
        wrong += [
            f"{line}: {word}"
            for word in (word.partition("=")[0] for word in rest if word.startswith("--"))
            if word not in known | {"--help", "--version"} and not takes_any
        ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_piece_of_opsk_toml_is_accepted(page: Path) -> None:
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if language != "toml":
            continue
        found = tomllib.loads(body)  # whatever it is, it is TOML
        if "name" not in found and set(found) & set(SiteConfig.model_fields):  # a cluster, a plan have names of theirs
            SiteConfig.model_validate(found)
            unknown = set(found.get("exporter", {})) - set(Settings.__dataclass_fields__)
            assert unknown == set()


def test_the_lab_is_torn_down_by_the_tutorial_itself() -> None:
    commands = [command for block in SHOWN.blocks(ROOT / SHOWN.TUTORIAL) for command, _ in block.shown]
    assert commands[-2:] == ["opsk lab down", "cd / && rm -r /tmp/opsk-tutorial"]


RECORDED_LAB = "--cluster examples/lab/cluster.toml --fabric examples/lab/fabric.ibnetdiscover"


@pytest.mark.parametrize("script", ["llama3-70b-megatron.sbatch", "site-launcher.sbatch 13b"])
def test_the_advice_of_sbatch_is_what_check_says_of_the_recorded_lab(script: str) -> None:
    """All but the line on the network: on the lab it knew which nodes were free."""
    command = f"sbatch examples/{script}"
    page = ROOT / "docs" / "howto" / "read-the-advice.md"
    (shown,) = (text for block in SHOWN.blocks(page) for each, text in block.shown if each == command)
    session = SHOWN.Session(**warm().shell_function())
    said = session.run(f"opsk check {RECORDED_LAB} examples/{script}")
    session.close()
    advice = [line.removeprefix("sbatch: opsk").strip() for line in shown.splitlines() if line.startswith("sbatch: ")]
    assert [line for line in advice if not line.startswith("network")] == [
        line.strip() for line in said.splitlines() if not line.startswith("network")
    ]


def test_the_jobs_in_the_readme_have_the_predictions_of_the_recorded_lab() -> None:
    """Step time, TFLOP/s, MFU and the share of memory, of the job that the same block submits."""
    (block,) = (each for each in SHOWN.blocks(ROOT / "README.md") if each.needs_lab)
    (submitted, answer), (top, jobs) = block.shown
    assert (answer, top) == ("Submitted batch job 1\n", "opsk top --once")
    script = submitted.removeprefix("sbatch ").removesuffix(" 2>/dev/null")
    session = SHOWN.Session(**warm().shell_function())
    predicted = json.loads(session.run(f"opsk check --json {RECORDED_LAB} {script}"))
    session.close()
    memory, time = predicted["memory"], predicted["time"]
    (row,) = jobs.splitlines()[1:]
    assert f" {memory['total_bytes']['expected'] / memory['capacity_bytes']:.0%} ".replace("%", " %") in row
    assert f" {time['step_s']['expected']:.3g} s " in row
    assert f" {time['tflops_per_gpu']['expected']:.0f} " in row
    assert f" {time['mfu']['expected']:.0%} ".replace("%", " %") in row
