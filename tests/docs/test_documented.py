"""Is all that a person can type written down where people look: commands, keys of opsk.toml, variables, decisions?

That each option is explained, and that the page on commands has all of them, is asked in `tests/architecture`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
from pydantic import BaseModel

from opsk.cli.main import opsk
from opsk.config import PolicyRule, SiteConfig
from opsk_exporters.core.settings import Settings

VARIABLE = re.compile(r"\bOPSK_[A-Z_]*[A-Z]\b")
NOT_VARIABLES = {
    "OPSK_END",  # ends a here-document in scripts that opsk writes
    "OPSK_PASSWORD_FILE",  # within deploy/database/set-up, which has options for it
    "OPSK_READER_PASSWORD_FILE",
}


def leaves(group: click.Group = opsk, above: str = "opsk") -> Iterator[str]:
    """All commands that do something themselves, with their words."""
    context = click.Context(group, info_name=above)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{above} {name}")
        elif not command.hidden:
            yield f"{above} {name}"


def written(root: Path, *patterns: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(root.glob(pattern)))


@pytest.fixture(scope="module")
def guides(root: Path) -> str:
    """What is read by people who do something: no list of everything."""
    text = written(root, "README.md", "docs/tutorial/*.md", "docs/howto/*.md", "docs/explanation/*.md")
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("words", sorted(leaves()))
def test_a_guide_shows_the_command(guides: str, words: str) -> None:
    assert re.search(rf"\b{re.escape(words)}\b(?!-)", guides), f"no how-to, tutorial or explanation names {words!r}"


def keys(model: type[BaseModel] = SiteConfig, above: str = "") -> Iterator[str]:
    """All keys of opsk.toml, with the tables that they are in."""
    for name, field in model.model_fields.items():
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        tables = [each for each in inner if issubclass(each, BaseModel)]
        if name != "exporter" and (not tables or name == "policy"):
            yield f"{above}{name}"
        for table in tables:
            yield from keys(table, f"{above}{name}.")


def exporter_keys() -> Iterator[str]:
    """Those of the exporter's table, which it reads by itself."""
    yield from (f"exporter.{each.name}" for each in dataclasses.fields(Settings))


def test_every_key_of_the_configuration_is_on_its_page(root: Path) -> None:
    page = (root / "docs/reference/site-configuration.md").read_text(encoding="utf-8")
    sections: dict[str, str] = {}
    name = ""
    for part in re.split(r"^## ", page, flags=re.MULTILINE):
        head, _, body = part.partition("\n")
        for name in re.findall(r"\[([a-z_.]+)\]", head) or [""]:
            sections[name] = sections.get(name, "") + body
    missing = []
    for key in [*keys(), *exporter_keys()]:
        table, _, last = key.rpartition(".")
        text = sections.get(table.split(".")[0], "")
        if not re.search(rf"`(?:[a-z_]+\.)*{last}`", text):
            missing.append(key)
    assert missing == []


def test_the_keys_of_a_rule_are_on_the_page(root: Path) -> None:
    page = (root / "docs/reference/site-configuration.md").read_text(encoding="utf-8")
    assert [name for name in PolicyRule.model_fields if f"`{name}`" not in page] == []


def test_every_variable_is_on_its_page_and_every_one_there_is_read(root: Path) -> None:
    page = set(VARIABLE.findall((root / "docs/reference/environment.md").read_text(encoding="utf-8")))
    code = [path for folder in ("opsk", "jobcheck", "exporters", "tui", "deploy") for path in (root / folder).rglob("*")
            if path.is_file() and path.suffix in ("", ".py", ".lua", ".c", ".service", ".conf")
            and "packages" not in path.parts]  # fmt: skip
    read = {name for path in code for name in VARIABLE.findall(path.read_text(encoding="utf-8", errors="replace"))}
    assert sorted(read - page - NOT_VARIABLES) == []
    tests = {name for path in (root / "tests").rglob("*.py") for name in VARIABLE.findall(path.read_text())}
    make = set(VARIABLE.findall((root / "Makefile").read_text(encoding="utf-8")))
    assert sorted(page - read - tests - make) == []


def test_every_decision_is_in_the_list(root: Path) -> None:
    listed = (root / "docs/adr/index.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted((root / "docs/adr").glob("0*.md")) if f"({path.name})" not in listed] == []


def test_every_page_of_a_part_is_in_its_list(root: Path) -> None:
    """The lists of how-tos, explanations and reference pages are how people who read in the repository find them."""
    missing: list[str] = []
    for folder in ("howto", "explanation", "reference"):
        listed = (root / "docs" / folder / "index.md").read_text(encoding="utf-8")
        names = [path.name for path in sorted((root / "docs" / folder).glob("*.md")) if path.name != "index.md"]
        missing += [f"{folder}/{name}" for name in names if f"({name})" not in listed]
    assert missing == []


def test_the_readme_is_read_in_a_minute(root: Path) -> None:
    """Two sentences and a picture, then how to install it, then all else; what is longer has a page."""
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    heads = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert heads[:3] == ["Install", "Try it", "Examples"]
    assert sum("](docs/images/" in line for line in lines) == 1
