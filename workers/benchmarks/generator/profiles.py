"""Figures of recorded runs that the generator is calibrated to.

`deepseek_v3_chat`: 188 runs, 15,226 steps of DeepSeek chat models on SWE-bench Lite with mini-swe-agent 2.2.7;
`gemini3_pro`: 500 runs, 20,163 steps of Gemini 3 Pro on SWE-bench Verified. Measured on public trajectories; steps were
classified by regular expressions on the command. Lengths are characters unless the name says tokens; pairs are (mu,
sigma) of a lognormal. Gemini runs hold no execution times, so both profiles use the DeepSeek ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LogNormal = tuple[float, float]
Quantiles = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Outputs of at least 200 characters: shares that repeat earlier output in part or (95 % and more) whole.

    `part` is the mean share of characters that a partly repeated output repeats.
    """

    partial: float
    full: float
    part: float


@dataclass(frozen=True, slots=True)
class KindFigures:
    """One kind of step.

    Attributes:
        empty: share of steps without output.
        output_chars: of the others; `capped` of the steps were truncated by the harness at 10,000 characters.
        thoughtless: share of replies without a thought; `thought_chars` of the others.
        tool_s: (probability, seconds) quantiles of the execution time, empty where none was measured.
    """

    empty: float
    output_chars: LogNormal
    capped: float
    thoughtless: float
    thought_chars: LogNormal
    command_chars: LogNormal
    repeats: Repeats = Repeats(0.0, 0.0, 0.0)
    tool_s: Quantiles = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """The figures of one model's runs.

    Attributes:
        following: the Markov chain over kinds, from START on.
        repeat_growth: (at step 0, per step, at most) what the kinds' repeat shares are multiplied with; fitted so that
            repeats grow with the step as in the recorded runs (steps 1-10 6 %, 31-40 27 % or 38 % of the characters).
        reply_tokens: (tokens of an empty reply, characters per token), fitted to the medians of the completion tokens
            and of the texts by kind (DeepSeek's tool calls cost tokens of their own, Gemini's hidden thoughts too).
    """

    steps: LogNormal
    steps_min: int
    steps_max: int
    task_chars: LogNormal
    kinds: Mapping[str, KindFigures]
    following: Mapping[str, dict[str, float]]
    repeat_growth: tuple[float, float, float]
    reply_tokens: tuple[float, float]


_SEARCH_S: Final = ((0.05, 0.136), (0.25, 0.203), (0.5, 0.241), (0.75, 0.279), (0.9, 0.336), (0.99, 1.92))
_READ_S: Final = ((0.05, 0.133), (0.25, 0.2), (0.5, 0.235), (0.75, 0.266), (0.9, 0.295), (0.99, 0.432))
_RUN_S: Final = ((0.05, 0.206), (0.25, 0.286), (0.5, 0.367), (0.75, 0.51), (0.9, 1.785), (0.99, 19.901))
_EDIT_S: Final = ((0.05, 0.152), (0.25, 0.205), (0.5, 0.238), (0.75, 0.269), (0.9, 0.298), (0.99, 0.586))
_WRITE_S: Final = ((0.05, 0.168), (0.25, 0.216), (0.5, 0.258), (0.75, 0.334), (0.9, 0.434), (0.99, 0.896))

DEEPSEEK_V3_CHAT: Final = Profile(
    steps=(4.339, 0.33),
    steps_min=31,
    steps_max=189,
    task_chars=(8.693, 0.2),
    kinds={
        "search": KindFigures(
            empty=0.138,
            output_chars=(5.679, 1.381),
            capped=0.0014,
            thoughtless=0.048,
            thought_chars=(4.954, 1.068),
            command_chars=(4.181, 0.428),
            repeats=Repeats(0.173, 0.057, 0.476),
            tool_s=_SEARCH_S,
        ),
        "read": KindFigures(
            empty=0.019,
            output_chars=(6.865, 1.036),
            capped=0.011,
            thoughtless=0.12,
            thought_chars=(4.54, 1.154),
            command_chars=(3.861, 0.428),
            repeats=Repeats(0.331, 0.249, 0.557),
            tool_s=_READ_S,
        ),
        "run": KindFigures(
            empty=0.015,
            output_chars=(5.882, 1.429),
            capped=0.0016,
            thoughtless=0.402,
            thought_chars=(4.265, 1.066),
            command_chars=(4.008, 0.994),
            repeats=Repeats(0.331, 0.063, 0.481),
            tool_s=_RUN_S,
        ),
        "edit": KindFigures(
            empty=0.869,
            output_chars=(5.631, 1.41),
            capped=0.0,
            thoughtless=0.054,
            thought_chars=(4.924, 1.203),
            command_chars=(4.441, 0.631),
            repeats=Repeats(0.382, 0.132, 0.692),
            tool_s=_EDIT_S,
        ),
        "write": KindFigures(
            empty=0.528,
            output_chars=(5.723, 1.349),
            capped=0.0,
            thoughtless=0.016,
            thought_chars=(5.211, 1.272),
            command_chars=(7.348, 0.668),
            repeats=Repeats(0.273, 0.015, 0.463),
            tool_s=_WRITE_S,
        ),
        "submit": KindFigures(
            empty=1.0,
            output_chars=(0, 0),
            capped=0.0,
            thoughtless=0.0,
            thought_chars=(5.059, 0.976),
            command_chars=(4.101, 0.094),
        ),
    },
    following={
        "START": {"search": 1.0},
        "search": {"search": 0.5235, "read": 0.2768, "write": 0.1148, "run": 0.0453, "edit": 0.0394, "submit": 0.0002},
        "read": {"search": 0.2881, "read": 0.2748, "write": 0.2197, "edit": 0.1006, "run": 0.0737, "submit": 0.0432},
        "run": {"run": 0.4108, "write": 0.2476, "search": 0.1675, "read": 0.1062, "edit": 0.058, "submit": 0.0099},
        "edit": {"read": 0.3962, "write": 0.2826, "run": 0.1293, "edit": 0.1272, "search": 0.0574, "submit": 0.0073},
        "write": {"run": 0.5798, "write": 0.1707, "search": 0.1125, "read": 0.0857, "edit": 0.0477, "submit": 0.0035},
    },
    repeat_growth=(0.18, 0.027, 1.3),
    reply_tokens=(36, 3.6),
)

