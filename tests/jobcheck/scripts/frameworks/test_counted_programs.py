"""Programs that build their own models: parameters are counted from their files, with the values of the script."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
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
