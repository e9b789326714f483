"""What guards ask for, and what a call differs in, by the user's own names."""

import collections
import re

import numpy as np
import pytest
import torch
from torch import nn

import magpy
from magpy import _interp, _tensor
from magpy.guards import words
from magpy.guards.names import Names, Program

X = torch.arange(6.0).reshape(2, 3)
SCALE = 2.0
MASK = torch.ones(3)


class Config:
    def __init__(self):
        self.scale = 3.0
        self.names = ["a", "b"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.cfg = Config()

    def forward(self, x, k=2, *, extra=None):
        for layer in self.layers:
            x = torch.relu(layer(x))
        x = x * self.cfg.scale * SCALE * MASK * k * len(self.cfg.names)
        return x if extra is None else x + extra["bias"] + extra["more"][0]


GLOBAL_NET = Net()


def explained(f, *args, **kwargs):
    explanation = magpy.explain(f, *args, **kwargs)
    assert explanation.captured, explanation.reason
    return explanation


def failed(f, program, args, kwargs=None):
    """The words for the check that fails first."""
    registers = 100
    guard = _interp.Guard(program.npos, program.kwnames, registers, *program[2:])
    failure = guard.explain(args, kwargs)
    assert failure is not None
    return words.difference(Names(f, program), program, failure)


# ---------------------------------------------------------------- what explain prints


def test_the_guards_of_a_module_are_told_by_its_own_paths():
    extra = {"bias": torch.ones(3), "more": [1.5]}
    text = explained(Net(), X, 7, extra=extra).guard_summary
    lines = [line.strip() for line in text.splitlines()]
    assert "x: class, dtype, device, shape, strides, requires_grad" in lines
    assert "k is 7" in lines
    assert "extra is a dict" in lines
    assert "extra['more'][0] is 1.5" in lines
    assert "self.cfg.scale is 3.0" in lines
    assert "len(self.cfg.names) is 2" in lines
    assert "global SCALE is 2.0" in lines
    assert "global MASK: class, dtype, device, shape, strides, requires_grad" in lines
    of_self = (
        "6 parameters and buffers of self: class, dtype, device, shape, strides, requires_grad"
    )
    assert of_self in lines
    assert "self.layers holds '0', '1', '2'" in lines
    assert any("Net.forward" in line and line.endswith("unchanged") for line in lines)


def test_what_is_never_interesting_takes_few_lines():
    net = nn.Sequential(*(Net() for _ in range(6)))
    explanation = explained(net, X)
    assert len(explanation.guards) > 50
    lines = [line.strip() for line in explanation.guard_summary.splitlines()]
    assert len(lines) < 40
    assert "scale of 6 objects is 3.0" in lines
    assert "6 objects hold 'layers'" not in lines
    assert "6 objects hold '0', '1', '2'" in lines


@pytest.mark.parametrize("index", [0, 1])
def test_no_address_and_no_word_of_magpys_own_is_printed(index):
    def scale(x, config):
        return x * config.scale * (x.device == torch.device("cpu"))

    f, args = [(Net(), (X,)), (scale, (X, Config()))][index]
    text = explained(f, *args).guard_summary
    assert not re.search(r"0x[0-9a-f]{5,}", text)
    for word in ("lambda", "<locals>", "register", "Conditions", "object>", "_a0", "_k0"):
        assert word not in text


def test_the_printed_explanation_has_the_summary():
    explanation = explained(Net(), X)
    assert "self.cfg.scale is 3.0" in str(explanation)
    assert not any(re.search(r"0x[0-9a-f]{8,}", line) for line in str(explanation).splitlines())
    assert "self.cfg.scale: is 3.0" in explanation.guards


def test_closure_variables_and_arguments_of_any_number_are_named():
    factor = [1.5, 2.5]

    def f(x, *rest):
        return x * factor[0] * rest[1] * factor[1]

    text = explained(f, X, 3, 4).guard_summary
    assert "rest[0] is 3" in text
    assert "rest[1] is 4" in text
    assert "factor[0] is 1.5" in text
    assert "factor[1] is 2.5" in text


def test_parameters_of_a_global_are_summarised():
    text = explained(lambda x: GLOBAL_NET(x), X).guard_summary
    assert "6 parameters and buffers of global GLOBAL_NET: class, dtype" in text


def test_conditions_on_sizes_are_told_by_the_arguments():
    def f(x):
        for row in list(range(x.shape[0])):
            x = x + row
        return x

    c = magpy.compile(f, backend="eager", dynamic=True)
    c(X)
    (entry,) = c._magpy_entries
    text = words.summary(f, entry.tag.program)
    assert "x.shape[1] >= 1" in text
    assert "x.shape[0] == 2" in text


# ---------------------------------------------------------------- what a call differs in


def program_of(*checks, npos=1, kwnames=(), **anchors):
    return Program(npos, kwnames, list(checks), anchors)


def f(x, k=2):
    return x * k


@pytest.mark.parametrize(
    ("checks", "value", "expected"),
    [
        ([("leaf", 0, 3)], 4, "x was 3, is 4"),
        ([("leaf", 0, "a is b")], "c is d", "x was 'a is b', is 'c is d'"),
        ([("type", 0, dict)], [], "the class of x was dict, is list"),
        ([("type", 0, list), ("len", 0, 2)], [1], "len(x) was 2, is 1"),
        ([("item", 1, 0, 1), ("leaf", 1, 5)], [0, 6], "x[1] was 5, is 6"),
        ([("dict_get", 1, 0, "a"), ("leaf", 1, 5)], {"a": 6}, "x['a'] was 5, is 6"),
        ([("dict_get", 1, 0, "a")], {}, "x['a'] is missing"),
        ([("dict_absent", 0, "a")], {"a": 1}, "x['a'] was missing, is there"),
        ([("dict_keys", 0, ("a",))], {"b": 1}, "the keys of x changed"),
        ([("deque", 1, 0, 1), ("leaf", 1, 2)], collections.deque([3]), "x[0] was 2, is 3"),
    ],
)
def test_an_argument_that_differs_is_named(checks, value, expected):
    assert str(failed(f, program_of(*checks), (value,))) == expected


def test_an_attribute_of_an_argument_is_named():
    config = Config()
    program = program_of(("inst_dict", 1, 0), ("dict_get", 2, 1, "scale"), ("leaf", 2, 2.0))
    assert str(failed(f, program, (config,))) == "x.scale was 2.0, is 3.0"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (torch.zeros(2, 5), "x.shape[1] was 3, is 5"),
        (torch.zeros(3), "x.shape was [2, 3], is [3]"),
        (torch.zeros(2, 3).double(), "x.dtype was Float, is Double"),
        (torch.zeros(2, 3, requires_grad=True), "x.requires_grad was False, is True"),
        (torch.zeros(3, 2).T, "x.strides was [3, 1], is [1, 2]"),
        (nn.Parameter(torch.zeros(2, 3)), "the class of x was Tensor, is Parameter"),
    ],
)
def test_what_of_a_tensor_differs_is_named(now, expected):
    program = program_of(("tensor", 0, _tensor.TensorMeta(torch.zeros(2, 3))))
    assert str(failed(f, program, (now,))) == expected


