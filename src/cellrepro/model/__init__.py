"""Cellpose itself: network, training, inference. The only room that imports it."""
