"""Is advice called certain only when it is, and do its words carry the numbers?"""

from __future__ import annotations

import pytest

from opsk.config import SiteConfig
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer

LAUNCH = (
    "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --train-iters 10 --vocab-size 50257 "
    "--seq-length 2048 --max-position-embeddings 2048 --num-attention-heads 64 --use-distributed-optimizer "
    "--tensor-model-parallel-size {tp} --pipeline-model-parallel-size 1 --num-layers {layers} --hidden-size 8192 "
    "--micro-batch-size {micro} --global-batch-size 128\n"
)


@pytest.fixture(scope="module")
def analyzer() -> SiteAnalyzer:
    return SiteAnalyzer(SiteConfig(cluster="superpod-h100"))


def analysis(analyzer: SiteAnalyzer, text: str, **request: object) -> Analysis:
    asked = SlurmRequest(nodes=2, gpus_per_node=8, **request)  # type: ignore[arg-type]
    return analyzer.analyze(AnalysisRequest(text=text, file="train.sh", request=asked, files={}))


def test_a_stated_job_that_is_far_too_large_is_certain(analyzer: SiteAnalyzer) -> None:
    """80 layers of hidden 8192 are 66 billion weights: 16-bit alone they are 122 GiB on a GPU without TP."""
    found = analysis(analyzer, LAUNCH.format(tp=1, layers=80, micro=4))
    assert found.verdict == "oom"
    assert found.oom_probability is not None
    assert found.oom_probability > 0.99
    assert found.guessed == ()
    assert found.why.startswith("will run out of GPU memory: ")
    assert found.why.endswith(" of 79.1 GiB per GPU")


def test_a_job_that_fits_is_certain_of_nothing(analyzer: SiteAnalyzer) -> None:
    found = analysis(analyzer, LAUNCH.format(tp=8, layers=24, micro=1))
    assert found.verdict == "fits"
    assert found.oom_probability is not None
    assert found.oom_probability < 0.05
    assert (found.why, found.would_fit) == ("", "")


def test_what_would_fit_is_named_with_its_memory(analyzer: SiteAnalyzer) -> None:
    found = analysis(analyzer, LAUNCH.format(tp=2, layers=24, micro=8))
    assert found.verdict == "oom"
    assert found.would_fit.endswith(" GiB")
    assert "--" in found.would_fit


def test_flags_that_cannot_be_read_make_defaults_guesses(analyzer: SiteAnalyzer) -> None:
    """``$EXTRA`` may hold ``--recompute-granularity full``: it is likely to run out, and nobody is held for it."""
    found = analysis(analyzer, LAUNCH.format(tp=1, layers=80, micro=4).replace("--train-iters 10", "$EXTRA"))
    assert found.verdict == "oom"
    assert "plan.recompute" in found.guessed


def test_a_program_that_is_not_known_is_a_row_of_guesses(analyzer: SiteAnalyzer) -> None:
    stated = "framework=megatron-lm layers=80 hidden=8192 heads=64 vocab=50257 seq=2048 tp=1 pp=1 micro_batch=4"
    found = analysis(analyzer, f"#!/bin/bash\n#OPSK {stated}\nsrun python train.py\n")
    assert found.verdict == "oom"
    assert {"plan.precision", "plan.recompute"} <= set(found.guessed)


def test_what_cannot_be_told_is_not_certain(analyzer: SiteAnalyzer) -> None:
    found = analysis(analyzer, LAUNCH.format(tp=1, layers="$1", micro=4))
    assert (found.verdict, found.oom_probability, found.why) == ("unknown", None, "")


def test_advice_on_an_array_says_that_it_is_about_each_task(analyzer: SiteAnalyzer) -> None:
    found = analysis(analyzer, LAUNCH.format(tp=8, layers=24, micro=1), is_array=True)
    assert found.lines[0].endswith("each task of the array")
    assert found.short_lines[0].endswith("each task of the array")
