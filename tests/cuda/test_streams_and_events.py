"""Streams and events: what a call launches, records and waits for, where it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import magpy
from tests.cuda.conftest import Counts
from tests.cuda.programs import same

if torch.cuda.is_available():
    SIDE = torch.cuda.Stream()
    EVENT = torch.cuda.Event()


def _x() -> tuple[Any]:
    return (torch.randn(2, 4, device="cuda"),)


def _event_of_the_call(x: Any) -> Any:
    e = torch.cuda.Event(enable_timing=True)
    e.record()
    y = x + 1
    e.synchronize()
    return y


def _event_from_outside(x: Any) -> Any:
    y = x + 1
    EVENT.record()
    return y


def _event_is_given_back(x: Any) -> Any:
    y = x + 1
    e = torch.cuda.Event()
    e.record()
    return y, e


def _stream_waits_for_a_stream(x: Any) -> Any:
    SIDE.wait_stream(torch.cuda.current_stream())
    return x + 1


def _stream_waits_for_an_event(x: Any) -> Any:
    torch.cuda.current_stream().wait_event(EVENT)
    return x + 1


def _stream_records_an_event(x: Any) -> Any:
    y = x + 1
    e = SIDE.record_event()
    e.wait()
    return y


def _device_synchronized(x: Any) -> Any:
    y = x + 1
    torch.cuda.synchronize()
    return y


def _stream_synchronized(x: Any) -> Any:
    y = x + 1
    torch.cuda.current_stream().synchronize()
    return y


def _event_queried(x: Any) -> Any:
    return x + 1 if EVENT.query() else x


def _under_a_stream(x: Any) -> Any:
    with torch.cuda.stream(SIDE):
        y = x + 1
    return y * 2


def _overlap(x: Any) -> Any:
    main = torch.cuda.current_stream()
    SIDE.wait_stream(main)
    with torch.cuda.stream(SIDE):
        y = x @ x.t()
        y.record_stream(main)
    z = x + 1
    main.wait_stream(SIDE)
    return y, z


def _record_under_a_stream(x: Any) -> Any:
    with torch.cuda.stream(SIDE):
        y = x + 1
        e = torch.cuda.Event()
        e.record()
    e.synchronize()
    return y


def _set_stream_and_back(x: Any) -> Any:
    before = torch.cuda.current_stream()
    torch.cuda.set_stream(SIDE)
    y = x + 1
    torch.cuda.set_stream(before)
    return y


def _ranges(x: Any) -> Any:
    torch.cuda.nvtx.range_push("a")
    y = x + 1
    torch.cuda.nvtx.range_pop()
    return y


def _given_to_the_operation(x: Any) -> Any:
    y = x + 1
    y.record_stream(SIDE)
    return y


@pytest.mark.parametrize(
    "f",
    [
        _event_of_the_call,
        _event_from_outside,
        _event_is_given_back,
        _stream_waits_for_a_stream,
        _stream_waits_for_an_event,
        _stream_records_an_event,
        _device_synchronized,
        _stream_synchronized,
        _event_queried,
        _under_a_stream,
        _overlap,
        _record_under_a_stream,
        _set_stream_and_back,
        _ranges,
        _given_to_the_operation,
    ],
)
@torch.no_grad()
def test_a_served_call_does_with_queues_what_eager_does(
    f: Callable[..., Any], counts: Counts
) -> None:
    same(f, _x, counts)


def test_streams_and_events_may_be_arguments(counts: Counts) -> None:
    def f(x: Any, stream: Any, event: Any) -> Any:
        with torch.cuda.stream(stream):
            y = x + 1
        event.record(stream)
        return y

    same(f, lambda: (*_x(), SIDE, EVENT), counts)


def test_a_stream_that_is_another_one_is_another_case() -> None:
    def f(x: Any, stream: Any) -> Any:
        with torch.cuda.stream(stream):
            return x + 1, torch.cuda.current_stream().stream_id

    compiled = magpy.compile(f, backend="eager")
    other = torch.cuda.Stream()
    x = torch.randn(2, device="cuda")
    for stream in (SIDE, SIDE, other, other, SIDE):
        assert compiled(x, stream)[1] == stream.stream_id
    assert magpy.stats(compiled).eager_calls == 0


def test_the_current_stream_is_whatever_it_is_in_each_call(counts: Counts) -> None:
    compiled = magpy.compile(lambda x: x + 1, backend="eager")
    x = torch.randn(2, device="cuda")
    compiled(x)
    with torch.cuda.stream(SIDE):
        compiled(x)
    compiled(x)
    assert magpy.stats(compiled).hits == 2


def test_a_stream_that_the_call_makes_is_refused_with_a_remedy() -> None:
    def f(x: Any) -> Any:
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            y = x + 1
        torch.cuda.current_stream().wait_stream(s)
        return y

    stats = same(f, _x, captured=False)
    assert "a stream is made in the call" in stats.reasons[-1]


def test_the_time_between_events_is_of_each_call() -> None:
    def f(x: Any) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y = x + 1
        end.record()
        end.synchronize()
        return y, start.elapsed_time(end)

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(2, device="cuda")
    for _ in range(4):
        assert isinstance(compiled(x)[1], float)
    assert magpy.stats(compiled).hits == 3


def test_an_events_number_is_not_what_it_was() -> None:
    def f(x: Any) -> Any:
        e = torch.cuda.Event()
        e.record()
        return x + 1, e.cuda_event

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        compiled(torch.randn(2, device="cuda"))
    assert magpy.stats(compiled).hits == 0


@pytest.mark.skipif(not hasattr(torch.Stream, "is_capturing"), reason="not before torch 2.14")
def test_a_stream_is_asked_whether_a_cuda_graph_is_recorded(counts: Any) -> None:
    """Optimizers do so in each step."""

    def f(x: Any) -> Any:
        y = x * 2
        if torch.accelerator.current_stream().is_capturing():
            return y
        return y + 1

    same(f, lambda: (torch.randn(3, device="cuda"),), counts)
