"""Jobs carried out ahead: whatever ends them, no thread is left and nothing waits for ever."""

from __future__ import annotations

import threading

import pytest
import torch

from runners.loaders import ahead


def batch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batch")]


def test_results_are_in_order_on_one_thread_each_and_nothing_is_left():
    before = torch.get_num_threads()
    jobs = (lambda number=number: (number, torch.get_num_threads()) for number in range(7))
    assert list(ahead.carried_out(jobs, 3)) == [(number, 1) for number in range(7)]
    assert (torch.get_num_threads(), batch_threads()) == (before, [])


def test_one_who_takes_no_more_results_leaves_no_thread():
    results = ahead.carried_out((int for _ in range(100)), 2)
    assert next(results) == 0
    results.close()
    assert not batch_threads()


def test_an_interrupt_while_threads_gather_does_not_hang(monkeypatch):
    class Interrupted(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(ahead, "Barrier", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(ahead.carried_out(iter([int]), 2))
    assert not batch_threads()
