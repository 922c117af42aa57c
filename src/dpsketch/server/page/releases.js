/** The list of releases, with a search, and the newest of a name. */

import { get, part } from "./api.js";
import { h, labelled } from "./dom.js";
import { showRelease } from "./explorer.js";
import { badge } from "./guarantee.js";
import { day, several } from "./numbers.js";

const tile = ({ id, name, kind, answers, guarantee, added, versions }) =>
  h(
    "li",
    {},
    h("a", { class: "tile", href: `#/releases/${part(id)}` }, [
      h("span", { class: "spread" }, h("strong", {}, name), badge(guarantee)),
      h("span", {}, answers),
      h(
        "span",
        { class: "soft" },
        [kind, day(added), versions > 1 ? several(versions, "version") : ""].filter((text) => text !== "").join(" · "),
      ),
    ]),
  );

const text = ({ id, name, kind, answers }) => `${name} ${kind} ${answers} ${id}`.toLowerCase();

export async function showReleases(place, { signal }) {
  const { releases } = await get("releases", signal);
  place.append(
    h("h1", { tabindex: "-1" }, "Releases"),
    h(
      "p",
      { class: "lead" },
      "Each sums up private records, with noise. Asking costs nothing: the privacy was paid for when it was made.",
    ),
  );
  if (releases.length === 0) {
    place.append(
      h(
        "p",
        { class: "card" },
        "There are none yet. An administrator uploads .dps files, or starts the service on a folder of them (--mount).",
      ),
    );
    return;
  }
  const newest = releases.filter(({ version, versions }) => version === versions);
  const field = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const status = h("p", { class: "soft", role: "status" });
  const list = h("ul", { class: "tiles" });
  const look = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    const found = newest.filter((one) => words.every((word) => text(one).includes(word)));
    list.replaceChildren(...found.map(tile));
    status.replaceChildren(
      found.length ? `${several(found.length, "release")}.` : "No release has all these words; take some away.",
    );
  };
  field.addEventListener("input", look);
  look();
  place.append(labelled("Search by name, kind or question", field), status, list);
}

/** The newest release of a name: an address that stays while versions come. */
export async function showNewest(place, { id: name, signal }) {
  const { releases } = await get(`releases?name=${part(name)}`, signal);
  if (releases.length === 0) {
    throw new Error("There is no release of this name.");
  }
  await showRelease(place, { id: releases[0].id, signal });
}
