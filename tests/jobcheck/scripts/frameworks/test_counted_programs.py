"""Programs that build their own models: parameters are counted from their files, with the values of the script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opsk.workload.counted_model import COUNTED_PLACES, COUNTED_STEP
from opsk.workload.counted_parameters import ParameterRange
from opsk.workload.unstated.layer_limit import LayerSums
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.own_models.count import Count, Followed
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.frameworks.own_models.values import Span
from opsk_jobcheck.scripts.frameworks.own_program.count import state_parameters
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=1\n"
TRAIN = """
import argparse
import torch
from {module} import Net
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-w", "--width", type=int, default=8)
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--bias", action="store_true")
    args = parser.parse_args()
    model = Net(args.width, sum(args.depths), bias=args.bias)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in data:
        model(batch).backward()
if __name__ == "__main__":
    main()
"""
MODEL = """
import torch.nn as nn
class Net(nn.Module):
    def __init__(self, width, depth, bias):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width, bias=bias) for _ in range(depth)])
"""


def read(command: str, files: dict[str, str]) -> Workload:
    return read_script(f"{HEAD}{command}\n", file="job.sh", files=files)


def count(command: str, files: dict[str, str]) -> str | None:
    return dict(read(command, files).options).get("counted.parameters")


@pytest.mark.parametrize(
    ("flags", "parameters"),
    [
        ("", "192-192"),
        ("--width 16", "768-768"),
        ("--width=16 --bias", "816-816"),
        ("-w 4", "48-48"),  # a short name is no default
        ("--width $1", "3-"),
        ("--no-bias", "192-216"),  # as BooleanOptionalAction adds it
        ("--depths 2 2 2", "0-"),  # of several words the first alone is read
    ],
)
def test_flags_and_their_defaults_give_the_sizes(flags: str, parameters: str) -> None:
    files = {"train.py": TRAIN.format(module="model"), "model.py": MODEL}
    assert count(f"python train.py {flags}", files) == parameters


def test_the_modules_of_the_model_are_asked_for_where_the_others_are() -> None:
    workload = read("python src/train.py", {"src/train.py": TRAIN.format(module="nets.unet")})
    assert "src/nets/unet.py" in workload.missing_files
    assert "nets/unet.py" in workload.missing_files
    package = {"nets/unet.py": "from nets.blocks import Net", "src/train.py": TRAIN.format(module="nets.unet")}
    missing = read("python src/train.py", package).missing_files
    assert "nets/blocks.py" in missing
    assert "src/nets/blocks.py" not in missing  # the package is known by now
    assert count("python src/train.py", {**package, "nets/blocks.py": MODEL}) == "192-192"


def test_a_program_whose_model_is_known_by_name_is_not_counted() -> None:
    text = "import torch\nfrom torchvision import models\nmodel = models.resnet50().cuda()\nloss.backward()\n"
    assert count("python train.py", {"train.py": text}) is None


def test_a_setting_that_the_program_sets_again_is_not_known() -> None:
    text = TRAIN.format(module="model").replace("    model = Net", "    update_from_file(args)\n    model = Net")
    assert (
        count("python train.py", {"train.py": f"from tools import update_from_file\n{text}", "model.py": MODEL}) == "0-"
    )


def test_the_settings_of_a_file_that_the_program_opens_count() -> None:
    text = """
import torch, yaml
from model import Net
with open("conf/net.yaml") as file:
    config = yaml.safe_load(file)
model = Net(**config["net"]).cuda()
torch.optim.SGD(model.parameters(), lr=0.1)
loss.backward()
"""
    files = {"train.py": text, "model.py": MODEL}
    assert "conf/net.yaml" in read("python train.py", files).missing_files
    assert count("python train.py", {**files, "conf/net.yaml": "net: {width: 4, depth: 2, bias: true}\n"}) == "40-40"


READS_FILE = """
import argparse, sys
import torch, yaml
from model import Net
parser = argparse.ArgumentParser()
parser.add_argument("-v", "--verbose", action="store_true")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("config", type=str)
args = parser.parse_args()
runs = yaml.safe_load(open(args.config))["runs"]
for run in runs:
    model = Net(run["width"], 1, False)
    torch.optim.SGD(model.parameters(), lr=args.lr)
"""


@pytest.mark.parametrize("words", ["conf/one.yaml", "-v conf/one.yaml", "--lr 0.2 conf/one.yaml --verbose"])
def test_a_word_of_the_command_is_the_argument_that_has_no_flag(words: str) -> None:
    files = {"train.py": READS_FILE, "model.py": MODEL, "conf/one.yaml": "runs:\n  - width: 5\n"}
    assert count(f"python train.py {words}", files) == "25-25"
    assert count(f"python train.py --other {words}", files) != "25-25"  # a flag that is not known may take the word


def test_the_words_of_the_command_are_what_sys_argv_holds() -> None:
    text = (
        "import sys\nimport torch\nfrom model import Net\nmodel = Net(int(sys.argv[2]), 1, False)\nmodel.parameters()\n"
    )
    files = {"train.py": text, "model.py": MODEL}
    assert count("python train.py fast 6", files) == "36-36"
    assert count("python train.py $@ 6", files) != "36-36"


def test_fire_starts_the_function_that_the_first_word_names() -> None:
    text = """
