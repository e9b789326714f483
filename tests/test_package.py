"""What was built and installed can be imported."""

import importlib
import pathlib
import subprocess
import sys


def test_interp_extension_imports_without_torch_symbols():
    assert importlib.import_module("magpy._interp").__name__ == "magpy._interp"


def test_the_table_of_leaves_needs_no_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from magpy.models import callables; callables.classify(len)"
    )
    root = pathlib.Path(__file__).parents[1]
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, cwd=root)
