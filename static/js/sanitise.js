// The second lock: whatever the renderer returned, only this may become part of the page.
import DOMPurify from "dompurify";

const TAGS = [
  "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre", "s", "span",
  "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
];
const ATTRIBUTES = [
  "alt", "aria-label", "class", "download", "href", "loading", "rel", "role", "src", "start", "target", "title",
];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  // The policy of the page forbids foreign images as well; this keeps even the attempt away.
  if (node.nodeName === "IMG" && !/^\/api\/v1\/attachments\//.test(node.getAttribute("src") || "")) node.remove();
  if (node.nodeName === "A" && node.getAttribute("target") === "_blank") {
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

/** `html` as a document fragment. */
export function sanitise(html) {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false,
    ADD_ATTR: ["target"], RETURN_DOM_FRAGMENT: true,
  });
}
