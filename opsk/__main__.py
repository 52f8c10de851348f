"""Lets ``python -m opsk`` stand in for the ``opsk`` command."""

from opsk.cli.main import main

if __name__ == "__main__":
    main()
