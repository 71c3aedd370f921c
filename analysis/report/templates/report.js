"use strict";
// #dataset=digits&row=Mimetic is a link to what is shown.
const form = document.getElementById("filters");
const filters = ["dataset", "row"];
const runs = document.getElementsByClassName("run");

function show() {
  for (const element of document.querySelectorAll("[data-dataset], [data-row]")) {
    element.hidden = filters.some((name) => {
      const [wanted, its] = [form[name].value, element.dataset[name]];
      // A column may show one number of several: "digits: top-1 (%)".
      return wanted && its !== undefined && its !== wanted && !its.startsWith(wanted + ": ");
    });
  }
  for (const study of document.getElementsByClassName("study")) study.hidden = !study.querySelector(".run:not([hidden])");
  const shown = Array.from(runs).filter((run) => !run.hidden).length;
  form.querySelector("output").textContent = `${shown} of ${runs.length} runs. Figures and notes show all.`;
}

function read() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (!filters.some((name) => wanted.has(name))) return; // a link to a heading
  for (const name of filters) {
    form[name].value = wanted.get(name) ?? "";
    if (form[name].selectedIndex < 0) form[name].value = "";
  }
}

function link() {
  const chosen = filters.filter((name) => form[name].value).map((name) => [name, form[name].value]);
  history.replaceState(null, "", "#" + new URLSearchParams(chosen));
  show();
}

form.addEventListener("change", link);
form.addEventListener("reset", () => setTimeout(link));
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => { read(); show(); });
form.hidden = false;
read();
show();

