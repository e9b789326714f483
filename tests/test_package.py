"""What was built and installed can be imported."""

import importlib


def test_interp_extension_imports_without_torch_symbols():
    assert importlib.import_module("magpy._interp").__name__ == "magpy._interp"
