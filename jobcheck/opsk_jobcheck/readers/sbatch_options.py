"""Which options does sbatch have, and which of them take a value?

The names of Slurm 22.05 to 26.05 together (``src/common/slurm_opt.c``); ``getopt_long`` also takes the start of a long
name when only one name starts so.
"""

from __future__ import annotations

from enum import Enum


class ArgumentKind(Enum):
    """Whether an option takes a value."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"
    """Only behind ``=``, or for a short option only without a blank."""


_NONE = """
consolidate-segments contiguous external get-user-env help hold ignore-pbs no-requeue overcommit oversubscribe parsable
quiet reboot share spread-job spread-segments stepmgr test-only usage use-min-nodes verbose version wait
"""
_OPTIONAL = "exclusive nice no-kill oom-kill-step propagate requeue resv-ports"
_REQUIRED = """
account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
container container-id context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
dependency distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power
prefer priority profile qos reservation resources runtime segment signal sockets-per-node switches tasks-per-node
thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_LONG = {
    **dict.fromkeys(_NONE.split(), ArgumentKind.NONE),
    **dict.fromkeys(_OPTIONAL.split(), ArgumentKind.OPTIONAL),
    **dict.fromkeys(_REQUIRED.split(), ArgumentKind.REQUIRED),
}
_SAME = {"tasks-per-node": "ntasks-per-node"}
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint", "S": "core-spec",
    "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error", "x": "exclude",
    "B": "extra-node-info", "G": "gpus", "h": "help", "H": "hold", "i": "input", "J": "job-name", "L": "licenses",
    "k": "no-kill", "F": "nodefile", "w": "nodelist", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit",
    "s": "oversubscribe", "p": "partition", "q": "qos", "Q": "quiet", "t": "time", "V": "version", "v": "verbose",
    "W": "wait",
}  # fmt: skip


def long_option(name: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a long option, or ``None`` when sbatch itself has none such."""
    if name not in _LONG:
        starts = [full for full in _LONG if full.startswith(name)] if name else []
        if len(starts) != 1:
            return None
        name = starts[0]
    return _SAME.get(name, name), _LONG[name]


def short_option(letter: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a one-letter option, or ``None`` when sbatch itself has none such."""
    name = _SHORT.get(letter)
    return (name, _LONG[name]) if name else None
