"""Expands the words of a command: replaces ``$`` forms, applies their operators, and splits words."""

from __future__ import annotations

import re

from opsk_jobcheck.scripts.bash.arithmetic import ArithmeticUnknownError, evaluate_arithmetic, find_assigned_names
from opsk_jobcheck.scripts.bash.lexer import MARK_OPEN, Lexer, Source, build_line_source, restore_unknown_parts
from opsk_jobcheck.scripts.bash.outputs import count_gpus, find_printed
from opsk_jobcheck.scripts.bash.patterns import quote_pattern, remove_match, replace_match
from opsk_jobcheck.scripts.bash.scope import REPLACED, Scope, get_directory, make_absolute
from opsk_jobcheck.scripts.bash.splitting import (
    DEFAULT_IFS,
    expand_braces,
    extend_word,
    get_literal_text,
    is_braced,
    may_vanish,
    split_at_ifs,
)
from opsk_jobcheck.scripts.bash.syntax import Arith, Lit, Output, Param, Segment, Word
from opsk_jobcheck.scripts.bash.values import (
    CACHED_MODEL,
    MAX_ARRAY_WORDS,
    MAX_VALUE_CHARS,
    PRINTED,
    Array,
    Scalar,
    Text,
    Variable,
    WordPart,
    is_countable,
    join,
    literal,
    may_be_files,
    unknown,
)

MAX_DEPTH = 16
COMPUTED_COMMANDS = frozenset({"pwd", "dirname", "basename"})
"""Commands whose output in ``$(...)`` is computed."""
_SINGLE = frozenset("@*")
_QUOTE = re.compile(r"""["'\\]""")
_MEMBERS = re.compile(r"\$\{[A-Za-z_]\w*\[@\]|\$@|\$\{@")
_PER_MEMBER_OPERATORS = frozenset({"//", "/", "#", "##", "%", "%%", "/#", "/%", "^", "^^", ",", ",,"})
ARGUMENTS_UNKNOWN = "the script's arguments are not known here"
"""Why ``$@`` is unknown where nobody says what a script is given."""
CHARS_PER_TRY = 256
"""Cutting tries a pattern at each end of a text; so many characters are worth looking at all of it once more."""
_PATTERN_END = re.compile(r"""(?:\\.|'[^']*+'|"(?:[^"\\]|\\.)*+"|\$\{[^{}]*+\}|[^/])*+""", re.DOTALL)
_BY_PATTERN = frozenset({"#", "##", "%", "%%", "/", "//", "/#", "/%"})


_PATH_COMMAND = re.compile(
    r"""(?P<command>dirname|basename)[ \t]+(?P<path>"[^"`\\()]+"|[\w./${}:%+-]+)(?:[ \t]+(?P<suffix>\.[\w.]+))?"""
)
_ONE_WORD = re.compile(r"[\w./:%+,@=-]+")


