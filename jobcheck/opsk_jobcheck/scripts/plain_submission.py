"""Tells whether a script can be submitted as it is: without arguments, with the variables of the user's shell."""

from __future__ import annotations

import re

MAX_CHARS = 1 << 18
_QUOTED = re.compile(r"'[^'\n]*'")
"""Texts that the shell leaves as they are, such as programs of awk."""
_COMMENT = re.compile(r"(^|[ \t])#[^\n]*")
_PARSES = re.compile(r"\b(while|until)\b[^\n]*(\$#|\$\{?1\b|getopts)[\s\S]{0,20000}?\n[ \t]*done\b")
"""A loop over the arguments, which a script without any leaves at once."""
_TEST = re.compile(r"\[\[?[^\]\n]*\]\]?|\(\([^\n]*\)\)")
_FIRST = re.compile(r"\$(?:[1-9]|\{[1-9][0-9]?\}|\{[1-9][0-9]?[#%/:^,](?![-+=?]))")
"""An argument for which nothing else is taken where it is missing."""
_DEPENDS = re.compile(r"\$[#@*1-9]|\$\{[#@*1-9]|\[\[?\s+(!\s+)?-[zn]\s")


def is_complete(script: str) -> bool:
    """Return whether a script has a value of its own for all that it may be given, and looks at what that is.

    Examples
    --------
    >>> is_complete('MODEL=${1:-small}'), is_complete('MODEL=$1'), is_complete('MODEL=small')
    (True, False, False)
    """
    if len(script) > MAX_CHARS:
        return False
    text = _QUOTED.sub("", _COMMENT.sub("", script))
    if not _DEPENDS.search(text):
        return False
    return not _FIRST.search(_TEST.sub("", _PARSES.sub("", text)))
