"""What can a GPU, a NIC, a node and a cluster do? Numbers come from ``catalog/*.toml``, each with its source."""
