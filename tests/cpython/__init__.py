"""CPython's own regression tests, run with every frame instrumented."""
