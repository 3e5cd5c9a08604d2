"""Grids: many specs from one file, planned, carried out on devices and machines, and watched.

It may import the rooms up to `explanation`; of these it uses `run`, `process` and `store`.
"""
