"""Lists the progress lines of smaller programs that train language models: nanoGPT and its kin, fairseq, Levanter.

Sources: nanoGPT train.py, modded-nanogpt train_gpt.py, nanochat scripts/base_train.py, llm.c train_gpt2.cu, fairseq
logging/progress_bar.py (without ``num_updates`` until 0.8), tqdm-loggable, which Levanter uses, PaddleNLP trainer.py.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.frameworks.formats import (
    GPU_TOKENS,
    GRAD_NORM,
    LOSS,
    LR,
    SAMPLES,
    STEP_MS,
    STEP_S,
    TOKENS,
    LineFormat,
    LineFramework,
    invert,
)
from opsk.telemetry.progress.lines import NUMBER, parse_positive
from opsk.telemetry.progress.records import EventKind, StepPart

_FAIRSEQ_PAIRS = re.compile(rf'\b(loss|wps|lr|gnorm|bsz|wpb)(?:=|": "?)({NUMBER})', re.ASCII).findall
_FAIRSEQ_FIELDS = {
    "loss": LOSS,
    "wps": TOKENS,
    "lr": LR,
    "gnorm": GRAD_NORM,
    "bsz": ("batch", parse_positive),
    "wpb": ("batch_tokens", parse_positive),
}
"""``ups``, updates a second, has one digit in old releases: the time of a step is words a batch over words a second."""


LANGUAGE_FRAMEWORKS = (
    LineFramework(
        name="nanogpt",
        hints=("iter ", "train loss "),
        formats=(
            LineFormat(
                head=re.compile(
                    r"^\s*iter (?P<step>\d+): loss (?P<loss>[\d.]+|nan|inf), time (?P<ms>[\d.]+)ms\b", re.ASCII
                ),
                fields={"loss": LOSS, "ms": STEP_MS},
            ),
            LineFormat(
                head=re.compile(r"^\s*step (?P<step>\d+): train loss \S+ val loss (?P<loss>[\d.]+|nan)", re.ASCII),
                fields={"loss": LOSS},
                part=StepPart.EVENT,
                event=EventKind.VALIDATION,
            ),
        ),
        example="iter 120: loss 3.2500, time 250.00ms, mfu 38.20%",
    ),
    LineFramework(
        # The time of the whole run counts on from a few steps of warm-up; step_avg is the mean since then.
        name="modded-nanogpt",
        hints=("step_avg:",),
        formats=(
            LineFormat(
                head=re.compile(r"\bstep:(?P<step>\d+)/(?P<total>\d+)\s", re.ASCII),
                pairs=re.compile(rf"\b(train_loss|step_avg):({NUMBER})", re.ASCII).findall,
                fields={"train_loss": LOSS, "step_avg": STEP_MS},
                required="step_s",
            ),
        ),
        example="step:120/5100 train_loss:3.2500 train_time:13200ms step_avg:120.00ms",
    ),
    LineFramework(
        name="nanochat",
        hints=("| dt: ",),
        formats=(
            LineFormat(
                head=re.compile(r"\bstep (?P<step>\d+)/(?P<total>\d+) \(\s*[\d.]+%\) \|", re.ASCII),
                pairs=re.compile(rf"\b(loss|dt|tok/sec): ({NUMBER})", re.ASCII).findall,
                fields={"loss": LOSS, "dt": STEP_MS, "tok/sec": TOKENS},
                required="step_s",
            ),
        ),
        example="step 00120/21400 (0.56%) | loss: 3.25 | lrm: 1.00 | dt: 520.25ms | tok/sec: 1,007,614 | mfu: 45.1",
    ),
    LineFramework(
        name="llm.c",
        hints=("| loss ",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"^\s*step\s+(?P<step>\d+)/(?P<total>\d+) \| loss (?P<loss>[\d.]+|nan|inf) (?:\([^)]{1,16}\))?"
                    r"\| norm (?P<norm>[\d.]+|nan|inf) (?:\([^)]{1,16}\))?\| lr (?P<lr>\S{1,16}) \| "
                    r"(?P<ms>[\d.]+) ms \|"
                    r"(?:.{0,40}?\| (?P<rate>\d+) tok/s)?",
                    re.ASCII,
                ),
                fields={"loss": LOSS, "norm": GRAD_NORM, "lr": LR, "ms": STEP_MS, "rate": TOKENS},
            ),
        ),
        example="step  120/18865 | loss 7.5 (+1.20z)| norm 1.25 (+0.10z)| lr 1e-04 | 250.00 ms | 55% | 2097152 tok/s",
    ),
    LineFramework(
        # Rates are of the whole job.
        name="fairseq",
        hints=("wps=", '"wps"'),
        formats=(
            *(
                LineFormat(head=re.compile(head, re.ASCII), pairs=_FAIRSEQ_PAIRS, fields=_FAIRSEQ_FIELDS)
                for head in (
                    r"\bepoch \d+:?(?=.{1,400}?\bnum_updates=(?P<step>\d+))",
                    r'\{"epoch": \d+(?=.{1,600}?"num_updates": "?(?P<step>\d+))',
                )
            ),
            LineFormat(
                head=re.compile(r"\bepoch (?P<epoch>\d+):?\s+(?P<step>\d+) / (?P<total>\d+)\s(?=loss=)", re.ASCII),
                pairs=_FAIRSEQ_PAIRS,
                fields=_FAIRSEQ_FIELDS,
                first_epoch=1,
            ),
        ),
        example="epoch 001:    450 / 1891 loss=11.5, wps=52922, ups=0.5, wpb=104928, num_updates=445, gnorm=1.5",
    ),
    LineFramework(
        # Beyond 999 the bar rounds to three digits: 1.23kit.
        name="levanter",
        hints=("Progress on:",),
        formats=(
            LineFormat(
                head=re.compile(
                    r"\bProgress on:\s?train (?P<step>[\d.,]+k?)(?:it)?/(?P<total>[\d.,]+[kM]?)(?:it)? "
                    r"rate:(?:(?P<time>[\d.,]+) ?s/it|(?P<rate>[\d.,]+) ?it/s)",
                    re.ASCII,
                ),
                pairs=re.compile(rf"\b(loss)=({NUMBER})", re.ASCII).findall,
                fields={"time": STEP_S, "rate": ("step_s", invert), "loss": LOSS},
            ),
        ),
        example="Progress on:train 130it/10.0kit rate:1.1s/it remaining:3:01:22 elapsed:02:24 postfix:loss=10.5",
    ),
    LineFramework(
        name="paddlenlp",
        hints=("interval_steps_per_second: ",),
        formats=(
            LineFormat(
                head=re.compile(r"\bloss: (?P<loss>[^,\s]+), (?=.{0,200}?\bglobal_step: (?P<step>\d+),)", re.ASCII),
                pairs=re.compile(rf"\b([a-z_]{{1,48}}): ({NUMBER})", re.ASCII).findall,
                fields={
                    "loss": LOSS,
                    "learning_rate": LR,
                    "interval_steps_per_second": ("step_s", invert),
                    "interval_samples_per_second": SAMPLES,
                    "interval_tokens_per_second_per_device": GPU_TOKENS,
                },
            ),
        ),
        example="loss: 1.08, learning_rate: 4e-08, global_step: 1, interval_steps_per_second: 0.2",
    ),
)
