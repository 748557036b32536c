// `html` tagged templates for Preact, and `memo` for what is dear to render.
import htm from "htm";
import { Component, h } from "preact";

export const html = htm.bind(h);

/** `component`, rendered by its parent only when one of its props is another value. */
export function memo(component) {
  return class Memo extends Component {
    shouldComponentUpdate(next) {
      return Object.keys(next).some((name) => next[name] !== this.props[name]);
    }

    render(props) {
      return h(component, props);
    }
  };
}
