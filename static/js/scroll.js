// Following the end of the log: only while the reader is there. Any move upwards lets go at once, and then nothing moves.

const ZONE = 60; // pixels from the end within which a reader who moves down is at the end again
const UP_KEYS = new Set(["ArrowUp", "PageUp", "Home"]);

/**
 * `onChange({attached, fresh})` tells whether the reader is at the end, and whether something came since; what counts as
 * something is for `isNews()` to say when the content has grown.
 */
export class Follower {
  constructor(scroller, content, { onChange, isNews = () => true }) {
    Object.assign(this, { scroller, content, onChange, isNews });
    this.attached = true;
    this.fresh = false;
    this.top = scroller.scrollTop;
    this.height = scroller.scrollHeight;
    scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this._up(), { passive: true });
    scroller.addEventListener("touchstart", (event) => { this.touch = event.touches[0]?.clientY; }, { passive: true });
    scroller.addEventListener("touchmove", (event) => {
      if (event.touches[0]?.clientY > this.touch + 3) this._up();
    }, { passive: true });
    scroller.addEventListener("keydown", (event) => {
      const typing = /^(TEXTAREA|INPUT|SELECT)$/.test(event.target.tagName);
      if (!typing && (UP_KEYS.has(event.key) || (event.key === " " && event.shiftKey))) this._up();
    });
    scroller.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this.observer = new ResizeObserver(() => this._grew());
    this.observer.observe(content);
    this.observer.observe(scroller);
  }

  /** Go to the end and stay there. */
  attach({ smooth = false } = {}) {
    this._set(true, false);
    this._toEnd(smooth && !matchMedia("(prefers-reduced-motion: reduce)").matches);
  }

  get distance() {
    return this.scroller.scrollHeight - this.scroller.clientHeight - this.scroller.scrollTop;
  }

  _toEnd(smooth = false) {
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth ? "smooth" : "instant" });
    this.top = this.scroller.scrollTop;
    this.height = this.scroller.scrollHeight;
  }

  _up() {
    if (this.scroller.scrollHeight > this.scroller.clientHeight + 1) this._set(false, this.fresh);
  }

  _scrolled() {
    const { scrollTop, scrollHeight } = this.scroller;
    // Upwards without a shorter content is the reader's doing: the scrollbar, a search in the page, a link.
    if (scrollTop < this.top - 1 && scrollHeight >= this.height) {
      if (this.distance > 2) this._up();
    } else if (scrollTop > this.top && this.distance <= ZONE) {
      this._set(true, false);
    }
    this.top = scrollTop;
    this.height = scrollHeight;
  }

  _grew() {
    const grown = this.scroller.scrollHeight > this.height;
    if (this.attached) this._toEnd();
    else if (this.scroller.scrollHeight <= this.scroller.clientHeight + 1) this._set(true, false);
    else if (grown && this.isNews()) this._set(false, true);
    this.height = this.scroller.scrollHeight;
  }

  _set(attached, fresh) {
    if (attached === this.attached && fresh === this.fresh) return;
    this.attached = attached;
    this.fresh = fresh;
    this.onChange({ attached, fresh });
  }
}
