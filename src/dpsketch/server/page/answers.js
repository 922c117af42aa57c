/** Answers: a sentence, the interval close up, and the last ones side by side. */

import { post } from "./api.js";
import { barFigure } from "./bars.js";
import { h } from "./dom.js";
import { intervalFigure } from "./interval.js";
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
