/** What programs can ask the service: its OpenAPI description, readable. */

import { card, h } from "./dom.js";

const METHODS = ["get", "post", "delete"];

const bodyOf = (operation) => Object.keys(operation.requestBody?.content ?? {}).join(", ");

function parameters({ parameters: all = [] }) {
  const words = ({ name, in: place, required, description, schema }) =>
    h(
      "li",
      {},
      h("code", {}, name),
      ` (${place}${required ? ", needed" : ""})`,
      description ?? schema?.description ? `: ${description ?? schema.description}` : "",
    );
  return all.length ? h("ul", {}, all.map(words)) : null;
}

function operationOf(path, method, operation) {
  const body = bodyOf(operation);
  return h(
    "div",
    { class: "stack tight" },
    h("h3", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
    h("p", {}, operation.description ?? operation.summary ?? ""),
    parameters(operation),
    body ? h("p", { class: "soft" }, `Body: ${body}`) : null,
  );
}

export async function showOperations(place, { signal }) {
  const response = await fetch(new URL("openapi.json", document.baseURI), { signal, credentials: "omit" });
  const { paths, info } = await response.json();
  const groups = new Map();
  for (const [path, operations] of Object.entries(paths)) {
    for (const method of METHODS.filter((name) => name in operations)) {
      const [tag = "other"] = operations[method].tags ?? [];
      groups.set(tag, [...(groups.get(tag) ?? []), operationOf(path, method, operations[method])]);
    }
  }
  place.append(
    h("h1", { tabindex: "-1" }, "For programs"),
    h(
      "p",
      { class: "lead" },
      `${info.summary} What a program can ask for is described in `,
      h("a", { href: "openapi.json" }, "openapi.json"),
      ", from which clients are made in any language. A token goes into the header Authorization: Bearer ….",
    ),
    h(
      "div",
      { class: "stack" },
      [...groups].map(([tag, operations]) => card(tag, operations)),
    ),
  );
}
