"""What a call changes, and others change too between the calls: it must be changed again.

A table of ways to change the world, each with what undoes it or does something else to it, and what
shows it; and one of changes that fail, with what makes them possible, or fail differently.
"""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

# What makes the world, what the function does to it, what happens between the calls, what shows.
CHANGES = [
    ("def g(a=1): return a", "g.__defaults__=(5,)", "g.__defaults__=(2,)", "g()"),
    (
        "def g(a=1): return a",
        "g.__kwdefaults__={'z':5}",
        "g.__kwdefaults__=None",
        "g.__kwdefaults__",
    ),
    (
        "def g(a=1): return a\ndef h(a=2): return a+10",
        "g.__code__=h.__code__",
        "g.__code__=G0",
        "g()",
    ),
    ("def g(a=1): return a", "g.__doc__='x'", "g.__doc__='y'", "g.__doc__"),
    ("def g(a=1): return a", "g.__module__='x'", "g.__module__='y'", "g.__module__"),
    (
        "def g(a=1): return a",
        "g.__annotations__={'a':int}",
        "g.__annotations__={}",
        "g.__annotations__",
    ),
    ("def g(a=1): return a", "g.__dict__={'t':1}", "g.__dict__={'u':2}", "g.__dict__"),
    ("def g(a=1): return a", "g.__wrapped__=len", "g.__wrapped__=int", "g.__wrapped__"),
    ("def g(a=1): return a", "g.count=getattr(g,'count',0)+1", "g.count=7", "g.count"),
    ("e=ValueError(1)", "e.args=(2,3)", "e.args=(9,)", "e.args"),
    (
        "e=ValueError(1)",
        "e.__cause__=KeyError(1)",
        "e.__cause__=None",
        "repr(e.__cause__), e.__suppress_context__",
    ),
    ("e=ValueError(1)", "e.__context__=KeyError(1)", "e.__context__=None", "repr(e.__context__)"),
    (
        "e=ValueError(1)",
        "e.__suppress_context__=True",
        "e.__suppress_context__=False",
        "e.__suppress_context__",
    ),
    ("e=ValueError(1)", "e.add_note('n')", "e.__notes__=['z']", "e.__notes__"),
    ("e=OSError(1,'a')", "e.errno=5; e.strerror='q'", "e.errno=6", "(e.errno,e.strerror,str(e))"),
    ("e=StopIteration(3)", "e.value=5", "e.value=6", "e.value"),
    ("e=SystemExit(3)", "e.code=5", "e.code=6", "e.code"),
    (
        "e=KeyError(3)\ntry: raise e\nexcept KeyError: pass",
        "e.__traceback__=None",
        "e.args=(8,)",
        "e.__traceback__ is None, e.args",
    ),
    (
        "e=ImportError('q',name='z')",
        "e.name='p'; e.msg='m'",
        "e.name='k'; e.msg='l'",
        "e.name,e.msg",
    ),
    (
        "e=UnicodeDecodeError('utf8',b'abc',1,2,'r')",
        "e.start=0; e.reason='x'",
        "e.start=2; e.reason='z'",
        "str(e)",
    ),
    ("e=SyntaxError('q')", "e.lineno=3; e.text='t'", "e.lineno=9; e.text='p'", "e.lineno,e.text"),
    (
        "class P:\n    def _g(s): return 1\n    x=property(_g)",
        "P.x.__doc__='d'",
        "P.x.__doc__='e'",
        "P.x.__doc__",
    ),
    ("import functools\np=functools.partial(int,'5')", "p.tag=3", "p.tag=4", "p.tag"),
    (
        "import functools\np=functools.partial(int,'5')",
        "p.__setstate__((int,('7',),{},{}))",
        "p.__setstate__((int,('9',),{},{}))",
        "p()",
    ),
    ("import ctypes\nb=(ctypes.c_int*3)(1,2,3)", "b[0]=5", "b[0]=9", "list(b)"),
    (
        "import ctypes\nclass S(ctypes.Structure):\n    _fields_=[('a',ctypes.c_int)]\nb=S(1)",
        "b.a=5",
        "b.a=9",
        "b.a",
    ),
    ("import ctypes\nb=ctypes.c_int(3)", "b.value=5", "b.value=9", "b.value"),
    (
        "import ctypes\nb=ctypes.create_string_buffer(b'abc')",
        "b.value=b'q'",
        "b.value=b'z'",
        "b.value",
    ),
    ("ba=bytearray(b'abc')\nm=memoryview(ba)", "m[0]=100", "m[0]=101", "ba"),
    ("import array\nar=array.array('d',[1,2])\nm=memoryview(ar)", "m[0]=100.", "m[0]=101.", "ar"),
    ("import numpy as np\nN=np.arange(6.)", "N.shape=(2,3)", "N.shape=(6,)", "N.shape"),
    ("import numpy as np\nN=np.arange(6.)", "N.resize(3,2)", "N.shape=(6,)", "N.shape"),
    ("import numpy as np\nN=np.arange(6.)", "N.dtype=np.int64", "N.dtype=np.float64", "N.dtype"),
    ("import numpy as np\nN=np.arange(6.)", "N.real[0]=5; N.flat[1]=7", "N[:]=0", "N"),
    ("import numpy as np\nN=np.arange(6.)", "N.sort(); N.partition(2)", "N[:]=[3,1,2,9,8,7]", "N"),
    ("import numpy as np\nN=np.arange(6.)", "np.add(N,1,out=N)", "N[:]=[3,1,2,9,8,7]", "N"),
    (
        "import numpy as np\nN=np.arange(6.)",
        "np.random.shuffle(N)",
        "N[:]=[3,1,2,9,8,7]",
        "N, np.random.rand()",
    ),
    ("import random\nL=[1,2,3,4]", "random.shuffle(L)", "L[:]=[4,3,2,1]", "L, random.random()"),
    ("import random\nR=random.Random(3)", "R.random()", "R.seed(5)", "R.random()"),
    ("import random\nR=random.Random(3)", "R.seed(9)", "R.seed(5)", "R.getstate()[1][:3]"),
    (
        "import numpy as np\nR=np.random.default_rng(3)",
        "R.random()",
        "R.bit_generator.advance(5)",
        "R.random()",
    ),
    ("import numpy as np\nR=np.random.RandomState(3)", "R.seed(4)", "R.seed(5)", "R.rand()"),
    ("import types\no=types.SimpleNamespace(a=1)", "o.b=2; del o.a", "o.a=5", "o"),
    (
        "import collections\no=collections.UserDict(a=1)",
        "o['b']=2; o.pop('a')",
        "o['a']=5",
        "o.data",
    ),
    ("import collections\no=collections.UserList([1])", "o.append(2)", "o[:]=[5]", "o.data"),
    (
        "import collections\no=collections.ChainMap({},{'a':1})",
        "o['a']=2",
        "o.maps[0].clear()",
        "o.maps",
    ),
    (
        "import collections\no=collections.OrderedDict(a=1,b=2)",
        "o.move_to_end('a')",
        "o.move_to_end('b')",
        "list(o)",
    ),
    ("import collections\no=collections.Counter(a=1)", "o.subtract(a=3,c=1)", "o.clear()", "o"),
    ("import collections\no=collections.defaultdict(list)", "o['a'].append(1)", "o['a']=[5]", "o"),
    (
        "import collections\no=collections.defaultdict(list)",
        "o.default_factory=dict; o['q']",
        "o.default_factory=set; o.clear()",
        "o",
    ),
    (
        "import weakref\nclass K: pass\nk=K(); o=weakref.WeakValueDictionary()",
        "o['a']=k",
        "o.clear()",
        "len(o)",
    ),
    (
        "import weakref\nclass K: pass\nk=K(); o=weakref.WeakSet()",
        "o.add(k)",
        "o.clear()",
        "len(o)",
    ),
    ("import itertools\no=itertools.count(3)", "next(o)", "next(o)", "o"),
    (
        "def gen():\n    x=0\n    while True:\n        y=yield x\n        x+=y or 1\no=gen()",
        "next(o)",
        "next(o)",
        "next(o)",
    ),
    ("import queue\no=queue.Queue()", "o.put(1)", "o.put(5)", "list(o.queue)"),
    ("import threading\no=threading.Event()", "o.set()", "o.clear()", "o.is_set()"),
    ("import threading\no=threading.Semaphore(5)", "o.acquire()", "o.release()", "o._value"),
    ("import threading\no=threading.local()\no.v=1", "o.v=5", "o.v=2", "o.v"),
    (
        "import contextvars\nCV=contextvars.ContextVar('q',default=1)",
        "CV.set(5)",
        "CV.set(2)",
        "CV.get()",
    ),
    (
        "import os",
        "os.environ['MAGPYQ']='5'",
        "os.environ['MAGPYQ']='2'",
        "os.environ.pop('MAGPYQ')",
    ),
    ("import sys", "sys.path.append('zz')", "sys.path.remove('zz')", "'zz' in sys.path"),
    (
        "import sys",
        "sys.modules['zzq']=sys",
        "sys.modules.pop('zzq',None)",
        "'zzq' in sys.modules, sys.modules.pop('zzq',None) is sys",
    ),
    ("import gc", "gc.disable()", "gc.enable()", "gc.isenabled(), gc.enable()"),
    ("import gc", "gc.set_threshold(500,5,5)", "gc.set_threshold(700,10,10)", "gc.get_threshold()"),
    (
        "import sys",
        "sys.setswitchinterval(0.01)",
        "sys.setswitchinterval(0.005)",
        "sys.getswitchinterval()",
    ),
    (
        "import signal",
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "signal.signal(signal.SIGUSR1, signal.SIG_DFL)",
        "str(signal.getsignal(signal.SIGUSR1))",
    ),
    (
        "import locale",
        "locale.setlocale(locale.LC_ALL,'C')",
        "pass",
        "locale.setlocale(locale.LC_ALL)",
    ),
    (
        "import decimal",
        "decimal.getcontext().prec=5",
        "decimal.getcontext().prec=9",
        "decimal.getcontext().prec",
    ),
    (
        "import logging\nlg=logging.getLogger('mq')",
        "lg.addHandler(HN)",
        "lg.handlers.clear()",
        "len(lg.handlers), lg.handlers.clear()",
    ),
    (
        "import logging\nlg=logging.getLogger('mq')",
        "lg.disabled=True; lg.propagate=False",
        "lg.disabled=False; lg.propagate=True",
        "lg.disabled, lg.propagate",
    ),
    (
        "import warnings",
        "warnings.filterwarnings('ignore','zz')",
        "warnings.filters.pop(0)",
        "warnings.filters[0][0], str(warnings.filters[0][1]), len(warnings.filters)",
    ),
    ("import re", "re.compile('abc')", "re.purge()", "1"),
    (
        "import json\nimport io\nb=io.StringIO()",
        "json.dump({'a':1}, b)",
        "b.seek(0)",
        "b.getvalue(), b.tell()",
    ),
    ("import io\nb=io.BytesIO(b'abcdef')", "b.read(2)", "b.seek(0)", "b.tell()"),
    ("import io\nb=io.BytesIO(b'abcdef')", "b.write(b'zz')", "b.seek(4)", "b.getvalue(), b.tell()"),
    ("import bisect\nL=[1,3]", "bisect.insort(L,2)", "L[:]=[5,6]", "L"),
    ("import heapq\nL=[3,5]", "heapq.heappush(L,1); heapq.heapreplace(L,4)", "L[:]=[5,6]", "L"),
    (
        "import operator\nL=[3,5]",
        "operator.setitem(L,0,9); operator.iconcat(L,[1])",
        "L[:]=[5,6]",
        "L",
    ),
    ("import copy\nL=[[1],[2]]", "L.extend(copy.deepcopy(L))", "L[:]=[[5],[6]]", "L"),
    (
        "import abc\nclass A(abc.ABC): pass\nclass B: pass",
        "A.register(B)",
        "pass",
        "issubclass(B,A)",
    ),
    ("import enum\nclass E(enum.IntFlag):\n    A=1\n    B=2", "E.A.tag=5", "E.A.tag=6", "E.A.tag"),
    (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    a:int=1\no=P()",
        "o.a=o.a+1; P.a=7",
        "o.a=0; P.a=3",
        "o, P.a, P()",
    ),
    ("class P:\n    a=1\no=P()", "o.__dict__['a']=4", "o.__dict__.clear()", "o.a"),
    ("class P:\n    a=1\no=P()", "vars(o).update(a=4,b=5)", "vars(o).clear()", "vars(o)"),
    ("class P:\n    a=1\no=P()", "P.m=lambda s: 5", "P.m=lambda s: 6", "o.m()"),
    ("class P:\n    a=1\no=P()", "P.__call__=lambda s: 5", "P.__call__=lambda s: 6", "o()"),
    (
        "class P:\n    a=1\n    def __eq__(s,o): return True\no=P()",
        "P.__eq__=lambda s,o: False; P.__hash__=lambda s: 3",
        "P.__eq__=lambda s,o: True",
        "o==1",
    ),
    ("class P:\n    a=1\no=P()", "del P.a", "P.a=6", "hasattr(P,'a')"),
    (
        "m=torch.nn.Linear(2,2)",
        "m.training=False; m.in_features=9",
        "m.train(); m.in_features=2",
        "m.training, m.in_features",
    ),
    (
        "m=torch.nn.Sequential(torch.nn.ReLU())",
        "m[0]=torch.nn.Tanh()",
        "m[0]=torch.nn.ReLU()",
        "str(m)",
    ),
    ("m=torch.nn.Sequential(torch.nn.ReLU())", "m.append(torch.nn.Tanh())", "del m[1:]", "str(m)"),
    (
        "m=torch.nn.Linear(2,2)",
        "m.weight.requires_grad=False",
        "m.weight.requires_grad=True",
        "m.weight.requires_grad",
    ),
    ("m=torch.nn.Linear(2,2)", "m.half()", "m.float()", "m.weight.dtype"),
    ("m=torch.nn.Linear(2,2)", "m.extra_repr=lambda: 'q'", "del m.extra_repr", "str(m)"),
    ("L=[1]", "L.__init__([5])", "L[:]=[7]", "L"),
    ("D={'a':1}", "D.__init__(a=5,b=3)", "D.clear()", "D"),
    ("S={1}", "S.__init__([5])", "S.clear()", "S"),
    ("BA=bytearray(b'a')", "BA.__init__(b'zz')", "BA[:]=b'q'", "BA"),
    (
        "import collections\nDQ=collections.deque([1])",
        "DQ.__init__([4],3)",
        "DQ.__init__([1])",
        "DQ",
    ),
    (
        "import collections\nD=collections.defaultdict(list)",
        "D.__init__(dict,a=1)",
        "D.__init__(set)",
        "D",
    ),
    ("import collections\nD=collections.OrderedDict(a=1)", "D.__init__(b=1)", "D.clear()", "D"),
    ("e=ValueError(1)", "e.__init__(7)", "e.args=(8,)", "e.args"),
    ("e=ValueError(1)", "e.with_traceback(None)", "e.args=(8,)", "e.args"),
    ("e=ValueError(1)", "e.__setstate__({'k':1})", "e.__dict__.clear()", "e.__dict__"),
    ("e=ValueError(1)", "e.add_note('q')", "e.__dict__.clear()", "e.__dict__"),
    (
        "e=ValueError(1)\ne.__notes__=['b']",
        "e.add_note('q')",
        "e.__notes__[:]=['p']",
        "e.__notes__",
    ),
    ("ba=bytearray(b'abc')\nm=memoryview(ba)", "m.release()", "global m; m=memoryview(ba)", "1"),
    (
        "import types\nm=types.ModuleType('a')",
        "m.__init__('b','doc')",
        "m.__init__('c')",
        "m.__name__,m.__doc__",
    ),
    ("class P: pass\no=P()", "object.__setattr__(o,'a',5)", "o.a=7", "o.a"),
    ("class P: pass\no=P()\no.a=1", "object.__delattr__(o,'a')", "o.a=7", "o.__dict__"),
    ("class P: pass", "type.__setattr__(P,'a',5)", "P.a=7", "P.a"),
    (
        "class P:\n    x=property(lambda s:1)\no=P()",
        "P.x.__init__(lambda s:2)",
        "P.x.__init__(lambda s:3)",
        "o.x",
    ),
    (
        "class P:\n    x=staticmethod(len)\no=P()",
        "P.__dict__['x'].__init__(abs)",
        "P.__dict__['x'].__init__(len)",
        "o.x([1]) if o.x is len else o.x(-1)",
    ),
    (
        "class P:\n    x=classmethod(lambda c:1)\no=P()",
        "P.__dict__['x'].__init__(lambda c:2)",
        "P.__dict__['x'].__init__(lambda c:3)",
        "o.x()",
    ),
    ("L=[1]", "list.append(L,5)", "L.clear()", "L"),
    ("L=[3,1]", "list.sort(L); list.reverse(L)", "L[:]=[1,9]", "L"),
    ("L=[3,1]", "list.__iadd__(L,[5])", "L[:]=[1,9]", "L"),
    ("L=[3,1]", "list.__imul__(L,2)", "L[:]=[1,9]", "L"),
    ("L=[3,1]", "list.__setitem__(L,0,9); list.__delitem__(L,1)", "L[:]=[1,9]", "L"),
    ("D={'a':1}", "D.__ior__({'b':3})", "D.clear()", "D"),
    ("D={'a':1}", "D|={'b':3}; global D", "D.clear()", "D"),
    ("S={1,2}", "S.__iand__({1}); S.__ixor__({9})", "S.add(2)", "S"),
    (
        "S={1,2}",
        "S.difference_update([1]); S.symmetric_difference_update([5]); S.intersection_update([5,2])",
        "S.add(7)",
        "S",
    ),
    ("L=[1,2,3]\nI=iter(L)", "I.__setstate__(1)", "I.__setstate__(0)", "I.__length_hint__()"),
    ("I=iter(range(5))", "I.__setstate__(3)", "I.__setstate__(0)", "I.__length_hint__()"),
    (
        "def g():\n    try:\n        yield 1\n    finally:\n        LL.append(1)\nLL=[]\no=g(); next(o)",
        "o.close()",
        "pass",
        "LL",
    ),
    (
        "import functools\n@functools.lru_cache\ndef c(n): return n",
        "c.cache_clear()",
        "c(3)",
        "c.cache_info()",
    ),
    (
        "import functools\n@functools.singledispatch\ndef c(n): return 1",
        "c.register(int, lambda n: 2)",
        "c.register(int, lambda n: 3)",
        "c(3)",
    ),
    (
        "import functools\nclass P:\n    @functools.cached_property\n    def v(s): return [1]\no=P()",
        "o.v.append(2)",
        "del o.v",
        "o.__dict__",
    ),
    (
        "import types\nclass P:\n    def m(s): return 1\no=P()",
        "o.m=types.MethodType(lambda s: 5, o)",
        "o.m=len",
        "o.m if o.m is len else o.m()",
    ),
    ("import sys", "sys.intern('abcq'); sys.getrefcount(sys)", "pass", "1"),
    ("L=[[1]]", "L[0]+=[2]; L[0]*=2", "L[:]=[[5]]", "L"),
    ("L=[1,2,3]", "L[0],L[1]=L[1],L[0]; L[1:]=L[:1]", "L[:]=[7,8,9]", "L"),
    (
        "D={'a':{'b':[1]}}",
        "D['a']['b'].append(2); D['a']['c']=D['a']",
        "D['a']={'b':[5]}",
        "D['a']['b'], 'c' in D['a']",
    ),
    ("D={}", "D.setdefault('k',[]).append(1)", "D['k']=[9]", "D"),
    ("D={1:2}", "D[True]=3; D[1.0]=4", "D.clear()", "D"),
    ("D={'a':1,'b':2}", "D['a']=D.pop('a')", "D['a']=D.pop('a'); D['b']=D.pop('b')", "list(D)"),
    (
        "D={'a':1,'b':2}",
        "D.update(dict(sorted(D.items(), reverse=True)))",
        "D.clear(); D.update(z=1)",
        "list(D)",
    ),
    (
        "class Q(dict):\n    def __setitem__(s,k,v): dict.__setitem__(s,k,v+1)\nD=Q()",
        "D['a']=1; D.update(b=2); D.setdefault('c',3)",
        "D['a']=5",
        "D",
    ),
    (
        "class Q(list):\n    def append(s,v): list.append(s,v); list.append(s,v)\nD=Q()",
        "D.append(1); D.extend([2])",
        "D[:]=[5]",
        "D",
    ),
    (
        "import contextlib\nst=contextlib.ExitStack()\nLL=[]",
        "st.callback(LL.append,1)",
        "st.close()",
        "LL, len(st._exit_callbacks)",
    ),
    (
        "import collections\nD=collections.OrderedDict(a=1,b=2,c=3)",
        "D.move_to_end('a'); D['d']=4; D.move_to_end('d',last=False)",
        "D.pop('d'); D.move_to_end('b')",
        "list(D)",
    ),
    (
        "import collections\nD=collections.OrderedDict(a=1,b=2,c=3)",
        "D.move_to_end('a')",
        "D.move_to_end('c')",
        "list(D)",
    ),
]
# Likewise, of what fails.
FAILURES = [
    ("L=[1,2]", "L[5]=1", "L.extend([0]*6)", "L"),
    ("L=[1,2]", "del L[5]", "L.extend([0]*6)", "L"),
    ("L=[1,2]", "L.remove(9)", "L.append(9)", "L"),
    ("L=[1,2]", "L[::2]=[1,2,3]", "L.extend([3,4,5])", "L"),
    ("L=[]", "L.pop()", "L.append(4)", "L"),
    ("L=[1,'a']", "L.sort()", "L[:]=[3,1]", "L"),
    ("D={'a':1}", "del D['b']", "D['b']=2", "D"),
    ("D={'a':1}", "D.pop('b')", "D['b']=2", "D"),
    ("D={}", "D.popitem()", "D['b']=2", "D"),
    ("D={'a':1}", "D[[]]=2", "D.clear()", "D"),
    ("D={'a':1}", "D.update(3)", "D.clear()", "D"),
    ("D={'a':1}", "D.update([('a',2),('b',3),4])", "D.clear()", "D"),
    ("S={1}", "S.remove(2)", "S.add(2)", "S"),
    ("S=set()", "S.pop()", "S.add(2)", "S"),
    ("S={1}", "S.add([])", "S.clear()", "S"),
    ("S={1}", "S.update([5,[]])", "S.clear()", "S"),
    ("BA=bytearray(b'ab')", "BA[0]=300", "BA[0]=7", "BA"),
    ("BA=bytearray(b'ab')", "BA[5]=1", "BA.extend(b'abcdef')", "BA"),
    ("import array\nAR=array.array('i',[1,2])", "AR[0]='x'", "AR[0]=5", "AR"),
    ("import collections\nDQ=collections.deque([1],maxlen=2)", "DQ.maxlen=5", "DQ.append(2)", "DQ"),
    ("import collections\nDQ=collections.deque([1])", "DQ[3]=5", "DQ.extend([2,3,4])", "DQ"),
    ("import collections\nDQ=collections.deque([])", "DQ.popleft()", "DQ.extend([2,3,4])", "DQ"),
    (
        "import collections\nDQ=collections.deque([1,2],maxlen=2)",
        "DQ.insert(0,1)",
        "DQ.pop()",
        "DQ",
    ),
    (
        "class P:\n    def __init__(s): s.v=1\n    @property\n    def x(s): return s.v\no=P()",
        "o.x=3",
        "P.x=5",
        "(o.__dict__, P.__dict__.get('x'))",
    ),
    ("class P:\n    __slots__=('a',)\no=P()\no.a=1", "o.z=3", "o.a=4", "o.a"),
    ("class P:\n    def __init__(s): s.v=1\no=P()", "o.__dict__=3", "o.v=4", "o.__dict__"),
    ("def g(): return 1\ndef h(): return 2", "g.__code__=3", "g.__code__=h.__code__", "g()"),
    ("def g(*,k=1): return k", "g.__kwdefaults__=3", "g.__kwdefaults__={'k':4}", "g()"),
    ("def g(): return 1", "g.__dict__=3", "g.a=1", "g.__dict__"),
    (
        "def g(): return 1",
        "g.__annotations__=3",
        "g.__annotations__={'a':int}",
        "g.__annotations__",
    ),
    ("def g(): return 1", "g.__qualname__=3", "g.__qualname__='other'", "g.__qualname__"),
    ("class P: pass", "P.__name__=3", "P.__name__='Q'", "P.__name__"),
    (
        "class P: pass\nclass B: pass\nclass C(P): pass",
        "C.__bases__=(int,)",
        "C.__bases__=(B,)",
        "C.__bases__",
    ),
    (
        "class P:\n    def __init__(s): s.v=1\n    def __setattr__(s,n,v):\n        object.__setattr__(s,n,v)\n        if n=='w': raise ValueError('w')\no=P()",
        "o.w=3",
        "o.w2=4",
        "o.__dict__",
    ),
    (
        "class P:\n    def __init__(s): s.v=1\n    def __setattr__(s,n,v):\n        raise ValueError('w')\no=P.__new__(P)",
        "o.w=3",
        "del P.__setattr__",
        "o.__dict__",
    ),
    (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass P:\n    a:int=1\no=P()",
        "o.a=3",
        "object.__setattr__(o,'a',9)",
        "o",
    ),
    ("import types\no=types.SimpleNamespace(a=1)", "del o.b", "o.b=3", "o"),
    ("import types\no=types.MappingProxyType({'a':1})", "o['a']=3", "pass", "dict(o)"),
    (
        "import weakref\nclass P: pass\nk=P()\nW=weakref.WeakKeyDictionary()",
        "W[3]=1",
        "W[k]=2",
        "len(W)",
    ),
    ("import collections\nC=collections.Counter()", "C['a']+='x'", "C['a']=3", "C"),
    ("import collections\nC=collections.ChainMap({'a':1},{'b':2})", "del C['b']", "C['b']=3", "C"),
    ("import collections\nO=collections.OrderedDict(a=1)", "O.move_to_end('b')", "O['b']=3", "O"),
    ("import heapq\nH=[]", "heapq.heappop(H)", "H.append(3)", "H"),
    ("import io\nI=io.StringIO('abc')", "I.write(3)", "I.write('z')", "I.getvalue()"),
    ("G=0", "int('x'); global G; G=3", "global G; G=5", "G"),
    ("x=torch.ones(3)", "x[7]=1", "x.fill_(2)", "x"),
    ("x=torch.ones(3)", "x.add_(torch.ones(4))", "x.fill_(2)", "x"),
    ("x=torch.ones(3)", "x.requires_grad='a'", "x.requires_grad=True", "x.requires_grad"),
    ("x=torch.ones(3)", "x.grad=3", "x.grad=torch.ones(3)", "x.grad"),
    ("x=torch.ones(3)", "x.grad=torch.ones(4)", "x.grad=torch.ones(3)", "x.grad"),
    ("x=torch.ones(3)", "x.data=3", "x.data=torch.zeros(3)", "x"),
    (
        "x=torch.ones(3,dtype=torch.int64)",
        "x.requires_grad_()",
        "global x; x=torch.ones(3)",
        "x.requires_grad",
    ),
    ("x=torch.ones(3)", "x.names=('a','b')", "x.fill_(2)", "x"),
    ("x=torch.ones(3)", "x.shape=3", "x.fill_(2)", "x"),
    ("x=torch.ones(3)", "x.__class__=int", "x.fill_(2)", "x"),
    (
        "m=torch.nn.Linear(2,2)",
        "m.weight=torch.ones(2,2)",
        "m.weight=torch.nn.Parameter(torch.ones(2,2))",
        "m.weight",
    ),
    ("m=torch.nn.Linear(2,2)", "m.bias=3", "m.bias=None", "m.bias"),
    (
        "m=torch.nn.Linear(2,2)",
        "m.register_buffer('weight',torch.ones(1))",
        "del m.weight",
        "m.__dict__.keys(), list(m._buffers)",
    ),
    ("m=torch.nn.Linear(2,2)", "m.load_state_dict({})", "m.weight.data.fill_(1)", "m.state_dict()"),
    ("m=torch.nn.Linear(2,2)", "del m.nothing", "m.nothing=3", "m.__dict__.keys()"),
    ("import numpy as np\nN=np.ones(3)", "N[5]=1", "N[0]=4", "N"),
    ("import numpy as np\nN=np.ones(3)", "N.shape=(2,2)", "N[0]=4", "N"),
    (
        "import numpy as np\nN=np.ones(3)\nN.flags.writeable=False",
        "N[0]=1",
        "N.flags.writeable=True",
        "N",
    ),
    (
        "import os",
        "del os.environ['NOPE_Q']",
        "os.environ['NOPE_Q']='1'",
        "os.environ.get('NOPE_Q')",
    ),
    ("import random", "random.sample([1],3)", "pass", "random.random()"),
    ("import itertools\nI=iter([1])", "next(I); next(I)", "global I; I=iter([1,2,3])", "1"),
    ("import threading\nK=threading.Lock()", "K.release()", "K.acquire()", "K.locked()"),
    (
        "torch.set_default_dtype(torch.float32)",
        "torch.set_default_dtype(torch.int64)",
        "torch.set_default_dtype(torch.float64)",
        "torch.get_default_dtype()",
    ),
    ("g=torch.Generator()", "g.set_state(torch.ones(3))", "g.manual_seed(3)", "g.initial_seed()"),
    (
        "o=torch.optim.SGD([torch.nn.Parameter(torch.ones(2))],lr=0.1)",
        "o.add_param_group({'params': []}); o.add_param_group(3)",
        "o.param_groups[0]['lr']=0.5",
        "[p['lr'] for p in o.param_groups]",
    ),
]


