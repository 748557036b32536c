// Signing in at a server: the window in which it happens, and what is heard of it. The window's handle is never asked
// (a page of another site cuts it off): news come over the socket, and from other pages of this browser.
import { announce, announceNow } from "./announce.js";
import { serverOf } from "./state.js";

export const CHANNEL = "chatui:sign-in";

/** The address of our own page that leads to the sign-in, from a card's or a server's `url`. */
export function beginAddress(url, { back = "", popup = false } = {}) {
  const address = new URL(url, location.origin);
  if (address.origin !== location.origin) return ""; // a card never leads elsewhere
  if (back) address.searchParams.set("back", back);
  if (popup) address.searchParams.set("window", "1");
  return address.pathname + address.search;
}

export function beginOf(organization, server, account = "") {
  return `/o/${organization}/connections/${encodeURIComponent(server)}/begin${account ? `?account=${encodeURIComponent(account)}` : ""}`;
}

/** Open the window; false where the browser does not let us. */
export function openWindow(address) {
  const [width, height] = [560, 760];
  const left = Math.max(0, Math.round(screenX + (outerWidth - width) / 2));
  const top = Math.max(0, Math.round(screenY + (outerHeight - height) / 3));
  return Boolean(open(address, "_blank", `popup,width=${width},height=${height},left=${left},top=${top}`));
}

/** What became of a sign-in, kept by server for the cards: `{state: "done" | "failed" | "gone", account, message}`. */
export function heard(chat, news) {
  if (news.organization !== chat.config.organization.slug) return;
  const { server, title, account } = news;
  const named = title || serverOf(chat.store.get(), server)?.title || server;
  const before = chat.store.get().signIns[server];
  const now = outcome(news);
  if (!now || (before?.state === now.state && before?.account === now.account && before?.message === now.message)) return;
  chat.store.set((state) => ({ signIns: { ...state.signIns, [server]: now } }));
  if (now.state === "done") announce(account ? `Signed in at ${named} as ${account}.` : `Signed in at ${named}.`);
  else if (now.state === "failed") announceNow(`Signing in at ${named} did not work. ${now.message}`);
  chat.loadAgents({ quiet: true });
}

/** Pure. */
export function outcome({ type, state, account = "", message = "" }) {
  if (type === "connection.changed") return { state: state === "connected" ? "done" : "gone", account, message: "" };
  if (type === "signed-in") return { state: "done", account, message: "" };
  if (type === "sign-in-failed") return { state: "failed", account: "", message };
  return null;
}

export function listenForSignIns(chat) {
  if (!globalThis.BroadcastChannel) return;
  new BroadcastChannel(CHANNEL).addEventListener("message", ({ data }) => data && heard(chat, data));
}
