"""Initialisers from elsewhere: a file in the package, an entry point, a dotted path; and names that are wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from initializers import methods, registry
from initializers.errors import VitinitError
from initializers.methods.mimetic import Mimetic
from initializers.registry import Initializer
from initializers.whole_model import WholeModel
from tests.processes import ROOT, fresh

PLUGIN = '''
"""Method `{name}`: W_proj of every layer is a scaled identity."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from initializers.attention import attention_layers
from initializers.registry import Initializer, Progress, register


@register
class ScaledIdentity(Initializer):
    """W_proj = scale I."""

    name: ClassVar[str] = "{name}"
    touches: ClassVar[tuple[str, ...]] = ("*.attn.proj.weight",)
    deterministic: ClassVar[bool] = True

    scale: PositiveFloat = 0.5

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> Tensor | None:
        for layer in attention_layers(model):
            layer.proj_DD.copy_(self.scale * torch.eye(layer.proj_DD.shape[0]))
        return None
'''


def entry_point(folder: Path, project: str, name: str, value: str) -> None:
    """What `pip install` leaves behind: a dist-info folder with the entry point."""
    info = folder / f"{project}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vitinit.initializers]\n{name} = {value}\n")


def in_subprocess(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own with these folders on its path."""
    return fresh("-c", code, cwd=ROOT, path=(*path, ROOT))


def test_a_dropped_file_an_entry_point_and_a_dotted_path_are_found(tmp_path: Path) -> None:
    dropped, installed = tmp_path / "dropped", tmp_path / "installed"
    dropped.mkdir()
    installed.mkdir()
    (dropped / "dropped_file.py").write_text(PLUGIN.format(name="dropped"))
    (installed / "their_package.py").write_text(PLUGIN.format(name="theirs"))
    (installed / "dotted_module.py").write_text(PLUGIN.format(name="dotted"))
    # an undecorated class is enough behind an entry point
    (installed / "bare.py").write_text(PLUGIN.format(name="bare").replace("@register\n", ""))
    entry_point(installed, "their-package", "theirs", "their_package:ScaledIdentity")
    entry_point(installed, "bare-package", "bare", "bare:ScaledIdentity")
    done = in_subprocess(
        f"""
import json, torch
import initializers.methods
initializers.methods.__path__.append({str(dropped)!r})  # as if the file lay in the package
from initializers import registry
from initializers.initialize import initialize
from initializers.adapter import Adapter, Attention as Kind, fused, linear
from initializers.adapters.registry import register


class Attention(torch.nn.Module):  # all that a layer needs; timm takes ten seconds to import
    def __init__(self):
        super().__init__()
        self.num_heads, self.qkv, self.proj = 4, torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)


kind = Kind((Attention,), "num_heads", *fused("qkv.weight", "qkv.bias"), linear("proj"))
register(Adapter("ours", attention=(kind,)))

stream = lambda name: torch.Generator().manual_seed(0)
answer = {{"names": registry.names(), "methods": registry.names("method")}}
for name in ("dropped", "theirs", "bare", "dotted_module:ScaledIdentity"):
    m = torch.nn.ModuleDict({{"first": torch.nn.ModuleDict({{"attn": Attention()}})}})
    report, _ = initialize(m, registry.build("trunc_normal", {{}}), registry.build(name, {{"scale": 0.25}}), stream)
    assert torch.equal(m["first"]["attn"].proj.weight, 0.25 * torch.eye(8))
    answer[name] = report.method_parameters
print(json.dumps(answer))
""",
        installed,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {"kaiming_uniform", "mimetic", "impulse", "dropped", "theirs", "bare"} < set(answer["names"])
    assert "dotted" not in answer["names"], "a dotted path is not searched for"
    assert {"dropped", "theirs", "bare"} < set(answer["methods"])
    for name in ("dropped", "theirs", "bare", "dotted_module:ScaledIdentity"):
        assert answer[name] == ["first.attn.proj.weight"]


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder on the path; discovery starts anew, and what is registered here is forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    registry._discover.cache_clear()
    yield tmp_path
    registry._discover.cache_clear()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def one_line(caught: pytest.ExceptionInfo[VitinitError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (None, "absent_module:Class"),
        ("x = 1\n", "broken_plugin:Absent"),
        ("raise RuntimeError('two\\nlines')\n", "broken_plugin:Class"),
        ("def (:\n", "broken_plugin:Class"),
        ("Class = 3\n", "broken_plugin:Class"),
        ("class Class: pass\n", "broken_plugin:Class"),
        ("", "broken_plugin"),
    ],
    ids=["no-module", "no-class", "raises-two-lines", "syntax", "no-type", "other-class", "a-module"],
)
def test_a_broken_entry_point_is_one_line_that_names_it(discovery: Path, source: str | None, value: str) -> None:
    if source is not None:
        (discovery / "broken_plugin.py").write_text(source)
    entry_point(discovery, "broken-package", "broken", value)
    with pytest.raises(VitinitError, match=value) as caught:
        registry.names()
    one_line(caught)


def test_a_parameter_without_a_type_is_said_in_short(discovery: Path) -> None:
    source = PLUGIN.format(name="untyped").replace("scale: PositiveFloat = 0.5", "gain = 0.5")
    (discovery / "broken_plugin.py").write_text(source)
    with pytest.raises(VitinitError, match=r"^initializer 'b.*: gain: needs a type \(gain: float = 0.5\)$"):
        registry.get("broken_plugin:ScaledIdentity")
    entry_point(discovery, "broken-package", "broken", "broken_plugin:ScaledIdentity")
    registry._discover.cache_clear()
    with pytest.raises(VitinitError, match=r"^entry point 'broken' .*: gain: needs a type \(gain: float = 0.5\)$"):
        registry.names()


def test_a_file_among_ours_that_registers_nothing_is_named(discovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(discovery)])
    (discovery / "idv2.py").write_text(PLUGIN.format(name="idv2").replace("@register\n", ""))
    with pytest.raises(VitinitError, match=r"^initializers/methods/idv2.py registers nothing \(@register\); unknown"):
        registry.get("idv2")
    assert "mimetic" in registry.names(), "all others are there"


def test_an_entry_point_with_a_name_that_is_taken_is_an_error(discovery: Path) -> None:
    (discovery / "thief_plugin.py").write_text(PLUGIN.format(name="mimetic"))
    entry_point(discovery, "thief", "mimetic", "thief_plugin:ScaledIdentity")
    with pytest.raises(VitinitError, match="'mimetic'") as caught:
        registry.names()
    message = one_line(caught)
    assert "initializers.methods.mimetic.Mimetic" in message
    assert "thief_plugin.ScaledIdentity" in message


def test_registering_a_name_twice_is_an_error_and_the_same_class_twice_is_not(discovery: Path) -> None:
    class Twin(Mimetic):
        name: ClassVar[str] = "impulse"

    original = registry.get("impulse")
    with pytest.raises(VitinitError, match="two initializers are called 'impulse'"):
        registry.register(Twin)
    assert registry.get("impulse") is original
    assert registry.register(original) is original


def test_a_class_without_name_or_touches_is_refused(discovery: Path) -> None:
    class Nameless(Initializer):
        touches: ClassVar[tuple[str, ...]] = ("*",)

    class Touchless(Initializer):
        name: ClassVar[str] = "touchless"

    for cls, attribute in ((Nameless, "name"), (Touchless, "touches")):
        with pytest.raises(VitinitError, match=f"{cls.__name__}.*'{attribute}'"):
            registry.register(cls)


@pytest.mark.parametrize("sets", ["query", ("q",), ("query", "q")])
def test_a_class_that_sets_unknown_parts_is_refused(discovery: Path, sets: Any) -> None:
    given = {"name": "wrong", "touches": ("*",), "sets": sets, "apply": lambda *given: None}
    with pytest.raises(VitinitError, match="Wrong: `sets` must be a tuple of some of query, "):
        registry.register(type("Wrong", (Initializer,), given))
    assert "wrong" not in registry.names()


def test_a_class_that_cannot_initialise_is_refused(discovery: Path) -> None:
    class Idle(Initializer):
        name: ClassVar[str] = "idle"
        touches: ClassVar[tuple[str, ...]] = ("*",)

    class IdleBase(WholeModel):
        name: ClassVar[str] = "idle_base"

    for cls, missing in ((Idle, "apply"), (IdleBase, "embedding, linear")):
        with pytest.raises(VitinitError, match=f"{cls.__name__} must implement {missing}$"):
            registry.register(cls)
    assert not {"idle", "idle_base"} & set(registry.names())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent_module:Class", ["absent_module"]),
        ("initializers.methods.mimetic:Absent", ["Absent"]),
        ("initializers.methods.mimetic:split", ["not an Initializer"]),
        ("initializers.methods.mimetic:", ["initializers.methods.mimetic:"]),
        ("raising_plugin:Class", ["raising_plugin", "their import fails"]),
        (".mimetic:Mimetic", [".mimetic:Mimetic"]),
    ],
)
def test_a_bad_dotted_path_is_one_line(discovery: Path, name: str, words: list[str]) -> None:
    (discovery / "raising_plugin.py").write_text("raise RuntimeError('their import fails')\n")
    with pytest.raises(VitinitError) as caught:
        registry.get(name)
    message = one_line(caught)
    for word in words:
        assert word in message


def test_a_dotted_path_to_a_shipped_class_is_that_class() -> None:
    assert registry.get("initializers.methods.mimetic:Mimetic") is registry.get("mimetic")


def test_a_near_miss_is_answered_with_the_name_and_the_list() -> None:
    with pytest.raises(VitinitError, match="unknown initializer 'mimetc'; did you mean 'mimetic'") as caught:
        registry.get("mimetc")
    message = one_line(caught)
    for name in registry.names():
        assert name in message


def test_a_name_far_from_all_is_answered_with_the_list_set_off_from_it() -> None:
    with pytest.raises(VitinitError, match=r"unknown initializer 'qqqq'[;:,.] ?available: ") as caught:
        registry.get("qqqq")
    assert "did you mean" not in str(caught.value)


def test_a_base_is_no_method_and_a_method_no_base() -> None:
    with pytest.raises(VitinitError, match=r"'mimetic' is a method, not a base; .*kaiming_uniform, .*trunc_normal"):
        registry.get("mimetic", "base")
    with pytest.raises(VitinitError, match="'trunc_normal' is a base, not a method") as caught:
        registry.get("trunc_normal", "method")
    assert "impulse" in one_line(caught)
    with pytest.raises(VitinitError, match="unknown method 'mimetc'; did you mean 'mimetic'") as caught:
        registry.get("mimetc", "method")
    assert "kaiming_uniform" not in str(caught.value)
