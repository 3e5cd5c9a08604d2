"""Work in a process of its own, with a profile's environment and perhaps another Cellpose."""
