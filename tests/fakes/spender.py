"""A process of its own that spends as somebody: `python -m tests.fakes.spender DATABASE`.

It says "ready"; then for each line `USER spend|begin NUMBER` it spends 10 tokens a round until it is refused, or begins
turns, and prints how many tokens it spent, or how many turns it began.
"""

from __future__ import annotations

import os
import sys
from uuid import uuid4

import django

TOKENS = 10  # of a round


def main(database: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "chatui.settings"
    from chatui import settings

    settings.DATABASES["default"]["NAME"] = database
    django.setup()
    from accounts.actors import find_actor
    from accounts.budgets import BudgetExceededError, TooManyTurnsError
    from accounts.models import User
    from conversations import spending, turns
    from conversations.transitions import Progress
    from conversations.turns import NewTurn

    def act(username: str, what: str, number: str) -> int:
        actor = find_actor(User.objects.get(username=username).pk, "acme")
        assert actor is not None
        done = 0
        try:
            for count in range(1, int(number) + 1):
                if what == "begin" or count == 1:
                    new = NewTurn(request_id=uuid4(), agent="helper", content=[{"type": "text", "text": "x"}])
                    turn = turns.begin_turn(actor, new).turn
                if what == "begin":
                    done += 1
                    continue
                done += TOKENS  # the model has answered: it is spent, whatever comes of it
                assert turn is not None
                spending.store_round(actor, turn, count, [], Progress([], count, {"input_tokens": done}, 1.0))
        except (BudgetExceededError, TooManyTurnsError):
            pass
        return done

    print("ready", flush=True)
    for line in sys.stdin:
        print(act(*line.split()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
