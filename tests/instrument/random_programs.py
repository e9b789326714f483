"""Random small Python functions that tell what they do, for tests of the splitter.

Owns the generator and the running of what it gives. Does not own how a function is split
(tests/cpython/drivers.py). Every block kind of Python stands in these functions; `t(k, ...)` logs
its arguments, raises at a chosen step, and ends what does not end.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import types
from collections.abc import Callable
from typing import Any

NAMES = ("a", "b", "c", "d", "x", "y")
BOUND = ("a", "b", "c", "d")  # at the start, mostly
MOST_STEPS = 120


class Program:
    """Writes one module with a function `main(a, b)`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.kind = chance.choice(
            ["plain"] * 5 + ["generator", "async", "async generator", "method"]
        )
        self.steps = 0
        self.globals = chance.random() < 0.2
        self.free = chance.random() < 0.3

    def text(self) -> str:
        """The module."""
        body = ["h = lambda: t(0, x, y)"] if self.chance.random() < 0.4 else []
        body += self.block(2 + self.chance.randrange(3), 0, loop=False, handler=False, inner=False)
        head = ["c = t(1, 3)", "d = t(1, a + 1)"] if self.chance.random() < 0.9 else []
        if self.globals:
            head.insert(0, "global g0")
        if self.free and self.chance.random() < 0.5:
            head.insert(0, "nonlocal n0")
        asynchronous = "async " if self.kind.startswith("async") else ""
        define = f"{asynchronous}def main({'self, ' if self.kind == 'method' else ''}a, b=2):"
        if "generator" in self.kind:
            body.append("yield t(0, 0)")
        function = [define, *(f"    {line}" for line in [*head, *body])]
        if self.kind == "method":
            function = ["class K(Base):", *(f"    {line}" for line in function), "main = K(3).main"]
        if self.free:
            function = [
                *("def outer():", "    n0 = 5"),
                *(f"    {line}" for line in function),
                *("    keep(lambda: n0)", "    return main", "main = outer()"),
            ]
        return "\n".join(function) + "\n"

    def step(self) -> int:
        self.steps += 1
        return self.steps

    def name(self) -> str:
        names = [
            *NAMES,
            *(BOUND * 6),
            *(["g0"] if self.globals else []),
            *(["n0"] if self.free else []),
        ]
        return self.chance.choice(names)

    def expression(self, depth: int = 0, *, inner: bool = False) -> str:
        """An expression; `inner`: in a scope within, where nothing can be awaited."""
        if depth > 1 or self.chance.random() < 0.2:
            return self.chance.choice(
                [str(self.chance.randrange(4)), self.name(), self.name(), self.name(), "g0"]
            )

        def e() -> str:
            return self.expression(depth + 1, inner=inner)

        def within() -> str:
            return self.expression(depth + 1, inner=True)

        n = self.step()
        forms: list[Callable[[], str]] = [
            *[lambda: f"t({n}, {e()})"] * 6,
            lambda: f"t({n}, {e()}, *[{e()}, {e()}])",
            lambda: f"t({n}, *seq({n}, [{e()}]), k=t({n}, {e()}))",
            lambda: f"t({n}, {e()}, k={e()})",
            *[lambda: f"({e()} + {e()})"] * 3,
            lambda: f"({e()} - {e()})",
            lambda: f"({e()} < {e()})",
            lambda: f"({e()} < {e()} < {e()})",
            lambda: f"({e()} and {e()})",
            lambda: f"({e()} or {e()})",
            lambda: f"(not {e()})",
            lambda: f"({e()} if {e()} else {e()})",
            lambda: f"t({n}, [{e()}, {e()}])",
            lambda: f"t({n}, ({e()}, {e()}))",
            lambda: f"t({n}, {{'k': {e()}, 'm': {e()}}})['k']",
            lambda: f"[{e()}, {e()}][t({n}, 0)]",
            lambda: f"len(f'{{{self.name()}}}')",
            lambda: f"({self.chance.choice(NAMES)} := {e()})",
            lambda: f"(lambda: {within()})()",
            lambda: f"t({n}, keep(lambda: {within()}))",
            lambda: f"t({n}, [{within()} for {self.chance.choice(NAMES)} in (1, t({n}, 2))])",
            lambda: f"sum({within()} for i in (1, 2))",
            lambda: f"t({n}, keep({within()} for i in (1, 2)))",
            lambda: f"bump({n})",
            lambda: f"o.value + {e()}",
            lambda: f"o.method({e()}, {e()})",
            lambda: f"o.set({n}, {e()})",
        ]
        if self.kind == "method" and not inner:
            forms += [lambda: f"super().method({e()})", lambda: f"self.method({e()})"] * 2
            forms += [lambda: "__class__.__name__"]
        if self.kind == "async" and not inner:
            forms += [lambda: f"(await ready({e()}))"] * 4
        if self.kind == "generator" and not inner:
            forms += [lambda: f"(yield {e()})"] * 4 + [lambda: f"(yield from ({e()}, {e()}))"]
        return self.chance.choice(forms)()

    def block(self, count: int, depth: int, *, loop: bool, handler: bool, inner: bool) -> list[str]:
        """Statements."""
        out: list[str] = []
        for _ in range(count):
            out += self.statement(depth, loop, handler, inner)
        return out

    def statement(self, depth: int, loop: bool, handler: bool, inner: bool) -> list[str]:
        def e() -> str:
            return self.expression(inner=inner)

        def body(*, loop: bool = loop, handler: bool = handler, inner: bool = inner) -> list[str]:
            lines = self.block(
                1 + self.chance.randrange(2), depth + 1, loop=loop, handler=handler, inner=inner
            )
            return [f"    {line}" for line in lines]

        def several() -> list[str]:
            lines = self.block(4, 2, loop=False, handler=False, inner=inner)
            return [f"    {line}" for line in lines]

        n, v, w = self.step(), self.chance.choice(NAMES), self.chance.choice(NAMES)
        simple: list[Callable[[], list[str]]] = [
            *[lambda: [f"{v} = {e()}"]] * 8,
            lambda: [f"{v} = {w} = {e()}"],
            *[lambda: [f"{self.name()} += {e()}"]] * 2,
            lambda: [f"{v}, {w} = {e()}, {e()}"],
            lambda: [f"{v}, *{w} = seq({n}, [{e()}, 1])"],
            lambda: [f"{v}, ({w}, *a) = {e()}, seq({n}, [{e()}] * {self.chance.randrange(2)})"],
            lambda: [f"{v}: int = {e()}"],
            *[lambda: [f"t({n}, {', '.join(BOUND)})"]] * 3,
            lambda: [f"h = lambda: t({n}, {v}, {self.name()})"],
            *[lambda: [f"{v} = h()"]] * 2,
            lambda: [f"{v}: int"],
            lambda: [f"o.value = {e()}"],
            lambda: [f"o.value += {e()}"],
            lambda: [f"o.items[t({n}, 0)] += {e()}"],
            lambda: [f"o.items[t({n}, 0)] = {e()}"],
            lambda: [f"del {v}"],
            *[lambda: [f"t({n}, {e()})"]] * 6,
            lambda: [e()],
            lambda: [f"assert {e()}, t({n}, 0)"],
            lambda: [f"from posix import O_RDWR as {v}"],
            lambda: ["pass"],
            lambda: ["raise" if handler else f"if {e()} == 2: raise Boom({e()})"],
            lambda: [f"if {e()}:", f"    return {'' if self.kind == 'async generator' else e()}"],
            lambda: [f"if {e()}:", f"    {'break' if loop else 'pass'}"],
            lambda: [f"if {e()}:", f"    {'continue' if loop else 'pass'}"],
        ]
        if not inner and "generator" in self.kind:
            simple += [lambda: [f"yield {e()}"]] * 4
        if depth > 1:
            return self.chance.choice(simple)()
        else_loop = ["else:", *body()] if self.chance.random() < 0.2 else []
        cases = [f"    case {p}:" for p in ("0", f"[{v}, *{w}]", f"int({v})", f"{{'k': {v}}}", "_")]
        case = iter(cases[self.chance.randrange(3) :])
        begin, made = self.parameters(v)
        suppressed = f"{self.chance.choice(['suppress(Boom)', 'suppress(Boom)', f'cm({n})'])}"
        handlers = [
            *(f"except {self.chance.choice(['Boom', 'Exception', 'TypeError'])}", ":", " as e:")
        ]
        blocks: list[Callable[[], list[str]]] = [
            *[lambda: [f"if {e()}:", *body(), "else:", *body()]] * 2,
            lambda: [f"if {e()}:", *body(), f"elif {e()}:", *body()],
            lambda: [f"for {v} in seq({n}, [1, {e()}]):", *body(loop=True), *else_loop],
            lambda: [f"for {v} in seq({n}, (1, 2, 3)):", *body(loop=True), *else_loop],
            lambda: [f"while t({n}, {e()}):", *body(loop=True), *else_loop],
            lambda: [f"with {suppressed}:", *body()],
            lambda: [f"with cm({n}) as {v}, cm({e()}) as {w}:", *body()],
            lambda: ["try:", *body(), handlers[0] + ":", *body(handler=True)],
            *[lambda: ["try:", *several(), "except Boom:", *body(handler=True)]] * 3,
            lambda: ["with suppress(Boom):", *several()],
            lambda: [
                *(f"for {v} in seq({n}, (1, 2, 3)):", "    try:"),
                *(f"    {line}" for line in several()),
                "    except Boom: continue",
            ],
            lambda: [
                *("try:", *body(), handlers[0] + handlers[2]),
                *(f"    {v} = t({n}, type(e).__name__)", *body(handler=True)),
            ],
            lambda: ["try:", *body(), "finally:", *body()],
            lambda: [
                *("try:", *body(), handlers[0] + ":", *body(handler=True)),
                *("else:", *body(), "finally:", *body()),
            ],
            lambda: [
                f"match {e()}:",
                *(x for c in case for x in (c, *(f"    {b}" for b in body()))),
            ],
            *[
                lambda: [
                    f"def {w}({begin}):",
                    *(f"    {m}" for m in made),
                    *(body(loop=False, handler=False, inner=True)),
                    *([f"keep({w})"] if self.chance.random() < 0.5 else [f"{v} = {w}(1)"]),
                ]
            ]
            * 2,
            lambda: [f"class {w}:", f"    {v} = {self.expression(inner=True)}", f"t({n}, {w}.{v})"],
        ]
        if self.kind.startswith("async") and not inner:
            blocks += [
                lambda: [f"async with acm({n}) as {v}:", *body()],
                lambda: [f"async for {v} in ticks({n}):", *body(loop=True), *else_loop],
            ]
        return self.chance.choice([*simple, *blocks])()

    def parameters(self, v: str) -> tuple[str, list[str]]:
        """Those of an inner function, and its declarations."""
        if v in ("a", "b") or self.chance.random() < 0.5:
            return f"{v}=1", []
        return "q=1", [f"nonlocal {v}"]


