/** The list of releases. */

import { get, part } from "./api.js";
import { h } from "./dom.js";
import { badge } from "./guarantee.js";

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
  const tiles = releases.map(({ id, name, kind, answers, guarantee }) =>
    h(
      "li",
      {},
      h("a", { class: "tile", href: `#/releases/${part(id)}` }, [
        h("span", { class: "spread" }, h("strong", {}, name), badge(guarantee)),
        h("span", {}, answers),
        h("span", { class: "soft" }, kind),
      ]),
    ),
  );
  place.append(h("ul", { class: "tiles" }, tiles));
}
