"""Implements the parts that all screens share: tabs, filter and find, sources, keys, and help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize, ScreenResume
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from opsk_tui.app_port import Top
from opsk_tui.data.view import Source, SourceState, ViewIndex
from opsk_tui.text import age, ago, safe, wrap_text
from opsk_tui.widgets.canvas import Bar, Cell
from opsk_tui.widgets.document import Document, Line, Section, section
from opsk_tui.widgets.lines import Lines

_WIDE = 132
_TABS = (("cluster", "Cluster"), ("jobs", "Jobs"), ("job", "Job"), ("fabric", "Fabric"), ("failures", "Failures"),
         ("reports", "Reports"))  # fmt: skip
_NAMES = {
    "slash": "/", "question_mark": "?", "plus": "+", "minus": "-", "left_square_bracket": "[", "equals_sign": "=",
    "right_square_bracket": "]", "comma": ",", "full_stop": ".", "pageup": "PgUp", "pagedown": "PgDn",
    "escape": "Esc", "enter": "Enter", "space": "Space", "shift+tab": "Shift-Tab", "tab": "Tab", "up": "↑",
    "down": "↓", "left": "←", "right": "→", "home": "Home", "end": "End",
}  # fmt: skip
_WIDEST = 140


class Prompt(Input):
    """One line of words; Enter goes back to the body, Escape leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Back to the list"),
        Binding("down", "submit", "Back to the list", show=False),
        Binding("escape", "screen.back", "Show all"),
    ]

    def __init__(self) -> None:
        super().__init__(id="prompt", compact=True)
        self.cursor_blink = False


