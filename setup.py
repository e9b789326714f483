"""Builds magpy's two extension modules.

`magpy._interp` deals with the interpreter and does not link to torch: it builds and is tested on
every supported CPython in a minute. `magpy._tensor` holds the tensor checks and is built only where
torch can be imported. Called by pip (`pip install --no-build-isolation -e .`) and `make build`;
metadata lives in pyproject.toml.
"""

import os
from glob import glob
from typing import Any

from setuptools import Extension, setup

CXX_FLAGS = [
    "-std=c++17",
    "-O2",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",  # PyTypeObject and PyMethodDef tables
    "-Wno-cast-function-type",  # PyMethodDef's calling conventions
]

INTERP_HEADERS = sorted(glob("csrc/interp/*.h"))
TENSOR_SOURCES = sorted(glob("csrc/tensor/*.cpp"))

interp = Extension(
    "magpy._interp",
    sources=sorted(glob("csrc/interp/*.cpp")),
    depends=INTERP_HEADERS,
    include_dirs=["csrc/interp"],
    language="c++",
    extra_compile_args=CXX_FLAGS,
)
extensions = [interp]
commands: dict[str, Any] = {}

try:
    from torch.utils import cpp_extension
except ImportError:
    pass
else:
    if TENSOR_SOURCES:
        extensions.append(
            cpp_extension.CppExtension(
                "magpy._tensor",
                sources=TENSOR_SOURCES,
                depends=sorted(glob("csrc/tensor/*.h")) + INTERP_HEADERS,
                include_dirs=["csrc/interp"],
                extra_compile_args=["-O2", "-Wall", "-fvisibility=hidden"],
            )
        )
    # Without ninja: one file fewer to install, and distutils rebuilds only what is out of date.
    commands["build_ext"] = cpp_extension.BuildExtension.with_options(use_ninja=False)

# `make install` installs what magpy needs; `make build` then builds the extensions, in place.
if os.environ.get("MAGPY_WITHOUT_EXTENSIONS"):
    extensions = []

setup(ext_modules=extensions, cmdclass=commands)
