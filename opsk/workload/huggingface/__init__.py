"""Which shape has the model that a HuggingFace ``config.json`` describes?"""
