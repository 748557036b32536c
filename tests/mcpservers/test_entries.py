"""Entries: the newest list wins in memory and in the database, whoever writes last; repairs are made once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Organization
from mcpservers import entries
from mcpservers.discovery import Discovery
from mcpservers.entries import Address, Entry
from mcpservers.models import CatalogueEntry, MCPServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _empty_memory() -> None:
    entries.memory.clear()


@pytest.fixture
def server(organization: Organization) -> MCPServer:
    return MCPServer.objects.create(organization=organization, slug="s", title="S", url="http://127.0.0.1/")


@pytest.fixture
def address(server: MCPServer) -> Address:
    return Address(server.pk, "hash")


def discovery(*names: str, **fields: Any) -> Discovery:
    return Discovery(tools=[{"name": name, "inputSchema": {}} for name in names], **fields)


def names(entry: Entry | None) -> list[str]:
    return [] if entry is None else [tool["name"] for tool in entry.tools]


def found(address: Address, slug: str = "s") -> Entry | None:
    return entries.find({address: slug}).get(address)


def test_what_is_stored_is_found_in_memory_and_after_a_restart(address: Address) -> None:
    entries.store(address, "s", discovery("a", instructions="Be kind."), entries.new_revision())
    with CaptureQueriesContext(connection) as queries:
        assert names(found(address)) == ["a"]
    assert not queries.captured_queries
    entries.memory.clear()
    entry = found(address)
    assert entry is not None
    assert (names(entry), entry.instructions) == (["a"], "Be kind.")


def test_a_late_writer_never_overwrites_a_newer_list(address: Address) -> None:
    early, late = entries.new_revision(), entries.new_revision() + 1
    entries.store(address, "s", discovery("new"), late)
    assert names(entries.store(address, "s", discovery("old"), early)) == ["new"]
    entries.memory.clear()
    assert names(entries.store(address, "s", discovery("old"), early)) == ["new"], "also where memory does not know it"
    assert names(found(address)) == ["new"]
    assert names(_stored(address)) == ["new"]


def _stored(address: Address) -> Any:
    return CatalogueEntry.objects.get(server_id=address.server_id, owner_key=address.owner)


def test_an_incomplete_list_serves_its_caller_and_replaces_nothing(address: Address) -> None:
    entries.store(address, "s", discovery("whole"), entries.new_revision())
    partial = entries.store(address, "s", discovery("part", complete=False), entries.new_revision())
    assert names(partial) == ["part"]
    assert names(found(address)) == ["whole"]
    assert names(_stored(address)) == ["whole"]


def test_memory_is_asked_again_only_when_it_is_no_longer_fresh(address: Address, settings: Any) -> None:
    settings.MCP = {**settings.MCP, "CATALOGUE_FRESH_SECONDS": -1}
    entry = entries.store(address, "s", discovery("a"), entries.new_revision())
    repaired = entry.definitions("openai")
    with CaptureQueriesContext(connection) as queries:
        again = found(address)
    assert len(queries.captured_queries) == 1, "the tools are not read again"
    assert again is not None
    assert again.definitions("openai") is repaired
    CatalogueEntry.objects.update(revision=entries.new_revision() + 9, tools=[{"name": "b"}])  # by another process
    assert names(found(address)) == ["b"]


def test_what_was_not_there_a_moment_ago_is_not_looked_for_until_it_is_stored(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of servers that are down, which every offer asks for."""
    assert found(address) is None
    with CaptureQueriesContext(connection) as queries:
        assert found(address) is None
    assert not queries.captured_queries
    entries.store(address, "s", discovery("a"), entries.new_revision())
    assert names(found(address)) == ["a"]
    for forget in (lambda: entries.memory.forget(address.server_id), entries.memory.clear):
        CatalogueEntry.objects.all().delete()
        forget()
        assert found(address) is None
    store_elsewhere(address, "b")
    assert found(address) is None, "for a moment"
    entries.memory.clear()
    assert names(found(address)) == ["b"]
    monkeypatch.setattr(entries, "ABSENT_SECONDS", 0)
    other = Address(address.server_id, "other hash")
    assert found(other) is None
    store_elsewhere(other, "c")
    assert names(found(other)) == ["c"], "when the moment is over"


def store_elsewhere(address: Address, tool: str) -> None:
    """As another process does, whose memory is its own."""
    CatalogueEntry.objects.create(
        server_id=address.server_id,
        definition_hash=address.definition_hash,
        owner_key=address.owner,
        tools=[{"name": tool}],
        revision=entries.new_revision(),
        fetched_at=timezone.now(),
    )


def test_many_entries_are_found_with_two_queries(organization: Organization) -> None:
    wanted = {}
    for number in range(20):
        made = MCPServer.objects.create(organization=organization, slug=f"s{number}", title="S")
        address = Address(made.pk, "hash")
        entries.store(address, made.slug, discovery(f"t{number}"), entries.new_revision())
        wanted[address] = made.slug
    entries.memory.clear()
    with CaptureQueriesContext(connection) as queries:
        known = entries.find(wanted)
    assert len(queries.captured_queries) == 2
    assert {address: names(entry) for address, entry in known.items()} == {
        address: [f"t{slug[1:]}"] for address, slug in wanted.items()
    }


