// What the pages have with scripts: live updates, local time, tables that can be sorted and narrowed. Everything can be
// read without it too.
"use strict";

// ---- tables

const MANY = 8; // rows from which on narrowing is worth a field

function valueOf(row, column) {
  const cell = row.cells[column];
  if (!cell) return "";
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  const number = Number(text.replace(/[%\s]/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const sign = direction === "ascending" ? 1 : -1;
  const rows = Array.from(body.rows).map((row, index) => ({ row, index, value: valueOf(row, column) }));
  rows.sort((one, other) => sign * compare(one.value, other.value) || one.index - other.index);
  body.append(...rows.map((each) => each.row));
  Array.from(table.tHead.rows[0].cells).forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", direction);
    else cell.removeAttribute("aria-sort");
  });
}

function sortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    button.title = "Sort";
    button.addEventListener("click", () => {
      const number = cell.classList.contains("number") || table.tBodies[0].rows[0]?.cells[column]?.dataset.v !== undefined;
      const first = number ? "descending" : "ascending";
      const second = number ? "ascending" : "descending";
      sortBy(table, column, cell.getAttribute("aria-sort") === first ? second : first);
    });
    cell.replaceChildren(button);
  });
}

function narrowable(table) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const said = document.createElement("span");
  label.className = "narrowing";
  label.dataset.made = "";
  input.type = "search";
  input.autocomplete = "off";
  said.setAttribute("role", "status");
  label.append("Only rows with", input, " ", said);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      if (!row.hidden) shown += 1;
    }
    said.textContent = wanted ? `${shown} of ${table.tBodies[0].rows.length}` : "";
  });
  table.before(label);
}

// ---- local time

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  minute: { hour: "2-digit", minute: "2-digit" },
  message: { hour: "2-digit", minute: "2-digit" },
  day: { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" },
  date: { day: "2-digit", month: "short" },
};
const written = new Map(
  Object.entries(FORMS).map(([name, form]) => [name, new Intl.DateTimeFormat("en-GB", { ...form, hourCycle: "h23" })]),
);

const IN_MESSAGES = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC\b/g;

// A clock of another day gets its date, and a date that begins at another hour here is a clock.
function localText(at, form, now) {
  const sameDay = written.get("date").format(at) === written.get("date").format(now);
  const midnight = at.getHours() === 0 && at.getMinutes() === 0;
  const used = ["clock", "message"].includes(form) && !sameDay ? "day" : form === "date" && !midnight ? "minute" : form;
  return written.get(used).format(at).replace(",", "");
}

function localise(within) {
  const now = new Date(within.querySelector("#shown-at").getAttribute("datetime"));
  for (const each of within.querySelectorAll("[data-form]")) {
    const at = new Date(each.getAttribute("datetime") ?? each.dataset.at);
    each.textContent = localText(at, each.dataset.form, now);
  }
  localiseMessages(within, now);
  for (const each of within.querySelectorAll(".zone")) each.textContent = ZONE;
}

// Messages carry their times as text, which is also recorded. A policy is shown as it is written.
function localiseMessages(within, now) {
  const texts = document.createTreeWalker(within.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!text.nodeValue.includes(" UTC") || text.parentElement.closest("pre, textarea")) continue;
    text.nodeValue = text.nodeValue.replace(IN_MESSAGES, (_, day, clock) => localText(new Date(`${day}T${clock}:00Z`), "message", now));
  }
}

// On a narrow screen a node's chart starts with now in the middle, and the timeline with its newest end.
function centred(within) {
  for (const chart of within.querySelectorAll(".scroll > .curve")) {
    const box = chart.parentElement;
    box.scrollLeft = (box.scrollWidth - box.clientWidth) / (chart.classList.contains("timeline") ? 1 : 2);
  }
}

function enhance(within) {
  for (const table of within.querySelectorAll("table[data-more]:not([data-enhanced])")) {
    if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
    table.dataset.enhanced = "";
    sortable(table);
    if (table.tBodies[0].rows.length >= MANY) narrowable(table);
  }
}

// ---- live updates

const KEYED = "[id], [data-key]";

function keyOf(element) {
  return element.nodeType === Node.ELEMENT_NODE && element.matches(KEYED) ? element.dataset.key ?? element.id : "";
}

function isMade(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.dataset.made !== undefined;
}

function sameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

// A chart is replaced as a whole. Forms hold what a person is entering, and a heading of a table its buttons.
function update(held, fresh) {
  if (held.nodeType !== Node.ELEMENT_NODE) {
    if (held.nodeValue !== fresh.nodeValue) held.nodeValue = fresh.nodeValue;
    return;
  }
  if (held.nodeName === "FORM" || (held.nodeName === "THEAD" && held.querySelector("button"))) return;
  for (const { name, value } of fresh.attributes) {
    if (held.getAttribute(name) !== value) held.setAttribute(name, value);
  }
  for (const name of held.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && !["open", "hidden", "data-enhanced"].includes(name)) held.removeAttribute(name);
  }
  if (held.nodeName === "svg") held.replaceChildren(...fresh.childNodes);
  else merge(held, fresh);
}

// Brings the children of `held` to those of `fresh`, and keeps the elements that are in both: with them focus, scroll
// position and selection.
function merge(held, fresh) {
  const keyed = new Map(Array.from(held.children, (each) => [keyOf(each), each]));
  let at = held.firstChild;
  for (const wanted of Array.from(fresh.childNodes)) {
    while (at && isMade(at)) at = at.nextSibling;
    const key = keyOf(wanted);
    const found = key ? keyed.get(key) : at && sameKind(at, wanted) ? at : null;
    if (!found || !sameKind(found, wanted)) {
      held.insertBefore(wanted, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else held.insertBefore(found, at);
    update(found, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    if (!isMade(at)) at.remove();
    at = next;
  }
}

// The rows of a table come in the server's order: they are sorted and narrowed as before.
function settle(within) {
  for (const table of within.querySelectorAll("table[data-enhanced]")) {
    const cells = Array.from(table.tHead.rows[0].cells);
    const sorted = cells.findIndex((cell) => cell.hasAttribute("aria-sort"));
    if (sorted >= 0) sortBy(table, sorted, cells[sorted].getAttribute("aria-sort"));
    table.previousElementSibling?.querySelector?.("input")?.dispatchEvent(new Event("input"));
  }
}

let asking = false;

async function refresh() {
  if (document.hidden || asking) return;
  asking = true;
  const missed = document.getElementById("missed");
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    localise(page);
    const focused = document.activeElement;
    for (const [held, fresh] of ["main", "footer"].map((name) => [document.querySelector(name), page.querySelector(name)])) {
      if (fresh) merge(held, fresh);
    }
    enhance(document);
    settle(document);
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    missed.textContent = "";
  } catch (problem) {
    // what is shown stays: the footer says of when it is
    missed.textContent = `not updated: ${problem.message}`;
  } finally {
    asking = false;
  }
}

localise(document);
enhance(document);
centred(document);
const seconds = Number(document.body.dataset.refresh);
if (seconds > 0) setInterval(refresh, seconds * 1000);
