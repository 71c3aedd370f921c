"""YAML from a file as plain data: no code, no bombs. Imports no torch."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from initializers.errors import VitinitError

MAX_VALUES = 100_000
"""More values than any grid has. Aliases let a few lines name billions, which the first error would spell out."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML's own rule, which PyYAML breaks by taking the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and first.setdefault(key.value, key.start_mark) is not key.start_mark:
                lines = first[key.value].line + 1, key.start_mark.line + 1
                raise yaml.YAMLError(f"key {key.value!r} in line {lines[1]} is there already, in line {lines[0]}")
        return super().construct_mapping(node, deep)


def mapping(content: bytes, path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; the path is for the message only.

    Raises:
        VitinitError: it is no YAML or no mapping, it is nested too deeply, or it stands for too many values.
    """
    try:
        loaded = _Loader(content.decode("utf-8")).get_single_data()
        values = _count(loaded, {})
    except UnicodeDecodeError as error:
        raise VitinitError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise VitinitError(f"{path} is not YAML: {error}") from None
    except RecursionError:  # an alias inside of what it names has no end either
        raise VitinitError(f"{path} is nested too deeply") from None
    if values > MAX_VALUES:
        raise VitinitError(f"{path} stands for more than {MAX_VALUES:,} values, its aliases written out")
    if not isinstance(loaded, dict):
        raise VitinitError(f"{path} does not hold a mapping")
    return loaded


def _count(value: Any, known: dict[int, int]) -> int:
    """How many values this would be with every alias written out; each is looked at once."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(item, known) for item in inner)
    return known[id(value)]
