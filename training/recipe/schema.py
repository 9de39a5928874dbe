"""Describe recipes as a JSON Schema, with which editors complete and check them."""

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfdml.images import RandomChanges

from .losses import loss_parameters, losses_in_recipes
from .recipe import OLD_CHANGES, OLD_TABLES, Recipe, is_required
from .tables import LABEL_DISTANCES, Loss
from .variants import MISSING, NOT_PRINTED, PrintedTable, RecipeFile

Schema = dict[str, Any]

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def recipe_schema() -> Schema:
    """Return the JSON Schema (2020-12) of recipes.

    It is made of what reads recipes, so that both know the same keys, types, limits and
    words. Rules about several keys, such as that `steps` is a multiple of
    `steps_per_epoch`, are checked when a recipe is read alone.
    """
    tables = {f.name: _table(f.name, f.type) for f in dataclasses.fields(Recipe)}
    augmentation = tables["augmentation"]["properties"]
    for old, new in OLD_CHANGES.items():
        augmentation[old] = augmentation[new] | {"deprecated": True}
    for old, new in OLD_TABLES.items():
        tables[old] = {"$ref": f"#/properties/{new}", "deprecated": True}
    # In a file of variants the choices may give what a recipe needs.
    single = {
        "required": ["data"],
        "properties": {"data": {"required": tables["data"].pop("required")}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipe of tfdml",
        "description": "What `tfdml fit` does; see docs/training.md.",
        "type": "object",
        "properties": tables | _of_variants(tables),
        "additionalProperties": False,
        "if": {"required": ["choices"]},
        "else": single,
    }


def _of_variants(tables: Schema) -> Schema:
    """Describe the keys of a file that describes many recipes."""
    references: Schema = {name: {"$ref": f"#/properties/{name}"} for name in tables}
    # Which keys a loss has depends on its name, which another choice may give.
    references["loss"] = {"if": {"required": ["name"]}, "then": references["loss"]}
    value = {"anyOf": [{"type": "number"}, {"const": NOT_PRINTED}]}
    row = {"type": "array", "items": value | {"minimum": 0, "maximum": 100}}
    keys: Schema = {
        "table": {"type": "string"},
        "columns": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "object", "additionalProperties": row},
    }
    return {
        "paper": {
            "description": "The paper that the variants are of.",
            "type": "string",
        },
        "choices": {
            "description": inspect.getdoc(sys.modules[RecipeFile.__module__]),
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": references | {MISSING: {"type": "string"}},
                "additionalProperties": False,
            },
        },
        "results": {
            "description": inspect.cleandoc(PrintedTable.__doc__ or ""),
            "type": "array",
            "items": {
                "type": "object",
                "properties": keys,
                "required": list(keys),
                "additionalProperties": False,
            },
        },
    }


def _table(name: str, kind: Any) -> Schema:
    text = inspect.cleandoc(kind.__doc__ or "")
    described = {"description": text.partition("\n\nArgs:")[0], "type": "object"}
    if kind is Loss:
        return described | _loss()
    fields = [f for f in dataclasses.fields(kind) if f.init]
    required = [f.name for f in fields if is_required(f)]
    return described | {
        "properties": {f.name: _field(kind, f) for f in fields},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _field(kind: Any, field: "dataclasses.Field[Any]") -> Schema:
    described = _type(field.type)
    if kind is RandomChanges and field.type is float:
        described |= {"minimum": 0, "maximum": RandomChanges.HIGHEST[field.name]}
    for name, limit in field.metadata.items():
        described[name] = list(limit) if isinstance(limit, tuple) else limit
    if field.default is not dataclasses.MISSING:
        default = field.default
        described["default"] = list(default) if isinstance(default, tuple) else default
    return described


def _loss() -> Schema:
    """Describe `[loss]`: which keys there are depends on `name`."""
    losses = losses_in_recipes()
    cases = []
    for name, loss in losses.items():
        is_it: Schema = {"properties": {"name": {"const": name}}}
        if name != Loss.name:  # that is the loss of a recipe without a name
            is_it["required"] = ["name"]
        properties: Schema = {"name": True}
        required = []
        for parameter in loss_parameters(loss):
            described = _type(parameter.annotation)
            if parameter.default is inspect.Parameter.empty:
                required.append(parameter.name)
            elif isinstance(parameter.default, (bool, int, float, str)):
                described["default"] = parameter.default
            properties[parameter.name] = described
        if "label_distance" in properties:
            properties["label_distance"] |= {"enum": list(LABEL_DISTANCES)}
        then = {"properties": properties, "additionalProperties": False}
        cases.append({"if": is_it, "then": then | {"required": required}})
    named = {"enum": list(losses), "default": Loss.name}
    return {"properties": {"name": named}, "allOf": cases}


def _type(kind: Any) -> Schema:
    """Describe a type of Python as far as TOML has it; {} is anything."""
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _type(arguments[0])}
    if origin in (typing.Union, types.UnionType):
        kinds = [_type(one) for one in arguments if one is not types.NoneType]
        # What TOML has no value for, such as a function, can also be left out.
        kinds = [one for one in kinds if one]
        if not kinds:  # another loss
            return {}
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"}
    if origin is not None and issubclass(origin, Sequence):
        return {"type": "array"}
    return {}
