"""Which plan does a job's own script state, where its record in Slurm carries none? ``opsk check`` reads it."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from opsk.errors import InputError, OpskError
from opsk.own_folder import OwnFolder
from opsk.slurm.own_job import batch_script, own_job
from opsk.slurm.records import JobRecord
from opsk.workload.plan import Plan

_SCRIPT_S = 3.0
_READING_S = 6.0
_MOST_ANSWER_BYTES = 8 << 20
_FOR_OTHERS = ("PATH", "LANG", "LC_ALL", "OPSK_CONFIG", "SLURM_CONF")
"""What of root's environment a process that became a user gets: its owner can read it."""


def plan_of_script(job: JobRecord) -> Plan | None:
    """Return the plan that the script of this process's own job states; ``None`` where nobody can tell."""
    if own_job(os.environ) != str(job.id):
        return None
    try:
        script = batch_script(job.id, os.environ, deadline_s=_SCRIPT_S)
        return plan_of_check(checked_script(script, max(job.node_count, len(job.nodes), 1)), max(job.gpus, 1))
    except (OpskError, OSError, subprocess.SubprocessError, ValueError):
        return None


def plan_of_check(document: Mapping[str, Any], gpus: int) -> Plan | None:
    """Return the plan in the answer of ``opsk check``; ``None`` where it cannot tell how the model is split."""
    stated = document["workload"]["plan"]
    assumed = {item["field"]: item["value"] for item in document["assumed"]}
    sizes = {axis: stated.get(axis) or assumed.get(f"plan.{axis}") for axis in ("tp", "pp", "cp", "ep", "dp")}
    is_known = document["workload"]["framework"] is not None or stated.get("tp") is not None
    if not is_known or None in (sizes["tp"], sizes["pp"]):
        return None
    tp, pp, cp, ep = (int(sizes[axis] or 1) for axis in ("tp", "pp", "cp", "ep"))
    dp = int(sizes["dp"] or max(gpus // (tp * pp * cp), 1))
    try:
        return Plan(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp, global_batch=dp * 4 * pp)
    except (OpskError, ValueError) as error:
        raise InputError("the script's plan contradicts itself") from error


def checked_script(
    script: bytes, nodes: int, *, folder: str | None = None, owner: pwd.struct_passwd | None = None
) -> Mapping[str, Any]:
    """Let ``opsk check`` read a script; a process of its own, since readers of scripts lie above this command.

    Parameters
    ----------
    folder
        Where names of files in it start from; left out where there is no such folder.
    owner
        Who that process becomes, so that it opens no file that the script's owner may not read.

    Raises
    ------
    InputError, OSError, ValueError, subprocess.SubprocessError
        It could not be read, or gave no answer.
    """
    person: dict[str, Any] = {}
    if owner is not None:
        groups = os.getgrouplist(owner.pw_name, owner.pw_gid)
        kept = {name: os.environ[name] for name in _FOR_OTHERS if name in os.environ}
        person = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": groups, "env": kept}
    with OwnFolder("opsk-script") as temporary, tempfile.TemporaryFile() as answer:
        path = temporary / "script"
        path.write_bytes(script)
        if owner is not None:
            # The folder stays ours, or its new owner could put a link in the script's place before that is his.
            os.chown(path, owner.pw_uid, owner.pw_gid)
            path.parent.chmod(0o711)
        subprocess.run(
            (sys.executable, "-P", "-m", "opsk", "check", "--json", "--nodes", str(nodes), str(path)),
            cwd=folder if folder and os.path.isdir(folder) else None,  # noqa: PTH112
            stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.DEVNULL, timeout=_READING_S, check=False,
            **person,
        )  # fmt: skip
        answer.seek(0)
        # Who it became may have had it say anything, and any amount.
        said = answer.read(_MOST_ANSWER_BYTES + 1)
    if len(said) > _MOST_ANSWER_BYTES:
        raise InputError("opsk check answered more than it ever does")
    try:
        document = json.loads(said)
    except RecursionError as error:
        raise InputError("opsk check gave no document") from error
    if not isinstance(document, dict):
        raise InputError("opsk check gave no document")
    return document
