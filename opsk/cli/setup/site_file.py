"""Writes a first ``/etc/opsk/opsk.toml`` with the detected values, a comment per key, and optional keys."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from opsk.config import load_site

BACKUP_SUFFIX = ".before-setup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """The detected or given facts of the site; ``None`` or empty where unknown."""

    release: str = ""
    cluster: str | None = None
    slurm_user: str | None = None
    default_partition: str | None = None
    prometheus: str | None = None
    fabric: tuple[Path, ...] = ()
    gpus: tuple[str, ...] = field(default=())
    hcas: int = 0
    shadow: bool = False


def format_site(facts: SiteFacts) -> str:
    """Return the text of the site configuration."""
    begin = (_format_head(facts), _format_fabric(facts), _format_advisor(facts), _format_policy(facts))
    return "\n".join((*begin, _format_exporter(), _format_top(facts), _format_store(), _format_postmortem()))


def _format_key(name: str, value: object, comment: str = "", *, known: bool = True) -> str:
    """Return one key, as a comment where its value is not known."""
    text = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return ("" if known else "# ") + text + (f"  # {comment}" if comment else "") + "\n"


def _format_head(facts: SiteFacts) -> str:
    gpus = ", ".join(f"{count} x {_strip_controls(name)}" for name, count in Counter(facts.gpus).items())
    here = "; ".join(part for part in (gpus, f"{facts.hcas} HCAs" if facts.hcas else "") if part)
    detected = f"# On the host where this was written: {here}.\n" if here else ""
    return (
        "# The site configuration of opsk: docs/reference/site-configuration.md has all keys.\n"
        "# First written by opsk setup; it is yours, and opsk setup does not touch it again unless told to.\n"
        f"{detected}\n"
        "# Name of a cluster in the catalogue (opsk check --cluster NAME lists them), or path of a cluster TOML:\n"
        + _format_key("cluster", facts.cluster or "/etc/opsk/cluster.toml", known=facts.cluster is not None)
    )


def _format_fabric(facts: SiteFacts) -> str:
    paths = [str(path) for path in facts.fabric] or ["/var/lib/opsk/fabric.ibnetdiscover"]
    return (
        "# Dumps of the compute fabric: with them, advice says where ranks lie. As root: ibnetdiscover > FILE\n"
        + _format_key("fabric", paths, known=bool(facts.fabric))
    )


def _format_advisor(facts: SiteFacts) -> str:
    users = list(dict.fromkeys(("root", facts.slurm_user or "slurm")))
    return (
        "[advisor]\n"
        + _format_key("submit_users", users, "who may ask for others: the user that slurmctld runs as")
        + _format_key("audit_log", "/var/log/opsk/audit.jsonl", "one JSON line a question; never a script's text")
        + "# Where jobs go that name no partition; rules by partition need it:\n"
        + _format_key("default_partition", facts.default_partition or "gpu", known=facts.default_partition is not None)
        + "# With opsk-watcher.service, advice knows running jobs and free nodes:\n"
        + _format_key("live_folder", "/run/opsk-live", known=False)
    )


def _format_policy(facts: SiteFacts) -> str:
    mark = "" if facts.shadow else "# "
    return (
        "# What is done about jobs: the first rule that matches counts (docs/howto/set-a-policy.md). With this one\n"
        "# advice is computed and logged, and nobody is shown any: for the first days.\n"
        f'{mark}[[advisor.policy]]\n{mark}action = "shadow"\n'
    )


def _format_exporter() -> str:
    return "[exporter]\n# Which port is on which rail, written by opsk fabric --rails-file:\n" + _format_key(
        "rails_file", "/etc/opsk/rails.json", known=False
    )


def _format_top(facts: SiteFacts) -> str:
    return "[top]\n# The site's Prometheus, for opsk top and opsk doctor:\n" + _format_key(
        "prometheus", facts.prometheus or "http://prometheus:9090", known=facts.prometheus is not None
    )


def _format_store() -> str:
    return (
        "[store]\n"
        "# Where predictions, measurements, failures and reports are kept: docs/howto/choose-a-database.md.\n"
        "# No password here: every user can read this file.\n"
        + _format_key("url", "sqlite:////var/lib/opsk/opsk.db", known=False)
    )


def _format_postmortem() -> str:
    return (
        "[postmortem]\n"
        "# Evidence and reports on jobs that die, on storage that all nodes have: docs/howto/keep-evidence.md.\n"
        + _format_key("folder", "/shared/opsk/postmortem", known=False)
    )


def _strip_controls(name: str) -> str:
    """Return a device's name without control characters, for a comment."""
    return "".join(char for char in name if char.isprintable())[:80]


def write_site(path: Path, text: str) -> Path | None:
    """Write the file whole, mode 0644, and read it back; return the backup of an earlier file.

    Raises
    ------
    OSError
        The folder cannot be made or written.
    ConfigError
        opsk cannot read what was written; the earlier file stays.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        load_site(draft)
        backup = _back_up(path)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return backup


def _back_up(path: Path) -> Path | None:
    """Rename a file to an unused backup name."""
    if not path.exists():
        return None
    number = 0
    while (backup := path.with_name(f"{path.name}{BACKUP_SUFFIX}{'' if number == 0 else f'.{number}'}")).exists():
        number += 1
    path.rename(backup)
    return backup