def test_attributes_of_modules_are_named_as_the_program_reads_them():
    net = Net()
    layers, config = net.layers, net.cfg
    linear = layers[1]
    program = program_of(
        inst_dicts=[
            (net, vars(net)),
            (layers, vars(layers)),
            (linear, vars(linear)),
            (config, vars(config)),
        ],
        dicts=[
            (vars(net), [("_modules", net._modules, "is"), ("cfg", config, "is")]),
            (net._modules, [("layers", layers, "is")]),
            (vars(layers), [("_modules", layers._modules, "is")]),
            (layers._modules, [("1", linear, "is")]),
            (vars(linear), [("_parameters", linear._parameters, "is")]),
            (linear._parameters, [("weight", linear.weight, "is")]),
            (vars(config), [("scale", 3.0, "leaf"), ("names", config.names, "is")]),
        ],
        lists=[(config.names, ("a", "b"))],
    )
    names = Names(net, program)
    assert names.of(linear.weight) == "self.layers[1].weight"
    config.scale = 4.0
    assert str(failed(net, program, (X,))) == "self.cfg.scale was 3.0, is 4.0"
    config.scale = 3.0
    config.names[1] = "c"
    assert str(failed(net, program, (X,))) == "self.cfg.names[1] was 'b', is 'c'"
    config.names.append("d")
    assert str(failed(net, program, (X,))) == "len(self.cfg.names) was 2, is 3"
    config.names[:] = ["a", "b"]
    linear.weight = nn.Parameter(torch.zeros(3, 3))
    assert str(failed(net, program, (X,))) == "self.layers[1].weight is another object"


def test_globals_are_named(monkeypatch):
    program = program_of(
        funcs=[(f, _interp.ABSENT, _interp.ABSENT, _interp.ABSENT)],
        dicts=[(globals(), [("SCALE", 2.0, "leaf"), ("MISSING", _interp.ABSENT, "is")])],
    )
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert str(failed(f, program, (X,))) == "global SCALE was 2.0, is 5.0"
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    monkeypatch.setitem(globals(), "MISSING", 1)
    assert str(failed(f, program, (X,))) == "global MISSING was missing, is 1"


def test_another_number_of_arguments_is_told():
    assert (
        str(failed(f, program_of(npos=2), (X,)))
        == "the call has 1 positional arguments instead of 2"
    )


def test_torchs_state_is_named():
    program = program_of(state=_tensor.TorchState())
    with torch.no_grad():
        assert str(failed(f, program, (X,))) == (
            "torch's grad mode (torch.no_grad, torch.enable_grad) changed"
        )


def test_a_check_of_pythons_is_told_without_its_own_name():
    program = program_of(("py", lambda v: False, (0,)))
    assert str(failed(f, program, (X,))) == "what x holds changed"


def test_how_an_array_lies_is_told():
    rows = np.zeros((8192, 2))
    text = explained(lambda x: x + float(rows[0, 1]), X).guard_summary
    assert "the dtype, shape or strides of rows" in text
    assert "contents" not in text
