"""Renders a chat template in a process of its own, so that a hostile one can neither hang nor fill the memory.

Run by `jaxcore.chat` as a script: a request as JSON on stdin, the outcome as JSON on stdout. The environment is that of
transformers (utils/chat_template_utils.py): sandboxed, with its options, filters and functions. Imports nothing of this
package.
"""

import contextlib
import json
import sys
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Refused(jinja2.TemplateError):
    """The template itself says that these turns cannot be."""


class Generation(Extension):
    """``{% generation %}``, which marks what a model wrote, for training; it changes nothing in the text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own form)

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def refuse(message: str) -> None:
    raise Refused(message)


def to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as it is, where jinja2's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(template: str, variables: dict[str, Any], most: int) -> str:
    """The text that a template makes. Raises `ValueError` if it is longer than ``most`` characters."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    parts, total = [], 0
    for part in environment.from_string(template).generate(**variables):
        total += len(part)
        if total > most:
            raise ValueError(f"it writes more than {most:,} characters")
        parts.append(part)
    return "".join(parts)


def limit(seconds: int, memory: int) -> None:
    """Bound this process's time and memory where the system can (not on Windows)."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main() -> None:
    request = json.load(sys.stdin)
    limit(request["seconds"], request["memory"])
    try:
        outcome = {"text": render(request["template"], request["variables"], request["most"])}
    except Refused as error:
        outcome = {"refused": str(error)}
    except jinja2.TemplateSyntaxError as error:
        outcome = {"error": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        outcome = {"error": "it takes too much memory"}
    except Exception as error:  # whatever a template can cause
        outcome = {"error": str(error)[:500] or type(error).__name__}
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
