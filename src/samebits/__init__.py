"""The same bits from PyTorch: seeds, checks, differences, and arithmetic that every machine shares.

The names in ``__init__.pyi`` are loaded on first use, so that ``import samebits`` is quick and does
not import PyTorch. So are the files of this folder; what lies in its subfolders is private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
