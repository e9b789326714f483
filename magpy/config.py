"""Settings of the whole process, changed by assignment: `magpy.config.max_entries = 4`.

Owns the values and their defaults, each read where it is used, and the way to the logger "magpy".
Does not own what is logged.  Environment: MAGPY_LOGS=guards,graph,mock,capture,miss,passes,
MAGPY_SKIP_PASSES=constant-checks,hoist-checks, MAGPY_VERIFY=1, MAGPY_SAVING=1.
"""

from __future__ import annotations

import logging
import os

from magpy.errors import OptionError

max_entries: int = 16
"""Entries that a compiled callable keeps before calls that fit none run eagerly."""

max_captures: int = 64
"""Watched calls of a compiled callable before calls that fit no entry run eagerly."""

max_refusals: int = 3
"""Captures in a row without an entry, after which a compiled callable is left alone."""

max_operations: int = 20000
"""Tensor operations of a call beyond which it runs eagerly: a graph of them would not pay."""

regions: bool = os.environ.get("MAGPY_REGIONS", "1") == "1"
"""Whether a callable that cannot be captured whole runs compiled around the lines that were refused
(environment: MAGPY_REGIONS=0 for not)."""

notice_slower: bool = os.environ.get("MAGPY_NOTICE_SLOWER", "1") == "1"
"""Whether some calls are timed, and a callable whose captured calls take longer than its own runs
eagerly from then on (environment: MAGPY_NOTICE_SLOWER=0 for not)."""

background_niceness: int = 10
"""How much the process that compiles for `background=True` gives way to others (`man 2 nice`); read
when it starts."""

saving: bool = os.environ.get("MAGPY_SAVING") == "1"
"""Whether captures are kept in a form that `magpy.save` can write (environment: MAGPY_SAVING=1).
It must be set before the calls whose entries are to be saved."""

LOG_TOPICS = ("guards", "graph", "mock", "capture", "miss", "passes")
"""What can be logged: the names in MAGPY_LOGS and in `logs`."""


def log_topics(text: str) -> frozenset[str]:
    """The topics that a text such as that of MAGPY_LOGS names.

    Raises:
        OptionError: it names something else.
    """
    named = [x.strip() for x in text.split(",") if x.strip()]
    for name in named:
        if name not in LOG_TOPICS:
            raise OptionError(
                f"MAGPY_LOGS names {name!r}; what can be logged: {', '.join(LOG_TOPICS)}"
            )
    return frozenset(named)


logs: frozenset[str] = log_topics(os.environ.get("MAGPY_LOGS", ""))
"""Topics that are logged, at the level INFO, to the logger "magpy"."""


def log(topic: str, text: str, *args: object) -> None:
    """Logs a text, formatted as by `logging`, if its topic is among `logs`.

    A program that has set up no logging of its own gets that of `logging.basicConfig`.
    """
    if topic not in logs:
        return
    logger = logging.getLogger("magpy")
    if not logger.hasHandlers():
        logging.basicConfig()
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    logger.info(text, *args)


skip_passes: frozenset[str] = frozenset(
    x.strip() for x in os.environ.get("MAGPY_SKIP_PASSES", "").split(",") if x.strip()
)
"""Optional passes that are left out, for debugging (magpy/replay/pipeline.py lists them)."""

verify: bool = bool(os.environ.get("MAGPY_VERIFY"))
"""Whether the operations of a capture are checked after every pass (magpy/ir/verify.py): what is
wrong with them is an `InternalError` in the call, also with `fullgraph=False`."""
