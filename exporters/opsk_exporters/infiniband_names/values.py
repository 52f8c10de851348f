"""What has a metric of a port for a name and a text?"""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricName(NamedTuple):
    """The middle of ``opsk_infiniband_port_<what>_total``, and its help text; a gauge has no ``_total``."""

    what: str
    help_text: str
    kind: Literal["counter", "gauge"] = "counter"
