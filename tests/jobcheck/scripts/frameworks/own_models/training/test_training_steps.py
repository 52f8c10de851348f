"""One step of a training loop, wherever the program has it.

The layer saves its input for the gradient of its weight; names hold the batch, what the layer computes and the loss.
"""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.count import follow_program
from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from tests.jobcheck.scripts.frameworks.own_models.training.test_data_sets import NoSettings

BATCH, WIDTH, ROWS = 64, 1000, 500
INPUT_BYTES, OUTPUT_BYTES = 4 * BATCH * WIDTH, 4 * BATCH * ROWS
PROGRAM = """
import torch
import torch.nn as nn
import pytorch_lightning as pl
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, TensorDataset
from tqdm import tqdm

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1000, 500)
    def forward(self, x):
        return self.layer(x)

data = TensorDataset(torch.zeros(9000, 1000), torch.zeros(9000, 500))
loader = DataLoader(data, batch_size=64)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """
    {0}optimizer.zero_grad()
    {0}loss = nn.functional.mse_loss(model(x), y)
    {0}loss.backward()
    {0}optimizer.step()
"""


def follow(text: str, inputs: Inputs | None = None) -> StepMemory:
    file = parse_file("train.py", text)
    assert file is not None
    step = follow_program([file], NoSettings(), inputs=inputs).step
    assert step is not None
    return step


@pytest.mark.parametrize(
    "loop",
    [
        "for x, y in loader:" + STEP.format(""),
        "for epoch in range(90):\n    for i, (x, y) in enumerate(tqdm(loader)):" + STEP.format("    "),
        "def train(model, loader):\n    for x, y in loader:"
        + STEP.format("    ")
        + "\nfor epoch in range(2):\n    train(model, loader)",
        "batches = iter(loader)\nwhile True:\n    x, y = next(batches)" + STEP.format(""),
        "def step(x, y):" + STEP.format("") + "\nfor x, y in loader:\n    step(x, y)",
        "model, optimizer, loader = Accelerator().prepare(model, optimizer, loader)\nfor x, y in loader:"
        + STEP.format(""),
        "scaler = torch.cuda.amp.GradScaler()\nfor x, y in loader:\n"
        "    scaler.scale(nn.functional.mse_loss(model(x), y)).backward()",
    ],
)
def test_a_step_is_found_in_every_kind_of_loop(loop: str) -> None:
    step = follow(PROGRAM + loop)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert INPUT_BYTES + 2 * OUTPUT_BYTES <= step.saved_bytes.high <= INPUT_BYTES + 3 * OUTPUT_BYTES + 1000


def test_a_module_of_lightning_takes_its_step_with_a_batch_of_the_loader() -> None:
    module = """
class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Net()
    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
pl.Trainer(max_epochs=3).fit(Lit(), loader)
"""
    step = follow(PROGRAM + module)
    assert step.saved_bytes.high is not None
    assert step.saved_bytes.high >= INPUT_BYTES + OUTPUT_BYTES


def test_the_largest_of_several_loops_counts() -> None:
    small = "small = DataLoader(data, batch_size=8)\nfor epoch in range(3):\n"
    loops = [f"    for x, y in {name}:{STEP.format('    ')}" for name in ("small", "loader")]
    assert follow(PROGRAM + small + loops[0] + loops[1]) == follow(PROGRAM + small + loops[1])


def test_a_batch_that_is_not_known_has_no_limit() -> None:
    loop = "for batch in loader:\n    x, y = load()" + STEP.format("")
    assert follow(PROGRAM + loop).saved_bytes.high is None


def test_settings_give_the_batch_of_a_network_that_reads_rows() -> None:
    own = (
        "class Own(Dataset):\n    def __getitem__(self, index):\n        return self.rows[index], self.labels[index]\n"
    )
    loop = own + "for i, (x, y) in enumerate(DataLoader(Own(), batch_size=64)):\n    y = y.cuda()\n"
    loop += "    nn.functional.mse_loss(model(x), y).backward()"
    step = follow(PROGRAM + loop, Inputs(batch=64))
    assert step.saved_bytes.high is not None
    assert step.saved_bytes.high >= INPUT_BYTES


@pytest.mark.parametrize(
    "cut",
    [
        "A.Compose([A.RandomCrop(height=96, width=96)])",
        "A.RandomResizedCrop(96, 96)",
        "A.Resize(64, 96)",
        "transforms.RandomResizedCrop(size=(96, 96))",
        "cv2.resize(image, (96, 96))",
    ],
)
def test_what_gives_images_a_size_gives_the_input_of_a_network_of_images(cut: str) -> None:
    head = PROGRAM.replace("nn.Linear(1000, 500)", "nn.Conv2d(3, 8, 3)")
    text = head + "import cv2\nimport albumentations as A\nfrom torchvision import transforms\n"
    own = f"class Own(Dataset):\n    def __getitem__(self, index):\n        image = load(index)\n        t = {cut}\n"
    own += "        return own(t)\n"
    step = follow(text + own + "for x in DataLoader(Own(), batch_size=64):\n    model(x).sum().backward()")
    assert step.saved_bytes.high is not None
    assert step.saved_bytes.high >= 4 * 64 * 3 * 96 * 96


def test_a_loop_inside_of_a_step_counts_for_each_round() -> None:
    loop = """for x, y in loader:
    loss = 0
    for part in range({}):
        with torch.no_grad():
            scale = y.sum()
        loss = loss + nn.functional.mse_loss(model(x * part), y)
    loss.backward()
