"""What sacct answers, by the forms of four releases; names may hold any sign."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.accounting import (
    FIELDS,
    NODE_COLUMNS,
    AccountingClient,
    find_last_ended,
    parse_coordinators,
    parse_reasons,
    parse_runs,
)

MARK = "|5ca1ab1e|"


def row(label: str, *, number: str = "", **said: str) -> dict[str, str]:
    told = {"JobID": label, "JobIDRaw": number or label, "State": "COMPLETED", "ExitCode": "0:0", "NodeList": "n[0-1]",
            "Start": "1000", "End": "1100"}  # fmt: skip
    return told | said


def text(*rows: dict[str, str], fields: tuple[str, ...] = FIELDS) -> str:
    return "".join("".join(each.get(field, "") + MARK for field in fields) + "\n" for each in rows)


def test_steps_belong_to_the_run_before_them() -> None:
    (run,) = parse_runs(
        text(
            row(
                "7", State="FAILED", ExitCode="1:0", DerivedExitCode="0:125", UID="1000", User="ada", TimelimitRaw="90"
            ),
            row("7.batch", State="FAILED", NodeList="n0"),
            row("7.0", State="OUT_OF_MEMORY", ExitCode="0:125", NTasks="16", MaxRSS="2048K"),
        ),
        FIELDS,
        MARK,
    )
    assert (run.id, run.state, run.user, run.uid, run.nodes) == (7, "FAILED", "ada", 1000, ("n0", "n1"))
    assert (run.exit_code, run.derived_exit_code, run.derived_exit_signal) == (1, 0, 125)
    assert (run.start_s, run.end_s, run.time_limit_s) == (1000.0, 1100.0, 5400)
    assert [(step.id, step.state, step.exit_signal) for step in run.steps] == [
        ("batch", "FAILED", 0),
        ("0", "OUT_OF_MEMORY", 125),
    ]
    assert run.steps[1].tasks == 16
    assert run.steps[1].memory_peak_bytes == 2 * 1024**2


def test_who_cancelled_it_stands_behind_the_state() -> None:
    (run,) = parse_runs(text(row("8", State="CANCELLED by 4242")), FIELDS, MARK)
    assert (run.state, run.cancelled_by) == ("CANCELLED", 4242)


def test_a_requeued_job_has_a_run_each_time_and_the_last_that_ended_counts() -> None:
    """Slurm 22.05 has no field Restarts: the rows are counted."""
    runs = parse_runs(
        text(row("9", State="NODE_FAIL"), row("9", State="PENDING", NodeList="None assigned", Start="Unknown")),
        FIELDS,
        MARK,
    )
    assert [(run.state, run.restarts, run.nodes) for run in runs] == [
        ("NODE_FAIL", 0, ("n0", "n1")),
        ("PENDING", 1, ()),
    ]
    ended = find_last_ended(runs)
    assert ended is not None
    assert ended.state == "NODE_FAIL"


def test_a_job_that_gave_nodes_back_is_one_run() -> None:
    (run,) = parse_runs(text(row("9", State="RESIZING", NodeList="n[0-2]"), row("9", NodeList="n0")), FIELDS, MARK)
    assert (run.state, run.nodes) == ("COMPLETED", ("n0", "n1", "n2"))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60).filter(lambda name: MARK not in name))
def test_names_may_hold_anything(name: str) -> None:
    (run,) = parse_runs(text(row("7", JobName=name, WorkDir="/tmp")), FIELDS, MARK)
    assert run.name == name
    assert run.id == 7


@pytest.mark.parametrize("damaged", ["7", f"7{MARK}7{MARK}FAI"])
def test_an_answer_that_ends_within_a_record_is_none(damaged: str) -> None:
    with pytest.raises(SlurmError, match="ends within a record"):
        parse_runs(damaged, FIELDS, MARK)


def test_only_nodes_with_a_reason_are_told() -> None:
    told = [
        ("n0", "idle", "none", "Unknown", "Unknown"),
        ("n1", "down*", "Not responding", "1100", "slurm(64030)"),
        ("n1", "down*", "Not responding", "1100", "slurm(64030)"),
    ]
    answer = "".join("".join(cell + MARK for cell in cells) + "\n" for cells in told)
    (found,) = parse_reasons(answer, MARK)
    assert (found.node, found.reason, found.at_s, found.state) == ("n1", "Not responding", 1100.0, "DOWN*")
    assert len(NODE_COLUMNS) == 5


SACCT = r"""#!/usr/bin/python3
# Stands for a sacct of an old release, with a job and an array.
import sys
known = ["JobID", "JobIDRaw", "State", "ExitCode", "NodeList", "Start", "End", "JobName"]
if "-e" in sys.argv:
    print(" ".join(known))
    sys.exit(0)
