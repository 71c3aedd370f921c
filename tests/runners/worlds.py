"""Several processes on this machine that do one thing together, as torchrun would start them."""

import itertools
import os
import pickle
import signal
import socket
import time
import traceback

import torch

from tests.processes import FORKS, PATIENCE
from vitinit.runners.basics.setting import SIGNALS


class Died:
    """The end of a process without a result."""

    def __init__(self, exitcode):
        self.exitcode = exitcode


def together(size, function, *arguments):
    """Call the function in `size` processes; return its results, or `Died`. It fails where one raises or hangs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(size):
        receiver, sender = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=_member, args=(rank, size, port, sender, function, arguments), daemon=True)
        process.start()
        sender.close()
        started.append((receiver, process))
    deadline, results = time.monotonic() + PATIENCE, []
    try:
        for receiver, process in started:
            try:
                assert receiver.poll(max(0.0, deadline - time.monotonic())), "it hangs"
                result = pickle.loads(receiver.recv_bytes())
            except EOFError:
                process.join(PATIENCE)
                result = Died(process.exitcode)
            assert not isinstance(result, str), result
            results.append(result)
    finally:
        for _, process in started:
            process.join(0 if len(results) < size else PATIENCE)
            process.kill()
    return results


def _member(rank, size, port, sender, function, arguments):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the fork server may be that of a launch, which blocks them
    torch.set_num_threads(1)
    try:
        result = function(*arguments)
    except BaseException:
        result = traceback.format_exc()
    sender.send_bytes(pickle.dumps(result))  # not torch's way, whose tensors live as long as their process


def at_call(number, function, strike):
    """The function, and before its n-th call from now on something else."""
    calls = itertools.count(1)

    def counted(*arguments, **named):
        if next(calls) == number:
            strike()
        return function(*arguments, **named)

    return counted
