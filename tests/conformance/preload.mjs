// Loaded before the official suite: its servers listen on the loopback interface alone, and it starts on Node.js 20.
import fs from "node:fs";
import { register } from "node:module";
import net from "node:net";

// Not `listen` with a host: that looks the host up first, and the suite asks for the port at once.
const bind = net.Server.prototype._listen2;
net.Server.prototype._listen2 = function (address, port, family, ...rest) {
  return address === null && port >= 0 ? bind.call(this, "127.0.0.1", port, 4, ...rest) : bind.call(this, address, port, family, ...rest);
};

// The suite imports `globSync`, which Node.js has from version 22 on, for commands that are not used here.
if (!fs.globSync) {
  const source = 'export * from "node:fs"; export { default } from "node:fs"; export const globSync = () => [];';
  const hooks = `
    export const resolve = (name, context, next) =>
      (name === "fs" || name === "node:fs") && context.parentURL?.includes("/conformance/dist/")
        ? { url: "conformance:fs", shortCircuit: true } : next(name, context);
    export const load = (url, context, next) =>
      url === "conformance:fs" ? { format: "module", shortCircuit: true, source: ${JSON.stringify(source)} } : next(url, context);`;
  register(`data:text/javascript,${encodeURIComponent(hooks)}`);
}
