"""Regular expressions with possessive quantifiers, on every Python that has them."""

import re
import sys
from typing import AnyStr

_WORKS = sys.version_info >= (3, 11, 5)


def compiled(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern compiled, its possessive quantifiers greedy where they do not work.

    NOTE: before Python 3.11.5 a possessive quantifier loses matches of a group that has tried two ways
    (python/cpython#106052). Debian 12 has 3.11.2. Use it only for grammars in which giving back never helps: there a
    greedy quantifier finds the same, at the cost of memory for each repetition.
    """
    return re.compile(pattern if _WORKS else greedy(pattern), flags)


def greedy(pattern: AnyStr) -> AnyStr:
    """The pattern with greedy quantifiers for possessive ones."""
    if isinstance(pattern, bytes):
        return re.sub(rb"(\\.)|([*+?}])\+", lambda found: found[1] or found[2], pattern)
    return re.sub(r"(\\.)|([*+?}])\+", lambda found: found[1] or found[2], pattern)
