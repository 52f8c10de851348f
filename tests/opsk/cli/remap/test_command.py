"""``opsk remap`` from files alone, with a job that Slurm knows, and carried out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.app.remap import execution as remap_apply
from opsk.app.remap import execution as remap_journal
from opsk.cli.main import opsk
from opsk.cli.remap import command as remap_module
from opsk.errors import InputError, OpskError, SlurmError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.job_key import JobKey
from opsk.remapping import execution
from opsk.remapping.journal import FileJournal
from opsk.slurm.commands.remap_commands import Who
from opsk.slurm.records import JobRecord, NodeRecord
from tests.fakes.remap_jobs import JOB, Recorder, names
from tests.fakes.small_plans import small_plan
from tests.golden.compare import assert_as_golden

PLAN = small_plan(gpus_per_node=8, tp=8, dp=4, global_batch=24, cluster="superpod-h100")
LARGE = """
gpus_per_node = 8
cluster = "superpod-h100"
[model]
like = "llama-3-70b"
[plan]
tp = 8
pp = 2
dp = 2
sharding = "zero1"
sequence_parallel = true
recompute = "selective"
micro_batch = 1
global_batch = 128
"""
KINDS = {"idle_gpu", "hb_domain", "spare_node", "shrink_dp", "replan", "wait", "optical"}


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Sixteen nodes of 8 HCAs under two units of eight, as ibnetdiscover shows them."""
    path = tmp_path / "fabric.ibnetdiscover"
    path.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)))
    return str(path)


