"""What happens inside a training step: every operation observed, executed again, written down.

It may import the files beside this folder.
"""
