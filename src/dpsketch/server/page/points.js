/** A density: its picture, and its value at a point. */

import { intervalFigure, sentence } from "./answers.js";
import { get, post } from "./api.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { figure } from "./figure.js";
import { heatMap } from "./heatmap.js";
import { curveFigure } from "./lines.js";
import { percent, quantity } from "./numbers.js";

const CELLS = 64;
const PLACES = 200;
const LISTED = 10;

const at = (names, point) => names.map((name, index) => `${name} ${quantity(point[index])}`).join(", ");

function pointForm(names, ask, notice) {
  const fields = names.map(() => h("input", { type: "text", inputmode: "decimal", autocomplete: "off" }));
  const read = () => {
    const point = fields.map((field) => (field.value.trim() === "" ? NaN : Number(field.value)));
    if (!point.every(Number.isFinite)) {
      throw new Error("A point is one number in each field, as in 1.5.");
    }
    return point;
  };
  const places = names.map((name, index) => labelled(name, fields[index]));
  const row = h("div", { class: "row" }, places, h("button", { type: "submit" }, "Ask here"));
  return {
    element: form(() => ask(read()), notice, row),
    fill: (point) => point.forEach((value, index) => (fields[index].value = Number(value.toPrecision(6)))),
  };
}

function mapParts(grid, names, confidence, choose) {
  const read = h("p", { class: "readout", "aria-live": "polite" });
  const map = heatMap(grid, names, {
    read: (point, value) =>
      read.replaceChildren(
        "Under the cursor: ",
        h("strong", {}, `density ${quantity(value)}`),
        ` at ${at(names, point)}`,
      ),
    choose,
  });
  const doubtful = grid.low?.flat().some((low) => low <= 0);
  const line = doubtful
    ? ` Inside the dashed line the density is above zero, with ${percent(confidence)} confidence at each place.`
    : "";
  const shown = figure([...names, "density"], `The ${LISTED} densest cells as a table`);
  shown.show({
    draw: map.draw,
    caption: `Shades and contours follow the scale.${line} Estimates below zero are noise, and left blank.`,
    rows: map.densest(LISTED).map((cell) => cell.map(quantity)),
  });
  return { parts: [read, shown.element], mark: map.mark };
}

/** The picture of a density by its dimension, and a way to mark a point on it. */
async function picture({ release, path, signal }, names, choose) {
  if (release.dimension > 2 || release.bounds === null) {
    const why = release.bounds === null ? "It was made without bounds" : "It has more than two columns";
    return { parts: [h("p", { class: "soft" }, `${why}, so there is no picture. Ask at points.`)], mark() {} };
  }
  const grid = await get(`${path}/grid?size=${release.dimension === 1 ? PLACES : CELLS}`, signal);
  const confidence = grid.confidence ?? 0.95;
  if (release.dimension === 2) {
    return mapParts(grid, names, confidence, choose);
  }
  const curve = curveFigure(names[0]);
  curve.show(grid, confidence);
  return { parts: [curve.element], mark() {} };
}

export async function densityCard(context) {
  const { release, path, signal, measure, confidence, whenConfidenceChanges } = context;
  if (release.dimension === 0) {
    return card("Similar sets", h("p", {}, "This density is over sets of items, which this page cannot ask about."));
  }
  const notice = noticeBoard();
  const answer = h("p", { class: "answer", "aria-live": "polite" });
  const close = intervalFigure(measure);
  const names =
    release.spec.columns ?? Array.from({ length: release.dimension }, (_, index) => `coordinate ${index + 1}`);
  let last = null;

  async function ask(point) {
    const question = { points: [point], confidence: confidence() };
    const [found] = (await post(`${path}/density`, question, signal)).densities;
    last = point;
    answer.replaceChildren(...sentence(`Density at ${at(names, point)}`, found, measure, question.confidence));
    close.show(found);
    drawn.mark(point);
  }

  const asking = pointForm(names, ask, notice);
  const drawn = await picture(context, names, (point) => {
    asking.fill(point);
    notice.clear();
    ask(point).catch(notice.fail);
  });
  const hint = release.dimension === 2 ? "Click on the map, press Enter on it, or type the place." : "Type the place.";
  whenConfidenceChanges(() => last !== null && ask(last).catch(notice.fail));
  return card(
    "Where the points lie",
    ...drawn.parts,
    h("h3", {}, "Ask at a point"),
    h("p", { class: "hint" }, hint),
    asking.element,
    notice.element,
    answer,
    close.element,
  );
}
