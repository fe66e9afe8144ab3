"""The scripts of ``docs/figures`` as modules."""

import importlib
import sys
from types import ModuleType

from paths import ROOT


def figure_script(name: str) -> ModuleType:
    """A script, which imports its neighbours as if it were run."""
    folder = str(ROOT / "docs" / "figures")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
