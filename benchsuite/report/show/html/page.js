"use strict";
(() => {
  // Tables are sorted by a click on, or Enter in, a header; "#sort=perf" and "#sort=-perf" sort the first from its address.
  const tables = Array.from(document.querySelectorAll("table.sortable"));

  function key(row, column) {
    const cell = row.cells[column];
    if ("absent" in cell.dataset) return null;
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  }

  function sort(table, header, descending) {
    const body = table.tBodies[0];
    const column = header.cellIndex;
    const rows = Array.from(body.rows, (row) => ({ row, key: key(row, column) }));
    rows.sort((a, b) => {
      // What has no figure stays last, whichever way.
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      return descending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map((entry) => entry.row));
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }

  for (const table of tables) {
    for (const header of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const descending = header.getAttribute("aria-sort") === "ascending";
        sort(table, header, descending);
        if (table === tables[0]) {
          history.replaceState(null, "", "#sort=" + (descending ? "-" : "") + encodeURIComponent(header.dataset.key));
        }
      });
    }
  }

  function follow() {
    const found = /^#sort=(-?)(.+)$/.exec(location.hash);
    if (!found || !tables.length) return;
    let name = found[2];
    try {
      name = decodeURIComponent(name);
    } catch {
      // A bare "%", as in "std%": the name as it stands.
    }
    const header = Array.from(tables[0].tHead.rows[0].cells).find((cell) => cell.dataset.key === name);
    if (header) sort(tables[0], header, found[1] === "-");
  }

  window.addEventListener("hashchange", follow);
  follow();
})();
