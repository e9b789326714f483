"""What changes between the calls of a callable that runs in part is seen; threads may share one."""

import io
import threading

import pytest
import torch

import magpy


@pytest.fixture(autouse=True)
def in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def world():
    torch.manual_seed(0)
    layers, settings = [torch.nn.Linear(4, 4) for _ in range(3)], {"scale": 1.0}

    def helper(h):
        h = h * settings["scale"]
        return h * len(io.BytesIO(b"ab").read())

    def f(x, name="ab"):
        h = layers[0](x)
        n = len(io.BytesIO(name.encode()).read())
        h = helper(layers[1](h))
        for layer in layers:
            h = layer(h).tanh()
            if n > 2:
                h = h + 1
        return h, name

    return f, layers, settings


CHANGES = {
    "a value in a dict": lambda layers, settings: settings.update(scale=2.0),
    "a list grows": lambda layers, settings: layers.append(torch.nn.Linear(4, 4)),
    "a list shrinks": lambda layers, settings: layers.pop(0),
    "data of a weight": lambda layers, settings: layers[0].weight.data.mul_(2),
    "a hook": lambda layers, settings: layers[0].register_forward_hook(lambda m, i, o: o * 2),
    "a forward": lambda layers, settings: setattr(layers[1], "forward", lambda h: h - 1),
}


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_calls_is_seen(change):
    f, *outside = world()
    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2, 4)
    for _ in range(5):
        assert torch.equal(compiled(x)[0], f(x)[0])
    assert magpy.stats(compiled).regions > 0
    CHANGES[change](*outside)
    for _ in range(4):
        assert torch.equal(compiled(x)[0], f(x)[0])


@pytest.mark.filterwarnings("ignore::magpy.MagpyWarning")
def test_threads_share_a_driver():
    f, *_ = world()
    compiled = magpy.compile(f, backend="eager")
    wrong = []

    def work(k):
        for i in range(30):
            x, name = torch.full((2 + i % 3, 4), i / 7 + k), "n" * (1 + (i + k) % 4)
            try:
                (a, b), (c, d) = f(x, name), compiled(x, name)
                if not torch.equal(a, c) or b != d:
                    wrong.append((k, i))
            except Exception as e:
                wrong.append((k, i, e))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert magpy.stats(compiled).regions > 0
