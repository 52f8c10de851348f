"""Evaluates a script's variables and the commands that it would run, as far as they are certain.

The evaluator walks the commands in order. Both branches of an undecided test are walked, and values that differ
afterwards are unknown. A loop whose number of iterations is not known is walked once with everything that it changes
unknown. No command is ever started: the output of a program is unknown, with the program's name as the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from opsk_jobcheck.scripts.bash import builtins as commands
from opsk_jobcheck.scripts.bash.assignments import assign, find_names_set_by_word, runs_commands
from opsk_jobcheck.scripts.bash.branches import walk_case, walk_either, walk_if
from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.directories import DIRECTORY, START, find_command_directory, get_directory
from opsk_jobcheck.scripts.bash.effects import PREFIXES, collect_assignments
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.functions import (
    MAX_DEPTH,
    Frame,
    call,
    define,
    find_functions_like,
    keep_side_effects,
    run_with_prefix,
)
from opsk_jobcheck.scripts.bash.line_map import Places
from opsk_jobcheck.scripts.bash.loops import Turn, walk_loop
from opsk_jobcheck.scripts.bash.other_shells import expand_input, export, walk_inner_shell
from opsk_jobcheck.scripts.bash.parser import Parser
from opsk_jobcheck.scripts.bash.scope import Scope, find_mentioned_variables
from opsk_jobcheck.scripts.bash.source import ShellLimitError, Source, build_script_source
from opsk_jobcheck.scripts.bash.syntax import (
    ArithTest,
    Case,
    Chain,
    Command,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Simple,
    Test,
    Word,
)
from opsk_jobcheck.scripts.bash.values import (
    Invocation,
    Run,
    Text,
    get_known_words,
    literal,
)
from opsk_jobcheck.scripts.bash.written_files import forget_written_files, record_written_files

MAX_INVOCATIONS = 2500
MAX_READ_CHARS = 3 << 18
"""Characters of all texts that are read: the script, what it sources and starts, and the texts for other shells."""
CHARS_PER_COMMAND, CHARS_PER_WORD = 16, 4
"""Each of their commands and words counts as so many more."""


def run(
    text: str,
    *,
    given: Mapping[str, Text],
    environment: Mapping[str, str] | None = None,
    arguments: tuple[Text, ...] | None = None,
    files: Mapping[str, str] | None = None,
    number_spans: Sequence[tuple[int, int]] = (),
) -> Run:
    """Read a script to its end.

    Parameters
    ----------
    given
        Variables that Slurm sets.
    environment, arguments
        As in `Scope`.
    files
        Texts of files that the script may source, by path.
    number_spans
        As in `build_script_source`.
    """
    requested_names = (
        find_mentioned_variables("\n".join((text, *(files or {}).values()))) if environment is not None else None
    )
    scope = Scope({DIRECTORY: Text(), "PWD": START, **given}, environment, arguments, requested_names=requested_names)
    evaluator = Evaluator(scope, files or {})
    evaluator.read(build_script_source(text, number_spans=number_spans))
    return Run(
        invocations=tuple(evaluator.invocations),
        variables=scope.variables,
        files=evaluator.written,
        sourced=tuple(dict.fromkeys(evaluator.sourced)),
        problems=tuple(evaluator.problems),
        changed=evaluator.changed,
        places=evaluator.places,
    )


class Evaluator:
    """Walks commands; ``ended`` is set once the current branch certainly leaves the script or function.

    ``is_over`` is set once the current shell has certainly ended: nothing after that is walked. An ``exit`` that a
    test guards does not count, decided or not: a template that stops for missing values is read on.
    ``guards`` are the tests and loops around the current command. ``functions`` are the definitions that a name may
    have: several where a test stood before one of them. ``frames`` has ``None`` for a function.
    """

    def __init__(self, scope: Scope, files: Mapping[str, str]) -> None:
        self.scope = scope
        self.files = files
        self.invocations: list[Invocation] = []
        self.written: dict[str, Text] = {}
        self.sourced: list[str] = []
        self.problems: list[tuple[int, str]] = []
        self.functions: dict[str, tuple[Function, ...]] = {}
        self.source = build_script_source("")
        self.certain = True
        self.ended = False
        self.is_over = False
        self.guards = 0
        self.depth = 0
        self.frames: list[Frame | None] = []
        self.open_turns: list[Turn | None] = []
        self.turns = 0
        self.steps = 0
        self.changed: dict[str, str] = {}
        self.places = Places()
        self.started = 0
        self.is_full = False
        self.left = MAX_READ_CHARS
        self.assigned: dict[int, tuple[Command, set[str], set[str]]] = {}

    def spend(self, characters: int) -> None:
        """Count work of the whole run; a script that makes it be done again and again is given up."""
        self.left -= characters
        if self.left < 0:
            raise ShellLimitError("the script takes more work to read than opsk spends on one")

    def read(self, source: Source) -> None:
        """Parse and walk one source; limits end the walk with a problem, never with an error."""
        outer, self.source, guards = self.source, source, self.guards
        parser = Parser(source)
        try:
            self.spend(len(source.text) + 100)
            commands = parser.script()
            self.spend(CHARS_PER_COMMAND * parser.count + CHARS_PER_WORD * parser.words)
            self.problems += parser.problems
            self.walk(commands)
        except ShellLimitError as error:
            self.problems.append((parser.lexer.line(), str(error)))
        except RecursionError:
            self.problems.append((parser.lexer.line(), "the script is nested too deeply"))
        finally:
            self.source, self.guards = outer, guards

    def expander(self) -> Expander:
        """Return the expander of the present scope."""
        return Expander(self.scope, self.source)

    def walk(self, commands: Iterable[Command]) -> bool | None:
        """Walk commands in order; the status is that of the last."""
        status: bool | None = True
        for command in commands:
            status = self.step(command)
            if self.ended and (not self.certain or self.is_left()):
                break
            if (self.frames or self.open_turns) and self.certain and self._may_be_left():
                self.certain = False  # until the iteration, or the function, is over
        return status

    def is_left(self) -> bool:
        """Return whether the function or the iteration of a loop that is walked is over."""
        turn = self.open_turns[-1] if self.open_turns else None
        frame = self.frames[-1] if self.frames else None
        return bool((frame and frame.returned) or (turn and turn.is_left))

    def _may_be_left(self) -> bool:
        """Return whether a path through the current iteration or sourced file has left it."""
        turn = self.open_turns[-1] if self.open_turns else None
        frame = self.frames[-1] if self.frames else None
        return bool((frame and frame.scopes) or (turn and turn.is_left))

    def step(self, command: Command) -> bool | None:
        """Walk one command and return its status: true, false, or ``None`` for unknown."""
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH * 4:
                raise ShellLimitError("the script is nested too deeply")
            return self._step(command)
        finally:
            self.depth -= 1

    def _step(self, command: Command) -> bool | None:
        if self.is_over:
            return None
        self.steps += 1
        if isinstance(command, Simple):
            return self._walk_simple(command)
        if isinstance(command, Chain | If | Case | Loop):
            self.guards += 1
            status = self._walk_guarded(command)
            self.guards -= 1
            return status
        if isinstance(command, Pipeline):
            return self._walk_pipeline(command)
        if isinstance(command, Test):
            result = evaluate_test(self._expand_test_words(command.words), extended=True)
            self.scope.lose(
                {name for word in command.words for name in find_names_set_by_word(word)},
                "a test may not come to it",
                command.line,
            )
            return result
        if isinstance(command, ArithTest):
            value = self.expander().calculate(command.text, command.line).known
            return None if value is None else value != "0"
        if isinstance(command, Function):
            define(self, command)
            return True
        return self._walk_group(command)

    def _walk_guarded(self, command: Chain | If | Case | Loop) -> bool | None:
        """Walk a command that a test, or a loop, may prevent from running."""
        if isinstance(command, Chain):
            return self._walk_chain(command)
        if isinstance(command, If):
            return walk_if(self, command)
        return walk_case(self, command) if isinstance(command, Case) else walk_loop(self, command)

    def _expand_test_words(self, words: list[Word]) -> list[Text]:
        expander = self.expander()
        self.steps += len(words)
        before = ("", *(word.bare or "" for word in words))
        return [
            expander.pattern(word) if sign in ("=", "==", "!=") else expander.text(word)
            for sign, word in zip(before, words, strict=False)
        ]

    def _walk_chain(self, chain: Chain) -> bool | None:
        status: bool | None = None
        links = list(chain.links)
        while links:
            sign, command = links.pop(0)
            if not sign:
                status = self.step(command)
            elif status is None:
                together: list[tuple[str, Command]] = [("", command)]
                while sign == "&&" and links and links[0][0] == "&&":
                    together.append(links.pop(0))  # each of them runs only if all before it have succeeded
                walk_either(self, [[Chain(together)]], getattr(command, "line", 0), may_skip=True)
            elif status == (sign == "&&"):
                status = self.step(command)
        return status

    def _walk_pipeline(self, pipeline: Pipeline) -> bool | None:
        if len(pipeline.commands) == 1:
            status = self.step(pipeline.commands[0])
            return None if status is None else status != pipeline.negated
        for command in pipeline.commands:
            self._walk_subshell([command])
        return None

    def _walk_group(self, group: Group) -> bool | None:
        status: bool | None = None
        if group.subshell:
            self._walk_subshell(group.body)
        else:
            status = self.walk(group.body)
        forget_written_files(self, group.redirects)
        return status

    def _walk_subshell(self, commands: list[Command]) -> None:
        """Walk commands whose assignments stay in a subshell."""
        outer, self.scope = self.scope, self.scope.copy()
        functions, self.functions = self.functions, dict(self.functions)
        was_ended, turns, self.open_turns = self.ended, self.open_turns, []
        self.walk(commands)
        self.scope, self.ended, self.open_turns, self.functions = outer, was_ended, turns, functions
        self.is_over = False

    def _walk_simple(self, command: Simple) -> bool | None:
        words = self.expander().words(command.words) if command.words else []
        if not words:
            return self._run_assignments(command)
        name = words[0].known or ""
        if name in PREFIXES and len(words) > 1 and words[1].known in commands.HANDLERS:
            words = words[1:]
            name = words[0].known or ""
        functions = self.functions.get(name, ())
        if words[0].known is None and self.functions:
            functions = find_functions_like(self, words[0])
        if functions:
            if command.redirects:  # its output is not that of a program of its name
                called = [literal(f"{name}()", words[0].line), *words[1:]]
                record_written_files(self, called, get_known_words(called), command)
            return run_with_prefix(self, command, lambda: call(self, functions, words[1:], command.line))
        if name in commands.HANDLERS:
            if command.redirects and name != "printf":
                record_written_files(self, words, get_known_words(words), command)
            return self._run_builtin(command, name, words)
        self._record_program(command, words)
        return None

    def _run_assignments(self, command: Simple) -> bool | None:
        """Carry out assignments without a command, or before words that have vanished."""
        self.steps += len(command.assignments)
        for assignment in command.assignments:
            assign(self.expander(), assignment)
        if command.redirects:
            record_written_files(self, [], (), command)
        return None if any(map(runs_commands, command.assignments)) else True

    def _run_builtin(self, command: Simple, name: str, words: list[Text]) -> bool | None:
        """Run a builtin of the shell; most ignore the assignments before them, except for their side effects."""
        handler = commands.HANDLERS[name]
        if command.assignments and name in commands.RUN_TEXT:
            return run_with_prefix(self, command, lambda: handler(self, command, words))
        if command.assignments:
            inside = self.scope.copy()
            for assignment in command.assignments:
                assign(Expander(inside, self.source), assignment)
            keep_side_effects(self.scope, inside, command.assignments)
        return handler(self, command, words)

    def _record_program(self, command: Simple, words: list[Text]) -> None:
        """Record the start of a program, with the assignments before it in its environment only."""
        known = get_known_words(words)
        record_written_files(self, words, known, command)
        given = expand_input(self.expander(), command.redirects) if command.redirects else None
        outer = self.scope
        if command.assignments:
            self.scope = outer.copy()
            for assignment in command.assignments:
                assign(self.expander(), assignment)
                export(self.scope, assignment.name)
            keep_side_effects(outer, self.scope, command.assignments)
        before = len(self.invocations)
        self.record(words, known, command.line, given)
        if command.assignments and len(self.invocations) > before:
            names = {entry.name for entry in command.assignments}
            self.invocations[before].facts["assigned"] = {name: self.scope.variables[name] for name in sorted(names)}
        self.scope = outer

    def record(self, words: list[Text], known: tuple[str, ...], line: int, given: Text | None = None) -> None:
        """Record an invocation, and walk what it runs in another shell; ``given`` is its input where that is known."""
        if len(self.invocations) >= MAX_INVOCATIONS:
            if not self.is_full:
                self.problems.append((line, "the script runs more commands than opsk follows; the rest is not read"))
            self.is_full = True
            return
        where = find_command_directory(words, known, get_directory(self.scope))
        invocation = Invocation(
            words=tuple(words), line=line, certain=self.certain, directory=where, facts={"known words": known}
        )
        self.invocations.append(invocation)
        if self.depth > MAX_DEPTH:
            return
        walk_inner_shell(self, words, known, where, given)

    def calls(self, tree: Iterable[Command], names: Collection[str]) -> bool:
        """Return whether a tree that `find_changed_names` has seen has commands of these names outside functions."""
        return any(name in names for command in tree for name in self.assigned[id(command)][2])

    def find_changed_names(self, tree: Iterable[Command]) -> set[str]:
        """Return the names that commands may assign, the functions that they call included."""
        names: set[str] = set()
        called: set[str] = set()
        waiting = list(tree)
        while waiting:
            run: set[str] = set()
            for command in waiting:
                if id(command) not in self.assigned:
                    self.assigned[id(command)] = (command, *collect_assignments([command]))
                _, assigned, calls = self.assigned[id(command)]
                names |= assigned
                run |= calls
            self.spend(len(waiting))
            new = {name for name in run if name in self.functions} - called
            called |= new
            waiting = [function for name in new for function in self.functions[name]]
        return names
