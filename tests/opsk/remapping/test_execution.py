"""Carried out, broken off at every point, gone on with, refused, and taken back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.errors import InputError, SlurmError, UnavailableError
from opsk.job_key import JobKey
from opsk.planning.remap.remap import remap
from opsk.planning.remap.values import Option, OptionKind, Terms, Way
from opsk.remapping import commands as running
from opsk.remapping.cluster_state import ClusterState
from opsk.remapping.commands import find_caller_rights
from opsk.remapping.decision import LauncherReport, decision_file, launcher_report_file, read_decision, write_document
from opsk.remapping.execution import ExecutionContext, ExecutionResult, execute, read_cluster_state, undo
from opsk.remapping.journal import FileJournal, JournalLine, PlannedRemap
from opsk.remapping.preparation import PlanBasis, RunningLauncher, find_option, prepare_remap
from opsk.slurm.commands.remap_commands import SlurmSite, Who
from opsk.slurm.records import JobRecord
from opsk.workload.plan import Plan
from tests.fakes.remap_jobs import dead_gpu, names, situation_of
from tests.fakes.slurm_world import SlurmWorld

ALL = tuple(Who)
POINTS = 24
KEY = JobKey(cluster="small", job="7")
"""More than there are moments at which a process can be killed in four steps."""


def option_of(kind: OptionKind = OptionKind.SPARE_NODE, way: Way = Way.REQUEUE) -> Option:
    """GPU 1 of n2 is dead; n5 is free, and the ranks of n2 go there."""
    situation, _ = situation_of(Plan(tp=4, dp=4, global_batch=12), names(0, 3), free=["n5"])
    found = remap(situation, dead_gpu("n2", 1), Terms(job="7", site=SlurmSite(release=(24, 11))))
    return next(option for option in found.options if option.kind is kind and option.way is way)


def hands_of(tmp_path: Path, world: SlurmWorld, *, slept: Callable[[float], None] = lambda s: None) -> ExecutionContext:
    return ExecutionContext(
        journal=FileJournal(tmp_path / "journal"), cluster=world, run=world, clock=lambda: 1e9, sleep=slept, by="ann"
    )


def basis_of(now: ClusterState) -> PlanBasis:
    return PlanBasis(failed=("gpu:n2/1",), state=now)


def begun_of(
    tmp_path: Path, context: ExecutionContext, *, option: Option | None = None, rights: tuple[Who, ...] = ALL
) -> PlannedRemap:
    terms = Terms(job="7", rank_file=str(tmp_path / "ranks"))
    now = read_cluster_state(context, "7") or ClusterState(job=None)
    found = prepare_remap(
        option or option_of(), terms, PlanBasis(failed=("gpu:n2/1",), state=now), rights=rights, at_s=1e9
    )
    context.journal.begin(found)
    return found


def applied(tmp_path: Path, world: SlurmWorld, **more: object) -> ExecutionResult:
    context = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, context, **more)  # type: ignore[arg-type]
    return execute(context.journal.read(planned.id), context, rights=ALL)


@pytest.fixture
def world(tmp_path: Path) -> SlurmWorld:
    return SlurmWorld(tmp_path / "world.json")


def verbs(world: SlurmWorld) -> list[str]:
    return [argv[1] if argv[1] != "update" else argv[-1].partition("=")[0] for argv in world.ran]


def test_an_administrator_runs_all_and_the_job_is_where_the_plan_put_it(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world)
    assert (found.refused, found.left, found.is_outdated) == (None, (), False)
    assert verbs(world) == ["reason", "requeue", "reqnodelist", "starttime"]
    assert world.ran[0] == ["scontrol", "update", "nodename=n2", "state=drain", "reason=opsk: gpu:n2/1 failed"]
    assert world.job("7").nodes == ("n0", "n1", "n3", "n5")
    assert (tmp_path / "ranks").read_text().split() == ["n0"] * 4 + ["n1"] * 4 + ["n5"] * 4 + ["n3"] * 4


def test_an_owner_runs_what_he_may_and_hands_the_drain_over(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world, rights=(Who.USER,))
    assert verbs(world) == ["requeue", "reqnodelist", "starttime"]
    assert [who for _, who in found.left] == ["by an administrator"]


def test_the_first_refusal_ends_it_and_is_told(tmp_path: Path) -> None:
    world = SlurmWorld(tmp_path / "world.json", refuse="excnodelist")
    found = applied(tmp_path, world)
    assert verbs(world) == ["reason", "requeue"]
    assert found.refused is not None
    assert "excnodelist=n2" in found.refused
    assert found.said == "slurm_update error: Access denied"
    assert found.left[0] == ("scontrol update jobid=7 starttime=now", "not run")


def test_what_failed_can_be_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    broken = applied(tmp_path, SlurmWorld(path, refuse="excnodelist"))
    world = SlurmWorld(path)
    context = hands_of(tmp_path, world)
    done = execute(context.journal.read(broken.journal or ""), context)
    assert done.refused is None
    assert verbs(world) == ["reason", "requeue", "reqnodelist", "starttime"]
    assert context.journal.read(broken.journal or "").state == "applied"
    with pytest.raises(InputError, match="nothing to resume"):
        execute(context.journal.read(broken.journal or ""), context)


def test_a_rank_file_that_cannot_be_written_stops_before_anything_runs(tmp_path: Path, world: SlurmWorld) -> None:
    (tmp_path / "ranks").mkdir()
    with pytest.raises(InputError, match="nothing was run"):
        applied(tmp_path, world)
    assert not world.ran


@pytest.mark.parametrize("starts_by_itself", [False, True])
@pytest.mark.parametrize("point", range(POINTS))
def test_killed_at_any_point_it_is_gone_on_with_and_nothing_is_done_twice(
    tmp_path: Path, point: int, starts_by_itself: bool
) -> None:
    """A real SIGKILL before and after each command, and before and after each line of the journal."""
    path = tmp_path / "world.json"
    world = SlurmWorld(path)
    planned = begun_of(tmp_path, hands_of(tmp_path, world))
    child = os.fork()
    if child == 0:
        _die_at(point, tmp_path, path, planned.id, starts_by_itself=starts_by_itself)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status)
    context = hands_of(tmp_path, SlurmWorld(path, starts_by_itself=starts_by_itself))
    left = context.journal.read(planned.id)
    if was_killed and left.is_open:
        execute(left, context)
    assert verbs(world).count("requeue") == 1
    assert verbs(world).count("reason") == 1
    if not starts_by_itself:
        assert context.journal.read(planned.id).state == "applied"
        assert world.job("7").nodes == ("n0", "n1", "n3", "n5")
        assert world.job("7").restarts == 1


def _die_at(point: int, tmp_path: Path, path: Path, name: str, *, starts_by_itself: bool) -> None:
    """In the child: carry the remap out, and die at the so-manieth moment."""
    left = [point]

    def moment(where: str = "") -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Mortal(FileJournal):
        def add(self, remap: str, line: JournalLine) -> None:
            moment()
            super().add(remap, line)
            moment()

    try:
        world = SlurmWorld(path, at=moment, starts_by_itself=starts_by_itself)
        journal = Mortal(tmp_path / "journal")
        context = ExecutionContext(
            journal=journal, cluster=world, run=world, clock=lambda: 1e9, sleep=lambda s: None, by="ann"
        )
        execute(journal.read(name), context)
    finally:
        os._exit(0)


def test_a_job_that_started_by_itself_on_other_nodes_is_told(tmp_path: Path) -> None:
    """opsk was killed after the requeue, and 120 s later Slurm started the job where it wanted."""
    path = tmp_path / "world.json"
    world = SlurmWorld(path)
    context = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, context)
    context.journal.add(planned.id, JournalLine(at_s=1e9, state="started", by="ann", number=1))
    world.change(lambda now: now["job"].update(restarts=1, nodes=["n0", "n1", "n2", "n4"]))
    found = execute(context.journal.read(planned.id), context)
    assert found.refused is not None
    assert "has been started again on n0, n1, n2, n4" in (found.said or "")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda now: now["job"].update(state="PENDING", nodes=[]), "the job's state was RUNNING, is PENDING"),
        (lambda now: now["job"].update(restarts=1), "restarts was 0, is 1"),
        (lambda now: now["nodes"]["n5"].update(state="ALLOCATED"), "n5 was IDLE, is ALLOCATED"),
        (lambda now: now["nodes"]["n0"].update(flags=["DRAIN"]), "n0 was usable, is IDLE+DRAIN"),
        (lambda now: now["job"].update(state="FORGOTTEN"), "no longer knows the job"),
    ],
)
def test_a_world_that_has_changed_is_refused_and_told(
    tmp_path: Path, world: SlurmWorld, edit: Callable[[dict[str, object]], object], told: str
) -> None:
    context = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, context)
    world.change(edit)
    found = execute(context.journal.read(planned.id), context)
    assert found.is_outdated
    assert told in (found.said or "")
    assert not world.ran
    assert context.journal.read(planned.id).state == "outdated"


def test_that_somebody_drained_the_failed_node_changes_nothing(tmp_path: Path, world: SlurmWorld) -> None:
    context = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, context)
    world.change(lambda now: now["nodes"]["n2"].update(flags=["DRAIN"], reason="by hand"))
    found = execute(context.journal.read(planned.id), context)
    assert found.refused is None
    assert verbs(world) == ["requeue", "reqnodelist", "starttime"]


def test_a_slurm_that_does_not_answer_stops_it(tmp_path: Path, world: SlurmWorld) -> None:
    context = hands_of(tmp_path, world)
    planned = begun_of(tmp_path, context)
    world.is_silent = True
    with pytest.raises(SlurmError):
        execute(context.journal.read(planned.id), context)
    assert not world.ran


def test_the_start_waits_until_all_nodes_have_ended_the_job(tmp_path: Path, world: SlurmWorld) -> None:
    """Five looks in a row must find it pending: a node may say later than its job that it still ends it."""
    slept: list[float] = []
    states = ["COMPLETING", "PENDING"]  # then the world says COMPLETING once more

    def run(argv: object) -> tuple[int, str]:
        words = list(argv)  # type: ignore[call-overload]
        return (0, states.pop(0)) if words[0] == "squeue" and states else world(words)

    context = ExecutionContext(
        journal=FileJournal(tmp_path / "journal"), cluster=world, run=run, clock=lambda: 1e9, sleep=slept.append, by="a"
    )
    planned = begun_of(tmp_path, context)
    assert execute(context.journal.read(planned.id), context).refused is None
    assert len(slept) == 3 + 4


def test_undo_gives_nodes_back_and_says_what_stays(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world)
    context = hands_of(tmp_path, world)
    undone = undo(context.journal.read(found.journal or ""), context, rights=ALL)
    assert undone.done == ("scontrol update nodename=n2 state=resume",)
    assert ["the job was started again" in why for _, why in undone.left] == [True, False, False]
    assert not [node for node in world.nodes() if node.state_flags]
    assert context.journal.read(found.journal or "").state == "undone"
    with pytest.raises(InputError, match="nothing to undo"):
        undo(context.journal.read(found.journal or ""), context, rights=ALL)


def test_undo_of_half_a_remap_restores_the_nodes_that_the_job_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    world = SlurmWorld(path, refuse="starttime")
    world.change(lambda now: now["job"].update(req=["n0", "n1", "n2", "n3"]))
    found = applied(tmp_path, world)
    assert world.job("7").excluded_nodes == ("n2",)
    context = hands_of(tmp_path, world)
    undo(context.journal.read(found.journal or ""), context, rights=ALL)
    assert world.job("7").required_nodes == ("n0", "n1", "n2", "n3")
    assert world.job("7").excluded_nodes == ()


def test_undo_leaves_what_others_drained(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world)
    world.change(lambda now: now["nodes"]["n2"].update(reason="GPU is being replaced"))
    context = hands_of(tmp_path, world)
    undone = undo(context.journal.read(found.journal or ""), context, rights=ALL)
    assert not undone.done
    assert any("drained by someone else" in why for _, why in undone.left)


def test_undo_of_waiting_lets_the_job_go(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world, option=option_of(OptionKind.WAIT, Way.HOLD))
    assert world.job("7").reason == "JobHeldUser"
    context = hands_of(tmp_path, world)
    undone = undo(context.journal.read(found.journal or ""), context, rights=ALL)
    assert undone.done == ("scontrol release 7", "scontrol update nodename=n2 state=resume")


def test_an_owner_cannot_resume_nodes(tmp_path: Path, world: SlurmWorld) -> None:
    found = applied(tmp_path, world)
    context = hands_of(tmp_path, world)
    undone = undo(context.journal.read(found.journal or ""), context, rights=(Who.USER,))
    assert ("scontrol update nodename=n2 state=resume", "by an administrator") in undone.left


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    with (
        journal.lock(KEY),
        pytest.raises(UnavailableError, match="another opsk"),
        FileJournal(tmp_path / "journal").lock(KEY),
    ):
        pass
    with journal.lock(KEY), journal.lock(JobKey(job="8")):
        pass


def test_an_option_is_chosen_by_kind_or_number() -> None:
    situation, _ = situation_of(Plan(tp=4, dp=4, global_batch=12), names(0, 3), free=["n5"])
    answer = remap(situation, dead_gpu("n2", 1), Terms(job="7"))
    assert find_option(answer, "1") is answer.options[0]
    assert find_option(answer, "wait").kind is OptionKind.WAIT
    with pytest.raises(InputError, match="no option"):
        find_option(answer, "99")


JOB = JobRecord(id=7, label="7", user="ann", name="train", state="RUNNING")


@pytest.mark.parametrize(
    ("level", "rights"),
    [("Administrator\n", ALL), ("Operator\n", (Who.USER, Who.OPERATOR)), ("None\n", ()), ("", ())],
)
def test_rights_are_those_that_slurm_tells(
    monkeypatch: pytest.MonkeyPatch, level: str, rights: tuple[Who, ...]
) -> None:
    monkeypatch.setattr(running.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(running, "find_caller_name", lambda: "bob")
    assert find_caller_rights(JOB, lambda _: (0, level), lambda: "slurm(64030)") == rights
    monkeypatch.setattr(running, "find_caller_name", lambda: "ann")
    assert Who.USER in find_caller_rights(JOB, lambda _: (0, level), lambda: "slurm(64030)")


def launched_begun(tmp_path: Path, context: ExecutionContext, kind: OptionKind) -> PlannedRemap:
    """A job on n0 to n3 that holds n4 to spare, with a launcher of the caller's own."""
    situation, _ = situation_of(Plan(tp=4, dp=4, global_batch=12), names(0, 3), spares=["n4"])
    terms = Terms(job="7", site=SlurmSite(release=(24, 11)), rank_file=str(tmp_path / "ranks"))
    found = remap(situation, dead_gpu("n2", 1), terms)
    option = next(option for option in found.options if option.kind is kind)
    status = LauncherReport(job="7", host="n0", pid=1, decision="", starts=1, ranks=())
    launcher = RunningLauncher(owner=os.geteuid(), files=files_of(tmp_path), status=status)
    now = read_cluster_state(context, "7") or ClusterState(job=None)
    planned = prepare_remap(
        option, terms, PlanBasis(failed=("gpu:n2/1",), state=now), rights=ALL, at_s=1e9, launcher=launcher
    )
    context.journal.begin(planned)
    return planned


