"""Settings (TOML, JSON, the command line) as pydantic models; every mistake becomes one line that names its key."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError
from pydantic_core import PydanticCustomError

from twinfold.io._names import check_name, unknown_name

Model = TypeVar("Model", bound="Settings")
# What a value of the wrong type or size must be, by pydantic's type of error.
EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}
MAX_LENGTH = 60  # characters of a value in a message


class Settings(BaseModel):
    """A table of settings: immutable, no unknown keys, no conversion between types, finite numbers only.

    A validator of a subclass raises a `ValueError` whose text is the complete message, with the key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _checked_name(name: str) -> str:
    try:
        return check_name(name, "")
    except ValueError as error:
        # Without the place, which `validate` knows.
        raise PydanticCustomError(BAD_NAME, "{reason}", {"reason": str(error).removeprefix(": ")}) from None


BAD_NAME = "bad_name"
Name = Annotated[str, AfterValidator(_checked_name)]
# "" for none.
OptionalName = Annotated[str, AfterValidator(lambda name: name and _checked_name(name))]
# TOML and JSON have lists where Python has tuples. A single string stands for a list of one.
ONE_AS_LIST = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
Strings = Annotated[tuple[str, ...], Strict(False), ONE_AS_LIST]
Names = Annotated[tuple[Name, ...], Strict(False), ONE_AS_LIST]
Values = Annotated[tuple[float | str, ...], Strict(False), ONE_AS_LIST]
Numbers = Annotated[tuple[float, ...], Strict(False)]


def validate(model: type[Model], table: Any, name: str = "") -> Model:
    """An object of the class `model` from a table; `name` is how messages call the table.

    **Raises:** `ValueError` with one line: the key, its value and what it must be, or the nearest name for an unknown
    key.
    """
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise ValueError(_message(error, model, table, name)) from None


def _message(error: ValidationError, model: type[Settings], table: Any, name: str) -> str:
    # An unknown key is often the misspelling of a missing one, so it is reported first. A name that is not allowed may
    # be one member of a union, whose other members fail as well.
    order = ("extra_forbidden", BAD_NAME)
    errors = sorted(
        error.errors(include_url=False),
        key=lambda each: order.index(each["type"]) if each["type"] in order else len(order),
    )
    first = errors[0]
    if first["type"] == BAD_NAME:
        return f"{'.'.join(filter(None, [name, *_setting(model, first['loc'])]))}: {first['msg']}"
    if first["type"] == "extra_forbidden":
        *parents, key = map(str, first["loc"])
        place = ".".join(filter(None, [name, *parents]))
        missing = f"{place}: there is no setting" if place else "there is no section"
        return f"{missing} {unknown_name(key, _field_names(model, parents))}"
    if first["type"] == "value_error":
        return str(first.get("ctx", {})["error"])
    if first["type"] == "missing":
        return f"{'.'.join(filter(None, [name, *map(str, first['loc'])]))} is missing."
    path, value = _locate(table, first["loc"], name)
    expected = [_expected(each) for each in errors if _locate(table, each["loc"], name)[0] == path]
    text = repr(value)
    text = text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."
    return f"{path} is {text}; it must be {' or '.join(dict.fromkeys(expected))}."


def _expected(error: Any) -> str:
    return EXPECTED.get(error["type"], str(error["msg"])).format(**error.get("ctx", {}))


def _locate(value: Any, location: tuple[int | str, ...], path: str) -> tuple[str, Any]:
    """The part of an error's location that exists in the table, and its value.

    The rest is pydantic's own: a union appends the name of its member.
    """
    for key in location:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            break
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
    return path, value


def _setting(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """The names of the settings that lead to an error: the part of its location without indices and table keys."""
    keys = []
    for key in location:
        if key not in getattr(model, "model_fields", {}):
            break
        keys.append(str(key))
        model = model.model_fields[key].annotation
    return keys


def _field_names(model: Any, keys: list[str]) -> list[str]:
    for key in keys:
        model = model.model_fields[key].annotation if key in getattr(model, "model_fields", {}) else None
    return list(getattr(model, "model_fields", {}))
