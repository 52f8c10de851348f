"""What is read of trainings of Ultralytics: the command, programs that call its models, and YOLOv5's program.

Defaults are those of ``cfg/default.yaml`` (16 images of 640 pixels, on one GPU) and of YOLOv5's parser.
"""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.plan import Precision
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node={gpus}\n"
PROGRAM = """import argparse
from ultralytics import YOLO

parser = argparse.ArgumentParser()
parser.add_argument("--weights", default="yolo11m.pt")
parser.add_argument("--images", type=int, default=32)
args = parser.parse_args()
detector = YOLO(args.weights)
detector.train(data="cells.yaml", epochs=30, batch=args.images{more})
"""


def read(body: str, *, gpus: int = 1, files: dict[str, str] | None = None) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(f"{HEAD.format(gpus=gpus)}{body}\n", file="job.sh", files=files)


@pytest.mark.parametrize(
    ("command", "model", "batch", "size"),
    [
        ("yolo detect train model=yolov8m.pt data=d.yaml", "yolov8m", 16, None),
        ("yolo train model=yolo11x.yaml data=d.yaml imgsz=1280 batch=8", "yolo11x", 8, "1280"),
        ("srun yolo task=segment mode=train model=/w/yolov8n-seg.pt batch=4", "yolov8n-seg", 4, None),
        ("yolo pose train model=yolov8.yaml", "yolov8n", 16, None),  # without a letter the smallest
        ("yolo train model=yolov11s.pt multi_scale=True imgsz=800", "yolo11s", 16, "1200"),
        ("python yolov5/train.py --img 320 --batch 32 --weights yolov5l.pt --data d.yaml", "yolov5l", 32, "320"),
        ("python train.py --cfg yolov5x.yaml --weights '' --hyp h.yaml --batch-size 8", "yolov5x", 8, None),
        ("python yolov5/train.py --hyp h.yaml --data d.yaml", "yolov5s", 16, None),
    ],
)
def test_the_command_states_model_batch_and_size(command: str, model: str, batch: int, size: str | None) -> None:
    workload = read(command)
    assert workload.is_training
    assert workload.model.name == model
    assert workload.plan.micro_batch == batch
    assert dict(workload.options).get("input.size") == size
    assert workload.plan.precision is Precision.FP16


@pytest.mark.parametrize(
    "command", ["yolo predict model=yolov8n.pt source=x.jpg", "yolo val model=yolov8n.pt", "yolo export model=a.pt"]
)
def test_other_tasks_are_no_training(command: str) -> None:
    assert not read(command).is_training


def test_the_batch_is_divided_by_the_gpus_that_train() -> None:
    workload = read("yolo train model=yolov8l.pt batch=64 device=0,1,2,3", gpus=4)
    assert workload.plan.micro_batch == 16
    launched = "python -m torch.distributed.run --nproc_per_node 4 yolov5/train.py --batch 64 --weights yolov5s.pt"
    assert read(launched, gpus=4).plan.micro_batch == 16


@pytest.mark.parametrize("command", ["yolo train model=yolov8s.pt batch=16", "python detect.py --weights yolov8s.pt"])
def test_gpus_that_no_device_names_are_called_idle(command: str) -> None:
    files = {"detect.py": PROGRAM.format(more="")}
    advice = Adviser(cluster=cluster("superpod-a100")).advise(read(command, gpus=4, files=files))
    assert [entry.what for entry in advice.waste] == ["3 of the 4 GPUs asked for do nothing: the job starts 1 rank"]


@pytest.mark.parametrize(
    ("more", "batch", "gpus"),
    [("", 32, 1), (", device=0", 32, 1), (", device=[0, 1]", 16, 2), (', device="0,1,2,3"', 8, 4)],
)
def test_a_program_hands_its_settings_to_a_model(more: str, batch: int, gpus: int) -> None:
    workload = read("python detect.py", gpus=gpus, files={"detect.py": PROGRAM.format(more=more)})
    assert (workload.framework, workload.model.name) == ("ultralytics", "yolo11m")
    assert workload.plan.micro_batch == batch


def test_a_size_that_is_not_known_leaves_the_batch_open() -> None:
    files = {"detect.py": PROGRAM.format(more=", imgsz=sides()[0]")}
    workload = read("python detect.py", files=files)
    assert workload.plan.micro_batch is None
    assert any("side of the images" in entry.why for entry in workload.unknown)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("yolo train model=runs/detect/best.pt", "model.layers"),
        ("yolo train model=yolov8n.pt batch=-1", "plan.micro_batch"),
        ("yolo train model=yolov8n.pt batch=0.7", "plan.micro_batch"),
        ("yolo train model=$MODEL", "model.layers"),
        ("yolo train cfg=mine.yaml", "model.layers"),
    ],
)
def test_what_is_not_known_is_said_with_its_reason(command: str, field: str) -> None:
    workload = read(command)
    assert workload.is_training
    assert any(entry.field == field and entry.why for entry in workload.unknown)


def test_a_file_of_settings_is_below_the_words() -> None:
    files = {"mine.yaml": "model: yolov8x.pt\nbatch: 24\nimgsz: 960\namp: false\n"}
    workload = read("yolo detect train cfg=mine.yaml batch=12", files=files)
    assert (workload.model.name, workload.plan.micro_batch) == ("yolov8x", 12)
    assert dict(workload.options)["input.size"] == "960"
    assert workload.plan.precision is Precision.FP32


def test_several_models_are_not_told_apart() -> None:
    two = PROGRAM.format(more="") + "other = YOLO('yolov8n.pt')\nother.train(data='d.yaml', batch=4)\n"
    workload = read("python detect.py", files={"detect.py": two})
    assert workload.is_training
    assert workload.plan.micro_batch is None
