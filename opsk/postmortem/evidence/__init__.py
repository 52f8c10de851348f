"""Which evidence is there of a job that failed? Kept on its nodes when it is fresh, gathered from all places later.

Nothing is imported here: collectors run beside jobs on every node, and need none of what reads a report's evidence.
"""
