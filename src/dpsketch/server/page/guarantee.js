/** The promise, in figures and in words, and what a dataset has spent of its budget. */

import { get } from "./api.js";
import { card, h } from "./dom.js";
import { atMost, budget, percent } from "./numbers.js";

/** ε, δ as a phrase. */
export const promise = ({ epsilon, delta }) => `ε = ${budget(epsilon)}${delta ? `, δ = ${budget(delta)}` : ""}`;

/**
 * How often an attacker is right who knows all else, from even odds: at most (e^ε + δ)/(1 + e^ε). An ε of null is
 * without bound.
 */
export function bestGuess(epsilon, delta) {
  const other = epsilon === null ? 0 : Math.exp(-epsilon);
  return Math.min(1, (1 + delta * other) / (1 + other));
}

/** A short mark for lists: the promise, or that there is none. */
export function badge(guarantee) {
  return guarantee.holds === false
    ? h("span", { class: "badge broken" }, "⚠ not private")
    : h("span", { class: "badge" }, promise(guarantee));
}

function figures({ epsilon, delta }) {
  const shown = [
    ["ε", budget(epsilon)],
    ["δ", budget(delta)],
    ["a guess from even odds is right at most", atMost(bestGuess(epsilon, delta))],
  ];
  return h(
    "dl",
    { class: "figures" },
    shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** The words one sentence after the other: the first as it is, the others below it, to be opened. */
function sentences(words) {
  const [first, ...others] = words.split(/(?<=[.;:]) (?=[A-ZΑ-Ω])/u);
  const more = h(
    "details",
    {},
    h("summary", {}, "In full"),
    h("ul", { class: "sentences" }, others.map((one) => h("li", {}, one))),
  );
  return [h("p", {}, first), others.length ? more : null];
}

/** The guarantee at full length. */
export function guaranteeCard(guarantee) {
  const broken = guarantee.holds === false;
  const shown = card(
    broken ? "⚠ Not private" : "What is promised",
    broken ? null : figures(guarantee),
    ...sentences(guarantee.words),
  );
  shown.classList.add("promise");
  shown.classList.toggle("broken", broken);
  return shown;
}

function meter(dataset, share) {
  const spent = h("div", { class: "spent" });
  spent.style.width = `${100 * Math.min(1, share)}%`;
  const values = { "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": share };
  return h(
    "div",
    { class: "meter", role: "meter", "aria-label": `Spent of the budget of ${dataset}`, ...values },
    spent,
  );
}

/** One dataset's budget: a bar whose spent part is hatched, with the numbers in words below it. */
export function budgetBar({ dataset, unit, share, words }) {
  const left = share === null ? "" : ` ${percent(Number(Math.max(0, 1 - share).toFixed(3)))} is left.`;
  return h(
    "div",
    { class: "budget" },
    h("strong", {}, dataset),
    share === null ? null : meter(dataset, share),
    h("p", {}, `${words}.${left}`),
    h("p", { class: "soft" }, `Protects ${unit.words}.`),
  );
}

/** The view of the ledger: what each dataset may spend, and has. */
export async function showLedger(place, { signal }) {
  const { datasets } = await get("ledger", signal);
  place.append(
    h("h1", { tabindex: "-1" }, "Budget"),
    h(
      "p",
      { class: "lead" },
      "Every release of a dataset costs privacy, and the costs add up. The ledger holds the sum to a total.",
    ),
    datasets.length
      ? card("Datasets", h("div", { class: "stack" }, datasets.map(budgetBar)))
      : card("No datasets", h("p", {}, "This service was started without a ledger, or nothing was charged to it yet.")),
  );
}
