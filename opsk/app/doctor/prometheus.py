"""Checks that the site's Prometheus scrapes the exporters and has opsk's rules."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from opsk.app.doctor.exporters import ExporterScrape
from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.app.doctor.slurm import check_skew
from opsk.app.site_pages import fetch
from opsk.errors import LabError
from opsk.hostlist import fold
from opsk.lab.slurm_files import find_deploy_folder

RULE_FILES = ("opsk-rules.yml", "opsk-alerts.yml")
_MAX_LISTED = 8


def check_prometheus(site: Site, scrapes: tuple[ExporterScrape, ...]) -> Iterator[Finding]:
    """Check the targets and rules of Prometheus."""
    url = site.config.top.prometheus
    if url is None:
        yield note("prometheus", "none is set: opsk cannot check who scrapes the exporters", site.config_path,
                   'set prometheus = "http://HOST:9090" under [top]')  # fmt: skip
        return
    before_s = time.time()
    answer = fetch(f"{url.rstrip('/')}/api/v1/targets?state=active", site.config.top)
    targets = _parse_data(answer.body) if not answer.problem else None
    if targets is None:
        why = answer.problem or "not an answer of Prometheus"
        yield wrong("prometheus", f"does not answer: {why}", url, "systemctl status prometheus; url under [top]")
        return
    yield sound("prometheus", "answers", url)
    if answer.date_s is not None:
        yield check_skew("clock", "Prometheus's clock", answer.date_s, before_s, time.time())
    yield from _check_targets(
        site, scrapes, [each for each in targets.get("activeTargets", ()) if isinstance(each, dict)]
    )
    yield from _check_rules(site, url)


def _check_targets(site: Site, scrapes: tuple[ExporterScrape, ...], targets: list[dict[str, Any]]) -> Iterator[Finding]:
    """Report exporters that are no target, or that Prometheus cannot scrape."""
    by_address: dict[tuple[str, int | None], dict[str, Any]] = {}
    by_node: dict[str, dict[str, Any]] = {}
    for target in targets:
        labels, address = target.get("labels") or {}, _parse_address(str(target.get("scrapeUrl", "")))
        by_address[address] = target
        if address[1] == site.config.top.exporter_port or labels.get("job") == "opsk":
            by_node[str(labels.get("node") or str(labels.get("instance", "")).rpartition(":")[0])] = target
    missing: list[str] = []
    failing: list[tuple[str, str]] = []
    for scrape in scrapes:
        match = by_address.get(_parse_address(scrape.url)) or by_node.get(scrape.node)
        if match is None:
            missing.append(scrape.node)
        elif match.get("health") == "down":
            failing.append((scrape.node, str(match.get("lastError") or "no reason given")))
    if missing:
        hint = "add them to the file_sd file of prometheus/scrape.yml"
        yield wrong(
            "scrape",
            f"Prometheus has no target for the exporters of {fold(missing)}",
            site.config.top.prometheus or "",
            hint,
        )
    for node, why in failing[:_MAX_LISTED]:
        yield wrong("scrape", f"Prometheus cannot scrape {node}: {why}", node, "from Prometheus's host: curl NODE:9876")
    if scrapes and not missing and not failing:
        yield sound("scrape", f"all {len(scrapes)} exporters are scraped")


def _parse_address(url: str) -> tuple[str, int | None]:
    try:
        return urlsplit(url).hostname or "", urlsplit(url).port
    except ValueError:
        return "", None


def _check_rules(site: Site, url: str) -> Iterator[Finding]:
    """Report missing groups of rules, and rules that cannot be evaluated."""
    answer = fetch(f"{url.rstrip('/')}/api/v1/rules", site.config.top)
    rules = _parse_data(answer.body) if not answer.problem else None
    if rules is None:
        yield unknown("rules", f"Prometheus does not list its rules: {answer.problem or 'no such answer'}", url)
        return
    groups = {str(group.get("name")): group for group in rules.get("groups", ()) if isinstance(group, dict)}
    try:
        folder = find_deploy_folder() / "prometheus"
    except LabError as error:
        yield unknown("rules", error.message, hint=error.hint)
        return
    for name in RULE_FILES:
        missing = [group for group in _read_group_names(folder / name) if group not in groups]
        if missing:
            what = f"rules are missing: {', '.join(missing[:_MAX_LISTED])}"
            yield wrong("rules", what, folder / name, f"rule_files of prometheus.yml: {name}; then reload Prometheus")
        else:
            yield sound("rules", f"{name} is loaded", url)
    for name, group in groups.items():
        errors = [rule for rule in group.get("rules", ()) if rule.get("health") == "err"]
        if name.startswith("opsk-") and errors:
            why = f"{errors[0].get('name')}: {errors[0].get('lastError')}"
            yield wrong("rules", f"{len(errors)} rules of {name} cannot be evaluated: {why}", url)


def _read_group_names(path: Path) -> list[str]:
    try:
        return [group["name"] for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    except (OSError, ValueError, RecursionError, yaml.YAMLError, KeyError, TypeError):
        return []


def _parse_data(body: bytes) -> dict[str, Any] | None:
    try:
        response = json.loads(body)
        data = response["data"] if response["status"] == "success" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
