"""The surface that others build on: names of the library, flags of the commands, the web API.

Each has what 0.1.0 offered and a function that says what of it is lost: more may be offered, and a
signature may say more than it did.
"""

import inspect
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import earshift as es
from golden.common import nameless, plain

# The names that the documents tell users to import.
DOCUMENTED = {
    "earshift.classical": ("hughson_westlake",),
    "earshift.ep": ("fit",),
    "earshift.monitor": ("ear_history", "revise_baseline"),
    "earshift.rules": (
        "AgeCorrection", "Criterion", "Rule", "confirmed", "judge_ear", "judge_person",
        "recordable",
    ),
    "earshift.visit": ("Session", "find_person", "open_exam", "plan_screen", "todays_visit"),
}  # fmt: skip

ORIGIN = "http://localhost:8400"
PAGES = (
    "/", "/login", "/listen", "/people/{}", "/people/{}/test", "/exams/{}", "/devices",
    "/devices/{}", "/import", "/try", "/about", "/api/docs", "/users", "/audit", "/nowhere",
    "/api/openapi.json", "/static/nothing.js",
)  # fmt: skip

Known = dict[str, Any]


# The library ------------------------------------------------------------------------------------


def library() -> Known:
    """Every public name with its attributes and signatures."""
    found: Known = {"__all__": {"names": sorted(es.__all__)}}
    for name in sorted(es.__all__):
        thing = getattr(es, name)
        if callable(thing):
            found[f"earshift.{name}"] = _described(thing)
    for module, names in DOCUMENTED.items():
        for name in names:
            found[f"{module}.{name}"] = _described(getattr(import_module(module), name))
    for what, instance in _instances().items():
        found[f"attributes of {what}"] = {"names": _public(instance)}
    return plain(found)


def _instances() -> dict[str, Any]:
    """What a user holds in the hand: attributes are often set when a thing is made."""
    audiogram = es.Audiogram({1000.0: 10.0, 4000.0: 20.0})
    both = {"right": audiogram, "left": audiogram}
    one, pair = es.Screen(audiogram), es.Screen(both, ears="both")
    return {
        "an exam": es.Exam(),
        "an exam of both ears": es.Exam(ears="both"),
        "a screen": one,
        "a screen of both ears": pair,
        "a verdict": one.verdict(),
        "a verdict on both ears": pair.verdict(),
        "a handler": es.Handler(es.Exam()),
        "a listener": es.Listener.of_class("mild"),
    }


def _public(thing: Any) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


def _described(thing: Any) -> Known:
    if not inspect.isclass(thing):
        return {"()": _parameters(thing)}
    found: Known = {"names": _public(thing), "()": _made_by(thing)}
    for name in _public(thing):
        member = inspect.getattr_static(thing, name)
        if isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            found[f"{name}()"] = _parameters(getattr(thing, name))
    return found


def _made_by(cls: type[Any]) -> list[Known]:
    """The parameters of a class, whether its signature, __new__ or __init__ has them."""
    found = {given["name"]: given for given in _parameters(cls)}
    for given in _parameters(cls.__init__):
        found.setdefault(given["name"], given)
    return list(found.values())


