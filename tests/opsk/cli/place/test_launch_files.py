"""Files for launchers that ``opsk place`` writes where asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.small_plans import small_plan

PLAN = small_plan(gpus_per_node=2, tp=2, dp=2, global_batch=4)


def run(folder: Path, *arguments: str) -> Result:
    (folder / "plan.toml").write_text(PLAN)
    dump = folder / "fabric.ibnetdiscover"
    dump.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=1)))
    command = ["place", str(folder / "plan.toml"), "--nodes", "n[2-3]", "--fabric", str(dump), *arguments]
    return CliRunner().invoke(opsk, command)


def test_every_file_is_written_where_asked(tmp_path: Path) -> None:
    names = ("host", "mpi", "torchrun")
    options = zip(("--host-file", "--mpi-rank-file", "--torchrun-file"), names, strict=True)
    done = run(tmp_path, *(word for option, name in options for word in (option, str(tmp_path / name))))
    assert done.exception is None, done.output
    assert [(tmp_path / name).read_text() for name in names] == [
        "n2\nn2\nn3\nn3\n",
        "rank 0=n2 slot=0\nrank 1=n2 slot=1\nrank 2=n3 slot=0\nrank 3=n3 slot=1\n",
        "n2 0\nn3 1\n",
    ]


@pytest.mark.parametrize("option", ["--rank-file", "--mpi-rank-file", "--torchrun-file"])
def test_a_file_that_cannot_be_written_is_named_with_its_option(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, option, str(tmp_path / "absent" / "file"))
    assert isinstance(done.exception, InputError)
    assert "absent/file" in done.exception.message
    assert option in done.exception.hint
