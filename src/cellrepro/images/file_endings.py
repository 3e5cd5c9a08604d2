"""The endings of image files that the lab reads, and the format that each stands for."""

FORMATS = {".tif": "TIFF", ".tiff": "TIFF", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The format by the ending of a file's name, in lower case."""

SEG_ENDING = "_seg.npy"
"""What follows the name of an image in that of Cellpose's own file about it."""

OTHER_ENDINGS = ", ".join(ending for ending in FORMATS if ending != ".tif")
"""All but the usual one, as messages list them."""
