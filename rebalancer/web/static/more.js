// What pages do besides: tables that are sorted and narrowed, and pages that come again without jumping to their top.
// Everything is there without it too.
"use strict";

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

// On a narrow screen now is in the middle, not a day ago.
function centred(within) {
  for (const chart of within.querySelectorAll(".scroll > .curve")) {
    const box = chart.parentElement;
    box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;
  }
}

function better(within) {
  centred(within);
  for (const table of within.querySelectorAll("table[data-more]")) {
    if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
    sortable(table);
    if (table.tBodies[0].rows.length >= MANY) narrowable(table);
  }
}

// What a person has set in the old content holds in the new one.
function stateOf(within) {
  return Array.from(within.querySelectorAll("table[data-more]"), (table) => {
    const cells = table.tHead ? Array.from(table.tHead.rows[0].cells) : [];
    const sorted = cells.findIndex((cell) => cell.hasAttribute("aria-sort"));
    const input = table.previousElementSibling?.querySelector?.("input");
    const direction = sorted >= 0 ? cells[sorted].getAttribute("aria-sort") : "";
    return { sorted, direction, text: input ? input.value : "" };
  });
}

function setState(within, states) {
  Array.from(within.querySelectorAll("table[data-more]")).forEach((table, index) => {
    const state = states[index];
    if (!state) return;
    if (state.sorted >= 0) sortBy(table, state.sorted, state.direction);
    const input = table.previousElementSibling?.querySelector?.("input");
    if (input && state.text) {
      input.value = state.text;
      input.dispatchEvent(new Event("input"));
    }
  });
}

async function comeAgain() {
  const main = document.getElementById("main");
  // nobody loses the field or link that they are at
  if (document.hidden || (main.contains(document.activeElement) && document.activeElement !== main)) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (!fresh) return;
    const states = stateOf(main);
    const open = Array.from(main.querySelectorAll("details"), (each) => each.open);
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll("details").forEach((each, index) => {
      each.open = Boolean(open[index]);
    });
    better(main);
    setState(main, states);
    const bottom = page.querySelector("footer.bottom");
    if (bottom) document.querySelector("footer.bottom").replaceChildren(...bottom.childNodes);
  } catch {
    // the server is away for a moment: what is shown says of when it is
  }
}

better(document);
const seconds = Number(document.body.dataset.refresh);
if (seconds > 0) setInterval(comeAgain, seconds * 1000);
