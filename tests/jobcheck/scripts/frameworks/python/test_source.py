"""Tests of a Python program that is read together with the modules that it imports."""

from __future__ import annotations

from opsk_jobcheck.scripts.frameworks.python.source import join_sources
from opsk_jobcheck.scripts.frameworks.python.statements import read_python


def test_joined_modules_keep_the_lines_of_each_and_drop_what_both_define() -> None:
    joined = join_sources(read_python("a = 1\nb = 2"), read_python("c = 3\nb = 4"))
    assert {name: joined.get_line(value.line) for name, value in joined.constants.items()} == {
        "a": "a = 1",
        "c": "c = 3",
    }