def _parameters(function: Any) -> list[Known]:
    return [
        {
            "name": parameter.name,
            "kind": parameter.kind.name,
            "default": None if parameter.default is parameter.empty else repr(parameter.default),
        }
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def lost_of_library(before: Known, now: Known | None) -> Iterator[str]:
    """What one name of the library no longer offers."""
    if now is None:
        yield "the name is gone"
        return
    for part, known in before.items():
        if part not in now:
            yield f"{part} is gone"
        elif part == "names":
            yield from (f"{name} is gone" for name in sorted(set(known) - set(now[part])))
        else:
            yield from (f"{part}: {loss}" for loss in _lost_parameters(known, now[part]))


def _lost_parameters(before: list[Known], now: list[Known]) -> Iterator[str]:
    offered = {parameter["name"]: parameter for parameter in now}
    by_position = [p["name"] for p in now if p["kind"].startswith("POSITIONAL")]
    position = 0
    for parameter in before:
        name, kind = parameter["name"], parameter["kind"]
        if name not in offered:
            yield f"parameter {name} is gone"
            continue
        # What had to be given may become optional; a default must stay.
        if parameter["default"] is not None and offered[name]["default"] != parameter["default"]:
            yield (
                f"the default of {name} was {parameter['default']}, is {offered[name]['default']}"
            )
        if kind.startswith("POSITIONAL"):
            if by_position[position : position + 1] != [name]:
                yield f"parameter {name} is no longer the {position + 1}. by position"
            position += 1
    for parameter in now:
        known = any(parameter["name"] == p["name"] for p in before)
        if not known and parameter["default"] is None:
            yield f"parameter {parameter['name']} is new and has no default"


# The command line -------------------------------------------------------------------------------


def command_line() -> Any:
    """The program as click has it."""
    from earshift.cli import app

    return typer.main.get_command(app)


def flags() -> Known:
    """Every command with its options, by their longest spelling, and its arguments, by number."""
    every = _commands(command_line(), "earshift")
    return plain({path: _options(command) for path, command in every})


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def _options(command: Any) -> Known:
    found: Known = {}
    arguments = 0
    for parameter in command.params:
        given = {
            "spellings": sorted([*parameter.opts, *parameter.secondary_opts]),
            "required": parameter.required,
            "default": None if callable(parameter.default) else parameter.default,
            "flag": bool(getattr(parameter, "is_flag", False)),
            "several": bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1,
            "from": parameter.envvar,
            "range": [getattr(parameter, end, None) for end in ("min", "max")],
        }
        if not parameter.opts[0].startswith("-"):
            arguments += 1
            found[f"argument {arguments}"] = {**given, "spellings": []}
        else:
            found[max(parameter.opts, key=len)] = given
    return found


def lost_of_command(before: Known, now: Known | None) -> Iterator[str]:
    """What one command no longer takes, takes otherwise, or newly demands."""
    if now is None:
        yield "the command is gone"
        return
    for name, known in before.items():
        offered = now.get(name)
        if offered is None:
            yield f"{name} is gone"
            continue
        for spelling in sorted(set(known["spellings"]) - set(offered["spellings"])):
            yield f"{name} can no longer be written {spelling}"
        if offered["required"] and not known["required"]:
            yield f"{name} is now required"
        for what in ("default", "flag", "several", "from"):
            if offered[what] != known[what]:
                yield f"{name}: {what} was {known[what]!r}, is {offered[what]!r}"
        if not _covers(offered["range"], known["range"]):
            yield f"{name}: range was {known['range']!r}, is {offered['range']!r}"
    for name, offered in now.items():
        if name not in before and offered["required"]:
            yield f"{name} is new and required"


def _covers(wide: list[Any], narrow: list[Any]) -> bool:
    """Whether every number of one range is in the other; None has no end."""
    (low, high), (least, most) = wide, narrow
    return (low is None or (least is not None and low <= least)) and (
        high is None or (most is not None and high >= most)
    )


# The web API ------------------------------------------------------------------------------------


def web_app(folder: Path) -> Any:
    """The app over a new database in this folder. The one place that knows where it comes from."""
    from earshift.web import Settings, create_app

    return create_app(Settings(db=str(folder / "clinic.db")))


def api(folder: Path) -> Known:
    """Every operation with its parameters and the fields that go in and out, by their paths."""
    app = web_app(folder)
    document = app.openapi()
    found: Known = {"to strangers": {"answers": _to_strangers(app, document)}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found[f"{method.upper()} {nameless(path)}"] = {
                "parameters": {
                    f"{p['in']} {'{}' if p['in'] == 'path' else p['name']}": {
                        "required": p.get("required", False),
                        "type": _type(p.get("schema", {}), document),
                    }
                    for p in operation.get("parameters", [])
                },
                "request": _content(operation.get("requestBody", {}), document),
                **{
                    f"answer {status}": _content(answer, document)
                    for status, answer in operation["responses"].items()
                    if status.startswith(
                        "2"
                    )  # the framework describes refusals, the app words them
                },
            }
    app.state.store.close()
    return plain(found)


def _to_strangers(app: Any, document: Known) -> dict[str, int]:
    """The status that every operation and page has for somebody who is not signed in."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using `httpx`")
        from starlette.testclient import TestClient
    client = TestClient(app, base_url=ORIGIN, follow_redirects=False)
    wanted = [("GET", path) for path in PAGES]
    for path, operations in document["paths"].items():
        wanted += [(method.upper(), path) for method in operations]
    return {
        f"{method} {nameless(path)}": client.request(
            method, nameless(path).replace("{}", "abc"), headers={"Origin": ORIGIN}
        ).status_code
        for method, path in wanted
    }


def _content(body: Known, document: Known) -> Known:
    return {
        media: dict(_fields(given.get("schema", {}), document, "", ()))
        for media, given in body.get("content", {}).items()
    }


def _resolved(schema: Known, document: Known) -> tuple[Known, str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return (document["components"]["schemas"][name], name) if name else (schema, "")


def _fields(
    schema: Known, document: Known, path: str, inside: tuple[str, ...]
) -> Iterator[tuple[str, Known]]:
    """Every field of a body by its path, with its type, and whether it has to be given."""
    schema, name = _resolved(schema, document)
    if name and name in inside:
        return
    inside = (*inside, name) if name else inside
    for option in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(option, ()):
            yield from _fields(one, document, path, inside)
    if "items" in schema:
        yield from _fields(schema["items"], document, f"{path}[]", inside)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], document, f"{path}{{}}", inside)
    for field, inner in schema.get("properties", {}).items():
        where = f"{path}.{field}" if path else field
        known = {"type": _type(inner, document), "required": field in schema.get("required", ())}
        yield where, {**known, "default": inner["default"]} if "default" in inner else known
        yield from _fields(inner, document, where, inside)


def _type(schema: Known, document: Known) -> list[str]:
    """The types a value may have; of a list of choices, the choices."""
    schema, _ = _resolved(schema, document)
    found: set[str] = set()
    for option in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(option, ()):
            found.update(_type(one, document))
    if "enum" in schema or "const" in schema:
        found.update(f"={value}" for value in schema.get("enum", [schema.get("const")]))
    elif "type" in schema:
        found.add(str(schema["type"]))
    return sorted(found)


def lost_of_api(before: Known, now: Known | None) -> Iterator[str]:
    """What one operation no longer takes or gives, and what it newly demands."""
    if now is None:
        yield "the operation is gone"
        return
    if "answers" in before:
        for what, status in before["answers"].items():
            if now["answers"].get(what) != status:
                yield f"{what} answered {status}, now {now['answers'].get(what)}"
        return
    for part, known in before.items():
        offered = now.get(part)
        if offered is None:
            yield f"{part} is gone"
        elif part == "parameters":
            yield from _lost_fields(known, offered, part, taken=True)
        else:
            for media, fields in known.items():
                if media not in offered:
                    yield f"{part}: {media} is gone"
                else:
                    taken = part == "request"
                    yield from _lost_fields(fields, offered[media], part, taken=taken)


def _lost_fields(before: Known, now: Known, part: str, *, taken: bool) -> Iterator[str]:
    for field, known in before.items():
        where = f"{part}: {field}"
        if field not in now:
            yield f"{where} is gone"
            continue
        offered = now[field]
        if not taken and known["required"] and not offered["required"]:
            yield f"{where} is no longer always there"
        if taken and offered["required"] and not known["required"]:
            yield f"{where} is now required"
        if taken and set(known["type"]) - set(offered["type"]):
            yield f"{where} no longer takes {sorted(set(known['type']) - set(offered['type']))}"
        if not taken and known["type"] != offered["type"]:
            yield f"{where} was {known['type']}, is {offered['type']}"
        if offered.get("default") != known.get("default"):
            yield f"{where}: default was {known.get('default')!r}, is {offered.get('default')!r}"
    for field, offered in now.items():
        if taken and field not in before and offered["required"]:
            yield f"{part}: {field} is new and required"
