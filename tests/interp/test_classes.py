"""`_interp.is_instance`: what an object is, by its type alone."""

from __future__ import annotations

import collections.abc

import pytest

from magpy import _interp


class Lies:
    @property
    def __class__(self):
        raise AssertionError("nobody asks")


class Registered:
    pass


collections.abc.Sized.register(Registered)


def test_it_is_what_its_type_derives_from():
    assert _interp.is_instance(True, int)
    assert _interp.is_instance(True, (str, (float, int)))
    assert not _interp.is_instance(1, (str, float))
    assert not _interp.is_instance(1, ())
    assert _interp.is_instance(int, type)


def test_no_object_and_no_class_is_asked():
    assert not _interp.is_instance(Lies(), int)
    assert _interp.is_instance(Lies(), Lies)
    assert isinstance(Registered(), collections.abc.Sized)
    assert not _interp.is_instance(Registered(), collections.abc.Sized)


@pytest.mark.parametrize("args", [(1,), (1, int, int), (1, 2), (1, (int | str,)), (1, "int")])
def test_other_arguments_are_refused(args):
    with pytest.raises(TypeError, match="is_instance"):
        _interp.is_instance(*args)
