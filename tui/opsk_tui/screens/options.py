"""Shows the remap options for a job after a failure: speed, cost, and the resulting rank placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.worker import Worker

from opsk.diagnosis.events.observations import Event, Severity
from opsk.errors import OpskError
from opsk_tui.app_port import Top
from opsk_tui.data.feed_port import Outcome, PlacementView, Proposal, RemapChoice, Undoing
from opsk_tui.screens.confirm import Confirmation, ConfirmScreen
from opsk_tui.text import NOT_KNOWN, duration, fit_text, host_list, number, percent, safe, wrap_text
from opsk_tui.widgets.canvas import Bar, Cell
from opsk_tui.widgets.document import Document, Line, Section, section
from opsk_tui.widgets.lines import Lines
from opsk_tui.widgets.table import Column, Table

_SLOT_WIDTH = 5
_TIME_NAME, _TIME = 18, 9
_MOST_NODES = 64
_FOLLOWS_S = 2.0
_APPLYING, _UNDOING = "Applying …", "Undoing …"


def render_choice(choice: RemapChoice, width: int) -> list[Section]:
    """Return an option in full: reasons, rank placement before and after, times, commands."""
    option = choice.option
    why: list[Line] = [[(part, "text")] for line in option.why for part in wrap_text(safe(line), width)]
    why += [line for need in option.needs for line in render_prefixed("needs ", "watch", need, width)]
    why += [line for change in option.changes for line in render_prefixed("changes ", "dim", change, width)]
    times: list[Line] = []
    for part in option.downtime:
        head = f"{safe(part.name):<{_TIME_NAME}}{duration(part.seconds):>{_TIME}}  "
        times += render_prefixed(head, "text", part.why, width, key="dim")
    mine = choice.mine or tuple(False for _ in option.commands)
    commands: list[Line] = []
    for command, is_mine in zip(option.commands, mine, strict=False):
        actor = "you" if is_mine else f"needs {command.who.value}"
        parts = wrap_text(safe(command.text), max(30, width - 4))
        commands += [[("    " * bool(index) + part, "strong")] for index, part in enumerate(parts)]
        if len(parts) == 1 and len(parts[0]) + len(actor) + 4 <= width:
            commands[-1] = [*commands[-1], (f"  ({actor})", "dim")]
        else:
            commands.append([(f"    ({actor})", "dim")])
    return [
        section(safe(option.title), why),
        render_rank_placement(choice.before, choice.after, width),
        section("Downtime", times),
        section("Commands", commands),
    ]


def render_prefixed(head: str, head_key: str, text: str, width: int, *, key: str = "text") -> list[Line]:
    """Return a text after a prefix, wrapped at the width; further lines are aligned with the text."""
    parts = wrap_text(safe(text), max(24, width - len(head)))
    blank = " " * len(head)
    return [[(blank if index else head, head_key), (part, key)] for index, part in enumerate(parts)]


def render_rank_placement(before: PlacementView | None, after: PlacementView | None, width: int) -> Section:
    """Return both placements side by side where they fit: ranks by node and rail, with changes marked.

    Only nodes with a change are shown.
    """
    if before is None or after is None:
        return section("Ranks before and after", [])
    names = list(dict.fromkeys([*before.nodes, *after.nodes]))
    changed = [name for name in names if _row_differs(before, after, name)][:_MOST_NODES]
    size = min(14, max((len(name) for name in changed), default=4))
    panel = size + 1 + _SLOT_WIDTH * len(before.columns)
    is_wide = 2 * panel + 5 <= width
    head = "".join(fit_text(safe(column).replace("rail ", "r"), _SLOT_WIDTH, right=True) for column in before.columns)
    lines: list[Line] = []
    if is_wide:
        lines.append([(f"{'before':<{panel}}     {'after':<{panel}}", "dim")])
        lines.append([(" " * (size + 1) + head + "     " + " " * (size + 1) + head, "dim")])
    for name in changed:
        old, new = _render_slots(before, after, name, size), _render_slots(after, before, name, size)
        if is_wide:
            lines.append([*old, ("  →  ", "dim"), *new])
        else:
            lines += [[("before ", "dim"), *old], [("after  ", "dim"), *new]]
    if not changed:
        lines = [[("no rank changes its place", "dim")]]
    where = f"the {len(changed)} nodes that change" if len(changed) != 1 else "the node that changes"
    return section(f"Ranks before and after, on {where}", lines)


def _find_row(view: PlacementView, name: str) -> int | None:
    return view.nodes.index(name) if name in view.nodes else None


def _row_differs(before: PlacementView, after: PlacementView, name: str) -> bool:
    old, new = _find_row(before, name), _find_row(after, name)
    if old is None or new is None:
        return True
    return not np.array_equal(before.ranks[old], after.ranks[new]) or bool(before.failed[old].any())


def _render_slots(view: PlacementView, other: PlacementView, name: str, size: int) -> Sequence[Cell]:
    """Return one node's slots; those that differ from the other placement are highlighted."""
    row, mirror = _find_row(view, name), _find_row(other, name)
    cells: list[Cell] = [(fit_text(safe(name), size) + " ", "text")]
    for column in range(len(view.columns)):
        rank = -1 if row is None else int(view.ranks[row, column])
        other_rank = -1 if mirror is None else int(other.ranks[mirror, column])
        is_failed = row is not None and bool(view.failed[row, column])
        text = ("✗" if is_failed else "") + (str(rank) if rank >= 0 else "" if is_failed else "·")
        key = "sick" if is_failed else "hit" if rank != other_rank and rank >= 0 else "text" if rank >= 0 else "dim"
        cells += [(" ", "text"), (text.rjust(_SLOT_WIDTH - 1), key)]
    return cells


