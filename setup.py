"""Builds magpy's two extension modules.

`magpy._interp` deals with the interpreter and does not link to torch: it builds and is tested on
every supported CPython in a minute. `magpy._tensor` holds the tensor checks and is built only where
torch can be imported. Called by pip (`pip install --no-build-isolation -e .`) and `make build`;
metadata lives in pyproject.toml.

MAGPY_WERROR=1 makes a warning an error, as `make build` and .ci/run do: a user's compiler may have
warnings that ours does not have.  MAGPY_SANITIZE=address,undefined builds for scripts/sanitize.
"""

import os
import sysconfig
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
if os.environ.get("MAGPY_WERROR"):
    CXX_FLAGS.append("-Werror")
LINK_FLAGS = []
if sanitizers := os.environ.get("MAGPY_SANITIZE"):
    # What torch's objects say of their type is not ours to check.  After -O2: the last one counts.
    CXX_FLAGS += [f"-fsanitize={sanitizers}", "-fno-sanitize=vptr", "-fno-omit-frame-pointer"]
    CXX_FLAGS += ["-g1", "-O1"]
    LINK_FLAGS.append(f"-fsanitize={sanitizers}")


def system_headers(*folders: str) -> list[str]:
    """Flags for headers whose warnings are not ours."""
    return [flag for folder in folders for flag in ("-isystem", folder)]


PYTHON_HEADERS = system_headers(sysconfig.get_path("include"))

INTERP_HEADERS = sorted(glob("csrc/interp/*.h"))
TENSOR_SOURCES = sorted(glob("csrc/tensor/*.cpp"))

interp = Extension(
    "magpy._interp",
    sources=sorted(glob("csrc/interp/*.cpp")),
    depends=INTERP_HEADERS,
    include_dirs=["csrc/interp"],
    language="c++",
    extra_compile_args=CXX_FLAGS + PYTHON_HEADERS,
    extra_link_args=LINK_FLAGS,
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
                # The standard is the one that this torch's headers need, which CppExtension knows.
                extra_compile_args=[flag for flag in CXX_FLAGS if flag != "-std=c++17"]
                + PYTHON_HEADERS
                + system_headers(*cpp_extension.include_paths()),
                extra_link_args=LINK_FLAGS,
            )
        )
    # Without ninja: one file fewer to install, and distutils rebuilds only what is out of date.
    commands["build_ext"] = cpp_extension.BuildExtension.with_options(use_ninja=False)

# `make install` installs what magpy needs; `make build` then builds the extensions, in place.
if os.environ.get("MAGPY_WITHOUT_EXTENSIONS"):
    extensions = []

setup(ext_modules=extensions, cmdclass=commands)