# What is refused, or makes a new object in every call.
NEVER_SERVED = {
    "D.__init__(dict,a=1)",
    "DQ.__init__([4],3)",
    "I.__setstate__(1)",
    "I.__setstate__(3)",
    "N.dtype=np.int64",
    "e.with_traceback(None)",
    "N.real[0]=5; N.flat[1]=7",
    "N.resize(3,2)",
    "N.shape=(2,3)",
    "P.__dict__['x'].__init__(abs)",
    "P.__dict__['x'].__init__(lambda c:2)",
    "P.x.__init__(lambda s:2)",
    "R.seed(4)",
    "R.seed(9)",
    "b.read(2)",
    "b.value=5",
    "b.value=b'q'",
    "b[0]=5",
    "e.__init__(7)",
    "e.__setstate__({'k':1})",
    "lg.addHandler(HN)",
    "locale.setlocale(locale.LC_ALL,'C')",
    "m.__init__('b','doc')",
    "m.release()",
    "m[0]=100",
    "m[0]=100.",
    "next(o)",
    "np.add(N,1,out=N)",
    "np.random.shuffle(N)",
    "o.add(k)",
    "o.close()",
    "o['a']=k",
    "p.__setstate__((int,('7',),{},{}))",
    "random.shuffle(L)",
    "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "sys.setswitchinterval(0.01)",
}


