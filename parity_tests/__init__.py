"""ParityBench against magpy and others: does a compiled module do what eager does?

Owns: the runner (`python -m parity_tests`), its comparison with eager, the mutation check, its
report, and programs of our own in the same style (`parity_tests/programs`).  Does not own:
ParityBench itself, which is read from a checkout that the user names.
"""
