"""What Hydra composes: the rules are those of its documentation (The Defaults List, Packages, Override syntax)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, read_config_file
from opsk_jobcheck.scripts.settings.hydra_config import MAX_FILES, Start, compose, find_hydra

FILES = {
    "conf/config.yaml": (
        "defaults:\n  - _self_\n  - model: small\n  - data/text@data: wiki\n  - logger: wandb\n"
        "  - override hydra/launcher: slurm\ntrain:\n  batch_size: 8\n  length: ${data.seq_len}\nmodel:\n  heads: 1\n"
    ),
    "conf/model/small.yaml": "name: gpt2\nheads: 12\n",
    "conf/model/large.yaml": "defaults:\n  - small\nname: gpt2-large\n",
    "conf/data/text/wiki.yaml": "seq_len: 512\n",
    "conf/experiment/big.yaml": (
        "# @package _global_\ndefaults:\n  - override /model: large\ntrain:\n  batch_size: 2\n"
    ),
}
PROGRAM = (
    "import hydra\nimport torch\nfrom transformers import AutoModelForCausalLM\n"
    '@hydra.main(version_base=None, config_path="conf", config_name="config")\ndef main(cfg):\n'
    "    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)\n"
    "    opt = torch.optim.AdamW(model.parameters())\n    model(batch).loss.backward()\nmain()\n"
)


def word(text: str) -> tuple[str, Entry]:
    """Return a word of the command line by its name."""
    name, _, value = text.lstrip("+").partition("=")
    return name, Entry(value=value, text=text)


def read_from(files: Mapping[str, str]):
    def read(path: str) -> ConfigFile:
        return read_config_file(files[path], path=path) if path in files else ConfigFile(path=path, why="not read")

    return read


@pytest.mark.parametrize(
    ("words", "name", "batch", "length"),
    [
        ((), "gpt2", 8, 512),
        (("model=large",), "gpt2-large", 8, 512),  # its own values come after those of small
        (("+experiment=big",), "gpt2-large", 2, 512),
        (("+experiment=big", "model=small"), "gpt2", 2, 512),  # the command line comes last
        (("logger=csv", "data.seq_len=256"), "gpt2", 8, "256"),
        (("+note=first",), "gpt2", 8, 512),  # no group of that name: a value
    ],
)
def test_groups_overrides_and_references_are_composed(
    words: tuple[str, ...], name: str, batch: int, length: object
) -> None:
    composed = compose(Start(folder="conf", name="config"), "", dict(map(word, words)), read_from(FILES))
    assert composed is not None
    entries = [composed.config.entry(path) for path in ("model.name", "train.batch_size", "train.length")]
    assert [entry.value for entry in entries if entry is not None] == [name, batch, length]
    assert composed.choices == {text.lstrip("+").partition("=")[0] for text in words} & {
        "model",
        "experiment",
        "logger",
    }
    heads = composed.config.entry("model.heads")
    assert heads is not None
    assert (heads.value, heads.file, heads.line) == (12, "conf/model/small.yaml", 2)


@pytest.mark.parametrize("words", [("+experiment=none",), ("model=none",)])
def test_a_group_that_is_not_at_hand_leaves_all_unknown(words: tuple[str, ...]) -> None:
    composed = compose(Start(folder="conf", name="config"), "", dict(map(word, words)), read_from(FILES))
    assert composed is not None
    assert composed.config.why == "not read"


def test_files_that_name_themselves_end() -> None:
    files = {"a.yaml": "defaults: [a, b: c]\n", "b/c.yaml": "defaults: [c, /a]\n"}
    composed = compose(Start(folder="", name="a"), "", {}, read_from(files))
    assert composed is not None
    assert composed.config.why == "its configuration has more groups than opsk reads"
    assert MAX_FILES < 20


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (
            '@hydra.main(config_path="../configs", config_name="train.yaml", version_base="1.3")',
            ("../configs", "train.yaml"),
        ),
        ("@hydra.main(\n    version_base=None,\n    config_path='conf',\n)", ("conf", "")),
        ('@hydra_runner(config_path="conf", config_name="asr")', ("conf", "asr")),
        ('@hydra.main(config_path=str(ROOT / "conf"), config_name="a")', None),
        ("import hydra", None),
    ],
)
def test_the_decorator_says_where_the_configuration_is(text: str, start: tuple[str, str] | None) -> None:
    found = find_hydra(text)
    assert (None if found is None else (found.folder, found.name)) == start


def read(words: str) -> Workload:
    return read_script(
        f"#!/bin/bash\n#SBATCH --gpus=1\npython train.py {words}\n",
        file="job.sh",
        files={"train.py": PROGRAM, **FILES},
    )


def test_a_program_takes_model_batch_and_length_from_what_hydra_composes() -> None:
    workload = read("+experiment=big")
    assert (workload.model.name, workload.plan.micro_batch) == ("gpt2-large", 2)
    assert read("model=large train.batch_size=4").plan.micro_batch == 4
    assert "conf/model/none.yaml" in read("model=none").missing_files


def test_all_groups_are_asked_for_at_once() -> None:
    files = {"train.py": PROGRAM, "conf/config.yaml": FILES["conf/config.yaml"]}
    script = "#!/bin/bash\n#SBATCH --gpus=1\npython train.py\n"
    missing = read_script(script, file="job.sh", files=files).missing_files
    assert {"conf/model/small.yaml", "conf/data/text/wiki.yaml"} <= set(missing)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["a.yaml", "b/c.yaml", "b/d.yaml"]), st.text(max_size=60)), st.text(max_size=20))
def test_hostile_files_and_words_raise_nothing(files: dict[str, str], option: str) -> None:
    compose(Start(folder="", name="a"), "", {"b": Entry(value=option, text=f"+b={option}")}, read_from(files))
