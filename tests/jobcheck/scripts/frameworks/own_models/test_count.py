"""Parameters of modules, counted from a program's text.

The numbers are those of ``sum(p.numel() for p in model.parameters())`` with PyTorch 2.14, torchvision and timm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.count import Count, follow_program
from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from opsk_jobcheck.scripts.frameworks.own_models.machine import LookUp
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, DATA, CannotCountError, File, Span

HEAD = "import copy\nimport torch\nimport torch.nn as nn\n"
TAIL = "\nmodel = Net({})\ntorch.optim.Adam(model.parameters())\n"
NET = """
class Net(nn.Module):
    def __init__(self{}):
        super().__init__()
"""


class NoSettings:
    """A program that is started with the settings of a table, and with nothing else."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def find(self, path: tuple[str, ...], *, of_file: bool) -> Any:
        return self.given.get(".".join(path), DATA)

    def find_given(self, name: str) -> Any:
        return self.given.get(name, ABSENT)

    def list_names(self, path: tuple[str, ...]) -> list[str]:
        return []

    def find_words(self) -> list[Any] | None:
        return None

    def find_variable(self, name: str) -> Any:
        return ABSENT

    def find_file(self, path: str) -> Any:
        return self.given.get(path, DATA)


def count_models(files: Sequence[File | None], settings: LookUp) -> Count:
    followed = follow_program([file for file in files if file is not None], settings)
    if followed.count is None:
        raise CannotCountError(followed.why)
    return followed.count


def count(text: str, others: Mapping[str, str] | None = None, **given: Any) -> Span:
    files = [parse_file(path, content) for path, content in {"train.py": text, **(others or {})}.items()]
    return count_models(files, NoSettings(given)).parameters


def count_net(body: str, arguments: str = "", call: str = "", **given: Any) -> Span:
    lines = "".join(f"        {line}\n" for line in body.strip().split("\n"))
    return count(HEAD + NET.format(arguments) + lines + TAIL.format(call), **given)


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        ("nn.Linear(7, 5)", 40),
        ("nn.Linear(7, 5, bias=False)", 35),
        ("nn.Bilinear(3, 4, 5)", 65),
        ("nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)", 9408),
        ("nn.Conv3d(2, 4, (3, 1, 1), groups=2)", 16),
        ("nn.ConvTranspose2d(64, 32, kernel_size=2, stride=2)", 8224),
        ("nn.Embedding(100, 96)", 9600),
        ("nn.BatchNorm2d(64)", 128),
        ("nn.InstanceNorm2d(8)", 0),
        ("nn.GroupNorm(8, 64)", 128),
        ("nn.LayerNorm((4, 8), elementwise_affine=False)", 0),
        ("nn.LayerNorm([4, 8], bias=False)", 32),
        ("nn.PReLU()", 1),
        ("nn.LSTM(512, 256, num_layers=2, bidirectional=True)", 3153920),
        ("nn.GRU(8, 16, 2, bidirectional=True, bias=False)", 6912),
        ("nn.GRUCell(12, 24)", 2736),
        ("nn.MultiheadAttention(512, 8, kdim=64, vdim=32)", 575488),
        ("nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 1024), num_layers=4)", 8411136),
        ("nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 2, 64), 2, nn.LayerNorm(32))", 25728),
        ("nn.Transformer(64, 4, 2, 3, 128)", 217920),
    ],
)
def test_layers_of_pytorch_have_their_weights(layer: str, parameters: int) -> None:
    assert count_net(f"self.x = {layer}\nself.y = nn.Linear(1, 1, bias=False)") == Span(parameters + 1, parameters + 1)


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        ("self.a = nn.Linear(2, 3)\nself.b = self.a", 9),
        (
            "self.a = nn.Linear(96, 100, bias=False)\nself.e = nn.Embedding(100, 96)\nself.a.weight = self.e.weight",
            9600,
        ),
        ("self.a = nn.ModuleList([copy.deepcopy(nn.Linear(2, 3)) for _ in range(4)])", 36),
        ("self.a = nn.ModuleList([nn.Linear(2, 3)] * 4)", 9),
        ("self.a = [nn.Linear(2, 3)]\nself.b = nn.Linear(1, 1)", 2),
        (
            "rows = []\nfor n in (4, 8):\n    rows += [nn.Linear(2, n), nn.ReLU()]\nself.a = nn.Sequential(*rows)",
            36,
        ),
        ("self.a = nn.ModuleList()\nfor _ in range(3):\n    self.a.append(nn.Linear(2, 3))", 27),
        ("for i in range(3):\n    self.add_module(f'x{i}', nn.Linear(2, i + 1))", 18),
        ("for i in range(3):\n    setattr(self, 'x' + str(i), nn.Linear(2, i + 1))", 18),
        ("self.a = nn.ModuleDict({'x': nn.Linear(2, 3), 'y': nn.Linear(3, 2)})", 17),
        ("self.a = nn.Parameter(torch.zeros(1, 197, 768))\nself.register_buffer('b', torch.zeros(10000))", 151296),
        ("self.a = nn.ParameterList([nn.Parameter(torch.randn(3, 4)) for _ in range(2)])", 24),
        ("norm = {'bn': nn.BatchNorm2d, 'gn': lambda c: nn.GroupNorm(8, c)}['gn']\nself.a = norm(64)", 128),
        ("self.a = nn.Linear(2, 3) if torch.__version__ else nn.Linear(2, 3)", 9),
        ("for p in self.parameters():\n    p.requires_grad = False\nself.a = nn.Linear(2, 3)", 9),
    ],
)
def test_modules_count_as_often_as_they_have_weights(body: str, parameters: int) -> None:
    assert count_net(body) == Span(parameters, parameters)


