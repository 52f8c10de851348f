from dataclasses import replace
from pathlib import Path

import pytest

from opsk.errors import LabError
from opsk.lab.processes import Process
from opsk.lab.record import Daemon, LabShape, LabState, new_record, read_record


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    record = replace(
        new_record(tmp_path, shape=LabShape(nodes=4), user="alice", boot="b"),
        state=LabState.UP,
        first_port=20100,
        slurm=(22, 5),
        parts=("advisor",),
        up_s=2.5,
        daemons=(Daemon(name="munged", log=tmp_path / "log", process=Process(pid=7, started_ticks=9)),),
    )
    record.save()
    assert read_record(tmp_path) == record


def test_ports_follow_each_other(tmp_path: Path):
    record = replace(new_record(tmp_path, shape=LabShape(nodes=4), user="a", boot=""), first_port=20100)
    assert (record.slurmctld_port, record.slurmdbd_port, record.slurmd_ports) == (20100, 20101, (20102, 20105))


def test_no_record_is_no_lab(tmp_path: Path):
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "absent") is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"id": "x"}', b"\xff\xfe", b'{"id": 1e999}'])
def test_a_spoilt_record_is_one_clear_error(tmp_path: Path, text: bytes):
    (tmp_path / "lab.json").write_bytes(text)
    with pytest.raises(LabError) as caught:
        read_record(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "opsk lab down" in caught.value.hint


def test_the_record_of_a_copied_folder_is_refused(tmp_path: Path):
    original, copy = tmp_path / "a", tmp_path / "b"
    original.mkdir()
    copy.mkdir()
    new_record(original, shape=LabShape(), user="alice", boot="").save()
    (copy / "lab.json").write_bytes((original / "lab.json").read_bytes())
    with pytest.raises(LabError, match="is the record of the lab in"):
        read_record(copy)
