"""Defines the rules that map series of dcgm-exporter to those of opsk."""

from __future__ import annotations

from deploy.prometheus.dcgm_names import DCGM, MIB, RATIO, Value
from deploy.prometheus.rule import Rule
from opsk.hardware.xids import XidClass, xid

_WHOLE = 'GPU_I_ID=""'
_ANY_LINE = '{__name__=~"DCGM_FI_DEV_(GPU_TEMP|GPU_TEMP_CELSIUS|SM_CLOCK|SM_CLOCK_HERTZ)"'
"""Series that every GPU has, for what stands in labels alone."""
_MIG_LINE = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!=""}'
_OF_GPU = "(cluster, node, gpu)"
_OWN_GPU = f'unless on {_OF_GPU} opsk_gpu_up{{instance!=""}}'


def _rename_labels(expr: str) -> str:
    """Give a series of dcgm-exporter our labels ``gpu`` and ``node``; the host's label was renamed in May 2026."""
    for ours, theirs in (("gpu", "UUID"), ("node", "Hostname"), ("node", "hostname")):
        expr = f'label_replace({expr}, "{ours}", "$1", "{theirs}", "(.+)")'
    return expr


def _dcgm(value: Value) -> Rule:
    """Return the rule of one value: whole GPUs only, and each once though its line is repeated for every job."""
    read = [f"({name}{{{_WHOLE}}} < {value.below})" for name in value.old]
    scale = "" if value.factor == 1 else f" * {value.factor:g}"
    if value.factor == MIB:
        scale = f" * {MIB}"
    parts = [f"{name}{scale}" for name in read]
    if value.new:
        parts.append(f"{value.new}{{{_WHOLE}}} < {float(value.below) * value.factor:g}")
    return Rule(
        record=value.ours,
        expr=f"max by {_OF_GPU} ({_rename_labels('(' + ' or '.join(parts) + ')')}) {_OWN_GPU}",
        labels=value.labels,
    )


def xid_class_codes() -> dict[str, tuple[int, ...]]:
    """Return the XIDs of each class, as our catalogue has them."""
    found: dict[str, list[int]] = {}
    for code in range(1, 200):
        entry = xid(code)
        if entry.class_ is not XidClass.UNKNOWN:
            found.setdefault(entry.class_.value, []).append(code)
    return {name: tuple(codes) for name, codes in sorted(found.items())}


def _add_class(expr: str) -> str:
    """Give an XID its class."""
    expr = f'label_replace({expr}, "class", "unknown", "xid", ".+")'
    for name, codes in xid_class_codes().items():
        expr = f'label_replace({expr}, "class", "{name}", "xid", "{"|".join(map(str, codes))}")'
    return expr


def dcgm_rules() -> list[Rule]:
    """Return the rules for dcgm-exporter."""
    rules = [_dcgm(value) for value in DCGM]
    job = f'label_replace({_ANY_LINE},hpc_job!="",{_WHOLE}}}, "job", "$1", "hpc_job", "(.+)")'
    rules.append(
        Rule(
            record="opsk_job_gpu",
            expr=f"(max by (cluster, node, gpu, job) ({_rename_labels(job)}) * 0 + 1) "
            f'unless on {_OF_GPU} opsk_gpu_up{{instance!=""}}',
        )
    )
    facts = _rename_labels(f"{_ANY_LINE},{_WHOLE}}}")
    for ours, theirs in (("pci", "pci_bus_id"), ("model", "modelName"), ("minor", "device")):
        pattern = "nvidia([0-9]+)" if theirs == "device" else "(.+)"
        facts = f'label_replace({facts}, "{ours}", "$1", "{theirs}", "{pattern}")'
    index = f'label_replace({facts}, "index", "$1", "nvml_index", "(.+)")'
    # Their label gpu, the index, is overwritten by the UUID: it is kept first.
    index = index.replace(
        f"{_ANY_LINE},{_WHOLE}}}", f'label_replace({_ANY_LINE},{_WHOLE}}}, "nvml_index", "$1", "gpu", "(.+)")'
    )
    rules.append(
        Rule(
            record="opsk_gpu_info",
            expr=f"(max by (cluster, node, gpu, index, minor, pci, model) ({index}) * 0 + 1) {_OWN_GPU}",
        )
    )
    xids = _rename_labels('DCGM_EXP_XID_ERRORS_TOTAL{xid!=""}')
    rules.append(
        Rule(
            record="opsk_gpu_xid_errors_total",
            expr=f"max by (cluster, node, gpu, xid, class) ({_add_class(xids)}) {_OWN_GPU}",
        )
    )
    seen = _rename_labels('(DCGM_EXP_XID_ERRORS_COUNT{xid!=""} > 0)')
    rules.append(
        Rule(
            record="opsk_gpu_xid_last_seen_timestamp_seconds",
            expr=f"timestamp(max by (cluster, node, gpu, xid, class) ({_add_class(seen)})) {_OWN_GPU}",
        )
    )
    mig = f'label_replace({_rename_labels(_MIG_LINE)}, "parent", "$1", "UUID", "(.+)")'
    mig = f'label_join({mig}, "gpu", "/", "UUID", "GPU_I_ID")'
    rules.append(
        Rule(
            record="opsk_gpu_mig_graphics_active_ratio",
            expr=f"max by (cluster, node, gpu, parent) ({mig} < {RATIO}) {_OWN_GPU}",
        )
    )
    return rules
