// How components reach the chat and watch the parts of the state that they show.
import { createContext } from "preact";
import { useContext, useLayoutEffect, useState } from "preact/hooks";

export const ChatContext = createContext(null);

export function useChat() {
  return useContext(ChatContext);
}

/** `select(state)`; the component renders again when that value is another one. */
export function useStore(select) {
  const { store } = useChat();
  const [, render] = useState(0);
  const selected = select(store.get());
  useLayoutEffect(() => {
    let shown = selected;
    const look = () => {
      const now = select(store.get());
      if (Object.is(now, shown)) return;
      shown = now;
      render((count) => count + 1);
    };
    look();
    return store.watch(look);
  });
  return selected;
}
