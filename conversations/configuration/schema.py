"""The shape of the configuration file; an absent or null key means the default of the model's field."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)

from accounts.models import Role
from agents.models import Dialect
from conversations.configuration.problems import ConfigurationError, Path, Problem
from mcpservers.models import MCPServer, Transport

Text = Annotated[str, StringConstraints(min_length=1)]
Headers = dict[Text, str]


def _group(value: object) -> object:
    return {"members": value} if isinstance(value, list) else value


def _empty(value: object) -> object:
    """A key with nothing after it is an empty section, as people mean it."""
    return {} if value is None else value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class User(Section):
    """What is absent here is left as it is: a user is more than one file's."""

    email: str | None = None
    password: str | None = None
    superuser: bool | None = None


class Prices(Section):
    """Per million tokens."""

    input: Decimal | None = None
    output: Decimal | None = None


class Model(Section):
    name: str | None = None
    title: str | None = None
    context: int | None = None
    tools: bool | None = None
    parallel_tools: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None
    stream: bool | None = None
    stream_options: bool | None = None
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] | None = None
    temperature_allowed: bool | None = None
    system_role: Literal["system", "developer", "user"] | None = None
    dialect: Dialect | None = None
    return_reasoning: bool | None = None
    prefill: bool | None = None
    alternate_roles: bool | None = None
    drop_tools_on_close: bool | None = None
    prices: Prices | None = None


class Endpoint(Section):
    name: str | None = None
    base_url: Text
    api_key: str | None = None
    headers: Headers | None = None
    extra_body: dict[str, Any] | None = None
    dialect: Dialect | None = None
    connect_timeout: float | None = None
    first_token_timeout: float | None = None
    chunk_timeout: float | None = None
    retries: int | None = None
    max_concurrency: int | None = None
    enabled: bool | None = None
    models: Annotated[dict[Text, Annotated[Model, BeforeValidator(_empty)]], BeforeValidator(_empty)] = {}


class Variable(Section):
    title: str = ""
    description: str = ""
    sensitive: bool = True


class OnBehalf(Section):
    grant: str | None = None
    scopes: list[Text] | None = None
    audience: str | None = None
    resource: str | None = None
    token_endpoint: str | None = None


class OAuth(Section):
    """`mcpservers.oauth.config` says what goes with what; an empty mapping means: as discovered."""

    client_id: Text | None = None
    client_secret: str | None = None
    auth_method: str | None = None
    private_key: str | None = None
    assertion: str | None = None
    key_id: str | None = None
    key_algorithm: str | None = None
    scopes: list[Text] | None = None
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    revocation_endpoint: str | None = None
    resource: str | Literal[False] | None = None
    prompt: str | None = None
    grant: str | None = None
    allow_missing_pkce: bool | None = None
    dpop: bool | None = None
    legacy_endpoints: bool | None = None
    share_tools: bool | None = None
    obo: OnBehalf | None = None


class Rule(Section):
    tool: Text
    do: Literal["allow", "ask", "deny"]
    remember: bool = True  # whether a person may answer “always allow”
    edit: bool = False  # whether who is asked may change the arguments
    approvers: list[Text] | None = None  # who is asked: user names, group:slug; else whose turn it is

    @model_serializer(mode="wrap")
    def without_default(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        defaults = {"remember": True, "edit": False, "approvers": None}
        return {name: item for name, item in value.items() if name not in defaults or item != defaults[name]}


class Group(Section):
    name: str | None = None
    members: list[Text] = []
    rules: list[Rule] | None = None


class Grant(Section):
    organization: Literal[True] | None = None
    group: Text | None = None
    user: Text | None = None
    deny: bool = False

    @model_validator(mode="after")
    def names_one_grantee(self) -> Self:
        if sum(who is not None for who in (self.organization, self.group, self.user)) != 1:
            raise ValueError("a grant names exactly one of: organization, group, user")
        return self


class ServerGrant(Grant):
    tool: str = ""


class Server(Section):
    title: str | None = None
    description: str | None = None
    transport: Transport | None = None
    url: str | None = None
    command: str | None = None
    args: list[str] | None = None
    headers: Headers | None = None
    env: dict[Text, str] | None = None
    variables: dict[Text, Variable] | None = None
    oauth: OAuth | None = None
    timeout: float | None = None
    connect_timeout: float | None = None
    trust: MCPServer.Trust | None = None
    new_tools: Literal["accept", "review"] | None = None
    read_only: list[Text] | None = None
    rules: list[Rule] | None = None
    use_instructions: bool | None = None
    enabled: bool | None = None
    grants: list[ServerGrant] = []


ModelName = Annotated[str, StringConstraints(pattern=r"^[^/]+/[^/]+$")]


class Agent(Section):
    name: str | None = None
    description: str | None = None
    model: ModelName
    other_models: list[ModelName] = []
    instructions: str | None = None
    starters: list[Text] | None = None
    servers: list[Text] = []
    tools: dict[Text, list[Text]] = {}
    max_rounds: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    rules: list[Rule] | None = None
    user_servers: bool | None = None
    enabled: bool | None = None
    grants: list[Grant] = []


class Organization(Section):
    name: str | None = None
    members: Annotated[dict[Text, Role], BeforeValidator(_empty)] = {}
    groups: Annotated[dict[Text, Annotated[Group, BeforeValidator(_group)]], BeforeValidator(_empty)] = {}
    endpoints: Annotated[dict[Text, Endpoint], BeforeValidator(_empty)] = {}
    servers: Annotated[dict[Text, Annotated[Server, BeforeValidator(_empty)]], BeforeValidator(_empty)] = {}
    agents: Annotated[dict[Text, Agent], BeforeValidator(_empty)] = {}
    budgets: list[Any] = []
    audit_days: int | None = None
    audit_bodies: bool | None = None
    own_servers: Literal["nobody", "members"] | None = None


class Configuration(Section):
    users: Annotated[dict[Text, Annotated[User, BeforeValidator(_empty)]], BeforeValidator(_empty)] = {}
    organizations: Annotated[dict[Text, Organization], BeforeValidator(_empty)] = {}


_MESSAGES = {
    "extra_forbidden": "unknown key",
    "missing": "is required",
    "dict_type": "must be a mapping (key: value)",
    "model_type": "must be a mapping (key: value)",
    "list_type": "must be a list",
    "string_type": "must be text (put it into quotes)",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be written as endpoint/model",
}


def validate(value: Any) -> Configuration:
    """The configuration in `value` (a parsed document). Raises `ConfigurationError` with the path of each problem."""
    try:
        return Configuration.model_validate({} if value is None else value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    raise ConfigurationError([_problem(detail["type"], detail["loc"], detail["msg"]) for detail in details])


def _problem(kind: str, path: Path, message: str) -> Problem:
    if not path:
        return Problem((), "The file must be a mapping with the keys users and organizations.")
    return Problem(
        path, _MESSAGES.get(kind) or message.removeprefix("Value error, ").replace("Input should be", "must be")
    )
