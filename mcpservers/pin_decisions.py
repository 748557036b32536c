"""What admins decide on versions of tools: accepted or rejected, for everybody, recorded with who and when."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts import audit
from accounts.models import AuditAction, User
from mcpservers.models import MCPServer, ToolVersion, ToolView

Decision = ToolVersion.Decision
_ACTIONS = {Decision.ACCEPTED: AuditAction.PIN_ACCEPTED, Decision.REJECTED: AuditAction.PIN_REJECTED}


def decide(
    server: MCPServer, versions: Sequence[UUID], decision: ToolVersion.Decision, by: User | None = None
) -> list[ToolVersion]:
    """Accept or reject these versions of tools of `server`; the ones that this changed, in the order of their names.

    It holds for every account, from the next offer and the next call on. A decision may be taken back by its opposite.
    Ids of other servers' versions are passed over. Raises `ValueError` for no decision.
    """
    action = _ACTIONS[Decision(decision)] if decision else None
    if action is None:
        raise ValueError("a version is accepted or rejected")
    with transaction.atomic():
        MCPServer.objects.as_system().select_for_update(no_key=True).get(pk=server.pk)  # as for what is listed
        rows = ToolVersion.objects.filter(server=server, pk__in=versions).exclude(decision=decision)
        changed = list(rows.order_by("tool", "first_seen_at"))
        if not changed:
            return []
        for version in changed:
            version.decision, version.decided_by, version.decided_at = decision, by, timezone.now()
        ToolVersion.objects.bulk_update(changed, ["decision", "decided_by", "decided_at"], batch_size=200)
        ToolView.objects.filter(server=server).update(revision=F("revision") + 1)
        audit.write(
            [
                audit.entry(
                    action,
                    server.organization_id,
                    by.pk if by is not None else None,
                    target=audit.Target("tool", version.pk, version.tool),
                    server_id=server.pk,
                    server=server.slug,
                    tool=version.tool,
                    details={"hash": version.hash, "flags": sorted({flag["kind"] for flag in version.flags})},
                )
                for version in changed
            ]
        )
    return changed
