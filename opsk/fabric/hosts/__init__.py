"""Groups HCAs into hosts and tells what each host is for."""
