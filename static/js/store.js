// One observable state. However many changes there are, those who watch are told once per animation frame.

/** `schedule(flush)` calls `flush` soon, once; by default before the next paint, or by a timer while hidden. */
export function createStore(initial, schedule = soon) {
  let state = initial;
  let scheduled = false;
  const watchers = new Set();

  function flush() {
    scheduled = false;
    for (const watcher of [...watchers]) watcher(state);
  }

  return {
    get: () => state,
    /** Merge `change`, or what it returns for the state. */
    set(change) {
      const fields = typeof change === "function" ? change(state) : change;
      if (!fields || fields === state) return;
      state = { ...state, ...fields };
      if (!scheduled) {
        scheduled = true;
        schedule(flush);
      }
    },
    /** Call `watcher(state)` after changes; returns how to end that. */
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

function soon(flush) {
  // A hidden page gets no animation frames, but its title and announcements go on.
  if (document.hidden) {
    setTimeout(flush, 100);
    return;
  }
  let done = false;
  const once = () => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    flush();
  };
  const timer = setTimeout(once, 250);
  requestAnimationFrame(once);
}