def program(chance: random.Random) -> str:
    """The text of a random module that compiles."""
    while True:
        text = Program(chance).text()
        try:
            compile(text, "?", "exec", dont_inherit=True)
        except SyntaxError:
            continue
        return text


class Boom(Exception):
    """Raised by a step."""


class Over(BaseException):
    """The program has run for long enough."""


class Object:
    """Something with attributes."""

    def __init__(self, log: Callable[..., Any]) -> None:
        self.value = 1
        self.items = [1, 2]
        self.log = log

    def method(self, *args: Any) -> Any:
        """Logs a call."""
        return self.log("method", self.value, *args)

    def set(self, step: int, value: Any) -> Any:
        """Changes an attribute."""
        self.value = value
        return self.log("set", step, value)


def shown(value: Any, depth: int = 0) -> Any:
    """A value, for comparison: without addresses."""
    if isinstance(value, (bool, int, str, float, type(None))):
        return value
    if isinstance(value, (list, tuple)) and depth < 4:
        return [type(value).__name__, *(shown(v, depth + 1) for v in value)]
    if isinstance(value, dict) and depth < 4:
        return [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, (types.FunctionType, type)):
        return f"{type(value).__name__} {value.__qualname__}"
    return type(value).__name__


def outcome(code: types.CodeType, fail_at: int) -> list[Any]:
    """What a program does.

    Args:
        code: of the module.
        fail_at: the step that raises.
    """
    log: list[Any] = []
    kept: list[Any] = []

    def t(step: Any, *values: Any, k: Any = None) -> Any:
        log.append((shown(step), *map(shown, values), shown(k)))
        if len(log) > MOST_STEPS:
            raise Over
        if len(log) == fail_at:
            raise Boom(f"at {step}")
        return next((v for v in values[::-1] if isinstance(v, (int, dict))), len(log))

    def seq(step: Any, values: Any) -> Any:
        for value in values:
            t(step, value)
            yield value

    def keep(value: Any) -> Any:
        kept.append(value)
        return value

    def bump(step: int) -> int:
        space["g0"] += 1
        return int(t(step, space["g0"]))

    @contextlib.contextmanager
    def cm(step: Any) -> Any:
        t("enter", step)
        try:
            yield step
        except Boom:
            if isinstance(step, int) and step % 2:
                raise
        finally:
            log.append(("exit", shown(step)))

    @contextlib.asynccontextmanager
    async def acm(step: Any) -> Any:
        with cm(step) as value:
            yield value

    async def ready(value: Any) -> Any:
        return t("ready", value)

    async def ticks(step: int) -> Any:
        for i in range(2):
            yield t(step, i)

    space: dict[str, Any] = {
        **{"t": t, "seq": seq, "keep": keep, "bump": bump, "cm": cm, "acm": acm, "ready": ready},
        **{"ticks": ticks, "suppress": contextlib.suppress, "Boom": Boom, "g0": 7, "o": Object(t)},
        **{"Base": Object, "__name__": "program"},
    }
    space["Base"] = type("Base", (Object,), {"__init__": lambda s, v: Object.__init__(s, t)})

    def run(call: Callable[[], Any]) -> Any:
        try:
            return shown(driven_to_the_end(call(), log))
        except (Exception, Over) as e:
            return [type(e).__name__, str(e), *passed(e, code.co_filename)]

    def start() -> Any:
        exec(code, space)
        return space["main"](1)

    out = [run(start)]
    for value in kept[:20]:
        out.append(run(value if callable(value) else lambda value=value: value))
    return [out, log, shown(space["g0"]), shown(space["o"].value), shown(space["o"].items)]


