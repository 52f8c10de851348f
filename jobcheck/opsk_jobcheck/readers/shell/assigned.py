"""Which names does expanding a word assign?"""

from __future__ import annotations

import re

from opsk_jobcheck.readers.shell.arithmetic import assigned_names
from opsk_jobcheck.readers.shell.syntax import Arith, Param, Word

_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?=")


def names_in(word: Word) -> set[str]:
    """Return the names that expanding a word may assign: ``$((x++))``, ``${x:=v}``."""
    names: set[str] = set()
    for segment in word.segments:
        if isinstance(segment, Arith):
            names |= assigned_names(segment.text)
        elif isinstance(segment, Param):
            if segment.op in ("=", ":="):
                names.add(segment.name)
            names |= set(_DEFAULTED.findall(segment.arg)) | assigned_names(segment.index)
    return names
