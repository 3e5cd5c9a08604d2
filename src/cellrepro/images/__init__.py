"""Folders of images and masks: read, checked, made, fetched."""
