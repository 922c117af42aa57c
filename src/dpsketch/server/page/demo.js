/** Taking part: the browser randomises the choice, shows what it will send, and sends exactly that. */

import { decide, readSpec, report, toObject } from "../client.js";
import { get, part, postText } from "./api.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { guaranteeCard } from "./guarantee.js";
import { WHOLE, budget, percent, quantity, several } from "./numbers.js";

const AGREED = 4;

/** What this page has spent on each collection since it was opened. */
const spent = new Map();

/** The bucket of one item under a hash function of the pool: what a report would name if it named the item's own. */
const bucketOf = (spec, item, seed) => decide(spec, [item], seed, { inside: 0n, choice: 0n, order: 0n });

/** The probabilities with which a report names a bucket that holds an item of one's own, and any other bucket. */
function chances(spec, items, seed) {
  const occupied = Math.min(spec.maxItems, new Set(items.map((item) => bucketOf(spec, item, seed))).size);
  const odds = Math.exp(spec.epsilon);
  const own = odds / (spec.maxItems * odds + spec.width - spec.maxItems);
  return { own, other: (1 - occupied * own) / (spec.width - occupied) };
}

const chance = (value) => percent(Number(value.toPrecision(3)));

function explanation(spec, made, items, candidates) {
  const named = candidates.filter((item) => bucketOf(spec, item, made.seed) === made.bucket).join(", ");
  const { own, other } = chances(spec, items, made.seed);
  return [
    h(
      "p",
      {},
      `Hash function ${quantity(made.seed)} of ${quantity(spec.seeds)} sorts all answers into ${quantity(spec.width)} `,
      `buckets. The report names bucket ${made.bucket}, which holds, of this list: `,
      h("strong", {}, named || "none"),
      ".",
    ),
    h(
      "p",
      { class: "soft" },
      `Your own bucket is named with probability ${chance(own)}, each of the others with ${chance(other)}. `,
      "So nobody can be sure, and you can always say that it was chance.",
    ),
  ];
}

export async function showDemo(place, { id, signal }) {
  const collection = await get(`collections/${part(id)}`, signal);
  const integer = collection.spec.key_type === "int";
  const typed = (item) => (integer ? BigInt(item) : item);
  const candidates = (collection.candidates ?? []).map(typed);
  const single = collection.spec.max_items === 1;
  const makeNotice = noticeBoard();
  const sendNotice = noticeBoard();
  const body = h("pre", { class: "body", tabindex: "0", "aria-label": "What will be sent" });
  const meaning = h("div", { class: "stack tight" });
  const result = h("p", { class: "answer", "aria-live": "polite" });
  const choices = candidates.map((item) => {
    const field = h("input", { type: single ? "radio" : "checkbox", name: "choice", value: item });
    return h("label", { class: "choice" }, field, h("span", {}, String(item)));
  });
  const own = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const limit = h("input", { type: "number", min: 0.001, max: 20, step: "any", value: AGREED });
  let message = null;

  function held() {
    const written = own.value.split(",").map((text) => text.trim());
    const ticked = [...chooser.querySelectorAll("input:checked")].map((field) => field.value);
    const picked = (candidates.length ? ticked : written).filter((text) => text !== "");
    if (picked.length === 0) {
      throw new Error("Choose something first.");
    }
    if (integer && !picked.every((text) => WHOLE.test(text))) {
      throw new Error("This collection is about whole numbers.");
    }
    return picked.map(typed);
  }

  function randomise() {
    const spec = readSpec(collection.spec, { maxEpsilon: Number(limit.value) });
    const items = held();
    const made = report(spec, items);
    message = JSON.stringify(toObject(spec, made));
    body.replaceChildren(message);
    meaning.replaceChildren(...explanation(spec, made, items, candidates));
    result.replaceChildren();
    sendNotice.clear();
    step.hidden = false;
    step.querySelector("h2").focus();
  }

  async function send() {
    if (message === null) {
      throw new Error("This report was sent already. Randomise again for another; it costs as much once more.");
    }
    const { accepted } = await postText(`collections/${part(id)}/reports`, message, signal);
    message = null;
    spent.set(id, (spent.get(id) ?? 0) + collection.spec.epsilon);
    result.replaceChildren(
      accepted ? "Sent, and stored. " : "This report was there already. ",
      `From this page you have now spent ε = ${budget(spent.get(id))}. `,
      h("a", { href: `#/collections/${part(id)}` }, "See what everyone said"),
    );
  }

  const asks = `This collection asks for ε = ${budget(collection.spec.epsilon)}. More than you agree to is refused.`;
  const chooser = h(
    "fieldset",
    {},
    h("legend", {}, single ? "Choose one" : `Choose up to ${several(collection.spec.max_items, "item")}`),
    candidates.length
      ? h("div", { class: "choices" }, choices)
      : labelled("Your items", own, "With commas between them."),
  );
  const step = card(
    "2. Look at what will be sent",
    h("p", {}, "This text, and nothing else:"),
    body,
    meaning,
    form(send, sendNotice, h("div", { class: "row" }, h("button", { type: "submit" }, "Send it"))),
    sendNotice.element,
    result,
  );
  step.querySelector("h2").tabIndex = -1;
  step.hidden = true;
  place.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/demo" }, "Take part"), " ›"),
    h("h1", { tabindex: "-1" }, collection.name),
    h(
      "p",
      { class: "lead" },
      "Your choice stays in this page. Only a randomised report leaves it, after you have seen it.",
    ),
    h(
      "div",
      { class: "split" },
      h(
        "div",
        { class: "stack" },
        card(
          "1. Choose",
          form(
            randomise,
            makeNotice,
            chooser,
            labelled("The most one report may cost (ε)", limit, asks),
            h("div", { class: "row" }, h("button", { type: "submit" }, "Randomise")),
          ),
          makeNotice.element,
        ),
        step,
      ),
      h("aside", { class: "stack" }, guaranteeCard(collection.guarantee)),
    ),
  );
}
