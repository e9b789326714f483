"""Code that TorchInductor made, without TorchInductor.

What TorchInductor makes of a graph is a Python module that calls kernels and torch's operations; it
begins with imports of the compiler, which take seconds, for a few names that it needs while it is
made.  Owns taking that module and its kernels apart where they were made, and putting them together
where there is no compiler: in a process that loads entries (magpy/runtime/saved.py).  A module that
uses more of the compiler than is known here is left alone, and so are graphs that
magpy/backends/direct_calls.py would not call directly.

Sources: torch/_inductor/codegen/wrapper.py, `write_header`; torch/_inductor/codecache.py,
`CppPythonBindingsCodeCache`; torch/_inductor/select_algorithm.py, `ExternKernelChoice`.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

#: Packages whose operations are there as soon as torch is: all of it is C++, or made by its import.
_OPERATIONS = frozenset(["aten", "mkl", "mkldnn", "onednn", "quantized", "_quantized"])
#: Functions of the module that run the compiler to measure it.
_MEASURING = frozenset(["get_args", "benchmark_compiled_module"])
#: In the header: packages of operations by other names, which nothing may use.
_HEADER = frozenset(["torch.ops.inductor", "torch.ops.inductor._alloc_from_pool"])
_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


class CodeAlone(NamedTuple):
    """The module of one graph.

    Attributes:
        code: its code, marshalled.
        kernels: the shared library of each kernel, by the name that the module gives it.
        functions: the functions of torch's that it calls as `extern_kernels`.
    """

    code: bytes
    kernels: dict[str, bytes]
    functions: tuple[str, ...]


class _Unable(Exception):
    pass


def taken_apart(graph: Any) -> CodeAlone | None:
    """The code of a `CompiledFxGraph` that was made in this process; None if it needs more."""
    if graph is None:
        return None
    call = graph.current_callable
    space = getattr(getattr(call, "__func__", call), "__globals__", {})
    if graph.constants or graph.torchbind_constants or graph.inputs_to_check:
        return None
    try:
        tree = _Checks().visit(ast.parse(graph.source_code))
        parts = _Parts()
        tree.body = [s for s in tree.body if not parts.leaves_out(s)]
        parts.visit(tree)
        functions = tuple(sorted(parts.functions))
        if any(getattr(torch, f) is not getattr(space["extern_kernels"], f) for f in functions):
            return None
        kernels = {k: Path(space[k].__self__.__file__).read_bytes() for k in parts.kernels}
    except (_Unable, AttributeError, KeyError, OSError, SyntaxError):
        return None
    code = compile(tree, "<TorchInductor's code>", "exec", dont_inherit=True)
    return CodeAlone(marshal.dumps(code), kernels, functions)


class _Checks(ast.NodeTransformer):
    """What torch 2.14's compiler has a function for, its header has one in C for, too.

    `assert_tensor_metadata(t, size, stride, dtype, name)` looks at the form of what an operation of
    torch's has given, and at its dtype; that was compared in the process that made the code.
    """

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Call(
                func=ast.Name(id="assert_tensor_metadata"),
                args=[ast.Name(id=name), size, stride, _, *rest],
                keywords=[],
            ):
                called = ast.Name("assert_size_stride", ast.Load())
                check = ast.Call(called, [ast.Name(name, ast.Load()), size, stride, *rest], [])
                there = ast.Compare(ast.Name(name, ast.Load()), [ast.IsNot()], [ast.Constant(None)])
                both = ast.Expr(ast.BoolOp(ast.And(), [there, check]))
                return ast.fix_missing_locations(ast.copy_location(both, node))
        return node


class _Parts(ast.NodeVisitor):
    """What a module consists of; raises for what it takes from the compiler otherwise."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.functions: set[str] = set()
        #: Names of what is left out.
        self._gone = {"async_compile", "inductor_ops", "alloc_from_pool"}

    def leaves_out(self, statement: ast.stmt) -> bool:
        """Whether a statement of the module is about making it, or measuring it."""
        match statement:
            case ast.ImportFrom(module=str(module)) if module.startswith("torch._"):
                self._gone.update(a.asname or a.name for a in statement.names)
                self._gone.discard("extern_kernels")
                return True
            case ast.FunctionDef(name=name) if name in _MEASURING:
                self._gone.add(name)
                return True
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                return True
            case ast.Delete(targets=[ast.Name(id="async_compile")]):
                return True
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile")))):
                return ast.unparse(statement) == "async_compile.wait(globals())"
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                text = ast.unparse(value) if not isinstance(value, ast.Call) else ""
                if isinstance(value, ast.Call):
                    made_by = ast.unparse(value.func)
                    if made_by == "async_compile.cpp_pybinding":
                        self.kernels.append(name)
                    return made_by in ("async_compile.cpp_pybinding", "AsyncCompile")
                return text in _HEADER
        return False

    def visit_Import(self, node: ast.Import) -> None:
        if any(a.name.startswith("torch.") for a in node.names):
            raise _Unable

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if str(node.module).startswith("torch."):
            raise _Unable

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._gone:
            raise _Unable

    def visit_Attribute(self, node: ast.Attribute) -> None:
        match node:
            case ast.Attribute(value=ast.Name(id="extern_kernels"), attr=name):
                self.functions.add(name)
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="torch"), attr="ops"), attr=name
            ) if name not in _OPERATIONS:
                raise _Unable
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name.startswith("_"):
                if name != "_C":
                    raise _Unable
        self.generic_visit(node)


def put_together(alone: CodeAlone) -> Callable[[list[Any]], Any]:
    """What calls the graph with a list of inputs, which it empties.

    Raises:
        ImportError: a kernel cannot be loaded here.
    """
    space: dict[str, Any] = {
        "__name__": "magpy_loaded",
        "extern_kernels": types.SimpleNamespace(**{f: getattr(torch, f) for f in alone.functions}),
    }
    libraries: dict[bytes, Any] = {}
    for name, library in alone.kernels.items():
        if library not in libraries:
            libraries[library] = _kernel(library)
        space[name] = libraries[library]
    exec(marshal.loads(alone.code), space)
    call: Callable[[list[Any]], Any] = space["call"]
    return call


def _kernel(library: bytes) -> Any:
    """The function in a shared library, whose file is gone again when it is loaded."""
    # It finds what gives it the memory of a tensor as TorchInductor tells it.
    guards: Any = torch._C._dynamo.guards
    os.environ[_POINTER] = str(guards._torchinductor_pyobject_tensor_data_ptr)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        path = os.path.join(directory, "kernel.so")
        Path(path).write_bytes(library)
        spec = importlib.util.spec_from_file_location("magpy_loaded.kernel", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.kernel


__all__ = ["CodeAlone", "put_together", "taken_apart"]
