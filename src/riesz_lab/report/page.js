"use strict";
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const say = (text) => { document.getElementById("live").textContent = text; };

  // -- theme: the system's, or the one chosen here ------------------------------------------------------------------
  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("riesz-theme") || "auto"; } catch { /* a file may have no storage */ }
  const isDark = () => theme === "dark" || (theme === "auto" && dark.matches);
  const setTheme = (name) => {
    theme = themes.includes(name) ? name : "auto";
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    restyle();
  };
  button.addEventListener("click", () => {
    setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]);
    try { localStorage.setItem("riesz-theme", theme); } catch { /* then it lasts as long as the page */ }
  });
  dark.addEventListener("change", () => restyle());

  // -- figures: drawn when they come near the screen ---------------------------------------------------------------
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = new Set();
  const content = (plot) => JSON.parse(plot.nextElementSibling.textContent);
  let printing = false;

  const ground = (layout) => {
    const style = getComputedStyle(root);
    const value = (name) => style.getPropertyValue(name).trim();
    const axis = (given) => ({
      automargin: true, gridcolor: value("--grid"), linecolor: value("--line"), zerolinecolor: value("--line"), ...given,
      title: { standoff: 8, font: { size: 12 }, ...given.title },
    });
    return {
      ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis), autosize: true, showlegend: false,
      hovermode: "closest", hoverdistance: 50,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 8, t: 14, b: 8 },
      font: { color: value("--text"), size: 12, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: value("--raised"), bordercolor: value("--line"), font: { color: value("--text") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: value("--quiet"), activecolor: value("--text") },
      shapes: (layout.shapes || []).map((shape) => ({ ...shape, line: { ...shape.line, color: value("--quiet") } })),
    };
  };
  const around = () => isDark() && !printing
    ? [[0, "#6db3ff"], [0.5, "#14171c"], [1, "#ff8a5c"]]
    : [[0, "#1f5fa8"], [0.5, "#ffffff"], [1, "#b8391a"]];
  const dress = (traces) => traces.map((trace) => {
    if (trace.type === "heatmap") return { ...trace, colorscale: around() };
    if (trace.error_y && trace.error_y.type) trace.error_y.color = getComputedStyle(root).getPropertyValue("--quiet").trim();
    return trace;
  });
  const hiddenSeries = (plot) => new Set([...plot.closest("figure").querySelectorAll('.legend [aria-pressed="false"]')]
    .map((legend) => legend.dataset.series));

  const draw = (plot) => {
    const { data, layout } = content(plot);
    const hidden = hiddenSeries(plot);
    const traces = dress(data).map((trace) => ({ ...trace, visible: !hidden.has(trace.legendgroup) }));
    const options = {
      responsive: true, displaylogo: false, toImageButtonOptions: { format: "svg" },
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    };
    drawn.add(plot);
    return Plotly.react(plot, traces, ground(layout), options).then(() => {
      const tools = plot.querySelector(".modebar");
      if (tools) tools.setAttribute("aria-label", "Tools of the chart");
    });
  };
  const restyle = () => { for (const plot of drawn) draw(plot); };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
  }, { rootMargin: "600px" });
  for (const plot of plots) watcher.observe(plot);

  for (const legend of document.querySelectorAll(".legend button")) {
    legend.addEventListener("click", () => {
      legend.setAttribute("aria-pressed", String(legend.getAttribute("aria-pressed") !== "true"));
      for (const plot of legend.closest("figure").querySelectorAll(".plot")) if (drawn.has(plot)) draw(plot);
    });
  }

  // -- the keyboard: arrows walk along the points of a figure ------------------------------------------------------
  for (const plot of plots) {
    let curve = -1, point = 0;
    plot.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
      const step = steps[event.key];
      if (!step || !drawn.has(plot) || event.target !== plot) return;
      const curves = plot.data.map((trace, number) => [trace, number])
        .filter(([trace]) => trace.hoverinfo !== "skip" && trace.type !== "heatmap" && trace.visible !== false);
      if (!curves.length) return;
      event.preventDefault();
      const first = curve < 0;
      curve = first ? 0 : (curve + step[0] + curves.length) % curves.length;
      const [trace, number] = curves[curve];
      point = first ? 0 : Math.min(Math.max(point + step[1], 0), trace.x.length - 1);
      Plotly.Fx.hover(plot, [{ curveNumber: number, pointNumber: point }]);
      const range = trace.customdata && trace.customdata[point];
      say(`${trace.legendgroup}: ${trace.x[point]}, ${trace.y[point]}${range && range[0] !== null ? `, from ${range[0]} to ${range[1]}` : ""}`);
    });
    plot.addEventListener("blur", () => { if (drawn.has(plot) && plot._fullLayout) Plotly.Fx.unhover(plot); });
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

  // -- paper: everything drawn, in light colours, as wide as the sheet ---------------------------------------------
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const folded of document.querySelectorAll("details")) folded.open = true;
    for (const plot of plots) { draw(plot); Plotly.Plots.resize(plot); }
  });
  window.addEventListener("afterprint", () => { printing = false; restyle(); });

  setTheme(theme);
})();
