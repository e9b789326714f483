"""Compiling in another process, so that this one is not held up.

TorchInductor is Python for the most part and switches parts of torch that belong to the whole
process (the state of the random generators among them), so a thread beside the program would slow
it down and could change what it computes.  Here a graph and the metadata of its inputs go to a
process of our own (magpy/backends/worker.py); what comes back is an artifact that a thread loads, a
few milliseconds at a time.

Owns the process, the thread, and their end: at exit, in a forked child, when nobody wants the
result any more.  Does not own what is done with the results (magpy/runtime/background.py).
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import operator
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from magpy import _tensor, config
from magpy.backends.inductor import STATIC_INPUTS, Inductor
from magpy.backends.worker import OWN, TARGET, receive, send
from magpy.errors import an

_SLICE = 0.001
"""Seconds for which loading holds the interpreter before it lets go of it."""
_PAUSE = 0.004


class Unable(Exception):
    """The graph cannot be compiled in another process."""


class _Stopped(BaseException):
    pass


def prepare() -> None:
    """Imports what `job` and loading need: that takes seconds, which no call must wait for."""
    with contextlib.suppress(ImportError):  # `job` tells
        import torch._dynamo.aot_compile_types
        import torch._functorch._aot_autograd.aot_autograd_result
        import torch._inductor.compile_fx
        import torch.fx._graph_pickler  # noqa: F401

        from magpy.backends import settings  # noqa: F401


class Job:
    """A graph on its way.

    Attributes:
        state: "waiting", "ok" (`result` is the compiled callable), "failed" (the backend failed,
            `text` says how) or "unable" (this process has to compile it).
    """

    def __init__(self, request: dict[str, Any]) -> None:
        """Keeps the request, which holds no tensor of the program."""
        self.request = request
        # TorchInductor's settings of this thread: loading an artifact obeys some of them.
        self.context: contextvars.Context | None = contextvars.copy_context()
        self.state = "waiting"
        self.result: Callable[..., Any] | None = None
        self.text = ""
        self.service: _Service | None = None

    @property
    def lost(self) -> bool:
        """Whether it will never be answered: the process was forked since."""
        return self.state == "waiting" and self.service is not None and self.service.lost


def job(backend: Inductor, graph: Any, inputs: list[Any]) -> Job:
    """A graph made ready to go, with the metadata of its inputs and torch's present state.

    Raises:
        Unable: it cannot go.
    """
    import torch
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    from torch._subclasses import FakeTensorMode

    try:
        from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
        from torch.fx._graph_pickler import GraphPickler, Options
    except ImportError as e:
        raise Unable("this torch cannot hand a compiled graph on") from e
    del BundledAOTAutogradSerializableCallable

    from magpy.backends import settings

    state = settings.current()
    if state is None:
        raise Unable("a mode of the program is active (vmap, a TorchFunctionMode, ...)")
    patches = backend.patches()
    settings_of: Any
    for settings_of in (inductor, functorch):
        for name in settings_of._save_config_ignore:
            if patches.get(name, _get(settings_of, name)) != settings_of._config[name].default:
                raise Unable(f"the setting {name} is of this process")
    if patches.get("freezing", inductor.freezing):
        raise Unable("the parameters become part of the graph (freezing)")
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            raise Unable("the graph has constants")
    mode = FakeTensorMode()
    fakes = []
    for x in inputs:
        if isinstance(x, torch.Tensor):
            if type(x) not in (torch.Tensor, torch.nn.Parameter):
                raise Unable(f"an input is {an(type(x).__name__)}")
            if _tensor.gradient(x) is not None:  # it would go, too, and torch cannot send it
                x = x.detach().requires_grad_(x.requires_grad)
            fakes.append(mode.from_tensor(x, static_shapes=True))
        elif type(x) in (int, float, bool):
            fakes.append(x)
        else:
            raise Unable(f"an input is of type {type(x).__name__}")
    portable: Any = (inductor, functorch)
    # What else nodes are marked with is for the program's process.
    options = Options(ops_filter=None, node_metadata_key_filter=lambda key: key == TARGET)
    try:
        request = {
            "graph": GraphPickler.dumps((_named(graph), fakes), options),
            "state": state,
            "inductor": portable[0].save_config_portable(),
            "functorch": portable[1].save_config_portable(),
            "patches": patches,
            "static": graph.meta.get(STATIC_INPUTS, 0),
            "cache": cache_dir(),
        }
    except Exception as e:
        raise Unable(f"the graph cannot be sent: {type(e).__name__}: {e}") from e
    return Job(request)


def _named(graph: Any) -> Any:
    """A copy of a graph in which functions of magpy's stand by name, as torch sends none."""
    import copy

    from torch import fx

    own = [n for n in graph.graph.nodes if getattr(n.target, "__module__", "") in OWN]
    if not own:
        return graph
    nodes = copy.deepcopy(graph.graph)
    for node in nodes.nodes:
        if getattr(node.target, "__module__", "") in OWN:
            node.meta = {TARGET: (node.target.__module__, node.target.__name__)}
            node.target = operator.index  # stands for it
    sent = fx.GraphModule(graph, nodes, class_name="Segment")
    sent.meta.update(graph.meta)
    return sent


