"""Python that runs where no probe looks: below operations, in the autograd engine, at a death.

Owns whether functions of the program's would run there, which is refused, and what a library's
change.  Called by the recorder and by guards.
"""