import fire
import torch
from model import Net
def large(width=9):
    torch.optim.SGD(Net(width, 1, False).parameters())
def small(width=3):
    torch.optim.SGD(Net(width, 1, False).parameters())
fire.Fire()
"""
    files = {"train.py": text, "model.py": MODEL}
    assert count("python train.py small", files) == "9-9"
    assert count("python train.py large --width=4", files) == "16-16"


def test_the_module_that_the_command_names_is_asked_for_of_several() -> None:
    text = """
import argparse
import torch
from nets import flat, deep, wide
MODELS = {"flat": flat, "deep": deep, "wide": wide}
parser = argparse.ArgumentParser()
parser.add_argument("--kind", type=str, default="flat")
args = parser.parse_args()
torch.optim.SGD(MODELS[args.kind].Net(4, 1, False).parameters())
"""
    files = {"train.py": text, "nets/__init__.py": ""}
    assert "nets/wide.py" in read("python train.py --kind wide", files).missing_files
    assert count("python train.py --kind wide", {**files, "nets/wide.py": MODEL}) == "16-16"


def test_a_path_that_is_not_there_is_asked_for_once_and_then_the_next_one() -> None:
    files = {"tools/train.py": TRAIN.format(module="nets")}
    script = f"{HEAD}python tools/train.py\n"
    asked: list[str] = []
    for _ in range(3):
        workload = read_script(script, file="job.sh", files=files, unread=asked)
        assert not set(asked) & set(workload.missing_files)
        asked += workload.missing_files
    assert {"tools/nets.py", "nets.py", "tools/nets/__init__.py", "nets/__init__.py"} <= set(asked)


def test_files_are_read_where_the_partition_has_gpus_although_none_is_requested() -> None:
    files = {"train.py": TRAIN.format(module="model"), "model.py": MODEL}
    for name, is_read in (("gpu_short", True), ("a100", True), ("compute", False)):
        script = f"#!/bin/bash\n#SBATCH -p {name}\npython train.py\n"
        assert ("train.py" in read_script(script, file="job.sh").missing_files) is is_read
        assert read_script(script, file="job.sh", files=files).is_training


def test_a_program_that_leaves_the_training_to_a_module_trains_where_it_comes_to_it() -> None:
    text = """
import argparse
from experiment import Experiment
parser = argparse.ArgumentParser()
parser.add_argument("--fit", type=int, default=1)
args = parser.parse_args()
experiment = Experiment()
if args.fit:
    experiment.run()
else:
    experiment.test()
"""
    module = """
import torch
class Experiment:
    def __init__(self):
        self.model = torch.nn.Linear(3, 3)
    def run(self):
        optimizer = torch.optim.SGD(self.model.parameters())
        for epoch in range(9):
            for batch in get_loader():
                optimizer.zero_grad()
                self.model(batch).sum().backward()
    def test(self):
        with torch.no_grad():
            self.model(torch.zeros(1, 3))
"""
    files = {"run.py": text, "experiment.py": module}
    assert read("python run.py", files).is_training
    assert not read("python run.py --fit 0", files).is_training


def test_modules_of_a_program_that_starts_in_another_folder_are_asked_for_there() -> None:
    files = {"work/train.py": TRAIN.format(module="nets")}
    missing = read("cd work\npython train.py", files).missing_files
    assert "work/nets.py" in missing
    assert not any("work/work" in path for path in missing)
    assert count("cd work\npython train.py", {**files, "work/nets.py": MODEL}) == "192-192"


def test_a_class_that_has_the_name_of_its_module_is_the_class() -> None:
    files = {
        "train.py": TRAIN.format(module="nets"),
        "nets/__init__.py": "from .Net import Net as Net\n",
        "nets/Net.py": MODEL,
    }
    assert count("python train.py", files) == "192-192"


def test_the_trainings_of_a_list_are_followed_each() -> None:
    text = """
import torch
from model import Net
def fit(model, optimizer):
    for batch in get_loader():
        optimizer.zero_grad()
        model(batch).sum().backward()
for row in [{"width": 3}, {"width": 5}]:
    model = Net(row["width"], 1, False)
    fit(model, torch.optim.SGD(model.parameters()))
"""
    assert count("python train.py", {"train.py": text, "model.py": MODEL}) == "9-25"


def test_the_classes_that_files_of_settings_name_are_made_with_what_these_say() -> None:
    text = """
import hydra
import torch
@hydra.main(config_path="conf", config_name="base")
def main(cfg):
    model = hydra.utils.instantiate(cfg.model)
    make = hydra.utils.instantiate(cfg.optimizer)
    optimizer = make(params=model.parameters())
    for batch in get_loader():
        model(batch).sum().backward()
