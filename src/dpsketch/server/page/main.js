/** Where a person is, which view that shows, and who they are to the service. */

import { get, setToken, token } from "./api.js";
import { showCollection } from "./collection.js";
import { showCollections, showOpenCollections } from "./collections.js";
import { showDemo } from "./demo.js";
import { h, noticeBoard } from "./dom.js";
import { showRelease } from "./explorer.js";
import { showLedger } from "./guarantee.js";
import { showOperations } from "./operations.js";
import { showNewest, showReleases } from "./releases.js";

const VIEWS = [
  [/^#\/releases$/, showReleases],
  [/^#\/releases\/newest\/([^/]+)$/, showNewest],
  [/^#\/releases\/([^/]+)$/, showRelease],
  [/^#\/collections$/, showCollections],
  [/^#\/collections\/([^/]+)$/, showCollection],
  [/^#\/demo$/, showOpenCollections],
  [/^#\/demo\/([^/]+)(?:\/([^/]+))?$/, showDemo],
  [/^#\/budget$/, showLedger],
  [/^#\/api$/, showOperations],
];
const HOME = "#/releases";

const main = document.getElementById("content");
let left = new AbortController();

function markLinks(hash) {
  for (const link of document.querySelectorAll("nav a")) {
    const here = hash.startsWith(link.getAttribute("href"));
    if (here) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

/** Show the view that the address names; `arriving` moves the focus to its heading. */
async function show(arriving) {
  const hash = location.hash || HOME;
  const found = VIEWS.map(([pattern, view]) => [pattern.exec(hash), view]).find(([match]) => match);
  left.abort();
  left = new AbortController();
  const { signal } = left;
  const place = h("div", { class: "view" });
  const notice = noticeBoard();
  markLinks(hash);
  main.setAttribute("aria-busy", "true");
  if (main.querySelector(".view") === null) {
    main.replaceChildren(h("p", { class: "soft waiting", role: "status" }, "Loading…"));
  }
  try {
    if (found === undefined) {
      throw new Error("There is no such view. Choose one above.");
    }
    const [match, view] = found;
    const [id, ticket] = match.slice(1).map((text) => (text === undefined ? undefined : decodeURIComponent(text)));
    await view(place, { id, ticket, signal });
  } catch (error) {
    if (signal.aborted) {
      return;
    }
    if (error.asksForToken) {
      place.replaceChildren(...signIn(error));
    } else {
      notice.fail(error);
      place.replaceChildren(h("h1", { tabindex: "-1" }, "Nothing to show"), notice.element);
    }
  }
  if (signal.aborted) {
    return;
  }
  main.replaceChildren(place);
  main.removeAttribute("aria-busy");
  const heading = place.querySelector("h1");
  document.title = `${heading.textContent} · dpsketch`;
  if (arriving) {
    heading.focus();
    scrollTo(0, 0);
  }
}

/** What stands where a view needs a token that is not there. */
function signIn(error) {
  const open = () => document.getElementById("token-button").click();
  return [
    h("h1", { tabindex: "-1" }, "Please sign in"),
    h(
      "div",
      { class: "card stack" },
      h("p", {}, error.message),
      h("div", { class: "row" }, h("button", { type: "button", click: open }, "Sign in")),
    ),
  ];
}

async function greet() {
  const state = document.getElementById("token-state");
  const scopes = document.getElementById("scopes");
  try {
    const session = await get("session");
    const may = session.scopes.length
      ? `You may: ${session.scopes.join(", ")}.`
      : "Sign in to see what is here.";
    state.replaceChildren(may);
    scopes.replaceChildren(may);
    document.getElementById("version").replaceChildren(`dpsketch ${session.version}`);
  } catch (error) {
    state.replaceChildren(error.message);
    scopes.replaceChildren(error.message);
  }
}

function setUpToken() {
  const dialog = document.getElementById("token-dialog");
  const field = document.getElementById("token-field");
  const use = async (text) => {
    setToken(text);
    await greet();
    await show(false);
  };
  document.getElementById("token-button").addEventListener("click", () => {
    field.value = token();
    dialog.showModal();
  });
  document.getElementById("token-close").addEventListener("click", () => dialog.close());
  document.getElementById("token-forget").addEventListener("click", () => {
    field.value = "";
    use("");
  });
  document.getElementById("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    use(field.value.trim());
  });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  // The fragment is the view's address, so the link must not change it.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show(true));
setUpToken();
greet();
show(false);
