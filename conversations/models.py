"""Conversations, their tree of messages, turns, tool calls, questions and attachments."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from accounts.tenancy import TenantModel, TenantQuerySet
from agents.models import Agent
from chatui.fields import EncryptedJSONField
from mcpservers.models import MCPServer

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

    from accounts.actors import Actor


class ConversationQuerySet(TenantQuerySet):
    def visible_to(self, actor: Actor) -> Self:
        return super().visible_to(actor).filter(owner_id=actor.user_id, deleted_at=None)

    def listed(self) -> Self:
        return self.filter(kind=Conversation.Kind.CHAT)


class Conversation(TenantModel):
    """A tree of messages of one owner; the path from the root to `current_leaf` is what is shown."""

    class Kind(models.TextChoices):
        CHAT = "chat", _("Chat")
        TEMPORARY = "temporary", _("Temporary chat")
        API = "api", _("API request")

    class TitleSource(models.TextChoices):
        QUESTION = "question", _("First question")
        MODEL = "model", _("Model")
        PERSON = "person", _("Person")

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="conversations")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.CHAT)
    title = models.CharField(max_length=200, blank=True)
    title_source = models.CharField(max_length=12, choices=TitleSource.choices, default=TitleSource.QUESTION)
    current_leaf = models.ForeignKey(
        "Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    pinned = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)
    accounts = models.JSONField(default=dict, blank=True)  # server's slug → id of the account that was chosen
    deleted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    active_at = models.DateTimeField()

    objects = ConversationQuerySet.as_manager()

    if TYPE_CHECKING:
        messages: RelatedManager[Message]
        turns: RelatedManager[Turn]

    class Meta:
        ordering = ["-active_at"]
        indexes = [models.Index(fields=["organization", "owner", "-active_at"], name="conversation_list")]

    def __str__(self) -> str:
        return self.title or str(self.pk)


class Message(models.Model):
    """A node of the tree. `parts` is the JSON list of `agents.parts`; tool calls are rows, named there by id."""

    class Role(models.TextChoices):
        USER = "user", _("User")
        ASSISTANT = "assistant", _("Assistant")

    class Status(models.TextChoices):
        """As the turn's; a user's message is always completed."""

        RUNNING = "running", _("Running")
        WAITING = "waiting", _("Waiting")
        COMPLETED = "completed", _("Completed")
        TRUNCATED = "truncated", _("Truncated")
        STOPPED = "stopped", _("Stopped")
        FAILED = "failed", _("Failed")
        EXHAUSTED = "exhausted", _("Exhausted")
        INTERRUPTED = "interrupted", _("Interrupted")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="children")
    role = models.CharField(max_length=12, choices=Role.choices)
    parts = models.JSONField(default=list)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.COMPLETED)
    model = models.CharField(max_length=200, blank=True)  # which one wrote it, for people
    usage = models.JSONField(null=True, blank=True)  # {input_tokens, output_tokens, cost, estimated}
    error = models.JSONField(null=True, blank=True)  # {code, message, request_id}
    seq = models.PositiveIntegerField(default=0)  # of its turn, at the last checkpoint
    search_text = models.TextField(blank=True)  # what a person would search for
    created_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        calls: RelatedManager[ToolCall]

    class Meta:
        ordering = ["created_at"]
        indexes = [models.Index(fields=["conversation", "created_at"], name="message_of_conversation")]

    def __str__(self) -> str:
        return f"{self.role} {self.pk}"


class Turn(models.Model):
    """One user message and the agent's answer. `RUNNING ⇄ WAITING → ended`; every transition names what it leaves."""

    class Kind(models.TextChoices):
        START = "start", _("Start")
        REGENERATE = "regenerate", _("Regenerate")
        CONTINUE = "continue", _("Continue")

    Status = Message.Status
    OPEN = (Message.Status.RUNNING, Message.Status.WAITING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    started_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    request_id = models.UUIDField()
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.START)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    user_message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="+")
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="turns")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.RUNNING)
    present = models.BooleanField(default=True)  # a person can be asked
    options = models.JSONField(default=dict)  # {timezone, tools, servers, accounts, system, model}
    offered = models.JSONField(default=dict)  # exposed name → [server id, tool name]
    first_part = models.PositiveIntegerField(default=0)  # where this turn's parts begin in the message (continue)
    rounds = models.PositiveIntegerField(default=0)
    calls_made = models.PositiveIntegerField(default=0)
    running_seconds = models.FloatField(default=0)
    usage = models.JSONField(default=dict)
    last_seq = models.PositiveIntegerField(default=0)
    process = models.CharField(max_length=64, blank=True)  # whose task runs it
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation"], condition=Q(status__in=["running", "waiting"]), name="one_open_turn"
            ),
            models.UniqueConstraint(fields=["started_by", "request_id"], name="one_turn_per_request"),
        ]
        indexes = [
            models.Index(fields=["heartbeat_at"], condition=Q(status="running"), name="turn_heartbeat"),
            models.Index(fields=["started_by"], condition=Q(status__in=["running", "waiting"]), name="turn_open"),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk} ({self.status})"


