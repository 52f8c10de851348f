"""How does each framework spell a change of plan?"""
