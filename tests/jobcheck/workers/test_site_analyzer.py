"""Does the real analysis answer a script, and does it keep its hands off what the script names?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer

LAUNCH = (
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --train-iters 10 --vocab-size 50257 "
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 128 "
    "--seq-length 2048 --max-position-embeddings 2048 --use-distributed-optimizer\n"
)


@pytest.fixture(scope="module")
def analyzer() -> SiteAnalyzer:
    return SiteAnalyzer(SiteConfig(cluster="superpod-h100"))


def query(text: str, **fields: object) -> AnalysisRequest:
    fields = {"file": "train.sh", "request": SlurmRequest(nodes=2, gpus_per_node=8), "files": {}, **fields}
    return AnalysisRequest(text=text, **fields)  # type: ignore[arg-type]


def test_a_training_script_gets_lines_and_a_record(analyzer: SiteAnalyzer) -> None:
    analysis = analyzer.analyze(query(LAUNCH))
    assert analysis.verdict == "fits"
    assert len(analysis.lines) > 2
    assert len(analysis.short_lines) == 2
    assert analysis.comment.startswith("opsk:v1 verdict=fits")


def test_the_quick_verdict_is_the_same_verdict(analyzer: SiteAnalyzer) -> None:
    full, quick = analyzer.analyze(query(LAUNCH)), analyzer.analyze(query(LAUNCH, quick=True))
    assert (full.verdict, full.comment) == (quick.verdict, quick.comment)


def test_other_scripts_are_met_with_silence(analyzer: SiteAnalyzer) -> None:
    assert analyzer.analyze(query("#!/bin/bash\nhostname\n")) == Analysis(silent=True)


def test_a_wrapper_is_told_by_the_script_that_it_starts(analyzer: SiteAnalyzer) -> None:
    wrapper = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\nsrun bash inner.sh\n"
    inner = "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --bf16\n"
    assert analyzer.analyze(query(wrapper, may_want=True)) == Analysis(missing_files=("inner.sh",))
    assert analyzer.analyze(query(wrapper, may_want=True, unread=("inner.sh",))) == Analysis(silent=True)
    assert analyzer.analyze(query(wrapper, may_want=True, files={"inner.sh": "hostname\n"})) == Analysis(silent=True)
    files = {"inner.sh": inner}
    assert analyzer.analyze(query(wrapper, may_want=True, files=files)) == Analysis(missing_files=("pretrain_gpt.py",))
    assert analyzer.analyze(query(wrapper, may_want=True, files=files, unread=("pretrain_gpt.py",))).comment


def test_an_opted_out_script_is_marked_so(analyzer: SiteAnalyzer) -> None:
    """The hooks do not ask about it, but where the site's policy may hold or refuse it."""
    analysis = analyzer.analyze(query(LAUNCH + "#OPSK off\n"))
    assert analysis.opted_out
    assert analysis.verdict == "fits"


@pytest.mark.parametrize("quick", [False, True])
def test_a_job_that_leaves_its_nodes_to_a_partition_gets_as_many_as_that_gives(quick: bool) -> None:
    class Reader:
        def state(self) -> LiveState:
            return LiveState(nodes=(), min_nodes={"big": 4})

    analyzer = SiteAnalyzer(SiteConfig(cluster="superpod-h100"))
    analyzer._live = Reader()  # type: ignore[assignment]
    text = LAUNCH.replace("--nodes=2 ", "").replace("torchrun --nnodes 2 --nproc-per-node 8", "srun python")
    left = SlurmRequest(nodes=1, gpus_per_node=8, partition="big", is_merged=True, is_left_to_partition=True)
    told = " ".join(analyzer.analyze(query(text, request=left, quick=quick)).short_lines)
    assert "32 × H100 (4 nodes)" in told
    given = replace(left, is_left_to_partition=False)
    assert "8 × H100 (1 node)" in " ".join(analyzer.analyze(query(text, request=given, quick=quick)).short_lines)


OPEN_NOTHING = """
import sys
from opsk.config import SiteConfig
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer
from opsk_jobcheck.workers.analysis import AnalysisRequest
analyzer = SiteAnalyzer(SiteConfig(cluster="superpod-h100"))
opened = []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
text = open(sys.argv[1]).read()
for may_want in (True, False):
    analyzer.analyze(AnalysisRequest(text=text, file="s", request=SlurmRequest(), files={}, may_want=may_want))
print("\\n".join(opened))
"""


def test_no_path_that_a_script_names_is_opened(tmp_path: Path) -> None:
    """Every way of naming a file that we know, and Python's own record of what is opened."""
    named = [f"{tmp_path}/named-{number}" for number in range(8)]
    for path in named:
        Path(path).write_text('{"hidden_size": 4096, "num_hidden_layers": 32}')
    script = tmp_path / "script"
    script.write_text(
        LAUNCH.rstrip() + f" --tokenizer-model {named[0]} --load {named[1]} --config-file {named[2]}\n"
        f"source {named[3]}\n. {named[4]}\nX=$(cat {named[5]})\nCONFIG={named[6]}\n"
        f"deepspeed train.py --model_name_or_path {named[6]} --deepspeed {named[7]}\n"
    )
    done = subprocess.run([sys.executable, "-c", OPEN_NOTHING, str(script)], capture_output=True, text=True, check=True)
    opened = done.stdout.splitlines()
    assert str(script) in opened
    assert [path for path in opened if "named-" in path] == []
