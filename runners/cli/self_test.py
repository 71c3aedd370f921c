"""The command `vitinit self-test`: does this machine train as it should?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from vitinit.runners.cli.run import resolve_device
from vitinit.runners.cli.run_options import DeviceOption


def self_test(device: DeviceOption = "auto") -> None:
    """Check in two minutes that this machine trains as it should: precisions, determinism, resuming, speed.

    Small runs on digits, in a folder that is removed afterwards. Send its output when you report a problem. Exit code
    1: a part has failed.
    """
    from vitinit.runners.launching.self_test import machine, self_test

    place = resolve_device(device, None)
    for line in machine(place):
        typer.echo(line)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for tried in self_test(place, Path(folder)):
            typer.echo(str(tried))
            failed += tried.result == "failed"
    raise typer.Exit(1 if failed else 0)
