"""A task: the behaviour half of `TaskData`. Knows no LLM, no server and no trainer.

A tool is a method marked `@tool` with typed arguments and a Google docstring; its JSON schema is
made once, when the class is defined, so that a mistake shows at import and not in a training run.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from agent_env.docstring import parse_docstring
from agent_env.errors import BundleError, InvalidArguments, ToolNotFound
from agent_env.types import END_TURN, RESERVED_TOOLS, TaskData, ToolSpec

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__agent_env_tool__"

_PLAIN = frozenset({"reset", "end_turn", "snapshot", "restore", "score"})
"""Methods that are called and not awaited."""


def tool(method: F) -> F:
    """Offer a method of a `Task` to the model.

    Every argument needs a type and a line under `Args:`; the text above it is the description.
    The return value reaches the model as it is when it is a str, as JSON otherwise. A tool is no
    coroutine function.
    """
    setattr(method, _MARK, True)
    return method


class _Tool(NamedTuple):
    spec: ToolSpec
    arguments: type[BaseModel]


class Task:
    """One episode of one task. Subclasses add tools and `score`."""

    done: bool = False
    """True once a tool call has ended the episode; looked at after each call."""

    quick: ClassVar[bool] = False
    """No reset or step takes over about a millisecond: the server then needs no thread for it."""

    replayable: ClassVar[bool] = True
    """The same seed and the same calls give the same replies: the server may rebuild an episode
    by playing it again. Without it, and without `snapshot`, a restart loses the episode."""

    _tools: ClassVar[dict[str, _Tool]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _PLAIN & vars(cls).keys():
            _check_plain(_where(cls, name, vars(cls)[name]), f"{name}()", vars(cls)[name])
        cls._tools = {name: _build(cls, name, method) for name, method in _marked(cls)}

    def __init__(self, data: TaskData) -> None:
        self.data = data

    def reset(self, seed: int | None) -> str | None:  # noqa: ARG002
        """Start (again). Returns text to be appended to the task's prompt, or None."""
        return None

    def end_turn(self, response: str) -> str | None:  # noqa: ARG002
        """Take the model's answer. Returns the next turn's prompt; None ends the episode."""
        return None

    def snapshot(self) -> Any:
        """All that `restore` needs, as JSON data; None (the default) where there is no such thing.

        With it the server rebuilds a long episode without playing it again.
        """
        return None

    def restore(self, state: Any) -> None:
        """Become what `snapshot` saw; called instead of `reset`, on a new object."""
        raise NotImplementedError(f"{type(self).__name__} has a snapshot() but no restore()")

    def score(self) -> dict[str, float]:
        """Scores by id, each in [0, 1]; asked for once, after the episode has ended."""
        raise NotImplementedError(f"{type(self).__name__} has no score()")

    @classmethod
    def tools(cls) -> list[ToolSpec]:
        """The tools in the order in which the class defines them."""
        return [entry.spec for entry in cls._tools.values()]

    def call_tool(self, name: str, args: dict[str, Any]) -> str:
        """Validate the arguments, run the tool, return what the model reads.

        Raises ToolNotFound, InvalidArguments, or whatever the tool raises.
        """
        entry = self._tools.get(name)
        if entry is None:
            raise ToolNotFound(_unknown_tool(name, list(self._tools)))
        try:
            model = entry.arguments.model_validate(args)
        except ValidationError as error:
            raise InvalidArguments(_complaint(name, error)) from None
        result = getattr(self, name)(**model.__dict__)
        return result if isinstance(result, str) else json.dumps(result)


def _marked(cls: type[Task]) -> list[tuple[str, Callable[..., Any]]]:
    """Tools in order of definition, base classes first; an override keeps its base's place."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    methods = ((name, getattr(cls, name)) for name in names)
    return [(name, method) for name, method in methods if getattr(method, _MARK, False)]


def _where(cls: type[Task], name: str, method: Any) -> str:
    """The method and the line on which it begins."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    line = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{cls.__qualname__}.{name}{line}"


def _check_plain(where: str, what: str, method: Any) -> None:
    method = inspect.unwrap(method)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise BundleError(
            f"{where}: {what} is no coroutine function: a server runs it in a thread of its own;"
            " write def, and asyncio.run() inside where it's needed"
        )
    if inspect.isgeneratorfunction(method):
        raise BundleError(f"{where}: {what} is no generator: write return, not yield")


def _build(cls: type[Task], name: str, method: Callable[..., Any]) -> _Tool:
    where = _where(cls, name, method)
    _check_plain(where, "a tool", method)
    if name in RESERVED_TOOLS or name.startswith("_"):
        raise BundleError(f"{where}: a tool can't be named {name!r}, rename the method")
    doc = parse_docstring(method.__doc__ or "")
    if not doc.description:
        raise BundleError(f"{where}: a tool needs a docstring, the model reads it")
    try:
        arguments = _arguments_model(where, method, doc.arguments)
        schema = _without_titles(arguments.model_json_schema())
    except BundleError:
        raise
    except Exception as error:  # a name that isn't defined, a type that pydantic doesn't know
        said = str(error).partition("\n")[0]
        raise BundleError(f"{where}: its types make no schema: {said}") from error
    schema.pop("additionalProperties", None)
    return _Tool(ToolSpec(name=name, description=doc.description, input_schema=schema), arguments)


def _arguments_model(
    where: str, method: Callable[..., Any], described: dict[str, str]
) -> type[BaseModel]:
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BundleError(f"{where}: *args and **kwargs have no schema, name the arguments")
        if parameter.name not in hints:
            raise BundleError(f"{where}: the argument {parameter.name!r} has no type")
        if parameter.name not in described:
            raise BundleError(f"{where}: no line for {parameter.name!r} under Args:")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = Field(default, description=described[parameter.name])
        fields[parameter.name] = (hints[parameter.name], field)
    # Lax on purpose: XML-style tool calls carry no types, so "7" and 7 are the same argument.
    config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, protected_namespaces=())
    return create_model(f"{method.__name__}_arguments", __config__=config, **fields)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Pydantic's schema less its generated titles; a property called `title` stays."""

    def clean(node: Any, *, is_schema: bool) -> Any:
        if isinstance(node, list):
            return [clean(item, is_schema=True) for item in node]
        if not isinstance(node, dict):
            return node
        return {
            key: clean(value, is_schema=not (is_schema and key in ("properties", "$defs")))
            for key, value in node.items()
            if not (is_schema and key == "title")
        }

    cleaned: dict[str, Any] = clean(schema, is_schema=True)
    return cleaned


def _unknown_tool(name: str, known: list[str]) -> str:
    there = [*known, END_TURN]
    near = difflib.get_close_matches(name[:64], there, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there)}"
    return f"there is no tool {name!r}; {hint}"


def _complaint(name: str, error: ValidationError) -> str:
    faults = (
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    )
    return f"{name}: " + "; ".join(faults)
