"""What the advice says of jobs that only generate, where the site wants it."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import lines, short_lines
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
ADVISER = Adviser(cluster=cluster("superpod-h100"), advises_inference=True)
GEN = """from vllm import LLM
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--model')
parser.add_argument('--tp', type=int, default=1)
args = parser.parse_args()
llm = LLM(model=args.model, tensor_parallel_size=args.tp, gpu_memory_utilization=0.85, max_model_len=4096)
"""


def advised(command: str) -> Advice:
    """Return the advice on a script of one command."""
    workload = read_script(f"{HEAD}{command}\n", file="job.sh", files={"gen.py": GEN})
    assert not workload.is_training
    assert not ADVISER.leaves_alone(workload), workload.options
    return ADVISER.advise(workload)


# Weights in 16 bits: 7.6 billion parameters 14 GiB, 70.6 billion 131 GiB, 72.7 billion 135 GiB; an H100 has 79 GiB.
@pytest.mark.parametrize(
    ("command", "verdict", "better_tp"),
    [
        ("vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768", Verdict.FITS, 0),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 8192", Verdict.OOM, 4),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4", Verdict.FITS, 0),
        ("srun python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-72B-Instruct", Verdict.OOM, 4),
        ("python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-72B-Instruct-AWQ", Verdict.FITS, 0),
        ("vllm serve Qwen/Qwen2.5-7B --gpu-memory-utilization 0.15", Verdict.OOM, 4),
        ("python -m sglang.launch_server --model-path Qwen/Qwen2.5-32B-Instruct --tp 2", Verdict.FITS, 0),
        ("python gen.py --model Qwen/Qwen2.5-32B-Instruct --tp 2", Verdict.FITS, 0),
    ],
)
def test_an_engine_starts_where_weights_and_one_sequence_fit_into_its_share(
    command: str, verdict: Verdict, better_tp: int
) -> None:
    advice = advised(command)
    assert advice.serving is not None
    assert (advice.verdict, advice.serving.better_tp) == (verdict, better_tp)


def test_the_context_is_what_the_cache_holds() -> None:
    # 28 layers x 2 x 4 heads x 128 x 2 bytes = 57,344 bytes a token; some 55 of 71 GiB remain
    advice = advised("vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768")
    assert advice.serving is not None
    assert advice.serving.memory.token == 57_344
    assert 900_000 < advice.serving.memory.context_tokens < 1_100_000
    text = "\n".join(lines(advice, "long"))
    assert "31 of 32768 tokens" in text
    assert "estimate from formulas" in text
    assert "KV cache" in short_lines(advice)[1]
    assert document(advice)["serving"]["context_tokens"] == advice.serving.memory.context_tokens


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve $MODEL",
        "vllm serve some/unheard-of-model",
        "vllm serve Qwen/Qwen2.5-7B --quantization mystery",
        "vllm serve Qwen/Qwen2.5-7B --cpu-offload-gb 20",
        "vllm serve Qwen/Qwen2.5-7B &\nvllm serve Qwen/Qwen2.5-14B",
        "python prepare_data.py",
        "vllm bench serve --model Qwen/Qwen2.5-7B",
    ],
)
def test_what_is_not_known_is_left_alone(command: str) -> None:
    assert ADVISER.leaves_alone(read_script(f"{HEAD}{command}\n", file="job.sh"))


def test_no_file_is_asked_for_on_behalf_of_such_a_job() -> None:
    text = f"{HEAD}vllm serve Qwen/Qwen2.5-7B --config engine.yaml\n"
    files = read_script(text, file="job.sh").missing_files
    assert "engine.yaml" not in files


def test_such_jobs_are_left_alone_unless_the_site_wants_an_answer() -> None:
    workload = read_script(f"{HEAD}vllm serve Qwen/Qwen2.5-7B\n", file="job.sh")
    assert Adviser(cluster=cluster("superpod-h100")).leaves_alone(workload)
    assert Adviser(cluster=cluster("superpod-h100")).advise(workload).serving is None