def files_of(tmp_path: Path) -> dict[str, Path]:
    return {"decision": decision_file(tmp_path, KEY), "launched": launcher_report_file(tmp_path, KEY)}


def with_launcher(tmp_path: Path, world: SlurmWorld, refuses: str = "") -> ExecutionContext:
    """A launcher that takes the map at its next look, or refuses it."""
    plain = hands_of(tmp_path, world)

    def launcher_looks(_: float) -> None:
        new = read_decision(files_of(tmp_path)["decision"], owner=os.geteuid())
        assert new is not None
        said = LauncherReport(
            job="7", host="n0", pid=1, decision="" if refuses else new.id, starts=2, ranks=(),
            refused={new.id: refuses} if refuses else {},
        )  # fmt: skip
        write_document(files_of(tmp_path)["launched"], said)

    return replace(plain, sleep=launcher_looks, owner=os.geteuid(), launch_files=files_of(tmp_path))


def test_a_launcher_gets_the_map_and_nothing_leaves_the_queue(tmp_path: Path, world: SlurmWorld) -> None:
    context = with_launcher(tmp_path, world)
    planned = launched_begun(tmp_path, context, OptionKind.SPARE_NODE)
    done = execute(context.journal.read(planned.id), context)
    assert (done.refused, done.left) == (None, ())
    assert verbs(world) == ["reason"]
    new = read_decision(files_of(tmp_path)["decision"], owner=os.geteuid())
    assert new is not None
    assert new.nodes == ("n0", "n1", "n4", "n3")
    assert any(
        "Launcher" in why or "launcher" in why
        for _, why in undo(context.journal.read(planned.id), context, rights=ALL).left
    )


def test_what_a_launcher_refuses_is_told(tmp_path: Path, world: SlurmWorld) -> None:
    context = with_launcher(tmp_path, world, refuses="torchrun numbers ranks node by node")
    planned = launched_begun(tmp_path, context, OptionKind.SPARE_NODE)
    assert "torchrun numbers" in (execute(context.journal.read(planned.id), context).said or "")


def test_another_plan_is_no_launchers_business(tmp_path: Path, world: SlurmWorld) -> None:
    """Its command would have to change too."""
    context = with_launcher(tmp_path, world)
    planned = launched_begun(tmp_path, context, OptionKind.SHRINK_DP)
    assert planned.decision is None
    assert [who for _, who in planned.left] == ["in the job"]
