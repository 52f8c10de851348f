"""How does each part of the advice read? Lines with a label, each with how much it matters."""
