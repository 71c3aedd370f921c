"""Two and three processes on the CPU (gloo) against one: the same numbers, stopped, resumed, failing."""

import pytest
import torch

from tests.faults import harness
from tests.runners import small_run
from tests.runners.training.test_train import MODEL, initialised, split
from tests.runners.worlds import together
from vitinit.benchmark.image_files.arrays import Data
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Execution, Stop, Stopped, check_execution
from vitinit.runners.loaders.base import ResidentLoader
from vitinit.runners.training import distributed, train

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")


RECIPE = small_run.recipe(**small_run.EVERYTHING["processes"])


class Precise(ResidentLoader):
    def normalise(self, images):
        return super().normalise(images).double()


def begun(world, recipe=RECIPE, dtype=torch.float32, seed=0, model=MODEL, micro_batch=None):
    """A training in its process, and its images. All processes but the first begin with other weights.

    Of 1001 test images, one of two processes has two batches, the other one.
    """
    data = Data(split(50, 0), split(1001, 1), ("dark", "light"), (0.5,) * 3, (0.25,) * 3, "", 8)
    kind = Precise if dtype is torch.float64 else ResidentLoader
    loader = kind(data, recipe, 0, CPU, world)
    built = initialised(seed + world.rank, model=model).to(dtype)
    training = train.Training(built, recipe, loader.steps, CPU, world, micro_batch)
    training.loss_sum = training.loss_sum.to(dtype)
    training.load_state_dict(world.broadcast(training.state_dict()))
    return training, loader


def fitted(micro_batch, dtype, world=distributed.ALONE):
    """Weights and their average, curves and correct test images of a whole training."""
    training, loader = begun(world, dtype=dtype, micro_batch=micro_batch)
    train.train(training, loader, between_steps=lambda: world.agreed(Stop()))
    rows = [(row.train_loss, row.test_loss, row.test_top1, row.ema_loss, row.ema_score) for row in training.history]
    states = training.model.state_dict(), training.ema.module.state_dict()
    return torch.cat([tensor.flatten() for state in states for tensor in state.values()]), rows, training.correct


CASES = [(None, torch.float64), (2, torch.float64), (2, torch.float32)]


def in_a_world(cases):
    with distributed.joined("cpu") as world:
        return [fitted(*case, world) for case in cases]


@pytest.mark.long
def test_several_processes_compute_what_one_does():
    """Batches of 9 and a test split of 1001: shares are uneven. Augmented, clipped, labels smoothed, averaged.

    In float64 the weights differ by float64's rounding, so what is left in float32 is rounding too. Measured after 10
    steps: at most 7e-16 and 3e-7 in weights of size 1, 2e-7 in curves (losses of the test split are always computed in
    float32).
    """
    ranks = together(2, in_a_world, CASES)
    for number, (micro_batch, dtype) in enumerate(CASES):
        weights, rows, correct = fitted(4 if micro_batch else None, dtype)  # 9 = 4 + 4 + 1
        exactly = fitted(None, torch.float64)[0] if dtype is torch.float64 else weights
        torch.testing.assert_close(weights, exactly, rtol=0, atol=1e-13)
        for rank in ranks:
            found, curves, as_correct = rank[number]
            torch.testing.assert_close(found, weights, rtol=0, atol=1e-13 if dtype is torch.float64 else 5e-6)
            torch.testing.assert_close(torch.tensor(curves), torch.tensor(rows), rtol=0, atol=5e-6)
            assert as_correct == correct, "other test images are correct"
            assert torch.equal(found, ranks[0][number][0]), "the ranks differ"


def one_step_with_an_overflow(world):
    """fp16, and images in the last process that are too bright for it: whether the weights stay, and the scale."""
    training, loader = begun(world, RECIPE.model_copy(update={"precision": "fp16"}))
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    parallel = train.warmed_up(world.parallel(training.model), training, loader.image_size)
    images, labels = next(loader.train(0))
    images = images * (1e30 if world.rank == world.size - 1 else 1)
    train.update(training, parallel, (images, labels), 0)
    after = training.model.state_dict()
    return all(torch.equal(after[name], tensor) for name, tensor in before.items()), training.scaler.get_scale()


def stopped_and_taken_up_again(world):
    """Stop a training after three steps and resume it; return True if it ends with the bits of one that was not."""
    big = MODEL.model_copy(update={"width": 96})  # more than one bucket of gradients
    whole, loader = begun(world, model=big)
    train.train(whole, loader)
    first, loader = begun(world, model=big)

    def stop():
        if first.step == 3:
            raise Stopped

    with pytest.raises(Stopped):
        train.train(first, loader, between_steps=stop)
    second, _ = begun(world, seed=7, model=big)
    second.load_state_dict(first.state_dict())
    train.train(second, loader)
    expected, found = whole.model.state_dict(), second.model.state_dict()
    return all(torch.equal(expected[name], tensor) for name, tensor in found.items())


def agreed(world):
    """Why to stop before one of them is asked to, and after."""
    stop = Stop()
    before = world.agreed(stop)
    if world.rank == 1:
        stop.request("SIGTERM")
    return before, world.agreed(stop)


def all_that_three_try():
    with distributed.joined("cpu") as world:
        tries = [one_step_with_an_overflow, stopped_and_taken_up_again, agreed]
        return [world.threads, *(function(world) for function in tries)]


@pytest.mark.long
def test_three_processes_agree():
    for rank, (threads, overflow, same_bits, stop) in enumerate(together(3, all_that_three_try)):
        assert threads == max(1, len(distributed.usable_cores()) // 3)
        assert overflow == (True, 2.0**15), "an overflow in one process: none takes the step, all halve the scale"
        assert same_bits, f"rank {rank}: other bits after a resume"
        assert stop == ("", "SIGTERM" if rank == 1 else "SIGTERM in the process of rank 1")


def test_batches_that_batch_norm_needs_whole_are_not_cut(tmp_path):
    mixer, vit = (harness.cell_of(name, tmp_path).spec for name in ("convmixer", "mimetic"))
    two = Execution("cpu", 1, "inline", processes=2)
    with pytest.raises(VitinitError, match="a convmixer cannot be trained in parts of batches: its BatchNorm"):
        check_execution(mixer, two)
    check_execution(vit, two)
    check_execution(mixer, Execution("cpu", 1, "inline", micro_batch=14))


def test_each_process_takes_the_gpu_of_its_own_number_and_waits_for_half_an_hour_at_most(monkeypatch):
    """Or, where a task sees fewer, one of those."""
    for seen, index in ((4, 3), (2, 1), (1, 0)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda seen=seen: seen)
        assert distributed.World(7, 8, local_rank=3).device("cuda") == torch.device("cuda", index)
    assert distributed.TIMEOUT.total_seconds() <= 1800
