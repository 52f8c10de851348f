"""How does a report look on paper? Markdown, and one HTML file without outside assets."""

from __future__ import annotations

from opsk.postmortem.report.html import html_report
from opsk.postmortem.report.markdown import markdown_report

__all__ = ["html_report", "markdown_report"]
