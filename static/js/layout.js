// The sidebar as a column on wide screens (kept open or closed) and as a drawer on narrow ones.

const narrow = matchMedia("(max-width: 52rem)");
let opener = null;

const root = document.documentElement;

export function isNarrow() {
  return narrow.matches;
}

export function toggleSidebar() {
  if (narrow.matches) {
    if (root.dataset.drawer === "open") closeDrawer();
    else openDrawer();
    return;
  }
  const closed = root.dataset.sidebar === "closed";
  root.dataset.sidebar = closed ? "open" : "closed";
  try {
    localStorage.setItem("chatui:sidebar", root.dataset.sidebar);
  } catch {
    // It holds until the page is left.
  }
  document.getElementById("sidebar").inert = !closed;
  if (closed) document.getElementById("search")?.focus();
  else document.querySelector(".topbar .menu-button")?.focus();
}

/** Everything but the drawer, while it is open: the focus stays inside. */
function outside(inert) {
  for (const element of document.querySelectorAll("#pane, .skip-link, #toasts")) element.inert = inert;
}

export function openDrawer() {
  opener = document.activeElement;
  root.dataset.drawer = "open";
  document.getElementById("sidebar").inert = false;
  outside(true);
  document.querySelector("#sidebar .sidebar-head button")?.focus();
}

export function closeDrawer() {
  if (root.dataset.drawer !== "open") return;
  delete root.dataset.drawer;
  outside(false);
  document.getElementById("sidebar").inert = true;
  opener?.focus?.();
}

export function initLayout() {
  const sidebar = document.getElementById("sidebar");
  const settle = () => {
    closeDrawer();
    sidebar.inert = narrow.matches || root.dataset.sidebar === "closed";
  };
  settle();
  narrow.addEventListener("change", settle);
  document.getElementById("sidebar-scrim").addEventListener("click", closeDrawer);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && root.dataset.drawer === "open") closeDrawer();
  });
  swipes(sidebar);
}

/** A swipe from the edge opens the drawer, one to the left closes it. */
function swipes(sidebar) {
  let start = null;
  document.addEventListener("touchstart", (event) => {
    const { clientX: x, clientY: y } = event.touches[0];
    const open = root.dataset.drawer === "open";
    start = narrow.matches && event.touches.length === 1 && (open || x < 24) ? { x, y, open } : null;
  }, { passive: true });
  document.addEventListener("touchend", (event) => {
    if (!start) return;
    const { clientX: x, clientY: y } = event.changedTouches[0];
    const [across, down] = [x - start.x, Math.abs(y - start.y)];
    if (down < 60 && !start.open && across > 50) openDrawer();
    if (down < 60 && start.open && across < -50) closeDrawer();
    start = null;
  }, { passive: true });
  sidebar.addEventListener("touchcancel", () => { start = null; }, { passive: true });
}