class Expander:
    """Expands words in a scope; ``depth`` bounds ``${a:-${b:-...}}``."""

    def __init__(self, scope: Scope, source: Source, depth: int = 0) -> None:
        self.scope = scope
        self.source = source
        self.depth = depth

    def text(self, word: Word | None) -> Text:
        """Expand a word without splitting it, as bash does in an assignment."""
        if word is None:
            return Text()
        return join([self._expand_whole(segment) for segment in word.segments])

    def words(self, words: list[Word]) -> list[Text]:
        """Expand and split the words of a command."""
        self.source.spend(8 * len(words))
        out: list[Text] = []
        for word in words:
            if word.plain:  # most words: nothing to be split
                out.append(literal(word.plain, word.line))
            elif text := get_literal_text(word):
                out.append(literal(text, word.segments[0].line))
            elif is_braced(word):
                made = expand_braces(word)
                out += (
                    self.words(made)
                    if made is not None
                    else [_make_unknown_words("its braces are not followed", word.line)]
                )
            else:
                out += self._expand_split(word)
            if len(out) > MAX_ARRAY_WORDS:
                return [*out[:MAX_ARRAY_WORDS], unknown("the command has too many words to be followed", word.line)]
        return out

    def _expand_whole(self, segment: Segment) -> Text:
        """Expand one segment to one text."""
        if isinstance(segment, Lit):
            if MARK_OPEN in segment.text:
                return Text(tuple(restore_unknown_parts(self.source, segment.text, segment.line)))
            return literal(segment.text, segment.line)
        if isinstance(segment, Param) and (members := self._find_members(segment)) is not None:
            blank = literal(" ", segment.line)
            if _is_star(segment):
                ifs = self.scope.ifs()
                blank = unknown("IFS is not known", segment.line) if ifs is None else literal(ifs[:1], segment.line)
            elif (segment.op or not segment.quoted) and self.scope.ifs() != DEFAULT_IFS:
                blank = unknown("members are joined by an IFS that is not the usual one", segment.line)
            return join(
                [piece for index, member in enumerate(members) for piece in ((blank, member) if index else (member,))]
            )
        return self._expand_single(segment)

    def _expand_split(self, word: Word) -> list[Text]:
        """Expand one word to the words it becomes."""
        done: list[list[WordPart]] = []
        current: list[WordPart] | None = None
        vanishes, stays = False, False
        waiting = word.segments[::-1]
        while waiting:
            segment = waiting.pop()
            if isinstance(segment, Lit):
                stays = stays or not segment.text
                current = extend_word(current, self._expand_whole(segment).parts)
                continue
            if isinstance(segment, Param) and self._takes_argument(segment):
                waiting += self.parse_argument(segment.arg, segment, quoted=False).segments[::-1]
                continue
            members = self._find_members(segment) if isinstance(segment, Param) else None
            if members is not None and segment.quoted and not _is_star(segment):
                vanishes = vanishes or not members
                is_joined = current is not None or bool(waiting)
                for index, member in enumerate(members):
                    if index and current is not None and not (is_joined and may_vanish(members, index)):
                        done.append(current)
                        current = None
                    current = extend_word(current, member.parts)
                continue
            if segment.quoted:
                stays = True
                current = extend_word(current, self._expand_whole(segment).parts)
                continue
            pieces = members if members is not None else [self._expand_single(segment)]
            if self.scope.ifs() != DEFAULT_IFS and members is not None and Text() in members:
                pieces = [
                    _make_unknown_words(
                        "members that are empty, split at an IFS that is not the usual one", segment.line
                    )
                ]
            is_joined = current is not None or bool(waiting)
            for index, piece in enumerate(pieces):
                if index and current is not None and not (is_joined and may_vanish(pieces, index)):
                    done.append(current)
                    current = None
                current = split_at_ifs(self.scope.ifs(), piece, done, current)
        if current is not None and (current or done or stays or not vanishes):
            done.append(current)
        texts = [join([Text(tuple(parts))]) for parts in done]
        self.source.spend(16 * len(texts) + sum(len(part.text) for text in texts for part in text.parts))
        return texts

    def _find_members(self, segment: Param) -> list[Text] | None:
        """Return the members that ``$@``, ``$*`` or ``${a[@]}`` stand for, ``None`` for any other form."""
        if segment.op == "indirect" and segment.arg in _SINGLE:
            return [_make_unknown_words("lists of variable names are not followed", segment.line)]
        if segment.name in _SINGLE and segment.op not in ("length", "indirect"):
            return self._expand_arguments(segment)
        if segment.index not in ("@", "*") or segment.op == "length":
            return None
        variable = self.scope.find(segment.name)
        if segment.op == "indirect":
            return self._list_indices(segment, variable)
        if isinstance(variable, Array) and not variable.why:
            members = list(variable.words)
        elif isinstance(variable, Array):
            return [_make_unknown_words(variable.why, segment.line)]
        elif isinstance(variable, Scalar):
            if variable.text.known is None and not variable.text.is_filled:
                return [_make_unknown_words(variable.text.why, segment.line)]
            members = [variable.text]
        elif self.scope.is_certainly_unset(segment.name):
            members = []
        else:
            return [_make_unknown_words(self.scope.text(segment.name, segment.line).why, segment.line)]
        if not segment.op or (members and segment.op in (":-", "-")):
            return members
        if segment.op in _PER_MEMBER_OPERATORS:
            return [
                apply_text_operator(self, segment, member) if is_countable([member]) else member for member in members
            ]
        if segment.op == ":":
            return self._take_slice(segment, members)
        if segment.op in (":+", "+", ":-", "-") and len(members) < 2:
            return [apply_operator(self, segment, members[0] if members else None)]
        return [_make_unknown_words(f"${{{segment.name}[{segment.index}]{segment.op}…}} is not followed", segment.line)]

    def _expand_arguments(self, segment: Param) -> list[Text]:
        """Return what ``$@`` stands for, or a slice of it."""
        held = self.scope.arguments
        if held is None or (segment.op and not is_countable(held)):
            return [_make_unknown_words(ARGUMENTS_UNKNOWN, segment.line)]
        if not segment.op:
            return list(held)
        first = self.number(segment.arg.partition(":")[0], segment.line) if segment.op == ":" else None
        if not first:  # the first of all is the script's own name
            return [_make_unknown_words(f"${{{segment.name}{segment.op}…}} is not followed", segment.line)]
        return self._take_slice(_shift_offset(segment, first - 1 if first > 0 else first), list(held))

    def _list_indices(self, segment: Param, variable: Variable | None) -> list[Text]:
        """Return the members of ``${!a[@]}``."""
        is_known = isinstance(variable, Array) and not variable.why and is_countable(variable.words)
        if isinstance(variable, Array) and is_known and self.scope.ifs() == DEFAULT_IFS:
            return [literal(str(index), segment.line) for index in range(len(variable.words))]
        return [_make_unknown_words(f"the indices of {segment.name} are not known", segment.line)]

    def _take_slice(self, segment: Param, members: list[Text]) -> list[Text]:
        """Return the members of ``${a[@]:offset:length}``."""
        first, colon, second = segment.arg.partition(":")
        offset = self.number(first, segment.line)
        length = self.number(second or "0", segment.line) if colon else len(members)
        if offset is None or length is None or length < 0 or not is_countable(members):
            return [_make_unknown_words(f"the slice of {segment.name} is not known", segment.line)]
        start = len(members) + offset if offset < 0 else offset
        return members[start : start + length] if start >= 0 else []

    def _expand_single(self, segment: Segment) -> Text:
        """Expand a segment that stands for one text."""
        if isinstance(segment, Arith):
            return self._expand_arithmetic(segment)
        if isinstance(segment, Output):
            computed = self._compute_output(segment)
            return computed or unknown(f"{PRINTED}{_shorten(segment.text)}` prints when the job runs", segment.line)
        if isinstance(segment, Lit):
            return self._expand_whole(segment)
        if segment.op == "length":
            return self._expand_length(segment)
        if segment.op == "indirect":
            return self._expand_indirect(segment)
        value = self._get_value(segment)
        if segment.op:
            return apply_operator(self, segment, value)
        return value if value is not None else self.unset_text(segment)

    def _compute_output(self, segment: Output) -> Text | None:
        """Return what ``pwd``, ``dirname``, ``basename`` and those of `outputs` print; ``None`` for all else."""
        command = segment.text.strip()
        if (number := count_gpus(command, self.scope)) is not None:
            return number
        if (printed := find_printed(command, self.scope)) is not None and self.depth < MAX_DEPTH:
            source = build_line_source(printed, segment.line, self.source.unknown)
            source.work = self.source.work
            return Expander(self.scope, source, self.depth + 1).text(Lexer(source).read_text(quoted=True))
        name = command.split(maxsplit=1)[0] if command else ""
        if name not in COMPUTED_COMMANDS or self.scope.find(f"{name}{REPLACED}") is not None:
            return None
        if command in ("pwd", "pwd -P", "pwd -L"):
            return make_absolute(get_directory(self.scope))
        return self._compute_path_part(segment)

    def _compute_path_part(self, segment: Output) -> Text | None:
        """Return what ``dirname`` and ``basename`` print of one path that is known; ``None`` for all else."""
        match = _PATH_COMMAND.fullmatch(segment.text.strip())
        if match is None or self.depth >= MAX_DEPTH or (match["command"] == "dirname" and match["suffix"]):
            return None
        written = match["path"]
        is_quoted = written.startswith('"')
        source = build_line_source(written.strip('"'), segment.line, self.source.unknown)
        source.work = self.source.work
        self.source.spend(len(written))
        path = Expander(self.scope, source, self.depth + 1).text(Lexer(source).read_text(quoted=True)).known
        if not path or path.startswith("-") or (not is_quoted and not self._is_one_word(path)):
            return None
        return literal(_find_path_part(match["command"], path, match["suffix"] or ""), segment.line)

    def _is_one_word(self, text: str) -> bool:
        """Return whether the shell neither splits a text nor takes it for a pattern."""
        return _ONE_WORD.fullmatch(text) is not None and self.scope.ifs() == DEFAULT_IFS

    def _get_value(self, segment: Param) -> Text | None:
        """Return a parameter's text, ``None`` when it is unset or nothing is known of it."""
        name, line = segment.name, segment.line
        if name.isdigit():
            number = int(name[:6])
            if self.scope.arguments is None or number == 0:
                return None if segment.op and number else self.scope.positional(number, line)
            if not is_countable(self.scope.arguments[:number]):
                return self.scope.positional(number, line)
            return self.scope.arguments[number - 1] if number <= len(self.scope.arguments) else None
        if name == "#":
            known = self.scope.arguments
            return (
                unknown("the number of arguments is not known", line, filled=True)
                if known is None or not is_countable(known) or may_be_files(known)
                else literal(str(len(known)), line)
            )
        if name in ("?", "$", "!", "-", "@", "*"):
            return unknown(f"${name} is known only when the job runs", line, filled=True)
        variable = self.scope.find(name)
        if isinstance(variable, Array):
            return self._get_member(segment, variable)
        if isinstance(variable, Scalar) and segment.index not in ("", "@", "*"):
            held = variable.text
            return self._get_member(segment, Array((held,), held.why if held.known is None else ""))
        return variable.text if isinstance(variable, Scalar) else None

    def is_unset(self, segment: Param) -> bool:
        """Return whether a parameter that `_get_value` does not know is certainly unset."""
        return self.scope.find(segment.name) is not None or self.scope.is_certainly_unset(segment.name)

    def _get_member(self, segment: Param, array: Array) -> Text | None:
        """Return ``${a[i]}``."""
        if array.why:
            return unknown(array.why, segment.line)
        index = self.number(segment.index or "0", segment.line)
        if index is None:
            return unknown(f"index {segment.index[:40]} of {segment.name} is not known", segment.line)
        if not is_countable(array.words if index < 0 else array.words[: index + 1]):
            return unknown(f"the number of members of {segment.name} is not known", segment.line)
        return array.words[index] if -len(array.words) <= index < len(array.words) else None

    def _takes_argument(self, segment: Param) -> bool:
        """Return whether an unquoted parameter certainly becomes its argument, in which quotes keep words together."""
        op = segment.op.removeprefix(":")
        if segment.quoted or op not in ("-", "+") or segment.name in "@*!" or not _QUOTE.search(segment.arg):
            return False
        if segment.index in ("@", "*"):
            variable = self.scope.find(segment.name)
            has_members = isinstance(variable, Array) and not variable.why and is_countable(variable.words)
            return has_members and segment.op == "+" and isinstance(variable, Array) and bool(variable.words)
        value = self._get_value(segment)
        is_there = is_set(value, counts_empty=segment.op[0] == ":")
        return is_there is (op == "+") and (op == "-" or value is not None)

    def unset_text(self, segment: Param) -> Text:
        """Return what is known of a parameter that is required but not set here."""
        if segment.name.isdigit():
            return self.scope.positional(int(segment.name[:6]), segment.line)
        return Text() if self.is_unset(segment) else self.scope.text(segment.name, segment.line)

    def argument(self, text: str, segment: Param) -> Text:
        """Expand the argument of an operator."""
        if self.depth >= MAX_DEPTH:
            return unknown("expansions are nested too deeply", segment.line)
        if (segment.quoted or segment.op in ("=", ":=")) and _MEMBERS.search(text):
            return _make_unknown_words("members of an array inside another expansion are not followed", segment.line)
        word = self.parse_argument(text, segment, quoted=segment.quoted)
        return Expander(self.scope, self.source, self.depth + 1).text(word)

    def parse_argument(self, text: str, segment: Param, *, quoted: bool) -> Word:
        """Cut the argument of an operator into segments."""
        self.source.spend(len(text))
        source = build_line_source(text, segment.line, self.source.unknown)
        source.work = self.source.work
        return Lexer(source).read_text(quoted=quoted)

    def pattern(self, word: Word) -> Text:
        """Expand a word to a pattern, in which quoted parts are literal."""
        pieces: list[Text] = []
        for segment in word.segments:
            text = self._expand_whole(segment)
            if segment.quoted:
                quoted = (part if part.why else part._replace(text=quote_pattern(part.text)) for part in text.parts)
                text = Text(tuple(quoted))
            pieces.append(text)
        return join(pieces)

    def _expand_length(self, segment: Param) -> Text:
        """Return ``${#name}`` or ``${#name[@]}``."""
        variable = self.scope.find(segment.name)
        if segment.index in ("@", "*") and isinstance(variable, Array):
            if variable.why or not is_countable(variable.words):
                why = variable.why or f"the number of members of {segment.name} is not known"
                return unknown(why, segment.line, filled=True)
            if may_be_files(variable.words):
                return unknown(f"members of {segment.name} may stand for files", segment.line, filled=True)
            return literal(str(len(variable.words)), segment.line)
        text = self._get_value(segment) or self.unset_text(segment)
        if text.known is None:
            return unknown(text.why, segment.line, filled=True)
        return literal(str(len(text.known)), segment.line)

    def _expand_indirect(self, segment: Param) -> Text:
        """Return ``${!name}``."""
        if segment.arg or segment.index:
            return unknown(f"${{!{segment.name}…}} is not followed", segment.line)
        name = self.scope.text(segment.name, segment.line)
        if name.known is None or not name.known.isidentifier():
            return unknown(name.why or f"{segment.name} names no variable", segment.line)
        return self.scope.text(name.known, segment.line)

    def _expand_arithmetic(self, segment: Arith) -> Text:
        """Return ``$((expression))``."""
        return self.calculate(segment.text, segment.line)

    def calculate(self, expression: str, line: int) -> Text:
        """Return the value of an arithmetic expression as text."""
        if "$" in expression or "`" in expression:
            expanded = self.argument(expression, Param("", line, quoted=True))
            if expanded.known is None:
                return self.mark_uncalculated(expression, expanded.why, line)
            expression = expanded.known
        try:
            value = evaluate_arithmetic(
                expression,
                lambda name: self._read_operand(name, line),
                assign=lambda name, number: self._assign(name, literal(str(number), line)),
            )
        except ArithmeticUnknownError as error:
            return self.mark_uncalculated(expression, str(error), line)
        return literal(str(value), line)

    def mark_uncalculated(self, expression: str, why: str, line: int) -> Text:
        """Return an unknown value, and mark the names that the expression assigns as unknown."""
        for name in find_assigned_names(expression):
            self._assign(name, unknown(why, line, filled=True))
        return unknown(why, line, filled=True)

    def _assign(self, name: str, text: Text) -> None:
        """Give a variable a text, keeping an array's other members."""
        before = self.scope.find(name)
        if isinstance(before, Array):
            self.scope.set(name, Array((text, *before.words[1:]), before.why))
        else:
            self.scope.set(name, Scalar(text))

    def _read_operand(self, name: str, line: int) -> str:
        """Return the text of a variable inside arithmetic."""
        text = self.scope.text(name, line)
        if text.known is None:
            raise ArithmeticUnknownError(text.why)
        return text.known

    def number(self, expression: str, line: int) -> int | None:
        """Return the value of an arithmetic expression, ``None`` when it is not certain."""
        known = self.calculate(expression, line).known
        return None if known is None else int(known)


