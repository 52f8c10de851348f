"""How does a fabric look: in a terminal and as SVG?"""
