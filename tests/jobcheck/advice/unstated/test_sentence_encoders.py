"""Trainings with sentence-transformers: several texts of each sample are in memory at a time."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
FITTED = (
    "from sentence_transformers import InputExample, SentenceTransformer, losses\n"
    "from torch.utils.data import DataLoader\n"
    "model = SentenceTransformer('{model}')\n"
    "loader = DataLoader(pairs, shuffle=True, batch_size={batch})\n"
    "model.fit(train_objectives=[(loader, losses.MultipleNegativesRankingLoss(model))], epochs=1)\n"
)
TRAINED = (
    "from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer\n"
    "from sentence_transformers import SentenceTransformerTrainingArguments\n"
    "model = SentenceTransformer('{model}')\n"
    "a = SentenceTransformerTrainingArguments('out', per_device_train_batch_size={batch}, fp16=True)\n"
    "SentenceTransformerTrainer(model=model, args=a, train_dataset=pairs).train()\n"
)


def advise(source: str) -> Advice:
    return ADVISER.advise(read_script(SCRIPT, file="job.sh", files={"train.py": source}))


@pytest.mark.parametrize("source", [FITTED, TRAINED])
@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "bert-base-uncased"])
def test_a_job_fits_where_it_does_with_all_texts_of_its_samples(source: str, model: str) -> None:
    advice = advise(source.format(model=model, batch=16))
    assert advice.workload.is_training
    assert (advice.verdict, advice.is_limit) == (Verdict.FITS, True)
    assert [entry.value for entry in advice.assumed if entry.field == "plan.micro_batch"] == [64]


@pytest.mark.parametrize("source", [FITTED, TRAINED])
def test_no_job_runs_out_by_texts_that_a_sample_may_have(source: str) -> None:
    advice = advise(source.format(model="bert-base-uncased", batch=1024))
    assert advice.verdict is Verdict.UNKNOWN


def test_a_program_that_only_encodes_does_not_train() -> None:
    source = (
        "from sentence_transformers import SentenceTransformer\nSentenceTransformer('all-MiniLM-L6-v2').encode(x)\n"
    )
    assert not read_script(SCRIPT, file="job.sh", files={"train.py": source}).framework
