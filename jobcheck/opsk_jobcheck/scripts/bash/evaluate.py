"""Evaluates a script's variables and the commands that it would run, as far as they are certain.

The evaluator walks the commands in order. Both branches of an undecided test are walked, and values that differ
afterwards are unknown. A loop whose number of iterations is not known is walked once with everything that it changes
unknown. No command is ever started: the output of a program is unknown, with the program's name as the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsk_jobcheck.scripts.bash.assignments import (
    PREFIXES,
    assign,
    find_names_set_by_word,
    runs_commands,
)
from opsk_jobcheck.scripts.bash.builtins import HANDLERS, RUN_TEXT
from opsk_jobcheck.scripts.bash.conditions import evaluate_test
from opsk_jobcheck.scripts.bash.control_flow import (
    call,
    define,
    find_functions_like,
    keep_side_effects,
    run_with_prefix,
    walk_case,
    walk_either,
    walk_if,
    walk_loop,
)
from opsk_jobcheck.scripts.bash.defaults import gives_default
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.lexer import ShellLimitError, build_script_source
from opsk_jobcheck.scripts.bash.other_shells import expand_input, record_invocation
from opsk_jobcheck.scripts.bash.scope import (
    DIRECTORY,
    START,
    Scope,
    find_mentioned_variables,
)
from opsk_jobcheck.scripts.bash.state import MAX_DEPTH, Frame, ShellState
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
from opsk_jobcheck.scripts.bash.values import Run, Text, get_known_words, literal
from opsk_jobcheck.scripts.bash.written_files import forget_written_files, record_written_files


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
    state = ShellState(scope, files or {}, step)
    state.read(build_script_source(text, number_spans=number_spans))
    effects = state.effects
    return Run(
        invocations=tuple(effects.invocations),
        variables=scope.variables,
        files=effects.written,
        sourced=tuple(dict.fromkeys(effects.sourced)),
        problems=tuple(effects.problems),
        changed=effects.changed,
        places=effects.places,
        steps=state.budget.steps,
    )


def step(state: ShellState, command: Command) -> bool | None:
    """Walk one command and return its status: true, false, or ``None`` for unknown."""
    state.budget.depth += 1
    try:
        if state.budget.depth > MAX_DEPTH * 4:
            raise ShellLimitError("the script is nested too deeply")
        return _step(state, command)
    finally:
        state.budget.depth -= 1


def _step(state: ShellState, command: Command) -> bool | None:
    if state.flow.is_over:
        return None
    state.budget.steps += 1
    if isinstance(command, Simple):
        return _walk_simple(state, command)
    if isinstance(command, Chain | If | Case | Loop):
        state.flow.guards += 1
        status = _walk_guarded(state, command)
        state.flow.guards -= 1
        return status
    if isinstance(command, Pipeline):
        return _walk_pipeline(state, command)
    if isinstance(command, Test):
        result = evaluate_test(_expand_test_words(state, command.words), extended=True)
        state.scope.lose(
            {name for word in command.words for name in find_names_set_by_word(word)},
            "a test may skip it",
            command.line,
        )
        return result
    if isinstance(command, ArithTest):
        value = state.expander().calculate(command.text, command.line).known
        return None if value is None else value != "0"
    if isinstance(command, Function):
        define(state, command)
        return True
    return _walk_group(state, command)


def _walk_guarded(state: ShellState, command: Chain | If | Case | Loop) -> bool | None:
    """Walk a command that a test, or a loop, may prevent from running."""
    if isinstance(command, Chain):
        return _walk_chain(state, command)
    if isinstance(command, If):
        return walk_if(state, command)
    return walk_case(state, command) if isinstance(command, Case) else walk_loop(state, command)


def _expand_test_words(state: ShellState, words: list[Word]) -> list[Text]:
    expander = state.expander()
    state.budget.steps += len(words)
    before = ("", *(word.bare or "" for word in words))
    return [
        expander.pattern(word) if sign in ("=", "==", "!=") else expander.text(word)
        for sign, word in zip(before, words, strict=False)
    ]


def _walk_chain(state: ShellState, chain: Chain) -> bool | None:
    status: bool | None = None
    links = list(chain.links)
    while links:
        sign, command = links.pop(0)
        if status is None and sign == "&&" and gives_default(state.scope, [chain.links[0][1]], [command]):
            status = True
        if not sign:
            status = step(state, command)
        elif status is None:
            together: list[tuple[str, Command]] = [("", command)]
            while sign == "&&" and links and links[0][0] == "&&":
                together.append(links.pop(0))  # each of them runs only if all before it have succeeded
            walk_either(state, [[Chain(together)]], getattr(command, "line", 0), may_skip=True)
        elif status == (sign == "&&"):
            status = step(state, command)
    return status


def _walk_pipeline(state: ShellState, pipeline: Pipeline) -> bool | None:
    if len(pipeline.commands) == 1:
        status = step(state, pipeline.commands[0])
        return None if status is None else status != pipeline.negated
    for command in pipeline.commands:
        _walk_subshell(state, [command])
    return None


def _walk_group(state: ShellState, group: Group) -> bool | None:
    status: bool | None = None
    if group.subshell:
        _walk_subshell(state, group.body)
    else:
        status = state.walk(group.body)
    forget_written_files(state, group.redirects)
    return status


def _walk_subshell(state: ShellState, commands: list[Command]) -> None:
    """Walk commands whose assignments stay in a subshell."""
    frames = [frame and Frame() for frame in state.flow.frames[-1:]]  # ``return`` ends only the subshell
    with state.shell(state.scope.copy(), state.functions, frames):
        state.walk(commands)


def _walk_simple(state: ShellState, command: Simple) -> bool | None:
    words = state.expander().words(command.words) if command.words else []
    if not words:
        return _run_assignments(state, command)
    name = words[0].known or ""
    if name in PREFIXES and len(words) > 1 and words[1].known in HANDLERS:
        words = words[1:]
        name = words[0].known or ""
    functions = state.functions.get(name, ())
    if words[0].known is None and state.functions:
        functions = find_functions_like(state, words[0])
    if functions:
        if command.redirects:  # its output is not that of a program of its name
            called = [literal(f"{name}()", words[0].line), *words[1:]]
            record_written_files(state, called, get_known_words(called), command)
        return run_with_prefix(state, command, lambda: call(state, functions, words[1:], command.line))
    if name in HANDLERS:
        if command.redirects and name != "printf":
            record_written_files(state, words, get_known_words(words), command)
        return _run_builtin(state, command, name, words)
    _record_program(state, command, words)
    return None


def _run_assignments(state: ShellState, command: Simple) -> bool | None:
    """Carry out assignments without a command, or before words that have vanished."""
    state.budget.steps += len(command.assignments)
    for assignment in command.assignments:
        assign(state.expander(), assignment)
    if command.redirects:
        record_written_files(state, [], (), command)
    return None if any(map(runs_commands, command.assignments)) else True


def _run_builtin(state: ShellState, command: Simple, name: str, words: list[Text]) -> bool | None:
    """Run a builtin of the shell; most ignore the assignments before them, except for their side effects."""
    handler = HANDLERS[name]
    if command.assignments and name in RUN_TEXT:
        return run_with_prefix(state, command, lambda: handler(state, command, words))
    if command.assignments:
        inside = state.scope.copy()
        for assignment in command.assignments:
            assign(Expander(inside, state.source), assignment)
        keep_side_effects(state.scope, inside, command.assignments)
    return handler(state, command, words)


def _record_program(state: ShellState, command: Simple, words: list[Text]) -> None:
    """Record the start of a program, with the assignments before it in its environment only."""
    known = get_known_words(words)
    record_written_files(state, words, known, command)
    given = expand_input(state.expander(), command.redirects) if command.redirects else None
    outer = state.scope
    if command.assignments:
        state.scope = outer.copy()
        for assignment in command.assignments:
            assign(state.expander(), assignment)
            state.scope.export(assignment.name)
        keep_side_effects(outer, state.scope, command.assignments)
    invocations = state.effects.invocations
    before = len(invocations)
    record_invocation(state, words, known, command.line, given)
    if command.assignments and len(invocations) > before:
        names = sorted({entry.name for entry in command.assignments})
        invocations[before].facts["assigned"] = {name: state.scope.variables[name] for name in names}
    state.scope = outer
