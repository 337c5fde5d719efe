"""Tools made from typed Python: what the model is shown, and what happens to its arguments."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from agent_env import Task, TaskData, tool
from agent_env.errors import BundleError, InvalidArguments, ToolNotFound

DATA = TaskData(id="t", name="t", split="s", index=0, prompt="p")


class Kitchen(Task):
    @tool
    def cook(
        self,
        dish: Literal["soup", "rice"],
        grams: list[float],
        title: str = "",
        hot: bool | None = None,
    ) -> dict[str, Any]:
        """Cook something.

        Takes its time.

        Args:
            dish: What to cook,
                once.
            grams: How much of each.
            title (str): A name: yours.
            hot: Whether it is served hot.

        Returns:
            Not for the model.
        """
        return {"dish": dish, "grams": grams, "title": title, "hot": hot}

    def not_a_tool(self) -> None:
        """Stays private."""


def test_a_tools_schema_comes_from_its_types_and_docstring() -> None:
    (spec,) = Kitchen.tools()
    assert spec.name == "cook"
    assert spec.description == "Cook something.\n\nTakes its time."
    assert spec.input_schema["required"] == ["dish", "grams"]
    assert spec.input_schema["properties"] == {
        "dish": {"description": "What to cook, once.", "enum": ["soup", "rice"], "type": "string"},
        "grams": {
            "description": "How much of each.",
            "items": {"type": "number"},
            "type": "array",
        },
        "title": {"default": "", "description": "A name: yours.", "type": "string"},
        "hot": {
            "anyOf": [{"type": "boolean"}, {"type": "null"}],
            "default": None,
            "description": "Whether it is served hot.",
        },
    }


def test_arguments_are_validated_and_the_result_is_json() -> None:
    text = Kitchen(DATA).call_tool("cook", {"dish": "soup", "grams": ["1.5", 2], "title": 7})
    assert text == '{"dish": "soup", "grams": [1.5, 2.0], "title": "7", "hot": null}'


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ({"dish": "soup"}, "grams: Field required"),
        ({"dish": "stew", "grams": []}, "dish: Input should be 'soup' or 'rice'"),
        ({"dish": "soup", "grams": [], "salt": 1}, "salt: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wrong(
    arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidArguments, match=complaint):
        Kitchen(DATA).call_tool("cook", arguments)


def test_an_unknown_tool_is_answered_with_the_nearest() -> None:
    with pytest.raises(ToolNotFound, match="did you mean 'cook'"):
        Kitchen(DATA).call_tool("cok", {})
    with pytest.raises(ToolNotFound, match=r"there are: cook, end_turn$"):
        Kitchen(DATA).call_tool("zzz", {})
    with pytest.raises(ToolNotFound, match="did you mean 'end_turn'"):
        Kitchen(DATA).call_tool("endturn", {})
    with pytest.raises(ToolNotFound, match=r"there are: end_turn$"):
        Task(DATA).call_tool("cook", {})


def test_a_method_without_the_mark_is_no_tool() -> None:
    with pytest.raises(ToolNotFound):
        Kitchen(DATA).call_tool("not_a_tool", {})


def test_a_subclass_adds_tools_and_may_reword_one() -> None:
    class Bistro(Kitchen):
        @tool
        def serve(self) -> str:
            """Serve it."""
            return "served"

        @tool
        def cook(self) -> str:  # type: ignore[override]  # the point of the test
            """Cook the dish of the day."""
            return "cooked"

    assert [spec.name for spec in Bistro.tools()] == ["cook", "serve"]
    assert Bistro.tools()[0].description == "Cook the dish of the day."
    assert [spec.name for spec in Kitchen.tools()] == ["cook"]


def _define(**body: Any) -> None:
    type("Faulty", (Task,), body)


def test_mistakes_in_a_tool_show_when_its_class_is_defined() -> None:
    @tool
    def silent(self: Any) -> str:
        return ""

    @tool
    def untyped(self: Any, n) -> str:  # type: ignore[no-untyped-def]
        """Do it.

        Args:
            n: A number.
        """
        return ""

    @tool
    def undescribed(self: Any, n: int) -> str:
        """Do it."""
        return ""

    @tool
    def loose(self: Any, *numbers: int) -> str:
        """Do it."""
        return ""

    @tool
    def fine(self: Any) -> str:
        """Do it."""
        return ""

    @tool
    def nameless(self: Any, n: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
        """Do it.

        Args:
            n: A number.
        """
        return ""

    @tool
    def typeless(self: Any, n: Task) -> str:
        """Do it.

        Args:
            n: A number.
        """
        return ""

    @tool
    async def waits(self: Any) -> str:
        """Do it."""
        return ""

    @tool
    def yields(self: Any) -> Any:
        """Do it."""
        yield ""

    async def later(self: Any) -> None:
        """Do it."""

    faults: list[tuple[dict[str, Any], str]] = [
        ({"silent": silent}, "needs a docstring"),
        ({"untyped": untyped}, "'n' has no type"),
        ({"undescribed": undescribed}, "no line for 'n' under Args"),
        ({"loose": loose}, "no schema"),
        ({"end_turn": fine}, "can't be named 'end_turn'"),
        ({"nameless": nameless}, "its types make no schema: name 'Nowhere' is not defined"),
        ({"typeless": typeless}, "its types make no schema: Unable to generate"),
        ({"waits": waits}, "a tool is no coroutine function"),
        ({"yields": yields}, "a tool is no generator"),
        ({"score": later}, r"score\(\) is no coroutine function"),
        ({"reset": later}, r"reset\(\) is no coroutine function"),
    ]
    for body, complaint in faults:
        with pytest.raises(BundleError, match=complaint) as raised:
            _define(**body)
        (method,) = body.values()
        code = method.__code__
        where = f"Faulty.{next(iter(body))} ({code.co_filename}:{code.co_firstlineno}): "
        assert str(raised.value).startswith(where)
