"""Whatever is said to be known must be what bash says: random scripts of builtins only, run by bash, read by opsk."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk_jobcheck.scripts.bash.arithmetic import ArithmeticUnknownError, evaluate_arithmetic
from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Array, Scalar
from opsk_jobcheck.scripts.free_numbers import Numbered
from tests.jobcheck.scripts.bash.test_against_bash import fits

BASH = Path("/bin/bash")
pytestmark = pytest.mark.skipif(not BASH.exists(), reason="there is no /bin/bash to agree with")

NAMES = ("A", "B", "C", "D")
ARRAYS = ("R", "S")
WATCHED = (*NAMES, *ARRAYS, "I", "J")
REPORT = """declare -p NAME >/dev/null 2>&1 && printf '%s\\0' NAME "${#NAME[@]}" "${NAME[@]}\""""
SEEDS = st.integers(0, 2**48)
HEAD = "I=5 J=2 A=1 B=x_y C=a/b\n"
PLAIN = ("1", "7", "abc", "x/y", "--n", "foo.json", "'a b'", "'$A'", '"q"', "a\\ b")
OPERATORS = ("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "&&", "||", "<<", ">>")
MEMBERS = ("[0]", "[1]", "[*]", "[-1]", "[@]:1", "[@]:0:1", "[@]/a/Z", "[@]^^")
DEFAULTS = (":-", "-", ":+", "+", ":=", "=")
CUTTERS = ("#", "##", "%", "%%")
REPLACED = ("/_", "//_", "//a", "/?", "//,", "/[0-9]", "//\\/", "//x*")
NEW = ("", "Z", "-")
SLICES = (":0:1", ":1:2", ":2", ": -1:9", ": -2:1")
CASES = ("^", "^^", ",", ",,")
SEPARATORS = ("','", "' '", "':'")
READ = ('"1,2,3"', '"$D"', '"a b  c d"', '" 1, 2 "')
PATTERNS = ("a*", "?", "[0-9]*", '"*"', "*")
EXPRESSIONS = (
    "a",
    "^[0-9]+$",
    '"a b"',
    "^x.y",
    "[^a]c?$",
    '"."',
    "\\.",
    "^$",
    "(a|b)",
    "a|7",
    "$B",
    '^"$A"',
    "a*/b",
    "x_",
)
ENDS = (";;", ";&", ";;&")
CUTS = ("*", "a", "?", "*/", "/*", "x*", "*_", "_*", "[0-9]", "[!a]*", ".*")


class Writer:
    """Writes random scripts of assignments, expansions, tests and compound commands."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice

    def of(self, *options: str) -> str:
        return self.choice.choice(options)

    def one_of(self, *options: Callable[[], str]) -> str:
        """Write one of several; to write them all, and all that is in each, is hundreds of times the work."""
        return self.choice.choice(options)()

    def name(self) -> str:
        return self.of(*NAMES)

    def words(self) -> str:
        return " ".join(self.word() for _ in range(self.choice.randrange(4)))

    def word(self, depth: int = 0) -> str:
        name, array = self.name(), self.of(*ARRAYS)
        kinds = [
            lambda: self.of(*PLAIN),
            lambda: self.of(f"${name}", f'"${name}"', f'"${{{name}}}_z"', f'"${{#{name}}}"'),
            lambda: f"${{{name}{self.of(*DEFAULTS)}{self.argument(depth + 1)}}}",
            lambda: f'"${{{name}{self.of(*DEFAULTS)}{self.argument(depth + 1)}}}"',
            lambda: f'"${{{name}{self.of(*CUTTERS)}{self.of(*CUTS)}}}"',
            lambda: f'"${{{name}{self.of(*REPLACED)}/{self.of(*NEW)}}}"',
            lambda: f"$(({self.arithmetic()}))",
            lambda: f'"${{{name}{self.of(*SLICES)}}}"',
            lambda: f'"${{{name}{self.of(*CASES)}}}"',
            lambda: f'"${{{array}{self.of(*MEMBERS)}}}"',
            lambda: self.of(f"${{{array}[@]}}", f'"${{#{array}[@]}}"', f'"${{!{array}[@]}}"', f'"${{#{array}[1]}}"'),
            lambda: self.word(depth + 1) + self.word(depth + 1) if depth < 2 else "z",
        ]
        return self.one_of(*kinds)

    def argument(self, depth: int) -> str:
        return self.word(depth) if depth < 3 and self.choice.random() < 0.5 else self.of("", "5", "d e", '"d e"')

    def arithmetic(self, depth: int = 0) -> str:

        def inner() -> str:
            return self.arithmetic(depth + 1)

        kind = self.choice.randrange(9 if depth < 4 else 2)
        if kind < 2:
            return self.of("0", "1", "2", "3", "7", "63", "0x1f", "010", "I", "J")
        if kind == 2:
            return f"({inner()})"
        if kind == 3:
            return f"{self.of('-', '+', '!', '~')} {inner()}"
        if kind == 4:
            return f"({inner()} ? {inner()} : {inner()})"
        if kind == 5 and depth < 2:
            return self.of("I++", "++I", "J--", "(J += 3)", "(I = 4)", "(I <<= 1)", "(1, 2)")
        return f"{inner()} {self.of(*OPERATORS)} {inner()}"

    def test(self) -> str:
        def operand() -> str:
            return self.of(f'"${self.name()}"', "1", "a", "abc", '""', '"7"')

        return self.one_of(
            lambda: f"[ {operand()} {self.of('=', '!=')} {operand()} ]",
            lambda: f"[[ {operand()} {self.of('==', '!=')} {self.of(*PATTERNS, operand())} ]]",
            lambda: f"[[ {operand()} =~ {self.of(*EXPRESSIONS)} ]]",
            lambda: f"[ {self.of('-n', '-z', '! -n')} {operand()} ]",
            lambda: f"[[ $I {self.of('-eq', '-ne', '-lt', '-gt', '-le', '-ge')} {self.choice.randrange(9)} ]]",
            lambda: f"[[ -n {operand()} && ! -z {operand()} || {operand()} == a ]]",
            lambda: f"(( {self.arithmetic()} ))",
            lambda: self.of("true", "false", ":", "! true"),
        )

    def block(self, depth: int) -> str:
        return "\n".join(self.statement(depth) for _ in range(self.choice.randrange(1, 3)))

    def statement(self, depth: int = 0) -> str:
        if depth < 3 and self.choice.random() < 0.3:
            return self.compound(depth + 1)
        name, array = self.name(), self.of(*ARRAYS)
        return self.one_of(
            lambda: f"{name}={self.word()}",
            lambda: f"{name}+={self.word()}",
            lambda: f"export {name}={self.word()}",
            lambda: f"I=$(({self.arithmetic()}))",
            lambda: f"{array}=({self.words()})",
            lambda: f"{array}+=({self.words()})",
            lambda: f"R[{self.choice.randrange(3)}]={self.word()}",
            lambda: f'{name}="${{{array}[@]}} x"',
            lambda: f"set -- {self.words()}\nA=$1 B=${{2:-no}} C=$#",
            lambda: f"IFS={self.of(*SEPARATORS)} read -r A B C <<< {self.of(*READ)}",
            lambda: f'unset {name}; : "${{{name}:=5}}"',
            lambda: self.of(
                "((I++))", "let I+=1", "let 'J = 4'", "printf -v A %s 5", "declare -i I=3+4", "unset 'R[0]'"
            ),
            lambda: self.of(
                "I+=2", "I=J+1", "I+=3*2", "declare -i A=2", "declare -i B", "declare +i A", "declare -i J; J+=1"
            ),
            lambda: self.of("IFS=,", "IFS=$' \\t\\n'", "unset IFS", "(A=77)", "{ B=$A; }", "eval 'C=x; D=y'"),
            lambda: self.of(f"{name}={self.word()} & wait", f"{{ {name}=9; J=8; }} & wait", f"{name}=$(false) || C=6"),
            lambda: self.of(
                f"if {name}=$(true); then D=w; fi", f"setter() {{ B=${{{name}:-2}}; }}; {name}=8 setter", "C=#a; D=z"
            ),
            lambda: self.of(
                "{ exit 3; } &\nwait", "(exit 1)", "[[ $A == 1 ]] || (exit 2)", f"{name}=8 eval 'B=${name}'"
            ),
        )

    def compound(self, depth: int) -> str:
        name, block = self.name(), lambda: self.block(depth)
        # Nothing else changes it, and no number that ends or moves a loop stands where one may be any: loops end.
        own = f"K{depth}"
        return self.one_of(
            lambda: f"if {self.test()}; then\n{block()}\nelif {self.test()}; then\n{block()}\nelse\n{block()}\nfi",
            lambda: (
                f'case "${name}" in\n1|7) {block()} ;;\na*) {block()} {self.of(*ENDS)}\n'
                f'"*") {block()} ;;\n*) {block()} ;;\nesac'
            ),
            lambda: f"{self.test()} {self.of('&&', '||')} {name}={self.word()}",
            lambda: f"for {name} in {self.words()}; do\n{block()}\n{self.of('', 'break', 'continue')}\ndone",
            lambda: (
                f"{own}=$((0)); while [ ${own} -lt $(({self.of('3', '4')})) ]; do\n{block()}\n"
                f"{self.of('', self.test() + ' && break')}\n{own}=$(({own}+1)); done; I=${own}"
            ),
            lambda: f"{own}=$((0)); until (({own}>2)); do\n(({own}++))\n{self.of('', 'continue')}\n{block()}\ndone",
            lambda: (
                f"for (({own}=0; {own}<{self.of('2', '3')}; {own}++)); do\n{block()}\n"
                f"{self.of('', 'break', 'continue')}\ndone; J=${own}"
            ),
            lambda: (
                f"set -- {self.words()}\nwhile {self.of('[ $# -gt 0 ]', '[[ -n ${1:-} ]]', '(( $# ))')}; do\n"
                f'case "$1" in\n--*) {name}=$1 ;;\n*) {name}+=$1 ;;\nesac\nshift; done'
            ),
            lambda: f"f() {{ for {name}; do\n{block()}\ndone; }}; f {self.words()}",
            lambda: f"set --\nwhile getopts 'n:t:' {name}; do\n{block()}\ndone",
            lambda: (
                f"f() {{ {self.of('local A=9', 'local B', ':', 'declare C=3', 'local -i A=4', 'local -i B')}\n"
                f"{block()}\n"
                f"{self.of('', 'return', self.test() + ' && return')}\nD=$1\n}}\nf {self.word()}"
            ),
        )


def told_by_bash(script: str) -> dict[str, list[str]] | None:
    """Return what bash holds at the end, ``None`` when it complained about the script, or did not come to its end."""
    report = "\n".join(
        f'declare -p {name} >/dev/null 2>&1 && printf \'%s\\0\' {name} "${{#{name}[@]}}" "${{{name}[@]}}"'
        for name in WATCHED
    )
    try:
        done = subprocess.run(
            [str(BASH), "--norc"], input=f"{script}\nunset IFS\n{report}\n", env={"PATH": "/nonexistent"}, cwd="/",
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    if done.stderr:
        return None
    fields = iter(done.stdout.split("\0")[:-1])
    return {name: [next(fields) for _ in range(int(next(fields)))] for name in fields}


def told_by_opsk(script: str, *, number_spans: Sequence[tuple[int, int]] = ()) -> dict[str, list[str]]:
    """Return the variables whose values are known at the end."""
    held: dict[str, list[str]] = {}
    result = run(script, given={}, environment={}, arguments=(), number_spans=number_spans)
    for name, variable in result.variables.items():
        words = (variable.text,) if isinstance(variable, Scalar) else variable.words
        if all(word.known is not None for word in words) and not (isinstance(variable, Array) and variable.why):
            held[name] = [word.known or "" for word in words]
    return held


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS, st.integers(2, 8))
def test_what_is_known_after_a_script_is_what_bash_holds(seed: int, count: int) -> None:
    writer = Writer(random.Random(seed))
    script = HEAD + "\n".join(writer.statement() for _ in range(count))
    held = told_by_bash(script)
    if held is None:
        return
    known = {name: words for name, words in told_by_opsk(script).items() if name in WATCHED}
    assert known == {name: held.get(name, []) for name in known}, script


@settings(max_examples=80, deadline=None, derandomize=True)
@given(SEEDS, st.integers(2, 8))
def test_what_is_known_with_any_number_in_some_places_is_what_bash_holds_with_each(seed: int, count: int) -> None:
    """Else what was said of one script of a sweep would not hold for the next; see `free_numbers`."""
    choice = random.Random(seed)
    writer = Writer(choice)
    script = HEAD + "\n".join(writer.statement() for _ in range(count))
    cut = Numbered.parse(script)
    assert cut is not None
    free = [index for index in range(len(cut.numbers)) if cut.may_be_any(index) and choice.random() < 0.3]
    pieces = list(cut.pieces)
    for index in free:
        pieces[2 * index + 1] = writer.of("0", "1", "2", "3", "7", "12", "100", "1e3")
    held = told_by_bash("".join(pieces))
    if held is None:
        return
    told = told_by_opsk(script, number_spans=cut.spans(free))
    known = {name: words for name, words in told.items() if name in WATCHED}
    assert known == {name: held.get(name, []) for name in known}, (free, script)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS)
def test_arithmetic_has_the_value_and_the_effects_that_bash_gives_it(seed: int) -> None:
    expression = Writer(random.Random(seed)).arithmetic()
    held = told_by_bash(f"I=5 J=2; A=$(({expression}))")
    own = {"I": "5", "J": "2"}
    try:
        value = evaluate_arithmetic(
            expression, own.__getitem__, assign=lambda name, number: own.update({name: str(number)})
        )
    except ArithmeticUnknownError:
        return
    assert held is not None, expression
    assert {"A": [str(value)], "I": [own["I"]], "J": [own["J"]]} == held, expression


CALLS = "t() { printf '%s\\0' \"$@\" END; }\n"
FUNCTIONS = "h() { A=7; t $A; }\ng() { :; }\n"
COMMANDS = (
    't "$A" $B',
    't $C "$D"',
    't "${R[@]}" $I',
    't $J "$@"',
    "t $#",
    "h x; t $A",
    "g; t $B",
    "g() { A=1; t $A; }",
)


class CommandWriter(Writer):
    """Writes scripts that run ``t`` here and there, some by functions."""

    def statement(self, depth: int = 0) -> str:
        return self.of(*COMMANDS) if self.choice.random() < 0.25 else super().statement(depth)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS, st.integers(3, 9))
def test_what_is_known_of_commands_is_what_bash_passes(seed: int, count: int) -> None:
    writer = CommandWriter(random.Random(seed))
    script = FUNCTIONS + HEAD + "\n".join(writer.statement() for _ in range(count))
    try:
        done = subprocess.run(
            [str(BASH), "--norc"], input=CALLS + script, env={"PATH": "/nonexistent"}, cwd="/",
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return
    if done.stderr:
        return
    calls = [tuple(call.split("\0")[:-1]) for call in done.stdout.split("END\0")[:-1]]
    result = run(script, given={}, environment={}, arguments=())
    seen = [entry for entry in result.invocations if entry.words and entry.known_words[0] == "t"]
    assert sum(entry.certain for entry in seen) <= len(calls), script
    assert all(any(fits(entry, call) for entry in seen) for call in calls), script


def test_simple_scripts_are_not_only_right_but_known() -> None:
    writer = Writer(random.Random(7))
    scripts = [HEAD + "\n".join(writer.statement() for _ in range(4)) for _ in range(100)]
    held = [(told_by_bash(script), told_by_opsk(script)) for script in scripts]
    values = [(name, known) for truth, known in held if truth is not None for name in truth]
    assert sum(name in known for name, known in values) > 0.6 * len(values) > 0
