"""What a loop over known words leaves behind when ``break`` and ``continue`` end some of its turns; as bash does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.splitting import DEFAULT_IFS
from opsk_jobcheck.scripts.bash.values import Run, Scalar, literal

BASH = Path("/bin/bash")


def known(script: str, name: str) -> str | None:
    """Return what a variable certainly holds at the end of a script."""
    variable = run(script, given={}).variables.get(name)
    return variable.text.known if isinstance(variable, Scalar) else None


def commands(result: Run, name: str) -> list[tuple[list[str], bool]]:
    """Return the commands of one name, and whether each certainly runs."""
    return [
        ([word.shown for word in entry.words[1:]], entry.certain)
        for entry in result.invocations
        if entry.words[0].known == name
    ]


@pytest.mark.skipif(not BASH.exists(), reason="there is no /bin/bash to agree with")
@pytest.mark.parametrize(
    "body",
    [
        "for x in 1 2 3; do A=$x; break; B=$x; done",
        "for x in 1 2 3; do A=$x; continue; B=$x; done",
        "for x in 1 2 3; do if [ $x = 2 ]; then break; fi; A=$A$x; done; B=$x",
        "for x in 1 2 3; do if [ $x = 2 ]; then continue; fi; A=$A$x; done; B=$x",
        "for x in 1 2; do for y in 5 6; do [ $y = 6 ] && break; A=$A$x$y; done; B=$y; done",
        "for x in 1 2 3; do ( break ); A=$A$x; done",
        "f() { for x in 1 2 3; do if [ $x = 2 ]; then return 0; fi; A=$A$x; done; B=never; }; f",
        "for x in 1 2 3; do case $x in 2) break ;; *) A=$A$x ;; esac; done",
        "for x in 1 2 3; do { A=$x; break; }; done; B=$x",
        "for x in 1 2 3; do for y in 7 8; do A=$x$y; continue 2; done; done",
    ],
)
def test_what_is_known_is_what_bash_says(body: str) -> None:
    ran = subprocess.run(
        [str(BASH), "-c", f'{body}\nprintf "%s|%s" "$A" "$B"'], capture_output=True, text=True, check=True
    )
    said = [known(body, name) for name in "AB"]
    for mine, theirs in zip(said, ran.stdout.split("|"), strict=True):
        assert mine in (None, theirs)


def test_a_turn_that_certainly_breaks_is_the_last() -> None:
    assert known("for x in 1 2 3; do A=$x; break; done", "A") == "1"


def test_what_an_uncertain_break_may_leave_is_not_known() -> None:
    script = "A=0\nfor x in 1 2 3; do if nc -z host $x; then A=$x; break; fi; done"
    assert known(script, "A") is None


def test_the_first_turn_is_certain_and_later_ones_only_if_nothing_broke_off() -> None:
    script = "for x in 1 2; do train $x; if [ $? -ne 0 ]; then break; fi; done; done_with $x"
    assert commands(run(script, given={}), "train") == [(["1"], True), (["2"], False)]


def test_continue_at_the_end_of_a_turn_takes_nothing_from_the_next() -> None:
    script = "E=0\nfor x in 1 2; do train $x; if [ $? -ne 0 ]; then E=1; continue; fi; done"
    assert commands(run(script, given={}), "train") == [(["1"], True), (["2"], True)]
    assert known(script, "E") is None


def test_what_stands_behind_an_uncertain_continue_may_not_have_run() -> None:
    assert known("A=0\nfor x in 1; do test -e file && continue; A=1; done", "A") is None


def test_a_saved_and_restored_ifs_survives() -> None:
    turn = 'O=$IFS; IFS=, read -r T P <<< "$c"; IFS=$O; train $T $P || continue'
    script = f'for c in 1,2 3,4; do {turn}; done; X="a b"; go $X'
    result = run(script, given={"IFS": literal(DEFAULT_IFS, 0)})
    assert [words for words, _ in commands(result, "train")] == [["1", "2"], ["3", "4"]]
    assert commands(result, "go")[0][0] == ["a", "b"]


def test_a_loop_behind_a_certain_exit_is_read() -> None:
    script = 'if [ -z "" ]; then exit 1; fi\nwhile true; do train 1; if x; then break; fi; done'
    assert commands(run(script, given={}), "train") == [(["1"], True)]


def test_a_loop_that_counts_far_is_not_walked_turn_by_turn() -> None:
    """It would take its time, and nothing would be known in the end."""
    assert commands(run("for ((i = 0; i < 600; i++)); do train $i; done", given={}), "train") == [(["…"], False)]
    assert len(commands(run("for ((i = 0; i < 8; i++)); do train $i; done", given={}), "train")) == 8
    counted = run("i=0; while [ $i -lt 600 ]; do train $i; i=$((i + 1)); done", given={})
    assert len(commands(counted, "train")) < 30


def runs(script: str) -> list[str]:
    """Return the arguments of the commands ``run`` that a script may start."""
    return [
        " ".join(entry.known_words[1:]) for entry in run(script, given={}).invocations if entry.known_words[0] == "run"
    ]


@pytest.mark.parametrize(
    "script",
    [
        "run 1\nexit 0\nrun 2",
        "exec run 1\nrun 2",
        "{ run 1; exit; }\nrun 2",
        "run 1\nexit\nfor i in 2 3; do run $i; done\nif x; then run 4; fi",
    ],
)
def test_what_stands_behind_a_certain_end_is_not_read(script: str) -> None:
    assert runs(script) == ["1"]


@pytest.mark.parametrize(
    "script",
    [
        "run 1\n( exit 0 )\nrun 2",
        "run 1\nexit 0 | cat\nrun 2",
        "run 1\nexit 0 &\nrun 2",
        "run 1\nif [ -f x ]; then exit; fi\nrun 2",
        "run 1\n[ -f x ] || exit 1\nrun 2",
        "f() { [ -f x ] && return; exit; }\nrun 1\nf\nrun 2",
        "run 1\nbash -c 'exit 1'\nrun 2",
        "f() { run 1; exit; }\nf\nrun 2",
        "exec > log 2>&1\nrun 1\nrun 2",
        "die() { exit 1; }\nrun 1\n[ -f x ] || die\nrun 2",
    ],
)
def test_what_stands_behind_another_shells_end_or_a_possible_one_is_read(script: str) -> None:
    assert runs(script) == ["1", "2"]


def test_a_template_that_stops_for_what_is_to_be_filled_in_is_read_on() -> None:
    assert runs('IMAGE=""\nif [ -z "$IMAGE" ]; then echo fill in IMAGE; exit 1; fi\nrun 1') == ["1"]
