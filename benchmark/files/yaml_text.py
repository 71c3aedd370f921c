"""YAML from a file as plain data: no code. Imports no torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from vitinit.initializers.errors import VitinitError


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML's own rule, which PyYAML breaks by taking the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and first.setdefault(key.value, key.start_mark) is not key.start_mark:
                lines = first[key.value].line + 1, key.start_mark.line + 1
                raise yaml.YAMLError(f"key {key.value!r} in line {lines[1]} is there already, in line {lines[0]}")
        return node


# As people write it, and as in YAML 1.2: to PyYAML, which reads YAML 1.1, 1e-3 is a word.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def mapping(content: bytes, path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; the path is for the message only.

    Raises:
        VitinitError: it is no YAML or no mapping.
    """
    try:
        loaded = _Loader(content.decode("utf-8")).get_single_data()
    except UnicodeDecodeError as error:
        raise VitinitError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise VitinitError(f"{path} is not YAML: {_where(error)}") from None
    except ValueError as error:  # a number or a date that is none
        raise VitinitError(f"{path}: {error}") from None
    if not isinstance(loaded, dict):
        raise VitinitError(f"{path} does not hold a mapping")
    return loaded


def _where(error: yaml.YAMLError) -> str:
    """Return the position and kind of a YAML error, without the text of the line, which may be anything."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error).replace('in "<unicode string>", ', "")
    said = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    begun = error.context_mark
    return f"{said}, {error.context} from line {begun.line + 1} on" if begun and error.context else said
