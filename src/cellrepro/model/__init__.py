"""Cellpose itself: networks, the training loop, inference and its stages, portable forms.

The only room that imports Cellpose; it may import `images`, `arithmetic` and the rooms above them.
"""