GEMINI3_PRO: Final = Profile(
    steps=(3.601, 0.423),
    steps_min=13,
    steps_max=145,
    task_chars=(8.743, 0.219),
    kinds={
        "search": KindFigures(
            empty=0.066,
            output_chars=(5.113, 1.588),
            capped=0.027,
            thoughtless=0.0,
            thought_chars=(5.678, 1.223),
            command_chars=(3.584, 0.786),
            repeats=Repeats(0.061, 0.024, 0.544),
            tool_s=_SEARCH_S,
        ),
        "write": KindFigures(
            empty=0.798,
            output_chars=(4.951, 1.463),
            capped=0.0,
            thoughtless=0.0,
            thought_chars=(6.119, 1.268),
            command_chars=(6.503, 0.906),
            repeats=Repeats(0.498, 0.2, 0.645),
            tool_s=_WRITE_S,
        ),
        "run": KindFigures(
            empty=0.03,
            output_chars=(5.704, 1.663),
            capped=0.0279,
            thoughtless=0.0,
            thought_chars=(4.424, 1.12),
            command_chars=(3.526, 0.492),
            repeats=Repeats(0.417, 0.118, 0.571),
            tool_s=_RUN_S,
        ),
        "read": KindFigures(
            empty=0.006,
            output_chars=(6.928, 1.25),
            capped=0.0592,
            thoughtless=0.0,
            thought_chars=(5.154, 1.429),
            command_chars=(3.831, 0.398),
            repeats=Repeats(0.342, 0.144, 0.453),
            tool_s=_READ_S,
        ),
        "edit": KindFigures(
            empty=0.895,
            output_chars=(5.905, 1.34),
            capped=0.0,
            thoughtless=0.0,
            thought_chars=(5.673, 1.354),
            command_chars=(4.607, 0.755),
            repeats=Repeats(0.409, 0.429, 0.764),
            tool_s=_EDIT_S,
        ),
        "submit": KindFigures(
            empty=0.998,
            output_chars=(0, 0),
            capped=0.0,
            thoughtless=0.0,
            thought_chars=(4.557, 1.236),
            command_chars=(4.347, 0.044),
        ),
        "none": KindFigures(
            empty=0.0,
            output_chars=(6.129, 0.0),
            capped=0.0,
            thoughtless=0.0,
            thought_chars=(7.416, 1.112),
            command_chars=(0, 0),
            repeats=Repeats(0.193, 0.383, 0.83),
        ),
    },
    following={
        "START": {"search": 0.998, "run": 0.002},
        "search": {
            "read": 0.434,
            "search": 0.2711,
            "run": 0.1143,
            "write": 0.0968,
            "edit": 0.0526,
            "none": 0.0221,
            "submit": 0.0091,
        },
        "write": {
            "run": 0.7373,
            "write": 0.1265,
            "edit": 0.0459,
            "search": 0.0416,
            "read": 0.0401,
            "none": 0.0079,
            "submit": 0.0007,
        },
        "run": {
            "run": 0.2178,
            "write": 0.2139,
            "read": 0.1803,
            "edit": 0.1734,
            "search": 0.1644,
            "none": 0.0367,
            "submit": 0.0136,
        },
        "read": {
            "read": 0.2721,
            "search": 0.2484,
            "write": 0.1374,
            "edit": 0.1366,
            "run": 0.1052,
            "none": 0.06,
            "submit": 0.0403,
        },
        "edit": {
            "run": 0.3345,
            "read": 0.2954,
            "search": 0.1112,
            "edit": 0.1015,
            "submit": 0.0857,
            "write": 0.0558,
            "none": 0.0158,
        },
        "none": {
            "write": 0.2749,
            "edit": 0.2588,
            "read": 0.2281,
            "search": 0.095,
            "none": 0.0877,
            "run": 0.0541,
            "submit": 0.0015,
        },
        "submit": {"read": 1.0},
    },
    repeat_growth=(0.25, 0.042, 1.9),
    reply_tokens=(4, 2.7),
)
