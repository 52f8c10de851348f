"""Where are the dashboards made? In ``dashboards``, by ``python -m deploy.grafana.generate``."""
