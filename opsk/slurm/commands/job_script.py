"""Runs ``opsk check`` on the script of a job, in a separate process, since script readers are in a layer above.

A script names files, so where the caller is root that process runs as the user whose job it is.
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
from opsk.process_folder import ProcessFolder
from opsk.slurm.commands.current_job import read_batch_script
from opsk.slurm.records import JobRecord
from opsk.units import MIB

_SCRIPT_S = 3.0
_READING_S = 6.0
_MAX_ANSWER_BYTES = 8 * MIB
_FOR_OTHERS = ("PATH", "LANG", "LC_ALL", "OPSK_CONFIG", "SLURM_CONF")
"""What of root's environment a process that became a user gets: its owner can read it."""


def check_job(job: JobRecord, *, deadline_s: float | None = None) -> Mapping[str, Any] | None:
    """Return the result of ``opsk check`` on a job's script; ``None`` where the caller cannot read it.

    Parameters
    ----------
    deadline_s
        For Slurm and for ``opsk check``, each; the default suits an interactive user.
    """
    try:
        script = read_batch_script(job.id, os.environ, deadline_s=deadline_s or _SCRIPT_S)
        owner = pwd.getpwnam(job.user)
        is_other = os.geteuid() == 0 and owner.pw_uid != 0
        return check_script(
            script, max(job.node_count, len(job.nodes), 1), folder=job.work_dir, owner=owner if is_other else None,
            deadline_s=deadline_s,
        )  # fmt: skip
    except (OpskError, OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def check_script(
    script: bytes,
    nodes: int,
    *,
    folder: str | None = None,
    owner: pwd.struct_passwd | None = None,
    deadline_s: float | None = None,
) -> Mapping[str, Any]:
    """Run ``opsk check`` on a script in a separate process, since script readers are in a layer above.

    Parameters
    ----------
    folder
        Folder of relative file names in it; ignored where there is no such folder.
    owner
        The user that the process runs as, so that it opens no file that the script's owner may not read.
    deadline_s
        Deadline of the process; the default suits an interactive user.

    Raises
    ------
    InputError, OSError, ValueError, subprocess.SubprocessError
        It could not be read, or gave no answer.
    """
    options: dict[str, Any] = {}
    if owner is not None:
        groups = os.getgrouplist(owner.pw_name, owner.pw_gid)
        variables = {name: os.environ[name] for name in _FOR_OTHERS if name in os.environ}
        options = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": groups, "env": variables}
    with ProcessFolder("opsk-script") as temporary, tempfile.TemporaryFile() as answer:
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
            **options,
        )  # fmt: skip
        answer.seek(0)
        # The owner may have made it print anything, and any amount.
        output = answer.read(_MAX_ANSWER_BYTES + 1)
    if len(output) > _MAX_ANSWER_BYTES:
        raise InputError("opsk check answered more than it ever does")
    try:
        document = json.loads(output)
    except RecursionError as error:
        raise InputError("opsk check gave no document") from error
    if not isinstance(document, dict):
        raise InputError("opsk check gave no document")
    return document
