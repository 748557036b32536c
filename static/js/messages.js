// The log: turns of question and answer, newest last; only as many as one reads are built.
import { useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useChat, useStore } from "./context.js";
import { load } from "./conversation.js";
import { EmptyState } from "./empty.js";
import { html, memo } from "./html.js";
import { Icon } from "./icons.js";
import { Answer, Question } from "./message.js";
import { Follower } from "./scroll.js";
import { shownPath, waitingCalls } from "./state.js";

const STEP = 20; // turns that are built at once

/** `select(state)`, computed again only when one of `inputs(state)` has changed. */
function remembered(select, inputs) {
  let before = [];
  let value;
  return (state) => {
    const now = inputs(state);
    if (before.length && now.every((input, index) => input === before[index])) return value;
    before = now;
    value = select(state);
    return value;
  };
}

const selectPath = remembered(shownPath, (state) => [state.messages, state.leaf, state.turn?.message, state.pending]);

/** A question with its answer; an answer without a question (which should not be) stands alone. */
function turnsOf(path) {
  const turns = [];
  for (const message of path) {
    if (message.role === "user" || !turns.length) turns.push({ key: message.local || message.id, messages: [] });
    turns[turns.length - 1].messages.push(message);
  }
  return turns;
}

export function Log() {
  const view = useStore((state) => state.view);
  const path = useStore(selectPath);
  const id = useStore((state) => state.conversation?.id);
  useLayoutEffect(() => {
    document.getElementById("skip-to-answer").hidden = !document.getElementById("last-answer");
  }, [path]);
  if (view === "missing") return html`<${Problem} title="There is no such chat" text="It may have been deleted, or the link belongs to somebody else." />`;
  if (view === "failed") return html`<${Failed} />`;
  if (view === "loading" && !path.length) return html`<${Skeleton} />`;
  if (!path.length) return html`<${EmptyState} />`;
  return html`<${Turns} key=${path[0].conversation || id} path=${path} />`;
}

function Turns({ path }) {
  const chat = useChat();
  const [shown, setShown] = useState(STEP);
  const top = useRef(null);
  const keep = useRef(null);
  const turns = turnsOf(path);
  const first = Math.max(0, turns.length - shown);
  const asked = useStore((state) => state.asked);

  useLayoutEffect(() => {
    // What is built above must not push what is read.
    const { scroller } = chat.scroll;
    if (keep.current !== null) scroller.scrollTop = scroller.scrollHeight - keep.current;
    keep.current = null;
  }, [shown]);
  useEffect(() => {
    if (!first) return undefined;
    const observer = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      const { scroller } = chat.scroll;
      keep.current = scroller.scrollHeight - scroller.scrollTop;
      setShown((count) => count + STEP);
    }, { root: chat.scroll.scroller, rootMargin: "600px 0px 0px" });
    observer.observe(top.current);
    return () => observer.disconnect();
  }, [first, shown]);

  return html`${first > 0 && html`<p class="earlier" ref=${top}>Loading earlier messages</p>`}
    ${turns.slice(first).map((turn, index, all) => {
      const last = index === all.length - 1;
      const question = turn.messages.find((message) => message.role === "user");
      return html`<div key=${turn.key} class=${`turn ${last ? "last" : ""} ${last && asked ? "asked" : ""}`}>
        ${turn.messages.map((message) => html`<${Message} key=${message.local || message.id} message=${message} last=${last}
          question=${question} />`)}
      </div>`;
    })}`;
}

/** One message that cannot be shown does not take the others with it. */
const Message = memo(({ message, last, question }) => {
  const [error] = useErrorBoundary((failed) => console.error("chatui: a message could not be shown", failed));
  if (error) return html`<article class="message"><p class="muted">This message could not be shown.</p></article>`;
  return message.role === "user"
    ? html`<${Question} message=${message} last=${last} />`
    : html`<${Answer} message=${message} last=${last} question=${question} />`;
});

function Problem({ title, text, children }) {
  return html`<div class="hero"><h2 class="hero-title">${title}</h2><p class="muted">${text}</p>
    <p class="row center">${children}<a class="button" href=${location.pathname.replace(/c\/.*$/, "")}>Start a new chat</a></p></div>`;
}

function Failed() {
  const chat = useChat();
  const error = useStore((state) => state.viewError);
  const id = useStore((state) => state.conversation?.id);
  return html`<${Problem} title="This chat could not be loaded" text=${error}>
    <button type="button" class="button primary" onClick=${() => {
      chat.store.set({ view: "loading" });
      load(chat, id || chat.config.conversation);
    }}>Try again</button></${Problem}>`;
}

function Skeleton() {
  return html`<div class="skeleton" aria-hidden="true"><i class="short"></i><i></i><i></i><i class="half"></i></div><p class="visually-hidden">Loading the chat</p>`;
}

/** Follows the end of the log, and offers the way back to it. */
export function Jump() {
  const chat = useChat();
  const [place, setPlace] = useState({ attached: true, fresh: false });
  const waiting = useStore((state) => waitingCalls(state).length);
  const writing = useStore((state) => Boolean(state.turn));
  useLayoutEffect(() => {
    const follower = new Follower(document.getElementById("scroller"), document.getElementById("log"), {
      onChange: setPlace, isNews: () => Boolean(chat.store.get().turn),
    });
    chat.scroll = {
      scroller: follower.scroller,
      attach({ question = false } = {}) {
        if (question) chat.store.set({ asked: true });
        follower.attach();
      },
    };
  }, []);
  if (place.attached) return null;
  const name = waiting ? "Waiting for you" : place.fresh ? "New content" : "Jump to latest";
  return html`<button type="button" class=${`jump-button ${waiting ? "asks" : place.fresh ? "fresh" : ""}`} aria-label=${`${name}: go to the end`} onClick=${() => {
    chat.scroll.attach();
    if (waiting) document.querySelector(".approval")?.focus();
  }}><${Icon} name=${waiting ? "shield" : "arrowDown"} size=${18} /><span>${name}</span>
    ${writing && !waiting && html`<span class="spinner" aria-hidden="true"></span>`}</button>`;
}
