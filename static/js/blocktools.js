// The small tools above a code block or a table.
import { iconElement } from "./icons.js";

/** A button of a block's head: `action(button)` returns true when what it did should be confirmed. */
export function tool(icon, name, action) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "block-tool";
  button.append(iconElement(icon), label(name));
  button.title = name;
  button.addEventListener("click", async () => {
    if (!(await action(button))) return;
    button.firstChild.replaceWith(iconElement("check"));
    button.classList.add("done");
    setTimeout(() => {
      button.firstChild.replaceWith(iconElement(icon));
      button.classList.remove("done");
    }, 1600);
  });
  return button;
}

function label(name) {
  const span = document.createElement("span");
  span.className = "visually-hidden";
  span.textContent = name;
  return span;
}
