"""Every way of asking the world something, and one change that alters the answer.

Owns: tables of (expression, change, how the change is taken back), each evaluated before and after the
change, eagerly and compiled, in worlds of their own. Does not own changes that pile up
(external_state/test_state_of_every_kind.py) nor programs that change the world themselves (effects/test_order_of_effects.py).

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: E501

import pytest
import torch

import magpy
from tests.fuzz import __main__ as fuzz
from tests.soundness.subprocess_programs import WORLD, children_ready  # noqa: F401

#: Of Python and its library.
PYTHON = [
    ("np.geterr()['over']", "np.seterr(over='ignore')", "np.seterr(over='warn')"),
    (
        "str(np.float32(1.23456789) * np.ones(1))",
        "np.set_printoptions(precision=2)",
        "np.set_printoptions(precision=8)",
    ),
    (
        "repr(np.array([1.23456]))",
        "np.set_printoptions(precision=2)",
        "np.set_printoptions(precision=8)",
    ),
    (
        "np.get_printoptions()['precision']",
        "np.set_printoptions(precision=2)",
        "np.set_printoptions(precision=8)",
    ),
    ("np.getbufsize()", "np.setbufsize(16384)", "np.setbufsize(8192)"),
    (
        "attempt(lambda: float(np.float32(1e38) * np.float32(10)))",
        "np.seterr(over='raise')",
        "np.seterr(over='warn')",
    ),
    ("len(Base.__subclasses__())", "global Sub2; Sub2 = type('Sub2', (Base,), {})", "pass"),
    ("sys.getrecursionlimit()", "sys.setrecursionlimit(5000)", "sys.setrecursionlimit(1000)"),
    ("sys.flags.optimize", "pass", "pass"),
    ("os.environ.get('ZZ')", "os.environ['ZZ'] = '1'", "os.environ.pop('ZZ', None)"),
    ("os.getenv('ZZ', 'n')", "os.environ['ZZ'] = '1'", "os.environ.pop('ZZ', None)"),
    ("'ZZ' in os.environ", "os.environ['ZZ'] = '1'", "os.environ.pop('ZZ', None)"),
    ("len(warnings.filters)", "warnings.simplefilter('ignore', ImportWarning)", "pass"),
    (
        "logging.getLogger('zz').level",
        "logging.getLogger('zz').setLevel(10)",
        "logging.getLogger('zz').setLevel(0)",
    ),
    (
        "logging.getLogger('zz').isEnabledFor(10)",
        "logging.getLogger('zz').setLevel(10)",
        "logging.getLogger('zz').setLevel(0)",
    ),
    ("logging.root.manager.disable", "logging.disable(30)", "logging.disable(0)"),
    ("gc.isenabled()", "gc.disable()", "gc.enable()"),
    ("gc.get_threshold()", "gc.set_threshold(800, 10, 10)", "gc.set_threshold(700, 10, 10)"),
    (
        "threading.current_thread().name",
        "threading.current_thread().name = 'q'",
        "threading.current_thread().name = 'MainThread'",
    ),
    ("'zz_mod' in sys.modules", "sys.modules['zz_mod'] = os", "sys.modules.pop('zz_mod', None)"),
    ("sys.path[-1]", "sys.path.append('zz')", "sys.path.remove('zz') if 'zz' in sys.path else 0"),
    ("locale.localeconv()['decimal_point']", "pass", "pass"),
    (
        "decimal.getcontext().prec",
        "decimal.getcontext().prec = 5",
        "decimal.getcontext().prec = 28",
    ),
    (
        "str(decimal.Decimal(1) / 3)",
        "decimal.getcontext().prec = 5",
        "decimal.getcontext().prec = 28",
    ),
    ("CV.get()", "CV.set(5)", "CV.set(1)"),
    ("weakref.ref(G) is None", "pass", "pass"),
    ("len(WS)", "WS.add(G)", "pass"),
    ("len(WD)", "WD[G] = 1", "pass"),
    ("sys.getswitchinterval()", "sys.setswitchinterval(0.01)", "sys.setswitchinterval(0.005)"),
    (
        "sys.int_info.default_max_str_digits, sys.get_int_max_str_digits()",
        "sys.set_int_max_str_digits(5000)",
        "sys.set_int_max_str_digits(4300)",
    ),
    ("inspect.signature(G2)", "G2.__defaults__ = (3,)", "G2.__defaults__ = (2,)"),
    ("G2.__kwdefaults__", "G2.__kwdefaults__ = {'k': 4}", "G2.__kwdefaults__ = {'k': 3}"),
    ("G2(1)", "G2.__defaults__ = (3,)", "G2.__defaults__ = (2,)"),
    ("G2.__doc__", "G2.__doc__ = 'q'", "G2.__doc__ = None"),
    ("G2.__name__", "G2.__name__ = 'q'", "G2.__name__ = 'G2'"),
    ("G2.__module__", "G2.__module__ = 'q'", "G2.__module__ = 'w'"),
    ("G2.__annotations__", "G2.__annotations__['q'] = int", "G2.__annotations__.clear()"),
    ("typing.get_type_hints(G2)", "G2.__annotations__['q'] = int", "G2.__annotations__.clear()"),
    (
        "dataclasses.fields(DC)[0].default",
        "DC.__dataclass_fields__['a'].default = 9",
        "DC.__dataclass_fields__['a'].default = 1",
    ),
    ("Base.__name__", "Base.__name__ = 'Other'", "Base.__name__ = 'Base'"),
    ("Base.__qualname__", "Base.__qualname__ = 'Other'", "Base.__qualname__ = 'Base'"),
    ("Base.__doc__", "Base.__doc__ = 'Other'", "Base.__doc__ = None"),
    ("Base.__mro__", "Base.__bases__ = (Root2,)", "Base.__bases__ = (Root,)"),
    ("Base().__class__.__name__", "Base.__name__ = 'Other'", "Base.__name__ = 'Base'"),
    ("str(type(OBJ))", "Base.__qualname__ = 'Other'", "Base.__qualname__ = 'Base'"),
    ("repr(OBJ)[:20]", "Base.__qualname__ = 'Other'", "Base.__qualname__ = 'Base'"),
    ("type(OBJ).__name__", "OBJ.__class__ = Sub", "OBJ.__class__ = Base"),
    ("isinstance(OBJ, Sub)", "OBJ.__class__ = Sub", "OBJ.__class__ = Base"),
    ("isinstance(3, AB)", "AB.register(int)", "pass"),
    ("issubclass(Base, AB)", "AB.register(Base)", "pass"),
    ("vars(OBJ)", "OBJ.q = 4", "OBJ.__dict__.clear()"),
    ("dir(OBJ)[-1]", "OBJ.zq = 4", "OBJ.__dict__.clear()"),
    ("OBJ.__dict__", "OBJ.q = 4", "OBJ.__dict__.clear()"),
    ("getattr(OBJ, 'q', 0)", "OBJ.q = 4", "OBJ.__dict__.clear()"),
    ("getattr(OBJ, 'q', 0)", "Base.q = 4", "vars(Base).get('q') and delattr(Base, 'q')"),
    ("getattr(OBJ, 'q', 0)", "Root.q = 4", "vars(Root).get('q') and delattr(Root, 'q')"),
    (
        "getattr(OBJ, 'q', 0)",
        "Base.__getattr__ = lambda s, n: 7",
        "vars(Base).get('__getattr__') and delattr(Base, '__getattr__')",
    ),
    (
        "bool(OBJ)",
        "Base.__len__ = lambda s: 0",
        "vars(Base).get('__len__') and delattr(Base, '__len__')",
    ),
    (
        "bool(OBJ)",
        "Base.__bool__ = lambda s: False",
        "vars(Base).get('__bool__') and delattr(Base, '__bool__')",
    ),
    (
        "OBJ == 3",
        "Base.__eq__ = lambda s, o: True",
        "vars(Base).get('__eq__') and delattr(Base, '__eq__')",
    ),
    (
        "hash(OBJ) == 5",
        "Base.__hash__ = lambda s: 5",
        "vars(Base).get('__hash__') and delattr(Base, '__hash__')",
    ),
    (
        "OBJ in [1, 3]",
        "Base.__eq__ = lambda s, o: True",
        "vars(Base).get('__eq__') and delattr(Base, '__eq__')",
    ),
    ("3 in L", "L.append(3)", "L.clear()"),
    ("L.index(7) if 7 in L else -1", "L.extend([3, 7])", "L.clear()"),
    ("sorted(ST)", "ST.add(3)", "ST.clear()"),
    ("list(D)", "D['b'] = D.pop('a')", "D.clear(); D.update(a=1, c=2)"),
    ("next(iter(D))", "D['a'] = D.pop('a')", "D.clear(); D.update(a=1, c=2)"),
    ("next(reversed(D))", "D['a'] = D.pop('a')", "D.clear(); D.update(a=1, c=2)"),
    ("D | {'z': 1}", "D['q'] = 1", "D.clear(); D.update(a=1, c=2)"),
    ("str(D)", "D['q'] = 1", "D.clear(); D.update(a=1, c=2)"),
    ("{**D}", "D['q'] = 1", "D.clear(); D.update(a=1, c=2)"),
    ("len(D.keys() & {'a'})", "D.pop('a')", "D.clear(); D.update(a=1, c=2)"),
    (
        "DQ.maxlen",
        "global DQ; DQ = collections.deque([1], maxlen=3)",
        "global DQ; DQ = collections.deque([1], maxlen=2)",
    ),
    ("BA[0]", "BA[0] = 5", "BA[0] = 1"),
    ("memoryview(BA)[0]", "BA[0] = 5", "BA[0] = 1"),
    ("bytes(BA)", "BA[0] = 5", "BA[0] = 1"),
    ("AR[0]", "AR[0] = 5", "AR[0] = 1"),
    ("NP[0]", "NP[0] = 5", "NP[0] = 1"),
    ("NP.flags.writeable", "NP.flags.writeable = False", "NP.flags.writeable = True"),
    ("NP.shape", "NP.shape = (3, 1)", "NP.shape = (3,)"),
    ("NP.dtype.itemsize", "NP.dtype = np.float32", "NP.dtype = np.float64"),
    ("re.compile('a').match('ab') is None", "pass", "pass"),
    ("functools.partial(G2, 1)()", "G2.__defaults__ = (3,)", "G2.__defaults__ = (2,)"),
    ("P.keywords", "P.keywords['y'] = 5", "P.keywords.clear()"),
    ("P(1)", "P.keywords['b'] = 5", "P.keywords.clear()"),
    ("LC(1)", "LC.cache_clear()", "LC.cache_clear()"),
    ("LC.cache_info().currsize", "LC(5)", "LC.cache_clear()"),
    ("SD(1)", "SD.register(int, lambda q: 'int')", "pass"),
    ("EN.A.value", "EN.A._value_ = 7", "EN.A._value_ = 1"),
    ("len(EN)", "pass", "pass"),
    ("EN(1).name", "EN.A._name_ = 'Q'", "EN.A._name_ = 'A'"),
    ("NS.a", "NS.a = 4", "NS.a = 1"),
    ("NT._fields", "pass", "pass"),
    ("IT.__length_hint__()", "next(IT, None)", "pass"),
    ("CELL.cell_contents", "CELL.cell_contents = 5", "CELL.cell_contents = 1"),
    ("CLOS()", "CELL.cell_contents = 5", "CELL.cell_contents = 1"),
    ("PROP.p", "type(PROP).p = property(lambda s: 9)", "type(PROP).p = property(lambda s: 8)"),
    ("SL.a", "SL.a = 5", "SL.a = 1"),
    ("hasattr(SL, 'b')", "SL.b = 5", "hasattr(SL, 'b') and delattr(SL, 'b')"),
    (
        "torch.nn.Linear.forward is FWD",
        "torch.nn.Linear.forward = lambda s, x: x",
        "torch.nn.Linear.forward = FWD",
    ),
    ("torch.relu(x - 3)", "torch.relu = torch.sigmoid", "torch.relu = RELU"),
    ("F.relu(x - 3)", "F.relu = torch.sigmoid", "F.relu = FRELU"),
    (
        "x.relu()",
        "torch.Tensor.relu = torch.Tensor.sigmoid",
        "vars(torch.Tensor).get('relu') and delattr(torch.Tensor, 'relu')",
    ),
    ("len([1, 2])", "builtins.len = lambda q: 9", "builtins.len = LEN"),
    ("max(1, 2)", "global max; max = min", "globals().pop('max', None)"),
    ("__name__", "global __name__; __name__ = 'q'", "global __name__; __name__ = 'fuzz_world'"),
    ("random.getstate()[1][0]", "random.seed(5)", "random.seed(0)"),
    (
        "time.tzname",
        "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
        "os.environ['TZ'] = 'UTC'; time.tzset()",
    ),
    (
        "time.localtime(0).tm_hour",
        "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
        "os.environ['TZ'] = 'UTC'; time.tzset()",
    ),
    (
        "datetime.datetime.fromtimestamp(0).hour",
        "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
        "os.environ['TZ'] = 'UTC'; time.tzset()",
    ),
    (
        "time.mktime((2000, 1, 1, 0, 0, 0, 0, 0, 0))",
        "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
        "os.environ['TZ'] = 'UTC'; time.tzset()",
    ),
    (
        "str(x)",
        "torch.set_printoptions(precision=1, sci_mode=True)",
        "torch.set_printoptions(profile='default')",
    ),
    ("torch.get_rng_state()[0].item()", "torch.manual_seed(9)", "torch.manual_seed(0)"),
    ("sys.getprofile()", "pass", "pass"),
    ("sys.exc_info()[0]", "pass", "pass"),
    (
        "copyreg.dispatch_table.get(Base)",
        "copyreg.dispatch_table[Base] = str",
        "copyreg.dispatch_table.pop(Base, None)",
    ),
    ("codecs.lookup('utf8').name", "pass", "pass"),
    ("operator.attrgetter('q.r')(NSQ)", "NSQ.q.r = 5", "NSQ.q.r = 1"),
    ("operator.itemgetter('a')(D)", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("operator.methodcaller('get', 'a')(D)", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("'{0.a}'.format(NS)", "NS.a = 4", "NS.a = 1"),
    ("'{a}'.format_map(D)", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("string.Template('$a').substitute(D)", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("json.dumps(D)", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("pickle.dumps(NS)", "NS.a = 4", "NS.a = 1"),
    ("copy.deepcopy(NS).a", "NS.a = 4", "NS.a = 1"),
    ("copy.copy(L)", "L.append(3)", "L.clear()"),
    ("heapq.nsmallest(1, L)", "L.append(3)", "L.clear()"),
    ("collections.Counter(L)", "L.append(3)", "L.clear()"),
    ("list(map(G2, [1]))", "G2.__defaults__ = (3,)", "G2.__defaults__ = (2,)"),
    ("list(filter(None, L))", "L.append(3)", "L.clear()"),
    ("list(zip(L, L))", "L.append(3)", "L.clear()"),
    ("max(L, default=0)", "L.append(3)", "L.clear()"),
    ("any(L)", "L.append(3)", "L.clear()"),
    ("CM.a", "CM.maps[0]['a'] = 9", "CM.maps[0].clear(); CM.maps[0]['a'] = 1"),
    ("CM['a']", "CM.maps.insert(0, {'a': 5})", "CM.maps[:] = [{'a': 1}]"),
    ("UD['a']", "UD.data['a'] = 5", "UD.data['a'] = 1"),
    ("MP['a']", "D['a'] = 5", "D.clear(); D.update(a=1, c=2)"),
    ("SLICE.indices(len(L))", "L.append(3)", "L.clear()"),
    ("list(range(len(L)))", "L.append(3)", "L.clear()"),
    ("Q.qsize()", "Q.put(3)", "Q.queue.clear()"),
    ("EV.is_set()", "EV.set()", "EV.clear()"),
    ("LOCK.locked()", "LOCK.acquire(False)", "LOCK.locked() and LOCK.release()"),
    ("SIO.getvalue()", "SIO.write('q')", "SIO.truncate(0)"),
    ("SIO.tell()", "SIO.write('q')", "SIO.seek(0)"),
    ("HP[0]", "heapq.heappush(HP, -1)", "HP[:] = [1]"),
    ("GEN.gi_frame is None", "list(GEN)", "pass"),
    ("M.training", "M.eval()", "M.train()"),
    (
        "len(M._forward_hooks)",
        "M.register_forward_hook(lambda *a: None)",
        "M._forward_hooks.clear()",
    ),
    (
        "M(x).sum() > 100",
        "M.register_forward_hook(lambda m, a, o: o + 1000)",
        "M._forward_hooks.clear()",
    ),
    (
        "M(x).sum() > 100",
        "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o + 1000)",
        "torch.nn.modules.module._global_forward_hooks.clear()",
    ),
    (
        "len(list(M.parameters()))",
        "M.register_parameter('q', None); M.z = torch.nn.Parameter(torch.ones(1))",
        "M._parameters.pop('z', None)",
    ),
    (
        "[n for n, _ in M.named_modules()]",
        "M.add_module('zz', torch.nn.ReLU())",
        "M._modules.pop('zz', None)",
    ),
    (
        "sum(p.numel() for p in M.parameters() if p.requires_grad)",
        "M.requires_grad_(False)",
        "M.requires_grad_(True)",
    ),
    ("next(M.parameters()).device", "pass", "pass"),
    (
        "M.state_dict().keys()",
        "M.register_buffer('bb', torch.ones(1))",
        "M._buffers.pop('bb', None)",
    ),
    ("M.extra_repr()", "M.out_features = 9", "M.out_features = 2"),
    ("repr(M)", "M.out_features = 9", "M.out_features = 2"),
    ("torch.is_tensor(D['a'])", "D['a'] = torch.ones(1)", "D.clear(); D.update(a=1, c=2)"),
    ("torch.jit.is_scripting()", "pass", "pass"),
    (
        "torch.overrides.is_tensor_like(OBJ)",
        "Base.__torch_function__ = classmethod(lambda *a: 1)",
        "vars(Base).get('__torch_function__') and delattr(Base, '__torch_function__')",
    ),
    (
        "torch.add(x, OBJ) if hasattr(Base, '__torch_function__') else 0",
        "Base.__torch_function__ = classmethod(lambda *a: 1)",
        "vars(Base).get('__torch_function__') and delattr(Base, '__torch_function__')",
    ),
]
#: Of tensors: the argument `x`, `u` and `w` outside, the argument's source `y`.
TENSORS = [
    ("u._version", "u.add_(1)"),
    ("u.is_shared()", "u.share_memory_()"),
    ("x.retains_grad", "x = (torch.ones(2, requires_grad=True) * 2); x.retain_grad()"),
    ("x._is_view()", "x = torch.ones(4)[:2]"),
    ("x._base is None", "x = torch.ones(4)[:2]"),
    ("x.output_nr", "x = torch.ones(2, 2, requires_grad=True).unbind(0)[1]"),
    ("x.grad_fn is None", "x = torch.ones(2, requires_grad=True) * 2"),
    ("type(x.grad_fn).__name__", "x = torch.ones(2, requires_grad=True) * 2"),
    ("x.name", "x = torch.ones(2, requires_grad=True)"),
    (
        "x._backward_hooks is None",
        "x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: g)",
    ),
    ("u.is_set_to(x)", "u.set_(x)"),
    ("x.is_set_to(u)", "x = u.detach()"),
    ("x.names", "x = torch.ones(2, names=('a',))"),
    ("x.is_inference()", "x = INF"),
    ("x._is_zerotensor()", "x = torch._efficientzerotensor(2)"),
    ("x.is_conj()", "x = torch.ones(2, dtype=torch.complex64).conj()"),
    ("x.is_neg()", "x = torch.ones(2, dtype=torch.complex64).conj().imag"),
    ("x.is_leaf", "x = torch.ones(2, requires_grad=True) * 2"),
    (
        "len(x._backward_hooks or ())",
        "x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: g)",
    ),
    (
        "x._post_accumulate_grad_hooks is None",
        "x = torch.ones(2, requires_grad=True); x.register_post_accumulate_grad_hook(lambda g: None)",
    ),
    ("hash(x) == hash(u)", "x = u"),
    ("x is u", "x = u"),
    ("id(x) == id(u)", "x = u"),
    ("x.__dict__.get('tag')", "x = torch.ones(2); x.tag = 3"),
    ("hasattr(x, 'tag')", "x = torch.ones(2); x.tag = 3"),
    (
        "torch.result_type(x, u).itemsize",
        "torch.set_default_dtype(torch.float64); x = torch.ones(2, dtype=torch.int32)",
    ),
    ("x.untyped_storage().nbytes()", "x = torch.ones(4)[:2]"),
    ("x.data_ptr() == u.data_ptr()", "x = u.detach()"),
    ("x.untyped_storage().data_ptr() == u.untyped_storage().data_ptr()", "x = u.detach()"),
    ("x.storage_offset()", "x = torch.ones(4)[1:3]"),
    ("x.is_contiguous()", "x = torch.ones(4)[::2]"),
    ("u.requires_grad", "u.requires_grad_()"),
    ("u.grad is None", "u.grad = torch.ones(2)"),
    (
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
    ),
    ("torch.is_warn_always_enabled()", "torch.set_warn_always(True)"),
    ("torch.get_rng_state().sum().item()", "torch.rand(3)"),
    ("torch.initial_seed()", "torch.manual_seed(5)"),
    ("torch.backends.mkldnn.enabled", "torch.backends.mkldnn.set_flags(False)"),
    ("torch.get_float32_matmul_precision()", "torch.set_float32_matmul_precision('high')"),
    ("torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(True)"),
    ("torch.is_anomaly_check_nan_enabled()", "torch.autograd.set_detect_anomaly(True, False)"),
    ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cuda.matmul.allow_tf32 = True"),
    ("torch.are_deterministic_algorithms_enabled()", "torch.use_deterministic_algorithms(True)"),
    (
        "torch.utils.deterministic.fill_uninitialized_memory",
        "torch.utils.deterministic.fill_uninitialized_memory = False",
    ),
    ("x.__hash__() == u.__hash__()", "x = u"),
    ("len(x)", "x = torch.ones(3)"),
    ("x.element_size()", "x = x.double()"),
    ("repr(type(x))", "x = torch.nn.Parameter(x)"),
    ("isinstance(x, torch.nn.Parameter)", "x = torch.nn.Parameter(x)"),
    ("u.dim_order()", "u = torch.ones(2, 2).t()"),
    ("torch.is_floating_point(x)", "x = torch.ones(2).long()"),
    ("u.untyped_storage().size()", "u = torch.ones(4)[:2]"),
    ("u._cdata == x._cdata", "x = u"),
    ("u.is_shared() and 1", "u.share_memory_()"),
    ("torch._C._get_cudnn_enabled()", "torch.backends.cudnn.enabled = False"),
    ("torch.backends.cudnn.benchmark", "torch.backends.cudnn.benchmark = True"),
    ("torch.backends.cuda.flash_sdp_enabled()", "torch.backends.cuda.enable_flash_sdp(False)"),
    ("y.retains_grad", "y.retain_grad()"),
    ("y.grad_fn is None", "y = torch.ones(2, requires_grad=True)"),
    ("y.output_nr", "y = torch.ones(2, 2, requires_grad=True).unbind(0)[1]"),
    ("type(y.grad_fn).__name__", "y = torch.ones(2, requires_grad=True) + 1"),
    ("w._backward_hooks is None", "w.register_hook(lambda g: g)"),
    (
        "w._post_accumulate_grad_hooks is None",
        "w.register_post_accumulate_grad_hook(lambda g: None)",
    ),
    ("x[1:].storage_offset()", "x = torch.ones(4)[1:3]"),
    ("x[1:]._version", "x.add_(1)"),
    ("w.grad is None", "w.grad = torch.ones(2)"),
    ("x.detach()._is_view()", "x = torch.ones(4)[:2]"),
]
#: Of torch: (what changes it, what asks for it).
TORCH = [
    (
        "torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark",
        "torch.backends.cudnn.benchmark",
    ),
    (
        "torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32",
        "torch.backends.cuda.matmul.allow_tf32",
    ),
    (
        "torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())",
        "torch.are_deterministic_algorithms_enabled()",
    ),
    ("torch.set_warn_always(not torch.is_warn_always_enabled())", "torch.is_warn_always_enabled()"),
    ("torch.set_num_threads(3 - torch.get_num_threads())", "torch.get_num_threads()"),
    (
        "torch.set_float32_matmul_precision('high' if torch.get_float32_matmul_precision() == 'highest' else 'highest')",
        "torch.get_float32_matmul_precision()",
    ),
    (
        "torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)",
        "torch.get_default_dtype()",
    ),
    (
        "torch.autograd.set_detect_anomaly(not torch.is_anomaly_enabled())",
        "torch.is_anomaly_enabled()",
    ),
    ("torch.set_flush_denormal(True)", "torch.tensor(1e-40) * 1.0"),
    ("torch.set_default_device('cpu')", "str(torch.get_default_device())"),
    (
        "torch.backends.mkldnn.set_flags(not torch.backends.mkldnn.enabled)",
        "torch.backends.mkldnn.enabled",
    ),
    ("torch.set_grad_enabled(not torch.is_grad_enabled())", "torch.is_grad_enabled()"),
    ("torch.set_printoptions(precision=2 + x.dim())", "str(torch.tensor(1.23456))"),
    (
        "torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled())",
        "torch.backends.cuda.flash_sdp_enabled()",
    ),
    (
        "torch.utils.deterministic.fill_uninitialized_memory = not torch.utils.deterministic.fill_uninitialized_memory",
        "torch.utils.deterministic.fill_uninitialized_memory",
    ),
    (
        "torch.sparse.check_sparse_tensor_invariants.enable()",
        "torch.sparse.check_sparse_tensor_invariants.is_enabled()",
    ),
    (
        "torch._C._set_graph_executor_optimize(not torch._C._get_graph_executor_optimize())",
        "torch._C._get_graph_executor_optimize()",
    ),
    (
        "torch._C._set_cudnn_allow_tf32(not torch._C._get_cudnn_allow_tf32())",
        "torch._C._get_cudnn_allow_tf32()",
    ),
    (
        "torch.backends.opt_einsum.enabled = not torch.backends.opt_einsum.enabled",
        "torch.backends.opt_einsum.enabled",
    ),
    (
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch.multiprocessing.get_sharing_strategy()",
    ),
    (
        "torch._C._jit_set_texpr_fuser_enabled(not torch._C._jit_texpr_fuser_enabled())",
        "torch._C._jit_texpr_fuser_enabled()",
    ),
    (
        "torch.__future__.set_swap_module_params_on_conversion(not torch.__future__.get_swap_module_params_on_conversion())",
        "torch.__future__.get_swap_module_params_on_conversion()",
    ),
]
TORCH_RESET = """
torch.set_default_dtype(torch.float32)
torch.use_deterministic_algorithms(False)
torch.set_warn_always(False)
torch.backends.mkldnn.set_flags(True)
torch.set_float32_matmul_precision('highest')
torch.autograd.set_detect_anomaly(False)
torch.backends.cuda.matmul.allow_tf32 = False
torch.utils.deterministic.fill_uninitialized_memory = True
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.enabled = True
torch.backends.cuda.enable_flash_sdp(True)
torch.set_num_threads(1)
torch.set_default_device(None)
torch.set_grad_enabled(True)
torch.set_flush_denormal(False)
torch.set_printoptions(profile='default')
torch._C._set_graph_executor_optimize(True)
torch._C._set_cudnn_allow_tf32(True)
torch.backends.opt_einsum.enabled = True
torch.sparse.check_sparse_tensor_invariants.disable()
torch.multiprocessing.set_sharing_strategy('file_descriptor')
torch._C._jit_set_texpr_fuser_enabled(True)
torch.__future__.set_swap_module_params_on_conversion(False)
"""


def indented(text, by="    "):
    return "\n".join(by + line for line in text.strip().split("\n"))


def parts(text):
    """The statements of a change, and the names that it assigns in the world."""
    statements = [s.strip() for s in text.split(";")]
    names = [s.removeprefix("global ") for s in statements if s.startswith("global ")]
    rest = [s for s in statements if not s.startswith("global ")]
    return rest or ["pass"], [f"global {n}" for n in names]


def function(name, text):
    statements, declared = parts(text)
    return f"def {name}():\n" + indented("\n".join([*declared, *statements]))


def check(program, refused):
    report = fuzz.report_on(program, 0)
    assert report.finding is None
    if not refused:
        assert report.hits, report.reasons


PYTHON_STEPS = """
target = f
def steps(f):
    reset()
    x = torch.ones(2)
    got = []
    for i in range(3):
        got.append(str(attempt(f, x)))
    try:
        change()
        for i in range(2):
            got.append(str(attempt(f, x)))
    finally:
        reset()
    got.append(str(attempt(f, x)))
    yield got
