"""What ``$`` forms become; expectations by the bash manual, and tried in bash 5.2."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Array, Run, Scalar


def read(text: str, *, environment: dict[str, str] | None = None) -> Run:
    return run(text, given={}, environment=environment)


def known(result: Run, name: str) -> str | list[str | None] | None:
    variable = result.variables[name]
    if isinstance(variable, Scalar):
        return variable.text.known
    return None if variable.why else [word.known for word in variable.words]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$A", "a/b.c"),
        ("${A}x", "a/b.c" + "x"),
        ("\"$A\"'$A'", "a/b.c$A"),
        ("${#A}", "5"),
        ("${A#*/}", "b.c"),
        ("${A%.*}", "a/b"),
        ("${A##*[/.]}", "c"),
        ("${A%%/*}", "a"),
        ("${A//\\//_}", "a_b.c"),
        ("${A/./}", "a/bc"),
        ("${A^^}", "A/B.C"),
        ("${A:2:1}", "b"),
        ("${A: -1}", "c"),
        ("${A: -9}", ""),
        ("${E:-d}", "d"),
        ("${E-d}", ""),
        ("${E:+d}", ""),
        ("${A:+d}", "d"),
        ('"${E:-"a b"}"', "a b"),
        ("${N//_}", "2000000"),
        ("$((N2*2))", "8"),
        ("${!P}", "a/b.c"),
        ("$'a\\tb'", "a\tb"),
        ("a\\ b", "a b"),
        ("x\\\ny", "xy"),
        ('"${A#"a"}"', "/b.c"),
    ],
)
def test_a_parameter_becomes_what_bash_makes_of_it(expression: str, expected: str) -> None:
    result = read(f"A=a/b.c E= N=2_000_000 N2=4 P=A\nX={expression}\n")
    assert known(result, "X") == expected


def test_an_assigned_default_stays() -> None:
    result = read(': "${SEQ:=4096}"\nX=$SEQ\n')
    assert (known(result, "SEQ"), known(result, "X")) == ("4096", "4096")


def test_an_unset_variable_is_unknown_and_the_reason_names_it() -> None:
    variable = read("X=$HOME_OF_DATA\n").variables["X"]
    assert isinstance(variable, Scalar)
    assert variable.text.known is None
    assert "HOME_OF_DATA" in variable.text.why


def test_the_environment_beats_a_default() -> None:
    assert known(read("X=${TP:-2}\n", environment={"TP": "8"}), "X") == "8"
    assert known(read("X=${TP:-2}\n", environment={}), "X") == "2"


@pytest.mark.parametrize("expression", ["$(hostname)", "`hostname`", "${A@Q}", "$RANDOM", "$$"])
def test_what_only_a_run_can_tell_is_unknown(expression: str) -> None:
    assert known(read(f"A=1\nX={expression}\n"), "X") is None


def test_arrays_are_followed_through_additions_slices_and_members() -> None:
    lines = (
        "A=(a 'b c' # a comment\n  --d)",
        "A+=(e)",
        'B=("${A[@]:1:2}")',
        "C=(${A[@]})",
        "N=${#A[@]} M=${A[-1]}",
        'L="${A[*]}"',
    )
    result = read("\n".join(lines))
    assert known(result, "B") == ["b c", "--d"]
    assert known(result, "C") == ["a", "b", "c", "--d", "e"]
    assert (known(result, "N"), known(result, "M"), known(result, "L")) == ("4", "e", "a b c --d e")


def test_an_empty_array_in_quotes_is_no_word() -> None:
    assert known(read('A=()\nB=(x "${A[@]}" y)\n'), "B") == ["x", "y"]


def test_the_idiom_for_arrays_that_may_be_empty_keeps_their_words() -> None:
    result = read('A=(a \'b c\')\nB=()\nC=(${A[@]+"${A[@]}"} ${B[@]+"${B[@]}"})\n')
    assert known(result, "C") == ["a", "b c"]


def test_a_member_that_an_array_does_not_have_is_empty() -> None:
    result = read("A=(a b)\nX=${A[5]}\nN=${#A[5]}\nD=${A[5]:-d}\n")
    assert (known(result, "X"), known(result, "N"), known(result, "D")) == ("", "0", "d")


def test_members_behind_words_of_unknown_number_are_unknown() -> None:
    assert known(read("A=($(ls) 4)\nX=${A[1]}\nN=${#A[@]}\n"), "X") is None


@pytest.mark.parametrize(
    "command", ["hostname", "echo 4", "seq 0 3", "cat <<E\n4\nE\n", "echo ${Y:=3}", "echo a | tr a b"]
)
def test_what_a_command_prints_is_not_known_and_sets_nothing(command: str) -> None:
    result = read(f"X=$({command})\n")
    assert known(result, "X") is None
    assert result.variables.keys() - {"X", ".", "PWD"} == set()


def test_words_are_split_at_ifs() -> None:
    result = read("L=1,4,8,1\nIFS=,\nset -- $L\nX=$3\nIFS=$' \\t\\n'\nY=$L\n")
    assert (known(result, "X"), known(result, "Y")) == ("8", "1,4,8,1")


def test_a_default_in_quotes_stays_one_word() -> None:
    assert known(read('A=(${X:-"a b"})\n', environment={}), "A") == ["a b"]


def test_each_value_keeps_the_line_that_it_was_written_on() -> None:
    result = read('TP=4\nARGS=" --tp $TP \\\n --pp 2"\nrun $ARGS\n')
    lines = {word.known: word.line for word in result.invocations[0].words}
    assert lines == {"run": 4, "--tp": 2, "4": 1, "--pp": 3, "2": 3}


def test_what_is_added_is_expanded_before_it_is_added() -> None:
    assert known(read('D+="${D=d e}"\n', environment={}), "D") == "d ed e"


def test_a_value_behind_a_joined_line_keeps_its_own_line() -> None:
    result = read("X=\\\n12\nrun $X 'a\nb' \"c\\\nd\"\n")
    lines = [(word.known, word.line) for word in result.invocations[0].words]
    assert lines == [("run", 3), ("12", 2), ("a\nb", 4), ("cd", 5)]


def test_an_array_is_not_known_once_a_member_far_away_is_set() -> None:
    variable = read("A=(a)\nA[7]=b\n").variables["A"]
    assert isinstance(variable, Array)
    assert variable.why


def test_members_with_an_unknown_end_stay_words_of_their_own() -> None:
    (command,) = read('A=(--a=1 --b=$U --c=2); t "${A[@]}"').invocations
    assert [word.parts[0].text for word in command.words] == ["t", "--a=1", "--b=", "--c=2"]
