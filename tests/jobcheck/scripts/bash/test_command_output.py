"""What ``$(...)`` prints, where it is certain; the expected texts are those of bash 5.2."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Scalar, Text


def text_of(script: str, name: str = "A") -> Text:
    """Return what a variable holds at the end of a script."""
    variable = run(script, given={}).variables[name]
    assert isinstance(variable, Scalar)
    return variable.text


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo 4", "4"),
        ("echo -n a  b", "a b"),
        ("echo -n -E a", "a"),
        ("echo --nnodes 2", "--nnodes 2"),
        ("echo '' a", "a"),
        ("printf '%s' 'x y'", "x y"),
        ("basename /data/model.json", "model.json"),
        ("basename /data/", "data"),
        ("dirname /data/run/x.sh", "/data/run"),
        ("dirname x.sh", "."),
        ("echo '3 * 4' | bc", "12"),
        ("echo 7/2 | bc", "3"),
        ("echo '(2+3)*4' | bc", "20"),
        (
            r"""echo "a
b" | tr '\n' ' '""",
            "a b ",
        ),
        ("echo 'a   b' | sed 's/  */ /g'", "a b"),
        (r"echo 'a   b' | sed -e 's/  \+/ /g'", "a b"),
        ("echo 'a   b' | tr -s ' '", "a b"),
        ("echo a,b | tr , ' '", "a b"),
        ("echo a-b | tr -d -", "ab"),
        ("echo '  a   b ' | xargs", "a b"),
        ("echo $(echo $(echo deep))", "deep"),
    ],
)
def test_what_is_certain_is_known(command: str, expected: str) -> None:
    assert (text_of(f"A=$({command})").known or "").strip(" ") == expected.strip(" ")


def test_a_loop_over_counted_numbers_is_walked_turn_by_turn() -> None:
    assert text_of("A=; for i in $(seq 0 3); do A=$A$i; done").known == "0123"


@pytest.mark.parametrize(
    "command",
    [
        "hostname",
        "echo a; hostname",
        "echo a | sed 's/a/b/'",
        "echo a | awk '{print $1, $2}'",
        "echo a | awk -F'[,]' '{print $1}'",
        "echo a,b | cut -d, -f1,2",
        "echo a,b | cut -c1",
        "echo $X | wc -w",
        "echo a | wc -c",
        "seq 0.5 3",
        "seq -w 8 10",
        "seq -f %03g 3",
        "seq 100000",
        "seq 1 0 4",
        "expr 4 / 0",
        "expr abc : a",
        "expr 4 \\* \\( 1 + 1 \\)",
        "expr 010 + 1",
        r"echo -e 'a\nb'",
        "echo $X b",
        "echo 1.5*2 | bc",
        "echo 7/2 | bc -l",
        "cat file",
        "echo a > file",
        "echo a | tr a-z A-Z",
        "basename $X .json",
        'echo "it\'s" | xargs',
        "printf '%d' 3",
    ],
)
def test_anything_else_is_not_known(command: str) -> None:
    assert text_of(f"A=$({command})").known is None


def test_a_here_document_is_taken_over_with_its_lines() -> None:
    text = text_of("A=$(cat <<EOF\n--x $N\nlast\nEOF\n)\n")
    assert [(part.text, part.line) for part in text.parts if not part.why] == [("--x ", 2), ("\n", 2), ("last", 3)]


def test_quotes_in_a_here_document_do_no_harm() -> None:
    assert text_of("A=$(cat <<'EOF'\nit's \"$x\" )\nEOF\n)\n").known == 'it\'s "$x" )'


def test_of_a_text_that_is_partly_unknown_the_rest_is_kept() -> None:
    text = text_of("A=$(echo \"--save $DIR\n   --size 4\" | tr '\\n' ' ' | sed 's/  \\+/ /g')")
    assert [part.text for part in text.parts] == ["--save ", "", " ", " --size 4 "]


def test_nothing_is_assigned_outside() -> None:
    assert "X" not in run("A=$(echo ${X:=3})", given={}).variables


def test_nesting_without_end_is_given_up() -> None:
    assert text_of("A=" + "$(echo " * 40 + "x" + ")" * 40).known is None
