"""Shows the cluster in the terminal: the screens of ``opsk top``, their data sources, and the recorder."""
