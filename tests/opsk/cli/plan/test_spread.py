"""A search as a job array: its folder, its tasks, and what ``--merge`` makes of whole, missing and damaged parts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.cli.plan.array import find_command
from opsk.errors import OpskError

REQUEST = (
    *("--model", "llama-3-8b", "--gpus", "16", "--cluster", "superpod-h100", "--global-batch", "64"),
    *("--tp", "2", "--cp", "1", "--schedule", "1f1b"),
)
PARTS = 3


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(opsk, ["plan", *map(str, words)], standalone_mode=False)


def refusal(*words: str | Path) -> str:
    """The error that a command line ends with."""
    result = run(*words)
    assert result.exception is not None, result.output
    return getattr(result.exception, "message", str(result.exception))


def written(folder: Path, *more: str | Path, request: tuple[str, ...] = REQUEST) -> Path:
    result = run(*request, *more, "--array", str(PARTS), "--array-dir", folder, "--no-submit")
    assert result.return_value == 0, result.exception
    return folder


def search_part(folder: Path, number: int, *more: str) -> Result:
    output = folder / f"part-{number}.json"
    result = run(folder / "request.toml", "--part", f"{number}/{PARTS}", "--output", output, *more)
    assert result.return_value == 0, result.exception
    return result


def answer(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exception is None, result.exception
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.fixture(scope="module")
def search_space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an array whose parts are all there; tests that change it take a copy."""
    folder = written(tmp_path_factory.mktemp("array") / "searched")
    for number in range(PARTS):
        search_part(folder, number)
    return folder


@pytest.fixture
def folder(search_space: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(search_space, tmp_path / "folder"))


def test_parts_merged_are_the_answer_of_one_search(search_space: Path) -> None:
    whole, merged = answer(*REQUEST), answer("--merge", search_space)
    parts = merged.pop("parts")
    assert (parts["parts"], parts["joined"], parts["missing"]) == (PARTS, PARTS, [])
    assert parts["longest_s"] <= parts["seconds"] == merged["seconds"]
    varying = ("seconds", "refused")  # near-misses of equal chance: which of them are seen depends on the order
    assert {key: merged[key] for key in merged if key not in varying} == {
        key: whole[key] for key in whole if key not in varying
    }
    assert whole["best"]


def test_a_bounded_search_in_parts_has_the_same_plans(tmp_path: Path) -> None:
    request = (*REQUEST[:2], *REQUEST[4:8], "--gpus", "256", "--framework", "megatron", "--memory-margin", "5%")
    request = (*request, "--top", "3")
    folder = written(tmp_path / "array", request=request)
    for number in range(PARTS):
        search_part(folder, number)
    whole, merged = answer(*request), answer("--merge", folder)
    assert whole["space"] == merged["space"] == merged["evaluated"] + merged["bounded"] > merged["evaluated"]
    assert (merged["best"], merged["best_fitting"]) == (whole["best"], whole["best_fitting"])
    assert (merged["assumed"], merged["framework"]) == (whole["assumed"], "megatron")


def test_missing_parts_are_named_and_the_rest_is_joined(folder: Path) -> None:
    (folder / "part-0.json").unlink()
    (folder / "part-2.json").unlink()
    result = run("--merge", folder, "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 1
    assert "missing of 3 parts: 0, 2" in result.stderr
    assert document["parts"]["missing"] == [0, 2]
    assert document["interrupted"]
    assert 0 < document["evaluated"] + document["bounded"] < document["space"] == answer(*REQUEST)["space"]
    assert document["best"]


def test_without_any_part_there_is_nothing_to_join(folder: Path) -> None:
    for number in range(PARTS):
        (folder / f"part-{number}.json").unlink()
    assert "missing of 3 parts: 0, 1, 2" in refusal("--merge", folder)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "Invalid JSON"),
        (lambda data: b"", "Invalid JSON"),
        (lambda data: b"\xff\xfe" + data, "Invalid JSON"),
        (lambda data: b"[" * 100_000, "Invalid JSON"),
        (lambda data: b"[]", "an object"),
        (lambda data: data.replace(b'"evaluated": ', b'"evaluated": 1'), "has changed since"),
        (lambda data: data.replace(b'"step_s": ', b'"step_s": 1', 1), "has changed since"),
        (lambda data: data.replace(b'"seconds"', b'"se\\u001b[31mconds"'), r"se\x1b[31mconds"),
    ],
)
def test_a_damaged_part_is_named_and_the_rest_is_joined(folder: Path, damage: Any, why: str) -> None:
    path = folder / "part-1.json"
    path.write_bytes(damage(path.read_bytes()))
    result = run("--merge", folder, "--json")
    assert result.return_value == 1
    parts = json.loads(result.stdout)["parts"]
    assert (parts["joined"], [one["part"] for one in parts["damaged"]]) == (PARTS - 1, [1])
    assert why in parts["damaged"][0]["why"]
    assert "part 1 is damaged: part-1.json" in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("request_sha256", "0" * 64, "of another request"),
        ("opsk", "0.0.0", "written by opsk 0.0.0"),
        ("part", 2, "part 2/3, not 1/3"),
        ("parts", 8, "part 1/8, not 1/3"),
    ],
)
def test_a_part_of_another_search_is_told_apart(folder: Path, key: str, value: Any, why: str) -> None:
    path = folder / "part-1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    result = run("--merge", folder, "--json")
    assert result.return_value == 1
    assert why in json.loads(result.stdout)["parts"]["foreign"][0]["why"]


