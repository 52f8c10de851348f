"""Defines the dashboards, one file each; ``style`` holds what they share."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import accuracy, cluster, exporters, fabric, gpu_health, job, power

ALL: dict[str, Callable[[], models.Dashboard]] = {
    page.UID: page.make for page in (cluster, job, fabric, power, gpu_health, accuracy, exporters)
}
"""What makes each dashboard, by its uid, in the order in which one looks at them."""
