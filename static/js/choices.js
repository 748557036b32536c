// Which agents there are, which one is chosen for a new chat, and which of its tools are on; kept in this browser.

const KEY = (chat) => `chatui:choices:${chat.config.user.id}:${chat.config.organization.slug}`;

function stored(chat) {
  try {
    return JSON.parse(localStorage.getItem(KEY(chat)) || "{}");
  } catch {
    return {};
  }
}

function keep(chat, fields) {
  try {
    localStorage.setItem(KEY(chat), JSON.stringify({ ...stored(chat), ...fields }));
  } catch {
    // It holds until the page is left.
  }
}

export async function loadAgents(chat, { quiet = false } = {}) {
  try {
    const { items } = await chat.api.get("agents");
    const { agent, tools } = stored(chat);
    chat.store.set((state) => ({
      agents: items,
      agentsError: "",
      agent: [state.agent, agent, items[0]?.slug].find((slug) => items.some((one) => one.slug === slug)) || null,
      tools: state.agents || !tools ? state.tools : { on: tools.on !== false, off: Array.isArray(tools.off) ? tools.off : [] },
    }));
  } catch (error) {
    if (!quiet) chat.store.set({ agentsError: error.message });
    return;
  }
  if (chat.sendWhenLoaded) {
    chat.sendWhenLoaded = false;
    chat.composer.submit();
  }
}

export function chooseAgent(chat, slug) {
  chat.store.set({ agent: slug });
  keep(chat, { agent: slug });
  chat.composer?.focus();
}

export function chooseTools(chat, tools) {
  chat.store.set({ tools });
  keep(chat, { tools });
}
