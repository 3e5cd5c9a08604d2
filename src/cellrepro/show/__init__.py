"""How does it look? Tables, figures, the explorer, pages and the report; built on all other rooms.

The names in ``__init__.pyi`` are what notebooks show; each is loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
