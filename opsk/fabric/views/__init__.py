"""What is there to see of a fabric: rail × node matrix and tree of tiers, as values that any medium can draw?"""
