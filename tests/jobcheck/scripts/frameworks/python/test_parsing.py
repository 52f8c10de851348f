"""Programs of a later Python than the one that opsk runs with."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.frameworks.python.parsing import parse_program, write_as_before_3_12


@pytest.mark.parametrize(
    ("text", "older"),
    [
        ('x = f"{path.split("/")[0]}"\n', "x = f\"{path.split('/')[0]}\"\n"),
        ("x = f'{a['b']} and {c['d']}'\n", 'x = f\'{a["b"]} and {c["d"]}\'\n'),
        ('x = f"{"".join(y)}" + "z"\n', 'x = f"{\'\'.join(y)}" + "z"\n'),
        ('x = f"{{not}} {a["b"]}"\n', "x = f\"{{not}} {a['b']}\"\n"),
        ("x = f\"{'\\n'.join(y)}\"\n", "x = f\"{' n'.join(y)}\"\n"),
    ],
)
def test_quotes_and_backslashes_in_braces_are_read(text: str, older: str) -> None:
    assert write_as_before_3_12(text) == older
    assert isinstance(parse_program(text).body[0], ast.Assign)


@pytest.mark.parametrize("text", ["x = f'{a}'\n", 'x = f"""{a}"""\n', 'x = f"\\"{a}\\""\n', 'name = "of" "it"\n'])
def test_what_every_python_reads_stays(text: str) -> None:
    assert write_as_before_3_12(text) == text


def test_a_text_that_is_no_python_is_refused() -> None:
    for text in ("print 1\n", 'f"{', "x = f'{a'\n"):
        with pytest.raises(SyntaxError):
            parse_program(text)


@given(st.text(alphabet="f\"'{}\\ab\n", max_size=200))
def test_any_text_keeps_its_lines(text: str) -> None:
    assert write_as_before_3_12(text).count("\n") == text.count("\n")
