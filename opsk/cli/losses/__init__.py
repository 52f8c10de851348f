"""The command ``opsk losses``: where does a running job lose time?"""
