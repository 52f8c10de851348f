"""Every fact of the open real logs is found (EXPECTED.json, kind train_log); logs that ended well have no cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Evidence, Report
from tests.fakes.hard_logs.open_logs import CAUSES

pytestmark = pytest.mark.shared


def expected(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "data/real/EXPECTED.json").read_text())["train_log"]


def read(shared: Path, name: str) -> tuple[Evidence, Report]:
    evidence = read_logs([LogFile(path=shared / "data/real/train_log" / name)], processes=1)
    return evidence, explain(evidence)


def test_all_xids_are_found(shared: Path) -> None:
    for name, facts in expected(shared).items():
        evidence, _ = read(shared, name)
        xids = {
            (finding.fields["pci"].partition(".")[0], int(finding.fields["code"]))
            for finding in evidence.findings
            if finding.signature == "kernel.xid"
        }
        assert {(pci, code) for pci, code in facts["xids"]} <= xids, name


def test_all_watchdog_timeouts_are_found(shared: Path) -> None:
    for name, facts in expected(shared).items():
        evidence, _ = read(shared, name)
        found = {
            (finding.place.rank, int(finding.fields["seq"]), finding.fields["op"])
            for finding in evidence.findings
            if finding.signature == "torch.watchdog_timeout"
        }
        assert {(each["rank"], each["seq"], each["op"]) for each in facts["watchdog_timeouts"]} == found, name


def test_first_and_last_iterations_are_found(shared: Path) -> None:
    for name, facts in expected(shared).items():
        if not name.endswith(".log") or facts["first_iteration"] is None:
            continue
        evidence, _ = read(shared, name)
        firsts = [each.first_iteration for each in evidence.ranks if each.first_iteration is not None]
        lasts = [each.last_iteration for each in evidence.ranks if each.last_iteration is not None]
        assert (min(firsts), max(lasts)) == (facts["first_iteration"], facts["last_iteration"]), name


WELL = ("bs_hf_ds_n16_bs4.log", "sb_megatron_deepspeed.log", "torchtitan_steps.log", "bs_meg_perf_n16.log",
        "bs_megds3d_ds_on.log", "bs_megds_zero_mbs48.log", "dgxc_llama31_steps.log", "aws_fsdp_steps.log",
        "sb_nccl_allreduce.log", "sb_ib_loopback_8M_size.log", "bs_allreduce_a100_n4.txt",
        "gh_gpud1209_mlx5_link.log")  # fmt: skip


@pytest.mark.parametrize("name", WELL)
def test_what_ended_well_has_no_cause(shared: Path, name: str) -> None:
    _, report = read(shared, name)
    assert report.root is None, (report.root and report.root.what, report.root and report.root.findings[:1])


@pytest.mark.parametrize("name", CAUSES)
def test_what_a_log_tells_of_is_the_cause(shared: Path, name: str) -> None:
    _, report = read(shared, name)
    assert report.root is not None
    assert report.root.failure is CAUSES[name], [
        (c.failure, c.confidence, c.what) for c in (report.root, *report.alternatives)
    ]
