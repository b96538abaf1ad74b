"""`python -m gateway` is the command `tensorgate`."""

import sys

from gateway.cli import main

sys.exit(main())
