"""Where the program is: its lines, its frames, its signals.

Owns locations in messages (locations), the call sites that warnings and tracebacks name
(call_sites), frames made so that they stand at those sites (synthetic), and signals that arrive
while magpy works (signals).  Called by every room that tells the user something.
"""
