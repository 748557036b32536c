// Files of the message that is being written: checked, uploaded with progress, shown as chips.
import { announce } from "./announce.js";
import { failure } from "./api.js";
import { count, size } from "./words.js";

/** What the file field offers; the server decides by content. */
export const ACCEPT = "image/png,image/jpeg,image/webp,image/gif,text/*,.md,.csv,.json,.yaml,.yml,.toml,"
  + ".log,.py,.js,.ts,.java,.go,.rs,.c,.h,.cpp,.rb,.php,.sh,.sql,.xml,.html,.css";

let made = 0;

/** Why `file` cannot be attached, in words; "" if it can be tried. */
export function refusal(file, chips, limits) {
  if (chips.length >= limits.attachments) return `At most ${count(limits.attachments, "file")} per message.`;
  if (file.size > limits.attachment_bytes) {
    return `“${file.name}” has ${size(file.size)}; at most ${size(limits.attachment_bytes)} are possible.`;
  }
  if (file.size === 0) return `“${file.name}” is empty.`;
  return "";
}

/** A chip is `{key, name, size, type, state: "uploading" | "done" | "failed", progress, error, id, url}`. */
export function createUploads(chat) {
  const { store } = chat;
  const requests = new Map();
  const files = new Map();

  function change(key, fields) {
    store.set(({ chips }) => ({ chips: chips.map((chip) => (chip.key === key ? { ...chip, ...fields } : chip)) }));
  }

  function add(list) {
    for (const file of list) {
      const problem = refusal(file, store.get().chips, chat.config.limits);
      if (problem) {
        store.set({ notice: { kind: "error", text: problem } });
        announce(problem);
        continue;
      }
      const key = `chip-${++made}`;
      files.set(key, file);
      const chip = { key, name: file.name || "image.png", size: file.size, type: file.type, state: "uploading", progress: 0 };
      store.set(({ chips }) => ({ chips: [...chips, chip] }));
      upload(key);
    }
  }

  function upload(key) {
    const file = files.get(key);
    const request = new XMLHttpRequest();
    requests.set(key, request);
    const fail = (message) => {
      change(key, { state: "failed", error: message });
      announce(`${file.name}: ${message}`);
    };
    request.open("POST", chat.api.address("attachments"));
    request.setRequestHeader("X-CSRFToken", chat.api.token());
    request.setRequestHeader("Accept", "application/json");
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && change(key, { progress: event.loaded / event.total });
    request.onerror = () => fail("The server could not be reached.");
    request.onload = () => {
      requests.delete(key);
      if (request.status < 200 || request.status > 299) {
        fail(failure(request.status, request.response).message);
        return;
      }
      const { id, name, content_type, size: stored, url } = request.response;
      change(key, { state: "done", progress: 1, id, name, content_type, size: stored, url });
      announce(`${name} is attached.`);
    };
    const form = new FormData();
    form.append("file", file, file.name || "image.png");
    change(key, { state: "uploading", progress: 0, error: "" });
    request.send(form);
  }

  return {
    add,
    retry: upload,
    remove(key) {
      requests.get(key)?.abort();
      requests.delete(key);
      files.delete(key);
      store.set(({ chips }) => ({ chips: chips.filter((chip) => chip.key !== key) }));
    },
    /** The text of a pasted file, to put it back into the message. */
    text: (key) => files.get(key)?.text(),
  };
}

/** The part of a message for a finished chip. */
export function partOf({ id, name, content_type, size: stored, url }) {
  return { id, name, content_type, size: stored, url };
}
