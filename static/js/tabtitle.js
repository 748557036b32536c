// The title of the tab: the chat's name, and a sign while something is written or asked.
import { waitingCalls } from "./state.js";

export function watchTitle({ store }) {
  const update = (state) => {
    const name = state.view === "new" ? "" : state.conversation?.title;
    const sign = waitingCalls(state).length ? "(!) " : state.turn || state.pending ? "● " : "";
    const title = `${sign}${name ? `${name} · ` : ""}chatui`;
    if (document.title !== title) document.title = title;
  };
  store.watch(update);
  update(store.get());
}
