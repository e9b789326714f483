"""Mock code: how the result and the effects of a captured call are redone."""
