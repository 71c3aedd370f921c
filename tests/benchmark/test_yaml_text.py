"""Foreign YAML is data: it runs nothing, and a small file cannot stand for a large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitinit.benchmark.files.yaml_text import MAX_VALUES, mapping
from vitinit.initializers.errors import VitinitError

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


def test_a_key_that_is_there_twice_is_an_error_that_says_where() -> None:
    """A copied row that nobody renamed: PyYAML alone would drop the first without a word."""
    for text, second, first in (
        ("rows:\n  A: {base: a}\n  A: {base: b}\n", 3, 2),
        ("{seeds: [0], title: a, seeds: [1]}", 1, 1),
        ("a: 1\n'a': 2", 2, 1),
    ):
        with pytest.raises(VitinitError, match=f"in line {second} is there already, in line {first}"):
            mapping(text.encode(), WHERE)


def test_an_alias_bomb_is_an_error_before_it_is_written_out() -> None:
    for depth in (6, 10, 500):
        with pytest.raises(VitinitError) as info:
            mapping(bomb(depth).encode(), WHERE)
        assert str(info.value) in (
            f"{WHERE} stands for more than {MAX_VALUES:,} values, its aliases written out",
            f"{WHERE} is nested too deeply",
        )


def test_what_is_no_plain_mapping_is_one_line() -> None:
    for text, message in (
        ("[" * 20_000, "is nested too deeply"),
        ("a: " + "{a: " * 5_000, "is nested too deeply"),
        ("a: &a [*a]", "is nested too deeply"),
        ("a: &a {b: {c: *a}}", "is nested too deeply"),
        ("- 1", "does not hold a mapping"),
        ("", "does not hold a mapping"),
        ("a:\n  - 1\n  - [1\nb: 2", "is not YAML: line 4, column 2: "),
        ('a: "\x00"', "is not YAML: "),
        ("a: 1\n\ta: 2", "is not YAML: "),
    ):
        with pytest.raises(VitinitError) as info:
            mapping(text.encode(), WHERE)
        assert message in str(info.value)
        assert str(info.value).isprintable()
    with pytest.raises(VitinitError, match="cannot read .*utf-8"):
        mapping(b"a: \xff\xfe", WHERE)


def test_tags_that_would_run_code_are_refused(tmp_path: Path) -> None:
    for value in (
        "!!python/object/apply:os.system ['touch {0}']",
        "!!python/object/new:subprocess.Popen [['touch', '{0}']]",
        "!!python/name:os.system ''",
        "!!python/module:os ''",
    ):
        with pytest.raises(VitinitError, match="is not YAML|constructor"):
            mapping(f"a: {value.format(tmp_path / 'owned')}".encode(), WHERE)
    assert not list(tmp_path.iterdir())
