"""Small jobs carried out beside one another, some ahead of whoever takes their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

Result = TypeVar("Result")


def carried_out(
    jobs: Iterator[Callable[[], Result]], threads: int, ahead: int = 0, beside: bool = False
) -> Generator[Result, None, None]:
    """The results of the jobs, in order. However this ends, no thread is left.

    Operations on a batch of small images gain next to nothing from several threads each; batches beside one another,
    on one thread each, do. The jobs themselves are fetched in the thread that takes the results.

    Args:
        jobs: pure functions.
        threads: so many jobs at once; with 1, each is carried out when its result is asked for.
        ahead: so many jobs are begun before their results are asked for; 0: one for each thread.
        beside: one thread is one of its own too: whoever takes the results has other work.
    """
    if threads == 1 and not beside:
        for job in jobs:
            yield job()
        return
    under_way: deque[Future[Result]] = deque()
    pool, all_here = ThreadPoolExecutor(threads, thread_name_prefix="batch"), Barrier(threads + 1)
    before = torch.get_num_threads()

    def begin() -> None:
        torch.get_num_threads()  # a thread takes the process's number when it first asks, and only then keeps its own
        torch.set_num_threads(1)
        all_here.wait()

    try:
        for _ in range(threads):
            pool.submit(begin)
        all_here.wait()
        torch.set_num_threads(before)
        for job in jobs:
            under_way.append(pool.submit(job))
            if len(under_way) > (ahead or threads):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        all_here.abort()  # an interrupt while they gather would leave them waiting, and this waiting for them
        pool.shutdown(cancel_futures=True)
