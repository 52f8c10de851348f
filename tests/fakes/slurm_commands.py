"""Stands for squeue, sinfo and scontrol: prints the tables of one cluster in whatever format it is asked for.

It is run as ``python slurm_commands.py NAME TABLES ARGUMENTS...``, hundreds of times: json and pathlib, which take
longer to load than all else, are not used.
"""

import marshal
import sys

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}


def main() -> None:
    name, path, *arguments = sys.argv[1:]
    with open(path, "rb") as file:  # noqa: PTH123
        told = marshal.load(file)
    if "--version" in arguments:
        print(told["version"])
    elif name == "scontrol":
        sys.stdout.write(told["scontrol"])
    elif name == "sinfo":
        table(told["sinfo"], arguments[-1])
    else:
        table(squeue(told["squeue"], arguments), arguments[-1])


def squeue(rows: list, arguments: list) -> list:
    asked = [argument.partition("=")[2] for argument in arguments if argument.startswith("--jobs=")]
    if asked:
        number, _, task = asked[0].partition("_")
        rows = [row for row in rows if number in (row["JobID"], row["ArrayJobID"], row["HetJobID"])]
        rows = [row for row in rows if not task or row["JobArrayID"] == asked[0]]
        if not rows:
            sys.exit("slurm_load_jobs error: Invalid job id specified")
    return rows if "--states=all" in arguments else [row for row in rows if row["State"] not in ENDED]


def table(rows: list, wanted: str) -> None:
    for row in rows:
        line = ""
        for field in wanted.split(","):
            column, _, suffix = field.partition(":")
            line += row[column] + suffix
        print(line)


main()
