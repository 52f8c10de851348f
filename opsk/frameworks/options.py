"""Defines the options, environment variables and files that run a plan, and quotes them for shells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One suggested setting: ``name`` and ``value``, ``why``, and the ``source`` that documents it."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a command: ``name``, ``value`` (``None`` for one that takes none), and ``why`` it is there."""

    name: str
    value: str | None = None
    why: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words on a command line."""
        return (self.name,) if self.value is None else (self.name, self.value)

    @property
    def quoted(self) -> str:
        """The option quoted for a shell."""
        return " ".join(quote(word) for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Options that belong together, under a ``name`` that a shell takes as a variable (``MODEL_ARGS``)."""

    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that the framework reads: its ``name``, its ``text``, and the ``content`` that the text states.

    ``option`` is the option that names it; empty where the framework finds it by itself.
    """

    name: str
    text: str
    content: Mapping[str, object]
    option: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a plan for one framework.

    Parameters
    ----------
    framework, release
        Name of the framework, and the release whose options these are.
    groups
        Options of its command, most of all the model's and the plan's.
    files
        Configurations that it reads.
    env
        Variables that it needs for the plan.
    notes
        Caveats.
    missing
        Features of model or plan without an option: without them the training differs.
    """

    framework: str
    release: str
    groups: tuple[Group, ...] = ()
    files: tuple[File, ...] = ()
    env: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[Option, ...]:
        """All options, in their order."""
        return tuple(option for group in self.groups for option in group.options)

    @property
    def pasted(self) -> str:
        """Text to paste: variables, options as one command, one per line, then the files."""
        named = tuple(flag(file.option, file.name) for file in self.files if file.option)
        parts = [
            "\n".join(f"export {setting.name}={quote(setting.value)}" for setting in self.env),
            " \\\n".join(f"    {option.quoted}" for option in (*self.options, *named)),
            *(f"# {file.name}\n{file.text.rstrip()}" for file in self.files),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def flag(name: str, value: object = None, why: str = "") -> Option:
    """Return an option of a command from any plain value."""
    return Option(name=name, value=None if value is None else str(value), why=why)


def quote(word: str) -> str:
    """Return a word quoted for a shell, control characters and line ends included.

    Inside of ``$'...'`` characters other than printable ASCII are written as bytes, so that no name of a model can
    break the lines of a script.
    """
    if _BARE.fullmatch(word):
        return word
    if all(" " <= sign <= "~" for sign in word):
        return shlex.quote(word)
    octets = word.encode("utf-8", "surrogateescape")
    return "$'" + "".join(_octet(octet) for octet in octets if octet) + "'"


def _octet(octet: int) -> str:
    """Return one byte inside of ``$'...'``."""
    sign = chr(octet)
    return f"\\{sign}" if sign in "\\'" else sign if " " <= sign <= "~" else f"\\x{octet:02x}"


def one_line(text: str, *, longest: int = 200) -> str:
    """Return untrusted text as one line for a comment: printable ASCII only."""
    plain = "".join(sign if " " <= sign <= "~" else "?" for sign in text)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def group(name: str, options: Iterable[Option]) -> Group:
    """Return options under a name."""
    return Group(name=name, options=tuple(options))
