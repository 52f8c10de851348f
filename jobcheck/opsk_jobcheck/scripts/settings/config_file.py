"""Reads YAML, JSON and TOML configuration files that a script names or writes, with the line of each value.

The content of a file is untrusted: nothing in it is run, YAML tags construct nothing, aliases and merges are followed
one at a time on look-up, never unfolded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from opsk.errors import InputError
from opsk_jobcheck.scripts.bash.values import Text

MAX_JSON_CHARACTERS = 4 << 20
MAX_JSON_DEPTH = 64

_LENIENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])|(?://|#)[^\n]*|/\*(?s:.*?)\*/')
_BUT_LINE_ENDS = re.compile(r"[^\n]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,\n]')
MERGE = "<<"
MAX_DEPTH = 48
MAX_BITS = 63
MAX_EXPANDED_CHARS = 1 << 19
MAX_NODES = 40_000
"""Values and keys of one file; those of real ones number in the hundreds, or thousands where they list their data."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TABLE = re.compile(r"^\s*\[\[?\s*([^\]#]+?)\s*\]\]?")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_BETWEEN_KEYS = re.compile(r"[=,{}\[\]#\n]")
_PIECE = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_QUOTED = r'"""(?:[^\\]|\\.)*?"""|' + r"'''.*?'''" + r'|"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'"
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null", "str"))
MAX_CONFIG_CHARS = 1 << 18
MAX_REFERENCES = 8
"""How many ``${other.key}`` are followed for one value, one after the other."""
MAX_MEMBERS = 4096
"""Longest list that is read."""
MAX_MERGED = 64
"""How many mappings ``<<`` merges into one, directly and through others, that are looked into."""
_ONE_SCALAR, _NO_MORE = -1, -2
"""What members of a list may still refer to: one scalar, and nothing after that."""
_MARK = re.compile("opsk([0-9]{1,6})unknown")
_REFERENCE = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*\}")
_SUFFIXES = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


@dataclass(frozen=True, slots=True)
class LinedObject:
    """A JSON object with the lines (from 1) of its keys, by path from the top: ``("text_config", "vocab_size")``."""

    values: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def read_object(text: str, *, is_lenient: bool = False) -> LinedObject:
    """Return the object that a JSON text holds; of a key given twice, the last counts.

    Parameters
    ----------
    is_lenient
        Accept commas before a closing bracket and comments, as the HJSON does that DeepSpeed reads.

    Raises
    ------
    InputError
        The text is too large, too deep, no JSON, or no object; the cause is a ``JSONDecodeError`` where one line is to
        blame.
    """
    if len(text) > MAX_JSON_CHARACTERS:
        raise InputError(f"larger than {MAX_JSON_CHARACTERS} characters, not the configuration of a model")
    text = text.removeprefix("\ufeff")
    hint = "it must be the config.json of a model"
    try:
        try:
            values = json.loads(text)
        except json.JSONDecodeError:
            if not is_lenient:
                raise
            # twice: a comma before a closing bracket is seen once the comment between them is blank
            text = _LENIENT.sub(_drop_lenient, _LENIENT.sub(_drop_lenient, text))
            values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"no JSON: {error.msg}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError("not readable as JSON: nested too deep, or a number is too long", hint=hint) from error
    if not isinstance(values, dict):
        raise InputError("holds no JSON object", hint=hint)
    return LinedObject(values, _find_lines(text))


def _drop_lenient(match: re.Match[str]) -> str:
    """Return a string as it is, and blanks in the place of anything else, so that lines stay where they are."""
    return match[0] if match[0].startswith('"') else _BUT_LINE_ENDS.sub(" ", match[0])


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every key outside lists, in a text that is valid JSON."""
    lines: dict[tuple[str, ...], int] = {}
    path: list[str | None] = []
    line, last, last_line = 1, "", 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token[0] == '"':
            last, last_line = token, line
        elif token == ":":
            path[-1] = json.loads(last)
            if None not in path and len(path) <= MAX_JSON_DEPTH:
                lines[tuple(part for part in path if part is not None)] = last_line
        elif token in "{[":
            path.append(None)
        elif token in "}]":
            path.pop()
        elif path:
            path[-1] = None
    return lines


@dataclass(slots=True)
class Node:
    """A value of a file with the line that it stands on: a scalar, a list of nodes, or nodes by key."""

    value: Any
    line: int


def parse_tree(text: str, form: str, *, mark: re.Pattern[str]) -> Node:
    """Return the tree of a text in one of the formats ``yaml``, ``json``, ``toml``.

    Words that ``mark`` matches stand for unknown pieces; where a format wants quotes around words they get them.

    Raises
    ------
    InputError
        The text is not of that format, or nested too deep.
    """
    if form == "json":
        return _parse_json(_quote_marks(text, mark))
    if form == "toml":
        return _parse_toml(_quote_marks(text, mark))
    return _parse_yaml(text)


def _quote_marks(text: str, mark: re.Pattern[str]) -> str:
    """Quote marks that stand outside quotes."""
    if not mark.search(text):
        return text
    pattern = re.compile(f"{_QUOTED}|({mark.pattern})", re.DOTALL)
    return pattern.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], text)


def _parse_yaml(text: str) -> Node:
    text = text.encode("utf-8", "replace").decode().expandtabs()  # halves of characters have no place in YAML
    if len(text) > MAX_EXPANDED_CHARS:
        raise InputError("longer than opsk reads once its tabs are expanded")
    _check_bounds(text)
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        return Node({}, 0) if root is None else _convert_yaml(root, loader, {}, 0)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(f"no YAML: line {line}: {str(error.problem)[:120]}") from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise InputError("not readable as YAML") from error
    finally:
        loader.dispose()


def _check_bounds(text: str) -> None:
    """Refuse a text that is nested too deep or too large, before libyaml's composer overruns its stack on it."""
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise InputError("nested too deep")
            if number > MAX_NODES:
                raise InputError("holds more values than opsk reads")
    except (yaml.YAMLError, ValueError):
        return  # reported by the composer, which finds the same


def _convert_yaml(node: Any, loader: Any, seen: dict[int, Node], depth: int) -> Node:
    """Convert a YAML node to a `Node`; the node of an anchor is made once and shared."""
    if id(node) in seen:
        return seen[id(node)]
    if depth > MAX_DEPTH:
        raise InputError("nested too deep")
    result = seen[id(node)] = Node(None, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        result.value = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                result.value[str(key.value)] = _convert_yaml(value, loader, seen, depth + 1)
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and not isinstance(value, yaml.MappingNode):
                result.value[str(key.value)] = Node(result.value[str(key.value)].value, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        result.value = [_convert_yaml(member, loader, seen, depth + 1) for member in node.value]
    elif node.tag in _PLAIN_TAGS:
        result.value = _bound_integer(loader.construct_object(node))
    else:
        result.value = str(node.value)
    return result


def _bound_integer(value: Any) -> Any:
    """Return a scalar; in the place of a whole number beyond 64 bits, which Python may refuse to print, a word."""
    return "a number of more than 64 bits" if isinstance(value, int) and value.bit_length() > MAX_BITS else value


def _parse_json(text: str) -> Node:
    document = read_object(text, is_lenient=True)

    def node(value: Any, path: tuple[str, ...]) -> Node:
        line = document.lines.get(path, 0)
        if isinstance(value, dict):
            return Node({key: node(member, (*path, key)) for key, member in value.items()}, line)
        if isinstance(value, list):
            return Node([node(member, ()) for member in value], line)
        return Node(_bound_integer(value), line)

    try:
        return node(document.values, ())
    except RecursionError as error:
        raise InputError("nested too deep") from error


def _parse_toml(text: str) -> Node:
    if any(piece.count(".") > MAX_DEPTH for piece in _BETWEEN_KEYS.split(text)):
        raise InputError("nested too deep")  # tomllib stores every prefix of a dotted key
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"no TOML: {str(error)[:120]}") from error
    lines = _find_toml_lines(text)

    def node(value: Any, path: tuple[str, ...]) -> Node:
        line = lines.get(path, 0)
        if isinstance(value, dict):
            return Node({key: node(member, (*path, key)) for key, member in value.items()}, line)
        if isinstance(value, list):
            return Node([node(member, path) for member in value], line)
        return Node(_bound_integer(value), line)

    try:
        return node(values, ())
    except RecursionError as error:
        raise InputError("nested too deep") from error


def _find_toml_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key; of a key in several tables of an array, the last."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _TABLE.match(line):
            table = _split_toml_path(match[1])
            lines[table] = number
        elif match := _KEY.match(line):
            lines[(*table, *_split_toml_path(match[1]))] = number
    return lines


def _split_toml_path(text: str) -> tuple[str, ...]:
    return tuple(piece.strip("\"'") for piece in _PIECE.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One value of a file: a scalar, or a tuple of scalars for a list of them.

    ``why`` is the reason where it is unknown, and then ``value`` is ``None``; a null is ``None`` with no ``why``.
    ``line`` and ``text`` are for evidence, ``file`` is the path as the script has it.
    """

    value: Any = None
    file: str = ""
    line: int = 0
    text: str = ""
    why: str = ""


@dataclass(slots=True, kw_only=True)
class ConfigFile:
    """The settings of one file, looked up by path (``("model", "n_layers")`` or ``"model.n_layers"``).

    ``why`` is the reason where the whole file is unknown: every look-up then returns it. ``overrides`` are values
    of the command line that override those of the file, by dotted name. ``written`` is the text of a file that
    the script itself writes: its values are cited at their place in the script. ``sources`` are the files that were
    put together, in their order, each with the lines before its own.
    """

    path: str
    root: Node = field(default_factory=lambda: Node({}, 0))
    lines: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    why: str = ""
    overrides: Mapping[str, Entry] = field(default_factory=dict)
    written: Text = field(default_factory=Text)
    sources: tuple[tuple[int, str], ...] = ()

    def entry(self, *path: str) -> Entry | None:
        """Return the entry at a path; ``None`` when the file was read and has no such key."""
        keys = tuple(key for part in path for key in part.split("."))
        return self._entry(keys, MAX_REFERENCES)

    def has(self, *path: str) -> bool:
        """Return whether the file certainly has such a key, with whatever below it."""
        keys = tuple(key for part in path for key in part.split("."))
        return ".".join(keys) in self.overrides or self._node(keys) is not None

    def names(self, *path: str) -> tuple[str, ...]:
        """Return the keys of the mapping at a path, none when there is no mapping."""
        node = self._node(tuple(key for part in path for key in part.split(".")))
        return tuple(_iterate_merged_keys(node)) if node is not None and isinstance(node.value, dict) else ()

    def under(self, *path: str) -> ConfigFile:
        """Return the part of the file below a path as a file of its own; an empty one when there is none."""
        keys = tuple(key for part in path for key in part.split("."))
        node = self._node(keys)
        start = ".".join(keys) + "."
        overrides = {
            name.removeprefix(start): entry for name, entry in self.overrides.items() if name.startswith(start)
        }
        return ConfigFile(
            path=self.path,
            root=node if node is not None else Node({}, 0),
            lines=self.lines,
            reasons=self.reasons,
            why=self.why,
            overrides=overrides,
            written=self.written,
            sources=self.sources,
        )

    def count(self, *path: str) -> int:
        """Return the number of members of a list; 0 for anything else. A member's name is its place in the list."""
        node = self._node(tuple(key for part in path for key in part.split(".")))
        return len(node.value) if node is not None and isinstance(node.value, list) else 0

    def _entry(self, keys: tuple[str, ...], references: int) -> Entry | None:
        name = ".".join(keys)
        if name in self.overrides:
            return self.overrides[name]
        if self.why:
            return Entry(file=self.path, why=self.why)
        node = self._node(keys)
        if node is None:
            return None
        shown = self.lines[node.line - 1].strip()[:200] if 0 < node.line <= len(self.lines) else ""
        file, line = self._find_source(node.line, keys[-1])
        if isinstance(node.value, dict):
            return Entry(file=file, line=line, text=shown, why=f"{name} is a group of settings")
        values = node.value if isinstance(node.value, list) else [node]
        if isinstance(node.value, list) and (references < 0 or len(values) > MAX_MEMBERS):
            # lists of references to lists of references grow without bound
            return Entry(file=file, line=line, text=shown, why=f"{name[:80]} holds more than opsk follows")
        scalars: list[Any] = []
        for member in values:
            value, why = self._resolve_scalar(member, _ONE_SCALAR if isinstance(node.value, list) else references)
            if why:
                return Entry(file=file, line=line, text=shown, why=why)
            scalars.append(value)
        value = tuple(scalars) if isinstance(node.value, list) else scalars[0]
        return Entry(value=value, file=file, line=line, text=shown)

    def _find_source(self, line: int, key: str) -> tuple[str, int]:
        """Return file and line to cite for a value: in the script, with no file, where the script writes this one."""
        for before, path in reversed(self.sources):
            if line > before:
                return path, line - before
        if not self.written.parts or not 0 < line <= len(self.lines):
            return self.path, line
        start = sum(len(row) + 1 for row in self.lines[: line - 1])
        source = "\n".join(self.lines)
        offset = source.find(key, start)
        start = offset + len(key) if offset >= 0 else start
        start += len(source[start:]) - len(source[start:].lstrip("\"' \t\r\n:=[{"))
        return "", _find_line(self.written, start)

    def _resolve_scalar(self, node: Node, references: int) -> tuple[Any, str]:
        """Return a scalar's value, or the reason where it is unknown."""
        value = node.value
        if isinstance(value, dict | list):
            return None, "it is a group of settings"
        if not isinstance(value, str):
            return value, ""
        if mark := _MARK.search(value):
            return None, self.reasons[int(mark[1])] if int(mark[1]) < len(self.reasons) else "it is not known"
        if reference := _REFERENCE.fullmatch(value.strip()):
            if references in (0, _NO_MORE):
                return None, f"{value[:80]} refers to others too often"
            left = _NO_MORE if references == _ONE_SCALAR else references - 1
            other = self._entry(tuple(reference[1].split(".")), left)
            if other is None:
                return None, f"{value[:80]} refers to what the file does not hold"
            return other.value, other.why
        return (None, f"{value[:80]} is put together when the job runs") if "${" in value else (value, "")

    def _node(self, keys: tuple[str, ...]) -> Node | None:
        node: Node | None = self.root
        for key in keys:
            node = _get_member(node, key) if node is not None else None
        return node


def read_config_file(text: str | Text, *, path: str, form: str = "") -> ConfigFile:
    """Return the settings in a file's text; one that cannot be read has a ``why``.

    Parameters
    ----------
    text
        The file's text, or the text that the script writes into it, unknown pieces included.
    path
        As the script has it; its suffix gives the format unless ``form`` (``yaml``, ``json``, ``toml``) does.
    """
    source, reasons = _mark_unknown(text)
    if len(source) > MAX_CONFIG_CHARS:
        return ConfigFile(path=path, why=f"{path[:120]} is longer than opsk reads")
    suffix = path[path.rfind(".") :].lower() if "." in path.rpartition("/")[2] else ""
    try:
        root = parse_tree(source, form or _SUFFIXES.get(suffix, "yaml"), mark=_MARK)
    except InputError as error:
        return ConfigFile(path=path, why=f"{path[:120]}: {error.message}")
    written = Text() if isinstance(text, str) else text
    return ConfigFile(path=path, root=root, lines=tuple(source.split("\n")), reasons=reasons, written=written)


def list_entries(config: ConfigFile, *, limit: int, depth: int = 8) -> Iterator[tuple[str, Entry]]:
    """Yield the values of a file by their dotted names, at most so many, and so deep."""
    waiting: list[tuple[str, ...]] = [(key,) for key in config.names()]
    for _ in range(limit):
        if not waiting:
            return
        path = waiting.pop()
        below = config.names(*path) if len(path) < depth else ()
        waiting += [(*path, key) for key in below]
        if not below and (entry := config.entry(*path)) is not None:
            yield ".".join(path), entry


def _find_line(text: Text, offset: int) -> int:
    """Return the line of the script that wrote a character of a text in which unknown pieces are marked."""
    reasons = 0
    for part in text.parts:
        offset -= len(f"opsk{reasons}unknown") if part.why else len(part.text)
        reasons += bool(part.why)
        if offset < 0:
            return part.line
    return text.line


def _mark_unknown(text: str | Text) -> tuple[str, tuple[str, ...]]:
    """Return a text with a word in the place of each unknown piece, and why each is unknown."""
    if isinstance(text, str):
        return _MARK.sub("opsk?unknown", text), ()
    pieces: list[str] = []
    reasons: list[str] = []
    for part in text.parts:
        if part.why:
            pieces.append(f"opsk{len(reasons)}unknown")
            reasons.append(part.why)
        else:
            pieces.append(_MARK.sub("opsk?unknown", part.text))
    return "".join(pieces), tuple(reasons)


def _get_member(node: Node, key: str) -> Node | None:
    """Return the value of a key in a mapping, its own entries before those that ``<<`` merges in."""
    if isinstance(node.value, list) and key.isdigit() and len(key) < 5 and int(key) < len(node.value):
        member = node.value[int(key)]
        return member if isinstance(member, Node) else None
    for mapping in _iterate_merged(node):
        if key in mapping:
            value = mapping[key]
            return value if isinstance(value, Node) else None
    return None


def _iterate_merged_keys(node: Node) -> Iterator[str]:
    """Yield the keys of a mapping and of those merged into it."""
    for mapping in _iterate_merged(node):
        yield from (key for key in mapping if key != MERGE)


def _iterate_merged(node: Node) -> Iterator[dict[str, Any]]:
    """Yield a mapping and those merged into it, each once: nested merges may grow without bound."""
    waiting, seen = [node], set[int]()
    while waiting and len(seen) < MAX_MERGED:
        this = waiting.pop()
        if not isinstance(this.value, dict) or id(this.value) in seen:
            continue
        seen.add(id(this.value))
        yield this.value
        if (merged := this.value.get(MERGE)) is not None:
            others = merged.value if isinstance(merged.value, list) else [merged]
            waiting += others[MAX_MERGED::-1]
