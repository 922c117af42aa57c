/** Files for a person to keep. */

import { h } from "./dom.js";

/** A name as that of a file. */
export const fileName = (text, ending) =>
  `${text.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "dpsketch"}.${ending}`;

/** Have the browser save something under a name. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A text that no spreadsheet computes, as Estimates.to_csv of the library writes it; numbers stay as they are. */
const noFormula = (text) =>
  /^'*[=+\-@\t\r]/.test(text) && !/^[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)$/.test(text) ? `'${text}` : text;

const quoted = (value) => {
  const text = value === null ? "" : noFormula(String(value));
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Rows as CSV, with all their digits. */
export const csv = (columns, rows) =>
  new Blob([columns, ...rows].map((row) => `${row.map(quoted).join(",")}\n`), { type: "text/csv" });
