"""Which failures of hardware do observations tell of, and what is to be done about each?"""
