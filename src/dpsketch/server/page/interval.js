/** One answer, close up: its interval on an axis of its own. */

import { s } from "./dom.js";
import { bottomAxis, drawing, figure } from "./figure.js";
import { linear } from "./scales.js";

const HEIGHT = 92;
const LINE = 34;
const BOTTOM = 62;

function draw(width, { value, low, high }, measure) {
  const [from, to] = [low ?? value, high ?? value];
  const margin = 0.3 * (to - from) || Math.max(1e-9, Math.abs(value) * 0.1) || 1;
  const scale = linear(from - margin, to + margin, 10, width - 10, Math.max(2, Math.min(8, width / 95)));
  const [left, right] = [low === null ? 0 : scale.place(low), high === null ? width : scale.place(high)];
  const cap = (x) => s("line", { class: "whisker", x1: x, x2: x, y1: LINE - 9, y2: LINE + 9 });
  const zero = scale.low < 0 && scale.high > 0 ? scale.place(0) : null;
  return drawing(
    width,
    HEIGHT,
    `Interval from ${measure.write(low)} to ${measure.write(high)} with the estimate ${measure.write(value)} in it.`,
    bottomAxis(scale, { width, top: 8, bottom: BOTTOM, write: measure.tick }),
    zero === null ? null : s("line", { class: "origin", x1: zero, x2: zero, y1: 8, y2: BOTTOM }),
    s("rect", { class: "band", x: left, y: LINE - 9, width: right - left, height: 18 }),
    s("line", { class: "whisker", x1: left, x2: right, y1: LINE, y2: LINE }),
    low === null ? null : cap(left),
    high === null ? null : cap(right),
    s("circle", { class: "dot", cx: scale.place(value), cy: LINE, r: 6 }),
  );
}

/** A figure of one estimate. */
export function intervalFigure(measure) {
  const shown = figure(null);
  return {
    element: shown.element,
    show: (estimate) =>
      shown.show({
        draw: (width) => draw(width, estimate, measure),
        caption: "Dot: estimate. Line: its interval, close up; the axis need not start at zero.",
        rows: [],
      }),
  };
}
