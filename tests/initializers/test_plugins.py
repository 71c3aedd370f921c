"""Initialisers from elsewhere: a file in the package, an entry point, a dotted path; and names that are wrong."""

import math
import sys
from itertools import chain
from typing import ClassVar, get_args

import pytest
import torch
from small_models import differing, facts, global_state, refused, state, tiny
from torch import nn

import vitinit
from vitinit.initializers import methods, registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.mimetic import Mimetic
from vitinit.initializers.registry import Initializer, WeightName

PLUGIN = '''
"""Method `{name}`: W_proj of every layer is a scaled identity."""

from typing import ClassVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from vitinit.plugins import Initializer, Job, attention_layers, register


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


def entry_point(folder, project, name, value):
    """Write a dist-info folder with the entry point, as `pip install` does."""
    info = folder / f"{project}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vitinit.initializers]\n{name} = {value}\n")


@pytest.fixture
def discovery(monkeypatch, tmp_path):
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


def test_a_dropped_file_an_entry_point_and_a_dotted_path_are_found(discovery, monkeypatch):
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


@pytest.mark.parametrize(
    ("source", "value", "says"),
    [
        (
            "raise RuntimeError('two\\nlines')\n",
            "broken_plugin:Class",
            "'broken' .broken_plugin:Class. cannot be loaded: RuntimeError: two lines",
        ),
        ("raise SystemExit(3)\n", "broken_plugin:Class", "loaded: SystemExit: 3"),
        ("class Class: pass\n", "broken_plugin:Class", "broken_plugin:Class is not an Initializer class"),
        (
            PLUGIN.format(name="mimetic"),
            "broken_plugin:ScaledIdentity",
            "'mimetic': in vitinit.initializers.methods.mimetic.Mimetic and in broken_plugin",
        ),
    ],
)
def test_a_broken_entry_point_is_one_line_that_names_it(discovery, source, value, says):
    (discovery / "broken_plugin.py").write_text(source)
    entry_point(discovery, "broken-package", "broken", value)
    with pytest.warns(UserWarning, match=says):
        assert "mimetic" in registry.names(), "it is needed for nothing else"


def test_a_class_may_be_registered_again_and_say_what_it_sets():
    assert registry.register(registry.get("impulse")).__qualname__ == "Impulse"
    with pytest.raises(VitinitError, match="two initializers are called 'impulse'"):
        registry.register(type("Odd", (Mimetic,), {"name": "impulse"}))
    given = {"name": "even_in_a_test", "touches": ("*",), "sets": get_args(WeightName), "apply": lambda *_: None}
    registry.register(type("Even", (Initializer,), given))
    assert "even_in_a_test" in registry.names("method")


# --- what code of somebody's does ------------------------------------------------------------------------------------


class Scripted(Initializer):
    """Clears the head at every call; in one of them does what `script` says."""

    name: ClassVar[str] = "scripted"
    touches: ClassVar[tuple[str, ...]] = ("*.weight",)
    script: str = ""
    at: str = "apply"

    def check(self, model):
        self.act(model, "check")

    def freeze(self, model):
        self.act(model, "freeze")

    def apply(self, model, generator, job):
        self.act(model, "apply")

    @torch.no_grad()
    def act(self, model, at):
        model.head.weight.zero_()
        script = self.script if at == self.at else ""
        if script in ("exit", "Ctrl-C"):
            raise SystemExit("3") if script == "exit" else KeyboardInterrupt
        if script in ("head.bias", "cache"):
            dict(chain(model.named_parameters(), model.named_buffers()))[script].add_(1)
        elif script == "nan":
            model.blocks[1].attn.qkv.weight[0, 0] = math.nan
        elif script == "replace":
            model.head.weight = nn.Parameter(torch.ones(3, 49))


@pytest.mark.parametrize(
    ("script", "at", "says"),
    [
        *(
            (name, "apply", f"'scripted' changed '{name}', which its `touches` does not name")
            for name in ("head.bias", "cache")
        ),
        ("nan", "apply", r"'scripted' left values that are not finite in 'blocks\.1\.attn\.qkv\.weight'$"),
        ("replace", "apply", "adds, removes or replaces 'head.weight'"),
    ],
)
def test_what_a_method_may_not_do_is_refused_and_undone(script, at, says):
    registry.register(Scripted)
    m = tiny()
    m.register_buffer("cache", torch.ones(2))
    before = facts(m), global_state()
    refused(m, says, "scripted", script=script, at=at)
    assert (facts(m), global_state()) == before


@pytest.mark.parametrize(("script", "error"), [("Ctrl-C", KeyboardInterrupt), ("exit", SystemExit)])
@pytest.mark.parametrize("at", ["check", "apply", "freeze"])
def test_what_ends_a_method_ends_it_and_changes_nothing(script, error, at):
    registry.register(Scripted)
    m = tiny()
    before = state(m)
    with pytest.raises(error):
        vitinit.initialize(m, "scripted", script=script, at=at)
    assert differing(before, state(m)) == set()
