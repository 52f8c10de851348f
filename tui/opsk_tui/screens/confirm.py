"""Shows the exact commands that would be run and asks for confirmation; nothing is run before the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from opsk.slurm.commands.remap_commands import Command
from opsk_tui.text import safe, wrap_text
from opsk_tui.widgets.canvas import Bar
from opsk_tui.widgets.document import Document, Line, Section, section

_WIDEST = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The commands in order, and which of them the caller may run."""

    title: str
    commands: Sequence[Command]
    mine: Sequence[bool]
    notes: Sequence[str] = ()


class ConfirmScreen(ModalScreen[bool]):
    """Shows commands; ``y`` runs those that the caller may, ``c`` copies them, other keys leave."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes, run them"),
        Binding("n,escape,q", "answer(False)", "No"),
        Binding("c", "copy", "Copy the commands"),
    ]

    def __init__(self, question: Confirmation) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """Show the commands above the keys."""
        yield Document(id="help")
        yield Bar(id="help-keys", fill="bar")

    def on_mount(self) -> None:
        """Fill it."""
        self.call_after_refresh(self.show)

    @property
    def may_run(self) -> bool:
        """Whether there is a command that the caller may run."""
        return any(self.question.mine)

    def show(self) -> None:
        """Show the commands that would be run and those that are handed over."""
        document = self.query_one(Document)
        document.show(self.sections())
        document.focus()
        yes = [(" y", "key", "screen.answer(True)"), (" Run ", "bar", "")] if self.may_run else []
        self.query_one(Bar).show(
            [[*yes, (" c", "key", "screen.copy"), (" Copy ", "bar", ""), (" Esc", "key", "screen.answer(False)"),
              (" Leave ", "bar", "")]]
        )  # fmt: skip

    def sections(self) -> list[Section]:
        """Return the title, both kinds of commands, and the notes."""
        asked = self.question
        width = max(20, min(self.app.size.width - 6, _WIDEST))
        pairs = list(zip(asked.commands, asked.mine, strict=True))
        mine = [line for command, is_mine in pairs if is_mine for line in _lines(command, width)]
        others = [line for command, is_mine in pairs if not is_mine for line in _lines(command, width)]
        notes: list[Line] = [[(part, "text")] for note in asked.notes for part in wrap_text(safe(note), width)]
        for_whom = "You may not run these, or not now: copy them (c) for someone who may"
        return [
            section(safe(asked.title), notes or [[("", "text")]]),
            section("y runs exactly this", mine),
            section(for_whom, others),
        ]

    def action_answer(self, yes: bool) -> None:
        """Leave with an answer; yes only where there is a command to run."""
        if yes and not self.may_run:
            self.notify("you may run none of these: press c to copy them", severity="warning", timeout=4)
            return
        self.dismiss(yes)

    def action_copy(self) -> None:
        """Put the commands into the terminal's clipboard, by OSC 52."""
        self.app.copy_to_clipboard("\n".join(command.text for command in self.question.commands) + "\n")
        self.notify("commands copied (where the terminal allows it)", timeout=3)


def _lines(command: Command, width: int) -> list[Line]:
    """Return a command in full, however narrow the window is, then why, for whom and when."""
    text = safe(command.text)
    words = [f"needs {command.who.value}", safe(command.why)]
    if command.when:
        words.insert(1, f"when the job is {command.when}")
    if command.later:
        words.insert(1, "later")
    shown: list[Line] = [[(part, "strong")] for part in wrap_text(text, min(width, 74))]
    return [*shown, *([("    " + part, "dim")] for part in wrap_text("; ".join(words), min(width - 4, 70)))]
