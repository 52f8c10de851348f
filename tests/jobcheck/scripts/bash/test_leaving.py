"""What stands behind an ``exit`` is read only where it may run; expectations tried in bash 5.2."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run


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
