"""`python -m analysis.figures`."""

import sys

from analysis.figures import main

sys.exit(main())
