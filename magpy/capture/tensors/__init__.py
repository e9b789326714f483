"""The record of tensor operations in a watched run.

Owns the torch function mode (recorder), calls that it does not hear of (unseen_calls), what becomes
of an operation (writer, data_forms), the operation at hand (operation), how it is performed
(performer), passes of autograd's engine (engine), tensors by identity, calls that are done as a
whole (opaque_calls), and what of the call's objects others may hold (escapes).  Does not own the
operations' data types (magpy/ir).
"""
