"""Twins of code objects: the same program, with probes.

Owns the table of opcodes, the rewriting of bytecode, and what is read off bytecode that does not
run: which names it touches, whether it catches exceptions, whether a key's methods only compute.
The only room that knows opcodes.  Beside twins it owns the splitting of functions into regions,
which is done on syntax trees (source, assignment, hoisting, regions, driver_code).  Does not own
the probes (csrc/interp/probes.cpp) nor what is made of what they see (magpy/capture).
"""
