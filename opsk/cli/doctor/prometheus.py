"""Does the site's Prometheus scrape the exporters, and has it opsk's rules?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.app.doctor.slurm import skew
from opsk.cli.doctor.exporters import Heard
from opsk.cli.doctor.fetching import fetch
from opsk.errors import LabError
from opsk.hostlist import fold
from opsk.lab.slurm_files import deploy_folder

RULE_FILES = ("opsk-rules.yml", "opsk-alerts.yml")
_MOST_TOLD = 8


def prometheus_checks(site: Site, heard: tuple[Heard, ...]) -> Iterator[Finding]:
    """Ask Prometheus for its targets and rules."""
    url = site.config.top.prometheus
    if url is None:
        yield note("prometheus", "none is named: who scrapes the exporters is not known", site.config_path,
                   'prometheus = "http://HOST:9090" under [top]')  # fmt: skip
        return
    before_s = time.time()
    answer = fetch(f"{url.rstrip('/')}/api/v1/targets?state=active", site.config.top)
    targets = _data(answer.body) if not answer.problem else None
    if targets is None:
        why = answer.problem or "no answer of Prometheus's"
        yield wrong("prometheus", f"does not answer: {why}", url, "systemctl status prometheus; url under [top]")
        return
    yield sound("prometheus", "answers", url)
    if answer.date_s is not None:
        yield skew("clock", "Prometheus's clock", answer.date_s, before_s, time.time())
    yield from _scraped(site, heard, [each for each in targets.get("activeTargets", ()) if isinstance(each, dict)])
    yield from _rules(site, url)


def _scraped(site: Site, heard: tuple[Heard, ...], targets: list[dict[str, Any]]) -> Iterator[Finding]:
    """Say which of the exporters is no target, or one that Prometheus cannot scrape."""
    by_place: dict[tuple[str, int | None], dict[str, Any]] = {}
    by_node: dict[str, dict[str, Any]] = {}
    for target in targets:
        labels, place = target.get("labels") or {}, _place(str(target.get("scrapeUrl", "")))
        by_place[place] = target
        if place[1] == site.config.top.exporter_port or labels.get("job") == "opsk":
            by_node[str(labels.get("node") or str(labels.get("instance", "")).rpartition(":")[0])] = target
    lost: list[str] = []
    bad: list[tuple[str, str]] = []
    for each in heard:
        found = by_place.get(_place(each.url)) or by_node.get(each.node)
        if found is None:
            lost.append(each.node)
        elif found.get("health") == "down":
            bad.append((each.node, str(found.get("lastError") or "no reason given")))
    if lost:
        hint = "list them in the file_sd file that prometheus/scrape.yml names"
        yield wrong(
            "scrape", f"no target of Prometheus: the exporters of {fold(lost)}", site.config.top.prometheus or "", hint
        )
    for node, why in bad[:_MOST_TOLD]:
        yield wrong("scrape", f"Prometheus cannot scrape {node}: {why}", node, "from Prometheus's host: curl NODE:9876")
    if heard and not lost and not bad:
        yield sound("scrape", f"all of {len(heard)} exporters are scraped")


def _place(url: str) -> tuple[str, int | None]:
    try:
        return urlsplit(url).hostname or "", urlsplit(url).port
    except ValueError:
        return "", None


def _rules(site: Site, url: str) -> Iterator[Finding]:
    """Say which groups of rules are missing, and which cannot be evaluated."""
    answer = fetch(f"{url.rstrip('/')}/api/v1/rules", site.config.top)
    said = _data(answer.body) if not answer.problem else None
    if said is None:
        yield unknown("rules", f"Prometheus does not tell its rules: {answer.problem or 'no such answer'}", url)
        return
    groups = {str(group.get("name")): group for group in said.get("groups", ()) if isinstance(group, dict)}
    try:
        folder = deploy_folder() / "prometheus"
    except LabError as error:
        yield unknown("rules", error.message, hint=error.hint)
        return
    for name in RULE_FILES:
        lost = [group for group in _groups(folder / name) if group not in groups]
        if lost:
            what = f"rules are missing: {', '.join(lost[:_MOST_TOLD])}"
            yield wrong("rules", what, folder / name, f"rule_files of prometheus.yml: {name}; then reload Prometheus")
        else:
            yield sound("rules", f"{name} is loaded", url)
    for name, group in groups.items():
        errors = [rule for rule in group.get("rules", ()) if rule.get("health") == "err"]
        if name.startswith("opsk-") and errors:
            why = f"{errors[0].get('name')}: {errors[0].get('lastError')}"
            yield wrong("rules", f"{len(errors)} rules of {name} cannot be evaluated: {why}", url)


def _groups(path: Path) -> list[str]:
    try:
        return [group["name"] for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    except (OSError, ValueError, RecursionError, yaml.YAMLError, KeyError, TypeError):
        return []


def _data(body: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(body)
        data = said["data"] if said["status"] == "success" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
