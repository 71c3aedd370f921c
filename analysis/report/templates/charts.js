// The charts. Each is a picture until it comes near the screen; then Bokeh draws the same numbers, and they answer.
const drawn = [];
const charts = new Map();
const TIP = `
  :host { --tooltip-color: var(--ground); --tooltip-text: var(--text); --tooltip-border: var(--line); }
  .bk-tooltip-row-label { color: var(--soft); }`;

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(figure.querySelector("script").textContent);
    this.plots = [];
    this.items = [...figure.querySelectorAll("[data-line]")];
    const rows = figure.querySelector('[data-of="panels"]');
    if (rows) rows.hidden = false;
    for (const item of figure.querySelectorAll("[data-line], [data-panels]")) this.toggle(item);
    const numbers = figure.querySelector(".numbers");
    numbers.hidden = false;
    numbers.addEventListener("toggle", () => this.list(numbers), {once: true});
  }

  /** Turn an item of a legend into a switch. */
  toggle(item) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(...item.childNodes);
    item.append(button);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(isOff(button)));
      this.draw();
      this.sync();
      link(this.figure);
    });
  }

  /** Show the lines and panels that the legend and the chosen rows leave. */
  sync() {
    for (const item of this.figure.querySelectorAll("[data-panels]")) {
      for (const panel of this.figure.getElementsByClassName("panel")) {
        if (panel.dataset.row === item.dataset.panels) panel.classList.toggle("off", isOff(item.firstChild));
      }
    }
    for (const {lines} of this.plots) {
      for (const [line, renderers] of lines) for (const each of renderers) each.visible = this.shows(line);
    }
  }

  shows(line) {
    const item = this.items[line];
    return !item.hidden && !isOff(item.firstChild);
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
      value: withSpread(mean[i], spread[i]),
      n: Array.isArray(n) ? n[i] : n,
    }));
  }

  /** Draw all panels, anew where the scale has changed. */
  draw() {
    const log = form.scale.value === "log";
    if (!window.Bokeh || (this.plots.length && this.log === log)) return;
    for (const {view} of this.plots) view.then((its) => its.remove());
    this.log = log;
    const places = this.figure.getElementsByClassName("plot");
    this.plots = this.data.panels.map((panel, i) => this.panel(panel, places[i]));
    if (!drawn.includes(this)) drawn.push(this);
    this.paint();
  }

  /** Lowest mean on a scale: a logarithm needs one above 0. */
  lowest(scale) {
    const panels = this.data.panels.filter((panel) => panel.scale === scale);
    return Math.min(...panels.flatMap((panel) => panel.lines.flatMap((line) => line[2].filter((mean) => mean !== null))));
  }

  panel(panel, place) {
    const {x: across, y: up, each, axis: y} = this.data.scales[panel.scale];
    const x = panel.axis;
    const least = this.lowest(panel.scale);
    const log = this.log && least > 0 && Number.isFinite(least);
    const plot = new Bokeh.Plotting.Figure({
      sizing_mode: "stretch_both", min_width: 0, min_height: 0, toolbar_location: null, tools: [],
      x_axis_type: x.log ? "log" : "linear", x_range: [x.low, x.high],
      y_axis_type: log ? "log" : "linear", y_range: [log ? 0.9 * least : y.low, y.high],
      x_axis_label: across, y_axis_label: up,
    });
    const [below] = plot.below, [left] = plot.left;
    for (const [axis, {ticks, labels}] of [[below, x], [left, y]]) {
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_standoff = 2;
      if (log && axis === left) {
        axis.ticker = new Bokeh.LogTicker({mantissas: [1, 2, 3, 5, 7]});
        axis.formatter = new Bokeh.BasicTickFormatter();
        continue;
      }
      axis.ticker = new Bokeh.FixedTicker({ticks});
      axis.major_label_overrides = new Map(ticks.map((tick, i) => [tick, labels[i]]));
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
        low: column((p) => Math.max((p.mean ?? NaN) - (p.spread ?? 0), log ? least / 10 : -Infinity)),
        high: column((p) => (p.mean ?? NaN) + (p.spread ?? 0)),
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
        renderer.visible = this.shows(line[0]);
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
    const view = Bokeh.Plotting.show(plot, place);
    view.then((its) => {
      for (const tip of its.tool_views?.get(hover)?.ttmodels?.values() ?? []) tip.stylesheets = [TIP];
    });
    return {plot, lines, place, below, left, view};
  }

  /** In the colours of the page, which are others in the dark. */
  paint() {
    const colour = (name) => colourOf(name, this.figure);
    const [text, soft, line] = ["var(--text)", "var(--soft)", "var(--line)"].map(colour);
    const strokes = this.data.strokes.map((_, i) => colour(`var(--c${i})`));
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

  /** All numbers as tables, a panel each, for readers without a pointer. */
  list(fold) {
    for (const panel of this.data.panels) {
      const {x, y} = this.data.scales[panel.scale];
      const table = document.createElement("table");
      table.createCaption().textContent = panel.title;
      const line = (section, tag, ...cells) => {
        const row = section.insertRow();
        for (const text of cells) row.appendChild(document.createElement(tag)).textContent = text;
      };
      line(table.createTHead(), "th", "row", "line", x, `${y}: mean ± sd`, "n");
      const body = table.createTBody();
      for (const each of panel.lines) {
        for (const point of this.points(each, panel)) line(body, "td", point.row, point.line, point.x, point.value, point.n);
      }
      const scroll = document.createElement("div");
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      scroll.append(table);
      fold.append(scroll);
      tools(table);
    }
  }
}

/** A mean and, unless it is of one seed, its spread: two decimals, or four of what is small. */
function withSpread(mean, spread) {
  if (mean === null) return "none";
  const size = Math.max(Math.abs(mean), spread ?? 0);
  const places = size >= 1 || size === 0 ? 2 : size >= 0.001 ? 4 : 6;
  return mean.toFixed(places) + (spread === null ? "" : ` ± ${spread.toFixed(places)}`);
}

function isOff(button) {
  return button.getAttribute("aria-pressed") === "false";
}

/** A colour of the page's style as numbers. */
function colourOf(name, place) {
  const probe = document.createElement("span");
  probe.style.color = name;
  place.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

for (const figure of all(".chart")) {
  nameOf(figure, "f");
  charts.set(figure, new Chart(figure));
}
const switches = all(".legend button");
const idOf = (button) => `${button.closest("figure").id}.${all(".legend button", button.closest("figure")).indexOf(button)}`;
control("off", () => switches.filter(isOff).map(idOf), (values) => {
  for (const button of switches) button.setAttribute("aria-pressed", String(!values.includes(idOf(button))));
});
const library = document.getElementById("library");
if (library) unpack(library.textContent).then((text) => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  Bokeh.logger.set_level("error"); // set_log_level would log that it does
  const watch = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) {
      if (!isIntersecting) continue;
      charts.get(target).draw();
      watch.unobserve(target);
    }
  }, {rootMargin: "400px"});
  for (const figure of charts.keys()) watch.observe(figure);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.paint()));
});
