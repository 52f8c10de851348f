"""Groups HCAs into hosts and determines the role of each host."""
