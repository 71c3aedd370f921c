"""Check of a profile against the cluster, before anything is queued."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitinit.slurm.command import call
from vitinit.slurm.errors import SlurmError
from vitinit.slurm.jobs import available
from vitinit.slurm.profiles import Profile, seconds
from vitinit.slurm.submit import script


@dataclass(frozen=True)
class Node:
    """Resources of a node of a partition, as sinfo shows them."""

    partition: str
    default: bool
    limit: str
    """Longest time of a job in the partition."""
    cpus: int
    megabytes: int
    features: frozenset[str]
    gpus: tuple[tuple[str, int], ...]
    """Type (may be empty) and number."""


def check(profile: Profile) -> list[str]:
    """Return what is wrong with a profile on this cluster, a line each; empty when it works.

    The cluster's own answers where it has any; last, sbatch is shown the very script that would be submitted.
    """
    wrong = list(_shell(profile))
    if not available():
        return [*wrong, "no cluster: there is no sbatch on the PATH, or its controller does not answer"]
    try:
        nodes = read_sinfo(_lines("sinfo", "--noheader", "--all", "--Node", "--format", "%P|%l|%c|%m|%f|%G"))
        wrong += _nodes(profile, nodes)
        wrong += _accounts(profile)
        return wrong or list(_sbatch(profile))
    except SlurmError as error:
        return [*wrong, str(error)]


def read_sinfo(lines: Iterable[str]) -> list[Node]:
    """The nodes of sinfo's rows: partition|time limit|cores|megabytes|features|generic resources."""
    nodes = []
    for line in lines:
        partition, limit, cpus, megabytes, features, resources = line.split("|", 5)
        gpus = [
            (found["type"] or "", int(found["number"]))
            for found in re.finditer(r"\bgpu(:(?P<type>[^:,()]+))?:(?P<number>\d+)(?=[(,]|$)", resources)
        ]
        known = frozenset() if features == "(null)" else frozenset(features.split(","))
        name = partition.rstrip("*")
        counts = int(cpus.rstrip("+")), int(megabytes.rstrip("+"))
        nodes.append(Node(name, name != partition, limit, *counts, known, tuple(gpus)))
    return nodes


def _lines(*command: str) -> list[str]:
    done = call(*command)
    return [] if done.returncode else done.stdout.splitlines()


def _shell(profile: Profile) -> Iterator[str]:
    done = subprocess.run(["bash", "-n"], input="\n".join(profile.setup), capture_output=True, text=True)
    if done.returncode:
        yield f"setup: not valid shell: {' '.join(done.stderr.split())}"


def _nodes(profile: Profile, nodes: list[Node]) -> Iterator[str]:
    partitions = sorted({node.partition for node in nodes})
    asked = (
        profile.partition.split(",") if profile.partition else [node.partition for node in nodes if node.default][:1]
    )
    for partition in asked:
        some = [node for node in nodes if node.partition == partition]
        if not some:
            yield f"partition: no {partition!r}; available: {', '.join(partitions)}"
        else:
            yield from _partition(profile, partition, some)
    features = set[str]().union(*(node.features for node in nodes))
    for word in re.findall(r"[^\s&|,\[\]()*!]+", profile.constraint or ""):
        if not word.isdigit() and word not in features:
            yield f"constraint: no node has {word!r}; available: {', '.join(sorted(features)) or 'none'}"


def _partition(profile: Profile, partition: str, nodes: list[Node]) -> Iterator[str]:
    where = f"of partition {partition!r}"
    limit = nodes[0].limit
    if limit not in ("infinite", "n/a") and profile.minutes * 60 > seconds(limit):
        yield f"time: {profile.time} is over the limit {where}, {limit}"
    if profile.nodes > len(nodes):
        yield f"nodes: {profile.nodes} is more than the {len(nodes)} {where}"
    cpus = profile.cpus * profile.processes_per_node
    if cpus > (most := max(node.cpus for node in nodes)):
        yield f"cpus: {profile.processes_per_node} processes x {profile.cpus} is more than any node {where} has, {most}"
    if megabytes(profile.memory) > (most := max(node.megabytes for node in nodes)):
        yield f"memory: {profile.memory} is more than any node {where} has, {most}M"
    if profile.gpus:
        yield from _gpus(profile, where, nodes)


def _gpus(profile: Profile, where: str, nodes: list[Node]) -> Iterator[str]:
    kinds = sorted({kind for node in nodes for kind, _ in node.gpus if kind})
    if profile.gpu_type and profile.gpu_type not in kinds:
        yield f"gpu_type: no node {where} has {profile.gpu_type!r}; available: {', '.join(kinds) or 'none'}"
        return
    most = max(sum(number for kind, number in node.gpus if profile.gpu_type in (None, kind)) for node in nodes)
    if profile.gpus > most:
        yield f"gpus: {profile.gpus} is more than any node {where} has, {most}"


def megabytes(memory: str | None) -> int:
    """Memory as sbatch takes it, in megabytes; none is 0."""
    if memory is None:
        return 0
    units = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
    return int(int(memory[:-1]) * units[memory[-1]] if memory[-1] in units else int(memory))


def _accounts(profile: Profile) -> Iterator[str]:
    """Nothing where there is no accounting."""
    known = {"account": ("show", "account", "format=account"), "qos": ("show", "qos", "format=name")}
    for field, command in known.items():
        asked = getattr(profile, field)
        names = sorted(set(_lines("sacctmgr", "--noheader", "--parsable2", *command)))
        if asked and names and asked not in names:
            yield f"{field}: no {asked!r}; available: {', '.join(names)}"


def _sbatch(profile: Profile) -> Iterator[str]:
    """Yield the answers of sbatch to the script itself (a dry run: nothing is queued)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.sh"
        path.write_text(script(profile, 2, Path(folder), "check", Path(folder)), encoding="utf-8")
        done = call("sbatch", "--test-only", str(path))
    if done.returncode:
        yield " ".join(done.stderr.split()) or f"sbatch --test-only ended with status {done.returncode}"
