"""Which plan is the fastest of all that are legal, and which others are worth knowing?"""
