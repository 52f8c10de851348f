"""Learns a site's efficiencies from its measured jobs and from measurements of its nodes."""
