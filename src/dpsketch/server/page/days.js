/** The published days of a stream: an answer over time, and which days the other cards ask about. */

import { post } from "./api.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { curveFigure } from "./lines.js";
import { WHOLE } from "./numbers.js";

const WINDOWS = [
  [null, "running totals"],
  [1, "each day by itself"],
  [7, "the last 7 days"],
  [30, "the last 30 days"],
];
const DAY = 24 * 60 * 60 * 1000;

/** The name of a day that is counted from 1: its date, where the first has one. */
function namer({ facts: { first_day: first } }) {
  return (number) => {
    const whole = Math.round(number);
    return first === null ? `day ${whole}` : new Date(Date.parse(first) + (whole - 1) * DAY).toISOString().slice(0, 10);
  };
}

/** What is asked over time, by what the days count: the label, a hint, and what is shown first. */
function questionOf({ questions, examples }) {
  if (questions.includes("range")) {
    return { label: "A quantile or a range", hint: "As in 50%, or 10:20 for how many lie there.", first: "50%" };
  }
  if (questions.includes("density")) {
    return { label: "A point", hint: "Its coordinates with commas between them, as in 1.5,2.", first: "" };
  }
  return { label: "Key over time, exactly as it was counted", hint: null, first: examples?.[0] ?? "" };
}

/** Which days the cards below ask about: all, or those from one to another. */
export function daysField(release, changed) {
  if (!release.questions.includes("curve") || release.questions.includes("density")) {
    return { field: null, asked: () => ({}) };
  }
  const most = release.facts.days_published;
  const [first, last] = [1, most].map((value) => h("input", { type: "number", min: 1, max: most, value }));
  const name = namer(release);
  const words = h("p", { class: "soft", role: "status" });
  const read = () => [first, last].map((field) => (WHOLE.test(field.value) ? Number(field.value) : NaN));
  const good = ([from, to]) => from >= 1 && from <= to && to <= most;
  const say = () => {
    const [from, to] = read();
    words.replaceChildren(
      good([from, to])
        ? `The answers below are of ${name(from)} to ${name(to)}.`
        : `Days are whole numbers from 1 to ${most}, the first no later than the last.`,
    );
    return good([from, to]);
  };
  [first, last].forEach((field) => field.addEventListener("change", () => say() && changed()));
  say();
  const row = h("div", { class: "row" }, labelled("From day", first), labelled("To day", last));
  return {
    field: card("Which days", row, words),
    asked: () => {
      const [from, to] = read();
      return good([from, to]) ? { first: from, last: to } : {};
    },
  };
}

/** One question over time: the estimate as a line, its intervals as a band. */
export async function curveCard({ release, path, signal, confidence, keyTypes, whenConfidenceChanges }) {
  const notice = noticeBoard();
  const { label, hint, first } = questionOf(release);
  const field = h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
  field.value = first;
  const most = release.facts.days_published;
  const options = WINDOWS.filter(([days]) => days === null || days <= most);
  const window = h("select", {}, options.map(([days, words]) => h("option", { value: days ?? "" }, words)));
  const together = h("input", { type: "checkbox" });
  const place = h("div", {});
  let last = null;

  async function ask() {
    if (field.value === "") {
      throw new Error("Say what to follow over time.");
    }
    const chosen = window.value === "" ? {} : { window: Number(window.value) };
    const question = { key: field.value, ...chosen, together: together.checked, ...keyTypes.asked() };
    const found = await post(`${path}/curve`, { ...question, confidence: confidence() }, signal);
    const side = (name) => found.estimates.map((one) => one[name] ?? one.value);
    const start = most - found.estimates.length + 1;
    const words = options.find(([days]) => String(days ?? "") === window.value)[1];
    const figure = curveFigure("day", `${field.value}, ${words}`, namer(release));
    figure.show(
      {
        x: found.estimates.map((_, index) => start + index),
        value: side("value"),
        low: side("low"),
        high: side("high"),
      },
      found.confidence,
      found.joint,
    );
    place.replaceChildren(figure.element);
    last = question;
  }

  const again = () => last !== null && ask().catch(notice.fail);
  [window, together].forEach((control) => control.addEventListener("change", again));
  whenConfidenceChanges(again);
  const row = h(
    "div",
    { class: "row" },
    labelled(label, field, hint),
    labelled("Sums of", window),
    h("button", { type: "submit" }, "Draw"),
  );
  const all = labelled("The band holds for the whole curve at once", together);
  all.classList.add("inline");
  if (first !== "") {
    await ask().catch(notice.fail);
  }
  return card("Over time", form(ask, notice, row, all), notice.element, place);
}
