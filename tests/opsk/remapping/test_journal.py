"""What is written down survives crashes, and damaged files cost no more than what is damaged."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError, UnavailableError
from opsk.job_key import JobKey
from opsk.remapping.cluster_state import InitialState, Preconditions, Step
from opsk.remapping.decision import Decision
from opsk.remapping.journal import FileJournal, JournalLine, PlannedRemap, default_folder, new_id
from opsk.slurm.commands.remap_commands import Action, ActionKind

NAME = "7-20250101T000000-abcdef"
STEP = Step(
    number=0,
    argv=("scontrol", "requeue", "7"),
    text="scontrol requeue 7",
    action=Action(kind=ActionKind.REQUEUE),
)
BEGUN = PlannedRemap(
    id=NAME, at_s=1e9, by="ann", host="login", job="7", failed=("gpu:n2/1",), kind="spare_node", title="n5 for n2",
    steps=(STEP,),
    left=(("scontrol ...", "by an administrator"),),
    before=InitialState(restarts=2, required=("n1",)),
    world=Preconditions(job={"state": "RUNNING"}, nodes={"n1": "usable"}),
    decision=Decision(id=NAME, job="7", hosts=("n1", "n2"), gpu_order=(("n1", "0,2"),)),
)  # fmt: skip
LINES = (
    JournalLine(at_s=1e9, state="applying", by="ann"),
    JournalLine(at_s=1e9, state="started", by="ann", number=0),
    JournalLine(at_s=1e9 + 1, state="done", by="ann", number=0, said="x\ny \x1b[31m"),
)


@pytest.fixture
def journal(tmp_path: Path) -> FileJournal:
    found = FileJournal(tmp_path / "deep" / "journal")
    found.begin(BEGUN)
    for line in LINES:
        found.add(NAME, line)
    return found


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "journal" / f"{NAME}.jsonl"


def test_what_is_written_is_read_again(journal: FileJournal, tmp_path: Path) -> None:
    found = journal.read(NAME)
    assert (found.planned, found.lines, found.damaged) == (BEGUN, LINES, 0)
    assert (found.state, dict(found.steps), found.is_open) == ("applying", {0: "done"}, True)
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(tmp_path).parent.stat().st_mode) == 0o700


def test_a_name_is_used_once(journal: FileJournal) -> None:
    with pytest.raises(UnavailableError, match="cannot be used"):
        journal.begin(BEGUN)


@given(cut=st.integers(0, 4000))
def test_a_torn_end_costs_no_more_than_what_was_torn(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = FileJournal(folder)
    journal.begin(BEGUN)
    for line in LINES:
        journal.add(NAME, line)
    path = folder / f"{NAME}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(whole) - cut, 0)])
    try:
        left = journal.read(NAME)
    except InputError:
        assert whole[: max(len(whole) - cut, 0)].count(b"\n") == 0
        return
    assert left.lines == LINES[: len(left.lines)]
    journal.add(NAME, LINES[-1])
    assert journal.read(NAME).lines[-1] == LINES[-1]


def test_damage_in_the_middle_is_counted(journal: FileJournal, tmp_path: Path) -> None:
    rows = file_of(tmp_path).read_text().splitlines()
    file_of(tmp_path).write_text("\n".join([rows[0], "{", "[" * 5000, '{"at_s": "x"}', *rows[1:], ""]))
    found = journal.read(NAME)
    assert (found.lines, found.damaged) == (LINES, 3)


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "x", NAME + "/../x", "7-20250101T000000-ABCDEF"])
def test_what_is_no_name_is_refused(journal: FileJournal, name: str) -> None:
    with pytest.raises(InputError):
        journal.read(name)


def test_all_are_listed_the_last_first(journal: FileJournal, tmp_path: Path) -> None:
    (tmp_path / "deep" / "journal" / "notes.jsonl").write_text("not ours")
    (tmp_path / "deep" / "journal" / "8-20250101T000000-abcdef.jsonl").write_text("damaged")
    assert [remap.planned.id for remap in journal.all()] == [NAME]
    assert not FileJournal(tmp_path / "nowhere").all()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="Not a directory"):
        FileJournal(tmp_path / "file" / "journal").begin(BEGUN)


def test_names_are_of_their_own_and_the_folder_is_the_users() -> None:
    assert new_id("4711_3", 0.0) != new_id("4711_3", 0.0)
    assert new_id("4711_3", 0.0).startswith("4711_3-19700101T000000-")
    assert default_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/opsk/remaps")
    assert default_folder({"HOME": "/home/ann"}) == Path("/home/ann/.local/state/opsk/remaps")


def of(cluster: str, number: int = 7) -> PlannedRemap:
    key = JobKey(cluster=cluster, job=str(number))
    return replace(BEGUN, id=new_id(key.job, 0.0), job=key.job, cluster=cluster)


def test_jobs_of_two_clusters_with_one_number_are_remapped_at_once(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    with journal.lock(JobKey(cluster="east", job="7")), journal.lock(JobKey(cluster="west", job="7")):
        with (
            pytest.raises(UnavailableError, match="another opsk is remapping job 7 of cluster east now"),
            FileJournal(tmp_path).lock(JobKey(cluster="east", job="7")),
        ):
            pytest.fail("the lock is held")
        with journal.lock(JobKey(cluster="east", job="8")):
            pass
    with journal.lock(JobKey(cluster="east", job="7")):
        pass


def test_a_remap_is_kept_by_cluster_and_read_by_its_id(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    east, west, odd = of("east"), of("west"), of("../e a\n/st")
    for planned in (east, west, odd):
        journal.begin(planned)
        journal.add(planned.id, LINES[0])
    for planned in (east, west, odd):
        assert journal.read(planned.id).planned == planned
        assert journal.read(planned.id).lines == LINES[:1]
    assert {remap.planned.cluster for remap in journal.all()} == {"east", "west", "../e a\n/st"}
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[1:] == [f"east.{east.id}.jsonl", f"west.{west.id}.jsonl"]
    assert re.fullmatch(rf"c-[0-9a-f]{{16}}\.{odd.id}\.jsonl", names[0])


def test_what_opsk_0_1_wrote_is_read_and_gone_on_with(tmp_path: Path) -> None:
    """Its first line has no cluster, and its file is called by the id alone."""
    first = {"remap": {name: value for name, value in asdict(BEGUN).items() if name != "cluster"}}
    del first["remap"]["decision"]["cluster"]
    path = tmp_path / f"{NAME}.jsonl"
    path.write_text(json.dumps(first) + "\n")
    journal = FileJournal(tmp_path)
    assert journal.read(NAME).planned == BEGUN
    assert BEGUN.cluster == ""
    journal.add(NAME, LINES[0])
    assert [remap.state for remap in journal.all()] == ["applying"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.jsonl"]


def test_a_remap_of_an_older_opsk_is_listed_and_refused(journal: FileJournal, tmp_path: Path) -> None:
    path = file_of(tmp_path)
    first, *rest = path.read_text().splitlines()
    document = json.loads(first)
    for step in document["remap"]["steps"]:
        del step["action"]
    path.write_text("\n".join([json.dumps(document), *rest, ""]))
    assert [remap.planned.id for remap in journal.all()] == [NAME]
    with pytest.raises(InputError, match="by an older opsk") as refused:
        journal.read(NAME)
    assert "opsk remap --journal" in refused.value.hint


def test_a_step_keeps_what_its_command_does(journal: FileJournal) -> None:
    assert journal.read(NAME).planned.steps[0].action == Action(kind=ActionKind.REQUEUE)
