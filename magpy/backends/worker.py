"""The compiling process: TorchInductor on graphs that come through a pipe.

Owns what runs in that process.  Does not own its life (magpy/backends/process.py, which starts it
with `python -c`).  A message is its length in eight bytes and a pickle: a request is answered by
("ok", artifact), ("failed", text) when the backend failed, or ("unable", text) when the graph
cannot be compiled away from its process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO


def send(stream: BinaryIO, message: Any) -> None:
    """Writes one message."""
    data = pickle.dumps(message)
    view = memoryview(len(data).to_bytes(8, "little") + data)
    while view:
        view = view[stream.write(view) :]
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Reads one message.

    Raises:
        EOFError: the other side is gone.
    """
    return pickle.loads(_exactly(stream, int.from_bytes(_exactly(stream, 8), "little")))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


#: The modules of magpy's functions that stand in graphs, and the mark of a node for one of them.
OWN = ("magpy.models.backward", "magpy.models.torch_ops")
TARGET = "magpy_target"


def _put_back(graph: Any) -> None:
    """Puts magpy's functions back into a graph that was sent."""
    found = [(n, n.meta[TARGET]) for n in graph.graph.nodes if TARGET in n.meta]
    for node, (module, name) in found:
        node.target = getattr(importlib.import_module(module), name)
    if found:
        graph.recompile()


def compile_request(request: dict[str, Any]) -> tuple[str, Any]:
    """The answer to one request.

    Asked for settings, it tells those of a process in which nothing has changed any.  Where it is
    asked for an artifact that is loaded without TorchInductor, and there is one, it is
    a `CodeAlone` (magpy/backends/code_alone.py).
    """
    import torch
    from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
    from torch._inductor import config
    from torch._inductor.utils import clear_caches
    from torch._subclasses import FakeTensorMode
    from torch.fx._graph_pickler import GraphPickler
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from magpy.backends import code_alone, direct_calls, settings
    from magpy.backends.inductor import STATIC_INPUTS, compile_graph, of_process

    if "settings" in request:
        return "ok", of_process()
    functorch: Any = torch._functorch.config
    # The kernels are found by the program's process in the directory that it uses, which may have
    # been emptied since the last request.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = request["cache"]
    clear_caches()
    try:
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        sent: Any = GraphPickler.loads(request["graph"], mode)
        graph, inputs = sent
        _put_back(graph)
        graph.meta[STATIC_INPUTS] = request["static"]
        settings.apply(request["state"])
    except Exception as e:  # noqa: BLE001 - the program's process compiles it then
        return "unable", f"{type(e).__name__}: {e}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(request["state"]["inference"]))
        # The order matters: what was asked for comes after what is the setting of the process.
        stack.enter_context(config.patch(request["inductor"]))
        stack.enter_context(functorch.patch(request["functorch"]))
        # An artifact holds everything that runs, the backward graph too; its key is never looked
        # up.
        stack.enter_context(
            functorch.patch(
                bundled_autograd_cache=True,
                bypass_autograd_cache_key=True,
                enable_autograd_cache=True,
                force_non_lazy_backward_lowering=True,
            )
        )
        torch.set_grad_enabled(request["state"]["pairs"]["grad"])
        try:
            with direct_calls.seen() as seen:
                compiled = compile_graph(graph, inputs, request["patches"], mode)
        except Exception as e:  # noqa: BLE001 - whatever the backend raises
            return "failed", f"{type(e).__name__}: {e}"
        _forget_unnamed(request["cache"])
        if request.get("alone"):
            alone = code_alone.taken_apart(direct_calls.graph_of(compiled, seen))
            if alone is not None:
                return "ok", alone
        try:
            bundle = BundledAOTAutogradSerializableCallable(compiled)
            return "ok", BundledAOTAutogradSerializableCallable.serialize_compile_artifacts(bundle)
        except Exception as e:  # noqa: BLE001 - what cannot travel
            return "unable", f"{type(e).__name__}: {e}"


def _forget_unnamed(cache: str) -> None:
    """Removes what AOTAutograd keeps of graphs for which it has no key: nobody would find it."""
    for path in Path(cache, "aotautograd").glob("0.*"):
        shutil.rmtree(path, ignore_errors=True)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(parent: int, niceness: int) -> None:
    """Serves requests until the pipe closes or the process `parent` is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is meant for the program
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(niceness)
    # What a compiler prints must not get between the messages.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - for the life of the process
    try:
        while True:
            request = receive(requests)
            try:
                answer = compile_request(request)
            except Exception as e:  # noqa: BLE001 - the program's process compiles it then
                answer = "unable", f"{type(e).__name__}: {e}"
            send(answers, answer)
    except (EOFError, BrokenPipeError):
        pass
