"""Tables of runs as CSV text, for tests of reading and validating them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

STATED: Mapping[str, str] = {
    "id": "site-001",
    "source": "Korthikanti et al. 2022",
    "software": "megatron-lm",
    "source_date": "2022-05",
    "model": "in-house",
    "arch": "gpt",
    "params_b": "22",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "kv_heads": "64",
    "ffn_hidden": "24576",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100",
    "gpu_mem_gb": "80",
    "gpus": "8",
    "gpus_per_node": "8",
    "tp": "8",
    "pp": "1",
    "cp": "1",
    "dp": "1",
    "sharding": "none",
    "sequence_parallel": "no",
    "recompute": "full",
    "precision": "fp16",
    "micro_batch": "4",
    "global_batch": "4",
}
"""A row that states every input: the 22B model of Korthikanti et al. 2022, table 5."""


def row(**columns: str) -> dict[str, str]:
    """Return the stated row with other cells; an empty cell is "not stated"."""
    return {**STATED, **columns}


def table(*rows: Mapping[str, str]) -> str:
    """Return a CSV with the columns of all rows."""
    names = list(dict.fromkeys(name for entry in rows for name in entry))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
