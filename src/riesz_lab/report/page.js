"use strict";
(() => {
  const root = document.documentElement;
  const say = (text) => { document.getElementById("live").textContent = text; };

  // -- theme: the system's, or the one chosen here ------------------------------------------------------------------
  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("riesz-theme") || "auto"; } catch { /* a file may have no storage */ }
  const setTheme = (name) => {
    theme = themes.includes(name) ? name : "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]);
    try { localStorage.setItem("riesz-theme", theme); } catch { /* then it lasts as long as the page */ }
  });
  setTheme(theme);

  // -- figures: the value of a point beside it, by mouse, touch and keyboard ----------------------------------------
  const tip = document.getElementById("tip");
  const texts = new Map();
  let current = null;
  // A mouse that rests where the page scrolls by does not end a walk with the keyboard: only one that moves does.
  let walking = false;
  document.addEventListener("pointermove", ({ movementX, movementY }) => { if (movementX || movementY) walking = false; });
  // The browser shows titles late, and only to a mouse; without this script it still does.
  for (const title of document.querySelectorAll(".plot title")) {
    texts.set(title.parentNode, title.textContent);
    title.remove();
  }
  const leave = () => {
    tip.hidden = true;
    if (current) current.classList.remove("current");
    current = null;
  };
  const show = (point) => {
    leave();
    current = point;
    point.classList.add("current");
    tip.textContent = texts.get(point);
    tip.hidden = false;
    const at = point.getBoundingClientRect();
    const left = at.left + at.width / 2 - tip.offsetWidth / 2;
    tip.style.left = `${Math.max(4, Math.min(left, root.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${at.top > tip.offsetHeight + 8 ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
  };
  for (const plot of document.querySelectorAll(".plot")) {
    const away = () => { if (document.activeElement !== plot) leave(); };
    for (const event of ["pointerover", "click"]) {
      plot.addEventListener(event, ({ target, type }) => {
        if (walking && type === "pointerover") return;
        if (texts.has(target)) show(target); else away();
      });
    }
    plot.addEventListener("focus", () => { walking = true; });
    plot.addEventListener("pointerleave", away);
    plot.addEventListener("blur", leave);
    // Arrows: right and left along a series, down and up to another one.
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const rows = [...plot.querySelectorAll("[data-series]")].filter((group) => group.style.display !== "none")
        .map((group) => [...group.children].filter((point) => texts.has(point))).filter((points) => points.length);
      if (!step || !rows.length) return;
      event.preventDefault();
      walking = true;
      let row = rows.findIndex((points) => points.includes(current));
      let column = row < 0 ? 0 : rows[row].indexOf(current) + step[1];
      row = row < 0 ? 0 : (row + step[0] + rows.length) % rows.length;
      column = Math.max(0, Math.min(column, rows[row].length - 1));
      show(rows[row][column]);
      say(texts.get(current));
    });
  }
  window.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  for (const legend of document.querySelectorAll(".legend button")) {
    legend.addEventListener("click", () => {
      const shown = legend.getAttribute("aria-pressed") !== "true";
      legend.setAttribute("aria-pressed", String(shown));
      for (const group of legend.closest("figure").querySelectorAll(".plot [data-series]")) {
        if (group.dataset.series === legend.dataset.series) group.style.display = shown ? "" : "none";
      }
    });
  }

  // -- tables: press a head to sort --------------------------------------------------------------------------------
  const compare = (one, other) => typeof one === "number" && typeof other === "number"
    ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.sort !== undefined ? Number(cell.dataset.sort) : cell.textContent.trim();
      };
      const rows = [...body.rows].map((row) => [key(row), row]);
      // What is empty stays last, whichever way it is sorted.
      rows.sort(([a], [b]) => (a === "") - (b === "") || (down ? compare(b, a) : compare(a, b)));
      body.append(...rows.map(([, row]) => row));
      say(`sorted by ${head.textContent.trim()}, ${down ? "descending" : "ascending"}`);
    }));
  }

  // -- wide tables: say that there is more ---------------------------------------------------------------------------
  const showHints = () => {
    for (const box of document.querySelectorAll(".scroll")) box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
  };
  window.addEventListener("resize", showHints);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", showHints);
  showHints();

  // -- paper: everything unfolded ------------------------------------------------------------------------------------
  window.addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
})();
