"use strict";
(() => {
  const root = document.documentElement;

  // --- light and dark: for this view of the page only, nothing is stored -------------------------------------------
  const theme = document.createElement("button");
  theme.type = "button";
  theme.className = "theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => (theme.textContent = dark() ? "Light" : "Dark");
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    label();
  });
  system.addEventListener("change", label);
  label();
  document.querySelector(".title").append(theme);

  // --- tables are sorted by their headers; "#sort=perf" and "#sort=-perf" sort the table of jobs from its address ----
  const tables = Array.from(document.querySelectorAll("table.sortable"));
  const jobs = document.querySelector("#jobs table.sortable") || tables[0];

  function key(row, column) {
    const cell = row.cells[column];
    if (!cell || "absent" in cell.dataset) return null;
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  }

  function sort(table, header, descending) {
    const body = table.tBodies[table.tBodies.length - 1];
    const column = header.cellIndex;
    const rows = Array.from(body.rows, (row) => ({ row, key: key(row, column) }));
    rows.sort((a, b) => {
      // Rows without a value stay last, whichever way.
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      return descending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map((entry) => entry.row));
    for (const other of table.tHead.rows[0].cells) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }

  for (const table of tables) {
    for (const header of table.tHead.rows[0].cells) {
      const button = header.querySelector("button");
      if (!button) continue;
      button.addEventListener("click", () => {
        const descending = header.getAttribute("aria-sort") === "ascending";
        sort(table, header, descending);
        if (table === jobs) {
          history.replaceState(null, "", "#sort=" + (descending ? "-" : "") + encodeURIComponent(header.dataset.key));
        }
      });
    }
  }

  function follow() {
    const found = /^#sort=(-?)(.+)$/.exec(location.hash);
    if (!found || !jobs) return;
    let name = found[2];
    try {
      name = decodeURIComponent(name);
    } catch {
      // A bare "%", as in "std%": the name as it stands.
    }
    const header = Array.from(jobs.tHead.rows[0].cells).find((cell) => cell.dataset.key === name);
    if (header) sort(jobs, header, found[1] === "-");
  }

  window.addEventListener("hashchange", follow);
  follow();

  // --- columns that a phone hides ------------------------------------------------------------------------------------
  for (const wide of document.querySelectorAll(".wide")) {
    if (!wide.querySelector(".extra")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "columns";
    button.textContent = "All columns";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const all = wide.classList.toggle("all");
      button.textContent = all ? "Fewer columns" : "All columns";
      button.setAttribute("aria-expanded", String(all));
    });
    wide.before(button);
  }

  // --- tooltips, under the pointer and at the focus ------------------------------------------------------------------
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let owner = null;

  function show(element, text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const width = root.clientWidth;
    const left = Math.max(8, Math.min(x + 12, width - tip.offsetWidth - 8));
    const below = y + 16 + tip.offsetHeight < window.innerHeight;
    tip.style.left = left + window.scrollX + "px";
    tip.style.top = (below ? y + 16 : Math.max(4, y - 12 - tip.offsetHeight)) + window.scrollY + "px";
    if (owner && owner !== element) owner.removeAttribute("aria-describedby");
    owner = element;
    owner.setAttribute("aria-describedby", "tip");
  }

  function hide() {
    tip.hidden = true;
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
  }

  document.addEventListener("pointermove", (event) => {
    const chart = event.target.closest("svg[data-top]");
    if (chart) return trace(chart, event);
    const element = event.target.closest("[data-tip]");
    if (element) show(element, element.dataset.tip, event.clientX, event.clientY);
    else if (owner && owner !== document.activeElement) hide();
  });
  document.addEventListener("focusin", (event) => {
    const element = event.target.closest("[data-tip]");
    if (!element) return hide();
    const box = element.getBoundingClientRect();
    show(element, element.dataset.tip, box.left + Math.min(box.width / 2, 200), box.bottom - 10);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  // --- the curve nearest to the pointer, with its value there --------------------------------------------------------
  let traced = null;

  function points(line) {
    if (!line.places) {
      line.places = line.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number));
    }
    return line.places;
  }

  function nearest(places, x) {
    return places.reduce((best, at) => (Math.abs(at[0] - x) < Math.abs(best[0] - x) ? at : best));
  }

  function clear() {
    if (!traced) return;
    traced.classList.remove("dim");
    for (const line of traced.querySelectorAll(".at")) line.classList.remove("at");
    traced = null;
  }

  function trace(chart, event) {
    if (traced && traced !== chart) clear();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    let best = null;
    for (const line of chart.querySelectorAll("polyline[data-tip]")) {
      const [x, y] = nearest(points(line), at.x);
      const distance = Math.abs(y - at.y);
      if (!best || distance < best.distance) best = { line, x, y, distance };
    }
    if (!best) return;
    const { left, right, upper, lower, top, end, unit } = chart.dataset;
    const value = (Number(top) * (Number(lower) - best.y)) / (Number(lower) - Number(upper));
    const seconds = (Number(end) * (best.x - Number(left))) / (Number(right) - Number(left));
    for (const line of chart.querySelectorAll(".at")) line.classList.remove("at");
    best.line.classList.add("at");
    chart.classList.add("dim");
    traced = chart;
    const figure = value.toLocaleString("en", { maximumSignificantDigits: 4 });
    show(best.line, best.line.dataset.tip + "\n" + figure + " " + unit + " at " + seconds.toFixed(1) + " s", event.clientX, event.clientY);
  }

  document.addEventListener("pointerout", (event) => {
    const chart = event.target.closest("svg[data-top]");
    if (chart && !chart.contains(event.relatedTarget)) {
      clear();
      hide();
    }
  });

  // --- one tab stop for each chart or heat map; arrows move within it ------------------------------------------------
  for (const group of document.querySelectorAll(".roving")) {
    const all = () => Array.from(group.querySelectorAll("[data-tip]"));
    all().forEach((stop, place) => stop.setAttribute("tabindex", place ? "-1" : "0"));
    group.addEventListener("keydown", (event) => {
      const stops = all();
      const now = stops.indexOf(event.target);
      if (now < 0) return;
      const across = Number(group.dataset.across || 1);
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -now, End: stops.length - 1 - now };
      const next = stops[now + steps[event.key]];
      if (!next) return;
      event.preventDefault();
      stops[now].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  // All is printed, also what is folded.
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
