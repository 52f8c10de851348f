"""Speed and memory, measured as the command ``opsk`` runs: with one thread for linear algebra.

A new benchmark is a file whose ``measure`` returns what it found (`benchmarks.found`), with a short form; a row of
`benchmarks.catalogue`; and a row of `benchmarks.budgets` for each number that was asked for. `benchmarks.report` runs
it, and the page and tests/benchmarks take it from there.
"""

import os

from opsk.cli.main import LINEAR_ALGEBRA_THREADS

for name in LINEAR_ALGEBRA_THREADS:
    os.environ.setdefault(name, "1")
