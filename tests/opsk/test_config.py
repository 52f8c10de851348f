from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from opsk import config
from opsk.config import SiteConfig, load_site
from opsk.errors import ConfigError


def _site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "opsk.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_site_without_a_file_gets_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.toml")
    assert load_site() == SiteConfig()
    assert load_site().advisor.submit_deadline_s == 0.020  # design: 20 ms by default


def test_the_file_of_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _site(tmp_path, 'cluster = "titan"\nfabric = ["/var/lib/opsk/ib.txt"]\n[advisor]\ncli_deadline_s = 0.5\n')
    monkeypatch.setenv("OPSK_CONFIG", str(path))
    site = load_site()
    assert (site.cluster, site.fabric, site.advisor.cli_deadline_s) == ("titan", (Path("/var/lib/opsk/ib.txt"),), 0.5)


def test_a_named_file_beats_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "none.toml"))
    assert load_site(_site(tmp_path, 'cluster = "summit"')).cluster == "summit"


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_site(tmp_path / "none.toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load_site(tmp_path)


def test_a_default_file_that_may_not_be_read_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "file" / "opsk.toml")
    with pytest.raises(ConfigError, match="Not a directory"):
        load_site()


def test_every_violation_is_named_at_once(tmp_path: Path) -> None:
    path = _site(tmp_path, "cluster = 3\nfoo = 1\n[advisor]\nsubmit_deadline_s = 0\ncli_deadline_s = 99\n")
    with pytest.raises(ConfigError) as caught:
        load_site(path)
    for place in (str(path), "cluster", "foo", "advisor.submit_deadline_s", "advisor.cli_deadline_s"):
        assert place in caught.value.message


@pytest.mark.parametrize(
    "data", [b"\x7fELF\xff\x00", b"cluster = [", b"a = " + b"[" * 5000], ids=["binary", "cut", "deep"]
)
def test_what_is_no_toml_is_refused_in_words(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "opsk.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"opsk\.toml: "):
        load_site(path)


def test_a_site_may_name_its_own_efficiencies(tmp_path: Path) -> None:
    assert load_site(_site(tmp_path, 'efficiency = "/etc/opsk/efficiency.toml"')).efficiency == Path(
        "/etc/opsk/efficiency.toml"
    )


def test_a_policy_is_a_row_of_rules(tmp_path: Path) -> None:
    text = """
    [[advisor.policy]]
    partition = "debug"
    action = "off"

    [[advisor.policy]]
    account = ["students", "guest-*"]
    action = "hold"
    oom_probability = 0.999
    """
    (tmp_path / "opsk.toml").write_text(text)
    first, second = load_site(tmp_path / "opsk.toml").advisor.policy
    assert (first.partition, first.action) == (("debug",), "off")
    assert (second.account, second.qos, second.oom_probability) == (("students", "guest-*"), (), 0.999)


def test_all_that_is_wrong_with_a_policy_is_named_at_once(tmp_path: Path) -> None:
    text = """
    [[advisor.policy]]
    action = "kill"

    [[advisor.policy]]
    action = "hold"
    oom_probability = 0.2
    user = "root"
    """
    (tmp_path / "opsk.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_site(tmp_path / "opsk.toml")
    for name in ("policy.0.action", "policy.1.oom_probability", "policy.1.user"):
        assert name in caught.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('clutser = "x"', "clutser: unknown key, closest: cluster"),
        ("[advisor]\nlive_interval = 3", "advisor.live_interval: unknown key, closest: live_interval_s"),
        ('[[advisor.policy]]\naction = "hold"\nqoss = "a"', "advisor.policy.0.qoss: unknown key, closest: qos"),
        ("[slurm]\nzzz = 1", "slurm.zzz: unknown key, known: adapter"),
        ('[advisor.policy]\naction = "hold"', "advisor.policy: every rule begins with [[advisor.policy]]"),
        ('[advisor]\nsocket_mode = "0660"', "advisor.socket_mode: is a number such as 0o666"),
        ("[advisor]\nsocket_mode = 666", "advisor.socket_mode: is a number such as 0o666"),
        ('[fabric_roles]\ncomputes = "n*"', "should be 'compute', 'storage' or 'management'"),
    ],
)
def test_a_mistake_is_told_in_an_administrators_words(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_site(_site(tmp_path, text))
    assert told in caught.value.message
    assert "site-configuration.md" in caught.value.hint


def test_one_dump_and_one_user_need_no_list(tmp_path: Path) -> None:
    site = load_site(_site(tmp_path, 'fabric = "ib.txt"\n[advisor]\nsubmit_users = "slurm"\n'))
    assert (site.fabric, site.advisor.submit_users) == ((Path("ib.txt"),), ("slurm",))


def test_every_key_is_on_the_page_that_mistakes_point_to() -> None:
    page = (Path(__file__).parents[2] / config.KEYS_PAGE).read_text(encoding="utf-8")
    tables = {
        "": SiteConfig.model_fields.keys()
        - {"advisor", "exporter", "history", "learning", "postmortem", "slurm", "storage", "store", "top"},
        "history": config.HistoryConfig.model_fields.keys(),
        "learning": config.LearningConfig.model_fields.keys(),
        "rule": config.PolicyRule.model_fields.keys(),
        "advisor": config.AdvisorConfig.model_fields.keys(),
        "postmortem": config.PostmortemConfig.model_fields.keys(),
        "top": config.TopConfig.model_fields.keys(),
        "slurm": {f"slurm.{name}" for name in config.SlurmConfig.model_fields},
        "storage": {f"storage.{name}" for name in config.StorageConfig.model_fields},
        "store": {f"store.{name}" for name in config.StoreConfig.model_fields},
    }
    assert [name for names in tables.values() for name in sorted(names) if f"`{name}`" not in page] == []
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert SiteConfig.model_validate(tomllib.loads(example)).advisor.default_partition == "gpu"
