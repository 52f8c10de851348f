"""Hostile scripts: whatever the text, reading ends, raises nothing, and its work stays in proportion to the size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.patterns import remove_match, replace_match
from opsk_jobcheck.scripts.bash.values import MAX_VALUE_CHARS, Run, Scalar

KIB = 1 << 10
PIECES = (
    *(
        "if ",
        "then ",
        "else ",
        "fi\n",
        "for i in a b; do ",
        "while true; do ",
        "done\n",
        "case $X in a) ",
        ";; ",
        "esac\n",
    ),
    *(
        "f() { ",
        "}\n",
        "( ",
        ") ",
        "$(",
        "$((",
        "))",
        "${X",
        "${X:-",
        "${X//a/",
        "}",
        '"',
        "'",
        "`",
        "\\",
        "\n",
        "<<E\n",
    ),
    *(
        "E\n",
        "<<< ",
        "X=",
        "X+=(",
        "A[0]=",
        "export ",
        "local ",
        "$X",
        "${A[@]}",
        "[[ ",
        " ]]",
        "&& ",
        "|| ",
        "| ",
        "; ",
    ),
    *(
        "# c\n",
        "eval ",
        "bash -c ",
        "source x\n",
        "read A <<< ",
        "--tp 4 ",
        "\0",
        "\x1b[2J",
        "é",
        "\ue000",
        "\ue0010\ue001",
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(run(text, given={}), Run)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_row_of_shell_pieces_is_read(text: str) -> None:
    assert isinstance(run(text, given={}), Run)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 256 * KIB,
        "${{${" * 50 * KIB,
        "$((" * 80 * KIB,
        "$(" * 128 * KIB,
        '"$(' * 80 * KIB,
        '"' * 256 * KIB,
        "`" * 128 * KIB,
        "$" * 128 * KIB,
        "'" + "a" * 256 * KIB,
        "cat <<A\n" * 32 * KIB,
        "if true; then\n" * 20 * KIB,
        "f() " * 32 * KIB,
        "[[ " + "( " * 64 * KIB,
        "bash -c " * 16 * KIB,
        "\0" * 256 * KIB,
        "f() { g; g; }; g() { f; f; }; f",
        'X=\'eval "$X"\'\neval "$X"',
        "X=X\nY=$((X))",
        "\n".join(f"f{n}() {{ f{n + 1}; f{n + 1}; }}" for n in range(60)) + "\nf0",
        "IFS=,\nX=" + "a," * 20000 + "\n" + "run $X\n" * 200,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_scripts_are_read_to_an_end(text: str) -> None:
    assert isinstance(run(text, given={}), Run)


def test_a_value_that_doubles_again_and_again_is_given_up() -> None:
    variable = run("X=aaaa\n" + "X=$X$X\n" * 100, given={}).variables["X"]
    assert isinstance(variable, Scalar)
    assert variable.text.known is None
    assert sum(len(part.text) for part in variable.text.parts) <= MAX_VALUE_CHARS


def test_work_beyond_proportion_is_a_problem_of_the_script() -> None:
    problems = run('X="' + "a " * 20000 + '"\n' + "run $X\n" * 500, given={}).problems
    assert any("work" in what for _, what in problems)


def test_words_count_as_work_however_short_they_are() -> None:
    words = "run " + "a " * 4000 + "\n"
    files = {f"part{number}.sh": words * 30 for number in range(4)}  # 240 KB and 120,000 words each
    found = run("".join(f"source part{number}.sh\n" for number in range(4)), given={}, files=files)
    assert any("work" in what for _, what in found.problems)
    assert 30 <= len(found.invocations) < 60  # the first file whole, no second one


def test_patterns_with_many_stars_are_not_tried_on_long_texts() -> None:
    assert replace_match("a" * 4000, "*a*a*b", "", everywhere=True) is None
    assert remove_match("##", "a/" * 100, "*/") == ""
