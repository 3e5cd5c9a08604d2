"""Work in child processes: started with a profile's environment, perhaps with another Cellpose.

It may import the rooms up to `comparison`; `run` and all later rooms start their work here.
"""
