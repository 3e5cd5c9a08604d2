"""The reproducibility lab for Cellpose.

Is it the same; where does it differ; when did they diverge; does it matter; how is it pinned. The
names in ``__init__.pyi`` are loaded on first use, so that ``import cellrepro`` is quick and imports
neither PyTorch nor Cellpose.
"""

import sys

import lazy_loader

from cellrepro.version import __version__ as __version__

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        from cellrepro.extras import missing_module, needs

        module = missing_module(error)
        if module is None:
            raise
        raise needs([module], what=f"cellrepro.{name}") from error
    except AttributeError:
        # With the module, Python itself proposes the nearest name.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        ) from None
