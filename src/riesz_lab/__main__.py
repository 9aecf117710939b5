"""`python -m riesz_lab` is the command `riesz`."""

import sys

from riesz_lab.cli import main

sys.exit(main())
