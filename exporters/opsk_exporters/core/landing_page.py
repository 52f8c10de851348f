"""Renders the landing page of the exporter: its collectors, the state of each, and a link to the metrics.

Opening it reads no device: it shows the result of the last scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as escape_html

from opsk import __version__
from opsk.text import escape
from opsk_exporters.core.collector import CollectorStatus

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.4rem; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid #d0d7de; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.works { color: #116329; } .fails, .hangs { color: #a40e26; font-weight: 600; } .none { color: #57606a; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } a { color: #58a6ff; } th, td { border-color: #30363d; }
  .works { color: #3fb950; } .fails, .hangs { color: #ff7b72; } .none { color: #8b949e; }
}
"""
_CLASS = {"works": "works", "fails": "fails", "hangs": "hangs"}


def render_landing_page(standings: Iterable[CollectorStatus], node: str) -> bytes:
    """Return the page as HTML; every text in it is escaped."""
    rows = "".join(_render_row(standing) for standing in standings)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>opsk exporter on {_escape(node)}</title><style>{_STYLE}</style></head>
<body><h1>opsk exporter {_escape(__version__)} on {_escape(node)}</h1>
<p><a href="/metrics">Metrics</a> · <a href="/healthz">health</a></p>
<table><thead><tr><th>Collector</th><th>State</th><th>Last run</th><th>What it says</th></tr></thead>
<tbody>{rows}</tbody></table>
<p class="none">As of the last scrape; opening this page reads no device.</p>
</body></html>
"""
    return page.encode("utf-8", "replace")


def _render_row(standing: CollectorStatus) -> str:
    """Render the row of one collector."""
    took = "" if standing.duration_s is None else f"{standing.duration_s * 1e3:.1f} ms"
    message = "" if standing.state in ("works", "not asked yet") else standing.message
    return (
        f"<tr><td>{_escape(standing.name)}</td>"
        f'<td class="{_CLASS.get(standing.state, "none")}">{_escape(standing.state)}</td>'
        f'<td class="n">{took}</td><td>{_escape(message)}</td></tr>\n'
    )


def _escape(text: str) -> str:
    """Escape a text for HTML; errors may contain text of a device."""
    return escape_html(escape(text)[:500])
