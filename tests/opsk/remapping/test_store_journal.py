"""The store hears of every remap, and its trouble stops none."""

from __future__ import annotations

from pathlib import Path

from opsk.errors import StoreError
from opsk.remapping.execution import execute
from opsk.remapping.journal import FileJournal
from opsk.remapping.store_journal import StoreJournal
from opsk.store.database.engine import open_store
from opsk.store.writing import DirectWriter
from tests.fakes.slurm_world import SlurmWorld
from tests.fakes.stored_remaps import find_remaps
from tests.opsk.remapping.test_execution import begun_of, hands_of


def test_moves_and_steps_are_in_the_store(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/store.db")
    world = SlurmWorld(tmp_path / "world.json")
    kept = StoreJournal(FileJournal(tmp_path / "journal"), DirectWriter(engine), "small", lambda text: None)
    plain = hands_of(tmp_path, world)
    context = type(plain)(journal=kept, cluster=world, run=world, clock=plain.clock, sleep=plain.sleep, by="ann")
    planned = begun_of(tmp_path, context)
    execute(kept.read(planned.id), context)
    (found,) = find_remaps(engine)
    assert (found.state, found.proposed.job, found.proposed.option) == ("applied", "7", "spare_node")
    assert found.proposed.world == planned.world.hash
    assert [move.state for move in found.moves] == ["approved", "applying", "applied"]
    assert [(step.number, step.state) for step in found.steps] == [
        (number, state) for number in range(4) for state in ("started", "done")
    ]
    assert found.steps[2].command == "scontrol requeue 7"
    engine.dispose()


def test_who_goes_on_tells_the_store_what_it_missed(tmp_path: Path) -> None:
    """Killed between journal and store, or begun while the store was away: it is whole once somebody goes on."""
    engine = open_store(f"sqlite:///{tmp_path}/store.db")
    world = SlurmWorld(tmp_path / "world.json")
    plain = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, plain)
    assert not find_remaps(engine)
    said: list[str] = []
    for _ in range(2):  # and whoever looks again afterwards changes nothing
        kept = StoreJournal(plain.journal, DirectWriter(engine), "small", said.append)
        context = type(plain)(journal=kept, cluster=world, run=world, clock=plain.clock, sleep=plain.sleep, by="ann")
        if kept.read(planned.id).is_open:
            execute(kept.read(planned.id), context)
    (found,) = find_remaps(engine)
    assert not said
    assert [move.state for move in found.moves] == ["approved", "applying", "applied"]
    assert len(found.steps) == 8
    engine.dispose()


def test_a_store_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    class Broken:
        def write(self, records: object) -> object:
            raise StoreError("its disk is full")

    said: list[str] = []
    world = SlurmWorld(tmp_path / "world.json")
    kept = StoreJournal(FileJournal(tmp_path / "journal"), Broken(), "small", said.append)  # type: ignore[arg-type]
    plain = hands_of(tmp_path, world)
    context = type(plain)(journal=kept, cluster=world, run=world, clock=plain.clock, sleep=plain.sleep, by="ann")
    planned = begun_of(tmp_path, context)
    assert execute(kept.read(planned.id), context).refused is None
    assert said == ["the store does not know of this remap: its disk is full"]
