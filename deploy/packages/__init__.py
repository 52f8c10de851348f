"""How is a release made from a checkout: ``python -m deploy.packages.build`` (``make packages``, ``make release``)."""
