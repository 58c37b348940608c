"""``python -m pitfall_lab`` is the console script ``pitfall-lab``."""

import sys

from pitfall_lab.cli import main

sys.exit(main())
