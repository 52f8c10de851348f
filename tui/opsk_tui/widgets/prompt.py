"""Where does the user write words to filter by or to find?"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class Prompt(Input):
    """One line of words; Enter goes back to the body, Escape leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "To what is shown"),
        Binding("down", "submit", "To what is shown", show=False),
        Binding("escape", "screen.back", "Show all"),
    ]

    def __init__(self) -> None:
        super().__init__(id="prompt", compact=True)
        self.cursor_blink = False
