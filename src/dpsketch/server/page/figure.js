/** What every chart shares: it fits its place, it has a caption, and its numbers can be read as a table. */

import { h, s } from "./dom.js";

const FONT = "13px system-ui, sans-serif";
const ruler = document.createElement("canvas").getContext("2d");

/** The width of a text as charts write it. */
export function textWidth(text) {
  ruler.font = FONT;
  return ruler.measureText(text).width;
}

/** A text cut to a width. */
export function shortened(text, room) {
  if (textWidth(text) <= room) {
    return text;
  }
  const letters = Array.from(text);
  while (letters.length > 1 && textWidth(`${letters.join("")}…`) > room) {
    letters.pop();
  }
  return `${letters.join("")}…`;
}

/** A drawing of this size, which a screen reader takes as one picture with a sentence. */
export function drawing(width, height, sentence, ...children) {
  const size = { viewBox: `0 0 ${width} ${height}`, width, height };
  return s("svg", { class: "chart", role: "img", "aria-label": sentence, ...size }, ...children);
}

/** Marks along the bottom, with lines up to `top`. */
export function bottomAxis(scale, { width, top, bottom, write }) {
  return s(
    "g",
    {},
    scale.ticks.map((value) => {
      const x = scale.place(value);
      const text = write(value, scale.step);
      // A mark near an edge of the drawing keeps its text inside.
      const half = textWidth(text) / 2;
      const middle = Math.max(half, Math.min(width - half, x));
      return [
        s("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }),
        s("text", { class: "tick", x: middle, y: bottom + 17, "text-anchor": "middle" }, text),
      ];
    }),
  );
}

/** Marks along the left, with lines to `right`. */
export function leftAxis(scale, { left, right, write }) {
  return s(
    "g",
    {},
    scale.ticks.map((value) => {
      const y = scale.place(value);
      return [
        s("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
        s("text", { class: "tick", x: left - 7, y: y + 4, "text-anchor": "end" }, write(value, scale.step)),
      ];
    }),
  );
}

function numbersTable(columns, summary, body) {
  const heads = columns.map((name) => h("th", { scope: "col" }, name));
  const table = h("table", {}, h("thead", {}, h("tr", {}, heads)), body);
  const scroller = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": summary }, table);
  return h("details", {}, h("summary", {}, summary), scroller);
}

/** A figure: `show` gives it draw(width) → element, a caption, and rows for its table (which needs columns). */
export function figure(columns, summary = "The numbers as a table") {
  const plot = h("div", { class: "plot" });
  const caption = h("figcaption", {});
  const body = h("tbody");
  const numbers = columns === null ? null : numbersTable(columns, summary, body);
  const element = h("figure", { hidden: true }, plot, caption, numbers);
  let draw = null;
  let drawn = 0;

  function redraw() {
    const width = Math.floor(plot.clientWidth);
    if (draw !== null && width > 0) {
      drawn = width;
      plot.replaceChildren(draw(width));
    }
  }

  new ResizeObserver(() => {
    if (Math.floor(plot.clientWidth) !== drawn) {
      // Drawing may move the page's scroll bar; in the next frame that is no loop.
      requestAnimationFrame(redraw);
    }
  }).observe(plot);

  return {
    element,
    show({ draw: next, caption: words, rows }) {
      draw = next;
      caption.replaceChildren(words);
      body.replaceChildren(
        ...rows.map(([first, ...rest]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, first),
            rest.map((text) => h("td", {}, text)),
          ),
        ),
      );
      element.hidden = false;
      redraw();
    },
    hide() {
      element.hidden = true;
      draw = null;
    },
  };
}

/** A round step of 1, 2 or 5 times a power of ten, so that a range takes about `wanted` of them. */
function roundStep(range, wanted) {
  const raw = range / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= raw * 0.999999);
  return factor * power;
}

/** An even scale from [low, high] to [start, end]. */
export function linear(low, high, start, end, wanted) {
  const reach = high > low ? high - low : Math.max(1e-9, Math.abs(high) || 1);
  const step = roundStep(reach, wanted);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= low + reach * (1 + 1e-9); k++) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  const place = (value) => start + ((value - low) / reach) * (end - start);
  return { place, ticks, step, low, high: low + reach };
}

/** A scale whose steps are factors; low and high are positive. */
export function logarithmic(low, high, start, end, wanted) {
  const from = Math.log10(low);
  const reach = Math.max(0.05, Math.log10(high) - from);
  const factors = 3 * reach <= 1.5 * wanted ? [1, 2, 5] : [1];
  const every = factors.length > 1 ? 1 : Math.max(1, Math.ceil(reach / Math.max(2, wanted)));
  const ticks = [];
  for (let power = Math.floor(from); power <= from + reach; power++) {
    for (const factor of power % every === 0 ? factors : []) {
      const mark = Number((factor * 10 ** power).toPrecision(3));
      if (mark >= low && mark <= high) {
        ticks.push(mark);
      }
    }
  }
  const place = (value) => start + ((Math.log10(value) - from) / reach) * (end - start);
  return { place, ticks, step: null, low, high };
}