mark = next(word.partition("=")[2] for word in sys.argv if word.startswith("--delimiter="))
fields = sys.argv[sys.argv.index("-o") + 1].split(",")
if not set(fields) <= set(known):
    sys.exit("sacct: error: Invalid field requested")
asked = sys.argv[sys.argv.index("-j") + 1]
jobs = {"7": ["7"], "10": ["10_1", "10_2"], "10_2": ["10_2"], "99": []}
for label in jobs[asked]:
    said = {"JobID": label, "JobIDRaw": label.replace("_", ""), "State": "FAILED", "ExitCode": "1:0",
            "NodeList": "n0", "Start": "10", "End": "20", "JobName": "a\n7|b"}
    print("".join(said[field] + mark for field in fields))
"""


@pytest.fixture
def client(tmp_path: Path) -> AccountingClient:
    path = tmp_path / "sacct"
    path.write_text(SACCT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return AccountingClient(environment={"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"})


def test_only_fields_of_this_release_are_asked_for(client: AccountingClient) -> None:
    (run,) = client.runs("7")
    assert (run.id, run.state, run.name) == (7, "FAILED", "a\n7|b")


def test_a_task_of_an_array_is_one_job_and_the_array_is_several(client: AccountingClient) -> None:
    assert client.runs("10_2")[0].label == "10_2"
    with pytest.raises(InputError, match="stands for 2 jobs"):
        client.runs("10")
    with pytest.raises(InputError, match="knows no job 99"):
        client.runs("99")
    with pytest.raises(InputError, match="no job id"):
        client.runs("7; rm -rf /")


def test_a_machine_without_sacct_says_so(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="sacct"):
        AccountingClient(environment={"PATH": str(tmp_path)}).runs("7")


ENDED = r"""#!/usr/bin/python3
# Stands for sacct, which is asked for times in seconds since 1970, and answers with more than it was asked for.
import sys
fields = "JobID JobIDRaw State ExitCode NodeList Start End".split()
if "-e" in sys.argv:
    print(" ".join(fields))
    sys.exit(0)
asked = " ".join(sys.argv)
assert "-D -X -a" in asked and "--state=NODE_FAIL,BOOT_FAIL -S uts1000 -E uts2000" in asked, asked
mark = next(word.partition("=")[2] for word in sys.argv if word.startswith("--delimiter="))
for label, state, end in (("9", "NODE_FAIL", "1900"), ("7", "NODE_FAIL", "1100"), ("8", "FAILED", "1200"),
                          ("6", "NODE_FAIL", "2500"), ("5", "NODE_FAIL", "Unknown")):
    said = {"JobID": label, "JobIDRaw": label, "State": state, "ExitCode": "1:0", "NodeList": "n1", "Start": "900",
            "End": end}
    print("".join(said[field] + mark for field in fields))
"""


def test_what_ended_in_some_states_within_a_time_comes_the_first_one_first(tmp_path: Path) -> None:
    (tmp_path / "sacct").write_text(ENDED)
    (tmp_path / "sacct").chmod(stat.S_IRWXU)
    client = AccountingClient(environment={"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"})
    found = client.list_ended(("NODE_FAIL", "BOOT_FAIL"), 1000.0, 2000.0)
    assert [(run.id, run.end_s) for run in found] == [(7, 1100.0), (9, 1900.0)]


@pytest.mark.parametrize(
    ("text", "accounts"),
    [
        ("", {}),
        # the form of sacctmgr -nP, which is the same from 22.05 to 26.05; root has no coordinator
        ("root|\nphysics|ada,grace\nastro|grace\n", {"ada": ("physics",), "grace": ("astro", "physics")}),
        ("odd|name|ada\n", {"ada": ("odd|name",)}),
        ("physics|ada\nphysics|ada\n|ada\nno mark\nphysics| , \n", {"ada": ("physics",)}),
    ],
)
def test_coordinators_are_read_by_user(text: str, accounts: dict[str, tuple[str, ...]]) -> None:
    assert parse_coordinators(text) == accounts
