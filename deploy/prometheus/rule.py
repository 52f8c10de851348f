"""Defines recording rules, and writes a file of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_WIDTH = 118


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


def render(group: str, head: Iterable[str], rules: Iterable[Rule]) -> str:
    """Return a file of rules as text."""
    lines = [f"# {line}" for line in head]
    lines += ["groups:", f"  - name: {group}", "    rules:"]
    for rule in rules:
        lines += [f"      - record: {rule.record}", "        expr: >-", *_fold(rule.expr, 10)]
        if rule.labels:
            lines.append("        labels:")
            lines += [f"          {key}: {value}" for key, value in rule.labels.items()]
    return "\n".join(lines) + "\n"


def _fold(text: str, indent: int) -> list[str]:
    """Break an expression at spaces; YAML's ``>-`` joins the lines again."""
    lines: list[str] = []
    line = " " * indent
    for word in text.split(" "):
        if len(line) + len(word) > _WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * indent
        line += word + " "
    return [*lines, line.rstrip()]