// The charts. Each is a picture until it comes near the screen; then Bokeh draws the same numbers, and they answer.
const drawn = [];
const TIP = `
  :host { --tooltip-color: var(--ground); --tooltip-text: var(--text); --tooltip-border: var(--line); }
  .bk-tooltip-row-label { color: var(--soft); }`;

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(figure.querySelector("script").textContent);
    this.hidden = new Set();
    this.plots = [];
    for (const item of figure.querySelectorAll("[data-line]")) this.toggle(item, (off) => this.hide(+item.dataset.line, off));
    const rows = figure.querySelector('[data-of="panels"]');
    if (rows) rows.hidden = false;
    for (const item of figure.querySelectorAll("[data-panels]")) this.toggle(item, (off) => {
      for (const panel of figure.getElementsByClassName("panel")) {
        if (panel.dataset.row === item.dataset.panels) panel.classList.toggle("off", off);
      }
    });
    const numbers = figure.querySelector(".numbers");
    numbers.hidden = false;
    numbers.addEventListener("toggle", () => this.list(numbers), {once: true});
  }

  /** Turn an item of a legend into a switch. */
  toggle(item, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(...item.childNodes);
    item.append(button);
    button.addEventListener("click", () => {
      const off = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!off));
      act(off);
    });
  }

  hide(line, off) {
    if (off) this.hidden.add(line);
    else this.hidden.delete(line);
    this.draw();
    for (const {lines} of this.plots) {
      for (const renderer of lines.get(line) ?? []) renderer.visible = !off;
    }
  }

  /** x, mean, spread and n of a line, as they are written. */
  points([index, x, mean, spread, n], panel) {
    const [name] = this.data.strokes[index];
    const {each} = this.data.scales[panel.scale];
    return x.map((place, i) => ({
      row: panel.row ?? (each === "row" ? name : ""),
      line: each === "row" ? "" : name.startsWith(each) ? name : `${each} ${name}`,
      x: place,
      mean: mean[i],
      spread: spread[i],
      value: written(mean[i], spread[i]),
      n: Array.isArray(n) ? n[i] : n,
    }));
  }

  draw() {
    if (this.plots.length) return;
    const places = this.figure.getElementsByClassName("plot");
    this.plots = this.data.panels.map((panel, i) => this.panel(panel, places[i]));
    drawn.push(this);
    this.paint();
  }

  panel(panel, place) {
    const {x: across, y: up, each, axis: y} = this.data.scales[panel.scale];
    const x = panel.axis;
    const plot = new Bokeh.Plotting.Figure({
      sizing_mode: "stretch_both", min_width: 0, min_height: 0, toolbar_location: null, tools: [],
      x_axis_type: x.log ? "log" : "linear", x_range: [x.low, x.high], y_range: [y.low, y.high],
      x_axis_label: across, y_axis_label: up,
    });
    const [below] = plot.below, [left] = plot.left;
    for (const [axis, {ticks, labels}] of [[below, x], [left, y]]) {
      axis.ticker = new Bokeh.FixedTicker({ticks});
      axis.major_label_overrides = new Map(ticks.map((tick, i) => [tick, labels[i]]));
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_standoff = 2;
    }
    for (const grid of plot.center) grid.ticker = grid.dimension ? left.ticker : below.ticker;
    if (panel.reference !== null) {
      plot.add_layout(new Bokeh.Span({location: panel.reference, dimension: "width", line_dash: [2, 3]}));
    }
    const lines = new Map(), seen = [];
    let named = false;
    for (const line of panel.lines) {
      const points = this.points(line, panel);
      named ||= Boolean(points[0].line);
      const column = (of) => points.map(of);
      const source = new Bokeh.ColumnDataSource({data: {
        x: column((p) => p.x), mean: column((p) => p.mean ?? NaN), row: column((p) => p.row), line: column((p) => p.line),
        low: column((p) => (p.mean ?? NaN) - (p.spread ?? 0)), high: column((p) => (p.mean ?? NaN) + (p.spread ?? 0)),
        value: column((p) => p.value), n: column((p) => p.n),
      }});
      const [, dash, heavy] = this.data.strokes[line[0]];
      const field = (name) => ({field: name});
      const band = plot.varea(field("x"), field("low"), field("high"), {source, fill_alpha: 0.18});
      const curve = plot.line(field("x"), field("mean"), {source, line_width: heavy ? 3 : 2, line_dash: dash, line_join: "round"});
      const dots = plot.scatter(field("x"), field("mean"), {source, size: 5});
      lines.set(line[0], [band, curve, dots]);
      seen.push(points.filter((p) => p.mean !== null).length > 1 ? curve : dots); // both would have a tooltip each
      for (const renderer of lines.get(line[0])) {
        renderer.visible = !this.hidden.has(line[0]);
        renderer.hover_glyph = null; // else it is blue while the pointer is over it, as another row may be
      }
    }
    const rowed = panel.row !== null || each === "row";
    const tooltips = [
      ...(rowed ? [["row", "@row"]] : []), ...(named ? [["line", "@line"]] : []),
      [across, "@x"], ["mean ± sd", "@value"], ["n", "@n"],
    ];
    const hover = new Bokeh.HoverTool({renderers: seen, tooltips, line_policy: "nearest", limit: 4, attachment: "vertical"});
    plot.add_tools(hover);
    place.replaceChildren();
    Bokeh.Plotting.show(plot, place).then((view) => {
      for (const tip of view.tool_views?.get(hover)?.ttmodels?.values() ?? []) tip.stylesheets = [TIP];
    });
    return {plot, lines, place, below, left};
  }

  /** In the colours of the page, which are others in the dark. */
  paint() {
    const colour = (name) => {
      probe.style.color = name;
      this.figure.append(probe);
      return getComputedStyle(probe).color;
    };
    const [text, soft, line] = ["var(--text)", "var(--soft)", "var(--line)"].map(colour);
    const strokes = this.data.strokes.map((_, i) => colour(`var(--c${i})`));
    probe.remove();
    for (const {plot, lines, below, left} of this.plots) {
      plot.setv({background_fill_color: null, border_fill_color: null, outline_line_color: null});
      for (const axis of [below, left]) {
        axis.setv({
          axis_label_text_color: soft, major_label_text_color: soft, axis_line_color: line, major_tick_line_color: line,
          minor_tick_line_color: null,
        });
      }
      for (const grid of plot.center) {
        if (grid instanceof Bokeh.Grid) grid.grid_line_color = line;
        else grid.line_color = text;
      }
      for (const [index, [band, curve, dots]] of lines) {
        band.glyph.fill_color = strokes[index];
        curve.glyph.line_color = strokes[index];
        dots.glyph.setv({fill_color: strokes[index], line_color: strokes[index]});
      }
    }
  }

  /** All numbers as a table, for readers without a pointer. */
  list(fold) {
    const table = document.createElement("table");
    const line = (tag, ...cells) => {
      const row = table.insertRow();
      for (const text of cells) row.appendChild(document.createElement(tag)).textContent = text;
    };
    for (const panel of this.data.panels) {
      const {x, y} = this.data.scales[panel.scale];
      line("th", panel.title, "line", x, `${y}: mean ± sd`, "n");
      for (const each of panel.lines) {
        for (const point of this.points(each, panel)) line("td", point.row, point.line, point.x, point.value, point.n);
      }
    }
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(table);
    fold.append(scroll);
  }
}

/** A mean and, unless it is of one seed, its spread: two decimals, or four of what is small. */
function written(mean, spread) {
  if (mean === null) return "none";
  const size = Math.max(Math.abs(mean), spread ?? 0);
  const places = size >= 1 || size === 0 ? 2 : size >= 0.001 ? 4 : 6;
  return mean.toFixed(places) + (spread === null ? "" : ` ± ${spread.toFixed(places)}`);
}

const probe = document.createElement("span");
if (window.Bokeh) {
  Bokeh.logger.set_level("error"); // set_log_level would log that it does
  const charts = new Map(Array.from(document.getElementsByClassName("chart"), (figure) => [figure, new Chart(figure)]));
  const watch = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) {
      if (!isIntersecting) continue;
      charts.get(target).draw();
      watch.unobserve(target);
    }
  }, {rootMargin: "400px"});
  for (const figure of charts.keys()) watch.observe(figure);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.paint()));
}