class OptionsScreen(ModalScreen[None]):
    """Options above the preview of the one under the cursor; ``a`` shows its commands and asks.

    Parameters
    ----------
    event, job_id
        The failure, and the affected job.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,enter", "apply", "Apply: shows the exact commands first"),
        Binding("u", "undo", "Undo what was applied"),
        Binding("s", "sort", "Sort"),
        Binding("tab", "other_part", "To the preview and back"),
        Binding("escape,q", "dismiss(None)", "Back"),
    ]

    def __init__(self, event: Event, job_id: int) -> None:
        super().__init__()
        self._event = event
        self._job_id = job_id
        self._proposal: Proposal | None = None
        self._problem: list[str] = []
        self._messages: list[str] = []
        self._outcome: Outcome | None = None
        self._is_busy = False
        self._doing = _APPLYING

    @property
    def top(self) -> Top:
        """The application."""
        return cast("Top", self.app)

    def compose(self) -> ComposeResult:
        """Put the options above the preview."""
        columns: tuple[Column[RemapChoice], ...] = (
            Column(key="kind", title="OPTION", width=10, rank=0,
                           cell=lambda choice: (choice.option.kind.value, "strong")),
            Column(key="title", title="WHAT IT DOES", width=14, rank=2,
                           cell=lambda choice: (safe(choice.option.title), "text"), grows=1),
            Column(key="speed", title="TOKENS/S", width=9, rank=1, right=True, cell=_speed,
                           order=lambda choice: choice.option.predicted.tokens_per_s or 0.0, descending=True),
            Column(key="loss", title="SLOWER", width=7, rank=0, right=True, cell=_loss,
                           order=lambda choice: choice.option.predicted.loss),
            Column(key="moved", title="MOVED", width=6, rank=0, right=True,
                           cell=lambda choice: (str(choice.option.moved), "text"),
                           order=lambda choice: choice.option.moved),
            Column(key="down", title="DOWN", width=8, rank=0, right=True,
                           cell=lambda choice: (duration(choice.option.downtime_s), "text"),
                           order=lambda choice: choice.option.downtime_s),
            Column(key="good", title="GOODPUT", width=8, rank=0, right=True,
                           cell=lambda choice: (percent(choice.goodput), "accent"),
                           order=lambda choice: choice.goodput or 0.0,
                           descending=True),
            Column(key="lost", title="LOST", width=9, rank=1, right=True,
                           cell=lambda choice: (duration(choice.option.lost_s), "text"),
                           order=lambda choice: choice.option.lost_s),
        )  # fmt: skip
        yield Bar(id="title", fill="bar")
        yield Table[RemapChoice](columns, lambda choice: choice.option.title, empty="Computing options …", id="choices")
        yield Document(id="preview")
        yield Bar(id="help-keys", fill="bar")

    def on_mount(self) -> None:
        """Query the options without blocking a key."""
        self.query_one("#choices").focus()
        self.run_worker(self._propose(), exit_on_error=False)
        self.set_interval(_FOLLOWS_S, self._follow)
        self.call_after_refresh(self.show)

    def _follow(self) -> None:
        """Show the state of the job after the action."""
        if self._outcome is not None:
            self.query_one("#preview", Document).show(self.sections())

    @property
    def failed(self) -> tuple[str, ...]:
        """The failures under the job: this event, and what else is fatal for it, so that the job avoids both."""
        others = [event.failed for event in self._fatal() if self._job_id in event.jobs]
        return tuple(dict.fromkeys([self._event.failed, *others]))

    def _fatal(self) -> list[Event]:
        events = self.top.known.view.events
        return [event for event in events if event.severity is Severity.FATAL and not event.is_over]

    def _unhealthy_nodes(self) -> frozenset[str]:
        return frozenset(node for event in self._fatal() for node in event.nodes)

    async def _propose(self) -> None:
        assert self.top.actions is not None
        try:
            self._proposal = await self.top.actions.propose(self.failed, self._job_id, self._unhealthy_nodes())
        except OpskError as error:
            self._problem = [error.message, *([error.hint] if error.hint else [])]
        self.show()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show an unexpected failure."""
        words = self.top.worker_failed(event)
        if words:
            self._is_busy = False
            self._problem = [words] if self._proposal is None else []
            self.show()

    @property
    def table(self) -> Table[RemapChoice]:
        """The options."""
        return self.query_one("#choices", Table)

    def show(self) -> None:
        """Show the present state."""
        if not self.is_attached:
            return
        proposal = self._proposal
        failed = proposal.failed if proposal is not None else (self._event.failed,)
        what = safe(failed[0]) + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        self.query_one("#title", Bar).show([[(f" {what} failed: job {self._job_id} ", "bar_strong")]])
        if proposal is not None:
            self.table.styles.height = max(4, min(len(proposal.choices) + 2, self.app.size.height // 2))
            self.table.show(proposal.choices)
        self.query_one("#preview", Document).show(self.sections())
        keys: list[tuple[str, str, str]] = [
            (" a", "key", "screen.apply"), (" Apply ", "bar", "screen.apply"), (" s", "key", "screen.sort"),
            (" Sort ", "bar", ""), (" Tab", "key", "screen.other_part"), (" Preview ", "bar", ""),
            (" Esc", "key", "screen.dismiss(None)"), (" Back ", "bar", ""),
        ]  # fmt: skip
        if self._outcome is not None and self._outcome.can_undo:
            keys[2:2] = [(" u", "key", "screen.undo"), (" Undo ", "bar", "screen.undo")]
        self.query_one("#help-keys", Bar).show([keys])

    def sections(self) -> list[Section]:
        """Return the progress so far, and the option under the cursor."""
        if self._problem:
            return [section("No options", [[(safe(line), "watch")] for line in self._problem])]
        sections = []
        if self._messages or self._outcome is not None:
            sections.append(
                section(self._doing if self._outcome is None else self._outcome_title(), self._render_progress())
            )
        proposal = self._proposal
        if proposal is None:
            return sections
        if proposal.nothing_to_do:
            sections.append(section("Nothing to do", [[(safe(proposal.nothing_to_do), "text")]]))
        choice = self.table.current
        width = self.width
        if choice is not None:
            sections += render_choice(choice, width)
        notes: list[Line] = [[(part, "dim")] for note in proposal.notes for part in wrap_text(safe(note), width)]
        return [*sections, section("Notes", notes)]

    def _outcome_title(self) -> str:
        """Return the title above the outcome."""
        is_whole = self._outcome is not None and not (self._outcome.refused or self._outcome.message)
        words = ("Undone", "Not fully undone") if self._doing == _UNDOING else ("Applied", "Not fully applied")
        return words[0] if is_whole else words[1]

    def _render_progress(self) -> list[Line]:
        """Return the progress, or, once it is over, the outcome and the state of the job."""
        outcome, width = self._outcome, self.width
        if outcome is None:
            return [line for message in self._messages for line in render_prefixed("", "text", message, width)]
        glyphs = self.top.glyphs
        done = set(outcome.done)
        lines = [
            line
            for message in self._messages
            if message not in done
            for line in render_prefixed("", "dim", message, width)
        ]
        lines += [line for text in outcome.done for line in render_prefixed(f"{glyphs.ok} ", "ok", text, width)]
        if outcome.refused or outcome.message:
            words = ": ".join(word for word in (outcome.refused, outcome.message) if word)
            lines += render_prefixed(f"{glyphs.unhealthy} ", "sick", words, width, key="watch")
        lines += [
            line for text, actor in outcome.left for line in render_prefixed("", "text", f"{actor}: {text}", width)
        ]
        job = self.top.known.jobs.get(self._job_id)
        if job is not None:
            record = job.record
            on = f" on {host_list(record.nodes)}" if record.nodes else ""
            lines += render_prefixed(
                "now ", "dim", f"job {record.label} is {record.state.lower()}{on}", width, key="strong"
            )
        if outcome.journal:
            lines += render_prefixed("journal ", "dim", outcome.journal, width, key="dim")
        return lines

    @property
    def width(self) -> int:
        """How wide a line of text may be [cells]."""
        return max(40, self.app.size.width - 6)

    def cursor_moved(self, lines: Lines) -> None:
        """Show the preview of another option."""
        if lines is self.table:
            self.query_one("#preview", Document).show(self.sections())

    def on_lines_chosen(self, _event: Lines.Chosen) -> None:
        """Ask whether to apply."""
        self.action_apply()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.table.sort_next()

    def action_other_part(self) -> None:
        """Go to the preview and back."""
        (self.query_one("#preview") if self.focused is self.table else self.table).focus()

    def action_apply(self) -> None:
        """Show the exact commands, and ask."""
        choice = self.table.current
        if choice is None or self._proposal is None or self._is_busy:
            return
        option = choice.option
        mine = choice.mine or tuple(False for _ in option.commands)
        notes = [f"needs: {need}" for need in option.needs]
        question = Confirmation(title=option.title, commands=option.commands, mine=mine, notes=notes)
        index = self._proposal.choices.index(choice)
        self.app.push_screen(ConfirmScreen(question), lambda yes: self._apply(index) if yes else None)

    def _apply(self, index: int) -> None:
        self._messages, self._outcome, self._is_busy, self._doing = [], None, True, _APPLYING
        self.show()
        self.run_worker(self._run(index), exit_on_error=False)

    async def _run(self, index: int) -> None:
        assert self.top.actions is not None
        assert self._proposal is not None
        try:
            self._outcome = await self.top.actions.apply(self._proposal, index, self._report)
        except OpskError as error:
            self._outcome = Outcome(message=error.message)
        self._is_busy = False
        self.show()
        self.top.feed.ask_now()

    def _report(self, line: str) -> None:
        """Add a line of progress, from any thread."""
        self._messages.append(line)
        self.app.call_later(self.show)

    def action_undo(self) -> None:
        """Undo the applied option."""
        if self._outcome is None or not self._outcome.can_undo or self._is_busy:
            self.notify("nothing to undo", timeout=2)
            return
        self._is_busy = True
        self.run_worker(self._ask_to_undo(self._outcome.journal), exit_on_error=False)

    async def _ask_to_undo(self, journal: str) -> None:
        """Show the commands that would be run, and ask."""
        assert self.top.actions is not None
        try:
            undoing = await self.top.actions.undoing(journal)
        except OpskError as error:
            self.notify(safe(error.message), severity="error", markup=False)
            self._is_busy = False
            return

        def on_answer(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._undo(journal, undoing), exit_on_error=False)
            else:
                self._is_busy = False

        title = f"Undo {journal}"
        notes = undoing.stays if undoing.commands else ("nothing can be taken back:", *undoing.stays)
        question = Confirmation(title=title, commands=undoing.commands, mine=undoing.mine, notes=notes)
        self.app.push_screen(ConfirmScreen(question), on_answer)

    async def _undo(self, journal: str, undoing: Undoing) -> None:
        assert self.top.actions is not None
        self._messages, self._outcome, self._doing = [], None, _UNDOING
        try:
            self._outcome = await self.top.actions.undo(journal, undoing, self._report)
        except OpskError as error:
            self._outcome = Outcome(message=error.message)
        self._is_busy = False
        self.show()
        self.top.feed.ask_now()


def _speed(choice: RemapChoice) -> Cell:
    predicted = choice.option.predicted
    if not choice.is_predicted:
        return NOT_KNOWN, "dim"
    return number(predicted.tokens_per_s) if predicted.tokens_per_s else f"{predicted.sequences_per_s:.3g}/s", "text"


def _loss(choice: RemapChoice) -> Cell:
    loss = choice.option.predicted.loss
    words = percent(loss) if loss > -0.005 else "faster"
    return words, "ok" if loss < 0.02 else "watch" if loss < 0.2 else "bad"