if __name__ == "__main__":
    main()
"""
    settings = """
model:
  _target_: nets.parts.Pair
  first:
    _target_: nets.parts.Net
    width: 3
    depth: 2
    bias: false
  width: ${size}
optimizer:
  _target_: torch.optim.SGD
  _partial_: true
  lr: 0.1
size: 4
"""
    module = f"""{MODEL}
class Pair(nn.Module):
    def __init__(self, first, width):
        super().__init__()
        self.first = first
        self.last = nn.Linear(width, width, bias=False)
"""
    files = {"train.py": text, "conf/base.yaml": settings}
    assert "nets/parts.py" in read("python train.py", files).missing_files
    assert count("python train.py", {**files, "nets/parts.py": module}) == "34-34"
    assert count("python train.py model.first.width=5", {**files, "nets/parts.py": module}) == "66-66"


def test_a_package_around_the_folder_that_the_job_starts_in_is_asked_for_last() -> None:
    files = {"tools/train.py": TRAIN.format(module="nets.parts")}
    asked: list[str] = []
    for _ in range(5):
        workload = read_script(f"{HEAD}python tools/train.py\n", file="job.sh", files=files, unread=asked)
        asked += workload.missing_files
    assert asked.index("nets/parts.py") < asked.index("../nets/parts.py")
    assert count("python tools/train.py", {**files, "../nets/parts.py": MODEL}) == "192-192"


@pytest.mark.parametrize(("low", "is_used"), [(0, True), (10**15, False)])
def test_a_limit_by_layers_below_what_a_step_surely_saves_is_not_used(low: int, *, is_used: bool) -> None:
    """Such a model runs its layers more often than was seen."""
    sums = LayerSums(
        first="Conv2d",
        channels=3,
        patch=0,
        row_features=10,
        map_features=100,
        width=8,
        positions=0,
        products=1,
        shrinks=True,
        grows=False,
        attends=False,
    )
    parameters = Span(1000, 1000)
    followed = Followed(
        count=Count(parameters=parameters, trained=parameters),
        why="",
        step=StepMemory(saved_bytes=Span(low, None), transient_bytes=Span(0, None), reason="not followed"),
        is_usual=False,
        trains=True,
        is_other=False,
        calls=(),
        layers=sums,
    )
    reading: Any = SimpleNamespace(findings=SimpleNamespace(options={}))
    state_parameters(followed, reading, Inputs(side=64, batch=4))
    assert (COUNTED_PLACES in reading.findings.options) is is_used
    step = ParameterRange.parse(reading.findings.options[COUNTED_STEP])
    assert step is not None
    assert (step.high is not None) is is_used


def test_a_package_below_src_is_asked_for() -> None:
    files = {"train.py": TRAIN.format(module="mine.nets")}
    unread: set[str] = set()
    while "src/mine/nets.py" not in unread:
        workload = read_script(f"{HEAD}python train.py\n", file="job.sh", files=files, unread=frozenset(unread))
        assert set(workload.missing_files) - unread
        unread |= set(workload.missing_files)
    assert count("python train.py", {**files, "src/mine/nets.py": MODEL}) == "192-192"


def test_a_module_that_is_imported_whole_is_asked_for() -> None:
    text = (
        TRAIN.format(module="x")
        .replace("from x import Net", "import mine.atoms")
        .replace("= Net(", "= mine.atoms.Net(")
    )
    assert "mine/atoms.py" in read("python train.py", {"train.py": text}).missing_files
    assert count("python train.py", {"train.py": text, "mine/atoms.py": MODEL}) == "192-192"


LOOP = """
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
net = torch.nn.Linear(9, 9)
for x in DataLoader(load_rows(), {batch}):
    net(x).sum().backward()
"""


def test_the_batch_is_that_of_the_loader_that_is_trained_with() -> None:
    files = {"train.py": LOOP.format(batch="16").replace("--batch-size", "--width")}
    assert read("python train.py", files).plan.micro_batch == 16
    assert read("python train.py", {"train.py": LOOP.format(batch="args.batch_size")}).plan.micro_batch == 64
    workload = read("python train.py", {"train.py": LOOP.format(batch="1")})
    assert [row.why for row in workload.unknown if row.field == "plan.micro_batch"] == [
        "the data loader yields batches of 1"
    ]


@pytest.mark.parametrize(("name", "is_known"), [("FID", False), ("inception_score", False), ("Features", True)])
def test_a_model_that_measures_images_is_not_the_trained_one(name: str, is_known: bool) -> None:
    made = f"class {name}:\n    def load(self):\n        self.net = inception_v3()\n"
    text = f"import torch\nfrom torchvision.models import inception_v3\n{made}x.backward()\n"
    assert (read("python train.py", {"train.py": text}).model.name == "inception_v3") is is_known
