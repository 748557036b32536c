// Which of one's accounts a chat acts with at a server. Pure.

/** The account that the next message uses at a server: chosen now, or kept by the chat, or the default. */
export function accountFor(state, server) {
  const accounts = server.accounts || [];
  const wanted = state.accounts[server.slug] || state.conversation?.accounts?.[server.slug];
  return accounts.find((account) => account.id === wanted) || (wanted ? null : accounts.find((account) => account.default) || accounts[0] || null);
}

/** What of the choices is sent: those for servers of this agent, for accounts that are there. */
export function chosenAccounts(state, agent) {
  const chosen = (agent?.servers || []).filter((server) => (server.accounts || []).some((one) => one.id === state.accounts[server.slug]));
  return Object.fromEntries(chosen.map((server) => [server.slug, state.accounts[server.slug]]));
}