def test_constructors_of_bases_and_parts_are_followed() -> None:
    text = """
class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
class Block(Base):
    def __init__(self, width, ratio=4):
        super(Block, self).__init__(width)
        self.up = self._make(width, int(width * ratio))
    @staticmethod
    def _make(a, b):
        return nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))
class Net(nn.Sequential):
    def __init__(self, depth, **kwargs):
        super().__init__(*[Block(8, **kwargs) for _ in range(depth)])
"""
    assert count(HEAD + text + TAIL.format("2, ratio=2")) == Span(704, 704)


def test_public_models_inside_have_the_head_that_the_program_gives_them() -> None:
    text = """
import timm, torchvision
from torchvision import models
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*list(torchvision.models.resnet50(weights=None).children())[:-1])
        self.other = models.resnet18()
        self.other.fc = nn.Linear(self.other.fc.in_features, 10)
        self.third = timm.create_model("resnet34", num_classes=7)
"""
    assert count(HEAD + text + TAIL.format("")) == Span(55977937, 55977937)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("self.a = nn.Linear(10, len(words))", 11, None),  # words are known to the running program alone
        ("for _ in range(count):\n    self.add_module(str(_), nn.Linear(2, 3))", 0, None),
        ("self.a = nn.Linear(2, 3)\nif flag:\n    self.b = nn.Linear(3, 4)", 9, 25),
        ("if flag:\n    width = 4\nelse:\n    width = 8\nself.a = nn.Linear(2, width)", 12, 24),
        ("if flag:\n    self.a = nn.Linear(2, 3)\n    return\nself.a = nn.Linear(2, 5)", 0, 15),
        ("self.a = unknown_package.Layer(3)\nself.b = nn.Linear(2, 3)", 9, None),
        ("self.a = nn.Linear(2, 3)\nsetattr(self, name, unknown())", 9, None),
    ],
)
def test_what_only_the_running_program_knows_leaves_a_range(body: str, low: int, high: int | None) -> None:
    assert count_net(f"import unknown_package\nfrom data import words, flag, count, name, unknown\n{body}") == Span(
        low, high
    )


def test_a_module_that_makes_layers_when_it_runs_has_no_upper_limit() -> None:
    text = (
        NET.format("")
        + "        self.a = nn.Linear(2, 3)\n    def forward(self, x):\n        return nn.Linear(3, 4)(x)\n"
    )
    assert count(HEAD + text + TAIL.format("")) == Span(9, None)


