// One field of a server's form, with its label, description, mark and error. Never a password field.
import { html } from "./html.js";
import { visible } from "./values.js";

const TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local", number: "number", line: "text" };

/** `enter(value)` is told every change: a text, `true`/`false`, or a list of the chosen. */
export function Field({ field, prefix, value, error, disabled, enter }) {
  const id = `${prefix}-${field.id}`;
  const described = [field.description && `${id}-description`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const common = { disabled, "aria-invalid": error ? "true" : undefined, "aria-describedby": described };
  const grouped = field.kind === "radio" || field.kind === "several";
  const notes = html`${field.description && html`<p class="muted small elicitation-description" id=${`${id}-description`} dir="auto">${visible(field.description)}</p>`}`;
  const wrong = html`${error && html`<p class="field-error" id=${`${id}-error`}>${error}</p>`}`;
  if (field.kind === "yes-no") {
    return html`<div class="field elicitation-yes"><label><input type="checkbox" id=${id} checked=${value} ...${common}
      onChange=${(event) => enter(event.target.checked)} /><span dir="auto">${visible(field.title)}</span></label>${notes}${wrong}</div>`;
  }
  if (grouped) {
    return html`<fieldset class="field elicitation-choices" id=${id} aria-describedby=${described}><legend class="label"><${Title} field=${field} /></legend>
      ${notes}<div class="elicitation-options">${field.options.map((option, index) => html`<${Option} key=${option.const} option=${option} field=${field}
        id=${`${id}-${index}`} name=${id} value=${value} common=${common} enter=${enter} />`)}</div>${wrong}</fieldset>`;
  }
  return html`<div class="field"><label for=${id}><${Title} field=${field} /></label>${notes}
    <${Entry} field=${field} id=${id} value=${value} common=${common} enter=${enter} />${wrong}</div>`;
}

function Title({ field }) {
  return html`<span dir="auto">${visible(field.title)}</span>${field.required
    ? html`<span class="elicitation-required" aria-hidden="true"> *</span><span class="visually-hidden"> (required)</span>`
    : html`<span class="muted elicitation-optional"> (optional)</span>`}`;
}

function Option({ option, field, id, name, value, common, enter }) {
  const several = field.kind === "several";
  const checked = several ? value.includes(option.const) : value === option.const;
  const choose = (event) => {
    if (!several) enter(option.const);
    // In the server's order, whatever the order of clicks.
    else enter(field.options.map((one) => one.const).filter((one) => (one === option.const ? event.target.checked : value.includes(one))));
  };
  return html`<label for=${id}><input type=${several ? "checkbox" : "radio"} id=${id} name=${name} checked=${checked} ...${common} onChange=${choose} />
    <span dir="auto">${visible(option.title)}</span></label>`;
}

function Entry({ field, id, value, common, enter }) {
  const typing = (event) => enter(event.target.value);
  const required = field.required ? "true" : undefined;
  if (field.kind === "select") {
    return html`<select id=${id} value=${value} aria-required=${required} ...${common} onChange=${typing}>
      <option value="">${field.required ? "Choose one" : "None"}</option>
      ${field.options.map((option) => html`<option key=${option.const} value=${option.const} selected=${value === option.const}>${visible(option.title)}</option>`)}</select>`;
  }
  if (field.kind === "lines") {
    return html`<textarea id=${id} rows="4" dir="auto" aria-required=${required} value=${value} ...${common} onInput=${typing}></textarea>`;
  }
  const number = field.kind === "number" ? { step: field.part.type === "integer" ? 1 : "any", min: field.part.minimum, max: field.part.maximum, inputmode: "decimal" } : {};
  return html`<input class="input" type=${TYPES[field.kind] || "text"} id=${id} dir="auto" autocomplete="off" aria-required=${required} value=${value}
    ...${number} ...${common} onInput=${typing} />`;
}
