"""Models that a server replaces: in an attribute, a list, a dict, a closure, a global.

A model that was replaced twice counts by what it is like; a new one is no capture then.
"""

import gc
import weakref

import pytest
import torch
from torch import nn

import magpy


class Head(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.wide, self.narrow = nn.Linear(4, width), nn.Linear(width, 2)
        self.norm, self.scale = nn.BatchNorm1d(width), scale

    def forward(self, x):
        return self.narrow(self.norm(self.wide(x))) * self.scale


class Server:
    def __init__(self):
        self.model, self.models, self.named = Head(8), [Head(8), Head(6)], {"a": Head(8)}

    def attribute(self, x):
        return self.model(x)

    def listed(self, x):
        return sum(m(x) for m in self.models)

    def keyed(self, x):
        return self.named["a"](x)


WHERE = ["attribute", "listed", "keyed"]


def put(server, where, new):
    if where == "attribute":
        server.model = new
    elif where == "listed":
        server.models[0] = new
    else:
        server.named["a"] = new


def heads(n, **kwargs):
    for i in range(n):
        torch.manual_seed(i)
        yield Head(8, **kwargs).eval()


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("where", WHERE)
def test_few_captures_serve_all(where, bound):
    server = Server()
    for m in (server.model, *server.models, *server.named.values()):
        m.eval()
    f = getattr(server, where) if bound else getattr(Server, where)
    compiled = magpy.compile(f, backend="eager")
    given = () if bound else (server,)
    for i, new in enumerate(heads(12)):
        put(server, where, new)
        for rows in (2, 3, 4):
            x = torch.full((rows, 4), i + 0.5)
            assert torch.equal(compiled(*given, x), f(*given, x))
    stats = magpy.stats(compiled)
    assert stats.captures <= 5 and stats.eager_calls == 0, stats


@pytest.mark.parametrize("where", WHERE)
def test_one_that_is_not_alike_is_not_taken_for_another(where):
    server = Server()
    f = getattr(server, where)
    compiled = magpy.compile(f, backend="eager")
    others = [*heads(4), Head(5), Head(8, scale=3.0).eval(), Head(8).train(), *heads(2)]
    others += [Head(8).double().eval(), nn.Sequential(nn.Linear(4, 2)).eval(), *heads(1)]
    hooked = Head(8).eval()
    hooked.wide.register_forward_hook(lambda m, a, out: out + 1)
    for new in (*others, hooked, *heads(2)):
        put(server, where, new)
        dtype = next(new.parameters()).dtype
        if dtype != torch.float32 and where == "listed":
            continue
        for rows in (3, 4):
            x = torch.randn(rows, 4, dtype=dtype)
            twin = {k: v.clone() for k, v in new.state_dict().items()}
            got, after = compiled(x), {k: v.clone() for k, v in new.state_dict().items()}
            new.load_state_dict(twin)
            assert torch.equal(got, f(x))
            for k, v in new.state_dict().items():
                assert torch.equal(v, after[k]), k


@pytest.mark.parametrize("where", WHERE)
def test_those_that_were_replaced_are_let_go(where):
    server = Server()
    compiled = magpy.compile(getattr(server, where), backend="eager")
    refs = []
    for new in heads(8):
        refs.append(weakref.ref(new))
        put(server, where, new)
        for rows in (2, 3):
            compiled(torch.ones(rows, 4))
    del new
    gc.collect()
    assert sum(r() is not None for r in refs) <= 1


def test_one_in_a_closure():
    model = Head(8).eval()

    def handle(x):
        return model(x)

    compiled = magpy.compile(handle, backend="eager")
    for new in heads(10):
        model = new
        for rows in (2, 3):
            x = torch.ones(rows, 4)
            assert torch.equal(compiled(x), new(x))
    assert magpy.stats(compiled).captures <= 5


def test_gradients_come_to_the_new_one():
    server = Server()
    compiled = magpy.compile(server.attribute, backend="aot_eager")
    for new in heads(6):
        server.model = new
        for _ in range(2):
            new.zero_grad()
            compiled(torch.ones(3, 4)).sum().backward()
            found = [p.grad for p in new.parameters()]
            new.zero_grad()
            new(torch.ones(3, 4)).sum().backward()
            for a, p in zip(found, new.parameters(), strict=True):
                torch.testing.assert_close(a, p.grad)


def test_which_one_it_is_counts_where_the_program_asks():
    """By `is`, among others, by `id` or as a key: those that are alike are told apart."""

    def world():
        server = Server()
        torch.manual_seed(0)
        server.model = server.main = Head(8).eval()
        server.models, server.seen = [server.model], {server.model: 2}
        server.named = {id(server.model): "main"}

        def f(x):
            y = server.model(x)
            if server.model is server.main:
                y = y + 100
            if server.model in server.models:
                y = y + 1000
            name = server.named.get(id(server.model), "another")
            return y * server.seen.get(server.model, 7), name

        return server, f

    (own, eager), (other, f) = world(), world()
    compiled = magpy.compile(f, backend="eager")
    new = [*zip(heads(6), heads(6), strict=True)]
    for k in (0, 1, 2, 3, "main", 4, 5, "known", 1, "main", 2, "known", 3):
        for server, at in ((own, 0), (other, 1)):
            if k == "main":
                server.model = server.main
            elif k == "known":
                server.models.append(server.model)
                server.seen[server.model], server.named[id(server.model)] = 3, "known"
            else:
                server.model = new[k][at]
        for rows in (2, 3):
            x = torch.ones(rows, 4)
            (wanted, name), (got, own_name) = eager(x), compiled(x)
            assert torch.equal(got, wanted) and own_name == name
