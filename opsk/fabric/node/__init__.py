"""Models one node: its GPUs, its NICs, and the paths between them, read from the output of the node's own tools."""
