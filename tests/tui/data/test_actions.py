"""The screens' actions on a Slurm that is made up: options of a job from its advice, carried out, undone, refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.app.remap import execution as remap_apply
from opsk.app.remap import execution as remap_journal
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.remapping import execution
from opsk.slurm.commands.remap_commands import Who, requeue
from opsk_tui.data import actions as module
from opsk_tui.data.actions import SlurmActions
from opsk_tui.data.feed_port import Proposal
from opsk_tui.data.lazy_loading import LateActions
from tests.fakes.remap_jobs import JOB, Recorder
from tests.opsk.cli.remap.test_command import FakeSlurm

ADVISED = replace(JOB, admin_comment="opsk:v1 verdict=fits tp=8 pp=1 dp=4", time_limit_s=7200, run_time_s=3600)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A site with a fabric of sixteen nodes, and Slurm's commands noted instead of run."""
    (tmp_path / "dump").write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)))
    (tmp_path / "opsk.toml").write_text(f'fabric = ["{tmp_path}/dump"]\n')
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    monkeypatch.setattr(execution, "_POLL_S", 0.0)
    found = Recorder()
    for each in (module, remap_apply, remap_journal):
        monkeypatch.setattr(each, "run_command", found)
        monkeypatch.setattr(each, "find_caller_rights", lambda job, run: tuple(Who))
    return found


def actions_on(slurm: FakeSlurm, tmp_path: Path) -> SlurmActions:
    return SlurmActions(journal=tmp_path / "journal", client=lambda: slurm)  # type: ignore[arg-type,return-value]


def proposed(actions: SlurmActions, failed: str = "gpu:n2/5") -> Proposal:
    return asyncio.run(actions.propose([failed], 4711))


def requeue_of(proposal: Proposal) -> int:
    return next(at for at, choice in enumerate(proposal.choices) if choice.option.way == "requeue")


def test_options_have_seats_goodput_and_who_may(recorder: Recorder, tmp_path: Path) -> None:
    proposal = proposed(actions_on(FakeSlurm(ADVISED), tmp_path))
    first = proposal.choices[0]
    assert first.option.kind == "spare_node"
    assert first.goodput is not None
    assert 0 < first.goodput < 1
    assert first.before is not None
    assert first.after is not None
    assert first.before.nodes == first.after.nodes
    row = first.before.nodes.index("n2")
    assert first.before.ranks[row].tolist() == list(range(16, 24))
    assert first.after.ranks[row].tolist() == [-1] * 8
    assert first.before.failed[row].tolist() == [gpu == 5 for gpu in range(8)]
    assert first.mine == (True, False)
    assert not first.is_predicted
    assert "no speed is predicted" in proposal.notes[0]
    assert not recorder.ran


def test_all_that_failed_is_left_and_nothing_sick_is_taken_instead(recorder: Recorder, tmp_path: Path) -> None:
    """Of sixteen nodes n0 to n4 are the job's, n5 to n7 cannot be had; of the others only n12 is well."""
    actions = actions_on(FakeSlurm(ADVISED), tmp_path)
    sick = {f"n{number}" for number in (8, 9, 10, 11, 13, 14, 15)}
    proposal = asyncio.run(actions.propose(["gpu:n2/5", "gpu:n4/0"], 4711, sick))
    assert proposal.failed == ("gpu:n2/5", "gpu:n4/0")
    requeued = proposal.choices[requeue_of(proposal)].option
    assert {"n2", "n4"}.isdisjoint(requeued.nodes)
    assert sick.isdisjoint(requeued.nodes)
    assert "n12" in requeued.nodes


def test_a_failure_elsewhere_needs_nothing(recorder: Recorder, tmp_path: Path) -> None:
    proposal = proposed(actions_on(FakeSlurm(ADVISED), tmp_path), "node:n15")
    assert "not part of" in proposal.nothing_to_do


