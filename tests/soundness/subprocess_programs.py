"""Programs as text that run in processes of their own (tests/fuzz), for tables of programs.

Owns: the fixture that a module of such tests imports, and the world that the tables are about. Does
not own the tables.
"""

# ruff: noqa: E501

import pytest
import torch

from tests.fuzz import __main__ as fuzz


@pytest.fixture(scope="module", autouse=True)
def children_ready():
    """Children inherit what torch has loaded, and no threads, which a fork would leave behind."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    fuzz.warm_up("eager")
    yield
    torch.set_num_threads(threads)


#: One object of every kind that a program may read or change.
WORLD = """
import sys, os
import numpy as np, warnings, logging, gc, threading, locale, decimal, weakref, inspect, typing, dataclasses, collections, functools, enum, types, operator, string, json, pickle, copy, heapq, itertools, builtins, contextvars, re, tempfile, random, socket, getpass, time, datetime, copyreg, codecs, array, queue, io, abc
import torch.nn.functional as F
RELU, FRELU, LEN, FWD = torch.relu, F.relu, len, torch.nn.Linear.forward
class Root: pass
class Root2: pass
class Base(Root): pass
class Sub(Base): pass
class AB(abc.ABC): pass
OBJ = Base()
@dataclasses.dataclass
class DC:
    a: int = 1
CV = contextvars.ContextVar("cv", default=1)
class GG: pass
G = GG()
HOLD = GG()
W = weakref.ref(HOLD)
WS = weakref.WeakSet()
WD = weakref.WeakKeyDictionary()
def G2(a, b=2, *, k=3): return a + b + k
L, ST, D = [], set(), dict(a=1, c=2)
DQ = collections.deque([1], maxlen=2)
BA = bytearray(b"abc"); AR = array.array("i", [1, 2]); NP = np.ones(3)
P = functools.partial(G2)
@functools.lru_cache(None)
def LC(a): return a + 1
@functools.singledispatch
def SD(a): return "obj"
class EN(enum.Enum):
    A = 1
    B = 2
NS = types.SimpleNamespace(a=1)
NSQ = types.SimpleNamespace(q=types.SimpleNamespace(r=1))
NT = collections.namedtuple("NT", "a b")
IT = iter([1, 2, 3])
def _mk():
    v = 1
    def inner(): return v
    return inner
CLOS = _mk(); CELL = CLOS.__closure__[0]
class PP:
    p = property(lambda s: 8)
PROP = PP()
class SS: __slots__ = ("a", "b")
SL = SS(); SL.a = 1
class CMC(collections.ChainMap):
    a = 1
CM = CMC(dict(a=1)); UD = collections.UserDict(a=1); MP = types.MappingProxyType(D)
SLICE = slice(0, None); Q = queue.Queue(); EV = threading.Event(); LOCK = threading.Lock(); SIO = io.StringIO(); HP = [1]
GEN = (q for q in [1, 2])
M = torch.nn.Linear(2, 2)
"""
