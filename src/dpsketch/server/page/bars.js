/** Estimates as bars with their intervals, the longest words first cut, the numbers beside them. */

import { h, s } from "./dom.js";
import { bottomAxis, drawing, figure, linear, logarithmic, shortened, textWidth } from "./figure.js";
import { percent, quantity, share, shareTick, tick } from "./numbers.js";
import { csv, save } from "./saving.js";

/** How values are written: counts and densities, or shares of people. */
export const COUNTS = { write: quantity, tick };
export const SHARES = { write: share, tick: shareTick };

const NARROW = 560;
const AXIS = 26;
const TOP = 6;

export const between = ({ low, high }, { write }) => `${write(low)} to ${write(high)}`;

function scaleFor(estimates, start, end) {
  const ends = estimates.flatMap(({ value, low, high }) => [value, low, high]).filter((number) => number !== null);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const marks = Math.max(2, Math.min(7, (end - start) / 75));
  // Moments of different orders lie powers of ten apart: even steps would show the largest only.
  if (low > 0 && high / low > 1e4) {
    return { ...logarithmic(low / 2, high * 1.2, start, end, marks), origin: start };
  }
  const scale = linear(Math.min(0, low), Math.max(0, high) || 1, start, end, marks);
  return { ...scale, origin: scale.place(0) };
}

function interval(scale, estimate, y, [start, end]) {
  const { low, high } = estimate;
  const left = low === null ? start : scale.place(low);
  const right = high === null ? end : scale.place(high);
  const cap = (x) => s("line", { class: "whisker", x1: x, x2: x, y1: y - 6, y2: y + 6 });
  return s(
    "g",
    {},
    s("line", { class: "whisker", x1: left, x2: right, y1: y, y2: y }),
    low === null ? null : cap(left),
    high === null ? null : cap(right),
  );
}

function bar(scale, { value }, y) {
  const at = scale.place(value);
  return s("rect", {
    class: "bar",
    x: Math.min(at, scale.origin),
    y: y - 8,
    width: Math.abs(at - scale.origin),
    height: 16,
  });
}

/** A row in one line: key, bar, numbers. */
function wide(width, estimates, measure) {
  const numbers = estimates.map((one) => [measure.write(one.value), between(one, measure)]);
  const valueRoom = Math.max(...numbers.map(([value]) => textWidth(value)), textWidth("estimate")) + 14;
  const rangeRoom = Math.max(...numbers.map(([, range]) => textWidth(range)), textWidth("interval")) + 14;
  const keyRoom = Math.min(width * 0.28, Math.max(40, ...estimates.map(({ key }) => textWidth(String(key)))) + 12);
  const [start, end] = [keyRoom, width - valueRoom - rangeRoom - 16];
  const scale = scaleFor(estimates, start, end);
  const head = 22;
  const step = 28;
  const bottom = TOP + head + step * estimates.length;
  const rows = estimates.map((one, index) => {
    const y = TOP + head + step * (index + 0.5);
    return s(
      "g",
      {},
      s("title", {}, `${one.key}: ${numbers[index].join(", ")}`),
      s("text", { class: "label", x: 0, y: y + 4.5 }, shortened(String(one.key), keyRoom - 10)),
      bar(scale, one, y),
      interval(scale, one, y, [start, end]),
      s("text", { class: "number", x: width - rangeRoom, y: y + 4.5, "text-anchor": "end" }, numbers[index][0]),
      s("text", { class: "tick", x: width, y: y + 4.5, "text-anchor": "end" }, numbers[index][1]),
    );
  });
  const heads = [
    s("text", { class: "tick", x: width - rangeRoom, y: TOP + 11, "text-anchor": "end" }, "estimate"),
    s("text", { class: "tick", x: width, y: TOP + 11, "text-anchor": "end" }, "interval"),
  ];
  return { scale, top: TOP + head, bottom, parts: [...heads, ...rows] };
}

/** A row in two lines, for a phone: key and numbers above the bar. */
function tall(width, estimates, measure) {
  const [start, end] = [1, width - 3];
  const scale = scaleFor(estimates, start, end);
  const step = 52;
  const rows = estimates.map((one, index) => {
    const top = TOP + step * index;
    const numbers = `${measure.write(one.value)} (${between(one, measure)})`;
    const room = width - textWidth(numbers) - 22;
    return s(
      "g",
      {},
      s("title", {}, `${one.key}: ${numbers}`),
      s("text", { class: "label", x: 0, y: top + 15 }, shortened(String(one.key), Math.max(50, room))),
      s("text", { class: "number", x: width, y: top + 15, "text-anchor": "end" }, numbers),
      bar(scale, one, top + 33),
      interval(scale, one, top + 33, [start, end]),
    );
  });
  return { scale, top: TOP, bottom: TOP + step * estimates.length, parts: rows };
}

/** What the picture shows, for those who cannot see it. */
function described([first, ...others], measure) {
  const rest = others.length ? `, and ${others.length} more in the table below` : "";
  return `Chart of estimates: ${first.key} ${measure.write(first.value)} (${between(first, measure)})${rest}.`;
}

function draw(width, estimates, measure) {
  const { scale, top, bottom, parts } = (width < NARROW ? tall : wide)(width, estimates, measure);
  const origin = s("line", { class: "origin", x1: scale.origin, x2: scale.origin, y1: top, y2: bottom });
  return drawing(
    width,
    bottom + AXIS,
    described(estimates, measure),
    bottomAxis(scale, { width, top, bottom, write: measure.tick }),
    origin,
    ...parts,
  );
}

/** What the intervals promise: all at once, each by itself, or each by itself for keys picked by their size. */
const COVERAGE = {
  joint: (number) => `which hold for all ${number} at once.`,
  single: () => "each on its own.",
  picked: () => "each on its own: for keys that were picked for being large they are somewhat too narrow.",
};

/** A figure of estimates [{key, value, low, high}]. */
export function barFigure(measure, keyName = "key") {
  const shown = figure([keyName, "estimate", "low", "high"]);
  let numbers = [];
  const columns = ["key", "value", "low", "high"];
  const keep = () => save(csv(columns, numbers.map((one) => columns.map((name) => one[name]))), "estimates.csv");
  const button = h("button", { type: "button", class: "quiet", click: keep }, "Save as CSV");
  shown.element.append(h("div", { class: "row" }, button));
  return {
    element: shown.element,
    hide: shown.hide,
    show(estimates, confidence, coverage = "single") {
      numbers = estimates;
      shown.show({
        draw: (width) => draw(width, estimates, measure),
        caption: `Bars: estimates. Lines: ${percent(confidence)} intervals, ${COVERAGE[coverage](estimates.length)}`,
        rows: estimates.map(({ key, value, low, high }) => [String(key), ...[value, low, high].map(measure.write)]),
      });
    },
  };
}
