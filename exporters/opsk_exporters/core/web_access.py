"""Authenticates clients by TLS and password as the web configuration file requires, and reloads it when a file changes.

A file that becomes invalid while the exporter runs changes nothing: the last valid configuration stays in force, and
the journal and a metric report it. The same holds for a file that removes passwords, TLS or the check of clients'
certificates: a file that is just being written looks like that. A password that was verified once is remembered as a
keyed digest, so that a scrape does not pay for bcrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import ConfigError, UnavailableError
from opsk.text import escape
from opsk_exporters.core.web_config import CIPHERS, CURVES, TlsConfig, WebConfig, load_web_config

LOG = logging.getLogger("opsk.exporter")
_VERSION = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_LONGEST_PASSWORD = 72
"""bcrypt ignores further bytes."""
_MAX_READS = 5
"""A file that changed so many times while it was read is reloaded with the next connection."""
_CLIENT_AUTH_ORDER = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
"""Client authentication modes, the weakest first."""
Stamp = tuple[tuple[str, int, int, int], ...]


class NotAllowedError(Exception):
    """A client's certificate is not one of those that may connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A configuration in force, and the files that it was read from."""

    config: WebConfig
    context: ssl.SSLContext | None
    stamp: Stamp


class WebAccess:
    """Decides about connections and requests.

    Parameters
    ----------
    path
        The web configuration file.
    clock
        Monotonic seconds.

    Raises
    ------
    ConfigError
        The file is wrong, or a certificate or key that it names cannot be used.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._slow = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._proven: dict[str, tuple[str, bytes]] = {}
        self._tokens = (0.0, 0.0)
        self.refused = {"password": 0, "rate": 0, "tls": 0}
        self.problem = ""
        self._tried: Stamp = ()
        self._loaded = self._load()
        if self._loaded.config.users:
            _load_bcrypt()

    @property
    def secure(self) -> bool:
        """Whether clients connect by TLS."""
        return self._current().context is not None

    def accept(self, raw: socket.socket) -> socket.socket:
        """Return the connection to read from: after the handshake where TLS is on.

        Raises
        ------
        OSError
            The handshake failed.
        NotAllowedError
            The client is not one of those that may connect.
        """
        loaded = self._current()
        if loaded.context is None:
            return raw
        try:
            wrapped = loaded.context.wrap_socket(raw, server_side=True)
            tls = loaded.config.tls
            if tls is not None and tls.client_allowed_sans is not None:
                _check_names(wrapped, tls.client_allowed_sans)
        except (OSError, NotAllowedError):
            self.refused["tls"] += 1
            raise
        return wrapped

    def headers(self) -> Mapping[str, str]:
        """Headers that every answer gets."""
        return self._current().config.headers

    def within_rate_limit(self) -> bool:
        """Return whether the rate limit, if any, allows a request now."""
        config = self._current().config
        if not config.rate_interval_s:
            return True
        with self._lock:
            tokens, updated_at = self._tokens
            now = self._clock()
            burst = float(max(1, config.rate_burst))
            tokens = burst if updated_at == 0.0 else min(burst, tokens + (now - updated_at) / config.rate_interval_s)
            self._tokens = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
            if tokens < 1.0:
                self.refused["rate"] += 1
            return tokens >= 1.0

    def is_authorised(self, authorization: str) -> bool:
        """Return whether a request's ``Authorization`` header authenticates one of the users."""
        users = self._current().config.users
        if not users:
            return True
        user, password = _parse_credentials(authorization)
        allowed = user is not None and self._verify(users, user, password)
        if not allowed:
            self.refused["password"] += 1
        return allowed

    def _verify(self, users: Mapping[str, str], user: str, password: bytes) -> bool:
        """Return whether a password is correct; for an unknown user it takes as long."""
        hashed = users.get(user)
        digest = hashlib.blake2b(password, key=self._secret, salt=b"opsk").digest()
        known = self._proven.get(user)
        if hashed is not None and known is not None and known[0] == hashed and hmac.compare_digest(known[1], digest):
            return True
        with self._slow:  # one at a time: guessing uses one core at most
            try:
                same = _load_bcrypt()(
                    password[:_LONGEST_PASSWORD], (hashed or next(iter(users.values()))).encode("ascii")
                )
            except ValueError:
                same = False
        if hashed is None or not same:
            return False
        self._proven[user] = (hashed, digest)
        return True

    def _current(self) -> _Loaded:
        """Return the configuration in force, after checking the files for changes."""
        with self._lock:
            stamp = self._stamp(self._loaded.config)
            if stamp != self._loaded.stamp and stamp != self._tried:
                self._reload(stamp)
            elif stamp == self._loaded.stamp and self.problem:
                self.problem, self._tried = "", ()
            return self._loaded

    def _reload(self, stamp: Stamp) -> None:
        """Read the files again; keep what is in force when they are wrong."""
        self._tried = stamp
        try:
            loaded = self._load()
            _check_not_weaker(self._path, self._loaded.config, loaded.config)
        except ConfigError as error:
            self.problem = error.message
            LOG.warning("web configuration: not taken over: %s", escape(error.message))
            return
        self._loaded = loaded
        self.problem, self._tried = "", ()
        users = self._loaded.config.users
        self._proven = {user: proof for user, proof in self._proven.items() if users.get(user) == proof[0]}
        LOG.info("web configuration: read again")

    def _load(self) -> _Loaded:
        """Read the files; again, when one changed meanwhile."""
        for _ in range(_MAX_READS):
            before = _file_stamp(self._path)
            config = load_web_config(self._path)
            stamp = self._stamp(config)
            context = _build_context(config.tls) if config.tls else None
            if stamp[0] == before and self._stamp(config) == stamp:
                return _Loaded(config=config, context=context, stamp=stamp)
        raise ConfigError(f"{self._path}: changes while it is read", hint="write it beside its name, then rename it")

    def _stamp(self, config: WebConfig) -> Stamp:
        """Return the stamps of the files, which change when a file does."""
        return tuple(_file_stamp(path) for path in (self._path, *(config.tls.files if config.tls else ())))


