"""C functions of modules that compute which keep something, or read and write files."""

import codecs
import csv
import decimal

import numpy as np
import pytest
import torch

import magpy


@pytest.fixture
def path(tmp_path):
    np.arange(3.0).tofile(tmp_path / "numbers")
    return str(tmp_path / "numbers")


def first(error):
    return "1", error.end


def second(error):
    return "2", error.end


def test_a_handler_of_errors_is_registered_in_every_call():
    c = magpy.compile(
        lambda x: (codecs.register_error("magpy-1", first), x * 1)[1], backend="eager"
    )
    for _ in range(3):
        codecs.register_error("magpy-1", second)
        c(torch.ones(1))
        assert codecs.lookup_error("magpy-1") is first


def test_a_dialect_is_registered_in_every_call_and_read_anew():
    def registered(x):
        csv.register_dialect("magpy-1", delimiter=",")
        return x * 1

    def read(x):
        return x * 1, list(csv.reader(["a|b"], "magpy-2"))

    a, b = (magpy.compile(f, backend="eager") for f in (registered, read))
    for delimiter in "|a|":
        csv.register_dialect("magpy-1", delimiter="|")
        csv.register_dialect("magpy-2", delimiter=delimiter)
        a(torch.ones(1))
        assert csv.get_dialect("magpy-1").delimiter == ","
        assert b(torch.ones(1))[1] == read(torch.ones(1))[1]


def test_files_are_written_and_read_in_every_call(path, tmp_path):
    new = tmp_path / "new"
    written = magpy.compile(lambda x: (np.arange(2.0).tofile(str(new)), x * 1)[1], backend="eager")
    read = magpy.compile(lambda x: (np.fromfile(path).sum(), x * 1), backend="eager")
    stored = magpy.compile(
        lambda x: (torch.UntypedStorage.from_file(path, False, 24).tolist(), x * 1), backend="eager"
    )
    for n in range(3):
        np.arange(3.0 + n).tofile(path)
        written(torch.ones(1))
        assert new.exists()
        new.unlink()
        assert read(torch.ones(1))[0] == np.arange(3.0 + n).sum()
        want = torch.UntypedStorage.from_file(path, False, 24).tolist()
        assert stored(torch.ones(1))[0] == want


def test_a_future_is_asked_in_every_call():
    future = torch.futures.Future()
    c = magpy.compile(lambda x: x * future.done(), backend="eager")
    assert [c(torch.ones(1)).item() for _ in range(2)] == [0, 0]
    future.set_result(1)
    assert c(torch.ones(1)).item() == 1


def test_a_file_that_is_a_tensor_is_written_once_in_every_call(tmp_path):
    def f(path):
        t = torch.from_file(path, shared=True, size=4, dtype=torch.uint8)
        t.add_(1)
        return t.tolist()

    c = magpy.compile(f, backend="eager")
    for i in range(4):
        seen = []
        for g in (f, c):
            path = tmp_path / type(g).__name__
            if not i:
                path.write_bytes(bytes(4))
            seen.append((g(str(path)), path.read_bytes()))
        assert seen[0] == seen[1] == ([i + 1] * 4, bytes([i + 1] * 4))


def test_flags_of_the_decimal_context_are_raised_in_every_call():
    f = magpy.compile(lambda t: (t + 1, str(decimal.Decimal(1) / 3)), backend="eager")
    for _ in range(3):
        decimal.getcontext().clear_flags()
        assert f(torch.ones(1))[1].startswith("0.333")
        assert decimal.getcontext().flags[decimal.Inexact]
    assert "Decimal is called" in magpy.stats(f).reasons[0]
