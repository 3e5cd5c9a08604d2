"""One spec carried out: planned, trained or segmented in child processes, stored, compared.

It may import the rooms up to `process`; no later one.
"""
