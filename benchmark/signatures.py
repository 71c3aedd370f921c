"""Arguments of somebody's class or function, as its signature has them, checked by pydantic. Imports no torch."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ConfigDict, Field, Strict, ValidationError, create_model

from vitinit.initializers.errors import VitinitError, explain, unknown_name

LEAVES: dict[Any, Any] = {
    bool: Annotated[bool, Strict()],
    int: Annotated[int, Strict()],
    float: Annotated[float, Field(strict=True, allow_inf_nan=False)],
    str: Annotated[str, Strict()],
    type(None): type(None),
}
"""Types of values that YAML and JSON have; an int is no bool here, and a float no NaN."""
LISTS = (tuple, list)


def guess(default: Any) -> Any:
    """Return the type of a parameter without annotation: that of its default, where 0 stands for a number."""
    if isinstance(default, tuple):
        return tuple[tuple(map(guess, default))]  # type: ignore[misc]
    return float if type(default) is int else type(default)


def checkable(kind: Any) -> Any:
    """Return a type as pydantic checks it, without the members that YAML has no value for; None if nothing is left."""
    if kind in LEAVES:
        return LEAVES[kind]
    origin, members = get_origin(kind), [found for one in get_args(kind) if (found := checkable(one)) is not None]
    if origin in (Union, types.UnionType) and set(members) - {type(None)}:
        return Union[tuple(members)]  # noqa: UP007
    if origin is tuple and len(members) == 1:  # many libraries write tuple[int] for one of any length
        return tuple[members[0], ...]  # type: ignore[valid-type]
    if origin in LISTS and members:
        return origin[tuple(members)]
    return None


def parameters(called: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function by name; annotations that cannot be evaluated stay text."""
    try:
        return dict(inspect.signature(called, eval_str=True).parameters)
    except Exception:  # names that are there for type checkers alone
        return dict(inspect.signature(called).parameters)


def takes(called: Callable[..., Any], name: str) -> bool:
    """Return True where a class or function has a parameter of this name, `**kwargs` left aside."""
    return name in parameters(called)


def checked(called: Callable[..., Any], given: Mapping[str, Any], where: str, without: Iterable[str]) -> dict[str, Any]:
    """Return arguments as the signature types them, as JSON has them: 0 as 0.0 where a float is expected.

    Args:
        called: a class or function. Where it takes `**kwargs`, names that it does not have pass.
        given: by name.
        where: how an error message begins.
        without: parameters that nobody may give.

    Raises:
        VitinitError: an unknown name, or a value of another type.
    """
    known, hidden = parameters(called), {"self", *without}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name, one in known.items() if one.kind not in kinds and name not in hidden]
    rest = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    fields: dict[str, Any] = {}
    for name in given:
        if name not in names and not rest:
            raise VitinitError(f"{where}: {unknown_name('argument', name, names)}")
        fields[name] = _kind(known[name], where) if name in names else Any, ...
    schema = create_model("Arguments", __config__=ConfigDict(extra="forbid", frozen=True), **fields)
    try:
        return schema.model_validate(dict(given)).model_dump(mode="json")
    except ValidationError as error:
        raise explain(error, where, schema) from None


def _kind(parameter: inspect.Parameter, where: str) -> Any:
    """Type of a parameter; anything where the signature says nothing that could be checked."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return Any if default in (inspect.Parameter.empty, None) else checkable(guess(default)) or Any
    if annotation is Any:
        return Any
    origin = get_origin(annotation) or annotation
    kind = checkable(annotation)
    if kind is None and origin in LISTS:
        return annotation
    if kind is None:
        raise VitinitError(f"{where}: {parameter.name} takes no value that YAML has")
    return kind if default is not None else Union[kind, None]  # noqa: UP007
