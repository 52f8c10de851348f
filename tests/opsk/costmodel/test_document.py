from __future__ import annotations

import json

from opsk.costmodel.document import prediction_document
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def test_the_document_has_the_shape_that_programs_rely_on(gpt3: ModelShape, cluster: ClusterSpec):
    plans = PlanTable.of([Plan(tp=8, pp=8, global_batch=64), Plan(tp=8, pp=8, vpp=3, global_batch=64)])
    table = predict(gpt3, plans, cluster)
    document = json.loads(json.dumps(prediction_document(table, 1)))
    memory, time = document["memory"], document["time"]
    assert {"capacity_bytes", "total_bytes", "components", "fit_probability"} <= memory.keys()
    assert {"step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "components"} <= time.keys()
    assert {"step_j", "j_per_token"} <= document["energy"].keys()
    for value in (memory["total_bytes"], time["step_s"], time["mfu"], document["energy"]["step_j"]):
        assert value.keys() == {"low", "expected", "high"}
    assert time["step_s"]["expected"] == table.time.step_s.expected[1] != table.time.step_s.expected[0]
    assert document["verdict"] in {"fits", "tight", "oom"}
