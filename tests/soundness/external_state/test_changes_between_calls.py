"""Outside state that changes between two calls: no entry may be stale.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import collections
import dataclasses
import enum
import functools
import operator
import sys
import types
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from tests.soundness.worlds import attempt, case, check_all

CASES = []
x = torch.linspace(-1, 2, 4)


def before_and_after(f, *changes, args=(x,)):
    """Two calls, and two after each change."""
    yield f(*args)
    yield f(*args)
    for change in changes:
        change()
        yield f(*args)
        yield f(*args)


def script(text):
    """A module object made from source, so that its globals are its own."""
    module = types.ModuleType("scripted_world")
    module.torch = torch
    exec(text, module.__dict__)
    return module


class Bag:
    def __init__(self, **values):
        vars(self).update(values)


@case(CASES)
def deep_attribute_path(compile):
    root = Bag(left=Bag(values=[Bag(gain=2.0)]))
    f = compile(lambda t: t * root.left.values[0].gain)
    yield from before_and_after(
        f,
        lambda: setattr(root.left.values[0], "gain", 3.0),
        lambda: root.left.values.__setitem__(0, Bag(gain=4)),
        lambda: setattr(root, "left", Bag(values=(Bag(gain=-1.0),))),
    )


@case(CASES)
def attribute_moves_between_instance_class_and_base(compile):
    class Base:
        gain = 2.0

    class Middle(Base):
        pass

    class Leaf(Middle):
        pass

    leaf = Leaf()
    f = compile(lambda t: t * leaf.gain)
    yield from before_and_after(
        f,
        lambda: setattr(Base, "gain", 3.0),
        lambda: setattr(Middle, "gain", 4.0),
        lambda: setattr(leaf, "gain", 5.0),
        lambda: delattr(leaf, "gain"),
        lambda: delattr(Middle, "gain"),
    )


@case(CASES)
def class_of_an_instance_is_replaced(compile):
    class A:
        def gain(self):
            return 2.0

    class B:
        def gain(self):
            return 5.0

    a = A()
    f = compile(lambda t: t * a.gain())
    yield from before_and_after(f, lambda: setattr(a, "__class__", B))


@case(CASES)
def bases_are_replaced(compile):
    class Root:
        pass

    class A(Root):
        gain = 2.0

    class B(Root):
        gain = 5.0

    class C(A):
        pass

    c = C()
    f = compile(lambda t: t * c.gain)
    yield from before_and_after(f, lambda: setattr(C, "__bases__", (B,)))


@case(CASES)
def slots_and_descriptors(compile):
    class Slotted:
        __slots__ = ("gain",)

    class Constant:
        def __init__(self, value):
            self.value = value

        def __get__(self, obj, owner):
            return self.value

    class Holder:
        k = Constant(2.0)

    slotted, holder = Slotted(), Holder()
    slotted.gain = 1.5
    f = compile(lambda t: t * slotted.gain + holder.k)
    yield from before_and_after(
        f,
        lambda: setattr(slotted, "gain", 2.5),
        lambda: setattr(Holder.__dict__["k"], "value", 7.0),
        lambda: setattr(holder, "k", 9.0),
        lambda: setattr(Holder, "k", 11.0),
    )


@case(CASES)
def getattr_hook_appears_and_answers_change(compile):
    class Dynamic:
        table = {"gain": 2.0}

        def __getattr__(self, name):
            return self.table[name]

    d = Dynamic()
    f = compile(lambda t: t * d.gain)
    yield from before_and_after(
        f,
        lambda: Dynamic.table.update(gain=3.0),
        lambda: setattr(d, "gain", 4.0),
        lambda: setattr(Dynamic, "__getattribute__", lambda self, name: 6.0),
    )


@case(CASES)
def hasattr_and_default_of_getattr(compile):
    b = Bag()
    f = compile(lambda t: t * getattr(b, "gain", 2.0) + (1 if hasattr(b, "extra") else 0))
    yield from before_and_after(
        f,
        lambda: setattr(b, "extra", None),
        lambda: setattr(b, "gain", 3.0),
        lambda: delattr(b, "extra"),
    )


@case(CASES)
def global_is_rebound_deleted_and_shadows_a_builtin(compile):
    m = script("G = 2\ndef f(t): return t * G + max(1, 2)")
    f = compile(m.f)

    def delete():
        del m.G

    yield from before_and_after(
        f, lambda: setattr(m, "G", 3.5), lambda: setattr(m, "max", lambda *a: 100)
    )
    delete()
    yield attempt(f, x)
    m.G = 1
    del m.max
    yield f(x)


@case(CASES)
def builtin_itself_is_replaced(compile):
    import builtins

    m = script("def f(t): return t * sum([1, 2])")
    f = compile(m.f)
    yield f(x), f(x)
    original = builtins.sum
    builtins.sum = lambda values: 10
    try:
        seen = f(x), f(x)
    finally:
        builtins.sum = original
    yield seen
    yield f(x)


@case(CASES)
def module_attribute_and_import_inside(compile):
    helper = types.ModuleType("soundness_helper")
    helper.gain = 2.0
    sys.modules["soundness_helper"] = helper

    def f(t):
        import soundness_helper

        return t * soundness_helper.gain

    try:
        f = compile(f)
        seen = [f(x), f(x)]
        helper.gain = 3.0
        seen += [f(x), f(x)]
        other = types.ModuleType("soundness_helper")
        other.gain = 8.0
        sys.modules["soundness_helper"] = other
        seen += [f(x), f(x)]
    finally:
        del sys.modules["soundness_helper"]
    yield seen


@case(CASES)
def closure_cells_of_nested_functions(compile):
    gain, offset = 2.0, 1.0

    def inner(t):
        return t * gain

    def f(t):
        return inner(t) + offset

    def change():
        nonlocal gain
        gain = 4.0

    def change_again():
        nonlocal offset
        offset = -1.0

    yield from before_and_after(compile(f), change, change_again)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = 2.0
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, t):
        return t * self.weight * self.gain


def change_scaled(module):
    return (
        lambda: setattr(module, "gain", 3.0),
        lambda: setattr(module, "weight", nn.Parameter(torch.full((4,), 5.0))),
        lambda: setattr(module, "forward", lambda t: t - 1),
        lambda: delattr(module, "forward"),
        lambda: module.register_forward_hook(lambda m, args, out: out + 7),
    )


@case(CASES)
def compiled_module_inside_a_compiled_function(compile):
    original = Scaled()
    inner = compile(original)
    yield from before_and_after(compile(lambda t: inner(t) + 1), *change_scaled(inner))
    yield from before_and_after(inner, *change_scaled(original))


@case(CASES)
def compiled_module_inside_a_compiled_module(compile):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = compile(Scaled())

        def forward(self, t):
            return self.inner(t) + 1

    outer = Outer()
    yield from before_and_after(compile(outer), *change_scaled(outer.inner))


@case(CASES)
def bound_call_of_a_compiled_module(compile):
    inner = compile(Scaled())
    yield from before_and_after(compile(lambda t: inner.__call__(t) + 1), *change_scaled(inner))


@case(CASES)
def unbound_call_of_a_compiled_module(compile):
    inner = compile(Scaled())
    f = compile(lambda t: type(inner).__call__(inner, t) + 1)
    yield from before_and_after(f, *change_scaled(inner))


@case(CASES)
def compiled_module_called_by_c_code(compile):
    inner = compile(Scaled())
    f = compile(lambda t: sum(map(inner, [t, t + 1])))
    yield from before_and_after(f, *change_scaled(inner))


@case(CASES)
def compiled_module_as_an_argument(compile):
    inner = compile(Scaled())
    f = compile(lambda t, m: m(t) + 1)
    yield from before_and_after(f, *change_scaled(inner), args=(x, inner))


@case(CASES)
def call_of_a_compiled_module_through_super(compile):
    inner = compile(Scaled())

    class Louder(type(inner)):
        def __call__(self, t):
            return super().__call__(t) * 2

    louder = object.__new__(Louder)
    louder.__dict__ = inner.__dict__
    for name in ("__magpy_callable__", "__magpy_original__"):
        if hasattr(inner, name):
            object.__setattr__(louder, name, object.__getattribute__(inner, name))
    yield from before_and_after(compile(lambda t: louder(t) + 1), *change_scaled(inner))


@case(CASES)
def compiled_callables_whose_class_changes(compile):
    class Other(Scaled):
        pass

    inner = compile(Other())
    yield from before_and_after(
        compile(lambda t: inner(t) + 1), lambda: setattr(Other, "__call__", lambda m, t: t - 5)
    )

    class Owner(Bag):
        def __call__(self, t):
            return t * 2

    scale = compile(Owner())
    yield from before_and_after(
        compile(lambda t: scale(t) + 1), lambda: setattr(Owner, "__call__", lambda m, t: t - 5)
    )


@case(CASES)
def compiled_method_inside_a_compiled_function(compile):
    class Owner(Bag):
        def scale(self, t):
            return t * self.gain

    owner = Owner(gain=2.0)
    method = compile(owner.scale)
    yield from before_and_after(
        compile(lambda t: method(t) + 1), lambda: setattr(owner, "gain", 3.0)
    )


@case(CASES)
def compiled_callable_object_inside_a_compiled_function(compile):
    class Owner(Bag):
        def __call__(self, t):
            return t * self.gain

    owner = Owner(gain=2.0)
    scale = compile(owner)
    yield from before_and_after(
        compile(lambda t: scale(t) + 1), lambda: setattr(owner, "gain", 3.0)
    )


@case(CASES)
def compiled_partial_inside_a_compiled_function(compile):
    gains = [2.0]
    scale = compile(functools.partial(lambda gains, t: t * gains[0], gains))
    yield from before_and_after(compile(lambda t: scale(t) + 1), lambda: gains.__setitem__(0, 3.0))


@case(CASES, refused="is kept")
def compiled_inside_the_compiled_function(compile):
    owner = Bag(gain=2.0)

    def f(t):
        made = Scaled()
        made.gain = owner.gain
        return compile(made)(t)

    yield from before_and_after(compile(f), lambda: setattr(owner, "gain", 3.0))


@case(CASES)
def function_parts_are_replaced(compile):
    def other(t, k=7, *, s=0.5):
        return t - k - s

    def helper(t, k=2, *, s=1.0):
        return t * k + s

    f = compile(lambda t: helper(t))
    yield from before_and_after(
        f,
        lambda: setattr(helper, "__defaults__", (3,)),
        lambda: helper.__kwdefaults__.update(s=2.0),
        lambda: setattr(helper, "__kwdefaults__", {"s": 5.0}),
        lambda: setattr(helper, "__code__", other.__code__),
    )


@case(CASES)
def code_of_the_compiled_function_itself(compile):
    def f(t):
        return t * 2

    def other(t):
        return t * 11

    yield from before_and_after(compile(f), lambda: setattr(f, "__code__", other.__code__))


@case(CASES)
def methods_patched_on_class_and_instance(compile):
    class A:
        def scale(self, t):
            return t * 2

        @classmethod
        def shift(cls, t):
            return t + 1

        @staticmethod
        def flip(t):
            return -t

    a = A()
    f = compile(lambda t: a.flip(a.shift(a.scale(t))))
    yield from before_and_after(
        f,
        lambda: setattr(A, "scale", lambda self, t: t * 3),
        lambda: setattr(A, "shift", classmethod(lambda cls, t: t + 10)),
        lambda: setattr(A, "flip", staticmethod(lambda t: t)),
        lambda: setattr(a, "scale", lambda t: t * 100),
    )


@case(CASES)
def operators_of_a_class_change(compile):
    class Scale:
        def __init__(self, k):
            self.k = k

        def __rmul__(self, t):
            return t * self.k

        def __len__(self):
            return 3

        def __bool__(self):
            return True

        def __contains__(self, key):
            return key == "a"

        def __getitem__(self, i):
            return self.k + i

        def __eq__(self, other):
            return self.k == other

        def __hash__(self):
            return 1

    s = Scale(2.0)

    def f(t):
        if not s:
            return t - 5
        out = t * s.k + len(s) + s[1]
        if "a" in s:
            out = out + 1
        return out * 2 if s == 2.0 else out

    yield from before_and_after(
        compile(f),
        lambda: setattr(Scale, "__len__", lambda self: 7),
        lambda: setattr(Scale, "__contains__", lambda self, key: False),
        lambda: setattr(Scale, "__getitem__", lambda self, i: 0.0),
        lambda: setattr(s, "k", 3.0),
        lambda: setattr(Scale, "__bool__", lambda self: False),
    )


@case(CASES)
def lists_tuples_and_their_items(compile):
    gains = [1, [2, 3], (4, 5)]

    def f(t):
        a, (b, c), d = gains
        for k in (a, b, c, *d):
            t = t * k
        return t, len(gains), gains[-1]

    f = compile(f)
    yield from before_and_after(
        f,
        lambda: gains[1].__setitem__(0, 9),
        lambda: gains.__setitem__(2, (4, 5, 6)),
        lambda: gains.__setitem__(0, 7.5),
    )
    gains.append(1)
    yield attempt(f, x)


@case(CASES)
def dict_keys_values_order_and_views(compile):
    d = {"b": 2.0, "a": 1.0}

    def f(t):
        for i, (k, v) in enumerate(d.items()):
            t = t * v + i + (k == "a")
        return t, list(d), "c" in d, d.get("c", 0), len(d)

    def rotate():
        d["b"] = d.pop("b")

    yield from before_and_after(
        compile(f),
        rotate,
        lambda: d.update(c=5.0),
        lambda: d.pop("c"),
        lambda: d.update(a=-1.0),
        d.clear,
    )


@case(CASES)
def sets_deques_and_ordered_dicts(compile):
    s, q = {1, 2}, collections.deque([1.0, 2.0], maxlen=3)
    o = collections.OrderedDict(a=1.0, b=2.0)

    def f(t):
        t = t + len(s) + (3 in s) + q[0] - q[-1]
        for v in o.values():
            t = t * v + 1
        return t

    yield from before_and_after(
        compile(f),
        lambda: s.add(3),
        lambda: q.append(9.0),
        lambda: q.rotate(1),
        lambda: o.move_to_end("a"),
    )


@case(CASES)
def values_equal_but_of_another_type(compile):
    b = Bag(k=1)
    f = compile(lambda t: (t * b.k, b.k, f"{b.k}"))
    ints = torch.arange(3)
    for k in (1, True, 1.0, 1 + 0j, 0.0, -0.0, 0, False, float("nan"), float("nan"), 10**30):
        b.k = k
        yield attempt(f, ints), attempt(f, ints)


@case(CASES)
def strings_bytes_and_none(compile):
    b = Bag(mode="mean")

    def f(t):
        if b.mode is None:
            return t
        return getattr(t, b.mode)() if isinstance(b.mode, str) else t * len(b.mode)

    f = compile(f)
    for mode in ("mean", "sum", None, b"abc", "max", "mean"):
        b.mode = mode
        yield f(x), f(x)


@case(CASES)
def enums_dataclasses_and_named_tuples(compile):
    class Kind(enum.Enum):
        SUM = "sum"
        MEAN = "mean"

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 2

    @dataclasses.dataclass
    class Options:
        kind: Kind = Kind.SUM
        level: Level = Level.LOW
        gains: list = dataclasses.field(default_factory=lambda: [1.0])

    Pair = collections.namedtuple("Pair", "a b")

    def f(t, o, p):
        t = t.sum() if o.kind is Kind.SUM else t.mean()
        return t * o.level * o.gains[0] + p.a - p.b

    f = compile(f)
    for o in (
        Options(),
        Options(Kind.MEAN),
        Options(level=Level.HIGH),
        Options(gains=[2.0, 3.0]),
        Options(),
    ):
        yield f(x, o, Pair(1, 2)), f(x, o, Pair(x, x * 2))


@case(CASES)
def identity_and_equality_of_outside_objects(compile):
    a, b = Bag(k=1), Bag(k=1)
    w = Bag(current=a, known=[a])

    def f(t):
        if w.current is a:
            t = t * 2
        if w.current in w.known:
            t = t + 100
        return t if w.current == b else t - 1

    yield from before_and_after(
        compile(f), lambda: setattr(w, "current", b), lambda: w.known.append(b)
    )


@case(CASES)
def type_tests_on_an_argument(compile):
    def f(t, v):
        if isinstance(v, (list, tuple)):
            return t * len(v)
        if isinstance(v, dict):
            return t + sum(v.values())
        if callable(v):
            return v(t)
        return t if v is None else t * v

    f = compile(f)
    for v in ([1], (1, 2), {"a": 3.0}, torch.relu, None, 2, 2.5, x, [1, 2, 3], nn.Tanh()):
        yield f(x, v), f(x, v)


@case(CASES)
def functions_and_partials_as_arguments(compile):
    f = compile(lambda t, act: act(t))
    for act in (
        F.relu,
        torch.tanh,
        torch.Tensor.abs,
        functools.partial(torch.clamp, max=0.5),
        functools.partial(torch.clamp, max=1.5),
        functools.partial(torch.clamp, min=0.5),
        operator.neg,
        lambda t: t * 2,
        lambda t: t * 3,
        nn.Softplus(beta=2),
        nn.Softplus(beta=3),
    ):
        yield f(x, act), f(x, act)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.ModuleList([nn.Linear(4, 4), nn.Dropout(0.0)])
        self.named = nn.ModuleDict({"n": nn.LayerNorm(4)})
        self.register_buffer("offset", torch.zeros(4))
        self.register_buffer("none", None)
        self.gain = 1.0

    def forward(self, t):
        t = self.first(t) * self.gain + self.offset
        for layer in self.rest:
            t = layer(t)
        for _, layer in self.named.items():
            t = layer(t)
        return t if self.none is None else t + self.none


@case(CASES)
def module_tree_changes(compile):
    m = Small()
    f = compile(m)
    yield from before_and_after(
        f,
        lambda: setattr(m, "gain", 2.0),
        lambda: setattr(m, "first", nn.Linear(4, 4, bias=False)),
        lambda: m.rest.append(nn.Sigmoid()),
        lambda: m.rest.__setitem__(0, nn.Identity()),
        lambda: m.named.update({"o": nn.Hardtanh()}),
        lambda: setattr(m, "offset", torch.ones(4)),
        lambda: m.register_buffer("none", torch.ones(4)),
        lambda: m.offset.add_(1),
    )


@case(CASES)
def instance_dict_hides_a_submodule(compile):
    m, other = Small(), nn.Linear(4, 4)
    f = compile(m)
    yield from before_and_after(
        f,
        lambda: m.__dict__.update(first=other),
        lambda: m.__dict__.pop("first"),
    )


@case(CASES)
def forward_is_replaced(compile):
    m = Small()
    f = compile(m)
    yield from before_and_after(
        f,
        lambda: setattr(m.first, "forward", lambda t: t * 0),
        lambda: delattr(m.first, "forward"),
    )
    original = nn.LayerNorm.forward
    nn.LayerNorm.forward = lambda self, t: t + 1
    try:
        seen = f(x), f(x)
    finally:
        nn.LayerNorm.forward = original
    yield seen
    yield f(x)


@case(CASES)
def every_kind_of_module_hook(compile):
    m = Small()
    f = compile(m)
    yield f(x), f(x)
    log = []
    handles = [
        m.first.register_forward_pre_hook(lambda mod, args: (args[0] * 2,)),
        m.first.register_forward_hook(lambda mod, args, out: log.append(1) or out + 1),
        m.register_forward_pre_hook(lambda mod, args, kwargs: (args, kwargs), with_kwargs=True),
    ]
    yield f(x), f(x), log
    handles[0].remove()
    yield f(x), log
    handles[1].remove()
    yield f(x), log
    handle = nn.modules.module.register_module_forward_hook(lambda mod, args, out: out * 1.5)
    try:
        seen = f(x), f(x)
    finally:
        handle.remove()
    yield seen
    yield f(x)


@case(CASES)
def train_eval_with_state(compile):
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
    f = compile(m)
    batch = torch.stack([x, x + 1, x * 2])
    for training in (True, True, False, False, True, False):
        m.train(training)
        yield f(batch), dict(m.state_dict())


@case(CASES)
def parameters_replaced_and_retyped(compile):
    m = nn.Linear(4, 4)
    f = compile(m)
    yield from before_and_after(
        f,
        lambda: setattr(m.weight, "data", torch.full((4, 4), 0.5)),
        lambda: setattr(m, "weight", nn.Parameter(torch.eye(4))),
        lambda: setattr(m, "bias", None),
        lambda: m.requires_grad_(False),
    )
    m.double()
    yield f(x.double()), f(x.double())
    yield attempt(f, x)
    m.float()
    yield f(x)


@case(CASES)
def parametrization_is_added_and_removed(compile):
    m = nn.Linear(4, 4)
    f = compile(m)
    yield f(x), f(x)
    nn.utils.parametrizations.weight_norm(m)
    yield f(x), f(x)
    nn.utils.parametrize.remove_parametrizations(m, "weight")
    yield f(x), f(x)


@case(CASES)
def grad_mode_autocast_and_default_dtype(compile):
    m = nn.Linear(4, 4)
    f = compile(lambda t: (m(t), torch.ones(2), torch.is_grad_enabled()))
    yield f(x), f(x)
    with torch.no_grad():
        seen = f(x), f(x)
    yield seen
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = f(x[None]), f(x[None])
    yield seen
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        seen = f(x[None])
    yield seen
    with torch.inference_mode():
        seen = f(x)[0].is_inference(), f(x)[2]
    yield seen
    torch.set_default_dtype(torch.float64)
    try:
        seen = f(x)[1], f(x)[1]
    finally:
        torch.set_default_dtype(torch.float32)
    yield seen
    yield f(x)


@case(CASES)
def default_device_and_deterministic_mode(compile):
    def f():
        return torch.zeros(2), torch.are_deterministic_algorithms_enabled()

    f = compile(f)
    yield f(), f()
    with torch.device("meta"):
        seen = [t.device.type for t in (f()[0], f()[0])]
    yield seen
    torch.use_deterministic_algorithms(True)
    try:
        seen = f(), f()
    finally:
        torch.use_deterministic_algorithms(False)
    yield seen
    yield f()


@case(CASES)
def a_function_mode_of_the_user(compile):
    from torch.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        n = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.n += 1
            return func(*args, **(kwargs or {}))

    f = compile(lambda t: (t + 1).relu())
    yield f(x), f(x)
    with Count():
        seen = f(x), f(x)
    yield seen
    yield f(x)
    for _ in range(3):
        with Count() as count:
            seen = f(x)
        yield seen, count.n
    for _ in range(3):
        with count:
            seen = f(x)
        yield seen, count.n


@case(CASES)
def numpy_arrays_and_buffers_outside(compile):
    import numpy as np

    a = np.arange(4.0)
    raw = bytearray(b"\x01\x02\x03\x04")

    def f(t):
        return t + torch.as_tensor(a) * float(a.max()) + raw[0] + len(raw)

    yield from before_and_after(
        compile(f),
        lambda: a.__setitem__(3, 10.0),
        lambda: raw.__setitem__(0, 9),
        lambda: a.sort() or a.__imul__(-1),
    )


@case(CASES)
def weak_references_and_their_targets(compile):
    target = Bag(k=2.0)
    ref = weakref.ref(target)
    b = Bag(ref=ref)

    def f(t):
        found = b.ref()
        return t if found is None else t * found.k

    yield from before_and_after(
        compile(f),
        lambda: setattr(target, "k", 3.0),
        lambda: setattr(b, "ref", lambda: None),
    )


@case(CASES, refused="the first call fills an lru_cache")
def memoised_properties_and_caches(compile):
    class Lazy:
        @functools.cached_property
        def table(self):
            return torch.full((4,), 2.0)

        def forget(self):
            self.__dict__.pop("table", None)

    lazy = Lazy()
    calls = []

    @functools.cache
    def scale(n):
        calls.append(n)
        return float(n)

    f = compile(lambda t, n: t * lazy.table + scale(n))
    for n in (1, 1, 2, 1):
        yield f(x, n), calls, "table" in vars(lazy)
    lazy.forget()
    yield f(x, 1), calls, "table" in vars(lazy)
    scale.cache_clear()
    yield f(x, 1), f(x, 1), calls
    vars(lazy)["table"] = torch.zeros(4)
    yield f(x, 1), calls


@case(CASES)
def names_that_are_not_there(compile):
    space = {"torch": torch}
    plug_in = f"magpy_test_{id(space)}"
    exec(
        """
