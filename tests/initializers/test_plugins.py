"""Initialisers from elsewhere: a file in the package, an entry point, a dotted path; and names that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from small_models import VIT, differing, refused, state, tiny
from torch import nn

import vitinit
from vitinit.benchmark.grids.fitting import misfit
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import methods, registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.mimetic import Mimetic
from vitinit.initializers.registry import Initializer
from vitinit.initializers.whole_model import WholeModel

PLUGIN = '''
"""Method `{name}`: W_proj of every layer is a scaled identity."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register


@register
class ScaledIdentity(Initializer):
    """W_proj = scale I."""

    name: ClassVar[str] = "{name}"
    touches: ClassVar[tuple[str, ...]] = ("*.attn.proj.weight",)
    deterministic: ClassVar[bool] = True

    scale: PositiveFloat = 0.5

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> Tensor | None:
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


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder on the path; discovery starts anew, and what is registered here is forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    monkeypatch.setattr(registry.REGISTRY, "searched", False)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_dropped_file_an_entry_point_and_a_dotted_path_are_found(
    discovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = discovery / "dropped"
    dropped.mkdir()
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(dropped)])  # as if the file lay in the package
    for file, name in (("dropped/dropped_file", "dropped"), ("their_package", "theirs"), ("dotted_module", "dotted")):
        (discovery / f"{file}.py").write_text(PLUGIN.format(name=name))
    # an undecorated class is enough behind an entry point
    (discovery / "bare.py").write_text(PLUGIN.format(name="bare").replace("@register\n", ""))
    entry_point(discovery, "their-package", "theirs", "their_package:ScaledIdentity")
    entry_point(discovery, "bare-package", "bare", "bare:ScaledIdentity")
    assert {"mimetic", "impulse", "dropped", "theirs", "bare"} < set(registry.names("method"))
    assert "dotted" not in registry.names(), "a dotted path is not searched for"
    for name in ("dropped", "theirs", "bare", "dotted_module:ScaledIdentity"):
        m = tiny()
        vitinit.initialize(m, name, scale=0.25)
        assert all(torch.equal(block.attn.proj.weight, 0.25 * torch.eye(48)) for block in m.blocks)


def one_line(says: str, ask: Callable[[], object]) -> str:
    with pytest.raises(VitinitError, match=says) as caught:
        ask()
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "value", "says"),
    [
        (None, "absent_module:Class", "'broken' .absent_module:Class. cannot be loaded: ModuleNotFoundError"),
        ("raise RuntimeError('two\\nlines')\n", "broken_plugin:Class", "loaded: RuntimeError: two lines"),
        ("raise SystemExit(3)\n", "broken_plugin:Class", "loaded: SystemExit: 3"),
        ("class Class: pass\n", "broken_plugin:Class", "broken_plugin:Class is not an Initializer class"),
        (
            PLUGIN.format(name="mimetic"),
            "broken_plugin:ScaledIdentity",
            "'mimetic': in vitinit.initializers.methods.mimetic.Mimetic and in broken_plugin",
        ),
    ],
)
def test_a_broken_entry_point_is_one_line_that_names_it(
    discovery: Path, source: str | None, value: str, says: str
) -> None:
    if source is not None:
        (discovery / "broken_plugin.py").write_text(source)
    entry_point(discovery, "broken-package", "broken", value)
    one_line(says, registry.names)


WHOLE: dict[str, Any] = {"name": "odd_in_a_test", "touches": ("*",), "apply": one_line}


@pytest.mark.parametrize(
    ("bases", "given", "says"),
    [
        ((Mimetic,), {"name": "impulse"}, "two initializers are called 'impulse'"),
        ((Initializer,), {"touches": ("*",), "apply": one_line}, "Odd needs name$"),
        ((Initializer,), {"name": "odd_in_a_test", "apply": one_line}, "Odd needs touches or sets$"),
        ((Initializer,), {**WHOLE, "sets": ("query", "q")}, "`sets` one of some of query, "),
        ((Initializer,), {**WHOLE, "touches": "*.weight"}, "`touches` must be a tuple of patterns"),
        ((WholeModel,), {"name": "odd_in_a_test"}, "Odd needs matrix$"),
    ],
)
def test_a_class_that_is_no_initialiser_is_refused(discovery: Path, bases: Any, given: Any, says: str) -> None:
    one_line(says, lambda: registry.register(type("Odd", bases, given)))
    assert registry.get("impulse").__qualname__ == "Impulse"
    assert registry.register(registry.get("impulse")) is registry.get("impulse"), "the same twice is no error"
    assert "odd_in_a_test" not in [one.name for one in vitinit.catalogue()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vitinit.initializers.methods.mimetic:Mimetik", "did you mean 'Mimetic'"),
        ("vitinit.initializers.methods.mimetic:split", "mimetic:split is not an Initializer class"),
        ("raising_plugin:Class", "^'raising_plugin:Class' cannot be loaded: RuntimeError: their import fails$"),
        ("qqqq", r"unknown initializer 'qqqq'; available: conditioned, .*impulse"),
        ("mimetc", "unknown initializer 'mimetc'; did you mean 'mimetic'.*kaiming_uniform"),
    ],
)
def test_a_wrong_name_is_one_line(discovery: Path, name: str, words: str) -> None:
    (discovery / "raising_plugin.py").write_text("raise RuntimeError('their import fails')\n")
    one_line(words, lambda: registry.get(name))


# --- what code of somebody's does ------------------------------------------------------------------------------------


class Ending(Initializer):
    """Ends the process, where it is told to."""

    name: ClassVar[str] = "ending_in_a_test"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    at: str = "apply"
    interrupted: bool = False

    def check(self, model: nn.Module) -> None:
        self.end(model, "check")

    def freeze(self, model: nn.Module) -> None:
        self.end(model, "freeze")

    def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
        self.end(model, "apply")

    def end(self, model: nn.Module, at: str) -> None:
        nn.init.zeros_(model.get_submodule("head").weight)  # type: ignore[arg-type]
        if at == self.at:
            raise KeyboardInterrupt if self.interrupted else SystemExit("3")


def test_a_method_does_not_end_the_process(discovery: Path) -> None:
    registry.register(Ending)
    for at in ("check", "apply", "freeze"):
        refused(tiny(), "raised SystemExit: 3, which would end the whole program", "ending_in_a_test", at=at)
    ending = InitializerSpec(name="ending_in_a_test", params={"at": "check"})
    assert "raised SystemExit" in misfit(VIT, InitializerSpec(name="zero"), ending)


def test_ctrl_c_stays_ctrl_c(discovery: Path) -> None:
    registry.register(Ending)
    m = tiny()
    before = state(m)
    with pytest.raises(KeyboardInterrupt):
        vitinit.initialize(m, "ending_in_a_test", interrupted=True)
    assert differing(before, state(m)) == set()


class Replacing(Initializer):
    """Assigns a parameter of another shape, and a default."""

    name: ClassVar[str] = "replacing_in_a_test"
    touches: ClassVar[tuple[str, ...]] = ("*",)

    def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
        torch.set_default_dtype(torch.float64)
        model.get_submodule("head").weight = nn.Parameter(torch.full((3, 49), 0.5))


def test_what_a_failed_method_has_replaced_is_put_back(discovery: Path) -> None:
    registry.register(Replacing)
    m = tiny()
    held = m.head.weight
    refused(m, "adds, removes or replaces 'head.weight'", "replacing_in_a_test")
    assert m.head.weight is held
    assert torch.get_default_dtype() == torch.float32
