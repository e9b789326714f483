"""What a run has put into outside objects, told by its log from what other threads put there."""

import collections
from types import SimpleNamespace

import pytest

from magpy.capture.races import OwnChanges
from magpy.errors import Refusal
from magpy.objects.snapshots import ABSENT

NUMBER = 12345


def own(*stores, others=True):
    log = [
        (
            holder,
            key,
            value if type(value) in (int, str) else None,
            0 if value is ABSENT else id(value),
        )
        for holder, key, value in stores
    ]
    return OwnChanges(SimpleNamespace(others_ran=others, stores=lambda: log))


def test_without_other_threads_what_is_there_is_the_runs():
    d = {"a": 1, "b": 2}
    assert own(others=False).content(d, {"a": 1}, True) == [("a", 1), ("b", 2)]
    assert own(others=False).content([1, 2], (1,), True) == (1, 2)
    assert own(others=False).at(d, "x", 5) == 5


def test_keys_of_others_are_left_out_and_values_are_the_runs():
    d = {"a": 1, "mine": NUMBER + 1, "other": 7}
    changes = own((d, "mine", 5), (d, "mine", NUMBER), (d, "a", ABSENT))
    assert changes.content(d, {"a": 1}, False) == [("mine", NUMBER)]


def test_a_key_deleted_and_stored_again_comes_last():
    d = {"b": 2, "a": 3}
    assert own((d, "a", ABSENT), (d, "a", 3)).content(d, {"a": 1, "b": 2}, False) == [
        ("b", 2),
        ("a", 3),
    ]


@pytest.mark.parametrize("kind", [list, collections.deque])
def test_what_others_append_is_left_out(kind):
    obj = kind([0, 7, 1, 8, 2])
    assert own((obj, None, 1), (obj, None, 2)).content(obj, (0,), False) == (0, 1, 2)


def test_a_window_keeps_its_length():
    window = collections.deque([9, 8, 3], maxlen=3)
    changes = own(*((window, None, i) for i in range(4)))
    assert changes.content(window, (5, 6), False) == (1, 2, 3)


def test_an_object_is_found_where_it_was_put_or_the_capture_is_void():
    mine = object()
    d = {"k": mine}
    assert own((d, "k", mine)).content(d, {}, False) == [("k", mine)]
    d = {"k": object()}
    with pytest.raises(Refusal, match="another thread changes a dict") as e:
        own((d, "k", mine)).content(d, {}, False)
    assert e.value.passing


@pytest.mark.parametrize("obj, pre", [({"a": 1}, {}), ([1], ()), ({1}, frozenset())])
def test_what_the_log_does_not_tell_voids_the_capture(obj, pre):
    with pytest.raises(Refusal, match="another thread changes"):
        own().content(obj, pre, True)
    assert own().content(obj, obj if isinstance(obj, dict) else type(pre)(obj), True) is not None


def test_attributes_and_cells():
    holder = SimpleNamespace()
    changes = own((holder, "x", 1), (holder, "y", ABSENT), (holder, "x", NUMBER))
    assert changes.at(holder, "x", 3) == NUMBER
    assert changes.at(holder, "y", 3) is ABSENT
    assert changes.at(holder, "z", 3) == 3
    assert own((holder, None, 4)).at(holder, None, 5) == 4
    with pytest.raises(Refusal):
        own((holder, "x", object())).at(holder, "x", 3)
