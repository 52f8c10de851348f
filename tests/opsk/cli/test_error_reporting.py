"""An error of any kind is at most two lines and an exit status; the exit statuses are those of the contract."""

from __future__ import annotations

import errno
from collections.abc import Callable

import click
import pytest

from opsk.cli.error_reporting import TRACEBACK, run_reporting_errors
from opsk.errors import InputError


@pytest.fixture(autouse=True)
def as_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACEBACK, raising=False)


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        (InputError("no such model", hint="see --list"), 2, ["opsk: no such model", "opsk: hint: see --list"]),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            3,
            [
                "opsk: /tmp/x: No space left on device",
                "opsk: hint: free some space, or set TMPDIR to a folder that has some",
            ],
        ),
        (KeyboardInterrupt(), 130, ["opsk: interrupted"]),
        (click.exceptions.Abort(), 130, ["opsk: interrupted"]),
        (click.UsageError("no such option"), 2, ["Error: no such option"]),
    ],
)
def test_each_kind_of_error_has_its_lines_and_its_status(
    error: BaseException, status: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_reporting_errors(raising(error)) == status
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", lines)


def test_an_internal_error_names_its_place_and_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_reporting_errors(raising(ZeroDivisionError("float division"))) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("opsk: internal error: ZeroDivisionError: float division (at opsk.cli.error_reporting:")
    assert second == "opsk: hint: report it as a bug, with what OPSK_TRACEBACK=1 shows"


def test_a_developer_gets_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    assert run_reporting_errors(raising(ZeroDivisionError("float division"))) == 3
    assert "Traceback (most recent call last):" in capsys.readouterr().err


def test_an_internal_error_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run_reporting_errors(raising(ValueError("\x1b[2J")))
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(("result", "status"), [(None, 0), (1, 1), ("text", 0)])
def test_a_command_that_returns_ends_with_its_status(result: object, status: int) -> None:
    assert run_reporting_errors(lambda: result) == status
