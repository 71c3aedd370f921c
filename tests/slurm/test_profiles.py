"""Profiles: what a file may say, and the sentence for what it may not."""

import re
from pathlib import Path

import pytest
import yaml

from slurm import profiles
from slurm.errors import SlurmError
from slurm.profiles import Profile, load


def from_text(tmp_path, text: str) -> Profile:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load(str(path))


def test_shipped_profiles_load_by_name():
    assert profiles.names() == ["account", "gpu", "single-node"]
    loaded = {name: load(name) for name in profiles.names()}
    assert {name: profile.name for name, profile in loaded.items()} == {name: name for name in loaded}
    assert (loaded["account"].tasks, loaded["account"].minutes) == (4, 1440)
    for name in profiles.names():  # every field they mention, commented out ones too
        text = (Path(profiles.__file__).parent / "profiles" / f"{name}.yaml").read_text()
        mentioned = set(re.findall(r"^(?:# )?([a-z_]+):", text, re.MULTILINE))
        assert mentioned <= Profile.model_fields.keys()


def test_no_profile_asks_for_the_defaults():
    profile = load(None)
    assert profile == Profile()
    assert (profile.name, profile.partition, profile.tasks, profile.minutes) == ("default", None, 1, 120)


def test_times_are_read_as_slurm_reads_them(tmp_path):
    assert yaml.safe_load("time: 2:00:00") == {"time": 7200}, "what plain YAML makes of it"
    for written, minutes in {
        "90": 90,
        "2:00:00": 120,
        "'2:00:00'": 120,
        "3:01": 4,
        "1-00:00:00": 1440,
        "1-1": 1500,
        "1-1:30": 1530,
        "0:150:00": 150,
    }.items():
        assert from_text(tmp_path, f"time: {written}").minutes == minutes


def test_processes_default_to_one_per_gpu():
    assert Profile(gpus=4, nodes=2).tasks == 8
    assert Profile(gpus=4, processes=1).tasks == 1


BAD = {
    "partitio: x": "unknown field 'partitio'; did you mean 'partition'? available: partition (default: None), acc",
    "name: x": "unknown field 'name'",
    "- 1": "expected a mapping of fields to values",
    "a: [": "while parsing",
    "time: soon": "time: expected minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS",
    "time: 2": "time: 2 is not longer than signal_seconds (120)",
    "cpus: 0": "cpus: ",
    "memory: lots": "memory: ",
    "partition: a b": "partition: ",
    "gpu_type: a100": "gpu_type: needs gpus of at least 1",
    "setup: module load x": "setup: ",
    "environment: {A-B: 1}": "environment: ",
    "sbatch: {cpus-per-task: 3}": "'cpus-per-task' is the field 'cpus' of the profile",
    "sbatch: {array: 0-3}": "'array' is set by submitting; not allowed: array, chdir",
    "sbatch: {--exclude: x}": "'--exclude' is not the long name of an option",
    "gpus: 1\nsbatch: {gres: 'gpu:1'}": "'gres' asks for GPUs a second time",
}


def test_bad_files_are_explained_in_one_line(tmp_path):
    for text, message in BAD.items():
        with pytest.raises(SlurmError) as caught:
            from_text(tmp_path, text)
        assert str(caught.value).startswith(f"profile {tmp_path / 'mine.yaml'}: ")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_unknown_names_and_files():
    with pytest.raises(SlurmError, match="unknown profile 'gpus'; did you mean 'gpu'. available: account, gpu, single"):
        load("gpus")
    with pytest.raises(SlurmError, match="profile nowhere.yaml: No such file or directory"):
        load("nowhere.yaml")


def test_numbers_may_stand_for_text(tmp_path):
    profile = from_text(tmp_path, "environment: {OMP_NUM_THREADS: 4}\nsbatch: {nice: 5, requeue: false}\nmemory: 500")
    assert profile.environment == {"OMP_NUM_THREADS": "4"}
    assert profile.sbatch == {"nice": 5, "requeue": False}
    assert profile.memory == "500"
