// The tree of a conversation's messages: `messages` is an object from id to message. Pure.

/** The messages from the root to `leaf`. */
export function pathTo(messages, leaf) {
  const path = [];
  const seen = new Set();
  for (let id = leaf; id && messages[id] && !seen.has(id); id = messages[id].parent_id) {
    seen.add(id);
    path.push(messages[id]);
  }
  return path.reverse();
}

const indexes = new WeakMap();

/** Children by parent's id ("" for the root), oldest first; computed once per set of messages. */
export function childrenOf(messages) {
  let index = indexes.get(messages);
  if (index) return index;
  index = new Map();
  for (const message of Object.values(messages)) {
    const parent = message.parent_id || "";
    if (!index.has(parent)) index.set(parent, []);
    index.get(parent).push(message);
  }
  for (const children of index.values()) children.sort(byAge);
  indexes.set(messages, index);
  return index;
}

function byAge(one, other) {
  const difference = Date.parse(one.created_at) - Date.parse(other.created_at);
  return difference || (one.created_at < other.created_at ? -1 : one.created_at > other.created_at ? 1 : 0);
}

/** The ids of a message and its alternatives, oldest first. */
export function siblingsOf(messages, message) {
  const children = childrenOf(messages).get(message.parent_id || "") || [];
  const ids = children.filter((child) => child.role === message.role).map((child) => child.id);
  return ids.length ? ids : [message.id];
}

/** The leaf that one sees when one goes on from `id`, always along the newest branch. */
export function newestLeaf(messages, id) {
  const index = childrenOf(messages);
  let leaf = id;
  for (let children = index.get(leaf); children && children.length; children = index.get(leaf)) {
    leaf = children[children.length - 1].id;
  }
  return leaf;
}
