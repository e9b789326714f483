"""Python that runs where no probe looks: below operations, in the autograd engine, at a death.

Owns which of the program's functions may run there, what they can reach, and whether they changed
something.  Called by the recorder.
"""
