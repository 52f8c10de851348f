"""How long does a collective take? By algorithm, on one level or several, in one network or another."""
