"""Programs of our own in ParityBench's style: small modules, each one idiom found in the wild.

Owns: the programs, grouped by topic, each file ending in a `TESTCASES` list of (class, constructor
arguments, forward arguments, unused flag) as in ParityBench's files.  Does not own: how they are
run (`tests/parity/test_programs.py`, and
the runner: `python -m parity_tests --paritybench parity_tests/programs --split all`).
"""
