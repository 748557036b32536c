// Gives each table of rows a button for one more row. Without script the blank rows that are there suffice.
function addRow(table) {
  const rows = table.querySelectorAll("[data-row]");
  const last = rows[rows.length - 1];
  const row = last.cloneNode(true);
  const renumbered = (text) => text.replace(/-\d+-(\w+)$/, `-${rows.length}-$1`);
  for (const said of row.querySelectorAll("[data-error]")) said.remove();
  for (const label of row.querySelectorAll("label[for]")) label.htmlFor = renumbered(label.htmlFor);
  for (const input of row.querySelectorAll("input, select")) {
    input.name = renumbered(input.name);
    if (input.id) input.id = renumbered(input.id);
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
    input.readOnly = false;
    if (input.type !== "checkbox" && input.tagName === "INPUT") input.value = "";
  }
  last.after(row);
  table.querySelector("input[type=hidden]").value = rows.length + 1;
  row.querySelector("input, select").focus();
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("[data-rows]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "+";
    button.ariaLabel = document.documentElement.lang.startsWith("zh") ? "添加一行" : "Add a row";
    button.className = "border border-base-200 dark:border-base-700 cursor-pointer px-3 py-1 rounded-default";
    button.addEventListener("click", () => addRow(table));
    table.append(button);
  }
});

// A row that is added to a list of folded ones is there to be filled in. Its state exists once Alpine has seen the row.
document.addEventListener("formset:added", ({ target }) => {
  if (target.querySelector(":scope > [x-show]")) setTimeout(() => target.querySelector("h3").click());
});
