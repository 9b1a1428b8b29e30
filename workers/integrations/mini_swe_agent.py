r"""Our renderers in mini-swe-agent, by configuration alone: a model class and an environment class that work together.

    mini-extra swebench -c swebench.yaml \
        -c model.model_class=workers.integrations.mini_swe_agent.RenderedModel \
        -c model.renderer.name=refold -c model.renderer.k=3 \
        -c environment.environment_class=workers.integrations.mini_swe_agent.RenderedEnvironment \
        -c 'run.env_startup_command=convoy-instance {{instance_id}}'

The model class sends the rendered conversation to the model that it wraps (`model.inner_class`, the same names as
`model.model_class`); the agent's own list, and so the trajectory, stays whole. The environment class answers `restore`
from that list and passes everything else to the environment that it wraps (`environment.inner_class`, docker unless
given). mini-swe-agent tells the image of an instance only to its own docker classes, hence the last line: the wrapped
container is started by that first command (`convoy-instance <id> [<image>]`), which it never sees.

Imported by mini-swe-agent only; nothing of that package is imported before one of the classes is made.
Source: mini-swe-agent 2.4.6 (MIT), its Model and Environment protocols; there is no hook for the messages of a call.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from workers.errors import ConfigurationError
from workers.history import Action
from workers.integrations.mini_swe_agent_asking import AskedModel
from workers.integrations.plain import BUDGET_TOKENS, Conversation
from workers.integrations.renderer_choice import answers_commands

EXTRA_KEY: Final = "convoy"
START_COMMAND: Final = "convoy-instance"
MODEL_CLASS: Final = "workers.integrations.mini_swe_agent.RenderedModel"
ENVIRONMENT_CLASS: Final = "workers.integrations.mini_swe_agent.RenderedEnvironment"
_IMAGE_PREFIX: Final = {"docker": "", "swerex_modal": "", "singularity": "docker://", "contree": "docker://"}


class _Desk(threading.local):
    """Where a model and an environment made by the same thread for the same task find each other.

    mini-swe-agent makes both in one thread, in either order, and gives neither the other. A new one takes the place of
    one whose partner never came (its container did not start).
    """

    model: RenderedModel | None = None
    environment: RenderedEnvironment | None = None

    def pair(self, *, model: RenderedModel | None = None, environment: RenderedEnvironment | None = None) -> None:
        self.model = model or self.model
        self.environment = environment or self.environment
        if self.model is not None and self.environment is not None:
            self.environment.join(self.model)
            self.model = self.environment = None


_DESK = _Desk()


class RenderedModel:
    """A mini-swe-agent model that shows another model the rendered conversation.

    Args:
        renderer: name, or mapping with `name` and settings.
        inner_class: the wrapped model's class or short name; empty chooses as mini-swe-agent does.
        context_budget_tokens: usable context of renderers that have a budget.
        auxiliary: settings, over those of the wrapped model, of the text model that answers renderers which ask one
            themselves; its `model_class` is litellm_textbased unless given.
        settings: everything else under `model:` goes to the wrapped model.
    Raises:
        ConfigurationError: no or an unknown renderer.
    """

    def __init__(
        self,
        *,
        renderer: str | Mapping[str, Any] | None = None,
        inner_class: str = "",
        context_budget_tokens: int = BUDGET_TOKENS,
        auxiliary: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        from minisweagent.models import get_model_class

        if renderer is None:
            raise ConfigurationError("no renderer is chosen: add -c model.renderer.name=refold (or another name)")
        self._asked = AskedModel(settings, auxiliary or {})
        self.conversation = Conversation(renderer, budget_tokens=context_budget_tokens, ask=self._asked)
        self.is_paired = False
        self._choice = {"name": renderer} if isinstance(renderer, str) else dict(renderer)
        self._inner: Any = get_model_class(str(settings.get("model_name", "")), inner_class)(**settings)
        self.config = self._inner.config
        _DESK.pair(model=self)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the wrapped model offers."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def query(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """Ask the wrapped model with the rendered messages; what the render did is in the reply's `extra`.

        Raises:
            ConfigurationError: the renderer answers commands itself, but the environment class is not ours.
        """
        from minisweagent.exceptions import FormatError

        if answers_commands(self.conversation.renderer) and not self.is_paired:
            raise ConfigurationError(
                f"renderer {self._choice['name']} answers some commands itself, which needs our environment class: "
                f"add -c environment.environment_class={ENVIRONMENT_CLASS}"
            )
        rendered = self.conversation.render(messages)
        assert self.conversation.record is not None
        note = asdict(self.conversation.record)
        try:
            reply: dict[str, Any] = self._inner.query(rendered, **options)
        except FormatError as exc:  # mini-swe-agent keeps its first message in place of the reply
            self._add(exc.messages[0], note)
            raise
        self._add(reply, note)
        return reply

    def format_message(self, **fields: Any) -> dict[str, Any]:
        """As the wrapped model does."""
        message: dict[str, Any] = self._inner.format_message(**fields)
        return message

    def format_observation_messages(
        self,
        message: dict[str, Any],
        outputs: Sequence[dict[str, Any]],
        template_vars: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """As the wrapped model does; a restored output is shown as it was first shown, without a second frame."""
        shown: list[dict[str, Any]] = self._inner.format_observation_messages(message, outputs, template_vars)
        for observation, output in zip(shown, outputs, strict=False):
            restored = output.get("extra", {}).get(EXTRA_KEY)
            if restored is not None:
                observation["content"] = restored["shown"]
                observation["extra"][EXTRA_KEY] = {"is_restored": True}
        return shown

    def get_template_vars(self, **options: Any) -> dict[str, Any]:
        """As the wrapped model does."""
        variables: dict[str, Any] = self._inner.get_template_vars(**options)
        return variables

    def _add(self, message: dict[str, Any], note: dict[str, Any]) -> None:
        """Note the render with the message, and what the renderer's own calls cost on top of it."""
        extra = message.setdefault("extra", {})
        extra[EXTRA_KEY] = note
        cost = self._asked.taken_cost()
        if cost:
            note["asked_cost"] = cost
            extra["cost"] = extra.get("cost", 0.0) + cost

    def serialize(self) -> dict[str, Any]:
        """The wrapped model's part of the trajectory, and which renderer it was seen through."""
        return _merged(self._inner, "model", MODEL_CLASS, {"renderer": self._choice})


