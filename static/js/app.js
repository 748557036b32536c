// The start: the composer first (it has taken text all the while), then the connection, then everything that is shown.
import { render } from "preact";
import { createApi } from "./api.js";
import { createComposer } from "./composer.js";
import { Chips, ComposerHint, ComposerNotice, ComposerTools, DropZone, SendButton } from "./composer-view.js";
import { PROBLEMS } from "./connection.js";
import { ChatContext } from "./context.js";
import { conversationIn, load, newChat, openConversation } from "./conversation.js";
import { createList } from "./conversations.js";
import { createDrafts } from "./drafts.js";
import { createFormDrafts } from "./form-drafts.js";
import { onFrame } from "./frames.js";
import { html } from "./html.js";
import { initLayout } from "./layout.js";
import { Jump, Log } from "./messages.js";
import { createOutbox } from "./outbox.js";
import { giveBack } from "./requests.js";
import { restoreOutbox } from "./sending.js";
import { initShortcuts } from "./shortcuts.js";
import { listenForSignIns } from "./sign-in.js";
import { Sidebar } from "./sidebar.js";
import { ChatSocket, socketAddress } from "./socket.js";
import { initialState } from "./state.js";
import { storageOf } from "./storage.js";
import { createStore } from "./store.js";
import { initTheme } from "./theme.js";
import { watchTitle } from "./tabtitle.js";
import { Toasts, createToaster } from "./toast.js";
import { TopBar } from "./topbar.js";
import { chooseAgent, chooseTools, loadAgents } from "./choices.js";

const config = JSON.parse(document.getElementById("config").textContent);
const scope = `${config.user.id}:${config.organization.slug}`;
const store = createStore(initialState(config));
const chat = { config, store, toast: createToaster(store), drafts: createDrafts(scope, storageOf("localStorage")) };

function connectionIs(state, { retryAt = 0 } = {}) {
  if (PROBLEMS[state]) giveBack(chat); // no other connection follows that it could be sent over
  store.set(({ connection }) => ({
    connection: { state, retryAt, since: Date.now(), before: connection.before || state !== "connecting" },
  }));
}

chat.api = createApi({
  organization: config.organization.slug,
  csrfCookie: config.csrf_cookie,
  onSignedOut: () => connectionIs("signed_out"),
});
chat.forms = createFormDrafts(scope, storageOf("sessionStorage"));
chat.outbox = createOutbox(scope, storageOf("sessionStorage"));
chat.list = createList(chat);
chat.socket = new ChatSocket(socketAddress(config.organization.slug), {
  onFrame: (frame) => onFrame(chat, frame), onState: connectionIs,
});
chat.loadAgents = (options) => loadAgents(chat, options);
chat.chooseAgent = (slug) => chooseAgent(chat, slug);
chat.chooseTools = (tools) => chooseTools(chat, tools);

restoreOutbox(chat, config.conversation);
chat.composer = createComposer(chat);
if (config.conversation) load(chat, config.conversation);
chat.loadAgents();
chat.list.reload();
chat.socket.open();

function show(component, id) {
  const place = document.getElementById(id);
  place.replaceChildren();
  render(html`<${ChatContext.Provider} value=${chat}><${component} store=${store} /></${ChatContext.Provider}>`, place);
}

show(Jump, "jump");
show(SendButton, "composer-send");
show(ComposerTools, "composer-tools");
show(Chips, "composer-chips");
show(ComposerNotice, "composer-notice");
show(ComposerHint, "composer-hint");
show(TopBar, "topbar");
show(Log, "log");
show(Sidebar, "sidebar");
show(DropZone, "drop");
show(Toasts, "toasts");

initLayout();
initTheme();
initShortcuts(chat);
watchTitle(chat);
listenForSignIns(chat);

addEventListener("popstate", () => {
  const id = conversationIn(location.pathname);
  if (id) openConversation(chat, id, { address: false });
  else newChat(chat, { address: false });
});