def _find_path_part(command: str, path: str, suffix: str) -> str:
    """Return what ``dirname PATH`` or ``basename PATH SUFFIX`` prints, as POSIX defines it."""
    head, slash, last = (path.rstrip("/") or "/").rpartition("/")
    if command == "dirname":
        return head.rstrip("/") or slash or "."
    name = last or "/"
    return name.removesuffix(suffix) if name != suffix else name


def _shift_offset(segment: Param, offset: int) -> Param:
    """Return a slice that begins elsewhere."""
    _, colon, length = segment.arg.partition(":")
    return Param(segment.name, segment.line, segment.quoted, segment.op, f"{offset}{colon}{length}", segment.index)


def _make_unknown_words(why: str, line: int) -> Text:
    """Return a text that may be any number of unknown words."""
    return Text((WordPart("", line, why or "not known", many=True),))


def _shorten(command: str) -> str:
    """Return a command short enough for a reason, a model's folder of HuggingFace's cache whole where it names one."""
    joined = " ".join(command.split())
    if (cached := CACHED_MODEL.search(joined[:MAX_VALUE_CHARS])) is not None:
        return f"… {cached[0]} …"
    return joined if len(joined) <= 40 else joined[:39] + "…"


def _is_star(segment: Segment) -> bool:
    """Return whether a segment is ``$*`` or ``${a[*]}``, which a quoted word joins."""
    return isinstance(segment, Param) and (segment.name == "*" or segment.index == "*")


