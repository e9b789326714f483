"""Builds magpy's two extension modules.

`magpy._interp` deals with the interpreter and does not link to torch: it builds and is tested on every supported CPython in
a minute.  `magpy._tensor` holds the tensor checks and is built only where torch can be imported.  Called by pip
(`pip install --no-build-isolation -e .`); metadata lives in pyproject.toml.
"""

from glob import glob

from setuptools import Extension, setup

CXX_FLAGS = ["-std=c++17", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]

interp = Extension(
    "magpy._interp",
    sources=sorted(glob("csrc/interp/*.cpp")),
    depends=sorted(glob("csrc/interp/*.h")),
    include_dirs=["csrc/interp"],
    language="c++",
    extra_compile_args=CXX_FLAGS,
)

try:
    from torch.utils import cpp_extension
except ImportError:
    setup(ext_modules=[interp])
else:
    tensor = cpp_extension.CppExtension(
        "magpy._tensor",
        sources=sorted(glob("csrc/tensor/*.cpp")),
        depends=sorted(glob("csrc/tensor/*.h")),
        extra_compile_args=["-O2", "-Wall", "-fvisibility=hidden"],
    )
    setup(
        ext_modules=[interp, tensor],
        cmdclass={"build_ext": cpp_extension.BuildExtension.with_options(use_ninja=False)},
    )
