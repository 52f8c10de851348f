"""Do the modulefiles ask for what they should? Stand-ins for their commands tell; the real programs are beside this."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from opsk import __version__

LUA = next((path for name in ("lua5.1", "lua5.3", "lua") if (path := shutil.which(name))), None)
TCLSH = shutil.which("tclsh")

LUA_STAND_INS = """
local file = arg[1]
function myFileName() return file end
function pathJoin(a, b) return a .. "/" .. b end
function isFile(path) local found = io.open(path) if found then found:close() end return found ~= nil end
function whatis(text) print("whatis " .. text) end
function help(text) print("help " .. text) end
function conflict(name) print("conflict " .. name) end
function prepend_path(name, value) print("prepend " .. name .. " " .. value) end
function LmodError(text) print("error " .. text) os.exit(1) end
dofile(file)
"""
TCL_STAND_INS = """
set ModulesCurrentModulefile [lindex $argv 0]
proc module-whatis {text} {puts "whatis $text"}
proc module-info {args} {return 1}
proc conflict {name} {puts "conflict $name"}
proc prepend-path {name value} {puts "prepend $name $value"}
while 1 {source $ModulesCurrentModulefile; ModulesHelp; exit 0}
exit 1
"""


@pytest.fixture
def installed(root: Path, tmp_path: Path) -> Path:
    """Return a folder like ``share/opsk`` below a prefix whose opsk says where it is."""
    prefix = tmp_path / "prefix with space"
    share = prefix / "share" / "opsk"
    shutil.copytree(root / "modulefiles", share / "modulefiles")
    (share / "deploy" / "bin").mkdir(parents=True)
    shutil.copy(root / "deploy" / "bin" / "opsk", share / "deploy" / "bin")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "opsk").write_text('#!/bin/sh\necho "installed opsk $*"\n', encoding="ascii")
    (prefix / "bin" / "opsk").chmod(0o755)
    (prefix / "bin" / "python3").symlink_to("/bin/true")
    return share


def run(*command: str | Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        input=stdin,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_there_is_one_file_of_each_kind_for_this_version_and_no_other(root: Path) -> None:
    assert {path.name for path in (root / "modulefiles" / "opsk").iterdir()} == {__version__, f"{__version__}.lua"}
    # The name says it alone: a release renames the two files.
    for path in (root / "modulefiles" / "opsk").iterdir():
        assert __version__ not in path.read_text(encoding="utf-8")


def in_lua(modulefile: Path) -> subprocess.CompletedProcess[str]:
    if LUA is None:
        pytest.skip("no Lua interpreter (Debian package lua5.1)")
    return run(LUA, "-", modulefile, stdin=LUA_STAND_INS)


def in_tcl(modulefile: Path) -> subprocess.CompletedProcess[str]:
    if TCLSH is None:
        pytest.skip("no Tcl interpreter (Debian package tcl)")
    return run(TCLSH, "/dev/stdin", modulefile, stdin=TCL_STAND_INS)


def test_the_lua_file_asks_for_what_it_should(installed: Path) -> None:
    done = in_lua(installed / "modulefiles" / "opsk" / f"{__version__}.lua")
    assert done.returncode == 0, done.stderr
    assert f"prepend PATH {installed}/deploy/bin\n" in done.stdout
    assert "conflict opsk\n" in done.stdout
    assert f"whatis Version: {__version__}\n" in done.stdout
    assert "opsk check SCRIPT" in done.stdout


def test_the_tcl_file_asks_for_what_it_should(installed: Path) -> None:
    modulefile = installed / "modulefiles" / "opsk" / __version__
    assert modulefile.read_text(encoding="utf-8").startswith("#%Module")
    done = in_tcl(modulefile)
    assert done.returncode == 0, done.stderr
    assert f"prepend PATH {installed}/deploy/bin\n" in done.stdout
    assert "conflict opsk\n" in done.stdout
    assert f"whatis opsk {__version__}:" in done.stdout
    assert "opsk check SCRIPT" in done.stderr


@pytest.mark.parametrize(("suffix", "interpret"), [(".lua", in_lua), ("", in_tcl)])
def test_an_incomplete_installation_is_refused_by_name(installed: Path, suffix: str, interpret: object) -> None:
    (installed / "deploy" / "bin" / "opsk").unlink()
    done = interpret(installed / "modulefiles" / "opsk" / f"{__version__}{suffix}")  # type: ignore[operator]
    assert done.returncode == 1
    assert f"{installed}/deploy/bin/opsk is missing" in done.stdout + done.stderr
    assert "prepend" not in done.stdout


def test_the_launcher_runs_the_opsk_of_its_prefix_through_links_too(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(installed / "deploy" / "bin" / "opsk")
    for launcher in (installed / "deploy" / "bin" / "opsk", tmp_path / "link"):
        done = run(launcher, "check", "a b")
        assert (done.returncode, done.stdout) == (0, "installed opsk check a b\n")


def test_a_launcher_without_an_installation_says_where_it_looked(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "deploy" / "bin" / "opsk", tmp_path)
    done = run(tmp_path / "opsk")
    assert done.returncode == 3
    assert str(tmp_path) in done.stderr
