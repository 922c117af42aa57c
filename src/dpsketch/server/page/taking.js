/**
 * What this browser has reported to this service: one report a collection, drawn once and kept before anyone sees it.
 *
 * A person who could draw again until the report is the true one would send the truth, and so would one who chooses by its
 * content whether to send it. So the first report is the only one, whatever is chosen later, in this tab or another. The
 * browser's database serves one writer at a time, of all tabs; a draw and the note of its cost are one transaction. What
 * was chosen is not kept.
 */

import { report, toObject } from "../client.js";
import { budget } from "./numbers.js";

const DATABASE = "dpsketch-reports";
const STORE = "reports";
const SLACK = 1e-12; // relative: ten reports of 0.1 fit into 1

const noMemory = () =>
  new Error(
    "This browser cannot remember for this page what was drawn (its storage is switched off), so that one report could " +
      "not be told from many. Nothing was drawn; use a window that keeps its data.",
  );

function open() {
  return new Promise((resolve, reject) => {
    const request = globalThis.indexedDB?.open(DATABASE, 1);
    if (request === undefined) {
      reject(noMemory());
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "collection" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(noMemory());
  });
}

/** Let `change` see all that is kept and return a record to keep, or null; resolves when that is on the disk. */
async function changing(change) {
  const database = await open();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(STORE);
      let failure = null;
      let result;
      store.getAll().onsuccess = ({ target }) => {
        try {
          result = change(target.result);
          if (result !== null) {
            store.put(result);
          }
        } catch (error) {
          failure = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = transaction.onerror = () => reject(failure ?? noMemory());
    });
  } finally {
    database.close();
  }
}

/** All reports of this browser to this service: their collection, epsilon, text, and whether they were sent. */
export async function kept() {
  let all = [];
  await changing((records) => {
    all = records;
    return null;
  });
  return all;
}

/** What reports cost together. */
export const cost = (records) => records.reduce((sum, { epsilon }) => sum + epsilon, 0);

/**
 * The report of this browser to a collection: the one that was drawn before, or a first one.
 *
 * A first one is drawn if all reports to this service together stay within `most`; it is kept when this resolves.
 */
export function reportOnce(collection, spec, items, most) {
  return changing((records) => {
    const before = records.find((one) => one.collection === collection);
    if (before !== undefined) {
      return before;
    }
    const spent = cost(records);
    if (!(spent + spec.epsilon <= most * (1 + SLACK))) {
      throw new RangeError(
        `This collection asks for ε = ${budget(spec.epsilon)}. You have spent ε = ${budget(spent)} at this service, ` +
          `and agreed to ${budget(most)} in all. Nothing was drawn.`,
      );
    }
    const message = JSON.stringify(toObject(spec, report(spec, items)));
    return { collection, epsilon: spec.epsilon, message, sent: false };
  });
}

/** Note that the report to a collection has arrived. */
export function markSent(collection) {
  return changing((records) => {
    const one = records.find((record) => record.collection === collection);
    return one === undefined ? null : { ...one, sent: true };
  });
}
