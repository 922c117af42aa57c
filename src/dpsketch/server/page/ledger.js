/** The view of the ledger: what each dataset may spend, and has. */

import { get } from "./api.js";
import { card, h } from "./dom.js";
import { budgetBar } from "./guarantee.js";

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
