"""Do the screens ask before they act, hand over what the caller may not do, and tell what was done?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from textual.pilot import Pilot

from opsk.diagnosis.events.observations import Severity
from opsk.errors import InputError
from opsk.slurm.commands.remap_commands import Who
from opsk_tui.app import TopApp
from opsk_tui.data.feed_port import Proposal
from opsk_tui.data.view import Health
from opsk_tui.screens.confirm import ConfirmScreen
from opsk_tui.screens.options import OptionsScreen
from tests.fakes.noted_actions import NotedActions
from tests.fakes.played_screens import Still, cluster, play, press, settled, text


def test_a_command_is_shown_first_and_run_only_when_confirmed() -> None:
    actions = NotedActions(cluster())

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "2", "end", "home", "c")
        assert isinstance(app.screen, ConfirmScreen)
        number = app.screen.question.commands[0].argv[-1]
        assert f"scancel {number}" in text(app)
        await press(pilot, "escape")
        assert actions.ran == []
        await press(pilot, "c", "y")
        assert actions.ran == [("scancel", number)]

    play(script, actions=actions)


def test_a_command_is_shown_to_its_end_in_a_narrow_window() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "d")
        assert isinstance(app.screen, ConfirmScreen)
        (command,) = app.screen.question.commands
        assert command.text in " ".join(text(app).split())

    play(script, size=(44, 24))


def test_what_the_caller_may_not_do_is_handed_over_as_a_command() -> None:
    actions = NotedActions(cluster())
    view = replace(cluster().view(), rights=(Who.USER,))

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "d")
        assert "scontrol update nodename=gpu001 state=drain" in text(app)
        assert "You may not run these" in text(app)
        await press(pilot, "y")
        assert isinstance(app.screen, ConfirmScreen)
        await press(pilot, "c")
        assert app.clipboard.startswith("scontrol update nodename=gpu001 state=drain")
        await press(pilot, "escape")
        assert actions.ran == []

    play(script, actions=actions, feed=Still(view))


def test_a_user_may_act_on_his_own_jobs_only() -> None:
    view = replace(cluster().view(), rights=(Who.USER,))

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        known = app.known
        own = next(job for job in view.jobs if job.record.user == "ada")
        other = next(job for job in view.jobs if job.record.user == "grace")
        for job, may in ((own, True), (other, False)):
            app.ask_job("requeue", job)
            await settled(pilot)
            assert isinstance(app.screen, ConfirmScreen)
            assert app.screen.may_run is may
            await press(pilot, "escape")
        assert known.user == "ada"

    play(script, actions=NotedActions(cluster()), feed=Still(view))


def test_without_actions_the_screen_is_read_only() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "2", "R")
        assert isinstance(app.screen, ConfirmScreen)
        assert not app.screen.may_run

    play(script)


def test_an_option_is_previewed_confirmed_applied_and_undone() -> None:
    actions = NotedActions(cluster())

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5", "enter")
        assert isinstance(app.screen, OptionsScreen)
        shown = text(app)
        assert "gpu300 takes over from gpu001" in shown
        assert "Ranks before and after, on the 2 nodes that change" in shown
        assert "✗5" in shown
        await press(pilot, "a")
        assert "y runs exactly this" in text(app)
        assert "needs administrator" in text(app)
        assert actions.applied == []
        await press(pilot, "y")
        assert actions.applied == [0]
        assert "scontrol requeue 410000" in text(app)
        assert "job 410000 is running on" in text(app)
        await press(pilot, "u")
        assert "y runs exactly this" in text(app)
        assert "scontrol update nodename=gpu001 state=resume" in text(app)
        assert "requeue: stays, it ran" in text(app)
        await press(pilot, "escape")
        assert actions.undone == []
        await press(pilot, "u", "y")
        assert actions.undone == ["remap-1"]
        assert "Undone" in text(app)

    play(script, actions=actions)


def test_a_node_that_a_remap_drained_is_taken_back_when_it_is_well_again() -> None:
    """gpu020 to gpu022 are drained: by a remap, by a remap and still sick, by somebody with a reason of his own."""
    view = cluster().view()
    reasons = {"gpu020": "opsk: gpu:gpu020/3 failed", "gpu021": "opsk: gpu:gpu021/0 failed", "gpu022": "fans"}
    nodes = tuple(
        replace(node, state="IDLE", state_flags=("DRAIN",) * (node.name in reasons), reason=reasons.get(node.name))
        for node in view.nodes
    )
    assert view.gpus is not None
    health = view.gpus.health.copy()
    for name, told in (("gpu020", Health.OK), ("gpu021", Health.UNHEALTHY), ("gpu022", Health.OK)):
        health[[node.name for node in nodes].index(name)] = told
    actions = NotedActions(cluster())
    gpus = replace(view.gpus, health=health)
    view = replace(view, nodes=nodes, gpus=gpus, events=(), rights=tuple(Who))

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5")
        assert "gpu020  opsk: gpu:gpu020/3 failed" in text(app)
        assert app.known.recovered == ("gpu020",)
        await press(pilot, "u")
        assert "scontrol update nodename=gpu020 state=resume" in text(app)
        await press(pilot, "y")
        assert actions.ran == [("scontrol", "update", "nodename=gpu020", "state=resume")]

    play(script, actions=actions, feed=Still(view))


def test_all_that_is_fatal_for_a_job_is_asked_about_at_once_and_sick_nodes_are_no_spares() -> None:
    """A job with two dead GPUs would else be moved off the first, onto the second."""
    asked: list[tuple[Sequence[str], Collection[str]]] = []

    class Noting(NotedActions):
        async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
            asked.append((failed, avoid))
            return await super().propose(failed, job_id, avoid)

    view = cluster().view()
    first = next(event for event in view.events if event.severity is Severity.FATAL and event.jobs)
    second = replace(first, key="second", failed="gpu:gpu002/1", nodes=("gpu002",))
    elsewhere = replace(first, key="third", failed="gpu:gpu250/1", nodes=("gpu250",), jobs=())
    events = (elsewhere, second, first, *(event for event in view.events if event is not first))

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5", "enter")
        assert " and 1 more failed" in text(app)

    play(script, actions=Noting(cluster()), feed=Still(replace(view, events=events)))
    ((failed, avoid),) = asked
    assert set(failed) == {first.failed, "gpu:gpu002/1"}
    assert {"gpu250", "gpu002", *first.nodes} <= set(avoid)


def test_options_that_cannot_be_worked_out_are_said() -> None:
    class Silent(NotedActions):
        async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
            raise InputError("the plan of the job is not known [b]", hint="opsk remap --plan")

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5", "enter")
        assert "the plan of the job is not known [b]" in text(app)
        assert "opsk remap --plan" in text(app)

    play(script, actions=Silent(cluster()))
