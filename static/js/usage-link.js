// Beside what a budget refuses or warns of: the way to what is used.
import { useChat } from "./context.js";
import { html } from "./html.js";
import { isOfBudget } from "./words.js";

export function UsageLink({ code }) {
  const { config } = useChat();
  return isOfBudget(code) ? html`<a href=${`/o/${config.organization.slug}/usage/`}>See what is used</a>` : null;
}
