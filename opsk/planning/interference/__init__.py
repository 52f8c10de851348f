"""Who else is on the wire: which links does a job share, with whom, and how much slower does that make both?"""
