"""What numpy is set to is told again as soon as it is another one."""

import gc
import threading
import weakref

import numpy as np
import pytest

from magpy.objects.c_state import numpy_errors


@pytest.fixture(autouse=True)
def _as_before():
    errors, call, size = np.geterr(), np.geterrcall(), np.getbufsize()
    yield
    np.seterrcall(call)
    np.setbufsize(size)
    np.seterr(**errors)


def told():
    return *np.geterr().values(), np.geterrcall(), np.getbufsize()


def test_each_way_to_set_it_is_seen():
    for change in (
        lambda: np.seterr(divide="raise"),
        lambda: np.seterr(divide="ignore", over="raise"),
        lambda: np.setbufsize(256),
        lambda: np.seterrcall(print),
        lambda: np.seterrcall(len),
        lambda: np.seterrcall(None),
        lambda: None,
    ):
        change()
        assert numpy_errors() == numpy_errors() == told()
    with np.errstate(all="raise"):
        assert numpy_errors() == numpy_errors() == told()
        with np.errstate(under="ignore"):
            assert numpy_errors() == numpy_errors() == told()
        assert numpy_errors() == told()
    assert numpy_errors() == told()


def test_each_thread_has_its_own():
    np.seterr(divide="raise")
    found = [numpy_errors()]
    thread = threading.Thread(target=lambda: found.append((numpy_errors(), told())))
    thread.start()
    thread.join()
    assert found[1][0] == found[1][1] != found[0]
    assert numpy_errors() == found[0]


def test_what_the_program_has_put_there_is_not_kept():
    class Called:
        def __call__(self, *args):
            pass

    put = Called()
    np.seterrcall(put)
    assert numpy_errors()[4] is put
    np.seterrcall(None)
    dead = weakref.ref(put)
    del put
    gc.collect()
    assert dead() is None
