"""Speed and memory, measured as the command ``opsk`` runs: with one thread for linear algebra."""

import os

from opsk.cli.main import LINEAR_ALGEBRA_THREADS

for name in LINEAR_ALGEBRA_THREADS:
    os.environ.setdefault(name, "1")
