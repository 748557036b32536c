// What screen readers are told, in regions apart from the stream: politely, or at once where an answer is needed.

let timer;

function say(id, text) {
  const region = document.getElementById(id);
  if (!region) return;
  // The same words twice are announced twice only if the region was empty between.
  region.textContent = "";
  clearTimeout(timer);
  timer = setTimeout(() => {
    region.textContent = text;
  }, 60);
}

export function announce(text) {
  say("polite", text);
}

export function announceNow(text) {
  const region = document.getElementById("assertive");
  if (region) region.textContent = text;
}
