// The hooks that register.mjs installs.
import { readFileSync } from "node:fs";

const vendor = new URL("../../static/vendor/", import.meta.url);
const names = JSON.parse(readFileSync(new URL("importmap.json", vendor), "utf8"));
const root = new URL("../../static/", import.meta.url).href;

export async function resolve(specifier, context, next) {
  if (names[specifier]) return { url: new URL(names[specifier], vendor).href, format: "module", shortCircuit: true };
  const resolved = await next(specifier, context);
  return resolved.url.startsWith(root) ? { ...resolved, format: "module" } : resolved;
}
