"""What is inside one node: its GPUs, its NICs, and the paths between them, read from what the node says of itself."""
