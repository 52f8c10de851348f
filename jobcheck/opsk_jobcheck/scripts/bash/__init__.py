"""What does a shell script make of its variables and commands, as far as that is certain? Nothing is ever executed."""
