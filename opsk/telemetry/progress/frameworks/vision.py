"""Lists the progress lines of programs that train vision models: nearly all count steps within an epoch.

Sources: Swin-Transformer main.py (InternImage and others took it over), timm train.py, engines of DeiT and MAE with
torchvision's MetricLogger, pytorch/examples imagenet, detectron2 utils/events.py, hooks of mmcv and mmengine.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.frameworks.formats import (
    GRAD_NORM,
    LOSS,
    LR,
    SAMPLES,
    STEP_S,
    LineFormat,
    LineFramework,
    parse_mib,
)
from opsk.telemetry.progress.lines import NUMBER

_MEMORY = ("memory_bytes", parse_mib)
_METERS = re.compile(rf"\b((?:max )?[A-Za-z_][\w/]{{0,40}}):\s*({NUMBER})", re.ASCII).findall
"""``name: value`` between blanks or commas; of ``max mem: 9123`` both words."""
_METER_FIELDS = {
    "loss": LOSS,
    "total_loss": LOSS,
    "lr": LR,
    "grad_norm": GRAD_NORM,
    "time": STEP_S,
    "iter_time": STEP_S,
    "img/s": SAMPLES,
    "max mem": _MEMORY,
    "max_mem": _MEMORY,
    "memory": _MEMORY,
}

VISION_FRAMEWORKS = (
    LineFramework(
        name="swin",
        hints=("Train: [",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bTrain: \[(?P<epoch>\d+)/(?P<epochs>\d+)\]\[(?P<step>\d+)/(?P<total>\d+)\]\s", re.ASCII
                ),
                pairs=re.compile(rf"\b(lr|time|loss|grad_norm|mem) ({NUMBER})", re.ASCII).findall,
                fields={"time": STEP_S, "loss": LOSS, "lr": LR, "grad_norm": GRAD_NORM, "mem": _MEMORY},
                required="loss",
            ),
        ),
        example="Train: [0/300][10/1251]\teta 0:10:52 lr 0.0007\ttime 0.64 (0.65)\tloss 6.5 (6.3)\tmem 14764MB",
    ),
    LineFramework(
        # The rate is of all processes.
        name="timm",
        hints=("Train: ",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bTrain: (?P<epoch>\d+)(?:/\d+)? \[\s*(?P<step>\d+)/(?P<total>\d+) +\(\s*\d+%\)\] +"
                    r"Loss: *(?P<loss>[\d.naif]+)"
                    r"(?: \([^)]{1,20}\))?(?: +Time: *(?P<seconds>[\d.]+)s, *(?P<rate>[\d.]+)/s)?",
                    re.ASCII,
                ),
                pairs=re.compile(rf"\b(LR): *({NUMBER})", re.ASCII).findall,
                fields={"loss": LOSS, "seconds": STEP_S, "rate": SAMPLES, "lr": LR},
            ),
        ),
        example="Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.94)  Time: 0.405s, 2529.18/s  (0.42s, 2392.7/s)  LR: 1e-06",
    ),
    LineFramework(
        # MetricLogger of torchvision's references, which DeiT, MAE, DINO, ConvNeXt and others use.
        name="torchvision",
        hints=("Epoch: [",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bEpoch: \[(?P<epoch>\d+)(?:/(?P<epochs>\d+))?\]\s+\[\s*(?P<step>\d+)/(?P<total>\d+)\]\s+eta: ",
                    re.ASCII,
                ),
                pairs=_METERS,
                fields=_METER_FIELDS,
                required="step_s",
            ),
        ),
        example="Epoch: [0]  [  10/1251]  eta: 0:20:12  lr: 1e-06  loss: 6.92 (6.93)  time: 0.89  max mem: 9123",
    ),
    LineFramework(
        # pytorch/examples imagenet, and what was written after it (MoCo, SimSiam).
        name="pytorch-imagenet",
        hints=("Epoch: [",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bEpoch: \[(?P<epoch>\d+)\]\[\s*(?P<step>\d+)/(?P<total>\d+)\]\s+Time\s+(?P<seconds>[\d.]+)",
                    re.ASCII,
                ),
                pairs=re.compile(rf"\b(Loss)\s+({NUMBER})", re.ASCII).findall,
                fields={"seconds": STEP_S, "loss": LOSS},
            ),
        ),
        example="Epoch: [0][  10/5005]\tTime  0.345 ( 0.567)\tData  0.000 ( 0.123)\tLoss 6.9 (7.0)\tAcc@1 0.0 (0.1)",
    ),
    LineFramework(
        name="detectron2",
        hints=("total_loss: ",),
        formats=(
            LineFormat(
                head=re.compile(r"\beta: .{1,24}?\s+iter: (?P<step>\d+)\s", re.ASCII),
                pairs=_METERS,
                fields=_METER_FIELDS,
                required="loss",
            ),
        ),
        example="eta: 19:46:55  iter: 4959  total_loss: 10.31  time: 0.2815  lr: 2.5e-05  max_mem: 5418M",
    ),
    LineFramework(
        # mmcv counted epochs and iterations alike: Epoch [1][50/1250], Iter [50/160000].
        name="mmengine",
        hints=("data_time: ",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bEpoch ?(?:\(train\))?\s*\[(?P<epoch>\d+)(?:/(?P<epochs>\d+))?\]"
                    r"\[\s*(?P<step>\d+)/(?P<total>\d+)\]\s",
                    re.ASCII,
                ),
                pairs=_METERS,
                fields=_METER_FIELDS,
                required="step_s",
                first_epoch=1,
            ),
            LineFormat(
                head=re.compile(r"\bIter ?(?:\(train\))?\s*\[\s*(?P<step>\d+)/(?P<total>\d+)\]\s", re.ASCII),
                pairs=_METERS,
                fields=_METER_FIELDS,
                required="step_s",
            ),
        ),
        example="Epoch(train)  [1][  50/1250]  lr: 1.0e-02  time: 0.3  data_time: 0.05  memory: 3401  loss: 1.2",
    ),
)
