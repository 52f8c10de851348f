"""How much of its time does a job train, and what are spare nodes worth?"""
