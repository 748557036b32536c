// Syntax colours, loaded when the first code that has them is shown; one small file per language.

const LANGUAGES = new Set((
  "bash c cpp csharp css diff dockerfile go graphql http ini java javascript json kotlin lua makefile markdown nginx perl "
  + "php plaintext powershell python r ruby rust scala sql swift typescript xml yaml"
).split(" "));
const ALIASES = {
  "c++": "cpp", "c#": "csharp", cs: "csharp", docker: "dockerfile", golang: "go", gql: "graphql", htm: "xml", html: "xml",
  cjs: "javascript", js: "javascript", jsx: "javascript", json5: "json", jsonc: "json", jsonl: "json", kt: "kotlin",
  make: "makefile", md: "markdown", mjs: "javascript", patch: "diff", ps1: "powershell", pwsh: "powershell", py: "python",
  rb: "ruby", rs: "rust", sh: "bash", shell: "bash", console: "bash", svg: "xml", text: "plaintext", toml: "ini",
  ts: "typescript", tsx: "typescript", txt: "plaintext", yml: "yaml", zsh: "bash",
};
const NAMES = {
  bash: "Shell", c: "C", cpp: "C++", csharp: "C#", css: "CSS", go: "Go", graphql: "GraphQL", http: "HTTP", ini: "INI",
  javascript: "JavaScript", json: "JSON", php: "PHP", plaintext: "Text", powershell: "PowerShell", sql: "SQL",
  typescript: "TypeScript", xml: "XML", yaml: "YAML",
};
const EXTENSIONS = {
  bash: "sh", csharp: "cs", dockerfile: "Dockerfile", javascript: "js", kotlin: "kt", makefile: "mk", markdown: "md",
  perl: "pl", plaintext: "txt", powershell: "ps1", python: "py", ruby: "rb", rust: "rs", typescript: "ts", yaml: "yml",
};
const TOO_LONG = 200_000; // characters: colours are not worth a frozen page

/** The language that is meant, by our name; "" where there are no colours for it. */
function languageOf(info) {
  const name = (info || "").trim().split(/[\s{,:]/)[0].toLowerCase();
  const known = Object.hasOwn(ALIASES, name) ? ALIASES[name] : name;
  return LANGUAGES.has(known) ? known : "";
}

export function languageLabel(info) {
  const given = (info || "").trim().split(/[\s{,:]/)[0];
  if (/^html$/i.test(given)) return "HTML";
  if (/^toml$/i.test(given)) return "TOML";
  const language = languageOf(given);
  if (!language) return given.slice(0, 24) || "Text";
  return NAMES[language] || language[0].toUpperCase() + language.slice(1);
}

export function fileExtension(info) {
  const given = (info || "").trim().toLowerCase();
  const language = languageOf(info);
  if (given === "html" || given === "toml" || given === "svg") return given;
  return EXTENSIONS[language] || language || "txt";
}

let core;
const loaded = new Map();

/** Colour the text of `code`, some time soon; plain where that is not possible. */
export async function highlight(code, info) {
  const language = languageOf(info);
  const text = code.textContent;
  if (!language || language === "plaintext" || text.length > TOO_LONG) return;
  try {
    core ??= import("highlight");
    if (!loaded.has(language)) {
      loaded.set(language, Promise.all([core, import(`highlight/${language}`)]).then(([{ default: hljs }, grammar]) => {
        hljs.registerLanguage(language, grammar.default);
        return hljs;
      }));
    }
    const hljs = await loaded.get(language);
    if (code.textContent !== text) return;
    // Its output is our escaped text in spans, and nothing else.
    const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
    code.replaceChildren(spans(value));
  } catch {
    loaded.delete(language);
  }
}

function spans(value) {
  const parsed = new DOMParser().parseFromString(`<pre>${value}</pre>`, "text/html").querySelector("pre");
  const fragment = document.createDocumentFragment();
  fragment.append(...copies(parsed));
  return fragment;
}

/** Only spans with classes, and text. */
function copies(parent) {
  return [...parent.childNodes].map((node) => {
    if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
    const span = document.createElement("span");
    span.className = node.className || "";
    span.append(...copies(node));
    return span;
  });
}
