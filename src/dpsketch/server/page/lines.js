/** Lines: a density along one coordinate, an answer over time, and the width of an interval as reports come in. */

import { s } from "./dom.js";
import { bottomAxis, drawing, figure, leftAxis, linear, logarithmic, textWidth } from "./figure.js";
import { percent, quantity, several, share, shareTick, tick } from "./numbers.js";

const BOTTOM = 46;

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

const heightFor = (width) => Math.round(Math.max(220, Math.min(340, width * 0.5)));

function leftRoom(texts) {
  return Math.max(...texts.map(textWidth)) + 14;
}

function titles(width, height, left, across, up) {
  return [
    s("text", { class: "tick", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, across),
    s("text", { class: "tick", x: 0, y: 12 }, up),
  ];
}

/** A figure of {x, value, low, high}: the estimate as a line, its intervals as a band; `named` names whole x, as days. */
export function curveFigure(name, what = "density", named = null) {
  const shown = figure([name, what, "low", "high"]);
  const place = named ?? quantity;

  function draw(width, { x, value, low, high }) {
    const height = heightFor(width);
    const [top, bottom] = [26, height - BOTTOM];
    const ends = [...low, ...high, ...value];
    const up = linear(Math.min(0, ...ends), Math.max(...ends), bottom, top, 5);
    const left = leftRoom(up.ticks.map((value) => tick(value, up.step)));
    const along = linear(x[0], x.at(-1), left, width - 12, named === null ? Math.max(3, width / 90) : Math.max(1, width / 150));
    if (named !== null) {
      along.ticks = along.ticks.filter(Number.isInteger);
    }
    const at = (values) => values.map((number, index) => [along.place(x[index]), up.place(number)]);
    const highest = x[value.indexOf(Math.max(...value))];
    return drawing(
      width,
      height,
      `Line chart of the ${what} along ${name}, highest near ${place(highest)}; the table below has the numbers.`,
      bottomAxis(along, { width, top, bottom, write: named ?? tick }),
      leftAxis(up, { left, right: width - 12, write: tick }),
      s("path", { class: "band", d: `${path(at(high))}${path(at(low).reverse()).replace("M", "L")}Z` }),
      s("path", { class: "line", d: path(at(value)) }),
      ...titles(width, height, left, name, what),
    );
  }

  return {
    element: shown.element,
    show(curve, confidence, joint = false) {
      const every = Math.max(1, Math.floor(curve.x.length / 40));
      const rows = curve.x.map((x, i) => [place(x), ...[curve.value[i], curve.low[i], curve.high[i]].map(quantity)]);
      shown.show({
        draw: (width) => draw(width, curve),
        caption: `Line: estimate. Band: ${percent(confidence)} intervals, ${joint ? "all at once" : "each on its own"}.`,
        rows: rows.filter((_, index) => index % every === 0),
      });
    },
  };
}

/** A figure of interval width against the number of reports, with both axes in factors. */
export function widthFigure() {
  const shown = figure(["reports", "width, measured", "width, predicted"]);

  function draw(width, points, predicted) {
    const height = heightFor(width);
    const [top, bottom] = [44, height - BOTTOM];
    const all = [...points, ...predicted];
    const widths = all.map((point) => point.width);
    const reports = all.map((point) => point.reports);
    const up = logarithmic(Math.min(...widths) / 1.3, Math.max(...widths) * 1.3, bottom, top, 6);
    const left = leftRoom(up.ticks.map(shareTick));
    const along = logarithmic(Math.min(...reports) / 1.2, Math.max(...reports) * 1.2, left, width - 16, width / 80);
    const at = (list) => list.map((point) => [along.place(point.reports), up.place(point.width)]);
    const last = points.at(-1);
    const sentence = last
      ? `Chart of an interval's width against the reports: ${share(last.width)} at ${several(last.reports, "report")}.`
      : "Chart of the predicted width of an interval against the number of reports.";
    const key = left + 4;
    return drawing(
      width,
      height,
      sentence,
      bottomAxis(along, { width, top, bottom, write: tick }),
      leftAxis(up, { left, right: width - 16, write: shareTick }),
      s("path", { class: "line dashed", d: path(at(predicted)) }),
      s("path", { class: "line", d: path(at(points)) }),
      ...at(points).map(([x, y]) => s("circle", { class: "dot", cx: x, cy: y, r: 4 })),
      s("line", { class: "line", x1: key, x2: key + 26, y1: 28, y2: 28 }),
      s("circle", { class: "dot", cx: key + 13, cy: 28, r: 4 }),
      s("text", { class: "tick", x: key + 33, y: 32 }, "measured"),
      s("line", { class: "line dashed", x1: key + 106, x2: key + 136, y1: 28, y2: 28 }),
      s("text", { class: "tick", x: key + 143, y: 32 }, "predicted"),
      ...titles(width, height, left, "reports", "width of a 95% interval, in points of share"),
    );
  }

  return {
    element: shown.element,
    hide: shown.hide,
    show(points, predicted) {
      const counts = [...new Set([...points, ...predicted].map((point) => point.reports))].sort((a, b) => a - b);
      const cell = (list, reports) => {
        const found = list.find((point) => point.reports === reports);
        return found ? share(found.width) : "–";
      };
      shown.show({
        draw: (width) => draw(width, points, predicted),
        caption:
          "Four times the reports, half the width. The prediction is for a rare choice; common ones are less sharp.",
        rows: counts.map((reports) => [quantity(reports), cell(points, reports), cell(predicted, reports)]),
      });
    },
  };
}
