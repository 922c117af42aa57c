/** A collection while it grows: reports, estimates, and how sharp they have become. */

import { download, follow, get, part, post } from "./api.js";
import { SHARES, barFigure } from "./bars.js";
import { card, form, h, labelled, lines, noticeBoard, shown } from "./dom.js";
import { guaranteeCard } from "./guarantee.js";
import { widthFigure } from "./lines.js";
import { quantity } from "./numbers.js";
import { fileName, save } from "./saving.js";

const AGAIN = 1000;
const SLOWEST = 60_000;
const LISTED = 20;
const PATIENCE = 10_000; // for the first line; until then the view waits

const COUNTER_NAMES = {
  accepted: "accepted",
  repeated: "sent again, counted once",
  malformed: "refused: malformed",
  other_spec: "refused: of another collection",
  oversized: "refused: too large",
};

/** Follow a stream until the view is left. It can be paused, rests while nobody looks, waits longer after errors. */
function watch(path, take, notice, signal) {
  let paused = false;
  let running = null;
  let wait = AGAIN;

  async function run() {
    if (running !== null || signal.aborted || paused || document.hidden) {
      return;
    }
    running = new AbortController();
    const { signal: stop } = running;
    try {
      await follow(
        path,
        (told) => {
          wait = AGAIN;
          notice.clear();
          take(told);
        },
        AbortSignal.any([signal, stop]),
      );
    } catch (error) {
      if (!stop.aborted && !signal.aborted) {
        notice.fail(error);
        wait = Math.min(SLOWEST, 2 * wait);
      }
    }
    running = null;
    if (!signal.aborted) {
      setTimeout(run, wait);
    }
  }

  const look = () => (document.hidden || paused ? running?.abort() : run());
  document.addEventListener("visibilitychange", look, { signal });
  run();
  return {
    pause(on) {
      paused = on;
      look();
    },
  };
}

/** A button that saves the collection as a file, and a place for what goes wrong. */
function saver(path, name, signal) {
  const notice = noticeBoard();
  const act = async () => {
    save(await download(`${path}/export`, signal), fileName(name, "dps"));
  };
  const button = h("button", { type: "submit", class: "quiet" }, "Save as .dps");
  return [form(act, notice, h("div", { class: "row" }, button)), notice.element];
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
  const clipped = h("p", { class: "soft counted", hidden: true });
  const doubt = h("p", { class: "notice doubt", role: "alert", hidden: true });
  let keys = [];

  /** The shares of what a person named, where the collection has no list of its own. */
  async function askShares() {
    if (keys.length) {
      showShares(await post(`${path}/estimate`, { keys: keys.slice(0, LISTED) }, signal));
    }
  }

  function showShares(found) {
    doubt.replaceChildren(found.implausible ? shown(found.note) : "");
    doubt.hidden = !found.implausible;
    clipped.replaceChildren(`Counted: ${found.counts}.`);
    clipped.hidden = false;
    shares.show(found.estimates, found.confidence, found.joint ? "joint" : "single");
  }

  function show({ collection: now, counters: counted, history, shares: found, error }) {
    if (error) {
      notice.fail(error);
      return;
    }
    reports.replaceChildren(quantity(now.reports));
    noun.replaceChildren(now.reports === 1 ? " report" : " reports");
    counters.replaceChildren(
      ...Object.entries(COUNTER_NAMES).map(([name, words]) =>
        h("div", {}, h("dt", {}, words), h("dd", {}, quantity(counted[name] ?? 0))),
      ),
    );
    early.hidden = now.reports > 0;
    if (found) {
      showShares(found);
    } else if (now.reports === 0 || fixed.length) {
      shares.hide();
    } else {
      askShares().catch(asked.fail);
    }
    if (history.points.length || history.predicted.length) {
      widths.show(history.points, history.predicted);
    }
    ready();
  }

  const state = h("span", { class: "soft", role: "status" }, "Shown as reports come in.");
  let paused = false;
  const toggle = () => {
    paused = !paused;
    pause.replaceChildren(paused ? "Go on" : "Pause");
    state.replaceChildren(paused ? "Paused." : "Shown as reports come in.");
    live.pause(paused);
  };
  const pause = h("button", { type: "button", class: "quiet", click: toggle }, "Pause");
  const keyForm = fixed.length
    ? null
    : form(
        () => {
          keys = lines(field);
          return askShares();
        },
        asked,
        labelled("Items to estimate", field, `One a line, at most ${LISTED}.`),
        h("div", { class: "row" }, h("button", { type: "submit" }, "Estimate")),
      );
  let ready = () => {};
  const first = new Promise((resolve) => {
    ready = resolve;
    signal.addEventListener("abort", resolve);
    setTimeout(resolve, PATIENCE);
  });
  const live = watch(`${path}/stream`, show, notice, signal);
  await first;
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
        card("Share of people", doubt, early, keyForm, asked.element, shares.element, clipped),
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