def test_settings_and_files_of_settings_give_sizes() -> None:
    text = """
import argparse, yaml
from model import Net
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    args = parser.parse_args()
    with open("conf/a.yaml") as file:
        config = yaml.safe_load(file)
    model = Net(args.width, **config["model"]).cuda()
    torch.optim.Adam(model.parameters())
if __name__ == "__main__":
    main()
"""
    model = HEAD + NET.format(", width, depth=1, bias=True")
    model += "        self.a = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(depth))\n"
    config = {"model": {"depth": 3, "bias": False}}
    assert count(f"import torch\n{text}", {"model.py": model}, width=16, **{"conf/a.yaml": config}) == Span(768, 768)


def test_a_choice_of_models_is_the_range_of_all() -> None:
    text = """
def build(name):
    if name == "small":
        return nn.Linear(2, 3)
    elif name == "large":
        return nn.Linear(20, 30)
    raise ValueError(name)
import argparse
model = build(argparse.ArgumentParser().parse_args().name).cuda()
"""
    assert count(HEAD + text) == Span(9, 630)
    assert count(HEAD + text, name="large") == Span(630, 630)


@pytest.mark.parametrize("more", ["for WIDTH in open('x'):\n    pass", "if flag:\n    WIDTH = 8"])
def test_constants_of_a_module_that_are_set_twice_are_not_one_number(more: str) -> None:
    text = f"{HEAD}from sizes import WIDTH\nmodel = nn.Linear(2, WIDTH, bias=False).cuda()\n"
    assert count(text, {"sizes.py": "WIDTH = 4"}) == Span(8, 8)
    span = count(text, {"sizes.py": f"WIDTH = 4\n{more}"})
    assert span.high is None or span == Span(8, 16)


@pytest.mark.parametrize("more", ["WIDTH *= 2", "if SMALL:\n    WIDTH = 8", "for WIDTH in (4, 8):\n    pass"])
def test_a_module_is_followed_where_it_sets_a_constant_twice(more: str) -> None:
    text = f"{HEAD}from sizes import WIDTH\nmodel = nn.Linear(2, WIDTH, bias=False).cuda()\n"
    assert count(text, {"sizes.py": f"SMALL = True\nWIDTH = 4\n{more}"}) == Span(16, 16)


@pytest.mark.parametrize("sets", ["exec(open('configurator.py').read())", "globals()[key] = value"])
def test_names_that_a_program_may_set_by_a_text_are_not_known(sets: str) -> None:
    text = f"""
n_layer = 3
{sets}
model = nn.Sequential(*[nn.Linear(2, 3) for _ in range(n_layer)]).cuda()
"""
    assert count(HEAD + text).high is None


@pytest.mark.parametrize(
    ("last", "low", "high"),
    [
        ("", 0, 639),
        ("torch.optim.Adam(model.parameters())", 9, 630),  # of one of them
        ("nn.Linear(1, 1).cuda()", 2, 641),
    ],
)
def test_models_of_branches_are_not_added_up(last: str, low: int, high: int) -> None:
    text = f"""from elsewhere import flag
if flag:
    model = nn.Linear(2, 3).cuda()
else:
    model = nn.Linear(20, 30).cuda()
{last}
"""
    assert count(HEAD + text) == Span(low, high)


def test_models_that_are_held_beside_the_trained_one_count_apart() -> None:
    text = f"""{NET.format("")}        self.a = nn.Linear(2, 3)
model = Net()
torch.optim.Adam(model.parameters())
teacher = nn.Linear(20, 30).eval()
"""
    files = [file for file in [parse_file("train.py", HEAD + text)] if file is not None]
    counted = count_models(files, NoSettings({}))
    assert (counted.parameters, counted.trained) == (Span(639, 639), Span(9, 9))


