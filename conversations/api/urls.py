"""The addresses of the HTTP API, and what each needs."""

from django.urls import path

from accounts.policy import Action
from conversations.api import (
    agents,
    approvals,
    attachments,
    audit,
    connections,
    conversations,
    listing,
    me,
    own_servers,
    turns,
    usage,
    variables,
    why,
)
from conversations.api.door import methods

urlpatterns = [
    path("me", methods(None, GET=me.read, PATCH=me.update)),
    path("agents", methods(Action.USE_AGENT, GET=agents.index)),
    path("conversations", methods(Action.CHAT, GET=listing.index)),
    path(
        "conversations/<uuid:conversation>",
        methods(Action.CHAT, GET=conversations.read, PATCH=conversations.update, DELETE=conversations.delete),
    ),
    path("conversations/<uuid:conversation>/restore", methods(Action.CHAT, POST=conversations.restore)),
    path("conversations/<uuid:conversation>/messages", methods(Action.CHAT, GET=conversations.messages)),
    path("calls/<uuid:call_id>", methods(Action.CHAT, GET=conversations.read_call)),
    path(
        "servers/<slug:server>/variables",
        methods(Action.CHAT, GET=variables.read, PUT=variables.put, DELETE=variables.clear),
    ),
    path("connections", methods(Action.CHAT, GET=connections.index)),
    path(
        "connections/accounts/<uuid:account>",
        methods(Action.CHAT, PATCH=connections.update, DELETE=connections.disconnect),
    ),
    # Of a person's own: who may is said by what they do, since one may always see and delete what one has.
    path("connections/servers", methods(None, GET=own_servers.index, POST=own_servers.create)),
    path(
        "connections/servers/<uuid:own_server>",
        methods(None, GET=own_servers.read, PATCH=own_servers.update, DELETE=own_servers.delete),
    ),
    path("connections/servers/<uuid:own_server>/check", methods(None, POST=own_servers.check)),
    path("connections/servers/<uuid:own_server>/tools", methods(None, POST=own_servers.review)),
    path("approvals", methods(Action.ANSWER, GET=approvals.index)),
    path("approvals/count", methods(None, GET=approvals.count)),
    path("approvals/standing", methods(Action.ANSWER, GET=approvals.standing_index)),
    path("approvals/standing/<uuid:standing_id>", methods(Action.ANSWER, DELETE=approvals.revoke)),
    path("approvals/<uuid:question>", methods(Action.ANSWER, GET=approvals.read, POST=approvals.decide)),
    path("servers/<slug:server>/why", methods(Action.CHAT, GET=why.read)),
    path("attachments", methods(Action.CHAT, POST=attachments.upload)),
    path("attachments/<uuid:attachment>/content", methods(Action.CHAT, GET=attachments.content)),
    path("audit", methods(Action.READ_AUDIT, GET=audit.index)),
    path("audit/export", methods(Action.READ_AUDIT, POST=audit.export)),
    path("audit/<uuid:entry>/contents", methods(Action.READ_AUDIT, POST=audit.contents)),
    path("usage", methods(Action.CHAT, GET=usage.own)),
    path("usage/report", methods(Action.READ_USAGE, GET=usage.report)),
    path("turns", methods(Action.CHAT, POST=turns.start)),
    path("turns/<uuid:turn>", methods(Action.CHAT, GET=turns.read)),
    path("turns/<uuid:turn>/stop", methods(Action.CHAT, POST=turns.stop)),
    path("turns/<uuid:turn>/events", methods(Action.CHAT, GET=turns.events)),
]
