"""Twins of code objects: the same program, with probes.

Owns the table of opcodes and the rewriting of bytecode; the only room that knows bytecode.  Does
not own the probes (csrc/interp/probes.cpp) nor what is made of what they see (magpy/capture).
"""
