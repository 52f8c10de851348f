"""Scripts of own programs that are written from a known truth: what is read is right, or not read.

The names are those of public repositories, beside noise of the same repositories.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

NAMES = {
    "layers": ("n_layer", "num_layers", "num_hidden_layers", "n_layers", "nlayers"),
    "hidden": ("n_embd", "hidden_size", "d_model", "embed_dim"),
    "heads": ("n_head", "num_attention_heads", "n_heads", "nhead", "num_heads"),
    "seq": ("block_size", "seq_len", "max_seq_len", "context_length", "seq_length"),
    "micro": ("micro_batch_size", "per_device_batch_size", "device_batch_size", "batch_size_per_gpu"),
}
NOISE = {
    "lr": 3e-4,
    "seed": 1337,
    "weight_decay": 0.1,
    "num_workers": 8,
    "warmup_steps": 2000,
    "dropout": 0.0,
    "epochs": 3,
}
CARRIERS = (
    "flags",
    "equals",
    "hydra",
    "yaml",
    "nested",
    "json",
    "hjson",
    "toml",
    "argparse",
    "dataclass",
    "constants",
    "call",
)
HEAD = (
    "#!/bin/bash\n#SBATCH --job-name=x\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n#SBATCH --time=1:00:00\nset -e\n"
)
LAUNCH = "srun torchrun --nnodes 2 --nproc_per_node 4 "


@dataclass(frozen=True)
class Written:
    """A script, the files that it names, and the truth by field."""

    script: str
    files: dict[str, str]
    truth: dict[str, int]


@st.composite
def written_scripts(draw: st.DrawFn) -> Written:
    """Return a script with each value in one of the places where programs keep them."""
    heads = draw(st.sampled_from([4, 8, 12, 16, 32]))
    truth = {
        "layers": draw(st.integers(2, 96)),
        "heads": heads,
        "hidden": heads * draw(st.sampled_from([32, 64, 128])),
        "seq": draw(st.sampled_from([128, 512, 1024, 2048, 8192])),
        "micro": draw(st.integers(1, 64)),
    }
    pairs = {draw(st.sampled_from(NAMES[field])): value for field, value in truth.items()}
    noise = {name: NOISE[name] for name in draw(st.sets(st.sampled_from(sorted(NOISE))))}
    carrier = draw(st.sampled_from(CARRIERS))
    return Written(*_write(carrier, pairs, noise), truth)


def _write(carrier: str, pairs: dict[str, int], noise: dict[str, float]) -> tuple[str, dict[str, str]]:
    everything = {**noise, **pairs}
    program, words, files = "loss.backward()\n", "", {}
    if carrier == "flags":
        words = " ".join(f"--{name} {value}" for name, value in everything.items())
    elif carrier == "equals":
        words = " ".join(f"--{name.replace('_', '-')}={value}" for name, value in everything.items())
    elif carrier == "hydra":
        words = " ".join(
            f"{'optim' if name in noise else 'model'}.{name}={value}" for name, value in everything.items()
        )
    elif carrier == "yaml":
        words, files = "--config conf/x.yaml", {"conf/x.yaml": "".join(f"{n}: {v}\n" for n, v in everything.items())}
    elif carrier == "nested":
        text = "model:\n" + "".join(f"  {n}: {v}\n" for n, v in pairs.items())
        words, files = (
            "conf/x.yaml",
            {"conf/x.yaml": f"{text}optim:\n" + "".join(f"  {n}: {v}\n" for n, v in noise.items())},
        )
    elif carrier == "json":
        words, files = "--cfg x.json", {"x.json": json.dumps({"model": everything}, indent=2)}
    elif carrier == "hjson":
        words, files = "--cfg x.json", {"x.json": "{" + "".join(f'"{n}": {v},\n' for n, v in everything.items()) + "}"}
    elif carrier == "toml":
        words, files = (
            "--config x.toml",
            {"x.toml": "[train]\n" + "".join(f"{n} = {v}\n" for n, v in everything.items())},
        )
    elif carrier == "argparse":
        rows = "".join(f"    p.add_argument('--{n}', type=float, default={v})\n" for n, v in everything.items())
        program = f"import argparse\ndef main():\n    p = argparse.ArgumentParser()\n{rows}    loss.backward()\n"
    elif carrier == "dataclass":
        rows = "".join(f"    {n}: float = {v}\n" for n, v in everything.items())
        program = f"@dataclass\nclass A:\n{rows}a = tyro.cli(A)\nloss.backward()\n"
    elif carrier == "constants":
        program = "".join(f"{n} = {v}\n" for n, v in everything.items()) + program
    else:
        program = f"m = GPT(Config({', '.join(f'{n}={v}' for n, v in everything.items())}))\n{program}"
    return f"{HEAD}{LAUNCH}train.py {words}\n", {"train.py": program, **files}


def read_values(workload: Workload) -> dict[str, int | None]:
    """Return what was read by the fields of the truth."""
    model = workload.model
    return {
        "layers": model.layers,
        "heads": model.heads,
        "hidden": model.hidden,
        "seq": model.seq,
        "micro": workload.plan.micro_batch,
    }


@given(written_scripts())
@settings(max_examples=200)
def test_every_value_is_read_as_it_was_meant(written: Written) -> None:
    assert read_values(read_script(written.script, file="job.sh", files=written.files)) == written.truth


@given(written_scripts(), st.data())
@settings(max_examples=200)
def test_what_may_be_another_value_is_not_read(written: Written, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(NAMES)))
    name = data.draw(st.sampled_from(NAMES[field]))
    again = data.draw(
        st.sampled_from([f"args.{name} = get()\n", f"config['{name}'] = 3\n", f"m = GPT(Config({name}=compute()))\n"])
    )
    files = written.files | {"train.py": written.files["train.py"] + again}
    for key, value in read_values(read_script(written.script, file="job.sh", files=files)).items():
        assert value in (None, written.truth[key]), key
