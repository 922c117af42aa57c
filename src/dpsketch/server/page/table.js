/** A table of groups: the service sorts, searches and adds up its rows, and sends a page of them at a time. */

import { post } from "./api.js";
import { between, COUNTS } from "./bars.js";
import { card, h, labelled, noticeBoard } from "./dom.js";
import { percent, quantity } from "./numbers.js";
import { csv, fileName, save } from "./saving.js";

const PAGE = 100;
const WHOLE_TABLE = 10_000; // rows of one answer, at most
const PAUSE = 250; // milliseconds without a key before a search begins
const LONGEST = 80;

/** A name of a group; a very long one is cut, and in full where the mouse rests. */
const nameCell = (text) =>
  text.length > LONGEST
    ? h("th", { scope: "row", title: text }, `${text.slice(0, LONGEST)}…`)
    : h("th", { scope: "row" }, text);

/** A number with its interval below it. */
function numberCell(value, low, high) {
  if (value === null) {
    return h("td", {}, "–");
  }
  return h("td", {}, quantity(value), h("span", { class: "range" }, between({ low, high }, COUNTS)));
}

const about = (part) => `about ${Number((100 * part).toPrecision(2))}%`;

/** What each number counts, and what its bounds cut; null is what does not stand out of the noise. */
function meanings({ meanings: words, cut, bounds }) {
  const lost = (name) => (cut[name] ? ` Clipping cut ${about(cut[name])} of its total.` : "");
  const entries = Object.entries(words).map(([name, meaning]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, `${meaning}.${lost(name)}`)),
  );
  const { max_keys: groups, max_records: records } = bounds;
  const pairs = cut.max_keys ? ` That leaves out ${about(cut.max_keys)} of the pairs of users and groups.` : "";
  const users = `A user counts in at most ${groups} group${groups === 1 ? "" : "s"}${records ? `, and counts and means over records take at most ${records} of its records in each` : ""}.`;
  return [
    h("h3", {}, "What the numbers are"),
    h("dl", { class: "meanings" }, entries),
    groups === undefined ? null : h("p", {}, users, pairs),
  ];
}

export async function tableCard({ release, path, signal, confidence, whenConfidenceChanges }) {
  const notice = noticeBoard();
  const status = h("p", { class: "soft", role: "status" });
  const note = h("p", { class: "hint" });
  const [head, body, foot] = ["thead", "tbody", "tfoot"].map((name) => h(name));
  const table = h("table", { class: "groups" }, head, body, foot);
  const scroller = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of groups" }, table);
  const caption = h("p", { class: "hint" });
  const search = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const kept = release.spec.by.map((name) => h("input", { type: "checkbox", value: name, checked: true }));
  let [sort, descending, offset, turn, columns] = [null, false, 0, 0, ""];

  const asked = () => ({
    by: kept.filter((box) => box.checked).map((box) => box.value),
    search: search.value,
    confidence: confidence(),
    ...(sort !== null && { sort, descending }),
  });

  /** A heading is a button, which sorts by its column and the other way when it is pressed again. */
  function heading(name, number = false) {
    const press = () => {
      // The largest numbers first, and names from A.
      [sort, descending, offset] = [name, sort === name ? !descending : number, 0];
      show();
    };
    const arrow = h("span", { class: "arrow", "aria-hidden": "true" });
    const place = { scope: "col", "data-name": name, class: number ? "amount" : null };
    return h("th", place, h("button", { type: "button", click: press }, name, arrow));
  }

  function mark() {
    for (const cell of head.querySelectorAll("th")) {
      const here = cell.dataset.name === sort;
      cell.setAttribute("aria-sort", here ? (descending ? "descending" : "ascending") : "none");
      cell.querySelector(".arrow").textContent = here ? (descending ? "▼" : "▲") : "";
    }
  }

  function draw(found) {
    const { by, rows, total, others } = found;
    const names = found.columns.slice(by.length).filter((_, place) => place % 3 === 0);
    if (columns !== found.columns.join()) {
      columns = found.columns.join();
      scroller.scrollLeft = 0;
      const groups = by.length ? by.map((name) => heading(name)) : h("td");
      head.replaceChildren(h("tr", {}, groups, names.map((name) => heading(name, true))));
    }
    mark();
    body.replaceChildren(
      ...rows.map((row) => {
        const groups = by.length ? row.slice(0, by.length) : ["All listed groups"];
        const numbers = names.map((_, place) => numberCell(...row.slice(by.length + 3 * place).slice(0, 3)));
        return h("tr", {}, groups.map((name) => nameCell(String(name))), numbers);
      }),
    );
    const rest = names.map((name) => numberCell(others[name], others[`${name}_low`], others[`${name}_high`]));
    foot.replaceChildren(h("tr", {}, h("th", { scope: "row", colspan: by.length || 1 }, "All other groups"), rest));
    const last = offset + rows.length;
    status.replaceChildren(total === 0 ? "No group has all these words." : `Rows ${[offset + 1, last].map(quantity).join(" to ")} of ${quantity(total)}.`);
    note.replaceChildren(found.note);
    caption.replaceChildren(`Below each number is its ${percent(found.confidence)} interval, each on its own.`);
    const focused = document.activeElement;
    back.hidden = offset === 0;
    next.hidden = last >= total;
    if (focused.hidden) {
      scroller.focus();
    }
  }

  const show = () => {
    const mine = ++turn;
    notice.clear();
    return post(`${path}/table`, { ...asked(), offset, limit: PAGE }, signal)
      .then((found) => mine === turn && draw(found))
      .catch(notice.fail);
  };

  const step = (rows) => () => {
    offset += rows;
    scroller.scrollTop = 0;
    return show();
  };
  const button = (words, click) => h("button", { type: "button", class: "quiet", click }, words);
  const back = button("Previous rows", step(-PAGE));
  const next = button("Next rows", step(PAGE));

  /** All rows as they are sorted and searched. */
  async function everything() {
    const question = asked();
    const found = await post(`${path}/table`, { ...question, limit: WHOLE_TABLE }, signal);
    while (found.rows.length < found.total) {
      const more = { ...question, limit: WHOLE_TABLE, offset: found.rows.length };
      found.rows.push(...(await post(`${path}/table`, more, signal)).rows);
    }
    return found;
  }

  const keep = (ending, blob) => () =>
    everything()
      .then((found) => save(blob(found), fileName(release.name, ending)))
      .catch(notice.fail);
  const saving = [
    button("Save as CSV", keep("csv", ({ columns: names, rows }) => csv(names, rows))),
    button("Save as JSON", keep("json", (found) => new Blob([JSON.stringify(found)], { type: "application/json" }))),
  ];

  let waiting;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      offset = 0;
      show();
    }, PAUSE);
  });
  kept.forEach((box) =>
    box.addEventListener("change", () => {
      [sort, offset] = [null, 0];
      show();
    }),
  );
  whenConfidenceChanges(show);
  await show();
  return card(
    "Groups",
    labelled("Find groups", search),
    h(
      "fieldset",
      {},
      h("legend", {}, "Group by"),
      h("div", { class: "choices few" }, kept.map((box) => h("label", { class: "choice" }, box, box.value))),
    ),
    notice.element,
    status,
    scroller,
    caption,
    note,
    h("div", { class: "row" }, back, next, saving),
    meanings(release.facts),
  );
}
