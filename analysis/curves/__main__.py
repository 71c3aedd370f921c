"""`python -m analysis.curves`."""

import sys

from analysis.curves import main

sys.exit(main())
