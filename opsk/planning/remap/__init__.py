"""What can a job do after a part of the machine failed, and what does each way cost?"""
