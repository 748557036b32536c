// The sidebar's groups: pinned first, then by how long ago, then by month. Pure but for the calendar.

/** `[{label, items}]` without empty groups, items in the order given. */
export function dateGroups(conversations, now = new Date(), locale = undefined) {
  const groups = new Map();
  for (const conversation of conversations) {
    const label = conversation.pinned ? "Pinned" : groupOf(new Date(conversation.active_at), now, locale);
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(conversation);
  }
  const pinned = groups.get("Pinned");
  groups.delete("Pinned");
  const rest = [...groups].map(([label, items]) => ({ label, items }));
  return pinned ? [{ label: "Pinned", items: pinned }, ...rest] : rest;
}

function groupOf(date, now, locale) {
  const days = Math.round((midnight(now) - midnight(date)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  if (days <= 30) return "Previous 30 days";
  const year = date.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString(locale, { month: "long", year });
}

function midnight(date) {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate());
}
