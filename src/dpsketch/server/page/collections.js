/** The list of collections, for those who watch and for those who take part. */

import { get, part } from "./api.js";
import { h } from "./dom.js";
import { badge } from "./guarantee.js";
import { several } from "./numbers.js";

const tile = (href, { name, guarantee, reports, closed }, words) =>
  h(
    "li",
    {},
    h(
      "a",
      { class: "tile", href },
      h("span", { class: "spread" }, h("strong", {}, name), badge(guarantee)),
      h("span", {}, words),
      h("span", { class: "soft" }, `${several(reports, "report")}${closed ? ", closed" : ""}`),
    ),
  );

const NONE = "There are none here yet. An administrator makes one from a local spec (POST /v1/collections).";

async function list(place, signal, { title, lead, route, words, wanted }) {
  const { collections } = await get("collections", signal);
  const shown = collections.filter(wanted);
  place.append(
    h("h1", { tabindex: "-1" }, title),
    h("p", { class: "lead" }, lead),
    shown.length
      ? h(
          "ul",
          { class: "tiles" },
          shown.map((one) => tile(`#/${route}/${part(one.id)}`, one, words)),
        )
      : h("p", { class: "card" }, NONE),
  );
}

export const showCollections = (place, { signal }) =>
  list(place, signal, {
    title: "Collections",
    lead: "People randomise their answers before sending them. Nobody knows what any one said; together they tell.",
    route: "collections",
    words: "Watch the reports come in",
    wanted: () => true,
  });

export const showOpenCollections = (place, { signal }) =>
  list(place, signal, {
    title: "Take part",
    lead: "Pick a question. Your browser randomises your answer before it leaves this page.",
    route: "demo",
    words: "Answer it",
    // The browser's client draws reports of this protocol; others are for programs.
    wanted: ({ closed, spec }) => !closed && spec.protocol === "subset-hashing",
  });
