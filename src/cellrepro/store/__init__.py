"""What was computed, as it lies on the disk: stores, runs, manifests, ledgers, checkpoints, locks.

It may import `digests`, `determinism` and `spec`, and knows nothing of Cellpose.
"""
