"""Can a small file make opsk fill the memory of whoever looks at it?"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from opsk.app.inputs.fabric_files import read_text
from opsk.app.inputs.node_files import read_node_files
from opsk.app.inputs.plan_file import read_plan_file
from opsk.config import load_site
from opsk.costmodel.efficiency.default import parse_efficiency
from opsk.errors import InputError, OpskError
from opsk.hardware.catalog import parse_cluster
from opsk.telemetry.exporter_targets import read_targets
from opsk_exporters.core.settings import load_settings

ZEROS_BYTES = 128 << 20


def zeros(path: Path, head: bytes) -> Path:
    """Write a gzip of 128 MiB of zeros, which takes an eighth of one."""
    path.write_bytes(gzip.compress(head + bytes(ZEROS_BYTES), compresslevel=6))
    assert path.stat().st_size < 1 << 18
    return path


def long_name(kind: bytes) -> bytes:
    """Return the head of a tar entry whose name is as long as all that follows, as GNU tar and pax write long names."""
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = kind, ZEROS_BYTES
    return entry.tobuf(tarfile.USTAR_FORMAT)


def test_a_dump_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unpacks to more"):
        read_text(zeros(tmp_path / "fabric.gz", b"vendid=0x2c9\n"))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE], ids=["gnu", "pax"])
def test_an_archive_with_a_name_that_fills_memory_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(InputError, match="unpacks to more"):
        read_node_files([zeros(tmp_path / "n1.tar.gz", long_name(kind))])


def test_a_large_archive_of_small_files_is_read(tmp_path: Path) -> None:
    """The bound is far from what real archives of sysfs need."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for name, text in (("rate", b"400 Gb/sec (4X NDR)\n"), ("state", b"4: ACTIVE\n")):
            for device in range(4_000):
                entry = tarfile.TarInfo(f"infiniband/mlx5_{device}/ports/1/{name}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text))
    (tmp_path / "n1.tar.gz").write_bytes(packed.getvalue())
    assert len(read_node_files([tmp_path / "n1.tar.gz"])["n1"].nics) == 4_000


BOMBS = {
    "lists": "a = " + "[" * 100_000,
    "tables": "a = " + "{a=" * 100_000,
    "a key of 5,000 parts": "[" + ".".join("a" * 5_000) + "]\nx = 1\n",
    "a number of 50,000 digits": "a = " + "9" * 50_000,
    "tables a little too deep": "[" + ".".join("a" * 40) + "]\nx = 1\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_file_that_is_nested_beyond_sense_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text, encoding="ascii")
    for read in (
        lambda: parse_cluster(text, origin="x"), lambda: parse_efficiency(text, origin="x"),
        lambda: load_site(tmp_path / "x.toml"), lambda: read_plan_file(str(tmp_path / "x.toml")),
    ):  # fmt: skip
        with pytest.raises(OpskError):
            read()


@pytest.mark.parametrize("name", ["lists", "tables", "a number of 50,000 digits"])
def test_the_exporters_section_and_targets_of_doctor_are_one_error_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(BOMBS[name], encoding="ascii")
    with pytest.raises(OpskError):
        load_settings(path)
    path.write_text("[" * 10_000, encoding="ascii")
    with pytest.raises(OpskError):
        read_targets(path, tls=False)
