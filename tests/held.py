"""A base whose runs wait in the midst of training: whoever stops, kills or looks at one finds it there.

However fast the machine is and however late a test looks, such a run does not end by itself.
"""

import itertools
import os
import sys
import time
from pathlib import Path

from vitinit.initializers.bases.library_defaults import TruncNormal
from vitinit.runners.basics.setting import Stop

HELD = "tests.held:Held"
"""Name of the base in a grid."""
HOLD = "VITINIT_TEST_HOLD"
"""Environment variable with the path of a file: runs wait while it is there, unless they are asked to stop."""


class Held(TruncNormal):
    """`trunc_normal`, after so many steps of each session as `after` says with a wait."""

    name = "held"
    after: int = 7

    def freeze(self, model):
        super().freeze(model)
        steps, file = itertools.count(1), Path(os.environ.get(HOLD, ""))

        def wait(model, _):
            if model.training and next(steps) > self.after:
                stop = _stop_of_the_run()
                while file.is_file() and not stop.reason:
                    time.sleep(0.02)

        model.register_forward_pre_hook(wait)


def _stop_of_the_run():
    """Return what the run looks at between two steps, from the frames below."""
    frame = sys._getframe()
    while frame:
        if isinstance(found := frame.f_locals.get("stop"), Stop):
            return found
        frame = frame.f_back
    raise AssertionError("no run")
