"""Sizes written into text, as checks of arguments do: they stay symbols."""

from __future__ import annotations

import builtins
import collections

import pytest
import torch

import magpy

Named = collections.namedtuple("Named", "rows columns")


def check(ok, message):
    if not ok:
        raise ValueError(message)
    return message


KINDS = {
    "str": lambda x: str(x.shape),
    "shape": lambda x: check(x.dim() == 2, f"expected 2 dimensions, got {x.shape}"),
    "size": lambda x: f"{x.size()}",
    "one": lambda x: f"{x.shape[0]} rows",
    "repr": lambda x: f"{x.shape!r:>30}|{x.shape!s:<30}|",
    "tuple": lambda x: f"{(x.shape[0], 3)} {tuple(x.shape)!s}",
    "list": lambda x: f"{list(x.shape)} {[*x.shape]!r}",
    "dict": lambda x: f"{ {'rows': x.shape[0], 'all': [x.shape]} }",
    "ascii": lambda x: f"{(x.shape[1], 'ä')!a} {x.shape[0]!a}",
    "percent": lambda x: "expected %s" % (x.shape,),  # noqa: UP031
}
# These rely on the sizes.
OTHERS = {
    "named": lambda x: f"{Named(*x.shape)}",
    "ascii of the sizes": lambda x: f"{x.shape!a}",
    "several": lambda x: "%s of %d" % (x.shape, x.dim()),  # noqa: UP031
    "format": lambda x: f"{x.shape} {x.dtype}",
    "set": lambda x: f"{ {x.shape[0]} }",
}


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_text_of_sizes(kind):
    text = {**KINDS, **OTHERS}[kind]

    def f(x):
        said = text(x)
        return x + 1, said, len(said)

    compiled = magpy.compile(f, backend="eager")
    for rows in (4, 7, 16, 5, 3, 128, 9):
        result, expected = compiled(torch.ones(rows, 3)), f(torch.ones(rows, 3))
        assert result[1:] == expected[1:]
        assert torch.equal(result[0], expected[0])
    if kind in KINDS:
        assert magpy.stats(compiled).captures <= 3
        assert magpy.stats(compiled).share == 1.0


def test_what_writing_itself_raises():
    def f(x):
        return f"{x.shape:>10}"

    compiled = magpy.compile(f, backend="eager")
    for call in (f, compiled, compiled, compiled):
        with pytest.raises(TypeError, match="unsupported format string"):
            call(torch.ones(2, 3))


def test_what_the_program_has_put_in_the_place_of_a_builtin_writes_nothing(monkeypatch):
    """An f-string does not look the functions up by their names."""

    def f(x):
        return x + 1, f"{x.shape!r} {[x.shape[0]]} {tuple(x.shape)!s}"

    compiled = magpy.compile(f, backend="eager")
    monkeypatch.setattr(builtins, "repr", lambda v: "another")
    for rows in (3, 4, 5):
        text = compiled(torch.ones(rows, 2))[1]
        assert text == f"torch.Size([{rows}, 2]) [{rows}] ({rows}, 2)"


@pytest.mark.parametrize(
    "write",
    [
        lambda n: (str(n) + " of {}").format("a"),
        lambda n: (str(n) + " of {name}").format_map({"name": "a"}),
        lambda n: str.format(str(n) + " of {}", n),
        lambda n: ("{:." + str(n) + "f}").format(1.5),
    ],
)
def test_a_template_that_follows_from_data(write):
    def f(x, n):
        return x + 1, write(n.item())

    c = magpy.compile(f, backend="eager")
    for n in (1, 2, 3, 4, 1, 5):
        x, k = torch.ones(2), torch.tensor(n)
        assert c(x, k)[1] == f(x, k)[1]