def test_models_that_a_program_does_not_use_do_not_count() -> None:
    text = NET.format("") + "        self.a = nn.Linear(2, 3)\n" + TAIL.format("") + "other = Net()\n"
    assert count(HEAD + text) == Span(9, 9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "import torch\nmodel = torch.load('x.pt')\n",
        "def f():\n    return f()\nf().cuda()",
        "class A(A): pass\nA().cuda()",
        "x = y\ny = x\nx.cuda()",
        "a = [0] * 10**9\nb = 'x' * 10**9\nc = 9**9**9",
        "import a\na.b.c.d[1](**{})[2:3].e()",
        "class A:\n    def __init__(self):\n        self.a = A()\nA().cuda()",
        "while True:\n    x = [x, x]\nx.cuda()",
        "lambda: (yield)\nx = (lambda f: f(f))(lambda f: f(f))\nx.cuda()",
        "def f(n):\n    return [f(n) for _ in range(500)]\nf(1)",
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(CannotCountError):
        count(text)


def test_tests_without_end_are_given_up() -> None:
    lines = "".join(f"if x{index}:\n    y = {index}\nelse:\n    z = {index}\n" for index in range(4000))
    before = time.process_time()
    with pytest.raises(CannotCountError):
        count(f"import x\n{lines}")
    assert time.process_time() - before < 2.0


@pytest.mark.parametrize(
    "use",
    [
        "student.parameters()",
        "student.to('cuda')",
        "fit(student)",
        "fit(model=build())",
        "nn.parallel.DistributedDataParallel(build()).parameters()",
    ],
)
def test_a_program_with_a_model_that_is_not_known_is_not_counted(use: str) -> None:
    """What is known of it may be a teacher or a discriminator alone."""
    text = f"from elsewhere import build, fit\n{NET.format('')}        self.a = nn.Linear(2, 3)\n"
    with pytest.raises(CannotCountError, match="a model that is not known"):
        count(f"{HEAD}{text}student = build()\n{use}\nteacher = Net()\nteacher.parameters()\n")


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        # facebook/bart-base has 139,420,416, and FacebookAI/roberta-base with two classes 124,647,170
        ("AutoModelForSeq2SeqLM.from_pretrained('facebook/bart-base')", 136_000_000, 141_000_000),
        ("AutoModelForSequenceClassification.from_pretrained('roberta-base', num_labels=2)", 122_000_000, 127_000_000),
    ],
)
def test_public_models_of_texts_have_about_their_published_number(make: str, low: int, high: int) -> None:
    span = count(f"import transformers\nimport torch\nmodel = transformers.{make}\nmodel.parameters()\n")
    assert low < span.low <= span.high < high  # type: ignore[operator]


def test_a_module_of_which_all_names_are_taken_defines_the_model() -> None:
    model = HEAD + NET.format("") + "        self.layer = nn.Linear(7, 5)\n"
    others = {"model.py": "from parts import *\n", "parts.py": model}
    assert count("import torch\nfrom model import *\n" + TAIL.format(""), others) == Span(40, 40)


def test_a_module_has_an_attribute_where_its_constructor_sets_it() -> None:
    body = """
        if depth > 2:
            self.extra = nn.Linear(5, 5, bias=False)
        if hasattr(self, "extra"):
            self.head = nn.Linear(2, 2, bias=False)
"""
    text = f"{HEAD}class Net(nn.Module):\n    def __init__(self, depth):\n        super().__init__(){body}"
    assert count(f"{text}\ntorch.optim.Adam(Net(3).parameters())") == Span(29, 29)
    assert count(f"{text}\ntorch.optim.Adam(nn.Sequential(Net(1), nn.Linear(1, 1)).parameters())") == Span(2, 2)


def test_a_loop_of_epochs_is_followed_once_whatever_its_functions_are_called() -> None:
    text = f"""{HEAD}
model = nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
def work_through(rows):
    for row in rows:
        if row.flag and row.other:
            optimizer.zero_grad()
        model(row).sum().backward()
for epoch in range(500):
    work_through(rows)
"""
    file = parse_file("train.py", text)
    assert file is not None
    followed = follow_program([file], NoSettings({}))
    assert followed.trains
    assert followed.count is not None
    assert followed.count.parameters == Span(20, 20)


