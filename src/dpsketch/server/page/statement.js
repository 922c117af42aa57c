/** Releases that state one thing about a whole stream: a moment, several of them, or how many keys differ. */

import { sentence } from "./answers.js";
import { get } from "./api.js";
import { barFigure } from "./bars.js";
import { card, h, noticeBoard } from "./dom.js";
import { intervalFigure } from "./interval.js";

export async function statementCard({ path, signal, measure, confidence, whenConfidenceChanges }) {
  const notice = noticeBoard();
  const answers = h("div", { class: "stack tight", "aria-live": "polite" });
  const close = intervalFigure(measure);
  const chart = barFigure(measure, "statement");

  async function ask() {
    const { estimates, confidence: held } = await get(`${path}/estimate?confidence=${confidence()}`, signal);
    const lines = estimates.map((one) => h("p", { class: "answer" }, sentence(String(one.key), one, measure, held)));
    answers.replaceChildren(...lines);
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
