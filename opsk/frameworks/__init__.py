"""How is a plan written down for the framework that runs it, and which plans can it run at all?"""