class ViewScreen(Screen[None]):
    """One of the six screens; a subclass names its body and provides its content."""

    NAME = ""
    ABOUT: ClassVar[tuple[str, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("f", "find", "Find"),
        Binding("n", "find_next(1)", "Next match", show=False),
        Binding("N", "find_next(-1)", "Previous match", show=False),
        Binding("escape", "back", "Show all, or go back", show=False),
        Binding("tab", "other_part(1)", "Next pane", show=False),
        Binding("shift+tab", "other_part(-1)", "Previous pane", show=False),
    ]
    AUTO_FOCUS = ""
    has_side = True

    def __init__(self) -> None:
        super().__init__()
        self.words = ""
        self._is_finding = False
        self._find_words = ""
        self._shown: ViewIndex | None = None

    @property
    def top(self) -> Top:
        """The application."""
        return cast("Top", self.app)

    @property
    def known(self) -> ViewIndex:
        """The current view."""
        return self.top.known

    def compose(self) -> ComposeResult:
        """Lay the lines out from top to bottom."""
        yield Bar(id="tabs", fill="bar")
        yield Bar(id="summary")
        yield Prompt()
        yield from self.compose_body()
        yield Bar(id="detail")
        yield Bar(id="sources")
        yield Bar(id="keys", fill="bar")

    def compose_body(self) -> ComposeResult:
        """Yield the body."""
        raise NotImplementedError

    @property
    def body(self) -> Lines:
        """The part that filter and find apply to."""
        raise NotImplementedError

    def fill(self) -> None:
        """Update the body from the view."""
        raise NotImplementedError

    def summary(self) -> Sequence[Cell]:
        """Return the line below the tabs."""
        return ()

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return two lines of details on the part under the cursor."""
        return ()

    def side(self) -> Sequence[Section]:
        """Return the text beside the body in a wide window."""
        return ()

    def apply_filter(self, words: str) -> None:
        """Show only rows with these words."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Start with the body."""
        self.query_one(Prompt).display = False
        self.body.focus()
        self._fit()

    def _fit(self) -> None:
        """Adapt to the width."""
        is_wide = self.app.size.width >= _WIDE
        for side in self.query("#side"):
            side.display = is_wide

    def on_resize(self, _event: Resize) -> None:
        """Use the new size."""
        self._fit()
        self.call_after_refresh(self.show)

    def on_screen_resume(self, _event: ScreenResume) -> None:
        """Update after another screen was shown."""
        self.call_later(self.show)

    def show(self) -> None:
        """Update everything."""
        if not self.is_mounted or not self.is_attached:
            return
        self.fill()
        self.show_lines()

    def show_lines(self) -> None:
        """Update everything but the body."""
        self.tick()
        note_cells = [(f"  {self._note()}", "watch")] if self._note() else []
        self.bar("summary").show([[(" ", "text"), *self.summary(), *note_cells]])
        self.bar("detail").show([[(" ", "text"), *line] for line in self.detail()])
        self.bar("sources").show([self._sources()])
        self.bar("keys").show([self._keys()])
        side = self.query("#side")
        if side and side.first().display:
            side.first(Document).show(self.side())

    def _note(self) -> str:
        """Return the filter."""
        return f"filter: {safe(self.words)}" if self.words else ""

    def bar(self, name: str) -> Bar:
        """Return one of the fixed lines."""
        return self.query_one(f"#{name}", Bar)

    def tick(self) -> None:
        """Update the age of the view, and the tabs; the clock also ticks before the screen is built."""
        if not self.is_mounted:
            return
        width = self.app.size.width
        cells: list[tuple[str, str, str]] = [(" opsk ", "tab_on" if width < 70 else "bar_strong", "app.go('cluster')")]
        for index, (name, title) in enumerate(_TABS, start=1):
            count = self.top.counts(name)
            text = f" {index} {title}{count} " if width >= 78 else f" {index} "
            cells.append((text, "tab_on" if name == self.NAME else "tab", f"app.go('{name}')"))
        view = self.known.view
        old = age(self.top.clock() - view.taken_at_s) if view.taken_at_s else "no data yet"
        cluster = safe(view.cluster)
        left = width - sum(len(cell[0]) for cell in cells)
        right = f"{cluster} · {old} " if cluster and left > len(cluster) + len(old) + 6 else f"{old} "
        cells.append((right.rjust(left), "bar", ""))
        self.bar("tabs").show([cells])

    def why_empty(self, words: str) -> str:
        """Return why there is nothing to show: Slurm's problem, else the words."""
        for state in self.known.view.sources:
            if state.source is Source.SLURM and state.problem:
                hint = f" ({safe(state.hint)})" if state.hint else ""
                return f"{words} {safe(state.problem)}{hint}"
        return words

    def _sources(self) -> list[Cell]:
        """Return the sources and the ages of their data."""
        cells: list[Cell] = [(" sources: ", "dim")]
        states = sorted(self.known.view.sources, key=lambda state: bool(state.problem))
        if not states:
            return [*cells, ("nothing yet", "watch")]
        for index, state in enumerate(states):
            cells.append((" · " if index else "", "dim"))
            if state.problem:
                cells.append((self._format_problem(state), "watch"))
            else:
                cells += [(f"{state.source.value} {self.top.glyphs.ok} ", "ok"), (self._format_age(state), "dim")]
        return cells

    def source_words(self) -> list[Cell]:
        """Return a line per source, in full: the line below the screen is cut where the window ends."""
        ok = self.top.glyphs.ok
        return [
            (self._format_problem(state), "watch")
            if state.problem
            else (f"{state.source.value} {ok} {safe(state.where)}, {self._format_age(state)}", "text")
            for state in self.known.view.sources
        ]

    def _format_problem(self, state: SourceState) -> str:
        """Return the problem of a source."""
        hint = f" ({safe(state.hint)})" if state.hint else ""
        since = "" if state.taken_at_s is None else f", last {ago(self.top.clock() - state.taken_at_s)}"
        return f"{state.source.value} {self.top.glyphs.unhealthy} {safe(state.problem)}{hint}{since}"

    def _format_age(self, state: SourceState) -> str:
        return "asking" if state.taken_at_s is None else age(self.top.clock() - state.taken_at_s)

    def _keys(self) -> list[tuple[str, str, str]]:
        """Return the most important keys, as many as fit."""
        width, cells = self.app.size.width, list[tuple[str, str, str]]()
        bindings = [binding for binding in self.shown_bindings() if binding.show]
        bindings.sort(key=lambda binding: binding.key != "question_mark")
        remaining = width
        for binding in bindings:
            key = (binding.key_display or binding.key.split(",")[0]).replace("enter", "Enter")
            text = f" {binding.description} "
            if len(key) + 1 + len(text) > remaining:
                continue
            remaining -= len(key) + 1 + len(text)
            prefix = "" if binding.action.startswith("app.") else "screen."
            cells += [(f" {key}", "key", prefix + binding.action), (text, "bar", prefix + binding.action)]
        return cells

    def shown_bindings(self) -> list[Binding]:
        """Return the screen's own keys before those of all screens."""
        screen_keys = [item for item in type(self).__dict__.get("BINDINGS", ()) if isinstance(item, Binding)]
        common = [item for item in ViewScreen.BINDINGS if isinstance(item, Binding)]
        return [*screen_keys, *common] if type(self) is not ViewScreen else common

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show why a background worker has failed."""
        self.top.worker_failed(event)

    def cursor_moved(self, lines: Lines) -> None:
        """Show the details of the part under the cursor."""
        if lines is self.body:
            self.show_lines()

    def action_help(self) -> None:
        """Show what every key of this screen does."""
        self.app.push_screen(HelpScreen(self))

    def action_filter(self) -> None:
        """Ask for words."""
        self._ask(is_finding=False)

    def action_find(self) -> None:
        """Ask for words to find."""
        self._ask(is_finding=True)

    def _ask(self, *, is_finding: bool) -> None:
        self._is_finding = is_finding
        prompt = self.query_one(Prompt)
        prompt.display = True
        with prompt.prevent(Input.Changed):
            prompt.value = self._find_words if is_finding else self.words
        prompt.placeholder = "jump to matches" if is_finding else "show only matches"
        prompt.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Follow while the user types."""
        event.stop()
        if self._is_finding:
            self._find_words = event.value
            self.body.find(event.value, include_here=True)
        else:
            self.words = event.value
            self.apply_filter(event.value)
            self.show_lines()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go from the words to the body."""
        event.stop()
        self._close_prompt()

    def _close_prompt(self) -> None:
        self.query_one(Prompt).display = False
        self.body.focus()

    def action_find_next(self, step: int) -> None:
        """Go to the next text with the words."""
        if not self.body.find(self._find_words, step):
            self.notify("no match" if self._find_words else "press f and type a word first", timeout=3)

    def action_back(self) -> None:
        """Close the prompt, show all again, or go back to the previous screen."""
        prompt = self.query_one(Prompt)
        if prompt.display or self.words:
            was_finding = prompt.display and self._is_finding
            if not was_finding:
                self.words = ""
                self.apply_filter("")
            self._close_prompt()
            self.show_lines()
        elif not self.clear_filters():
            self.top.action_go_back()

    def clear_filters(self) -> bool:
        """Remove other filters; return whether there were any."""
        return False

    def action_other_part(self, step: int) -> None:
        """Go to the other part of the screen."""
        parts: list[Widget] = [part for part in self.query(Lines) if part.display]
        here = parts.index(self.focused) if self.focused in parts else 0
        parts[(here + step) % len(parts)].focus()


def key_words(binding: Binding) -> str:
    """Return the keys of a binding as people call them."""
    keys = [key.strip() for key in binding.key.split(",")]
    return " ".join(_NAMES.get(key, key.replace("ctrl+", "Ctrl-")) for key in keys)


class HelpScreen(ModalScreen[None]):
    """The keys of a screen.

    Parameters
    ----------
    about
        The screen that help was requested on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss(None)", "Close"),
    ]

    def __init__(self, about: ViewScreen) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        """Show the text above a line that says how to leave."""
        yield Document(id="help")
        yield Bar(id="help-keys", fill="bar")

    def on_mount(self) -> None:
        """Fill it."""
        self.call_after_refresh(self.show)

    def show(self) -> None:
        """Show the keys and the signs."""
        document = self.query_one(Document)
        document.show(self._sections())
        document.focus()
        self.query_one(Bar).show([[(" Esc", "key", "screen.dismiss(None)"), (" Close ", "bar", "")]])

    def _sections(self) -> list[Section]:
        """Return the screen's own keys, those of all screens, the glyphs, and the full state of each source."""
        about = self._about
        screen_keys = [item for item in type(about).__dict__.get("BINDINGS", ()) if isinstance(item, Binding)]
        moves = [item for item in type(about.body).BINDINGS if isinstance(item, Binding)]
        common = [item for item in ViewScreen.BINDINGS if isinstance(item, Binding)]
        everywhere = [item for item in about.app.BINDINGS if isinstance(item, Binding)]
        palette: list[Line] = [[("Ctrl-P".ljust(18), "accent"), ("Every command by its name", "text")]]
        glyph_set = about.top.glyphs
        legend: list[Line] = [
            [(glyph_set.levels, "accent"), ("  from low to high", "text")],
            [(glyph_set.unhealthy, "sick"), (" sick   ", "text"), (glyph_set.watch, "watch"), (" watch   ", "text"),
             (glyph_set.unknown, "dim"), (" not known   ", "text")],
        ]  # fmt: skip
        width = max(30, min(self.app.size.width - 6, _WIDEST))
        words: list[Line] = [[(part, "text")] for line in about.ABOUT for part in wrap_text(line, width)]
        sources: list[Line] = [[(part, key)] for text, key in about.source_words() for part in wrap_text(text, width)]
        return [
            section(f"{about.NAME.capitalize()}", words),
            section("Keys of this screen", [_line(item) for item in screen_keys]),
            section("Keys on every screen", [*[_line(item) for item in [*common, *everywhere]], *palette]),
            section("Moving", [_line(item) for item in moves]),
            section("Symbols", legend),
            section("Sources", sources),
        ]


def _line(binding: Binding) -> list[Cell]:
    """Return one key and its description."""
    return [(key_words(binding).ljust(18), "accent"), (binding.description, "text")]
