"""Are the hooks installed whole, with the site's own settings?"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from opsk.config import AdvisorConfig, PolicyRule, SiteConfig
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS, install_hooks, render_hook_settings

SITE = SiteConfig(advisor=AdvisorConfig(socket=Path("/run/x/a.sock"), submit_deadline_s=0.015, cli_deadline_s=0.5))


def test_settings_carry_the_sites_socket_and_deadlines() -> None:
    lines = render_hook_settings(SITE, gpus_implied=True).splitlines()
    assert "socket = /run/x/a.sock" in lines
    assert "submit_deadline_ms = 15" in lines
    assert "cli_deadline_ms = 500" in lines
    assert "gpus_implied = yes" in lines


def test_everything_is_installed_readable_for_all(tmp_path: Path) -> None:
    install_hooks(tmp_path, SITE)
    install_hooks(tmp_path, SITE)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*HOOKS, ADVICE, SETTINGS))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}


def test_a_hook_is_newer_than_its_settings(tmp_path: Path) -> None:
    """slurmctld reads a hook again when its time stamp is newer; it must then find the new settings."""
    install_hooks(tmp_path, SITE)
    assert (tmp_path / HOOKS[0]).stat().st_mtime_ns >= (tmp_path / SETTINGS).stat().st_mtime_ns


def test_what_a_hook_goes_on_with_is_there_before_it(tmp_path: Path) -> None:
    install_hooks(tmp_path, SITE)
    assert (tmp_path / HOOKS[1]).stat().st_mtime_ns >= (tmp_path / ADVICE).stat().st_mtime_ns


@pytest.mark.parametrize(
    ("actions", "setting"),
    [
        ([], "none"),
        (["annotate", "shadow"], "rules"),
        (["off", "hold"], "enforce"),
        (["reject"], "enforce"),
    ],
)
def test_only_a_policy_that_holds_or_refuses_lets_the_hook_do_so(actions: list[str], setting: str) -> None:
    policy = [{"action": action} for action in actions]
    site = SiteConfig.model_validate({"advisor": {"policy": policy}})
    assert f"policy = {setting}\n" in render_hook_settings(site)


def test_what_an_administrator_wrote_into_the_settings_stays(tmp_path: Path) -> None:
    install_hooks(tmp_path, SiteConfig())
    settings = tmp_path / "opsk-hooks.conf"
    written = settings.read_text().replace("submit_lines = auto", "submit_lines=never")
    settings.write_text(written.replace("gpus_implied = no", "gpus_implied = yes").replace("= 20\n", "= 500\n"))
    rule = PolicyRule(action="hold")
    install_hooks(tmp_path, SiteConfig(advisor=AdvisorConfig(policy=(rule,))))
    found = settings.read_text().splitlines()
    assert {"submit_lines = never", "gpus_implied = yes", "policy = enforce"} <= set(found)
    assert "submit_deadline_ms = 20" in found  # that stands in the site configuration
