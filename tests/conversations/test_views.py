"""The chat's pages: who may see them, what they hold before any script has run, and their policy."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.core.files.storage import storages
from django.test import Client
from django.utils import timezone

from accounts.models import Membership, Organization, Role, User
from conversations.models import Conversation

pytestmark = pytest.mark.django_db


@pytest.fixture
def browse() -> Callable[[User], Client]:
    def make(user: User) -> Client:
        client = Client()
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return client

    return make


@pytest.fixture
def conversation(alice: User, organization: Organization) -> Conversation:
    found: Conversation = Conversation.objects.create(
        organization=organization, owner=alice, title="A <b>bold</b> title", active_at=timezone.now()
    )
    return found


def config_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script id="config" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


def test_signed_out_visitors_are_led_to_sign_in_and_back(client: Client, conversation: Conversation) -> None:
    for path in ("/", "/o/acme/", f"/o/acme/c/{conversation.pk}/"):
        response = client.get(path)
        assert response.status_code == 302
        assert response["Location"] == f"/accounts/login/?next={path}"


def test_the_root_leads_to_the_organization_used_last(
    alice: User, other_organization: Organization, browse: Callable[[User], Client]
) -> None:
    Membership.objects.create(user=alice, organization=other_organization, role=Role.MEMBER)
    browser = browse(alice)
    assert browser.get("/")["Location"] == "/o/acme/"
    assert browser.get("/o/globex/").status_code == 200
    assert browser.get("/")["Location"] == "/o/globex/"
    assert browser.get("/o/acme/").status_code == 200
    assert browser.get("/")["Location"] == "/o/acme/"


def test_a_person_without_an_organization_is_told_so(browse: Callable[[User], Client]) -> None:
    response = browse(User.objects.create_user("dora")).get("/")
    assert response.status_code == 200
    assert "not in an organization" in response.content.decode()


def test_the_owner_gets_the_page_of_a_conversation_with_its_title(
    alice: User, conversation: Conversation, browse: Callable[[User], Client]
) -> None:
    html = browse(alice).get(f"/o/acme/c/{conversation.pk}/").content.decode()
    assert "A &lt;b&gt;bold&lt;/b&gt; title" in html
    assert "<b>bold" not in html
    config = config_of(html)
    assert config["conversation"] == str(conversation.pk)
    assert config["organization"] == {"slug": "acme", "name": "Acme"}
    assert config["user"]["username"] == "alice"


def test_nobody_else_gets_it_not_even_a_reason(
    bob: User,
    charlie: User,
    conversation: Conversation,
    other_organization: Organization,
    browse: Callable[..., Client],
) -> None:
    Membership.objects.create(user=charlie, organization=conversation.organization, role=Role.OWNER)
    nobodys = browse(bob).get(f"/o/acme/c/{uuid.uuid4()}/")
    for user, path in (
        (bob, f"/o/acme/c/{conversation.pk}/"),  # a colleague
        (charlie, f"/o/acme/c/{conversation.pk}/"),  # an owner of the organization
        (charlie, f"/o/globex/c/{conversation.pk}/"),  # by way of another organization
        (bob, "/o/globex/"),  # another organization
        (bob, "/o/nowhere/"),
    ):
        response = browse(user).get(path)
        assert response.status_code == 404, path
        assert "title" not in response.content.decode().replace("<title>", "").replace("</title>", "")
    assert nobodys.status_code == 404


@pytest.mark.parametrize("gone", ["deleted", "inactive member", "inactive organization"])
def test_what_is_over_is_not_there(
    gone: str, alice: User, conversation: Conversation, browse: Callable[[User], Client]
) -> None:
    if gone == "deleted":
        conversation.deleted_at = timezone.now()
        conversation.save()
    elif gone == "inactive member":
        Membership.objects.update(is_active=False)
    else:
        Organization.objects.update(is_active=False)
    assert browse(alice).get(f"/o/acme/c/{conversation.pk}/").status_code == 404


def test_the_composer_stands_in_the_page_and_takes_text_without_any_script(
    alice: User, browse: Callable[[User], Client]
) -> None:
    html = browse(alice).get("/o/acme/").content.decode()
    textarea = re.search(r"<textarea[^>]*id=\"composer-text\"[^>]*>", html)
    assert textarea is not None
    assert "disabled" not in textarea[0]
    assert "readonly" not in textarea[0]
    assert 'type="submit"' not in html, "nothing that leaves the page may be pressed before the script runs"


def test_the_policy_lets_no_inline_script_run_but_the_import_map(alice: User, browse: Callable[[User], Client]) -> None:
    response = browse(alice).get("/o/acme/")
    html = response.content.decode()
    policy = {
        name: values for name, *values in (part.split() for part in response["Content-Security-Policy"].split(";"))
    }
    nonces = [value for value in policy["script-src"] if value.startswith("'nonce-")]
    assert len(nonces) == 1
    assert set(policy["script-src"]) == {"'self'", nonces[0]}
    assert "'unsafe-inline'" not in policy.get("style-src", []) + policy["default-src"]
    inline = re.findall(r"<script(?![^>]*\bsrc=)([^>]*)>", html)
    assert [tag for tag in inline if "application/json" not in tag] == [f' type="importmap" nonce="{nonces[0][7:-1]}"']
    assert not re.findall(r"\son\w+=|<style|javascript:|\sstyle=", html)


def test_each_page_has_its_own_nonce(alice: User, browse: Callable[[User], Client]) -> None:
    browser = browse(alice)
    found = {re.search(r'nonce="([^"]+)"', browser.get("/o/acme/").content.decode())[1] for _ in range(3)}
    assert len(found) == 3


def test_names_from_outside_cannot_end_the_configuration(alice: User, browse: Callable[[User], Client]) -> None:
    Organization.objects.update(name="</script><script>alert(1)</script>")
    html = browse(alice).get("/o/acme/").content.decode()
    assert "<script>alert" not in html
    assert config_of(html)["organization"]["name"] == "</script><script>alert(1)</script>"


def test_only_those_who_manage_are_shown_the_way_to_the_administration(
    alice: User, bob: User, browse: Callable[[User], Client]
) -> None:
    assert config_of(browse(alice).get("/o/acme/").content.decode())["admin"] is True
    assert config_of(browse(bob).get("/o/acme/").content.decode())["admin"] is False


def test_the_page_sets_the_token_that_writes_need(alice: User, browse: Callable[[User], Client]) -> None:
    browser = browse(alice)
    browser.get("/o/acme/")
    assert settings.CSRF_COOKIE_NAME in browser.cookies


def test_every_module_is_fetched_ahead_and_exists(alice: User, browse: Callable[[User], Client]) -> None:
    html = browse(alice).get("/o/acme/").content.decode()
    preloaded = set(re.findall(r'<link rel="modulepreload" href="/static/([^"]+)"', html))
    own = {f"js/{path.name}" for path in (settings.BASE_DIR / "static/js").glob("*.js")} - {"js/theme-boot.js"}
    assert own <= preloaded
    mapped = json.loads(re.search(r'<script type="importmap"[^>]*>(.*?)</script>', html)[1])["imports"]
    for path in preloaded | {address.removeprefix("/static/") for address in mapped.values()}:
        assert (settings.BASE_DIR / "static" / path).is_file(), path


def test_hashed_names_of_a_release_reach_every_import(
    alice: User, browse: Callable[[User], Client], settings: Any, tmp_path: Any
) -> None:
    settings.STATIC_ROOT = str(tmp_path)
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
    }
    from django.core.management import call_command

    call_command("collectstatic", interactive=False, verbosity=0)
    storages["staticfiles"].hashed_files = storages["staticfiles"].load_manifest()[0]
    html = browse(alice).get("/o/acme/").content.decode()
    mapped = json.loads(re.search(r'<script type="importmap"[^>]*>(.*?)</script>', html)[1])["imports"]
    assert re.fullmatch(r"/static/js/socket\.[0-9a-f]{12}\.js", mapped["/static/js/socket.js"])
    assert re.fullmatch(r"/static/vendor/preact\.[0-9a-f]{12}\.js", mapped["preact"])
    for address in mapped.values():
        assert (tmp_path / address.removeprefix("/static/")).is_file(), address


def test_a_page_asks_the_database_a_constant_few_times(
    alice: User, conversation: Conversation, browse: Callable[[User], Client], django_assert_max_num_queries: Any
) -> None:
    browser = browse(alice)
    browser.get("/o/acme/")
    with django_assert_max_num_queries(8):
        browser.get(f"/o/acme/c/{conversation.pk}/")


def test_only_reading_is_possible(alice: User, browse: Callable[[User], Client]) -> None:
    for path in ("/", "/o/acme/"):
        assert browse(alice).post(path).status_code == 405


@pytest.mark.parametrize("path", ["/o/acme/", "/o/acme/approvals/"])
def test_who_does_not_chat_is_shown_what_their_role_is_for(
    path: str, alice: User, organization: Organization, browse: Callable[[User], Client]
) -> None:
    Membership.objects.filter(user=alice).update(role=Role.AUDITOR)
    page = browse(alice).get(path)
    assert page.status_code == 200
    shown = page.content.decode()
    assert "Auditor of Acme" in shown
    assert "/admin/accounts/auditrecord/" in shown
    assert "composer" not in shown
