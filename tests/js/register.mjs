// Lets node load the browser's modules: bare names through the vendored import map, everything in static/ as a module.
import { register } from "node:module";

register("./loader.mjs", import.meta.url);
