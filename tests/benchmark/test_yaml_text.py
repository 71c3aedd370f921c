"""Foreign YAML is data: it runs nothing, and a small file cannot stand for a large one."""

from __future__ import annotations

from pathlib import Path

from vitinit.benchmark.files.yaml_text import mapping

WHERE = Path("some/grid.yaml")


def bomb(depth: int) -> str:
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, depth)]
    return "\n".join(lines)


def test_aliases_and_merge_keys_may_be_used() -> None:
    text = "a: &a {b: 1, c: [1, 2.5, null]}\nd: *a\ne: {<<: *a, b: 3}"
    part = {"b": 1, "c": [1, 2.5, None]}
    assert mapping(text.encode(), WHERE) == {"a": part, "d": part, "e": {"b": 3, "c": [1, 2.5, None]}}
    assert len(mapping(bomb(3).encode(), WHERE)) == 3
