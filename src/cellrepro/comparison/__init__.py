"""Are two results the same, and how far apart where they are not: masks, weights, ledgers, runs.

Imports of the rooms digests, determinism, spec, store and images; knows nothing of Cellpose.
"""
