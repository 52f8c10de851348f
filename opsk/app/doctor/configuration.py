"""Checks the site configuration and the files that it names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, wrong
from opsk.config import KEYS_PAGE, SiteConfig, load_site
from opsk.errors import ConfigError, OpskError, StoreError
from opsk.hardware.catalog import cluster, parse_cluster


def check_store(site: Site) -> Iterator[Finding]:
    """Check the store without changing it."""
    if find_spec("sqlmodel") is None or find_spec("alembic") is None:
        yield note("store", "not installed on this host: nothing is stored", hint='pip install "opsk[store]"')
        return
    from opsk.store.database.status import inspect_store

    try:
        state = inspect_store(site.config.store.url)
    except StoreError as error:
        yield wrong("store", error.message, hint=error.hint)
        return
    if state.mount is not None:
        hint = "SQLite's locks do not work there: set url under [store] to a local disk, or to a server"
        what = f"is on a network file system ({state.mount.kind} at {state.mount.point})"
        yield wrong("store", what, state.name, hint)
    if not state.is_there:
        yield note("store", "nothing is stored yet", state.name)
    elif state.revision == state.newest:
        yield sound("store", f"answers, its tables have revision {state.revision}", state.name)
    elif state.revision is None:
        yield wrong("store", "has no tables yet", state.name, "opsk store upgrade")
    elif state.is_known:
        what = f"its tables have revision {state.revision}, this opsk needs {state.newest}"
        yield wrong(
            "store", what, state.name, "run opsk store upgrade once every opsk that writes to it has this version"
        )
    else:
        what = f"a newer opsk has changed its tables (revision {state.revision[:40]})"
        yield wrong("store", what, state.name, "update opsk")


def read_configuration(path: Path) -> tuple[SiteConfig, list[Finding]]:
    """Return the configuration, or the defaults where it cannot be used, and the findings."""
    if not path.exists():
        return SiteConfig(), [note("configuration", "no file: defaults apply", path, "opsk setup writes one")]
    try:
        return load_site(path), [sound("configuration", "valid, all keys are known", path)]
    except ConfigError as error:
        hint = error.hint or f"all keys: {KEYS_PAGE}"
        return SiteConfig(), [wrong("configuration", f"cannot be used: {error.message}", path, hint)]


def check_configuration(site: Site) -> Iterator[Finding]:
    """Check the files that the configuration names: cluster, fabric, efficiencies, passwords."""
    config = site.config
    if config.cluster is None:
        hint = f'cluster = "NAME" in {site.config_path}; opsk check --cluster NAME lists the catalogue'
        yield note("cluster", "no cluster is set: GPUs are known only by the type that a job requests", hint=hint)
    else:
        yield _check_cluster(config.cluster)
    for path in config.fabric:
        yield _check_readable("fabric", path, "write it with ibnetdiscover, then reload the advisor")
    if config.efficiency is not None:
        yield _check_readable("efficiency", config.efficiency, "opsk calibrate writes it")
    if config.store.url is not None and _has_password(config.store.url):
        yield _check_password_file(site.config_path)
    if config.top.password_file is not None:
        yield _check_readable("password", config.top.password_file, "users of opsk top must be able to read it")


def _check_cluster(name: str) -> Finding:
    try:
        path = Path(name)
        if path.suffix == ".toml" or "/" in name:
            parse_cluster(path.read_text(encoding="utf-8"), origin=name)
        else:
            cluster(name)
    except (OSError, UnicodeDecodeError) as error:
        return wrong("cluster", f"cannot be read: {getattr(error, 'strerror', None) or error}", name)
    except OpskError as error:
        return wrong("cluster", error.message, name, error.hint)
    return sound("cluster", "known", name)


def _has_password(url: str) -> bool:
    """Return whether a store's URL has a password, before its host or among its options."""
    head, _, options = url.partition("?")
    user, sign, _ = head.partition("://")[2].rpartition("@")
    return (bool(sign) and ":" in user) or "pass" in options.lower()


def _check_password_file(path: Path) -> Finding:
    """Check who can read a configuration with a password in it."""
    try:
        is_open = bool(path.stat().st_mode & stat.S_IROTH)
    except OSError as error:
        return wrong("password", f"cannot be checked: {error.strerror}", path)
    if not is_open:
        return sound("password", "is in a file that not everybody can read", path)
    hint = "make it readable for opsk's user only: docs/howto/choose-a-database.md"
    return wrong("password", "the store's password is in a file that everybody can read", path, hint)


def _check_readable(check: str, path: Path, hint: str) -> Finding:
    if not path.is_file():
        return wrong(check, "does not exist", path, hint)
    if not os.access(path, os.R_OK):
        return wrong(check, "this user cannot read it", path, hint)
    return sound(check, "readable", path)
