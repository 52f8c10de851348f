"""Is a web configuration file read as the exporter-toolkit reads it, and every mistake named with its line?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import ConfigError
from opsk_exporters.core.web_config import CIPHERS, WebConfig, load_web_config, parse_web_config
from tests.fakes.certificates import Authority

HASH = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"
EXAMPLE = Path(__file__).parents[3] / "deploy" / "prometheus" / "exporter-web.yml"
WHERE = Path("/etc/opsk/web.yml")

WHOLE = f"""
tls_server_config:
  cert_file: exporter.crt
  key_file: /keys/exporter.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [X25519]
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: ""
basic_auth_users:
  alice: {HASH}
rate_limit: {{interval: 1m30s, burst: 20}}
"""


def parse(text: str) -> WebConfig:
    return parse_web_config(text.encode("utf-8", "surrogatepass"), WHERE)


def test_every_key_is_read() -> None:
    found = parse(WHOLE)
    tls = found.tls
    assert tls is not None
    # Relative paths begin at the folder of the file.
    assert tls.files == (WHERE.parent / "exporter.crt", Path("/keys/exporter.key"), WHERE.parent / "ca.crt")
    assert (tls.client_auth_type, tls.client_allowed_sans) == ("RequireAndVerifyClientCert", ("prometheus.example",))
    assert (tls.min_version, tls.max_version, tls.prefer_server_cipher_suites) == ("TLS12", "TLS13", False)
    assert tls.cipher_suites[0] in CIPHERS
    assert found.users == {"alice": HASH}
    assert found.headers == {"Strict-Transport-Security": "max-age=31536000", "X-Frame-Options": "deny"}
    assert (found.rate_interval_s, found.rate_burst) == (90.0, 20)


@pytest.mark.parametrize("text", ["", "# nothing\n", "tls_server_config:\nbasic_auth_users: {}\n"])
def test_an_empty_file_asks_for_nothing(text: str) -> None:
    assert parse(text) == WebConfig()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("tls_config:\n", 1, "unknown key 'tls_config' in the file"),
        ("\n\ntls_server_config:\n  cert: x\n  certfile: y\n", 5, "unknown key 'certfile' in tls_server_config"),
        ("http_server_config:\n  headers:\n    X-Powered-By: me\n", 3, "unknown key 'X-Powered-By' in headers"),
        ("http_server_config:\n  headers:\n    X-Frame-Options: allow\n", 3, "should be one of deny, sameorigin"),
        ('http_server_config:\n  headers:\n    X-XSS-Protection: "a\\nb"\n', 3, "plain characters on one line"),
        ("basic_auth_users:\n  alice: secret\n", 2, "user 'alice': should be a bcrypt hash"),
        (f"basic_auth_users:\n  'a:b': {HASH}\n", 2, "cannot contain a colon"),
        (f"basic_auth_users:\n  a: {HASH}\n  a: {HASH}\n", 3, "'a' is there twice"),
        ("basic_auth_users: [a]\n", 1, "should be keys with values"),
        ("rate_limit: {interval: 5, burst: 1}\n", 1, "should be a duration"),
        ("rate_limit: {interval: 5s, burst: -1}\n", 1, "should be a whole number"),
        ("tls_server_config: {cert_file: a}\n", 1, "has neither key_file nor key"),
        ("tls_server_config: {cert_file: a, cert: b, key: c}\n", 1, "has both cert_file and cert"),
        ("tls_server_config: {cert: a, key: b, client_ca: c}\n", 1, "no client_auth_type that uses it"),
        ("tls_server_config: {cert: a, key: b, client_auth_type: RequireAnyClientCert}\n", 1, "proves nothing"),
        ("tls_server_config: {cert: a, key: b, client_allowed_sans: [x]}\n", 1, "RequireAndVerifyClientCert"),
        ("tls_server_config: {cert: a, key: b, min_version: TLS14}\n", 1, "should be one of TLS10, TLS11"),
        ("tls_server_config: {cert: a, key: b, min_version: TLS13, max_version: TLS12}\n", 1, "above max_version"),
        ("tls_server_config: {cert: a, key: b, cipher_suites: [RC4]}\n", 1, "not 'RC4'"),
        ("tls_server_config: {cert: a, key: b, prefer_server_cipher_suites: maybe}\n", 1, "true or false"),
        ("a: [\n", 2, "no YAML"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, line: int, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert says in caught.value.message
    assert f"{WHERE}:{line}: " in caught.value.message


def test_all_mistakes_are_named_at_once_and_no_secret_is_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("basic_auth_users:\n  a: hunter2\n  b: hunter3\nother: 1\n")
    assert caught.value.message.count("; ") == 2
    assert "hunter" not in caught.value.message


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ConfigError:
        return


def test_a_file_that_is_not_there_or_endless_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_web_config(tmp_path / "none.yml")
    (tmp_path / "long.yml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        load_web_config(tmp_path / "long.yml")


def test_our_example_is_right_for_us_and_for_promtool(tmp_path: Path) -> None:
    assert load_web_config(EXAMPLE).users
    if shutil.which("promtool") is None:
        pytest.skip("no promtool (package prometheus)")
    pair = Authority(tmp_path).sign("exporter", "DNS:localhost")
    (tmp_path / "web.yml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    assert pair.cert.name == "exporter.crt"
    done = subprocess.run(
        ["promtool", "check", "web-config", str(tmp_path / "web.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
