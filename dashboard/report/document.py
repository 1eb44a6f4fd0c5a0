"""An HTML file that needs nothing else: text, tables, interactive charts, and the numbers as JSON inside."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import altair as alt
import vl_convert

from jaxcore.export import to_json

PAGE = Path(__file__).with_name("page.html")
DRAW = Path(__file__).with_name("draw.js")


@dataclass(frozen=True)
class Figure:
    """A chart with a sentence on what it shows."""

    caption: str
    chart: alt.TopLevelMixin


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the report; ``content`` is sentences, tables and figures in their order."""

    title: str
    content: Sequence[str | Table | Figure]


def document(title: str, subtitle: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """The whole file. ``data`` is embedded as JSON and can be saved from it."""
    figures = [item.chart.to_dict() for section in sections for item in section.content if isinstance(item, Figure)]
    numbers = iter(range(len(figures)))
    body = []
    for section in sections:
        body += [f"<h2>{escape(section.title)}</h2>", *(_item(item, numbers) for item in section.content)]
    return Template(PAGE.read_text("utf-8")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        contents="".join(f"<li>{escape(section.title)}</li>" for section in sections),
        body="".join(body),
        charts=_json(json.dumps(figures)),
        data=_json(to_json(data)),
        bundle=vl_convert.javascript_bundle(DRAW.read_text("utf-8")).replace("</script", "<\\/script"),
    )


def _item(item: str | Table | Figure, numbers: Any) -> str:
    if isinstance(item, str):
        return f"<p>{escape(item)}</p>"
    caption = f"<figcaption>{escape(item.caption)}</figcaption>" if item.caption else ""
    if isinstance(item, Figure):
        return f'<figure>{caption}<div class="chart" id="chart-{next(numbers)}"></div></figure>'
    head = "".join(f"<th>{escape(column)}</th>" for column in item.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in item.rows)
    return f"<figure>{caption}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></figure>"


def _json(text: str) -> str:
    """JSON that cannot end the script element around it."""
    return text.replace("<", "\\u003c")
