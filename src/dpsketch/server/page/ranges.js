/** Releases over an ordered domain: how many keys lie in a range, and which are the quantiles. */

import { asker } from "./answers.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { WHOLE } from "./numbers.js";

const MEDIAN = "50%";

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

async function quantileCard(context) {
  const notice = noticeBoard();
  const answers = asker(context, notice, "quantile");
  const level = h("input", { type: "number", min: 0, max: 100, step: "any", value: 90 });
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
  return h("div", { class: "stack" }, countCard(context), await quantileCard(context));
}
