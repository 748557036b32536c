"""A call that its server interrupts to ask a person: where it stands between the rounds, as JSON. Pure.

In the stateless era a call ends with what is to be asked and is made again with the answers (MCP 2026-07-28,
`InputRequiredResult`, SEP-2322); in the session era it fails with the addresses that are to be opened first (MCP
2025-11-25, error -32042) and is made again once they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mcpservers.elicitation import Answer, Elicitation, InvalidAnswerError, UnaskableError, read, restored

JSONObject = dict[str, Any]

MAX_ROUNDS = 10  # of questions in one call
MAX_QUESTIONS = 10  # in one round
MAX_STATE = 1024 * 1024  # characters


class NotPossibleError(ValueError):
    """What the server wants is not possible here; the text says so, to follow its name."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """One round of questions. `waiting` are those without an answer, in order; the first is the one to be asked.

    `binding` tells which call it belongs to: the state and the answers never go anywhere else.
    """

    binding: str
    round: int = 0
    state: str | None = None  # opaque, returned as it came
    waiting: tuple[tuple[str, Elicitation], ...] = ()
    answers: Mapping[str, JSONObject] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was declined without being shown, for people and the model
    addresses: bool = False  # an error of the session era: there is nothing to be sent
    refused: bool = False  # a person declined one of those

    def following(self, result: Mapping[str, Any]) -> Self:
        """The round that `result`, an `InputRequiredResult`, begins. Raises `NotPossibleError`."""
        requests, state = result.get("inputRequests"), result.get("requestState")
        requests = {} if requests is None else requests
        if not isinstance(requests, Mapping) or not (state is None or isinstance(state, str)):
            raise NotPossibleError("asks in a way that the protocol does not have.")
        if not requests and state is None:
            raise NotPossibleError("asks a person for something, and does not say for what.")
        if len(requests) > MAX_QUESTIONS or len(state or "") > MAX_STATE:
            raise NotPossibleError("asks for too much at once.")
        made = self._next(state=state)
        for name, request in requests.items():
            made = made._with(name, _params(request))
        return made

    def for_addresses(self, data: object) -> Self:
        """The round that error -32042 with `data` begins. Raises `NotPossibleError`."""
        found = data.get("elicitations") if isinstance(data, Mapping) else None
        if not isinstance(found, Sequence) or not 0 < len(found) <= MAX_QUESTIONS:
            raise NotPossibleError("wants an address to be opened, and does not say which.")
        made = replace(self._next(), addresses=True)
        for position, params in enumerate(found):
            if isinstance(params, Mapping) and params.get("mode", "url") == "url":
                made = made._with(str(position), {**params, "mode": "url"})
            else:
                raise NotPossibleError("wants something to be opened that is not an address.")
        return made

    def _next(self, state: str | None = None) -> Self:
        if self.round >= MAX_ROUNDS:
            raise NotPossibleError(f"asked {MAX_ROUNDS} times in one call, and asks again.")
        return type(self)(self.binding, self.round + 1, state, notes=self.notes)

    def _with(self, name: str, params: object) -> Self:
        try:
            return replace(self, waiting=(*self.waiting, (name, read(params))))
        except UnaskableError as error:
            note = f"A question was declined without being shown. {error}"
            declined = {**self.answers, name: {"action": "decline"}}
            return replace(self, answers=declined, notes=(*self.notes, note), refused=self.addresses or self.refused)

    # --- Answers

    @property
    def asks(self) -> Elicitation | None:
        """What is to be asked now; None when the call can be made again."""
        return self.waiting[0][1] if self.waiting and not self.refused else None

    def answered(self, answer: Answer) -> Self:
        """With the answer to what it `asks`; who cancels is not asked any more of this round."""
        if not self.waiting:
            return self
        (name, asked), *rest = self.waiting
        try:
            result = answer.result(asked)
        except InvalidAnswerError:  # it was checked when it was given; then never what does not fit
            result = {"action": "cancel"}
        answers = {**self.answers, name: result}
        if answer.action == "cancel":
            answers |= {other: {"action": "cancel"} for other, _ in rest}
            rest = []
        refused = self.refused or (self.addresses and answer.action != "accept")
        return replace(self, waiting=tuple(rest), answers=answers, refused=refused)

    def params(self) -> JSONObject:
        """What the call is made again with, beside its name and arguments."""
        if self.addresses:
            return {}
        answers = {"inputResponses": dict(self.answers)} if self.answers else {}
        return answers | ({} if self.state is None else {"requestState": self.state})

    # --- As JSON

    def card(self) -> JSONObject:
        """What people are shown of the question that it `asks`."""
        asked = self.asks
        assert asked is not None
        total = len(self.waiting) + len(self.answers)
        return {**asked.card(), "step": len(self.answers) + 1, "steps": total}

    def kept(self) -> JSONObject:
        """What is stored until there is an answer; `resumed` is its inverse. Text of any kind comes back as it was."""
        value = {
            "binding": self.binding,
            "round": self.round,
            "state": self.state,
            "waiting": [[name, asked.card()] for name, asked in self.waiting],
            "answers": dict(self.answers),
            "notes": list(self.notes),
            "addresses": self.addresses,
            "refused": self.refused,
        }
        return {"interruption": json.dumps(value)}


def resumed(kept: Mapping[str, Any]) -> Interruption:
    """The round of which `kept` was made."""
    value = json.loads(kept["interruption"])
    return Interruption(
        value["binding"],
        value["round"],
        value["state"],
        tuple((name, restored(card)) for name, card in value["waiting"]),
        value["answers"],
        tuple(value["notes"]),
        value["addresses"],
        value["refused"],
    )


def binding(*what: object) -> str:
    """A hash over JSON values that say which call it is."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def _params(request: object) -> object:
    """The params of an embedded `elicitation/create`. Raises `NotPossibleError` for a request of another kind."""
    method = request.get("method") if isinstance(request, Mapping) else None
    if method == "elicitation/create" and isinstance(request, Mapping):
        return request.get("params")
    wanted = {"sampling/createMessage": "a model's answer", "roots/list": "the names of directories"}
    named = wanted.get(method) if isinstance(method, str) else None
    raise NotPossibleError(f"asks for {named or 'something'} that is not given to servers here.")
