"""The prompt layer of appendix C.2 as a change of a harness's template."""

import pytest

from workers.errors import ConfigurationError
from workers.harnesses.minimal import FORMAT_ITEM, Minimal
from workers.interfaces import HarnessTemplate
from workers.renderers.refold import Refold


def test_layer_on_the_minimal_harness() -> None:
    """Paragraph after the system prompt, protocol in place of the reasoning item, the rest kept."""
    template = Minimal().template("Fix it.")
    layered = Refold().prompt_layer(template)
    assert layered.system.startswith(template.system + "\n\nContext management: to save tokens, the harness omits")
    assert "`restore <step>` shows a step's output again exactly as first shown" in layered.system
    before, after = template.task.split(FORMAT_ITEM)
    assert layered.task.startswith(before + "1. Begin every response with these two lines, then your reasoning")
    assert layered.task.endswith("These two lines are metadata, never let them replace your bash tool call." + after)


@pytest.mark.parametrize("k", [3, 5])
def test_the_number_of_steps_is_k(k: int) -> None:
    """'Only the last 3 steps before this one can still be named' with k in place of 3 (methods 1A.4)."""
    layered = Refold(k=k).prompt_layer(Minimal().template("x"))
    assert f"Only the last {k} steps before this one can still be named" in layered.task


def test_a_harness_without_the_item_gets_the_protocol_after_its_task() -> None:
    """The layer fits templates that have no response-format list."""
    layered = Refold().prompt_layer(HarnessTemplate("", "Do it."))
    assert layered.system.startswith("Context management:")
    assert layered.task.startswith("Do it.\n\nBegin every response with these two lines")


def test_item_in_the_system_message() -> None:
    """The item may stand in the system message."""
    layered = Refold().prompt_layer(HarnessTemplate("You.\n- Think first.\nEnd.", "Do it.", "- Think first."))
    assert layered.task == "Do it."
    assert layered.system.startswith("You.\n- Begin every response with these two lines")


def test_an_item_that_is_nowhere_is_an_error() -> None:
    """A wrong format_item is one line, not a silent append."""
    with pytest.raises(ConfigurationError, match="Explain yourself"):
        Refold().prompt_layer(HarnessTemplate("a", "b", "Explain yourself"))


def test_layers_of_the_ablations() -> None:
    """No word of restore without reversibility, no protocol without folding, nothing with both operators off."""
    template = Minimal().template("x")
    irreversible = Refold(reversible=False).prompt_layer(template)
    assert "restore" not in irreversible.system + irreversible.task
    assert "STALE:" in irreversible.task
    dedup_only = Refold(fold=False).prompt_layer(template)
    assert dedup_only.task == template.task
    assert "STALE" not in dedup_only.system
    assert Refold(dedup=False, fold=False).prompt_layer(template) == template
