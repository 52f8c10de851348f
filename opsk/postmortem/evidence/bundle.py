"""Packs a report and its evidence into one archive for somebody outside, without secrets.

In every text of the archive, whatever looks like a token, a key, a password or a private address is replaced by a
placeholder that names its kind; so are whole fields of known names (``password=``, ``HF_TOKEN``). Host names, users and
paths are replaced on request: each becomes the same pseudonym everywhere, so that the story can still be followed.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsk.units import MIB

_SECRET_NAME = (
    r"[\w.-]{0,40}(?:pass(?:word|wd|phrase)?|secret|token(?!iz)|api[_-]?key|apikey|access[_-]?key|private[_-]?key|credential"
    r"|auth(?:orization)?|cookie|signature)[\w-]{0,20}"
)
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private key", re.compile(
        r"-----BEGIN [A-Z ]{0,40}(?:PRIVATE KEY|CERTIFICATE)[A-Z ]{0,20}-----.{0,20000}?"
        r"(?:-----END [A-Z ]{1,60}-----|\Z)", re.DOTALL)),
    ("password", re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s/@]{1,400}(?=@)")),
    ("token", re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b")),
    ("token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bgithub_pat_\w{20,}\b|\bglpat-[\w-]{16,}")),
    ("token", re.compile(r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{16,}")),
    ("token", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    ("key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}")),
    ("token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}")),
    ("token", re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}[A-Za-z0-9+/=._~-]{8,}")),
    ("key", re.compile(r"\bssh-(?:rsa|ed25519|dss) [A-Za-z0-9+/=]{40,}|\becdsa-sha2-\S{1,20} [A-Za-z0-9+/=]{40,}")),
    ("address", re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b")),
)  # fmt: skip
_NAMED = re.compile(
    rf"(?i)(?P<name>[\"']?\b{_SECRET_NAME}[\"']?\s{{0,4}}(?::|=|=>)\s{{0,4}}|--{_SECRET_NAME}\s{{1,4}})"
    r"(?P<value>\"[^\"\n]{1,4000}\"|'[^'\n]{1,4000}'|[^\s,;\"'}\])]{1,4000})"
)
_HARMLESS_VALUES = re.compile(r"(?i)[\"']?(?:none|null|true|false|\d{1,6}|n/a|\*+|<[^<>\n]{1,40}>)?[\"']?")
_WANDB = re.compile(r"(?i)\b(wandb[^\n]{0,80}?)\b[0-9a-f]{40}\b")
_IPV4 = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_MAX_BYTES = 64 * MIB
README = "README.txt"


@dataclass(slots=True, kw_only=True)
class Redaction:
    """Takes secrets out of texts, and counts them.

    Parameters
    ----------
    names
        Host names, users and folders to be replaced, each with its replacement.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    _pattern: re.Pattern[str] | None = None

    def clean_text(self, text: str) -> str:
        """Return a text without secrets."""
        for what, pattern in _RULES:
            text = pattern.sub(lambda _match, what=what: self._count_removal(what), text)  # type: ignore[misc]
        text = _WANDB.sub(lambda match: f"{match[1]}{self._count_removal('key')}", text)
        text = _NAMED.sub(self._redact_value, text)
        return self._replace_names(text) if self.names else text

    def _count_removal(self, what: str) -> str:
        self.counts[what] = self.counts.get(what, 0) + 1
        return f"<{what} removed>"

    def _redact_value(self, match: re.Match[str]) -> str:
        if _HARMLESS_VALUES.fullmatch(match["value"]):
            return match[0]
        quote = match["value"][0] if match["value"][0] in "\"'" else ""
        return f"{match['name']}{quote}{self._count_removal('secret')}{quote}"

    def _replace_names(self, text: str) -> str:
        """Replace names; addresses of machines are names too."""
        if self._pattern is None:
            words = sorted(self.names, key=len, reverse=True)
            self._pattern = re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, words)) + r")(?![\w])")
        text = self._pattern.sub(lambda match: self.names[match[0]], text)
        return _IPV4.sub("<address>", text)

    def clean_document(self, value: object) -> object:
        """Return a document of JSON with every text, and every key, without secrets."""
        if isinstance(value, str):
            return self.clean_text(value)
        if isinstance(value, dict):
            return {self.clean_text(str(key)): self._clean_entry(str(key), entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_document(entry) for entry in value]
        return value

    def _clean_entry(self, key: str, value: object) -> object:
        """Return the value of a key, which may be a secret by the name of the key alone."""
        if isinstance(value, str) and re.fullmatch(rf"(?i){_SECRET_NAME}", key) and value:
            return self._count_removal("secret")
        return self.clean_document(value)


def build_pseudonyms(nodes: Iterable[str], users: Iterable[str]) -> dict[str, str]:
    """Return a pseudonym for each node and user, numbered in their order."""
    pseudonyms = {node: f"node{number}" for number, node in enumerate(dict.fromkeys(filter(None, nodes)), 1)}
    return pseudonyms | {user: f"user{number}" for number, user in enumerate(dict.fromkeys(filter(None, users)), 1)}


def write_bundle(path: Path, texts: Mapping[str, str], redaction: Redaction) -> None:
    """Write an archive of texts by name, without secrets; a failure leaves no file.

    Raises
    ------
    OSError
        It cannot be written.
    """
    # An unguessable name that only this process may read: a link or open file of somebody else may wait for any other.
    handle, draft_name = tempfile.mkstemp(prefix=".opsk-", suffix=".part", dir=path.parent)
    draft = Path(draft_name)
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(draft, "w:gz", fileobj=file) as archive:
            for name, text in texts.items():
                _add(archive, name, _without_secrets(name, text, redaction))
            _add(archive, README, _readme(redaction))
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _without_secrets(name: str, text: str, redaction: Redaction) -> str:
    """Return one text; JSON is cleaned value by value, so that it stays JSON."""
    if name.endswith(".json"):
        try:
            return json.dumps(redaction.clean_document(json.loads(text)), indent=1)
        except (ValueError, RecursionError):
            pass
    return redaction.clean_text(text)


def _readme(redaction: Redaction) -> str:
    removed = ", ".join(f"{count} {what}" for what, count in sorted(redaction.counts.items())) or "nothing"
    named = "Nodes and users have made-up names." if redaction.names else "Names of nodes and users are as they were."
    return (
        "A post-mortem by opsk, to be handed on. Removed, where it was recognised as secret: "
        f"{removed}. {named}\nRead it before you send it: no rule knows all secrets.\n"
    )


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    """Add one file without an owner."""
    data = text.encode("utf-8", "replace")[:_MAX_BYTES]
    entry = tarfile.TarInfo(f"postmortem/{name}")
    entry.size, entry.mode, entry.mtime = len(data), 0o640, 0
    archive.addfile(entry, io.BytesIO(data))
