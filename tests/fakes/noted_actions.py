"""Actions on a made-up cluster: options of every price, and a note of what was asked for instead of doing it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from opsk.planning.remap.values import CostPart as TimePart
from opsk.planning.remap.values import Move, Option, OptionKind, Predicted, Rendezvous, Way
from opsk.slurm.commands import remap_commands
from opsk.slurm.commands.remap_commands import Command
from opsk.workload.plan import Plan
from opsk_tui.data.feed_port import Outcome, PlacementView, Proposal, RemapChoice, Undoing
from opsk_tui.data.view import (
    JobView,
)  # fmt: skip
from tests.fakes.big_cluster import SLOTS, BigCluster


class NotedActions:
    """Proposes options of every price, and notes what it is told to do instead of doing it."""

    def __init__(self, cluster: BigCluster) -> None:
        self._cluster = cluster
        self.ran: list[tuple[str, ...]] = []
        self.applied: list[int] = []
        self.undone: list[str] = []

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        job = next(job for job in self._cluster.jobs if job.record.id == job_id)
        nodes = job.record.nodes
        spare = self._cluster.names[-1]
        seats = np.arange(len(nodes) * SLOTS, dtype=np.int32).reshape(-1, SLOTS)
        broken = np.zeros(seats.shape, dtype=bool)
        broken[0, 5] = True
        columns = tuple(f"rail{rail}" for rail in range(SLOTS))
        before = PlacementView(nodes=nodes, columns=columns, ranks=seats, failed=broken)
        after = PlacementView(
            nodes=(spare, *nodes[1:]), columns=columns, ranks=seats, failed=np.zeros(seats.shape, dtype=bool)
        )
        choices = tuple(
            RemapChoice(option=self._option(job, kind, place, spare), goodput=0.97 - 0.04 * place,
                   before=before if kind is OptionKind.SPARE_NODE else None,
                   after=after if kind is OptionKind.SPARE_NODE else None,
                   mine=(False, True, True))
            for place, kind in enumerate((OptionKind.SPARE_NODE, OptionKind.SHRINK_DP, OptionKind.WAIT))
        )  # fmt: skip
        return Proposal(key=f"{failed} {job_id}", job_id=job_id, failed=tuple(failed), choices=choices,
                        notes=("checkpoints every 30 min are assumed" + self._cluster.odd("[b]"),))  # fmt: skip

    def _option(self, job: JobView, kind: OptionKind, place: int, spare: str) -> Option:
        node, number = job.record.nodes[0], str(job.record.id)
        moves = tuple(
            Move(rank=rank, from_node=node, from_gpu=rank, to_node=spare, to_gpu=rank, from_rail=rank, to_rail=rank)
            for rank in range(SLOTS)
        )
        titles = {OptionKind.SPARE_NODE: f"{spare} takes over from {node}",
                  OptionKind.SHRINK_DP: "go on with one replica less",
                  OptionKind.WAIT: "hold the job until the repair"}  # fmt: skip
        loss = (0.004, 0.13, 1.0)[place]
        return Option(
            kind=kind, title=titles[kind], way=Way.REQUEUE, moves=moves if kind is OptionKind.SPARE_NODE else (),
            renumbered=0 if kind is not OptionKind.SHRINK_DP else job.record.gpus - 8,
            downtime_s=(95.0, 60.0, 14_400.0)[place],
            predicted=Predicted(step_s=8.2, loss=loss, sequences_per_s=60 * (1 - loss),
                                tokens_per_s=491_520 * (1 - loss), gpus=job.record.gpus, global_batch=512),
            downtime=(TimePart(name="stop", seconds=10.0, why="the step is ended"),
                      TimePart(name="start and reload", seconds=(85.0, 50.0, 14_390.0)[place],
                               why="assumed" + self._cluster.odd("[i]"))),
            lost_s=(995.0, 6_000.0, 20_000.0)[place], lost=(),
            commands=(remap_commands.drain([node], "XID 79"), remap_commands.requeue(number),
                      remap_commands.start_now(number)),
            needs=("a checkpoint of the last 30 min",), why=("the spare lies under the same leaves",),
            nodes=(spare, *job.record.nodes[1:]), rendezvous=Rendezvous(before=node, after=spare),
            plan=Plan(global_batch=512),
        )  # fmt: skip

    async def apply(self, proposal: Proposal, choice: int, report: Callable[[str], None]) -> Outcome:
        self.applied.append(choice)
        report("requeue …")
        commands = proposal.choices[choice].option.commands
        return Outcome(done=(commands[1].text, commands[2].text), left=((commands[0].text, "administrator"),),
                       journal="remap-1", can_undo=True)  # fmt: skip

    async def undoing(self, journal: str) -> Undoing:
        return Undoing(commands=(remap_commands.resume(["gpu001"]),), mine=(True,), stays=("requeue: stays, it ran",))

    async def undo(self, journal: str, undoing: Undoing, report: Callable[[str], None]) -> Outcome:
        self.undone.append(journal)
        report("resume …")
        return Outcome(done=("scontrol requeue",))

    async def run(self, commands: Sequence[Command], report: Callable[[str], None]) -> Outcome:
        report("run")
        self.ran += [command.argv for command in commands]
        return Outcome(done=tuple(command.text for command in commands))
