// A server's form: its fields, what stands in them at first, and the answer that they make. Pure.

const MANY = 6; // options, from which they are a list to open

/** The fields of a question's form in the server's order: `{name, id, kind, title, description, required, …}`. */
export function fieldsOf({ schema, order }) {
  const properties = Object.entries(schema?.properties || {});
  const required = new Set(schema?.required || []);
  const place = new Map((order || []).map((name, index) => [name, index]));
  properties.sort(([a], [b]) => (place.get(a) ?? 1e6) - (place.get(b) ?? 1e6));
  return properties.map(([name, part], index) => ({
    name, id: `field-${index}`, part, kind: kindOf(part), title: part.title || name, description: part.description || "",
    required: required.has(name), options: part.oneOf || part.items?.anyOf || [],
  }));
}

function kindOf(part) {
  if (part.type === "boolean") return "yes-no";
  if (part.type === "array") return "several";
  if (part.oneOf) return part.oneOf.length < MANY ? "radio" : "select";
  if (part.type === "number" || part.type === "integer") return "number";
  if (["email", "uri", "date", "date-time"].includes(part.format)) return part.format;
  return part.maxLength > 200 ? "lines" : "line";
}

/** What stands in the fields at first, by name: a text, `true`/`false`, or a list. */
export function initialValues(fields) {
  return new Map(fields.map((field) => [field.name, initial(field)]));
}

function initial({ kind, part }) {
  const given = part.default;
  if (kind === "yes-no") return given === true;
  if (kind === "several") return Array.isArray(given) ? given : [];
  if (given === undefined || given === null) return "";
  return kind === "date-time" ? localTime(given) : String(given);
}

/** `2026-07-28T12:00:00Z` as a field for local times has it. */
function localTime(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return "";
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 16);
}

/** `{content, errors}`: the answer for the server, and what is wrong with which field, by name. */
export function answerOf(fields, values) {
  const content = [];
  const errors = new Map();
  for (const field of fields) {
    const value = values.get(field.name);
    const empty = value === "" || (field.kind === "several" && !value.length && !field.required);
    if (empty && field.required) {
      errors.set(field.name, field.options.length ? "Choose one." : "This is required.");
    } else if (empty) {
      if (field.part.default !== undefined) content.push([field.name, null]); // emptied on purpose
    } else {
      const problem = problemWith(field, value);
      if (problem) errors.set(field.name, problem);
      else content.push([field.name, typed(field, value)]);
    }
  }
  return { content: Object.fromEntries(content), errors };
}

function typed({ kind }, value) {
  if (kind === "number") return Number(value);
  if (kind === "date-time") return new Date(value).toISOString().replace(/\.\d+Z$/, "Z");
  return value;
}

/** What can be said here at once; the rest is said by the server that checks the answer. */
function problemWith({ kind, part }, value) {
  if (kind === "number") return numberProblem(part, Number(value));
  if (kind === "several") return severalProblem(part, value.length);
  if (kind === "date-time") return Number.isNaN(new Date(value).getTime()) ? "Enter a date and time." : "";
  if (typeof value !== "string" || part.oneOf) return "";
  const length = [...value].length;
  if (length < (part.minLength || 0)) return `Enter at least ${part.minLength === 1 ? "1 character" : `${part.minLength} characters`}.`;
  if (part.maxLength !== undefined && length > part.maxLength) return `Enter at most ${part.maxLength} characters.`;
  return "";
}

function numberProblem({ type, minimum, maximum }, value) {
  if (!Number.isFinite(value)) return "Enter a number.";
  if (type === "integer" && !Number.isInteger(value)) return "Enter a whole number.";
  const low = minimum !== undefined && value < minimum;
  if (!low && !(maximum !== undefined && value > maximum)) return "";
  if (minimum !== undefined && maximum !== undefined) return `Enter a number from ${minimum} to ${maximum}.`;
  return low ? `Enter ${minimum} or more.` : `Enter ${maximum} or less.`;
}

function severalProblem({ minItems, maxItems }, count) {
  if (minItems !== undefined && count < minItems) return `Choose at least ${minItems}.`;
  return maxItems !== undefined && count > maxItems ? `Choose at most ${maxItems}.` : "";
}

/** The address of a question, if it is one that may be opened; null else. */
export function safeAddress(url) {
  try {
    const parsed = new URL(url);
    const web = parsed.protocol === "https:" || parsed.protocol === "http:";
    return web && !parsed.username && !parsed.password ? parsed.href : null;
  } catch {
    return null;
  }
}
