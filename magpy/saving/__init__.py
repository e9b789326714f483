"""Entries that travel: what a capture was about, written so that another process finds it again.

Owns naming the program's objects (places.py), captures as bytes (portable.py) and the file
(file.py).  Does not own what an entry is nor where loaded ones go (magpy/runtime/saved.py).
"""
