/** Releases with keys: look one up, or list the largest. */

import { asker } from "./answers.js";
import { post } from "./api.js";
import { barFigure } from "./bars.js";
import { card, form, h, labelled, lines, noticeBoard, shown } from "./dom.js";
import { WHOLE } from "./numbers.js";

const LISTED = 20;
const EXAMPLES = 5;

/** What the keys of a release are; where it does not say, a person chooses. */
export function keyTypeField({ key_type: stated, questions }) {
  const open = stated === null && questions.includes("estimate");
  const select = h("select", {}, h("option", { value: "text" }, "text"), h("option", { value: "int" }, "whole numbers"));
  return {
    field: open ? labelled("Its keys are", select, "The release does not say; ask as they were counted.") : null,
    integer: () => (open ? select.value : stated) === "int",
    asked: () => (open ? { key_type: select.value } : {}),
  };
}

/** Look up keys one by one. */
export function searchCard(context) {
  const notice = noticeBoard();
  const answers = asker(context, notice, "key");
  const kinds = context.keyTypes;
  const field = h("input", {
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    inputmode: kinds.integer() ? "numeric" : null,
  });
  const search = async () => {
    const integer = kinds.integer();
    const key = integer ? field.value.trim() : field.value;
    if (key === "") {
      throw new Error("Type a key to look up.");
    }
    if (integer && !WHOLE.test(key)) {
      throw new Error("The keys of this release are whole numbers.");
    }
    await answers.ask(key);
    field.select();
  };
  const examples = (context.release.examples ?? []).slice(0, EXAMPLES).map((key) =>
    h("button", { type: "submit", class: "quiet example", click: () => (field.value = key) }, key),
  );
  const label = kinds.integer() ? "Key (a whole number)" : "Key, exactly as it was counted";
  return card(
    "Look up a key",
    kinds.field,
    form(
      search,
      notice,
      h("div", { class: "row" }, labelled(label, field), h("button", { type: "submit" }, "Look up")),
      examples.length ? h("div", { class: "row examples" }, h("span", { class: "soft" }, "For example:"), examples) : null,
    ),
    notice.element,
    ...answers.parts,
  );
}

/** List the largest keys: found by the release itself, or among candidates that a person names. */
export async function listCard({ release, path, signal, measure, confidence, asked, whenConfidenceChanges }) {
  const findsKeys = !release.needs_candidates;
  const notice = noticeBoard();
  const status = h("p", { class: "soft", role: "status" });
  const chart = barFigure(measure);
  const number = h("input", { type: "number", min: 1, max: 200, value: LISTED });
  const candidates = h("textarea", { rows: findsKeys ? 2 : 5, autocomplete: "off", spellcheck: "false" });
  candidates.value = findsKeys ? "" : (release.examples ?? []).join("\n");
  let last = null;

  async function ask(way) {
    const n = Number(number.value);
    const keys = lines(candidates);
    if (!Number.isInteger(n) || n < 1) {
      throw new Error("How many keys to list must be a whole number of at least 1.");
    }
    if (keys.length === 0 && (way === "decode" || !findsKeys)) {
      throw new Error("Write some keys that may occur, one a line: the release knows counts, not keys.");
    }
    let found;
    if (way === "decode") {
      found = await post(`${path}/decode`, { keys, confidence: confidence(), ...asked() }, signal);
      found.estimates = found.estimates.sort((a, b) => b.value - a.value).slice(0, n);
    } else {
      found = await post(
        `${path}/top`,
        { n, confidence: confidence(), ...asked(), ...(keys.length && { candidates: keys }) },
        signal,
      );
    }
    last = way;
    if (found.estimates.length === 0) {
      chart.hide();
      status.replaceChildren(shown(found.note) || "No key is frequent enough to stand out from the noise.");
      return;
    }
    status.replaceChildren(`${found.estimates.length} keys, the largest first.`);
    chart.show(found.estimates, found.confidence, found.joint ? "joint" : "picked");
  }

  whenConfidenceChanges(() => last !== null && ask(last).catch(notice.fail));
  const hint = findsKeys
    ? "Leave it empty to see the keys that the release finds by itself."
    : "One a line. The list should be public: it costs no privacy, and only keys on it are shown.";
  const decode = release.questions.includes("decode")
    ? h(
        "button",
        {
          type: "submit",
          value: "decode",
          class: "quiet",
          title: "Estimates all candidates together; sharper when the list holds most of the keys.",
        },
        "Decode together",
      )
    : null;
  const asking = form(
    ask,
    notice,
    labelled(findsKeys ? "Candidates (optional)" : "Candidates", candidates, hint),
    h(
      "div",
      { class: "row" },
      labelled("How many", number),
      h("button", { type: "submit", value: "top" }, "Show the largest"),
      decode,
    ),
  );
  if (findsKeys || candidates.value !== "") {
    await ask("top").catch(notice.fail);
  }
  return card(
    "The largest keys",
    ...(findsKeys ? [notice.element, status, chart.element, asking] : [asking, notice.element, status, chart.element]),
  );
}
