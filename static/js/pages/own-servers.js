// Servers of one's own on the page of connections: added, changed, checked, switched and deleted.
import { openDialog } from "../dialog.js";
import { html } from "../html.js";
import { openCheck } from "../own-server-check.js";
import { openServerForm } from "../own-server-form.js";

const again = () => location.reload();

/** Let the buttons of the page work; `page` has `api`, `config` and `toast`. */
export function wireOwnServers(page) {
  const servers = new Map(page.config.own.items.map((server) => [server.id, server]));
  const acts = {
    add: async () => {
      const made = await openServerForm(page);
      if (made) await shown(page, made);
    },
    change: async (server) => {
      const changed = await openServerForm(page, server);
      if (changed) await shown(page, changed);
    },
    check: async (server) => {
      await openCheck(page, server);
      again();
    },
    switch: async (server) => {
      await page.api.patch(`connections/servers/${server.id}`, { enabled: !server.enabled });
      again();
    },
    delete: async (server) => {
      if (!(await sure(server))) return;
      const { warnings } = await page.api.delete(`connections/servers/${server.id}`);
      if (warnings.length) await deleted(server, warnings);
      again();
    },
  };
  for (const button of document.querySelectorAll("[data-own]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await acts[button.dataset.own](servers.get(button.dataset.server));
      } catch (error) {
        const place = document.getElementById("own-problem");
        place.textContent = error.message;
        place.hidden = false;
        place.scrollIntoView({ block: "nearest" });
      } finally {
        button.disabled = false;
      }
    });
  }
}

/** After it was stored: what has to be entered again, else whether it works. */
async function shown(page, server) {
  if (!server.enabled) return again();
  const missing = Object.keys(server.variables).length > 0;
  if (!missing) await openCheck(page, server);
  return again();
}

function sure(server) {
  return openDialog({
    title: `Delete ${server.title}?`,
    body: (close) => html`<div class="stack"><p>Agents cannot use it any more, also in an answer that is being written. What is stored for it is forgotten, and its accounts are disconnected.</p>
      <div class="dialog-actions"><button type="button" class="button" autofocus onClick=${() => close(false)}>Cancel</button>
        <button type="button" class="button danger" onClick=${() => close(true)}>Delete</button></div></div>`,
  });
}

/** What the sign-in service may not have forgotten. */
function deleted(server, warnings) {
  return openDialog({
    title: `${server.title} was deleted`,
    body: (close) => html`<div class="stack">${warnings.map((warning) => html`<p role="status" key=${warning}>${warning}</p>`)}
      <div class="dialog-actions"><button type="button" class="button primary" onClick=${() => close(true)}>Done</button></div></div>`,
  });
}
