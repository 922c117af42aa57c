/** A collection while it grows: reports, estimates, and how sharp they have become. */

import { download, get, part, post } from "./api.js";
import { SHARES, barFigure } from "./bars.js";
import { card, form, h, labelled, lines, noticeBoard } from "./dom.js";
import { guaranteeCard } from "./guarantee.js";
import { widthFigure } from "./lines.js";
import { quantity } from "./numbers.js";

const EVERY = 3000;
const SLOWEST = 60_000;
const LISTED = 20;

const COUNTER_NAMES = {
  accepted: "accepted",
  repeated: "sent again, counted once",
  malformed: "refused: malformed",
  other_spec: "refused: of another collection",
  oversized: "refused: too large",
};

/** Run `step` every few seconds until the view is left. It can be paused, rests while nobody looks, slows on errors. */
function repeat(step, notice, signal) {
  let paused = false;
  let timer = null;
  let wait = EVERY;
  let running = false;

  async function tick() {
    clearTimeout(timer);
    if (signal.aborted || paused || document.hidden || running) {
      return;
    }
    running = true;
    try {
      await step();
      notice.clear();
      wait = EVERY;
    } catch (error) {
      notice.fail(error);
      wait = Math.min(SLOWEST, 2 * wait);
    }
    running = false;
    if (!signal.aborted && !paused) {
      timer = setTimeout(tick, wait);
    }
  }

  document.addEventListener("visibilitychange", tick, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  timer = setTimeout(tick, wait);
  return {
    pause(on) {
      paused = on;
      return tick();
    },
  };
}

/** A button that saves the collection as a file, and a place for what goes wrong. */
function saver(path, name, signal) {
  const notice = noticeBoard();
  const save = async () => {
    const address = URL.createObjectURL(await download(`${path}/export`, signal));
    const file = `${name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "collection"}.dps`;
    h("a", { href: address, download: file }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  const button = h("button", { type: "submit", class: "quiet" }, "Save as .dps");
  return [form(save, notice, h("div", { class: "row" }, button)), notice.element];
}

export async function showCollection(place, { id, signal }) {
  const path = `collections/${part(id)}`;
  const collection = await get(path, signal);
  const notice = noticeBoard();
  const asked = noticeBoard();
  const reports = h("span", { class: "big" });
  const noun = h("span", {});
  const counters = h("dl", { class: "facts" });
  const shares = barFigure(SHARES, "choice");
  const widths = widthFigure();
  const early = h("p", { class: "soft" }, "Estimates appear with the first reports.");
  const fixed = collection.candidates ?? [];
  const field = h("textarea", { rows: 4, autocomplete: "off", spellcheck: "false" });
  let keys = [];

  const estimates = () =>
    fixed.length
      ? get(`${path}/top?n=${LISTED}`, signal)
      : post(`${path}/estimate`, { keys: keys.slice(0, LISTED) }, signal);

  async function refresh() {
    const [now, counted, history] = await Promise.all([
      get(path, signal),
      get(`${path}/counters`, signal),
      get(`${path}/history`, signal),
    ]);
    reports.replaceChildren(quantity(now.reports));
    noun.replaceChildren(now.reports === 1 ? " report" : " reports");
    counters.replaceChildren(
      ...Object.entries(COUNTER_NAMES).map(([name, words]) =>
        h("div", {}, h("dt", {}, words), h("dd", {}, quantity(counted[name] ?? 0))),
      ),
    );
    const askable = now.reports > 0 && (fixed.length > 0 || keys.length > 0);
    early.hidden = now.reports > 0;
    if (askable) {
      const found = await estimates();
      shares.show(found.estimates, found.confidence, found.joint ? "joint" : "single");
    } else {
      shares.hide();
    }
    if (history.points.length || history.predicted.length) {
      widths.show(history.points, history.predicted);
    }
  }

  const state = h("span", { class: "soft", role: "status" }, `Refreshed every ${EVERY / 1000} s.`);
  let paused = false;
  const toggle = () => {
    paused = !paused;
    pause.replaceChildren(paused ? "Go on" : "Pause");
    state.replaceChildren(paused ? "Paused." : `Refreshed every ${EVERY / 1000} s.`);
    live.pause(paused);
  };
  const pause = h("button", { type: "button", class: "quiet", click: toggle }, "Pause");
  const keyForm = fixed.length
    ? null
    : form(
        () => {
          keys = lines(field);
          return refresh();
        },
        asked,
        labelled("Items to estimate", field, `One a line, at most ${LISTED}.`),
        h("div", { class: "row" }, h("button", { type: "submit" }, "Estimate")),
      );
  await refresh();
  const live = repeat(refresh, notice, signal);
  place.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/collections" }, "Collections"), " ›"),
    h("h1", { tabindex: "-1" }, collection.name),
    h(
      "div",
      { class: "row live" },
      h("p", { class: "count" }, reports, noun),
      pause,
      state,
      collection.closed
        ? h("span", { class: "badge" }, "closed")
        : h("a", { class: "button", href: `#/demo/${part(id)}` }, "Take part"),
    ),
    notice.element,
    h(
      "div",
      { class: "split" },
      h(
        "div",
        { class: "stack" },
        card("Share of people", early, keyForm, asked.element, shares.element),
        card("How sharp the answer has become", widths.element),
      ),
      h(
        "aside",
        { class: "stack" },
        guaranteeCard(collection.guarantee),
        card("What was received", counters, saver(path, collection.name, signal)),
      ),
    ),
  );
}
