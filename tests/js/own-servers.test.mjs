// What the form of a server of one's own sends, and which field an error belongs to.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyOf, draftOf, leavesBehind, problemOf } from "../../static/js/own-server-form.js";

const server = {
  id: "1", title: "Notes", url: "https://a.example/mcp", transport: "http", headers: ["Authorization", "X-Team"],
  variables: { TOKEN: { title: "Token", description: "", sensitive: true } },
};

test("nothing is sent that was not changed, and no stored header is emptied", () => {
  assert.deepEqual(bodyOf(draftOf(server), server), {});
});

test("a new value replaces, a row that was removed is null, and a row without a name is nothing", () => {
  const draft = draftOf(server);
  draft.headers = [{ name: "Authorization", value: "new", stored: true }, { name: " ", value: "x", stored: false }];
  draft.variables = [{ name: "TOKEN", title: "Key", sensitive: false }, { name: "", title: "x" }];
  assert.deepEqual(bodyOf(draft, server), {
    headers: { Authorization: "new", "X-Team": null },
    variables: { TOKEN: { title: "Key", description: "", sensitive: false } },
  });
});

test("a header that was removed and added again has its new value", () => {
  const draft = draftOf(server);
  draft.headers = [{ name: "X-Team", value: "b", stored: false }, { name: "Authorization", value: "", stored: true }];
  assert.deepEqual(bodyOf(draft, server), { headers: { "X-Team": "b" } });
});

test("a new server is sent whole", () => {
  const draft = { ...draftOf(null), title: " Notes ", url: " https://a.example/mcp " };
  assert.deepEqual(bodyOf(draft, null), { title: "Notes", url: "https://a.example/mcp", transport: "http", headers: {}, variables: {} });
});

test("an error belongs to the field that it names, deep within it too", () => {
  assert.deepEqual(problemOf("url: No.: really"), { field: "url", words: "No.: really" });
  assert.deepEqual(problemOf("headers.X.Y: Too long."), { field: "headers", words: "Too long." });
  assert.deepEqual(problemOf("slug: Taken."), { field: "", words: "slug: Taken." });
  assert.deepEqual(problemOf("You are signed out."), { field: "", words: "You are signed out." });
});

test("another address leaves behind what was stored", () => {
  assert.equal(leavesBehind(draftOf(server), server), false);
  assert.equal(leavesBehind({ ...draftOf(server), transport: "sse" }, server), true);
  assert.equal(leavesBehind(draftOf(null), null), false);
});
