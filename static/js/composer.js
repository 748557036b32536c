// The message field: the page's own textarea, which took text before this ran. What was typed is never changed.
import { announce } from "./announce.js";
import { createUploads, partOf } from "./attachments.js";
import { meaning } from "./composer-keys.js";
import { merge } from "./drafts.js";
import { setting } from "./settings.js";
import { send } from "./sending.js";
import { isBusy, shownPath } from "./state.js";

const LONG_PASTE = 12_000; // characters: better a file than a wall of text
const fine = matchMedia("(pointer: fine)");

export function createComposer(chat) {
  const { store, drafts } = chat;
  const field = document.getElementById("composer-text");
  const form = document.getElementById("composer");
  const kept = new Map(); // chips of the conversations that are not shown
  let current = chat.config.conversation;
  let saving;

  chat.uploads = createUploads(chat);

  function keep() {
    clearTimeout(saving);
    drafts.set(current, field.value);
  }

  function show(text) {
    field.value = text;
    grow();
    store.set({ typed: Boolean(text.trim()), length: text.length });
  }

  /** Where the browser cannot size the field by its content, this does. */
  function grow() {
    if (CSS.supports("field-sizing", "content")) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }

  function submit() {
    const { chips } = store.get();
    const unfinished = chips.find((chip) => chip.state !== "done");
    if (unfinished) {
      const text = unfinished.state === "failed"
        ? `“${unfinished.name}” was not uploaded. Try again or remove it.` : "Your files are still being uploaded.";
      store.set({ notice: { kind: "info", text } });
      announce(text);
      return;
    }
    if (!send(chat, { text: field.value, attachments: chips.map(partOf) })) return;
    show("");
    keep();
    store.set({ chips: [] });
  }

  field.addEventListener("input", () => {
    grow();
    store.set(({ notice }) => ({
      typed: Boolean(field.value.trim()), length: field.value.length, notice: notice?.kind === "busy" ? notice : null,
    }));
    chat.sendWhenLoaded = false;
    clearTimeout(saving);
    saving = setTimeout(keep, 250);
  });
  field.addEventListener("keydown", (event) => {
    const what = meaning(event, { sendWith: setting("sendWith"), empty: !field.value });
    if (!what) return;
    event.preventDefault();
    if (what === "send") {
      if (!event.repeat) submit();
      return;
    }
    const own = shownPath(store.get()).findLast((message) => message.role === "user" && !message.pending);
    if (own && !isBusy(store.get())) store.set({ editing: own.id });
  });
  field.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    const text = event.clipboardData.getData("text/plain");
    // Office programs put a picture of the text beside the text: the text is meant.
    if (files.length && !text) {
      event.preventDefault();
      chat.uploads.add(files);
    } else if (text.length > LONG_PASTE) {
      event.preventDefault();
      pasteAsFile(text);
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  addEventListener("pagehide", keep);

  function pasteAsFile(text) {
    chat.uploads.add([new File([text], "pasted-text.txt", { type: "text/plain" })]);
    const chip = store.get().chips.at(-1);
    chat.toast("The long text was attached as a file.", {
      label: "Put it in the message",
      action() {
        if (chip) chat.uploads.remove(chip.key);
        field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
        field.dispatchEvent(new Event("input"));
        field.focus();
      },
    });
  }

  // What stands in the field now was typed before this script ran.
  const typed = field.value;
  show(merge(drafts.get(current), typed));
  if (document.activeElement === field) field.setSelectionRange(field.value.length, field.value.length);

  return {
    submit,
    focus: () => field.focus({ preventScroll: true }),
    /** The conversation is about to change: keep what belongs to this one. */
    leave() {
      keep();
      kept.set(current, store.get().chips);
    },
    enter(id) {
      current = id;
      show(drafts.get(id));
      store.set({ chips: kept.get(id) || [] });
      kept.delete(id);
      if (fine.matches) this.focus();
    },
    /** The new chat has become conversation `id`: what is being typed goes with it. */
    moved(id) {
      drafts.set(current, "");
      current = id;
      keep();
    },
    /** A message was not taken: its text and files come back. */
    giveBack({ text, attachments }) {
      show(merge(text, field.value));
      keep();
      const chips = attachments.map((one, index) => ({ ...one, key: `back-${one.id}-${index}`, state: "done", progress: 1 }));
      store.set((state) => ({ chips: [...chips, ...state.chips] }));
      this.focus();
    },
    insert(text) {
      show(merge(field.value, text));
      keep();
      this.focus();
    },
    /** Back to the field when the answer is done, unless the person is somewhere else. */
    answerEnded() {
      const active = document.activeElement;
      if (fine.matches && (!active || active === document.body)) this.focus();
    },
  };
}
