"""Finds the command of ``opsk WORD`` and runs it.

Commands of the core are in this package; front ends register theirs in the entry-point group ``opsk.commands``. Only
the named command is imported, so that ``opsk check`` needs neither Textual nor SQL.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

import click

from opsk import __version__
from opsk.cli.error_reporting import run_reporting_errors

CORE_COMMANDS = {
    "accuracy": "opsk.cli.accuracy:accuracy",
    "calibrate": "opsk.cli.calibration.calibrate:calibrate",
    "design": "opsk.cli.design.command:design",
    "doctor": "opsk.cli.doctor:doctor",
    "events": "opsk.cli.events:events",
    "fabric": "opsk.cli.fabric.command:fabric",
    "goodput": "opsk.cli.goodput.command:goodput",
    "lab": "opsk.cli.lab:lab",
    "launch": "opsk.cli.launch:launch",
    "losses": "opsk.cli.losses:losses",
    "place": "opsk.cli.place.command:place",
    "plan": "opsk.cli.plan.command:plan",
    "postmortem": "opsk.cli.postmortem.command:postmortem",
    "collect": "opsk.cli.collect:collect",
    "predict": "opsk.cli.predict.command:predict",
    "probe": "opsk.cli.probe.command:probe",
    "remap": "opsk.cli.remap.command:remap",
    "scaling": "opsk.cli.scaling.command:scaling",
    "setup": "opsk.cli.setup:setup",
    "store": "opsk.cli.store:store",
    "srun-options": "opsk.cli.place.srun_options:srun_options",
    "throughput": "opsk.cli.throughput.command:throughput",
    "validate": "opsk.cli.calibration.validate:validate",
}
"""Name to ``module:object`` of the core's commands."""

LINEAR_ALGEBRA_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Set to 1 unless the caller has set them: on a busy login node such threads wait for each other's cores.

With two busy processes, ``python -m benchmarks.planning.placement`` took 7 s instead of 2 s with one thread.
"""


class LazyCommands(click.Group):
    """A click group that imports a command only when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        from importlib.metadata import entry_points  # loads 60 modules: not needed for the core's commands

        return sorted({*CORE_COMMANDS, *entry_points(group="opsk.commands").names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; ``None`` when there is none of this name."""
        target = _find_target(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"entry point opsk.commands:{cmd_name} is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, each with the first sentence of its help, which is read and not imported."""
        from opsk.cli.summaries import summarize  # needs ast, which no command does

        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        rows: list[tuple[str, str]] = []
        for name in names:
            target = _find_target(name)
            summary = summarize(target, limit) if target else None
            if summary is None:
                command = self.get_command(ctx, name)
                if command is None or command.hidden:
                    continue
                summary = command.get_short_help_str(limit)
            rows.append((name, summary))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _find_target(name: str) -> str | None:
    """Return ``module:object`` of a command; ``None`` when there is none of this name."""
    if name in CORE_COMMANDS:
        return CORE_COMMANDS[name]
    from importlib.metadata import entry_points

    return next((entry.value for entry in entry_points(group="opsk.commands", name=name)), None)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 an answer, 1 the answer is bad news, 2 wrong usage or unreadable input, "
    "3 a needed service is not there, or opsk itself failed.",
)
@click.version_option(__version__, prog_name="opsk")
def opsk() -> None:
    """Tools for Slurm clusters that train large models."""


def main() -> None:
    """Run the command line and turn errors into one line on stderr and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without arrows gets ?, no traceback
    for name in LINEAR_ALGEBRA_THREADS:
        os.environ.setdefault(name, "1")
    sys.exit(run_reporting_errors(lambda: opsk.main(standalone_mode=False)))


if __name__ == "__main__":
    main()
