// How many approvals wait for this person, in every chat and of other people too: the way to them in the sidebar.
import { useChat, useStore } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { count } from "./words.js";

const SOON = 150; // several questions of one moment are one look

/** Look again how many there are; what was shown stays where that cannot be found out. */
export function countApprovals(chat) {
  clearTimeout(chat.countingApprovals);
  chat.countingApprovals = setTimeout(async () => {
    try {
      const { open } = await chat.api.get("approvals/count");
      chat.store.set({ approvals: open });
    } catch {
      // The next hint, or the next connection, looks again.
    }
  }, SOON);
}

export function ApprovalsLink() {
  const chat = useChat();
  const open = useStore((state) => state.approvals);
  return html`<a class="sidebar-link" href=${`/o/${chat.config.organization.slug}/approvals/`}
    aria-label=${open ? `Approvals ${open}: ${count(open, "question")} for you` : "Approvals"}><${Icon} name="shield" size=${16} /><span>Approvals</span>${" "}
    ${open > 0 && html`<span class="badge" aria-hidden="true">${open > 99 ? "99+" : open}</span>`}</a>`;
}
