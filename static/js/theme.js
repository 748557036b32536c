// Light, dark, or as the system has it. theme-boot.js puts the choice in place before the first paint.

const KEY = "chatui:theme";

export function theme() {
  return document.documentElement.dataset.theme || "system";
}

export function setTheme(choice) {
  const root = document.documentElement;
  if (choice === "system") delete root.dataset.theme;
  else root.dataset.theme = choice;
  try {
    if (choice === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
  } catch {
    // It holds until the page is left.
  }
}

/** Other tabs follow. */
export function initTheme() {
  addEventListener("storage", (event) => {
    if (event.key === KEY) setTheme(event.newValue || "system");
  });
}
