"""Parses web configuration files: TLS, passwords and headers in the format of Prometheus' exporter-toolkit.

The same file serves node_exporter and Prometheus itself. Every key is checked, and every error is reported with its
line. Relative paths begin at the folder of the file.

Source: github.com/prometheus/exporter-toolkit, docs/web-configuration.md, read 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from opsk.errors import ConfigError
from opsk.units import MIB

VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""Go's names of curves, and OpenSSL's."""
CLIENT_AUTH = ("NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
CIPHERS_OF_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""TLS 1.3 has these and no choice among them; naming them is allowed and changes nothing."""
_CIPHERS = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in _CIPHERS.items()
}
"""Go's names of cipher suites up to TLS 1.2, and OpenSSL's."""
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""Headers that may be set, and their values where not all are allowed."""
_MAX_BYTES = MIB
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Section ``tls_server_config``: each of certificate, key and CA is a file or text in PEM form."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    client_ca: str | None = None
    client_auth_type: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the section names."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """A whole file.

    Parameters
    ----------
    tls
        ``None``: no TLS.
    users
        Name to bcrypt hash; none: no passwords.
    headers
        Headers that every answer gets.
    rate_interval_s, rate_burst
        Requests beyond ``rate_burst`` at once are answered only one in ``rate_interval_s`` [s]; 0 sets no limit.
    """

    tls: TlsConfig | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_interval_s: float = 0.0
    rate_burst: int = 0


class _WrongError(Exception):
    """A value has the wrong type or range."""


class _Reader:
    """Walks the tree of a file and collects its errors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.errors: list[str] = []

    def report(self, node: Any, what: str) -> None:
        """Add an error, with its line."""
        self.errors.append(f"{self._path}:{node.start_mark.line + 1}: {what}")

    def entries(self, node: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
        """Yield key, node of the key, and node of the value of a mapping, each key once; nothing is an empty one."""
        if node is None or (node.id == "scalar" and node.tag.endswith(":null")):
            return
        if node.id != "mapping":
            self.report(node, f"{name} should be keys with values")
            return
        seen: set[str] = set()
        for key, value in node.value:
            if key.id != "scalar":
                self.report(key, f"{name}: a key should be a word")
            elif key.value in seen:
                self.report(key, f"{name}: {key.value!r} is there twice")
            else:
                seen.add(key.value)
                yield key.value, key, value

    def section(self, node: Any, name: str, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
        """Return the values of a section, by key."""
        values: dict[str, Any] = {}
        for key, key_node, value in self.entries(node, name):
            reader = readers.get(key)
            if reader is None:
                self.report(key_node, f"unknown key {key!r} in {name}, known: {', '.join(readers)}")
                continue
            try:
                values[key] = reader(value)
            except _WrongError as error:
                self.report(value, f"{key} {error}")
        return values


def _parse_text(node: Any) -> str:
    """Return a word or a text."""
    if node.id != "scalar" or node.tag.endswith(":null"):
        raise _WrongError("should be a text")
    return str(node.value)


def _parse_flag(node: Any) -> bool:
    """Return a truth value."""
    if node.id != "scalar" or not node.tag.endswith(":bool"):
        raise _WrongError("should be true or false")
    return str(node.value).lower() in ("true", "yes", "on")


def _parse_whole(node: Any) -> int:
    """Return a number of things."""
    text = _parse_text(node)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _WrongError("should be a whole number")
    return int(text)


def _parse_duration(node: Any) -> float:
    """Return a duration of Go's form [s]."""
    text = _parse_text(node)
    parts = [] if text == "0" else _DURATION.findall(text)
    if text != "0" and "".join(map("".join, parts)) != text:
        raise _WrongError("should be a duration such as 1s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _choice_parser(words: Mapping[str, Any] | tuple[str, ...]) -> Callable[[Any], str]:
    """Return a parser for one of some words."""

    def read(node: Any) -> str:
        text = _parse_text(node)
        if text not in words:
            raise _WrongError(f"should be one of {', '.join(words)}, not {text!r}")
        return text

    return read


def _list_parser(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """Return a parser for a list."""

    def read_all(node: Any) -> tuple[T, ...]:
        if node.id != "sequence":
            raise _WrongError("should be a list")
        return tuple(read(each) for each in node.value)

    return read_all


def _parse_client_auth(node: Any) -> str:
    """Return how clients authenticate."""
    text = _parse_text(node) or "NoClientCert"
    if text in ("RequireAnyClientCert", "RequireClientCert"):
        raise _WrongError(f"{text} proves nothing, and this exporter cannot do it: take RequireAndVerifyClientCert")
    if text not in CLIENT_AUTH:
        raise _WrongError(f"should be one of {', '.join(CLIENT_AUTH)}, not {text!r}")
    return text


def load_web_config(path: Path) -> WebConfig:
    """Read a web configuration file.

    Raises
    ------
    ConfigError
        It cannot be read, or has errors; all of them are named, with lines.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="the exporter's user must be able to read it") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes")
    return parse_web_config(content, path)


def parse_web_config(content: bytes, path: Path) -> WebConfig:
    """Parse the content of a web configuration file; ``path`` is where it is from.

    Raises
    ------
    ConfigError
        It has errors; all of them are named, with lines.
    """
    import yaml  # 2.6 MB and 40 ms, for those who have such a file only

    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"{place}: no YAML: {getattr(error, 'problem', None) or type(error).__name__}") from error
    reader = _Reader(path)
    sections = reader.section(
        root,
        "the file",
        {
            "tls_server_config": lambda node: _parse_tls(reader, node, path.parent),
            "http_server_config": lambda node: _parse_http(reader, node),
            "basic_auth_users": lambda node: _parse_users(reader, node),
            "rate_limit": lambda node: reader.section(
                node, "rate_limit", {"interval": _parse_duration, "burst": _parse_whole}
            ),
        },
    )
    if reader.errors:
        raise ConfigError("; ".join(reader.errors), hint="the format: exporter-toolkit, docs/web-configuration.md")
    rate = sections.get("rate_limit", {})
    return WebConfig(
        tls=sections.get("tls_server_config"),
        users=sections.get("basic_auth_users", {}),
        headers=sections.get("http_server_config", {}),
        rate_interval_s=rate.get("interval", 0.0),
        rate_burst=rate.get("burst", 0),
    )


def _parse_tls(reader: _Reader, node: Any, folder: Path) -> TlsConfig | None:
    """Read ``tls_server_config``; an empty one is none."""

    def path(value: Any) -> Path | None:
        text = _parse_text(value)
        return folder / text if text else None

    readers: dict[str, Callable[[Any], Any]] = {
        "cert_file": path,
        "key_file": path,
        "client_ca_file": path,
        "cert": lambda value: _parse_text(value) or None,
        "key": lambda value: _parse_text(value) or None,
        "client_ca": lambda value: _parse_text(value) or None,
        "client_auth_type": _parse_client_auth,
        "client_allowed_sans": _list_parser(_parse_text),
        "min_version": _choice_parser(VERSIONS),
        "max_version": _choice_parser(VERSIONS),
        "cipher_suites": _list_parser(_choice_parser((*CIPHERS, *CIPHERS_OF_TLS13))),
        "prefer_server_cipher_suites": _parse_flag,
        "curve_preferences": _list_parser(_choice_parser(CURVES)),
    }
    before = len(reader.errors)
    values = reader.section(node, "tls_server_config", readers)
    if not values or len(reader.errors) > before:
        return None
    tls = TlsConfig(**values)
    checks = (
        (not (tls.cert or tls.cert_file), "has neither cert_file nor cert"),
        (not (tls.key or tls.key_file), "has neither key_file nor key"),
        (bool(tls.cert and tls.cert_file), "has both cert_file and cert"),
        (bool(tls.key and tls.key_file), "has both key_file and key"),
        (bool(tls.client_ca and tls.client_ca_file), "has both client_ca_file and client_ca"),
        (
            bool(tls.client_ca or tls.client_ca_file) and tls.client_auth_type == "NoClientCert",
            "has a CA for clients and no client_auth_type that uses it",
        ),
        (
            tls.client_allowed_sans is not None and tls.client_auth_type != "RequireAndVerifyClientCert",
            "has client_allowed_sans, which need client_auth_type RequireAndVerifyClientCert",
        ),
        (VERSIONS.index(tls.min_version) > VERSIONS.index(tls.max_version), "has min_version above max_version"),
    )
    for is_wrong, what in checks:
        if is_wrong:
            reader.report(node, f"tls_server_config {what}")
    return tls


def _parse_http(reader: _Reader, node: Any) -> dict[str, str]:
    """Read ``http_server_config``; HTTP/2 is not supported here, but the key is accepted."""

    def headers(value: Any) -> dict[str, str]:
        readers = {name: _header_parser(allowed) for name, allowed in HEADERS.items()}
        return {name: text for name, text in reader.section(value, "headers", readers).items() if text}

    parsed: dict[str, str] = reader.section(node, "http_server_config", {"http2": _parse_flag, "headers": headers}).get(
        "headers", {}
    )
    return parsed


def _header_parser(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    """Return a parser for the value of a header."""

    def read(node: Any) -> str:
        text = _parse_text(node)
        if allowed and text and text.lower() not in allowed:
            raise _WrongError(f"should be one of {', '.join(allowed)}, not {text!r}")
        if not (text.isascii() and text.isprintable()) and text:
            raise _WrongError("should be plain characters on one line")
        return text

    return read


def _parse_users(reader: _Reader, node: Any) -> dict[str, str]:
    """Read ``basic_auth_users``; a message never repeats what stands in place of a hash."""
    users = {}
    for name, key, value in reader.entries(node, "basic_auth_users"):
        if ":" in name:
            reader.report(key, f"user {name!r}: a name cannot contain a colon")
        elif value.id != "scalar" or not _HASH.fullmatch(value.value):
            reader.report(value, f"user {name!r}: should be a bcrypt hash, as htpasswd -nB writes it")
        else:
            users[name] = str(value.value)
    return users
