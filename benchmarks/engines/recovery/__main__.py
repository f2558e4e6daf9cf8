"""`python -m benchmarks.engines.recovery`."""

import sys

from benchmarks.engines.recovery.command import main

sys.exit(main())
