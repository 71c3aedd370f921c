"""Models that a placebo, or any method, has initialised."""

from __future__ import annotations

from typing import Any

from small_models import VIT, images, model, streams

from vitinit.initializers import registry
from vitinit.initializers.initialize import initialize
from vitinit.initializers.registry import Job
from vitinit.initializers.report import InitReport

JOB_WITH_IMAGES = Job(training_images=images)


def made(method: Any, spec: Any = VIT, seed: int = 0, **stream_of: Any) -> tuple[Any, InitReport]:
    """A model and its report; `method` is a name or a mapping, or None for the base alone."""
    m = model(spec)
    named = {"name": method} if isinstance(method, str) else method
    built = named and registry.build(named["name"], {k: v for k, v in named.items() if k != "name"}, "method")
    base = registry.build("kaiming_uniform", {})
    report, _ = initialize(m, base, built or None, streams(seed), images(8, seed=3), job=JOB_WITH_IMAGES)
    return m, report


def placebo(of: Any, keep: str = "spectrum") -> dict[str, Any]:
    return {"name": "placebo", "of": of, "keep": keep}
