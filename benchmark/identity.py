"""Stability of run_ids while fields come and go: `identity.yaml`, and its two uses. Imports no torch."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vitinit.benchmark.files.yaml_text import read

TABLE = read(Path(__file__).with_name("identity.yaml"))


def current(owner: str, fields: Mapping[str, Any], known: Collection[str] = ()) -> dict[str, Any]:
    """Drop fields that hold their value of the table: today's default equals it, or the field no longer exists.

    Args:
        owner: what has the fields, as the table names it.
        fields: by name, those of an initialiser inside this one (`of`) too.
        known: fields that stay.
    """
    old = TABLE["came"].get(owner, {}) | TABLE["gone"].get(owner, {})
    rest = {name: value for name, value in fields.items() if name in known or name not in old or value != old[name]}
    if isinstance(of := rest.get("of"), dict):
        rest["of"] = current(f"initializer.{of.get('name')}", of)
    return rest


def hashed(owner: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as they are hashed: less those that came later, at their value, and with those that have gone."""
    came = TABLE["came"].get(owner, {})
    rest = {name: value for name, value in fields.items() if name not in came or value != came[name]}
    if isinstance(of := rest.get("of"), dict):
        rest["of"] = hashed(f"initializer.{of.get('name')}", of)
    return rest | TABLE["gone"].get(owner, {})
