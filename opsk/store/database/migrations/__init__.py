"""In which steps did the tables come to be what they are?"""