class ToolCall(models.Model):
    """One call of a round: a row from the moment the assistant's message of that round is complete."""

    class Status(models.TextChoices):
        PENDING = "pending", _("Pending")  # allowed, not yet running
        WAITING = "waiting", _("Waiting for an answer")
        RUNNING = "running", _("Running")
        OK = "ok", _("OK")
        ERROR = "error", _("Error")
        DENIED = "denied", _("Denied")
        CANCELLED = "cancelled", _("Cancelled")
        TIMEOUT = "timeout", _("Timed out")
        UNAVAILABLE = "unavailable", _("Unavailable")
        INTERRUPTED = "interrupted", _("Interrupted")
        EXPIRED = "expired", _("Expired")

    OPEN = (Status.PENDING, Status.WAITING, Status.RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="calls")
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="calls")
    round = models.PositiveIntegerField()
    position = models.PositiveIntegerField()  # within the round: tool messages go back in this order
    provider_id = models.CharField(max_length=200)  # the model's id for it; providers reuse them between rounds
    name = models.CharField(max_length=200)  # as the model called it
    server = models.ForeignKey(MCPServer, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    server_slug = models.CharField(max_length=24, blank=True)
    server_title = models.CharField(max_length=120, blank=True)
    tool = models.CharField(max_length=200, blank=True)  # as the server calls it
    title = models.CharField(max_length=200, blank=True)
    arguments_text = models.TextField(blank=True)  # as the model wrote them
    arguments = models.JSONField(null=True, blank=True)  # null: they were not a JSON object
    extra = models.JSONField(default=dict, blank=True)  # to be sent back with it, e.g. a thought signature
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    verdict = models.CharField(max_length=8, blank=True)  # allow, ask or deny, when it was prepared
    reason = models.TextField(blank=True)  # of the verdict
    account_id = models.UUIDField(null=True, blank=True)  # the linked account that it acted with
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    result_text = models.TextField(blank=True)  # what the model is told
    result_content = models.JSONField(default=list, blank=True)  # what people are shown: parts, shortened
    started_at = models.DateTimeField(null=True, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        questions: RelatedManager[Question]

    class Meta:
        ordering = ["round", "position"]
        constraints = [models.UniqueConstraint(fields=["turn", "round", "position"], name="one_call_per_position")]

    def __str__(self) -> str:
        return f"{self.name} ({self.status})"


class QuestionQuerySet(TenantQuerySet):
    def visible_to(self, actor: Actor) -> Self:
        """Those that the actor may answer, or may have answered."""
        named = Question.approvers.through.objects.filter(question_id=OuterRef("pk"), user_id=actor.user_id)
        return super().visible_to(actor).filter(Q(asked_of_id=actor.user_id, by_owner=True) | Exists(named))


class Question(TenantModel):
    """What a person is asked: the only way in which a turn waits and goes on."""

    class Kind(models.TextChoices):
        APPROVAL = "approval", _("Approval")
        AUTHORIZATION = "authorization", _("Authorization")
        ELICITATION = "elicitation", _("Elicitation")

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        ANSWERED = "answered", _("Answered")
        EXPIRED = "expired", _("Expired")
        VOID = "void", _("Void")

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="questions")
    call = models.ForeignKey(ToolCall, on_delete=models.CASCADE, null=True, related_name="questions")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    asked_of = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")  # whose call it is
    by_owner = models.BooleanField(default=True)  # whether `asked_of` may answer
    approvers = models.ManyToManyField(User, related_name="+", blank=True)  # who else may
    definition = models.CharField(max_length=64, blank=True)  # hash of the tool's, as it was when it was asked
    arguments = models.CharField(max_length=64, blank=True)  # hash of those that the card shows
    details = models.JSONField(default=dict)  # what the card shows: reason, claims, account, can_edit; or server, url…
    kept = EncryptedJSONField(null=True, blank=True)  # what the call is made again with; nobody is shown it
    state = models.CharField(max_length=12, choices=State.choices, default=State.OPEN)
    answer = models.JSONField(null=True, blank=True)  # {decision, note, …}
    answered_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    answered_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ["created_at"]
        indexes = [models.Index(fields=["asked_of", "state"], name="question_open")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk} ({self.state})"


class StandingQuerySet(TenantQuerySet):
    def visible_to(self, actor: Actor) -> Self:
        return super().visible_to(actor).filter(user_id=actor.user_id)


class StandingApproval(TenantModel):
    """*Always allow*: one person's word for one tool as it was defined then, for that person's own turns alone."""

    class Scope(models.TextChoices):
        CONVERSATION = "conversation", _("In this chat")
        AGENT = "agent", _("With this agent")
        ALWAYS = "always", _("Always")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="+")
    tool = models.CharField(max_length=200)
    title = models.CharField(max_length=200, blank=True)  # of the tool, for people
    scope = models.CharField(max_length=12, choices=Scope.choices)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    definition = models.CharField(max_length=64)  # hash of the tool's: another definition is another tool
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = StandingQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["user", "server", "tool"], name="standing_of_tool")]

    def __str__(self) -> str:
        return f"{self.tool} ({self.scope})"


