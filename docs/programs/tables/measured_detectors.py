"""Measures what detectors of Ultralytics store for their backward, and writes the table of them.

``python docs/programs/tables/measured_detectors.py`` needs torch and ultralytics; where they are missing it says so and
does nothing. Models are built from the package's own descriptions and run forward on tensors without data, as in
``saved_tensors``. Its losses assign boxes to anchors without gradients, which depends on the data: they are counted by
formula. Only the numbers are written: facts, no code and no weights.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

try:
    import torch
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
    from ultralytics import __version__
    from ultralytics.nn import tasks
    from ultralytics.utils import ROOT
except ImportError:  # the rest of this file is not run then
    sys.exit("torch or ultralytics is not installed: nothing is measured")

from saved_tensors import PRODUCTS, SMALL, add_flop, count, flop, make_images, measure_sample

TARGET = Path(__file__).parents[3] / "opsk/workload/public_models/catalogue/detectors.tsv"
HEAD = (
    "# Written by docs/programs/tables/measured_detectors.py; columns as in measured.tsv. Bytes of a sample include\n"
    "# the loss of a detector: predictions in fp32, and the assignment of 100 boxes to its anchors.\n"
)
SIZE, CLASS_SIZE = 640, 224
SCALES = "nsmlx"
_DETECT, _CLASSIFY = ("", "-seg", "-pose", "-obb"), "-cls"
_STRIDES = (8, 16, 32)
_CLASSES = 80
_BOXES, _BOX_TENSORS = 100, 6
"""Boxes of a sample after mosaics of four images, and tensors of boxes x anchors that are alive at once in fp32."""
_LOSS_TENSORS = 4
"""Tensors of anchors x (classes + 4 x 16 bins) in fp32: joined, as logits, their targets, and their sigmoid."""


def list_models() -> Iterator[tuple[str, str, int]]:
    """Yield the models: their name, that of their description, and the side of their images."""
    for family in ("yolov8", "yolo11", "yolo12", "yolo26"):
        for letter in SCALES:
            for task in _DETECT:
                if _find(f"{family}{task}"):
                    yield f"{family}{letter}{task}", f"{family}{task}", SIZE
            if _find(f"{family}{_CLASSIFY}"):
                yield f"{family}{letter}{_CLASSIFY}", f"{family}{_CLASSIFY}", CLASS_SIZE
    for family in ("yolov5", "yolov6"):
        yield from ((f"{family}{letter}", family, SIZE) for letter in SCALES)
    yield from ((f"yolov9{letter}", f"yolov9{letter}", SIZE) for letter in "tsmce")
    yield from ((f"yolov10{letter}", f"yolov10{letter}", SIZE) for letter in "nsmblx")
    yield from ((name, name, SIZE) for name in ("yolov3", "yolov3-spp", "yolov3-tiny", "rtdetr-l", "rtdetr-x"))


def _find(name: str) -> Path | None:
    """Return the package's description of a model."""
    return next(iter((ROOT / "cfg" / "models").glob(f"*/{name}.yaml")), None)


def _build(name: str, description: str) -> nn.Module:
    """Return a model whose weights have no data: its constructor runs it once on the CPU."""
    path = _find(description)
    settings = {**tasks.YAML.load(path), "scale": next((s for s in _letters(name, description)), "")}
    with unset_fake_temporarily(), torch.device("cpu"):
        kind = next(
            (kind for task, kind in _KINDS.items() if description.endswith(task)),
            tasks.RTDETRDetectionModel if name.startswith("rtdetr") else tasks.DetectionModel,
        )
        model: nn.Module = kind(settings, verbose=False)
    for module in model.modules():
        for part, value in list(module.named_parameters(recurse=False)):
            setattr(module, part, nn.Parameter(torch.empty(value.shape), requires_grad=value.requires_grad))
        for part, value in list(module.named_buffers(recurse=False)):
            setattr(module, part, torch.empty(value.shape, dtype=value.dtype))
    return model


_KINDS: dict[str, Any] = {
    "-seg": tasks.SegmentationModel,
    "-pose": tasks.PoseModel,
    "-obb": tasks.OBBModel,
    "-cls": tasks.ClassificationModel,
}


def _letters(name: str, description: str) -> str:
    """Return the letter of a name that chooses the scale of a description of several."""
    stem = description.partition("-")[0]
    return name.partition("-")[0].removeprefix(stem)


def measure(name: str, description: str, size: int) -> str:
    """Return the row of a model."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        model = _build(name, description).train()
        parameters = sum(part.numel() for part in model.parameters())
        inputs = partial(make_images, size)
        stored, _, largest = measure_sample(model, inputs, is_16_bit=True)
        flop[0] = 0
        hooks = [part.register_forward_hook(add_flop) for part in model.modules() if isinstance(part, PRODUCTS)]
        full = count(model, inputs, SMALL, is_16_bit=False).total // SMALL
        work = flop[0] // SMALL
        for hook in hooks:
            hook.remove()
    loss = 0 if description.endswith(_CLASSIFY) else _count_loss_bytes(size)
    numbers = (size, parameters, 0, stored + loss, full + loss, 0, 0, 0, 0, largest, work)
    names = [name, f"{name}u"] if name.startswith(("yolov5", "yolov3")) else [name]
    return "\t".join(("image", "pixels", *map(str, numbers), f"ultralytics {__version__}", " ".join(names)))


def _count_loss_bytes(size: int) -> int:
    """Return what the loss of a sample holds while all activations are stored [bytes]."""
    anchors = sum((size // stride) ** 2 for stride in _STRIDES)
    return 4 * anchors * (_LOSS_TENSORS * (_CLASSES + 64) + _BOX_TENSORS * _BOXES)


def main() -> None:
    """Write the table."""
    rows = []
    for name, description, size in list_models():
        if _find(description) is None:
            print(f"{name}: the package has no {description}", file=sys.stderr)
            continue
        rows.append(measure(name, description, size))
        print(rows[-1], flush=True)
    TARGET.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
