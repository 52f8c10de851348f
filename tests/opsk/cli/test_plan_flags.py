"""Flags are the keys of a plan file, and the help shows them in sections."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from opsk.app.inputs.plan_validation import KINDS, parse_flag
from opsk.cli.main import opsk
from opsk.cli.plan_flags import DETAILS, SECTIONS, build_tables


@pytest.fixture
def page() -> str:
    return CliRunner().invoke(opsk, ["predict", "--help"], terminal_width=80).output


def test_every_key_has_a_flag(page: str):
    for table, prefix in (("", ""), ("model", "model-"), ("plan", ""), ("checkpoint", "checkpoint-"), ("run", "")):
        for key in KINDS[table]:
            name = "model" if key == "like" else f"{prefix}{key.replace('_', '-')}"
            assert re.search(
                rf"--(\S*\[no-\])?{re.escape(name)}\b", page.replace(f"--{prefix}[no-]", f"--[no-]{prefix}")
            ), key


def test_sections_follow_each_other_with_details_last(page: str):
    titles = re.findall(r"^(\S.*):$", page, flags=re.MULTILINE)
    assert titles == ["Options", *SECTIONS.values(), *(f"{SECTIONS[table]} in detail" for table in DETAILS)]


def test_the_help_fits_on_a_terminal(page: str):
    assert max(map(len, page.splitlines())) <= 80


def test_flags_that_were_given_become_tables():
    flags = {"top_nodes": "2", "model_hidden": "64", "plan_overlap": False, "plan_tp": None, "run_tokens": "1e9"}
    assert build_tables(flags) == {
        "nodes": 2,
        "model": {"hidden": 64},
        "plan": {"overlap": False},
        "run": {"tokens": 1e9},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("-3", -3), (" 1_000 ", 1000), ("8.0", "8.0"), ("٣", "٣"), ("", ""), ("9" * 400, 10**399)],
)
def test_whole_numbers_are_read_and_other_text_is_left_for_the_border(text: str, value: object):
    assert parse_flag("plan", "tp", text) == value
