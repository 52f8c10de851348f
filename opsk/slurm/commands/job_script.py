"""Run ``opsk check`` on the script of a job, in a process of its own: readers of scripts are in a layer above.

A script names files, so where the caller is root that process becomes the user whose job it is.
"""

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
from opsk.slurm.commands.own_job import batch_script
from opsk.slurm.records import JobRecord
from opsk.units import MIB

_SCRIPT_S = 3.0
_READING_S = 6.0
_MOST_ANSWER_BYTES = 8 * MIB
_FOR_OTHERS = ("PATH", "LANG", "LC_ALL", "OPSK_CONFIG", "SLURM_CONF")
"""What of root's environment a process that became a user gets: its owner can read it."""


def checked_job(job: JobRecord, *, deadline_s: float | None = None) -> Mapping[str, Any] | None:
    """Return what ``opsk check`` says of a job's script; ``None`` where the caller cannot have it.

    Parameters
    ----------
    deadline_s
        For Slurm and for ``opsk check``, each; left out, what a person waits.
    """
    try:
        script = batch_script(job.id, os.environ, deadline_s=deadline_s or _SCRIPT_S)
        owner = pwd.getpwnam(job.user)
        is_other = os.geteuid() == 0 and owner.pw_uid != 0
        return checked_script(
            script, max(job.node_count, len(job.nodes), 1), folder=job.work_dir, owner=owner if is_other else None,
            deadline_s=deadline_s,
        )  # fmt: skip
    except (OpskError, OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def checked_script(
    script: bytes,
    nodes: int,
    *,
    folder: str | None = None,
    owner: pwd.struct_passwd | None = None,
    deadline_s: float | None = None,
) -> Mapping[str, Any]:
    """Let ``opsk check`` read a script; a process of its own, since readers of scripts lie above this command.

    Parameters
    ----------
    folder
        Where names of files in it start from; left out where there is no such folder.
    owner
        Who that process becomes, so that it opens no file that the script's owner may not read.
    deadline_s
        By when it must have answered; left out, what a person waits.

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
            stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.DEVNULL, timeout=deadline_s or _READING_S,
            check=False,
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
