// Who signs out leaves nothing behind in this tab of what was entered at questions and not sent.
addEventListener("submit", () => {
  try {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith("chatui:forms:")) sessionStorage.removeItem(name);
  } catch {
    // Forbidden: then nothing was kept.
  }
});
