"""Reading the tags of a reply: the paper's example (D.1), missing and odd statuses, lists."""

from __future__ import annotations

import pytest

from workers.renderers.arsm_signals import Metadata, Status, metadata_of, parse_reply

# The record printed in D.1, with the blanks and line ends a reply has.
D1 = """\
<conclusion>
[REFLECTION] Where: Reading query_utils.py Result: The output was truncated, showing only line numbers. \
Conclusion: Need to see the full class.
[STATUS] ONGOING
[PITFALL] N/A
</conclusion>
<reasoning type="CONTINUE">
[CURRENT_STEP] Understand current logic
[AIM] Read the full FilteredRelation class implementation from query_utils.py
</reasoning>
<mswea_bash_command>
grep -n "[STATUS] FAILURE" query_utils.py
</mswea_bash_command>"""


def test_the_paper_s_example() -> None:
    """All tags of D.1 are read by name; what stands in the command is not."""
    signals = parse_reply(D1)
    assert dict(signals.extra) == {
        "type": "CONTINUE",
        "reflection": "Where: Reading query_utils.py Result: The output was truncated, showing only line numbers. "
        "Conclusion: Need to see the full class.",
        "where": "Reading query_utils.py",
        "result": "The output was truncated, showing only line numbers.",
        "conclusion": "Need to see the full class.",
        "status": "ongoing",
        "pitfall": "N/A",
        "current_step": "Understand current logic",
        "aim": "Read the full FilteredRelation class implementation from query_utils.py",
    }
    assert signals.asked
    assert signals.progress == signals.extra["aim"]


def test_the_controller_s_view() -> None:
    """The reflection is result and conclusion (as D.2 shows it), N/A is nothing."""
    assert metadata_of(parse_reply(D1)) == Metadata(
        Status.ongoing,
        reflection="The output was truncated, showing only line numbers. Need to see the full class.",
        conclusion="Need to see the full class.",
        aim="Read the full FilteredRelation class implementation from query_utils.py",
        step="Understand current logic",
    )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("[STATUS] MILESTONE", Status.milestone),
        ("**[Status]** `success`.", Status.success),
        ("[STATUS]: failure - wrong file", Status.failure),
        ("[status]\nOngoing\n[AIM] go on", Status.ongoing),
    ],
)
def test_a_status_is_read_in_any_dress(text: str, status: Status) -> None:
    """Case, emphasis, a colon and what follows the word do not matter."""
    read = metadata_of(parse_reply(text))
    assert (read.status, read.is_miss) == (status, False)


@pytest.mark.parametrize("text", ["", "I will look around.", "[STATUS]", "[STATUS] DONE", "[AIM] look"])
def test_a_missing_or_unknown_status_is_ongoing_and_a_miss(text: str) -> None:
    """Then the turn is routed as ONGOING, and counted as a miss (no progress although asked)."""
    signals = parse_reply(text)
    read = metadata_of(signals)
    assert (read.status, read.is_miss) == (Status.ongoing, True)
    assert signals.asked
    assert signals.progress is None


def test_tags_inside_a_command_block_do_not_count() -> None:
    """A fenced command may print anything."""
    read = metadata_of(parse_reply("[STATUS] SUCCESS\n```bash\necho '[PITFALL] none of this [STATUS] FAILURE'\n```"))
    assert (read.status, read.pitfall) == (Status.success, "")


def test_a_plan_and_candidates_are_lists() -> None:
    """Bullets, boxes and numbers are taken off; candidates keep `name: note`."""
    text = (
        "[STATUS] ONGOING\n[CHECKLIST]\n1. Look around\n- [ ] 2) Fix it\n* Test it\n[CANDIDATES]\n- B07X: red, too dear"
    )
    read = metadata_of(parse_reply(text))
    assert read.checklist == ("Look around", "Fix it", "Test it")
    assert read.candidates == ("B07X: red, too dear",)


def test_nothing_read_is_nothing_said() -> None:
    """A turn without signals says nothing and is no miss."""
    from workers.history import NO_SIGNALS

    assert metadata_of(NO_SIGNALS) == Metadata()
