"""Where does the user write which jobs to show?"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class FilterField(Input):
    """One line of words; Enter goes back to the table, Escape shows all jobs again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "To the jobs"),
        Binding("down", "submit", "To the jobs", show=False),
        Binding("escape", "app.clear_filter", "Show all"),
    ]

    def __init__(self, **options: str) -> None:
        super().__init__(
            placeholder="show only jobs with these words: id, user, name, state, plan …",
            compact=True,
            **options,  # type: ignore[arg-type]
        )