class AttachmentQuerySet(TenantQuerySet):
    def visible_to(self, actor: Actor) -> Self:
        return super().visible_to(actor).filter(owner_id=actor.user_id)


def attachment_path(attachment: Attachment, filename: str) -> str:
    return f"attachments/{attachment.organization_id}/{attachment.pk.hex[:2]}/{attachment.pk}"


class Attachment(TenantModel):
    """A file: what a user attached to a message, or what a tool's result brought (an artifact)."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, null=True, blank=True, related_name="attachments"
    )
    call = models.ForeignKey(ToolCall, on_delete=models.CASCADE, null=True, blank=True, related_name="artifacts")
    file = models.FileField(upload_to=attachment_path, max_length=200)
    name = models.CharField(max_length=150)
    content_type = models.CharField(max_length=100)  # decided by content, not by name
    size = models.PositiveIntegerField()
    text = models.TextField(blank=True)  # what the model is given of a text file
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AttachmentQuerySet.as_manager()

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return self.name


class UsageRecord(TenantModel):
    """What one turn has spent. No foreign key to the turn: the record outlives it."""

    turn_id = models.UUIDField(unique=True)
    user = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="+")
    model = models.CharField(max_length=140, blank=True)  # endpoint/model, as their slugs were then
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.FloatField(null=True, blank=True)
    calls = models.PositiveIntegerField(default=0)
    estimated = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    objects = TenantQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["organization", "created_at"], name="usage_of_organization"),
            models.Index(fields=["user", "created_at"], name="usage_of_user"),
        ]

    def __str__(self) -> str:
        return f"usage of turn {self.turn_id}"
