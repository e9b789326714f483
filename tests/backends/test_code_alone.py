"""TorchInductor's code without TorchInductor: what it gives, and which code is left alone."""

import subprocess
import sys
import types

import pytest
import torch

from magpy.backends import code_alone, direct_calls
from magpy.backends.inductor import Inductor, compile_graph


def taken_apart(model, *inputs):
    graph = torch.fx.symbolic_trace(model)
    graph = torch.fx.GraphModule(graph, graph.graph)
    with torch.no_grad(), direct_calls.seen() as seen:
        compiled = compile_graph(graph, list(inputs), Inductor().patches())
    return code_alone.taken_apart(direct_calls.graph_of(compiled, seen)), compiled


def f(x, w):
    y = torch.relu(x @ w) + x.sum()
    return (torch.conv2d(y[None, None], w[None, None]).softmax(-1),)


def test_it_gives_the_same_and_empties_its_list():
    x, w = torch.randn(8, 3), torch.randn(3, 3)
    alone, compiled = taken_apart(f, x, w)
    assert alone.kernels
    assert "mm" in alone.functions
    inputs = [x, w]
    (found,) = code_alone.put_together(alone)(inputs)
    assert torch.equal(found, compiled(x, w)[0])
    assert not inputs
    torch.testing.assert_close(found, f(x, w)[0])


def test_no_compiler_is_imported(tmp_path):
    alone, _ = taken_apart(f, torch.ones(8, 3), torch.ones(3, 3))
    torch.save([*alone], tmp_path / "alone")
    text = f"""
import sys
import torch
from magpy.backends import code_alone, direct_calls
alone = code_alone.CodeAlone(*torch.load({str(tmp_path / "alone")!r}))
call = direct_calls.directly(code_alone.put_together(alone))
(y,) = call(torch.ones(8, 3), torch.ones(3, 3, requires_grad=True))
assert torch.is_grad_enabled() and not y.requires_grad
assert not {{"torch._inductor", "torch._dynamo"}} & sys.modules.keys()
# TorchDynamo, which comes later, does not look into it.
@torch.compile(backend="eager")
def g(x, w):
    return call(x * 1, w)[0] * 2
with torch.no_grad():
    assert torch.equal(g(torch.ones(8, 3), torch.ones(3, 3)), y * 2)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SOURCE = """
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
from torch._inductor.codegen.memory_planning import _align as align
aten = torch.ops.aten
inductor_ops = torch.ops.inductor
async_compile = AsyncCompile()
{made}
async_compile.wait(globals())
del async_compile
def call(args):
    {used}
def benchmark_compiled_module(args):
    from torch._inductor.utils import print_performance
if __name__ == "__main__":
    from torch._inductor.wrapper_benchmark import compiled_module_main
"""
NOT_ALONE = [
    ("k = async_compile.triton('k', '')", "return k(args)"),
    ("k = async_compile.cpp('')", "return k(args)"),
    ("pass", "return align(args)"),
    ("pass", "return inductor_ops.seed(args)"),
    ("pass", "return torch.ops.inductor.seed(args)"),
    ("pass", "return torch.ops.mine.op(args)"),
    ("pass", "return torch._inductor.config"),
    ("pass", "return extern_kernels.own(args)"),
    ("import torch._inductor.runtime", "return args"),
    ("pass", "from torch._inductor.utils import f; return f(args)"),
    ("pass", "import torch._dynamo; return args"),
    ("k = async_compile.cpp_pybinding([], '')", "return k(args)"),  # it is not there
]


def graph(made, used, **other):
    space = {"extern_kernels": types.SimpleNamespace(own=len, mm=torch.mm)}
    call = types.FunctionType((lambda args: args).__code__, space)
    parts = {"constants": {}, "torchbind_constants": {}, "inputs_to_check": ()}
    source = SOURCE.format(made=made, used=used)
    return types.SimpleNamespace(current_callable=call, source_code=source, **(parts | other))


@pytest.mark.parametrize(("made", "used"), NOT_ALONE)
def test_what_needs_more_of_the_compiler_is_left_alone(made, used):
    assert code_alone.taken_apart(graph(made, used)) is None


@pytest.mark.parametrize("other", ["constants", "torchbind_constants", "inputs_to_check"])
def test_what_takes_more_than_inputs_is_left_alone(other):
    plain = "pass", "return extern_kernels.mm(*args), aten.add.Tensor(*args)"
    assert code_alone.taken_apart(graph(*plain)).functions == ("mm",)
    assert code_alone.taken_apart(graph(*plain, **{other: [1]})) is None
    assert code_alone.taken_apart(None) is None


def test_a_library_that_cannot_be_loaded_is_no_crash():
    alone = code_alone.taken_apart(graph("pass", "return args"))
    with pytest.raises(ImportError):
        code_alone.put_together(alone._replace(kernels={"k": b"no library"}))
