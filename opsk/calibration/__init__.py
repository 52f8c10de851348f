"""How far is the cost model from measured runs, and which parameters bring it closest?"""