"""
#: What is refused, or captured anew in each call.
REFUSED = {
    "dir(OBJ)[-1]",
    "str(decimal.Decimal(1) / 3)",
    "datetime.datetime.fromtimestamp(0).hour",
    "time.mktime((2000, 1, 1, 0, 0, 0, 0, 0, 0))",
    "operator.attrgetter('q.r')(NSQ)",
    "operator.methodcaller('get', 'a')(D)",
    "len(Base.__subclasses__())",
    "locale.localeconv()['decimal_point']",
    "inspect.signature(G2)",
    "NP.flags.writeable",
    "random.getstate()[1][0]",
    "time.localtime(0).tm_hour",
    "'{0.a}'.format(NS)",
    "pickle.dumps(NS)",
    "M.state_dict().keys()",
    "IT.__length_hint__()",
    "x.names",
    "x.untyped_storage().nbytes()",
    "x.untyped_storage().data_ptr() == u.untyped_storage().data_ptr()",
    "u.untyped_storage().size()",
    "type(y.grad_fn).__name__",
    "y.grad_fn is None",
}


@pytest.mark.parametrize(("asks", "change", "back"), PYTHON, ids=lambda p: p[:50])
def test_python(asks, change, back):
    program = "\n".join(
        [
            "import torch",
            WORLD,
            function("change", change),
            function("reset", back),
            f"def f(x):\n    return {asks}, x * 2",
            PYTHON_STEPS,
        ]
    )
    check(program, asks in REFUSED)


@pytest.mark.parametrize(("asks", "change"), TENSORS, ids=lambda p: p[:50])
def test_tensors(asks, change):
    program = f"""
