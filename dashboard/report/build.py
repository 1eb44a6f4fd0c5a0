"""From a model and a prompt to the file."""

import time
from datetime import UTC, datetime

from dashboard.report.document import Section, document
from dashboard.report.sections import PARTS, subject
from jaxcore.catalogue import Progress
from jaxcore.export import result
from jaxcore.session import LoadedModel, described


def build(model: LoadedModel, prompt: str, progress: Progress) -> str:
    """The report as HTML. Raises `ClearboxError` for a prompt that the model cannot read."""
    start, about, sections, data = time.perf_counter(), subject(model, prompt), [], {}
    for done, (title, part) in enumerate(PARTS.items()):
        progress(done / len(PARTS), title)
        content, numbers = part(about)
        sections.append(Section(title, content))
        data |= numbers
    progress(1.0, "Report written")
    elapsed = time.perf_counter() - start
    when = datetime.now(UTC)
    subtitle = f"{model.dtype} on {model.device}, {when:%d %B %Y, %H:%M} UTC."
    content = {"prompt": prompt, "prompt_ids": list(about.ids), **data}
    return document(
        f"Clearbox report: {model.reference}", subtitle, sections, result("report", described(model), elapsed, content)
    )