@pytest.mark.parametrize(
    ("source", "make", "parameters"),
    [
        ("timm.models.vision_transformer", "VisionTransformer()", 86_567_656),  # as timm's table of results has it
        ("timm.models.vision_transformer", "Block(768, 12, qkv_bias=True)", 12 * 768 * 768 + 13 * 768),
        ("timm.models.layers", "DropPath(0.1)", 0),
        # as MONAI's tutorial of the spleen prints it
        (
            "monai.networks.nets",
            "UNet(3, 1, 2, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2, norm='BATCH')",
            4_808_917,
        ),
        ("monai.networks.nets", "SegResNet(init_filters=16, in_channels=4, out_channels=3)", 4_702_227),
        ("torch_geometric.nn", "GCNConv(16, 7)", 16 * 7 + 7),
        ("torch_geometric.nn", "SAGEConv(16, 7)", 2 * 16 * 7 + 7),
        ("torch_geometric.nn", "GATConv(16, 8, heads=4)", 16 * 32 + 3 * 32),
        ("torch_geometric.nn", "GINConv(nn.Sequential(nn.Linear(5, 5), nn.ReLU()))", 30),
    ],
)
def test_classes_of_packages_have_the_weights_that_their_sources_give_them(
    source: str, make: str, parameters: int
) -> None:
    name = make.partition("(")[0]
    text = f"{HEAD}from {source} import {name}\nmodel = nn.Sequential(nn.Linear(1, 1), {make})\nmodel.parameters()\n"
    assert count(text) == Span(parameters + 2, parameters + 2)


def test_a_class_that_inherits_from_one_of_a_package_has_its_weights() -> None:
    text = f"""{HEAD}
import timm.models.vision_transformer
class Net(timm.models.vision_transformer.VisionTransformer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.extra = nn.Linear(9, 9, bias=False)
model = Net(img_size=32, patch_size=16, embed_dim=8, depth=0, num_classes=0)
torch.optim.Adam(model.parameters())
"""
    patches, words, norm = 3 * 16 * 16 * 8 + 8, 8 + 5 * 8, 16
    assert count(text) == Span(patches + words + norm + 81, patches + words + norm + 81)


@pytest.mark.parametrize(
    ("name", "parameters"), [("vgg16", 14_714_688), ("vgg19", 20_024_384), ("vgg11_bn", 9_225_984)]
)
def test_the_convolutions_of_a_vgg_are_its_layers(name: str, parameters: int) -> None:
    text = f"""{HEAD}
from torchvision.models import {name}
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential()
        layers = {name}(pretrained=True).features
        for index in range(len(layers)):
            self.parts.add_module(str(index), layers[index])
model = Loss()
torch.optim.Adam(model.parameters())
"""
    assert count(text) == Span(parameters, parameters)


NETS = """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 9)
"""
SMALL, LARGE = Span(12, 12), Span(90, 90)
FIT = "torch.optim.Adam(model.parameters())\n"


MATCH = """
match {kind}:
    case "small" | "tiny":
        model = Small()
    case "large":
        model = Large()
    case _:
        model = Small()
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = eval('Large')()\n", LARGE),
        (MATCH.format(kind="'large'"), LARGE),
        (MATCH.format(kind="'tiny'"), SMALL),
        (MATCH.format(kind="'huge'"), SMALL),
        (MATCH.format(kind="pick()"), Span(12, 90)),
    ],
)
def test_the_model_is_chosen_by_its_name(text: str, expected: Span) -> None:
    assert count(f"{HEAD}{NETS}{text}{FIT}") == expected


@pytest.mark.parametrize("start", ["from absl import app\napp.run(main)", "import typer\ntyper.run(main)"])
def test_a_function_that_a_package_starts_is_followed(start: str) -> None:
    text = f"def main(words=None):\n    model = Large()\n    {FIT}"
    assert count(f"{HEAD}{NETS}{text}{start}\n") == LARGE
