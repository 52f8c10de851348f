"""Turns any error of a command into at most two lines on stderr and an exit status."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable

import click

from opsk.errors import ExitStatus, OpskError
from opsk.text import escape

TRACEBACK = "OPSK_TRACEBACK"
"""Environment variable; 1 shows the traceback of an internal error as well."""
INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def run_reporting_errors(command: Callable[[], object]) -> int:
    """Run a command and return its exit status; report an error on stderr in place of a traceback.

    Parameters
    ----------
    command
        Its result is the exit status where it is an int; anything else counts as 0.

    Returns
    -------
    int
        An `opsk.errors.ExitStatus`; 130 after Ctrl-C. Errors of the operating system (no space, no permission) and
        internal errors of opsk end with ``UNAVAILABLE``: no answer was given, and the input may be correct.
    """
    try:
        status = command()
    except click.ClickException as error:
        # A shell's * may expand to hostile file names, and click repeats them unescaped.
        error.show(file=(shown := io.StringIO()))
        click.echo("\n".join(map(escape, shown.getvalue().splitlines())), err=True)
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("opsk: interrupted", err=True)
        return INTERRUPTED
    except OpskError as error:
        _report(error.message, error.hint)
        return int(error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitStatus.ANSWER)
    except OSError as error:
        _show_traceback(error)
        _report(*_describe_os_error(error))
        return int(ExitStatus.UNAVAILABLE)
    except Exception as error:  # noqa: BLE001 - the last resort: a person gets a line, not a traceback
        _show_traceback(error)
        message = f"internal error: {type(error).__name__}: {error}{_format_place(error)}"
        _report(message, f"report it as a bug, with what {TRACEBACK}=1 shows")
        return int(ExitStatus.UNAVAILABLE)
    return status if isinstance(status, int) else int(ExitStatus.ANSWER)


def _report(message: str, hint: str) -> None:
    click.echo(f"opsk: {escape(message)}", err=True)
    if hint:
        click.echo(f"opsk: hint: {escape(hint)}", err=True)


def _show_traceback(error: Exception) -> None:
    if os.environ.get(TRACEBACK) == "1":
        click.echo("\n".join(map(escape, "".join(traceback.format_exception(error)).splitlines())), err=True)


def _describe_os_error(error: OSError) -> tuple[str, str]:
    """Return the message and hint of an error of the operating system."""
    reason = error.strerror or str(error) or type(error).__name__
    message = f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return message, "free some space, or set TMPDIR to a folder that has some"
    return f"{message}{_format_place(error)}", f"{TRACEBACK}=1 shows what was being done"


def _format_place(error: Exception) -> str:
    """Return the innermost line of opsk's code in the traceback, as `` (at opsk.cli.main:12)``."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0].startswith("opsk"):
            place = f" (at {module}:{line})"
    return place
