"""Arrays that follow from tensor data: what may be written to, and stores that raise.

Owns flags of such arrays (`flags.writeable`), read, set and obeyed, and what is stored in them in
vain.  Does not own other stores (tests/soundness/arrays/test_arrays_and_tensors.py).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import magpy

ARRAYS = {
    "a_tensors": "x.numpy()",
    "a_copys": "x.clone().numpy()",
    "a_copy": "x.numpy().copy()",
    "computed": "x.numpy() + 1",
    "a_view": "x.numpy()[::2]",
}
TRY = """try: {}; r = 0
    except (ValueError, IndexError, AttributeError, FloatingPointError) as e: r = str(e)"""
USES = {
    "set": "n.flags.writeable = False; r = n",
    "set_by_item": "n.flags['WRITEABLE'] = False; r = n",
    "set_by_a_short_name": "n.flags['W'] = False; r = n",
    "set_by_setattr": "setattr(n.flags, 'writeable', False); r = n",
    "set_by_a_method": "n.setflags(write=False); r = n, n.flags.writeable",
    "set_by_data": "n.flags.writeable = bool(n[0] > 1); r = n",
    "obeyed": "n.flags.writeable = False\n    " + TRY.format("n[0] = 5"),
    "obeyed_in_place": "n.flags.writeable = False\n    " + TRY.format("n += 1"),
    "obeyed_by_a_ufunc": "n.flags.writeable = False\n    " + TRY.format("np.add(n, 1, out=n)"),
    "put_back": "n.flags.writeable = False\n    "
    + TRY.format("n[0] = 5")
    + "\n    n.flags.writeable = True; n[0] = 7",
    "of_a_view": "m = n.view(); m.flags.writeable = False; n[0] = 3; r = m, n",
    "kept_aside": "g = n.flags; m = n[:1]; g.writeable = False; r = m.flags.writeable, n, m",
    "read": "r = n.flags.c_contiguous, n.flags['F_CONTIGUOUS'], n.flags.owndata",
    "decide": "r = n * 2 if n.flags.writeable else n * 3",
    "shown": "r = str(n.flags)",
    "compared": "r = n.flags == n[::-1].flags",
    "of_a_broadcast": "m = np.broadcast_to(n, (2, n.size)); r = m.flags.writeable, m",
    "set_and_read": "n.flags.writeable = False; r = 1 if n.flags.writeable else 2",
    "in_vain": TRY.format("n.flags.owndata = True"),
    "a_store_of_another_length": TRY.format("n[0:1] = [1, 2, 3]"),
    "a_store_after_a_change": "x.add_(1)\n    " + TRY.format("n[0:1] = [1, 2, 3]"),
    "a_store_after_a_store": "n[0] = 2\n    " + TRY.format("n[0:1] = [1, 2, 3]"),
    "a_store_beyond_the_end": TRY.format("n[7] = 1"),
    "an_attribute_after_a_store": "n[0] = 5\n    " + TRY.format("n.name = 'q'") + "; r = n",
    "a_method_after_a_store": "n[0] = 5\n    " + TRY.format("n.sum = 1") + "; r = n",
    "a_deletion": TRY.format("del n[0]"),
    "another_shape": TRY.format("n.shape = (5,)"),
    "a_store_of_objects": TRY.format("n[:] = np.array(['q'] * n.size, dtype=object)"),
    "a_store_that_tells_late": """m = np.zeros(n.size, dtype=int); k = n * 1e30
    with np.errstate(all="raise"):
        """
    + TRY.format("m[:] = k").replace("\n    ", "\n        ")
    + "\n    r = r, m.shape",
}
SOURCE = """
def f(x):
    n = {}
    {}
    return r, x + 1
"""


def told(value):
    if isinstance(value, np.ndarray):
        return value.tolist(), value.flags.writeable
    if isinstance(value, tuple):
        return tuple(map(told, value))
    return value.tolist() if isinstance(value, torch.Tensor) else value


def calls(source, compile):
    scope = {"np": np, "torch": torch}
    exec(source, scope)
    c = compile(scope["f"])
    seen = []
    for values in ([1.0, 2.0], [1.0, 2.0], [4.0, 2.0], [1.0, 2.0], [4.0, 2.0]):
        x = torch.tensor(values)
        try:
            result = told(c(x))
        except ValueError as e:  # the memory of a tensor is not numpy's to open
            result = str(e)
        seen.append((result, x.tolist()))
    return seen, c


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_flags_are_those_of_eager(array, use):
    source = SOURCE.format(array, use)
    eager, _ = calls(source, lambda f: f)
    compiled, _ = calls(source, lambda f: magpy.compile(f, backend="eager"))
    assert compiled == eager


@pytest.mark.parametrize("use", ["set", "obeyed", "put_back", "a_store_of_another_length", "read"])
def test_such_calls_are_served_by_entries_unless_they_write(use):
    _, c = calls(
        SOURCE.format("x.numpy().copy()", USES[use]), lambda f: magpy.compile(f, backend="eager")
    )
    reasons = magpy.stats(c).reasons
    written = "an array that follows from data is written to"
    assert magpy.stats(c).hits == 4 if use == "read" else written in reasons[0], reasons