"""
    once, thrice = (follow(PROGRAM + loop.format(rounds)).saved_bytes.high for rounds in (1, 3))
    assert once is not None
    assert thrice is not None
    assert thrice - once >= 2 * (INPUT_BYTES + OUTPUT_BYTES)


def test_samples_of_several_parts_are_not_taken_for_one() -> None:
    own = "class Own(Dataset):\n    def __getitem__(self, index):\n        return self.rows[index]\n"
    loop = own + "for x in DataLoader(Own(), batch_size=64):\n    model(x).sum().backward()"
    assert follow(PROGRAM + loop, Inputs(is_single=False)).saved_bytes.high is None


def test_a_function_that_evaluates_is_left_out_of_the_step() -> None:
    text = f"""{PROGRAM}
def validate(model, rows):
    with torch.no_grad():
        for row in rows:
            unknown_metric(model(row), row)
def fit(model, loader):
    for x, y in loader:{STEP.format("    ")}
        validate(model, other_rows)
fit(model, loader)
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None


def test_the_side_of_images_is_what_the_model_is_made_for() -> None:
    text = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader
class Net(nn.Module):
    def __init__(self, img_size):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3, padding=1)
    def forward(self, x):
        return self.layer(x)
class Slides:
    def __len__(self):
        return 9
    def __getitem__(self, index):
        return read_slide(index)
model = Net(img_size=32)
for x in DataLoader(Slides(), batch_size=4):
    model(x).sum().backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert 4 * 11 * 32 * 32 * 4 <= step.saved_bytes.high <= 4 * 20 * 32 * 32 * 4


@pytest.mark.parametrize(
    ("source", "make", "shape"),
    [
        ("timm.models.vision_transformer", "VisionTransformer(img_size=32)", (2, 3, 32, 32)),
        ("monai.networks.nets", "UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=2)", (2, 1, 16, 16, 16)),
        ("monai.networks.nets", "UNet(2, 1, 2, (4, 8, 16), (2, 2))", (2, 1, 16, 16)),
        ("monai.networks.nets", "SegResNet(in_channels=4)", (1, 4, 32, 32, 32)),
    ],
)
def test_classes_of_packages_are_followed_where_their_sizes_follow_from_their_arguments(
    source: str, make: str, shape: tuple[int, ...]
) -> None:
    text = f"""
import torch
from {source} import {make.partition("(")[0]}
model = {make}
x = torch.zeros{shape}
for step in range(9):
    model(x).sum().backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert step.saved_bytes.high > 0


@pytest.mark.parametrize(
    ("transforms", "side"),
    [
        ("A.Resize(24, 24)", 24),
        ("A.Resize(height=64, width=64), A.HorizontalFlip(p=0.5), A.RandomCrop(height=16, width=16)", 16),
        ("A.SmallestMaxSize(max_size=40), A.OneOf([A.Blur(), A.GaussNoise()]), A.CenterCrop(20, 20)", 20),
        ("A.RandomResizedCrop(size=(12, 12), scale=(0.1, 1.0))", 12),
    ],
)
def test_images_have_the_size_that_albumentations_gives_them(transforms: str, side: int) -> None:
    text = f"""
