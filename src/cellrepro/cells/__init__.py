"""Cellpose: images, its network, training and segmentation."""
