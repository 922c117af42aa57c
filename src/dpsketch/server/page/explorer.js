/** A release: its promise, what it can be asked, and what else is known of it. */

import { download, get, part } from "./api.js";
import { COUNTS, SHARES, between } from "./bars.js";
import { curveCard, daysField } from "./days.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { badge, budgetBar, guaranteeCard } from "./guarantee.js";
import { keyTypeField, listCard, searchCard } from "./keys.js";
import { day, percent, quantity } from "./numbers.js";
import { densityCard } from "./points.js";
import { rangesCard } from "./ranges.js";
import { fileName, save } from "./saving.js";
import { statementCard } from "./statement.js";
import { tableCard } from "./table.js";

/** Which card asks which question, in the order shown. */
const CARDS = [
  ["curve", curveCard], // before the choice of days, which it does not follow
  ["statement", statementCard],
  ["density", densityCard],
  ["range", rangesCard],
  ["estimate", searchCard],
  ["top", listCard],
];
const CONFIDENCES = [0.8, 0.9, 0.95, 0.99, 0.999];

function confidenceField() {
  const options = CONFIDENCES.map((value) => h("option", { value, selected: value === 0.95 }, percent(value)));
  const select = h("select", {}, options);
  const field = labelled("Confidence of the intervals", select);
  field.classList.add("inline");
  return { field, select };
}

const SAID_ELSEWHERE = ["guarantee", "spec", "unit", "sensitive", "counts"];
const SAID_BY_TABLE = ["bounds", "cut", "meanings", "others"];

function readable(value) {
  switch (typeof value) {
    case "number":
      return quantity(value);
    case "object":
      if (typeof value?.value === "number" && "low" in value) {
        return `${quantity(value.value)} (${between(value, COUNTS)})`;
      }
      if (Array.isArray(value)) {
        return value.map(readable).join("; ");
      }
      return Object.entries(value ?? {})
        .filter(([, each]) => each !== null && each.length !== 0)
        .map(([name, each]) => `${name}: ${readable(each)}`)
        .join(", ");
    default:
      return String(value);
  }
}

function factsCard({ spec, facts, questions }) {
  const { charge, ...others } = facts;
  const known = { ...others, ...spec, ...(charge && { charge: `number ${charge.id} of ${charge.dataset}` }) };
  const said = questions.includes("table") ? [...SAID_ELSEWHERE, ...SAID_BY_TABLE] : SAID_ELSEWHERE;
  const entries = Object.entries(known).filter(([name, value]) => value !== null && !said.includes(name));
  const rows = entries.map(([name, value]) =>
    h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, readable(value))),
  );
  return h(
    "details",
    { class: "card" },
    h("summary", {}, h("h2", {}, "How it was made")),
    h("dl", { class: "facts" }, rows),
  );
}

/** When it was added, the other versions of its name, and its file. */
function recordCard(release, others, path, signal) {
  const notice = noticeBoard();
  const act = async () => save(await download(`${path}/file`, signal), fileName(release.name, "dps"));
  const links = others.map(({ id, version, added }) =>
    h(
      "li",
      {},
      id === release.id
        ? h("strong", {}, `Version ${version}, shown here`)
        : h("a", { href: `#/releases/${part(id)}` }, `Version ${version}`),
      added ? `, ${day(added)}` : "",
    ),
  );
  return card(
    "Versions and file",
    h("p", {}, release.added ? `Added on ${day(release.added)}. ` : "", `Its id is ${release.id}.`),
    others.length > 1 ? h("ul", { class: "versions" }, links) : null,
    h(
      "p",
      { class: "soft" },
      h("a", { href: `#/releases/newest/${part(release.name)}` }, "This address"),
      " always leads to the newest of this name.",
    ),
    form(act, notice, h("div", { class: "row" }, h("button", { type: "submit", class: "quiet" }, "Save as .dps"))),
    notice.element,
  );
}

async function ledgerOf(release, signal) {
  const dataset = release.facts.charge?.dataset;
  if (dataset === undefined) {
    return null;
  }
  const { datasets } = await get("ledger", signal);
  const found = datasets.find((one) => one.dataset === dataset);
  return found === undefined ? null : card("The dataset’s budget", budgetBar(found));
}

export async function showRelease(place, { id, signal }) {
  const release = await get(`releases/${part(id)}`, signal);
  const budget = await ledgerOf(release, signal);
  const { releases: others } = await get(`releases?name=${part(release.name)}`, signal);
  const { field, select } = confidenceField();
  const listeners = [];
  const keyTypes = keyTypeField(release);
  const days = daysField(release, () => listeners.forEach((listener) => listener()));
  const context = {
    release,
    path: `releases/${part(id)}`,
    signal,
    measure: release.kind === "local" ? SHARES : COUNTS,
    confidence: () => Number(select.value),
    keyTypes,
    /** What goes with every question: how keys are read, and which days are meant. */
    asked: () => ({ ...keyTypes.asked(), ...days.asked() }),
    /** Ask again when the confidence, or the days, change. */
    whenConfidenceChanges: (listener) => listeners.push(listener),
  };
  select.addEventListener("change", () => listeners.forEach((listener) => listener()));
  const asking = release.questions.includes("table")
    ? [["table", tableCard]]
    : CARDS.filter(([name]) => release.questions.includes(name));
  const cards = await Promise.all(asking.map(([, make]) => make(context)));
  // An interval is for what was counted, not for what was cut before. A table says that of each of its numbers.
  if (!release.questions.includes("table")) {
    cards.forEach((shown) => shown.append(h("p", { class: "soft counted" }, `Counted: ${release.counts}.`)));
  }
  place.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/releases" }, "Releases"), " ›"),
    h("div", { class: "spread" }, h("h1", { tabindex: "-1" }, release.name), field),
    h("div", { class: "spread" }, h("p", { class: "lead" }, release.answers), badge(release.guarantee)),
    h(
      "div",
      { class: "split" },
      h("div", { class: "stack" }, days.field === null ? cards : [cards[0], days.field, cards.slice(1)]),
      h("aside", { class: "stack" }, guaranteeCard(release.guarantee), budget, recordCard(release, others, context.path, signal), factsCard(release)),
    ),
  );
}