class RenderedEnvironment:
    """A mini-swe-agent environment that answers what its model's renderer answers, and passes on everything else.

    Args:
        inner_class: the wrapped environment's class or short name.
        settings: everything else under `environment:` goes to the wrapped environment. Container classes without an
            image are opened by `convoy-instance`.
    """

    def __init__(self, *, inner_class: str = "docker", **settings: Any) -> None:
        self._inner_class = inner_class
        self._settings = settings
        self._model: RenderedModel | None = None
        self._inner: Any = None
        if inner_class not in _IMAGE_PREFIX or "image" in settings:
            self._open(settings)
        _DESK.pair(environment=self)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the wrapped environment offers (`config`, `cleanup`)."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._opened(), name)

    def join(self, model: RenderedModel) -> None:
        """Answer from this model's conversation from now on."""
        self._model = model
        model.is_paired = True

    def execute(self, action: dict[str, Any], cwd: str = "", **options: Any) -> dict[str, Any]:
        """Answer the action from the conversation, or run it in the wrapped environment."""
        command = str(action.get("command", ""))
        if self._inner is None and command.split(maxsplit=1)[:1] == [START_COMMAND]:
            return self._start(command)
        inner = self._opened()
        answer = self._model.conversation.answer(Action(command, action.get("tool_call_id"))) if self._model else None
        if answer is None:
            output: dict[str, Any] = inner.execute(action, cwd, **options)
            return output
        return {
            "output": answer.body,
            "returncode": 0 if answer.returncode is None else answer.returncode,
            "exception_info": "",
            "extra": {EXTRA_KEY: {"shown": answer.shown}},
        }

    def get_template_vars(self, **options: Any) -> dict[str, Any]:
        """As the wrapped environment does; the agent asks for them before its first call.

        Raises:
            ConfigurationError: the model class is not ours, so nothing would be rendered.
        """
        if self._model is None:
            raise ConfigurationError(f"the model class is not ours, nothing is rendered: add model_class={MODEL_CLASS}")
        variables: dict[str, Any] = self._opened().get_template_vars(**options)
        return variables

    def serialize(self) -> dict[str, Any]:
        """The wrapped environment's part of the trajectory."""
        return _merged(self._opened(), "environment", ENVIRONMENT_CLASS, {})

    def _opened(self) -> Any:
        if self._inner is None:
            raise ConfigurationError(
                f"environment.inner_class={self._inner_class} has no image: "
                f"add -c 'run.env_startup_command={START_COMMAND} {{{{instance_id}}}}' or environment.image"
            )
        return self._inner

    def _open(self, settings: Mapping[str, Any]) -> None:
        from minisweagent.environments import get_environment_class

        self._inner = get_environment_class(self._inner_class)(**settings)

    def _start(self, command: str) -> dict[str, Any]:
        """Open the wrapped environment on the image of an instance."""
        from minisweagent.run.benchmarks.swebench import get_swebench_docker_image_name

        words = shlex.split(command)
        if len(words) not in (2, 3):
            raise ConfigurationError(f"{command!r}: give `{START_COMMAND} <instance id> [<image>]`")
        image = words[2] if len(words) == 3 else get_swebench_docker_image_name({"instance_id": words[1]})
        self._open({**self._settings, "image": _IMAGE_PREFIX[self._inner_class] + image})
        return {"output": "", "returncode": 0, "exception_info": ""}


def _merged(inner: Any, part: str, own_class: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """The trajectory part of a wrapped object, with our class as its type and the wrapped one beside it."""
    data: dict[str, Any] = inner.serialize()
    config = data.setdefault("info", {}).setdefault("config", {})
    wrapped = config.get(f"{part}_type", f"{type(inner).__module__}.{type(inner).__name__}")
    config[f"{part}_type"] = own_class
    config[EXTRA_KEY] = {**config.get(EXTRA_KEY, {}), f"wrapped_{part}_type": wrapped, **more}
    return data
