"""The backends of a test that has many cases.

Owns: that each case runs with the backend that runs the recorded operations as they are, and one in
four, always the same ones, also with AOTAutograd, where its graph is made functional and is
partitioned. With `--long` all of them do.
"""

from __future__ import annotations

import pytest

SAMPLED_BACKENDS = ["eager", pytest.param("aot_eager", marks=pytest.mark.sampled(4))]