n = 1
def lazily(t):
    global n, made
    n += 1
    try:
        r = made
    except NameError:
        made, r = n, 0
    else:
        del made
    return t * n + r
def named(t):
    try:
        return t * absent
    except NameError as error:
        return t, str(error), error.name
def imported(t):
    try:
        from PLUG_IN import fast
    except ImportError:
        return t
    return t * fast
""".replace("PLUG_IN", plug_in),
        space,
    )
    lazily = compile(space["lazily"])
    for _ in range(6):
        yield lazily(x), space["n"], space.get("made")
    module = sys.modules[plug_in] = types.ModuleType(plug_in)
    try:
        for name, where in (
            ("named", space),
            ("imported", vars(module)),
        ):
            f = compile(space[name])
            key = "fast" if name == "imported" else "absent"
            yield f(x), f(x)
            where[key] = 5
            yield f(x), f(x)
            del where[key]
            yield f(x), f(x)
    finally:
        del sys.modules[plug_in]


@case(CASES)
def partials_that_are_compiled_themselves(compile):
    def scale(t, w=1.0):
        return t * w

    def several(config, items, t):
        return t * config["b"] + sum(items)

    p = functools.partial(scale, w=2.0)
    f = compile(p)
    yield f(x), f(x)
    p.keywords["w"] = 5.0
    yield f(x), f(x)
    config, items = {"b": 2.0}, [1.0]
    f = compile(functools.partial(functools.partial(several, config), items))
    yield f(x), f(x)
    config["b"] = 5.0
    yield f(x), f(x)
    items.append(3.0)
    yield f(x), f(x)


@case(CASES, refused="the cache is filled, or has a key that runs code")
def caches_that_are_compiled_themselves(compile):
    calls = []

    @functools.lru_cache
    def table(t):
        calls.append(1)
        return t * 2

    f, t = compile(table), x.clone()
    first, second, third = f(t), f(t), f(t)
    yield first is second, second is third, calls, table.cache_info()


@case(CASES)
def classes_of_objects_that_are_called(compile):
    class A:
        def __call__(self, t):
            return t * 2

    class B:
        def __call__(self, t):
            return t * 3

    class C:
        pass

    a, b, c = A(), A(), C()
    f, g = compile(a), compile(lambda t: b(t))
    yield f(x), f(x), g(x), g(x)
    a.__class__ = b.__class__ = B
    yield f(x), f(x), g(x), g(x)
    given = compile(lambda o, t: o(t))
    yield given(A(), x), given(A(), x), given(B(), x), given(A(), x)
    asked = compile(lambda o, t: t * 2 if callable(o) else t)
    held = compile(lambda t: t * 2 if callable(c) else t)
    yield held(x), held(x), [asked(o, x) for o in (c, C(), a, len, 3, C())]
    C.__call__ = lambda self: 1
    yield held(x), held(x), [asked(o, x) for o in (c, C(), a, len, 3, C())]


@case(CASES, refused="the counts of an lru_cache that the call itself has called")
def counts_of_a_cache(compile):
    @functools.cache
    def scale(n):
        return float(n)

    f = compile(lambda t: (t * scale(2) * scale(2), scale.cache_info().hits))
    for _ in range(5):
        yield f(x), scale.cache_info()
    scale.cache_clear()
    yield f(x), scale.cache_info()


@case(CASES)
def metaclass_and_class_level_registry(compile):
    class Meta(type):
        gain = 2.0

        def __call__(cls, *args):
            made = super().__call__(*args)
            made.tag = cls.gain
            return made

    class Thing(metaclass=Meta):
        pass

    f = compile(lambda t: t * Thing().tag)
    yield from before_and_after(
        f, lambda: setattr(Meta, "gain", 3.0), lambda: setattr(Thing, "gain", 4.0)
    )


@case(CASES)
def the_environment_and_arguments_of_the_process(compile):
    import os

    def f(t):
        return t * float(os.environ.get("MAGPY_TEST_GAIN", "2"))

    f = compile(f)
    yield f(x), f(x)
    os.environ["MAGPY_TEST_GAIN"] = "3"
    try:
        seen = f(x), f(x)
    finally:
        del os.environ["MAGPY_TEST_GAIN"]
    yield seen
    yield f(x)


@case(CASES)
def arguments_by_position_name_star_and_default(compile):
    def f(t, *args, k=1, **kw):
        return t * k + len(args) + sum(v for _, v in sorted(kw.items())), list(kw)

    f = compile(f)
    for args, kw in (
        ((), {}),
        ((1,), {}),
        ((1, 2), {"k": 2}),
        ((), {"a": 1, "b": 2}),
        ((), {"b": 2, "a": 1}),
        ((), {"k": 2.0}),
        ((), {}),
    ):
        yield f(x, *args, **kw), f(x, *args, **kw)


@case(CASES)
def partials_among_the_arguments_are_looked_into(compile):
    def f(p):
        return str(p.keywords), "pow" in str(p), str(p)[-3:]

    def g(p, x):
        return sorted(map(repr, [p]))[0][-4:], x + 1

    c, k = compile(f), compile(g)
    for p in (
        functools.partial(torch.pow, 1),
        functools.partial(torch.pow, 1),
        functools.partial(torch.pow, 2),
        functools.partial(torch.add, 2),
        functools.partial(torch.add, 2, out=None),
        functools.partial(torch.add, 2, out=3),
    ):
        yield c(p), k(p, torch.ones(2))


test_state = check_all(CASES)