def test_a_part_that_is_done_is_not_searched_again_unless_forced_or_damaged(folder: Path) -> None:
    path = folder / "part-1.json"
    before = path.stat().st_mtime_ns
    assert "was done already" in search_part(folder, 1).output
    assert path.stat().st_mtime_ns == before
    assert "searched:" in search_part(folder, 1, "--force").output
    assert path.stat().st_mtime_ns > before
    path.write_text("{")
    result = search_part(folder, 1)
    assert "searched again" in result.stderr
    assert run("--merge", folder).return_value == 0
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_every_file_that_the_request_names_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cluster, model and efficiencies may be gone, and the site another one, where the tasks run."""
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text('like = "superpod-h100"\nname = "own"\nnodes = 4\n')
    config = {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 4096}
    config |= {"num_attention_heads": 16, "vocab_size": 32000, "max_position_embeddings": 2048}
    Path("config.json").write_text(json.dumps(config))
    Path("site.toml").write_text("[links]\nnic_fraction = 0.5\n")
    request = ("--model", "config.json", "--gpus", "8", "--cluster", "own.toml", "--global-batch", "16")
    request = (*request, "--efficiency", "site.toml", "--tp", "2", "--keep-batch")
    whole = answer(*request)
    folder = written(tmp_path / "array", request=request)
    for name in ("own.toml", "config.json", "site.toml"):
        Path(name).unlink()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("opsk.toml").write_text('cluster = "selene"\n')
    monkeypatch.setenv("OPSK_CONFIG", "opsk.toml")
    moved = folder.rename(tmp_path / "moved")
    for number in range(PARTS):
        search_part(moved, number)
    merged = answer("--merge", moved)
    assert (merged["cluster"]["name"], merged["best"]) == ("own", whole["best"])


def test_a_request_that_was_changed_is_not_searched(folder: Path) -> None:
    path = folder / "request.toml"
    path.write_text(path.read_text().replace("global_batch = 64", "global_batch = 128"))
    assert "the request that is read here differs" in refusal(
        path, "--part", "0/3", "--output", folder / "part-0.json", "--force"
    )
    assert "differs" in refusal("--merge", folder)


def test_another_search_is_not_written_over_unless_forced(folder: Path) -> None:
    written(folder)  # the same one may be: what is done stays done
    other = (*REQUEST, "--micro-batch", "1")
    asked = (*other, "--array", str(PARTS), "--array-dir", folder, "--no-submit")
    assert "holds another search" in refusal(*asked)
    assert run(*asked, "--force").return_value == 0
    result = run("--merge", folder)
    assert "nothing to join" in str(result.exception)
    assert "of another request" in str(result.exception)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('framework = "x\\u001b[0m"', "is none of megatron"),
        ("parts = 0", "search.parts"),
        ("most = 100000", "search.most"),
        ('pareto = "yes"', "search.pareto"),
        ("wrong = 1", "search.wrong"),
    ],
)
def test_a_table_of_options_that_cannot_be_is_refused(tmp_path: Path, table: str, why: str) -> None:
    path = tmp_path / "request.toml"
    path.write_text(f'cluster = "selene"\ngpus = 8\n[model]\nlike = "llama-3-8b"\n[search]\n{table}\n')
    said = refusal(path)
    assert why in said
    assert "\x1b" not in said


def test_flags_beat_what_the_folder_states(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'cluster = "superpod-h100"\ngpus = 8\n[model]\nlike = "llama-3-8b"\n[plan]\nglobal_batch = 16\n'
        '[search]\nframework = "fsdp"\nmost = 1\n'
    )
    assert (answer(path)["framework"], len(answer(path)["best"])) == ("fsdp", 1)
    assert answer(path, "--framework", "megatron")["framework"] == "megatron"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--array", "2", "--workers", "2"), "--array and --workers exclude each other"),
        (("--array", "2", "--part", "0/2", "--output", "x"), "--array and --part exclude"),
        (("--part", "0/2"), "need each other"),
        (("--output", "x"), "need each other"),
        (("--part", "2/2", "--output", "x"), "parts are 0 to N - 1"),
        (("--part", "1", "--output", "x"), "write 0/8"),
        (("--part", "٣/4", "--output", "x"), "write 0/8"),
        (("--no-submit",), "--no-submit without --array"),
        (("--partition", "gpu"), "--partition without --array"),
        (("--array", "2", "--partition", "a b"), "not the name of a partition"),
        (("--array", "2", "--time-limit", "soon"), "is not a time"),
        (("--array", "2", "--array-dir", 'a"b'), "without quotes"),
        (("--array", "2", "--array-dir", "a\nb"), "without quotes"),
        (("--merge", "."), "give no other"),
        (("--array", "2", "--sbatch", "job.sh"), "give it with --merge"),
    ],
)
def test_options_that_cannot_be_together_are_refused(words: tuple[str, ...], why: str) -> None:
    assert why in refusal(*REQUEST, *words)


def test_a_folder_without_a_request_is_no_folder_to_merge(tmp_path: Path) -> None:
    assert "holds no request.toml" in refusal("--merge", tmp_path)


def test_a_part_needs_a_folder_that_can_be_written(search_space: Path, tmp_path: Path) -> None:
    with pytest.raises(OpskError, match="No such file or directory"):
        raise (
            run(search_space / "request.toml", "--part", "0/3", "--output", tmp_path / "no" / "x").exception or OSError
        )


def test_the_script_is_submitted_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sbatch").write_text('#!/bin/sh\ncat "$2" >&2\necho 17\n')
    (programs / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    result = run(*REQUEST, "--array", "4", "--partition", "gpu", "--time-limit", "2:00:00", "--json")
    assert result.return_value == 0, result.exception
    told = json.loads(result.stdout)["array"]
    assert (told["job_id"], told["parts"]) == ("17", 4)
    assert told["merge"] == f"opsk plan --merge {told['folder']}"
    for line in ("--array=0-3", "--partition=gpu", "--time=2:00:00", "--cpus-per-task=1"):
        assert f"#SBATCH {line}\n" in result.stderr
    assert f'--output="{tmp_path}/{told["folder"]}/part-%a.log"' in result.stderr


class TestScript:
    """The script as bash runs it, without Slurm."""

    def bash(self, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        known = {"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "1", **environment}
        return subprocess.run(
            ["bash", str(folder / "plan-array.sbatch")], env=known, capture_output=True, text=True, check=False
        )

    def test_it_runs_the_opsk_that_wrote_it(self, tmp_path: Path) -> None:
        if not find_command():
            pytest.skip("opsk is not installed as a command")
        folder = written(tmp_path / "a folder's $name")
        done = self.bash(folder)
        assert done.returncode == 0, done.stderr
        assert json.loads((folder / "part-1.json").read_text())["part"] == 1

    def test_another_opsk_can_be_named(self, search_space: Path) -> None:
        done = self.bash(search_space, OPSK_COMMAND="echo")
        request, output = search_space / "request.toml", search_space / "part-1.json"
        assert done.stdout == f"plan {request} --part 1/3 --output {output}\n"

    def test_an_opsk_that_is_not_there_is_said(self, search_space: Path) -> None:
        done = self.bash(search_space, OPSK_COMMAND="/nowhere/opsk")
        assert done.returncode == 3
        assert "no command /nowhere/opsk on" in done.stderr
        assert "OPSK_MODULE" in done.stderr

    def test_a_module_brings_opsk(self, search_space: Path, tmp_path: Path) -> None:
        (tmp_path / "init").mkdir()
        (tmp_path / "opsk").write_text('#!/bin/sh\necho module "$@"\n')
        (tmp_path / "opsk").chmod(0o755)
        (tmp_path / "init" / "bash").write_text(f'module() {{ [ "$2" = opsk/0.1 ] && PATH={tmp_path}:$PATH; }}\n')
        done = self.bash(search_space, OPSK_MODULE="opsk/0.1", MODULESHOME=str(tmp_path))
        assert done.stdout.startswith("module plan ")
        done = self.bash(search_space, OPSK_MODULE="other", MODULESHOME=str(tmp_path))
        assert done.returncode == 3
        assert "module load other brings no opsk" in done.stderr

    def test_a_folder_that_a_node_does_not_see_is_said(self, tmp_path: Path) -> None:
        folder = written(tmp_path / "array")
        (folder / "request.toml").unlink()
        done = self.bash(folder, OPSK_COMMAND="echo")
        assert done.returncode == 2
        assert "a folder that all nodes share" in done.stderr
