"""Checks the exporter's settings of the site; ``opsk doctor`` runs it together with the checks of the exporters."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.app.doctor.finding import Finding, Site, sound, wrong
from opsk.errors import ConfigError
from opsk_exporters.core.settings import load_settings


def settings_checks(site: Site) -> Iterator[Finding]:
    """Read the section ``[exporter]`` as the exporter does, which no other command reads."""
    if not site.config.exporter:
        return
    try:
        load_settings(site.config_path)
    except ConfigError as error:
        hint = error.hint or "opsk exporter does not start with it"
        yield wrong("exporter-settings", error.message, site.config_path, hint)
        return
    yield sound("exporter-settings", "all keys are known", site.config_path)
