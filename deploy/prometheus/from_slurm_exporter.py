"""Defines the rules that map series of exporters of Slurm's queue and nodes to those of opsk.

Sources: metrics pages of SckyzO's and rivosinc's exporters, Slurm's own metrics plugin (25.11, 26.05), vpenso's 0.20.
"""

from __future__ import annotations

from deploy.prometheus.rule import Rule

JOB_STATES = ("pending", "running", "suspended", "completing", "configuring")
NODE_STATES = {
    "allocated": ("alloc", "alloc"),
    "mixed": ("mix", "mixed"),
    "idle": ("idle", "idle"),
    "down": ("down", "down"),
    "draining": ("", "draining"),
    "drained": ("drain", "drained"),
    "maintenance": ("maint", "maint"),
    "reserved": ("resv", "resv"),
    "planned": ("planned", "planned"),
    "failing": ("fail", "fail"),
}
"""Our word, that of SckyzO's (and vpenso's) exporter, and that of Slurm's own metrics."""
_LONG_STATES = {
    "allocated": "(?i:alloc|allocated)",
    "mixed": "(?i:mix|mixed)",
    "idle": "(?i:idle)",
    "down": "(?i:down)",
    "draining": "(?i:drng|draining)",
    "drained": "(?i:drain|drained)",
    "maintenance": "(?i:maint|maintenance)",
    "reserved": "(?i:resv|reserved)",
    "planned": "(?i:planned)",
    "failing": "(?i:fail|failing)",
}
_IN = "by (cluster, partition)"


def slurm_rules() -> list[Rule]:
    """Return the rules for exporters of Slurm's queue and nodes.

    Where two exporters have one name for the same thing (``slurm_partition_jobs_pending``), one rule serves both.
    """
    own = 'unless on (cluster) opsk_slurm_jobs{instance!=""}'
    rules = []
    for state in JOB_STATES:
        others = [
            f"max {_IN} (slurm_partition_jobs_{state})",
            f'sum {_IN} (slurm_queue_{state}{{partition!=""}})',
            f'max {_IN} (slurm_partition_job_state_total{{state=~"(?i:{state})"}})',
            f'sum {_IN} (slurm_queue_{state}{{partition=""}})',
        ]
        rules.append(Rule(record="opsk_slurm_jobs", expr=f"({' or '.join(others)}) {own}", labels={"state": state}))
    own = 'unless on (cluster) opsk_slurm_nodes{instance!=""}'
    for state, (short, word) in NODE_STATES.items():
        others = [f"max {_IN} (slurm_partition_nodes_{word})"]
        if short:
            others.append(f'sum {_IN} (slurm_nodes_{short}{{partition!=""}})')
            others.append(
                f'sum {_IN} (slurm_nodes_{short}{{partition=""}} unless on (cluster) slurm_partition_nodes_{word})'
            )
        others.append(f'sum {_IN} (slurm_node_count_per_state{{state=~"{_LONG_STATES[state]}"}})')
        rules.append(Rule(record="opsk_slurm_nodes", expr=f"({' or '.join(others)}) {own}", labels={"state": state}))
    own = 'unless on (cluster) opsk_slurm_gpus{instance!=""}'
    whole = 'unless on (cluster) {__name__=~"slurm_partition_gpus|slurm_partition_gpus_allocated"}'
    native_idle = f"max {_IN} (slurm_partition_gpus) - max {_IN} (slurm_partition_jobs_gpus_alloc)"
    gpus = {
        "allocated": (
            f"max {_IN} (slurm_partition_jobs_gpus_alloc) or max {_IN} (slurm_partition_gpus_allocated) "
            f"or sum {_IN} (slurm_gpus_alloc {whole})"
        ),
        "idle": (f"({native_idle}) or max {_IN} (slurm_partition_gpus_idle) or sum {_IN} (slurm_gpus_idle {whole})"),
    }
    rules += [
        Rule(record="opsk_slurm_gpus", expr=f"({expr}) {own}", labels={"state": state}) for state, expr in gpus.items()
    ]
    return rules