def driven_to_the_end(value: Any, log: list[Any]) -> Any:
    """The result of a generator or a coroutine, which is given values and an exception."""
    if isinstance(value, types.AsyncGeneratorType):
        return driven_to_the_end(_all_of(value, log), log)
    if not isinstance(value, (types.GeneratorType, types.CoroutineType)):
        return value
    try:
        got = value.send(None)
        for i in range(20):
            log.append(("yields", shown(got)))
            got = value.throw(Boom("thrown")) if i == 3 else value.send(i)
    except StopIteration as e:
        return e.value
    value.close()
    return "closed"


async def _all_of(values: Any, log: list[Any]) -> None:
    async for v in values:
        log.append(("yields", shown(v)))


def passed(e: BaseException, file: str) -> list[Any]:
    """Where an exception has passed, and those that it came from."""
    frames = []
    trace = e.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == file:
            frames.append((code.co_qualname, trace.tb_lineno))
        trace = trace.tb_next
    if isinstance(e, UnboundLocalError) and frames:
        # In 3.11 a load that is done together with the store before is at the line of that.
        frames[-1] = (frames[-1][0], 0)
    before = e.__context__
    return [frames, type(before).__name__, str(before), e.__suppress_context__]


def remember(file: str, text: str) -> None:
    """Makes the source of a program known."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
