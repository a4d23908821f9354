"""Importing TensorFlow and Keras in less time.

Half a second is Keras' for matplotlib, which it needs for galleries of images
alone; as much is the garbage collector's, which looks again and again at the
many thousand objects of an import, all of which stay. Later it leaves them out,
which is most of a second in a short run.
"""

import contextlib
import gc
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

# What Keras imports of it: `import matplotlib.pyplot`, and some names.
_PACKAGE = "matplotlib"
_MODULES = (_PACKAGE, f"{_PACKAGE}.pyplot")


class _Later(types.ModuleType):
    """Stands for a module until something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            # While the stand-ins are in place, names are only handed out.
            return _Later(f"{self.__name__}.{name}")
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Makes imports quicker; nothing that is imported can do less later."""
    if "tensorflow" in sys.modules:
        yield
        return
    collects = gc.isenabled()
    # What is garbage now would be left out, too, and so never go.
    gc.collect()
    gc.disable()
    stand_ins = {}
    if _PACKAGE not in sys.modules and importlib.util.find_spec(_PACKAGE):
        stand_ins = {name: _Later(name) for name in _MODULES}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
        gc.freeze()
        if collects:
            gc.enable()
