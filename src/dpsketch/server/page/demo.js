/** Taking part: the browser draws one report, keeps it, shows what it will send, and sends exactly that. */

import { decide, readSpec } from "../client.js";
import { get, part, postText } from "./api.js";
import { card, form, h, labelled, noticeBoard } from "./dom.js";
import { guaranteeCard } from "./guarantee.js";
import { WHOLE, budget, percent, quantity, several } from "./numbers.js";
import { cost, kept, markSent, reportOnce } from "./taking.js";

const AGREED = 4;
const LARGEST_EPSILON = 20;

/** The collection's spec, if what is announced beside it agrees with it; what cannot be checked is refused. */
function checkedSpec({ spec, guarantee }) {
  let read;
  try {
    read = readSpec(spec, { maxEpsilon: LARGEST_EPSILON });
  } catch (error) {
    throw new Error(`This page cannot report to this collection, so do not take part: ${error.message}`);
  }
  if (!guarantee.holds || guarantee.epsilon !== read.epsilon || guarantee.delta !== 0) {
    throw new Error("This collection promises something else than its spec keeps: do not take part.");
  }
  return read;
}

/** The bucket of one item under a hash function of the pool: what a report would name if it named the item's own. */
const bucketOf = (spec, item, seed) => decide(spec, [item], seed, { inside: 0n, choice: 0n, order: 0n });

const chance = (value) => percent(Number(value.toPrecision(3)));

/** What may be known before a report is sent: how it was drawn, and not what came out. */
function odds(spec) {
  const factor = Math.exp(spec.epsilon);
  const own = factor / (spec.maxItems * factor + spec.width - spec.maxItems);
  return h(
    "p",
    { class: "soft" },
    `One of ${quantity(spec.seeds)} hash functions sorts all answers into ${quantity(spec.width)} buckets. A bucket of `,
    `yours is named with probability ${chance(own)}; otherwise chance names another. So nobody can be sure, and you can `,
    "always say that it was chance. Send it or not, but do not let what it names decide that: whoever sends only true ",
    "reports tells the truth. What it names is shown here when it is sent.",
  );
}

/** What a report that was sent names. */
function named(spec, message, candidates) {
  const { seed, bucket } = JSON.parse(message);
  const items = candidates.filter((item) => bucketOf(spec, item, seed) === bucket).join(", ");
  return h(
    "p",
    {},
    `Hash function ${quantity(seed)} was drawn. The report names bucket ${bucket}, which holds, of this list: `,
    h("strong", {}, items || "none"),
    ".",
  );
}

/** The ticket with which this tab reports to a collection; one that came in the address is kept, and taken out of it. */
function ticketOf(id, given) {
  const name = `dpsketch-ticket-${id}`;
  if (given !== undefined) {
    sessionStorage.setItem(name, given);
    history.replaceState(null, "", `#/demo/${part(id)}`);
  }
  return sessionStorage.getItem(name) ?? "";
}

const OFTEN = { once: "once", hour: "once an hour", day: "once a day", week: "once a week" };

export async function showDemo(place, { id, ticket, signal }) {
  const brought = ticketOf(id, ticket);
  const collection = await get(`collections/${part(id)}`, signal, brought);
  const spec = checkedSpec(collection);
  const before = await kept();
  const integer = collection.spec.key_type === "int";
  const typed = (item) => (integer ? BigInt(item) : item);
  const candidates = (collection.candidates ?? []).map(typed);
  const single = collection.spec.max_items === 1;
  const makeNotice = noticeBoard();
  const sendNotice = noticeBoard();
  const body = h("pre", { class: "body", tabindex: "0", "aria-label": "What will be sent" });
  const meaning = h("div", { class: "stack tight" });
  const spent = h("p", { class: "cost", "aria-live": "polite" });
  const result = h("p", { class: "answer", "aria-live": "polite" });
  const choices = candidates.map((item) => {
    const field = h("input", { type: single ? "radio" : "checkbox", name: "choice", value: item });
    return h("label", { class: "choice" }, field, h("span", {}, String(item)));
  });
  const own = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const limit = h("input", { type: "number", min: 0.001, max: 20, step: "any", value: AGREED });
  const pass = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: brought });
  const passWords =
    `This collection counts each ticket ${OFTEN[collection.tickets] ?? ""}. Whoever issued it knows whose it is, ` +
    "and the service sees it beside your report; what you chose stays hidden in the noise.";
  let mine = before.find((one) => one.collection === id) ?? null;

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

  function showSpent(records) {
    const here = cost(records.filter((one) => one.collection === id));
    spent.replaceChildren(
      `This browser has spent ε = ${budget(here)} on this collection, and ε = ${budget(cost(records))} on all `,
      "collections of this service together. It forgets this with the data of this site; what was sent stays sent.",
    );
  }

  /** Show the one report there is; there is no way to another. */
  function showReport() {
    body.replaceChildren(mine.message);
    meaning.replaceChildren(mine.sent ? named(spec, mine.message, candidates) : odds(spec));
    maker.hidden = true;
    drawn.hidden = false;
    step.hidden = false;
  }

  async function randomise() {
    const most = Number(limit.value);
    mine = await reportOnce(id, readSpec(collection.spec, { maxEpsilon: most }), held(), most);
    showSpent(await kept());
    result.replaceChildren();
    sendNotice.clear();
    showReport();
    step.querySelector("h2").focus();
  }

  async function send() {
    if (mine.sent) {
      throw new Error("This report was sent already, and there is no other: a collection gets one from each browser.");
    }
    const { accepted } = await postText(`collections/${part(id)}/reports`, mine.message, signal, pass.value.trim());
    mine = (await markSent(id)) ?? { ...mine, sent: true };
    showReport();
    result.replaceChildren(
      accepted ? "Sent, and stored. " : "This report was there already. ",
      h("a", { href: `#/collections/${part(id)}` }, "See what everyone said"),
    );
  }

  const asks = `This collection asks for ε = ${budget(spec.epsilon)}. More than you agree to is refused.`;
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
    h("p", {}, collection.tickets ? "This text, your ticket, and nothing else:" : "This text, and nothing else:"),
    body,
    meaning,
    form(send, sendNotice, collection.tickets ? labelled("Your ticket", pass, passWords) : null, h("div", { class: "row" }, h("button", { type: "submit" }, "Send it"))),
    sendNotice.element,
    result,
  );
  step.querySelector("h2").tabIndex = -1;
  step.hidden = true;
  const maker = form(
    randomise,
    makeNotice,
    chooser,
    labelled("The most that all your reports to this service may cost (ε)", limit, asks),
    h("div", { class: "row" }, h("button", { type: "submit" }, "Randomise")),
  );
  const drawn = h(
    "p",
    { hidden: true },
    "Your report to this collection is drawn. It is the only one: whatever you would choose now, this is what is sent.",
  );
  showSpent(before);
  if (mine !== null) {
    showReport();
  }
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
        card("1. Choose", maker, drawn, makeNotice.element, spent),
        step,
      ),
      h("aside", { class: "stack" }, guaranteeCard(collection.guarantee)),
    ),
  );
}
