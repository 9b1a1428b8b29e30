"""How a renderer's text enters a harness's prompt: as a paragraph of the system message, or in place of an item."""

from __future__ import annotations

import re
from dataclasses import replace

from workers.errors import ConfigurationError
from workers.interfaces import HarnessTemplate

_ITEM_MARK = re.compile(r"\s*(?:\d+[.)]|[-*])[ \t]+")


def with_paragraph(template: HarnessTemplate, paragraph: str) -> HarnessTemplate:
    """The template with one more paragraph at the end of its system message."""
    system = f"{template.system}\n\n{paragraph}" if template.system else paragraph
    return replace(template, system=system)


def with_text(template: HarnessTemplate, text: str) -> HarnessTemplate:
    """A template with `text` in the place of its `format_item` (its list number stays), else behind the task.

    Raises:
        ConfigurationError: `format_item` is in neither the system nor the task message.
    """
    item = template.format_item
    if item is None:
        return replace(template, task=f"{template.task}\n\n{text}")
    mark = _ITEM_MARK.match(item)
    text = (mark[0] if mark else "") + text
    if item in template.task:
        return replace(template, task=template.task.replace(item, text, 1), format_item=None)
    if item in template.system:
        return replace(template, system=template.system.replace(item, text, 1), format_item=None)
    raise ConfigurationError(
        f"the harness's format_item {item[:40]!r} is in neither its system nor its task message; "
        "give the exact text of the item that asks for reasoning"
    )
