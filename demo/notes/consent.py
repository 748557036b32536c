"""The page on which a person chooses an account at the notes server and allows, or does not allow, access to it."""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from demo.notes.accounts import FIRST, PEOPLE, SCOPES, Accounts, Person

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2933; --soft: #5b6672; --rule: #d5dbe1; --mark: #0b6e63; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #1b2127; --ink: #e6eaee; --soft: #a3adb8; --rule: #3a444e; --mark: #5ccfbf; }
}
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 16px; color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; background: color-mix(in srgb, var(--mark) 9%, var(--paper)); }
main { width: min(420px, 100%); padding: 28px; border-radius: 16px; background: var(--paper);
  box-shadow: 0 1px 3px #0003, 0 12px 32px #0001; }
h1 { margin: 4px 0 8px; font-size: 22px; line-height: 1.3; }
p { margin: 8px 0; }
ul { margin: 8px 0 16px; padding-left: 20px; }
.soft { color: var(--soft); font-size: 14px; }
.brand { color: var(--mark); font-weight: 600; }
fieldset { margin: 16px 0; padding: 0; border: 0; }
legend { margin-bottom: 6px; padding: 0; font-weight: 600; }
label { display: flex; gap: 12px; align-items: center; padding: 10px 12px; margin-bottom: 8px; cursor: pointer;
  border: 1px solid var(--rule); border-radius: 10px; }
label:has(:checked) { border-color: var(--mark); box-shadow: 0 0 0 1px var(--mark); }
label > span { display: grid; line-height: 1.35; }
input { accent-color: var(--mark); }
.buttons { display: flex; gap: 12px; margin-bottom: 16px; }
button { flex: 1; padding: 11px; font: inherit; font-weight: 600; cursor: pointer;
  border: 1px solid var(--rule); border-radius: 10px; color: var(--ink); background: none; }
button.allow { color: var(--paper); background: var(--mark); border-color: var(--mark); }
:focus-visible { outline: 3px solid color-mix(in srgb, var(--mark) 60%, transparent); outline-offset: 2px; }
"""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><main><div class="brand">Demo notes</div>{content}</main></body></html>"""
FORM = """<h1>{client} would like to use your notes</h1>
<p class="soft">You go back to {host} afterwards.</p>
<form method="post"><input type="hidden" name="request" value="{request}">
<fieldset><legend>Sign in as</legend>{people}</fieldset>
<p>{client} will be able to:</p><ul>{scopes}</ul>
<div class="buttons"><button name="decision" value="deny">Cancel</button>
<button class="allow" name="decision" value="allow">Allow</button></div>
<p class="soft">This is a demonstration on your own machine: both accounts are made up, and neither has a password.</p>
</form>"""
CHOICE = """<label><input type="radio" name="user" value="{subject}"{checked}>
<span>{name}<span class="soft">{email}</span></span></label>"""
EXPIRED = """<h1>This page is no longer valid</h1>
<p>Go back to where you came from, and choose <em>Sign in</em> again.</p>"""


def show(accounts: Accounts, request: str) -> Response:
    """The page for a request, or one that says that it has expired."""
    asked = accounts.asked(request)
    if asked is None:
        return _page("Expired", EXPIRED, 400)
    client, params = asked
    name = client.client_name or "An application"
    content = FORM.format(
        client=escape(name),
        host=escape(urlsplit(str(params.redirect_uri)).netloc),
        request=escape(request),
        people="".join(_choice(person, at == 0) for at, person in enumerate(PEOPLE.values())),
        scopes="".join(f"<li>{escape(SCOPES.get(scope, scope))}</li>" for scope in params.scopes or FIRST),
    )
    return _page("Allow access to your notes?", content)


async def answer(accounts: Accounts, request: Request) -> Response:
    """GET shows the page, POST takes the decision and sends the browser back."""
    if request.method != "POST":
        return show(accounts, request.query_params.get("request", ""))
    form = await request.form()
    allow = form.get("decision") == "allow"
    location = accounts.decide(str(form.get("request", "")), str(form.get("user", "")), allow)
    if location is None:
        return _page("Expired", EXPIRED, 400)
    return RedirectResponse(location, 302, headers=HEADERS)


def _choice(person: Person, first: bool) -> str:
    return CHOICE.format(
        subject=escape(person.subject),
        name=escape(person.name),
        email=escape(person.email),
        checked=" checked" if first else "",
    )


def _page(title: str, content: str, status: int = 200) -> Response:
    page = PAGE.format(title=escape(title), style=STYLE, content=content)
    return HTMLResponse(page, status, headers=HEADERS)
