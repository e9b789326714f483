"""What the probes ask while the program runs: calls of C functions, effects, attributes, iteration.

Owns the answers to csrc/interp (callbacks), what is done about each kind of C function (c_calls)
and calls that are redone in each call (effects).  Does not own what C functions do (magpy/models)
nor tensors (magpy/capture/tensors).
"""