import torch, numpy as np
u = torch.zeros(2)
w = torch.zeros(2, requires_grad=True)
def f(x, y):
    return {asks}, x * 2
target = f
def steps(f):
    global u
{indented(TORCH_RESET)}
    with torch.inference_mode():
        INF = torch.ones(2)
    x, y = torch.ones(2), torch.ones(2, requires_grad=True) * 2
    yield attempt(f, x, y)
    yield attempt(f, x, y)
    try:
{indented(change, "        ")}
    except Exception as e:
        yield e
    r = attempt(f, x, y)
{indented(TORCH_RESET)}
    yield str(r)
    yield r
    yield str(attempt(f, x, y))
"""
    check(program, asks in REFUSED)


@pytest.mark.parametrize("kind", ["asked", "set", "set and put back"])
@pytest.mark.parametrize(("change", "asks"), TORCH, ids=lambda p: p[:50])
def test_torch(change, asks, kind):
    if kind == "asked":
        body = f"return {asks}, x * 2"
    elif kind == "set":
        body = f"{change}\nreturn x * 2"
    else:
        body = f"a = {asks}\n{change}\nb = {asks}\ny = x * 2\n{change}\nreturn a, b, y"
    program = f"""
import torch
def f(x):
{indented(body)}
target = f
def steps(f):
{indented(TORCH_RESET)}
    x = torch.ones(2)
    got = []
    for i in range(4):
        got += [str(attempt(f, x)), str({asks})]
    {change if kind == "asked" else "pass"}
    for i in range(2):
        got += [str(attempt(f, x)), str({asks})]
{indented(TORCH_RESET)}
    yield got
"""
    check(program, kind != "asked" or "device" in change)


def test_a_number_of_getattr_is_not_put_into_the_slot_that_lacks_it():
    class Thing:
        __slots__ = ("__dict__", "count")

        def __getattr__(self, name):
            if name != "count":
                raise AttributeError(name)
            return self.base

    def outcomes(wrap):
        thing = Thing()

        def program(x, store):
            n = thing.count
            if store:
                thing.count = n + 1
            return x * n

        f = wrap(program)
        found = []
        for thing.base, store in ((1, False), (2, False), (3, True), (4, False), (5, True)):
            result = f(torch.ones(1), store).item()
            try:
                found.append((result, Thing.count.__get__(thing)))
            except AttributeError:
                found.append((result, "nothing"))
        del thing.count
        return [*found, f(torch.ones(1), False).item()]

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == wanted
