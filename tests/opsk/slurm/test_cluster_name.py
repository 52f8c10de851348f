"""The name of a cluster is what slurmctld says; a job's environment counts where it does not answer."""

from __future__ import annotations

import pytest

from opsk.errors import SlurmError
from opsk.slurm.cluster_name import cluster_name


class Client:
    def __init__(self, said: dict[str, str] | None) -> None:
        self.said = said

    def config(self) -> dict[str, str]:
        if self.said is None:
            raise SlurmError("slurmctld does not answer")
        return self.said


@pytest.mark.parametrize(
    ("said", "variable", "expected"),
    [
        ({"ClusterName": "hall-2"}, "", "hall-2"),
        ({"ClusterName": "hall-2"}, "hall-1", "hall-2"),
        ({}, "hall-1", "hall-1"),
        (None, "hall-1", "hall-1"),
        (None, "", ""),
    ],
)
def test_who_tells_the_name(said: dict[str, str] | None, variable: str, expected: str) -> None:
    assert cluster_name(Client(said), {"SLURM_CLUSTER_NAME": variable} if variable else {}) == expected
