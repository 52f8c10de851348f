"""What stands in a first ``/etc/opsk/opsk.toml``? What was found, each key with a comment, and what may be added."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from opsk.config import load_site

KEPT_AS = ".before-setup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """What was found or said about the site; ``None`` and nothing where it is not known."""

    release: str = ""
    cluster: str | None = None
    slurm_user: str | None = None
    default_partition: str | None = None
    prometheus: str | None = None
    fabric: tuple[Path, ...] = ()
    gpus: tuple[str, ...] = field(default=())
    hcas: int = 0
    shadow: bool = False


def site_text(facts: SiteFacts) -> str:
    """Return the text of the site configuration."""
    begin = (_head(facts), _fabric(facts), _advisor(facts), _policy(facts))
    return "\n".join((*begin, _exporter(), _top(facts), _store(), _postmortem()))


def _said(name: str, value: object, comment: str = "", *, known: bool = True) -> str:
    """Return one key, as a comment where its value is not known."""
    text = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return ("" if known else "# ") + text + (f"  # {comment}" if comment else "") + "\n"


def _head(facts: SiteFacts) -> str:
    gpus = ", ".join(f"{count} x {_plain(name)}" for name, count in Counter(facts.gpus).items())
    here = "; ".join(part for part in (gpus, f"{facts.hcas} HCAs" if facts.hcas else "") if part)
    found = f"# On the host where this was written: {here}.\n" if here else ""
    return (
        "# The site configuration of opsk: docs/reference/site-configuration.md has all keys.\n"
        "# First written by opsk setup; it is yours, and opsk setup does not touch it again unless told to.\n"
        f"{found}\n"
        "# Name of a cluster in the catalogue (opsk check --cluster NAME lists them), or path of a cluster TOML:\n"
        + _said("cluster", facts.cluster or "/etc/opsk/cluster.toml", known=facts.cluster is not None)
    )


def _fabric(facts: SiteFacts) -> str:
    paths = [str(path) for path in facts.fabric] or ["/var/lib/opsk/fabric.ibnetdiscover"]
    return (
        "# Dumps of the compute fabric: with them, advice says where ranks lie. As root: ibnetdiscover > FILE\n"
        + _said("fabric", paths, known=bool(facts.fabric))
    )


def _advisor(facts: SiteFacts) -> str:
    users = list(dict.fromkeys(("root", facts.slurm_user or "slurm")))
    return (
        "[advisor]\n"
        + _said("submit_users", users, "who may ask for others: the user that slurmctld runs as")
        + _said("audit_log", "/var/log/opsk/audit.jsonl", "one JSON line a question; never a script's text")
        + "# Where jobs go that name no partition; rules by partition need it:\n"
        + _said("default_partition", facts.default_partition or "gpu", known=facts.default_partition is not None)
        + "# With opsk-watcher.service, advice knows running jobs and free nodes:\n"
        + _said("live_folder", "/run/opsk-live", known=False)
    )


def _policy(facts: SiteFacts) -> str:
    mark = "" if facts.shadow else "# "
    return (
        "# What is done about jobs: the first rule that matches counts (docs/howto/set-a-policy.md). With this one\n"
        "# advice is computed and logged, and nobody is shown any: for the first days.\n"
        f'{mark}[[advisor.policy]]\n{mark}action = "shadow"\n'
    )


def _exporter() -> str:
    return "[exporter]\n# Which port is on which rail, written by opsk fabric --rails-file:\n" + _said(
        "rails_file", "/etc/opsk/rails.json", known=False
    )


def _top(facts: SiteFacts) -> str:
    return "[top]\n# The site's Prometheus, for opsk top and opsk doctor:\n" + _said(
        "prometheus", facts.prometheus or "http://prometheus:9090", known=facts.prometheus is not None
    )


def _store() -> str:
    return (
        "[store]\n"
        "# Where predictions, measurements, failures and reports are kept: docs/howto/choose-a-database.md.\n"
        "# No password here: every user can read this file.\n"
        + _said("url", "sqlite:////var/lib/opsk/opsk.db", known=False)
    )


def _postmortem() -> str:
    return (
        "[postmortem]\n"
        "# Evidence and reports on jobs that die, on storage that all nodes have: docs/howto/keep-evidence.md.\n"
        + _said("folder", "/shared/opsk/postmortem", known=False)
    )


def _plain(name: str) -> str:
    """Return a device's name as it may stand in a comment."""
    return "".join(sign for sign in name if sign.isprintable())[:80]


def write_site(path: Path, text: str) -> Path | None:
    """Write the file whole, mode 0644, and read it back; return where a file that was there before is kept.

    Raises
    ------
    OSError
        The folder cannot be made or written.
    ConfigError
        What was written is not what opsk reads; the file that was there stays.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        load_site(draft)
        kept = _keep(path)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return kept


def _keep(path: Path) -> Path | None:
    """Put a file aside under a name that is free."""
    if not path.exists():
        return None
    number = 0
    while (kept := path.with_name(f"{path.name}{KEPT_AS}{'' if number == 0 else f'.{number}'}")).exists():
        number += 1
    path.rename(kept)
    return kept
