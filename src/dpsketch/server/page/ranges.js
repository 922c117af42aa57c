/** Releases over an ordered domain: how many keys lie in a range, and which are the quantiles. */

import { asker } from "./answers.js";
import { post } from "./api.js";
import { barFigure } from "./bars.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { WHOLE } from "./numbers.js";

const MEDIAN = "50%";
const PARTS_BITS = 4;

function countCard(context) {
  const notice = noticeBoard();
  const answers = asker(context, notice, "range");
  const [from, to] = [0, 1].map(() => h("input", { type: "text", inputmode: "numeric", autocomplete: "off" }));
  const count = async () => {
    const ends = [from.value.trim(), to.value.trim()];
    if (!ends.every((end) => WHOLE.test(end))) {
      throw new Error("The ends of a range are whole numbers.");
    }
    await answers.ask(ends.join(":"));
  };
  const row = h(
    "div",
    { class: "row" },
    labelled("From", from),
    labelled("To", to),
    h("button", { type: "submit" }, "Count"),
  );
  return card("Count a range", form(count, notice, row), notice.element, ...answers.parts);
}

/** The whole domain in equal parts, at once: what most people look for first. */
async function histogramCard({ release, path, signal, measure, confidence, asked, whenConfidenceChanges }) {
  const { bits } = release.spec;
  if (!Number.isInteger(bits) || bits > 50) {
    return null;
  }
  const parts = 2 ** Math.min(bits, PARTS_BITS);
  const width = 2 ** bits / parts;
  const keys = Array.from({ length: parts }, (_, i) => `${i * width}:${(i + 1) * width - 1}`);
  const notice = noticeBoard();
  const chart = barFigure(measure, "range");
  const ask = async () => {
    const { estimates, confidence: held } = await post(
      `${path}/estimate`,
      { keys, confidence: confidence(), ...asked() },
      signal,
    );
    chart.show(estimates, held);
  };
  whenConfidenceChanges(() => ask().catch(notice.fail));
  await ask().catch(notice.fail);
  return card("How the values are spread", notice.element, chart.element);
}

async function quantileCard(context) {
  const notice = noticeBoard();
  const answers = asker(context, notice, "quantile");
  const level = h("input", { type: "number", min: 0, max: 100, step: "any", value: 50 });
  const find = async () => {
    if (level.value === "" || !(level.valueAsNumber >= 0 && level.valueAsNumber <= 100)) {
      throw new Error("A quantile is a percentage between 0 and 100.");
    }
    await answers.ask(`${level.valueAsNumber}%`);
  };
  const row = h(
    "div",
    { class: "row" },
    labelled("Percent of the records below", level),
    h("button", { type: "submit" }, "Find"),
  );
  await answers.ask(MEDIAN).catch(notice.fail);
  return card("Find a quantile", form(find, notice, row), notice.element, ...answers.parts);
}

export async function rangesCard(context) {
  const cards = [await histogramCard(context), countCard(context), await quantileCard(context)];
  return h("div", { class: "stack" }, cards.filter(Boolean));
}
