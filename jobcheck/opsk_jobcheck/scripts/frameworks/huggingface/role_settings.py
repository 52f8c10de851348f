"""Provides the parts that the readers of jobs with several models share: settings by name, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from opsk.workload.defaults import ROLE_PREFIXES
from opsk.workload.roles import METHOD
from opsk_jobcheck.scripts.bash.expansion import ARGUMENTS_UNKNOWN
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION, is_only_about_adapters
from opsk_jobcheck.scripts.launchers.programs import Program, parse_program_arguments
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean, parse_integer

MAX_TEXT = 120
_ABSENT = ("null", "none", "")


@dataclass(slots=True)
class RoleSettings:
    """The settings of one program.

    Parameters
    ----------
    find
        Returns a setting by its name, as the command or its file gives it.
    findings
        Where values are stated.
    opaque
        Why settings that are not given may come from elsewhere; empty where the whole command is known.
    """

    find: Callable[[str], Entry | None]
    findings: Findings
    opaque: str = ""
    doubts: list[tuple[str, int]] = field(default_factory=list)

    def entry(self, *names: str) -> Entry | None:
        """Return the first of these settings that is given."""
        return next((entry for name in names if (entry := self.find(name)) is not None), None)

    def word(self, *names: str, otherwise: str | None = None) -> str | None:
        """Return a setting as text; ``None`` where it is not known, ``otherwise`` where it is not given."""
        entry = self.entry(*names)
        if entry is None:
            if self.opaque and otherwise is not None:
                self.doubts.append((f"{names[0]}: {self.opaque}", 0))
            return otherwise
        if entry.why:
            self.doubts.append((f"{names[0]}: {entry.why}", entry.line))
            return None
        text = str(entry.value).strip()
        return otherwise if text.lower() in _ABSENT else text

    def number(self, *names: str, otherwise: int) -> int | None:
        """Return a setting as a whole number; ``None`` where it is not known or is none."""
        text = self.word(*names, otherwise=str(otherwise))
        value = parse_integer(text) if text is not None else None
        if text is not None and (value is None or value < 0):
            if text.startswith("-"):
                return otherwise
            entry = self.entry(*names)
            self.doubts.append((f"{names[0]}: {text[:40]} is no whole number", entry.line if entry else 0))
            return None
        return value

    def is_on(self, *names: str, otherwise: bool = False) -> bool:
        """Return whether a switch is on; one of an unknown value is doubted, and counts as it is by default."""
        text = self.word(*names)
        value = parse_boolean(text) if text is not None else None
        return otherwise if value is None else value

    def place(self, *names: str) -> Entry | None:
        """Return the setting that a value is cited from."""
        return self.entry(*names)

    def state_switch(self, name: str, entry: Entry, *, on: str, off: str) -> None:
        """State a word for a switch."""
        value = parse_boolean(entry.value) if not entry.why else None
        if value is None:
            self.findings.mark_unknown(
                name, entry.why or f"{entry.text[:60]} is no switch", entry.line, file=entry.file
            )
        else:
            self.findings.state(name, on if value else off, entry.line, entry.text, file=entry.file)

    def config_name(self, invocation: Invocation) -> str:
        """Return the configuration that Hydra starts from, empty for the program's own."""
        flag = get_arguments(invocation).flags.get("--config-name")
        return (flag.value.known or "") if flag is not None else ""

    def state_option(self, option: str, *names: str, otherwise: bool = False) -> None:
        """State a switch as an option of the workload."""
        self.findings.options[option] = "true" if self.is_on(*names, otherwise=otherwise) else "false"

    def state_text(self, option: str, *names: str) -> None:
        """State how the script writes a setting, for suggestions in its own words."""
        entry = self.entry(*names)
        if entry is not None and len(entry.text) < MAX_TEXT:
            self.findings.options[f"{option}.text"] = entry.text

    def doubt(self, name: str, why: str) -> None:
        """Report that a setting is not known without which memory is not."""
        entry = self.entry(name)
        if not any(what.startswith(name) for what, _ in self.doubts):
            self.doubts.append((f"{name}: {why}", entry.line if entry else 0))

    def report_unknown(self) -> None:
        """Mark the roles as unknown where one of their settings is."""
        if self.doubts:
            what, line = self.doubts[0]
            mark_roles_unknown(self.findings, what, line)


def find_opaque(program: Program) -> str:
    """Return why settings of a program may be among words that are not known; empty where all are known.

    ``"$@"`` at the end passes on what the script is given: a job that is submitted without arguments has none.
    """
    arguments = parse_program_arguments(program)
    values = {id(argument.value) for argument in arguments.flags.values()}
    opaque = [word for word in arguments.opaque if word.why != ARGUMENTS_UNKNOWN and id(word) not in values]
    return f"it may be among words that cannot be told: {opaque[0].why}" if opaque else ""


def mark_roles_unknown(findings: Findings, what: str, line: int) -> None:
    """Mark the memory of a job of several models as unknown; the values that were read stay."""
    method = findings.options.get(METHOD)
    for name in [name for name in findings.options if name.startswith(ROLE_PREFIXES)]:
        del findings.options[name]
    if OPTION not in findings.options or is_only_about_adapters(findings.options):
        file, number = findings.locate(line)
        shown = f", {file}:{number}" if line else f", {findings.file}"
        kind = f"the memory of its models ({method}) is not known" if method else "other models are in memory too"
        findings.options[OPTION] = f"unknown: {kind} ({what[:120]}{shown})"
