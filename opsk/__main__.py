"""Runs the ``opsk`` command for ``python -m opsk``."""

from opsk.cli.main import main

if __name__ == "__main__":
    main()
