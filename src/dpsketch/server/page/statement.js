/** Releases that state one thing about a whole stream: a moment, several of them, or how many keys differ. */

import { intervalFigure, sentence } from "./answers.js";
import { get } from "./api.js";
import { barFigure } from "./bars.js";
import { card, h, noticeBoard } from "./dom.js";
import { quantity } from "./numbers.js";

const REPETITIONS = [1, 100, 10_000];

/** A moment in words: which streams of equally frequent keys have the same one. */
function meanings({ spec }, [{ value }]) {
  const p = spec.p;
  if (typeof p !== "number" || p <= 0 || value === null || value <= 0) {
    return [];
  }
  const alike = REPETITIONS.map((count) => [value / count ** p, count]).filter(([keys]) => keys >= 1);
  const rows = alike.map(([keys, count]) =>
    h("li", {}, `${quantity(Math.round(keys))} keys that occur ${count === 1 ? "once" : `${quantity(count)} times`} each`),
  );
  return [
    h(
      "p",
      {},
      `F_${p} is the sum, over all keys, of how often each occurs to the power ${p}: few keys with most of the records `,
      "make it small, many keys with few records each make it large. The stream is as skewed as one of:",
    ),
    h("ul", { class: "sentences" }, rows),
  ];
}

export async function statementCard({ release, path, signal, measure, confidence, whenConfidenceChanges }) {
  const notice = noticeBoard();
  const answers = h("div", { class: "stack tight", "aria-live": "polite" });
  const close = intervalFigure(measure);
  const chart = barFigure(measure, "statement");

  async function ask() {
    const { estimates, confidence: held } = await get(`${path}/estimate?confidence=${confidence()}`, signal);
    const lines = estimates.map((one) => h("p", { class: "answer" }, sentence(String(one.key), one, measure, held)));
    answers.replaceChildren(...lines, ...meanings(release, estimates));
    if (estimates.length === 1) {
      close.show(estimates[0]);
    } else {
      chart.show(estimates, held);
    }
  }

  whenConfidenceChanges(() => ask().catch(notice.fail));
  await ask();
  return card("What it states", answers, notice.element, close.element, chart.element);
}