def apply_operator(expander: Expander, segment: Param, value: Text | None) -> Text:
    """Apply the operator of ``${name op arg}``."""
    op = segment.op
    plain = op.lstrip(":")
    if plain in ("-", "=", "+", "?"):
        return _apply_default(expander, segment, value, plain, counts_empty=op.startswith(":"))
    if value is None:
        if not expander.is_unset(segment):
            return expander.unset_text(segment)
        value = Text()
    return apply_text_operator(expander, segment, value)


def _apply_default(expander: Expander, segment: Param, value: Text | None, op: str, *, counts_empty: bool) -> Text:
    """Apply ``:-``, ``:=``, ``:+`` and ``:?``; a name that the script never set counts as unset."""
    is_there = is_set(value, counts_empty=counts_empty)
    if is_there is None and value is not None:
        if "((" in segment.arg:
            expander.mark_uncalculated(segment.arg, value.why, segment.line)
        return unknown(value.why, segment.line)
    if op == "+":
        if value is None and not expander.is_unset(segment):
            return expander.unset_text(segment)
        return expander.argument(segment.arg, segment) if is_there else Text()
    if is_there and value is not None:
        return value
    if op == "?":
        return value if value is not None else expander.unset_text(segment)
    default = expander.argument(segment.arg, segment)
    if op == "=" and not segment.index and not segment.name.isdigit():
        expander.scope.set(segment.name, Scalar(default))
    return default