@pytest.fixture
def files(plan_file: str, dump: str) -> list[str]:
    """All about a job on n0 to n3 with n4 to spare and n5 to n15 free."""
    return ["--plan", plan_file, "--fabric", dump, "--nodes", "n[0-3]", "--spares", "n4", "--free", "n[5-15]",
            "--slurm-release", "24.11"]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, ["remap", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def refusal(*arguments: str) -> OpskError:
    error = run(*arguments).exception
    assert isinstance(error, OpskError), error
    return error


def test_files_alone_say_everything(files: list[str]) -> None:
    shown = answer("--failed", "gpu:n2/5", *files)
    assert shown["job"] == "JOBID"
    assert {option["kind"] for option in shown["options"]} <= KINDS
    assert {"kind", "moves", "predicted", "downtime_s", "commands"} <= set(shown["options"][0])
    spare = next(option for option in shown["options"] if option["kind"] == "spare_node")
    assert [move["to_node"] for move in spare["moves"]] == ["n4"] * 8
    assert [move["rank"] for move in spare["moves"]] == list(range(16, 24))
    assert spare["downtime_s"] == sum(part["seconds"] for part in spare["downtime"])
    assert {"step_s", "loss", "tokens_per_s", "rail_local_fraction"} <= set(spare["predicted"])
    assert shown["damage"]["ranks"][0]["rank"] == 21
    assert {item["field"] for item in shown["assumed"]} == {"placement", "batch_host"}


def test_a_dash_stands_for_no_job(files: list[str]) -> None:
    assert answer("-", "--failed", "gpu:n2/5", *files)["job"] == "JOBID"


def test_a_placement_says_where_ranks_are(plan_file: str, dump: str, tmp_path: Path) -> None:
    placed = tmp_path / "place.json"
    result = CliRunner().invoke(opsk, ["place", plan_file, "--fabric", dump, "--nodes", "n[12-15]", "--json"])
    placed.write_text(result.stdout)
    shown = answer("--failed", "node:n13", "--plan", plan_file, "--fabric", dump, "--placement", str(placed))
    assert {rank["node"] for rank in shown["damage"]["ranks"]} == {"n13"}
    assert not shown["options"][0]["moves"] or shown["options"][0]["kind"] == "spare_node"
    assert "placement" not in {item["field"] for item in shown["assumed"]}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": [{"rank": 5, "node": "n0", "gpu": 0}]}', "[" * 9999])
def test_what_is_no_placement_is_refused(plan_file: str, dump: str, tmp_path: Path, text: str) -> None:
    placed = tmp_path / "place.json"
    placed.write_text(text)
    error = refusal("--failed", "node:n3", "--plan", plan_file, "--fabric", dump, "--placement", str(placed))
    assert str(placed) in error.message
    assert "opsk place --json" in error.hint


def test_a_failure_elsewhere_is_an_answer(files: list[str]) -> None:
    result = run("--failed", "node:n15", *files)
    assert result.exception is None
    assert "nothing to do: node:n15" in result.stdout


def test_a_domain_of_a_designed_cluster_can_fail(root: Path) -> None:
    """Racks of 18 trays as the catalogue has them, 16 of each in use: the spare rack takes the ranks of a whole one."""
    words = [
        *("--plan", str(root / "examples/plans/llama3-405b-gb200.toml"), "--slurm-release", "25.11", "--json"),
        *("--nodes", "n[0-15,18-33,36-51,54-69,72-87,90-105,108-123,126-141]", "--free", "n[144-161]"),
        *("--spares", "n[16-17,34-35,52-53,70-71,88-89,106-107,124-125,142-143]", "--failed", "hb:hb2"),
    ]
    first = json.loads(run(*words).stdout)["options"][0]
    assert first["kind"] == "hb_domain"
    assert len(first["moves"]) == 64


def test_what_does_not_exist_is_refused_with_what_is_near(files: list[str]) -> None:
    error = refusal("--failed", "node:n33", *files)
    assert error.exit_status == 2
    assert "did you mean n3" in error.hint


def test_neither_job_nor_files_is_refused(plan_file: str, dump: str) -> None:
    assert "--placement" in refusal("--failed", "node:n3", "--plan", plan_file, "--fabric", dump).hint


def test_hostile_names_do_not_reach_the_terminal(files: list[str]) -> None:
    result = CliRunner().invoke(opsk, ["remap", "--failed", "node:\x1b[31mn2", *files])
    assert isinstance(result.exception, InputError)
    assert "\x1b" not in result.output


def test_the_picture_is_as_it_was_read(
    files: list[str], dump: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_slurm(monkeypatch, FakeSlurm(None))
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(LARGE)
    files[files.index(dump)] = "fabric.ibnetdiscover"
    result = run("4711", "--failed", "gpu:n2/5", *files)
    assert result.exception is None
    assert_as_golden("remap/spare-node.txt", result.stdout)


# A job that Slurm knows.


class FakeSlurm:
    """Stands for a cluster of sixteen nodes with one job on n0 to n4; n5 is reserved, n6 drained, n7 is busy."""

    def __init__(self, job: JobRecord | None = JOB, *, cluster: str = "") -> None:
        self._job = job
        self._cluster = cluster

    def job(self, job_id: str) -> JobRecord:
        if self._job is None:
            raise SlurmError("squeue did not answer within 10 s")
        assert job_id == self._job.label
        return self._job

    def nodes(self) -> tuple[NodeRecord, ...]:
        def node(number: int) -> NodeRecord:
            busy = number <= 4 or number == 7
            flags = {5: ("RESERVED",), 6: ("DRAIN",)}.get(number, ())
            return NodeRecord(
                name=f"n{number}", state="ALLOCATED" if busy else "IDLE", state_flags=flags, partitions=("gpu",),
                gpus=8, gpus_used=8 * busy,
            )  # fmt: skip

        return tuple(node(number) for number in range(16))

    def release(self) -> tuple[int, int]:
        return 22, 5

    def config(self) -> dict[str, str]:
        named = {"ClusterName": self._cluster} if self._cluster else {}
        return {"TopologyPlugin": "topology/tree", **named}


def use_slurm(monkeypatch: pytest.MonkeyPatch, slurm: FakeSlurm) -> None:
    monkeypatch.setattr(remap_module, "slurm_client", lambda: slurm)


def test_slurm_tells_the_nodes_and_who_is_free(plan_file: str, dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes are needed, the job holds five: n4 is a spare. n5 to n7 cannot be had, n8 can."""
    use_slurm(monkeypatch, FakeSlurm())
    shown = answer("4711", "--failed", "gpu:n2/5", "--plan", plan_file, "--fabric", dump)
    spares = [option for option in shown["options"] if option["kind"] == "spare_node"]
    assert [(option["way"], option["moves"][0]["to_node"]) for option in spares] == [
        ("relaunch", "n4"),
        ("requeue", "n8"),
    ]
    assert shown["slurm"] == {"release": "22.05", "release_is": "installed", "topology": "tree"}
    assert spares[1]["commands"][1]["argv"] == ["scontrol", "requeue", "4711"]


def test_the_plan_of_the_advice_will_do(dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, admin_comment="opsk:v1 verdict=fits tp=8 pp=1 dp=4")))
    shown = answer("4711", "--failed", "gpu:n2/5", "--fabric", dump)
    assert {option["kind"] for option in shown["options"]} == {"spare_node", "shrink_dp", "wait"}
    assert shown["what"] == "communication"
    assert any("without --cluster" in note for note in shown["notes"])


def test_a_pending_job_needs_its_nodes_named(plan_file: str, dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, state="PENDING", nodes=(), gpu_indices={})))
    error = refusal("4711", "--failed", "gpu:n2/5", "--plan", plan_file, "--fabric", dump)
    assert "--nodes" in error.hint
    shown = answer("4711", "--failed", "gpu:n2/5", "--plan", plan_file, "--fabric", dump, "--nodes", "n[0-3]")
    assert not shown["is_running"]
    assert {option["way"] for option in shown["options"]} <= {"requeue", "hold"}


def test_without_slurm_a_job_that_is_not_described_cannot_be_told(
    plan_file: str, dump: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_slurm(monkeypatch, FakeSlurm(None))
    error = refusal("4711", "--failed", "gpu:n2/5", "--plan", plan_file, "--fabric", dump)
    assert error.exit_status == 3
    shown = answer("4711", "--failed", "gpu:n2/5", *files)
    assert shown["job"] == "4711"
    assert "job.state" in {item["field"] for item in shown["assumed"]}


def test_gpus_that_the_job_holds_are_those_of_its_ranks(
    plan_file: str, dump: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job holds GPUs 2 to 7 of each node; tp 2: its local rank 3 is on GPU 5."""
    plan = tmp_path / "six.toml"
    plan.write_text(PLAN.replace("= 8\n", "= 6\n", 1).replace("tp = 8\ndp = 4", "tp = 2\ndp = 12"))
    held = {node: tuple(range(2, 8)) for node in names(0, 3)}
    use_slurm(
        monkeypatch, FakeSlurm(replace(JOB, nodes=tuple(names(0, 3)), gpus=24, gpus_per_node=6, gpu_indices=held))
    )
    shown = answer("4711", "--failed", "gpu:n2/5", "--plan", str(plan), "--fabric", dump)
    assert [(rank["rank"], rank["local_rank"]) for rank in shown["damage"]["ranks"]] == [(15, 3)]
    assert any("adds no GPU" in entry["why"] for entry in shown["refused"] if entry["kind"] == "idle_gpu")


def test_goodput_is_told_until_the_end_of_the_job(
    plan_file: str, dump: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hour is left of two. Without a time limit it is told over the horizon of a day."""
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, time_limit_s=7200, run_time_s=3600)))
    shown = answer("4711", "--failed", "gpu:n2/5", "--plan", plan_file, "--fabric", dump)
    option = next(entry for entry in shown["options"] if entry["kind"] == "spare_node")
    assert option["goodput_over_s"] == 3600
    # The least that is lost: downtime, and half of the 1800 s between two checkpoints.
    assert option["goodput"] == pytest.approx(1 - (option["downtime_s"] + 900) / 3600, abs=0.01)
    assert answer("--failed", "gpu:n2/5", *files)["options"][0]["goodput_over_s"] == 86_400


def test_the_preview_shows_seats_before_and_after(files: list[str]) -> None:
    options = answer("--failed", "gpu:n2/5", *files)["options"]
    seats = next(entry for entry in options if entry["kind"] == "spare_node")["preview"]
    assert seats["nodes"] == ["n2", "n4"]
    assert seats["columns"] == [f"rail {rail}" for rail in range(8)]
    assert seats["before"] == [list(range(16, 24)), [-1] * 8]
    assert seats["after"] == [[-1] * 8, list(range(16, 24))]
    assert seats["failed"] == [[gpu == 5 for gpu in range(8)], [False] * 8]


# Carrying an option out; how that is done is tested in tests/opsk/remapping.


@pytest.fixture
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(execution, "_POLL_S", 0.0)
    return tmp_path / "state" / "opsk" / "remaps"


def test_apply_resume_and_journal_from_the_command_line(
    files: list[str],
    own_journal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_slurm(monkeypatch, FakeSlurm(None))
    monkeypatch.setattr(remap_apply, "run_command", Recorder(refuse="starttime"))
    monkeypatch.setattr(remap_apply, "find_caller_rights", lambda job, run: (Who.USER,))
    ranks = ["--rank-file", str(tmp_path / "ranks")]
    arguments = ["4711", "--failed", "node:n0", *files, *ranks, "--apply", "spare_node", "--yes", "--json"]
    assert opsk.main(["remap", *arguments], standalone_mode=False) == 3
    applied = json.loads(capsys.readouterr().out)["applied"]
    assert applied["done"][0] == "scontrol requeue 4711"
    assert "starttime" in applied["refused"]
    assert (own_journal / f"{applied['journal']}.jsonl").exists()
    assert opsk.main(["remap", "--journal", "--json"], standalone_mode=False) == 0
    (listed,) = json.loads(capsys.readouterr().out)["remaps"]
    assert (listed["id"], listed["state"], listed["said"]) == (applied["journal"], "failed", applied["said"])
    monkeypatch.setattr(remap_apply, "run_command", Recorder())
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, state="PENDING", restarts=0, nodes=())))
    assert opsk.main(["remap", "--resume", listed["id"], "--yes", "--json"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out)["applied"]["refused"] is None


@pytest.mark.usefixtures("own_journal")
def test_apply_asks_first(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_slurm(monkeypatch, FakeSlurm(None))
    recorder = Recorder()
    monkeypatch.setattr(remap_apply, "run_command", recorder)
    arguments = ["remap", "4711", "--failed", "node:n0", *files, "--apply", "spare_node"]
    result = CliRunner().invoke(opsk, arguments, input="n\n")
    assert "now?" in result.output
    assert not [argv for argv in recorder.ran if argv[0] == "scontrol"]
    assert "--yes" in run(*arguments[1:], "--json").output


def test_an_option_of_another_world_is_not_applied(
    files: list[str], own_journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["--apply", "spare_node", "--yes", "--json", "--world", "0123456789abcdef"]
    assert opsk.main(["remap", "-", "--failed", "gpu:n2/5", *files, *wanted], standalone_mode=False) == 3
    assert json.loads(capsys.readouterr().out)["applied"]["is_outdated"]
    assert not own_journal.exists()


@pytest.mark.usefixtures("own_journal")
def test_a_journal_needs_no_failure_and_one_thing_is_done_at_a_time() -> None:
    assert "no remap" in run("--journal").output
    assert "say what failed" in run("4711").output
    assert "give only one" in run("--journal", "--undo", "x").output
    assert "--yes" in run("--undo", "x", "--json").output
    assert isinstance(run("--undo", "x", "--yes").exception, InputError)


def test_nodes_that_opsk_drained_come_back_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(remap_journal, "run_command", recorder)
    monkeypatch.setattr(remap_journal.os, "geteuid", lambda: 0)

    class Drained(FakeSlurm):
        def nodes(self) -> tuple[NodeRecord, ...]:
            ours, theirs = "opsk: gpu:n1/2 failed", "new disk"
            return (
                NodeRecord(name="n1", state="IDLE", state_flags=("DRAIN",), reason=ours),
                NodeRecord(name="n2", state="IDLE", state_flags=("DRAIN",), reason=theirs),
            )

    monkeypatch.setattr(remap_module, "slurm_client", Drained)
    assert run("--resume-node", "n1", "--yes").exception is None
    assert recorder.ran == [("scontrol", "update", "nodename=n1", "state=resume")]
    assert "new disk" in refusal("--resume-node", "n[1-2]", "--yes").message
    assert "n9" in refusal("--resume-node", "n9", "--yes").message


def test_an_option_that_is_not_there_is_refused_with_why(files: list[str]) -> None:
    error = refusal("-", "--failed", "gpu:n2/5", *files, "--apply", "optical", "--yes")
    assert "--optical" in error.message
    assert "2 spare_node" in error.hint
    assert "no option '99'" in refusal("-", "--failed", "gpu:n2/5", *files, "--apply", "99", "--yes").message


def remap_on(
    cluster: str, files: list[str], ranks: Path, monkeypatch: pytest.MonkeyPatch, *, refuse: str = "starttime"
) -> str:
    """Begin a remap of job 4711 of a cluster, which Slurm then refuses in part; return its id."""
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, restarts=0), cluster=cluster))
    monkeypatch.setattr(remap_apply, "run_command", Recorder(refuse=refuse))
    monkeypatch.setattr(remap_apply, "find_caller_rights", lambda job, run: tuple(Who))
    plan, fabric = files[:2], files[2:4]
    arguments = ["4711", "--failed", "gpu:n2/5", *plan, *fabric, "--rank-file", str(ranks), "--apply", "spare_node"]
    document = json.loads(CliRunner().invoke(opsk, ["remap", *arguments, "--yes", "--json"]).stdout)
    return str(document["applied"]["journal"])


def test_two_clusters_have_jobs_of_one_number_in_one_journal(
    files: list[str], own_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cluster lists its own remaps, goes on with its own, and refuses those of the other."""
    east = remap_on("east", files, tmp_path / "ranks", monkeypatch)
    west = remap_on("west", files, tmp_path / "ranks", monkeypatch)
    assert {path.name for path in own_journal.glob("*.jsonl")} == {f"east.{east}.jsonl", f"west.{west}.jsonl"}
    assert {path.name for path in own_journal.glob(".*.lock")} == {".east.4711.lock", ".west.4711.lock"}
    listed = answer("--journal")
    assert [(row["id"], row["cluster"]) for row in listed["remaps"]] == [(west, "west")]
    assert (listed["cluster"], listed["other_clusters"]) == ("west", 1)
    shown = run("--journal").output
    assert east not in shown
    assert "1 of other clusters: see opsk remap --journal --all-clusters" in shown
    assert {row["id"] for row in answer("--journal", "--all-clusters")["remaps"]} == {east, west}
    assert "job 4711 of cluster east" in run("--journal", "--all-clusters").output
    for option in ("--resume", "--undo"):
        error = refusal(option, east, "--yes")
        assert f"remap {east} is of job 4711 of cluster east, but Slurm's commands use cluster west" in error.message
        assert "SLURM_CONF" in error.hint
    assert json.loads(run("--undo", west, "--yes", "--json").stdout)["applied"]["journal"] == west


def test_a_remap_of_one_cluster_does_not_wait_for_another(
    files: list[str], own_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileJournal(own_journal).lock(JobKey(cluster="east", job="4711")):
        assert remap_on("west", files, tmp_path / "ranks", monkeypatch)
        use_slurm(monkeypatch, FakeSlurm(replace(JOB, restarts=0), cluster="east"))
        arguments = ["4711", "--failed", "gpu:n2/5", *files[:4], "--apply", "spare_node", "--yes"]
        assert "another opsk is remapping job 4711 of cluster east now" in refusal(*arguments).message


def test_what_opsk_0_1_wrote_is_listed_and_undone_by_its_id(
    files: list[str], own_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no cluster: it is listed everywhere, and whoever asks for it by its id means the cluster here."""
    east = remap_on("east", files, tmp_path / "ranks", monkeypatch)
    written = own_journal / f"east.{east}.jsonl"
    first, *rest = written.read_text().splitlines()
    said = json.loads(first)
    del said["remap"]["cluster"]
    (own_journal / f"{east}.jsonl").write_text("\n".join([json.dumps(said), *rest, ""]))
    written.unlink()
    use_slurm(monkeypatch, FakeSlurm(replace(JOB, restarts=0), cluster="west"))
    (listed,) = answer("--journal")["remaps"]
    assert (listed["id"], listed["cluster"]) == (east, None)
    assert json.loads(run("--undo", east, "--yes", "--json").stdout)["applied"]["journal"] == east
    assert (own_journal / ".west.4711.lock").exists()
