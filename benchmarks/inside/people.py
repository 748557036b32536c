"""Members of the organization, each with an API key."""

from __future__ import annotations

from accounts.models import ApiKey, Membership, Organization, User
from benchmarks.product import ORGANIZATION


def measure(count: str) -> list[str]:
    """Make so many; their keys."""
    organization = Organization.objects.get(slug=ORGANIZATION)
    keys = []
    for number in range(int(count)):
        user = User.objects.create(username=f"person-{number}", email=f"person-{number}@example.org", password="!")
        Membership.objects.create(user=user, organization=organization)
        keys.append(ApiKey.issue(organization_id=organization.pk, user=user, name="benchmark")[1])
    return keys
