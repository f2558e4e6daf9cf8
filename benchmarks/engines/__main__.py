"""`python -m benchmarks.engines`."""

import sys

from benchmarks.engines.command import main

sys.exit(main())