def apply_text_operator(expander: Expander, segment: Param, value: Text) -> Text:
    """Apply the operators that cut and replace."""
    known = value.known
    if known is None:
        return unknown(value.why, segment.line, filled=False)
    line = value.line or segment.line
    if segment.op == ":":
        return _take_substring(expander, segment, known, line)
    if segment.op in ("^", "^^", ",", ",,") and not segment.arg:
        return literal(_change_case(segment.op, known), line)
    if segment.op not in _BY_PATTERN:
        return unknown(f"${{{segment.name}{segment.op}{segment.arg[:20]}}} is not followed", segment.line)
    new, why = _apply_pattern(expander, segment, known)
    if why:
        return unknown(why, segment.line)
    return unknown(f"${{{segment.name}{segment.op}…}} is not followed", line) if new is None else literal(new, line)


def _apply_pattern(expander: Expander, segment: Param, known: str) -> tuple[str | None, str]:
    """Return a text after ``#``, ``%`` or ``/``, ``None`` when not followed; and why its pattern is unknown."""
    tries = 1 if segment.op[0] == "/" else 1 + len(known) // CHARS_PER_TRY
    expander.source.spend(len(known) * tries)
    if segment.op[0] != "/":
        pattern = expander.pattern(expander.parse_argument(segment.arg, segment, quoted=False))
        return (None, pattern.why) if pattern.known is None else (remove_match(segment.op, known, pattern.known), "")
    cut = _PATTERN_END.match(segment.arg)
    split = cut.end() if cut else 0
    new_text = segment.arg[split + 1 :]
    if segment.op in ("/#", "/%") or segment.arg.startswith("/") or "'" in new_text or '"' in new_text:
        return None, ""
    pattern = expander.pattern(expander.parse_argument(segment.arg[:split], segment, quoted=False))
    new = expander.argument(new_text, segment)
    if pattern.known is None or new.known is None or "&" in new.known:
        return None, pattern.why or new.why
    return replace_match(known, pattern.known, new.known, everywhere=segment.op == "//"), ""


def _take_substring(expander: Expander, segment: Param, known: str, line: int) -> Text:
    """Return ``${name:offset:length}``."""
    first, colon, second = segment.arg.partition(":")
    offset = expander.number(first, line)
    length = expander.number(second or "0", line) if colon else len(known)
    if offset is None or length is None:
        return unknown(f"the substring of {segment.name} is not known", line)
    start = len(known) + offset if offset < 0 else offset
    if start < 0:
        return Text()
    if length < 0 and len(known) + length < start:
        return unknown(f"the substring of {segment.name} has a negative length", line)
    return literal(known[start : start + length] if length >= 0 else known[start:length], line)


def is_set(value: Text | None, *, counts_empty: bool) -> bool | None:
    """Return whether a parameter is set (and not empty); what is unknown may also be unset."""
    if value is None:
        return False
    if value.known is None:
        return value.is_filled
    return bool(value.known) or not counts_empty


def _change_case(op: str, text: str) -> str:
    """Apply ``^``, ``^^``, ``,`` and ``,,``."""
    change = str.upper if op[0] == "^" else str.lower
    return change(text) if len(op) == 2 else change(text[:1]) + text[1:]
