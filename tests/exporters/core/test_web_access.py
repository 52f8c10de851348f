"""Do only those get in who may, and does a change of the files come into force by itself?"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
from prometheus_client import Metric

from opsk.errors import ConfigError
from opsk_exporters.core import web_access
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.exposition import Families
from opsk_exporters.core.server import ExporterServer, ListenAddress, Pages, open_server
from opsk_exporters.core.web_access import WebAccess
from opsk_exporters.core.web_config import WebConfig, load_web_config
from tests.fakes import prometheus_server
from tests.fakes.certificates import Authority, Pair

PATIENCE_S = 60.0
HASH = bcrypt.hashpw(b"pass:word", bcrypt.gensalt(4)).decode("ascii")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.sign("exporter", "DNS:localhost", "IP:127.0.0.1")


class One:
    name = "one"

    def collect(self) -> Iterable[Metric]:
        families = Families()
        families.gauge("opsk_one", "One.", 1)
        return families.all()


@contextmanager
def serving(path: Path) -> Iterator[tuple[ExporterServer, WebAccess]]:
    access = WebAccess(path)
    server = open_server(ListenAddress("127.0.0.1", 0), Pages(Scraper([One()]), access), access)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server, access
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(address: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def trusting(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca.cert)
    if client:
        context.load_cert_chain(client.cert, client.key)
    return context


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def tls(pair: Pair, more: str = "") -> str:
    return f"tls_server_config:\n  cert_file: {pair.cert}\n  key_file: {pair.key}\n{more}"


def test_only_a_right_password_gets_in(tmp_path: Path) -> None:
    with serving(write(tmp_path / "web.yml", f"basic_auth_users:\n  ada: {HASH}\n")) as (server, access):
        address = f"{server.shown_address}/metrics"
        assert address.startswith("http://")
        refused = [
            {},
            {"Authorization": basic("ada", "wrong")},
            {"Authorization": basic("eve", "pass:word")},
            {"Authorization": "Basic !"},
            {"Authorization": "Bearer x"},
            {"Authorization": basic("ada", "x" * 1000)},
            {"Authorization": basic("ada", "\0")},
        ]
        for headers in refused:
            status, said, body = get(address, **headers)
            assert (status, body) == (401, "Unauthorized\n"), headers
            assert said["WWW-Authenticate"].startswith("Basic ")
        status, _, body = get(address, Authorization=basic("ada", "pass:word"))
        assert status == 200
        assert 'opsk_exporter_refused_requests_total{why="password"} 7.0\n' in body
        assert access.refused["password"] == len(refused)
        # The page and the health are behind the same password.
        assert [get(f"{server.shown_address}{path}")[0] for path in ("/", "/healthz")] == [401, 401]


def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted() -> Callable[[bytes, bytes], bool]:
        return lambda password, hashed: asked.append(password) or bcrypt.checkpw(password, hashed)  # type: ignore[func-returns-value]

    monkeypatch.setattr(web_access, "_load_bcrypt", counted)
    access = WebAccess(write(tmp_path / "web.yml", f"basic_auth_users:\n  ada: {HASH}\n"))
    assert [access.is_authorised(basic("ada", "pass:word")) for _ in range(5)] == [True] * 5
    assert len(asked) == 1
    assert [access.is_authorised(basic("ada", "wrong")) for _ in range(3)] == [False] * 3
    assert len(asked) == 4
    # For a user who is not there it takes as long.
    assert not access.is_authorised(basic("eve", "pass:word"))
    assert len(asked) == 5


def test_a_new_password_is_in_force_at_once_and_a_broken_file_never(tmp_path: Path) -> None:
    path = write(tmp_path / "web.yml", f"basic_auth_users:\n  ada: {HASH}\n")
    access = WebAccess(path)
    assert access.is_authorised(basic("ada", "pass:word"))
    other = bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode("ascii")
    write(path, f"basic_auth_users:\n  ada: {other}\n# changed\n")
    assert not access.is_authorised(basic("ada", "pass:word"))
    assert access.is_authorised(basic("ada", "new"))
    write(path, "basic_auth_user:\n")
    assert access.is_authorised(basic("ada", "new"))
    assert "unknown key 'basic_auth_user'" in access.problem
    path.unlink()
    assert access.is_authorised(basic("ada", "new"))
    assert not access.is_authorised("")
    write(path, f"basic_auth_users:\n  eve: {other}\n")
    assert access.is_authorised(basic("eve", "new"))
    assert access.problem == ""


@pytest.mark.parametrize("half", ["", "# passwords\n", "http_server_config: {}\n"])
def test_a_file_that_is_half_written_opens_nothing(tmp_path: Path, half: str) -> None:
    right = f"basic_auth_users:\n  ada: {HASH}\n"
    path = write(tmp_path / "web.yml", right)
    access = WebAccess(path)
    write(path, half)
    assert not access.is_authorised("")
    assert "takes away all passwords: in force only after a restart" in access.problem
    assert access.is_authorised(basic("ada", "pass:word"))
    write(path, right + "# whole\n")
    assert not access.is_authorised("")
    assert access.problem == ""
    # Who means it starts anew.
    write(path, half)
    assert WebAccess(path).is_authorised("")


def test_neither_tls_nor_the_check_of_clients_goes_while_it_runs(
    tmp_path: Path, pair: Pair, authority: Authority
) -> None:
    asks = f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.ca.cert}\n"
    whole = tls(pair, f"{asks}  client_allowed_sans: [prometheus.example]\n")
    path = write(tmp_path / "web.yml", whole)
    access = WebAccess(path)
    for half, lost in (("", "TLS"), (tls(pair), "the check of clients'"), (tls(pair, asks), "client_allowed_sans")):
        write(path, half)
        assert access.secure
        assert lost in access.problem
    write(path, whole)
    assert access.secure
    assert access.problem == ""


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = f"basic_auth_users:\n  ada: {HASH}\n"
    path = write(tmp_path / "web.yml", "")
    left = [2]

    def overtaken(where: Path) -> WebConfig:
        found = load_web_config(where)  # empty: the writer has cut it, and finishes before the reader looks at its time
        if left[0]:
            left[0] -= 1
            write(path, right + "#\n" * left[0])
        return found

    monkeypatch.setattr(web_access, "load_web_config", overtaken)
    access = WebAccess(path)
    assert left == [0]
    assert not access.is_authorised("")
    assert access.is_authorised(basic("ada", "pass:word"))


def test_a_file_that_never_rests_is_left_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = f"basic_auth_users:\n  ada: {HASH}\n"
    path = write(tmp_path / "web.yml", right)
    access = WebAccess(path)
    reads = [0]

    def restless(where: Path) -> WebConfig:
        reads[0] += 1
        found = load_web_config(where)
        write(path, right + "#\n" * reads[0])
        return found

    monkeypatch.setattr(web_access, "load_web_config", restless)
    write(path, right + "# new\n")
    assert not access.is_authorised("")
    assert "changes while it is read" in access.problem
    monkeypatch.undo()
    assert not access.is_authorised("")
    assert access.problem == ""


def test_a_file_that_is_wrong_at_the_start_is_refused(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    other = authority.sign("other", "DNS:other")
    mixed = Pair(cert=pair.cert, key=other.key)
    for text in (tls(mixed), tls(Pair(cert=tmp_path / "none", key=pair.key)), "tls_server_config: {cert: x, key: y}\n"):
        with pytest.raises(ConfigError, match="tls_server_config: "):
            WebAccess(write(tmp_path / "web.yml", text))


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(tmp_path: Path, pair: Pair) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", str(pair.key), "-aes128", "-passout", "pass:x", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ConfigError, match="passphrase"):
        WebAccess(write(tmp_path / "web.yml", tls(Pair(cert=pair.cert, key=locked))))


def test_tls_from_files_and_from_the_file_itself(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    inline = "tls_server_config:\n"
    for name, path in (("cert", pair.cert), ("key", pair.key)):
        inline += f"  {name}: |\n" + "".join(f"    {line}\n" for line in path.read_text(encoding="ascii").splitlines())
    for text in (tls(pair), inline):
        with serving(write(tmp_path / "web.yml", text)) as (server, _):
            address = server.shown_address.replace("127.0.0.1", "localhost")
            assert address.startswith("https://")
            status, headers, body = get(f"{address}/metrics", trusting(authority))
            assert (status, headers["X-Content-Type-Options"]) == (200, "nosniff")
            assert "opsk_exporter_web_config_ok 1.0\n" in body


def test_plain_http_and_silence_on_a_tls_port_hurt_nobody(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    with serving(write(tmp_path / "web.yml", tls(pair))) as (server, access):
        where = ("127.0.0.1", server.server_port)
        with socket.create_connection(where) as silent, socket.create_connection(where) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            plain.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert b"opsk" not in plain.recv(4096)
            assert get(f"{server.shown_address}/metrics", trusting(authority))[0] == 200
            silent.close()
        assert access.refused["tls"] >= 1


@pytest.mark.parametrize(
    ("asks", "with_certificate", "without"),
    [
        ("NoClientCert", True, True),
        ("VerifyClientCertIfGiven", True, True),
        ("RequireAndVerifyClientCert", True, False),
    ],
)
def test_clients_prove_who_they_are(
    tmp_path: Path, pair: Pair, authority: Authority, asks: str, with_certificate: bool, without: bool
) -> None:
    client = authority.sign("client", "DNS:prometheus.example")
    stranger = Authority(tmp_path / "elsewhere").sign("client", "DNS:prometheus.example")
    ca = "" if asks == "NoClientCert" else f"  client_ca_file: {authority.ca.cert}\n"
    with serving(write(tmp_path / "web.yml", tls(pair, f"  client_auth_type: {asks}\n{ca}"))) as (server, _):
        assert answers(server, trusting(authority, client)) is with_certificate
        assert answers(server, trusting(authority)) is without
        assert answers(server, trusting(authority, stranger)) is (asks == "NoClientCert")


def test_only_named_clients_get_in(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    more = (
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.ca.cert}\n"
        "  client_allowed_sans: [prometheus.example]\n"
    )
    named, other = authority.sign("a", "DNS:prometheus.example"), authority.sign("b", "DNS:other.example")
    with serving(write(tmp_path / "web.yml", tls(pair, more))) as (server, _):
        assert answers(server, trusting(authority, named))
        assert not answers(server, trusting(authority, other))


def answers(server: ExporterServer, context: ssl.SSLContext) -> bool:
    try:
        return get(f"{server.shown_address}/healthz", context)[0] == 200
    except (urllib.error.URLError, OSError):
        return False


def test_versions_of_tls_are_those_of_the_file(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    more = "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
    path = write(tmp_path / "web.yml", tls(pair, more))
    with serving(path) as (server, _):
        where = ("127.0.0.1", server.server_port)
        context = trusting(authority)
        with socket.create_connection(where) as raw, context.wrap_socket(raw, server_hostname="localhost") as wrapped:
            assert wrapped.version() == "TLSv1.2"
            assert (wrapped.cipher() or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        assert not answers(server, context)
        write(path, tls(pair, "  min_version: TLS13\n"))
        assert answers(server, context)


def test_a_renewed_certificate_is_shown_to_the_next_client(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    with serving(write(tmp_path / "web.yml", tls(pair))) as (server, _):
        where, context = ("127.0.0.1", server.server_port), trusting(authority)
        assert answers(server, context)
        renewed = authority.sign("renewed", "DNS:localhost", "IP:127.0.0.1")
        renewed.key.replace(pair.key)
        renewed.cert.replace(pair.cert)
        with socket.create_connection(where) as raw, context.wrap_socket(raw, server_hostname="localhost") as wrapped:
            subject = (wrapped.getpeercert() or {})["subject"]
        assert subject == ((("commonName", "renewed"),),)


def test_headers_of_the_file_are_on_every_answer(tmp_path: Path) -> None:
    text = "http_server_config:\n  headers:\n    Content-Security-Policy: default-src 'self'\n"
    with serving(write(tmp_path / "web.yml", text)) as (server, _):
        for path in ("/", "/metrics", "/nothing"):
            assert get(f"{server.shown_address}{path}")[1]["Content-Security-Policy"] == "default-src 'self'"


def test_the_rate_limit_lets_a_burst_through_and_then_some(tmp_path: Path) -> None:
    now = [100.0]
    access = WebAccess(write(tmp_path / "web.yml", "rate_limit: {interval: 1s, burst: 3}\n"), clock=lambda: now[0])
    assert [access.within_rate_limit() for _ in range(4)] == [True, True, True, False]
    now[0] += 1.0
    assert [access.within_rate_limit() for _ in range(2)] == [True, False]
    now[0] += 100.0
    assert [access.within_rate_limit() for _ in range(4)] == [True, True, True, False]


def test_a_real_prometheus_scrapes_over_tls_with_a_password(tmp_path: Path, pair: Pair, authority: Authority) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus (package prometheus)")
    users = f"basic_auth_users:\n  ada: {HASH}\n"
    with serving(write(tmp_path / "web.yml", tls(pair) + users)) as (server, access):
        target = f"localhost:{server.server_port}"
        jobs = "".join(
            f"""
  - job_name: {name}
    scheme: https
    tls_config: {{ca_file: {authority.ca.cert}}}
    basic_auth: {{username: ada, password: "{password}"}}
    static_configs: [{{targets: ["{target}"]}}]"""
            for name, password in (("right", "pass:word"), ("wrong", "word"))
        )
        text = f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:{jobs}\n"
        config = write(tmp_path / "prometheus.yml", text)
        with prometheus_server.serving("prometheus", config, tmp_path / "tsdb") as url:
            up = settled(lambda: by_job(url, "up"), lambda found: len(found) == 2 and found.get("right") == 1.0)
            assert up == {"right": 1.0, "wrong": 0.0}
            assert by_job(url, "opsk_one") == {"right": 1.0}
        assert access.refused["password"] > 0


def settled(ask: Callable[[], dict[str, float]], enough: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    give_up = time.monotonic() + PATIENCE_S
    while not enough(found := ask()) and time.monotonic() < give_up:
        time.sleep(0.2)
    return found


def by_job(url: str, query: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/api/v1/query?query={query}", timeout=PATIENCE_S) as answer:
        found = json.load(answer)["data"]["result"]
    return {each["metric"]["job"]: float(each["value"][1]) for each in found}
