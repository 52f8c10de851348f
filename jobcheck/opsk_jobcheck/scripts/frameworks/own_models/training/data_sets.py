"""Finds what a batch of a program's data loader consists of, by its data set, transforms and batch size.

Source: ``torch/utils/data`` of PyTorch 1.8 to 2.9 and ``torchvision/datasets`` of torchvision 0.9 to 0.24.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from opsk.frameworks.settings.usual_settings import IMAGE_SIDES
from opsk_jobcheck.scripts.frameworks.own_models.files import Files, find_method
from opsk_jobcheck.scripts.frameworks.own_models.machine import MAX_STEPS, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.names import NO_CALL
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.array_transforms import apply_named
from opsk_jobcheck.scripts.frameworks.own_models.training.forward import Forward
from opsk_jobcheck.scripts.frameworks.own_models.training.made import (
    MAKES_DATA,
    PASSES_ON,
    Image,
    Made,
    is_data,
    is_made,
    join_images,
)
from opsk_jobcheck.scripts.frameworks.own_models.training.transforms import apply_transform, find_sides, read_sides
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    DATA,
    Choice,
    ClassValue,
    External,
    Frame,
    FunctionValue,
    Module,
    Shape,
    Tensor,
    list_options,
)

OWN = "?"
"""The name of what makes an object of a class of data that is the program's."""
MAX_COLLATED = 64
"""Samples that a function of the program's own that makes a batch of them is given, at most."""
_IMAGES: Mapping[str, Shape] = MappingProxyType(
    {
        **dict.fromkeys(("MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "USPS"), (1, 28, 28)),
        **dict.fromkeys(("CIFAR10", "CIFAR100", "SVHN"), (3, 32, 32)),
        **{"USPS": (1, 16, 16), "STL10": (3, 96, 96), "CelebA": (3, 218, 178), "PCAM": (3, 96, 96)},
        **{"Omniglot": (1, 105, 105), "FakeData": (3, 224, 224), "GTSRB": (3, None, None), "EuroSAT": (3, 64, 64)},
        **dict.fromkeys(
            ("ImageFolder", "ImageNet", "DatasetFolder", "Places365", "Food101", "OxfordIIITPet", "Flowers102"),
            (3, None, None),
        ),
        **dict.fromkeys(("StanfordCars", "Caltech101", "Caltech256", "DTD", "FGVCAircraft", "SUN397"), (3, None, None)),
        **dict.fromkeys(("INaturalist", "LFWPeople", "RenderedSST2", "Country211", "LSUN"), (3, None, None)),
    }
)
"""Data sets of torchvision by the channels, height and width of their images."""
_OF_GRAPHS = frozenset({"GraphDataLoader"})
"""Loaders whose batches are one graph."""
_LABELS = (0, "target_transform")
_BASES = ("Dataset", "IterableDataset", "LightningDataModule", "DataModule", "VisionDataset", "TensorDataset")
_NUMPY = ("zeros", "ones", "empty", "full", "random.rand", "random.randn", "random.random", "random.normal")

_MAKES_TENSORS = ("torch.zeros", "torch.ones", "torch.rand", "torch.randn", "torch.empty")
_CUTS = frozenset({"Resize", "RandomCrop", "CenterCrop", "RandomResizedCrop", "RandomSizedCrop", "resize"})
_OF_IMAGES = ("albumentations.", "torchvision.transforms.", "cv2.", "skimage.transform.")
"""Packages whose functions give images a size."""
_CONVERTS = ("torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.FloatTensor", "numpy.array")
_CHANNELS = {"L": 1, "1": 1, "RGB": 3, "RGBA": 4}
"""Channels of the modes of an image."""


class DataSets(Forward):
    """Follows data sets and loaders of data."""

    def __init__(self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS) -> None:
        super().__init__(files, settings, max_steps)
        self.made_data: dict[int, Module | None] = {}
        self.held: list[Made] = []
        self.batch_sizes: set[int] = set()
        self.has_open_batch = False
        self.sides: list[int] = []

    def make_instance(
        self, kind: ClassValue, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return an object of a class of the program; one of data is made when its samples are asked for."""
        bases = [self.evaluate(base, Frame(kind.file)) for base in kind.node.bases]
        if any(isinstance(base, External) and base.name.endswith("DataLoader") for base in bases):
            return self.call_external("torch.utils.data.DataLoader", positional, keywords, node, frame)
        if self._is_of_data(kind):
            self.use_arguments(positional, keywords, node, frame)
            return Made(OWN, (kind, positional), keywords)
        value = super().make_instance(kind, positional, keywords, node, frame)
        if isinstance(value, Module) and value.is_model:
            self._note_side(kind, positional, keywords)
        return value

    def _note_side(self, kind: ClassValue, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Note the side of the images that the constructor of a model is given."""
        constructor = find_method(kind.node, "__init__")
        names = [row.arg for row in constructor.args.args[1:]] if constructor is not None else []
        given = {**dict(zip(names, positional, strict=False)), **keywords}
        for name in IMAGE_SIDES:
            self.sides += read_sides(given[name]) or () if name in given else ()

    def _is_of_data(self, kind: ClassValue) -> bool:
        """Return whether objects of a class are data sets, or make them."""
        bases = [base for row in self.list_bases(kind) for base in row.node.bases]
        is_plain = not any(ast.unparse(base).endswith("Module") for base in bases)
        return any(getattr(base, "attr", getattr(base, "id", "")).endswith(_BASES) for base in bases) or (
            is_plain and all(find_method(kind.node, name) is not None for name in ("__getitem__", "__len__"))
        )

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call; of a transform, that of an image."""
        if is_made(target) and is_data(target):
            value = positional[0] if positional else keywords.get("image", DATA)
            known = [option for option in list_options(target) if isinstance(option, Made)]
            if len(known) == 1 and "image" in keywords and not positional:
                return apply_named(known[0], keywords)
            return apply_transform(known[0], value) if len(known) == 1 else DATA
        return super().call(target, positional, keywords, node, frame)

    def call_external(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a function of a package."""
        last = name.rpartition(".")[2]
        if last in _CUTS and name.startswith(_OF_IMAGES):
            self.sides += find_sides(positional, keywords, is_second=name.startswith("cv2"))
        if name in ("enumerate", "zip", "iter") and any(map(is_made, positional)):
            return Made(name, positional, keywords)
        if name == "next" and positional and is_made(positional[0]):
            return self.make_batch(positional[0], frame)
        if name == "len" and positional and is_made(positional[0]):
            return DATA
        if name.startswith("numpy.") and name.removeprefix("numpy.") in _NUMPY:
            shape = _read_shape(positional, keywords, is_row=last not in ("rand", "randn"))
            return make_tensor(shape, "float64")
        if name in _CONVERTS and positional:
            if isinstance(positional[0], Tensor):
                return positional[0]
            image = join_images(positional[0])
            if image is not None:
                channels, height, width = image.shape
                return make_tensor((height, width, channels or 3), "uint8")
        value = super().call_external(name, positional, keywords, node, frame)
        if isinstance(value, Tensor) and value.shape is None and name in _MAKES_TENSORS:
            return make_tensor(_read_shape(positional, keywords, is_row=False), _read_dtype(keywords))
        if name.startswith("albumentations.") and last[:1].isupper():
            return Made(last, positional, keywords)
        if not MAKES_DATA.fullmatch(name):
            return value
        if name.startswith("torchvision.datasets.") and None not in (shape := _IMAGES.get(last, (None,))):
            self.sides += [side for side in shape[1:] if side]
        if last in ("open", "fromarray", "new"):
            return Image()
        if last == "random_split":
            parts = positional[1] if len(positional) > 1 else keywords.get("lengths")
            count = len(parts) if isinstance(parts, list | tuple) else 2
            return [Made("Subset", positional[:1])] * count
        return Made("GraphDataLoader" if name.startswith("torch_geometric.") else last, positional, keywords)

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's."""
        if isinstance(owner, Image):
            return _call_of_image(owner, name, positional)
        if isinstance(owner, Module) and is_made(held := owner.attributes.get(name, DATA)):
            return self.call(held, positional, keywords, node, frame)
        if isinstance(owner, Made) and owner.name == OWN:
            instance = self.make_data(owner, frame)
            method = self.get(instance, name, frame) if instance is not None else DATA
            return self.call(method, positional, keywords, node, frame) if isinstance(method, FunctionValue) else DATA
        if is_made(owner) and is_data(owner):
            return owner if name == "__iter__" else super().call_method(DATA, name, positional, keywords, node, frame)
        return super().call_method(owner, name, positional, keywords, node, frame)

    # ---- batches

    def make_data(self, data: Made, frame: Frame) -> Module | None:
        """Return an object of a class of data, after its constructor; ``None`` where that cannot be followed."""
        kind, positional = data.positional
        key = id(data)
        if key not in self.made_data:
            self.made_data[key] = None
            self.held.append(data)
            instance = self.bear(Module(kind.node.name, definition=kind, is_model=False))
            constructor = self.get(instance, "__init__", frame)
            if isinstance(constructor, FunctionValue):
                self.call(constructor, list(positional), dict(data.keywords), NO_CALL, frame)
            self.made_data[key] = instance
        return self.made_data[key]

    def make_batch(self, value: Any, frame: Frame) -> Any:
        """Return what a loop over a value takes from it at a time; ``DATA`` where that is not known."""
        if isinstance(value, Choice):
            known = [option for option in value.options if isinstance(option, Made)]
            value = known[0] if len(known) == 1 else DATA
        if not isinstance(value, Made):
            return DATA
        if value.name == "enumerate":
            return (DATA, self.make_batch(value.get(0, "iterable"), frame))
        if value.name == "zip":
            return tuple(self.make_batch(part, frame) for part in value.positional)
        if value.name in PASSES_ON:
            return self.make_batch(value.get(0, "iterable"), frame)
        if not value.name.endswith("DataLoader"):
            return self.make_sample(value, frame)
        return self._make_batch_of_loader(value, frame)

    def _make_batch_of_loader(self, loader: Made, frame: Frame) -> Any:
        """Return a batch of a loader."""
        size = loader.get(1, "batch_size", 1)
        sampler = loader.keywords.get("batch_sampler")
        if isinstance(sampler, Made) and sampler.name == "BatchSampler":
            size = sampler.get(1, "batch_size")
        elif sampler is not None:
            return DATA
        sizes = [option for option in list_options(size) if isinstance(option, int) and not isinstance(option, bool)]
        count = max(sizes) if sizes and len(sizes) == len(list_options(size)) else None
        if count is None or len(sizes) > 1:
            self.has_open_batch = True
        if count:
            self.batch_sizes.add(count)
        if loader.name in _OF_GRAPHS:
            return DATA
        sample = self.make_sample(loader.get(0, "dataset"), frame)
        if size is None:  # the data set makes whole batches
            return sample
        collate = loader.get(6, "collate_fn")
        if collate is None:
            return collate_samples(sample, count)
        if not isinstance(collate, FunctionValue) or count is None:
            return DATA
        batch = self.call(collate, [[sample] * min(count, MAX_COLLATED)], {}, NO_CALL, frame)
        return _grow(batch, MAX_COLLATED, count) if count > MAX_COLLATED else batch

    def make_sample(self, data: Any, frame: Frame) -> Any:
        """Return one sample of a data set; ``DATA`` where it is not known."""
        if isinstance(data, Choice):
            rows = [self.make_sample(option, frame) for option in data.options]
            return rows[0] if all(_has_same_shape(rows[0], row) for row in rows[1:]) else DATA
        if not isinstance(data, Made):
            return DATA
        if data.name == OWN:
            instance = self.make_data(data, frame)
            for name in ("__getitem__", "__iter__"):
                method = self.get(instance, name, frame) if instance is not None else DATA
                if isinstance(method, FunctionValue) and name == "__getitem__":
                    return self.call(method, [DATA], {}, NO_CALL, frame)
            return DATA
        if data.name == "TensorDataset":
            return tuple(_take_first(part) for part in data.positional)
        if data.name in ("Subset", "ConcatDataset"):
            inner = data.get(0, "dataset" if data.name == "Subset" else "datasets")
            return self.make_sample(inner[0] if isinstance(inner, list | tuple) and inner else inner, frame)
        if data.name in _IMAGES:
            return self._make_image(data, frame)
        return DATA

    def _make_image(self, data: Made, frame: Frame) -> Any:
        """Return an image of a data set of torchvision with its label."""
        shape = _IMAGES[data.name]
        if data.name == "FakeData":
            size = data.get(1, "image_size")
            shape = tuple(size) if isinstance(size, list | tuple) else shape
        transform = data.keywords.get("transform", next((row for row in data.positional if _is_transform(row)), None))
        image: Any = Image(shape)
        if isinstance(transform, FunctionValue | Module):
            image = self.call(transform, [image], {}, NO_CALL, frame)
        elif transform is not None:
            image = apply_transform(transform, image)
        return (image, 0)


def _is_transform(value: Any) -> bool:
    """Return whether an argument is a transform."""
    return isinstance(value, Made) and not value.name.endswith("Dataset") and value.name not in _IMAGES


def collate_samples(sample: Any, count: int | None) -> Any:
    """Return a batch of samples that are all alike, as PyTorch's ``default_collate`` makes it."""
    if isinstance(sample, Tensor):
        shape = (count, *sample.shape) if sample.shape is not None else None
        return make_tensor(shape, sample.dtype)
    if isinstance(sample, bool | int):
        return make_tensor((count,), "int64")
    if isinstance(sample, float):
        return make_tensor((count,), "float64")
    if isinstance(sample, tuple | list):
        return [collate_samples(part, count) for part in sample]
    if isinstance(sample, dict):
        return {key: collate_samples(part, count) for key, part in sample.items()}
    return DATA


def _has_same_shape(first: Any, second: Any) -> bool:
    """Return whether two samples have the same parts, tensors of one shape among them."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        return len(first) == len(second) and all(map(_has_same_shape, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_has_same_shape(part, second[key]) for key, part in first.items())
    return not isinstance(first, Tensor) and not isinstance(second, Tensor)


def _grow(batch: Any, before: int, after: int) -> Any:
    """Return a batch of more samples."""
    if isinstance(batch, Tensor) and batch.shape:
        return make_tensor((after if batch.shape[0] == before else batch.shape[0], *batch.shape[1:]), batch.dtype)
    if isinstance(batch, tuple | list):
        return type(batch)(_grow(part, before, after) for part in batch)
    if isinstance(batch, dict):
        return {key: _grow(part, before, after) for key, part in batch.items()}
    return batch


def _take_first(value: Any) -> Any:
    """Return one row of a tensor."""
    if not isinstance(value, Tensor) or not value.shape:
        return DATA
    return make_tensor(value.shape[1:], value.dtype)


def _call_of_image(image: Image, name: str, positional: list[Any]) -> Any:
    """Return the result of a method of an image."""
    channels, height, width = image.shape
    if name == "convert":
        mode = positional[0] if positional else ""
        return Image((_CHANNELS.get(mode) if isinstance(mode, str) else None, height, width))
    if name == "resize" and positional:
        sides = read_sides(positional[0])
        return Image((channels, sides[1], sides[0]) if sides is not None else (channels, None, None))
    return image if name in ("copy", "transpose", "filter") else DATA


def _read_shape(positional: list[Any], keywords: Mapping[str, Any], *, is_row: bool) -> Shape | None:
    """Return the shape of an array that is made."""
    is_row = is_row or (len(positional) == 1 and isinstance(positional[0], list | tuple))
    given = keywords.get("size", keywords.get("shape", positional[0] if positional and is_row else positional))
    row = given if isinstance(given, list | tuple) else (given,)
    return tuple(side if isinstance(side, int) and not isinstance(side, bool) else None for side in row)


def _read_dtype(keywords: Mapping[str, Any]) -> str:
    """Return the type of a tensor that is made."""
    dtype = keywords.get("dtype")
    return dtype.name.removeprefix("torch.") if isinstance(dtype, External) else "float32" if dtype is None else ""
