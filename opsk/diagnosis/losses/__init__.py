"""Where does a running job lose time against its prediction?"""
