"""Names and parses the metrics that the exporters, the screens and the diagnosis share."""
