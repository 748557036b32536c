// How long a question stays open, in words that keep up with the time.
import { useEffect, useState } from "preact/hooks";
import { remaining } from "./words.js";

/** "23 h"; "" once it is over; null where there is no end. */
export function useRemaining(expires) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 30_000);
    return () => clearInterval(timer);
  }, []);
  return expires ? remaining(expires) : null;
}
