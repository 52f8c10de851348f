"""Programs of a user's own of which only the data tell how large a sample is, or a layer."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import Detail, lines
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py {flags}\n"
TRAIN = (
    "import argparse\nimport torch\nimport torch.nn as nn\nfrom torch.utils.data import DataLoader\n{head}"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', type=int, default={batch})\n"
    "args = parser.parse_args()\n"
    "class Net(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
    "        self.layers = nn.Sequential({layers})\n"
    "    def forward(self, x):\n        return self.layers(x)\n"
    "{data}net = Net(data.size).cuda()\noptimizer = torch.optim.Adam(net.parameters())\n"
    "for x, y in DataLoader(data, batch_size=args.batch_size):\n"
    "    optimizer.zero_grad()\n    loss = criterion(net(x.cuda()), y)\n    loss.backward()\n    optimizer.step()\n"
)
DATA = "data = load('table.h5')\n"
ROWS = "nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 3)"
IMAGES = ", ".join(
    f"nn.Conv2d({inner}, {outer}, 3, padding=1), nn.BatchNorm2d({outer}), nn.ReLU(), nn.MaxPool2d(2)"
    for inner, outer in [(3, 64), (64, 128), (128, 256), (256, 512)]
)
TOKENS = "nn.Linear(size, 512), nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6), nn.Linear(512, 9)"
HEAD = "from package import load, criterion\n"


def advise(layers: str, *, batch: int | str = 64, flags: str = "", head: str = HEAD) -> Advice:
    text = TRAIN.format(layers=layers, batch=batch, data=DATA, head=head)
    return ADVISER.advise(read_script(SCRIPT.format(flags=flags), file="job.sh", files={"train.py": text}))


def test_a_job_on_rows_of_any_width_fits() -> None:
    advice = advise(ROWS)
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert any("samples of 2,048 rows" in line for line in lines(advice, Detail.LONG))


def test_a_batch_that_is_not_known_is_not_at_its_largest_with_the_samples() -> None:
    advice = advise(ROWS, batch="None", flags="--batch_size $1")
    assert advice.verdict is Verdict.FITS
    assert any("in batches of" in line for line in lines(advice, Detail.LONG))


@pytest.mark.parametrize(("layers", "samples"), [(IMAGES, "images of"), (TOKENS, "samples of")])
def test_a_job_that_may_not_fit_with_the_largest_samples_gets_a_limit(layers: str, samples: str) -> None:
    advice = advise(layers, batch=512)
    assert advice.verdict is Verdict.UNKNOWN
    assert advice.room is not None
    assert advice.room.samples.startswith(samples)
    assert advice.room.samples.endswith("in batches of 512")
    assert any(line for line in lines(advice, Detail.LONG) if f"fits up to {advice.room.samples}" in line)
    assert document(advice)["memory"]["room"] == advice.room


def test_a_product_behind_convolutions_fixes_the_images() -> None:
    """Whatever the data are: 64 channels of 7 × 7 are those of images of 84 × 84."""
    fixed = (
        "nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(), "
        "nn.Flatten(), nn.Linear({features}, 512)"
    )
    assert advise(fixed.format(features=64 * 7 * 7), batch=512).verdict is Verdict.FITS
    assert advise(fixed.format(features="size"), batch=512).verdict is Verdict.UNKNOWN


def test_larger_batches_leave_room_for_smaller_samples() -> None:
    rooms = [advise(IMAGES, batch=batch).room for batch in (256, 2048)]
    assert all(rooms)
    assert rooms[0] is not None
    assert rooms[1] is not None
    assert rooms[0].value > rooms[1].value


@pytest.mark.parametrize("layers", [ROWS, IMAGES, TOKENS])
@pytest.mark.parametrize("batch", [1, 4096, 1 << 16])
def test_sizes_that_only_the_data_tell_never_make_a_job_run_out(layers: str, batch: int) -> None:
    assert advise(layers, batch=batch).verdict is not Verdict.OOM


def test_a_layer_that_is_not_known_leaves_no_limit() -> None:
    advice = advise("nn.Linear(size, 8), Extra()", head=f"{HEAD}from package import Extra\n")
    assert (advice.verdict, advice.room) == (Verdict.UNKNOWN, None)


@pytest.mark.parametrize(
    "other",
    [
        "from torchvision import models\nMODELS = {'a': models.resnet50}\n",
        "import timm\n",
        "from package import make\nother = make()\nother.train()\n",  # it may be a model
        "from package import make\nother = make()\noptimizer = torch.optim.SGD(other.parameters())\n",
    ],
)
def test_a_model_that_may_be_there_unseen_leaves_no_limit(other: str) -> None:
    advice = advise(ROWS, head=f"{HEAD}{other}")
    assert (advice.verdict, advice.room) == (Verdict.UNKNOWN, None)


def test_the_name_of_a_program_tells_of_no_other_models_where_all_are_known() -> None:
    text = TRAIN.format(layers=ROWS, batch=64, data=DATA, head=HEAD)
    script = SCRIPT.format(flags="").replace("train.py", "train_ppo.py")
    advice = ADVISER.advise(read_script(script, file="job.sh", files={"train_ppo.py": text}))
    assert advice.verdict is Verdict.FITS
    other = ADVISER.advise(read_script(script, file="job.sh", files={"train_ppo.py": f"import transformers\n{text}"}))
    assert other.verdict is Verdict.FITS  # which it imports for something else
    text = text.replace("net = Net", "other = make()\nother.eval()\nnet = Net").replace("load, ", "load, make, ")
    assert ADVISER.advise(read_script(script, file="job.sh", files={"train_ppo.py": text})).verdict is Verdict.UNKNOWN


def test_derivatives_at_any_number_of_points_leave_no_limit() -> None:
    """Equations that a network solves have as many points as the program makes, and derivatives of any order."""
    text = TRAIN.format(layers=ROWS, batch=64, data=DATA, head=HEAD).replace(
        "loss = ", "slope = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]\n    loss = "
    )
    advice = ADVISER.advise(read_script(SCRIPT.format(flags=""), file="job.sh", files={"train.py": text}))
    assert (advice.verdict, advice.room) == (Verdict.UNKNOWN, None)


def test_the_frames_of_a_video_are_any_number_of_images() -> None:
    advice = advise(IMAGES, batch=1, head=f"{HEAD}# frames of a video\n")
    assert (advice.verdict, advice.room) == (Verdict.UNKNOWN, None)


NAMED = (
    "import torch\nfrom torchvision import models, transforms\nfrom torchvision.datasets import ImageFolder\n"
    "from torch.utils.data import DataLoader\n"
    "cut = transforms.Compose([transforms.Resize((128, 128)), transforms.ToTensor()])\n"
    "sizes = {'train': 8}\n"
    "net = models.resnet50().cuda()\noptimizer = torch.optim.Adam(net.parameters())\n"
    "for x, y in DataLoader(ImageFolder('a', cut), sizes['train']):\n"
    "    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y)\n    loss.backward()\n    optimizer.step()\n"
)


def test_the_batch_of_a_public_model_may_be_known_from_following_its_program_alone() -> None:
    advice = ADVISER.advise(read_script(SCRIPT.format(flags=""), file="job.sh", files={"train.py": NAMED}))
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert advice.prediction is not None
    assert float(advice.prediction.memory.total_bytes.high) < 8 * 2**30