def _get(module: Any, name: str) -> Any:
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _worker(niceness: int) -> subprocess.Popen[bytes]:
    text = (
        f"import sys; sys.path[:] = {sys.path!r}; from magpy.backends import worker; "
        f"worker.main({os.getpid()}, {niceness})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what failed comes back as an answer
        bufsize=0,
    )


def artifacts(jobs: list[Job], cache: str) -> tuple[list[tuple[str, Any]], Any]:
    """What a process of its own answers to jobs, one after the other: artifacts that travel.

    Args:
        jobs: the jobs, whose state stays as it is.
        cache: the directory in which kernels and the code that calls them are made.

    Returns:
        The answers, and the settings of a process in which nothing has changed any.
    """
    answers: list[tuple[str, Any]] = []
    settings = None
    with _worker(0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(EOFError, OSError):
            send(process.stdin, {"settings": True})  # type: ignore[arg-type]
            settings = receive(process.stdout)[1]  # type: ignore[arg-type]
        for wanted in jobs:
            try:
                request = {**wanted.request, "cache": cache, "alone": True}
                send(process.stdin, request)  # type: ignore[arg-type]
                answers.append(receive(process.stdout))  # type: ignore[arg-type]
            except (EOFError, OSError):
                answers.append(("unable", "the compiling process ended"))
                break
        process.stdin.close()
    lost = [("unable", "the compiling process ended")] * (len(jobs) - len(answers))
    return answers + lost, settings


class _Service:
    """The thread, and the process that it talks to."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[weakref.ref[Job] | None] = queue.SimpleQueue()
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = False
        self.lost = False
        self.served = 0
        self.thread = threading.Thread(target=self._run, name="magpy-background", daemon=True)
        self.thread.start()

    # ------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while not self.stopping:
            ref = self.jobs.get()
            wanted = ref() if ref is not None else None
            if wanted is None or self.stopping:
                continue
            request, context, wanted = wanted.request, wanted.context, None
            try:
                state, value = self._exchange(request)
                if state == "ok" and ref is not None and ref() is not None:
                    assert context is not None
                    value = context.run(_load, value, request["patches"], lambda: self.stopping)
            except _Stopped:
                return
            except Exception as e:  # noqa: BLE001 - then the program's own thread compiles it
                state, value = "unable", f"{type(e).__name__}: {e}"
            wanted = ref() if ref is not None else None
            if wanted is not None and not self.stopping:
                if state == "ok":
                    wanted.result = value
                else:
                    wanted.text = str(value)
                wanted.request, wanted.context = {}, None
                wanted.state = state  # last: the other threads look at it
            wanted = value = context = None

    def _exchange(self, request: dict[str, Any]) -> tuple[str, Any]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, request)  # type: ignore[arg-type]
            answer: tuple[str, Any] = receive(process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError):
            if self.stopping:
                raise _Stopped from None
            code = process.wait()
            self._close(process)
            self.process = None
            if not self.served:
                return "unable", f"the compiling process did not start (exit status {code})"
            return "failed", f"the compiling process ended with exit status {code}"
        self.served += 1
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.served = 0
            self.process = _worker(int(config.background_niceness))
            if self.stopping:
                self._kill()
                raise _Stopped
        return self.process

    # ------------------------------------------------------------- in the others

    def _kill(self) -> None:
        process = self.process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
            self._close(process)

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def stop(self) -> None:
        """Ends the process and the thread."""
        self.stopping = True
        self.jobs.put(None)
        self._kill()
        self.thread.join(timeout=10)

    def abandon(self) -> None:
        """In a forked child: the thread is not here, and the process is the parent's."""
        self.lost = True
        _abandoned.append(self)
        if self.process is not None:
            self._close(self.process)


def _load(artifact: bytes, patches: dict[str, Any], stopped: Callable[[], bool]) -> Any:
    """The callable in an artifact.

    While this thread loads it, the others must be able to run: it sleeps after every slice.
    """
    until = time.perf_counter() + _SLICE

    def pace(frame: Any, event: str, arg: Any) -> None:
        nonlocal until
        if time.perf_counter() > until:
            if stopped():
                raise _Stopped
            time.sleep(_PAUSE)
            until = time.perf_counter() + _SLICE

    sys.setprofile(pace)
    try:
        return loaded(artifact, patches)
    finally:
        sys.setprofile(None)


def loaded(artifact: bytes, patches: dict[str, Any]) -> Any:
    """The callable in an artifact."""
    from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
    from torch._inductor import config as inductor

    with inductor.patch(patches):
        bundle = BundledAOTAutogradSerializableCallable.deserialize_compile_artifacts(artifact)
    return bundle.compiled_fn


class _Shared:
    """What this process has of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.service: _Service | None = None
        self.ended = False


shared = _Shared()
_abandoned: list[_Service] = []


def submit(job: Job) -> None:
    """Has a job done; one that nobody holds any more is not."""
    with shared.lock:
        if shared.ended:
            return
        if shared.service is None:
            shared.service = _Service()
        job.service = shared.service
        shared.service.jobs.put(weakref.ref(job))


def _at_exit() -> None:
    with shared.lock:
        shared.ended = True
    if shared.service is not None:
        shared.service.stop()


def _after_fork() -> None:
    service = shared.service
    shared.__init__()  # type: ignore[misc]
    if service is not None:
        service.abandon()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
