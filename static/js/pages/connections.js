// What scripts add to the page of connections: dialogs for values and servers of one's own, local times, news.
import { createApi } from "../api.js";
import { announce } from "../announce.js";
import { setUp } from "../setup-dialog.js";
import { CHANNEL } from "../sign-in.js";
import { wireOwnServers } from "./own-servers.js";

const config = JSON.parse(document.getElementById("config").textContent);
const again = () => location.reload();
const page = {
  config,
  api: createApi({ organization: config.organization.slug, csrfCookie: config.csrf_cookie, onSignedOut: again }),
  toast: announce,
  loadAgents: async () => again(),
};

wireOwnServers(page);

for (const details of document.querySelectorAll("[data-setup]")) {
  const server = config.items.find((item) => item.slug === details.dataset.setup);
  details.querySelector("summary").addEventListener("click", (event) => {
    event.preventDefault();
    setUp(page, server);
  });
}

for (const time of document.querySelectorAll("time[data-local]")) {
  const at = new Date(time.dateTime);
  time.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

// One disclosure at a time, closed by Escape, the focus back on what opened it.
const disclosures = [...document.querySelectorAll(".connection details")];
for (const details of disclosures) {
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    for (const other of disclosures) if (other !== details) other.open = false;
    details.querySelector("input[type=text]")?.select();
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
  });
}

if (globalThis.BroadcastChannel) {
  new BroadcastChannel(CHANNEL).addEventListener("message", ({ data }) => {
    const mine = data?.type === "signed-in" && data.organization === config.organization.slug;
    if (mine && !document.querySelector("dialog[open], details[open]")) again();
  });
}
