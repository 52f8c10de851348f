"""A Slurm of one job in a file, as slow and as forgetful as one needs: what a process did outlives its being killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opsk.errors import InputError, SlurmError
from opsk.hostlist import expand
from opsk.slurm.records import JobRecord, NodeRecord


class SlurmWorld:
    """Takes commands in the place of Slurm and answers questions; everything is in ``path``.

    Parameters
    ----------
    refuse
        Commands with this word in them are refused.
    starts_by_itself
        A requeued job starts without ``starttime=now``.
    at
        Is called before and after each command.
    """

    def __init__(
        self,
        path: Path,
        *,
        refuse: str = "no such word",
        starts_by_itself: bool = False,
        at: Callable[[str], None] = lambda where: None,
    ) -> None:
        self._path = path
        self._refuse = refuse
        self._starts_by_itself = starts_by_itself
        self._at = at
        self.is_silent = False
        if not path.exists():
            nodes = {f"n{number}": {"state": "IDLE", "flags": [], "reason": None} for number in range(8)}
            job = {
                "state": "RUNNING",
                "restarts": 0,
                "nodes": ["n0", "n1", "n2", "n3"],
                "req": [],
                "exc": [],
                "why": None,
            }
            self._save({"nodes": nodes, "job": job, "ran": []})

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        world = self.load()
        if argv[0] == "squeue":
            state = world["job"]["state"]
            if state == "COMPLETING":
                world["job"] |= {"state": "PENDING", "nodes": []}
                self._save(world)
            return 0, state + "\n"
        self._at(f"before {argv[1]}")
        if any(self._refuse in word for word in argv):
            return 1, "slurm_update error: Access denied"
        world["ran"].append(list(argv))
        self._do(world, list(argv))
        self._save(world)
        self._at(f"after {argv[1]}")
        return 0, ""

    @property
    def ran(self) -> list[list[str]]:
        """All commands that were carried out."""
        found: list[list[str]] = self.load()["ran"]
        return found

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Let somebody else change the world."""
        world = self.load()
        edit(world)
        self._save(world)

    def job(self, job_id: str) -> JobRecord:
        """Return the job."""
        if self.is_silent:
            raise SlurmError("slurmctld did not answer within 10 s")
        job = self.load()["job"]
        if job["state"] == "FORGOTTEN":
            raise InputError(f"there is no job {job_id}")
        return JobRecord(
            id=7, label="7", user="ann", name="train", state=job["state"], nodes=tuple(job["nodes"]),
            restarts=job["restarts"], required_nodes=tuple(job["req"]), excluded_nodes=tuple(job["exc"]),
            reason=job["why"], gpus_per_node=4,
        )  # fmt: skip

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return the nodes."""
        return tuple(
            NodeRecord(name=name, state=node["state"], state_flags=tuple(node["flags"]), reason=node["reason"], gpus=4)
            for name, node in self.load()["nodes"].items()
        )

    def config(self) -> dict[str, str]:
        """Return the configuration."""
        return {"ClusterName": "small"}

    def load(self) -> dict[str, Any]:
        """Return everything."""
        found: dict[str, Any] = json.loads(self._path.read_text())
        return found

    def _save(self, world: dict[str, Any]) -> None:
        self._path.write_text(json.dumps(world))

    def _do(self, world: dict[str, Any], argv: list[str]) -> None:
        job = world["job"]
        words = dict(word.partition("=")[::2] for word in argv[2:] if "=" in word)
        if argv[1] in {"requeue", "requeuehold"}:
            held = argv[1] == "requeuehold"
            job |= {"state": "COMPLETING", "restarts": job["restarts"] + 1, "why": "BeginTime"}
            if held:
                job |= {"state": "PENDING", "nodes": [], "why": "JobHeldUser"}
            if self._starts_by_itself:
                self._start(job)
        elif argv[1] == "release":
            job["why"] = "Resources"
        elif "nodename" in words:
            for name in expand(words["nodename"]):
                is_drain = words["state"] == "drain"
                world["nodes"][name] |= {
                    "flags": ["DRAIN"] * is_drain,
                    "reason": words.get("reason") if is_drain else None,
                }
        elif "starttime" in words:
            self._start(job)
        elif "reqnodelist" in words:
            job["req"] = list(expand(words["reqnodelist"])) if words["reqnodelist"] else []
            if "excnodelist" in words:
                job["exc"] = list(expand(words["excnodelist"])) if words["excnodelist"] else []
        elif "nodelist" in words:
            job["nodes"] = list(expand(words["nodelist"]))

    @staticmethod
    def _start(job: dict[str, Any]) -> None:
        nodes = job["req"] or [name for name in ("n0", "n1", "n2", "n3", "n4") if name not in job["exc"]][:4]
        job |= {"state": "RUNNING", "nodes": nodes, "why": None}
