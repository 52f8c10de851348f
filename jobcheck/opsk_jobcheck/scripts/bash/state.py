"""Holds the state of a shell script that is walked: variables, functions, effects, and the remaining work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from opsk_jobcheck.scripts.bash.assignments import ANY_COMMAND, collect_assignments
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.lexer import ShellLimitError, Source, build_script_source
from opsk_jobcheck.scripts.bash.parser import Parser
from opsk_jobcheck.scripts.bash.scope import Scope
from opsk_jobcheck.scripts.bash.syntax import Command, Function
from opsk_jobcheck.scripts.bash.values import Invocation, Places, Text

MAX_DEPTH = 24
MAX_ALL_TURNS = 512
"""Iterations and function calls of a script that are walked one at a time."""
MAX_STEPS = 20_000
"""Commands, and words of tests, of a script after which no iteration of a loop is walked separately."""
MAX_READ_CHARS = 3 << 18
"""Characters of all texts that are read: the script, what it sources and starts, and the texts for other shells."""
CHARS_PER_COMMAND, CHARS_PER_WORD = 16, 4
"""Each of their commands and words counts as so many more."""
_MOVES_ARGUMENTS = frozenset({"set", "shift"})


@dataclass(slots=True)
class Budget:
    """The work that a script has taken so far; ``depth`` is how deep its commands are nested."""

    remaining_characters: int = MAX_READ_CHARS
    turns: int = 0
    steps: int = 0
    started: int = 0
    depth: int = 0

    def spend(self, characters: int) -> None:
        """Count work of the whole run; a script that makes it be done again and again is given up."""
        self.remaining_characters -= characters
        if self.remaining_characters < 0:
            raise ShellLimitError("the script takes more work to read than opsk spends on one")

    @property
    def is_spent(self) -> bool:
        """Whether no iteration of a loop is walked separately any more."""
        return self.turns > MAX_ALL_TURNS or self.steps > MAX_STEPS


@dataclass(slots=True)
class Effects:
    """The results of a script: commands, files that it writes, changes or lacks, and problems. See `values.Run`."""

    invocations: list[Invocation] = field(default_factory=list)
    is_full: bool = False
    written: dict[str, Text] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    sourced: list[str] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    places: Places = field(default_factory=Places)


@dataclass(slots=True)
class Turn:
    """One iteration of a loop: the scopes at each ``continue`` and at each ``break`` so far."""

    continued: list[Scope] = field(default_factory=list)
    broken: list[Scope] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        """Whether a path through the iteration leaves it before its end."""
        return bool(self.continued or self.broken)


@dataclass(slots=True)
class Frame:
    """A sourced file being walked: the scopes at each ``return``."""

    scopes: list[Scope] = field(default_factory=list)
    returned: bool = False


@dataclass(slots=True, kw_only=True)
class Flow:
    """Where a shell is on its way through its commands.

    ``certain``: what is walked certainly runs. ``ended``: the current branch certainly leaves the script or the sourced
    file. ``is_over``: the shell has certainly ended, and nothing after that is walked. An ``exit`` that a test guards
    does not count, decided or not: a template that stops for missing values is read on. ``guards`` are the tests and
    loops around the current command. ``frames`` and ``open_turns`` have ``None`` for a function, and for a loop that is
    walked once.
    """

    certain: bool = True
    ended: bool = False
    is_over: bool = False
    guards: int = 0
    frames: list[Frame | None] = field(default_factory=list)
    open_turns: list[Turn | None] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        """Whether the sourced file or the iteration of a loop that is walked is over."""
        turn, frame = self._innermost()
        return bool((frame and frame.returned) or (turn and turn.is_left))

    @property
    def may_be_left(self) -> bool:
        """Whether a path through the current iteration or sourced file has left it."""
        turn, frame = self._innermost()
        return bool((frame and frame.scopes) or (turn and turn.is_left))

    @contextmanager
    def uncertain(self) -> Iterator[None]:
        """Walk what may not run, to an end that is only its own."""
        outer = self.certain, self.ended
        self.certain = self.ended = False
        try:
            yield
        finally:
            self.certain, self.ended = outer

    def _innermost(self) -> tuple[Turn | None, Frame | None]:
        return self.open_turns[-1] if self.open_turns else None, self.frames[-1] if self.frames else None


class ShellState:
    """The state of a script.

    Parameters
    ----------
    files
        Texts of files that the script may source, by path.
    step
        Walks one command and returns its status: true, false, or ``None`` for unknown. Loops, branches and builtins
        walk the commands inside them through it.
    """

    def __init__(
        self, scope: Scope, files: Mapping[str, str], step: Callable[[ShellState, Command], bool | None]
    ) -> None:
        self.scope = scope
        self.files = files
        self.step = step
        self.source = build_script_source("")
        self.functions: dict[str, tuple[Function, ...]] = {}
        """The definitions that a name may have: several where a test stood before one of them."""
        self.effects = Effects()
        self.budget = Budget()
        self.flow = Flow()
        self._assigned: dict[int, tuple[Command, set[str], set[str]]] = {}

    def expander(self) -> Expander:
        """Return the expander of the present scope."""
        return Expander(self.scope, self.source)

    def read(self, source: Source) -> None:
        """Parse and walk one source; limits end the walk with a problem, never with an error."""
        outer, self.source, guards = self.source, source, self.flow.guards
        parser, problems = Parser(source), self.effects.problems
        try:
            self.budget.spend(len(source.text) + 100)
            commands = parser.script()
            self.budget.spend(CHARS_PER_COMMAND * parser.count + CHARS_PER_WORD * parser.words)
            problems += parser.problems
            self.walk(commands)
        except ShellLimitError as error:
            problems.append((parser.lexer.line(), str(error)))
        except RecursionError:
            problems.append((parser.lexer.line(), "the script is nested too deeply"))
        finally:
            self.source, self.flow.guards = outer, guards

    def walk(self, commands: Iterable[Command]) -> bool | None:
        """Walk commands in order; the status is that of the last."""
        status: bool | None = True
        for command in commands:
            status = self.step(self, command)
            flow = self.flow
            if flow.ended and (not flow.certain or flow.is_left):
                break
            if (flow.frames or flow.open_turns) and flow.certain and flow.may_be_left:
                flow.certain = False  # until the iteration, or the file, is over
        return status

    @contextmanager
    def shell(
        self, scope: Scope, functions: Mapping[str, tuple[Function, ...]], frames: Iterable[Frame | None] = ()
    ) -> Iterator[None]:
        """Walk in another shell, whose variables, functions and end change nothing here."""
        outer = self.scope, self.functions, self.flow
        self.scope, self.functions = scope, dict(functions)
        self.flow = Flow(certain=self.flow.certain, guards=self.flow.guards, frames=list(frames))
        try:
            yield
        finally:
            self.scope, self.functions, self.flow = outer

    def moves_arguments(self, bodies: Iterable[Iterable[Command]]) -> bool:
        """Return whether bodies hold a ``set`` or ``shift``, outside functions."""
        return any(not _MOVES_ARGUMENTS.isdisjoint(self._collect(command)[1]) for body in bodies for command in body)

    def find_changed_names(self, tree: Iterable[Command]) -> set[str]:
        """Return the names that commands may assign, the functions that they call included."""
        names: set[str] = set()
        called: set[str] = set()
        waiting = list(tree)
        while waiting:
            run: set[str] = set()
            for command in waiting:
                assigned, calls = self._collect(command)
                names |= assigned
                run |= calls
            self.budget.spend(len(waiting))
            if ANY_COMMAND in run:
                run |= self.functions.keys()
            new = {name for name in run if name in self.functions} - called
            called |= new
            waiting = [function for name in new for function in self.functions[name]]
        return names

    def _collect(self, command: Command) -> tuple[set[str], set[str]]:
        """Return the result of `collect_assignments` for a command, computed once."""
        if id(command) not in self._assigned:
            self._assigned[id(command)] = (command, *collect_assignments([command]))
        return self._assigned[id(command)][1:]
