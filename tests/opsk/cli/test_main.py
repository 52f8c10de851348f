from __future__ import annotations

import subprocess
import sys

import click
import pytest

from opsk.cli import main
from opsk.errors import InputError, SlurmError


def _end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception | None
) -> tuple[object, str, str]:
    """Run ``opsk word`` with a command that raises ``error``; return the exit status, stdout and stderr."""

    @click.command()
    def word() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(main, "CORE_COMMANDS", {"word": f"{__name__}:_word"})
    monkeypatch.setattr(main, "import_module", lambda _: type("module", (), {"_word": word}))
    monkeypatch.setattr(sys, "argv", ["opsk", "word"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    printed = capsys.readouterr()
    return caught.value.code, printed.out, printed.err


def test_a_command_that_answers_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _end(monkeypatch, capsys, None) == (0, "", "")


def test_an_error_is_one_line_and_a_hint_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = _end(monkeypatch, capsys, InputError("no such file", hint="name another"))
    assert ended == (2, "", "opsk: no such file\nopsk: hint: name another\n")


def test_a_missing_service_ends_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, _ = _end(monkeypatch, capsys, SlurmError("slurmctld does not answer"))
    assert status == 3


def test_an_error_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = _end(monkeypatch, capsys, InputError("model \x1b[2Jx\nopsk: all is fine", hint="\x9b31m\u202e"))
    assert err == "opsk: model \\x1b[2Jx opsk: all is fine\nopsk: hint: \\x9b31m\\u202e\n"


def test_help_loads_neither_a_terminal_toolkit_nor_numbers_nor_sql() -> None:
    code = "import sys, opsk.cli.main; print(sorted({'textual', 'sqlmodel', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
