"""Is there a page for every command, without a fault that man or mandoc finds, and does hostile text stay text?"""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import click
import pytest

from deploy.packages import manual
from opsk.cli.main import opsk
from tests.packaging.conftest import program, run

EPOCH = 1767225600


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    manual.main(folder, EPOCH)
    return folder


def words_of_commands() -> set[str]:
    top = click.Context(opsk, info_name="opsk")
    return {context.command_path.replace(" ", "-") for context, _ in manual.commands(top, opsk)}


def test_every_command_has_its_page(pages: Path) -> None:
    assert {page.stem for page in pages.iterdir()} == words_of_commands()
    assert {"opsk", "opsk-check", "opsk-lab-up"} <= words_of_commands()


def test_every_option_stands_on_its_page(pages: Path) -> None:
    top = click.Context(opsk, info_name="opsk")
    missing = [
        f"{context.command_path} {name}"
        for context, command in manual.commands(top, opsk)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in option.opts
        if manual.roff(name) not in (pages / f"{context.command_path.replace(' ', '-')}.1").read_text(encoding="utf-8")
    ]
    assert missing == []


def test_man_has_no_warning(pages: Path) -> None:
    man = program("man", "man-db")
    said = {page.name: run(man, "--warnings=w", "-Tutf8", "-Z", "-l", page).stderr for page in sorted(pages.iterdir())}
    assert {name: text for name, text in said.items() if text} == {}


def test_mandoc_has_no_warning(pages: Path) -> None:
    done = run(program("mandoc", "mandoc"), "-T", "lint", "-W", "warning", *sorted(pages.iterdir()))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_person_reads_what_the_help_says(pages: Path) -> None:
    shown = run(program("mandoc", "mandoc"), "-T", "utf8", pages / "opsk-check.1").stdout
    plain = " ".join(
        subprocess.run(["col", "-b"], input=shown, capture_output=True, text=True, check=True).stdout.split()
    )
    assert "opsk-check - read an sbatch SCRIPT" in plain
    assert "opsk check [OPTIONS] SCRIPT" in plain
    assert "--cluster NAME|FILE Catalogue name of the cluster, or a cluster TOML." in plain
    assert "2026-01-01" in plain


def test_text_that_looks_like_roff_is_shown_as_text(tmp_path: Path) -> None:
    @click.command()
    @click.option("--hostile", help="\\fBbold\\fR \\n(.g 'so /etc/passwd")
    def evil(hostile: str) -> None:
        """.so /etc/passwd is what this begins with.

        'tis a second paragraph \\ with a backslash.

        \b
        .TH within
        what is not wrapped
        """

    page = tmp_path / "evil.1"
    page.write_text(manual.page(click.Context(evil, info_name="evil"), evil, "2026-01-01"), encoding="utf-8")
    checked = run(program("mandoc", "mandoc"), "-T", "lint", "-W", "warning", page)
    assert checked.stdout == ""
    shown = run("mandoc", "-T", "ascii", page).stdout
    for text in (".so /etc/passwd is what", "'tis a second paragraph \\ with", ".TH within", "\\fBbold\\fR \\n(.g 'so"):
        assert text in shown.replace("\x08", "").replace("__", "_"), text


def test_the_tree_carries_the_pages_packed(tree: Path, pages: Path) -> None:
    packed = {path.name for path in (tree / "share" / "man" / "man1").iterdir()}
    assert packed >= {"opsk.1.gz", "opsk-check.1.gz"}
    text = gzip.decompress((tree / "share" / "man" / "man1" / "opsk-check.1.gz").read_bytes()).decode("utf-8")
    assert text.splitlines()[1:] == (pages / "opsk-check.1").read_text(encoding="utf-8").splitlines()[1:]


def test_man_finds_the_page_of_a_command_that_a_module_put_on_path(tree: Path) -> None:
    programs = tree / "share" / "opsk" / "deploy" / "bin"
    done = run(program("man", "man-db"), "-w", "opsk-check", PATH=f"{programs}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).samefile(tree / "share" / "man" / "man1" / "opsk-check.1.gz")
