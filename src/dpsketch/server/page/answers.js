/** Answers: a sentence, the interval close up, and the last ones side by side. */

import { post } from "./api.js";
import { barFigure } from "./bars.js";
import { h, s } from "./dom.js";
import { bottomAxis, drawing, figure, linear } from "./figure.js";
import { percent } from "./numbers.js";

const REMEMBERED = 12;

/** An estimate in words. */
export function sentence(subject, { value, low, high }, { write }, confidence) {
  const ends = `${write(low)} and ${write(high)}`;
  return [
    h("strong", {}, subject),
    ": about ",
    h("strong", { class: "value" }, write(value)),
    `, between ${ends} with ${percent(confidence)} confidence.`,
  ];
}

/** That an interval leaves open whether there is anything at all. */
const doubt = ({ low, high }) =>
  low !== null && high !== null && low <= 0 && high >= 0 ? " This cannot be told from zero." : "";

/** Asks about one key after another; the last ones stay on one chart, the newest first. */
export function asker({ path, signal, measure, confidence, asked, whenConfidenceChanges }, notice, keyName) {
  const answer = h("p", { class: "answer", "aria-live": "polite" });
  const close = intervalFigure(measure);
  const chart = barFigure(measure, keyName);
  let keys = [];

  async function ask(next) {
    const { estimates, confidence: held } = await post(
      `${path}/estimate`,
      { keys: next, confidence: confidence(), ...asked() },
      signal,
    );
    const [newest] = estimates;
    keys = next;
    answer.replaceChildren(...sentence(String(newest.key), newest, measure, held), doubt(newest));
    close.show(newest);
    if (estimates.length > 1) {
      chart.show(estimates, held);
    }
  }

  whenConfidenceChanges(() => keys.length && ask(keys).catch(notice.fail));
  return {
    parts: [answer, close.element, chart.element],
    ask: (key) => ask([key, ...keys.filter((one) => one !== key)].slice(0, REMEMBERED)),
  };
}

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
