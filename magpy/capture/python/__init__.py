"""What the probes ask while the program runs: calls of C functions, effects, attributes, iteration.

Owns the answers to csrc/interp (callbacks; of values that differ from call to call: tracked,
varying, arrays, arithmetic; of memory from outside: buffers), what is done about each kind of C
function (c_calls, torch_calls), calls that are redone in each call (effects), and the state that
these share (run).  Does not own what C functions do (magpy/models) nor tensors
(magpy/capture/tensors).
"""
