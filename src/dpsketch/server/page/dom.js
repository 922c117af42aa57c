/** Building elements. Text is always set as text, so nothing that a release or a person wrote becomes markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Characters that turn the direction of writing, and would have a text show as another one: they are named instead. */
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text as it is shown. */
export const shown = (text) =>
  text.replace(TURNING, (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  const there = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  element.append(...there.map((child) => (typeof child === "string" ? shown(child) : child)));
  return element;
}

/** An HTML element; an attribute that is a function becomes a listener, false and null are left out. */
export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element, likewise. */
export const s = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

let made = 0;

/** A name that no other element of the page has. */
export const freshId = (stem) => `${stem}-${++made}`;

/** A label with its field below it, and a hint below that which the field refers to. */
export function labelled(text, field, hint = null) {
  field.id ||= freshId("field");
  const note = hint === null ? null : h("p", { class: "hint", id: freshId("hint") }, hint);
  if (note !== null) {
    field.setAttribute("aria-describedby", note.id);
  }
  return h("div", { class: "field" }, h("label", { for: field.id }, text), field, note);
}

/** The lines that were written into a field, each once, without empty ones. */
export const lines = (field) => [...new Set(field.value.split(/\r?\n/).filter((line) => line !== ""))];

/** A card with a heading. */
export function card(title, ...children) {
  const id = freshId("card");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** A form whose submission runs `act`, with its button off meanwhile, and whose failure is said in `notice`. */
export function form(act, notice, ...children) {
  const submit = async (event) => {
    event.preventDefault();
    const buttons = [...event.currentTarget.querySelectorAll("button")];
    // The focus must survive the pause, so the buttons are marked rather than disabled.
    if (buttons.some((button) => button.getAttribute("aria-disabled") === "true")) {
      return;
    }
    buttons.forEach((button) => button.setAttribute("aria-disabled", "true"));
    notice.clear();
    try {
      await act(event.submitter?.value ?? "");
    } catch (error) {
      notice.fail(error);
    } finally {
      buttons.forEach((button) => button.removeAttribute("aria-disabled"));
    }
  };
  return h("form", { submit, novalidate: true }, ...children);
}

/** A place for what went wrong, read out when it changes. */
export function noticeBoard() {
  const element = h("div", { class: "notice", role: "alert", hidden: true });
  return {
    element,
    clear() {
      element.hidden = true;
      element.replaceChildren();
    },
    fail(error) {
      if (error.name === "AbortError") {
        return;
      }
      element.replaceChildren(h("strong", {}, `${error.title ?? "That did not work"}. `), shown(error.message));
      element.hidden = false;
    },
  };
}
