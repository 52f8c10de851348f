"""Why did a job die: what failed first, where, on what evidence, and what evidence is missing?"""
