"""What does cli_filter.lua load, and from where? Its own second half and Lua's libraries, never what lies about."""

from __future__ import annotations

import pytest

from opsk_jobcheck.service.hooks import ADVICE
from tests.fakes.bad_servers import AnswerWith, Serve
from tests.fakes.hook_runner import Hooks
from tests.fakes.submissions import SCRIPT, pre_submit, sbatch, shown_advice


@pytest.mark.parametrize("text", [None, "", "return 7", "half a sentence (", "error('no')"])
def test_without_what_it_goes_on_with_nothing_is_printed(hooks: Hooks, serve: Serve, text: str | None) -> None:
    """Configless Slurm sends it alone."""
    serve(AnswerWith(shown_advice()))
    (hooks.directory / ADVICE).unlink()
    if text is not None:
        (hooks.directory / ADVICE).write_text(text)
    ran = sbatch(hooks)
    assert ran.stderr == ""
    assert ran.one("returned") == "0"


def test_what_it_goes_on_with_is_never_taken_from_the_current_directory(hooks: Hooks, serve: Serve) -> None:
    """Where SLURM_CONF is no absolute path, Slurm names its hook without one too."""
    serve(AnswerWith(shown_advice()))
    (hooks.directory / ADVICE).write_text('emit("loaded", "mine")')
    (hooks.directory / "train.sh").write_text(SCRIPT)
    again = 'assert(loadfile("cli_filter.lua"))()\n'
    ran = hooks.filter(again + pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}'))
    assert ran.of("loaded") == []
    assert ran.one("returned") == "0"


@pytest.mark.parametrize("missing", ["socket.unix", "socket.core"])
def test_without_lua_socket_nothing_is_printed(hooks: Hooks, missing: str) -> None:
    (hooks.directory / "train.sh").write_text(SCRIPT)
    ran = hooks.filter(
        f'package.preload["{missing}"] = function() error("none") end\n'
        + pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}')
    )
    assert ran.stderr == ""
    assert ran.one("returned") == "0"


@pytest.mark.parametrize("name", ["lfs", "socket.unix"])
def test_a_library_in_the_current_directory_is_not_loaded(hooks: Hooks, serve: Serve, name: str) -> None:
    """Lua looks there first, and a project's directory may be anybody's to write."""
    serve(AnswerWith(shown_advice()))
    place = hooks.directory / f"{name.replace('.', '/')}.lua"
    place.parent.mkdir(exist_ok=True)
    place.write_text('emit("loaded", "mine")')
    (hooks.directory / "train.sh").write_text(SCRIPT)
    forget = f'package.loaded["{name}"] = nil\n'
    ran = hooks.filter(forget + pre_submit(f'argv = {{ "{hooks.directory}/train.sh" }}'))
    assert ran.of("loaded") == []
    assert ran.stderr.startswith("sbatch: opsk")
