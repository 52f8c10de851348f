"""Models the cabling of a cluster: fabrics, rails, leaves, spines, HB domains, and the readers of dumps."""