def body(text):
    """The statements of a line; those that declare globals first."""
    parts = [part.strip() for part in text.split(";")]
    return sorted(parts, key=lambda part: not part.startswith("global "))


def indented(lines, by):
    return "".join(f"{' ' * by}{line}\n" for line in lines)


STEPS = """
target = f

def steps(f):
    argument = torch.ones(2)
    for i in range(4):
        yield attempt(f, argument), {shows}
        attempt(change)
    for i in range(3):
        yield attempt(f, argument), {shows}
    attempt(change)
    yield attempt(f, argument), {shows}
"""


def report_on(setup, does, between, shows, catches):
    head, tail = body(does), []
    names = [line for line in head if line.startswith("global ")]
    head = head[len(names) :]
    if catches:
        head = ["try:", *(f"    {line}" for line in head), "except Exception as e:"]
        tail = ["    return argument * 3, type(e).__name__, str(e)"]
    function = indented([*names, "result = argument + 1", *head, *tail, "return result"], 4)
    program = (
        f"import torch\n{setup}\ndef f(argument):\n{function}"
        f"def change():\n{indented(body(between), 4)}{STEPS.format(shows=shows)}"
    )
    return fuzz.report_on(program, 0)


@pytest.mark.parametrize(("setup", "does", "between", "shows"), CHANGES, ids=lambda p: p[:40])
def test_change_is_made_again(setup, does, between, shows):
    report = report_on(setup, does, between, shows, catches=False)
    assert report.finding is None
    assert report.steps == 8
    assert bool(report.hits) is (does not in NEVER_SERVED), report.reasons


@pytest.mark.parametrize("catches", [True, False])
@pytest.mark.parametrize(("setup", "does", "between", "shows"), FAILURES, ids=lambda p: p[:40])
def test_change_that_fails(setup, does, between, shows, catches):
    report = report_on(setup, does, between, shows, catches)
    assert report.finding is None
    assert report.steps == 8
