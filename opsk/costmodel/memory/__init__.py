"""How much memory does the fullest GPU need, term by term?"""
