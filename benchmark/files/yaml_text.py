"""YAML from a file as plain data: no code. Imports no torch."""

import io
import re
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from vitinit.benchmark.fields import spelled
from vitinit.benchmark.files import reading
from vitinit.initializers.errors import VitinitError, os_errors

MOST_VALUES = 100_000
"""Values that a file may hold. Each alias counts as what it stands for: nine lines can name billions."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML's own rule, which PyYAML breaks by taking the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[Any, yaml.Mark] = {}
        for key, _ in node.value:
            other = key.tag.endswith((":int", ":float", ":bool", ":null"))
            name, mark = self.construct_object(key) if other else spelled(str(key.value)), key.start_mark
            if first.setdefault(name, mark) is not mark:
                raise yaml.YAMLError(
                    f"key {name!r} in line {mark.line + 1} is there already, in line {first[name].line + 1}"
                )
        return node


class _Dumper(yaml.SafeDumper):
    """Puts words in quotes that `_Loader` would read as numbers."""


# As people write it, and as in YAML 1.2: to PyYAML, which reads YAML 1.1, 1e-3 is a word.
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float | str:
    """Return a number; or the word itself for 010, 0b11 and 1:30, to YAML 1.1 8, 3 and 90, and for endless ones."""
    if re.search(r"^[-+]?0[0-9_b]+$|:", node.value) or len(node.value) > 100:
        return node.value
    return loader.construct_yaml_int(node) if node.tag.endswith("int") else loader.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def mapping(content: bytes, path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; the path is for the message only.

    Raises:
        VitinitError: it is no YAML or no mapping.
    """
    try:
        stream = io.BytesIO(content)
        stream.name = path.name
        loader = _Loader(stream)
        root = loader.get_single_node()
        nodes, seen = [root], 0
        while nodes:
            node, seen = nodes.pop(), seen + 1
            if isinstance(node, yaml.SequenceNode):
                nodes += node.value
            elif isinstance(node, yaml.MappingNode):
                nodes += chain(*node.value)
            if seen + len(nodes) > MOST_VALUES:
                raise ValueError(f"holds more than {MOST_VALUES:,} values, each alias counted as what it stands for")
        loaded = loader.construct_document(root) if root else None
    # a date that is none, PyYAML's own for a tag like !!int "", and what is nested too deeply
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise VitinitError(f"{path} is not YAML: {error}") from None
    if not isinstance(loaded, dict):
        raise VitinitError(f"{path} does not hold a mapping")
    return loaded


def to_yaml(content: dict[str, Any]) -> bytes:
    """Return the content of a file that `mapping` reads as these values."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode()


def read(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file.

    Raises:
        VitinitError: it cannot be read, or holds no mapping.
    """
    with os_errors(f"cannot read {path}"):
        content = reading.read(path, reading.MIB, links=True)
    return mapping(content, path)
