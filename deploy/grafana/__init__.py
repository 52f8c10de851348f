"""Makes the dashboards from ``dashboards``: ``python -m deploy.grafana.generate``."""
