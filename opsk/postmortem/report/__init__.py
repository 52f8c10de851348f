"""Renders a report as Markdown, or as one HTML file without outside assets."""

from __future__ import annotations

from opsk.postmortem.report.html import render_html
from opsk.postmortem.report.markdown import render_markdown

__all__ = ["render_html", "render_markdown"]