import albumentations as A
import numpy as np
import torch
import torch.nn as nn
from albumentations.pytorch import ToTensorV2
from PIL import Image
from torch.utils.data import DataLoader, Dataset
change = A.Compose([{transforms}, A.Normalize(), ToTensorV2()])
class Slides(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __getitem__(self, index):
        image = np.array(Image.open(self.paths[index]).convert("RGB"))
        return change(image=image)["image"], 1
    def __len__(self):
        return len(self.paths)
model = nn.Conv2d(3, 8, 3, padding=1)
for x, y in DataLoader(Slides(find_paths()), batch_size=4):
    model(x).sum().backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert 4 * 3 * side**2 * 4 <= step.saved_bytes.high <= 4 * 3 * side**2 * 4 + 1000


def test_a_table_of_noise_by_step_scales_the_images_of_a_batch() -> None:
    text = f"""{PROGRAM}
class Schedule:
    def __init__(self, steps):
        self.kept = torch.cumprod(1.0 - torch.linspace(0.1, 0.2, steps), dim=0)
    def mix(self, x, t):
        root = torch.sqrt(self.kept)[t].reshape(x.shape[0])
        for _ in range(len(x.shape) - 1):
            root = root.unsqueeze(-1)
        return root * x + (1 - root) * torch.randn_like(x)
schedule = Schedule(100)
for x, y in loader:
    t = torch.randint(0, 100, (x.shape[0],))
    nn.functional.mse_loss(model(schedule.mix(x, t)), y).backward()
"""
    assert follow(text).reason == ""


def test_a_model_of_texts_gets_as_many_words_as_it_has_learned_positions() -> None:
    text = """
import math
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
class Texts(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        words = encode(read(index))
        return torch.tensor(words[:-1], dtype=torch.long), torch.tensor(words[1:], dtype=torch.long)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(500, 16), nn.Embedding(32, 16)
        self.head = nn.Linear(16, 500)
    def forward(self, x, y):
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        x = math.sqrt(2.0 / math.pi) * x
        logits = self.head(x)
        return logits, nn.functional.cross_entropy(logits.view(-1, 500), y.view(-1))
model = Net()
loader = DataLoader(Texts(), batch_size=8)
rows = iter(loader)
while True:
    batch = next(rows)
    batch = [part.to("cuda") for part in batch]
    x, y = batch
    logits, loss = model(x, y)
    loss.backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert 8 * 32 * 500 * 4 <= step.saved_bytes.high <= 3 * 8 * 32 * 500 * 4


def test_an_image_that_may_be_converted_has_the_sizes_that_both_ways_have() -> None:
    text = """
import albumentations
import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
class Faces(Dataset):
    def __init__(self):
        parts = [albumentations.SmallestMaxSize(max_size=40), albumentations.CenterCrop(20, 20)]
        self.cut = albumentations.Compose(parts)
    def __len__(self):
        return 100
    def __getitem__(self, index):
        image = Image.open(str(index))
        if not image.mode == "RGB":
            image = image.convert("RGB")
        image = self.cut(image=np.array(image).astype(np.uint8))["image"]
        return (image / 127.5 - 1.0).astype(np.float32).transpose(2, 0, 1)
model = nn.Conv2d(3, 8, 3, padding=1)
for x in DataLoader(Faces(), batch_size=4):
    model(x).sum().backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert 4 * 3 * 20 * 20 * 4 <= step.saved_bytes.high <= 4 * 3 * 20 * 20 * 4 + 1000


def test_a_loss_that_takes_a_vgg_apart_is_followed() -> None:
    text = """
from collections import namedtuple
import torch
import torch.nn as nn
from torchvision.models import vgg16
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        layers = vgg16(pretrained=True).features
        self.near, self.far = nn.Sequential(*layers[:4]), nn.Sequential()
        for index in range(4, 9):
            self.far.add_module(str(index), layers[index])
        for weight in self.parameters():
            weight.requires_grad = False
    def forward(self, x):
        near = self.near(x)
        rows = namedtuple("Rows", ["near", "far"])
        return rows(near, self.far(near))
model, judge = nn.Conv2d(3, 3, 3, padding=1), Loss()
optimizer = torch.optim.Adam(model.parameters())
x = torch.zeros(2, 3, 32, 32)
for step in range(9):
    near, far = judge(model(x))
    (near.mean() + far.mean()).backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert step.saved_bytes.high > 2 * 64 * 32 * 32 * 4


def test_a_loader_of_the_program_yields_what_pytorchs_does() -> None:
    text = f"""{PROGRAM}
class Again(torch.utils.data.DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sampler = forever(self.sampler)
for x, y in Again(data, batch_size=64):
    nn.functional.mse_loss(model(x), y).backward()
"""
    step = follow(text)
    assert step.reason == ""
    assert step.saved_bytes.high is not None
    assert INPUT_BYTES + OUTPUT_BYTES <= step.saved_bytes.high <= INPUT_BYTES + 3 * OUTPUT_BYTES + 1000
