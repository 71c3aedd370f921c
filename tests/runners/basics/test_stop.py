"""Requests to stop, by real signals to this process."""

import signal

import pytest

from vitinit.runners.basics.setting import Stop, on_signals

NUMBERS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def harmless():
    """A signal that is not handled ends nothing here; it is listed."""
    got = []
    before = {number: signal.signal(number, lambda number, _: got.append(number)) for number in NUMBERS}
    yield got
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_asks_for_a_stop_and_is_afterwards_what_it_was(number, harmless):
    stop = Stop()
    with on_signals(stop):
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
    assert (stop.reason, harmless) == (number.name, []), "the first reason stays"
    signal.raise_signal(number)
    assert harmless == [number]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_was_ignored_stays_ignored(number):
    """`nohup` ignores SIGHUP, a shell's `&` SIGINT."""
    signal.signal(number, signal.SIG_IGN)
    stop = Stop()
    with on_signals(stop):
        signal.raise_signal(number)
        assert (stop.reason, signal.getsignal(number)) == ("", signal.SIG_IGN)
        signal.raise_signal(signal.SIGTERM)
    assert (stop.reason, signal.getsignal(number)) == ("SIGTERM", signal.SIG_IGN)