def test_an_option_is_carried_out_once_and_its_drain_undone(recorder: Recorder, tmp_path: Path) -> None:
    slurm = FakeSlurm(ADVISED)
    actions, said = actions_on(slurm, tmp_path), list[str]()
    proposal = proposed(actions)
    # Slurm's record does not move here: what was run is told apart from what was not by the recorder alone.
    outcome = asyncio.run(actions.apply(proposal, requeue_of(proposal), said.append))
    assert recorder.ran[0][:4] == ("scontrol", "update", "nodename=n2", "state=drain")
    assert outcome.journal
    assert said[0].startswith("scontrol update nodename=n2 state=drain")
    with pytest.raises(InputError, match="applied already"):
        asyncio.run(actions.apply(proposal, 0, said.append))
    undoing = asyncio.run(actions.undoing(outcome.journal))
    assert not undoing.commands, "Slurm says that the node is not drained any more"
    assert len(undoing.stays) == len(outcome.done)
    undone = asyncio.run(actions.undo(outcome.journal, undoing, said.append))
    assert not undone.can_undo


def test_what_was_not_shown_is_not_run_by_undo(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question and the answer a node was drained with our reason: nobody agreed to have it resumed."""
    slurm = FakeSlurm(ADVISED)
    nodes = slurm.nodes()
    actions = actions_on(slurm, tmp_path)
    proposal = proposed(actions)
    outcome = asyncio.run(actions.apply(proposal, requeue_of(proposal), lambda line: None))
    undoing = asyncio.run(actions.undoing(outcome.journal))
    drained = [
        replace(node, state_flags=("DRAIN",), reason="opsk: gpu:n2/5 failed") if node.name == "n2" else node
        for node in nodes
    ]
    monkeypatch.setattr(slurm, "nodes", lambda: tuple(drained))
    recorder.ran.clear()
    undone = asyncio.run(actions.undo(outcome.journal, undoing, lambda line: None))
    assert not recorder.ran
    why = "not run: the job or its nodes have changed since it was shown"
    assert ("scontrol update nodename=n2 state=resume", why) in undone.left


def test_a_remap_that_is_half_done_is_told_with_the_options(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = actions_on(FakeSlurm(ADVISED), tmp_path)
    proposal = proposed(actions)
    assert not any("half done" in note for note in proposal.notes)
    monkeypatch.setattr(remap_apply, "run_command", Recorder(refuse="requeue"))
    outcome = asyncio.run(actions.apply(proposal, requeue_of(proposal), lambda line: None))
    assert outcome.refused
    assert any(f"opsk remap --resume {outcome.journal}" in note for note in proposed(actions).notes)


def test_a_remap_of_another_cluster_is_not_of_this_job(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clusters have a job 4711, and the user has one journal."""
    east = actions_on(FakeSlurm(ADVISED, cluster="east"), tmp_path)
    proposal = proposed(east)
    monkeypatch.setattr(remap_apply, "run_command", Recorder(refuse="requeue"))
    outcome = asyncio.run(east.apply(proposal, requeue_of(proposal), lambda line: None))
    assert any("half done" in note for note in proposed(east).notes)
    west = actions_on(FakeSlurm(ADVISED, cluster="west"), tmp_path)
    assert not any("half done" in note for note in proposed(west).notes)
    with pytest.raises(InputError, match="of job 4711 of cluster east, but Slurm's commands use cluster west"):
        asyncio.run(west.undoing(outcome.journal))
    assert (tmp_path / "journal" / f"east.{outcome.journal}.jsonl").exists()


def test_a_world_that_has_changed_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    slurm = FakeSlurm(ADVISED)
    actions = actions_on(slurm, tmp_path)
    proposal = proposed(actions)
    slurm._job = replace(ADVISED, restarts=1)
    outcome = asyncio.run(actions.apply(proposal, requeue_of(proposal), lambda line: None))
    assert (outcome.refused, outcome.done, outcome.can_undo) == ("", (), False)
    assert "restarts was 0, is 1" in outcome.message
    assert not recorder.ran


def test_single_commands_end_with_the_first_refusal(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = actions_on(FakeSlurm(ADVISED), tmp_path)
    assert asyncio.run(actions.run([requeue("7")], lambda line: None)).done == ("scontrol requeue 7",)
    monkeypatch.setattr(module, "run_command", Recorder(refuse="requeue"))
    outcome = asyncio.run(actions.run([requeue("7"), requeue("8")], lambda line: None))
    assert (outcome.refused, outcome.message) == ("scontrol requeue 7", "slurm_update error: Access denied")


def test_the_planner_is_loaded_when_an_action_is_asked_for(recorder: Recorder) -> None:
    late = LateActions()
    assert asyncio.run(late.run([requeue("7")], lambda line: None)).done == ("scontrol requeue 7",)
    code = "import sys, opsk_tui.cli; print('opsk.planning.remap.remap' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
