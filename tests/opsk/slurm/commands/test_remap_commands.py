"""The commands of each release, word by word; what was run on real ones is in tests/integration/slurm/test_remap.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.slurm.commands.remap_commands import (
    PLACEHOLDER,
    UNKNOWN_JOB,
    Action,
    ActionKind,
    Command,
    SlurmSite,
    Where,
    Who,
    build_requeue_commands,
    constrain_nodes,
    drain,
    relaunch,
    release_job,
    requeue,
    requeue_hold,
    reserve,
    restore_nodes,
    resume,
    shrink,
    start_now,
)

RELEASES = [(22, 5), (24, 11), (25, 11), (26, 5)]
REQUEUE = (
    "scontrol update nodename=n3 state=drain 'reason=opsk: gpu:n3/5 failed'",
    "scontrol requeue 4711",
    "scontrol update jobid=4711 excnodelist=n3 'reqnodelist=n[0-2,4]'",
    "scontrol update jobid=4711 starttime=now",
)
BLOCK = (*REQUEUE[:2], "scontrol update jobid=4711 excnodelist=n3 reqnodelist=", REQUEUE[3])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("topology", "wanted"), [("tree", REQUEUE), (None, REQUEUE), ("block", BLOCK)])
def test_the_way_through_the_queue(release: tuple[int, int], topology: str | None, wanted: tuple[str, ...]) -> None:
    commands = build_requeue_commands(
        "4711", SlurmSite(release=release, topology=topology), failed=["n3"], reason="gpu:n3/5 failed",
        required=["n0", "n1", "n2", "n4"],
    )  # fmt: skip
    assert tuple(command.text for command in commands) == wanted
    assert [command.who for command in commands] == [Who.ADMINISTRATOR, Who.USER, Who.USER, Who.USER]


def test_a_job_that_is_pending_already_is_not_requeued_again() -> None:
    commands = build_requeue_commands(
        "4711", SlurmSite(release=(25, 11)), failed=["n3"], reason="", count=3, is_running=False
    )
    assert [command.text for command in commands[1:]] == [
        "scontrol update jobid=4711 excnodelist=n3 reqnodelist= numnodes=3",
        "scontrol update jobid=4711 starttime=now",
    ]


def test_a_step_with_a_rank_file_is_never_an_allocation() -> None:
    command = relaunch(["n0", "n2"], tasks=16, rank_file="ranks.txt")
    assert command.argv[0] == "env"
    assert command.argv[command.argv.index("SLURM_HOSTFILE=ranks.txt") + 1 :] == (
        "srun", "--no-kill", "--ntasks=16", "--distribution=arbitrary", PLACEHOLDER,
    )  # fmt: skip
    assert command.where is Where.IN_JOB
    assert not command.is_complete


def test_a_step_without_one_is_told_its_nodes() -> None:
    words = relaunch(["n0", "n2"], tasks=16, rank_file=None).argv
    assert words[-4:] == ("--ntasks=16", "--nodes=2", "--nodelist=n[0,2]", PLACEHOLDER)
    assert not any(word.startswith("SLURM_HOSTFILE") for word in words)


@pytest.mark.parametrize(
    ("command", "text", "who"),
    [
        (resume(["n3"]), "scontrol update nodename=n3 state=resume", Who.ADMINISTRATOR),
        (requeue("7_3"), "scontrol requeue 7_3", Who.USER),
        (requeue_hold("7"), "scontrol requeuehold 7", Who.USER),
        (release_job("7"), "scontrol release 7", Who.USER),
        (start_now("7"), "scontrol update jobid=7 starttime=now", Who.USER),
        (shrink("7", ["n1", "n0"]), "scontrol update jobid=7 'nodelist=n[0-1]'", Who.USER),
        (
            reserve(["n3"], "7"),
            "scontrol create reservation reservationname=opsk-failed-7 nodes=n3 starttime=now duration=1-00:00:00 "
            "users=root flags=maint,ignore_jobs",
            Who.OPERATOR,
        ),
    ],
)
def test_each_command_and_whose_rights_it_needs(command: object, text: str, who: Who) -> None:
    assert (command.text, command.who) == (text, who)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("command", "action"),
    [
        (drain(["n3"], "x"), Action(kind=ActionKind.DRAIN, nodes=("n3",))),
        (resume(["n3"]), Action(kind=ActionKind.RESUME, nodes=("n3",))),
        (requeue("7"), Action(kind=ActionKind.REQUEUE)),
        (requeue_hold("7"), Action(kind=ActionKind.REQUEUE_HOLD)),
        (release_job("7"), Action(kind=ActionKind.RELEASE)),
        (start_now("7"), Action(kind=ActionKind.START)),
        (shrink("7", ["n0"]), Action(kind=ActionKind.SHRINK, nodes=("n0",))),
        (
            constrain_nodes("7", SlurmSite(release=(26, 5)), excluded=["n3"], required=["n0"]),
            Action(kind=ActionKind.CONSTRAIN_NODES, nodes=("n0",), excluded=("n3",)),
        ),
        (
            constrain_nodes("7", SlurmSite(release=(26, 5), topology="block"), excluded=["n3"], required=["n0"]),
            Action(kind=ActionKind.CONSTRAIN_NODES, excluded=("n3",)),
        ),
        (
            restore_nodes("7", required=["n0"], excluded=[]),
            Action(kind=ActionKind.CONSTRAIN_NODES, nodes=("n0",)),
        ),
    ],
)
def test_a_command_names_what_it_does_and_to_which_nodes(command: Command, action: Action) -> None:
    assert command.action == action


def test_restoring_nodes_leaves_exclusions_that_were_not_changed() -> None:
    assert restore_nodes("7", required=[], excluded=[]).argv[-2:] == ("excnodelist=", "reqnodelist=")
    assert restore_nodes("7", required=["n1"], excluded=None).argv[-1:] == ("reqnodelist=n1",)


def test_a_job_without_a_name_gives_commands_that_cannot_be_run() -> None:
    assert not requeue(UNKNOWN_JOB).is_complete
    assert not start_now(UNKNOWN_JOB).is_complete
    assert requeue("7").is_complete


@given(reason=st.text(max_size=300))
def test_a_reason_stays_one_harmless_word(reason: str) -> None:
    word = drain(["n3"], reason).argv[-1]
    assert word.startswith("reason=opsk: ")
    assert word.isprintable()
    assert len(word) < 140
    assert not set(word[8:]) & set("'\"\\$`;|&<>\n")


@pytest.mark.parametrize("name", ["n3 state=resume", "n3,n4", "-n3", "", "n[0-3]", "n3\n", "ALL", "all", "$(id)"])
def test_what_is_no_node_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a valid node name"):
        drain([name], "x")


@pytest.mark.parametrize("job", ["7 8", "", "7;id", "-1", "7_[1-3]", "JOB"])
def test_what_is_no_job_id_is_refused(job: str) -> None:
    with pytest.raises(InputError, match="not a job id"):
        requeue(job)


def test_steering_is_the_same_in_every_release() -> None:
    texts = {
        release: constrain_nodes("7", SlurmSite(release=release), excluded=["n1"], required=["n0"]).text
        for release in RELEASES
    }
    assert len(set(texts.values())) == 1
