"""How much memory, time and energy does a plan take? One vectorised model, a table of plans in, a table out."""