def _check_not_weaker(path: Path, old: WebConfig, new: WebConfig) -> None:
    """Raise when a configuration is weaker than the one in force: half a file can look like that."""
    lost = []
    if old.users and not new.users:
        lost.append("all passwords")
    if old.tls and not new.tls:
        lost.append("TLS")
    elif old.tls and new.tls:
        if _rank_client_auth(new.tls) < _rank_client_auth(old.tls):
            lost.append("the check of clients' certificates")
        if old.tls.client_allowed_sans is not None and new.tls.client_allowed_sans is None:
            lost.append("client_allowed_sans")
    if lost:
        raise ConfigError(f"{path}: takes away {' and '.join(lost)}: in force only after a restart of the exporter")


def _rank_client_auth(tls: TlsConfig) -> int:
    """Return the rank of the client authentication mode."""
    return _CLIENT_AUTH_ORDER.index(tls.client_auth_type) if tls.client_auth_type in _CLIENT_AUTH_ORDER else 0


def _file_stamp(path: Path) -> tuple[str, int, int, int]:
    """Return the stamp of a file, which changes when the file does; zeros when it is missing."""
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), status.st_mtime_ns, status.st_size, status.st_ino)


def _load_bcrypt() -> Callable[[bytes, bytes], bool]:
    """Return the function that compares a password with a hash."""
    try:
        from bcrypt import checkpw
    except ImportError as error:
        raise UnavailableError(
            "passwords need the package bcrypt", hint="install opsk with the extra exporter"
        ) from error
    return checkpw


def _parse_credentials(authorization: str) -> tuple[str | None, bytes]:
    """Return user and password of a header; no user where it is none of HTTP basic authentication."""
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        return None, b""
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode("utf-8") if colon else None), password
    except (binascii.Error, ValueError):
        return None, b""


def _build_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the TLS settings of a section."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TLS10 and TLS11, for sites that enable them
            context.minimum_version, context.maximum_version = _VERSION[tls.min_version], _VERSION[tls.max_version]
        ciphers = [CIPHERS[name] for name in tls.cipher_suites if name in CIPHERS]
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        if tls.curve_preferences:  # OpenSSL, as Python shows it, takes one: the site's first
            context.set_ecdh_curve(CURVES[tls.curve_preferences[0]])
        if not tls.prefer_server_cipher_suites:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        _load_certificate(context, tls)
        _ask_clients(context, tls)
    except (OSError, ValueError) as error:
        named = " ".join(map(str, tls.files))
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"tls_server_config: {why} ({named or 'certificate in the file'})",
            hint="certificate and key in PEM form, that belong together and that the exporter's user can read",
        ) from error
    return context


def _load_certificate(context: ssl.SSLContext, tls: TlsConfig) -> None:
    """Load certificate and key; text passes through a memory file, since OpenSSL requires a path."""
    if tls.cert_file and tls.key_file:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_passphrase)
        return
    descriptors = []
    try:
        paths = []
        for path, text in ((tls.cert_file, tls.cert), (tls.key_file, tls.key)):
            if path is None:
                descriptors.append(os.memfd_create("opsk-tls"))
                os.write(descriptors[-1], (text or "").encode("utf-8"))
                paths.append(f"/proc/self/fd/{descriptors[-1]}")
            else:
                paths.append(str(path))
        context.load_cert_chain(paths[0], paths[1], password=_no_passphrase)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _no_passphrase() -> str:
    """Refuse a key with a passphrase: OpenSSL would prompt for it on the terminal, and a service has none."""
    raise ValueError("the key has a passphrase, and there is nobody to ask for it")


def _ask_clients(context: ssl.SSLContext, tls: TlsConfig) -> None:
    """Request certificates from clients, where the section requires it."""
    modes = {"VerifyClientCertIfGiven": ssl.CERT_OPTIONAL, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
    if tls.client_auth_type not in modes:
        return
    context.verify_mode = modes[tls.client_auth_type]
    if tls.client_ca_file:
        context.load_verify_locations(cafile=tls.client_ca_file)
    elif tls.client_ca:
        context.load_verify_locations(cadata=tls.client_ca)
    else:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)


def _check_names(connection: ssl.SSLSocket, allowed: tuple[str, ...]) -> None:
    """Raise unless the client's certificate has one of the names."""
    certificate = connection.getpeercert() or {}
    names = {str(entry[1]) for entry in certificate.get("subjectAltName", ()) if len(entry) == 2}
    if not names.intersection(allowed):
        connection.close()
        raise NotAllowedError("the client's certificate has none of client_allowed_sans")