def test_of_others_the_newest_whole_list_is_read_alone_and_once(server: MCPServer) -> None:
    for number in range(5):
        entries.store(Address(server.pk, "hash", f"u{number}:f"), "s", discovery(f"t{number}"), entries.new_revision())
    CatalogueEntry.objects.filter(owner_key="u4:f").update(complete=False)
    entries.memory.clear()
    mine = Address(server.pk, "hash", "me:f")
    with CaptureQueriesContext(connection) as queries:
        first = entries.of_others({mine: "s"})
    assert names(first[mine]) == ["t3"]
    repaired = first[mine].definitions("openai")
    read = [query["sql"] for query in queries.captured_queries if '"tools"' in query["sql"]]
    assert len(read) == 1
    assert "complete" in read[0]
    with CaptureQueriesContext(connection) as queries:
        again = entries.of_others({mine: "s"})
    assert [query for query in queries.captured_queries if '"tools"' in query["sql"]] == []
    assert again[mine].definitions("openai") is repaired
    assert entries.of_others({Address(server.pk, "other hash", "me:f"): "s"}) == {}


def test_owners_and_definitions_are_kept_apart(server: MCPServer) -> None:
    one, other = Address(server.pk, "hash", "u1:f"), Address(server.pk, "hash", "u2:f")
    entries.store(one, "s", discovery("admin_tool"), entries.new_revision())
    entries.store(other, "s", discovery("basic"), entries.new_revision())
    for _ in range(2):
        assert names(found(one)) == ["admin_tool"]
        assert names(found(other)) == ["basic"]
        assert found(Address(server.pk, "other hash", "u1:f")) is None
        entries.memory.clear()


def test_lists_of_older_definitions_and_older_values_are_dropped(server: MCPServer) -> None:
    for address in (Address(server.pk, "old"), Address(server.pk, "new", "u1:old"), Address(server.pk, "new", "u2:x")):
        entries.store(address, "s", discovery("a"), entries.new_revision())
    entries.store(Address(server.pk, "new", "u1:new"), "s", discovery("a"), entries.new_revision())
    kept = set(CatalogueEntry.objects.values_list("definition_hash", "owner_key"))
    assert kept == {("new", "u1:new"), ("new", "u2:x")}


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_deleted_meanwhile_is_no_error(address: Address, server: MCPServer) -> None:
    server.delete()
    assert names(entries.store(address, "s", discovery("a"), entries.new_revision())) == ["a"]
    assert not CatalogueEntry.objects.exists()


def test_an_entry_grows_stale_and_still_serves(address: Address) -> None:
    entries.store(address, "s", discovery("a"), entries.new_revision())
    CatalogueEntry.objects.update(fetched_at=timezone.now() - timedelta(hours=13))
    entries.memory.clear()
    entry = found(address)
    assert entry is not None
    assert entry.is_stale


def test_a_new_slug_makes_new_names(address: Address) -> None:
    entries.store(address, "s", discovery("a"), entries.new_revision())
    renamed = found(address, "renamed")
    assert renamed is not None
    assert renamed.definitions("openai")[0].exposed_name == "renamed__a"


def test_memory_holds_so_many_and_drops_the_longest_unused(server: MCPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_ENTRIES", 3)
    addresses = [Address(server.pk, "hash", f"u{number}:f") for number in range(4)]
    for address in addresses:
        entries.store(address, "s", discovery("a"), entries.new_revision())
        entries.memory.fresh(addresses[0], "s")
    assert [entries.memory.fresh(address, "s") is not None for address in addresses] == [True, False, True, True]


# --- Definitions --------------------------------------------------------------------------------------------------


def definition(tool: dict[str, Any], dialect: str = "openai") -> entries.Definition:
    entry = Entry(Address(None, ""), "s", [tool], [], "", True, 1, timezone.now())
    return entry.definitions(dialect)[0]


def test_a_tool_that_cannot_be_repaired_is_quarantined_by_itself() -> None:
    assert "must be an object" in definition({"name": "a", "inputSchema": {"type": "string"}}).quarantined
    assert definition({"name": "a"}).parameters == {"type": "object", "properties": {}}


def test_a_tool_that_only_runs_as_a_task_is_quarantined() -> None:
    assert "task" in definition({"name": "a", "execution": {"taskSupport": "required"}}).quarantined
    assert not definition({"name": "a", "execution": {"taskSupport": "optional"}}).quarantined


def test_hidden_words_are_shown_to_nobody() -> None:
    made = definition({"name": "re\u200bad", "description": "Reads.\U000e0049 \u202ex\x1b[31m", "title": "\u200b"})
    assert (made.name, made.title, made.description) == ("re\u200bad", "read", "Reads. x")
    assert made.exposed_name.startswith("s__read_")


def test_what_is_not_text_is_not_shown() -> None:
    made = definition({"name": "a", "description": 7, "title": [], "annotations": "x", "outputSchema": 7})
    assert (made.title, made.description, made.annotations, made.output_schema) == ("", "", {}, None)
    assert definition({"name": "a", "annotations": {"title": "Hint"}}).title == "Hint"


def test_two_names_with_one_exposed_name_are_not_both_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "exposed_name", lambda slug, tool: "s__same")
    tools = [{"name": "a"}, {"name": "b"}]
    entry = Entry(Address(None, ""), "s", tools, [], "", True, 1, timezone.now())
    assert [bool(each.quarantined) for each in entry.definitions("openai")] == [False, True]
