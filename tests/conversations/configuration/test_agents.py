"""The models of an agent in a configuration file: its own, and others that people may choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from agents.models import Agent
from conversations.configuration.applying import apply_configuration
from conversations.configuration.exporting import export_configuration
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError

pytestmark = pytest.mark.django_db
Apply = Callable[..., Plan]


def acme(*others: str) -> dict[str, Any]:
    models = {"big": {"name": "gpt-5"}, "small": {"name": "gpt-5-nano"}}
    agent = {"other_models": list(others)}
    return {"organizations": {"acme": {"endpoints": {"main": {"models": models}}, "agents": {"helper": agent}}}}


def names() -> list[str]:
    return sorted(Agent.objects.as_system().get().other_models.values_list("slug", flat=True))


def test_other_models_are_the_files_and_applied_again_nothing_changes(apply: Apply) -> None:
    apply(acme("main/big", "main/small", "main/big"))
    assert names() == ["big", "small"]
    assert not apply(acme("main/small", "main/big"))
    plan = apply(acme("main/small"), plan_only=True)
    assert "main/big" in str(plan)
    assert names() == ["big", "small"]
    apply(acme("main/small"))
    assert names() == ["small"]
    apply(acme())
    assert names() == []


def test_other_models_survive_the_way_out_and_in(apply: Apply) -> None:
    apply(acme("main/big"))
    export = export_configuration()
    assert yaml.safe_load(export.text)["organizations"]["acme"]["agents"]["helper"]["other_models"] == ["main/big"]
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)


def test_another_model_that_is_not_there_is_refused_with_its_place(apply: Apply) -> None:
    with pytest.raises(ConfigurationError) as caught:
        apply(acme("main/big", "main/huge"))
    assert [str(problem) for problem in caught.value.problems] == [
        "organizations.acme.agents.helper.other_models[1]: there is no model “main/huge” in this organization"
    ]
